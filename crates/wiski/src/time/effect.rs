//! What an input known ahead does to a series: features φ(x) whose weights have independent priors.
//!
//! A number has a smooth function: φ(x) = L⁻¹k_Z(x) with k(Z, Z) = L Lᵀ, a Matérn 5/2 process conditioned on a small
//! grid Z over the range of the rows, whose prior in these coordinates is v I. Beyond the range it stays as it is at
//! the edge. A level has a weight of its own. An effect may change with a cycle, as that of a temperature does with the
//! hour of the day: then every feature is multiplied by the cosines and sines of that cycle.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use crate::dense;
use crate::error::{Error, Result};
use faer::Mat;

/// The points of the grid of a smooth effect.
const POINTS: usize = 10;
/// Its length-scale, in units of the range.
const LENGTHSCALE: f64 = 0.35;

/// How one input becomes features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Shape {
    /// A straight line: (x − center)/scale.
    Linear {
        /// The value without effect.
        center: f64,
        /// The unit.
        scale: f64,
    },
    /// A smooth function.
    Smooth {
        /// The lower end of the grid.
        lo: f64,
        /// The upper end.
        hi: f64,
        /// The lower Cholesky factor of the kernel on the grid, row by row.
        root: Vec<f64>,
    },
    /// Levels 0, 1, …; a level that was never seen has no effect.
    Levels(usize),
    /// A place on a circle, by its cosines and sines.
    Cyclic {
        /// After how much it repeats.
        period: f64,
        /// How many multiples of the frequency there are.
        harmonics: usize,
    },
}

impl Shape {
    /// A smooth function on a range.
    pub fn smooth(lo: f64, hi: f64) -> Result<Self> {
        let at = |i: usize| i as f64 / (POINTS - 1) as f64;
        let gram = Mat::from_fn(POINTS, POINTS, |i, j| matern52((at(i) - at(j)) / LENGTHSCALE));
        let l = dense::cholesky(gram)?;
        let root = (0..POINTS * POINTS).map(|i| l[(i / POINTS, i % POINTS)]).collect();
        Ok(Self::Smooth { lo, hi, root })
    }

    /// The number of features.
    pub fn dim(&self) -> usize {
        match self {
            Self::Linear { .. } => 1,
            Self::Smooth { .. } => POINTS,
            Self::Levels(levels) => *levels,
            Self::Cyclic { harmonics, .. } => 2 * harmonics,
        }
    }

    fn write(&self, x: f64, out: &mut [f64]) {
        match self {
            Self::Linear { center, scale } => out[0] = (x - center) / scale,
            Self::Smooth { lo, hi, root } => {
                let u = ((x - lo) / (hi - lo)).clamp(0.0, 1.0);
                for i in 0..POINTS {
                    let row = &root[i * POINTS..=i * POINTS + i];
                    let mut v = matern52((u - i as f64 / (POINTS - 1) as f64) / LENGTHSCALE);
                    for k in 0..i {
                        v -= row[k] * out[k];
                    }
                    out[i] = v / row[i];
                }
            }
            Self::Levels(_) => {
                out.fill(0.0);
                if x >= 0.0
                    && let Some(one) = out.get_mut(x.round() as usize)
                {
                    *one = 1.0;
                }
            }
            Self::Cyclic { period, harmonics } => circle(x / period, *harmonics, out),
        }
    }
}

fn matern52(r: f64) -> f64 {
    let s = 5f64.sqrt() * r.abs();
    (1.0 + s + s * s / 3.0) * (-s).exp()
}

/// cos 2πu, sin 2πu, cos 4πu, … for so many harmonics.
pub(super) fn circle(u: f64, harmonics: usize, out: &mut [f64]) {
    let (sin, cos) = (TAU * (u - u.floor())).sin_cos();
    let (mut c, mut s) = (cos, sin);
    for pair in out[..2 * harmonics].chunks_exact_mut(2) {
        pair[0] = c;
        pair[1] = s;
        (c, s) = (c * cos - s * sin, s * cos + c * sin);
    }
}

