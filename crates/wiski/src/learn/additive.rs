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
//! Blocks that carry next to nothing can be left out at the end. A column of its own kind (periodic, categorical)
//! is a block of its own kind.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Choice, HyperSpace, Hyperparameters, LbfgsB, Rows, Start, WarmUp, WarmUpTraining};
use crate::error::Result;
use crate::evidence;
use crate::feature::{Column, FeatureMap, Linear, Mixed, Moments, Projection, Source, start};
use crate::grid::{Axis, Grid, Lattice};
use crate::kernel::{Family, Kernel};
use crate::pool::Pool;
use crate::posterior::Posterior;
use crate::prior::Prior;
use crate::stats::Stats;

/// Below this many rows nothing can be held out: the columns are taken as they are.
const FEWEST_ROWS: usize = 60;
/// From this many rows on one part held out says enough; below, three parts take turns.
const ONE_FOLD_ROWS: usize = 600;
/// An interaction must gain this much log evidence: it has two length-scales and a scale more.
const SMALLEST_GAIN: f64 = 4.0;
/// Grid points on each axis of a two-dimensional block, as far as the rank budget goes.
const PAIR_POINTS: [usize; 3] = [12, 16, 20];
/// Training goes on while twice as many epochs gain more than this much log density a row.
const WORTH_MORE_TRAINING: f64 = 2e-3;
/// Directions are trained on at most this many rows.
const TRAINED_ROWS: usize = 3072;
/// Pairs are sought among this many columns, those of the largest effects.
const PAIRED_COLUMNS: usize = 10;
/// After the first round only this many of the best pairs are scored again.
const FINALISTS: usize = 10;
/// Blocks with a smaller share of the explained variance are left out.
const SMALLEST_SHARE: f64 = 1e-3;

/// A search for blocks on rows in memory.
pub struct AdditiveSearch<'a> {
    /// The rows, scaled.
    pub rows: &'a Rows,
    /// What each column means.
    pub columns: &'a [Column],
    /// The number of directions through the numeric columns, the ridge direction and the columns themselves
    /// included; random ones fill up.
    pub directions: usize,
    /// Grid points of a one-dimensional block.
    pub points: usize,
    /// Interactions are added while the rank stays within this.
    pub rank_budget: usize,
    /// Whether blocks that carry next to nothing are left out.
    pub prune: bool,
    /// The noise variance to start from.
    pub noise: f64,
    /// How given hyperparameters are learned.
    pub space: &'a dyn Fn(&Hyperparameters) -> Result<HyperSpace>,
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

