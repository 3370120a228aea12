//! One interface for the posteriors of all engines, and which engine a model uses.
//!
//! | engine | posterior | takes in a row | good for |
//! | --- | --- | --- | --- |
//! | dense | [`Posterior`], p coordinates of the prior | at once, O(p²) | p up to a few thousand |
//! | sparse | [`SparsePosterior`], precision on the grid | in steps, from the statistics | Matérn ½, and smoother kernels on a line |
//! | krylov | [`KrylovPosterior`], conjugate gradients | in steps, from the statistics | the rest, up to a million points |
//!
//! A model asks its [`GridPosterior`] and never which one it is. What is computed from statistics takes them as an
//! argument: they are not copied.

mod choice;
mod posteriors;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::evidence::Evidence;
use crate::kernel::Kernel;
pub use crate::large::Accuracy;
use crate::large::KrylovPosterior;
#[cfg(doc)]
use crate::large::SparsePosterior;
use crate::pool::Pool;
use crate::posterior::{
    Drift, FunctionSample, Posterior, Prediction, PredictionGradient, Predictor, Workspace,
};
use crate::stats::{Prepared, Stats};

/// How posteriors are computed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Engine {
    /// By predicted cost: a factorization in p coordinates while p is small; on larger grids a sparse one for
    /// Matérn ½ and conjugate gradients for the rest.
    #[default]
    Auto,
    /// A p×p factorization: exact, and conditioned in constant time.
    Dense,
    /// Conjugate gradients; see [`crate::large::krylov`].
    Krylov(Accuracy),
    /// A sparse factorization, for products of Matérn ½; see [`crate::large::sparse`].
    Sparse,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Dense => "dense",
            Self::Krylov(_) => "krylov",
            Self::Sparse => "sparse",
        })
    }
}

impl FromStr for Engine {
    type Err = Error;

    /// `auto`, `dense`, `sparse` or `krylov` (with its default accuracy).
    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "auto" => Self::Auto,
            "dense" => Self::Dense,
            "krylov" => Self::Krylov(Accuracy::default()),
            "sparse" => Self::Sparse,
            _ => {
                let reason = format!("'{text}' is not auto, dense, sparse or krylov");
                return Err(Error::Config { field: "engine".into(), reason });
            }
        })
    }
}

/// What a posterior is computed from.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// What the data said.
    pub stats: &'a Stats,
    /// A kernel for each grid.
    pub kernels: &'a [Kernel],
    /// The noise variance σ².
    pub noise: f64,
    /// Prior eigenvalues below this share of the largest are dropped.
    pub rank_tolerance: f64,
    /// Whether more of them may be dropped, as long as the data can hardly tell
    /// ([`WiskiBuilder::is_frugal`](crate::model::WiskiBuilder::is_frugal)).
    pub is_frugal: bool,
    /// What other evaluations with the same statistics have prepared.
    pub(crate) prepared: Option<&'a Prepared>,
    /// Whether an iterative engine that was not asked for may stop early: on the way of a search.
    pub(crate) is_rough: bool,
}

/// The posterior of the grid values, by any engine.
///
/// `stats` are the statistics that the posterior was computed from and has since been conditioned along with. Where a
/// method is not written for an engine, it is that of one which follows the statistics in steps and predicts from its
/// image on the one grid that it has.
pub trait GridPosterior: fmt::Debug + Send + Sync {
    /// The engine: `dense`, `sparse` or `krylov`.
    fn name(&self) -> &'static str;

    /// The number of coordinates: p, or m where there is no prior root.
    fn rank(&self) -> usize;

    /// The noise variance σ².
    fn noise(&self) -> f64;

    /// Mean and variance at one point.
    fn predict(&self, stats: &Stats, h: &[f64], _ws: &mut Workspace) -> Result<Prediction> {
        self.predictor(stats)?.predict(h)
    }

    /// Mean and variance with their gradients in the point's coordinates, into a value whose memory is used again.
    fn predict_gradient(
        &self,
        stats: &Stats,
        h: &[f64],
        _ws: &mut Workspace,
        out: &mut PredictionGradient,
    ) -> Result<()> {
        *out = self.predictor(stats)?.predict_gradient(h)?;
        Ok(())
    }

