//! What is learned beside a model: functions of a row that are linear in a few features, by Kalman filters.
//!
//! ```text
//! g(x, t) = φ(x)ᵀu(t)     u(t + 1) = a u(t) + √(s(1 − a²)) ε     ε ~ N(0, I)
//! P⁻ = a² P + s(1 − a²) I     c = φᵀP⁻φ     u ← a u + P⁻φ (g − φᵀu)/(c + R)     P ← P⁻ − P⁻φ φᵀP⁻/(c + R)
//! ```
//!
//! for an observation of g with noise R. The r features φ are a constant, the model's own mean, the coordinates of the row,
//! and a few inducing points among them; they do not depend on grids or hyperparameters. 4 r² multiply-adds for a row.

use serde::{Deserialize, Serialize};

use crate::error::{Result, length};
use crate::kernel::Family;
use crate::points::Points;
use crate::simd::{add_scaled, dot};

/// The most inducing points, and the most coordinates that have a feature each.
const MOST_POINTS: usize = 32;
const MOST_COORDINATES: usize = 32;
/// The most features.
pub(super) const MOST_FEATURES: usize = 2 + MOST_COORDINATES + MOST_POINTS;
/// The rows among which inducing points are sought.
const CANDIDATES: usize = 1024;

/// φ: what is learned beside a model is linear in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Basis {
    /// The first of the coordinates that are read; all after it are.
    first: usize,
    points: Points,
}

impl Basis {
    /// Over the coordinates of rows given one after the other, from `first` on; the inducing points have length-scales of
    /// `width` deviations in one dimension, and in more of them as much more as distances are larger.
    pub(super) fn new(h: &[f64], dim: usize, first: usize, width: f64) -> Result<Self> {
        let used = dim - first;
        let count = h.len() / dim;
        let stride = count.div_ceil(CANDIDATES).max(1);
        let rows: Vec<&[f64]> = h.chunks_exact(dim).step_by(stride).map(|row| &row[first..]).collect();
        let length_of = |k: usize| {
            let mean = rows.iter().map(|row| row[k]).sum::<f64>() / rows.len() as f64;
            let variance = rows.iter().map(|row| (row[k] - mean).powi(2)).sum::<f64>() / rows.len() as f64;
            let std = if variance > 0.0 { variance.sqrt() } else { 1.0 };
            width * (used as f64).sqrt() * std
        };
        let lengths: Vec<f64> = (0..used).map(length_of).collect();
        let centers = farthest_first(&rows, &lengths, MOST_POINTS);
        Ok(Self { first, points: Points::new(Family::Rbf, &centers, &lengths)? })
    }

    /// The number of coordinates that it is over.
    pub(super) fn dim(&self) -> usize {
        self.first + self.points.dim()
    }

    /// The coordinates that have a feature each: none of very many.
    pub(super) fn coordinates(&self) -> usize {
        if self.points.dim() <= MOST_COORDINATES { self.points.dim() } else { 0 }
    }

    pub(super) fn len(&self) -> usize {
        2 + self.coordinates() + self.points.len()
    }

    /// φ at coordinates where the model says `mean`. The four kinds of features have a quarter of the variance each.
    pub(super) fn features(&self, h: &[f64], mean: f64, phi: &mut [f64]) {
        let (read, linear) = (&h[self.first..], self.coordinates());
        let (plain, of_points) = phi.split_at_mut(2 + linear);
        (plain[0], plain[1]) = (1.0, mean.clamp(-3.0, 3.0));
        let scale = (linear.max(1) as f64).sqrt().recip();
        plain[2..].iter_mut().zip(read).for_each(|(phi, h)| *phi = scale * h.clamp(-3.0, 3.0));
        self.points.weigh(read, of_points);
        phi.iter_mut().for_each(|phi| *phi *= 0.5);
    }
}

/// Rows far from each other, one after the other (Gonzalez 1985), from the first one on.
fn farthest_first(rows: &[&[f64]], lengths: &[f64], most: usize) -> Vec<f64> {
    let distance = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).zip(lengths).map(|((a, b), l)| ((a - b) / l).powi(2)).sum()
    };
    let mut nearest = vec![f64::INFINITY; rows.len()];
    let (mut chosen, mut next) = (Vec::new(), 0);
    while chosen.len() < most * lengths.len() && nearest[next] > 0.0 {
        chosen.extend_from_slice(rows[next]);
        let newest = rows[next];
        nearest.iter_mut().zip(rows).for_each(|(near, row)| *near = near.min(distance(row, newest)));
        let farther = |best: usize, i: usize| if nearest[i] > nearest[best] { i } else { best };
        next = (0..rows.len()).fold(0, farther);
    }
    chosen
}

/// Coefficients u of features φ, and their covariance P.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Coefficients {
    #[serde(with = "crate::saved::floats")]
    pub(super) mean: Vec<f64>,
    /// P, r rows of r numbers.
    #[serde(with = "crate::saved::floats")]
    pub(super) covariance: Vec<f64>,
}

impl Coefficients {
    pub(super) fn prior(size: usize, scale: f64) -> Self {
        let mut covariance = vec![0.0; size * size];
        covariance.iter_mut().step_by(size + 1).for_each(|v| *v = scale);
        Self { mean: vec![0.0; size], covariance }
    }

    /// Whether they can be a filter's state; their number must be right.
    pub(super) fn are_sound(&self, size: usize) -> Result<bool> {
        length("coefficients of a filter", size, self.mean.len())?;
        length("covariances of a filter", size * size, self.covariance.len())?;
        let is_finite = self.mean.iter().chain(&self.covariance).all(|v| v.is_finite());
        Ok(is_finite && self.covariance.iter().step_by(size + 1).all(|&v| v >= 0.0))
    }

    /// The mean and variance of g at φ after `a` and `grown` = s(1 − a²); leaves P⁻φ in `gain`.
    pub(super) fn at(&self, phi: &[f64], a: f64, grown: f64, gain: &mut [f64]) -> (f64, f64) {
        let rows = self.covariance.chunks_exact(phi.len());
        for ((gain, row), &own) in gain.iter_mut().zip(rows).zip(phi) {
            *gain = a * a * dot(row, phi) + grown * own;
        }
        (a * dot(&self.mean, phi), dot(gain, phi).max(0.0))
    }

    /// Takes in a residual that g is `step`·(c + noise) short of, given P⁻φ and c + noise.
    pub(super) fn update(&mut self, a: f64, grown: f64, gain: &[f64], total: f64, step: f64) {
        for (u, g) in self.mean.iter_mut().zip(gain) {
            *u = a * *u + step * g;
        }
        let size = gain.len();
        for (i, row) in self.covariance.chunks_exact_mut(size).enumerate() {
            row.iter_mut().for_each(|v| *v *= a * a);
            add_scaled(row, -gain[i] / total, gain);
            row[i] += grown;
        }
    }
}
