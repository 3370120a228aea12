//! Outliers among targets: one wild number must not blind a model for thousands of rows.
//!
//! A row whose target is off by more than the reach of eight deviations (and by more than four deviations of all targets,
//! since a model may be too sure of itself) is taken in with more noise, by the third power of how many times the reach that
//! is: its pull on the mean and on the noise falls off with its size. Everything else is learned as it is, so that rows can
//! be un-learned and models merged exactly; of the last outliers it is kept by how much they were discounted.
//!
//! Where more than one row in ten is that far off, they are no outliers but a change, and count in full, the first of them
//! too: they are un-learned as they were and learned anew. In the warm-up, where nothing is predicted, a target farther from
//! the quartiles of all than a hundred times their distance is left out.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use crate::error::{Result, finite};

/// How many deviations off a target counts in full.
pub(super) const REACH: f64 = 8.0;
/// The rows over which outliers are counted, and the share of them at which they are a change.
const RECENT: f64 = 50.0;
const CHANGE: f64 = 0.1;
/// In the warm-up: how many distances of the quartiles.
const QUARTILES: f64 = 100.0;
/// What the noise of a target that is left out is multiplied by, and by its square.
const LEFT_OUT: f64 = 1e12;
/// With fewer targets their quartiles say little.
const FEWEST: usize = 20;
/// The outliers that can be un-learned.
const KEPT: usize = 256;

/// By how much an outlier was discounted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Outlier {
    x: Vec<f64>,
    y: f64,
    factor: f64,
    /// The number of the row.
    row: u64,
}

/// What a stream has had of outliers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Guard {
    /// Their share among the last rows.
    recent: f64,
    /// Rows so far, and outliers among them.
    rows: u64,
    count: u64,
    kept: VecDeque<Outlier>,
}

impl Guard {
    /// Rejects what no rows can have left behind.
    pub(crate) fn check(&self) -> Result<()> {
        finite("share of outliers", self.recent, 0)?;
        self.kept.iter().try_for_each(|outlier| finite("noise of an outlier", outlier.factor, 0))
    }

    /// How many deviations off the target of the next row counts in full.
    pub(crate) fn reach(&self) -> f64 {
        if self.recent < CHANGE { REACH } else { f64::INFINITY }
    }

    /// Takes note of a row, whether its target was out of reach, and by how much its noise was multiplied.
    pub(crate) fn observed(&mut self, x: &[f64], y: f64, factor: f64, is_out: bool) {
        self.rows += 1;
        self.recent += (f64::from(u8::from(is_out)) - self.recent) / RECENT;
        if factor > 1.0 {
            self.note(x, y, factor);
        }
    }

    /// Once the last outliers turn out to be a change: them, to be learned in full, each with what its noise was multiplied
    /// by.
    pub(crate) fn reinstated(&mut self) -> Vec<(Vec<f64>, f64, f64)> {
        if self.recent < CHANGE {
            return Vec::new();
        }
        let first = self.rows.saturating_sub(RECENT as u64);
        let recent = self.kept.iter().take_while(|outlier| outlier.row > first).count();
        self.count -= recent as u64;
        self.kept.drain(..recent).map(|outlier| (outlier.x, outlier.y, outlier.factor)).collect()
    }

    /// By how much the noise of a row was multiplied when it was learned.
    pub(crate) fn factor(&self, x: &[f64], y: f64) -> f64 {
        let own = |outlier: &&Outlier| outlier.y == y && outlier.x == x;
        self.kept.iter().find(own).map_or(1.0, |outlier| outlier.factor)
    }

