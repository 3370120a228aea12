//! `wiski optimize`: Bayesian optimisation of a program, of a test function, or by asking and telling.

mod programs;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Deserialize;
use serde_json::{Value, json};
use wiski::decide::{
    Acquisition, Dimension, Goal, Optimizer, OptimizerSettings, Outcome, Scale, Space, Strategy, TestFunction,
};
use wiski::persist;
use wiski_figures::{Figure, Map, Run, Trace};

use crate::model_options::number;
use crate::output::say;
use crate::report::{self, Report};
use crate::summary;

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

    /// Read the result from this key of the last JSON object that the command prints
    #[arg(long, value_name = "KEY", requires = "command")]
    key: Option<String>,

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
}

#[derive(Args)]
struct Ask {
    /// A state file
    state: PathBuf,
    /// How many points
    #[arg(long, short, default_value_t = 1, value_name = "COUNT")]
    q: usize,
}

#[derive(Args)]
struct Tell {
    /// A state file
    state: PathBuf,
    /// The point, as rate=0.01,layers=3
    #[arg(long, value_name = "NAME=VALUE,…", value_delimiter = ',', required = true)]
    at: Vec<String>,
    /// What was found
    #[arg(long, allow_negative_numbers = true, required_unless_present = "failed")]
    value: Option<f64>,
    /// The trial gave no value
    #[arg(long, conflicts_with = "value")]
    failed: bool,
}

#[derive(Args)]
struct Best {
    /// A state file
    state: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One entry of a space file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    min: f64,
    max: f64,
    #[serde(default)]
    scale: Scale,
    #[serde(default)]
    integer: bool,
}

