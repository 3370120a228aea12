//! Features that many classes share: grids of columns, and inducing points beside them.
//!
//! Every class has a latent function of its own on the same features ([`internals::likelihood`](crate::internals::likelihood)). Points and length-scales
//! maximize the *sum* of the classes' bounds, scales are each class's own. Several forms of the sum compete, from simple
//! to rich, by what a classifier is judged by: the log-loss of labels on held-out rows. With few rows for many columns a
//! length-scale for each column, or a scale for each grid and class, is more than the rows can bear, and points with one
//! length-scale for all columns are hard to beat.
//!
//! With C classes, n rows and p features a step of the search costs what it costs for one target and C times O(p³)
//! ([`internals::learn::points`](crate::internals::learn::points)).

use super::inducing::learned_hyperparameters;
use super::{AdditiveSearch, FEWEST_ROWS};
use crate::error::Result;
use crate::kernel::Kernel;
use crate::learn::points::{
    LearnedPoints, PointsNoise, PointsOutput, PointsPosterior, PointsRows, PointsSearch,
};
use crate::learn::{Choice, Hyperparameters, Rows, Start, WarmUp};
use crate::likelihood::{Sharpness, Softmax};
use crate::posterior::Prediction;

/// Below so many targets, rows times classes, three parts take turns in being held out.
const ONE_FOLD_TARGETS: usize = 4000;
/// With fewer rows the noise that the likelihood says competes with the noise that the evidence finds, which may take for
/// noise what is a function after all.
const FEW_ROWS: usize = 300;
/// A row of C classes costs 3 C p² multiply-adds: at most so many for the points, C M², as ten classes on 512 points have.
const MOST_OF_A_ROW: usize = 10 * 512 * 512;
/// The grids beside the points have at most this rank; those of the columns that say most are kept.
const GRIDS_RANK: usize = 128;
/// A grid with a smaller share of what any class's mean explains is left out.
const SMALLEST_SHARE: f64 = 1e-3;

/// With fewer rows for each column simpler forms of the points compete, too.
const FEW_ROWS_A_COLUMN: usize = 64;

/// What a sum consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Inducing points whose length-scales have one unknown factor.
    TiedPoints,
    /// Inducing points with a length-scale for each column.
    Points,
    Grids,
    GridsAndPoints,
}

impl Form {
    const ALL: [Self; 4] = [Self::TiedPoints, Self::Points, Self::Grids, Self::GridsAndPoints];

    fn start(self) -> Start {
        if self == Self::Grids { Start::Axes } else { Start::Points }
    }
}

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

/// Features, and the hyperparameters of each class on them, where they were learned together.
pub(crate) struct FoundFeatures {
    pub(crate) warm: WarmUp,
    pub(crate) each: Vec<Hyperparameters>,
    pub(crate) choice: Choice,
}

/// Grids on some rows, if there are any, and what was learned of all classes beside them.
#[derive(Clone)]
struct Fitted {
    grids: Option<WarmUp>,
    learned: LearnedPoints,
}

/// A form of the sum, what was learned on the last rows, and the log-losses of held-out labels. Probabilities are as sharp
/// as suits the form, since those of a classifier are, too.
struct Tried {
    form: Form,
    last: Fitted,
    losses: Vec<f64>,
}

impl Tried {
    /// Whether losses are smaller than those of a simpler one by more than twice the standard error of the difference.
    fn beats(&self, simpler: &Self) -> bool {
        let gains: Vec<f64> = simpler.losses.iter().zip(&self.losses).map(|(s, l)| s - l).collect();
        let (gain, n) = (mean(&gains), gains.len() as f64);
        let variance = gains.iter().map(|g| (g - gain).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        gain > 2.0 * (variance / n).sqrt()
    }
}

/// The best of some forms, from simple to rich.
fn best_of(tried: Vec<Tried>) -> Tried {
    let better = |best: Tried, next: Tried| if next.beats(&best) { next } else { best };
    tried.into_iter().reduce(better).expect("there is a form")
}

impl AdditiveSearch<'_> {
    /// Finds the features of classes. The targets of [`AdditiveSearch::rows`] are those of the class that says most.
    pub(crate) fn run_classes(&self, targets: &ClassTargets) -> Result<FoundFeatures> {
        let n = self.rows.len();
        let mut choice = Choice { start: Start::Axes, epochs: 0, scores: Vec::new() };
        if n < FEWEST_ROWS || self.inducing == 0 || self.point_sources().is_empty() {
            return self.without_class_points(targets, choice);
        }
        let is_few = n < FEW_ROWS_A_COLUMN * self.point_sources().len();
        let forms: &[Form] = if is_few { &Form::ALL } else { &Form::ALL[2..] };
        let tried = self.tried(forms, targets)?;
        choice.scores.extend(tried.iter().map(|tried| (tried.form.start(), 0, -mean(&tried.losses))));
        let best = best_of(tried);
        if n < FEW_ROWS && self.learns_noise()? {
            let space = |hyper: &Hyperparameters| Ok((self.space)(hyper)?.with_known_noise());
            let known = AdditiveSearch { space: &space, ..*self };
            let own = best_of(known.tried(forms, targets)?);
            if own.beats(&best) {
                choice.start = own.form.start();
                return known.class_features(own, targets, choice);
            }
        }
        choice.start = best.form.start();
        self.class_features(best, targets, choice)
    }

