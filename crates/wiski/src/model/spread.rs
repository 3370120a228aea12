//! Noise that is not the same everywhere.
//!
//! The noise of an observation is taken as σ² h(x) with
//!
//! ```text
//! log h(x) = log q + g(x)     g(x) = φ(x)ᵀu,  u ~ N(0, s I)
//! ```
//!
//! in the features φ of `filter`. Of a residual e with what the model says, v + σ²h, the share ρ = σ²h/(v + σ²h) is noise; with
//! z² = e²/(v + σ²h) the slope of its log density in g is ½ρ(z² − 1) and its information ½ρ². A Kalman filter that takes in
//! (z² − 1)/ρ as an observation of what g is short of, with the noise R = 2/ρ², is a natural gradient step (Ollivier,
//! *Online natural gradient as a Kalman filter*, 2018). That is two and a half times as much as the logarithm of e² tells,
//! whose noise is π²/2. So that heavy tails do not pass for noise that varies, z² is replaced by 5z²/(4 + z²), the slope of
//! Student's t with four degrees of freedom, over its own mean; and the level q follows z² up to the square of eight.
//!
//! Two such processes, of the model's mean with the coordinates (counts vary by their mean) and of the coordinates with the
//! inducing points, and g = 0, which has a level of its own so that nothing but the shape tells them apart, are mixed by
//! `stacking`.
//!
//! **Rest.** While constant noise has nearly all the weight, predictions are the model's own to the last bit, and one row in
//! four is looked at. 8 r² multiply-adds for such a row with r from 10 to 66; no allocation.

use serde::{Deserialize, Serialize};
use std::ops::Range;

use super::filter::{Basis, Coefficients};
use super::stacking::{check_weights, first_weights, move_weights};
use crate::error::{Error, Result, length};
use crate::posterior::Prediction;
use crate::saved::{Restore, restored_after_reading};

/// s, the variance of log h.
const SCALE: f64 = 2.0;
/// After so many rows what was learned has faded to 1/e.
const SPAN: f64 = 10_000.0;
/// The length-scale of inducing points, in deviations.
const WIDTH: f64 = 0.75;
/// The step of the weights.
const RATE: f64 = 0.05;
/// The weight of constant noise before any row.
const FIRST_WEIGHT: f64 = 0.97;
/// What noise that varies must be better by to count, in nats a row: it has more to learn.
const MARGIN: f64 = 3e-3;
/// With so much weight on it the others rest ...
const RESTING: f64 = 0.9;
/// ... and look at one row in so many.
const STRIDE: f64 = 4.0;
/// Beyond so many deviations densities are flat, and levels do not follow.
const CLIP: f64 = 5.0;
const LEVEL_CLIP: f64 = 8.0;
/// ν of the slope.
const FREEDOM: f64 = 4.0;
/// The mean of (ν + 1)z²/(ν + z²) for normal z.
const FIRST_MEAN: f64 = 0.786_4;
/// Levels and means follow so many rows at most, as if so many had been before the first.
const MOST_ROWS: f64 = 5000.0;
const ROWS_BEFORE: f64 = 50.0;
/// How far log h may go.
const FARTHEST: f64 = 8.0;

/// g by some of the features.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Varying {
    features: Range<usize>,
    own: Coefficients,
    /// log q.
    level: f64,
    /// The mean of 5z²/(4 + z²).
    mean: f64,
}

impl Varying {
    fn new(features: Range<usize>) -> Self {
        let own = Coefficients::prior(features.len(), SCALE);
        Self { features, own, level: 0.0, mean: FIRST_MEAN }
    }

    /// h where g has the given mean.
    fn factor(&self, g: f64) -> f64 {
        (self.level + g).clamp(-FARTHEST, FARTHEST).exp()
    }
}

/// How the noise varies with the inputs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(crate) struct Spread {
    basis: Basis,
    all: Vec<Varying>,
    /// log q where the noise is the same everywhere.
    level: f64,
    /// The weight of constant noise, then of each other.
    #[serde(with = "crate::saved::floats")]
    weights: Vec<f64>,
    /// Rows since one was looked at.
    passed: f64,
    /// Rows looked at.
    seen: f64,
    #[serde(skip)]
    work: Work,
}

#[derive(Debug, Clone, Default)]
struct Work {
    phi: Vec<f64>,
    /// P⁻φ of each, one after the other.
    gain: Vec<f64>,
}

restored_after_reading!(Spread);

impl Restore for Spread {
    fn restore(&mut self) -> Result<()> {
        check_weights("weights of noise", &self.weights, self.all.len() + 1)?;
        let mut is_sound = self.passed >= 0.0 && self.seen >= 0.0 && self.seen.is_finite();
        is_sound &= self.all.len() == 2 && self.level.is_finite();
        for own in &self.all {
            is_sound &= own.features.end <= self.basis.len() && own.level.is_finite() && own.mean > 0.0;
            is_sound &= own.own.are_sound(own.features.len())?;
        }
        if is_sound {
            return Ok(());
        }
        Err(Error::Config { field: "noise by input".into(), reason: "it is no filter's state".into() })
    }
}

