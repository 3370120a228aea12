//! Classes as targets: what a row says to each class, what the rows in memory lead to, and what latent values say about
//! classes.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::OffGrid;
use super::beyond;
use super::corrections::Corrections;
use super::encoder::FixedEncoder;
use super::labels::{Labels, Unseen};
use super::learner::{Learner, RowTargets};
use super::memory::Memory;
use super::missing::{Donors, averaged_each, is_incomplete};
use super::schedule::thorough;
use super::settings::{Features, NoiseModel, Schedule, Settings};
use super::spread::Spread;
use super::start;
use super::targets::TargetScale;
use super::task::Task;
use crate::conformal::{Conformal, Horizon, Quantiles, check_level};
use crate::error::{Error, Result};
use crate::learn::Hyperparameters;
use crate::likelihood::{Dirichlet, Sharpness, Softmax, Target};
use crate::posterior::{Prediction, Predictor};

/// More numbers than this, and fewer than two rows for each, are no classes.
const MANY_CLASSES: usize = 20;
/// More names than that are none if more than this share of rows has a name of its own.
const MOST_NAMES: f64 = 0.95;

/// Whether a label is a number with something behind its point: whole numbers may be names of classes.
fn is_fraction(label: &str) -> bool {
    label.parse::<f64>().is_ok_and(|value| value.fract() != 0.0)
}

/// How sure probabilities should be is judged by at most this many rows in memory.
const SHARPNESS_ROWS: usize = 1024;

/// What a classifier says about a row. Classes stand in the order of [`OnlineClassifier::classes`](super::OnlineClassifier::classes).
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
    pub(super) fn from_latents(
        latents: &[Prediction],
        softmax: &Softmax,
        sharpness: Sharpness,
        labels: &[String],
    ) -> Self {
        let (means, variances): (Vec<f64>, Vec<f64>) = latents.iter().map(|p| (p.mean, p.variance)).unzip();
        let mut probabilities = vec![0.0; means.len()];
        softmax.probabilities(&means, &variances, &mut Vec::new(), &mut probabilities);
        sharpness.apply(&mut probabilities);
        Self::from_probabilities(probabilities, means, variances, labels)
    }

    pub(super) fn from_probabilities(
        probabilities: Vec<f64>,
        means: Vec<f64>,
        variances: Vec<f64>,
        labels: &[String],
    ) -> Self {
        let likelier = |best: usize, c: usize| if probabilities[c] > probabilities[best] { c } else { best };
        let best = (0..probabilities.len()).fold(0, likelier);
        Self { best, label: labels[best].clone(), probabilities, means, variances }
    }

    /// All classes, from the likeliest.
    fn ranked(&self) -> Vec<usize> {
        let mut ranked: Vec<usize> = (0..self.probabilities.len()).collect();
        ranked.sort_by(|&a, &b| self.probabilities[b].total_cmp(&self.probabilities[a]));
        ranked
    }

    /// The classes with −log p up to `surprise`, from the likeliest; at least that one, unless the set may be empty.
    fn at_most_surprising(&self, surprise: f64, empty: bool) -> Vec<usize> {
        let (mut ranked, least) = (self.ranked(), usize::from(!empty));
        let within = ranked.partition_point(|&class| -self.probabilities[class].ln() <= surprise);
        ranked.truncate(within.max(least));
        ranked
    }

    /// The fewest classes that have the probability `level` together, from the likeliest.
    fn likeliest(&self, level: f64) -> Result<Vec<usize>> {
        check_level(level)?;
        let (mut ranked, mut sum) = (self.ranked(), 0.0);
        let enough = ranked.iter().position(|&class| {
            sum += self.probabilities[class];
            sum >= level
        });
        ranked.truncate(enough.map_or(ranked.len(), |last| last + 1));
        Ok(ranked)
    }
}

/// Classes as targets: one process for each, and one set of statistics for those that are still to come.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Classification {
    pub(super) labels: Labels,
    /// What keeps sets of classes at their level; `None` for those that probabilities say.
    #[serde(default)]
    pub(super) conformal: Option<Conformal>,
    /// How sure probabilities are.
    #[serde(default)]
    pub(super) sharpness: Sharpness,
    #[serde(skip)]
    targets: Vec<Target>,
    #[serde(skip, default = "no_classes")]
    pub(super) softmax: Arc<Softmax>,
}

fn no_classes() -> Arc<Softmax> {
    Arc::new(Softmax::new(0))
}

