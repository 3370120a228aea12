//! `wiski reproduce`: the paper's experiments by one command.

use clap::Args;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wiski_lab::plan::{self, Request};
use wiski_lab::work::Limits;
use wiski_lab::{Options, Size};

/// Run an experiment of the paper with every method it compares, and write its tables and figures.
///
/// A run that was stopped goes on where it was: finished trials are kept below the results folder. At full size a plan is
/// printed first, trials run side by side, and --hours takes a slice of it.
#[derive(Args)]
#[allow(clippy::struct_excessive_bools)] // one for each flag
pub(crate) struct Reproduce {
    /// The experiment, or `all` of the paper's; --list names them
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
    /// Begin nothing that would not end within so many hours; the next run goes on
    #[arg(long, value_name = "H", requires = "full", value_parser = positive)]
    hours: Option<f64>,
    /// Hours on the processor that one trial of one method may take; its curve ends there, with a fitted line for the rest,
    /// and three such trials have to do
    #[arg(long, value_name = "H", requires = "full", default_value_t = 1.0, value_parser = positive)]
    budget: f64,
    /// Trials that run side by side
    #[arg(long, value_name = "N", requires = "full", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Seconds on the processor by which each method is measured for the plan; 0 leaves the estimates out
    #[arg(long, value_name = "S", requires = "full", default_value_t = 2.0)]
    slice: f64,
    /// Print the plan, and run nothing but the slices that it is measured by
    #[arg(long, requires = "full", conflicts_with = "report")]
    plan: bool,
    /// Make tables and figures of the results that are there, and run nothing
    #[arg(long, requires = "full")]
    report: bool,
    /// At most so many rows of each set: for trying things out
    #[arg(long, value_name = "N", hide = true)]
    rows: Option<usize>,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(hours) if hours > 0.0 && hours < 1e6 => Ok(hours),
        _ => Err("a number of hours above 0".into()),
    }
}

impl Reproduce {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        if self.list {
            for e in wiski_lab::list() {
                println!("{:<15} {:<22} {}", e.name, e.figure, e.about);
            }
            return Ok(());
        }
        // A requirement of --full is no longer one for clap where --quick excludes it.
        let is_long = self.hours.is_some() || self.plan || self.report;
        anyhow::ensure!(self.full || !is_long, "--hours, --plan and --report are for --full");
        let from_environment = || std::env::var_os("WISKI_DATA").map(PathBuf::from);
        let options = Options {
            data: self.data.or_else(from_environment).unwrap_or_else(|| "data".into()),
            out: self.out,
            size: if self.full { Size::Full } else { Size::Quick },
            trials: self.trials.map(|n| n as usize),
            seed: self.seed,
            only: self.only,
            most_rows: self.rows,
            ..Options::default()
        };
        let name = self.name.unwrap_or_default();
        if !self.full {
            return plan::named(&name)?.iter().try_for_each(|e| wiski_lab::run(e.name, &options));
        }
        let until = self.hours.map(|hours| Instant::now() + Duration::from_secs_f64(3600.0 * hours));
        let limits =
            Limits { budget: 3600.0 * self.budget, slice: self.slice, until, threads: self.threads as usize };
        let request = Request {
            limits,
            plan_only: self.plan,
            report_only: self.report,
            skip_slices: self.slice <= 0.0,
        };
        plan::run(&plan::named(&name)?, &options, &request)
    }
}
