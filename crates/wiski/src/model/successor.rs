//! What takes longer than a row: searches for features and refits, done at once or beside the stream.
//!
//! Done at once, the row that brings them about waits for them. Beside the stream a **successor** is prepared on another
//! thread, from the rows in memory or from a copy of the learner, while the learner that there is goes on answering and
//! learning. Rows that come meanwhile are kept; when the successor is ready it catches up, a few of them with every row that
//! comes, and then takes over. No row waits, but for a copy. A successor that turns out not to fit any more (a row was
//! un-learned, a class was added) is dropped, and what it was for is due again.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::thread::JoinHandle;

use super::corrections::Corrections;
use super::encoder::Encoder;
use super::learner::{Learner, RowBatch};
use super::memory::Memory;
use super::relative_noise::RelativeNoise;
use super::sample::{RECENT, Sample};
use super::schedule::frugal;
use super::settings::{Settings, Upkeep, UpkeepStage};
use super::spread::Spread;
use super::task::Task;
use super::{Outcome, start};
use crate::error::{Error, Result};
use crate::interrupt::{self, Interrupt};
use crate::learn::LbfgsB;
use crate::likelihood::Target;
use crate::posterior::Prediction;
use crate::threads;

/// What rows must gain in log density by counting as the noise lets them, in nats a row; and the number of deviations
/// beyond which a row is as bad as any.
const WORTHWHILE: f64 = 2e-3;
const CLIP: f64 = 5.0;
/// What squared errors may grow by for that.
const DEAREST: f64 = 1.02;
/// A model of a sample is compared with the one before on at most so many rows, of those that its features were not learned
/// from if there are enough.
const MOST_COMPARED: usize = 2048;
const FEWEST_COMPARED: usize = 256;
/// The rows that a successor catches up with for each row that comes.
pub(super) const CAUGHT_UP: usize = 4;
/// With more rows than this to catch up with, the stream waits for its successor.
const MOST_WAITING: usize = 1 << 16;

/// What a search found out beside the learner.
pub(super) struct Searched {
    /// The rows in memory that it had.
    pub(super) rows: usize,
    /// Columns that rose from row to row.
    pub(super) rising: Vec<usize>,
    /// Whether it left out what takes long.
    pub(super) is_brief: bool,
    /// Whether no other follows, and no row in memory is needed any more.
    pub(super) is_last: bool,
    /// The rows of the stream, and those that the model has learned, if these are a sample.
    pub(super) sampled_from: Option<(u64, usize)>,
}

/// What a search or a refit leads to.
pub(super) struct Prepared<T> {
    pub(super) task: T,
    pub(super) learner: Box<Learner>,
    pub(super) corrections: Option<Box<Corrections>>,
    pub(super) spread: Option<Box<Spread>>,
    /// How many deviations rows in memory are off if they are left out.
    pub(super) left_out: Vec<f64>,
    /// Whether rows in memory moved, so that those of the stream say nothing about rows elsewhere.
    pub(super) is_moving: bool,
    /// By how much the unit of the targets has grown.
    pub(super) growth: f64,
    /// For a search.
    pub(super) search: Option<Searched>,
}

impl<T: Task> Prepared<T> {
    /// Scales, features and hyperparameters from rows in memory; whether the stream ends here, or memory does; and what
    /// encoded rows before, if some were noisier than others.
    pub(super) fn by_search(
        mut task: T,
        memory: &Memory,
        settings: &Settings,
        input_dim: usize,
        is_last: bool,
        before: Option<&Encoder>,
    ) -> Result<Self> {
        let rising = if settings.is_additive() {
            start::clocks(memory, settings, input_dim)
        } else {
            memory.rising_columns(input_dim)
        };
        let is_moving = settings.is_additive() && memory.is_moving(&rising);
        let brief = settings.for_search(memory.len(), is_last);
        let is_brief = settings.puts_off_points(memory.len(), is_last);
        // Rows count as the noise that was found before lets them.
        let noise = before.map(|encoder| encoder.relative_noises(&memory.rows.x)).transpose()?;
        let weighted = noise.map(|noise| memory.with_noise_times(&noise));
        let rows = weighted.as_ref().unwrap_or(memory);
        let mut learner = task.start(rows, &brief, input_dim)?;
        // A candidate that was interrupted looks like one that failed, so what the others led to does not count.
        interrupt::check()?;
        let mut beside = Beside::of(&mut task, rows, &learner, settings, input_dim, is_moving)?;
        let relative = beside.relative_noise(memory, rows);
        if relative.is_some() || weighted.is_some() {
            let targets = targets(&mut task, memory, input_dim);
            let mut weigh = |mut learner: Learner, noise| -> Result<(Learner, Beside)> {
                learner.weigh(memory, &targets, noise, settings)?;
                let beside = Beside::of(&mut task, memory, &learner, settings, input_dim, is_moving)?;
                Ok((learner, beside))
            };
            if weighted.is_some() {
                (learner, beside) = weigh(learner, None)?;
            }
            if relative.is_some() {
                let other = weigh(learner.clone(), relative)?;
                if other.1.is_worth_more_than(&beside) {
                    (learner, beside) = other;
                }
            }
        }
        let known = beside.rows.iter().map(|(i, _, said, y)| {
            let x = &memory.rows.x[i * input_dim..(i + 1) * input_dim];
            (x, *said, *y)
        });
        learner.encoder_mut().calibrate(known);
        let left_out = beside.scores();
        let Beside { corrections, spread, .. } = beside;
        let search = Some(Searched { rows: memory.len(), rising, is_brief, is_last, sampled_from: None });
        let learner = Box::new(learner);
        Ok(Self { task, learner, corrections, spread, left_out, is_moving, growth: 1.0, search })
    }

