//! The exact Gaussian process, by preconditioned conjugate gradients (Gardner et al. 2018, Wang et al. 2019).
//!
//! No factor of K̂ = K_XX + σ²D is ever formed; everything is products K̂V with blocks of vectors, O(n²) each.
//!
//! * Preconditioner P̂ = L_k L_kᵀ + σ²D with L_k a partial Cholesky factor with pivoting of K_XX, inverted by
//!   Woodbury's identity in O(n k).
//! * Probes z ~ N(0, P̂) give the trace in the gradient, tr(K̂⁻¹ ∂K) ≈ mean of (K̂⁻¹z)ᵀ ∂K (P̂⁻¹z), and by stochastic
//!   Lanczos quadrature the log determinant: the coefficients of conjugate gradients are a tridiagonal matrix T
//!   with log det K̂ ≈ log det P̂ + mean of ‖z‖²_{P̂⁻¹} e₁ᵀ log(T) e₁.
//! * Warm starts: the solutions of the last step start the next one. The random numbers behind the probes are
//!   kept, so that probes, like solutions, move only as far as the hyperparameters do.

use faer::{Mat, MatRef, Side};
use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::f64::consts::TAU;
use wiski::internals::learn::Adam;
use wiski::{Error, OnlineGp, Outcome, Prediction, Result};

use super::descent::{Descent, Training};
use super::encoder::Encoder;
use super::hyper::Hyper;
use wiski::internals::dense::{
    apply_transposed, cholesky, dot, log_det, solve_lower, solve_lower_transposed,
};
use wiski::internals::exact::{Covariance, Slots};

/// P̂ = L Lᵀ + N with N diagonal.
#[derive(Debug, Clone)]
pub(super) struct Preconditioner {
    l: Mat<f64>,
    noise: Vec<f64>,
    /// The Cholesky factor of I + LᵀN⁻¹L.
    inner: Mat<f64>,
}

impl Preconditioner {
    /// Pivots on the largest remaining variance until `rank` columns are found or nothing is left.
    pub(super) fn new(kernel: &Covariance, h: &[f64], noise: Vec<f64>, rank: usize) -> Result<Self> {
        let (n, d) = (noise.len(), kernel.dim());
        let rank = rank.min(n);
        let mut left = vec![kernel.variance(); n];
        let mut l = Mat::<f64>::zeros(n, rank);
        let mut used = 0;
        for k in 0..rank {
            let (pivot, &largest) =
                left.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).expect("there is a row");
            if largest <= 1e-10 * kernel.variance() {
                break;
            }
            let root = largest.sqrt();
            let at: Vec<f64> = (0..k).map(|q| l[(pivot, q)]).collect();
            let point = &h[pivot * d..(pivot + 1) * d];
            for i in 0..n {
                let known: f64 = (0..k).map(|q| l[(i, q)] * at[q]).sum();
                let value = (kernel.value(&h[i * d..(i + 1) * d], point) - known) / root;
                l[(i, k)] = value;
                left[i] = (left[i] - value * value).max(0.0);
            }
            left[pivot] = 0.0;
            used = k + 1;
        }
        l.resize_with(n, used, |_, _| 0.0);
        let scaled = Mat::from_fn(n, used, |i, j| l[(i, j)] / noise[i]);
        let mut inner = l.transpose() * &scaled;
        (0..used).for_each(|i| inner[(i, i)] += 1.0);
        Ok(Self { l, noise, inner: cholesky(inner)? })
    }

    /// P̂⁻¹V = N⁻¹V − N⁻¹L (I + LᵀN⁻¹L)⁻¹ LᵀN⁻¹V.
    pub(super) fn solve(&self, v: MatRef<'_, f64>) -> Mat<f64> {
        let mut out = Mat::from_fn(v.nrows(), v.ncols(), |i, j| v[(i, j)] / self.noise[i]);
        let mut small = self.l.transpose() * &out;
        solve_lower(self.inner.as_ref(), small.as_mut());
        solve_lower_transposed(self.inner.as_ref(), small.as_mut());
        let correction = &self.l * small;
        for j in 0..v.ncols() {
            for i in 0..v.nrows() {
                out[(i, j)] -= correction[(i, j)] / self.noise[i];
            }
        }
        out
    }

    pub(super) fn log_det(&self) -> f64 {
        self.noise.iter().map(|d| d.ln()).sum::<f64>() + log_det(self.inner.as_ref())
    }

    /// Vectors with covariance P̂ from standard normal ones: `inside` for the columns of L, `outside` for rows.
    fn color(&self, inside: &Mat<f64>, outside: &Mat<f64>) -> Mat<f64> {
        let mut z = &self.l * inside.submatrix(0, 0, self.l.ncols(), inside.ncols());
        for j in 0..z.ncols() {
            for i in 0..z.nrows() {
                z[(i, j)] += self.noise[i].sqrt() * outside[(i, j)];
            }
        }
        z
    }
}

