//! What a user may choose about an online model of raw rows; every choice has a default.

use crate::error::{Error, Result, length};
use crate::feature::Column;
use crate::kernel::{Family, Kernel, MAX_DIM};
use crate::large::Engine;
use crate::learn::{HyperSpace, Hyperparameters, Hyperprior, Start, WarmUpTraining};
use crate::model::{DriftDetector, OffGrid, StartValue};
use serde::{Deserialize, Serialize};

/// The largest grid that can be asked for.
const LARGEST_GRID: usize = 1 << 20;

/// How rows become coordinates on the grid.
///
/// ```
/// use wiski::{Features, OnlineRegressor, Settings, feature::Column};
///
/// // A temperature, an hour of the day and one of three stations: a sum of small grids.
/// let columns = vec![
///     Column::Numeric,
///     Column::Periodic { period: 24.0 },
///     Column::Categorical { levels: 3, ordered: false },
/// ];
/// let mut model = OnlineRegressor::new(3, Settings { features: Features::Auto, columns, ..Settings::default() })?;
/// for i in 0..400 {
///     let (t, hour, station) = ((0.37 * i as f64).sin(), (i % 24) as f64, (i % 3) as f64);
///     model.step(&[t, hour, station], t * t + (hour / 24.0 * 6.2832).cos() + station)?;
/// }
/// let p = model.predict(&[0.5, 12.0, 1.0])?;
/// assert!((p.mean - 0.25).abs() < 0.05);
/// # Ok::<(), wiski::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Features {
    /// The columns themselves for one or two numeric inputs (three with 1,000 warm-up rows or more), a sum of
    /// small grids otherwise.
    Auto,
    /// A sum of small grids, f(x) = Σ_j f_j: one for the ridge direction, one for every column, some for pairs
    /// of columns that interact; directions are learned where the rows can carry it
    /// ([`AdditiveSearch`](crate::learn::AdditiveSearch)).
    Additive {
        /// The number of directions through the numeric columns; `None` for a choice by their number.
        directions: Option<usize>,
    },
    /// The columns themselves, each scaled to about [−1, 1]: for one to four inputs.
    Identity,
    /// A learned linear projection with streaming batch-norm and tanh.
    Project {
        /// The number of features, one to four.
        outputs: usize,
    },
    /// A multi-layer perceptron with the same head.
    Mlp {
        /// The widths of the hidden layers.
        hidden: Vec<usize>,
        /// The number of features, one to four.
        outputs: usize,
    },
}

/// The priors of a sum of grids, unless others are given: a scale is exponential, so that the many blocks that
/// are of no use shrink towards nothing, and a length-scale is probably not much below the width of its grid,
/// since a wiggly effect of few rows is noise.
const RELEVANCE: [(&str, Hyperprior); 2] = [
    ("outputscale", Hyperprior::Gamma { shape: 1.0, rate: 1.0 }),
    ("lengthscale", Hyperprior::LogNormal { mu: 0.5, sigma: 0.7 }),
];

/// The smallest eigenvalue cut-off of a sum of grids.
const ADDITIVE_TOLERANCE: f64 = 1e-6;

/// How columns are scaled before the feature map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum InputScaling {
    /// Not at all: rows come scaled to about [−1, 1].
    None,
    /// Each column from its declared interval to [−1, 1].
    Bounds(Vec<(f64, f64)>),
    /// From the warm-up rows: their range for the identity, their mean and deviation for learned maps.
    WarmUp,
}

/// How targets are scaled inside the model. Predictions are always in the user's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetScaling {
    /// Not at all: targets come with mean about 0 and variance about 1.
    None,
    /// By the running mean and deviation; a change is applied to the statistics exactly.
    Running,
}

/// What is known about the noise of observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoiseModel {
    /// One variance for all, learned.
    Learned,
    /// Each observation comes with its own variance, in the units of the target squared.
    Known,
}

/// When hyperparameters are learned.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Schedule {
    /// One Adam step for every observation, as in the paper.
    EveryStep {
        /// The learning rate of kernel and noise.
        rate: f64,
    },
    /// A few quasi-Newton steps whenever the number of observations has grown by this ratio. A new
    /// observation says O(1/n) about the hyperparameters, so this is as good for O(log n) of the work.
    Geometric {
        /// The growth between two refits, above 1.
        ratio: f64,
    },
    /// Never after the warm-up.
    Off,
}

