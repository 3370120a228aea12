//! Rows that are still in memory: those of the warm-up, and the first ones of a stream whose features may be learned
//! anew from all of them.

use serde::{Deserialize, Serialize};

use crate::error::{Result, finite, length};
use crate::learn::Rows;
use crate::saved::{Restore, restored_after_reading};

/// Rows as they came, in the user's units, with their times where they have any. The target of a class is its number.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(crate) struct Memory {
    pub(crate) rows: Rows,
    #[serde(with = "crate::saved::floats")]
    pub(crate) times: Vec<f64>,
    /// Whether rows are a sample of a stream that has no clock, which of a sample cannot be seen.
    #[serde(skip)]
    is_sample: bool,
}

restored_after_reading!(Memory);

impl Restore for Memory {
    fn restore(&mut self) -> Result<()> {
        self.times.iter().try_for_each(|&time| finite("time", time, 0))?;
        if self.times.is_empty() { Ok(()) } else { length("times", self.rows.len(), self.times.len()) }
    }
}

/// With fewer rows a column may rise by chance, or because somebody sorted them.
const FEWEST_RISING: usize = 50;
/// A clock has ticked at least so many times.
const FEWEST_TICKS: usize = 20;
/// The middle half of a clock's steps, and of the numbers of rows that come with its ticks, differs by no more than this share
/// of the median. With many rows for each tick, a day's or a month's, their number may vary a little more: as much as numbers of
/// eight rows and more that chance decides. Whole numbers that were sorted vary by more than their median.
const ALIKE: f64 = 0.5;
const MANY_ROWS: usize = 8;

impl Memory {
    pub(crate) fn new(rows: Rows, times: Vec<f64>) -> Self {
        Self { rows, times, is_sample: false }
    }

