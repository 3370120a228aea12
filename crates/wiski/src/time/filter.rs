//! The filter: the joint Gaussian of all coordinates, moved on in time and conditioned on rows, one after the other.
//!
//! With P = Cov z and h of a row: predict P ← F P Fᵀ + Q; then S = hᵀP h + σ², gain P h/S, mean += gain (y − hᵀm),
//! P −= (P h)(P h)ᵀ/S. Both steps compute an entry and its mirror by the same products, so P stays symmetric to the
//! last bit. A row costs three sweeps over p² numbers and allocates nothing; a row without a target costs nothing, since
//! the next gap is then longer.

use serde::{Deserialize, Serialize};

use super::system::{Inputs, System, Transition};
use crate::error::{Error, Result, length};
use crate::saved::{Restore, restored_after_reading};
use crate::simd::{self, padded};

/// Mean and covariance of the coordinates at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Belief {
    pub(super) time: f64,
    #[serde(with = "crate::saved::floats")]
    pub(super) mean: Vec<f64>,
    /// Rows padded with zeros.
    #[serde(with = "crate::saved::floats")]
    pub(super) covariance: Vec<f64>,
}

restored_after_reading!(Belief);

impl Restore for Belief {
    fn restore(&mut self) -> Result<()> {
        let p = self.mean.len();
        length("covariance of the states", p * padded(p), self.covariance.len())?;
        let stride = padded(p);
        let sound = (0..p).all(|i| self.covariance[i * stride + i] >= 0.0);
        if sound && self.time.is_finite() {
            return Ok(());
        }
        Err(Error::Config { field: "states".into(), reason: "a variance is negative".into() })
    }
}

/// What was expected of a row before it was learned.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Expected {
    /// The mean of y.
    pub mean: f64,
    /// The variance of y, noise included.
    pub variance: f64,
}

impl Expected {
    /// log N(y; mean, variance).
    pub fn log_density(&self, y: f64) -> f64 {
        let e = y - self.mean;
        -0.5 * (e * e / self.variance + self.variance.ln() + std::f64::consts::TAU.ln())
    }
}

/// Buffers of a filter.
#[derive(Debug, Clone, Default)]
pub(super) struct Scratch {
    pub(super) transition: Transition,
    /// The observation of the last row, and P h of it.
    pub(super) h: Vec<f64>,
    pub(super) image: Vec<f64>,
    stale: bool,
}

impl Scratch {
    pub(super) fn new(system: &System) -> Self {
        let n = padded(system.dim());
        Self { h: vec![0.0; n], image: vec![0.0; n], stale: true, ..Self::default() }
    }

    /// F and Q of a gap; those of the last gap are kept.
    pub(super) fn prepare(&mut self, system: &System, gap: f64) {
        if self.stale || self.transition.gap != gap {
            system.transition(gap, &mut self.transition);
            // Padded, so that loops have no remainders.
            let n = padded(system.dim());
            self.transition.decay.resize(n, 0.0);
            self.transition.noise.resize(n, 0.0);
            self.stale = false;
        }
    }
}

impl Belief {
    /// The prior at a time.
    pub fn prior(system: &System, time: f64) -> Self {
        let p = system.dim();
        let stride = padded(p);
        let (diagonal, blocks) = system.prior();
        let mut covariance = vec![0.0; p * stride];
        diagonal.iter().enumerate().for_each(|(i, v)| covariance[i * stride + i] = *v);
        for block in blocks {
            for i in 0..block.size {
                for j in 0..block.size {
                    covariance[(block.at + i) * stride + block.at + j] = block.q[3 * i + j];
                }
            }
        }
        Self { time, mean: vec![0.0; p], covariance }
    }

    /// The number of coordinates.
    pub fn dim(&self) -> usize {
        self.mean.len()
    }

    /// The time up to which rows have been learned, in steps.
    pub fn time(&self) -> f64 {
        self.time
    }

    /// Moves on to a later time.
    pub(super) fn advance(&mut self, system: &System, time: f64, scratch: &mut Scratch) {
        let gap = time - self.time;
        if gap <= 0.0 {
            return;
        }
        scratch.prepare(system, gap);
        self.time = time;
        let (p, stride) = (self.dim(), padded(self.dim()));
        let Transition { decay, noise, blocks, .. } = &scratch.transition;
        simd::scale_both(&mut self.covariance, stride, decay);
        for i in 0..p {
            self.covariance[i * stride + i] += noise[i];
            self.mean[i] *= decay[i];
        }
        for block in blocks {
            let (at, n, f) = (block.at, block.size, &block.f);
            let mut old = [0.0; 3];
            let mix = |old: &[f64; 3], i: usize| (0..n).map(|k| f[3 * i + k] * old[k]).sum::<f64>();
            for j in 0..p {
                (0..n).for_each(|k| old[k] = self.covariance[(at + k) * stride + j]);
                (0..n).for_each(|i| self.covariance[(at + i) * stride + j] = mix(&old, i));
            }
            for row in self.covariance.chunks_exact_mut(stride) {
                old[..n].copy_from_slice(&row[at..at + n]);
                (0..n).for_each(|i| row[at + i] = mix(&old, i));
            }
            old[..n].copy_from_slice(&self.mean[at..at + n]);
            (0..n).for_each(|i| self.mean[at + i] = mix(&old, i));
            for i in 0..n {
                for j in 0..n {
                    self.covariance[(at + i) * stride + at + j] += block.q[3 * i + j];
                }
                // The two orders of products may differ in the last bit.
                for j in 0..i {
                    self.covariance[(at + j) * stride + at + i] = self.covariance[(at + i) * stride + at + j];
                }
            }
        }
    }

    /// What the observation h says: its mean and variance with noise. `image` becomes P h.
    pub(super) fn expect(&self, noise: f64, h: &[f64], image: &mut [f64]) -> Expected {
        simd::dot_rows(&self.covariance, padded(self.dim()), h, &mut image[..self.dim()]);
        let variance = simd::dot(&h[..self.dim()], &image[..self.dim()]).max(0.0) + noise;
        Expected { mean: simd::dot(&h[..self.dim()], &self.mean), variance }
    }

    /// Conditions on y, after [`Belief::expect`] of its observation.
    pub(super) fn condition(&mut self, expected: &Expected, y: f64, image: &mut [f64]) {
        let p = self.dim();
        simd::add_scaled(&mut self.mean, (y - expected.mean) / expected.variance, &image[..p]);
        let scale = expected.variance.sqrt().recip();
        image[..p].iter_mut().for_each(|v| *v *= scale);
        simd::deflate_both(&mut self.covariance, padded(p), image);
    }

    /// Moves on to a row, predicts it, and learns it if it has a target. `noise` multiplies the variance of the noise.
    pub(super) fn step(
        &mut self,
        system: &System,
        row: &Inputs,
        y: Option<f64>,
        scratch: &mut Scratch,
    ) -> Expected {
        self.advance(system, row.time, scratch);
        system.observation(row, &mut scratch.h);
        let expected = self.expect(system.noise(), &scratch.h, &mut scratch.image);
        if let Some(y) = y {
            self.condition(&expected, y, &mut scratch.image);
        }
        expected
    }
}
