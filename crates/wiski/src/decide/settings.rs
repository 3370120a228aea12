//! What an optimizer is told once: the goal, and how points are proposed and models made.

use serde::{Deserialize, Serialize};

use super::{Acquisition, Maximizer};
use crate::error::{Error, Result};
use crate::kernel::Family;
use crate::learn::Hyperprior;
use crate::model::Schedule;

/// Whether small or large values are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Goal {
    /// The smallest value.
    #[default]
    #[serde(alias = "Minimise")]
    Minimize,
    /// The largest value.
    #[serde(alias = "Maximise")]
    Maximize,
}

/// How points are proposed after the initial design.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Strategy {
    /// By a criterion; several points are found together, if it can judge several
    /// ([`Acquisition::is_joint`]), and one after the other otherwise.
    Joint(Acquisition),
    /// By a criterion; several points are found one after the other, each given those before it.
    Greedy(Acquisition),
    /// Thompson sampling: each point is the best of a function drawn from the posterior.
    Thompson,
}

impl Default for Strategy {
    fn default() -> Self {
        Self::Joint(Acquisition::LogExpectedImprovement)
    }
}

/// All settings of an [`Optimizer`]; every one has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OptimizerSettings {
    /// Whether small or large values are wanted.
    pub goal: Goal,
    /// How points are proposed.
    pub strategy: Strategy,
    /// The number of points of the initial design; `None` for twice the dimensions plus three.
    pub initial: Option<usize>,
    /// Up to so many results the model is an exact process, without a grid: it sees every detail, each point that
    /// a criterion looks at costs as the square of the results and each fit as their cube. Beyond, grids take over,
    /// in constant time; 500 results is where both cost about the same. A function that is too rough for the grid,
    /// and almost without noise, keeps the exact process for twice as many. RBF and Matérn kernels only; with `local` set to true grids are used from the
    /// start.
    pub exact_until: usize,
    /// Grid points per axis; `None` for a choice by the number of dimensions. In more than four: of the grids of
    /// pairs.
    pub grid: Option<usize>,
    /// Prior eigenvalues below this share of the largest are dropped.
    pub rank_tolerance: f64,
    /// Whether a search on grids closes in on the best point, with a grid that becomes finer as it does; `None` for
    /// more than four dimensions, and where the grid is too coarse for what the exact process has seen. Closer to the optimum in the end, and more easily caught in a basin.
    pub local: Option<bool>,
    /// The kernel's family on each axis.
    pub family: Family,
    /// Priors on hyperparameters by name, in units of the unit cube and of standardized values.
    pub priors: Vec<(String, Hyperprior)>,
    /// When hyperparameters are learned.
    pub schedule: Schedule,
    /// Whether each result comes with its own noise variance.
    pub known_noise: bool,
    /// Samples for criteria of several points.
    pub samples: usize,
    /// How hard the criterion is maximized.
    #[serde(alias = "maximiser")]
    pub maximizer: Maximizer,
    /// The seed of everything random.
    pub seed: u64,
}

impl Default for OptimizerSettings {
    /// Matérn 5/2 with the priors that the paper's experiments use, and a weak one on the noise, which without
    /// any can get stuck at nothing when the first few results are fitted.
    fn default() -> Self {
        Self {
            goal: Goal::default(),
            strategy: Strategy::default(),
            initial: None,
            exact_until: 500,
            grid: None,
            // Of a standardized value that leaves out some 10⁻⁵ of the variance.
            rank_tolerance: 1e-6,
            local: None,
            family: Family::Matern52,
            priors: vec![
                ("lengthscale".into(), Hyperprior::Gamma { shape: 3.0, rate: 6.0 }),
                ("outputscale".into(), Hyperprior::Gamma { shape: 2.0, rate: 0.15 }),
                ("noise".into(), Hyperprior::LogNormal { mu: -4.0, sigma: 2.0 }),
            ],
            schedule: Schedule::Geometric { ratio: 1.1 },
            known_noise: false,
            samples: 128,
            maximizer: Maximizer::default(),
            seed: 0,
        }
    }
}

impl OptimizerSettings {
    pub(super) fn check(&self) -> Result<()> {
        if self.initial.is_some_and(|n| n < 2) {
            let reason = "a model needs at least two points to start from".into();
            return Err(Error::Config { field: "initial".into(), reason });
        }
        if self.samples == 0 {
            return Err(Error::Config { field: "samples".into(), reason: "at least one is needed".into() });
        }
        Ok(())
    }
}
