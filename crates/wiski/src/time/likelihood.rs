//! The likelihood of rows under a system with its exact gradient, and what all rows say about each of them.
//!
//! The filter gives log p(y) = Σ log N(eₖ; 0, Sₖ). Backward, with the gain k = P h/S of each row (de Jong 1989; Koopman
//! and Shephard 1992, "Exact score for time series models in state space form"):
//!
//! | | |
//! | --- | --- |
//! | over a row | r ← r + h(e/S − kᵀr), N ← (I − k hᵀ)ᵀN(I − k hᵀ) + h hᵀ/S |
//! | over a gap | r ← Fᵀr, N ← FᵀN F |
//! | score | ∂/∂Q = ½(r rᵀ − N), ∂/∂F = (r rᵀ − N)F P + r mᵀ, ∂/∂σ² = ½((e/S − kᵀr)² − 1/S − kᵀN k) |
//! | smoother | E z = m + P r, Cov z = P − P N P |
//!
//! Here m and P are those of the filter before the gap (the score) or after the row (the smoother). They are kept at every
//! √n-th row and computed once more in between, so a gradient in any number of hyperparameters costs about four times
//! as much as the filter, and n p² numbers are never in memory.

use super::filter::{Belief, Expected, Scratch};
use super::system::{Inputs, Slopes, System, Transition};
use crate::simd::{self, padded};

/// Rows in the order of time, in standardized units.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Times in steps from the start.
    pub times: Vec<f64>,
    /// Targets; NaN where there is none.
    pub targets: Vec<f64>,
    /// So many inputs a row.
    pub width: usize,
    /// The inputs, row by row.
    pub inputs: Vec<f64>,
    /// So many lags a row.
    pub lags: usize,
    /// The lagged values, row by row.
    pub lagged: Vec<f64>,
}

impl Series {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// What a row says beside its target.
    pub fn row(&self, i: usize) -> Inputs<'_> {
        Inputs {
            time: self.times[i],
            x: &self.inputs[i * self.width..(i + 1) * self.width],
            lagged: &self.lagged[i * self.lags..(i + 1) * self.lags],
        }
    }

    /// The target of a row, if it has one.
    pub fn target(&self, i: usize) -> Option<f64> {
        Some(self.targets[i]).filter(|y| !y.is_nan())
    }
}

/// The log likelihood of the rows, from a belief before the first of them.
pub fn log_likelihood(system: &System, series: &Series, start: &Belief) -> f64 {
    let mut belief = start.clone();
    let mut scratch = Scratch::new(system);
    let each = |i| {
        let y = series.target(i);
        let expected = belief.step(system, &series.row(i), y, &mut scratch);
        y.map_or(0.0, |y| expected.log_density(y))
    };
    (0..series.len()).map(each).sum()
}

/// The log likelihood with its gradient in [`System::parameters`]. `start` is the belief before the first row; without
/// one it is the prior at the time of that row, of which the hyperparameters are learned, too.
pub fn gradient(system: &System, series: &Series, start: Option<&Belief>, gradient: &mut [f64]) -> f64 {
    gradient.fill(0.0);
    let prior = start.is_none().then(|| Belief::prior(system, series.times[0]));
    let Some(first) = start.or(prior.as_ref()) else { return 0.0 };
    let mut sweep = Sweep::new(system, series, first);
    sweep.run(Some(gradient), &mut |_, _, _, _| {});
    if prior.is_some() {
        let (r, n, stride) = (&sweep.r, &sweep.n, padded(system.dim()));
        system.pull_prior(|i, j| 0.5 * (r[i] * r[j] - n[i * stride + j]), gradient);
    }
    sweep.value
}

/// What all rows say about a component at one of them: the mean and variance of its share of the series.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Share {
    /// The mean.
    pub mean: f64,
    /// The variance.
    pub variance: f64,
}

