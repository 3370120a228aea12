//! A block of inducing points: a function of all inputs, which no grid of few axes has.
//!
//! The process g ~ GP(0, s κ) has a radial correlation with a length-scale for each of the D inputs (ARD),
//!
//! ```text
//! κ(x, x') = κ(r),   r² = Σ_k ((x_k − x'_k)/ℓ_k)²,   κ(0) = 1
//! ```
//!
//! With M points Z (the centers), L Lᵀ = κ(Z, Z) and κ_Z(x) the correlations of x with them, the coordinates
//! v = L⁻¹ g(Z) have the prior N(0, s I), and
//!
//! ```text
//! g(x) = w(x)ᵀv + residual,   w(x) = L⁻¹ κ_Z(x),   Var residual = s ρ(x),   ρ(x) = 1 − ‖w(x)‖² ≥ 0
//! ```
//!
//! (Titsias 2009; Hensman, Fusi and Lawrence 2013.) Summed over the data, the residual costs s t/2σ² of evidence with
//! t = Σ ρ(x_i)/d_i: one more sum beside those of [`internals::stats`](crate::internals::stats). A center whose ρ under the centers before it is below
//! [`SMALLEST_RESIDUAL`] says nothing new, and is dropped rather than made independent by jitter.
//!
//! Cost: M D for κ_Z(x), M²/2 multiply-adds for w; many points at once by matrix products.

use faer::MatRef;
use pulp::{Arch, Simd, WithSimd};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, finite, length, positive};
use crate::kernel::Family;
use crate::saved::{Restore, restored_after_reading};
use crate::simd::{dot, padded, solve_lower, solve_lower_together, solve_lower_transposed};

/// A center with less than this share of its variance left, given the centers before it, is dropped.
pub const SMALLEST_RESIDUAL: f64 = 1e-9;

/// The largest number of centers: L takes 512 MB.
pub const MAX_CENTERS: usize = 8192;

/// M centers among D inputs, with the radial correlation that connects them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Points {
    family: Family,
    /// z_j, D numbers each.
    #[serde(with = "crate::saved::floats")]
    centers: Vec<f64>,
    #[serde(with = "crate::saved::floats")]
    lengthscales: Vec<f64>,
    /// z_jk/ℓ_k, M numbers for each input k.
    #[serde(skip)]
    scaled: Vec<f64>,
    /// L, M rows of `stride` numbers.
    #[serde(skip)]
    factor: Vec<f64>,
    #[serde(skip)]
    stride: usize,
}

restored_after_reading!(Points);

impl Restore for Points {
    fn restore(&mut self) -> Result<()> {
        // What was kept when the centers were chosen is kept: another processor rounds ρ in its last digits.
        let smallest = 0.5 * SMALLEST_RESIDUAL;
        let (centers, lengthscales) = (std::mem::take(&mut self.centers), &self.lengthscales);
        let found = centers.len();
        let restored = Self::keeping(self.family, &centers, lengthscales, smallest)?;
        length("independent centers", found, restored.centers.len())?;
        *self = restored;
        Ok(())
    }
}

/// Two blocks are equal if they weigh every input alike: all else follows from centers and length-scales.
impl PartialEq for Points {
    fn eq(&self, other: &Self) -> bool {
        self.family == other.family
            && self.lengthscales == other.lengthscales
            && self.centers == other.centers
    }
}

impl Points {
    /// The block with the given centers, D numbers each, one after the other, and a length-scale for each of the D
    /// inputs. The family is RBF or a Matérn. Centers that depend on earlier ones are left out: see [`Points::len`].
    ///
    /// ```
    /// use wiski::Family;
    /// use wiski::internals::points::Points;
    /// let points = Points::new(Family::Matern32, &[0.0, 0.0, 1.0, 0.5, 0.0, 0.0], &[0.7, 1.2])?;
    /// assert_eq!((points.len(), points.dim()), (2, 2));
    /// let (_, residual) = points.weights(&[1.0, 0.5])?;
    /// assert!(residual < 1e-12);
    /// # Ok::<(), wiski::Error>(())
    /// ```
    pub fn new(family: Family, centers: &[f64], lengthscales: &[f64]) -> Result<Self> {
        Self::keeping(family, centers, lengthscales, SMALLEST_RESIDUAL)
    }

