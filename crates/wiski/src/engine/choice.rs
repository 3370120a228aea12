//! Which engine computes a posterior.

use std::sync::Arc;

use super::{Engine, Given, GridPosterior};
use crate::error::{Error, Result, length};
use crate::evidence::Evidence;
use crate::grid::Grid;
use crate::large::{Accuracy, KrylovPosterior, SparsePosterior};
use crate::pool::Pool;
use crate::posterior::Posterior;
use crate::prior::Prior;

/// Grids of at most this many points are never large: any p×p factorization is a matter of a second.
const SMALL: usize = 2000;

/// The same where every row counts: it costs p² by a factorization.
const SMALL_FRUGAL: usize = 700;

/// On a line, where a Matérn kernel has the rank of its grid and a sparse factorization costs next to nothing.
const SMALL_LINE: usize = 400;

/// From these ranks on a smaller one is looked for: where speed counts for every row, and where only the cube of the
/// rank would be felt.
const FEW: usize = 32;
const MANY: usize = 1000;

/// Ranks that are always factorized: 18 MB, a tenth of a second.
const SMALL_RANK: usize = 1500;

/// The largest rank that is factorized unasked: 128 MB for each of a few matrices.
const LARGEST_RANK: usize = 4000;

/// The most multiply-adds of a sparse factorization that is chosen unasked: some ten seconds.
const LARGEST_FACTORIZATION: f64 = 5e10;

/// Evaluations of the evidence for each image that is made, about as many as a refit has.
const EVALUATIONS: f64 = 10.0;

/// Iterations of a solve, and right-hand sides of an evidence, by conjugate gradients.
const ITERATIONS: f64 = 30.0;
const RIGHT_HAND_SIDES: f64 = 17.0;

/// The tolerances of solves for the mean and for random vectors on the way of a search. The evidence errs by the square of
/// the first, its gradient by some 10⁻³ of itself; eight random vectors leave more.
const ROUGH: (f64, f64) = (1e-5, 1e-3);

/// What the choice ended with.
enum Chosen {
    /// The posterior of an engine that follows in steps.
    InSteps(Box<dyn GridPosterior>),
    /// The prior of the dense engine.
    Dense(Prior),
}

impl Engine {
    /// The posterior of the statistics. `before` is where an iteration starts, if it is of the same grid.
    pub fn posterior(
        &self,
        given: &Given,
        before: Option<&dyn GridPosterior>,
        pool: &mut Pool,
    ) -> Result<Box<dyn GridPosterior>> {
        match self.choose(given, before)? {
            Chosen::InSteps(posterior) => Ok(posterior),
            Chosen::Dense(prior) => {
                Ok(Box::new(Posterior::with_pool(Arc::new(prior), given.stats, given.noise, pool)?))
            }
        }
    }

    /// The posterior, and the evidence with its gradient.
    pub fn evidence(
        &self,
        given: &Given,
        before: Option<&dyn GridPosterior>,
        pool: &mut Pool,
    ) -> Result<(Evidence, Box<dyn GridPosterior>)> {
        match self.choose(given, before)? {
            Chosen::InSteps(posterior) => Ok((posterior.evidence(given.stats, given.kernels)?, posterior)),
            Chosen::Dense(prior) => {
                let (stats, kernels, prior) = (given.stats, given.kernels, Arc::new(prior));
                let (evidence, posterior) = match given.prepared {
                    Some(prepared) => {
                        Evidence::of_prepared((stats, prepared), kernels, prior, given.noise, pool)?
                    }
                    None => Evidence::of_prior(stats, kernels, prior, given.noise, pool)?,
                };
                Ok((evidence, Box::new(posterior)))
            }
        }
    }

    /// The prior of the dense engine, with the directions that the data can tell; on grids that are not small, unless
    /// this engine was asked for, without some that they hardly can.
    pub(crate) fn prior(&self, given: &Given) -> Result<Prior> {
        let prior = Prior::new(given.stats.lattice(), given.kernels, given.rank_tolerance)?;
        let is_large = given.stats.lattice().len() > SMALL;
        let enough = match self {
            Self::Auto if given.is_frugal => Some(FEW),
            Self::Auto if is_large => Some(MANY),
            _ => None,
        };
        Ok(prior.adapted(|| given.stats.total_weight() / given.noise, enough))
    }

    fn choose(&self, given: &Given, before: Option<&dyn GridPosterior>) -> Result<Chosen> {
        let Given { stats, kernels, noise, rank_tolerance, .. } = *given;
        length("kernels", stats.lattice().blocks(), kernels.len())?;
        let dense = || Ok(Chosen::Dense(self.prior(given)?));
        let sparse = || Ok(Chosen::InSteps(Box::new(SparsePosterior::new(stats, &kernels[0], noise)?)));
        let krylov = |accuracy: &Accuracy| {
            let start = before.and_then(|before| before.iterated()).map(KrylovPosterior::alpha);
            let posterior = KrylovPosterior::starting_from(stats, &kernels[0], noise, accuracy, start)?;
            Ok(Chosen::InSteps(Box::new(posterior)))
        };
        match self {
            Self::Dense => dense(),
            Self::Sparse | Self::Krylov(_) if stats.lattice().points().is_some() => {
                let reason = "inducing points need the dense one";
                Err(Error::Unsupported { operation: "an engine for large grids", reason })
            }
            Self::Sparse => sparse(),
            Self::Krylov(accuracy) => krylov(accuracy),
            Self::Auto => {
                if stats.lattice().len() <= SMALL_LINE || stats.stencil().is_err() {
                    return dense();
                }
                let grid = &stats.lattice().grids()[0];
                let is_chain = grid.dim() == 1 && kernels[0].markov_processes().is_some();
                let small = if given.is_frugal { SMALL_FRUGAL } else { SMALL };
                if stats.lattice().len() <= small && !is_chain {
                    return dense();
                }
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
                if roughness != Some(true) {
                    let prior = self.prior(given)?;
                    let is_cheap = if given.is_frugal {
                        prior.rank() <= small
                    } else {
                        is_dense_cheaper(grid, prior.rank())
                    };
                    if is_cheap {
                        return Ok(Chosen::Dense(prior));
                    }
                }
                let mut accuracy = Accuracy { rank_tolerance, ..Accuracy::default() };
                if given.is_rough {
                    (accuracy.tolerance, accuracy.probe_tolerance) = ROUGH;
                }
                krylov(&accuracy)
            }
        }
    }
}

/// Whether a refit and an image for predictions take fewer multiply-adds by a factorization of rank p than by conjugate
/// gradients. Those solve for 8^d spikes to get the image, which is why four axes are nothing for them.
fn is_dense_cheaper(grid: &Grid, p: usize) -> bool {
    if p <= SMALL_RANK || p > LARGEST_RANK {
        return p <= SMALL_RANK;
    }
    let (m, p, d) = (grid.len() as f64, p as f64, grid.dim() as i32);
    let axes: f64 = grid.axes().iter().map(|axis| axis.points() as f64).sum();
    let stencil = 7f64.powi(d).min(m);
    let dense = EVALUATIONS * (p.powi(3) + (2.0 * m * m * axes).min(stencil * m * p)) + stencil * m * p;
    let iteration = m * (2.0 * axes + stencil);
    let krylov = ITERATIONS * iteration * (EVALUATIONS * RIGHT_HAND_SIDES + 8f64.powi(d));
    dense <= krylov
}
