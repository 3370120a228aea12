//! Conformal PID control (Angelopoulos, Candès and Tibshirani 2023) with the parts P and I.

use super::{Controller, Score};

/// The largest score is looked for in so many rows.
const WINDOW: usize = 100;

/// q = p + r, p ← p + η_t (miss − α) with η_t a share of the largest recent score, and the saturating integral
/// r = K tan(S log(t + 1)/(C (t + 1))) of the misses S = Σ (miss − α). The part D, a forecast of the score, is left out.
#[derive(Debug, Clone, PartialEq)]
pub struct ConformalPid {
    alpha: f64,
    rate: f64,
    saturation: f64,
    gain: f64,
    rows: f64,
    tracked: f64,
    integral: f64,
    /// The last scores, in a ring.
    recent: [f64; WINDOW],
}

impl ConformalPid {
    /// At a level, with steps of the share `rate` of the largest recent score. `saturation` is C, `gain` K; a gain of zero
    /// leaves the integral out.
    pub fn new(level: f64, rate: f64, saturation: f64, gain: f64) -> Self {
        Self {
            alpha: 1.0 - level,
            rate,
            saturation,
            gain,
            rows: 0.0,
            tracked: Score::Deviations.plain(level),
            integral: 0.0,
            recent: [0.0; WINDOW],
        }
    }
}

impl Controller for ConformalPid {
    fn quantile(&self) -> f64 {
        let at = self.rows + 1.0;
        let angle = self.integral * at.ln() / (self.saturation * at);
        let integral = match self.gain {
            0.0 => 0.0,
            _ if angle.abs() >= std::f64::consts::FRAC_PI_2 => f64::INFINITY.copysign(angle),
            gain => gain * angle.tan(),
        };
        (self.tracked + integral).max(0.0)
    }

    fn observe(&mut self, score: f64) {
        let miss = f64::from(u8::from(score > self.quantile()));
        self.recent[self.rows as usize % WINDOW] = score;
        let largest = self.recent.iter().copied().fold(0.0, f64::max);
        self.tracked += self.rate * largest * (miss - self.alpha);
        self.integral += miss - self.alpha;
        self.rows += 1.0;
    }
}
