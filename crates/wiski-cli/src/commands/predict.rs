//! `wiski predict`: adds predictions to the rows of a file.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use wiski::persist::{Answer, Model, Stored};
use wiski::{Horizon, Interval, Prediction};

use crate::commands::forecast::ahead;
use crate::files::Inputs;
use crate::input::{Row, Source};
use crate::intervals::IntervalOptions;
use crate::output::Output;
use crate::reading::{self, BadRows, ReadingOptions, Wanted};

/// Add predictions to the rows of a file: mean, std, lower and upper, or the likeliest class, a probability for each
/// class, and the set of classes.
///
/// Intervals and sets are those of the long run: a stream (wiski stream --emit) also knows how far off the last rows were.
///
/// If the model was learned with --noise-col, the bands include the noise in that column of the file.
///
/// Of a series (wiski forecast --model, --journal) the rows are later times, with the inputs known then.
#[derive(Args)]
pub(crate) struct Predict {
    /// A model file
    model: PathBuf,

    /// A CSV, NDJSON or Parquet file with the model's input columns, or - for standard input
    input: String,

    /// Where to write the CSV
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: String,

    /// The standard deviation and Gaussian interval of the function, without the noise of an observation
    #[arg(long)]
    latent: bool,

    /// The rows come right after the last one learned: where the stream was changing, what its last rows said is taken
    /// into account, and the interval is the one promised for the next row
    #[arg(long)]
    next: bool,

    #[command(flatten)]
    intervals: IntervalOptions,

    #[command(flatten)]
    reading: ReadingOptions,
}

impl Predict {
    pub(crate) fn run(&self) -> Result<()> {
        self.intervals.check()?;
        if ahead::is_series(&self.model)? {
            let given = [
                ("--latent", self.latent),
                ("--next", self.next),
                ("--intervals", self.intervals.kind_is_given()),
            ];
            for (name, given) in given {
                ensure!(
                    !given,
                    "{name} has no meaning for a series, whose intervals are those of rows ahead"
                );
            }
            let level = self.intervals.given_level().unwrap_or(0.95);
            return ahead::predict(&self.model, &self.input, &self.output, level, &self.reading);
        }
        let Stored { columns, mut model, .. } = reading::load(&self.model)?;
        let horizon = if self.next { Horizon::Next } else { Horizon::Ahead };
        if !self.next {
            model.drop_corrections();
        }
        let source = Source::open(&self.input, &self.reading.format)?;
        if let Some(noise) =
            columns.noise.as_ref().filter(|name| !self.latent && !source.columns().contains(name))
        {
            eprintln!(
                "wiski: {} has no column '{noise}', so the bands are those of the function, without noise (--latent)",
                source.name()
            );
        }
        let inputs = Inputs::default().and("the model", &self.model).and("the input", &self.input);
        inputs.keep("--output", &self.output)?;
        let mut out = Output::open(&self.output)?;
        source.columns().iter().for_each(|name| out.text(name));
        let added: Vec<String> = match &model {
            Model::Regressor(_) => ["mean", "std", "lower", "upper"].map(String::from).to_vec(),
            Model::Classifier(model) => {
                let classes = model.classes().iter().map(|class| format!("p_{class}"));
                let first = std::iter::once("predicted".to_string());
                first.chain(classes).chain(std::iter::once("set".to_string())).collect()
            }
        };
        added.iter().for_each(|name| out.text(name));
        out.end_row()?;

        let piped = self.input == "-";
        let mut rows =
            reading::select(source, &columns, reading::kind(&model), Wanted::Inputs, &self.reading)?
                .with_missing(reading::may_lack(&model));
        let mut bad = BadRows::new(self.reading.on_bad_row);
        let mut row = Row::default();
        while reading::next(&mut rows, &mut row, &mut bad)? {
            let answer = match model.predict_noisy(&row.inputs, row.noise) {
                Ok(answer) => answer,
                Err(error) => {
                    bad.reject(row.number, reading::rejection(&error, rows.name(), &row, &columns, &model))?;
                    continue;
                }
            };
            out.cells(&row.cells);
            match &answer {
                Answer::Value(p) => {
                    let p = if self.latent { Prediction { noise: 0.0, ..*p } } else { *p };
                    let interval = match self.intervals.interval(&model, &answer, horizon)? {
                        Some(interval) if !self.latent => interval,
                        _ => Interval::gaussian(&p, self.intervals.level(&model))?,
                    };
                    [p.mean, p.std(), interval.lower, interval.upper].into_iter().for_each(|v| out.number(v));
                }
                Answer::Class(p) => {
                    out.text(&p.label);
                    p.probabilities.iter().for_each(|&p| out.number(p));
                    let set = self.intervals.set(&model, &answer, horizon)?;
                    out.text(&set.unwrap_or_default().join("|"));
                }
            }
            out.end_row()?;
            if piped {
                out.flush()?;
            }
        }
        out.finish()?;
        bad.report();
        Ok(())
    }
}
