//! Whether the rows of a line show a season, in any order and at any places.
//!
//! The rows without their slow trend, a polynomial, have the power
//!
//! ```text
//! S(f) = | Σ_i w_i r_i e^{−2πi f x_i} |²
//! ```
//!
//! at frequency f, under a window w that falls to nothing at both ends, so that what is left of the trend stays among the
//! low frequencies. For noise, S is exponentially distributed around a mean that varies slowly with f. A line is a
//! frequency whose power is far above the median of those around; of all lines the one with most power counts, or a
//! half or third of its frequency if there is a line, too: a season of any shape has harmonics.
//!
//! n rows and as many frequencies cost n² multiply-adds, some 30 ms at the most. What is found is a candidate: whether it pays
//! is for the evidence to say.

use std::f64::consts::{PI, TAU};

use faer::Mat;

use crate::dense;

/// At most so many rows are looked at, evenly spread over all of them.
const MOST_ROWS: usize = 4096;
/// A season is seen if it comes so often.
const TURNS: usize = 4;
/// Frequencies for each turn over the whole range.
const FINE: usize = 2;
/// The power of a line, in medians of what is around. Of a thousand frequencies with noise the largest has some ten.
const STRONG: f64 = 25.0;
/// The median is that of frequencies within such a factor of each other, and of so many at least.
const AROUND: f64 = 1.5;
const FEWEST_AROUND: usize = 16;
/// The degree of the polynomial that is taken for the trend.
const DEGREE: usize = 5;

/// The period of the strongest season of rows at places `x` within a range, and about how much of their variance it is; `None`
/// if there is none to be seen.
pub(super) fn strongest(x: &[f64], y: &[f64], (lo, hi): (f64, f64)) -> Option<(f64, f64)> {
    let (step, width) = (x.len().div_ceil(MOST_ROWS).max(1), hi - lo);
    let places: Vec<f64> = x.iter().step_by(step).map(|x| (x - lo) / width).collect();
    let targets: Vec<f64> = y.iter().step_by(step).copied().collect();
    let lines = Lines::new(places, &targets)?;
    let strong = |k: &usize| lines.is_strong(*k);
    let first = FINE * TURNS;
    let best = (first..lines.power.len())
        .filter(strong)
        .max_by(|&i, &j| lines.power[i].total_cmp(&lines.power[j]))?;
    let near = |k: usize| (k.saturating_sub(1)..=k + 1).filter(|&k| k >= first).find(strong);
    let line = near(best.div_ceil(3)).or_else(|| near(best.div_ceil(2))).unwrap_or(best);
    // A wave of variance v has the power v (Σ w)²/2, and Σ w = n/2; harmonics have some more.
    let variance = 16.0 * lines.power[best] / (lines.places.len() as f64).powi(2);
    Some((width / lines.peak(line), variance))
}

/// The spectrum of rows without their trend.
struct Lines {
    /// Places in the range, from 0 to 1.
    places: Vec<f64>,
    /// What is left of the targets, under the window.
    rest: Vec<f64>,
    /// The power at k/`FINE` turns over the range.
    power: Vec<f64>,
    /// The median of the power around each of them.
    background: Vec<f64>,
}

impl Lines {
    fn new(places: Vec<f64>, targets: &[f64]) -> Option<Self> {
        let rest = windowed(&places, targets)?;
        let (mut real, mut imaginary) = (vec![0.0; places.len()], vec![0.0; places.len()]);
        for (&place, &r) in places.iter().zip(&rest) {
            // e^{−2πi f x} of the next frequency is that of the last, turned by a constant angle.
            let (sin, cos) = (TAU * place / FINE as f64).sin_cos();
            let (mut a, mut b) = (r, 0.0);
            for (real, imaginary) in real.iter_mut().zip(&mut imaginary) {
                *real += a;
                *imaginary += b;
                (a, b) = (a * cos - b * sin, a * sin + b * cos);
            }
        }
        let power: Vec<f64> = real.iter().zip(&imaginary).map(|(a, b)| a * a + b * b).collect();
        let mut background = Vec::with_capacity(power.len());
        while background.len() < power.len() {
            let first = background.len();
            let next = ((first as f64 * AROUND) as usize).max(first + FEWEST_AROUND).min(power.len());
            let mut around = power[first..next].to_vec();
            around.sort_by(f64::total_cmp);
            background.resize(next, around[around.len() / 2]);
        }
        Some(Self { places, rest, power, background })
    }

