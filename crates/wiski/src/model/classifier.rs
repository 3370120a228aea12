//! Online classification on raw rows: one Gaussian process for each class, on shared features.
//!
//! The first rows are kept until there are enough to start from (the warm-up); after that no row is kept. Each
//! further row is encoded once; every class predicts its latent value, then learns its target with its known
//! noise (see [`crate::likelihood`]), in constant time and memory. Probabilities are the softmax averaged over
//! the latent values.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::encoder::{Encoder, FixedEncoder};
use super::labels::{Classes, Labels, Unseen};
use super::metrics::PrequentialClasses;
use super::processes::{LabelledRows, Processes};
use super::settings::{Features, Settings};
use super::stream::{self, Published, Reader};
use super::{Outcome, Wiski};
use crate::error::{Error, Result, finite, length};
use crate::learn::Choice;
use crate::likelihood::Softmax;
use crate::posterior::{Prediction, Predictor};
use crate::saved::{Restore, restored_after_reading};

/// More classes than this, and fewer than two rows for each, are no classes.
const MANY_CLASSES: usize = 20;

/// What a classifier says about a row. Classes stand in the order of [`OnlineClassifier::classes`].
#[derive(Debug, Clone, PartialEq)]
pub struct ClassPrediction {
    /// The probability of each class; they sum to one.
    pub probabilities: Vec<f64>,
    /// The number of the likeliest class.
    pub best: usize,
    /// The label of the likeliest class.
    pub label: String,
    /// The posterior mean of each class's latent function; 0 is what the prior says. Empty during the warm-up.
    pub means: Vec<f64>,
    /// The posterior variance of each class's latent function. Empty during the warm-up.
    pub variances: Vec<f64>,
}

impl ClassPrediction {
    fn from_latents(latents: &[Prediction], softmax: &Softmax, labels: &[String]) -> Self {
        let (means, variances): (Vec<f64>, Vec<f64>) = latents.iter().map(|p| (p.mean, p.variance)).unzip();
        let mut probabilities = vec![0.0; means.len()];
        softmax.probabilities(&means, &variances, &mut Vec::new(), &mut probabilities);
        Self::from_probabilities(probabilities, means, variances, labels)
    }

    fn from_probabilities(
        probabilities: Vec<f64>,
        means: Vec<f64>,
        variances: Vec<f64>,
        labels: &[String],
    ) -> Self {
        let likelier = |best: usize, c: usize| if probabilities[c] > probabilities[best] { c } else { best };
        let best = (0..probabilities.len()).fold(0, likelier);
        Self { best, label: labels[best].clone(), probabilities, means, variances }
    }
}

/// An online Gaussian process classifier on raw rows.
///
/// Of the [`Settings`], those about targets and noise have no meaning here: the likelihood sets both. The
/// start kernel, if none is given, has the variance of the targets. Learned features are for two classes: the
/// warm-up learns the map from the evidence of the second class (the first has nearly mirrored targets); along
/// the stream the map follows the sum over all classes of the predictive log densities. With more than two
/// classes at the end of the warm-up they are refused.
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
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct OnlineClassifier {
    settings: Settings,
    input_dim: usize,
    labels: Labels,
    warm_up: LabelledRows,
    running: Option<Box<Processes>>,
    #[serde(skip, default = "no_classes")]
    softmax: Arc<Softmax>,
    metrics: PrequentialClasses,
    /// Rows off the grid of which nothing was learned.
    #[serde(default)]
    ignored: u64,
    #[serde(skip)]
    published: Published<ClassSnapshot>,
}

restored_after_reading!(OnlineClassifier);

fn no_classes() -> Arc<Softmax> {
    Arc::new(Softmax::new(0))
}

impl Restore for OnlineClassifier {
    fn restore(&mut self) -> Result<()> {
        self.settings.check(self.input_dim)?;
        let count = self.classes().len();
        length("warm-up rows", self.warm_up.classes.len() * self.input_dim, self.warm_up.x.len())?;
        if self.warm_up.classes.iter().any(|&c| c >= count) {
            return Err(Error::Config { field: "classes".into(), reason: "a row has no class".into() });
        }
        if let Some(running) = &self.running {
            length("columns", self.input_dim, running.encoder.map().input_dim())?;
            length("classes", count, running.class_count())?;
        }
        self.softmax = Arc::new(Softmax::new(count));
        self.publish();
        Ok(())
    }
}

