//! Ask and tell: Bayesian optimization for thousands of trials.
//!
//! [`Optimizer::ask`] proposes points, [`Optimizer::tell`] takes what was measured there. The first points are a
//! scrambled Sobol design; then a Gaussian process over the box ([`SurrogateModel`]: exact for the first few hundred
//! results; then one grid, or a sum of small ones in many dimensions, in constant time) learns from every result, and
//! a criterion says where to look next. Points that were asked for and not yet told are *pending*: the model takes
//! their predicted mean for granted, so that they are not proposed again.
//!
//! The same seed and the same sequence of calls give the same points. An optimizer can be written to a file and
//! read back ([`crate::persist`]), and goes on to the last bit.

use serde::{Deserialize, Serialize};

use super::plausible::Plausible;
use super::{Goal, Incumbent, OptimizerSettings, Outcome, Space, SurrogateModel, Trial};
use crate::error::{Error, Result, finite, length, positive};
use crate::learn::Rows;
use crate::model::Prequential;
use crate::posterior::{Joint, Prediction};
use crate::saved::{Restore, restored_after_reading};

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
    pub(super) space: Space,
    pub(super) settings: OptimizerSettings,
    /// There once the initial design is complete.
    #[serde(alias = "model")]
    pub(super) surrogate: Option<Box<SurrogateModel>>,
    /// What went wrong beside the results.
    #[serde(skip)]
    failure: Option<Error>,
    pub(super) trials: Vec<Trial>,
    /// The trials that gave a value, as the model sees them: coordinates in [−1, 1], large values wanted.
    #[serde(skip)]
    pub(super) results: Rows,
    /// What results are measured against before the model sees them.
    #[serde(skip)]
    plausible: Plausible,
    /// Asked for and not yet told, in the user's values.
    pub(super) pending: Vec<Vec<f64>>,
    /// How many points were asked for: no random number is used twice.
    pub(super) asked: u64,
    metrics: Prequential,
    /// Words of whoever keeps this optimizer.
    #[serde(default)]
    note: String,
}

restored_after_reading!(Optimizer);

impl Restore for Optimizer {
    fn restore(&mut self) -> Result<()> {
        self.settings.check()?;
        if let Some(model) = &self.surrogate {
            length("dimensions", self.space.coordinates(), model.dim())?;
        }
        self.pending.iter().try_for_each(|x| self.space.to_unit(x).map(|_| ()))?;
        for Trial { x, outcome, variance } in &self.trials {
            self.space.to_unit(x)?;
            if let Outcome::Value(value) = outcome {
                finite("value", *value, 0)?;
            }
            variance.map_or(Ok(()), |variance| positive("noise", variance, 0))?;
        }
        self.review()
    }
}

/// From so many results at once, and a quarter of those before, a model is made anew instead of led from one to the next.
const MADE_ANEW: usize = 16;

impl Optimizer {
    /// An optimizer that has seen nothing yet.
    pub fn new(space: Space, settings: OptimizerSettings) -> Result<Self> {
        settings.check()?;
        Ok(Self {
            space,
            settings,
            surrogate: None,
            failure: None,
            trials: Vec::new(),
            results: Rows::default(),
            plausible: Plausible::default(),
            pending: Vec::new(),
            asked: 0,
            metrics: Prequential::default(),
            note: String::new(),
        })
    }

    /// Words that are kept with the state, for the program that comes back to it.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Keeps words with the state.
    pub fn set_note(&mut self, note: impl Into<String>) {
        self.note = note.into();
    }

    /// The box that is searched.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The settings.
    pub fn settings(&self) -> &OptimizerSettings {
        &self.settings
    }

    /// The model of the values (of their negatives, for minimization) once the initial design is complete.
    pub fn surrogate(&self) -> Option<&SurrogateModel> {
        self.surrogate.as_deref()
    }

    /// What the model says about a point, in the user's values; `None` before the initial design is complete. In
    /// more than four dimensions the model covers a box around the best point, and others are rejected.
    pub fn predict(&self, x: &[f64]) -> Result<Option<Prediction>> {
        let (h, sign) = (self.coordinates(x)?, self.sign());
        let Some(model) = &self.surrogate else { return Ok(None) };
        let mut prediction = model.predict(&h)?;
        prediction.mean *= sign;
        if self.settings.known_noise {
            prediction.noise = 0.0;
        }
        Ok(Some(prediction))
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
        &self.metrics
    }

