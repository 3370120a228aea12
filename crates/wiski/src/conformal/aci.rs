//! Adaptive conformal inference (Gibbs and Candès 2021): the level is moved instead of the quantile.

use super::{Controller, Score};
use std::collections::VecDeque;

/// Below so many scores there is no quantile of them, and that of Gaussian scores is taken.
const FEWEST: usize = 20;

/// q is the 1 − α_t quantile of the last scores, and α_t ← α_t + γ (α − miss). Where α_t is zero or below, q is infinite;
/// at one and above it is zero.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptiveConformal {
    alpha: f64,
    rate: f64,
    adapted: f64,
    plain: f64,
    window: usize,
    /// The scores in the window, in the order in which they came, and in the order of their size.
    recent: VecDeque<f64>,
    sorted: Vec<f64>,
}

impl AdaptiveConformal {
    /// At a level, with the step γ, over a window of so many scores.
    pub fn new(level: f64, rate: f64, window: usize) -> Self {
        let window = window.max(FEWEST);
        Self {
            alpha: 1.0 - level,
            rate,
            adapted: 1.0 - level,
            plain: Score::Deviations.plain(level),
            window,
            recent: VecDeque::with_capacity(window + 1),
            sorted: Vec::with_capacity(window + 1),
        }
    }
}

impl Controller for AdaptiveConformal {
    fn quantile(&self) -> f64 {
        let n = self.sorted.len();
        if n < FEWEST {
            return self.plain;
        }
        if self.adapted >= 1.0 {
            return 0.0;
        }
        // The ⌈(1 − α_t)(n + 1)⌉-th smallest; beyond the largest for a small or negative α_t.
        let rank = ((1.0 - self.adapted) * (n + 1) as f64).ceil() as usize;
        self.sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::INFINITY)
    }

    fn observe(&mut self, score: f64) {
        let miss = f64::from(u8::from(score > self.quantile()));
        self.adapted += self.rate * (self.alpha - miss);
        let place = self.sorted.partition_point(|&s| s < score);
        self.sorted.insert(place, score);
        self.recent.push_back(score);
        if self.recent.len() > self.window
            && let Some(oldest) = self.recent.pop_front()
        {
            self.sorted.remove(self.sorted.partition_point(|&s| s < oldest));
        }
    }
}