/// The time after which an observation counts half.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum HalfLife {
    /// In rows.
    Rows(f64),
    /// In the unit of the times given with the rows.
    Time(f64),
}

/// All settings of an online model of raw rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// How rows become coordinates.
    pub features: Features,
    /// Grid points per axis: one number for all axes, or one each. For a sum of grids: the points of
    /// its one-dimensional grids.
    pub grid: Vec<usize>,
    /// What the columns mean; empty if all are numeric. Other kinds need [`Features::Auto`] or
    /// [`Features::Additive`].
    pub columns: Vec<Column>,
    /// The number of rows from which the blocks and directions of a sum of grids are learned. The first rows are
    /// kept until there are so many, and features are learned anew from all of them at a quarter and at the end;
    /// then they stand and no row is kept.
    pub memory: usize,
    /// Interactions are added to a sum of grids while its rank stays within this. A row costs 3p².
    pub rank_budget: usize,
    /// The kernel on the grid; without one, an RBF with a length-scale per axis.
    pub kernel: Option<Kernel>,
    /// The start value of the noise variance, in units of the scaled target.
    pub initial_noise: f64,
    /// Where hyperparameters start, or stay, in the units of the data. Of a sum of grids only the noise can be given.
    pub start_values: Vec<StartValue>,
    /// When hyperparameters are learned.
    pub schedule: Schedule,
    /// Whether hyperparameters are fitted on the warm-up rows at all.
    pub fit_warm_up: bool,
    /// The reference implementation's parametrisation (softplus) instead of logarithms.
    pub softplus: bool,
    /// Priors on hyperparameters, each for those whose name contains the given text, as `lengthscale`.
    pub priors: Vec<(String, Hyperprior)>,
    /// Watches standardised residuals for drift, where wanted.
    pub drift: Option<DriftDetector>,
    /// How columns are scaled.
    pub inputs: InputScaling,
    /// How targets are scaled.
    pub targets: TargetScaling,
    /// What is known about the noise.
    pub noise: NoiseModel,
    /// The number of rows that are kept in memory to start from; `None` for a choice by the number of inputs.
    pub warm_up: Option<usize>,
    /// Where a projection starts.
    pub start: Start,
    /// How a learned map is trained on the warm-up rows. A sum of grids, whose epochs cost more, anneals over half
    /// as many at twice the rate of the features, and ends at half of these at the latest.
    pub training: WarmUpTraining,
    /// The learning rate of a learned map along the stream; 0 keeps it as it is after the warm-up.
    pub feature_rate: f64,
    /// What to do with points off the grid.
    pub off_grid: OffGrid,
    /// The largest number of points to which a grid may grow by itself. One that is asked for may have up to a
    /// million.
    pub max_grid_points: usize,
    /// How posteriors are computed: by the size of the grid and the kernel, unless told otherwise.
    pub engine: Engine,
    /// Prior eigenvalues below this share of the largest are dropped.
    pub rank_tolerance: f64,
    /// Exponential forgetting.
    pub half_life: Option<HalfLife>,
    /// The seed of everything random.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            features: Features::Identity,
            grid: vec![16],
            columns: Vec::new(),
            memory: 8192,
            rank_budget: 768,
            kernel: None,
            initial_noise: std::f64::consts::LN_2,
            start_values: Vec::new(),
            schedule: Schedule::Geometric { ratio: 1.1 },
            fit_warm_up: true,
            softplus: false,
            priors: Vec::new(),
            drift: None,
            inputs: InputScaling::WarmUp,
            targets: TargetScaling::Running,
            noise: NoiseModel::Learned,
            warm_up: None,
            start: Start::Best,
            training: WarmUpTraining { epochs: 100, rate: 0.05, feature_rate: 0.01, end_rate: 1e-4 },
            feature_rate: 1e-4,
            off_grid: OffGrid::Extend,
            max_grid_points: 1 << 14,
            engine: Engine::Auto,
            rank_tolerance: 1e-12,
            half_life: None,
            seed: 0,
        }
    }
}

