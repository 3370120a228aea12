//! The scale on which a series adds up: its values, or their logarithms.
//!
//! What grows by a factor has seasons, changes and errors in proportion to its level. Its logarithm has a trend, seasons and
//! noise that add up, as a [`System`](super::System) wants them. Densities of both are densities of the same rows: with
//! v = (g(y) − shift)/factor and g the identity or ln,
//!
//! ```text
//! log p(y) = log p(v) − ln factor − [ln y if g = ln]
//! ```
//!
//! A row whose logarithm is N(m, s²) has the median eᵐ, the mean e^{m + s²/2}, and quantiles e^{m ± zs}.

use serde::{Deserialize, Serialize};

use super::forecast::ComponentShare;

/// The deviation of a logarithm up to which a mean is that of the log-normal distribution. Beyond it the mean lies where no row
/// has been, and is decided by the tails.
const WIDE: f64 = 1.0;
/// Logarithms are tried where large values are more than so many times the small ones: closer together both scales say the same.
const APART: f64 = 1.25;
/// The log density that logarithms must gain: without a clear one the values themselves stand.
pub(super) const GAIN: f64 = 6.0;

/// Of n rows, √n times how much larger the log mean square error of forecasts may be with logarithms: about a standard error.
pub(super) const WORSE: f64 = 4.0;

/// On which scale a series is a sum of its components.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// That on which the rows in memory are clearly likelier; values that are not positive stay as they are.
    #[default]
    Auto,
    /// The values themselves.
    Linear,
    /// Their logarithms: components multiply. All values must be positive.
    Log,
}

impl Scale {
    /// A scale by its name.
    ///
    /// ```
    /// assert_eq!(wiski::time::Scale::named("log"), Some(wiski::time::Scale::Log));
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "linear" => Some(Self::Linear),
            "log" => Some(Self::Log),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Linear => "linear",
            Self::Log => "log",
        }
    }
}

/// The unit in which a series is modeled: v = (g(y) − shift)/factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Unit {
    pub(super) shift: f64,
    pub(super) factor: f64,
    /// Whether g = ln.
    pub(super) log: bool,
}

impl Unit {
    /// The unit in which values have mean zero and variance one.
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone, log: bool) -> Self {
        let values = values.map(|y| if log { y.ln() } else { y });
        let n = values.clone().count().max(1) as f64;
        let shift = values.clone().sum::<f64>() / n;
        let variance = values.map(|v| (v - shift).powi(2)).sum::<f64>() / n;
        Self { shift, factor: if variance > 0.0 { variance.sqrt() } else { 1.0 }, log }
    }

    /// v, if the value has one.
    pub(super) fn inward(&self, y: f64) -> Option<f64> {
        let v = if self.log { y.ln() } else { y };
        v.is_finite().then(|| (v - self.shift) / self.factor)
    }

    /// The median of what has the median v.
    pub(super) fn value(&self, v: f64) -> f64 {
        let v = self.shift + self.factor * v;
        if self.log { v.exp() } else { v }
    }

    /// Mean and deviation of what has mean and deviation `v` and `s`.
    pub(super) fn moments(&self, v: f64, s: f64) -> (f64, f64) {
        let median = self.value(v);
        let s = self.factor * s;
        if !self.log {
            return (median, s);
        }
        let s = s.min(WIDE);
        let mean = median * (0.5 * s * s).exp();
        (mean, mean * (s * s).exp_m1().sqrt())
    }

    /// What must be added to the log density of v to have that of values.
    pub(super) fn log_jacobian(&self, values: impl Iterator<Item = f64>) -> f64 {
        -values.map(|y| self.factor.ln() + if self.log { y.ln() } else { 0.0 }).sum::<f64>()
    }

    /// Components in units of v as they are in those of values: the trend is a level of the series, and on the scale of
    /// logarithms all others are factors of it.
    pub(super) fn outward(&self, mut share: ComponentShare, is_level: bool) -> ComponentShare {
        let shift = if is_level { self.shift } else { 0.0 };
        for (mean, std) in share.mean.iter_mut().zip(&mut share.std) {
            (*mean, *std) = (shift + self.factor * *mean, self.factor * *std);
            if self.log {
                *mean = mean.exp();
                *std *= *mean;
            }
        }
        share
    }
}

/// Whether rows may be better told by their logarithms: all are positive, and they are not all about as large.
pub(super) fn may_be_log(values: impl Iterator<Item = f64>) -> bool {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    sorted.first().is_some_and(|least| *least > 0.0) && at(0.95) > APART * at(0.05)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against sums over the distribution itself.
    #[test]
    fn moments_are_those_of_the_log_normal_distribution() {
        let unit = Unit { shift: 2.0, factor: 0.4, log: true };
        let (mean, std) = unit.moments(0.7, 0.9);
        let n = 200_000;
        let draw = |i: i32| {
            let z = crate::normal::quantile((f64::from(i) + 0.5) / f64::from(n));
            unit.value(0.7 + 0.9 * z)
        };
        let first = (0..n).map(draw).sum::<f64>() / f64::from(n);
        let second = (0..n).map(|i| (draw(i) - first).powi(2)).sum::<f64>() / f64::from(n);
        assert!((mean / first - 1.0).abs() < 1e-4 && (std / second.sqrt() - 1.0).abs() < 1e-3);
        assert!((unit.inward(unit.value(0.3)).unwrap() - 0.3).abs() < 1e-14);
        assert_eq!(unit.inward(0.0), None);
        assert_eq!(unit.inward(-1.0), None);
    }

    /// The density of a value is the derivative of its distribution function: to h² and eps/h, near the middle.
    #[test]
    fn the_jacobian_is_that_of_the_change_of_unit() {
        for log in [false, true] {
            let unit = Unit { shift: 1.0, factor: 0.5, log };
            let below = |y: f64| crate::normal::cumulative(unit.inward(y).unwrap());
            let (y, h) = (1.7, 1e-5);
            let density = (below(y + h) - below(y - h)) / (2.0 * h);
            let v = unit.inward(y).unwrap();
            let said = -0.5 * (v * v + std::f64::consts::TAU.ln()) + unit.log_jacobian(std::iter::once(y));
            assert!((density.ln() - said).abs() < 1e-8, "{log}: {density} {}", said.exp());
        }
    }
}
