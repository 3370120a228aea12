//! A model of raw rows along its stream: warm-up, searches for features on the rows in memory, then constant memory.
//!
//! | phase | rows in memory | a row |
//! | --- | --- | --- |
//! | warm-up | all | is kept |
//! | young | all so far | is learned and kept: features may be learned anew from all rows |
//! | settled | none | is learned in constant time |
//!
//! What targets mean, numbers or classes, is told by a [`Task`]; everything else is the same for both.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::Outcome;
use super::learner::{Learner, RowTargets};
use super::memory::Memory;
use super::reader::{Published, Reader};
use super::remarks::{Remark, coarse_axes};
use super::schedule::{Fading, brief, coarse, frugal, thorough};
use super::settings::Settings;
use super::start;
use crate::error::{Error, Result, finite, length, positive};
use crate::learn::LbfgsB;
use crate::posterior::Prediction;

/// From so many rows in memory on, a search for a grid tells what refits would.
const FEWEST_SEARCHED: usize = 400;

/// What the targets of rows mean.
pub(crate) trait Task: Clone + Serialize + DeserializeOwned {
    /// An immutable model for other threads.
    type Snapshot;

    /// What a row says to each process.
    fn row(&mut self, y: f64, noise: f64) -> RowTargets<'_>;

    /// Rejects a relative noise that is nothing beside the targets.
    fn check_noise(&self, _noise: f64, _settings: &Settings) -> Result<()> {
        Ok(())
    }

    /// Takes note of a target that was learned.
    fn observed(&mut self, y: f64);

    /// Takes note of a target that was un-learned.
    fn forgotten(&mut self, y: f64);

    /// Whether the rows in memory can end the warm-up; an error if no further row could mend what is wrong with them.
    fn is_ready(&self, memory: &Memory) -> Result<bool>;

    /// What the rows in memory lead to.
    fn start(&mut self, memory: &Memory, settings: &Settings, input_dim: usize) -> Result<Learner>;

    /// Brings the scale of the targets up to date, before a refit.
    fn rescale(&mut self, learner: &mut Learner, settings: &Settings) -> Result<()>;

    /// The model as it is now.
    fn snapshot(&self, learner: &Learner, settings: &Settings) -> Result<Self::Snapshot>;

    /// The same before any row.
    fn cleared(&self) -> Self;

    /// Takes in what another model has learned.
    fn merge(
        &mut self,
        learner: &mut Learner,
        theirs: &Self,
        other: &Learner,
        settings: &Settings,
    ) -> Result<()>;
}

/// A stream of rows and what was learned from it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "T: Task")]
pub(crate) struct Online<T: Task> {
    pub(crate) settings: Settings,
    pub(crate) input_dim: usize,
    pub(crate) task: T,
    pub(crate) memory: Memory,
    pub(crate) learner: Option<Box<Learner>>,
    /// The number of rows in memory when features were last learned from them.
    #[serde(default)]
    searched_at: usize,
    /// Whether that search left out what takes long.
    #[serde(default)]
    is_brief: bool,
    /// Rows off the grid since then.
    #[serde(default)]
    missed: usize,
    /// Columns that rose from row to row in memory, as a clock does.
    #[serde(default)]
    rising: Vec<usize>,
    /// Rows off the grid of which nothing was learned.
    #[serde(default)]
    ignored: u64,
    /// What the processes predicted for the last row before they learned it; nothing in the warm-up.
    #[serde(skip)]
    said: Vec<Prediction>,
    #[serde(skip)]
    failure: Option<Error>,
    #[serde(skip)]
    published: Published<T::Snapshot>,
}

impl<T: Task> Clone for Online<T> {
    fn clone(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            input_dim: self.input_dim,
            task: self.task.clone(),
            memory: self.memory.clone(),
            learner: self.learner.clone(),
            searched_at: self.searched_at,
            is_brief: self.is_brief,
            missed: self.missed,
            rising: self.rising.clone(),
            ignored: self.ignored,
            said: self.said.clone(),
            failure: self.failure.clone(),
            published: self.published.clone(),
        }
    }
}

impl<T: Task> Online<T> {
    pub(crate) fn new(input_dim: usize, task: T, settings: Settings) -> Result<Self> {
        settings.check(input_dim)?;
        Ok(Self::from_parts(settings, input_dim, task, Memory::default(), None))
    }

