//! A surrogate on grids: constant time and memory, however many results there are.
//!
//! In few dimensions that is one grid. A grid in many would have too many points; there the prior is a sum,
//!
//! ```text
//! f(x) = Σ_k f_k(x_k) + Σ_(k,l) f_kl(x_k, x_l)
//! ```
//!
//! of functions of one dimension and of pairs, each on a small grid. Up to six dimensions all pairs are there;
//! beyond, those that explain most of what the other terms leave, sought anew whenever the number of results
//! has doubled (`pairs`). Such a sum is close to a function in which many dimensions interact only where the box
//! is small, so that the search is local (`region`): the model covers a box around the best point, and learns
//! the results that lie in it. The optimizer keeps its trials, so that nothing is lost when box or sum change.

use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::super::pairs::{self, Pair};
use super::super::region::{Frame, Region};
use super::super::{Incumbent, OptimizerSettings, Surrogate};
use super::{FEW_ROWS, FIRST_NOISE, in_coordinates, scale_of, thorough};
use crate::engine::Engine;
use crate::error::{Error, Result, length};
use crate::feature::{FeatureMap, Select};
use crate::grid::Grid;
use crate::kernel::{Kernel, MAX_DIM};
use crate::learn::{Adam, HyperSpace, Hyperparameters, LbfgsB, Rows};
use crate::likelihood::Target;
use crate::model::{
    ColumnScaling, Encoder, Fading, FixedEncoder, Learner, OffGrid, OnlineGp, Process, RowTargets, Schedule,
    Settings, TargetScale, Wiski, brief,
};
use crate::posterior::{FunctionSample, Joint, Prediction, Surface};

/// Up to so many dimensions a sum has all pairs.
const ALL_PAIRS: usize = 6;

/// Pairs are chosen only where so many results can tell them from chance.
const PAIRS_FROM: usize = 30;

/// Grid points on an axis by the number of dimensions of one grid, and on each axis of a pair.
const POINTS: [usize; MAX_DIM] = [50, 20, 10, 7];
const PAIR_POINTS: usize = 8;

/// A sum spends its rank on many blocks, so that it drops smaller eigenvalues.
const SUM_TOLERANCE: f64 = 1e-4;

/// The most evaluations of fits on one grid of [`MAX_DIM`] axes, each of which takes a tenth of a second with many results:
/// from hyperparameters that are nearly right, and from the start.
const FEW_EVALUATIONS: [usize; 2] = [6, 12];

/// A Gaussian process on one grid or several, with the scale of its values, of which large ones are wanted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "SavedGrids")]
pub(super) struct GridSurrogate {
    dim: usize,
    /// The dimensions that each grid reads.
    blocks: Vec<Vec<usize>>,
    learner: Learner,
    scale: TargetScale,
    schedule: Schedule,
    /// The number of results when pairs were last sought.
    sought_at: usize,
    /// The box that the grids cover.
    frame: Frame,
    /// Where a search in many dimensions looks.
    region: Option<Region>,
    /// What went wrong beside the results.
    #[serde(skip)]
    failure: Option<Error>,
}

/// As it stands in a file: with a learner, or with its parts, as format 1 had them.
#[derive(Deserialize)]
struct SavedGrids {
    dim: usize,
    blocks: Vec<Vec<usize>>,
    learner: Option<Learner>,
    process: Option<Wiski>,
    space: Option<HyperSpace>,
    every_step: Option<(Adam, Vec<f64>)>,
    #[serde(default)]
    since_refit: f64,
    scale: TargetScale,
    schedule: Schedule,
    sought_at: usize,
    frame: Frame,
    region: Option<Region>,
}

impl TryFrom<SavedGrids> for GridSurrogate {
    type Error = Error;

    fn try_from(saved: SavedGrids) -> Result<Self> {
        let SavedGrids { dim, blocks, scale, schedule, sought_at, frame, region, .. } = saved;
        frame.check(dim)?;
        scale.check()?;
        region.as_ref().map_or(Ok(()), |region| region.searched().check(dim))?;
        let learner = match (saved.learner, saved.process, saved.space) {
            (Some(learner), ..) => learner,
            (None, Some(process), Some(space)) => Learner::resumed_from(
                encoder(&frame, &blocks)?,
                vec![Process::resumed(process, saved.every_step, None)],
                None,
                (space, None, Fading::default()),
                (saved.since_refit, 0),
            )?,
            _ => return Err(Error::Config { field: "process".into(), reason: "is missing".into() }),
        };
        length("coordinates", learner.first().input_dim(), blocks.iter().flatten().count())?;
        Ok(Self { dim, blocks, learner, scale, schedule, sought_at, frame, region, failure: None })
    }
}

