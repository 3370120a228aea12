//! The model of an optimizer: a Gaussian process over a box of any number of dimensions, in coordinates [−1, 1].
//!
//! It begins as an exact process (`exact`), which costs little while results are few and sees every detail. Beyond
//! [`OptimizerSettings::exact_until`] results it moves to grids (`grid`), and from then on a result costs the same
//! however many there were. If the grid is too coarse for what the exact process has seen, that stays for as many
//! results again; then the grid becomes finer by closing in on the best point.

mod exact;
mod grid;

use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use self::exact::ExactSurrogate;
use self::grid::{GridPath, GridPosterior, GridSurrogate};
use super::{OptimizerSettings, Surrogate};
use crate::error::{Error, Result};
use crate::exact::{KernelPosterior, PathSample};
use crate::kernel::MAX_DIM;
use crate::learn::{Hyperparameters, Hyperprior, LbfgsB, Rows};
use crate::model::{OnlineGp, TargetScale};
use crate::posterior::Prediction;

/// The noise variance to start from, in units of standardized values.
const FIRST_NOISE: f64 = 0.1;

/// So many rows, at most, tell the hyperparameters that a grid of more begins with.
const FEW_ROWS: usize = 250;

/// A grid that loses more of a result's log evidence than this is too coarse for the function. With noise it loses
/// next to nothing.
const COARSE: f64 = 0.05;

/// A Gaussian process over [−1, 1]^d with the scale of its values, of which large ones are wanted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SurrogateModel(Form);

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Form {
    Exact(Box<ExactSurrogate>),
    Grids(Box<GridSurrogate>),
}

impl SurrogateModel {
    /// A model fitted to the first results. Their `noise` is the variance of each value where that is known,
    /// and 1 where it is learned.
    pub(super) fn new(dim: usize, settings: &OptimizerSettings, rows: &Rows) -> Result<Self> {
        if is_exact(settings, rows) {
            return Ok(Self(Form::Exact(Box::new(ExactSurrogate::new(dim, settings, rows)?))));
        }
        // On one grid hyperparameters are those of an exact process on some of the rows, to a few steps.
        let is_like_exact = rows.len() > FEW_ROWS && dim <= MAX_DIM && can_be_exact(settings);
        let grids = if is_like_exact {
            let every = rows.len().div_ceil(FEW_ROWS);
            let exact = ExactSurrogate::new(dim, settings, &rows.filter(|i| i % every == 0))?;
            GridSurrogate::after(&exact.process().hyperparameters()?, dim, settings, rows)?
        } else {
            GridSurrogate::new(dim, settings, rows)?
        };
        Ok(Self(Form::Grids(Box::new(grids))))
    }

    /// The number of dimensions.
    pub fn dim(&self) -> usize {
        match &self.0 {
            Form::Exact(exact) => exact.process().dim(),
            Form::Grids(grids) => grids.dim(),
        }
    }

    /// Whether the model is an exact process still, without a grid.
    pub fn is_exact(&self) -> bool {
        matches!(self.0, Form::Exact(_))
    }

    /// The number of results that the model has learned.
    pub fn count(&self) -> usize {
        match &self.0 {
            Form::Exact(exact) => exact.process().count(),
            Form::Grids(grids) => grids.process().count() as usize,
        }
    }

    /// Kernels and noise, in units of standardized values.
    pub fn hyperparameters(&self) -> Result<Hyperparameters> {
        match &self.0 {
            Form::Exact(exact) => exact.process().hyperparameters(),
            Form::Grids(grids) => Ok(grids.process().hyperparameters()),
        }
    }

    /// The log marginal likelihood of standardized values.
    pub fn log_evidence(&self) -> Result<f64> {
        match &self.0 {
            Form::Exact(exact) => Ok(exact.process().evidence().value),
            Form::Grids(grids) => Ok(grids.process().evidence()?.value),
        }
    }

    /// The dimensions that each of its kernels reads.
    pub fn blocks(&self) -> Vec<Vec<usize>> {
        match &self.0 {
            Form::Exact(_) => vec![(0..self.dim()).collect()],
            Form::Grids(grids) => grids.blocks().to_vec(),
        }
    }

    /// How values are scaled inside the model at the moment.
    pub fn scale(&self) -> TargetScale {
        match &self.0 {
            Form::Exact(exact) => exact.scale(),
            Form::Grids(grids) => grids.scale(),
        }
    }

