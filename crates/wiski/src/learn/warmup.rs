//! Learning a feature map together with the hyperparameters on rows that are still in memory: the warm-up of
//! a stream.
//!
//! For rows (x_i, y_i) with features h_i = h(x_i; φ), the evidence is a function of θ and φ. Its gradient in
//! φ goes through every interpolation weight, ∂ log p/∂h_i = [ (y_i − μ_i) ∂μ_i − ½ ∂v_i ]/(σ² d_i) at the
//! posterior of all rows, chained with the map's own backward pass. One evaluation costs O(p³ + n 16^d).

use std::sync::Arc;

use super::{Adam, Annealing, HyperSpace, Hyperparameters, LbfgsB};
use crate::error::{Result, length, positive};
use crate::feature::{FeatureMap, Moments, Normalizer, Tape};
use crate::grid::Lattice;
use crate::interrupt;
use crate::pool::Pool;
use crate::posterior::{Posterior, Prediction};
use crate::prior::Prior;
use crate::saved::{Restore, restored_after_reading};
use crate::stats::Stats;
use serde::{Deserialize, Serialize};

/// Rows in memory: inputs row after row, targets and, where known, relative noise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Rows {
    /// The inputs, row after row.
    #[serde(with = "crate::saved::floats")]
    pub x: Vec<f64>,
    /// The targets.
    #[serde(with = "crate::saved::floats")]
    pub y: Vec<f64>,
    /// The relative noise variances; 1 for plain data.
    #[serde(with = "crate::saved::floats")]
    pub noise: Vec<f64>,
}

restored_after_reading!(Rows);

impl Restore for Rows {
    fn restore(&mut self) -> Result<()> {
        length("noise", self.y.len(), self.noise.len())?;
        let whole =
            if self.y.is_empty() { self.x.is_empty() } else { self.x.len().is_multiple_of(self.y.len()) };
        if !whole {
            length("x", self.y.len(), self.x.len())?;
        }
        self.noise.iter().enumerate().try_for_each(|(row, &noise)| positive("noise", noise, row))
    }
}

impl Rows {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.y.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.y.is_empty()
    }

    /// Appends a row.
    pub fn push(&mut self, x: &[f64], y: f64, noise: f64) {
        self.x.extend_from_slice(x);
        self.y.push(y);
        self.noise.push(noise);
    }

    /// Takes back the last row, of `dim` columns.
    pub(crate) fn pop(&mut self, dim: usize) {
        self.x.truncate(self.x.len().saturating_sub(dim));
        self.y.pop();
        self.noise.pop();
    }

    /// The rows whose number satisfies the condition.
    pub(crate) fn filter(&self, keep: impl Fn(usize) -> bool) -> Self {
        let dim = self.x.len() / self.len().max(1);
        let mut rows = Self::default();
        for i in (0..self.len()).filter(|&i| keep(i)) {
            rows.push(&self.x[i * dim..(i + 1) * dim], self.y[i], self.noise[i]);
        }
        rows
    }
}

/// How long and how fast features and hyperparameters are learned together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WarmUpTraining {
    /// The number of full-batch Adam steps.
    pub epochs: usize,
    /// The learning rate of the hyperparameters.
    pub rate: f64,
    /// The learning rate of the feature map.
    pub feature_rate: f64,
    /// The rate to which both are annealed.
    pub end_rate: f64,
}

/// A feature map and hyperparameters on rows in memory.
#[derive(Debug, Clone)]
pub struct WarmUp {
    rows: Rows,
    map: FeatureMap,
    moments: Moments,
    lattice: Lattice,
    hyper: Hyperparameters,
    space: HyperSpace,
    tolerance: f64,
    pool: Pool,
    normalizer: Normalizer,
    tape: Tape,
    /// What the forward passes of the rows remember, for the way back.
    tapes: Vec<Tape>,
    h: Vec<f64>,
    /// The statistics of the rows, as long as neither they nor the map have changed.
    known: Option<Stats>,
    /// Statistics of an earlier map, whose memory serves again.
    spent: Option<Stats>,
}

impl WarmUp {
    /// Starts from the given map and hyperparameters.
    pub fn new(
        rows: Rows,
        map: FeatureMap,
        lattice: Lattice,
        hyper: Hyperparameters,
        space: HyperSpace,
        tolerance: f64,
    ) -> Result<Self> {
        let moments = map.moments_of(&rows.x)?;
        let h = vec![0.0; rows.len() * map.output_dim()];
        Ok(Self {
            rows,
            map,
            moments,
            lattice,
            hyper,
            space,
            tolerance,
            pool: Pool::default(),
            normalizer: Normalizer::default(),
            tape: Tape::new(),
            tapes: Vec::new(),
            h,
            known: None,
            spent: None,
        })
    }

