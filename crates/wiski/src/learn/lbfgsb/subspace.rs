//! Minimization of the quadratic model over the coordinates that the Cauchy point left free.
//!
//! With N the rows of W that belong to free coordinates and r the model's gradient at the Cauchy point,
//!
//! ```text
//!     d = −(θI − N M Nᵀ)⁻¹ r = −r/θ − N (M⁻¹ − NᵀN/θ)⁻¹ Nᵀr / θ².
//! ```
//!
//! The inner 2k×2k matrix is again of the form that [`Saddle`] factors: P = I + YᵀZZᵀY/θ, T = θ SᵀAAᵀS and
//! Q = L − SᵀZZᵀY, with Z choosing the free and A the other coordinates. The step is then projected on the
//! box, and cut off at its first bound instead if the projection does not lead downhill (Morales and Nocedal
//! 2011).
//!
//! Cost: O(nk + k³) without active bounds, O(nk² + k³) with.

use super::cauchy::Cauchy;
use super::memory::Memory;
use super::saddle::{Saddle, axpy};
use crate::learn::Bounds;

/// The minimizer, and the buffers to find it.
#[derive(Debug, Clone, Default)]
pub(super) struct Subspace {
    /// The point to aim at.
    pub(super) target: Vec<f64>,
    free: Vec<usize>,
    /// The reduced gradient, then the step, by position in `free`.
    r: Vec<f64>,
    v: Vec<f64>,
    /// SᵀAAᵀS, SᵀZZᵀY and YᵀZZᵀY by rows with stride `capacity`.
    ss: Vec<f64>,
    sy: Vec<f64>,
    yy: Vec<f64>,
    capacity: usize,
    inner: Saddle,
}

impl Subspace {
    pub(super) fn reserve(&mut self, dim: usize, capacity: usize) {
        self.capacity = capacity;
        for v in [&mut self.target, &mut self.r] {
            v.clear();
            v.resize(dim, 0.0);
        }
        for v in [&mut self.ss, &mut self.sy, &mut self.yy] {
            v.clear();
            v.resize(capacity * capacity, 0.0);
        }
        self.v.clear();
        self.v.resize(2 * capacity, 0.0);
        self.free.clear();
        self.free.reserve(dim);
        self.inner.reserve(capacity);
    }

    /// Sets `target` to the minimizer. False if the matrix could not be factored: forget the memory then.
    pub(super) fn refine(
        &mut self,
        x: &[f64],
        g: &[f64],
        bounds: &Bounds,
        memory: &Memory,
        cauchy: &mut Cauchy,
    ) -> bool {
        let start = &cauchy.point;
        self.target.copy_from_slice(start);
        self.free.clear();
        self.free.extend((0..x.len()).filter(|&i| bounds.lo()[i] < start[i] && start[i] < bounds.hi()[i]));
        // θI is already minimized along the gradient.
        if memory.len() == 0 || self.free.is_empty() {
            return true;
        }
        if !self.factor(memory) {
            return false;
        }
        let theta = memory.theta();
        let c = &mut cauchy.c[..2 * memory.len()];
        memory.apply_middle(c);
        let v = &mut self.v[..2 * memory.len()];
        v.fill(0.0);
        for (r, &i) in self.r.iter_mut().zip(&self.free) {
            *r = g[i] + theta * (start[i] - x[i]) - memory.dot_row(i, c);
            memory.add_row(i, *r, v);
        }
        self.inner.solve(v);
        for (r, &i) in self.r.iter_mut().zip(&self.free) {
            *r = -(*r + memory.dot_row(i, v) / theta) / theta;
        }
        self.step_inside(x, g, bounds, start);
        true
    }

    /// Goes from the Cauchy point along the step without leaving the box.
    fn step_inside(&mut self, x: &[f64], g: &[f64], bounds: &Bounds, start: &[f64]) {
        let mut longest = 1.0_f64;
        for (&d, &i) in self.r.iter().zip(&self.free) {
            self.target[i] = bounds.clamp(i, start[i] + d);
            let room = if d > 0.0 { bounds.hi()[i] - start[i] } else { bounds.lo()[i] - start[i] };
            if d != 0.0 {
                longest = longest.min(room / d);
            }
        }
        if longest == 1.0 {
            return;
        }
        let descent: f64 = (0..x.len()).map(|i| g[i] * (self.target[i] - x[i])).sum();
        if descent < 0.0 {
            return;
        }
        for (&d, &i) in self.r.iter().zip(&self.free) {
            self.target[i] = bounds.clamp(i, start[i] + longest * d);
        }
    }

