//! The rows to learn from: what a caller hands over, checked, and the same in standardized units.
//!
//! Columns are centered and divided by their deviation, so that starts, step lengths and priors of length-scales mean
//! the same whatever the caller's units are. A column with two values (a category) is divided by half its range
//! instead, since rare categories would be torn far apart; a constant column keeps its unit and has no effect.

use faer::Mat;

use crate::error::{Error, Result, finite, length, positive};

/// The noise variance σ² of an output, by which its relative noise is multiplied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PointsNoise {
    /// Learned.
    Learned,
    /// Learned, and no smaller than this: 1 for class targets, whose relative noise is the least that they have.
    AtLeast(f64),
    /// Known: 1 where relative noise is the noise.
    Fixed(f64),
}

impl PointsNoise {
    pub(super) fn is_learned(self) -> bool {
        !matches!(self, Self::Fixed(_))
    }
}

/// One function to be learned: centered targets with their noise.
#[derive(Debug, Clone, Copy)]
pub struct PointsOutput<'a> {
    /// The targets, about zero.
    pub targets: &'a [f64],
    /// The relative noise variances d; 1 where absent.
    pub relative_noise: Option<&'a [f64]>,
    /// The noise variance σ².
    pub noise: PointsNoise,
}

/// Features of other blocks (grids), whose weights have the prior N(0, I) at their present scales.
#[derive(Debug, Clone, Copy)]
pub struct GridFeatures<'a> {
    /// The features, row after row.
    pub values: &'a [f64],
    /// The number of features of each group; a group's variance is multiplied by one learned number.
    pub groups: &'a [usize],
}

/// Rows in memory.
#[derive(Debug, Clone, Copy)]
pub struct PointsRows<'a> {
    /// The inputs, row after row.
    pub x: &'a [f64],
    /// The number of columns.
    pub dim: usize,
    /// The outputs, which share centers and length-scales.
    pub outputs: &'a [PointsOutput<'a>],
    /// The features of the blocks beside the points.
    pub grids: Option<GridFeatures<'a>>,
}

impl PointsRows<'_> {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.x.len() / self.dim.max(1)
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.x.is_empty()
    }
}

/// Centers and units of the columns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Units {
    pub(super) center: Vec<f64>,
    pub(super) unit: Vec<f64>,
}

impl Units {
    fn of(x: &[f64], dim: usize) -> Self {
        let n = (x.len() / dim) as f64;
        let column = |k: usize| x.iter().skip(k).step_by(dim).copied();
        let center: Vec<f64> = (0..dim).map(|k| column(k).sum::<f64>() / n).collect();
        let unit = (0..dim).map(|k| {
            let (lo, hi) = column(k).fold((f64::MAX, f64::MIN), |(lo, hi), v| (lo.min(v), hi.max(v)));
            let deviation = (column(k).map(|v| (v - center[k]).powi(2)).sum::<f64>() / n).sqrt();
            let unit = if column(k).all(|v| v == lo || v == hi) { 0.5 * (hi - lo) } else { deviation };
            if unit > 1e-12 * lo.abs().max(hi.abs()) { unit } else { 1.0 }
        });
        let unit = unit.collect();
        Self { center, unit }
    }

    /// The rows as columns of a matrix, in these units.
    pub(super) fn standardized(&self, x: &[f64]) -> Mat<f64> {
        let d = self.unit.len();
        Mat::from_fn(d, x.len() / d, |k, i| (x[i * d + k] - self.center[k]) / self.unit[k])
    }
}

/// One output of a [`Table`].
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) y: Vec<f64>,
    /// 1/d.
    pub(super) precision: Vec<f64>,
    pub(super) noise: PointsNoise,
}

impl Target {
    /// The mean square of the targets: the unit of scales and noise.
    pub(super) fn mean_square(&self) -> f64 {
        let sum: f64 = self.y.iter().map(|y| y * y).sum();
        (sum / self.y.len().max(1) as f64).max(f64::MIN_POSITIVE.sqrt())
    }
}

