//! Online regression on raw rows: scaling, features, hyperparameters and noise are learned while the stream
//! runs.
//!
//! The first rows are kept until there are enough to start from (the warm-up); after that no row is kept, but by
//! a sum of grids, which learns its features anew from its first rows ([`Settings::memory`]) and then drops them.
//! Each further row is predicted, then learned:
//!
//! 1. the row is scaled and mapped to coordinates h; the posterior predicts;
//! 2. a learned map moves one step up the predictive log density of the target;
//! 3. the posterior is conditioned on the row in constant time, or, with one step per observation, the
//!    hyperparameters move and the posterior follows;
//! 4. from time to time the targets' scale is brought up to date and the hyperparameters are refitted.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::encoder::{Encoder, Reads};
use super::images::{RowSurface, SampledFunction, Snapshot};
use super::metrics::Prequential;
use super::running::Running;
use super::settings::{Features, InputScaling, NoiseModel, Settings};
use super::stream::{self, Published, Reader};
use super::targets::{TargetMoments, TargetScale};
use super::{OnlineGp, Outcome, Wiski};
use crate::error::{Error, Result, finite, length, positive};
use crate::grid::Grid;
use crate::learn::{Choice, Rows};
use crate::posterior::Prediction;
use crate::saved::{Restore, restored_after_reading};
use crate::stats::Stats;

/// One block of an additive model.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockSummary {
    /// What it reads, one entry for each axis of its grid.
    pub reads: Vec<Reads>,
    /// The number of its grid points.
    pub points: usize,
    /// Its share of the variance over the data that the model explains, all blocks taken for themselves.
    pub share: f64,
}

/// The smallest known noise variance, as a share of the variance of the targets.
const LEAST_NOISE: f64 = 1e-10;

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
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct OnlineRegressor {
    settings: Settings,
    input_dim: usize,
    targets: TargetMoments,
    warm_up: Rows,
    /// The times of the warm-up rows, if they have times.
    #[serde(default)]
    times: Vec<f64>,
    running: Option<Box<Running>>,
    metrics: Prequential,
    drifts: u64,
    /// Rows off the grid of which nothing was learned.
    #[serde(default)]
    ignored: u64,
    #[serde(skip)]
    published: Published<Snapshot>,
}

restored_after_reading!(OnlineRegressor);

impl Restore for OnlineRegressor {
    fn restore(&mut self) -> Result<()> {
        self.settings.check(self.input_dim)?;
        length("warm-up rows", self.warm_up.len() * self.input_dim, self.warm_up.x.len())?;
        self.targets.check()?;
        self.times.iter().try_for_each(|&time| finite("time", time, 0))?;
        if let Some(running) = &self.running {
            length("columns", self.input_dim, running.encoder.map().input_dim())?;
        }
        self.publish();
        Ok(())
    }
}

impl OnlineRegressor {
    /// A model of rows with `input_dim` columns.
    pub fn new(input_dim: usize, settings: Settings) -> Result<Self> {
        let settings = settings.resolved(input_dim);
        settings.check(input_dim)?;
        Ok(Self {
            settings,
            input_dim,
            targets: TargetMoments::default(),
            warm_up: Rows::default(),
            times: Vec::new(),
            running: None,
            metrics: Prequential::default(),
            drifts: 0,
            ignored: 0,
            published: Published::default(),
        })
    }

