//! Where a model begins: from rows in memory to scales, features, grids and hyperparameters, and a learner that has
//! learned the rows.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::defaults::MOST_COLUMNS;
use super::encoder::{ColumnScaling, Encoder, UNBOUNDED};
use super::learner::{Learner, Process};
use super::memory::Memory;
use super::recurring::{MOST_VALUES, Recurring};
use super::schedule::{Fading, frugal, thorough};
use super::settings::{Features, InputScaling, NoiseModel, Schedule, Settings};
use super::{OffGrid, OnlineGp, Wiski};
use crate::error::{Error, Result};
use crate::feature::{Activation, Column, FeatureMap, Identity, Mlp, Moments};
use crate::grid::{Grid, Lattice};
use crate::learn::{
    AdditiveSearch, Choice, ClassTargets, FittedGrid, FoundFeatures, GridSearch, HyperSpace, Hyperparameters,
    LbfgsB, ProjectionSearch, Rows, Start, WarmUp, WarmUpTraining, screen,
};
use crate::likelihood::Target;
use crate::stats::Stats;

/// Scales, features, grids and hyperparameters.
pub(crate) struct Found {
    pub(crate) encoder: Encoder,
    pub(crate) lattice: Lattice,
    pub(crate) hyper: Hyperparameters,
    /// Hyperparameters of each process, where they were learned together with the features.
    pub(crate) each: Vec<Hyperparameters>,
    pub(crate) space: HyperSpace,
    pub(crate) choice: Option<Choice>,
}

/// The targets of the rows in memory, in the units of the model.
pub(crate) struct Targets<'a> {
    /// Those of every process, with their relative noise.
    pub(crate) each: &'a [(Vec<f64>, Vec<f64>)],
    /// The process whose targets say most about features.
    pub(crate) contrast: usize,
    /// The class of each row, where they are classes.
    pub(crate) classes: Option<&'a [f64]>,
}

impl Targets<'_> {
    /// Whether one process says all that features are learned from: a number, or one of two classes, whose targets mirror
    /// each other. Inducing points are learned from all classes.
    fn is_one(&self, settings: &Settings) -> bool {
        self.classes.is_none() || self.each.len() == 2 && settings.inducing() == 0
    }

    /// What the rows that were kept say to each class.
    fn of_classes(&self, kept: &[bool]) -> ClassTargets {
        let classes = self.classes.unwrap_or(&[]).iter().map(|&class| class as usize).collect();
        ClassTargets { each: self.each.to_vec(), classes }.filter(|i| kept[i])
    }
}

/// What the rows in memory lead to.
pub(crate) fn found(
    memory: &Memory,
    targets: &Targets,
    settings: &Settings,
    input_dim: usize,
    (hyper, space): (Hyperparameters, HyperSpace),
) -> Result<Found> {
    let mut scaling = column_scaling(settings, &memory.rows.x, input_dim)?;
    let mut columns = settings.columns.clone();
    let clocks = clocks(memory, settings, input_dim);
    if settings.is_additive() && (input_dim > MOST_COLUMNS || !clocks.is_empty()) {
        let mut read: Vec<usize> = (0..input_dim).collect();
        if input_dim > MOST_COLUMNS {
            let values: Vec<&[f64]> = targets.each.iter().map(|(y, _)| y.as_slice()).collect();
            read = screen(&memory.rows.x, input_dim, &values, MOST_COLUMNS + clocks.len())?;
        }
        read.retain(|column| !clocks.contains(column));
        read.truncate(MOST_COLUMNS);
        columns = if columns.is_empty() { columns } else { read.iter().map(|&c| columns[c]).collect() };
        scaling.read = Some(read);
    }
    let mut settings = Settings { columns, ..settings.clone() };
    let (y, noise) = &targets.each[targets.contrast];
    let kept: Vec<bool> = memory.rows.x.chunks_exact(input_dim).map(|x| scaling.reaches(x)).collect();
    let scaled_by = |scaling: &ColumnScaling| -> Result<Rows> {
        let (mut scaled, mut row) = (Rows::default(), Vec::new());
        for (i, x) in memory.rows.x.chunks_exact(input_dim).enumerate().filter(|(i, _)| kept[*i]) {
            scaling.apply(x, &mut row)?;
            scaled.push(&row, y[i], noise[i]);
        }
        Ok(scaled)
    };
    let mut scaled = scaled_by(&scaling)?;
    if targets.classes.is_none() && settings.inducing() > 0 {
        scaling.recurring = recurring(memory, &scaling, &scaled, &settings, hyper.noise)?;
        if !scaling.recurring.is_empty() {
            settings.columns = settings.column_kinds(scaling.output_dim() - scaling.recurring.len());
            let levels = scaling.recurring.iter().map(Recurring::levels);
            settings.columns.extend(levels.map(|levels| Column::Categorical { levels, ordered: false }));
            scaled = scaled_by(&scaling)?;
        }
    }
    let settings = &settings;
    let lattice = lattice(settings, input_dim)?;
    let mut each = Vec::new();
    let (map, moments, choice, lattice, hyper, space) = if settings.searches_grid(input_dim) {
        let fitted = one_grid(&scaled, settings, lattice, &hyper, targets.classes.is_some())?;
        let map = FeatureMap::from(Identity::new(input_dim));
        (map.clone(), map.new_moments(), None, fitted.lattice, fitted.hyper, fitted.space)
    } else {
        let (warm, choice, lattice) = if settings.is_additive() && !targets.is_one(settings) {
            let found = additive(&scaled, settings, hyper.noise, 0, Some(&targets.of_classes(&kept)))?;
            each = found.each;
            let lattice = found.warm.lattice().clone();
            (found.warm, Some(found.choice), lattice)
        } else {
            features(&scaled, settings, scaling.recurring.len(), lattice, hyper, space)?
        };
        let space = warm.space().clone();
        let (map, moments, hyper) = warm.into_parts();
        (map, moments, choice, lattice, hyper, space)
    };
    let mut encoder = Encoder::new(scaling, map, moments);
    let stands = settings.schedule == Schedule::Off && settings.feature_rate == 0.0;
    if settings.is_additive() || stands {
        // Features that are learned from rows in memory, all at once, stand in between; and where nothing is to move,
        // not even the scale of the features is.
        encoder.freeze()?;
        if settings.is_additive() {
            encoder.remember(&scaled.x);
        }
    } else {
        encoder.learn_at(settings.feature_rate)?;
    }
    Ok(Found { encoder, lattice, hyper, each, space, choice })
}

