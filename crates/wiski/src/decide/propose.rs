//! From a criterion to the next points: many starts over the box and a few around the best place known.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::maximize::Criterion;
use super::{Acquisition, BaseSamples, Maximizer, Surrogate};
use crate::error::Result;
use crate::learn::Bounds;
use crate::posterior::Joint;

/// What is known about the optimum when points are chosen. Values are to be large.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Incumbent {
    /// The tried place with the best mean, and that mean.
    pub place: Option<(Vec<f64>, f64)>,
    /// Maxima of functions drawn from the posterior, for [`Acquisition::MaxValueEntropy`].
    pub maxima: Vec<f64>,
}

impl Incumbent {
    /// A best value and nothing else.
    pub fn with_best(value: f64) -> Self {
        Self { place: Some((Vec::new(), value)), maxima: Vec::new() }
    }

    /// The best of the places given row after row, by their mean under a surrogate.
    pub fn among(surrogate: &(impl Surrogate + ?Sized), places: &[f64]) -> Result<Self> {
        let mut best = Self::default();
        places.chunks_exact(surrogate.dim()).try_for_each(|x| best.consider(surrogate, x))?;
        Ok(best)
    }

    /// Takes a further place in.
    pub fn consider(&mut self, surrogate: &(impl Surrogate + ?Sized), x: &[f64]) -> Result<()> {
        let mean = surrogate.mean(x)?;
        if self.place.as_ref().is_none_or(|best| mean > best.1) {
            self.place = Some((x.to_vec(), mean));
        }
        Ok(())
    }

    /// The best value; 0, the mean of standardized values, before there is one.
    pub fn best(&self) -> f64 {
        self.place.as_ref().map_or(0.0, |i| i.1)
    }
}

/// How the next points are found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proposer {
    /// What is maximized.
    pub acquisition: Acquisition,
    /// Samples for criteria of several points.
    pub samples: usize,
    /// How hard it is maximized.
    pub maximizer: Maximizer,
}

/// How far from the incumbent the climbs around it start, in half widths of the box.
const NEAR: [f64; 2] = [0.02, 0.2];

impl Proposer {
    /// The q points of the surrogate's box that together promise most, row after row.
    pub fn propose(
        &self,
        surrogate: &(impl Surrogate + ?Sized),
        incumbent: &Incumbent,
        q: usize,
        seed: u64,
    ) -> Result<Vec<f64>> {
        let samples = BaseSamples::new(q, if q > 1 { self.samples } else { 1 }, seed);
        let mut joint = Joint::default();
        let mut criterion = |x: &[f64], gradient: Option<&mut [f64]>| {
            let point = (x, incumbent, &samples);
            match gradient {
                None => self.acquisition.value(surrogate, point, &mut joint),
                Some(g) => self.acquisition.value_and_gradient(surrogate, point, &mut joint, g),
            }
        };
        let place = incumbent.place.as_ref().map(|(x, _)| x.as_slice());
        climb(&self.maximizer, &mut criterion, &surrogate.bounds(), place, q, seed)
    }
}

/// The q points of a box that together promise most by a criterion, row after row. What is best now is likely near
/// what is best next: some climbs start around `place`.
pub(super) fn climb(
    maximizer: &Maximizer,
    criterion: &mut dyn Criterion,
    sides: &[(f64, f64)],
    place: Option<&[f64]>,
    q: usize,
    seed: u64,
) -> Result<Vec<f64>> {
    let d = sides.len();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut near = |width: f64| -> Option<Vec<f64>> {
        let x = place.filter(|x| x.len() == d)?;
        let place = |k: usize| {
            let (lo, hi) = sides[k % d];
            let step = 0.5 * (hi - lo) * rng.random_range(-width..=width);
            (x[k % d] + step).clamp(lo, hi)
        };
        Some((0..q * d).map(place).collect())
    };
    let starts: Vec<Vec<f64>> = NEAR.into_iter().filter_map(&mut near).collect();
    let side = |end: fn(&(f64, f64)) -> f64| (0..q).flat_map(|_| sides.iter().map(end)).collect();
    let bounds = Bounds::new(side(|s| s.0), side(|s| s.1))?;
    Ok(maximizer.maximize(criterion, &bounds, &starts, seed)?.x)
}
