//! The Gaussian processes of a classifier, one for each class, on shared coordinates.
//!
//! A row is encoded once; then each class learns its own target with its own known noise (see
//! [`crate::likelihood`]), at σ² = 1 and with hyperparameters of its own. C classes cost C times one process.
//!
//! Where classes may be added later, one more set of statistics is kept: those of a class that no row belonged
//! to. They are WᵀW/σ̃²_miss, Wᵀ1 ỹ_miss/σ̃²_miss and n, so a new class starts with exactly what it would have
//! learned had it been known from the first row on.

use super::encoder::Encoder;
use super::settings::{Features, NoiseModel, Schedule, Settings};
use super::stream::{self, Fading};
use super::targets::TargetScale;
use super::{OffGrid, OnlineGp, Outcome, Wiski};
use crate::error::{Error, Result, finite, length};
use crate::feature::{FeatureMap, Identity, Moments};
use crate::kernel::Kernel;
use crate::learn::{Adam, Choice, HyperSpace, Hyperparameters, Rows};
use crate::likelihood::{ClassTarget, Dirichlet};
use crate::posterior::{Prediction, Predictor};
use crate::saved::{Restore, restored_after_reading};
use crate::stats::Stats;
use serde::{Deserialize, Serialize};

/// Warm-up rows with the number of their class.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct LabelledRows {
    #[serde(with = "crate::saved::floats")]
    pub(super) x: Vec<f64>,
    pub(super) classes: Vec<usize>,
    /// The time of the last row, if rows have times.
    #[serde(default)]
    pub(super) last_time: Option<f64>,
}

/// One class: its process, and for one step per observation the optimiser with the gradient at the present
/// posterior.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Process {
    model: Wiski,
    every_step: Option<(Adam, Vec<f64>)>,
    /// The weight of the rows of this class.
    hits: f64,
}

impl Process {
    /// Whether the rows say anything about hyperparameters: with one target for all rows, they do not.
    fn speaks(&self) -> bool {
        self.hits >= 2.0 && self.model.count() - self.hits >= 2.0
    }

    fn evaluate(&mut self, space: &HyperSpace) -> Result<()> {
        if let Some((_, gradient)) = &mut self.every_step {
            self.model.evaluate(space, gradient)?;
        }
        Ok(())
    }

    fn begin_steps(&mut self, space: &HyperSpace, schedule: Schedule) -> Result<()> {
        if let Schedule::EveryStep { rate } = schedule {
            self.every_step = Some((Adam::new(space.dim(), rate)?, vec![0.0; space.dim()]));
            self.evaluate(space)?;
        }
        Ok(())
    }

    /// Learns a row at given coordinates; with one step per observation, hyperparameters move first, on the
    /// data before this row.
    fn learn(&mut self, h: &[f64], t: ClassTarget, space: &HyperSpace) -> Result<Outcome> {
        let speaks = self.speaks();
        let Some((adam, gradient)) = &mut self.every_step else {
            return self.model.observe_noisy(h, t.target, t.noise);
        };
        let mut hyper = self.model.hyperparameters();
        if speaks {
            space.adam_step(adam, &mut hyper, gradient)?;
        }
        let outcome = self.model.absorb(h, t.target, t.noise)?;
        self.model.set_hyperparameters_later(hyper);
        self.evaluate(space)?;
        Ok(outcome)
    }
}

/// Encoder and processes: what exists after the warm-up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct Processes {
    pub(super) encoder: Encoder,
    classes: Vec<Process>,
    space: HyperSpace,
    #[serde(skip, default = "undecided")]
    likelihood: Dirichlet,
    /// The statistics of a class that no row belonged to.
    never: Option<Stats>,
    pub(super) choice: Option<Choice>,
    rows_since_refit: f64,
    refits: usize,
    fading: Fading,
}

restored_after_reading!(Processes);

/// The likelihood follows from the number of classes.
fn undecided() -> Dirichlet {
    Dirichlet::new(1)
}

impl Restore for Processes {
    fn restore(&mut self) -> Result<()> {
        if self.classes.is_empty() {
            return Err(Error::Config { field: "classes".into(), reason: "there are none".into() });
        }
        self.likelihood = Dirichlet::new(self.classes.len());
        let lattice = self.classes[0].model.stats().lattice();
        length("coordinates", lattice.dim(), self.encoder.map().output_dim())?;
        for process in &self.classes {
            self.space.check_fits(&process.model.hyperparameters())?;
            if let Some((adam, gradient)) = &process.every_step {
                length("coordinates of the optimiser", self.space.dim(), adam.dim())?;
                length("gradient", self.space.dim(), gradient.len())?;
            }
        }
        finite("rows since the last refit", self.rows_since_refit, 0)?;
        self.fading.check()?;
        let own = self.classes.iter().map(|p| p.model.stats()).chain(&self.never);
        if own.into_iter().any(|stats| stats.lattice() != lattice) {
            let reason = "the classes live on different grids".into();
            return Err(Error::Config { field: "classes".into(), reason });
        }
        Ok(())
    }
}

