//! What a model believes: a posterior, by whichever engine the size of its grid asks for.
//!
//! On small grids the posterior is conditioned on every row. On large grids a row goes into the statistics at once,
//! and the posterior follows when so many rows have come that they may matter, or when a prediction is asked for: what a
//! stream predicts for its rows on the way lags behind by up to [`Large::may_lag`] of them.

use std::sync::{Arc, OnceLock};

use super::WiskiBuilder;
use crate::error::{Error, Result};
use crate::evidence::{self, Evidence};
use crate::kernel::Kernel;
use crate::large::LargePosterior;
use crate::learn::Hyperparameters;
use crate::pool::Pool;
use crate::posterior::{Posterior, Predictor};
use crate::prior::Prior;
use crate::stats::Stats;

/// The posterior of a model.
#[derive(Debug, Clone)]
pub(super) enum Belief {
    Dense(Posterior),
    Large(Large),
}

/// A posterior on a large grid.
#[derive(Debug, Clone)]
pub(super) struct Large {
    pub(super) posterior: LargePosterior,
    /// Made when it is first asked for: variances cost as much as several refits.
    image: OnceLock<Result<Arc<Predictor>>>,
    /// Rows that the statistics have and the posterior has not.
    behind: usize,
}

impl Large {
    fn new(posterior: LargePosterior) -> Self {
        Self { posterior, image: OnceLock::new(), behind: 0 }
    }

    /// The image for predictions, of the statistics that the posterior was made from.
    pub(super) fn image(&self, stats: &Stats) -> Result<Arc<Predictor>> {
        self.image.get_or_init(|| self.posterior.predictor(stats).map(Arc::new)).clone()
    }

    /// Whether the posterior has all rows that the statistics have.
    pub(super) fn is_current(&self) -> bool {
        self.behind == 0
    }

    /// How many rows may be missing from the posterior of a stream of n: a quarter of the stream, so that the work
    /// for all posteriors along it is a few times that of the last.
    fn may_lag(count: f64) -> usize {
        ((count / 4.0) as usize).max(16)
    }
}

impl Belief {
    /// The posterior of the statistics, by the engine that the settings ask for.
    pub(super) fn new(
        settings: &WiskiBuilder,
        stats: &Stats,
        kernels: &[Kernel],
        noise: f64,
        before: Option<&Self>,
        pool: &mut Pool,
    ) -> Result<Self> {
        let large = match before {
            Some(Self::Large(large)) => Some(&large.posterior),
            _ => None,
        };
        let tolerance = settings.rank_tolerance;
        if let Some(posterior) =
            LargePosterior::new(&settings.engine, stats, kernels, noise, tolerance, large)?
        {
            return Ok(Self::Large(Large::new(posterior)));
        }
        let prior = Arc::new(Prior::new(stats.lattice(), kernels, tolerance)?);
        Ok(Self::Dense(Posterior::with_pool(prior, stats, noise, pool)?))
    }

    /// The same hyperparameters, other statistics on the same grids.
    pub(super) fn of_stats(
        &self,
        settings: &WiskiBuilder,
        stats: &Stats,
        kernels: &[Kernel],
        pool: &mut Pool,
    ) -> Result<Self> {
        match self {
            Self::Dense(posterior) if posterior.lattice() == stats.lattice() => {
                let prior = posterior.prior().clone();
                Ok(Self::Dense(Posterior::with_pool(prior, stats, settings.noise, pool)?))
            }
            _ => Self::new(settings, stats, kernels, settings.noise, Some(self), pool),
        }
    }

    /// The evidence with its gradient at any hyperparameters.
    pub(super) fn evidence_at(
        &self,
        settings: &WiskiBuilder,
        stats: &Stats,
        hyper: &Hyperparameters,
        pool: &mut Pool,
    ) -> Result<(Evidence, Self)> {
        let large = match self {
            Self::Large(large) => Some(&large.posterior),
            Self::Dense(_) => None,
        };
        let (noise, tolerance) = (hyper.noise, settings.rank_tolerance);
        if let Some(posterior) =
            LargePosterior::new(&settings.engine, stats, &hyper.kernels, noise, tolerance, large)?
        {
            let evidence = posterior.evidence(stats, &hyper.kernels[0])?;
            return Ok((evidence, Self::Large(Large::new(posterior))));
        }
        let (evidence, posterior) = Evidence::with_pool(stats, &hyper.kernels, noise, tolerance, pool)?;
        Ok((evidence, Self::Dense(posterior)))
    }

    /// log p(y), computed anew from the statistics.
    pub(super) fn log_evidence(
        &self,
        settings: &WiskiBuilder,
        stats: &Stats,
        kernels: &[Kernel],
    ) -> Result<f64> {
        let pool = &mut Pool::default();
        match self {
            Self::Dense(posterior) => {
                let (prior, whitened) = (posterior.prior().clone(), stats.whiten(posterior.prior(), pool));
                let posterior = Posterior::from_whitened(prior, &whitened, settings.noise, pool)?;
                Ok(evidence::value(stats, &whitened, &posterior))
            }
            Self::Large(_) => match self.of_stats(settings, stats, kernels, pool)? {
                Self::Large(Large { posterior, .. }) => Ok(posterior.evidence(stats, &kernels[0])?.value),
                dense @ Self::Dense(_) => dense.log_evidence(settings, stats, kernels),
            },
        }
    }

    /// The posterior in p coordinates, where there is one.
    pub(super) fn dense(&self) -> Result<&Posterior> {
        match self {
            Self::Dense(posterior) => Ok(posterior),
            Self::Large(_) => Err(LARGE),
        }
    }

    /// The number of coordinates.
    pub(super) fn rank(&self) -> usize {
        match self {
            Self::Dense(posterior) => posterior.rank(),
            Self::Large(large) => large.posterior.rank(),
        }
    }

    /// Notes that the statistics have one more row; true if the posterior should follow.
    pub(super) fn falls_behind(&mut self, count: f64) -> bool {
        match self {
            Self::Dense(_) => false,
            Self::Large(large) => {
                large.behind += 1;
                large.behind > Large::may_lag(count)
            }
        }
    }

    /// Whether the statistics have rows that the posterior has not.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self, Self::Large(large) if !large.is_current())
    }

    pub(super) fn recycle(self, pool: &mut Pool) {
        if let Self::Dense(posterior) = self {
            posterior.recycle(pool);
        }
    }
}

/// Why an operation is refused that works in p coordinates.
const LARGE: Error = Error::Unsupported {
    operation: "this operation",
    reason: "the grid is large, and its engine keeps no factor in the coordinates of the prior",
};
