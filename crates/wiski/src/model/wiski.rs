//! The online Gaussian process on a grid: statistics that data touches, a posterior computed from them.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{OffGrid, OnlineGp, Outcome, WiskiBuilder};
use crate::engine::{Given, GridPosterior};
use crate::error::{Error, Result, finite, length, positive};
use crate::evidence::Evidence;
use crate::interp::Placement;
use crate::kernel::Kernel;
use crate::learn::{HyperSpace, Hyperparameters, LbfgsB, Minimum, Refitted};
use crate::pool::{Pool, Scratch};
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
/// use wiski::{Grid, Kernel, OnlineGp, Wiski};
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
    posterior: Box<dyn GridPosterior>,
    /// Rows that the statistics have and the posterior has not.
    behind: usize,
    /// The posterior that has them, where somebody asked for it. Learning does not look at it, so that a prediction
    /// changes nothing.
    caught_up: OnceLock<Result<Box<dyn GridPosterior>>>,
    /// For learning: it remembers the last point.
    workspace: Workspace,
    /// For predictions.
    scratch: Scratch<Workspace>,
    pool: Pool,
    updates_since_check: usize,
    refactorizations: usize,
    failure: Option<Error>,
}

/// A model as it stands in a file.
#[derive(Serialize, Deserialize)]
struct SavedWiski<'a> {
    settings: Cow<'a, WiskiBuilder>,
    kernels: Cow<'a, [Kernel]>,
    stats: Cow<'a, Stats>,
    /// None on a large grid, where it is computed from the statistics.
    posterior: Option<SavedPosterior>,
    /// The cut-off of its prior, where it is not the one that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut_off: Option<f64>,
    updates_since_check: usize,
    refactorizations: usize,
}

impl Serialize for Wiski {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let saved = SavedWiski {
            settings: Cow::Borrowed(&self.settings),
            kernels: Cow::Borrowed(&self.kernels),
            stats: Cow::Borrowed(&self.stats),
            posterior: self.posterior.in_coordinates().ok().map(Posterior::saved),
            cut_off: self.cut_off().filter(|&t| t != self.settings.rank_tolerance),
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
        let (mut workspace, mut pool, saved_cut_off) = (Workspace::default(), Pool::default(), saved.cut_off);
        let posterior: Box<dyn GridPosterior> = match saved.posterior {
            // A large posterior is a function of statistics and hyperparameters.
            None => {
                let given = given(&settings, &stats, &kernels, settings.noise);
                settings.engine.posterior(&given, None, &mut pool)?
            }
            Some(saved) => {
                let cut_off = saved_cut_off.unwrap_or(settings.rank_tolerance);
                let prior = Arc::new(Prior::new(stats.lattice(), &kernels, cut_off)?);
                // Another processor may find other eigenvectors for the same prior (a sign is enough), and then
                // the saved coordinates mean something else. The statistics are the truth: where the two do not
                // agree, the posterior is computed from them.
                let restored = Posterior::from_saved(saved, prior.clone()).ok();
                let fits = |p: &Posterior| p.drift(&stats, &mut workspace).is_within(SAME_COORDINATES);
                Box::new(match restored.filter(fits) {
                    Some(posterior) => posterior,
                    None => Posterior::new(prior, &stats, settings.noise)?,
                })
            }
        };
        Ok(Self {
            updates_since_check: saved.updates_since_check,
            refactorizations: saved.refactorizations,
            workspace,
            pool,
            ..Self::of_parts(settings, kernels, stats, posterior)
        })
    }

    /// Starts a configuration.
    pub fn builder() -> WiskiBuilder {
        WiskiBuilder::default()
    }

    pub(super) fn assemble(settings: WiskiBuilder, kernels: Vec<Kernel>, stats: Stats) -> Result<Self> {
        let given = given(&settings, &stats, &kernels, settings.noise);
        let posterior = settings.engine.posterior(&given, None, &mut Pool::default())?;
        Ok(Self::of_parts(settings, kernels, stats, posterior))
    }

