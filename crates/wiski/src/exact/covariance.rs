//! Dense covariance matrices of a stationary product kernel, and the way back from ∂F/∂K.
//!
//! k(x, x') = s Π_k κ(x_k − x'_k), with the families and parameters of [`Kernel`] in the same order (the output
//! scale, then those of each axis), so that one set of hyperparameters means the same everywhere.
//!
//! The families with one length-scale are κ = π(r) exp(−e(r)) in the scaled distance r = c|τ|/ℓ, so that an entry
//! costs one exponential, whatever the number of axes, and its derivatives none: with λ(r) = −κ'(r)/κ(r),
//! ∂k/∂ℓ = k λ r/ℓ and ∂k/∂τ = −k λ c sign(τ)/ℓ.

use std::f64::consts::{PI, TAU};

use faer::{Mat, MatRef};
use serde::{Deserialize, Serialize};

use crate::dense::mirror;
use crate::error::{Error, Result, length, positive};
use crate::kernel::{Family, Kernel, MAX_AXES};
use crate::saved::{Restore, restored_after_reading};

/// s Π_k κ(x_k − x'_k).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Covariance {
    family: Family,
    dim: usize,
    parameters: Vec<f64>,
}

restored_after_reading!(Covariance);

impl Restore for Covariance {
    fn restore(&mut self) -> Result<()> {
        // Few enough first, so that no number of them overflows.
        if self.dim > MAX_AXES
            || matches!(self.family, Family::SpectralMixture { components } if components > self.parameters.len())
        {
            let reason = "its parameters do not fit its family and axes".into();
            return Err(Error::Config { field: "kernel".into(), reason });
        }
        let values = self.parameters.clone();
        *self = Self::new(self.family, self.dim)?;
        self.set_parameters(&values)
    }
}

/// Where the derivatives of a scalar F go on the way back from ∂F/∂K.
#[derive(Default)]
pub struct Slots<'a> {
    /// Receives ∂F/∂parameter (added).
    pub parameters: &'a mut [f64],
    /// Receives ∂F/∂a, point after point (added), if wanted.
    pub a: Option<&'a mut [f64]>,
    /// Receives ∂F/∂b, point after point (added), if wanted.
    pub b: Option<&'a mut [f64]>,
}

impl Covariance {
    /// One family on every axis, with the library's default parameters.
    pub fn new(family: Family, dim: usize) -> Result<Self> {
        use Family::{Matern12, Matern32, Matern52, Rbf, SpectralMixture};
        if !matches!(family, Rbf | Matern12 | Matern32 | Matern52 | SpectralMixture { .. }) {
            let reason = format!("{} has no derivative in the distance here", family.name());
            return Err(Error::Config { field: "kernel".into(), reason });
        }
        Ok(Self { family, dim, parameters: Kernel::new(family, dim)?.parameters() })
    }

    /// The kernel of the paper: RBF with a length-scale per axis.
    pub fn rbf(scale: f64, lengthscales: &[f64]) -> Result<Self> {
        let mut kernel = Self::new(Family::Rbf, lengthscales.len())?;
        kernel.set_parameters(&[&[scale], lengthscales].concat())?;
        Ok(kernel)
    }

    /// The same kernel for the library's grids.
    pub fn to_kernel(&self) -> Result<Kernel> {
        let mut kernel = Kernel::new(self.family, self.dim)?;
        kernel.set_parameters(&self.parameters)?;
        Ok(kernel)
    }

    /// The number of axes.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The family of every axis.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The output scale, then the parameters of each axis.
    pub fn parameters(&self) -> &[f64] {
        &self.parameters
    }

    /// The parameters of one axis.
    pub fn on_axis(&self, axis: usize) -> &[f64] {
        let p = self.family.parameter_count();
        &self.parameters[1 + axis * p..=(axis + 1) * p]
    }

    /// Replaces the parameters; each must be positive.
    pub fn set_parameters(&mut self, values: &[f64]) -> Result<()> {
        length("kernel parameters", self.parameters.len(), values.len())?;
        values.iter().try_for_each(|&v| positive("kernel parameter", v, 0))?;
        self.parameters.copy_from_slice(values);
        Ok(())
    }

    /// k(x, x).
    pub fn variance(&self) -> f64 {
        self.parameters[0]
    }

    /// k(a, b).
    pub fn value(&self, a: &[f64], b: &[f64]) -> f64 {
        let Some(c) = stretch(self.family) else {
            let on_axis = |k: usize| self.family.value(self.on_axis(k), a[k] - b[k]);
            return self.variance() * (0..self.dim).map(on_axis).product::<f64>();
        };
        let (mut product, mut exponent) = (self.variance(), 0.0);
        for ((a, b), l) in a.iter().zip(b).zip(&self.parameters[1..]) {
            let r = c * (a - b).abs() / l;
            let (factor, summand) = parts(self.family, r);
            product *= factor;
            exponent -= summand;
        }
        product * exponent.exp()
    }

