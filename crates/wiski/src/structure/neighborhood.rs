//! Which grid points lie within reach of a point, and where a [`StencilMatrix`](super::StencilMatrix) keeps the
//! entry between the two.
//!
//! A stencil matrix stores an entry once (at the lower of two points whose places on the first axis differ) or
//! twice (where they agree). Whoever goes through a matrix point by point has to know; this is the one place
//! that does.

use super::stencil::{leading_place, width};
use crate::kernel::MAX_DIM;

/// All offsets of at most `reach` ≤ 3 cells on every axis of a grid.
#[derive(Debug, Clone)]
pub(crate) struct Neighborhood {
    shape: Vec<usize>,
    reach: usize,
    width: usize,
    leads: Vec<Lead>,
}

/// One offset on all axes but the last.
#[derive(Debug, Clone)]
struct Lead {
    offset: [isize; MAX_DIM],
    /// The offset in numbers of grid rows (runs along the last axis).
    rows: isize,
    /// Where the array of the point itself keeps this offset, if it does.
    own: Option<usize>,
    /// Where the array of the neighbor keeps the opposite offset, if it does.
    mirrored: Option<usize>,
}

impl Neighborhood {
    pub(crate) fn new(shape: &[usize], reach: usize) -> Self {
        debug_assert!(reach <= 3, "a stencil reaches three cells");
        let leading = &shape[..shape.len() - 1];
        let side = 2 * reach + 1;
        let lead = |number: usize| {
            let (mut offset, mut rows, mut rest, mut stride) = ([0; MAX_DIM], 0, number, 1);
            for k in (0..leading.len()).rev() {
                offset[k] = (rest % side) as isize - reach as isize;
                rows += offset[k] * stride as isize;
                rest /= side;
                stride *= leading[k];
            }
            let offset_there = offset.map(|o| -o);
            let own = leading_place(&offset[..leading.len()]);
            let mirrored = leading_place(&offset_there[..leading.len()]);
            Lead { offset, rows, own, mirrored }
        };
        let leads = (0..side.pow(leading.len() as u32)).map(lead).collect();
        Self { shape: shape.to_vec(), reach, width: width(shape.len()), leads }
    }

    /// Calls `f(j, place, twin)` for every grid point j within reach of point i, i itself included. The entry
    /// (i, j) stands at `place`, and at `twin` as well where it is stored twice; else both are the same.
    #[inline]
    pub(crate) fn for_each(&self, i: usize, mut f: impl FnMut(usize, usize, usize)) {
        let last = self.shape.len() - 1;
        let g = self.shape[last];
        let (row, c) = (i / g, i % g);
        let mut at = [0; MAX_DIM];
        let mut rest = row;
        for k in (0..last).rev() {
            at[k] = rest % self.shape[k];
            rest /= self.shape[k];
        }
        let inside = |lead: &Lead| {
            (0..last).all(|k| at[k].checked_add_signed(lead.offset[k]).is_some_and(|i| i < self.shape[k]))
        };
        for lead in self.leads.iter().filter(|lead| inside(lead)) {
            let Some(other_row) = row.checked_add_signed(lead.rows) else { continue };
            for e in c.saturating_sub(self.reach)..(c + self.reach + 1).min(g) {
                let j = other_row * g + e;
                let own = lead.own.map(|place| i * self.width + place + e + 3 - c);
                let mirrored = lead.mirrored.map(|place| j * self.width + place + c + 3 - e);
                if let (Some(place), Some(twin)) = (own.or(mirrored), mirrored.or(own)) {
                    f(j, place, twin);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::StencilMatrix;
    use super::*;
    use crate::grid::Grid;

    #[test]
    fn places_are_those_of_the_stencil() {
        for shape in [&[9][..], &[5, 8], &[4, 6, 5], &[4, 5, 4, 6]] {
            let grid = Grid::covering(&vec![(0.0, 1.0); shape.len()], shape).unwrap();
            let matrix = StencilMatrix::zeros(&grid);
            // All places of a pair of points, from either side.
            let mut places = std::collections::BTreeMap::<(usize, usize), Vec<usize>>::new();
            matrix.for_each_entry(|i, j, at| places.entry((i.min(j), i.max(j))).or_default().push(at));
            for reach in [1, 3] {
                let neighborhood = Neighborhood::new(shape, reach);
                let distance = |i: usize, j: usize| {
                    let digit = |i: usize, k: usize| i / grid.strides()[k] % shape[k];
                    (0..shape.len()).map(|k| digit(i, k).abs_diff(digit(j, k))).max().unwrap()
                };
                for i in 0..grid.len() {
                    let mut seen = Vec::new();
                    neighborhood.for_each(i, |j, place, twin| {
                        let mut found = vec![place, twin];
                        found.sort_unstable();
                        found.dedup();
                        let mut stored = places[&(i.min(j), i.max(j))].clone();
                        stored.sort_unstable();
                        assert_eq!(found, stored, "{shape:?}: {i}, {j}");
                        seen.push(j);
                    });
                    let near = (0..grid.len()).filter(|&j| distance(i, j) <= reach).collect::<Vec<_>>();
                    assert_eq!(seen, near, "{shape:?}: {i}");
                }
            }
        }
    }
}
