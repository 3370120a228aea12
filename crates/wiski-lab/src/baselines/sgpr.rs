//! O-SGPR: the collapsed streaming bound of Bui, Nguyen and Turner (2017) for Gaussian noise.
//!
//! With the memory (G, g, c) of earlier rows at old points a (see `sparse`) and new rows X, y, the best
//! q(v) has a closed form. Let Φ stack the features of X and of a, M = diag(D⁻¹/σ², G) and t = (D⁻¹y/σ², g):
//!
//! ```text
//! Λ = I + ΦᵀMΦ     r = Φᵀt     q(v) = N(Λ⁻¹r, Λ⁻¹)
//! F = ½ rᵀΛ⁻¹r − ½ log det Λ − ½ tr M(K − ΦΦᵀ) − ½ Σ log 2πσ²d_i − ½ yᵀD⁻¹y/σ² − c
//! ∂F/∂Φ = t wᵀ − MΦ(Λ⁻¹ + w wᵀ − I),   w = Λ⁻¹r
//! ```
//!
//! Without memory this is the bound of Titsias (2009). For fixed Z and hyperparameters, a stream ends in the same
//! q(v) as one batch. As the authors do, inducing points are sampled anew to include new rows: each new row joins
//! until there are m points, and takes the place of a random one from then on.

use faer::Mat;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::f64::consts::TAU;
use wiski::internals::learn::Adam;
use wiski::{OnlineGp, Outcome, Prediction, Result};

use super::descent::{Descent, Training};
use super::encoder::Encoder;
use super::hyper::Hyper;
use super::sparse::{Basis, Memory, Returned};
use wiski::internals::dense::{
    apply, apply_transposed, cholesky, dot, inner, inverse_of_cholesky, log_det, solve_cholesky, solve_lower,
};

/// A streaming sparse Gaussian process with the collapsed bound.
#[derive(Debug, Clone)]
pub struct StreamingSgpr {
    encoder: Encoder,
    hyper: Hyper,
    training: Training,
    jitter: f64,
    /// Whether the memory is computed as its authors do.
    is_published: bool,
    /// The largest number m of inducing points.
    most: usize,
    adam: Option<Adam>,
    z: Vec<f64>,
    memory: Option<Memory>,
    rows: Vec<f64>,
    y: Vec<f64>,
    noise: Vec<f64>,
    q: Option<Posterior>,
    count: usize,
    rng: Xoshiro256PlusPlus,
}

/// q(v) = N(w, Λ⁻¹) with L Lᵀ = K_ZZ and R Rᵀ = Λ, and what the bound was.
#[derive(Debug, Clone)]
struct Posterior {
    l: Mat<f64>,
    r: Mat<f64>,
    linear: Vec<f64>,
    mean: Vec<f64>,
    bound: f64,
}