    fn is_strong(&self, k: usize) -> bool {
        self.power[k] > STRONG * self.background[k]
    }

    fn power_at(&self, turns: f64) -> f64 {
        let add = |(a, b): (f64, f64), (place, r): (&f64, &f64)| {
            let (sin, cos) = (TAU * turns * place).sin_cos();
            (a + r * cos, b + r * sin)
        };
        let (a, b) = self.places.iter().zip(&self.rest).fold((0.0, 0.0), add);
        a * a + b * b
    }

    /// Where around a frequency the power is largest, in turns over the range: by golden sections.
    fn peak(&self, k: usize) -> f64 {
        let golden = 0.5 * (5f64.sqrt() - 1.0);
        let [mut lo, mut hi] = [k as f64 - 1.0, k as f64 + 1.0].map(|k| k / FINE as f64);
        for _ in 0..16 {
            let (left, right) = (hi - golden * (hi - lo), lo + golden * (hi - lo));
            if self.power_at(left) > self.power_at(right) { hi = right } else { lo = left }
        }
        0.5 * (lo + hi)
    }
}

/// The targets without the polynomial that fits them best, under the window.
fn windowed(places: &[f64], targets: &[f64]) -> Option<Vec<f64>> {
    // Chebyshev polynomials keep the equations well-conditioned.
    let column = |k: usize| -> Vec<f64> {
        places.iter().map(|p| (k as f64 * (2.0 * p - 1.0).clamp(-1.0, 1.0).acos()).cos()).collect()
    };
    let columns: Vec<Vec<f64>> = (0..=DEGREE).map(column).collect();
    let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let ridge = |i: usize, j: usize| if i == j { 1e-9 * places.len() as f64 } else { 0.0 };
    let gram = Mat::from_fn(DEGREE + 1, DEGREE + 1, |i, j| inner(&columns[i], &columns[j]) + ridge(i, j));
    let factor = dense::cholesky(gram).ok()?;
    let right: Vec<f64> = columns.iter().map(|c| inner(c, targets)).collect();
    let mut weights = dense::solve_vector(factor.as_ref(), &right);
    dense::solve_lower_transposed(factor.as_ref(), faer::ColMut::from_slice_mut(&mut weights).as_mat_mut());
    let rest = |(i, (place, y)): (usize, (&f64, &f64))| {
        let trend: f64 = columns.iter().zip(&weights).map(|(c, w)| c[i] * w).sum();
        let window = (PI * place).sin().powi(2);
        window * (y - trend)
    };
    Some(places.iter().zip(targets).enumerate().map(rest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_distr::{Distribution, StandardNormal};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Rows at random places of [−3, 5].
    fn rows(n: usize, seed: u64, truth: impl Fn(f64, f64) -> f64) -> (Vec<f64>, Vec<f64>) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let row = |_| {
            let x = 8.0 * rng.random::<f64>() - 3.0;
            (x, truth(x, StandardNormal.sample(&mut rng)))
        };
        (0..n).map(row).unzip()
    }

    #[test]
    fn a_season_behind_a_trend_is_seen() {
        for (seed, period) in [(1, 0.21), (2, 0.043), (3, 1.3)] {
            // A season of .2 % of the variance, which is not a sine.
            let truth = |x: f64, e: f64| {
                let turn = (x / period).rem_euclid(1.0);
                2.0 * x + 0.3 * x * x + 0.25 * ((6.0 * turn * (1.0 - turn)).exp() - 2.0) + 0.2 * e
            };
            let (x, y) = rows(2000, seed, truth);
            let (found, variance) = strongest(&x, &y, (-3.0, 5.0)).unwrap();
            assert!((found / period - 1.0).abs() < 0.2 * period / 8.0 + 1e-3, "{found} for {period}");
            // The season's own is .081, by quadrature.
            assert!(variance > 0.04 && variance < 0.3, "{variance}");
        }
    }

    #[test]
    fn nothing_is_seen_in_noise_or_in_what_is_smooth() {
        for seed in 0..20 {
            let (x, y) = rows(1500, seed, |_, e| e);
            assert_eq!(strongest(&x, &y, (-3.0, 5.0)), None, "seed {seed}");
            let (x, y) = rows(1500, seed, |x, e| (0.7 * x).exp() + (1.5 * x).sin() + 0.1 * e);
            assert_eq!(strongest(&x, &y, (-3.0, 5.0)), None, "seed {seed}");
        }
    }
}
