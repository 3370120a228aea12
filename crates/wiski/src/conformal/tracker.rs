//! Quantile tracking on the logarithm of the score: one number, two additions.

use super::{Controller, Score};

/// log q ← log q + η (miss − α). A large η follows changes, a small one is smooth; on Gaussian scores log q then has a
/// variance of about η α(1 − α)/2f, where f is the density of log z at the quantile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuantileTracker {
    alpha: f64,
    rate: f64,
    log_quantile: f64,
}

impl QuantileTracker {
    /// A tracker of the quantile at a level, with the step η. It starts where Gaussian scores have it.
    pub fn new(level: f64, rate: f64) -> Self {
        Self { alpha: 1.0 - level, rate, log_quantile: Score::Deviations.plain(level).ln() }
    }
}

impl Controller for QuantileTracker {
    fn quantile(&self) -> f64 {
        self.log_quantile.exp()
    }

    fn observe(&mut self, score: f64) {
        let miss = f64::from(u8::from(score > self.quantile()));
        self.log_quantile += self.rate * (miss - self.alpha);
    }
}
