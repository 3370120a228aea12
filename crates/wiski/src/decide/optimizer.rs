//! Ask and tell: Bayesian optimization for thousands of trials.
//!
//! [`Optimizer::ask`] proposes points, [`Optimizer::tell`] takes what was measured there. The first points are a
//! scrambled Sobol design; then a Gaussian process over the box ([`SurrogateModel`]: exact for the first few hundred
//! results; then one grid, or a sum of small ones in many dimensions, in constant time) learns from every result, and
//! a criterion says where to look next. Points that were asked for and not yet told are *pending*: the model takes
//! their predicted mean for granted, so that they are not proposed again.
//!
//! Each result may come with values of constraints and of further objectives ([`Optimizer::tell_trial`]). Every one of them
//! has a model of its own, and the answer is the best point at which all constraints hold, or the front of those.
//!
//! The same seed and the same sequence of calls give the same points. An optimizer can be written to a file and
//! read back ([`crate::persist`]), and goes on to the last bit.

use serde::{Deserialize, Serialize};

use super::merit::log_probability;
use super::pareto;
use super::seen::{Results, View};
use super::space::APART;
use super::{Goal, Incumbent, OptimizerSettings, Outcome, Space, SurrogateModel, Trial};
use crate::error::{Error, Result, finite, length, positive};
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
    /// The models of further objectives, then of slacks of constraints; there when the first is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) beside: Vec<SurrogateModel>,
    /// What went wrong beside the results.
    #[serde(skip)]
    failure: Option<Error>,
    pub(super) trials: Vec<Trial>,
    /// The trials that gave a value, as the models see them.
    #[serde(skip)]
    pub(super) results: Results,
    /// What results are measured against before the models see them.
    #[serde(skip)]
    view: View,
    /// Asked for and not yet told, in the user's values.
    pub(super) pending: Vec<Vec<f64>>,
    /// How many points were asked for: no random number is used twice.
    pub(super) asked: u64,
    metrics: Prequential,
    /// How far apart choices were when the models were made; older files do not say.
    #[serde(default = "corners_of_the_cube")]
    apart: f64,
    /// Words of whoever keeps this optimizer.
    #[serde(default)]
    note: String,
}

restored_after_reading!(Optimizer);

impl Restore for Optimizer {
    fn restore(&mut self) -> Result<()> {
        self.settings.check()?;
        let beside = if self.surrogate.is_some() { self.settings.outputs() - 1 } else { 0 };
        length("models", beside, self.beside.len())?;
        for model in self.models() {
            length("dimensions", self.space.coordinates(), model.dim())?;
        }
        self.pending.iter().try_for_each(|x| self.space.to_unit(x).map(|_| ()))?;
        for trial in &self.trials {
            self.space.to_unit(&trial.x)?;
            self.check_lengths(trial)?;
            trial.values().iter().try_for_each(|value| finite("value", *value, 0))?;
            trial.constraints.iter().try_for_each(|value| finite("constraint", *value, 0))?;
            trial.variance.map_or(Ok(()), |variance| positive("noise", variance, 0))?;
        }
        self.review()?;
        let is_old = self.apart.to_bits() != APART.to_bits() && self.space.has_choices();
        self.apart = APART;
        if is_old && self.surrogate.is_some() {
            // What the models have learned lies elsewhere now. Without them a search goes on as after its initial design.
            (self.surrogate, self.beside) = (None, Vec::new());
            self.failure = self.make_models().err();
        }
        Ok(())
    }
}

/// Where choices lay before a file said how far they are apart.
fn corners_of_the_cube() -> f64 {
    1.0
}

/// From so many results at once, and a quarter of those before, a model is made anew instead of led from one to the next.
const MADE_ANEW: usize = 16;