    /// The block of the centers whose residual is at least `smallest`, by a Cholesky factorization row after row.
    fn keeping(family: Family, centers: &[f64], lengthscales: &[f64], smallest: f64) -> Result<Self> {
        let reject = |reason: String| Err(Error::Config { field: "points".into(), reason });
        if !matches!(family, Family::Rbf | Family::Matern12 | Family::Matern32 | Family::Matern52) {
            return reject(format!(
                "{} is not radial: rbf, matern12, matern32 and matern52 are",
                family.name()
            ));
        }
        let d = lengthscales.len();
        if d == 0 || centers.len() < d {
            return reject("a block of points needs at least one input and one center".into());
        }
        if centers.len() / d > MAX_CENTERS {
            return reject(format!("{} centers are more than {MAX_CENTERS}", centers.len() / d));
        }
        length("centers", centers.len() / d * d, centers.len())?;
        for (k, &l) in lengthscales.iter().enumerate() {
            positive(format!("lengthscale[{k}]"), l, 0)?;
            positive(format!("1/lengthscale[{k}]"), l.recip(), 0)?;
        }
        for (row, center) in centers.chunks_exact(d).enumerate() {
            for (k, (&z, l)) in center.iter().zip(lengthscales).enumerate() {
                finite(format!("center[{k}]"), z, row)?;
                finite(format!("center[{k}]/lengthscale[{k}]"), z / l, row)?;
            }
        }
        let (all, mut kept) = (centers.len() / d, Vec::with_capacity(centers.len() / d));
        let stride = padded(all);
        let (mut rows, mut distances) = (Vec::with_capacity(all * stride), Vec::with_capacity(all));
        for (j, center) in centers.chunks_exact(d).enumerate() {
            distances.clear();
            distances.extend(kept.iter().map(|&i: &usize| {
                let pairs = center.iter().zip(&centers[i * d..(i + 1) * d]).zip(lengthscales);
                pairs.map(|((a, b), l)| ((a - b) / l).powi(2)).sum::<f64>()
            }));
            correlate(family, &mut distances);
            solve_lower(&rows, stride, &mut distances);
            let residual = 1.0 - dot(&distances, &distances);
            if residual >= smallest {
                rows.extend_from_slice(&distances);
                rows.push(residual.sqrt());
                kept.push(j);
                rows.resize(kept.len() * stride, 0.0);
            }
        }
        let m = kept.len();
        let mut factor = vec![0.0; m * padded(m)];
        for (to, from) in factor.chunks_exact_mut(padded(m)).zip(rows.chunks_exact(stride)) {
            to[..m].copy_from_slice(&from[..m]);
        }
        let centers: Vec<f64> = kept.iter().flat_map(|&j| &centers[j * d..(j + 1) * d]).copied().collect();
        let scaled = (0..d * m).map(|at| centers[at % m * d + at / m] / lengthscales[at / m]).collect();
        let lengthscales = lengthscales.to_vec();
        Ok(Self { family, centers, lengthscales, scaled, factor, stride: padded(m) })
    }

