//! One-dimensional stationary correlations κ(τ) with κ(0) = 1, and their derivatives in every parameter.
//!
//! | family | κ(τ) | parameters |
//! | --- | --- | --- |
//! | RBF | exp(−τ²/2ℓ²) | ℓ |
//! | Matérn ½ | exp(−r), r = τ/ℓ | ℓ |
//! | Matérn 3/2 | (1 + r) exp(−r), r = √3 τ/ℓ | ℓ |
//! | Matérn 5/2 | (1 + r + r²/3) exp(−r), r = √5 τ/ℓ | ℓ |
//! | rational quadratic | (1 + τ²/2αℓ²)^−α | ℓ, α |
//! | periodic | exp(−2 sin²(πτ/P)/ℓ²) | ℓ, P |
//! | cosine | cos(2πτ/P) | P |
//! | spectral mixture | Σ_q ω_q exp(−2π²τ²v_q²) cos(2πμ_q τ), ω = weights / Σ weights | weights, frequencies μ, bandwidths v |
//!
//! Normalizing the mixture's weights keeps κ(0) = 1, so that the variance of a kernel is its output scale
//! alone. The overall size of the weights then has no effect and a gradient of exactly zero along it.

use serde::{Deserialize, Serialize};
use std::f64::consts::{PI, TAU};

/// A one-dimensional stationary correlation family; see the module's table for the formulas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Family {
    /// Radial basis function, also called squared exponential or Gaussian: infinitely smooth.
    Rbf,
    /// Matérn with ν = ½ (exponential): continuous, nowhere differentiable.
    Matern12,
    /// Matérn with ν = 3/2: once differentiable.
    Matern32,
    /// Matérn with ν = 5/2: twice differentiable.
    Matern52,
    /// Rational quadratic: a scale mixture of RBFs; α → ∞ gives back the RBF.
    RationalQuadratic,
    /// Exactly periodic and smooth.
    Periodic,
    /// A single frequency: rank two.
    Cosine,
    /// Spectral mixture (Wilson and Adams 2013): a mixture of Gaussians as spectral density.
    SpectralMixture {
        /// The number Q of mixture components.
        components: usize,
    },
}

impl Family {
    /// The families that a name alone says; a mixture also has a number of components.
    pub(super) const NAMED: [Self; 7] = [
        Self::Rbf,
        Self::Matern12,
        Self::Matern32,
        Self::Matern52,
        Self::RationalQuadratic,
        Self::Periodic,
        Self::Cosine,
    ];

    /// The name by which the family is written in kernel expressions.
    pub fn name(self) -> String {
        match self {
            Self::Rbf => "rbf".into(),
            Self::Matern12 => "matern12".into(),
            Self::Matern32 => "matern32".into(),
            Self::Matern52 => "matern52".into(),
            Self::RationalQuadratic => "rq".into(),
            Self::Periodic => "periodic".into(),
            Self::Cosine => "cosine".into(),
            Self::SpectralMixture { components } => format!("sm:{components}"),
        }
    }

    /// The number of parameters on one axis.
    pub fn parameter_count(self) -> usize {
        match self {
            Self::Rbf | Self::Matern12 | Self::Matern32 | Self::Matern52 | Self::Cosine => 1,
            Self::RationalQuadratic | Self::Periodic => 2,
            Self::SpectralMixture { components } => 3 * components,
        }
    }

    /// The name of parameter `index`, and the component it belongs to for a mixture.
    pub(super) fn parameter_name(self, index: usize) -> (&'static str, Option<usize>) {
        match self {
            Self::Cosine => ("period", None),
            Self::SpectralMixture { components } => {
                let name = ["weight", "frequency", "bandwidth"][index / components];
                (name, Some(index % components))
            }
            Self::RationalQuadratic if index == 1 => ("alpha", None),
            Self::Periodic if index == 1 => ("period", None),
            _ => ("lengthscale", None),
        }
    }

