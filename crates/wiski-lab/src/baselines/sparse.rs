//! What the two streaming sparse methods of Bui, Nguyen and Turner (2017) share.
//!
//! The function values at m inducing points Z are b = L v with L Lᵀ = K_ZZ + εI, so that v ~ N(0, I) a priori.
//! A point x has features φ(x) = L⁻¹k_Z(x), and f(x) | v ~ N(φᵀv, k(x, x) − φᵀφ).
//!
//! **Basis** computes features of many points and takes ∂F/∂Φ back to kernel, Z and points:
//!
//! ```text
//! Φ = K_XZ L⁻ᵀ     ∂F/∂K_XZ = Φ̄ L⁻¹     ∂F/∂K_ZZ = −½ L⁻ᵀ (Π + Πᵀ) L⁻¹,   Π = lower triangle of Φ̄ᵀΦ, diagonal halved
//! ```
//!
//! **Memory** is all that is kept of earlier rows. A method ends a batch with q(v) = N(μ, C) at points a = Z under
//! hyperparameters θ. What it has learned is the ratio of posterior and prior there,
//!
//! ```text
//! log q(a)/p(a | θ) = −½ aᵀG a + gᵀa − c     G = L⁻ᵀ(C⁻¹ − I)L⁻¹     g = L⁻ᵀC⁻¹μ     c = ½ (μᵀC⁻¹μ + log det C)
//! ```
//!
//! which acts as a likelihood for the next batch, with other points and hyperparameters. In the notation of Bui et
//! al., G is D_a⁻¹ and g is S_a⁻¹m_a. They invert D_a, a difference of two inverses, which is where their method
//! needs much jitter; in this form nothing is inverted but K_ZZ.

use faer::{Mat, MatRef};
use wiski::Result;

use wiski::internals::dense::{
    cholesky, congruence, inverse_of_cholesky, solve_lower, solve_lower_transposed, solve_vector_transposed,
};
use wiski::internals::exact::{Covariance, Slots};

/// Inducing points with the factor of their covariance.
pub(super) struct Basis<'a> {
    pub(super) kernel: &'a Covariance,
    pub(super) z: &'a [f64],
    /// K_ZZ without jitter.
    pub(super) gram: Mat<f64>,
    pub(super) l: Mat<f64>,
}

/// K_ZZ and its factor, with what they were computed from: a step that comes right after the memory was made needs the
/// same ones.
#[derive(Debug, Clone)]
pub(super) struct Factored {
    z: Vec<f64>,
    parameters: Vec<f64>,
    gram: Mat<f64>,
    l: Mat<f64>,
}

/// Points, their covariances with Z and their features, one row each.
pub(super) struct Block<'a> {
    pub(super) x: &'a [f64],
    k: Mat<f64>,
    pub(super) phi: Mat<f64>,
}

/// A block on the way back: ∂F/∂Φ, and where ∂F/∂x is to be added, if wanted.
pub(super) struct Returned<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) by_phi: Mat<f64>,
    pub(super) by_x: Option<&'a mut [f64]>,
}

impl<'a> Basis<'a> {
    pub(super) fn new(kernel: &'a Covariance, z: &'a [f64], jitter: f64) -> Result<Self> {
        let gram = kernel.gram(z);
        let mut padded = gram.clone();
        (0..padded.nrows()).for_each(|i| padded[(i, i)] += jitter);
        Ok(Self { kernel, z, gram, l: cholesky(padded)? })
    }

    /// As [`Basis::new`], from what is there already if it is of the same points and kernel.
    pub(super) fn reused(
        kernel: &'a Covariance,
        z: &'a [f64],
        jitter: f64,
        there: Option<Factored>,
    ) -> Result<Self> {
        match there {
            Some(f) if f.z == z && f.parameters == kernel.parameters() => {
                Ok(Self { kernel, z, gram: f.gram, l: f.l })
            }
            _ => Self::new(kernel, z, jitter),
        }
    }

    pub(super) fn into_factored(self) -> Factored {
        let Self { kernel, z, gram, l } = self;
        Factored { z: z.to_vec(), parameters: kernel.parameters().to_vec(), gram, l }
    }

    /// k(x, x), which is K_ZZ at the inducing points themselves.
    pub(super) fn gram_of(&self, x: &[f64]) -> Mat<f64> {
        if x == self.z { self.gram.clone() } else { self.kernel.gram(x) }
    }

