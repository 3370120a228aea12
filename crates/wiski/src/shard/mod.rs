//! Models of rows that lie on many machines: only sums travel.
//!
//! ```text
//! sample ─► Shape ──┬─► Shard of partition 1 ─┐
//!                   ├─► Shard of partition 2 ─┼─► merge ─► fit: a model like any other
//!                   └─► Shard of partition 3 ─┘
//! ```
//!
//! 1. A [`Shape`] is learned on a sample that fits in memory: scales, features, grids and inducing points.
//! 2. It is sent out, and each partition's rows go into a [`Shard`]: A = WᵀD⁻¹W, b = WᵀD⁻¹y, yᵀD⁻¹y and n
//!    ([`internals::stats`](crate::internals::stats)), 16^d multiply-adds a row and no posterior.
//! 3. Shards become bytes ([`Shard::to_bytes`]), travel and are added up, in any order and tree. Nothing is rounded on the
//!    way (`stats/exact.rs`), so the result is the same to the last bit.
//! 4. [`Shard::fit`] learns the hyperparameters from the sums alone, O(p³) whatever n is, and ends in a model file.
//!
//! What a shard takes in does not depend on what it has seen: whether a row is learned follows from the row and the shape.
//! A grid grows to rows off the grid in steps that the shape fixes, as far as it leaves room for; rows beyond
//! are counted ([`Shard::ignored`]) and left out. So any partition, in any order, gives the sums of one pass. Rows can be
//! taken out again ([`Shard::forget_batch`]), as can whole shards ([`Shard::unmerge`]): sliding windows.
//!
//! ```
//! use wiski::Settings;
//! use wiski::persist::Columns;
//! use wiski::shard::{Shape, Shard};
//!
//! let part = |from: u32, to: u32| -> (Vec<f64>, Vec<f64>) {
//!     let x: Vec<f64> = (from..to).map(|i| (f64::from(i) * 0.618).fract()).collect();
//!     let y = x.iter().map(|x| (6.0 * x).sin()).collect();
//!     (x, y)
//! };
//! let columns = Columns { inputs: vec!["x".into()], target: "y".into(), ..Columns::default() };
//! let (x, y) = part(0, 200);
//! let shape = Shape::learn(columns, &x, &y, None, Settings::default())?;
//!
//! // On each machine:
//! let gather = |from, to| {
//!     let (x, y) = part(from, to);
//!     let mut shard = Shard::new(&shape);
//!     shard.observe_batch(&x, &y, None)?;
//!     shard.to_bytes()
//! };
//! // On the driver:
//! let mut all = Shard::from_bytes(&gather(0, 5000)?)?;
//! all.merge(&Shard::from_bytes(&gather(5000, 10_000)?)?)?;
//! let model = all.fit()?.model;
//! assert_eq!(model.count(), 10_000.0);
//! # Ok::<(), wiski::Error>(())
//! ```

mod bytes;
mod shape;

pub use shape::Shape;

use crate::error::{Error, Result, finite, length, positive};
use crate::grid::Growth;
use crate::model::{ModelShape, OffGrid, TargetSums};
use crate::persist::{Model, Stored};
use crate::stats::{ExactStats, ExactSum, Stats};

/// The smallest known noise variance, as a share of the variance of the targets in the sample.
const LEAST_NOISE: f64 = 1e-10;

/// What the rows of one partition say, as sums.
#[derive(Debug, Clone)]
pub struct Shard {
    shape: Shape,
    /// The shape's own parts, with memory for encoding rows.
    model: ModelShape,
    /// On the shape's lattice, as far as it has grown; noise in units of `unit`.
    sums: ExactStats,
    growth: Growth,
    /// Σy and Σy².
    targets: [ExactSum; 2],
    /// A power of two, in which known noise is of the order of one.
    unit: f64,
    ignored: u64,
    buffers: Buffers,
}

/// Reused from batch to batch.
#[derive(Debug, Clone, Default)]
struct Buffers {
    /// The coordinates of the rows.
    h: Vec<f64>,
    /// Their targets in units of the shape.
    y: Vec<f64>,
    /// Their noise, where it is known.
    noise: Vec<f64>,
}

