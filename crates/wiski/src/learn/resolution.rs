//! What one grid over the columns needs, found on the rows in memory: kernel, points on each axis, hyperparameters.
//!
//! A grid of spacing h cannot show what happens within h, and a fit on it cannot tell that something does: where the
//! truth is finer, the evidence has a maximum at "all is noise". So the search goes from long length-scales to short
//! ones, each start ℓ on a grid made for it, h = ℓ/c, and each fit is followed to the grid that its own length-scales
//! ask for. Then the kernels are raced from the best of these. All of it is judged by the evidence, which is the
//! density of every row given those before it, so nothing needs to be held out; what is simpler wins unless the rows
//! are e times as likely under the other.
//!
//! Two kernels added up are tried where there is a sign that they might pay: a smooth trend and a season where the rows of a
//! line show one (`season`), and two smooth functions of different scale where a rough kernel has won, since that is
//! what two scales look like to one kernel. Each further hyperparameter has to be worth ½ log n, what it costs to be told.
//! The dense engine adds up kernels at the sum of their ranks; the sparse one knows one Matérn process alone.
//!
//! One evaluation costs what the engine says for the grid ([`internals::engine`](crate::internals::engine)), and there are about 150 of them; some 30 for
//! each sum that is tried.

use super::season;
use super::{HyperSpace, Hyperparameters, LbfgsB, Rows};
use crate::engine::{Engine, Given, GridPosterior};
use crate::error::{Error, Result};
use crate::grid::{Axis, Grid, Lattice};
use crate::interrupt;
use crate::kernel::{Family, Kernel};
use crate::pool::Pool;
use crate::stats::Stats;

/// The kernels that are raced, the simplest first: what is smooth can be interpolated best and has the smallest rank.
const FAMILIES: [Family; 4] = [Family::Rbf, Family::Matern52, Family::Matern32, Family::Matern12];

/// Length-scales to start from, on columns scaled to [−1, 1].
const STARTS: [f64; 7] = [1.0, 0.35, 0.12, 0.04, 0.014, 0.005, 0.0018];

/// What a start takes to be noise, as a share of the variance of the targets.
const START_NOISE: f64 = 0.1;

/// A length-scale is at least so many spacings: what is shorter shows on no grid point but its own.
const FLOOR: f64 = 0.7;

/// An RBF is not tried where its rank, about 1.5 width/ℓ on each axis or more, is beyond this: on a line, where Matérn
/// kernels cost next to nothing, and elsewhere.
const MOST_RANK: [f64; 2] = [120.0, 400.0];

/// A more complicated candidate has to be better by so many nats.
const TIE: f64 = 1.0;

/// A kernel that is behind by so many nats after a few steps is not followed any further.
const HOPELESS: f64 = 30.0;

/// Candidates have at most so many points, but on a line: hyperparameters do not depend much on the grid, and the winner
/// gets a finer one.
const RACED_POINTS: usize = 2500;

/// A kernel with neither a small rank nor a sparse engine has at most so many points: a row costs their square.
const DENSE_POINTS: usize = 700;

/// Sums of kernels are tried from so many rows on, and on grids of at most so many points, since each term has eigenvectors
/// of its own: an evaluation on the smaller grids takes some 10 ms, on the larger ones ten times as long.
const FEWEST_FOR_SUMS: [usize; 2] = [256, 1500];
const SUM_POINTS: [usize; 2] = [320, 900];

/// How much longer than the kernel that won the long one of two is at first.
const LONGER: f64 = 8.0;

/// How often a finer grid is tried.
const REFINEMENTS: usize = 4;

/// How often a fit is followed to the grid that it asks for.
const REGRIDS: usize = 4;

/// A search for the grid of some rows.
pub(crate) struct GridSearch<'a> {
    /// The rows, in coordinates of about [−1, 1].
    pub(crate) rows: &'a Rows,
    /// What the grid has to cover, axis by axis.
    pub(crate) range: Vec<(f64, f64)>,
    /// The kernel to start from. Its form is the only candidate if `is_raced` is false.
    pub(crate) kernel: &'a Kernel,
    /// Whether kernels are raced.
    pub(crate) is_raced: bool,
    /// The fewest points on an axis.
    pub(crate) fewest: usize,
    /// The most points of the grid.
    pub(crate) budget: usize,
    /// The noise variance, where it is known.
    pub(crate) known_noise: Option<f64>,
    /// How hyperparameters are learned.
    pub(crate) space: &'a dyn Fn(&Hyperparameters) -> Result<HyperSpace>,
    /// How posteriors are computed.
    pub(crate) engine: &'a Engine,
    /// The prior's eigenvalue cut-off.
    pub(crate) tolerance: f64,
}