impl StreamingSgpr {
    /// A model without data, with at most `most` inducing points. `jitter` is added to the diagonal of K_ZZ.
    pub fn new(
        encoder: Encoder,
        hyper: Hyper,
        training: Training,
        most: usize,
        jitter: f64,
        seed: u64,
    ) -> Self {
        Self {
            encoder,
            hyper,
            training,
            jitter,
            is_published: false,
            most,
            adam: None,
            z: Vec::new(),
            memory: None,
            rows: Vec::new(),
            y: Vec::new(),
            noise: Vec::new(),
            q: None,
            count: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    /// The same with the memory as its authors compute it: by inverting differences of inverses, with the jitter on each.
    #[must_use]
    pub fn as_published(self) -> Self {
        Self { is_published: true, ..self }
    }

    /// Learns the warm-up rows: inducing points are a random choice among them.
    pub fn warm_up(&mut self, rows: &[f64], y: &[f64]) -> Result<()> {
        self.encoder.observe(rows)?;
        self.begin_batch(rows, y, &vec![1.0; y.len()])?;
        let training = self.training;
        self.pretrain(&training)?;
        self.q = Some(self.posterior()?);
        Ok(())
    }

    /// The inducing points, one after the other.
    pub fn inducing_points(&self) -> &[f64] {
        &self.z
    }

    /// The bound of the last batch given the memory: its sum over batches bounds the evidence.
    pub fn bound(&self) -> f64 {
        self.q.as_ref().map_or(0.0, |q| q.bound)
    }

    /// Turns what is known into memory and takes a new batch.
    fn begin_batch(&mut self, rows: &[f64], y: &[f64], noise: &[f64]) -> Result<()> {
        if let Some(q) = self.q.take() {
            let basis = Basis::new(&self.hyper.kernel, &self.z, self.jitter)?;
            let constant = 0.5 * (dot(&q.linear, &q.mean) - log_det(q.r.as_ref()));
            self.memory = Some(if self.is_published {
                let covariance = inverse_of_cholesky(q.r.as_ref());
                Memory::published(&basis, &covariance, &q.linear, constant, self.jitter)?
            } else {
                let mut excess = &q.r * q.r.transpose();
                (0..excess.nrows()).for_each(|i| excess[(i, i)] -= 1.0);
                Memory::new(&basis, excess, &q.linear, constant)
            });
        }
        (self.rows, self.y, self.noise) = (rows.to_vec(), y.to_vec(), noise.to_vec());
        self.count += y.len();
        let h = self.encoder.features(rows)?;
        self.resample(&h);
        Ok(())
    }

    /// Each new point joins, or takes the place of a random one.
    fn resample(&mut self, h: &[f64]) {
        let d = self.encoder.output_dim();
        for point in h.chunks_exact(d) {
            if self.z.len() < self.most * d {
                self.z.extend_from_slice(point);
            } else {
                let at = self.rng.random_range(0..self.most) * d;
                self.z[at..at + d].copy_from_slice(point);
            }
        }
    }

    fn posterior(&mut self) -> Result<Posterior> {
        let mut unused = vec![0.0; self.position()?.len()];
        self.solve(&mut unused)
    }

    /// q(v) and the bound, with the gradient of −F/n in the unknowns.
    fn solve(&mut self, gradient: &mut [f64]) -> Result<Posterior> {
        let h = self.encoder.features(&self.rows)?;
        let basis = Basis::new(&self.hyper.kernel, &self.z, self.jitter)?;
        let (m, n) = (basis.l.nrows(), self.y.len());
        let new = basis.block(&h);
        let old = self.memory.as_ref().map(|memory| (memory, basis.block(&memory.z)));
        let weights: Vec<f64> = self.noise.iter().map(|d| (d * self.hyper.noise).recip()).collect();

        // MΦ and t, for the new rows and for the memory.
        let scaled = Mat::from_fn(n, m, |i, j| weights[i] * new.phi[(i, j)]);
        let targets: Vec<f64> = self.y.iter().zip(&weights).map(|(y, w)| y * w).collect();
        let mut lambda = new.phi.transpose() * &scaled;
        let mut r = apply_transposed(new.phi.as_ref(), &targets);
        let variance = self.hyper.kernel.variance();
        let missing = |i: usize| variance - (0..m).map(|j| new.phi[(i, j)].powi(2)).sum::<f64>();
        let lost: f64 = (0..n).map(|i| weights[i] * missing(i)).sum();
        let mut bound = -0.5 * lost - 0.5 * dot(&self.y, &targets);
        bound += 0.5 * weights.iter().map(|w| (w / TAU).ln()).sum::<f64>();
        let mut weighted = None;
        if let Some((memory, block)) = &old {
            let product = &memory.precision * &block.phi;
            lambda += block.phi.transpose() * &product;
            let linear = apply_transposed(block.phi.as_ref(), &memory.linear);
            r.iter_mut().zip(linear).for_each(|(r, l)| *r += l);
            let gram = self.hyper.kernel.gram(&memory.z);
            let kept = inner(product.as_ref(), block.phi.as_ref());
            bound -= 0.5 * (inner(memory.precision.as_ref(), gram.as_ref()) - kept) + memory.constant;
            weighted = Some((product, gram));
        }
        (0..m).for_each(|i| lambda[(i, i)] += 1.0);
        let root = cholesky(lambda)?;
        let mean = solve_cholesky(root.as_ref(), &r);
        bound += 0.5 * (dot(&r, &mean) - log_det(root.as_ref()));

        // Λ⁻¹ + w wᵀ − I, which all of ∂F/∂Φ goes through. Everything from here on is of −F/n.
        let scale = -(n as f64).recip();
        let mut moment = inverse_of_cholesky(root.as_ref());
        for j in 0..m {
            for i in 0..m {
                moment[(i, j)] += mean[i] * mean[j] - f64::from(u8::from(i == j));
            }
        }
        let by_phi = |scaled: &Mat<f64>, t: &[f64]| {
            let product = scaled * &moment;
            Mat::from_fn(scaled.nrows(), m, |i, j| scale * (t[i] * mean[j] - product[(i, j)]))
        };
        let mut by_parameters = vec![0.0; self.hyper.kernel.parameters().len()];
        let (mut by_z, mut by_h) = (vec![0.0; self.z.len()], vec![0.0; h.len()]);
        let by_new = by_phi(&scaled, &targets);
        let mut blocks = vec![Returned { block: &new, by_phi: by_new, by_x: Some(&mut by_h) }];
        if let (Some((memory, block)), Some((product, gram))) = (&old, &weighted) {
            blocks.push(Returned { block, by_phi: by_phi(product, &memory.linear), by_x: None });
            let by_gram = Mat::from_fn(memory.precision.nrows(), memory.precision.ncols(), |i, j| {
                -0.5 * scale * memory.precision[(i, j)]
            });
            basis.vjp_gram((&memory.z, gram.as_ref()), by_gram.as_ref(), &mut by_parameters, None);
        }
        basis.vjp(&mut blocks, &mut by_parameters, &mut by_z);
        by_parameters[0] -= 0.5 * scale * weights.iter().sum::<f64>();
        // With w_i = 1/(σ²d_i): ∂F/∂w_i = ½/w_i − ½ E[(y_i − f_i)²], and ∂w_i/∂σ² = −w_i/σ².
        let fitted = apply(new.phi.as_ref(), &mean);
        let mut white = new.phi.transpose().to_owned();
        solve_lower(root.as_ref(), white.as_mut());
        let by_noise: f64 = (0..n)
            .map(|i| {
                let spread = missing(i) + dot(white.col_as_slice(i), white.col_as_slice(i));
                let error = (self.y[i] - fitted[i]).powi(2) + spread;
                -0.5 * (weights[i].recip() - error) * weights[i] / self.hyper.noise
            })
            .sum();
        let (theta, rest) = gradient.split_at_mut(self.hyper.dim());
        let (z, phi) = rest.split_at_mut(self.z.len());
        self.hyper.chain(&by_parameters, scale * by_noise, theta)?;
        z.copy_from_slice(&by_z);
        phi.fill(0.0);
        let l = basis.l;
        self.encoder.vjp(&self.rows, &by_h, phi)?;
        Ok(Posterior { l, r: root, linear: r, mean, bound })
    }
}

impl Descent for StreamingSgpr {
    fn position(&self) -> Result<Vec<f64>> {
        Ok([self.hyper.raw()?, self.z.clone(), self.encoder.parameters().to_vec()].concat())
    }

    fn move_to(&mut self, position: &[f64]) -> Result<()> {
        let (theta, rest) = position.split_at(self.hyper.dim());
        let (z, phi) = rest.split_at(self.z.len());
        self.hyper.set_raw(theta)?;
        self.z.copy_from_slice(z);
        self.encoder.parameters_mut().copy_from_slice(phi);
        Ok(())
    }

    fn counts(&self) -> (usize, usize) {
        (self.hyper.dim(), self.encoder.parameters().len())
    }

    /// −F/n of the present batch.
    fn evaluate(&mut self, gradient: &mut [f64]) -> Result<f64> {
        Ok(-self.solve(gradient)?.bound / self.y.len() as f64)
    }
}

impl OnlineGp for StreamingSgpr {
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
        let prior = self.hyper.kernel.variance();
        let Some(q) = &self.q else {
            mean.fill(0.0);
            variance.fill(prior);
            return Ok(());
        };
        let h = self.encoder.features(x)?;
        let mut phi = self.hyper.kernel.matrix(&self.z, &h);
        solve_lower(q.l.as_ref(), phi.as_mut());
        mean.copy_from_slice(&apply_transposed(phi.as_ref(), &q.mean));
        let mut white = phi.clone();
        solve_lower(q.r.as_ref(), white.as_mut());
        for (j, v) in variance.iter_mut().enumerate() {
            let (phi, white) = (phi.col_as_slice(j), white.col_as_slice(j));
            *v = (prior - dot(phi, phi) + dot(white, white)).max(0.0);
        }
        Ok(())
    }

    fn observe_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome> {
        self.observe_rows(x, &[y], &[noise])?;
        Ok(Outcome::Learned)
    }

    fn observe_batch(&mut self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<usize> {
        self.observe_rows(x, y, noise.unwrap_or(&vec![1.0; y.len()]))?;
        Ok(y.len())
    }

    /// The bound of the last batch; there is no evidence of all rows without the rows.
    fn log_evidence(&mut self) -> Result<f64> {
        Ok(self.bound())
    }
}

impl StreamingSgpr {
    fn observe_rows(&mut self, x: &[f64], y: &[f64], noise: &[f64]) -> Result<()> {
        self.encoder.observe(x)?;
        self.begin_batch(x, y, noise)?;
        if self.training.spacing.is_finite() {
            // New inducing points are other unknowns: only kernel, noise and features keep their momentum.
            let mut adam = match self.adam.take() {
                Some(adam) if adam.dim() == self.position()?.len() => adam,
                _ => self.adam(self.training.online)?,
            };
            self.descend(&mut adam)?;
            self.adam = Some(adam);
        }
        self.q = Some(self.posterior()?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::exact::ExactGp;
    use crate::baselines::testing::{assert_gradient, hyper, rows};

    fn sgpr(most: usize, jitter: f64) -> StreamingSgpr {
        StreamingSgpr::new(Encoder::identity(2), hyper(), Training::none(), most, jitter, 1)
    }

    #[test]
    fn inducing_points_at_the_data_make_it_exact() {
        let (x, y) = rows(40, 2);
        let mut sparse = sgpr(40, 1e-10);
        sparse.warm_up(&x, &y).unwrap();
        let mut exact = ExactGp::new(Encoder::identity(2), hyper(), Training::none());
        exact.warm_up(&x, &y, None).unwrap();
        assert!((sparse.bound() - exact.log_evidence().unwrap()).abs() < 1e-5);
        for point in [[0.1, 0.4], [-0.8, 0.3], [0.5, -0.5]] {
            let (a, b) = (sparse.predict(&point).unwrap(), exact.predict(&point).unwrap());
            assert!((a.mean - b.mean).abs() < 1e-6 && (a.variance - b.variance).abs() < 1e-6);
        }
    }

    #[test]
    fn the_bound_is_below_the_evidence_and_rises_with_the_points() {
        let (x, y) = rows(60, 2);
        let mut exact = ExactGp::new(Encoder::identity(2), hyper(), Training::none());
        exact.warm_up(&x, &y, None).unwrap();
        let bounds = [5, 10, 20, 40].map(|m| {
            let mut sparse = sgpr(m, 1e-8);
            sparse.z = x[..2 * m].to_vec();
            sparse.encoder.observe(&x).unwrap();
            (sparse.rows, sparse.y, sparse.noise) = (x.clone(), y.clone(), vec![1.0; 60]);
            sparse.posterior().unwrap().bound
        });
        assert!(bounds.is_sorted() && bounds[3] <= exact.log_evidence().unwrap(), "{bounds:?}");
    }

    /// At fixed inducing points, batch by batch and all at once are the same posterior, and the bounds add up.
    #[test]
    fn a_stream_ends_where_one_batch_ends() {
        let (x, y) = rows(60, 2);
        let z: Vec<f64> = rows(80, 2).0[120..].to_vec();
        let fixed = |batches: &[std::ops::Range<usize>]| {
            let mut model = sgpr(20, 1e-8);
            model.encoder.observe(&x).unwrap();
            let mut total = 0.0;
            for batch in batches {
                let (rows, y) = (&x[2 * batch.start..2 * batch.end], &y[batch.clone()]);
                model.z = z.clone();
                model.begin_batch(rows, y, &vec![1.0; y.len()]).unwrap();
                model.z = z.clone();
                model.q = Some(model.posterior().unwrap());
                total += model.bound();
            }
            (model, total)
        };
        let (stream, sum) = fixed(&[0..7, 7..30, 30..31, 31..60]);
        let (batch, whole) = fixed(std::slice::from_ref(&(0..60)));
        // Between batches K_aa and K_aa + εI differ, hence the tolerance.
        assert!((sum - whole).abs() < 1e-3, "{sum} {whole}");
        for point in [[0.1, 0.4], [-0.8, 0.3]] {
            let (a, b) = (stream.predict(&point).unwrap(), batch.predict(&point).unwrap());
            assert!((a.mean - b.mean).abs() < 1e-5 && (a.variance - b.variance).abs() < 1e-5);
        }
    }

    #[test]
    fn the_gradient_is_that_of_the_bound() {
        let (x, y) = rows(40, 4);
        let encoder = Encoder::projection(4, 2, 3).unwrap();
        let mut model = StreamingSgpr::new(encoder, hyper(), Training::none(), 6, 1e-3, 1);
        model.warm_up(&x[..80], &y[..20]).unwrap();
        for streaming in [false, true] {
            if streaming {
                model.observe_batch(&x[80..], &y[20..], None).unwrap();
                // Away from where the memory was made.
                let mut moved = model.position().unwrap();
                moved.iter_mut().enumerate().for_each(|(i, v)| *v += 0.05 * (i as f64).sin());
                model.move_to(&moved).unwrap();
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

    #[test]
    fn a_stream_learns() {
        let (x, y) = rows(300, 2);
        let mut model = StreamingSgpr::new(Encoder::identity(2), hyper(), Training::paper(0.05), 25, 1e-6, 1);
        model.warm_up(&x[..40], &y[..20]).unwrap();
        for i in 20..300 {
            model.observe(&x[2 * i..2 * i + 2], y[i]).unwrap();
        }
        assert_eq!(model.inducing_points().len(), 50);
        let error: f64 =
            (0..50).map(|i| (model.predict(&x[2 * i..2 * i + 2]).unwrap().mean - y[i]).powi(2)).sum();
        assert!((error / 50.0).sqrt() < 0.25, "{}", (error / 50.0).sqrt());
    }
}
