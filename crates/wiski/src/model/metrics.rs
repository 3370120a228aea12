//! Running figures of a stream: how good were the predictions made before each target was seen?

use crate::conformal::Interval;
use crate::posterior::Prediction;
use serde::{Deserialize, Serialize};

/// Half the width of a 95 % interval, in standard deviations.
pub const Z95: f64 = 1.959_963_984_540_054;

/// Prequential figures: every prediction was made before its target was learned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Prequential {
    rows: f64,
    squared: f64,
    negative_log: f64,
    covered: f64,
    #[serde(default)]
    intervals: Coverage,
}

/// Rows in a window of [`Coverage`].
const WINDOW: f64 = 1000.0;

/// How often targets lay in the intervals (or classes in the sets) that were said for them, in all and in windows of 1,000
/// rows, and how wide (or large) these were.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    rows: f64,
    inside: f64,
    size: f64,
    /// Of the window that is not full yet.
    open_rows: f64,
    open_inside: f64,
    windows: f64,
    lowest: f64,
    highest: f64,
}

impl Default for Coverage {
    fn default() -> Self {
        let (rows, inside, size, open_rows, open_inside, windows) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        Self { rows, inside, size, open_rows, open_inside, windows, lowest: 1.0, highest: 0.0 }
    }
}

impl Coverage {
    /// Takes in whether a target lay inside, and how wide the interval or how large the set was.
    pub fn record(&mut self, inside: bool, size: f64) {
        let inside = f64::from(u8::from(inside));
        self.rows += 1.0;
        self.inside += inside;
        self.size += size;
        self.open_rows += 1.0;
        self.open_inside += inside;
        if self.open_rows == WINDOW {
            let share = self.open_inside / WINDOW;
            self.windows += 1.0;
            (self.lowest, self.highest) = (self.lowest.min(share), self.highest.max(share));
            (self.open_rows, self.open_inside) = (0.0, 0.0);
        }
    }

    /// Takes in the figures of another stream. Of windows that are not full, this one's goes on.
    pub fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.inside += other.inside;
        self.size += other.size;
        self.windows += other.windows;
        (self.lowest, self.highest) = (self.lowest.min(other.lowest), self.highest.max(other.highest));
    }

    /// The number of rows.
    pub fn rows(&self) -> f64 {
        self.rows
    }

    /// The share of rows that lay inside (NaN before the first).
    pub fn share(&self) -> f64 {
        self.inside / self.rows
    }

    /// The mean width of the intervals, or the mean number of classes in the sets.
    pub fn mean_size(&self) -> f64 {
        self.size / self.rows
    }

    /// The lowest and the highest share of a window of 1,000 rows, once there is a full one.
    pub fn windows(&self) -> Option<(f64, f64)> {
        (self.windows > 0.0).then_some((self.lowest, self.highest))
    }
}

impl Prequential {
    /// Takes in one prediction and the target that followed.
    pub fn record(&mut self, prediction: &Prediction, y: f64) {
        self.record_with(prediction, y, prediction.log_density(y));
    }

    /// As [`Prequential::record`], with the log density that the model said for the target.
    pub fn record_with(&mut self, prediction: &Prediction, y: f64, log_density: f64) {
        self.rows += 1.0;
        self.squared += (y - prediction.mean).powi(2);
        self.negative_log -= log_density;
        self.covered += f64::from(u8::from((y - prediction.mean).abs() <= Z95 * prediction.std()));
    }

    /// Takes in the interval that was said for a target.
    pub fn record_interval(&mut self, interval: &Interval, y: f64) {
        self.intervals.record(interval.contains(y), interval.width());
    }