    /// The number M of centers.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.centers.len() / self.dim()
    }

    /// The number D of inputs.
    pub fn dim(&self) -> usize {
        self.lengthscales.len()
    }

    /// The radial correlation.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The centers, D numbers each.
    pub fn centers(&self) -> &[f64] {
        &self.centers
    }

    /// The length-scale of each input.
    pub fn lengthscales(&self) -> &[f64] {
        &self.lengthscales
    }

    /// κ(x, x').
    pub fn correlation(&self, x: &[f64], other: &[f64]) -> f64 {
        let pairs = x.iter().zip(other).zip(&self.lengthscales);
        let mut value = [pairs.map(|((a, b), l)| ((a - b) / l).powi(2)).sum()];
        correlate(self.family, &mut value);
        value[0]
    }

    /// The weights w(x) and the residual ρ(x) of one input.
    pub fn weights(&self, x: &[f64]) -> Result<(Vec<f64>, f64)> {
        length("x", self.dim(), x.len())?;
        x.iter().enumerate().try_for_each(|(k, &x)| finite(format!("x[{k}]"), x, 0))?;
        let mut weights = vec![0.0; self.len()];
        let residual = self.weigh(x, &mut weights);
        Ok((weights, residual))
    }

    /// Writes w(x) and returns ρ(x).
    #[inline]
    pub(crate) fn weigh(&self, x: &[f64], weights: &mut [f64]) -> f64 {
        self.correlations(x, weights);
        solve_lower(&self.factor, self.stride, weights);
        residual(weights)
    }

    /// Writes w and ρ of many inputs, given row after row: the same bits as one by one.
    pub(crate) fn weigh_all<'a>(
        &self,
        x: impl ExactSizeIterator<Item = &'a [f64]>,
        weights: &mut [f64],
        residuals: &mut [f64],
    ) {
        let m = self.len();
        for (x, row) in x.zip(weights.chunks_exact_mut(m)) {
            self.correlations(x, row);
        }
        solve_lower_together(&self.factor, self.stride, m, weights);
        residuals.iter_mut().zip(weights.chunks_exact(m)).for_each(|(r, row)| *r = residual(row));
    }

    /// Writes κ_Z(x).
    #[inline]
    pub(crate) fn correlations(&self, x: &[f64], out: &mut [f64]) {
        self.distances(x, out);
        correlate(self.family, out);
    }

    /// y ← L⁻ᵀ y: from derivatives in w to derivatives in κ_Z(x), and from coordinates v to coefficients of κ_Z.
    pub(crate) fn solve_transposed(&self, y: &mut [f64]) {
        solve_lower_transposed(&self.factor, self.stride, y);
    }

    /// L, lower triangular.
    pub(crate) fn factor(&self) -> MatRef<'_, f64> {
        MatRef::from_row_major_slice_with_stride(&self.factor, self.len(), self.len(), self.stride)
    }

    /// Adds to `out` the derivative in x of a function whose derivatives in the weights w(x) are given; they are
    /// overwritten. A derivative ρ̄ in the residual is part of them as −2 ρ̄ w, since ρ = 1 − ‖w‖².
    pub(crate) fn vjp(&self, x: &[f64], by_weights: &mut [f64], out: &mut [f64], scratch: &mut [f64]) {
        self.solve_transposed(by_weights);
        self.vjp_correlations(x, by_weights, out, scratch);
    }

    /// Adds to `out` the derivative in x of a function whose derivatives in κ_Z(x) are given: with r_j² the distance
    /// of center j, Σ_j κ̄_j κ'(r_j²) 2 (x_k − z_jk)/ℓ_k².
    pub(crate) fn vjp_correlations(
        &self,
        x: &[f64],
        by_correlations: &[f64],
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let slopes = &mut scratch[..self.len()];
        self.distances(x, slopes);
        slopes.iter_mut().zip(by_correlations).for_each(|(s, by)| *s = 2.0 * by * slope(self.family, *s));
        let sum: f64 = slopes.iter().sum();
        let inputs = x.iter().zip(&self.lengthscales).zip(self.scaled.chunks_exact(self.len()));
        for (out, ((x, l), scaled)) in out.iter_mut().zip(inputs) {
            *out += (x / l * sum - dot(slopes, scaled)) / l;
        }
    }

    /// Adds to `out` the derivative c ∂κ(x, x')/∂x.
    pub(crate) fn vjp_correlation(&self, x: &[f64], other: &[f64], c: f64, out: &mut [f64]) {
        let pairs = || x.iter().zip(other).zip(&self.lengthscales);
        let distance = pairs().map(|((a, b), l)| ((a - b) / l).powi(2)).sum();
        let factor = 2.0 * c * slope(self.family, distance);
        out.iter_mut().zip(pairs()).for_each(|(out, ((a, b), l))| *out += factor * (a - b) / (l * l));
    }

    /// Writes r_j² for each center.
    #[inline]
    fn distances(&self, x: &[f64], out: &mut [f64]) {
        Arch::new().dispatch(Distances { points: self, x, out });
    }
}

