//! Inducing points learned on rows in memory, beside given grid features.
//!
//! f(x) = grids + g(x), where g ~ GP(0, s κ) has a radial kernel κ with a length-scale ℓ_k for each column. M centers Z
//! stand for it: features w(x) = L⁻¹κ_Z(x) with L Lᵀ = κ(Z, Z), what they leave ρ(x) = 1 − ‖w(x)‖². Centers,
//! length-scales, scales and noise maximize, summed over outputs,
//!
//! ```text
//! log evidence of the linear model on [√c_j Φ_j, √s w] − s/(2σ²) Σ_i ρ(x_i)/d_i + log priors
//! ```
//!
//! the collapsed bound of Titsias (2009) on the evidence of g, exact for the grids. With Z = X it is the evidence.
//!
//! | file | what it does |
//! | --- | --- |
//! | `data`, `patterns` | rows, checked and in standardized units; rows that share their noise |
//! | `radial`, `tiles` | kernels; the two passes over the rows, in tiles, by threads, in one of two precisions |
//! | `bound`, `whole`, `fit` | the bound from sums; the evidence where all rows are centers; everything together as an objective |
//! | `start`, `search` | where to start; small start, k-means, full-batch steps |
//! | `posterior` | predictions and held-out densities |
//!
//! One evaluation with n rows, M centers and p features in all costs n (M²/2 + p²/2 + p M + 2 M D) multiply-adds and
//! O(p³) for each output; many classes cost no more passes over the rows than one target (see `patterns`). It keeps
//! n (p + M) numbers, in single precision by default.
//!
//! ```
//! use wiski::internals::learn::points::{PointsNoise, PointsOutput, PointsRows, PointsSearch};
//!
//! let x: Vec<f64> = (0..200).map(|i| (f64::from(i) * 0.7548).fract()).collect();
//! let y: Vec<f64> = x.chunks(2).map(|x| (6.0 * x[0] * x[1]).sin() - 0.5).collect();
//! let outputs = [PointsOutput { targets: &y, relative_noise: None, noise: PointsNoise::Learned }];
//! let rows = PointsRows { x: &x, dim: 2, outputs: &outputs, grids: None };
//! let search = PointsSearch { points: 20, ..PointsSearch::default() };
//! let learned = search.run(&rows, &mut |_| true)?;
//! assert_eq!((learned.len(), learned.lengthscales.len()), (20, 2));
//! let there = learned.posterior(&rows, 1)?.predict(&rows)?;
//! assert!((there[0][7].mean - y[7]).abs() < 0.1);
//! # Ok::<(), wiski::Error>(())
//! ```

mod algebra;
mod bound;
mod data;
mod fit;
mod patterns;
mod posterior;
mod radial;
mod search;
mod start;
#[cfg(test)]
mod tests;
mod tiles;
mod whole;

use serde::{Deserialize, Serialize};

use super::Hyperprior;
use crate::kernel::Family;

pub use data::{GridFeatures, PointsNoise, PointsOutput, PointsRows};
pub use posterior::PointsPosterior;

/// The numbers of the large products. Kernels, sums and factorizations are in double precision either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precision {
    /// 32 bits: half the time and memory.
    Single,
    /// 64 bits.
    Double,
}

/// A start of the length-scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PointsStart {
    /// All columns alike, √D of their deviations.
    Even,
    /// Shorter for columns that explain more of the targets by themselves.
    Relevance,
    /// All columns alike and four times as long: nearly linear functions.
    Long,
}

/// Log priors, added to the bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PointsPriors {
    /// The median of a length-scale, in deviations of its column, for one column. It grows with the root of the
    /// number of columns, so that many irrelevant ones stay irrelevant.
    pub lengthscale_median: f64,
    /// The deviation of log ℓ.
    pub lengthscale_sigma: f64,
    /// The scale s, in units of the targets' mean square.
    pub scale: Hyperprior,
    /// The factor c_j of a group of grid features.
    pub group_scale: Hyperprior,
}

impl Default for PointsPriors {
    fn default() -> Self {
        Self {
            lengthscale_median: 6.0,
            lengthscale_sigma: 1.0,
            scale: Hyperprior::Gamma { shape: 1.5, rate: 0.5 },
            group_scale: Hyperprior::Gamma { shape: 1.1, rate: 0.1 },
        }
    }
}