    /// The feature map as it is now.
    pub fn map(&self) -> &FeatureMap {
        &self.map
    }

    /// The hyperparameters as they are now.
    pub fn hyperparameters(&self) -> &Hyperparameters {
        &self.hyper
    }

    /// Puts other hyperparameters in place of the present ones.
    pub(crate) fn set_hyperparameters(&mut self, hyper: Hyperparameters) {
        self.hyper = hyper;
    }

    /// The map, its moments and the hyperparameters.
    pub fn into_parts(self) -> (FeatureMap, Moments, Hyperparameters) {
        (self.map, self.moments, self.hyper)
    }

    /// The statistics of the rows under the present map, to be given back to `known`.
    fn stats(&mut self) -> Result<Stats> {
        match self.known.take() {
            Some(stats) => Ok(stats),
            None => self.observed(),
        }
    }

    /// The statistics of the rows, computed anew.
    fn observed(&mut self) -> Result<Stats> {
        let (d, k) = (self.map.input_dim(), self.map.output_dim());
        if let FeatureMap::Mlp(_) = self.map {
            self.moments = self.map.moments_of(&self.rows.x)?;
        }
        let view = self.map.prepare(&self.moments, &mut self.normalizer)?;
        self.tapes.resize_with(self.rows.len(), Tape::new);
        let rows = self.rows.x.chunks_exact(d).zip(self.h.chunks_exact_mut(k));
        for ((x, h), tape) in rows.zip(&mut self.tapes) {
            view.forward(x, h, tape)?;
        }
        let spent = self.spent.take().map(Stats::emptied);
        let mut stats = spent.unwrap_or_else(|| Stats::new(self.lattice.clone()));
        stats.observe_batch(&self.h, &self.rows.y, Some(&self.rows.noise))?;
        Ok(stats)
    }

    /// The objective −(evidence + priors)/n with its gradients in the hyperparameters' unknowns and in φ.
    pub fn evaluate(&mut self, by_hyper: &mut [f64], by_features: &mut [f64]) -> Result<f64> {
        let stats = self.observed()?;
        let (value, posterior) =
            self.space.evaluate(&stats, &self.hyper, self.tolerance, &mut self.pool, by_hyper)?;
        self.feature_gradient(&posterior, by_features)?;
        posterior.recycle(&mut self.pool);
        (self.known, self.spent) = (None, Some(stats));
        Ok(value)
    }

    /// The gradient in φ at the posterior of the rows, with features and tapes as [`Self::observed`] left them.
    fn feature_gradient(&mut self, posterior: &Posterior, by_features: &mut [f64]) -> Result<()> {
        by_features.fill(0.0);
        let view = self.map.prepare(&self.moments, &mut self.normalizer)?;
        let scale = -(self.rows.len() as f64).recip();
        let (rows, tapes, mut dh) = (&self.rows, &mut self.tapes, Vec::new());
        posterior.predictor().for_each_gradient(&self.h, |i, gradient| {
            dh.clear();
            dh.extend(gradient.slopes_of_evidence(rows.y[i]).map(|g| scale * g / rows.noise[i]));
            view.backward(&mut tapes[i], &dh, by_features, None)
        })
    }

    /// Fits the hyperparameters at the present features.
    pub fn fit_hyperparameters(&mut self, optimizer: &LbfgsB) -> Result<()> {
        let stats = self.stats()?;
        self.hyper = self.space.refit(&stats, &self.hyper, self.tolerance, optimizer, &mut self.pool)?.0;
        self.known = Some(stats);
        self.release();
        Ok(())
    }

    /// Frees the memory of work that is done. A search compares many of these, and has them all at once.
    pub(super) fn release(&mut self) {
        (self.pool, self.spent, self.tapes) = (Pool::default(), None, Vec::new());
    }