impl Optimizer {
    /// An optimizer that has seen nothing yet.
    pub fn new(space: Space, settings: OptimizerSettings) -> Result<Self> {
        settings.check()?;
        Ok(Self {
            surrogate: None,
            beside: Vec::new(),
            failure: None,
            trials: Vec::new(),
            results: Results::new(settings.outputs()),
            view: View::default(),
            pending: Vec::new(),
            asked: 0,
            metrics: Prequential::default(),
            apart: APART,
            note: String::new(),
            space,
            settings,
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

    /// The models of all objectives and constraints; none before the initial design is complete.
    pub(super) fn models(&self) -> impl Iterator<Item = &SurrogateModel> {
        self.surrogate.as_deref().into_iter().chain(&self.beside)
    }

    /// What the model says about a point, in the user's values; `None` before the initial design is complete. In
    /// more than four dimensions the model covers a box around the best point, and others are rejected.
    pub fn predict(&self, x: &[f64]) -> Result<Option<Prediction>> {
        let (h, sign) = (self.coordinates(x)?, self.settings.goal.sign());
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

    /// The probability that every constraint holds at a point; `None` before the initial design is complete.
    pub fn feasibility(&self, x: &[f64]) -> Result<Option<f64>> {
        let h = self.coordinates(x)?;
        if self.surrogate.is_none() {
            return Ok(None);
        }
        let (mut log, mut joint) = (0.0, Joint::default());
        for model in self.models().skip(self.settings.objectives()) {
            model.posterior()?.surrogate().predict(&h, &mut joint)?;
            log += log_probability(&joint, no_slack(model)).0;
        }
        Ok(Some(log.exp()))
    }

    /// The trial with the best value measured, of those at which every constraint holds. With noise that may have been
    /// luck: see [`Optimizer::recommend`]. There is none of several objectives: see [`Optimizer::front`].
    pub fn best(&self) -> Option<&Trial> {
        if !self.settings.further.is_empty() {
            return None;
        }
        let sign = self.settings.goal.sign();
        let value = |t: &Trial| t.values().first().map_or(f64::NEG_INFINITY, |y| sign * y);
        self.trials.iter().filter(|t| t.is_feasible()).max_by(|a, b| value(a).total_cmp(&value(b)))
    }

    /// The trials that no other surpasses (as good in every objective and better in one), of those at which every
    /// constraint holds, in the order told. With one objective, those with the best value.
    pub fn front(&self) -> Vec<&Trial> {
        let feasible: Vec<&Trial> = self.trials.iter().filter(|trial| trial.is_feasible()).collect();
        let signed = |trial: &&Trial| -> Vec<f64> {
            trial.values().iter().zip(self.settings.goals()).map(|(y, goal)| goal.sign() * y).collect()
        };
        let values: Vec<Vec<f64>> = feasible.iter().map(signed).collect();
        pareto::front(&values).into_iter().map(|i| feasible[i]).collect()
    }

    /// The tried point with the best predicted value, of those at which every constraint was found to hold, and that value
    /// with its uncertainty: what to use in the end when measurements are noisy. `None` before the initial design is
    /// complete, and for several objectives.
    pub fn recommend(&self) -> Result<Option<(Vec<f64>, f64, f64)>> {
        let Some(model) = self.surrogate.as_ref().filter(|_| self.settings.further.is_empty()) else {
            return Ok(None);
        };
        let posterior = model.posterior()?;
        let places = if self.settings.constraints.is_empty() {
            model.covered(self.results.first())
        } else {
            self.results.feasible_places()
        };
        let Some((x, mean)) = Incumbent::among(posterior.surrogate(), &places)?.place else {
            return Ok(None);
        };
        let mut joint = Joint::default();
        posterior.surrogate().predict(&x, &mut joint)?;
        let scale = model.scale();
        let value = self.settings.goal.sign() * (scale.shift + scale.scale * mean);
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
        self.tell_trial(&Trial::new(x, value))
    }

    /// As [`Optimizer::tell`], with the known noise variance of the value.
    pub fn tell_noisy(&mut self, x: &[f64], value: f64, variance: f64) -> Result<()> {
        self.tell_trial(&Trial::new(x, value).with_noise(variance))
    }

    /// Marks a trial as failed: it gave no value, and is no longer pending.
    pub fn tell_failed(&mut self, x: &[f64]) -> Result<()> {
        self.tell_trial(&Trial::failed(x))
    }

    /// As [`Optimizer::tell`], with the values of further objectives and of constraints.
    pub fn tell_trial(&mut self, told: &Trial) -> Result<()> {
        let h = self.coordinates(&told.x)?;
        let trial = self.checked(told)?;
        if trial.outcome == Outcome::Failed {
            self.settle(trial);
            return Ok(());
        }
        if self.surrogate.is_none() {
            self.settle(trial);
            return self.begin();
        }
        let Some(seen) = self.view.seen(&trial) else {
            self.settle(Trial::failed(trial.x));
            return Ok(());
        };
        self.results.push(&h, &seen, trial.variance);
        // One of several models may reject what others have learned.
        let before = (!self.beside.is_empty()).then(|| (self.surrogate.clone(), self.beside.clone()));
        match self.observe() {
            Ok(Some(prediction)) => self.metrics.record(&prediction, seen.outputs[0]),
            Ok(None) => {}
            Err(error) => {
                if let Some(before) = before {
                    (self.surrogate, self.beside) = before;
                }
                self.results.pop(self.space.coordinates());
                return Err(error);
            }
        }
        self.settle(trial);
        Ok(())
    }

    /// Lets every model learn the last result; what that of the first objective had predicted.
    fn observe(&mut self) -> Result<Option<Prediction>> {
        for (k, model) in self.beside.iter_mut().enumerate() {
            model.observe(&self.settings.of_output(k + 1), self.results.of(k + 1))?;
        }
        match &mut self.surrogate {
            Some(model) => model.observe(&self.settings.of_output(0), self.results.first()),
            None => Ok(None),
        }
    }

    /// A trial as it is kept; rejects what cannot be learned.
    fn checked(&self, told: &Trial) -> Result<Trial> {
        self.check_lengths(told)?;
        if told.outcome == Outcome::Failed {
            return Ok(Trial::failed(told.x.as_slice()));
        }
        let values = told.values();
        if values.iter().chain(&told.constraints).any(|value| value.is_nan()) {
            let reason = "the value is NaN; tell it as failed, so that nothing is learned from it".into();
            return Err(Error::Config { field: "value".into(), reason });
        }
        match told.variance {
            Some(variance) => self.check_noise(variance)?,
            None if self.settings.known_noise => {
                let reason = "the noise of every value is known, so it must be told with it";
                return Err(Error::Unsupported { operation: "tell", reason });
            }
            None => {}
        }
        let is_good = |(value, sign): (&f64, f64)| value.is_infinite() && sign * value > 0.0;
        if values.iter().zip(self.settings.goals().map(Goal::sign)).any(is_good) {
            return Ok(Trial::failed(told.x.as_slice()));
        }
        // The largest number is as bad as infinity, and can be added up.
        let number = |value: f64| value.clamp(f64::MIN, f64::MAX);
        let all = |values: &[f64]| values.iter().map(|value| number(*value)).collect::<Vec<f64>>();
        let trial = Trial::new(told.x.as_slice(), number(values[0]));
        let trial = trial.with_further(all(&told.further)).with_constraints(all(&told.constraints));
        Ok(Trial { variance: told.variance, ..trial })
    }

    /// Whether a trial has as many values as there are objectives and constraints.
    fn check_lengths(&self, trial: &Trial) -> Result<()> {
        let has = |count: usize| if trial.outcome == Outcome::Failed { 0 } else { count };
        let (further, constraints) = (self.settings.further.len(), self.settings.constraints.len());
        length("values of further objectives", has(further), trial.further.len())?;
        length("constraints", has(constraints), trial.constraints.len())
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
        let mut rows = told.iter().enumerate();
        rows.try_for_each(|(row, trial)| self.tell_trial(trial).map_err(|error| error.in_row(row)))
    }

    fn learn_anew(&mut self, told: &[Trial]) -> Result<()> {
        for (row, trial) in told.iter().enumerate() {
            let checked = self.coordinates(&trial.x).and_then(|_| self.checked(trial));
            self.settle(checked.map_err(|error| error.in_row(row))?);
        }
        self.review()?;
        if self.surrogate.is_some() {
            return self.make_models();
        }
        self.begin()
    }

    fn check_noise(&self, variance: f64) -> Result<()> {
        positive("noise", variance, 0)?;
        if self.settings.known_noise {
            return Ok(());
        }
        let reason = "this optimizer learns its noise; choose known_noise to give a variance for each value";
        Err(Error::Unsupported { operation: "known noise", reason })
    }

    /// What went wrong beside the results since the last call, if anything did: a fit, or a change of the model. Every
    /// result that was accepted is learned in spite of it, and what failed is tried again later.
    pub fn take_failure(&mut self) -> Option<Error> {
        let own = self.failure.take();
        let models = self.surrogate.as_deref_mut().into_iter().chain(&mut self.beside);
        // Every one is taken, so that none is reported late.
        let all =
            own.into_iter().chain(models.filter_map(SurrogateModel::take_failure)).reduce(|first, _| first);
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
            self.failure = self.make_models().err();
        }
        Ok(())
    }

    /// Makes the models of all objectives and constraints from the results, or none.
    fn make_models(&mut self) -> Result<()> {
        let new = |output: usize| {
            let settings = self.settings.of_output(output);
            SurrogateModel::new(self.space.coordinates(), &settings, self.results.of(output))
        };
        let first = new(0)?;
        let beside = (1..self.settings.outputs()).map(new).collect::<Result<_>>()?;
        (self.surrogate, self.beside) = (Some(Box::new(first)), beside);
        Ok(())
    }

    /// Goes through all trials as models see them, measured against those of the initial design. When that is complete,
    /// those of it that cannot be believed become failed ones.
    fn review(&mut self) -> Result<()> {
        let initial = self.initial();
        let view = View::of(&self.settings, &self.trials, initial);
        let mut results = Results::new(self.settings.outputs());
        let (mut count, mut failed) = (0, Vec::new());
        for (i, trial) in self.trials.iter().enumerate() {
            if trial.outcome == Outcome::Failed {
                continue;
            }
            match view.seen(trial) {
                Some(seen) => results.push(&self.coordinates(&trial.x)?, &seen, trial.variance),
                None => failed.push(i),
            }
            count += 1;
        }
        if self.surrogate.is_none() && count >= initial {
            for i in failed {
                self.trials[i] = Trial::failed(std::mem::take(&mut self.trials[i].x));
            }
        }
        (self.results, self.view) = (results, view);
        Ok(())
    }

    /// Keeps a trial, which is no longer pending.
    fn settle(&mut self, trial: Trial) {
        let x = &trial.x;
        let close = |p: &[f64]| p.iter().zip(x).all(|(a, b)| (a - b).abs() <= 1e-9 * (1.0 + b.abs()));
        if let Some(i) = self.pending.iter().position(|p| close(p)) {
            self.pending.remove(i);
        }
        self.trials.push(trial);
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
        for (k, model) in self.surrogate.as_deref_mut().into_iter().chain(&mut self.beside).enumerate() {
            model.converge(&self.settings.of_output(k), self.results.of(k))?;
        }
        Ok(())
    }
}

/// The standardized value of no slack, from which on a constraint holds.
pub(super) fn no_slack(model: &SurrogateModel) -> f64 {
    let scale = model.scale();
    -scale.shift / scale.scale
}
