//! The posterior on the grid with its root: joint predictions of several points, and their gradients.
//!
//! With V = B F (m×p) the covariance of the grid values is V Vᵀ. A point with weights w has mean wᵀa and the
//! white vector f = Vᵀw, a sum of 4^d rows of V; the covariance of two points is f_iᵀf_j. That costs 4^d p
//! multiply-adds a point, whatever the distance between points, where the posterior in p coordinates needs p².
//!
//! A function of the joint mean and covariance is carried back to the points by the chain rule. With ḡ and C̄
//! its derivatives in mean and covariance, t_i = Σ_j (C̄_ij + C̄_ji) f_j,
//!
//! ```text
//! ∂/∂h_ik = (∂w_i/∂h_k)ᵀ (ḡ_i a + V t_i)
//! ```
//!
//! of which only the 4^d entries around the point are needed: as much again as the prediction, for all axes. Inducing
//! points have rows of V like grid points, and each of them is met: M p more. The covariance then contains the residual
//! that they do not carry (module `residuals`), of which pending results take nothing away.

use super::factor::Factor;
use super::residuals::Residuals;
use super::surrogate::Surrogate;
use crate::error::{Result, finite, length, positive};
use crate::grid::Lattice;
use crate::interp::{Placed, Placement, Weights};
use crate::pool::Pool;
use crate::prior::Prior;
use crate::simd::{add_rows, dot, dot_rows, dot_rows_and_deflate};

/// A posterior on the grid, for joint predictions of several points with gradients.
#[derive(Debug, Clone)]
pub struct Surface {
    lattice: Lattice,
    mean: Vec<f64>,
    /// V, a padded row for each grid point.
    root: Vec<f64>,
    stride: usize,
    noise: f64,
    /// The variance of the inducing points' function.
    scale: f64,
}

/// The joint prediction of q points. Keep one and use it again: its memory stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Joint {
    /// The latent means.
    pub mean: Vec<f64>,
    /// The latent covariance, q×q, row after row.
    pub covariance: Vec<f64>,
    /// The white vectors f_i, padded.
    white: Vec<f64>,
}

impl Joint {
    /// The number of points q.
    pub fn points(&self) -> usize {
        self.mean.len()
    }

    /// The variance of point i.
    pub fn variance(&self, i: usize) -> f64 {
        self.covariance[i * (self.points() + 1)]
    }

    /// Makes room for q points with white vectors of the given length; everything is zero.
    pub fn reset(&mut self, points: usize, stride: usize) {
        for (values, length) in [
            (&mut self.mean, points),
            (&mut self.covariance, points * points),
            (&mut self.white, points * stride),
        ] {
            values.clear();
            values.resize(length, 0.0);
        }
    }

    /// The white vector of point i. What it means is the model's own: it is kept for the way back. For a
    /// [`Surface`] covariances are inner products of white vectors, but for the residual of inducing points.
    pub fn white(&self, i: usize) -> &[f64] {
        let stride = self.white.len() / self.points();
        &self.white[i * stride..(i + 1) * stride]
    }

    /// The white vector of point i, to be written.
    pub fn white_mut(&mut self, i: usize) -> &mut [f64] {
        let stride = self.white.len() / self.points();
        &mut self.white[i * stride..(i + 1) * stride]
    }
}

impl Surface {
    /// The image of a mean z̄ and a factor F in the coordinates of the prior.
    pub(super) fn new(prior: &Prior, factor: &Factor, mean: &[f64], noise: f64, pool: &mut Pool) -> Self {
        let root = prior.expand(factor.rows(), factor.stride(), pool);
        let mean = prior.expand(mean, 1, pool);
        let (lattice, scale) = (prior.lattice().clone(), prior.residual_scale());
        Self { lattice, mean, root, stride: factor.stride(), noise, scale }
    }

    /// Gives the memory back.
    pub(super) fn recycle(self, pool: &mut Pool) {
        pool.give(self.root);
        pool.give(self.mean);
    }

    /// The grids.
    pub fn lattice(&self) -> &Lattice {
        &self.lattice
    }

    /// The length of white vectors.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// V, a padded row for each grid point.
    pub(crate) fn root(&self) -> &[f64] {
        &self.root
    }

