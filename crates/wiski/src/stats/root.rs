//! The paper's representation of A = WᵀD⁻¹W: a root of limited rank, A ≈ L Lᵀ, with J Jᵀ = A⁺.
//!
//! New weights W' (m×q, divided by the square root of their noise) enter through p = JᵀW'. With the thin
//! singular value decomposition p = U S Vᵀ,
//!
//! ```text
//! L ← L (I + U (√(1 + S²) − 1) Uᵀ)      J ← J (I + U (1/√(1 + S²) − 1) Uᵀ)
//! ```
//!
//! at O(m r q), because I + p pᵀ has the square root in brackets. Only the part of W' inside the range of L
//! is kept. While the rank is below r, a point that reaches outside is instead appended as a new column:
//! L ← [L w], and J, which stays the pseudo-inverse (JᵀL = I), changes by rank one. So the root is exact
//! until its rank is used up; what is cut off after that is added up in [`LowRankRoot::lost`].
//!
//! The stencil is cheaper and always exact. This form is here for the paper's rank ablation and as a
//! cross-check.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, length};
use crate::saved::{Restore, restored_after_reading};

/// Relative size of the part outside the range of L from which on it counts as a new direction. A direction
/// of relative size ρ is resolved with error eps/ρ, and neglecting it errs by ρ: √eps balances the two.
const NEW_DIRECTION: f64 = 1.5e-8;

/// A ≈ L Lᵀ with at most r columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct LowRankRoot {
    points: usize,
    limit: usize,
    /// Column k of L and of J at `[k * points..]`.
    #[serde(with = "crate::saved::floats")]
    l: Vec<f64>,
    #[serde(with = "crate::saved::floats")]
    j: Vec<f64>,
    lost: f64,
    total: f64,
}

restored_after_reading!(LowRankRoot);

impl Restore for LowRankRoot {
    fn restore(&mut self) -> Result<()> {
        length("J of the root", self.l.len(), self.j.len())?;
        let whole = self.points > 0 && self.l.len().is_multiple_of(self.points);
        if !whole || self.limit == 0 || self.rank() > self.limit {
            let reason = "the root of the statistics has the wrong size".into();
            return Err(Error::Config { field: "root".into(), reason });
        }
        Ok(())
    }
}

impl LowRankRoot {
    /// The root of the zero matrix over `points` grid points, of rank at most `limit`.
    pub fn new(points: usize, limit: usize) -> Self {
        Self { points, limit, l: Vec::new(), j: Vec::new(), lost: 0.0, total: 0.0 }
    }

    /// The number of grid points.
    pub(super) fn points(&self) -> usize {
        self.points
    }

    /// The rank reached so far.
    pub fn rank(&self) -> usize {
        self.l.len() / self.points
    }

    /// The largest rank allowed.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The share of Σ ‖w‖²/d, the trace of A, that lies outside the range of L and was cut off.
    pub fn lost(&self) -> f64 {
        if self.total > 0.0 { self.lost / self.total } else { 0.0 }
    }

