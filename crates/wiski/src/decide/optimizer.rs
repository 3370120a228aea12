//! Ask and tell: Bayesian optimisation for thousands of trials.
//!
//! [`Optimizer::ask`] proposes points, [`Optimizer::tell`] takes what was measured there. The first points are a
//! scrambled Sobol design; then a Gaussian process on a grid over the box learns from every result in constant
//! time, and a criterion says where to look next. Points that were asked for and not yet told are *pending*: the
//! model takes their predicted mean for granted, so that they are not proposed again.
//!
//! The same seed and the same sequence of calls give the same points. An optimiser can be written to a file and
//! read back ([`crate::persist`]), and goes on to the last bit.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::maximise::sobol;
use super::{Acquisition, BaseSamples, Maximiser, Space};
use crate::error::{Error, Result, finite, length, positive};
use crate::kernel::{Family, Kernel};
use crate::learn::{Bounds, Hyperprior};
use crate::model::{InputScaling, NoiseModel, OffGrid, OnlineRegressor, Prequential, Schedule, Settings};
use crate::posterior::{Joint, Surface};
use crate::saved::{Restore, restored_after_reading};

/// Whether small or large values are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Goal {
    /// The smallest value.
    #[default]
    Minimise,
    /// The largest value.
    Maximise,
}

/// How points are proposed after the initial design.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Strategy {
    /// By a criterion; several points are found together.
    Joint(Acquisition),
    /// By a criterion; several points are found one after the other, each given those before it.
    Greedy(Acquisition),
    /// Thompson sampling: each point is the best of a function drawn from the posterior.
    Thompson,
}

impl Default for Strategy {
    fn default() -> Self {
        Self::Joint(Acquisition::LogExpectedImprovement)
    }
}

/// All settings of an [`Optimizer`]; every one has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OptimizerSettings {
    /// Whether small or large values are wanted.
    pub goal: Goal,
    /// How points are proposed.
    pub strategy: Strategy,
    /// The number of points of the initial design; `None` for twice the dimensions plus three.
    pub initial: Option<usize>,
    /// Grid points per axis; `None` for a choice by the number of dimensions.
    pub grid: Option<usize>,
    /// The kernel's family on each axis.
    pub family: Family,
    /// Priors on hyperparameters by name, in units of the unit cube and of standardised values.
    pub priors: Vec<(String, Hyperprior)>,
    /// When hyperparameters are learned.
    pub schedule: Schedule,
    /// Whether each result comes with its own noise variance.
    pub known_noise: bool,
    /// Samples for criteria of several points.
    pub samples: usize,
    /// How hard the criterion is maximised.
    pub maximiser: Maximiser,
    /// The seed of everything random.
    pub seed: u64,
}

impl Default for OptimizerSettings {
    /// Matérn 5/2 with the priors that the paper's experiments use.
    fn default() -> Self {
        Self {
            goal: Goal::default(),
            strategy: Strategy::default(),
            initial: None,
            grid: None,
            family: Family::Matern52,
            priors: vec![
                ("lengthscale".into(), Hyperprior::Gamma { shape: 3.0, rate: 6.0 }),
                ("outputscale".into(), Hyperprior::Gamma { shape: 2.0, rate: 0.15 }),
            ],
            schedule: Schedule::Geometric { ratio: 1.1 },
            known_noise: false,
            samples: 128,
            maximiser: Maximiser::default(),
            seed: 0,
        }
    }
}

/// What became of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was measured.
    Value(f64),
    /// It gave no value; the model does not learn from it.
    Failed,
}

/// A point that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Where, in the user's values.
    pub x: Vec<f64>,
    /// What was found.
    pub outcome: Outcome,
}

/// Proposes points and learns from results. See the [module](super).
///
/// ```
/// use wiski::decide::{Dimension, Optimizer, OptimizerSettings, Space};
///
/// let space = Space::new(vec![Dimension::linear("x", -2.0, 2.0), Dimension::log("rate", 1e-4, 1.0)])?;
/// let mut optimizer = Optimizer::new(space, OptimizerSettings::default())?;
/// for _ in 0..25 {
///     for x in optimizer.ask(1)? {
///         let loss = (x[0] - 0.5).powi(2) + (x[1].log10() + 2.0).powi(2);
///         optimizer.tell(&x, loss)?;
///     }
/// }
/// let best = optimizer.best().unwrap();
/// assert!((best.x[0] - 0.5).abs() < 0.2 && (best.x[1].log10() + 2.0).abs() < 0.2, "{best:?}");
/// # Ok::<(), wiski::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Optimizer {
    space: Space,
    settings: OptimizerSettings,
    model: OnlineRegressor,
    trials: Vec<Trial>,
    /// Asked for and not yet told, in the user's values.
    pending: Vec<Vec<f64>>,
    /// How many points were asked for: no random number is used twice.
    asked: u64,
}

