//! Batch SKI (Wilson and Nickisch 2015) with LOVE variances (Pleiss et al. 2018): the model of WISKI, computed from
//! all rows by conjugate gradients, as one would without the sufficient statistics.
//!
//! ```text
//! K̂ = W K_UU Wᵀ + σ²D     α = K̂⁻¹y     mean w*ᵀa, a = K_UU Wᵀα
//! K̂⁻¹ ≈ Q T⁻¹Qᵀ (Lanczos)     variance w*ᵀK_UU w* − ‖Sᵀw*‖²,  S = K_UU WᵀQ R⁻ᵀ,  R Rᵀ = T
//! ```
//!
//! A product with K̂ costs O(n 4^d + m log m). Gradients of the evidence use probes of random signs,
//! tr(K̂⁻¹∂K) ≈ mean of (K̂⁻¹z)ᵀ∂K z. Both caches are computed anew when rows were added.

use faer::{Mat, MatRef};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::f64::consts::TAU;
use std::sync::OnceLock;
use wiski::internals::learn::Adam;
use wiski::internals::structure::{Kronecker, Symmetric, Toeplitz};
use wiski::{Error, Grid, OnlineGp, Outcome, Prediction, Result};

use super::descent::{Descent, Training};
use super::encoder::Encoder;
use super::hyper::Hyper;
use super::kept;
use super::pcg::conjugate_gradients;
use wiski::internals::dense::{cholesky, dot, log_det, solve_lower};
use wiski::internals::exact::Covariance;

/// How far iterations go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SkiIterations {
    /// The rank of the Lanczos decomposition behind variances.
    pub rank: usize,
    /// The number of probes.
    pub probes: usize,
    /// The relative residual of solves.
    pub tolerance: f64,
    /// The largest number of iterations.
    pub most: usize,
}

impl Default for SkiIterations {
    fn default() -> Self {
        Self { rank: 100, probes: 10, tolerance: 1e-4, most: 2000 }
    }
}

/// The interpolation weights of a point: on each axis the first of four grid points, weights and slopes.
#[derive(Debug, Clone)]
struct Row {
    first: Vec<usize>,
    weights: Vec<[f64; 4]>,
    slopes: Vec<[f64; 4]>,
}

impl Row {
    /// Cubic convolution (Keys 1981) with its derivative.
    fn locate(grid: &Grid, h: &[f64]) -> Result<Self> {
        let mut row = Self { first: Vec::new(), weights: Vec::new(), slopes: Vec::new() };
        for (k, (axis, &x)) in grid.axes().iter().zip(h).enumerate() {
            if !(axis.lo() <= x && x <= axis.hi()) {
                return Err(Error::OutsideGrid { axis: k, value: x, lo: axis.lo(), hi: axis.hi(), row: 0 });
            }
            let place = (x - axis.min()) / axis.step();
            let cell = (place.floor() as usize).clamp(1, axis.points() - 3);
            let s = place - cell as f64;
            let r = 1.0 - s;
            row.first.push(cell - 1);
            row.weights.push([
                -0.5 * s * r * r,
                1.0 - 0.5 * s * s * (5.0 - 3.0 * s),
                0.5 * s * (1.0 + s * (4.0 - 3.0 * s)),
                -0.5 * s * s * r,
            ]);
            let slopes = [
                -0.5 + s * (2.0 - 1.5 * s),
                s * (4.5 * s - 5.0),
                0.5 + s * (4.0 - 4.5 * s),
                s * (1.5 * s - 1.0),
            ];
            row.slopes.push(slopes.map(|v| v / axis.step()));
        }
        Ok(row)
    }

    /// Calls `f` with each grid point and its weight; axis `slope` has its weights replaced by derivatives.
    fn each(&self, grid: &Grid, slope: Option<usize>, mut f: impl FnMut(usize, f64)) {
        let d = self.first.len();
        for corner in 0..4usize.pow(d as u32) {
            let (mut index, mut weight, mut rest) = (0, 1.0, corner);
            for k in 0..d {
                let at = rest % 4;
                rest /= 4;
                index = index * grid.axes()[k].points() + self.first[k] + at;
                weight *= if slope == Some(k) { self.slopes[k][at] } else { self.weights[k][at] };
            }
            f(index, weight);
        }
    }

