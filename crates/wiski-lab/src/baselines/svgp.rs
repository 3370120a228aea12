//! O-SVGP: the uncollapsed streaming bound of Bui, Nguyen and Turner (2017), with the paper's β on all KL terms.
//!
//! q(v) = N(μ, R Rᵀ) is a set of numbers to be learned, like hyperparameters, inducing points and features, by
//! gradient steps on
//!
//! ```text
//! F = −Σ_i E_q log p(y_i | f_i) + β ( KL(q(b) ‖ p(b | θ)) + KL(q(a) ‖ q_old(a)) − KL(q(a) ‖ p(a | θ_old)) )
//! ```
//!
//! for each new batch. The last two terms are an expectation of the memory (G, g, c) of `sparse` at the
//! old inducing points a, E_q ½ aᵀG a − gᵀa + c: the entropies cancel. With Φ the features of the batch and Φ_a
//! those of a, and e, s the derivatives of the first term in means and variances,
//!
//! ```text
//! ∂F/∂Φ   = e μᵀ + 2 diag(s) Φ (R Rᵀ − I)         ∂F/∂μ = Φᵀe + β (μ + Φ_aᵀu)
//! ∂F/∂Φ_a = β (u μᵀ + G Φ_a (R Rᵀ − I))           ∂F/∂R = 2 Φᵀdiag(s) Φ R + β (R − diag(1/R_ii) + Φ_aᵀG Φ_a R)
//! u = G Φ_a μ − g
//! ```
//!
//! A step costs O(m³) for m inducing points, whatever n is. With one step for each row these are some twenty products and
//! factorizations: 20 m³ floating-point operations, 336 million at m = 256, of which the memory takes 6 and the way back to
//! kernel and inducing points 5. Covariances are computed once for the memory and the first step. β = 1 is the bound of Bui et al.; the paper found
//! β = 10⁻³ necessary when rows come one by one with one step each.

use faer::{Mat, MatRef, Side};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::f64::consts::{FRAC_1_SQRT_2, TAU};
use wiski::internals::learn::Adam;
use wiski::{OnlineGp, Outcome, Prediction, Result};

use super::descent::{Descent, Training};
use super::encoder::Encoder;
use super::hyper::Hyper;
use super::sparse::{Basis, Factored, Memory, Returned};
use wiski::internals::dense::{
    apply, apply_transposed, congruence, dot, inner, inverse_of_cholesky, solve_lower,
    solve_vector_transposed,
};
use wiski::internals::exact::KernelPosterior;

/// What a target says about the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likelihood {
    /// y = f + noise.
    Gaussian,
    /// y ∈ {0, 1} with p(y = 1) = Φ(f), the normal distribution function.
    Bernoulli,
}

/// A streaming sparse variational Gaussian process.
#[derive(Debug, Clone)]
pub struct StreamingSvgp {
    encoder: Encoder,
    hyper: Hyper,
    training: Training,
    likelihood: Likelihood,
    options: SvgpOptions,
    adam: Option<Adam>,
    z: Vec<f64>,
    mean: Vec<f64>,
    /// R, lower triangular.
    root: Mat<f64>,
    memory: Option<Memory>,
    /// K_ZZ as it was when the memory was made.
    factored: Option<Factored>,
    rows: Vec<f64>,
    y: Vec<f64>,
    noise: Vec<f64>,
    quadrature: Vec<(f64, f64)>,
    count: usize,
    rng: Xoshiro256PlusPlus,
}

/// The settings of O-SVGP.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SvgpOptions {
    /// The number m of inducing points.
    pub inducing: usize,
    /// The weight of the KL terms along the stream; the warm-up has the proper bound, β = 1.
    pub beta: f64,
    /// The number of steps for each batch.
    pub steps: usize,
    /// Added to the diagonal of K_ZZ.
    pub jitter: f64,
    /// The seed of the first inducing points.
    pub seed: u64,
}

