//! The evidence (log marginal likelihood) of the data and its gradient in every hyperparameter.
//!
//! With S = I + BᵀAB/σ², β = Bᵀb/σ², z̄ = S⁻¹β and P = S⁻¹ = F Fᵀ,
//!
//! ```text
//! log p(y) = −½ [ c/σ² − z̄ᵀβ + log det S + n log σ² + ℓ + n log 2π ]
//! ```
//!
//! **Gradient.** With N = αα^T − G the derivative in K is ½N, and in the prior's coordinates BᵀNB becomes
//! z̄z̄ᵀ − I + P. For a parameter of the Toeplitz factor on axis k of a component therefore
//!
//! ```text
//! ∂ log p/∂θ = ½ ⟨H_k, Y_kᵀ T_θ Y_k⟩,   Y_k = V_k Λ_k^{−1/2}
//! H_k[a,b] = Σ (z̄_i z̄_j − δ_ij + P_ij)  over kept indices i, j that have a, b on axis k and agree elsewhere
//! ```
//!
//! The whole gradient costs one pass over p·g entries of P and one g×g transform an axis: first the
//! derivative in each entry of the Toeplitz column, then the kernel's own chain rule. Further
//!
//! ```text
//! ∂/∂s_c = ½ Σ_{i∈c} (z̄_i² − 1 + P_ii)/s_c
//! ∂/∂σ² = ½ [ c/σ² − z̄ᵀβ − z̄ᵀz̄ − n + p − tr P ]/σ²
//! ```
//!
//! **Eigenvectors that turn.** A kernel of low rank (cosine, periodic) moves its eigenvectors out of the kept
//! space when a parameter changes: T_θ Y_k then has a part outside the span of V_k. Where that part is not
//! negligible, an orthonormal basis Q of it is found, and N between kept vectors and their neighbours
//! C = (kept on the other axes) ⊗ Q is added: BᵀNC = z̄ (Cᵀα)ᵀ − P BᵀAC/σ².

use std::sync::Arc;

use faer::{Mat, MatRef};

use crate::error::{Result, length, positive};
use crate::kernel::{Kernel, MAX_DIM};
use crate::pool::Pool;
use crate::posterior::Posterior;
use crate::prior::{AxisRoot, Component, Prior};
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
        Self::with_pool(stats, kernels, noise, tolerance, &mut Pool::default())
    }

    /// As [`Evidence::new`], with memory from a pool: several times faster when called over and over. Give
    /// the posterior back with [`Posterior::recycle`] when it is not needed.
    pub fn with_pool(
        stats: &Stats,
        kernels: &[Kernel],
        noise: f64,
        tolerance: f64,
        pool: &mut Pool,
    ) -> Result<(Self, Posterior)> {
        positive("noise", noise, 0)?;
        length("kernels", stats.lattice().grids().len(), kernels.len())?;
        let prior = Arc::new(Prior::new(stats.lattice(), kernels, tolerance)?);
        let whitened = stats.whiten(&prior, pool);
        let posterior = Posterior::from_whitened(prior, &whitened, noise, pool)?;
        let evidence = Self::of_posterior(stats, kernels, &whitened, &posterior);
        whitened.recycle(pool);
        Ok((evidence, posterior))
    }

    pub(crate) fn of_posterior(
        stats: &Stats,
        kernels: &[Kernel],
        whitened: &Whitened,
        posterior: &Posterior,
    ) -> Self {
        let (noise, z, factor) = (posterior.noise(), posterior.coordinates(), posterior.factor());
        let p = posterior.rank();
        let variance: Vec<f64> = (0..p).map(|i| factor.fresh_covariance(i, i)).collect();

        let mut by_kernel: Vec<Vec<f64>> = kernels.iter().map(|k| vec![0.0; k.parameter_count()]).collect();
        for component in posterior.prior().components() {
            let kernel = &kernels[component.block];
            let gradient = &mut by_kernel[component.block];
            let sum: f64 = component.range().map(|i| z[i] * z[i] - 1.0 + variance[i]).sum();
            kernel.pull_back_scale(component.term, 0.5 * sum / component.scale, gradient);
            let indices = component.root.multi_indices();
            for (k, axis) in posterior.lattice().grids()[component.block].axes().iter().enumerate() {
                let mut by_column = by_column(component, k, &indices, posterior, &variance);
                let derivatives = kernel.column_derivatives(component.term, k, axis.step(), axis.points());
                if let Some(turning) = Turning::new(&component.root.axes[k], &derivatives) {
                    turning.add_to(&mut by_column, component, k, &indices, stats, posterior);
                }
                for (i, column) in derivatives {
                    gradient[i] += dot(&column, &by_column);
                }
            }
        }
        let quadratic = (stats.c() - dot(z, &whitened.rhs)) / noise - dot(z, z);
        let by_noise = 0.5 * (quadratic - stats.count() + p as f64 - variance.iter().sum::<f64>()) / noise;
        Self { value: value(stats, whitened, posterior), by_kernel, by_noise }
    }
}