    /// What is predicted where the grid does not cover the point: the prior; of a sum of grids, that of those which
    /// do not, beside what the others say.
    fn predict_beyond(
        &self,
        kernels: &[Kernel],
        h: &[f64],
        _ws: &mut Workspace,
        out: &mut PredictionGradient,
    ) -> Result<()> {
        let variance = kernels.iter().map(Kernel::variance).sum();
        out.prediction = Prediction { mean: 0.0, variance, noise: self.noise() };
        for slopes in [&mut out.mean, &mut out.variance] {
            slopes.clear();
            slopes.resize(h.len(), 0.0);
        }
        Ok(())
    }

    /// The joint latent mean (q) and covariance (q×q, row after row) of q points given row after row.
    fn joint(&self, stats: &Stats, h: &[f64]) -> Result<(Vec<f64>, Vec<f64>)>;

    /// The immutable image on the grid, for predictions in constant time. Engines that predict from it keep it.
    fn predictor(&self, stats: &Stats) -> Result<Arc<Predictor>>;

    /// A function drawn from the posterior.
    fn sample(&self, stats: &Stats, rng: &mut dyn rand::Rng) -> Result<FunctionSample>;

    /// log p(y), computed anew from the statistics.
    fn log_evidence(&self, stats: &Stats, kernels: &[Kernel]) -> Result<f64>;

    /// The evidence with its gradient in every hyperparameter, for the kernels that the posterior was made with.
    fn evidence(&self, stats: &Stats, kernels: &[Kernel]) -> Result<Evidence>;

    /// The share of each block in the explained variance: one grid explains everything that is explained.
    fn shares(&self, _stats: &Stats) -> Vec<f64> {
        vec![1.0]
    }

    /// How many rows of a stream of n the statistics may have that the posterior has not: none, if every row is
    /// conditioned on as it comes; else a tenth, so that the work for all posteriors along the stream is some ten times
    /// that of the last.
    fn may_lag(&self, count: f64) -> usize {
        ((count / 10.0) as usize).max(16)
    }

    /// The growth of the number of rows that makes a refit worth its time, whatever the schedule: hyperparameters of
    /// thousands of rows hardly change with a tenth more of them.
    fn refit_ratio(&self) -> f64 {
        1.0
    }

    /// Along a stream: takes the variances from the posterior of `rows` rows earlier, where computing them anew would take
    /// longer than everything else.
    fn keep_variances(&mut self, _before: &dyn GridPosterior, _stats: &Stats, _rows: usize) {}

    /// Whether its answers are those of all rows that it was computed from: not if it has kept earlier variances.
    fn is_current(&self) -> bool {
        true
    }

    /// The posterior for targets in another unit, when the statistics and the scales of kernels and noise have
    /// changed to it: the covariance of the coordinates stays. False where that is no cheaper than a new one.
    fn rescale(&mut self, _given: &Given) -> Result<bool> {
        Ok(false)
    }

    /// How far recursive conditioning has drifted from the statistics, where there is any.
    fn drift(&self, _stats: &Stats, _ws: &mut Workspace) -> Option<Drift> {
        None
    }

    /// The posterior of the iterative engine, where an iteration for other hyperparameters or later rows can begin.
    fn iterated(&self) -> Option<&KrylovPosterior> {
        None
    }

    /// The posterior in the coordinates of the prior, which is conditioned on single rows; an error for an engine
    /// that follows the statistics in steps.
    fn in_coordinates(&self) -> Result<&Posterior> {
        Err(IN_STEPS)
    }

    /// As [`GridPosterior::in_coordinates`], to condition it.
    fn in_coordinates_mut(&mut self) -> Result<&mut Posterior> {
        Err(IN_STEPS)
    }

    /// Gives memory back that is no longer needed.
    fn recycle(self: Box<Self>, _pool: &mut Pool) {}

    /// A copy.
    fn boxed(&self) -> Box<dyn GridPosterior>;
}

impl Clone for Box<dyn GridPosterior> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

/// Why an operation is rejected that works in p coordinates.
const IN_STEPS: Error = Error::Unsupported {
    operation: "this operation",
    reason: "the grid is large, and its engine keeps no factor in the coordinates of the prior",
};
