//! Sufficient statistics: the only thing that data touches.
//!
//! ```text
//! A = Wᵀ D⁻¹ W      b = Wᵀ D⁻¹ y      c = yᵀ D⁻¹ y      ℓ = Σ log d_i      n
//! ```
//!
//! and, where inducing points stand behind the grids, t = Σ ρ_i/d_i: what these leave of each observation
//! ([`internals::points`](crate::internals::points)).
//!
//! W holds one row of interpolation weights per observation and D the known relative noise d_i (1 if none is
//! known). They depend on the data, the grids and nothing else: not on kernels, not on the noise level σ².
//! They are sums over observations, so they can be updated in constant time, merged, un-learned, decayed and
//! moved to a larger grid, all exactly.
//!
//! ```
//! use wiski::{Grid, Stats};
//! let grid = Grid::covering(&[(0.0, 1.0)], &[16])?;
//! let (mut a, mut b) = (Stats::new(grid.clone()), Stats::new(grid));
//! a.observe(&[0.25], 1.0, 1.0)?;
//! b.observe(&[0.75], 2.0, 1.0)?;
//! a.merge(&b)?;
//! assert_eq!(a.count(), 2.0);
//! # Ok::<(), wiski::Error>(())
//! ```

mod compact;
mod exact;
mod products;
mod root;
mod saved;
mod thin;

pub(crate) use compact::{Reader, damaged};
pub(crate) use exact::{ExactStats, ExactSum};
pub use products::Whitened;
pub use root::LowRankRoot;
use saved::SavedStats;
pub(crate) use thin::{Prepared, ThinRoot};

use crate::error::{Error, Result, finite, length, positive};
use crate::grid::{Growth, Lattice};
use crate::interp::{POINTS_TOGETHER, Placement};
use crate::simd::dot;
use crate::structure::BlockMatrix;
use serde::{Deserialize, Serialize};

/// How A = WᵀD⁻¹W is kept.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub enum Gram {
    /// Exactly, as a stencil (or dense for small grids): the default.
    Exact(BlockMatrix),
    /// As the paper does: a root of limited rank.
    LowRank(LowRankRoot),
}

/// The sufficient statistics of a stream of observations over one or several grids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SavedStats")]
pub struct Stats {
    lattice: Lattice,
    gram: Gram,
    #[serde(with = "crate::saved::floats")]
    b: Vec<f64>,
    c: f64,
    log_noise: f64,
    count: f64,
    /// What only inducing points need.
    #[serde(skip_serializing_if = "Option::is_none")]
    points: Option<PointSums>,
    /// Reused between calls, so that observing does not allocate.
    #[serde(skip)]
    weights: Scratch,
}

/// The sums that are kept because of inducing points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PointSums {
    /// t = Σ ρ_i/d_i.
    residual: f64,
    /// WᵀD⁻¹1, 1ᵀD⁻¹y and 1ᵀD⁻¹1: the weights of a grid add up to one, so that A and b contain them; those of points
    /// do not.
    #[serde(with = "crate::saved::floats")]
    weights: Vec<f64>,
    targets: f64,
    total: f64,
}

impl PointSums {
    fn new(lattice: &Lattice) -> Option<Self> {
        lattice.points()?;
        Some(Self { residual: 0.0, weights: vec![0.0; lattice.len()], targets: 0.0, total: 0.0 })
    }

    /// Adds `c` times the i-th observation of a placement.
    #[inline]
    fn add(&mut self, lattice: &Lattice, at: &Placement, i: usize, y: f64, c: f64) {
        self.residual += c * at.residual(i);
        lattice.scatter(at.row(lattice, i), c, &mut self.weights);
        self.targets += c * y;
        self.total += c;
    }
}

/// A buffer that never takes part in comparisons.
#[derive(Debug, Clone, Default)]
struct Scratch(Placement);

impl PartialEq for Scratch {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Stats {
    /// No observations yet, on the given grid or grids.
    pub fn new(lattice: impl Into<Lattice>) -> Self {
        let lattice = lattice.into();
        let gram = Gram::Exact(BlockMatrix::zeros(&lattice));
        Self::with_gram(lattice, gram)
    }

    /// No observations any more, in the same memory.
    pub(crate) fn emptied(mut self) -> Self {
        let Gram::Exact(a) = &mut self.gram else { return Self::new(self.lattice) };
        a.clear();
        self.b.fill(0.0);
        (self.c, self.log_noise, self.count) = (0.0, 0.0, 0.0);
        self.points = PointSums::new(&self.lattice);
        self
    }

