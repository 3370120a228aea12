//! The vector loops over a stencil: sums of outer products, quadratic forms and products with several columns.

use pulp::{Simd, WithSimd};

use super::{SPAN, StencilMatrix, dot4};
use crate::grid::Grid;
use crate::interp::Weights;
use crate::simd::rounded;

pub(super) struct SparseProduct<'a> {
    pub(super) starts: &'a [u32],
    pub(super) entries: &'a [(u32, f64)],
    pub(super) x: &'a [f64],
    pub(super) stride: usize,
    pub(super) y: &'a mut [f64],
}

impl WithSimd for SparseProduct<'_> {
    type Output = ();

    /// Columns in strips, so that the rows around a point stay in the first cache.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { starts, entries, x, stride, y } = self;
        let (x, _) = S::as_simd_f64s(x);
        let (y, _) = S::as_mut_simd_f64s(y);
        let width = stride / (size_of::<S::f64s>() / size_of::<f64>());
        let mut from = 0;
        while from < width {
            from += match width - from {
                8.. => sparse_strip::<S, 8>(simd, starts, entries, (x, width, from), y),
                // Whole, since each strip reads all entries, and narrow ones wait for their own sums.
                7 => sparse_strip::<S, 7>(simd, starts, entries, (x, width, from), y),
                6 => sparse_strip::<S, 6>(simd, starts, entries, (x, width, from), y),
                5 => sparse_strip::<S, 5>(simd, starts, entries, (x, width, from), y),
                4 => sparse_strip::<S, 4>(simd, starts, entries, (x, width, from), y),
                3 => sparse_strip::<S, 3>(simd, starts, entries, (x, width, from), y),
                2 => sparse_strip::<S, 2>(simd, starts, entries, (x, width, from), y),
                _ => sparse_single::<S>(simd, starts, entries, (x, width, from), y),
            };
        }
    }
}

/// N registers of columns of a sparse product, from the register `from` of each row on; returns N.
#[inline(always)]
fn sparse_strip<S: Simd, const N: usize>(
    simd: S,
    starts: &[u32],
    entries: &[(u32, f64)],
    (x, width, from): (&[S::f64s], usize, usize),
    y: &mut [S::f64s],
) -> usize {
    for (i, range) in starts.windows(2).enumerate() {
        let mut sums = [simd.splat_f64s(0.0); N];
        for &(j, entry) in &entries[range[0] as usize..range[1] as usize] {
            let entry = simd.splat_f64s(entry);
            let row = &x[j as usize * width + from..][..N];
            for k in 0..N {
                sums[k] = simd.mul_add_e_f64s(entry, row[k], sums[k]);
            }
        }
        y[i * width + from..][..N].copy_from_slice(&sums);
    }
    N
}

/// As [`sparse_strip`] for one register, with several sums side by side, since each waits for itself.
#[inline(always)]
fn sparse_single<S: Simd>(
    simd: S,
    starts: &[u32],
    entries: &[(u32, f64)],
    (x, width, from): (&[S::f64s], usize, usize),
    y: &mut [S::f64s],
) -> usize {
    for (i, range) in starts.windows(2).enumerate() {
        let mut sums = [simd.splat_f64s(0.0); 4];
        let own = &entries[range[0] as usize..range[1] as usize];
        let (fours, rest) = own.as_chunks::<4>();
        for four in fours {
            for k in 0..4 {
                let (j, entry) = four[k];
                sums[k] = simd.mul_add_e_f64s(simd.splat_f64s(entry), x[j as usize * width + from], sums[k]);
            }
        }
        for &(j, entry) in rest {
            sums[0] = simd.mul_add_e_f64s(simd.splat_f64s(entry), x[j as usize * width + from], sums[0]);
        }
        let [a, b, c, d] = sums;
        y[i * width + from] = simd.add_f64s(simd.add_f64s(a, b), simd.add_f64s(c, d));
    }
    1
}

pub(super) struct MultiplyRowPair<'a> {
    pub(super) matrix: &'a StencilMatrix,
    pub(super) row: usize,
    pub(super) lead: usize,
    pub(super) x: &'a [f64],
    pub(super) stride: usize,
    pub(super) out: &'a mut [f64],
}

