//! What happens to a row, once for every model: the regressor, the classes of a classifier, an optimizer's surrogate.
//!
//! A learner is an encoder and one or more Gaussian processes that share its coordinates, each with a target of its
//! own: one process for numbers, C for C classes. A row goes through five steps.
//!
//! 1. **Check**: every number is finite, the time does not go back.
//! 2. **Encode**: x → h.
//! 3. **Admit**: the grids cover h, or may grow to it. Nothing has changed up to here, and a row that is rejected
//!    leaves no trace.
//! 4. **Commit**: old rows fade; every process predicts the row and learns it. These steps do not fail on a row that
//!    was admitted.
//! 5. **Maintain**: hyperparameters and scales follow. What fails here is reported apart
//!    ([`Learner::take_failure`]); the row stays learned.
//!
//! With C processes of rank p a row costs 3Cp², or 16^d more while features are learned.

use serde::{Deserialize, Serialize};

use super::beyond;
use super::encoder::Encoder;
use super::fresh;
use super::memory::Memory;
use super::relative_noise::RelativeNoise;
use super::schedule::{Fading, frugal};
use super::settings::{InputScaling, Schedule, Settings};
use super::start;
use super::{OffGrid, OnlineGp, Outcome, Wiski};
use crate::error::{Error, Result, finite, length};
use crate::feature::FeatureMap;
use crate::interp::Placement;
use crate::kernel::Kernel;
use crate::learn::{Adam, Choice, HyperSpace, Hyperparameters, LbfgsB};
use crate::likelihood::{Softmax, Target};
use crate::posterior::{Prediction, PredictionGradient};
use crate::saved::{Restore, restored_after_reading};
use crate::stats::Stats;

/// What a row says to each process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowTargets<'a> {
    /// One target for each process.
    pub(crate) each: &'a [Target],
    /// The class of the row, where targets are those of classes.
    pub(crate) class: Option<usize>,
    /// The target of a class that was never seen.
    pub(crate) unseen: Option<Target>,
    /// How many deviations off a target counts in full.
    pub(crate) reach: f64,
    /// What makes probabilities of latent values, where targets are those of classes.
    pub(crate) softmax: Option<&'a Softmax>,
}

impl<'a> RowTargets<'a> {
    /// One number.
    pub(crate) fn of_value(target: &'a Target) -> Self {
        Self {
            each: std::slice::from_ref(target),
            class: None,
            unseen: None,
            reach: f64::INFINITY,
            softmax: None,
        }
    }
}

/// What many rows say: targets and noise.
#[derive(Debug, Default)]
pub(super) struct RowBatch {
    /// To each process.
    each: Vec<(Vec<f64>, Vec<f64>)>,
    /// The class of each row, where they have one.
    classes: Vec<usize>,
    /// To a class that was never seen.
    unseen: (Vec<f64>, Vec<f64>),
}

impl RowBatch {
    pub(super) fn push(&mut self, row: &RowTargets) {
        self.each.resize_with(row.each.len(), Default::default);
        let unseen = row.unseen.as_ref().map(|target| (&mut self.unseen, target));
        for ((values, noises), target) in self.each.iter_mut().zip(row.each).chain(unseen) {
            values.push(target.value);
            noises.push(target.noise);
        }
        self.classes.extend(row.class);
    }
}

/// One Gaussian process of a learner.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) model: Wiski,
    /// For one step per observation: the optimizer, and the gradient at the present posterior.
    every_step: Option<(Adam, Vec<f64>)>,
    /// For a class: the weight of its rows.
    #[serde(default)]
    pub(super) hits: Option<f64>,
}

impl Process {
    pub(crate) fn new(model: Wiski, hits: Option<f64>) -> Self {
        Self { model, every_step: None, hits }
    }

    /// A process with its optimizer, as a file held them.
    pub(crate) fn resumed(model: Wiski, every_step: Option<(Adam, Vec<f64>)>, hits: Option<f64>) -> Self {
        Self { model, every_step, hits }
    }

