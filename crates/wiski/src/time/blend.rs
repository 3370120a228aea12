//! Two models of one series side by side, weighted by how far off each of them was at a horizon.
//!
//! Of two forecasts with errors a and b, the combination with the error w a + (1 − w) b has the least mean square at
//! w = (E b² − E ab)/E (a − b)² (Bates and Granger 1969). Where few stretches as long as the horizon were seen, w is that of
//! errors that have nothing to do with each other, E b²/(E a² + E b²), which lies closer to the middle. Both are between 0
//! and 1. A model of lags is often better one step ahead, one of level and waves farther ahead: each horizon has its own w.
//!
//! Since (w a + (1 − w) b)² = w a² + (1 − w) b² − w (1 − w)(a − b)², the combination has the variance
//! w σₐ² + (1 − w) σ_b² − w (1 − w) D, where D is the mean square by which the two differed.

use serde::{Deserialize, Serialize};

use super::calibration::range;

/// Stretches after which half of a correlation is believed.
const HALF: f64 = 8.0;
/// As many stretches count: older ones fade.
const MEMORY: f64 = 500.0;
/// A variance is not believed to be less than this share of the smaller one of the two.
const LEAST: f64 = 0.3;

/// Sums over errors at some horizons.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Sums {
    first: f64,
    second: f64,
    product: f64,
    count: f64,
    /// How many stretches as long as the horizon they come from.
    stretches: f64,
}

/// The weights of two forecasts by horizon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Blend {
    ranges: Vec<Sums>,
}

/// The weight of the first forecast, and by how much the two differ in the mean square.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Weight {
    pub(super) first: f64,
    pub(super) apart: f64,
}

impl Weight {
    /// The first forecast alone, or the second.
    pub(super) fn alone(first: bool) -> Self {
        Self { first: f64::from(u8::from(first)), apart: 0.0 }
    }

    pub(super) fn mean(self, first: f64, second: f64) -> f64 {
        self.first * first + (1.0 - self.first) * second
    }

    /// The variance of the combination, from those of the two.
    pub(super) fn variance(self, first: f64, second: f64) -> f64 {
        let ambiguity = self.first * (1.0 - self.first) * self.apart;
        (self.mean(first, second) - ambiguity).max(LEAST * first.min(second))
    }
}

impl Blend {
    /// Learns the errors of both forecasts h steps ahead, which are `stretches` of news.
    pub(super) fn learn(&mut self, h: usize, first: f64, second: f64, stretches: f64) {
        let place = range(h);
        if self.ranges.len() <= place {
            self.ranges.resize(place + 1, Sums::default());
        }
        let sums = &mut self.ranges[place];
        let total = sums.stretches + stretches;
        if total > MEMORY {
            sums.fade(MEMORY / total);
        }
        sums.add(&Sums {
            first: first * first,
            second: second * second,
            product: first * second,
            count: 1.0,
            stretches,
        });
    }

    /// The weight at a horizon: that of its range and the two beside it, or of the last one that is known. One step ahead says nothing
    /// of what is beyond it: which model is better there is another question.
    pub(super) fn weight(&self, h: usize) -> Weight {
        let Some(last) = self.ranges.len().checked_sub(1) else { return Weight::alone(true) };
        let place = range(h.max(1));
        if place > 0 && last == 0 {
            return Weight::alone(true);
        }
        let place = place.min(last);
        // One step ahead every row says something, and needs no help.
        let beside = if place == 0 { 0.0 } else { 0.5 };
        let (mut mean, mut total) = (Weight { first: 0.0, apart: 0.0 }, 0.0);
        for (k, share) in [(place.wrapping_sub(1), beside), (place, 1.0), (place + 1, beside)] {
            if let Some(weight) = self.ranges.get(k).and_then(Sums::weight).filter(|_| share > 0.0) {
                mean.first += share * weight.first;
                mean.apart += share * weight.apart;
                total += share;
            }
        }
        if total == 0.0 {
            return Weight::alone(true);
        }
        Weight { first: mean.first / total, apart: mean.apart / total }
    }

