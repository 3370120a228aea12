//! Effects of single values, for columns whose values recur.
//!
//! What a smooth fit leaves is compared with effects that rows of one value share,
//!
//! ```text
//! r_i = a_{l(i)} + e_i,   a_l ~ N(0, ρσ²),   e_i ~ N(0, σ² d_i);   N_l = Σ 1/d_i,  S_l = Σ r_i/d_i over rows of level l
//! â_l = ρ S_l/(1 + ρ N_l),   var a_l = ρσ²/(1 + ρ N_l)
//! log p(r) = −½ [ n log 2πσ² + Σ_i log d_i + Σ_l log(1 + ρ N_l) + (Σ_i r_i²/d_i − Σ_l ρ S_l²/(1 + ρ N_l))/σ² ]
//! ```
//!
//! with σ² at its maximum and ρ the best of a few: O(n) for each. They stay if held-out rows are likelier with them.
//! Everything else is then sought on what they leave of the targets; whoever searches fits all of it together at the end.

use super::AdditiveSearch;
use super::blocks::{Block, Reading, kernel_of};
use crate::error::Result;
use crate::kernel::Kernel;
use crate::learn::{Choice, Hyperparameters, WarmUp};

/// The variance of effects that is tried, in units of the noise.
const RATIOS: [f64; 6] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0];
/// What effects must gain a held-out row: each level makes all rows to come dearer.
const LEAST_GAIN: f64 = 0.01;
/// One row of so many is held out.
const SHARE: usize = 4;
/// Rounds in which effects and the smooth fit settle what is whose.
const ROUNDS: usize = 2;

/// The effects of the levels of one column.
struct Effects {
    ratio: f64,
    noise: f64,
    /// â_l.
    mean: Vec<f64>,
    /// N_l.
    weights: Vec<f64>,
    evidence: f64,
}

impl Effects {
    /// The likeliest of the rows, given their levels, what is left of their targets, and their relative noise.
    fn fitted(levels: usize, rows: impl Iterator<Item = (usize, f64, f64)>) -> Self {
        let (mut weights, mut sums) = (vec![0.0; levels], vec![0.0; levels]);
        let (mut n, mut c) = (0.0, 0.0);
        for (level, r, d) in rows {
            weights[level] += d.recip();
            sums[level] += r / d;
            (n, c) = (n + 1.0, c + r * r / d);
        }
        let at = |ratio: f64| {
            let shrunk = |(&w, &s): (&f64, &f64)| ratio * s / (1.0 + ratio * w);
            let mean: Vec<f64> = weights.iter().zip(&sums).map(shrunk).collect();
            let explained: f64 = mean.iter().zip(&sums).map(|(a, s)| a * s).sum();
            let noise = ((c - explained) / n).max(f64::MIN_POSITIVE);
            let penalty: f64 = weights.iter().map(|w| (ratio * w).ln_1p()).sum();
            let evidence = -0.5 * (n * noise.ln() + penalty);
            Self { ratio, noise, mean, weights: weights.clone(), evidence }
        };
        let better = |a: Self, b: Self| if b.evidence > a.evidence { b } else { a };
        RATIOS.into_iter().map(at).fold(at(0.0), better)
    }

    /// The log density of a row that was not among those fitted, up to a constant.
    fn density(&self, (level, r, d): (usize, f64, f64)) -> f64 {
        let unsure = self.ratio / (1.0 + self.ratio * self.weights[level]);
        let variance = self.noise * (d + unsure);
        -0.5 * (variance.ln() + (r - self.mean[level]).powi(2) / variance)
    }
}

