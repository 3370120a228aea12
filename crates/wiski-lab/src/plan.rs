//! A run of many experiments over hours or days: what there is to do, how long it will take, and doing it.
//!
//! First every experiment is gone through to list its units, then a slice of each method on each set is measured, and the
//! plan is printed. Then threads go through the experiments side by side, first for one trial of everything, then for
//! two and so on, so that every figure has something soon and the spreads come later. Each unit leaves a file; a run that
//! is stopped, or that was given a number of hours, is continued by the next. At the end, and by any later call, tables and
//! figures are made of what is there.

use crate::work::{Limits, Mode, Work, duration};
use crate::{Experiment, Options, list};
use std::fmt::Write as _;

/// What a long run was asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request {
    /// The limits.
    pub limits: Limits,
    /// Only the plan: nothing is run but slices.
    pub plan_only: bool,
    /// Only tables and figures of what is there.
    pub report_only: bool,
    /// Whether slices are left out, and with them the estimates.
    pub skip_slices: bool,
}

/// Experiments by name; `all` is those of the paper.
pub fn named(name: &str) -> anyhow::Result<Vec<&'static Experiment>> {
    if name == "all" {
        return Ok(list().iter().filter(|e| e.is_of_the_paper()).collect());
    }
    let found: Vec<&Experiment> = list().iter().filter(|e| e.name == name).collect();
    let names = || list().iter().map(|e| e.name).collect::<Vec<_>>().join(", ");
    anyhow::ensure!(!found.is_empty(), "there is no experiment {name:?}; there are {} and all", names());
    Ok(found)
}

/// Plans, runs and reports.
pub fn run(experiments: &[&Experiment], options: &Options, request: &Request) -> anyhow::Result<()> {
    for experiment in experiments {
        experiment.check_data(options)?;
    }
    let work = Work::new(request.limits);
    let with = |mode: Mode, first: Option<usize>| Options { work: work.with(mode), first, ..options.clone() };
    if !request.report_only {
        go_through(experiments, &with(Mode::List, None))?;
        if !request.skip_slices {
            eprintln!("measuring a slice of each method");
            on_threads(request.limits.threads, || go_through(experiments, &with(Mode::Measure, None)))?;
        }
        print!("{}", text(&work));
        if request.plan_only {
            return Ok(());
        }
        let most = work.classes().values().map(|c| c.done + c.left).max().unwrap_or(0);
        on_threads(request.limits.threads, || {
            for first in 1..=most {
                go_through(experiments, &with(Mode::Share, Some(first)))?;
            }
            // Settings may depend on results: as long as something was run, there may be more to do.
            loop {
                let before = work.finished();
                go_through(experiments, &with(Mode::Share, None))?;
                if work.finished() == before {
                    return Ok(());
                }
            }
        })?;
    }
    go_through(experiments, &with(Mode::Read, None))?;
    let (done, all, left) = work.outlook();
    let failures = work.failures();
    println!("\n{done} of {all} units have a result, in {}", options.out.display());
    if all > done {
        println!("{} left, {} of work by estimate: the same command goes on", all - done, duration(left));
    }
    for (unit, error) in &failures {
        println!("failed: {} {}: {error}", unit.experiment, unit.key);
    }
    anyhow::ensure!(
        failures.is_empty(),
        "{} units failed; they are tried again by the next run",
        failures.len()
    );
    Ok(())
}

fn go_through(experiments: &[&Experiment], options: &Options) -> anyhow::Result<()> {
    experiments.iter().try_for_each(|e| (e.run)(options))
}

/// Every thread does the same: it goes through experiments and does what no other has taken.
fn on_threads(threads: usize, go: impl Fn() -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(&go)).collect();
        let mut result = go();
        for other in others {
            let theirs = other.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread has panicked")));
            result = result.and(theirs);
        }
        result
    })
}

/// The plan as a table.
pub fn text(work: &Work) -> String {
    let (limits, classes) = (work.limits(), work.classes());
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<15} {:<58} {:>9} {:>9} {:>9}",
        "experiment", "set, method", "units", "each", "left"
    );
    let mut cut = 0;
    for ((experiment, class), c) in &classes {
        let each = c.estimate(limits.budget);
        let is_cut = each.is_some_and(|each| each >= limits.budget);
        cut += usize::from(is_cut);
        let show = |seconds: f64| if is_cut { format!("{}*", duration(seconds)) } else { duration(seconds) };
        let _ = writeln!(
            text,
            "{experiment:<15} {class:<58} {:>9} {:>9} {:>9}",
            format!("{}/{}", c.done, c.done + c.left + c.failed),
            each.map_or("?".into(), show),
            each.map_or("?".into(), |each| duration(each * c.left as f64)),
        );
    }
    let (done, all, left) = work.outlook();
    let _ = writeln!(
        text,
        "{all} units, {done} with a result; {} of work left, about {} on {} threads",
        duration(left),
        duration(left / limits.threads as f64),
        limits.threads
    );
    if cut > 0 {
        let _ = writeln!(
            text,
            "* longer than the budget of {}: such a curve ends there, with a fitted line for the rest",
            duration(limits.budget)
        );
    }
    text
}
