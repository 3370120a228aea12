//! `wiski refit`: fits the hyperparameters of a model to everything it has learned.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use wiski::persist::{self, Model, Stored};

use crate::files::{Inputs, Waiting};
use crate::output::say;

/// Fit the hyperparameters of a model to everything it has learned, whatever its schedule: worth while after forget
/// or merge. No row is needed for it.
#[derive(Args)]
pub(crate) struct Refit {
    /// A model file
    model: PathBuf,

    /// Write the model here instead of over the old one
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    waiting: Waiting,
}

impl Refit {
    pub(crate) fn run(&self) -> Result<()> {
        let target = self.output.as_ref().unwrap_or(&self.model);
        Inputs::default().keep_from_model("--output", target)?;
        let _lock = self.waiting.lock(target)?;
        let mut stored: Stored = persist::load(&self.model)?;
        // What is done to the model is not done to the one it was finished from.
        stored.unfinished = None;
        ensure!(stored.model.is_ready(), "{}: still collecting the first rows", self.model.display());
        let before = evidence(&stored.model)?;
        stored.model.refit()?;
        let after = evidence(&stored.model)?;
        persist::save(target, &stored)?;
        let gained = match (before, after) {
            (Some(before), Some(after)) => format!("log evidence {before:.3} before, {after:.3} after: "),
            _ => String::new(),
        };
        say(format_args!("{gained}{}", target.display()))
    }
}

/// The log evidence of everything learned, in the units of the data; that of classes is a sum over them.
fn evidence(model: &Model) -> Result<Option<f64>> {
    Ok(match model {
        Model::Regressor(model) => match model.model() {
            Some(process) => {
                Some(process.evidence()?.value - model.count() * model.target_scale().scale.ln())
            }
            None => None,
        },
        Model::Classifier(model) => {
            let processes = (0..model.classes().len()).filter_map(|class| model.model(class));
            Some(processes.map(|process| Ok(process.evidence()?.value)).sum::<Result<f64>>()?)
        }
    })
}
