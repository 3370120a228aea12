//! Criteria of several points at once: means over quasi-random samples of their joint prediction.
//!
//! A sample of the q latent values is f = μ + L ε with covariance L Lᵀ and ε fixed, so that the mean over samples
//! is a smooth function of μ and the covariance (the reparameterization trick of Wilson et al. 2017). The ε are
//! scrambled Sobol points pushed through Φ⁻¹, which err far less than random ones.
//!
//! The derivative goes back through the Cholesky factor (Murray 2016, "Differentiation of the Cholesky
//! decomposition"): with L̄ the derivative in L and Φ taking the lower triangle and half the diagonal,
//!
//! ```text
//! C̄ = ½ (S + Sᵀ),   S = L⁻ᵀ Φ(Lᵀ L̄) L⁻¹
//! ```

use std::f64::consts::PI;

use crate::error::{Error, Result};
use crate::normal::quantile;
use crate::posterior::Joint;

/// Added to the diagonal of a joint covariance, relative to its mean: two points in one place have a singular
/// one, and a sample of them is the same with it to ten digits.
const JITTER: f64 = 1e-10;

/// The width over which the positive part is smoothed, and over which the maximum is, for log improvements
/// (the values of Ament et al. 2023, in units of the targets' deviation).
const SOFT_ZERO: f64 = 1e-6;
const SOFT_MAX: f64 = 1e-2;

/// Fixed standard normal samples for q points.
#[derive(Debug, Clone, PartialEq)]
pub struct BaseSamples {
    points: usize,
    count: usize,
    values: Vec<f64>,
}

impl BaseSamples {
    /// `count` samples for q points, the same for the same seed.
    pub fn new(points: usize, count: usize, seed: u64) -> Self {
        let seed = (seed ^ (seed >> 32)) as u32;
        let mut values = Vec::with_capacity(points * count);
        for i in 0..count {
            for k in 0..points {
                let u = if k < 256 {
                    // One of 2²⁴ values; its middle is never 0 or 1.
                    f64::from(sobol_burley::sample(i as u32, k as u32, seed)) + 0.5 / f64::from(1 << 24)
                } else {
                    // Beyond the dimensions of the table, further scramblings of the first ones.
                    let other = seed.wrapping_add(0x9E37_79B9_u32.wrapping_mul((k / 256) as u32));
                    f64::from(sobol_burley::sample(i as u32, (k % 256) as u32, other))
                        + 0.5 / f64::from(1 << 24)
                };
                values.push(quantile(u.clamp(1e-9, 1.0 - 1e-9)));
            }
        }
        Self { points, count, values }
    }

    /// The number of points q.
    pub fn points(&self) -> usize {
        self.points
    }

    /// Calls `criterion(samples of f, slopes, by_mean)`, where samples and slopes are count×q and slopes are
    /// derivatives in L ε; what depends on the mean the criterion adds to `by_mean` itself. Adds up the
    /// derivatives in the covariance.
    pub(super) fn reparameterize(
        &self,
        joint: &Joint,
        by_mean: &mut [f64],
        by_covariance: &mut [f64],
        criterion: impl FnOnce(&[f64], &mut [f64], &mut [f64]) -> Result<f64>,
    ) -> Result<f64> {
        let q = self.points;
        let l = cholesky(&joint.covariance, q)?;
        let mut f = vec![0.0; self.count * q];
        for (f, e) in f.chunks_exact_mut(q).zip(self.values.chunks_exact(q)) {
            for i in 0..q {
                f[i] = joint.mean[i] + (0..=i).map(|j| l[i * q + j] * e[j]).sum::<f64>();
            }
        }
        let mut slopes = vec![0.0; self.count * q];
        let value = criterion(&f, &mut slopes, by_mean)?;
        let mut by_l = vec![0.0; q * q];
        for (s, e) in slopes.chunks_exact(q).zip(self.values.chunks_exact(q)) {
            for i in 0..q {
                (0..=i).for_each(|j| by_l[i * q + j] += s[i] * e[j]);
            }
        }
        back_through_cholesky(&l, &by_l, q, by_covariance);
        Ok(value)
    }

    /// E max_j (μ_j + √(βπ/2) |f_j − μ_j|).
    pub(super) fn upper_confidence(
        &self,
        beta: f64,
        mean: &[f64],
        f: &[f64],
        slopes: &mut [f64],
        by_mean: &mut [f64],
    ) -> f64 {
        let (q, c) = (self.points, (beta * PI / 2.0).sqrt());
        let share = 1.0 / self.count as f64;
        let mut sum = 0.0;
        for (f, s) in f.chunks_exact(q).zip(slopes.chunks_exact_mut(q)) {
            let score = |j: usize| mean[j] + c * (f[j] - mean[j]).abs();
            let best = (1..q).fold(0, |b, j| if score(j) > score(b) { j } else { b });
            sum += score(best);
            // f − μ = L ε does not depend on the mean.
            s[best] = share * c * (f[best] - mean[best]).signum();
            by_mean[best] += share;
        }
        sum * share
    }

