//! `wiski shard`: an empty model that can be merged with another one later.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use wiski::persist::{self, Stored};

use crate::files::{Inputs, Waiting};
use crate::output::say;

/// Make an empty model with the scales, features and hyperparameters of another: to learn a part of the data
/// elsewhere, and merge it later.
///
/// Merging is exact only if features no longer change. If those of the model may still be learned anew, as with three
/// or more inputs, they are frozen first, in the model's file, too: from then on it and its shards agree.
#[derive(Args)]
pub(crate) struct Shard {
    /// A model file whose warm-up is over
    model: PathBuf,

    /// Where to write the empty model
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    waiting: Waiting,
}

impl Shard {
    pub(crate) fn run(&self) -> Result<()> {
        Inputs::default().and("the model", &self.model).keep_from_model("--output", &self.output)?;
        let _lock = self.waiting.lock(&self.model)?;
        let mut stored: Stored = persist::load(&self.model)?;
        // What is done to the model is not done to the one it was finished from.
        stored.unfinished = None;
        let shard = match stored.model.shard() {
            Err(wiski::Error::Unsupported { .. }) => {
                stored.model.freeze_features()?;
                let shard = stored.model.shard()?;
                persist::save(&self.model, &stored)?;
                say(format_args!(
                    "{} is frozen: its features no longer change, so that shards can be merged exactly",
                    self.model.display()
                ))?;
                shard
            }
            result => result?,
        };
        persist::save(&self.output, &Stored::new(stored.columns, shard)?)?;
        say(format_args!("an empty shard of {}: {}", self.model.display(), self.output.display()))?;
        Ok(())
    }
}
