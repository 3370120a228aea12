//! A box `lo ≤ x ≤ hi`, coordinate by coordinate, either side of which may be infinite.
//!
//! ```
//! use wiski::internals::learn::Bounds;
//!
//! let half_plane = Bounds::new(vec![0.0, f64::NEG_INFINITY], vec![f64::INFINITY; 2])?;
//! let mut x = [-1.0, -1.0];
//! half_plane.project(&mut x);
//! assert_eq!(x, [0.0, -1.0]);
//! # Ok::<(), wiski::Error>(())
//! ```

use crate::error::{self, Error, Result};

/// The box that an optimizer must not leave.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    lo: Vec<f64>,
    hi: Vec<f64>,
}

impl Bounds {
    /// The box between `lo` and `hi`. Equal bounds fix a coordinate; infinite ones leave that side open.
    pub fn new(lo: Vec<f64>, hi: Vec<f64>) -> Result<Self> {
        error::length("upper bounds", lo.len(), hi.len())?;
        for (i, (&l, &h)) in lo.iter().zip(&hi).enumerate() {
            // Written so that NaN fails too.
            if !(l <= h && l < f64::INFINITY && h > f64::NEG_INFINITY) {
                return Err(Error::Config {
                    field: format!("bounds[{i}]"),
                    reason: format!("[{l}, {h}] contains no number"),
                });
            }
        }
        Ok(Self { lo, hi })
    }

    /// No bounds on any of `dim` coordinates.
    pub fn unbounded(dim: usize) -> Self {
        Self { lo: vec![f64::NEG_INFINITY; dim], hi: vec![f64::INFINITY; dim] }
    }

    /// The cube `[lo, hi]` in `dim` dimensions.
    pub fn cube(dim: usize, lo: f64, hi: f64) -> Result<Self> {
        Self::new(vec![lo; dim], vec![hi; dim])
    }

    /// The number of coordinates.
    pub fn dim(&self) -> usize {
        self.lo.len()
    }

    /// The lower bounds.
    pub fn lo(&self) -> &[f64] {
        &self.lo
    }

    /// The upper bounds.
    pub fn hi(&self) -> &[f64] {
        &self.hi
    }

    /// Whether no coordinate has a finite bound.
    pub fn is_unbounded(&self) -> bool {
        self.lo.iter().all(|&l| l == f64::NEG_INFINITY) && self.hi.iter().all(|&h| h == f64::INFINITY)
    }

    /// Whether `x` lies in the box, faces included.
    pub fn contains(&self, x: &[f64]) -> bool {
        x.len() == self.dim() && x.iter().enumerate().all(|(i, &v)| self.lo[i] <= v && v <= self.hi[i])
    }

    /// Moves `x` to the nearest point of the box.
    pub fn project(&self, x: &mut [f64]) {
        for (i, v) in x.iter_mut().enumerate() {
            *v = self.clamp(i, *v);
        }
    }

    /// `max_i |P(x − g)_i − x_i|` with P the projection on the box: zero exactly at a stationary point, and
    /// `max_i |g_i|` without bounds.
    pub fn projected_gradient(&self, x: &[f64], gradient: &[f64]) -> f64 {
        let mut norm = 0.0_f64;
        for i in 0..self.dim() {
            norm = norm.max(self.reduced(i, x[i], gradient[i]).abs());
        }
        norm
    }

    /// The step −g on coordinate i, cut off at the bound, with its sign reversed. Not computed as a difference
    /// of positions where the bound is far: that would round a small gradient at a large x to zero.
    pub(super) fn reduced(&self, i: usize, x: f64, g: f64) -> f64 {
        if g > 0.0 { g.min(x - self.lo[i]) } else { g.max(x - self.hi[i]) }
    }

    pub(super) fn clamp(&self, i: usize, v: f64) -> f64 {
        v.max(self.lo[i]).min(self.hi[i])
    }

    /// The widest side, infinite if any side is open; 0 without coordinates.
    pub(super) fn widest(&self) -> f64 {
        self.lo.iter().zip(&self.hi).fold(0.0, |w, (l, h)| f64::max(w, h - l))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_boxes_are_rejected() {
        let inf = f64::INFINITY;
        for (l, h) in [(1.0, 0.0), (f64::NAN, 1.0), (0.0, f64::NAN), (inf, inf), (-inf, -inf)] {
            assert!(Bounds::new(vec![l], vec![h]).is_err(), "[{l}, {h}]");
        }
        assert!(Bounds::new(vec![0.0], vec![]).is_err());
        assert!(Bounds::new(vec![2.0], vec![2.0]).is_ok());
    }

    #[test]
    fn the_projected_gradient_ignores_what_pushes_out_of_the_box() {
        let b = Bounds::new(vec![0.0, 0.0, f64::NEG_INFINITY], vec![1.0, 1.0, f64::INFINITY]).unwrap();
        // At the lower face pushing out, at the upper face pushing out, free.
        assert_eq!(b.projected_gradient(&[0.0, 1.0, 1e9], &[5.0, -7.0, 1e-12]), 1e-12);
        // Inside, the step is cut at the face.
        assert_eq!(b.projected_gradient(&[0.25, 0.5, 0.0], &[5.0, 0.1, 0.0]), 0.25);
    }
}
