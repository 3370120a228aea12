//! UᵀA B and BᵀA B for a prior over several grids, or one of many directions.
//!
//! B is block-diagonal, and each block has one term: B_j = U_j[:, κ_j] D_j, where U_j = V_1 ⊗ … ⊗ V_d holds all
//! eigenvectors of the block, κ_j those that are kept and D_j the roots of their eigenvalues. So one rotation of the
//! statistics gives everything,
//!
//! ```text
//! Â_ij = U_iᵀ A_ij U_j       (UᵀA B)_ij = Â_ij[:, κ_j] D_j       (BᵀA B)_ij = D_i Â_ij[κ_i, κ_j] D_j
//! ```
//!
//! and A is symmetric, so that a block i < j serves both orders. A rotation goes axis by axis: m Σ_j m_j Σ_k g_jk
//! multiply-adds for all blocks, where the product with B_j would take m Σ_j m_j p_j. The gradient of the evidence
//! needs the rows of UᵀA B that are not kept (`evidence/rotated.rs`). Inducing points have U = I and D = √s; only the
//! rows of grid points are made of UᵀA B, since the scale s needs no others.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::axis::Eigen;
use super::{Component, Prior, contract, scale_into};
use crate::dense::transpose;
use crate::grid::Axis;
use crate::pool::Pool;
use crate::simd::padded;
use crate::structure::{BlockMatrix, Cross, GridMatrix};

/// The kept eigenvectors of one block: their places among all, and the roots of their eigenvalues.
struct Kept {
    first: usize,
    columns: Vec<(usize, f64)>,
}

impl Prior {
    /// Whether A is to be rotated to the eigenvectors as a whole: every grid has one term, and there are several, or
    /// the 2m²Σg multiply-adds of the rotation are fewer than those of the product A V that it saves.
    pub(crate) fn is_rotated(&self) -> bool {
        let grids = self.lattice.grids();
        if grids.is_empty() || self.components.len() != grids.len() {
            return false;
        }
        let [grid] = grids else { return true };
        if self.points.is_some() {
            return false;
        }
        let axes: usize = grid.axes().iter().map(Axis::points).sum();
        let reach = 7usize.pow(grid.dim() as u32).min(grid.len());
        2 * grid.len() * axes < reach * self.rank
    }

    /// BᵀAB (p×p) and UᵀAB (a row of `padded(p)` numbers for each grid point) for a sum of grids of one term each.
    pub(super) fn rotated(&self, a: &BlockMatrix, pool: &mut Pool) -> (Vec<f64>, Vec<f64>) {
        let (p, stride, offsets) = (self.rank, padded(self.rank), self.lattice.offsets());
        let kept: Vec<Kept> =
            self.components.iter().map(|c| Kept { first: c.first, columns: c.deviations() }).collect();
        let mut product = pool.zeros(self.lattice.grid_len() * stride);
        for (j, (c, diagonal)) in self.components.iter().zip(a.diagonal()).enumerate() {
            let m = c.root.points();
            let turned = match diagonal {
                GridMatrix::Dense(a) => rotate([c, c], a.data(), pool),
                GridMatrix::Stencil(a) => {
                    let mut whole = pool.zeros(m * m);
                    a.for_each_entry(|i, k, at| {
                        whole[i * m + k] = a.data()[at];
                        whole[k * m + i] = a.data()[at];
                    });
                    let turned = rotate([c, c], &whole, pool);
                    pool.give(whole);
                    turned
                }
            };
            kept[j].write(turned.as_slice(), [m, 1], &mut product[offsets[j] * stride..], stride);
            pool.give(turned);
        }
        for Cross { first, second, data } in a.cross() {
            let pair = [&self.components[*first], &self.components[*second]];
            let turned = rotate(pair, data, pool);
            let m = pair[0].root.points();
            kept[*first].write(&turned, [m, 1], &mut product[offsets[*second] * stride..], stride);
            kept[*second].write(&turned, [1, m], &mut product[offsets[*first] * stride..], stride);
            pool.give(turned);
        }
        if let (Some(points), Some(a)) = (&self.points, a.points()) {
            let m = points.len;
            for (c, &at) in self.components.iter().zip(offsets) {
                let rows = c.root.points();
                let mut turned = pool.take(rows * m);
                c.rotate(&a.cross[at * m..(at + rows) * m], m, &mut turned, pool);
                let to = product[at * stride..].chunks_exact_mut(stride);
                for (to, from) in to.zip(turned.chunks_exact(m)) {
                    scale_into(points.scale.sqrt(), from, &mut to[points.range()]);
                }
                pool.give(turned);
            }
        }
        let mut gram = pool.take(p * p);
        for (c, (kept, &offset)) in self.components.iter().zip(kept.iter().zip(offsets)) {
            for (row, &(place, root)) in gram[c.first * p..].chunks_exact_mut(p).zip(&kept.columns) {
                let from = &product[(offset + place) * stride..][..p];
                row.iter_mut().zip(from).for_each(|(g, y)| *g = root * y);
            }
        }
        if let (Some(points), Some(a)) = (&self.points, a.points()) {
            points.complete(a, &mut gram, p);
        }
        (gram, product)
    }
}

