//! The limited-memory BFGS matrix in compact form,
//!
//! ```text
//!     B = θI − W M Wᵀ,   W = [Y  θS] (n×2k),   M⁻¹ = [ −D   Lᵀ  ]
//!                                                    [  L  θSᵀS ]
//! ```
//!
//! where the columns of S and Y are the last k steps and gradient changes, D and L the diagonal and the strictly
//! lower triangle of SᵀY, and θ = yᵀy/sᵀy of the newest pair (Byrd, Nocedal and Schnabel 1994).
//!
//! Multiplying s and y of one pair by a common number leaves B unchanged, so each pair is stored divided by
//! √(sᵀy). Then D = I, and steps of length 1 and of length 10⁻⁸ stand side by side in well-scaled matrices.
//!
//! Cost of a new pair: O(kn + k³).

use super::saddle::{Saddle, dot};

/// The stored pairs, their inner products and the factorized M⁻¹.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    capacity: usize,
    dim: usize,
    len: usize,
    theta: f64,
    /// `s[i·capacity + a]` is coordinate i of step a, oldest first; `y` likewise.
    s: Vec<f64>,
    y: Vec<f64>,
    /// `ss[a·capacity + b] = s_a·s_b`, `sy = s_a·y_b`, `yy = y_a·y_b`.
    ss: Vec<f64>,
    sy: Vec<f64>,
    yy: Vec<f64>,
    middle: Saddle,
}

