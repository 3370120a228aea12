//! The root of a prior covariance with Kronecker structure: s·(T₁ ⊗ … ⊗ T_d) ≈ B Bᵀ with B m×p.
//!
//! With T_k = V_k Λ_k V_kᵀ, the columns of B are √s ⊗_k V_k Λ_k^{1/2}, restricted to the multi-indices whose
//! eigenvalue product exceeds a cut-off. B itself is never formed: products with it go axis by axis, and
//! Bᵀw for interpolation weights w = w₁ ⊗ … ⊗ w_d is an outer product of d short vectors.
//!
//! **Which products are kept.** On each axis the eigenvalues descend, so for a fixed index on one axis the
//! kept partners form a prefix of the others, sorted by eigenvalue. The kept set is built axis by axis from
//! the last: level k holds the sub-indices over axes k … d−1 that can still occur, as runs
//! "index a on axis k, the first `counts[a]` entries of level k+1". Every inner loop then works on
//! contiguous prefixes, and work is spent only on what is kept.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::axis::{Eigen, toeplitz_eigen};
use crate::error::{Error, Result};
use crate::interp::Weights;
use crate::kernel::MAX_DIM;
use crate::pool::Pool;
use crate::simd::{combine_rows, padded};

/// One axis of a root: V_k Λ_k^{1/2} with the eigenvalues that occur in any kept product.
#[derive(Debug, Clone)]
pub(crate) struct AxisRoot {
    pub(crate) points: usize,
    pub(crate) rank: usize,
    /// Row i holds the `rank` entries of grid point i, padded with zeros to `stride`; on the first axis
    /// multiplied with √s.
    pub(crate) rows: Vec<f64>,
    pub(crate) stride: usize,
    /// All eigenpairs of T_k, also of what is dropped, where T_k was decomposed.
    pub(crate) eigen: Option<Eigen>,
}

impl AxisRoot {
    fn new(points: usize, rank: usize, eigen: Eigen, factor: f64) -> Self {
        let stride = padded(rank);
        let mut rows = vec![0.0; points * stride];
        for j in 0..rank {
            let root = factor * eigen.values[j].sqrt();
            for i in 0..points {
                rows[i * stride + j] = root * eigen.vectors[j * points + i];
            }
        }
        Self { points, rank, rows, stride, eigen: Some(eigen) }
    }
}

/// The kept sub-indices over axes k … d−1.
#[derive(Debug, Clone)]
pub(crate) struct Level {
    /// For each index on axis k, how many entries of the next level go with it.
    pub(crate) counts: Vec<usize>,
    /// `order[i]` is the place among the runs of the i-th largest entry; the first level needs no sorting.
    pub(crate) order: Vec<usize>,
    eigenvalues: Vec<f64>,
}

impl Level {
    pub(crate) fn len(&self) -> usize {
        self.eigenvalues.len()
    }
}

/// B with B Bᵀ ≈ s·(T₁ ⊗ … ⊗ T_d).
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) axes: Vec<AxisRoot>,
    pub(crate) levels: Vec<Level>,
    dropped: f64,
    /// Whether every product is kept, in the order of the axes.
    is_box: bool,
}

/// Where the runs of `counts` begin.
pub(crate) fn run_starts(counts: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    counts.iter().scan(0, |start, &count| {
        let run = (*start, count);
        *start += count;
        Some(run)
    })
}

impl Root {
    /// The root of scale·(T₁ ⊗ … ⊗ T_d) for the given first columns, without the eigenvalues below
    /// `tolerance` times the largest.
    pub(crate) fn new(scale: f64, columns: &[Vec<f64>], tolerance: f64) -> Result<Self> {
        if !columns.iter().flatten().chain([&scale]).all(|v| v.is_finite()) {
            let reason =
                "its values on the grid are not finite: a parameter is too large or too small".into();
            return Err(Error::Config { field: "kernel".into(), reason });
        }
        let eigen = columns.iter().map(|c| toeplitz_eigen(c)).collect::<Result<Vec<_>>>()?;
        Ok(Self::cut(scale, eigen, tolerance))
    }

