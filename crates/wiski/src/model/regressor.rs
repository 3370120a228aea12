//! Online regression on raw rows: scaling, features, hyperparameters and noise are learned while the stream
//! runs.
//!
//! The first rows are kept until there are enough to start from (the warm-up); after that no row is kept, but by
//! a sum of grids, which learns its features anew from its first rows ([`Settings::memory`]) and then drops them.
//! What happens to a row is told in `learner`, what happens along a stream in `online`; what numbers add to that
//! in `regression`; here are predictions in the user's units.

use serde::Serialize;

use super::encoder::Reads;
use super::learner::Learner;
use super::metrics::Prequential;
use super::missing::averaged;
use super::online::Online;
use super::regression::Regression;
use super::settings::{Features, InputScaling, NoiseModel, Settings};
use super::snapshots::{RowSurface, SampledFunction, Snapshot};
use super::tails::Tails;
use super::targets::{TargetMoments, TargetScale};
use super::{Outcome, ROWS_TOGETHER, Wiski};
use crate::conformal::{Conformal, Horizon, Interval};
use crate::error::{Error, Result, length, positive};
use crate::grid::Grid;
use crate::posterior::Prediction;
use crate::stats::Stats;

/// One block of an additive model.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockSummary {
    /// What it reads, one entry for each axis of its grid; for a block of inducing points, the last, one for each input.
    pub reads: Vec<Reads>,
    /// The number of its grid points, or inducing points.
    pub points: usize,
    /// Whether it is the block of inducing points, which reads all columns.
    pub is_points: bool,
    /// Its share of the variance over the data that the model explains, all blocks taken for themselves.
    pub share: f64,
}

/// An online Gaussian process regression on raw rows.
///
/// ```
/// use wiski::{OnlineRegressor, Settings};
///
/// let mut model = OnlineRegressor::new(1, Settings { grid: vec![32], ..Settings::default() })?;
/// for i in 0..500 {
///     let x = 100.0 + (i as f64 * 0.618).fract() * 50.0; // any units
///     model.step(&[x], 7.0 + 3.0 * (x / 8.0).sin())?;
/// }
/// let p = model.predict(&[125.0])?;
/// assert!((p.mean - (7.0 + 3.0 * (125f64 / 8.0).sin())).abs() < 0.05);
/// # Ok::<(), wiski::Error>(())
/// ```
#[derive(Debug, Clone, Serialize)]
pub struct OnlineRegressor {
    pub(super) online: Online<Regression>,
    metrics: Prequential,
    drifts: u64,
}

super::stream::stream_methods!(OnlineRegressor, Prequential, Snapshot);

impl OnlineRegressor {
    /// The parts of a model that a file held.
    pub(super) fn restored(online: Online<Regression>, metrics: Prequential, drifts: u64) -> Result<Self> {
        let mut new = Self { online, metrics, drifts };
        let (task, settings) = (&mut new.online.task, &new.online.settings);
        task.promise(settings)?;
        task.moments.check()?;
        task.guard.check()?;
        task.tails.check()?;
        task.tails_ahead.iter().try_for_each(Tails::check)?;
        task.scale.check()?;
        new.online.restore()?;
        Ok(new)
    }

    /// A model of rows with `input_dim` columns.
    pub fn new(input_dim: usize, settings: Settings) -> Result<Self> {
        settings.check_axes(input_dim)?;
        let mut task = Regression::new(TargetMoments::default(), TargetScale::IDENTITY);
        task.promise(&settings)?;
        let online = Online::new(input_dim, task, settings.resolved(input_dim))?;
        Ok(Self { online, metrics: Prequential::default(), drifts: 0 })
    }

    /// The stream and what was learned from it, where features no longer change.
    pub(super) fn settled_parts(&self, operation: &'static str) -> Result<(&Online<Regression>, &Learner)> {
        self.online.require_settled(operation)?;
        Ok((&self.online, self.online.ready(operation)?))
    }