restored_after_reading!(Optimizer);

impl Restore for Optimizer {
    fn restore(&mut self) -> Result<()> {
        length("dimensions", self.space.dim(), self.model.input_dim())?;
        let tried = self.trials.iter().map(|t| &t.x).chain(&self.pending);
        tried.into_iter().try_for_each(|x| length("x", self.space.dim(), x.len()))
    }
}

impl Optimizer {
    /// An optimiser that has seen nothing yet.
    pub fn new(space: Space, settings: OptimizerSettings) -> Result<Self> {
        let d = space.dim();
        let grid = settings.grid.unwrap_or([50, 20, 10, 7][d - 1]);
        let initial = settings.initial.unwrap_or(2 * d + 3);
        if initial < 2 {
            let reason = "a model needs at least two points to start from".into();
            return Err(Error::Config { field: "initial".into(), reason });
        }
        if settings.samples == 0 {
            return Err(Error::Config { field: "samples".into(), reason: "at least one is needed".into() });
        }
        // The model's coordinates are [−1, 1]: a length in the unit cube is twice as long there.
        let to_model = |(name, prior): &(String, Hyperprior)| {
            let prior = match *prior {
                Hyperprior::Gamma { shape, rate } if name.contains("lengthscale") => {
                    Hyperprior::Gamma { shape, rate: rate / 2.0 }
                }
                Hyperprior::LogNormal { mu, sigma } if name.contains("lengthscale") => {
                    Hyperprior::LogNormal { mu: mu + 2f64.ln(), sigma }
                }
                other => other,
            };
            (name.clone(), prior)
        };
        let model = OnlineRegressor::new(
            d,
            Settings {
                grid: vec![grid],
                kernel: Some(Kernel::new(settings.family, d)?),
                schedule: settings.schedule,
                priors: settings.priors.iter().map(to_model).collect(),
                inputs: InputScaling::Bounds(vec![(0.0, 1.0); d]),
                noise: if settings.known_noise { NoiseModel::Known } else { NoiseModel::Learned },
                initial_noise: 0.1,
                warm_up: Some(initial),
                off_grid: OffGrid::Error,
                seed: settings.seed,
                ..Settings::default()
            },
        )?;
        Ok(Self { space, settings, model, trials: Vec::new(), pending: Vec::new(), asked: 0 })
    }

    /// The box that is searched.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The settings.
    pub fn settings(&self) -> &OptimizerSettings {
        &self.settings
    }

    /// The model of the values (of their negatives, for minimisation), on the unit cube.
    pub fn model(&self) -> &OnlineRegressor {
        &self.model
    }

    /// All trials so far, in the order told.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Points that were asked for and not yet told.
    pub fn pending(&self) -> &[Vec<f64>] {
        &self.pending
    }

    /// Running figures of the model's predictions before each result.
    pub fn metrics(&self) -> &Prequential {
        self.model.metrics()
    }

    /// +1 for maximisation, −1 for minimisation.
    fn sign(&self) -> f64 {
        match self.settings.goal {
            Goal::Maximise => 1.0,
            Goal::Minimise => -1.0,
        }
    }

    /// The trial with the best value measured. With noise that may have been luck: see
    /// [`Optimizer::recommend`].
    pub fn best(&self) -> Option<&Trial> {
        let value = |t: &Trial| match t.outcome {
            Outcome::Value(y) => Some(self.sign() * y),
            Outcome::Failed => None,
        };
        self.trials.iter().filter(|t| value(t).is_some()).max_by(|a, b| {
            value(a).unwrap_or(f64::NEG_INFINITY).total_cmp(&value(b).unwrap_or(f64::NEG_INFINITY))
        })
    }

