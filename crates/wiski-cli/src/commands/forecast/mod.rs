//! `wiski forecast`: what comes next in a series.
//!
//! What the user said (this file) is read (`rows`, with the series' `clock`), learned and forecast here, and printed (`show`);
//! or rows are learned as they arrive (`live`). `ahead` is `wiski predict` for a series.

pub(crate) mod ahead;
mod clock;
mod live;
mod rows;
mod show;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use wiski::Column;
use wiski::persist::{self, Columns, StoredSeries};
use wiski::time::{ForecastSettings, Forecaster, Lags, Scale, Seasons, TrendKind};

use self::clock::Clock;
use self::rows::One;
use self::show::{Done, Names};
use crate::commands::stream::{Emit, learner::JournalOptions};
use crate::files::Inputs;
use crate::output::{self, Output};
use crate::reading::ReadingOptions;

/// Learn a series, row by row, and say what comes next: mean, standard deviation and interval at every step ahead.
///
/// Rows are in the order of time; gaps and empty targets are natural. Rows after the last target are rows ahead: they
/// hold what --inputs are then. Lengths of time are 30min, 24h, 7d, 1y, or a number of steps.
#[derive(Args)]
#[command(after_help = "\
Examples:
  wiski forecast sales.csv --time date --target sold --horizon 28d > ahead.csv
  wiski forecast load.csv --time hours --target load --horizon 7d --season 24h,7d --inputs temperature,holiday
  wiski forecast sales.csv --time date --target sold --horizon 28d --backtest 20 --report out
  sensor | wiski forecast - --time when --target load --horizon 24h --emit --journal state --continue")]
pub(crate) struct Forecast {
    /// A CSV, NDJSON or Parquet file (also .gz), or - for standard input
    input: String,

    /// The column of times: dates, or numbers
    #[arg(long, value_name = "COLUMN")]
    time: String,

    /// The column to forecast
    #[arg(long, short, value_name = "COLUMN")]
    target: String,

    /// How far ahead
    #[arg(long, value_name = "LENGTH")]
    horizon: String,

    /// The time between two rows [default: the median gap]
    #[arg(long, value_name = "LENGTH")]
    step: Option<String>,

    /// The seasons, or none [default: those that the rows show]
    #[arg(long, value_name = "LENGTHS")]
    season: Option<String>,

    /// Earlier values as inputs: so many steps ago each, or none [default: where forecasts are better with them]
    #[arg(long, value_name = "STEPS")]
    lags: Option<String>,

    /// How the level moves on
    #[arg(long, value_enum, default_value_t = TrendOption::Linear)]
    trend: TrendOption,

    /// Whether components add up or multiply
    #[arg(long, value_enum, default_value_t = ScaleOption::Auto)]
    scale: ScaleOption,

    /// Columns of numbers that are known ahead, such as a temperature or a holiday
    #[arg(long, value_name = "COLUMNS")]
    inputs: Option<String>,

    /// What times count if they are numbers: s, min, h, d, w, mo, y [default: the column's name, if it is one]
    #[arg(long, value_name = "UNIT")]
    time_unit: Option<String>,

    /// A column that names the series of each row; each has a model of its own
    #[arg(long, value_name = "COLUMN")]
    series: Option<String>,

    /// The level of intervals
    #[arg(long, value_name = "LEVEL", default_value_t = 0.95)]
    level: f64,

    /// Forecast from so many earlier rows, too, and score what came
    #[arg(long, value_name = "COUNT")]
    backtest: Option<usize>,

    /// Add so many paths drawn jointly, as columns path1, path2, …
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    paths: usize,

    /// The seed of the paths
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Add what each component adds, and its standard deviation, as columns `trend`, `trend_std`, …; on the scale of logarithms
    /// what the trend is multiplied by
    #[arg(long)]
    components: bool,

    /// Where to write the CSV
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: String,

