//! Online regression on raw rows: scaling, features, hyperparameters and noise are learned while the stream
//! runs.
//!
//! The first rows are kept until there are enough to start from (the warm-up); after that no row is kept.
//! Each further row is predicted, then learned:
//!
//! 1. the row is scaled and mapped to coordinates h; the posterior predicts;
//! 2. a learned map moves one step up the predictive log density of the target;
//! 3. the posterior is conditioned on the row in constant time, or, with one step per observation, the
//!    hyperparameters move and the posterior follows;
//! 4. from time to time the targets' scale is brought up to date and the hyperparameters are refitted.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::encoder::{Encoder, FixedEncoder, Reads};
use super::metrics::Prequential;
use super::settings::{NoiseModel, Schedule, Settings, TargetScaling};
use super::stream::{self, Fading, Published, Reader};
use super::{OnlineGp, Outcome, Wiski};
use crate::error::{Error, Result, finite, length, positive};
use crate::grid::Grid;
use crate::learn::{Adam, Choice, HyperSpace, Hyperparameters, LbfgsB, Rows};
use crate::posterior::{FunctionSample, Prediction, PredictionGradient, Predictor};
use crate::saved::{Restore, restored_after_reading};

/// A running mean and variance of targets.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct TargetMoments {
    weight: f64,
    mean: f64,
    squares: f64,
}

impl TargetMoments {
    fn observe(&mut self, y: f64) {
        self.weight += 1.0;
        let before = y - self.mean;
        self.mean += before / self.weight;
        self.squares += before * (y - self.mean);
    }

    /// Takes in the moments of other targets (Chan, Golub and LeVeque 1979).
    fn merge(&mut self, other: &Self) {
        let weight = self.weight + other.weight;
        if weight > 0.0 {
            let apart = other.mean - self.mean;
            self.squares += other.squares + apart * apart * self.weight * other.weight / weight;
            self.mean += apart * other.weight / weight;
            self.weight = weight;
        }
    }

    /// Takes out a target that was observed.
    fn forget(&mut self, y: f64) {
        if self.weight <= 1.0 {
            *self = Self::default();
            return;
        }
        let now = y - self.mean;
        self.weight -= 1.0;
        self.mean -= now / self.weight;
        self.squares = (self.squares - now * (y - self.mean)).max(0.0);
    }

    fn std(&self) -> f64 {
        let variance = self.squares / self.weight;
        if variance > 0.0 { variance.sqrt() } else { 1.0 }
    }
}

/// y → (y − shift)/scale.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TargetScale {
    /// What is subtracted.
    pub shift: f64,
    /// What is divided by.
    pub scale: f64,
}

impl TargetScale {
    const IDENTITY: Self = Self { shift: 0.0, scale: 1.0 };

    fn apply(&self, y: f64) -> f64 {
        (y - self.shift) / self.scale
    }

    fn undo(&self, p: Prediction) -> Prediction {
        let square = self.scale * self.scale;
        Prediction {
            mean: self.shift + self.scale * p.mean,
            variance: p.variance * square,
            noise: p.noise * square,
        }
    }
}

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
    #[serde(skip)]
    published: Published<Snapshot>,
}

/// What exists after the warm-up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
struct Running {
    encoder: Encoder,
    model: Wiski,
    space: HyperSpace,
    scale: TargetScale,
    choice: Option<Choice>,
    /// For one step per observation: the optimiser and the gradient at the present posterior.
    every_step: Option<(Adam, Vec<f64>)>,
    rows_since_refit: f64,
    refits: usize,
    fading: Fading,
    /// Reused from row to row: the prediction with its gradient, and the way down for the features.
    #[serde(skip)]
    gradient: PredictionGradient,
    #[serde(skip)]
    downhill: Vec<f64>,
}

restored_after_reading!(OnlineRegressor, Running);

impl Restore for OnlineRegressor {
    fn restore(&mut self) -> Result<()> {
        self.settings.check(self.input_dim)?;
        length("warm-up rows", self.warm_up.len() * self.input_dim, self.warm_up.x.len())?;
        if let Some(running) = &self.running {
            length("columns", self.input_dim, running.encoder.map().input_dim())?;
        }
        self.publish();
        Ok(())
    }
}

