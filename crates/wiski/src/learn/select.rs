//! Which projection to start from, and how long to train it: decided by held-out predictive density on the
//! warm-up rows.
//!
//! A random start makes the outcome a matter of luck, and with few rows for many inputs training overfits.
//! Both are seen in the density that a part of the warm-up rows gives to the rest, so both are chosen by
//! three-fold cross-validation: first the start, with hyperparameters fitted and the projection as it is;
//! then, for the best start, the number of training epochs.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::{HyperSpace, Hyperparameters, LbfgsB, Rows, WarmUp, WarmUpTraining};
use crate::error::Result;
use crate::feature::{FeatureMap, Linear, Moments, Projection, start};
use crate::grid::Lattice;

/// Below this many rows nothing can be held out: the supervised start is taken as it is.
const FEWEST_ROWS: usize = 30;
const FOLDS: usize = 3;

/// Where a projection starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Start {
    /// The candidate with the best held-out density, trained for as long as that improves.
    #[default]
    Best,
    /// The ridge direction and the directions in which the residuals bend; trained to the end.
    Supervised,
    /// The leading principal components; trained to the end.
    Principal,
    /// Uniform random entries, the paper's start; trained to the end. Without training (no epochs, feature
    /// rate 0) it is a fixed random projection.
    Random,
    /// The ridge direction and every column: one block each of an additive model.
    Axes,
    /// As [`Start::Axes`], and blocks for pairs of columns that interact.
    Interactions,
    /// A sum of grids with inducing points beside it.
    Points,
}

/// A projection problem: what the candidates have in common.
#[derive(Debug, Clone)]
pub struct ProjectionSearch {
    /// The warm-up rows.
    pub rows: Rows,
    /// The number of features.
    pub outputs: usize,
    /// The grid that the features live on.
    pub lattice: Lattice,
    /// The hyperparameters to start from.
    pub hyper: Hyperparameters,
    /// How they are learned.
    pub space: HyperSpace,
    /// The prior's eigenvalue cut-off.
    pub tolerance: f64,
    /// How the projection is trained.
    pub training: WarmUpTraining,
    /// The seed of random starts.
    pub seed: u64,
}

/// What was chosen, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The start that was taken.
    pub start: Start,
    /// For how many epochs it was trained.
    pub epochs: usize,
    /// The held-out log density of each start tried, and of the best one after some epochs of training.
    pub scores: Vec<(Start, usize, f64)>,
}

impl ProjectionSearch {
    /// Finds the projection and hyperparameters for the warm-up rows.
    pub fn run(&self, start: Start) -> Result<(WarmUp, Choice)> {
        let mut choice = Choice { start, epochs: self.training.epochs, scores: Vec::new() };
        if start == Start::Best {
            choice.start = Start::Supervised;
            choice.epochs = 0;
            if self.rows.len() >= FEWEST_ROWS {
                self.choose(&mut choice)?;
            }
        }
        let mut warm = self.begin(choice.start, &self.rows)?;
        if start == Start::Best {
            warm.fit_hyperparameters(&quick())?;
        }
        if choice.epochs > 0 {
            warm.train(&self.training, |_, epoch| Ok(epoch < choice.epochs))?;
        }
        Ok((warm, choice))
    }

    /// The candidate projection from the given rows, not trained.
    fn begin(&self, start: Start, rows: &Rows) -> Result<WarmUp> {
        let d = rows.x.len() / rows.len().max(1);
        let projection: Projection = match start {
            Start::Random => {
                start::random(self.outputs, d, &mut Xoshiro256PlusPlus::seed_from_u64(self.seed))?
            }
            Start::Principal => start::principal(&Moments::from_rows(&rows.x, d)?, self.outputs)?,
            Start::Supervised | Start::Best | Start::Axes | Start::Interactions | Start::Points => {
                start::supervised(&rows.x, d, &rows.y, self.outputs, &start::PENALTIES)?
            }
        };
        let map = FeatureMap::from(Linear::new(projection));
        let (lattice, hyper, space) = (self.lattice.clone(), self.hyper.clone(), self.space.clone());
        WarmUp::new(rows.clone(), map, lattice, hyper, space, self.tolerance)
    }

    fn choose(&self, choice: &mut Choice) -> Result<()> {
        let folds: Vec<(Rows, Rows)> = (0..FOLDS)
            .map(|fold| (self.rows.filter(|i| i % FOLDS != fold), self.rows.filter(|i| i % FOLDS == fold)))
            .collect();
        let mut best: Option<(f64, Start, Vec<WarmUp>)> = None;
        for start in [Start::Supervised, Start::Principal, Start::Random] {
            let mut fitted = Vec::with_capacity(FOLDS);
            let mut score = 0.0;
            for (train, held_out) in &folds {
                let mut warm = self.begin(start, train)?;
                warm.fit_hyperparameters(&quick())?;
                score += warm.score(held_out)? / FOLDS as f64;
                fitted.push(warm);
            }
            choice.scores.push((start, 0, score));
            if best.as_ref().is_none_or(|b| score > b.0) {
                best = Some((score, start, fitted));
            }
        }
        let Some((mut best_score, start, fitted)) = best else { return Ok(()) };
        choice.start = start;

        // How the held-out density of the best start moves with training, averaged over the folds.
        let checkpoints: Vec<usize> =
            [1, 2, 4, 8].iter().map(|share| self.training.epochs * share / 8).filter(|&e| e > 0).collect();
        let mut means = vec![0.0; checkpoints.len()];
        for (mut warm, (_, held_out)) in fitted.into_iter().zip(&folds) {
            warm.train(&self.training, |warm, epoch| {
                if let Some(at) = checkpoints.iter().position(|&c| c == epoch) {
                    means[at] += warm.score(held_out)? / FOLDS as f64;
                }
                Ok(true)
            })?;
        }
        for (&epochs, &score) in checkpoints.iter().zip(&means) {
            choice.scores.push((start, epochs, score));
            if score > best_score {
                best_score = score;
                choice.epochs = epochs;
            }
        }
        Ok(())
    }
}

/// Hyperparameters near enough to compare candidates.
fn quick() -> LbfgsB {
    LbfgsB { max_evaluations: 20, relative_tolerance: 1e-4, ..LbfgsB::default() }
}
