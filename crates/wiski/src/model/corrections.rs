//! What the last rows say beyond the model: corrections that follow change.
//!
//! A model that never forgets is the best one while the data stay as they are, and wrong for long after they change. So
//! beside it stand K corrections, Gaussian processes of the row and of time,
//!
//! ```text
//! g(x, t) = φ(x)ᵀu(t)     u(t + 1) = a u(t) + √(s(1 − a²)) ε     a = exp(−1/ℓ),  ε ~ N(0, I)
//! ```
//!
//! with the kernel s φ(x)ᵀφ(x') exp(−|t − t'|/ℓ), t in rows, for ℓ of 10, 100 and 1,000 and s of a tenth and the whole
//! variance of the targets. Correction k sees what the model leaves, y − μ(x) = g + e with Var e = q (v + σ²), where v + σ² is
//! what the model says and q follows how large residuals are. A Kalman filter is exact for it: with the covariance P of u,
//!
//! ```text
//! P⁻ = a² P + s(1 − a²) I     c = φᵀP⁻φ     u ← a u + P⁻φ r/(c + q(v + σ²))     P ← P⁻ − P⁻φ φᵀP⁻/(c + q(v + σ²))
//! ```
//!
//! The r features φ are a constant, the model's own mean (a change of scale), the coordinates of the row, and a few inducing
//! points among them; they do not depend on grids or hyperparameters.
//!
//! The model and the corrected ones are mixed by `stacking`; a prediction is the Gaussian with the mean and variance of the
//! mixture.
//!
//! **Rest.** While the model has nearly all the weight, predictions are the model's own to the last bit, and the corrections
//! look at two rows in six, one after the other: what a correction that forgets within a few rows is worth shows on the row
//! after one that it has seen. Residuals are clipped at five deviations: an outlier is no change.
//!
//! Cost of a row while they are awake: 4 K r² for each process, with K = 6 and r from 10 to 66; no allocation.

use serde::{Deserialize, Serialize};

use super::filter::{Basis, Coefficients};
use super::learner::RowTargets;
use super::stacking::{check_weights, first_weights, move_weights};
use crate::error::{Error, Result, length};
use crate::likelihood::Softmax;
use crate::posterior::Prediction;
use crate::saved::{Restore, restored_after_reading};

/// After so many rows what a correction has learned has faded to 1/e.
const SPANS: [f64; 3] = [10.0, 100.0, 1000.0];
/// The variance of a correction, as a share of that of the targets.
const SCALES: [f64; 2] = [0.1, 1.0];
/// The step η of the weights.
const RATE: f64 = 0.05;
/// The weight of the model before any row.
const FIRST_WEIGHT: f64 = 0.99;
/// With so much weight on the model, corrections rest ...
const RESTING: f64 = 0.9;
/// ... and look at two rows in so many.
const PERIOD: f64 = 6.0;
/// Beyond so many deviations a residual counts as if it were there, and densities are flat.
const CLIP: f64 = 5.0;
/// How sure the model may be of itself, as a share of the targets' variance: what is smaller is not worth a correction.
const LEAST_VARIANCE: f64 = 4e-4;
/// The length-scale of the inducing points, in deviations. Wide: a correction is smooth.
const WIDTH: f64 = 1.5;
/// The spread q follows residuals over at least so many rows.
const SPREAD_ROWS: f64 = 200.0;

/// One correction: a span ℓ and a scale s.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Correction {
    span: f64,
    scale: f64,
    /// q.
    spread: f64,
    /// For each process.
    each: Vec<Coefficients>,
}

impl Correction {
    /// a and s(1 − a²) after so many rows.
    fn faded(&self, rows: f64) -> (f64, f64) {
        let a = (-rows / self.span).exp();
        (a, self.scale * (1.0 - a * a))
    }
}

/// How far a stream has moved away from what the model learned of all rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// The share of the weight that corrections have: near 0 while the data stay as they are.
    pub weight: f64,
    /// The mean span of these corrections, in rows: how fast the stream changes.
    pub span: f64,
}

/// Corrections of all processes, and their weights.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(crate) struct Corrections {
    basis: Basis,
    all: Vec<Correction>,
    /// The weight of the model, then of each correction.
    #[serde(with = "crate::saved::floats")]
    weights: Vec<f64>,
    /// Rows since the corrections last looked at one.
    passed: f64,
    /// Rows looked at.
    seen: f64,
    /// Whether the row after the one last looked at is to be looked at, too.
    #[serde(default)]
    goes_on: bool,
    #[serde(skip)]
    work: Work,
}

