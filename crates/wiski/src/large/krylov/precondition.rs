//! A matrix P = L Lᵀ close to S that is cheap to solve with: diagonal, but for an exact block.
//!
//! In the coordinates of a balanced root, S is diagonal for evenly spread data. For other data the coordinates that
//! matter most are those of large prior variance, smooth functions over the whole grid; their block of S is taken
//! exactly, by a small Cholesky factor.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::{MatMut, MatRef, Par};

use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::prior::{Balanced, Prior};
use crate::stats::Stats;

/// P = L Lᵀ ≈ S.
#[derive(Debug, Clone)]
pub(super) struct Preconditioner {
    /// The diagonal of L; for coordinates of the block, 1.
    diagonal: Vec<f64>,
    /// The coordinates of the block.
    places: Vec<usize>,
    /// The Cholesky factor of the block, column after column.
    factor: Vec<f64>,
    /// The columns of the root that belong to the block.
    leading: Prior,
}

impl Preconditioner {
    pub(super) fn new(balanced: &Balanced, stats: &Stats, noise: f64, leading: usize) -> Result<Self> {
        let mut diagonal: Vec<f64> = balanced.diagonal.iter().map(|d| (1.0 + d / noise).sqrt()).collect();
        let (leading, places) = balanced.leading(leading);
        places.iter().for_each(|&i| diagonal[i] = 1.0);
        let r = places.len();
        let whitened = stats.whiten(&leading, &mut Pool::default());
        let mut factor = whitened.gram;
        factor.iter_mut().for_each(|g| *g /= noise);
        (0..r).for_each(|i| factor[i * r + i] += 1.0);
        let need = cholesky_in_place_scratch::<f64>(r, Par::Seq, Default::default());
        let mut memory = MemBuffer::new(need);
        let matrix = MatMut::from_column_major_slice_mut(&mut factor, r, r);
        let stack = MemStack::new(&mut memory);
        cholesky_in_place(matrix, Default::default(), Par::Seq, stack, Default::default()).map_err(|_| {
            let reason =
                "the statistics are not positive definite: a point was forgotten that was never learned";
            Error::Unsupported { operation: "factorization", reason }
        })?;
        Ok(Self { diagonal, places, factor, leading })
    }

    /// The prior of the block's coordinates alone.
    pub(super) fn leading(&self) -> &Prior {
        &self.leading
    }

    /// The inverse of P's diagonal, 0 for coordinates of the block.
    pub(super) fn inverse_diagonal(&self) -> Vec<f64> {
        let mut inverse: Vec<f64> = self.diagonal.iter().map(|d| (d * d).recip()).collect();
        self.places.iter().for_each(|&i| inverse[i] = 0.0);
        inverse
    }

    /// log det P.
    pub(super) fn log_det(&self) -> f64 {
        let r = self.places.len();
        let block: f64 = (0..r).map(|i| self.factor[i * r + i].ln()).sum();
        2.0 * (block + self.diagonal.iter().map(|d| d.ln()).sum::<f64>())
    }

    fn matrix(&self) -> MatRef<'_, f64> {
        MatRef::from_column_major_slice(&self.factor, self.places.len(), self.places.len())
    }

    /// Multiplies with a power of the diagonal, and applies `f` to the rows of the block.
    fn split(&self, x: &mut [f64], columns: usize, power: i32, f: impl FnOnce(MatMut<'_, f64>)) {
        let (p, r) = (self.diagonal.len(), self.places.len());
        let mut block = vec![0.0; r * columns];
        for (to, from) in block.chunks_exact_mut(r).zip(x.chunks_exact(p)) {
            to.iter_mut().zip(&self.places).for_each(|(to, &i)| *to = from[i]);
        }
        f(MatMut::from_column_major_slice_mut(&mut block, r, columns));
        for column in x.chunks_exact_mut(p) {
            match power {
                1 => column.iter_mut().zip(&self.diagonal).for_each(|(v, d)| *v *= d),
                -1 => column.iter_mut().zip(&self.diagonal).for_each(|(v, d)| *v /= d),
                _ => column.iter_mut().zip(&self.diagonal).for_each(|(v, d)| *v /= d * d),
            }
        }
        for (from, to) in block.chunks_exact(r).zip(x.chunks_exact_mut(p)) {
            from.iter().zip(&self.places).for_each(|(&from, &i)| to[i] = from);
        }
    }

    /// x ← P⁻¹x for columns of p numbers.
    pub(super) fn solve(&self, x: &mut [f64], columns: usize) {
        self.split(x, columns, -2, |mut block| {
            solve_lower_triangular_in_place(self.matrix(), block.as_mut(), Par::Seq);
            solve_upper_triangular_in_place(self.matrix().transpose(), block, Par::Seq);
        });
    }

    /// x ← L x.
    pub(super) fn multiply_root(&self, x: &mut [f64], columns: usize) {
        self.split(x, columns, 1, |mut block| {
            let r = block.nrows();
            // From the last row on, so that the rows above still hold their old values.
            for i in (0..r).rev() {
                for j in 0..block.ncols() {
                    block[(i, j)] = (0..=i).map(|k| self.factor[k * r + i] * block[(k, j)]).sum();
                }
            }
        });
    }

    /// x ← L⁻¹x.
    pub(super) fn solve_root(&self, x: &mut [f64], columns: usize) {
        self.split(x, columns, -1, |block| {
            solve_lower_triangular_in_place(self.matrix(), block, Par::Seq);
        });
    }

    /// x ← L⁻ᵀx.
    pub(super) fn solve_root_transposed(&self, x: &mut [f64], columns: usize) {
        self.split(x, columns, -1, |block| {
            solve_upper_triangular_in_place(self.matrix().transpose(), block, Par::Seq);
        });
    }

    /// x ← L⁻ᵀx for a vector over the block's coordinates alone.
    pub(super) fn solve_block_transposed(&self, x: &mut [f64], columns: usize) {
        let block = MatMut::from_row_major_slice_mut(x, self.places.len(), columns);
        solve_upper_triangular_in_place(self.matrix().transpose(), block, Par::Seq);
    }
}