    /// This root with another cut-off, without the eigenproblems.
    pub(crate) fn recut(&self, scale: f64, tolerance: f64) -> Self {
        let eigen = self.axes.iter().filter_map(|axis| axis.eigen.clone()).collect();
        Self::cut(scale, eigen, tolerance)
    }

    fn cut(scale: f64, eigen: Vec<Eigen>, tolerance: f64) -> Self {
        let largest: f64 = eigen.iter().map(|e| e.values[0]).product();
        // Eigenvalues below a few eps of the largest are rounding noise, whatever the caller asks for.
        let size: usize = eigen.iter().map(|e| e.values.len()).max().unwrap_or(1);
        let cutoff = largest * tolerance.max(f64::EPSILON * size as f64);

        let d = eigen.len();
        let (mut levels, mut dropped): (Vec<Level>, f64) = (Vec::with_capacity(d), 0.0);
        for k in (0..d).rev() {
            // The axes before k contribute at most their largest eigenvalues.
            let head: f64 = eigen[..k].iter().map(|e| e.values[0]).product();
            let next: &[f64] = levels.last().map_or(&[1.0], |level| &level.eigenvalues);
            let kept = |a: f64| next.partition_point(|&b| a * b * head >= cutoff);
            let counts: Vec<usize> =
                eigen[k].values.iter().map(|&a| kept(a)).take_while(|&c| c > 0).collect();
            // What is dropped here, and all products with what was dropped before: sums of small numbers, since the
            // difference of two large ones would be rounding.
            let mut tails = next.to_vec();
            (1..next.len()).rev().for_each(|i| tails[i - 1] += tails[i]);
            let tail = |count: usize| tails.get(count).unwrap_or(&0.0);
            let values = || eigen[k].values.iter().map(|v| v.max(0.0));
            let fresh: f64 = values().enumerate().map(|(a, v)| v * tail(*counts.get(a).unwrap_or(&0))).sum();
            dropped = fresh + dropped * values().sum::<f64>();
            let runs = counts.iter().zip(&eigen[k].values);
            let raw: Vec<f64> = runs.flat_map(|(&c, &a)| next[..c].iter().map(move |b| a * b)).collect();
            let mut order: Vec<usize> = (0..raw.len()).collect();
            if k > 0 {
                order.sort_by(|&i, &j| raw[j].total_cmp(&raw[i]));
            }
            let eigenvalues = order.iter().map(|&i| raw[i]).collect();
            levels.push(Level { counts, order, eigenvalues });
        }
        levels.reverse();

        let axes = eigen.into_iter().zip(&levels).enumerate().map(|(k, (eigen, level))| {
            let (points, rank) = (eigen.values.len(), level.counts.len());
            AxisRoot::new(points, rank, eigen, if k == 0 { scale.sqrt() } else { 1.0 })
        });
        let axes = axes.collect();
        Self { axes, levels, dropped: scale * dropped, is_box: false }
    }

    /// This root, made for one scale, for another: to the last bit what [`Root::new`] would give, without the
    /// eigenproblems.
    pub(crate) fn rescaled(&self, from: f64, to: f64) -> Self {
        let mut root = self.clone();
        if let Some(first) = root.axes.first_mut()
            && let Some(eigen) = first.eigen.take()
        {
            *first = AxisRoot::new(first.points, first.rank, eigen, to.sqrt());
        }
        root.dropped *= to / from;
        root
    }

    /// The root ⊗_k of the given axes with every product of their columns, in the order of the axes.
    pub(super) fn of_box(axes: Vec<AxisRoot>, dropped: f64) -> Self {
        let mut levels: Vec<Level> = Vec::with_capacity(axes.len());
        for axis in axes.iter().rev() {
            let next = levels.last().map_or(1, Level::len);
            let len = axis.rank * next;
            let level = Level {
                counts: vec![next; axis.rank],
                order: (0..len).collect(),
                // Nothing is cut off from a box, so nobody asks for its eigenvalues.
                eigenvalues: vec![f64::NAN; len],
            };
            levels.push(level);
        }
        levels.reverse();
        Self { axes, levels, dropped, is_box: true }
    }