    /// A start value for each parameter, for inputs scaled to about [−1, 1].
    ///
    /// Length-scales start at softplus(0) = ln 2 as in the reference implementation; mixture components
    /// start at staggered frequencies so that they can part.
    pub(super) fn default_parameters(self) -> Vec<f64> {
        const LN_2: f64 = std::f64::consts::LN_2;
        match self {
            Self::Rbf | Self::Matern12 | Self::Matern32 | Self::Matern52 => vec![LN_2],
            Self::RationalQuadratic | Self::Periodic => vec![LN_2, 1.0],
            Self::Cosine => vec![1.0],
            Self::SpectralMixture { components } => {
                let q = components as f64;
                let weights = (0..components).map(|_| 1.0 / q);
                let frequencies = (0..components).map(|i| 0.25 * (1 + 2 * i) as f64);
                let bandwidths = (0..components).map(|_| 0.5);
                weights.chain(frequencies).chain(bandwidths).collect()
            }
        }
    }

    /// How many numbers, the value and its derivatives, make a Matérn process Markov: ν + ½.
    pub(super) fn markov_states(self) -> Option<usize> {
        match self {
            Self::Matern12 => Some(1),
            Self::Matern32 => Some(2),
            Self::Matern52 => Some(3),
            _ => None,
        }
    }

    /// The distance over which κ changes: ℓ, that of the fastest wave for what oscillates. A periodic κ falls as an RBF of
    /// length-scale ℓP/2π, and for ℓ > 1 it is little more than a wave.
    pub(super) fn lengthscale(self, parameters: &[f64]) -> f64 {
        match self {
            Self::Rbf | Self::Matern12 | Self::Matern32 | Self::Matern52 | Self::RationalQuadratic => {
                parameters[0]
            }
            Self::Periodic => parameters[0].min(1.0) * parameters[1] / TAU,
            Self::Cosine => parameters[0] / TAU,
            Self::SpectralMixture { components } => {
                let fastest = parameters[components..].iter().copied().fold(0.0, f64::max);
                (TAU * fastest).recip()
            }
        }
    }

    /// κ(τ) for the given parameters.
    pub fn value(self, parameters: &[f64], tau: f64) -> f64 {
        self.evaluate(parameters, tau, None)
    }

    /// κ(τ), with ∂κ(τ)/∂parameter written to `gradient`.
    pub fn value_and_gradient(self, parameters: &[f64], tau: f64, gradient: &mut [f64]) -> f64 {
        let k = self.evaluate(parameters, tau, Some(&mut *gradient));
        // Where κ has underflown to 0 its derivative has too, whatever 0·∞ says.
        if k == 0.0 {
            gradient.iter_mut().filter(|g| !g.is_finite()).for_each(|g| *g = 0.0);
        }
        k
    }

    fn evaluate(self, parameters: &[f64], tau: f64, gradient: Option<&mut [f64]>) -> f64 {
        let tau = tau.abs();
        match self {
            Self::Rbf => one(parameters, gradient, |l| {
                let r2 = (tau / l).powi(2);
                let k = (-0.5 * r2).exp();
                (k, k * r2 / l)
            }),
            Self::Matern12 => one(parameters, gradient, |l| {
                let r = tau / l;
                let k = (-r).exp();
                (k, k * r / l)
            }),
            Self::Matern32 => one(parameters, gradient, |l| {
                let r = 3f64.sqrt() * tau / l;
                let e = (-r).exp();
                ((1.0 + r) * e, r * r * e / l)
            }),
            Self::Matern52 => one(parameters, gradient, |l| {
                let r = 5f64.sqrt() * tau / l;
                let e = (-r).exp();
                ((1.0 + r + r * r / 3.0) * e, r * r * (1.0 + r) / 3.0 * e / l)
            }),
            Self::Cosine => one(parameters, gradient, |period| {
                let angle = TAU * tau / period;
                (angle.cos(), angle.sin() * angle / period)
            }),
            Self::RationalQuadratic => two(parameters, gradient, |l, alpha| {
                let q = (tau / l).powi(2) / (2.0 * alpha);
                let log_base = q.ln_1p();
                let k = (-alpha * log_base).exp();
                let by_alpha = k * (q / (1.0 + q) - log_base);
                (k, k / (1.0 + q) * (tau / l).powi(2) / l, by_alpha)
            }),
            Self::Periodic => two(parameters, gradient, |l, period| {
                let angle = PI * tau / period;
                let (sin, cos) = angle.sin_cos();
                let k = (-2.0 * (sin / l).powi(2)).exp();
                let by_period = k * 4.0 * (sin / l) * (cos / l) * angle / period;
                (k, k * 4.0 * (sin / l).powi(2) / l, by_period)
            }),
            Self::SpectralMixture { components } => mixture(components, parameters, tau, gradient),
        }
    }
}

