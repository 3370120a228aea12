//! Numbers as targets of a stream: their scale, what outliers count, how residuals are distributed, and what keeps intervals
//! at their level.

use serde::{Deserialize, Serialize};

use super::OnlineGp;
use super::beyond;
use super::corrections::Corrections;
use super::encoder::Encoder;
use super::guard::Guard;
use super::learner::{Learner, Process, RowTargets};
use super::memory::Memory;
use super::missing::Donors;
use super::schedule::{Fading, thorough};
use super::settings::{NoiseModel, Settings, TargetScaling};
use super::snapshots::Snapshot;
use super::spread::Spread;
use super::start;
use super::tails::Tails;
use super::targets::{TargetMoments, TargetScale};
use super::task::Task;
use crate::conformal::{Conformal, Horizon, Interval, Quantiles, Score};
use crate::error::{Error, Result};
use crate::feature::{FeatureMap, Identity};
use crate::learn::{HyperSpace, Hyperparameters};
use crate::likelihood::Target;
use crate::posterior::Prediction;
use crate::stats::Stats;

/// The smallest known noise variance, as a share of the variance of the targets.
const LEAST_NOISE: f64 = 1e-10;

/// Numbers as targets: one process, in units that follow the mean and deviation of the targets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Regression {
    pub(super) moments: TargetMoments,
    pub(super) scale: TargetScale,
    /// What keeps intervals at their level; `None` for Gaussian ones.
    #[serde(default)]
    pub(super) conformal: Option<Conformal>,
    /// What keeps outliers from counting.
    #[serde(default)]
    pub(super) guard: Guard,
    /// How residuals are distributed.
    #[serde(default)]
    pub(super) tails: Tails,
    /// How those of rows elsewhere are, where the stream moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tails_ahead: Option<Tails>,
    /// The log density of the last target, as it was before.
    #[serde(skip)]
    pub(super) log_density: f64,
    /// The level of the running figures and its Gaussian quantile, so that it is not computed for every row.
    #[serde(skip)]
    plain: (f64, f64),
    /// Whether the noise of each row is known, and no row an outlier.
    #[serde(skip)]
    knows_noise: bool,
    #[serde(skip)]
    target: Option<Target>,
}

impl Regression {
    pub(super) fn new(moments: TargetMoments, scale: TargetScale) -> Self {
        Self {
            moments,
            scale,
            conformal: None,
            guard: Guard::default(),
            tails: Tails::default(),
            tails_ahead: None,
            log_density: 0.0,
            plain: (0.0, 0.0),
            knows_noise: false,
            target: None,
        }
    }

    /// The interval of an observation at a level.
    pub(super) fn interval(&self, prediction: &Prediction, level: f64, horizon: Horizon) -> Result<Interval> {
        match &self.conformal {
            Some(conformal) => Ok(Interval::around(prediction, conformal.quantile(level, horizon)?)),
            None if level == self.plain.0 => Ok(Interval::around(prediction, self.plain.1)),
            None => Interval::gaussian(prediction, level),
        }
    }

    /// Keeps intervals as the settings ask for, by the controller that a file held, if it did.
    pub(super) fn promise(&mut self, settings: &Settings) -> Result<()> {
        let level = settings.intervals.level;
        self.knows_noise = settings.noise == NoiseModel::Known;
        self.conformal = restored_controller(self.conformal.take(), settings.intervals.controller(false)?);
        self.plain = (level, Score::Deviations.plain(level));
        Ok(())
    }

    /// Takes note of how far off a prediction was.
    pub(super) fn calibrate(&mut self, prediction: &Prediction, y: f64) {
        if let Some(conformal) = &mut self.conformal {
            conformal.observe((y - prediction.mean).abs() / prediction.std());
        }
        self.log_density = self.tails.observe(prediction, y);
    }

    /// The scale that suits the targets so far.
    fn present_scale(&self, settings: &Settings) -> TargetScale {
        match settings.targets {
            TargetScaling::None => TargetScale::IDENTITY,
            TargetScaling::Running => TargetScale { shift: self.moments.mean, scale: self.moments.std() },
        }
    }

