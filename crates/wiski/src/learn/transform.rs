//! Smooth maps from an unconstrained `raw` number to a constrained `value`, so that an optimizer without bounds
//! can move a parameter that has some.
//!
//! | map | value | range | d value/d raw |
//! | --- | --- | --- | --- |
//! | `Identity` | r | ℝ | 1 |
//! | `Log` | eʳ | (0, ∞) | eʳ |
//! | `Softplus` | floor + log(1 + eʳ) | (floor, ∞) | σ(r) |
//! | `Interval` | lo + (hi − lo) σ(r) | (lo, hi) | (hi − lo) σ(r)(1 − σ(r)) |
//!
//! with σ(r) = 1/(1 + e⁻ʳ). By the chain rule ∂f/∂raw = ∂f/∂value · derivative(raw). No intermediate
//! overflows: only `Log` itself does, beyond 709.
//!
//! ```
//! use wiski::internals::learn::Transform;
//!
//! let noise = Transform::Softplus { floor: 1e-4 };
//! assert!((noise.forward(0.0) - (2_f64.ln() + 1e-4)).abs() < 1e-15);
//! assert!((noise.forward(noise.inverse(0.25)?) - 0.25).abs() < 1e-15);
//! assert!(noise.inverse(1e-5).is_err());
//! # Ok::<(), wiski::Error>(())
//! ```

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// A map from an unconstrained number to a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Transform {
    /// The number itself.
    Identity,
    /// Positive values by their logarithm.
    Log,
    /// Values above a floor; nearly the identity for large ones, so that they do not run away.
    Softplus {
        /// The limit for raw → −∞. As large as a noise variance should ever stay.
        floor: f64,
    },
    /// Values strictly between two ends.
    Interval {
        /// The limit for raw → −∞.
        lo: f64,
        /// The limit for raw → ∞.
        hi: f64,
    },
}

impl Transform {
    /// Rejects a floor or ends that are not finite, and an empty interval.
    pub fn validate(&self) -> Result<()> {
        let sound = match *self {
            Self::Identity | Self::Log => true,
            Self::Softplus { floor } => floor.is_finite(),
            Self::Interval { lo, hi } => lo < hi && (hi - lo).is_finite(),
        };
        if sound {
            Ok(())
        } else {
            Err(Error::Config { field: "transform".to_owned(), reason: format!("{self:?} has no range") })
        }
    }

    /// The value of a raw number. It may round to the end of the range.
    pub fn forward(&self, raw: f64) -> f64 {
        match *self {
            Self::Identity => raw,
            Self::Log => raw.exp(),
            Self::Softplus { floor } => floor + softplus(raw),
            // From the nearer end: the small part keeps its digits.
            Self::Interval { lo, hi } if raw < 0.0 => lo + (hi - lo) * sigmoid(raw),
            Self::Interval { lo, hi } => hi - (hi - lo) * sigmoid(-raw),
        }
    }

    /// The raw number of a value strictly inside the range; others are rejected.
    pub fn inverse(&self, value: f64) -> Result<f64> {
        let raw = match *self {
            Self::Identity => value,
            Self::Log => value.ln(),
            Self::Softplus { floor } => inverse_softplus(value - floor),
            Self::Interval { lo, hi } => ((value - lo) / (hi - value)).ln(),
        };
        if raw.is_finite() {
            Ok(raw)
        } else {
            Err(Error::Config {
                field: "value".to_owned(),
                reason: format!("{value} does not lie inside the range of {self:?}"),
            })
        }
    }

    /// d value/d raw at a raw number; never negative.
    pub fn derivative(&self, raw: f64) -> f64 {
        match *self {
            Self::Identity => 1.0,
            Self::Log => raw.exp(),
            Self::Softplus { .. } => sigmoid(raw),
            Self::Interval { lo, hi } => (hi - lo) * sigmoid(raw) * sigmoid(-raw),
        }
    }
}

/// log(1 + eʳ): the larger part exactly, the rest by a logarithm of a number between 1 and 2.
fn softplus(r: f64) -> f64 {
    r.max(0.0) + (-r.abs()).exp().ln_1p()
}

/// log(eᵛ − 1) = v + log(1 − e⁻ᵛ), not finite unless v is positive and finite.
fn inverse_softplus(v: f64) -> f64 {
    // The two forms of log(1 − e⁻ᵛ) lose digits for large and for small v respectively.
    v + if v > std::f64::consts::LN_2 { (-(-v).exp()).ln_1p() } else { (-(-v).exp_m1()).ln() }
}

