//! Rows that are known to come: what each would compute alone is computed for several together, to the same bits.
//!
//! While rows wait ([`super::delayed`]) the factor F₀ stays as it is. Of q rows to come Φ is known, and G = F₀ᵀΦ is one
//! product that reads F₀ once; what is left for each row are the lists of those before it, 4pq multiply-adds. Weights on
//! inducing points are computed together in the same way ([`crate::interp::Placement`]). That rows are expected is a hint: they may come
//! in part, or not at all, or others in between.

use super::{Posterior, Prediction, Workspace};
use crate::error::{Result, finite, length, positive};
use crate::interp::{POINTS_TOGETHER, Placed, Weights};
use crate::simd::combine_rows_together;

/// Rows to come, and Fᵀφ of some of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Ahead {
    /// Their coordinates, one after the other.
    h: Vec<f64>,
    /// Those before this one have come.
    next: usize,
    /// The first row whose g is known, and how many are.
    first: usize,
    known: usize,
    weights: Vec<Weights>,
    features: Vec<f64>,
    whites: Vec<f64>,
    /// Where in `whites` the g of the point in the workspace begins.
    at: Option<usize>,
}

impl Ahead {
    /// The factor has changed.
    pub(super) fn invalidate(&mut self) {
        (self.known, self.at) = (0, None);
    }

    /// Another point is in the workspace.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.at = None;
    }

    /// Writes g of the point in the workspace, if it is known.
    #[inline]
    pub(super) fn write_white(&self, white: &mut [f64]) -> bool {
        let Some(at) = self.at else { return false };
        white.copy_from_slice(&self.whites[at..at + white.len()]);
        true
    }

    /// The number of a row to come with these coordinates.
    fn find(&mut self, h: &[f64]) -> Option<usize> {
        let found = self.h.chunks_exact(h.len()).skip(self.next).position(|row| row == h)?;
        self.next += found;
        Some(self.next)
    }
}

impl Workspace {
    /// Takes note of rows that will be learned in this order, given by their coordinates.
    pub(crate) fn expect(&mut self, posterior: &Posterior, h: &[f64]) {
        self.ahead.invalidate();
        self.ahead.h.clear();
        self.ahead.next = 0;
        if posterior.gains_by_expecting() {
            self.ahead.h.extend_from_slice(h);
        }
    }

    /// What was computed of rows to come does not hold any more.
    pub(crate) fn forget_ahead(&mut self) {
        self.ahead.invalidate();
    }
}

impl Posterior {
    /// Whether rows that are known to come are computed together: where they wait for the factor, and are not read from an
    /// image of it.
    pub(crate) fn gains_by_expecting(&self) -> bool {
        self.pending.waits() && !self.pending.has_image()
    }

    /// Finds or computes g = F₀ᵀφ of the point at `h`, which has been placed, and of those behind it, if it was expected.
    pub(super) fn look_ahead(&self, h: &[f64], ws: &mut Workspace) {
        let Workspace { ahead, placement, scratch, .. } = ws;
        let Some(row) = ahead.find(h) else { return };
        let (p, stride, d) = (self.factor.size(), self.factor.stride(), h.len());
        if !(ahead.first..ahead.first + ahead.known).contains(&row) {
            // When the list is full the factor changes.
            let rows = (ahead.h.len() / d - row).min(self.pending.room(POINTS_TOGETHER));
            let coordinates = &ahead.h[row * d..(row + rows) * d];
            if rows < 2 || self.lattice().locate_all(coordinates, row, &mut ahead.weights).is_err() {
                return;
            }
            ahead.features.resize(rows * p, 0.0);
            ahead.whites.resize(rows * stride, 0.0);
            let grids = self.lattice().grids().len();
            let points = self.lattice().grid_dim()..d;
            for (i, phi) in ahead.features.chunks_exact_mut(p).enumerate() {
                let inputs = &coordinates[i * d..][points.clone()];
                let weights = &ahead.weights[i * grids..(i + 1) * grids];
                let Some(dense) = placement.coming(self.lattice(), inputs) else { return };
                self.prior.features(Placed { weights, dense }, phi, scratch);
            }
            combine_rows_together(self.factor.rows(), stride, &ahead.features, &mut ahead.whites);
            (ahead.first, ahead.known) = (row, rows);
        }
        ahead.at = Some((row - ahead.first) * stride);
    }

    /// Conditions on many rows in turn, given row after row, and writes what was predicted for each before it was
    /// learned. If any row is rejected, none is learned. For small p as fast as one by one; from p = 256 on several
    /// times as fast. The numbers are those of [`Posterior::condition`] row after row, to the last bit.
    pub fn condition_batch(
        &mut self,
        h: &[f64],
        y: &[f64],
        noise: Option<&[f64]>,
        predictions: &mut [Prediction],
        ws: &mut Workspace,
    ) -> Result<()> {
        let d = self.lattice().dim();
        length("x", y.len() * d, h.len())?;
        length("predictions", y.len(), predictions.len())?;
        if let Some(noise) = noise {
            length("noise", y.len(), noise.len())?;
        }
        let noise_at = |row: usize| noise.map_or(1.0, |d| d[row]);
        for (row, (point, &y)) in h.chunks_exact(d).zip(y).enumerate() {
            finite("y", y, row)?;
            positive("noise", noise_at(row), row)?;
            self.lattice().locate(point, row, ws.placement.on_grids())?;
        }
        for (block, rows) in h.chunks(POINTS_TOGETHER * d).enumerate() {
            ws.expect(self, rows);
            ws.placement.expect(self.lattice(), rows);
            for (i, point) in rows.chunks_exact(d).enumerate() {
                let row = block * POINTS_TOGETHER + i;
                predictions[row] = self.condition(point, y[row], noise_at(row), ws)?;
            }
        }
        ws.expect(self, &[]);
        ws.placement.expect(self.lattice(), &[]);
        Ok(())
    }
}
