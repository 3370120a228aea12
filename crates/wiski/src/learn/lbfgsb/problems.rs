//! Test problems with their gradients.

use crate::error::{Error, Result};
use crate::learn::{FnObjective, Objective};

/// A boxed objective, so that a table can hold different ones.
pub(super) type Problem = Box<dyn Objective>;

fn boxed(dim: usize, f: impl FnMut(&[f64], &mut [f64]) -> Result<f64> + 'static) -> Problem {
    Box::new(FnObjective::new(dim, f))
}

/// Rosenbrock's valley, Σ 100(x_{i+1} − x_i²)² + (1 − x_i)²; minimum 0 at (1, …, 1).
pub(super) fn rosenbrock(dim: usize) -> Problem {
    boxed(dim, |x, g| {
        g.fill(0.0);
        let mut f = 0.0;
        for i in 0..x.len() - 1 {
            let (a, b) = (1.0 - x[i], x[i + 1] - x[i] * x[i]);
            f += 100.0 * b * b + a * a;
            g[i] -= 400.0 * x[i] * b + 2.0 * a;
            g[i + 1] += 200.0 * b;
        }
        Ok(f)
    })
}

/// (−1.2, 1, −1.2, 1, …), the usual start for it.
pub(super) fn rosenbrock_start(dim: usize) -> Vec<f64> {
    (0..dim).map(|i| if i % 2 == 0 { -1.2 } else { 1.0 }).collect()
}

/// The example that came with the first implementation of the method: (x₁ − 1)² + 4 Σ (x_{i+1} − x_i²)².
pub(super) fn chained(dim: usize) -> Problem {
    boxed(dim, |x, g| {
        g.fill(0.0);
        g[0] = 2.0 * (x[0] - 1.0);
        let mut f = (x[0] - 1.0).powi(2);
        for i in 0..x.len() - 1 {
            let t = x[i + 1] - x[i] * x[i];
            f += 4.0 * t * t;
            g[i] -= 16.0 * x[i] * t;
            g[i + 1] += 8.0 * t;
        }
        Ok(f)
    })
}

/// Beale's function, flat far out; minimum 0 at (3, ½).
pub(super) fn beale() -> Problem {
    boxed(2, |v, g| {
        let (x, y) = (v[0], v[1]);
        let a = 1.5 - x + x * y;
        let b = 2.25 - x + x * y * y;
        let c = 2.625 - x + x * y.powi(3);
        g[0] = 2.0 * (a * (y - 1.0) + b * (y * y - 1.0) + c * (y.powi(3) - 1.0));
        g[1] = x * (2.0 * a + 4.0 * b * y + 6.0 * c * y * y);
        Ok(a * a + b * b + c * c)
    })
}

/// ½ Σ h_i (x_i − c_i)².
pub(super) fn diagonal(h: Vec<f64>, c: Vec<f64>) -> Problem {
    boxed(h.len(), move |x, g| {
        let mut f = 0.0;
        for i in 0..x.len() {
            g[i] = h[i] * (x[i] - c[i]);
            f += 0.5 * g[i] * (x[i] - c[i]);
        }
        Ok(f)
    })
}

/// n curvatures from 1 to `condition`, evenly spaced in the logarithm.
pub(super) fn spread(n: usize, condition: f64) -> Vec<f64> {
    (0..n).map(|i| condition.powf(i as f64 / (n - 1) as f64)).collect()
}

/// ½ xᵀHx − bᵀx with H symmetric, given by rows.
pub(super) fn quadratic(h: Vec<Vec<f64>>, b: Vec<f64>) -> Problem {
    boxed(b.len(), move |x, g| {
        let mut f = 0.0;
        for i in 0..x.len() {
            let hx: f64 = h[i].iter().zip(x).map(|(h, x)| h * x).sum();
            g[i] = hx - b[i];
            f += x[i] * (0.5 * hx - b[i]);
        }
        Ok(f)
    })
}

/// Minus the evidence of an exact Gaussian process (squared exponential kernel) on 40 points of a disturbed
/// sine, over the logarithms of length-scale, output scale and noise variance.
pub(super) fn gaussian_process() -> Problem {
    const N: usize = 40;
    let y: Vec<f64> = (0..N)
        .map(|i| (6.0 * i as f64 / (N - 1) as f64).sin() + 0.2 * (2.4 * (i * i) as f64).cos())
        .collect();
    boxed(3, move |t, g| {
        let (l, s, noise) = (t[0].exp(), t[1].exp(), t[2].exp());
        let square = |i: usize, j: usize| ((i as f64 - j as f64) / (N - 1) as f64 / l).powi(2);
        let mut k = vec![vec![0.0; N]; N];
        for i in 0..N {
            for j in 0..N {
                k[i][j] = s * (-0.5 * square(i, j)).exp() + if i == j { noise } else { 0.0 };
            }
        }
        let (inverse, log_det) = invert(&mut k)
            .ok_or(Error::Unsupported { operation: "evidence", reason: "the covariance is singular" })?;
        let a: Vec<f64> = inverse.iter().map(|row| row.iter().zip(&y).map(|(k, y)| k * y).sum()).collect();
        g.fill(0.0);
        for i in 0..N {
            for j in 0..N {
                let weight = 0.5 * (inverse[i][j] - a[i] * a[j]);
                let kernel = s * (-0.5 * square(i, j)).exp();
                g[0] += weight * kernel * square(i, j);
                g[1] += weight * kernel;
            }
            g[2] += 0.5 * noise * (inverse[i][i] - a[i] * a[i]);
        }
        let fit: f64 = a.iter().zip(&y).map(|(a, y)| a * y).sum();
        Ok(0.5 * (fit + log_det + N as f64 * (2.0 * std::f64::consts::PI).ln()))
    })
}

/// The inverse and log determinant of a positive definite matrix by elimination without pivoting.
fn invert(k: &mut [Vec<f64>]) -> Option<(Vec<Vec<f64>>, f64)> {
    let n = k.len();
    let mut inverse: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| f64::from(i == j)).collect()).collect();
    let mut log_det = 0.0;
    for p in 0..n {
        let pivot = k[p][p];
        if pivot <= 0.0 || !pivot.is_finite() {
            return None;
        }
        log_det += pivot.ln();
        for j in 0..n {
            k[p][j] /= pivot;
            inverse[p][j] /= pivot;
        }
        for i in (0..n).filter(|&i| i != p) {
            let factor = k[i][p];
            for j in 0..n {
                k[i][j] -= factor * k[p][j];
                inverse[i][j] -= factor * inverse[p][j];
            }
        }
    }
    Some((inverse, log_det))
}

/// Counts evaluations, checks that each lies in the box, and remembers the best value.
pub(super) struct Watched<'a> {
    pub(super) inner: Problem,
    pub(super) bounds: &'a crate::learn::Bounds,
    pub(super) values: Vec<f64>,
}

impl<'a> Watched<'a> {
    pub(super) fn new(inner: Problem, bounds: &'a crate::learn::Bounds) -> Self {
        Self { inner, bounds, values: Vec::new() }
    }

    /// The lowest of the first n values.
    pub(super) fn best_of(&self, n: usize) -> f64 {
        self.values.iter().take(n).copied().fold(f64::INFINITY, f64::min)
    }
}

impl Objective for Watched<'_> {
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        assert!(self.bounds.contains(x), "{x:?} is outside");
        let value = self.inner.evaluate(x, gradient);
        self.values.push(*value.as_ref().unwrap_or(&f64::NAN));
        value
    }
}
