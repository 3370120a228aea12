//! What a model of numbers is apart from the rows it has learned: how rows become coordinates, where its grids lie, and
//! the hyperparameters to go on from. Statistics that were gathered elsewhere make it a model again.

use serde::{Deserialize, Serialize};

use super::encoder::Encoder;
use super::learner::{Learner, Process};
use super::metrics::Prequential;
use super::online::Online;
use super::regression::Regression;
use super::schedule::Fading;
use super::settings::{NoiseModel, Settings};
use super::start::growth_limit;
use super::targets::{TargetMoments, TargetScale};
use super::{OffGrid, OnlineRegressor, Wiski, WiskiBuilder};
use crate::error::{Error, Result, length};
use crate::feature::FeatureMap;
use crate::grid::{Growth, Lattice};
use crate::kernel::Kernel;
use crate::learn::{Choice, HyperSpace};
use crate::saved::{Restore, restored_after_reading};
use crate::stats::{Gram, Stats};

/// A model of numbers without what it has learned.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(crate) struct ModelShape {
    pub(crate) settings: Settings,
    pub(crate) input_dim: usize,
    pub(crate) scale: TargetScale,
    pub(crate) encoder: Encoder,
    pub(crate) lattice: Lattice,
    process: WiskiBuilder,
    kernels: Vec<Kernel>,
    space: HyperSpace,
    choice: Option<Choice>,
}

restored_after_reading!(ModelShape);

impl Restore for ModelShape {
    fn restore(&mut self) -> Result<()> {
        self.settings.check(self.input_dim)?;
        self.scale.check()?;
        length("columns", self.input_dim, self.encoder.input_dim())?;
        length("coordinates", self.lattice.dim(), self.encoder.map().output_dim())?;
        length("kernels", self.lattice.blocks(), self.kernels.len())?;
        self.encoder.require_fixed("a shape")
    }
}

/// Sums of targets in units of the shape: how many there are, Σy and Σy².
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct TargetSums {
    pub(crate) count: f64,
    pub(crate) first: f64,
    pub(crate) second: f64,
}

impl ModelShape {
    /// The shape of a model whose features no longer change.
    pub(crate) fn of(model: &OnlineRegressor) -> Result<Self> {
        let (online, learner) = model.settled_parts("a shape")?;
        let process = learner.first();
        let reject = |reason| Err(Error::Unsupported { operation: "a shape", reason });
        if online.settings.half_life.is_some() {
            return reject("old rows fade by their order, and partitions have none: set no half-life");
        }
        if !matches!(process.stats().gram(), Gram::Exact(_)) {
            return reject("a root of limited rank is no exact sum");
        }
        Ok(Self {
            settings: online.settings.clone(),
            input_dim: online.input_dim,
            scale: model.target_scale(),
            encoder: learner.encoder().clone(),
            lattice: process.stats().lattice().clone(),
            process: process.settings().clone(),
            kernels: process.kernels().to_vec(),
            space: learner.space().clone(),
            choice: learner.choice().cloned(),
        })
    }

    /// How far the grids may grow.
    pub(crate) fn room(&self) -> Growth {
        match self.settings.off_grid {
            OffGrid::Extend => self.lattice.room(growth_limit(&self.settings, &self.lattice)),
            OffGrid::Error | OffGrid::Prior => Growth::none(&self.lattice),
        }
    }

    /// Whether every row comes with its noise variance.
    pub(crate) fn knows_noise(&self) -> bool {
        self.settings.noise == NoiseModel::Known
    }

    /// The coordinates of rows given one after the other. Plain columns are scaled in one loop over all rows.
    pub(crate) fn encode(&mut self, x: &[f64], h: &mut Vec<f64>) -> Result<()> {
        h.clear();
        let scaling = self.encoder.scaling();
        if let (FeatureMap::Identity(_), None) = (self.encoder.map(), &scaling.read) {
            let d = self.input_dim;
            h.extend_from_slice(x);
            for k in 0..if x.is_empty() { 0 } else { d } {
                let (shift, factor, limit) = (scaling.shift[k], scaling.factor[k], scaling.limit[k]);
                h[k..].iter_mut().step_by(d).for_each(|v| *v = ((*v - shift) * factor).clamp(-limit, limit));
            }
            return Ok(());
        }
        for (row, x) in x.chunks_exact(self.input_dim).enumerate() {
            h.extend_from_slice(self.encoder.encode(x).map_err(|error| error.in_row(row))?);
        }
        Ok(())
    }

    /// The model of rows that only their sums are left of, with hyperparameters fitted to them.
    pub(crate) fn fit(&self, stats: Stats, targets: &TargetSums, ignored: u64) -> Result<OnlineRegressor> {
        if targets.count < 2.0 {
            let reason = "at least two rows are needed";
            return Err(Error::Unsupported { operation: "a fit from statistics", reason });
        }
        let process = Wiski::assemble(self.process.clone(), self.kernels.clone(), stats)?;
        let learner = Learner::new(
            self.encoder.clone(),
            vec![Process::new(process, None)],
            None,
            self.space.clone(),
            self.choice.clone(),
            Fading::default(),
            self.settings.schedule,
        )?;
        let TargetSums { count, first, second } = *targets;
        let mean = first / count;
        let moments = TargetMoments::of_sums(
            count,
            self.scale.shift + self.scale.scale * mean,
            (second - first * mean).max(0.0) * self.scale.scale.powi(2),
        );
        let task = Regression::new(moments, self.scale);
        let online =
            Online::of_learner(self.settings.clone(), self.input_dim, task, Box::new(learner), ignored);
        let mut model = OnlineRegressor::restored(online, Prequential::default(), 0)?;
        model.refit()?;
        Ok(model)
    }
}
