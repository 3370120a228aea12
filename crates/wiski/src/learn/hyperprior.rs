//! Hyperprior densities of a single parameter, normalized, with their derivatives: what they add to the evidence when
//! hyperparameters are learned.
//!
//! | prior | log density at v | derivative |
//! | --- | --- | --- |
//! | `Flat` | 0 (improper) | 0 |
//! | `Gamma` | a log b − log Γ(a) + (a − 1) log v − b v | (a − 1)/v − b |
//! | `LogNormal` | −½((log v − μ)/s)² − log(v s √2π) | −(1 + (log v − μ)/s²)/v |
//! | `Normal` | −½((v − μ)/s)² − log(s √2π) | −(v − μ)/s² |
//! | `Uniform` | −log(hi − lo) | 0 |
//!
//! The density is that of the *value*, not of a transformed number: the maximum of evidence plus log prior does
//! not move with the choice of [`Transform`](super::Transform). Outside the support the log density is −∞,
//! which an optimizer reads as a step too long; keep the search inside with bounds.
//!
//! ```
//! use wiski::internals::learn::Hyperprior;
//!
//! // A length-scale that is probably near 0.5: the mode is (shape − 1)/rate.
//! let prior = Hyperprior::Gamma { shape: 3.0, rate: 4.0 };
//! prior.validate()?;
//! assert!(prior.derivative(0.5).abs() < 1e-15);
//! assert_eq!(prior.log_density(-1.0), f64::NEG_INFINITY);
//! # Ok::<(), wiski::Error>(())
//! ```

use crate::error::{self, Error, Result};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// A density for one parameter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Hyperprior {
    /// No preference.
    Flat,
    /// Positive values with mean shape/rate and variance shape/rate².
    Gamma {
        /// Above 1, the density vanishes at 0 and has its mode at (shape − 1)/rate.
        shape: f64,
        /// The inverse scale.
        rate: f64,
    },
    /// Positive values whose logarithm is normal.
    LogNormal {
        /// The mean of the logarithm; e^μ is the median.
        mu: f64,
        /// The standard deviation of the logarithm.
        sigma: f64,
    },
    /// Any values, about a mean.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        sd: f64,
    },
    /// Values between two ends, none preferred.
    Uniform {
        /// The smallest value.
        lo: f64,
        /// The largest value.
        hi: f64,
    },
}

impl Hyperprior {
    /// Rejects parameters that describe no density.
    pub fn validate(&self) -> Result<()> {
        match *self {
            Self::Flat => Ok(()),
            Self::Gamma { shape, rate } => {
                error::positive("shape", shape, 0)?;
                error::positive("rate", rate, 0)
            }
            Self::LogNormal { mu, sigma } => {
                error::finite("mu", mu, 0)?;
                error::positive("sigma", sigma, 0)
            }
            Self::Normal { mean, sd } => {
                error::finite("mean", mean, 0)?;
                error::positive("sd", sd, 0)
            }
            Self::Uniform { lo, hi } if lo < hi && (hi - lo).is_finite() => Ok(()),
            Self::Uniform { lo, hi } => Err(Error::Config {
                field: "prior".to_owned(),
                reason: format!("[{lo}, {hi}] is no interval of positive length"),
            }),
        }
    }

    /// The logarithm of the density at `value`; −∞ outside the support.
    pub fn log_density(&self, value: f64) -> f64 {
        if !self.supports(value) {
            return f64::NEG_INFINITY;
        }
        match *self {
            Self::Flat => 0.0,
            Self::Gamma { shape, rate } => {
                shape * rate.ln() - libm::lgamma(shape) + (shape - 1.0) * value.ln() - rate * value
            }
            Self::LogNormal { mu, sigma } => log_normal_density(value.ln(), mu, sigma) - value.ln(),
            Self::Normal { mean, sd } => log_normal_density(value, mean, sd),
            Self::Uniform { lo, hi } => -(hi - lo).ln(),
        }
    }

    /// The derivative of [`log_density`](Self::log_density) with respect to the value; 0 outside the support.
    pub fn derivative(&self, value: f64) -> f64 {
        if !self.supports(value) {
            return 0.0;
        }
        match *self {
            Self::Flat | Self::Uniform { .. } => 0.0,
            Self::Gamma { shape, rate } => (shape - 1.0) / value - rate,
            Self::LogNormal { mu, sigma } => -(1.0 + (value.ln() - mu) / (sigma * sigma)) / value,
            Self::Normal { mean, sd } => -(value - mean) / (sd * sd),
        }
    }

    /// Whether `value` may occur. NaN never may.
    fn supports(&self, value: f64) -> bool {
        match *self {
            Self::Flat | Self::Normal { .. } => !value.is_nan(),
            Self::Gamma { .. } | Self::LogNormal { .. } => value > 0.0 && value < f64::INFINITY,
            Self::Uniform { lo, hi } => lo <= value && value <= hi,
        }
    }
}

