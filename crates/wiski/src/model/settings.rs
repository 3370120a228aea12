//! What a user may choose about an online model of raw rows; every choice has a default.

use crate::conformal::{Conformal, Score};
use crate::engine::Engine;
use crate::error::{Error, Result, length};
use crate::feature::Column;
use crate::kernel::{Kernel, MAX_DIM};
use crate::learn::{Hyperparameters, Hyperprior, Start, WarmUpTraining};
use crate::model::{DriftDetector, OffGrid, StartValue};
use serde::{Deserialize, Serialize};

/// The largest grid that can be asked for.
const LARGEST_GRID: usize = 1 << 20;

/// How rows become coordinates on the grid.
///
/// ```
/// use wiski::{Column, Features, OnlineRegressor, Settings};
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
    /// The columns themselves for one or two numeric inputs (three with 1,000 warm-up rows or more); otherwise a sum of
    /// small grids.
    Auto,
    /// A sum of small grids and, beside them, a function of all columns by inducing points
    /// ([`Points`](crate::points::Points)), where held-out rows are likelier with it.
    Points {
        /// The number of points; `None` for 512, and up to 1,024 where a stream ends with few rows.
        count: Option<usize>,
    },
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
    /// Learned: one variance for all, or one that varies with the inputs where that predicts better.
    Learned,
    /// Learned, one variance for all.
    Constant,
    /// Each observation comes with its own variance, in the units of the target squared. A classifier's targets then have
    /// exactly the noise that the likelihood says; otherwise that is the least, and how many times as much is learned.
    Known,
}

/// What is done with rows of which an input is missing: NaN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Missing {
    /// They are rejected.
    #[default]
    Reject,
    /// They are predicted and not learned: what is missing is averaged over, by values that complete rows had, with as much
    /// more variance as what follows from these is apart.
    Marginalize,
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

/// Who waits for a search for features or a refit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Upkeep {
    /// The row that brings it about: a stream leads to the same model every time.
    #[default]
    Wait,
    /// Nobody: it is done on another thread, and rows are predicted and learned as before until it is over. When that is
    /// depends on the machine, and so does what follows.
    Background,
    /// Nobody, as with `Background`; but what was found is taken in only when that is asked for
    /// ([`OnlineRegressor::attend_upkeep`](super::OnlineRegressor::attend_upkeep)). Whoever keeps a journal of rows and of
    /// these requests comes to the same model again.
    OnRequest,
}

/// How far the search or refit is that runs beside a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpkeepStage {
    /// There is none.
    Idle,
    /// It is at work.
    Running,
    /// It is done, and nobody has looked yet.
    Done,
    /// What it found is learning the rows that came meanwhile.
    CatchingUp,
}

/// Where the ends of intervals come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IntervalKind {
    /// From the predicted Gaussian distribution.
    Gaussian,
    /// From that and a controller, which keeps the share of targets inside at the level along the stream.
    Conformal,
}

/// What is promised about intervals of numbers and sets of classes; see [`internals::conformal`](crate::internals::conformal).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Intervals {
    /// Where their ends come from.
    pub kind: IntervalKind,
    /// The level that running figures are about.
    pub level: f64,
    /// Further levels that are kept along the stream. At any other one, intervals lie between those of the next levels.
    pub levels: Vec<f64>,
    /// Whether a set of classes may be empty. If not, it has at least the likeliest class.
    pub empty_sets: bool,
}

impl Default for Intervals {
    fn default() -> Self {
        let levels = vec![0.5, 0.8, 0.9, 0.95, 0.99];
        Self { kind: IntervalKind::Conformal, level: 0.95, levels, empty_sets: false }
    }
}

impl Intervals {
    /// The controller of these levels, where one is wanted.
    pub(super) fn controller(&self, classes: bool) -> Result<Option<Conformal>> {
        let mut levels = self.levels.clone();
        levels.push(self.level);
        let score = match (classes, self.empty_sets) {
            (false, _) => Score::Deviations,
            (true, false) => Score::Surprise,
            (true, true) => Score::SurpriseOrNone,
        };
        let controller = Conformal::new(&levels, score)?;
        Ok((self.kind == IntervalKind::Conformal).then_some(controller))
    }
}