    /// Learn rows as they arrive, and write a forecast of the whole horizon after each, once there are a few: as csv
    /// (the default; a line for each step ahead, with the number of the row) or ndjson (a line for each row)
    #[arg(long, value_name = "FORMAT", value_enum, num_args = 0..=1, default_missing_value = "csv")]
    emit: Option<Emit>,

    /// With --emit: write a forecast after so many rows
    #[arg(long, value_name = "ROWS", default_value_t = 1, requires = "emit", value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,

    #[command(flatten)]
    journal: JournalOptions,

    /// Write the model to a file
    #[arg(long, short, value_name = "FILE")]
    model: Option<PathBuf>,

    /// Go on with the model in --model: rows that it has seen are left out
    #[arg(long, requires = "model")]
    resume: bool,

    /// Write a report with figures to a folder
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    /// Print everything as one JSON object (a line for each series)
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reading: ReadingOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TrendOption {
    /// With a slope that changes slowly
    Linear,
    /// With a slope that returns to zero
    Damped,
    /// Without a slope
    Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScaleOption {
    /// They multiply if the rows are clearly likelier so
    Auto,
    /// They add up
    Linear,
    /// They multiply: what adds up are logarithms, and all values are positive
    Log,
}

/// What `wiski stream --emit --horizon` says of a series.
pub(crate) struct Along {
    pub(crate) input: String,
    pub(crate) time: String,
    pub(crate) target: String,
    pub(crate) horizon: String,
    pub(crate) level: Option<f64>,
    pub(crate) emit: Option<Emit>,
    pub(crate) model: Option<PathBuf>,
    pub(crate) journal: JournalOptions,
    pub(crate) reading: ReadingOptions,
}

impl From<Along> for Forecast {
    fn from(along: Along) -> Self {
        Self {
            input: along.input,
            time: along.time,
            target: along.target,
            horizon: along.horizon,
            step: None,
            season: None,
            lags: None,
            trend: TrendOption::Linear,
            scale: ScaleOption::Auto,
            inputs: None,
            time_unit: None,
            series: None,
            level: along.level.unwrap_or(0.95),
            backtest: None,
            paths: 0,
            seed: 0,
            components: false,
            output: "-".into(),
            emit: along.emit,
            every: 1,
            journal: along.journal,
            model: along.model,
            resume: false,
            report: None,
            json: false,
            reading: along.reading,
        }
    }
}

impl Forecast {
    pub(crate) fn run(&self) -> Result<()> {
        ensure!(self.level > 0.0 && self.level < 1.0, "--level: {} is not between 0 and 1", self.level);
        ensure!(self.backtest != Some(0), "--backtest: at least one forecast is needed");
        if self.is_live() {
            return self.run_live();
        }
        let files = Inputs::default().and("the input", &self.input);
        files.keep("--output", &self.output)?;
        if let Some(model) = &self.model {
            files.keep("--model", model)?;
            ensure!(self.series.is_none(), "--model holds one series, so it cannot stand beside --series");
        }
        let read = rows::read(self)?;
        let done: Vec<Done> = read
            .series
            .iter()
            .map(|one| {
                let forecast = self.forecast(one, read.clock, &read.inputs);
                if one.name.is_empty() {
                    forecast
                } else {
                    forecast.with_context(|| format!("series '{}'", one.name))
                }
            })
            .collect::<Result<_>>()?;
        for one in &done {
            if self.json {
                output::say(one.json(read.clock))?;
            } else {
                eprint!("{}", one.summary(one.series.step()));
            }
        }
        if !self.json || self.output != "-" {
            self.write(&done, read.clock)?;
        }
        if let Some(folder) = &self.report {
            let names = Names { time: self.time.clone(), target: self.target.clone(), level: self.level };
            let page = show::write_report(folder, &done, read.clock, &names, &self.input)?;
            eprintln!("report {}", page.display());
        }
        Ok(())
    }

    /// Learns one series and forecasts it.
    fn forecast<'a>(&self, one: &'a One, clock: Clock, inputs: &[String]) -> Result<Done<'a>> {
        let begin = Instant::now();
        let given = self.step.as_deref().map(|text| clock.length("--step", text, 1.0)).transpose()?;
        let step = given.unwrap_or_else(|| one.step());
        let horizon = clock.length("--horizon", &self.horizon, step)?;
        let steps = (horizon / step).round().max(1.0);
        ensure!(steps <= 1e6, "--horizon: {steps} steps of {step}, where at most a million are possible");
        let mut model = match &self.model {
            Some(path) if self.resume && path.exists() => persist::load(path)?,
            _ => Forecaster::new(self.settings(clock, given, step, horizon, inputs)?)?,
        };
        let width = inputs.len();
        let held = model.settings().columns.len();
        ensure!(held == width, "--inputs: {width} columns, where the model has learned from {held}");
        let seen = model.last_time().map_or(0, |last| one.times.partition_point(|t| *t <= last));
        let (times, targets) = (&one.times[seen..], &one.targets[seen..]);
        let known = &one.inputs[seen * width..];
        let backtest = if let Some(origins) = self.backtest {
            Some(model.backtest(times, known, targets, steps as usize, origins, self.level)?)
        } else {
            model.extend(times, known, targets)?;
            None
        };
        let (ahead_times, ahead_inputs) = self.ahead(one, &model, steps as usize, horizon, width)?;
        let ahead = model.forecast_at(&ahead_times, &ahead_inputs, self.level)?;
        let paths = if self.paths > 0 {
            model.sample_paths(&ahead_times, &ahead_inputs, self.paths, self.seed)?
        } else {
            Vec::new()
        };
        let rename = |mut shares: Vec<wiski::time::ComponentShare>| {
            for share in &mut shares {
                for (i, name) in inputs.iter().enumerate() {
                    share.name = share.name.replace(&format!("x[{i}]"), name);
                }
            }
            shares
        };
        let components = rename(model.components_ahead(&ahead_times, &ahead_inputs)?);
        let past = if self.report.is_some() {
            let (times, shares) = model.components()?;
            (times, rename(shares))
        } else {
            Default::default()
        };
        if let Some(path) = &self.model {
            persist::save(path, &self.stored(&model, clock, inputs)?)?;
        }
        Ok(Done {
            series: one,
            ahead,
            paths,
            components,
            past,
            backtest,
            seasons: model.seasons(),
            lags: model.lags().to_vec(),
            scale: model.scale().unwrap_or_default(),
            seconds: begin.elapsed().as_secs_f64(),
        })
    }