impl Memory {
    /// Empties the memory and makes room for `capacity` pairs of length `dim`.
    pub(super) fn reserve(&mut self, dim: usize, capacity: usize) {
        self.clear();
        if self.dim == dim && self.capacity == capacity {
            return;
        }
        self.dim = dim;
        self.capacity = capacity;
        for rows in [&mut self.s, &mut self.y] {
            rows.clear();
            rows.resize(dim * capacity, 0.0);
        }
        for gram in [&mut self.ss, &mut self.sy, &mut self.yy] {
            gram.clear();
            gram.resize(capacity * capacity, 0.0);
        }
        self.middle.reserve(capacity);
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.theta = 1.0;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn theta(&self) -> f64 {
        self.theta
    }

    /// Sets the multiple of the identity that stands for B while there are no pairs.
    pub(super) fn set_theta(&mut self, theta: f64) {
        self.theta = theta;
    }

    /// Adds a pair, dropping the oldest if there is no room.
    ///
    /// A pair without positive curvature (sᵀy > ε yᵀy) would make B indefinite and is left out. Should the new
    /// matrix be singular to working precision, everything is forgotten.
    pub(super) fn push(&mut self, step: &[f64], change: &[f64]) {
        let curvature = dot(step, change);
        let square = dot(change, change);
        if !(curvature > f64::EPSILON * square && curvature > f64::MIN_POSITIVE && square < f64::INFINITY) {
            return;
        }
        if self.len == self.capacity {
            self.drop_oldest();
        }
        let (k, a) = (self.capacity, self.len);
        let scale = curvature.sqrt().recip();
        for i in 0..self.dim {
            self.s[i * k + a] = scale * step[i];
            self.y[i * k + a] = scale * change[i];
        }
        self.len += 1;
        self.theta = square / curvature;
        self.update_products();
        let (sy, ss, theta) = (&self.sy, &self.ss, self.theta);
        let sound = self.middle.factor(
            self.len,
            |i, j| f64::from(i == j),
            |i, j| if j < i { sy[i * k + j] } else { 0.0 },
            |i, j| theta * ss[i * k + j],
        );
        if !sound {
            self.clear();
        }
    }

    fn drop_oldest(&mut self) {
        let k = self.capacity;
        for rows in [&mut self.s, &mut self.y] {
            for row in rows.chunks_exact_mut(k) {
                row.copy_within(1.., 0);
            }
        }
        for gram in [&mut self.ss, &mut self.sy, &mut self.yy] {
            gram.copy_within(k.., 0);
            for row in gram.chunks_exact_mut(k) {
                row.copy_within(1.., 0);
            }
        }
        self.len -= 1;
    }

    /// Computes the inner products of the newest pair with all others.
    fn update_products(&mut self) {
        let (k, n) = (self.capacity, self.len);
        let new = n - 1;
        for a in 0..n {
            for gram in [&mut self.ss, &mut self.sy, &mut self.yy] {
                gram[a * k + new] = 0.0;
                gram[new * k + a] = 0.0;
            }
        }
        for (s, y) in self.s.chunks_exact(k).zip(self.y.chunks_exact(k)) {
            let (s_new, y_new) = (s[new], y[new]);
            for a in 0..n {
                self.ss[new * k + a] += s_new * s[a];
                self.yy[new * k + a] += y_new * y[a];
                self.sy[new * k + a] += s_new * y[a];
            }
            for a in 0..new {
                self.sy[a * k + new] += s[a] * y_new;
            }
        }
        for a in 0..new {
            self.ss[a * k + new] = self.ss[new * k + a];
            self.yy[a * k + new] = self.yy[new * k + a];
        }
    }

    /// v ← M v for v of length 2k.
    pub(super) fn apply_middle(&self, v: &mut [f64]) {
        // An empty memory has no M; what was factored last belongs to pairs since forgotten.
        if self.len > 0 {
            self.middle.solve(v);
        }
    }

    /// out ← out + a w with w row i of W.
    pub(super) fn add_row(&self, i: usize, a: f64, out: &mut [f64]) {
        let (upper, lower) = out.split_at_mut(self.len);
        let scaled = a * self.theta;
        for ((u, l), (s, y)) in upper.iter_mut().zip(lower).zip(self.rows(i)) {
            *u += a * y;
            *l += scaled * s;
        }
    }

    /// w·v with w row i of W.
    pub(super) fn dot_row(&self, i: usize, v: &[f64]) -> f64 {
        let (upper, lower) = v.split_at(self.len);
        let (mut a, mut b) = (0.0, 0.0);
        for ((u, l), (s, y)) in upper.iter().zip(lower).zip(self.rows(i)) {
            a += u * y;
            b += l * s;
        }
        a + self.theta * b
    }

    /// Coordinate i of every step and every gradient change.
    pub(super) fn coordinate(&self, i: usize) -> (&[f64], &[f64]) {
        let start = i * self.capacity;
        (&self.s[start..start + self.len], &self.y[start..start + self.len])
    }

    /// `(s_a·s_b, s_a·y_b, y_a·y_b)`.
    pub(super) fn products(&self, a: usize, b: usize) -> (f64, f64, f64) {
        let at = a * self.capacity + b;
        (self.ss[at], self.sy[at], self.yy[at])
    }

    /// B v.
    #[cfg(test)]
    pub(super) fn multiply(&self, v: &[f64]) -> Vec<f64> {
        let mut inner = vec![0.0; 2 * self.len];
        for (i, &a) in v.iter().enumerate() {
            self.add_row(i, a, &mut inner);
        }
        self.apply_middle(&mut inner);
        (0..v.len()).map(|i| self.theta * v[i] - self.dot_row(i, &inner)).collect()
    }

    fn rows(&self, i: usize) -> impl Iterator<Item = (&f64, &f64)> {
        let (s, y) = self.coordinate(i);
        s.iter().zip(y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The BFGS recursion on a dense matrix from θI, over the pairs that the memory should still hold.
    fn dense(theta: f64, pairs: &[(Vec<f64>, Vec<f64>)], n: usize) -> Vec<Vec<f64>> {
        let mut b: Vec<Vec<f64>> =
            (0..n).map(|i| (0..n).map(|j| theta * f64::from(i == j)).collect()).collect();
        for (s, y) in pairs {
            let bs: Vec<f64> = b.iter().map(|row| dot(row, s)).collect();
            let (sbs, sy) = (dot(s, &bs), dot(s, y));
            for i in 0..n {
                for j in 0..n {
                    b[i][j] += y[i] * y[j] / sy - bs[i] * bs[j] / sbs;
                }
            }
        }
        b
    }

    /// The compact form equals the recursion, before and after old pairs are dropped, and with steps whose
    /// lengths differ by 10⁶. The entries are of order 1 to 10 and the condition numbers small, so 10⁻¹² is a
    /// few thousand roundings.
    #[test]
    fn the_compact_form_is_the_bfgs_recursion() {
        let n = 6;
        let mut memory = Memory::default();
        memory.reserve(n, 3);
        let mut pairs = Vec::new();
        for a in 0..5_u32 {
            let size = 10_f64.powi(-3 * (a % 3).cast_signed());
            let s: Vec<f64> = (0..n).map(|i| size * (f64::from(a) + 1.7 * i as f64).sin()).collect();
            // y = H s for a fixed diagonal-dominant H.
            let sum: f64 = s.iter().sum();
            let y: Vec<f64> = (0..n).map(|i| (1.0 + i as f64) * s[i] + 0.3 * sum).collect();
            memory.push(&s, &y);
            pairs.push((s, y));
            let kept = &pairs[pairs.len().saturating_sub(3)..];
            assert_eq!(memory.len(), kept.len());
            let b = dense(memory.theta(), kept, n);
            for i in 0..n {
                let unit: Vec<f64> = (0..n).map(|j| f64::from(i == j)).collect();
                for (found, row) in memory.multiply(&unit).iter().zip(&b) {
                    assert!((found - row[i]).abs() < 1e-12, "{found} {}", row[i]);
                }
            }
        }
    }

    #[test]
    fn pairs_without_positive_curvature_are_left_out() {
        let mut memory = Memory::default();
        memory.reserve(2, 3);
        memory.push(&[1.0, 0.0], &[-1.0, 0.0]);
        memory.push(&[1.0, 0.0], &[0.0, 1.0]);
        memory.push(&[0.0, 0.0], &[0.0, 0.0]);
        memory.push(&[1e-17, 0.0], &[1.0, 0.0]);
        memory.push(&[1.0, 0.0], &[f64::NAN, 1.0]);
        assert_eq!(memory.len(), 0);
        memory.push(&[1.0, 0.0], &[2.0, 0.0]);
        assert_eq!((memory.len(), memory.theta()), (1, 2.0));
    }
}
