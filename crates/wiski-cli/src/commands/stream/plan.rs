//! A stream as the user asked for it, checked: places that can be written, columns that exist, a model to begin with.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use wiski::model::{ColumnScaling, InputScaling};
use wiski::persist::{self, Columns, FileLock, Model, Stored};
use wiski::{Classes, OnlineClassifier, OnlineRegressor};

use super::Stream;
use super::feed::Feed;
use super::learner::Learner;
use super::run::Run;
use crate::files::Inputs;
use crate::input::{Row, Source, TargetKind};
use crate::inputs::InputPlan;
use crate::names;
use crate::reading::{self, BadRows, OnBadRow, Wanted};

/// Rows of a file by which the bounds of its columns are judged.
const MOST_SEEN: usize = 1 << 16;
/// The rows that a grid is laid around otherwise, and how much wider the file must be for it to matter.
const FIRST_ROWS: usize = 50;
const MUCH_WIDER: f64 = 1.5;

/// Everything that a stream needs to begin.
pub(super) struct Plan<'a> {
    options: &'a Stream,
    feed: Feed,
    learner: Learner,
    bad: BadRows,
    /// Held until the model is written.
    _lock: Option<FileLock>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(options: &'a Stream) -> Result<Self> {
        ensure!(
            (0.0..1.0).contains(&options.holdout),
            "--holdout: {} is not a share below 1",
            options.holdout
        );
        ensure!(options.alarm > 0.0, "--alarm: {} is not above 0", options.alarm);
        ensure!(
            !(options.emit.is_some() && options.predictions.as_deref() == Some("-")),
            "--predictions -: standard output is for --emit"
        );
        options.interval_options.check()?;
        options.check_places()?;
        let lock = options.model.as_ref().map(|path| options.waiting.lock(path)).transpose()?;
        let mut bad = BadRows::new(options.reading.on_bad_row);
        let mut source = Source::open(&options.input, &options.reading.format)?;

        let resumed = options.resumed()?;
        let (columns, inputs) = if let Some(stored) = &resumed {
            (options.same_columns(&stored.columns)?, None)
        } else {
            let (columns, inputs) = options.columns(&mut source)?;
            (columns, Some(inputs))
        };
        if let Some(time) = &columns.time {
            options.model_options.check_time_unit(time, || Ok(source.is_numeric(time)?))?;
        }
        let kind = match &resumed {
            Some(stored) => reading::kind(&stored.model),
            None if options.classify => TargetKind::Label,
            None => TargetKind::Number,
        };
        let wanted = if options.emit.is_some() { Wanted::Optional } else { Wanted::Required };
        let may_lack =
            resumed.as_ref().map_or(options.model_options.may_lack(), |s| reading::may_lack(&s.model));
        let rows = reading::select(source, &columns, kind, wanted, &options.reading)?.with_missing(may_lack);
        let share = resumed.is_none() && options.model_options.pretrain.is_some_and(|p| p < 1.0);
        let feed = Feed::new(rows, options.shuffle, share, options.input == "-", &mut bad)?;

        let stored = match (resumed, &inputs) {
            (Some(stored), _) => stored,
            (None, Some(inputs)) => options.fresh(columns, inputs, kind, feed.total())?,
            (None, None) => bail!("there is no model to go on with"),
        };
        let keep_rejected = options.reading.on_bad_row == OnBadRow::Skip;
        let mut learner = Learner::new(stored, &options.journal, keep_rejected)?;
        learner.set_upkeep(options.upkeep());
        if let Some(note) = inputs.and_then(|inputs| inputs.note()) {
            eprintln!("wiski: {note}");
        }
        Ok(Self { options, feed, learner, bad, _lock: lock })
    }

    pub(super) fn run(self) -> Result<()> {
        let Self { options, mut feed, learner, bad, _lock } = self;
        Run::new(options, learner, bad)?.over(&mut feed)
    }
}

