//! The scale of targets inside a model, and the running moments it follows.

use serde::{Deserialize, Serialize};

use crate::error::{Result, finite, positive};
use crate::posterior::Prediction;
use crate::stats::Stats;

/// A running mean and variance of targets.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct TargetMoments {
    pub(super) weight: f64,
    pub(super) mean: f64,
    squares: f64,
}

impl TargetMoments {
    /// Rejects sums that no targets can have.
    pub(super) fn check(&self) -> Result<()> {
        for (field, value) in [("weight", self.weight), ("mean", self.mean), ("squares", self.squares)] {
            finite(format!("{field} of the targets"), value, 0)?;
        }
        if self.weight < 0.0 { positive("weight of the targets", self.weight, 0) } else { Ok(()) }
    }

    /// Moments that were summed up elsewhere.
    pub(super) fn of_sums(weight: f64, mean: f64, squares: f64) -> Self {
        Self { weight, mean, squares }
    }

    /// The moments of the targets that statistics on one grid hold; rows count by their weight.
    pub(super) fn of_stats(stats: &Stats) -> Self {
        // Weights of interpolation add up to one, so b adds up to the sum of all targets.
        let (weight, sum) = (stats.total_weight(), stats.b().iter().sum::<f64>());
        if weight <= 0.0 {
            return Self::default();
        }
        let mean = sum / weight;
        Self { weight, mean, squares: (stats.c() - sum * mean).max(0.0) }
    }

    pub(super) fn observe(&mut self, y: f64) {
        self.weight += 1.0;
        let before = y - self.mean;
        self.mean += before / self.weight;
        self.squares += before * (y - self.mean);
    }

    /// Takes in the moments of other targets (Chan, Golub and LeVeque 1979).
    pub(super) fn merge(&mut self, other: &Self) {
        let weight = self.weight + other.weight;
        if weight > 0.0 {
            let apart = other.mean - self.mean;
            self.squares += other.squares + apart * apart * self.weight * other.weight / weight;
            self.mean += apart * other.weight / weight;
            self.weight = weight;
        }
    }

    /// Takes out a target that was observed.
    pub(super) fn forget(&mut self, y: f64) {
        if self.weight <= 1.0 {
            *self = Self::default();
            return;
        }
        let now = y - self.mean;
        self.weight -= 1.0;
        self.mean -= now / self.weight;
        self.squares = (self.squares - now * (y - self.mean)).max(0.0);
    }

    pub(super) fn std(&self) -> f64 {
        let variance = self.squares / self.weight;
        if variance > 0.0 { variance.sqrt() } else { 1.0 }
    }
}

/// y → (y − shift)/scale.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TargetScale {
    /// What is subtracted.
    pub shift: f64,
    /// What is divided by.
    pub scale: f64,
}

impl TargetScale {
    /// Rejects a scale that maps numbers to something else.
    pub(crate) fn check(&self) -> Result<()> {
        finite("shift of the targets", self.shift, 0)?;
        positive("scale of the targets", self.scale, 0)
    }

    pub(super) const IDENTITY: Self = Self { shift: 0.0, scale: 1.0 };

    pub(crate) fn apply(&self, y: f64) -> f64 {
        (y - self.shift) / self.scale
    }

    pub(crate) fn undo(&self, p: Prediction) -> Prediction {
        let square = self.scale * self.scale;
        Prediction {
            mean: self.shift + self.scale * p.mean,
            variance: p.variance * square,
            noise: p.noise * square,
        }
    }
}
