//! A row of equally spaced points, and how it grows.

use super::MIN_POINTS;
use crate::error::{Error, Result, finite, positive};
use crate::saved::{Restore, restored_after_reading};
use serde::{Deserialize, Serialize};

/// Equally spaced points: point i lies at origin + (first + i)·step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Axis {
    origin: f64,
    step: f64,
    #[serde(skip)]
    inverse_step: f64,
    first: i64,
    pub(super) points: usize,
}

restored_after_reading!(Axis);

impl Restore for Axis {
    fn restore(&mut self) -> Result<()> {
        let far = self.first.unsigned_abs().max(self.points as u64);
        if far > 1 << 52 {
            let reason = format!("{far} steps from the origin is too far");
            return Err(Error::Config { field: "grid".into(), reason });
        }
        finite("axis min", self.step.mul_add(self.first as f64, self.origin), 0)?;
        let axis = Self::new(self.origin, self.step, self.points)?;
        *self = Self { first: self.first, ..axis };
        Ok(())
    }
}

impl Axis {
    /// The axis with points min, min + step, …, of which the outermost are padding.
    pub fn new(min: f64, step: f64, points: usize) -> Result<Self> {
        finite("axis min", min, 0)?;
        positive("axis step", step, 0)?;
        finite("axis max", min + step * points as f64, 0)?;
        if points < MIN_POINTS {
            let reason = format!("an axis needs at least {MIN_POINTS} points, not {points}");
            return Err(Error::Config { field: "grid".into(), reason });
        }
        Ok(Self { origin: min, step, inverse_step: step.recip(), first: 0, points })
    }

    /// The axis of `points` points that covers exactly [lo, hi]: spacing (hi − lo)/(points − 3), with one
    /// cell of padding at either end.
    pub fn covering(lo: f64, hi: f64, points: usize) -> Result<Self> {
        finite("axis lower bound", lo, 0)?;
        finite("axis upper bound", hi, 0)?;
        if points < MIN_POINTS || hi <= lo {
            let reason = format!(
                "{points} points cannot cover [{lo}, {hi}]: an axis needs at least {MIN_POINTS} points and an interval"
            );
            return Err(Error::Config { field: "grid".into(), reason });
        }
        let step = (hi - lo) / (points - 3) as f64;
        Self::new(lo - step, step, points)
    }

    /// The spacing h.
    pub fn step(&self) -> f64 {
        self.step
    }

    /// The number g of points, padding included.
    pub fn points(&self) -> usize {
        self.points
    }

    /// The first point (padding).
    pub fn min(&self) -> f64 {
        self.point(0)
    }

    /// The i-th point.
    pub fn point(&self, i: usize) -> f64 {
        self.step.mul_add((self.first + i as i64) as f64, self.origin)
    }

    /// The smallest value that can be interpolated.
    pub fn lo(&self) -> f64 {
        self.point(1)
    }

    /// The largest value that can be interpolated.
    pub fn hi(&self) -> f64 {
        self.point(self.points - 2)
    }

    /// The place of `x` in units of cells from the first point.
    #[inline]
    fn position(&self, x: f64) -> f64 {
        (x - self.origin) * self.inverse_step - self.first as f64
    }

    /// The cell that holds `x`, as the index of the first of its four points and the place in the cell
    /// (0 to 1), or `None` off the grid (and for NaN).
    #[inline]
    pub(crate) fn cell(&self, x: f64) -> Option<(usize, f64)> {
        let t = self.position(x);
        let last = (self.points - 2) as f64;
        // The bounds themselves may miss by a rounding of the position, which grows with the distance from 0.
        let size = self.first.unsigned_abs() as f64 + last + 2.0 + (self.origin * self.inverse_step).abs();
        let slack = 4.0 * f64::EPSILON * size;
        if !(t >= 1.0 - slack && t <= last + slack) {
            return None;
        }
        // On the upper bound the last cell is used from its right end, where its outer weight is zero.
        let cell = (t as usize).clamp(1, self.points - 3);
        // Not t − cell: how far the axis has grown must not round the place in the cell.
        let place = (x - self.origin) * self.inverse_step - (self.first + cell as i64) as f64;
        Some((cell - 1, place))
    }

    /// The number of cells to add below and above so that `x` is covered, with at least an eighth of the
    /// axis whenever it has to grow, so that a drifting stream causes few growths.
    pub(super) fn growth_to(&self, x: f64) -> (f64, f64) {
        if self.cell(x).is_some() {
            return (0.0, 0.0);
        }
        let t = self.position(x);
        let chunk = (self.points / 8) as f64;
        if t < 1.0 {
            ((1.0 - t.floor()).max(chunk), 0.0)
        } else {
            (0.0, (t.ceil() - (self.points - 2) as f64).max(chunk))
        }
    }

    /// An eighth of the axis: the least that it grows by.
    pub(super) fn growth_step(&self) -> usize {
        (self.points / 8).max(1)
    }

    /// The smallest growth that makes this axis contain every point of `other`, which must have the same
    /// spacing and fall on the same points.
    pub(super) fn growth_to_union(&self, other: &Self, axis: usize, limit: usize) -> Result<(usize, usize)> {
        let close = |a: f64, b: f64, scale: f64| (a - b).abs() <= 64.0 * f64::EPSILON * scale;
        if !close(self.step, other.step, self.step) {
            return Err(Error::GridMismatch { axis, what: "step", left: self.step, right: other.step });
        }
        let offset = self.position(other.min());
        let reach = offset.abs()
            + (self.points + other.points) as f64
            + (self.origin.abs() + other.origin.abs()) / self.step;
        if !close(offset, offset.round(), reach) {
            let left = self.min();
            return Err(Error::GridMismatch { axis, what: "alignment", left, right: other.min() });
        }
        let below = (-offset.round()).max(0.0);
        let above = (offset.round() + other.points as f64 - self.points as f64).max(0.0);
        let points = self.points as f64 + below + above;
        if points > limit as f64 {
            return Err(Error::GridTooLarge { axis, value: other.min(), points: points as usize, limit });
        }
        Ok((below as usize, above as usize))
    }

    pub(super) fn grown(&self, below: usize, above: usize) -> Self {
        Self { first: self.first - below as i64, points: self.points + below + above, ..*self }
    }
}