impl OnlineClassifier {
    /// A classifier of rows with `input_dim` columns.
    pub fn new(input_dim: usize, classes: Classes, settings: Settings) -> Result<Self> {
        let settings = settings.resolved(input_dim);
        settings.check(input_dim)?;
        let labels = Labels::new(classes)?;
        if settings.features != Features::Identity && labels.names().len() > 2 {
            let reason = "the warm-up learns features from the contrast of exactly two classes";
            return Err(Error::Unsupported { operation: "learning features of classes", reason });
        }
        Ok(Self {
            settings,
            input_dim,
            softmax: Arc::new(Softmax::new(labels.names().len())),
            labels,
            warm_up: LabelledRows::default(),
            running: None,
            metrics: PrequentialClasses::default(),
            ignored: 0,
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

    /// The labels known so far, in the order of all class figures. While classes are discovered in the warm-up
    /// the order is alphabetical; classes added later stand at the end.
    pub fn classes(&self) -> &[String] {
        self.labels.names()
    }

    /// Whether the warm-up is over.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The sum of the weights of the rows learned: their number, unless old ones fade.
    pub fn count(&self) -> f64 {
        self.running.as_ref().map_or(self.warm_up.classes.len() as f64, |r| r.count())
    }

    /// Running figures of the predictions made by [`OnlineClassifier::step`] after the warm-up.
    pub fn metrics(&self) -> &PrequentialClasses {
        &self.metrics
    }

    /// How many rows of [`OnlineClassifier::step`] lay off the grid, so that nothing was learned of them
    /// ([`OffGrid::Prior`](super::OffGrid::Prior)), since the warm-up.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// The Gaussian process of a class on the grid, once the warm-up is over. Its targets are those of
    /// [`Dirichlet`](crate::likelihood::Dirichlet), its σ² is 1.
    pub fn model(&self, class: usize) -> Option<&Wiski> {
        self.running.as_ref().and_then(|r| r.model(class))
    }

    /// Scaling and feature map, once the warm-up is over.
    pub fn encoder(&self) -> Option<&Encoder> {
        self.running.as_ref().map(|r| &r.encoder)
    }

    /// Which projection was chosen, if one was.
    pub fn choice(&self) -> Option<&Choice> {
        self.running.as_ref().and_then(|r| r.choice.as_ref())
    }

    /// How often the hyperparameters were refitted since the warm-up.
    pub fn refits(&self) -> usize {
        self.running.as_ref().map_or(0, |r| r.refits())
    }

    /// What the model says about a row now. During the warm-up that is how frequent each class was, with one
    /// imagined row of each.
    pub fn predict(&mut self, x: &[f64]) -> Result<ClassPrediction> {
        stream::check_row(x, self.input_dim)?;
        let names = self.labels.names();
        let Some(running) = &mut self.running else {
            if names.is_empty() {
                let reason = "the model knows no class yet";
                return Err(Error::Unsupported { operation: "prediction", reason });
            }
            let mut counts = vec![1.0; names.len()];
            self.warm_up.classes.iter().for_each(|&c| counts[c] += 1.0);
            let total: f64 = counts.iter().sum();
            counts.iter_mut().for_each(|p| *p /= total);
            return Ok(ClassPrediction::from_probabilities(counts, Vec::new(), Vec::new(), names));
        };
        Ok(ClassPrediction::from_latents(&running.predict(x)?, &self.softmax, names))
    }

    /// Learns a row.
    pub fn observe(&mut self, x: &[f64], label: &str) -> Result<Outcome> {
        self.learn(x, label, None, false).map(|(outcome, _)| outcome)
    }

    /// Learns a row that was observed at the given time; times must not decrease.
    pub fn observe_at(&mut self, x: &[f64], label: &str, time: f64) -> Result<Outcome> {
        self.learn(x, label, Some(time), false).map(|(outcome, _)| outcome)
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
        let (outcome, prediction) = self.learn(x, label, time, true)?;
        self.ignored += u64::from(outcome == Outcome::OffGrid);
        if let Some(p) = &prediction {
            let class = self.labels.names()[..p.probabilities.len()].iter().position(|n| n == label);
            self.metrics.record(&p.probabilities, p.best, class);
        }
        Ok(prediction)
    }

    /// Learns many rows, given row after row; stops at the first that is refused and says which.
    pub fn observe_batch(&mut self, x: &[f64], labels: &[impl AsRef<str>]) -> Result<()> {
        length("x", labels.len() * self.input_dim, x.len())?;
        for (row, (x, label)) in x.chunks_exact(self.input_dim).zip(labels).enumerate() {
            self.observe(x, label.as_ref()).map_err(|error| error.in_row(row))?;
        }
        Ok(())
    }

    /// The class probabilities of many rows: one row of C numbers for each.
    pub fn predict_batch(&mut self, x: &[f64], probabilities: &mut [f64]) -> Result<()> {
        let count = self.classes().len();
        let rows = x.len() / self.input_dim;
        length("x", rows * self.input_dim, x.len())?;
        length("probabilities", rows * count, probabilities.len())?;
        let snapshot = if rows >= 64 { self.snapshot() } else { None };
        for (row, x) in x.chunks_exact(self.input_dim).enumerate() {
            let p = match &snapshot {
                Some(s) => s.predict(x).or_else(|_| self.predict(x)),
                None => self.predict(x),
            };
            let p = p.map_err(|error| error.in_row(row))?;
            probabilities[row * count..(row + 1) * count].copy_from_slice(&p.probabilities);
        }
        Ok(())
    }

    /// Checks a row, keeps it for the warm-up or learns it; returns what was predicted before, if wanted.
    fn learn(
        &mut self,
        x: &[f64],
        label: &str,
        time: Option<f64>,
        predict: bool,
    ) -> Result<(Outcome, Option<ClassPrediction>)> {
        stream::check_row(x, self.input_dim)?;
        if let Some(time) = time {
            finite("time", time, 0)?;
        }
        let known = self.labels.index(label, self.running.is_none())?;
        let Some(running) = &mut self.running else {
            return self.keep(x, label, known, time).map(|()| (Outcome::Learned, None));
        };
        let refits = running.refits();
        let (outcome, prediction) = if let Some(class) = known {
            let (outcome, latents) = running.learn(x, class, time, &self.settings)?;
            let answer = || ClassPrediction::from_latents(&latents, &self.softmax, self.labels.names());
            (outcome, predict.then(answer))
        } else {
            // A new class: predicted by the old ones, learned by all.
            running.admit(x, &self.settings)?;
            let latents = running.predict(x)?;
            let prediction = ClassPrediction::from_latents(&latents, &self.softmax, self.labels.names());
            let mut grown = running.clone();
            grown.add_class(&self.settings)?;
            let class = self.labels.names().len();
            let (outcome, _) = grown.learn(x, class, time, &self.settings)?;
            *running = grown;
            self.labels.add(label, false);
            self.softmax = Arc::new(Softmax::new(class + 1));
            self.publish();
            (outcome, predict.then_some(prediction))
        };
        if self.refits() > refits {
            self.publish();
        }
        Ok((outcome, prediction))
    }

    /// Keeps a row for the warm-up, which may end with it. If that fails, the row is not kept.
    fn keep(&mut self, x: &[f64], label: &str, known: Option<usize>, time: Option<f64>) -> Result<()> {
        stream::admit_to_warm_up(&self.settings, x, self.input_dim)?;
        stream::check_time(self.settings.half_life, time, self.warm_up.last_time)?;
        let time_before = std::mem::replace(&mut self.warm_up.last_time, time);
        let class = known.unwrap_or_else(|| {
            let class = self.labels.add(label, true);
            self.warm_up.classes.iter_mut().filter(|c| **c >= class).for_each(|c| *c += 1);
            class
        });
        self.warm_up.x.extend_from_slice(x);
        self.warm_up.classes.push(class);
        if self.warm_up.classes.len() < self.settings.warm_up_rows(self.input_dim) {
            return Ok(());
        }
        self.finish_warm_up().map_err(|error| {
            self.warm_up.last_time = time_before;
            self.warm_up.x.truncate(self.warm_up.x.len() - x.len());
            self.warm_up.classes.pop();
            if known.is_none() {
                self.labels.remove(class);
                self.warm_up.classes.iter_mut().filter(|c| **c > class).for_each(|c| *c -= 1);
            }
            Error::WarmUp { reason: error.to_string() }
        })
    }

    /// Ends the warm-up with the rows seen so far: chooses the scaling, fits the hyperparameters of each class.
    /// The rows are not kept.
    pub fn finish_warm_up(&mut self) -> Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        if self.warm_up.classes.len() < 2 {
            let reason = "at least two rows are needed";
            return Err(Error::Unsupported { operation: "ending the warm-up", reason });
        }
        let (count, adding) = (self.classes().len(), self.labels.unseen() == Unseen::Add);
        if count < 2 && !adding {
            let reason = format!(
                "all {} warm-up rows have the label {:?}; declare the classes or let unseen ones be added",
                self.warm_up.classes.len(),
                self.classes()[0]
            );
            return Err(Error::Config { field: "classes".into(), reason });
        }
        let rows = self.warm_up.classes.len();
        if count > MANY_CLASSES && 2 * count > rows {
            let reason = format!(
                "the first {rows} rows have {count} different labels; a number is predicted by regression, not by classes"
            );
            return Err(Error::Config { field: "label".into(), reason });
        }
        let running = Processes::start(&self.warm_up, &self.settings, self.input_dim, count, adding)?;
        self.running = Some(Box::new(running));
        self.warm_up = LabelledRows::default();
        self.softmax = Arc::new(Softmax::new(count));
        self.publish();
        Ok(())
    }

    /// Stops learning the feature map and makes its batch statistics constants: from here on a row has the
    /// same coordinates for ever, and rows can be forgotten and models merged.
    pub fn freeze_features(&mut self) -> Result<()> {
        match &mut self.running {
            Some(running) => running.encoder.freeze(),
            None => {
                Err(Error::Unsupported { operation: "freezing features", reason: "the warm-up is not over" })
            }
        }
    }

    /// Un-learns a row that was learned before with the same label. Exact; refused while the feature map still
    /// changes.
    pub fn forget(&mut self, x: &[f64], label: &str) -> Result<()> {
        stream::check_row(x, self.input_dim)?;
        let known = self.labels.names().iter().position(|n| n == label);
        let Some(running) = &mut self.running else {
            return Err(Error::Unsupported { operation: "forget", reason: "the warm-up is not over" });
        };
        match known {
            Some(class) => running.forget(x, class),
            None => {
                Err(Error::UnknownLabel { label: label.into(), known: self.labels.names().to_vec(), row: 0 })
            }
        }
    }

    /// Exponential forgetting at once: every row so far counts `factor` times as much.
    pub fn decay(&mut self, factor: f64) -> Result<()> {
        match &mut self.running {
            Some(running) => running.decay(factor),
            None => Err(Error::Unsupported { operation: "decay", reason: "the warm-up is not over" }),
        }
    }

    /// Learns everything another classifier has learned; hyperparameters stay this model's. Exact; refused
    /// unless both map rows to the same coordinates. Classes are matched by label; a class that only one of
    /// them knows is possible where both add unseen classes.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        let (Some(running), Some(theirs)) = (&self.running, &other.running) else {
            return Err(Error::Unsupported { operation: "merge", reason: "a warm-up is not over" });
        };
        running.encoder.require_fixed("merge")?;
        theirs.encoder.require_fixed("merge")?;
        if !running.encoder.agrees_with(&theirs.encoder) {
            let reason = "the two models scale or project their inputs differently";
            return Err(Error::Unsupported { operation: "merge", reason });
        }
        let (mut merged, mut labels) = (running.clone(), self.labels.clone());
        for label in other.classes().iter().filter(|l| !self.classes().contains(l)) {
            if self.labels.unseen() == Unseen::Error {
                let known = self.classes().to_vec();
                return Err(Error::UnknownLabel { label: label.clone(), known, row: 0 });
            }
            merged.add_class(&self.settings)?;
            labels.add(label, false);
        }
        let place = |label: &String| other.classes().iter().position(|l| l == label);
        let places: Vec<Option<usize>> = labels.names().iter().map(place).collect();
        merged.merge(theirs, &places)?;
        self.softmax = Arc::new(Softmax::new(labels.names().len()));
        self.running = Some(merged);
        self.labels = labels;
        Ok(())
    }

