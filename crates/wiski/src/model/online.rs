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
use super::corrections::{Change, Corrections};
use super::guard::REACH;
use super::learner::{Learner, RowTargets};
use super::memory::Memory;
use super::reader::{Published, Reader};
use super::remarks::{Remark, coarse_axes};
use super::schedule::{Fading, brief, coarse, frugal, thorough};
use super::settings::{Settings, Upkeep};
use super::start;
use super::stuck::Runs;
use super::upkeep::{Prepared, Successor};
use crate::error::{Error, Result, finite, length, positive};
use crate::learn::LbfgsB;
use crate::posterior::Prediction;

/// From so many rows in memory on, a search for a grid tells what refits would.
const FEWEST_SEARCHED: usize = 400;

/// A refit of a model with a smaller rank takes no longer than a few rows, and is not worth a thread.
const SMALL_RANK: usize = 100;

/// What the targets of rows mean.
pub(crate) trait Task: Clone + Serialize + DeserializeOwned + Send + 'static {
    /// An immutable model for other threads.
    type Snapshot;

    /// Whether targets are numbers, which seldom stay the same.
    const IS_NUMBER: bool;

    /// What a row says to each process.
    fn row(&mut self, y: f64, noise: f64) -> RowTargets<'_>;

    /// Rejects a relative noise that is nothing beside the targets.
    fn check_noise(&self, _noise: f64, _settings: &Settings) -> Result<()> {
        Ok(())
    }

    /// The variance of the targets, in the units of the processes.
    fn target_variance(&self) -> f64 {
        1.0
    }

    /// Takes note of a row that was learned: whether its target was out of reach, and by how much its noise was multiplied;
    /// nothing in the warm-up.
    fn observed(&mut self, x: &[f64], y: f64, out: Option<(bool, f64)>);

    /// Rows whose noise was multiplied, with what it was multiplied by, and that are to be learned anew as they are.
    fn reinstated(&mut self) -> Vec<(Vec<f64>, f64, f64)> {
        Vec::new()
    }

    /// By how much the noise of a row was multiplied when it was learned.
    fn discount(&self, _x: &[f64], _y: f64) -> f64 {
        1.0
    }

    /// The number of rows that count less than others since they were too far off.
    fn outliers(&self) -> u64 {
        0
    }

    /// Takes note of a row that was un-learned.
    fn forgotten(&mut self, x: &[f64], y: f64);

    /// Whether the rows in memory can end the warm-up; an error if no further row could mend what is wrong with them.
    fn is_ready(&self, memory: &Memory) -> Result<bool>;

    /// What the rows in memory lead to.
    fn start(&mut self, memory: &Memory, settings: &Settings, input_dim: usize) -> Result<Learner>;

    /// Brings the scale of the targets up to date, before a refit. Returns by how much their unit has grown.
    fn rescale(&mut self, learner: &mut Learner, settings: &Settings) -> Result<f64>;

    /// Takes over what was found out beside the stream.
    fn adopt(&mut self, found: &Self);

    /// The model as it is now.
    fn snapshot(
        &self,
        learner: &Learner,
        corrections: Option<Corrections>,
        settings: &Settings,
    ) -> Result<Self::Snapshot>;

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
    /// How long values have been the same.
    #[serde(default)]
    runs: Runs,
    /// What the last rows say beyond the model, where that is wanted.
    #[serde(default)]
    pub(super) corrections: Option<Box<Corrections>>,
    /// What the processes predicted for the last row before they learned it; nothing in the warm-up.
    #[serde(skip)]
    said: Vec<Prediction>,
    #[serde(skip)]
    failure: Option<Error>,
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
            searched_at: self.searched_at,
            is_brief: self.is_brief,
            missed: self.missed,
            rising: self.rising.clone(),
            ignored: self.ignored,
            runs: self.runs.clone(),
            corrections: self.corrections.clone(),
            said: self.said.clone(),
            failure: self.failure.clone(),
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
            searched_at: 0,
            is_brief: false,
            missed: 0,
            rising: Vec::new(),
            ignored: 0,
            runs: Runs::default(),
            corrections: None,
            said,
            failure: None,
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
        let Some(learner) = &self.learner else { return Ok(()) };
        length("columns", self.input_dim, learner.encoder().input_dim())?;
        let Some(corrections) = &self.corrections else { return Ok(()) };
        corrections.check_fits(learner.encoder().map().output_dim(), learner.processes().len())
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
        let is_due = !self.has_points() && after >= 2 * self.searched_at.max(1);
        let is_missed = self.missed + rows > 20 + self.searched_at / 4;
        let is_full = after >= self.settings.memory_rows(self.input_dim);
        self.is_searching() && (is_due || is_missed || is_full)
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
    fn note(&mut self, done: Result<()>) {
        let failure = done.err().filter(|error| *error != Error::Interrupted);
        self.failure = failure.or(self.failure.take());
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
        let row = self.task.row(y, noise);
        let outcome = learner.learn(x, &row, time, &self.settings)?;
        self.said.extend_from_slice(learner.predictions());
        let discount = learner.discount();
        let is_out = row.class.is_none() && self.said[0].discount(row.each[0].value, REACH) > 1.0;
        // An outlier is no change.
        if let (Some(corrections), Outcome::Learned, 1.0) = (&mut self.corrections, outcome, discount) {
            corrections.step(learner.encoder().coordinates(), &row, &mut self.said);
        }
        let is_off = outcome == Outcome::OffGrid;
        self.ignored += u64::from(is_off);
        self.missed += usize::from(is_off);
        self.runs.observe(x, y);
        self.task.observed(x, y, Some((is_out, discount)));
        self.reinstate();
        if !self.memory.is_empty() {
            self.memory.push(x, y, noise, time);
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
            self.attend(false);
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
    fn start(&mut self, is_last: bool) -> Result<()> {
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
        let before = (self.searched_at, self.missed, self.is_brief);
        let searched = self.search_memory(is_last);
        if searched == Err(Error::Interrupted) {
            // As if it had not begun, so that it is still due.
            (self.searched_at, self.missed, self.is_brief) = before;
        }
        searched
    }

    fn search_memory(&mut self, is_last: bool) -> Result<()> {
        (self.searched_at, self.missed) = (self.memory.len(), 0);
        let prepared =
            Prepared::by_search(self.task.clone(), &self.memory, &self.settings, self.input_dim, is_last)?;
        self.task = prepared.task.clone();
        self.adopt(prepared);
        Ok(())
    }

    /// Goes on with what was prepared.
    fn adopt(&mut self, prepared: Prepared<T>) {
        if let Some(search) = prepared.search {
            let refits = self.learner.as_ref().map_or(0, |before| before.refits() + 1);
            self.learner = Some(Box::new(prepared.learner.after_refits(refits)));
            (self.corrections, self.rising, self.is_brief) =
                (prepared.corrections, search.rising, search.is_brief);
        } else {
            self.learner = Some(prepared.learner);
            self.corrections.iter_mut().for_each(|corrections| corrections.rescale(prepared.growth));
        }
        self.publish_to_readers();
    }

    /// Corrects what the processes say about the next row by what the last rows said beyond the model.
    pub(crate) fn correct(&self, x: &[f64], said: &mut [Prediction]) -> Result<()> {
        let (Some(corrections), Some(learner)) = (&self.corrections, &self.learner) else { return Ok(()) };
        if corrections.rests() {
            return Ok(());
        }
        learner.encoder().with_coordinates(x, |h| corrections.correct(h, said))
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

    /// The optimizer of a refit, if one is due.
    fn due_refit(&self) -> Option<LbfgsB> {
        let learner = self.learner.as_ref()?;
        // Rows in memory are searched anew when they have doubled; what they say in between is not worth a refit.
        let is_searched = self.is_searching() && self.memory.len() >= FEWEST_SEARCHED;
        if is_searched && self.settings.searches_grid(self.input_dim)
            || !learner.is_refit_due(self.settings.schedule)
        {
            return None;
        }
        Some(match learner.first().follows_in_steps() {
            true => coarse(),
            false if self.settings.is_additive() => frugal(learner.count()),
            false => brief(),
        })
    }

    /// Whether a search that is due is the last one; `None` if none is.
    fn due_search(&self) -> Option<bool> {
        let (rows, memory) = (self.memory.len(), self.settings.memory_rows(self.input_dim));
        // The work of all searches is then at most twice that of the last; more only where the rows leave the grid.
        let is_due = !self.has_points() && rows >= 2 * self.searched_at.max(1)
            || self.missed > 20 + self.searched_at / 4;
        (rows > 0 && (is_due || rows >= memory)).then_some(rows >= memory)
    }

    /// What a row brings about beside being learned: a refit, or features learned anew.
    fn maintain(&mut self) {
        if self.works_beside() {
            return self.maintain_beside();
        }
        if let Some(optimizer) = self.due_refit() {
            let refitted = self.refit_with(&optimizer);
            self.note(refitted);
        }
        if let Some(is_last) = self.due_search() {
            // Should the search fail, features stay as they are.
            let searched = self.search(is_last);
            if is_last && searched != Err(Error::Interrupted) {
                self.settle();
            }
            self.note(searched);
        }
    }

    fn works_beside(&self) -> bool {
        cfg!(feature = "threads") && self.settings.upkeep == Upkeep::Background
    }

    /// As [`Online::maintain`], on another thread but for what takes no longer than a few rows.
    fn maintain_beside(&mut self) {
        self.attend(false);
        if self.successor.is_some() {
            return;
        }
        if let Some(is_last) = self.due_search() {
            self.begin_search(is_last);
        } else if let (Some(optimizer), Some(learner)) = (self.due_refit(), &self.learner) {
            if learner.first().rank() < SMALL_RANK && !learner.first().follows_in_steps() {
                let refitted = self.refit_with(&optimizer);
                self.note(refitted);
            } else {
                let (task, settings) = (self.task.clone(), self.settings.clone());
                self.successor = Some(Successor::by_refit(task, learner.clone(), settings, optimizer));
            }
        }
    }

    /// Begins a search on the rows in memory beside the stream.
    fn begin_search(&mut self, is_last: bool) {
        let (task, memory, settings) = (self.task.clone(), self.memory.clone(), self.settings.clone());
        self.successor = Some(Successor::by_search(task, memory, settings, self.input_dim, is_last));
    }

    /// Lets what is prepared beside the stream catch up, with `all` rows or a few, and take over when it has.
    fn attend(&mut self, all: bool) {
        let Some(successor) = &mut self.successor else { return };
        match successor.attend(&self.settings, all) {
            Ok(None) => {}
            Ok(Some(prepared)) => {
                self.successor = None;
                self.take_over(prepared);
            }
            Err(error) => {
                self.successor = None;
                // Tried again when it is due the next time, not with every row.
                self.learner.iter_mut().for_each(|learner| learner.postpone_refit());
                self.searched_at = self.memory.len();
                if self.learner.is_some() && self.memory.len() >= self.settings.memory_rows(self.input_dim) {
                    self.settle();
                }
                self.note(Err(error));
            }
        }
    }

    fn take_over(&mut self, prepared: Prepared<T>) {
        self.task.adopt(&prepared.task);
        let search = prepared.search.as_ref().map(|search| (search.rows, search.is_last));
        self.adopt(prepared);
        let Some((rows, is_last)) = search else { return };
        (self.searched_at, self.missed) = (rows, 0);
        if !self.settings.learns_anew(self.input_dim) {
            self.memory = Memory::default();
        } else if is_last {
            self.settle();
        }
        // However many rows have come meanwhile, the last search is still to come, and has them all.
    }

    /// Waits for what is prepared beside the stream, and goes on with it.
    pub(crate) fn finish_upkeep(&mut self) {
        self.attend(true);
    }

    /// Learns features anew from the rows in memory, if there are more than at the last search: where a stream ends
    /// before its memory is full.
    pub(crate) fn finish_search(&mut self) -> Result<()> {
        self.finish_upkeep();
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
        let rescaled = self.task.rescale(learner, &self.settings);
        if let (Some(corrections), Ok(growth)) = (&mut self.corrections, &rescaled) {
            corrections.rescale(*growth);
        }
        let refitted = rescaled.and_then(|_| learner.refit(optimizer));
        if refitted.is_err() {
            // Tried again when it is due the next time, not with every row.
            learner.postpone_refit();
        }
        self.publish_to_readers();
        refitted
    }

    /// Fits the hyperparameters to everything learned so far, whatever the schedule.
    pub(crate) fn refit(&mut self) -> Result<()> {
        self.finish_upkeep();
        self.refit_with(&thorough())
    }

    /// Ends learning of features: from here on a row has the same coordinates for ever.
    pub(crate) fn freeze_features(&mut self) -> Result<()> {
        self.finish_upkeep();
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
        let mut shard = Self::from_parts(settings, self.input_dim, task, Memory::default(), Some(learner));
        shard.corrections = self.corrections.as_ref().map(|corrections| Box::new(corrections.cleared()));
        Ok(shard)
    }

    /// Un-learns a row.
    pub(crate) fn forget(&mut self, x: &[f64], y: f64, noise: f64) -> Result<()> {
        check_row(x, self.input_dim)?;
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        self.require_settled("forget")?;
        let learner = self.learner.as_deref_mut().ok_or(Error::NotReady { operation: "forget" })?;
        // It would still have the row.
        self.successor = None;
        let discounted = noise * self.task.discount(x, y);
        learner.forget(x, &self.task.row(y, discounted))?;
        self.memory.remove(x, y, noise);
        self.task.forgotten(x, y);
        Ok(())
    }

    /// Every row so far counts `factor` times as much.
    pub(crate) fn decay(&mut self, factor: f64) -> Result<()> {
        self.successor = None;
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
        self.successor = None;
        (self.task, self.learner) = (task, Some(Box::new(learner)));
        self.extend_corrections();
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
        let rows = x.chunks_exact(self.input_dim).zip(y);
        rows.for_each(|(x, &y)| new.task.observed(x, y, None));
        Ok(new)
    }

    /// An immutable model for predictions from any thread; `None` during the warm-up.
    pub(crate) fn snapshot(&self) -> Option<Arc<T::Snapshot>> {
        let learner = self.learner.as_deref()?;
        let corrections = self.corrections.as_deref().filter(|corrections| !corrections.rests()).cloned();
        self.task.snapshot(learner, corrections, &self.settings).ok().map(Arc::new)
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

        const IS_NUMBER: bool = true;

        fn row(&mut self, y: f64, noise: f64) -> RowTargets<'_> {
            self.0.row(y, noise)
        }

        fn observed(&mut self, x: &[f64], y: f64, out: Option<(bool, f64)>) {
            self.0.observed(x, y, out);
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
            settings: &Settings,
        ) -> Result<Self::Snapshot> {
            self.0.snapshot(learner, corrections, settings)
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