/// From points in [−1, 1]^d to the coordinates that the grids read: −1 to 1 across the frame.
fn encoder(frame: &Frame, blocks: &[Vec<usize>]) -> Result<Encoder> {
    let mut scaling = ColumnScaling::from_bounds(&frame.sides());
    scaling.limit.fill(1.0);
    let map = FeatureMap::from(Select::new(frame.dim(), blocks.concat())?);
    let moments = map.new_moments();
    Ok(Encoder::new(scaling, map, moments))
}

impl GridSurrogate {
    /// A model fitted to the first results. Their `noise` is the variance of each value where that is known,
    /// and 1 where it is learned.
    pub(super) fn new(dim: usize, settings: &OptimizerSettings, rows: &Rows) -> Result<Self> {
        Self::over(Self::first_region(dim, settings, rows), dim, settings, rows)
    }

    /// The same from the hyperparameters of an exact process on these results: on a single grid they are nearly right, and
    /// a brief fit does.
    pub(super) fn after(
        hyper: &Hyperparameters,
        dim: usize,
        settings: &OptimizerSettings,
        rows: &Rows,
    ) -> Result<Self> {
        if dim > MAX_DIM {
            return Self::new(dim, settings, rows);
        }
        let (frame, scale, mut hyper) = (Frame::whole(dim), scale_of(rows), hyper.clone());
        if settings.known_noise {
            hyper.noise = scale.scale.powi(-2);
        }
        let mut new = Self::build(frame, settings, vec![(0..dim).collect()], &hyper, scale, rows)?;
        new.region = Self::first_region(dim, settings, rows);
        new.learner.refit(&within(brief(), dim, rows.len(), FEW_EVALUATIONS[0]))?;
        Ok(new)
    }

    fn first_region(dim: usize, settings: &OptimizerSettings, rows: &Rows) -> Option<Region> {
        let best = rows.y.iter().fold(f64::NEG_INFINITY, |b, y| b.max(*y));
        let is_local = settings.local.unwrap_or(dim > MAX_DIM);
        is_local.then(|| Region::whole(dim, best))
    }

    /// Lets the search close in on the best point from now on.
    pub(super) fn close_in(&mut self, all: &Rows) {
        let best = all.y.iter().fold(f64::NEG_INFINITY, |b, y| b.max(*y));
        self.region.get_or_insert_with(|| Region::whole(self.dim, best));
    }

    /// A model of the box that belongs to a region, fitted to the results in it.
    fn over(region: Option<Region>, dim: usize, settings: &OptimizerSettings, all: &Rows) -> Result<Self> {
        let blocks = if dim <= MAX_DIM {
            vec![(0..dim).collect()]
        } else if dim <= ALL_PAIRS {
            with_pairs(dim, &all_pairs(dim))
        } else {
            with_pairs(dim, &[])
        };
        let frame = region.as_ref().map_or_else(|| Frame::whole(dim), Region::covered);
        let rows = inside(&frame, all);
        let scale = scale_of(&rows);
        let noise = if settings.known_noise { scale.scale.powi(-2) } else { FIRST_NOISE };
        let kernels = blocks.iter().map(|b| first_kernel(settings, b.len(), blocks.len()));
        let hyper = Hyperparameters { kernels: kernels.collect::<Result<_>>()?, noise };
        let mut new = Self::build(frame, settings, blocks, &hyper, scale, &rows)?;
        new.region = region;
        new.learner.refit(&within(thorough(), dim, rows.len(), FEW_EVALUATIONS[1]))?;
        if dim > ALL_PAIRS && rows.len() >= PAIRS_FROM {
            new.seek_pairs(settings, &rows)?;
            new.learner.refit(&brief())?;
        }
        Ok(new)
    }