impl Stream {
    /// Rejects places that cannot be written, or that hold an input, before the work is done, not after it.
    fn check_places(&self) -> Result<()> {
        let inputs =
            Inputs::default().and("the input", &self.input).and_journal(self.journal.journal.as_deref());
        if let Some(path) = &self.model {
            inputs.keep_from_model("--model", path)?;
        }
        let inputs = match &self.resume {
            Some(Some(path)) => inputs.and("the model to go on with", path),
            _ => inputs,
        };
        let inputs = self.model.iter().fold(inputs, |inputs, path| inputs.and("the model", path));
        if let Some(path) = &self.predictions {
            inputs.keep("--predictions", path)?;
        }
        if let Some(folder) = &self.report {
            let inputs =
                self.predictions.iter().fold(inputs, |inputs, path| inputs.and("the predictions", path));
            inputs.keep("--report", folder.join("index.html"))?;
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
        let stored = persist::load::<Stored>(path)?.resumed();
        if self.model_options.is_given() || self.interval_options.differs_from(&stored.model) {
            eprintln!("wiski: the model goes on with its own settings, not with those given now");
        }
        let classes = matches!(stored.model, Model::Classifier(_));
        ensure!(classes || !self.classify, "--classify: {} predicts numbers", path.display());
        Ok(Some(stored))
    }

    /// The inputs of the first rows, and of rows from all over the file: where a grid that was asked for is to lie may not be
    /// told by the first.
    fn sample(&self, columns: &Columns, kind: TargetKind) -> Result<(Vec<f64>, Vec<f64>)> {
        let source = Source::open(&self.input, &self.reading.format)?;
        let mut rows = reading::select(source, columns, kind, Wanted::Inputs, &self.reading)?;
        // What is wrong with a row, or with the file, is said when it is learned.
        let mut bad = BadRows::new(OnBadRow::Skip);
        let (mut row, mut seen, mut stride, mut count) = (Row::default(), Vec::new(), 1, 0_usize);
        let mut first = Vec::new();
        while matches!(reading::next(&mut rows, &mut row, &mut bad), Ok(true)) {
            if count < FIRST_ROWS {
                first.extend_from_slice(&row.inputs);
            }
            if count.is_multiple_of(stride) {
                seen.extend_from_slice(&row.inputs);
            }
            count += 1;
            if seen.len() >= MOST_SEEN * row.inputs.len().max(1) {
                // Every other one of them.
                let width = row.inputs.len();
                seen = seen.chunks_exact(width).step_by(2).flatten().copied().collect();
                stride *= 2;
            }
        }
        Ok((first, seen))
    }

    /// The columns of a resumed model, unless the command line asks for others.
    fn same_columns(&self, columns: &Columns) -> Result<Columns> {
        let differs = |option: &str, own: &str, asked: &str| {
            bail!("{option}: the model was learned with {own}, not {asked}")
        };
        if let Some(target) = self.target.as_ref().filter(|t| **t != columns.target) {
            differs("--target", &columns.target, target)?;
        }
        if let Some(asked) = &self.inputs {
            let asked = names::split(asked);
            let sources: Vec<&str> = columns.source_columns();
            if asked != columns.inputs && asked != sources {
                differs("--inputs", &names::join(&columns.inputs), &names::join(&asked))?;
            }
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

    fn columns(&self, source: &mut Source) -> Result<(Columns, InputPlan)> {
        let target = self.target.clone().context("--target is needed")?;
        source.find(&target)?;
        let others: Vec<&str> = [Some(&target), self.noise_col.as_ref(), self.time_col.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let asked = self.inputs.as_deref().map(names::split);
        let file = (self.input != "-").then_some((Path::new(&self.input), &self.reading.format));
        let inputs = self.model_options.inputs(asked, &others, source, file)?;
        if inputs.names.is_empty() {
            let hint = match &self.time_col {
                Some(time) => format!("; '{time}' is the time, --inputs {time} makes it an input too"),
                None => inputs.note().map(|note| format!("; {note}")).unwrap_or_default(),
            };
            bail!("{} has no column of numbers besides the target{hint}", source.name());
        }
        let columns = Columns {
            inputs: inputs.names.clone(),
            sources: inputs.sources(),
            target,
            noise: self.noise_col.clone(),
            time: self.time_col.clone(),
            ..Columns::default()
        };
        Ok((columns, inputs))
    }

    fn fresh(
        &self,
        columns: Columns,
        inputs: &InputPlan,
        kind: TargetKind,
        total: Option<usize>,
    ) -> Result<Stored> {
        let width = columns.inputs.len();
        let (noisy, timed) = (columns.noise.is_some(), columns.time.is_some());
        let mut settings = self.model_options.settings(inputs, total, noisy, timed)?;
        settings.intervals = self.interval_options.settings();
        if self.model_options.lacks_bounds() && !settings.is_sum(width) && self.input != "-" {
            let (first, seen) = self.sample(&columns, kind)?;
            let [first, all] = [&first, &seen].map(|rows| ColumnScaling::ranges(rows, width));
            // Where the first rows stand for all, a file and a pipe lead to the same model.
            let is_wider = |((a, b), (c, d)): (&(f64, f64), &(f64, f64))| d - c > MUCH_WIDER * (b - a);
            if first.iter().zip(&all).any(is_wider) {
                settings.inputs = InputScaling::Bounds(all);
            }
        }
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
