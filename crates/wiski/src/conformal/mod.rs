//! Intervals that hold: conformal control of a quantile along a stream.
//!
//! A score z_t ≥ 0 says how far off a prediction was: |y − μ|/σ for a number, −log p of the class that came. An interval
//! (or a set) at the level 1 − α takes in all targets with a score up to q_t, so it misses if z_t > q_t. Where the model
//! is right, q = Φ⁻¹(1 − α/2); where it is not, q is moved by what was missed:
//!
//! | controller | q |
//! | --- | --- |
//! | [`QuantileTracker`] | log q ← log q + η (miss − α) |
//! | [`AdaptiveConformal`] (Gibbs and Candès 2021) | the 1 − α_t quantile of the last scores, α_t ← α_t + γ (α − miss) |
//! | [`ConformalPid`] (Angelopoulos, Candès and Tibshirani 2023) | p + r(Σ (miss − α)), p ← p + η_t (miss − α) |
//! | [`Conformal`], what models use | log q = forecast + c, c ← c + η (miss − α) |
//!
//! None of them assumes anything about the data. Summing an update over T rows gives Σ (miss − α) = (c_T − c_0)/η, and c
//! cannot run away from scores that are bounded: an interval that is wide enough to hold all of them misses none, and
//! c falls. So |rate of misses − α| ≤ C/(ηT), whatever the data do.
//!
//! What differs is how wide the intervals are on the way. [`Conformal`] takes its forecast from trackers of several speeds,
//! with and without a scale that follows recent scores, weighted by how well each has done (`forecast`): on a stationary
//! stream it hardly moves, and where large errors come in groups it widens with the first of them.
//! `wiski reproduce intervals` compares them all. A row costs about 130 ns for five levels; nothing is allocated.

mod aci;
mod control;
mod forecast;
mod pid;
mod tracker;

pub use aci::AdaptiveConformal;
pub use control::{Conformal, Horizon, Quantiles, Score};
pub use pid::ConformalPid;
pub use tracker::QuantileTracker;

use crate::error::{Error, Result};
use crate::posterior::Prediction;
use serde::{Deserialize, Serialize};

/// An interval of values, its ends included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub lower: f64,
    /// The upper end.
    pub upper: f64,
}

impl Interval {
    /// The interval of q deviations of an observation around its mean.
    pub fn around(prediction: &Prediction, q: f64) -> Self {
        let half = q * prediction.std();
        Self { lower: prediction.mean - half, upper: prediction.mean + half }
    }

    /// The interval that a Gaussian observation lies in with the probability `level`.
    pub fn gaussian(prediction: &Prediction, level: f64) -> Result<Self> {
        check_level(level)?;
        Ok(Self::around(prediction, Score::Deviations.plain(level)))
    }

    /// Whether a value lies in it.
    pub fn contains(&self, value: f64) -> bool {
        self.lower <= value && value <= self.upper
    }

    /// Its width.
    pub fn width(&self) -> f64 {
        self.upper - self.lower
    }
}

/// A controller of one quantile of scores.
pub trait Controller {
    /// The quantile for the row to come; it may be infinite where the method says so.
    fn quantile(&self) -> f64;

    /// Takes in the score of that row.
    fn observe(&mut self, score: f64);
}

/// Rejects what is no level.
pub(crate) fn check_level(level: f64) -> Result<()> {
    if level > 0.0 && level < 1.0 {
        return Ok(());
    }
    Err(Error::Config { field: "level".into(), reason: format!("{level} is not between 0 and 1") })
}

#[cfg(test)]
mod tests;
