//! What an optimizer is told once: the goal, and how points are proposed and models made.

use std::borrow::Cow;

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

impl Goal {
    /// What makes large values wanted: +1 for maximization, −1 for minimization.
    pub(super) fn sign(self) -> f64 {
        match self {
            Self::Maximize => 1.0,
            Self::Minimize => -1.0,
        }
    }
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

/// All settings of an [`Optimizer`](super::Optimizer); every one has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OptimizerSettings {
    /// Whether small or large values are wanted.
    pub goal: Goal,
    /// The goals of further objectives, up to two. With any, what is sought is the front of points that no other
    /// surpasses in every objective ([`Optimizer::front`](super::Optimizer::front)), by the logarithm of the expected
    /// improvement of the hypervolume that it dominates.
    pub further: Vec<Goal>,
    /// The names of constraints. Each result comes with a value for each, and only points at which none is positive
    /// count: expected improvements are multiplied by the probability of that (Gardner et al. 2014).
    pub constraints: Vec<String>,
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
            further: Vec::new(),
            constraints: Vec::new(),
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

/// The most objectives: a front of n points parts the values of three into some n²/2 cells, and of four into n³/6.
const MOST_OBJECTIVES: usize = 3;

impl OptimizerSettings {
    /// The goals of all objectives.
    pub fn goals(&self) -> impl Iterator<Item = Goal> {
        std::iter::once(self.goal).chain(self.further.iter().copied())
    }

    /// The number of objectives.
    pub(super) fn objectives(&self) -> usize {
        1 + self.further.len()
    }

    /// The number of objectives and constraints: of models.
    pub(super) fn outputs(&self) -> usize {
        self.objectives() + self.constraints.len()
    }

    /// The settings of the model of one output. Beside others a model covers the whole box: where one is best says
    /// nothing about where to look. Variances are told of the first objective alone.
    pub(super) fn of_output(&self, output: usize) -> Cow<'_, Self> {
        if self.outputs() == 1 {
            return Cow::Borrowed(self);
        }
        let known_noise = self.known_noise && output == 0;
        Cow::Owned(Self { known_noise, local: Some(false), ..self.clone() })
    }

    pub(super) fn check(&self) -> Result<()> {
        let reject = |field: &str, reason: String| Err(Error::Config { field: field.into(), reason });
        if self.initial.is_some_and(|n| n < 2) {
            return reject("initial", "a model needs at least two points to start from".into());
        }
        if self.samples == 0 {
            return reject("samples", "at least one is needed".into());
        }
        if self.objectives() > MOST_OBJECTIVES {
            let reason =
                format!("{} are too many: one to {MOST_OBJECTIVES} can be sought", self.objectives());
            return reject("objectives", reason);
        }
        for (i, name) in self.constraints.iter().enumerate() {
            if self.constraints[..i].contains(name) {
                return reject("constraints", format!("'{name}' stands for two of them"));
            }
        }
        if self.outputs() == 1 {
            return Ok(());
        }
        if self.local == Some(true) {
            let reason = "a search with constraints or several objectives looks at the whole box";
            return reject("local", reason.into());
        }
        if self.known_noise && !self.further.is_empty() {
            return reject("known_noise", "of several objectives the noise is learned".into());
        }
        let (Strategy::Joint(acquisition) | Strategy::Greedy(acquisition)) = self.strategy else {
            return reject("strategy", NO_IMPROVEMENT.into());
        };
        let is_improvement =
            matches!(acquisition, Acquisition::LogExpectedImprovement | Acquisition::ExpectedImprovement);
        let is_probability = acquisition == Acquisition::ProbabilityOfImprovement && self.further.is_empty();
        if is_improvement || is_probability { Ok(()) } else { reject("strategy", NO_IMPROVEMENT.into()) }
    }
}

const NO_IMPROVEMENT: &str =
    "with constraints or several objectives points are chosen by expected improvement";