    fn gather(&self, grid: &Grid, slope: Option<usize>, u: &[f64]) -> f64 {
        let mut sum = 0.0;
        self.each(grid, slope, |i, w| sum += w * u[i]);
        sum
    }
}

/// A SKI Gaussian process that keeps every row.
#[derive(Debug, Clone)]
pub struct BatchSki {
    encoder: Encoder,
    hyper: Hyper,
    training: Training,
    grid: Grid,
    iterations: SkiIterations,
    adam: Option<Adam>,
    rows: Vec<f64>,
    y: Vec<f64>,
    noise: Vec<f64>,
    encoded: usize,
    w: Vec<Row>,
    /// Random signs, one column a probe.
    signs: Mat<f64>,
    rng: Xoshiro256PlusPlus,
    caches: OnceLock<Caches>,
    last_step: usize,
}

/// a, S and what the evidence needs.
#[derive(Debug, Clone)]
struct Caches {
    mean: Vec<f64>,
    covariance: Mat<f64>,
}

impl BatchSki {
    /// A model without data on a grid over the features.
    pub fn new(
        encoder: Encoder,
        hyper: Hyper,
        training: Training,
        grid: Grid,
        iterations: SkiIterations,
    ) -> Self {
        Self {
            encoder,
            hyper,
            training,
            grid,
            iterations,
            adam: None,
            rows: Vec::new(),
            y: Vec::new(),
            noise: Vec::new(),
            encoded: 0,
            w: Vec::new(),
            signs: Mat::zeros(0, iterations.probes),
            rng: Xoshiro256PlusPlus::seed_from_u64(23),
            caches: OnceLock::new(),
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
        let (columns, rng) = (self.signs.ncols(), &mut self.rng);
        self.signs.resize_with(self.y.len(), columns, |_, _| if rng.random() { 1.0 } else { -1.0 });
        self.caches.take();
    }

    fn encode(&mut self) -> Result<()> {
        let d = self.encoder.input_dim();
        self.encoder.observe(&self.rows[self.encoded * d..])?;
        self.encoded = self.y.len();
        let h = self.encoder.features(&self.rows)?;
        self.w = h
            .chunks_exact(self.encoder.output_dim())
            .map(|h| Row::locate(&self.grid, h))
            .collect::<Result<_>>()?;
        self.caches.take();
        Ok(())
    }

    /// K_UU, or its derivative with the column of one axis replaced.
    fn operator(&self, replaced: Option<(usize, &[f64])>) -> Kronecker {
        let factors = self.grid.axes().iter().enumerate().map(|(k, axis)| match replaced {
            Some((at, column)) if at == k => Toeplitz::new(column),
            _ => {
                let lag = |i: usize| axis.step() * i as f64;
                let kernel = &self.hyper.kernel;
                let value = |i: usize| kernel.family().value(kernel.on_axis(k), lag(i));
                Toeplitz::new(&(0..axis.points()).map(value).collect::<Vec<_>>())
            }
        });
        Kronecker::new(self.hyper.kernel.variance(), factors.collect())
    }

    /// WᵀV, column by column.
    fn spread(&self, v: MatRef<'_, f64>) -> Mat<f64> {
        let mut out = Mat::zeros(self.grid.len(), v.ncols());
        for j in 0..v.ncols() {
            let column = out.col_as_slice_mut(j);
            for (i, row) in self.w.iter().enumerate() {
                row.each(&self.grid, None, |at, w| column[at] += w * v[(i, j)]);
            }
        }
        out
    }

    /// K̂V.
    fn product(&self, operator: &Kronecker, v: MatRef<'_, f64>) -> Mat<f64> {
        let on_grid = through(operator, &self.spread(v));
        Mat::from_fn(v.nrows(), v.ncols(), |i, j| {
            let smooth = self.w[i].gather(&self.grid, None, on_grid.col_as_slice(j));
            smooth + self.hyper.noise * self.noise[i] * v[(i, j)]
        })
    }

    fn solve(&self, operator: &Kronecker, b: &Mat<f64>) -> Result<Mat<f64>> {
        let limits = (self.iterations.tolerance, self.iterations.most);
        let same = |v: MatRef<'_, f64>| v.to_owned();
        Ok(conjugate_gradients(|v| self.product(operator, v), same, b, None, limits.0, limits.1)?.x)
    }

    /// An orthonormal Q and tridiagonal T with K̂ ≈ Q T Qᵀ on the Krylov space of y, orthogonalized twice.
    fn lanczos(&self, operator: &Kronecker) -> (Mat<f64>, Mat<f64>) {
        let n = self.y.len();
        let most = self.iterations.rank.min(n);
        let mut q = Mat::<f64>::zeros(n, most);
        let (mut diagonal, mut off) = (Vec::new(), Vec::new());
        // The sum of all columns of the kernel: a direction in which there is variance to explain.
        let ones = Mat::from_fn(n, 1, |_, _| 1.0);
        let mut next = self.product(operator, ones.as_ref());
        for k in 0..most {
            let size = next.norm_l2();
            if k > 0 {
                if size < 1e-12 * diagonal[0] {
                    break;
                }
                off.push(size);
            }
            for i in 0..n {
                q[(i, k)] = next[(i, 0)] / size;
            }
            next = self.product(operator, q.as_ref().subcols(k, 1));
            diagonal.push(dot(q.col_as_slice(k), next.col_as_slice(0)));
            for _ in 0..2 {
                let known = q.as_ref().subcols(0, k + 1);
                let parts = known.transpose() * &next;
                next -= known * parts;
            }
        }
        let k = diagonal.len();
        let t = Mat::from_fn(k, k, |i, j| match i.abs_diff(j) {
            0 => diagonal[i],
            1 => off[i.min(j)],
            _ => 0.0,
        });
        q.resize_with(n, k, |_, _| 0.0);
        (q, t)
    }

    fn caches(&self) -> Result<&Caches> {
        kept(&self.caches, || {
            let operator = self.operator(None);
            let y = Mat::from_fn(self.y.len(), 1, |i, _| self.y[i]);
            let alpha = self.solve(&operator, &y)?;
            let mean = through(&operator, &self.spread(alpha.as_ref())).col_as_slice(0).to_vec();
            let (q, t) = self.lanczos(&operator);
            let on_grid = through(&operator, &self.spread(q.as_ref()));
            // S = K_UU WᵀQ R⁻ᵀ, computed as (R⁻¹(K_UU WᵀQ)ᵀ)ᵀ and kept transposed.
            let mut covariance = on_grid.transpose().to_owned();
            solve_lower(cholesky(t)?.as_ref(), covariance.as_mut());
            Ok(Caches { mean, covariance })
        })
    }
}

/// The operator applied to each column.
fn through(operator: &Kronecker, v: &Mat<f64>) -> Mat<f64> {
    let mut scratch = vec![0.0; operator.scratch_len()];
    let mut out = Mat::zeros(v.nrows(), v.ncols());
    for j in 0..v.ncols() {
        operator.apply(v.col_as_slice(j), out.col_as_slice_mut(j), &mut scratch);
    }
    out
}

/// w*ᵀK_UU w*, axis by axis.
fn prior_variance(kernel: &Covariance, grid: &Grid, row: &Row) -> f64 {
    let on_axis = |k: usize| {
        let w = &row.weights[k];
        let step = grid.axes()[k].step();
        let correlation =
            |a: usize, b: usize| kernel.family().value(kernel.on_axis(k), step * a.abs_diff(b) as f64);
        (0..4).map(|a| (0..4).map(|b| w[a] * w[b] * correlation(a, b)).sum::<f64>()).sum::<f64>()
    };
    kernel.variance() * (0..grid.dim()).map(on_axis).product::<f64>()
}

impl Descent for BatchSki {
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