    /// A model that has learned what the given statistics hold, with hyperparameters fitted to them: where a
    /// reduction over shards ends. The statistics live in the coordinates that the settings give every row, so
    /// these must be known beforehand: [`Features::Identity`], and columns scaled by declared bounds or not at all.
    ///
    /// ```
    /// use wiski::{Grid, OnlineRegressor, Settings, Stats};
    /// use wiski::model::{ColumnScaling, InputScaling};
    ///
    /// let bounds = vec![(0.0, 10.0)];
    /// let scaling = ColumnScaling::from_bounds(&bounds);
    /// let mut shards = vec![Stats::new(Grid::covering(&[(-1.0, 1.0)], &[32])?); 2];
    /// for i in 0..200 {
    ///     let (x, mut h) = (f64::from(i) / 20.0, Vec::new());
    ///     scaling.apply(&[x], &mut h)?;
    ///     shards[i as usize % 2].observe(&h, 5.0 + x.sin(), 1.0)?;
    /// }
    /// let (mut all, rest) = (shards[0].clone(), &shards[1]);
    /// all.merge(rest)?;
    /// let settings = Settings { inputs: InputScaling::Bounds(bounds), ..Settings::default() };
    /// let mut model = OnlineRegressor::from_stats(all, settings)?;
    /// assert!((model.predict(&[2.0])?.mean - 5.0 - 2f64.sin()).abs() < 0.01);
    /// # Ok::<(), wiski::Error>(())
    /// ```
    pub fn from_stats(stats: Stats, settings: Settings) -> Result<Self> {
        let dim = stats.lattice().dim();
        let settings = settings.resolved(dim);
        let known = settings.features == Features::Identity && settings.inputs != InputScaling::WarmUp;
        if !known || stats.lattice().grids().len() != 1 {
            let reason =
                "the coordinates must be known beforehand: one grid, identity features and declared bounds";
            return Err(Error::Unsupported { operation: "a model from statistics", reason });
        }
        let mut model = Self::new(dim, settings)?;
        let online = &mut model.online;
        online.task.moments = TargetMoments::of_stats(&stats);
        online.learner = Some(Box::new(online.task.start_from_stats(stats, &online.settings)?));
        Ok(model)
    }

    /// The Gaussian process on the grid, in scaled units, once the warm-up is over.
    pub fn model(&self) -> Option<&Wiski> {
        self.online.learner.as_ref().map(|l| l.first())
    }

    /// How targets are scaled inside the model at the moment.
    pub fn target_scale(&self) -> TargetScale {
        self.online.task.scale
    }

    /// The blocks of the model, in their order: what each reads and how much of the variance it explains.
    pub fn blocks(&self) -> Vec<BlockSummary> {
        let Some(learner) = &self.online.learner else { return Vec::new() };
        let shares = learner.first().shares();
        let mut reads = learner.encoder().reads().into_iter();
        let lattice = learner.first().stats().lattice();
        let sizes = lattice.grids().iter().map(|grid| (grid.dim(), grid.len(), false));
        let sizes = sizes.chain(lattice.points().map(|points| (points.dim(), points.len(), true)));
        let block = |((dim, points, is_points), share): ((usize, usize, bool), f64)| BlockSummary {
            reads: reads.by_ref().take(dim).collect(),
            points,
            is_points,
            share,
        };
        sizes.zip(shares).map(block).collect()
    }

    /// The effect of one block at rows given one after the other, in the units of the target and centered over
    /// the data: the mean and variance of what this block adds to a prediction. To draw a curve, vary the
    /// columns that the block reads; the others do not matter unless it reads a direction.
    pub fn effect(&self, block: usize, x: &[f64]) -> Result<Vec<Prediction>> {
        let learner = self.online.ready("effect")?;
        let lattice = learner.first().stats().lattice();
        let first: usize = lattice.grids().iter().take(block).map(Grid::dim).sum();
        let points = || lattice.points().map_or(0, |points| points.dim());
        let dim = lattice.grids().get(block).map_or_else(points, Grid::dim);
        let (all, width) = (learner.encoder().encode_all(x)?, learner.encoder().map().output_dim());
        let h: Vec<f64> =
            all.chunks_exact(width).flat_map(|h| h[first..first + dim].iter().copied()).collect();
        let scale = self.target_scale().scale;
        let unscaled = |p: Prediction| Prediction {
            mean: p.mean * scale,
            variance: p.variance * scale * scale,
            noise: 0.0,
        };
        Ok(learner.first().effect(block, &h)?.into_iter().map(unscaled).collect())
    }

    /// What the model says about a row now, in the user's units. During the warm-up that is the mean and
    /// variance of the targets so far. With known noise, the noise of the prediction is 0.
    pub fn predict(&self, x: &[f64]) -> Result<Prediction> {
        length("x", self.input_dim(), x.len())?;
        self.predict_at(x, true)
    }

    /// As [`OnlineRegressor::predict`], for rows further ahead or elsewhere: by the model of all rows, without what the last
    /// few say beyond it ([`Settings::tracking`]).
    pub fn predict_ahead(&self, x: &[f64]) -> Result<Prediction> {
        length("x", self.input_dim(), x.len())?;
        self.predict_at(x, false)
    }

