//! Dense algebra in two precisions: the few products and factorizations of the bound, by faer's kernels.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::cholesky::llt::inverse::{inverse, inverse_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::traits::RealField;
use faer::{Accum, ColMut, Mat, MatMut, MatRef, Par};

use crate::error::{Error, Result};

/// The numbers of the large products. Kernels, Gram sums and factorizations are `f64` whatever this is.
pub(super) trait Real: RealField + Copy + Send + Sync + 'static {
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Real for f64 {
    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
}

impl Real for f32 {
    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

/// The matrix in the precision of the large products.
pub(super) fn rounded<T: Real>(a: MatRef<'_, f64>) -> Mat<T> {
    Mat::from_fn(a.nrows(), a.ncols(), |i, j| T::of(a[(i, j)]))
}

/// C = α A B, or C += α A B.
pub(super) fn multiply<T: Real>(
    c: MatMut<'_, T>,
    accumulate: bool,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    alpha: f64,
) {
    let how = if accumulate { Accum::Add } else { Accum::Replace };
    matmul(c, how, a, b, T::of(alpha), Par::Seq);
}

/// The lower triangle of A Aᵀ.
pub(super) fn gram_of_columns<T: Real>(c: MatMut<'_, T>, a: MatRef<'_, T>) {
    use BlockStructure::{Rectangular, TriangularLower};
    let (one, b) = (T::of(1.0), a.transpose());
    triangular::matmul(c, TriangularLower, Accum::Replace, a, Rectangular, b, Rectangular, one, Par::Seq);
}

/// The lower Cholesky factor of a symmetric matrix of which the lower triangle is read; zeros above.
pub(super) fn cholesky(mut a: Mat<f64>) -> Result<Mat<f64>> {
    let n = a.nrows();
    let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f64>(n, Par::Seq, Default::default()));
    let stack = MemStack::new(&mut memory);
    cholesky_in_place(a.as_mut(), Default::default(), Par::Seq, stack, Default::default()).map_err(|_| {
        let reason = "the covariance of the inducing points is not positive definite to working precision";
        Error::Unsupported { operation: "Cholesky factorization", reason }
    })?;
    for j in 1..n {
        a.col_as_slice_mut(j)[..j].fill(0.0);
    }
    Ok(a)
}

/// log det of L Lᵀ.
pub(super) fn log_det(l: MatRef<'_, f64>) -> f64 {
    2.0 * (0..l.nrows()).map(|i| l[(i, i)].ln()).sum::<f64>()
}

/// B ← L⁻¹B.
pub(super) fn solve_lower<T: Real>(l: MatRef<'_, T>, b: MatMut<'_, T>) {
    solve_lower_triangular_in_place(l, b, Par::Seq);
}

/// B ← L⁻ᵀB.
pub(super) fn solve_upper(l: MatRef<'_, f64>, b: MatMut<'_, f64>) {
    solve_upper_triangular_in_place(l.transpose(), b, Par::Seq);
}

/// v ← L⁻¹v.
pub(super) fn solve_lower_vector(l: MatRef<'_, f64>, v: &mut [f64]) {
    solve_lower(l, ColMut::from_slice_mut(v).as_mat_mut());
}

/// v ← L⁻ᵀv.
pub(super) fn solve_upper_vector(l: MatRef<'_, f64>, v: &mut [f64]) {
    solve_upper(l, ColMut::from_slice_mut(v).as_mat_mut());
}

/// (L Lᵀ)⁻¹, both triangles.
pub(super) fn inverse_of_cholesky(l: MatRef<'_, f64>) -> Mat<f64> {
    let n = l.nrows();
    let mut out = Mat::zeros(n, n);
    let mut memory = MemBuffer::new(inverse_scratch::<f64>(n, Par::Seq));
    inverse(out.as_mut(), l, Par::Seq, MemStack::new(&mut memory));
    mirror(&mut out);
    out
}

/// Copies the lower triangle to the upper one, tile by tile.
pub(super) fn mirror(m: &mut Mat<f64>) {
    const TILE: usize = 32;
    let n = m.nrows();
    for start in (0..n).step_by(TILE) {
        for from in (start..n).step_by(TILE) {
            for j in start..(start + TILE).min(n) {
                for i in from.max(j + 1)..(from + TILE).min(n) {
                    m[(j, i)] = m[(i, j)];
                }
            }
        }
    }
}

/// Σ a_i b_i.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