/// A grid with kernel and noise fitted to the rows.
#[derive(Debug, Clone)]
pub(crate) struct FittedGrid {
    pub(crate) lattice: Lattice,
    pub(crate) hyper: Hyperparameters,
    pub(crate) space: HyperSpace,
    /// The log evidence of the rows and the log priors.
    pub(crate) evidence: f64,
}

/// The smallest length-scale of a kernel on each axis; infinite where there is none.
fn lengthscales(kernel: &Kernel) -> Vec<f64> {
    (0..kernel.dim()).map(|axis| kernel.shortest_lengthscale(axis)).collect()
}

/// The spacing that hyperparameters ask for on an axis.
pub(crate) fn wanted_spacing(hyper: &Hyperparameters, axis: usize) -> f64 {
    let kernel = &hyper.kernels[0];
    if kernel.term_count() == 1 {
        return kernel.shortest_lengthscale(axis) / cells_in_lengthscale(hyper);
    }
    // Of a sum, each part has to be seen through the noise.
    let spacing = |term: usize| {
        let cells = 1.5 * (kernel.term_scale(term) / hyper.noise).powf(1.0 / 6.0);
        kernel.term_lengthscale(term, axis) / cells.clamp(2.0, 6.0)
    };
    (0..kernel.term_count()).map(spacing).fold(f64::INFINITY, f64::min)
}

/// Spacings in a length-scale. Within a cell a process of smoothness ν strays by a variance of about v (h/ℓ)^{2ν} from
/// its interpolation, which is to stay below the noise; smooth kernels err by (h/ℓ)³ of cubic interpolation.
fn cells_in_lengthscale(hyper: &Hyperparameters) -> f64 {
    let kernel = &hyper.kernels[0];
    let Some(processes) = kernel.markov_processes() else { return 6.0 };
    let states = processes.iter().map(|&(states, _)| states).min().unwrap_or(1);
    let fewest = [1.5, 2.0, 4.0][states.clamp(1, 3) - 1];
    (kernel.variance() / hyper.noise).powf(((2 * states - 1) as f64).recip()).max(fewest)
}

