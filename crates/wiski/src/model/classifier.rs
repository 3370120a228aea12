//! Online classification on raw rows: one Gaussian process for each class, on shared features.
//!
//! Each row is encoded once; every class predicts its latent value, then learns its target with its known
//! noise (see [`internals::likelihood`](crate::internals::likelihood)) times a factor σ² ≥ 1, and with hyperparameters of its own, in constant time
//! and memory: C classes cost C times one process. The likelihood takes labels for what they are: where rows alike have
//! different labels, targets scatter by several times the noise that it says (by 3 where one of two labels comes up in two
//! rows of three), and with σ² = 1 the evidence explains that by functions that are not there. So the factor is learned;
//! [`NoiseModel::Known`](super::NoiseModel::Known) keeps it at 1, as the paper has it. Probabilities are the softmax averaged over the latent values. What happens to a
//! row is told in `learner`, what happens along a stream in `online`.

use serde::Serialize;

use super::classification::{ClassPrediction, ClassSnapshot, Classification, check_features};
use super::labels::{Classes, Labels};
use super::metrics::PrequentialClasses;
use super::missing::averaged_each;
use super::online::{Online, check_row};
use super::regression::restored_controller;
use super::settings::{Schedule, Settings};
use super::{Outcome, Wiski};
use crate::conformal::{Conformal, Horizon};
use crate::error::{Error, Result, length, positive};

/// An online Gaussian process classifier on raw rows.
///
/// Of the [`Settings`], those about targets have no meaning here: the likelihood sets them, and the least noise. The
/// start kernel, if none is given, has the variance of the targets. Inducing points of many columns are learned by the
/// sum of all classes' evidences; directions and projections from the evidence of one of two classes (the other has
/// nearly mirrored targets). Along the stream a projection follows the sum over all classes of the predictive log
/// densities. Probabilities are raised to a power that keeps classes as surprising as they say, learned along the stream.
///
/// ```
/// use wiski::{Classes, OnlineClassifier, Settings};
///
/// let mut model = OnlineClassifier::new(1, Classes::discovered(), Settings::default())?;
/// for i in 0..200 {
///     let x = (i as f64 * 0.618).fract() * 50.0;
///     model.step(&[x], if x < 20.0 { "low" } else { "high" })?;
/// }
/// assert_eq!(model.classes(), ["high", "low"]);
/// assert_eq!(model.predict(&[5.0])?.label, "low");
/// assert!(model.predict(&[40.0])?.probabilities[0] > 0.9);
/// assert!(model.observe(&[1.0], "medium").is_err());
/// # Ok::<(), wiski::Error>(())
/// ```
#[derive(Debug, Clone, Serialize)]
pub struct OnlineClassifier {
    pub(super) online: Online<Classification>,
    metrics: PrequentialClasses,
}

super::stream::stream_methods!(OnlineClassifier, PrequentialClasses, ClassSnapshot);

impl OnlineClassifier {
    /// The parts of a model that a file held.
    pub(super) fn restored(mut online: Online<Classification>, metrics: &PrequentialClasses) -> Result<Self> {
        online.task.count_classes();
        let count = online.task.count();
        let is_class = |c: f64| c >= 0.0 && c < count as f64 && c.fract() == 0.0;
        let in_memory = online.memory.rows.y.iter().all(|&c| is_class(c));
        if !in_memory || !online.sample.iter().all(|sample| sample.targets().all(is_class)) {
            return Err(Error::Config { field: "classes".into(), reason: "a row has no class".into() });
        }
        if let Some(learner) = &online.learner {
            length("classes", count, learner.processes().len())?;
        }
        let wanted = online.settings.intervals.controller(true)?;
        online.task.conformal = restored_controller(online.task.conformal.take(), wanted);
        online.restore()?;
        Ok(Self { online, metrics: *metrics })
    }

    /// A classifier of rows with `input_dim` columns.
    pub fn new(input_dim: usize, classes: Classes, settings: Settings) -> Result<Self> {
        settings.check_axes(input_dim)?;
        let mut task = Classification::new(Labels::new(classes)?);
        let settings = settings.resolved(input_dim);
        task.conformal = settings.intervals.controller(true)?;
        check_features(&settings, task.count())?;
        Ok(Self { online: Online::new(input_dim, task, settings)?, metrics: PrequentialClasses::default() })
    }

    /// The labels known so far, in the order of all class figures. While classes are discovered in the warm-up
    /// the order is alphabetical; classes added later stand at the end.
    pub fn classes(&self) -> &[String] {
        self.online.task.labels.names()
    }

