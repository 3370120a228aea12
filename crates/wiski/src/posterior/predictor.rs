//! The posterior on the grid: what a prediction reads and nothing more.
//!
//! The mean at a point with weights w is wᵀa with a = B z̄ (4^d terms), the latent variance wᵀM'w with
//! M' = B F Fᵀ Bᵀ, of which only entries within reach of one set of weights are ever read: the same stencil
//! as A. For m = 256 and d = 2 that is 57 kB instead of 512.
//!
//! Weights on inducing points, w = L⁻¹κ_Z(x), need not be computed: the image is kept in the coordinates of κ_Z(x)
//! itself. With the coefficients L⁻ᵀa of the mean and
//!
//! ```text
//! variance = wᵀM'w + s ρ = s + hᵀM'_gg h + 2 hᵀ(M'_gp L⁻¹) κ + κᵀ L⁻ᵀ(M'_pp − s I)L⁻¹ κ
//! ```
//!
//! (h the weights on grids) the mean costs M D, the variance M²/2 and 4^d M for each grid. But L⁻ᵀL⁻¹ = κ(Z, Z)⁻¹
//! multiplies rounding. Where its trace is above [`LARGEST_TRACE`], the image stays in the coordinates of w, and a
//! prediction costs M²/2 more.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};

use faer::linalg::triangular_inverse::invert_lower_triangular;

use super::{Posterior, Prediction, PredictionGradient};
use crate::error::{Result, length};
use crate::grid::Lattice;
use crate::interp::{POINTS_TOGETHER, Placed, Placement, Weights};
use crate::pool::Pool;
use crate::simd::dot;
use crate::structure::BlockMatrix;

/// The largest trace of κ(Z, Z)⁻¹ with which predictions go by κ_Z(x): some 10⁻¹⁰ of the variance are then rounding.
const LARGEST_TRACE: f64 = 1e6;

/// An immutable posterior for fast predictions, to be shared between threads.
#[derive(Debug, Clone)]
pub struct Predictor {
    lattice: Lattice,
    mean: Vec<f64>,
    covariance: BlockMatrix,
    noise: f64,
    /// The variance s of the inducing points' function.
    scale: f64,
    /// Whether the rows of inducing points are in the coordinates of κ_Z(x) instead of w(x).
    in_correlations: bool,
}

impl Predictor {
    pub(super) fn new(posterior: &Posterior) -> Self {
        let posterior = &*posterior.settled();
        let (prior, factor) = (posterior.prior(), posterior.factor());
        let mut covariance = BlockMatrix::zeros(prior.lattice());
        let pool = &mut Pool::default();
        let (m, p, stride) = (prior.lattice().len(), posterior.rank(), factor.stride());
        if prior.lattice().blocks() > 1 && m * m > 2 * p * p {
            // Blocks between grids are whole: B P Bᵀ is less work than the products of all rows of B F.
            prior.spread(&factor.covariance(pool), &mut covariance, pool);
        } else {
            let root = prior.expand(factor.rows(), stride, pool);
            if let (1, [only]) = (prior.lattice().blocks(), covariance.diagonal_mut()) {
                let row = |i: usize| &root[i * stride..(i + 1) * stride];
                only.fill(|i, k| dot(row(i), row(k)));
            } else {
                covariance.fill_with_blocks(prior.lattice(), pool, |i, j, block, _| {
                    let [left, right] = [i, j].map(|j| {
                        let rows = prior.lattice().block(j);
                        let own = &root[rows.start * stride..rows.end * stride];
                        MatRef::from_row_major_slice(own, rows.len(), stride)
                    });
                    let out = MatMut::from_row_major_slice_mut(block, left.nrows(), right.nrows());
                    matmul(out, Accum::Replace, left, right.transpose(), 1.0, Par::Seq);
                });
            }
        }
        let mut mean = prior.expand(posterior.coordinates(), 1, pool);
        let (lattice, scale, mut in_correlations) = (prior.lattice().clone(), prior.residual_scale(), false);
        if let (Some(points), Some(block)) = (lattice.points(), covariance.points_mut()) {
            let mut inverse = Mat::zeros(points.len(), points.len());
            invert_lower_triangular(inverse.as_mut(), points.factor(), Par::Seq);
            in_correlations = inverse.squared_norm_l2() <= LARGEST_TRACE;
            if in_correlations {
                block.in_correlations(inverse.as_ref(), scale);
                points.solve_transposed(&mut mean[lattice.grid_len()..]);
            }
        }
        Self { lattice, mean, covariance, noise: posterior.noise(), scale, in_correlations }
    }