impl Processes {
    pub(super) fn start(
        rows: &LabelledRows,
        settings: &Settings,
        input_dim: usize,
        count: usize,
        adding: bool,
    ) -> Result<Self> {
        let scaling = stream::column_scaling(settings, &rows.x, input_dim)?;
        let settings = &settings.in_scaled_units(&scaling, TargetScale::IDENTITY, input_dim)?;
        let mut lattice = stream::lattice(settings, input_dim)?;
        let likelihood = Dirichlet::new(count);
        let mut kernel = settings.start_kernel(input_dim)?;
        if settings.kernel.is_none() && count > 1 {
            kernel = kernel.scaled(likelihood.target_variance());
        }
        let mut start = Hyperparameters { kernels: vec![kernel], noise: 1.0 };
        let mut space = settings.hyper_space(&start)?.with_known_noise();
        let (map, moments, choice) = if settings.features == Features::Identity {
            (FeatureMap::from(Identity::new(input_dim)), Moments::new(input_dim), None)
        } else {
            // Two classes have nearly mirrored targets: the evidence of one says which features matter.
            if count != 2 {
                let reason = "the warm-up learns features from the contrast of exactly two classes";
                return Err(Error::Unsupported { operation: "learning features of classes", reason });
            }
            let mut scaled = Rows::default();
            let mut row = Vec::new();
            for (x, &class) in rows.x.chunks_exact(input_dim).zip(&rows.classes) {
                scaling.apply(x, &mut row)?;
                let t = likelihood.target(class == 1);
                scaled.push(&row, t.target, t.noise);
            }
            let known = Settings { noise: NoiseModel::Known, ..settings.clone() };
            let (warm, choice, grown) = stream::features(&scaled, &known, lattice, start.clone(), space)?;
            (lattice, space) = (grown, warm.space().clone().with_known_noise());
            let (map, moments, hyper) = warm.into_parts();
            start = hyper;
            (map, moments, choice)
        };
        let mut encoder = Encoder::new(scaling, map, moments);
        if settings.is_additive() {
            encoder.freeze()?;
        } else {
            encoder.learn_at(settings.feature_rate)?;
        }

        let mut h = Vec::with_capacity(rows.classes.len() * lattice.dim());
        for x in rows.x.chunks_exact(input_dim) {
            h.extend_from_slice(encoder.encode(x)?);
        }
        let mut classes = Vec::with_capacity(count);
        for c in 0..count {
            let targets = rows.classes.iter().map(|&own| likelihood.target(own == c));
            let (y, noise): (Vec<f64>, Vec<f64>) = targets.map(|t| (t.target, t.noise)).unzip();
            let mut model = stream::process(settings, &lattice, &start)?;
            model.observe_batch(&h, &y, Some(&noise))?;
            let hits = rows.classes.iter().filter(|&&own| own == c).count() as f64;
            classes.push(Process { model, every_step: None, hits });
        }
        let never =
            if adding { Some(never_seen(&classes[0].model, &h, likelihood.target(false))?) } else { None };
        let mut new = Self {
            encoder,
            classes,
            space,
            likelihood,
            never,
            choice,
            rows_since_refit: 0.0,
            refits: 0,
            fading: Fading::since(rows.last_time),
        };
        if settings.fit_warm_up {
            new.fit_warm_up(&start)?;
        }
        for process in &mut new.classes {
            process.begin_steps(&new.space, settings.schedule)?;
        }
        Ok(new)
    }

    /// Fits every class that the rows say something about; the others take what is typical of those.
    fn fit_warm_up(&mut self, start: &Hyperparameters) -> Result<()> {
        let optimiser = stream::thorough();
        for process in self.classes.iter_mut().filter(|p| p.speaks()) {
            process.model.refit(&self.space, &optimiser)?;
        }
        let typical = self.typical(start)?;
        for process in self.classes.iter_mut().filter(|p| !p.speaks()) {
            process.model.set_hyperparameters(&typical.kernels, typical.noise)?;
        }
        Ok(())
    }

