//! A uniform sample of a stream's rows, from which features are learned anew where the stream has moved.
//!
//! Features come from the first rows, which are those in memory. Where rows come sorted, or where what they are about changes,
//! later ones lie elsewhere. So a model that has let go of its memory keeps every row with the same probability k/n
//! (Vitter's algorithm R: row n takes the place j, uniform among the first n, if j < k). Whether the stream has moved is seen
//! from the rows of the sample themselves: those that came before features were learned and those that came since are two
//! samples of two parts of the stream.
//!
//! A row costs O(1), with probability k/n a copy of D numbers; memory is k (D + 2) numbers,
//! constant. The last rows are all kept beside: what comes next is corrected by them.

use rand::RngExt;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::memory::{Memory, are_apart};
use crate::error::{Error, Result, length};
use crate::learn::Rows;
use crate::saved::{Restore, restored_after_reading};

/// The sample is as large as so many memories, and of no more numbers than this: 16 MB.
const MEMORIES: usize = 4;
const MOST_NUMBERS: usize = 1 << 21;
/// The last rows of the stream are there, so many of them: what comes next is best told by them.
pub(super) const RECENT: usize = 512;

/// The rows of a sample.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct Sample {
    rows: Rows,
    /// The number of each along the stream.
    arrivals: Vec<u64>,
    /// The last rows, and up to as many before them.
    recent: Rows,
    limit: usize,
    seed: u64,
    /// The rows of the stream; those that there were when features were last learned, and when they last might have been.
    seen: u64,
    learned_at: u64,
    looked_at: u64,
}

restored_after_reading!(Sample);

impl Restore for Sample {
    fn restore(&mut self) -> Result<()> {
        length("arrivals", self.rows.len(), self.arrivals.len())?;
        if self.recent.len() as u64 > self.seen {
            return Err(Error::Config {
                field: "sample".into(),
                reason: "has more rows than its stream".into(),
            });
        }
        Ok(())
    }
}

impl Sample {
    /// The rows in memory, the first of their stream, of which features were learned from the first `searched`. `None` if a
    /// sample would be too small for another search.
    pub(super) fn of_first(
        memory: &Memory,
        searched: usize,
        memory_rows: usize,
        dim: usize,
        seed: u64,
    ) -> Option<Self> {
        let limit = (MEMORIES * memory_rows).min(MOST_NUMBERS / (dim + 2));
        if limit < memory_rows || memory.is_empty() {
            return None;
        }
        let (seen, searched) = (memory.len() as u64, searched as u64);
        let mut new = Self {
            rows: Rows::default(),
            arrivals: Vec::new(),
            recent: Rows::default(),
            limit,
            seed,
            seen: 0,
            learned_at: searched,
            looked_at: seen,
        };
        for (i, x) in memory.rows.x.chunks_exact(dim).enumerate() {
            new.observe(x, memory.rows.y[i], memory.rows.noise[i]);
        }
        Some(new)
    }

    pub(super) fn check(&self, dim: usize) -> Result<()> {
        length("columns of the sample", self.rows.len() * dim, self.rows.x.len())?;
        length("columns of recent rows", self.recent.len() * dim, self.recent.x.len())
    }

    /// The targets of all rows that are kept.
    pub(super) fn targets(&self) -> impl Iterator<Item = f64> + '_ {
        self.rows.y.iter().chain(&self.recent.y).copied()
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    /// The rows of the stream so far.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes note of the next row of the stream.
    pub(super) fn observe(&mut self, x: &[f64], y: f64, noise: f64) {
        let number = self.seen;
        self.seen += 1;
        if self.recent.len() >= 2 * RECENT {
            self.recent.x.drain(..RECENT * x.len());
            self.recent.y.drain(..RECENT);
            self.recent.noise.drain(..RECENT);
        }
        self.recent.push(x, y, noise);
        if self.rows.len() < self.limit {
            self.rows.push(x, y, noise);
            self.arrivals.push(number);
            return;
        }
        // A generator for each row, so that nothing but the number of rows has to be kept in files.
        let place =
            Xoshiro256PlusPlus::seed_from_u64(self.seed ^ number.rotate_left(32)).random_range(0..self.seen);
        if let Some(place) = usize::try_from(place).ok().filter(|&place| place < self.limit) {
            self.rows.x[place * x.len()..(place + 1) * x.len()].copy_from_slice(x);
            (self.rows.y[place], self.rows.noise[place]) = (y, noise);
            self.arrivals[place] = number;
        }
    }

    /// Whether there are twice as many rows as when it was last asked how far they have moved.
    pub(super) fn has_doubled(&self) -> bool {
        self.would_have_doubled(0)
    }