    /// The box that the model covers at the moment, a lower and an upper end for each dimension: all of
    /// [−1, 1]^d unless the search is local.
    pub fn covers(&self) -> Vec<(f64, f64)> {
        match &self.0 {
            Form::Exact(_) => vec![(-1.0, 1.0); self.dim()],
            Form::Grids(grids) => grids.covers(),
        }
    }

    /// What the model says about a point that it covers, in the units of the values.
    pub fn predict(&self, x: &[f64]) -> Result<Prediction> {
        match &self.0 {
            Form::Exact(exact) => exact.predict(x),
            Form::Grids(grids) => grids.predict(x),
        }
    }

    /// The places of results that the model covers, row after row.
    pub(super) fn covered(&self, all: &Rows) -> Vec<f64> {
        match &self.0 {
            Form::Exact(_) => all.x.clone(),
            Form::Grids(grids) => grids.covered(all),
        }
    }

    /// The box in which points are proposed.
    pub(super) fn searched(&self) -> Vec<(f64, f64)> {
        match &self.0 {
            Form::Exact(_) => self.covers(),
            Form::Grids(grids) => grids.searched(),
        }
    }

    /// The posterior for joint predictions.
    pub(super) fn posterior(&self) -> Result<SurrogatePosterior> {
        Ok(match &self.0 {
            Form::Exact(exact) => SurrogatePosterior::Exact(exact.posterior()),
            Form::Grids(grids) => SurrogatePosterior::Grids(Box::new(grids.posterior()?)),
        })
    }

    /// A whole function drawn from the posterior.
    pub(super) fn sample(&self, rng: &mut Xoshiro256PlusPlus) -> Result<Path> {
        Ok(match &self.0 {
            Form::Exact(exact) => Path::Exact(exact.sample(rng)?),
            Form::Grids(grids) => Path::Grids(Box::new(grids.sample(rng)?)),
        })
    }

    /// Predicts a value, then learns it, if it lies in the box that the model covers. `all` are the results, this
    /// one included.
    pub(super) fn observe(&mut self, settings: &OptimizerSettings, all: &Rows) -> Result<Option<Prediction>> {
        match &mut self.0 {
            Form::Grids(grids) => grids.observe(settings, all),
            Form::Exact(exact) => {
                let limit = settings.exact_until.saturating_mul(if exact.stays { 2 } else { 1 });
                if all.len() <= limit {
                    return Ok(Some(exact.observe(settings, all)?));
                }
                let dim = exact.process().dim();
                let hyper = exact.process().hyperparameters()?;
                let fitted = GridSurrogate::after(&hyper, dim, settings, all).and_then(|grids| {
                    let lost = lost(exact, &grids)?;
                    // What suits the exact process may not suit a coarse grid, which then needs a fit of its own. On a
                    // grid of most axes that takes seconds: there it waits until the exact process cannot stay.
                    let is_last = dim < MAX_DIM || exact.stays || settings.local.is_some();
                    let is_worse = dim <= MAX_DIM && is_last && lost > COARSE;
                    if is_worse {
                        let own = GridSurrogate::new(dim, settings, all)?;
                        let lost = self::lost(exact, &own)?;
                        Ok((own, lost))
                    } else {
                        Ok((grids, lost))
                    }
                });
                let (mut grids, lost) = match fitted {
                    Ok(fitted) => fitted,
                    // The exact process stays until grids succeed.
                    Err(error) => {
                        let prediction = exact.observe(settings, all)?;
                        exact.failure = Some(error);
                        return Ok(Some(prediction));
                    }
                };
                let is_coarse = settings.local.is_none() && lost > COARSE;
                if is_coarse && !exact.stays {
                    exact.stays = true;
                    return Ok(Some(exact.observe(settings, all)?));
                }
                let prediction = exact.predict(&all.x[all.x.len() - dim..])?;
                if is_coarse {
                    grids.close_in(all);
                }
                *self = Self(Form::Grids(Box::new(grids)));
                Ok(Some(prediction))
            }
        }
    }

    /// What went wrong beside the results since the last call.
    pub(super) fn take_failure(&mut self) -> Option<Error> {
        match &mut self.0 {
            Form::Exact(exact) => exact.failure.take(),
            Form::Grids(grids) => grids.take_failure(),
        }
    }

    /// Fits the hyperparameters to convergence.
    pub(super) fn converge(&mut self, settings: &OptimizerSettings, all: &Rows) -> Result<()> {
        match &mut self.0 {
            Form::Exact(exact) => exact.converge(),
            Form::Grids(grids) => grids.converge(settings, all),
        }
    }
}