    /// E max_j (f_j − best)₊.
    pub(super) fn improvement(&self, best: f64, f: &[f64], slopes: &mut [f64], by_mean: &mut [f64]) -> f64 {
        let (q, share) = (self.points, 1.0 / self.count as f64);
        let mut sum = 0.0;
        for (f, s) in f.chunks_exact(q).zip(slopes.chunks_exact_mut(q)) {
            let top = (1..q).fold(0, |b, j| if f[j] > f[b] { j } else { b });
            if f[top] > best {
                sum += f[top] - best;
                s[top] = share;
                by_mean[top] += share;
            }
        }
        sum * share
    }

    /// log E of a smoothed max_j (f_j − best)₊: log-sum-exp over samples of a soft maximum over points of the
    /// logarithm of a positive part with a polynomial tail.
    pub(super) fn log_improvement(
        &self,
        best: f64,
        f: &[f64],
        slopes: &mut [f64],
        by_mean: &mut [f64],
    ) -> f64 {
        let q = self.points;
        let mut logs = vec![0.0; self.count];
        for ((f, s), log) in f.chunks_exact(q).zip(slopes.chunks_exact_mut(q)).zip(&mut logs) {
            let each: Vec<(f64, f64)> = f.iter().map(|f| log_soft_positive(f - best)).collect();
            let top = each.iter().fold(f64::NEG_INFINITY, |m, e| m.max(e.0));
            let weights: Vec<f64> = each.iter().map(|e| ((e.0 - top) / SOFT_MAX).exp()).collect();
            let total: f64 = weights.iter().sum();
            *log = top + SOFT_MAX * (total / q as f64).ln();
            for ((s, w), e) in s.iter_mut().zip(&weights).zip(&each) {
                *s = w / total * e.1;
            }
        }
        let top = logs.iter().fold(f64::NEG_INFINITY, |m, l| m.max(*l));
        let total: f64 = logs.iter().map(|l| (l - top).exp()).sum();
        for (s, log) in slopes.chunks_exact_mut(q).zip(&logs) {
            let share = (log - top).exp() / total;
            for (s, by_mean) in s.iter_mut().zip(by_mean.iter_mut()) {
                *s *= share;
                *by_mean += *s;
            }
        }
        top + (total / self.count as f64).ln()
    }
}

/// log of τ(softplus(x/τ) + α/(1 + (x/τ)²)) with its derivative: the positive part of x, with a tail that
/// falls like 1/x² so that the gradient does not vanish where nothing is promised.
fn log_soft_positive(x: f64) -> (f64, f64) {
    const ALPHA: f64 = 0.1;
    let u = x / SOFT_ZERO;
    let softplus = if u > 0.0 { u + (-u).exp().ln_1p() } else { u.exp().ln_1p() };
    let slope = if u > 0.0 { 1.0 / (1.0 + (-u).exp()) } else { u.exp() / (1.0 + u.exp()) };
    let tail = ALPHA / (1.0 + u * u);
    let tail_slope = -2.0 * u * tail / (1.0 + u * u);
    let sum = softplus + tail;
    (SOFT_ZERO.ln() + sum.ln(), (slope + tail_slope) / (sum * SOFT_ZERO))
}

/// The lower Cholesky factor of a small covariance with jitter.
fn cholesky(c: &[f64], q: usize) -> Result<Vec<f64>> {
    let jitter = JITTER * (0..q).map(|i| c[i * q + i]).sum::<f64>() / q as f64 + f64::MIN_POSITIVE;
    let mut l = vec![0.0; q * q];
    for i in 0..q {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| l[i * q + k] * l[j * q + k]).sum();
            let rest = c[i * q + j] - sum + if i == j { jitter } else { 0.0 };
            l[i * q + j] = if i == j {
                // What is left of a repeated point may be rounding alone.
                rest.max(0.5 * jitter).sqrt()
            } else {
                rest / l[j * q + j]
            };
        }
    }
    if l.iter().all(|v| v.is_finite()) {
        Ok(l)
    } else {
        Err(Error::Unsupported { operation: "joint sampling", reason: "the covariance is not finite" })
    }
}

/// Adds the derivative in the covariance, given that in its Cholesky factor.
fn back_through_cholesky(l: &[f64], by_l: &[f64], q: usize, by_covariance: &mut [f64]) {
    // P = Φ(Lᵀ L̄)
    let mut p = vec![0.0; q * q];
    for i in 0..q {
        for j in 0..=i {
            let sum: f64 = (i..q).map(|k| l[k * q + i] * by_l[k * q + j]).sum();
            p[i * q + j] = if i == j { 0.5 * sum } else { sum };
        }
    }
    // Lᵀ X = P, then S L = X.
    for j in 0..q {
        for i in (0..q).rev() {
            let sum: f64 = (i + 1..q).map(|k| l[k * q + i] * p[k * q + j]).sum();
            p[i * q + j] = (p[i * q + j] - sum) / l[i * q + i];
        }
    }
    for i in 0..q {
        for j in (0..q).rev() {
            let sum: f64 = (j + 1..q).map(|k| p[i * q + k] * l[k * q + j]).sum();
            p[i * q + j] = (p[i * q + j] - sum) / l[j * q + j];
        }
    }
    for i in 0..q {
        for j in 0..q {
            by_covariance[i * q + j] += 0.5 * (p[i * q + j] + p[j * q + i]);
        }
    }
}
