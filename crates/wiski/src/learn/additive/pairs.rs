//! Pairs of columns that interact, found in what an additive fit leaves.

use std::sync::Arc;

use super::AdditiveSearch;
use super::blocks::{Block, Reading, axis_of, kernel_of};
use crate::error::Result;
use crate::evidence;
use crate::feature::{Column, Moments};
use crate::grid::{Grid, Lattice};
use crate::interrupt;
use crate::kernel::Kernel;
use crate::learn::{Rows, WarmUp};
use crate::pool::Pool;
use crate::posterior::Posterior;
use crate::prior::Prior;
use crate::simd::dot;
use crate::stats::Stats;

/// An interaction must gain this much log evidence: it has two length-scales and a scale more.
const SMALLEST_GAIN: f64 = 4.0;
/// Pairs are sought among this many columns, those of the largest effects.
const PAIRED_COLUMNS: usize = 10;
/// After the first round only this many of the best pairs are scored again.
const FINALISTS: usize = 10;
/// Grid points on each axis of a two-dimensional block, as far as the rank budget goes.
const PAIR_POINTS: [usize; 3] = [12, 16, 20];

/// A column that may take part in an interaction.
struct Unit {
    kind: Column,
    reading: Reading,
    coordinates: Vec<f64>,
}

/// A pair of units that is taken up: its length-scale, and the points on those of its axes that are not levels.
struct PairFound {
    pair: (usize, usize),
    length: f64,
    points: usize,
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

impl AdditiveSearch<'_> {
    /// Two-dimensional blocks that explain what the given fit leaves, best first.
    pub(super) fn interactions(&self, warm: &mut WarmUp, rows: &Rows) -> Result<Vec<Block>> {
        let (residuals, rank) = warm.residuals()?;
        let left = self.rank_budget.saturating_sub(rank);
        if left < PAIR_POINTS[0] || self.columns.len() < 2 {
            return Ok(Vec::new());
        }
        let mut remaining = Rows { x: Vec::new(), y: residuals, noise: rows.noise.clone() };
        let units = self.units(warm, rows)?;
        let size = |(i, j): (usize, usize), points| grid_points([&units[i], &units[j]], points);
        let mut candidates: Vec<(usize, usize)> =
            (0..units.len()).flat_map(|i| (i + 1..units.len()).map(move |j| (i, j))).collect();
        let (mut found, mut used) = (Vec::<PairFound>::new(), 0);
        loop {
            // The levels of a text may be hundreds: a grid over two such columns would have more points than rows.
            candidates.retain(|&pair| used + size(pair, PAIR_POINTS[0]) <= left);
            if candidates.is_empty() {
                break;
            }
            let mut scored = Vec::with_capacity(candidates.len());
            for &(i, j) in &candidates {
                let h: Vec<f64> = units[i]
                    .coordinates
                    .iter()
                    .zip(&units[j].coordinates)
                    .flat_map(|(&a, &b)| [a, b])
                    .collect();
                scored.push((self.pair_fit([&units[i], &units[j]], &h, &remaining)?, (i, j)));
            }
            scored.sort_by(|a, b| b.0.gain.total_cmp(&a.0.gain));
            let (best, pair) = &scored[0];
            if best.gain < SMALLEST_GAIN {
                break;
            }
            remaining.y.iter_mut().zip(&best.mean).for_each(|(y, m)| *y -= m);
            found.push(PairFound { pair: *pair, length: best.length, points: PAIR_POINTS[0] });
            used += size(*pair, PAIR_POINTS[0]);
            candidates = scored.iter().skip(1).take(FINALISTS).map(|s| s.1).collect();
        }
        // What is left of the budget makes the grids of rough ones finer.
        for step in PAIR_POINTS.windows(2) {
            for f in &mut found {
                let more = size(f.pair, step[1]) - size(f.pair, step[0]);
                let spacing = 2.0 / (step[0] - 3) as f64;
                if f.points == step[0] && f.length < 2.0 * spacing && used + more <= left {
                    f.points = step[1];
                    used += more;
                }
            }
        }
        let block = |f: PairFound| {
            let (a, b) = f.pair;
            Block { axes: vec![units[a].reading.clone(), units[b].reading.clone()], points: f.points }
        };
        Ok(found.into_iter().map(block).collect())
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
    fn pair_fit(&self, pair: [&Unit; 2], h: &[f64], rows: &Rows) -> Result<PairFit> {
        interrupt::check()?;
        let axes = pair.iter().map(|u| axis_of(u.kind, PAIR_POINTS[0])).collect::<Result<_>>()?;
        let lattice = Lattice::from(Grid::new(axes)?);
        let mut stats = Stats::new(lattice.clone());
        stats.observe_batch(h, &rows.y, Some(&rows.noise))?;
        let n = stats.count();
        let variance = stats.c() / n;
        if variance < f64::MIN_POSITIVE {
            return Ok(PairFit::default()); // nothing is left to explain
        }
        let nothing = -0.5 * (n * (variance.ln() + 1.0 + std::f64::consts::TAU.ln()) + stats.log_noise());
        let pool = &mut Pool::default();
        let mut best: Option<(f64, f64, Posterior)> = None;
        for length in [0.12, 0.35, 1.0] {
            let kernel = kernel_of(pair[0].kind, 2, 0)? * kernel_of(pair[1].kind, 2, 1)?;
            let kernel = with_lengths(kernel, pair, length)?;
            let prior = Arc::new(Prior::new(&lattice, &[kernel], self.tolerance.max(1e-4))?);
            let whitened = stats.whiten(&prior, pool);
            for share in [0.03, 0.1, 0.25] {
                // The covariance of the residuals is s (K + ρI): only ρ, the noise in units of the scale s, matters to
                // the mean, and s divides the form rᵀ(K + ρI)⁻¹r.
                let (scale, ratio) = (share * variance, (1.0 - share) / share);
                let posterior = Posterior::from_whitened(Arc::clone(&prior), &whitened, ratio, pool)?;
                let form = (stats.c() - dot(posterior.coordinates(), &whitened.rhs)) / ratio;
                let value = evidence::value(&stats, &whitened, &posterior)
                    - 0.5 * (form * (scale.recip() - 1.0) + n * scale.ln());
                if best.as_ref().is_none_or(|b| value > b.0) {
                    best = Some((value, length, posterior));
                }
            }
            whitened.recycle(pool);
        }
        let Some((value, length, posterior)) = best else { return Ok(PairFit::default()) };
        let predictor = posterior.predictor();
        let mean = h.chunks_exact(2).map(|h| predictor.predict_mean(h)).collect::<Result<_>>()?;
        Ok(PairFit { gain: value - nothing, length, mean })
    }
}

/// The points of a pair's grid, which bound its rank.
fn grid_points(pair: [&Unit; 2], points: usize) -> usize {
    let on_axis = |unit: &Unit| match unit.kind {
        Column::Categorical { levels, .. } => levels,
        _ => points,
    };
    on_axis(pair[0]) * on_axis(pair[1])
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