impl Found {
    /// A learner that has learned the rows in memory: the targets and noises of each process, with the weight of its
    /// rows where it is a class. Old rows have faded by now.
    pub(crate) fn learner(
        self,
        memory: &Memory,
        targets: &[(Vec<f64>, Vec<f64>)],
        classes: Option<&[f64]>,
        unseen: Option<Target>,
        settings: &Settings,
    ) -> Result<Learner> {
        let h = self.encoder.encode_all(&memory.rows.x)?;
        let decays = Decays::new(memory, settings)?;
        // What lies too far outside is no more learned than it would be along the stream.
        let mut rows = memory.rows.x.chunks_exact(self.encoder.input_dim());
        let mut coordinates = h.chunks_exact(self.lattice.dim());
        let is_whole = rows.all(|x| self.encoder.scaling().reaches(x))
            && (settings.features != Features::Identity
                || coordinates.all(|h| self.lattice.check_covers(h).is_ok()));
        let mut processes = Vec::with_capacity(targets.len());
        for (class, (y, noise)) in targets.iter().enumerate() {
            let hyper = self.each.get(class).unwrap_or(&self.hyper);
            let mut model = process(settings, &self.lattice, hyper)?;
            if settings.half_life.is_none() && is_whole {
                model.observe_batch(&h, y, Some(noise))?;
            } else {
                model.replace_stats(decays.observed(&self.lattice, &h, |row| (y[row], noise[row]))?)?;
            }
            let hits = classes.map(|own| decays.weight(|row| own[row] == class as f64));
            processes.push(Process::new(model, hits));
        }
        let unseen = unseen.map(|t| {
            let target = |row: usize| (t.value, t.noise * memory.rows.noise[row]);
            decays.observed(&self.lattice, &h, target)
        });
        let unseen = unseen.transpose()?;
        let fading = decays.fading;
        Learner::new(self.encoder, processes, unseen, self.space, self.choice, fading, settings.schedule)
    }
}

/// The statistics of the rows in memory that the grids cover, given their targets and noise.
pub(crate) fn observed(
    memory: &Memory,
    settings: &Settings,
    lattice: &Lattice,
    h: &[f64],
    row: impl Fn(usize) -> (f64, f64),
) -> Result<Stats> {
    Decays::new(memory, settings)?.observed(lattice, h, row)
}

/// The factors by which rows in memory made those before them fade.
struct Decays {
    before: Vec<Option<f64>>,
    fading: Fading,
}