impl Spread {
    /// Over the coordinates of rows given one after the other; those before `first` are left out.
    pub(crate) fn new(h: &[f64], dim: usize, first: usize) -> Result<Self> {
        let basis = Basis::new(h, dim, first, WIDTH)?;
        let all = vec![Varying::new(1..2 + basis.coordinates()), Varying::new(2..basis.len())];
        let weights = first_weights(all.len() + 1, FIRST_WEIGHT);
        Ok(Self { basis, all, level: 0.0, weights, passed: 0.0, seen: 0.0, work: Work::default() })
    }

    /// Rejects a noise over other coordinates than those of a model.
    pub(crate) fn check_fits(&self, dim: usize) -> Result<()> {
        length("coordinates of noise", dim, self.basis.dim())
    }

    /// The same before any row.
    pub(crate) fn cleared(&self) -> Self {
        let all = self.all.iter().map(|own| Varying::new(own.features.clone())).collect();
        let weights = first_weights(self.weights.len(), FIRST_WEIGHT);
        let basis = self.basis.clone();
        Self { basis, all, level: 0.0, weights, passed: 0.0, seen: 0.0, work: Work::default() }
    }

    /// Takes over what another has learned, if it has learned from more rows: two filters do not add up.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.seen > self.seen && other.basis.dim() == self.basis.dim() {
            self.clone_from(other);
        }
    }

    /// Whether the noise is taken as the same everywhere.
    pub(crate) fn rests(&self) -> bool {
        self.weights[0] >= RESTING
    }

    /// The features that the noise is learned in.
    pub(super) fn basis(&self) -> &Basis {
        &self.basis
    }

    /// Gives a prediction at coordinates h the noise that there is.
    pub(crate) fn apply(&self, h: &[f64], said: &mut Prediction) {
        said.noise *= self.factor(h, said.mean);
    }

    /// How much more noise than the model says there is at coordinates h, where it says `mean`.
    pub(super) fn factor(&self, h: &[f64], mean: f64) -> f64 {
        if self.rests() {
            return 1.0;
        }
        let mut phi = vec![0.0; self.basis.len()];
        self.basis.features(h, mean, &mut phi);
        let a = (-(self.passed + 1.0) / SPAN).exp();
        let factor =
            |own: &Varying| own.factor(a * crate::simd::dot(&own.own.mean, &phi[own.features.clone()]));
        let factors = self.all.iter().zip(&self.weights[1..]).map(|(own, w)| w * factor(own));
        self.weights[0] * self.level.exp() + factors.sum::<f64>()
    }

    /// Gives a prediction the noise that there is, and learns from how far off it was.
    pub(crate) fn step(&mut self, h: &[f64], y: f64, said: &mut Prediction) {
        self.passed += 1.0;
        let rests = self.rests();
        if said.noise <= 0.0 || rests && self.passed < STRIDE {
            return;
        }
        let a = (-self.passed / SPAN).exp();
        let grown = SCALE * (1.0 - a * a);
        let Work { phi, gain } = &mut self.work;
        phi.resize(self.basis.len(), 0.0);
        gain.resize(self.basis.len(), 0.0);
        self.basis.features(h, said.mean, phi);
        let square = (y - said.mean).powi(2);
        let density = |noise: f64| {
            let total = said.variance + noise;
            -0.5 * ((square / total).min(CLIP * CLIP) + total.ln())
        };
        self.seen += 1.0;
        let rate = (self.seen + ROWS_BEFORE).min(MOST_ROWS).recip();
        let level_after = |level: f64, noise: f64| {
            let total = said.variance + noise;
            let surprise = (square / total).min(LEVEL_CLIP * LEVEL_CLIP) - 1.0;
            (level + rate * noise / total * surprise).clamp(-FARTHEST, FARTHEST)
        };
        let constant = self.level.exp() * said.noise;
        let mut densities = [density(constant); 3];
        let mut factor = self.weights[0] * self.level.exp();
        self.level = level_after(self.level, constant);
        for ((own, &weight), log) in self.all.iter_mut().zip(&self.weights[1..]).zip(&mut densities[1..]) {
            let (phi, gain) = (&phi[own.features.clone()], &mut gain[..own.features.len()]);
            let (g, c) = own.own.at(phi, a, grown, gain);
            let h = own.factor(g);
            let noise = h * said.noise;
            factor += weight * h;
            *log = density(noise) - MARGIN;
            let share = noise / (said.variance + noise);
            let z = square / (said.variance + noise);
            let bounded = (FREEDOM + 1.0) * z / (FREEDOM + z);
            let total = c + 2.0 / (share * share);
            let step = (bounded / own.mean - 1.0) / (share * total);
            own.own.update(a, grown, gain, total, step);
            own.mean += rate * (bounded - own.mean);
            own.level = level_after(own.level, noise);
        }
        self.passed = 0.0;
        move_weights(&mut self.weights, &densities, RATE);
        if !rests {
            said.noise *= factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_distr::{StandardNormal, StudentT};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// What streams of residuals say: the mean log densities of Gaussians with the noise that was said, that is constant
    /// and that is true, over the second half.
    struct Said {
        own: f64,
        constant: f64,
        truth: f64,
    }

    /// Residuals of deviation `std` times draws, for a model that says the deviation is .3 and its own variance .01.
    fn run(
        spread: &mut Spread,
        std: impl Fn(&[f64]) -> f64,
        draw: impl Fn(&mut Xoshiro256PlusPlus) -> f64,
    ) -> Said {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let (mut said, rows) = (Said { own: 0.0, constant: 0.0, truth: 0.0 }, 8000);
        for i in 0..rows {
            let h = [2.0 * rng.random::<f64>() - 1.0, 2.0 * rng.random::<f64>() - 1.0];
            let plain = Prediction { mean: h[1], variance: 0.01, noise: 0.09 };
            let true_noise = std(&h).powi(2);
            let f = h[1] + 0.1 * rng.sample::<f64, _>(StandardNormal);
            let y = f + true_noise.sqrt() * draw(&mut rng);
            let (mut before, mut own) = (plain, plain);
            spread.apply(&h, &mut before);
            let is_seen = !spread.rests() || spread.passed + 1.0 >= STRIDE;
            spread.step(&h, y, &mut own);
            assert!(!is_seen || (before.noise / own.noise - 1.0).abs() < 1e-12, "{before:?} {own:?}");
            if i >= rows / 2 {
                said.own += own.log_density(y) / f64::from(rows / 2);
                said.constant += plain.log_density(y) / f64::from(rows / 2);
                said.truth += Prediction { noise: true_noise, ..plain }.log_density(y) / f64::from(rows / 2);
            }
        }
        said
    }

    fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
        rng.sample(StandardNormal)
    }

    fn spread() -> Spread {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(6);
        let h: Vec<f64> = (0..600).map(|_| 2.0 * rng.random::<f64>() - 1.0).collect();
        Spread::new(&h, 2, 0).unwrap()
    }

    #[test]
    fn noise_that_grows_is_learned() {
        // Along the model's mean; in a corner.
        let grows: [fn(&[f64]) -> f64; 2] =
            [|h| 0.25 * (1.2 * h[1]).exp(), |h| if h[0] > 0.0 && h[1] > 0.0 { 0.6 } else { 0.15 }];
        for (grows, least) in grows.into_iter().zip([0.9, 0.7]) {
            let Said { own, constant, truth } = run(&mut spread(), grows, normal);
            // Of what there is to win.
            assert!(
                own - constant > least * (truth - constant) && truth > constant + 0.1,
                "{own} {constant} {truth}"
            );
        }
    }

    #[test]
    fn constant_noise_is_left_as_it_is() {
        let mut own = spread();
        let Said { own: said, constant, .. } = run(&mut own, |_| 0.3, normal);
        assert!(own.rests() && said == constant, "{said} {constant}");
    }

    /// Constant noise and noise that varies next to nothing are equally good: without a margin the weights would drift.
    #[test]
    fn a_long_stream_of_constant_noise_is_left_as_it_is() {
        let (mut own, mut rng) = (spread(), Xoshiro256PlusPlus::seed_from_u64(7));
        for _ in 0..400_000 {
            let h = [2.0 * rng.random::<f64>() - 1.0, 2.0 * rng.random::<f64>() - 1.0];
            let mut said = Prediction { mean: h[1], variance: 0.0, noise: 0.09 };
            own.step(&h, h[1] + 0.3 * normal(&mut rng), &mut said);
            assert_eq!(said.noise, 0.09, "{:?}", own.weights);
        }
    }

    #[test]
    fn heavy_tails_do_not_pass_for_noise_that_varies() {
        // Student's t with three degrees of freedom has a variance of three.
        let student = StudentT::new(3.0).unwrap();
        let mut own = spread();
        let Said { own: said, constant, .. } =
            run(&mut own, |_| 0.3, |rng| rng.sample::<f64, _>(student) / 3f64.sqrt());
        assert!(said > constant - 0.01, "{said} {constant}");
        // Where it does vary, that is seen in spite of them.
        let grows = |h: &[f64]| 0.25 * (1.2 * h[1]).exp();
        let Said { own: said, constant, .. } =
            run(&mut spread(), grows, |rng| rng.sample::<f64, _>(student) / 3f64.sqrt());
        assert!(said > constant + 0.1, "{said} {constant}");
    }
}