/// 1 − ‖w‖², never below 0.
#[inline]
fn residual(weights: &[f64]) -> f64 {
    (1.0 - dot(weights, weights)).max(0.0)
}

struct Distances<'a> {
    points: &'a Points,
    x: &'a [f64],
    out: &'a mut [f64],
}

impl WithSimd for Distances<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { points, x, out } = self;
        out.fill(0.0);
        for ((x, l), scaled) in x.iter().zip(&points.lengthscales).zip(points.scaled.chunks_exact(out.len()))
        {
            let x = x / l;
            for (r2, z) in out.iter_mut().zip(scaled) {
                let difference = x - z;
                *r2 += difference * difference;
            }
        }
    }
}

/// κ in place of r².
fn correlate(family: Family, distances: &mut [f64]) {
    Arch::new().dispatch(Correlate { family, distances });
}

struct Correlate<'a> {
    family: Family,
    distances: &'a mut [f64],
}

impl WithSimd for Correlate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let r = self.distances;
        match self.family {
            Family::Matern12 => {
                for r in r {
                    *r = exp(-r.sqrt());
                }
            }
            Family::Matern32 => {
                for r in r {
                    let s = (3.0 * *r).sqrt();
                    *r = (1.0 + s) * exp(-s);
                }
            }
            Family::Matern52 => {
                for r in r {
                    let s = (5.0 * *r).sqrt();
                    *r = (1.0 + s + s * s / 3.0) * exp(-s);
                }
            }
            // Points::new admits no other.
            _ => {
                for r in r {
                    *r = exp(-0.5 * *r);
                }
            }
        }
    }
}

/// dκ/d(r²). Matérn ½ has a cusp at r = 0, where this is the mean of its slopes, 0.
fn slope(family: Family, distance: f64) -> f64 {
    match family {
        Family::Matern12 => {
            let r = distance.sqrt();
            if r > 0.0 { -0.5 * exp(-r) / r } else { 0.0 }
        }
        Family::Matern32 => -1.5 * exp(-(3.0 * distance).sqrt()),
        Family::Matern52 => {
            let s = (5.0 * distance).sqrt();
            -5.0 / 6.0 * (1.0 + s) * exp(-s)
        }
        _ => -0.5 * exp(-0.5 * distance),
    }
}

/// e^x for x ≤ 0, without branches and calls, so that a loop over it is compiled to vector instructions: with
/// x = k ln 2 + f, |f| ≤ ½ ln 2, the Taylor series of e^f to f¹³ (whose rest is below 10⁻¹⁷), times 2^k. Below −708 it
/// stays at 10⁻³⁰⁸.
#[inline(always)]
#[allow(clippy::excessive_precision, clippy::approx_constant)] // ln 2 in two parts, the first with zeros at its end
fn exp(x: f64) -> f64 {
    const ROUND: f64 = 6_755_399_441_055_744.0; // 3·2⁵¹: adding it rounds to whole numbers, kept in the last bits
    const SERIES: [f64; 14] = {
        let (mut series, mut i) = ([1.0; 14], 1);
        while i < 14 {
            series[i] = series[i - 1] / i as f64;
            i += 1;
        }
        series
    };
    let x = if x > -708.0 { x } else { -708.0 };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let f = (x - k * 0.693_147_180_369_123_816_49) - k * 1.908_214_929_270_587_700_02e-10;
    let sum = SERIES.iter().rev().fold(0.0, |sum, c| sum * f + c);
    sum * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

#[cfg(test)]
mod tests;
