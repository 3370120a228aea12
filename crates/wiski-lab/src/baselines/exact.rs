//! The exact Gaussian process, by Cholesky.
//!
//! ```text
//! L Lᵀ = K_XX + σ²D     α = (K_XX + σ²D)⁻¹y
//! mean k*ᵀα     variance k** − ‖L⁻¹k*‖²
//! log p(y) = −½ yᵀα − Σ log L_ii − n/2 log 2π     ∂/∂K = ½ (ααᵀ − (K + σ²D)⁻¹)
//! ```
//!
//! A new row at fixed hyperparameters borders L: O(n²). A step of the hyperparameters costs O(n³). All rows are
//! kept; their features are computed anew after every step, since the projection may have moved.

use faer::{Mat, MatRef};
use std::f64::consts::TAU;
use std::sync::OnceLock;
use wiski::internals::learn::{Adam, Bounds, Objective};
use wiski::{LbfgsB, OnlineGp, Outcome, Prediction, Result};

use super::descent::{Descent, Training};
use super::encoder::Encoder;
use super::hyper::{Hyper, Priors};
use super::kept;
use wiski::internals::dense::{
    Growing, apply_transposed, dot, inverse_of_cholesky, log_det, solve_cholesky, solve_vector,
};
use wiski::internals::exact::{KernelPosterior, Slots};

/// An exact Gaussian process that keeps every row.
#[derive(Debug, Clone)]
pub struct ExactGp {
    encoder: Encoder,
    hyper: Hyper,
    training: Training,
    adam: Option<Adam>,
    rows: Vec<f64>,
    y: Vec<f64>,
    noise: Vec<f64>,
    /// The features of the rows under the map as it was after the last step.
    h: Vec<f64>,
    /// The number of rows that the map's moments contain.
    encoded: usize,
    factor: OnceLock<Growing>,
    alpha: OnceLock<Vec<f64>>,
    last_step: usize,
}

impl ExactGp {
    /// A model without data.
    pub fn new(encoder: Encoder, hyper: Hyper, training: Training) -> Self {
        Self {
            encoder,
            hyper,
            training,
            adam: None,
            rows: Vec::new(),
            y: Vec::new(),
            noise: Vec::new(),
            h: Vec::new(),
            encoded: 0,
            factor: OnceLock::new(),
            alpha: OnceLock::new(),
            last_step: 0,
        }
    }

