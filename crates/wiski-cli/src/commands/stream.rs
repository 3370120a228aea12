//! `wiski stream`: predict, then learn, row after row.

mod feed;
mod learner;
mod recording;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::json;
use wiski::model::{Prequential, PrequentialClasses, Z95};
use wiski::persist::{Answer, Columns, Model, Stored};
use wiski::{Classes, OnlineClassifier, OnlineRegressor};

use self::feed::Feed;
use self::learner::{JournalOptions, Learner};
use self::recording::Recording;
use crate::input::{Row, Source, TargetKind};
use crate::model_options::ModelOptions;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::reading::{self, BadRows, OnBadRow, ReadingOptions, Wanted};
use crate::summary::{self, Figures, Summary};

/// Predict, then learn, row after row.
#[derive(Args)]
pub(crate) struct Stream {
    /// A CSV, NDJSON or Parquet file (also .gz), or - for standard input
    input: String,

    /// The column to predict
    #[arg(long, short, value_name = "COLUMN", required_unless_present = "resume")]
    target: Option<String>,

    /// The input columns [default: all other columns of numbers]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    inputs: Option<Vec<String>>,

    /// A column with the known noise variance of each row
    #[arg(long, value_name = "COLUMN")]
    noise_col: Option<String>,

    /// A column with the time of each row: numbers, or dates and times
    #[arg(long, value_name = "COLUMN")]
    time_col: Option<String>,

    /// The target is a class, not a number
    #[arg(long)]
    classify: bool,

    #[command(flatten)]
    model_options: ModelOptions,

    /// Take the rows in random order
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,

    /// Keep this share of the rows, chosen at random, for a test at the end
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, allow_negative_numbers = true)]
    holdout: f64,

    /// Stop after so many rows
    #[arg(long, value_name = "ROWS")]
    limit: Option<u64>,

    /// Write every prediction to a CSV file
    #[arg(long, value_name = "FILE")]
    predictions: Option<String>,

    /// Write the model to a file at the end
    #[arg(long, short, value_name = "FILE")]
    model: Option<PathBuf>,

    /// Go on with the model in --model, if that file is there, else with the one named here
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    #[allow(clippy::option_option)] // --resume alone, or with a file
    resume: Option<Option<PathBuf>>,

    /// Write a report with figures to a folder
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,

    /// Print a line for every row as it arrives: mean, standard deviation, standardised residual, alarm
    #[arg(long, value_name = "FORMAT", value_enum, num_args = 0..=1, default_missing_value = "csv")]
    emit: Option<Emit>,

    /// Raise an alarm where the target is so many standard deviations off
    #[arg(long, value_name = "SIGMAS", default_value_t = 4.0)]
    alarm: f64,

    #[command(flatten)]
    journal: JournalOptions,

    #[command(flatten)]
    reading: ReadingOptions,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Emit {
    Csv,
    Ndjson,
}

impl Stream {
    pub(crate) fn run(&self) -> Result<()> {
        ensure!((0.0..1.0).contains(&self.holdout), "--holdout: {} is not a share below 1", self.holdout);
        ensure!(self.alarm > 0.0, "--alarm: {} is not above 0", self.alarm);
        ensure!(
            !(self.emit.is_some() && self.predictions.as_deref() == Some("-")),
            "--predictions -: standard output is for --emit"
        );
        self.check_places()?;
        let mut bad = BadRows::new(self.reading.on_bad_row);
        let mut source = Source::open(&self.input, &self.reading.format)?;

        let resumed = self.resumed()?;
        let mut left_out = Vec::new();
        let columns = match &resumed {
            Some(stored) => self.same_columns(&stored.columns)?,
            None => self.columns(&mut source, &mut left_out)?,
        };
        let kind = match &resumed {
            Some(stored) => reading::kind(&stored.model),
            None if self.classify => TargetKind::Label,
            None => TargetKind::Number,
        };
        let wanted = if self.emit.is_some() { Wanted::Optional } else { Wanted::Required };
        let rows = reading::select(source, &columns, kind, wanted)?;
        let share = resumed.is_none() && self.model_options.pretrain.is_some_and(|p| p < 1.0);
        let mut feed = Feed::new(rows, self.shuffle, share, self.input == "-", &mut bad)?;

        let stored = match resumed {
            Some(stored) => stored,
            None => self.fresh(columns, feed.total())?,
        };
        let keep_refused = self.reading.on_bad_row == OnBadRow::Skip;
        let learner = Learner::new(stored, &self.journal, keep_refused)?;
        if !left_out.is_empty() {
            eprintln!("wiski: columns without numbers are left out: {}", left_out.join(", "));
        }
        let run = Run::new(self, learner, bad)?;
        run.over(&mut feed)
    }