/// The end of a solve, with the tridiagonal matrix of each right-hand side.
pub(super) struct Solved {
    pub(super) x: Mat<f64>,
    /// Diagonal and off-diagonal of T for each column.
    pub(super) tridiagonal: Vec<(Vec<f64>, Vec<f64>)>,
}

/// Conjugate gradients on all columns of B side by side, each with its own coefficients. `start` is where to
/// begin (zero if none); a column is done when its residual is below `tolerance` of its right-hand side.
pub(super) fn conjugate_gradients(
    product: impl Fn(MatRef<'_, f64>) -> Mat<f64>,
    precondition: impl Fn(MatRef<'_, f64>) -> Mat<f64>,
    b: &Mat<f64>,
    start: Option<Mat<f64>>,
    tolerance: f64,
    most: usize,
) -> Result<Solved> {
    let columns = b.ncols();
    let norm = |m: &Mat<f64>, j: usize| dot(m.col_as_slice(j), m.col_as_slice(j)).sqrt();
    let size: Vec<f64> = (0..columns).map(|j| norm(b, j).max(f64::MIN_POSITIVE)).collect();
    let mut r = b.clone();
    let mut x = match start {
        Some(x) => {
            r -= product(x.as_ref());
            x
        }
        None => Mat::zeros(b.nrows(), columns),
    };
    let mut z = precondition(r.as_ref());
    let mut p = z.clone();
    let mut rz: Vec<f64> = (0..columns).map(|j| dot(r.col_as_slice(j), z.col_as_slice(j))).collect();
    let mut tridiagonal = vec![(Vec::new(), Vec::new()); columns];
    let mut carried = vec![0.0; columns]; // β/α of the step before
    let done = |r: &Mat<f64>, j: usize| norm(r, j) <= tolerance * size[j];
    let mut open: Vec<bool> = (0..columns).map(|j| !done(&r, j)).collect();
    for _ in 0..most {
        if !open.contains(&true) {
            break;
        }
        let ap = product(p.as_ref());
        for j in 0..columns {
            if !open[j] {
                continue;
            }
            let curvature = dot(p.col_as_slice(j), ap.col_as_slice(j));
            if curvature.is_nan() || curvature <= 0.0 || rz[j] <= 0.0 {
                open[j] = false; // the residual is rounding
                continue;
            }
            let alpha = rz[j] / curvature;
            tridiagonal[j].0.push(alpha.recip() + carried[j]);
            for i in 0..b.nrows() {
                x[(i, j)] += alpha * p[(i, j)];
                r[(i, j)] -= alpha * ap[(i, j)];
            }
            carried[j] = alpha.recip();
        }
        z = precondition(r.as_ref());
        for j in (0..columns).filter(|&j| open[j]) {
            let next = dot(r.col_as_slice(j), z.col_as_slice(j));
            let beta = next / rz[j];
            tridiagonal[j].1.push(beta.max(0.0).sqrt() * carried[j]);
            carried[j] *= beta;
            rz[j] = next;
            for i in 0..b.nrows() {
                p[(i, j)] = z[(i, j)] + beta * p[(i, j)];
            }
        }
        (0..columns).for_each(|j| open[j] = open[j] && !done(&r, j));
    }
    if let Some(j) = (0..columns).find(|&j| open[j]) {
        return Err(Error::NoConvergence {
            method: "conjugate gradients",
            iterations: most,
            residual: norm(&r, j) / size[j],
        });
    }
    Ok(Solved { x, tridiagonal })
}

/// e₁ᵀ log(T) e₁ of a tridiagonal matrix.
fn log_of_tridiagonal((diagonal, off): &(Vec<f64>, Vec<f64>)) -> f64 {
    let n = diagonal.len();
    let t = Mat::from_fn(n, n, |i, j| match i.abs_diff(j) {
        0 => diagonal[i],
        1 => off[i.min(j)],
        _ => 0.0,
    });
    t.self_adjoint_eigen(Side::Lower).map_or(f64::NAN, |eigen| {
        (0..n).map(|q| eigen.U()[(0, q)].powi(2) * eigen.S()[q].max(f64::MIN_POSITIVE).ln()).sum()
    })
}

/// How far iterations go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Iterations {
    /// The rank of the preconditioner.
    pub rank: usize,
    /// The number of probes.
    pub probes: usize,
    /// The relative residual while learning.
    pub learning: f64,
    /// The relative residual for predictions and evidence.
    pub predicting: f64,
    /// The largest number of iterations.
    pub most: usize,
}

impl Default for Iterations {
    /// Wang et al. use rank 100 and residuals of 1 and 0.01; these are stricter, since warm starts make it cheap.
    fn default() -> Self {
        Self { rank: 100, probes: 10, learning: 1e-2, predicting: 1e-4, most: 1000 }
    }
}

/// An exact Gaussian process that keeps every row and factorizes nothing.
#[derive(Debug, Clone)]
pub struct PcgGp {
    encoder: Encoder,
    hyper: Hyper,
    training: Training,
    iterations: Iterations,
    adam: Option<Adam>,
    rows: Vec<f64>,
    y: Vec<f64>,
    noise: Vec<f64>,
    h: Vec<f64>,
    encoded: usize,
    /// The standard normal numbers behind the probes.
    inside: Mat<f64>,
    outside: Mat<f64>,
    rng: Xoshiro256PlusPlus,
    /// The last solutions for y and the probes.
    solutions: Option<Mat<f64>>,
    last_step: usize,
}

impl PcgGp {
    /// A model without data.
    pub fn new(encoder: Encoder, hyper: Hyper, training: Training, iterations: Iterations) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(17);
        let inside = Mat::from_fn(iterations.rank, iterations.probes, |_, _| StandardNormal.sample(&mut rng));
        Self {
            encoder,
            hyper,
            training,
            iterations,
            adam: None,
            rows: Vec::new(),
            y: Vec::new(),
            noise: Vec::new(),
            h: Vec::new(),
            encoded: 0,
            inside,
            outside: Mat::zeros(0, iterations.probes),
            rng,
            solutions: None,
            last_step: 0,
        }
    }

    /// Learns the warm-up rows, with hyperparameters and features trained on them.
    pub fn warm_up(&mut self, rows: &[f64], y: &[f64]) -> Result<()> {
        self.append(rows, y, &vec![1.0; y.len()]);
        self.encode()?;
        let training = self.training;
        self.pretrain(&training)?;
        self.last_step = self.y.len();
        self.encode()
    }

    fn append(&mut self, rows: &[f64], y: &[f64], noise: &[f64]) {
        self.rows.extend_from_slice(rows);
        self.y.extend_from_slice(y);
        self.noise.extend_from_slice(noise);
        let (n, rng) = (self.y.len(), &mut self.rng);
        let columns = self.outside.ncols();
        self.outside.resize_with(n, columns, |_, _| StandardNormal.sample(rng));
        if let Some(solutions) = self.solutions.as_mut() {
            let columns = solutions.ncols();
            solutions.resize_with(n, columns, |_, _| 0.0);
        }
    }

    fn encode(&mut self) -> Result<()> {
        let d = self.encoder.input_dim();
        self.encoder.observe(&self.rows[self.encoded * d..])?;
        self.encoded = self.y.len();
        self.h = self.encoder.features(&self.rows)?;
        Ok(())
    }

    fn preconditioner(&self) -> Result<Preconditioner> {
        let noise = self.noise.iter().map(|d| d * self.hyper.noise).collect();
        Preconditioner::new(&self.hyper.kernel, &self.h, noise, self.iterations.rank)
    }

    /// K_XX without noise.
    fn gram(&self) -> Mat<f64> {
        self.hyper.kernel.gram(&self.h)
    }

    fn solve(
        &self,
        gram: &Mat<f64>,
        preconditioner: &Preconditioner,
        b: &Mat<f64>,
        start: Option<Mat<f64>>,
        tolerance: f64,
    ) -> Result<Solved> {
        let product = |v: MatRef<'_, f64>| {
            let mut out = gram * v;
            for j in 0..v.ncols() {
                for i in 0..v.nrows() {
                    out[(i, j)] += self.hyper.noise * self.noise[i] * v[(i, j)];
                }
            }
            out
        };
        let precondition = |v: MatRef<'_, f64>| preconditioner.solve(v);
        conjugate_gradients(product, precondition, b, start, tolerance, self.iterations.most)
    }

    /// y and the probes, side by side.
    fn right_hand_sides(&self, preconditioner: &Preconditioner) -> Mat<f64> {
        let z = preconditioner.color(&self.inside, &self.outside);
        Mat::from_fn(self.y.len(), 1 + z.ncols(), |i, j| if j == 0 { self.y[i] } else { z[(i, j - 1)] })
    }
}

