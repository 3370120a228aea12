//! What the next score will be, as far as the scores before tell: trackers of several kinds, weighted by their losses.
//!
//! Tracker k says log q = θ_k + s_k. θ_k follows the quantile, θ_k ← θ_k + η_k (miss_k − α) by its own misses; s_k is a
//! scale that follows recent scores, the logarithm of (1 − ρ) + ρ e/e₀, where e is an exponential mean of the last few
//! scores and e₀ that of the last five hundred.
//!
//! | k | η | memory of e | ρ | is for |
//! | --- | --- | --- | --- | --- |
//! | 0 | 0.005 (more at first) | – | 0 | scores that do not change |
//! | 1 | 0.05 | – | 0 | scores that drift |
//! | 2 | 0.01 | 10 rows | 0.5 | large scores that come in groups |
//! | 3 | 0.01 | 2 rows | 0.6 | errors that last: a residual much like the one before |
//!
//! The forecast is Σ w_k (θ_k + s_k). A weight grows by the factor 1 + 0.1 (ℓ̄ − ℓ_k)/ℓ₀ with every row, ℓ the pinball
//! loss of log z (proper for the quantile, since quantiles go through any growing function), ℓ̄ its weighted mean and ℓ₀
//! the running mean of that: the rule Prod of Cesa-Bianchi, Mansour and Stoltz (2007), which needs no exponentials. A
//! thousandth goes back to the first weights each time, so that a tracker whose time comes again is heard soon (Herbster
//! and Warmuth 1998).

use serde::{Deserialize, Serialize};

/// The number of trackers.
const TRACKERS: usize = 4;

/// The steps η.
const RATES: [f64; TRACKERS] = [0.005, 0.05, 0.01, 0.01];

/// The first weights.
const FIRST: [f64; TRACKERS] = [0.7, 0.1, 0.1, 0.1];

/// How much of the newest score goes into e, and how much e says, for the trackers that have a scale.
const SMOOTHING: [f64; 2] = [0.1, 0.6];
const SHARE: [f64; 2] = [0.5, 0.6];

/// The same for e₀.
const SLOW: f64 = 0.002;

/// How much weights learn from a row, the most by which they change, and how much goes back to the first ones.
const LEARNING: f64 = 0.1;
const MOST: f64 = 0.5;
const RETURN: f64 = 1e-3;

/// A mean of scores is not taken below this.
const LEAST: f64 = 0.01;

/// One wild score counts as so many times the mean at most.
const WILD: f64 = 10.0;

/// How large scores are, lately and by and by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Scales {
    pub(super) rows: f64,
    slow: f64,
    fast: [f64; 2],
    /// The logarithms s_k.
    #[serde(skip)]
    shifts: [f64; TRACKERS],
    /// The step of the first tracker: as for a mean of the rows so far, until that is small.
    #[serde(skip)]
    first_rate: f64,
}

impl Scales {
    /// Before any score, whose mean is expected to be so large.
    pub(super) fn new(mean: f64) -> Self {
        let mut new =
            Self { rows: 0.0, slow: mean, fast: [mean; 2], shifts: [0.0; TRACKERS], first_rate: 0.0 };
        new.refresh();
        new
    }

    /// Takes in a score.
    pub(super) fn observe(&mut self, score: f64) {
        self.rows += 1.0;
        let score = score.max(LEAST).min(WILD * self.slow);
        // A plain mean as long as that is shorter.
        self.slow += SLOW.max(1.0 / (self.rows + 50.0)) * (score - self.slow);
        for (fast, smoothing) in self.fast.iter_mut().zip(SMOOTHING) {
            *fast += smoothing * (score - *fast);
        }
        self.refresh();
    }

    /// Computes what files do not hold.
    pub(super) fn refresh(&mut self) {
        self.first_rate = RATES[0].max(4.0 / (self.rows + 200.0));
        let inverse = self.slow.recip();
        for i in 0..2 {
            let ratio = self.fast[i] * inverse;
            self.shifts[TRACKERS - 2 + i] = ((1.0 - SHARE[i]) + SHARE[i] * ratio).ln();
        }
    }

