//! The evidence (log marginal likelihood) of the data and its gradient in every hyperparameter.
//!
//! With S = I + BᵀAB/σ², β = Bᵀb/σ², z̄ = S⁻¹β and P = S⁻¹ = F Fᵀ,
//!
//! ```text
//! log p(y) = −½ [ c/σ² − z̄ᵀβ + log det S + n log σ² + ℓ + n log 2π ]
//! ```
//!
//! **Gradient.** With the posterior mean a = B z̄ and root V = B F of the grid values,
//!
//! ```text
//! ∂ log p/∂K = ½ N,   N = α αᵀ − A/σ² + C Cᵀ,   α = (b − A a)/σ²,   C = A V/σ²
//! ```
//!
//! so with K = s·(T₁ ⊗ … ⊗ T_d) the derivative in the entries of the Toeplitz column on axis k is a sum over
//! the diagonals of N contracted with T on the other axes. For the low-rank part [C α] that contraction is a
//! product with the other axes' roots and a Gram matrix of size g_k; for A it needs only the sums of A by
//! lag. The kernel's own chain rule does the rest, for any number of parameters. N is never formed; nothing
//! is divided by an eigenvalue; eigenvectors that a kernel of low rank turns into new directions are in.
//!
//! ```text
//! ∂/∂s_c = ½ Σ_{i∈c} (z̄_i² − 1 + P_ii)/s_c
//! ∂/∂σ² = ½ [ c/σ² − z̄ᵀβ − z̄ᵀz̄ − n + p − tr P ]/σ²
//! ```
//!
//! **Inducing points** carry g up to a residual of variance s ρ(x). With t = Σ ρ_i/d_i the evidence becomes a lower bound
//! (Titsias 2009), and exact where the points are the data:
//!
//! ```text
//! − s t/2σ²        ∂/∂s: − t/2σ²        ∂/∂σ²: + s t/2σ⁴
//! ```
//!
//! Cost beyond the factorization: 7^d m p for A V, and O(m p Σ p_k) for the contractions.

mod rotated;

use std::borrow::Cow;
use std::sync::Arc;

use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::{Accum, Mat, MatMut, MatRef, Par};

use crate::error::{Result, length, positive};
use crate::kernel::Kernel;
use crate::pool::{Aligned, Pool};
use crate::posterior::Posterior;
use crate::prior::{AxisRoot, Component, Prior};
use crate::simd::{LANES, dot, padded};
use crate::stats::{Gram, Prepared, Stats, ThinRoot, Whitened};

/// Columns at a time in a product with a triangular matrix.
const PANEL: usize = 64;

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
    let unseen = posterior.prior().residual_scale() * stats.residual();
    -0.5 * ((stats.c() + unseen) / noise - fit
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
        length("kernels", stats.lattice().blocks(), kernels.len())?;
        let prior = Arc::new(Prior::new(stats.lattice(), kernels, tolerance)?);
        Self::of_prior(stats, kernels, prior, noise, pool)
    }

    /// As [`Evidence::with_pool`], for the prior of these kernels.
    pub(crate) fn of_prior(
        stats: &Stats,
        kernels: &[Kernel],
        prior: Arc<Prior>,
        noise: f64,
        pool: &mut Pool,
    ) -> Result<(Self, Posterior)> {
        Self::of_prepared((stats, &stats.prepared()), kernels, prior, noise, pool)
    }

    /// As [`Evidence::of_prior`], with what other evaluations have prepared.
    pub(crate) fn of_prepared(
        (stats, prepared): (&Stats, &Prepared),
        kernels: &[Kernel],
        prior: Arc<Prior>,
        noise: f64,
        pool: &mut Pool,
    ) -> Result<(Self, Posterior)> {
        positive("noise", noise, 0)?;
        let whitened = stats.whiten_prepared(&prior, prepared, pool);
        let (posterior, cholesky) = Posterior::with_cholesky(prior, &whitened, noise, pool)?;
        let slope = Slope::new(stats, prepared, &whitened, &posterior, &cholesky, pool);
        let evidence = Self::of_posterior(slope, kernels, &whitened, &posterior, pool);
        whitened.recycle(pool);
        pool.give(cholesky);
        Ok((evidence, posterior))
    }

    fn of_posterior(
        slope: Slope,
        kernels: &[Kernel],
        whitened: &Whitened,
        posterior: &Posterior,
        pool: &mut Pool,
    ) -> Self {
        let stats = slope.stats;
        let (noise, z, factor) = (posterior.noise(), posterior.coordinates(), posterior.factor());
        let p = posterior.rank();
        let variance: Vec<f64> = factor.variances().collect();

        let mut by_kernel: Vec<Vec<f64>> = kernels.iter().map(|k| vec![0.0; k.parameter_count()]).collect();
        for component in posterior.prior().components() {
            let kernel = &kernels[component.block];
            let gradient = &mut by_kernel[component.block];
            let sum: f64 = component.range().map(|i| z[i] * z[i] - 1.0 + variance[i]).sum();
            kernel.vjp_scale(component.term, 0.5 * sum / component.scale, gradient);
            for (k, axis) in posterior.lattice().grids()[component.block].axes().iter().enumerate() {
                let by_column = slope.by_column(component, kernel, k, pool);
                for (i, column) in kernel.column_derivatives(component.term, k, axis.step(), axis.points()) {
                    gradient[i] += dot(&column, &by_column);
                }
            }
        }
        slope.recycle(pool);
        let unseen = posterior.prior().residual_scale() * stats.residual();
        if let (Some(points), Some(kernel)) = (posterior.prior().points(), kernels.last()) {
            let sum: f64 = points.range().map(|i| z[i] * z[i] - 1.0 + variance[i]).sum();
            let by_scale = 0.5 * (sum / points.scale - stats.residual() / noise);
            let gradient = &mut by_kernel[kernels.len() - 1];
            (0..kernel.term_count()).for_each(|term| kernel.vjp_scale(term, by_scale, gradient));
        }
        let quadratic = (stats.c() + unseen - dot(z, &whitened.rhs)) / noise - dot(z, z);
        let by_noise = 0.5 * (quadratic - stats.count() + p as f64 - variance.iter().sum::<f64>()) / noise;
        Self { value: value(stats, whitened, posterior), by_kernel, by_noise }
    }
}

