//! Where length-scales and centers start.
//!
//! Length-scales in standardized units are ℓ_k = 1/a_k with Σ a_k² = 1 (times a common factor), so that two rows at
//! random are at r ≈ √2: all columns alike, or a_k² by the share of the targets' variance that a column explains alone
//! (a step function over equally filled bins). Centers are the means of k-means in the metric of the length-scales,
//! n M D multiply-adds a round.

use faer::Mat;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::PointsStart;
use super::data::Table;
use super::radial::{squared_distances, squared_norms};
use crate::interrupt;

const BINS: usize = 16;
/// The smallest a_k² beside the largest: no column is left out for good.
const LEAST_RELEVANCE: f64 = 0.02;
/// How much longer than the even start the long one is.
const LONG: f64 = 4.0;
const ROUNDS: usize = 8;
const BLOCK: usize = 256;

/// The length-scales of a start.
pub(super) fn lengthscales(start: PointsStart, table: &Table) -> Vec<f64> {
    let d = table.dim();
    let even = (d as f64).sqrt();
    match start {
        PointsStart::Even => vec![even; d],
        PointsStart::Long => vec![LONG * even; d],
        PointsStart::Relevance => {
            let share: Vec<f64> = (0..d).map(|k| relevance(table, k)).collect();
            let most = share.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            let share: Vec<f64> = share.iter().map(|q| (q / most).max(LEAST_RELEVANCE)).collect();
            let total: f64 = share.iter().sum();
            share.iter().map(|q| (total / q).sqrt()).collect()
        }
    }
}

/// The share of the targets' variance between equally filled bins of column `k`, less what chance would give; the mean
/// over outputs.
fn relevance(table: &Table, k: usize) -> f64 {
    let n = table.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| table.x[(k, i)].total_cmp(&table.x[(k, j)]));
    let bins = BINS.min(n / 4).max(1);
    // Equal values must not be parted: a bin ends where the value changes.
    let mut edges = vec![0];
    for b in 1..bins {
        let mut at = b * n / bins;
        while at < n && table.x[(k, order[at])] == table.x[(k, order[at - 1])] {
            at += 1;
        }
        if at > edges[edges.len() - 1] && at < n {
            edges.push(at);
        }
    }
    edges.push(n);
    let share = |y: &[f64]| {
        let mean = y.iter().sum::<f64>() / n as f64;
        let total: f64 = y.iter().map(|y| (y - mean).powi(2)).sum();
        let between = |range: &[usize]| {
            let rows = &order[range[0]..range[1]];
            let sum: f64 = rows.iter().map(|&i| y[i] - mean).sum();
            sum * sum / rows.len() as f64
        };
        let chance = (edges.len() - 2) as f64 / n.max(2) as f64;
        let share = edges.windows(2).map(between).sum::<f64>() / total.max(f64::MIN_POSITIVE);
        ((share - chance) / (1.0 - chance).max(0.1)).max(0.0)
    };
    table.targets.iter().map(|t| share(&t.y)).sum::<f64>() / table.targets.len() as f64
}

/// The first of each set of equal rows.
pub(super) fn distinct_rows(table: &Table) -> Vec<usize> {
    let key = |i: usize| table.x.col_as_slice(i).iter().map(|v| (v + 0.0).to_bits()).collect::<Vec<_>>();
    let mut seen = std::collections::HashSet::new();
    (0..table.len()).filter(|&i| seen.insert(key(i))).collect()
}

/// M centers (columns) by k-means in the metric of the length-scales, from random distinct rows.
pub(super) fn centers(
    table: &Table,
    lengthscales: &[f64],
    points: usize,
    rng: &mut Xoshiro256PlusPlus,
) -> Mat<f64> {
    let mut chosen = distinct_rows(table);
    chosen.shuffle(rng);
    chosen.truncate(points);
    let (d, n, m) = (table.dim(), table.len(), chosen.len());
    let x = Mat::from_fn(d, n, |k, i| table.x[(k, i)] / lengthscales[k]);
    let mut z = Mat::from_fn(d, m, |k, i| x[(k, chosen[i])]);
    let x_norms = squared_norms(x.as_ref());
    let mut r2 = Mat::zeros(m, BLOCK);
    for _ in 0..if m < n { ROUNDS } else { 0 } {
        let z_norms = squared_norms(z.as_ref());
        let (mut sums, mut counts) = (Mat::<f64>::zeros(d, m), vec![0.0; m]);
        for from in (0..n).step_by(BLOCK).take_while(|_| !interrupt::is_set()) {
            let t = BLOCK.min(n - from);
            let block = (x.as_ref().subcols(from, t), &x_norms[from..from + t]);
            squared_distances((z.as_ref(), &z_norms), block, r2.as_mut().subcols_mut(0, t));
            for j in 0..t {
                let nearest = r2.col_as_slice(j).iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
                let nearest = nearest.map_or(0, |(i, _)| i);
                counts[nearest] += 1.0;
                let from = x.col_as_slice(from + j);
                sums.col_as_slice_mut(nearest).iter_mut().zip(from).for_each(|(s, x)| *s += x);
            }
        }
        for i in 0..m {
            if counts[i] > 0.0 {
                for k in 0..d {
                    z[(k, i)] = sums[(k, i)] / counts[i];
                }
            }
        }
    }
    Mat::from_fn(d, m, |k, i| z[(k, i)] * lengthscales[k])
}
