//! How much a point (or several together) promises, as a function of the joint prediction.

use super::batch::BaseSamples;
use super::{Incumbent, Surrogate};
use crate::error::{Error, Result, length};
use crate::normal::{log_cumulative, log_improvement};
use crate::posterior::Joint;

/// What to maximize in order to find the next points. Values are to be large.
///
/// For one point the criteria are closed forms of the mean μ and deviation σ of the latent value, with
/// z = (μ − best)/σ; for several points they are means over samples of the joint prediction (see
/// [`BaseSamples`]).
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Acquisition {
    /// Upper confidence bound, μ + √β σ. For several points E max_j (μ_j + √(βπ/2) |f_j − μ_j|)
    /// (Wilson et al. 2017), which is the same for one.
    UpperConfidence {
        /// β: how much uncertainty is worth.
        beta: f64,
    },
    /// E (f − best)₊ = σ h(z), h(z) = φ(z) + z Φ(z). Flat, and exactly zero in floating point, where little
    /// is promised.
    ExpectedImprovement,
    /// log E (f − best)₊: the same optimum, with a gradient everywhere. For several points the maximum and the
    /// positive part are smoothed (Ament et al. 2023).
    LogExpectedImprovement,
    /// log P(f > best) = log Φ(z). One point only.
    ProbabilityOfImprovement,
    /// How much an observation tells about the value of the optimum (Wang and Jegelka 2017), in nats, in the
    /// closed form of Moss et al. (2021, "GIBBON"): with γ = (f* − μ)/σ, r = φ(γ)/Φ(γ) and noise variance σ_n²,
    /// the variance that is left below the maximum f* is σ²(1 − r(γ + r)) + σ_n², and the information at least
    /// half the logarithm of its ratio to σ² + σ_n². The mean over maxima of functions drawn from the posterior.
    /// One point only.
    MaxValueEntropy,
}

/// The points of a criterion, row after row, with what it compares them to and the samples it takes.
pub type Question<'a> = (&'a [f64], &'a Incumbent, &'a BaseSamples);

impl Acquisition {
    /// The usual upper confidence bound, β = 4.
    pub const UCB: Self = Self::UpperConfidence { beta: 4.0 };

    /// Whether several points can be judged together.
    pub fn is_joint(&self) -> bool {
        !matches!(self, Self::ProbabilityOfImprovement | Self::MaxValueEntropy)
    }

    /// The value at points given row after row.
    pub fn value(
        &self,
        surrogate: &(impl Surrogate + ?Sized),
        (x, incumbent, samples): Question,
        joint: &mut Joint,
    ) -> Result<f64> {
        surrogate.predict(x, joint)?;
        let q = joint.points();
        let noise = surrogate.noise();
        self.of_joint(joint, noise, (incumbent, samples), &mut vec![0.0; q], &mut vec![0.0; q * q])
    }

    /// The value, with its gradient in all coordinates of all points.
    pub fn value_and_gradient(
        &self,
        surrogate: &(impl Surrogate + ?Sized),
        (x, incumbent, samples): Question,
        joint: &mut Joint,
        gradient: &mut [f64],
    ) -> Result<f64> {
        surrogate.predict(x, joint)?;
        let q = joint.points();
        let (mut by_mean, mut by_covariance) = (vec![0.0; q], vec![0.0; q * q]);
        let noise = surrogate.noise();
        let value = self.of_joint(joint, noise, (incumbent, samples), &mut by_mean, &mut by_covariance)?;
        gradient.fill(0.0);
        surrogate.vjp(x, joint, &by_mean, &by_covariance, gradient)?;
        Ok(value)
    }

