//! Units of work: what an experiment consists of, and what is done with each unit when it comes up.
//!
//! An experiment is a loop over sets, methods and trials that asks its [`Folder`](crate::results::Folder) for the result of
//! each unit, and makes tables and figures of those that are there. What asking does depends on the [`Work`] that it was
//! called with: run what is missing, list what there is, measure a slice of each method, or only read. So the plan cannot
//! forget a unit that a run has, and several threads share an experiment by going through it side by side: a unit belongs to
//! the thread that comes first.

use crate::watch::{self, Slice};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What is done with a unit that has no result yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// It is run, at once and without limit; an error ends the experiment.
    #[default]
    Run,
    /// It is noted.
    List,
    /// A slice of it is run, once for each method on each set.
    Measure,
    /// It is run if nobody else does, within its budget.
    Share,
    /// Nothing.
    Read,
}

/// The limits of a long run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Processor seconds that a unit may take; the curve of a stream ends there.
    pub budget: f64,
    /// Processor seconds of the slice by which a method is measured.
    pub slice: f64,
    /// When no further unit is begun.
    pub until: Option<Instant>,
    /// Units that run side by side.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { budget: 3600.0, slice: 2.0, until: None, threads: 2 }
    }
}

/// One result: the name of its experiment and of its file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    /// The experiment.
    pub experiment: String,
    /// Set, method and settings, then the trial.
    pub key: String,
}

impl Unit {
    /// What all trials of a method on a set share.
    pub fn class(&self) -> (String, String) {
        let class = self.key.rsplit_once('-').map_or(self.key.as_str(), |(class, _)| class);
        (self.experiment.clone(), class.to_owned())
    }
}

/// What is known about the units of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Class {
    /// Units with a result, those without, and those that failed.
    pub done: usize,
    /// See `done`.
    pub left: usize,
    /// See `done`.
    pub failed: usize,
    /// Processor seconds of those that have a result.
    pub spent: f64,
    /// What a slice of one says about a unit.
    pub slice: Option<Slice>,
}

/// The trials of a method whose budget ends before its stream does.
pub(crate) const FEW_TRIALS: usize = 3;

impl Class {
    /// Whether a unit takes all of its budget.
    fn is_dear(&self, budget: f64) -> bool {
        self.estimate(budget).is_some_and(|seconds| seconds >= budget)
    }

    /// The processor seconds that a unit will take within a budget: as those before did, or as a slice says.
    pub fn estimate(&self, budget: f64) -> Option<f64> {
        match self.slice {
            _ if self.done > 0 && self.spent > 0.0 => Some(self.spent / self.done as f64),
            Some(slice) => Some(slice.estimate().min(budget)),
            None => None,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Units that belong to a thread of this run, and those that came up.
    claimed: HashSet<Unit>,
    units: BTreeMap<Unit, bool>,
    spent: HashMap<Unit, f64>,
    slices: BTreeMap<(String, String), Slice>,
    failures: Vec<(Unit, String)>,
    /// Units that were not begun because there was no time for them.
    postponed: HashSet<Unit>,
    finished: usize,
}

/// What happens at each unit; copies share what they know.
#[derive(Debug, Clone, Default)]
pub struct Work {
    mode: Mode,
    limits: Limits,
    state: Arc<Mutex<State>>,
}

/// What a thread does with a unit without a result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Task {
    Run { budget: f64 },
    Measure { seconds: f64 },
    Leave,
}

impl Work {
    /// Work within limits, of which nothing is known.
    pub fn new(limits: Limits) -> Self {
        Self { mode: Mode::List, limits, state: Arc::default() }
    }

