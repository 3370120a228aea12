//! What exists of a regressor after the warm-up, and what happens to a row there.

use serde::{Deserialize, Serialize};

use super::encoder::Encoder;
use super::images::Snapshot;
use super::settings::{NoiseModel, Schedule, Settings, TargetScaling};
use super::stream::{self, Fading};
use super::targets::{TargetMoments, TargetScale};
use super::{OnlineGp, Outcome, Wiski};
use crate::error::{Result, finite, length};
use crate::feature::{FeatureMap, Identity};
use crate::learn::{Adam, Choice, HyperSpace, Hyperparameters, LbfgsB, Rows};
use crate::posterior::{Prediction, PredictionGradient};
use crate::saved::{Restore, restored_after_reading};
use crate::stats::Stats;

/// What exists after the warm-up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct Running {
    pub(super) encoder: Encoder,
    pub(super) model: Wiski,
    pub(super) space: HyperSpace,
    pub(super) scale: TargetScale,
    pub(super) choice: Option<Choice>,
    /// For one step per observation: the optimiser and the gradient at the present posterior.
    every_step: Option<(Adam, Vec<f64>)>,
    pub(super) rows_since_refit: f64,
    pub(super) refits: usize,
    fading: Fading,
    /// Reused from row to row: the prediction with its gradient, and the way down for the features.
    #[serde(skip)]
    gradient: PredictionGradient,
    #[serde(skip)]
    downhill: Vec<f64>,
}

restored_after_reading!(Running);

impl Restore for Running {
    fn restore(&mut self) -> Result<()> {
        length("coordinates", self.model.input_dim(), self.encoder.map().output_dim())?;
        self.space.check_fits(&self.model.hyperparameters())?;
        if let Some((adam, gradient)) = &self.every_step {
            length("coordinates of the optimiser", self.space.dim(), adam.dim())?;
            length("gradient", self.space.dim(), gradient.len())?;
        }
        if let Some((_, gradient)) = &self.every_step {
            gradient.iter().try_for_each(|&g| finite("gradient", g, 0))?;
        }
        finite("rows since the last refit", self.rows_since_refit, 0)?;
        self.fading.check()?;
        self.scale.check()
    }
}

impl Running {
    /// The scale of the targets to start with.
    fn start_scale(settings: &Settings, targets: &TargetMoments) -> TargetScale {
        match settings.targets {
            TargetScaling::None => TargetScale::IDENTITY,
            TargetScaling::Running => TargetScale { shift: targets.mean, scale: targets.std() },
        }
    }

    /// The hyperparameters to start with, and how they are learned.
    fn start_values(
        settings: &Settings,
        input_dim: usize,
        scale: TargetScale,
    ) -> Result<(Hyperparameters, HyperSpace)> {
        let kernels = vec![settings.start_kernel(input_dim)?];
        let known = settings.noise == NoiseModel::Known;
        let noise = if known { scale.scale.powi(-2) } else { settings.initial_noise };
        let hyper = Hyperparameters { kernels, noise };
        let space = settings.hyper_space(&hyper)?;
        Ok((hyper, space))
    }

    /// A model of rows that only their statistics are left of, on a grid of scaled columns.
    pub(super) fn of_stats(mut stats: Stats, settings: &Settings, targets: &TargetMoments) -> Result<Self> {
        let dim = stats.lattice().dim();
        let scaling = stream::column_scaling(settings, &[], dim)?;
        let scale = Self::start_scale(settings, targets);
        let settings = &settings.in_scaled_units(&scaling, scale, dim)?;
        let (hyper, space) = Self::start_values(settings, dim, scale)?;
        let map = FeatureMap::from(Identity::new(dim));
        let moments = map.new_moments();
        stats.standardize_targets(scale.shift, scale.scale)?;
        let mut model = stream::process(settings, stats.lattice(), &hyper)?;
        model.replace_stats(stats)?;
        if settings.fit_warm_up && model.count() >= 2.0 {
            model.refit(&space, &stream::thorough())?;
        }
        Self::assemble(
            Encoder::new(scaling, map, moments),
            model,
            space,
            scale,
            None,
            Fading::default(),
            settings,
        )
    }

    /// Puts the parts together; for one step per observation the first gradient is computed.
    fn assemble(
        encoder: Encoder,
        model: Wiski,
        space: HyperSpace,
        scale: TargetScale,
        choice: Option<Choice>,
        fading: Fading,
        settings: &Settings,
    ) -> Result<Self> {
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

    pub(super) fn start(
        rows: &Rows,
        times: &[f64],
        settings: &Settings,
        input_dim: usize,
        targets: &TargetMoments,
    ) -> Result<Self> {
        let scaling = stream::column_scaling(settings, &rows.x, input_dim)?;
        let scale = Self::start_scale(settings, targets);
        let settings = &settings.in_scaled_units(&scaling, scale, input_dim)?;
        let mut scaled = Rows::default();
        let mut row = Vec::new();
        for (i, x) in rows.x.chunks_exact(input_dim).enumerate() {
            scaling.apply(x, &mut row)?;
            scaled.push(&row, scale.apply(rows.y[i]), rows.noise[i]);
        }

        let (hyper, space) = Self::start_values(settings, input_dim, scale)?;
        let lattice = stream::lattice(settings, input_dim)?;
        let (warm, choice, lattice) = stream::features(&scaled, settings, lattice, hyper, space)?;
        let space = warm.space().clone();
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
        Self::assemble(encoder, model, space, scale, choice, fading, settings)
    }

    pub(super) fn learn(
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
            let optimiser =
                if settings.is_additive() { stream::frugal(self.model.count()) } else { stream::brief() };
            self.refit(settings, targets, &optimiser)?;
        }
        Ok((outcome, prediction))
    }

    /// For one step per observation: objective, gradient and posterior at the present hyperparameters.
    pub(super) fn evaluate(&mut self) -> Result<()> {
        if let Some((_, gradient)) = &mut self.every_step {
            self.model.evaluate(&self.space, gradient)?;
        }
        Ok(())
    }

    /// Brings the targets' scale up to date and refits the hyperparameters.
    pub(super) fn refit(
        &mut self,
        settings: &Settings,
        targets: &TargetMoments,
        optimiser: &LbfgsB,
    ) -> Result<()> {
        if settings.targets == TargetScaling::Running && targets.weight >= 2.0 {
            let new = TargetScale { shift: targets.mean, scale: targets.std() };
            let factor = new.scale / self.scale.scale;
            self.space.rescale_fixed(&self.model.hyperparameters(), factor);
            self.model.rescale_targets((new.shift - self.scale.shift) / self.scale.scale, factor)?;
            self.scale = new;
        }
        self.model.refit(&self.space, optimiser)?;
        self.rows_since_refit = 0.0;
        self.refits += 1;
        Ok(())
    }

    pub(super) fn snapshot(&self, noise: NoiseModel) -> Result<Snapshot> {
        let known_noise = noise == NoiseModel::Known;
        let predictor = self.model.predictor()?;
        Ok(Snapshot { encoder: self.encoder.fixed()?, predictor, scale: self.scale, known_noise })
    }
}