impl Settings {
    /// The paper's way: a random projection to two features, learned with one Adam step for every
    /// observation, on inputs and targets that come scaled. `rate` is its η (0.05 or 0.01 by data set).
    pub fn paper(rate: f64, warm_up: usize) -> Self {
        Self {
            features: Features::Project { outputs: 2 },
            schedule: Schedule::EveryStep { rate: rate / 10.0 },
            softplus: true,
            inputs: InputScaling::None,
            targets: TargetScaling::None,
            warm_up: Some(warm_up),
            start: Start::Random,
            training: WarmUpTraining { epochs: 200, rate, feature_rate: rate / 10.0, end_rate: 1e-4 },
            feature_rate: rate / 100.0,
            ..Self::default()
        }
    }

    /// These settings with [`Features::Auto`] decided for rows of D columns.
    pub(crate) fn resolved(mut self, input_dim: usize) -> Self {
        if self.features == Features::Auto {
            let numeric = self.columns.iter().all(|c| *c == Column::Numeric);
            let largest = if self.warm_up.is_some_and(|rows| rows >= 1000) { 3 } else { 2 };
            self.features = if numeric && input_dim <= largest {
                Features::Identity
            } else {
                Features::Additive { directions: None }
            };
        }
        self
    }

    /// Whether the model is a sum of grids.
    pub(crate) fn is_additive(&self) -> bool {
        matches!(self.features, Features::Additive { .. } | Features::Auto)
    }

    /// What each of D columns means.
    pub(crate) fn column_kinds(&self, input_dim: usize) -> Vec<Column> {
        if self.columns.is_empty() { vec![Column::Numeric; input_dim] } else { self.columns.clone() }
    }

    /// The eigenvalue cut-off. A sum of grids spends its rank on many blocks, so it drops what is below 10⁻⁶.
    pub(crate) fn tolerance(&self) -> f64 {
        if self.is_additive() { self.rank_tolerance.max(ADDITIVE_TOLERANCE) } else { self.rank_tolerance }
    }

    /// The number of coordinates for rows of D columns; for a sum of grids, of its smallest grids.
    pub(crate) fn outputs(&self, input_dim: usize) -> usize {
        match self.features {
            Features::Auto | Features::Additive { .. } => 1,
            Features::Identity => input_dim,
            Features::Project { outputs } | Features::Mlp { outputs, .. } => outputs,
        }
    }

    /// The number of warm-up rows for rows of D columns.
    pub(crate) fn warm_up_rows(&self, input_dim: usize) -> usize {
        let automatic = match self.features {
            Features::Identity => 50,
            Features::Additive { .. } => (15 * input_dim).max(300),
            _ => (15 * input_dim).max(200),
        };
        self.warm_up.unwrap_or(automatic).max(2)
    }

    /// The kernel to start from, without start values.
    pub(super) fn plain_kernel(&self, input_dim: usize) -> Result<Kernel> {
        match &self.kernel {
            Some(kernel) => Ok(kernel.clone()),
            None => Kernel::new(Family::Rbf, self.outputs(input_dim)),
        }
    }

    /// The kernel to start from.
    pub(crate) fn start_kernel(&self, input_dim: usize) -> Result<Kernel> {
        let mut kernel = self.plain_kernel(input_dim)?;
        let (names, mut parameters) = (Self::names(&kernel), kernel.parameters());
        for start in &self.start_values {
            for (i, value) in start.places(&names)? {
                if let Some(parameter) = parameters.get_mut(i) {
                    *parameter = value;
                }
            }
        }
        kernel.set_parameters(&parameters)?;
        Ok(kernel)
    }

    /// How the given hyperparameters are learned.
    pub(crate) fn hyper_space(&self, hyper: &Hyperparameters) -> Result<HyperSpace> {
        let mut space = HyperSpace::new(hyper);
        if self.softplus {
            space = space.softplus();
        }
        if self.noise == NoiseModel::Known {
            space = space.with_known_noise();
        }
        if self.is_additive() {
            for (name, prior) in RELEVANCE {
                space = space.with_prior(name, prior)?;
            }
        }
        for start in self.start_values.iter().filter(|start| start.fixed) {
            // A sum of grids has its noise at the end, as one grid has.
            let names: Vec<String> = hyper.named().into_iter().map(|(name, _)| name).collect();
            for (i, value) in start.places(&names)? {
                space = space.with_fixed(i, value)?;
            }
        }
        self.priors.iter().try_fold(space, |space, (name, prior)| space.with_prior(name, *prior))
    }

