//! `wiski shard`: an empty model that can be merged with another one later.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use wiski::persist::{self, Model, Stored};

use crate::files::Inputs;
use crate::output::say;

/// Make an empty model with the scales, features and hyperparameters of another: to learn a part of the data
/// elsewhere, and merge it later.
#[derive(Args)]
pub(crate) struct Shard {
    /// A model file whose warm-up is over
    model: PathBuf,

    /// Where to write the empty model
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

impl Shard {
    pub(crate) fn run(&self) -> Result<()> {
        Inputs::default().and("the model", &self.model).keep_from_model("--output", &self.output)?;
        let mut stored: Stored = persist::load(&self.model)?;
        stored.model.freeze_features()?;
        let Model::Regressor(model) = &stored.model else {
            bail!(
                "{}: shards of classifiers are not possible; learn the parts apart and merge",
                self.model.display()
            );
        };
        let shard = Stored::new(stored.columns.clone(), Model::Regressor(Box::new(model.shard()?)))?;
        persist::save(&self.output, &shard)?;
        say(format_args!("an empty shard of {}: {}", self.model.display(), self.output.display()))?;
        Ok(())
    }
}
