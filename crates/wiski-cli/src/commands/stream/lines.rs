//! What a stream writes for each row: a line as it arrives, a line of the file of predictions.

use anyhow::Result;
use serde_json::{Value, json};
use wiski::persist::{Answer, Model, Stored};
use wiski::{Horizon, Interval};

use super::{Emit, learner};
use crate::input::Row;
use crate::intervals::IntervalOptions;
use crate::output::Output;

/// How far off a target was: in standard deviations, or for a class its surprise −log p in nats. `None` if there was
/// no prediction or no target.
pub(super) fn residual(row: &Row, answer: Option<&Answer>, stored: &Stored) -> Option<f64> {
    match answer? {
        Answer::Value(p) => row.target.map(|y| (y - p.mean) / p.std()),
        Answer::Class(p) => row.label.as_ref().map(|label| {
            let probability = learner::probability(p, label, stored);
            -probability.unwrap_or(0.0).max(f64::MIN_POSITIVE).ln()
        }),
    }
}

/// Whether a target was more than `sigmas` deviations off; a class counts as unlikely as a normal value that far off.
pub(super) fn is_alarm(residual: Option<f64>, answer: Option<&Answer>, sigmas: f64) -> bool {
    let limit = match answer {
        Some(Answer::Class(_)) => 0.5 * sigmas * sigmas,
        _ => sigmas,
    };
    residual.is_some_and(|z| z.abs() > limit)
}

/// What was promised for a row before it was seen: an interval, or a set of classes.
#[derive(Default)]
pub(super) struct Promise<'a> {
    pub(super) interval: Option<Interval>,
    pub(super) set: Option<Vec<&'a str>>,
}

impl<'a> Promise<'a> {
    /// Of a row that was learned after it was predicted, or only predicted.
    pub(super) fn new(
        options: &IntervalOptions,
        answer: Option<&Answer>,
        learned: bool,
        stored: &'a Stored,
    ) -> Result<Self> {
        let Some(answer) = answer else { return Ok(Self::default()) };
        let row = if learned { Horizon::Last } else { Horizon::Next };
        let interval = options.interval(&stored.model, answer, row)?;
        Ok(Self { interval, set: options.set(&stored.model, answer, row)? })
    }
}

/// Lines on standard output, each as soon as its row is there.
pub(super) struct Emitted {
    out: Output,
    format: Emit,
    /// The signals of drift so far.
    drifts: u64,
}

impl Emitted {
    pub(super) fn new(format: Emit, stored: &Stored) -> Result<Self> {
        let mut out = Output::open("-")?;
        if format == Emit::Csv {
            let [first, second, third] = names(stored);
            let ends: &[&str] = if is_numbers(stored) { &["lower", "upper"] } else { &["set"] };
            let all = ["row", first, second, third, "alarm", "drift"];
            all.iter().chain(ends).chain(&["event"]).for_each(|name| out.text(name));
            out.end_row()?;
            out.flush()?;
        }
        Ok(Self { out, format, drifts: learner::drifts(&stored.model) })
    }

    pub(super) fn row(
        &mut self,
        row: &Row,
        answer: Option<&Answer>,
        promise: &Promise,
        (off, alarm): (Option<f64>, bool),
        events: &[String],
        stored: &Stored,
    ) -> Result<()> {
        let drifts = learner::drifts(&stored.model);
        let drift = std::mem::replace(&mut self.drifts, drifts) != drifts;
        let (first, second): (Value, Option<f64>) = match answer {
            Some(Answer::Value(p)) => (json!(p.mean), Some(p.std())),
            Some(Answer::Class(p)) => (json!(p.label), Some(p.probabilities[p.best])),
            None => (json!(null), None),
        };
        let out = &mut self.out;
        if self.format == Emit::Ndjson {
            let names = names(stored);
            let mut line = json!({
                "row": row.number, names[0]: first, names[1]: second, names[2]: off,
                "alarm": alarm, "drift": drift,
            });
            if is_numbers(stored) {
                line["lower"] = json!(promise.interval.map(|i| i.lower));
                line["upper"] = json!(promise.interval.map(|i| i.upper));
            } else {
                line["set"] = json!(promise.set);
            }
            if !events.is_empty() {
                line["events"] = json!(events);
            }
            out.line(&line.to_string())?;
        } else {
            out.number(row.number as f64);
            match (&first, first.as_f64()) {
                (_, Some(mean)) => out.number(mean),
                (Value::String(label), _) => out.text(label),
                _ => out.text(""),
            }
            out.maybe(second);
            out.maybe(off);
            out.number(f64::from(u8::from(alarm)));
            out.number(f64::from(u8::from(drift)));
            if is_numbers(stored) {
                out.maybe(promise.interval.map(|i| i.lower));
                out.maybe(promise.interval.map(|i| i.upper));
            } else {
                out.text(&promise.set.as_deref().unwrap_or_default().join("|"));
            }
            out.text(&events.join("; "));
            out.end_row()?;
        }
        Ok(out.flush()?)
    }
}

fn is_numbers(stored: &Stored) -> bool {
    matches!(stored.model, Model::Regressor(_))
}

fn names(stored: &Stored) -> [&'static str; 3] {
    match stored.model {
        Model::Regressor(_) => ["mean", "std", "residual"],
        Model::Classifier(_) => ["predicted", "probability", "surprise"],
    }
}

/// The file of all predictions.
pub(super) struct Predictions(Output);

impl Predictions {
    pub(super) fn new(path: &str, stored: &Stored) -> Result<Self> {
        let mut out = Output::open(path)?;
        let names: &[&str] = match stored.model {
            Model::Regressor(_) => &["row", "target", "mean", "std", "lower", "upper"],
            Model::Classifier(_) => {
                &["row", "label", "predicted", "probability", "probability_of_label", "set"]
            }
        };
        names.iter().for_each(|name| out.text(name));
        out.end_row()?;
        Ok(Self(out))
    }

    pub(super) fn row(
        &mut self,
        row: &Row,
        answer: Option<&Answer>,
        promise: &Promise,
        stored: &Stored,
    ) -> Result<()> {
        let out = &mut self.0;
        out.number(row.number as f64);
        match answer {
            Some(Answer::Value(p)) => {
                out.maybe(row.target);
                [p.mean, p.std()].into_iter().for_each(|v| out.number(v));
                out.maybe(promise.interval.map(|i| i.lower));
                out.maybe(promise.interval.map(|i| i.upper));
            }
            Some(Answer::Class(p)) => {
                let label = row.label.as_deref().unwrap_or_default();
                out.text(label);
                out.text(&p.label);
                out.number(p.probabilities[p.best]);
                out.maybe(learner::probability(p, label, stored));
                out.text(&promise.set.as_deref().unwrap_or_default().join("|"));
            }
            None => {
                match &row.label {
                    Some(label) => out.text(label),
                    None => out.maybe(row.target),
                }
                (0..4).for_each(|_| out.text(""));
            }
        }
        Ok(out.end_row()?)
    }

    pub(super) fn finish(self) -> Result<()> {
        Ok(self.0.finish()?)
    }
}
