//! A whole symmetric matrix over the points of a small grid, where a stencil would be larger.

use super::Symmetric;
use crate::grid::Grid;
use crate::interp::Weights;
use crate::simd::{dot, rounded};

/// A symmetric m×m matrix over the points of a grid, stored whole.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseMatrix {
    size: usize,
    data: Vec<f64>,
}

impl DenseMatrix {
    /// The zero matrix.
    pub fn zeros(size: usize) -> Self {
        Self { size, data: vec![0.0; size * size] }
    }

    /// Row `i`.
    pub(crate) fn row(&self, i: usize) -> &[f64] {
        &self.data[i * self.size..(i + 1) * self.size]
    }

    pub(crate) fn data(&self) -> &[f64] {
        &self.data
    }

    pub(crate) fn data_mut(&mut self) -> &mut [f64] {
        &mut self.data
    }

    /// Sets every entry to f(i, j), which must be symmetric.
    pub(crate) fn fill(&mut self, f: impl Fn(usize, usize) -> f64) {
        for i in 0..self.size {
            for j in 0..=i {
                let entry = f(i, j);
                self.data[i * self.size + j] = entry;
                self.data[j * self.size + i] = entry;
            }
        }
    }

    /// The sums of all entries by their distance on each axis: as many as there are grid points.
    pub(crate) fn lag_sums(&self, grid: &Grid) -> Vec<f64> {
        let (shape, strides) = (grid.shape(), grid.strides());
        let mut sums = vec![0.0; self.size];
        for (at, &entry) in self.data.iter().enumerate() {
            let (i, j) = (at / self.size, at % self.size);
            let lag = |k: usize| (i / strides[k] % shape[k]).abs_diff(j / strides[k] % shape[k]);
            sums[(0..shape.len()).map(|k| lag(k) * strides[k]).sum::<usize>()] += entry;
        }
        sums
    }

    /// A += c w wᵀ: 16^d multiply-adds.
    pub(crate) fn add_outer(&mut self, grid: &Grid, w: &Weights, c: f64) {
        w.for_each(grid, |i, wi| {
            let row = &mut self.data[i * self.size..(i + 1) * self.size];
            w.scatter(grid, c * wi, row);
        });
    }

    /// As [`DenseMatrix::add_outer`], of products that are rounded first ([`crate::simd::rounded`]).
    pub(crate) fn add_rounded(&mut self, grid: &Grid, w: &Weights, c: f64) {
        w.for_each(grid, |i, wi| {
            let row = &mut self.data[i * self.size..(i + 1) * self.size];
            w.for_each(grid, |j, wj| row[j] += rounded::<true>(c * wi * wj));
        });
    }

    /// vᵀ A w for two sets of weights.
    pub(crate) fn bilinear(&self, grid: &Grid, v: &Weights, w: &Weights) -> f64 {
        let mut sum = 0.0;
        v.for_each(grid, |i, vi| sum += vi * w.gather(grid, self.row(i)));
        sum
    }
}

impl Symmetric for DenseMatrix {
    fn size(&self) -> usize {
        self.size
    }

    fn apply(&self, x: &[f64], y: &mut [f64], _: &mut [f64]) {
        for (i, out) in y[..self.size].iter_mut().enumerate() {
            *out = dot(self.row(i), &x[..self.size]);
        }
    }
}