    /// The part of a box with the first `ranks[k]` columns of each axis, and its places among the columns.
    pub(super) fn leading(&self, ranks: &[usize]) -> (Self, Vec<usize>) {
        debug_assert!(self.is_box, "only a box has the order of its axes");
        let mut places = vec![0];
        for (axis, &rank) in self.axes.iter().zip(ranks) {
            places = places.iter().flat_map(|&at| (0..rank).map(move |j| at * axis.rank + j)).collect();
        }
        let cut = |(axis, &rank): (&AxisRoot, &usize)| {
            let stride = padded(rank);
            let mut rows = vec![0.0; axis.points * stride];
            for (to, from) in rows.chunks_exact_mut(stride).zip(axis.rows.chunks_exact(axis.stride)) {
                to[..rank].copy_from_slice(&from[..rank]);
            }
            AxisRoot { points: axis.points, rank, rows, stride, eigen: None }
        };
        (Self::of_box(self.axes.iter().zip(ranks).map(cut).collect(), 0.0), places)
    }

    /// For a box, the products ⊗_k of numbers on each axis, one for each column.
    pub(super) fn products(&self, on_axes: &[Vec<f64>]) -> Vec<f64> {
        debug_assert!(self.is_box, "only a box has the order of its axes");
        on_axes
            .iter()
            .fold(vec![1.0], |all, own| all.iter().flat_map(|&a| own.iter().map(move |&b| a * b)).collect())
    }

    /// For each column, its place among all products of eigenvectors, ordered as grid points are, and the root of its
    /// eigenvalue without the scale.
    pub(crate) fn places(&self) -> Vec<(usize, f64)> {
        let (mut inner, mut size) = (vec![0], 1);
        for (axis, level) in self.axes.iter().zip(&self.levels).rev() {
            let runs = level.counts.iter().enumerate();
            let raw: Vec<usize> =
                runs.flat_map(|(a, &count)| inner[..count].iter().map(move |b| a * size + b)).collect();
            inner = level.order.iter().map(|&i| raw[i]).collect();
            size *= axis.points;
        }
        inner.into_iter().zip(self.levels[0].eigenvalues.iter().map(|v| v.sqrt())).collect()
    }

    /// The number p of columns.
    pub(crate) fn rank(&self) -> usize {
        self.levels[0].len()
    }

    /// The trace of what was dropped: the sum of the dropped prior variances over all grid points.
    pub(crate) fn dropped(&self) -> f64 {
        self.dropped
    }

    /// The number m of rows.
    pub(crate) fn points(&self) -> usize {
        self.axes.iter().map(|a| a.points).product()
    }

    /// The length of scratch space that [`Root::features`] needs.
    pub(crate) fn scratch_len(&self) -> usize {
        let strides: usize = self.axes.iter().map(|a| a.stride).sum();
        strides + self.levels.iter().map(|l| 2 * l.len()).sum::<usize>()
    }

    /// φ = Bᵀw: the point with weights w seen in the p coordinates. About p multiplications.
    pub(crate) fn features(&self, w: &Weights, phi: &mut [f64], scratch: &mut [f64]) {
        let d = self.axes.len();
        // Each axis: the four rows around the point, combined.
        let mut rest = scratch;
        let mut short: [&[f64]; MAX_DIM] = [&[]; MAX_DIM];
        for (k, axis) in self.axes.iter().enumerate() {
            let (own, others) = rest.split_at_mut(axis.stride);
            let from = w.cell(k) * axis.stride;
            combine_rows(&axis.rows[from..from + 4 * axis.stride], axis.stride, w.on_axis(k), own);
            short[k] = own;
            rest = others;
        }
        if d == 1 {
            phi.copy_from_slice(&short[0][..phi.len()]);
            return;
        }
        let mut next: &[f64] = short[d - 1];
        for k in (1..d - 1).rev() {
            let level = &self.levels[k];
            let (raw, others) = rest.split_at_mut(level.len());
            let (sorted, others) = others.split_at_mut(level.len());
            outer_prefixes(&level.counts, short[k], next, raw);
            level.order.iter().zip(sorted.iter_mut()).for_each(|(&i, s)| *s = raw[i]);
            next = sorted;
            rest = others;
        }
        outer_prefixes(&self.levels[0].counts, short[0], next, phi);
    }

