//! Statistics whose sums do not depend on the order of the rows, to the last bit.
//!
//! Rounding makes sums of doubles depend on their order, by 10⁻¹⁶ of their size: nothing, but a search for
//! hyperparameters that ends in a flat place carries it to the eighth digit and further. So rows that lie on many machines
//! are added up without rounding (as in Demmel and Nguyen, Fast reproducible floating-point summation, 2013):
//!
//! * Every product that goes into a sum is first rounded to a multiple of δ = 2⁻³⁸ (by adding 1.5·2¹⁴, where δ is the
//!   distance between neighboring doubles, and taking it away again), and sums of multiples of δ below 2¹⁵ are exact.
//! * Before a sum can get there, it is moved to a pair of numbers (`high`, an integer, and `low` in [0, 1)), again
//!   exactly. A row moves a sum by at most max(1, y²)/d, in the units at hand, and a row for which that is too
//!   much goes to the pair at once.
//!
//! The result is a function of the set of rows: of any partition, order and tree. Un-learning takes away the same multiples
//! of δ, so that what is left has never seen the row. Each product is off by at most 2⁻³⁹ = 2·10⁻¹² of the weight of one
//! row (weights are at most 1), and the mean of n of them by 2·10⁻¹²/√n.
//!
//! Symbols: a sum is T = high + low + fine.

use super::{Gram, Stats};
use crate::error::Result;
use crate::grid::Lattice;
use crate::interp::{POINTS_TOGETHER, Placed};
use crate::simd::rounded;

/// By how much a sum may move before it must be settled.
const ROOM: f64 = 8192.0;

/// What products of interpolation weights with the same sign can add up to on one grid point at most, with room for
/// rounding: each of them is at most 1.
const SLACK: f64 = 1.01;

/// Exact sums.
#[derive(Debug, Clone)]
pub(crate) struct ExactStats {
    /// Sums since then, and the number of all rows.
    fine: Stats,
    /// Integers and what is beyond them; none if nothing was settled yet.
    settled: Option<Box<(Stats, Stats)>>,
    /// How far a sum can have moved since it was settled.
    moved: f64,
}

impl ExactStats {
    /// No rows.
    pub(crate) fn new(lattice: Lattice) -> Self {
        Self { fine: Stats::new(lattice), settled: None, moved: 0.0 }
    }

    pub(crate) fn lattice(&self) -> &Lattice {
        &self.fine.lattice
    }

    pub(crate) fn count(&self) -> f64 {
        self.fine.count
    }

