//! A stream on its way: row after row, then the model, the report and the summary.
//!
//! A row that cannot be used ends the stream, unless bad rows are skipped. What was learned before it is kept all the
//! same: the model is written, and the message says with which row to go on.

use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::Horizon;
use wiski::model::{Prequential, PrequentialClasses, ROWS_TOGETHER};
use wiski::persist::{self, Answer, Model, Stored, Target};

use super::events::Events;
use super::feed::Feed;
use super::learner::Learner;
use super::lines::{self, Emitted, Predictions, Promise};
use super::recording::Recording;
use super::{AlarmAction, Stream};
use crate::input::{self, Row};
use crate::latency::Latencies;
use crate::output;
use crate::progress::Progress;
use crate::reading::{self, BadRows, Stopped};
use crate::summary::{self, Figures, Summary};

pub(super) struct Run<'a> {
    options: &'a Stream,
    learner: Learner,
    bad: BadRows,
    recording: Option<Recording>,
    predictions: Option<Predictions>,
    emitted: Option<Emitted>,
    events: Events,
    progress: Progress,
    /// Rows kept for the test at the end.
    held_out: Vec<Row>,
    chance: Xoshiro256PlusPlus,
    rows: u64,
    /// Rows that raised an alarm and were not learned.
    passed_over: u64,
    /// How long rows took to be predicted and learned.
    latencies: Latencies,
    start: Instant,
}

impl<'a> Run<'a> {
    pub(super) fn new(options: &'a Stream, learner: Learner, bad: BadRows) -> Result<Self> {
        let stored = learner.stored();
        let predictions =
            options.predictions.as_deref().map(|path| Predictions::new(path, stored)).transpose()?;
        let emitted = options.emit.map(|format| Emitted::new(format, stored)).transpose()?;
        Ok(Self {
            options,
            bad,
            recording: options.report.is_some().then(|| Recording::new(stored)),
            predictions,
            emitted,
            events: Events::default(),
            progress: Progress::new(!options.quiet && options.emit.is_none()),
            held_out: Vec::new(),
            chance: Xoshiro256PlusPlus::seed_from_u64(options.model_options.seed ^ 0x9E37_79B9_7F4A_7C15),
            rows: 0,
            passed_over: 0,
            latencies: Latencies::new(options.max_latency),
            start: Instant::now(),
            learner,
        })
    }

    pub(super) fn over(mut self, feed: &mut Feed) -> Result<()> {
        match self.rows_of(feed) {
            Ok(()) => self.finish(feed),
            // A bad row, or a file that ends in the middle.
            Err(error) if error.is::<Stopped>() || error.is::<input::Error>() => Err(self.stop(error)),
            Err(error) => Err(error),
        }
    }

    fn rows_of(&mut self, feed: &mut Feed) -> Result<()> {
        let mut row = Row::default();
        let (mut known, mut coming) = (self.learner.rows_to_skip(), Vec::new());
        while self.options.limit.is_none_or(|limit| self.rows < limit) {
            if self.learner.gains_by_preparing() && feed.show_ahead(ROWS_TOGETHER, &mut coming) {
                self.learner.prepare_rows(&coming);
            }
            if !feed.next(&mut row, &mut self.bad)? {
                break;
            }
            // Drawn for every row, so that a continued stream holds out the same ones.
            if self.options.holdout > 0.0 && self.chance.random::<f64>() < self.options.holdout {
                self.held_out.push(row.clone());
                continue;
            }
            if known > 0 {
                known -= 1;
                continue;
            }
            match self.step(&row, feed) {
                // Whoever listened has left; what was learned is still worth keeping.
                Err(error) if output::is_closed_pipe(&error) => break,
                result => result?,
            }
        }
        Ok(())
    }