    /// The Gaussian process of a class on the grid, once the warm-up is over. Its targets are those of
    /// [`Dirichlet`](crate::likelihood::Dirichlet), its σ² is the factor of their noise.
    pub fn model(&self, class: usize) -> Option<&Wiski> {
        self.online.learner.as_ref().and_then(|l| l.process(class))
    }

    /// What the model says about a row now. During the warm-up that is how frequent each class was, with one
    /// imagined row of each.
    pub fn predict(&self, x: &[f64]) -> Result<ClassPrediction> {
        let (rows, task) = (self.online.completed(x)?, &self.online.task);
        if rows.is_empty() {
            check_row(x, self.input_dim())?;
        }
        if self.is_ready() {
            let all = rows.iter().map(|x| self.online.predict_all(x)).collect::<Result<Vec<_>>>()?;
            let latents = if all.is_empty() { self.online.predict_all(x)? } else { averaged_each(&all) };
            return Ok(task.prediction(&latents));
        }
        if task.count() == 0 {
            let reason = "the model knows no class yet";
            return Err(Error::Unsupported { operation: "prediction", reason });
        }
        let mut counts = vec![1.0; task.count()];
        self.online.memory.rows.y.iter().for_each(|&c| counts[c as usize] += 1.0);
        let total: f64 = counts.iter().sum();
        counts.iter_mut().for_each(|p| *p /= total);
        Ok(ClassPrediction::from_probabilities(counts, Vec::new(), Vec::new(), task.labels.names()))
    }

    /// The labels of the set that holds the class of a row with the probability `level`, from the likeliest. Along the
    /// stream it is kept so that the share of classes inside stays at the level (or above, since a set has at least the
    /// likeliest class), whatever the data do ([`internals::conformal`](crate::internals::conformal)); it is promised for the row that comes next. With
    /// [`IntervalKind::Gaussian`](super::IntervalKind::Gaussian) it has the fewest classes whose probabilities sum to the
    /// level.
    ///
    /// ```
    /// # use wiski::{Classes, OnlineClassifier, Settings};
    /// # let mut model = OnlineClassifier::new(1, Classes::discovered(), Settings::default())?;
    /// for i in 0..400 {
    ///     let x = (i as f64 * 0.618).fract() * 50.0;
    ///     model.step(&[x], if x < 20.0 { "low" } else { "high" })?;
    /// }
    /// assert_eq!(model.predict_set(&[5.0], 0.95)?, ["low"]);
    /// # Ok::<(), wiski::Error>(())
    /// ```
    pub fn predict_set(&self, x: &[f64], level: f64) -> Result<Vec<String>> {
        let set = self.set(&self.predict(x)?, level, Horizon::Next)?;
        Ok(set.into_iter().map(|class| self.classes()[class].clone()).collect())
    }

    /// The numbers of the classes in the set around a prediction of this model, from the likeliest. With
    /// [`Horizon::Last`], for what [`OnlineClassifier::step`] returned: the set that was promised before that row was
    /// seen. With [`Horizon::Ahead`], for rows further ahead or elsewhere.
    pub fn set(&self, prediction: &ClassPrediction, level: f64, horizon: Horizon) -> Result<Vec<usize>> {
        let empty = self.settings().intervals.empty_sets;
        self.online.task.set(prediction, level, horizon, empty)
    }

    /// What keeps sets of classes at their level; `None` if they are those that probabilities say.
    pub fn conformal(&self) -> Option<&Conformal> {
        self.online.task.conformal.as_ref()
    }

    /// Learns a row. Other than [`OnlineClassifier::step`] it makes no prediction, and so says nothing to the controller
    /// of sets.
    pub fn observe(&mut self, x: &[f64], label: &str) -> Result<Outcome> {
        self.learn(x, label, 1.0, None)
    }

    /// Learns a row that was observed at the given time; times must not decrease.
    pub fn observe_at(&mut self, x: &[f64], label: &str, time: f64) -> Result<Outcome> {
        self.learn(x, label, 1.0, Some(time))
    }

    /// Predicts a row, then learns it, and takes the prediction into the running figures. `None` during the
    /// warm-up.
    pub fn step(&mut self, x: &[f64], label: &str) -> Result<Option<ClassPrediction>> {
        self.step_with(x, label, None)
    }

    /// As [`OnlineClassifier::step`], with the time of the row.
    pub fn step_with(
        &mut self,
        x: &[f64],
        label: &str,
        time: Option<f64>,
    ) -> Result<Option<ClassPrediction>> {
        self.step_weighted(x, label, 1.0, time)
    }