    /// A sample of a stream that has no clock.
    pub(super) fn sampled(rows: Rows) -> Self {
        Self { rows, times: Vec::new(), is_sample: true }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The same rows, each with so many times as much noise.
    pub(crate) fn with_noise_times(&self, factors: &[f64]) -> Self {
        let mut new = self.clone();
        new.rows.noise.iter_mut().zip(factors).for_each(|(noise, factor)| *noise *= factor);
        new
    }

    pub(crate) fn push(&mut self, x: &[f64], y: f64, noise: f64, time: Option<f64>) {
        self.rows.push(x, y, noise);
        self.times.extend(time);
    }

    /// Takes back the last row, of `dim` columns.
    pub(crate) fn pop(&mut self, dim: usize) {
        self.rows.pop(dim);
        self.times.truncate(self.rows.len());
    }

    /// Takes out the last row that is just this, of `dim` columns; false if there is none.
    pub(crate) fn remove(&mut self, x: &[f64], y: f64, noise: f64) -> bool {
        let (rows, dim) = (&mut self.rows, x.len());
        let is_it =
            |&i: &usize| rows.y[i] == y && rows.noise[i] == noise && rows.x[i * dim..(i + 1) * dim] == *x;
        let Some(i) = (0..rows.len()).rev().find(is_it) else { return false };
        rows.x.drain(i * dim..(i + 1) * dim);
        rows.y.remove(i);
        rows.noise.remove(i);
        if !self.times.is_empty() {
            self.times.remove(i);
        }
        true
    }

    /// The columns that rise from row to row, as a clock does: none ever falls, and hardly one stands still.
    pub(crate) fn rising_columns(&self, dim: usize) -> Vec<usize> {
        let rises = |&column: &usize| {
            let mut still = 0;
            let values = self.rows.x.iter().skip(column).step_by(dim);
            let mut pairs = values.clone().zip(values.skip(1));
            self.len() >= FEWEST_RISING
                && pairs.all(|(before, after)| {
                    still += usize::from(before == after);
                    before <= after
                })
                && 10 * still <= self.len()
        };
        (0..dim).filter(rises).collect()
    }

    /// The columns that tick like a clock: none ever falls, they rise in steps of about the same size, and as many rows come
    /// with one tick as with another. Values that were sorted rise in steps of all sizes, or, if they are rounded, with any
    /// number of rows between.
    pub(crate) fn clock_columns(&self, dim: usize) -> Vec<usize> {
        let ticks = |&column: &usize| {
            let values: Vec<f64> = self.rows.x.iter().skip(column).step_by(dim).copied().collect();
            let steps = values.windows(2).map(|pair| pair[1] - pair[0]).filter(|&step| step != 0.0);
            let steps: Vec<f64> = steps.collect();
            if steps.len() < FEWEST_TICKS || steps.iter().any(|&s| s < 0.0) {
                return false;
            }
            let rows = values.chunk_by(|a, b| a == b).map(|tick| tick.len() as f64).collect();
            let many = values.len() >= MANY_ROWS * steps.len();
            are_alike(rows, if many { 1.2 * ALIKE } else { ALIKE }) && are_alike(steps, ALIKE)
        };
        let is_told = !self.is_sample && self.len() >= FEWEST_RISING;
        if is_told { (0..dim).filter(ticks).collect() } else { Vec::new() }
    }

    /// Whether the later half of the rows is distributed otherwise than the first, as where rows were sorted; clocks aside.
    pub(crate) fn is_moving(&self, clocks: &[usize]) -> bool {
        are_apart(&self.rows, |i| 2 * i >= self.len(), clocks)
    }

    /// As many rows, evenly spread, and the rest.
    pub(crate) fn thinned(&self, rows: usize, dim: usize) -> (Self, Self) {
        let none = Self { is_sample: self.is_sample, ..Self::default() };
        let (mut kept, mut rest) = (none.clone(), none);
        for (i, x) in self.rows.x.chunks_exact(dim).enumerate() {
            // The number of rows kept after i of them is ⌊i rows/len⌋.
            let is_kept = rows >= self.len() || (i + 1) * rows / self.len() > i * rows / self.len();
            let to = if is_kept { &mut kept } else { &mut rest };
            to.push(x, self.rows.y[i], self.rows.noise[i], self.times.get(i).copied());
        }
        (kept, rest)
    }

    /// Lets go of the older half, of `dim` columns a row.
    pub(crate) fn drop_older_half(&mut self, dim: usize) {
        let gone = self.len() / 2;
        self.rows.x.drain(..gone * dim);
        self.rows.y.drain(..gone);
        self.rows.noise.drain(..gone);
        self.times.drain(..gone.min(self.times.len()));
    }

    pub(crate) fn last_time(&self) -> Option<f64> {
        self.times.last().copied()
    }
}

/// Two parts of a stream are not of one distribution if a column of theirs is farther apart than this, and farther than equal
/// ones are once in 10⁹ times: 2 exp(−2t²) for t √(1/n + 1/m).
const APART: f64 = 0.15;
const BY_CHANCE: f64 = 3.3;

/// Whether the rows that are `later` are distributed otherwise than the others, by the greatest distance (Kolmogorov and
/// Smirnov) of a column or of the targets; some columns aside. O(D n log n).
pub(super) fn are_apart(rows: &Rows, later: impl Fn(usize) -> bool, aside: &[usize]) -> bool {
    let later: Vec<bool> = (0..rows.len()).map(later).collect();
    let second = later.iter().filter(|&&is_later| is_later).count();
    let (n, m) = ((rows.len() - second) as f64, second as f64);
    let least = APART.max(BY_CHANCE * (n.recip() + m.recip()).sqrt());
    let dim = rows.x.len() / rows.len().max(1);
    let mut column = Vec::with_capacity(rows.len());
    let mut is_apart = |values: &mut dyn Iterator<Item = f64>| {
        column.clear();
        column.extend(values.zip(later.iter().copied()));
        distance(&mut column) > least
    };
    least < 1.0
        && (is_apart(&mut rows.y.iter().copied())
            || (0..dim)
                .filter(|k| !aside.contains(k))
                .any(|k| is_apart(&mut rows.x.iter().skip(k).step_by(dim).copied())))
}

/// The greatest difference between the shares of two samples that lie below a value: values, and whether they are of the second.
fn distance(values: &mut [(f64, bool)]) -> f64 {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let second = values.iter().filter(|value| value.1).count() as f64;
    let first = values.len() as f64 - second;
    let (mut below, mut most) = ([0.0, 0.0], 0.0_f64);
    for equal in values.chunk_by(|a, b| a.0 == b.0) {
        equal.iter().for_each(|value| below[usize::from(value.1)] += 1.0);
        most = most.max((below[0] / first - below[1] / second).abs());
    }
    most
}

/// Whether the middle half of some sizes differs by no more than a share of their median.
fn are_alike(mut sizes: Vec<f64>, share: f64) -> bool {
    sizes.sort_by(f64::total_cmp);
    let quantile = |share: f64| sizes[((sizes.len() - 1) as f64 * share).round() as usize];
    quantile(0.75) - quantile(0.25) <= share * quantile(0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_steps() {
        let mut values = [(1.0, false), (2.0, false), (2.0, true), (3.0, true)];
        assert_eq!(distance(&mut values), 0.5);
        let mut values = [(1.0, false), (1.0, true)];
        assert_eq!(distance(&mut values), 0.0);
        let mut values = [(1.0, false), (2.0, true)];
        assert_eq!(distance(&mut values), 1.0);
    }
}