impl Prior {
    /// B P Bᵀ for a symmetric p×p matrix, as far as `out` keeps it: the blocks B_i P_ij B_jᵀ, axis by axis.
    pub(crate) fn spread(&self, covariance: &[f64], out: &mut BlockMatrix, pool: &mut Pool) {
        let p = self.rank;
        let half = self.expand(covariance, p, pool);
        out.fill_with_blocks(&self.lattice, pool, |i, j, block, pool| {
            let columns = self.lattice.block(j);
            let (from, n) = (&half[columns.start * p..columns.end * p], columns.len());
            if let Some(points) = self.points.as_ref().filter(|_| i == self.lattice.grids().len()) {
                // The block of the inducing points themselves, which is symmetric.
                for (to, from) in block.chunks_exact_mut(n).zip(from.chunks_exact(p)) {
                    scale_into(points.scale.sqrt(), &from[points.range()], to);
                }
                return;
            }
            block.fill(0.0);
            for c in self.components.iter().filter(|c| c.block == i) {
                let rank = c.root.rank();
                let own = MatRef::from_row_major_slice_with_stride(&from[c.first..], n, rank, p);
                if let [axis] = c.root.axes.as_slice() {
                    let out = MatMut::from_row_major_slice_mut(block, axis.points, n);
                    matmul(out, Accum::Add, axis.matrix(), own.transpose(), 1.0, Par::Seq);
                    continue;
                }
                let (mut turned, mut part) = (pool.take(rank * n), pool.take(block.len()));
                MatMut::from_row_major_slice_mut(&mut turned, rank, n).copy_from(own.transpose());
                c.root.expand(&turned, n, &mut part, pool);
                block.iter_mut().zip(&part).for_each(|(b, v)| *b += v);
                pool.give(turned);
                pool.give(part);
            }
        });
        pool.give(half);
    }
}

impl Component {
    /// For each coordinate, its place among all products of eigenvectors and its prior standard deviation.
    pub(crate) fn deviations(&self) -> Vec<(usize, f64)> {
        let scale = self.scale.sqrt();
        self.root.places().into_iter().map(|(place, root)| (place, scale * root)).collect()
    }

    /// Uᵀ X for m rows of `columns` numbers.
    pub(crate) fn rotate(&self, x: &[f64], columns: usize, out: &mut [f64], pool: &mut Pool) {
        let along = |k: usize| {
            let eigen = self.root.axes[k].eigen.as_ref();
            (k, eigen.map_or(MatRef::from_row_major_slice(&[], 0, 0), Eigen::rotation))
        };
        contract((0..self.root.axes.len()).map(along), x, columns, out, pool);
    }
}

impl Kept {
    /// Writes the kept columns, times their roots, of a matrix whose entry (i, k) is at i·steps[0] + k·steps[1].
    fn write(&self, from: &[f64], steps: [usize; 2], out: &mut [f64], stride: usize) {
        let rows = if steps[1] == 1 { from.len() / steps[0] } else { steps[1] };
        for (i, row) in out.chunks_exact_mut(stride).take(rows).enumerate() {
            let own = &mut row[self.first..self.first + self.columns.len()];
            for (entry, &(place, root)) in own.iter_mut().zip(&self.columns) {
                *entry = root * from[i * steps[0] + place * steps[1]];
            }
        }
    }
}

