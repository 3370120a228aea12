//! Cubic convolution interpolation on a grid (Keys 1981, a = −½): f(x) ≈ Σ_i w_i(x) f(u_i).
//!
//! On one axis with spacing h and the place s ∈ [0, 1] of x in its cell, the four surrounding points get
//!
//! ```text
//! w₋₁ = −½ s (1−s)²     w₀ = 1 − s² (5 − 3s)/2     w₁ = ½ s (1 + s (4 − 3s))     w₂ = −½ s² (1−s)
//! ```
//!
//! They sum to one, reproduce quadratics (so the error is O(h³)), and are continuously differentiable in x.
//! In d dimensions the weights are products over the axes: 4^d of them, kept as d groups of four.

use std::sync::Arc;

use crate::error::{Result, length};
use crate::grid::{Grid, Lattice};
use crate::kernel::MAX_DIM;
use crate::points::Points;
use crate::simd::{add_scaled, dot};

/// Loops over many points take so many of them at a time: enough that what they meet stays in fast memory
/// meanwhile, few enough that their weights do.
pub(crate) const POINTS_TOGETHER: usize = 16;

/// The interpolation weights of one point on one grid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// The number of the first (lowest) of the 4^d grid points.
    start: usize,
    /// The index of the first of the four points on each axis.
    cell: [usize; MAX_DIM],
    /// Four weights per axis; axes beyond the grid's dimension are unused.
    axis: [[f64; 4]; MAX_DIM],
}

/// The derivatives of a point's weights: four per axis, in the coordinate of that axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slopes([[f64; 4]; MAX_DIM]);

#[inline]
fn cubic(s: f64) -> [f64; 4] {
    let r = 1.0 - s;
    [
        -0.5 * s * r * r,
        1.0 - 0.5 * s * s * (5.0 - 3.0 * s),
        0.5 * s * (1.0 + s * (4.0 - 3.0 * s)),
        -0.5 * s * s * r,
    ]
}

/// d/ds of [`cubic`].
#[inline]
fn cubic_slope(s: f64) -> [f64; 4] {
    [-0.5 + s * (2.0 - 1.5 * s), s * (4.5 * s - 5.0), 0.5 + s * (4.0 - 4.5 * s), s * (1.5 * s - 1.0)]
}

impl Weights {
    /// A placeholder for buffers; it weighs nothing.
    pub(crate) const EMPTY: Self = Self { start: 0, cell: [0; MAX_DIM], axis: [[0.0; 4]; MAX_DIM] };

    /// The weights of the point `h` on `grid`, or `None` off the grid.
    #[inline]
    pub(crate) fn locate(grid: &Grid, h: &[f64]) -> Option<Self> {
        let mut weights = Self::EMPTY;
        weights.place(grid, h).then_some(weights)
    }

    /// Becomes the weights of the point `h` on `grid`; returns whether the grid covers it.
    #[inline]
    fn place(&mut self, grid: &Grid, h: &[f64]) -> bool {
        self.start = 0;
        for (k, (axis, &x)) in grid.axes().iter().zip(h).enumerate() {
            let Some((first, s)) = axis.cell(x) else { return false };
            self.start += first * grid.strides()[k];
            self.cell[k] = first;
            self.axis[k] = cubic(s);
        }
        true
    }

    /// The derivatives of the weights of the point `h`, which the grid covers.
    pub(crate) fn slopes(grid: &Grid, h: &[f64]) -> Slopes {
        let mut slopes = [[0.0; 4]; MAX_DIM];
        for (k, (axis, &x)) in grid.axes().iter().zip(h).enumerate() {
            let s = axis.cell(x).map_or(0.0, |(_, s)| s);
            slopes[k] = cubic_slope(s).map(|d| d / axis.step());
        }
        Slopes(slopes)
    }

    /// The weights of `h` with their derivatives, or `None` off the grid.
    pub(crate) fn locate_with_slopes(grid: &Grid, h: &[f64]) -> Option<(Self, Slopes)> {
        let weights = Self::locate(grid, h)?;
        Some((weights, Self::slopes(grid, h)))
    }

