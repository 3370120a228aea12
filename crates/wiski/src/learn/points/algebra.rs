//! Dense algebra in two precisions: the few products of the bound, by faer's kernels. Factorizations, always in double
//! precision, are those of `dense`.

use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::traits::RealField;
use faer::{Accum, ColMut, Mat, MatMut, MatRef, Par};

pub(super) use crate::dense::{cholesky, dot, inverse_of_cholesky, log_det, mirror};

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

/// B ← L⁻¹B.
pub(super) fn solve_lower<T: Real>(l: MatRef<'_, T>, b: MatMut<'_, T>) {
    solve_lower_triangular_in_place(l, b, Par::Seq);
}

/// B ← L⁻ᵀB.
pub(super) fn solve_upper<T: Real>(l: MatRef<'_, T>, b: MatMut<'_, T>) {
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