    /// The bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.fine.bytes() * if self.settled.is_some() { 3 } else { 1 }
    }

    /// Adds `sign` times many rows that were checked: coordinates on the grids, targets, and the noise of each where it
    /// is known.
    pub(crate) fn add(&mut self, h: &[f64], y: &[f64], noise: Option<&[f64]>, sign: f64) -> Result<()> {
        let d = self.lattice().dim();
        let mut from = 0;
        while from < y.len() {
            // As many rows as there is room for.
            let mut to = from;
            let mut moved = self.moved;
            while to < y.len() {
                let reach = reach(y[to], noise.map_or(1.0, |noise| noise[to]));
                if moved + reach > ROOM {
                    break;
                }
                (moved, to) = (moved + reach, to + 1);
            }
            if to > from {
                self.moved = moved;
                let noise = noise.map(|noise| &noise[from..to]);
                add_to::<true>(&mut self.fine, &h[from * d..to * d], &y[from..to], noise, sign)?;
                from = to;
            } else if self.moved > 0.0 {
                self.settle();
            } else {
                let noise = noise.map(|noise| &noise[from..=from]);
                self.add_far(&h[from * d..(from + 1) * d], &y[from..=from], noise, sign)?;
                from += 1;
            }
        }
        Ok(())
    }

    /// Adds one row that there is no room for.
    fn add_far(&mut self, h: &[f64], y: &[f64], noise: Option<&[f64]>, sign: f64) -> Result<()> {
        let mut own = Stats::new(self.lattice().clone());
        add_to::<false>(&mut own, h, y, noise, 1.0)?;
        let (high, low) = &mut **self.settled.get_or_insert_with(|| pair(self.fine.lattice.clone()));
        own.each_with(high, low, |value, high, low| {
            let whole = value.floor();
            let rest = rounded::<true>(*value - whole);
            *high += sign * whole;
            *low += sign * rest;
            carry(high, low);
        });
        self.fine.count += sign;
        Ok(())
    }

    /// Moves all sums to their pairs.
    fn settle(&mut self) {
        let (high, low) = &mut **self.settled.get_or_insert_with(|| pair(self.fine.lattice.clone()));
        self.fine.each_with(high, low, |fine, high, low| {
            *low += *fine;
            carry(high, low);
            *fine = 0.0;
        });
        self.moved = 0.0;
    }

    /// Adds `sign` times other sums, on the union of the grids.
    pub(crate) fn merge(&mut self, other: &Self, sign: f64) -> Result<()> {
        self.extend_to(other.lattice())?;
        let mut other = other.clone();
        other.extend_to(self.lattice())?;
        self.settle();
        other.settle();
        if let (Some(own), Some(other)) = (&mut self.settled, &mut other.settled) {
            let (high, low) = &mut **own;
            other.0.each_with(high, low, |value, high, _| *high += sign * *value);
            other.1.each_with(high, low, |value, high, low| {
                *low += sign * *value;
                carry(high, low);
            });
        }
        self.fine.count += sign * other.fine.count;
        Ok(())
    }

    /// Extends the grids to contain those of another lattice.
    pub(crate) fn extend_to(&mut self, lattice: &Lattice) -> Result<()> {
        if self.lattice().growth_to_union(lattice, crate::grid::MAX_POINTS)?.is_none() {
            return Ok(());
        }
        self.settle();
        let Some(settled) = &mut self.settled else { return Ok(()) };
        settled.0.extend_to_lattice(lattice)?;
        settled.1.extend_to_lattice(lattice)?;
        let count = self.fine.count;
        self.fine = Stats::new(settled.0.lattice.clone());
        self.fine.count = count;
        Ok(())
    }

    /// The sums as doubles, and what these leave of them.
    pub(crate) fn split(&self) -> (Stats, Stats) {
        let (mut value, mut rest) = (self.fine.clone(), Stats::new(self.lattice().clone()));
        if let Some(settled) = &self.settled {
            let (mut high, mut low) = (settled.0.clone(), settled.1.clone());
            value.each_with(&mut high, &mut low, |value, high, low| {
                let beyond = *low + *value;
                // Knuth's sum without loss.
                let sum = *high + beyond;
                let part = sum - *high;
                let left = (*high - (sum - part)) + (beyond - part);
                (*value, *high) = (sum, left);
            });
            rest = high;
        }
        rest.count = 0.0;
        (value, rest)
    }

    /// The sums from what [`ExactStats::split`] gave.
    pub(crate) fn join(mut value: Stats, mut rest: Stats) -> Self {
        let mut new = Self { fine: Stats::new(value.lattice.clone()), settled: None, moved: 0.0 };
        new.fine.count = value.count;
        let mut settled = pair(value.lattice.clone());
        let (high, low) = &mut *settled;
        value.each_with(high, low, |value, high, low| {
            *high = value.floor();
            *low = *value - *high;
        });
        rest.each_with(high, low, |rest, high, low| {
            *low += *rest;
            carry(high, low);
        });
        new.settled = Some(settled);
        new
    }

    /// The sums as doubles.
    pub(crate) fn total(&self) -> Stats {
        self.split().0
    }
}

/// How far a row can move a sum.
fn reach(y: f64, noise: f64) -> f64 {
    SLACK * (y * y).max(1.0).max(noise.ln().abs() * noise) / noise
}

