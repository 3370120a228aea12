//! What a regressor gives away and keeps no hold of: an image for predictions, and functions from the posterior.

use super::encoder::FixedEncoder;
use super::targets::TargetScale;
use crate::error::Result;
use crate::posterior::{FunctionSample, Prediction, Predictor};

/// An immutable model for predictions from any thread.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(super) encoder: FixedEncoder,
    pub(super) predictor: Predictor,
    pub(super) scale: TargetScale,
    pub(super) known_noise: bool,
}

impl Snapshot {
    /// What the model said about a row when the snapshot was taken, in the user's units. A point off the
    /// grid is an error here: a snapshot does not grow.
    pub fn predict(&self, x: &[f64]) -> Result<Prediction> {
        let h = self.encoder.encode(x)?;
        let mut p = self.scale.undo(self.predictor.predict(&h)?);
        if self.known_noise {
            p.noise = 0.0;
        }
        Ok(p)
    }
}

/// A function of rows drawn from a posterior.
#[derive(Debug, Clone)]
pub struct SampledFunction {
    pub(super) encoder: FixedEncoder,
    pub(super) sample: FunctionSample,
    pub(super) scale: TargetScale,
}

impl SampledFunction {
    /// The value of the function at a row, in the user's units.
    pub fn value(&self, x: &[f64]) -> Result<f64> {
        let h = self.encoder.encode(x)?;
        Ok(self.scale.shift + self.scale.scale * self.sample.value(&h)?)
    }
}