    /// The multiply-adds of [`Root::expand`] for each column.
    pub(crate) fn expansion_cost(&self) -> usize {
        let rest = |k: usize| self.levels.get(k + 1).map_or(1, Level::len);
        let axes = self.axes.iter().enumerate().scan(1, |points, (k, axis)| {
            *points *= axis.points;
            Some(*points * axis.rank * rest(k))
        });
        axes.sum()
    }

    /// B Z for p rows of `columns` numbers each: m rows. O(m Σ_k p_k) multiply-adds a column.
    pub(crate) fn expand(&self, z: &[f64], columns: usize, out: &mut [f64], pool: &mut Pool) {
        if self.is_box {
            let along = |k: usize| (k, self.axes[k].matrix());
            return contract((0..self.axes.len()).map(along), z, columns, out, pool);
        }
        self.expand_from(0, z, columns, out, pool);
    }

    fn expand_from(&self, k: usize, z: &[f64], columns: usize, out: &mut [f64], pool: &mut Pool) {
        let axis = &self.axes[k];
        if k + 1 == self.axes.len() {
            return axis.multiply(z, columns, out);
        }
        let (level, next) = (&self.levels[k], self.levels[k + 1].len());
        let mut boxed = pool.zeros(axis.rank * next * columns);
        let places = places_in_box(&level.counts, next);
        for (row, &i) in z.chunks_exact(columns).zip(&level.order) {
            boxed[places[i] * columns..][..columns].copy_from_slice(row);
        }
        let mut partial = pool.take(axis.points * next * columns);
        axis.multiply(&boxed, next * columns, &mut partial);
        let part = out.len() / axis.points;
        let slabs = partial.chunks_exact(next * columns).zip(out.chunks_exact_mut(part));
        slabs.for_each(|(slab, out)| self.expand_from(k + 1, slab, columns, out, pool));
        pool.give(boxed);
        pool.give(partial);
    }

    /// Bᵀ X for m rows of `columns` numbers each: p rows.
    pub(crate) fn project(&self, x: &[f64], columns: usize, out: &mut [f64], pool: &mut Pool) {
        if self.is_box {
            let along = |k: usize| (k, self.axes[k].matrix().transpose());
            return contract((0..self.axes.len()).rev().map(along), x, columns, out, pool);
        }
        self.project_from(0, x, columns, out, pool);
    }

    fn project_from(&self, k: usize, x: &[f64], columns: usize, out: &mut [f64], pool: &mut Pool) {
        let axis = &self.axes[k];
        if k + 1 == self.axes.len() {
            return axis.multiply_transposed(x, columns, out);
        }
        let (level, next) = (&self.levels[k], self.levels[k + 1].len());
        let mut partial = pool.take(axis.points * next * columns);
        let slabs = x.chunks_exact(x.len() / axis.points).zip(partial.chunks_exact_mut(next * columns));
        slabs.for_each(|(slab, partial)| self.project_from(k + 1, slab, columns, partial, pool));
        let mut boxed = pool.take(axis.rank * next * columns);
        axis.multiply_transposed(&partial, next * columns, &mut boxed);
        let places = places_in_box(&level.counts, next);
        for (row, &i) in out.chunks_exact_mut(columns).zip(&level.order) {
            row.copy_from_slice(&boxed[places[i] * columns..][..columns]);
        }
        pool.give(partial);
        pool.give(boxed);
    }
}