impl Decays {
    fn new(memory: &Memory, settings: &Settings) -> Result<Self> {
        let (mut fading, mut before) = (Fading::default(), Vec::with_capacity(memory.len()));
        for row in 0..memory.len() {
            let (next, factor) = fading.after(settings.half_life, memory.times.get(row).copied())?;
            fading = next;
            before.push(factor);
        }
        Ok(Self { before, fading })
    }

    /// The statistics of all rows that the grids cover; whether all must be is decided before.
    fn observed(&self, lattice: &Lattice, h: &[f64], row: impl Fn(usize) -> (f64, f64)) -> Result<Stats> {
        let mut stats = Stats::new(lattice.clone());
        for (i, h) in h.chunks_exact(lattice.dim()).enumerate() {
            if let Some(factor) = self.before[i] {
                stats.decay(factor)?;
            }
            let (y, noise) = row(i);
            match stats.observe(h, y, noise) {
                Ok(()) | Err(Error::OutsideGrid { .. }) => {}
                Err(error) => return Err(error.in_row(i)),
            }
        }
        Ok(stats)
    }

    /// The weight of the rows that satisfy the condition.
    fn weight(&self, counts: impl Fn(usize) -> bool) -> f64 {
        let add =
            |sum: f64, row: usize| sum * self.before[row].unwrap_or(1.0) + f64::from(u8::from(counts(row)));
        (0..self.before.len()).fold(0.0, add)
    }
}

/// The numeric columns that tick like clocks, of a sum of blocks with other columns beside: whatever a block learned of
/// them, rows to come would all lie beyond it.
pub(crate) fn clocks(memory: &Memory, settings: &Settings, input_dim: usize) -> Vec<usize> {
    if !settings.is_additive() {
        return Vec::new();
    }
    let mut clocks = memory.clock_columns(input_dim);
    clocks.retain(|&c| settings.columns.get(c).is_none_or(|kind| *kind == Column::Numeric));
    if clocks.len() == input_dim { Vec::new() } else { clocks }
}

/// How the columns are scaled, given the warm-up rows.
pub(crate) fn column_scaling(settings: &Settings, x: &[f64], input_dim: usize) -> Result<ColumnScaling> {
    let mut scaling = match &settings.inputs {
        InputScaling::None => ColumnScaling::identity(input_dim),
        InputScaling::Bounds(bounds) => ColumnScaling::from_bounds(bounds),
        InputScaling::WarmUp => match settings.features {
            Features::Identity => {
                let (ranges, mut reach) = ranges(x, input_dim);
                if !settings.searches_grid(input_dim) {
                    reach.clear();
                }
                ColumnScaling { reach, ..ColumnScaling::from_bounds(&ranges) }
            }
            Features::Auto | Features::Additive { .. } | Features::Points { .. } => {
                ColumnScaling::robust(x, input_dim)?
            }
            _ => ColumnScaling::from_moments(&Moments::from_rows(x, input_dim)?),
        },
    };
    // Hours and levels are what they are.
    for (i, _) in settings.columns.iter().enumerate().filter(|(_, c)| **c != Column::Numeric) {
        (scaling.shift[i], scaling.factor[i], scaling.limit[i]) = (0.0, 1.0, f64::INFINITY);
        if let Some(seen) = scaling.seen.get_mut(i) {
            *seen = UNBOUNDED;
        }
    }
    Ok(scaling)
}

/// What lies farther outside of the quartiles than so many times their distance is no part of the range: a grid that
/// covered it would have no points left for the rest.
const OUTSIDE: f64 = 10.0;

/// From the smallest to the largest value.
type Range = (f64, f64);

/// The range of each column without what lies far outside, widened by a twentieth; and how far out a value may lie.
pub(super) fn ranges(x: &[f64], dim: usize) -> (Vec<Range>, Vec<Range>) {
    let range = |k: usize| {
        let mut column: Vec<f64> = x.iter().skip(k).step_by(dim).copied().collect();
        column.sort_by(f64::total_cmp);
        let quantile = |share: f64| column[((column.len() - 1) as f64 * share).round() as usize];
        let (first, third) = (quantile(0.25), quantile(0.75));
        let far = OUTSIDE * (third - first);
        // Where half of the values are one, there is no scale to judge the others by.
        let reach = if far > 0.0 { (first - far, third + far) } else { (f64::MIN, f64::MAX) };
        let mut inside = column.iter().copied().filter(|v| (reach.0..=reach.1).contains(v));
        let lo = inside.next().unwrap_or(first);
        let hi = inside.next_back().unwrap_or(lo);
        let margin = if hi > lo { 0.05 * (hi - lo) } else { 1.0 };
        ((lo - margin, hi + margin), reach)
    };
    (0..dim).map(range).unzip()
}