    /// The weights with axis `k` replaced by its derivative: ∂w/∂h_k on the same 4^d grid points.
    pub(crate) fn derivative(&self, slopes: &Slopes, k: usize) -> Self {
        let mut weights = *self;
        weights.axis[k] = slopes.0[k];
        weights
    }

    #[inline]
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The index of the first of the four points on axis `k`.
    #[inline]
    pub(crate) fn cell(&self, k: usize) -> usize {
        self.cell[k]
    }

    /// The four weights on axis `k`.
    #[inline]
    pub(crate) fn on_axis(&self, k: usize) -> &[f64; 4] {
        &self.axis[k]
    }

    /// The products of the weights of all axes but the last: one for each of the R = 4^{d−1} rows of four
    /// neighboring grid points.
    #[inline]
    pub(crate) fn rows<const R: usize>(&self) -> [f64; R] {
        let mut rows = [1.0; R];
        let mut filled = 1;
        let mut k = 0;
        while filled < R {
            // From the back, so that no product is overwritten before it is used.
            for i in (0..filled).rev() {
                let product = rows[i];
                for (j, &w) in self.axis[k].iter().enumerate() {
                    rows[4 * i + j] = product * w;
                }
            }
            filled *= 4;
            k += 1;
        }
        rows
    }

    /// Σ_i w_i u_i for values u on the grid points of this block. Costs 4^d multiply-adds.
    #[inline]
    pub(crate) fn gather(&self, grid: &Grid, values: &[f64]) -> f64 {
        match grid.dim() {
            1 => self.gather_rows::<1>(grid, values),
            2 => self.gather_rows::<4>(grid, values),
            3 => self.gather_rows::<16>(grid, values),
            _ => self.gather_rows::<64>(grid, values),
        }
    }

    #[inline]
    fn gather_rows<const R: usize>(&self, grid: &Grid, values: &[f64]) -> f64 {
        let rows = self.rows::<R>();
        let last = self.axis[grid.dim() - 1];
        let mut sum = [0.0; 4];
        for (&row, &offset) in rows.iter().zip(grid.row_offsets()) {
            let at = self.start + offset;
            for (j, &u) in values[at..at + 4].iter().enumerate() {
                sum[j] += row * u;
            }
        }
        sum[0] * last[0] + sum[1] * last[1] + sum[2] * last[2] + sum[3] * last[3]
    }

    /// Adds c·w to the values on the grid points of this block.
    pub(crate) fn scatter(&self, grid: &Grid, c: f64, values: &mut [f64]) {
        self.for_each(grid, |i, w| values[i] += c * w);
    }

    /// Calls `f(i, r)` for each of the 4^{d−1} rows of four neighboring grid points: the number i of the first
    /// and the product r of the weights on all axes but the last.
    #[inline(always)]
    pub(crate) fn for_each_row(&self, grid: &Grid, mut f: impl FnMut(usize, f64)) {
        let mut row = |weight: f64, offset: usize| f(self.start + offset, weight);
        match grid.dim() {
            1 => row(1.0, 0),
            2 => self.axis[0].iter().zip(grid.row_offsets()).for_each(|(&w, &o)| row(w, o)),
            3 => self.rows::<16>().iter().zip(grid.row_offsets()).for_each(|(&w, &o)| row(w, o)),
            _ => self.rows::<64>().iter().zip(grid.row_offsets()).for_each(|(&w, &o)| row(w, o)),
        }
    }

    /// Calls `f(i, w_i)` for each of the 4^d grid points of this block.
    #[inline]
    pub(crate) fn for_each(&self, grid: &Grid, mut f: impl FnMut(usize, f64)) {
        let last = self.axis[grid.dim() - 1];
        self.for_each_row(grid, |first, row| {
            for (j, &w) in last.iter().enumerate() {
                f(first + j, row * w);
            }
        });
    }
}

/// Where one or several data points lie on a lattice: their weights on each grid, and on the inducing points.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placement {
    weights: Vec<Weights>,
    /// w_g: one number for each inducing point.
    dense: Vec<f64>,
    /// ρ of each data point.
    residuals: Vec<f64>,
    /// What `dense` was computed from, if it is that of one data point: processes that share their points need it once.
    points: Option<Arc<Points>>,
    inputs: Vec<f64>,
    coming: Coming,
}