    /// No observations yet, with A kept as a root of rank at most `rank` (the paper's form).
    pub fn low_rank(lattice: impl Into<Lattice>, rank: usize) -> Result<Self> {
        let lattice = lattice.into();
        if rank == 0 {
            return Err(Error::Config {
                field: "root rank".into(),
                reason: "a root needs at least rank 1".into(),
            });
        }
        reject_points(&lattice)?;
        let gram = Gram::LowRank(LowRankRoot::new(lattice.len(), rank));
        Ok(Self::with_gram(lattice, gram))
    }

    fn with_gram(lattice: Lattice, gram: Gram) -> Self {
        let (b, points) = (vec![0.0; lattice.len()], PointSums::new(&lattice));
        Self { lattice, gram, b, c: 0.0, log_noise: 0.0, count: 0.0, points, weights: Scratch::default() }
    }

    /// No observations, on the same grids and in the same form.
    pub fn cleared(&self) -> Result<Self> {
        match &self.gram {
            Gram::Exact(_) => Ok(Self::new(self.lattice.clone())),
            Gram::LowRank(root) => Self::low_rank(self.lattice.clone(), root.limit()),
        }
    }

    /// The grids.
    pub fn lattice(&self) -> &Lattice {
        &self.lattice
    }

    /// A = WᵀD⁻¹W.
    pub fn gram(&self) -> &Gram {
        &self.gram
    }

    /// b = WᵀD⁻¹y.
    pub fn b(&self) -> &[f64] {
        &self.b
    }

    /// c = yᵀD⁻¹y.
    pub fn c(&self) -> f64 {
        self.c
    }

    /// ℓ = Σ log d_i.
    pub fn log_noise(&self) -> f64 {
        self.log_noise
    }

    /// t = Σ ρ_i/d_i: how much of the observations inducing points leave; 0 without any.
    pub fn residual(&self) -> f64 {
        self.points.as_ref().map_or(0.0, |sums| sums.residual)
    }

    /// The number n of observations; after [`Stats::decay`] the sum of their weights.
    pub fn count(&self) -> f64 {
        self.count
    }

    /// Learns one observation: the point `h` on the grids, its target y and its noise variance relative to
    /// σ² (1 for plain data). About 16^d multiply-adds for a grid of d axes, independent of n and m; no
    /// allocation.
    pub fn observe(&mut self, h: &[f64], y: f64, noise: f64) -> Result<()> {
        self.check(h, y, noise, 0)?;
        self.lattice.weigh_on_points(h, &mut self.weights.0);
        self.add(y, noise, 1.0);
        Ok(())
    }

    /// As [`Stats::observe`], for a row that [`Stats::check_row`] has not rejected and whose weights are there already.
    pub(crate) fn observe_placed(&mut self, at: &mut Placement, y: f64, noise: f64) {
        std::mem::swap(&mut self.weights.0, at);
        self.add(y, noise, 1.0);
        std::mem::swap(&mut self.weights.0, at);
    }