    /// Scales and features from as many rows of a sample as memory holds, and a model that has learned all of the sample; or
    /// the model before, which has all rows of the stream, if rows left out are likelier with it. What is learned beside a
    /// model begins anew with either.
    pub(super) fn by_renewal(
        task: &T,
        sample: &Sample,
        settings: &Settings,
        input_dim: usize,
        before: &Learner,
    ) -> Result<Self> {
        let all = sample.in_order();
        let (searched, rest) = all.thinned(settings.memory_rows(input_dim), input_dim);
        let weighting = Some(before.encoder()).filter(|encoder| encoder.has_relative_noise());
        let mut new = Self::by_search(task.clone(), &searched, settings, input_dim, true, weighting)?;
        let (mut batch, mut x) = (RowBatch::default(), Vec::new());
        for (i, row) in rest.rows.x.chunks_exact(input_dim).enumerate() {
            if new.learner.encoder().scaling().reaches(row) {
                batch.push(&new.task.row(rest.rows.y[i], rest.rows.noise[i]));
                x.extend_from_slice(row);
            }
        }
        if !x.is_empty() {
            let h = new.learner.encoder().encode_all(&x)?;
            new.learner.learn_all(&h, &batch)?;
            new.learner.refit(&frugal(new.learner.count()))?;
            interrupt::check()?;
        }
        let compared = if rest.len() < FEWEST_COMPARED { &searched } else { &rest };
        let mut task = task.clone();
        let is_better = left_out_density(&mut new.task, &new.learner, compared, input_dim)?
            > left_out_density(&mut task, before, compared, input_dim)?;
        if is_better {
            let sampled_from = Some((sample.seen(), all.len()));
            new.search.iter_mut().for_each(|search| search.sampled_from = sampled_from);
        } else {
            let beside = Beside::of(&mut task, &searched, before, settings, input_dim, new.is_moving)?;
            let left_out = beside.scores();
            new = Self { task, learner: Box::new(before.clone()), spread: beside.spread, left_out, ..new };
        }
        // What comes next is told by the last rows of the stream, of which a part has few.
        let corrections = replayed(&mut new.task, &all, &new.learner, settings, input_dim)?;
        Ok(Self { corrections: corrections.map(Box::new), ..new })
    }

    /// Hyperparameters from everything learned.
    fn by_refit(
        mut task: T,
        mut learner: Box<Learner>,
        settings: &Settings,
        optimizer: &LbfgsB,
    ) -> Result<Self> {
        let growth = task.rescale(&mut learner, settings)?;
        learner.refit(optimizer)?;
        interrupt::check()?;
        let (corrections, spread, left_out) = (None, None, Vec::new());
        let is_moving = false;
        Ok(Self { task, learner, corrections, spread, left_out, is_moving, growth, search: None })
    }
}

/// The targets of the rows in memory, outliers with the noise that they were given.
fn targets<T: Task>(task: &mut T, memory: &Memory, input_dim: usize) -> Vec<Target> {
    let rows = memory.rows.x.chunks_exact(input_dim).zip(&memory.rows.y).zip(&memory.rows.noise);
    let target = |((x, &y), &noise): ((&[f64], &f64), &f64)| {
        let discounted = noise * task.discount(x, y);
        task.row(y, discounted).each[0]
    };
    rows.map(target).collect()
}

/// The numbers of a range in an order that has nothing to do with them.
fn shuffled(range: Range<usize>) -> Vec<usize> {
    let mut order: Vec<usize> = range.collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(0));
    order
}