    /// Whether the rows say anything about hyperparameters: with one target for all of them they do not.
    fn is_informative(&self) -> bool {
        self.hits.is_none_or(|hits| hits >= 2.0 && self.model.count() - hits >= 2.0)
    }

    /// For one step per observation: objective, gradient and posterior at the present hyperparameters.
    fn evaluate(&mut self, space: &HyperSpace) -> Result<()> {
        if let Some((_, gradient)) = &mut self.every_step {
            self.model.evaluate(space, gradient)?;
        }
        Ok(())
    }

    /// Learns a row at given coordinates. With one step per observation the hyperparameters move first, on the data
    /// before this row; one evaluation then gives both the new posterior and the next gradient. The second result
    /// tells whether that succeeded: the row is learned in any case.
    fn learn(&mut self, h: &[f64], target: Target, space: &HyperSpace) -> Result<(Outcome, Result<()>)> {
        let is_informative = self.is_informative();
        let Some((adam, gradient)) = &mut self.every_step else {
            return Ok((self.model.observe_noisy(h, target.value, target.noise)?, Ok(())));
        };
        let before = self.model.hyperparameters();
        let mut hyper = before.clone();
        let stepped = if is_informative { space.adam_step(adam, &mut hyper, gradient) } else { Ok(()) };
        let outcome = self.model.absorb(h, target.value, target.noise)?;
        self.model.set_hyperparameters_later(if stepped.is_ok() { hyper } else { before.clone() });
        let upkeep = stepped.and_then(|()| self.evaluate(space)).or_else(|error| {
            self.model.set_hyperparameters(&before.kernels, before.noise)?;
            Err(error)
        });
        Ok((outcome, upkeep))
    }
}

/// Encoder and processes: what exists of a model after the warm-up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(crate) struct Learner {
    encoder: Encoder,
    processes: Vec<Process>,
    /// The statistics of a class that no row belonged to, where classes may be added: a new class starts with exactly
    /// what it would have learned had it been known from the first row on.
    unseen: Option<Stats>,
    space: HyperSpace,
    choice: Option<Choice>,
    rows_since_refit: f64,
    refits: usize,
    fading: Fading,
    /// What each process predicted for the last row.
    #[serde(skip)]
    predictions: Vec<Prediction>,
    /// By how much the noise of the last row was multiplied, since it was too far off.
    #[serde(skip)]
    discount: f64,
    #[serde(skip)]
    gradient: PredictionGradient,
    #[serde(skip)]
    placement: Placement,
    /// The coordinates of rows that are known to come.
    #[serde(skip)]
    coming: Vec<f64>,
    #[serde(skip)]
    downhill: Vec<f64>,
    #[serde(skip)]
    failure: Option<Error>,
}

restored_after_reading!(Learner);

impl Restore for Learner {
    fn restore(&mut self) -> Result<()> {
        let Some(first) = self.processes.first() else {
            return Err(Error::Config { field: "processes".into(), reason: "there are none".into() });
        };
        let lattice = first.model.stats().lattice();
        length("coordinates", lattice.dim(), self.encoder.map().output_dim())?;
        for process in &self.processes {
            self.space.check_fits(&process.model.hyperparameters())?;
            if let Some((adam, gradient)) = &process.every_step {
                length("coordinates of the optimizer", self.space.dim(), adam.dim())?;
                length("gradient", self.space.dim(), gradient.len())?;
                gradient.iter().try_for_each(|&g| finite("gradient", g, 0))?;
            }
        }
        finite("rows since the last refit", self.rows_since_refit, 0)?;
        self.fading.check()?;
        let mut stats = self.processes.iter().map(|p| p.model.stats()).chain(&self.unseen);
        if stats.any(|stats| stats.lattice() != lattice) {
            let reason = "the processes live on different grids".into();
            return Err(Error::Config { field: "processes".into(), reason });
        }
        Ok(())
    }
}