/// 1/(1 + e⁻ʳ) without an overflow on either side.
fn sigmoid(r: f64) -> f64 {
    let e = (-r.abs()).exp();
    if r < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Transform; 6] = [
        Transform::Identity,
        Transform::Log,
        Transform::Softplus { floor: 0.0 },
        Transform::Softplus { floor: 1e-4 },
        Transform::Interval { lo: 0.0, hi: 1.0 },
        Transform::Interval { lo: -3.0, hi: 50.0 },
    ];

    fn raws() -> impl Iterator<Item = f64> {
        (-600..=600).map(|i| f64::from(i) * 0.11)
    }

    /// forward then inverse. A rounding of the value, ε·max(|value|, |ends|), is divided by the derivative;
    /// four such roundings and four of raw itself are allowed. Where the value has reached the end of its
    /// range to working precision nothing can come back, and the inverse must say so or be that uncertain.
    #[test]
    fn round_trips_are_as_good_as_the_conditioning() {
        for map in ALL {
            let ends = match map {
                Transform::Interval { lo, hi } => lo.abs().max(hi.abs()),
                Transform::Softplus { floor } => floor,
                _ => 0.0,
            };
            let mut checked = 0;
            for raw in raws() {
                let value = map.forward(raw);
                let slack =
                    f64::EPSILON * (4.0 * raw.abs() + 4.0 * value.abs().max(ends) / map.derivative(raw));
                if slack > 0.5 {
                    continue;
                }
                checked += 1;
                let back = map.inverse(value).unwrap();
                assert!((back - raw).abs() <= slack, "{map:?} {raw} {back} {slack:e}");
            }
            // At least |raw| < 27 on both sides.
            assert!(checked > 490, "{map:?} {checked}");
        }
    }

    /// inverse then forward, to a few roundings of the value times its logarithmic derivative.
    #[test]
    fn values_survive_the_way_back() {
        for value in [1e-300, 1e-12, 1e-3, 0.5, 0.69, 0.7, 1.0, 30.0, 1e4] {
            for map in [Transform::Log, Transform::Softplus { floor: 0.0 }] {
                let raw = map.inverse(value).unwrap();
                let slack = f64::EPSILON * (2.0 * value + 2.0 * raw.abs() * map.derivative(raw));
                assert!((map.forward(raw) - value).abs() <= slack, "{map:?} {value}");
            }
        }
    }

    /// Central differences with step h = 10⁻⁴: an error of h²/6 times the third derivative, which is below
    /// twice the first one (times the width) for all of these, and rounding ε·|value|/h.
    #[test]
    fn derivatives_match_central_differences() {
        let h = 1e-4;
        for map in ALL {
            for raw in raws().filter(|r| r.abs() < 30.0) {
                let (up, down) = (map.forward(raw + h), map.forward(raw - h));
                let slope = (up - down) / (2.0 * h);
                let exact = map.derivative(raw);
                let size = up.abs().max(53.0);
                let slack = h * h / 3.0 * exact + 2.0 * f64::EPSILON * size / h + 1e-16 / h;
                assert!((slope - exact).abs() <= slack, "{map:?} {raw}: {slope} {exact}");
            }
        }
    }

    /// Values to which the naive formulas lose all digits or overflow.
    #[test]
    fn the_tails_are_exact() {
        let soft = Transform::Softplus { floor: 0.0 };
        assert_eq!(soft.forward(1e3), 1e3);
        assert_eq!(soft.forward(40.0), 40.0);
        assert_eq!(soft.forward(-700.0), (-700.0_f64).exp());
        assert_eq!(soft.derivative(-700.0), (-700.0_f64).exp());
        assert_eq!((soft.derivative(1e3), soft.derivative(-1e3)), (1.0, 0.0));
        assert_eq!(soft.inverse(1e3).unwrap(), 1e3);
        assert!((soft.inverse(1e-300).unwrap() - 1e-300_f64.ln()).abs() < 1e-12);
        let interval = Transform::Interval { lo: 0.0, hi: 2.0 };
        assert_eq!((interval.forward(-1e3), interval.forward(1e3)), (0.0, 2.0));
        assert_eq!(interval.forward(-100.0), 2.0 * (-100.0_f64).exp());
        assert_eq!(interval.derivative(1e3), 0.0);
    }

    #[test]
    fn values_outside_the_range_are_rejected() {
        assert!(Transform::Identity.inverse(f64::NAN).is_err());
        assert!(Transform::Log.inverse(0.0).is_err());
        assert!(Transform::Log.inverse(-1.0).is_err());
        assert!(Transform::Softplus { floor: 0.1 }.inverse(0.1).is_err());
        assert!(Transform::Softplus { floor: 0.1 }.inverse(0.05).is_err());
        for v in [-1.0, 0.0, 1.0, 2.0] {
            assert!(Transform::Interval { lo: 0.0, hi: 1.0 }.inverse(v).is_err(), "{v}");
        }
        assert!(Transform::Interval { lo: 1.0, hi: 1.0 }.validate().is_err());
        assert!(Transform::Softplus { floor: f64::NAN }.validate().is_err());
        assert!(ALL.iter().all(|t| t.validate().is_ok()));
    }
}
