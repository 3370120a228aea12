//! Grids and inducing points side by side, and how grids grow.

use super::{Axis, Grid};
use crate::error::{Error, Result, finite};
use crate::points::Points;
use serde::de::{SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::Range;
use std::sync::Arc;

/// Several grids side by side, the inducing points of f(x) = Σ_j f_j(h_j) + g(x), with the points of g behind them if
/// there is a g. One grid is the usual case.
#[derive(Debug, Clone, PartialEq)]
pub struct Lattice {
    grids: Vec<Grid>,
    points: Option<Arc<Points>>,
    offsets: Vec<usize>,
    len: usize,
    dim: usize,
}

/// How many cells each axis of a lattice gains below and above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Growth(Vec<(usize, usize)>);

impl Growth {
    /// No growth of a lattice.
    pub(crate) fn none(lattice: &Lattice) -> Self {
        Self(vec![(0, 0); lattice.axes().count()])
    }

    /// Cells below and above, axis after axis.
    pub(crate) fn sides(&self) -> &[(usize, usize)] {
        &self.0
    }

    /// The growth by the given cells, if there is room for it.
    pub(crate) fn of_sides(sides: Vec<(usize, usize)>, room: &Self) -> Option<Self> {
        let fits = sides.len() == room.0.len()
            && sides.iter().zip(&room.0).all(|(own, most)| own.0 <= most.0 && own.1 <= most.1);
        fits.then_some(Self(sides))
    }

    /// Grows to what another growth leads to, where that is more.
    pub(crate) fn include(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a = (a.0.max(b.0), a.1.max(b.1)));
    }

    pub(crate) fn is_none(&self) -> bool {
        self.0.iter().all(|&g| g == (0, 0))
    }
}

impl From<Grid> for Lattice {
    fn from(grid: Grid) -> Self {
        Self::from_grids(vec![grid])
    }
}

/// A lattice with points as it stands in a file.
#[derive(Serialize, Deserialize)]
struct SavedLattice<G, P> {
    grids: G,
    points: P,
}

impl Serialize for Lattice {
    /// Without points a list of grids, as it was before there were any; else both by name.
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match &self.points {
            None => self.grids.serialize(serializer),
            Some(points) => {
                SavedLattice { grids: &self.grids, points: points.as_ref() }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Lattice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(LatticeVisitor)
    }
}

struct LatticeVisitor;

impl<'de> Visitor<'de> for LatticeVisitor {
    type Value = Lattice;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("grids, or grids and points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Lattice, A::Error> {
        let mut grids = Vec::new();
        while let Some(grid) = list.next_element()? {
            grids.push(grid);
        }
        Lattice::new(grids).map_err(serde::de::Error::custom)
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> std::result::Result<Lattice, A::Error> {
        let saved = SavedLattice::<Vec<Grid>, Points>::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Lattice::with_points(saved.grids, saved.points))
    }
}

impl Lattice {
    /// The lattice of the given blocks.
    pub fn new(grids: Vec<Grid>) -> Result<Self> {
        if grids.is_empty() {
            return Err(Error::Config {
                field: "grid".into(),
                reason: "a model needs at least one grid".into(),
            });
        }
        Ok(Self::from_grids(grids))
    }

    /// The lattice of the given grids, possibly none, with a block of inducing points behind them. Its coordinates are
    /// those of the grids, then the inputs of the points.
    pub fn with_points(grids: Vec<Grid>, points: impl Into<Arc<Points>>) -> Self {
        Self::from_parts(grids, Some(points.into()))
    }

    fn from_grids(grids: Vec<Grid>) -> Self {
        Self::from_parts(grids, None)
    }

    fn from_parts(grids: Vec<Grid>, points: Option<Arc<Points>>) -> Self {
        let mut offsets = Vec::with_capacity(grids.len());
        let mut len = 0;
        for grid in &grids {
            offsets.push(len);
            len += grid.len();
        }
        let dim: usize = grids.iter().map(Grid::dim).sum();
        let (more, inputs) = points.as_ref().map_or((0, 0), |p| (p.len(), p.dim()));
        Self { grids, points, offsets, len: len + more, dim: dim + inputs }
    }

