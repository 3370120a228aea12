//! Everything that is left to the model: what a user who says nothing gets, decided here and nowhere else.
//!
//! | choice | default |
//! | --- | --- |
//! | features | the columns themselves for one or two numeric inputs (three with 1,000 warm-up rows or more); otherwise a sum of small grids and, if held-out rows are likelier with them, 512 inducing points over all columns (up to 1,024 where a stream ends with few rows) |
//! | effects of single values | of columns whose values recur, if held-out rows are likelier with them; up to 640 values |
//! | kernel of inducing points | Matérn 3/2, or RBF if held-out rows are clearly likelier under it |
//! | grid points on an axis | of one or two columns: found on the rows in memory; else 10, 7 for grids of three and four axes; 32 for the lines of a sum |
//! | warm-up | 50 rows for one grid of columns; 15 rows a column otherwise (at most 960 for a sum of grids), at least 200 (300 for a sum of grids) |
//! | kernel | of one or two columns: RBF, Matérn 5/2, 3/2, ½ or, where there is a sign for it, a sum of two, by evidence; else RBF; a length-scale for each axis |
//! | columns | all up to 64; of more, the 64 that say most about the target by themselves |
//! | priors | none for one grid; for a sum, shrinkage of scales and long length-scales |
//! | eigenvalue cut-off | 10⁻¹² of the largest; 10⁻⁶ for a sum |

use super::settings::{Features, InputScaling, NoiseModel, Schedule, Settings};
use super::units::StartValue;
use crate::error::{Error, Result};
use crate::feature::Column;
use crate::kernel::{Family, Kernel, MAX_DIM};
use crate::learn::{HyperSpace, Hyperparameters, Hyperprior};

/// Up to so many numeric columns are the axes of one grid; one more with a long warm-up.
const MOST_AXES: usize = 2;

/// A sum of grids reads at most so many columns: those that say most about the target by themselves
/// ([`internals::learn`](crate::internals::learn)). A block for each of 64 columns has a rank of about 500.
pub(super) const MOST_COLUMNS: usize = 64;

/// Rows in memory hold at most so many numbers: 256 MB.
const MOST_NUMBERS: usize = 1 << 25;

/// Grid points on an axis, by the number of axes.
const POINTS: [usize; MAX_DIM] = [32, 16, 10, 7];

/// Inducing points that may stand beside a sum of grids: a row then costs some 3·700².
const POINTS_BESIDE: usize = 512;

/// The inducing points where a stream ends with n rows in memory: as many as make n M², the work of the search, what it is
/// for the points of a full memory. Up to 1,024 rows are all points: the exact process.
fn points_at_the_end(rows: usize) -> usize {
    const ROWS: f64 = 8192.0;
    const MOST: usize = 1024;
    let points = POINTS_BESIDE as f64 * (ROWS / rows.max(1) as f64).sqrt();
    (points as usize).clamp(POINTS_BESIDE, MOST)
}

/// With fewer rows in memory, inducing points are sought only where a stream ends: soon there will be twice as many, and
/// the search costs more than all others.
const FEWEST_FOR_POINTS: usize = 2048;

/// The priors of a sum of grids, unless others are given: a scale is exponential, so that the many blocks that
/// are of no use shrink towards nothing, and a length-scale is probably not much below the width of its grid,
/// since a wiggly effect of few rows is noise.
const RELEVANCE: [(&str, Hyperprior); 2] = [
    ("outputscale", Hyperprior::Gamma { shape: 1.0, rate: 1.0 }),
    ("lengthscale", Hyperprior::LogNormal { mu: 0.5, sigma: 0.7 }),
];

/// The prior of the length-scales of one grid, unless another is given: as wide as the range of the data, give or take
/// a factor of four. It is worth a few nats at most, and keeps few rows from the ends of the scale.
const LENGTHSCALE: (&str, Hyperprior) = ("lengthscale", Hyperprior::LogNormal { mu: 0.0, sigma: 1.4 });

/// The smallest eigenvalue cut-off of a sum of grids.
const ADDITIVE_TOLERANCE: f64 = 1e-6;

