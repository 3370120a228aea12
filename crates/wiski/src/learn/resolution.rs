//! What one grid over the columns needs, found on the rows in memory: kernel, points on each axis, hyperparameters.
//!
//! A grid of spacing h cannot show what happens within h, and a fit on it cannot tell that something does: where the
//! truth is finer, the evidence has a maximum at "all is noise". So the search goes from long length-scales to short
//! ones, each start ℓ on a grid made for it, h = ℓ/c, and each fit is followed to the grid that its own length-scales
//! ask for. Then the kernels are raced from the best of these. All of it is judged by the evidence, which is the
//! density of every row given those before it, so nothing needs to be held out; what is simpler wins unless the rows
//! are e times as likely under the other.
//!
//! One evaluation costs what the engine says for the grid ([`crate::engine`]), and there are about 150 of them.

use super::{HyperSpace, Hyperparameters, LbfgsB, Rows};
use crate::engine::{Engine, Given, GridPosterior};
use crate::error::{Error, Result};
use crate::grid::{Grid, Lattice};
use crate::kernel::{Family, Kernel};
use crate::pool::Pool;
use crate::stats::Stats;

/// The kernels that are raced, the simplest first: what is smooth can be interpolated best and has the smallest rank.
const FAMILIES: [Family; 4] = [Family::Rbf, Family::Matern52, Family::Matern32, Family::Matern12];

/// Length-scales to start from, on columns scaled to [−1, 1].
const STARTS: [f64; 7] = [1.0, 0.35, 0.12, 0.04, 0.014, 0.005, 0.0018];

/// What a start takes to be noise, as a share of the variance of the targets.
const START_NOISE: f64 = 0.1;

/// Fewest points on an axis, by the number of axes.
const FEWEST: [usize; 4] = [32, 16, 10, 7];

/// A length-scale is at least so many spacings: what is shorter shows on no grid point but its own.
const FLOOR: f64 = 0.7;

/// An RBF is not tried where its rank, about 1.5 width/ℓ on each axis, is beyond this.
const MOST_RANK: f64 = 400.0;

/// A more complicated candidate has to be better by so many nats.
const TIE: f64 = 1.0;

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
    /// The points on each axis, where they are given.
    pub(crate) points: Option<Vec<usize>>,
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
pub(crate) fn lengthscales(kernel: &Kernel) -> Vec<f64> {
    let (names, values) = (kernel.parameter_names(), kernel.parameters());
    let own = |axis: usize| format!("lengthscale[{axis}]");
    let smallest = |axis: usize| {
        let all = names.iter().zip(&values).filter(|(name, _)| name.ends_with(&own(axis)));
        all.map(|(_, &value)| value).fold(f64::INFINITY, f64::min)
    };
    (0..kernel.dim()).map(smallest).collect()
}

/// Spacings in a length-scale: cubic interpolation errs by (h/ℓ)³ on what is smooth; what is rough it cannot follow
/// within a cell in any case.
fn cells_in_lengthscale(kernel: &Kernel) -> f64 {
    match kernel.markov_processes() {
        Some(processes) if processes.iter().all(|&(states, _)| states == 1) => 1.5,
        Some(processes) if processes.iter().all(|&(states, _)| states == 2) => 2.0,
        Some(_) => 4.0,
        None => 6.0,
    }
}