    /// A model that has learned what the given statistics hold, with hyperparameters fitted to them: where a
    /// reduction over shards ends. The statistics live in the coordinates that the settings give every row, so
    /// these must be known beforehand: [`Features::Identity`], and columns scaled by declared bounds or not at all.
    ///
    /// ```
    /// use wiski::model::{ColumnScaling, InputScaling};
    /// use wiski::{OnlineRegressor, Settings, Stats, grid::Grid};
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
        let known = settings.features == Features::Identity && settings.inputs != InputScaling::WarmUp;
        if !known || stats.lattice().grids().len() != 1 {
            let reason =
                "the coordinates must be known beforehand: one grid, inputs as they are and declared bounds";
            return Err(Error::Unsupported { operation: "a model from statistics", reason });
        }
        let mut model = Self::new(dim, settings)?;
        model.targets = TargetMoments::of_stats(&stats);
        model.running = Some(Box::new(Running::of_stats(stats, &model.settings, &model.targets)?));
        model.publish();
        Ok(model)
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The number of input columns.
    pub fn input_dim(&self) -> usize {
        self.input_dim
    }

    /// Whether the warm-up is over.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The sum of the weights of the rows learned: their number, unless old ones fade.
    pub fn count(&self) -> f64 {
        self.running.as_ref().map_or(self.warm_up.len() as f64, |r| r.model.count())
    }

    /// Running figures of the predictions made by [`OnlineRegressor::step`] after the warm-up.
    pub fn metrics(&self) -> &Prequential {
        &self.metrics
    }

    /// The Gaussian process on the grid, in scaled units, once the warm-up is over.
    pub fn model(&self) -> Option<&Wiski> {
        self.running.as_ref().map(|r| &r.model)
    }

    /// Scaling and feature map, once the warm-up is over.
    pub fn encoder(&self) -> Option<&Encoder> {
        self.running.as_ref().map(|r| &r.encoder)
    }

    /// How targets are scaled inside the model at the moment.
    pub fn target_scale(&self) -> TargetScale {
        self.running.as_ref().map_or(TargetScale::IDENTITY, |r| r.scale)
    }

    /// The blocks of the model, in their order: what each reads and how much of the variance it explains.
    pub fn blocks(&self) -> Vec<BlockSummary> {
        let Some(running) = &self.running else { return Vec::new() };
        let shares = running.model.shares();
        let mut reads = running.encoder.reads().into_iter();
        let grids = running.model.stats().lattice().grids();
        let block = |(grid, share): (&Grid, f64)| BlockSummary {
            reads: reads.by_ref().take(grid.dim()).collect(),
            points: grid.len(),
            share,
        };
        grids.iter().zip(shares).map(block).collect()
    }

    /// The effect of one block at rows given one after the other, in the units of the target and centred over
    /// the data: the mean and variance of what this block adds to a prediction. To draw a curve, vary the
    /// columns that the block reads; the others do not matter unless it reads a direction.
    pub fn effect(&mut self, block: usize, x: &[f64]) -> Result<Vec<Prediction>> {
        length("x", x.len() / self.input_dim * self.input_dim, x.len())?;
        let Some(running) = &mut self.running else {
            return Err(Error::Unsupported { operation: "effect", reason: "the warm-up is not over" });
        };
        let grids = running.model.stats().lattice().grids();
        let first: usize = grids.iter().take(block).map(Grid::dim).sum();
        let dim = grids.get(block).map_or(0, Grid::dim);
        let mut h = Vec::with_capacity(x.len() / self.input_dim * dim);
        for (row, x) in x.chunks_exact(self.input_dim).enumerate() {
            let all = running.encoder.encode(x).map_err(|error| error.in_row(row))?;
            h.extend_from_slice(&all[first..first + dim]);
        }
        let square = running.scale.scale * running.scale.scale;
        let unscaled = |p: Prediction| Prediction {
            mean: p.mean * running.scale.scale,
            variance: p.variance * square,
            noise: 0.0,
        };
        Ok(running.model.effect(block, &h)?.into_iter().map(unscaled).collect())
    }

    /// Which projection was chosen, if one was.
    pub fn choice(&self) -> Option<&Choice> {
        self.running.as_ref().and_then(|r| r.choice.as_ref())
    }

    /// How often the hyperparameters were refitted since the warm-up.
    pub fn refits(&self) -> usize {
        self.running.as_ref().map_or(0, |r| r.refits)
    }