impl Restore for Running {
    fn restore(&mut self) -> Result<()> {
        length("coordinates", self.model.input_dim(), self.encoder.map().output_dim())?;
        self.space.check_fits(&self.model.hyperparameters())?;
        if let Some((adam, gradient)) = &self.every_step {
            length("coordinates of the optimiser", self.space.dim(), adam.dim())?;
            length("gradient", self.space.dim(), gradient.len())?;
        }
        positive("scale of the targets", self.scale.scale, 0)
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
            published: Published::default(),
        })
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
                "this model learns its noise; choose NoiseModel::Known to give a variance for each row";
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

    fn require_known_noise(&self) -> Result<()> {
        if self.settings.noise == NoiseModel::Known {
            return Ok(());
        }
        let reason = "this model learns its noise; choose NoiseModel::Known to give a variance for each row";
        Err(Error::Unsupported { operation: "known noise", reason })
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
        if let Some(time) = time {
            finite("time", time, 0)?;
        }
        if let Some(running) = &mut self.running {
            let refits = running.refits;
            let learned = running.learn(x, y, noise, time, &self.settings, &self.targets)?;
            self.targets.observe(y);
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

impl Running {
    fn start(
        rows: &Rows,
        times: &[f64],
        settings: &Settings,
        input_dim: usize,
        targets: &TargetMoments,
    ) -> Result<Self> {
        let scaling = stream::column_scaling(settings, &rows.x, input_dim)?;
        let scale = match settings.targets {
            TargetScaling::None => TargetScale::IDENTITY,
            TargetScaling::Running => TargetScale { shift: targets.mean, scale: targets.std() },
        };
        let mut scaled = Rows::default();
        let mut row = Vec::new();
        for (i, x) in rows.x.chunks_exact(input_dim).enumerate() {
            scaling.apply(x, &mut row)?;
            scaled.push(&row, scale.apply(rows.y[i]), rows.noise[i]);
        }

        let kernels = vec![settings.start_kernel(input_dim)?];
        let known = settings.noise == NoiseModel::Known;
        let noise = if known { scale.scale.powi(-2) } else { settings.initial_noise };
        let hyper = Hyperparameters { kernels, noise };
        let space = settings.hyper_space(&hyper)?;

        let lattice = stream::lattice(settings, input_dim)?;
        let (warm, choice) = stream::features(&scaled, settings, lattice, hyper, space)?;
        let (lattice, space) = (warm.lattice().clone(), warm.space().clone());
        let (map, moments, hyper) = warm.into_parts();
        let mut encoder = Encoder::new(scaling, map, moments);
        if settings.is_additive() {
            // Its features are learned from rows in memory, all at once, and stand in between.
            encoder.freeze()?;
        } else {
            encoder.learn_at(settings.feature_rate)?;
            if settings.schedule == Schedule::Off && settings.feature_rate == 0.0 {
                // Nothing is to move any more, not even the scale of the features.
                encoder.freeze()?;
            }
        }
        let mut model = stream::process(settings, &lattice, &hyper)?;
        let mut h = Vec::with_capacity(rows.len() * lattice.dim());
        for x in rows.x.chunks_exact(input_dim) {
            h.extend_from_slice(encoder.encode(x)?);
        }
        let mut fading = Fading::default();
        if settings.half_life.is_none() {
            model.observe_batch(&h, &scaled.y, Some(&scaled.noise))?;
        } else {
            // Old rows have faded already.
            for (i, h) in h.chunks_exact(lattice.dim()).enumerate() {
                if let Some(factor) = fading.pass(settings.half_life, times.get(i).copied())? {
                    model.decay(factor)?;
                }
                model.absorb(h, scaled.y[i], scaled.noise[i])?;
            }
            model.refactorize()?;
        }
        let mut running = Self {
            encoder,
            model,
            space,
            scale,
            choice,
            every_step: None,
            rows_since_refit: 0.0,
            refits: 0,
            fading,
            gradient: PredictionGradient::default(),
            downhill: Vec::new(),
        };
        if let Schedule::EveryStep { rate } = settings.schedule {
            let n = running.space.dim();
            running.every_step = Some((Adam::new(n, rate)?, vec![0.0; n]));
            running.evaluate()?;
        }
        Ok(running)
    }

    fn learn(
        &mut self,
        x: &[f64],
        y: f64,
        noise: f64,
        time: Option<f64>,
        settings: &Settings,
        targets: &TargetMoments,
    ) -> Result<(Outcome, Prediction)> {
        if let Some(factor) = self.fading.pass(settings.half_life, time)? {
            self.model.decay(factor)?;
        }
        let target = self.scale.apply(y);
        self.encoder.encode(x)?;
        let (outcome, prediction);
        if self.encoder.is_fixed() && self.every_step.is_none() {
            // The prediction falls out of the update.
            (outcome, prediction) = self.model.step_noisy(self.encoder.coordinates(), target, noise)?;
        } else {
            if self.encoder.is_learning() {
                self.model.predict_gradient_into(self.encoder.coordinates(), &mut self.gradient)?;
                self.gradient.prediction.noise *= noise;
                self.downhill.clear();
                self.downhill.extend(self.gradient.slopes_of_log_density(target).map(|g| -g));
                prediction = self.gradient.prediction;
                self.encoder.learn(Some(&self.downhill))?;
            } else {
                let p = self.model.predict(self.encoder.coordinates())?;
                prediction = Prediction { noise: p.noise * noise, ..p };
                self.encoder.learn(None)?;
            }
            outcome = match &mut self.every_step {
                None => self.model.observe_noisy(self.encoder.coordinates(), target, noise)?,
                Some((adam, gradient)) => {
                    // The step uses the gradient on the data before this row; then the row is learned and
                    // one evaluation gives both the new posterior and the next gradient.
                    let mut hyper = self.model.hyperparameters();
                    self.space.adam_step(adam, &mut hyper, gradient)?;
                    let outcome = self.model.absorb(self.encoder.coordinates(), target, noise)?;
                    self.model.set_hyperparameters_later(hyper);
                    self.evaluate()?;
                    outcome
                }
            };
        }
        // In the user's units before a refit may change the scale.
        let prediction = self.scale.undo(prediction);
        self.rows_since_refit += 1.0;
        if stream::refit_due(settings.schedule, self.rows_since_refit, self.model.count()) {
            self.refit(settings, targets, &stream::brief())?;
        }
        Ok((outcome, prediction))
    }

    /// For one step per observation: objective, gradient and posterior at the present hyperparameters.
    fn evaluate(&mut self) -> Result<()> {
        if let Some((_, gradient)) = &mut self.every_step {
            self.model.evaluate(&self.space, gradient)?;
        }
        Ok(())
    }

    /// Brings the targets' scale up to date and refits the hyperparameters.
    fn refit(&mut self, settings: &Settings, targets: &TargetMoments, optimiser: &LbfgsB) -> Result<()> {
        if settings.targets == TargetScaling::Running && targets.weight >= 2.0 {
            let new = TargetScale { shift: targets.mean, scale: targets.std() };
            let factor = new.scale / self.scale.scale;
            self.model.rescale_targets((new.shift - self.scale.shift) / self.scale.scale, factor)?;
            self.scale = new;
        }
        self.model.refit(&self.space, optimiser)?;
        self.rows_since_refit = 0.0;
        self.refits += 1;
        Ok(())
    }

    fn snapshot(&self, noise: NoiseModel) -> Result<Snapshot> {
        let known_noise = noise == NoiseModel::Known;
        let predictor = self.model.predictor();
        Ok(Snapshot { encoder: self.encoder.fixed()?, predictor, scale: self.scale, known_noise })
    }
}

/// An immutable model for predictions from any thread.
#[derive(Debug, Clone)]
pub struct Snapshot {
    encoder: FixedEncoder,
    predictor: Predictor,
    scale: TargetScale,
    known_noise: bool,
}

impl Snapshot {
    /// What the model said about a row when the snapshot was taken, in the user's units. A point off the
    /// grid is an error here: a snapshot does not grow.
    pub fn predict(&self, x: &[f64]) -> Result<Prediction> {
        let h = self.encoder.encode(x)?;
        let mut p = self.scale.undo(self.predictor.predict(&h)?);
        if self.known_noise {
            p.noise = 0.0;
        }
        Ok(p)
    }
}

/// A function of rows drawn from a posterior.
#[derive(Debug, Clone)]
pub struct SampledFunction {
    encoder: FixedEncoder,
    sample: FunctionSample,
    scale: TargetScale,
}

impl SampledFunction {
    /// The value of the function at a row, in the user's units.
    pub fn value(&self, x: &[f64]) -> Result<f64> {
        let h = self.encoder.encode(x)?;
        Ok(self.scale.shift + self.scale.scale * self.sample.value(&h)?)
    }
}