impl Default for SvgpOptions {
    fn default() -> Self {
        Self { inducing: 256, beta: 1e-3, steps: 1, jitter: 1e-5, seed: 0 }
    }
}

impl StreamingSvgp {
    /// A model without data.
    pub fn new(
        encoder: Encoder,
        hyper: Hyper,
        training: Training,
        likelihood: Likelihood,
        options: SvgpOptions,
    ) -> Self {
        let m = options.inducing;
        Self {
            encoder,
            hyper,
            training,
            likelihood,
            options,
            adam: None,
            z: Vec::new(),
            mean: vec![0.0; m],
            root: Mat::identity(m, m),
            memory: None,
            factored: None,
            rows: Vec::new(),
            y: Vec::new(),
            noise: Vec::new(),
            quadrature: gauss_hermite(20),
            count: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(options.seed),
        }
    }

    /// Places the inducing points at a random choice of rows, filled up with uniform points if they are fewer.
    pub fn place(&mut self, rows: &[f64]) -> Result<()> {
        let d = self.encoder.output_dim();
        self.encoder.observe(rows)?;
        let h = self.encoder.features(rows)?;
        let mut order: Vec<usize> = (0..h.len() / d).collect();
        order.shuffle(&mut self.rng);
        let chosen = order.iter().take(self.options.inducing);
        self.z = chosen.flat_map(|&i| h[i * d..(i + 1) * d].to_vec()).collect();
        while self.z.len() < self.options.inducing * d {
            self.z.push(self.rng.random_range(-1.0..1.0));
        }
        Ok(())
    }

    /// Learns the warm-up rows in batch. Inducing points start at some of them and q(v) at the prior.
    pub fn warm_up(&mut self, rows: &[f64], y: &[f64]) -> Result<()> {
        self.place(rows)?;
        (self.rows, self.y, self.noise) = (rows.to_vec(), y.to_vec(), vec![1.0; y.len()]);
        self.count += y.len();
        let training = self.training;
        self.pretrain(&training)
    }

    /// The inducing points, one after the other.
    pub fn inducing_points(&self) -> &[f64] {
        &self.z
    }

    /// The noise variance as it is now.
    pub fn noise(&self) -> f64 {
        self.hyper.noise
    }

    /// The posterior for joint predictions at features.
    pub fn surrogate(&self) -> Result<KernelPosterior> {
        let basis = Basis::new(&self.hyper.kernel, &self.z, self.options.jitter)?;
        let mut excess = &self.root * self.root.transpose();
        (0..excess.nrows()).for_each(|i| excess[(i, i)] -= 1.0);
        Ok(KernelPosterior {
            kernel: self.hyper.kernel.clone(),
            noise: self.hyper.noise,
            places: self.z.clone(),
            weights: solve_vector_transposed(basis.l.as_ref(), &self.mean),
            change: congruence(basis.l.as_ref(), excess),
        })
    }

    /// p(y = 1) at many points: Φ(mean/√(1 + variance)).
    pub fn probabilities(&self, x: &[f64]) -> Result<Vec<f64>> {
        let n = x.len() / self.encoder.input_dim();
        let (mut mean, mut variance) = (vec![0.0; n], vec![0.0; n]);
        self.predict_batch(x, &mut mean, &mut variance)?;
        Ok(mean.iter().zip(&variance).map(|(m, v)| normal_cdf(m / (1.0 + v).sqrt())).collect())
    }

    /// Turns q into memory: log q(a)/p(a) at the present inducing points and hyperparameters.
    fn remember(&mut self) -> Result<()> {
        let basis = Basis::new(&self.hyper.kernel, &self.z, self.options.jitter)?;
        let mut excess = inverse_of_cholesky(self.root.as_ref());
        let linear = apply(excess.as_ref(), &self.mean);
        let constant = 0.5 * dot(&self.mean, &linear) + self.log_root();
        (0..excess.nrows()).for_each(|i| excess[(i, i)] -= 1.0);
        self.memory = Some(Memory::new(&basis, excess, &linear, constant));
        self.factored = Some(basis.into_factored());
        Ok(())
    }

