//! From the models of what was told to the points that are tried next.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::maximize::{Maximum, sobol};
use super::merit::{Gain, Merit, log_probability};
use super::optimizer::no_slack;
use super::pareto::{self, Cells};
use super::propose::climb;
use super::surrogate::SurrogatePosterior;
use super::{
    Acquisition, Incumbent, Maximizer, Optimizer, Outcome, Proposer, Strategy, Surrogate, SurrogateModel,
    mixed,
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
        let mut posteriors = self.models().map(SurrogateModel::posterior).collect::<Result<Vec<_>>>()?;
        let mut pending = Vec::new();
        for x in &self.pending {
            pending.extend(self.coordinates(x)?);
        }
        for posterior in &mut posteriors {
            pending.chunks_exact(self.space.coordinates()).try_for_each(|x| posterior.assume_mean(x))?;
            // Where a trial failed nothing is known but that: it is taken to be no better than the average (0), or the
            // same point would be proposed again and again.
            let failed = self.trials.iter().rev().filter(|trial| trial.outcome == Outcome::Failed);
            for trial in failed.take(AVOIDED) {
                posterior.assume(&self.coordinates(&trial.x)?, 0.0)?;
            }
        }
        match self.settings.strategy {
            Strategy::Joint(acquisition)
                if self.settings.outputs() == 1
                    && mixed::is_continuous(&self.space)
                    && (q == 1 || acquisition.is_joint()) =>
            {
                let surrogate = posteriors[0].surrogate();
                let incumbent = self.incumbent(model, surrogate, acquisition, &pending, seed)?;
                self.proposer(acquisition).propose(surrogate, &incumbent, q, seed)
            }
            Strategy::Greedy(acquisition) | Strategy::Joint(acquisition) => {
                self.one_after_the_other(q, seed, posteriors, pending, acquisition)
            }
            Strategy::Thompson => {
                let maximizer = &self.settings.maximizer;
                let sampled_maxima = self.sampled_maxima(model, q, maximizer, seed)?;
                Ok(sampled_maxima.into_iter().flat_map(|m| m.x).collect())
            }
        }
    }

    /// Proposes q points, each given those before it.
    fn one_after_the_other(
        &self,
        q: usize,
        seed: u64,
        mut posteriors: Vec<SurrogatePosterior>,
        mut pending: Vec<f64>,
        acquisition: Acquisition,
    ) -> Result<Vec<f64>> {
        let mut taken = [self.results.first().x.as_slice(), &pending].concat();
        let mut all = Vec::new();
        let mut aim: Option<Aim> = None;
        for i in 0..q {
            let seed = seed.wrapping_add(i as u64);
            // What one objective is compared with is carried on; a front moves with every point that is taken for granted.
            let mut own = match aim.take().filter(|_| self.settings.outputs() == 1) {
                Some(aim) => aim,
                None => self.aim(&posteriors, acquisition, &pending, seed)?,
            };
            let (objectives, constraints) = posteriors.split_at(self.settings.objectives());
            let mut merit = Merit::new(
                &own.gain,
                objectives.iter().map(SurrogatePosterior::surrogate).collect(),
                constraints.iter().map(SurrogatePosterior::surrogate).zip(self.no_slack()).collect(),
            );
            let (maximizer, sides) = (&self.settings.maximizer, objectives[0].surrogate().bounds());
            let place = own.place.as_deref();
            let h = if mixed::is_continuous(&self.space) {
                climb(maximizer, &mut merit, &sides, place, 1, seed)?
            } else {
                mixed::propose(maximizer, &self.space, &mut merit, (&sides, place), &taken, seed)?
            };
            posteriors.iter_mut().try_for_each(|posterior| posterior.assume_mean(&h))?;
            if let Gain::Over(_, incumbent) = &mut own.gain {
                incumbent.consider(posteriors[0].surrogate(), &h)?;
            }
            taken.extend_from_slice(&h);
            pending.extend_from_slice(&h);
            all.extend(h);
            aim = Some(own);
        }
        Ok(all)
    }

    /// The least standardized slack at which each constraint holds.
    fn no_slack(&self) -> impl Iterator<Item = f64> {
        self.models().skip(self.settings.objectives()).map(no_slack)
    }

    /// What the next point is to improve on. Pending points at which constraints are predicted to hold count at their
    /// means, as if they were known; otherwise the same point would be proposed again.
    fn aim(
        &self,
        posteriors: &[SurrogatePosterior],
        acquisition: Acquisition,
        pending: &[f64],
        seed: u64,
    ) -> Result<Aim> {
        let (objectives, constraints) = posteriors.split_at(self.settings.objectives());
        let first = objectives[0].surrogate();
        if let (Some(model), 1) = (&self.surrogate, self.settings.outputs()) {
            let incumbent = self.incumbent(model, first, acquisition, pending, seed)?;
            let place = incumbent.place.as_ref().map(|(x, _)| x.clone());
            return Ok(Aim { gain: Gain::Over(acquisition, incumbent), place });
        }
        let mut places = self.results.feasible_places();
        for x in pending.chunks_exact(self.space.coordinates()) {
            let mut holds = true;
            for (constraint, least) in constraints.iter().zip(self.no_slack()) {
                holds &= constraint.surrogate().mean(x)? >= least;
            }
            if holds {
                places.extend_from_slice(x);
            }
        }
        if places.is_empty() {
            return Ok(Aim { gain: Gain::Nothing, place: self.likeliest(constraints)? });
        }
        if objectives.len() == 1 {
            // The logarithm can be added to that of a probability, and has the same optimum.
            let logarithm = match acquisition {
                Acquisition::ExpectedImprovement => Acquisition::LogExpectedImprovement,
                other => other,
            };
            let incumbent = Incumbent::among(first, &places)?;
            let place = incumbent.place.as_ref().map(|(x, _)| x.clone());
            return Ok(Aim { gain: Gain::Over(logarithm, incumbent), place });
        }
        let places: Vec<&[f64]> = places.chunks_exact(self.space.coordinates()).collect();
        let means = |x: &&[f64]| objectives.iter().map(|objective| objective.surrogate().mean(x)).collect();
        let values: Vec<Vec<f64>> = places.iter().map(means).collect::<Result<_>>()?;
        let front = pareto::front(&values);
        let one = front.get(seed as usize % front.len().max(1)).map(|&i| places[i].to_vec());
        Ok(Aim { gain: Gain::Front(Cells::of(&values)), place: one })
    }

    /// The tried point at which all constraints are likeliest to hold.
    fn likeliest(&self, constraints: &[SurrogatePosterior]) -> Result<Option<Vec<f64>>> {
        let (mut best, mut joint) = (None, Joint::default());
        for x in self.results.first().x.chunks_exact(self.space.coordinates()) {
            let mut log = 0.0;
            for (constraint, least) in constraints.iter().zip(self.no_slack()) {
                constraint.surrogate().predict(x, &mut joint)?;
                log += log_probability(&joint, least).0;
            }
            if best.as_ref().is_none_or(|(most, _)| log > *most) {
                best = Some((log, x.to_vec()));
            }
        }
        Ok(best.map(|(_, x)| x))
    }

    fn proposer(&self, acquisition: Acquisition) -> Proposer {
        Proposer { acquisition, samples: self.settings.samples, maximizer: self.settings.maximizer }
    }

    /// The tried or pending point with the best mean and, where the criterion needs them, maxima of drawn functions.
    ///
    /// A pending point counts at its mean, as the posterior takes it for granted: were it left out, what it promises
    /// beyond the tried ones would be promised once more, and it would be proposed again.
    fn incumbent(
        &self,
        model: &SurrogateModel,
        posterior: &dyn Surrogate,
        acquisition: Acquisition,
        pending: &[f64],
        seed: u64,
    ) -> Result<Incumbent> {
        let mut incumbent = Incumbent::among(posterior, &model.covered(self.results.first()))?;
        let sides = model.covers();
        for x in pending.chunks_exact(sides.len()) {
            if x.iter().zip(&sides).all(|(x, (lo, hi))| (lo..=hi).contains(&x)) {
                incumbent.consider(posterior, x)?;
            }
        }
        if acquisition == Acquisition::MaxValueEntropy {
            let best = incumbent.best();
            let sampled_maxima = self.sampled_maxima(model, MAXIMA, &SAMPLED_MAXIMUM, seed)?;
            // The maximum is not below a value that is known.
            incumbent.maxima = sampled_maxima.into_iter().map(|m| m.value.max(best)).collect();
        }
        Ok(incumbent)
    }

    /// The highest points of functions drawn from the posterior.
    fn sampled_maxima(
        &self,
        model: &SurrogateModel,
        count: usize,
        maximizer: &Maximizer,
        seed: u64,
    ) -> Result<Vec<Maximum>> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut lo, mut hi) = (Vec::new(), Vec::new());
        for ((from, to), (first, last)) in model.searched().into_iter().zip(self.space.sides()) {
            // Beyond the corners of choices there is nothing.
            lo.push(from.max(2.0 * first - 1.0));
            hi.push(to.min(2.0 * last - 1.0).max(lo[lo.len() - 1]));
        }
        let bounds = Bounds::new(lo, hi)?;
        let mut one = |i: usize| {
            let path = model.sample(&mut rng)?;
            let mut height = |x: &[f64], gradient: Option<&mut [f64]>| path.evaluate(x, gradient);
            maximizer.maximize(&mut height, &bounds, &[], seed.wrapping_add(i as u64))
        };
        (0..count).map(&mut one).collect()
    }
}

/// What the next point is to improve on, and a tried point near which it may lie.
struct Aim {
    gain: Gain,
    place: Option<Vec<f64>>,
}
