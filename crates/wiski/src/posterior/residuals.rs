//! What inducing points do not carry: the prior covariance of g given its values at the points.
//!
//! Of two places it is s (κ(x, x') − w_gᵀw_g'), at one place s ρ(x). Data are taken to say nothing about it, so it is
//! part of every posterior.

use crate::interp::{Placed, Placement};
use crate::points::Points;
use crate::prior::Prior;
use crate::simd::dot;

/// The conditional covariance of g at several places.
pub(super) struct Residuals<'a> {
    points: Option<(&'a Points, f64)>,
    /// The places, d coordinates each, of which the inputs of the points are the last.
    h: &'a [f64],
    d: usize,
    skip: usize,
    /// w_g of each place, and ρ.
    weights: Vec<f64>,
    residuals: Vec<f64>,
}

impl<'a> Residuals<'a> {
    /// For q places given row after row, whose weights are still to be pushed.
    pub(super) fn new(prior: &'a Prior, h: &'a [f64], q: usize) -> Self {
        let lattice = prior.lattice();
        let points = lattice.points().map(|points| (points.as_ref(), prior.residual_scale()));
        Self::of(points, h, lattice.dim(), lattice.grid_dim(), q)
    }

    /// The same for given points and scale; the inputs stand behind `skip` of the d coordinates.
    pub(super) fn of(
        points: Option<(&'a Points, f64)>,
        h: &'a [f64],
        d: usize,
        skip: usize,
        q: usize,
    ) -> Self {
        let m = points.map_or(0, |(points, _)| points.len());
        Self { points, h, d, skip, weights: Vec::with_capacity(q * m), residuals: Vec::with_capacity(q) }
    }

    /// Takes the weights of the next place.
    pub(super) fn push(&mut self, placement: &Placement) {
        self.weights.extend_from_slice(Placed::from(placement).dense);
        self.residuals.push(placement.residual(0));
    }

    fn place(&self, i: usize) -> &'a [f64] {
        &self.h[i * self.d + self.skip..(i + 1) * self.d]
    }

    fn weights(&self, i: usize, m: usize) -> &[f64] {
        &self.weights[i * m..(i + 1) * m]
    }

    /// s (κ(x_i, x_j) − w_iᵀw_j).
    pub(super) fn covariance(&self, i: usize, j: usize) -> f64 {
        let Some((points, scale)) = self.points else { return 0.0 };
        if i == j {
            return scale * self.residuals[i];
        }
        let m = points.len();
        let carried = dot(self.weights(i, m), self.weights(j, m));
        scale * (points.correlation(self.place(i), self.place(j)) - carried)
    }

    /// The derivatives of Σ_ij C̄_ij covariance(i, j) in place i: those in its weights, added to `by_weights`, and those
    /// in its inputs, added to `gradient`.
    pub(super) fn pull_back(
        &self,
        i: usize,
        by_covariance: &[f64],
        by_weights: &mut [f64],
        gradient: &mut [f64],
    ) {
        let Some((points, scale)) = self.points else { return };
        let (q, m) = (self.residuals.len(), points.len());
        for j in 0..q {
            // On the diagonal κ(x, x) = 1 does not move, and the weights enter twice.
            let c = scale * (by_covariance[i * q + j] + by_covariance[j * q + i]);
            by_weights.iter_mut().zip(self.weights(j, m)).for_each(|(by, w)| *by -= c * w);
            if i != j {
                points.pull_back_correlation(self.place(i), self.place(j), c, gradient);
            }
        }
    }
}