    /// ½ log det R Rᵀ.
    fn log_root(&self) -> f64 {
        (0..self.root.nrows()).map(|i| self.root[(i, i)].abs().ln()).sum()
    }

    /// Learns a batch with the chosen number of steps.
    fn learn(&mut self, x: &[f64], y: &[f64], noise: &[f64]) -> Result<()> {
        self.encoder.observe(x)?;
        self.remember()?;
        (self.rows, self.y, self.noise) = (x.to_vec(), y.to_vec(), noise.to_vec());
        self.count += y.len();
        let mut adam = match self.adam.take() {
            Some(adam) => adam,
            None => self.adam(self.training.online)?,
        };
        (0..self.options.steps).try_for_each(|_| self.descend(&mut adam).map(|_| ()))?;
        self.adam = Some(adam);
        Ok(())
    }

    /// −E log p(y | f) for f ~ N(mean, variance), with its derivatives in mean, variance and σ².
    fn expected_loss(&self, y: f64, noise: f64, mean: f64, variance: f64) -> [f64; 4] {
        match self.likelihood {
            Likelihood::Gaussian => {
                let total = self.hyper.noise * noise;
                let error = (y - mean).powi(2) + variance;
                let value = 0.5 * ((TAU * total).ln() + error / total);
                let by_noise = 0.5 * (1.0 - error / total) / self.hyper.noise;
                [value, (mean - y) / total, 0.5 / total, by_noise]
            }
            Likelihood::Bernoulli => {
                // ∂/∂mean E g = E g' and ∂/∂variance E g = ½ E g''.
                let sign = 2.0 * y - 1.0;
                let mut sums = [0.0; 4];
                for &(node, weight) in &self.quadrature {
                    let x = sign * (mean + variance.max(0.0).sqrt() * node);
                    let (log, ratio) = log_normal_cdf(x);
                    sums[0] -= weight * log;
                    sums[1] -= weight * sign * ratio;
                    sums[2] += 0.5 * weight * ratio * (x + ratio);
                }
                sums
            }
        }
    }

