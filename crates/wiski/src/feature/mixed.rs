//! Columns of several kinds side by side: directions through the numeric ones, and periodic and categorical
//! columns as coordinates of their own.
//!
//! | column | coordinate | grid that suits it |
//! | --- | --- | --- |
//! | numeric | tanh(z/2) of learned directions ([`Linear`]) | covers [−1, 1] |
//! | periodic, period P | 2·frac(x/P) − 1 ∈ [−1, 1) | g points on the circle |
//! | categorical, L levels | the level 0 … L−1 itself | one point for each level |
//!
//! Inducing points read the same columns in another form: numeric ones as they are, periodic ones as cosine and sine,
//! categorical ones as one coordinate for each level.
//!
//! A row costs what the directions cost, O(kD), and nothing is learned about the other kinds here: what a level
//! or an hour means is learned by the process on the grid.

use std::f64::consts::PI;
use std::mem::take;

use serde::{Deserialize, Serialize};

use super::head::Normalizer;
use super::{Linear, Moments, Tape, check_entry};
use crate::error::{Error, Result};
use crate::saved::{Restore, restored_after_reading};

/// What the numbers of a column mean.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub enum Column {
    /// A quantity.
    #[default]
    Numeric,
    /// A place on a circle, such as an hour of the day (period 24) or a day of the year: x and x + period are
    /// the same.
    Periodic {
        /// The length of one turn, in the unit of the column.
        period: f64,
    },
    /// One of finitely many levels, written as 0, 1, …, `levels` − 1.
    Categorical {
        /// The number of levels, at least two.
        levels: usize,
        /// Whether neighboring levels resemble each other.
        ordered: bool,
    },
}

impl Column {
    /// Rejects periods and levels that describe no column.
    pub(crate) fn check(self, column: usize) -> Result<()> {
        let sound = match self {
            Self::Numeric => true,
            Self::Periodic { period } => period.is_finite() && period > 0.0,
            Self::Categorical { levels, .. } => (2..=1 << 12).contains(&levels),
        };
        if sound {
            return Ok(());
        }
        let reason = format!("{self:?} needs a positive period, or 2 to 4096 levels");
        Err(Error::Config { field: format!("columns[{column}]"), reason })
    }

    /// The coordinate of a value, for columns that are one by themselves.
    pub(crate) fn coordinate(self, column: usize, value: f64) -> Result<f64> {
        check_entry("x", column, value)?;
        match self {
            Self::Numeric => Ok(value),
            Self::Periodic { period } => Ok(2.0 * (value / period).rem_euclid(1.0) - 1.0),
            Self::Categorical { levels, .. } => {
                if value.fract() == 0.0 && value >= 0.0 && value < levels as f64 {
                    return Ok(value);
                }
                let reason = format!("{value} is not one of the levels 0 to {}", levels - 1);
                Err(Error::Config { field: format!("x[{column}]"), reason })
            }
        }
    }

    /// The derivative of the coordinate in the value.
    fn slope(self) -> f64 {
        match self {
            Self::Numeric => 1.0,
            Self::Periodic { period } => 2.0 / period,
            Self::Categorical { .. } => 0.0,
        }
    }
}

/// Where a coordinate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The next learned direction through the numeric columns.
    Direction,
    /// A periodic or categorical column.
    Column(usize),
    /// A numeric column as it is.
    Scaled(usize),
    /// cos(2π x/P) of a periodic column.
    Cosine(usize),
    /// sin(2π x/P) of a periodic column.
    Sine(usize),
    /// Whether a categorical column has a level: 1 or 0.
    Level(usize, usize),
}

impl Source {
    /// The column, of those that read one.
    pub(crate) fn column(self) -> Option<usize> {
        match self {
            Self::Direction => None,
            Self::Column(c) | Self::Scaled(c) | Self::Cosine(c) | Self::Sine(c) | Self::Level(c, _) => {
                Some(c)
            }
        }
    }