    /// −½ αᵀ∂Kα + ½ mean of (K̂⁻¹z)ᵀ∂K z, over n. The value returned is the data term ½ yᵀα/n alone.
    fn evaluate(&mut self, gradient: &mut [f64]) -> Result<f64> {
        let (n, probes) = (self.y.len(), self.signs.ncols());
        let operator = self.operator(None);
        let b = Mat::from_fn(n, 1 + probes, |i, j| if j == 0 { self.y[i] } else { self.signs[(i, j - 1)] });
        let u = self.solve(&operator, &b)?;
        // Pairs of vectors whose outer products are ∂F/∂K, on the grid: α with itself, K̂⁻¹z with z.
        let left = self.spread(u.as_ref());
        let mut right = self.spread(b.as_ref());
        right.col_as_slice_mut(0).copy_from_slice(left.col_as_slice(0));
        let weight = |j: usize| if j == 0 { -0.5 / n as f64 } else { 0.5 / (n * probes) as f64 };
        let weighted = |product: &Mat<f64>| -> f64 {
            (0..=probes).map(|j| weight(j) * dot(left.col_as_slice(j), product.col_as_slice(j))).sum()
        };
        let kernel = &self.hyper.kernel;
        let (smooth_left, smooth_right) = (through(&operator, &left), through(&operator, &right));
        let mut by_kernel = vec![weighted(&smooth_right) / kernel.variance()];
        let p = kernel.family().parameter_count();
        for (k, axis) in self.grid.axes().iter().enumerate() {
            let mut columns = vec![vec![0.0; axis.points()]; p];
            let mut local = vec![0.0; p];
            for lag in 0..axis.points() {
                kernel.family().value_and_gradient(kernel.on_axis(k), axis.step() * lag as f64, &mut local);
                columns.iter_mut().zip(&local).for_each(|(column, &d)| column[lag] = d);
            }
            for column in &columns {
                by_kernel.push(weighted(&through(&self.operator(Some((k, column))), &right)));
            }
        }
        let partner = |i: usize, j: usize| if j == 0 { u[(i, 0)] } else { b[(i, j)] };
        let by_noise: f64 = (0..=probes)
            .map(|j| weight(j) * (0..n).map(|i| self.noise[i] * u[(i, j)] * partner(i, j)).sum::<f64>())
            .sum();
        // ∂K goes through both interpolation matrices: ∂W K Wᵀ + W K ∂Wᵀ.
        let dim = self.encoder.output_dim();
        let mut by_h = vec![0.0; n * dim];
        if !self.encoder.parameters().is_empty() {
            for (i, row) in self.w.iter().enumerate() {
                for k in 0..dim {
                    for j in 0..=probes {
                        let l = row.gather(&self.grid, Some(k), smooth_left.col_as_slice(j));
                        let r = row.gather(&self.grid, Some(k), smooth_right.col_as_slice(j));
                        by_h[i * dim + k] += weight(j) * (u[(i, j)] * r + partner(i, j) * l);
                    }
                }
            }
        }
        let (theta, phi) = gradient.split_at_mut(self.hyper.dim());
        self.hyper.chain(&by_kernel, by_noise, theta)?;
        phi.fill(0.0);
        self.encoder.vjp(&self.rows, &by_h, phi)?;
        Ok(0.5 * dot(&self.y, u.col_as_slice(0)) / n as f64)
    }
}

impl OnlineGp for BatchSki {
    fn input_dim(&self) -> usize {
        self.encoder.input_dim()
    }

