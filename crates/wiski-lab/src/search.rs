//! The methods of an optimization, all searched in the same way: the same criterion, climbed from the same starts, with
//! the same priors and the same refits. They differ in the model alone.
//!
//! Points live in [−1, 1]^d, and large values are wanted.

use crate::baselines::{
    Covariance, Encoder, Hyper, KernelPosterior, Likelihood, Rates, StreamingSvgp, SvgpOptions, Training,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::decide::{Acquisition, Dimension, Goal, Maximizer, Optimizer, OptimizerSettings, Space, Strategy};
use wiski::internals::decide::{Incumbent, Proposer};
use wiski::{Family, OnlineGp, Result};

/// A method of the paper's optimization experiments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Searcher {
    /// wiski's optimizer on a grid from the first result on, as in the paper.
    Wiski {
        /// Grid points per axis.
        grid: usize,
    },
    /// wiski's optimizer, closing in on the best point with an ever finer grid.
    Local {
        /// Grid points per axis.
        grid: usize,
    },
    /// wiski's optimizer on an exact process for good; as it comes, it does so up to 500 results.
    Exact,
    /// The streaming variational process.
    Svgp {
        /// The number of inducing points.
        inducing: usize,
        /// Adam steps for each batch of results.
        steps: usize,
    },
    /// wiski's optimizer as it comes: an exact process for the first 500 results, then grids, closing in where they are
    /// too coarse.
    Product,
    /// Uniform points, for the scale of it all.
    Random,
}

impl Searcher {
    /// The name in figures and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wiski { .. } => "WISKI",
            Self::Local { .. } => "WISKI, local",
            Self::Exact => "Exact (Cholesky)",
            Self::Svgp { .. } => "O-SVGP",
            Self::Product => "wiski as it comes",
            Self::Random => "Random",
        }
    }

    /// The power of the number of results with which the time of a step grows.
    pub fn growth(self) -> f64 {
        if self == Self::Exact { 2.0 } else { 0.0 }
    }

    /// A name that can stand in a file name and tells settings apart.
    pub fn key(self) -> String {
        let text = format!("{self:?}").to_lowercase();
        text.chars().filter(char::is_ascii_alphanumeric).collect()
    }

    /// All that decides about its course, for the cache of finished trials.
    pub fn setup(self) -> String {
        match self {
            Self::Svgp { .. } => format!("{self:?} {SPARSE_TRAINING:?}"),
            _ => format!("{self:?}"),
        }
    }

    /// A search that has the results of the first points.
    pub fn start(self, dim: usize, rules: Rules, x: &[f64], y: &[f64], seed: u64) -> Result<Box<dyn Search>> {
        Ok(match self {
            Self::Wiski { .. } | Self::Local { .. } | Self::Exact | Self::Product => {
                let space =
                    Space::new((0..dim).map(|k| Dimension::linear(format!("x{k}"), -1.0, 1.0)).collect())?;
                let settings = OptimizerSettings {
                    goal: Goal::Maximize,
                    strategy: Strategy::Joint(rules.acquisition),
                    initial: Some(y.len()),
                    samples: rules.samples,
                    maximizer: rules.maximizer,
                    seed,
                    ..OptimizerSettings::default()
                };
                let settings = match self {
                    Self::Wiski { grid } => {
                        OptimizerSettings { exact_until: 0, grid: Some(grid), ..settings }
                    }
                    Self::Local { grid } => {
                        OptimizerSettings { local: Some(true), grid: Some(grid), ..settings }
                    }
                    Self::Product => settings,
                    _ => OptimizerSettings { exact_until: usize::MAX, ..settings },
                };
                let mut search = GridSearch(Optimizer::new(space, settings)?);
                search.learn(x, y)?;
                Box::new(search)
            }
            Self::Svgp { inducing, steps } => {
                let options = SvgpOptions { inducing, steps, seed, ..SvgpOptions::default() };
                Box::new(SparseSearch::new(dim, rules, options, x, y)?)
            }
            Self::Random => Box::new(RandomSearch { dim }),
        })
    }
}

/// How points are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// The criterion.
    pub acquisition: Acquisition,
    /// Samples for criteria of several points.
    pub samples: usize,
    /// How hard it is maximized.
    pub maximizer: Maximizer,
}

impl Rules {
    fn propose(&self, model: &KernelPosterior, tried: &[f64], q: usize, seed: u64) -> Result<Vec<f64>> {
        let proposer =
            Proposer { acquisition: self.acquisition, samples: self.samples, maximizer: self.maximizer };
        proposer.propose(model, &Incumbent::among(model, tried)?, q, seed)
    }
}

/// A search under way.
pub trait Search {
    /// The next q points, row after row.
    fn propose(&mut self, q: usize, seed: u64) -> Result<Vec<f64>>;

    /// Learns what was found at points.
    fn learn(&mut self, x: &[f64], y: &[f64]) -> Result<()>;

    /// The tried point with the best mean; `None` for a search without a model.
    fn recommend(&mut self) -> Result<Option<Vec<f64>>>;
}

struct GridSearch(Optimizer);