/// N = α αᵀ − A/σ² + C Cᵀ, in parts.
struct Slope<'a> {
    stats: &'a Stats,
    noise: f64,
    /// [C α]: a row of `stride` numbers for each grid point, the last of the p + 1 columns being α, then zeros.
    columns: Vec<f64>,
    stride: usize,
    /// Whether the rows are coordinates in the eigenvectors of the blocks (module `rotated`).
    is_rotated: bool,
    /// For each block, the sums of A by lag; none for a low-rank root.
    lags: &'a [Vec<f64>],
}

impl<'a> Slope<'a> {
    fn new(
        stats: &'a Stats,
        prepared: &'a Prepared,
        whitened: &Whitened,
        posterior: &Posterior,
        cholesky: &[f64],
        pool: &mut Pool,
    ) -> Self {
        let lags = prepared.lags(stats);
        let (prior, factor, noise) = (posterior.prior(), posterior.factor(), posterior.noise());
        // An odd number of cache lines a row, so that the rows around a grid point do not evict each other.
        let (p, lines) = (posterior.rank(), padded(posterior.rank() + 1) / LANES);
        let stride = LANES * (lines | 1);
        if let Some(product) = &whitened.product {
            let columns = rotated::columns(stats, product, cholesky, posterior, stride, pool);
            return Self { stats, noise, columns, stride, is_rotated: true, lags };
        }
        // [F z̄], then [V a] = B [F z̄], then A [V a].
        let mut coordinates = pool.zeros(p * stride);
        for (i, row) in coordinates.chunks_exact_mut(stride).enumerate() {
            row[..p].copy_from_slice(&factor.rows()[i * factor.stride()..][..p]);
            row[p] = posterior.coordinates()[i];
        }
        // The scale of inducing points needs no slope: their rows are left out.
        let mut columns = pool.take(stats.lattice().grid_len() * stride);
        if let (Some(root), Some(half)) = (&prepared.root, &whitened.thin) {
            multiply_by_root(root, half, &coordinates, stride, &mut columns, pool);
        } else {
            let mut values = Aligned::take(stats.lattice().len() * stride, pool);
            prior.expand_into(&coordinates, stride, &mut values, pool);
            stats.multiply_to_grids(&values, stride, &mut columns);
            values.recycle(pool);
        }
        let inverse_noise = noise.recip();
        for (row, &b) in columns.chunks_exact_mut(stride).zip(stats.b()) {
            row[..p].iter_mut().for_each(|c| *c *= inverse_noise);
            row[p] = (b - row[p]) * inverse_noise;
        }
        pool.give(coordinates);
        Self { stats, noise, columns, stride, is_rotated: false, lags }
    }

    fn recycle(self, pool: &mut Pool) {
        pool.give(self.columns);
    }