impl Settings {
    /// These settings with everything decided that is left to the model, for rows of D columns.
    pub(crate) fn resolved(mut self, input_dim: usize) -> Self {
        if self.features == Features::Auto {
            self.features = if self.is_one_grid(input_dim) {
                Features::Identity
            } else {
                Features::Points { count: None }
            };
        }
        if !self.searches_grid(input_dim) {
            self.grid = self.first_grid(input_dim);
        }
        if self.schedule == Schedule::Off {
            self.feature_rate = 0.0;
        }
        if self.schedule == Schedule::Off && !self.start_values.is_empty() {
            // What is given and not learned is meant to stay.
            self.fit_warm_up = false;
            self.training.epochs = 0;
        }
        self
    }

    /// Rejects four columns as the axes of a grid of which nothing is known. Rows would make it grow, on each axis and by all
    /// the points of the three others, until a refit takes minutes.
    pub(crate) fn check_axes(&self, input_dim: usize) -> Result<()> {
        let is_unknown = self.grid.is_empty() && self.inputs == InputScaling::WarmUp;
        if self.features != Features::Identity || input_dim != MAX_DIM || !is_unknown {
            return Ok(());
        }
        let reason = format!(
            "{input_dim} columns as the axes of one grid need bounds or a grid that are given; features that are left to the \
             model (auto) take any number of columns, and seconds where a grid of so many axes takes minutes"
        );
        Err(Error::Config { field: "features".into(), reason })
    }

    /// The points on each axis of the grid that a model of rows of D columns begins with: one number for all, or one each.
    pub fn first_grid(&self, input_dim: usize) -> Vec<usize> {
        if self.grid.is_empty() {
            return vec![POINTS[self.axes(input_dim).clamp(1, MAX_DIM) - 1]];
        }
        self.grid.clone()
    }

    /// Whether the columns themselves are the axes of one grid, where that is left to the model.
    fn is_one_grid(&self, input_dim: usize) -> bool {
        let many_rows = self.warm_up.is_some_and(|rows| rows >= 1000);
        let most = if many_rows { MOST_AXES + 1 } else { MOST_AXES };
        self.columns.iter().all(|c| *c == Column::Numeric) && input_dim <= most
    }

    /// Whether the model of rows of D columns is a sum of grids.
    pub fn is_sum(&self, input_dim: usize) -> bool {
        if self.features == Features::Auto { !self.is_one_grid(input_dim) } else { self.is_additive() }
    }

    /// Whether the model is a sum of grids, with or without inducing points.
    pub(crate) fn is_additive(&self) -> bool {
        matches!(self.features, Features::Additive { .. } | Features::Points { .. } | Features::Auto)
    }

    /// The inducing points that may stand beside a sum of grids.
    pub(crate) fn inducing(&self) -> usize {
        if let Features::Points { count } = self.features { count.unwrap_or(POINTS_BESIDE) } else { 0 }
    }

    /// The settings of a search on so many rows in memory; whether it is the `last` one.
    pub(crate) fn for_search(&self, rows: usize, last: bool) -> Self {
        let mut settings = self.clone();
        if let Features::Points { count } = &mut settings.features {
            if self.puts_off_points(rows, last) {
                *count = Some(0);
            } else if count.is_none() && last && rows < self.memory {
                *count = Some(points_at_the_end(rows));
            }
        }
        settings
    }

    /// Whether a search on so many rows leaves inducing points to a later one.
    pub(crate) fn puts_off_points(&self, rows: usize, last: bool) -> bool {
        !last && rows < FEWEST_FOR_POINTS && self.inducing() > 0
    }

    /// Whether features, grids and kernels are learned anew from rows in memory. A sum of grids whose rows fade is not:
    /// its features would be those of rows that count for nothing.
    pub(crate) fn learns_anew(&self, input_dim: usize) -> bool {
        self.searches_grid(input_dim) || self.is_additive() && self.half_life.is_none()
    }