    /// What the model says about a row now, in the user's units. During the warm-up that is the mean and
    /// variance of the targets so far. With known noise, the noise of the prediction is 0.
    pub fn predict(&mut self, x: &[f64]) -> Result<Prediction> {
        length("x", self.input_dim, x.len())?;
        let known = self.settings.noise == NoiseModel::Known;
        let mut p = match &mut self.running {
            Some(running) => {
                let h = running.encoder.encode(x)?;
                running.scale.undo(running.model.predict(h)?)
            }
            None => self.before_warm_up()?,
        };
        if known {
            p.noise = 0.0;
        }
        Ok(p)
    }

    /// As [`OnlineRegressor::predict`], for an observation whose noise variance is known (for [`NoiseModel::Known`]).
    pub fn predict_noisy(&mut self, x: &[f64], variance: f64) -> Result<Prediction> {
        self.require_known_noise()?;
        positive("noise", variance, 0)?;
        Ok(Prediction { noise: variance, ..self.predict(x)? })
    }

    fn before_warm_up(&self) -> Result<Prediction> {
        if self.targets.weight < 2.0 {
            let reason = "the model has seen fewer than two rows";
            return Err(Error::Unsupported { operation: "prediction", reason });
        }
        Ok(Prediction { mean: self.targets.mean, variance: self.targets.std().powi(2), noise: 0.0 })
    }

    /// Learns a row.
    pub fn observe(&mut self, x: &[f64], y: f64) -> Result<Outcome> {
        self.learn(x, y, 1.0, None).map(|(outcome, _)| outcome)
    }

    /// Learns a row whose noise variance is known (for [`NoiseModel::Known`]).
    pub fn observe_noisy(&mut self, x: &[f64], y: f64, variance: f64) -> Result<Outcome> {
        if self.settings.noise == NoiseModel::Learned {
            let reason =
                "this model learns its noise; a variance for each row needs one whose noise is known";
            return Err(Error::Unsupported { operation: "known noise", reason });
        }
        self.learn(x, y, variance, None).map(|(outcome, _)| outcome)
    }

    /// Learns a row that was observed at the given time; times must not decrease.
    pub fn observe_at(&mut self, x: &[f64], y: f64, time: f64) -> Result<Outcome> {
        self.learn(x, y, 1.0, Some(time)).map(|(outcome, _)| outcome)
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
        if variance.is_some() {
            self.require_known_noise()?;
        }
        let (_, prediction) = self.learn(x, y, variance.unwrap_or(1.0), time)?;
        if let Some(p) = &prediction {
            self.metrics.record(p, y);
            if let Some(detector) = &mut self.settings.drift {
                self.drifts += u64::from(detector.record((y - p.mean) / p.std()));
            }
        }
        Ok(prediction)
    }

    /// How often drift was signalled by [`Settings::drift`] in [`OnlineRegressor::step`].
    pub fn drifts(&self) -> u64 {
        self.drifts
    }