    /// Refuses columns that do not fit, and a sum of grids with a kernel for one grid.
    fn check_columns(&self, input_dim: usize) -> Result<()> {
        let refuse =
            |field: &str, reason: &str| Err(Error::Config { field: field.into(), reason: reason.into() });
        if !self.columns.is_empty() {
            length("columns", input_dim, self.columns.len())?;
            self.columns.iter().enumerate().try_for_each(|(i, c)| c.check(i))?;
            if !self.is_additive() && self.columns.iter().any(|c| *c != Column::Numeric) {
                return refuse(
                    "features",
                    "columns that repeat or are levels need a sum of grids (additive, or auto)",
                );
            }
        }
        if let Some(other) = self.start_values.iter().find(|s| self.is_additive() && s.name != "noise") {
            return refuse(&other.name, "of a sum of grids only the noise can be given");
        }
        if self.noise == NoiseModel::Known && self.start_values.iter().any(|s| s.name == "noise") {
            return refuse("noise", "it is known for each row");
        }
        if self.is_additive() && self.kernel.is_some() {
            return refuse("kernel", "a sum of grids has a kernel for each, chosen by its columns");
        }
        if let Features::Additive { directions: Some(0) } = self.features {
            return refuse("features", "a sum of grids needs at least one direction");
        }
        Ok(())
    }

    /// Refuses settings that describe no model of rows with D columns.
    pub(crate) fn check(&self, input_dim: usize) -> Result<()> {
        let refuse = |field: &str, reason: String| Err(Error::Config { field: field.into(), reason });
        let k = self.outputs(input_dim);
        if input_dim == 0 {
            return refuse("inputs", "a model needs at least one input column".into());
        }
        if k == 0 || k > MAX_DIM {
            let hint = "project them, for example to 2";
            return refuse("features", format!("a grid has 1 to {MAX_DIM} axes, not {k}; {hint}"));
        }
        self.check_columns(input_dim)?;
        if self.grid.len() != 1 && self.grid.len() != k {
            return refuse("grid", format!("{} numbers of points were given for {k} axes", self.grid.len()));
        }
        let points: f64 = (0..k).map(|i| self.grid[i.min(self.grid.len() - 1)] as f64).product();
        let limit = self.max_grid_points.max(LARGEST_GRID);
        if points > limit as f64 {
            return refuse("grid", format!("{points} points are more than the {limit} that are allowed"));
        }
        if let Some(kernel) = &self.kernel {
            length("axes of the kernel", k, kernel.dim())?;
        }
        if let InputScaling::Bounds(bounds) = &self.inputs {
            length("bounds", input_dim, bounds.len())?;
            for (i, (lo, hi)) in bounds.iter().enumerate() {
                if !(lo < hi && (hi - lo).is_finite()) {
                    return refuse("bounds", format!("column {i}: [{lo}, {hi}] is not an interval"));
                }
            }
        }
        let kernels = vec![self.start_kernel(input_dim)?];
        self.hyper_space(&Hyperparameters { kernels, noise: self.initial_noise })?;
        let positive_setting = |field: &str, value: f64, above: f64| {
            if value.is_finite() && value > above {
                Ok(())
            } else {
                refuse(field, format!("{value} is not above {above}"))
            }
        };
        positive_setting("initial noise", self.initial_noise, 0.0)?;
        match self.schedule {
            Schedule::EveryStep { rate } => positive_setting("learning rate", rate, 0.0)?,
            Schedule::Geometric { ratio } => positive_setting("growth ratio", ratio, 1.0)?,
            Schedule::Off => {}
        }
        match self.half_life {
            Some(HalfLife::Rows(life) | HalfLife::Time(life)) => positive_setting("half-life", life, 0.0)?,
            None => {}
        }
        if !(self.feature_rate >= 0.0 && self.feature_rate.is_finite()) {
            return refuse("feature rate", format!("{} is not a learning rate", self.feature_rate));
        }
        Ok(())
    }
}