impl Learner {
    /// Puts the parts together; for one step per observation the first gradients are computed.
    pub(crate) fn new(
        encoder: Encoder,
        processes: Vec<Process>,
        unseen: Option<Stats>,
        space: HyperSpace,
        choice: Option<Choice>,
        fading: Fading,
        schedule: Schedule,
    ) -> Result<Self> {
        let mut new = Self {
            encoder,
            processes,
            unseen,
            space,
            choice,
            rows_since_refit: 0.0,
            refits: 0,
            fading,
            predictions: Vec::new(),
            discount: 1.0,
            gradient: PredictionGradient::default(),
            placement: Placement::default(),
            coming: Vec::new(),
            downhill: Vec::new(),
            failure: None,
        };
        new.begin_steps(schedule)?;
        Ok(new)
    }

    /// The parts that a file held.
    pub(crate) fn resumed_from(
        encoder: Encoder,
        processes: Vec<Process>,
        unseen: Option<Stats>,
        (space, choice, fading): (HyperSpace, Option<Choice>, Fading),
        (rows_since_refit, refits): (f64, usize),
    ) -> Result<Self> {
        let mut new = Self::new(encoder, processes, unseen, space, choice, fading, Schedule::Off)?;
        (new.rows_since_refit, new.refits) = (rows_since_refit, refits);
        new.restore()?;
        Ok(new)
    }

    /// The same with a number of refits behind it.
    pub(super) fn after_refits(mut self, refits: usize) -> Self {
        self.refits = refits;
        self
    }

    fn begin_steps(&mut self, schedule: Schedule) -> Result<()> {
        let Schedule::EveryStep { rate } = schedule else { return Ok(()) };
        for process in self.processes.iter_mut().filter(|p| p.every_step.is_none()) {
            process.every_step = Some((Adam::new(self.space.dim(), rate)?, vec![0.0; self.space.dim()]));
            process.evaluate(&self.space)?;
        }
        Ok(())
    }

    pub(crate) fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// To settle what counts as new.
    pub(super) fn encoder_mut(&mut self) -> &mut Encoder {
        &mut self.encoder
    }

    pub(crate) fn process(&self, index: usize) -> Option<&Wiski> {
        self.processes.get(index).map(|p| &p.model)
    }

    /// The process of a model that has one.
    pub(crate) fn first(&self) -> &Wiski {
        &self.processes[0].model
    }

    pub(crate) fn processes(&self) -> &[Process] {
        &self.processes
    }

    pub(crate) fn space(&self) -> &HyperSpace {
        &self.space
    }

    pub(crate) fn choice(&self) -> Option<&Choice> {
        self.choice.as_ref()
    }

    pub(crate) fn refits(&self) -> usize {
        self.refits
    }

    /// The weight of the rows learned.
    pub(crate) fn count(&self) -> f64 {
        self.first().count()
    }

    /// What each process predicted for the row last learned, before it was.
    pub(crate) fn predictions(&self) -> &[Prediction] {
        &self.predictions
    }

    /// By how much the noise of the row last learned was multiplied, since it was too far off.
    pub(crate) fn discount(&self) -> f64 {
        self.discount
    }