    /// F/n with its gradient.
    fn bound(&mut self, gradient: &mut [f64]) -> Result<f64> {
        let h = self.encoder.features(&self.rows)?;
        let there = self.factored.take();
        let basis = Basis::reused(&self.hyper.kernel, &self.z, self.options.jitter, there)?;
        let (m, n) = (self.mean.len(), self.y.len());
        // As in the paper's implementation, only the stream is tempered: a batch has the proper bound.
        let beta = if self.memory.is_some() { self.options.beta } else { 1.0 };
        let scale = (n as f64).recip();
        let covariance = &self.root * self.root.transpose(); // R Rᵀ
        let mut excess = covariance.clone();
        (0..m).for_each(|i| excess[(i, i)] -= 1.0); // R Rᵀ − I

        // KL(q(v) ‖ N(0, I))
        let trace: f64 = (0..m).map(|i| covariance[(i, i)]).sum();
        let mut value = beta * (0.5 * (trace + dot(&self.mean, &self.mean) - m as f64) - self.log_root());
        let mut by_mean: Vec<f64> = self.mean.iter().map(|v| beta * v).collect();
        let mut by_root = Mat::from_fn(m, m, |i, j| {
            beta * (self.root[(i, j)] - if i == j { self.root[(i, j)].recip() } else { 0.0 })
        });
        let mut by_parameters = vec![0.0; self.hyper.kernel.parameters().len()];
        let (mut by_z, mut by_h) = (vec![0.0; self.z.len()], vec![0.0; h.len()]);
        let mut by_noise = 0.0;

        // The batch.
        let new = basis.block(&h);
        let means = apply(new.phi.as_ref(), &self.mean);
        let spread = &new.phi * &excess;
        let (mut e, mut s) = (vec![0.0; n], vec![0.0; n]);
        for i in 0..n {
            let change: f64 = (0..m).map(|j| spread[(i, j)] * new.phi[(i, j)]).sum();
            let variance = self.hyper.kernel.variance() + change;
            let [loss, by_mean, by_variance, by_noise_i] =
                self.expected_loss(self.y[i], self.noise[i], means[i], variance);
            value += loss;
            (e[i], s[i]) = (by_mean, by_variance);
            by_noise += by_noise_i;
        }
        by_parameters[0] += scale * s.iter().sum::<f64>();
        add(&mut by_mean, &apply_transposed(new.phi.as_ref(), &e));
        let weighted = Mat::from_fn(n, m, |i, j| 2.0 * s[i] * new.phi[(i, j)]);
        by_root += new.phi.transpose() * (&weighted * &self.root);
        let by_phi = Mat::from_fn(n, m, |i, j| scale * (e[i] * self.mean[j] + 2.0 * s[i] * spread[(i, j)]));

        // The memory.
        let old = self.memory.as_ref().map(|memory| (memory, basis.block(&memory.z)));
        let mut blocks = vec![Returned { block: &new, by_phi, by_x: Some(&mut by_h) }];
        if let Some((memory, block)) = &old {
            let product = &memory.precision * &block.phi; // G Φ_a
            let at = apply(block.phi.as_ref(), &self.mean);
            let curved = apply(memory.precision.as_ref(), &at);
            let u: Vec<f64> = curved.iter().zip(&memory.linear).map(|(c, g)| c - g).collect();
            let gram = basis.gram_of(&memory.z);
            let gpg = block.phi.transpose() * &product; // Φ_aᵀ G Φ_a
            let trace =
                inner(memory.precision.as_ref(), gram.as_ref()) + inner(gpg.as_ref(), excess.as_ref());
            value += beta * (0.5 * (dot(&at, &curved) + trace) - dot(&memory.linear, &at) + memory.constant);
            let back = apply_transposed(block.phi.as_ref(), &u);
            by_mean.iter_mut().zip(&back).for_each(|(total, b)| *total += beta * b);
            let change = &gpg * &self.root;
            by_root += faer::Scale(beta) * change;
            let spread = &product * &excess;
            let by_old = Mat::from_fn(m, m, |i, j| scale * beta * (u[i] * self.mean[j] + spread[(i, j)]));
            blocks.push(Returned { block, by_phi: by_old, by_x: None });
            let by_gram = faer::Scale(0.5 * scale * beta) * &memory.precision;
            basis.vjp_gram((&memory.z, gram.as_ref()), by_gram.as_ref(), &mut by_parameters, None);
        }
        basis.vjp(&mut blocks, &mut by_parameters, &mut by_z);

        let (theta, rest) = gradient.split_at_mut(self.hyper.dim());
        let (by_q, rest) = rest.split_at_mut(m + m * (m + 1) / 2);
        let (z, phi) = rest.split_at_mut(self.z.len());
        self.hyper.chain(&by_parameters, scale * by_noise, theta)?;
        by_mean.iter().zip(by_q.iter_mut()).for_each(|(g, slot)| *slot = scale * g);
        lower(by_root.as_ref()).zip(&mut by_q[m..]).for_each(|(g, slot)| *slot = scale * g);
        z.copy_from_slice(&by_z);
        phi.fill(0.0);
        self.encoder.vjp(&self.rows, &by_h, phi)?;
        Ok(scale * value)
    }
}