    /// The tried point with the best predicted value, and that value with its uncertainty: what to use in the
    /// end when measurements are noisy. `None` before the initial design is complete.
    pub fn recommend(&self) -> Result<Option<(Vec<f64>, f64, f64)>> {
        let Some(surface) = self.surface() else { return Ok(None) };
        let mut joint = Joint::default();
        let mut best: Option<(f64, &Trial, f64)> = None;
        for trial in self.trials.iter().filter(|t| t.outcome != Outcome::Failed) {
            surface.predict(&self.coordinates(&trial.x)?, &mut joint)?;
            if best.is_none_or(|b| joint.mean[0] > b.0) {
                best = Some((joint.mean[0], trial, joint.variance(0)));
            }
        }
        let scale = self.model.target_scale();
        Ok(best.map(|(mean, trial, variance)| {
            let value = self.sign() * (scale.shift + scale.scale * mean);
            (trial.x.clone(), value, scale.scale * variance.sqrt())
        }))
    }

    fn surface(&self) -> Option<Surface> {
        self.model.model().map(|m| m.posterior().surface())
    }

    /// From the user's values to the model's coordinates, [−1, 1].
    fn coordinates(&self, x: &[f64]) -> Result<Vec<f64>> {
        Ok(self.space.to_unit(x)?.into_iter().map(|u| 2.0 * u - 1.0).collect())
    }

    fn to_values(&self, h: &[f64]) -> Vec<f64> {
        let unit: Vec<f64> = h.iter().map(|h| 0.5 * (h + 1.0)).collect();
        self.space.values(&unit)
    }

    /// Proposes q points; they are pending until they are told.
    pub fn ask(&mut self, q: usize) -> Result<Vec<Vec<f64>>> {
        if q == 0 {
            return Err(Error::Config { field: "q".into(), reason: "at least one point".into() });
        }
        let seed = self.settings.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(self.asked);
        let points = match self.surface() {
            None => self.design(q),
            Some(surface) => {
                let h = self.propose(surface, q, seed)?;
                h.chunks_exact(self.space.dim()).map(|h| self.to_values(h)).collect()
            }
        };
        self.asked += q as u64;
        self.pending.extend(points.iter().cloned());
        Ok(points)
    }

    /// The next q points of a scrambled Sobol sequence.
    fn design(&self, q: usize) -> Vec<Vec<f64>> {
        let from = self.asked as usize;
        let all = sobol(self.space.dim(), from + q, self.settings.seed.wrapping_add(1));
        all.skip(from).map(|u| self.space.values(&u)).collect()
    }

    fn propose(&self, mut surface: Surface, q: usize, seed: u64) -> Result<Vec<f64>> {
        for x in &self.pending {
            let (h, mut joint) = (self.coordinates(x)?, Joint::default());
            surface.predict(&h, &mut joint)?;
            surface.condition(&h, joint.mean[0], 1.0)?;
        }
        let incumbent = self.incumbent(&surface)?;
        match self.settings.strategy {
            Strategy::Joint(acquisition) => {
                self.climb(&surface, acquisition, q, incumbent.as_ref(), seed).map(|(h, _)| h)
            }
            Strategy::Greedy(acquisition) => {
                let mut all = Vec::new();
                for i in 0..q {
                    let seed = seed.wrapping_add(i as u64);
                    let (h, _) = self.climb(&surface, acquisition, 1, incumbent.as_ref(), seed)?;
                    let mut joint = Joint::default();
                    surface.predict(&h, &mut joint)?;
                    surface.condition(&h, joint.mean[0], 1.0)?;
                    all.extend(h);
                }
                Ok(all)
            }
            Strategy::Thompson => self.thompson(q, seed),
        }
    }

    /// The tried point with the best mean, and that mean.
    fn incumbent(&self, surface: &Surface) -> Result<Option<(Vec<f64>, f64)>> {
        let (mut best, mut joint) = (None::<(Vec<f64>, f64)>, Joint::default());
        for trial in self.trials.iter().filter(|t| t.outcome != Outcome::Failed) {
            let h = self.coordinates(&trial.x)?;
            surface.predict(&h, &mut joint)?;
            if best.as_ref().is_none_or(|b| joint.mean[0] > b.1) {
                best = Some((h, joint.mean[0]));
            }
        }
        Ok(best)
    }