    /// Learns many observations: `h` holds the points row after row. If any row is rejected, none is learned.
    pub fn observe_batch(&mut self, h: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<()> {
        let d = self.lattice.dim();
        length("x", y.len() * d, h.len())?;
        if let Some(noise) = noise {
            length("noise", y.len(), noise.len())?;
        }
        let noise_at = |row: usize| noise.map_or(1.0, |d| d[row]);
        for (row, point) in h.chunks_exact(d).enumerate() {
            self.check(point, y[row], noise_at(row), row)?;
        }
        if let Gram::LowRank(_) = self.gram {
            for (row, point) in h.chunks_exact(d).enumerate() {
                self.lattice.weigh(point, row, &mut self.weights.0)?;
                self.add(y[row], noise_at(row), 1.0);
            }
            return Ok(());
        }
        let mut precisions = Vec::with_capacity(POINTS_TOGETHER);
        for (chunk, points) in h.chunks(POINTS_TOGETHER * d).enumerate() {
            let rows = chunk * POINTS_TOGETHER..chunk * POINTS_TOGETHER + points.len() / d;
            self.lattice.weigh_all(points, rows.start, &mut self.weights.0)?;
            precisions.clear();
            precisions.extend(rows.clone().map(|row| noise_at(row).recip()));
            if let Gram::Exact(a) = &mut self.gram {
                a.add_outer(&self.lattice, &self.weights.0, &precisions);
            }
            for (i, row) in rows.enumerate() {
                let at = self.weights.0.row(&self.lattice, i);
                self.lattice.scatter(at, y[row] / noise_at(row), &mut self.b);
                if let Some(sums) = &mut self.points {
                    sums.add(&self.lattice, &self.weights.0, i, y[row], precisions[i]);
                }
            }
        }
        (0..y.len()).for_each(|row| self.add_scalars(y[row], noise_at(row), 1.0));
        Ok(())
    }

    /// Un-learns one observation that was learned before, with the same values. Exact up to rounding, as long
    /// as the statistics were not decayed since: a decayed observation no longer has its full weight.
    pub fn forget(&mut self, h: &[f64], y: f64, noise: f64) -> Result<()> {
        self.check(h, y, noise, 0)?;
        if self.count < 1.0 {
            return Err(Error::Unsupported { operation: "forget", reason: "no observation is left" });
        }
        if y * y / noise > self.c * (1.0 + 1e-9) + 1e-300 {
            // A sum of squares that does not even contain this one.
            let reason = "the target is larger than all that were learned: this row was not among them";
            return Err(Error::Unsupported { operation: "forget", reason });
        }
        self.lattice.weigh_on_points(h, &mut self.weights.0);
        if let Gram::LowRank(root) = &mut self.gram {
            let mut column = vec![0.0; self.lattice.len()];
            self.lattice.scatter(&self.weights.0, noise.sqrt().recip(), &mut column);
            root.remove(&column)?;
            self.add_moments(y, noise, -1.0);
            return Ok(());
        }
        self.add(y, noise, -1.0);
        Ok(())
    }

    /// Exponential forgetting: every observation so far counts `factor` times as much (0 < factor ≤ 1).
    pub fn decay(&mut self, factor: f64) -> Result<()> {
        if !(factor > 0.0 && factor <= 1.0) {
            let reason = format!("{factor} is not above 0 and at most 1");
            return Err(Error::Config { field: "decay factor".into(), reason });
        }
        match &mut self.gram {
            Gram::Exact(a) => a.scale(factor),
            Gram::LowRank(root) => root.scale(factor),
        }
        self.b.iter_mut().for_each(|b| *b *= factor);
        self.c *= factor;
        self.log_noise *= factor;
        self.count *= factor;
        if let Some(sums) = &mut self.points {
            sums.weights.iter_mut().for_each(|w| *w *= factor);
            sums.residual *= factor;
            sums.targets *= factor;
            sums.total *= factor;
        }
        Ok(())
    }

    /// Adds the statistics of another shard. The grids must have the same spacing and fall on the same
    /// points; they are extended to their union. Associative and commutative up to rounding.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.merge_within(other, crate::grid::MAX_POINTS)
    }

    /// As [`Stats::merge`], rejected if a grid would have more than `limit` points.
    pub fn merge_within(&mut self, other: &Self, limit: usize) -> Result<()> {
        if std::mem::discriminant(&self.gram) != std::mem::discriminant(&other.gram) {
            let reason = "one side keeps A exactly and the other as a low-rank root";
            return Err(Error::Unsupported { operation: "merge", reason });
        }
        let growth = self.lattice.growth_to_union(&other.lattice, limit)?;
        let growth_of_other = other.lattice.growth_to_union(&self.lattice, limit)?;
        self.grow(&growth)?;
        let mut grown = None;
        if !growth_of_other.is_none() {
            let mut copy = other.clone();
            copy.grow(&growth_of_other)?;
            grown = Some(copy);
        }
        let other = grown.as_ref().unwrap_or(other);
        match (&mut self.gram, &other.gram) {
            (Gram::Exact(a), Gram::Exact(b)) => a.add_scaled(1.0, b),
            (Gram::LowRank(a), Gram::LowRank(b)) => a.merge(b),
            _ => {}
        }
        self.b.iter_mut().zip(&other.b).for_each(|(a, &b)| *a += b);
        self.c += other.c;
        self.log_noise += other.log_noise;
        self.count += other.count;
        if let (Some(own), Some(other)) = (&mut self.points, &other.points) {
            own.weights.iter_mut().zip(&other.weights).for_each(|(a, &b)| *a += b);
            own.residual += other.residual;
            own.targets += other.targets;
            own.total += other.total;
        }
        Ok(())
    }