    /// By how much the noise of each row in memory, of `dim` columns, is multiplied, given their targets: by what their
    /// quartiles say, or more if it was more when a row was learned. `None` if no row is an outlier.
    pub(crate) fn factors(&self, x: &[f64], dim: usize, y: &[f64]) -> Option<Vec<f64>> {
        let range = range(y);
        let is_far = |y: f64| range.is_some_and(|(first, third, far)| (y - third).max(first - y) > far);
        let plain = |y: f64| if is_far(y) { LEFT_OUT * (1.0 + y * y) } else { 1.0 };
        let rows = x.chunks_exact(dim).zip(y);
        let factors: Vec<f64> = rows.map(|(x, &y)| plain(y).max(self.factor(x, y))).collect();
        factors.iter().any(|&factor| factor > 1.0).then_some(factors)
    }

    /// Takes note of outliers among rows in memory, all of which were learned anew.
    pub(crate) fn learned_anew(&mut self, x: &[f64], dim: usize, y: &[f64], factors: &[f64]) {
        for ((x, &y), &factor) in x.chunks_exact(dim).zip(y).zip(factors) {
            if factor > 1.0 {
                self.forgotten(x, y);
                self.note(x, y, factor);
            }
        }
    }

    fn note(&mut self, x: &[f64], y: f64, factor: f64) {
        self.count += 1;
        self.kept.truncate(KEPT - 1);
        self.kept.push_front(Outlier { x: x.to_vec(), y, factor, row: self.rows });
    }

    /// The number of rows that were discounted.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Lets go of an outlier that was un-learned.
    pub(crate) fn forgotten(&mut self, x: &[f64], y: f64) {
        if let Some(place) = self.kept.iter().position(|outlier| outlier.y == y && outlier.x == x) {
            self.kept.remove(place);
            self.count -= 1;
        }
    }
}

/// The quartiles of targets, and how far from them one is no outlier; `None` where they say nothing.
fn range(y: &[f64]) -> Option<(f64, f64, f64)> {
    let mut sorted = y.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quantile = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    // Where half of the targets are one number, there is no scale to judge the others by.
    let quartiles = |y: &[f64]| (y.len() >= FEWEST).then(|| (quantile(0.25), quantile(0.75)));
    let (first, third) = quartiles(y).filter(|(first, third)| first < third)?;
    Some((first, third, QUARTILES * (third - first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_in_a_row_are_a_change() {
        let mut guard = Guard::default();
        let factor = |is_out: bool| if is_out { 7.0 } else { 1.0 };
        (0..1000).for_each(|i| guard.observed(&[0.0], 0.0, factor(i % 50 == 0), i % 50 == 0));
        assert_eq!((guard.reach(), guard.count()), (REACH, 20), "one row in fifty");
        assert!(guard.reinstated().is_empty());
        let until = (0..20).take_while(|_| {
            guard.observed(&[1.0], 0.0, 7.0, true);
            guard.reach() == REACH
        });
        assert!((2..10).contains(&until.count()));
        let back = guard.reinstated();
        assert!(
            back.iter().filter(|(x, ..)| x[0] == 1.0).count() >= 3 && back.len() as u64 + guard.count() >= 23
        );
        assert!(guard.reinstated().is_empty());
    }

    #[test]
    fn the_first_targets_are_judged_by_their_quartiles() {
        let mut y: Vec<f64> = (0..100).map(|i| f64::from(i) / 50.0).collect();
        let (x, mut guard) = (vec![0.0; 100], Guard::default());
        assert_eq!(guard.factors(&x, 1, &y), None);
        y[50] = -9999.0;
        let found = guard.factors(&x, 1, &y).unwrap();
        assert!(found[50] > 1e12 && found.iter().filter(|&&factor| factor > 1.0).count() == 1);
        // What was found along the stream stays; what is learned anew is not counted twice.
        guard.observed(&[0.0], y[10], 7.0, true);
        guard.learned_anew(&x, 1, &y, &guard.factors(&x, 1, &y).unwrap());
        let found = guard.factors(&x, 1, &y).unwrap();
        assert_eq!((found[10], guard.count()), (7.0, 2));
        assert_eq!(Guard::default().factors(&x, 1, &[1.0; 100]), None);
    }
}
