//! The joint prediction of a Gaussian process given by a kernel, with its way back: what criteria of the next points
//! need.
//!
//! An exact process and a sparse variational one have the same form. With k(x) the covariances of a point with the
//! rows (or the inducing points),
//!
//! ```text
//! mean k(x)ᵀa     covariance k(x, x') + k(x)ᵀE k(x')
//!
//! exact:   a = (K + σ²D)⁻¹y     E = −(K + σ²D)⁻¹
//! sparse:  a = L⁻ᵀμ             E = L⁻ᵀ(R Rᵀ − I)L⁻¹
//! ```
//!
//! so that one computation serves both. A point costs n² multiply-adds and its gradient little more, since E k(x) is
//! kept: ∂/∂k(x_i) = ḡ_i a + Σ_j (C̄_ij + C̄_ji) E k(x_j).

use faer::Mat;

use super::covariance::{Covariance, Slots};
use crate::dense::{apply, dot};
use crate::error::{Result, length};
use crate::posterior::{Joint, Surrogate};

/// A Gaussian process as seen from a few points.
#[derive(Debug, Clone)]
pub struct KernelPosterior {
    /// The kernel.
    pub kernel: Covariance,
    /// The noise variance of an observation.
    pub noise: f64,
    /// Rows or inducing points, one after the other.
    pub places: Vec<f64>,
    /// a.
    pub weights: Vec<f64>,
    /// E.
    pub change: Mat<f64>,
}

impl KernelPosterior {
    fn gram_of(&self, x: &[f64], joint: &mut Joint) {
        let (d, q) = (self.kernel.dim(), joint.points());
        for i in 0..q {
            for j in 0..=i {
                let value = self.kernel.value(&x[i * d..(i + 1) * d], &x[j * d..(j + 1) * d]);
                joint.covariance[i * q + j] = value;
                joint.covariance[j * q + i] = value;
            }
        }
    }

    /// Takes the mean at a point for granted, as if it had been observed there with relative noise 1. What is
    /// expected moves no mean; E is bordered, O(n²): with u = −E k(x) and s = k(x, x) + σ² − k(x)ᵀu,
    ///
    /// ```text
    /// E ← [E − uuᵀ/s, u/s; uᵀ/s, −1/s]
    /// ```
    pub fn assume_mean(&mut self, x: &[f64]) -> Result<()> {
        let mean = self.mean(x)?;
        self.condition(x, mean)
    }

    /// As if a value had been observed at a point with relative noise 1: E is bordered as above, and with
    /// e = (y − k(x)ᵀa)/s the weights become [a − u e; e].
    pub fn condition(&mut self, x: &[f64], value: f64) -> Result<()> {
        length("x", self.dim(), x.len())?;
        let k = self.kernel.matrix(&self.places, x);
        let k = k.col_as_slice(0);
        let u: Vec<f64> = apply(self.change.as_ref(), k).into_iter().map(|v| -v).collect();
        let s = self.kernel.variance() + self.noise - dot(k, &u);
        let n = u.len();
        self.change = Mat::from_fn(n + 1, n + 1, |i, j| match (i == n, j == n) {
            (false, false) => self.change[(i, j)] - u[i] * u[j] / s,
            (true, true) => -s.recip(),
            (true, false) => u[j] / s,
            (false, true) => u[i] / s,
        });
        let e = (value - dot(k, &self.weights)) / s;
        self.weights.iter_mut().zip(&u).for_each(|(a, u)| *a -= u * e);
        self.places.extend_from_slice(x);
        self.weights.push(e);
        Ok(())
    }

    /// The posterior covariances of points with others: K_ab + K_a E K_b.
    fn covariances(&self, a: &[f64], b: &[f64]) -> Mat<f64> {
        let right = &self.change * self.kernel.matrix(&self.places, b);
        self.kernel.matrix(a, b) + self.kernel.matrix(&self.places, a).transpose() * right
    }

