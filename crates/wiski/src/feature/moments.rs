//! Streaming first and second moments of a vector, without keeping any row.
//!
//! For rows x_1 … x_n ∈ R^D with weights ω_i (1 unless told otherwise) the struct holds
//!
//! ```text
//! W = Σ ω_i        μ = Σ ω_i x_i / W        Σ = Σ ω_i (x_i − μ)(x_i − μ)ᵀ
//! ```
//!
//! which is all that batch-norm of a linear map ever asks for: P x has mean Pμ and variance
//! diag(PΣPᵀ)/W for *every* P, also for one that is learned long after the rows have gone.
//!
//! | operation | formula | cost |
//! | --- | --- | --- |
//! | [`observe`](Moments::observe) | δ = x − μ; μ += δ ω/W'; Σ += δδᵀ ωW/W', W' = W + ω | O(D²) |
//! | [`merge`](Moments::merge) | the same with δ = μ_b − μ_a and both scatters added | O(D²) |
//! | [`forget`](Moments::forget) | the inverse of `observe` | O(D²) |
//! | [`decay`](Moments::decay) | W, Σ ← λW, λΣ | O(D²) |
//!
//! The mean is carried as an unevaluated sum of two numbers. A plain running mean of values near 10⁹ loses
//! half a unit in its last place (6·10⁻⁸) at every row, and this walks into the scatter; the second number
//! costs three additions a column beside D² multiplications and keeps the scatter at rounding level
//! whatever the offset.
//!
//! ```
//! use wiski::internals::feature::Moments;
//!
//! let mut left = Moments::new(2);
//! left.observe(&[1.0, 10.0])?;
//! left.observe(&[3.0, 10.0])?;
//! let mut right = Moments::new(2);
//! right.observe(&[5.0, 16.0])?;
//!
//! left.merge(&right)?;
//! assert_eq!(left.rows(), 3);
//! assert!((left.mean()[0] - 3.0).abs() < 1e-15 && (left.mean()[1] - 12.0).abs() < 1e-14);
//! assert!((left.variance(0) - 8.0 / 3.0).abs() < 1e-15);
//! # Ok::<(), wiski::Error>(())
//! ```

use crate::error::{Error, Result, length, positive};
use serde::{Deserialize, Serialize};

use super::{check_entry, check_finite};
use crate::saved::{Restore, restored_after_reading};
use crate::simd::dot;

/// Relative excess of a forgotten row's share of the scatter that still passes as rounding.
const FORGET_SLACK: f64 = 1e-6;

/// Weight, mean and scatter of the rows seen so far. See the [module](self) for formulas and costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Moments {
    rows: u64,
    weight: f64,
    /// The mean, rounded.
    #[serde(with = "crate::saved::floats")]
    mean: Vec<f64>,
    /// What rounding took from `mean`; at most half a unit in its last place.
    #[serde(with = "crate::saved::floats")]
    tail: Vec<f64>,
    /// Σ, D×D row-major, exactly symmetric.
    #[serde(with = "crate::saved::floats")]
    scatter: Vec<f64>,
}

restored_after_reading!(Moments);

impl Restore for Moments {
    fn restore(&mut self) -> Result<()> {
        length("tail of the mean", self.dim(), self.tail.len())?;
        length("scatter", self.dim() * self.dim(), self.scatter.len())?;
        check_finite("mean", &self.mean)?;
        check_finite("scatter", &self.scatter)
    }
}

impl Moments {
    /// The moments of no rows in `dim` columns.
    pub fn new(dim: usize) -> Self {
        Self {
            rows: 0,
            weight: 0.0,
            mean: vec![0.0; dim],
            tail: vec![0.0; dim],
            scatter: vec![0.0; dim * dim],
        }
    }

    /// The moments of the rows of `x`, which holds `dim` values a row.
    pub fn from_rows(x: &[f64], dim: usize) -> Result<Self> {
        let mut moments = Self::new(dim);
        for (row, values) in rows_of("x", x, dim)?.enumerate() {
            moments.observe(values).map_err(|error| at_row(error, row))?;
        }
        Ok(moments)
    }

    /// The number of columns D.
    pub fn dim(&self) -> usize {
        self.mean.len()
    }