    /// An immutable image of the model for predictions from any thread; `None` during the warm-up.
    pub fn snapshot(&self) -> Option<Arc<ClassSnapshot>> {
        let running = self.running.as_ref()?;
        Some(Arc::new(ClassSnapshot {
            encoder: running.encoder.fixed().ok()?,
            predictors: running.predictors().ok()?,
            softmax: Arc::clone(&self.softmax),
            labels: self.labels.names().to_vec(),
        }))
    }

    /// A handle that always gives the newest published snapshot. Snapshots are published after the warm-up,
    /// after every refit, when a class is added and by [`OnlineClassifier::publish`]; taking one never waits
    /// for learning.
    pub fn reader(&self) -> Reader<ClassSnapshot> {
        self.published.reader()
    }

    /// Publishes the present state to all readers.
    pub fn publish(&self) {
        self.published.set(self.snapshot());
    }
}

/// An immutable classifier for predictions from any thread.
#[derive(Debug, Clone)]
pub struct ClassSnapshot {
    encoder: FixedEncoder,
    predictors: Vec<Predictor>,
    softmax: Arc<Softmax>,
    labels: Vec<String>,
}

impl ClassSnapshot {
    /// The labels, in the order of all class figures.
    pub fn classes(&self) -> &[String] {
        &self.labels
    }

    /// What the model said about a row when the snapshot was taken. A point off the grid is an error here: a
    /// snapshot does not grow.
    pub fn predict(&self, x: &[f64]) -> Result<ClassPrediction> {
        let h = self.encoder.encode(x)?;
        let latents: Vec<Prediction> =
            self.predictors.iter().map(|p| p.predict(&h)).collect::<Result<_>>()?;
        Ok(ClassPrediction::from_latents(&latents, &self.softmax, &self.labels))
    }
}