    /// The process with the given blocks and hyperparameters, and all results learned: they lie in the frame.
    fn build(
        frame: Frame,
        settings: &OptimizerSettings,
        blocks: Vec<Vec<usize>>,
        hyper: &Hyperparameters,
        scale: TargetScale,
        rows: &Rows,
    ) -> Result<Self> {
        let dim = frame.dim();
        let coarsest = if blocks.len() > 1 { SUM_TOLERANCE } else { 0.0 };
        let mut builder = Wiski::builder()
            .noise(hyper.noise)
            .off_grid(OffGrid::Error)
            // Joint predictions need a factor in p coordinates, whatever the size.
            .engine(Engine::Dense)
            .rank_tolerance(settings.rank_tolerance.max(coarsest));
        for (block, kernel) in blocks.iter().zip(&hyper.kernels) {
            let points = points(settings, block.len(), dim);
            let grid = Grid::covering(&vec![(-1.0, 1.0); block.len()], &vec![points; block.len()])?;
            builder = builder.grid(grid).kernel(kernel.clone());
        }
        let mut space = HyperSpace::new(hyper);
        if settings.known_noise {
            space = space.with_known_noise();
        }
        for (name, prior) in &settings.priors {
            space = space.with_prior(name, in_coordinates(name, *prior, blocks.len()))?;
        }
        let mut process = builder.build()?;
        let (encoder, schedule, sought_at) = (encoder(&frame, &blocks)?, settings.schedule, rows.len());
        let y: Vec<f64> = rows.y.iter().map(|&y| scale.apply(y)).collect();
        process.observe_batch(&encoder.encode_all(&rows.x)?, &y, Some(&rows.noise))?;
        let processes = vec![Process::new(process, None)];
        let learner = Learner::new(encoder, processes, None, space, None, Fading::default(), schedule)?;
        Ok(Self { dim, blocks, learner, scale, schedule, sought_at, frame, region: None, failure: None })
    }

    /// The number of dimensions.
    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    /// The Gaussian process on the grid or grids, in units of standardized values.
    pub(super) fn process(&self) -> &Wiski {
        self.learner.first()
    }

    /// The dimensions that each of its grids reads.
    pub(super) fn blocks(&self) -> &[Vec<usize>] {
        &self.blocks
    }

    /// How values are scaled inside the model at the moment.
    pub(super) fn scale(&self) -> TargetScale {
        self.scale
    }

    /// The box that the model covers at the moment, a lower and an upper end for each dimension: all of
    /// [−1, 1]^d unless the search is local.
    pub(super) fn covers(&self) -> Vec<(f64, f64)> {
        self.frame.sides()
    }

