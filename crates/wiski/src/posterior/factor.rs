//! The square-root form of a posterior covariance in p coordinates, and its rank-one updates.
//!
//! The covariance of z is P = S⁻¹ = F Fᵀ. A fresh factor comes from a Cholesky decomposition,
//! S = R Rᵀ, F = R⁻ᵀ. Conditioning on one more observation with features φ and noise variance r multiplies
//! F from the right (Potter's form of the Kalman update):
//!
//! ```text
//! f = Fᵀφ     v = fᵀf     F ← F (I − γ f fᵀ),   γ = 1/((r + v) + √(r (r + v)))
//! ```
//!
//! so P stays positive semi-definite by construction, and variances ‖Fᵀφ‖² can never become negative. With
//! −r in place of r the same formula removes an observation. Cost: 3p² multiply-adds in two sweeps over F.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_inverse::invert_lower_triangular;
use faer::{Accum, MatMut, MatRef, Par};

use crate::error::{Error, Result, length};
use crate::pool::{Aligned, Pool};
use crate::simd::{LANES, combine_rows, dot, dot_rows, dot_rows_and_deflate, padded};

/// Columns at a time in the product F Fᵀ.
const PANEL: usize = 64;

/// F with P = F Fᵀ, p×p, stored row after row with zero padding.
#[derive(Debug, Clone)]
pub(crate) struct Factor {
    size: usize,
    stride: usize,
    rows: Aligned,
}

impl Factor {
    /// The factor F = R⁻ᵀ of S⁻¹ for S = I + gram/σ², with log det S; and R, lower triangular, column after column.
    pub(crate) fn new(gram: &[f64], noise: f64, p: usize, pool: &mut Pool) -> Result<(Self, f64, Vec<f64>)> {
        let stride = padded(p);
        let inverse_noise = noise.recip();
        let mut s = pool.take(p * p);
        s.iter_mut().zip(gram).for_each(|(s, g)| *s = g * inverse_noise);
        (0..p).for_each(|i| s[i * p + i] += 1.0);
        let mut r = MatMut::from_column_major_slice_mut(&mut s, p, p);
        let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f64>(p, Par::Seq, Default::default()));
        let stack = MemStack::new(&mut memory);
        let done = cholesky_in_place(r.as_mut(), Default::default(), Par::Seq, stack, Default::default());
        if done.is_err() {
            pool.give(s);
            // S ≥ I, so this only happens when the statistics are not those of any data.
            let reason =
                "the statistics are not positive definite: a point was forgotten that was never learned";
            return Err(Error::Unsupported { operation: "factorization", reason });
        }
        let log_det = 2.0 * (0..p).map(|i| s[i * p + i].ln()).sum::<f64>();
        // R⁻¹ lower triangular and column-major is R⁻ᵀ row-major; the other triangle must be zero.
        let mut rows = Aligned::zeros(p * stride, pool);
        let inverse = MatMut::from_column_major_slice_with_stride_mut(&mut rows, p, p, stride);
        invert_lower_triangular(inverse, MatRef::from_column_major_slice(&s, p, p), Par::Seq);
        Ok((Self { size: p, stride, rows }, log_det, s))
    }

    /// F without padding, row after row.
    pub(crate) fn compact(&self) -> Vec<f64> {
        self.rows.chunks_exact(self.stride.max(1)).flat_map(|row| &row[..self.size]).copied().collect()
    }

    /// The factor with the given rows of p entries.
    pub(crate) fn from_compact(p: usize, compact: &[f64]) -> Result<Self> {
        length("factor of the posterior", p * p, compact.len())?;
        let stride = padded(p);
        let mut rows = Aligned::zeros(p * stride, &mut Pool::default());
        for (row, from) in rows.chunks_exact_mut(stride.max(1)).zip(compact.chunks_exact(p.max(1))) {
            row[..p].copy_from_slice(from);
        }
        Ok(Self { size: p, stride, rows })
    }

    /// Gives the memory back.
    pub(crate) fn recycle(self, pool: &mut Pool) {
        self.rows.recycle(pool);
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The length of padded vectors.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// All rows, each `stride` long.
    pub(crate) fn rows(&self) -> &[f64] {
        &self.rows
    }

    pub(crate) fn rows_mut(&mut self) -> &mut [f64] {
        &mut self.rows
    }

    /// The variances P_ii.
    pub(crate) fn variances(&self) -> impl Iterator<Item = f64> + '_ {
        self.rows.chunks_exact(self.stride).map(|row| dot(row, row))
    }

    /// P = F Fᵀ, row after row. For a fresh factor, which is triangular, that is p³/6 multiply-adds.
    pub(crate) fn covariance(&self, pool: &mut Pool) -> Vec<f64> {
        let p = self.size;
        let mut all = pool.take(p * p);
        let f = MatRef::from_row_major_slice_with_stride(&self.rows, p, p, self.stride);
        let rows = self.rows.chunks_exact(self.stride.max(1)).enumerate();
        let is_upper = rows.into_iter().all(|(i, row)| row[..i].iter().all(|&v| v == 0.0));
        for first in (0..p).step_by(PANEL) {
            let end = p.min(first + PANEL);
            let from = if is_upper { first } else { 0 };
            let (left, right) = (f.get(..end, from..), f.get(first..end, from..));
            let out = MatMut::from_row_major_slice_mut(&mut all, p, p).get_mut(..end, first..end);
            matmul(out, Accum::Replace, left, right.transpose(), 1.0, Par::Seq);
        }
        // The other half, a few columns at a time, so that what is read and written stays in the fastest memory.
        for first in (0..p).step_by(LANES) {
            for j in first + 1..p {
                (first..j.min(first + LANES)).for_each(|i| all[j * p + i] = all[i * p + j]);
            }
        }
        all
    }

    /// f = Fᵀφ; its squared norm is the variance φᵀPφ.
    #[inline]
    pub(crate) fn whiten(&self, phi: &[f64], f: &mut [f64]) {
        combine_rows(&self.rows, self.stride, phi, f);
    }

    /// F f: with f = Fᵀφ this is P φ.
    #[inline]
    pub(crate) fn color(&self, f: &[f64], out: &mut [f64]) {
        dot_rows(&self.rows, self.stride, f, out);
    }

    /// Conditions on an observation with noise variance `noise` (negative: removes one), given f = Fᵀφ.
    /// Writes P φ, with the P from before, to `gain`.
    #[inline]
    pub(crate) fn update(&mut self, f: &[f64], noise: f64, gain: &mut [f64]) {
        dot_rows_and_deflate(&mut self.rows, self.stride, f, shrinkage(dot(f, f), noise), gain);
    }
}