    /// The log mean square error one step ahead of the combination, less that of the first forecast alone.
    pub(super) fn gain_one_step(&self) -> f64 {
        let Some((sums, weight)) = self.ranges.first().and_then(|s| Some((s, s.weight()?))) else {
            return 0.0;
        };
        let w = weight.first;
        let both = w * w * sums.first + 2.0 * w * (1.0 - w) * sums.product + (1.0 - w).powi(2) * sums.second;
        (both / sums.first.max(1e-300)).max(1e-12).ln()
    }
}

impl Sums {
    fn fade(&mut self, factor: f64) {
        for each in
            [&mut self.first, &mut self.second, &mut self.product, &mut self.count, &mut self.stretches]
        {
            *each *= factor;
        }
    }

    fn add(&mut self, other: &Self) {
        self.first += other.first;
        self.second += other.second;
        self.product += other.product;
        self.count += other.count;
        self.stretches += other.stretches;
    }

    fn weight(&self) -> Option<Weight> {
        let apart = (self.first + self.second - 2.0 * self.product).max(0.0);
        let both = self.first + self.second;
        if !(self.count > 0.0 && both > 0.0 && both.is_finite()) {
            return None;
        }
        let apiece = self.second / both;
        let best =
            if apart > 1e-9 * both { ((self.second - self.product) / apart).clamp(0.0, 1.0) } else { apiece };
        let trust = self.stretches / (self.stretches + HALF);
        Some(Weight { first: trust * best + (1.0 - trust) * apiece, apart: apart / self.count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two errors that share a part: the weights of least squares, and their variance, in closed form.
    #[test]
    fn weights_are_those_of_least_squares() {
        let mut blend = Blend::default();
        let (mut squares, mut each) = (0.0, [0.0; 2]);
        let error = |i: u32| {
            let wave = |f: f64| (f * f64::from(i)).sin();
            (wave(0.7) + wave(1.9), wave(0.7) + 2.0 * wave(2.3))
        };
        for i in 0..40_000 {
            let (a, b) = error(i);
            blend.learn(1, a, b, 1.0);
        }
        // Cov = ½ (1 + 1, 1; 1, 1 + 4), so w = (5 − 1)/(2 + 5 − 2) = 4/5.
        let weight = blend.weight(1);
        assert!((weight.first - 0.8).abs() < 0.02, "{weight:?}");
        for i in 0..40_000 {
            let (a, b) = error(i);
            squares += weight.mean(a, b).powi(2) / 40_000.0;
            each[0] += a * a / 40_000.0;
            each[1] += b * b / 40_000.0;
        }
        assert!((weight.variance(each[0], each[1]) / squares - 1.0).abs() < 0.02);
        assert!((blend.gain_one_step() - (squares / each[0]).ln()).abs() < 0.02);
    }

    #[test]
    fn few_stretches_say_little_and_none_say_nothing() {
        let mut blend = Blend::default();
        assert_eq!(blend.weight(7), Weight::alone(true));
        // The second is better wherever they differ, but that was seen once.
        blend.learn(8, 1.0, 0.5, 0.5);
        let weight = blend.weight(8);
        assert!(weight.first > 0.15 && weight.first < 0.25, "{weight:?}");
        for _ in 0..1000 {
            blend.learn(8, 1.0, 0.5, 0.5);
        }
        assert!(blend.weight(8).first < 0.02);
        assert_eq!(blend.weight(11), blend.weight(10));
    }

    /// Which model is better one step ahead says nothing of those beyond.
    #[test]
    fn one_step_ahead_decides_nothing_but_itself() {
        let mut blend = Blend::default();
        (0..1000).for_each(|_| blend.learn(1, 1.0, 0.5, 1.0));
        assert!(blend.weight(1).first < 0.02);
        assert_eq!(blend.weight(2), Weight::alone(true));
        assert_eq!(blend.weight(100), Weight::alone(true));
    }
}
