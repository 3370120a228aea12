//! What a model says about itself: something in the data or in the fit that a user should know of.

use std::fmt;

use serde::Serialize;

use super::Wiski;
use super::corrections::Change;
use super::settings::{Features, Settings};
use crate::learn::wanted_spacing;

/// A length-scale below so many spacings is not resolved by its grid, nor is one whose grid is so many times coarser than
/// one that would be found for it: interpolation between the points then errs by more than the noise hides.
const RESOLVED: f64 = 1.0;
const COARSER: f64 = 3.0;

/// A grid may have so many points.
const MOST_POINTS: usize = 1_000_000;

/// Something that a user should know of, with what can be done about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "remark", rename_all = "snake_case")]
pub enum Remark {
    /// A column rises like a clock. A grid of one or two columns follows it and forgets what it has left behind; a sum of
    /// blocks leaves it out, since what comes next is never like anything before.
    Clock {
        /// The number of the column.
        column: usize,
        /// Whether a grid follows it.
        is_followed: bool,
    },
    /// Of very many columns only those are read that say most about the target by themselves.
    Unread {
        /// How many are not read.
        columns: usize,
        /// How many there are.
        of: usize,
    },
    /// A length-scale is not resolved by the points on its axis.
    Coarse {
        /// The number of the column.
        column: usize,
        /// The points on its axis.
        points: usize,
        /// The length-scale, in spacings.
        spacings: f64,
        /// The points that would resolve it, or as many of them as there are rows to tell their values.
        wanted: usize,
    },
    /// The stream moved away from the rows that features were learned from. They were learned anew, from a sample of all
    /// rows; of the others the model knows nothing any more.
    Sampled {
        /// How many others there were.
        others: u64,
    },
    /// Rows lay too far outside to be learned, and were left to the prior.
    OffGrid {
        /// How many.
        rows: u64,
    },
    /// Rows lacked an input, were predicted and not learned.
    Incomplete {
        /// How many.
        rows: u64,
    },
    /// Targets were too far off to be anything but outliers, and count for little.
    Outliers {
        /// How many.
        rows: u64,
    },
    /// A column, or the target, has not changed for longer than ever before.
    Stuck {
        /// The number of the column; none for the target.
        column: Option<usize>,
        /// For how many rows.
        rows: u64,
    },
    /// The last rows are not what the model learned of all of them, and predictions for the next one are corrected.
    Changed(Change),
}

impl Remark {
    /// The remark with the names of the columns.
    pub fn text(&self, names: &[String]) -> String {
        let name = |column: usize| names.get(column).map_or_else(|| format!("column {column}"), Clone::clone);
        match *self {
            Self::Clock { column, is_followed: true } => {
                format!("{} rises like a clock: the grid follows it and forgets what is behind", name(column))
            }
            Self::Clock { column, is_followed: false } => format!(
                "{} rises like a clock and is left out: what comes next is like nothing before; a half-life lets old rows fade",
                name(column)
            ),
            Self::Unread { columns, of } => {
                format!(
                    "{columns} of {of} columns are not read: what they say by themselves is next to nothing"
                )
            }
            Self::Coarse { column, points, spacings, wanted } => format!(
                "{points} points on {} are too few: its length-scale is {spacings:.2} of their spacing; give the grid {wanted} or more, or learn the rows anew in random order and leave it to the model",
                name(column)
            ),
            Self::Sampled { others } => format!(
                "the stream moved away from the rows that features were learned from, so they were learned anew from a sample of all rows, without {others} others"
            ),
            Self::OffGrid { rows } => {
                format!(
                    "{rows} rows, of which nothing was learned, lay off the grid and were left to the prior"
                )
            }
            Self::Incomplete { rows } => {
                format!(
                    "{rows} rows lacked an input: they were predicted by averaging over it, and not learned"
                )
            }
            Self::Outliers { rows } => format!(
                "the targets of {rows} rows were more than eight deviations off: they count as outliers, for next to nothing"
            ),
            Self::Stuck { column, rows } => format!(
                "{} has been the same for {rows} rows, longer than ever before: its source may have died",
                column.map_or_else(|| "the target".into(), name)
            ),
            Self::Changed(change) => format!(
                "the stream has changed: what is predicted for the next row is by {:.0} % what the last rows say, over a span of about {:.0}; rows further ahead are predicted by the model of all rows, which a half-life would let forget",
                100.0 * change.weight,
                change.span
            ),
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&[]))
    }
}

/// The axes of one grid of columns that do not resolve their length-scales.
pub(super) fn coarse_axes(model: &Wiski, settings: &Settings, input_dim: usize) -> Vec<Remark> {
    let lattice = model.stats().lattice();
    let [grid] = lattice.grids() else { return Vec::new() };
    if settings.features != Features::Identity || grid.dim() != input_dim {
        return Vec::new();
    }
    let hyper = model.hyperparameters();
    let finer = |column: usize| grid.axes()[column].step() / wanted_spacing(&hyper, column);
    // More points than rows have no rows that tell their values, and there is an end to what fits.
    let all = (0..input_dim).map(|column| finer(column).max(1.0)).product::<f64>();
    let most = (model.stats().count().min(MOST_POINTS as f64) / grid.len() as f64).max(1.0);
    let within = (most / all).min(1.0).powf((input_dim as f64).recip());
    let coarse = |column: usize| {
        let axis = &grid.axes()[column];
        let spacings = model.kernels()[0].shortest_lengthscale(column) / axis.step();
        let finer = finer(column);
        let wanted = ((axis.points() as f64 * finer * within).ceil() as usize).max(axis.points() + 1);
        // What lies between the points matters only where rows do.
        let is_seen = model.stats().count() > grid.len() as f64;
        let is_coarse = spacings < RESOLVED || is_seen && finer > COARSER;
        is_coarse.then_some(Remark::Coarse { column, points: axis.points(), spacings, wanted })
    };
    (0..input_dim).filter_map(coarse).collect()
}