    /// Grids over the same boxes with at most about `limit` points each.
    pub(crate) fn coarse(&self, limit: usize) -> Result<Self> {
        let coarse = |grid: &Grid| {
            if grid.len() <= limit {
                return Ok(grid.clone());
            }
            let shrink = (limit as f64 / grid.len() as f64).powf(1.0 / grid.dim() as f64);
            let fewer = |points: usize| ((points as f64 * shrink) as usize).max(6).min(points);
            let axes = grid.axes().iter().map(|a| Axis::covering(a.lo(), a.hi(), fewer(a.points())));
            Grid::new(axes.collect::<Result<_>>()?)
        };
        let grids = self.grids.iter().map(coarse).collect::<Result<_>>()?;
        Ok(Self::from_parts(grids, self.points.clone()))
    }

    /// The grids, one per block.
    pub fn grids(&self) -> &[Grid] {
        &self.grids
    }

    /// The inducing points, the last block.
    pub fn points(&self) -> Option<&Arc<Points>> {
        self.points.as_ref()
    }

    /// The number of blocks: grids, and the inducing points if there are any.
    pub fn blocks(&self) -> usize {
        self.grids.len() + usize::from(self.points.is_some())
    }

    /// The numbers of the grid points (or inducing points) of a block.
    pub(crate) fn block(&self, j: usize) -> Range<usize> {
        let at = |j: usize| self.offsets.get(j).copied().unwrap_or(self.grid_len());
        at(j)..if j < self.grids.len() { at(j) + self.grids[j].len() } else { self.len }
    }

    /// The number of points of all grids, behind which the inducing points stand.
    pub(crate) fn grid_len(&self) -> usize {
        self.len - self.points.as_ref().map_or(0, |p| p.len())
    }

    /// The number of coordinates of all grids, behind which the inputs of the inducing points stand.
    pub(crate) fn grid_dim(&self) -> usize {
        self.dim - self.points.as_ref().map_or(0, |p| p.dim())
    }

    /// The number of the first grid point of each block.
    pub(crate) fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// The number m of grid points over all blocks, inducing points included.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of coordinates over all blocks.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The number of grid points that one point meets: Σ_j 4^{d_j}.
    pub(crate) fn footprint(&self) -> usize {
        self.grids.iter().map(|g| 1 << (2 * g.dim())).sum()
    }

    fn axes(&self) -> impl Iterator<Item = &Axis> {
        self.grids.iter().flat_map(|g| &g.axes)
    }

    /// Rejects a point that the lattice does not cover.
    pub(crate) fn check_covers(&self, h: &[f64]) -> Result<()> {
        let covered =
            h.len() == self.dim && self.axes().zip(h).all(|(axis, &value)| axis.cell(value).is_some());
        if covered { Ok(()) } else { Err(self.outside(h, 0)) }
    }

    /// What is wrong with a point that has no place on the lattice: a NaN or the first axis that it leaves.
    pub(crate) fn outside(&self, h: &[f64], row: usize) -> Error {
        if let Some((axis, &value)) = h.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            return Error::NotFinite { field: format!("x[{axis}]"), value, row };
        }
        for (axis, (a, &value)) in self.axes().zip(h).enumerate() {
            if a.cell(value).is_none() {
                return Error::OutsideGrid { axis, value, lo: a.lo(), hi: a.hi(), row };
            }
        }
        Error::WrongLength { field: "x".into(), expected: self.dim, found: h.len() }
    }