    /// Whether the source can read such a column.
    fn fits(self, column: Column) -> bool {
        match self {
            Self::Direction => true,
            Self::Column(_) => column != Column::Numeric,
            Self::Scaled(_) => column == Column::Numeric,
            Self::Cosine(_) | Self::Sine(_) => matches!(column, Column::Periodic { .. }),
            Self::Level(_, level) => matches!(column, Column::Categorical { levels, .. } if level < levels),
        }
    }

    /// The coordinate of a column's value.
    fn coordinate(self, column: Column, c: usize, value: f64) -> Result<f64> {
        Ok(match self {
            Self::Cosine(_) => (PI * column.coordinate(c, value)?).cos(),
            Self::Sine(_) => (PI * column.coordinate(c, value)?).sin(),
            Self::Level(_, level) => f64::from(u8::from(column.coordinate(c, value)? == level as f64)),
            Self::Direction | Self::Column(_) | Self::Scaled(_) => column.coordinate(c, value)?,
        })
    }

    /// The derivative of the coordinate in the value.
    fn slope(self, column: Column, value: f64) -> f64 {
        let turn = PI * value * column.slope();
        match self {
            // The coordinate is 2·frac(x/P) − 1: half a turn ahead.
            Self::Cosine(_) => PI * column.slope() * turn.sin(),
            Self::Sine(_) => -PI * column.slope() * turn.cos(),
            Self::Level(..) => 0.0,
            Self::Direction | Self::Column(_) | Self::Scaled(_) => column.slope(),
        }
    }
}

/// Directions through the numeric columns, and other columns as they are, in the order of the sources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Mixed {
    columns: Vec<Column>,
    #[serde(skip)]
    numeric: Vec<usize>,
    sources: Vec<Source>,
    linear: Option<Linear>,
}

restored_after_reading!(Mixed);

impl Restore for Mixed {
    fn restore(&mut self) -> Result<()> {
        *self = Self::new(take(&mut self.columns), take(&mut self.sources), self.linear.take())?;
        Ok(())
    }
}

impl Mixed {
    /// A map of the given columns: one coordinate for each source. `linear` maps the numeric columns and has
    /// one output for each [`Source::Direction`]; there is none if no source needs it.
    pub fn new(columns: Vec<Column>, sources: Vec<Source>, linear: Option<Linear>) -> Result<Self> {
        let reject = |reason: String| Err(Error::Config { field: "columns".into(), reason });
        let numeric: Vec<usize> = (0..columns.len()).filter(|&c| columns[c] == Column::Numeric).collect();
        columns.iter().enumerate().try_for_each(|(i, column)| column.check(i))?;
        let directions = sources.iter().filter(|s| **s == Source::Direction).count();
        let sizes = linear.as_ref().map_or((0, 0), |l| (l.output_dim(), l.input_dim()));
        if sizes.0 != directions || (directions > 0 && sizes.1 != numeric.len()) {
            let (found, width) = sizes;
            return reject(format!(
                "{directions} directions through {} numeric columns are wanted, not {found} through {width}",
                numeric.len()
            ));
        }
        for source in &sources {
            if let Some(c) = source.column()
                && columns.get(c).is_none_or(|&column| !source.fits(column))
            {
                return reject(format!("{source:?} does not suit column {c}"));
            }
        }
        if sources.is_empty() {
            return reject("a map needs at least one coordinate".into());
        }
        Ok(Self { columns, numeric, sources, linear })
    }

    /// What each column means.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Where each coordinate comes from.
    pub(crate) fn numeric(&self) -> &[usize] {
        &self.numeric
    }

    /// Where each coordinate comes from.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The directions through the numeric columns.
    pub fn linear(&self) -> Option<&Linear> {
        self.linear.as_ref()
    }

    pub(super) fn linear_mut(&mut self) -> Option<&mut Linear> {
        self.linear.as_mut()
    }

