//! `wiski optimize`: Bayesian optimization of a program, of a test function, or by asking and telling.
//!
//! What the user said (this file) is checked and run (`search`, with `programs` for the user's own); `space` reads space
//! files and names points, `show` prints and draws.

mod programs;
mod search;
mod show;
mod space;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use wiski::decide::{Acquisition, Goal, Optimizer, OptimizerSettings, Outcome, Strategy, Trial};
use wiski::persist;

use crate::files::{Inputs, Waiting};
use crate::model_options::number;
use crate::names;
use crate::output::say;

/// Find the best values of a few numbers: those of a program's options, or of anything that you measure.
///
/// A space file names each number with its range:
///
///     [rate]
///     min = 1e-5
///     max = 0.1
///     scale = "log"      # or "linear"
///
///     [layers]
///     min = 1
///     max = 8
///     integer = true
///     step = 1           # counted from min; numbers that need not be whole may have steps, too
///
///     [solver]
///     choices = ["adam", "sgd", "lbfgs"]
///
///     [momentum]
///     min = 0
///     max = 1
///     only_if = { solver = ["sgd"] }
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, verbatim_doc_comment)]
pub(crate) struct Optimize {
    #[command(subcommand)]
    action: Option<Action>,

    /// What may be chosen, a TOML file
    #[arg(long, value_name = "FILE")]
    space: Option<PathBuf>,

    /// Run this for every trial, with {name} replaced by the value of each number; the last number it prints
    /// is the result, and an exit code other than 0 a failed trial
    #[arg(long, value_name = "COMMAND", requires = "space")]
    command: Option<String>,

    /// Read the result from this key of the last JSON object that the command prints; several keys are the values of
    /// --goals
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', requires = "command")]
    key: Vec<String>,

    /// Run so many commands at once
    #[arg(long, default_value_t = 1, value_name = "JOBS", requires = "command")]
    jobs: usize,

    /// A built-in test function: levy, ackley, styblinski-tang, rastrigin, griewank, michalewicz, branin (2
    /// dimensions), hartmann (3 or 6)
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    function: Option<String>,

    /// The dimensions of the test function
    #[arg(long, default_value_t = 2, value_name = "D", requires = "function")]
    dim: usize,

    /// The standard deviation of noise added to the test function
    #[arg(long, default_value_t = 0.0, value_name = "STD", requires = "function")]
    noise: f64,

    /// How many steps (of --batch trials each)
    #[arg(long, default_value_t = 50, value_name = "STEPS")]
    steps: u64,

    /// How many points each step asks for
    #[arg(long, default_value_t = 1, value_name = "Q")]
    batch: usize,

    /// Keep the state in this file after every step, and go on from it if it is there
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    #[command(flatten)]
    search: SearchOptions,

    #[command(flatten)]
    waiting: Waiting,

    /// Write a report with figures to a folder
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// How the search is done.
#[derive(Args, Debug, Clone)]
struct SearchOptions {
    /// Look for the largest value instead of the smallest
    #[arg(long)]
    maximize: bool,

    /// Several objectives, up to three: min or max for each. The answer is the front of points that no other surpasses
    #[arg(long, value_enum, value_name = "GOAL,…", value_delimiter = ',', conflicts_with = "maximize")]
    goals: Vec<Wanted>,

    /// A constraint, which holds where its value is zero or less: the key of that value in the JSON object that a command
    /// prints (with --key), or the name by which it is told. May be given several times
    #[arg(long, value_name = "NAME")]
    constraint: Vec<String>,

    /// How points are chosen
    #[arg(long, value_enum, default_value_t = Choice::LogEi, value_name = "CRITERION")]
    acquisition: Choice,

    /// β of ucb
    #[arg(long, default_value_t = 4.0, value_name = "BETA")]
    beta: f64,

    /// Choose the points of a step one after the other instead of together
    #[arg(long)]
    greedy: bool,