/// Inputs of inducing points that are known to come, with the weights of some of them, computed together.
#[derive(Debug, Clone, Default)]
struct Coming {
    points: Option<Arc<Points>>,
    /// Of all rows, one after the other.
    inputs: Vec<f64>,
    /// The first row whose weights are known.
    first: usize,
    /// One for each of those rows.
    residuals: Vec<f64>,
    dense: Vec<f64>,
}

impl Coming {
    /// Where among the known rows the one with these inputs is; weights are computed where it is none of them.
    fn find(&mut self, points: &Arc<Points>, inputs: &[f64]) -> Option<usize> {
        let d = inputs.len();
        let is_same = self.points.as_ref().is_some_and(|own| Arc::ptr_eq(own, points) || own == points);
        if !is_same || d == 0 {
            return None;
        }
        // Before the known ones are those that have come.
        let row = self.first + self.inputs.chunks_exact(d).skip(self.first).position(|own| own == inputs)?;
        if row >= self.first + self.residuals.len() {
            let rows = (self.inputs.len() / d - row).min(POINTS_TOGETHER);
            self.first = row;
            self.residuals.resize(rows, 0.0);
            self.dense.resize(rows * points.len(), 0.0);
            let inputs = self.inputs[row * d..(row + rows) * d].chunks_exact(d);
            points.weigh_all(inputs, &mut self.dense, &mut self.residuals);
        }
        Some(row - self.first)
    }
}

impl Placement {
    /// Takes note of points that will be weighed in this order, given by their coordinates.
    pub(crate) fn expect(&mut self, lattice: &Lattice, h: &[f64]) {
        let Coming { points, inputs, first, residuals, dense } = &mut self.coming;
        *points = lattice.points().filter(|_| !h.is_empty()).cloned();
        *first = 0;
        inputs.clear();
        residuals.clear();
        dense.clear();
        if points.is_some() {
            h.chunks_exact(lattice.dim()).for_each(|h| inputs.extend_from_slice(&h[lattice.grid_dim()..]));
        }
    }

    /// The weights on the inducing points of a lattice of one of the points that were expected; nothing where it has none.
    pub(crate) fn coming(&mut self, lattice: &Lattice, inputs: &[f64]) -> Option<&[f64]> {
        let Some(points) = lattice.points() else { return Some(&[]) };
        let at = self.coming.find(points, inputs)?;
        Some(&self.coming.dense[at * points.len()..(at + 1) * points.len()])
    }

    /// Whether the weights on inducing points are those of one data point with the given inputs.
    fn is_of(&self, points: &Arc<Points>, inputs: &[f64]) -> bool {
        let same = |own: &Arc<Points>| Arc::ptr_eq(own, points) || own == points;
        self.inputs == inputs && self.points.as_ref().is_some_and(same)
    }

    /// ρ(x), the share of the prior variance of g that the inducing points do not carry; 0 without any.
    #[inline]
    pub(crate) fn residual(&self, i: usize) -> f64 {
        self.residuals.get(i).copied().unwrap_or(0.0)
    }

    /// The weights on grids, to be written.
    pub(crate) fn on_grids(&mut self) -> &mut Vec<Weights> {
        &mut self.weights
    }

    /// The weights of the i-th of several data points on a lattice.
    #[inline]
    pub(crate) fn row(&self, lattice: &Lattice, i: usize) -> Placed<'_> {
        let (j, m) = (lattice.grids().len(), lattice.len() - lattice.grid_len());
        Placed { weights: &self.weights[i * j..(i + 1) * j], dense: &self.dense[i * m..(i + 1) * m] }
    }
}

/// The weights of one or several data points, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    /// One for each grid.
    pub(crate) weights: &'a [Weights],
    /// One for each inducing point.
    pub(crate) dense: &'a [f64],
}

impl<'a> From<&'a Placement> for Placed<'a> {
    #[inline]
    fn from(placement: &'a Placement) -> Self {
        Self { weights: &placement.weights, dense: &placement.dense }
    }
}