/// The mean log density of rows that a model has learned, each left out.
fn left_out_density<T: Task>(
    task: &mut T,
    learner: &Learner,
    rows: &Memory,
    input_dim: usize,
) -> Result<f64> {
    let (stride, mut sum, mut count) = (rows.len().div_ceil(MOST_COMPARED).max(1), 0.0, 0.0);
    for i in (0..rows.len()).step_by(stride) {
        let (x, y) = (&rows.rows.x[i * input_dim..(i + 1) * input_dim], rows.rows.y[i]);
        let said = learner.predict_without(x, task.row(y, rows.rows.noise[i]).each)?;
        sum += task.log_density(&said, y, CLIP);
        count += 1.0;
    }
    Ok(sum / count)
}

/// What is said about a row in memory by a model that has learned it, had it not; nothing of an outlier, which is no change.
fn said_without<T: Task>(
    task: &mut T,
    learner: &Learner,
    memory: &Memory,
    i: usize,
    input_dim: usize,
) -> Option<Vec<Prediction>> {
    let (x, y) = (&memory.rows.x[i * input_dim..(i + 1) * input_dim], memory.rows.y[i]);
    let counts = task.discount(x, y) == 1.0 && learner.encoder().scaling().reaches(x);
    let row = task.row(y, memory.rows.noise[i]);
    if counts { learner.predict_without(x, row.each).ok() } else { None }
}

/// The first of the coordinates that inducing points read, or of all.
fn first_of_points(learner: &Learner) -> usize {
    let dim = learner.encoder().map().output_dim();
    learner.first().stats().lattice().points().map_or(0, |points| dim - points.dim())
}

/// The first of the last rows by which corrections begin. On a large grid a prediction takes too long.
fn first_replayed(learner: &Learner, rows: usize) -> usize {
    if learner.first().follows_in_steps() { rows } else { rows.saturating_sub(RECENT) }
}

/// Corrections over the coordinates of rows, where they are wanted.
fn blank_corrections<T: Task>(
    task: &T,
    h: &[f64],
    learner: &Learner,
    settings: &Settings,
) -> Result<Option<Corrections>> {
    let (dim, processes) = (learner.encoder().map().output_dim(), learner.processes().len());
    let new = || Corrections::new(h, dim, first_of_points(learner), processes, task.target_variance());
    settings.tracking.then(new).transpose()
}

/// Corrections to a model that has learned the rows, by the last of them.
fn replayed<T: Task>(
    task: &mut T,
    memory: &Memory,
    learner: &Learner,
    settings: &Settings,
    input_dim: usize,
) -> Result<Option<Corrections>> {
    let (rows, dim) = (&memory.rows, learner.encoder().map().output_dim());
    let h = learner.encoder().encode_all(&rows.x)?;
    let Some(mut corrections) = blank_corrections(task, &h, learner, settings)? else { return Ok(None) };
    for i in first_replayed(learner, rows.len())..rows.len() {
        if let Some(mut said) = said_without(task, learner, memory, i, input_dim) {
            let (row, h) = (task.row(rows.y[i], rows.noise[i]), &h[i * dim..(i + 1) * dim]);
            corrections.step(h, &row, &mut said);
        }
    }
    Ok(Some(corrections))
}

/// What is learned beside a model, where that is wanted.
struct Beside {
    corrections: Option<Box<Corrections>>,
    spread: Option<Box<Spread>>,
    /// Rows, by their number in memory: where they lie, what the model says about them without them, and their targets.
    rows: Vec<(usize, Vec<f64>, Prediction, f64)>,
}

impl Beside {
    /// What is learned beside the model that was found on the rows in memory, over what its inducing points read, or all
    /// coordinates. Rows in memory are gone through again, each predicted as if it had not been learned: all of them for
    /// their noise, and the last for corrections.
    fn of<T: Task>(
        task: &mut T,
        memory: &Memory,
        learner: &Learner,
        settings: &Settings,
        input_dim: usize,
        is_moving: bool,
    ) -> Result<Self> {
        let rows = &memory.rows;
        let (h, dim) = (learner.encoder().encode_all(&rows.x)?, learner.encoder().map().output_dim());
        let first = first_of_points(learner);
        let has_spread = T::IS_NUMBER && settings.noise_may_vary();
        let mut spread = has_spread.then(|| Spread::new(&h, dim, first)).transpose()?;
        let mut corrections = blank_corrections(task, &h, learner, settings)?;
        let last = first_replayed(learner, rows.len());
        let begin = if spread.is_none() || learner.first().follows_in_steps() { last } else { 0 };
        // Rows that came sorted say how noisy others are if they are gone through in another order.
        let order = if is_moving { shuffled(begin..rows.len()) } else { (begin..rows.len()).collect() };
        let mut seen = Vec::new();
        for i in order {
            let Some(mut said) = said_without(task, learner, memory, i, input_dim) else { continue };
            let (row, h) = (task.row(rows.y[i], rows.noise[i]), &h[i * dim..(i + 1) * dim]);
            if spread.is_some() && learner.encoder().is_fixed() {
                seen.push((i, h.to_vec(), said[0], row.each[0].value));
            }
            if !is_moving && i >= last {
                corrections.iter_mut().for_each(|own| own.step(h, &row, &mut said));
            }
            spread.iter_mut().for_each(|own| own.step(h, row.each[0].value, &mut said[0]));
        }
        if is_moving {
            corrections = replayed(task, memory, learner, settings, input_dim)?;
        }
        Ok(Self { corrections: corrections.map(Box::new), spread: spread.map(Box::new), rows: seen })
    }