    /// D.
    pub fn input_dim(&self) -> usize {
        self.columns.len()
    }

    /// The number of coordinates.
    pub fn output_dim(&self) -> usize {
        self.sources.len()
    }

    /// The number of numeric columns, whose moments the directions need.
    pub(super) fn moments_dim(&self) -> usize {
        self.linear.as_ref().map_or(0, Linear::input_dim)
    }

    /// Adds the numeric columns of a row to the moments.
    pub(super) fn observe(&self, x: &[f64], moments: &mut Moments, tape: &mut Tape) -> Result<()> {
        if self.linear.is_none() {
            return Ok(());
        }
        self.gather(x, &mut tape.deltas);
        moments.observe(&tape.deltas)
    }

    pub(super) fn forget(&self, x: &[f64], moments: &mut Moments) -> Result<()> {
        let mut numeric = Vec::new();
        self.gather(x, &mut numeric);
        if self.linear.is_some() { moments.forget(&numeric) } else { Ok(()) }
    }

    fn gather(&self, x: &[f64], out: &mut Vec<f64>) {
        out.clear();
        out.extend(self.numeric.iter().map(|&c| x[c]));
    }

    pub(super) fn tape_size(&self) -> usize {
        self.linear.as_ref().map_or(0, Linear::tape_size)
    }

    pub(super) fn prepare(&self, moments: &Moments, work: &mut Normalizer) -> Result<()> {
        self.linear.as_ref().map_or(Ok(()), |linear| linear.prepare(moments, work))
    }

    pub(super) fn forward(&self, work: &Normalizer, x: &[f64], h: &mut [f64], tape: &mut Tape) -> Result<()> {
        if let Some(linear) = &self.linear {
            let mut numeric = std::mem::take(&mut tape.deltas);
            self.gather(x, &mut numeric);
            // The directions first come side by side at the front of h, then go to their places.
            let done = linear.forward(work, &numeric, &mut h[..linear.output_dim()], tape);
            tape.deltas = numeric;
            done?;
        } else {
            tape.values.clear();
        }
        tape.row.clear();
        tape.row.extend_from_slice(x);
        let mut next = self.linear.as_ref().map_or(0, Linear::output_dim);
        for (place, source) in self.sources.iter().enumerate().rev() {
            // From the back: a direction never moves to a place before the one it comes from.
            h[place] = match *source {
                Source::Direction => {
                    next -= 1;
                    h[next]
                }
                Source::Column(c)
                | Source::Scaled(c)
                | Source::Cosine(c)
                | Source::Sine(c)
                | Source::Level(c, _) => source.coordinate(self.columns[c], c, x[c])?,
            };
        }
        Ok(())
    }

    pub(super) fn backward(
        &self,
        work: &Normalizer,
        tape: &mut Tape,
        dh: &[f64],
        dphi: &mut [f64],
        mut dx: Option<&mut [f64]>,
    ) {
        if let Some(dx) = dx.as_deref_mut() {
            dx.fill(0.0);
            for (source, &d) in self.sources.iter().zip(dh) {
                if let Some(c) = source.column() {
                    dx[c] += d * source.slope(self.columns[c], tape.row[c]);
                }
            }
        }
        let Some(linear) = &self.linear else { return };
        let mut own = std::mem::take(&mut tape.deltas);
        own.clear();
        let directions = self.sources.iter().zip(dh).filter(|(s, _)| **s == Source::Direction);
        own.extend(directions.map(|(_, &d)| d));
        let k = own.len();
        own.resize(k + self.numeric.len(), 0.0);
        let (d_directions, d_numeric) = own.split_at_mut(k);
        let wanted = dx.is_some();
        linear.backward(work, tape, d_directions, dphi, if wanted { Some(&mut *d_numeric) } else { None });
        if let Some(dx) = dx {
            self.numeric.iter().zip(d_numeric).for_each(|(&c, &mut d)| dx[c] += d);
        }
        tape.deltas = own;
    }
}