    fn factor(&mut self, memory: &Memory) -> bool {
        let (k, n, theta) = (self.capacity, memory.len(), memory.theta());
        if self.free.len() == self.r.len() {
            for a in 0..n {
                for b in 0..n {
                    let (_, sy, yy) = memory.products(a, b);
                    self.ss[a * k + b] = 0.0;
                    self.sy[a * k + b] = sy;
                    self.yy[a * k + b] = yy;
                }
            }
        } else {
            self.restrict(memory);
        }
        let (ss, sy, yy) = (&self.ss, &self.sy, &self.yy);
        self.inner.factor(
            n,
            |i, j| f64::from(i == j) + yy[i * k + j] / theta,
            |i, j| if j < i { memory.products(i, j).1 - sy[i * k + j] } else { -sy[i * k + j] },
            |i, j| theta * ss[i * k + j],
        )
    }

    /// Sums the inner products over the coordinates they belong to. Subtracting from the full ones would be
    /// cheaper and would lose digits just when active coordinates are the steep ones.
    fn restrict(&mut self, memory: &Memory) {
        let (k, n) = (self.capacity, memory.len());
        for gram in [&mut self.ss, &mut self.sy, &mut self.yy] {
            gram.fill(0.0);
        }
        let mut free = self.free.iter().peekable();
        for i in 0..self.r.len() {
            let (s, y) = memory.coordinate(i);
            if free.next_if(|&&f| f == i).is_some() {
                for a in 0..n {
                    axpy(s[a], y, &mut self.sy[a * k..a * k + n]);
                    axpy(y[a], &y[..=a], &mut self.yy[a * k..=a * k + a]);
                }
            } else {
                for a in 0..n {
                    axpy(s[a], &s[..=a], &mut self.ss[a * k..=a * k + a]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cauchy::tests::setting;
    use super::*;

    /// Where the step meets no further bound, the model's gradient vanishes on every free coordinate and the
    /// others have not moved; where it does, the target is in the box and downhill.
    #[test]
    fn the_model_is_minimized_over_the_free_coordinates() {
        let (mut inside, mut partly_active) = (0, 0);
        for seed in 0..300 {
            let n = 9;
            let pairs = 1 + seed as usize % 6;
            let (memory, x, g, bounds) = setting(n, pairs, seed);
            let (mut cauchy, mut subspace) = (Cauchy::default(), Subspace::default());
            cauchy.reserve(n, pairs);
            subspace.reserve(n, pairs);
            cauchy.find(&x, &g, &bounds, &memory);
            assert!(subspace.refine(&x, &g, &bounds, &memory, &mut cauchy));
            assert!(bounds.contains(&subspace.target));
            let d: Vec<f64> = subspace.target.iter().zip(&x).map(|(z, x)| z - x).collect();
            assert!(d.iter().zip(&g).map(|(d, g)| d * g).sum::<f64>() < 0.0, "seed {seed}");
            let free = |i: usize, z: &[f64]| bounds.lo()[i] < z[i] && z[i] < bounds.hi()[i];
            if !(0..n).all(|i| free(i, &cauchy.point) == free(i, &subspace.target)) {
                continue;
            }
            inside += 1;
            partly_active += usize::from(subspace.free.len() < n);
            let bd = memory.multiply(&d);
            for i in 0..n {
                if free(i, &cauchy.point) {
                    assert!((g[i] + bd[i]).abs() < 1e-11, "seed {seed}: {}", g[i] + bd[i]);
                } else {
                    assert_eq!(subspace.target[i], cauchy.point[i]);
                }
            }
        }
        assert!(inside > 50 && partly_active > 50, "{inside} {partly_active}");
    }

    /// With every coordinate free the inner products kept in the memory are used: the target is −B⁻¹g.
    #[test]
    fn without_bounds_it_is_the_newton_step_of_the_model() {
        for seed in 0..50 {
            let (memory, x, g, _) = setting(9, 5, seed);
            let (mut cauchy, mut subspace) = (Cauchy::default(), Subspace::default());
            cauchy.reserve(9, 5);
            subspace.reserve(9, 5);
            cauchy.stay(&x);
            assert!(subspace.refine(&x, &g, &Bounds::unbounded(9), &memory, &mut cauchy));
            let d: Vec<f64> = subspace.target.iter().zip(&x).map(|(z, x)| z - x).collect();
            for (b, g) in memory.multiply(&d).iter().zip(&g) {
                assert!((b + g).abs() < 1e-11, "seed {seed}: {b} {g}");
            }
        }
    }
}
