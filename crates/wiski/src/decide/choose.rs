//! From the models of what was told to the points that are tried next.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::maximize::{Maximum, sobol};
use super::propose::climb;
use super::surrogate::SurrogatePosterior;
use super::{
    Acquisition, BaseSamples, Incumbent, Maximizer, Optimizer, Outcome, Proposer, Strategy, Surrogate,
    SurrogateModel, mixed,
};
use crate::error::{Error, Result};
use crate::learn::Bounds;
use crate::posterior::Joint;

/// The most points that can be asked for at once.
const MOST_ASKED: usize = 10_000;

/// So many of the last trials that failed are kept away from.
const AVOIDED: usize = 32;

/// Functions drawn for the distribution of the maximum, and how hard each is maximized: the values of basins
/// matter, not their last digits.
const MAXIMA: usize = 10;
const SAMPLED_MAXIMUM: Maximizer = Maximizer { raw_samples: 256, restarts: 3, iterations: 50 };

impl Optimizer {
    /// Proposes q points; they are pending until they are told.
    pub fn ask(&mut self, q: usize) -> Result<Vec<Vec<f64>>> {
        if q == 0 || q > MOST_ASKED {
            let reason = format!("one to {MOST_ASKED} points can be asked for at once, not {q}");
            return Err(Error::Config { field: "q".into(), reason });
        }
        let seed = self.settings.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(self.asked);
        let points = match &self.surrogate {
            None => self.design(q),
            Some(model) => {
                let h = self.propose(model, q, seed)?;
                h.chunks_exact(self.space.coordinates()).map(|h| self.to_values(h)).collect()
            }
        };
        self.asked += q as u64;
        self.pending.extend(points.iter().cloned());
        Ok(points)
    }

    /// The next q points of a scrambled Sobol sequence.
    fn design(&self, q: usize) -> Vec<Vec<f64>> {
        let from = self.asked as usize;
        let all = sobol(self.space.coordinates(), from + q, self.settings.seed.wrapping_add(1));
        all.skip(from).map(|u| self.space.values(&u)).collect()
    }

    fn propose(&self, model: &SurrogateModel, q: usize, seed: u64) -> Result<Vec<f64>> {
        let mut posterior = model.posterior()?;
        for x in &self.pending {
            posterior.assume_mean(&self.coordinates(x)?)?;
        }
        // Where a trial failed nothing is known but that: it is taken to be no better than the average (0), or the same
        // point would be proposed again and again.
        let failed = self.trials.iter().rev().filter(|trial| trial.outcome == Outcome::Failed);
        for trial in failed.take(AVOIDED) {
            posterior.assume(&self.coordinates(&trial.x)?, 0.0)?;
        }
        match self.settings.strategy {
            Strategy::Joint(acquisition)
                if mixed::is_continuous(&self.space) && (q == 1 || acquisition.is_joint()) =>
            {
                let incumbent = self.incumbent(model, posterior.surrogate(), acquisition, seed)?;
                self.proposer(acquisition).propose(posterior.surrogate(), &incumbent, q, seed)
            }
            Strategy::Greedy(acquisition) | Strategy::Joint(acquisition) => {
                let incumbent = self.incumbent(model, posterior.surrogate(), acquisition, seed)?;
                self.one_after_the_other(q, seed, &mut posterior, acquisition, &incumbent)
            }
            Strategy::Thompson => {
                let maximizer = &self.settings.maximizer;
                let sampled_maxima = sampled_maxima(model, q, maximizer, seed)?;
                Ok(sampled_maxima.into_iter().flat_map(|m| m.x).collect())
            }
        }
    }

    /// Proposes q points, each given those before it.
    fn one_after_the_other(
        &self,
        q: usize,
        seed: u64,
        posterior: &mut SurrogatePosterior,
        acquisition: Acquisition,
        incumbent: &Incumbent,
    ) -> Result<Vec<f64>> {
        let mut taken = self.results.x.clone();
        for x in &self.pending {
            taken.extend(self.coordinates(x)?);
        }
        let (mut all, samples, mut joint) = (Vec::new(), BaseSamples::new(1, 1, seed), Joint::default());
        for i in 0..q {
            let seed = seed.wrapping_add(i as u64);
            let surrogate = posterior.surrogate();
            let mut criterion = |x: &[f64], gradient: Option<&mut [f64]>| {
                let point = (x, incumbent, &samples);
                match gradient {
                    None => acquisition.value(surrogate, point, &mut joint),
                    Some(g) => acquisition.value_and_gradient(surrogate, point, &mut joint, g),
                }
            };
            let place = incumbent.place.as_ref().map(|(x, _)| x.as_slice());
            let (maximizer, sides) = (&self.settings.maximizer, surrogate.bounds());
            let h = if mixed::is_continuous(&self.space) {
                climb(maximizer, &mut criterion, &sides, place, 1, seed)?
            } else {
                mixed::propose(maximizer, &self.space, &mut criterion, (&sides, place), &taken, seed)?
            };
            posterior.assume_mean(&h)?;
            taken.extend_from_slice(&h);
            all.extend(h);
        }
        Ok(all)
    }

    fn proposer(&self, acquisition: Acquisition) -> Proposer {
        Proposer { acquisition, samples: self.settings.samples, maximizer: self.settings.maximizer }
    }

    /// The tried point with the best mean and, where the criterion needs them, maxima of drawn functions.
    fn incumbent(
        &self,
        model: &SurrogateModel,
        posterior: &dyn Surrogate,
        acquisition: Acquisition,
        seed: u64,
    ) -> Result<Incumbent> {
        let mut incumbent = Incumbent::among(posterior, &model.covered(&self.results))?;
        if acquisition == Acquisition::MaxValueEntropy {
            let best = incumbent.best();
            let sampled_maxima = sampled_maxima(model, MAXIMA, &SAMPLED_MAXIMUM, seed)?;
            // The maximum is not below a value that is known.
            incumbent.maxima = sampled_maxima.into_iter().map(|m| m.value.max(best)).collect();
        }
        Ok(incumbent)
    }
}

/// The highest points of functions drawn from the posterior.
fn sampled_maxima(
    model: &SurrogateModel,
    count: usize,
    maximizer: &Maximizer,
    seed: u64,
) -> Result<Vec<Maximum>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let sides = model.searched();
    let bounds = Bounds::new(sides.iter().map(|s| s.0).collect(), sides.iter().map(|s| s.1).collect())?;
    let mut one = |i: usize| {
        let path = model.sample(&mut rng)?;
        let mut height = |x: &[f64], gradient: Option<&mut [f64]>| path.evaluate(x, gradient);
        maximizer.maximize(&mut height, &bounds, &[], seed.wrapping_add(i as u64))
    };
    (0..count).map(&mut one).collect()
}