    /// As [`OnlineClassifier::step_with`], for a row that counts `weight` times.
    pub fn step_weighted(
        &mut self,
        x: &[f64],
        label: &str,
        weight: f64,
        time: Option<f64>,
    ) -> Result<Option<ClassPrediction>> {
        positive("weight", weight, 0)?;
        // A class that comes up for the first time is predicted by those before it.
        let is_new = self.is_ready() && !self.classes().iter().any(|known| known == label);
        let before = if is_new { Some(self.predict(x)?) } else { None };
        // A search may change how sure the model is; this row was predicted before.
        let sharpness = self.online.task.sharpness;
        self.learn(x, label, weight.recip(), time)?;
        let (said, task) = (self.online.said(), &self.online.task);
        let prediction = match before {
            None if said.is_empty() => return Ok(None),
            None => ClassPrediction::from_latents(said, &task.softmax, sharpness, task.labels.names()),
            Some(prediction) => prediction,
        };
        let class = self.classes()[..prediction.probabilities.len()].iter().position(|n| n == label);
        self.metrics.record(&prediction.probabilities, prediction.best, class);
        self.calibrate(&prediction, class)?;
        Ok(Some(prediction))
    }

    /// Takes note of how surprising a class was, which was not known if there is none.
    fn calibrate(&mut self, said: &ClassPrediction, class: Option<usize>) -> Result<()> {
        if let Some(class) = class.filter(|_| self.settings().schedule != Schedule::Off) {
            self.online.task.sharpness.observe(&said.probabilities, class);
        }
        let (level, empty) = (self.settings().intervals.level, self.settings().intervals.empty_sets);
        let set = self.set(said, level, Horizon::Next)?;
        self.metrics.record_set(class.is_some_and(|class| set.contains(&class)), set.len());
        if let Some(conformal) = &mut self.online.task.conformal {
            let surprise = class.map_or(f64::INFINITY, |class| -said.probabilities[class].ln());
            conformal.observe_set(surprise, !empty && class == Some(said.best));
        }
        Ok(())
    }

    /// Learns many rows, given row after row; stops at the first that is rejected and says which.
    pub fn observe_batch(&mut self, x: &[f64], labels: &[impl AsRef<str>]) -> Result<()> {
        length("x", labels.len() * self.input_dim(), x.len())?;
        for (row, (x, label)) in x.chunks_exact(self.input_dim()).zip(labels).enumerate() {
            self.observe(x, label.as_ref()).map_err(|error| error.in_row(row))?;
        }
        Ok(())
    }

    /// The class probabilities of many rows: one row of C numbers for each.
    pub fn predict_batch(&self, x: &[f64], probabilities: &mut [f64]) -> Result<()> {
        let (count, dim) = (self.classes().len(), self.input_dim());
        let rows = x.len() / dim;
        length("x", rows * dim, x.len())?;
        length("probabilities", rows * count, probabilities.len())?;
        let snapshot = if rows >= 64 { self.snapshot() } else { None };
        for (row, x) in x.chunks_exact(dim).enumerate() {
            let p = match &snapshot {
                Some(s) => s.predict(x).or_else(|_| self.predict(x)),
                None => self.predict(x),
            };
            let p = p.map_err(|error| error.in_row(row))?;
            probabilities[row * count..(row + 1) * count].copy_from_slice(&p.probabilities);
        }
        Ok(())
    }

    /// Learns a row, wholly or not at all; one with a new label only if the label can become a class.
    fn learn(&mut self, x: &[f64], label: &str, noise: f64, time: Option<f64>) -> Result<Outcome> {
        let rows = self.online.completed(x)?;
        check_row(rows.first().map_or(x, Vec::as_slice), self.input_dim())?;
        let online = &mut self.online;
        if let Some(class) = online.task.labels.index(label, online.learner.is_none())? {
            return online.learn(x, class as f64, noise, time);
        }
        let before = (online.task.clone(), online.learner.clone(), online.memory.rows.y.clone());
        let corrections = online.corrections.clone();
        // It does not know the class.
        online.successor = None;
        let learned = match &mut online.learner {
            Some(learner) => {
                let added = learner.admit(rows.first().map_or(x, Vec::as_slice), &online.settings);
                added.and_then(|_| online.task.add_class(label, learner, &online.settings))
            }
            None => Ok(()),
        };
        let class = if online.learner.is_some() {
            online.task.count().saturating_sub(1)
        } else {
            // Discovered labels stand in alphabetical order.
            let class = online.task.labels.add(label, true);
            let moved = online.memory.rows.y.iter_mut().filter(|c| **c >= class as f64);
            moved.for_each(|c| *c += 1.0);
            online.task.count_classes();
            class
        };
        online.extend_corrections();
        let learned = learned.and_then(|()| online.learn(x, class as f64, noise, time));
        if learned.is_ok() {
            online.publish_to_readers();
        } else {
            (online.task, online.learner, online.memory.rows.y) = before;
            online.corrections = corrections;
        }
        learned
    }

