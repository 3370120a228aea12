//! `wiski stream`: predict, then learn, row after row.
//!
//! What the user said (this file) is checked and opened (`plan`), run row by row (`run`) and printed (`lines`).

mod events;
pub(crate) mod feed;
pub(crate) mod learner;
mod lines;
mod plan;
mod recording;
mod run;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use wiski::model::Upkeep;

use self::learner::JournalOptions;
use self::plan::Plan;
use crate::commands::forecast::{Along, Forecast};
use crate::files::Waiting;
use crate::intervals::IntervalOptions;
use crate::latency;
use crate::model_options::ModelOptions;
use crate::reading::ReadingOptions;

/// Predict, then learn, row after row.
#[derive(Args)]
pub(crate) struct Stream {
    /// A CSV, NDJSON or Parquet file (also .gz), or - for standard input
    input: String,

    /// The column to predict
    #[arg(long, short, value_name = "COLUMN", required_unless_present = "resume")]
    target: Option<String>,

    /// The input columns [default: all other columns of numbers]
    ///
    /// Names with commas stand in quotation marks: '"a,b",c'
    #[arg(long, value_name = "COLUMNS")]
    inputs: Option<String>,

    /// A column with the known noise variance of each row
    #[arg(long, value_name = "COLUMN")]
    noise_col: Option<String>,

    /// A column with the time of each row: numbers, or dates and times. It is no input unless --inputs names it
    #[arg(long, value_name = "COLUMN")]
    time_col: Option<String>,

    /// The target is a class, not a number
    #[arg(long)]
    classify: bool,

    #[command(flatten)]
    model_options: ModelOptions,

    #[command(flatten)]
    interval_options: IntervalOptions,

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

    /// Print a line for every row as it arrives: mean, standard deviation, standardized residual, alarm, drift, interval,
    /// and events: a column that stops changing, outliers, rows without an input, a stream that changes
    #[arg(long, value_name = "FORMAT", value_enum, num_args = 0..=1, default_missing_value = "csv")]
    emit: Option<Emit>,

    /// With --emit and --time-col: rows are one series, and each is answered with a forecast so far ahead, as 24h or 7d. The
    /// other columns are not used; `wiski forecast --emit` is the same with more to choose
    #[arg(
        long,
        value_name = "LENGTH",
        requires_all = ["emit", "time_col", "target"],
        conflicts_with_all = [
            "inputs", "noise_col", "classify", "shuffle", "holdout", "limit", "predictions", "resume", "report",
            "json", "search", "max_latency", "alarm", "alarm_action"
        ]
    )]
    horizon: Option<String>,

    /// Who waits while features are searched for or hyperparameters refitted: the row that brings it about, so that a
    /// stream leads to the same model every time; or nobody, since it is done beside the stream [default: background for
    /// rows that arrive on standard input and are answered with --emit, unless a journal has to repeat them; else wait]
    #[arg(long, value_name = "HOW", value_enum)]
    search: Option<Search>,

    /// No row is to wait longer, as 5ms: searches and refits are done beside the stream, and rows that took longer are
    /// counted in the summary
    #[arg(long, value_name = "TIME", value_parser = latency::seconds)]
    max_latency: Option<f64>,

    /// Raise an alarm where the target is so many standard deviations off
    #[arg(long, value_name = "SIGMAS", default_value_t = 4.0)]
    alarm: f64,

    /// What to do with rows that raise an alarm
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = AlarmAction::Learn)]
    alarm_action: AlarmAction,

    #[command(flatten)]
    journal: JournalOptions,

    #[command(flatten)]
    waiting: Waiting,

    #[command(flatten)]
    reading: ReadingOptions,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Emit {
    Csv,
    Ndjson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Search {
    /// The row that brings it about waits
    Wait,
    /// No row waits
    Background,
}

/// What becomes of a row that raises an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AlarmAction {
    /// Learn it as any other
    Learn,
    /// Predict it only: a glitch leaves no trace in the model
    Skip,
}

impl Stream {
    pub(crate) fn run(&self) -> Result<()> {
        if let (Some(horizon), Some(time), Some(target)) = (&self.horizon, &self.time_col, &self.target) {
            let series = Along {
                input: self.input.clone(),
                time: time.clone(),
                target: target.clone(),
                horizon: horizon.clone(),
                level: self.interval_options.given_level(),
                emit: self.emit,
                model: self.model.clone(),
                journal: self.journal.clone(),
                reading: self.reading.clone(),
            };
            return Forecast::from(series).run();
        }
        Plan::new(self)?.run()
    }

    /// Whether rows wait for searches and refits.
    fn upkeep(&self) -> Upkeep {
        let is_live = self.input == "-" && self.emit.is_some() && self.journal.journal.is_none();
        match self.search {
            Some(Search::Background) => Upkeep::Background,
            None if is_live || self.max_latency.is_some() => Upkeep::Background,
            Some(Search::Wait) | None => Upkeep::Wait,
        }
    }
}
