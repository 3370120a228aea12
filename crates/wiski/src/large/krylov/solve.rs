//! Preconditioned conjugate gradients for several right-hand sides in step: each column has its own coefficients,
//! and all share the products with S.

use super::Convergence;
use super::precondition::Preconditioner;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::pool::Pool;
use crate::prior::Prior;
use crate::simd::{dot, padded};
use crate::stats::Stats;
use crate::structure::{SparseRows, StencilMatrix};

/// Stencils of at most so many numbers are sorted by row for their products: several times faster, and 128 MB.
const SORTED: usize = 1 << 22;

/// S = I + BᵀAB/σ² with a matrix close to it.
pub(super) struct System<'a> {
    pub(super) prior: &'a Prior,
    pub(super) stats: &'a Stats,
    pub(super) noise: f64,
    pub(super) preconditioner: &'a Preconditioner,
    /// A, where the grid is not too large for that.
    rows: Option<SparseRows>,
}

impl<'a> System<'a> {
    pub(super) fn new(
        prior: &'a Prior,
        stats: &'a Stats,
        noise: f64,
        preconditioner: &'a Preconditioner,
    ) -> Self {
        let stencil = stats.stencil().ok().filter(|a| a.data().len() <= SORTED);
        Self { prior, stats, noise, preconditioner, rows: stencil.map(StencilMatrix::sparse_rows) }
    }
}

/// The solution of S X = R.
pub(super) struct Solution {
    /// Columns of p numbers.
    pub(super) x: Vec<f64>,
    pub(super) convergence: Convergence,
    /// For each column, the tridiagonal matrix that the iteration makes of L⁻¹S L⁻ᵀ: diagonal and squared
    /// off-diagonal.
    pub(super) tridiagonals: Vec<(Vec<f64>, Vec<f64>)>,
}

/// The inner product of each column of X with that of Y.
fn inner_products(x: &[f64], y: &[f64], columns: usize) -> Vec<f64> {
    let n = x.len() / columns;
    x.chunks_exact(n).zip(y.chunks_exact(n)).map(|(x, y)| dot(x, y)).collect()
}

/// x_j ← a_j x_j + b_j y_j for the columns j.
fn combine(a: &[f64], x: &mut [f64], b: &[f64], y: &[f64]) {
    let n = x.len() / a.len();
    for ((x, y), (&a, &b)) in x.chunks_exact_mut(n).zip(y.chunks_exact(n)).zip(a.iter().zip(b)) {
        x.iter_mut().zip(y).for_each(|(x, y)| *x = a * *x + b * y);
    }
}

