//! Many rows, each predicted before it is learned, with one product for all that a row alone would sweep over F for.
//!
//! While rows wait ([`super::delayed`]) the factor F₀ stays as it is, so q rows need G = F₀ᵀΦ once, a matrix product that
//! reads F₀ once; what is left for each row are the lists of those before it, 4pq multiply-adds. The numbers are those of
//! [`Posterior::condition`] row after row, up to rounding.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::{Posterior, Prediction, Workspace};
use crate::error::{Result, finite, length, positive};
use crate::interp::POINTS_TOGETHER;
use crate::simd::dot;

impl Posterior {
    /// Conditions on many rows in turn, given row after row, and writes what was predicted for each before it was
    /// learned. If any row is rejected, none is learned. For small p as fast as one by one; from p = 256 on some three
    /// times as fast.
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
        if self.pending.is_immediate() {
            for (row, point) in h.chunks_exact(d).enumerate() {
                predictions[row] = self.condition(point, y[row], noise_at(row), ws)?;
            }
            return Ok(());
        }
        let mut first = 0;
        while first < y.len() {
            let rows = first..y.len().min(first + self.pending.room(POINTS_TOGETHER));
            self.condition_together(&h[rows.start * d..rows.end * d], rows.start, ws)?;
            for (i, row) in rows.clone().enumerate() {
                predictions[row] = self.condition_prepared(i, y[row], noise_at(row), ws);
            }
            if self.pending.is_full() {
                self.flush(&mut ws.pool);
            } else {
                self.fit_image(&mut ws.pool);
            }
            first = rows.end;
        }
        Ok(())
    }

    /// Leaves the features Φ of a few rows and G = F₀ᵀΦ in the workspace.
    fn condition_together(&self, h: &[f64], first_row: usize, ws: &mut Workspace) -> Result<()> {
        ws.fit(self);
        let (p, stride, q) = (self.factor.size(), self.factor.stride(), h.len() / self.lattice().dim());
        self.lattice().weigh_all(h, first_row, &mut ws.placement)?;
        ws.features.resize(q * p, 0.0);
        ws.whites.resize(q * stride, 0.0);
        for (i, phi) in ws.features.chunks_exact_mut(p).enumerate() {
            self.prior.features(ws.placement.row(self.lattice(), i), phi, &mut ws.scratch);
        }
        let phi = MatRef::from_row_major_slice(&ws.features, q, p);
        let factor = MatRef::from_row_major_slice(self.factor.rows(), p, stride);
        let g = MatMut::from_row_major_slice_mut(&mut ws.whites, q, stride);
        matmul(g, Accum::Replace, phi, factor, 1.0, Par::Seq);
        Ok(())
    }

    /// Predicts and learns the i-th of the rows in the workspace.
    fn condition_prepared(&mut self, i: usize, y: f64, noise: f64, ws: &mut Workspace) -> Prediction {
        let (p, stride) = (self.factor.size(), self.factor.stride());
        ws.phi.copy_from_slice(&ws.features[i * p..(i + 1) * p]);
        ws.white.copy_from_slice(&ws.whites[i * stride..(i + 1) * stride]);
        let mean = dot(&ws.phi, &self.mean) + dot(&ws.white, self.pending.shift());
        self.pending.whiten(&mut ws.white, &mut ws.products);
        let (variance, noise) = (dot(&ws.white, &ws.white), self.noise * noise);
        self.pending.push(&ws.white, noise, (y - mean) / (variance + noise), &mut ws.products);
        let residual = self.prior.residual_scale() * ws.placement.residual(i);
        Prediction { mean, variance: variance + residual, noise }
    }
}
