//! What differences of rows say about noise, level and waves before anything is fitted.
//!
//! Of the rows without their seasons, the variogram V(h) = ½ E(yₜ₊ₕ − yₜ)² of a level that gains the variance r a step,
//! a wave of variance v and length-scale ℓ, and noise of variance σ² is V(h) = ½ r h + v (1 − e^{−h/ℓ}) + σ². So
//! σ² ≈ 2 V(1) − V(2) and r ≈ 2 (V(2) − V(1)) if there is no wave, and what V(1) lacks of the whole variance says how
//! long a wave would be if there is no level. V(1) is also the unit of the priors: a series that hardly changes from row
//! to row has little noise, and a level that moves little.

use super::plan::PlannedSeason;
use super::seasons;
use crate::error::Result;

/// The variogram of rows without their seasons, in standardized units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moments {
    /// V at one, two, four, … steps.
    variogram: [f64; LAGS],
    /// The variance around a quadratic trend.
    pub(super) total: f64,
}

const LAGS: usize = 6;
/// The smallest V: what rounding leaves of a series without noise.
const LEAST: f64 = 1e-8;

/// Values to start a fit from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Start {
    /// The variance of the noise, and what the level gains a step.
    pub(super) noise: f64,
    pub(super) rate: f64,
    /// Variance and length-scale of the rough and of the smooth wave.
    pub(super) rough: [f64; 2],
    pub(super) smooth: [f64; 2],
}

impl Moments {
    pub(super) fn of(times: &[f64], targets: &[f64], seasons: &[PlannedSeason]) -> Result<Self> {
        let rest = seasons::rest(times, targets, seasons)?;
        let n = rest.len();
        let mean = |squares: &mut dyn Iterator<Item = f64>| {
            let known = squares.filter(|square| !square.is_nan());
            let (sum, count) = known.fold((0.0, 0.0), |(sum, count), square| (sum + square, count + 1.0));
            (count > 0.0).then(|| sum / count)
        };
        let total = mean(&mut rest.iter().map(|y| y * y)).unwrap_or(0.0).max(LEAST);
        let at = |k: usize| {
            let lag = (1 << k).min(n / 2).max(1);
            // Lines over gaps have nothing of the noise: only rows are compared. Where no two are so far apart, V is taken for whole.
            let squares = mean(&mut rest[lag..].iter().zip(&rest).map(|(a, b)| (a - b).powi(2)));
            squares.map_or(total, |square| 0.5 * square).clamp(LEAST, 4.0 * total)
        };
        Ok(Self { variogram: std::array::from_fn(at), total })
    }

    /// V(1).
    pub(super) fn short(&self) -> f64 {
        self.variogram[0]
    }

    /// V at 32 steps.
    pub(super) fn long(&self) -> f64 {
        self.variogram[LAGS - 1]
    }

    /// A walk, a walk behind noise, one behind noise that lasts a little, a rough wave, a smooth one, and noise: what each makes
    /// of V.
    pub(super) fn starts(&self) -> [Start; 6] {
        let v = &self.variogram;
        let noise = (2.0 * v[0] - v[1]).clamp(0.02 * v[0], 0.95 * v[0]);
        let rate = 2.0 * (v[0] - noise);
        // What is left from one to 32 steps, over many rows: a slow walk behind much noise.
        let slow = (2.0 * (v[LAGS - 1] - v[0]) / f64::from((1 << (LAGS - 1)) - 1)).clamp(1e-4 * v[0], v[0]);
        let little = 0.05 * v[0];
        let quiet = Start { noise, rate: 1e-3 * v[0], rough: [little, 8.0], smooth: [little, 50.0] };
        let wave = (self.total - noise).max(0.1 * self.total);
        let kept = 1.0 - ((v[0] - noise) / wave).clamp(1e-3, 0.95);
        // Where V has risen to half of the whole.
        let half =
            v.iter().position(|v| *v > 0.5 * self.total).map_or(f64::from(1 << LAGS), |k| f64::from(1 << k));
        [
            Start { rate, ..quiet },
            Start { rate: slow, noise: (v[0] - 0.5 * slow).max(0.5 * v[0]), ..quiet },
            Start { rate: slow, noise: 0.1 * v[0], rough: [0.9 * v[0], 1.0], ..quiet },
            Start { rough: [wave, -1.0 / kept.ln()], ..quiet },
            Start { smooth: [wave, (1.5 * half).max(2.5)], ..quiet },
            Start { noise: 0.9 * v[0], ..quiet },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;
    use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

    /// Noise of variance 1/12 in stretches of ten rows, with gaps of thirty between them: V is that of the noise at every lag, as
    /// if there were no gaps.
    #[test]
    fn gaps_do_not_make_rows_smooth() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let rows = (0..8000).filter(|i| i % 40 < 10);
        let (times, targets): (Vec<f64>, Vec<f64>) =
            rows.map(|i| (f64::from(i), random.random::<f64>() - 0.5)).unzip();
        let moments = Moments::of(&times, &targets, &[]).unwrap();
        for v in [moments.short(), moments.long(), moments.total] {
            assert!((12.0 * v - 1.0).abs() < 0.1, "{moments:?}");
        }
    }
}