    fn step(&mut self, row: &Row, feed: &Feed) -> Result<()> {
        let mut learned = reading::as_model_row(row);
        let glitch = self.options.alarm_action == AlarmAction::Skip && self.raises_alarm(row);
        if glitch {
            learned.target = Target::Missing;
        }
        let begun = Instant::now();
        let stepped = self.learner.step(&learned);
        self.latencies.record(begun.elapsed().as_secs_f64());
        let answer = match stepped {
            Ok(answer) => answer,
            // What is wrong with a file is not the row's fault.
            Err(
                error @ (wiski::Error::File { .. } | wiski::Error::Io { .. } | wiski::Error::WarmUp { .. }),
            ) => {
                return Err(error.into());
            }
            Err(error) => {
                let stored = self.learner.stored();
                let message = reading::rejection(&error, feed.name(), row, &stored.columns, &stored.model);
                return self.bad.reject(row.number, message);
            }
        };
        if let Some(failure) = self.learner.take_failure() {
            eprintln!(
                "wiski: after row {}, which is learned: {failure}; it is tried again later",
                row.number
            );
        }
        self.rows += 1;
        self.passed_over += u64::from(glitch);
        let stored = self.learner.stored();
        let wanted = self.recording.is_some() || self.predictions.is_some() || self.emitted.is_some();
        let mut promise = Promise::default();
        if wanted {
            let was_learned = learned.target != Target::Missing;
            promise = Promise::new(&self.options.interval_options, answer.as_ref(), was_learned, stored)?;
        }
        let mut events = Vec::new();
        if self.recording.is_some() || self.emitted.is_some() {
            events = self.events.after_row(row.number, stored);
        }
        if let Some(recording) = &mut self.recording {
            let level = self.options.interval_options.level(&stored.model);
            recording.push(self.rows, row, answer.as_ref(), &promise, level, stored);
        }
        if let Some(predictions) = &mut self.predictions {
            predictions.row(row, answer.as_ref(), &promise, stored)?;
        }
        if let Some(emitted) = &mut self.emitted {
            let off = lines::residual(row, answer.as_ref(), stored);
            let alarm = lines::is_alarm(off, answer.as_ref(), self.options.alarm);
            emitted.row(row, answer.as_ref(), &promise, (off, alarm), &events, stored)?;
        }
        if self.rows.is_multiple_of(256) {
            self.progress.show(self.rows, feed.progress(), &self.learner.stored().model);
        }
        Ok(())
    }

    /// Whether the target of a row is an alarm to the model as it is. A row that cannot be predicted raises none: why
    /// it cannot, learning it will say.
    fn raises_alarm(&self, row: &Row) -> bool {
        let Some(answer) = self.learner.peek(row) else { return false };
        let off = lines::residual(row, Some(&answer), self.learner.stored());
        lines::is_alarm(off, Some(&answer), self.options.alarm)
    }

    /// Keeps what was learned before the stream had to end; the error, with where to go on.
    fn stop(self, error: anyhow::Error) -> anyhow::Error {
        self.progress.done();
        if self.rows == 0 {
            return error;
        }
        let next = match (error.downcast_ref(), error.downcast_ref()) {
            (Some(Stopped { row, .. }), _) => Some(*row),
            (None, Some(input::Error::Read { row, .. })) => Some(row + 1),
            _ => None,
        };
        let said = output::message(&error);
        let next = next.filter(|_| self.options.shuffle.is_none());
        match (self.keep(), next) {
            (Ok(Some(path)), Some(next)) => anyhow!(
                "{said}; the rows before it are learned: go on with --model {path} --resume --from-row {next}"
            ),
            (Ok(Some(path)), None) => anyhow!("{said}; what was learned before is in {path}"),
            (Ok(None), _) => error,
            (Err(other), _) => anyhow!("{said}; no model was written: {}", output::message(&other)),
        }
    }

    /// Writes the model and the predictions so far; the model's file.
    fn keep(self) -> Result<Option<String>> {
        let stored = self.learner.finish()?;
        let Some(path) = &self.options.model else { return Ok(None) };
        usable(&stored)?;
        persist::save(path, &stored)?;
        self.predictions.map_or(Ok(()), Predictions::finish)?;
        Ok(Some(path.display().to_string()))
    }