    /// out = Xᵀw for a matrix X with a padded row for each grid point, as V is: 4^d p multiply-adds.
    pub(crate) fn combine(&self, x: &[f64], h: &[f64], out: &mut [f64]) -> Result<()> {
        let mut placement = Placement::default();
        self.lattice.weigh(h, 0, &mut placement)?;
        out.fill(0.0);
        self.add_combination(x, (&placement).into(), out);
        Ok(())
    }

    /// out += Xᵀw for a matrix X with a padded row for each grid point and inducing point.
    fn add_combination(&self, x: &[f64], at: Placed<'_>, out: &mut [f64]) {
        for (block, w) in at.weights.iter().enumerate() {
            self.add_rows_around(x, block, w, out);
        }
        add_rows(&x[self.lattice.grid_len() * self.stride..], self.stride, at.dense, out);
    }

    /// The residuals of the inducing points at q places, whose weights are still to be pushed.
    fn residuals<'a>(&'a self, h: &'a [f64], q: usize) -> Residuals<'a> {
        let points = self.lattice.points().map(|points| (points.as_ref(), self.scale));
        Residuals::of(points, h, self.lattice.dim(), self.lattice.grid_dim(), q)
    }

    /// f += Vᵀw for weights w on one block; returns the mean wᵀa.
    #[inline]
    pub(super) fn gather_on_block(&self, block: usize, w: &Weights, f: &mut [f64]) -> f64 {
        self.add_rows_around(&self.root, block, w, f);
        let (grid, at) = (&self.lattice.grids()[block], self.lattice.offsets()[block]);
        w.gather(grid, &self.mean[at..at + grid.len()])
    }

    /// The part of [`Surface::vjp`] that goes through the residuals of inducing points.
    fn vjp_residuals(&self, h: &[f64], q: usize, by_covariance: &[f64], gradient: &mut [f64]) -> Result<()> {
        let Some(points) = self.lattice.points() else { return Ok(()) };
        let (d, skip, m) = (self.lattice.dim(), self.lattice.grid_dim(), points.len());
        let (mut placement, mut residuals) = (Placement::default(), self.residuals(h, q));
        for (i, point) in h.chunks_exact(d).enumerate() {
            self.lattice.weigh(point, i, &mut placement)?;
            residuals.push(&placement);
        }
        let (mut by_weights, mut scratch) = (vec![0.0; m], vec![0.0; m]);
        for (i, point) in h.chunks_exact(d).enumerate() {
            by_weights.fill(0.0);
            let own = &mut gradient[i * d + skip..(i + 1) * d];
            residuals.vjp(i, by_covariance, &mut by_weights, own);
            points.vjp(&point[skip..], &mut by_weights, own, &mut scratch);
        }
        Ok(())
    }

    /// Adds ∂(c·mean_i + tᵀf_i)/∂h_i to the part of `gradient` that belongs to point i.
    pub(crate) fn vjp_point(
        &self,
        h: &[f64],
        i: usize,
        by_mean: f64,
        by_white: &[f64],
        gradient: &mut [f64],
    ) -> Result<()> {
        let d = self.lattice.dim();
        let point = &h[i * d..(i + 1) * d];
        let (mut rest, mut axis) = (point, i * d);
        for (grid, &offset) in self.lattice.grids().iter().zip(self.lattice.offsets()) {
            let (own, others) = rest.split_at(grid.dim());
            rest = others;
            let Some((w, slopes)) = Weights::locate_with_slopes(grid, own) else {
                return Err(self.lattice.outside(point, i));
            };
            // ḡ a + V t on the 4^d points around: as one short list in the order of the weights.
            let mut around = Vec::with_capacity(1 << (2 * grid.dim()));
            for &row in grid.row_offsets() {
                let at = offset + w.start() + row;
                let mut four = [0.0; 4];
                let rows = &self.root[at * self.stride..(at + 4) * self.stride];
                dot_rows(rows, self.stride, by_white, &mut four);
                around.extend((0..4).map(|j| four[j] + by_mean * self.mean[at + j]));
            }
            for k in 0..grid.dim() {
                let (dw, mut values, mut sum) = (w.derivative(&slopes, k), around.iter(), 0.0);
                dw.for_each(grid, |_, c| sum += c * values.next().copied().unwrap_or(0.0));
                gradient[axis + k] += sum;
            }
            axis += grid.dim();
        }
        if let Some(points) = self.lattice.points() {
            let from = self.lattice.grid_len();
            let (mut by_weights, mut scratch) = (vec![0.0; points.len()], vec![0.0; points.len()]);
            dot_rows(&self.root[from * self.stride..], self.stride, by_white, &mut by_weights);
            by_weights.iter_mut().zip(&self.mean[from..]).for_each(|(by, a)| *by += by_mean * a);
            points.vjp(rest, &mut by_weights, &mut gradient[axis..(i + 1) * d], &mut scratch);
        }
        Ok(())
    }