    /// Takes in the figures of another stream.
    pub fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.squared += other.squared;
        self.negative_log += other.negative_log;
        self.covered += other.covered;
        self.intervals.merge(&other.intervals);
    }

    /// How often targets lay in the intervals that were said for them, at the level of
    /// [`Intervals`](super::Intervals).
    pub fn intervals(&self) -> &Coverage {
        &self.intervals
    }

    /// The number of predictions.
    pub fn rows(&self) -> f64 {
        self.rows
    }

    /// The root mean squared error (NaN before the first prediction).
    pub fn rmse(&self) -> f64 {
        (self.squared / self.rows).sqrt()
    }

    /// The mean negative log density.
    pub fn nll(&self) -> f64 {
        self.negative_log / self.rows
    }

    /// The share of targets inside the Gaussian interval at 95 %.
    pub fn coverage95(&self) -> f64 {
        self.covered / self.rows
    }
}

/// Prequential figures of a classifier: every prediction was made before its label was learned.
///
/// A row whose class was not known at the time counts as wrong; it has no log-loss, as its class had no
/// probability.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PrequentialClasses {
    rows: f64,
    correct: f64,
    scored: f64,
    log_loss: f64,
    #[serde(default)]
    sets: Coverage,
    #[serde(default)]
    reliability: [ConfidenceBin; BINS],
}

/// The bins of confidence, from 0 to 1.
const BINS: usize = 10;

/// Predictions whose likeliest class had a probability within a tenth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceBin {
    /// The number of predictions.
    pub rows: f64,
    /// The sum of the probabilities of their likeliest classes.
    pub confidence: f64,
    /// How many of them were right.
    pub correct: f64,
}

impl PrequentialClasses {
    /// Takes in the class probabilities, the class said to be likeliest, and the class that followed (`None` if
    /// it was not known).
    pub fn record(&mut self, probabilities: &[f64], best: usize, class: Option<usize>) {
        self.rows += 1.0;
        self.correct += f64::from(u8::from(class == Some(best)));
        if let Some(p) = class.and_then(|c| probabilities.get(c)) {
            self.scored += 1.0;
            self.log_loss -= p.max(f64::MIN_POSITIVE).ln();
        }
        if let Some(&confidence) = probabilities.get(best) {
            let bin = &mut self.reliability[((confidence * BINS as f64) as usize).min(BINS - 1)];
            bin.rows += 1.0;
            bin.confidence += confidence;
            bin.correct += f64::from(u8::from(class == Some(best)));
        }
    }

    /// Takes in the figures of another stream.
    pub fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.correct += other.correct;
        self.scored += other.scored;
        self.log_loss += other.log_loss;
        self.sets.merge(&other.sets);
        for (own, theirs) in self.reliability.iter_mut().zip(&other.reliability) {
            own.rows += theirs.rows;
            own.confidence += theirs.confidence;
            own.correct += theirs.correct;
        }
    }

    /// Takes in whether the class that followed was in the set that was said for it, and how many classes that had.
    pub fn record_set(&mut self, inside: bool, classes: usize) {
        self.sets.record(inside, classes as f64);
    }

    /// How often classes were in the sets that were said for them, at the level of [`Intervals`](super::Intervals).
    pub fn sets(&self) -> &Coverage {
        &self.sets
    }

    /// The number of predictions.
    pub fn rows(&self) -> f64 {
        self.rows
    }

    /// The share of rows whose class was said to be the likeliest (NaN before the first prediction).
    pub fn accuracy(&self) -> f64 {
        self.correct / self.rows
    }

    /// The mean of −log of the probability of the class that followed.
    pub fn log_loss(&self) -> f64 {
        self.log_loss / self.scored
    }

    /// How often the likeliest class was right, by how probable it was said to be: ten bins from 0 to 1.
    pub fn reliability(&self) -> &[ConfidenceBin] {
        &self.reliability
    }

    /// The expected calibration error: the mean distance, over rows, between how probable the likeliest class was said
    /// to be and how often it was right, in ten bins (Guo et al., *On Calibration of Modern Neural Networks*, 2017).
    pub fn calibration_error(&self) -> f64 {
        let off: f64 = self.reliability.iter().map(|bin| (bin.confidence - bin.correct).abs()).sum();
        off / self.reliability.iter().map(|bin| bin.rows).sum::<f64>()
    }
}