/// A cycle of time that an effect changes with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cycle {
    /// The period, in steps.
    pub period: f64,
    /// How many multiples of its frequency.
    pub harmonics: usize,
}

/// The features of one input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Which input, counted from 0.
    pub column: usize,
    /// How it becomes features.
    pub shape: Shape,
    /// The cycle it changes with, if it does.
    pub by: Option<Cycle>,
}

impl Effect {
    /// The number of features.
    pub fn dim(&self) -> usize {
        self.shape.dim() * self.by.map_or(1, |cycle| 2 * cycle.harmonics)
    }

    /// Rejects what does not fit rows of so many inputs.
    pub(super) fn check(&self, width: usize) -> Result<()> {
        let sound = match &self.shape {
            Shape::Linear { scale, .. } => *scale != 0.0 && scale.is_finite(),
            Shape::Smooth { root, lo, hi } => root.len() == POINTS * POINTS && lo < hi,
            Shape::Levels(levels) => *levels <= 1 << 12,
            Shape::Cyclic { period, harmonics } => *period > 0.0 && *harmonics <= MOST_HARMONICS,
        };
        let cycle = self.by.is_none_or(|by| by.period > 0.0 && by.harmonics <= MOST_HARMONICS);
        if sound && cycle && self.column < width {
            return Ok(());
        }
        let reason = format!("the effect of input {} is not one of a model with {width} inputs", self.column);
        Err(Error::Config { field: "effects".into(), reason })
    }

    /// Writes the features of an input at a time.
    pub(super) fn write(&self, time: f64, x: &[f64], out: &mut [f64]) {
        let n = self.shape.dim();
        self.shape.write(x[self.column], &mut out[..n]);
        if let Some(cycle) = self.by {
            let mut hand = [0.0; 2 * MOST_HARMONICS];
            let hand = &mut hand[..2 * cycle.harmonics];
            circle(time / cycle.period, cycle.harmonics, hand);
            for (k, &turn) in hand.iter().enumerate().rev() {
                for i in 0..n {
                    out[k * n + i] = turn * out[i];
                }
            }
        }
    }
}

/// The most harmonics of a cycle.
pub(super) const MOST_HARMONICS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smooth_features_are_a_kernel_on_the_grid() {
        let shape = Shape::smooth(-2.0, 3.0).unwrap();
        let (mut a, mut b) = ([0.0; POINTS], [0.0; POINTS]);
        let step = 5.0 / (POINTS - 1) as f64;
        shape.write(-2.0 + 2.0 * step, &mut a);
        shape.write(-2.0 + 5.0 * step, &mut b);
        let inner: f64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
        assert!((inner - matern52(3.0 / (POINTS - 1) as f64 / LENGTHSCALE)).abs() < 1e-12);
        shape.write(3.0, &mut a);
        shape.write(100.0, &mut b);
        assert_eq!(a, b);
    }

    #[test]
    fn cycles_multiply_features() {
        let by = Some(Cycle { period: 24.0, harmonics: 2 });
        let effect = Effect { column: 1, shape: Shape::Linear { center: 1.0, scale: 2.0 }, by };
        let mut out = [0.0; 4];
        effect.write(3.0, &[9.0, 4.0], &mut out);
        let angle = TAU * 3.0 / 24.0;
        for (k, &v) in out.iter().enumerate() {
            let j = (k / 2 + 1) as f64;
            let hand = if k % 2 == 0 { (j * angle).cos() } else { (j * angle).sin() };
            assert!((v - 1.5 * hand).abs() < 1e-14);
        }
        let mut level = [0.0; 3];
        Shape::Levels(3).write(2.0, &mut level);
        assert_eq!(level, [0.0, 0.0, 1.0]);
        Shape::Levels(3).write(7.0, &mut level);
        assert_eq!(level, [0.0; 3]);
    }
}