    fn finish(mut self, feed: &Feed) -> Result<()> {
        self.progress.done();
        let live = self.emitted.is_some() || self.options.journal.journal.is_some();
        if self.rows == 0 && self.learner.stored().rows == 0 {
            bail!("{} has no rows", feed.name());
        }
        if !live {
            self.learner.finish_upkeep();
        }
        let mut stored = self.learner.finish()?;
        if !live && stored.model.is_ready() {
            // The last rows came after the last search for features. The model before it is for those who go on.
            match self.options.model {
                Some(_) => stored.finish_search()?,
                None => stored.model.finish_search()?,
            }
        }
        // The figures are those of a model that has ended its warm-up, with the rows that there are; the file has it as
        // it is, so that it can go on as if never interrupted. But not if its warm-up can have no end.
        let ended = if live { None } else { usable(&stored)? };
        let ended = ended.as_ref().unwrap_or(&stored);
        if let Some(path) = &self.options.model {
            persist::save(path, &stored)?;
        }
        if let Some(predictions) = self.predictions.take() {
            predictions.finish()?;
        }
        let mut holdout = None;
        if self.options.holdout > 0.0 {
            holdout = Some(test(self.options, &self.held_out, &mut self.bad, ended, feed.name())?);
        }
        let mut summary = Summary {
            stored: ended,
            rows: self.rows,
            skipped: self.bad.count,
            passed_over: self.passed_over,
            holdout,
            seconds: self.start.elapsed().as_secs_f64(),
            latencies: self.latencies.clone(),
            model_file: self.options.model.as_ref().map(|p| p.display().to_string()),
            report: None,
        };
        if let (Some(folder), Some(recording)) = (&self.options.report, &self.recording) {
            let page = recording.write(folder, feed.name(), &summary, &self.events.listed)?;
            summary.report = Some(page.display().to_string());
        }
        self.bad.report();
        let text = if self.options.json {
            format!("{}\n", summary.json())
        } else {
            summary::table(&summary.lines())
        };
        let shown = match (self.options.emit, self.options.quiet) {
            // Standard output is for the predictions.
            (Some(_), true) => Ok(()),
            (Some(_), false) => std::io::stderr().write_all(text.as_bytes()),
            (None, _) if self.options.predictions.as_deref() == Some("-") => {
                std::io::stderr().write_all(text.as_bytes())
            }
            (None, _) => return output::say(text.trim_end()),
        };
        shown.context("standard error")
    }
}

/// The model with its warm-up ended by the rows that there are, if there are enough: an error if that is not possible,
/// for then nobody could use it.
fn usable(stored: &Stored) -> Result<Option<Stored>> {
    if stored.model.is_ready() || stored.model.count() < 2.0 {
        return Ok(None);
    }
    let mut ended = stored.clone();
    ended.model.finish_warm_up()?;
    Ok(Some(ended))
}

/// Predicts the rows that were held out.
fn test(
    options: &Stream,
    held_out: &[Row],
    bad: &mut BadRows,
    stored: &Stored,
    file: &str,
) -> Result<Figures> {
    let (mut model, intervals) = (stored.model.clone(), &options.interval_options);
    // They come from all over the file.
    model.drop_corrections();
    let model = &model;
    let mut numbers = Prequential::default();
    let mut classes = PrequentialClasses::default();
    for row in held_out {
        match model.predict_noisy(&row.inputs, row.noise) {
            Ok(Answer::Value(p)) => {
                if let Some(y) = row.target {
                    let Model::Regressor(regressor) = model else { continue };
                    numbers.record_with(&p, y, regressor.log_density(&p, y));
                    let said = intervals.interval(model, &Answer::Value(p), Horizon::Ahead)?;
                    said.iter().for_each(|interval| numbers.record_interval(interval, y));
                }
            }
            Ok(Answer::Class(p)) => {
                let Model::Classifier(classifier) = model else { continue };
                let class = classifier.classes().iter().position(|c| Some(c) == row.label.as_ref());
                classes.record(&p.probabilities, p.best, class);
                let set = classifier.set(&p, intervals.level(model), Horizon::Ahead)?;
                classes.record_set(class.is_some_and(|class| set.contains(&class)), set.len());
            }
            Err(error) => {
                let message = reading::rejection(&error, file, row, &stored.columns, model);
                bad.reject(row.number, message)?;
            }
        }
    }
    Ok(match model {
        Model::Regressor(_) => Figures::Numbers(numbers, intervals.level(model)),
        Model::Classifier(_) => Figures::Classes(classes, intervals.level(model)),
    })
}
