//! What online models of raw rows have in common: checks, scaling and features from warm-up rows, forgetting,
//! schedules and the slot from which other threads read.

use serde::{Deserialize, Serialize};
use std::sync::{Arc, PoisonError, RwLock};

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::encoder::ColumnScaling;
use super::settings::{Features, HalfLife, InputScaling, Schedule, Settings};
use super::{OffGrid, Snapshot, Wiski};
use crate::error::{Error, Result, finite, length};
use crate::feature::{Activation, Column, FeatureMap, Identity, Mlp, Moments};
use crate::grid::{Grid, Lattice};
use crate::learn::{
    AdditiveSearch, Choice, HyperSpace, Hyperparameters, LbfgsB, ProjectionSearch, Rows, Start, WarmUp,
    WarmUpTraining,
};

/// Old observations are decayed when their weight would fall by this factor: what is neglected meanwhile is
/// at most one per cent of their weight.
const DECAY_STEP: f64 = 0.99;

/// Refuses a row of the wrong width or with a number that is not finite.
pub(super) fn check_row(x: &[f64], input_dim: usize) -> Result<()> {
    length("x", input_dim, x.len())?;
    for (k, &value) in x.iter().enumerate() {
        if !value.is_finite() {
            finite(format!("x[{k}]"), value, 0)?;
        }
    }
    Ok(())
}

/// How the columns are scaled, given the warm-up rows.
pub(super) fn column_scaling(settings: &Settings, x: &[f64], input_dim: usize) -> Result<ColumnScaling> {
    let mut scaling = match &settings.inputs {
        InputScaling::None => ColumnScaling::identity(input_dim),
        InputScaling::Bounds(bounds) => ColumnScaling::from_bounds(bounds),
        InputScaling::WarmUp => match settings.features {
            Features::Identity => ColumnScaling::from_bounds(&ranges(x, input_dim)),
            Features::Auto | Features::Additive { .. } => ColumnScaling::robust(x, input_dim)?,
            _ => ColumnScaling::from_moments(&Moments::from_rows(x, input_dim)?),
        },
    };
    // Hours and levels are what they are.
    for (i, _) in settings.columns.iter().enumerate().filter(|(_, c)| **c != Column::Numeric) {
        (scaling.shift[i], scaling.factor[i], scaling.limit[i]) = (0.0, 1.0, f64::INFINITY);
    }
    Ok(scaling)
}

/// The range of each column, widened by a twentieth.
fn ranges(x: &[f64], dim: usize) -> Vec<(f64, f64)> {
    let column = |k: usize| x.iter().skip(k).step_by(dim).copied();
    let range = |k: usize| {
        let (lo, hi) =
            column(k).fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)));
        let margin = if hi > lo { 0.05 * (hi - lo) } else { 1.0 };
        (lo - margin, hi + margin)
    };
    (0..dim).map(range).collect()
}

/// Refuses a warm-up row that the grid will not cover, where that can be known: where the grid lies must not
/// depend on the rows.
pub(super) fn admit_to_warm_up(settings: &Settings, x: &[f64], input_dim: usize) -> Result<()> {
    let fixed = settings.features == Features::Identity && settings.inputs != InputScaling::WarmUp;
    if settings.off_grid == OffGrid::Prior || !fixed {
        return Ok(());
    }
    let mut h = Vec::new();
    column_scaling(settings, &[], input_dim)?.apply(x, &mut h)?;
    let lattice = lattice(settings, input_dim)?;
    match settings.off_grid {
        OffGrid::Extend => lattice.growth_to(&h, growth_limit(settings, &lattice), 0).map(|_| ()),
        _ => lattice.locate(&h, 0, &mut Vec::new()),
    }
}

/// The points to which a grid may grow by itself; one that was asked for may be larger.
pub(super) fn growth_limit(settings: &Settings, lattice: &Lattice) -> usize {
    settings.max_grid_points.max(lattice.len())
}

/// The grid on [−1, 1] for each coordinate.
pub(super) fn lattice(settings: &Settings, input_dim: usize) -> Result<Lattice> {
    let outputs = settings.outputs(input_dim);
    let points: Vec<usize> = (0..outputs).map(|k| settings.grid[k.min(settings.grid.len() - 1)]).collect();
    Ok(Lattice::from(Grid::covering(&vec![(-1.0, 1.0); outputs], &points)?))
}

/// The warm-up works on at most this many grid points: its rows are few, and kernels do not depend on the grid.
const WARM_UP_POINTS: usize = 900;

