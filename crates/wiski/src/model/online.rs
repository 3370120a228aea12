//! A model of raw rows along its stream: warm-up, searches for features on the rows in memory, then constant memory.
//!
//! | phase | rows in memory | a row |
//! | --- | --- | --- |
//! | warm-up | all | is kept |
//! | young | all so far | is learned and kept: features may be learned anew from all rows |
//! | settled | none, or a sample of all for a sum of grids | is learned in constant time |
//!
//! What targets mean, numbers or classes, is told by a [`Task`]; everything else is the same for both.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::Outcome;
use super::corrections::{Change, Corrections};
use super::guard::REACH;
use super::learner::Learner;
use super::memory::Memory;
use super::missing::{Donors, is_incomplete};
use super::reader::{Published, Reader};
use super::remarks::{Remark, coarse_axes};
use super::sample::Sample;
use super::schedule::Fading;
use super::settings::{Missing, Settings};
use super::spread::Spread;
use super::start;
use super::stuck::Runs;
use super::successor::{CAUGHT_UP, Successor};
use super::task::Task;
use crate::error::{Error, Result, finite, length, positive};
use crate::posterior::Prediction;

/// A stream of rows and what was learned from it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "T: Task")]
pub(crate) struct Online<T: Task> {
    pub(crate) settings: Settings,
    pub(crate) input_dim: usize,
    pub(crate) task: T,
    pub(crate) memory: Memory,
    pub(crate) learner: Option<Box<Learner>>,
    /// A sample of all rows, once memory was let go of and if features may be learned anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sample: Option<Box<Sample>>,
    /// Rows that the model no longer has, since features were learned anew from a sample without them.
    #[serde(default)]
    pub(super) lost: u64,
    /// The number of rows in memory when features were last learned from them.
    #[serde(default)]
    pub(super) searched_at: usize,
    /// Whether that search left out what takes long.
    #[serde(default)]
    pub(super) is_brief: bool,
    /// Rows off the grid since then.
    #[serde(default)]
    pub(super) missed: usize,
    /// Columns that rose from row to row in memory, as a clock does.
    #[serde(default)]
    pub(super) rising: Vec<usize>,
    /// Rows off the grid of which nothing was learned.
    #[serde(default)]
    ignored: u64,
    /// How long values have been the same.
    #[serde(default)]
    runs: Runs,
    /// What the last rows say beyond the model, where that is wanted.
    #[serde(default)]
    pub(super) corrections: Option<Box<Corrections>>,
    /// How the noise of numbers varies with the inputs, unless it is known or constant.
    #[serde(default)]
    pub(super) spread: Option<Box<Spread>>,
    /// How many rows are known to come before anything is asked.
    #[serde(skip)]
    pub(super) expected: usize,
    /// What the processes predicted for the last row before they learned it; nothing in the warm-up.
    #[serde(skip)]
    pub(super) said: Vec<Prediction>,
    #[serde(skip)]
    failure: Option<Error>,
    /// Complete rows, where others may be incomplete.
    #[serde(default)]
    pub(super) donors: Donors,
    /// What is prepared beside the stream.
    #[serde(skip)]
    pub(super) successor: Option<Successor<T>>,
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
            sample: self.sample.clone(),
            lost: self.lost,
            searched_at: self.searched_at,
            is_brief: self.is_brief,
            missed: self.missed,
            rising: self.rising.clone(),
            ignored: self.ignored,
            runs: self.runs.clone(),
            corrections: self.corrections.clone(),
            spread: self.spread.clone(),
            expected: self.expected,
            said: self.said.clone(),
            failure: self.failure.clone(),
            donors: self.donors.clone(),
            successor: None,
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
            sample: None,
            lost: 0,
            searched_at: 0,
            is_brief: false,
            missed: 0,
            rising: Vec::new(),
            ignored: 0,
            runs: Runs::default(),
            corrections: None,
            spread: None,
            expected: 0,
            said,
            failure: None,
            donors: Donors::default(),
            successor: None,
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
        self.runs.check(self.input_dim)?;
        self.sample.iter().try_for_each(|sample| sample.check(self.input_dim))?;
        self.donors.check(self.input_dim)?;
        let Some(learner) = &self.learner else { return Ok(()) };
        length("columns", self.input_dim, learner.encoder().input_dim())?;
        let (dim, processes) = (learner.encoder().map().output_dim(), learner.processes().len());
        self.corrections.iter().try_for_each(|corrections| corrections.check_fits(dim, processes))?;
        self.spread.iter().try_for_each(|spread| spread.check_fits(dim))
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