    /// Whether range, resolution and kernel of one grid of columns are found on the rows in memory. A grid that is given
    /// keeps its spacing and grows.
    pub(crate) fn searches_grid(&self, input_dim: usize) -> bool {
        let is_fitted = self.fit_warm_up && matches!(self.schedule, Schedule::Geometric { .. });
        let is_free = self.start_values.iter().all(|s| s.name == "noise");
        let is_one = self.features == Features::Identity && input_dim <= MOST_AXES;
        is_one && self.grid.is_empty() && is_fitted && is_free
    }

    /// What each of D columns means.
    pub(crate) fn column_kinds(&self, input_dim: usize) -> Vec<Column> {
        if self.columns.is_empty() { vec![Column::Numeric; input_dim] } else { self.columns.clone() }
    }

    /// The eigenvalue cut-off. A sum of grids spends its rank on many blocks, so it drops what is below 10⁻⁶.
    pub(crate) fn tolerance(&self) -> f64 {
        if self.is_additive() { self.rank_tolerance.max(ADDITIVE_TOLERANCE) } else { self.rank_tolerance }
    }

    /// The number of axes of the grid for rows of D columns, and so of the kernel; for a sum of grids, of its smallest
    /// grids.
    pub fn axes(&self, input_dim: usize) -> usize {
        match self.features {
            Features::Auto if self.is_one_grid(input_dim) => input_dim,
            Features::Auto | Features::Additive { .. } | Features::Points { .. } => 1,
            Features::Identity => input_dim,
            Features::Project { outputs } | Features::Mlp { outputs, .. } => outputs,
        }
    }

    /// The number of warm-up rows for rows of D columns.
    pub(crate) fn warm_up_rows(&self, input_dim: usize) -> usize {
        let automatic = match self.features {
            Features::Identity => 50,
            Features::Additive { .. } | Features::Points { .. } => {
                (15 * input_dim.min(MOST_COLUMNS)).max(300)
            }
            _ => (15 * input_dim).max(200),
        };
        self.warm_up.unwrap_or(automatic).max(2)
    }

    /// The number of rows that are kept in memory at most.
    pub(crate) fn memory_rows(&self, input_dim: usize) -> usize {
        self.memory.min((MOST_NUMBERS / input_dim).max(self.warm_up_rows(input_dim)))
    }

    /// The kernel to start from, without start values.
    pub(super) fn plain_kernel(&self, input_dim: usize) -> Result<Kernel> {
        match &self.kernel {
            Some(kernel) => Ok(kernel.clone()),
            None => Kernel::new(Family::Rbf, self.axes(input_dim)),
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

    /// Whether the noise may be found to vary with the inputs: not where it is given.
    pub(crate) fn noise_may_vary(&self) -> bool {
        let is_given = |start: &StartValue| start.name == "noise" && start.fixed;
        self.noise == NoiseModel::Learned
            && self.schedule != Schedule::Off
            && !self.start_values.iter().any(is_given)
    }

    /// How the given hyperparameters are learned. The targets of classes have at least the noise that the likelihood says.
    pub(crate) fn space_of(&self, hyper: &Hyperparameters, are_classes: bool) -> Result<HyperSpace> {
        let space = self.hyper_space(hyper)?;
        Ok(if are_classes { space.with_floor("noise", 1.0) } else { space })
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
        if hyper.kernels.first().is_some_and(|kernel| self.searches_grid(kernel.dim())) {
            space = with_prior_if_any(space, hyper, LENGTHSCALE)?;
        }
        if self.is_additive() {
            for prior in RELEVANCE {
                space = with_prior_if_any(space, hyper, prior)?;
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
}

/// The prior on every parameter of that name; there may be none.
fn with_prior_if_any(
    space: HyperSpace,
    hyper: &Hyperparameters,
    (name, prior): (&str, Hyperprior),
) -> Result<HyperSpace> {
    let has_one = |kernel: &Kernel| kernel.parameter_names().iter().any(|n| n.contains(name));
    if hyper.kernels.iter().any(has_one) { space.with_prior(name, prior) } else { Ok(space) }
}