impl GridSearch<'_> {
    /// The grid, kernel and hyperparameters that the rows are most likely under.
    pub(crate) fn run(&self) -> Result<FittedGrid> {
        let first = self.longest_to_shortest()?;
        let mut best = first.clone();
        if self.is_raced {
            best = self.raced(&first)?;
        }
        let best = self.refined(self.fit(&best.hyper, &shape(&best), &long())?);
        if self.is_raced
            && let Some(sum) = self.summed(&best)
        {
            return Ok(sum);
        }
        // What is rough in the plane asks for more points than it can have unless it is as rough as can be.
        let kernel = &best.hyper.kernels[0];
        let is_short = self.most_points(kernel, true) < self.budget
            && !self.is_affordable(kernel, &self.wanted_points(&best.hyper));
        if self.is_raced
            && is_short
            && let Ok(rough) =
                self.followed(&self.like(&best, Family::Matern12)?).map(|fit| self.refined(fit))
            && is_better(&rough, Some(&best))
        {
            return Ok(rough);
        }
        Ok(best)
    }

    /// The same on the finest grid that the rows are more likely on: what is rough asks for all that it can get; and where
    /// there is little noise, rows can tell an interpolation from what is interpolated.
    fn refined(&self, mut best: FittedGrid) -> FittedGrid {
        for _ in 0..REFINEMENTS {
            let (has, wants) = (shape(&best), self.wanted_points(&best.hyper));
            let finer = |(&has, &wants): (&usize, &usize)| (has * 4 / 3).max(wants.min(has * 8 / 5));
            let finer: Vec<usize> = has.iter().zip(&wants).map(finer).collect();
            let most = self.most_points(&best.hyper.kernels[0], true);
            if !within(&finer, most) {
                break;
            }
            match self.fit(&best.hyper, &finer, &fewest()) {
                Ok(fit) if is_better(&fit, Some(&best)) => best = fit,
                _ => break,
            }
        }
        best
    }

    /// The best of fits from long to short length-scales: all that the budget allows, since a trend that explains nearly
    /// everything may hide a season.
    fn longest_to_shortest(&self) -> Result<FittedGrid> {
        let d = self.range.len();
        // On a line the sparse engine makes thousands of points of a Matérn kernel cheap.
        let kernel =
            if self.is_raced && d == 1 { self.of_family(Family::Matern32)? } else { self.kernel.clone() };
        let mut best: Option<FittedGrid> = None;
        let mut failure = Error::Unsupported { operation: "search", reason: "no start could be fitted" };
        for start in STARTS {
            let kernel = with_lengthscales(&kernel, &vec![start; d])?;
            let hyper = Hyperparameters { kernels: vec![kernel], noise: self.start_noise() };
            let is_affordable = self.is_affordable(&hyper.kernels[0], &self.wanted_points(&hyper));
            if best.is_some() && !(is_affordable && self.has_rank(&hyper.kernels[0])) {
                break;
            }
            match self.followed(&hyper) {
                Err(error) => failure = error,
                Ok(fit) if is_better(&fit, best.as_ref()) => best = Some(fit),
                Ok(_) => {}
            }
        }
        best.ok_or(failure)
    }

    /// The best of all kernels, each from where the first fit ended. They come in the order of their roughness, and once
    /// a rougher one is worse, those that are rougher still are too.
    fn raced(&self, first: &FittedGrid) -> Result<FittedGrid> {
        let mut best: Option<FittedGrid> = None;
        for family in FAMILIES {
            let hyper = self.like(first, family)?;
            if !self.has_rank(&hyper.kernels[0]) {
                continue;
            }
            // One that fails is no candidate, nor is one that would have needed a finer grid than it can have.
            let hyper = match &best {
                Some(best) => match self.fit(&hyper, &self.affordable(&hyper), &fewest()) {
                    Ok(look) if look.evidence < best.evidence - HOPELESS => break,
                    Ok(look) => look.hyper,
                    Err(_) => continue,
                },
                None => hyper,
            };
            match self.followed(&hyper) {
                Ok(fit) if !self.has_rank(&fit.hyper.kernels[0]) => {}
                Ok(fit) if is_better(&fit, best.as_ref()) => best = Some(fit),
                Ok(_) => break,
                Err(_) => {}
            }
        }
        Ok(best.unwrap_or_else(|| first.clone()))
    }

    /// The best sum of two kernels, if it is better than one of them.
    fn summed(&self, one: &FittedGrid) -> Option<FittedGrid> {
        let most = |(&rows, &points): (&usize, &usize)| (self.rows.len() >= rows).then_some(points);
        let most = FEWEST_FOR_SUMS.iter().zip(&SUM_POINTS).filter_map(most).next_back()?;
        let price = |sum: &FittedGrid| {
            let [more, fewer] = [sum, one].map(|fit| fit.hyper.kernels[0].parameter_count() as f64);
            TIE + 0.5 * (more - fewer) * (self.rows.len() as f64).ln()
        };
        let mut best: Option<(f64, FittedGrid)> = None;
        for start in self.sums(one).unwrap_or_default() {
            // One that fails is no candidate, nor one that such a grid does not show.
            if !within(&self.wanted_points(&start), most) {
                continue;
            }
            let Ok(fit) = self.followed(&start) else { continue };
            let gain = fit.evidence - one.evidence - price(&fit);
            if gain <= best.as_ref().map_or(0.0, |best| best.0) {
                // What comes next is more of the same.
                break;
            }
            best = Some((gain, fit));
        }
        best.map(|(_, fit)| self.refined(fit))
    }

    /// Sums of kernels for which there is a sign, with hyperparameters to start from.
    fn sums(&self, one: &FittedGrid) -> Result<Vec<Hyperparameters>> {
        let (kernel, noise, d) = (&one.hyper.kernels[0], one.hyper.noise, self.range.len());
        let start = |kernel: Kernel| Hyperparameters { kernels: vec![kernel], noise };
        let own: Vec<f64> = (0..d).map(|axis| kernel.shortest_lengthscale(axis)).collect();
        let mut sums = Vec::new();
        if let [(lo, hi)] = self.range[..]
            && let Some((period, share)) = season::strongest(&self.rows.x, &self.rows.y, (lo, hi))
        {
            let trend = Kernel::rbf(&[0.25 * (hi - lo)])?.scaled(self.variance());
            let season = Kernel::periodic(&[1.0], &[period])?.scaled(share);
            // The same for ever, or one that changes slowly.
            sums.push(start(trend.clone() + season.clone()));
            sums.push(start(trend + season * Kernel::rbf(&[hi - lo])?));
        }
        let is_rough = kernel.markov_processes().is_some();
        let smooth = Kernel::rbf(&own)?;
        if sums.is_empty() && is_rough && self.has_rank(&smooth) {
            let longer: Vec<f64> = own.iter().map(|l| LONGER * l).collect();
            sums.push(start(
                Kernel::rbf(&longer)?.scaled(kernel.variance()) + smooth.scaled(noise.max(1e-3)),
            ));
        }
        Ok(sums)
    }

    /// A fit, followed to the grid that its length-scales ask for, if it can have that.
    fn followed(&self, start: &Hyperparameters) -> Result<FittedGrid> {
        let mut fit = self.fit(start, &self.affordable(start), &short())?;
        let regrids = if start.kernels[0].term_count() > 1 { 1 } else { REGRIDS };
        for _ in 0..regrids {
            let (has, wants) = (shape(&fit), self.affordable(&fit.hyper));
            let is_right =
                |(&has, &wants): (&usize, &usize)| (0.6..=1.3).contains(&(wants as f64 / has as f64));
            if has.iter().zip(&wants).all(is_right) || !self.has_rank(&fit.hyper.kernels[0]) {
                break;
            }
            fit = self.fit(&fit.hyper, &wants, &short())?;
        }
        Ok(fit)
    }

    /// Whether the rank of a smooth kernel is one that refits can afford; rough ones have engines of their own.
    fn has_rank(&self, kernel: &Kernel) -> bool {
        let on_axis = |((lo, hi), l): (&(f64, f64), f64)| 1.0 + 1.5 * (hi - lo) / l;
        let rank: f64 = self.range.iter().zip(lengthscales(kernel)).map(on_axis).product();
        let most = MOST_RANK[usize::from(self.range.len() > 1)];
        !self.is_raced || kernel.markov_processes().is_some() || rank <= most
    }

    /// Hyperparameters fitted on a grid of the given points.
    fn fit(&self, start: &Hyperparameters, points: &[usize], optimizer: &LbfgsB) -> Result<FittedGrid> {
        interrupt::check()?;
        let grid = Grid::covering(&self.range, points)?;
        let space = with_floors((self.space)(start)?, &grid, &start.kernels[0])?;
        let lattice = Lattice::from(grid);
        let mut stats = Stats::new(lattice.clone());
        stats.observe_batch(&self.rows.x, &self.rows.y, Some(&self.rows.noise))?;
        // On a line a Markov kernel is cheapest by its own engine, however few points there are.
        let is_line = lattice.dim() == 1 && start.kernels[0].markov_processes().is_some();
        let engine = if is_line && *self.engine == Engine::Auto { &Engine::Sparse } else { self.engine };
        let (mut pool, prepared) = (Pool::default(), stats.prepared());
        let refitted = space.refit_with(
            stats.count(),
            start,
            optimizer,
            |hyper, best: Option<&Box<dyn GridPosterior>>, spare: Option<Box<dyn GridPosterior>>| {
                spare.into_iter().for_each(|posterior| posterior.recycle(&mut pool));
                let given = Given {
                    stats: &stats,
                    kernels: &hyper.kernels,
                    noise: hyper.noise,
                    rank_tolerance: self.tolerance,
                    is_frugal: true,
                    prepared: Some(&prepared),
                    is_rough: true,
                };
                engine.evidence(&given, best.map(|best| &**best), &mut pool)
            },
        )?;
        let evidence = -refitted.minimum.value * stats.count().max(1.0);
        Ok(FittedGrid { lattice, hyper: refitted.hyper, space, evidence })
    }

    /// The variance that the kernel starts with: about that of the targets.
    fn variance(&self) -> f64 {
        self.kernel.variance()
    }

    fn start_noise(&self) -> f64 {
        self.known_noise.unwrap_or(START_NOISE * self.variance())
    }

    fn of_family(&self, family: Family) -> Result<Kernel> {
        Ok(Kernel::new(family, self.range.len())?.scaled(self.variance()))
    }

    /// The hyperparameters of a fit, with a kernel of another family.
    fn like(&self, fit: &FittedGrid, family: Family) -> Result<Hyperparameters> {
        let kernel = &fit.hyper.kernels[0];
        let other = Kernel::new(family, self.range.len())?.scaled(kernel.variance());
        let kernels = vec![with_lengthscales(&other, &lengthscales(kernel))?];
        Ok(Hyperparameters { kernels, noise: fit.hyper.noise })
    }

    /// The points on each axis that the hyperparameters ask for.
    fn wanted_points(&self, hyper: &Hyperparameters) -> Vec<usize> {
        let on_axis = |(axis, (lo, hi)): (usize, &(f64, f64))| {
            let points =
                ((hi - lo) / wanted_spacing(hyper, axis)).ceil().min(self.budget as f64) as usize + 3;
            points.max(self.fewest)
        };
        self.range.iter().enumerate().map(on_axis).collect()
    }

    /// The most points that a grid for this kernel may have, as a candidate or as the winner. Matérn ½, and any Matérn on
    /// a line, has a sparse engine, and a smooth kernel a small rank; the others have a rank of as many as there are points.
    fn most_points(&self, kernel: &Kernel, is_winner: bool) -> usize {
        let is_sparse = |all: Vec<(usize, f64)>| all.len() == 1 || all.iter().all(|&(states, _)| states == 1);
        match kernel.markov_processes().map(is_sparse) {
            _ if self.is_raced && kernel.term_count() > 1 => self.budget.min(SUM_POINTS[1]),
            Some(false) => self.budget.min(DENSE_POINTS),
            _ if is_winner || self.range.len() == 1 => self.budget,
            _ => self.budget.min(RACED_POINTS),
        }
    }

    fn is_affordable(&self, kernel: &Kernel, points: &[usize]) -> bool {
        within(points, self.most_points(kernel, false))
    }

    /// The points on each axis that the kernel asks for, within what it may have: the axes with most of them give way.
    fn affordable(&self, hyper: &Hyperparameters) -> Vec<usize> {
        let (kernel, mut points) = (&hyper.kernels[0], self.wanted_points(hyper));
        while !self.is_affordable(kernel, &points) {
            let Some(most) = points.iter_mut().max() else { break };
            if *most <= self.fewest {
                break;
            }
            *most = (*most * 19 / 20).max(self.fewest);
        }
        points
    }
}