fn one(p: &[f64], gradient: Option<&mut [f64]>, f: impl Fn(f64) -> (f64, f64)) -> f64 {
    let (k, d) = f(p[0]);
    if let Some(g) = gradient {
        g[0] = d;
    }
    k
}

fn two(p: &[f64], gradient: Option<&mut [f64]>, f: impl Fn(f64, f64) -> (f64, f64, f64)) -> f64 {
    let (k, d0, d1) = f(p[0], p[1]);
    if let Some(g) = gradient {
        g[0] = d0;
        g[1] = d1;
    }
    k
}

fn mixture(q: usize, p: &[f64], tau: f64, mut gradient: Option<&mut [f64]>) -> f64 {
    let (weights, rest) = p.split_at(q);
    let (frequencies, bandwidths) = rest.split_at(q);
    let total: f64 = weights.iter().sum();
    let mut k = 0.0;
    for i in 0..q {
        let envelope = (-2.0 * (PI * tau * bandwidths[i]).powi(2)).exp();
        let (sin, cos) = (TAU * frequencies[i] * tau).sin_cos();
        let w = weights[i] / total;
        k += w * envelope * cos;
        if let Some(g) = gradient.as_deref_mut() {
            g[i] = envelope * cos / total; // the part of ∂/∂weight that does not come from the total
            g[q + i] = -w * envelope * sin * TAU * tau;
            g[2 * q + i] = -w * envelope * cos * 4.0 * (PI * tau).powi(2) * bandwidths[i];
        }
    }
    if let Some(g) = gradient {
        for value in &mut g[..q] {
            *value -= k / total;
        }
    }
    k
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Family> {
        let mixtures = [1, 3].map(|components| Family::SpectralMixture { components });
        Family::NAMED.into_iter().chain(mixtures)
    }

    #[test]
    fn unit_at_zero_and_even() {
        for family in all() {
            let p = family.default_parameters();
            assert!((family.value(&p, 0.0) - 1.0).abs() < 1e-15, "{family:?}");
            assert_eq!(family.value(&p, 0.3), family.value(&p, -0.3), "{family:?}");
        }
    }

    #[test]
    fn known_values() {
        // Matérn 5/2 at τ = ℓ: (1 + √5 + 5/3) e^{−√5}.
        let want = (1.0 + 5f64.sqrt() + 5.0 / 3.0) * (-(5f64.sqrt())).exp();
        assert!((Family::Matern52.value(&[0.7], 0.7) - want).abs() < 1e-15);
        assert!((Family::Periodic.value(&[0.7, 0.4], 0.4) - 1.0).abs() < 1e-14);
        assert!(
            (Family::RationalQuadratic.value(&[0.7, 1e8], 0.5) - Family::Rbf.value(&[0.7], 0.5)).abs() < 1e-8
        );
        let sm = Family::SpectralMixture { components: 2 };
        assert_eq!(
            sm.value(&[1.0, 3.0, 0.5, 1.0, 0.2, 0.3], 0.4),
            sm.value(&[2.0, 6.0, 0.5, 1.0, 0.2, 0.3], 0.4)
        );
    }

    #[test]
    fn gradients_match_central_differences() {
        for family in all() {
            let p0 = family.default_parameters();
            let mut g = vec![f64::NAN; p0.len()];
            for tau in [0.0, 0.05, 0.31, 1.3, 2.9] {
                family.value_and_gradient(&p0, tau, &mut g);
                for i in 0..p0.len() {
                    // A five-point difference errs by h⁴ f⁽⁵⁾/30 + eps/h: both below 1e-10 here.
                    let h = 2e-4 * p0[i];
                    let at = |steps: f64| {
                        let mut p = p0.clone();
                        p[i] += steps * h;
                        family.value(&p, tau)
                    };
                    let numeric = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * h);
                    assert!((g[i] - numeric).abs() <= 1e-8 * (1.0 + numeric.abs()), "{family:?} {tau} {i}");
                }
            }
        }
    }
}