impl GridSearch<'_> {
    /// The grid, kernel and hyperparameters that the rows are most likely under.
    pub(crate) fn run(&self) -> Result<FittedGrid> {
        let first = self.longest_to_shortest()?;
        let mut best = first.clone();
        if self.is_raced {
            best = self.raced(&first)?;
        }
        let mut best = self.fit(&best.hyper, &self.shape(&best), &long())?;
        // Where there is little noise the rows can tell an interpolation from what is interpolated.
        for _ in 0..REFINEMENTS {
            let finer: Vec<usize> = self.shape(&best).iter().map(|&points| points * 4 / 3).collect();
            if self.points.is_some() || !self.is_affordable(&finer) {
                break;
            }
            match self.fit(&best.hyper, &finer, &short()) {
                Ok(fit) if fit.evidence > best.evidence + TIE => best = fit,
                _ => break,
            }
        }
        Ok(best)
    }

    /// The best of fits from long to short length-scales.
    fn longest_to_shortest(&self) -> Result<FittedGrid> {
        let mut best: Option<FittedGrid> = None;
        let mut failure = None;
        let mut behind = 0;
        for start in STARTS {
            let mut kernel = self.kernel.clone();
            if self.is_raced && self.range.len() == 1 {
                // On a line the sparse engine makes thousands of points of a Matérn kernel cheap.
                kernel = self.of_family(Family::Matern32)?;
            }
            let kernel = with_lengthscales(&kernel, &vec![start; self.range.len()])?;
            let wanted = self.wanted_points(&kernel);
            if best.is_some() && !self.is_affordable(&wanted) {
                break;
            }
            let hyper = Hyperparameters { kernels: vec![kernel], noise: self.start_noise() };
            match self.followed(&hyper, &short()) {
                Err(error) => failure = Some(error),
                Ok(fit) => {
                    let is_better = best.as_ref().is_none_or(|b| fit.evidence > b.evidence + TIE);
                    behind = if is_better { 0 } else { behind + 1 };
                    // What is found with a signal in it, and not bettered twice, is taken.
                    let has_signal = |fit: &FittedGrid| fit.hyper.noise < 0.5 * self.variance();
                    if is_better {
                        best = Some(fit);
                    } else if behind >= 2 && best.as_ref().is_some_and(has_signal) {
                        break;
                    }
                }
            }
            if self.points.is_some() && behind >= 1 {
                break;
            }
        }
        let none = Error::Unsupported { operation: "search", reason: "no start could be fitted" };
        best.ok_or(failure.unwrap_or(none))
    }

    /// The best of all kernels, each from where the first fit ended.
    fn raced(&self, first: &FittedGrid) -> Result<FittedGrid> {
        let mut best: Option<FittedGrid> = None;
        let found = lengthscales(&first.hyper.kernels[0]);
        for family in FAMILIES {
            let variance = first.hyper.kernels[0].variance();
            let kernel =
                with_lengthscales(&self.of_family(family)?.scaled(variance / self.variance()), &found)?;
            let hyper = Hyperparameters { kernels: vec![kernel], noise: first.hyper.noise };
            // One that fails is no candidate.
            if let Ok(fit) = self.followed(&hyper, &short())
                && best.as_ref().is_none_or(|b| fit.evidence > b.evidence + TIE)
            {
                best = Some(fit);
            }
        }
        Ok(best.unwrap_or_else(|| first.clone()))
    }

    /// A fit, followed to the grid that its length-scales ask for.
    fn followed(&self, start: &Hyperparameters, optimizer: &LbfgsB) -> Result<FittedGrid> {
        self.check_rank(&start.kernels[0])?;
        let mut fit = self.fit(start, &self.affordable(&self.wanted_points(&start.kernels[0])), optimizer)?;
        for _ in 0..REGRIDS {
            let (has, wants) =
                (self.shape(&fit), self.affordable(&self.wanted_points(&fit.hyper.kernels[0])));
            let is_right = |(&has, &wants): (&usize, &usize)| {
                let ratio = wants as f64 / has as f64;
                (0.6..=1.3).contains(&ratio)
            };
            if has.iter().zip(&wants).all(is_right) {
                break;
            }
            self.check_rank(&fit.hyper.kernels[0])?;
            fit = self.fit(&fit.hyper, &wants, optimizer)?;
        }
        Ok(fit)
    }

    /// Rejects a smooth kernel whose rank no refit could afford; rough ones have engines of their own.
    fn check_rank(&self, kernel: &Kernel) -> Result<()> {
        let scales = lengthscales(kernel);
        let rank: f64 =
            self.range.iter().zip(scales).map(|((lo, hi), l)| 1.0 + 1.5 * (hi - lo) / l).product();
        if self.is_raced && kernel.markov_processes().is_none() && rank > MOST_RANK {
            return Err(Error::Unsupported {
                operation: "search",
                reason: "a smooth kernel has too large a rank",
            });
        }
        Ok(())
    }

    /// Hyperparameters fitted on a grid of the given points.
    fn fit(&self, start: &Hyperparameters, points: &[usize], optimizer: &LbfgsB) -> Result<FittedGrid> {
        let grid = Grid::covering(&self.range, points)?;
        let space = with_floors((self.space)(start)?, &grid);
        let lattice = Lattice::from(grid);
        let mut stats = Stats::new(lattice.clone());
        stats.observe_batch(&self.rows.x, &self.rows.y, Some(&self.rows.noise))?;
        // On a line a Markov kernel is cheapest by its own engine, however few points there are.
        let is_line = lattice.dim() == 1 && start.kernels[0].markov_processes().is_some();
        let engine = if is_line && *self.engine == Engine::Auto { &Engine::Sparse } else { self.engine };
        let mut pool = Pool::default();
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

    fn shape(&self, fit: &FittedGrid) -> Vec<usize> {
        fit.lattice.grids()[0].axes().iter().map(|axis| axis.points()).collect()
    }

    /// The points on each axis that the kernel asks for.
    fn wanted_points(&self, kernel: &Kernel) -> Vec<usize> {
        if let Some(points) = &self.points {
            return points.clone();
        }
        let (d, cells) = (self.range.len(), cells_in_lengthscale(kernel));
        let fewest = FEWEST[d.clamp(1, FEWEST.len()) - 1];
        let on_axis = |((lo, hi), l): (&(f64, f64), f64)| {
            let points = (cells * (hi - lo) / l).ceil().min(self.budget as f64) as usize + 3;
            points.max(fewest)
        };
        self.range.iter().zip(lengthscales(kernel)).map(on_axis).collect()
    }

    fn is_affordable(&self, points: &[usize]) -> bool {
        self.points.is_some() || points.iter().map(|&p| p as f64).product::<f64>() <= self.budget as f64
    }

    /// Points on each axis within the budget: the axes with most of them give way.
    fn affordable(&self, points: &[usize]) -> Vec<usize> {
        let mut points = points.to_vec();
        let fewest = FEWEST[points.len().clamp(1, FEWEST.len()) - 1];
        while !self.is_affordable(&points) {
            let Some(most) = points.iter_mut().max() else { break };
            if *most <= fewest {
                break;
            }
            *most = (*most * 19 / 20).max(fewest);
        }
        points
    }
}

/// Keeps the length-scales on each axis above what the grid can show.
pub(crate) fn with_floors(space: HyperSpace, grid: &Grid) -> HyperSpace {
    let floor = |space: HyperSpace, (axis, step): (usize, f64)| {
        space.with_floor(&format!("lengthscale[{axis}]"), FLOOR * step)
    };
    grid.axes().iter().map(|axis| axis.step()).enumerate().fold(space, floor)
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

/// The optimizer of the winner.
fn long() -> LbfgsB {
    LbfgsB { max_evaluations: 40, relative_tolerance: 1e-7, first_step: 0.3, ..LbfgsB::default() }
}
