//! The evidence of a sparse posterior and its gradient, exact in every hyperparameter.
//!
//! With H = Q + A/σ², Q = K⁻¹, a = H⁻¹b/σ² and Z = H⁻¹,
//!
//! ```text
//! log p(y) = −½ [ c/σ² − aᵀb/σ² + log det H + log det K + n log σ² + ℓ + n log 2π ]
//! ∂/∂θ     = −½ [ ⟨Z + a aᵀ, Q_θ⟩ + ∂ log det K/∂θ ]
//! ∂/∂σ²    = ½ [ (c − 2aᵀb + aᵀA a)/σ⁴ − n/σ² + ⟨A, Z⟩/σ⁴ ]
//! ```
//!
//! Q_θ has the pattern of Q and A that of the stencil: of Z + a aᵀ, the second moment of the unknowns, only entries are
//! read that the selected inverse holds.

use super::{Selected, SparsePosterior};
use crate::error::{Error, Result};
use crate::evidence::Evidence;
use crate::simd::dot;
use crate::stats::Stats;
use crate::structure::Symmetric;

impl SparsePosterior {
    /// log p(y) alone: O(m) beyond the factorization.
    ///
    /// `stats` must be the statistics that the posterior was made from.
    pub fn log_evidence(&self, stats: &Stats) -> Result<f64> {
        self.check(stats)?;
        let n = stats.count();
        Ok(-0.5
            * ((stats.c() - dot(&self.mean, stats.b())) / self.noise
                + self.log_det()
                + n * (self.noise.ln() + std::f64::consts::TAU.ln())
                + stats.log_noise()))
    }

    /// The evidence and its gradient in all parameters of the kernel and in the noise: one selected inverse,
    /// if [`SparsePosterior::covariance`] has not been asked for before, and O(7^d m).
    ///
    /// `stats` must be the statistics that the posterior was made from.
    pub fn evidence(&self, stats: &Stats) -> Result<Evidence> {
        let value = self.log_evidence(stats)?;
        let (a, noise) = (&self.mean, self.noise);
        let Selected { covariance, moment } = self.selected();
        let mut gradient = vec![0.0; self.kernel.parameter_count()];
        // Q is proportional to 1/s, and log det K to M log s for M unknowns.
        let by_scale = 0.5 * (moment.value - self.unknowns() as f64) / self.prior.scale();
        self.kernel.vjp_scale(0, by_scale, &mut gradient);
        for (k, (by_rate, log_det)) in moment.by_rate.iter().zip(self.prior.log_det_slopes()).enumerate() {
            self.kernel.vjp_rate(k, -0.5 * (by_rate + log_det), &mut gradient);
        }

        // `data` is A/σ².
        let mut image = vec![0.0; a.len()];
        self.data.apply(a, &mut image, &mut []);
        let residual = (stats.c() - 2.0 * dot(a, stats.b())) / noise + dot(a, &image);
        let by_noise = 0.5 * (residual - stats.count() + self.data.inner(covariance)) / noise;
        Ok(Evidence { value, by_kernel: vec![gradient], by_noise })
    }

    /// Rejects statistics that are not those of this posterior.
    fn check(&self, stats: &Stats) -> Result<()> {
        if stats.lattice() == &self.lattice && stats.count() == self.count && stats.c() == self.squares {
            return Ok(());
        }
        let reason = "these are not the statistics that the posterior was made from";
        Err(Error::Unsupported { operation: "evidence", reason })
    }
}
