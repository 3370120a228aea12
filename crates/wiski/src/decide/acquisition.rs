//! How much a point (or several together) promises, as a function of the joint prediction.

use super::batch::BaseSamples;
use super::normal::{log_cumulative, log_improvement};
use crate::error::{Error, Result, length};
use crate::posterior::{Joint, Surface};

/// What to maximise in order to find the next points. Values are to be large.
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
}

impl Acquisition {
    /// The usual upper confidence bound, β = 4.
    pub const UCB: Self = Self::UpperConfidence { beta: 4.0 };

    /// The value at points given row after row.
    pub fn value(
        &self,
        surface: &Surface,
        h: &[f64],
        best: f64,
        samples: &BaseSamples,
        joint: &mut Joint,
    ) -> Result<f64> {
        surface.predict(h, joint)?;
        let q = joint.points();
        self.of_joint(joint, best, samples, &mut vec![0.0; q], &mut vec![0.0; q * q])
    }

    /// The value, with its gradient in all coordinates of all points.
    pub fn value_and_gradient(
        &self,
        surface: &Surface,
        h: &[f64],
        best: f64,
        samples: &BaseSamples,
        joint: &mut Joint,
        gradient: &mut [f64],
    ) -> Result<f64> {
        surface.predict(h, joint)?;
        let q = joint.points();
        let (mut by_mean, mut by_covariance) = (vec![0.0; q], vec![0.0; q * q]);
        let value = self.of_joint(joint, best, samples, &mut by_mean, &mut by_covariance)?;
        gradient.fill(0.0);
        surface.pull_back(h, joint, &by_mean, &by_covariance, gradient)?;
        Ok(value)
    }

    /// The value and its derivatives in the joint mean and covariance.
    fn of_joint(
        &self,
        joint: &Joint,
        best: f64,
        samples: &BaseSamples,
        by_mean: &mut [f64],
        by_covariance: &mut [f64],
    ) -> Result<f64> {
        if joint.points() == 1 {
            let (value, [by_mu, by_variance]) = self.of_one(joint.mean[0], joint.variance(0), best);
            by_mean[0] = by_mu;
            by_covariance[0] = by_variance;
            return Ok(value);
        }
        length("base samples", joint.points(), samples.points())?;
        samples.reparameterise(joint, by_mean, by_covariance, |f, slopes, by_mean| match self {
            Self::UpperConfidence { beta } => {
                Ok(samples.upper_confidence(*beta, &joint.mean, f, slopes, by_mean))
            }
            Self::ExpectedImprovement => Ok(samples.improvement(best, f, slopes, by_mean)),
            Self::LogExpectedImprovement => Ok(samples.log_improvement(best, f, slopes, by_mean)),
            Self::ProbabilityOfImprovement => Err(Error::Unsupported {
                operation: "probability of improvement of several points",
                reason: "choose them one after the other, or another criterion",
            }),
        })
    }

    /// The closed form for one point, with its derivatives in mean and variance.
    fn of_one(&self, mu: f64, variance: f64, best: f64) -> (f64, [f64; 2]) {
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
                let by_sigma = super::normal::density(z);
                (value, [super::normal::cumulative(z), by_sigma * by_sigma_to_variance])
            }
            Self::LogExpectedImprovement => {
                let (log_h, slope) = log_improvement(z);
                (sigma.ln() + log_h, [slope / sigma, (1.0 - slope * z) / sigma * by_sigma_to_variance])
            }
            Self::ProbabilityOfImprovement => {
                let (log_p, slope) = log_cumulative(z);
                (log_p, [slope / sigma, -slope * z / sigma * by_sigma_to_variance])
            }
        }
    }
}
