//! Points of spaces with choices, whole numbers and steps: criteria are judged where a point can be.
//!
//! A climb in the cube ends between the corners that choices stand for, and between whole numbers; what it promises there
//! the nearest point need not keep, and the same point may be proposed for ever. So for every combination of choices
//! (for [`MOST_COMBINATIONS`] of them, if there are more) the criterion is climbed in the other coordinates alone, with
//! those of the choices fixed, and the ends are rounded number by number to the side that promises more. Points that
//! were tried come last, since nothing is to be learned there of a function without noise.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::maximize::{Criterion, sobol};
use super::propose::climb;
use super::{Dimension, Maximizer, Space};
use crate::error::Result;

/// The most combinations of choices that are climbed for a point.
const MOST_COMBINATIONS: usize = 48;

/// Climbs for each combination, at least.
const FEWEST_CLIMBS: usize = 2;

/// Places at which another point is sought where the best was tried before.
const SPREAD: usize = 256;

/// Whether points of a space lie anywhere in the cube.
pub(super) fn is_continuous(space: &Space) -> bool {
    space.dimensions().iter().all(|d| d.choices.is_empty() && !d.is_spaced())
}

/// The point of a space that promises most by a criterion, in coordinates [−1, 1], within `sides`. `taken` are points
/// whose result is known, and `place` is the best of them.
pub(super) fn propose(
    maximizer: &Maximizer,
    space: &Space,
    criterion: &mut dyn Criterion,
    (sides, place): (&[(f64, f64)], Option<&[f64]>),
    taken: &[f64],
    seed: u64,
) -> Result<Vec<f64>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let all = combinations(space, place, &mut rng);
    let share = |total: usize, least: usize| total.div_ceil(all.len()).max(least);
    let maximizer = Maximizer {
        raw_samples: share(maximizer.raw_samples, 32),
        restarts: share(maximizer.restarts, FEWEST_CLIMBS),
        iterations: maximizer.iterations,
    };
    let mut best: Option<(bool, f64, Vec<f64>)> = None;
    for (i, chosen) in all.iter().enumerate() {
        let fixed = |(side, fixed): (&(f64, f64), &Option<f64>)| fixed.map_or(*side, |at| (at, at));
        let within: Vec<(f64, f64)> = sides.iter().zip(chosen).map(fixed).collect();
        let moved: Option<Vec<f64>> =
            place.map(|x| x.iter().zip(chosen).map(|(x, at)| at.unwrap_or(*x)).collect());
        let mut x = climb(&maximizer, criterion, &within, moved.as_deref(), 1, seed.wrapping_add(i as u64))?;
        let mut value = |x: &[f64]| criterion.evaluate(x, None);
        round(space, &mut x, &mut value)?;
        let is_new = |x: &[f64]| !taken.chunks_exact(x.len()).any(|t| is_same(t, x));
        let mut found = (is_new(&x), value(&x)?, x);
        if !found.0 {
            // Another point instead, of some that are spread over the box.
            let place = |u: Vec<f64>| {
                let inside = |(u, (lo, hi)): (f64, &(f64, f64))| 0.5 * (lo + u * (hi - lo) + 1.0);
                let unit: Vec<f64> = u.into_iter().zip(&within).map(inside).collect();
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

/// Combinations of choices, as coordinates in [−1, 1] where they are fixed: all, or that of the incumbent, those next
/// to it, and others at random.
fn combinations(space: &Space, place: Option<&[f64]>, rng: &mut Xoshiro256PlusPlus) -> Vec<Vec<Option<f64>>> {
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
        if let Some(x) = place.filter(|x| x.len() == space.coordinates()) {
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
        _ => d.corner(at).into_iter().map(|u| Some(2.0 * u - 1.0)).collect(),
    };
    space.dimensions().iter().zip(picked).flat_map(own).collect()
}

/// Moves whole numbers and steps, one after the other, to the neighbor that promises more.
fn round(space: &Space, x: &mut [f64], value: &mut dyn FnMut(&[f64]) -> Result<f64>) -> Result<()> {
    let mut first = 0;
    for d in space.dimensions() {
        if d.is_spaced() {
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
