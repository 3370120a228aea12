//! Points of spaces with choices and whole numbers: criteria are judged where a point can be.
//!
//! A climb in the cube ends between the corners that choices stand for, and between whole numbers; what it promises there
//! the nearest point need not keep, and the same point may be proposed for ever. So for every combination of choices
//! (for [`MOST_COMBINATIONS`] of them, if there are more) the criterion is climbed in the other coordinates alone, with
//! those of the choices fixed, and the ends are rounded number by number to the side that promises more. Points that
//! were tried come last, since nothing is to be learned there of a function without noise.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::maximize::sobol;
use super::{BaseSamples, Dimension, Incumbent, Maximizer, Proposer, Space, Surrogate};
use crate::error::Result;
use crate::posterior::Joint;

/// The most combinations of choices that are climbed for a point.
const MOST_COMBINATIONS: usize = 48;

/// Climbs for each combination, at least.
const FEWEST_CLIMBS: usize = 2;

/// Places at which another point is sought where the best was tried before.
const SPREAD: usize = 256;

/// Whether points of a space lie anywhere in the cube.
pub(super) fn is_continuous(space: &Space) -> bool {
    space.dimensions().iter().all(|d| d.choices.is_empty() && !d.integer)
}

/// A surrogate whose box is smaller.
struct Within<'a> {
    surrogate: &'a dyn Surrogate,
    sides: Vec<(f64, f64)>,
}

impl Surrogate for Within<'_> {
    fn dim(&self) -> usize {
        self.surrogate.dim()
    }

    fn bounds(&self) -> Vec<(f64, f64)> {
        self.sides.clone()
    }

    fn noise(&self) -> f64 {
        self.surrogate.noise()
    }

    fn mean(&self, x: &[f64]) -> Result<f64> {
        self.surrogate.mean(x)
    }

    fn predict(&self, x: &[f64], out: &mut Joint) -> Result<()> {
        self.surrogate.predict(x, out)
    }

    fn vjp(
        &self,
        x: &[f64],
        joint: &Joint,
        by_mean: &[f64],
        by_covariance: &[f64],
        gradient: &mut [f64],
    ) -> Result<()> {
        self.surrogate.vjp(x, joint, by_mean, by_covariance, gradient)
    }
}

/// The point of a space that promises most, in coordinates [−1, 1]. `taken` are points whose result is known.
pub(super) fn propose(
    proposer: &Proposer,
    space: &Space,
    surrogate: &dyn Surrogate,
    incumbent: &Incumbent,
    taken: &[f64],
    seed: u64,
) -> Result<Vec<f64>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let sides = surrogate.bounds();
    let all = combinations(space, incumbent, &mut rng);
    let Maximizer { raw_samples, restarts, iterations } = proposer.maximizer;
    let share = |total: usize, least: usize| total.div_ceil(all.len()).max(least);
    let maximizer = Maximizer {
        raw_samples: share(raw_samples, 32),
        restarts: share(restarts, FEWEST_CLIMBS),
        iterations,
    };
    let proposer = Proposer { maximizer, ..*proposer };
    let samples = BaseSamples::new(1, 1, seed);
    let mut best: Option<(bool, f64, Vec<f64>)> = None;
    for (i, chosen) in all.iter().enumerate() {
        let fixed = |(side, fixed): (&(f64, f64), &Option<f64>)| fixed.map_or(*side, |at| (at, at));
        let within = Within { surrogate, sides: sides.iter().zip(chosen).map(fixed).collect() };
        let own = incumbent.placed_at(chosen);
        let mut x = proposer.propose(&within, &own, 1, seed.wrapping_add(i as u64))?;
        let mut joint = Joint::default();
        let mut value =
            |x: &[f64]| proposer.acquisition.value(surrogate, (x, incumbent, &samples), &mut joint);
        round(space, &mut x, &mut value)?;
        let is_new = |x: &[f64]| !taken.chunks_exact(x.len()).any(|t| is_same(t, x));
        let mut found = (is_new(&x), value(&x)?, x);
        if !found.0 {
            // Another point instead, of some that are spread over the box.
            let place = |u: Vec<f64>| {
                let inside = |(u, (lo, hi)): (f64, &(f64, f64))| 0.5 * (lo + u * (hi - lo) + 1.0);
                let unit: Vec<f64> = u.into_iter().zip(&within.sides).map(inside).collect();
                space.to_unit(&space.values(&unit))
            };
            for unit in sobol(found.2.len(), SPREAD, seed).map(place) {
                let x: Vec<f64> = unit?.into_iter().map(|u| 2.0 * u - 1.0).collect();
                if is_new(&x) {
                    let other = (true, value(&x)?, x);
                    if (other.0, other.1) > (found.0, found.1) {
                        found = other;
                    }
                }
            }
        }
        if best.as_ref().is_none_or(|b| (found.0, found.1) > (b.0, b.1)) {
            best = Some(found);
        }
    }
    Ok(best.map(|(_, _, x)| x).unwrap_or_default())
}

