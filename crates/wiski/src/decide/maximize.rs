//! Maximization of a criterion over a box: many random starts, the best of them climbed.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::Result;
use crate::interrupt;
use crate::learn::{Bounds, LbfgsB, Objective};

/// How hard to search. The defaults are the paper's: 512 raw samples, 10 restarts, 200 iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Maximizer {
    /// Quasi-random places at which the criterion is looked at.
    pub raw_samples: usize,
    /// How many of them are climbed from.
    pub restarts: usize,
    /// The most iterations of a climb.
    pub iterations: usize,
}

impl Default for Maximizer {
    fn default() -> Self {
        Self { raw_samples: 512, restarts: 10, iterations: 200 }
    }
}

/// Where a criterion was largest.
#[derive(Debug, Clone, PartialEq)]
pub struct Maximum {
    /// The place.
    pub x: Vec<f64>,
    /// The value there.
    pub value: f64,
    /// The number of evaluations, those without a gradient included.
    pub evaluations: usize,
}

/// A criterion: the value at a place and, if asked for, its gradient.
pub(super) trait Criterion {
    fn evaluate(&mut self, x: &[f64], gradient: Option<&mut [f64]>) -> Result<f64>;
}

impl<F: FnMut(&[f64], Option<&mut [f64]>) -> Result<f64>> Criterion for F {
    fn evaluate(&mut self, x: &[f64], gradient: Option<&mut [f64]>) -> Result<f64> {
        self(x, gradient)
    }
}

/// The criterion with its sign changed, for a minimizer.
struct Negative<'a, C: ?Sized> {
    criterion: &'a mut C,
    dim: usize,
    evaluations: usize,
}

impl<C: Criterion + ?Sized> Objective for Negative<'_, C> {
    fn dim(&self) -> usize {
        self.dim
    }

    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        self.evaluations += 1;
        let value = self.criterion.evaluate(x, Some(gradient))?;
        gradient.iter_mut().for_each(|g| *g = -*g);
        Ok(-value)
    }
}

impl Maximizer {
    /// The best place found for a criterion in a box. `starts` are climbed from besides the sampled ones.
    pub(super) fn maximize(
        &self,
        criterion: &mut dyn Criterion,
        bounds: &Bounds,
        starts: &[Vec<f64>],
        seed: u64,
    ) -> Result<Maximum> {
        let dim = bounds.dim();
        let mut evaluations = 0;
        let mut raw: Vec<(f64, Vec<f64>)> = Vec::with_capacity(self.raw_samples + starts.len());
        let places = sobol(dim, self.raw_samples.max(1), seed).map(|u| {
            let place = |k: usize| bounds.lo()[k] + u[k] * (bounds.hi()[k] - bounds.lo()[k]);
            (0..dim).map(place).collect::<Vec<f64>>()
        });
        for x in places {
            interrupt::check()?;
            evaluations += 1;
            raw.push((criterion.evaluate(&x, None)?, x));
        }
        let mut climbs = pick(&raw, self.restarts.max(1), seed);
        climbs.extend(starts.iter().cloned());
        let optimizer = LbfgsB {
            max_iterations: self.iterations.max(1),
            max_evaluations: 2 * self.iterations.max(1),
            first_step: 0.1,
            relative_tolerance: 1e-8,
            ..LbfgsB::default()
        };
        let mut best: Option<Maximum> = None;
        let mut objective = Negative { criterion, dim, evaluations: 0 };
        for start in climbs {
            let end = optimizer.minimize(&mut objective, &start, bounds)?;
            if best.as_ref().is_none_or(|b| -end.value > b.value) {
                best = Some(Maximum { x: end.x, value: -end.value, evaluations: 0 });
            }
        }
        evaluations += objective.evaluations;
        // There is at least one climb.
        let mut best = best.unwrap_or_else(|| Maximum {
            x: bounds.lo().to_vec(),
            value: f64::NEG_INFINITY,
            evaluations,
        });
        best.evaluations = evaluations;
        Ok(best)
    }
}

/// Scrambled Sobol points of the unit cube.
pub(super) fn sobol(dim: usize, count: usize, seed: u64) -> impl Iterator<Item = Vec<f64>> {
    let seed = (seed ^ (seed >> 32)) as u32;
    (0..count).map(move |i| {
        let coordinate = |k: usize| {
            let scrambled = seed.wrapping_add(0x9E37_79B9_u32.wrapping_mul((k / 256) as u32));
            f64::from(sobol_burley::sample(i as u32, (k % 256) as u32, scrambled))
        };
        (0..dim).map(coordinate).collect()
    })
}

/// The best raw sample, and others with probabilities that grow with their value.
fn pick(raw: &[(f64, Vec<f64>)], count: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let finite: Vec<f64> = raw.iter().map(|r| r.0).filter(|v| v.is_finite()).collect();
    let mean = finite.iter().sum::<f64>() / finite.len().max(1) as f64;
    let variance = finite.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / finite.len().max(1) as f64;
    let scale = if variance > 0.0 { variance.sqrt() } else { 1.0 };
    // The largest of weight·(−log u)⁻¹ are a sample without replacement (Efraimidis and Spirakis 2006).
    let key = |value: f64, u: f64| {
        let weight = if value.is_finite() { ((value - mean) / scale).exp() } else { 1e-300 };
        u.max(f64::MIN_POSITIVE).ln() / weight
    };
    let mut order: Vec<(f64, usize)> =
        raw.iter().enumerate().map(|(i, (value, _))| (key(*value, rng.random()), i)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    let best = (0..raw.len()).fold(0, |b, i| if raw[i].0 > raw[b].0 { i } else { b });
    let rest = order.into_iter().map(|(_, i)| i).filter(|&i| i != best);
    std::iter::once(best).chain(rest).take(count).map(|i| raw[i].1.clone()).collect()
}