impl AxisRoot {
    pub(crate) fn matrix(&self) -> MatRef<'_, f64> {
        MatRef::from_row_major_slice_with_stride(&self.rows, self.points, self.rank, self.stride)
    }

    /// V Λ^{1/2} X for `rank` rows of `columns` numbers.
    pub(crate) fn multiply(&self, x: &[f64], columns: usize, out: &mut [f64]) {
        product(out, self.matrix(), x, columns);
    }

    /// (V Λ^{1/2})ᵀ X for `points` rows of `columns` numbers.
    pub(crate) fn multiply_transposed(&self, x: &[f64], columns: usize, out: &mut [f64]) {
        product(out, self.matrix().transpose(), x, columns);
    }
}

/// Multiplies a tensor, one index for each axis and `columns` numbers at each place, with a matrix along every
/// axis, in the order given.
pub(crate) fn contract<'a>(
    matrices: impl Iterator<Item = (usize, MatRef<'a, f64>)> + Clone,
    x: &[f64],
    columns: usize,
    out: &mut [f64],
    pool: &mut Pool,
) {
    let mut shape = vec![0; matrices.clone().count()];
    matrices.clone().for_each(|(k, matrix)| shape[k] = matrix.ncols());
    let last = shape.len() - 1;
    let mut done: Option<Vec<f64>> = None;
    for (step, (k, matrix)) in matrices.enumerate() {
        let inner = shape[k + 1..].iter().product::<usize>() * columns;
        let outer = shape[..k].iter().product::<usize>();
        shape[k] = matrix.nrows();
        let from = done.as_deref().unwrap_or(x);
        if step == last {
            along_axis(matrix, from, inner, out);
            break;
        }
        let mut next = pool.take(outer * matrix.nrows() * inner);
        along_axis(matrix, from, inner, &mut next);
        if let Some(array) = done.replace(next) {
            pool.give(array);
        }
    }
    if let Some(array) = done {
        pool.give(array);
    }
}

/// A matrix applied to the middle index of a tensor whose last `inner` numbers lie side by side.
fn along_axis(matrix: MatRef<'_, f64>, x: &[f64], inner: usize, out: &mut [f64]) {
    let (to, from) = (matrix.nrows(), matrix.ncols());
    if inner == 1 {
        // One product for the whole tensor instead of one with a single vector for each line of it.
        let x = MatRef::from_row_major_slice(x, x.len() / from, from);
        let out = MatMut::from_row_major_slice_mut(out, x.nrows(), to);
        return matmul(out, Accum::Replace, x, matrix.transpose(), 1.0, Par::Seq);
    }
    for (slab, out) in x.chunks_exact(from * inner).zip(out.chunks_exact_mut(to * inner)) {
        product(out, matrix, slab, inner);
    }
}

/// out = left · right, where `right` and `out` are stored row after row with `columns` numbers each.
pub(crate) fn product(out: &mut [f64], left: MatRef<'_, f64>, right: &[f64], columns: usize) {
    let right = MatRef::from_row_major_slice(right, left.ncols(), columns);
    matmul(
        MatMut::from_row_major_slice_mut(out, left.nrows(), columns),
        Accum::Replace,
        left,
        right,
        1.0,
        Par::Seq,
    );
}

/// For runs of `counts` over a next level of `next` entries: the place of each kept entry in the full box.
pub(crate) fn places_in_box(counts: &[usize], next: usize) -> Vec<usize> {
    counts.iter().enumerate().flat_map(|(a, &count)| (0..count).map(move |b| a * next + b)).collect()
}

