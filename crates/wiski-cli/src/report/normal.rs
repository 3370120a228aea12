//! The standard normal distribution.

use std::f64::consts::FRAC_1_SQRT_2;

/// The probability of a value up to `z`.
pub(super) fn cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z * FRAC_1_SQRT_2)
}

/// The value below which lies the probability `p`, by bisection: it is wanted a few dozen times a run.
pub(super) fn quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    loop {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            return middle;
        }
        if cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, z) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.995, 2.575_829_303_548_901),
            (0.05, -1.644_853_626_951_473),
        ] {
            assert!((quantile(p) - z).abs() < 1e-14, "{p}: {}", quantile(p));
        }
    }
}