    /// Up to so many results an exact process is used, without a grid; beyond, grids, in constant time. 0 for grids
    /// from the start
    #[arg(long, default_value_t = OptimizerSettings::default().exact_until, value_name = "RESULTS")]
    exact_until: usize,

    /// Close in on the best point with an ever finer grid from the start; on grids more than four numbers are
    /// always searched so
    #[arg(long)]
    local: bool,

    /// Points of the initial design [default: by the number of dimensions]
    #[arg(long, value_name = "POINTS")]
    initial: Option<usize>,

    /// Grid points per axis [default: 50, 20, 10 or 7 by the number of dimensions; for each pair of more than
    /// four, 8]
    #[arg(long, value_name = "POINTS")]
    grid: Option<usize>,

    /// The seed of everything random
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// Small values
    Min,
    /// Large values
    Max,
}

impl Wanted {
    fn goal(self) -> Goal {
        if self == Self::Max { Goal::Maximize } else { Goal::Minimize }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// Logarithm of the expected improvement
    LogEi,
    /// Expected improvement
    Ei,
    /// Upper confidence bound
    Ucb,
    /// Probability of improvement (one point at a time)
    Pi,
    /// Information about the value of the optimum (one point at a time)
    Mes,
    /// Thompson sampling
    Thompson,
}

#[derive(Subcommand)]
enum Action {
    /// Start a state file for asking and telling
    New(New),
    /// Print the next points to try, as JSON
    Ask(Ask),
    /// Tell what was found at a point
    Tell(Tell),
    /// Show the best so far
    Best(Best),
}

#[derive(Args)]
struct New {
    /// The state file to make
    state: PathBuf,
    /// What may be chosen, a TOML file
    #[arg(long, value_name = "FILE")]
    space: PathBuf,
    #[command(flatten)]
    search: SearchOptions,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
struct Ask {
    /// A state file
    state: PathBuf,
    /// How many points
    #[arg(long, short, default_value_t = 1, value_name = "COUNT")]
    q: usize,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
struct Tell {
    /// A state file
    state: PathBuf,
    /// The point, as rate=0.01,layers=3
    #[arg(long, value_name = "NAME=VALUE,…", required = true)]
    at: Vec<String>,
    /// What was found: a number, or one for each objective
    #[arg(
        long,
        allow_hyphen_values = true,
        value_delimiter = ',',
        value_name = "VALUE,…",
        required_unless_present = "failed"
    )]
    value: Vec<f64>,
    /// The values of the constraints
    #[arg(long, value_name = "NAME=VALUE,…", conflicts_with = "failed")]
    constraint: Vec<String>,
    /// The trial gave no value
    #[arg(long, conflicts_with = "value")]
    failed: bool,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Args)]
struct Best {
    /// A state file
    state: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl SearchOptions {
    fn settings(&self) -> Result<OptimizerSettings> {
        ensure!(self.beta >= 0.0, "--beta: {} is negative", self.beta);
        let acquisition = match self.acquisition {
            Choice::LogEi => Some(Acquisition::LogExpectedImprovement),
            Choice::Ei => Some(Acquisition::ExpectedImprovement),
            Choice::Ucb => Some(Acquisition::UpperConfidence { beta: self.beta }),
            Choice::Pi => Some(Acquisition::ProbabilityOfImprovement),
            Choice::Mes => Some(Acquisition::MaxValueEntropy),
            Choice::Thompson => None,
        };
        let strategy = match acquisition {
            None => Strategy::Thompson,
            Some(a) if self.greedy => Strategy::Greedy(a),
            Some(a) => Strategy::Joint(a),
        };
        let goals: Vec<Goal> = match self.goals.as_slice() {
            [] if self.maximize => vec![Goal::Maximize],
            [] => vec![Goal::Minimize],
            several => several.iter().map(|wanted| wanted.goal()).collect(),
        };
        Ok(OptimizerSettings {
            goal: goals[0],
            further: goals[1..].to_vec(),
            constraints: self.constraint.clone(),
            strategy,
            initial: self.initial,
            grid: self.grid,
            exact_until: self.exact_until,
            local: self.local.then_some(true),
            seed: self.seed,
            ..OptimizerSettings::default()
        })
    }
}

impl Optimize {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.action {
            Some(Action::New(new)) => new.run(),
            Some(Action::Ask(ask)) => ask.run(),
            Some(Action::Tell(tell)) => tell.run(),
            Some(Action::Best(best)) => {
                let optimizer: Optimizer = persist::load(&best.state)?;
                show::print(&optimizer, best.json, None)
            }
            None => self.search(),
        }
    }
}

impl New {
    fn run(&self) -> Result<()> {
        let optimizer = Optimizer::new(space::read(&self.space)?, self.search.settings()?)?;
        Inputs::default().and("the space", &self.space).keep("the state", &self.state)?;
        let _lock = self.waiting.lock(&self.state)?;
        ensure!(!self.state.exists(), "{} is there already", self.state.display());
        persist::save(&self.state, &optimizer)?;
        say(format_args!("{}", self.state.display()))
    }
}

impl Ask {
    fn run(&self) -> Result<()> {
        let _lock = self.waiting.lock(&self.state)?;
        let mut optimizer: Optimizer = persist::load(&self.state)?;
        let points = optimizer.ask(self.q)?;
        persist::save(&self.state, &optimizer)?;
        points.iter().try_for_each(|x| say(format_args!("{}", space::named(optimizer.space(), x))))
    }
}

impl Tell {
    fn run(&self) -> Result<()> {
        let _lock = self.waiting.lock(&self.state)?;
        let mut optimizer: Optimizer = persist::load(&self.state)?;
        let space = optimizer.space();
        let mut x = vec![None; space.dim()];
        for entry in names::split_all(&self.at) {
            let (name, value) =
                entry.split_once('=').with_context(|| format!("--at: '{entry}' is not name=value"))?;
            let place = space.dimensions().iter().position(|d| d.name == name);
            let place = place.with_context(|| format!("--at: the space has no '{name}'"))?;
            x[place] = Some(space::value(&space.dimensions()[place], value)?);
        }
        let missing = space.dimensions().iter().zip(&x).find(|(_, v)| v.is_none());
        if let Some((dimension, _)) = missing {
            bail!("--at: a value of '{}' is missing", dimension.name);
        }
        let x: Vec<f64> = x.into_iter().flatten().collect();
        let trial = match self.value.split_first() {
            Some((first, further)) => {
                let constraints = self.constraints(optimizer.settings())?;
                Trial::new(x, *first).with_further(further).with_constraints(constraints)
            }
            None => Trial::failed(x),
        };
        optimizer.tell_trial(&trial)?;
        if !self.value.is_empty() && optimizer.trials().last().map(|t| t.outcome) == Some(Outcome::Failed) {
            let value = self.value.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
            eprintln!(
                "wiski: {value} cannot be believed beside the other results; the trial counts as failed"
            );
        }
        persist::save(&self.state, &optimizer)?;
        Ok(())
    }
    /// The values of the constraints, in their order.
    fn constraints(&self, settings: &OptimizerSettings) -> Result<Vec<f64>> {
        let mut values = vec![None; settings.constraints.len()];
        for entry in names::split_all(&self.constraint) {
            let (name, value) = entry
                .split_once('=')
                .with_context(|| format!("--constraint: '{entry}' is not name=value"))?;
            let place = settings.constraints.iter().position(|known| known == name);
            let place = place.with_context(|| format!("--constraint: the search has no '{name}'"))?;
            values[place] = Some(number("--constraint", value)?);
        }
        let named = values.into_iter().zip(&settings.constraints);
        let given = |(value, name): (Option<f64>, &String)| {
            value.with_context(|| format!("--constraint: a value of '{name}' is missing"))
        };
        named.map(given).collect()
    }
}
