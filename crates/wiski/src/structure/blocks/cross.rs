//! The loops over the dense blocks between grids: what one data point meets there is 4^{d_i}×4^{d_j} entries, in runs
//! of four. For many small blocks these loops are most of the work of a row, so they are compiled for several
//! instruction sets and for the numbers of runs that occur.
//!
//! Several data points take turns at all blocks of one grid before the next grid has its turn: these blocks fit into
//! the fastest memory, all of them do not. And between two data points at one block lie the others, so that no point
//! waits for what the one before has just written.

use pulp::{Simd, WithSimd};

use super::Cross;
use crate::grid::Grid;
use crate::interp::Weights;
use crate::simd::rounded;

/// What one data point meets in a block between two grids, whose weights have A and B runs of four neighbors
/// (4^{d−1}).
struct Meeting<const A: usize, const B: usize> {
    /// The products of the first grid's weights on all axes but the last, and the weights on that.
    rows: [f64; A],
    along: [f64; 4],
    /// The same of the second.
    partners: [f64; B],
    last: [f64; 4],
    /// The places of the first entries of each run: one of the first grid's, one of the second's, and how far the next
    /// point of a run of the first is away.
    from: [usize; A],
    to: [usize; B],
    columns: usize,
}

impl<const A: usize, const B: usize> Meeting<A, B> {
    #[inline(always)]
    fn new(grids: [&Grid; 2], weights: [&Weights; 2]) -> Self {
        let columns = grids[1].len();
        let (mut from, mut to) = ([0; A], [0; B]);
        for (place, offset) in from.iter_mut().zip(grids[0].row_offsets()) {
            *place = (weights[0].start() + offset) * columns;
        }
        for (place, offset) in to.iter_mut().zip(grids[1].row_offsets()) {
            *place = weights[1].start() + offset;
        }
        Self {
            rows: weights[0].rows(),
            along: *weights[0].on_axis(grids[0].dim() - 1),
            partners: weights[1].rows(),
            last: *weights[1].on_axis(grids[1].dim() - 1),
            from,
            to,
            columns,
        }
    }

    /// The place of the entries of the first grid's point c on run a, and its weight.
    #[inline(always)]
    fn left(&self, a: usize, c: usize) -> (usize, f64) {
        (self.from[a] + c * self.columns, self.rows[a] * self.along[c])
    }
}

/// Something to be done wherever a data point meets a block.
trait Visit {
    /// Goes on to the block of the next data point or of the next pair of grids.
    fn meet<const A: usize, const B: usize>(&mut self, place: Place, meeting: &Meeting<A, B>);
}

/// Which block and which data point.
#[derive(Clone, Copy)]
struct Place {
    /// The number of the block among all.
    cross: usize,
    /// The number of the data point.
    point: usize,
    first: usize,
    second: usize,
}

/// Visits all blocks between J grids for all data points, whose weights are given point after point.
#[inline(always)]
fn visit_all(grids: &[Grid], weights: &[Weights], visitor: &mut impl Visit) {
    let mut row = 0;
    for first in 0..grids.len() {
        for (point, weights) in weights.chunks_exact(grids.len()).enumerate() {
            for second in first + 1..grids.len() {
                let place = Place { cross: row + second - first - 1, point, first, second };
                visit([&grids[first], &grids[second]], [&weights[first], &weights[second]], place, visitor);
            }
        }
        // Blocks are ordered by their first grid, then by their second.
        row += grids.len() - first - 1;
    }
}

#[inline(always)]
fn visit(grids: [&Grid; 2], weights: [&Weights; 2], place: Place, visitor: &mut impl Visit) {
    match [grids[0].dim(), grids[1].dim()] {
        [1, 1] => visitor.meet(place, &Meeting::<1, 1>::new(grids, weights)),
        [1, 2] => visitor.meet(place, &Meeting::<1, 4>::new(grids, weights)),
        [2, 1] => visitor.meet(place, &Meeting::<4, 1>::new(grids, weights)),
        [2, 2] => visitor.meet(place, &Meeting::<4, 4>::new(grids, weights)),
        _ => visit_large(grids, weights, place, visitor),
    }
}

/// The same for grids of three and four axes, which an additive model hardly has.
#[cold]
fn visit_large(grids: [&Grid; 2], weights: [&Weights; 2], place: Place, visitor: &mut impl Visit) {
    match [grids[0].dim(), grids[1].dim()] {
        [1, 3] => visitor.meet(place, &Meeting::<1, 16>::new(grids, weights)),
        [2, 3] => visitor.meet(place, &Meeting::<4, 16>::new(grids, weights)),
        [3, 1] => visitor.meet(place, &Meeting::<16, 1>::new(grids, weights)),
        [3, 2] => visitor.meet(place, &Meeting::<16, 4>::new(grids, weights)),
        [3, 3] => visitor.meet(place, &Meeting::<16, 16>::new(grids, weights)),
        [1, _] => visitor.meet(place, &Meeting::<1, 64>::new(grids, weights)),
        [2, _] => visitor.meet(place, &Meeting::<4, 64>::new(grids, weights)),
        [3, _] => visitor.meet(place, &Meeting::<16, 64>::new(grids, weights)),
        [_, 1] => visitor.meet(place, &Meeting::<64, 1>::new(grids, weights)),
        [_, 2] => visitor.meet(place, &Meeting::<64, 4>::new(grids, weights)),
        [_, 3] => visitor.meet(place, &Meeting::<64, 16>::new(grids, weights)),
        _ => visitor.meet(place, &Meeting::<64, 64>::new(grids, weights)),
    }
}