/// How long and how fast Adam runs on all rows at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PointsTraining {
    /// The largest number of steps.
    pub steps: usize,
    /// The first rate.
    pub rate: f64,
    /// The last rate, reached along half a cosine.
    pub end_rate: f64,
}

/// The search for inducing points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointsSearch {
    /// The largest number M of centers. With no more distinct rows than that, each is a center.
    pub points: usize,
    /// The kernel: RBF or one of the Matérn families.
    pub family: Family,
    /// A smoother kernel that takes its place if held-out rows are clearly likelier under it.
    pub smoother: Option<Family>,
    /// The starts that compete by held-out density.
    pub starts: Vec<PointsStart>,
    /// Whether length-scales keep the ratios of their start, so that one number is learned for all of them: what few rows
    /// for many columns can bear.
    pub tied: bool,
    /// Centers of the small start.
    pub start_points: usize,
    /// Rows of the small start.
    pub start_rows: usize,
    /// Steps of the small start.
    pub start_training: PointsTraining,
    /// Rows on which starts are compared; never more than a quarter of all.
    pub held_out_rows: usize,
    /// Steps on all rows.
    pub training: PointsTraining,
    /// Training ends when ten steps have gained less than ten times this much log density a row.
    pub least_gain: f64,
    /// Log priors.
    pub priors: PointsPriors,
    /// Added to the diagonal of κ(Z, Z).
    pub jitter: f64,
    /// The precision of the large products.
    pub precision: Precision,
    /// The largest number of threads, of those that the machine has. Results do not depend on it.
    pub threads: usize,
    /// The seed of random choices.
    pub seed: u64,
}

impl Default for PointsSearch {
    fn default() -> Self {
        Self {
            points: 512,
            family: Family::Matern32,
            smoother: Some(Family::Rbf),
            starts: vec![PointsStart::Even, PointsStart::Relevance],
            tied: false,
            start_points: 128,
            start_rows: 2048,
            start_training: PointsTraining { steps: 100, rate: 0.1, end_rate: 0.01 },
            held_out_rows: 1024,
            training: PointsTraining { steps: 80, rate: 0.1, end_rate: 0.005 },
            least_gain: 1e-5,
            priors: PointsPriors::default(),
            jitter: 1e-6,
            precision: Precision::Single,
            threads: usize::MAX,
            seed: 0,
        }
    }
}

/// What a search is doing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum PointsStage {
    /// A small start.
    Start(PointsStart),
    /// Steps on all rows.
    Training,
}

/// How far a search has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PointsProgress {
    /// What it is doing.
    pub stage: PointsStage,
    /// The steps of this stage that are done.
    pub step: usize,
    /// The largest number of steps of this stage.
    pub steps: usize,
    /// The bound on the log evidence, per row of this stage.
    pub bound: f64,
    /// The share of the work that is done, of what may be needed at most.
    pub fraction: f64,
}

/// One evaluation of a search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PointsRecord {
    /// The stage.
    pub stage: PointsStage,
    /// The step within the stage.
    pub step: usize,
    /// The bound per row of the stage.
    pub bound: f64,
}

/// Centers, length-scales, scales and noise of a block of inducing points, in the units of the rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearnedPoints {
    /// The kernel.
    pub family: Family,
    /// The centers, one after the other.
    pub centers: Vec<f64>,
    /// ℓ of each column.
    pub lengthscales: Vec<f64>,
    /// s of each output.
    pub scales: Vec<f64>,
    /// σ² of each output.
    pub noises: Vec<f64>,
    /// c_j of each output.
    pub group_scales: Vec<Vec<f64>>,
    /// What was added to the diagonal of κ(Z, Z).
    pub jitter: f64,
    /// The bound on the log evidence of all rows, summed over outputs.
    pub bound: f64,
    /// The mean held-out log density of each small start that was tried.
    pub starts: Vec<(PointsStart, f64)>,
    /// The bound at every evaluation.
    pub history: Vec<PointsRecord>,
    /// Floating-point operations of the whole search, two for a multiply-add.
    pub flops: f64,
    /// Whether the search came to its end; not if it was told to stop.
    pub finished: bool,
}

impl LearnedPoints {
    /// The number M of centers.
    pub fn len(&self) -> usize {
        self.centers.len() / self.lengthscales.len().max(1)
    }

    /// Whether there are no centers.
    pub fn is_empty(&self) -> bool {
        self.centers.is_empty()
    }
}
