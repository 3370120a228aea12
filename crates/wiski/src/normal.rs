//! The standard normal distribution, also far out in its tails.

use std::f64::consts::{FRAC_1_SQRT_2, PI, TAU};

/// φ(z).
pub(crate) fn density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / TAU.sqrt()
}

/// Φ(z).
pub(crate) fn cumulative(z: f64) -> f64 {
    0.5 * libm::erfc(-z * FRAC_1_SQRT_2)
}

/// The continuous ranked probability score of N(0, s²) at x (Gneiting and Raftery 2007, eq. 5).
pub(crate) fn crps(x: f64, s: f64) -> f64 {
    let z = x / s;
    s * (z * (2.0 * cumulative(z) - 1.0) + 2.0 * density(z) - 1.0 / PI.sqrt())
}

/// Below this the tails are computed by their continued fraction.
const TAIL: f64 = -5.0;

/// For t = −z far out: 1/(t + 2/(t + 3/(t + …))), the part of the continued fraction of Mills' ratio
/// Φ(−t)/φ(t) = 1/(t + 1/(t + 2/(t + …))) that starts with 2 (Abramowitz and Stegun 26.2.14). Eighty terms
/// give full precision from t = 5 on.
fn fraction(t: f64) -> f64 {
    1.0 / (2..80).rev().fold(t, |tail, k| t + f64::from(k) / tail)
}

/// log h(z) with h(z) = φ(z) + z Φ(z), the expected improvement in units of the deviation, and its derivative
/// Φ(z)/h(z).
///
/// Far below zero h(z) = φ(z)(1 − t R(t)) with t = −z and Mills' ratio R = 1/(t + D), where D is the rest of the
/// continued fraction; then 1 − t R = D R without cancellation (compare Ament et al. 2023, "Unexpected
/// improvements to expected improvement").
pub(crate) fn log_improvement(z: f64) -> (f64, f64) {
    if z > TAIL {
        let h = density(z) + z * cumulative(z);
        return (h.ln(), cumulative(z) / h);
    }
    let t = -z;
    let d = fraction(t);
    let ratio = 1.0 / (t + d);
    (-0.5 * z * z - 0.5 * TAU.ln() + d.ln() + ratio.ln(), 1.0 / d)
}

/// log Φ(z) and its derivative φ(z)/Φ(z).
pub(crate) fn log_cumulative(z: f64) -> (f64, f64) {
    if z > TAIL {
        let p = cumulative(z);
        return (p.ln(), density(z) / p);
    }
    let ratio = 1.0 / (-z + fraction(-z));
    (-0.5 * z * z - 0.5 * TAU.ln() + ratio.ln(), 1.0 / ratio)
}

/// Φ⁻¹(p) for 0 < p < 1: a start by a rational approximation of the tail, then Newton's (Halley's) method.
pub(crate) fn quantile(p: f64) -> f64 {
    // Newton's method ends within a rounding error of zero, on either side of it.
    if p == 0.5 {
        return 0.0;
    }
    let lower = p.min(1.0 - p);
    // Abramowitz and Stegun 26.2.23, to 4.5e-4.
    let t = (-2.0 * lower.ln()).sqrt();
    let start = t
        - (2.515_517 + t * (0.802_853 + t * 0.010_328))
            / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)));
    let mut z = -start;
    for _ in 0..3 {
        let step = (cumulative(z) - lower) * (2.0 * PI).sqrt() * (0.5 * z * z).exp();
        z -= step / (1.0 + 0.5 * z * step);
    }
    if p < 0.5 { z } else { -z }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_invert_probabilities() {
        for p in [1e-10, 1e-5, 0.01, 0.2, 0.5, 0.7, 0.975, 1.0 - 1e-7] {
            assert!((cumulative(quantile(p)) - p).abs() <= 1e-14_f64.max(1e-12 * p), "{p}");
        }
        assert!((quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-14);
        assert_eq!(quantile(0.5), 0.0);
    }

    #[test]
    fn both_forms_of_the_tails_agree_where_they_meet() {
        for (f, name) in [(log_improvement as fn(f64) -> (f64, f64), "h"), (log_cumulative, "Phi")] {
            let (above, below) = (f(TAIL + 1e-12), f(TAIL - 1e-12));
            assert!((above.0 - below.0).abs() < 1e-10, "{name}: {above:?} {below:?}");
            assert!((above.1 / below.1 - 1.0).abs() < 1e-10, "{name}: {above:?} {below:?}");
        }
        // h(−t) ≈ φ(t)/t² (1 − 3·2/t² …) far out; log h(−40) to eight digits by two more terms of the series.
        let t: f64 = 40.0;
        let series = 1.0 - 6.0 / t.powi(2) * 0.5 * 1.0;
        let rough = -0.5 * t * t - 0.5 * TAU.ln() - 2.0 * t.ln() + series.ln();
        assert!((log_improvement(-t).0 - rough).abs() < 2e-5, "{} {rough}", log_improvement(-t).0);
        assert!(log_improvement(-1e6).0.is_finite());
    }

    #[test]
    fn derivatives_are_those_of_the_values() {
        for z in [-30.0, -8.0, -4.9, -1.0, 0.0, 2.5, 9.0] {
            for f in [log_improvement as fn(f64) -> (f64, f64), log_cumulative] {
                let step = 1e-5;
                let slope = (f(z + step).0 - f(z - step).0) / (2.0 * step);
                assert!((slope - f(z).1).abs() < 1e-7 * (1.0 + slope.abs()), "{z}: {slope} {}", f(z).1);
            }
        }
    }
}