impl<'a> From<&'a [Weights]> for Placed<'a> {
    #[inline]
    fn from(weights: &'a [Weights]) -> Self {
        Self { weights, dense: &[] }
    }
}

impl<'a> From<&'a Vec<Weights>> for Placed<'a> {
    #[inline]
    fn from(weights: &'a Vec<Weights>) -> Self {
        Self { weights, dense: &[] }
    }
}

impl Lattice {
    /// The weights of a point on every grid; `h` holds the coordinates of all blocks one after the other.
    ///
    /// The buffer keeps its allocation between calls. `row` is only for the error.
    #[inline]
    pub(crate) fn locate(&self, h: &[f64], row: usize, weights: &mut Vec<Weights>) -> Result<()> {
        length("x", self.dim(), h.len())?;
        weights.resize(self.grids().len(), Weights::EMPTY);
        self.place(h, row, weights)
    }

    /// As [`Lattice::weigh`], with weights of nothing on grids that do not cover their part of the point.
    pub(crate) fn locate_inside(&self, h: &[f64], out: &mut Placement) -> Result<()> {
        length("x", self.dim(), h.len())?;
        out.weights.clear();
        let mut rest = h;
        for grid in self.grids() {
            let (own, others) = rest.split_at(grid.dim());
            rest = others;
            out.weights.push(Weights::locate(grid, own).unwrap_or(Weights::EMPTY));
        }
        if h.iter().any(|x| !x.is_finite()) {
            return Err(self.outside(h, 0));
        }
        self.weigh_on_points(h, out);
        Ok(())
    }

    /// The weights of many points on every grid, given row after row, point after point. `first_row` is only for the
    /// error.
    pub(crate) fn locate_all(&self, h: &[f64], first_row: usize, weights: &mut Vec<Weights>) -> Result<()> {
        let (n, grids) = (h.len() / self.dim(), self.grids().len());
        length("x", n * self.dim(), h.len())?;
        weights.resize(n * grids, Weights::EMPTY);
        for (i, h) in h.chunks_exact(self.dim()).enumerate() {
            self.place(h, first_row + i, &mut weights[i * grids..(i + 1) * grids])?;
        }
        Ok(())
    }

    fn place(&self, h: &[f64], row: usize, weights: &mut [Weights]) -> Result<()> {
        let mut rest = h;
        for (grid, weights) in self.grids().iter().zip(weights) {
            let (own, others) = rest.split_at(grid.dim());
            if !weights.place(grid, own) {
                return Err(self.outside(h, row));
            }
            rest = others;
        }
        // What is left are the inputs of the inducing points, which reach everywhere.
        if rest.iter().all(|x| x.is_finite()) { Ok(()) } else { Err(self.outside(h, row)) }
    }

    /// The weights of a point on every grid and on the inducing points.
    #[inline]
    pub(crate) fn weigh(&self, h: &[f64], row: usize, out: &mut Placement) -> Result<()> {
        self.locate(h, row, &mut out.weights)?;
        self.weigh_on_points(h, out);
        Ok(())
    }

    /// The weights on the inducing points of a point that is located on the grids.
    #[inline]
    pub(crate) fn weigh_on_points(&self, h: &[f64], out: &mut Placement) {
        let Some(points) = self.points() else { return };
        let inputs = &h[self.grid_dim()..];
        if out.is_of(points, inputs) {
            return;
        }
        out.dense.resize(points.len(), 0.0);
        out.residuals.resize(1, 0.0);
        out.residuals[0] = match out.coming.find(points, inputs) {
            Some(at) => {
                let known = &out.coming.dense[at * points.len()..(at + 1) * points.len()];
                out.dense.copy_from_slice(known);
                out.coming.residuals[at]
            }
            None => points.weigh(inputs, &mut out.dense),
        };
        out.inputs.clear();
        out.inputs.extend_from_slice(inputs);
        if !out.points.as_ref().is_some_and(|own| Arc::ptr_eq(own, points)) {
            out.points = Some(Arc::clone(points));
        }
    }

