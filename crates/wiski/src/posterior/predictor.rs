//! The posterior on the grid: what a prediction reads and nothing more.
//!
//! The mean at a point with weights w is wᵀa with a = B z̄ (4^d terms), the latent variance wᵀM'w with
//! M' = B F Fᵀ Bᵀ, of which only entries within reach of one set of weights are ever read: the same stencil
//! as A. For m = 256 and d = 2 that is 57 kB instead of 512.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::{Posterior, Prediction, PredictionGradient};
use crate::error::{Result, length};
use crate::grid::Lattice;
use crate::interp::{POINTS_TOGETHER, Weights};
use crate::pool::Pool;
use crate::simd::dot;
use crate::structure::BlockMatrix;

/// An immutable posterior for fast predictions, to be shared between threads.
#[derive(Debug, Clone)]
pub struct Predictor {
    lattice: Lattice,
    mean: Vec<f64>,
    covariance: BlockMatrix,
    noise: f64,
}

impl Predictor {
    pub(super) fn new(posterior: &Posterior) -> Self {
        let posterior = &*posterior.settled();
        let (prior, factor) = (posterior.prior(), posterior.factor());
        let mut covariance = BlockMatrix::zeros(prior.lattice());
        let pool = &mut Pool::default();
        let (m, p, stride) = (prior.lattice().len(), posterior.rank(), factor.stride());
        if prior.lattice().grids().len() > 1 && m * m > 2 * p * p {
            // Blocks between grids are whole: B P Bᵀ is less work than the products of all rows of B F.
            prior.spread(&factor.covariance(pool), &mut covariance, pool);
        } else {
            let root = prior.expand(factor.rows(), stride, pool);
            let offsets = prior.lattice().offsets();
            if let [only] = covariance.diagonal_mut() {
                let row = |i: usize| &root[i * stride..(i + 1) * stride];
                only.fill(|i, k| dot(row(i), row(k)));
            } else {
                covariance.fill_with_blocks(prior.lattice(), pool, |i, j, block, _| {
                    let [left, right] = [i, j].map(|j| {
                        let points = prior.lattice().grids()[j].len();
                        MatRef::from_row_major_slice(
                            &root[offsets[j] * stride..][..points * stride],
                            points,
                            stride,
                        )
                    });
                    let out = MatMut::from_row_major_slice_mut(block, left.nrows(), right.nrows());
                    matmul(out, Accum::Replace, left, right.transpose(), 1.0, Par::Seq);
                });
            }
        }
        let mean = prior.expand(posterior.coordinates(), 1, pool);
        Self { lattice: prior.lattice().clone(), mean, covariance, noise: posterior.noise() }
    }

    /// The image of a posterior with the given mean of the grid values, and its covariance as far as single
    /// predictions read it.
    pub(crate) fn from_parts(lattice: Lattice, mean: Vec<f64>, covariance: BlockMatrix, noise: f64) -> Self {
        Self { lattice, mean, covariance, noise }
    }

    /// The grids.
    pub fn lattice(&self) -> &Lattice {
        &self.lattice
    }

    /// The posterior mean of the grid values.
    pub fn grid_mean(&self) -> &[f64] {
        &self.mean
    }

    /// Mean and variance at one point, in constant time. No allocation for a model of one grid.
    #[inline]
    pub fn predict(&self, h: &[f64]) -> Result<Prediction> {
        self.at(h, |weights| self.predict_located(weights))
    }

    /// The mean alone: 4^d multiply-adds.
    #[inline]
    pub fn predict_mean(&self, h: &[f64]) -> Result<f64> {
        self.at(h, |weights| self.lattice.gather(weights, &self.mean))
    }

    /// Means and latent variances of many points, given row after row. No allocation per point.
    pub fn predict_batch(&self, h: &[f64], mean: &mut [f64], variance: &mut [f64]) -> Result<()> {
        let d = self.lattice.dim();
        length("x", mean.len() * d, h.len())?;
        length("variance", mean.len(), variance.len())?;
        let mut weights = Vec::new();
        let values = mean.chunks_mut(POINTS_TOGETHER).zip(variance.chunks_mut(POINTS_TOGETHER));
        for (chunk, (points, (mean, variance))) in h.chunks(POINTS_TOGETHER * d).zip(values).enumerate() {
            self.lattice.locate_all(points, chunk * POINTS_TOGETHER, &mut weights)?;
            for (mean, weights) in mean.iter_mut().zip(weights.chunks_exact(self.lattice.grids().len())) {
                *mean = self.lattice.gather(weights, &self.mean);
            }
            self.covariance.quadratics(&self.lattice, &weights, variance);
            variance.iter_mut().for_each(|v| *v = v.max(0.0));
        }
        Ok(())
    }

    /// Mean and variance with their gradients in the point's coordinates.
    pub fn predict_gradient(&self, h: &[f64]) -> Result<PredictionGradient> {
        length("x", self.lattice.dim(), h.len())?;
        let mut gradient = PredictionGradient::default();
        self.for_each_gradient(h, |_, found| {
            gradient.clone_from(found);
            Ok(())
        })?;
        Ok(gradient)
    }