    /// Extends the grids, at the same spacing, until they cover the point; returns whether they had to grow.
    /// Rejected if a grid would have more than `limit` points. Exact: the new grid points have no data.
    pub fn extend_to(&mut self, h: &[f64], limit: usize) -> Result<bool> {
        length("x", self.lattice.dim(), h.len())?;
        let growth = self.lattice.growth_to(h, limit, 0)?;
        self.grow(&growth)?;
        Ok(!growth.is_none())
    }

    /// Extends the grids to contain those of another lattice.
    pub(crate) fn extend_to_lattice(&mut self, other: &Lattice) -> Result<()> {
        let growth = self.lattice.growth_to_union(other, crate::grid::MAX_POINTS)?;
        self.grow(&growth)
    }

    fn grow(&mut self, growth: &Growth) -> Result<()> {
        if growth.is_none() {
            return Ok(());
        }
        let (lattice, places) = self.lattice.grown(growth)?;
        let moved = |old: &[f64]| {
            let mut new = vec![0.0; lattice.len()];
            places.iter().zip(old).for_each(|(&place, &value)| new[place] = value);
            new
        };
        let b = moved(&self.b);
        if let Some(sums) = &mut self.points {
            sums.weights = moved(&sums.weights);
        }
        self.gram = match &self.gram {
            Gram::Exact(a) => Gram::Exact(a.embedded(&lattice, &places)),
            Gram::LowRank(root) => Gram::LowRank(root.embedded(lattice.len(), &places)),
        };
        self.b = b;
        self.lattice = lattice;
        Ok(())
    }

    /// The statistics of rows whose noise is `unit` times as large, for a power of two.
    pub(crate) fn scale_noise(&mut self, unit: f64) {
        if unit == 1.0 {
            return;
        }
        if let Gram::Exact(a) = &mut self.gram {
            a.scale(unit.recip());
        }
        self.b.iter_mut().for_each(|b| *b /= unit);
        self.c /= unit;
        self.log_noise += self.count * unit.ln();
        if let Some(sums) = &mut self.points {
            sums.weights.iter_mut().for_each(|w| *w /= unit);
            sums.residual /= unit;
            sums.targets /= unit;
            sums.total /= unit;
        }
    }

    /// The statistics of the targets (y − shift)/scale instead of y.
    ///
    /// Exact without further sums: interpolation weights add up to one on each grid, so that
    /// WᵀD⁻¹1 = A e, 1ᵀD⁻¹y = eᵀb and 1ᵀD⁻¹1 = eᵀA e for e = one on the first grid, zero elsewhere. With inducing
    /// points, which may stand alone and whose weights do not add up to one, these sums are kept.
    ///
    /// Sums of uncentred targets lose digits, (mean/deviation)² of them relative to rounding: shift early.
    pub fn standardize_targets(&mut self, shift: f64, scale: f64) -> Result<()> {
        finite("target shift", shift, 0)?;
        positive("target scale", scale, 0)?;
        if let Gram::LowRank(_) = self.gram {
            let reason = "a low-rank root has lost part of the sums that this needs";
            return Err(Error::Unsupported { operation: "standardizing targets", reason });
        }
        let (weight, sum_1) = self.weight_sums();
        let sum_y: f64 = match &mut self.points {
            None => self.b[..self.lattice.grids()[0].len()].iter().sum(),
            Some(sums) => {
                let before = sums.targets;
                sums.targets = (before - shift * sum_1) / scale;
                before
            }
        };
        self.c = (self.c - 2.0 * shift * sum_y + shift * shift * sum_1) / (scale * scale);
        self.b.iter_mut().zip(&weight).for_each(|(b, &w)| *b = (*b - shift * w) / scale);
        Ok(())
    }

    /// W_jᵀD⁻¹1 of every block, one after the other, and 1ᵀD⁻¹1.
    fn weight_sums(&self) -> (Vec<f64>, f64) {
        if let Some(sums) = &self.points {
            return (sums.weights.clone(), sums.total);
        }
        // Weights add up to one on each grid, so W_jᵀD⁻¹1 = A_j1 e for e = one on the first grid.
        let first = self.lattice.grids()[0].len();
        let (mut ones, mut sums) = (vec![0.0; self.lattice.len()], vec![0.0; self.lattice.len()]);
        ones[..first].fill(1.0);
        self.apply(&ones, &mut sums);
        let total = sums[..first].iter().sum();
        (sums, total)
    }