/// Rejects a warm-up row that the grid will not cover, where that can be known: where the grid lies must not
/// depend on the rows.
pub(crate) fn admit_to_warm_up(settings: &Settings, x: &[f64], input_dim: usize) -> Result<()> {
    let fixed = settings.features == Features::Identity && settings.inputs != InputScaling::WarmUp;
    if settings.off_grid == OffGrid::Prior || !fixed {
        return Ok(());
    }
    let mut h = Vec::new();
    column_scaling(settings, &[], input_dim)?.apply(x, &mut h)?;
    let lattice = lattice(settings, input_dim)?;
    match settings.off_grid {
        OffGrid::Extend => lattice.growth_to(&h, growth_limit(settings, &lattice), 0).map(|_| ()),
        _ => lattice.check_covers(&h),
    }
}

/// The points to which a grid may grow by itself; one that was asked for may be larger.
pub(crate) fn growth_limit(settings: &Settings, lattice: &Lattice) -> usize {
    settings.max_grid_points.max(lattice.len())
}

/// The points to which a grid may grow for one row: a wild value must not make it so large that all others wait for it.
pub(crate) fn growth_at_once(lattice: &Lattice) -> usize {
    const TIMES: usize = 16;
    TIMES * lattice.len()
}

/// The grid on [−1, 1] for each coordinate.
pub(crate) fn lattice(settings: &Settings, input_dim: usize) -> Result<Lattice> {
    let outputs = settings.axes(input_dim);
    let grid = settings.first_grid(input_dim);
    let points: Vec<usize> = (0..outputs).map(|k| grid[k.min(grid.len() - 1)]).collect();
    Ok(Lattice::from(Grid::covering(&vec![(-1.0, 1.0); outputs], &points)?))
}

/// The warm-up works on at most this many grid points: its rows are few, and kernels do not depend on the grid.
const WARM_UP_POINTS: usize = 900;

/// The feature map and hyperparameters that the warm-up rows lead to, and the grids for the rows to come.
fn features(
    rows: &Rows,
    settings: &Settings,
    recurring: usize,
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
        Features::Auto | Features::Additive { .. } | Features::Points { .. } => {
            let found = additive(rows, settings, hyper.noise, recurring, None)?;
            lattice = found.warm.lattice().clone();
            (found.warm, Some(found.choice))
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
        let optimizer = if settings.is_additive() {
            LbfgsB { relative_tolerance: frugal(rows.len() as f64).relative_tolerance, ..thorough() }
        } else {
            thorough()
        };
        warm.fit_hyperparameters(&optimizer)?;
    } else if !settings.fit_warm_up && !settings.is_additive() {
        // A search for features fits them on its way.
        warm.set_hyperparameters(start);
    }
    Ok((warm, choice, lattice))
}

/// The grid of scaled columns that the rows lead to.
fn one_grid(
    rows: &Rows,
    settings: &Settings,
    lattice: Lattice,
    hyper: &Hyperparameters,
    are_classes: bool,
) -> Result<FittedGrid> {
    let (rows, grown) = on_grid(rows, settings, lattice)?;
    let axes = grown.grids()[0].axes();
    let search = GridSearch {
        rows: &rows,
        range: axes.iter().map(|axis| (axis.lo(), axis.hi())).collect(),
        kernel: &hyper.kernels[0],
        is_raced: settings.kernel.is_none(),
        fewest: settings.first_grid(axes.len())[0],
        budget: settings.max_grid_points.min((2 * rows.len()).max(LEAST_BUDGET)),
        known_noise: (settings.noise == NoiseModel::Known).then_some(hyper.noise),
        space: &|hyper| settings.space_of(hyper, are_classes),
        engine: &settings.engine,
        tolerance: settings.tolerance(),
    };
    search.run()
}

/// A grid that is found may have as many points, however few rows there are.
const LEAST_BUDGET: usize = 1024;