/// The shares of all components at every row, given all rows (the Rauch-Tung-Striebel smoother): one list a component,
/// and at the end one for their sum.
pub fn smooth(system: &System, series: &Series, start: &Belief) -> Vec<Vec<Share>> {
    let (p, stride) = (system.dim(), padded(system.dim()));
    let places: Vec<(usize, usize)> = system.placed().map(|(at, c)| (at, c.dim())).chain([(0, p)]).collect();
    let mut shares = vec![vec![Share::default(); series.len()]; places.len()];
    let (mut h, mut part) = (vec![0.0; stride], vec![0.0; stride]);
    let (mut image, mut back) = (vec![0.0; stride], vec![0.0; stride]);
    Sweep::new(system, series, start).run(None, &mut |i, belief, r, n| {
        system.observation(&series.row(i), &mut h);
        for (share, &(at, size)) in shares.iter_mut().zip(&places) {
            part.fill(0.0);
            part[at..at + size].copy_from_slice(&h[at..at + size]);
            let own = belief.expect(0.0, &part, &mut image);
            simd::dot_rows(n, stride, &image, &mut back[..p]);
            share[i] = Share {
                mean: own.mean + simd::dot(&image, r),
                variance: (own.variance - simd::dot(&image, &back)).max(0.0),
            };
        }
    });
    shares
}

/// The filter forward and the adjoint backward.
struct Sweep<'a> {
    system: &'a System,
    series: &'a Series,
    scratch: Scratch,
    /// Beliefs before every `every`-th row.
    kept: Vec<Belief>,
    every: usize,
    value: f64,
    r: Vec<f64>,
    n: Vec<f64>,
}

/// Sees a row: its number, the filter's belief after it, and r and N there.
type Visit<'a> = dyn FnMut(usize, &Belief, &[f64], &[f64]) + 'a;

/// What the filter did with one row.
struct Step {
    /// The belief after the row; that before the gap in front of it is the one before.
    after: Belief,
    expected: Expected,
    h: Vec<f64>,
    /// k = P h/S.
    gain: Vec<f64>,
}

impl<'a> Sweep<'a> {
    fn new(system: &'a System, series: &'a Series, start: &Belief) -> Self {
        let stride = padded(system.dim());
        let every = (series.len() as f64).sqrt().ceil().max(1.0) as usize;
        let mut scratch = Scratch::new(system);
        let (mut belief, mut kept, mut value) = (start.clone(), Vec::new(), 0.0);
        for i in 0..series.len() {
            if i % every == 0 {
                kept.push(belief.clone());
            }
            let y = series.target(i);
            let expected = belief.step(system, &series.row(i), y, &mut scratch);
            value += y.map_or(0.0, |y| expected.log_density(y));
        }
        let (r, n) = (vec![0.0; stride], vec![0.0; system.dim() * stride]);
        Self { system, series, scratch, kept, every, value, r, n }
    }

    /// Goes backward; `visit` sees each row with the filter's belief after it and r and N there.
    fn run(&mut self, mut gradient: Option<&mut [f64]>, visit: &mut Visit<'_>) {
        let mut steps: Vec<Step> = Vec::with_capacity(self.every);
        for first in (0..self.series.len()).step_by(self.every).rev() {
            self.repeat(first, &mut steps);
            let mut count = self.every.min(self.series.len() - first);
            let mut head = self.kept[first / self.every].clone();
            while count > 0 {
                count -= 1;
                let i = first + count;
                let (before, from) = steps.split_at_mut(count);
                let before = before.last_mut().map_or(&mut head, |s| &mut s.after);
                let step = &from[0];
                visit(i, &step.after, &self.r, &self.n);
                if let Some(y) = self.series.target(i) {
                    let by_noise = over_row(step, y, &mut self.r, &mut self.n, &mut self.scratch.image);
                    if let Some(gradient) = gradient.as_deref_mut()
                        && let Some(last) = gradient.last_mut()
                    {
                        *last += by_noise;
                    }
                }
                let gap = step.after.time - before.time;
                if gap <= 0.0 {
                    continue;
                }
                self.scratch.prepare(self.system, gap);
                let transition = &self.scratch.transition;
                if let Some(gradient) = gradient.as_deref_mut() {
                    score(self.system, transition, before, &self.r, &self.n, gradient);
                }
                over_gap(transition, &mut self.r, &mut self.n);
            }
        }
    }

    /// Filters the rows from `first` to the next kept belief once more, and keeps every step.
    fn repeat(&mut self, first: usize, steps: &mut Vec<Step>) {
        let mut belief = self.kept[first / self.every].clone();
        let stride = self.r.len();
        for (k, i) in (first..self.series.len().min(first + self.every)).enumerate() {
            if k == steps.len() {
                steps.push(Step {
                    after: belief.clone(),
                    expected: Expected::default(),
                    h: vec![0.0; stride],
                    gain: vec![0.0; stride],
                });
            }
            let step = &mut steps[k];
            let row = self.series.row(i);
            belief.advance(self.system, row.time, &mut self.scratch);
            self.system.observation(&row, &mut step.h);
            step.expected = belief.expect(self.system.noise(), &step.h, &mut self.scratch.image);
            if let Some(y) = self.series.target(i) {
                for (gain, image) in step.gain.iter_mut().zip(&self.scratch.image) {
                    *gain = image / step.expected.variance;
                }
                belief.condition(&step.expected, y, &mut self.scratch.image);
            }
            step.after.clone_from(&belief);
        }
    }
}

