//! Regular grids of inducing points: where they lie, what they cover, how they grow.
//!
//! An [`Axis`] is a row of equally spaced points, a [`Grid`] the product of one to four axes, a [`Lattice`]
//! several grids side by side, one for each block of an additive model, and a block of inducing points
//! ([`Points`](crate::points::Points)) behind them if there is one. Grid points are numbered with the last axis running fastest, blocks
//! one after the other.
//!
//! Every axis carries one cell of padding at either end, so that the four points around any covered value
//! exist and no border rule is needed: an axis with points u_0 … u_{g−1} covers [u_1, u_{g−2}].
//!
//! A grid can grow at the same spacing. Positions are counted from a fixed origin, so the points it had
//! before keep their places to the last bit.

mod axis;
mod lattice;

pub use axis::Axis;
pub(crate) use lattice::Growth;
pub use lattice::Lattice;

use crate::error::{Error, Result, length};
use crate::kernel::MAX_DIM;
use serde::{Deserialize, Serialize};

/// The smallest number of points on an axis: four points carry the cubic interpolation of one cell.
pub const MIN_POINTS: usize = 4;

/// The largest number of points of a grid.
pub const MAX_POINTS: usize = 1 << 32;

/// The product of one to four axes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Axis>", into = "Vec<Axis>")]
pub struct Grid {
    axes: Vec<Axis>,
    strides: Vec<usize>,
    /// Where the 4^{d−1} rows of four neighboring points begin, from the first of the 4^d points.
    row_offsets: Vec<usize>,
}

impl From<Grid> for Vec<Axis> {
    fn from(grid: Grid) -> Self {
        grid.axes
    }
}

impl TryFrom<Vec<Axis>> for Grid {
    type Error = Error;

    fn try_from(axes: Vec<Axis>) -> Result<Self> {
        Self::new(axes)
    }
}

impl Grid {
    /// A grid with the given axes.
    pub fn new(axes: Vec<Axis>) -> Result<Self> {
        let d = axes.len();
        if d == 0 || d > MAX_DIM {
            let reason = format!("a grid needs 1 to {MAX_DIM} axes, not {d}");
            return Err(Error::Config { field: "grid".into(), reason });
        }
        let size =
            axes.iter().try_fold(1usize, |size, a| size.checked_mul(a.points).filter(|&s| s <= MAX_POINTS));
        if size.is_none() {
            let reason = format!("a grid of {MAX_POINTS} points is the largest possible");
            return Err(Error::Config { field: "grid".into(), reason });
        }
        let mut strides = vec![1; d];
        for k in (0..d - 1).rev() {
            strides[k] = strides[k + 1] * axes[k + 1].points;
        }
        let mut row_offsets = vec![0];
        for &stride in &strides[..d - 1] {
            row_offsets = row_offsets.iter().flat_map(|&o| (0..4).map(move |i| o + i * stride)).collect();
        }
        Ok(Self { axes, strides, row_offsets })
    }

    /// A grid that covers the box lo_k ≤ x_k ≤ hi_k with `points[k]` points per axis, padding included.
    ///
    /// ```
    /// use wiski::Grid;
    /// let grid = Grid::covering(&[(-1.0, 1.0), (0.0, 10.0)], &[16, 24])?;
    /// assert_eq!(grid.len(), 16 * 24);
    /// assert!((grid.axes()[1].hi() - 10.0).abs() < 1e-12);
    /// # Ok::<(), wiski::Error>(())
    /// ```
    pub fn covering(bounds: &[(f64, f64)], points: &[usize]) -> Result<Self> {
        length("grid points per axis", bounds.len(), points.len())?;
        let axes = bounds.iter().zip(points).map(|(&(lo, hi), &g)| Axis::covering(lo, hi, g));
        Self::new(axes.collect::<Result<_>>()?)
    }

    /// The axes.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The number of axes d.
    pub fn dim(&self) -> usize {
        self.axes.len()
    }

    /// The number of grid points m.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.axes.iter().map(|a| a.points).product()
    }

    /// The number of points on each axis.
    pub(crate) fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|a| a.points).collect()
    }

    /// The distance between neighbors on each axis, in grid point numbers.
    pub(crate) fn strides(&self) -> &[usize] {
        &self.strides
    }

    pub(crate) fn row_offsets(&self) -> &[usize] {
        &self.row_offsets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_covers_what_it_says() {
        let axis = Axis::covering(-1.0, 1.0, 16).unwrap();
        let (start, place) = axis.cell(-1.0).unwrap();
        assert!(start == 0 && place.abs() < 1e-14);
        let (start, place) = axis.cell(1.0).unwrap();
        assert!(start == 12 && (place - 1.0).abs() < 1e-14);
        for x in [-1.0001, 1.0001, f64::NAN, f64::INFINITY, -1e300] {
            assert_eq!(axis.cell(x), None, "{x}");
        }
        // The bounds of odd intervals are covered in spite of rounding, also far from zero.
        for i in 1..2000 {
            let (lo, hi) = (-0.1 * f64::from(i), 0.37 * f64::from(i));
            for far in [0.0, 100.0, 1.7e9] {
                let (lo, hi) = (far + lo, far + hi);
                let axis = Axis::covering(lo, hi, 5 + i as usize % 60).unwrap();
                assert!(axis.cell(lo).is_some() && axis.cell(hi).is_some(), "{i}");
            }
        }
    }

    #[test]
    fn bad_axes_are_rejected() {
        assert!(Axis::covering(0.0, 1.0, 3).is_err());
        assert!(Axis::covering(1.0, 1.0, 10).is_err());
        assert!(Axis::covering(f64::NAN, 1.0, 10).is_err());
        assert!(Axis::new(0.0, -1.0, 10).is_err());
        assert!(Grid::new(vec![]).is_err());
        assert!(Grid::new(vec![Axis::covering(0.0, 1.0, 4).unwrap(); 5]).is_err());
        assert!(Lattice::new(vec![]).is_err());
        let huge = Axis::covering(0.0, 1.0, 1 << 32).unwrap();
        assert!(Grid::new(vec![huge; 2]).is_err() && Grid::new(vec![huge; 4]).is_err());
    }
}
