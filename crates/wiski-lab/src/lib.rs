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
//! * [`work`], [`watch`], [`plan`]: the units of all experiments, how long they take, and a run of many of them over days.

pub mod baselines;
pub mod data;
pub mod experiments;
pub mod method;
pub mod plan;
pub mod results;
pub mod search;
pub mod watch;
pub mod work;

use std::path::PathBuf;
use work::Work;

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Size {
    /// Minutes: three trials, with caps on the rows that slow methods see.
    #[default]
    Quick,
    /// The paper's sizes and ten trials.
    Full,
}

/// How an experiment is run.
#[derive(Debug, Clone, Default)]
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
    /// At most so many rows of each set, warm-up, stream and test together: for trying things out.
    pub most_rows: Option<usize>,
    /// Only the first so many of the trials, whatever their number is.
    pub first: Option<usize>,
    /// What is done with the units of an experiment.
    pub work: Work,
}

impl Options {
    /// The seeds of the trials.
    pub fn seeds(&self) -> std::ops::Range<u64> {
        self.seeds_of(3, 10)
    }

    /// The seeds of so many trials, by size, unless a number was asked for.
    pub fn seeds_of(&self, quick: usize, full: usize) -> std::ops::Range<u64> {
        let trials = self.trials.unwrap_or(self.pick(quick, full)).min(self.first.unwrap_or(usize::MAX));
        self.seed..self.seed + trials as u64
    }

    /// A regression set with the paper's scaling, cut to as many rows as were asked for.
    pub fn table(&self, name: &str) -> anyhow::Result<data::Table> {
        let table = data::Table::regression(&self.data, name)?;
        Ok(match self.most_rows {
            Some(most) if most < table.len() => table.select(&(0..most).collect::<Vec<_>>()),
            _ => table,
        })
    }

    /// "quick" or "full", for the names of files.
    pub fn size_name(&self) -> &'static str {
        self.pick("quick", "full")
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

impl Experiment {
    /// Whether it is one of the paper's.
    pub fn is_of_the_paper(&self) -> bool {
        self.figure != experiments::BEYOND
    }

    fn check_data(&self, options: &Options) -> anyhow::Result<()> {
        anyhow::ensure!(
            options.data.is_dir() || !self.needs_data,
            "no data folder at {}: give --data DIR or set WISKI_DATA",
            options.data.display()
        );
        Ok(())
    }
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
    experiment.check_data(options)?;
    (experiment.run)(options)
}
