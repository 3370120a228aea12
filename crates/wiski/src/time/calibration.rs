//! How far off forecasts were, by horizon: what the width of intervals is corrected by.
//!
//! Forecasts from earlier rows are compared with what came. Their errors in units of the predicted deviation, z = e/σ_h,
//! are kept for ranges of horizons that widen by √2, the newest hundred of each. The quantile of |z| at a level,
//! against the Gaussian one, is the factor of an interval's width; of few stretches it is that of Student's t with their
//! spread. Errors of forecasts that overlap say nearly the same, so the factor is trusted by the number m of stretches of
//! length h that were compared, w = m/(m + 4). For the rest it is √(1 + 2/s) with s the stretches that the model was learned
//! from: changes over a length that was seen s times have a variance that is not known better than that. On top of that
//! stands a correction that rises with every miss at 95 % and falls without, so that over a long stream as many are
//! missed as promised (Gibbs and Candès 2021; `conformal` does the same one row ahead). Far ahead the news comes late:
//! a bad week is over before the width knows of it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::normal;

/// The most errors kept for each range of horizons.
const MOST: usize = 128;
/// Of each forecast about so many errors in a range are kept.
const OF_EACH: f64 = 4.0;
/// Stretches after which half of the correction is believed.
const HALF: f64 = 4.0;
/// The same for one that makes intervals narrower, which takes more to believe.
const HALF_NARROWER: f64 = 24.0;
/// The level at which misses are counted, and how far a stretch of them moves the width.
const REFERENCE: f64 = 0.95;
const RATE: f64 = 0.4;
/// Misses are kept to this share of what is allowed: the next stretch will differ from those seen.
const SAFETY: f64 = 0.8;
const LARGEST: f64 = 1.0;
const SMALLEST: f64 = 0.2;
/// Corrections beyond these are not believed.
const RANGE: (f64, f64) = (0.5, 4.0);

/// The errors at some horizons.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Range {
    /// |z|, newest last.
    scores: VecDeque<f64>,
    /// How many stretches as long as the horizon they come from.
    stretches: f64,
    /// The logarithm of a factor that rises with every miss and falls without.
    correction: f64,
    /// The sum of e² in the unit of the target, and how many there are: what models are compared by.
    squares: f64,
    count: f64,
}

/// The errors of forecasts by horizon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Calibration {
    ranges: Vec<Range>,
    /// The deviation that a forecast has at each horizon, from one step on.
    deviations: Vec<f64>,
    /// How many steps the model was learned from.
    span: f64,
}

/// The range of horizons that h steps belong to: 1, 2, 3, 4–5, 6–7, 8–11, …
pub(super) fn range(h: usize) -> usize {
    if h < 3 { h - 1 } else { (2.0 * (h as f64).log2() - 1.0).round() as usize }
}

/// About a third of the horizons up to h share its range.
pub(super) fn width(h: usize) -> f64 {
    (0.35 * 2f64.powf(0.5 * (range(h) as f64 + 1.0))).max(1.0)
}

impl Calibration {
    /// No errors yet, for forecasts with these deviations from one step on, of a model learned from so many steps.
    pub(super) fn new(deviations: Vec<f64>, span: f64) -> Self {
        let ranges = if deviations.is_empty() { 0 } else { range(deviations.len()) + 1 };
        Self { ranges: vec![Range::default(); ranges], deviations, span }
    }

    /// What counts as a miss in each range, in deviations.
    pub(super) fn thresholds(&self) -> Vec<f64> {
        let middle = |k: usize| 2f64.powf(0.5 * (k as f64 + 1.0)).round() as usize;
        (0..self.ranges.len()).map(|k| self.quantile(middle(k).max(1), REFERENCE)).collect()
    }

    /// How many steps ahead forecasts are compared.
    pub(super) fn horizon(&self) -> usize {
        self.deviations.len()
    }

    /// The deviation that a forecast has at a horizon, if so far ahead is compared.
    pub(super) fn deviation(&self, h: usize) -> Option<f64> {
        self.deviations.get(h - 1).copied()
    }

    /// Takes note of how far off a forecast h steps ahead was, in the unit of the target.
    pub(super) fn miss(&mut self, h: usize, error: f64) {
        if h <= self.deviations.len() {
            let range = &mut self.ranges[range(h)];
            range.squares += error * error;
            range.count += 1.0;
        }
    }

    /// Learns the error of a forecast h steps ahead that has a deviation; `apart` is the number of steps between two forecasts
    /// that are compared, and `thresholds` are those of before the forecast was.
    pub(super) fn learn(&mut self, h: usize, error: f64, deviation: f64, apart: usize, thresholds: &[f64]) {
        if h > self.deviations.len() {
            return;
        }
        let place = range(h);
        let range = &mut self.ranges[place];
        // Neighbors among the horizons of a range say the same, so a few are kept.
        let width = width(h);
        let every = (width / OF_EACH).floor().max(1.0);
        if !h.is_multiple_of(every as usize) {
            return;
        }
        let score = (error / deviation).abs().min(1e6);
        let missed = f64::from(u8::from(score > thresholds[place])) - SAFETY * (1.0 - REFERENCE);
        let new = (apart as f64 / h as f64).min(1.0) * every / width;
        range.correction = (range.correction + RATE * new * missed).clamp(-SMALLEST, LARGEST);
        if range.scores.len() == MOST {
            range.scores.pop_front();
        }
        range.scores.push_back(score);
        range.stretches = (range.stretches + new).min(200.0);
    }