/// Warm-up rows in the coordinates of a grid that does not cover all of them: the grid grows, or they are left
/// out, as the policy says.
fn on_grid(rows: &Rows, settings: &Settings, mut lattice: Lattice) -> Result<(Rows, Lattice)> {
    let dim = lattice.dim();
    let row = |i: usize| &rows.x[i * dim..(i + 1) * dim];
    let limit = growth_limit(settings, &lattice);
    match settings.off_grid {
        OffGrid::Error => Ok((rows.clone(), lattice)),
        OffGrid::Prior => {
            let covered = rows.filter(|i| lattice.check_covers(row(i)).is_ok());
            Ok((covered, lattice))
        }
        OffGrid::Extend => {
            let mut is_left_out = vec![false; rows.len()];
            for (i, is_left_out) in is_left_out.iter_mut().enumerate() {
                let growth = lattice.growth_to(row(i), limit, i)?;
                if growth.is_none() {
                    continue;
                }
                // As along the stream.
                *is_left_out = lattice.growth_to(row(i), growth_at_once(&lattice), i).is_err();
                if !*is_left_out {
                    lattice = lattice.grown(&growth)?.0;
                }
            }
            // The grid may have grown to them since.
            let covered = rows
                .filter(|i| !is_left_out[i] || lattice.check_covers(&rows.x[i * dim..(i + 1) * dim]).is_ok());
            Ok((covered, lattice))
        }
    }
}

/// The directions of a sum of grids unless told otherwise: the ridge direction and every column. Where these are
/// fewer than the first number, random ones fill up to the second, since each is one more view of few columns.
const DIRECTIONS: [usize; 2] = [16, 24];

/// The columns that are read whose values recur, and have effects of their own that are worth it.
fn recurring(
    memory: &Memory,
    scaling: &ColumnScaling,
    scaled: &Rows,
    settings: &Settings,
    noise: f64,
) -> Result<Vec<Recurring>> {
    let (x, dim) = (&memory.rows.x, scaling.input_dim());
    let kinds = settings.column_kinds(scaling.output_dim());
    let numeric = (0..kinds.len()).filter(|&place| kinds[place] == Column::Numeric);
    let candidates: Vec<Recurring> =
        numeric.filter_map(|place| Recurring::of(x, dim, scaling.source(place))).collect();
    if candidates.is_empty() || scaled.len() < x.len() / dim {
        return Ok(Vec::new());
    }
    let levels = |values: &Recurring| x.chunks_exact(dim).map(|x| values.level(x)).collect();
    let levels: Vec<Vec<usize>> = candidates.iter().map(levels).collect();
    let worth =
        with_search(scaled, settings, noise, 0, false, |search| search.worth_levels(&levels, MOST_VALUES))?;
    Ok(worth.into_iter().map(|c| candidates[c].clone()).collect())
}

/// What a search for a sum of grids leads to: with directions through the columns, which are learned from one target, or for
/// many classes with the columns as they are.
fn additive(
    rows: &Rows,
    settings: &Settings,
    noise: f64,
    recurring: usize,
    classes: Option<&ClassTargets>,
) -> Result<FoundFeatures> {
    with_search(rows, settings, noise, recurring, classes.is_some(), |search| match classes {
        Some(targets) => search.run_classes(targets),
        None => search.run().map(|(warm, choice)| FoundFeatures { warm, each: Vec::new(), choice }),
    })
}

/// Lends a search for a sum of grids; the last columns of the rows hold levels of recurring values.
fn with_search<T>(
    rows: &Rows,
    settings: &Settings,
    noise: f64,
    recurring: usize,
    are_classes: bool,
    then: impl FnOnce(&AdditiveSearch) -> Result<T>,
) -> Result<T> {
    let columns = settings.column_kinds(rows.x.len() / rows.len());
    let numeric = columns.iter().filter(|c| **c == Column::Numeric).count();
    let directions = match settings.features {
        _ if are_classes => numeric,
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
        recurring,
        directions,
        points: settings.first_grid(columns.len())[0],
        inducing: settings.inducing(),
        rank_budget: settings.rank_budget,
        // What few rows do not show yet, more rows may.
        prune: rows.len() >= settings.memory,
        noise,
        space: &|hyper| settings.space_of(hyper, are_classes),
        tolerance: settings.tolerance(),
        training,
        seed: settings.seed,
    };
    then(&search)
}

/// A Gaussian process without data on the given grids.
pub(crate) fn process(settings: &Settings, lattice: &Lattice, hyper: &Hyperparameters) -> Result<Wiski> {
    let builder = Wiski::builder()
        .noise(hyper.noise)
        .off_grid(settings.off_grid)
        .max_grid_points(growth_limit(settings, lattice))
        .engine(settings.engine.clone())
        .is_frugal(settings.searches_grid(lattice.dim()))
        .rank_tolerance(settings.tolerance());
    let builder = lattice.grids().iter().fold(builder, |builder, grid| builder.grid(grid.clone()));
    let builder =
        lattice.points().into_iter().fold(builder, |builder, points| builder.points(points.clone()));
    hyper.kernels.iter().fold(builder, |builder, kernel| builder.kernel(kernel.clone())).build()
}