    /// The hyperparameters to start with, and how they are learned.
    fn start_values(&self, settings: &Settings, input_dim: usize) -> Result<(Hyperparameters, HyperSpace)> {
        let kernels = vec![settings.start_kernel(input_dim)?];
        let known = settings.noise == NoiseModel::Known;
        let noise = if known { self.scale.scale.powi(-2) } else { settings.initial_noise };
        let hyper = Hyperparameters { kernels, noise };
        let space = settings.hyper_space(&hyper)?;
        Ok((hyper, space))
    }

    /// A learner of rows that only their statistics are left of, on a grid of scaled columns.
    pub(super) fn start_from_stats(&mut self, mut stats: Stats, settings: &Settings) -> Result<Learner> {
        let dim = stats.lattice().dim();
        let scaling = start::column_scaling(settings, &[], dim)?;
        self.scale = self.present_scale(settings);
        let settings = &settings.in_scaled_units(&scaling, self.scale, dim)?;
        let (hyper, space) = self.start_values(settings, dim)?;
        let map = FeatureMap::from(Identity::new(dim));
        let moments = map.new_moments();
        stats.standardize_targets(self.scale.shift, self.scale.scale)?;
        let mut model = start::process(settings, stats.lattice(), &hyper)?;
        model.replace_stats(stats)?;
        if settings.fit_warm_up && model.count() >= 2.0 {
            model.refit(&space, &thorough())?;
        }
        let (encoder, processes) = (Encoder::new(scaling, map, moments), vec![Process::new(model, None)]);
        Learner::new(encoder, processes, None, space, None, Fading::default(), settings.schedule)
    }
}

impl Task for Regression {
    type Snapshot = Snapshot;

    const IS_NUMBER: bool = true;