    /// Refuses places that cannot be written before the work is done, not after it.
    fn check_places(&self) -> Result<()> {
        if let Some(path) = &self.model {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            ensure!(folder.is_dir(), "{}: there is no folder {}", path.display(), folder.display());
            ensure!(!path.is_dir(), "{} is a folder", path.display());
            let same = |a: &Path, b: &Path| {
                std::fs::canonicalize(a).is_ok_and(|a| std::fs::canonicalize(b).is_ok_and(|b| a == b))
            };
            ensure!(!same(path, Path::new(&self.input)), "--model: {} is the input", path.display());
        }
        if let Some(folder) = &self.report {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        Ok(())
    }

    /// The model to go on with.
    fn resumed(&self) -> Result<Option<Stored>> {
        let Some(resume) = &self.resume else { return Ok(None) };
        let own = self.model.as_ref().filter(|path| path.exists());
        let Some(path) = own.or(resume.as_ref()) else {
            let none = self.model.as_ref().map(|m| format!(": {} does not exist", m.display()));
            bail!("--resume: there is no model to go on with{}", none.unwrap_or_default());
        };
        let stored: Stored = wiski::persist::load(path)?;
        if self.model_options.is_given() {
            eprintln!("wiski: the model goes on with its own settings, not with those given now");
        }
        let classes = matches!(stored.model, Model::Classifier(_));
        ensure!(classes || !self.classify, "--classify: {} predicts numbers", path.display());
        Ok(Some(stored))
    }

    /// The columns of a resumed model, unless the command line asks for others.
    fn same_columns(&self, columns: &Columns) -> Result<Columns> {
        let differs = |option: &str, own: &str, asked: &str| {
            bail!("{option}: the model was learned with {own}, not {asked}")
        };
        if let Some(target) = self.target.as_ref().filter(|t| **t != columns.target) {
            differs("--target", &columns.target, target)?;
        }
        if let Some(inputs) = self.inputs.as_ref().filter(|i| **i != columns.inputs) {
            differs("--inputs", &columns.inputs.join(","), &inputs.join(","))?;
        }
        for (option, asked, own) in
            [("--noise-col", &self.noise_col, &columns.noise), ("--time-col", &self.time_col, &columns.time)]
        {
            if let Some(asked) = asked.as_ref().filter(|a| Some(*a) != own.as_ref()) {
                differs(option, own.as_deref().unwrap_or("none"), asked)?;
            }
        }
        Ok(columns.clone())
    }

    fn columns(&self, source: &mut Source, left_out: &mut Vec<String>) -> Result<Columns> {
        let target = self.target.clone().context("--target is needed")?;
        source.find(&target)?;
        let others: Vec<&str> = [Some(&target), self.noise_col.as_ref(), self.time_col.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let inputs = if let Some(inputs) = &self.inputs {
            inputs.clone()
        } else {
            let inferred = source.infer_inputs(&others)?;
            *left_out = inferred.left_out;
            inferred.inputs
        };
        ensure!(!inputs.is_empty(), "{} has no column of numbers besides the target", source.name());
        Ok(Columns { inputs, target, noise: self.noise_col.clone(), time: self.time_col.clone() })
    }

    fn fresh(&self, columns: Columns, total: Option<usize>) -> Result<Stored> {
        let width = columns.inputs.len();
        let (noisy, timed) = (columns.noise.is_some(), columns.time.is_some());
        let settings = self.model_options.settings(&columns.inputs, total, noisy, timed)?;
        let model = if self.classify {
            ensure!(columns.noise.is_none(), "--noise-col has no meaning with --classify");
            let classes = Classes::discovered().adding_unseen();
            Model::Classifier(Box::new(OnlineClassifier::new(width, classes, settings)?))
        } else {
            Model::Regressor(Box::new(OnlineRegressor::new(width, settings)?))
        };
        Ok(Stored::new(columns, model)?)
    }
}

/// A stream on its way.
struct Run<'a> {
    options: &'a Stream,
    learner: Learner,
    bad: BadRows,
    recording: Option<Recording>,
    predictions: Option<Output>,
    emitted: Option<Output>,
    progress: Progress,
    /// Rows kept for the test at the end.
    held_out: Vec<Row>,
    chance: Xoshiro256PlusPlus,
    rows: u64,
    drifts: u64,
    start: Instant,
}

impl<'a> Run<'a> {
    fn new(options: &'a Stream, learner: Learner, bad: BadRows) -> Result<Self> {
        let classes = matches!(learner.stored().model, Model::Classifier(_));
        let predictions = options.predictions.as_deref().map(Output::open).transpose()?;
        let emitted = if options.emit.is_some() { Some(Output::open("-")?) } else { None };
        let mut run = Self {
            options,
            bad,
            recording: options.report.is_some().then(|| Recording::new(learner.stored())),
            predictions,
            emitted,
            progress: Progress::new(!options.quiet && options.emit.is_none()),
            held_out: Vec::new(),
            chance: Xoshiro256PlusPlus::seed_from_u64(options.model_options.seed ^ 0x9E37_79B9_7F4A_7C15),
            rows: 0,
            drifts: learner::drifts(&learner.stored().model),
            start: Instant::now(),
            learner,
        };
        let header = |out: &mut Option<Output>, names: &[&str]| -> Result<()> {
            if let Some(out) = out {
                names.iter().for_each(|name| out.text(name));
                out.end_row()?;
            }
            Ok(())
        };
        let number = ["row", "target", "mean", "std", "lower", "upper"];
        let class = ["row", "label", "predicted", "probability", "probability_of_label"];
        header(&mut run.predictions, if classes { &class } else { &number })?;
        if options.emit == Some(Emit::Csv) {
            let number = ["row", "mean", "std", "residual", "alarm", "drift"];
            let class = ["row", "predicted", "probability", "surprise", "alarm", "drift"];
            header(&mut run.emitted, if classes { &class } else { &number })?;
            run.emitted.as_mut().map_or(Ok(()), Output::flush)?;
        }
        Ok(run)
    }