    /// ∂ log p/∂t for the entries t_0, t_1, … of the Toeplitz column on axis k of a component.
    fn by_column(&self, component: &Component, kernel: &Kernel, k: usize, pool: &mut Pool) -> Vec<f64> {
        let axes = &component.root.axes;
        let m = component.root.points();
        let at = self.stats.lattice().offsets()[component.block];
        // The other axes' roots carry √s unless axis k does.
        let scale = if k == 0 { component.scale } else { 1.0 };
        let own = &self.columns[at * self.stride..(at + m) * self.stride];
        let mut sums = if self.is_rotated {
            rotated::diagonal_sums(component, k, own, self.stride, 0.5 * component.scale)
        } else {
            diagonal_sums(axes, k, own, self.stride, 0.5 * scale, pool)
        };
        match self.stats.gram() {
            Gram::Exact(_) => self.subtract_lags(component, kernel, k, &mut sums),
            Gram::LowRank(root) => {
                let r = root.rank();
                let rows = root.rows();
                let own = &rows[at * r..(at + m) * r];
                if r > 0 {
                    let data = diagonal_sums(axes, k, own, r, -0.5 * scale / self.noise, pool);
                    sums.iter_mut().zip(data).for_each(|(s, d)| *s += d);
                }
            }
        }
        sums
    }

    /// The part of A: −(s/2σ²) Σ over lags of A's sum there times T on the other axes.
    fn subtract_lags(&self, component: &Component, kernel: &Kernel, k: usize, sums: &mut [f64]) {
        let grid = &self.stats.lattice().grids()[component.block];
        let lags = &self.lags[component.block];
        let d = grid.dim();
        let reach = |axis: usize| if lags.len() == grid.len() { grid.axes()[axis].points() } else { 4 };
        let columns: Vec<Vec<f64>> = (0..d)
            .map(|axis| {
                let mut column = vec![1.0; reach(axis).min(grid.axes()[axis].points())];
                if axis != k {
                    kernel.toeplitz_column(component.term, axis, grid.axes()[axis].step(), &mut column);
                }
                column
            })
            .collect();
        let factor = -0.5 * component.scale / self.noise;
        for (place, &sum) in lags.iter().enumerate().filter(|(_, sum)| **sum != 0.0) {
            let (mut rest, mut product, mut own) = (place, factor * sum, 0);
            for axis in (0..d).rev() {
                let lag = rest % reach(axis);
                rest /= reach(axis);
                product *= columns[axis][lag];
                if axis == k {
                    own = lag;
                }
            }
            sums[own] += product;
        }
    }
}

/// A B X = L (BᵀL)ᵀX for p rows of `stride` numbers, from L and BᵀL.
fn multiply_by_root(
    root: &ThinRoot,
    half: &[f64],
    x: &[f64],
    stride: usize,
    out: &mut [f64],
    pool: &mut Pool,
) {
    let (r, p, m) = (root.rank, x.len() / stride, out.len() / stride);
    let mut inner = pool.take(r * stride);
    let [l, half] = [(&root.rows[..], m), (half, p)].map(|(v, n)| MatRef::from_row_major_slice(v, n, r));
    let x = MatRef::from_row_major_slice(x, p, stride);
    let product = MatMut::from_row_major_slice_mut(&mut inner, r, stride);
    matmul(product, Accum::Replace, half.transpose(), x, 1.0, Par::Seq);
    let inner_matrix = MatRef::from_row_major_slice(&inner, r, stride);
    matmul(MatMut::from_row_major_slice_mut(out, m, stride), Accum::Replace, l, inner_matrix, 1.0, Par::Seq);
    pool.give(inner);
}

/// factor · Σ_{|i−j| = lag} (X Xᵀ)_ij for X = the columns contracted with the roots of all axes but k.
fn diagonal_sums(
    axes: &[AxisRoot],
    k: usize,
    columns: &[f64],
    stride: usize,
    factor: f64,
    pool: &mut Pool,
) -> Vec<f64> {
    let (tensor, inner) = contract_others(axes, k, columns, stride, pool);
    let g = axes[k].points;
    let mut gram = Mat::<f64>::zeros(g, g);
    for slab in tensor.chunks_exact(g * inner) {
        let x = MatRef::from_row_major_slice(slab, g, inner);
        let whole = BlockStructure::Rectangular;
        let (lower, t) = (BlockStructure::TriangularLower, x.transpose());
        triangular::matmul(gram.as_mut(), lower, Accum::Add, x, whole, t, whole, 1.0, Par::Seq);
    }
    if let Cow::Owned(tensor) = tensor {
        pool.give(tensor);
    }
    let mut sums = vec![0.0; g];
    for j in 0..g {
        sums[0] += factor * gram[(j, j)];
        (j + 1..g).for_each(|i| sums[i - j] += 2.0 * factor * gram[(i, j)]);
    }
    sums
}

