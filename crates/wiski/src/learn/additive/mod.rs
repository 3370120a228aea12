//! Which sum of small grids suits many inputs: f(x) = Σ_j f_j(h_j(x)), chosen on rows in memory.
//!
//! The search starts from what needs no learning, one block for the ridge direction and one for every column,
//! and asks on held-out rows whether more is worth it:
//!
//! 1. **Interactions.** Two-dimensional blocks over pairs of columns, found greedily: the residuals r of the
//!    additive fit are given to a Gaussian process on each pair alone, and the pair with the largest gain of
//!    evidence, log p(r | pair) − log p(r | noise), is taken; its mean is subtracted and the next is sought, up
//!    to a budget on the rank p.
//! 2. **Learning.** All directions follow the gradient of the evidence. With few rows for many inputs they
//!    overfit, and the columns as they are do better; with more they win by far.
//!
//! 3. **Inducing points.** A function of all columns beside the grids, by as many centers as are allowed, learned on the
//!    rows (`inducing`). They stay if held-out rows are likelier with them.
//!
//! Columns whose values recur may have an effect of each value beside (`levels`), which decides first, since all else is
//! then sought on what such effects leave.
//!
//! Blocks that carry next to nothing can be left out at the end. A column of its own kind (periodic, categorical)
//! is a block of its own kind.

mod blocks;
mod classes;
mod inducing;
mod levels;
mod pairs;

use self::blocks::Block;
pub(crate) use self::classes::{ClassTargets, FoundFeatures};
use super::points::LearnedPoints;
use super::{Choice, HyperSpace, Hyperparameters, LbfgsB, Rows, Start, WarmUp, WarmUpTraining};
use crate::error::Result;
use crate::feature::Column;
use crate::threads;

/// Below this many rows nothing can be held out: the columns are taken as they are.
const FEWEST_ROWS: usize = 60;
/// From this many rows on one part held out says enough; below, three parts take turns.
const ONE_FOLD_ROWS: usize = 600;
/// Training goes on while twice as many epochs gain more than this much log density a row.
const WORTH_MORE_TRAINING: f64 = 2e-3;
/// Where training is looked at and may end, in eighths of the epochs over which the rate is annealed. The second half
/// moves directions little: on the elevators it takes as long as the first and gains .002 of the log density.
const TRAINED_EIGHTHS: [usize; 3] = [1, 2, 4];
/// Directions are trained on at most this many rows.
const TRAINED_ROWS: usize = 3072;
/// Blocks with a smaller share of the explained variance are left out, if that is also less than this share of the noise.
const SMALLEST_SHARE: f64 = 1e-3;
const SMALLEST_OF_NOISE: f64 = 0.01;

/// A search for blocks on rows in memory.
#[derive(Clone, Copy)]
pub struct AdditiveSearch<'a> {
    /// The rows, scaled.
    pub rows: &'a Rows,
    /// What each column means.
    pub columns: &'a [Column],
    /// How many of the columns, the last ones, hold levels of others: recurring values that have effects of their own.
    pub recurring: usize,
    /// The number of directions through the numeric columns, the ridge direction and the columns themselves
    /// included; random ones fill up.
    pub directions: usize,
    /// Grid points of a one-dimensional block.
    pub points: usize,
    /// Inducing points that may stand beside the grids; 0 for none.
    pub inducing: usize,
    /// Interactions are added while the rank stays within this.
    pub rank_budget: usize,
    /// Whether blocks that carry next to nothing are left out.
    pub prune: bool,
    /// The noise variance to start from.
    pub noise: f64,
    /// How given hyperparameters are learned.
    pub space: &'a (dyn Fn(&Hyperparameters) -> Result<HyperSpace> + Sync),
    /// The prior's eigenvalue cut-off.
    pub tolerance: f64,
    /// How directions are trained.
    pub training: WarmUpTraining,
    /// The seed of random directions.
    pub seed: u64,
}

/// A model on each fold, and the log densities of all held-out rows.
#[derive(Clone, Default)]
struct Candidate {
    fits: Vec<WarmUp>,
    densities: Vec<f64>,
}

impl Candidate {
    fn push(&mut self, mut warm: WarmUp, held_out: &Rows) -> Result<()> {
        self.densities.extend(warm.densities(held_out)?);
        warm.release();
        self.fits.push(warm);
        Ok(())
    }

    fn score(&self) -> f64 {
        self.densities.iter().sum::<f64>() / self.densities.len().max(1) as f64
    }

    /// Whether this one is better than a simpler one by more than twice the standard error of the difference.
    fn beats(&self, simpler: &Self) -> bool {
        let n = self.densities.len() as f64;
        let mean = self.score() - simpler.score();
        let differences = self.densities.iter().zip(&simpler.densities).map(|(a, b)| a - b - mean);
        let variance = differences.map(|d| d * d).sum::<f64>() / (n - 1.0).max(1.0);
        mean > 2.0 * (variance / n).sqrt()
    }
}