    /// Takes in the scores of another stream; `share` is its share of all rows.
    pub(super) fn merge(&mut self, other: &Self, share: f64) {
        self.rows += other.rows;
        mix(&mut self.slow, other.slow, share);
        self.fast.iter_mut().zip(other.fast).for_each(|(own, theirs)| mix(own, theirs, share));
        self.refresh();
    }

    pub(super) fn is_sound(&self) -> bool {
        let means = [self.slow, self.fast[0], self.fast[1]];
        self.rows >= 0.0 && self.rows.is_finite() && means.iter().all(|m| (0.99 * LEAST..1e9).contains(m))
    }
}

/// The forecast of one quantile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Forecast {
    trackers: [f64; TRACKERS],
    weights: [f64; TRACKERS],
    loss: f64,
    /// What each tracker says about the row to come, within the range.
    #[serde(skip)]
    said: [f64; TRACKERS],
}

impl Forecast {
    /// All trackers begin with the same logarithm of q.
    pub(super) fn new(log_quantile: f64) -> Self {
        let all = [log_quantile; TRACKERS];
        Self { trackers: all, weights: FIRST, loss: 0.1, said: all }
    }

    /// The logarithm of q for the row to come, within a range.
    pub(super) fn value(&mut self, scales: &Scales, range: (f64, f64)) -> f64 {
        let mut value = 0.0;
        for k in 0..TRACKERS {
            self.said[k] = within(self.trackers[k] + scales.shifts[k], range);
            value += self.weights[k] * self.said[k];
        }
        value
    }

    /// The logarithm of q for rows far ahead, of which recent scores say nothing.
    pub(super) fn steady(&self) -> f64 {
        self.trackers[0]
    }

    /// Takes in the logarithm of the score for which [`Forecast::value`] was the forecast.
    pub(super) fn observe(&mut self, score: f64, alpha: f64, scales: &Scales, range: (f64, f64)) {
        let score = within(score, range);
        let mut rates = RATES;
        rates[0] = scales.first_rate;
        let (mut losses, mut mean) = ([0.0; TRACKERS], 0.0);
        for k in 0..TRACKERS {
            let step = f64::from(u8::from(score > self.said[k])) - alpha;
            losses[k] = (score - self.said[k]) * step;
            mean += self.weights[k] * losses[k];
            self.trackers[k] = within(self.trackers[k] + rates[k] * step, range);
        }
        self.loss += SLOW * (mean - self.loss);
        let learning = LEARNING / self.loss.max(1e-6);
        let mut sum = 0.0;
        for k in 0..TRACKERS {
            self.weights[k] *= 1.0 + within(learning * (mean - losses[k]), (-MOST, MOST));
            sum += self.weights[k];
        }
        // The sum stays at one by itself, but for rounding and changes that were cut.
        let kept = if (sum - 1.0).abs() < 1e-13 { 1.0 - RETURN } else { (1.0 - RETURN) / sum };
        for k in 0..TRACKERS {
            self.weights[k] = kept * self.weights[k] + RETURN * FIRST[k];
        }
    }

    /// Takes in the state of another stream; `share` is its share of all rows.
    pub(super) fn merge(&mut self, other: &Self, share: f64) {
        for k in 0..TRACKERS {
            mix(&mut self.trackers[k], other.trackers[k], share);
            mix(&mut self.weights[k], other.weights[k], share);
        }
        mix(&mut self.loss, other.loss, share);
    }

    pub(super) fn is_sound(&self, range: (f64, f64)) -> bool {
        let within = |t: &f64| *t >= range.0 - 1e-9 && *t <= range.1 + 1e-9;
        let sum: f64 = self.weights.iter().sum();
        self.trackers.iter().all(within)
            && self.weights.iter().all(|w| *w >= 0.0)
            && (sum - 1.0).abs() < 1e-6
            && (0.0..1e9).contains(&self.loss)
    }
}

/// A value brought into a range.
fn within(value: f64, range: (f64, f64)) -> f64 {
    // Two instructions; `clamp` and `max` would also look for NaN, which does not come here.
    let value = if value < range.0 { range.0 } else { value };
    if value > range.1 { range.1 } else { value }
}

/// A mean of two values.
pub(super) fn mix(own: &mut f64, theirs: f64, share: f64) {
    *own += share * (theirs - *own);
}