impl Classification {
    pub(super) fn new(labels: Labels) -> Self {
        let (conformal, sharpness) = (None, Sharpness::default());
        let mut new = Self { labels, conformal, sharpness, targets: Vec::new(), softmax: no_classes() };
        new.count_classes();
        new
    }

    /// Follows a change in the number of classes.
    pub(super) fn count_classes(&mut self) {
        if self.softmax.classes() != self.count() {
            self.softmax = Arc::new(Softmax::new(self.count()));
        }
    }

    pub(super) fn count(&self) -> usize {
        self.labels.names().len()
    }

    fn likelihood(&self) -> Dirichlet {
        Dirichlet::new(self.count())
    }

    /// Makes room for a class that no row so far belongs to. The prior mean depends on the number of classes; it is
    /// changed in the statistics of all, exactly. O(C p³).
    pub(super) fn add_class(
        &mut self,
        label: &str,
        learner: &mut Learner,
        settings: &Settings,
    ) -> Result<()> {
        let before = self.likelihood().mean();
        self.labels.add(label, false);
        self.count_classes();
        learner.rescale_targets(self.likelihood().mean() - before, 1.0)?;
        learner.add_unseen(settings)
    }

    pub(super) fn prediction(&self, latents: &[Prediction]) -> ClassPrediction {
        ClassPrediction::from_latents(latents, &self.softmax, self.sharpness, self.labels.names())
    }

    /// How sure probabilities should be by what rows in memory, each left out, say of the others.
    fn fitted_sharpness(&self, memory: &Memory, learner: &Learner, input_dim: usize) -> Result<Sharpness> {
        let likelihood = self.likelihood();
        let (mut targets, mut rows) = (Vec::new(), Vec::new());
        for i in (0..memory.len()).step_by(memory.len().div_ceil(SHARPNESS_ROWS).max(1)) {
            let class = memory.rows.y[i] as usize;
            targets.clear();
            targets.extend((0..self.count()).map(|c| likelihood.target(c == class)));
            let x = &memory.rows.x[i * input_dim..(i + 1) * input_dim];
            let latents = learner.predict_without(x, &targets)?;
            let (names, plain) = (self.labels.names(), Sharpness::default());
            let said = ClassPrediction::from_latents(&latents, &self.softmax, plain, names);
            rows.push((said.probabilities, class));
        }
        Ok(Sharpness::fitted(&rows))
    }

    /// The classes of a set at a level, from the likeliest.
    pub(super) fn set(
        &self,
        said: &ClassPrediction,
        level: f64,
        horizon: Horizon,
        empty: bool,
    ) -> Result<Vec<usize>> {
        match &self.conformal {
            Some(conformal) => Ok(said.at_most_surprising(conformal.quantile(level, horizon)?, empty)),
            None => said.likeliest(level),
        }
    }

    /// The class whose rows are nearest to half of all: its contrast to the rest says most about features.
    fn most_balanced(&self, memory: &Memory) -> usize {
        let mut counts = vec![0_usize; self.count()];
        memory.rows.y.iter().for_each(|&class| counts[class as usize] += 1);
        let distance = |&class: &usize| counts[class].abs_diff(memory.len() - counts[class]);
        // Of two classes, whose contrasts mirror each other, the second.
        (0..counts.len()).rev().min_by_key(distance).unwrap_or(0)
    }
}

impl Task for Classification {
    type Snapshot = ClassSnapshot;

    const IS_NUMBER: bool = false;

