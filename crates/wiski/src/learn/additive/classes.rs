//! Features that many classes share: grids of columns, and inducing points beside them.
//!
//! Every class has a latent function of its own on the same features ([`crate::likelihood`]). Points and length-scales
//! maximize the *sum* of the classes' bounds, scales are each class's own. Whether points stay is decided by the
//! log-loss of labels on held-out rows, which is what a classifier is judged by.
//!
//! With C classes, n rows and p features a step of the search costs what it costs for one target and C times O(p³)
//! ([`crate::learn::points`]).

use super::inducing::learned_hyperparameters;
use super::{AdditiveSearch, FEWEST_ROWS};
use crate::error::Result;
use crate::kernel::Kernel;
use crate::learn::points::{
    GridFeatures, LearnedPoints, PointsNoise, PointsOutput, PointsPosterior, PointsRows, PointsSearch,
    PointsStart,
};
use crate::learn::{Choice, Hyperparameters, Rows, Start, WarmUp};
use crate::likelihood::Softmax;
use crate::posterior::Prediction;

/// Below so many rows three parts take turns in being held out.
const ONE_FOLD_ROWS: usize = 300;
/// A row of C classes costs 3 C p² multiply-adds: at most so many for the points, C M².
const MOST_OF_A_ROW: usize = 1 << 22;
/// The grids beside the points have at most this rank; those of the columns that say most are kept.
const GRIDS_RANK: usize = 128;
/// A grid with a smaller share of what any class's mean explains is left out.
const SMALLEST_SHARE: f64 = 1e-3;

/// What rows say to each class.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClassTargets {
    /// The targets of each class, with their noise.
    pub(crate) each: Vec<(Vec<f64>, Vec<f64>)>,
    /// The class of each row.
    pub(crate) classes: Vec<usize>,
}

impl ClassTargets {
    pub(crate) fn filter(&self, keep: impl Fn(usize) -> bool) -> Self {
        let kept: Vec<usize> = (0..self.classes.len()).filter(|&i| keep(i)).collect();
        let pick = |v: &Vec<f64>| kept.iter().map(|&i| v[i]).collect();
        Self {
            each: self.each.iter().map(|(y, noise)| (pick(y), pick(noise))).collect(),
            classes: kept.iter().map(|&i| self.classes[i]).collect(),
        }
    }
}

/// Features, and the hyperparameters of each class on them.
pub(crate) struct ClassFeatures {
    pub(crate) warm: WarmUp,
    pub(crate) each: Vec<Hyperparameters>,
    pub(crate) choice: Choice,
}

/// Grids on some rows, with what was learned of all classes beside them.
struct Fitted {
    grids: WarmUp,
    learned: LearnedPoints,
}