    /// The image of a posterior with the given mean of the grid values, and its covariance as far as single
    /// predictions read it.
    pub(crate) fn from_parts(lattice: Lattice, mean: Vec<f64>, covariance: BlockMatrix, noise: f64) -> Self {
        Self { lattice, mean, covariance, noise, scale: 0.0, in_correlations: false }
    }

    /// The same variances around another mean of the grid values.
    pub(crate) fn with_mean(&self, mean: Vec<f64>) -> Self {
        Self { mean, ..self.clone() }
    }

    /// Places points, in the coordinates of this image.
    fn place_all(&self, h: &[f64], first_row: usize, out: &mut Placement) -> Result<()> {
        if self.in_correlations {
            self.lattice.correlate_all(h, first_row, out)
        } else {
            self.lattice.weigh_all(h, first_row, out)
        }
    }

    /// What the i-th point of a placement has of the variance beyond its quadratic form.
    #[inline]
    fn beyond_form(&self, placement: &Placement, i: usize) -> f64 {
        if self.in_correlations { self.scale } else { self.scale * placement.residual(i) }
    }

    /// The grids.
    pub fn lattice(&self) -> &Lattice {
        &self.lattice
    }

    /// The variance of the noise of an observation.
    pub fn noise(&self) -> f64 {
        self.noise
    }

    /// The posterior mean of the grid values.
    pub fn grid_mean(&self) -> &[f64] {
        &self.mean[..self.lattice.grid_len()]
    }

    /// Mean and variance at one point, in constant time. No allocation for a model of one grid.
    #[inline]
    pub fn predict(&self, h: &[f64]) -> Result<Prediction> {
        self.at(h, |placed, beyond| self.predict_placed(placed, beyond))
    }

    /// The mean alone: 4^d multiply-adds, and M D for M inducing points of D inputs.
    #[inline]
    pub fn predict_mean(&self, h: &[f64]) -> Result<f64> {
        if let ([grid], None) = (self.lattice.grids(), self.lattice.points()) {
            // Without a list of blocks, which would take as long as the sum.
            length("x", grid.dim(), h.len())?;
            let weights = Weights::locate(grid, h);
            return weights.map(|w| w.gather(grid, &self.mean)).ok_or_else(|| self.lattice.outside(h, 0));
        }
        self.at_blocks(h, |placed, _| self.lattice.gather(placed, &self.mean))
    }

