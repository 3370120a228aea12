//! The last, linear layer of a map: h = tanh(z/2), z = (P v − mean)/std, with its derivatives.
//!
//! v is the input row of a [`Linear`](super::Linear) map and the last hidden layer of an
//! [`Mlp`](super::Mlp); the moments μ, Σ, W are those of v. With C = Σ/W the batch statistics of row p of P
//! and their derivatives are closed forms:
//!
//! ```text
//! z = p·(v − μ)/s,   s² = pᵀC p + ε       ∂z/∂p = (v − μ)/s − z C p/s²       ∂z/∂v = p/s
//! ```
//!
//! C p costs O(D²) for each of k outputs and depends on P and the moments only. So it is computed once, into
//! a [`Normalizer`]; each row then costs O(kD) forward and backward. The deviation v − μ is formed before the
//! product, since P v − Pμ would lose digits where the inputs lie far from zero.

use std::mem::take;

use crate::error::{Error, Result, length, positive};
use serde::{Deserialize, Serialize};

use super::{Moments, check_entry, check_finite};
use crate::saved::{Restore, restored_after_reading};
use crate::simd::dot;

/// Added to every batch variance: ε = 10⁻⁵, as in the paper's code. It is an absolute number, so inputs are
/// expected at a scale near 1; a direction with variance far below ε is treated as constant.
pub const EPSILON: f64 = 1e-5;

/// What follows the product P v.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Scaling {
    /// Nothing: h = P v.
    Plain,
    /// h = tanh(z/2) with the mean and standard deviation of P v under the current moments.
    Batch,
    /// h = tanh(z/2) with a mean and standard deviation fixed earlier.
    Frozen(Frozen),
}

/// Batch statistics that have become constants: z_j = (p_j·v − mean_j)/std_j.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Frozen {
    #[serde(with = "crate::saved::floats")]
    #[serde(alias = "centre")]
    center: Vec<f64>,
    #[serde(with = "crate::saved::floats")]
    mean: Vec<f64>,
    #[serde(with = "crate::saved::floats")]
    std: Vec<f64>,
}

restored_after_reading!(Frozen);

impl Restore for Frozen {
    fn restore(&mut self) -> Result<()> {
        *self = Self::new(take(&mut self.center), take(&mut self.mean), take(&mut self.std))?;
        Ok(())
    }
}

impl Frozen {
    /// Constant means and standard deviations of the outputs. `center` is a point near the inputs (their
    /// mean): z is evaluated as p·(v − center) + (p·center − mean), which keeps its digits.
    pub fn new(center: Vec<f64>, mean: Vec<f64>, std: Vec<f64>) -> Result<Self> {
        length("std", mean.len(), std.len())?;
        check_finite("center", &center)?;
        check_finite("mean", &mean)?;
        for (j, &s) in std.iter().enumerate() {
            positive(format!("std[{j}]"), s, 0)?;
        }
        Ok(Self { center, mean, std })
    }

    /// The point that is subtracted from the inputs.
    pub fn center(&self) -> &[f64] {
        &self.center
    }

    /// The mean of each output.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The standard deviation of each output, with ε inside.
    pub fn std(&self) -> &[f64] {
        &self.std
    }
}

impl Scaling {
    /// Rejects constants that do not fit `inputs` × `outputs`.
    pub(super) fn check(&self, inputs: usize, outputs: usize) -> Result<()> {
        if let Self::Frozen(frozen) = self {
            length("frozen center", inputs, frozen.center.len())?;
            length("frozen mean", outputs, frozen.mean.len())?;
        }
        Ok(())
    }

    /// The constants that reproduce today's batch statistics. `None` where there is nothing to freeze.
    pub(super) fn freeze(&self, weights: &[f64], moments: &Moments) -> Result<Option<Self>> {
        if *self != Self::Batch {
            return Ok(None);
        }
        let mut now = Normalizer::default();
        now.prepare(self, weights, moments)?;
        let mean = weights.chunks_exact(moments.dim()).map(|p| dot(p, moments.mean())).collect();
        let std = now.inverse_std.iter().map(|r| r.recip()).collect();
        Ok(Some(Self::Frozen(Frozen::new(now.center, mean, std)?)))
    }
}

/// Which terms the derivative with respect to P has.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Mode {
    #[default]
    Plain,
    Batch,
    Frozen,
}

/// The part of a map's work that depends on its parameters and the moments but not on the row.
///
/// A caller owns one and lends it to [`FeatureMap::prepare`](super::FeatureMap::prepare), which fills it
/// anew every time: it is memory to be reused, never a cache that could be out of date.
#[derive(Debug, Clone, Default)]
pub struct Normalizer {
    mode: Mode,
    /// Subtracted from v.
    center: Vec<f64>,
    /// Added to p·(v − center).
    offset: Vec<f64>,
    /// 1/s for each output.
    inverse_std: Vec<f64>,
    /// C p/s² for each output (batch statistics only).
    slope: Vec<f64>,
}