    /// Learns the warm-up rows, with hyperparameters and features trained on them. `noise` gives relative
    /// noise variances, 1 for plain data.
    pub fn warm_up(&mut self, rows: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<()> {
        self.rows.extend_from_slice(rows);
        self.y.extend_from_slice(y);
        self.noise.extend(noise.map_or(vec![1.0; y.len()], <[f64]>::to_vec));
        self.encode()?;
        let training = self.training;
        self.pretrain(&training)?;
        self.last_step = self.y.len();
        self.encode()
    }

    /// The kernel and the noise as they are now.
    pub fn hyper(&self) -> &Hyper {
        &self.hyper
    }

    /// The feature map as it is now.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Maximizes evidence and priors in the logarithms of kernel parameters and noise, from where they are, in the
    /// ranges that wiski has. The feature map stays.
    pub fn refit(&mut self, priors: &Priors, optimizer: &LbfgsB) -> Result<()> {
        let start: Vec<f64> = self.natural().iter().map(|v| v.ln()).collect();
        let mut range = vec![(1e-2f64, 1e2f64); start.len()];
        range[0] = (1e-6, 1e6);
        if self.hyper.learn_noise {
            range[start.len() - 1] = (1e-6, 1e3);
        }
        let lo = range.iter().map(|r| r.0.ln()).collect();
        let bounds = Bounds::new(lo, range.iter().map(|r| r.1.ln()).collect())?;
        let mut objective = Refit { model: self, priors };
        let end = optimizer.minimize(&mut objective, &start, &bounds)?;
        self.set_natural(&end.x)
    }

    /// Kernel parameters and, if it is learned, the noise.
    fn natural(&self) -> Vec<f64> {
        let noise = self.hyper.learn_noise.then_some(self.hyper.noise);
        self.hyper.kernel.parameters().iter().copied().chain(noise).collect()
    }

    fn set_natural(&mut self, logarithms: &[f64]) -> Result<()> {
        let values: Vec<f64> = logarithms.iter().map(|l| l.exp()).collect();
        let count = self.hyper.kernel.parameters().len();
        self.hyper.kernel.set_parameters(&values[..count])?;
        if let Some(&noise) = values.get(count) {
            self.hyper.noise = noise;
        }
        (self.factor, self.alpha) = Default::default();
        Ok(())
    }

    /// Replaces all targets, for another scale of theirs.
    ///
    /// # Panics
    /// If there is not one target for each row.
    pub fn set_targets(&mut self, y: &[f64]) {
        assert_eq!(y.len(), self.y.len(), "one target for each row");
        self.y.copy_from_slice(y);
        self.alpha.take();
    }

    /// The posterior for joint predictions at features.
    pub fn surrogate(&self) -> Result<KernelPosterior> {
        let weights = self.weights()?.to_vec();
        let mut change = inverse_of_cholesky(self.factor()?.factor());
        for j in 0..change.ncols() {
            change.col_as_slice_mut(j).iter_mut().for_each(|v| *v = -*v);
        }
        let (kernel, places) = (self.hyper.kernel.clone(), self.h.clone());
        Ok(KernelPosterior { kernel, noise: self.hyper.noise, places, weights, change })
    }

    /// Brings all features to the present map; the factor is void.
    fn encode(&mut self) -> Result<()> {
        let d = self.encoder.input_dim();
        self.encoder.observe(&self.rows[self.encoded * d..])?;
        self.encoded = self.y.len();
        self.h = self.encoder.features(&self.rows)?;
        (self.factor, self.alpha) = Default::default();
        Ok(())
    }

    fn covariance(&self) -> Mat<f64> {
        let mut k = self.hyper.kernel.gram(&self.h);
        for (i, d) in self.noise.iter().enumerate() {
            k[(i, i)] += self.hyper.noise * d;
        }
        k
    }

    fn factor(&self) -> Result<&Growing> {
        kept(&self.factor, || Growing::new(self.covariance()))
    }

    /// α for the present rows.
    fn weights(&self) -> Result<&[f64]> {
        kept(&self.alpha, || Ok(solve_cholesky(self.factor()?.factor(), &self.y))).map(Vec::as_slice)
    }
}

impl Descent for ExactGp {
    fn position(&self) -> Result<Vec<f64>> {
        Ok([self.hyper.raw()?, self.encoder.parameters().to_vec()].concat())
    }

    fn move_to(&mut self, position: &[f64]) -> Result<()> {
        let (theta, phi) = position.split_at(self.hyper.dim());
        self.hyper.set_raw(theta)?;
        self.encoder.parameters_mut().copy_from_slice(phi);
        self.encode()
    }

    fn counts(&self) -> (usize, usize) {
        (self.hyper.dim(), self.encoder.parameters().len())
    }

    /// −log p(y)/n.
    fn evaluate(&mut self, gradient: &mut [f64]) -> Result<f64> {
        let value = -self.log_evidence()? / self.y.len() as f64;
        let (factor, alpha) = (self.factor()?, self.weights()?);
        let slopes = Slopes::new(&self.hyper, &self.h, &self.noise, factor.factor(), alpha);
        let (theta, phi) = gradient.split_at_mut(self.hyper.dim());
        self.hyper.chain(&slopes.kernel, slopes.noise, theta)?;
        phi.fill(0.0);
        self.encoder.vjp(&self.rows, &slopes.h, phi)?;
        Ok(value)
    }
}

/// −(log p(y) + log prior)/n as a function of logarithms.
struct Refit<'a> {
    model: &'a mut ExactGp,
    priors: &'a Priors,
}

impl Objective for Refit<'_> {
    fn dim(&self) -> usize {
        self.model.natural().len()
    }

    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        self.model.set_natural(x)?;
        let n = self.model.y.len() as f64;
        let mut value = -self.model.log_evidence()? / n;
        let model = &*self.model;
        let (factor, alpha) = (model.factor()?, model.weights()?);
        let slopes = Slopes::new(&model.hyper, &model.h, &model.noise, factor.factor(), alpha);
        let natural = slopes.kernel.iter().copied().chain([slopes.noise]);
        let priors = self.priors.of(&model.hyper);
        for (i, (slot, slope)) in gradient.iter_mut().zip(natural).enumerate() {
            let parameter = x[i].exp();
            value -= priors[i].log_density(parameter) / n;
            *slot = (slope - priors[i].derivative(parameter) / n) * parameter;
        }
        Ok(value)
    }
}

/// The derivatives of −log p(y)/n in kernel parameters, noise and features.
pub(super) struct Slopes {
    pub(super) kernel: Vec<f64>,
    pub(super) noise: f64,
    pub(super) h: Vec<f64>,
}