/// Keeps the length-scales on each axis above what the grid can show, and the period of a sum near the one that was seen:
/// the evidence has a maximum at each of its multiples and parts. The length-scale of a periodic factor has no unit.
fn with_floors(space: HyperSpace, grid: &Grid, kernel: &Kernel) -> Result<HyperSpace> {
    let (names, values) = (kernel.parameter_names(), kernel.parameters());
    let mut space = space;
    for (axis, step) in grid.axes().iter().map(Axis::step).enumerate() {
        let (own, turn) = (format!("lengthscale[{axis}]"), format!("period[{axis}]"));
        for name in names.iter().filter(|name| name.ends_with(&own)) {
            let period = names.iter().position(|n| *n == name.replace(&own, &turn)).map(|i| values[i]);
            let unit = period.map_or(1.0, |period| std::f64::consts::TAU / period);
            space = space.with_floor(name, FLOOR * step * unit);
        }
        for (name, &period) in names.iter().zip(&values).filter(|(name, _)| name.ends_with(&turn)) {
            if kernel.term_count() > 1 {
                space = space.with_range(name, 0.95 * period, 1.05 * period)?;
            }
        }
    }
    Ok(space)
}

/// The points on each axis of a grid.
fn shape(fit: &FittedGrid) -> Vec<usize> {
    fit.lattice.grids()[0].axes().iter().map(Axis::points).collect()
}