    fn of_parts(
        settings: WiskiBuilder,
        kernels: Vec<Kernel>,
        stats: Stats,
        posterior: Box<dyn GridPosterior>,
    ) -> Self {
        Self {
            settings,
            kernels,
            stats,
            posterior,
            behind: 0,
            caught_up: OnceLock::new(),
            workspace: Workspace::default(),
            scratch: Scratch::default(),
            pool: Pool::default(),
            updates_since_check: 0,
            refactorizations: 0,
            failure: None,
        }
    }

    /// How the model is configured, but for grids and kernels.
    pub(super) fn settings(&self) -> &WiskiBuilder {
        &self.settings
    }

    /// The sufficient statistics.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The posterior at the present hyperparameters. Rejected on a large grid, whose engine keeps none in p
    /// coordinates.
    pub fn posterior(&self) -> Result<&Posterior> {
        self.posterior.in_coordinates()
    }

    /// The engine in use: `dense`, `sparse` or `krylov`.
    pub fn engine(&self) -> &'static str {
        self.posterior.name()
    }

    /// Brings the posterior up to date with everything learned. On small grids it always is; on large ones it
    /// follows when the data have grown by a tenth (its variances, with conjugate gradients, by a half), so what
    /// [`OnlineGp::step`] predicts may lag behind. [`OnlineGp::predict`] never does: it computes what is missing for
    /// itself, and the model stays as it is.
    pub fn settle(&mut self) -> Result<()> {
        if self.behind > 0 || !self.posterior.is_current() { self.refactorize() } else { Ok(()) }
    }

    /// The growth of the number of rows that makes a refit worth its time.
    pub(crate) fn refit_ratio(&self) -> f64 {
        self.posterior.refit_ratio()
    }

    /// Whether the grid is so large that the posterior follows the rows in steps.
    pub(crate) fn follows_in_steps(&self) -> bool {
        self.posterior.in_coordinates().is_err()
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
        self.posterior.rank()
    }

    /// How often drift of the recursive updates caused a new factorization.
    pub fn refactorizations(&self) -> usize {
        self.refactorizations
    }

    /// An immutable image of the posterior for fast predictions from any thread; on a large grid, of the posterior
    /// as it last followed the data. An error only where an iterative engine does not converge.
    pub fn predictor(&self) -> Result<Predictor> {
        Ok(Arc::unwrap_or_clone(self.posterior.predictor(&self.stats)?))
    }

    /// Replaces kernels and noise variance. The data need not be seen again: O(p³), independent of n.
    pub fn set_hyperparameters(&mut self, kernels: &[Kernel], noise: f64) -> Result<()> {
        positive("noise", noise, 0)?;
        let given = given(&self.settings, &self.stats, kernels, noise);
        let posterior = self.settings.engine.posterior(&given, Some(&*self.posterior), &mut self.pool)?;
        self.replace_posterior(posterior);
        self.kernels = kernels.to_vec();
        self.settings.noise = noise;
        Ok(())
    }

    /// The log evidence and its gradient in every hyperparameter, at the present ones.
    pub fn evidence(&self) -> Result<Evidence> {
        let given = given(&self.settings, &self.stats, &self.kernels, self.noise());
        Ok(self.settings.engine.evidence(&given, Some(&*self.posterior), &mut Pool::default())?.0)
    }

    /// Kernels and noise variance.
    pub fn hyperparameters(&self) -> Hyperparameters {
        Hyperparameters { kernels: self.kernels.clone(), noise: self.noise() }
    }

    /// Refits the hyperparameters from the present ones on; the evidence never gets worse. The posterior is that of
    /// the best evaluation, not computed again.
    pub fn refit(&mut self, space: &HyperSpace, optimizer: &LbfgsB) -> Result<Minimum> {
        let refitted = self.refitted(space, &self.hyperparameters(), optimizer)?;
        self.adopt(refitted)
    }

    /// As [`Wiski::refit`], and from the best of other starts, too. What that leads to is taken if the data are e times as
    /// likely under it.
    pub(crate) fn refit_afresh(
        &mut self,
        space: &HyperSpace,
        starts: &[Hyperparameters],
        optimizer: &LbfgsB,
    ) -> Result<Minimum> {
        let known = self.refitted(space, &self.hyperparameters(), optimizer)?;
        let look = LbfgsB { max_evaluations: 1, ..optimizer.clone() };
        // A start that fails is none.
        let looks = starts.iter().filter_map(|start| self.refitted(space, start, &look).ok());
        let best = looks.min_by(|a, b| a.minimum.value.total_cmp(&b.minimum.value));
        let fresh = best.and_then(|best| self.refitted(space, &best.hyper, optimizer).ok());
        let worth = self.stats.count().max(1.0).recip();
        match fresh.filter(|fresh| fresh.minimum.value < known.minimum.value - worth) {
            Some(fresh) => self.adopt(fresh),
            None => self.adopt(known),
        }
    }

    /// What a search for hyperparameters from a start on ends with.
    fn refitted(
        &mut self,
        space: &HyperSpace,
        start: &Hyperparameters,
        optimizer: &LbfgsB,
    ) -> Result<Refitted<Box<dyn GridPosterior>>> {
        let (stats, settings) = (&self.stats, &self.settings);
        let (pool, posterior) = (&mut self.pool, &*self.posterior);
        // Evaluations of the dense engine share what they read of A.
        let prepared = posterior.in_coordinates().is_ok().then(|| stats.prepared());
        space.refit_with(
            stats.count(),
            start,
            optimizer,
            |hyper, best, spare: Option<Box<dyn GridPosterior>>| {
                spare.into_iter().for_each(|posterior| posterior.recycle(pool));
                let given = Given {
                    prepared: prepared.as_ref(),
                    is_rough: true,
                    ..given(settings, stats, &hyper.kernels, hyper.noise)
                };
                // An iterative engine starts each evaluation where the best one ended.
                settings.engine.evidence(&given, Some(best.map_or(posterior, |best| &**best)), pool)
            },
        )
    }

    /// Goes on with what a search for hyperparameters found.
    fn adopt(&mut self, refitted: Refitted<Box<dyn GridPosterior>>) -> Result<Minimum> {
        self.replace_posterior(refitted.posterior);
        self.kernels = refitted.hyper.kernels;
        self.settings.noise = refitted.hyper.noise;
        if self.posterior.iterated().is_some() {
            // A few more iterations from where the search ended.
            self.refactorize()?;
        }
        Ok(refitted.minimum)
    }

    /// Changes the unit of the targets to (y − shift)/scale, in statistics, hyperparameters and posterior.
    pub fn rescale_targets(&mut self, shift: f64, scale: f64) -> Result<()> {
        let mut stats = self.stats.clone();
        stats.standardize_targets(shift, scale)?;
        let mut hyper = self.hyperparameters();
        hyper.rescale(scale);
        let given = given(&self.settings, &stats, &hyper.kernels, hyper.noise);
        self.workspace.forget_ahead();
        if self.behind > 0 || !self.posterior.rescale(&given)? {
            let posterior = self.settings.engine.posterior(&given, Some(&*self.posterior), &mut self.pool)?;
            self.replace_posterior(posterior);
        }
        self.stats = stats;
        self.kernels = hyper.kernels;
        self.settings.noise = hyper.noise;
        Ok(())
    }

    /// Learns into the statistics only; the posterior is stale until [`Wiski::evaluate`].
    pub(crate) fn absorb(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome> {
        let learned = self.on_grid(x, |model| model.stats.observe(x, y, noise))?;
        self.fall_behind();
        Ok(if learned.is_some() { Outcome::Learned } else { Outcome::OffGrid })
    }

    /// Sets hyperparameters whose posterior the next [`Wiski::evaluate`] computes.
    pub(crate) fn set_hyperparameters_later(&mut self, hyper: Hyperparameters) {
        self.settings.noise = hyper.noise;
        self.kernels = hyper.kernels;
        self.fall_behind();
    }

    /// The learning objective and its gradient at the present hyperparameters; brings the posterior up to
    /// date on the way.
    pub(crate) fn evaluate(&mut self, space: &HyperSpace, gradient: &mut [f64]) -> Result<f64> {
        let hyper = self.hyperparameters();
        let given = given(&self.settings, &self.stats, &hyper.kernels, hyper.noise);
        let (evidence, posterior) =
            self.settings.engine.evidence(&given, Some(&*self.posterior), &mut self.pool)?;
        self.replace_posterior(posterior);
        space.objective(self.stats.count(), &hyper, &evidence, gradient)
    }

    /// Predicts and learns in one sweep, with relative noise.
    pub(crate) fn step_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<(Outcome, Prediction)> {
        self.step_within(x, y, noise, f64::INFINITY).map(|(outcome, prediction, _)| (outcome, prediction))
    }

    /// As [`Wiski::step_noisy`], with more noise for an observation farther off than `reach` deviations; the last result is
    /// by how much it was multiplied.
    pub(crate) fn step_within(
        &mut self,
        x: &[f64],
        y: f64,
        noise: f64,
        reach: f64,
    ) -> Result<(Outcome, Prediction, f64)> {
        let learned = self.on_grid(x, |model| model.learn(x, y, noise, reach))?;
        Ok(match learned {
            Some((prediction, factor)) => (Outcome::Learned, prediction, factor),
            None => (Outcome::OffGrid, self.prior_prediction(), 1.0),
        })
    }

    /// Predicts and learns many rows in turn, given row after row, as [`OnlineGp::step`] does one by one: where rows wait
    /// for the factor, several times as fast. On grids that cover them all, none is learned if one is rejected.
    pub fn step_batch(
        &mut self,
        x: &[f64],
        y: &[f64],
        noise: Option<&[f64]>,
        predictions: &mut [Prediction],
    ) -> Result<()> {
        let corners = self.check_batch(x, y, noise)?;
        length("predictions", y.len(), predictions.len())?;
        if y.is_empty() {
            return Ok(());
        }
        let together = is_exact(&self.stats) && corners.iter().all(|corner| self.stats.covers(corner));
        if together
            && self.behind == 0
            && let Ok(posterior) = self.posterior.in_coordinates_mut()
        {
            // The statistics reject more than the posterior, so they go first.
            self.stats.observe_batch(x, y, noise)?;
            posterior.condition_batch(x, y, noise, predictions, &mut self.workspace)?;
            self.updates_since_check += y.len() - 1;
            let checked = self.check_drift();
            self.note(checked);
            return Ok(());
        }
        for (row, point) in x.chunks_exact(self.input_dim()).enumerate() {
            let noise = noise.map_or(1.0, |d| d[row]);
            predictions[row] = self.step_noisy(point, y[row], noise).map_err(|e| e.in_row(row))?.1;
        }
        Ok(())
    }

    /// Mean and variance with their gradients in x. Off the grid, where the policy is not to reject, they are those of
    /// [`OnlineGp::predict`], whose gradient vanishes on grids that do not cover the point.
    pub fn predict_gradient(&self, x: &[f64]) -> Result<PredictionGradient> {
        let mut gradient = PredictionGradient::default();
        self.predict_gradient_into(x, &mut gradient)?;
        Ok(gradient)
    }

    /// As [`Wiski::predict_gradient`], into a value whose memory is used again.
    pub(crate) fn predict_gradient_into(&self, x: &[f64], out: &mut PredictionGradient) -> Result<()> {
        let posterior = self.current()?;
        self.scratch.with(|ws| match posterior.predict_gradient(&self.stats, x, ws, out) {
            Err(Error::OutsideGrid { .. }) if self.settings.off_grid != OffGrid::Error => {
                posterior.predict_beyond(&self.kernels, x, ws, out)
            }
            result => result,
        })
    }

    /// The joint latent mean (q) and covariance (q×q) of q points given row after row.
    pub fn joint(&self, x: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
        self.current()?.joint(&self.stats, x)
    }

    /// What one block of an additive model says for itself; see [`Posterior::effect`].
    pub fn effect(&self, block: usize, x: &[f64]) -> Result<Vec<Prediction>> {
        self.posterior()?.effect(&self.stats, block, x)
    }

    /// The share of each block in the explained variance; see [`Posterior::shares`].
    pub fn shares(&self) -> Vec<f64> {
        self.posterior.shares(&self.stats)
    }

    /// A whole function drawn exactly from the posterior.
    pub fn sample(&self, rng: &mut impl rand::Rng) -> Result<FunctionSample> {
        self.current()?.sample(&self.stats, rng)
    }

    /// The posterior of everything learned; on a large grid it may have to be computed first.
    fn current(&self) -> Result<&dyn GridPosterior> {
        if self.behind == 0 && self.posterior.is_current() {
            return Ok(&*self.posterior);
        }
        let computed = self.caught_up.get_or_init(|| self.posterior_of(&self.stats, &mut Pool::default()));
        computed.as_ref().map(|posterior| &**posterior).map_err(Error::clone)
    }

    fn predict_in(&self, posterior: &dyn GridPosterior, x: &[f64], ws: &mut Workspace) -> Result<Prediction> {
        match posterior.predict(&self.stats, x, ws) {
            Err(Error::OutsideGrid { .. }) if self.settings.off_grid != OffGrid::Error => {
                let mut out = PredictionGradient::default();
                posterior.predict_beyond(&self.kernels, x, ws, &mut out)?;
                Ok(out.prediction)
            }
            result => result,
        }
    }

    /// As [`OnlineGp::predict`], with the weights of the point in a buffer, where other processes with the same inducing
    /// points find them.
    pub(super) fn predict_sharing(&self, x: &[f64], shared: &mut Placement) -> Result<Prediction> {
        let posterior = self.current()?;
        self.scratch.with(|ws| {
            std::mem::swap(ws.placement(), shared);
            let said = self.predict_in(posterior, x, ws);
            std::mem::swap(ws.placement(), shared);
            said
        })
    }

    /// Takes note of rows that will be learned in this order, given by their coordinates, so that what each needs is computed
    /// for several together. A hint: any other row may come.
    pub(super) fn expect(&mut self, h: &[f64]) {
        if let Ok(posterior) = self.posterior.in_coordinates() {
            self.workspace.expect(posterior, h);
        }
    }

    /// Whether it gains by knowing rows before they are learned.
    pub(super) fn gains_by_expecting(&self) -> bool {
        self.posterior.in_coordinates().is_ok_and(Posterior::gains_by_expecting)
    }

    /// The weights of the last row, to be exchanged with other processes that have the same inducing points.
    pub(super) fn placement(&mut self) -> &mut Placement {
        self.workspace.placement()
    }

    /// The posterior of statistics at the present hyperparameters.
    fn posterior_of(&self, stats: &Stats, pool: &mut Pool) -> Result<Box<dyn GridPosterior>> {
        let given = given(&self.settings, stats, &self.kernels, self.noise());
        self.settings.engine.posterior(&given, Some(&*self.posterior), pool)
    }

    /// The posterior as it would be after hypothetical observations; the model itself does not change.
    pub fn fantasize(&self, x: &[f64], y: &[f64]) -> Result<Posterior> {
        self.scratch.with(|ws| self.posterior()?.fantasize(x, y, ws))
    }

    /// Un-learns an observation exactly (up to rounding); `noise` as when it was learned, 1 for plain data.
    /// After [`Wiski::decay`] an observation no longer has its full weight, and this removes too much.
    pub fn forget(&mut self, x: &[f64], y: f64, noise: f64) -> Result<()> {
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        let Ok(posterior) = self.posterior.in_coordinates_mut() else {
            self.stats.forget(x, y, noise)?;
            return self.follow();
        };
        let before = posterior.known_variance(x, &mut self.workspace)?;
        let own_noise = self.settings.noise * noise;
        // Removal multiplies rounding by r/(r − v): where little would be left of the precision, the
        // posterior is computed anew instead.
        if is_exact(&self.stats) && before < 0.999 * own_noise {
            self.stats.forget(x, y, noise)?;
            posterior.uncondition(x, y, noise, &mut self.workspace)?;
            return self.check_drift();
        }
        if before > 1.001 * own_noise {
            return Err(Error::NotLearned { variance: before, noise: own_noise });
        }
        let mut stats = self.stats.clone();
        stats.forget(x, y, noise)?;
        self.replace_stats(stats)
    }

    /// Exponential forgetting: every observation so far counts `factor` times as much.
    pub fn decay(&mut self, factor: f64) -> Result<()> {
        self.stats.decay(factor)?;
        self.follow()
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
        let mut pool = std::mem::take(&mut self.pool);
        let posterior = self.posterior_of(&self.stats, &mut pool);
        self.pool = pool;
        self.replace_posterior(posterior?);
        Ok(())
    }

    fn replace_posterior(&mut self, posterior: Box<dyn GridPosterior>) {
        std::mem::replace(&mut self.posterior, posterior).recycle(&mut self.pool);
        self.workspace.forget_ahead();
        self.behind = 0;
        self.caught_up.take();
        self.updates_since_check = 0;
    }

    /// Takes new statistics, on possibly larger grids.
    pub(super) fn replace_stats(&mut self, stats: Stats) -> Result<()> {
        let mut pool = std::mem::take(&mut self.pool);
        let posterior = self.posterior_of(&stats, &mut pool);
        self.pool = pool;
        self.replace_posterior(posterior?);
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
    fn learn(&mut self, x: &[f64], y: f64, noise: f64, reach: f64) -> Result<(Prediction, f64)> {
        if self.behind == 0
            && is_exact(&self.stats)
            && let Ok(posterior) = self.posterior.in_coordinates_mut()
        {
            // The statistics reject more than the posterior, so they are asked first.
            self.stats.check_row(x, y, noise, 0)?;
            let (prediction, factor) = posterior.condition_within(x, y, noise, reach, &mut self.workspace)?;
            self.stats.observe_placed(self.workspace.placement(), y, factor * noise);
            let checked = self.check_drift();
            self.note(checked);
            return Ok((prediction, factor));
        }
        let mut prediction = self.posterior.predict(&self.stats, x, &mut self.workspace)?;
        prediction.noise *= noise;
        let factor = prediction.discount(y, reach);
        self.stats.observe(x, y, factor * noise)?;
        let followed = self.follow();
        self.note(followed);
        Ok((prediction, factor))
    }

    /// Keeps what went wrong after a row was learned: the statistics have it, and the posterior follows them when it
    /// can.
    fn note(&mut self, done: Result<()>) {
        if let Err(error) = done {
            self.failure = Some(error);
        }
    }

    /// What went wrong after rows were learned since the last call, if anything did: a posterior that could not be
    /// computed. It is tried again when it is asked for.
    pub fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Notes that the statistics have changed and the posterior has not.
    fn fall_behind(&mut self) {
        self.behind += 1;
        self.caught_up.take();
    }

    /// Has the posterior follow the statistics, if they have changed as much as it may lag behind. A root of limited
    /// rank may lose part of a row, so that even a posterior which could be conditioned on it follows at once.
    fn follow(&mut self) -> Result<()> {
        self.fall_behind();
        if self.behind <= self.posterior.may_lag(self.stats.count()) {
            return Ok(());
        }
        let mut pool = std::mem::take(&mut self.pool);
        let posterior = self.posterior_of(&self.stats, &mut pool);
        self.pool = pool;
        let mut posterior = posterior?;
        posterior.keep_variances(&*self.posterior, &self.stats, self.behind);
        self.replace_posterior(posterior);
        Ok(())
    }

    /// After so many conditioned rows, compares the posterior with the statistics.
    fn check_drift(&mut self) -> Result<()> {
        self.updates_since_check += 1;
        if self.updates_since_check < CHECK_EVERY {
            return Ok(());
        }
        self.updates_since_check = 0;
        // Rows that have doubled may see directions of the prior that had been dropped.
        let doubles = |count: f64| count.max(1.0).log2().floor();
        let doubled = doubles(self.stats.count()) > doubles(self.stats.count() - CHECK_EVERY as f64);
        if doubled && self.rank_falls_short()? {
            return self.refactorize();
        }
        let drift = self.posterior.drift(&self.stats, &mut self.workspace);
        if drift.is_some_and(|drift| !drift.is_within(self.settings.drift_tolerance)) {
            self.refactorizations += 1;
            self.refactorize()?;
        }
        Ok(())
    }

    /// The cut-off of the prior in use, where there is one.
    fn cut_off(&self) -> Option<f64> {
        self.posterior.in_coordinates().ok().map(|posterior| posterior.prior().tolerance())
    }

    /// Whether the prior in use lacks directions that the data can tell.
    fn rank_falls_short(&self) -> Result<bool> {
        let given = given(&self.settings, &self.stats, &self.kernels, self.noise());
        let prior = self.settings.engine.prior(&given)?;
        Ok(self.cut_off().is_some_and(|used| prior.tolerance() < used))
    }

    /// From how many rows on a batch is cheaper through one factorization than row by row: p³ against 3p² a
    /// row, with room for the contraction.
    fn batch_threshold(&self) -> usize {
        self.rank().max(32)
    }

    /// Rejects a batch with a bad row; returns the lower and upper corners of all points.
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

/// What a posterior of the model is computed from.
fn given<'a>(settings: &WiskiBuilder, stats: &'a Stats, kernels: &'a [Kernel], noise: f64) -> Given<'a> {
    let WiskiBuilder { rank_tolerance, is_frugal, .. } = *settings;
    Given { stats, kernels, noise, rank_tolerance, is_frugal, prepared: None, is_rough: false }
}

impl OnlineGp for Wiski {
    fn input_dim(&self) -> usize {
        self.stats.lattice().dim()
    }

    fn count(&self) -> f64 {
        self.stats.count()
    }

    /// Off the grid, where the policy is not to reject, the prior answers: predicting never extends a grid. Of a sum
    /// of grids, those that cover their part of the point say what they know.
    fn predict(&self, x: &[f64]) -> Result<Prediction> {
        let posterior = self.current()?;
        self.scratch.with(|ws| self.predict_in(posterior, x, ws))
    }

    fn observe_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome> {
        let learned = self.on_grid(x, |model| model.learn(x, y, noise, f64::INFINITY))?;
        Ok(if learned.is_some() { Outcome::Learned } else { Outcome::OffGrid })
    }

    fn log_evidence(&mut self) -> Result<f64> {
        self.current()?.log_evidence(&self.stats, &self.kernels)
    }

    /// One sweep for both: the prediction falls out of the update.
    fn step(&mut self, x: &[f64], y: f64) -> Result<Prediction> {
        self.step_noisy(x, y, 1.0).map(|(_, prediction)| prediction)
    }

    /// All or nothing: if any row is rejected, none is learned. Large batches go through the statistics and
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
                self.learn(point, y, noise_at(row), f64::INFINITY)?;
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

    /// Many points are answered by a [`Predictor`], built when that is cheaper than p² a point.
    fn predict_batch(&self, x: &[f64], mean: &mut [f64], variance: &mut [f64]) -> Result<()> {
        let d = self.input_dim();
        length("x", mean.len() * d, x.len())?;
        length("variance", mean.len(), variance.len())?;
        if mean.len() >= self.stats.lattice().len() / 4 {
            match self.current()?.predictor(&self.stats)?.predict_batch(x, mean, variance) {
                // A point off the grid: the policy decides.
                Err(Error::OutsideGrid { .. }) if self.settings.off_grid != OffGrid::Error => {}
                result => return result,
            }
        }
        for (row, point) in x.chunks_exact(d).enumerate() {
            let p = self.predict(point).map_err(|e| e.in_row(row))?;
            mean[row] = p.mean;
            variance[row] = p.variance;
        }
        Ok(())
    }
}