impl AdditiveSearch<'_> {
    /// Which of some columns, given by the level of each row, have effects of single values that held-out rows are likelier
    /// with; no more than so many levels in all. Best first.
    pub fn worth_levels(&self, candidates: &[Vec<usize>], most: usize) -> Result<Vec<usize>> {
        let mut warm = self.fitted(&self.base(self.rows)?, self.rows, None)?;
        let mut left = warm.residuals()?.0;
        let (mut chosen, mut levels) = (Vec::new(), 0);
        loop {
            let mut best: Option<(f64, usize)> = None;
            for (c, of_rows) in candidates.iter().enumerate().filter(|(c, _)| !chosen.contains(c)) {
                let gain = self.gain(of_rows, &left);
                if levels + count(of_rows) <= most && gain > best.map_or(LEAST_GAIN, |best| best.0) {
                    best = Some((gain, c));
                }
            }
            let Some((_, c)) = best else { return Ok(chosen) };
            let effects = self.effects(&candidates[c], &left);
            left.iter_mut().zip(&candidates[c]).for_each(|(r, &level)| *r -= effects.mean[level]);
            levels += count(&candidates[c]);
            chosen.push(c);
        }
    }

    /// The effects of the levels of all rows on what is left of their targets.
    fn effects(&self, levels: &[usize], left: &[f64]) -> Effects {
        let rows = levels.iter().zip(left).zip(&self.rows.noise).map(|((&l, &r), &d)| (l, r, d));
        Effects::fitted(count(levels), rows)
    }

    /// What the effects of levels gain a held-out row in log density; nothing if that may be chance.
    fn gain(&self, levels: &[usize], left: &[f64]) -> f64 {
        let row = |i: usize| (levels[i], left[i], self.rows.noise[i]);
        let train = || (0..left.len()).filter(|i| i % SHARE != 0).map(row);
        let with = Effects::fitted(count(levels), train());
        let without = Effects::fitted(1, train().map(|(_, r, d)| (0, r, d)));
        let gain = |i: usize| with.density(row(i)) - without.density((0, left[i], self.rows.noise[i]));
        let gains: Vec<f64> = (0..left.len()).step_by(SHARE).map(gain).collect();
        let n = gains.len() as f64;
        let mean = gains.iter().sum::<f64>() / n;
        let variance = gains.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        if mean > 2.0 * (variance / n).sqrt() { mean } else { 0.0 }
    }

    /// The columns that hold levels of others.
    fn level_columns(&self) -> std::ops::Range<usize> {
        self.columns.len() - self.recurring..self.columns.len()
    }

    /// The search on what effects of single values leave of the targets; then everything together.
    pub(super) fn run_beside_levels(&self) -> Result<(WarmUp, Choice)> {
        let dim = self.columns.len();
        let levels = self.level_columns().map(|c| self.rows.x.iter().skip(c).step_by(dim));
        let levels: Vec<Vec<usize>> = levels.map(|column| column.map(|&l| l as usize).collect()).collect();
        let mut rows = self.rows.clone();
        let mut effects: Vec<Effects> = Vec::new();
        for _ in 0..ROUNDS {
            let smooth = AdditiveSearch { rows: &rows, ..*self };
            let mut left = smooth.fitted(&smooth.base(&rows)?, &rows, None)?.residuals()?.0;
            // What is not smooth: the residuals and the effects so far.
            left.iter_mut().zip(&self.rows.y).zip(&rows.y).for_each(|((r, y), adjusted)| *r += y - adjusted);
            rows.y.clone_from(&self.rows.y);
            effects.clear();
            for of_rows in &levels {
                let own = self.effects(of_rows, &left);
                for (i, &level) in of_rows.iter().enumerate() {
                    left[i] -= own.mean[level];
                    rows.y[i] -= own.mean[level];
                }
                effects.push(own);
            }
        }
        let (warm, choice) = AdditiveSearch { rows: &rows, ..*self }.run_smooth()?;
        Ok((self.with_levels(&warm, &effects)?, choice))
    }

    /// A block for the levels of each column beside those that were found without them, with the scale of its effects.
    fn with_levels(&self, warm: &WarmUp, effects: &[Effects]) -> Result<WarmUp> {
        let mut blocks = self.blocks_of(warm);
        let mut kernels = warm.hyperparameters().kernels.clone();
        let scale = kernels.get(blocks.len()).map(Kernel::variance);
        kernels.truncate(blocks.len());
        for (c, effects) in self.level_columns().zip(effects) {
            blocks.push(Block { axes: vec![Reading::Column(c)], points: self.points });
            let variance = (effects.ratio * effects.noise).max(RATIOS[0] * effects.noise);
            kernels.push(kernel_of(self.columns[c], 1, 0)?.scaled(variance));
        }
        let before = Hyperparameters { kernels, noise: warm.hyperparameters().noise };
        let points = warm.lattice().points().cloned().zip(scale);
        self.assembled(&blocks, self.rows, Some(&before), points)
    }
}

/// The number of levels, given that of each row.
fn count(levels: &[usize]) -> usize {
    levels.iter().max().map_or(0, |most| most + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the dense Gaussian with covariance σ²(ρ Z Zᵀ + D).
    #[test]
    fn effects_equal_a_dense_process() {
        let levels = [0usize, 1, 0, 2, 1, 0, 2, 2];
        let left = [0.9, -0.4, 1.1, 0.2, -0.7, 0.6, 0.1, -0.1];
        let noise = [1.0, 0.5, 2.0, 1.0, 1.0, 0.7, 1.5, 1.0];
        let rows = || levels.iter().zip(left).zip(noise).map(|((&l, r), d)| (l, r, d));
        let own = Effects::fitted(3, rows());
        assert!(own.ratio > 0.0);
        let n = left.len();
        let covariance = faer::Mat::from_fn(n, n, |i, j| {
            let same = if levels[i] == levels[j] { own.ratio } else { 0.0 };
            own.noise * (same + if i == j { noise[i] } else { 0.0 })
        });
        let factor = crate::dense::cholesky(covariance).unwrap();
        let inverse = crate::dense::inverse_of_cholesky(factor.as_ref());
        for level in 0..3 {
            let k = |i: usize| if levels[i] == level { own.ratio * own.noise } else { 0.0 };
            let full = |i: usize, j: usize| inverse[(i.max(j), i.min(j))];
            let mean: f64 = (0..n)
                .flat_map(|i| (0..n).map(move |j| (i, j)))
                .map(|(i, j)| k(i) * full(i, j) * left[j])
                .sum();
            assert!((mean - own.mean[level]).abs() < 1e-13, "{level}: {mean} {}", own.mean[level]);
            let taken: f64 =
                (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| k(i) * full(i, j) * k(j)).sum();
            let variance = own.ratio * own.noise - taken + own.noise * 1.3;
            let dense = -0.5 * (variance.ln() + (0.4 - mean).powi(2) / variance);
            assert!((own.density((level, 0.4, 1.3)) - dense).abs() < 1e-12);
        }
    }
}