/// Rows in standardized units, one column of each matrix for a row.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) x: Mat<f64>,
    pub(super) grids: Mat<f64>,
    pub(super) groups: Vec<usize>,
    pub(super) targets: Vec<Target>,
}

impl Table {
    /// Checks the rows and brings them into their own units.
    pub(super) fn new(rows: &PointsRows) -> Result<(Self, Units)> {
        check(rows)?;
        let units = Units::of(rows.x, rows.dim);
        let table = Self::in_units(rows, &units);
        Ok((table, units))
    }

    /// Checks the rows and brings them into the units of others.
    pub(super) fn with_units(rows: &PointsRows, units: &Units) -> Result<Self> {
        length("columns", units.unit.len(), rows.dim)?;
        check(rows)?;
        Ok(Self::in_units(rows, units))
    }

    fn in_units(rows: &PointsRows, units: &Units) -> Self {
        let n = rows.len();
        let target = |o: &PointsOutput| Target {
            y: o.targets.to_vec(),
            precision: o
                .relative_noise
                .map_or_else(|| vec![1.0; n], |d| d.iter().map(|d| d.recip()).collect()),
            noise: o.noise,
        };
        let (values, groups) = rows.grids.map_or((&[][..], &[][..]), |g| (g.values, g.groups));
        let p = values.len() / n;
        Self {
            x: units.standardized(rows.x),
            grids: Mat::from_fn(p, n, |a, i| values[i * p + a]),
            groups: groups.to_vec(),
            targets: rows.outputs.iter().map(target).collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.x.ncols()
    }

    pub(super) fn dim(&self) -> usize {
        self.x.nrows()
    }

    /// The chosen rows.
    pub(super) fn select(&self, rows: &[usize]) -> Self {
        let columns = |m: &Mat<f64>| Mat::from_fn(m.nrows(), rows.len(), |k, i| m[(k, rows[i])]);
        let pick = |v: &[f64]| rows.iter().map(|&i| v[i]).collect();
        let target = |t: &Target| Target { y: pick(&t.y), precision: pick(&t.precision), noise: t.noise };
        Self {
            x: columns(&self.x),
            grids: columns(&self.grids),
            groups: self.groups.clone(),
            targets: self.targets.iter().map(target).collect(),
        }
    }
}

fn check(rows: &PointsRows) -> Result<()> {
    let reject =
        |field: &str, reason: &str| Err(Error::Config { field: field.into(), reason: reason.into() });
    if rows.dim == 0 || rows.x.is_empty() {
        return reject("x", "inducing points need at least one row and one column");
    }
    let n = rows.len();
    length("x", n * rows.dim, rows.x.len())?;
    for (i, &v) in rows.x.iter().enumerate() {
        finite("x", v, i / rows.dim).map_err(|_| Error::NotFinite {
            field: format!("x[{}]", i % rows.dim),
            value: v,
            row: i / rows.dim,
        })?;
    }
    if rows.outputs.is_empty() {
        return reject("outputs", "there is no target to learn");
    }
    for output in rows.outputs {
        length("targets", n, output.targets.len())?;
        output.targets.iter().enumerate().try_for_each(|(i, &y)| finite("y", y, i))?;
        if let Some(d) = output.relative_noise {
            length("relative noise", n, d.len())?;
            d.iter().enumerate().try_for_each(|(i, &d)| positive("relative noise", d, i))?;
        }
        if let PointsNoise::AtLeast(noise) | PointsNoise::Fixed(noise) = output.noise {
            positive("noise", noise, 0)?;
        }
    }
    if let Some(grids) = rows.grids {
        let p: usize = grids.groups.iter().sum();
        length("grid features", n * p, grids.values.len())?;
        grids.values.iter().enumerate().try_for_each(|(i, &v)| finite("grid feature", v, i / p.max(1)))?;
    }
    Ok(())
}
