//! Stencil-sparse symmetric matrices: entry (i, j) may differ from zero only if the grid points i and j lie
//! within three cells of each other on every axis.
//!
//! WᵀD⁻¹W is such a matrix, because a row of W touches four neighbors on each axis. So is the part of a
//! posterior covariance that single predictions read.
//!
//! Stored is, for each grid point, an array over neighbor offsets: −3 … 3 on every axis but the first, and
//! 0 … 3 on the first (the other half follows by symmetry; a one-dimensional grid has only a last axis).
//! That makes 7, 28, 196 or 1372 numbers a point for d = 1 … 4. Neighbors along the last axis lie side by
//! side, so every inner loop works on four consecutive numbers.

use pulp::Arch;

use super::Symmetric;
use crate::grid::Grid;
use crate::interp::Weights;
use crate::simd::dot;

mod loops;

use loops::{AddOuter, AddRowPair, MultiplyRowPair, Quadratic, SparseProduct};

/// The number of offsets −3 … 3.
const SPAN: usize = 7;

/// A symmetric matrix over the points of a grid whose entries reach at most three cells.
#[derive(Debug, Clone, PartialEq)]
pub struct StencilMatrix {
    shape: Vec<usize>,
    size: usize,
    /// Numbers per grid point.
    width: usize,
    /// For each pair of the 4^{d−1} rows around a point that is stored: the two rows and the place of their
    /// offset in a grid point's array.
    pairs: Vec<RowPair>,
    data: Vec<f64>,
}

/// The entries of a matrix that are not zero, row by row, each with its column.
#[derive(Debug, Clone)]
pub(crate) struct SparseRows {
    starts: Vec<u32>,
    entries: Vec<(u32, f64)>,
}

