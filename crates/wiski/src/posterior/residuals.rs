//! What inducing points do not carry: the prior covariance of g given its values at the points.
//!
//! Of two places it is s (κ(x, x') − w_gᵀw_g'), at one place s ρ(x). Data are taken to say nothing about it, so it is
//! part of every posterior. Here also stand the derivatives of a prediction in the inputs of the points.

use super::{Posterior, PredictionGradient, Workspace};
use crate::interp::{Placed, Placement};
use crate::points::Points;
use crate::prior::Prior;
use crate::simd::{dot, dot_rows};

/// The conditional covariance of g at several places.
pub(super) struct Residuals<'a> {
    points: Option<(&'a Points, f64)>,
    /// The places, d coordinates each, of which the inputs of the points are the last.
    h: &'a [f64],
    d: usize,
    skip: usize,
    /// w_g of each place, and ρ.
    weights: Vec<f64>,
    rho: Vec<f64>,
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
        Self { points, h, d, skip, weights: Vec::with_capacity(q * m), rho: Vec::with_capacity(q) }
    }

    /// Takes the weights of the next place.
    pub(super) fn push(&mut self, placement: &Placement) {
        self.weights.extend_from_slice(Placed::from(placement).dense);
        self.rho.push(placement.residual(0));
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
            return scale * self.rho[i];
        }
        let m = points.len();
        let carried = dot(self.weights(i, m), self.weights(j, m));
        scale * (points.correlation(self.place(i), self.place(j)) - carried)
    }

    /// The derivatives of Σ_ij C̄_ij covariance(i, j) in place i: those in its weights, added to `by_weights`, and those
    /// in its inputs, added to `gradient`.
    pub(super) fn vjp(&self, i: usize, by_covariance: &[f64], by_weights: &mut [f64], gradient: &mut [f64]) {
        let Some((points, scale)) = self.points else { return };
        let (q, m) = (self.rho.len(), points.len());
        for j in 0..q {
            // On the diagonal κ(x, x) = 1 does not move, and the weights enter twice.
            let c = scale * (by_covariance[i * q + j] + by_covariance[j * q + i]);
            by_weights.iter_mut().zip(self.weights(j, m)).for_each(|(by, w)| *by -= c * w);
            if i != j {
                points.vjp_correlation(self.place(i), self.place(j), c, gradient);
            }
        }
    }
}

impl Posterior {
    /// The derivatives in the inputs x of the inducing points. The mean has ∂/∂w_g = √s z̄_g, the variance
    /// 2√s (Pφ)_g − 2s w_g; while rows wait, the workspace has T Fᵀφ as its gain, and Pφ is F₀ times that.
    pub(super) fn push_slopes_of_points(&self, x: &[f64], ws: &mut Workspace, out: &mut PredictionGradient) {
        let (Some(prior), Some(points)) = (self.prior.points(), self.lattice().points()) else { return };
        let rows = prior.first * self.factor.stride()..prior.range().end * self.factor.stride();
        let (root, m) = (prior.scale.sqrt(), points.len());
        let (by_mean, by_variance) = ws.slopes.split_at_mut(m);
        by_mean.copy_from_slice(&self.mean[prior.range()]);
        if self.pending.is_empty() {
            by_variance.copy_from_slice(&ws.gain[prior.range()]);
        } else {
            dot_rows(&self.factor.rows()[rows.clone()], self.factor.stride(), &ws.gain, by_variance);
            let shift = self.pending.shift();
            for (by, row) in
                by_mean.iter_mut().zip(self.factor.rows()[rows].chunks_exact(self.factor.stride()))
            {
                *by += dot(row, shift);
            }
        }
        let weights = Placed::from(&ws.placement).dense;
        for ((mean, variance), w) in by_mean.iter_mut().zip(&mut *by_variance).zip(weights) {
            *mean *= root;
            *variance = 2.0 * (root * *variance - prior.scale * w);
        }
        for (by, to) in [(by_mean, &mut out.mean), (by_variance, &mut out.variance)] {
            let first = to.len();
            to.resize(first + x.len(), 0.0);
            points.vjp(x, by, &mut to[first..], &mut ws.distances);
        }
    }
}