    /// The same work with another answer to units without a result.
    #[must_use]
    pub fn with(&self, mode: Mode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether tables and figures are made of what is there.
    pub fn reports(&self) -> bool {
        matches!(self.mode, Mode::Run | Mode::Read)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a unit that has a result.
    pub(crate) fn has(&self, unit: Unit, seconds: f64) {
        let mut state = self.state();
        state.spent.insert(unit.clone(), seconds);
        state.units.insert(unit, true);
    }

    /// What to do with a unit that has none.
    pub(crate) fn take(&self, unit: &Unit) -> Task {
        let estimate = self.classes().get(&unit.class()).and_then(|c| c.estimate(self.limits.budget));
        let mut state = self.state();
        state.units.insert(unit.clone(), false);
        match self.mode {
            Mode::Run => Task::Run { budget: f64::INFINITY },
            Mode::Read | Mode::List => Task::Leave,
            Mode::Measure => {
                let class = unit.class();
                let is_known = state.slices.contains_key(&class)
                    || state.units.iter().any(|(u, done)| *done && u.class() == class);
                if is_known || !state.claimed.insert(Unit { key: class.1, ..unit.clone() }) {
                    return Task::Leave;
                }
                Task::Measure { seconds: self.limits.slice }
            }
            Mode::Share => {
                let left = self.limits.until.map(|until| until.saturating_duration_since(Instant::now()));
                let fits = left.is_none_or(|left| {
                    !left.is_zero() && estimate.is_none_or(|seconds| seconds <= left.as_secs_f64())
                });
                if !fits {
                    state.postponed.insert(unit.clone());
                    return Task::Leave;
                }
                if state.failures.iter().any(|(failed, _)| failed == unit)
                    || !state.claimed.insert(unit.clone())
                {
                    return Task::Leave;
                }
                Task::Run { budget: self.limits.budget }
            }
        }
    }

    /// Whether a unit like this one takes all of its budget, so that few trials have to do.
    pub(crate) fn is_dear(&self, unit: &Unit) -> bool {
        self.classes().get(&unit.class()).is_some_and(|class| class.is_dear(self.limits.budget))
    }

    /// Takes note of what a slice said.
    pub(crate) fn measured(&self, unit: &Unit, slice: Slice) {
        self.state().slices.insert(unit.class(), slice);
    }

    /// Takes note of a unit that has just been run, and says how far the run is.
    pub(crate) fn ran(&self, unit: &Unit, seconds: f64) {
        let mut state = self.state();
        state.spent.insert(unit.clone(), seconds);
        state.units.insert(unit.clone(), true);
        state.finished += 1;
        drop(state);
        if self.mode == Mode::Share {
            let (done, all, left) = self.outlook();
            eprintln!(
                "{done} of {all} units; {} of work left by estimate, {} on {} threads",
                duration(left),
                duration(left / self.limits.threads as f64),
                self.limits.threads
            );
        }
    }

    /// Takes note of an error; whether the experiment goes on without the unit.
    pub(crate) fn failed(&self, unit: &Unit, error: &anyhow::Error) -> bool {
        if self.mode != Mode::Share {
            return false;
        }
        eprintln!("{} {}: {error:#}", unit.experiment, unit.key);
        self.state().failures.push((unit.clone(), format!("{error:#}")));
        true
    }

    /// Units with a result and all units that came up, and the processor seconds left by estimate.
    pub fn outlook(&self) -> (usize, usize, f64) {
        let classes = self.classes();
        let (done, all) = classes.values().fold((0, 0), |(d, a), c| (d + c.done, a + c.done + c.left));
        let left = classes.values().map(|c| c.left as f64 * c.estimate(self.limits.budget).unwrap_or(0.0));
        (done, all, left.sum())
    }

    /// How many units were run.
    pub fn finished(&self) -> usize {
        self.state().finished
    }

    /// Units that were not begun for want of time.
    pub fn postponed(&self) -> usize {
        self.state().postponed.len()
    }

    /// Units that failed, and why.
    pub fn failures(&self) -> Vec<(Unit, String)> {
        self.state().failures.clone()
    }

    /// All units that came up, and whether they have a result.
    pub fn units(&self) -> Vec<(Unit, bool)> {
        self.state().units.iter().map(|(unit, done)| (unit.clone(), *done)).collect()
    }

    /// What is known about each class.
    pub fn classes(&self) -> BTreeMap<(String, String), Class> {
        let state = self.state();
        let mut classes: BTreeMap<(String, String), Class> = BTreeMap::new();
        for (unit, done) in &state.units {
            let class = classes.entry(unit.class()).or_default();
            let failed = state.failures.iter().any(|(failed, _)| failed == unit);
            class.done += usize::from(*done);
            class.left += usize::from(!*done && !failed);
            class.failed += usize::from(failed);
            class.spent += state.spent.get(unit).copied().unwrap_or(0.0);
        }
        for (name, slice) in &state.slices {
            if let Some(class) = classes.get_mut(name) {
                class.slice = Some(*slice);
            }
        }
        for class in classes.values_mut().filter(|class| class.is_dear(self.limits.budget)) {
            class.left = class.left.min(FEW_TRIALS.saturating_sub(class.done));
        }
        classes
    }
}

/// Does what is to be done with a unit without a result; the result and its processor seconds, if there is one.
pub(crate) fn perform<T>(
    work: &Work,
    unit: &Unit,
    compute: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<Option<(T, f64)>> {
    match work.take(unit) {
        Task::Leave => Ok(None),
        Task::Measure { seconds } => {
            work.measured(unit, watch::measured(seconds, compute));
            Ok(None)
        }
        Task::Run { budget } => match watch::within(budget, compute) {
            (Ok(result), seconds) => Ok(Some((result, seconds))),
            (Err(error), _) if work.failed(unit, &error) => Ok(None),
            (Err(error), _) => Err(error),
        },
    }
}

/// Seconds, minutes, hours or days, with two digits.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s if s < 48.0 * 3600.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(key: &str) -> Unit {
        Unit { experiment: "test".into(), key: key.into() }
    }

    #[test]
    fn a_unit_belongs_to_one_thread_and_a_class_is_measured_once() {
        let work = Work::new(Limits::default());
        assert_eq!(work.take(&unit("set-method-0")), Task::Leave);
        assert_eq!(work.take(&unit("set-method-1")), Task::Leave);
        let measure = work.with(Mode::Measure);
        assert_eq!(measure.take(&unit("set-method-0")), Task::Measure { seconds: 2.0 });
        assert_eq!(measure.take(&unit("set-method-1")), Task::Leave, "another trial of the same method");
        measure.measured(&unit("set-method-0"), Slice { seconds: 3.0, is_whole: true, ..Slice::default() });
        assert_eq!(work.outlook(), (0, 2, 6.0));
        let (one, two) = (work.with(Mode::Share), work.with(Mode::Share));
        assert_eq!(one.take(&unit("set-method-0")), Task::Run { budget: 3600.0 });
        assert_eq!(two.take(&unit("set-method-0")), Task::Leave);
        one.ran(&unit("set-method-0"), 5.0);
        // What a unit took says more than a slice did.
        assert_eq!(work.outlook(), (1, 2, 5.0));
        assert!(two.failed(&unit("set-method-1"), &anyhow::anyhow!("no")));
        assert_eq!((work.outlook(), two.take(&unit("set-method-1"))), ((1, 1, 0.0), Task::Leave));
        assert!(!work.with(Mode::Run).failed(&unit("a-0"), &anyhow::anyhow!("no")));
    }

    #[test]
    fn what_does_not_fit_is_left_for_another_day() {
        let limits =
            Limits { until: Some(Instant::now() + std::time::Duration::from_mins(1)), ..Limits::default() };
        let work = Work::new(limits).with(Mode::Share);
        for (key, seconds) in [("short-0", 5.0), ("long-0", 500.0)] {
            work.measured(&unit(key), Slice { seconds, is_whole: true, ..Slice::default() });
            work.with(Mode::List).take(&unit(key));
        }
        assert_eq!(work.take(&unit("short-0")), Task::Run { budget: 3600.0 });
        assert_eq!(work.take(&unit("long-0")), Task::Leave);
        assert_eq!(work.postponed(), 1);
        let over = Work::new(Limits { until: Some(Instant::now()), ..limits }).with(Mode::Share);
        assert_eq!(over.take(&unit("unknown-0")), Task::Leave);
    }

    #[test]
    fn what_takes_all_of_its_budget_has_few_trials() {
        let work = Work::new(Limits { budget: 100.0, ..Limits::default() });
        for trial in 0..10 {
            work.with(Mode::List).take(&unit(&format!("cheap-{trial}")));
            work.with(Mode::List).take(&unit(&format!("dear-{trial}")));
        }
        assert_eq!(work.outlook().1, 20);
        for (key, seconds) in [("cheap-0", 5.0), ("dear-0", 500.0)] {
            work.measured(&unit(key), Slice { seconds, is_whole: true, ..Slice::default() });
        }
        assert_eq!((work.is_dear(&unit("cheap-7")), work.is_dear(&unit("dear-7"))), (false, true));
        assert_eq!(work.outlook(), (0, 13, 10.0 * 5.0 + 3.0 * 100.0));
        work.with(Mode::Share).ran(&unit("dear-0"), 101.0);
        assert_eq!(work.outlook().1, 13);
    }

    #[test]
    fn durations_are_short() {
        assert_eq!([10.0, 600.0, 7200.0, 1e6].map(duration), ["10 s", "10 min", "2.0 h", "11.6 days"]);
    }
}