    /// What went wrong in maintenance since the last call, if anything did.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        let own = self.failure.take();
        own.or_else(|| self.processes.iter_mut().find_map(|p| p.model.take_failure()))
    }

    /// What each process says about a row now.
    pub(crate) fn predict(&self, x: &[f64]) -> Result<Vec<Prediction>> {
        let mut said = self.encoder.with_coordinates(x, |h| self.predict_at(h))??;
        self.widen(x, &mut said);
        Ok(said)
    }

    /// What each process says at coordinates.
    fn predict_at(&self, h: &[f64]) -> Result<Vec<Prediction>> {
        let relative = self.encoder.relative_noise(h);
        let mut shared = Placement::default();
        let say = |p: &Process| Ok(p.model.predict_sharing(h, &mut shared)?.with_noise_times(relative));
        self.processes.iter().map(say).collect()
    }

    /// What each process would say about a row that it has learned, had it not: with the row's likelihood N(y, d) taken
    /// out of the posterior N(m, v) at its place, 1/v' = 1/v − 1/d and m'/v' = m/v − y/d. What inducing points leave is
    /// no part of that posterior.
    pub(crate) fn predict_without(&self, x: &[f64], targets: &[Target]) -> Result<Vec<Prediction>> {
        let points = self.first().stats().lattice().points();
        let (mut said, left) = self.encoder.with_coordinates(x, |h| {
            let said = self.predict_at(h)?;
            let left = points.map_or(Ok(0.0), |p| p.weights(&h[h.len() - p.dim()..]).map(|w| w.1))?;
            Ok::<_, Error>((said, left))
        })??;
        for ((p, process), t) in said.iter_mut().zip(&self.processes).zip(targets) {
            let scale = points.and(process.model.kernels().last()).map_or(0.0, Kernel::variance);
            let (left, d) = (left * scale, p.noise * t.noise);
            let v = p.variance - left;
            if v > 0.0 && v < d {
                let without = (v.recip() - d.recip()).recip();
                let mean = without * (p.mean / v - t.value / d);
                *p = Prediction { mean, variance: without + left, noise: d };
            }
        }
        Ok(said)
    }

    /// Adds to predictions at a row what they are unsure of beyond the rows that were learned from.
    fn widen(&self, x: &[f64], said: &mut [Prediction]) {
        let Some(excess) = self.encoder.excess(x) else { return };
        for (process, prediction) in self.processes.iter().zip(said) {
            let variances = beyond::variances(process.model.kernels());
            beyond::widen(prediction, &excess, process.model.stats().lattice(), &variances);
        }
    }

    /// What the first process says about a row now; no allocation.
    pub(crate) fn predict_first(&self, x: &[f64]) -> Result<Prediction> {
        let mut prediction = self.encoder.with_coordinates(x, |h| {
            Ok::<_, Error>(self.first().predict(h)?.with_noise_times(self.encoder.relative_noise(h)))
        })??;
        self.widen(x, std::slice::from_mut(&mut prediction));
        Ok(prediction)
    }

    /// Whether a row is learned or, since no grid follows it to where it lies, left to the prior. Rejects a row that the
    /// grids neither cover nor may grow to. All processes live on the same grids.
    pub(crate) fn admit(&mut self, x: &[f64], settings: &Settings) -> Result<Outcome> {
        let is_reached = self.encoder.scaling().reaches(x);
        let h = self.encoder.encode(x)?;
        let lattice = self.processes[0].model.stats().lattice();
        match settings.off_grid {
            OffGrid::Error => lattice.check_covers(h)?,
            OffGrid::Extend if !is_reached => return Ok(Outcome::OffGrid),
            OffGrid::Extend => match lattice.growth_to(h, start::growth_limit(settings, lattice), 0) {
                // A range that was found on the first rows is not worth a stream; one that was declared is meant.
                Err(Error::GridTooLarge { .. }) if settings.inputs == InputScaling::WarmUp => {
                    return Ok(Outcome::OffGrid);
                }
                // No row is worth a grid many times as large as it was.
                Ok(growth)
                    if !growth.is_none()
                        && lattice.growth_to(h, start::growth_at_once(lattice), 0).is_err() =>
                {
                    return Ok(Outcome::OffGrid);
                }
                growth => growth.map(|_| ())?,
            },
            OffGrid::Prior => {}
        }
        Ok(Outcome::Learned)
    }

    /// Takes note of rows that will be learned in this order, so that what each needs is computed for several together; the
    /// numbers are the same. A hint: any other row may come.
    pub(crate) fn expect(&mut self, x: &[f64]) {
        self.coming.clear();
        if self.encoder.is_fixed() {
            for x in x.chunks_exact(self.encoder.input_dim()) {
                let coming = &mut self.coming;
                // One that cannot be encoded will be rejected.
                let _ = self.encoder.with_coordinates(x, |h| coming.extend_from_slice(h));
            }
        }
        self.placement.expect(self.processes[0].model.stats().lattice(), &self.coming);
        self.processes.iter_mut().for_each(|process| process.model.expect(&self.coming));
    }

    /// Whether it gains by knowing rows before they are learned.
    pub(crate) fn gains_by_expecting(&self) -> bool {
        self.encoder.is_fixed() && self.first().gains_by_expecting()
    }

    /// Learns a row, wholly or not at all. What each process predicted before is in [`Learner::predictions`].
    pub(crate) fn learn(
        &mut self,
        x: &[f64],
        row: &RowTargets,
        time: Option<f64>,
        settings: &Settings,
    ) -> Result<Outcome> {
        let admitted = self.admit(x, settings)?;
        // A number can be finite and its square not: it would be in the sums for ever.
        for t in row.each {
            finite("y²/noise", t.value * t.value / t.noise, 0)?;
        }
        let (fading, factor) = self.fading.after(settings.half_life, time)?;
        if let Some(factor) = factor {
            self.decay(factor)?;
        }
        self.fading = fading;
        self.discount = 1.0;
        if admitted == Outcome::OffGrid {
            return self.leave_out(row);
        }
        let outcome = if self.encoder.is_fixed() && !matches!(settings.schedule, Schedule::EveryStep { .. }) {
            self.step(row)?
        } else {
            self.step_and_move(row)?
        };
        let mut said = std::mem::take(&mut self.predictions);
        self.widen(x, &mut said);
        self.predictions = said;
        if outcome == Outcome::Learned {
            if let Some(hits) = row.class.and_then(|class| self.processes[class].hits.as_mut()) {
                *hits += 1.0;
            }
            if let (Some(unseen), Some(t)) = (&mut self.unseen, row.unseen) {
                let h = self.encoder.coordinates();
                let limit = start::growth_limit(settings, unseen.lattice());
                unseen.extend_to(h, limit)?;
                unseen.observe(h, t.value, t.noise)?;
            }
        }
        self.rows_since_refit += 1.0;
        Ok(outcome)
    }

    /// Learns a row that was un-learned, with other noise. It was admitted before.
    pub(crate) fn learn_anew(&mut self, x: &[f64], row: &RowTargets) -> Result<()> {
        self.encoder.encode(x)?;
        let h = self.encoder.coordinates();
        let relative = self.encoder.relative_noise(h);
        for (process, t) in self.processes.iter_mut().zip(row.each) {
            process.model.observe_noisy(h, t.value, t.noise * relative)?;
            process.evaluate(&self.space)?;
        }
        Ok(())
    }

    /// Predicts a row that no grid follows, and learns nothing of it.
    fn leave_out(&mut self, row: &RowTargets) -> Result<Outcome> {
        let h = self.encoder.coordinates();
        let relative = self.encoder.relative_noise(h);
        self.predictions.clear();
        for (process, t) in self.processes.iter().zip(row.each) {
            self.predictions.push(process.model.predict(h)?.with_noise_times(t.noise * relative));
        }
        Ok(Outcome::OffGrid)
    }

    /// Predicts and conditions in one sweep: the prediction falls out of the update.
    fn step(&mut self, row: &RowTargets) -> Result<Outcome> {
        let (h, mut outcome) = (self.encoder.coordinates(), Outcome::Learned);
        let relative = self.encoder.relative_noise(h);
        self.predictions.clear();
        for (process, t) in self.processes.iter_mut().zip(row.each) {
            let noise = t.noise * relative;
            // Weights on inducing points are the same for all.
            std::mem::swap(process.model.placement(), &mut self.placement);
            let stepped = process.model.step_within(h, t.value, noise, row.reach);
            std::mem::swap(process.model.placement(), &mut self.placement);
            let (learned, prediction, factor) = stepped?;
            self.predictions.push(prediction);
            (outcome, self.discount) = (learned, factor);
        }
        Ok(outcome)
    }

    /// Predicts; lets the feature map move one step up the sum of the predictive log densities; conditions.
    fn step_and_move(&mut self, row: &RowTargets) -> Result<Outcome> {
        let h = self.encoder.coordinates();
        let relative = self.encoder.relative_noise(h);
        self.predictions.clear();
        self.downhill.clear();
        self.downhill.resize(h.len(), 0.0);
        for (process, t) in self.processes.iter().zip(row.each) {
            if self.encoder.is_learning() {
                process.model.predict_gradient_into(h, &mut self.gradient)?;
                self.gradient.prediction.noise *= t.noise * relative;
                let slopes = self.gradient.slopes_of_log_density(t.value);
                self.downhill.iter_mut().zip(slopes).for_each(|(d, g)| *d -= g);
                self.predictions.push(self.gradient.prediction);
            } else {
                self.predictions.push(process.model.predict(h)?.with_noise_times(t.noise * relative));
            }
        }
        let is_learning = self.encoder.is_learning();
        self.encoder.learn(is_learning.then_some(self.downhill.as_slice()))?;
        let (h, mut outcome) = (self.encoder.coordinates(), Outcome::Learned);
        for ((process, t), said) in self.processes.iter_mut().zip(row.each).zip(&self.predictions) {
            self.discount = said.discount(t.value, row.reach);
            let t = Target { noise: self.discount * t.noise * relative, ..*t };
            let (learned, upkeep) = process.learn(h, t, &self.space)?;
            outcome = learned;
            self.failure = upkeep.err().or(self.failure.take());
        }
        Ok(outcome)
    }

    /// Whether the schedule asks for a refit.
    pub(crate) fn is_refit_due(&self, schedule: Schedule) -> bool {
        let least = self.first().refit_ratio();
        schedule.with_ratio_above(least).is_due(self.rows_since_refit, self.count())
    }

    /// Lets the schedule begin anew.
    pub(crate) fn postpone_refit(&mut self) {
        self.rows_since_refit = 0.0;
    }

    /// Refits the hyperparameters of every process that its rows say something about.
    pub(crate) fn refit(&mut self, optimizer: &LbfgsB) -> Result<()> {
        self.rows_since_refit = 0.0;
        let is_fresh = fresh::is_due(self.refits) && matches!(self.encoder.map(), FeatureMap::Identity(_));
        for process in self.processes.iter_mut().filter(|p| p.is_informative()) {
            let starts = if is_fresh { fresh::starts(&process.model, &self.space) } else { Vec::new() };
            process.model.refit_afresh(&self.space, &starts, optimizer)?;
            process.evaluate(&self.space)?;
        }
        self.refits += 1;
        Ok(())
    }

    /// Fits every process that the rows say something about; the others take what is typical of those.
    pub(crate) fn fit_from(&mut self, start: &Hyperparameters, optimizer: &LbfgsB) -> Result<()> {
        for process in self.processes.iter_mut().filter(|p| p.is_informative()) {
            process.model.refit(&self.space, optimizer)?;
        }
        let typical = self.typical(start)?;
        for process in self.processes.iter_mut().filter(|p| !p.is_informative()) {
            process.model.set_hyperparameters(&typical.kernels, typical.noise)?;
        }
        for process in &mut self.processes {
            process.evaluate(&self.space)?;
        }
        Ok(())
    }

    /// The geometric means of the hyperparameters of all processes that the rows say something about.
    fn typical(&self, fallback: &Hyperparameters) -> Result<Hyperparameters> {
        let raw = |p: &Process| -> Vec<f64> {
            p.model.kernels().iter().flat_map(Kernel::parameters).map(f64::ln).collect()
        };
        let all: Vec<Vec<f64>> = self.processes.iter().filter(|p| p.is_informative()).map(raw).collect();
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

    /// Changes the unit of the targets of every process to (y − shift)/scale.
    pub(crate) fn rescale_targets(&mut self, shift: f64, scale: f64) -> Result<()> {
        let mut unseen = self.unseen.clone();
        unseen.as_mut().map_or(Ok(()), |stats| stats.standardize_targets(shift, scale))?;
        let (mut processes, mut space) = (self.processes.clone(), self.space.clone());
        space.rescale_fixed(&self.first().hyperparameters(), scale);
        for process in &mut processes {
            process.model.rescale_targets(shift, scale)?;
            process.evaluate(&space)?;
        }
        (self.processes, self.unseen, self.space) = (processes, unseen, space);
        Ok(())
    }

    /// Every row so far counts `factor` times as much, for all processes or for none.
    pub(crate) fn decay(&mut self, factor: f64) -> Result<()> {
        let mut processes = self.processes.clone();
        for process in &mut processes {
            process.model.decay(factor)?;
            process.hits = process.hits.map(|hits| hits * factor);
        }
        self.unseen.as_mut().map_or(Ok(()), |stats| stats.decay(factor))?;
        self.processes = processes;
        Ok(())
    }

    /// Un-learns a row, from all processes or from none.
    pub(crate) fn forget(&mut self, x: &[f64], row: &RowTargets) -> Result<()> {
        self.encoder.require_fixed("forget")?;
        self.encoder.encode(x)?;
        let h = self.encoder.coordinates();
        let relative = self.encoder.relative_noise(h);
        let is_gone = row.class.and_then(|class| self.processes[class].hits).is_some_and(|hits| hits < 0.5);
        if is_gone || self.processes[0].model.count() < 1.0 {
            return Err(Error::Unsupported { operation: "forget", reason: "no such row is left" });
        }
        self.processes[0].model.stats().lattice().check_covers(h)?;
        let mut processes = self.processes.clone();
        for (process, t) in processes.iter_mut().zip(row.each) {
            process.model.forget(h, t.value, t.noise * relative)?;
            process.evaluate(&self.space)?;
        }
        if let Some(hits) = row.class.and_then(|class| processes[class].hits.as_mut()) {
            *hits -= 1.0;
        }
        if let (Some(unseen), Some(t)) = (&mut self.unseen, row.unseen) {
            unseen.forget(h, t.value, t.noise)?;
        }
        self.processes = processes;
        Ok(())
    }

    /// Learns many rows, given one after the other, at fixed hyperparameters and features: targets of every process in
    /// turn.
    pub(crate) fn observe_batch(&mut self, h: &[f64], targets: &[(Vec<f64>, Vec<f64>)]) -> Result<()> {
        let rows = h.chunks_exact(self.encoder.map().output_dim());
        let relative: Vec<f64> = rows.map(|h| self.encoder.relative_noise(h)).collect();
        for (process, (y, noise)) in self.processes.iter_mut().zip(targets) {
            let noise: Vec<f64> =
                noise.iter().zip(&relative).map(|(noise, relative)| noise * relative).collect();
            process.model.observe_batch(h, y, Some(&noise))?;
            process.evaluate(&self.space)?;
        }
        Ok(())
    }

    /// As [`Learner::observe_batch`], for rows of a stream, whose classes are counted.
    pub(super) fn learn_all(&mut self, h: &[f64], rows: &RowBatch) -> Result<()> {
        self.observe_batch(h, &rows.each)?;
        for &class in &rows.classes {
            self.processes[class].hits.iter_mut().for_each(|hits| *hits += 1.0);
        }
        if let Some(unseen) = &mut self.unseen {
            unseen.extend_to_lattice(self.processes[0].model.stats().lattice())?;
            unseen.observe_batch(h, &rows.unseen.0, Some(&rows.unseen.1))?;
        }
        Ok(())
    }

    /// Learns the rows in memory anew, given their targets, as noisy as they are beside others; then its hyperparameters.
    pub(super) fn weigh(
        &mut self,
        memory: &Memory,
        targets: &[Target],
        noise: Option<RelativeNoise>,
        settings: &Settings,
    ) -> Result<()> {
        self.encoder.set_relative_noise(noise);
        let h = self.encoder.encode_all(&memory.rows.x)?;
        let dim = self.encoder.map().output_dim();
        let row = |i: usize| {
            let relative = self.encoder.relative_noise(&h[i * dim..(i + 1) * dim]);
            (targets[i].value, targets[i].noise * relative)
        };
        let stats = start::observed(memory, settings, self.first().stats().lattice(), &h, row)?;
        self.processes[0].model.replace_stats(stats)?;
        self.refit(&frugal(self.count()))
    }

    /// Learns everything another learner has learned, in whose targets the given shift is subtracted and the scale
    /// divided by first. `places[c]` says which of its processes is ours with number c; `None` for a class that it has
    /// never seen.
    pub(crate) fn merge(
        &mut self,
        other: &Self,
        (shift, scale): (f64, f64),
        places: &[Option<usize>],
    ) -> Result<()> {
        let theirs = |stats: &Stats| -> Result<Stats> {
            let mut stats = stats.clone();
            stats.standardize_targets(shift, scale)?;
            Ok(stats)
        };
        let unknown = || Error::Unsupported {
            operation: "merge",
            reason: "one model does not know a class of the other",
        };
        let (mut processes, mut unseen) = (self.processes.clone(), self.unseen.clone());
        for (process, place) in processes.iter_mut().zip(places) {
            let (stats, hits) = match place {
                Some(c) => (other.processes[*c].model.stats(), other.processes[*c].hits),
                None => (other.unseen.as_ref().ok_or_else(unknown)?, Some(0.0)),
            };
            process.model.merge_stats(&theirs(stats)?)?;
            process.hits = process.hits.zip(hits).map(|(own, theirs)| own + theirs);
            process.evaluate(&self.space)?;
        }
        if let Some(stats) = &mut unseen {
            stats.merge(&theirs(other.unseen.as_ref().ok_or_else(unknown)?)?)?;
        }
        (self.processes, self.unseen) = (processes, unseen);
        Ok(())
    }

    /// Adds a process for a class that no row so far belongs to, with typical hyperparameters.
    pub(crate) fn add_unseen(&mut self, settings: &Settings) -> Result<()> {
        let Some(unseen) = &self.unseen else {
            let reason = "the model was not told to expect new classes";
            return Err(Error::Unsupported { operation: "adding a class", reason });
        };
        let typical = self.typical(&self.first().hyperparameters())?;
        let mut model = start::process(settings, unseen.lattice(), &typical)?;
        model.replace_stats(unseen.clone())?;
        self.processes.push(Process::new(model, Some(0.0)));
        self.begin_steps(settings.schedule)
    }

    /// The same encoder and hyperparameters, and nothing learned.
    pub(crate) fn cleared(&self) -> Result<Self> {
        let mut empty = self.clone();
        for process in &mut empty.processes {
            process.model = process.model.cleared()?;
            process.hits = process.hits.map(|_| 0.0);
        }
        empty.unseen = self.unseen.as_ref().map(Stats::cleared).transpose()?;
        empty.rows_since_refit = 0.0;
        Ok(empty)
    }

    /// Ends learning of the feature map.
    pub(crate) fn freeze(&mut self) -> Result<()> {
        self.encoder.freeze()
    }
}