    fn row(&mut self, class: f64, noise: f64) -> RowTargets<'_> {
        let (likelihood, class) = (self.likelihood(), class as usize);
        // A row of weight w counts w times: its targets have 1/w of the noise.
        let target = |hit| {
            let own = likelihood.target(hit);
            Target { noise: own.noise * noise, ..own }
        };
        self.targets.clear();
        self.targets.extend((0..self.labels.names().len()).map(|c| target(c == class)));
        let (unseen, softmax) = (Some(target(false)), Some(&*self.softmax));
        RowTargets { each: &self.targets, class: Some(class), unseen, reach: f64::INFINITY, softmax }
    }

    fn target_variance(&self) -> f64 {
        self.likelihood().target_variance()
    }

    fn observed(&mut self, _: &[f64], _: f64, _: Option<(bool, f64)>) {}

    fn log_density(&self, said: &[Prediction], class: f64, _: f64) -> f64 {
        self.prediction(said).probabilities[class as usize].max(f64::MIN_POSITIVE).ln()
    }

    fn forgotten(&mut self, _: &[f64], _: f64) {}

    fn is_ready(&self, memory: &Memory) -> Result<bool> {
        let (count, rows) = (self.count(), memory.len());
        if count > MANY_CLASSES {
            let labels = format!("the first {rows} rows have {count} different labels");
            let fractions = self.labels.names().iter().filter(|name| is_fraction(name)).count();
            let reason = if 2 * fractions > count && 2 * count > rows {
                format!("{labels}; a number is predicted by regression, not by classes")
            } else if count as f64 > MOST_NAMES * rows as f64 {
                format!("{labels}: nearly every row has its own, and nothing can be learned of any of them")
            } else {
                return Ok(true);
            };
            return Err(Error::Config { field: "label".into(), reason });
        }
        Ok(count >= 2 || self.labels.unseen() == Unseen::Add)
    }

    fn start(&mut self, memory: &Memory, settings: &Settings, input_dim: usize) -> Result<Learner> {
        if !self.is_ready(memory)? {
            let reason = format!(
                "all {} warm-up rows have the label {:?}; declare the classes or let unseen ones be added",
                memory.len(),
                self.labels.names()[0]
            );
            return Err(Error::Config { field: "classes".into(), reason });
        }
        self.count_classes();
        let (count, likelihood) = (self.count(), self.likelihood());
        check_features(settings, count)?;
        let scaling = start::column_scaling(settings, &memory.rows.x, input_dim)?;
        let settings = &settings.in_scaled_units(&scaling, TargetScale::IDENTITY, input_dim)?;
        let mut kernel = settings.start_kernel(input_dim)?;
        if settings.kernel.is_none() && count > 1 {
            kernel = kernel.scaled(likelihood.target_variance());
        }
        let start = Hyperparameters { kernels: vec![kernel], noise: 1.0 };
        // The noise of targets is known but for a factor.
        let noise =
            if settings.noise == NoiseModel::Known { NoiseModel::Known } else { NoiseModel::Constant };
        let settings = &Settings { noise, ..settings.clone() };
        let space = settings.space_of(&start, true)?;
        let of_class = |class: usize| -> (Vec<f64>, Vec<f64>) {
            let targets = memory.rows.y.iter().map(|&own| likelihood.target(own == class as f64));
            targets.zip(&memory.rows.noise).map(|(t, noise)| (t.value, t.noise * noise)).unzip()
        };
        let targets: Vec<_> = (0..count).map(of_class).collect();
        let (contrast, classes) = (self.most_balanced(memory), Some(memory.rows.y.as_slice()));
        let all = start::Targets { each: &targets, contrast, classes };
        let found = start::found(memory, &all, settings, input_dim, (start, space))?;
        let unseen = (self.labels.unseen() == Unseen::Add).then(|| likelihood.target(false));
        let (hyper, is_fitted) = (found.hyper.clone(), !found.each.is_empty());
        // Of inducing points nothing is left to fit but what was fitted with them.
        let is_done = is_fitted && found.lattice.points().is_some();
        let mut learner = found.learner(memory, &targets, classes, unseen, settings)?;
        if settings.fit_warm_up && !is_done {
            learner.fit_from(&hyper, &thorough())?;
        }
        if settings.schedule != Schedule::Off {
            self.sharpness = self.fitted_sharpness(memory, &learner, input_dim)?;
        }
        Ok(learner)
    }

    fn rescale(&mut self, _: &mut Learner, _: &Settings) -> Result<f64> {
        Ok(1.0)
    }

    fn adopt(&mut self, found: &Self) {
        self.sharpness = found.sharpness;
    }

    fn snapshot(
        &self,
        learner: &Learner,
        corrections: Option<Corrections>,
        _: Option<Spread>,
        donors: Option<Donors>,
        settings: &Settings,
    ) -> Result<ClassSnapshot> {
        let predictors = learner.processes().iter().map(|p| p.model.predictor());
        let quantiles = |horizon| self.conformal.as_ref().map(|conformal| conformal.quantiles(horizon));
        Ok(ClassSnapshot {
            sets: [quantiles(Horizon::Next), quantiles(Horizon::Ahead)],
            empty_sets: settings.intervals.empty_sets,
            encoder: learner.encoder().fixed()?,
            predictors: predictors.collect::<Result<_>>()?,
            variances: learner.processes().iter().map(|p| beyond::variances(p.model.kernels())).collect(),
            corrections,
            donors,
            off_grid: settings.off_grid,
            softmax: Arc::clone(&self.softmax),
            sharpness: self.sharpness,
            labels: self.labels.names().to_vec(),
        })
    }

    fn cleared(&self) -> Self {
        Self { conformal: self.conformal.as_ref().map(Conformal::cleared), ..self.clone() }
    }

    fn merge(
        &mut self,
        learner: &mut Learner,
        theirs: &Self,
        other: &Learner,
        settings: &Settings,
    ) -> Result<()> {
        for label in theirs.labels.names() {
            if self.labels.index(label, false)?.is_none() {
                self.add_class(label, learner, settings)?;
            }
        }
        let place = |label: &String| theirs.labels.names().iter().position(|l| l == label);
        let places: Vec<Option<usize>> = self.labels.names().iter().map(place).collect();
        let shift = self.likelihood().mean() - theirs.likelihood().mean();
        learner.merge(other, (shift, 1.0), &places)?;
        if let (Some(own), Some(theirs)) = (&mut self.conformal, &theirs.conformal) {
            own.merge(theirs);
        }
        self.sharpness.merge(&theirs.sharpness);
        Ok(())
    }
}