    /// How many rows are inside: observed and merged ones, less the forgotten. Decay leaves it alone.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The total weight W: the number of rows, unless rows were weighted or decayed.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// The mean μ (zeros before the first row).
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The scatter Σ, D×D row-major and symmetric. Divide by [`weight`](Self::weight) for the covariance.
    pub fn scatter(&self) -> &[f64] {
        &self.scatter
    }

    /// The variance Σ_ii/W of column `i` (0 before the first row and for a column that does not exist).
    pub fn variance(&self, i: usize) -> f64 {
        let at = i.saturating_mul(self.dim() + 1);
        if i < self.dim() && self.weight > 0.0 { self.scatter[at].max(0.0) / self.weight } else { 0.0 }
    }

    /// The variances of all columns.
    pub fn variances(&self) -> impl Iterator<Item = f64> + '_ {
        (0..self.dim()).map(|i| self.variance(i))
    }

    /// Adds one row.
    pub fn observe(&mut self, x: &[f64]) -> Result<()> {
        self.observe_weighted(x, 1.0)
    }

    /// Adds one row with a positive weight.
    pub fn observe_weighted(&mut self, x: &[f64], weight: f64) -> Result<()> {
        self.observe_fading(x, weight, 1.0)
    }

    /// Decays by `lambda` and then adds a row, or does neither: an error leaves the moments as they were.
    pub(super) fn observe_fading(&mut self, x: &[f64], weight: f64, lambda: f64) -> Result<()> {
        self.check_row(x)?;
        positive("weight", weight, 0)?;
        check_decay(lambda)?;
        let before = lambda * self.weight;
        let total = before + weight;
        let share = weight / total;
        for i in 0..self.dim() {
            let delta = self.deviation(i, x[i]);
            let joint = lambda * self.diagonal(i) + delta * delta * share * before;
            check_entry("scatter of x", i, joint)?;
        }
        if lambda != 1.0 {
            self.scatter.iter_mut().for_each(|s| *s *= lambda);
        }
        self.add_outer(x, share * before);
        for i in 0..self.dim() {
            let step = self.deviation(i, x[i]) * share;
            self.move_mean(i, step);
        }
        self.weight = total;
        self.rows += 1;
        Ok(())
    }

    /// Adds the rows of `other`, exactly as if they had been observed here (Chan's pairwise formula).
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        length("merged moments", self.dim(), other.dim())?;
        if other.rows == 0 {
            return Ok(());
        }
        if self.rows == 0 {
            self.clone_from(other);
            return Ok(());
        }
        let total = self.weight + other.weight;
        let share = other.weight / total;
        let d = self.dim();
        let delta = |a: &Self, i: usize| (other.mean[i] - a.mean[i]) + (other.tail[i] - a.tail[i]);
        for i in 0..d {
            let gap = delta(self, i);
            let joint = self.diagonal(i) + other.diagonal(i) + gap * gap * share * self.weight;
            check_entry("merged scatter of x", i, joint)?;
        }
        let factor = share * self.weight;
        for i in 0..d {
            let left = delta(self, i);
            for j in 0..d {
                let outer = left * delta(self, j) * factor;
                self.scatter[i * d + j] += other.scatter[i * d + j] + outer;
            }
        }
        for i in 0..d {
            let step = delta(self, i) * share;
            self.move_mean(i, step);
        }
        self.weight = total;
        self.rows += other.rows;
        Ok(())
    }

    /// Takes out a row that was observed with weight 1 and not decayed since.
    pub fn forget(&mut self, x: &[f64]) -> Result<()> {
        self.forget_weighted(x, 1.0)
    }

    /// Takes out a row whose weight is now `weight`: the one it was observed with times all decays since.
    ///
    /// A row whose deviation is larger than the whole scatter cannot have been observed and is rejected.
    /// Subtraction leaves rounding errors of the size 10⁻¹⁶ δ² behind: forgetting an outlier costs digits
    /// of what stays. Forgetting the last row empties the moments.
    pub fn forget_weighted(&mut self, x: &[f64], weight: f64) -> Result<()> {
        self.check_row(x)?;
        positive("weight", weight, 0)?;
        let rejected = |reason| Err(Error::Unsupported { operation: "forget", reason });
        if self.rows == 0 {
            return rejected("the moments hold no rows");
        }
        if self.rows == 1 {
            *self = Self::new(self.dim());
            return Ok(());
        }
        let left = self.weight - weight;
        if left <= f64::EPSILON * self.weight {
            return rejected("the row weighs as much as all rows together");
        }
        let factor = self.weight * (weight / left);
        for i in 0..self.dim() {
            let delta = self.deviation(i, x[i]);
            let noise = 100.0 * f64::EPSILON * (x[i].abs() + self.mean[i].abs());
            let slack = FORGET_SLACK * self.diagonal(i) + self.weight * noise * noise;
            // Written so that an overflow to infinity or NaN is rejected too.
            let possible = delta * delta * factor <= self.diagonal(i) + slack;
            if !possible {
                return rejected("the row deviates more than all rows together: it was never observed");
            }
        }
        self.add_outer(x, -factor);
        for i in 0..self.dim() {
            let step = -self.deviation(i, x[i]) * (weight / left);
            self.move_mean(i, step);
            let at = i * (self.dim() + 1);
            self.scatter[at] = self.scatter[at].max(0.0);
        }
        self.weight = left;
        self.rows -= 1;
        Ok(())
    }

    /// Multiplies the weight of everything seen by `lambda` in (0, 1]. Mean and covariance stay, and new
    /// rows count for more; decaying by λ before every row remembers about 1/(1 − λ) rows.
    pub fn decay(&mut self, lambda: f64) -> Result<()> {
        check_decay(lambda)?;
        self.weight *= lambda;
        self.scatter.iter_mut().for_each(|s| *s *= lambda);
        Ok(())
    }

    /// out = Σp/W, the covariance times a vector. O(D²).
    pub(super) fn covariance_times(&self, p: &[f64], out: &mut [f64]) {
        for (row, value) in self.scatter.chunks_exact(self.dim()).zip(out) {
            *value = dot(row, p) / self.weight;
        }
    }

    fn check_row(&self, x: &[f64]) -> Result<()> {
        length("x", self.dim(), x.len())?;
        check_finite("x", x)
    }

    fn diagonal(&self, i: usize) -> f64 {
        self.scatter[i * (self.dim() + 1)]
    }

    fn deviation(&self, i: usize, value: f64) -> f64 {
        (value - self.mean[i]) - self.tail[i]
    }

    /// Σ += factor · δδᵀ for δ = x − μ. (δ_i δ_j) is formed first so that Σ stays exactly symmetric.
    fn add_outer(&mut self, x: &[f64], factor: f64) {
        let d = self.dim();
        for i in 0..d {
            let left = self.deviation(i, x[i]);
            let row = &mut self.scatter[i * d..(i + 1) * d];
            for (((s, &value), &mean), &tail) in row.iter_mut().zip(x).zip(&self.mean).zip(&self.tail) {
                *s += left * ((value - mean) - tail) * factor;
            }
        }
    }

    /// μ_i += step in two-number arithmetic; |tail| stays within rounding of the mean.
    fn move_mean(&mut self, i: usize, step: f64) {
        let (high, low) = two_sum(self.mean[i], step);
        (self.mean[i], self.tail[i]) = two_sum(high, self.tail[i] + low);
    }
}

/// a + b = sum + rest exactly, sum being the rounded value.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let from_b = sum - a;
    let rest = (a - (sum - from_b)) + (b - from_b);
    (sum, rest)
}

fn check_decay(lambda: f64) -> Result<()> {
    positive("decay", lambda, 0)?;
    if lambda <= 1.0 {
        Ok(())
    } else {
        Err(Error::Config { field: "decay".into(), reason: format!("{lambda} is above 1") })
    }
}

/// Splits a flat array into rows of `dim` values, rejecting a ragged one.
pub(super) fn rows_of<'a>(field: &str, x: &'a [f64], dim: usize) -> Result<std::slice::ChunksExact<'a, f64>> {
    if dim == 0 {
        return Err(Error::Config { field: field.into(), reason: "rows need at least one column".into() });
    }
    length(field, x.len().div_ceil(dim) * dim, x.len())?;
    Ok(x.chunks_exact(dim))
}

/// Puts the row number into an error that was raised for a single row.
pub(super) fn at_row(error: Error, row: usize) -> Error {
    match error {
        Error::NotFinite { field, value, .. } => Error::NotFinite { field, value, row },
        other => other,
    }
}