fn is_same(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9)
}

impl Incumbent {
    /// The same with its place moved to given coordinates.
    fn placed_at(&self, fixed: &[Option<f64>]) -> Self {
        let moved = |(x, mean): &(Vec<f64>, f64)| {
            let own = x.iter().zip(fixed).map(|(x, at)| at.unwrap_or(*x)).collect();
            (own, *mean)
        };
        Self { place: self.place.as_ref().map(moved), maxima: self.maxima.clone() }
    }
}

/// Combinations of choices, as coordinates in [−1, 1] where they are fixed: all, or that of the incumbent, those next
/// to it, and others at random.
fn combinations(space: &Space, incumbent: &Incumbent, rng: &mut Xoshiro256PlusPlus) -> Vec<Vec<Option<f64>>> {
    let choices: Vec<usize> = space.dimensions().iter().map(|d| d.choices.len()).collect();
    let count = choices.iter().filter(|&&n| n > 0).try_fold(1usize, |all, &n| all.checked_mul(n));
    let mut picked: Vec<Vec<usize>> = Vec::new();
    if let Some(count) = count.filter(|&count| count <= MOST_COMBINATIONS) {
        for at in 0..count {
            let mut rest = at;
            let pick = |&n: &usize| {
                if n > 0 {
                    let own = rest % n;
                    rest /= n;
                    own
                } else {
                    0
                }
            };
            picked.push(choices.iter().map(pick).collect());
        }
    } else {
        let place = incumbent.place.as_ref().filter(|(x, _)| x.len() == space.coordinates());
        if let Some((x, _)) = place {
            let unit: Vec<f64> = x.iter().map(|h| 0.5 * (h + 1.0)).collect();
            let values = space.values(&unit);
            let best: Vec<usize> =
                values.iter().zip(&choices).map(|(v, n)| if *n > 0 { *v as usize } else { 0 }).collect();
            let mut near: Vec<Vec<usize>> = Vec::new();
            for (k, &n) in choices.iter().enumerate() {
                for other in (0..n).filter(|&other| other != best[k]) {
                    let mut changed = best.clone();
                    changed[k] = other;
                    near.push(changed);
                }
            }
            near.shuffle(rng);
            picked.push(best);
            picked.extend(near.into_iter().take(MOST_COMBINATIONS / 2));
        }
        while picked.len() < MOST_COMBINATIONS {
            picked.push(choices.iter().map(|&n| if n > 0 { rng.random_range(0..n) } else { 0 }).collect());
        }
    }
    // Choices that are not there make no difference.
    let mut all: Vec<Vec<Option<f64>>> = Vec::new();
    for own in picked.iter().map(|picked| fixed(space, picked)) {
        if !all.contains(&own) {
            all.push(own);
        }
    }
    all
}

/// The coordinates that a combination fixes: those of the choices, and those of what is not there.
fn fixed(space: &Space, picked: &[usize]) -> Vec<Option<f64>> {
    let values: Vec<f64> = picked.iter().map(|&at| at as f64).collect();
    let own = |(d, &at): (&Dimension, &usize)| match d.choices.len() {
        _ if !space.is_active(d, &values) => vec![Some(0.0); d.coordinates()],
        0 => vec![None],
        2 => vec![Some(if at == 0 { -1.0 } else { 1.0 })],
        n => (0..n).map(|i| Some(if i == at { 1.0 } else { -1.0 })).collect(),
    };
    space.dimensions().iter().zip(picked).flat_map(own).collect()
}

/// Moves whole numbers, one after the other, to the neighbor that promises more.
fn round(space: &Space, x: &mut [f64], value: &mut dyn FnMut(&[f64]) -> Result<f64>) -> Result<()> {
    let mut first = 0;
    for d in space.dimensions() {
        if d.integer && d.choices.is_empty() {
            let mut sides = d.neighbors(0.5 * (x[first] + 1.0)).map(|u| 2.0 * u - 1.0);
            x[first] = sides[0];
            let below = value(x)?;
            std::mem::swap(&mut x[first], &mut sides[1]);
            if value(x)? < below {
                x[first] = sides[0];
            }
        }
        first += d.coordinates();
    }
    Ok(())
}
