//! The online Gaussian process on a grid: statistics that data touches, a posterior computed from them.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::belief::Belief;
use super::{OffGrid, OnlineGp, Outcome, WiskiBuilder};
use crate::error::{Error, Result, finite, length, positive};
use crate::evidence::Evidence;
use crate::kernel::Kernel;
use crate::learn::{HyperSpace, Hyperparameters, LbfgsB, Minimum};
use crate::pool::Pool;
use crate::posterior::{
    FunctionSample, Posterior, Prediction, PredictionGradient, Predictor, SavedPosterior, Workspace,
};
use crate::prior::Prior;
use crate::stats::{Gram, Stats};

/// Recursive conditioning is compared with the statistics after this many updates. The check costs about as
/// much as five updates, and where rows wait for the factor, a copy of it that contains them.
const CHECK_EVERY: usize = 1024;

/// A saved posterior whose relative error is below this lives in the coordinates of the prior computed on
/// loading; in other coordinates the error would be of order one.
const SAME_COORDINATES: f64 = 1e-6;

/// An exact online Gaussian process on a grid, in constant time and memory per observation.
///
/// ```
/// use wiski::{Kernel, OnlineGp, Wiski, grid::Grid};
///
/// let mut model = Wiski::builder()
///     .grid(Grid::covering(&[(0.0, 10.0)], &[40])?)
///     .kernel(Kernel::rbf(&[1.0])?)
///     .noise(0.01)
///     .build()?;
/// for i in 0..1000 {
///     let x = (i as f64 * 0.618).rem_euclid(10.0);
///     model.observe(&[x], x.sin())?;
/// }
/// let p = model.predict(&[3.0])?;
/// assert!((p.mean - 3f64.sin()).abs() < 0.01);
/// # Ok::<(), wiski::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Wiski {
    settings: WiskiBuilder,
    kernels: Vec<Kernel>,
    stats: Stats,
    belief: Belief,
    workspace: Workspace,
    pool: Pool,
    updates_since_check: usize,
    refactorizations: usize,
}

/// A model as it stands in a file.
#[derive(Serialize, Deserialize)]
struct SavedWiski<'a> {
    settings: Cow<'a, WiskiBuilder>,
    kernels: Cow<'a, [Kernel]>,
    stats: Cow<'a, Stats>,
    /// None on a large grid, where it is computed from the statistics.
    posterior: Option<SavedPosterior>,
    updates_since_check: usize,
    refactorizations: usize,
}