    /// The matrix k(a_i, b_j) for points given row after row.
    pub fn matrix(&self, a: &[f64], b: &[f64]) -> Mat<f64> {
        let d = self.dim;
        let mut k = Mat::zeros(a.len() / d, b.len() / d);
        for (j, b) in b.chunks_exact(d).enumerate() {
            for (entry, a) in k.col_as_slice_mut(j).iter_mut().zip(a.chunks_exact(d)) {
                *entry = self.value(a, b);
            }
        }
        k
    }

    /// The symmetric matrix k(a_i, a_j).
    pub fn gram(&self, a: &[f64]) -> Mat<f64> {
        let d = self.dim;
        let n = a.len() / d;
        let mut k = Mat::zeros(n, n);
        for j in 0..n {
            let b = &a[j * d..(j + 1) * d];
            let below = &mut k.col_as_slice_mut(j)[j..];
            for (entry, a) in below.iter_mut().zip(a[j * d..].chunks_exact(d)) {
                *entry = self.value(a, b);
            }
        }
        mirror(&mut k);
        k
    }

    /// From ∂F/∂K, for K = [`matrix`](Self::matrix)(a, b), to parameters and points.
    pub fn vjp(
        &self,
        (a, b): (&[f64], &[f64]),
        k: MatRef<'_, f64>,
        by_k: MatRef<'_, f64>,
        slots: &mut Slots,
    ) {
        match stretch(self.family) {
            Some(c) => self.vjp_scaled(c, (a, b), k, by_k, slots),
            None => self.vjp_any((a, b), by_k, slots),
        }
    }

    /// From k itself: no exponential is needed again.
    fn vjp_scaled(
        &self,
        c: f64,
        (a, b): (&[f64], &[f64]),
        k: MatRef<'_, f64>,
        by_k: MatRef<'_, f64>,
        slots: &mut Slots,
    ) {
        let d = self.dim;
        let inverse: Vec<f64> = self.parameters[1..].iter().map(|l| l.recip()).collect();
        let mut sums = vec![0.0; d + 1];
        for (j, b) in b.chunks_exact(d).enumerate() {
            for (i, a) in a.chunks_exact(d).enumerate() {
                let w = k[(i, j)] * by_k[(i, j)];
                sums[0] += w;
                for axis in 0..d {
                    let t = c * (a[axis] - b[axis]) * inverse[axis];
                    let decay = w * decay(self.family, t.abs());
                    sums[axis + 1] += decay * t.abs();
                    // At a corner of κ 0 stands for the mean of both sides.
                    let sign = if t == 0.0 { 0.0 } else { t.signum() };
                    let slope = -decay * c * inverse[axis] * sign;
                    if let Some(by_a) = slots.a.as_deref_mut() {
                        by_a[i * d + axis] += slope;
                    }
                    if let Some(by_b) = slots.b.as_deref_mut() {
                        by_b[j * d + axis] -= slope;
                    }
                }
            }
        }
        slots.parameters[0] += sums[0] / self.variance();
        for axis in 0..d {
            slots.parameters[axis + 1] += sums[axis + 1] * inverse[axis];
        }
    }

    fn vjp_any(&self, (a, b): (&[f64], &[f64]), by_k: MatRef<'_, f64>, slots: &mut Slots) {
        let (d, p) = (self.dim, self.family.parameter_count());
        let (mut values, mut local) = (vec![0.0; d], vec![0.0; d * p]);
        for (j, b) in b.chunks_exact(d).enumerate() {
            for (i, a) in a.chunks_exact(d).enumerate() {
                let g = by_k[(i, j)];
                for axis in 0..d {
                    let own = &mut local[axis * p..(axis + 1) * p];
                    values[axis] = self.family.value_and_gradient(self.on_axis(axis), a[axis] - b[axis], own);
                }
                slots.parameters[0] += g * values.iter().product::<f64>();
                for axis in 0..d {
                    let others: f64 = (0..d).filter(|&o| o != axis).map(|o| values[o]).product();
                    let scale = g * self.variance() * others;
                    for q in 0..p {
                        slots.parameters[1 + axis * p + q] += scale * local[axis * p + q];
                    }
                    let slope = scale * slope(self.family, self.on_axis(axis), a[axis] - b[axis]);
                    if let Some(by_a) = slots.a.as_deref_mut() {
                        by_a[i * d + axis] += slope;
                    }
                    if let Some(by_b) = slots.b.as_deref_mut() {
                        by_b[j * d + axis] -= slope;
                    }
                }
            }
        }
    }
}

/// c of the scaled distance r = c|τ|/ℓ, for the families that are functions of it.
fn stretch(family: Family) -> Option<f64> {
    match family {
        Family::Rbf | Family::Matern12 => Some(1.0),
        Family::Matern32 => Some(3f64.sqrt()),
        Family::Matern52 => Some(5f64.sqrt()),
        _ => None,
    }
}