#[derive(Debug, Clone, Default)]
struct Work {
    phi: Vec<f64>,
    /// P⁻φ of each process, one after the other.
    gain: Vec<f64>,
    /// What the model and each corrected one say: one prediction for each process.
    said: Vec<Vec<Prediction>>,
    /// a and s(1 − a²) of each, and c of each process.
    fading: Vec<(f64, f64)>,
    densities: Vec<f64>,
    latents: [Vec<f64>; 4],
}

restored_after_reading!(Corrections);

impl Restore for Corrections {
    fn restore(&mut self) -> Result<()> {
        let size = self.basis.len();
        check_weights("weights of corrections", &self.weights, self.all.len() + 1)?;
        let mut is_sound = self.passed >= 0.0 && self.seen >= 0.0 && self.seen.is_finite();
        for correction in &self.all {
            is_sound &= correction.span > 0.0 && correction.scale > 0.0 && correction.spread > 0.0;
            for own in &correction.each {
                is_sound &= own.are_sound(size)?;
            }
        }
        if is_sound {
            return Ok(());
        }
        Err(Error::Config { field: "corrections".into(), reason: "they are no filter's state".into() })
    }
}

impl Corrections {
    /// For so many processes, whose targets have the given variance, over the coordinates of rows given one after the other;
    /// those before `first` are left out.
    pub(crate) fn new(h: &[f64], dim: usize, first: usize, processes: usize, variance: f64) -> Result<Self> {
        let basis = Basis::new(h, dim, first, WIDTH)?;
        let size = basis.len();
        let pairs = SPANS.iter().flat_map(|&span| SCALES.iter().map(move |&scale| (span, scale * variance)));
        let all: Vec<Correction> = pairs
            .map(|(span, scale)| Correction {
                span,
                scale,
                spread: 1.0,
                each: vec![Coefficients::prior(size, scale); processes],
            })
            .collect();
        let weights = first_weights(all.len() + 1, FIRST_WEIGHT);
        Ok(Self { basis, all, weights, passed: 0.0, seen: 0.0, goes_on: false, work: Work::default() })
    }

    /// Rejects corrections to other processes than those of a model, over other coordinates.
    pub(crate) fn check_fits(&self, dim: usize, processes: usize) -> Result<()> {
        length("coordinates of corrections", dim, self.basis.dim())?;
        self.all.iter().try_for_each(|own| length("corrected processes", processes, own.each.len()))
    }

    /// The same before any row.
    pub(crate) fn cleared(&self) -> Self {
        let size = self.basis.len();
        let mut new = self.clone();
        for correction in &mut new.all {
            correction.spread = 1.0;
            let prior = Coefficients::prior(size, correction.scale);
            correction.each.iter_mut().for_each(|own| own.clone_from(&prior));
        }
        (new.weights, new.passed, new.seen) = (first_weights(self.all.len() + 1, FIRST_WEIGHT), 0.0, 0.0);
        new.goes_on = false;
        new
    }

    /// Makes room for more processes.
    pub(crate) fn extend_to(&mut self, processes: usize) {
        let size = self.basis.len();
        for correction in &mut self.all {
            correction.each.resize_with(processes, || Coefficients::prior(size, correction.scale));
        }
    }

    /// Follows a change of the targets' unit: what was 1 is now 1/`scale`.
    pub(crate) fn rescale(&mut self, scale: f64) {
        for own in self.all.iter_mut().flat_map(|correction| &mut correction.each) {
            own.mean.iter_mut().for_each(|u| *u /= scale);
        }
    }

    /// How far the stream has moved away from the model.
    pub(crate) fn change(&self) -> Change {
        let weight = 1.0 - self.weights[0];
        let spans = self.weights[1..].iter().zip(&self.all).map(|(w, correction)| w * correction.span);
        Change { weight, span: spans.sum::<f64>() / weight.max(f64::MIN_POSITIVE) }
    }

    /// Whether the model has nearly all the weight, and speaks for itself.
    pub(crate) fn rests(&self) -> bool {
        self.weights[0] >= RESTING
    }

