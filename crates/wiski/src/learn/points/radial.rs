//! Radial kernels κ(r), r² = Σ_k ((x_k − z_k)/ℓ_k)², and their derivative in r².
//!
//! | family | κ | −∂κ/∂r² |
//! | --- | --- | --- |
//! | RBF | exp(−r²/2) | κ/2 |
//! | Matérn ½ | exp(−r) | exp(−r)/2r (0 at r = 0, the mean of both sides) |
//! | Matérn 3/2 | (1 + a) exp(−a), a = √3 r | 3/2 exp(−a) |
//! | Matérn 5/2 | (1 + a + a²/3) exp(−a), a = √5 r | 5/6 (1 + a) exp(−a) |
//!
//! Coordinates here are already divided by the length-scales. Squared distances of many pairs are one matrix product,
//! r² = ‖x‖² + ‖z‖² − 2 xᵀz; where that cancels (r² below 10⁻⁶ of its terms) the difference is taken directly.
//! D + O(1) multiply-adds and one exponential for each pair.

use faer::prelude::ReborrowMut;
use faer::{Mat, MatMut, MatRef};
use pulp::{Arch, Simd, WithSimd};

use super::algebra::{Real, multiply};
use crate::error::{Error, Result};
use crate::kernel::Family;
use crate::simd::LANES;

/// Below this share of ‖x‖² + ‖z‖² a squared distance from a product has lost half of its digits.
const CANCELLED: f64 = 1e-6;

/// The families whose radial form is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Radial {
    Rbf,
    Matern12,
    Matern32,
    Matern52,
}

impl Radial {
    pub(super) fn new(family: Family) -> Result<Self> {
        match family {
            Family::Rbf => Ok(Self::Rbf),
            Family::Matern12 => Ok(Self::Matern12),
            Family::Matern32 => Ok(Self::Matern32),
            Family::Matern52 => Ok(Self::Matern52),
            other => Err(Error::Config {
                field: "family".into(),
                reason: format!("{} is not a radial kernel for inducing points", other.name()),
            }),
        }
    }

    /// κ and −∂κ/∂r² at r².
    #[inline(always)]
    fn at(self, r2: f64) -> (f64, f64) {
        match self {
            Self::Rbf => {
                let k = exp_of_negative(-0.5 * r2);
                (k, 0.5 * k)
            }
            Self::Matern12 => {
                let r = r2.sqrt();
                let k = exp_of_negative(-r);
                (k, if r > 0.0 { 0.5 * k / r } else { 0.0 })
            }
            Self::Matern32 => {
                let a = (3.0 * r2).sqrt();
                let e = exp_of_negative(-a);
                ((1.0 + a) * e, 1.5 * e)
            }
            Self::Matern52 => {
                let a = (5.0 * r2).sqrt();
                let e = exp_of_negative(-a);
                ((1.0 + a + a * a / 3.0) * e, 5.0 / 6.0 * (1.0 + a) * e)
            }
        }
    }

    /// From squared distances to w κ and −w ∂κ/∂r², for a block whose columns have the weights w.
    pub(super) fn values<T: Real>(
        self,
        r2: MatRef<'_, f64>,
        weights: &[f64],
        mut k: MatMut<'_, T>,
        mut slope: MatMut<'_, T>,
    ) {
        for (j, &w) in weights.iter().enumerate() {
            let (Some(r2), Some(k), Some(slope)) = (
                r2.col(j).try_as_col_major().map(faer::ColRef::as_slice),
                k.rb_mut().col_mut(j).try_as_col_major_mut().map(faer::ColMut::as_slice_mut),
                slope.rb_mut().col_mut(j).try_as_col_major_mut().map(faer::ColMut::as_slice_mut),
            ) else {
                continue;
            };
            Arch::new().dispatch(Values { family: self, r2, w, k, slope });
        }
    }
}

/// w κ and −w ∂κ/∂r² at each r². A type and no closure: what is handed over as a function is not inlined into the dispatched
/// one, and is compiled for the oldest processor.
struct Values<'a, T> {
    family: Radial,
    r2: &'a [f64],
    w: f64,
    k: &'a mut [T],
    slope: &'a mut [T],
}

impl<T: Real> WithSimd for Values<'_, T> {
    type Output = ();

    /// One loop a family, so that the branch stays out of it.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self.family {
            Radial::Rbf => self.fill(Radial::Rbf),
            Radial::Matern12 => self.fill(Radial::Matern12),
            Radial::Matern32 => self.fill(Radial::Matern32),
            Radial::Matern52 => self.fill(Radial::Matern52),
        }
    }
}

impl<T: Real> Values<'_, T> {
    #[inline(always)]
    fn fill(self, family: Radial) {
        for ((k, slope), &r2) in self.k.iter_mut().zip(self.slope.iter_mut()).zip(self.r2) {
            let (value, fall) = family.at(r2);
            (*k, *slope) = (T::of(self.w * value), T::of(self.w * fall));
        }
    }
}

/// exp(x) for x ≤ 0, to 2 units in the last place, without branches so that loops over it become vector code.
///
/// x = q ln 2 + t with |t| ≤ ½ ln 2, exp(t) by its Taylor polynomial (the first term left out is 4·10⁻¹⁸), 2^q by the
/// exponent bits. Below −700 the answer stays at e⁻⁷⁰⁰, which is zero beside every kernel value that counts.
#[inline(always)]
pub(super) fn exp_of_negative(x: f64) -> f64 {
    // Adding 1.5·2⁵² rounds to an integer and leaves it in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let x = x.max(-700.0);
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let q = shifted - ROUND;
    let t = (x - q * LN2_HIGH) - q * LN2_LOW;
    let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    let mut sum = 1.0 / 6_227_020_800.0;
    for reciprocal in [
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = sum * t + reciprocal;
    }
    sum * power
}

