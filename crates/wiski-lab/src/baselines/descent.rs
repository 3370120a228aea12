//! Learning by Adam, as the paper does it for every method: full-batch epochs with annealed rates on the
//! warm-up rows, then one step (or a few) for each new observation.

use crate::watch;
use wiski::Result;
use wiski::internals::learn::{Adam, Annealing};

/// The learning rates of the groups of unknowns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// θ: kernel and noise.
    pub theta: f64,
    /// Inducing points and the variational distribution.
    pub variational: f64,
    /// φ.
    pub features: f64,
}

/// Multiples of the paper's rates along the stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Of those of kernel, noise and features.
    pub rate: f64,
    /// Of those of everything variational.
    pub variational: f64,
}

impl Pace {
    /// The paper's rates.
    pub const PAPER: Self = Self { rate: 1.0, variational: 1.0 };
}

/// How a baseline learns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Training {
    /// Full-batch steps on the warm-up rows.
    pub epochs: usize,
    /// Their rates.
    pub batch: Rates,
    /// The rates along the stream.
    pub online: Rates,
    /// The number of rows, as a share of those learned, between two steps along the stream: 0 for a step after
    /// every row, infinite for none.
    pub spacing: f64,
}

/// The rate to which the warm-up anneals.
const END_RATE: f64 = 1e-4;

impl Training {
    /// The paper's table of rates: η on the warm-up, a tenth of it along the stream, and a tenth of either for φ. Its
    /// implementation also has a tenth for everything variational.
    pub fn paper(rate: f64) -> Self {
        let rates = |theta: f64| Rates { theta, variational: theta / 10.0, features: theta / 10.0 };
        Self { epochs: 200, batch: rates(rate), online: rates(rate / 10.0), spacing: 0.0 }
    }

    /// The same with other rates along the stream: multiples of those of kernel, noise and features, and of those of
    /// everything variational.
    #[must_use]
    pub fn paced(self, pace: Pace) -> Self {
        let Rates { theta, variational, features } = self.online;
        let online = Rates {
            theta: pace.rate * theta,
            variational: pace.variational * variational,
            features: pace.rate * features,
        };
        Self { online, ..self }
    }

    /// No learning at all: hyperparameters stay as given.
    pub fn none() -> Self {
        let rates = Rates { theta: 0.0, variational: 0.0, features: 0.0 };
        Self { epochs: 0, batch: rates, online: rates, spacing: f64::INFINITY }
    }

    /// Whether a step is due when `n` rows are learned and the last step was at `last`.
    pub fn is_due(&self, n: usize, last: usize) -> bool {
        n as f64 - last as f64 > self.spacing * last as f64
    }
}

/// A model with unknowns, an objective to be minimized and its gradient.
pub(super) trait Descent {
    /// The unknowns: kernel and noise first, then what is variational, the feature map last.
    fn position(&self) -> Result<Vec<f64>>;

    /// Moves the unknowns.
    fn move_to(&mut self, position: &[f64]) -> Result<()>;

    /// How many of the unknowns belong to kernel and noise, and how many to the feature map.
    fn counts(&self) -> (usize, usize);

    /// The objective and its gradient at the present position.
    fn evaluate(&mut self, gradient: &mut [f64]) -> Result<f64>;

    /// Adam for the unknowns with the given rates.
    fn adam(&self, rates: Rates) -> Result<Adam> {
        let dim = self.position()?.len();
        let (theta, features) = self.counts();
        let split = dim - features;
        Adam::with_groups(&[
            (0..theta, rates.theta),
            (theta..split, rates.variational),
            (split..dim, rates.features),
        ])
    }

    /// One step; returns the objective before it.
    fn descend(&mut self, adam: &mut Adam) -> Result<f64> {
        let mut x = self.position()?;
        let mut gradient = vec![0.0; x.len()];
        let value = self.evaluate(&mut gradient)?;
        adam.step(&mut x, &gradient)?;
        self.move_to(&x)?;
        Ok(value)
    }

    /// The epochs of the warm-up.
    fn pretrain(&mut self, training: &Training) -> Result<()> {
        if training.epochs == 0 {
            return Ok(());
        }
        let annealing = Annealing { end: END_RATE, steps: training.epochs };
        let mut adam = self.adam(training.batch)?.with_annealing(annealing)?;
        (0..training.epochs).try_for_each(|epoch| {
            watch::epoch(epoch, training.epochs)?;
            self.descend(&mut adam).map(|_| ())
        })
    }
}