impl SparseRows {
    /// Y = A X for m rows of `stride` numbers, a multiple of the vector length. A row of Y is written once.
    pub(crate) fn multiply(&self, x: &[f64], stride: usize, y: &mut [f64]) {
        Arch::new().dispatch(SparseProduct { starts: &self.starts, entries: &self.entries, x, stride, y });
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct RowPair {
    first: u32,
    second: u32,
    place: u32,
    /// 2 if the pair stands for its mirror image too, else 1.
    times: f64,
}

/// The place of the offset (o_1, …, o_{d−1}), each shifted to start at 0, among all leading offsets.
fn place(offset: &[usize]) -> usize {
    offset.iter().fold(0, |place, &o| place * SPAN + o)
}

/// The offsets of the leading axes that are stored: 0 … 3 on the first, −3 … 3 on the others, in the order
/// of their places.
fn leading_offsets(leading_axes: usize) -> Vec<Vec<isize>> {
    let mut all = vec![vec![]];
    for k in 0..leading_axes {
        let from = if k == 0 { 0 } else { -3 };
        all = all
            .into_iter()
            .flat_map(|o: Vec<isize>| (from..=3).map(move |x| [o.as_slice(), &[x]].concat()))
            .collect();
    }
    all
}

/// Where a grid point's array keeps the neighbors at a leading offset (their last axis begins there at −3), if
/// it does: a negative offset on the first axis is kept by the neighbor.
pub(super) fn leading_place(offset: &[isize]) -> Option<usize> {
    let shift = |(k, &o): (usize, &isize)| {
        3usize.checked_add_signed(o).and_then(|o| o.checked_sub(if k == 0 { 3 } else { 0 }))
    };
    let shifted: Option<Vec<usize>> = offset.iter().enumerate().map(shift).collect();
    shifted.map(|offset| SPAN * place(&offset))
}

/// Numbers per grid point in d dimensions.
pub(super) fn width(d: usize) -> usize {
    SPAN * leading_offsets(d - 1).len()
}

impl StencilMatrix {
    /// The zero matrix over the points of `grid`.
    pub fn zeros(grid: &Grid) -> Self {
        let d = grid.dim();
        let width = width(d);
        let rows = 1 << (2 * (d - 1));
        let digits = |row: usize| -> Vec<usize> { (0..d - 1).rev().map(|k| row >> (2 * k) & 3).collect() };
        let mut pairs = Vec::new();
        for first in 0..rows {
            for second in 0..rows {
                let (a, b) = (digits(first), digits(second));
                if d > 1 && b[0] < a[0] {
                    continue; // the mirror image of a stored pair
                }
                let mut offset: Vec<usize> = a.iter().zip(&b).map(|(&a, &b)| b + 3 - a).collect();
                if let Some(o) = offset.first_mut() {
                    *o -= 3;
                }
                let times = if d > 1 && b[0] > a[0] { 2.0 } else { 1.0 };
                let (first, second, place) = (first as u32, second as u32, (SPAN * place(&offset)) as u32);
                pairs.push(RowPair { first, second, place, times });
            }
        }
        Self { shape: grid.shape(), size: grid.len(), width, pairs, data: vec![0.0; grid.len() * width] }
    }

    pub(crate) fn data(&self) -> &[f64] {
        &self.data
    }

    pub(crate) fn data_mut(&mut self) -> &mut [f64] {
        &mut self.data
    }

    /// Numbers per grid point.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The number of leading offsets that are stored.
    pub(crate) fn leads(&self) -> usize {
        self.width / SPAN
    }

    /// out = A_rows X for the entries between a grid row and its partner at leading offset `lead`, where X
    /// has a padded row for each point of the last axis.
    pub(crate) fn multiply_row_pair(
        &self,
        row: usize,
        lead: usize,
        x: &[f64],
        stride: usize,
        out: &mut [f64],
    ) {
        Arch::new().dispatch(MultiplyRowPair { matrix: self, row, lead, x, stride, out });
    }

    /// Sets every entry inside the grid to f(i, j).
    pub(crate) fn fill(&mut self, f: impl Fn(usize, usize) -> f64) {
        let mut data = std::mem::take(&mut self.data);
        self.for_each_entry(|i, j, at| data[at] = f(i, j));
        self.data = data;
    }

    /// Y = A X for m padded rows of `stride` numbers: 7^d m multiply-adds a column.
    pub(crate) fn multiply(&self, x: &[f64], stride: usize, y: &mut [f64]) {
        self.sparse_rows().multiply(x, stride, y);
    }

    /// Both mirror images of every entry that is not zero, sorted by row: for products again and again.
    pub(crate) fn sparse_rows(&self) -> SparseRows {
        let mut starts = vec![0u32; self.size + 1];
        self.for_each_image(|i, _, _| starts[i + 1] += 1);
        (0..self.size).for_each(|i| starts[i + 1] += starts[i]);
        let mut next = starts.clone();
        let mut entries = vec![(0u32, 0.0); starts[self.size] as usize];
        self.for_each_image(|i, j, at| {
            entries[next[i] as usize] = (j as u32, self.data[at]);
            next[i] += 1;
        });
        SparseRows { starts, entries }
    }

    /// All stored offsets, in the order in which a grid point's numbers lie.
    pub(crate) fn offsets(&self) -> Vec<Vec<isize>> {
        let leading = leading_offsets(self.shape.len() - 1);
        leading.iter().flat_map(|lead| (-3..=3).map(move |o| [lead.as_slice(), &[o]].concat())).collect()
    }

    /// Adds a number for each grid point to the entries of one stored offset; those beyond the grid must be zero.
    pub(crate) fn add_layer(&mut self, place: usize, layer: &[f64]) {
        for (entries, &value) in self.data.chunks_exact_mut(self.width).zip(layer) {
            entries[place] += value;
        }
    }

    /// A += X Xᵀ where entries are kept, for m rows of `stride` numbers.
    pub(crate) fn add_inner_products(&mut self, rows: &[f64], stride: usize) {
        let row = |i: usize| &rows[i * stride..(i + 1) * stride];
        let mut data = std::mem::take(&mut self.data);
        self.for_each_entry(|i, j, at| data[at] += dot(row(i), row(j)));
        self.data = data;
    }

    /// Adds f(k) to the entries (i, k) and (k, i) for all k within reach of i: the diagonal entry gets 2 f(i).
    pub(crate) fn add_column(&mut self, i: usize, f: impl Fn(usize) -> f64) {
        let (d, g) = (self.shape.len(), self.shape[self.shape.len() - 1]);
        let (row, c) = (i / g, i % g);
        // The offset on the first axis is stored as 0 … 3 only, so entries with a smaller one belong to k.
        for (lead, offset) in leading_offsets(d - 1).iter().enumerate() {
            for forth in [true, false] {
                let Some(other) = self.row_at(row, offset, forth) else { continue };
                for e in c.saturating_sub(3)..(c + 4).min(g) {
                    let k = other * g + e;
                    let at = if forth {
                        i * self.width + lead * SPAN + e + 3 - c
                    } else {
                        k * self.width + lead * SPAN + c + 3 - e
                    };
                    self.data[at] += f(k);
                }
            }
        }
    }

    /// The grid row at an offset on the leading axes from `row`, or at minus that offset.
    fn row_at(&self, row: usize, offset: &[isize], forth: bool) -> Option<usize> {
        let (mut rest, mut scale, mut target) = (row, 1, 0);
        for (&g, &o) in self.shape[..self.shape.len() - 1].iter().zip(offset).rev() {
            let at = (rest % g).checked_add_signed(if forth { o } else { -o }).filter(|&i| i < g)?;
            target += at * scale;
            rest /= g;
            scale *= g;
        }
        Some(target)
    }

    /// Y = A X for m rows of `stride` numbers, a multiple of the vector length, straight from the stored half:
    /// for few columns and many products, where sorting the entries as [`StencilMatrix::multiply`] does would
    /// take the memory of the matrix once more, several times over.
    pub(crate) fn multiply_few(&self, x: &[f64], stride: usize, y: &mut [f64]) {
        y[..self.size * stride].fill(0.0);
        let arch = Arch::new();
        self.for_each_row_pair(|row, other, lead, mirrored| {
            arch.dispatch(AddRowPair { matrix: self, row, other, lead, mirrored, x, stride, y: &mut *y });
        });
    }

    /// The Gram matrices of the data on each axis alone: the sums of all entries by their places on that axis,
    /// seven numbers (offsets −3 … 3) for each of its points.
    pub(crate) fn marginals(&self) -> Vec<Vec<f64>> {
        let mut marginals: Vec<Vec<f64>> = self.shape.iter().map(|g| vec![0.0; g * SPAN]).collect();
        let d = self.shape.len();
        let offsets = leading_offsets(d - 1);
        let mut at = vec![0; d];
        for (point, entries) in self.data.chunks_exact(self.width).enumerate() {
            let mut rest = point;
            for k in (0..d).rev() {
                at[k] = rest % self.shape[k];
                rest /= self.shape[k];
            }
            for (offset, run) in offsets.iter().zip(entries.chunks_exact(SPAN)) {
                let mirrored = offset.first().is_some_and(|&o| o > 0);
                for (c, &entry) in run.iter().enumerate().filter(|(_, entry)| **entry != 0.0) {
                    let steps = offset.iter().copied().chain([c as isize - 3]);
                    for ((marginal, &i), step) in marginals.iter_mut().zip(&at).zip(steps) {
                        marginal[i * SPAN + step.wrapping_add(3) as usize] += entry;
                        if mirrored {
                            let j = i.wrapping_add_signed(step);
                            marginal[j * SPAN + (3 - step) as usize] += entry;
                        }
                    }
                }
            }
        }
        marginals
    }

    /// Calls `f(i, j, place)` for every entry that differs from zero, both orders of i and j.
    fn for_each_image(&self, mut f: impl FnMut(usize, usize, usize)) {
        let g = self.shape[self.shape.len() - 1];
        self.for_each_row_pair(|row, other, lead, mirrored| {
            for c in 0..g {
                let i = row * g + c;
                for e in c.saturating_sub(3)..(c + 4).min(g) {
                    let (j, at) = (other * g + e, i * self.width + lead * SPAN + e + 3 - c);
                    if self.data[at] != 0.0 {
                        f(i, j, at);
                        if mirrored {
                            f(j, i, at);
                        }
                    }
                }
            }
        });
    }

    /// The sums of all entries by their distance on each axis: `sums[l₁·4^{d−1} + … + l_d]` for lags 0 … 3.
    pub(crate) fn lag_sums(&self) -> Vec<f64> {
        let d = self.shape.len();
        let mut by_offset = vec![0.0; self.width];
        for point in self.data.chunks_exact(self.width) {
            by_offset.iter_mut().zip(point).for_each(|(sum, entry)| *sum += entry);
        }
        let mut sums = vec![0.0; 1 << (2 * d)];
        for (offset, entries) in leading_offsets(d - 1).iter().zip(by_offset.chunks_exact(SPAN)) {
            let lead = offset.iter().fold(0, |place, o| 4 * place + o.unsigned_abs());
            let times = if offset.first().is_some_and(|&o| o > 0) { 2.0 } else { 1.0 };
            for (c, &entry) in entries.iter().enumerate() {
                sums[4 * lead + c.abs_diff(3)] += times * entry;
            }
        }
        sums
    }

    /// A_ii for all grid points.
    pub(crate) fn diagonal(&self) -> Vec<f64> {
        // Offset zero on every axis: the first axis begins there, the others at −3.
        let zero: Vec<isize> = vec![0; self.shape.len() - 1];
        let at = leading_place(&zero).unwrap_or(0) + 3;
        self.data.chunks_exact(self.width).map(|point| point[at]).collect()
    }

    /// ⟨A, B⟩ = Σ_ij A_ij B_ij for a matrix of the same shape, of which entries beyond the border do not count as
    /// long as they are zero in one of the two.
    pub(crate) fn inner(&self, other: &Self) -> f64 {
        // Offsets above 0 on the first of several axes stand for their mirror image, too.
        let once = if self.shape.len() == 1 { self.width } else { self.width / 4 };
        let points = self.data.chunks_exact(self.width).zip(other.data.chunks_exact(self.width));
        points.map(|(a, b)| dot(&a[..once], &b[..once]) + 2.0 * dot(&a[once..], &b[once..])).sum()
    }

    /// A += c w wᵀ: at most 16^d multiply-adds, about half of that by symmetry.
    #[inline]
    pub(crate) fn add_outer(&mut self, grid: &Grid, w: &Weights, c: f64) {
        self.add_products::<false>(grid, w, c);
    }

    /// As [`StencilMatrix::add_outer`], of products that may be rounded first ([`crate::simd::rounded`]).
    #[inline]
    pub(crate) fn add_products<const ROUND: bool>(&mut self, grid: &Grid, w: &Weights, c: f64) {
        let arch = Arch::new();
        match grid.dim() {
            1 => arch.dispatch(AddOuter::<1, ROUND> { matrix: self, grid, w, c }),
            2 => arch.dispatch(AddOuter::<4, ROUND> { matrix: self, grid, w, c }),
            3 => arch.dispatch(AddOuter::<16, ROUND> { matrix: self, grid, w, c }),
            _ => arch.dispatch(AddOuter::<64, ROUND> { matrix: self, grid, w, c }),
        }
    }

    /// wᵀ A w.
    #[inline]
    pub(crate) fn quadratic(&self, grid: &Grid, w: &Weights) -> f64 {
        let arch = Arch::new();
        match grid.dim() {
            1 => arch.dispatch(Quadratic::<1> { matrix: self, grid, w }),
            2 => arch.dispatch(Quadratic::<4> { matrix: self, grid, w }),
            3 => arch.dispatch(Quadratic::<16> { matrix: self, grid, w }),
            _ => arch.dispatch(Quadratic::<64> { matrix: self, grid, w }),
        }
    }

    /// vᵀ A w for weights on the same grid points (a point's weights and their derivatives).
    pub(crate) fn bilinear(&self, grid: &Grid, v: &Weights, w: &Weights) -> f64 {
        debug_assert_eq!(v.start(), w.start(), "only weights of one point lie within one stencil");
        // By polarization from the symmetric forms would lose digits; sum both mirror images instead.
        match grid.dim() {
            1 => self.bilinear_rows::<1>(grid, v, w),
            2 => self.bilinear_rows::<4>(grid, v, w),
            3 => self.bilinear_rows::<16>(grid, v, w),
            _ => self.bilinear_rows::<64>(grid, v, w),
        }
    }

    fn bilinear_rows<const R: usize>(&self, grid: &Grid, v: &Weights, w: &Weights) -> f64 {
        let (rv, rw) = (v.rows::<R>(), w.rows::<R>());
        let (lv, lw) = (v.on_axis(grid.dim() - 1), w.on_axis(grid.dim() - 1));
        let mut sum = 0.0;
        for pair in &self.pairs {
            let (i, j) = (pair.first as usize, pair.second as usize);
            let block = |left: &[f64; 4], right: &[f64; 4]| -> f64 {
                (0..4).map(|c| left[c] * dot4(self.four(grid, w, *pair, c), right)).sum()
            };
            sum += rv[i] * rw[j] * block(lv, lw);
            if pair.times > 1.0 {
                sum += rw[i] * rv[j] * block(lw, lv);
            }
        }
        sum
    }

    /// The entries between grid point `c` of the pair's first row and the four points of its second row.
    #[inline(always)]
    fn four(&self, grid: &Grid, w: &Weights, pair: RowPair, c: usize) -> &[f64] {
        let at = self.four_at(grid, w, pair, c);
        &self.data[at..at + 4]
    }

    #[inline(always)]
    fn four_at(&self, grid: &Grid, w: &Weights, pair: RowPair, c: usize) -> usize {
        let point = w.start() + grid.row_offsets()[pair.first as usize] + c;
        point * self.width + pair.place as usize + 3 - c
    }

    /// Calls `f(i, j, place)` for every stored entry inside the grid: grid points i and j, place in `data`.
    ///
    /// Entries whose offset on the first axis is zero are stored for both orders of i and j.
    pub(crate) fn for_each_entry(&self, mut f: impl FnMut(usize, usize, usize)) {
        let g = self.shape[self.shape.len() - 1];
        self.for_each_row_pair(|row, other, lead, _| {
            for c in 0..g {
                for e in c.saturating_sub(3)..(c + 4).min(g) {
                    let i = row * g + c;
                    f(i, other * g + e, i * self.width + lead * SPAN + e + 3 - c);
                }
            }
        });
    }

    /// Calls `f(row, other_row, place, mirrored)` for every pair of grid rows (runs along the last axis)
    /// within reach; `mirrored` pairs stand for both orders.
    pub(crate) fn for_each_row_pair(&self, mut f: impl FnMut(usize, usize, usize, bool)) {
        let lead_shape = &self.shape[..self.shape.len() - 1];
        let rows: usize = lead_shape.iter().product();
        let offsets = leading_offsets(lead_shape.len());
        let mut at = vec![0; lead_shape.len()];
        for row in 0..rows {
            let mut rest = row;
            for k in (0..lead_shape.len()).rev() {
                at[k] = rest % lead_shape[k];
                rest /= lead_shape[k];
            }
            for (lead, offset) in offsets.iter().enumerate() {
                let target = at.iter().zip(offset).zip(lead_shape).try_fold(0, |index, ((&i, &o), &g)| {
                    let j = i.checked_add_signed(o)?;
                    (j < g).then_some(index * g + j)
                });
                if let Some(other) = target {
                    f(row, other, lead, offset.first().is_some_and(|&o| o > 0));
                }
            }
        }
    }
}

#[inline(always)]
fn dot4(a: &[f64], b: &[f64; 4]) -> f64 {
    (a[0] * b[0] + a[1] * b[1]) + (a[2] * b[2] + a[3] * b[3])
}

impl Symmetric for StencilMatrix {
    fn size(&self) -> usize {
        self.size
    }

    /// O(7^d m): every stored entry is read once.
    fn apply(&self, x: &[f64], y: &mut [f64], _: &mut [f64]) {
        y[..self.size].fill(0.0);
        let g = self.shape[self.shape.len() - 1];
        self.for_each_row_pair(|row, other, lead, mirrored| {
            for c in 0..g {
                let i = row * g + c;
                let at = i * self.width + lead * SPAN + 3;
                let mut sum = 0.0;
                for e in c.saturating_sub(3)..(c + 4).min(g) {
                    let entry = self.data[at + e - c];
                    let j = other * g + e;
                    sum += entry * x[j];
                    if mirrored {
                        y[j] += entry * x[i];
                    }
                }
                y[i] += sum;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DenseMatrix, assert_equals_twin};
    use super::*;

    fn points(d: usize) -> Vec<[f64; 4]> {
        (0..60)
            .map(|i| [0.37, 0.71, 0.13, 0.93].map(|a: f64| (a * f64::from(i * i + i + 1)).fract()))
            .map(|mut p| {
                p[d..].fill(0.0);
                p
            })
            .collect()
    }

    #[test]
    fn sums_of_outer_products_equal_their_dense_twin() {
        let shape = [6, 7, 5, 4];
        for d in 1..=4 {
            let grid = Grid::covering(&[(0.0, 1.0); 4][..d], &shape[..d]).unwrap();
            let (mut stencil, mut dense) = (StencilMatrix::zeros(&grid), DenseMatrix::zeros(grid.len()));
            for (i, p) in points(d).iter().enumerate() {
                let w = Weights::locate(&grid, &p[..d]).unwrap();
                let c = 0.5 + (i % 3) as f64;
                stencil.add_outer(&grid, &w, c);
                dense.add_outer(&grid, &w, c);
            }
            // Sums of 60 terms in the same order.
            assert_equals_twin(&dense, dense.data(), 60.0 * f64::EPSILON);
            assert_equals_twin(&stencil, dense.data(), 60.0 * f64::EPSILON);

            // Products with several columns, and sums by distance.
            let m = grid.len();
            let x: Vec<f64> = (0..m * 40).map(|i| (0.3 * i as f64).sin()).collect();
            let mut y = vec![f64::NAN; m * 40];
            stencil.multiply(&x, 40, &mut y);
            for (at, &value) in y.iter().enumerate() {
                let (i, c) = (at / 40, at % 40);
                let want: f64 = (0..m).map(|j| dense.data()[i * m + j] * x[j * 40 + c]).sum();
                assert!((value - want).abs() < 1e-12, "d = {d}, {i}, {c}: {value} {want}");
            }
            let digit = |i: usize, k: usize| i / grid.strides()[k] % shape[k];
            let mut by_lag = vec![0.0; 1 << (2 * d)];
            for (at, &entry) in dense.data().iter().enumerate().filter(|(_, entry)| **entry != 0.0) {
                let lag = |k: usize| digit(at / m, k).abs_diff(digit(at % m, k));
                by_lag[(0..d).fold(0, |place, k| 4 * place + lag(k))] += entry;
            }
            assert!(stencil.lag_sums().iter().zip(&by_lag).all(|(a, b)| (a - b).abs() < 1e-11));

            let mut seen = vec![0.0; grid.len() * grid.len()];
            stencil.for_each_entry(|i, j, at| {
                seen[i * grid.len() + j] = stencil.data()[at];
                seen[j * grid.len() + i] = stencil.data()[at];
            });
            assert!(seen.iter().zip(dense.data()).all(|(a, b)| (a - b).abs() < 1e-13));

            for p in points(d) {
                let (w, slopes) = Weights::locate_with_slopes(&grid, &p[..d]).unwrap();
                let (s, q) = (stencil.quadratic(&grid, &w), dense.bilinear(&grid, &w, &w));
                assert!((s - q).abs() < 1e-13 * q.abs().max(1.0), "d = {d}: {s} {q}");
                for k in 0..d {
                    let v = w.derivative(&slopes, k);
                    let (s, q) = (stencil.bilinear(&grid, &v, &w), dense.bilinear(&grid, &v, &w));
                    assert!((s - q).abs() < 1e-12 * q.abs().max(1.0), "d = {d}, k = {k}: {s} {q}");
                }
            }
        }
    }

    #[test]
    fn few_columns_marginals_and_columns_equal_their_dense_twins() {
        let shape = [6, 7, 5];
        for d in 1..=3 {
            let grid = Grid::covering(&[(0.0, 1.0); 3][..d], &shape[..d]).unwrap();
            let (mut a, m, stride) = (StencilMatrix::zeros(&grid), grid.len(), 8);
            for p in points(d) {
                a.add_outer(&grid, &Weights::locate(&grid, &p[..d]).unwrap(), 0.7);
            }
            let dense = a.to_dense();
            let x: Vec<f64> = (0..m * stride).map(|i| (0.7 * i as f64).sin()).collect();
            let mut y = vec![f64::NAN; m * stride];
            a.multiply_few(&x, stride, &mut y);
            let mut sorted = vec![f64::NAN; m * stride];
            a.sparse_rows().multiply(&x, stride, &mut sorted);
            assert!(y.iter().zip(&sorted).all(|(a, b)| (a - b).abs() < 1e-13));
            // A row has at most 343 entries; their sums err by that many roundings of numbers of size one.
            let close =
                |a: f64, b: f64| assert!((a - b).abs() < 343.0 * f64::EPSILON * 10.0, "d = {d}: {a} {b}");
            for i in 0..m {
                for c in 0..stride {
                    close(y[i * stride + c], (0..m).map(|j| dense[i * m + j] * x[j * stride + c]).sum());
                }
            }
            for (k, marginal) in a.marginals().iter().enumerate() {
                let at = |i: usize| i / grid.strides()[k] % shape[k];
                let mut want = vec![0.0; shape[k] * SPAN];
                for e in 0..m * m {
                    let (i, j) = (at(e / m), at(e % m));
                    if i.abs_diff(j) <= 3 {
                        want[i * SPAN + j + 3 - i] += dense[e];
                    }
                }
                marginal.iter().zip(&want).for_each(|(a, b)| close(*a, *b));
            }
            // Half of every column, added from both of its ends, is the matrix itself.
            let mut rebuilt = StencilMatrix::zeros(&grid);
            (0..m).for_each(|i| rebuilt.add_column(i, |k| 0.5 * dense[i * m + k]));
            rebuilt.to_dense().iter().zip(&dense).for_each(|(a, b)| close(*a, *b));
        }
    }
}