    /// The weights of many points on every grid and on the inducing points.
    pub(crate) fn weigh_all(&self, h: &[f64], first_row: usize, out: &mut Placement) -> Result<()> {
        self.locate_all(h, first_row, &mut out.weights)?;
        if let Some(points) = self.points() {
            let n = h.len() / self.dim();
            out.points = None;
            out.dense.resize(n * points.len(), 0.0);
            out.residuals.resize(n, 0.0);
            let inputs = h.chunks_exact(self.dim()).map(|h| &h[self.grid_dim()..]);
            points.weigh_all(inputs, &mut out.dense, &mut out.residuals);
        }
        Ok(())
    }

    /// The weights of many points on every grid, and their correlations κ_Z with the inducing points in the place of
    /// the weights on those.
    pub(crate) fn correlate_all(&self, h: &[f64], first_row: usize, out: &mut Placement) -> Result<()> {
        self.locate_all(h, first_row, &mut out.weights)?;
        if let Some(points) = self.points() {
            out.points = None;
            out.dense.resize(h.len() / self.dim() * points.len(), 0.0);
            for (h, row) in h.chunks_exact(self.dim()).zip(out.dense.chunks_exact_mut(points.len())) {
                points.correlations(&h[self.grid_dim()..], row);
            }
        }
        Ok(())
    }

