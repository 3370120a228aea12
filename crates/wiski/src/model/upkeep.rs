//! What rows bring about beside being learned: refits, and features learned anew from the rows in memory.
//!
//! | work | due |
//! | --- | --- |
//! | a refit | by the schedule, with a tenth more rows |
//! | a search | when rows in memory have doubled, when too many leave the grid, and when memory is full |
//! | a renewal: a search on a sample of all rows | when rows have doubled since, and are not distributed as those before |
//!
//! While rows are known to come ([`Online::expect`]), nobody looks at what is said in between: both wait for the last of
//! them, or until memory is full.
//!
//! Both are done at once, and the row waits; or beside the stream by a `successor`.

use super::encoder::Encoder;
use super::memory::Memory;
use super::online::Online;
use super::sample::Sample;
use super::schedule::{brief, coarse, frugal, thorough};
use super::settings::{Upkeep, UpkeepStage};
use super::successor::{CAUGHT_UP, Prepared, Successor};
use super::task::Task;
use crate::error::{Error, Result};
use crate::learn::LbfgsB;

/// From so many rows in memory on, a search for a grid tells what refits would.
const FEWEST_SEARCHED: usize = 400;

/// A refit of a model with a smaller rank takes no longer than a few rows, and is not worth a thread.
const SMALL_RANK: usize = 100;

impl<T: Task> Online<T> {
    /// Lets go of the rows in memory. Along a clock the newer half stays: there the grid will have to move on, and what
    /// it has left behind is forgotten then. Of a sum of grids a sample of all rows is kept, unless a clock is among the columns:
    /// where rows come in time, a row left out among its neighbors says little about rows to come.
    pub(super) fn settle(&mut self) {
        if self.settings.is_additive() && self.rising.is_empty() && !self.memory.is_empty() {
            let (memory_rows, seed) = (self.settings.memory_rows(self.input_dim), self.settings.seed);
            let sample = Sample::of_first(&self.memory, self.searched_at, memory_rows, self.input_dim, seed);
            self.sample = sample.map(Box::new);
        }
        if self.rising.is_empty() || !self.settings.searches_grid(self.input_dim) {
            self.memory = Memory::default();
        } else {
            self.memory.drop_older_half(self.input_dim);
            self.searched_at = self.memory.len();
        }
    }

    /// Learns scales, features and hyperparameters from the rows in memory; whether the stream ends here, or memory does.
    pub(super) fn search(&mut self, is_last: bool) -> Result<()> {
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
        let (task, before) = (self.task.clone(), self.weighting_encoder());
        let prepared =
            Prepared::by_search(task, &self.memory, &self.settings, self.input_dim, is_last, before)?;
        self.task = prepared.task.clone();
        self.adopt(prepared);
        Ok(())
    }

    /// Goes on with what was prepared.
    fn adopt(&mut self, prepared: Prepared<T>) {
        if let Some(search) = prepared.search {
            let refits = self.learner.as_ref().map_or(0, |before| before.refits() + 1);
            self.learner = Some(Box::new(prepared.learner.after_refits(refits)));
            (self.corrections, self.spread) = (prepared.corrections, prepared.spread);
            self.task.observe_left_out(prepared.left_out, prepared.is_moving);
            (self.rising, self.is_brief) = (search.rising, search.is_brief);
            if let (Some(sample), Some((seen, rows))) = (&mut self.sample, search.sampled_from) {
                sample.learned(seen);
                self.lost = seen.saturating_sub(rows as u64);
            }
        } else {
            self.learner = Some(prepared.learner);
            self.corrections.iter_mut().for_each(|corrections| corrections.rescale(prepared.growth));
        }
        self.publish_to_readers();
    }

    /// Tells that so many rows are there already, and that nothing is asked before all of them are learned.
    pub(crate) fn expect(&mut self, rows: usize) {
        self.expected = rows;
    }

    /// The optimizer of a refit, if one is due.
    fn due_refit(&self) -> Option<LbfgsB> {
        let learner = self.learner.as_ref()?;
        // Rows in memory are searched anew when they have doubled; what they say in between is not worth a refit.
        let is_searched = self.is_searching() && self.memory.len() >= FEWEST_SEARCHED;
        let is_awaited = self.is_searching() && self.memory.len() <= self.expected;
        if is_searched && self.settings.searches_grid(self.input_dim)
            || is_awaited
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
        let has_doubled = rows >= 2 * self.searched_at.max(1) && rows > self.expected;
        let is_due = !self.has_points() && has_doubled || self.missed > 20 + self.searched_at / 4;
        (rows > 0 && (is_due || rows >= memory)).then_some(rows >= memory)
    }

    /// Whether features are to be learned anew from a sample of all rows. Whether the stream has moved is looked at each time
    /// that rows have doubled, so that the work of all renewals is that of a few.
    fn is_renewal_due(&mut self) -> bool {
        let Some(sample) = &mut self.sample else { return false };
        if !sample.has_doubled() || sample.seen() <= self.expected as u64 {
            return false;
        }
        let has_moved = sample.has_moved();
        if !has_moved {
            sample.looked();
        }
        has_moved
    }