    /// The model with the names of its columns.
    fn stored(&self, model: &Forecaster, clock: Clock, inputs: &[String]) -> Result<StoredSeries> {
        let columns = Columns {
            inputs: inputs.to_vec(),
            target: self.target.clone(),
            time: Some(self.time.clone()),
            ..Columns::default()
        };
        Ok(StoredSeries::new(columns, clock == Clock::Dates, model.clone())?)
    }

    fn settings(
        &self,
        clock: Clock,
        step: Option<f64>,
        gap: f64,
        horizon: f64,
        inputs: &[String],
    ) -> Result<ForecastSettings> {
        let seasons = match self.season.as_deref() {
            None => Seasons::Auto,
            Some("none") => Seasons::Given(Vec::new()),
            Some(list) => {
                let lengths = list.split(',').map(|text| clock.length("--season", text, gap));
                let lengths = lengths.collect::<Result<Vec<f64>>>()?;
                if let Some(short) = lengths.iter().find(|l| **l <= 2.0 * gap) {
                    bail!("--season: {short} is not longer than two steps of {gap}");
                }
                Seasons::Given(lengths)
            }
        };
        let lags = match self.lags.as_deref() {
            None => Lags::Auto,
            Some("none") => Lags::Given(Vec::new()),
            Some(list) => {
                let number = |text: &str| {
                    let lag: usize = text.trim().parse().ok().filter(|lag| *lag > 0)?;
                    Some(lag)
                };
                let parse = |text: &str| {
                    number(text).with_context(|| format!("--lags: '{text}' is no number of steps"))
                };
                Lags::Given(list.split(',').map(parse).collect::<Result<_>>()?)
            }
        };
        let trend = match self.trend {
            TrendOption::Linear => TrendKind::Linear,
            TrendOption::Damped => TrendKind::Damped,
            TrendOption::Level => TrendKind::Level,
        };
        let scale = match self.scale {
            ScaleOption::Auto => Scale::Auto,
            ScaleOption::Linear => Scale::Linear,
            ScaleOption::Log => Scale::Log,
        };
        let columns = vec![Column::Numeric; inputs.len()];
        Ok(ForecastSettings {
            seasons,
            lags,
            trend,
            scale,
            dates: clock == Clock::Dates,
            columns,
            step,
            horizon: Some(horizon),
            ..Default::default()
        })
    }