    /// Calls `f` with the number of each point and what [`Predictor::predict_gradient`] says of it, for points given
    /// row after row: (Σ 4^d)² multiply-adds each.
    pub(crate) fn for_each_gradient(
        &self,
        h: &[f64],
        mut f: impl FnMut(usize, &PredictionGradient) -> Result<()>,
    ) -> Result<()> {
        let (d, footprint) = (self.lattice.dim(), self.lattice.footprint());
        let (mut weights, mut others, mut gradient) = (Vec::new(), Vec::new(), PredictionGradient::default());
        for (chunk, points) in h.chunks(POINTS_TOGETHER * d).enumerate() {
            let first = chunk * POINTS_TOGETHER;
            self.lattice.locate_all(points, first, &mut weights)?;
            // M'w is the same for all axes of all blocks; only the part of a block itself depends on ∂w.
            self.covariance.product_across(&self.lattice, &weights, &mut others);
            let weights = weights.chunks_exact(self.lattice.grids().len());
            let points = points.chunks_exact(d).zip(weights).zip(others.chunks_exact(footprint));
            for (i, ((h, weights), others)) in points.enumerate() {
                self.gradient_from(h, weights, others, &mut gradient);
                f(first + i, &gradient)?;
            }
        }
        Ok(())
    }

    /// The gradient at one point, from its weights on each block and what the other blocks add to M'w there.
    fn gradient_from(&self, h: &[f64], weights: &[Weights], others: &[f64], out: &mut PredictionGradient) {
        out.mean.clear();
        out.variance.clear();
        let (mut rest, mut others) = (h, others);
        let (mut mean, mut variance) = (0.0, 0.0);
        for (block, (grid, &at)) in self.lattice.grids().iter().zip(self.lattice.offsets()).enumerate() {
            let (own, further) = rest.split_at(grid.dim());
            rest = further;
            let (product, further) = others.split_at(1 << (2 * grid.dim()));
            others = further;
            let w = &weights[block];
            let slopes = Weights::slopes(grid, own);
            let values = &self.mean[at..at + grid.len()];
            let form = |v: &Weights| {
                let mut sum = self.covariance.bilinear(&self.lattice, block, v, w);
                let mut product = product.iter();
                v.for_each(grid, |_, v| sum += v * product.next().unwrap_or(&0.0));
                sum
            };
            mean += w.gather(grid, values);
            variance += form(w);
            for k in 0..grid.dim() {
                let dw = w.derivative(&slopes, k);
                out.mean.push(dw.gather(grid, values));
                out.variance.push(2.0 * form(&dw));
            }
        }
        out.prediction = Prediction { mean, variance: variance.max(0.0), noise: self.noise };
    }

    #[inline]
    fn predict_located(&self, weights: &[Weights]) -> Prediction {
        let mean = self.lattice.gather(weights, &self.mean);
        // Stored entries of a positive semi-definite matrix carry rounding; a variance does not go below 0.
        let variance = self.covariance.quadratic(&self.lattice, weights).max(0.0);
        Prediction { mean, variance, noise: self.noise }
    }

    #[inline]
    fn at<T>(&self, h: &[f64], f: impl FnOnce(&[Weights]) -> T) -> Result<T> {
        length("x", self.lattice.dim(), h.len())?;
        if let [grid] = self.lattice.grids() {
            match Weights::locate(grid, h) {
                Some(w) => Ok(f(&[w])),
                None => Err(self.lattice.outside(h, 0)),
            }
        } else {
            let mut weights = Vec::with_capacity(self.lattice.grids().len());
            self.lattice.locate(h, 0, &mut weights)?;
            Ok(f(&weights))
        }
    }
}

/// One function drawn from a posterior: f(x) = w(x)ᵀu, to be evaluated anywhere on the grid.
#[derive(Debug, Clone)]
pub struct FunctionSample {
    lattice: Lattice,
    values: Vec<f64>,
}

impl FunctionSample {
    pub(crate) fn new(lattice: Lattice, values: Vec<f64>) -> Self {
        Self { lattice, values }
    }

    /// The value at a point: 4^d multiply-adds.
    pub fn value(&self, h: &[f64]) -> Result<f64> {
        let mut weights = Vec::with_capacity(self.lattice.grids().len());
        self.lattice.locate(h, 0, &mut weights)?;
        Ok(self.lattice.gather(&weights, &self.values))
    }

    /// The value at a point, with its gradient in the point's coordinates.
    pub fn value_and_gradient(&self, h: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let mut rest = h;
        let (mut value, mut axis) = (0.0, 0);
        for (grid, &at) in self.lattice.grids().iter().zip(self.lattice.offsets()) {
            let (own, others) = rest.split_at(grid.dim());
            rest = others;
            let Some((w, slopes)) = Weights::locate_with_slopes(grid, own) else {
                return Err(self.lattice.outside(h, 0));
            };
            let values = &self.values[at..at + grid.len()];
            value += w.gather(grid, values);
            for k in 0..grid.dim() {
                gradient[axis + k] = w.derivative(&slopes, k).gather(grid, values);
            }
            axis += grid.dim();
        }
        Ok(value)
    }

    /// The values on the grid points.
    pub fn grid_values(&self) -> &[f64] {
        &self.values
    }
}