    /// Each form on rows of which parts are held out in turns.
    fn tried(&self, forms: &[Form], targets: &ClassTargets) -> Result<Vec<Tried>> {
        let (folds, share) =
            if self.rows.len() * targets.each.len() < ONE_FOLD_TARGETS { (3, 3) } else { (1, 4) };
        let brief = self.class_search(targets).small();
        let mut said = vec![Vec::new(); forms.len()];
        let mut last = Vec::new();
        for fold in 0..folds {
            let (train, own) =
                (self.rows.filter(|i| i % share != fold), targets.filter(|i| i % share != fold));
            let (held_out, labels) =
                (self.rows.filter(|i| i % share == fold), targets.filter(|i| i % share == fold));
            let grids = self.class_grids(&train, &own)?;
            last.clear();
            for (&form, said) in forms.iter().zip(&mut said) {
                let fitted = self.of_form(form, &brief, &grids, &train, &own, None)?;
                said.extend(self.held_out(&fitted, (&train, &own), (&held_out, &labels))?);
                last.push(fitted);
            }
        }
        let all = forms.iter().zip(last).zip(&said);
        Ok(all.map(|((&form, last), said)| Tried { form, last, losses: Sharpness::losses(said) }).collect())
    }

    /// The form that was chosen, on all rows.
    fn class_features(&self, chosen: Tried, targets: &ClassTargets, choice: Choice) -> Result<FoundFeatures> {
        let Tried { form, last, .. } = chosen;
        if form == Form::Grids {
            return self.without_class_points(targets, choice);
        }
        let grids = last.grids.map(|grids| grids.with_rows(self.rows.clone())).transpose()?;
        let last = Fitted { grids, learned: last.learned };
        let search = self.class_search(targets);
        let fitted = self.of_form(form, &search, &last, self.rows, targets, Some(&last.learned))?;
        let warm = self.with_points(fitted.grids.as_ref(), &fitted.learned, self.rows)?;
        Ok(FoundFeatures { warm, each: of_classes(&fitted, true)?, choice })
    }

    /// A form of the sum on some rows, whose grids are given; points go on from others if there are any.
    fn of_form(
        &self,
        form: Form,
        search: &PointsSearch,
        grids: &Fitted,
        rows: &Rows,
        targets: &ClassTargets,
        from: Option<&LearnedPoints>,
    ) -> Result<Fitted> {
        if form == Form::Grids {
            return Ok(grids.clone());
        }
        let search = PointsSearch { tied: form == Form::TiedPoints, ..search.clone() };
        let mut own = if form == Form::GridsAndPoints { grids.grids.clone() } else { None };
        let learned = self.with_outputs(own.as_mut(), rows, targets, |all| match from {
            Some(from) => search.continued(all, from, &mut |_| true),
            None => search.run(all, &mut |_| true),
        })?;
        Ok(Fitted { grids: own, learned })
    }

    /// Grids alone. Where there are few of them, none needs to be left out, and all that is learned of each class can be
    /// learned on its statistics.
    fn without_class_points(&self, targets: &ClassTargets, choice: Choice) -> Result<FoundFeatures> {
        let mut plain = self.plain()?.0;
        if plain.whitened_features()?.1.iter().sum::<usize>() <= GRIDS_RANK {
            return Ok(FoundFeatures { warm: plain, each: Vec::new(), choice });
        }
        let fitted = self.class_grids(self.rows, targets)?;
        let each = of_classes(&fitted, false)?;
        Ok(FoundFeatures { warm: fitted.grids.unwrap_or(plain), each, choice })
    }

