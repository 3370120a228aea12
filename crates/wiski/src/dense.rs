//! Dense algebra by faer's kernels: Cholesky factors that grow, triangular solves, inverses.

use crate::error::{Error, Result};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::cholesky::llt::inverse::{inverse, inverse_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::{Accum, ColMut, ColRef, Mat, MatMut, MatRef, Par};

/// Copies the lower triangle to the upper one.
pub fn mirror(m: &mut Mat<f64>) {
    // Tiles keep both the row and the column in the cache.
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

/// The transpose of a matrix of `columns` numbers a row, both stored row after row.
pub(crate) fn transpose(x: &[f64], columns: usize, out: &mut [f64]) {
    // Tiles whose rows and columns stay in the first cache: 8 whole lines each way.
    const TILE: usize = 64;
    let rows = x.len() / columns.max(1);
    for top in (0..rows).step_by(TILE) {
        for left in (0..columns).step_by(TILE) {
            for j in left..(left + TILE).min(columns) {
                let to = &mut out[j * rows + top..j * rows + (top + TILE).min(rows)];
                for (to, row) in to.iter_mut().zip(x[top * columns..].chunks_exact(columns)) {
                    *to = row[j];
                }
            }
        }
    }
}

/// The lower Cholesky factor; the upper triangle becomes zero.
pub fn cholesky(mut a: Mat<f64>) -> Result<Mat<f64>> {
    let n = a.nrows();
    let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f64>(n, Par::Seq, Default::default()));
    let stack = MemStack::new(&mut memory);
    cholesky_in_place(a.as_mut(), Default::default(), Par::Seq, stack, Default::default()).map_err(|_| {
        let reason = "the covariance matrix is not positive definite to working precision";
        Error::Unsupported { operation: "Cholesky factorization", reason }
    })?;
    for j in 1..n {
        a.col_as_slice_mut(j)[..j].fill(0.0);
    }
    Ok(a)
}

/// log det A of A = L Lᵀ.
pub fn log_det(l: MatRef<'_, f64>) -> f64 {
    2.0 * (0..l.nrows()).map(|i| l[(i, i)].ln()).sum::<f64>()
}

/// B ← L⁻¹B.
pub fn solve_lower(l: MatRef<'_, f64>, b: MatMut<'_, f64>) {
    solve_lower_triangular_in_place(l, b, Par::Seq);
}

/// B ← L⁻ᵀB.
pub fn solve_lower_transposed(l: MatRef<'_, f64>, b: MatMut<'_, f64>) {
    solve_upper_triangular_in_place(l.transpose(), b, Par::Seq);
}

/// L⁻¹ v.
pub fn solve_vector(l: MatRef<'_, f64>, v: &[f64]) -> Vec<f64> {
    let mut out = v.to_vec();
    solve_lower(l, ColMut::from_slice_mut(&mut out).as_mat_mut());
    out
}

/// L⁻ᵀ v.
pub fn solve_vector_transposed(l: MatRef<'_, f64>, v: &[f64]) -> Vec<f64> {
    let mut out = v.to_vec();
    solve_lower_transposed(l, ColMut::from_slice_mut(&mut out).as_mat_mut());
    out
}

/// (L Lᵀ)⁻¹ v.
pub fn solve_cholesky(l: MatRef<'_, f64>, v: &[f64]) -> Vec<f64> {
    solve_vector_transposed(l, &solve_vector(l, v))
}

/// (L Lᵀ)⁻¹, both triangles.
pub fn inverse_of_cholesky(l: MatRef<'_, f64>) -> Mat<f64> {
    let n = l.nrows();
    let mut out = Mat::zeros(n, n);
    let mut memory = MemBuffer::new(inverse_scratch::<f64>(n, Par::Seq));
    inverse(out.as_mut(), l, Par::Seq, MemStack::new(&mut memory));
    mirror(&mut out);
    out
}

/// L⁻ᵀ M L⁻¹ for a symmetric M.
pub fn congruence(l: MatRef<'_, f64>, mut m: Mat<f64>) -> Mat<f64> {
    solve_lower_transposed(l, m.as_mut());
    let mut m = m.transpose().to_owned();
    solve_lower_transposed(l, m.as_mut());
    m
}

/// A v.
pub fn apply(a: MatRef<'_, f64>, v: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; a.nrows()];
    let target = ColMut::from_slice_mut(&mut out);
    matmul(target.as_mat_mut(), Accum::Replace, a, ColRef::from_slice(v).as_mat(), 1.0, Par::Seq);
    out
}

/// Aᵀ v.
pub fn apply_transposed(a: MatRef<'_, f64>, v: &[f64]) -> Vec<f64> {
    apply(a.transpose(), v)
}

/// Σ a_i b_i.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The sum of all products of entries, tr(AᵀB).
pub fn inner(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> f64 {
    (0..a.ncols()).map(|j| (0..a.nrows()).map(|i| a[(i, j)] * b[(i, j)]).sum::<f64>()).sum()
}

/// A Cholesky factor with room to grow: a new row costs one triangular solve, O(n²).
#[derive(Debug, Clone)]
pub struct Growing {
    room: Mat<f64>,
    size: usize,
}

impl Default for Growing {
    fn default() -> Self {
        Self { room: Mat::zeros(0, 0), size: 0 }
    }
}

impl Growing {
    /// The factor of a symmetric positive definite matrix.
    pub fn new(a: Mat<f64>) -> Result<Self> {
        let size = a.nrows();
        Ok(Self { room: cholesky(a)?, size })
    }

    /// L.
    pub fn factor(&self) -> MatRef<'_, f64> {
        self.room.as_ref().submatrix(0, 0, self.size, self.size)
    }

    /// Borders the matrix with a column and its diagonal entry: l = L⁻¹k, λ² = κ − lᵀl.
    pub fn push(&mut self, k: &[f64], diagonal: f64) -> Result<()> {
        let n = self.size;
        let l = solve_vector(self.factor(), k);
        let pivot = diagonal - dot(&l, &l);
        if pivot.is_nan() || pivot <= 0.0 {
            let reason = "the bordered covariance matrix is not positive definite to working precision";
            return Err(Error::Unsupported { operation: "growth of the Cholesky factor", reason });
        }
        if n == self.room.nrows() {
            let capacity = n + n / 2 + 16;
            let old = std::mem::replace(&mut self.room, Mat::zeros(capacity, capacity));
            self.room.as_mut().submatrix_mut(0, 0, n, n).copy_from(&old);
        }
        for (j, &value) in l.iter().enumerate() {
            self.room[(n, j)] = value;
        }
        self.room[(n, n)] = pivot.sqrt();
        self.size += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spd(n: usize) -> Mat<f64> {
        let b = Mat::from_fn(n, n, |i, j| ((3 * i + 7 * j) as f64).sin());
        let mut a = &b * b.transpose();
        (0..n).for_each(|i| a[(i, i)] += 1.0);
        a
    }

    #[test]
    fn a_transpose_has_rows_for_columns() {
        for (rows, columns) in [(1, 1), (3, 200), (130, 64), (65, 129), (0, 4)] {
            let x: Vec<f64> = (0..rows * columns).map(|i| i as f64).collect();
            let mut out = vec![f64::NAN; x.len()];
            transpose(&x, columns, &mut out);
            for i in 0..rows * columns {
                assert_eq!(out[i % columns * rows + i / columns], x[i]);
            }
        }
    }

    #[test]
    fn a_grown_factor_is_the_whole_factor() {
        let a = spd(60);
        let mut grown = Growing::new(a.submatrix(0, 0, 5, 5).to_owned()).unwrap();
        for n in 5..60 {
            let k: Vec<f64> = (0..n).map(|i| a[(i, n)]).collect();
            grown.push(&k, a[(n, n)]).unwrap();
        }
        let whole = cholesky(a).unwrap();
        assert!((grown.factor() - &whole).norm_max() < 1e-12 * whole.norm_max());
        assert!(grown.push(&vec![0.0; 60], -1.0).is_err());
    }

    #[test]
    fn inverses_and_congruences() {
        let a = spd(40);
        let l = cholesky(a.clone()).unwrap();
        let identity = &a * inverse_of_cholesky(l.as_ref());
        assert!((identity - Mat::<f64>::identity(40, 40)).norm_max() < 1e-10);
        let back = l.transpose() * congruence(l.as_ref(), a.clone()) * &l;
        assert!((back - &a).norm_max() < 1e-9);
        let v: Vec<f64> = (0..40).map(|i| f64::from(i).cos()).collect();
        let x = solve_cholesky(l.as_ref(), &v);
        assert!(apply(a.as_ref(), &x).iter().zip(&v).all(|(a, b)| (a - b).abs() < 1e-10));
    }
}
