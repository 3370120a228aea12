//! Models: the interface that every online Gaussian process shares, [`Wiski`], the one on a grid, and models of raw rows with
//! the parts of their settings, their answers and their scores.

mod beyond;
mod builder;
mod classification;
mod classifier;
mod coming;
mod corrections;
mod defaults;
mod encoder;
mod files;
mod filter;
mod fresh;
mod guard;
mod labels;
mod learner;
mod memory;
mod metrics;
mod missing;
mod online;
mod reader;
mod recurring;
mod regression;
mod regressor;
mod relative_noise;
mod relevance;
mod remarks;
mod sample;
mod schedule;
mod settings;
mod shape;
mod snapshots;
mod spread;
mod stacking;
mod start;
mod stream;
mod stuck;
mod successor;
mod tails;
mod targets;
mod task;
mod text;
mod units;
mod upkeep;
mod wiski;

use crate::error::{Result, length};
use crate::posterior::Prediction;

pub use crate::feature::{FeatureMap, Scaling};
pub use builder::{OffGrid, WiskiBuilder};
pub use classification::{ClassPrediction, ClassSnapshot};
pub use classifier::OnlineClassifier;
pub use coming::ROWS_TOGETHER;
pub use corrections::Change;
pub(crate) use encoder::FixedEncoder;
pub use encoder::{ColumnScaling, Encoder, Reads};
pub use labels::{Classes, Unseen};
pub(crate) use learner::{Learner, Process, RowTargets};
pub use metrics::{ConfidenceBin, Coverage, DriftDetector, Prequential, PrequentialClasses, Z95};
pub use reader::Reader;
pub use recurring::Recurring;
pub use regressor::{BlockSummary, OnlineRegressor};
pub use remarks::Remark;
pub(crate) use schedule::{Fading, brief};
pub use settings::{
    Features, HalfLife, InputScaling, IntervalKind, Intervals, Missing, NoiseModel, Schedule, Settings,
    TargetScaling, Upkeep, UpkeepStage,
};
pub(crate) use shape::{ModelShape, TargetSums};
pub use snapshots::{JointRows, RowSurface, SampledFunction, Snapshot};
pub use targets::TargetScale;
pub use units::{StartValue, in_user_units};
pub use wiski::Wiski;

/// What became of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was learned.
    Learned,
    /// It lies off the grid of a model that answers there with the prior; nothing was learned.
    OffGrid,
    /// An input was missing ([`Missing::Marginalize`]); nothing was learned.
    Incomplete,
}

/// A Gaussian process that learns one observation at a time.
///
/// Predicting never changes a model.
pub trait OnlineGp {
    /// The number of input columns.
    fn input_dim(&self) -> usize;

    /// The number of observations learned, or the sum of their weights where old ones fade.
    fn count(&self) -> f64;

    /// What the model says about the point `x` now.
    fn predict(&self, x: &[f64]) -> Result<Prediction>;

    /// Learns an observation whose noise variance is `noise` times the model's σ².
    fn observe_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome>;

    /// The log marginal likelihood of everything learned.
    fn log_evidence(&mut self) -> Result<f64>;

    /// Learns an observation.
    fn observe(&mut self, x: &[f64], y: f64) -> Result<Outcome> {
        self.observe_noisy(x, y, 1.0)
    }

    /// Predicts, then learns: one step of a prequential evaluation. Returns the prediction made before
    /// `y` was seen.
    fn step(&mut self, x: &[f64], y: f64) -> Result<Prediction> {
        let prediction = self.predict(x)?;
        self.observe(x, y)?;
        Ok(prediction)
    }

    /// Learns many observations, given row after row; returns how many were learned.
    fn observe_batch(&mut self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<usize> {
        length("x", y.len() * self.input_dim(), x.len())?;
        let mut learned = 0;
        for (row, (point, &y)) in x.chunks_exact(self.input_dim()).zip(y).enumerate() {
            let outcome = self.observe_noisy(point, y, noise.map_or(1.0, |d| d[row]))?;
            learned += usize::from(outcome == Outcome::Learned);
        }
        Ok(learned)
    }

    /// Means and latent variances of many points, given row after row.
    fn predict_batch(&self, x: &[f64], mean: &mut [f64], variance: &mut [f64]) -> Result<()> {
        length("x", mean.len() * self.input_dim(), x.len())?;
        length("variance", mean.len(), variance.len())?;
        for (row, point) in x.chunks_exact(self.input_dim()).enumerate() {
            let prediction = self.predict(point)?;
            mean[row] = prediction.mean;
            variance[row] = prediction.variance;
        }
        Ok(())
    }
}
