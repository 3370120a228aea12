//! The loops over the dense blocks between grids: what one point meets there is 4^{d_i}×4^{d_j} entries, in runs
//! of four. For many small blocks these loops are most of the work of a row, so they are compiled for several
//! instruction sets and for the numbers of runs that occur.

use pulp::{Simd, WithSimd};

use super::Cross;
use crate::grid::Grid;
use crate::interp::Weights;

/// Four entries between a grid point of the first block and four neighbours of the second.
struct Four {
    /// The place of the first entry.
    at: usize,
    /// The weight of the first block's point.
    weight: f64,
    /// The product of the second block's weights on all axes but the last.
    row: f64,
    /// The number of the first block's point among its 4^d.
    left: usize,
    /// The number of the first of the four among the second block's 4^d.
    right: usize,
}

/// Calls `f` for every four entries of a cross block that a point with the given weights meets, for blocks with
/// A and B runs of four neighbours (4^{d−1}).
#[inline(always)]
fn runs<const A: usize, const B: usize>(grids: [&Grid; 2], weights: [&Weights; 2], mut f: impl FnMut(Four)) {
    let columns = grids[1].len();
    let (rows, partners) = (weights[0].rows::<A>(), weights[1].rows::<B>());
    let last = weights[0].on_axis(grids[0].dim() - 1);
    for (a, (&row, &offset)) in rows.iter().zip(grids[0].row_offsets()).enumerate() {
        for c in 0..4 {
            let weight = row * last[c];
            let from = (weights[0].start() + offset + c) * columns + weights[1].start();
            for (b, (&row, &offset)) in partners.iter().zip(grids[1].row_offsets()).enumerate() {
                f(Four { at: from + offset, weight, row, left: 4 * a + c, right: 4 * b });
            }
        }
    }
}

/// [`runs`] for the dimensions at hand.
#[inline(always)]
fn for_each_four(grids: [&Grid; 2], weights: [&Weights; 2], f: impl FnMut(Four)) {
    match (grids[0].dim(), grids[1].dim()) {
        (1, 1) => runs::<1, 1>(grids, weights, f),
        (1, 2) => runs::<1, 4>(grids, weights, f),
        (2, 1) => runs::<4, 1>(grids, weights, f),
        (2, 2) => runs::<4, 4>(grids, weights, f),
        dims => large(dims, grids, weights, f),
    }
}

/// The same for grids of three and four axes, which an additive model hardly has.
#[cold]
fn large(dims: (usize, usize), grids: [&Grid; 2], weights: [&Weights; 2], f: impl FnMut(Four)) {
    match dims {
        (1, 3) => runs::<1, 16>(grids, weights, f),
        (2, 3) => runs::<4, 16>(grids, weights, f),
        (3, 1) => runs::<16, 1>(grids, weights, f),
        (3, 2) => runs::<16, 4>(grids, weights, f),
        (3, 3) => runs::<16, 16>(grids, weights, f),
        (1, _) => runs::<1, 64>(grids, weights, f),
        (2, _) => runs::<4, 64>(grids, weights, f),
        (3, _) => runs::<16, 64>(grids, weights, f),
        (_, 1) => runs::<64, 1>(grids, weights, f),
        (_, 2) => runs::<64, 4>(grids, weights, f),
        (_, 3) => runs::<64, 16>(grids, weights, f),
        _ => runs::<64, 64>(grids, weights, f),
    }
}

#[inline(always)]
fn four(data: &[f64], at: usize) -> [f64; 4] {
    let entries = &data[at..at + 4];
    [entries[0], entries[1], entries[2], entries[3]]
}

#[inline(always)]
fn dot4(a: [f64; 4], b: &[f64; 4]) -> f64 {
    (a[0] * b[0] + a[1] * b[1]) + (a[2] * b[2] + a[3] * b[3])
}

/// A += c w wᵀ in all cross blocks.
pub(super) struct AddCrosses<'a> {
    pub(super) cross: &'a mut [Cross],
    pub(super) grids: &'a [Grid],
    pub(super) weights: &'a [Weights],
    pub(super) c: f64,
}

impl WithSimd for AddCrosses<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { cross, grids, weights, c } = self;
        for Cross { first, second, data } in cross {
            let (i, j) = (*first, *second);
            let last = weights[j].on_axis(grids[j].dim() - 1);
            for_each_four([&grids[i], &grids[j]], [&weights[i], &weights[j]], |f| {
                let factor = c * f.weight * f.row;
                let entries = &mut data[f.at..f.at + 4];
                for k in 0..4 {
                    entries[k] += factor * last[k];
                }
            });
        }
    }
}

/// Σ_{i<j} w_iᵀ A_ij w_j.
pub(super) struct SumCrosses<'a> {
    pub(super) cross: &'a [Cross],
    pub(super) grids: &'a [Grid],
    pub(super) weights: &'a [Weights],
}

impl WithSimd for SumCrosses<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let Self { cross, grids, weights } = self;
        let mut sum = 0.0;
        for Cross { first, second, data } in cross {
            let (i, j) = (*first, *second);
            let last = weights[j].on_axis(grids[j].dim() - 1);
            let mut parts = [0.0; 4];
            for_each_four([&grids[i], &grids[j]], [&weights[i], &weights[j]], |f| {
                let (factor, entries) = (f.weight * f.row, four(data, f.at));
                for k in 0..4 {
                    parts[k] += factor * entries[k];
                }
            });
            sum += dot4(parts, last);
        }
        sum
    }
}

/// For every block j the part Σ_{i≠j} A_ji w_i of A w at the 4^{d_j} points where w_j lives, block after block,
/// added to `out`.
pub(super) struct MultiplyCrosses<'a> {
    pub(super) cross: &'a [Cross],
    pub(super) grids: &'a [Grid],
    pub(super) weights: &'a [Weights],
    pub(super) out: &'a mut [f64],
}

impl WithSimd for MultiplyCrosses<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { cross, grids, weights, out } = self;
        let size = |j: usize| 1 << (2 * grids[j].dim());
        let (mut left, mut right) = (0, 0);
        for Cross { first, second, data } in cross {
            let (i, j) = (*first, *second);
            // Crosses are ordered by their first block, then by their second.
            if j == i + 1 {
                left += if i > 0 { size(i - 1) } else { 0 };
                right = left + size(i);
            } else {
                right += size(j - 1);
            }
            let last = weights[j].on_axis(grids[j].dim() - 1);
            let (above, below) = out.split_at_mut(right);
            let above = &mut above[left..];
            for_each_four([&grids[i], &grids[j]], [&weights[i], &weights[j]], |f| {
                let entries = four(data, f.at);
                above[f.left] += f.row * dot4(entries, last);
                let own = &mut below[f.right..f.right + 4];
                for k in 0..4 {
                    own[k] += f.weight * entries[k];
                }
            });
        }
    }
}
