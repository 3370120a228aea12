//! A series that is learned row by row, as it arrives: forecasts after each row, and a journal that a killed process goes on
//! from.

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use wiski::Forecaster;
use wiski::persist::{self, Columns, Durable, StoredSeries};

use super::Forecast;
use super::clock::Clock;
use crate::commands::stream::{Emit, feed::Feed};
use crate::files::Inputs;
use crate::input::{Row, Selection, Source, Target, TargetKind};
use crate::names;
use crate::output::{self, Output};
use crate::reading::{self, BadRows, OnBadRow};

/// A series in memory, or with a journal.
enum Learner {
    Memory(Box<StoredSeries>),
    Journal(Box<Durable<StoredSeries>>),
}

impl Learner {
    /// The series as it was left, or as it is asked for.
    fn new(fresh: StoredSeries, options: &Forecast) -> Result<Self> {
        let Some(folder) = &options.journal.journal else { return Ok(Self::Memory(Box::new(fresh))) };
        let keep_rejected = options.reading.on_bad_row == OnBadRow::Skip;
        let (columns, dated, settings) = (fresh.columns.clone(), fresh.dated, fresh.model.settings().clone());
        let (durable, recovered) =
            Durable::open(folder, options.journal.durable(keep_rejected)?, || Ok(fresh))?;
        let found: &StoredSeries = durable.stored();
        let place = folder.display();
        ensure!(found.columns == columns, "{place}: the journal has other columns than were asked for");
        ensure!(found.dated == dated, "{place}: dates and numbers cannot be mixed in one series");
        recovered_rows(&recovered);
        if found.seen > 0 && *found.model.settings() != settings {
            eprintln!("wiski: the journal's model goes on with its own settings, not with those given now");
        }
        Ok(Self::Journal(Box::new(durable)))
    }

    fn stored(&self) -> &StoredSeries {
        match self {
            Self::Memory(stored) => stored,
            Self::Journal(durable) => durable.stored(),
        }
    }

    fn step(&mut self, row: &persist::Row) -> wiski::Result<()> {
        match self {
            Self::Memory(stored) => stored.step(row).map(drop),
            Self::Journal(durable) => durable.step(row).map(drop),
        }
    }

    fn take_failure(&mut self) -> Option<wiski::Error> {
        match self {
            Self::Memory(stored) => stored.take_failure(),
            Self::Journal(durable) => durable.take_failure(),
        }
    }
}

/// Says what a journal held.
fn recovered_rows(recovered: &persist::Recovered) {
    let total = recovered.from_snapshot + recovered.replayed;
    if total > 0 {
        let torn = if recovered.dropped_bytes == 0 { "" } else { "; an incomplete last row was dropped" };
        eprintln!("wiski: {total} rows recovered, {} of them from the journal{torn}", recovered.replayed);
    }
}

impl Forecast {
    /// Whether rows are learned one by one as they arrive.
    pub(super) fn is_live(&self) -> bool {
        self.emit.is_some() || self.journal.journal.is_some()
    }

    /// Learns rows as they arrive.
    pub(super) fn run_live(&self) -> Result<()> {
        self.check_live()?;
        let mut source = Source::open(&self.input, &self.reading.format)?;
        source.find(&self.time)?;
        source.find(&self.target)?;
        let inputs = self.inputs.as_deref().map_or_else(Vec::new, names::split);
        let clock = Clock::new(&self.time, source.is_numeric(&self.time)?, self.time_unit.as_deref())?;
        let step = self.step.as_deref().map(|text| clock.length("--step", text, 1.0)).transpose()?;
        let horizon = self.length_ahead(clock, step)?;
        let columns = Columns {
            inputs: inputs.clone(),
            target: self.target.clone(),
            time: Some(self.time.clone()),
            ..Columns::default()
        };
        let settings = self.settings(clock, step, step.unwrap_or(0.0), horizon, &inputs)?;
        let fresh = StoredSeries::new(columns, clock == Clock::Dates, Forecaster::new(settings)?)?;
        let selection = Selection {
            inputs,
            target: Some(Target { column: self.target.clone(), kind: TargetKind::Number, required: false }),
            time: Some(self.time.clone()),
            ..Selection::default()
        };
        let mut rows = source.select(&selection)?;
        rows.skip_to(self.reading.from_row)?;
        let mut bad = BadRows::new(self.reading.on_bad_row);
        let mut feed = Feed::new(rows, None, false, self.input == "-", &mut bad)?;
        let mut learner = Learner::new(fresh, self)?;
        let begin = Instant::now();
        let mut out = Emitted::new(self, clock, horizon)?;
        let learned = self.rows_of(&mut feed, &mut learner, &mut bad, &mut out);
        // What was learned before a bad row is worth keeping.
        if let Learner::Journal(durable) = &mut learner {
            durable.compact()?;
        }
        let stored = learner.stored();
        if let Some(path) = &self.model
            && stored.seen > 0
        {
            persist::save(path, stored)?;
        }
        let count = learned?;
        bad.report();
        ensure!(stored.seen > 0, "{} has no rows", feed.name());
        self.finish(stored, out)?;
        eprintln!("{count} rows, {} in all, {:.2} s", stored.seen, begin.elapsed().as_secs_f64());
        Ok(())
    }