    /// The mean over ranges of the log mean square error: what competing models are compared by.
    pub(super) fn loss(&self) -> Option<f64> {
        let each = self.ranges.iter().filter(|r| r.count > 0.0);
        let logs: Vec<f64> = each.map(|r| (r.squares / r.count).max(1e-300).ln()).collect();
        (!logs.is_empty()).then(|| logs.iter().sum::<f64>() / logs.len() as f64)
    }

    /// The factor of an interval's half-width in deviations at a horizon, `quantile` for a Gaussian.
    pub(super) fn quantile(&self, h: usize, level: f64) -> f64 {
        let gaussian = normal::quantile(0.5 + 0.5 * level);
        let unknown = 0.5 * (1.0 + 2.0 * h as f64 / self.span.max(h as f64)).ln();
        if self.ranges.is_empty() {
            return gaussian * unknown.exp();
        }
        let place = range(h.max(1)).min(self.ranges.len() - 1);
        // A range and its neighbors together: their factors differ little, and there are more errors.
        let (mut log, mut weight) = (0.0, 0.0);
        for (k, share) in [(place.wrapping_sub(1), 0.5), (place, 1.0), (place + 1, 0.5)] {
            let Some(range) = self.ranges.get(k).filter(|r| !r.scores.is_empty()) else { continue };
            let factor = (range.quantile(level, gaussian) / gaussian).clamp(RANGE.0, RANGE.1).ln();
            let half = if factor > unknown { HALF } else { HALF_NARROWER };
            let trust = range.stretches / (range.stretches + half);
            log += share * (trust * factor + (1.0 - trust) * unknown + range.correction);
            weight += share;
        }
        gaussian * if weight > 0.0 { log / weight } else { unknown }.exp()
    }
}

impl Range {
    fn quantile(&self, level: f64, gaussian: f64) -> f64 {
        let mut sorted: Vec<f64> = self.scores.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        // Where few stretches were seen, their spread says more than their extremes.
        let n = sorted.len() as f64;
        let spread = (sorted.iter().map(|z| z * z).sum::<f64>() / n).sqrt();
        let by_spread = student(gaussian, self.stretches) * spread;
        if self.stretches * (1.0 - level) < 1.0 {
            return by_spread;
        }
        let level = 1.0 - SAFETY * (1.0 - level);
        let place = ((level * (n + 1.0)).ceil() as usize).clamp(1, sorted.len());
        sorted[place - 1].max(by_spread)
    }
}

/// The quantile of Student's t where the Gaussian has z, for a spread known from so many stretches (the first two terms of
/// Cornish and Fisher's expansion).
fn student(z: f64, stretches: f64) -> f64 {
    let (n, z2) = (stretches.max(3.0), z * z);
    z * (1.0 + (z2 + 1.0) / (4.0 * n) + ((5.0 * z2 + 16.0) * z2 + 3.0) / (96.0 * n * n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_rise_with_the_horizon() {
        let of: Vec<usize> = (1..=12).map(range).collect();
        assert!(of.windows(2).all(|w| w[1] == w[0] || w[1] == w[0] + 1), "{of:?}");
        assert_eq!(of[0], 0);
    }

    /// Quantiles of Student's t at .975, from tables.
    #[test]
    fn a_spread_of_few_stretches_is_not_known() {
        let gaussian = normal::quantile(0.975);
        for (n, t) in [(5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (200.0, 1.972)] {
            assert!((student(gaussian, n) / t - 1.0).abs() < 0.01, "{n}: {}", student(gaussian, n));
        }
    }

    #[test]
    fn widths_follow_the_errors_where_there_are_many() {
        let mut c = Calibration::new(vec![1.0; 8], 1e9);
        for i in 0..400 {
            let thresholds = c.thresholds();
            for h in 1..=8 {
                // Errors twice as large as predicted, spread as a Gaussian.
                let z = normal::quantile((f64::from(i * 181 % 400) + 0.5) / 400.0);
                c.miss(h, 2.0 * z);
                c.learn(h, 2.0 * z, 1.0, 4, &thresholds);
            }
        }
        for h in [1, 3, 8] {
            let factor = c.quantile(h, 0.95) / normal::quantile(0.975);
            assert!((factor - 2.0).abs() < 0.25, "{h}: {factor}");
        }
        let none = Calibration::new(vec![1.0; 8], 1e9);
        assert!((none.quantile(4, 0.95) / normal::quantile(0.975) - 1.0).abs() < 1e-6);
        assert!((c.loss().unwrap() - 4f64.ln()).abs() < 0.05);
    }
}