fn log_normal_density(v: f64, mean: f64, sd: f64) -> f64 {
    let z = (v - mean) / sd;
    -0.5 * (z * z + (2.0 * PI).ln()) - sd.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROPER: [Hyperprior; 6] = [
        Hyperprior::Gamma { shape: 3.0, rate: 6.0 },
        Hyperprior::Gamma { shape: 0.7, rate: 0.2 },
        Hyperprior::Gamma { shape: 150.0, rate: 30.0 },
        Hyperprior::LogNormal { mu: -1.3, sigma: 0.6 },
        Hyperprior::Normal { mean: 2.0, sd: 0.3 },
        Hyperprior::Uniform { lo: 0.5, hi: 4.0 },
    ];

    /// Log densities at 0.3 and 1.7 by scipy.stats 1.17 (`gamma.logpdf(x, a, scale=1/b)`,
    /// `lognorm.logpdf(x, s, scale=exp(mu))`, `norm.logpdf`, `uniform.logpdf`).
    #[test]
    fn densities_match_an_independent_library() {
        let expected = [
            [0.474_185_618_472_347_86, -4.456_612_270_751_441],
            [-1.086_281_943_937_755_6, -1.886_662_260_554_187_6],
            [-278.221_811_150_568_56, -61.766_253_897_740_78],
            [0.783_052_641_680_275, -5.593_185_318_260_493],
            [-15.770_521_284_434_295, -0.214_965_728_878_736_77],
            [f64::NEG_INFINITY, -1.252_762_968_495_368],
        ];
        for (prior, values) in PROPER.iter().zip(expected) {
            for (x, e) in [0.3, 1.7].into_iter().zip(values) {
                let found = prior.log_density(x);
                assert!(
                    found == e || (found - e).abs() <= 4e-15 * e.abs().max(10.0),
                    "{prior:?} {x} {found} {e}"
                );
            }
        }
    }

    /// The densities integrate to 1: trapezoidal rule in u with v = eᵘ (or v itself for the normal), which
    /// converges faster than any power of the step for these; the shape-0.7 tail below e⁻⁶⁰ is 10⁻¹⁸.
    #[test]
    fn densities_integrate_to_one() {
        for prior in &PROPER[..5] {
            let step = 0.005;
            let mut sum = 0.0;
            for i in -12_000..=2_000 {
                let u = f64::from(i) * step;
                let (v, jacobian) =
                    if matches!(prior, Hyperprior::Normal { .. }) { (u, 1.0) } else { (u.exp(), u.exp()) };
                sum += prior.log_density(v).exp() * jacobian * step;
            }
            assert!((sum - 1.0).abs() < 1e-12, "{prior:?} {sum}");
        }
        let (lo, hi) = (0.5, 4.0);
        let density = Hyperprior::Uniform { lo, hi }.log_density(1.0).exp();
        assert!((density * (hi - lo) - 1.0).abs() < 1e-15);
    }

    /// Central differences with h = 10⁻⁵ v: relative error h²/v² times a modest constant and rounding ε/h.
    #[test]
    fn derivatives_match_central_differences() {
        for prior in PROPER {
            for v in [0.6, 1.0, 1.9, 3.5] {
                let h = 1e-5 * v;
                let (up, down) = (prior.log_density(v + h), prior.log_density(v - h));
                let slope = (up - down) / (2.0 * h);
                let slack = 1e-9 * (prior.derivative(v).abs() + 150.0 / v)
                    + 4.0 * f64::EPSILON * up.abs().max(400.0) / h;
                assert!((slope - prior.derivative(v)).abs() <= slack, "{prior:?} {v}: {slope}");
            }
        }
    }

    #[test]
    fn outside_the_support_the_density_vanishes() {
        for (prior, v) in [
            (PROPER[0], 0.0),
            (PROPER[0], -1.0),
            (PROPER[3], 0.0),
            (PROPER[3], f64::INFINITY),
            (PROPER[5], 0.49),
            (PROPER[5], 4.01),
            (PROPER[4], f64::NAN),
        ] {
            assert_eq!(prior.log_density(v), f64::NEG_INFINITY, "{prior:?} {v}");
            assert_eq!(prior.derivative(v), 0.0, "{prior:?} {v}");
        }
        assert_eq!((Hyperprior::Flat.log_density(1e300), Hyperprior::Flat.derivative(1e300)), (0.0, 0.0));
    }

    #[test]
    fn parameters_that_describe_nothing_are_rejected() {
        assert!(PROPER.iter().all(|p| p.validate().is_ok()));
        for prior in [
            Hyperprior::Gamma { shape: 0.0, rate: 1.0 },
            Hyperprior::Gamma { shape: 1.0, rate: f64::INFINITY },
            Hyperprior::LogNormal { mu: f64::NAN, sigma: 1.0 },
            Hyperprior::LogNormal { mu: 0.0, sigma: -1.0 },
            Hyperprior::Normal { mean: 0.0, sd: 0.0 },
            Hyperprior::Uniform { lo: 1.0, hi: 1.0 },
            Hyperprior::Uniform { lo: f64::NEG_INFINITY, hi: 1.0 },
        ] {
            assert!(prior.validate().is_err(), "{prior:?}");
        }
    }
}