/// Notices when predictions become worse than they say they are: Page and Hinkley's test on squared
/// standardized residuals, which have mean one while the model holds.
///
/// ```
/// use wiski::model::DriftDetector;
/// let mut detector = DriftDetector::default();
/// assert!((0..1000).all(|i| !detector.record(if i % 2 == 0 { 1.0 } else { -1.0 })));
/// assert!((0..100).any(|_| detector.record(4.0)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DriftDetector {
    /// By how much the mean of squared residuals may exceed one without being drift.
    pub slack: f64,
    /// The excess, summed over rows, at which drift is signalled.
    pub threshold: f64,
    sum: f64,
    lowest: f64,
}

impl Default for DriftDetector {
    /// Signals after some tens of rows with twice the expected spread; about one false alarm in a million
    /// rows of Gaussian residuals.
    fn default() -> Self {
        Self { slack: 0.25, threshold: 60.0, sum: 0.0, lowest: 0.0 }
    }
}

impl DriftDetector {
    /// Takes in a standardized residual; true when drift is signalled, after which it starts anew.
    pub fn record(&mut self, residual: f64) -> bool {
        // One wild row is an outlier, not drift: its weight is limited.
        self.sum += (residual * residual).min(16.0) - 1.0 - self.slack;
        self.lowest = self.lowest.min(self.sum);
        let drift = self.sum - self.lowest > self.threshold;
        if drift {
            (self.sum, self.lowest) = (0.0, 0.0);
        }
        drift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_known_predictions() {
        let mut m = Prequential::default();
        let p = |mean| Prediction { mean, variance: 0.5, noise: 0.5 };
        m.record(&p(0.0), 1.0);
        m.record(&p(0.0), -3.0);
        assert_eq!(m.rows(), 2.0);
        assert!((m.rmse() - 5f64.sqrt()).abs() < 1e-15);
        let want = 0.5 * std::f64::consts::TAU.ln() + 0.25 * (1.0 + 9.0);
        assert!((m.nll() - want).abs() < 1e-14);
        assert_eq!(m.coverage95(), 0.5);
    }

    #[test]
    fn coverage_in_all_and_by_windows() {
        let mut coverage = Coverage::default();
        for row in 0..2500 {
            coverage.record(row % if row < 1000 { 10 } else { 5 } != 0, if row < 1250 { 1.0 } else { 3.0 });
        }
        assert_eq!(coverage.windows(), Some((0.8, 0.9)));
        assert_eq!((coverage.rows(), coverage.share(), coverage.mean_size()), (2500.0, 0.84, 2.0));
        let mut other = Coverage::default();
        assert_eq!(other.windows(), None);
        (0..1000).for_each(|row| other.record(row < 500, 5.0));
        other.merge(&coverage);
        assert_eq!((other.rows(), other.windows()), (3500.0, Some((0.5, 0.9))));
        assert!((other.share() - 2600.0 / 3500.0).abs() < 1e-15);
    }

    #[test]
    fn figures_of_known_class_probabilities() {
        let mut m = PrequentialClasses::default();
        m.record(&[0.25, 0.75], 1, Some(1));
        m.record(&[0.5, 0.5], 0, Some(1));
        m.record(&[0.5, 0.5], 0, None);
        assert_eq!(m.rows(), 3.0);
        assert_eq!(m.accuracy(), 1.0 / 3.0);
        assert!((m.log_loss() + 0.5 * (0.75f64.ln() + 0.5f64.ln())).abs() < 1e-15);
    }

    #[test]
    fn gaussian_residuals_raise_no_alarm_and_a_changed_scale_does() {
        use rand::{RngExt, SeedableRng};
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
        let mut detector = DriftDetector::default();
        let mut normal = || -> f64 { rng.sample(rand_distr::StandardNormal) };
        assert_eq!((0..1_000_000).filter(|_| detector.record(normal())).count(), 0);
        let after = (1..1000).find(|_| detector.record(2.0 * normal())).unwrap();
        assert!(after < 100, "{after} rows until a doubled spread is seen");
    }
}