    /// Full-batch Adam on both, as the paper pretrains. `watch` is called after every epoch with the number
    /// of epochs done and may stop the training by returning false.
    pub fn train(
        &mut self,
        training: &WarmUpTraining,
        mut watch: impl FnMut(&mut Self, usize) -> Result<bool>,
    ) -> Result<()> {
        if training.epochs == 0 {
            return Ok(());
        }
        let (t, f) = (self.space.dim(), self.map.parameters().len());
        let annealing = Annealing { end: training.end_rate, steps: training.epochs };
        let mut adam = Adam::with_groups(&[(0..t, training.rate), (t..t + f, training.feature_rate)])?
            .with_annealing(annealing)?;
        let (mut x, mut gradient) = (vec![0.0; t + f], vec![0.0; t + f]);
        let bounds = self.space.bounds()?;
        for epoch in 1..=training.epochs {
            interrupt::check()?;
            let (by_hyper, by_features) = gradient.split_at_mut(t);
            self.evaluate(by_hyper, by_features)?;
            x[..t].copy_from_slice(&self.space.to_raw(&self.hyper)?);
            x[t..].copy_from_slice(self.map.parameters());
            adam.step(&mut x, &gradient)?;
            bounds.project(&mut x[..t]);
            self.hyper = self.space.to_hyperparameters(&x[..t], &self.hyper)?;
            self.map.parameters_mut().copy_from_slice(&x[t..]);
            self.known = None;
            if !watch(self, epoch)? {
                break;
            }
        }
        Ok(())
    }

    /// The grids.
    pub fn lattice(&self) -> &Lattice {
        &self.lattice
    }

    /// How the hyperparameters are learned.
    pub fn space(&self) -> &HyperSpace {
        &self.space
    }

    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The same on at most so many of the rows, evenly spread.
    pub(super) fn thinned(self, most: usize) -> Result<Self> {
        let n = self.rows.len();
        if n <= most {
            return Ok(self);
        }
        let rows = self.rows.filter(|i| (i + 1) * most / n > i * most / n);
        self.with_rows(rows)
    }

    /// The same map and hyperparameters on other rows.
    pub(super) fn with_rows(mut self, rows: Rows) -> Result<Self> {
        self.moments = self.map.moments_of(&rows.x)?;
        self.h.resize(rows.len() * self.map.output_dim(), 0.0);
        self.rows = rows;
        self.known = None;
        Ok(self)
    }

    /// The posterior of the rows.
    fn posterior(&mut self) -> Result<(Stats, Posterior)> {
        let stats = self.stats()?;
        let prior = Arc::new(Prior::new(&self.lattice, &self.hyper.kernels, self.tolerance)?);
        let posterior = Posterior::with_pool(prior, &stats, self.hyper.noise, &mut self.pool)?;
        Ok((stats, posterior))
    }

    /// What the posterior mean leaves of the targets, and the rank of the posterior.
    pub(super) fn residuals(&mut self) -> Result<(Vec<f64>, usize)> {
        let (stats, posterior) = self.posterior()?;
        self.known = Some(stats);
        let values = posterior.prior().expand(posterior.coordinates(), 1, &mut self.pool);
        let (k, mut weights) = (self.map.output_dim(), Vec::new());
        let mut residuals = self.rows.y.clone();
        for (y, h) in residuals.iter_mut().zip(self.h.chunks_exact(k)) {
            self.lattice.locate(h, 0, &mut weights)?;
            *y -= self.lattice.gather(&weights, &values);
        }
        Ok((residuals, posterior.rank()))
    }

    /// The features of the rows in the coordinates of the prior, where their weights are N(0, I), row after row, and the
    /// number of those of each block.
    pub(super) fn whitened_features(&mut self) -> Result<(Vec<f64>, Vec<usize>)> {
        let stats = self.stats()?;
        self.known = Some(stats);
        let prior = Prior::new(&self.lattice, &self.hyper.kernels, self.tolerance)?;
        let (p, mut scratch) = (prior.rank(), vec![0.0; prior.scratch_len()]);
        let mut features = vec![0.0; self.rows.len() * p];
        let mut weights = Vec::new();
        for (h, phi) in self.h.chunks_exact(self.map.output_dim()).zip(features.chunks_exact_mut(p)) {
            self.lattice.locate(h, 0, &mut weights)?;
            prior.features(&weights, phi, &mut scratch);
        }
        let mut groups = vec![0; self.lattice.blocks()];
        prior.components().iter().for_each(|c| groups[c.block] += c.range().len());
        Ok((features, groups))
    }

    /// The share of each block in the variance that the posterior mean explains.
    pub(super) fn shares(&mut self) -> Result<Vec<f64>> {
        let (stats, posterior) = self.posterior()?;
        let shares = stats.shares(&posterior.prior().expand(posterior.coordinates(), 1, &mut self.pool));
        self.known = Some(stats);
        Ok(shares)
    }

