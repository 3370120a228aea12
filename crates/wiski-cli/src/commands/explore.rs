//! `wiski explore`: which rows of a pool to measure next.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;
use wiski::decide::choose_rows;
use wiski::persist::{Model, Stored};

use crate::files::Inputs;
use crate::input::{Cells, Row, Source};
use crate::output::Output;
use crate::reading::{self, BadRows, ReadingOptions, Wanted};

/// Choose the rows of a pool whose measurement would lower the model's uncertainty most.
///
/// The sum of the posterior variances over the reference rows after measuring is minimized, exactly and without
/// refitting; what will be found does not matter for it.
#[derive(Args)]
pub(crate) struct Explore {
    /// A model file
    model: PathBuf,

    /// A file with the rows that could be measured, with the model's input columns
    pool: String,

    /// How many rows to choose
    #[arg(long, short = 'n', default_value_t = 1, value_name = "COUNT")]
    choose: usize,

    /// The rows over which the variance counts [default: the pool]
    #[arg(long, value_name = "FILE")]
    reference: Option<String>,

    /// Where to write the chosen rows, in the order of their worth
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: String,

    #[command(flatten)]
    reading: ReadingOptions,
}

impl Explore {
    pub(crate) fn run(&self) -> Result<()> {
        let stored: Stored = reading::load(&self.model)?;
        let Model::Regressor(model) = &stored.model else {
            bail!("{}: rows are chosen for models of numbers, not of classes", self.model.display());
        };
        let mut bad = BadRows::new(self.reading.on_bad_row);
        let (pool, cells, names) = self.read(&self.pool, &stored, &mut bad)?;
        ensure!(self.choose <= cells.len(), "-n: {} has only {} rows", self.pool, cells.len());
        let reference = match &self.reference {
            Some(path) => Some(self.read(path, &stored, &mut bad)?.0),
            None => None,
        };
        let chosen = choose_rows(model, &pool, reference.as_deref(), self.choose)?;
        let inputs = Inputs::default().and("the model", &self.model).and("the pool", &self.pool);
        let inputs = self.reference.iter().fold(inputs, |inputs, path| inputs.and("the reference", path));
        inputs.keep("--output", &self.output)?;
        let mut out = Output::open(&self.output)?;
        names.iter().for_each(|name| out.text(name));
        out.end_row()?;
        for i in chosen {
            out.cells(&cells[i]);
            out.end_row()?;
        }
        out.finish()?;
        bad.report();
        Ok(())
    }

    /// The inputs of all rows, the rows as they are, and the names of the columns.
    fn read(
        &self,
        path: &str,
        stored: &Stored,
        bad: &mut BadRows,
    ) -> Result<(Vec<f64>, Vec<Cells>, Vec<String>)> {
        let source = Source::open(path, &self.reading.format)?;
        let names = source.columns().to_vec();
        let kind = reading::kind(&stored.model);
        let mut rows = reading::select(source, &stored.columns, kind, Wanted::Inputs, &self.reading)?;
        let (mut row, mut inputs, mut cells) = (Row::default(), Vec::new(), Vec::new());
        while reading::next(&mut rows, &mut row, bad)? {
            inputs.extend_from_slice(&row.inputs);
            cells.push(row.cells.clone());
        }
        ensure!(!cells.is_empty(), "{path} has no rows");
        Ok((inputs, cells, names))
    }
}