    /// The q points where a criterion is largest.
    fn climb(
        &self,
        surface: &Surface,
        acquisition: Acquisition,
        q: usize,
        incumbent: Option<&(Vec<f64>, f64)>,
        seed: u64,
    ) -> Result<(Vec<f64>, f64)> {
        let d = self.space.dim();
        let samples = BaseSamples::new(q, if q > 1 { self.settings.samples } else { 1 }, seed);
        let best = incumbent.map_or(0.0, |i| i.1);
        let mut joint = Joint::default();
        let mut criterion = |h: &[f64], gradient: Option<&mut [f64]>| match gradient {
            None => acquisition.value(surface, h, best, &samples, &mut joint),
            Some(g) => acquisition.value_and_gradient(surface, h, best, &samples, &mut joint, g),
        };
        // Starts around the incumbent: what is best now is likely near what is best next.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut near = |width: f64| -> Option<Vec<f64>> {
            let (h, _) = incumbent?;
            let jitter = (0..q * d).map(|k| h[k % d] + rng.random_range(-width..=width));
            Some(jitter.map(|v| v.clamp(-1.0, 1.0)).collect())
        };
        let starts: Vec<Vec<f64>> = [0.02, 0.2].into_iter().filter_map(&mut near).collect();
        let bounds = Bounds::cube(q * d, -1.0, 1.0)?;
        let maximum = self.settings.maximiser.maximise(&mut criterion, &bounds, &starts, seed)?;
        Ok((maximum.x, maximum.value))
    }

    /// The best points of q functions drawn from the posterior.
    fn thompson(&self, q: usize, seed: u64) -> Result<Vec<f64>> {
        let Some(process) = self.model.model() else { return Ok(Vec::new()) };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let bounds = Bounds::cube(self.space.dim(), -1.0, 1.0)?;
        let mut all = Vec::new();
        for i in 0..q {
            let function = process.sample(&mut rng)?;
            let mut criterion = |h: &[f64], gradient: Option<&mut [f64]>| match gradient {
                None => function.value(h),
                Some(g) => function.value_and_gradient(h, g),
            };
            let seed = seed.wrapping_add(i as u64);
            all.extend(self.settings.maximiser.maximise(&mut criterion, &bounds, &[], seed)?.x);
        }
        Ok(all)
    }

    /// Learns the value found at a point, which need not have been asked for.
    pub fn tell(&mut self, x: &[f64], value: f64) -> Result<()> {
        self.learn(x, value, None)
    }

    /// As [`Optimizer::tell`], with the known noise variance of the value.
    pub fn tell_noisy(&mut self, x: &[f64], value: f64, variance: f64) -> Result<()> {
        positive("noise", variance, 0)?;
        self.learn(x, value, Some(variance))
    }

    fn learn(&mut self, x: &[f64], value: f64, variance: Option<f64>) -> Result<()> {
        if value.is_nan() {
            let reason = "the value is NaN; tell it as failed, so that nothing is learned from it".into();
            return Err(Error::Config { field: "value".into(), reason });
        }
        finite("value", value, 0)?;
        if variance.is_none() && self.settings.known_noise {
            let reason = "the noise of every value is known, so it must be told with it";
            return Err(Error::Unsupported { operation: "tell", reason });
        }
        let u = self.space.to_unit(x)?;
        self.model.step_with(&u, self.sign() * value, variance, None)?;
        self.settle(x, Outcome::Value(value));
        Ok(())
    }

    /// Marks a trial as failed: it gave no value, and is no longer pending.
    pub fn tell_failed(&mut self, x: &[f64]) -> Result<()> {
        self.space.to_unit(x)?;
        self.settle(x, Outcome::Failed);
        Ok(())
    }

    fn settle(&mut self, x: &[f64], outcome: Outcome) {
        let close = |p: &[f64]| p.iter().zip(x).all(|(a, b)| (a - b).abs() <= 1e-9 * (1.0 + b.abs()));
        if let Some(i) = self.pending.iter().position(|p| close(p)) {
            self.pending.remove(i);
        }
        self.trials.push(Trial { x: x.to_vec(), outcome });
    }

    /// Gives up on all pending points, for example after a restart.
    pub fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// Fits the hyperparameters to convergence on everything told so far.
    pub fn refit(&mut self) -> Result<()> {
        self.model.refit()
    }
}