    /// How the lattice must grow to cover `h`. Rejected if any block would have more than `limit` points.
    pub(crate) fn growth_to(&self, h: &[f64], limit: usize, row: usize) -> Result<Growth> {
        let mut growth = Vec::with_capacity(self.dim);
        // Points reach everywhere, but a row that is no row makes no grid grow.
        for (axis, &value) in h.iter().enumerate().skip(self.grid_dim()) {
            finite(format!("x[{axis}]"), value, row)?;
        }
        for grid in &self.grids {
            let mut total = 1.0;
            let first = growth.len();
            // Of several axes the one that has to grow most is to blame.
            let mut worst = (0.0, first, 0.0);
            for (axis, a) in (first..).zip(&grid.axes) {
                let value = h[axis];
                finite(format!("x[{axis}]"), value, row)?;
                let (below, above) = a.growth_to(value);
                let points = a.points as f64 + below + above;
                total *= points;
                let grown = points / a.points as f64;
                if grown > worst.0 {
                    worst = (grown, axis, points);
                }
                growth.push((below as usize, above as usize));
            }
            if total > limit as f64 {
                let (_, axis, points) = worst;
                return Err(Error::GridTooLarge { axis, value: h[axis], points: points as usize, limit });
            }
        }
        Ok(Growth(growth))
    }

    /// How far each axis may grow on either side, in whole steps of an eighth of its points, so that no grid has more than
    /// `limit` points whatever rows come, and in whatever order: every axis may grow by the same factor.
    pub(crate) fn room(&self, limit: usize) -> Growth {
        let room = |grid: &Grid| -> Vec<(usize, usize)> {
            let factor = (limit as f64 / grid.len() as f64).powf(1.0 / grid.dim() as f64).max(1.0);
            let side = |a: &Axis| {
                let step = a.growth_step();
                (0.5 * (factor - 1.0) * a.points as f64) as usize / step * step
            };
            grid.axes.iter().map(|a| (side(a), side(a))).collect()
        };
        Growth(self.grids.iter().flat_map(room).collect())
    }

    /// How the lattice must grow to cover `h`, in whole steps of an eighth of each axis, so that what several rows need is
    /// the maximum of what each needs. `None` if there is no room for that.
    pub(crate) fn growth_within(&self, h: &[f64], room: &Growth) -> Option<Growth> {
        let one = |((axis, &value), &(most_below, most_above)): ((&Axis, &f64), &(usize, usize))| {
            let (step, (below, above)) = (axis.growth_step() as f64, axis.growth_to(value));
            let (below, above) = ((below / step).ceil() * step, (above / step).ceil() * step);
            let is_within = below <= most_below as f64 && above <= most_above as f64;
            is_within.then_some((below as usize, above as usize))
        };
        self.axes().zip(h).zip(&room.0).map(one).collect::<Option<_>>().map(Growth)
    }

    /// How this lattice must grow to contain every point of `other`. Rejected if any block would have more than
    /// `limit` points.
    pub(crate) fn growth_to_union(&self, other: &Self, limit: usize) -> Result<Growth> {
        let mismatch = |left: usize, right: usize| Error::GridMismatch {
            axis: left.min(right),
            what: "dimension",
            left: left as f64,
            right: right as f64,
        };
        if self.dim != other.dim || self.grids.len() != other.grids.len() {
            return Err(mismatch(self.dim, other.dim));
        }
        if self.points != other.points {
            let reason = "the inducing points are not the same";
            return Err(Error::Unsupported { operation: "bringing grids together", reason });
        }
        for (a, b) in self.grids.iter().zip(&other.grids) {
            if a.dim() != b.dim() {
                return Err(mismatch(a.dim(), b.dim()));
            }
        }
        let pairs = self.axes().zip(other.axes()).enumerate();
        let growth =
            Growth(pairs.map(|(axis, (a, b))| a.growth_to_union(b, axis, limit)).collect::<Result<_>>()?);
        let mut sides = growth.0.iter();
        let mut axis = 0;
        for grid in &self.grids {
            let axes = grid.axes.iter().zip(sides.by_ref());
            let points: f64 = axes.map(|(a, (below, above))| (a.points + below + above) as f64).product();
            if points > limit as f64 {
                let value = grid.axes[0].min();
                return Err(Error::GridTooLarge { axis, value, points: points as usize, limit });
            }
            axis += grid.dim();
        }
        Ok(growth)
    }

