//! What a criterion asks of a model: joint predictions of a few points, and the way back from them.

use crate::error::Result;
use crate::exact::KernelPosterior;
use crate::posterior::{Joint, Surface};

/// A model of the function that is searched. [`Surface`] is wiski's; any Gaussian process can be one, so that
/// criteria and their maximisation are the same for all.
pub trait Surrogate {
    /// The number of coordinates of a point.
    fn dim(&self) -> usize;

    /// The box in which points may be proposed.
    fn bounds(&self) -> Vec<(f64, f64)> {
        vec![(-1.0, 1.0); self.dim()]
    }

    /// The noise variance of an observation.
    fn noise(&self) -> f64;

    /// The latent mean at one point alone.
    fn mean(&self, x: &[f64]) -> Result<f64>;

    /// The joint latent mean and covariance of points given row after row.
    fn predict(&self, x: &[f64], out: &mut Joint) -> Result<()>;

    /// Adds to `gradient` the derivative in the points' coordinates of a function whose derivatives in the joint
    /// mean and covariance (all q² entries) are given. `joint` is the prediction at `x`.
    fn pull_back(
        &self,
        x: &[f64],
        joint: &Joint,
        by_mean: &[f64],
        by_covariance: &[f64],
        gradient: &mut [f64],
    ) -> Result<()>;
}

impl Surrogate for Surface {
    fn dim(&self) -> usize {
        self.lattice().dim()
    }

    fn noise(&self) -> f64 {
        Surface::noise(self)
    }

    fn mean(&self, x: &[f64]) -> Result<f64> {
        Surface::mean(self, x)
    }

    fn predict(&self, x: &[f64], out: &mut Joint) -> Result<()> {
        Surface::predict(self, x, out)
    }

    fn pull_back(
        &self,
        x: &[f64],
        joint: &Joint,
        by_mean: &[f64],
        by_covariance: &[f64],
        gradient: &mut [f64],
    ) -> Result<()> {
        Surface::pull_back(self, x, joint, by_mean, by_covariance, gradient)
    }
}

impl Surrogate for KernelPosterior {
    fn dim(&self) -> usize {
        KernelPosterior::dim(self)
    }

    fn noise(&self) -> f64 {
        self.noise
    }

    fn mean(&self, x: &[f64]) -> Result<f64> {
        KernelPosterior::mean(self, x)
    }

    fn predict(&self, x: &[f64], out: &mut Joint) -> Result<()> {
        KernelPosterior::predict(self, x, out)
    }

    fn pull_back(
        &self,
        x: &[f64],
        joint: &Joint,
        by_mean: &[f64],
        by_covariance: &[f64],
        gradient: &mut [f64],
    ) -> Result<()> {
        KernelPosterior::pull_back(self, x, joint, by_mean, by_covariance, gradient)
    }
}