    /// Means and latent variances of many points, given row after row. No allocation per point.
    pub fn predict_batch(&self, h: &[f64], mean: &mut [f64], variance: &mut [f64]) -> Result<()> {
        let d = self.lattice.dim();
        length("x", mean.len() * d, h.len())?;
        length("variance", mean.len(), variance.len())?;
        let mut placement = Placement::default();
        let values = mean.chunks_mut(POINTS_TOGETHER).zip(variance.chunks_mut(POINTS_TOGETHER));
        for (chunk, (points, (mean, variance))) in h.chunks(POINTS_TOGETHER * d).zip(values).enumerate() {
            self.place_all(points, chunk * POINTS_TOGETHER, &mut placement)?;
            for (i, mean) in mean.iter_mut().enumerate() {
                *mean = self.lattice.gather(placement.row(&self.lattice, i), &self.mean);
            }
            self.covariance.quadratics(&self.lattice, &placement, variance);
            for (i, v) in variance.iter_mut().enumerate() {
                *v = (*v + self.beyond_form(&placement, i)).max(0.0);
            }
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
        let (mut placement, mut others) = (Placement::default(), Vec::new());
        let mut gradient = PredictionGradient::default();
        for (chunk, points) in h.chunks(POINTS_TOGETHER * d).enumerate() {
            let first = chunk * POINTS_TOGETHER;
            self.place_all(points, first, &mut placement)?;
            // M'w is the same for all axes of all blocks; only the part of a block itself depends on ∂w.
            self.covariance.product_across(&self.lattice, &placement, &mut others);
            for (i, h) in points.chunks_exact(d).enumerate() {
                let others = &others[i * footprint..(i + 1) * footprint];
                gradient.prediction.variance = self.beyond_form(&placement, i);
                self.gradient_from(h, placement.row(&self.lattice, i), others, &mut gradient);
                f(first + i, &gradient)?;
            }
        }
        Ok(())
    }

    /// The gradient at one point, from its weights on each block and what the other blocks add to M'w there. The
    /// variance starts from what is there.
    fn gradient_from(&self, h: &[f64], at: Placed<'_>, others: &[f64], out: &mut PredictionGradient) {
        out.mean.clear();
        out.variance.clear();
        let (mut rest, mut others) = (h, others);
        let (mut mean, mut variance) = (0.0, out.prediction.variance);
        for (block, (grid, &from)) in self.lattice.grids().iter().zip(self.lattice.offsets()).enumerate() {
            let (own, further) = rest.split_at(grid.dim());
            rest = further;
            let (product, further) = others.split_at(1 << (2 * grid.dim()));
            others = further;
            let w = &at.weights[block];
            let slopes = Weights::slopes(grid, own);
            let values = &self.mean[from..from + grid.len()];
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
        if let Some(points) = self.lattice.points() {
            let (mut by_variance, mut scratch) = (vec![0.0; points.len()], vec![0.0; points.len()]);
            self.covariance.product_at_points(&self.lattice, at, &mut by_variance);
            let mut by_mean = self.mean[self.lattice.grid_len()..].to_vec();
            mean += dot(at.dense, &by_mean);
            variance += dot(at.dense, &by_variance);
            // In the coordinates of w the residual s (1 − ‖w‖²) is not part of the form.
            let residual = if self.in_correlations { 0.0 } else { self.scale };
            by_variance.iter_mut().zip(at.dense).for_each(|(by, w)| *by = 2.0 * (*by - residual * w));
            for (by, to) in [(&mut by_mean, &mut out.mean), (&mut by_variance, &mut out.variance)] {
                let first = to.len();
                to.resize(first + points.dim(), 0.0);
                if !self.in_correlations {
                    points.solve_transposed(by);
                }
                points.vjp_correlations(rest, by, &mut to[first..], &mut scratch);
            }
        }
        out.prediction = Prediction { mean, variance: variance.max(0.0), noise: self.noise };
    }

    #[inline]
    fn predict_placed(&self, at: Placed<'_>, beyond_form: f64) -> Prediction {
        let mean = self.lattice.gather(at, &self.mean);
        // Stored entries of a positive semi-definite matrix carry rounding; a variance does not go below 0.
        let variance = (self.covariance.quadratic(&self.lattice, at) + beyond_form).max(0.0);
        Prediction { mean, variance, noise: self.noise }
    }

    #[inline]
    fn at<T>(&self, h: &[f64], f: impl FnOnce(Placed<'_>, f64) -> T) -> Result<T> {
        length("x", self.lattice.dim(), h.len())?;
        if let ([grid], None) = (self.lattice.grids(), self.lattice.points()) {
            match Weights::locate(grid, h) {
                Some(w) => Ok(f((&[w][..]).into(), 0.0)),
                None => Err(self.lattice.outside(h, 0)),
            }
        } else {
            self.at_blocks(h, f)
        }
    }

    /// Apart, so that what a placement owns costs one grid nothing.
    #[inline(never)]
    fn at_blocks<T>(&self, h: &[f64], f: impl FnOnce(Placed<'_>, f64) -> T) -> Result<T> {
        let mut placement = Placement::default();
        self.place_all(h, 0, &mut placement)?;
        Ok(f((&placement).into(), self.beyond_form(&placement, 0)))
    }
}

/// One function drawn from a posterior: f(x) = w(x)ᵀu, to be evaluated anywhere on the grid.
#[derive(Debug, Clone)]
pub struct FunctionSample {
    lattice: Lattice,
    /// On grid points values, on inducing points coefficients of κ_Z(x).
    values: Vec<f64>,
}

impl FunctionSample {
    /// The function with the given values on grid points and coordinates on inducing points.
    pub(crate) fn new(lattice: Lattice, mut values: Vec<f64>) -> Self {
        if let Some(points) = lattice.points() {
            points.solve_transposed(&mut values[lattice.grid_len()..]);
        }
        Self { lattice, values }
    }

    /// The value at a point: 4^d multiply-adds, and M D for M inducing points of D inputs.
    pub fn value(&self, h: &[f64]) -> Result<f64> {
        length("x", self.lattice.dim(), h.len())?;
        let mut placement = Placement::default();
        self.lattice.correlate_all(h, 0, &mut placement)?;
        Ok(self.lattice.gather(&placement, &self.values))
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
        if let Some(points) = self.lattice.points() {
            let (coefficients, mut scratch) =
                (&self.values[self.lattice.grid_len()..], vec![0.0; points.len()]);
            points.correlations(rest, &mut scratch);
            value += dot(coefficients, &scratch);
            gradient[axis..].fill(0.0);
            points.vjp_correlations(rest, coefficients, &mut gradient[axis..], &mut scratch);
        }
        Ok(value)
    }

    /// The values on the grid points.
    pub fn grid_values(&self) -> &[f64] {
        &self.values[..self.lattice.grid_len()]
    }
}
