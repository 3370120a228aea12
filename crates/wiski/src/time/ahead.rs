//! What comes next: the joint distribution of rows ahead.
//!
//! Row k lies Δₖ after the belief (m, P). With vₖ = F(Δₖ)ᵀhₖ its mean is vₖᵀm, and two rows s ≤ t have the covariance
//! vₛᵀP vₜ + hₛᵀQ(Δₛ)F(Δₜ − Δₛ)ᵀhₜ, with σ² more on the diagonal: O(p²) a row for variances alone, whatever the gap.
//!
//! With lags a row's observation holds earlier rows ahead. Their means are put in one after the other, and the covariance
//! C of what comes new in each row spreads as y = g + B y, Cov y = (I − B)⁻¹C(I − B)⁻ᵀ, where B holds the mean weights of
//! the lags. The weights' own uncertainty enters at the mean path, to first order (the delta method); products of
//! two deviations are left out.

use super::component::Component;
use super::filter::Belief;
use super::likelihood::Share;
use super::system::{Inputs, System, Transition};
use crate::simd::{self, padded};

/// Rows ahead, in the order of time.
#[derive(Debug, Clone, Default)]
pub(super) struct Future {
    pub(super) times: Vec<f64>,
    pub(super) inputs: Vec<f64>,
    pub(super) width: usize,
    /// For systems with lags: the newest values of the series, the last one a step before the first row. Then the rows
    /// are one step apart.
    pub(super) past: Vec<f64>,
}

/// The joint distribution of rows ahead.
#[derive(Debug, Clone, Default)]
pub(super) struct Joint {
    pub(super) mean: Vec<f64>,
    /// The variance of each row, noise included.
    pub(super) variance: Vec<f64>,
    /// The covariance, row by row; empty if it was not needed.
    pub(super) covariance: Vec<f64>,
    /// The observations hₖ, each padded.
    observations: Vec<f64>,
}

/// Mean and variances of rows ahead, with their covariance if it is `wanted` or there are lags.
pub(super) fn joint(system: &System, belief: &Belief, future: &Future, wanted: bool) -> Joint {
    let mut out = means(system, belief, future);
    let (p, stride, n) = (system.dim(), padded(system.dim()), future.times.len());
    let lags = system.lags();
    let mut transition = Transition::default();
    // vₖ and P vₖ.
    let (mut turned, mut images) = (vec![0.0; n * stride], vec![0.0; n * stride]);
    for k in 0..n {
        let gap = future.times[k] - belief.time();
        system.transition(gap, &mut transition);
        let h = &out.observations[k * stride..(k + 1) * stride];
        let v = &mut turned[k * stride..(k + 1) * stride];
        back(&transition, h, v);
        simd::dot_rows(&belief.covariance, stride, v, &mut images[k * stride..k * stride + p]);
        let own = quadratic(&transition, h) + simd::dot(v, &images[k * stride..(k + 1) * stride]);
        out.variance.push(own.max(0.0) + system.noise());
    }
    if !wanted && lags.is_empty() {
        return out;
    }
    let innovations = Innovations::new(system, belief.time(), future, &out.observations);
    out.covariance = vec![0.0; n * n];
    for t in 0..n {
        for s in 0..t {
            let known =
                simd::dot(&turned[t * stride..(t + 1) * stride], &images[s * stride..(s + 1) * stride]);
            let c = known + innovations.covariance(s, t);
            out.covariance[t * n + s] = c;
            out.covariance[s * n + t] = c;
        }
        out.covariance[t * n + t] = out.variance[t];
    }
    if let Some((at, lags)) = placed_lags(system) {
        spread(&mut out.covariance, n, lags, &belief.mean[at..at + lags.len()]);
        for k in 0..n {
            out.variance[k] = out.covariance[k * n + k];
        }
    }
    out
}

/// The means of rows ahead alone: O(p) a row.
pub(super) fn means(system: &System, belief: &Belief, future: &Future) -> Joint {
    let (p, stride, n) = (system.dim(), padded(system.dim()), future.times.len());
    let mut out = Joint { observations: vec![0.0; n * stride], ..Joint::default() };
    let mut transition = Transition::default();
    let mut ahead = belief.mean.clone();
    let mut values = future.past.clone();
    let mut lagged = vec![0.0; system.lags().len()];
    let (mut last_gap, mut at) = (f64::NAN, belief.time());
    for k in 0..n {
        // Means go on from row to row, so that equal gaps share one transition.
        let gap = future.times[k] - at;
        if gap > 0.0 {
            if gap != last_gap {
                system.transition(gap, &mut transition);
                last_gap = gap;
            }
            forward(&transition, &mut ahead);
            at = future.times[k];
        }
        for (value, lag) in lagged.iter_mut().zip(system.lags()) {
            *value = values.len().checked_sub(*lag).map_or(0.0, |i| values[i]);
        }
        let x = &future.inputs[k * future.width..(k + 1) * future.width];
        let row = Inputs { time: future.times[k], x, lagged: &lagged };
        let h = &mut out.observations[k * stride..(k + 1) * stride];
        system.observation(&row, h);
        let mean = simd::dot(&h[..p], &ahead);
        out.mean.push(mean);
        values.push(mean);
    }
    out
}