/// r and N from after a row to before it; the derivative in the noise.
fn over_row(step: &Step, y: f64, r: &mut [f64], n: &mut [f64], u: &mut [f64]) -> f64 {
    let (stride, p) = (r.len(), step.after.dim());
    let Step { expected, h, gain, .. } = step;
    let disturbance = (y - expected.mean) / expected.variance - simd::dot(gain, r);
    simd::dot_rows(n, stride, gain, &mut u[..p]);
    let precision = expected.variance.recip() + simd::dot(gain, u);
    simd::add_scaled(r, disturbance, h);
    // h uᵀ + u hᵀ − precision h hᵀ = h wᵀ + w hᵀ.
    simd::add_scaled(u, -0.5 * precision, h);
    simd::deflate_two(n, stride, h, u);
    0.5 * (disturbance * disturbance - precision)
}

/// Adds the score of F and Q. The belief before the gap is spent: blocks of its covariance become those of P Fᵀ.
fn score(
    system: &System,
    transition: &Transition,
    before: &mut Belief,
    r: &[f64],
    n: &[f64],
    gradient: &mut [f64],
) {
    let (p, stride) = (system.dim(), r.len());
    let Transition { decay, blocks, gap, .. } = transition;
    for row in before.covariance.chunks_exact_mut(stride) {
        for block in blocks {
            let mut old = [0.0; 3];
            old[..block.size].copy_from_slice(&row[block.at..block.at + block.size]);
            for i in 0..block.size {
                row[block.at + i] = (0..block.size).map(|k| block.f[3 * i + k] * old[k]).sum();
            }
        }
    }
    // (r rᵀ − N) F P + r mᵀ in its entry (i, k).
    let by_f = |i: usize, k: usize| {
        let row = &before.covariance[k * stride..(k + 1) * stride];
        r[i] * (simd::dot_three(row, decay, r) + before.mean[k])
            - simd::dot_three(row, decay, &n[i * stride..(i + 1) * stride])
    };
    let by_q = |i: usize, j: usize| 0.5 * (r[i] * r[j] - n[i * stride + j]);
    let of_decay: Vec<f64> = (0..p).map(|i| if decay[i] < 1.0 { by_f(i, i) } else { 0.0 }).collect();
    let of_noise: Vec<f64> = (0..p).map(|i| by_q(i, i)).collect();
    let of_blocks: Vec<_> = blocks
        .iter()
        .map(|block| {
            let (mut f, mut q) = ([0.0; 9], [0.0; 9]);
            for i in 0..block.size {
                for j in 0..block.size {
                    f[3 * i + j] = by_f(block.at + i, block.at + j);
                    q[3 * i + j] = by_q(block.at + i, block.at + j);
                }
            }
            (f, q)
        })
        .collect();
    let slopes = Slopes { decay: &of_decay, noise: &of_noise, blocks: &of_blocks };
    system.pull_transition(*gap, &slopes, gradient);
}

/// r ← Fᵀr, N ← FᵀN F.
fn over_gap(transition: &Transition, r: &mut [f64], n: &mut [f64]) {
    let stride = r.len();
    let Transition { decay, blocks, .. } = transition;
    simd::scale_both(n, stride, decay);
    r.iter_mut().zip(decay).for_each(|(r, a)| *r *= a);
    for block in blocks {
        let (at, size, f) = (block.at, block.size, &block.f);
        let mix = |old: &[f64; 3], i: usize| (0..size).map(|k| f[3 * k + i] * old[k]).sum::<f64>();
        let mut old = [0.0; 3];
        for j in 0..stride {
            (0..size).for_each(|k| old[k] = n[(at + k) * stride + j]);
            (0..size).for_each(|i| n[(at + i) * stride + j] = mix(&old, i));
        }
        for row in n.chunks_exact_mut(stride) {
            old[..size].copy_from_slice(&row[at..at + size]);
            (0..size).for_each(|i| row[at + i] = mix(&old, i));
        }
        old[..size].copy_from_slice(&r[at..at + size]);
        (0..size).for_each(|i| r[at + i] = mix(&old, i));
    }
}