    /// How many rows lay off the grid, so that nothing was learned of them ([`OffGrid::Prior`](super::OffGrid::Prior)),
    /// since the warm-up.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    fn require_known_noise(&self) -> Result<()> {
        if self.settings.noise == NoiseModel::Known {
            return Ok(());
        }
        let reason = "this model learns its noise; a variance for each row needs one whose noise is known";
        Err(Error::Unsupported { operation: "known noise", reason })
    }

    /// Refuses a known noise variance that is nothing beside the variance of the targets: what follows from such a row
    /// cannot be computed.
    fn check_known_noise(&self, noise: f64) -> Result<()> {
        if self.settings.noise == NoiseModel::Learned || self.targets.weight < 2.0 {
            return Ok(());
        }
        let least = LEAST_NOISE * self.targets.std().powi(2);
        if noise >= least {
            return Ok(());
        }
        let reason = format!(
            "a variance of {noise:e} is too small beside the targets; at least {least:.1e} is needed"
        );
        Err(Error::Config { field: "noise".into(), reason })
    }

    /// Learns many rows, given row after row; stops at the first that is refused and says which.
    pub fn observe_batch(&mut self, x: &[f64], y: &[f64]) -> Result<()> {
        length("x", y.len() * self.input_dim, x.len())?;
        for (row, (x, &y)) in x.chunks_exact(self.input_dim).zip(y).enumerate() {
            self.observe(x, y).map_err(|error| error.in_row(row))?;
        }
        Ok(())
    }

    /// Means and standard deviations of observations at many rows.
    pub fn predict_batch(&mut self, x: &[f64], mean: &mut [f64], std: &mut [f64]) -> Result<()> {
        length("x", mean.len() * self.input_dim, x.len())?;
        length("std", mean.len(), std.len())?;
        let snapshot = if mean.len() >= 64 { self.snapshot() } else { None };
        for (row, x) in x.chunks_exact(self.input_dim).enumerate() {
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

    /// Checks a row, keeps it for the warm-up or learns it; returns what was predicted before.
    fn learn(
        &mut self,
        x: &[f64],
        y: f64,
        noise: f64,
        time: Option<f64>,
    ) -> Result<(Outcome, Option<Prediction>)> {
        stream::check_row(x, self.input_dim)?;
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        self.check_known_noise(noise)?;
        if let Some(time) = time {
            finite("time", time, 0)?;
        }
        if let Some(running) = &mut self.running {
            let refits = running.refits;
            let learned = running.learn(x, y, noise, time, &self.settings, &self.targets)?;
            self.targets.observe(y);
            self.ignored += u64::from(learned.0 == Outcome::OffGrid);
            if running.refits > refits {
                self.publish();
            }
            if !self.warm_up.is_empty() {
                self.warm_up.push(x, y, noise);
                self.times.extend(time);
                self.grow_up();
            }
            return Ok((learned.0, Some(learned.1)));
        }
        stream::admit_to_warm_up(&self.settings, x, self.input_dim)?;
        stream::check_time(self.settings.half_life, time, self.times.last().copied())?;
        let before = (self.targets, self.times.len());
        self.warm_up.push(x, y, noise);
        self.times.extend(time);
        self.targets.observe(y);
        if self.warm_up.len() >= self.settings.warm_up_rows(self.input_dim) {
            self.finish_warm_up().map_err(|error| {
                self.warm_up.pop(self.input_dim);
                self.times.truncate(before.1);
                self.targets = before.0;
                Error::WarmUp { reason: error.to_string() }
            })?;
        }
        Ok((Outcome::Learned, None))
    }

    /// Ends the warm-up with the rows seen so far: chooses scaling and features, fits the hyperparameters.
    /// The rows are not kept.
    pub fn finish_warm_up(&mut self) -> Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        if self.warm_up.len() < 2 {
            let reason = "at least two rows are needed";
            return Err(Error::Unsupported { operation: "ending the warm-up", reason });
        }
        // The first rows came before the targets' variance was known.
        self.warm_up.noise.iter().try_for_each(|&noise| self.check_known_noise(noise))?;
        let running =
            Running::start(&self.warm_up, &self.times, &self.settings, self.input_dim, &self.targets)?;
        self.running = Some(Box::new(running));
        // Rows that fade cannot be learned anew with their old weights.
        let settings = &self.settings;
        if !settings.is_additive() || settings.half_life.is_some() || self.warm_up.len() >= settings.memory {
            self.warm_up = Rows::default();
            self.times.clear();
        }
        self.publish();
        Ok(())
    }

    /// Learns the features of a sum of grids anew from all rows so far, at a quarter of the memory and when it
    /// is full. All rows are still there, so that the statistics are exact under the new features. The row that
    /// brought this about is learned already: should the search fail, features stay as they are.
    fn grow_up(&mut self) {
        let (rows, memory) = (self.warm_up.len(), self.settings.memory);
        let young = rows == memory / 4 && 2 * rows >= 3 * self.settings.warm_up_rows(self.input_dim);
        if !young && rows < memory {
            return;
        }
        if let Ok(mut new) =
            Running::start(&self.warm_up, &self.times, &self.settings, self.input_dim, &self.targets)
        {
            new.refits = self.refits() + 1;
            self.running = Some(Box::new(new));
            self.publish();
        }
        if rows >= memory {
            self.warm_up = Rows::default();
            self.times.clear();
        }
    }

    /// Whether features may still be learned anew from rows in memory.
    pub fn is_young(&self) -> bool {
        self.running.is_some() && !self.warm_up.is_empty()
    }

    fn require_settled(&self, operation: &'static str) -> Result<()> {
        if self.is_young() {
            let reason = "the features may still be learned anew; freeze them first, then it is exact";
            return Err(Error::Unsupported { operation, reason });
        }
        Ok(())
    }

    /// Stops learning the feature map and makes its batch statistics constants: from here on a row has the
    /// same coordinates for ever, and rows can be forgotten and models merged.
    pub fn freeze_features(&mut self) -> Result<()> {
        match &mut self.running {
            Some(running) => {
                self.warm_up = Rows::default();
                self.times.clear();
                running.encoder.freeze()
            }
            None => {
                Err(Error::Unsupported { operation: "freezing features", reason: "the warm-up is not over" })
            }
        }
    }

    /// A model with the same scales, features and hyperparameters that has learned nothing: for fitting parts
    /// of a stream apart and merging them. Needs features that no longer change.
    pub fn shard(&self) -> Result<Self> {
        let Some(running) = &self.running else {
            return Err(Error::Unsupported { operation: "shard", reason: "the warm-up is not over" });
        };
        self.require_settled("shard")?;
        running.encoder.require_fixed("shard")?;
        let mut shard = Self::new(self.input_dim, self.settings.clone())?;
        let mut running = running.clone();
        running.model = running.model.cleared()?;
        running.rows_since_refit = 0.0;
        shard.running = Some(running);
        Ok(shard)
    }

    /// Un-learns a row that was learned before with the same values, since the feature map was frozen. Exact;
    /// refused while the feature map still changes.
    pub fn forget(&mut self, x: &[f64], y: f64) -> Result<()> {
        self.forget_noisy(x, y, 1.0)
    }

    /// As [`OnlineRegressor::forget`], for a row with known noise variance.
    pub fn forget_noisy(&mut self, x: &[f64], y: f64, variance: f64) -> Result<()> {
        finite("y", y, 0)?;
        self.require_settled("forget")?;
        let Some(running) = &mut self.running else {
            return Err(Error::Unsupported { operation: "forget", reason: "the warm-up is not over" });
        };
        running.encoder.require_fixed("forget")?;
        running.encoder.encode(x)?;
        running.model.forget(running.encoder.coordinates(), running.scale.apply(y), variance)?;
        self.targets.forget(y);
        Ok(())
    }

    /// Learns everything another model has learned. Exact; refused unless both models map rows to the same
    /// coordinates.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.require_settled("merge")?;
        other.require_settled("merge")?;
        let (Some(running), Some(theirs)) = (&mut self.running, &other.running) else {
            return Err(Error::Unsupported { operation: "merge", reason: "a warm-up is not over" });
        };
        running.encoder.require_fixed("merge")?;
        theirs.encoder.require_fixed("merge")?;
        if !running.encoder.agrees_with(&theirs.encoder) {
            let reason = "the two models scale or project their inputs differently";
            return Err(Error::Unsupported { operation: "merge", reason });
        }
        // Their statistics in our target units.
        let mut model = theirs.model.clone();
        let shift = (running.scale.shift - theirs.scale.shift) / theirs.scale.scale;
        model.rescale_targets(shift, running.scale.scale / theirs.scale.scale)?;
        running.model.merge(&model)?;
        self.targets.merge(&other.targets);
        self.metrics.merge(&other.metrics);
        Ok(())
    }

    /// Fits the hyperparameters to everything learned so far, whatever the schedule: worth while after merging.
    pub fn refit(&mut self) -> Result<()> {
        let Some(running) = &mut self.running else {
            return Err(Error::Unsupported { operation: "refit", reason: "the warm-up is not over" });
        };
        running.refit(&self.settings, &self.targets, &stream::thorough())?;
        running.evaluate()?;
        self.publish();
        Ok(())
    }

    /// Exponential forgetting at once: every row so far counts `factor` times as much.
    pub fn decay(&mut self, factor: f64) -> Result<()> {
        self.require_settled("decay")?;
        match &mut self.running {
            Some(running) => running.model.decay(factor),
            None => Err(Error::Unsupported { operation: "decay", reason: "the warm-up is not over" }),
        }
    }

    /// The model as it would be after hypothetical rows, given one after the other, with their noise variances
    /// where noise is known. Scales, features and hyperparameters stay as they are; this model does not change.
    pub fn conditioned(&self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<Self> {
        length("x", y.len() * self.input_dim, x.len())?;
        if noise.is_some() {
            self.require_known_noise()?;
        }
        let h = self.coordinates(x)?;
        let mut new = self.clone();
        // Features that were learned anew from rows in memory would not know these.
        (new.warm_up, new.times) = (Rows::default(), Vec::new());
        if let Some(running) = &mut new.running {
            let scaled: Vec<f64> = y.iter().map(|&y| running.scale.apply(y)).collect();
            running.model.observe_batch(&h, &scaled, noise)?;
        }
        y.iter().for_each(|&y| new.targets.observe(y));
        new.publish();
        Ok(new)
    }

    /// An immutable image for joint predictions of several rows with their gradients; `None` during the warm-up.
    pub fn surface(&self) -> Result<Option<RowSurface>> {
        let Some(running) = &self.running else { return Ok(None) };
        Ok(Some(RowSurface {
            encoder: running.encoder.fixed()?,
            surface: running.model.posterior()?.surface(),
            scale: running.scale,
            known_noise: self.settings.noise == NoiseModel::Known,
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
        let Some(running) = &self.running else {
            return Err(Error::Unsupported { operation: "sampling", reason: "the warm-up is not over" });
        };
        let sample = running.model.sample(rng)?;
        Ok(SampledFunction { encoder: running.encoder.fixed()?, sample, scale: running.scale })
    }

    /// The coordinates on the grid of rows given one after the other, by the feature map as it is now.
    pub fn coordinates(&self, x: &[f64]) -> Result<Vec<f64>> {
        let Some(running) = &self.running else {
            return Err(Error::Unsupported { operation: "encoding rows", reason: "the warm-up is not over" });
        };
        length("x", x.len() / self.input_dim * self.input_dim, x.len())?;
        let encoder = running.encoder.fixed()?;
        let mut all = Vec::new();
        for (row, x) in x.chunks_exact(self.input_dim).enumerate() {
            all.extend(encoder.encode(x).map_err(|error| error.in_row(row))?);
        }
        Ok(all)
    }

    /// An immutable image of the model for predictions from any thread; `None` during the warm-up.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.running.as_ref().and_then(|r| r.snapshot(self.settings.noise).ok()).map(Arc::new)
    }

    /// A handle that always gives the newest published snapshot. Snapshots are published after the warm-up,
    /// after every refit and by [`OnlineRegressor::publish`]; taking one never waits for learning.
    pub fn reader(&self) -> Reader {
        self.published.reader()
    }

    /// Publishes the present state to all readers.
    pub fn publish(&self) {
        self.published.set(self.snapshot());
    }
}