    /// Conditions on an observation: for points whose result is pending, where the mean itself is a good
    /// guess of it. 3mp multiply-adds.
    pub fn condition(&mut self, h: &[f64], y: f64, noise: f64) -> Result<()> {
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        let mut joint = Joint::default();
        self.predict(h, &mut joint)?;
        let (v, r) = (dot(joint.white(0), joint.white(0)), self.noise * noise);
        let gamma = 1.0 / ((r + v) + (r * (r + v)).sqrt());
        let mut gain = vec![0.0; self.mean.len()];
        dot_rows_and_deflate(&mut self.root, self.stride, joint.white(0), gamma, &mut gain);
        let step = (y - joint.mean[0]) / (v + r);
        self.mean.iter_mut().zip(gain).for_each(|(a, g)| *a += step * g);
        Ok(())
    }

    /// out += Xᵀw for weights w on one block, and X with a padded row for each grid point.
    fn add_rows_around(&self, x: &[f64], block: usize, w: &Weights, out: &mut [f64]) {
        let (grid, offset) = (&self.lattice.grids()[block], self.lattice.offsets()[block]);
        let mut four = [0.0; 4];
        let mut filled = 0;
        w.for_each(grid, |i, c| {
            four[filled] = c;
            filled += 1;
            if filled == 4 {
                filled = 0;
                let first = offset + i - 3;
                add_rows(&x[first * self.stride..(first + 4) * self.stride], self.stride, &four, out);
            }
        });
    }
}

impl Surrogate for Surface {
    fn dim(&self) -> usize {
        self.lattice.dim()
    }

    fn noise(&self) -> f64 {
        self.noise
    }

    /// The mean at one point alone: 4^d multiply-adds.
    fn mean(&self, h: &[f64]) -> Result<f64> {
        let mut placement = Placement::default();
        self.lattice.weigh(h, 0, &mut placement)?;
        Ok(self.lattice.gather(&placement, &self.mean))
    }

    /// The joint mean and covariance of points given row after row: (4^d p + q p) multiply-adds for each.
    fn predict(&self, h: &[f64], out: &mut Joint) -> Result<()> {
        let d = self.lattice.dim();
        let q = h.len() / d;
        length("x", q * d, h.len())?;
        out.reset(q, self.stride);
        let (mut placement, mut residuals) = (Placement::default(), self.residuals(h, q));
        for (i, point) in h.chunks_exact(d).enumerate() {
            self.lattice.weigh(point, i, &mut placement)?;
            out.mean[i] = self.lattice.gather(&placement, &self.mean);
            self.add_combination(&self.root, (&placement).into(), out.white_mut(i));
            residuals.push(&placement);
        }
        for i in 0..q {
            for j in 0..=i {
                let c = dot(out.white(i), out.white(j)) + residuals.covariance(i, j);
                out.covariance[i * q + j] = c;
                out.covariance[j * q + i] = c;
            }
        }
        Ok(())
    }

    fn vjp(
        &self,
        h: &[f64],
        joint: &Joint,
        by_mean: &[f64],
        by_covariance: &[f64],
        gradient: &mut [f64],
    ) -> Result<()> {
        let q = joint.points();
        length("derivatives in the covariance", q * q, by_covariance.len())?;
        let mut direction = vec![0.0; self.stride];
        for i in 0..q {
            direction.fill(0.0);
            for j in 0..q {
                let c = by_covariance[i * q + j] + by_covariance[j * q + i];
                direction.iter_mut().zip(joint.white(j)).for_each(|(t, f)| *t += c * f);
            }
            self.vjp_point(h, i, by_mean[i], &direction, gradient)?;
        }
        self.vjp_residuals(h, q, by_covariance, gradient)
    }
}
