//! A surrogate without a grid, for the first results: an exact process on all of them.
//!
//! A grid's points are apart; what a function does in between, a smooth kernel can tell only as well as cubic
//! interpolation can. That is nothing beside noise, but without noise it is what keeps a search from the last
//! digits of an optimum. The exact process has no such limit, and for a few hundred results it costs no more.

use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::super::OptimizerSettings;
use super::{FIRST_NOISE, in_coordinates, scale_of, thorough};
use crate::error::{Error, Result, length};
use crate::exact::{ExactProcess, KernelPosterior, PathSample};
use crate::kernel::{Family, Kernel};
use crate::learn::{Adam, HyperSpace, Hyperparameters, LbfgsB, Rows};
use crate::model::{Schedule, TargetScale, brief};
use crate::posterior::Prediction;
use crate::saved::{Restore, restored_after_reading};

/// Up to so many results every one is followed by a fit.
const EACH_UNTIL: usize = 100;

/// A fit begins from the start again when there are so many results, and whenever they have doubled since.
const FIRST_RESTART: usize = 50;

/// An exact process over [−1, 1]^d with the scale of its values, of which large ones are wanted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct ExactSurrogate {
    process: ExactProcess,
    space: HyperSpace,
    scale: TargetScale,
    /// For one step of the hyperparameters a result.
    adam: Option<Adam>,
    since_refit: f64,
    /// The number of results when a fit last began from the start.
    restarted_at: usize,
    /// Whether a grid would have been too coarse.
    pub(super) stays: bool,
    /// What went wrong beside the results.
    #[serde(skip)]
    pub(super) failure: Option<Error>,
}

restored_after_reading!(ExactSurrogate);

impl Restore for ExactSurrogate {
    fn restore(&mut self) -> Result<()> {
        self.space.check_fits(&self.process.hyperparameters()?)?;
        self.scale.check()?;
        let unknowns = self.space.dim();
        self.adam.as_ref().map_or(Ok(()), |a| length("coordinates of the optimizer", unknowns, a.dim()))
    }
}

impl ExactSurrogate {
    /// Whether a kernel's family can do without a grid.
    pub(super) fn can_have(family: Family) -> bool {
        matches!(family, Family::Rbf | Family::Matern12 | Family::Matern32 | Family::Matern52)
    }

    /// A process fitted to the first results.
    pub(super) fn new(dim: usize, settings: &OptimizerSettings, all: &Rows) -> Result<Self> {
        let scale = scale_of(all);
        let noise = if settings.known_noise { scale.scale.powi(-2) } else { FIRST_NOISE };
        let mut process = ExactProcess::new(settings.family, dim, noise)?;
        let mut hyper = process.hyperparameters()?;
        let mut space = HyperSpace::new(&hyper);
        if settings.known_noise {
            space = space.with_known_noise();
        }
        for (name, prior) in &settings.priors {
            space = space.with_prior(name, in_coordinates(name, *prior, 1))?;
        }
        first(&mut hyper);
        process.set_hyperparameters(&hyper)?;
        let mut rows = all.clone();
        rows.y.iter_mut().for_each(|y| *y = (*y - scale.shift) / scale.scale);
        process.observe_rows(&rows)?;
        process.refit(&space, &thorough())?;
        let adam = match settings.schedule {
            Schedule::EveryStep { rate } => Some(Adam::new(space.dim(), rate)?),
            Schedule::Geometric { .. } | Schedule::Off => None,
        };
        Ok(Self {
            process,
            space,
            scale,
            adam,
            since_refit: 0.0,
            restarted_at: all.len().max(FIRST_RESTART / 2),
            stays: false,
            failure: None,
        })
    }

    pub(super) fn process(&self) -> &ExactProcess {
        &self.process
    }

    pub(super) fn scale(&self) -> TargetScale {
        self.scale
    }

    pub(super) fn predict(&self, x: &[f64]) -> Result<Prediction> {
        Ok(self.scale.undo(self.process.predict(x)?))
    }

    pub(super) fn posterior(&self) -> KernelPosterior {
        self.process.posterior()
    }

    pub(super) fn sample(&self, rng: &mut Xoshiro256PlusPlus) -> Result<PathSample> {
        self.process.sample(rng)
    }

    /// Predicts the last result, then learns it.
    pub(super) fn observe(&mut self, settings: &OptimizerSettings, all: &Rows) -> Result<Prediction> {
        let (last, dim) = (all.len() - 1, self.process.dim());
        let (x, noise) = (&all.x[last * dim..], all.noise[last]);
        let before = self.process.predict(x)?;
        let before = self.scale.undo(Prediction { noise: before.noise * noise, ..before });
        self.process.observe(x, self.scale.apply(all.y[last]), noise)?;
        self.since_refit += 1.0;
        // The result is learned: what fails from here on is reported apart.
        self.failure = self.maintain(settings.schedule).err().or(self.failure.take());
        Ok(before)
    }

    /// Lets the hyperparameters follow.
    fn maintain(&mut self, schedule: Schedule) -> Result<()> {
        if let Some(adam) = &mut self.adam {
            let (mut hyper, mut gradient) = (self.process.hyperparameters()?, vec![0.0; self.space.dim()]);
            let count = self.process.count() as f64;
            self.space.objective(count, &hyper, &self.process.evidence(), &mut gradient)?;
            self.space.adam_step(adam, &mut hyper, &gradient)?;
            return self.process.set_hyperparameters(&hyper);
        }
        if self.is_due(schedule) { self.refit(&brief()) } else { Ok(()) }
    }

    /// On a geometric schedule the first results are each followed by a fit: it takes milliseconds, and among few
    /// results every one can change what the kernel should be.
    fn is_due(&self, schedule: Schedule) -> bool {
        let is_early = matches!(schedule, Schedule::Geometric { .. }) && self.process.count() < EACH_UNTIL;
        is_early || schedule.is_due(self.since_refit, self.process.count() as f64)
    }

    /// Fits the hyperparameters to convergence.
    pub(super) fn converge(&mut self) -> Result<()> {
        self.refit(&thorough())
    }

    fn refit(&mut self, optimizer: &LbfgsB) -> Result<()> {
        let own = scale_of(self.process.rows());
        self.process.rescale_targets(own.shift, own.scale)?;
        let TargetScale { shift, scale } = self.scale;
        self.scale = TargetScale { shift: shift + scale * own.shift, scale: scale * own.scale };
        let fitted = self.process.refit(&self.space, optimizer)?;
        self.since_refit = 0.0;
        if self.process.count() >= 2 * self.restarted_at {
            self.restart(fitted.value)?;
        }
        Ok(())
    }

    /// Fits once more from the start, whenever the results have doubled: what few of them took for waves of the
    /// function, more of them may show to be noise, and no small step leads from one to the other.
    fn restart(&mut self, reached: f64) -> Result<()> {
        self.restarted_at = self.process.count();
        let (mut other, mut hyper) = (self.process.clone(), self.process.hyperparameters()?);
        if self.space.dim() == hyper.named().len() {
            hyper.noise = FIRST_NOISE; // it is not known but learned
        }
        hyper.kernels[0] = Kernel::new(self.process.kernel().family(), self.process.dim())?;
        first(&mut hyper);
        other.set_hyperparameters(&hyper)?;
        if other.refit(&self.space, &thorough())?.value < reached {
            self.process = other;
        }
        Ok(())
    }
}

/// A kernel's variance to start from: 1 suits standardized values.
fn first(hyper: &mut Hyperparameters) {
    let variance = hyper.kernels[0].variance();
    hyper.kernels[0] = hyper.kernels[0].clone().scaled(variance.recip());
}
