//! Symmetric Toeplitz matrices, T_ij = t_|i−j|: the covariance of a stationary kernel on equally spaced
//! points.
//!
//! A product costs g² multiply-adds directly, or O(g log g) through a circulant of size 2g − 1 or larger,
//! whose eigenvalues are the Fourier transform of its first column. The direct form is the faster one for
//! short axes; the constructor picks by size.

use std::sync::Arc;

use realfft::num_complex::Complex64;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use super::Symmetric;
use crate::simd::dot;

/// From this size on the FFT is the cheaper way. Measured: 0.12 against 0.15 µs at g = 24, 0.18 against 0.15 at
/// g = 32, 6.4 against 1.3 at g = 256 (`cargo bench -p wiski --bench engine` prints it).
const FFT_FROM: usize = 32;

/// How a Toeplitz product is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToeplitzMethod {
    /// g² multiply-adds.
    Direct,
    /// Two real FFTs of a circulant embedding.
    Fft,
}

/// A symmetric Toeplitz matrix given by its first column.
#[derive(Clone)]
pub struct Toeplitz {
    /// t_{g−1}, …, t_1, t_0, t_1, …, t_{g−1}: row i is the window that starts at g − 1 − i.
    mirrored: Vec<f64>,
    size: usize,
    circulant: Option<Circulant>,
}

#[derive(Clone)]
struct Circulant {
    forward: Arc<dyn RealToComplex<f64>>,
    backward: Arc<dyn ComplexToReal<f64>>,
    /// The eigenvalues (real, by symmetry), divided by the length.
    eigenvalues: Vec<f64>,
    length: usize,
}

impl Toeplitz {
    /// The matrix with this first column, multiplied in the way that is cheaper for its size.
    pub fn new(column: &[f64]) -> Self {
        let method = if column.len() < FFT_FROM { ToeplitzMethod::Direct } else { ToeplitzMethod::Fft };
        Self::with_method(column, method)
    }

    /// The matrix with this first column, multiplied in the given way.
    pub fn with_method(column: &[f64], method: ToeplitzMethod) -> Self {
        let size = column.len();
        let mirrored = column.iter().rev().chain(column.iter().skip(1)).copied().collect();
        let circulant = (method == ToeplitzMethod::Fft).then(|| Circulant::new(column));
        Self { mirrored, size, circulant }
    }

    /// The first column.
    pub fn column(&self) -> &[f64] {
        &self.mirrored[self.size - 1..]
    }
}

impl Circulant {
    fn new(column: &[f64]) -> Self {
        let g = column.len();
        let length = (2 * g).next_power_of_two();
        let mut planner = RealFftPlanner::new();
        let (forward, backward) = (planner.plan_fft_forward(length), planner.plan_fft_inverse(length));
        let mut first = vec![0.0; length];
        first[..g].copy_from_slice(column);
        for lag in 1..g {
            first[length - lag] = column[lag];
        }
        // The circulant's column is even, so its transform is real.
        let mut spectrum = forward.make_output_vec();
        let fits = forward.process(&mut first, &mut spectrum);
        debug_assert!(fits.is_ok(), "buffers were made by the planner");
        let eigenvalues = spectrum.iter().map(|c| c.re / length as f64).collect();
        Self { forward, backward, eigenvalues, length }
    }

    fn apply(&self, x: &[f64], y: &mut [f64], scratch: &mut [f64]) {
        let signal = &mut scratch[..self.length];
        signal[..x.len()].copy_from_slice(x);
        signal[x.len()..].fill(0.0);
        // The library's complex buffers are its own: one small allocation, below the cost of the transform.
        let mut spectrum = vec![Complex64::default(); self.length / 2 + 1];
        let forth = self.forward.process(signal, &mut spectrum);
        for (s, &e) in spectrum.iter_mut().zip(&self.eigenvalues) {
            *s *= e;
        }
        // Rounding may leave an imaginary part where a real signal has none.
        spectrum[0].im = 0.0;
        spectrum[self.length / 2].im = 0.0;
        let back = self.backward.process(&mut spectrum, signal);
        debug_assert!(forth.is_ok() && back.is_ok(), "buffers have the planned lengths");
        y.copy_from_slice(&signal[..y.len()]);
    }
}

impl Symmetric for Toeplitz {
    fn size(&self) -> usize {
        self.size
    }

    fn scratch_len(&self) -> usize {
        self.circulant.as_ref().map_or(0, |c| c.length)
    }

    fn apply(&self, x: &[f64], y: &mut [f64], scratch: &mut [f64]) {
        let (x, y) = (&x[..self.size], &mut y[..self.size]);
        match &self.circulant {
            Some(circulant) => circulant.apply(x, y, scratch),
            None => {
                for (i, out) in y.iter_mut().enumerate() {
                    let start = self.size - 1 - i;
                    *out = dot(&self.mirrored[start..start + self.size], x);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::assert_equals_twin;
    use super::*;

    #[test]
    fn both_methods_equal_the_dense_matrix() {
        for g in [1usize, 2, 5, 16, 33, 200] {
            let column: Vec<f64> =
                (0..g).map(|i| (-0.01 * (i * i) as f64).exp() * (0.3 * i as f64).cos()).collect();
            let twin: Vec<f64> = (0..g * g).map(|i| column[(i / g).abs_diff(i % g)]).collect();
            for method in [ToeplitzMethod::Direct, ToeplitzMethod::Fft] {
                let t = Toeplitz::with_method(&column, method);
                assert_eq!(t.column(), column);
                // Entries are exact sums of products; the FFT adds O(eps log g).
                assert_equals_twin(&t, &twin, 8.0 * f64::EPSILON);
            }
        }
    }
}
