//! The eigendecomposition of one Toeplitz factor: T = V Λ Vᵀ.
//!
//! A symmetric Toeplitz matrix is also symmetric about its other diagonal, so each eigenvector is either
//! symmetric or antisymmetric under reversal. That splits the problem in two of half the size,
//!
//! ```text
//! (t_|i−j| ± t_{g−1−i−j})  for i, j < g/2,
//! ```
//!
//! a quarter of the work.

use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::{Mat, MatRef, Par};

use crate::error::{Error, Result};

/// All eigenpairs of a symmetric Toeplitz matrix, largest eigenvalue first.
#[derive(Debug, Clone)]
pub(crate) struct Eigen {
    pub(crate) values: Vec<f64>,
    /// Eigenvector j at `vectors[j * g..]`.
    pub(crate) vectors: Vec<f64>,
}

impl Eigen {
    /// Vᵀ: takes values on the axis to coordinates in the eigenvectors.
    pub(crate) fn rotation(&self) -> MatRef<'_, f64> {
        MatRef::from_row_major_slice(&self.vectors, self.values.len(), self.values.len())
    }
}

/// Decomposes the symmetric Toeplitz matrix with the given first column in O(g³/4).
pub(super) fn toeplitz_eigen(column: &[f64]) -> Result<Eigen> {
    let g = column.len();
    // Levels that have nothing to do with each other: what is beside the diagonal is less than its rounding.
    if column[1..].iter().map(|t| t.abs()).sum::<f64>() < 0.5 * f64::EPSILON * column[0] {
        let vectors = (0..g * g).map(|i| f64::from(u8::from(i / g == i % g))).collect();
        return Ok(Eigen { values: vec![column[0]; g], vectors });
    }
    let (half, middle) = (g / 2, g % 2);
    let root_2 = std::f64::consts::SQRT_2;
    let t = |i: usize, j: usize| column[i.abs_diff(j)];
    let mirror = |i: usize, j: usize| column[g - 1 - i - j];
    let even = Mat::from_fn(half + middle, half + middle, |i, j| match (i < half, j < half) {
        (true, true) => t(i, j) + mirror(i, j),
        (false, false) => column[0],
        _ => root_2 * t(i, j),
    });
    let odd = Mat::from_fn(half, half, |i, j| t(i, j) - mirror(i, j));

    let mut pairs: Vec<(f64, Vec<f64>)> = Vec::with_capacity(g);
    for (part, sign) in [(even, 1.0), (odd, -1.0)] {
        let n = part.nrows();
        if n == 0 {
            continue;
        }
        let (values, vectors) = decompose(&part)?;
        for j in 0..n {
            let mut vector = vec![0.0; g];
            for i in 0..half {
                vector[i] = vectors[(i, j)] / root_2;
                vector[g - 1 - i] = sign * vector[i];
            }
            if n > half {
                vector[half] = vectors[(half, j)];
            }
            pairs.push((values[j], vector));
        }
    }
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
    let values = pairs.iter().map(|p| p.0).collect();
    let vectors = pairs.into_iter().flat_map(|p| p.1).collect();
    Ok(Eigen { values, vectors })
}

/// Eigenvalues, smallest first, and eigenvectors of a symmetric matrix.
pub(super) fn decompose(matrix: &Mat<f64>) -> Result<(Vec<f64>, Mat<f64>)> {
    let n = matrix.nrows();
    let (mut values, mut vectors) = (vec![0.0; n], Mat::zeros(n, n));
    let need = self_adjoint_evd_scratch::<f64>(n, ComputeEigenvectors::Yes, Par::Seq, Default::default());
    let mut memory = faer::dyn_stack::MemBuffer::new(need);
    self_adjoint_evd(
        matrix.as_ref(),
        faer::diag::DiagMut::from_slice_mut(&mut values),
        Some(vectors.as_mut()),
        Par::Seq,
        faer::dyn_stack::MemStack::new(&mut memory),
        Default::default(),
    )
    .map_err(|_| Error::NoConvergence {
        method: "eigendecomposition",
        iterations: 0,
        residual: f64::NAN,
    })?;
    Ok((values, vectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eigenpairs_rebuild_the_matrix_and_are_orthonormal() {
        for g in [1usize, 2, 4, 5, 16, 17, 31, 64] {
            for family in 0..4 {
                let column: Vec<f64> = (0..g)
                    .map(|i| {
                        let x = i as f64 * 0.17;
                        match family {
                            0 => (-x * x).exp(),
                            1 => (-x).exp(),
                            2 => (-300.0 * x).exp(),
                            _ => (3.0 * x).cos(),
                        }
                    })
                    .collect();
                let eigen = toeplitz_eigen(&column).unwrap();
                assert!(eigen.values.is_sorted_by(|a, b| a >= b));
                // A backward stable decomposition errs by a small multiple of g·eps·‖T‖, ‖T‖ ≤ g.
                let tolerance = 4.0 * (g * g) as f64 * f64::EPSILON;
                for i in 0..g {
                    for j in 0..g {
                        let v = |k: usize, i: usize| eigen.vectors[k * g + i];
                        let entry: f64 = (0..g).map(|k| eigen.values[k] * v(k, i) * v(k, j)).sum();
                        assert!((entry - column[i.abs_diff(j)]).abs() <= tolerance);
                        let inner: f64 = (0..g).map(|k| v(i, k) * v(j, k)).sum();
                        assert!((inner - f64::from(u8::from(i == j))).abs() <= tolerance);
                    }
                }
            }
        }
    }
}