    /// The geometric means of the hyperparameters of all classes that the rows say something about.
    fn typical(&self, fallback: &Hyperparameters) -> Result<Hyperparameters> {
        let raw = |p: &Process| -> Vec<f64> {
            p.model.kernels().iter().flat_map(Kernel::parameters).map(f64::ln).collect()
        };
        let all: Vec<Vec<f64>> = self.classes.iter().filter(|p| p.speaks()).map(raw).collect();
        let mut typical = fallback.clone();
        if !all.is_empty() {
            let mean = |k: usize| (all.iter().map(|v| v[k]).sum::<f64>() / all.len() as f64).exp();
            let mut values = (0..all[0].len()).map(mean);
            for kernel in &mut typical.kernels {
                let own: Vec<f64> = values.by_ref().take(kernel.parameter_count()).collect();
                kernel.set_parameters(&own)?;
            }
        }
        Ok(typical)
    }

    pub(super) fn count(&self) -> f64 {
        self.classes[0].model.count()
    }

    pub(super) fn class_count(&self) -> usize {
        self.classes.len()
    }

    pub(super) fn refits(&self) -> usize {
        self.refits
    }

    pub(super) fn model(&self, class: usize) -> Option<&Wiski> {
        self.classes.get(class).map(|p| &p.model)
    }

    pub(super) fn predictors(&self) -> Result<Vec<Predictor>> {
        self.classes.iter().map(|p| p.model.predictor()).collect::<Result<_>>()
    }

    pub(super) fn predict(&mut self, x: &[f64]) -> Result<Vec<Prediction>> {
        self.encoder.encode(x)?;
        let h = self.encoder.coordinates();
        self.classes.iter_mut().map(|p| p.model.predict(h)).collect()
    }

    /// Refuses a row that the processes would refuse, before anything is changed by it. All classes have
    /// seen the same rows, so the first speaks for all.
    pub(super) fn admit(&mut self, x: &[f64], settings: &Settings) -> Result<()> {
        let h = self.encoder.encode(x)?;
        let lattice = self.classes[0].model.stats().lattice();
        match settings.off_grid {
            OffGrid::Error => lattice.locate(h, 0, &mut Vec::new()),
            OffGrid::Extend => lattice.growth_to(h, stream::growth_limit(settings, lattice), 0).map(|_| ()),
            OffGrid::Prior => Ok(()),
        }
    }

    /// Learns a row; returns what each class predicted for it before.
    pub(super) fn learn(
        &mut self,
        x: &[f64],
        class: usize,
        time: Option<f64>,
        settings: &Settings,
    ) -> Result<(Outcome, Vec<Prediction>)> {
        self.admit(x, settings)?;
        if let Some(factor) = self.fading.pass(settings.half_life, time)? {
            self.decay(factor)?;
        }
        let likelihood = self.likelihood;
        let mut latents = Vec::with_capacity(self.classes.len());
        let mut outcome = Outcome::Learned;
        let one_sweep = self.encoder.is_fixed() && !matches!(settings.schedule, Schedule::EveryStep { .. });
        if one_sweep {
            // The prediction falls out of the update.
            let h = self.encoder.coordinates();
            for (c, process) in self.classes.iter_mut().enumerate() {
                let t = likelihood.target(c == class);
                let (learned, prediction) = process.model.step_noisy(h, t.target, t.noise)?;
                latents.push(prediction);
                outcome = learned;
            }
        } else {
            let uphill = self.predict_uphill(class, &mut latents)?;
            self.encoder.learn(uphill.as_deref())?;
            let h = self.encoder.coordinates();
            for (c, process) in self.classes.iter_mut().enumerate() {
                outcome = process.learn(h, likelihood.target(c == class), &self.space)?;
            }
        }
        if outcome == Outcome::Learned {
            self.classes[class].hits += 1.0;
            if let Some(never) = &mut self.never {
                let (h, t) = (self.encoder.coordinates(), likelihood.target(false));
                let limit = stream::growth_limit(settings, never.lattice());
                never.extend_to(h, limit)?;
                never.observe(h, t.target, t.noise)?;
            }
        }
        self.rows_since_refit += 1.0;
        if stream::refit_due(settings.schedule, self.rows_since_refit, self.count()) {
            for process in self.classes.iter_mut().filter(|p| p.speaks()) {
                process.model.refit(&self.space, &stream::brief())?;
            }
            self.rows_since_refit = 0.0;
            self.refits += 1;
        }
        Ok((outcome, latents))
    }

    /// Predicts every class at the row last encoded. While the map is learned, also minus the gradient in the
    /// coordinates of the sum over classes of the predictive log densities.
    fn predict_uphill(&mut self, class: usize, latents: &mut Vec<Prediction>) -> Result<Option<Vec<f64>>> {
        let h = self.encoder.coordinates();
        if !self.encoder.is_learning() {
            for process in &mut self.classes {
                latents.push(process.model.predict(h)?);
            }
            return Ok(None);
        }
        let mut down = vec![0.0; h.len()];
        for (c, process) in self.classes.iter_mut().enumerate() {
            let t = self.likelihood.target(c == class);
            let mut gradient = process.model.predict_gradient(h)?;
            latents.push(gradient.prediction);
            gradient.prediction.noise *= t.noise;
            down.iter_mut().zip(gradient.of_log_density(t.target)).for_each(|(d, g)| *d -= g);
        }
        Ok(Some(down))
    }