impl Normalizer {
    /// Fills everything for `weights` = P. O(kD²) with batch statistics, O(kD) otherwise.
    pub(super) fn prepare(&mut self, scaling: &Scaling, weights: &[f64], moments: &Moments) -> Result<()> {
        check_finite("parameter", weights)?;
        self.center.clear();
        self.offset.clear();
        self.inverse_std.clear();
        self.slope.clear();
        match scaling {
            Scaling::Plain => self.mode = Mode::Plain,
            Scaling::Batch => {
                self.mode = Mode::Batch;
                self.prepare_batch(weights, moments)?;
            }
            Scaling::Frozen(frozen) => {
                self.mode = Mode::Frozen;
                self.center.extend_from_slice(&frozen.center);
                let rows = weights.chunks_exact(frozen.center.len());
                self.offset.extend(rows.zip(&frozen.mean).map(|(p, mean)| dot(p, &frozen.center) - mean));
                self.inverse_std.extend(frozen.std.iter().map(|s| s.recip()));
            }
        }
        Ok(())
    }

    fn prepare_batch(&mut self, weights: &[f64], moments: &Moments) -> Result<()> {
        if moments.rows() < 2 {
            return Err(Error::Config {
                field: "moments".into(),
                reason: format!("batch statistics need at least 2 rows, not {}", moments.rows()),
            });
        }
        self.center.extend_from_slice(moments.mean());
        self.slope.resize(weights.len(), 0.0);
        let dim = moments.dim();
        for (j, (p, slope)) in weights.chunks_exact(dim).zip(self.slope.chunks_exact_mut(dim)).enumerate() {
            moments.covariance_times(p, slope);
            let variance = dot(p, slope).max(0.0) + EPSILON;
            check_entry("variance of z", j, variance)?;
            for q in slope.iter_mut() {
                *q /= variance;
            }
            self.inverse_std.push(variance.sqrt().recip());
            self.offset.push(0.0);
        }
        Ok(())
    }

    /// Writes z and h for one row v.
    pub(super) fn forward(&self, weights: &[f64], v: &[f64], z: &mut [f64], h: &mut [f64]) -> Result<()> {
        for (j, p) in weights.chunks_exact(v.len()).enumerate() {
            z[j] = if self.mode == Mode::Plain {
                dot(p, v)
            } else {
                (centered_dot(p, v, &self.center) + self.offset[j]) * self.inverse_std[j]
            };
            check_entry("z", j, z[j])?;
            h[j] = if self.mode == Mode::Plain { z[j] } else { (0.5 * z[j]).tanh() };
        }
        Ok(())
    }

    /// Adds ∂L/∂P to `d_weights` and writes ∂L/∂v, given ∂L/∂h and what `forward` wrote.
    pub(super) fn backward(
        &self,
        weights: &[f64],
        pass: &Pass<'_>,
        dh: &[f64],
        d_weights: &mut [f64],
        mut dv: Option<&mut [f64]>,
    ) {
        let v = pass.v;
        if let Some(dv) = dv.as_deref_mut() {
            dv.fill(0.0);
        }
        let rows = weights.chunks_exact(v.len()).zip(d_weights.chunks_exact_mut(v.len()));
        for (j, (p, dp)) in rows.enumerate() {
            let (dz, inverse) = match self.mode {
                Mode::Plain => (dh[j], 1.0),
                // 1 − h² as a product keeps its digits where tanh saturates.
                _ => (dh[j] * 0.5 * (1.0 - pass.h[j]) * (1.0 + pass.h[j]), self.inverse_std[j]),
            };
            let direct = dz * inverse;
            if self.mode == Mode::Batch {
                let through_std = dz * pass.z[j];
                let slope = &self.slope[j * v.len()..(j + 1) * v.len()];
                for (((g, &value), &mean), &q) in dp.iter_mut().zip(v).zip(&self.center).zip(slope) {
                    *g += direct * (value - mean) - through_std * q;
                }
            } else {
                dp.iter_mut().zip(v).for_each(|(g, &value)| *g += direct * value);
            }
            if let Some(dv) = dv.as_deref_mut() {
                dv.iter_mut().zip(p).for_each(|(g, &weight)| *g += direct * weight);
            }
        }
    }
}

/// What a forward pass through the head left on the tape.
pub(super) struct Pass<'a> {
    pub(super) v: &'a [f64],
    pub(super) z: &'a [f64],
    pub(super) h: &'a [f64],
}

fn centered_dot(p: &[f64], v: &[f64], center: &[f64]) -> f64 {
    p.iter().zip(v).zip(center).map(|((p, v), c)| p * (v - c)).sum()
}

#[cfg(test)]
impl Normalizer {
    /// Where the buffers lie and how large they are.
    pub(super) fn buffers(&self) -> [(*const f64, usize); 4] {
        [&self.center, &self.offset, &self.inverse_std, &self.slope].map(|v| (v.as_ptr(), v.capacity()))
    }
}