/// π(r) and e(r) of κ = π(r) exp(−e(r)).
fn parts(family: Family, r: f64) -> (f64, f64) {
    match family {
        Family::Matern12 => (1.0, r),
        Family::Matern32 => (1.0 + r, r),
        Family::Matern52 => (1.0 + r + r * r / 3.0, r),
        _ => (1.0, 0.5 * r * r),
    }
}

/// λ(r) = −κ'(r)/κ(r).
fn decay(family: Family, r: f64) -> f64 {
    match family {
        Family::Matern12 => 1.0,
        Family::Matern32 => r / (1.0 + r),
        Family::Matern52 => r * (1.0 + r) / (3.0 + 3.0 * r + r * r),
        _ => r,
    }
}

/// κ'(τ) of a family that is no function of one scaled distance.
fn slope(family: Family, p: &[f64], tau: f64) -> f64 {
    let Family::SpectralMixture { components: q } = family else { return f64::NAN }; // rejected by the constructor
    let total: f64 = p[..q].iter().sum();
    let component = |i: usize| {
        let (w, frequency, bandwidth) = (p[i] / total, p[q + i], p[2 * q + i]);
        let envelope = (-2.0 * (PI * tau * bandwidth).powi(2)).exp();
        let (sin, cos) = (TAU * frequency * tau).sin_cos();
        -w * envelope * (4.0 * (PI * bandwidth).powi(2) * tau * cos + TAU * frequency * sin)
    };
    (0..q).map(component).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILIES: [Family; 5] = [
        Family::Rbf,
        Family::Matern12,
        Family::Matern32,
        Family::Matern52,
        Family::SpectralMixture { components: 2 },
    ];

    /// Five-point differences err by h⁴ + ε/h with h = 10⁻⁴: some 10⁻¹¹.
    fn assert_gradient(x: &[f64], gradient: &[f64], f: impl Fn(&[f64]) -> f64) {
        for i in 0..x.len() {
            let h = 1e-4 * (1.0 + x[i].abs());
            let at = |shift: f64| {
                let mut x = x.to_vec();
                x[i] += shift;
                f(&x)
            };
            let numeric = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
            assert!((gradient[i] - numeric).abs() <= 1e-9 * (1.0 + numeric.abs()), "unknown {i}");
        }
    }

    fn points(n: usize, shift: f64) -> Vec<f64> {
        (0..2 * n).map(|i| (1.7 * i as f64 + shift).sin()).collect()
    }

    #[test]
    fn agrees_with_the_kernel_of_the_library() {
        for family in FAMILIES {
            let own = Covariance::new(family, 2).unwrap();
            let kernel = own.to_kernel().unwrap();
            let (a, b) = (points(4, 0.0), points(3, 0.3));
            let (k, g) = (own.matrix(&a, &b), own.gram(&a));
            for i in 0..4 {
                for j in 0..3 {
                    let want = kernel.covariance(&[a[2 * i] - b[2 * j], a[2 * i + 1] - b[2 * j + 1]]);
                    assert!((k[(i, j)] - want).abs() < 1e-14, "{family:?}");
                    let want = kernel.covariance(&[a[2 * i] - a[2 * j], a[2 * i + 1] - a[2 * j + 1]]);
                    assert!((g[(i, j)] - want).abs() < 1e-14 && g[(i, j)] == g[(j, i)], "{family:?}");
                }
            }
        }
    }

    #[test]
    fn vjps_match_central_differences() {
        for family in FAMILIES {
            let kernel = Covariance::new(family, 2).unwrap();
            let (a, b) = (points(4, 0.0), points(3, 0.3));
            let by_k = Mat::from_fn(4, 3, |i, j| (i as f64 - 1.1 * j as f64).cos());
            let f = |parameters: &[f64], a: &[f64], b: &[f64]| {
                let mut kernel = kernel.clone();
                kernel.set_parameters(parameters).unwrap();
                let k = kernel.matrix(a, b);
                (0..12).map(|e| k[(e % 4, e / 4)] * by_k[(e % 4, e / 4)]).sum::<f64>()
            };
            let p = kernel.parameters().to_vec();
            let mut all = vec![0.0; p.len() + a.len() + b.len()];
            let (parameters, rest) = all.split_at_mut(p.len());
            let (by_a, by_b) = rest.split_at_mut(a.len());
            let k = kernel.matrix(&a, &b);
            let mut slots = Slots { parameters, a: Some(by_a), b: Some(by_b) };
            kernel.vjp((&a, &b), k.as_ref(), by_k.as_ref(), &mut slots);
            let x = [p.clone(), a.clone(), b.clone()].concat();
            let at = |x: &[f64]| {
                let (p, rest) = x.split_at(p.len());
                f(p, &rest[..a.len()], &rest[a.len()..])
            };
            assert_gradient(&x, &all, at);
        }
    }
}