/// out = the runs a_i · next[..counts[i]], one after the other.
#[inline]
fn outer_prefixes(counts: &[usize], a: &[f64], next: &[f64], out: &mut [f64]) {
    let mut rest = out;
    for (&count, &a) in counts.iter().zip(a) {
        let (run, others) = rest.split_at_mut(count);
        run.iter_mut().zip(next).for_each(|(o, &b)| *o = a * b);
        rest = others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;

    fn columns(shape: &[usize]) -> Vec<Vec<f64>> {
        let lengths = [0.6, 0.35, 0.8, 0.5];
        let entry = |l: f64, i: usize| (-0.5 * (0.3 * i as f64 / l).powi(2)).exp();
        shape.iter().zip(lengths).map(|(&g, l)| (0..g).map(|i| entry(l, i)).collect()).collect()
    }

    /// B, formed by expanding unit vectors.
    fn dense(root: &Root) -> Vec<f64> {
        let p = root.rank();
        let unit: Vec<f64> = (0..p * p).map(|i| f64::from(u8::from(i / p == i % p))).collect();
        let mut b = vec![f64::NAN; root.points() * p];
        root.expand(&unit, p, &mut b, &mut Pool::default());
        b
    }

    #[test]
    fn the_root_rebuilds_the_kronecker_product() {
        let shape = [6, 5, 7, 4];
        for d in 1..=4 {
            let columns = columns(&shape[..d]);
            for tolerance in [0.0, 1e-4] {
                let root = Root::new(1.7, &columns, tolerance).unwrap();
                let (m, p) = (root.points(), root.rank());
                let b = dense(&root);
                let mut error = 0.0;
                let mut trace = 0.0;
                for i in 0..m {
                    for j in 0..m {
                        let (mut a, mut c, mut want) = (i, j, 1.7);
                        for column in columns.iter().rev() {
                            want *= column[(a % column.len()).abs_diff(c % column.len())];
                            a /= column.len();
                            c /= column.len();
                        }
                        let entry: f64 = (0..p).map(|k| b[i * p + k] * b[j * p + k]).sum();
                        error = f64::max(error, (entry - want).abs());
                        trace += if i == j { want - entry } else { 0.0 };
                    }
                }
                // Dropped eigenvalues bound every entry of the error: their sum is the trace of a
                // positive semi-definite matrix, and it is reported.
                assert!(error <= root.dropped() + 1e-13 * m as f64, "d = {d}: {error} {}", root.dropped());
                assert!((trace - root.dropped()).abs() < 1e-12 * m as f64, "{trace} {}", root.dropped());
                assert_eq!(tolerance > 0.0, p < m || d == 0, "tolerance {tolerance}: p = {p}, m = {m}");
            }
        }
    }

    #[test]
    fn features_projection_and_expansion_agree() {
        let shape = [9, 8, 7, 6];
        for d in 1..=4 {
            let root = Root::new(0.8, &columns(&shape[..d]), 1e-5).unwrap();
            let (m, p) = (root.points(), root.rank());
            let b = dense(&root);
            let grid = Grid::covering(&[(0.0, 1.0); 4][..d], &shape[..d]).unwrap();
            let w = Weights::locate(&grid, &[0.31, 0.77, 0.05, 1.0][..d]).unwrap();
            let mut weights = vec![0.0; m];
            w.scatter(&grid, 1.0, &mut weights);
            let (mut phi, mut scratch) = (vec![f64::NAN; p], vec![f64::NAN; root.scratch_len()]);
            root.features(&w, &mut phi, &mut scratch);
            let mut projected = vec![f64::NAN; p];
            root.project(&weights, 1, &mut projected, &mut Pool::default());
            for k in 0..p {
                let want: f64 = (0..m).map(|i| b[i * p + k] * weights[i]).sum();
                assert!((phi[k] - want).abs() < 1e-14, "d = {d}, k = {k}: {} {want}", phi[k]);
                assert!((projected[k] - want).abs() < 1e-14);
            }
            // The columns are orthogonal, as products of eigenvectors are.
            for k in 0..p {
                for l in 0..k {
                    let inner: f64 = (0..m).map(|i| b[i * p + k] * b[i * p + l]).sum();
                    assert!(inner.abs() < 1e-13 * m as f64, "columns {k} and {l}: {inner}");
                }
            }
        }
    }
}
