//! How unsure a sum of blocks is beyond the rows that it has learned from.
//!
//! Coordinates of a sum saturate, h = tanh(z/2): whatever lies outside looks like the edge, and the model is as sure
//! there as at the edge. So how far out a row lies is read off its columns before they saturate. With e_k the distance
//! of column k from its range, in half-widths of the range and with its sign, a coordinate lies out by
//!
//! ```text
//! δ = | Σ_k p_k e_k r_k |/(3 s)   for a direction p with deviation s over rows of half-widths r_k
//! δ = |e_k|                       for a column as it is
//! ```
//!
//! and a block, whose prior variance is v, by the largest δ of its coordinates. It says what it says at the edge, with
//! v ((1 + 4δ²)² − 1) more variance: next to nothing just outside, as much as the prior at δ ≈ .3, and as a function
//! that goes on like a parabola needs farther out. Columns with values that were pulled in have no range to be outside
//! of: they are heavy-tailed.
//!
//! A row inside costs D comparisons.

use super::OffGrid;
use super::encoder::ColumnScaling;
use crate::error::{Error, Result};
use crate::feature::{FeatureMap, Linear, Scaling, Source};
use crate::grid::{Grid, Lattice};
use crate::kernel::Kernel;
use crate::posterior::{Prediction, Predictor};

/// The half-width of the range of a direction, in its deviations.
const HALF_WIDTH: f64 = 3.0;
/// A column that never changed is outside wherever it changes, and has no range to say how far: so far that a block is
/// about twice as unsure as before any row.
const CHANGED: f64 = 0.5;
/// No column is farther out than so many half-widths.
const FARTHEST: f64 = 100.0;

/// What is added to the variance of a block of unit variance that lies out by δ.
fn growth(delta: f64) -> f64 {
    (1.0 + 4.0 * delta * delta).powi(2) - 1.0
}

/// How far out each coordinate of a row lies; `None` if all columns are inside their ranges.
pub(crate) fn excess(scaling: &ColumnScaling, map: &FeatureMap, x: &[f64]) -> Option<Vec<f64>> {
    if scaling.seen.iter().zip(x).all(|(&(lo, hi), x)| (lo..=hi).contains(x)) {
        return None;
    }
    let outside = |k: usize| {
        let (lo, hi) = scaling.seen[k];
        let distance = (x[k] - hi).max(0.0) + (x[k] - lo).min(0.0);
        let half = 0.5 * (hi - lo);
        let e = match half > 0.0 {
            _ if distance == 0.0 => 0.0,
            true => (distance / half).clamp(-FARTHEST, FARTHEST),
            false => CHANGED.copysign(distance),
        };
        (e, half * scaling.factor[k])
    };
    let columns: Vec<(f64, f64)> = (0..scaling.output_dim()).map(|i| outside(scaling.source(i))).collect();
    let directions = |linear: &Linear, read: &[usize]| -> Vec<f64> {
        let Scaling::Frozen(frozen) = linear.scaling() else { return vec![0.0; linear.output_dim()] };
        let rows = linear.parameters().chunks_exact(read.len()).zip(frozen.std());
        let one = |(p, s): (&[f64], &f64)| {
            let sum: f64 = p.iter().zip(read).map(|(p, &k)| p * columns[k].0 * columns[k].1).sum();
            sum.abs() / (HALF_WIDTH * s)
        };
        rows.map(one).collect()
    };
    let everything: Vec<usize> = (0..columns.len()).collect();
    Some(match map {
        FeatureMap::Identity(_) => columns.iter().map(|c| c.0.abs()).collect(),
        FeatureMap::Select(map) => map.reads().iter().map(|&k| columns[k].0.abs()).collect(),
        FeatureMap::Linear(map) => directions(map, &everything),
        FeatureMap::Mlp(map) => vec![0.0; map.output_dim()],
        FeatureMap::Mixed(map) => {
            let mut learned = map.linear().map_or(Vec::new(), |l| directions(l, map.numeric())).into_iter();
            let one = |source: &Source| match *source {
                Source::Direction => learned.next().unwrap_or(0.0),
                Source::Scaled(k) => columns[k].0.abs(),
                Source::Column(_) | Source::Cosine(_) | Source::Sine(_) | Source::Level(..) => 0.0,
            };
            map.sources().iter().map(one).collect()
        }
    })
}

/// The variance that a row so far out has beyond what its blocks say: Σ_j v_j ((1 + 4δ_j²)² − 1).
pub(crate) fn variance(excess: &[f64], lattice: &Lattice, variances: &[f64]) -> f64 {
    let sizes = lattice.grids().iter().map(Grid::dim).chain(lattice.points().map(|points| points.dim()));
    let mut first = 0;
    let block = |(size, v): (usize, &f64)| {
        let own = &excess[first..first + size];
        first += size;
        v * growth(own.iter().copied().fold(0.0, f64::max))
    };
    sizes.zip(variances).map(block).sum()
}

/// The prior variance of each block.
pub(crate) fn variances(kernels: &[Kernel]) -> Vec<f64> {
    kernels.iter().map(Kernel::variance).collect()
}

/// What an image says about a point. Off a single grid that is the prior, as the model itself says, unless such points are
/// an error.
pub(crate) fn predict(
    predictor: &Predictor,
    variances: &[f64],
    off_grid: OffGrid,
    h: &[f64],
) -> Result<Prediction> {
    match (predictor.predict(h), variances) {
        (Err(Error::OutsideGrid { .. }), &[variance]) if off_grid != OffGrid::Error => {
            Ok(Prediction { mean: 0.0, variance, noise: predictor.noise() })
        }
        (said, _) => said,
    }
}