    /// Corrects what the processes say about the next row, at coordinates h.
    pub(crate) fn correct(&self, h: &[f64], said: &mut [Prediction]) {
        if self.rests() {
            return;
        }
        let size = self.basis.len();
        let (mut phi, mut gain) = (vec![0.0; size], vec![0.0; size]);
        for (process, prediction) in said.iter_mut().enumerate() {
            self.basis.features(h, prediction.mean, &mut phi);
            let mut mixture = Mixture::default();
            mixture.add(self.weights[0], prediction);
            for (correction, &weight) in self.all.iter().zip(&self.weights[1..]) {
                let (a, grown) = correction.faded(self.passed + 1.0);
                let (shift, c) = correction.each[process].at(&phi, a, grown, &mut gain);
                mixture.add(weight, &corrected(prediction, shift, c, correction.spread));
            }
            *prediction = mixture.matched();
        }
    }

    /// Corrects what the processes said about a row, and learns from what it says.
    pub(crate) fn step(&mut self, h: &[f64], row: &RowTargets, said: &mut [Prediction]) {
        self.passed += 1.0;
        let rests = self.rests();
        if rests && !self.goes_on && self.passed < PERIOD - 1.0 {
            return;
        }
        self.goes_on = rests && !self.goes_on;
        let (size, rows) = (self.basis.len(), self.passed);
        let Work { phi, gain, said: all, fading, densities, latents } = &mut self.work;
        phi.resize(size, 0.0);
        gain.resize(self.all.len() * said.len() * size, 0.0);
        all.resize_with(self.all.len() + 1, Vec::new);
        fading.clear();
        fading.extend(self.all.iter().map(|correction| correction.faded(rows)));
        all.iter_mut().for_each(Vec::clear);
        all[0].extend_from_slice(said);
        for (process, prediction) in said.iter().enumerate() {
            self.basis.features(h, prediction.mean, phi);
            for (k, correction) in self.all.iter().enumerate() {
                let ((a, grown), own) = (fading[k], &correction.each[process]);
                let at = (k * said.len() + process) * size;
                let (shift, c) = own.at(phi, a, grown, &mut gain[at..at + size]);
                all[k + 1].push(corrected(prediction, shift, c, correction.spread));
            }
        }
        if !rests {
            for (process, prediction) in said.iter_mut().enumerate() {
                let mut mixture = Mixture::default();
                all.iter().zip(&self.weights).for_each(|(own, &w)| mixture.add(w, &own[process]));
                *prediction = mixture.matched();
            }
        }
        densities.clear();
        densities.extend(all.iter().map(|own| log_density(own, row, latents)));
        self.seen += 1.0;
        for (k, correction) in self.all.iter_mut().enumerate() {
            let mut surprise = 0.0;
            for (process, target) in row.each.iter().enumerate() {
                let (own, at) = (all[k + 1][process], (k * row.each.len() + process) * size);
                let (total, (a, grown)) = (own.variance + own.noise, fading[k]);
                let z = (target.value - own.mean) / total.sqrt();
                let step = z.clamp(-CLIP, CLIP) / total.sqrt();
                correction.each[process].update(a, grown, &gain[at..at + size], total, step);
                surprise += z.clamp(-CLIP, CLIP).powi(2);
            }
            if row.class.is_none() {
                let rate = (correction.span / rows).max(SPREAD_ROWS).min(self.seen + 20.0).recip();
                correction.spread = (correction.spread * (1.0 + rate * (surprise - 1.0))).clamp(1e-3, 1e3);
            }
        }
        self.passed = 0.0;
        // Awake, a correction has always seen the row before; only then is it judged.
        if rows <= 1.0 {
            move_weights(&mut self.weights, densities, RATE);
        }
    }
}

/// What is said with a correction of the given mean and variance.
fn corrected(prediction: &Prediction, shift: f64, variance: f64, spread: f64) -> Prediction {
    // What the model says is raised to what it may say at least.
    let raised = (LEAST_VARIANCE / (prediction.variance + prediction.noise)).max(1.0);
    Prediction {
        mean: prediction.mean + shift,
        variance: raised * spread * prediction.variance + variance,
        noise: raised * spread * prediction.noise,
    }
}

/// The log density of a row: that of its number, flat beyond five deviations, or the log probability of its class.
fn log_density(said: &[Prediction], row: &RowTargets, latents: &mut [Vec<f64>; 4]) -> f64 {
    if let (Some(class), Some(softmax)) = (row.class, row.softmax) {
        return class_probability(said, class, softmax, latents).max(f64::MIN_POSITIVE).ln();
    }
    let one = |(p, t): (&Prediction, &crate::likelihood::Target)| {
        let total = (p.variance + p.noise).max(LEAST_VARIANCE);
        -0.5 * (((t.value - p.mean).powi(2) / total).min(CLIP * CLIP) + total.ln())
    };
    said.iter().zip(row.each).map(one).sum()
}