    fn predict_at(&self, x: &[f64], is_next: bool) -> Result<Prediction> {
        if !self.is_ready() {
            return self.before_warm_up();
        }
        let rows = self.online.completed(x)?;
        if rows.is_empty() {
            return Ok(self.in_user_units(self.online.predict_number(x, is_next)?));
        }
        let all = rows.iter().map(|x| self.online.predict_number(x, is_next)).collect::<Result<Vec<_>>>()?;
        Ok(self.in_user_units(averaged(&all)))
    }

    fn in_user_units(&self, p: Prediction) -> Prediction {
        let p = self.online.task.scale.undo(p);
        if self.settings().noise == NoiseModel::Known { Prediction { noise: 0.0, ..p } } else { p }
    }

    /// As [`OnlineRegressor::predict`], for an observation whose noise variance is known (for [`NoiseModel::Known`]).
    pub fn predict_noisy(&self, x: &[f64], variance: f64) -> Result<Prediction> {
        self.require_known_noise()?;
        positive("noise", variance, 0)?;
        Ok(Prediction { noise: variance, ..self.predict(x)? })
    }

    /// The interval that holds the observation at a row with the probability `level`, in the user's units. Along the
    /// stream it is kept so that the share of targets inside stays at the level, whatever the data do
    /// ([`internals::conformal`](crate::internals::conformal)); it is promised for the row that comes next. With [`IntervalKind::Gaussian`] it is that of
    /// the predicted distribution.
    ///
    /// ```
    /// # use wiski::{OnlineRegressor, Settings};
    /// let mut model = OnlineRegressor::new(1, Settings::default())?;
    /// let (mut inside, mut rows) = (0.0, 0.0);
    /// for i in 0..4000 {
    ///     let x = (i as f64 * 0.618).fract();
    ///     // The noise grows as time goes by, which the model does not know.
    ///     let y = (6.0 * x).sin() + 1e-4 * i as f64 * ((i * i) as f64 * 0.414).fract();
    ///     if model.is_ready() {
    ///         rows += 1.0;
    ///         inside += f64::from(u8::from(model.predict_interval(&[x], 0.9)?.contains(y)));
    ///     }
    ///     model.step(&[x], y)?;
    /// }
    /// assert!((inside / rows - 0.9_f64).abs() < 0.01);
    /// # Ok::<(), wiski::Error>(())
    /// ```
    ///
    /// [`IntervalKind::Gaussian`]: super::IntervalKind::Gaussian
    pub fn predict_interval(&self, x: &[f64], level: f64) -> Result<Interval> {
        self.interval(&self.predict(x)?, level, Horizon::Next)
    }

    /// As [`OnlineRegressor::predict_interval`], for rows further ahead or elsewhere: what happened to the last few rows
    /// says nothing about them, so the quantile is that of the long run.
    pub fn predict_interval_ahead(&self, x: &[f64], level: f64) -> Result<Interval> {
        self.interval(&self.predict_ahead(x)?, level, Horizon::Ahead)
    }

    /// The interval around a prediction of this model. With [`Horizon::Last`], for what [`OnlineRegressor::step`] returned:
    /// the interval that was promised before that row was seen.
    pub fn interval(&self, prediction: &Prediction, level: f64, horizon: Horizon) -> Result<Interval> {
        self.online.task.interval(prediction, level, horizon)
    }

    /// The log density of an observation y, given what this model predicted for it. Along the stream it is learned how
    /// residuals are distributed, so that heavy tails are said as they are; where they are Gaussian, so is the density. Where
    /// the stream moves, it is that of rows elsewhere, learned from rows left out.
    pub fn log_density(&self, prediction: &Prediction, y: f64) -> f64 {
        let task = &self.online.task;
        task.tails_ahead.as_ref().unwrap_or(&task.tails).log_density(prediction, y)
    }

    /// What keeps intervals at their level; `None` if they are Gaussian.
    pub fn conformal(&self) -> Option<&Conformal> {
        self.online.task.conformal.as_ref()
    }

    fn before_warm_up(&self) -> Result<Prediction> {
        let moments = &self.online.task.moments;
        if moments.weight < 2.0 {
            let reason = "the model has seen fewer than two rows";
            return Err(Error::Unsupported { operation: "prediction", reason });
        }
        Ok(Prediction { mean: moments.mean, variance: moments.std().powi(2), noise: 0.0 })
    }

    /// Learns a row.
    pub fn observe(&mut self, x: &[f64], y: f64) -> Result<Outcome> {
        self.learn(x, y, 1.0, None)
    }