    pub(crate) fn from_parts(
        settings: Settings,
        input_dim: usize,
        task: T,
        memory: Memory,
        learner: Option<Box<Learner>>,
    ) -> Self {
        let (said, published) = (Vec::new(), Published::default());
        Self {
            settings,
            input_dim,
            task,
            memory,
            learner,
            searched_at: 0,
            is_brief: false,
            missed: 0,
            rising: Vec::new(),
            ignored: 0,
            said,
            failure: None,
            published,
        }
    }

    /// A stream of which only what was learned is left, and how many rows were left out.
    pub(crate) fn of_learner(
        settings: Settings,
        input_dim: usize,
        task: T,
        learner: Box<Learner>,
        ignored: u64,
    ) -> Self {
        let online = Self::from_parts(settings, input_dim, task, Memory::default(), Some(learner));
        Self { ignored, ..online }
    }

    /// Rejects parts that do not fit together.
    pub(crate) fn restore(&mut self) -> Result<()> {
        self.settings.check(self.input_dim)?;
        length("rows in memory", self.memory.len() * self.input_dim, self.memory.rows.x.len())?;
        if let Some(learner) = &self.learner {
            length("columns", self.input_dim, learner.encoder().input_dim())?;
        }
        Ok(())
    }

    /// What exists after the warm-up.
    pub(crate) fn ready(&self, operation: &'static str) -> Result<&Learner> {
        self.learner.as_deref().ok_or(Error::NotReady { operation })
    }

    /// What exists after the warm-up, once features no longer change.
    fn settled(&mut self, operation: &'static str) -> Result<&mut Learner> {
        self.require_settled(operation)?;
        self.learner.as_deref_mut().ok_or(Error::NotReady { operation })
    }

    pub(crate) fn require_settled(&self, operation: &'static str) -> Result<()> {
        self.ready(operation)?.encoder().require_fixed(operation)?;
        if self.is_searching() && self.settings.is_additive() {
            let reason = "the features may still be learned anew; freeze them first, then it is exact";
            return Err(Error::Unsupported { operation, reason });
        }
        Ok(())
    }

    /// Whether features may still be learned anew from rows in memory.
    pub(crate) fn is_searching(&self) -> bool {
        self.learner.is_some() && !self.memory.is_empty()
    }

    /// The weight of the rows learned.
    pub(crate) fn count(&self) -> f64 {
        self.learner.as_ref().map_or(self.memory.len() as f64, |l| l.count())
    }

    /// How many rows lay off the grid, so that nothing was learned of them.
    pub(crate) fn ignored(&self) -> u64 {
        self.ignored
    }

    /// What a user should know about the model: see [`Remark`].
    pub(crate) fn remarks(&self) -> Vec<Remark> {
        let Some(learner) = &self.learner else { return Vec::new() };
        let is_followed = self.settings.searches_grid(self.input_dim);
        let clock = |&column: &usize| Remark::Clock { column, is_followed };
        let clocks = if is_followed || self.settings.is_additive() { &self.rising[..] } else { &[] };
        let mut remarks: Vec<Remark> = clocks.iter().map(clock).collect();
        remarks.extend(coarse_axes(learner.first(), &self.settings, self.input_dim));
        if self.ignored > 0 {
            remarks.push(Remark::OffGrid { rows: self.ignored });
        }
        remarks
    }

    pub(crate) fn refits(&self) -> usize {
        self.learner.as_ref().map_or(0, |l| l.refits())
    }