fn class_probability(said: &[Prediction], class: usize, softmax: &Softmax, work: &mut [Vec<f64>; 4]) -> f64 {
    let [means, variances, scratch, out] = work;
    means.clear();
    variances.clear();
    means.extend(said.iter().map(|p| p.mean));
    variances.extend(said.iter().map(|p| p.variance));
    out.resize(said.len(), 0.0);
    softmax.probabilities(means, variances, scratch, out);
    out[class]
}

/// The moments of a mixture.
#[derive(Default)]
struct Mixture {
    mean: f64,
    square: f64,
    variance: f64,
    noise: f64,
}

impl Mixture {
    fn add(&mut self, weight: f64, p: &Prediction) {
        self.mean += weight * p.mean;
        self.square += weight * p.mean * p.mean;
        self.variance += weight * p.variance;
        self.noise += weight * p.noise;
    }

    /// The Gaussian with the mean and variance of the mixture.
    fn matched(&self) -> Prediction {
        let apart = (self.square - self.mean * self.mean).max(0.0);
        Prediction { mean: self.mean, variance: self.variance + apart, noise: self.noise }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense;
    use crate::likelihood::Target;
    use crate::simd::dot;

    /// A number in [0, 1) that looks random.
    fn random(i: usize) -> f64 {
        (1e4 * (12.9898 * (i + 1) as f64).sin()).rem_euclid(1.0)
    }

    fn normal(i: usize) -> f64 {
        (0..12).map(|k| random(12 * i + k)).sum::<f64>() - 6.0
    }

    fn rows(count: usize) -> Vec<f64> {
        (0..2 * count).map(|i| 2.0 * random(i) - 1.0).collect()
    }

    fn prediction(mean: f64) -> Prediction {
        Prediction { mean, variance: 0.01, noise: 0.04 }
    }

    /// The filter is the Gaussian process with the kernel s φᵀφ' exp(−|t − t'|/ℓ), gaps between rows and all.
    #[test]
    fn the_filter_is_a_process_of_row_and_time() {
        let h = rows(60);
        let basis = Basis::new(&h, 2, 0, WIDTH).unwrap();
        let (size, span, scale) = (basis.len(), 13.0, 0.7);
        let correction = Correction { span, scale, spread: 1.0, each: Vec::new() };
        let mut own = Coefficients::prior(size, scale);
        let (mut time, mut seen, mut gain) = (0.0, Vec::<(f64, Vec<f64>, f64, f64)>::new(), vec![0.0; size]);
        for (i, h) in h.chunks_exact(2).enumerate() {
            let gap = 1.0 + (i % 3) as f64;
            time += gap;
            let mut phi = vec![0.0; size];
            basis.features(h, 0.3 * h[0], &mut phi);
            let (a, grown) = correction.faded(gap);
            let (mean, variance) = own.at(&phi, a, grown, &mut gain);
            let kernel =
                |t: f64, a: &[f64], u: f64, b: &[f64]| scale * dot(a, b) * (-(t - u).abs() / span).exp();
            let n = seen.len();
            let gram = faer::Mat::from_fn(n, n, |j, k| {
                let noise = if j == k { seen[j].3 } else { 0.0 };
                noise + kernel(seen[j].0, &seen[j].1, seen[k].0, &seen[k].1)
            });
            let across: Vec<f64> = seen.iter().map(|s| kernel(s.0, &s.1, time, &phi)).collect();
            let y: Vec<f64> = seen.iter().map(|s| s.2).collect();
            let reduced = dense::solve_cholesky(dense::cholesky(gram).unwrap().as_ref(), &across);
            let wanted_mean = dot(&reduced, &y);
            let wanted_variance = scale * dot(&phi, &phi) - dot(&reduced, &across);
            // The Gram matrix has a condition number of at most n s/noise < 10³.
            assert!((mean - wanted_mean).abs() < 1e-11, "{mean} {wanted_mean}");
            assert!((variance - wanted_variance).abs() < 1e-11, "{variance} {wanted_variance}");
            let (y, noise) = ((0.1 * time).sin() + 0.2 * normal(i), 0.05 + 0.1 * random(i));
            let total = variance + noise;
            own.update(a, grown, &gain, total, (y - mean) / total);
            seen.push((time, phi, y, noise));
        }
    }

    /// Runs a stream of residuals against a model that says `said`, and returns the sum of squared errors with corrections.
    fn run(
        corrections: &mut Corrections,
        from: usize,
        count: usize,
        truth: impl Fn(usize, &[f64]) -> f64,
    ) -> f64 {
        let h = rows(from + count);
        let mut squares = 0.0;
        for i in from..from + count {
            let h = &h[2 * i..2 * i + 2];
            let target = Target { value: truth(i, h) + 0.2 * normal(i), noise: 1.0 };
            let mut said = [prediction(h[0])];
            let mut before = said;
            corrections.correct(h, &mut before);
            corrections.step(h, &RowTargets::of_value(&target), &mut said);
            if corrections.passed == 0.0 {
                assert!(
                    (before[0].mean - said[0].mean).abs() < 1e-12,
                    "what was said before is what was said"
                );
            }
            squares += (target.value - said[0].mean).powi(2);
        }
        squares
    }

    #[test]
    fn they_rest_while_nothing_changes_and_follow_what_does() {
        let mut corrections = Corrections::new(&rows(500), 2, 0, 1, 1.0).unwrap();
        let still = run(&mut corrections, 0, 2000, |_, h| h[0]);
        let own: f64 = (0..2000).map(|i| (0.2 * normal(i)).powi(2)).sum();
        assert_eq!(still, own, "the model's own predictions to the last bit");
        assert!(corrections.rests() && corrections.change().weight < 0.05);
        // The model says h₀; now 1 − h₀ + h₁ is true.
        run(&mut corrections, 2000, 300, |_, h| 1.0 - h[0] + h[1]);
        let change = corrections.change();
        assert!(change.weight > 0.9 && change.span > 50.0, "{change:?}");
        let error = run(&mut corrections, 2300, 1000, |_, h| 1.0 - h[0] + h[1]) / 1000.0;
        assert!(error < 1.35 * 0.04, "{error} where the noise has 0.04 and the model alone some 2.7");
        // Back to what it was.
        run(&mut corrections, 3300, 3000, |_, h| h[0]);
        assert!(corrections.rests(), "{:?}", corrections.change());
    }

    /// At rest every second row that is looked at comes right after the one before, as all do when awake.
    #[test]
    fn at_rest_they_look_at_neighbors() {
        let mut corrections = Corrections::new(&rows(500), 2, 0, 1, 1.0).unwrap();
        let h = rows(30);
        let mut looked = Vec::new();
        for (i, h) in h.chunks_exact(2).enumerate() {
            let target = Target { value: h[0] + 0.2 * normal(i), noise: 1.0 };
            corrections.step(h, &RowTargets::of_value(&target), &mut [prediction(h[0])]);
            looked.extend((corrections.passed == 0.0).then_some(i));
        }
        assert!(corrections.rests());
        assert_eq!(looked, [4, 5, 10, 11, 16, 17, 22, 23, 28, 29]);
    }

    #[test]
    fn an_outlier_is_no_change() {
        let mut corrections = Corrections::new(&rows(500), 2, 0, 1, 1.0).unwrap();
        run(&mut corrections, 0, 1000, |_, h| h[0]);
        let squares = run(&mut corrections, 1000, 500, |i, h| if i == 1007 { 1e6 } else { h[0] });
        let without = squares - (1e6_f64).powi(2);
        let own: f64 = (1000..1500).map(|i| (0.2 * normal(i)).powi(2)).sum();
        assert!(without.abs() < 1e6, "{without} beside {own}: rounding of 10¹² alone is 10⁻⁴");
        assert!(corrections.rests(), "{:?}", corrections.change());
    }

    #[test]
    fn what_a_file_held_is_checked() {
        let mut corrections = Corrections::new(&rows(100), 2, 0, 1, 1.0).unwrap();
        run(&mut corrections, 0, 50, |_, h| h[0]);
        let bytes = rmp_serde::to_vec_named(&corrections).unwrap();
        let restored: Corrections = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!(restored.weights, corrections.weights);
        corrections.all[0].each[0].covariance[0] = f64::NAN;
        let bytes = rmp_serde::to_vec_named(&corrections).unwrap();
        assert!(rmp_serde::from_slice::<Corrections>(&bytes).is_err());
    }
}