    /// The lattice after growth, with the place of each old grid point in it.
    pub(crate) fn grown(&self, growth: &Growth) -> Result<(Self, Vec<usize>)> {
        let mut sides = growth.0.iter();
        let mut grids = Vec::with_capacity(self.grids.len());
        for grid in &self.grids {
            let axes = grid.axes.iter().zip(sides.by_ref()).map(|(a, &(below, above))| a.grown(below, above));
            grids.push(Grid::new(axes.collect())?);
        }
        let new = Self::from_parts(grids, self.points.clone());
        let mut places = Vec::with_capacity(self.len);
        let mut axis = 0;
        for (j, (old, grid)) in self.grids.iter().zip(&new.grids).enumerate() {
            let shift: usize = (0..old.dim()).map(|k| growth.0[axis + k].0 * grid.strides[k]).sum();
            for i in 0..old.len() {
                let digits =
                    (0..old.dim()).map(|k| i / old.strides[k] % old.axes[k].points * grid.strides[k]);
                places.push(new.offsets[j] + shift + digits.sum::<usize>());
            }
            axis += old.dim();
        }
        places.extend(new.grid_len()..new.len);
        Ok((new, places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_keeps_every_point_in_its_place() {
        let grid = Grid::covering(&[(0.0, 1.0), (-2.0, 5.0)], &[6, 9]).unwrap();
        let line = Grid::covering(&[(0.0, 1.0)], &[7]).unwrap();
        let lattice = Lattice::new(vec![grid, line]).unwrap();
        let h = [1.7, -4.0, 0.5];
        let (large, places) = lattice.grown(&lattice.growth_to(&h, 10_000, 0).unwrap()).unwrap();
        assert!(large.axes().zip(&h).all(|(a, &x)| a.cell(x).is_some()));
        let point = |l: &Lattice, j: usize, i: usize| -> Vec<f64> {
            let g = &l.grids[j];
            (0..g.dim()).map(|k| g.axes[k].point(i / g.strides[k] % g.axes[k].points)).collect()
        };
        for j in 0..2 {
            for i in 0..lattice.grids[j].len() {
                let new = places[lattice.offsets[j] + i] - large.offsets[j];
                assert_eq!(point(&lattice, j, i), point(&large, j, new));
            }
        }
        assert!(matches!(
            lattice.growth_to(&[1e12, 0.0, 0.5], 10_000, 3),
            Err(Error::GridTooLarge { axis: 0, .. })
        ));
        assert!(matches!(
            lattice.growth_to(&[f64::NAN, 0.0, 0.5], 10_000, 3),
            Err(Error::NotFinite { row: 3, .. })
        ));
    }

    #[test]
    fn unions_need_equal_steps_and_alignment() {
        let at = |min: f64, step: f64, g| {
            Lattice::from(Grid::new(vec![Axis::new(min, step, g).unwrap()]).unwrap())
        };
        let a = at(0.0, 0.1, 10);
        assert_eq!(a.growth_to_union(&at(-0.3, 0.1, 10), 100).unwrap(), Growth(vec![(3, 0)]));
        assert_eq!(a.growth_to_union(&at(0.7, 0.1, 10), 100).unwrap(), Growth(vec![(0, 7)]));
        assert!(a.growth_to_union(&at(0.2, 0.1, 5), 100).unwrap().is_none());
        // Too far away, however far.
        for min in [20.0, 1e16] {
            let far = a.growth_to_union(&at(min, 0.1, 10), 100);
            assert!(matches!(far, Err(Error::GridTooLarge { limit: 100, .. })), "{far:?}");
        }
        assert!(matches!(
            a.growth_to_union(&at(0.0, 0.11, 10), 100),
            Err(Error::GridMismatch { what: "step", .. })
        ));
        assert!(matches!(
            a.growth_to_union(&at(0.05, 0.1, 10), 100),
            Err(Error::GridMismatch { what: "alignment", .. })
        ));
        let plane = Lattice::from(Grid::covering(&[(0.0, 1.0); 2], &[5, 5]).unwrap());
        assert!(matches!(a.growth_to_union(&plane, 100), Err(Error::GridMismatch { what: "dimension", .. })));
    }
}