    fn over(mut self, feed: &mut Feed) -> Result<()> {
        let mut row = Row::default();
        let mut known = self.learner.rows_to_skip();
        while self.options.limit.is_none_or(|limit| self.rows < limit)
            && feed.next(&mut row, &mut self.bad)?
        {
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
        self.finish(feed)
    }

    fn step(&mut self, row: &Row, feed: &Feed) -> Result<()> {
        let answer = match self.learner.step(&reading::as_model_row(row)) {
            Ok(answer) => answer,
            // What is wrong with a file is not the row's fault.
            Err(error @ (wiski::Error::File { .. } | wiski::Error::WarmUp { .. })) => {
                return Err(error.into());
            }
            Err(error) => {
                let stored = self.learner.stored();
                let message = reading::refusal(&error, feed.name(), row, &stored.columns, &stored.model);
                return self.bad.refuse(message);
            }
        };
        self.rows += 1;
        if let Some(recording) = &mut self.recording {
            recording.push(self.rows, row, answer.as_ref(), self.learner.stored());
        }
        if let Some(out) = &mut self.predictions {
            write_prediction(out, row, answer.as_ref(), self.learner.stored())?;
        }
        if self.emitted.is_some() {
            self.emit(row, answer.as_ref())?;
        }
        if self.rows.is_multiple_of(256) {
            self.progress.show(self.rows, feed.progress(), &self.learner.stored().model);
        }
        Ok(())
    }

    /// One line for one row, at once.
    fn emit(&mut self, row: &Row, answer: Option<&Answer>) -> Result<()> {
        let Some(out) = &mut self.emitted else { return Ok(()) };
        let drifts = learner::drifts(&self.learner.stored().model);
        let drift = std::mem::replace(&mut self.drifts, drifts) != drifts;
        let off = match answer {
            Some(Answer::Value(p)) => row.target.map(|y| (y - p.mean) / p.std()),
            // How surprising the class was, in nats: −log p.
            Some(Answer::Class(p)) => row.label.as_ref().map(|label| {
                let probability = learner::probability(p, label, self.learner.stored());
                -probability.unwrap_or(0.0).max(f64::MIN_POSITIVE).ln()
            }),
            None => None,
        };
        let limit = match answer {
            // A class as unlikely as a normal value so many deviations off.
            Some(Answer::Class(_)) => 0.5 * self.options.alarm * self.options.alarm,
            _ => self.options.alarm,
        };
        let alarm = off.is_some_and(|z| z.abs() > limit);
        let (first, second): (serde_json::Value, Option<f64>) = match answer {
            Some(Answer::Value(p)) => (json!(p.mean), Some(p.std())),
            Some(Answer::Class(p)) => (json!(p.label), Some(p.probabilities[p.best])),
            None => (json!(null), None),
        };
        if self.options.emit == Some(Emit::Ndjson) {
            let names = match self.learner.stored().model {
                Model::Regressor(_) => ["mean", "std", "residual"],
                Model::Classifier(_) => ["predicted", "probability", "surprise"],
            };
            let line = json!({
                "row": row.number, names[0]: first, names[1]: second, names[2]: off,
                "alarm": alarm, "drift": drift,
            });
            out.line(&line.to_string())?;
        } else {
            out.number(row.number as f64);
            match (&first, first.as_f64()) {
                (_, Some(mean)) => out.number(mean),
                (serde_json::Value::String(label), _) => out.text(label),
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

    /// Predicts the rows that were held out, with a copy: predictions may extend a grid.
    fn test(&mut self, stored: &Stored, file: &str) -> Result<Figures> {
        let mut model = stored.model.clone();
        let mut numbers = Prequential::default();
        let mut classes = PrequentialClasses::default();
        for row in &self.held_out {
            match model.predict(&row.inputs) {
                Ok(Answer::Value(p)) => {
                    if let Some(y) = row.target {
                        // Known noise belongs to the observation.
                        let noise = row.noise.unwrap_or(p.noise);
                        numbers.record(&wiski::Prediction { noise, ..p }, y);
                    }
                }
                Ok(Answer::Class(p)) => {
                    let Model::Classifier(classifier) = &model else { continue };
                    let class = classifier.classes().iter().position(|c| Some(c) == row.label.as_ref());
                    classes.record(&p.probabilities, p.best, class);
                }
                Err(error) => {
                    self.bad.refuse(reading::refusal(&error, file, row, &stored.columns, &model))?;
                }
            }
        }
        Ok(match model {
            Model::Regressor(_) => Figures::Numbers(numbers),
            Model::Classifier(_) => Figures::Classes(classes),
        })
    }

    fn finish(mut self, feed: &Feed) -> Result<()> {
        self.progress.done();
        let live = self.emitted.is_some() || self.options.journal.journal.is_some();
        if self.rows == 0 && self.learner.stored().rows == 0 {
            bail!("{} has no rows", feed.name());
        }
        let mut stored = self.learner.finish()?;
        // The model as it is, also in the middle of its warm-up: so that it can go on as if never interrupted.
        if let Some(path) = &self.options.model {
            wiski::persist::save(path, &stored)?;
        }
        let seconds = self.start.elapsed().as_secs_f64();
        if let Some(out) = self.predictions.take() {
            out.finish()?;
        }
        if !stored.model.is_ready() && stored.model.count() >= 2.0 && !live {
            // Fewer rows than a warm-up: for the summary they are all there is.
            stored.model.finish_warm_up()?;
        }
        let mut holdout = None;
        if self.options.holdout > 0.0 {
            holdout = Some(self.test(&stored, feed.name())?);
        }
        let mut summary = Summary {
            stored: &stored,
            rows: self.rows,
            skipped: self.bad.count,
            holdout,
            seconds,
            model_file: self.options.model.as_ref().map(|p| p.display().to_string()),
            report: None,
        };
        if let (Some(folder), Some(recording)) = (&self.options.report, &self.recording) {
            let page = recording.write(folder, feed.name(), &summary)?;
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

fn write_prediction(out: &mut Output, row: &Row, answer: Option<&Answer>, stored: &Stored) -> Result<()> {
    out.number(row.number as f64);
    match answer {
        Some(Answer::Value(p)) => {
            let half = Z95 * p.std();
            out.maybe(row.target);
            [p.mean, p.std(), p.mean - half, p.mean + half].into_iter().for_each(|v| out.number(v));
        }
        Some(Answer::Class(p)) => {
            out.text(row.label.as_deref().unwrap_or_default());
            out.text(&p.label);
            out.number(p.probabilities[p.best]);
            let label = row.label.as_deref().unwrap_or_default();
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