impl WithSimd for MultiplyRowPair<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { matrix, row, lead, x, stride, out } = self;
        let g = matrix.shape[matrix.shape.len() - 1];
        for (c, out) in out.chunks_exact_mut(stride).take(g).enumerate() {
            let (lo, hi) = (c.saturating_sub(3), (c + 4).min(g));
            let at = (row * g + c) * matrix.width + lead * SPAN + 3 - c;
            let entries = &matrix.data[at + lo..at + hi];
            let (out, _) = S::as_mut_simd_f64s(out);
            out.fill(simd.splat_f64s(0.0));
            for (&entry, row) in entries.iter().zip(x[lo * stride..hi * stride].chunks_exact(stride)) {
                let entry = simd.splat_f64s(entry);
                for (o, &v) in out.iter_mut().zip(S::as_simd_f64s(row).0) {
                    *o = simd.mul_add_e_f64s(entry, v, *o);
                }
            }
        }
    }
}

pub(super) struct AddRowPair<'a> {
    pub(super) matrix: &'a StencilMatrix,
    pub(super) row: usize,
    pub(super) other: usize,
    pub(super) lead: usize,
    pub(super) mirrored: bool,
    pub(super) x: &'a [f64],
    pub(super) stride: usize,
    pub(super) y: &'a mut [f64],
}

impl WithSimd for AddRowPair<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { matrix, row, other, lead, mirrored, x, stride, y } = self;
        let g = matrix.shape[matrix.shape.len() - 1];
        let (x, _) = S::as_simd_f64s(x);
        let (y, _) = S::as_mut_simd_f64s(y);
        let width = stride / (size_of::<S::f64s>() / size_of::<f64>());
        for c in 0..g {
            let (lo, hi) = (c.saturating_sub(3), (c + 4).min(g));
            let i = row * g + c;
            let at = i * matrix.width + lead * SPAN + 3 - c;
            let entries = &matrix.data[at + lo..at + hi];
            for k in 0..width {
                let mut sum = y[i * width + k];
                for (&entry, j) in entries.iter().zip(other * g + lo..) {
                    sum = simd.mul_add_e_f64s(simd.splat_f64s(entry), x[j * width + k], sum);
                }
                y[i * width + k] = sum;
            }
            if mirrored {
                for (&entry, j) in entries.iter().zip(other * g + lo..) {
                    let entry = simd.splat_f64s(entry);
                    for k in 0..width {
                        let sum = simd.mul_add_e_f64s(entry, x[i * width + k], y[j * width + k]);
                        y[j * width + k] = sum;
                    }
                }
            }
        }
    }
}

pub(super) struct AddOuter<'a, const R: usize, const ROUND: bool> {
    pub(super) matrix: &'a mut StencilMatrix,
    pub(super) grid: &'a Grid,
    pub(super) w: &'a Weights,
    pub(super) c: f64,
}

impl<const R: usize, const ROUND: bool> WithSimd for AddOuter<'_, R, ROUND> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { matrix, grid, w, c } = self;
        let rows = w.rows::<R>();
        let last = *w.on_axis(grid.dim() - 1);
        // last[c]·last[e], shared by all pairs of rows.
        let mut products = [[0.0; 4]; 4];
        for (products, a) in products.iter_mut().zip(last) {
            for (product, b) in products.iter_mut().zip(last) {
                *product = a * b;
            }
        }
        let (data, width, offsets) = (&mut matrix.data, matrix.width, &grid.row_offsets()[..R]);
        for pair in &matrix.pairs {
            let (i, j) = (pair.first as usize, pair.second as usize);
            let weight = c * rows[i % R] * rows[j % R];
            let point = w.start() + offsets[i % R];
            for (k, product) in products.iter().enumerate() {
                let at = (point + k) * width + pair.place as usize + 3 - k;
                for (a, &b) in data[at..at + 4].iter_mut().zip(product) {
                    *a += rounded::<ROUND>(weight * b);
                }
            }
        }
    }
}

pub(super) struct Quadratic<'a, const R: usize> {
    pub(super) matrix: &'a StencilMatrix,
    pub(super) grid: &'a Grid,
    pub(super) w: &'a Weights,
}

impl<const R: usize> WithSimd for Quadratic<'_, R> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let Self { matrix, grid, w } = self;
        let rows = w.rows::<R>();
        let last = *w.on_axis(grid.dim() - 1);
        let (data, width, offsets) = (&matrix.data, matrix.width, &grid.row_offsets()[..R]);
        let mut sums = [0.0; 4];
        for pair in &matrix.pairs {
            let (i, j) = (pair.first as usize, pair.second as usize);
            let weight = pair.times * rows[i % R] * rows[j % R];
            let point = w.start() + offsets[i % R];
            for (k, &left) in last.iter().enumerate() {
                let at = (point + k) * width + pair.place as usize + 3 - k;
                let scale = weight * left;
                for (sum, &entry) in sums.iter_mut().zip(&data[at..at + 4]) {
                    *sum += scale * entry;
                }
            }
        }
        dot4(&sums, &last)
    }
}
