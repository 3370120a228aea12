//! The evidence (log marginal likelihood) of the data and its gradient in every hyperparameter.
//!
//! With S = I + BᵀAB/σ², β = Bᵀb/σ², z̄ = S⁻¹β and P = S⁻¹ = F Fᵀ,
//!
//! ```text
//! log p(y) = −½ [ c/σ² − z̄ᵀβ + log det S + n log σ² + ℓ + n log 2π ]
//! ```
//!
//! **Gradient.** In the prior's coordinates G = ∂ log p/∂K becomes ½ (z̄z̄ᵀ − I + P), so for a parameter of the
//! Toeplitz factor on axis k of a component
//!
//! ```text
//! ∂ log p/∂θ = ½ ⟨H_k, Λ_k^{−1/2} V_kᵀ T_θ V_k Λ_k^{−1/2}⟩
//! H_k[a,b] = Σ (z̄_i z̄_j − δ_ij + P_ij)  over kept indices i, j that have a, b on axis k and agree elsewhere
//! ```
//!
//! (the coupling to dropped eigenvectors is neglected, which at the default cut-off is far below 1e-6). The
//! whole gradient therefore costs one pass over p·g entries of P and one g×g transform an axis: first the
//! derivative in each entry of the Toeplitz column, then the kernel's own chain rule. Further
//!
//! ```text
//! ∂/∂s_c = ½ Σ_{i∈c} (z̄_i² − 1 + P_ii)/s_c
//! ∂/∂σ² = ½ [ c/σ² − z̄ᵀβ − z̄ᵀz̄ − n + p − tr P ]/σ²
//! ```

use std::sync::Arc;

use crate::error::{Result, length, positive};
use crate::grid::Lattice;
use crate::kernel::{Kernel, MAX_DIM};
use crate::posterior::Posterior;
use crate::prior::{Component, Prior};
use crate::simd::dot;
use crate::stats::{Stats, Whitened};

/// The evidence with its gradient.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// log p(y | kernels, σ²).
    pub value: f64,
    /// ∂/∂θ for the parameters of each block's kernel, in the order of [`Kernel::parameters`].
    pub by_kernel: Vec<Vec<f64>>,
    /// ∂/∂σ².
    pub by_noise: f64,
}

/// log p(y) for a posterior that was just factorized from these statistics.
pub(crate) fn value(stats: &Stats, whitened: &Whitened, posterior: &Posterior) -> f64 {
    let noise = posterior.noise();
    let fit = dot(posterior.coordinates(), &whitened.rhs) / noise;
    let n = stats.count();
    -0.5 * (stats.c() / noise - fit
        + posterior.log_det()
        + n * (noise.ln() + std::f64::consts::TAU.ln())
        + stats.log_noise())
}

impl Evidence {
    /// The evidence and its gradient for the given kernels (one per grid) and noise variance, with the
    /// posterior that comes with it.
    ///
    /// O(p³ + p² Σ g), independent of n. Eigenvalues of the prior below `tolerance` times the largest are
    /// dropped.
    pub fn new(stats: &Stats, kernels: &[Kernel], noise: f64, tolerance: f64) -> Result<(Self, Posterior)> {
        positive("noise", noise, 0)?;
        length("kernels", stats.lattice().grids().len(), kernels.len())?;
        let prior = Arc::new(Prior::new(stats.lattice(), kernels, tolerance)?);
        let whitened = stats.whiten(&prior);
        let posterior = Posterior::from_whitened(prior, &whitened, noise)?;
        Ok((Self::of_posterior(stats, kernels, &whitened, &posterior), posterior))
    }