impl AdditiveSearch<'_> {
    /// Finds the features of classes. The targets of [`AdditiveSearch::rows`] are those of the class that says most.
    pub(crate) fn run_classes(&self, targets: &ClassTargets) -> Result<ClassFeatures> {
        let n = self.rows.len();
        let mut choice = Choice { start: Start::Axes, epochs: 0, scores: Vec::new() };
        if n < FEWEST_ROWS || self.inducing == 0 || self.point_sources().is_empty() {
            return self.without_class_points(targets, choice);
        }
        let (folds, share) = if n < ONE_FOLD_ROWS { (3, 3) } else { (1, 4) };
        let mut losses = [0.0; 2];
        let mut last = None;
        for fold in 0..folds {
            let (train, own) = (self.rows.filter(|i| i % share != fold), targets.filter(|i| i % share != fold));
            let (held_out, labels) =
                (self.rows.filter(|i| i % share == fold), targets.filter(|i| i % share == fold));
            let grids = self.class_grids(&train, &own)?;
            losses[0] += self.label_loss(&grids, (&train, &own), (&held_out, &labels))?;
            let beside = self.class_points(grids.grids.clone(), &train, &own, None)?;
            losses[1] += self.label_loss(&beside, (&train, &own), (&held_out, &labels))?;
            last = Some(beside);
        }
        choice.scores.extend([(Start::Axes, 0, -losses[0]), (Start::Points, 0, -losses[1])]);
        let Some(last) = last.filter(|_| losses[1] < losses[0]) else {
            return self.without_class_points(targets, choice);
        };
        choice.start = Start::Points;
        let grids = last.grids.with_rows(self.rows.clone())?;
        // A few rows more are worth going on while all of them can be centers, or nearly.
        let fitted = if folds > 1 {
            self.class_points(grids, self.rows, targets, None)?
        } else if n <= 2 * self.class_centers(targets) {
            self.class_points(grids, self.rows, targets, Some(&last.learned))?
        } else {
            Fitted { grids, learned: last.learned }
        };
        let warm = self.with_points(&fitted.grids, &fitted.learned, self.rows)?;
        Ok(ClassFeatures { warm, each: of_classes(&fitted, true)?, choice })
    }

    fn without_class_points(&self, targets: &ClassTargets, choice: Choice) -> Result<ClassFeatures> {
        let grids = self.class_grids(self.rows, targets)?;
        let each = of_classes(&grids, false)?;
        Ok(ClassFeatures { warm: grids.grids, each, choice })
    }

    fn class_centers(&self, targets: &ClassTargets) -> usize {
        self.inducing.min((MOST_OF_A_ROW / targets.each.len().max(1)).isqrt())
    }

    fn class_search(&self, targets: &ClassTargets) -> PointsSearch {
        PointsSearch {
            points: self.class_centers(targets).max(1),
            starts: vec![PointsStart::Even, PointsStart::Relevance, PointsStart::Long],
            seed: self.seed,
            ..PointsSearch::default()
        }
    }

    /// The grids of the columns that say most about any class, with a scale for each class and grid.
    fn class_grids(&self, rows: &Rows, targets: &ClassTargets) -> Result<Fitted> {
        let mut grids = self.fitted(&self.base(rows)?, rows, None)?;
        let learned = self.with_outputs(&mut grids, rows, targets, |all| {
            let learned = self.class_search(targets).without_points(all)?;
            let shares = learned.posterior(all, 1)?.group_shares(all)?;
            Ok((learned, shares))
        });
        let (learned, shares) = learned?;
        let ranks = grids.whitened_features()?.1;
        let mut order: Vec<usize> = (0..shares.len()).filter(|&j| shares[j] >= SMALLEST_SHARE).collect();
        order.sort_by(|&i, &j| shares[j].total_cmp(&shares[i]));
        let mut rank = 0;
        let within = |j: &usize| {
            rank += ranks[*j];
            rank <= GRIDS_RANK
        };
        let mut kept: Vec<usize> = order.into_iter().take_while(within).collect();
        kept.sort_unstable();
        if kept.len() == shares.len() || kept.is_empty() {
            return Ok(Fitted { grids, learned });
        }
        let all = self.blocks_of(&grids);
        let blocks: Vec<_> = kept.iter().map(|&j| all[j].clone()).collect();
        let kernels = kept.iter().map(|&j| grids.hyperparameters().kernels[j].clone()).collect();
        let before = Hyperparameters { kernels, noise: grids.hyperparameters().noise };
        let mut grids = self.assembled(&blocks, rows, Some(&before), None)?;
        let learned = self.with_outputs(&mut grids, rows, targets, |all| {
            self.class_search(targets).without_points(all)
        })?;
        Ok(Fitted { grids, learned })
    }

    /// Points beside the grids, going on from others if there are any.
    fn class_points(
        &self,
        mut grids: WarmUp,
        rows: &Rows,
        targets: &ClassTargets,
        from: Option<&LearnedPoints>,
    ) -> Result<Fitted> {
        let search = self.class_search(targets);
        let learned = self.with_outputs(&mut grids, rows, targets, |all| match from {
            Some(from) => search.continued(all, from, &mut |_| true),
            None => search.run(all, &mut |_| true),
        })?;
        Ok(Fitted { grids, learned })
    }

    /// The mean log-loss of the labels of held-out rows.
    fn label_loss(
        &self,
        fitted: &Fitted,
        (rows, targets): (&Rows, &ClassTargets),
        (held_out, labels): (&Rows, &ClassTargets),
    ) -> Result<f64> {
        let mut grids = fitted.grids.clone();
        let posterior: PointsPosterior =
            self.with_outputs(&mut grids, rows, targets, |all| fitted.learned.posterior(all, 1))?;
        let mut grids = grids.with_rows(held_out.clone())?;
        let latents = self.with_outputs(&mut grids, held_out, labels, |all| posterior.predict(all))?;
        Ok(log_loss(&latents, &labels.classes))
    }

    /// Hands over the rows with the features of the grids and the targets of all classes.
    fn with_outputs<T>(
        &self,
        grids: &mut WarmUp,
        rows: &Rows,
        targets: &ClassTargets,
        then: impl FnOnce(&PointsRows) -> Result<T>,
    ) -> Result<T> {
        let (values, groups) = grids.whitened_features()?;
        let inputs = self.point_inputs(rows)?;
        let noise = PointsNoise::Fixed(1.0);
        let outputs: Vec<PointsOutput> = targets
            .each
            .iter()
            .map(|(y, d)| PointsOutput { targets: y, relative_noise: Some(d), noise })
            .collect();
        let grids = Some(GridFeatures { values: &values, groups: &groups });
        then(&PointsRows { x: &inputs, dim: self.point_sources().len(), outputs: &outputs, grids })
    }
}

/// The hyperparameters of each class; with the scale of the points, if they stay.
fn of_classes(fitted: &Fitted, with_points: bool) -> Result<Vec<Hyperparameters>> {
    let of_class = |class: usize| {
        let mut hyper = learned_hyperparameters(&fitted.grids, &fitted.learned, class);
        if with_points {
            hyper.kernels.push(Kernel::output_scale(fitted.learned.scales[class])?);
        }
        Ok(hyper)
    };
    (0..fitted.learned.scales.len()).map(of_class).collect()
}

/// The mean of −log p over rows, given the latent values of each class.
fn log_loss(latents: &[Vec<Prediction>], classes: &[usize]) -> f64 {
    let softmax = Softmax::new(latents.len());
    let (mut work, mut p) = (Vec::new(), vec![0.0; latents.len()]);
    let loss = |(i, &class): (usize, &usize)| {
        let (mean, variance): (Vec<f64>, Vec<f64>) =
            latents.iter().map(|own| (own[i].mean, own[i].variance)).unzip();
        softmax.probabilities(&mean, &variance, &mut work, &mut p);
        -p[class].max(f64::MIN_POSITIVE).ln()
    };
    classes.iter().enumerate().map(loss).sum::<f64>() / classes.len().max(1) as f64
}