/// (U_iᵀ A U_j)ᵀ for a matrix between the grids i and j, row after row.
fn rotate([i, j]: [&Component; 2], a: &[f64], pool: &mut Pool) -> Vec<f64> {
    let (m, n) = (i.root.points(), j.root.points());
    let mut half = pool.take(m * n);
    i.rotate(a, n, &mut half, pool);
    let mut turned = pool.take(m * n);
    if let [axis] = j.root.axes.as_slice()
        && let Some(eigen) = &axis.eigen
    {
        let out = MatMut::from_row_major_slice_mut(&mut turned, n, m);
        let half = MatRef::from_row_major_slice(&half, m, n);
        matmul(out, Accum::Replace, eigen.rotation(), half.transpose(), 1.0, Par::Seq);
    } else {
        let mut across = pool.take(m * n);
        transpose(&half, n, &mut across);
        j.rotate(&across, m, &mut turned, pool);
        pool.give(across);
    }
    pool.give(half);
    turned
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::grid::{Grid, Lattice};
    use crate::kernel::Kernel;
    use crate::structure::Symmetric;

    #[test]
    fn the_rotated_products_equal_dense_ones() {
        let lattice = Lattice::new(vec![
            Grid::covering(&[(-1.0, 1.0)], &[11]).unwrap(),
            Grid::covering(&[(-1.0, 1.0); 2], &[8, 9]).unwrap(),
            Grid::covering(&[(-1.0, 1.0)], &[6]).unwrap(),
            Grid::covering(&[(-1.0, 1.0); 3], &[4, 5, 4]).unwrap(),
        ])
        .unwrap();
        let kernels = [
            Kernel::rbf(&[0.6]).unwrap().scaled(1.7),
            Kernel::rbf(&[0.5, 0.8]).unwrap().scaled(0.4),
            Kernel::matern52(&[0.7]).unwrap(),
            Kernel::rbf(&[0.9, 0.6, 1.1]).unwrap().scaled(2.0),
        ];
        let (mut matrix, mut weights) = (BlockMatrix::zeros(&lattice), Vec::new());
        for i in 0..90_usize {
            let h: Vec<f64> =
                (0..7).map(|k| 1.8 * (0.37 * (i * i + k * i + k) as f64).fract() - 0.9).collect();
            lattice.locate(&h, 0, &mut weights).unwrap();
            matrix.add_outer(&lattice, &weights, &[1.0]);
        }
        let a = &matrix;
        let (m, whole, pool) = (lattice.len(), a.to_dense(), &mut Pool::default());
        for tolerance in [1e-12, 1e-4] {
            let prior = Arc::new(Prior::new(&lattice, &kernels, tolerance).unwrap());
            let (p, stride) = (prior.rank(), padded(prior.rank()));
            let unit = |p: usize| (0..p * p).map(|i| f64::from(u8::from(i / p == i % p))).collect::<Vec<_>>();
            let b = prior.expand(&unit(p), p, pool);
            let (gram, product) = prior.rotated(a, pool);
            let ab = |i: usize, c: usize| (0..m).map(|k| whole[i * m + k] * b[k * p + c]).sum::<f64>();
            let ab: Vec<f64> = (0..m * p).map(|at| ab(at / p, at % p)).collect();
            let scale = ab.iter().fold(0.0, |s: f64, v| s.max(v.abs()));
            for c in 0..p {
                for e in 0..p {
                    let want: f64 = (0..m).map(|i| b[i * p + c] * ab[i * p + e]).sum();
                    // Sums over at most m = 169 points, twice.
                    assert!((gram[c * p + e] - want).abs() < 1e-13 * scale * m as f64);
                }
            }
            for (c, &at) in prior.components.iter().zip(lattice.offsets()) {
                let own = c.root.points();
                let mut turned = vec![f64::NAN; own * p];
                c.rotate(&ab[at * p..(at + own) * p], p, &mut turned, pool);
                for i in 0..own * p {
                    let found = product[(at + i / p) * stride + i % p];
                    assert!((found - turned[i]).abs() < 1e-13 * scale * m as f64);
                }
                // The kept places are where B lives: Uᵀ B has one entry in each column.
                let block: Vec<f64> = b[at * p..(at + own) * p].to_vec();
                c.rotate(&block, p, &mut turned, pool);
                for (k, (place, root)) in c.deviations().into_iter().enumerate() {
                    for i in 0..own {
                        let want = if i == place { root } else { 0.0 };
                        assert!((turned[i * p + c.first + k] - want).abs() < 1e-13);
                    }
                }
            }
        }
    }

    #[test]
    fn a_spread_covariance_gives_the_variances_of_the_coordinates() {
        let lattice = Lattice::new(vec![
            Grid::covering(&[(-1.0, 1.0)], &[9]).unwrap(),
            Grid::covering(&[(-1.0, 1.0); 2], &[8, 9]).unwrap(),
        ])
        .unwrap();
        // The second block has two terms.
        let sum = Kernel::rbf(&[0.5, 0.8]).unwrap() + Kernel::matern32(&[0.9, 0.7]).unwrap().scaled(0.3);
        let prior = Prior::new(&lattice, &[Kernel::rbf(&[0.6]).unwrap(), sum], 1e-6).unwrap();
        let p = prior.rank();
        let entry = |i: usize, j: usize| 1.0 / (1.0 + i as f64 + j as f64) + f64::from(u8::from(i == j));
        let covariance: Vec<f64> = (0..p * p).map(|at| entry(at / p, at % p)).collect();
        let mut out = BlockMatrix::zeros(&lattice);
        prior.spread(&covariance, &mut out, &mut Pool::default());
        let (mut weights, mut phi) = (Vec::new(), vec![0.0; p]);
        for i in 0..20_usize {
            let h: Vec<f64> =
                (0..3).map(|k| 1.8 * (0.37 * (i * i + k * i + k) as f64).fract() - 0.9).collect();
            lattice.locate(&h, 0, &mut weights).unwrap();
            prior.features(&weights, &mut phi, &mut vec![0.0; prior.scratch_len()]);
            let form = |i: usize| phi[i] * (0..p).map(|j| covariance[i * p + j] * phi[j]).sum::<f64>();
            let want: f64 = (0..p).map(form).sum();
            let found = out.quadratic(&lattice, &weights);
            assert!((found - want).abs() < 1e-13 * p as f64 * want.max(1.0), "{found} {want}");
        }
    }
}