impl Descent for PcgGp {
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

    /// −½ αᵀ∂Kα + ½ mean of (K̂⁻¹z)ᵀ∂K(P̂⁻¹z), over n. The value returned is the data term ½ yᵀα/n alone: the log
    /// determinant is not needed for a step.
    fn evaluate(&mut self, gradient: &mut [f64]) -> Result<f64> {
        let n = self.y.len();
        let (gram, preconditioner) = (self.gram(), self.preconditioner()?);
        let b = self.right_hand_sides(&preconditioner);
        let start = self.solutions.take();
        let u = self.solve(&gram, &preconditioner, &b, start, self.iterations.learning)?.x;
        let probes = b.ncols() - 1;
        let white = preconditioner.solve(b.as_ref().subcols(1, probes));
        // ∂F/∂K as a sum of outer products, made symmetric: left rightᵀ.
        let weight = 0.25 / (n * probes) as f64;
        let half = 0.5 / n as f64;
        let left = Mat::from_fn(n, 1 + 2 * probes, |i, j| match j {
            0 => -half * u[(i, 0)],
            j if j <= probes => weight * u[(i, j)],
            j => weight * white[(i, j - 1 - probes)],
        });
        let right = Mat::from_fn(n, 1 + 2 * probes, |i, j| match j {
            0 => u[(i, 0)],
            j if j <= probes => white[(i, j - 1)],
            j => u[(i, j - probes)],
        });
        let by_k = &left * right.transpose();
        let by_noise = (0..n).map(|i| self.noise[i] * by_k[(i, i)]).sum();
        let mut by_kernel = vec![0.0; self.hyper.kernel.parameters().len()];
        let mut by_h = vec![0.0; self.h.len()];
        let mut slots = Slots { parameters: &mut by_kernel, a: Some(&mut by_h), b: None };
        self.hyper.kernel.vjp((&self.h, &self.h), gram.as_ref(), by_k.as_ref(), &mut slots);
        by_h.iter_mut().for_each(|g| *g *= 2.0);
        let (theta, phi) = gradient.split_at_mut(self.hyper.dim());
        self.hyper.chain(&by_kernel, by_noise, theta)?;
        phi.fill(0.0);
        self.encoder.vjp(&self.rows, &by_h, phi)?;
        let value = 0.5 * dot(&self.y, u.col_as_slice(0)) / n as f64;
        self.solutions = Some(u);
        Ok(value)
    }
}