    /// What went wrong beside the results since the last call.
    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take().or_else(|| self.learner.take_failure())
    }

    /// What the model says about a point that it covers, in the units of the values.
    pub(super) fn predict(&self, x: &[f64]) -> Result<Prediction> {
        length("x", self.dim, x.len())?;
        if !self.frame.contains(x) {
            let reason = format!("{x:?} lies outside of the box that the model covers now");
            return Err(Error::Config { field: "x".into(), reason });
        }
        Ok(self.scale.undo(self.learner.predict_first(x)?))
    }

    /// The places of results that the model covers, row after row.
    pub(super) fn covered(&self, all: &Rows) -> Vec<f64> {
        inside(&self.frame, all).x
    }

    /// The box in which points are proposed.
    pub(super) fn searched(&self) -> Vec<(f64, f64)> {
        self.region.as_ref().map_or_else(|| self.frame.sides(), |r| r.searched().sides())
    }

    /// The posterior for joint predictions.
    pub(super) fn posterior(&self) -> Result<GridPosterior> {
        let (surface, encoder) = (self.process().posterior()?.surface(), self.learner.encoder().fixed()?);
        Ok(GridPosterior { surface, encoder, frame: self.frame.clone(), searched: self.searched() })
    }

    /// A whole function drawn from the posterior.
    pub(super) fn sample(&self, rng: &mut Xoshiro256PlusPlus) -> Result<GridPath> {
        Ok(GridPath { function: self.process().sample(rng)?, encoder: self.learner.encoder().fixed()? })
    }

    /// Predicts a value, then learns it, in constant time, if it lies in the box that the model covers. `all` are
    /// the results, this one included: they are looked at only when hyperparameters are learned anew or the box
    /// changes.
    pub(super) fn observe(&mut self, settings: &OptimizerSettings, all: &Rows) -> Result<Option<Prediction>> {
        let last = all.len() - 1;
        let is_covered = self.frame.contains(&all.x[last * self.dim..]);
        let prediction = if is_covered { Some(self.learn(all)?) } else { None };
        // The result is learned: what fails from here on is reported apart.
        if is_covered && self.learner.is_refit_due(self.schedule) {
            self.failure = self.refit(settings, all, &brief()).err().or(self.failure.take());
        }
        let deviation = self.scale.scale;
        if self.region.as_mut().is_some_and(|region| region.judge(all.y[last], deviation)) {
            self.failure = self.move_region(settings, all).err().or(self.failure.take());
        }
        Ok(prediction)
    }

    /// Closes in on the best point, or opens up, as the region says.
    fn move_region(&mut self, settings: &OptimizerSettings, all: &Rows) -> Result<()> {
        // By its mean: the best value that was measured may have been luck.
        let best = Incumbent::among(&self.posterior()?, &self.covered(all))?.place;
        let place = best.map_or_else(|| vec![0.0; self.dim], |b| b.0);
        let moved = self.region.as_ref().map(|region| region.moved(&place));
        *self = Self::over(moved, self.dim, settings, all)?;
        Ok(())
    }

    /// Learns the last result.
    fn learn(&mut self, all: &Rows) -> Result<Prediction> {
        let last = all.len() - 1;
        let target = Target { value: self.scale.apply(all.y[last]), noise: all.noise[last] };
        let rows = Settings { off_grid: OffGrid::Error, schedule: self.schedule, ..Settings::default() };
        self.learner.learn(&all.x[last * self.dim..], &RowTargets::of_value(&target), None, &rows)?;
        Ok(self.scale.undo(self.learner.predictions()[0]))
    }

    /// Fits the hyperparameters to convergence.
    pub(super) fn converge(&mut self, settings: &OptimizerSettings, all: &Rows) -> Result<()> {
        self.refit(settings, all, &thorough())
    }

    fn refit(&mut self, settings: &OptimizerSettings, all: &Rows, optimizer: &LbfgsB) -> Result<()> {
        let rows = &inside(&self.frame, all);
        let (old, new) = (self.scale, scale_of(rows));
        self.learner.rescale_targets((new.shift - old.shift) / old.scale, new.scale / old.scale)?;
        self.scale = new;
        if self.dim > ALL_PAIRS && rows.len() >= (2 * self.sought_at).max(PAIRS_FROM) {
            self.seek_pairs(settings, rows)?;
        }
        self.learner.refit(optimizer)
    }

    /// Chooses the pairs anew, given the results in the frame; those that stay keep their hyperparameters.
    fn seek_pairs(&mut self, settings: &OptimizerSettings, rows: &Rows) -> Result<()> {
        let before = self.process().hyperparameters();
        let singles: Vec<usize> = (0..self.blocks.len()).filter(|&j| self.blocks[j].len() == 1).collect();
        let kernels = singles.iter().map(|&j| before.kernels[j].clone()).collect();
        let alone = Hyperparameters { kernels, noise: before.noise };
        let singles = with_pairs(self.dim, &[]);
        let effects = Self::build(self.frame.clone(), settings, singles, &alone, self.scale, rows)?;
        let mut residuals = Vec::with_capacity(rows.len());
        for (x, y) in rows.x.chunks_exact(self.dim).zip(&rows.y) {
            residuals.push((y - effects.predict(x)?.mean) / self.scale.scale);
        }
        // Its blocks are the dimensions in order, so that these are the coordinates of the points.
        let places = effects.learner.encoder().encode_all(&rows.x)?;
        let blocks = with_pairs(self.dim, &pairs::choose(self.dim, &places, &residuals)?);
        let kernel = |block: &Vec<usize>| match self.blocks.iter().position(|b| b == block) {
            Some(j) => Ok(before.kernels[j].clone()),
            None => first_kernel(settings, block.len(), blocks.len()),
        };
        let kernels = blocks.iter().map(kernel).collect::<Result<_>>()?;
        let hyper = Hyperparameters { kernels, noise: before.noise };
        let region = self.region.take();
        *self = Self::build(self.frame.clone(), settings, blocks, &hyper, self.scale, rows)?;
        self.region = region;
        Ok(())
    }
}

/// An optimizer with fewer evaluations where each takes long.
fn within(mut optimizer: LbfgsB, dim: usize, results: usize, evaluations: usize) -> LbfgsB {
    if dim == MAX_DIM && results > FEW_ROWS {
        optimizer.max_evaluations = evaluations;
    }
    optimizer
}

/// The results that lie in a frame.
fn inside(frame: &Frame, all: &Rows) -> Rows {
    let dim = frame.dim();
    all.filter(|i| frame.contains(&all.x[i * dim..(i + 1) * dim]))
}