/// The feature map and hyperparameters that the warm-up rows lead to, and the grids for the rows to come.
pub(super) fn features(
    rows: &Rows,
    settings: &Settings,
    lattice: Lattice,
    hyper: Hyperparameters,
    space: HyperSpace,
) -> Result<(WarmUp, Option<Choice>, Lattice)> {
    let input_dim = rows.x.len() / rows.len();
    let tolerance = settings.tolerance();
    let (start, mut lattice) = (hyper.clone(), lattice);
    let (mut warm, choice) = match &settings.features {
        Features::Identity => {
            let map = FeatureMap::from(Identity::new(input_dim));
            let (rows, grown) = on_grid(rows, settings, lattice)?;
            lattice = grown;
            (WarmUp::new(rows, map, lattice.coarse(WARM_UP_POINTS)?, hyper, space, tolerance)?, None)
        }
        Features::Auto | Features::Additive { .. } => {
            let (warm, choice) = additive(rows, settings, hyper.noise)?;
            lattice = warm.lattice().clone();
            (warm, Some(choice))
        }
        Features::Project { outputs } => {
            let search = ProjectionSearch {
                rows: rows.clone(),
                outputs: *outputs,
                lattice: lattice.coarse(WARM_UP_POINTS)?,
                hyper,
                space,
                tolerance,
                training: settings.training,
                seed: settings.seed,
            };
            let (warm, choice) = search.run(settings.start)?;
            (warm, Some(choice))
        }
        Features::Mlp { hidden, outputs } => {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed);
            let map = FeatureMap::from(Mlp::new(input_dim, hidden, *outputs, Activation::Relu, &mut rng)?);
            let coarse = lattice.coarse(WARM_UP_POINTS)?;
            let mut warm = WarmUp::new(rows.clone(), map, coarse, hyper, space, tolerance)?;
            warm.train(&settings.training, |_, _| Ok(true))?;
            (warm, None)
        }
    };
    // The paper goes on from where pretraining ends; everyone else starts from the best fit of the warm-up.
    let as_the_paper = settings.start == Start::Random
        && settings.features != Features::Identity
        && matches!(settings.schedule, Schedule::EveryStep { .. });
    if settings.fit_warm_up && !as_the_paper {
        let optimiser = if settings.is_additive() {
            LbfgsB { relative_tolerance: frugal(rows.len() as f64).relative_tolerance, ..thorough() }
        } else {
            thorough()
        };
        warm.fit_hyperparameters(&optimiser)?;
    } else if !settings.fit_warm_up && !settings.is_additive() {
        // A search for features fits them on its way.
        warm.set_hyperparameters(start);
    }
    Ok((warm, choice, lattice))
}

/// Warm-up rows in the coordinates of a grid that does not cover all of them: the grid grows, or they are left
/// out, as the policy says.
fn on_grid(rows: &Rows, settings: &Settings, mut lattice: Lattice) -> Result<(Rows, Lattice)> {
    let dim = lattice.dim();
    let row = |i: usize| &rows.x[i * dim..(i + 1) * dim];
    let limit = growth_limit(settings, &lattice);
    match settings.off_grid {
        OffGrid::Error => Ok((rows.clone(), lattice)),
        OffGrid::Prior => {
            let covered = rows.filter(|i| lattice.locate(row(i), i, &mut Vec::new()).is_ok());
            Ok((covered, lattice))
        }
        OffGrid::Extend => {
            for i in 0..rows.len() {
                let growth = lattice.growth_to(row(i), limit, i)?;
                if !growth.is_none() {
                    lattice = lattice.grown(&growth)?.0;
                }
            }
            Ok((rows.clone(), lattice))
        }
    }
}

/// The directions of a sum of grids unless told otherwise: the ridge direction and every column. Where these are
/// fewer than the first number, random ones fill up to the second, since each is one more view of few columns.
const DIRECTIONS: [usize; 2] = [16, 24];

/// The sum of grids that the rows lead to.
fn additive(rows: &Rows, settings: &Settings, noise: f64) -> Result<(WarmUp, Choice)> {
    let columns = settings.column_kinds(rows.x.len() / rows.len());
    let numeric = columns.iter().filter(|c| **c == Column::Numeric).count();
    let directions = match settings.features {
        Features::Additive { directions: Some(k) } => k,
        _ if numeric < 2 => numeric,
        _ if numeric + 1 < DIRECTIONS[0] => DIRECTIONS[1],
        _ => numeric + 1,
    };
    let training = WarmUpTraining {
        epochs: settings.training.epochs.div_ceil(2),
        feature_rate: 2.0 * settings.training.feature_rate,
        ..settings.training
    };
    let search = AdditiveSearch {
        rows,
        columns: &columns,
        directions,
        points: settings.grid[0],
        rank_budget: settings.rank_budget,
        // What few rows do not show yet, more rows may.
        prune: rows.len() >= settings.memory,
        noise,
        space: &|hyper| settings.hyper_space(hyper),
        tolerance: settings.tolerance(),
        training,
        seed: settings.seed,
    };
    search.run()
}

/// A Gaussian process without data on the given grids.
pub(super) fn process(settings: &Settings, lattice: &Lattice, hyper: &Hyperparameters) -> Result<Wiski> {
    let builder = Wiski::builder()
        .noise(hyper.noise)
        .off_grid(settings.off_grid)
        .max_grid_points(growth_limit(settings, lattice))
        .engine(settings.engine.clone())
        .rank_tolerance(settings.tolerance());
    let blocks = lattice.grids().iter().zip(&hyper.kernels);
    blocks.fold(builder, |builder, (grid, kernel)| builder.grid(grid.clone()).kernel(kernel.clone())).build()
}