    /// Learns a row whose noise variance is known (for [`NoiseModel::Known`]).
    pub fn observe_noisy(&mut self, x: &[f64], y: f64, variance: f64) -> Result<Outcome> {
        self.require_known_noise()?;
        self.learn(x, y, variance, None)
    }

    /// Learns a row that was observed at the given time; times must not decrease.
    pub fn observe_at(&mut self, x: &[f64], y: f64, time: f64) -> Result<Outcome> {
        self.learn(x, y, 1.0, Some(time))
    }

    /// Learns a row; what was predicted for it before goes to the controller of intervals.
    fn learn(&mut self, x: &[f64], y: f64, noise: f64, time: Option<f64>) -> Result<Outcome> {
        // A refit after the row may change the scale.
        let scale = self.target_scale();
        let guess = if self.is_ready() { None } else { self.before_warm_up().ok() };
        let outcome = self.online.learn(x, y, noise, time)?;
        if let Some(&said) = self.online.said().first() {
            self.online.task.calibrate(&scale.undo(said), y);
        } else if let Some(guess) = guess {
            self.online.task.calibrate(&guess, y);
        }
        if guess.is_some() && self.is_ready() {
            self.begin_intervals();
        }
        Ok(outcome)
    }

    /// Predicts a row, then learns it, and takes the prediction into the running figures. `None` during the
    /// warm-up.
    pub fn step(&mut self, x: &[f64], y: f64) -> Result<Option<Prediction>> {
        self.step_with(x, y, None, None)
    }

    /// As [`OnlineRegressor::step`], with what is known about the row: its noise variance and its time.
    pub fn step_with(
        &mut self,
        x: &[f64],
        y: f64,
        variance: Option<f64>,
        time: Option<f64>,
    ) -> Result<Option<Prediction>> {
        self.step_weighted(x, y, 1.0, variance, time)
    }

    /// As [`OnlineRegressor::step_with`], for a row that counts `weight` times: its noise has 1/`weight` of the variance.
    pub fn step_weighted(
        &mut self,
        x: &[f64],
        y: f64,
        weight: f64,
        variance: Option<f64>,
        time: Option<f64>,
    ) -> Result<Option<Prediction>> {
        positive("weight", weight, 0)?;
        if variance.is_some() {
            self.require_known_noise()?;
        }
        let scale = self.target_scale();
        self.learn(x, y, variance.unwrap_or(1.0) / weight, time)?;
        let Some(&said) = self.online.said().first() else { return Ok(None) };
        let p = scale.undo(said);
        self.metrics.record_with(&p, y, self.online.task.log_density);
        let level = self.settings().intervals.level;
        self.metrics.record_interval(&self.interval(&p, level, Horizon::Last)?, y);
        if let Some(detector) = &mut self.online.settings.drift {
            self.drifts += u64::from(detector.record((y - p.mean) / p.std()));
        }
        Ok(Some(p))
    }

    /// How often drift was signaled by [`Settings::drift`] in [`OnlineRegressor::step`].
    pub fn drifts(&self) -> u64 {
        self.drifts
    }

    fn require_known_noise(&self) -> Result<()> {
        if self.settings().noise == NoiseModel::Known {
            return Ok(());
        }
        let reason = "this model learns its noise; a variance for each row needs one whose noise is known";
        Err(Error::Unsupported { operation: "known noise", reason })
    }

    /// Learns many rows, given row after row; stops at the first that is rejected and says which.
    pub fn observe_batch(&mut self, x: &[f64], y: &[f64]) -> Result<()> {
        length("x", y.len() * self.input_dim(), x.len())?;
        let dim = self.input_dim();
        for (row, (own, &y)) in x.chunks_exact(dim).zip(y).enumerate() {
            if row.is_multiple_of(ROWS_TOGETHER) {
                self.prepare_rows(&x[row * dim..x.len().min((row + ROWS_TOGETHER) * dim)]);
            }
            self.observe(own, y).map_err(|error| error.in_row(row))?;
        }
        Ok(())
    }

    /// Means and standard deviations of observations at many rows.
    pub fn predict_batch(&self, x: &[f64], mean: &mut [f64], std: &mut [f64]) -> Result<()> {
        length("x", mean.len() * self.input_dim(), x.len())?;
        length("std", mean.len(), std.len())?;
        let snapshot = if mean.len() >= 64 { self.snapshot() } else { None };
        for (row, x) in x.chunks_exact(self.input_dim()).enumerate() {
            let p = match &snapshot {
                Some(s) => s.predict(x).or_else(|_| self.predict(x)),
                None => self.predict(x),
            };
            let p = p.map_err(|error| error.in_row(row))?;
            mean[row] = p.mean;
            std[row] = p.std();
        }
        Ok(())
    }

