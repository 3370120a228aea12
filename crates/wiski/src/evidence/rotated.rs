//! The slope [C α] of a sum of grids, in the eigenvectors U of its blocks.
//!
//! With B = U[:, κ] D (the kept eigenvectors κ times the roots of their eigenvalues) and S = R Rᵀ, F = R⁻ᵀ, most of
//! C = A B F/σ² needs no product. Since BᵀA B/σ² = S − I,
//!
//! ```text
//! Bᵀ C = (S − I) F = R − F         Bᵀ α = β − (S − I) z̄ = z̄
//! ```
//!
//! so the rows κ of UᵀC are D⁻¹(R − F) and those of Uᵀα are D⁻¹z̄. Only the m − p rows of the eigenvectors that are not
//! kept, which the derivative of the kernel may reach, are products: (UᵀA B) F/σ², (m − p) p²/2 multiply-adds instead
//! of m p²/2. In these coordinates the Toeplitz factors of the other axes are diagonal, too.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};

use super::PANEL;
use crate::pool::Pool;
use crate::posterior::Posterior;
use crate::prior::Component;
use crate::simd::{LANES, dot, padded};
use crate::stats::Stats;

/// Rows whose eigenvalue is below this share of their block's largest are computed as products, although they are
/// kept: R − F is as exact as S, and D⁻¹ would make 10⁴ times that of its rounding.
const SMALLEST_DIVISOR: f64 = 1e-8;

/// Uᵀ[C α]: m rows of `stride` numbers, from Uᵀ A B (`product`, rows of `padded(p)` numbers) and R.
pub(super) fn columns(
    stats: &Stats,
    product: &[f64],
    cholesky: &[f64],
    posterior: &Posterior,
    stride: usize,
    pool: &mut Pool,
) -> Vec<f64> {
    let (p, m) = (posterior.rank(), stats.lattice().grid_len());
    let (prior, z) = (posterior.prior(), posterior.coordinates());
    let mut columns = pool.zeros(m * stride);
    let mut rest = Vec::with_capacity(m);
    for (c, &at) in prior.components().iter().zip(stats.lattice().offsets()) {
        let kept = c.deviations();
        let largest = kept.iter().fold(0.0, |s: f64, k| s.max(k.1));
        let mut is_product = vec![true; c.root.points()];
        let strong =
            kept.iter().enumerate().filter(|(_, k)| k.1 * k.1 >= SMALLEST_DIVISOR * largest * largest);
        let strong: Vec<Strong> = strong
            .map(|(i, &(place, root))| Strong {
                coordinate: c.first + i,
                row: at + place,
                inverse: root.recip(),
            })
            .collect();
        for chunk in strong.chunks(LANES) {
            difference(chunk, cholesky, posterior, &mut columns, stride);
        }
        for s in &strong {
            is_product[s.row - at] = false;
            columns[s.row * stride + p] = z[s.coordinate] * s.inverse;
        }
        rest.extend((0..is_product.len()).filter(|&i| is_product[i]).map(|i| at + i));
    }
    products(stats, &rest, product, posterior, &mut columns, stride, pool);
    columns
}

/// A coordinate whose row is D⁻¹(R − F).
struct Strong {
    coordinate: usize,
    row: usize,
    inverse: f64,
}

/// The rows D⁻¹(R − F) of a few coordinates: R is read column by column, a few entries side by side.
fn difference(
    strong: &[Strong],
    cholesky: &[f64],
    posterior: &Posterior,
    columns: &mut [f64],
    stride: usize,
) {
    let (p, factor) = (posterior.rank(), posterior.factor());
    let last = strong.iter().map(|s| s.coordinate).max().unwrap_or(0);
    for (k, column) in cholesky.chunks_exact(p).take(last + 1).enumerate() {
        for s in strong.iter().filter(|s| s.coordinate >= k) {
            columns[s.row * stride + k] = column[s.coordinate] * s.inverse;
        }
    }
    for s in strong {
        let upper = &factor.rows()[s.coordinate * factor.stride() + s.coordinate..][..p - s.coordinate];
        let row = &mut columns[s.row * stride + s.coordinate..][..p - s.coordinate];
        row.iter_mut().zip(upper).for_each(|(c, f)| *c -= f * s.inverse);
    }
}

/// The rows (UᵀA B) F/σ² and (Uᵀb − (UᵀA B) z̄)/σ² of what is not kept. F is upper triangular.
fn products(
    stats: &Stats,
    rest: &[usize],
    product: &[f64],
    posterior: &Posterior,
    columns: &mut [f64],
    stride: usize,
    pool: &mut Pool,
) {
    let (p, factor, inverse_noise) = (posterior.rank(), posterior.factor(), posterior.noise().recip());
    let width = padded(p);
    let (mut left, mut right) = (pool.take(rest.len() * width), pool.take(rest.len() * width));
    for (to, &row) in left.chunks_exact_mut(width).zip(rest) {
        to.copy_from_slice(&product[row * width..(row + 1) * width]);
    }
    let f = MatRef::from_row_major_slice_with_stride(factor.rows(), p, p, factor.stride());
    let ab = MatRef::from_row_major_slice(&left, rest.len(), width);
    let mut out = MatMut::from_row_major_slice_mut(&mut right, rest.len(), width);
    // Panels of whole products: faster than a triangular one, which is cut into ever smaller pieces.
    for first in (0..p).step_by(PANEL) {
        let end = p.min(first + PANEL);
        let (left, right) = (ab.subcols(0, end), f.submatrix(0, first, end, end - first));
        let panel = out.as_mut().subcols_mut(first, end - first);
        matmul(panel, Accum::Replace, left, right, inverse_noise, Par::Seq);
    }
    let mut b = pool.take(stats.b().len());
    for (c, &at) in posterior.prior().components().iter().zip(stats.lattice().offsets()) {
        let own = at..at + c.root.points();
        c.rotate(&stats.b()[own.clone()], 1, &mut b[own], pool);
    }
    for ((&row, c), ab) in rest.iter().zip(right.chunks_exact(width)).zip(left.chunks_exact(width)) {
        let to = &mut columns[row * stride..(row + 1) * stride];
        to[..p].copy_from_slice(&c[..p]);
        to[p] = (b[row] - dot(&ab[..p], posterior.coordinates())) * inverse_noise;
    }
    [left, right, b].into_iter().for_each(|array| pool.give(array));
}