/// The share of each component in each row ahead, with its own variance: one list a component.
pub(super) fn shares(system: &System, belief: &Belief, future: &Future, joint: &Joint) -> Vec<Vec<Share>> {
    let stride = padded(system.dim());
    let mut transition = Transition::default();
    let (mut part, mut turned) = (vec![0.0; stride], vec![0.0; stride]);
    let mut image = vec![0.0; stride];
    let mut out = vec![Vec::with_capacity(future.times.len()); system.components().len()];
    for (k, time) in future.times.iter().enumerate() {
        system.transition(time - belief.time(), &mut transition);
        let h = &joint.observations[k * stride..(k + 1) * stride];
        for (list, (at, component)) in out.iter_mut().zip(system.placed()) {
            part.fill(0.0);
            part[at..at + component.dim()].copy_from_slice(&h[at..at + component.dim()]);
            back(&transition, &part, &mut turned);
            let own = belief.expect(0.0, &turned, &mut image);
            list.push(Share { mean: own.mean, variance: own.variance + quadratic(&transition, &part) });
        }
    }
    out
}

fn placed_lags(system: &System) -> Option<(usize, &[usize])> {
    system.placed().find_map(|(at, c)| match c {
        Component::Lags { lags, .. } => Some((at, lags.as_slice())),
        _ => None,
    })
}

/// m ← F m.
fn forward(transition: &Transition, m: &mut [f64]) {
    m.iter_mut().zip(&transition.decay).for_each(|(m, a)| *m *= a);
    for block in &transition.blocks {
        let mut old = [0.0; 3];
        old[..block.size].copy_from_slice(&m[block.at..block.at + block.size]);
        for i in 0..block.size {
            m[block.at + i] = (0..block.size).map(|k| block.f[3 * i + k] * old[k]).sum();
        }
    }
}

/// v = Fᵀh.
fn back(transition: &Transition, h: &[f64], v: &mut [f64]) {
    v.copy_from_slice(h);
    v.iter_mut().zip(&transition.decay).for_each(|(v, a)| *v *= a);
    for block in &transition.blocks {
        for i in 0..block.size {
            v[block.at + i] = (0..block.size).map(|k| block.f[3 * k + i] * h[block.at + k]).sum();
        }
    }
}

/// hᵀQ h.
fn quadratic(transition: &Transition, h: &[f64]) -> f64 {
    let diagonal: f64 = h.iter().zip(&transition.noise).map(|(h, q)| h * h * q).sum();
    let blocks = transition.blocks.iter().map(|block| {
        let entry = |i: usize, j: usize| h[block.at + i] * block.q[3 * i + j] * h[block.at + j];
        (0..block.size).map(|i| (0..block.size).map(|j| entry(i, j)).sum::<f64>()).sum::<f64>()
    });
    diagonal + blocks.sum::<f64>()
}

/// What happens after the belief, in pairs of rows: hₛᵀQ(Δₛ)F(Δₜ − Δₛ)ᵀhₜ.
struct Innovations<'a> {
    system: &'a System,
    gaps: Vec<f64>,
    observations: &'a [f64],
    stride: usize,
    /// Prior variances of the coordinates that do not mix.
    variances: Vec<Vec<f64>>,
    /// Q of every mixing component at every row: its first column.
    blocks: Vec<Vec<[f64; 3]>>,
}

impl<'a> Innovations<'a> {
    fn new(system: &'a System, now: f64, future: &Future, observations: &'a [f64]) -> Self {
        let gaps: Vec<f64> = future.times.iter().map(|t| t - now).collect();
        let (mut variances, mut blocks) = (Vec::new(), Vec::new());
        for (_, component) in system.placed() {
            let mixes = component.is_block();
            variances.push(if mixes { Vec::new() } else { component.variances().0 });
            let column = |gap: &f64| {
                let q = component.block(*gap).1;
                [q[0], q[3], q[6]]
            };
            blocks.push(if mixes { gaps.iter().map(column).collect() } else { Vec::new() });
        }
        Self { system, gaps, observations, stride: padded(system.dim()), variances, blocks }
    }

    fn covariance(&self, s: usize, t: usize) -> f64 {
        let between = self.gaps[t] - self.gaps[s];
        let row = |k: usize| &self.observations[k * self.stride..(k + 1) * self.stride];
        let (hs, ht) = (row(s), row(t));
        let mut sum = 0.0;
        for (c, (at, component)) in self.system.placed().enumerate() {
            let n = component.dim();
            if component.is_block() {
                // Blocks are observed by their first coordinate.
                let (f, q) = (component.block(between).0, self.blocks[c][s]);
                sum += (0..n).map(|k| f[k] * q[k]).sum::<f64>();
                continue;
            }
            let (first, gained) = component.decay(self.gaps[s]);
            if first < 1.0 {
                let share = component.decay(between).0 * (1.0 - first * first);
                if share > 1e-12 {
                    sum += share * simd::dot_three(&hs[at..at + n], &self.variances[c], &ht[at..at + n]);
                }
            } else if gained > 0.0 {
                sum += gained;
            }
        }
        sum
    }
}

