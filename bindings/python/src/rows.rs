//! Rows of numbers in NumPy arrays, read where they are.

use std::borrow::Cow;
use std::ops::Range;

use numpy::ndarray::{ArrayView2, Axis, Slice};
use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use wiski::model::Missing;
use wiski::{Error, Settings};

use crate::errors::Failure;

/// Rows that are learned or predicted under one lock: some milliseconds of work.
pub(crate) const BLOCK: usize = 256;

/// Rows of which a value lies beyond the range of its column: how many, and the first with its first such value.
pub(crate) struct Beyond {
    pub(crate) count: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
    pub(crate) value: f64,
}

/// The rows of a matrix in any memory layout.
pub(crate) struct Rows<'a> {
    view: ArrayView2<'a, f64>,
    /// All of it, if the rows lie one after the other.
    whole: Option<&'a [f64]>,
}

impl<'a> Rows<'a> {
    pub(crate) fn of(array: &'a PyReadonlyArray2<'_, f64>) -> Self {
        // A slice exists of columns that lie one after the other, too; here rows are meant.
        let view = array.as_array();
        let whole = if view.is_standard_layout() { array.as_slice().ok() } else { None };
        Self { view, whole }
    }

    pub(crate) fn len(&self) -> usize {
        self.view.nrows()
    }

    /// Rejects rows of another width.
    pub(crate) fn of_width(self, width: usize) -> Result<Self, Failure> {
        let found = self.view.ncols();
        if found == width {
            return Ok(self);
        }
        Err(Error::WrongLength { field: "a row of X".into(), expected: width, found }.into())
    }

    /// Some of the rows, one after the other: in place, or gathered if they lie scattered.
    pub(crate) fn block(&self, rows: Range<usize>) -> Cow<'_, [f64]> {
        let width = self.view.ncols();
        match self.whole {
            Some(all) => Cow::Borrowed(&all[rows.start * width..rows.end * width]),
            None => Cow::Owned(self.view.slice_axis(Axis(0), Slice::from(rows)).iter().copied().collect()),
        }
    }

    /// All blocks in turn, with the number of their first row.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Range<usize>, Cow<'_, [f64]>)> {
        let ranges = (0..self.len()).step_by(BLOCK).map(|first| first..self.len().min(first + BLOCK));
        ranges.map(|range| (range.clone(), self.block(range)))
    }

    /// The rows beyond the ranges of their columns, if there are any. What is missing is nowhere.
    pub(crate) fn beyond(&self, ranges: &[(f64, f64)]) -> Option<Beyond> {
        let mut found: Option<Beyond> = None;
        for (row, values) in self.view.rows().into_iter().enumerate() {
            let is_out = |(value, (lo, hi)): (&f64, &(f64, f64))| value < lo || value > hi;
            let Some(column) = values.iter().zip(ranges).position(is_out) else { continue };
            let first = Beyond { count: 0, row, column, value: values[column] };
            found.get_or_insert(first).count += 1;
        }
        found
    }

    /// Rejects infinities before anything is learned from any row, and NaN unless numbers may be missing.
    pub(crate) fn check_learned(&self, settings: &Settings) -> Result<(), Failure> {
        if settings.missing == Missing::Reject {
            return self.check_finite();
        }
        let bad = self.view.indexed_iter().find(|(_, v)| v.is_infinite());
        bad.map_or(Ok(()), |((row, k), &value)| Err(not_finite(row, k, value)))
    }

    /// Rejects NaN and infinities.
    pub(crate) fn check_finite(&self) -> Result<(), Failure> {
        if self.whole.is_some_and(|all| all.iter().all(|v| v.is_finite())) {
            return Ok(());
        }
        let bad = self.view.indexed_iter().find(|(_, v)| !v.is_finite());
        match bad {
            None => Ok(()),
            Some(((row, k), &value)) => Err(not_finite(row, k, value)),
        }
    }
}

fn not_finite(row: usize, k: usize, value: f64) -> Failure {
    Error::NotFinite { field: format!("x[{k}]"), value, row }.into()
}

/// A column of numbers.
pub(crate) fn column<'a>(array: &'a PyReadonlyArray1<'_, f64>) -> Cow<'a, [f64]> {
    match array.as_slice() {
        Ok(all) => Cow::Borrowed(all),
        Err(_) => Cow::Owned(array.as_array().iter().copied().collect()),
    }
}

/// Rejects a column that does not have an entry for each row, or one that is not finite.
pub(crate) fn check_column(field: &str, values: &[f64], rows: usize) -> Result<(), Failure> {
    if values.len() != rows {
        return Err(Error::WrongLength { field: field.into(), expected: rows, found: values.len() }.into());
    }
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(row) => Err(Error::NotFinite { field: field.into(), value: values[row], row }.into()),
    }
}
