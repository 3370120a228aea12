//! Matrices that are never stored whole: symmetric Toeplitz, Kronecker products, stencil-sparse matrices,
//! block matrices over several grids.
//!
//! Each has a dense twin ([`Symmetric::to_dense`]), and one test suite compares every operator with it.

mod blocks;
mod dense;
mod kronecker;
mod neighborhood;
mod stencil;
mod toeplitz;

pub use blocks::BlockMatrix;
pub(crate) use blocks::{Cross, GridMatrix, PointsBlock};
pub use dense::DenseMatrix;
pub use kronecker::Kronecker;
pub(crate) use neighborhood::Neighborhood;
pub(crate) use stencil::SparseRows;
pub use stencil::StencilMatrix;
pub use toeplitz::{Toeplitz, ToeplitzMethod};

/// A symmetric linear operator.
pub trait Symmetric {
    /// The number of rows.
    fn size(&self) -> usize;

    /// The length of scratch space that [`Symmetric::apply`] needs.
    fn scratch_len(&self) -> usize {
        0
    }

    /// y = A x. What `y` and `scratch` hold before does not matter.
    ///
    /// # Panics
    /// If a slice is too short.
    fn apply(&self, x: &[f64], y: &mut [f64], scratch: &mut [f64]);

    /// The whole matrix, row after row, for tests and small problems: the operator applied to unit vectors.
    fn to_dense(&self) -> Vec<f64> {
        let m = self.size();
        let (mut unit, mut scratch) = (vec![0.0; m], vec![0.0; self.scratch_len()]);
        let mut dense = vec![0.0; m * m];
        for (i, row) in dense.chunks_exact_mut(m).enumerate() {
            unit[i] = 1.0;
            self.apply(&unit, row, &mut scratch);
            unit[i] = 0.0;
        }
        dense
    }
}

/// One suite for every operator: it must equal its twin, be linear in spite of dirty buffers, and symmetric.
#[cfg(test)]
fn assert_equals_twin(operator: &dyn Symmetric, twin: &[f64], tolerance: f64) {
    let m = operator.size();
    let scale = twin.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    let x: Vec<f64> = (0..m).map(|i| (1.3 * i as f64 + 0.4).sin()).collect();
    let mut y = vec![f64::NAN; m];
    let mut scratch = vec![f64::NAN; operator.scratch_len()];
    for _ in 0..2 {
        operator.apply(&x, &mut y, &mut scratch);
        for i in 0..m {
            let want: f64 = (0..m).map(|j| twin[i * m + j] * x[j]).sum();
            assert!((y[i] - want).abs() <= tolerance * scale * m as f64, "row {i}: {} {want}", y[i]);
        }
        scratch.fill(f64::INFINITY);
    }
    let dense = operator.to_dense();
    for i in 0..m {
        for j in 0..m {
            assert!((dense[i * m + j] - twin[i * m + j]).abs() <= tolerance * scale, "entry {i}, {j}");
            assert!((dense[i * m + j] - dense[j * m + i]).abs() <= tolerance * scale);
        }
    }
}
