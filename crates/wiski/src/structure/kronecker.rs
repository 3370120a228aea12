//! Kronecker products of symmetric operators, s·(T₁ ⊗ … ⊗ T_d): a stationary product kernel on a grid.
//!
//! A product applies one factor at a time along its axis: Σ_k (m / g_k) products of size g_k, so O(m Σ g_k)
//! with direct factors and O(m log m) with FFTs.

use super::{Symmetric, Toeplitz};

/// s·(T₁ ⊗ … ⊗ T_d); the last factor belongs to the axis that runs fastest.
#[derive(Clone)]
pub struct Kronecker {
    scale: f64,
    factors: Vec<Toeplitz>,
}

impl Kronecker {
    /// The scaled product of the factors.
    pub fn new(scale: f64, factors: Vec<Toeplitz>) -> Self {
        Self { scale, factors }
    }

    fn longest_axis(&self) -> usize {
        self.factors.iter().map(Symmetric::size).max().unwrap_or(0)
    }
}

impl Symmetric for Kronecker {
    fn size(&self) -> usize {
        self.factors.iter().map(Symmetric::size).product()
    }

    fn scratch_len(&self) -> usize {
        2 * self.longest_axis() + self.factors.iter().map(Symmetric::scratch_len).max().unwrap_or(0)
    }

    fn apply(&self, x: &[f64], y: &mut [f64], scratch: &mut [f64]) {
        let m = self.size();
        let y = &mut y[..m];
        for (out, &value) in y.iter_mut().zip(x) {
            *out = self.scale * value;
        }
        let (line, rest) = scratch.split_at_mut(self.longest_axis());
        let (product, rest) = rest.split_at_mut(self.longest_axis());
        let mut stride = m;
        for factor in &self.factors {
            let g = factor.size();
            stride /= g;
            for outer in y.chunks_exact_mut(g * stride) {
                for inner in 0..stride {
                    for (k, value) in line[..g].iter_mut().enumerate() {
                        *value = outer[inner + k * stride];
                    }
                    factor.apply(&line[..g], &mut product[..g], rest);
                    for (k, &value) in product[..g].iter().enumerate() {
                        outer[inner + k * stride] = value;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ToeplitzMethod, assert_equals_twin};
    use super::*;

    #[test]
    fn equals_the_dense_kronecker_product() {
        let columns: [&[f64]; 4] =
            [&[1.0, 0.6, 0.2, 0.05], &[1.0, -0.3, 0.1], &[1.0, 0.9], &[1.0, 0.2, 0.1, 0.4, 0.3]];
        for d in 1..=4 {
            for method in [ToeplitzMethod::Direct, ToeplitzMethod::Fft] {
                let factors = columns[..d].iter().map(|c| Toeplitz::with_method(c, method)).collect();
                let operator = Kronecker::new(1.7, factors);
                let m = operator.size();
                let entry = |mut i: usize, mut j: usize| {
                    let mut product = 1.7;
                    for c in columns[..d].iter().rev() {
                        product *= c[(i % c.len()).abs_diff(j % c.len())];
                        i /= c.len();
                        j /= c.len();
                    }
                    product
                };
                let twin: Vec<f64> = (0..m * m).map(|e| entry(e / m, e % m)).collect();
                assert_equals_twin(&operator, &twin, 32.0 * f64::EPSILON);
            }
        }
    }
}
