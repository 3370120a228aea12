//! Draws from N(0, S⁻¹) by Lanczos' method.
//!
//! For P = L Lᵀ and G = L⁻¹S L⁻ᵀ the vector L⁻ᵀG^{-½}ξ has covariance L⁻ᵀG⁻¹L⁻¹ = S⁻¹. In the Krylov space of G and ξ
//! with orthonormal basis Q and T = QᵀG Q, G^{-½}ξ ≈ ‖ξ‖ Q T^{-½}e₁, and G is close to the identity.

use faer::{Mat, Side};

use super::Accuracy;
use super::solve::System;
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::simd::dot;

/// The result is looked at after every so many steps.
const LOOK_EVERY: usize = 5;

/// L⁻ᵀG^{-½}ξ.
pub(super) fn colored(system: &System, xi: &[f64], accuracy: &Accuracy) -> Result<Vec<f64>> {
    let (pool, preconditioner) = (&mut Pool::default(), system.preconditioner);
    let norm = dot(xi, xi).sqrt();
    if norm == 0.0 {
        return Ok(vec![0.0; xi.len()]);
    }
    let mut basis: Vec<Vec<f64>> = vec![xi.iter().map(|v| v / norm).collect()];
    let (mut diagonal, mut off): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut coefficients: Vec<f64> = Vec::new();
    let mut change = f64::INFINITY;
    let mut image = vec![0.0; xi.len()];
    while basis.len() <= accuracy.max_iterations {
        let k = basis.len() - 1;
        // G q = L⁻¹S L⁻ᵀq.
        let mut q = basis[k].clone();
        preconditioner.solve_root_transposed(&mut q, 1);
        system.apply(&q, 1, &mut image, pool);
        preconditioner.solve_root(&mut image, 1);
        diagonal.push(dot(&basis[k], &image));
        // Against all earlier vectors, twice: Lanczos vectors lose their orthogonality otherwise.
        for _ in 0..2 {
            for v in &basis {
                let c = dot(v, &image);
                image.iter_mut().zip(v).for_each(|(i, v)| *i -= c * v);
            }
        }
        let length = dot(&image, &image).sqrt();
        let exhausted = length <= f64::EPSILON * diagonal[k].abs() * (xi.len() as f64).sqrt();
        if exhausted || diagonal.len().is_multiple_of(LOOK_EVERY) {
            let new = inverse_root(&diagonal, &off)?;
            let older = coefficients.iter().copied().chain(std::iter::repeat(0.0));
            let difference: f64 = new.iter().zip(older).map(|(a, b)| (a - b).powi(2)).sum();
            let size = dot(&new, &new).sqrt();
            change = difference.sqrt() / size;
            coefficients = new;
            if exhausted || change <= accuracy.tolerance {
                let mut sample = vec![0.0; xi.len()];
                for (c, v) in coefficients.iter().zip(&basis) {
                    sample.iter_mut().zip(v).for_each(|(s, v)| *s += norm * c * v);
                }
                preconditioner.solve_root_transposed(&mut sample, 1);
                return Ok(sample);
            }
        }
        off.push(length);
        basis.push(image.iter().map(|v| v / length).collect());
    }
    Err(Error::NoConvergence { method: "Lanczos", iterations: accuracy.max_iterations, residual: change })
}

/// T^{-½}e₁.
fn inverse_root(diagonal: &[f64], off: &[f64]) -> Result<Vec<f64>> {
    let k = diagonal.len();
    let entry = |i: usize, j: usize| match i.abs_diff(j) {
        0 => diagonal[i],
        1 => off[i.min(j)],
        _ => 0.0,
    };
    let t = Mat::from_fn(k, k, entry);
    let eigen = t.self_adjoint_eigen(Side::Lower).map_err(|_| Error::NoConvergence {
        method: "Lanczos",
        iterations: k,
        residual: f64::NAN,
    })?;
    let weight = |i: usize| eigen.U()[(0, i)] / eigen.S()[i].max(f64::MIN_POSITIVE).sqrt();
    Ok((0..k).map(|row| (0..k).map(|i| eigen.U()[(row, i)] * weight(i)).sum()).collect())
}