    /// Options that need all rows at once.
    fn check_live(&self) -> Result<()> {
        let why = "needs all rows at once, so it cannot stand beside --emit or --journal";
        let given = [
            ("--series", self.series.is_some()),
            ("--backtest", self.backtest.is_some()),
            ("--paths", self.paths > 0),
            ("--components", self.components),
            ("--report", self.report.is_some()),
            ("--json", self.json),
        ];
        if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
            bail!("{name} {why}");
        }
        ensure!(
            !self.resume,
            "--resume goes on with a file; a journal (--journal) goes on by itself, and --emit begins anew"
        );
        ensure!(
            self.emit.is_none() || self.inputs.is_none(),
            "--emit: what the --inputs will be is not known along a stream; wiski predict forecasts from a model with a file \
             of them"
        );
        let files =
            Inputs::default().and("the input", &self.input).and_journal(self.journal.journal.as_deref());
        files.keep("--output", &self.output)?;
        self.model.iter().try_for_each(|model| files.keep_from_model("--model", model))
    }

    /// How far ahead, in the unit of time. A number of steps has no length before rows are seen.
    fn length_ahead(&self, clock: Clock, step: Option<f64>) -> Result<f64> {
        let steps = |text: &str| text.trim().parse::<f64>().is_ok();
        let seasons = self.season.iter().flat_map(|list| list.split(','));
        for (option, text) in seasons.map(|text| ("--season", text)).chain([("--horizon", &*self.horizon)]) {
            ensure!(
                step.is_some() || !steps(text),
                "{option}: how long {text} steps are is not known before the rows are: give --step, the time between two \
                 rows, or a length such as 7d"
            );
        }
        clock.length("--horizon", &self.horizon, step.unwrap_or(1.0))
    }

    /// Learns every row; how many.
    fn rows_of(
        &self,
        feed: &mut Feed,
        learner: &mut Learner,
        bad: &mut BadRows,
        out: &mut Emitted,
    ) -> Result<u64> {
        let mut known = match learner {
            Learner::Journal(durable) if self.journal.goes_on() => durable.rows(),
            _ => 0,
        };
        let (mut row, mut count) = (Row::default(), 0);
        while feed.next(&mut row, bad)? {
            if known > 0 {
                known -= 1;
                continue;
            }
            match learner.step(&reading::as_model_row(&row)) {
                Ok(()) => {}
                // What is wrong with a file is not the row's fault.
                Err(error @ (wiski::Error::File { .. } | wiski::Error::Io { .. })) => {
                    return Err(error.into());
                }
                Err(error) => {
                    bad.reject(row.number, format!("{} row {}: {error}", feed.name(), row.number))?;
                    continue;
                }
            }
            if let Some(failure) = learner.take_failure() {
                eprintln!(
                    "wiski: after row {}, which is learned: {failure}; it is tried again later",
                    row.number
                );
            }
            count += 1;
            match out.row(&row, count, &learner.stored().model) {
                // Whoever listened has left; what was learned is still worth keeping.
                Err(error) if output::is_closed_pipe(&error) => break,
                result => result?,
            }
        }
        Ok(count)
    }

    /// Without --emit, the forecast after the last row.
    fn finish(&self, stored: &StoredSeries, mut out: Emitted) -> Result<()> {
        if self.emit.is_none() && stored.columns.inputs.is_empty() {
            let mut model = stored.model.clone();
            if !model.is_ready() {
                model.fit()?;
            }
            out.forecast(None, &model)?;
        } else if self.emit.is_none() {
            eprintln!(
                "wiski: no forecast, since the inputs ahead are not known here: wiski predict, with a file of them"
            );
        }
        Ok(out.out.finish()?)
    }
}

/// Forecasts on their way out.
struct Emitted<'a> {
    options: &'a Forecast,
    clock: Clock,
    horizon: f64,
    out: Output,
}

impl<'a> Emitted<'a> {
    fn new(options: &'a Forecast, clock: Clock, horizon: f64) -> Result<Self> {
        let mut out = Output::open(&options.output)?;
        if options.emit != Some(Emit::Ndjson) {
            if options.emit.is_some() {
                out.text("row");
            }
            [options.time.as_str(), "mean", "std", "lower", "upper"].iter().for_each(|name| out.text(name));
            out.end_row()?;
            out.flush()?;
        }
        Ok(Self { options, clock, horizon, out })
    }

    /// After a row: the forecast, if there is a model and it is the turn of one.
    fn row(&mut self, row: &Row, count: u64, model: &Forecaster) -> Result<()> {
        if self.options.emit.is_none() || !model.is_ready() || !count.is_multiple_of(self.options.every) {
            return Ok(());
        }
        self.forecast(Some(row), model)
    }

    fn forecast(&mut self, row: Option<&Row>, model: &Forecaster) -> Result<()> {
        let step = model.step().unwrap_or(1.0);
        let steps = (self.horizon / step).round().max(1.0);
        ensure!(steps <= 1e6, "--horizon: {steps} steps of {step}, where at most a million are possible");
        let ahead = model.forecast(steps as usize, &[], self.options.level)?;
        let (out, clock) = (&mut self.out, self.clock);
        if self.options.emit == Some(Emit::Ndjson) {
            let time = |t: &f64| clock.write(*t).map_or_else(|| json!(t), Value::String);
            let line = json!({
                "row": row.map(|row| row.number),
                "time": row.and_then(|row| row.time.as_ref().map(time)),
                "forecast": {
                    "time": ahead.times.iter().map(time).collect::<Vec<_>>(),
                    "mean": ahead.mean, "std": ahead.std, "lower": ahead.lower, "upper": ahead.upper,
                },
            });
            out.line(&line.to_string())?;
        } else {
            for k in 0..ahead.times.len() {
                if let Some(row) = row {
                    out.number(row.number as f64);
                }
                super::write_step(out, clock, &ahead, k);
                out.end_row()?;
            }
        }
        Ok(out.flush()?)
    }
}