    pub(super) fn decay(&mut self, factor: f64) -> Result<()> {
        for process in &mut self.classes {
            process.model.decay(factor)?;
            process.hits *= factor;
        }
        if let Some(never) = &mut self.never {
            never.decay(factor)?;
        }
        Ok(())
    }

    /// Adds a class that no row so far belongs to. The prior mean depends on the number of classes; it is
    /// changed in the statistics of all, exactly. O(C p³).
    pub(super) fn add_class(&mut self, settings: &Settings) -> Result<()> {
        let Some(never) = &self.never else {
            let reason = "the model was not told to expect new classes";
            return Err(Error::Unsupported { operation: "adding a class", reason });
        };
        let likelihood = Dirichlet::new(self.classes.len() + 1);
        let shift = likelihood.mean() - self.likelihood.mean();
        let mut never = never.clone();
        never.standardize_targets(shift, 1.0)?;
        let mut classes = self.classes.clone();
        for process in &mut classes {
            process.model.rescale_targets(shift, 1.0)?;
            process.evaluate(&self.space)?;
        }
        let typical = self.typical(&self.classes[0].model.hyperparameters())?;
        let mut model = stream::process(settings, never.lattice(), &typical)?;
        model.replace_stats(never.clone())?;
        let mut process = Process { model, every_step: None, hits: 0.0 };
        process.begin_steps(&self.space, settings.schedule)?;
        classes.push(process);
        (self.classes, self.never, self.likelihood) = (classes, Some(never), likelihood);
        Ok(())
    }

    /// Un-learns a row.
    pub(super) fn forget(&mut self, x: &[f64], class: usize) -> Result<()> {
        self.encoder.require_fixed("forget")?;
        self.encoder.encode(x)?;
        let h = self.encoder.coordinates();
        // What any class would refuse, all refuse, before one of them has changed.
        if self.classes[class].hits < 0.5 || self.count() < 1.0 {
            return Err(Error::Unsupported { operation: "forget", reason: "no row of this class is left" });
        }
        self.classes[0].model.stats().lattice().locate(h, 0, &mut Vec::new())?;
        for (c, process) in self.classes.iter_mut().enumerate() {
            let (variance, noise) =
                (process.model.predict(h)?.variance, self.likelihood.target(c == class).noise);
            if variance >= noise {
                return Err(Error::NotLearned { variance, noise });
            }
        }
        for (c, process) in self.classes.iter_mut().enumerate() {
            let t = self.likelihood.target(c == class);
            process.model.forget(h, t.target, t.noise)?;
            process.evaluate(&self.space)?;
        }
        self.classes[class].hits -= 1.0;
        if let Some(never) = &mut self.never {
            let t = self.likelihood.target(false);
            never.forget(h, t.target, t.noise)?;
        }
        Ok(())
    }

    /// Learns everything other processes have learned. `places[c]` says which of their classes is ours with
    /// number c; `None` for one they have never seen.
    pub(super) fn merge(&mut self, other: &Self, places: &[Option<usize>]) -> Result<()> {
        let shift = self.likelihood.mean() - other.likelihood.mean();
        let theirs = |stats: &Stats| -> Result<Stats> {
            let mut stats = stats.clone();
            stats.standardize_targets(shift, 1.0)?;
            Ok(stats)
        };
        let unknown =
            Error::Unsupported { operation: "merge", reason: "one model does not know a class of the other" };
        for (process, place) in self.classes.iter_mut().zip(places) {
            let (stats, hits) = match place {
                Some(c) => (other.classes[*c].model.stats(), other.classes[*c].hits),
                None => (other.never.as_ref().ok_or_else(|| unknown.clone())?, 0.0),
            };
            process.model.merge_stats(&theirs(stats)?)?;
            process.hits += hits;
            process.evaluate(&self.space)?;
        }
        if let Some(never) = &mut self.never {
            never.merge(&theirs(other.never.as_ref().ok_or(unknown)?)?)?;
        }
        Ok(())
    }
}

/// The statistics of a class that none of the rows belongs to, on the grid of the given model.
fn never_seen(model: &Wiski, h: &[f64], miss: ClassTarget) -> Result<Stats> {
    let lattice = model.stats().lattice();
    let mut stats = Stats::new(lattice.clone());
    for point in h.chunks_exact(lattice.dim()) {
        match stats.observe(point, miss.target, miss.noise) {
            // Such rows were not learned by the other classes either.
            Ok(()) | Err(Error::OutsideGrid { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(stats)
}