/// One block: the coordinates it reads, and the grid points on each axis.
#[derive(Debug, Clone, PartialEq)]
struct Block {
    axes: Vec<Reading>,
    points: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Reading {
    /// A direction through the numeric columns.
    Direction(Vec<f64>),
    /// A periodic or categorical column.
    Column(usize),
}

impl AdditiveSearch<'_> {
    /// Finds blocks, directions and hyperparameters for the rows.
    pub fn run(&self) -> Result<(WarmUp, Choice)> {
        let mut choice = Choice { start: Start::Axes, epochs: 0, scores: Vec::new() };
        let n = self.rows.len();
        if n < FEWEST_ROWS {
            return Ok((self.fitted(&self.base(self.rows)?, self.rows, None)?, choice));
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
        let mut best = plain;
        if paired.beats(&best) {
            (best, choice.start) = (paired, Start::Interactions);
        }
        let checkpoints: Vec<usize> =
            [1, 2, 4, 8].iter().map(|s| self.training.epochs * s / 8).filter(|&e| e > 0).collect();
        let mut trained = vec![Candidate::default(); checkpoints.len()];
        for (warm, held_out) in best.fits.iter().zip(&held_out) {
            // Long training pays less than the rows it takes: some of them do.
            let mut learner = warm.clone().thinned(TRAINED_ROWS)?;
            let mut last = f64::NEG_INFINITY;
            learner.train(&self.training, |learner, epoch| {
                let Some(at) = checkpoints.iter().position(|&c| c == epoch) else { return Ok(true) };
                let whole = learner.clone().with_rows(warm.rows().clone())?;
                trained[at].push(whole, held_out)?;
                let before = std::mem::replace(&mut last, trained[at].score());
                Ok(folds > 1 || last > before + WORTH_MORE_TRAINING)
            })?;
        }
        trained.retain(|candidate| !candidate.fits.is_empty());
        choice.scores.extend(checkpoints.iter().zip(&trained).map(|(&e, c)| (choice.start, e, c.score())));
        let longest = (0..trained.len()).max_by(|&i, &j| trained[i].score().total_cmp(&trained[j].score()));
        if let Some(at) = longest
            && trained[at].beats(&best)
        {
            (best, choice.epochs) = (trained.swap_remove(at), checkpoints[at]);
        }
        let mut warm = match best.fits.pop() {
            // Chosen and trained on most of the rows already: only the hyperparameters see the rest.
            Some(warm) if folds == 1 => warm.with_rows(self.rows.clone())?,
            _ => self.repeated(&choice)?,
        };
        warm.fit_hyperparameters(&quick())?;
        let warm = if self.prune { self.pruned(warm)? } else { warm };
        Ok((warm, choice))
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

    fn numeric(&self) -> Vec<usize> {
        (0..self.columns.len()).filter(|&c| self.columns[c] == Column::Numeric).collect()
    }

    /// The numeric columns of the rows.
    fn numeric_rows(&self, rows: &Rows) -> Vec<f64> {
        let numeric = self.numeric();
        rows.x.chunks_exact(self.columns.len()).flat_map(|x| numeric.iter().map(|&c| x[c])).collect()
    }

    /// One block for the ridge direction, for every column, and for random directions up to the number wanted.
    fn base(&self, rows: &Rows) -> Result<Vec<Block>> {
        let mut blocks = Vec::new();
        let d = self.numeric().len();
        if d > 0 {
            let x = self.numeric_rows(rows);
            let moments = Moments::from_rows(&x, d)?;
            let mut all = start::axes(d)?.rescale(&moments)?;
            if d > 1 && self.directions > d {
                // Targets without a linear part have no ridge direction.
                if let Ok(ridge) = start::supervised(&x, d, &rows.y, 1, &start::PENALTIES) {
                    all = all.stack(&ridge)?;
                }
                if let Some(missing) = self.directions.checked_sub(all.outputs()).filter(|&m| m > 0) {
                    let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
                    all = all.stack(&start::random(missing, d, &mut rng)?.rescale(&moments)?)?;
                }
            }
            let usable = |j: usize| j >= d || moments.variance(j) > 0.0;
            let rows = (0..all.outputs()).filter(|&j| usable(j)).map(|j| all.row(j).to_vec());
            blocks.extend(rows.map(|row| Block { axes: vec![Reading::Direction(row)], points: self.points }));
        }
        let special = (0..self.columns.len()).filter(|&c| self.columns[c] != Column::Numeric);
        blocks.extend(special.map(|c| Block { axes: vec![Reading::Column(c)], points: self.points }));
        Ok(blocks)
    }

    /// The blocks on the given rows with their hyperparameters fitted, from those of `before` on as far as they
    /// have the same blocks.
    fn fitted(&self, blocks: &[Block], rows: &Rows, before: Option<&Hyperparameters>) -> Result<WarmUp> {
        let mut grids = Vec::with_capacity(blocks.len());
        let mut kernels = Vec::with_capacity(blocks.len());
        let (mut sources, mut directions) = (Vec::new(), Vec::new());
        for block in blocks {
            let d = block.axes.len();
            let mut kernel: Option<Kernel> = None;
            let mut axes = Vec::with_capacity(d);
            for (k, axis) in block.axes.iter().enumerate() {
                let column = match axis {
                    Reading::Direction(row) => {
                        directions.extend_from_slice(row);
                        sources.push(Source::Direction);
                        Column::Numeric
                    }
                    Reading::Column(c) => {
                        sources.push(Source::Column(*c));
                        self.columns[*c]
                    }
                };
                axes.push(axis_of(column, block.points)?);
                let own = kernel_of(column, d, k)?;
                kernel = Some(kernel.map_or(own.clone(), |k| k * own));
            }
            grids.push(Grid::new(axes)?);
            kernels.extend(kernel.map(|k| k.scaled((blocks.len() as f64).recip())));
        }
        let mut hyper = Hyperparameters { kernels, noise: self.noise };
        if let Some(before) = before {
            hyper.noise = before.noise;
            hyper.kernels[..before.kernels.len()].clone_from_slice(&before.kernels);
        }
        let space = fixed_where_known((self.space)(&hyper)?, &hyper, self.columns, &sources)?;
        let numeric = self.numeric().len();
        let outputs = if numeric == 0 { 0 } else { directions.len() / numeric };
        let linear = match outputs {
            0 => None,
            k => Some(Linear::new(Projection::new(k, numeric, directions)?)),
        };
        let map = match linear {
            Some(linear) if numeric == self.columns.len() => FeatureMap::from(linear),
            linear => FeatureMap::from(Mixed::new(self.columns.to_vec(), sources, linear)?),
        };
        let lattice = Lattice::new(grids)?;
        let mut warm = WarmUp::new(rows.clone(), map, lattice, hyper, space, self.tolerance)?;
        warm.fit_hyperparameters(&quick())?;
        Ok(warm)
    }

    /// The blocks of a warm-up, as they are now.
    fn blocks_of(&self, warm: &WarmUp) -> Vec<Block> {
        let numeric = self.numeric().len().max(1);
        let mut directions = warm.map().parameters().chunks_exact(numeric);
        let all_numeric = vec![Source::Direction; warm.map().output_dim()];
        let sources = match warm.map() {
            FeatureMap::Mixed(map) => map.sources(),
            _ => &all_numeric,
        };
        let mut sources = sources.iter();
        let mut blocks = Vec::new();
        for grid in warm.lattice().grids() {
            let axes = sources.by_ref().take(grid.dim()).map(|source| match source {
                Source::Direction => Reading::Direction(directions.next().unwrap_or(&[]).to_vec()),
                Source::Column(c) => Reading::Column(*c),
            });
            let axes: Vec<Reading> = axes.collect();
            let circle = |r: &Reading| match r {
                Reading::Column(c) => matches!(self.columns[*c], Column::Periodic { .. }),
                Reading::Direction(_) => false,
            };
            let points =
                axes.iter().zip(grid.axes()).map(|(r, a)| a.points() - if circle(r) { 3 } else { 0 });
            blocks.push(Block { points: points.max().unwrap_or(self.points), axes });
        }
        blocks
    }

    /// The same blocks and further ones, fitted together.
    fn extended(&self, warm: &WarmUp, further: &[Block], rows: &Rows) -> Result<WarmUp> {
        if further.is_empty() {
            return Ok(warm.clone());
        }
        let mut blocks = self.blocks_of(warm);
        blocks.extend_from_slice(further);
        self.fitted(&blocks, rows, Some(warm.hyperparameters()))
    }

    /// Leaves out blocks that carry next to nothing.
    fn pruned(&self, mut warm: WarmUp) -> Result<WarmUp> {
        let shares = warm.shares()?;
        let kept: Vec<usize> = (0..shares.len()).filter(|&j| shares[j] >= SMALLEST_SHARE).collect();
        if kept.is_empty() || kept.len() == shares.len() {
            return Ok(warm);
        }
        let all = self.blocks_of(&warm);
        let blocks: Vec<Block> = kept.iter().map(|&j| all[j].clone()).collect();
        let kernels = kept.iter().map(|&j| warm.hyperparameters().kernels[j].clone()).collect();
        let before = Hyperparameters { kernels, noise: warm.hyperparameters().noise };
        self.fitted(&blocks, self.rows, Some(&before))
    }

    /// Two-dimensional blocks that explain what the given fit leaves, best first.
    fn interactions(&self, warm: &mut WarmUp, rows: &Rows) -> Result<Vec<Block>> {
        let (residuals, rank) = warm.residuals()?;
        let left = self.rank_budget.saturating_sub(rank);
        let limit = left / (PAIR_POINTS[0] * PAIR_POINTS[0]);
        if limit == 0 || self.columns.len() < 2 {
            return Ok(Vec::new());
        }
        let mut remaining = Rows { x: Vec::new(), y: residuals, noise: rows.noise.clone() };
        let units = self.units(warm, rows)?;
        let mut candidates: Vec<(usize, usize)> =
            (0..units.len()).flat_map(|i| (i + 1..units.len()).map(move |j| (i, j))).collect();
        let (mut found, mut lengths) = (Vec::new(), Vec::new());
        while found.len() < limit && !candidates.is_empty() {
            let mut scored = Vec::with_capacity(candidates.len());
            for &(i, j) in &candidates {
                let h: Vec<f64> = units[i]
                    .coordinates
                    .iter()
                    .zip(&units[j].coordinates)
                    .flat_map(|(&a, &b)| [a, b])
                    .collect();
                scored.push((self.pair_fit([&units[i], &units[j]], h, &remaining)?, (i, j)));
            }
            scored.sort_by(|a, b| b.0.gain.total_cmp(&a.0.gain));
            let (best, pair) = &scored[0];
            if best.gain < SMALLEST_GAIN {
                break;
            }
            remaining.y.iter_mut().zip(&best.mean).for_each(|(y, m)| *y -= m);
            let axes = vec![units[pair.0].reading.clone(), units[pair.1].reading.clone()];
            found.push(Block { axes, points: PAIR_POINTS[0] });
            lengths.push(best.length);
            candidates = scored.iter().skip(1).take(FINALISTS).map(|s| s.1).collect();
        }
        // What is left of the budget makes the grids of rough ones finer.
        let mut used = found.len() * PAIR_POINTS[0] * PAIR_POINTS[0];
        for step in PAIR_POINTS.windows(2) {
            for (block, &length) in found.iter_mut().zip(&lengths) {
                let more = step[1] * step[1] - step[0] * step[0];
                let spacing = 2.0 / (step[0] - 3) as f64;
                if block.points == step[0] && length < 2.0 * spacing && used + more <= left {
                    block.points = step[1];
                    used += more;
                }
            }
        }
        Ok(found)
    }

    /// The columns among which pairs are sought, with their coordinates.
    fn units(&self, warm: &mut WarmUp, rows: &Rows) -> Result<Vec<Unit>> {
        let shares = warm.shares()?;
        let d = self.columns.len();
        let numeric = self.numeric();
        let moments = Moments::from_rows(&rows.x, d)?;
        let blocks = self.blocks_of(warm);
        let mut units: Vec<(f64, Unit)> = Vec::new();
        for (block, &share) in blocks.iter().zip(&shares) {
            let [reading] = block.axes.as_slice() else { continue };
            let column = match reading {
                Reading::Column(c) => *c,
                Reading::Direction(row) => {
                    let mut active = (0..row.len()).filter(|&k| row[k] != 0.0);
                    match (active.next(), active.next()) {
                        (Some(k), None) => numeric[k],
                        _ => continue, // not a column
                    }
                }
            };
            let kind = self.columns[column];
            let (mean, deviation) = (moments.mean()[column], moments.variance(column).sqrt());
            let coordinate = |x: &[f64]| match kind {
                Column::Numeric => Ok((0.5 * (x[column] - mean) / deviation).tanh()),
                kind => kind.coordinate(column, x[column]),
            };
            let coordinates = rows.x.chunks_exact(d).map(coordinate).collect::<Result<_>>()?;
            units.push((share, Unit { kind, reading: reading.clone(), coordinates }));
        }
        units.sort_by(|a, b| b.0.total_cmp(&a.0));
        units.truncate(PAIRED_COLUMNS);
        Ok(units.into_iter().map(|u| u.1).collect())
    }

    /// The best of a few Gaussian processes on a pair, for the residuals alone.
    fn pair_fit(&self, pair: [&Unit; 2], h: Vec<f64>, rows: &Rows) -> Result<PairFit> {
        let axes = pair.iter().map(|u| axis_of(u.kind, PAIR_POINTS[0])).collect::<Result<_>>()?;
        let lattice = Lattice::from(Grid::new(axes)?);
        let mut stats = Stats::new(lattice.clone());
        stats.observe_batch(&h, &rows.y, Some(&rows.noise))?;
        let n = stats.count();
        let variance = stats.c() / n;
        let nothing = -0.5 * (n * (variance.ln() + 1.0 + std::f64::consts::TAU.ln()) + stats.log_noise());
        let pool = &mut Pool::default();
        let mut best: Option<(f64, f64, Posterior)> = None;
        for length in [0.12, 0.35, 1.0] {
            let kernel = kernel_of(pair[0].kind, 2, 0)? * kernel_of(pair[1].kind, 2, 1)?;
            let kernel = with_lengths(kernel, pair, length)?;
            for share in [0.03, 0.1, 0.25] {
                let kernel = kernel.clone().scaled(share * variance);
                let prior = std::sync::Arc::new(Prior::new(&lattice, &[kernel], self.tolerance.max(1e-4))?);
                let whitened = stats.whiten(&prior, pool);
                let posterior = Posterior::from_whitened(prior, &whitened, (1.0 - share) * variance, pool)?;
                let value = evidence::value(&stats, &whitened, &posterior);
                whitened.recycle(pool);
                if best.as_ref().is_none_or(|b| value > b.0) {
                    best = Some((value, length, posterior));
                }
            }
        }
        let Some((value, length, posterior)) = best else { return Ok(PairFit::default()) };
        let predictor = posterior.predictor();
        let mean = h.chunks_exact(2).map(|h| predictor.predict_mean(h)).collect::<Result<_>>()?;
        Ok(PairFit { gain: value - nothing, length, mean })
    }
}

/// A column that may take part in an interaction.
struct Unit {
    kind: Column,
    reading: Reading,
    coordinates: Vec<f64>,
}

#[derive(Default)]
struct PairFit {
    /// log p(r | pair) − log p(r | noise).
    gain: f64,
    /// The length-scale.
    length: f64,
    /// The posterior mean at the rows.
    mean: Vec<f64>,
}

/// The grid axis of a column: [−1, 1] for directions, the circle without its end for periods (the four points
/// around a value wrap by the kernel, which is exactly periodic), one point for each level.
fn axis_of(column: Column, points: usize) -> Result<Axis> {
    match column {
        Column::Numeric => Axis::covering(-1.0, 1.0, points),
        Column::Periodic { .. } => {
            let step = 2.0 / points as f64;
            Axis::new(-1.0 - step, step, points + 3)
        }
        Column::Categorical { levels, .. } => Axis::new(-1.0, 1.0, levels + 2),
    }
}

/// The correlation of unordered levels falls to e⁻⁵⁰ from one to the next.
const UNORDERED: f64 = 0.02;

/// The kernel of a column on axis `k` of a block of `d` axes, with output scale 1.
fn kernel_of(column: Column, d: usize, k: usize) -> Result<Kernel> {
    let (family, values) = match column {
        Column::Numeric => (Family::Rbf, vec![1.0, 0.7]),
        Column::Periodic { .. } => (Family::Periodic, vec![1.0, 1.0, 2.0]),
        Column::Categorical { ordered, .. } => {
            (Family::Matern12, vec![1.0, if ordered { 1.0 } else { UNORDERED }])
        }
    };
    let mut kernel = Kernel::on_axes(family, d, &[k])?;
    kernel.set_parameters(&values)?;
    Ok(kernel)
}

/// Sets the length-scales of a pair's kernel, where they are free.
fn with_lengths(mut kernel: Kernel, pair: [&Unit; 2], length: f64) -> Result<Kernel> {
    let mut values = kernel.parameters();
    for (name, value) in kernel.parameter_names().iter().zip(&mut values) {
        for (k, unit) in pair.iter().enumerate() {
            let unordered = matches!(unit.kind, Column::Categorical { ordered: false, .. });
            if !unordered && name.ends_with(&format!("lengthscale[{k}]")) {
                *value = length;
            }
        }
    }
    kernel.set_parameters(&values)?;
    Ok(kernel)
}

/// Fixes the periods of periodic columns and the length-scales of unordered levels.
fn fixed_where_known(
    mut space: HyperSpace,
    hyper: &Hyperparameters,
    columns: &[Column],
    sources: &[Source],
) -> Result<HyperSpace> {
    let (mut first, mut sources) = (0, sources.iter());
    for kernel in &hyper.kernels {
        let (names, values) = (kernel.parameter_names(), kernel.parameters());
        for k in 0..kernel.dim() {
            let what = match sources.next() {
                Some(Source::Column(c)) => match columns[*c] {
                    Column::Periodic { .. } => "period",
                    Column::Categorical { ordered: false, .. } => "lengthscale",
                    _ => continue,
                },
                _ => continue,
            };
            let label = format!("{what}[{k}]");
            if let Some(i) = names.iter().position(|n| n.ends_with(&label)) {
                space = space.with_fixed(first + i, values[i])?;
            }
        }
        first += values.len();
    }
    Ok(space)
}

/// Hyperparameters near enough to compare candidates.
fn quick() -> LbfgsB {
    LbfgsB { max_evaluations: 20, relative_tolerance: 1e-4, ..LbfgsB::default() }
}
