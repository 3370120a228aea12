//! `wiski update`: learns further rows into a saved model.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use wiski::persist::{self, Stored};

use crate::files::{Inputs, Waiting};
use crate::input::{Row, Source};
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
    reading: ReadingOptions,

    #[command(flatten)]
    waiting: Waiting,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

impl Update {
    pub(crate) fn run(&self) -> Result<()> {
        let target = self.output.as_ref().unwrap_or(&self.model);
        Inputs::default().and("the input", &self.input).keep_from_model("--output", target)?;
        let _lock = self.waiting.lock(target)?;
        let mut stored: Stored = persist::load(&self.model)?;
        let source = Source::open(&self.input, &self.reading.format)?;
        let kind = reading::kind(&stored.model);
        let mut rows = reading::select(source, &stored.columns, kind, Wanted::Required, &self.reading)?;
        let mut bad = BadRows::new(self.reading.on_bad_row);
        let mut progress = Progress::new(!self.quiet);
        let (mut row, mut learned) = (Row::default(), 0u64);
        while reading::next(&mut rows, &mut row, &mut bad)? {
            if let Err(error) = stored.step(&reading::as_model_row(&row)) {
                bad.reject(
                    row.number,
                    reading::rejection(&error, rows.name(), &row, &stored.columns, &stored.model),
                )?;
                continue;
            }
            learned += 1;
            if learned.is_multiple_of(256) {
                progress.show(learned, rows.progress(), &stored.model);
            }
        }
        progress.done();
        persist::save(target, &stored)?;
        bad.report();
        say(format_args!("{learned} rows learned, {} in all: {}", stored.model.count(), target.display()))?;
        Ok(())
    }
}