    /// +1 for maximization, −1 for minimization.
    fn sign(&self) -> f64 {
        match self.settings.goal {
            Goal::Maximize => 1.0,
            Goal::Minimize => -1.0,
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
        let Some(model) = &self.surrogate else { return Ok(None) };
        let posterior = model.posterior()?;
        let Some((x, mean)) = Incumbent::among(posterior.surrogate(), &model.covered(&self.results))?.place
        else {
            return Ok(None);
        };
        let mut joint = Joint::default();
        posterior.surrogate().predict(&x, &mut joint)?;
        let scale = model.scale();
        let value = self.sign() * (scale.shift + scale.scale * mean);
        Ok(Some((self.to_values(&x), value, scale.scale * joint.variance(0).sqrt())))
    }

    /// From the user's values to the model's coordinates, [−1, 1].
    pub(super) fn coordinates(&self, x: &[f64]) -> Result<Vec<f64>> {
        Ok(self.space.to_unit(x)?.into_iter().map(|u| 2.0 * u - 1.0).collect())
    }

    pub(super) fn to_values(&self, h: &[f64]) -> Vec<f64> {
        let unit: Vec<f64> = h.iter().map(|h| 0.5 * (h + 1.0)).collect();
        self.space.values(&unit)
    }

    /// Learns the value found at a point, which need not have been asked for. A value that is absurdly bad beside the
    /// others, infinity among them, counts as very bad; one that is absurdly good is not believed, and the trial counts
    /// as failed.
    pub fn tell(&mut self, x: &[f64], value: f64) -> Result<()> {
        self.learn(x, value, None)
    }

    /// As [`Optimizer::tell`], with the known noise variance of the value.
    pub fn tell_noisy(&mut self, x: &[f64], value: f64, variance: f64) -> Result<()> {
        self.check_noise(variance, 0)?;
        self.learn(x, value, Some(variance))
    }

    /// What became of a trial as it is kept; rejects what cannot be learned.
    fn outcome(&self, value: f64, variance: Option<f64>) -> Result<Outcome> {
        if value.is_nan() {
            let reason = "the value is NaN; tell it as failed, so that nothing is learned from it".into();
            return Err(Error::Config { field: "value".into(), reason });
        }
        if variance.is_none() && self.settings.known_noise {
            let reason = "the noise of every value is known, so it must be told with it";
            return Err(Error::Unsupported { operation: "tell", reason });
        }
        // The largest number is as bad as infinity, and can be added up.
        let is_bad = value.is_finite() || self.sign() * value < 0.0;
        Ok(if is_bad { Outcome::Value(value.clamp(f64::MIN, f64::MAX)) } else { Outcome::Failed })
    }

    /// Learns all of many trials, or none: those of before, when a search begins with them. A model is fitted once to
    /// all of them instead of led from one to the next, so that a thousand take as long as one fit.
    pub fn tell_all(&mut self, told: &[Trial]) -> Result<()> {
        let (before, count) = (self.clone(), self.results.len());
        let is_new = self.surrogate.is_none() || told.len() >= MADE_ANEW.max(count / 4);
        let done = if is_new { self.learn_anew(told) } else { self.learn_each(told) };
        if done.is_err() {
            *self = before;
        }
        done
    }

    fn learn_each(&mut self, told: &[Trial]) -> Result<()> {
        for (row, Trial { x, outcome, variance }) in told.iter().enumerate() {
            let told = match (outcome, variance) {
                (Outcome::Failed, _) => self.tell_failed(x),
                (Outcome::Value(value), None) => self.tell(x, *value),
                (Outcome::Value(value), Some(variance)) => self.tell_noisy(x, *value, *variance),
            };
            told.map_err(|error| error.in_row(row))?;
        }
        Ok(())
    }

    fn learn_anew(&mut self, told: &[Trial]) -> Result<()> {
        for (row, Trial { x, outcome, variance }) in told.iter().enumerate() {
            self.coordinates(x).map_err(|error| error.in_row(row))?;
            let outcome = match outcome {
                Outcome::Failed => Outcome::Failed,
                Outcome::Value(value) => {
                    variance.map_or(Ok(()), |variance| self.check_noise(variance, row))?;
                    self.outcome(*value, *variance).map_err(|error| error.in_row(row))?
                }
            };
            self.settle(x, outcome, *variance);
        }
        self.review()?;
        if self.surrogate.is_some() {
            let model = SurrogateModel::new(self.space.coordinates(), &self.settings, &self.results)?;
            self.surrogate = Some(Box::new(model));
            return Ok(());
        }
        self.begin()
    }

    fn check_noise(&self, variance: f64, row: usize) -> Result<()> {
        positive("noise", variance, row)?;
        if self.settings.known_noise {
            return Ok(());
        }
        let reason = "this optimizer learns its noise; choose known_noise to give a variance for each value";
        Err(Error::Unsupported { operation: "known noise", reason })
    }

    fn learn(&mut self, x: &[f64], value: f64, variance: Option<f64>) -> Result<()> {
        let h = self.coordinates(x)?;
        let Outcome::Value(value) = self.outcome(value, variance)? else { return self.tell_failed(x) };
        let Some(model) = &mut self.surrogate else {
            self.settle(x, Outcome::Value(value), variance);
            return self.begin();
        };
        let sign = if self.settings.goal == Goal::Maximize { 1.0 } else { -1.0 };
        let Some(seen) = self.plausible.seen(sign * value) else {
            self.settle(x, Outcome::Failed, None);
            return Ok(());
        };
        self.results.push(&h, seen, variance.unwrap_or(1.0));
        match model.observe(&self.settings, &self.results) {
            Ok(Some(prediction)) => self.metrics.record(&prediction, seen),
            Ok(None) => {}
            Err(error) => {
                self.results.pop(self.space.coordinates());
                return Err(error);
            }
        }
        self.settle(x, Outcome::Value(value), variance);
        Ok(())
    }

    /// What went wrong beside the results since the last call, if anything did: a fit, or a change of the model. Every
    /// result that was accepted is learned in spite of it, and what failed is tried again later.
    pub fn take_failure(&mut self) -> Option<Error> {
        let own = self.failure.take();
        let all = own.or_else(|| self.surrogate.as_mut().and_then(|model| model.take_failure()));
        // An interrupt is known to whoever set it.
        all.filter(|failure| *failure != Error::Interrupted)
    }

    /// The number of results from which the first model is made.
    fn initial(&self) -> usize {
        self.settings.initial.unwrap_or(2 * self.space.dim() + 3)
    }

    /// Makes the first model, once the initial design is complete. If that fails, it is tried again with the next
    /// result.
    fn begin(&mut self) -> Result<()> {
        self.review()?;
        if self.results.len() >= self.initial() {
            match SurrogateModel::new(self.space.coordinates(), &self.settings, &self.results) {
                Ok(model) => self.surrogate = Some(Box::new(model)),
                Err(error) => self.failure = Some(error),
            }
        }
        Ok(())
    }

    /// Goes through all trials as a model sees them, measured against those of the initial design. When that is complete,
    /// those of it that cannot be believed become failed ones.
    fn review(&mut self) -> Result<()> {
        let sign = self.sign();
        let value = |trial: &Trial| match trial.outcome {
            Outcome::Value(value) => Some(sign * value),
            Outcome::Failed => None,
        };
        let initial = self.initial();
        let plausible = Plausible::of(self.trials.iter().filter_map(value).take(initial));
        let mut results = Rows::default();
        let (mut count, mut failed) = (0, Vec::new());
        for (i, trial) in self.trials.iter().enumerate() {
            let Some(value) = value(trial) else { continue };
            match plausible.seen(value) {
                Some(seen) => {
                    let h = self.coordinates(&trial.x)?;
                    results.push(&h, seen, trial.variance.unwrap_or(1.0));
                }
                None => failed.push(i),
            }
            count += 1;
        }
        if self.surrogate.is_none() && count >= initial {
            for i in failed {
                self.trials[i].outcome = Outcome::Failed;
            }
        }
        (self.results, self.plausible) = (results, plausible);
        Ok(())
    }

    /// Marks a trial as failed: it gave no value, and is no longer pending.
    pub fn tell_failed(&mut self, x: &[f64]) -> Result<()> {
        self.space.to_unit(x)?;
        self.settle(x, Outcome::Failed, None);
        Ok(())
    }

    fn settle(&mut self, x: &[f64], outcome: Outcome, variance: Option<f64>) {
        let close = |p: &[f64]| p.iter().zip(x).all(|(a, b)| (a - b).abs() <= 1e-9 * (1.0 + b.abs()));
        if let Some(i) = self.pending.iter().position(|p| close(p)) {
            self.pending.remove(i);
        }
        self.trials.push(Trial { x: x.to_vec(), outcome, variance });
    }

    /// Gives up on all pending points, for example after a restart.
    pub fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// Says which points are pending: where several programs search together, those of all.
    pub fn set_pending(&mut self, points: Vec<Vec<f64>>) -> Result<()> {
        points.iter().try_for_each(|x| self.space.to_unit(x).map(|_| ()))?;
        self.pending = points;
        Ok(())
    }

    /// Goes on as if so many points had been asked for. Where several programs with the same seed search together, each
    /// says the number of its trial, so that no two propose the same point for want of results.
    pub fn skip_to(&mut self, asked: u64) {
        self.asked = asked;
    }

    /// Fits the hyperparameters to convergence on everything told so far.
    pub fn refit(&mut self) -> Result<()> {
        match &mut self.surrogate {
            Some(model) => model.converge(&self.settings, &self.results),
            None => Ok(()),
        }
    }
}