    /// Ends the warm-up with the rows seen so far: chooses the scaling, fits the hyperparameters of each class.
    pub fn finish_warm_up(&mut self) -> Result<()> {
        self.online.finish_warm_up()
    }

    /// Ends a stream: learns features anew from the rows that are still in memory, if there are more of them than at the
    /// last search. Further rows can be learned as before.
    pub fn finish_search(&mut self) -> Result<()> {
        self.online.finish_search()
    }

    /// Waits for the search or refit that runs beside the stream, if one does, and lets what it found catch up with so many
    /// of the rows that came meanwhile; with all of them, it takes over. Each further row lets it catch up with a few
    /// ([`Upkeep::OnRequest`](super::Upkeep::OnRequest)).
    pub fn attend_upkeep(&mut self, rows: usize) {
        self.online.attend_upkeep(rows);
    }

    /// A model with the same scales, features and hyperparameters that has learned nothing: for fitting parts
    /// of a stream apart and merging them. Needs features that no longer change.
    pub fn shard(&self) -> Result<Self> {
        Ok(Self { online: self.online.shard()?, metrics: PrequentialClasses::default() })
    }

    /// Un-learns a row that was learned before with the same label. Exact; rejected while the feature map still
    /// changes.
    pub fn forget(&mut self, x: &[f64], label: &str) -> Result<()> {
        self.forget_weighted(x, label, 1.0)
    }

    /// As [`OnlineClassifier::forget`], for a row that counted `weight` times.
    pub fn forget_weighted(&mut self, x: &[f64], label: &str, weight: f64) -> Result<()> {
        positive("weight", weight, 0)?;
        let Some(class) = self.classes().iter().position(|n| n == label) else {
            return Err(Error::UnknownLabel { label: label.into(), known: self.classes().to_vec(), row: 0 });
        };
        self.online.forget(x, class as f64, weight.recip())
    }

    /// The model as it would be after hypothetical rows, given one after the other. Scales, features and
    /// hyperparameters stay as they are; this model does not change.
    pub fn conditioned(&self, x: &[f64], labels: &[impl AsRef<str>]) -> Result<Self> {
        let class = |label: &str| match self.classes().iter().position(|n| n == label) {
            Some(class) => Ok(class as f64),
            None => Err(Error::UnknownLabel { label: label.into(), known: self.classes().to_vec(), row: 0 }),
        };
        let y = labels.iter().map(|label| class(label.as_ref())).collect::<Result<Vec<f64>>>()?;
        Ok(Self { online: self.online.conditioned(x, &y, None)?, metrics: self.metrics })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::likelihood::{Dirichlet, Target};
    use crate::model::Features;

    fn row(i: usize) -> ([f64; 3], &'static str) {
        let x = [0.618_034, 0.414_214, 0.732_051].map(|a: f64| 2.0 * (a * (i + 1) as f64).fract() - 1.0);
        (
            x,
            if x[0] * x[1] + 0.3 * x[2] > 0.1 {
                "in"
            } else if x[2] > 0.5 {
                "above"
            } else {
                "out"
            },
        )
    }

    /// A row taken out of the posterior at its place is a row un-learned: on grids, and with inducing points, which leave
    /// something that was never learned.
    #[test]
    fn what_is_said_without_a_row_is_what_is_said_once_it_is_forgotten() {
        for features in [Features::Additive { directions: None }, Features::Points { count: Some(20) }] {
            let settings = Settings { features: features.clone(), warm_up: Some(80), ..Settings::default() };
            let mut model = OnlineClassifier::new(3, Classes::discovered(), settings).unwrap();
            (0..90).for_each(|i| model.observe(&row(i).0, row(i).1).map(|_| ()).unwrap());
            model.finish_search().unwrap();
            model.freeze_features().unwrap();
            let has_points = model.model(0).unwrap().stats().lattice().points().is_some();
            assert_eq!(has_points, matches!(features, Features::Points { .. }));
            for i in [3, 40, 85] {
                let (x, label) = row(i);
                let likelihood = Dirichlet::new(3);
                let own = |class: &String| likelihood.target(class == label);
                let targets: Vec<Target> = model.classes().iter().map(own).collect();
                let said = model.online.ready("test").unwrap().predict_without(&x, &targets).unwrap();
                let mut without = model.clone();
                without.forget(&x, label).unwrap();
                let wanted = without.predict(&x).unwrap();
                for c in 0..3 {
                    // 1/v − 1/d loses what v and d have in common: a few digits.
                    assert!((said[c].mean - wanted.means[c]).abs() < 1e-8 * (1.0 + wanted.means[c].abs()));
                    assert!((said[c].variance / wanted.variances[c] - 1.0).abs() < 1e-8);
                }
            }
        }
    }
}