    pub(crate) fn of_posterior(
        stats: &Stats,
        kernels: &[Kernel],
        whitened: &Whitened,
        posterior: &Posterior,
    ) -> Self {
        let (noise, z, factor) = (posterior.noise(), posterior.coordinates(), posterior.factor());
        let p = posterior.rank();
        let variance: Vec<f64> = (0..p).map(|i| dot(factor.row(i), factor.row(i))).collect();

        let mut by_kernel: Vec<Vec<f64>> = kernels.iter().map(|k| vec![0.0; k.parameter_count()]).collect();
        for component in posterior.prior().components() {
            let kernel = &kernels[component.block];
            let gradient = &mut by_kernel[component.block];
            let sum: f64 = component.range().map(|i| z[i] * z[i] - 1.0 + variance[i]).sum();
            kernel.pull_back_scale(component.term, 0.5 * sum / component.scale, gradient);
            let steps = axis_steps(posterior.lattice(), component.block);
            for (axis, column) in by_columns(component, posterior, &variance).iter().enumerate() {
                kernel.pull_back_column(component.term, axis, steps[axis], column, gradient);
            }
        }
        let quadratic = (stats.c() - dot(z, &whitened.rhs)) / noise - dot(z, z);
        let by_noise = 0.5 * (quadratic - stats.count() + p as f64 - variance.iter().sum::<f64>()) / noise;
        Self { value: value(stats, whitened, posterior), by_kernel, by_noise }
    }
}

fn axis_steps(lattice: &Lattice, block: usize) -> Vec<f64> {
    lattice.grids()[block].axes().iter().map(crate::grid::Axis::step).collect()
}

/// ∂ log p/∂t for the entries t_0, t_1, … of the Toeplitz column on each axis of a component.
fn by_columns(component: &Component, posterior: &Posterior, variance: &[f64]) -> Vec<Vec<f64>> {
    let (z, factor, root) = (posterior.coordinates(), posterior.factor(), &component.root);
    let indices = root.multi_indices();
    let mut columns = Vec::with_capacity(root.axes.len());
    for (k, axis) in root.axes.iter().enumerate() {
        // H_k: group the kept indices by what they have on the other axes, then sum over pairs in a group.
        let mut order: Vec<(usize, usize, usize)> = indices
            .iter()
            .enumerate()
            .map(|(i, index)| {
                let mut others = *index;
                others[k] = 0;
                (key(&others), index[k], component.first + i)
            })
            .collect();
        order.sort_unstable();
        let r = axis.rank;
        let mut h = vec![0.0; r * r];
        for group in order.chunk_by(|a, b| a.0 == b.0) {
            for (at, &(_, a, i)) in group.iter().enumerate() {
                h[a * r + a] += z[i] * z[i] - 1.0 + variance[i];
                for &(_, b, j) in &group[at + 1..] {
                    h[a * r + b] += z[i] * z[j] + dot(factor.row(i), factor.row(j));
                }
            }
        }
        for a in 0..r {
            for b in a + 1..r {
                h[b * r + a] = h[a * r + b];
            }
        }
        columns.push(lag_sums(axis, &h));
    }
    columns
}

fn key(index: &[usize; MAX_DIM]) -> usize {
    index.iter().fold(0, |key, &i| (key << 16) | i)
}

/// ½ Σ_{|i−j| = lag} (Y H Yᵀ)_ij with Y = V Λ^{−1/2}, for every lag.
fn lag_sums(axis: &crate::prior::AxisRoot, h: &[f64]) -> Vec<f64> {
    let (g, r) = (axis.points, axis.rank);
    // The rows hold scale·V Λ^{1/2}.
    let y: Vec<f64> = (0..g * r)
        .map(|e| axis.rows[e / r * axis.stride + e % r] / (axis.scale * axis.eigenvalues[e % r]))
        .collect();
    let y = faer::MatRef::from_row_major_slice(&y, g, r);
    let m = y * faer::MatRef::from_row_major_slice(h, r, r) * y.transpose();
    let mut sums = vec![0.0; g];
    for i in 0..g {
        sums[0] += 0.5 * m[(i, i)];
        for j in 0..i {
            sums[i - j] += m[(i, j)];
        }
    }
    sums
}