fn within(points: &[usize], most: usize) -> bool {
    points.iter().map(|&p| p as f64).product::<f64>() <= most as f64
}

/// Whether a fit is worth being more complicated than the best so far.
fn is_better(fit: &FittedGrid, best: Option<&FittedGrid>) -> bool {
    best.is_none_or(|best| fit.evidence > best.evidence + TIE)
}

/// The kernel with the given length-scale on each axis, wherever it has one.
fn with_lengthscales(kernel: &Kernel, lengthscales: &[f64]) -> Result<Kernel> {
    let (names, mut values) = (kernel.parameter_names(), kernel.parameters());
    for (axis, &l) in lengthscales.iter().enumerate().filter(|(_, l)| l.is_finite()) {
        let own = format!("lengthscale[{axis}]");
        names.iter().zip(&mut values).filter(|(n, _)| n.ends_with(&own)).for_each(|(_, v)| *v = l);
    }
    let mut kernel = kernel.clone();
    kernel.set_parameters(&values)?;
    Ok(kernel)
}

/// The optimizer of a candidate.
fn short() -> LbfgsB {
    LbfgsB { max_evaluations: 20, relative_tolerance: 1e-5, first_step: 0.5, ..LbfgsB::default() }
}

/// The optimizer on a finer grid, where hyperparameters hardly change.
fn fewest() -> LbfgsB {
    LbfgsB { max_evaluations: 6, first_curvature: 0.5, ..short() }
}

/// The optimizer of the winner.
fn long() -> LbfgsB {
    LbfgsB { max_evaluations: 40, relative_tolerance: 1e-7, first_step: 0.3, ..LbfgsB::default() }
}