    /// Σ_i w_i u_i over all blocks: the function with grid values u at the point with weights w.
    #[inline]
    pub(crate) fn gather<'a>(&self, at: impl Into<Placed<'a>>, values: &[f64]) -> f64 {
        let at = at.into();
        let blocks = self.grids().iter().zip(self.offsets()).zip(at.weights);
        let sum: f64 =
            blocks.map(|((grid, &from), w)| w.gather(grid, &values[from..from + grid.len()])).sum();
        if at.dense.is_empty() { sum } else { sum + dot(at.dense, &values[self.grid_len()..]) }
    }

    /// Adds c·w to grid values over all blocks.
    #[inline]
    pub(crate) fn scatter<'a>(&self, at: impl Into<Placed<'a>>, c: f64, values: &mut [f64]) {
        let at = at.into();
        for ((grid, &from), w) in self.grids().iter().zip(self.offsets()).zip(at.weights) {
            w.scatter(grid, c, &mut values[from..from + grid.len()]);
        }
        if !at.dense.is_empty() {
            add_scaled(&mut values[self.grid_len()..], c, at.dense);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Family;

    fn dense(grid: &Grid, h: &[f64]) -> Vec<f64> {
        let mut w = vec![0.0; grid.len()];
        Weights::locate(grid, h).unwrap().scatter(grid, 1.0, &mut w);
        w
    }

    /// Keys' kernel written as in the literature.
    fn keys(t: f64) -> f64 {
        let t = t.abs();
        if t <= 1.0 {
            1.5 * t.powi(3) - 2.5 * t * t + 1.0
        } else if t < 2.0 {
            -0.5 * t.powi(3) + 2.5 * t * t - 4.0 * t + 2.0
        } else {
            0.0
        }
    }

    /// Weights are computed again for another point, other points with the same inputs, and after many points at once.
    #[test]
    fn weights_on_points_are_never_those_of_another_point() {
        let points = |l: f64| Arc::new(Points::new(Family::Matern32, &[0.1, 0.5, 0.9], &[l]).unwrap());
        let lattices = [0.3, 0.7].map(|l| Lattice::with_points(Vec::new(), points(l)));
        let mut placement = Placement::default();
        for (i, (lattice, x)) in
            [(0, 0.2), (1, 0.2), (1, 0.2), (1, 0.6), (0, 0.6), (0, 0.2), (0, 0.2)].into_iter().enumerate()
        {
            let lattice = &lattices[lattice];
            lattice.weigh(&[x], 0, &mut placement).unwrap();
            let (want, residual) = lattice.points().unwrap().weights(&[x]).unwrap();
            assert_eq!((&placement.dense, placement.residual(0)), (&want, residual));
            if i == 5 {
                lattice.weigh_all(&[x + 0.1, x], 0, &mut placement).unwrap();
                assert_eq!(placement.dense.len(), 6);
            }
        }
        // Equal points elsewhere in memory are as good.
        lattices[0].weigh(&[0.4], 0, &mut placement).unwrap();
        let same = Lattice::with_points(Vec::new(), points(0.3));
        assert!(placement.is_of(same.points().unwrap(), &[0.4]));
        assert!(!placement.is_of(lattices[1].points().unwrap(), &[0.4]));
    }

    #[test]
    fn weights_are_keys_kernel_in_every_dimension() {
        let bounds = [(-1.0, 2.0), (0.0, 5.0), (3.0, 4.0), (-7.0, 7.0)];
        let points = [5, 7, 4, 6];
        let h = [0.3, 4.99, 3.51, -7.0];
        for d in 1..=4 {
            let grid = Grid::covering(&bounds[..d], &points[..d]).unwrap();
            let w = dense(&grid, &h[..d]);
            for i in 0..grid.len() {
                let want: f64 = (0..d)
                    .map(|k| {
                        let axis = grid.axes()[k];
                        keys((h[k] - axis.point(i / grid.strides()[k] % points[k])) / axis.step())
                    })
                    .product();
                assert!((w[i] - want).abs() < 1e-14, "d = {d}, i = {i}");
            }
            assert!((w.iter().sum::<f64>() - 1.0).abs() < 1e-14);
            // The gather is the inner product with the scattered weights.
            let values: Vec<f64> = (0..grid.len()).map(|i| (i as f64).cos()).collect();
            let inner: f64 = w.iter().zip(&values).map(|(a, b)| a * b).sum();
            let gathered = Weights::locate(&grid, &h[..d]).unwrap().gather(&grid, &values);
            assert!((gathered - inner).abs() < 1e-14);
        }
    }

    #[test]
    fn quadratics_are_reproduced_and_cubics_converge_at_third_order() {
        let error = |points: usize, f: &dyn Fn(f64) -> f64| {
            let grid = Grid::covering(&[(0.0, 1.0)], &[points]).unwrap();
            let values: Vec<f64> = (0..points).map(|i| f(grid.axes()[0].point(i))).collect();
            (0..=200)
                .map(|i| f64::from(i) / 200.0)
                .map(|x| (Weights::locate(&grid, &[x]).unwrap().gather(&grid, &values) - f(x)).abs())
                .fold(0.0, f64::max)
        };
        assert!(error(9, &|x| 3.0 - x + 2.0 * x * x) < 1e-14);
        let (coarse, fine) = (error(23, &|x| (3.0 * x).sin()), error(43, &|x| (3.0 * x).sin()));
        let order = (coarse / fine).log2();
        assert!((2.9..3.2).contains(&order), "order {order}");
    }

    #[test]
    fn slopes_match_central_differences_and_join_smoothly() {
        let grid = Grid::covering(&[(-1.0, 1.0), (0.0, 2.0), (0.0, 1.0)], &[8, 6, 5]).unwrap();
        let values: Vec<f64> = (0..grid.len()).map(|i| (i as f64 * 0.7).sin()).collect();
        let f = |h: &[f64]| Weights::locate(&grid, h).unwrap().gather(&grid, &values);
        let on_a_grid_point = [grid.axes()[0].point(3), 0.71, 0.5];
        // Inside a cell the difference errs by eps/step; across a grid point the second derivative jumps
        // (by up to 100 for these values), which costs it jump·step/2.
        for (h, tolerance) in [([0.123, 1.4, 0.9], 1e-8), (on_a_grid_point, 1e-4)] {
            let (w, slopes) = Weights::locate_with_slopes(&grid, &h).unwrap();
            for k in 0..3 {
                let step = 1e-6;
                let (mut hi, mut lo) = (h, h);
                hi[k] += step;
                lo[k] -= step;
                let numeric = (f(&hi) - f(&lo)) / (2.0 * step);
                let exact = w.derivative(&slopes, k).gather(&grid, &values);
                assert!((exact - numeric).abs() < tolerance, "{k}: {exact} {numeric}");
            }
        }
    }
}
