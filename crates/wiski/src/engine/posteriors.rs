//! The posteriors of the three engines behind one interface.

use std::sync::Arc;

use super::{Given, GridPosterior};
use crate::error::Result;
use crate::evidence::{self, Evidence};
use crate::interp::Weights;
use crate::kernel::Kernel;
use crate::large::{KrylovPosterior, SparsePosterior};
use crate::pool::Pool;
use crate::posterior::{
    Drift, FunctionSample, Posterior, Prediction, PredictionGradient, Predictor, Workspace,
};
use crate::stats::Stats;

impl GridPosterior for Posterior {
    fn name(&self) -> &'static str {
        "dense"
    }

    fn rank(&self) -> usize {
        Posterior::rank(self)
    }

    fn noise(&self) -> f64 {
        Posterior::noise(self)
    }

    #[inline]
    fn predict(&self, _: &Stats, h: &[f64], ws: &mut Workspace) -> Result<Prediction> {
        Posterior::predict(self, h, ws)
    }

    fn predict_gradient(
        &self,
        _: &Stats,
        h: &[f64],
        ws: &mut Workspace,
        out: &mut PredictionGradient,
    ) -> Result<()> {
        self.predict_gradient_into(h, ws, out)
    }

    fn predict_beyond(
        &self,
        kernels: &[Kernel],
        h: &[f64],
        ws: &mut Workspace,
        out: &mut PredictionGradient,
    ) -> Result<()> {
        self.predict_inside(h, ws, out)?;
        let mut rest = h;
        for (grid, kernel) in self.lattice().grids().iter().zip(kernels) {
            let (own, others) = rest.split_at(grid.dim());
            rest = others;
            if Weights::locate(grid, own).is_none() {
                out.prediction.variance += kernel.variance();
            }
        }
        Ok(())
    }

    fn joint(&self, _: &Stats, h: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
        Posterior::joint(self, h, &mut Workspace::default())
    }

    fn predictor(&self, _: &Stats) -> Result<Arc<Predictor>> {
        Ok(Arc::new(Posterior::predictor(self)))
    }

    fn sample(&self, _: &Stats, rng: &mut dyn rand::Rng) -> Result<FunctionSample> {
        self.sample_with(rng)
    }

    fn log_evidence(&self, stats: &Stats, _: &[Kernel]) -> Result<f64> {
        let (prior, pool) = (self.prior().clone(), &mut Pool::default());
        let whitened = stats.whiten(&prior, pool);
        let fresh = Self::from_whitened(prior, &whitened, self.noise(), pool)?;
        Ok(evidence::value(stats, &whitened, &fresh))
    }

    fn evidence(&self, stats: &Stats, kernels: &[Kernel]) -> Result<Evidence> {
        let (prior, pool) = (self.prior().clone(), &mut Pool::default());
        Ok(Evidence::of_prior(stats, kernels, prior, self.noise(), pool)?.0)
    }

    fn shares(&self, stats: &Stats) -> Vec<f64> {
        Posterior::shares(self, stats)
    }

    fn may_lag(&self, _: f64) -> usize {
        0
    }

    fn refit_ratio(&self) -> f64 {
        // An evaluation of p³ takes a millisecond up to here, and a tenth of a second at three times the rank.
        if Posterior::rank(self) <= 300 { 1.0 } else { 1.3 }
    }

    fn rescale(&mut self, given: &Given) -> Result<bool> {
        Posterior::rescale(self, given.kernels, given.stats, given.noise)?;
        Ok(true)
    }

    fn drift(&self, stats: &Stats, ws: &mut Workspace) -> Option<Drift> {
        Some(Posterior::drift(self, stats, ws))
    }

    fn in_coordinates(&self) -> Result<&Posterior> {
        Ok(self)
    }

    fn in_coordinates_mut(&mut self) -> Result<&mut Posterior> {
        Ok(self)
    }

    fn recycle(self: Box<Self>, pool: &mut Pool) {
        Posterior::recycle(*self, pool);
    }

    fn boxed(&self) -> Box<dyn GridPosterior> {
        Box::new(self.clone())
    }
}

impl GridPosterior for KrylovPosterior {
    fn name(&self) -> &'static str {
        "krylov"
    }

    fn rank(&self) -> usize {
        KrylovPosterior::rank(self)
    }

    fn noise(&self) -> f64 {
        KrylovPosterior::noise(self)
    }

    fn joint(&self, stats: &Stats, h: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
        KrylovPosterior::joint(self, stats, h)
    }

    fn predictor(&self, stats: &Stats) -> Result<Arc<Predictor>> {
        self.image(stats)
    }

    fn refit_ratio(&self) -> f64 {
        1.5 // five evaluations of up to a second, and an image of several
    }

    fn keep_variances(&mut self, before: &dyn GridPosterior, stats: &Stats, rows: usize) {
        if let Some(before) = before.iterated() {
            self.keep_image(before, stats, rows);
        }
    }

    fn is_current(&self) -> bool {
        KrylovPosterior::is_current(self)
    }

    fn sample(&self, stats: &Stats, rng: &mut dyn rand::Rng) -> Result<FunctionSample> {
        KrylovPosterior::sample(self, stats, rng)
    }

    fn log_evidence(&self, stats: &Stats, kernels: &[Kernel]) -> Result<f64> {
        Ok(GridPosterior::evidence(self, stats, kernels)?.value)
    }

    fn evidence(&self, stats: &Stats, kernels: &[Kernel]) -> Result<Evidence> {
        Ok(KrylovPosterior::evidence(self, stats, &kernels[0])?.0)
    }

    fn iterated(&self) -> Option<&KrylovPosterior> {
        Some(self)
    }

    fn boxed(&self) -> Box<dyn GridPosterior> {
        Box::new(self.clone())
    }
}

impl GridPosterior for SparsePosterior {
    fn name(&self) -> &'static str {
        "sparse"
    }

    fn refit_ratio(&self) -> f64 {
        1.25 // five evaluations of up to a tenth of a second
    }

    fn may_lag(&self, count: f64) -> usize {
        let behind = ((count / 10.0) as usize).max(16);
        // On a line two thousand points take a millisecond at most, and along a clock the newest rows say most.
        match (self.lattice().dim(), self.rank()) {
            (1, ..=2000) => 0,
            (1, points) => behind.min(points / 150),
            _ => behind,
        }
    }

    fn rank(&self) -> usize {
        self.mean().len()
    }

    fn noise(&self) -> f64 {
        SparsePosterior::noise(self)
    }

    fn joint(&self, _: &Stats, h: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
        SparsePosterior::joint(self, h)
    }

    fn predictor(&self, _: &Stats) -> Result<Arc<Predictor>> {
        Ok(self.image.get_or_init(|| Arc::new(SparsePosterior::predictor(self))).clone())
    }

    fn sample(&self, _: &Stats, rng: &mut dyn rand::Rng) -> Result<FunctionSample> {
        self.sample_with(rng)
    }

    fn log_evidence(&self, stats: &Stats, _: &[Kernel]) -> Result<f64> {
        SparsePosterior::log_evidence(self, stats)
    }

    fn evidence(&self, stats: &Stats, _: &[Kernel]) -> Result<Evidence> {
        SparsePosterior::evidence(self, stats)
    }
    fn boxed(&self) -> Box<dyn GridPosterior> {
        Box::new(self.clone())
    }
}