fn all_pairs(dim: usize) -> Vec<Pair> {
    (0..dim).flat_map(|i| (i + 1..dim).map(move |j| (i, j))).collect()
}

/// A block for every dimension and for the given pairs.
fn with_pairs(dim: usize, pairs: &[Pair]) -> Vec<Vec<usize>> {
    (0..dim).map(|k| vec![k]).chain(pairs.iter().map(|&(i, j)| vec![i, j])).collect()
}

/// Grid points on each axis of a block. A single dimension of a sum has twice those of a pair.
fn points(settings: &OptimizerSettings, axes: usize, dim: usize) -> usize {
    if dim <= MAX_DIM {
        return settings.grid.unwrap_or(POINTS[dim - 1]);
    }
    let pair = settings.grid.unwrap_or(PAIR_POINTS);
    if axes == 1 { 2 * pair } else { pair }
}

/// The kernel of a block to start from: all blocks together have variance 1.
fn first_kernel(settings: &OptimizerSettings, axes: usize, blocks: usize) -> Result<Kernel> {
    Ok(Kernel::new(settings.family, axes)?.scaled((blocks as f64).recip()))
}

/// The posterior of a [`GridSurrogate`] over all its dimensions, for joint predictions.
#[derive(Debug, Clone)]
pub(in super::super) struct GridPosterior {
    surface: Surface,
    encoder: FixedEncoder,
    frame: Frame,
    searched: Vec<(f64, f64)>,
}

impl GridPosterior {
    /// Takes the mean at a point for granted, or `most` if that is less. One that the model does not cover says
    /// nothing about what it does.
    pub(super) fn assume(&mut self, x: &[f64], most: f64) -> Result<()> {
        if !self.frame.contains(x) {
            return Ok(());
        }
        let h = self.encoder.encode(x)?;
        let mean = self.surface.mean(&h)?;
        self.surface.condition(&h, mean.min(most), 1.0)
    }
}

impl Surrogate for GridPosterior {
    fn dim(&self) -> usize {
        self.frame.dim()
    }

    fn bounds(&self) -> Vec<(f64, f64)> {
        self.searched.clone()
    }

    fn noise(&self) -> f64 {
        self.surface.noise()
    }

    fn mean(&self, x: &[f64]) -> Result<f64> {
        self.surface.mean(&self.encoder.encode(x)?)
    }

    fn predict(&self, x: &[f64], out: &mut Joint) -> Result<()> {
        self.surface.predict(&self.encoder.encode_all(x)?, out)
    }

    fn vjp(
        &self,
        x: &[f64],
        joint: &Joint,
        by_mean: &[f64],
        by_covariance: &[f64],
        gradient: &mut [f64],
    ) -> Result<()> {
        let h = self.encoder.encode_all(x)?;
        let mut by_h = vec![0.0; h.len()];
        self.surface.vjp(&h, joint, by_mean, by_covariance, &mut by_h)?;
        self.encoder.vjp_all(x, &by_h, gradient)
    }
}

/// A function drawn from the posterior of a [`GridSurrogate`].
pub(in super::super) struct GridPath {
    function: FunctionSample,
    encoder: FixedEncoder,
}

impl GridPath {
    pub(super) fn evaluate(&self, x: &[f64], gradient: Option<&mut [f64]>) -> Result<f64> {
        let h = self.encoder.encode(x)?;
        let Some(gradient) = gradient else { return self.function.value(&h) };
        let mut by_h = vec![0.0; h.len()];
        let value = self.function.value_and_gradient(&h, &mut by_h)?;
        gradient.fill(0.0);
        self.encoder.vjp(x, &by_h, gradient)?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Acquisition, BaseSamples};
    use rand::{RngExt, SeedableRng};

    fn rows(dim: usize, n: usize) -> Rows {
        let (mut rows, mut rng) = (Rows::default(), Xoshiro256PlusPlus::seed_from_u64(2));
        for _ in 0..n {
            let x: Vec<f64> = (0..dim).map(|_| rng.random_range(-1.0..1.0)).collect();
            let y = 5.0 + 3.0 * (2.0 * x[0]).sin() + x[1] * x[dim - 1];
            rows.push(&x, y, 1.0);
        }
        rows
    }