/// ∂ log p/∂t for the entries t_0, t_1, … of the Toeplitz column on axis k of a component, within the kept
/// space.
fn by_column(
    component: &Component,
    k: usize,
    indices: &[[usize; MAX_DIM]],
    posterior: &Posterior,
    variance: &[f64],
) -> Vec<f64> {
    let (z, factor, axis) = (posterior.coordinates(), posterior.factor(), &component.root.axes[k]);
    // H_k: group the kept indices by what they have on the other axes, then sum over pairs in a group.
    let place = |(i, index): (usize, &[usize; MAX_DIM])| (others(index, k), index[k], component.first + i);
    let mut order: Vec<_> = indices.iter().enumerate().map(place).collect();
    order.sort_unstable();
    let r = axis.rank;
    let mut h = vec![0.0; r * r];
    for group in order.chunk_by(|a, b| a.0 == b.0) {
        for (at, &(_, a, i)) in group.iter().enumerate() {
            h[a * r + a] += z[i] * z[i] - 1.0 + variance[i];
            for &(_, b, j) in &group[at + 1..] {
                h[a * r + b] += z[i] * z[j] + factor.fresh_covariance(i, j);
            }
        }
    }
    // Mirrored and halved: the entries off the diagonal stand for both orders.
    for a in 0..r {
        h[a * r + a] *= 0.5;
    }
    let y = inverse_root(axis);
    let m = &y * MatRef::from_row_major_slice(&h, r, r) * y.transpose();
    lag_sums(m.as_ref())
}

/// A multi-index without axis k, as one number.
fn others(index: &[usize; MAX_DIM], k: usize) -> usize {
    index.iter().enumerate().fold(0, |key, (axis, &i)| (key << 16) | if axis == k { 0 } else { i })
}

/// Y = V Λ^{−1/2}, g×r.
fn inverse_root(axis: &AxisRoot) -> Mat<f64> {
    // The rows hold scale·V Λ^{1/2}.
    let entry = |i: usize, a: usize| axis.rows[i * axis.stride + a] / (axis.scale * axis.eigenvalues[a]);
    Mat::from_fn(axis.points, axis.rank, entry)
}

/// Σ_{|i−j| = lag} m_ij for every lag.
fn lag_sums(m: MatRef<'_, f64>) -> Vec<f64> {
    let mut sums = vec![0.0; m.nrows()];
    for j in 0..m.ncols() {
        for i in 0..m.nrows() {
            sums[i.abs_diff(j)] += m[(i, j)];
        }
    }
    sums
}

/// From this size on, relative to the largest entry of Y T_θ Y, the part of T_θ Y outside the kept space
/// counts. For a smooth kernel it is about the square root of the eigenvalue cut-off, near 1e-6, and its
/// effect on the gradient another order smaller.
const TURNS: f64 = 1e-5;