/// factor · Σ_{|i−j| = lag} of [C α][C α]ᵀ contracted with the Toeplitz factors of all axes but k, for the rows of one
/// block of [`columns`]: a weighted Gram matrix over the index on axis k, rotated back.
pub(super) fn diagonal_sums(
    component: &Component,
    k: usize,
    columns: &[f64],
    stride: usize,
    factor: f64,
) -> Vec<f64> {
    let axes = &component.root.axes;
    let g = axes[k].points;
    let mut sums = vec![0.0; g];
    let Some(eigen) = &axes[k].eigen else { return sums };
    let inner: usize = axes[k + 1..].iter().map(|a| a.points).product();
    let mut gram = Mat::<f64>::zeros(g, g);
    for start in (0..component.root.points()).filter(|start| (start / inner).is_multiple_of(g)) {
        // The product of the other axes' eigenvalues; what no kept product contains is left out.
        let (mut weight, mut rest) = (1.0, start);
        for (l, axis) in axes.iter().enumerate().rev() {
            let index = rest % axis.points;
            rest /= axis.points;
            if l != k {
                let values = axis.eigen.as_ref().map_or(&[][..], |e| &e.values[..axis.rank]);
                weight *= values.get(index).unwrap_or(&0.0);
            }
        }
        if weight > 0.0 {
            let rows = &columns[start * stride..][..((g - 1) * inner + 1) * stride];
            let x = MatRef::from_row_major_slice_with_stride(rows, g, stride, inner * stride);
            matmul(gram.as_mut(), Accum::Add, x, x.transpose(), weight, Par::Seq);
        }
    }
    let (mut half, mut whole) = (Mat::<f64>::zeros(g, g), Mat::<f64>::zeros(g, g));
    let v = eigen.rotation();
    matmul(half.as_mut(), Accum::Replace, gram.as_ref(), v, 1.0, Par::Seq);
    matmul(whole.as_mut(), Accum::Replace, v.transpose(), half.as_ref(), factor, Par::Seq);
    for j in 0..g {
        (0..g).for_each(|i| sums[i.abs_diff(j)] += whole[(i, j)]);
    }
    sums
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::evidence::{Evidence, Slope};
    use crate::grid::{Grid, Lattice};
    use crate::kernel::Kernel;
    use crate::pool::Pool;
    use crate::posterior::Posterior;
    use crate::prior::Prior;
    use crate::stats::Stats;

    /// The same gradient from [V a] = B [F z̄], multiplied with A on the grid points.
    #[test]
    fn the_gradient_equals_that_on_the_grid_points() {
        let lattice = Lattice::new(vec![
            Grid::covering(&[(-1.0, 1.0)], &[14]).unwrap(),
            Grid::covering(&[(-1.0, 1.0); 2], &[8, 9]).unwrap(),
            Grid::covering(&[(-1.0, 1.0); 3], &[5, 4, 6]).unwrap(),
        ])
        .unwrap();
        let kernels = [
            Kernel::rbf(&[0.4]).unwrap().scaled(1.7),
            Kernel::matern52(&[0.5, 0.8]).unwrap().scaled(0.4),
            Kernel::rbf(&[0.9, 0.6, 1.1]).unwrap().scaled(2.0),
        ];
        let mut stats = Stats::new(lattice.clone());
        for i in 0..400_usize {
            let h: Vec<f64> =
                (0..6).map(|k| 1.8 * (0.37 * (i * i + k * i + k) as f64).fract() - 0.9).collect();
            stats.observe(&h, (3.0 * h[0]).sin() + h[1] * h[2] + 0.2 * h[4], 1.0).unwrap();
        }
        let pool = &mut Pool::default();
        for tolerance in [1e-14, 1e-10, 1e-6, 1e-3] {
            let prior = Arc::new(Prior::new(&lattice, &kernels, tolerance).unwrap());
            let mut whitened = stats.whiten(&prior, pool);
            assert!(whitened.product.is_some());
            let (posterior, cholesky) = Posterior::with_cholesky(prior, &whitened, 0.01, pool).unwrap();
            let prepared = stats.prepared();
            let slope = Slope::new(&stats, &prepared, &whitened, &posterior, &cholesky, pool);
            let fast = Evidence::of_posterior(slope, &kernels, &whitened, &posterior, pool);
            whitened.product = None;
            let slope = Slope::new(&stats, &prepared, &whitened, &posterior, &cholesky, pool);
            let slow = Evidence::of_posterior(slope, &kernels, &whitened, &posterior, pool);
            // The fast path divides the rounding of R − F, some 10⁻¹³ here, by no less than 10⁻⁴.
            let size = slow.by_kernel.iter().flatten().fold(1.0, |s: f64, v| s.max(v.abs()));
            for (a, b) in fast.by_kernel.iter().flatten().zip(slow.by_kernel.iter().flatten()) {
                assert!((a - b).abs() < 1e-9 * size, "{tolerance}: {a} {b}");
            }
        }
    }
}