    /// The mean log density of rows, each given all others, with the noise that was found.
    fn density(&self) -> f64 {
        let Some(spread) = &self.spread else { return f64::NEG_INFINITY };
        let density = |(_, h, said, y): &(usize, Vec<f64>, Prediction, f64)| {
            let said = said.with_noise_times(spread.factor(h, said.mean));
            let far = CLIP * said.std();
            said.log_density(y.clamp(said.mean - far, said.mean + far))
        };
        self.rows.iter().map(density).sum::<f64>() / self.rows.len() as f64
    }

    /// How many deviations rows are off, each given all others, with the noise that was found.
    fn scores(&self) -> Vec<f64> {
        let Some(spread) = &self.spread else { return Vec::new() };
        let score = |(_, h, said, y): &(usize, Vec<f64>, Prediction, f64)| {
            (y - said.mean).abs() / said.with_noise_times(spread.factor(h, said.mean)).std()
        };
        self.rows.iter().map(score).collect()
    }

    /// The mean square of what is left of targets, each given all other rows.
    fn square(&self) -> f64 {
        self.rows.iter().map(|(_, _, said, y)| (y - said.mean).powi(2)).sum::<f64>() / self.rows.len() as f64
    }

    /// Whether rows are likelier than with others, and not at the cost of the mean: weights that are wrong where a function is
    /// hard would pay for density with error.
    fn is_worth_more_than(&self, other: &Self) -> bool {
        self.density() > other.density() + WORTHWHILE && self.square() <= DEAREST * other.square()
    }

    /// How noisy rows are beside others, if they differ: `weighted` are those in memory with the noise that they were learned
    /// with.
    fn relative_noise(&self, memory: &Memory, weighted: &Memory) -> Option<RelativeNoise> {
        let spread = self.spread.as_ref().filter(|_| !self.rows.is_empty())?;
        let log = |(i, h, said, _): &(usize, Vec<f64>, Prediction, f64)| {
            let learned = weighted.rows.noise[*i] / memory.rows.noise[*i];
            (learned * spread.factor(h, said.mean)).ln()
        };
        let logs: Vec<f64> = self.rows.iter().map(log).collect();
        let h: Vec<f64> = self.rows.iter().flat_map(|row| &row.1).copied().collect();
        RelativeNoise::fitted(spread.basis(), &h, &logs)
    }
}

/// A row that a successor has still to learn.
struct Waiting {
    x: Vec<f64>,
    y: f64,
    noise: f64,
    time: Option<f64>,
}

/// How far a successor is.
enum Stage<T> {
    Preparing(JoinHandle<Result<Prepared<T>>>),
    CatchingUp(Box<Prepared<T>>),
    /// Taken over, or failed.
    Over,
}

/// A learner that is prepared beside the stream.
pub(super) struct Successor<T> {
    stage: Stage<T>,
    waiting: VecDeque<Waiting>,
    interrupt: Interrupt,
}

impl<T> fmt::Debug for Successor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Successor").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

/// What is prepared for nobody ends early.
impl<T> Drop for Successor<T> {
    fn drop(&mut self) {
        self.interrupt.set();
    }
}

impl<T: Task> Successor<T> {
    fn new(work: impl FnOnce() -> Result<Prepared<T>> + Send + 'static) -> Self {
        let interrupt = Interrupt::new();
        let watched = interrupt.clone();
        // Whoever waits for an answer is more urgent.
        let handle = std::thread::spawn(move || threads::with_share(1, || watched.watch(work)));
        Self { stage: Stage::Preparing(handle), waiting: VecDeque::new(), interrupt }
    }