/// Adds `sign` times rows, each product rounded or not. With inducing points they go one by one: a product of matrices
/// would add some up before they are rounded, and weights would depend on those beside them.
fn add_to<const ROUND: bool>(
    stats: &mut Stats,
    h: &[f64],
    y: &[f64],
    noise: Option<&[f64]>,
    sign: f64,
) -> Result<()> {
    let Stats { lattice, gram, b, c, log_noise, count, points, weights } = stats;
    let Gram::Exact(a) = gram else { return Ok(()) };
    let (d, at) = (lattice.dim(), &mut weights.0);
    let together = if points.is_some() { 1 } else { POINTS_TOGETHER };
    let mut precisions = [0.0; POINTS_TOGETHER];
    for (chunk, h) in h.chunks(together * d).enumerate() {
        let (first, n) = (chunk * together, h.len() / d);
        match points {
            Some(_) => lattice.weigh(h, first, at)?,
            None => lattice.weigh_all(h, first, at)?,
        }
        for i in 0..n {
            precisions[i] = sign / noise.map_or(1.0, |noise| noise[first + i]);
        }
        if ROUND {
            a.add_rounded(lattice, &*at, &precisions[..n]);
        } else {
            a.add_outer(lattice, &*at, &precisions[..n]);
        }
        for (i, &precision) in precisions[..n].iter().enumerate() {
            let y = y[first + i];
            let place = at.row(lattice, i);
            scatter::<ROUND>(lattice, place, precision * y, b);
            *c += rounded::<ROUND>(precision * (y * y));
            if let Some(noise) = noise {
                *log_noise += sign * rounded::<ROUND>(noise[first + i].ln());
            }
            if let Some(sums) = points {
                scatter::<ROUND>(lattice, place, precision, &mut sums.weights);
                sums.residual += rounded::<ROUND>(precision * at.residual(i));
                sums.targets += rounded::<ROUND>(precision * y);
                sums.total += rounded::<ROUND>(precision);
            }
        }
    }
    *count += sign * y.len() as f64;
    Ok(())
}

/// Adds c·w to values over all blocks, each product rounded or not.
fn scatter<const ROUND: bool>(lattice: &Lattice, at: Placed<'_>, c: f64, values: &mut [f64]) {
    for ((grid, &from), w) in lattice.grids().iter().zip(lattice.offsets()).zip(at.weights) {
        w.for_each(grid, |i, w| values[from + i] += rounded::<ROUND>(c * w));
    }
    let behind = &mut values[lattice.grid_len()..];
    behind.iter_mut().zip(at.dense).for_each(|(value, w)| *value += rounded::<ROUND>(c * w));
}

/// Keeps `low` in [0, 1).
#[inline]
fn carry(high: &mut f64, low: &mut f64) {
    let whole = low.floor();
    *high += whole;
    *low -= whole;
}

fn pair(lattice: Lattice) -> Box<(Stats, Stats)> {
    Box::new((Stats::new(lattice.clone()), Stats::new(lattice)))
}

impl Stats {
    /// All sums but the number of rows.
    fn numbers_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        use std::slice::from_mut;
        let gram = match &mut self.gram {
            Gram::Exact(a) => Some(a.parts_mut()),
            Gram::LowRank(_) => None,
        };
        let points = self.points.as_mut().into_iter().flat_map(|sums| {
            let scalars = [&mut sums.residual, &mut sums.targets, &mut sums.total];
            scalars.into_iter().map(from_mut).chain([sums.weights.as_mut_slice()])
        });
        let own = [self.b.as_mut_slice(), from_mut(&mut self.c), from_mut(&mut self.log_noise)];
        own.into_iter().chain(gram.into_iter().flatten()).chain(points)
    }

    /// Calls `f` with each sum and those of two others on the same lattice.
    fn each_with(&mut self, a: &mut Self, b: &mut Self, f: impl Fn(&mut f64, &mut f64, &mut f64)) {
        for ((own, a), b) in self.numbers_mut().zip(a.numbers_mut()).zip(b.numbers_mut()) {
            own.iter_mut().zip(a).zip(b).for_each(|((own, a), b)| f(own, a, b));
        }
    }
}

/// Exact sums of a few numbers of any size below 2⁵².
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct ExactSum {
    high: f64,
    low: f64,
}

impl ExactSum {
    /// Adds a number, to a multiple of δ.
    #[inline]
    pub(crate) fn add(&mut self, value: f64) {
        // Away from zero, so that what is added is taken away by the same number.
        let whole = value.trunc();
        let rest = rounded::<true>(value - whole);
        self.high += whole;
        self.low += rest;
        carry(&mut self.high, &mut self.low);
    }

    /// Adds `sign` times another sum.
    pub(crate) fn merge(&mut self, other: &Self, sign: f64) {
        self.high += sign * other.high;
        self.low += sign * other.low;
        carry(&mut self.high, &mut self.low);
    }

    /// The sum.
    pub(crate) fn value(&self) -> f64 {
        self.high + self.low
    }

    /// Both parts.
    pub(crate) fn parts(&self) -> [f64; 2] {
        [self.high, self.low]
    }

    /// The sum of two parts.
    pub(crate) fn of_parts([high, low]: [f64; 2]) -> Self {
        Self { high, low }
    }
}

#[cfg(test)]
mod tests;