impl Search for GridSearch {
    fn propose(&mut self, q: usize, _: u64) -> Result<Vec<f64>> {
        Ok(self.0.ask(q)?.concat())
    }

    fn learn(&mut self, x: &[f64], y: &[f64]) -> Result<()> {
        let d = self.0.space().dim();
        x.chunks_exact(d).zip(y).try_for_each(|(x, &y)| self.0.tell(x, y))
    }

    fn recommend(&mut self) -> Result<Option<Vec<f64>>> {
        Ok(self.0.recommend()?.map(|best| best.0))
    }
}

/// Mean and deviation.
fn scale_of(y: &[f64]) -> (f64, f64) {
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / y.len() as f64;
    (mean, if variance > 0.0 { variance.sqrt() } else { 1.0 })
}

/// How O-SVGP learns: at rates with which ten steps a batch move q(v) by up to half a deviation. At those of the
/// regression experiments, a hundred times smaller, it hardly leaves the prior within a search.
const SPARSE_TRAINING: Training = Training {
    epochs: 200,
    batch: Rates { theta: 0.05, variational: 0.05, features: 0.0 },
    online: Rates { theta: 0.005, variational: 0.05, features: 0.0 },
    spacing: 0.0,
};

/// O-SVGP: Adam steps on each batch. What it has learned is tied to the unit of its targets, so that this is fixed by
/// the first results.
struct SparseSearch {
    model: StreamingSvgp,
    rules: Rules,
    x: Vec<f64>,
    scale: (f64, f64),
}

impl SparseSearch {
    fn new(dim: usize, rules: Rules, options: SvgpOptions, x: &[f64], y: &[f64]) -> Result<Self> {
        let hyper = Hyper::new(Covariance::new(Family::Matern52, dim)?);
        let encoder = Encoder::identity(dim);
        let mut model = StreamingSvgp::new(encoder, hyper, SPARSE_TRAINING, Likelihood::Gaussian, options);
        let scale = scale_of(y);
        let scaled: Vec<f64> = y.iter().map(|y| (y - scale.0) / scale.1).collect();
        model.warm_up(x, &scaled)?;
        Ok(Self { model, rules, x: x.to_vec(), scale })
    }
}

impl Search for SparseSearch {
    fn propose(&mut self, q: usize, seed: u64) -> Result<Vec<f64>> {
        self.rules.propose(&self.model.surrogate()?, &self.x, q, seed)
    }

    fn learn(&mut self, x: &[f64], y: &[f64]) -> Result<()> {
        let scaled: Vec<f64> = y.iter().map(|y| (y - self.scale.0) / self.scale.1).collect();
        self.model.observe_batch(x, &scaled, None)?;
        self.x.extend_from_slice(x);
        Ok(())
    }

    fn recommend(&mut self) -> Result<Option<Vec<f64>>> {
        Ok(Incumbent::among(&self.model.surrogate()?, &self.x)?.place.map(|b| b.0))
    }
}

struct RandomSearch {
    dim: usize,
}

impl Search for RandomSearch {
    fn propose(&mut self, q: usize, seed: u64) -> Result<Vec<f64>> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xA11);
        Ok((0..q * self.dim).map(|_| rng.random_range(-1.0..=1.0)).collect())
    }

    fn learn(&mut self, _: &[f64], _: &[f64]) -> Result<()> {
        Ok(())
    }

    fn recommend(&mut self) -> Result<Option<Vec<f64>>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A smooth hill whose top every model must find within few points; random points do not.
    #[test]
    fn every_model_climbs_the_same_hill() {
        let hill = |x: &[f64]| -((x[0] - 0.3).powi(2) + (x[1] + 0.5).powi(2));
        let first = [0.9, 0.9, -0.9, 0.8, 0.7, -0.9, -0.8, -0.8, 0.0, 0.2];
        let rules = Rules {
            acquisition: Acquisition::UpperConfidence { beta: 1.0 },
            samples: 32,
            maximizer: Maximizer { raw_samples: 64, restarts: 2, iterations: 40 },
        };
        // O-SVGP learns slowly, even with two hundred steps a batch.
        let methods = [
            (Searcher::Wiski { grid: 12 }, -0.01),
            (Searcher::Local { grid: 12 }, -0.01),
            (Searcher::Exact, -0.01),
            (Searcher::Svgp { inducing: 20, steps: 200 }, -0.05),
            (Searcher::Random, f64::NEG_INFINITY),
        ];
        for (method, enough) in methods {
            let y: Vec<f64> = first.chunks_exact(2).map(hill).collect();
            let mut search = method.start(2, rules, &first, &y, 1).unwrap();
            let mut best = f64::NEG_INFINITY;
            for step in 0..12 {
                let x = search.propose(2, step).unwrap();
                assert_eq!(x.len(), 4);
                let y: Vec<f64> = x.chunks_exact(2).map(hill).collect();
                best = y.iter().fold(best, |b, y| b.max(*y));
                search.learn(&x, &y).unwrap();
            }
            assert!(best > enough, "{method:?}: {best}");
            assert_eq!(search.recommend().unwrap().is_some(), method != Searcher::Random);
        }
    }
}