    /// The q points of a pool whose observation lowers the sum of the variances at reference points most, one after
    /// the other with exact updates in between: with c the covariances of a candidate with the reference points and v
    /// its variance, the sum falls by cᵀc/(v + σ²). O(n² |pool| + n |pool| |reference|).
    pub fn choose_from_pool(&self, pool: &[f64], reference: &[f64], q: usize) -> Vec<usize> {
        let (d, count) = (self.kernel.dim(), pool.len() / self.kernel.dim());
        let mut to_reference = self.covariances(reference, pool);
        let mut variances: Vec<f64> = {
            let k = self.kernel.matrix(&self.places, pool);
            let changed = &self.change * &k;
            let change = |j: usize| dot(k.col_as_slice(j), changed.col_as_slice(j));
            (0..count).map(|j| (self.kernel.variance() + change(j)).max(0.0)).collect()
        };
        // Covariances of the pool with each chosen point, over the deviation of its observation.
        let mut steps: Vec<Vec<f64>> = Vec::new();
        let mut chosen: Vec<usize> = Vec::new();
        while chosen.len() < q.min(count) {
            let score = |j: usize| {
                let c = to_reference.col_as_slice(j);
                dot(c, c) / (variances[j] + self.noise)
            };
            let free = (0..count).filter(|j| !chosen.contains(j));
            let Some(best) = free.max_by(|&i, &j| score(i).total_cmp(&score(j))) else { break };
            chosen.push(best);
            let own = self.covariances(pool, &pool[best * d..(best + 1) * d]);
            let deviation = (variances[best] + self.noise).sqrt();
            let column: Vec<f64> = (0..count)
                .map(|j| (own[(j, 0)] - steps.iter().map(|s| s[j] * s[best]).sum::<f64>()) / deviation)
                .collect();
            let reach: Vec<f64> = to_reference.col_as_slice(best).iter().map(|c| c / deviation).collect();
            for (j, &c) in column.iter().enumerate() {
                variances[j] = (variances[j] - c * c).max(0.0);
                to_reference.col_as_slice_mut(j).iter_mut().zip(&reach).for_each(|(t, r)| *t -= c * r);
            }
            steps.push(column);
        }
        chosen
    }
}

impl Surrogate for KernelPosterior {
    fn dim(&self) -> usize {
        self.kernel.dim()
    }

    fn noise(&self) -> f64 {
        self.noise
    }

    fn mean(&self, x: &[f64]) -> Result<f64> {
        let k = self.kernel.matrix(&self.places, x);
        Ok(dot(k.col_as_slice(0), &self.weights))
    }

    fn predict(&self, x: &[f64], out: &mut Joint) -> Result<()> {
        let q = x.len() / self.dim();
        let k = self.kernel.matrix(&self.places, x);
        out.reset(q, self.weights.len());
        self.gram_of(x, out);
        // Where the function is known almost without noise, what is left of a variance is rounding; a deviation of
        // nothing would have no derivative.
        let smallest = f64::EPSILON * self.weights.len() as f64 * self.kernel.variance();
        for i in 0..q {
            let own = k.col_as_slice(i);
            out.mean[i] = dot(own, &self.weights);
            out.white_mut(i).copy_from_slice(&apply(self.change.as_ref(), own));
        }
        for i in 0..q {
            for j in 0..q {
                let change = dot(k.col_as_slice(i), out.white(j));
                let entry = &mut out.covariance[i * q + j];
                *entry = if i == j { (*entry + change).max(smallest) } else { *entry + change };
            }
        }
        Ok(())
    }

    fn vjp(
        &self,
        x: &[f64],
        joint: &Joint,
        by_mean: &[f64],
        by_covariance: &[f64],
        gradient: &mut [f64],
    ) -> Result<()> {
        let (q, n) = (joint.points(), self.weights.len());
        let by_k = Mat::from_fn(n, q, |row, i| {
            let through_covariance: f64 = (0..q)
                .map(|j| (by_covariance[i * q + j] + by_covariance[j * q + i]) * joint.white(j)[row])
                .sum();
            by_mean[i] * self.weights[row] + through_covariance
        });
        let k = self.kernel.matrix(&self.places, x);
        let mut parameters = vec![0.0; self.kernel.parameters().len()];
        let mut slots = Slots { parameters: &mut parameters, a: None, b: Some(gradient) };
        self.kernel.vjp((&self.places, x), k.as_ref(), by_k.as_ref(), &mut slots);
        // The points among themselves: each is a row and a column.
        let between = self.kernel.matrix(x, x);
        let by_between = Mat::from_fn(q, q, |i, j| by_covariance[i * q + j]);
        let (mut rows, mut columns) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        let mut slots = Slots { parameters: &mut parameters, a: Some(&mut rows), b: Some(&mut columns) };
        self.kernel.vjp((x, x), between.as_ref(), by_between.as_ref(), &mut slots);
        gradient.iter_mut().zip(rows.iter().zip(&columns)).for_each(|(g, (a, b))| *g += a + b);
        Ok(())
    }
}