/// The directions into which the eigenvectors of one axis turn when its parameters change.
struct Turning {
    /// Q, g×e, orthonormal and orthogonal to V.
    basis: Mat<f64>,
}

impl Turning {
    /// `None` where the eigenvectors stay in the kept space, as they do for full rank and for smooth kernels.
    fn new(axis: &AxisRoot, derivatives: &[(usize, Vec<f64>)]) -> Option<Self> {
        let (g, r) = (axis.points, axis.rank);
        if r == g || derivatives.is_empty() {
            return None;
        }
        let y = inverse_root(axis);
        let v = Mat::from_fn(g, r, |i, a| y[(i, a)] * axis.eigenvalues[a].sqrt());
        let mut outside = Mat::zeros(g, r * derivatives.len());
        let mut largest: f64 = 0.0;
        for (q, (_, column)) in derivatives.iter().enumerate() {
            let turned = Mat::from_fn(g, g, |i, j| column[i.abs_diff(j)]) * &y;
            let inside = y.transpose() * &turned;
            largest = largest.max(inside.norm_max());
            // Twice, so that what is left is orthogonal to rounding.
            let rest = &turned - &v * (v.transpose() * &turned);
            let rest = &rest - &v * (v.transpose() * &rest);
            outside.subcols_mut(q * r, r).copy_from(&rest);
        }
        if outside.norm_max() < TURNS * largest {
            return None;
        }
        let svd = outside.thin_svd().ok()?;
        let s = svd.S().column_vector();
        let rank = (0..s.nrows()).take_while(|&i| s[i] > 1e-9 * largest).count();
        Some(Self { basis: svd.U().subcols(0, rank).to_owned() })
    }

    /// Adds what N between kept vectors and C contributes to the derivative in the Toeplitz column.
    fn add_to(
        &self,
        by_column: &mut [f64],
        component: &Component,
        k: usize,
        indices: &[[usize; MAX_DIM]],
        stats: &Stats,
        posterior: &Posterior,
    ) {
        let (z, factor, noise) = (posterior.coordinates(), posterior.factor(), posterior.noise());
        let axis = &component.root.axes[k];
        let (g, e) = (axis.points, self.basis.ncols());
        let rows: Vec<f64> = (0..g * e).map(|i| self.basis[(i / e, i % e)]).collect();
        let neighbours = component.root.with_axis(k, &rows, e);
        let Whitened { gram, rhs } = stats.whiten_with(posterior.prior(), component.block, &neighbours);
        let (p, q) = (posterior.rank(), neighbours.rank());
        let gram = MatRef::from_row_major_slice(&gram, p, q);
        // Cᵀα = (Cᵀb − CᵀA B z̄)/σ², and Fᵀ BᵀAC, so that row i of P BᵀAC is row i of F (upper triangular)
        // times that.
        let z_row = MatRef::from_row_major_slice(z, 1, p);
        let fitted = z_row * gram;
        let f = MatRef::from_row_major_slice_with_stride(factor.rows(), p, p, factor.stride());
        let white = f.transpose() * gram;

        let mut places = std::collections::HashMap::new();
        for (place, index) in neighbours.multi_indices().iter().enumerate() {
            places.insert((others(index, k), index[k]), place);
        }
        let mut n = Mat::<f64>::zeros(e, axis.rank);
        for (i, index) in indices.iter().enumerate() {
            let i = component.first + i;
            for c in 0..e {
                let Some(&at) = places.get(&(others(index, k), c)) else { continue };
                let alpha = (rhs[at] - fitted[(0, at)]) / noise;
                let data: f64 = (i..p).map(|j| f[(i, j)] * white[(j, at)]).sum();
                n[(c, index[k])] += z[i] * alpha - data / noise;
            }
        }
        let m = &self.basis * n * inverse_root(axis).transpose();
        by_column.iter_mut().zip(lag_sums(m.as_ref())).for_each(|(b, sum)| *b += sum);
    }
}
