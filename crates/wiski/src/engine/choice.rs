//! Which engine computes a posterior.

use std::sync::Arc;

use super::{Engine, Given, GridPosterior};
use crate::error::{Error, Result, length};
use crate::evidence::Evidence;
use crate::large::{Accuracy, KrylovPosterior, SparsePosterior};
use crate::pool::Pool;
use crate::posterior::Posterior;
use crate::prior::Prior;

/// Grids of at most this many points are never large: any p×p factorization is a matter of a second.
const SMALL: usize = 2000;

/// The largest rank that is factorized: 18 MB, a tenth of a second.
const LARGEST_RANK: usize = 1500;

/// The most multiply-adds of a sparse factorization that is chosen unasked: some ten seconds.
const LARGEST_FACTORIZATION: f64 = 5e10;

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
                let (evidence, posterior) =
                    Evidence::of_prior(given.stats, given.kernels, Arc::new(prior), given.noise, pool)?;
                Ok((evidence, Box::new(posterior)))
            }
        }
    }

    fn choose(&self, given: &Given, before: Option<&dyn GridPosterior>) -> Result<Chosen> {
        let Given { stats, kernels, noise, rank_tolerance } = *given;
        length("kernels", stats.lattice().blocks(), kernels.len())?;
        let dense = || Ok(Chosen::Dense(Prior::new(stats.lattice(), kernels, rank_tolerance)?));
        let sparse = || Ok(Chosen::InSteps(Box::new(SparsePosterior::new(stats, &kernels[0], noise)?)));
        let krylov = |accuracy: &Accuracy| {
            let start = before.and_then(|before| before.start());
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
                if stats.lattice().len() <= SMALL || stats.stencil().is_err() {
                    return dense();
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
                if roughness != Some(true) {
                    let prior = Prior::new(stats.lattice(), kernels, rank_tolerance)?;
                    if prior.rank() <= LARGEST_RANK {
                        return Ok(Chosen::Dense(prior));
                    }
                }
                krylov(&Accuracy { rank_tolerance, ..Accuracy::default() })
            }
        }
    }
}