    /// Ends the warm-up with the rows seen so far: chooses scaling and features, fits the hyperparameters.
    pub fn finish_warm_up(&mut self) -> Result<()> {
        let was_ready = self.is_ready();
        self.online.finish_warm_up()?;
        if !was_ready {
            self.begin_intervals();
        }
        Ok(())
    }

    /// Lets the controller of intervals begin anew: after the warm-up another model speaks, and how far off the guesses
    /// before were says nothing about it.
    fn begin_intervals(&mut self) {
        let task = &mut self.online.task;
        task.conformal = task.conformal.as_ref().map(Conformal::cleared);
        task.tails = Tails::default();
        self.online.publish();
    }

    /// Ends a stream: learns features anew from the rows that are still in memory, if there are more of them than at the
    /// last search. Further rows can be learned as before.
    pub fn finish_search(&mut self) -> Result<()> {
        let was_ready = self.is_ready();
        self.online.finish_search()?;
        if !was_ready {
            self.begin_intervals();
        }
        Ok(())
    }

    /// Waits for the search or refit that runs beside the stream, if one does, and lets what it found catch up with so many
    /// of the rows that came meanwhile; with all of them, it takes over. Each further row lets it catch up with a few
    /// ([`Upkeep::OnRequest`](super::Upkeep::OnRequest)).
    pub fn attend_upkeep(&mut self, rows: usize) {
        let was_ready = self.is_ready();
        self.online.attend_upkeep(rows);
        if !was_ready && self.is_ready() {
            self.begin_intervals();
        }
    }

    /// A model with the same scales, features and hyperparameters that has learned nothing: for fitting parts
    /// of a stream apart and merging them. Needs features that no longer change.
    pub fn shard(&self) -> Result<Self> {
        Ok(Self { online: self.online.shard()?, metrics: Prequential::default(), drifts: 0 })
    }

    /// Un-learns a row that was learned before with the same values, since the feature map was frozen. Exact;
    /// rejected while the feature map still changes. The controller of intervals stays as it is: it holds how far off
    /// predictions were, and they were made.
    pub fn forget(&mut self, x: &[f64], y: f64) -> Result<()> {
        self.online.forget(x, y, 1.0)
    }

    /// As [`OnlineRegressor::forget`], for a row with known noise variance.
    pub fn forget_noisy(&mut self, x: &[f64], y: f64, variance: f64) -> Result<()> {
        self.online.forget(x, y, variance)
    }

    /// The model as it would be after hypothetical rows, given one after the other, with their noise variances
    /// where noise is known. Scales, features and hyperparameters stay as they are; this model does not change.
    pub fn conditioned(&self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<Self> {
        if noise.is_some() {
            self.require_known_noise()?;
        }
        let online = self.online.conditioned(x, y, noise)?;
        Ok(Self { online, metrics: self.metrics, drifts: self.drifts })
    }

    /// An immutable model for joint predictions of several rows with their gradients; `None` during the warm-up.
    pub fn surface(&self) -> Result<Option<RowSurface>> {
        let Some(learner) = &self.online.learner else { return Ok(None) };
        Ok(Some(RowSurface {
            encoder: learner.encoder().fixed()?,
            surface: learner.first().posterior()?.surface(),
            scale: self.target_scale(),
            known_noise: self.settings().noise == NoiseModel::Known,
        }))
    }

    /// A function drawn from the posterior, exactly: it can be evaluated at any number of rows, one after the
    /// other, and is one and the same function. Noise is not added.
    ///
    /// ```
    /// # use wiski::{OnlineRegressor, Settings};
    /// # let mut model = OnlineRegressor::new(1, Settings::default())?;
    /// # for i in 0..100 { model.observe(&[f64::from(i)], f64::from(i % 10))?; }
    /// use rand::SeedableRng;
    /// let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
    /// let f = model.sample(&mut rng)?;
    /// assert_eq!(f.value(&[50.0])?, f.value(&[50.0])?);
    /// # Ok::<(), wiski::Error>(())
    /// ```
    pub fn sample(&self, rng: &mut impl rand::Rng) -> Result<SampledFunction> {
        let learner = self.online.ready("sampling")?;
        let sample = learner.first().sample(rng)?;
        Ok(SampledFunction { encoder: learner.encoder().fixed()?, sample, scale: self.target_scale() })
    }

    /// The coordinates on the grid of rows given one after the other, by the feature map as it is now.
    pub fn coordinates(&self, x: &[f64]) -> Result<Vec<f64>> {
        self.online.ready("encoding rows")?.encoder().encode_all(x)
    }
}