    /// Whether so many more rows may bring about a renewal.
    pub(super) fn may_renew(&self, rows: usize) -> bool {
        let after = |sample: &Sample| {
            sample.would_have_doubled(rows) && sample.seen() + rows as u64 > self.expected as u64
        };
        self.sample.as_deref().is_some_and(after)
    }

    /// Whether a stream that ends here would have its features learned anew.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_searching() || self.has_moved()
    }

    /// Whether there are more rows than when that was last looked at, and those since features were learned are distributed
    /// otherwise than those before.
    fn has_moved(&self) -> bool {
        self.sample.as_deref().is_some_and(|sample| sample.has_more() && sample.has_moved())
    }

    /// Learns features anew from a sample of all rows, and goes on with them if rows left out are likelier.
    fn renew(&mut self) -> Result<()> {
        let (Some(sample), Some(learner)) = (&mut self.sample, &self.learner) else { return Ok(()) };
        let renewed = Prepared::by_renewal(&self.task, sample, &self.settings, self.input_dim, learner);
        if !matches!(renewed, Err(Error::Interrupted)) {
            sample.looked();
        }
        let prepared = renewed?;
        self.task.adopt(&prepared.task);
        self.adopt(prepared);
        Ok(())
    }

    /// What a row brings about beside being learned: a refit, or features learned anew.
    pub(super) fn maintain(&mut self) {
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
        if self.is_renewal_due() {
            let renewed = self.renew();
            self.note(renewed);
        }
    }

    pub(super) fn works_beside(&self) -> bool {
        cfg!(feature = "threads") && self.settings.upkeep != Upkeep::Wait
    }

    /// As [`Online::maintain`], on another thread but for what takes no longer than a few rows.
    fn maintain_beside(&mut self) {
        self.attend(false, CAUGHT_UP);
        if self.successor.is_some() {
            return;
        }
        if let Some(is_last) = self.due_search() {
            self.begin_search(is_last);
        } else if self.is_renewal_due() {
            self.begin_renewal();
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
    pub(super) fn begin_search(&mut self, is_last: bool) {
        let (task, memory, settings) = (self.task.clone(), self.memory.clone(), self.settings.clone());
        let before = self.weighting_encoder().cloned();
        self.successor = Some(Successor::by_search(task, memory, settings, self.input_dim, is_last, before));
    }

    /// Begins a renewal beside the stream.
    fn begin_renewal(&mut self) {
        let (Some(sample), Some(learner)) = (&self.sample, &self.learner) else { return };
        let (task, settings) = (self.task.clone(), self.settings.clone());
        let renewal =
            Successor::by_renewal(task, (**sample).clone(), settings, self.input_dim, learner.clone());
        self.successor = Some(renewal);
    }

    /// What encodes rows, if some are noisier than others.
    fn weighting_encoder(&self) -> Option<&Encoder> {
        self.learner.as_ref().map(|learner| learner.encoder()).filter(|encoder| encoder.has_relative_noise())
    }

    /// Lets what is prepared beside the stream catch up with so many rows, and take over when it has; whether to wait
    /// until it is prepared.
    pub(super) fn attend(&mut self, wait: bool, rows: usize) {
        let Some(successor) = &mut self.successor else { return };
        match successor.attend(&self.settings, wait, rows) {
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
                self.sample.iter_mut().for_each(|sample| sample.looked());
                if self.learner.is_some() && self.memory.len() >= self.settings.memory_rows(self.input_dim) {
                    self.settle();
                }
                self.note(Err(error));
            }
        }
    }

    fn take_over(&mut self, prepared: Prepared<T>) {
        self.task.adopt(&prepared.task);
        if prepared.search.is_some() {
            self.sample.iter_mut().for_each(|sample| sample.looked());
        }
        let search = prepared.search.as_ref().filter(|search| search.sampled_from.is_none());
        let search = search.map(|search| (search.rows, search.is_last));
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

    /// How far what is prepared beside the stream is.
    pub(crate) fn upkeep_stage(&self) -> UpkeepStage {
        self.successor.as_ref().map_or(UpkeepStage::Idle, Successor::stage)
    }

    /// Waits for what is prepared beside the stream, and lets it catch up with so many rows.
    pub(crate) fn attend_upkeep(&mut self, rows: usize) {
        self.attend(true, rows);
    }

    /// Waits for what is prepared beside the stream, and goes on with it.
    pub(crate) fn finish_upkeep(&mut self) {
        self.attend(true, usize::MAX);
    }

    /// Learns features anew from the rows in memory, if there are more than at the last search: where a stream ends
    /// before its memory is full.
    pub(crate) fn finish_search(&mut self) -> Result<()> {
        self.expected = 0;
        self.finish_upkeep();
        if self.learner.is_none() {
            return self.start(true);
        }
        // Inducing points that a few rows fewer led to are good enough.
        let enough =
            if self.has_points() { self.searched_at + self.searched_at / 16 } else { self.searched_at };
        let is_worth_it = self.memory.len() > enough || self.is_brief && !self.memory.is_empty();
        if is_worth_it {
            self.search(true)
        } else if self.has_moved() {
            self.renew()
        } else {
            Ok(())
        }
    }

    pub(super) fn has_points(&self) -> bool {
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
}