    /// One with features from the rows in memory.
    pub(super) fn by_search(
        task: T,
        memory: Memory,
        settings: Settings,
        input_dim: usize,
        is_last: bool,
        before: Option<Encoder>,
    ) -> Self {
        let search =
            move || Prepared::by_search(task, &memory, &settings, input_dim, is_last, before.as_ref());
        Self::new(search)
    }

    /// One with features from a sample of all rows.
    pub(super) fn by_renewal(
        task: T,
        sample: Sample,
        settings: Settings,
        input_dim: usize,
        before: Box<Learner>,
    ) -> Self {
        Self::new(move || Prepared::by_renewal(&task, &sample, &settings, input_dim, &before))
    }

    /// One with hyperparameters from everything learned.
    pub(super) fn by_refit(task: T, learner: Box<Learner>, settings: Settings, optimizer: LbfgsB) -> Self {
        Self::new(move || Prepared::by_refit(task, learner, &settings, &optimizer))
    }

    /// Keeps a row for it.
    pub(super) fn push(&mut self, x: &[f64], y: f64, noise: f64, time: Option<f64>) {
        self.waiting.push_back(Waiting { x: x.to_vec(), y, noise, time });
    }

    /// How far it is.
    pub(super) fn stage(&self) -> UpkeepStage {
        match &self.stage {
            Stage::Preparing(handle) if handle.is_finished() => UpkeepStage::Done,
            Stage::Preparing(_) => UpkeepStage::Running,
            Stage::CatchingUp(_) => UpkeepStage::CatchingUp,
            Stage::Over => UpkeepStage::Idle,
        }
    }

    /// Lets it catch up with so many rows, once it is prepared or if told to `wait`; itself when it has caught up with all
    /// of them, and an error if it cannot.
    pub(super) fn attend(
        &mut self,
        settings: &Settings,
        wait: bool,
        rows: usize,
    ) -> Result<Option<Prepared<T>>> {
        let wait = wait || self.waiting.len() > MOST_WAITING;
        // When it is done depends on the machine, so that is not looked at where a stream must be repeatable.
        let looks = settings.upkeep != Upkeep::OnRequest;
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Preparing(handle) if wait || looks && handle.is_finished() => {
                // A panic there is a broken promise of this library, and goes on here.
                let done = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                Stage::CatchingUp(Box::new(done?))
            }
            stage => stage,
        };
        let Stage::CatchingUp(prepared) = &mut self.stage else { return Ok(None) };
        for row in self.waiting.drain(..rows.min(self.waiting.len())) {
            let Prepared { task, learner, corrections, spread, .. } = &mut **prepared;
            let targets = task.row(row.y, row.noise);
            match learner.learn(&row.x, &targets, row.time, settings) {
                Ok(Outcome::Learned) => {
                    let (mut said, h) = (learner.predictions().to_vec(), learner.encoder().coordinates());
                    if learner.discount() == 1.0 {
                        corrections.iter_mut().for_each(|own| own.step(h, &targets, &mut said));
                        spread.iter_mut().for_each(|own| own.step(h, targets.each[0].value, &mut said[0]));
                    }
                }
                // The learner that there is has taken it in.
                Ok(Outcome::OffGrid | Outcome::Incomplete)
                | Err(Error::OutsideGrid { .. } | Error::GridTooLarge { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if !self.waiting.is_empty() {
            return Ok(None);
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::CatchingUp(prepared) => Ok(Some(*prepared)),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said about 200 rows of standard deviation one.
    fn beside(mean: impl Fn(usize) -> f64, variance: f64) -> Beside {
        let h: Vec<f64> = (0..200).map(|i| f64::from(i) / 100.0 - 1.0).collect();
        let row = |i: usize| {
            let said = Prediction { mean: mean(i), variance: 0.0, noise: variance };
            (i, vec![h[i]], said, if i.is_multiple_of(2) { 1.0 } else { -1.0 })
        };
        let rows = (0..200).map(row).collect();
        Beside { corrections: None, spread: Some(Box::new(Spread::new(&h, 1, 0).unwrap())), rows }
    }

    #[test]
    fn density_is_not_bought_with_error() {
        let plain = beside(|_| 0.0, 4.0);
        // Likelier, and no farther off.
        assert!(beside(|_| 0.0, 1.0).is_worth_more_than(&plain));
        assert!(beside(|_| 0.1, 1.0).is_worth_more_than(&plain));
        // Likelier, but its squares are 4 % larger.
        assert!(!beside(|_| 0.2, 1.0).is_worth_more_than(&plain));
        // No likelier.
        assert!(!beside(|_| 0.0, 4.0).is_worth_more_than(&plain));
    }
}