impl Slopes {
    /// From the Cholesky factor and α of the rows with these features.
    pub(super) fn new(
        hyper: &Hyper,
        h: &[f64],
        noise: &[f64],
        factor: MatRef<'_, f64>,
        alpha: &[f64],
    ) -> Self {
        let n = alpha.len() as f64;
        let mut by_k = inverse_of_cholesky(factor);
        for j in 0..by_k.ncols() {
            let scale = alpha[j];
            for (entry, a) in by_k.col_as_slice_mut(j).iter_mut().zip(alpha) {
                *entry = (*entry - a * scale) * (0.5 / n);
            }
        }
        let by_noise = noise.iter().enumerate().map(|(i, d)| d * by_k[(i, i)]).sum();
        let mut kernel = vec![0.0; hyper.kernel.parameters().len()];
        let mut by_h = vec![0.0; h.len()];
        let mut slots = Slots { parameters: &mut kernel, a: Some(&mut by_h), b: None };
        let k = hyper.kernel.gram(h);
        hyper.kernel.vjp((h, h), k.as_ref(), by_k.as_ref(), &mut slots);
        by_h.iter_mut().for_each(|g| *g *= 2.0); // K is symmetric: each point is a row and a column
        Self { kernel, noise: by_noise, h: by_h }
    }
}

impl OnlineGp for ExactGp {
    fn input_dim(&self) -> usize {
        self.encoder.input_dim()
    }

    fn count(&self) -> f64 {
        self.y.len() as f64
    }

    fn predict(&self, x: &[f64]) -> Result<Prediction> {
        let (mut mean, mut variance) = ([0.0], [0.0]);
        self.predict_batch(x, &mut mean, &mut variance)?;
        Ok(Prediction { mean: mean[0], variance: variance[0], noise: self.hyper.noise })
    }

    fn predict_batch(&self, x: &[f64], mean: &mut [f64], variance: &mut [f64]) -> Result<()> {
        if self.y.is_empty() {
            mean.fill(0.0);
            variance.fill(self.hyper.kernel.variance());
            return Ok(());
        }
        let h = self.encoder.features(x)?;
        let mut k = self.hyper.kernel.matrix(&self.h, &h);
        mean.copy_from_slice(&apply_transposed(k.as_ref(), self.weights()?));
        wiski::internals::dense::solve_lower(self.factor()?.factor(), k.as_mut());
        for (j, v) in variance.iter_mut().enumerate() {
            let white = k.col_as_slice(j);
            *v = (self.hyper.kernel.variance() - dot(white, white)).max(0.0);
        }
        Ok(())
    }

    fn observe_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome> {
        if self.y.is_empty() {
            // The first row gives the map its moments.
            self.encoder.observe(x)?;
            self.encoded = 1;
        }
        let h = self.encoder.features(x)?;
        if let Some(factor) = self.factor.get_mut() {
            let k = self.hyper.kernel.matrix(&self.h, &h);
            factor.push(k.col_as_slice(0), self.hyper.kernel.variance() + self.hyper.noise * noise)?;
        }
        self.rows.extend_from_slice(x);
        self.h.extend_from_slice(&h);
        self.y.push(y);
        self.noise.push(noise);
        self.alpha.take();
        if self.training.is_due(self.y.len(), self.last_step) {
            self.encode()?;
            let mut adam = match self.adam.take() {
                Some(adam) => adam,
                None => self.adam(self.training.online)?,
            };
            self.descend(&mut adam)?;
            self.adam = Some(adam);
            self.last_step = self.y.len();
        }
        Ok(Outcome::Learned)
    }