    /// Whether so many more rows may end the warm-up or bring about a search, which takes longer than a row.
    pub(crate) fn may_search(&self, rows: usize) -> bool {
        let after = self.memory.len() + rows;
        if self.learner.is_none() {
            return after >= self.settings.warm_up_rows(self.input_dim);
        }
        let is_due = !self.has_points() && after >= 2 * self.searched_at.max(1) && after > self.expected;
        let is_missed = self.missed + rows > 20 + self.searched_at / 4;
        let is_full = after >= self.settings.memory_rows(self.input_dim);
        self.is_searching() && (is_due || is_missed || is_full) || self.may_renew(rows)
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
        let columns =
            learner.encoder().ignored_columns().iter().filter(|column| !self.rising.contains(column)).count();
        if columns > 0 {
            remarks.push(Remark::Unread { columns, of: self.input_dim });
        }
        remarks.extend(coarse_axes(learner.first(), &self.settings, self.input_dim));
        if self.lost > 0 {
            remarks.push(Remark::Sampled { others: self.lost });
        }
        if self.ignored > 0 {
            remarks.push(Remark::OffGrid { rows: self.ignored });
        }
        if self.donors.lent > 0 {
            remarks.push(Remark::Incomplete { rows: self.donors.lent });
        }
        if self.task.outliers() > 0 {
            remarks.push(Remark::Outliers { rows: self.task.outliers() });
        }
        remarks.extend(self.runs.stuck().filter(|&(column, _)| column < self.input_dim || T::IS_NUMBER).map(
            |(column, rows)| Remark::Stuck { column: (column < self.input_dim).then_some(column), rows },
        ));
        let changed = self.corrections.iter().filter(|corrections| !corrections.rests());
        remarks.extend(changed.map(|corrections| Remark::Changed(corrections.change())));
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

    /// Takes note of what failed beside a row. An interrupt is known to whoever set it.
    pub(super) fn note(&mut self, done: Result<()>) {
        let failure = done.err().filter(|error| *error != Error::Interrupted);
        self.failure = failure.or(self.failure.take());
    }

    /// What the processes predicted for the last row before they learned it; nothing in the warm-up.
    pub(crate) fn said(&self) -> &[Prediction] {
        &self.said
    }

    /// Learns a row, wholly or not at all. What was predicted for it before is in [`Online::said`].
    pub(crate) fn learn(&mut self, x: &[f64], y: f64, noise: f64, time: Option<f64>) -> Result<Outcome> {
        if self.settings.missing == Missing::Reject {
            return self.learn_complete(x, y, noise, time);
        }
        if is_incomplete(x) {
            return self.leave_out_incomplete(x, y);
        }
        let outcome = self.learn_complete(x, y, noise, time)?;
        self.donors.observe(x);
        Ok(outcome)
    }

    /// What all processes say about a complete row that comes next.
    pub(crate) fn predict_all(&self, x: &[f64]) -> Result<Vec<Prediction>> {
        let mut said = self.ready("prediction")?.predict(x)?;
        self.correct(x, &mut said)?;
        if T::IS_NUMBER {
            self.spread(x, &mut said[0])?;
        }
        Ok(said)
    }

    /// What is said about the number of a complete row, in the units of the process: of the one that comes next, or ahead.
    pub(crate) fn predict_number(&self, x: &[f64], is_next: bool) -> Result<Prediction> {
        let mut p = self.ready("prediction")?.predict_first(x)?;
        if is_next {
            self.correct(x, std::slice::from_mut(&mut p))?;
        }
        self.spread(x, &mut p)?;
        Ok(p)
    }

    /// Learns a row that is complete.
    fn learn_complete(&mut self, x: &[f64], y: f64, noise: f64, time: Option<f64>) -> Result<Outcome> {
        self.said.clear();
        check_row(x, self.input_dim)?;
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        self.task.check_noise(noise, &self.settings)?;
        if let Some(time) = time {
            finite("time", time, 0)?;
        }
        let Some(learner) = &mut self.learner else { return self.keep(x, y, noise, time) };
        let row = self.task.row(y, noise);
        let outcome = learner.learn(x, &row, time, &self.settings)?;
        self.said.extend_from_slice(learner.predictions());
        let discount = learner.discount();
        let is_out = row.class.is_none() && self.said[0].discount(row.each[0].value, REACH) > 1.0;
        // An outlier is no change.
        if outcome == Outcome::Learned && discount == 1.0 {
            let h = learner.encoder().coordinates();
            self.corrections.iter_mut().for_each(|own| own.step(h, &row, &mut self.said));
            self.spread.iter_mut().for_each(|own| own.step(h, row.each[0].value, &mut self.said[0]));
        }
        let is_off = outcome == Outcome::OffGrid;
        self.ignored += u64::from(is_off);
        self.missed += usize::from(is_off);
        self.runs.observe(x, y);
        self.task.observed(x, y, Some((is_out, discount)));
        self.reinstate();
        if !self.memory.is_empty() {
            self.memory.push(x, y, noise, time);
        } else if outcome == Outcome::Learned && discount == 1.0 {
            self.sample.iter_mut().for_each(|sample| sample.observe(x, y, noise));
        }
        self.successor.iter_mut().for_each(|successor| successor.push(x, y, noise, time));
        self.maintain();
        Ok(outcome)
    }

    /// Learns in full what turned out to be no outliers. Features that still change do not let rows be un-learned.
    fn reinstate(&mut self) {
        let rows = self.task.reinstated();
        let Some(learner) = self.learner.as_deref_mut().filter(|l| l.encoder().is_fixed()) else { return };
        for (x, y, factor) in rows {
            let forgotten = learner.forget(&x, &self.task.row(y, factor));
            // The reach is none by now.
            let learned = forgotten.and_then(|()| learner.learn_anew(&x, &self.task.row(y, 1.0)));
            if let Err(error) = learned {
                self.failure = Some(error);
                return;
            }
            self.task.observed(&x, y, None);
            self.sample.iter_mut().for_each(|sample| sample.observe(&x, y, 1.0));
        }
    }

    /// Keeps a row for the warm-up, which may end with it.
    fn keep(&mut self, x: &[f64], y: f64, noise: f64, time: Option<f64>) -> Result<Outcome> {
        start::admit_to_warm_up(&self.settings, x, self.input_dim)?;
        Fading::since(self.memory.last_time()).after(self.settings.half_life, time)?;
        let (wanted, most) =
            (self.settings.warm_up_rows(self.input_dim), self.settings.memory_rows(self.input_dim));
        let is_begun = self.successor.is_some() || self.works_beside() && self.task.is_ready(&self.memory)?;
        if self.memory.len() >= wanted.max(most) && !is_begun {
            // The warm-up cannot end yet: the newest rows serve it as well as the oldest.
            self.memory.drop_older_half(self.input_dim);
        }
        self.memory.push(x, y, noise, time);
        self.task.observed(x, y, None);
        if let Some(successor) = &mut self.successor {
            successor.push(x, y, noise, time);
            self.attend(false, CAUGHT_UP);
            return Ok(Outcome::Learned);
        }
        let over = self.memory.len().saturating_sub(wanted);
        // One that failed is tried again with a tenth more rows.
        if self.memory.len() >= wanted && over.is_multiple_of(wanted / 10 + 1) {
            match self.task.is_ready(&self.memory) {
                Ok(true) if self.works_beside() => self.begin_search(false),
                Ok(true) => {
                    let finished = self.finish_warm_up();
                    self.failure = None;
                    self.note(finished);
                    self.failure = self.failure.take().as_ref().map(warm_up_failed);
                }
                Ok(false) => {}
                Err(error) => {
                    self.memory.pop(self.input_dim);
                    self.task.forgotten(x, y);
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
    pub(super) fn start(&mut self, is_last: bool) -> Result<()> {
        self.finish_upkeep();
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

    /// Corrects what the processes say about the next row by what the last rows said beyond the model.
    pub(crate) fn correct(&self, x: &[f64], said: &mut [Prediction]) -> Result<()> {
        let (Some(corrections), Some(learner)) = (&self.corrections, &self.learner) else { return Ok(()) };
        if corrections.rests() {
            return Ok(());
        }
        learner.encoder().with_coordinates(x, |h| corrections.correct(h, said))
    }

    /// Gives a prediction of a number at a row the noise that there is.
    pub(crate) fn spread(&self, x: &[f64], said: &mut Prediction) -> Result<()> {
        let (Some(spread), Some(learner)) = (&self.spread, &self.learner) else { return Ok(()) };
        if spread.rests() {
            return Ok(());
        }
        learner.encoder().with_coordinates(x, |h| spread.apply(h, said))
    }

    /// How far the stream has moved away from what the model learned of all rows; `None` where that is not tracked.
    pub(crate) fn change(&self) -> Option<Change> {
        self.corrections.as_ref().map(|corrections| corrections.change())
    }

    /// Lets go of what the last rows said beyond the model.
    pub(crate) fn drop_corrections(&mut self) {
        self.corrections = self.corrections.take().map(|corrections| Box::new(corrections.cleared()));
        self.publish_to_readers();
    }

    /// Makes room for classes that were added.
    pub(crate) fn extend_corrections(&mut self) {
        if let (Some(corrections), Some(learner)) = (&mut self.corrections, &self.learner) {
            corrections.extend_to(learner.processes().len());
        }
    }

    /// Ends learning of features: from here on a row has the same coordinates for ever.
    pub(crate) fn freeze_features(&mut self) -> Result<()> {
        self.finish_upkeep();
        let learner =
            self.learner.as_deref_mut().ok_or(Error::NotReady { operation: "freezing features" })?;
        learner.freeze()?;
        (self.memory, self.sample) = (Memory::default(), None);
        Ok(())
    }

    /// The same scales, features and hyperparameters, and nothing learned.
    pub(crate) fn shard(&self) -> Result<Self> {
        self.require_settled("shard")?;
        if self.sample.is_some() {
            let reason = "the features may still be learned anew where the stream moves; freeze them first, then it is exact";
            return Err(Error::Unsupported { operation: "shard", reason });
        }
        let learner = Box::new(self.ready("shard")?.cleared()?);
        let (settings, task) = (self.settings.clone(), self.task.cleared());
        let mut shard = Self::from_parts(settings, self.input_dim, task, Memory::default(), Some(learner));
        shard.corrections = self.corrections.as_ref().map(|corrections| Box::new(corrections.cleared()));
        shard.donors = self.donors.clone();
        shard.spread = self.spread.as_ref().map(|spread| Box::new(spread.cleared()));
        Ok(shard)
    }

    /// Un-learns a row. From then on features stay as they are.
    pub(crate) fn forget(&mut self, x: &[f64], y: f64, noise: f64) -> Result<()> {
        check_row(x, self.input_dim)?;
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        self.require_settled("forget")?;
        if self.lost > 0 {
            let reason = "features were learned anew from a sample of the rows, and this one may not have been among them; \
                          features that are frozen before keep every row";
            return Err(Error::Unsupported { operation: "forget", reason });
        }
        let learner = self.learner.as_deref_mut().ok_or(Error::NotReady { operation: "forget" })?;
        // It would still have the row.
        self.successor = None;
        let discounted = noise * self.task.discount(x, y);
        learner.forget(x, &self.task.row(y, discounted))?;
        self.memory.remove(x, y, noise);
        self.sample = None;
        self.task.forgotten(x, y);
        Ok(())
    }

    /// Every row so far counts `factor` times as much.
    pub(crate) fn decay(&mut self, factor: f64) -> Result<()> {
        self.successor = None;
        self.settled("decay")?.decay(factor)?;
        // The rows in memory do not know what they count now.
        (self.memory, self.sample) = (Memory::default(), None);
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
        self.successor = None;
        (self.task, self.learner) = (task, Some(Box::new(learner)));
        self.extend_corrections();
        if let (Some(own), Some(theirs)) = (&mut self.spread, &other.spread) {
            own.merge(theirs);
        }
        // The rows in memory are not all of them any more.
        (self.memory, self.sample) = (Memory::default(), None);
        self.lost = self.lost.max(other.lost);
        Ok(())
    }

    /// The model as it would be after hypothetical rows, at the same scales, features and hyperparameters.
    pub(crate) fn conditioned(&self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<Self> {
        length("x", y.len() * self.input_dim, x.len())?;
        noise.map_or(Ok(()), |noise| length("noise", y.len(), noise.len()))?;
        let h = self.ready("conditioning")?.encoder().encode_all(x)?;
        let mut new = self.clone();
        // Features that were learned anew from rows in memory would not know these.
        (new.memory, new.sample) = (Memory::default(), None);
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
        let rows = x.chunks_exact(self.input_dim).zip(y);
        rows.for_each(|(x, &y)| new.task.observed(x, y, None));
        Ok(new)
    }

    /// An immutable model for predictions from any thread; `None` during the warm-up.
    pub(crate) fn snapshot(&self) -> Option<Arc<T::Snapshot>> {
        let learner = self.learner.as_deref()?;
        let corrections = self.corrections.as_deref().filter(|corrections| !corrections.rests()).cloned();
        let spread = self.spread.as_deref().filter(|spread| !spread.rests()).cloned();
        let donors = (self.settings.missing == Missing::Marginalize).then(|| self.donors.clone());
        self.task.snapshot(learner, corrections, spread, donors, &self.settings).ok().map(Arc::new)
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
    use super::super::learner::RowTargets;
    use super::super::regression::Regression;
    use super::super::targets::{TargetMoments, TargetScale};
    use super::*;

    /// Numbers whose refits fail.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    struct Failing(Regression);

    impl Task for Failing {
        type Snapshot = <Regression as Task>::Snapshot;

        const IS_NUMBER: bool = true;

        fn row(&mut self, y: f64, noise: f64) -> RowTargets<'_> {
            self.0.row(y, noise)
        }

        fn observed(&mut self, x: &[f64], y: f64, out: Option<(bool, f64)>) {
            self.0.observed(x, y, out);
        }

        fn log_density(&self, said: &[Prediction], y: f64, farthest: f64) -> f64 {
            self.0.log_density(said, y, farthest)
        }

        fn forgotten(&mut self, x: &[f64], y: f64) {
            self.0.forgotten(x, y);
        }

        fn is_ready(&self, memory: &Memory) -> Result<bool> {
            self.0.is_ready(memory)
        }

        fn start(&mut self, memory: &Memory, settings: &Settings, input_dim: usize) -> Result<Learner> {
            self.0.start(memory, settings, input_dim)
        }

        fn rescale(&mut self, _: &mut Learner, _: &Settings) -> Result<f64> {
            Err(Error::Unsupported { operation: "refit", reason: "it is made to fail" })
        }

        fn adopt(&mut self, found: &Self) {
            self.0.adopt(&found.0);
        }

        fn snapshot(
            &self,
            learner: &Learner,
            corrections: Option<Corrections>,
            spread: Option<Spread>,
            donors: Option<Donors>,
            settings: &Settings,
        ) -> Result<Self::Snapshot> {
            self.0.snapshot(learner, corrections, spread, donors, settings)
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