    /// The mean log density that the posterior of the rows gives to other rows.
    pub fn score(&mut self, held_out: &Rows) -> Result<f64> {
        let densities = self.densities(held_out)?;
        Ok(densities.iter().sum::<f64>() / densities.len().max(1) as f64)
    }

    /// The log density that the posterior of the rows gives to each of other rows.
    pub(super) fn densities(&mut self, held_out: &Rows) -> Result<Vec<f64>> {
        let (stats, posterior) = self.posterior()?;
        self.known = Some(stats);
        let predictor = posterior.predictor();
        posterior.recycle(&mut self.pool);
        let view = self.map.prepare(&self.moments, &mut self.normalizer)?;
        let (n, k) = (held_out.len(), self.map.output_dim());
        let mut h = vec![0.0; n * k];
        for (x, h) in held_out.x.chunks_exact(self.map.input_dim()).zip(h.chunks_exact_mut(k)) {
            view.forward(x, h, &mut self.tape)?;
        }
        let (mut mean, mut variance) = (vec![0.0; n], vec![0.0; n]);
        predictor.predict_batch(&h, &mut mean, &mut variance)?;
        let density = |i: usize| {
            let noise = self.hyper.noise * held_out.noise[i];
            Prediction { mean: mean[i], variance: variance[i], noise }.log_density(held_out.y[i])
        };
        Ok((0..n).map(density).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::{Column, Linear, Mixed, Mlp, Projection, Source};
    use crate::grid::Grid;
    use crate::kernel::Kernel;
    use rand::SeedableRng;

    fn rows(n: usize) -> Rows {
        let mut rows = Rows::default();
        for i in 0..n {
            let x = [0.37, 0.71, 0.93].map(|a: f64| 2.0 * (a * (i * i + 3 * i + 1) as f64).fract() - 1.0);
            let y = (2.0 * x[0] + x[1]).sin() + 0.1 * (1.3 * (i * i) as f64).sin();
            rows.push(&x, y, 0.5 + (i % 3) as f64);
        }
        rows
    }

    fn warm_up(map: FeatureMap) -> WarmUp {
        let lattice = Lattice::from(Grid::covering(&[(-1.0, 1.0); 2], &[9, 10]).unwrap());
        let hyper = Hyperparameters { kernels: vec![Kernel::rbf(&[0.6, 0.8]).unwrap()], noise: 0.1 };
        let space = HyperSpace::new(&hyper);
        WarmUp::new(rows(60), map, lattice, hyper, space, 1e-13).unwrap()
    }

    /// The gradient in φ against central differences: h² f⁽³⁾/6 and eps/h are both below 10⁻⁹ here.
    fn check_features(mut warm: WarmUp) {
        let (t, f) = (warm.space.dim(), warm.map.parameters().len());
        let (mut by_hyper, mut by_features) = (vec![0.0; t], vec![0.0; f]);
        warm.evaluate(&mut by_hyper, &mut by_features).unwrap();
        let (mut a, mut b) = (vec![0.0; t], vec![0.0; f]);
        for i in 0..f {
            let start = warm.map.parameters()[i];
            let mut at = |value: f64| {
                warm.map.parameters_mut()[i] = value;
                let v = warm.evaluate(&mut a, &mut b).unwrap();
                warm.map.parameters_mut()[i] = start;
                v
            };
            let numeric = (at(start + 1e-6) - at(start - 1e-6)) / 2e-6;
            assert!(
                (by_features[i] - numeric).abs() < 1e-6 * (1.0 + numeric.abs()),
                "{i}: {} {numeric}",
                by_features[i]
            );
        }
    }

    #[test]
    fn the_gradient_in_features_and_hyperparameters_matches_differences() {
        let projection = Projection::new(2, 3, vec![0.5, 0.3, -0.2, 0.1, -0.4, 0.6]).unwrap();
        check_features(warm_up(FeatureMap::from(Linear::new(projection))));
    }

    #[test]
    fn the_gradient_in_the_directions_of_several_blocks_matches_differences() {
        // Two numeric columns and an hour: blocks of a direction, of a direction with the hour, of a direction.
        let columns = vec![Column::Numeric, Column::Numeric, Column::Periodic { period: 0.7 }];
        let sources = vec![Source::Direction, Source::Direction, Source::Column(2), Source::Direction];
        let linear = Linear::new(Projection::new(3, 2, vec![0.5, 0.3, -0.2, 0.4, 0.9, 0.1]).unwrap());
        let map = FeatureMap::from(Mixed::new(columns, sources, Some(linear)).unwrap());
        let line = Grid::covering(&[(-1.0, 1.0)], &[9]).unwrap();
        let plane = Grid::covering(&[(-1.0, 1.0); 2], &[7, 8]).unwrap();
        let lattice = Lattice::new(vec![line.clone(), plane, line]).unwrap();
        let kernels = vec![
            Kernel::rbf(&[0.6]).unwrap(),
            Kernel::matern52(&[0.8, 0.7]).unwrap().scaled(0.4),
            Kernel::rbf(&[0.9]).unwrap().scaled(0.5),
        ];
        let hyper = Hyperparameters { kernels, noise: 0.1 };
        let space = HyperSpace::new(&hyper);
        check_features(WarmUp::new(rows(60), map, lattice, hyper, space, 1e-13).unwrap());
    }

    #[test]
    fn what_is_fixed_stays_where_it_is() {
        let mut warm = warm_up(FeatureMap::from(Linear::new(
            Projection::new(2, 3, vec![0.5, 0.3, -0.2, 0.1, -0.4, 0.6]).unwrap(),
        )));
        warm.space = warm.space.clone().with_fixed(2, 0.8).unwrap();
        let training = WarmUpTraining { epochs: 5, rate: 0.1, feature_rate: 0.01, end_rate: 1e-3 };
        warm.train(&training, |_, _| Ok(true)).unwrap();
        warm.fit_hyperparameters(&LbfgsB::default()).unwrap();
        let parameters = warm.hyper.kernels[0].parameters();
        assert!((parameters[2] - 0.8).abs() < 1e-15 && (parameters[1] - 0.6).abs() > 1e-3, "{parameters:?}");
    }

    #[test]
    fn known_statistics_are_those_of_the_present_map_and_rows() {
        let projection = Projection::new(2, 3, vec![0.5, 0.3, -0.2, 0.1, -0.4, 0.6]).unwrap();
        let mut warm = warm_up(FeatureMap::from(Linear::new(projection)));
        let held_out = rows(100).filter(|i| i >= 60);
        let check = |warm: &mut WarmUp| {
            let fresh = (warm.rows.clone(), warm.map.clone(), warm.lattice.clone(), warm.hyper.clone());
            let mut fresh =
                WarmUp::new(fresh.0, fresh.1, fresh.2, fresh.3, warm.space.clone(), warm.tolerance).unwrap();
            for _ in 0..2 {
                assert_eq!(warm.densities(&held_out).unwrap(), fresh.densities(&held_out).unwrap());
                assert_eq!(warm.residuals().unwrap(), fresh.residuals().unwrap());
            }
        };
        check(&mut warm);
        warm.fit_hyperparameters(&LbfgsB { max_evaluations: 5, ..LbfgsB::default() }).unwrap();
        check(&mut warm);
        let training = WarmUpTraining { epochs: 4, rate: 0.1, feature_rate: 0.05, end_rate: 1e-3 };
        warm.train(&training, |warm, _| {
            check(warm);
            Ok(true)
        })
        .unwrap();
        let mut warm = warm.with_rows(rows(45)).unwrap();
        check(&mut warm);
    }

    #[test]
    fn training_improves_the_evidence_and_the_held_out_density() {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(3);
        let maps = [
            FeatureMap::from(Linear::new(
                Projection::new(2, 3, vec![0.1, 0.3, 0.5, 0.4, -0.4, 0.6]).unwrap(),
            )),
            FeatureMap::from(Mlp::new(3, &[8], 2, crate::feature::Activation::Tanh, &mut rng).unwrap()),
        ];
        let held_out = rows(160).filter(|i| i >= 60);
        for map in maps {
            let mut warm = warm_up(map);
            let (mut a, mut b) = (vec![0.0; 4], vec![0.0; warm.map.parameters().len()]);
            let before = (warm.evaluate(&mut a, &mut b).unwrap(), warm.score(&held_out).unwrap());
            let training = WarmUpTraining { epochs: 150, rate: 0.05, feature_rate: 0.02, end_rate: 1e-4 };
            let mut epochs = 0;
            let count = |_: &mut WarmUp, epoch: usize| {
                epochs = epoch;
                Ok(epoch < 120)
            };
            warm.train(&training, count).unwrap();
            assert_eq!(epochs, 120);
            let after = (warm.evaluate(&mut a, &mut b).unwrap(), warm.score(&held_out).unwrap());
            assert!(after.0 < before.0 - 0.1 && after.1 > before.1 + 0.1, "{before:?} {after:?}");
        }
    }
}