    fn class_centers(&self, targets: &ClassTargets) -> usize {
        self.inducing.min((MOST_OF_A_ROW / targets.each.len().max(1)).isqrt())
    }

    fn class_search(&self, targets: &ClassTargets) -> PointsSearch {
        PointsSearch {
            smoother: None,
            points: self.class_centers(targets).max(1),
            seed: self.seed,
            ..PointsSearch::default()
        }
    }

    /// The grids of the columns that say most about any class, with a scale for each class and grid.
    fn class_grids(&self, rows: &Rows, targets: &ClassTargets) -> Result<Fitted> {
        let mut grids = self.fitted(&self.base(rows)?, rows, None)?;
        let learned = self.with_outputs(Some(&mut grids), rows, targets, |all| {
            let learned = self.class_search(targets).without_points(all)?;
            let shares = learned.posterior(all, usize::MAX)?.group_shares(all)?;
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
            return Ok(Fitted { grids: Some(grids), learned });
        }
        let all = self.blocks_of(&grids);
        let blocks: Vec<_> = kept.iter().map(|&j| all[j].clone()).collect();
        let kernels = kept.iter().map(|&j| grids.hyperparameters().kernels[j].clone()).collect();
        let before = Hyperparameters { kernels, noise: grids.hyperparameters().noise };
        let mut grids = self.assembled(&blocks, rows, Some(&before), None)?;
        let learned = self.with_outputs(Some(&mut grids), rows, targets, |all| {
            self.class_search(targets).without_points(all)
        })?;
        Ok(Fitted { grids: Some(grids), learned })
    }

    /// The probabilities of all classes for each held-out row, with its class.
    fn held_out(
        &self,
        fitted: &Fitted,
        (rows, targets): (&Rows, &ClassTargets),
        (held_out, labels): (&Rows, &ClassTargets),
    ) -> Result<Vec<(Vec<f64>, usize)>> {
        let mut grids = fitted.grids.clone();
        let posterior: PointsPosterior = self
            .with_outputs(grids.as_mut(), rows, targets, |all| fitted.learned.posterior(all, usize::MAX))?;
        let mut grids = grids.map(|grids| grids.with_rows(held_out.clone())).transpose()?;
        let latents = self.with_outputs(grids.as_mut(), held_out, labels, |all| posterior.predict(all))?;
        Ok(probabilities(&latents, &labels.classes))
    }

    /// Hands over the rows with the features of the grids and the targets of all classes.
    fn with_outputs<T>(
        &self,
        grids: Option<&mut WarmUp>,
        rows: &Rows,
        targets: &ClassTargets,
        then: impl FnOnce(&PointsRows) -> Result<T>,
    ) -> Result<T> {
        let noise =
            if self.learns_noise()? { PointsNoise::AtLeast(1.0) } else { PointsNoise::Fixed(self.noise) };
        let each = targets.each.iter();
        let outputs: Vec<PointsOutput> =
            each.map(|(y, d)| PointsOutput { targets: y, relative_noise: Some(d), noise }).collect();
        self.with_point_rows(grids, rows, &outputs, then)
    }
}

/// The hyperparameters of each class; with the scale of the points, if they stay.
fn of_classes(fitted: &Fitted, with_points: bool) -> Result<Vec<Hyperparameters>> {
    let of_class = |class: usize| {
        let mut hyper = learned_hyperparameters(fitted.grids.as_ref(), &fitted.learned, class);
        if with_points {
            hyper.kernels.push(Kernel::output_scale(fitted.learned.scales[class])?);
        }
        Ok(hyper)
    };
    (0..fitted.learned.scales.len()).map(of_class).collect()
}

/// The probabilities of all classes for each row given their latent values, with the row's class.
fn probabilities(latents: &[Vec<Prediction>], classes: &[usize]) -> Vec<(Vec<f64>, usize)> {
    let (softmax, mut work) = (Softmax::new(latents.len()), Vec::new());
    let row = |(i, &class): (usize, &usize)| {
        let (mean, variance): (Vec<f64>, Vec<f64>) =
            latents.iter().map(|own| (own[i].mean, own[i].variance)).unzip();
        let mut p = vec![0.0; latents.len()];
        softmax.probabilities(&mean, &variance, &mut work, &mut p);
        (p, class)
    };
    classes.iter().enumerate().map(row).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