fn read_space(path: &Path) -> Result<Space> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let one_line = |error: toml::de::Error| {
        let line = error.span().map_or(1, |s| 1 + text[..s.start.min(text.len())].matches('\n').count());
        anyhow::anyhow!("{}: line {line}: {}", path.display(), error.message())
    };
    let ranges: toml::Table = text.parse().map_err(one_line)?;
    let dimension = |(name, value): (String, toml::Value)| -> Result<Dimension> {
        let range: Range = value
            .try_into()
            .map_err(|e: toml::de::Error| anyhow::anyhow!("{}: [{name}]: {}", path.display(), e.message()))?;
        Ok(Dimension { name, lo: range.min, hi: range.max, scale: range.scale, integer: range.integer })
    };
    let dimensions = ranges.into_iter().map(dimension).collect::<Result<_>>()?;
    Space::new(dimensions).with_context(|| path.display().to_string())
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
        Ok(OptimizerSettings {
            goal: if self.maximize { Goal::Maximise } else { Goal::Minimise },
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

/// What is optimised.
enum Problem {
    Function { function: TestFunction, noise: f64, rng: Box<Xoshiro256PlusPlus> },
    Program(programs::Program),
}

impl Optimize {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.action {
            Some(Action::New(new)) => {
                let optimizer = Optimizer::new(read_space(&new.space)?, new.search.settings()?)?;
                ensure!(!new.state.exists(), "{} is there already", new.state.display());
                persist::save(&new.state, &optimizer)?;
                say(format_args!("{}", new.state.display()))?;
                Ok(())
            }
            Some(Action::Ask(ask)) => {
                let mut optimizer: Optimizer = persist::load(&ask.state)?;
                let points = optimizer.ask(ask.q)?;
                persist::save(&ask.state, &optimizer)?;
                for x in points {
                    say(format_args!("{}", named(optimizer.space(), &x)))?;
                }
                Ok(())
            }
            Some(Action::Tell(tell)) => tell.run(),
            Some(Action::Best(best)) => {
                let optimizer: Optimizer = persist::load(&best.state)?;
                show(&optimizer, best.json, None)
            }
            None => self.search(),
        }
    }

    fn search(&self) -> Result<()> {
        ensure!(self.batch > 0, "--batch: at least one point");
        ensure!(self.noise >= 0.0, "--noise: {} is negative", self.noise);
        let (space, mut problem) = match (&self.function, &self.command, &self.space) {
            (Some(name), _, _) => {
                let function = TestFunction::by_name(name)?;
                let rng = Box::new(Xoshiro256PlusPlus::seed_from_u64(self.search.seed ^ 0x5EED));
                (function.space(self.dim)?, Problem::Function { function, noise: self.noise, rng })
            }
            (None, Some(command), Some(path)) => {
                let space = read_space(path)?;
                let program = programs::Program::new(command, self.key.clone(), self.jobs, &space)?;
                (space, Problem::Program(program))
            }
            _ => bail!("say what to optimize: --space with --command, or --function; or use ask and tell"),
        };
        let mut optimizer = match &self.state {
            Some(path) if path.exists() => {
                let mut optimizer: Optimizer = persist::load(path)?;
                ensure!(*optimizer.space() == space, "{} was made for another space", path.display());
                // Whoever ran them is gone.
                optimizer.forget_pending();
                optimizer
            }
            _ => Optimizer::new(space, self.search.settings()?)?,
        };
        let start = Instant::now();
        let total = self.steps * self.batch as u64;
        let bar = bar(total, self.quiet);
        let mut done = optimizer.trials().len() as u64;
        bar.set_position(done);
        let save =
            |optimizer: &Optimizer| self.state.as_ref().map_or(Ok(()), |p| persist::save(p, optimizer));
        match &mut problem {
            Problem::Function { function, noise, rng } => {
                // The noise of earlier trials has been drawn already.
                (0..done).for_each(|_| {
                    let _: f64 = rng.sample(StandardNormal);
                });
                while done < total {
                    for x in optimizer.ask(self.batch)? {
                        let e: f64 = rng.sample(StandardNormal);
                        optimizer.tell(&x, function.value(&x) + *noise * e)?;
                        done += 1;
                    }
                    save(&optimizer)?;
                    progress(&bar, &optimizer, done);
                }
            }
            Problem::Program(program) => {
                program.run(&mut optimizer, total, |optimizer, done| {
                    progress(&bar, optimizer, done);
                    save(optimizer)
                })?;
            }
        }
        bar.finish_and_clear();
        let seconds = start.elapsed().as_secs_f64();
        if let Some(folder) = &self.report {
            let page = write_report(folder, &optimizer)?;
            eprintln!("report: {}", page.display());
        }
        let function = match problem {
            Problem::Function { function, .. } => Some(function),
            Problem::Program(_) => None,
        };
        show(&optimizer, self.json, Some((seconds, function)))
    }
}

impl Tell {
    fn run(&self) -> Result<()> {
        let mut optimizer: Optimizer = persist::load(&self.state)?;
        let space = optimizer.space();
        let mut x = vec![None; space.dim()];
        for entry in &self.at {
            let (name, value) =
                entry.split_once('=').with_context(|| format!("--at: '{entry}' is not name=value"))?;
            let place = space.dimensions().iter().position(|d| d.name == name);
            let place = place.with_context(|| format!("--at: the space has no '{name}'"))?;
            x[place] = Some(number("--at", value)?);
        }
        let missing = space.dimensions().iter().zip(&x).find(|(_, v)| v.is_none());
        if let Some((dimension, _)) = missing {
            bail!("--at: a value of '{}' is missing", dimension.name);
        }
        let x: Vec<f64> = x.into_iter().flatten().collect();
        match self.value {
            Some(value) => optimizer.tell(&x, value)?,
            None => optimizer.tell_failed(&x)?,
        }
        persist::save(&self.state, &optimizer)?;
        Ok(())
    }
}

/// A point as JSON, by names.
fn named(space: &Space, x: &[f64]) -> Value {
    let value = |(d, v): (&Dimension, &f64)| {
        let v = if d.integer { json!(*v as i64) } else { json!(v) };
        (d.name.clone(), v)
    };
    Value::Object(space.dimensions().iter().zip(x).map(value).collect())
}

fn bar(total: u64, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} eta {eta}");
    let bar = ProgressBar::with_draw_target(Some(total), target);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn progress(bar: &ProgressBar, optimizer: &Optimizer, done: u64) {
    bar.set_position(done);
    if let Some(best) = optimizer.best()
        && let Outcome::Value(value) = best.outcome
    {
        bar.set_message(format!("best {value:.6}"));
    }
}

fn show(optimizer: &Optimizer, json: bool, run: Option<(f64, Option<TestFunction>)>) -> Result<()> {
    let space = optimizer.space();
    let best = optimizer.best();
    let recommended = optimizer.recommend()?;
    let trials = optimizer.trials().len();
    let failed = optimizer.trials().iter().filter(|t| t.outcome == Outcome::Failed).count();
    let value = |outcome: Outcome| match outcome {
        Outcome::Value(v) => Some(v),
        Outcome::Failed => None,
    };
    if json {
        let mut all = json!({
            "trials": trials,
            "failed": failed,
            "best": best.map(|t| json!({ "x": named(space, &t.x), "value": value(t.outcome) })),
            "recommended": recommended.as_ref().map(|(x, mean, std)| {
                json!({ "x": named(space, x), "mean": mean, "std": std })
            }),
        });
        if let Some((seconds, function)) = run {
            all["seconds"] = json!({ "total": seconds, "per_trial": seconds / (trials as f64).max(1.0) });
            if let Some(function) = function {
                // Without the noise: at the recommended point, and the best of all points tried.
                let latent =
                    optimizer.trials().iter().map(|t| function.value(&t.x)).fold(f64::INFINITY, f64::min);
                all["latent"] = json!({
                    "recommended": recommended.as_ref().map(|r| function.value(&r.0)),
                    "best": latent,
                });
            }
        }
        say(format_args!("{all}"))?;
        return Ok(());
    }
    let mut lines = vec![("trials".to_string(), format!("{trials}, {failed} of them failed"))];
    if let Some(t) = best {
        lines.push((
            "best measured".into(),
            format!("{} at {}", value(t.outcome).unwrap_or(f64::NAN), named(space, &t.x)),
        ));
    }
    if let Some((x, mean, std)) = recommended {
        lines.push(("best predicted".into(), format!("{mean:.6} ± {std:.6} at {}", named(space, &x))));
    }
    if let Some((seconds, _)) = run {
        lines.push(("time".into(), format!("{seconds:.2} s")));
    }
    say(summary::table(&lines).trim_end())?;
    Ok(())
}

fn write_report(folder: &Path, optimizer: &Optimizer) -> Result<PathBuf> {
    let values: Vec<f64> = optimizer
        .trials()
        .iter()
        .filter_map(|t| match t.outcome {
            Outcome::Value(v) => Some(v),
            Outcome::Failed => None,
        })
        .collect();
    let better = |a: f64, b: f64| match optimizer.settings().goal {
        Goal::Minimise => a.min(b),
        Goal::Maximise => a.max(b),
    };
    let best = values.iter().scan(None, |best: &mut Option<f64>, &v| {
        *best = Some(best.map_or(v, |b| better(b, v)));
        *best
    });
    let run = Run { name: "value".into(), best: best.collect(), values: values.clone() };
    let mut figures: Vec<Box<dyn Figure>> =
        vec![Box::new(Trace { title: String::new(), y_label: "value".into(), runs: vec![run] })];
    if let Some(map) = surface(optimizer)? {
        figures.push(Box::new(map));
    }
    let mut headline = vec![("Trials".to_string(), optimizer.trials().len().to_string())];
    if let Some((x, mean, std)) = optimizer.recommend()? {
        headline.push(("Best predicted".into(), format!("{mean:.5} ± {std:.5}")));
        headline.push(("At".into(), named(optimizer.space(), &x).to_string()));
    }
    let settings = format!("{:?}", optimizer.settings().strategy);
    let page = Report {
        title: "Optimisation".into(),
        summary: "Each point was proposed by the model that had learned all results before it.".into(),
        headline,
        figures,
        settings: vec![("Strategy".into(), settings)],
    };
    report::write(folder, &page)
}

/// Mean and deviation over the first two dimensions, the others where the best point is.
fn surface(optimizer: &Optimizer) -> Result<Option<Map>> {
    let (space, mut landscape) = (optimizer.space(), optimizer.surrogate().cloned());
    let Some((best, _, _)) = optimizer.recommend()? else { return Ok(None) };
    let Some(landscape) = &mut landscape else { return Ok(None) };
    // In many dimensions the model covers a part of the box only.
    if space.dim() < 2 || landscape.covers().iter().any(|side| *side != (-1.0, 1.0)) {
        return Ok(None);
    }
    let mut unit = space.to_unit(&best)?;
    let places: Vec<f64> = (0..60).map(|i| 1e-9 + (1.0 - 2e-9) * f64::from(i) / 59.0).collect();
    let sign = if optimizer.settings().goal == Goal::Maximise { 1.0 } else { -1.0 };
    let (mut mean, mut std) = (Vec::new(), Vec::new());
    for &v in &places {
        for &u in &places {
            (unit[0], unit[1]) = (u, v);
            let place: Vec<f64> = unit.iter().map(|u| 2.0 * u - 1.0).collect();
            let p = landscape.predict(&place)?;
            mean.push(sign * p.mean);
            std.push(p.variance.sqrt());
        }
    }
    let axis = |k: usize| -> (String, Vec<f64>) {
        let d = &space.dimensions()[k];
        match d.scale {
            Scale::Linear => (d.name.clone(), places.iter().map(|u| d.lo + u * (d.hi - d.lo)).collect()),
            Scale::Log => {
                let (lo, hi) = (d.lo.log10(), d.hi.log10());
                (format!("log10 {}", d.name), places.iter().map(|u| lo + u * (hi - lo)).collect())
            }
        }
    };
    let ((x_label, x), (y_label, y)) = (axis(0), axis(1));
    let scaled =
        |k: usize, t: &[f64]| if space.dimensions()[k].scale == Scale::Log { t[k].log10() } else { t[k] };
    let field = |of: &str, values| wiski_figures::Field { title: String::new(), quantity: of.into(), values };
    Ok(Some(Map {
        title: String::new(),
        x_label,
        y_label,
        x,
        y,
        fields: vec![field("mean", mean), field("standard deviation", std)],
        data_x: optimizer.trials().iter().map(|t| scaled(0, &t.x)).collect(),
        data_y: optimizer.trials().iter().map(|t| scaled(1, &t.x)).collect(),
    }))
}
