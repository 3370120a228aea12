//! The few dense matrix operations that the starts need.

use faer::{Mat, Side};

use crate::error::{Error, Result};

/// Eigenvalues below this share of the largest count as zero: columns are collinear to rounding.
const RANK_TOLERANCE: f64 = 1e-10;

/// Eigenvalues in falling order, never negative, with their vectors as columns.
pub(super) struct Eigen {
    pub(super) values: Vec<f64>,
    pub(super) vectors: Mat<f64>,
}

impl Eigen {
    /// Decomposes a positive semi-definite matrix.
    pub(super) fn new(matrix: &Mat<f64>) -> Result<Self> {
        let size = matrix.nrows();
        let rising = matrix.self_adjoint_eigen(Side::Lower).map_err(|_| Error::NoConvergence {
            method: "the symmetric eigendecomposition",
            iterations: 0,
            residual: f64::INFINITY,
        })?;
        let values = (0..size).rev().map(|a| rising.S()[a].max(0.0)).collect();
        let vectors = Mat::from_fn(size, size, |i, a| rising.U()[(i, size - 1 - a)]);
        Ok(Self { values, vectors })
    }

    pub(super) fn rank(&self) -> usize {
        let largest = self.values.first().copied().unwrap_or(0.0);
        self.values.iter().filter(|&&value| value > RANK_TOLERANCE * largest).count()
    }
}

/// Σ_i weight(i) z_i z_iᵀ / n.
pub(super) fn gram(z: &Mat<f64>, weight: impl Fn(usize) -> f64) -> Mat<f64> {
    let share = (z.nrows() as f64).recip();
    let weighted = Mat::from_fn(z.nrows(), z.ncols(), |i, a| z[(i, a)] * weight(i) * share);
    let product = z.transpose() * &weighted;
    // Symmetric to the last bit, whatever order the product was summed in.
    Mat::from_fn(z.ncols(), z.ncols(), |a, b| 0.5 * (product[(a, b)] + product[(b, a)]))
}

/// The product with a vector.
pub(super) fn times(matrix: &Mat<f64>, vector: &[f64]) -> Vec<f64> {
    (0..matrix.nrows()).map(|a| vector.iter().enumerate().map(|(b, v)| matrix[(a, b)] * v).sum()).collect()
}
