//! Products with A, and the statistics in the coordinates of a prior.

use super::{Gram, Prepared, Stats, ThinRoot};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::prior::Prior;
use crate::structure::{GridMatrix, StencilMatrix, Symmetric};

/// The statistics in the p coordinates of a prior: all that a posterior and the evidence need.
#[derive(Debug, Clone)]
pub struct Whitened {
    /// Bᵀ A B, p×p.
    pub(crate) gram: Vec<f64>,
    /// Bᵀ b.
    pub(crate) rhs: Vec<f64>,
    /// Uᵀ A B, a row of `padded(p)` numbers for each grid point, where it was made on the way.
    pub(crate) product: Option<Vec<f64>>,
    /// Bᵀ L for a thin root L of A, p rows of r numbers, where there is one.
    pub(crate) thin: Option<Vec<f64>>,
}

impl Whitened {
    /// Gives the memory back.
    pub(crate) fn recycle(self, pool: &mut Pool) {
        pool.give(self.gram);
        pool.give(self.rhs);
        [self.product, self.thin].into_iter().flatten().for_each(|array| pool.give(array));
    }
}

impl Stats {
    /// y = A x.
    pub(crate) fn apply(&self, x: &[f64], y: &mut [f64]) {
        match &self.gram {
            Gram::Exact(a) => a.apply(x, y, &mut []),
            Gram::LowRank(root) => root.multiply(x, 1, y),
        }
    }

    /// BᵀAB and Bᵀb for a prior on the same grids.
    pub(crate) fn whiten(&self, prior: &Prior, pool: &mut Pool) -> Whitened {
        self.whiten_prepared(prior, &self.prepared(), pool)
    }

    /// As [`Stats::whiten`], with what is known of A.
    pub(crate) fn whiten_prepared(&self, prior: &Prior, prepared: &Prepared, pool: &mut Pool) -> Whitened {
        debug_assert_eq!(prior.lattice(), &self.lattice, "prior and statistics live on the same grids");
        let rhs = prior.project(&self.b, 1, pool);
        if let Some(ThinRoot { rows, rank }) = &prepared.root {
            let (gram, thin) = prior.congruence_of_root(rows, *rank, pool);
            return Whitened { gram, rhs, product: None, thin: Some(thin) };
        }
        let (gram, product) = match &self.gram {
            Gram::Exact(a) => prior.congruence(a, pool),
            Gram::LowRank(root) => {
                let (gram, half) = prior.congruence_of_root(&root.rows(), root.rank(), pool);
                pool.give(half);
                (gram, None)
            }
        };
        Whitened { gram, rhs, product, thin: None }
    }

    /// The rows of Y = A X that belong to grid points, for m padded rows of `stride` numbers.
    pub(crate) fn multiply_to_grids(&self, x: &[f64], stride: usize, y: &mut [f64]) {
        match &self.gram {
            Gram::Exact(a) => a.multiply_to_grids(x, stride, y),
            Gram::LowRank(root) => root.multiply(x, stride, y),
        }
    }

    /// Y = A X for m rows of a few columns, again and again.
    pub(crate) fn multiply_few(&self, x: &[f64], columns: usize, y: &mut [f64]) {
        match &self.gram {
            Gram::Exact(a) => a.multiply_few(x, columns, y),
            Gram::LowRank(root) => root.multiply(x, columns, y),
        }
    }

    /// A as a stencil over one grid: what engines for large grids need.
    pub(crate) fn stencil(&self) -> Result<&StencilMatrix> {
        let reason = match &self.gram {
            Gram::LowRank(_) => "the statistics are kept as a root of limited rank",
            Gram::Exact(a) if a.points().is_some() => {
                "the model has inducing points, whose weights are not sparse"
            }
            Gram::Exact(a) => match a.diagonal() {
                [GridMatrix::Stencil(stencil)] => return Ok(stencil),
                [GridMatrix::Dense(_)] => "the grid is too small for them",
                _ => "the model has several grids",
            },
        };
        Err(Error::Unsupported { operation: "an engine for large grids", reason })
    }
}
