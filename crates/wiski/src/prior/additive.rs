//! A B and BᵀA B for a prior over several grids.
//!
//! B is block-diagonal, B = diag(B_1, …, B_J), and the cross blocks of A are dense. Grids of an additive model
//! are small, so each B_j is formed (m_j×p_j) and everything is a dense product:
//!
//! ```text
//! (A B)_ij = A_ij B_j        (BᵀA B)_i· = B_iᵀ (A B)_i·
//! ```
//!
//! m² p/J multiply-adds for the first and m p²/J for the second: nothing next to the p³ that follow. The
//! gradient of the evidence needs A V = (A B) F, so A B is kept for it.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::Prior;
use crate::pool::Pool;
use crate::simd::padded;
use crate::structure::{BlockMatrix, Cross, GridMatrix};

/// B_j, m_j rows of `stride` numbers, of which the first `rank` are meant; `first` is its first coordinate.
struct Block {
    first: usize,
    rank: usize,
    stride: usize,
    rows: Vec<f64>,
}

impl Block {
    fn matrix(&self) -> MatRef<'_, f64> {
        let points = self.rows.len() / self.stride;
        MatRef::from_row_major_slice_with_stride(&self.rows, points, self.rank, self.stride)
    }
}

impl Prior {
    /// BᵀAB (p×p) and AB (m rows of `padded(p)` numbers) for a matrix over several grids.
    pub(super) fn products(&self, a: &BlockMatrix, pool: &mut Pool) -> (Vec<f64>, Vec<f64>) {
        let blocks = self.blocks(pool);
        let (p, m, stride) = (self.rank, self.lattice.len(), padded(self.rank));
        let offsets = self.lattice.offsets();
        let mut product = pool.zeros(m * stride);
        let mut out = MatMut::from_row_major_slice_mut(&mut product, m, stride);
        for (j, (block, diagonal)) in blocks.iter().zip(a.diagonal()).enumerate() {
            let size = self.lattice.grids()[j].len();
            let mut target = out.as_mut().submatrix_mut(offsets[j], block.first, size, block.rank);
            match diagonal {
                GridMatrix::Dense(a) => {
                    let a = MatRef::from_row_major_slice(a.data(), size, size);
                    matmul(target, Accum::Replace, a, block.matrix(), 1.0, Par::Seq);
                }
                GridMatrix::Stencil(a) => {
                    let mut own = pool.take(block.rows.len());
                    a.multiply(&block.rows, block.stride, &mut own);
                    for (i, row) in own.chunks_exact(block.stride).enumerate() {
                        (0..block.rank).for_each(|k| target[(i, k)] = row[k]);
                    }
                    pool.give(own);
                }
            }
        }
        for Cross { first, second, data } in a.cross() {
            let (left, right) = (&blocks[*first], &blocks[*second]);
            let sizes = [*first, *second].map(|j| self.lattice.grids()[j].len());
            let a = MatRef::from_row_major_slice(data, sizes[0], sizes[1]);
            let above = out.as_mut().submatrix_mut(offsets[*first], right.first, sizes[0], right.rank);
            matmul(above, Accum::Replace, a, right.matrix(), 1.0, Par::Seq);
            let below = out.as_mut().submatrix_mut(offsets[*second], left.first, sizes[1], left.rank);
            matmul(below, Accum::Replace, a.transpose(), left.matrix(), 1.0, Par::Seq);
        }
        let mut gram = pool.take(p * p);
        let mut whole = MatMut::from_row_major_slice_mut(&mut gram, p, p);
        for (j, block) in blocks.iter().enumerate() {
            let own = out.as_ref().submatrix(offsets[j], 0, self.lattice.grids()[j].len(), p);
            let rows = whole.as_mut().subrows_mut(block.first, block.rank);
            matmul(rows, Accum::Replace, block.matrix().transpose(), own, 1.0, Par::Seq);
        }
        blocks.into_iter().for_each(|block| pool.give(block.rows));
        (gram, product)
    }

    /// The roots of all blocks, formed.
    fn blocks(&self, pool: &mut Pool) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::with_capacity(self.lattice.grids().len());
        for (j, grid) in self.lattice.grids().iter().enumerate() {
            // The components of one block have neighbouring coordinates.
            let own = || self.components.iter().filter(|c| c.block == j);
            let first = own().next().map_or(0, |c| c.first);
            let rank: usize = own().map(|c| c.root.rank()).sum();
            let stride = padded(rank);
            let mut rows = pool.zeros(grid.len() * stride);
            for c in own() {
                let (at, width) = (c.first - first, c.root.rank());
                if let [axis] = c.root.axes.as_slice() {
                    for (row, from) in rows.chunks_exact_mut(stride).zip(axis.rows.chunks_exact(axis.stride))
                    {
                        row[at..at + width].copy_from_slice(&from[..width]);
                    }
                    continue;
                }
                let mut unit = pool.zeros(width * width);
                (0..width).for_each(|i| unit[i * (width + 1)] = 1.0);
                let mut dense = pool.take(grid.len() * width);
                c.root.expand(&unit, width, &mut dense, pool);
                for (row, from) in rows.chunks_exact_mut(stride).zip(dense.chunks_exact(width)) {
                    row[at..at + width].copy_from_slice(from);
                }
                pool.give(unit);
                pool.give(dense);
            }
            blocks.push(Block { first, rank, stride, rows });
        }
        blocks
    }
}
