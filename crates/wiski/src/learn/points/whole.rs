//! The exact process of rows that are all centers, by n×n matrices.
//!
//! With a center at every row nothing is left over, and the bound is the evidence of the process itself. In the coordinates of
//! features that takes p×p matrices with p = n + the features of the grids; here they are n×n,
//!
//! ```text
//! C = s κ(X, X) + Σ_j c_j Φ_jΦ_jᵀ + σ² D      F = log N(y; 0, C)      α = C⁻¹y      Γ = ∂F/∂C = ½ (α αᵀ − C⁻¹)
//! ∂F/∂log s = s Σ Γ∘κ      ∂F/∂log c_j = c_j Σ_{a∈j} φ_aᵀΓφ_a      ∂F/∂log σ² = σ² Σ_i d_i Γ_ii
//! ∂F/∂log ℓ_k = 4 Σ_i z_ik (Σ_j E_ij z_ik − Σ_j E_ij z_jk),      E = −κ′(r²) ∘ Σ_c s_c Γ_c,      z = x/ℓ
//! ```
//!
//! summed over outputs c: about n³/2 + 3/2 n² p_g multiply-adds for each with p_g features of grids, a sixth of what the
//! features cost. Jitter is not needed, since C is no closer to singular than the noise.

use faer::{Mat, MatRef};

use super::algebra::{cholesky, dot, gram_of_columns, inverse_of_cholesky, log_det, multiply};
use super::algebra::{solve_lower_vector, solve_upper_vector};
use super::bound::Scales;
use super::data::{Table, Target};
use super::radial::{Radial, covariance};
use crate::error::Result;
use crate::{interrupt, simd, threads};

/// All rows.
pub(super) struct WholeRows {
    x: Mat<f64>,
    /// One column for each feature of the grids, and the group that it belongs to.
    features: Mat<f64>,
    group: Vec<usize>,
    targets: Vec<Target>,
}

/// The evidence of all outputs and its derivatives in logarithms.
pub(super) struct WholeEvidence {
    pub(super) value: f64,
    pub(super) by_lengthscales: Vec<f64>,
    pub(super) by_scales: Vec<Scales>,
}

/// What one output adds.
struct Part {
    value: f64,
    by_scales: Scales,
    /// s Γ.
    by_covariance: Mat<f64>,
}

impl WholeRows {
    pub(super) fn new(table: &Table) -> Self {
        let groups = table.groups.iter().enumerate();
        Self {
            x: table.x.clone(),
            features: table.grids.transpose().to_owned(),
            group: groups.flat_map(|(j, &size)| std::iter::repeat_n(j, size)).collect(),
            targets: table.targets.clone(),
        }
    }

    /// Multiply-adds of an evaluation.
    pub(super) fn multiply_adds(&self) -> f64 {
        let (n, p) = (self.x.ncols() as f64, self.features.ncols() as f64);
        self.targets.len() as f64 * (0.5 * n.powi(3) + 1.5 * n * n * p)
    }

    pub(super) fn evidence(
        &self,
        family: Radial,
        lengthscales: &[f64],
        scales: &[Scales],
        threads: usize,
    ) -> Result<WholeEvidence> {
        let z = Mat::from_fn(self.x.nrows(), self.x.ncols(), |k, i| self.x[(k, i)] / lengthscales[k]);
        let (kappa, mut slope) = covariance(family, z.as_ref());
        let part = |c: usize| self.part(c, kappa.as_ref(), &scales[c]);
        let parts = threads::map(threads, (0..scales.len()).collect(), part);
        let (mut value, mut by_scales, mut gamma) = (0.0, Vec::new(), None::<Mat<f64>>);
        for part in parts {
            let part = part?;
            value += part.value;
            by_scales.push(part.by_scales);
            gamma = Some(gamma.map_or_else(|| part.by_covariance.clone(), |sum| sum + &part.by_covariance));
        }
        let (n, d) = (z.ncols(), z.nrows());
        let gamma = gamma.unwrap_or_else(|| Mat::zeros(n, n));
        for j in 0..n {
            slope.col_as_slice_mut(j).iter_mut().zip(gamma.col_as_slice(j)).for_each(|(e, g)| *e *= g);
        }
        let mut moments = Mat::zeros(n, d);
        multiply(moments.as_mut(), false, slope.as_ref(), z.transpose(), 1.0);
        let mut by_lengthscales = vec![0.0; d];
        for i in 0..n {
            let sum: f64 = slope.col_as_slice(i).iter().sum();
            for (k, g) in by_lengthscales.iter_mut().enumerate() {
                *g += 4.0 * z[(k, i)] * (sum * z[(k, i)] - moments[(i, k)]);
            }
        }
        Ok(WholeEvidence { value, by_lengthscales, by_scales })
    }

    fn part(&self, c: usize, kappa: MatRef<'_, f64>, scales: &Scales) -> Result<Part> {
        interrupt::check()?;
        let (target, n, p) = (&self.targets[c], self.x.ncols(), self.features.ncols());
        let mut covariance = Mat::zeros(n, n);
        if p > 0 {
            let roots: Vec<f64> = self.group.iter().map(|&j| scales.groups[j].sqrt()).collect();
            let scaled = Mat::from_fn(n, p, |i, a| roots[a] * self.features[(i, a)]);
            gram_of_columns(covariance.as_mut(), scaled.as_ref());
        }
        for j in 0..n {
            let below = &mut covariance.col_as_slice_mut(j)[j..];
            let kappa = kappa.col(j).subrows(j, n - j);
            below.iter_mut().zip(kappa.iter()).for_each(|(c, k)| *c += scales.points * k);
            below[0] += scales.noise / target.precision[j];
        }
        let factor = cholesky(covariance)?;
        let mut alpha = target.y.clone();
        solve_lower_vector(factor.as_ref(), &mut alpha);
        let square = dot(&alpha, &alpha);
        solve_upper_vector(factor.as_ref(), &mut alpha);
        let value = -0.5 * (square + log_det(factor.as_ref()) + n as f64 * std::f64::consts::TAU.ln());

        let mut gamma = inverse_of_cholesky(factor.as_ref());
        let (mut by_points, mut by_noise) = (0.0, 0.0);
        for j in 0..n {
            let column = gamma.col_as_slice_mut(j);
            column.iter_mut().zip(&alpha).for_each(|(g, a)| *g = 0.5 * (a * alpha[j] - *g));
            by_noise += column[j] / target.precision[j];
            by_points += kappa.col(j).iter().zip(&*column).map(|(k, g)| k * g).sum::<f64>();
        }
        let mut groups = vec![0.0; scales.groups.len()];
        if p > 0 {
            let mut products = Mat::zeros(n, p);
            multiply(products.as_mut(), false, gamma.as_ref(), self.features.as_ref(), 1.0);
            for (a, &j) in self.group.iter().enumerate() {
                groups[j] +=
                    scales.groups[j] * simd::dot(self.features.col_as_slice(a), products.col_as_slice(a));
            }
        }
        let by_scales = Scales { points: scales.points * by_points, groups, noise: scales.noise * by_noise };
        Ok(Part { value, by_scales, by_covariance: gamma * faer::Scale(scales.points) })
    }
}