    fn log_evidence(&mut self) -> Result<f64> {
        let n = self.y.len() as f64;
        let factor = self.factor()?;
        let white = solve_vector(factor.factor(), &self.y);
        Ok(-0.5 * (dot(&white, &white) + log_det(factor.factor()) + n * TAU.ln()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::testing::{assert_gradient, hyper, rows};
    use faer::linalg::solvers::Solve;
    use wiski::internals::learn::Hyperprior;

    fn plain(n: usize) -> (ExactGp, Vec<f64>, Vec<f64>) {
        let (x, y) = rows(n, 2);
        (ExactGp::new(Encoder::identity(2), hyper(), Training::none()), x, y)
    }

    /// The textbook formulas with an LU decomposition.
    #[test]
    fn growth_equals_the_dense_formula() {
        let (mut grown, x, y) = plain(60);
        let noise: Vec<f64> = (0..60).map(|i| 0.5 + 0.02 * f64::from(i)).collect();
        grown.warm_up(&x[..20], &y[..10], Some(&noise[..10])).unwrap();
        grown.predict(&[0.0, 0.0]).unwrap();
        for i in 10..60 {
            grown.observe_noisy(&x[2 * i..2 * i + 2], y[i], noise[i]).unwrap();
        }
        let hyper = hyper();
        let mut k = hyper.kernel.gram(&x);
        (0..60).for_each(|i| k[(i, i)] += hyper.noise * noise[i]);
        let lu = k.partial_piv_lu();
        let alpha = lu.solve(Mat::from_fn(60, 1, |i, _| y[i]));
        for point in [[0.1, 0.2], [-0.7, 0.9], [3.0, 3.0]] {
            let p = grown.predict(&point).unwrap();
            let kx = hyper.kernel.matrix(&x, &point);
            let mean = (kx.transpose() * &alpha)[(0, 0)];
            let variance = hyper.kernel.variance() - (kx.transpose() * lu.solve(&kx))[(0, 0)];
            assert!((p.mean - mean).abs() < 1e-11 && (p.variance - variance).abs() < 1e-11);
        }
        let quadratic: f64 = (0..60).map(|i| y[i] * alpha[(i, 0)]).sum();
        let want = -0.5 * (quadratic + k.determinant().ln() + 60.0 * TAU.ln());
        assert!((grown.log_evidence().unwrap() - want).abs() < 1e-9);
    }

    #[test]
    fn the_gradient_is_that_of_the_evidence() {
        let (x, y) = rows(25, 4);
        let noise: Vec<f64> = (0..25).map(|i| 0.5 + 0.05 * f64::from(i)).collect();
        for learned in [true, false] {
            let mut hyper = hyper();
            hyper.learn_noise = learned;
            let encoder = Encoder::projection(4, 2, 3).unwrap();
            let mut model = ExactGp::new(encoder, hyper, Training::none());
            model.warm_up(&x, &y, Some(&noise)).unwrap();
            let at = model.position().unwrap();
            let mut gradient = vec![0.0; at.len()];
            model.evaluate(&mut gradient).unwrap();
            let value = |position: &[f64]| {
                let mut model = model.clone();
                model.move_to(position).unwrap();
                -model.log_evidence().unwrap() / 25.0
            };
            assert_gradient(&at, &gradient, value, 1e-8);
        }
    }

    #[test]
    fn refits_climb_evidence_and_priors() {
        let (x, y) = rows(25, 2);
        let priors = Priors {
            scale: Hyperprior::Gamma { shape: 2.0, rate: 0.15 },
            lengthscale: Hyperprior::Gamma { shape: 3.0, rate: 3.0 },
            noise: Hyperprior::LogNormal { mu: -4.0, sigma: 2.0 },
        };
        for learned in [true, false] {
            let mut hyper = hyper();
            hyper.learn_noise = learned;
            let mut model = ExactGp::new(Encoder::identity(2), hyper, Training::none());
            model.warm_up(&x, &y, None).unwrap();
            let at: Vec<f64> = model.natural().iter().map(|v| v.ln()).collect();
            let of = |x: &[f64]| {
                let mut gradient = vec![0.0; x.len()];
                let mut model = model.clone();
                let value = Refit { model: &mut model, priors: &priors }.evaluate(x, &mut gradient).unwrap();
                (value, gradient)
            };
            assert_gradient(&at, &of(&at).1, |x| of(x).0, 1e-7);
            let mut fitted = model.clone();
            fitted.refit(&priors, &LbfgsB::default()).unwrap();
            let end: Vec<f64> = fitted.natural().iter().map(|v| v.ln()).collect();
            let (value, gradient) = of(&end);
            assert!(value < of(&at).0 && gradient.iter().all(|g| g.abs() < 1e-3), "{gradient:?}");
        }
    }

    #[test]
    fn steps_along_the_stream_raise_the_evidence() {
        let (x, y) = rows(120, 4);
        let run = |training: Training| {
            let encoder = Encoder::projection(4, 2, 3).unwrap();
            let mut model = ExactGp::new(encoder, hyper(), training);
            model.warm_up(&x[..80], &y[..20], None).unwrap();
            for i in 20..120 {
                model.observe(&x[4 * i..4 * i + 4], y[i]).unwrap();
            }
            model.log_evidence().unwrap()
        };
        assert!(run(Training::paper(0.05)) > run(Training::none()) + 10.0);
    }
}
