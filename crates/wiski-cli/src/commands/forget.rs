//! `wiski forget`: un-learns rows that a model has learned.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use wiski::persist::{self, Stored};

use crate::files::{Inputs, Waiting};
use crate::input::{Row, Source};
use crate::output::say;
use crate::reading::{self, BadRows, ReadingOptions, Wanted};

/// Un-learn rows that a model has learned, exactly: afterwards it is as if they had never been there.
///
/// The rows must have the values they were learned with. Models with learned features must have been frozen
/// (wiski merge --freeze, or wiski shard) before they learned them. Nothing is written if a row is rejected.
#[derive(Args)]
pub(crate) struct Forget {
    /// A model file
    model: PathBuf,

    /// A CSV, NDJSON or Parquet file with the rows, or - for standard input
    input: String,

    /// Write the model here instead of over the old one
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    reading: ReadingOptions,

    #[command(flatten)]
    waiting: Waiting,
}

impl Forget {
    pub(crate) fn run(&self) -> Result<()> {
        let target = self.output.as_ref().unwrap_or(&self.model);
        Inputs::default().and("the input", &self.input).keep_from_model("--output", target)?;
        let _lock = self.waiting.lock(target)?;
        let mut stored: Stored = persist::load(&self.model)?;
        // What is done to the model is not done to the one it was finished from.
        stored.unfinished = None;
        let source = Source::open(&self.input, &self.reading.format)?;
        let kind = reading::kind(&stored.model);
        let mut rows = reading::select(source, &stored.columns, kind, Wanted::Required, &self.reading)?;
        let mut bad = BadRows::new(self.reading.on_bad_row);
        let (mut row, mut forgotten) = (Row::default(), 0u64);
        while reading::next(&mut rows, &mut row, &mut bad)? {
            if let Err(error) = stored.model.forget(&reading::as_model_row(&row)) {
                bad.reject(
                    row.number,
                    reading::rejection(&error, rows.name(), &row, &stored.columns, &stored.model),
                )?;
                continue;
            }
            forgotten += 1;
        }
        persist::save(target, &stored)?;
        bad.report();
        say(format_args!("{forgotten} rows forgotten, {} left: {}", stored.model.count(), target.display()))?;
        Ok(())
    }
}
