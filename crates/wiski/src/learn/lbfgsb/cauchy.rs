//! The generalized Cauchy point: the first local minimizer of the quadratic model
//!
//! ```text
//!     m(z) = gᵀ(z − x) + ½ (z − x)ᵀ B (z − x)
//! ```
//!
//! along the steepest-descent path bent at the box, z(t) = P(x − t g). The path is piecewise linear; from one
//! bend to the next the model is a parabola in t whose slope and curvature are carried along. It decides which
//! bounds are active. (Byrd, Lu, Nocedal and Zhu 1995, algorithm CP.)
//!
//! Cost: O(nk) to start, O(n log n) to order the bends, O(k²) for each bend passed.

use super::memory::Memory;
use super::saddle::{axpy, dot};
use crate::learn::Bounds;

/// The point, and the buffers to find it.
#[derive(Debug, Clone, Default)]
pub(super) struct Cauchy {
    /// The Cauchy point z.
    pub(super) point: Vec<f64>,
    /// c = Wᵀ(z − x).
    pub(super) c: Vec<f64>,
    /// Where each coordinate meets its bound.
    bends: Vec<f64>,
    order: Vec<usize>,
    /// The direction of the current piece of the path.
    d: Vec<f64>,
    /// p = Wᵀd.
    p: Vec<f64>,
    /// Scratch of length 2k.
    u: Vec<f64>,
    w: Vec<f64>,
}

impl Cauchy {
    pub(super) fn reserve(&mut self, dim: usize, capacity: usize) {
        for v in [&mut self.point, &mut self.bends, &mut self.d] {
            v.clear();
            v.resize(dim, 0.0);
        }
        for v in [&mut self.c, &mut self.p, &mut self.u, &mut self.w] {
            v.clear();
            v.resize(2 * capacity, 0.0);
        }
        self.order.clear();
        self.order.reserve(dim);
    }

    /// Without bounds no active set has to be found: the subspace step may as well start from x itself.
    pub(super) fn stay(&mut self, x: &[f64]) {
        self.point.copy_from_slice(x);
        self.c.fill(0.0);
    }