    fn matrix<'a>(&self, data: &'a [f64]) -> MatRef<'a, f64> {
        MatRef::from_column_major_slice(data, self.points, self.rank())
    }

    /// L as m rows.
    pub(crate) fn rows(&self) -> Vec<f64> {
        let r = self.rank();
        (0..self.points * r).map(|i| self.l[i % r * self.points + i / r]).collect()
    }

    /// Y = L Lᵀ X for m rows of `columns` numbers.
    pub(crate) fn multiply(&self, x: &[f64], columns: usize, y: &mut [f64]) {
        let l = self.matrix(&self.l);
        let x = MatRef::from_row_major_slice(&x[..self.points * columns], self.points, columns);
        let y = MatMut::from_row_major_slice_mut(&mut y[..self.points * columns], self.points, columns);
        let inner = l.transpose() * x;
        matmul(y, Accum::Replace, l, inner.as_ref(), 1.0, Par::Seq);
    }

    /// A += w wᵀ for each of the given columns of m numbers (already divided by √d).
    pub(crate) fn add(&mut self, columns: &[f64]) -> Result<()> {
        // Points that open a new direction enter one by one, the others together.
        let mut inside: Vec<f64> = Vec::with_capacity(columns.len());
        for w in columns.chunks_exact(self.points) {
            let norm2: f64 = w.iter().map(|v| v * v).sum();
            self.total += norm2;
            let (p, outside) = self.split(w);
            let rho2: f64 = outside.iter().map(|v| v * v).sum();
            if rho2 <= NEW_DIRECTION.powi(2) * norm2 {
                inside.extend(w);
            } else if self.rank() < self.limit.min(self.points) {
                self.append(w, &p, &outside, rho2);
            } else {
                self.lost += rho2;
                inside.extend(w);
            }
        }
        if !inside.is_empty() {
            let q = inside.len() / self.points;
            let w = MatRef::from_column_major_slice(&inside, self.points, q);
            let p = self.matrix(&self.j).transpose() * w;
            self.rotate(&p, 1.0)?;
        }
        Ok(())
    }

    /// A −= w wᵀ for a column that was added before. Refused where that would not leave A positive.
    pub(crate) fn remove(&mut self, w: &[f64]) -> Result<()> {
        let (p, outside) = self.split(w);
        let s2: f64 = p.iter().map(|v| v * v).sum();
        // 1 − s² is what is left in the direction of w: below √eps nothing meaningful is.
        if s2 >= 1.0 - NEW_DIRECTION {
            let reason = "the point is the only one in its direction, and a low-rank root cannot shrink";
            return Err(Error::Unsupported { operation: "forget", reason });
        }
        let p = Mat::from_fn(p.len(), 1, |i, _| p[i]);
        self.rotate(&p, -1.0)?;
        self.total -= w.iter().map(|v| v * v).sum::<f64>();
        self.lost = (self.lost - outside.iter().map(|v| v * v).sum::<f64>()).max(0.0);
        Ok(())
    }

    /// p = Jᵀw and the rest w − L p, orthogonalised twice.
    fn split(&self, w: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let r = self.rank();
        let (mut p, mut rest) = (vec![0.0; r], w.to_vec());
        for _ in 0..2 {
            let column = MatRef::from_column_major_slice(&rest, self.points, 1);
            let step = self.matrix(&self.j).transpose() * column;
            let inside = self.matrix(&self.l) * &step;
            (0..r).for_each(|i| p[i] += step[(i, 0)]);
            (0..self.points).for_each(|i| rest[i] -= inside[(i, 0)]);
        }
        (p, rest)
    }

    /// L ← [L w], J ← [J − o pᵀ/ρ², o/ρ²] with o the part of w outside the range of L, ρ = ‖o‖.
    fn append(&mut self, w: &[f64], p: &[f64], outside: &[f64], rho2: f64) {
        for (column, &pk) in self.j.chunks_exact_mut(self.points).zip(p) {
            column.iter_mut().zip(outside).for_each(|(j, &o)| *j -= o * pk / rho2);
        }
        self.l.extend(w);
        self.j.extend(outside.iter().map(|o| o / rho2));
    }

    /// Replaces L by L (I + sign·p pᵀ)^{1/2} and J by J (I + sign·p pᵀ)^{−1/2}, at O(m r q).
    fn rotate(&mut self, p: &Mat<f64>, sign: f64) -> Result<()> {
        let (r, q) = (self.rank(), p.ncols());
        if r == 0 {
            return Ok(());
        }
        // (I + sign·U S² Uᵀ)^{1/2} = I + p·(V c Vᵀ)·pᵀ with c = (√(1 + sign s²) − 1)/s², from the q×q
        // eigenproblem pᵀp = V S² Vᵀ; likewise the inverse root.
        let eigen = (p.transpose() * p).self_adjoint_eigen(faer::Side::Lower).map_err(|_| {
            Error::NoConvergence { method: "eigendecomposition", iterations: 0, residual: f64::NAN }
        })?;
        let (v, s2) = (eigen.U(), eigen.S().column_vector());
        let grow = |s2: f64| sign / ((1.0 + sign * s2).sqrt() + 1.0);
        let shrink = |s2: f64| {
            let root = (1.0 + sign * s2).sqrt();
            -sign / (root * (1.0 + root))
        };
        for (data, c) in [(&mut self.l, &grow as &dyn Fn(f64) -> f64), (&mut self.j, &shrink)] {
            let core = Mat::from_fn(q, q, |a, b| {
                (0..q).map(|k| v[(a, k)] * c(s2[k].max(0.0)) * v[(b, k)]).sum::<f64>()
            });
            let mut matrix = MatMut::from_column_major_slice_mut(data, self.points, r);
            let left = matrix.as_ref() * p * core;
            matmul(matrix.as_mut(), Accum::Add, left.as_ref(), p.transpose(), 1.0, Par::Seq);
        }
        Ok(())
    }

    /// A ← λ A.
    pub(crate) fn scale(&mut self, factor: f64) {
        let root = factor.sqrt();
        self.l.iter_mut().for_each(|v| *v *= root);
        self.j.iter_mut().for_each(|v| *v /= root);
        self.lost *= factor;
        self.total *= factor;
    }

    /// A += the other root's matrix.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<()> {
        self.add(&other.l)?;
        self.lost += other.lost;
        self.total += other.lost;
        Ok(())
    }

    /// The same matrix over a grown lattice, given the new place of every old grid point.
    pub(crate) fn embedded(&self, points: usize, places: &[usize]) -> Self {
        let spread = |data: &[f64]| {
            let mut new = vec![0.0; points * self.rank()];
            for (from, to) in data.chunks_exact(self.points).zip(new.chunks_exact_mut(points)) {
                from.iter().zip(places).for_each(|(&v, &place)| to[place] = v);
            }
            new
        };
        Self { points, l: spread(&self.l), j: spread(&self.j), ..*self }
    }
}