/// The lower triangle, column by column.
fn lower(m: MatRef<'_, f64>) -> impl Iterator<Item = f64> + '_ {
    (0..m.ncols()).flat_map(move |j| (j..m.nrows()).map(move |i| m[(i, j)]))
}

fn add(total: &mut [f64], part: &[f64]) {
    total.iter_mut().zip(part).for_each(|(t, p)| *t += p);
}

/// Nodes and weights with Σ w g(x) ≈ E g(x), x ~ N(0, 1): eigenvalues of the Jacobi matrix (Golub and Welsch 1969).
fn gauss_hermite(points: usize) -> Vec<(f64, f64)> {
    let jacobi =
        Mat::from_fn(points, points, |i, j| if i.abs_diff(j) == 1 { (i.max(j) as f64).sqrt() } else { 0.0 });
    let eigen = jacobi.self_adjoint_eigen(Side::Lower).expect("a small symmetric matrix");
    (0..points).map(|q| (eigen.S()[q], eigen.U()[(0, q)].powi(2))).collect()
}

/// Φ(x).
fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// log Φ(x) and its derivative φ(x)/Φ(x), without underflow on the left.
fn log_normal_cdf(x: f64) -> (f64, f64) {
    if x > -25.0 {
        let cdf = normal_cdf(x);
        (cdf.ln(), (-0.5 * x * x).exp() / (TAU.sqrt() * cdf))
    } else {
        // φ/Φ = −x/(1 − 1/x² + 3/x⁴ − …): beyond −25 three terms are exact to 10⁻⁷.
        let series = 1.0 - x.powi(-2) + 3.0 * x.powi(-4);
        (-0.5 * x * x - (-x * TAU.sqrt()).ln() + series.ln(), -x / series)
    }
}

impl Descent for StreamingSvgp {
    fn position(&self) -> Result<Vec<f64>> {
        let mut x = self.hyper.raw()?;
        x.extend_from_slice(&self.mean);
        x.extend(lower(self.root.as_ref()));
        x.extend_from_slice(&self.z);
        x.extend_from_slice(self.encoder.parameters());
        Ok(x)
    }

    fn move_to(&mut self, position: &[f64]) -> Result<()> {
        let m = self.mean.len();
        let (theta, rest) = position.split_at(self.hyper.dim());
        let (mean, rest) = rest.split_at(m);
        let (root, rest) = rest.split_at(m * (m + 1) / 2);
        let (z, phi) = rest.split_at(self.z.len());
        self.hyper.set_raw(theta)?;
        self.mean.copy_from_slice(mean);
        let mut at = 0;
        for j in 0..m {
            self.root.col_as_slice_mut(j)[j..].copy_from_slice(&root[at..at + m - j]);
            at += m - j;
        }
        self.z.copy_from_slice(z);
        self.encoder.parameters_mut().copy_from_slice(phi);
        Ok(())
    }

    fn counts(&self) -> (usize, usize) {
        (self.hyper.dim(), self.encoder.parameters().len())
    }

    fn evaluate(&mut self, gradient: &mut [f64]) -> Result<f64> {
        self.bound(gradient)
    }
}

impl OnlineGp for StreamingSvgp {
    fn input_dim(&self) -> usize {
        self.encoder.input_dim()
    }

    fn count(&self) -> f64 {
        self.count as f64
    }

    fn predict(&self, x: &[f64]) -> Result<Prediction> {
        let (mut mean, mut variance) = ([0.0], [0.0]);
        self.predict_batch(x, &mut mean, &mut variance)?;
        Ok(Prediction { mean: mean[0], variance: variance[0], noise: self.hyper.noise })
    }

    fn predict_batch(&self, x: &[f64], mean: &mut [f64], variance: &mut [f64]) -> Result<()> {
        let h = self.encoder.features(x)?;
        let basis = Basis::new(&self.hyper.kernel, &self.z, self.options.jitter)?;
        let mut phi = self.hyper.kernel.matrix(&self.z, &h);
        solve_lower(basis.l.as_ref(), phi.as_mut());
        mean.copy_from_slice(&apply_transposed(phi.as_ref(), &self.mean));
        let colored = self.root.transpose() * &phi;
        for (j, v) in variance.iter_mut().enumerate() {
            let (phi, colored) = (phi.col_as_slice(j), colored.col_as_slice(j));
            *v = (self.hyper.kernel.variance() - dot(phi, phi) + dot(colored, colored)).max(0.0);
        }
        Ok(())
    }

    fn observe_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome> {
        self.learn(x, &[y], &[noise])?;
        Ok(Outcome::Learned)
    }

    fn observe_batch(&mut self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<usize> {
        self.learn(x, y, noise.unwrap_or(&vec![1.0; y.len()]))?;
        Ok(y.len())
    }

    /// Minus the objective of the last batch, a bound for β = 1; there is no evidence of all rows without them.
    fn log_evidence(&mut self) -> Result<f64> {
        let mut unused = vec![0.0; self.position()?.len()];
        Ok(-self.bound(&mut unused)? * self.y.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::exact::ExactGp;
    use crate::baselines::testing::{assert_gradient, hyper, rows};
    use wiski::internals::dense::{cholesky, solve_cholesky};

    const OPTIONS: SvgpOptions = SvgpOptions { inducing: 6, beta: 1.0, steps: 1, jitter: 1e-3, seed: 1 };

    fn model(likelihood: Likelihood, options: SvgpOptions) -> StreamingSvgp {
        let encoder = Encoder::projection(4, 2, 3).unwrap();
        StreamingSvgp::new(encoder, hyper(), Training::none(), likelihood, options)
    }

    /// A position that is nowhere special.
    fn shake(model: &mut StreamingSvgp, size: f64) {
        let mut x = model.position().unwrap();
        x.iter_mut().enumerate().for_each(|(i, v)| *v += size * (1.3 * i as f64).sin());
        model.move_to(&x).unwrap();
    }

    #[test]
    fn the_gradient_is_that_of_the_objective() {
        let (x, y) = rows(12, 4);
        let labels: Vec<f64> = y.iter().map(|&y| f64::from(u8::from(y > 0.0))).collect();
        for (likelihood, targets) in [(Likelihood::Gaussian, &y), (Likelihood::Bernoulli, &labels)] {
            let mut model = model(likelihood, SvgpOptions { beta: 0.3, ..OPTIONS });
            model.warm_up(&x[..32], &targets[..8]).unwrap();
            shake(&mut model, 0.1);
            for streaming in [false, true] {
                if streaming {
                    model.learn(&x[32..], &targets[8..], &[1.0, 0.5, 2.0, 1.0]).unwrap();
                    shake(&mut model, 0.05);
                }
                let at = model.position().unwrap();
                let mut gradient = vec![0.0; at.len()];
                model.evaluate(&mut gradient).unwrap();
                let value = |position: &[f64]| {
                    let mut model = model.clone();
                    model.move_to(position).unwrap();
                    model.evaluate(&mut vec![0.0; at.len()]).unwrap()
                };
                assert_gradient(&at, &gradient, value, 1e-6);
            }
        }
    }

    /// The best q(v) for Gaussian noise, N(Λ⁻¹r, Λ⁻¹): the gradient in q vanishes there, with and without
    /// memory, and the posterior of a stream is that of one batch.
    #[test]
    fn the_optimum_is_the_collapsed_one_in_a_stream_and_in_a_batch() {
        let (x, y) = rows(20, 4);
        let run = |batches: &[std::ops::Range<usize>]| {
            let mut model = model(Likelihood::Gaussian, SvgpOptions { steps: 0, jitter: 1e-8, ..OPTIONS });
            model.encoder.observe(&x).unwrap();
            model.z = rows(30, 2).0[48..].to_vec();
            let moments = model.encoder.clone();
            for (turn, batch) in batches.iter().enumerate() {
                let (rows, y) = (&x[4 * batch.start..4 * batch.end], &y[batch.clone()]);
                if turn == 0 {
                    (model.rows, model.y, model.noise) = (rows.to_vec(), y.to_vec(), vec![1.0; y.len()]);
                } else {
                    model.learn(rows, y, &vec![1.0; y.len()]).unwrap();
                }
                model.encoder = moments.clone();
                let h = model.encoder.features(rows).unwrap();
                let basis = Basis::new(&model.hyper.kernel, &model.z, 1e-8).unwrap();
                let block = basis.block(&h);
                let mut lambda = faer::Scale(10.0) * (block.phi.transpose() * &block.phi);
                let mut r = apply_transposed(block.phi.as_ref(), y);
                r.iter_mut().for_each(|r| *r *= 10.0);
                if let Some(memory) = &model.memory {
                    let block = basis.block(&memory.z);
                    lambda += block.phi.transpose() * (&memory.precision * &block.phi);
                    add(&mut r, &apply_transposed(block.phi.as_ref(), &memory.linear));
                }
                (0..6).for_each(|i| lambda[(i, i)] += 1.0);
                let factor = cholesky(lambda).unwrap();
                let covariance = inverse_of_cholesky(factor.as_ref());
                (model.mean, model.root) =
                    (solve_cholesky(factor.as_ref(), &r), cholesky(covariance).unwrap());
                let mut gradient = vec![0.0; model.position().unwrap().len()];
                model.evaluate(&mut gradient).unwrap();
                assert!(gradient[4..4 + 27].iter().all(|g| g.abs() < 1e-7), "{:?}", &gradient[4..31]);
            }
            (model.predict(&x[..4]).unwrap(), model.log_evidence().unwrap())
        };
        let (stream, _) = run(&[0..9, 9..10, 10..20]);
        let (batch, bound) = run(std::slice::from_ref(&(0..20)));
        assert!((stream.mean - batch.mean).abs() < 1e-6 && (stream.variance - batch.variance).abs() < 1e-6);
        let mut exact = ExactGp::new(Encoder::projection(4, 2, 3).unwrap(), hyper(), Training::none());
        exact.warm_up(&x, &y, None).unwrap();
        assert!(bound < exact.log_evidence().unwrap());
    }

    #[test]
    fn quadrature_and_tails_are_accurate() {
        let rule = gauss_hermite(20);
        let moment = |k: i32| rule.iter().map(|(x, w)| w * x.powi(k)).sum::<f64>();
        assert!((moment(0) - 1.0).abs() < 1e-13 && (moment(2) - 1.0).abs() < 1e-12);
        assert!((moment(8) - 105.0).abs() < 1e-9);
        let (below, above) = (log_normal_cdf(-25.001), log_normal_cdf(-24.999));
        assert!((below.0 - above.0 + 0.002 * 25.04).abs() < 1e-4 && (below.1 - above.1 - 0.002).abs() < 1e-3);
    }

    #[test]
    fn streams_learn_with_either_likelihood() {
        let (x, y) = rows(400, 4);
        let labels: Vec<f64> = y.iter().map(|&y| f64::from(u8::from(y > 0.0))).collect();
        let options = SvgpOptions { inducing: 25, beta: 1e-3, jitter: 1e-5, ..OPTIONS };
        for (likelihood, targets) in [(Likelihood::Gaussian, &y), (Likelihood::Bernoulli, &labels)] {
            let encoder = Encoder::projection(4, 2, 3).unwrap();
            let mut model = StreamingSvgp::new(encoder, hyper(), Training::paper(0.05), likelihood, options);
            model.warm_up(&x[..120], &targets[..30]).unwrap();
            for i in 30..400 {
                model.observe(&x[4 * i..4 * i + 4], targets[i]).unwrap();
            }
            let wrong: f64 = if likelihood == Likelihood::Gaussian {
                let error =
                    |i: usize| (model.clone().predict(&x[4 * i..4 * i + 4]).unwrap().mean - y[i]).powi(2);
                (0..100).map(error).sum::<f64>() / 100.0
            } else {
                let p = model.probabilities(&x[..400]).unwrap();
                p.iter().zip(&labels).filter(|(p, l)| (**p > 0.5) != (**l > 0.5)).count() as f64 / 100.0
            };
            assert!(wrong < 0.15, "{likelihood:?} {wrong}");
        }
    }
}
