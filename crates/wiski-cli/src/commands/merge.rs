//! `wiski merge`: adds up what several models have learned.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use wiski::persist::{self, Model, Stored};

use crate::commands::forecast::ahead;
use crate::files::Inputs;
use crate::output::say;

/// Add up what several models have learned, exactly: as if the first one, with the features and hyperparameters that it
/// has, had learned all the rows.
///
/// The models must map rows to the same coordinates: the same --bounds and identity features, or shards of one model. A
/// model that is not frozen and learns all rows alone goes on learning features (with three or more inputs) and
/// hyperparameters, and ends elsewhere. --refit fits the hyperparameters to everything; features stay.
#[derive(Args)]
pub(crate) struct Merge {
    /// Two or more model files
    #[arg(required = true, num_args = 2..)]
    models: Vec<PathBuf>,

    /// Where to write the result
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Fit the hyperparameters to everything learned
    #[arg(long)]
    refit: bool,

    /// Stop learning the feature maps first; models with learned features cannot be merged otherwise
    #[arg(long)]
    freeze: bool,
}

impl Merge {
    pub(crate) fn run(&self) -> Result<()> {
        let inputs =
            self.models.iter().fold(Inputs::default(), |inputs, path| inputs.and("one of the models", path));
        inputs.keep_from_model("--output", &self.output)?;
        let mut models = self.models.iter().map(|path| -> Result<Stored> {
            if ahead::is_series(path)? {
                bail!(
                    "{}: a series cannot be merged, since its filter knows one order of rows; learn all rows in the order of time",
                    path.display()
                );
            }
            let mut stored: Stored = persist::load(path)?;
            // What is done to the model is not done to the one it was finished from.
            stored.unfinished = None;
            if self.freeze {
                stored.model.freeze_features().with_context(|| path.display().to_string())?;
            }
            Ok(stored)
        });
        let Some(first) = models.next() else { bail!("two models are needed") };
        let mut sum = first?;
        for (other, path) in models.zip(&self.models[1..]) {
            let other = other?;
            if other.columns != sum.columns {
                bail!("{} has other columns than {}", path.display(), self.models[0].display());
            }
            sum.model.merge(&other.model).with_context(|| path.display().to_string())?;
            sum.rows += other.rows;
        }
        if self.refit {
            match &mut sum.model {
                Model::Regressor(model) => model.refit()?,
                Model::Classifier(model) => model.refit()?,
            }
        }
        persist::save(&self.output, &sum)?;
        say(format_args!(
            "{} models merged, {} rows: {}",
            self.models.len(),
            sum.model.count(),
            self.output.display()
        ))?;
        Ok(())
    }
}