    /// 1ᵀD⁻¹1: the sum of the weights of the observations, their number where no noise is known.
    pub(crate) fn total_weight(&self) -> f64 {
        self.weight_sums().1
    }

    /// The mean interpolation weights m_j of every block, one after the other: m_jᵀu_j is the mean over the data
    /// of block j's function.
    pub(crate) fn mean_weights(&self) -> Vec<f64> {
        let (mut sums, total) = self.weight_sums();
        sums.iter_mut().for_each(|m| *m /= f64::max(total, f64::MIN_POSITIVE));
        sums
    }

    /// The share of each block in the sum of the variances, over the data, of the functions with grid values u:
    /// Var f_j = u_jᵀA_jj u_j/n − (m_jᵀu_j)². The shares add up to one.
    pub(crate) fn shares(&self, u: &[f64]) -> Vec<f64> {
        let (sums, total) = self.weight_sums();
        let total = total.max(f64::MIN_POSITIVE);
        let (mut own, mut image) = (vec![0.0; u.len()], vec![0.0; u.len()]);
        let mut variances = Vec::with_capacity(self.lattice.blocks());
        for block in (0..self.lattice.blocks()).map(|j| self.lattice.block(j)) {
            own.fill(0.0);
            own[block.clone()].copy_from_slice(&u[block.clone()]);
            self.apply(&own, &mut image);
            let square = dot(&u[block.clone()], &image[block.clone()]) / total;
            let center = dot(&u[block.clone()], &sums[block]) / total;
            variances.push((square - center * center).max(0.0));
        }
        let sum: f64 = variances.iter().sum();
        variances.iter().map(|v| if sum > 0.0 { v / sum } else { 0.0 }).collect()
    }

    /// Whether the grids cover a point.
    pub(crate) fn covers(&mut self, h: &[f64]) -> bool {
        self.lattice.locate(h, 0, self.weights.0.on_grids()).is_ok()
    }

    /// Rejects a row that [`Stats::observe`] would reject.
    pub(crate) fn check_row(&mut self, h: &[f64], y: f64, noise: f64, row: usize) -> Result<()> {
        self.check(h, y, noise, row)
    }

    /// Rejects a bad row; otherwise leaves its weights on the grids in the buffer. Inducing points reject none.
    fn check(&mut self, h: &[f64], y: f64, noise: f64, row: usize) -> Result<()> {
        self.lattice.locate(h, row, self.weights.0.on_grids())?;
        finite("y", y, row)?;
        positive("noise", noise, row)?;
        // What would overflow the sums is rejected while they are still sums.
        if !noise.recip().is_finite() {
            return Err(Error::NotPositive { field: "noise".into(), value: noise, row });
        }
        finite("y²/noise", y * y / noise, row)
    }

    /// Adds `sign` times the observation whose weights are in the buffer.
    #[inline]
    fn add(&mut self, y: f64, noise: f64, sign: f64) {
        match &mut self.gram {
            Gram::Exact(a) => a.add_outer(&self.lattice, &self.weights.0, &[sign / noise]),
            Gram::LowRank(root) => {
                let mut column = vec![0.0; self.lattice.len()];
                self.lattice.scatter(&self.weights.0, noise.sqrt().recip(), &mut column);
                root.add(&column);
            }
        }
        self.add_moments(y, noise, sign);
    }

    #[inline]
    fn add_moments(&mut self, y: f64, noise: f64, sign: f64) {
        self.lattice.scatter(&self.weights.0, sign * y / noise, &mut self.b);
        if let Some(sums) = &mut self.points {
            sums.add(&self.lattice, &self.weights.0, 0, y, sign / noise);
        }
        self.add_scalars(y, noise, sign);
    }

    #[inline]
    fn add_scalars(&mut self, y: f64, noise: f64, sign: f64) {
        self.c += sign * y * y / noise;
        if noise != 1.0 {
            self.log_noise += sign * noise.ln();
        }
        self.count += sign;
    }
}

/// Rejects inducing points where A is kept as a root of limited rank.
fn reject_points(lattice: &Lattice) -> Result<()> {
    if lattice.points().is_none() {
        return Ok(());
    }
    let reason = "inducing points need the exact statistics";
    Err(Error::Unsupported { operation: "a root of limited rank", reason })
}