    /// The value and its derivatives in the joint mean and covariance.
    fn of_joint(
        &self,
        joint: &Joint,
        noise: f64,
        (incumbent, samples): (&Incumbent, &BaseSamples),
        by_mean: &mut [f64],
        by_covariance: &mut [f64],
    ) -> Result<f64> {
        if joint.points() == 1 {
            let (value, slopes) = match self {
                Self::MaxValueEntropy => {
                    information(joint.mean[0], joint.variance(0), noise, &incumbent.maxima)?
                }
                other => other.of_one(joint.mean[0], joint.variance(0), incumbent.best()),
            };
            [by_mean[0], by_covariance[0]] = slopes;
            return Ok(value);
        }
        if !self.is_joint() {
            return Err(Error::Unsupported {
                operation: "this criterion of several points",
                reason: "choose them one after the other, or another criterion",
            });
        }
        length("base samples", joint.points(), samples.points())?;
        let best = incumbent.best();
        samples.reparameterize(joint, by_mean, by_covariance, |f, slopes, by_mean| {
            Ok(match self {
                Self::UpperConfidence { beta } => {
                    samples.upper_confidence(*beta, &joint.mean, f, slopes, by_mean)
                }
                Self::LogExpectedImprovement => samples.log_improvement(best, f, slopes, by_mean),
                _ => samples.improvement(best, f, slopes, by_mean),
            })
        })
    }

    /// The closed form for one point, with its derivatives in mean and variance.
    pub(super) fn of_one(&self, mu: f64, variance: f64, best: f64) -> (f64, [f64; 2]) {
        // Where nothing is uncertain, the limit: a tiny deviation keeps every formula finite.
        let sigma = variance.max(1e-300).sqrt();
        let by_sigma_to_variance = 0.5 / sigma;
        let z = (mu - best) / sigma;
        match self {
            Self::UpperConfidence { beta } => {
                (mu + beta.sqrt() * sigma, [1.0, beta.sqrt() * by_sigma_to_variance])
            }
            Self::ExpectedImprovement => {
                // σ h(z): ∂/∂μ = Φ(z), ∂/∂σ = φ(z).
                let value = sigma * log_improvement(z).0.exp();
                let by_sigma = crate::normal::density(z);
                (value, [crate::normal::cumulative(z), by_sigma * by_sigma_to_variance])
            }
            Self::LogExpectedImprovement => {
                let (log_h, slope) = log_improvement(z);
                (sigma.ln() + log_h, [slope / sigma, (1.0 - slope * z) / sigma * by_sigma_to_variance])
            }
            Self::ProbabilityOfImprovement | Self::MaxValueEntropy => {
                let (log_p, slope) = log_cumulative(z);
                (log_p, [slope / sigma, -slope * z / sigma * by_sigma_to_variance])
            }
        }
    }
}

/// The information about the maximum, with its derivatives in mean and variance.
///
/// With t = r(γ + r), ρ² = v/(v + σ_n²): −½ log(1 − ρ²t), and dt/dγ = r(1 − t) − t(γ + r) since r' = −t.
fn information(mu: f64, variance: f64, noise: f64, maxima: &[f64]) -> Result<(f64, [f64; 2])> {
    if maxima.is_empty() {
        let reason = "no maxima were drawn from the posterior to compare with";
        return Err(Error::Unsupported { operation: "max-value entropy", reason });
    }
    let v = variance.max(1e-300);
    let (sigma, share) = (v.sqrt(), (maxima.len() as f64).recip());
    let rho2 = v / (v + noise);
    let rho2_slope = noise / (v + noise).powi(2);
    let (mut value, mut slopes) = (0.0, [0.0; 2]);
    for maximum in maxima {
        let gamma = (maximum - mu) / sigma;
        let (_, r) = log_cumulative(gamma);
        // Between 0 and 1; the bound keeps the logarithm finite where rounding says 1.
        let t = (r * (gamma + r)).clamp(0.0, 1.0 - 1e-12);
        let left = 1.0 - rho2 * t;
        value -= 0.5 * share * left.ln();
        let by_gamma = 0.5 * share * rho2 * (r * (1.0 - t) - t * (gamma + r)) / left;
        slopes[0] -= by_gamma / sigma;
        slopes[1] += 0.5 * share * t * rho2_slope / left - 0.5 * by_gamma * gamma / v;
    }
    Ok((value, slopes))
}