/// Four neighbors, read at once: read one by one between writes, they might be what was just written.
#[inline(always)]
fn four(data: &[f64], at: usize) -> [f64; 4] {
    let entries = &data[at..at + 4];
    [entries[0], entries[1], entries[2], entries[3]]
}

/// a + c·b
#[inline(always)]
fn plus(a: [f64; 4], c: f64, b: [f64; 4]) -> [f64; 4] {
    [a[0] + c * b[0], a[1] + c * b[1], a[2] + c * b[2], a[3] + c * b[3]]
}

#[inline(always)]
fn add_four<const ROUND: bool>(target: &mut [f64], at: usize, c: f64, b: [f64; 4]) {
    let (sum, p) = (four(target, at), times([c; 4], b));
    let p = [rounded::<ROUND>(p[0]), rounded::<ROUND>(p[1]), rounded::<ROUND>(p[2]), rounded::<ROUND>(p[3])];
    target[at..at + 4].copy_from_slice(&plus(sum, 1.0, p));
}

#[inline(always)]
fn times(a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
    [a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]]
}

/// A += Σ c w wᵀ in all blocks between grids, over data points whose weights are given point after point.
pub(super) struct AddCrosses<'a, const ROUND: bool> {
    pub(super) cross: &'a mut [Cross],
    pub(super) grids: &'a [Grid],
    pub(super) weights: &'a [Weights],
    pub(super) c: &'a [f64],
}

impl<const ROUND: bool> Visit for AddCrosses<'_, ROUND> {
    #[inline(always)]
    fn meet<const A: usize, const B: usize>(&mut self, place: Place, meeting: &Meeting<A, B>) {
        let (data, c) = (self.cross[place.cross].data.as_mut_slice(), self.c[place.point]);
        let mut runs = [[0.0; 4]; B];
        for b in 0..B {
            runs[b] = plus(runs[b], meeting.partners[b], meeting.last);
        }
        for a in 0..A {
            for k in 0..4 {
                let (from, weight) = meeting.left(a, k);
                for b in 0..B {
                    add_four::<ROUND>(data, from + meeting.to[b], c * weight, runs[b]);
                }
            }
        }
    }
}

impl<const ROUND: bool> WithSimd for AddCrosses<'_, ROUND> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        visit_all(self.grids, self.weights, &mut self);
    }
}

/// Σ_{i<j} w_iᵀ A_ij w_j for each data point, in four parts that are still to be added up; weights are given point
/// after point.
pub(super) struct SumCrosses<'a> {
    pub(super) cross: &'a [Cross],
    pub(super) grids: &'a [Grid],
    pub(super) weights: &'a [Weights],
    pub(super) parts: &'a mut [[f64; 4]],
}

impl Visit for SumCrosses<'_> {
    #[inline(always)]
    fn meet<const A: usize, const B: usize>(&mut self, place: Place, meeting: &Meeting<A, B>) {
        let data = self.cross[place.cross].data.as_slice();
        let mut sum = [0.0; 4];
        for a in 0..A {
            for k in 0..4 {
                let (from, weight) = meeting.left(a, k);
                for b in 0..B {
                    sum = plus(sum, weight * meeting.partners[b], four(data, from + meeting.to[b]));
                }
            }
        }
        let parts = &mut self.parts[place.point];
        *parts = plus(*parts, 1.0, times(sum, meeting.last));
    }
}

impl WithSimd for SumCrosses<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        visit_all(self.grids, self.weights, &mut self);
    }
}

/// For every grid j the part Σ_{i≠j} A_ji w_i of A w at the 4^{d_j} points where w_j lives, grid after grid, added to
/// `out`: one row for each data point; weights are given point after point.
pub(super) struct MultiplyCrosses<'a> {
    pub(super) cross: &'a [Cross],
    pub(super) grids: &'a [Grid],
    pub(super) weights: &'a [Weights],
    pub(super) out: &'a mut [f64],
    /// Where the 4^d points of each grid begin in a row of `out`, and the length of such a row.
    pub(super) begins: &'a [usize],
    pub(super) width: usize,
}

impl Visit for MultiplyCrosses<'_> {
    #[inline(always)]
    fn meet<const A: usize, const B: usize>(&mut self, place: Place, meeting: &Meeting<A, B>) {
        let data = self.cross[place.cross].data.as_slice();
        let row = &mut self.out[place.point * self.width..(place.point + 1) * self.width];
        let (left, right) = (self.begins[place.first], self.begins[place.second]);
        let mut below = [[0.0; 4]; B];
        for a in 0..A {
            let mut above = [0.0; 4];
            for k in 0..4 {
                let (from, weight) = meeting.left(a, k);
                let mut sum = [0.0; 4];
                for b in 0..B {
                    let entries = four(data, from + meeting.to[b]);
                    sum = plus(sum, meeting.partners[b], entries);
                    below[b] = plus(below[b], weight, entries);
                }
                let parts = times(sum, meeting.last);
                above[k] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
            }
            add_four::<false>(row, left + 4 * a, 1.0, above);
        }
        for b in 0..B {
            add_four::<false>(row, right + 4 * b, 1.0, below[b]);
        }
    }
}

impl WithSimd for MultiplyCrosses<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        visit_all(self.grids, self.weights, &mut self);
    }
}