    /// The same with so many more rows.
    pub(super) fn would_have_doubled(&self, rows: usize) -> bool {
        self.seen + rows as u64 >= 2 * self.looked_at
    }

    /// Whether there are a sixteenth more rows than when it was last asked how far they have moved.
    pub(super) fn has_more(&self) -> bool {
        self.seen > self.looked_at + self.looked_at / 16
    }

    /// Takes note that it was asked how far rows have moved.
    pub(super) fn looked(&mut self) {
        self.looked_at = self.seen;
    }

    /// Takes note that features were learned anew when there were so many rows.
    pub(super) fn learned(&mut self, seen: u64) {
        self.learned_at = seen;
    }

    /// Whether the rows since features were learned are distributed otherwise than those before.
    pub(super) fn has_moved(&self) -> bool {
        are_apart(&self.rows, |i| self.arrivals[i] >= self.learned_at, &[])
    }

    /// The rows in the order in which they came, with all of the last [`RECENT`].
    pub(super) fn in_order(&self) -> Memory {
        let dim = self.rows.x.len() / self.len().max(1);
        let recent = self.recent.len().saturating_sub(RECENT)..self.recent.len();
        let first = self.seen - recent.len() as u64;
        let mut order: Vec<usize> = (0..self.len()).filter(|&i| self.arrivals[i] < first).collect();
        order.sort_unstable_by_key(|&i| self.arrivals[i]);
        let mut rows = Rows::default();
        let mut push =
            |from: &Rows, i: usize| rows.push(&from.x[i * dim..(i + 1) * dim], from.y[i], from.noise[i]);
        order.into_iter().for_each(|i| push(&self.rows, i));
        recent.for_each(|i| push(&self.recent, i));
        Memory::sampled(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(rows: usize) -> Memory {
        let mut memory = Memory::default();
        (0..rows).for_each(|i| memory.push(&[i as f64, (0.618 * i as f64).fract()], 0.0, 1.0, None));
        memory
    }

    #[test]
    fn every_row_is_as_likely_as_any_other() {
        let mut sample = Sample::of_first(&memory(1000), 1000, 1000, 2, 7).unwrap();
        let rows = 40_000;
        (1000..rows).for_each(|i| sample.observe(&[f64::from(i), 0.0], f64::from(i), 1.0));
        assert_eq!((sample.len(), sample.seen()), (4000, 40_000));
        // 4,000 of 40,000: in each tenth 400, give or take 19 (hypergeometric).
        let mut tenths = [0_i32; 10];
        sample.arrivals.iter().for_each(|&number| tenths[number as usize / 4000] += 1);
        assert!(tenths.iter().all(|tenth| (tenth - 400).abs() < 5 * 19), "{tenths:?}");
        let ordered = sample.in_order();
        assert!(ordered.rows.x.chunks_exact(2).is_sorted_by(|a, b| a[0] < b[0]));
        // The last ones are all there.
        let last = &ordered.rows.y[ordered.len() - RECENT..];
        assert!(last.iter().enumerate().all(|(i, &y)| y == f64::from(rows) - (RECENT - i) as f64));
        assert!(ordered.len() > 4000 && ordered.len() < 4000 + RECENT);
        // Rows keep their targets.
        let mut pairs = ordered.rows.x.chunks_exact(2).zip(&ordered.rows.y).filter(|(x, _)| x[0] >= 1000.0);
        assert!(pairs.all(|(x, &y)| x[0] == y));
    }

    #[test]
    fn rows_that_move_are_told_from_rows_in_random_order() {
        let at = |i: u32| (0.618 * f64::from(i)).fract();
        let moved = |x: &dyn Fn(u32) -> [f64; 2], y: &dyn Fn(u32) -> f64| {
            let mut first = Memory::default();
            (0..1000).for_each(|i| first.push(&x(i), y(i), 1.0, None));
            let mut sample = Sample::of_first(&first, 1000, 1000, 2, 1).unwrap();
            (1000..2000).for_each(|i| sample.observe(&x(i), y(i), 1.0));
            assert!(sample.has_doubled() && sample.has_more());
            sample.has_moved()
        };
        assert!(!moved(&|i| [at(i), at(3 * i)], &|i| at(5 * i)));
        // A column, or the targets, rise slowly.
        assert!(moved(&|i| [at(i), at(3 * i) + 2e-4 * f64::from(i)], &|i| at(5 * i)));
        assert!(moved(&|i| [at(i), at(3 * i)], &|i| at(5 * i) + 2e-4 * f64::from(i)));
        // A constant has nowhere to go.
        assert!(!moved(&|_| [1.0, 2.0], &|_| 3.0));
    }

    #[test]
    fn wide_rows_are_not_sampled() {
        assert!(Sample::of_first(&memory(100), 100, MOST_NUMBERS, 2, 1).is_none());
    }
}
