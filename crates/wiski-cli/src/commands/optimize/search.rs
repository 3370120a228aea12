//! A search from its beginning, or from where its state file says, to its end.

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::decide::{Optimizer, Outcome, TestFunction};
use wiski::persist;

use super::{Optimize, programs, show, space};
use crate::files::Inputs;

/// What is optimized.
enum Problem {
    Function { function: TestFunction, noise: f64, rng: Box<Xoshiro256PlusPlus> },
    Program(programs::Program),
}

impl Optimize {
    pub(super) fn search(&self) -> Result<()> {
        ensure!(self.batch > 0, "--batch: at least one point");
        ensure!(self.noise >= 0.0, "--noise: {} is negative", self.noise);
        let (space, mut problem) = match (&self.function, &self.command, &self.space) {
            (Some(name), _, _) => {
                let plain = self.search.goals.len() < 2 && self.search.constraint.is_empty();
                ensure!(plain, "--function: a test function has one objective and no constraints");
                let function = TestFunction::by_name(name)?;
                let rng = Box::new(Xoshiro256PlusPlus::seed_from_u64(self.search.seed ^ 0x5EED));
                (function.space(self.dim)?, Problem::Function { function, noise: self.noise, rng })
            }
            (None, Some(command), Some(path)) => {
                let space = space::read(path)?;
                let program = programs::Program::new(command, self.keys()?, self.jobs, &space)?;
                (space, Problem::Program(program))
            }
            _ => bail!("say what to optimize: --space with --command, or --function; or use ask and tell"),
        };
        let inputs = self.space.iter().fold(Inputs::default(), |inputs, path| inputs.and("the space", path));
        let _lock = match &self.state {
            Some(path) => {
                inputs.keep_from_model("--state", path)?;
                // Held to the end: what another process learned in between would be lost.
                Some(self.waiting.lock(path)?)
            }
            None => None,
        };
        let mut optimizer = match &self.state {
            Some(path) if path.exists() => {
                let mut optimizer: Optimizer = persist::load(path)?;
                ensure!(*optimizer.space() == space, "{} was made for another space", path.display());
                let (old, new) = (optimizer.settings(), self.search.settings()?);
                let same = old.constraints == new.constraints && old.further == new.further;
                ensure!(same, "{} was made for other objectives or constraints", path.display());
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
            let page = show::write_report(folder, &optimizer)?;
            eprintln!("report: {}", page.display());
        }
        let function = match problem {
            Problem::Function { function, .. } => Some(function),
            Problem::Program(_) => None,
        };
        show::print(&optimizer, self.json, Some((seconds, function)))?;
        let values = optimizer.trials().iter().filter(|trial| trial.outcome != Outcome::Failed);
        ensure!(
            values.count() > 0 || optimizer.trials().is_empty(),
            "all {} trials failed",
            optimizer.trials().len()
        );
        Ok(())
    }
}

impl Optimize {
    /// Where a program's results are in what it prints.
    fn keys(&self) -> Result<programs::Keys> {
        let (keys, goals) = (self.key.len(), self.search.goals.len().max(1));
        let constraints = self.search.constraint.clone();
        ensure!(keys == goals || keys == 0, "--key: {keys} are given, and there are {goals} objectives");
        let is_plain = goals == 1 && constraints.is_empty();
        ensure!(keys > 0 || is_plain, "--key: say where the program's results are, as --key loss");
        Ok(programs::Keys { objectives: self.key.clone(), constraints })
    }
}

fn bar(total: u64, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} eta {eta}");
    let bar = ProgressBar::with_draw_target(Some(total), target);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn progress(bar: &ProgressBar, optimizer: &Optimizer, done: u64) {
    bar.set_position(done);
    if !optimizer.settings().further.is_empty() {
        bar.set_message(format!("front {}", optimizer.front().len()));
    } else if let Some(best) = optimizer.best()
        && let Outcome::Value(value) = best.outcome
    {
        bar.set_message(format!("best {value:.6}"));
    }
}