    fn assert_gradient(x: &[f64], gradient: &[f64], value: impl Fn(&[f64]) -> f64) {
        for k in 0..x.len() {
            let at = |step: f64| {
                let mut x = x.to_vec();
                x[k] += step;
                value(&x)
            };
            let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
            assert!((slope - gradient[k]).abs() < 1e-6 * (1.0 + slope.abs()), "{k}: {slope} {}", gradient[k]);
        }
    }

    #[test]
    fn gradients_reach_every_dimension_of_a_sum() {
        for (dim, half) in [(2, 1.0), (5, 0.4), (7, 1.0)] {
            let settings = OptimizerSettings::default();
            let region = (dim > 4).then(|| Region::at(vec![0.1; dim], half));
            let surrogate = GridSurrogate::over(region, dim, &settings, &rows(dim, 60)).unwrap();
            let posterior = surrogate.posterior().unwrap();
            let q = 2;
            let x: Vec<f64> = (0..q * dim).map(|i| 0.1 + 0.4 * (3.3 * i as f64).cos()).collect();
            let samples = BaseSamples::new(q, 64, 5);
            let incumbent = Incumbent::among(&posterior, &surrogate.covered(&rows(dim, 60))).unwrap();
            let criterion = Acquisition::UCB;
            let mut gradient = vec![0.0; q * dim];
            let question = (&x[..], &incumbent, &samples);
            criterion.value_and_gradient(&posterior, question, &mut Joint::default(), &mut gradient).unwrap();
            let value = |x: &[f64]| {
                criterion.value(&posterior, (x, &incumbent, &samples), &mut Joint::default()).unwrap()
            };
            assert_gradient(&x, &gradient, value);
            let path = surrogate.sample(&mut Xoshiro256PlusPlus::seed_from_u64(1)).unwrap();
            let mut gradient = vec![0.0; dim];
            path.evaluate(&x[..dim], Some(&mut gradient)).unwrap();
            assert_gradient(&x[..dim], &gradient, |x| path.evaluate(x, None).unwrap());
        }
    }

    #[test]
    fn learning_one_by_one_is_learning_all_at_once() {
        let (settings, all) =
            (OptimizerSettings { schedule: Schedule::Off, ..Default::default() }, rows(5, 40));
        let mut one = GridSurrogate::new(5, &settings, &all.filter(|i| i < 20)).unwrap();
        let before = one.clone();
        for n in 20..40 {
            one.learn(&all.filter(|i| i <= n)).unwrap();
        }
        let hyper = before.process().hyperparameters();
        let whole =
            GridSurrogate::build(before.frame, &settings, before.blocks, &hyper, before.scale, &all).unwrap();
        let place = [0.1, -0.4, 0.3, 0.8, -0.9];
        let (a, b) = (one.predict(&place).unwrap(), whole.predict(&place).unwrap());
        assert!((a.mean - b.mean).abs() < 1e-9 && (a.variance - b.variance).abs() < 1e-9, "{a:?} {b:?}");
    }

    #[test]
    fn a_search_without_success_closes_in() {
        let (settings, mut all) =
            (OptimizerSettings { local: Some(true), ..Default::default() }, rows(2, 30));
        let mut surrogate = GridSurrogate::new(2, &settings, &all).unwrap();
        assert_eq!(surrogate.covers(), vec![(-1.0, 1.0); 2]);
        let best = Incumbent::among(&surrogate.posterior().unwrap(), &all.x).unwrap().place.unwrap().0;
        for _ in 0..12 {
            // The same place and a poor value, over and over.
            all.push(&best, 5.0, 1.0);
            surrogate.observe(&settings, &all).unwrap();
        }
        let covers = surrogate.covers();
        assert!(covers.iter().any(|side| *side != (-1.0, 1.0)), "{covers:?}");
        assert!(surrogate.process().count() < all.len() as f64);
        // Points are proposed inside of what is covered, and elsewhere nothing is predicted.
        let inside = |(outer, inner): (&(f64, f64), &(f64, f64))| outer.0 <= inner.0 && inner.1 <= outer.1;
        assert!(covers.iter().zip(&surrogate.searched()).all(inside));
        let far: Vec<f64> = covers.iter().map(|s| if s.0 > -1.0 { -1.0 } else { 1.0 }).collect();
        let outside = covers.iter().zip(&far).any(|(s, x)| *x < s.0 || *x > s.1);
        assert!(!outside || surrogate.predict(&far).is_err());
        all.push(&far, 0.0, 1.0);
        assert!(outside && surrogate.observe(&settings, &all).unwrap().is_none());
    }
}
