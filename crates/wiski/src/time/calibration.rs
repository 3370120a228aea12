//! How far off forecasts were, by horizon: what the width of intervals is corrected by.
//!
//! Forecasts from earlier rows are compared with what came. Their errors in units of the predicted deviation, z = e/σ_h,
//! are kept for ranges of horizons that widen by √2, the newest few hundred of each. The quantile of |z| at a level,
//! against the Gaussian one, is the factor of an interval's width. Errors of forecasts that overlap say nearly the same,
//! so the factor is trusted by the number of stretches of length h that were seen, w = m/(m + 4), and is otherwise one:
//! far ahead, where little can be checked, the interval is the model's own. What feeds back is how often forecasts missed,
//! as in `conformal`; unlike there, no promise holds for every stream, since errors h rows apart come late.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::normal;

/// The most errors kept for each range of horizons.
const MOST: usize = 512;
/// Stretches after which half of the correction is believed.
const HALF: f64 = 4.0;
/// Corrections beyond these are not believed.
const RANGE: (f64, f64) = (0.5, 4.0);

/// The errors at some horizons.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Range {
    /// |z|, newest last.
    scores: VecDeque<f64>,
    /// How many stretches as long as the horizon they come from.
    stretches: f64,
    /// The sum of log e² and how many there are, since the last reset: what models are compared by.
    squares: f64,
    count: f64,
}

/// The errors of forecasts by horizon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Calibration {
    ranges: Vec<Range>,
    /// The deviation that a forecast has at each horizon, from one step on.
    deviations: Vec<f64>,
}

/// The range of horizons that h steps belong to: 1, 2, 3, 4–5, 6–7, 8–11, …
fn range(h: usize) -> usize {
    if h < 3 { h - 1 } else { (2.0 * (h as f64).log2() - 1.0).round() as usize }
}

impl Calibration {
    /// No errors yet, for forecasts with these deviations from one step on.
    pub(super) fn new(deviations: Vec<f64>) -> Self {
        let ranges = if deviations.is_empty() { 0 } else { range(deviations.len()) + 1 };
        Self { ranges: vec![Range::default(); ranges], deviations }
    }

    /// How many steps ahead forecasts are compared.
    pub(super) fn horizon(&self) -> usize {
        self.deviations.len()
    }

    /// Learns the error of a forecast h steps ahead; `apart` is the number of steps between two forecasts that are
    /// compared.
    pub(super) fn learn(&mut self, h: usize, error: f64, apart: usize) {
        let Some(&deviation) = self.deviations.get(h - 1) else { return };
        let range = &mut self.ranges[range(h)];
        if range.scores.len() == MOST {
            range.scores.pop_front();
        }
        range.scores.push_back((error / deviation).abs().min(1e6));
        // About a third of the horizons up to h share its range.
        let new = (apart as f64 / h as f64).min(1.0) / (0.35 * h as f64).max(1.0);
        range.stretches = (range.stretches + new).min(200.0);
        range.squares += error * error;
        range.count += 1.0;
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
        if self.ranges.is_empty() {
            return gaussian;
        }
        let place = range(h.max(1)).min(self.ranges.len() - 1);
        // A range and its neighbors together: their factors differ little, and there are more errors.
        let (mut log, mut weight) = (0.0, 0.0);
        for (k, share) in [(place.wrapping_sub(1), 0.5), (place, 1.0), (place + 1, 0.5)] {
            let Some(range) = self.ranges.get(k).filter(|r| !r.scores.is_empty()) else { continue };
            let trust = range.stretches / (range.stretches + HALF);
            log += share * trust * (range.quantile(level, gaussian) / gaussian).clamp(RANGE.0, RANGE.1).ln();
            weight += share;
        }
        gaussian * if weight > 0.0 { (log / weight).exp() } else { 1.0 }
    }
}

impl Range {
    fn quantile(&self, level: f64, gaussian: f64) -> f64 {
        let mut sorted: Vec<f64> = self.scores.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        // Where few stretches were seen, their spread says more than their extremes.
        let n = sorted.len() as f64;
        if self.stretches * (1.0 - level) < 1.0 {
            return gaussian * (sorted.iter().map(|z| z * z).sum::<f64>() / n).sqrt();
        }
        let place = ((level * (n + 1.0)).ceil() as usize).clamp(1, sorted.len());
        sorted[place - 1]
    }
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

    #[test]
    fn widths_follow_the_errors_where_there_are_many() {
        let mut c = Calibration::new(vec![1.0; 8]);
        for i in 0..400 {
            for h in 1..=8 {
                // Errors twice as large as predicted, spread as a Gaussian.
                let z = normal::quantile((f64::from(i * 181 % 400) + 0.5) / 400.0);
                c.learn(h, 2.0 * z, 4);
            }
        }
        for h in [1, 3, 8] {
            let factor = c.quantile(h, 0.95) / normal::quantile(0.975);
            assert!((factor - 2.0).abs() < 0.25, "{h}: {factor}");
        }
        let none = Calibration::new(vec![1.0; 8]);
        assert_eq!(none.quantile(4, 0.95), normal::quantile(0.975));
        assert!((c.loss().unwrap() - 4f64.ln()).abs() < 0.05);
    }
}
