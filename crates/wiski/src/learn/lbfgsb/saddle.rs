//! Symmetric indefinite systems of the form that limited-memory matrices lead to:
//!
//! ```text
//!     [ −P  Qᵀ ] [u₁]   [v₁]        P symmetric positive definite,
//!     [  Q  T  ] [u₂] = [v₂]        T symmetric positive semi-definite.
//! ```
//!
//! With P = FFᵀ and G = QF⁻ᵀ the lower half is (T + GGᵀ) u₂ = v₂ + G F⁻¹v₁, again positive definite, and
//! u₁ = F⁻ᵀ(Gᵀu₂ − F⁻¹v₁). Two Cholesky factorizations instead of one with pivoting: O(k³) to factor and
//! O(k²) to solve, for k×k blocks with k at most the number of stored pairs.

/// The factorized matrix. Blocks are stored by rows with stride `capacity`.
#[derive(Debug, Clone, Default)]
pub(super) struct Saddle {
    capacity: usize,
    size: usize,
    /// F, lower triangular.
    f: Vec<f64>,
    /// G.
    g: Vec<f64>,
    /// The Cholesky factor of T + GGᵀ.
    h: Vec<f64>,
}

impl Saddle {
    /// Makes room for blocks of up to `capacity` rows.
    pub(super) fn reserve(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.size = 0;
        for block in [&mut self.f, &mut self.g, &mut self.h] {
            block.clear();
            block.resize(capacity * capacity, 0.0);
        }
    }

    /// Factors the matrix whose blocks have the entries `p(i, j)`, `t(i, j)` for j ≤ i and `q(i, j)` for all
    /// i, j. False if it is not of the assumed kind to working precision; then nothing may be solved.
    pub(super) fn factor(
        &mut self,
        size: usize,
        p: impl Fn(usize, usize) -> f64,
        q: impl Fn(usize, usize) -> f64,
        t: impl Fn(usize, usize) -> f64,
    ) -> bool {
        let k = self.capacity;
        self.size = size;
        for i in 0..size {
            for j in 0..=i {
                self.f[i * k + j] = p(i, j);
            }
        }
        if !cholesky(&mut self.f, k, size) {
            return false;
        }
        for i in 0..size {
            let row = &mut self.g[i * k..i * k + size];
            for (j, v) in row.iter_mut().enumerate() {
                *v = q(i, j);
            }
            forward(&self.f, k, row);
        }
        for i in 0..size {
            for j in 0..=i {
                let (a, b) = (&self.g[i * k..i * k + size], &self.g[j * k..j * k + size]);
                self.h[i * k + j] = t(i, j) + dot(a, b);
            }
        }
        cholesky(&mut self.h, k, size)
    }

    /// Overwrites v = [v₁; v₂] with the solution.
    pub(super) fn solve(&self, v: &mut [f64]) {
        let (k, size) = (self.capacity, self.size);
        let (upper, lower) = v.split_at_mut(size);
        forward(&self.f, k, upper);
        for i in 0..size {
            lower[i] += dot(&self.g[i * k..i * k + size], upper);
        }
        forward(&self.h, k, lower);
        backward(&self.h, k, lower);
        for u in upper.iter_mut() {
            *u = -*u;
        }
        for i in 0..size {
            axpy(lower[i], &self.g[i * k..i * k + size], upper);
        }
        backward(&self.f, k, upper);
    }
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// y ← y + a x.
pub(super) fn axpy(a: f64, x: &[f64], y: &mut [f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

/// Replaces the lower triangle of `a` by its Cholesky factor; false unless every pivot is positive and finite.
fn cholesky(a: &mut [f64], stride: usize, size: usize) -> bool {
    for i in 0..size {
        let (above, rest) = a.split_at_mut(i * stride);
        let row = &mut rest[..=i];
        for j in 0..i {
            let other = &above[j * stride..=j * stride + j];
            row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
        }
        let pivot = row[i] - dot(&row[..i], &row[..i]);
        if !(pivot > 0.0 && pivot < f64::INFINITY) {
            return false;
        }
        row[i] = pivot.sqrt();
    }
    true
}

/// v ← F⁻¹v for lower triangular F.
fn forward(f: &[f64], stride: usize, v: &mut [f64]) {
    for i in 0..v.len() {
        let row = &f[i * stride..=i * stride + i];
        v[i] = (v[i] - dot(&row[..i], &v[..i])) / row[i];
    }
}

/// v ← F⁻ᵀv for lower triangular F.
fn backward(f: &[f64], stride: usize, v: &mut [f64]) {
    for i in (0..v.len()).rev() {
        let row = &f[i * stride..=i * stride + i];
        v[i] /= row[i];
        let x = v[i];
        axpy(-x, &row[..i], &mut v[..i]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A well-conditioned 3+3 system, in a buffer wider than needed and used before, solved to rounding.
    #[test]
    fn the_solution_satisfies_the_system() {
        let p = [[4.0, 1.0, 0.5], [1.0, 3.0, -0.2], [0.5, -0.2, 2.0]];
        let q = [[0.3, -1.0, 2.0], [1.5, 0.1, 0.7], [-0.4, 0.9, 0.2]];
        let t = [[1.0, 0.2, 0.0], [0.2, 2.0, 0.1], [0.0, 0.1, 0.5]];
        let mut saddle = Saddle::default();
        saddle.reserve(5);
        assert!(saddle.factor(5, |i, j| f64::from(i == j), |_, _| 7.0, |i, j| f64::from(i == j)));
        assert!(saddle.factor(3, |i, j| p[i][j], |i, j| q[i][j], |i, j| t[i][j]));
        let v = [1.0, -2.0, 0.5, 3.0, 0.25, -1.0];
        let mut u = v;
        saddle.solve(&mut u);
        for i in 0..3 {
            let upper: f64 = (0..3).map(|j| -p[i][j] * u[j] + q[j][i] * u[3 + j]).sum();
            let lower: f64 = (0..3).map(|j| q[i][j] * u[j] + t[i][j] * u[3 + j]).sum();
            assert!((upper - v[i]).abs() < 1e-14, "{upper} {}", v[i]);
            assert!((lower - v[3 + i]).abs() < 1e-14, "{lower} {}", v[3 + i]);
        }
    }

    #[test]
    fn indefinite_blocks_are_noticed() {
        let mut saddle = Saddle::default();
        saddle.reserve(2);
        assert!(!saddle.factor(2, |_, _| 1.0, |_, _| 0.0, |i, j| f64::from(i == j)));
        assert!(!saddle.factor(2, |i, j| f64::from(i == j), |_, _| 0.0, |_, _| f64::NAN));
    }
}