    fn count(&self) -> f64 {
        self.y.len() as f64
    }

    fn predict(&self, x: &[f64]) -> Result<Prediction> {
        let h = self.encoder.features(x)?;
        let row = Row::locate(&self.grid, &h)?;
        let caches = self.caches()?;
        let mean = row.gather(&self.grid, None, &caches.mean);
        let mut reduced = vec![0.0; caches.covariance.nrows()];
        row.each(&self.grid, None, |at, w| {
            let column = caches.covariance.col_as_slice(at);
            reduced.iter_mut().zip(column).for_each(|(r, s)| *r += w * s);
        });
        let prior = prior_variance(&self.hyper.kernel, &self.grid, &row);
        let variance = (prior - dot(&reduced, &reduced)).max(0.0);
        Ok(Prediction { mean, variance, noise: self.hyper.noise })
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

    /// By the Lanczos decomposition of full rank: for tests and small n, O(n³).
    fn log_evidence(&mut self) -> Result<f64> {
        let n = self.y.len();
        let operator = self.operator(None);
        let dense = self.product(&operator, Mat::<f64>::identity(n, n).as_ref());
        let factor = cholesky(dense)?;
        let mut white = Mat::from_fn(n, 1, |i, _| self.y[i]);
        solve_lower(factor.as_ref(), white.as_mut());
        let quadratic = dot(white.col_as_slice(0), white.col_as_slice(0));
        Ok(-0.5 * (quadratic + log_det(factor.as_ref()) + n as f64 * TAU.ln()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::testing::{assert_gradient, hyper, rows};
    use wiski::Wiski;

    const TIGHT: SkiIterations = SkiIterations { rank: 1000, probes: 4, tolerance: 1e-13, most: 2000 };

    fn grid() -> Grid {
        Grid::covering(&[(-1.0, 1.0), (-1.0, 1.0)], &[12, 12]).unwrap()
    }

    #[test]
    fn equals_wiski_at_the_same_hyperparameters() {
        let (x, y) = rows(90, 2);
        let mut ski = BatchSki::new(Encoder::identity(2), hyper(), Training::none(), grid(), TIGHT);
        ski.warm_up(&x, &y).unwrap();
        let kernel = hyper().kernel.to_kernel().unwrap();
        let mut wiski = Wiski::builder().grid(grid()).kernel(kernel).noise(0.1).build().unwrap();
        wiski.observe_batch(&x, &y, None).unwrap();
        for point in [[0.1, 0.2], [-0.8, 0.5], [0.9, -0.9]] {
            let (a, b) = (ski.predict(&point).unwrap(), wiski.predict(&point).unwrap());
            assert!((a.mean - b.mean).abs() < 1e-7, "{} {}", a.mean, b.mean);
            assert!((a.variance - b.variance).abs() < 1e-7, "{} {}", a.variance, b.variance);
        }
        let (a, b) = (ski.log_evidence().unwrap(), wiski.log_evidence().unwrap());
        assert!((a - b).abs() < 1e-6 * b.abs(), "{a} {b}");
    }

    /// LOVE's variances are too large, never too small, and rank 40 is enough here.
    #[test]
    fn variances_fall_with_the_rank() {
        let (x, y) = rows(90, 2);
        let at = |rank: usize| {
            let iterations = SkiIterations { rank, ..TIGHT };
            let mut ski = BatchSki::new(Encoder::identity(2), hyper(), Training::none(), grid(), iterations);
            ski.warm_up(&x, &y).unwrap();
            ski.predict(&[0.3, 0.3]).unwrap().variance
        };
        let v = [at(2), at(10), at(40), at(90)];
        assert!(v[0] > v[1] && v[1] >= v[2] && (v[2] / v[3] - 1.0).abs() < 1e-3, "{v:?}");
    }

    /// Probes √n e_i make the trace exact.
    #[test]
    fn the_gradient_is_that_of_the_evidence_with_complete_probes() {
        let (x, y) = rows(30, 4);
        let encoder = Encoder::projection(4, 2, 3).unwrap();
        let mut ski = BatchSki::new(encoder, hyper(), Training::none(), grid(), TIGHT);
        ski.warm_up(&x, &y).unwrap();
        ski.signs = Mat::from_fn(30, 30, |i, j| if i == j { 30f64.sqrt() } else { 0.0 });
        let at = ski.position().unwrap();
        let mut gradient = vec![0.0; at.len()];
        ski.evaluate(&mut gradient).unwrap();
        let value = |position: &[f64]| {
            let mut ski = ski.clone();
            ski.move_to(position).unwrap();
            -ski.log_evidence().unwrap() / 30.0
        };
        assert_gradient(&at, &gradient, value, 1e-6);
    }
}