    /// The times ahead and what the inputs are then.
    fn ahead(
        &self,
        one: &One,
        model: &Forecaster,
        steps: usize,
        horizon: f64,
        width: usize,
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        if width == 0 {
            return Ok((model.next_times(steps)?, Vec::new()));
        }
        let last = one.times.last().copied().unwrap_or(0.0);
        let step = model.step().unwrap_or(1.0);
        let count = one.future.partition_point(|t| *t <= last + horizon + 0.5 * step);
        ensure!(
            count > 0,
            "{}: what the --inputs are in the time ahead is not known; add rows with them and an empty '{}'",
            self.input,
            self.target
        );
        if count < steps {
            eprintln!(
                "wiski: the inputs are known for {count} of {steps} steps ahead; the forecast ends there"
            );
        }
        Ok((one.future[..count].to_vec(), one.future_inputs[..count * width].to_vec()))
    }

    fn write(&self, all: &[Done], clock: Clock) -> Result<()> {
        let mut out = Output::open(&self.output)?;
        if let Some(name) = &self.series {
            out.text(name);
        }
        out.text(&self.time);
        ["mean", "std", "lower", "upper"].iter().for_each(|name| out.text(name));
        // Series may differ in what they are made of.
        let mut parts: Vec<&str> = Vec::new();
        if self.components {
            for name in all.iter().flat_map(|done| done.components.iter().map(|c| c.name.as_str())) {
                if !parts.contains(&name) {
                    parts.push(name);
                }
            }
        }
        for name in &parts {
            out.text(name);
            out.text(&format!("{name}_std"));
        }
        (1..=self.paths).for_each(|k| out.text(&format!("path{k}")));
        out.end_row()?;
        for done in all {
            let ahead = &done.ahead;
            for k in 0..ahead.times.len() {
                if self.series.is_some() {
                    out.text(&done.series.name);
                }
                write_step(&mut out, clock, ahead, k);
                for name in &parts {
                    let own = done.components.iter().find(|c| c.name == **name);
                    out.maybe(own.map(|c| c.mean[k]));
                    out.maybe(own.map(|c| c.std[k]));
                }
                done.paths.iter().for_each(|path| out.number(path[k]));
                out.end_row()?;
            }
        }
        out.finish()?;
        Ok(())
    }
}

/// The time of a step ahead, its mean, deviation and interval.
fn write_step(out: &mut Output, clock: Clock, ahead: &wiski::time::Forecast, k: usize) {
    match clock.write(ahead.times[k]) {
        Some(text) => out.text(&text),
        None => out.number(ahead.times[k]),
    }
    [ahead.mean[k], ahead.std[k], ahead.lower[k], ahead.upper[k]].iter().for_each(|v| out.number(*v));
}