/// The optimiser at the end of the warm-up.
pub(super) fn thorough() -> LbfgsB {
    LbfgsB { max_evaluations: 60, ..LbfgsB::default() }
}

/// The optimiser along the stream: a few steps from where the last refit ended.
pub(super) fn brief() -> LbfgsB {
    LbfgsB {
        max_evaluations: 10,
        relative_tolerance: 1e-6,
        first_step: 0.3,
        first_curvature: 0.5,
        ..LbfgsB::default()
    }
}

/// As [`brief`], for sums of grids: dozens of hyperparameters, each step of which takes milliseconds. A step is the last
/// one if it gains less than 10⁻⁵ of the log density of a row and less than a tenth of that of all rows. The second
/// bound is for long streams, the first for short ones, where a tenth alone ended fits too early (skillcraft).
pub(super) fn frugal(count: f64) -> LbfgsB {
    LbfgsB { relative_tolerance: 1e-5_f64.min(0.1 / count.max(1.0)), ..brief() }
}

/// Whether a geometric schedule asks for a refit after so many rows, of `count` in all.
pub(super) fn refit_due(schedule: Schedule, rows_since_refit: f64, count: f64) -> bool {
    match schedule {
        Schedule::Geometric { ratio } => {
            rows_since_refit >= (ratio - 1.0) * (count - rows_since_refit).max(10.0)
        }
        Schedule::EveryStep { .. } | Schedule::Off => false,
    }
}

/// Refuses a warm-up row without a time where one is needed, or with an earlier one than the row before.
pub(super) fn check_time(half_life: Option<HalfLife>, time: Option<f64>, last: Option<f64>) -> Result<()> {
    Fading::since(last).pass(half_life, time).map(|_| ())
}

/// Exponential forgetting, in steps of one per cent.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Fading {
    /// The decay that old observations still have to undergo, as a power of two.
    pending_halvings: f64,
    last_time: Option<f64>,
}

impl Fading {
    /// Fading from a given time on.
    pub(super) fn since(last_time: Option<f64>) -> Self {
        Self { last_time, ..Self::default() }
    }

    /// Refuses what no rows can have left behind.
    pub(super) fn check(&self) -> Result<()> {
        finite("pending decay", self.pending_halvings, 0)?;
        self.last_time.map_or(Ok(()), |time| finite("time", time, 0))
    }

    /// Lets one more row pass; returns the factor by which everything learned is to be decayed now, if any.
    pub(super) fn pass(&mut self, half_life: Option<HalfLife>, time: Option<f64>) -> Result<Option<f64>> {
        self.pending_halvings += match (half_life, time) {
            (None, _) => return Ok(None),
            (Some(HalfLife::Rows(life)), _) => life.recip(),
            (Some(HalfLife::Time(_)), None) => {
                let reason = "the half-life is given in time, so every row needs one";
                return Err(Error::Unsupported { operation: "forgetting", reason });
            }
            (Some(HalfLife::Time(life)), Some(now)) => {
                let passed = now - self.last_time.unwrap_or(now);
                if passed < 0.0 {
                    let reason = format!("times must not decrease, but {now} follows {}", now - passed);
                    return Err(Error::Config { field: "time".into(), reason });
                }
                self.last_time = Some(now);
                passed / life
            }
        };
        let factor = (-self.pending_halvings).exp2();
        if factor >= DECAY_STEP {
            return Ok(None);
        }
        self.pending_halvings = 0.0;
        Ok(Some(factor.max(1e-300)))
    }
}

/// The slot through which a model gives snapshots to other threads. A clone of the model gets a slot of its
/// own, so that two models never write to the same readers.
#[derive(Debug)]
pub(super) struct Published<T>(Arc<RwLock<Option<Arc<T>>>>);

impl<T> Default for Published<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Published<T> {
    fn clone(&self) -> Self {
        Self(Arc::new(RwLock::new(self.reader().latest())))
    }
}

impl<T> Published<T> {
    pub(super) fn reader(&self) -> Reader<T> {
        Reader { published: Arc::clone(&self.0) }
    }

    pub(super) fn set(&self, snapshot: Option<Arc<T>>) {
        // A reader that panicked while holding the lock has changed nothing.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}

/// Gives the newest published snapshot to any thread, without waiting for learning.
#[derive(Debug)]
pub struct Reader<T = Snapshot> {
    published: Arc<RwLock<Option<Arc<T>>>>,
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Self { published: Arc::clone(&self.published) }
    }
}

impl<T> Reader<T> {
    /// The newest snapshot; `None` before the warm-up is over.
    pub fn latest(&self) -> Option<Arc<T>> {
        self.published.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