/// As [`diagonal_sums`], of X Yᵀ for two sets of columns.
pub(crate) fn diagonal_sums_between(
    axes: &[AxisRoot],
    k: usize,
    [left, right]: [&[f64]; 2],
    stride: usize,
    factor: f64,
    pool: &mut Pool,
) -> Vec<f64> {
    let (left, inner) = contract_others(axes, k, left, stride, pool);
    let (right, _) = contract_others(axes, k, right, stride, pool);
    let g = axes[k].points;
    let mut gram = Mat::<f64>::zeros(g, g);
    for (x, y) in left.chunks_exact(g * inner).zip(right.chunks_exact(g * inner)) {
        let (x, y) = (MatRef::from_row_major_slice(x, g, inner), MatRef::from_row_major_slice(y, g, inner));
        matmul(gram.as_mut(), Accum::Add, x, y.transpose(), 1.0, Par::Seq);
    }
    for tensor in [left, right] {
        if let Cow::Owned(tensor) = tensor {
            pool.give(tensor);
        }
    }
    let mut sums = vec![0.0; g];
    for j in 0..g {
        (0..g).for_each(|i| sums[i.abs_diff(j)] += factor * gram[(i, j)]);
    }
    sums
}

/// Columns over the grid, contracted with the roots of all axes but k; and how many numbers then lie behind each
/// point of axis k.
fn contract_others<'a>(
    axes: &[AxisRoot],
    k: usize,
    columns: &'a [f64],
    stride: usize,
    pool: &mut Pool,
) -> (Cow<'a, [f64]>, usize) {
    let mut tensor = Cow::Borrowed(columns);
    let mut shape: Vec<usize> = axes.iter().map(|a| a.points).collect();
    for (axis, root) in axes.iter().enumerate().filter(|(axis, _)| *axis != k) {
        let inner: usize = shape[axis + 1..].iter().product::<usize>() * stride;
        let outer: usize = shape[..axis].iter().product();
        let mut next = pool.take(outer * root.rank * inner);
        for (slab, out) in
            tensor.chunks_exact(root.points * inner).zip(next.chunks_exact_mut(root.rank * inner))
        {
            root.multiply_transposed(slab, inner, out);
        }
        shape[axis] = root.rank;
        if let Cow::Owned(done) = std::mem::replace(&mut tensor, Cow::Owned(next)) {
            pool.give(done);
        }
    }
    let inner = shape[k + 1..].iter().product::<usize>() * stride;
    (tensor, inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;

    /// Few rows on many axes: by the thin root of A, and by its stencil.
    #[test]
    fn a_thin_root_gives_the_evidence_of_the_stencil() {
        for (shape, n) in [(&[10, 9, 11][..], 60), (&[7, 8, 7, 7], 150), (&[6, 6, 7, 6], 100)] {
            let d = shape.len();
            let mut stats = Stats::new(Grid::covering(&vec![(0.0, 1.0); d], shape).unwrap());
            for i in 0..n {
                let x: Vec<f64> =
                    (0..d).map(|k| (0.618_f64.powi(k as i32 + 1) * f64::from(i)).fract()).collect();
                let y = x.iter().map(|v| (5.0 * v).sin()).sum::<f64>();
                stats.observe(&x, y, 1.0 + 0.5 * f64::from(i % 3)).unwrap();
            }
            let sum = Kernel::rbf(&vec![0.8; d]).unwrap() + Kernel::rbf(&vec![2.0; d]).unwrap().scaled(0.3);
            for kernel in [Kernel::rbf(&vec![0.6; d]).unwrap(), sum] {
                let (kernels, pool) = (std::slice::from_ref(&kernel), &mut Pool::default());
                let prior = Arc::new(Prior::new(stats.lattice(), kernels, 1e-6).unwrap());
                let (thin, mut plain) = (stats.prepared(), stats.prepared());
                assert!(thin.root.is_some());
                plain.root = None;
                let mut of = |prepared: &Prepared| {
                    Evidence::of_prepared((&stats, prepared), kernels, prior.clone(), 0.02, pool).unwrap()
                };
                let ((a, p), (b, q)) = (of(&thin), of(&plain));
                // Sums of squares of up to n/σ² = 7500, with 10⁻¹³ of them rounding.
                assert!((a.value - b.value).abs() < 1e-9 * b.value.abs(), "{} {}", a.value, b.value);
                let size = b.by_kernel[0].iter().fold(1.0, |s: f64, v| s.max(v.abs()));
                for (x, y) in a.by_kernel[0].iter().zip(&b.by_kernel[0]) {
                    assert!((x - y).abs() < 1e-8 * size, "{x} {y}");
                }
                assert!((a.by_noise - b.by_noise).abs() < 1e-9 * b.by_noise.abs());
                let size = q.coordinates().iter().fold(0.0, |s: f64, v| s.max(v.abs()));
                for (x, y) in p.coordinates().iter().zip(q.coordinates()) {
                    assert!((x - y).abs() < 1e-8 * size, "{x} {y}");
                }
            }
        }
    }
}
