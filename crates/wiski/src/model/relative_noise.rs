//! How noisy a row is beside others, by its coordinates: what rows are weighted by.
//!
//! ```text
//! D = σ² h₀(x)     log h₀(x) = φ(x)ᵀu
//! ```
//!
//! in the features φ of `filter` but the model's mean. A search fits it to what `spread` found on the rows in memory, and
//! learns them anew with it: rows where the noise is small then say more, as they should. From then on it does not change,
//! so that sums stay sums: a row that is un-learned has the noise that it was learned with, and models that share a shape can
//! be merged. What the noise does beyond it is followed by `spread`, which begins anew. O(r²) for a row; no allocation.

use serde::{Deserialize, Serialize};

use super::filter::{Basis, Coefficients, MOST_FEATURES};
use crate::error::{Error, Result, finite, length};
use crate::simd::dot;

/// The prior variance of u, and the variance of what φ cannot say of log h₀.
const SCALE: f64 = 2.0;
const LEFT: f64 = 0.01;
/// Fitted to at most so many rows.
const MOST_ROWS: usize = 2048;
/// How far log h₀ may go.
const FARTHEST: f64 = 4.0;
/// Noise whose logarithm has a smaller deviation over the rows is taken as the same everywhere.
const LEAST_DEVIATION: f64 = 0.1;

/// h₀.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RelativeNoise {
    basis: Basis,
    #[serde(with = "crate::saved::floats")]
    u: Vec<f64>,
}

impl RelativeNoise {
    /// Fitted to log h₀ at rows whose coordinates are given one after the other, in the given features; `None` if it is
    /// nearly the same everywhere.
    pub(super) fn fitted(basis: &Basis, h: &[f64], logs: &[f64]) -> Option<Self> {
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let variance = logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / logs.len() as f64;
        if variance.is_nan() || variance < LEAST_DEVIATION.powi(2) {
            return None;
        }
        // Ridge regression, row after row.
        let mut own = Coefficients::prior(basis.len(), SCALE);
        let (mut phi, mut gain) = (vec![0.0; basis.len()], vec![0.0; basis.len()]);
        let stride = logs.len().div_ceil(MOST_ROWS);
        for (h, log) in h.chunks_exact(basis.dim()).zip(logs).step_by(stride) {
            basis.features(h, 0.0, &mut phi);
            let (g, c) = own.at(&phi, 1.0, 0.0, &mut gain);
            let total = c + LEFT;
            own.update(1.0, 0.0, &gain, total, (log - mean - g) / total);
        }
        Some(Self { basis: basis.clone(), u: own.mean })
    }

    /// Rejects one over other coordinates.
    pub(crate) fn check(&self, dim: usize) -> Result<()> {
        length("coordinates of relative noise", dim, self.basis.dim())?;
        length("coefficients of relative noise", self.basis.len(), self.u.len())?;
        if self.basis.len() > MOST_FEATURES {
            let reason = format!("{} features are too many", self.basis.len());
            return Err(Error::Config { field: "relative noise".into(), reason });
        }
        self.u.iter().try_for_each(|&u| finite("relative noise", u, 0))
    }

    /// h₀ at coordinates.
    pub(super) fn at(&self, h: &[f64]) -> f64 {
        let mut phi = [0.0; MOST_FEATURES];
        let phi = &mut phi[..self.basis.len()];
        self.basis.features(h, 0.0, phi);
        dot(phi, &self.u).clamp(-FARTHEST, FARTHEST).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn a_smooth_shape_is_met_and_a_flat_one_is_none() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let h: Vec<f64> = (0..1000).map(|_| 2.0 * rng.random::<f64>() - 1.0).collect();
        let basis = Basis::new(&h, 2, 0, 0.75).unwrap();
        let log = |h: &[f64]| 1.5 * h[0] + (2.0 * h[1]).sin() * h[0];
        let logs: Vec<f64> = h.chunks_exact(2).map(log).collect();
        let mean = logs.iter().sum::<f64>() / 500.0;
        let noise = RelativeNoise::fitted(&basis, &h, &logs).unwrap();
        noise.check(2).unwrap();
        assert!(noise.check(3).is_err());
        let off = |h: &[f64]| (noise.at(h).ln() - log(h) + mean).powi(2);
        let rms = (h.chunks_exact(2).map(off).sum::<f64>() / 500.0).sqrt();
        assert!(rms < 0.1, "{rms}");
        let flat: Vec<f64> = logs.iter().map(|l| 5.0 + 0.05 * l).collect();
        assert!(RelativeNoise::fitted(&basis, &h, &flat).is_none());
    }
}
