//! Which engine a model uses, and what the engines for large grids have in common.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Accuracy, KrylovPosterior, SparsePosterior};
use crate::error::{Error, Result, length};
use crate::evidence::Evidence;
use crate::interp::Weights;
use crate::kernel::Kernel;
use crate::posterior::{FunctionSample, Predictor};
use crate::prior::Prior;
use crate::stats::Stats;

/// How posteriors are computed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Engine {
    /// By size and kernel: a factorization in p coordinates while p is small; on larger grids a sparse one for
    /// Matérn ½ and conjugate gradients for the rest.
    #[default]
    Auto,
    /// A p×p factorization: exact, and conditioned in constant time.
    Dense,
    /// Conjugate gradients; see [`super::krylov`].
    Krylov(Accuracy),
    /// A sparse factorization, for products of Matérn ½; see [`super::sparse`].
    Sparse,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Dense => "dense",
            Self::Krylov(_) => "krylov",
            Self::Sparse => "sparse",
        })
    }
}

impl FromStr for Engine {
    type Err = Error;

    /// `auto`, `dense`, `sparse` or `krylov` (with its default accuracy).
    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "auto" => Self::Auto,
            "dense" => Self::Dense,
            "krylov" => Self::Krylov(Accuracy::default()),
            "sparse" => Self::Sparse,
            _ => {
                let reason = format!("'{text}' is not auto, dense, sparse or krylov");
                return Err(Error::Config { field: "engine".into(), reason });
            }
        })
    }
}

/// Grids of at most this many points are never large: any p×p factorization is a matter of a second.
const SMALL: usize = 2000;

/// The largest rank that is factorized: 18 MB, a tenth of a second.
const LARGEST_RANK: usize = 1500;

/// The most multiply-adds of a sparse factorization that is chosen unasked: some ten seconds.
const LARGEST_FACTORIZATION: f64 = 5e10;

/// A posterior on one large grid.
#[derive(Debug, Clone)]
pub enum LargePosterior {
    /// By conjugate gradients.
    Krylov(Box<KrylovPosterior>),
    /// By a sparse factorization.
    Sparse(Box<SparsePosterior>),
}

impl LargePosterior {
    /// The posterior by the engine that fits, or `None` where a p×p factorization does. `before` is where an
    /// iteration starts, if it is of the same grid.
    pub fn new(
        engine: &Engine,
        stats: &Stats,
        kernels: &[Kernel],
        noise: f64,
        rank_tolerance: f64,
        before: Option<&Self>,
    ) -> Result<Option<Self>> {
        let sparse = || Ok(Some(Self::Sparse(Box::new(SparsePosterior::new(stats, &kernels[0], noise)?))));
        let krylov = |accuracy: &Accuracy| {
            let posterior = match before {
                Some(Self::Krylov(before)) => before.warm(stats, &kernels[0], noise)?,
                _ => KrylovPosterior::new(stats, &kernels[0], noise, accuracy)?,
            };
            Ok(Some(Self::Krylov(Box::new(posterior))))
        };
        length("kernels", stats.lattice().blocks(), kernels.len())?;
        match engine {
            Engine::Dense => Ok(None),
            Engine::Sparse | Engine::Krylov(_) if stats.lattice().points().is_some() => {
                let reason = "inducing points need the dense one";
                Err(Error::Unsupported { operation: "an engine for large grids", reason })
            }
            Engine::Sparse => sparse(),
            Engine::Krylov(accuracy) => krylov(accuracy),
            Engine::Auto => {
                if stats.lattice().len() <= SMALL || stats.stencil().is_err() {
                    return Ok(None);
                }
                let grid = &stats.lattice().grids()[0];
                // The values of Matérn ½ alone are Markov; smoother ones need derivatives beside them, and pay on a
                // line only.
                let roughness =
                    kernels[0].markov_processes().map(|all| all.iter().all(|&(states, _)| states == 1));
                let is_sparse = roughness.is_some_and(|rough| rough || grid.dim() == 1);
                if is_sparse
                    && SparsePosterior::cost(grid, &kernels[0])?.multiply_adds <= LARGEST_FACTORIZATION
                {
                    match sparse() {
                        // Length-scales of very many cells: no digits are left there, and iterations have them.
                        Err(Error::NoConvergence { .. }) => {}
                        result => return result,
                    }
                }
                // On Matérn ½ the rank is the number of points.
                if roughness != Some(true)
                    && Prior::new(stats.lattice(), kernels, rank_tolerance)?.rank() <= LARGEST_RANK
                {
                    return Ok(None);
                }
                krylov(&Accuracy { rank_tolerance, ..Accuracy::default() })
            }
        }
    }

    /// What the engine is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Krylov(_) => "krylov",
            Self::Sparse(_) => "sparse",
        }
    }

    /// The number of coordinates: p, or m where there is no prior root.
    pub fn rank(&self) -> usize {
        match self {
            Self::Krylov(posterior) => posterior.rank(),
            Self::Sparse(posterior) => posterior.mean().len(),
        }
    }

    /// The posterior mean of the grid values.
    pub fn mean(&self) -> &[f64] {
        match self {
            Self::Krylov(posterior) => posterior.mean(),
            Self::Sparse(posterior) => posterior.mean(),
        }
    }

    /// The evidence with its gradient, for the statistics and the kernel that the posterior was made with.
    pub fn evidence(&self, stats: &Stats, kernel: &Kernel) -> Result<Evidence> {
        match self {
            Self::Krylov(posterior) => Ok(posterior.evidence(stats, kernel)?.0),
            Self::Sparse(posterior) => posterior.evidence(stats),
        }
    }

    /// The immutable image on the grid, for predictions in constant time.
    pub fn predictor(&self, stats: &Stats) -> Result<Predictor> {
        match self {
            Self::Krylov(posterior) => Ok(posterior.predictor(stats)?.0),
            Self::Sparse(posterior) => Ok(posterior.predictor()),
        }
    }

    /// The joint latent mean (q) and covariance (q×q, row after row) of q points given row after row: q solves.
    pub fn joint(&self, stats: &Stats, h: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
        match self {
            Self::Krylov(posterior) => posterior.joint(stats, h),
            Self::Sparse(posterior) => {
                let lattice = posterior.lattice();
                let q = h.len() / lattice.dim();
                length("x", q * lattice.dim(), h.len())?;
                let mut points: Vec<Vec<Weights>> = vec![Vec::new(); q];
                for (row, (h, weights)) in h.chunks_exact(lattice.dim()).zip(&mut points).enumerate() {
                    lattice.locate(h, row, weights)?;
                }
                let mean = points.iter().map(|w| lattice.gather(w, posterior.mean())).collect();
                let mut covariance = Vec::with_capacity(q * q);
                for weights in &points {
                    let mut column = vec![0.0; lattice.len()];
                    lattice.scatter(weights, 1.0, &mut column);
                    posterior.solve(&mut column)?;
                    covariance.extend(points.iter().map(|w| lattice.gather(w, &column)));
                }
                Ok((mean, covariance))
            }
        }
    }

    /// A function drawn from the posterior.
    pub fn sample(&self, stats: &Stats, rng: &mut impl rand::Rng) -> Result<FunctionSample> {
        match self {
            Self::Krylov(posterior) => posterior.sample(stats, rng),
            Self::Sparse(posterior) => posterior.sample_with(rng),
        }
    }
}