/// γ for a point with latent variance v = fᵀf and the given noise variance (negative: it is removed).
#[inline]
pub(super) fn shrinkage(v: f64, noise: f64) -> f64 {
    let total = noise + v;
    // r (r + v) is positive for an added point and for a point that can be removed (−r + v < 0).
    1.0 / (total + total.signum() * (noise * total).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_covariance_is_the_product_of_a_fresh_and_of_an_updated_factor() {
        let (p, pool) = (75, &mut Pool::default());
        let entry = |i: usize, j: usize| (0.3 * (i as f64 - j as f64)).cos() + f64::from(u8::from(i == j));
        let gram: Vec<f64> = (0..p * p).map(|at| entry(at / p, at % p)).collect();
        let (mut factor, _, cholesky) = Factor::new(&gram, 0.5, p, pool).unwrap();
        for updated in [false, true] {
            if updated {
                let mut f: Vec<f64> = (0..factor.stride()).map(|i| (0.7 * i as f64).sin()).collect();
                f[p..].fill(0.0);
                factor.update(&f, 0.5, &mut vec![0.0; factor.stride()]);
            } else {
                // R Fᵀ = I.
                for (i, j) in (0..p * p).map(|at| (at / p, at % p)) {
                    let row = &factor.rows()[j * factor.stride()..];
                    let sum: f64 = (0..=i).map(|k| cholesky[k * p + i] * row[k]).sum();
                    assert!((sum - f64::from(u8::from(i == j))).abs() < 1e-12);
                }
            }
            let (rows, all) = (factor.compact(), factor.covariance(pool));
            for (i, j) in (0..p * p).map(|at| (at / p, at % p)) {
                let want: f64 = (0..p).map(|k| rows[i * p + k] * rows[j * p + k]).sum();
                assert!((all[i * p + j] - want).abs() < 1e-13, "({i}, {j}): {} {want}", all[i * p + j]);
            }
        }
    }
}