impl System<'_> {
    /// B X. Blocks hold one column after the other: so the products along the axes are few and large.
    pub(super) fn expand(&self, x: &[f64], columns: usize, pool: &mut Pool) -> Vec<f64> {
        let (p, m) = (self.prior.rank(), self.prior.lattice().len());
        let mut out = pool.take(m * columns);
        for (x, out) in x.chunks_exact(p).zip(out.chunks_exact_mut(m)) {
            let column = self.prior.expand(x, 1, pool);
            out.copy_from_slice(&column);
            pool.give(column);
        }
        out
    }

    /// Bᵀ U.
    pub(super) fn project(&self, u: &[f64], columns: usize, pool: &mut Pool) -> Vec<f64> {
        let (p, m) = (self.prior.rank(), self.prior.lattice().len());
        let mut out = pool.take(p * columns);
        for (u, out) in u.chunks_exact(m).zip(out.chunks_exact_mut(p)) {
            let column = self.prior.project(u, 1, pool);
            out.copy_from_slice(&column);
            pool.give(column);
        }
        out
    }

    /// A U.
    pub(super) fn multiply_data(&self, u: &[f64], columns: usize, pool: &mut Pool) -> Vec<f64> {
        // The stencil is read once for all columns if a grid point's numbers lie side by side, a whole vector of
        // them: even for a single column that is many times faster than without vectors.
        let m = u.len() / columns;
        let lanes = padded(columns);
        let mut rows = pool.zeros(m * lanes);
        let mut out = pool.take(m * lanes);
        for (j, column) in u.chunks_exact(m).enumerate() {
            rows.iter_mut().skip(j).step_by(lanes).zip(column).for_each(|(to, &from)| *to = from);
        }
        match &self.rows {
            Some(a) => a.multiply(&rows, lanes, &mut out),
            None => self.stats.multiply_few(&rows, lanes, &mut out),
        }
        rows.truncate(u.len());
        for (j, column) in rows.chunks_exact_mut(m).enumerate() {
            column.iter_mut().zip(out.iter().skip(j).step_by(lanes)).for_each(|(to, &from)| *to = from);
        }
        pool.give(out);
        rows
    }

    /// Y = S X for columns of p numbers.
    pub(super) fn apply(&self, x: &[f64], columns: usize, y: &mut [f64], pool: &mut Pool) {
        let u = self.expand(x, columns, pool);
        let au = self.multiply_data(&u, columns, pool);
        let data = self.project(&au, columns, pool);
        let inverse = self.noise.recip();
        y.iter_mut().zip(x).zip(&data).for_each(|((y, x), d)| *y = x + inverse * d);
        [u, au, data].into_iter().for_each(|array| pool.give(array));
    }

    /// Solves S X = R for columns of p numbers until every column's residual, in the norm of P⁻¹, is below
    /// `tolerance` times its right-hand side.
    pub(super) fn solve(
        &self,
        rhs: &[f64],
        start: Option<Vec<f64>>,
        columns: usize,
        tolerance: f64,
        limit: usize,
        pool: &mut Pool,
    ) -> Result<Solution> {
        let precondition = |r: &[f64], z: &mut [f64]| {
            z.copy_from_slice(r);
            self.preconditioner.solve(z, columns);
        };
        let ones = vec![1.0; columns];
        let mut z = pool.take(rhs.len());
        let mut q = pool.take(rhs.len());
        let mut residual = pool.take(rhs.len());
        residual.copy_from_slice(rhs);
        precondition(rhs, &mut z);
        let scale = inner_products(rhs, &z, columns);
        let mut x = match start {
            Some(x) => {
                self.apply(&x, columns, &mut q, pool);
                combine(&ones, &mut residual, &vec![-1.0; columns], &q);
                precondition(&residual, &mut z);
                x
            }
            None => vec![0.0; rhs.len()],
        };
        let mut rho = inner_products(&residual, &z, columns);
        let mut direction = pool.take(rhs.len());
        direction.copy_from_slice(&z);
        let goal = tolerance * tolerance;
        let open = |rho: &[f64], j: usize| rho[j] > goal * scale[j];
        let mut tridiagonals = vec![(Vec::new(), Vec::new()); columns];
        // 1/α and β/α of the step before, for each column.
        let mut before = vec![(0.0, 0.0); columns];
        let mut iterations = 0;
        while (0..columns).any(|j| open(&rho, j)) {
            let worst = (0..columns).filter(|&j| scale[j] > 0.0).map(|j| (rho[j] / scale[j]).sqrt());
            let worst = worst.fold(0.0, f64::max);
            if iterations == limit || !rho.iter().all(|r| r.is_finite()) {
                return Err(Error::NoConvergence {
                    method: "conjugate gradients",
                    iterations,
                    residual: worst,
                });
            }
            interrupt::check()?;
            iterations += 1;
            self.apply(&direction, columns, &mut q, pool);
            let curvature = inner_products(&direction, &q, columns);
            // A column that has reached its goal stands still: its direction is zero from then on.
            let alpha: Vec<f64> =
                (0..columns).map(|j| if open(&rho, j) { rho[j] / curvature[j] } else { 0.0 }).collect();
            combine(&ones, &mut x, &alpha, &direction);
            combine(&ones, &mut residual, &alpha.iter().map(|a| -a).collect::<Vec<_>>(), &q);
            precondition(&residual, &mut z);
            let next = inner_products(&residual, &z, columns);
            let mut beta = vec![0.0; columns];
            for j in (0..columns).filter(|&j| open(&rho, j)) {
                beta[j] = next[j] / rho[j];
                let (diagonal, off) = &mut tridiagonals[j];
                if iterations > 1 {
                    off.push(before[j].1);
                }
                diagonal.push(alpha[j].recip() + before[j].0);
                // T_{k,k+1}² = β_k/α_k², and β_k/α_k goes to the next diagonal entry.
                before[j] = (beta[j] / alpha[j], beta[j] / (alpha[j] * alpha[j]));
            }
            let keep: Vec<f64> = (0..columns).map(|j| f64::from(u8::from(open(&next, j)))).collect();
            // Columns that are done keep a residual below their goal, and so a ρ that stays there.
            for j in 0..columns {
                if alpha[j] != 0.0 {
                    rho[j] = next[j];
                }
            }
            combine(&beta, &mut direction, &keep, &z);
        }
        let relative = |j: usize| if scale[j] > 0.0 { (rho[j] / scale[j]).sqrt() } else { 0.0 };
        let residual_left = (0..columns).map(relative).fold(0.0, f64::max);
        [z, q, residual, direction].into_iter().for_each(|array| pool.give(array));
        let convergence = Convergence { iterations, residual: residual_left, log_det_error: 0.0 };
        Ok(Solution { x, convergence, tridiagonals })
    }
}