/// C ← (I − B)⁻¹C(I − B)⁻ᵀ for B with the weights of the lags.
fn spread(c: &mut [f64], n: usize, lags: &[usize], weights: &[f64]) {
    for t in 1..n {
        let (before, from) = c.split_at_mut(t * n);
        for (&lag, &weight) in lags.iter().zip(weights).filter(|(lag, _)| **lag <= t) {
            simd::add_scaled(&mut from[..n], weight, &before[(t - lag) * n..(t - lag + 1) * n]);
        }
    }
    for row in c.chunks_exact_mut(n.max(1)) {
        for t in 1..n {
            let earlier = lags.iter().zip(weights).filter(|(lag, _)| **lag <= t);
            row[t] += earlier.map(|(lag, weight)| weight * row[t - lag]).sum::<f64>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense;
    use crate::time::component::Smoothness;
    use crate::time::filter::Scratch;
    use faer::Mat;

    fn filtered() -> (System, Belief) {
        let components = vec![
            Component::Level { rate: 0.01, start: 1.0 },
            Component::Trend { level_rate: 0.02, slope_rate: 1e-3, start: [1.0, 0.1] },
            Component::DampedTrend { variance: 0.02, lifetime: 5.0, start: 0.3 },
            Component::Matern { smoothness: Smoothness::Half, variance: 0.4, lengthscale: 3.0 },
            Component::Matern { smoothness: Smoothness::FiveHalves, variance: 0.4, lengthscale: 6.0 },
            Component::Season {
                period: 7.0,
                harmonics: vec![1, 2],
                variance: 0.5,
                lifetime: 30.0,
                lengthscale: 1.0,
            },
        ];
        let system = System::new(components, 0.1).unwrap();
        let mut belief = Belief::prior(&system, 0.0);
        let mut scratch = Scratch::new(&system);
        for i in 0..50 {
            let time = 0.7 * f64::from(i);
            let row = Inputs { time, x: &[], lagged: &[] };
            belief.step(&system, &row, Some(time.sin()), &mut scratch);
        }
        (system, belief)
    }

    /// Row after row, the filter is told the mean of each: its variances are then those of the joint distribution given
    /// the rows before, the squares on the diagonal of the Cholesky factor.
    #[test]
    fn the_joint_distribution_is_the_filter_s() {
        let (system, mut belief) = filtered();
        let times: Vec<f64> = [0.4, 1.0, 2.5, 2.6, 7.0, 20.0].iter().map(|d| belief.time() + d).collect();
        let n = times.len();
        let future = Future { times: times.clone(), ..Future::default() };
        let joint = joint(&system, &belief, &future, true);
        let root = dense::cholesky(Mat::from_fn(n, n, |i, j| joint.covariance[i * n + j])).unwrap();
        let mut scratch = Scratch::new(&system);
        for (k, time) in times.into_iter().enumerate() {
            let row = Inputs { time, x: &[], lagged: &[] };
            let expected = belief.step(&system, &row, Some(joint.mean[k]), &mut scratch);
            assert!((expected.mean - joint.mean[k]).abs() < 1e-10);
            assert!((expected.variance - root[(k, k)].powi(2)).abs() < 1e-10, "{k}");
        }
    }

    #[test]
    fn lags_spread_covariances() {
        let n = 9;
        let (lags, weights) = ([1, 3], [0.6, -0.3]);
        let start = Mat::from_fn(n, n, |i, j| {
            (-0.4 * (i as f64 - j as f64).abs()).exp() + if i == j { 0.2 } else { 0.0 }
        });
        let mut c: Vec<f64> = (0..n * n).map(|k| start[(k / n, k % n)]).collect();
        spread(&mut c, n, &lags, &weights);
        // (I − B) C (I − B)ᵀ is what it started from.
        let left = Mat::from_fn(n, n, |i, j| {
            let weight = |lag: usize, w: f64| if i >= lag && i - lag == j { w } else { 0.0 };
            f64::from(u8::from(i == j)) - weight(1, 0.6) - weight(3, -0.3)
        });
        let back = &left * Mat::from_fn(n, n, |i, j| c[i * n + j]) * left.transpose();
        for i in 0..n {
            for j in 0..n {
                assert!((back[(i, j)] - start[(i, j)]).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn no_rows_ahead_are_forecast_with_lags_too() {
        let lags = Component::Lags { lags: vec![1, 3], variance: 0.1 };
        let system = System::new(vec![Component::Level { rate: 0.01, start: 1.0 }, lags], 0.1).unwrap();
        let none = joint(&system, &Belief::prior(&system, 0.0), &Future::default(), true);
        assert!(none.mean.is_empty() && none.variance.is_empty() && none.covariance.is_empty());
    }
}
