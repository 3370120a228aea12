//! What a criterion asks of a model: joint predictions of a few points, and the way back from them.

use super::Joint;
use crate::error::Result;

/// A Gaussian process as seen from a few points. [`Surface`](super::Surface) is that of a posterior on grids,
/// [`KernelPosterior`](crate::exact::KernelPosterior) that of one without; criteria of the next points and their
/// maximization are the same for all.
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
    fn vjp(
        &self,
        x: &[f64],
        joint: &Joint,
        by_mean: &[f64],
        by_covariance: &[f64],
        gradient: &mut [f64],
    ) -> Result<()>;
}
