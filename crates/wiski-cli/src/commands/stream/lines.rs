//! What a stream writes for each row: a line as it arrives, a line of the file of predictions.

use anyhow::Result;
use serde_json::{Value, json};
use wiski::model::Z95;
use wiski::persist::{Answer, Model, Stored};

use super::{Emit, learner};
use crate::input::Row;
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
            ["row", first, second, third, "alarm", "drift"].into_iter().for_each(|name| out.text(name));
            out.end_row()?;
            out.flush()?;
        }
        Ok(Self { out, format, drifts: learner::drifts(&stored.model) })
    }

    pub(super) fn row(
        &mut self,
        row: &Row,
        answer: Option<&Answer>,
        off: Option<f64>,
        alarm: bool,
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
            let line = json!({
                "row": row.number, names[0]: first, names[1]: second, names[2]: off,
                "alarm": alarm, "drift": drift,
            });
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
            out.end_row()?;
        }
        Ok(out.flush()?)
    }
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
            Model::Classifier(_) => &["row", "label", "predicted", "probability", "probability_of_label"],
        };
        names.iter().for_each(|name| out.text(name));
        out.end_row()?;
        Ok(Self(out))
    }

    pub(super) fn row(&mut self, row: &Row, answer: Option<&Answer>, stored: &Stored) -> Result<()> {
        let out = &mut self.0;
        out.number(row.number as f64);
        match answer {
            Some(Answer::Value(p)) => {
                let half = Z95 * p.std();
                out.maybe(row.target);
                [p.mean, p.std(), p.mean - half, p.mean + half].into_iter().for_each(|v| out.number(v));
            }
            Some(Answer::Class(p)) => {
                let label = row.label.as_deref().unwrap_or_default();
                out.text(label);
                out.text(&p.label);
                out.number(p.probabilities[p.best]);
                out.maybe(learner::probability(p, label, stored));
            }
            None => {
                match &row.label {
                    Some(label) => out.text(label),
                    None => out.maybe(row.target),
                }
                let rest = if row.label.is_some() { 3 } else { 4 };
                (0..rest).for_each(|_| out.text(""));
            }
        }
        Ok(out.end_row()?)
    }

    pub(super) fn finish(self) -> Result<()> {
        Ok(self.0.finish()?)
    }
}
