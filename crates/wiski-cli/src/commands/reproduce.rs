//! `wiski reproduce`: the paper's experiments by one command.

use clap::Args;
use std::path::PathBuf;
use wiski_lab::{Options, Size};

/// Run an experiment of the paper with every method it compares, and write its tables and figures.
///
/// A run that was stopped goes on where it was: finished trials are kept below the results folder.
#[derive(Args)]
pub(crate) struct Reproduce {
    /// The experiment; --list names them
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Say what each experiment is
    #[arg(long)]
    list: bool,
    /// Three trials, with caps on the rows that slow methods see: minutes (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The paper's sizes and ten trials: hours to days
    #[arg(long)]
    full: bool,
    /// The folder with the data files; without it $WISKI_DATA, then ./data
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The folder for results
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// The number of trials
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    trials: Option<u32>,
    /// The seed of the first trial
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Run these parts only (data sets, methods or panels), separated by commas
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    only: Vec<String>,
}

impl Reproduce {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        if self.list {
            for e in wiski_lab::list() {
                println!("{:<15} {:<22} {}", e.name, e.figure, e.about);
            }
            return Ok(());
        }
        let from_environment = || std::env::var_os("WISKI_DATA").map(PathBuf::from);
        let options = Options {
            data: self.data.or_else(from_environment).unwrap_or_else(|| "data".into()),
            out: self.out,
            size: if self.full { Size::Full } else { Size::Quick },
            trials: self.trials.map(|n| n as usize),
            seed: self.seed,
            only: self.only,
        };
        wiski_lab::run(&self.name.unwrap_or_default(), &options)
    }
}