    /// Finds the Cauchy point from `x` with gradient `g`.
    pub(super) fn find(&mut self, x: &[f64], g: &[f64], bounds: &Bounds, memory: &Memory) {
        let theta = memory.theta();
        let size = 2 * memory.len();
        let (c, p) = (&mut self.c[..size], &mut self.p[..size]);
        let (u, w) = (&mut self.u[..size], &mut self.w[..size]);
        c.fill(0.0);
        p.fill(0.0);
        self.order.clear();
        self.point.copy_from_slice(x);
        let mut slope = 0.0;
        let mut moving = 0_usize;
        for i in 0..x.len() {
            let bend = if g[i] > 0.0 {
                (x[i] - bounds.lo()[i]) / g[i]
            } else if g[i] < 0.0 {
                (x[i] - bounds.hi()[i]) / g[i]
            } else {
                0.0
            };
            self.bends[i] = bend;
            self.d[i] = 0.0;
            if bend > 0.0 {
                self.d[i] = -g[i];
                slope -= g[i] * g[i];
                moving += 1;
                memory.add_row(i, -g[i], p);
                if bend < f64::INFINITY {
                    self.order.push(i);
                }
            }
        }
        let bends = &self.bends;
        self.order.sort_unstable_by(|&a, &b| bends[a].total_cmp(&bends[b]));

        u.copy_from_slice(p);
        memory.apply_middle(u);
        let flat = f64::EPSILON * theta * -slope;
        let mut curvature = (-theta * slope - dot(p, u)).max(flat);
        let mut t = 0.0;
        for &b in &self.order {
            let dt = bends[b] - t;
            if slope >= 0.0 || -slope < curvature * dt {
                break;
            }
            // Coordinate b stops at its bound; the others go on.
            let bound = if g[b] > 0.0 { bounds.lo()[b] } else { bounds.hi()[b] };
            self.point[b] = bound;
            self.d[b] = 0.0;
            moving -= 1;
            t = bends[b];
            axpy(dt, p, c);
            w.fill(0.0);
            memory.add_row(b, 1.0, w);
            u.copy_from_slice(w);
            memory.apply_middle(u);
            slope += dt * curvature + g[b] * (g[b] + theta * (bound - x[b]) - dot(u, c));
            curvature -= g[b] * (theta * g[b] + 2.0 * dot(u, p) + g[b] * dot(u, w));
            curvature = curvature.max(flat);
            axpy(g[b], w, p);
        }
        // What is left of the slope when nothing moves any more is rounding.
        if moving == 0 {
            return;
        }
        let dt = if slope < 0.0 { -slope / curvature } else { 0.0 };
        axpy(dt, p, c);
        for i in 0..x.len() {
            if self.d[i] != 0.0 {
                self.point[i] = bounds.clamp(i, x[i] + (t + dt) * self.d[i]);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A memory of `pairs` pairs from a fixed positive definite matrix, a point in a box with some sides open,
    /// and a gradient; all numbers follow from `seed`.
    pub(in super::super) fn setting(
        n: usize,
        pairs: usize,
        seed: u32,
    ) -> (Memory, Vec<f64>, Vec<f64>, Bounds) {
        let number = |a: usize, i: usize| (f64::from(seed) + 3.7 * a as f64 + 1.3 * (i * i) as f64).sin();
        let mut memory = Memory::default();
        memory.reserve(n, pairs.max(1));
        memory.set_theta(1.5);
        for a in 0..pairs {
            let s: Vec<f64> = (0..n).map(|i| number(a, i)).collect();
            let sum: f64 = s.iter().sum();
            let y: Vec<f64> = (0..n).map(|i| (0.5 + i as f64) * s[i] + 0.4 * sum).collect();
            memory.push(&s, &y);
        }
        assert_eq!(memory.len(), pairs);
        let x: Vec<f64> = (0..n).map(|i| 0.3 * number(20, i)).collect();
        let g = (0..n).map(|i| 3.0 * number(30, i)).collect();
        let lo =
            (0..n).map(|i| if i % 4 == 3 { f64::NEG_INFINITY } else { x[i] - 0.6 * number(40, i).abs() });
        let hi = (0..n).map(|i| if i % 5 == 4 { f64::INFINITY } else { x[i] + 0.6 * number(50, i).abs() });
        let bounds = Bounds::new(lo.collect(), hi.collect()).unwrap();
        (memory, x, g, bounds)
    }

    /// gᵀ(z − x) + ½(z − x)ᵀB(z − x).
    fn model(memory: &Memory, x: &[f64], g: &[f64], z: &[f64]) -> f64 {
        let d: Vec<f64> = z.iter().zip(x).map(|(z, x)| z - x).collect();
        dot(g, &d) + 0.5 * dot(&memory.multiply(&d), &d)
    }

    /// Walking the bent path in 20,000 small steps, the model falls until it first rises; the Cauchy point is
    /// there, to within a step of the walk, and c is what it says.
    #[test]
    fn it_is_the_first_minimizer_along_the_bent_path() {
        let mut passed = 0;
        for seed in 0..40 {
            let n = 9;
            let pairs = seed as usize % 5;
            let (memory, x, g, bounds) = setting(n, pairs, seed);
            let mut cauchy = Cauchy::default();
            cauchy.reserve(n, pairs.max(1));
            cauchy.find(&x, &g, &bounds, &memory);
            let along = |t: f64| {
                let mut z: Vec<f64> = (0..n).map(|i| x[i] - t * g[i]).collect();
                bounds.project(&mut z);
                z
            };
            let step = 1e-4;
            let (mut t, mut last) = (0.0, 0.0);
            loop {
                let value = model(&memory, &x, &g, &along(t + step));
                if value > last {
                    break;
                }
                (t, last) = (t + step, value);
                assert!(t < 2.0, "the model must turn");
            }
            let nearest = along(t);
            let reach = step * g.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
            for i in 0..n {
                assert!((cauchy.point[i] - nearest[i]).abs() <= reach, "seed {seed}, coordinate {i}");
                passed +=
                    usize::from(g[i] != 0.0 && !(bounds.lo()[i] < nearest[i] && nearest[i] < bounds.hi()[i]));
            }
            assert!(model(&memory, &x, &g, &cauchy.point) <= last + 1e-12);
            let mut c = vec![0.0; 2 * pairs];
            for i in 0..n {
                memory.add_row(i, cauchy.point[i] - x[i], &mut c);
            }
            for (found, expected) in cauchy.c.iter().zip(&c) {
                assert!((found - expected).abs() < 1e-11, "seed {seed}: {found} {expected}");
            }
        }
        assert!(passed > 80, "too few bends were passed to test anything: {passed}");
    }
}