/// Projections and perceptrons learn from the contrast of two classes.
pub(super) fn check_features(settings: &Settings, classes: usize) -> Result<()> {
    if classes > 2 && matches!(settings.features, Features::Project { .. } | Features::Mlp { .. }) {
        let reason =
            "a projection is learned from the contrast of exactly two classes; try the features 'additive'";
        return Err(Error::Unsupported { operation: "learning features of classes", reason });
    }
    Ok(())
}

/// An immutable classifier for predictions from any thread.
#[derive(Debug, Clone)]
pub struct ClassSnapshot {
    encoder: FixedEncoder,
    predictors: Vec<Predictor>,
    /// The prior variance of each block, for each class.
    variances: Vec<Vec<f64>>,
    /// What the last rows said beyond the model.
    corrections: Option<Corrections>,
    /// Complete rows, where others may be incomplete.
    donors: Option<Donors>,
    off_grid: OffGrid,
    softmax: Arc<Softmax>,
    sharpness: Sharpness,
    labels: Vec<String>,
    /// For the row that came next when the snapshot was taken, and for rows ahead.
    sets: [Option<Quantiles>; 2],
    empty_sets: bool,
}

impl ClassSnapshot {
    /// The labels, in the order of all class figures.
    pub fn classes(&self) -> &[String] {
        &self.labels
    }

    /// What the model said about a row when the snapshot was taken. Off a grid that is the prior, or an error where the
    /// settings say so.
    pub fn predict(&self, x: &[f64]) -> Result<ClassPrediction> {
        let latents = match self.donors.as_ref().filter(|_| is_incomplete(x)) {
            Some(donors) => {
                let rows = donors.completed(x)?;
                averaged_each(&rows.iter().map(|x| self.latents(x)).collect::<Result<Vec<_>>>()?)
            }
            None => self.latents(x)?,
        };
        Ok(ClassPrediction::from_latents(&latents, &self.softmax, self.sharpness, &self.labels))
    }

    /// What the processes said about a complete row.
    fn latents(&self, x: &[f64]) -> Result<Vec<Prediction>> {
        let h = self.encoder.encode(x)?;
        let processes = self.predictors.iter().zip(&self.variances);
        let one = |(p, variances): (_, &Vec<f64>)| beyond::predict(p, variances, self.off_grid, &h);
        let mut latents: Vec<Prediction> = processes.map(one).collect::<Result<_>>()?;
        if let Some(excess) = self.encoder.excess(x) {
            for (p, (predictor, variances)) in
                latents.iter_mut().zip(self.predictors.iter().zip(&self.variances))
            {
                beyond::widen(p, &excess, predictor.lattice(), variances);
            }
        }
        if let Some(corrections) = &self.corrections {
            corrections.correct(&h, &mut latents);
        }
        Ok(latents)
    }

    /// The numbers of the classes in the set around a prediction; see [`OnlineClassifier::set`](super::OnlineClassifier::set).
    pub fn set(&self, prediction: &ClassPrediction, level: f64, horizon: Horizon) -> Result<Vec<usize>> {
        match &self.sets[usize::from(horizon == Horizon::Ahead)] {
            Some(quantiles) => Ok(prediction.at_most_surprising(quantiles.at(level)?, self.empty_sets)),
            None => prediction.likeliest(level),
        }
    }
}