    /// What went wrong beside the rows since the last call: a refit, a search or the end of the warm-up. Every row that
    /// was accepted is learned in spite of it.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        let own = self.failure.take();
        own.or_else(|| self.learner.as_mut().and_then(|l| l.take_failure()))
    }

    /// What the processes predicted for the last row before they learned it; nothing in the warm-up.
    pub(crate) fn said(&self) -> &[Prediction] {
        &self.said
    }

    /// Learns a row, wholly or not at all. What was predicted for it before is in [`Online::said`].
    pub(crate) fn learn(&mut self, x: &[f64], y: f64, noise: f64, time: Option<f64>) -> Result<Outcome> {
        self.said.clear();
        check_row(x, self.input_dim)?;
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        self.task.check_noise(noise, &self.settings)?;
        if let Some(time) = time {
            finite("time", time, 0)?;
        }
        let Some(learner) = &mut self.learner else { return self.keep(x, y, noise, time) };
        let outcome = learner.learn(x, &self.task.row(y, noise), time, &self.settings)?;
        self.said.extend_from_slice(learner.predictions());
        let is_off = outcome == Outcome::OffGrid;
        self.ignored += u64::from(is_off);
        self.missed += usize::from(is_off);
        self.task.observed(y);
        if !self.memory.is_empty() {
            self.memory.push(x, y, noise, time);
        }
        self.maintain();
        Ok(outcome)
    }

    /// Keeps a row for the warm-up, which may end with it.
    fn keep(&mut self, x: &[f64], y: f64, noise: f64, time: Option<f64>) -> Result<Outcome> {
        start::admit_to_warm_up(&self.settings, x, self.input_dim)?;
        Fading::since(self.memory.last_time()).after(self.settings.half_life, time)?;
        let (wanted, most) =
            (self.settings.warm_up_rows(self.input_dim), self.settings.memory_rows(self.input_dim));
        if self.memory.len() >= wanted.max(most) {
            // The warm-up cannot end yet: the newest rows serve it as well as the oldest.
            self.memory.drop_older_half(self.input_dim);
        }
        self.memory.push(x, y, noise, time);
        self.task.observed(y);
        let over = self.memory.len().saturating_sub(wanted);
        // One that failed is tried again with a tenth more rows.
        if self.memory.len() >= wanted && over.is_multiple_of(wanted / 10 + 1) {
            match self.task.is_ready(&self.memory) {
                Ok(true) => self.failure = self.finish_warm_up().err().as_ref().map(warm_up_failed),
                Ok(false) => {}
                Err(error) => {
                    self.memory.pop(self.input_dim);
                    self.task.forgotten(y);
                    return Err(warm_up_failed(&error));
                }
            }
        }
        Ok(Outcome::Learned)
    }

    /// Ends the warm-up with the rows seen so far.
    pub(crate) fn finish_warm_up(&mut self) -> Result<()> {
        self.start(false)
    }

    /// Ends the warm-up; whether the stream ends with it.
    fn start(&mut self, is_last: bool) -> Result<()> {
        if self.learner.is_some() {
            return Ok(());
        }
        if self.memory.len() < 2 {
            let reason = "at least two rows are needed";
            return Err(Error::Unsupported { operation: "ending the warm-up", reason });
        }
        // The first rows came before the variance of the targets was known.
        self.memory.rows.noise.iter().try_for_each(|&noise| self.task.check_noise(noise, &self.settings))?;
        self.search(is_last)?;
        if !self.settings.learns_anew(self.input_dim) {
            self.memory = Memory::default();
        } else if self.memory.len() >= self.settings.memory_rows(self.input_dim) {
            self.settle();
        }
        Ok(())
    }

    /// Lets go of the rows in memory. Along a clock the newer half stays: there the grid will have to move on, and what
    /// it has left behind is forgotten then.
    fn settle(&mut self) {
        if self.rising.is_empty() || !self.settings.searches_grid(self.input_dim) {
            self.memory = Memory::default();
        } else {
            self.memory.drop_older_half(self.input_dim);
            self.searched_at = self.memory.len();
        }
    }

    /// Learns scales, features and hyperparameters from the rows in memory; whether the stream ends here, or memory does.
    fn search(&mut self, is_last: bool) -> Result<()> {
        (self.searched_at, self.missed) = (self.memory.len(), 0);
        self.rising = if self.settings.is_additive() {
            start::clocks(&self.memory, &self.settings, self.input_dim)
        } else {
            self.memory.rising_columns(self.input_dim)
        };
        let mut task = self.task.clone();
        let settings = self.settings.for_search(self.memory.len(), is_last);
        self.is_brief = settings.features != self.settings.features;
        let learner = task.start(&self.memory, &settings, self.input_dim)?;
        let refits = self.learner.as_ref().map_or(0, |before| before.refits() + 1);
        (self.task, self.learner) = (task, Some(Box::new(learner.after_refits(refits))));
        self.publish_to_readers();
        Ok(())
    }

    /// What a row brings about beside being learned: a refit, or features learned anew.
    fn maintain(&mut self) {
        let Some(learner) = &self.learner else { return };
        // Rows in memory are searched anew when they have doubled; what they say in between is not worth a refit.
        let is_searched = self.is_searching() && self.memory.len() >= FEWEST_SEARCHED;
        let is_refit = !(is_searched && self.settings.searches_grid(self.input_dim));
        if is_refit && learner.is_refit_due(self.settings.schedule) {
            let count = learner.count();
            let optimizer = match learner.first().follows_in_steps() {
                true => coarse(),
                false if self.settings.is_additive() => frugal(count),
                false => brief(),
            };
            self.failure = self.refit_with(&optimizer).err().or(self.failure.take());
        }
        let (rows, memory) = (self.memory.len(), self.settings.memory_rows(self.input_dim));
        // The work of all searches is then at most twice that of the last; more only where the rows leave the grid.
        let is_due = !self.has_points() && rows >= 2 * self.searched_at.max(1)
            || self.missed > 20 + self.searched_at / 4;
        if rows > 0 && (is_due || rows >= memory) {
            // Should the search fail, features stay as they are.
            self.failure = self.search(rows >= memory).err().or(self.failure.take());
            if rows >= memory {
                self.settle();
            }
        }
    }

    /// Learns features anew from the rows in memory, if there are more than at the last search: where a stream ends
    /// before its memory is full.
    pub(crate) fn finish_search(&mut self) -> Result<()> {
        if self.learner.is_none() {
            return self.start(true);
        }
        // Inducing points that a few rows fewer led to are good enough.
        let enough =
            if self.has_points() { self.searched_at + self.searched_at / 4 } else { self.searched_at };
        let is_worth_it = self.memory.len() > enough || self.is_brief && !self.memory.is_empty();
        if is_worth_it { self.search(true) } else { Ok(()) }
    }

    fn has_points(&self) -> bool {
        self.learner.as_ref().is_some_and(|l| l.first().stats().lattice().points().is_some())
    }

    fn refit_with(&mut self, optimizer: &LbfgsB) -> Result<()> {
        let learner = self.learner.as_deref_mut().ok_or(Error::NotReady { operation: "refit" })?;
        let refitted = self.task.rescale(learner, &self.settings).and_then(|()| learner.refit(optimizer));
        if refitted.is_err() {
            // Tried again when it is due the next time, not with every row.
            learner.postpone_refit();
        }
        self.publish_to_readers();
        refitted
    }

    /// Fits the hyperparameters to everything learned so far, whatever the schedule.
    pub(crate) fn refit(&mut self) -> Result<()> {
        self.refit_with(&thorough())
    }

    /// Ends learning of features: from here on a row has the same coordinates for ever.
    pub(crate) fn freeze_features(&mut self) -> Result<()> {
        let learner =
            self.learner.as_deref_mut().ok_or(Error::NotReady { operation: "freezing features" })?;
        learner.freeze()?;
        self.memory = Memory::default();
        Ok(())
    }

    /// The same scales, features and hyperparameters, and nothing learned.
    pub(crate) fn shard(&self) -> Result<Self> {
        self.require_settled("shard")?;
        let learner = Box::new(self.ready("shard")?.cleared()?);
        let (settings, task) = (self.settings.clone(), self.task.cleared());
        Ok(Self::from_parts(settings, self.input_dim, task, Memory::default(), Some(learner)))
    }

    /// Un-learns a row.
    pub(crate) fn forget(&mut self, x: &[f64], y: f64, noise: f64) -> Result<()> {
        check_row(x, self.input_dim)?;
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        self.require_settled("forget")?;
        let learner = self.learner.as_deref_mut().ok_or(Error::NotReady { operation: "forget" })?;
        learner.forget(x, &self.task.row(y, noise))?;
        self.memory.remove(x, y, noise);
        self.task.forgotten(y);
        Ok(())
    }

    /// Every row so far counts `factor` times as much.
    pub(crate) fn decay(&mut self, factor: f64) -> Result<()> {
        self.settled("decay")?.decay(factor)?;
        // The rows in memory do not know what they count now.
        self.memory = Memory::default();
        Ok(())
    }

    /// Learns everything another model has learned, wholly or not at all.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<()> {
        self.require_settled("merge")?;
        other.require_settled("merge")?;
        let theirs = other.ready("merge")?;
        let (mut task, mut learner) = (self.task.clone(), self.ready("merge")?.clone());
        if !learner.encoder().agrees_with(theirs.encoder()) {
            let reason = "the two models scale or project their inputs differently";
            return Err(Error::Unsupported { operation: "merge", reason });
        }
        task.merge(&mut learner, &other.task, theirs, &self.settings)?;
        (self.task, self.learner) = (task, Some(Box::new(learner)));
        // The rows in memory are not all of them any more.
        self.memory = Memory::default();
        Ok(())
    }

    /// The model as it would be after hypothetical rows, at the same scales, features and hyperparameters.
    pub(crate) fn conditioned(&self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<Self> {
        length("x", y.len() * self.input_dim, x.len())?;
        noise.map_or(Ok(()), |noise| length("noise", y.len(), noise.len()))?;
        let h = self.ready("conditioning")?.encoder().encode_all(x)?;
        let mut new = self.clone();
        // Features that were learned anew from rows in memory would not know these.
        new.memory = Memory::default();
        let Some(learner) = &mut new.learner else { return Ok(new) };
        let mut targets = vec![(Vec::new(), Vec::new()); learner.processes().len()];
        for (row, &y) in y.iter().enumerate() {
            finite("y", y, row)?;
            let said = new.task.row(y, noise.map_or(1.0, |noise| noise[row]));
            for ((values, noises), target) in targets.iter_mut().zip(said.each) {
                values.push(target.value);
                noises.push(target.noise);
            }
        }
        learner.observe_batch(&h, &targets)?;
        y.iter().for_each(|&y| new.task.observed(y));
        Ok(new)
    }

    /// An immutable model for predictions from any thread; `None` during the warm-up.
    pub(crate) fn snapshot(&self) -> Option<Arc<T::Snapshot>> {
        let learner = self.learner.as_deref()?;
        self.task.snapshot(learner, &self.settings).ok().map(Arc::new)
    }

    pub(crate) fn reader(&self) -> Reader<T::Snapshot> {
        if !self.published.has_readers() {
            // Nothing was published for nobody.
            self.publish();
        }
        self.published.reader()
    }

    /// Publishes the present state if there are readers: an image can take longer than a refit.
    pub(crate) fn publish_to_readers(&self) {
        if self.published.has_readers() {
            self.publish();
        }
    }

    /// Publishes the present state to all readers.
    pub(crate) fn publish(&self) {
        self.published.set(self.snapshot());
    }
}