/// All settings of an online model of raw rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// How rows become coordinates.
    pub features: Features,
    /// Grid points per axis: one number for all axes, or one each; none for a choice by the number of axes. For a sum
    /// of grids: the points of its one-dimensional grids.
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
    /// Without a schedule to learn them by, those that are given stay.
    pub start_values: Vec<StartValue>,
    /// When hyperparameters are learned.
    pub schedule: Schedule,
    /// Whether hyperparameters are fitted on the warm-up rows at all.
    pub fit_warm_up: bool,
    /// The reference implementation's parametrization (softplus) instead of logarithms.
    pub softplus: bool,
    /// Priors on hyperparameters, each for those whose name contains the given text, as `lengthscale`.
    pub priors: Vec<(String, Hyperprior)>,
    /// Watches standardized residuals for drift, where wanted.
    pub drift: Option<DriftDetector>,
    /// Whether predictions for the row that comes next follow change: what the last rows say beyond the model is added where
    /// that pays ([`Change`](super::Change)). The model itself does not forget by it.
    pub tracking: bool,
    /// What is promised about intervals and sets of classes.
    pub intervals: Intervals,
    /// How columns are scaled.
    pub inputs: InputScaling,
    /// How targets are scaled.
    pub targets: TargetScaling,
    /// What is known about the noise.
    pub noise: NoiseModel,
    /// What is done with rows of which an input is missing.
    #[serde(default)]
    pub missing: Missing,
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
    /// Who waits for searches and refits. No part of a file: a model that is read waits until told otherwise.
    #[serde(skip)]
    pub upkeep: Upkeep,
    /// The seed of everything random.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            features: Features::Auto,
            grid: Vec::new(),
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
            drift: Some(DriftDetector::default()),
            tracking: true,
            intervals: Intervals::default(),
            inputs: InputScaling::WarmUp,
            targets: TargetScaling::Running,
            noise: NoiseModel::Learned,
            missing: Missing::Reject,
            warm_up: None,
            start: Start::Best,
            training: WarmUpTraining { epochs: 100, rate: 0.05, feature_rate: 0.01, end_rate: 1e-4 },
            feature_rate: 1e-4,
            off_grid: OffGrid::Extend,
            max_grid_points: 1 << 14,
            engine: Engine::Auto,
            rank_tolerance: 1e-12,
            half_life: None,
            upkeep: Upkeep::Wait,
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
            grid: vec![16],
            schedule: Schedule::EveryStep { rate: rate / 10.0 },
            softplus: true,
            inputs: InputScaling::None,
            targets: TargetScaling::None,
            warm_up: Some(warm_up),
            start: Start::Random,
            training: WarmUpTraining { epochs: 200, rate, feature_rate: rate / 10.0, end_rate: 1e-4 },
            feature_rate: rate / 100.0,
            tracking: false,
            noise: NoiseModel::Constant,
            ..Self::default()
        }
    }

    /// Rejects columns that do not fit, and a sum of grids with a kernel for one grid.
    fn check_columns(&self, input_dim: usize) -> Result<()> {
        let reject =
            |field: &str, reason: &str| Err(Error::Config { field: field.into(), reason: reason.into() });
        if !self.columns.is_empty() {
            length("columns", input_dim, self.columns.len())?;
            self.columns.iter().enumerate().try_for_each(|(i, c)| c.check(i))?;
            if !self.is_additive() && self.columns.iter().any(|c| *c != Column::Numeric) {
                return reject(
                    "columns",
                    "periodic and categorical columns need a sum of grids: the features 'auto' or 'additive'",
                );
            }
        }
        if let Some(other) = self.start_values.iter().find(|s| self.is_additive() && s.name != "noise") {
            return reject(&other.name, "of a sum of grids only the noise can be given");
        }
        if self.noise == NoiseModel::Known && self.start_values.iter().any(|s| s.name == "noise") {
            return reject("noise", "it is known for each row");
        }
        if self.is_additive() && self.kernel.is_some() {
            return reject("kernel", "a sum of grids has a kernel for each, chosen by its columns");
        }
        if let Features::Additive { directions: Some(0) } = self.features {
            return reject("features", "a sum of grids needs at least one direction");
        }
        Ok(())
    }

    /// Rejects settings that describe no model of rows with D columns.
    pub(crate) fn check(&self, input_dim: usize) -> Result<()> {
        let reject = |field: &str, reason: String| Err(Error::Config { field: field.into(), reason });
        let k = self.axes(input_dim);
        if input_dim == 0 {
            return reject("inputs", "a model needs at least one input column".into());
        }
        if k == 0 || k > MAX_DIM {
            let hint = "project them, for example to 2";
            return reject("features", format!("a grid has 1 to {MAX_DIM} axes, not {k}; {hint}"));
        }
        self.check_columns(input_dim)?;
        let grid = self.first_grid(input_dim);
        if grid.len() != 1 && grid.len() != k {
            return reject("grid", format!("{} numbers of points were given for {k} axes", grid.len()));
        }
        let points: f64 = (0..k).map(|i| grid[i.min(grid.len() - 1)] as f64).product();
        let limit = self.max_grid_points.max(LARGEST_GRID);
        if points > limit as f64 {
            return reject("grid", format!("{points} points are more than the {limit} that are allowed"));
        }
        if let Some(kernel) = &self.kernel {
            length("axes of the kernel", k, kernel.dim())?;
        }
        if let InputScaling::Bounds(bounds) = &self.inputs {
            length("bounds", input_dim, bounds.len())?;
            for (i, (lo, hi)) in bounds.iter().enumerate() {
                if !(lo < hi && (hi - lo).is_finite()) {
                    return reject("bounds", format!("column {i}: [{lo}, {hi}] is not an interval"));
                }
            }
        }
        let kernels = vec![self.start_kernel(input_dim)?];
        self.hyper_space(&Hyperparameters { kernels, noise: self.initial_noise })?;
        let positive_setting = |field: &str, value: f64, above: f64| {
            if value.is_finite() && value > above {
                Ok(())
            } else {
                reject(field, format!("{value} is not above {above}"))
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
        self.intervals.controller(false)?;
        if !(self.feature_rate >= 0.0 && self.feature_rate.is_finite()) {
            return reject("feature rate", format!("{} is not a learning rate", self.feature_rate));
        }
        Ok(())
    }
}