/// Σ_k x_k² of each column.
pub(super) fn squared_norms(x: MatRef<'_, f64>) -> Vec<f64> {
    (0..x.ncols()).map(|j| (0..x.nrows()).map(|i| x[(i, j)] * x[(i, j)]).sum()).collect()
}

/// r²: the squared distances of the columns of `z` (one row of the result each) from those of `x`.
pub(super) fn squared_distances(
    (z, z_norms): (MatRef<'_, f64>, &[f64]),
    (x, x_norms): (MatRef<'_, f64>, &[f64]),
    mut r2: MatMut<'_, f64>,
) {
    multiply(r2.rb_mut(), false, z.transpose(), x, -2.0);
    for (j, &xx) in x_norms.iter().enumerate() {
        let Some(column) = r2.rb_mut().col_mut(j).try_as_col_major_mut().map(faer::ColMut::as_slice_mut)
        else {
            continue;
        };
        let canceled = Arch::new().dispatch(AddNorms { xx, z_norms, column: &mut *column });
        // Rare: a row at a center or next to it.
        if canceled {
            for (i, (r2, &zz)) in column.iter_mut().zip(z_norms).enumerate() {
                if *r2 <= CANCELLED * (xx + zz) {
                    *r2 = (0..x.nrows()).map(|k| (x[(k, j)] - z[(k, i)]).powi(2)).sum();
                }
            }
        }
    }
}

/// r² ← r² + ‖x‖² + ‖z‖², and whether any of them cancels.
struct AddNorms<'a> {
    xx: f64,
    z_norms: &'a [f64],
    column: &'a mut [f64],
}

impl WithSimd for AddNorms<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> bool {
        let mut worst = [f64::INFINITY; LANES];
        let (columns, rest) = self.column.as_chunks_mut::<LANES>();
        let (norms, rest_norms) = self.z_norms.as_chunks::<LANES>();
        for (r2, zz) in columns.iter_mut().zip(norms) {
            for i in 0..LANES {
                let total = self.xx + zz[i];
                r2[i] += total;
                worst[i] = worst[i].min(r2[i] - CANCELLED * total);
            }
        }
        for (r2, zz) in rest.iter_mut().zip(rest_norms) {
            let total = self.xx + zz;
            *r2 += total;
            worst[0] = worst[0].min(*r2 - CANCELLED * total);
        }
        worst.iter().any(|worst| *worst <= 0.0)
    }
}

/// κ(Z, Z) and −∂κ/∂r² for points that are columns.
pub(super) fn covariance(family: Radial, z: MatRef<'_, f64>) -> (Mat<f64>, Mat<f64>) {
    let m = z.ncols();
    let norms = squared_norms(z);
    let mut r2 = Mat::zeros(m, m);
    squared_distances((z, &norms), (z, &norms), r2.as_mut());
    let (mut k, mut slope) = (Mat::zeros(m, m), Mat::zeros(m, m));
    family.values(r2.as_ref(), &vec![1.0; m], k.as_mut(), slope.as_mut());
    (k, slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_right_to_the_last_places() {
        for i in 0..200_000 {
            let x = -f64::from(i) * 3.49e-3;
            let (found, wanted) = (exp_of_negative(x), x.exp());
            assert!((found - wanted).abs() <= 3.0 * f64::EPSILON * wanted, "{x}: {found} {wanted}");
        }
        assert_eq!(exp_of_negative(0.0), 1.0);
        assert!(exp_of_negative(-1e300) < 1e-300);
    }

    /// A radial kernel on one axis is the library's family on that axis.
    #[test]
    fn families_agree_with_those_of_the_grids() {
        for family in [Family::Rbf, Family::Matern12, Family::Matern32, Family::Matern52] {
            let radial = Radial::new(family).unwrap();
            for r in [0.0_f64, 0.01, 0.4, 1.3, 5.0] {
                let wanted = family.value(&[1.0], r);
                assert!((radial.at(r * r).0 - wanted).abs() < 1e-15, "{family:?} {r}");
            }
            for r2 in [0.2_f64, 1.7, 25.0] {
                // A five-point difference errs by h⁴ f⁽⁵⁾/30 + eps/h, both below 10⁻¹⁰ here.
                let h = 1e-3 * r2;
                let at = |steps: f64| radial.at(r2 + steps * h).0;
                let numeric = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * h);
                assert!((radial.at(r2).1 + numeric).abs() < 1e-10, "{family:?} {r2}");
            }
        }
        assert!(Radial::new(Family::Periodic).is_err());
    }

    #[test]
    fn distances_survive_cancellation() {
        let z = Mat::from_fn(3, 4, |k, i| 1e3 + (k + 2 * i) as f64);
        let x = Mat::from_fn(3, 5, |k, j| z[(k, j % 4)] + 1e-7 * j as f64);
        let mut r2 = Mat::zeros(4, 5);
        let norms = (squared_norms(z.as_ref()), squared_norms(x.as_ref()));
        squared_distances((z.as_ref(), &norms.0), (x.as_ref(), &norms.1), r2.as_mut());
        for j in 0..5 {
            for i in 0..4 {
                let wanted: f64 = (0..3).map(|k| (x[(k, j)] - z[(k, i)]).powi(2)).sum();
                assert!((r2[(i, j)] - wanted).abs() <= 1e-8 * wanted, "{i} {j} {}", r2[(i, j)]);
            }
        }
    }
}
