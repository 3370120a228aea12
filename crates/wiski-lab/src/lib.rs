//! The paper's experiments, reproduced: every method it compares with, its data protocol, its figures.
//!
//! ```text
//! data (files → scaled tables → splits)  →  methods (one interface)  →  experiments  →  results (CSV, tables, figures)
//! ```
//!
//! * [`baselines`]: exact Gaussian processes by Cholesky and by conjugate gradients, batch SKI with LOVE variances,
//!   O-SVGP, O-SGPR, local Gaussian processes.
//! * [`search`]: the same search with several models, for optimization.
//! * [`experiments`]: what is run, at two sizes; [`list`] names them and [`run`] runs one.
//! * [`results`]: a cache of finished trials, so that a stopped experiment goes on where it was.

pub mod baselines;
pub mod data;
pub mod experiments;
pub mod method;
pub mod results;
pub mod search;

use std::path::PathBuf;

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Minutes: three trials, with caps on the rows that slow methods see.
    Quick,
    /// The paper's sizes and ten trials.
    Full,
}

/// How an experiment is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder with the data files.
    pub data: PathBuf,
    /// The folder for results; each experiment has its own below it.
    pub out: PathBuf,
    /// How much is run.
    pub size: Size,
    /// The number of trials, if not that of the size.
    pub trials: Option<usize>,
    /// The seed of the first trial; the others follow.
    pub seed: u64,
    /// Parts of the experiment to run (data sets, panels); all if empty.
    pub only: Vec<String>,
}

impl Options {
    /// The number of trials.
    pub fn trials(&self) -> usize {
        self.trials.unwrap_or(match self.size {
            Size::Quick => 3,
            Size::Full => 10,
        })
    }

    /// The seeds of the trials.
    pub fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        self.seed..self.seed + self.trials() as u64
    }

    /// Whether a part of an experiment is to be run.
    pub fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| o == part)
    }

    /// One of two values by size.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        match self.size {
            Size::Quick => quick,
            Size::Full => full,
        }
    }
}

/// The name of an experiment and what it shows.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// The name by which it is run.
    pub name: &'static str,
    /// The part of the paper it belongs to.
    pub figure: &'static str,
    /// What is run and what it shows.
    pub about: &'static str,
    /// Whether it reads files.
    needs_data: bool,
    run: fn(&Options) -> anyhow::Result<()>,
}

/// All experiments, in the order of the paper.
pub fn list() -> &'static [Experiment] {
    &experiments::ALL
}

/// Runs an experiment; results and figures are written below `options.out`.
pub fn run(name: &str, options: &Options) -> anyhow::Result<()> {
    let Some(experiment) = list().iter().find(|e| e.name == name) else {
        let names: Vec<&str> = list().iter().map(|e| e.name).collect();
        anyhow::bail!("there is no experiment {name:?}; there are {}", names.join(", "));
    };
    anyhow::ensure!(
        options.data.is_dir() || !experiment.needs_data,
        "no data folder at {}: give --data DIR or set WISKI_DATA",
        options.data.display()
    );
    (experiment.run)(options)
}