impl Shard {
    /// No rows yet.
    pub fn new(shape: &Shape) -> Self {
        let model = shape.model().clone();
        let (sums, growth) = (ExactStats::new(model.lattice.clone()), Growth::none(&model.lattice));
        // Observations of a process that is worth learning are more precise than its targets spread.
        let spread = model.scale.scale.powi(2).log2().floor().clamp(-900.0, 900.0);
        let unit = if model.knows_noise() { (spread - 6.0).exp2() } else { 1.0 };
        let (shape, targets, buffers) = (shape.clone(), Default::default(), Buffers::default());
        Self { shape, model, sums, growth, targets, unit, ignored: 0, buffers }
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The number of rows learned.
    pub fn count(&self) -> f64 {
        self.sums.count()
    }

    /// How many rows lay further out than the grids may grow, so that nothing was learned of them.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// The sums as doubles: targets in the units of the shape.
    pub fn stats(&self) -> Stats {
        let mut stats = self.sums.total();
        stats.scale_noise(self.unit);
        stats
    }

    /// The bytes that the shard takes in memory, buffers included.
    pub fn memory(&self) -> usize {
        let buffers = self.buffers.h.capacity() + self.buffers.y.capacity() + self.buffers.noise.capacity();
        size_of::<Self>() + self.sums.bytes() + size_of::<f64>() * buffers
    }

    /// Learns many rows, given one after the other, with their noise variances where the shape's noise is known. If any
    /// row is rejected, none is learned.
    pub fn observe_batch(&mut self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<()> {
        self.place(x, y, noise)?;
        self.ignored += self.left_out(x);
        self.add(1.0)
    }

    /// Un-learns many rows that were learned before with the same values, all of them or none: exactly, the sums are those
    /// of the other rows to the last bit.
    pub fn forget_batch(&mut self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<()> {
        self.place(x, y, noise)?;
        self.ignored = self.left(self.buffers.y.len() as f64, self.left_out(x))?;
        self.add(-1.0)
    }

    /// Adds `sign` times the rows in the buffers.
    fn add(&mut self, sign: f64) -> Result<()> {
        let Buffers { h, y, noise } = &self.buffers;
        self.sums.add(h, y, (!noise.is_empty()).then_some(noise), sign)?;
        for y in y {
            self.targets[0].add(sign * y);
            self.targets[1].add(sign * (y * y));
        }
        Ok(())
    }

    /// How many of the rows are not in the buffers.
    fn left_out(&self, x: &[f64]) -> u64 {
        (x.len() / self.model.input_dim - self.buffers.y.len()) as u64
    }

    /// How many rows that were left out remain if so many are taken away; rejected if there are not as many.
    fn left(&self, rows: f64, ignored: u64) -> Result<u64> {
        let reason = "fewer rows were learned: these were not all among them";
        let left = self.ignored.checked_sub(ignored).filter(|_| self.count() >= rows);
        left.ok_or(Error::Unsupported { operation: "forget", reason })
    }

    /// Adds what another shard of the same shape has learned.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.merge_signed(other, 1.0, self.ignored + other.ignored)
    }

    /// Takes out again what was added by [`Shard::merge`], exactly.
    pub fn unmerge(&mut self, other: &Self) -> Result<()> {
        self.merge_signed(other, -1.0, self.left(other.count(), other.ignored)?)
    }

    fn merge_signed(&mut self, other: &Self, sign: f64, ignored: u64) -> Result<()> {
        if self.shape.id() != other.shape.id() {
            let reason = "the two shards have different shapes";
            return Err(Error::Unsupported { operation: "merge", reason });
        }
        self.sums.merge(&other.sums, sign)?;
        self.growth.include(&other.growth);
        self.targets.iter_mut().zip(&other.targets).for_each(|(own, other)| own.merge(other, sign));
        self.ignored = ignored;
        Ok(())
    }

    /// The model of all rows, with hyperparameters learned from the sums: as any other model from there on.
    pub fn fit(&self) -> Result<Stored> {
        let [first, second] = self.targets.map(|sum| sum.value());
        let targets = TargetSums { count: self.count(), first, second };
        let model = self.model.fit(self.stats(), &targets, self.ignored)?;
        let mut stored = Stored::new(self.shape.columns().clone(), Model::Regressor(Box::new(model)))?;
        stored.rows = self.count() as u64 + self.ignored;
        Ok(stored)
    }

    /// Checks rows and leaves coordinates, targets and noise of those that are to be learned in the buffers; the grids
    /// grow to cover them.
    fn place(&mut self, x: &[f64], y: &[f64], noise: Option<&[f64]>) -> Result<()> {
        let d = self.model.input_dim;
        length("x", y.len() * d, x.len())?;
        self.check_noise(y.len(), noise)?;
        if let Some(at) = x.iter().position(|x| !x.is_finite()) {
            finite(format!("x[{}]", at % d), x[at], at / d)?;
        }
        if let Some(row) = y.iter().position(|y| !y.is_finite()) {
            finite("y", y[row], row)?;
        }
        let Buffers { h, y: targets, noise: noises } = &mut self.buffers;
        self.model.encode(x, h)?;
        let scale = self.model.scale;
        targets.clear();
        targets.extend(y.iter().map(|&y| scale.apply(y)));
        noises.clear();
        noises.extend(noise.unwrap_or_default().iter().map(|d| d / self.unit));
        if self.model.encoder.has_relative_noise() {
            let rows = h.chunks_exact(self.model.lattice.dim());
            noises.extend(rows.map(|h| self.model.encoder.relative_noise(h)));
        }
        // What would overflow the sums is rejected before anything changes.
        for (row, y) in targets.iter().enumerate() {
            finite("y²/noise", y * y / noises.get(row).unwrap_or(&1.0), row)?;
        }
        self.admit(x)
    }

    fn check_noise(&self, rows: usize, noise: Option<&[f64]>) -> Result<()> {
        match (noise, self.model.knows_noise()) {
            (None, false) => Ok(()),
            (Some(noise), true) => {
                length("noise", rows, noise.len())?;
                let least = LEAST_NOISE * self.model.scale.scale.powi(2);
                for (row, &d) in noise.iter().enumerate() {
                    positive("noise", d, row)?;
                    if d < least {
                        let reason =
                            format!("{d:e} is too small beside the targets; at least {least:.1e} is needed");
                        return Err(Error::Config { field: "noise".into(), reason });
                    }
                }
                Ok(())
            }
            (Some(_), false) => {
                let reason =
                    "this model learns its noise; a variance for each row needs one whose noise is known";
                Err(Error::Unsupported { operation: "known noise", reason })
            }
            (None, true) => {
                let reason = "the noise of this model is known, so every row needs its variance";
                Err(Error::Unsupported { operation: "gathering statistics", reason })
            }
        }
    }

    /// Lets the grids grow to the rows in the buffers, and leaves those out that there is no room for.
    fn admit(&mut self, x: &[f64]) -> Result<()> {
        let (d, width) = (self.model.input_dim, self.model.lattice.dim());
        let scaling = self.model.encoder.scaling();
        let extends = self.model.settings.off_grid == OffGrid::Extend;
        let is_reached = |x: &[f64]| !extends || scaling.reach.is_empty() || scaling.reaches(x);
        let corners = corners(&self.buffers.h, width);
        let covered = corners.iter().all(|corner| self.sums.lattice().check_covers(corner).is_ok());
        if self.buffers.y.is_empty() || covered && x.chunks_exact(d).all(is_reached) {
            return Ok(());
        }
        let mut growth = self.growth.clone();
        let mut kept = Vec::with_capacity(self.buffers.y.len());
        for (row, h) in self.buffers.h.chunks_exact(width).enumerate() {
            let needed = self.model.lattice.growth_within(h, self.shape.room());
            let needed = needed.filter(|_| is_reached(&x[row * d..(row + 1) * d]));
            if needed.is_none() && self.model.settings.off_grid == OffGrid::Error {
                return Err(self.model.lattice.outside(h, row));
            }
            kept.push(needed.is_some());
            needed.iter().for_each(|needed| growth.include(needed));
        }
        if growth != self.growth {
            let (lattice, _) = self.model.lattice.grown(&growth)?;
            self.sums.extend_to(&lattice)?;
            self.growth = growth;
        }
        let Buffers { h, y, noise } = &mut self.buffers;
        retain(h, width, &kept);
        retain(y, 1, &kept);
        retain(noise, 1, &kept);
        Ok(())
    }
}

/// Keeps the rows of `width` numbers that are marked.
fn retain(values: &mut Vec<f64>, width: usize, kept: &[bool]) {
    let mut at = 0;
    values.retain(|_| {
        at += 1;
        kept[(at - 1) / width]
    });
}

/// The lower and the upper corner of points given row after row.
fn corners(h: &[f64], width: usize) -> [Vec<f64>; 2] {
    let (mut lo, mut hi) = (vec![f64::INFINITY; width], vec![f64::NEG_INFINITY; width]);
    for point in h.chunks_exact(width) {
        lo.iter_mut().zip(point).for_each(|(lo, &h)| *lo = lo.min(h));
        hi.iter_mut().zip(point).for_each(|(hi, &h)| *hi = hi.max(h));
    }
    [lo, hi]
}