impl OnlineGp for PcgGp {
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
        let h = self.encoder.features(x)?;
        let (gram, preconditioner) = (self.gram(), self.preconditioner()?);
        let k = self.hyper.kernel.matrix(&self.h, &h);
        // The mean needs α and the variances K̂⁻¹k*: one block of right-hand sides.
        let (n, t) = (self.y.len(), k.ncols());
        let b = Mat::from_fn(n, t + 1, |i, j| if j == 0 { self.y[i] } else { k[(i, j - 1)] });
        let start = preconditioner.solve(b.as_ref());
        let u = self.solve(&gram, &preconditioner, &b, Some(start), self.iterations.predicting)?.x;
        mean.copy_from_slice(&apply_transposed(k.as_ref(), u.col_as_slice(0)));
        for (j, v) in variance.iter_mut().enumerate() {
            let explained = dot(k.col_as_slice(j), u.col_as_slice(j + 1));
            *v = (self.hyper.kernel.variance() - explained).max(0.0);
        }
        Ok(())
    }

    fn observe_noisy(&mut self, x: &[f64], y: f64, noise: f64) -> Result<Outcome> {
        self.append(x, &[y], &[noise]);
        self.encode()?;
        if self.training.is_due(self.y.len(), self.last_step) {
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

    /// By stochastic Lanczos quadrature: an estimate whose error falls with the number of probes.
    fn log_evidence(&mut self) -> Result<f64> {
        let (gram, preconditioner) = (self.gram(), self.preconditioner()?);
        let b = self.right_hand_sides(&preconditioner);
        let solved = self.solve(&gram, &preconditioner, &b, None, self.iterations.predicting)?;
        let probes = b.ncols() - 1;
        let white = preconditioner.solve(b.as_ref());
        let extra: f64 = (1..=probes)
            .map(|j| {
                let size = dot(b.col_as_slice(j), white.col_as_slice(j));
                size * log_of_tridiagonal(&solved.tridiagonal[j])
            })
            .sum();
        let log_det = preconditioner.log_det() + extra / probes as f64;
        let quadratic = dot(&self.y, solved.x.col_as_slice(0));
        Ok(-0.5 * (quadratic + log_det + self.y.len() as f64 * TAU.ln()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::exact::ExactGp;
    use crate::baselines::testing::{hyper, rows};

    const TIGHT: Iterations =
        Iterations { rank: 15, probes: 64, learning: 1e-12, predicting: 1e-12, most: 500 };

    fn pair(n: usize, iterations: Iterations) -> (PcgGp, ExactGp) {
        let (x, y) = rows(n, 4);
        let encoder = Encoder::projection(4, 2, 3).unwrap();
        let mut pcg = PcgGp::new(encoder.clone(), hyper(), Training::none(), iterations);
        pcg.warm_up(&x, &y).unwrap();
        let mut exact = ExactGp::new(encoder, hyper(), Training::none());
        exact.warm_up(&x, &y, None).unwrap();
        (pcg, exact)
    }

    #[test]
    fn predictions_equal_those_by_cholesky() {
        let (pcg, exact) = pair(120, TIGHT);
        for i in 0..10 {
            let x: Vec<f64> = (0..4).map(|k| f64::from(i * k).sin()).collect();
            let (a, b) = (pcg.predict(&x).unwrap(), exact.predict(&x).unwrap());
            assert!((a.mean - b.mean).abs() < 1e-9 && (a.variance - b.variance).abs() < 1e-9);
        }
    }

    #[test]
    fn the_preconditioner_is_inverted_exactly() {
        let (pcg, _) = pair(50, TIGHT);
        let p = pcg.preconditioner().unwrap();
        let mut dense = &p.l * p.l.transpose();
        (0..50).for_each(|i| dense[(i, i)] += p.noise[i]);
        let identity = p.solve(dense.as_ref());
        assert!((identity - Mat::<f64>::identity(50, 50)).norm_max() < 1e-10);
        assert!((p.log_det() - dense.determinant().ln()).abs() < 1e-8);
    }

    /// Probes that are √t times the unit vectors have exactly the covariance P̂, so the estimate is no estimate.
    fn complete_probes(pcg: &mut PcgGp) {
        let (n, rank) = (pcg.y.len(), pcg.preconditioner().unwrap().l.ncols());
        let t = n + rank;
        let root = (t as f64).sqrt();
        pcg.inside = Mat::from_fn(rank, t, |i, j| if i == j { root } else { 0.0 });
        pcg.outside = Mat::from_fn(n, t, |i, j| if i + rank == j { root } else { 0.0 });
    }

    #[test]
    fn gradient_and_evidence_equal_those_by_cholesky_with_complete_probes() {
        let (mut pcg, mut exact) = pair(60, TIGHT);
        complete_probes(&mut pcg);
        let mut gradients = [vec![0.0; 12], vec![0.0; 12]];
        pcg.evaluate(&mut gradients[0]).unwrap();
        exact.evaluate(&mut gradients[1]).unwrap();
        for (a, b) in gradients[0].iter().zip(&gradients[1]) {
            assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} {b}");
        }
        // The second time from the solutions of the first.
        let mut again = vec![0.0; 12];
        pcg.evaluate(&mut again).unwrap();
        assert!(again.iter().zip(&gradients[1]).all(|(a, b)| (a - b).abs() < 1e-9));
        let difference = pcg.log_evidence().unwrap() - exact.log_evidence().unwrap();
        assert!(difference.abs() < 1e-7, "{difference}");
    }

    /// With 64 random probes on 120 rows the log determinant is known to a per cent of its size.
    #[test]
    fn random_probes_are_close() {
        let (mut pcg, mut exact) = pair(120, TIGHT);
        let (a, b) = (pcg.log_evidence().unwrap(), exact.log_evidence().unwrap());
        assert!((a - b).abs() < 1.0, "{a} {b}");
    }

    #[test]
    fn a_stream_follows_the_exact_one() {
        let (x, y) = rows(100, 4);
        let encoder = Encoder::projection(4, 2, 3).unwrap();
        let training = Training::paper(0.05);
        let mut pcg = PcgGp::new(encoder.clone(), hyper(), training, Iterations::default());
        let mut exact = ExactGp::new(encoder, hyper(), training);
        pcg.warm_up(&x[..160], &y[..40]).unwrap();
        exact.warm_up(&x[..160], &y[..40], None).unwrap();
        for i in 40..100 {
            pcg.observe(&x[4 * i..4 * i + 4], y[i]).unwrap();
            exact.observe(&x[4 * i..4 * i + 4], y[i]).unwrap();
        }
        let (a, b) = (pcg.hyper.noise, exact.hyper().noise);
        assert!((a / b - 1.0).abs() < 0.3, "{a} {b}");
    }
}
