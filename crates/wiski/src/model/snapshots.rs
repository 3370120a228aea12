//! What a regressor gives away and keeps no hold of: images for predictions, alone or jointly with gradients, and
//! functions from the posterior.

use super::OffGrid;
use super::beyond;
use super::corrections::Corrections;
use super::encoder::FixedEncoder;
use super::missing::{Donors, averaged, is_incomplete};
use super::spread::Spread;
use super::targets::TargetScale;
use crate::conformal::{Horizon, Interval, Quantiles};
use crate::error::{Result, length};
use crate::posterior::{FunctionSample, Joint, Prediction, Predictor, Surface, Surrogate};

/// An immutable model for predictions from any thread.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(super) encoder: FixedEncoder,
    pub(super) predictor: Predictor,
    /// The prior variance of each block.
    pub(super) variances: Vec<f64>,
    /// What the last rows said beyond the model, unless that was next to nothing.
    pub(super) corrections: Option<Corrections>,
    /// How the noise varies with the inputs, if it does.
    pub(super) spread: Option<Spread>,
    /// Complete rows, where others may be incomplete.
    pub(super) donors: Option<Donors>,
    pub(super) scale: TargetScale,
    pub(super) known_noise: bool,
    pub(super) off_grid: OffGrid,
    /// For the row that came next when the snapshot was taken, and for rows ahead.
    pub(super) intervals: [Quantiles; 2],
}

impl Snapshot {
    /// What the model said about a row when the snapshot was taken, in the user's units. Off a grid that is the prior,
    /// or an error where the settings say so.
    pub fn predict(&self, x: &[f64]) -> Result<Prediction> {
        self.predict_at(x, true)
    }

    /// As [`Snapshot::predict`], for rows further ahead or elsewhere; see
    /// [`OnlineRegressor::predict_ahead`](super::OnlineRegressor::predict_ahead).
    pub fn predict_ahead(&self, x: &[f64]) -> Result<Prediction> {
        self.predict_at(x, false)
    }

    fn predict_at(&self, x: &[f64], is_next: bool) -> Result<Prediction> {
        if let Some(donors) = self.donors.as_ref().filter(|_| is_incomplete(x)) {
            let rows = donors.completed(x)?;
            let all = rows.iter().map(|x| self.predict_complete(x, is_next)).collect::<Result<Vec<_>>>()?;
            return Ok(averaged(&all));
        }
        self.predict_complete(x, is_next)
    }

    fn predict_complete(&self, x: &[f64], is_next: bool) -> Result<Prediction> {
        let h = self.encoder.encode(x)?;
        let mut p = beyond::predict(&self.predictor, &self.variances, self.off_grid, &h)?
            .with_noise_times(self.encoder.relative_noise(&h));
        if let Some(excess) = self.encoder.excess(x) {
            beyond::widen(&mut p, &excess, self.predictor.lattice(), &self.variances);
        }
        if let (Some(corrections), true) = (&self.corrections, is_next) {
            corrections.correct(&h, std::slice::from_mut(&mut p));
        }
        self.spread.iter().for_each(|spread| spread.apply(&h, &mut p));
        let mut p = self.scale.undo(p);
        if self.known_noise {
            p.noise = 0.0;
        }
        Ok(p)
    }

    /// The interval at a level around a prediction, as it was when the snapshot was taken; see
    /// [`OnlineRegressor::interval`](super::OnlineRegressor::interval).
    pub fn interval(&self, prediction: &Prediction, level: f64, horizon: Horizon) -> Result<Interval> {
        let quantiles = &self.intervals[usize::from(horizon == Horizon::Ahead)];
        Ok(Interval::around(prediction, quantiles.at(level)?))
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

/// An immutable model for joint predictions of several rows, and their gradients in the rows.
#[derive(Debug, Clone)]
pub struct RowSurface {
    pub(super) encoder: FixedEncoder,
    pub(super) surface: Surface,
    pub(super) scale: TargetScale,
    pub(super) known_noise: bool,
}

/// The joint prediction of q rows, in the user's units. Keep one and use it again: its memory stays.
#[derive(Debug, Clone, Default)]
pub struct JointRows {
    /// The latent means.
    pub mean: Vec<f64>,
    /// The latent covariance, q×q, row after row.
    pub covariance: Vec<f64>,
    /// The coordinates of the rows, and the prediction there in the units of the model.
    h: Vec<f64>,
    joint: Joint,
}

impl RowSurface {
    /// The variance of the noise of an observation; 0 where it is known for each row.
    pub fn noise(&self) -> f64 {
        if self.known_noise { 0.0 } else { self.surface.noise() * self.scale.scale.powi(2) }
    }

    /// The joint latent mean and covariance of rows given one after the other. A point off the grid is an error
    /// here: an image does not grow.
    pub fn predict(&self, x: &[f64], out: &mut JointRows) -> Result<()> {
        out.h = self.encoder.encode_all(x)?;
        self.surface.predict(&out.h, &mut out.joint)?;
        let TargetScale { shift, scale } = self.scale;
        out.mean.clear();
        out.mean.extend(out.joint.mean.iter().map(|m| shift + scale * m));
        out.covariance.clear();
        out.covariance.extend(out.joint.covariance.iter().map(|c| scale * scale * c));
        Ok(())
    }

    /// Adds to `gradient` the derivative in the rows of a function whose derivatives in the joint mean and
    /// covariance (all q² entries) are given. `joint` is the prediction at `x`.
    pub fn vjp(
        &self,
        x: &[f64],
        joint: &JointRows,
        by_mean: &[f64],
        by_covariance: &[f64],
        gradient: &mut [f64],
    ) -> Result<()> {
        length("derivatives in the mean", joint.mean.len(), by_mean.len())?;
        length("gradient", x.len(), gradient.len())?;
        let scale = self.scale.scale;
        let by_mean: Vec<f64> = by_mean.iter().map(|g| scale * g).collect();
        let by_covariance: Vec<f64> = by_covariance.iter().map(|g| scale * scale * g).collect();
        let mut by_h = vec![0.0; joint.h.len()];
        self.surface.vjp(&joint.h, &joint.joint, &by_mean, &by_covariance, &mut by_h)?;
        self.encoder.vjp_all(x, &by_h, gradient)
    }
}