    pub(super) fn block<'x>(&self, x: &'x [f64]) -> Block<'x> {
        let k = if x == self.z { self.gram.clone() } else { self.kernel.matrix(x, self.z) };
        let mut transposed = k.transpose().to_owned();
        solve_lower(self.l.as_ref(), transposed.as_mut());
        Block { x, k, phi: transposed.transpose().to_owned() }
    }

    /// Adds ∂F/∂parameters, ∂F/∂Z and, for each block where wanted, ∂F/∂x, given ∂F/∂Φ of each block.
    pub(super) fn vjp(&self, blocks: &mut [Returned], by_parameters: &mut [f64], by_z: &mut [f64]) {
        let m = self.gram.nrows();
        let mut pi = Mat::<f64>::zeros(m, m);
        for Returned { block, by_phi, by_x } in blocks.iter_mut() {
            pi += by_phi.transpose() * &block.phi;
            // Φ̄ L⁻¹ = (L⁻ᵀ Φ̄ᵀ)ᵀ
            let mut by_k = by_phi.transpose().to_owned();
            solve_lower_transposed(self.l.as_ref(), by_k.as_mut());
            let mut slots = Slots { parameters: by_parameters, a: by_x.as_deref_mut(), b: Some(by_z) };
            self.kernel.vjp((block.x, self.z), block.k.as_ref(), by_k.transpose(), &mut slots);
        }
        let symmetric = Mat::from_fn(m, m, |i, j| -0.5 * if i >= j { pi[(i, j)] } else { pi[(j, i)] });
        let by_gram = congruence(self.l.as_ref(), symmetric);
        self.vjp_gram((self.z, self.gram.as_ref()), by_gram.as_ref(), by_parameters, Some(by_z));
    }

    /// From ∂F/∂K of a symmetric K = k(a, a), in which every point is a row and a column.
    pub(super) fn vjp_gram(
        &self,
        (a, gram): (&[f64], MatRef<'_, f64>),
        by_gram: MatRef<'_, f64>,
        by_parameters: &mut [f64],
        by_a: Option<&mut [f64]>,
    ) {
        let mut rows = vec![0.0; a.len()];
        let mut slots = Slots { parameters: by_parameters, a: Some(&mut rows), b: None };
        self.kernel.vjp((a, a), gram, by_gram, &mut slots);
        if let Some(by_a) = by_a {
            by_a.iter_mut().zip(&rows).for_each(|(total, row)| *total += 2.0 * row);
        }
    }
}

/// What earlier rows said about the function at the points `z`: exp(−½ aᵀG a + gᵀa − c).
#[derive(Debug, Clone)]
pub(super) struct Memory {
    pub(super) z: Vec<f64>,
    pub(super) precision: Mat<f64>,
    pub(super) linear: Vec<f64>,
    pub(super) constant: f64,
}

impl Memory {
    /// The memory of q(v) = N(μ, C), given C⁻¹ − I, C⁻¹μ and c.
    pub(super) fn new(basis: &Basis, excess: Mat<f64>, linear: &[f64], constant: f64) -> Self {
        let mut precision = congruence(basis.l.as_ref(), excess);
        let half = precision.transpose().to_owned();
        precision = Mat::from_fn(half.nrows(), half.ncols(), |i, j| 0.5 * (half[(i, j)] + precision[(i, j)]));
        Self {
            z: basis.z.to_vec(),
            precision,
            linear: solve_vector_transposed(basis.l.as_ref(), linear),
            constant,
        }
    }
}

impl Memory {
    /// The same as its authors compute it: S_a = L C Lᵀ and K_aa are inverted, their difference is D_a⁻¹, and D_a is
    /// inverted where it is used. The jitter goes to each matrix before it is inverted, as in their code. Where rows have
    /// said little, the difference is that of two nearly equal inverses, and need not be positive definite.
    pub(super) fn published(
        basis: &Basis,
        covariance: &Mat<f64>,
        linear: &[f64],
        constant: f64,
        jitter: f64,
    ) -> Result<Self> {
        let padded = |mut m: Mat<f64>| {
            (0..m.nrows()).for_each(|i| m[(i, i)] += jitter);
            m
        };
        let inverse =
            |m: Mat<f64>| -> Result<Mat<f64>> { Ok(inverse_of_cholesky(cholesky(padded(m))?.as_ref())) };
        let s = &basis.l * (covariance * basis.l.transpose());
        let difference = inverse(s)? - inverse(basis.gram.clone())?;
        let d = inverse(difference)?;
        Ok(Self {
            z: basis.z.to_vec(),
            precision: inverse(d)?,
            linear: solve_vector_transposed(basis.l.as_ref(), linear),
            constant,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::testing::{assert_gradient, hyper, rows};
    use wiski::internals::dense::inner;

    #[test]
    fn vjps_match_central_differences() {
        let kernel = hyper().kernel;
        let (z, x) = (rows(5, 2).0, rows(4, 2).0.iter().map(|v| 0.9 * v + 0.05).collect::<Vec<f64>>());
        let by_phi = Mat::from_fn(4, 5, |i, j| ((i + 3 * j) as f64).cos());
        let value = |p: &[f64]| {
            let (theta, rest) = p.split_at(3);
            let mut kernel = kernel.clone();
            kernel.set_parameters(theta).unwrap();
            let basis = Basis::new(&kernel, &rest[..10], 1e-3).unwrap();
            inner(basis.block(&rest[10..]).phi.as_ref(), by_phi.as_ref())
        };
        let at = [kernel.parameters().to_vec(), z.clone(), x.clone()].concat();
        let mut gradient = vec![0.0; at.len()];
        let (by_parameters, rest) = gradient.split_at_mut(3);
        let (by_z, by_x) = rest.split_at_mut(10);
        let basis = Basis::new(&kernel, &z, 1e-3).unwrap();
        let block = basis.block(&x);
        let returned = Returned { block: &block, by_phi: by_phi.clone(), by_x: Some(by_x) };
        basis.vjp(&mut [returned], by_parameters, by_z);
        assert_gradient(&at, &gradient, value, 1e-8);
    }
}