impl AdditiveSearch<'_> {
    /// Whether the noise is a hyperparameter.
    fn learns_noise(&self) -> Result<bool> {
        let any = Hyperparameters { kernels: Vec::new(), noise: self.noise };
        Ok((self.space)(&any)?.learns_noise())
    }

    /// Finds blocks, directions and hyperparameters for the rows.
    pub fn run(&self) -> Result<(WarmUp, Choice)> {
        if self.recurring > 0 { self.run_beside_levels() } else { self.run_smooth() }
    }

    /// The same without effects of single values.
    fn run_smooth(&self) -> Result<(WarmUp, Choice)> {
        let mut choice = Choice { start: Start::Axes, epochs: 0, scores: Vec::new() };
        let n = self.rows.len();
        if n < FEWEST_ROWS {
            return self.plain();
        }
        let (folds, share) = if n < ONE_FOLD_ROWS { (3, 3) } else { (1, 4) };
        let held_out: Vec<Rows> = (0..folds).map(|fold| self.rows.filter(|i| i % share == fold)).collect();
        let mut plain = Candidate::default();
        let mut paired = Candidate::default();
        for (fold, held_out) in held_out.iter().enumerate() {
            let train = self.rows.filter(|i| i % share != fold);
            let mut warm = self.fitted(&self.base(&train)?, &train, None)?;
            let pairs = self.interactions(&mut warm, &train)?;
            let with_pairs = self.extended(&warm, &pairs, &train)?;
            plain.push(warm, held_out)?;
            paired.push(with_pairs, held_out)?;
        }
        choice.scores.extend([(Start::Axes, 0, plain.score()), (Start::Interactions, 0, paired.score())]);
        let mut best = plain.clone();
        if paired.beats(&best) {
            (best, choice.start) = (paired, Start::Interactions);
        }
        // Neither needs what the other finds.
        let (trained, learned) = threads::join(
            threads::available() > 1,
            || self.trained(&best, &held_out),
            || self.points_beside_axes(&plain, share),
        );
        let (mut trained, learned) = (trained?, learned?);
        choice.scores.extend(trained.iter().map(|(epochs, c)| (choice.start, *epochs, c.score())));
        let score = |at: usize| trained[at].1.score();
        let longest = (0..trained.len()).max_by(|&i, &j| score(i).total_cmp(&score(j)));
        if let Some(at) = longest
            && trained[at].1.beats(&best)
        {
            (choice.epochs, best) = trained.swap_remove(at);
        }
        if let Some((axes, learned)) = learned
            && let Some(warm) =
                self.beside_points(&axes, &learned, &best, (&held_out[0], share), &mut choice)?
        {
            return Ok((if self.prune { self.pruned(warm)? } else { warm }, choice));
        }
        let warm = self.on_all_rows(best, &choice)?;
        Ok((if self.prune { self.pruned(warm)? } else { warm }, choice))
    }

    /// Directions learned from those of a candidate, after so many epochs each; the last is not worth more of them.
    fn trained(&self, start: &Candidate, held_out: &[Rows]) -> Result<Vec<(usize, Candidate)>> {
        let epochs = TRAINED_EIGHTHS.iter().map(|share| self.training.epochs * share / 8).filter(|&e| e > 0);
        let mut trained: Vec<(usize, Candidate)> = epochs.map(|e| (e, Candidate::default())).collect();
        for (warm, held_out_rows) in start.fits.iter().zip(held_out) {
            // Long training pays less than the rows it takes: some of them do.
            let mut learner = warm.clone().thinned(TRAINED_ROWS)?;
            let mut last = f64::NEG_INFINITY;
            learner.train(&self.training, |learner, epoch| {
                let Some(at) = trained.iter().position(|(e, _)| *e == epoch) else { return Ok(true) };
                let whole = learner.clone().with_rows(warm.rows().clone())?;
                trained[at].1.push(whole, held_out_rows)?;
                let before = std::mem::replace(&mut last, trained[at].1.score());
                let is_last = at + 1 == trained.len();
                Ok(!is_last && (held_out.len() > 1 || last > before + WORTH_MORE_TRAINING))
            })?;
        }
        trained.retain(|(_, candidate)| !candidate.fits.is_empty());
        Ok(trained)
    }

    /// Inducing points beside the grids of the columns, which do not overfit, and those grids, on the rows that are not held
    /// out first. One part says enough of what makes so much of a difference, and costs a third of three.
    fn points_beside_axes(&self, plain: &Candidate, share: usize) -> Result<Option<(WarmUp, LearnedPoints)>> {
        if self.inducing == 0 || self.point_sources().is_empty() {
            return Ok(None);
        }
        let mut axes = plain.fits[0].clone();
        let learned = self.learn_points(&mut axes, &self.rows.filter(|i| i % share != 0), None)?;
        Ok(Some((axes, learned)))
    }

    /// What was chosen and trained on most of the rows, on all of them.
    fn on_all_rows(&self, mut best: Candidate, choice: &Choice) -> Result<WarmUp> {
        let mut warm = match best.fits.pop() {
            // Only the hyperparameters see the rest.
            Some(warm) if best.fits.is_empty() => warm.with_rows(self.rows.clone())?,
            _ => self.repeated(choice)?,
        };
        warm.fit_hyperparameters(&quick())?;
        Ok(warm)
    }

    /// The sum with inducing points beside it, if held-out rows are likelier under it. Points that were learned beside the
    /// grids of the columns are tried beside the best grids, too.
    fn beside_points(
        &self,
        axes: &WarmUp,
        learned: &LearnedPoints,
        best: &Candidate,
        (held_out, share): (&Rows, usize),
        choice: &mut Choice,
    ) -> Result<Option<WarmUp>> {
        let is_plain = choice.start == Start::Axes && choice.epochs == 0;
        let train = self.rows.filter(|i| i % share != 0);
        let beside = |grids: &WarmUp| -> Result<Candidate> {
            let mut warm = self.with_points(Some(grids), learned, &train)?;
            warm.fit_hyperparameters(&quick())?;
            let mut candidate = Candidate::default();
            candidate.push(warm, held_out)?;
            Ok(candidate)
        };
        let mut chosen = beside(axes)?;
        choice.scores.push((Start::Points, 0, chosen.score()));
        let mut is_best = is_plain;
        if !is_plain {
            let beside_best = beside(&best.fits[0])?;
            choice.scores.push((Start::Points, choice.epochs.max(1), beside_best.score()));
            if beside_best.beats(&chosen) {
                (chosen, is_best) = (beside_best, true);
            }
        }
        let without = &best.densities[..held_out.len()];
        if chosen.score() <= without.iter().sum::<f64>() / without.len() as f64 {
            return Ok(None);
        }
        let mut grids = if is_best {
            self.on_all_rows(best.clone(), choice)?
        } else {
            let mut axes = self.fitted(&self.base(self.rows)?, self.rows, None)?;
            axes.fit_hyperparameters(&quick())?;
            axes
        };
        choice.start = Start::Points;
        // The rows that were held out move the points, too.
        let learned = self.learn_points(&mut grids, self.rows, Some(learned))?;
        let mut warm = self.with_points(Some(&grids), &learned, self.rows)?;
        warm.fit_hyperparameters(&quick())?;
        Ok(Some(warm))
    }

    /// One block for every column, with hyperparameters fitted and nothing else learned.
    pub fn plain(&self) -> Result<(WarmUp, Choice)> {
        let choice = Choice { start: Start::Axes, epochs: 0, scores: Vec::new() };
        Ok((self.fitted(&self.base(self.rows)?, self.rows, None)?, choice))
    }

    /// What was chosen on parts of the rows, on all of them.
    fn repeated(&self, choice: &Choice) -> Result<WarmUp> {
        let mut warm = self.fitted(&self.base(self.rows)?, self.rows, None)?;
        if choice.start == Start::Interactions {
            let pairs = self.interactions(&mut warm, self.rows)?;
            warm = self.extended(&warm, &pairs, self.rows)?;
        }
        if choice.epochs > 0 {
            warm.train(&self.training, |_, epoch| Ok(epoch < choice.epochs))?;
        }
        Ok(warm)
    }

    /// Leaves out blocks that carry next to nothing.
    fn pruned(&self, mut warm: WarmUp) -> Result<WarmUp> {
        let shares = warm.shares()?;
        let grids = warm.lattice().grids().len();
        // Of functions that explain nearly all, small parts are large beside what is left.
        let (y, n) = (&self.rows.y, self.rows.len() as f64);
        let mean = y.iter().sum::<f64>() / n;
        let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n;
        let noise = warm.hyperparameters().noise;
        let least = SMALLEST_SHARE.min(SMALLEST_OF_NOISE * noise / (variance - noise).max(noise));
        let kept: Vec<usize> = (0..grids).filter(|&j| shares[j] >= least).collect();
        let points = warm.lattice().points().cloned().zip(warm.hyperparameters().kernels.get(grids));
        let points = points.map(|(points, kernel)| (points, kernel.variance()));
        if kept.is_empty() || kept.len() == grids {
            return Ok(warm);
        }
        let all = self.blocks_of(&warm);
        let blocks: Vec<Block> = kept.iter().map(|&j| all[j].clone()).collect();
        let kernels = kept.iter().map(|&j| warm.hyperparameters().kernels[j].clone()).collect();
        let before = Hyperparameters { kernels, noise: warm.hyperparameters().noise };
        // What is left out carried next to nothing, so the others stay as they were fitted.
        self.assembled(&blocks, self.rows, Some(&before), points)
    }
}

/// Hyperparameters near enough to compare candidates.
fn quick() -> LbfgsB {
    LbfgsB { max_evaluations: 20, relative_tolerance: 1e-4, ..LbfgsB::default() }
}