    fn row(&mut self, y: f64, noise: f64) -> RowTargets<'_> {
        let row = RowTargets::of_value(self.target.insert(Target { value: self.scale.apply(y), noise }));
        RowTargets { reach: if self.knows_noise { f64::INFINITY } else { self.guard.reach() }, ..row }
    }

    fn check_noise(&self, noise: f64, settings: &Settings) -> Result<()> {
        let least = LEAST_NOISE * self.moments.std().powi(2);
        if settings.noise != NoiseModel::Known || self.moments.weight < 2.0 || noise >= least {
            return Ok(());
        }
        let reason = format!(
            "a variance of {noise:e} is too small beside the targets; at least {least:.1e} is needed"
        );
        Err(Error::Config { field: "noise".into(), reason })
    }

    fn observed(&mut self, x: &[f64], y: f64, out: Option<(bool, f64)>) {
        if let Some((is_out, factor)) = out {
            self.guard.observed(x, y, factor, is_out);
        }
        if out.is_none_or(|(_, factor)| factor == 1.0) {
            self.moments.observe(y);
        }
    }

    fn reinstated(&mut self) -> Vec<(Vec<f64>, f64, f64)> {
        self.guard.reinstated()
    }

    fn discount(&self, x: &[f64], y: f64) -> f64 {
        self.guard.factor(x, y)
    }

    fn outliers(&self) -> u64 {
        self.guard.count()
    }

    fn observe_left_out(&mut self, scores: Vec<f64>, is_moving: bool) {
        self.tails_ahead = is_moving.then(|| Tails::of(&scores));
        if let Some(conformal) = &mut self.conformal {
            conformal.observe_left_out(scores);
        }
    }

    fn log_density(&self, said: &[Prediction], y: f64, farthest: f64) -> f64 {
        let (mean, far) = (said[0].mean, farthest * said[0].std());
        said[0].log_density(self.scale.apply(y).clamp(mean - far, mean + far)) - self.scale.scale.ln()
    }

    fn forgotten(&mut self, x: &[f64], y: f64) {
        if self.guard.factor(x, y) == 1.0 {
            self.moments.forget(y);
        }
        self.guard.forgotten(x, y);
    }

    fn is_ready(&self, _: &Memory) -> Result<bool> {
        Ok(true)
    }

    fn start(&mut self, memory: &Memory, settings: &Settings, input_dim: usize) -> Result<Learner> {
        let (x, own) = (&memory.rows.x, &memory.rows.y);
        let outliers = if self.knows_noise { None } else { self.guard.factors(x, input_dim, own) };
        if let Some(factors) = &outliers {
            // Neither the scale of the targets nor anything that is learned in it is theirs.
            self.moments = TargetMoments::default();
            let inside = memory.rows.y.iter().zip(factors).filter(|(_, factor)| **factor == 1.0);
            inside.for_each(|(&y, _)| self.moments.observe(y));
            self.guard.learned_anew(x, input_dim, own, factors);
        }
        self.scale = self.present_scale(settings);
        let scaling = start::column_scaling(settings, &memory.rows.x, input_dim)?;
        let settings = &settings.in_scaled_units(&scaling, self.scale, input_dim)?;
        let start = self.start_values(settings, input_dim)?;
        let y: Vec<f64> = memory.rows.y.iter().map(|&y| self.scale.apply(y)).collect();
        let mut noise = memory.rows.noise.clone();
        if let Some(factors) = &outliers {
            noise.iter_mut().zip(factors).for_each(|(noise, factor)| *noise *= factor);
        }
        let targets = [(y, noise)];
        let all = start::Targets { each: &targets, contrast: 0, classes: None };
        let found = start::found(memory, &all, settings, input_dim, start)?;
        found.learner(memory, &targets, None, None, settings)
    }

    fn rescale(&mut self, learner: &mut Learner, settings: &Settings) -> Result<f64> {
        if settings.targets == TargetScaling::None || self.moments.weight < 2.0 {
            return Ok(1.0);
        }
        let (old, new) = (self.scale, self.present_scale(settings));
        let growth = new.scale / old.scale;
        learner.rescale_targets((new.shift - old.shift) / old.scale, growth)?;
        self.scale = new;
        Ok(growth)
    }

    fn adopt(&mut self, found: &Self) {
        self.scale = found.scale;
        if found.guard.count() > self.guard.count() {
            (self.guard, self.moments) = (found.guard.clone(), found.moments);
        }
    }

    fn snapshot(
        &self,
        learner: &Learner,
        corrections: Option<Corrections>,
        spread: Option<Spread>,
        donors: Option<Donors>,
        settings: &Settings,
    ) -> Result<Snapshot> {
        let known_noise = settings.noise == NoiseModel::Known;
        let (encoder, predictor) = (learner.encoder().fixed()?, learner.first().predictor()?);
        let variances = beyond::variances(learner.first().kernels());
        let quantiles = |horizon| match &self.conformal {
            Some(conformal) => conformal.quantiles(horizon),
            None => Quantiles::plain(Score::Deviations),
        };
        let intervals = [quantiles(Horizon::Next), quantiles(Horizon::Ahead)];
        let (scale, off_grid) = (self.scale, settings.off_grid);
        Ok(Snapshot {
            encoder,
            predictor,
            variances,
            corrections,
            spread,
            donors,
            scale,
            known_noise,
            off_grid,
            intervals,
        })
    }

    fn cleared(&self) -> Self {
        let conformal = self.conformal.as_ref().map(Conformal::cleared);
        let knows_noise = self.knows_noise;
        Self { conformal, knows_noise, plain: self.plain, ..Self::new(TargetMoments::default(), self.scale) }
    }

    fn merge(&mut self, learner: &mut Learner, theirs: &Self, other: &Learner, _: &Settings) -> Result<()> {
        // Their statistics in our units.
        let shift = (self.scale.shift - theirs.scale.shift) / theirs.scale.scale;
        learner.merge(other, (shift, self.scale.scale / theirs.scale.scale), &[Some(0)])?;
        self.moments.merge(&theirs.moments);
        if let (Some(own), Some(theirs)) = (&mut self.conformal, &theirs.conformal) {
            own.merge(theirs);
        }
        Ok(())
    }
}

/// The controller that a file held, if it is of the kind and levels that the settings ask for; a file of earlier versions
/// has none.
pub(super) fn restored_controller(found: Option<Conformal>, wanted: Option<Conformal>) -> Option<Conformal> {
    let wanted = wanted?;
    let same = |found: &Conformal| found.cleared() == wanted.cleared();
    Some(found.filter(same).unwrap_or(wanted))
}