/// Rejects a row of the wrong width or with a number that is not finite.
pub(crate) fn check_row(x: &[f64], input_dim: usize) -> Result<()> {
    length("x", input_dim, x.len())?;
    for (k, &value) in x.iter().enumerate() {
        if !value.is_finite() {
            finite(format!("x[{k}]"), value, 0)?;
        }
    }
    Ok(())
}

fn warm_up_failed(error: &Error) -> Error {
    Error::WarmUp { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::regressor::Regression;
    use super::super::targets::{TargetMoments, TargetScale};
    use super::*;

    /// Numbers whose refits fail.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    struct Failing(Regression);

    impl Task for Failing {
        type Snapshot = <Regression as Task>::Snapshot;

        fn row(&mut self, y: f64, noise: f64) -> RowTargets<'_> {
            self.0.row(y, noise)
        }

        fn observed(&mut self, y: f64) {
            self.0.observed(y);
        }

        fn forgotten(&mut self, y: f64) {
            self.0.forgotten(y);
        }

        fn is_ready(&self, memory: &Memory) -> Result<bool> {
            self.0.is_ready(memory)
        }

        fn start(&mut self, memory: &Memory, settings: &Settings, input_dim: usize) -> Result<Learner> {
            self.0.start(memory, settings, input_dim)
        }

        fn rescale(&mut self, _: &mut Learner, _: &Settings) -> Result<()> {
            Err(Error::Unsupported { operation: "refit", reason: "it is made to fail" })
        }

        fn snapshot(&self, learner: &Learner, settings: &Settings) -> Result<Self::Snapshot> {
            self.0.snapshot(learner, settings)
        }

        fn cleared(&self) -> Self {
            Self(self.0.cleared())
        }

        fn merge(
            &mut self,
            own: &mut Learner,
            theirs: &Self,
            other: &Learner,
            settings: &Settings,
        ) -> Result<()> {
            self.0.merge(own, &theirs.0, other, settings)
        }
    }

    #[test]
    fn what_fails_after_a_row_is_reported_apart_and_the_row_is_learned() {
        let task = Failing(Regression::new(TargetMoments::default(), TargetScale::IDENTITY));
        let settings = Settings::default().resolved(1);
        let mut online = Online::new(1, task, settings).unwrap();
        let mut failures = 0;
        for i in 0..200 {
            let x = (0.618 * f64::from(i)).fract();
            online.learn(&[x], (5.0 * x).sin(), 1.0, None).unwrap();
            assert_eq!(online.count(), f64::from(i + 1));
            assert_eq!(
                online.task.0.moments.weight,
                f64::from(i + 1),
                "the targets' moments have the row too"
            );
            failures += usize::from(online.take_failure().is_some());
        }
        // One for every tenth more rows, not one for every row; two searches with twice the rows do not fail.
        assert!((8..30).contains(&failures) && online.refits() == 2, "{failures} {}", online.refits());
    }
}