/// What a result says less on grids than in the exact process: log evidence a row, in the units of the values.
fn lost(exact: &ExactSurrogate, grids: &GridSurrogate) -> Result<f64> {
    let exact_says = exact.process().evidence().value / exact.process().count() as f64;
    let grids_say = grids.process().evidence()?.value / grids.process().count();
    Ok(exact_says - exact.scale().scale.ln() - (grids_say - grids.scale().scale.ln()))
}

/// Whether the results are few enough for an exact process, and the settings such that it can have them.
fn is_exact(settings: &OptimizerSettings, rows: &Rows) -> bool {
    rows.len() <= settings.exact_until && can_be_exact(settings)
}

/// Whether the settings are such that an exact process can have results.
fn can_be_exact(settings: &OptimizerSettings) -> bool {
    settings.local != Some(true) && ExactSurrogate::can_have(settings.family)
}

/// Mean and deviation of the values.
fn scale_of(rows: &Rows) -> TargetScale {
    let n = rows.len() as f64;
    let shift = rows.y.iter().sum::<f64>() / n;
    let variance = rows.y.iter().map(|y| (y - shift).powi(2)).sum::<f64>() / n;
    TargetScale { shift, scale: if variance > 0.0 { variance.sqrt() } else { 1.0 } }
}

/// A prior in the unit cube and on the whole function, as one in [−1, 1] and on one of several blocks.
fn in_coordinates(name: &str, prior: Hyperprior, blocks: usize) -> Hyperprior {
    match prior {
        // A length in the unit cube is twice as long here.
        Hyperprior::Gamma { shape, rate } if name.contains("lengthscale") => {
            Hyperprior::Gamma { shape, rate: rate / 2.0 }
        }
        Hyperprior::LogNormal { mu, sigma } if name.contains("lengthscale") => {
            Hyperprior::LogNormal { mu: mu + 2f64.ln(), sigma }
        }
        // The variances of all blocks add up to one with the mean that was given. A shape below 1 would draw
        // every block to nothing before the results can speak.
        Hyperprior::Gamma { shape, rate } if name.contains("outputscale") => {
            let own = (shape / blocks as f64).max(1.0);
            Hyperprior::Gamma { shape: own, rate: rate * blocks as f64 * own / shape }
        }
        other => other,
    }
}

/// The optimizer of the first fit, and of one that is asked for.
fn thorough() -> LbfgsB {
    LbfgsB { max_evaluations: 40, relative_tolerance: 1e-6, ..LbfgsB::default() }
}

/// The posterior of a [`SurrogateModel`] over all its dimensions, for joint predictions.
#[derive(Debug, Clone)]
pub(super) enum SurrogatePosterior {
    Exact(KernelPosterior),
    Grids(Box<GridPosterior>),
}

impl SurrogatePosterior {
    /// Takes the mean at a point for granted: its result is pending.
    pub(super) fn assume_mean(&mut self, x: &[f64]) -> Result<()> {
        self.assume(x, f64::INFINITY)
    }

    /// Takes the mean at a point for granted, or `most` if that is less, in units of standardized values.
    pub(super) fn assume(&mut self, x: &[f64], most: f64) -> Result<()> {
        match self {
            Self::Exact(posterior) => {
                let mean = posterior.mean(x)?;
                posterior.condition(x, mean.min(most))
            }
            Self::Grids(posterior) => posterior.assume(x, most),
        }
    }

    /// What criteria ask.
    pub(super) fn surrogate(&self) -> &dyn Surrogate {
        match self {
            Self::Exact(posterior) => posterior,
            Self::Grids(posterior) => posterior.as_ref(),
        }
    }
}

/// A function drawn from the posterior of a [`SurrogateModel`].
pub(super) enum Path {
    Exact(PathSample),
    Grids(Box<GridPath>),
}

impl Path {
    pub(super) fn evaluate(&self, x: &[f64], gradient: Option<&mut [f64]>) -> Result<f64> {
        match (self, gradient) {
            (Self::Exact(path), None) => path.value(x),
            (Self::Exact(path), Some(gradient)) => path.value_and_gradient(x, gradient),
            (Self::Grids(path), gradient) => path.evaluate(x, gradient),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priors_of_a_sum_add_up_to_the_prior_that_was_given() {
        let given = Hyperprior::Gamma { shape: 2.0, rate: 0.15 };
        for blocks in [1, 2, 21] {
            let Hyperprior::Gamma { shape, rate } = in_coordinates("outputscale", given, blocks) else {
                panic!("another family")
            };
            assert!(shape >= 1.0 && (blocks as f64 * shape / rate - 2.0 / 0.15).abs() < 1e-10);
        }
    }
}
