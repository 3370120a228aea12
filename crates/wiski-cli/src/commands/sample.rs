//! `wiski sample`: functions drawn from the posterior.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::{SampledFunction, Z95};
use wiski::persist::{Answer, Model, Stored};
use wiski_figures::{Figure, Samples};

use super::plot;
use crate::files::Inputs;
use crate::input::{Row, Source};
use crate::output::Output;
use crate::reading::{self, BadRows, ReadingOptions, Wanted};

/// Draw functions from the posterior and print their values as CSV, one column for each function; or draw
/// them as a picture (-o FILE.svg or .png), for models with one input.
#[derive(Args)]
pub(crate) struct Sample {
    /// A model file
    model: PathBuf,

    /// A file with the rows at which to evaluate them [default: 200 places along the only input]
    #[arg(long, value_name = "FILE")]
    at: Option<String>,

    /// How many functions
    #[arg(long, short = 'n', default_value_t = 5, value_name = "COUNT")]
    functions: usize,

    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Where to write the CSV or the picture
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: String,

    #[command(flatten)]
    reading: ReadingOptions,
}

impl Sample {
    pub(crate) fn run(&self) -> Result<()> {
        ensure!(self.functions > 0, "-n: at least one function");
        let stored: Stored = reading::load(&self.model)?;
        let Model::Regressor(model) = &stored.model else {
            bail!("{}: functions are drawn from models of numbers, not of classes", self.model.display());
        };
        let inputs = Inputs::default().and("the model", &self.model);
        let inputs = self.at.iter().fold(inputs, |inputs, path| inputs.and("the input", path));
        inputs.keep("--output", &self.output)?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let functions: Vec<_> =
            (0..self.functions).map(|_| model.sample(&mut rng)).collect::<Result<_, _>>()?;
        let extension = std::path::Path::new(&self.output).extension().and_then(|e| e.to_str());
        if let Some("svg" | "png") = extension {
            let figure = picture(&stored, &functions)?;
            return plot::write(figure.as_ref(), std::path::Path::new(&self.output));
        }
        let mut out = Output::open(&self.output)?;
        let header = |out: &mut Output, names: &[String]| {
            names.iter().for_each(|name| out.text(name));
            (1..=functions.len()).for_each(|i| out.text(&format!("f{i}")));
            out.end_row()
        };
        let mut bad = BadRows::new(self.reading.on_bad_row);
        if let Some(path) = &self.at {
            let source = Source::open(path, &self.reading.format)?;
            header(&mut out, source.columns())?;
            let mut rows = reading::select(
                source,
                &stored.columns,
                reading::kind(&stored.model),
                Wanted::Inputs,
                &self.reading,
            )?;
            let mut row = Row::default();
            while reading::next(&mut rows, &mut row, &mut bad)? {
                let values: Result<Vec<f64>, _> = functions.iter().map(|f| f.value(&row.inputs)).collect();
                match values {
                    Ok(values) => {
                        out.cells(&row.cells);
                        values.into_iter().for_each(|v| out.number(v));
                        out.end_row()?;
                    }
                    Err(error) => bad.reject(
                        row.number,
                        reading::rejection(&error, rows.name(), &row, &stored.columns, &stored.model),
                    )?,
                }
            }
        } else {
            ensure!(
                stored.columns.inputs.len() == 1,
                "--at: the model has {} inputs, so say at which rows to evaluate the functions",
                stored.columns.inputs.len()
            );
            header(&mut out, &stored.columns.inputs)?;
            for x in plot::places(plot::ranges(&stored.model)[0], 200) {
                out.number(x);
                for f in &functions {
                    out.number(f.value(&[x])?);
                }
                out.end_row()?;
            }
        }
        out.finish()?;
        bad.report();
        Ok(())
    }
}

fn picture(stored: &Stored, functions: &[SampledFunction]) -> Result<Box<dyn Figure>> {
    let [name] = &stored.columns.inputs[..] else {
        bail!("the model has {} inputs; functions of one input can be drawn", stored.columns.inputs.len());
    };
    let x = plot::places(plot::ranges(&stored.model)[0], 300);
    let model = stored.model.clone();
    let (mut mean, mut lower, mut upper) = (Vec::new(), Vec::new(), Vec::new());
    for &v in &x {
        if let Answer::Value(p) = model.predict(&[v])? {
            let half = Z95 * p.variance.sqrt();
            mean.push(p.mean);
            lower.push(p.mean - half);
            upper.push(p.mean + half);
        }
    }
    let values = |f: &SampledFunction| x.iter().map(|&v| f.value(&[v])).collect::<Result<Vec<f64>, _>>();
    let draws = functions.iter().map(values).collect::<Result<_, _>>()?;
    let (x_label, y_label) = (name.clone(), stored.columns.target.clone());
    let title = format!("{} functions from the posterior", functions.len());
    let (data_x, data_y) = (Vec::new(), Vec::new());
    Ok(Box::new(Samples { title, x_label, y_label, x, mean, lower, upper, draws, data_x, data_y }))
}
