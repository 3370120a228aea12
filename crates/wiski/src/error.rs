//! The one error type of the library. Its fields are names and numbers, so that a caller can react and a
//! person can see which value was wrong and where.

use std::fmt;
use std::io;
use std::sync::Arc;

/// What can go wrong, with the offending value and its place.
///
/// An operation that returns an error has not changed what the model has learned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number is NaN or infinite.
    #[error("{field} is {value} in row {row}: every number must be finite")]
    NotFinite {
        /// Which number, for example `x[2]` or `y`.
        field: String,
        /// Its value.
        value: f64,
        /// The row of the batch, counted from 0 (0 for a single point).
        row: usize,
    },

    /// A number that must be positive is not.
    #[error("{field} is {value} in row {row}: it must be positive and finite")]
    NotPositive {
        /// Which number, for example `noise` or `lengthscale[0]`.
        field: String,
        /// Its value.
        value: f64,
        /// The row of the batch, counted from 0 (0 for a single value).
        row: usize,
    },

    /// An input has the wrong number of columns, or two slices do not fit together.
    #[error("{field} has {found} values where {expected} are needed")]
    WrongLength {
        /// Which slice.
        field: String,
        /// The length needed.
        expected: usize,
        /// The length given.
        found: usize,
    },

    /// A point lies outside the region that the grid covers.
    #[error("row {row} lies off the grid: axis {axis} covers [{lo}, {hi}] but the value is {value}")]
    OutsideGrid {
        /// The axis, counted from 0 over all grids of the model.
        axis: usize,
        /// The coordinate on that axis.
        value: f64,
        /// The smallest covered value.
        lo: f64,
        /// The largest covered value.
        hi: f64,
        /// The row of the batch, counted from 0 (0 for a single point).
        row: usize,
    },

    /// Extending the grid would need more points than allowed.
    #[error(
        "the grid would need {points} points on axis {axis} to reach {value}; at most {limit} grid points are allowed"
    )]
    GridTooLarge {
        /// The axis, counted from 0 over all grids of the model.
        axis: usize,
        /// The coordinate that was to be reached.
        value: f64,
        /// The number of points that axis would need.
        points: usize,
        /// The largest number of points the whole grid may have.
        limit: usize,
    },

    /// Two grids cannot be brought together.
    #[error("grids do not match on axis {axis}: {what} is {left} in one and {right} in the other")]
    GridMismatch {
        /// The axis, counted from 0 over all grids of the model.
        axis: usize,
        /// What differs: `step`, `alignment` (in steps) or `dimension`.
        what: &'static str,
        /// The value of the first grid.
        left: f64,
        /// The value of the second grid.
        right: f64,
    },

    /// A configuration cannot describe a model.
    #[error("{field}: {reason}")]
    Config {
        /// The setting.
        field: String,
        /// Why it was rejected.
        reason: String,
    },

    /// A point cannot be un-learned: the posterior does not contain it.
    #[error(
        "the point was never learned: its latent variance {variance} is not below its noise variance {noise}"
    )]
    NotLearned {
        /// The latent variance of the point under the posterior.
        variance: f64,
        /// The noise variance it was said to have.
        noise: f64,
    },

    /// A row carries a label that is not one of the known classes.
    #[error("label {label:?} in row {row} is not one of the known classes {known:?}")]
    UnknownLabel {
        /// The label.
        label: String,
        /// The classes known so far.
        known: Vec<String>,
        /// The row of the batch, counted from 0 (0 for a single row).
        row: usize,
    },

    /// An operation that this representation of the statistics cannot do exactly.
    #[error("{operation} is not possible here: {reason}")]
    Unsupported {
        /// The operation.
        operation: &'static str,
        /// Why.
        reason: &'static str,
    },

    /// Something was asked of a model that has too few rows yet: its warm-up is not over.
    #[error("{operation} is not possible yet: the warm-up is not over")]
    NotReady {
        /// What was asked.
        operation: &'static str,
    },

    /// The warm-up cannot be completed: not the fault of the row that would have completed it.
    #[error("the warm-up cannot be completed: {reason}")]
    WarmUp {
        /// Why.
        reason: String,
    },

    /// A file cannot be written, read or understood.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The operating system reports an error about a file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What it reports.
        source: IoError,
    },

    /// Work was ended from outside ([`Interrupt`](crate::Interrupt)) before it was done.
    #[error("interrupted")]
    Interrupted,

    /// An iterative method stopped before it reached its goal.
    #[error("{method} did not converge in {iterations} iterations: relative residual {residual:.3e}")]
    NoConvergence {
        /// The method.
        method: &'static str,
        /// The number of iterations done.
        iterations: usize,
        /// The last relative residual.
        residual: f64,
    },
}

impl Error {
    /// The error of a single point, with the row of its batch.
    pub(crate) fn in_row(self, row: usize) -> Self {
        match self {
            Self::NotFinite { field, value, .. } => Self::NotFinite { field, value, row },
            Self::NotPositive { field, value, .. } => Self::NotPositive { field, value, row },
            Self::OutsideGrid { axis, value, lo, hi, .. } => Self::OutsideGrid { axis, value, lo, hi, row },
            Self::UnknownLabel { label, known, .. } => Self::UnknownLabel { label, known, row },
            other => other,
        }
    }
}

/// An error of the operating system that can be copied: the same error for everybody who holds it.
#[derive(Debug, Clone)]
pub struct IoError(Arc<io::Error>);

impl IoError {
    /// What kind of error it is.
    pub fn kind(&self) -> io::ErrorKind {
        self.0.kind()
    }
}

impl From<io::Error> for IoError {
    fn from(error: io::Error) -> Self {
        Self(Arc::new(error))
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for IoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

impl PartialEq for IoError {
    /// Whether the two say the same.
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.to_string() == other.to_string()
    }
}

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Rejects NaN and infinities by name.
pub(crate) fn finite(field: impl Into<String>, value: f64, row: usize) -> Result<()> {
    if value.is_finite() { Ok(()) } else { Err(Error::NotFinite { field: field.into(), value, row }) }
}

/// Rejects everything but positive finite numbers by name.
pub(crate) fn positive(field: impl Into<String>, value: f64, row: usize) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(Error::NotPositive { field: field.into(), value, row })
    }
}

/// Rejects slices of the wrong length by name.
pub(crate) fn length(field: impl Into<String>, expected: usize, found: usize) -> Result<()> {
    if expected == found { Ok(()) } else { Err(Error::WrongLength { field: field.into(), expected, found }) }
}
