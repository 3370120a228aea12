//! `wiski update`: learns further rows into a saved model.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use wiski::Horizon;
use wiski::model::Coverage;
use wiski::persist::{self, Answer, Model, Stored};

use crate::files::{Inputs, Waiting};
use crate::input::{Row, Source};
use crate::intervals::{IntervalOptions, percent};
use crate::output::say;
use crate::progress::Progress;
use crate::reading::{self, BadRows, ReadingOptions, Wanted};

/// Learn further rows into a saved model: all of them, or, if one is rejected, none.
#[derive(Args)]
pub(crate) struct Update {
    /// A model file
    model: PathBuf,

    /// A CSV, NDJSON or Parquet file with the model's columns, or - for standard input
    input: String,

    /// Write the model here instead of over the old one
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    intervals: IntervalOptions,

    #[command(flatten)]
    reading: ReadingOptions,

    #[command(flatten)]
    waiting: Waiting,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

impl Update {
    pub(crate) fn run(&self) -> Result<()> {
        self.intervals.check()?;
        let target = self.output.as_ref().unwrap_or(&self.model);
        Inputs::default().and("the input", &self.input).keep_from_model("--output", target)?;
        let _lock = self.waiting.lock(target)?;
        let mut stored = persist::load::<Stored>(&self.model)?.resumed();
        let source = Source::open(&self.input, &self.reading.format)?;
        let kind = reading::kind(&stored.model);
        let mut rows = reading::select(source, &stored.columns, kind, Wanted::Required, &self.reading)?
            .with_missing(reading::may_lack(&stored.model));
        let mut bad = BadRows::new(self.reading.on_bad_row);
        let mut progress = Progress::new(!self.quiet);
        let (mut row, mut learned) = (Row::default(), 0u64);
        let mut coverage = Coverage::default();
        while reading::next(&mut rows, &mut row, &mut bad)? {
            match stored.step(&reading::as_model_row(&row)) {
                Ok(Some(answer)) => self.record(&mut coverage, &stored.model, &answer, &row)?,
                Ok(None) => {}
                Err(error) => {
                    bad.reject(
                        row.number,
                        reading::rejection(&error, rows.name(), &row, &stored.columns, &stored.model),
                    )?;
                    continue;
                }
            }
            learned += 1;
            if learned.is_multiple_of(256) {
                progress.show(learned, rows.progress(), &stored.model);
            }
        }
        progress.done();
        stored.finish_search()?;
        persist::save(target, &stored)?;
        bad.report();
        say(format_args!("{learned} rows learned, {} in all: {}", stored.model.count(), target.display()))?;
        if coverage.rows() > 0.0 {
            let (share, level) = (100.0 * coverage.share(), percent(self.intervals.level(&stored.model)));
            let (what, size) = match &stored.model {
                Model::Regressor(_) => ("targets in the", "interval, mean width"),
                Model::Classifier(_) => ("classes in the", "set, classes on average"),
            };
            let mean = reading::brief(coverage.mean_size());
            say(format_args!("before they were learned, {share:.1} % of {what} {level} {size} {mean}"))?;
        }
        Ok(())
    }

    /// Takes in whether a target lay in the interval, or a class in the set, that was given before the row was learned.
    fn record(&self, coverage: &mut Coverage, model: &Model, said: &Answer, row: &Row) -> Result<()> {
        if let (Some(interval), Some(y)) = (self.intervals.interval(model, said, Horizon::Last)?, row.target)
        {
            coverage.record(interval.contains(y), interval.width());
        }
        if let (Some(set), Some(label)) =
            (self.intervals.set(model, said, Horizon::Last)?, row.label.as_deref())
        {
            coverage.record(set.contains(&label), set.len() as f64);
        }
        Ok(())
    }
}