impl Serialize for Wiski {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let saved = SavedWiski {
            settings: Cow::Borrowed(&self.settings),
            kernels: Cow::Borrowed(&self.kernels),
            stats: Cow::Borrowed(&self.stats),
            posterior: self.belief.dense().ok().map(Posterior::saved),
            updates_since_check: self.updates_since_check,
            refactorizations: self.refactorizations,
        };
        saved.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Wiski {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Self::from_saved(SavedWiski::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Wiski {
    fn from_saved(saved: SavedWiski) -> Result<Self> {
        let settings = saved.settings.into_owned();
        positive("noise", settings.noise, 0)?;
        positive("drift tolerance", settings.drift_tolerance, 0)?;
        if !(0.0..1.0).contains(&settings.rank_tolerance) {
            let reason = format!("{} is not a share below 1", settings.rank_tolerance);
            return Err(Error::Config { field: "rank tolerance".into(), reason });
        }
        let (kernels, stats) = (saved.kernels.into_owned(), saved.stats.into_owned());
        let (mut workspace, mut pool) = (Workspace::default(), Pool::default());
        let belief = match saved.posterior {
            // A large posterior is a function of statistics and hyperparameters.
            None => Belief::new(&settings, &stats, &kernels, settings.noise, None, &mut pool)?,
            Some(saved) => {
                let prior = Arc::new(Prior::new(stats.lattice(), &kernels, settings.rank_tolerance)?);
                // Another processor may find other eigenvectors for the same prior (a sign is enough), and then
                // the saved coordinates mean something else. The statistics are the truth: where the two do not
                // agree, the posterior is computed from them.
                let restored = Posterior::from_saved(saved, prior.clone()).ok();
                let fits = |p: &Posterior| p.drift(&stats, &mut workspace).is_within(SAME_COORDINATES);
                Belief::Dense(match restored.filter(fits) {
                    Some(posterior) => posterior,
                    None => Posterior::new(prior, &stats, settings.noise)?,
                })
            }
        };
        Ok(Self {
            settings,
            kernels,
            stats,
            belief,
            workspace,
            pool,
            updates_since_check: saved.updates_since_check,
            refactorizations: saved.refactorizations,
        })
    }

    /// Starts a configuration.
    pub fn builder() -> WiskiBuilder {
        WiskiBuilder::default()
    }

    pub(super) fn assemble(settings: WiskiBuilder, kernels: Vec<Kernel>, stats: Stats) -> Result<Self> {
        let mut pool = Pool::default();
        let belief = Belief::new(&settings, &stats, &kernels, settings.noise, None, &mut pool)?;
        Ok(Self {
            settings,
            kernels,
            stats,
            belief,
            workspace: Workspace::default(),
            pool,
            updates_since_check: 0,
            refactorizations: 0,
        })
    }

    /// The sufficient statistics.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The posterior at the present hyperparameters. Refused on a large grid, whose engine keeps none in p
    /// coordinates.
    pub fn posterior(&self) -> Result<&Posterior> {
        self.belief.dense()
    }

    /// The engine in use: `dense`, `sparse` or `krylov`.
    pub fn engine(&self) -> &'static str {
        match &self.belief {
            Belief::Dense(_) => "dense",
            Belief::Large(large) => large.posterior.name(),
        }
    }

    /// Brings the posterior up to date with everything learned. On small grids it always is; on large ones it
    /// follows when the data have grown by a quarter, so what [`OnlineGp::step`] predicts may lag behind, or when
    /// [`OnlineGp::predict`] asks.
    pub fn settle(&mut self) -> Result<()> {
        if self.belief.is_behind() { self.refactorize() } else { Ok(()) }
    }

    /// The kernels, one for each grid.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The noise variance σ².
    pub fn noise(&self) -> f64 {
        self.settings.noise
    }

    /// The rank p of the posterior.
    pub fn rank(&self) -> usize {
        self.belief.rank()
    }

    /// How often drift of the recursive updates caused a new factorization.
    pub fn refactorizations(&self) -> usize {
        self.refactorizations
    }

    /// An immutable image of the posterior for fast predictions from any thread; on a large grid, of the posterior
    /// as it last followed the data. An error only where an iterative engine does not converge.
    pub fn predictor(&self) -> Result<Predictor> {
        match &self.belief {
            Belief::Dense(posterior) => Ok(posterior.predictor()),
            Belief::Large(large) => Ok((*large.image(&self.stats)?).clone()),
        }
    }

    /// Replaces kernels and noise variance. The data need not be seen again: O(p³), independent of n.
    pub fn set_hyperparameters(&mut self, kernels: &[Kernel], noise: f64) -> Result<()> {
        positive("noise", noise, 0)?;
        let (before, pool) = (Some(&self.belief), &mut self.pool);
        let belief = Belief::new(&self.settings, &self.stats, kernels, noise, before, pool)?;
        self.replace_belief(belief);
        self.kernels = kernels.to_vec();
        self.settings.noise = noise;
        Ok(())
    }

    /// The log evidence and its gradient in every hyperparameter, at the present ones.
    pub fn evidence(&self) -> Result<Evidence> {
        let hyper = self.hyperparameters();
        Ok(self.belief.evidence_at(&self.settings, &self.stats, &hyper, &mut Pool::default())?.0)
    }

    /// Kernels and noise variance.
    pub fn hyperparameters(&self) -> Hyperparameters {
        Hyperparameters { kernels: self.kernels.clone(), noise: self.noise() }
    }

    /// Refits the hyperparameters from the present ones on; the evidence never gets worse.
    pub fn refit(&mut self, space: &HyperSpace, optimiser: &LbfgsB) -> Result<Minimum> {
        let (start, stats, settings) = (self.hyperparameters(), &self.stats, &self.settings);
        let (pool, belief) = (&mut self.pool, &self.belief);
        // An iterative engine starts each evaluation where the last one ended.
        let mut last: Option<Belief> = None;
        let (hyper, minimum) = space.refit_with(stats.count(), &start, optimiser, |hyper| {
            let before = last.as_ref().unwrap_or(belief);
            let (evidence, after) = before.evidence_at(settings, stats, hyper, pool)?;
            if let Some(done) = last.replace(after) {
                done.recycle(pool);
            }
            Ok(evidence)
        })?;
        if let Some(done) = last {
            done.recycle(pool);
        }
        self.set_hyperparameters(&hyper.kernels, hyper.noise)?;
        Ok(minimum)
    }

    /// Changes the unit of the targets to (y − shift)/scale, in statistics, hyperparameters and posterior.
    pub fn rescale_targets(&mut self, shift: f64, scale: f64) -> Result<()> {
        let mut stats = self.stats.clone();
        stats.standardize_targets(shift, scale)?;
        let mut hyper = self.hyperparameters();
        hyper.rescale(scale);
        self.stats = stats;
        self.set_hyperparameters(&hyper.kernels, hyper.noise)
    }

    /// Learns into the statistics only; the posterior is stale until [`Wiski::evaluate`].
    pub(crate) fn absorb(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome> {
        let learned = self.on_grid(x, |model| model.stats.observe(x, y, noise))?;
        Ok(if learned.is_some() { Outcome::Learned } else { Outcome::OffGrid })
    }

    /// Sets hyperparameters whose posterior the next [`Wiski::evaluate`] computes.
    pub(crate) fn set_hyperparameters_later(&mut self, hyper: Hyperparameters) {
        self.settings.noise = hyper.noise;
        self.kernels = hyper.kernels;
    }

    /// The learning objective and its gradient at the present hyperparameters; brings the posterior up to
    /// date on the way.
    pub(crate) fn evaluate(&mut self, space: &HyperSpace, gradient: &mut [f64]) -> Result<f64> {
        let hyper = self.hyperparameters();
        let (evidence, belief) =
            self.belief.evidence_at(&self.settings, &self.stats, &hyper, &mut self.pool)?;
        self.replace_belief(belief);
        space.objective(self.stats.count(), &hyper, &evidence, gradient)
    }

    /// Predicts and learns in one sweep, with relative noise.
    pub(crate) fn step_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<(Outcome, Prediction)> {
        let learned = self.on_grid(x, |model| model.learn(x, y, noise))?;
        Ok(match learned {
            Some(prediction) => (Outcome::Learned, prediction),
            None => (Outcome::OffGrid, self.prior_prediction()),
        })
    }

    /// Mean and variance with their gradients in x.
    pub fn predict_gradient(&mut self, x: &[f64]) -> Result<PredictionGradient> {
        let mut gradient = PredictionGradient::default();
        self.predict_gradient_into(x, &mut gradient)?;
        Ok(gradient)
    }

    /// As [`Wiski::predict_gradient`], into a value whose memory is used again.
    pub(crate) fn predict_gradient_into(&mut self, x: &[f64], out: &mut PredictionGradient) -> Result<()> {
        match &self.belief {
            Belief::Dense(posterior) => posterior.predict_gradient_into(x, &mut self.workspace, out),
            Belief::Large(large) => {
                *out = large.image(&self.stats)?.predict_gradient(x)?;
                Ok(())
            }
        }
    }

    /// The joint latent mean (q) and covariance (q×q) of q points given row after row.
    pub fn joint(&self, x: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
        self.with_current(|belief| match belief {
            Belief::Dense(posterior) => posterior.joint(x, &mut Workspace::default()),
            Belief::Large(large) => large.posterior.joint(&self.stats, x),
        })
    }

    /// What one block of an additive model says for itself; see [`Posterior::effect`].
    pub fn effect(&self, block: usize, x: &[f64]) -> Result<Vec<Prediction>> {
        self.belief.dense()?.effect(&self.stats, block, x)
    }

    /// The share of each block in the explained variance; see [`Posterior::shares`].
    pub fn shares(&self) -> Vec<f64> {
        match &self.belief {
            Belief::Dense(posterior) => posterior.shares(&self.stats),
            // One grid explains everything that is explained.
            Belief::Large(_) => vec![1.0],
        }
    }

    /// A whole function drawn exactly from the posterior.
    pub fn sample(&self, rng: &mut impl rand::Rng) -> Result<FunctionSample> {
        self.with_current(|belief| match belief {
            Belief::Dense(posterior) => posterior.sample_with(rng),
            Belief::Large(large) => large.posterior.sample(&self.stats, rng),
        })
    }

    /// Asks the posterior of everything learned; on a large grid that may have to be computed first.
    fn with_current<T>(&self, f: impl FnOnce(&Belief) -> Result<T>) -> Result<T> {
        if !self.belief.is_behind() {
            return f(&self.belief);
        }
        f(&self.belief.of_stats(&self.settings, &self.stats, &self.kernels, &mut Pool::default())?)
    }

    /// The posterior as it would be after hypothetical observations; the model itself does not change.
    pub fn fantasize(&mut self, x: &[f64], y: &[f64]) -> Result<Posterior> {
        self.belief.dense()?.fantasize(x, y, &mut self.workspace)
    }

    /// Un-learns an observation exactly (up to rounding); `noise` as when it was learned, 1 for plain data.
    /// After [`Wiski::decay`] an observation no longer has its full weight, and this removes too much.
    pub fn forget(&mut self, x: &[f64], y: f64, noise: f64) -> Result<()> {
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        let Belief::Dense(posterior) = &mut self.belief else {
            self.stats.forget(x, y, noise)?;
            return self.after_update();
        };
        let before = posterior.predict(x, &mut self.workspace)?;
        let own_noise = self.settings.noise * noise;
        // Removal multiplies rounding by r/(r − v): where little would be left of the precision, the
        // posterior is computed anew instead.
        if is_exact(&self.stats) && before.variance < 0.999 * own_noise {
            self.stats.forget(x, y, noise)?;
            posterior.uncondition(x, y, noise, &mut self.workspace)?;
            return self.after_update();
        }
        if before.variance > 1.001 * own_noise {
            return Err(Error::NotLearned { variance: before.variance, noise: own_noise });
        }
        let mut stats = self.stats.clone();
        stats.forget(x, y, noise)?;
        self.replace_stats(stats)
    }

    /// Exponential forgetting: every observation so far counts `factor` times as much.
    pub fn decay(&mut self, factor: f64) -> Result<()> {
        self.stats.decay(factor)?;
        match &self.belief {
            Belief::Dense(_) => self.refactorize(),
            // One more thing that the posterior of a large grid has to catch up with.
            Belief::Large(_) => self.after_update(),
        }
    }

    /// Learns everything another model has learned, exactly; hyperparameters stay this model's. Grids must
    /// agree in spacing and alignment and are extended to their union.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.merge_stats(&other.stats)
    }

    /// Learns what the given statistics hold.
    pub(super) fn merge_stats(&mut self, other: &Stats) -> Result<()> {
        let mut stats = self.stats.clone();
        stats.merge_within(other, self.settings.max_grid_points)?;
        self.replace_stats(stats)
    }

    /// The same model before it learned anything: same grids, as far as they have grown, and hyperparameters.
    pub fn cleared(&self) -> Result<Self> {
        let stats = self.stats.cleared()?;
        let mut model = self.clone();
        model.replace_stats(stats)?;
        Ok(model)
    }

    /// Computes the posterior anew from the statistics.
    pub fn refactorize(&mut self) -> Result<()> {
        let belief = self.belief.of_stats(&self.settings, &self.stats, &self.kernels, &mut self.pool)?;
        self.replace_belief(belief);
        Ok(())
    }

    fn replace_belief(&mut self, belief: Belief) {
        std::mem::replace(&mut self.belief, belief).recycle(&mut self.pool);
        self.updates_since_check = 0;
    }

    /// Takes new statistics, on possibly larger grids.
    pub(super) fn replace_stats(&mut self, stats: Stats) -> Result<()> {
        let belief = self.belief.of_stats(&self.settings, &stats, &self.kernels, &mut self.pool)?;
        self.replace_belief(belief);
        self.stats = stats;
        Ok(())
    }

    /// The prior's answer, for points off the grid.
    fn prior_prediction(&self) -> Prediction {
        let variance = self.kernels.iter().map(Kernel::variance).sum();
        Prediction { mean: 0.0, variance, noise: self.noise() }
    }

    /// Extends the grids to cover the box between two corners.
    fn extend(&mut self, corners: [&[f64]; 2]) -> Result<()> {
        let mut stats = self.stats.clone();
        for corner in corners {
            stats.extend_to(corner, self.settings.max_grid_points)?;
        }
        self.replace_stats(stats)
    }

    /// Runs an operation on a point; off the grid, does what the policy says and tries again. `Ok(None)`
    /// means that the prior shall answer.
    fn on_grid<T>(&mut self, x: &[f64], mut f: impl FnMut(&mut Self) -> Result<T>) -> Result<Option<T>> {
        match (f(self), self.settings.off_grid) {
            (Err(Error::OutsideGrid { .. }), OffGrid::Prior) => Ok(None),
            (Err(Error::OutsideGrid { .. }), OffGrid::Extend) => {
                self.extend([x, x])?;
                f(self).map(Some)
            }
            (result, _) => result.map(Some),
        }
    }

    /// Conditions posterior and statistics on a point on the grid.
    fn learn(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Prediction> {
        if let (Belief::Dense(posterior), true) = (&mut self.belief, is_exact(&self.stats)) {
            // The statistics refuse more than the posterior, so they go first.
            self.stats.observe(x, y, noise)?;
            let prediction = posterior.condition(x, y, noise, &mut self.workspace)?;
            self.after_update()?;
            return Ok(prediction);
        }
        let mut prediction = self.predict_on_grid(x)?;
        prediction.noise *= noise;
        self.stats.observe(x, y, noise)?;
        match &self.belief {
            // A root of limited rank may lose part of the point: the posterior follows the statistics.
            Belief::Dense(_) => self.refactorize()?,
            Belief::Large(_) => self.after_update()?,
        }
        Ok(prediction)
    }

    /// Mean and variance at a point on the grid.
    fn predict_on_grid(&mut self, x: &[f64]) -> Result<Prediction> {
        match &self.belief {
            Belief::Dense(posterior) => posterior.predict(x, &mut self.workspace),
            Belief::Large(large) => large.image(&self.stats)?.predict(x),
        }
    }

    fn after_update(&mut self) -> Result<()> {
        if self.belief.falls_behind(self.stats.count()) {
            return self.refactorize();
        }
        self.updates_since_check += 1;
        if self.updates_since_check < CHECK_EVERY {
            return Ok(());
        }
        self.updates_since_check = 0;
        let Belief::Dense(posterior) = &self.belief else { return Ok(()) };
        let drift = posterior.drift(&self.stats, &mut self.workspace);
        if !drift.is_within(self.settings.drift_tolerance) {
            self.refactorizations += 1;
            self.refactorize()?;
        }
        Ok(())
    }

    /// From how many rows on a batch is cheaper through one factorization than row by row: p³ against 3p² a
    /// row, with room for the contraction.
    fn batch_threshold(&self) -> usize {
        self.rank().max(32)
    }

    /// Refuses a batch with a bad row; returns the lower and upper corners of all points.
    fn check_batch(&self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<[Vec<f64>; 2]> {
        let d = self.input_dim();
        length("x", y.len() * d, x.len())?;
        if let Some(noise) = noise {
            length("noise", y.len(), noise.len())?;
            noise.iter().enumerate().try_for_each(|(row, &d)| positive("noise", d, row))?;
        }
        let mut corners = [vec![f64::INFINITY; d], vec![f64::NEG_INFINITY; d]];
        for (row, (point, &y)) in x.chunks_exact(d).zip(y).enumerate() {
            finite("y", y, row)?;
            for (k, &value) in point.iter().enumerate() {
                finite(format!("x[{k}]"), value, row)?;
                corners[0][k] = corners[0][k].min(value);
                corners[1][k] = corners[1][k].max(value);
            }
        }
        Ok(corners)
    }
}

/// Whether A is kept exactly, so that conditioning and statistics agree.
fn is_exact(stats: &Stats) -> bool {
    matches!(stats.gram(), Gram::Exact(_))
}

impl OnlineGp for Wiski {
    fn input_dim(&self) -> usize {
        self.stats.lattice().dim()
    }

    fn count(&self) -> f64 {
        self.stats.count()
    }

    fn predict(&mut self, x: &[f64]) -> Result<Prediction> {
        self.settle()?;
        let answer = self.on_grid(x, |model| model.predict_on_grid(x))?;
        Ok(answer.unwrap_or_else(|| self.prior_prediction()))
    }

    fn observe_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome> {
        let learned = self.on_grid(x, |model| model.learn(x, y, noise))?;
        Ok(if learned.is_some() { Outcome::Learned } else { Outcome::OffGrid })
    }

    fn log_evidence(&mut self) -> Result<f64> {
        self.belief.log_evidence(&self.settings, &self.stats, &self.kernels)
    }

    /// One sweep for both: the prediction falls out of the update.
    fn step(&mut self, x: &[f64], y: f64) -> Result<Prediction> {
        self.step_noisy(x, y, 1.0).map(|(_, prediction)| prediction)
    }

    /// All or nothing: if any row is refused, none is learned. Large batches go through the statistics and
    /// one new factorization.
    fn observe_batch(&mut self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<usize> {
        let corners = self.check_batch(x, y, noise)?;
        if y.is_empty() {
            return Ok(0);
        }
        let d = self.input_dim();
        let noise_at = |row: usize| noise.map_or(1.0, |d| d[row]);
        let covered = corners.iter().all(|corner| self.stats.covers(corner));
        if covered && self.posterior().is_ok() && y.len() < self.batch_threshold() {
            for (row, (point, &y)) in x.chunks_exact(d).zip(y).enumerate() {
                self.stats.check_row(point, y, noise_at(row), row)?;
            }
            for (row, (point, &y)) in x.chunks_exact(d).zip(y).enumerate() {
                self.learn(point, y, noise_at(row))?;
            }
            return Ok(y.len());
        }
        let mut stats = self.stats.clone();
        let mut learned = y.len();
        match self.settings.off_grid {
            OffGrid::Prior if !covered => {
                learned = 0;
                for (row, (point, &y)) in x.chunks_exact(d).zip(y).enumerate() {
                    match stats.observe(point, y, noise_at(row)) {
                        Ok(()) => learned += 1,
                        Err(Error::OutsideGrid { .. }) => {}
                        Err(error) => return Err(error.in_row(row)),
                    }
                }
            }
            policy => {
                if policy == OffGrid::Extend {
                    for corner in &corners {
                        stats.extend_to(corner, self.settings.max_grid_points)?;
                    }
                }
                stats.observe_batch(x, y, noise)?;
            }
        }
        self.replace_stats(stats)?;
        Ok(learned)
    }

    /// Many points are answered by a [`Predictor`], built when that is cheaper than p² a point. Under
    /// [`OffGrid::Extend`] a prediction may grow the grid, also when a later row is refused.
    fn predict_batch(&mut self, x: &[f64], mean: &mut [f64], variance: &mut [f64]) -> Result<()> {
        let d = self.input_dim();
        length("x", mean.len() * d, x.len())?;
        length("variance", mean.len(), variance.len())?;
        if self.settings.off_grid != OffGrid::Error || mean.len() < self.stats.lattice().len() / 4 {
            for (row, point) in x.chunks_exact(d).enumerate() {
                let p = self.predict(point).map_err(|e| e.in_row(row))?;
                mean[row] = p.mean;
                variance[row] = p.variance;
            }
            return Ok(());
        }
        self.settle()?;
        self.predictor()?.predict_batch(x, mean, variance)
    }
}
