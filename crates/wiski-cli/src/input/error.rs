//! What can go wrong while reading: a row may be bad, and then the next one can still be read; every other error is
//! final. Each is rendered on one line.

use std::{fmt, io};

/// Everything that can go wrong while reading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// One row is unusable; reading can go on with the next.
    #[error(transparent)]
    BadRow(Box<BadRow>),
    /// The file cannot be opened, or its beginning cannot be read.
    #[error("{file}: {why}")]
    Open { file: String, why: io::Error },
    /// Reading broke off after this many rows.
    #[error("{file}: reading broke off after row {row}: {why}")]
    Read { file: String, row: u64, why: io::Error },
    /// Nothing is in the file.
    #[error("{file} is empty: {needed} is needed")]
    Empty { file: String, needed: &'static str },
    /// The first line of a CSV file holds nothing but numbers.
    #[error(
        "{file}: the first line holds only numbers, not column names; if there is no header, say --no-header"
    )]
    NoHeader { file: String },
    /// The line or record that names the columns cannot be read.
    #[error("{file}: the columns cannot be told: {what}")]
    Header { file: String, what: What },
    /// A column was asked for that does not exist.
    #[error("there is no column '{}' in {file}; {hint}columns: {columns}", short(.name))]
    UnknownColumn { file: String, name: String, hint: String, columns: String },
    /// A column was asked for whose name stands for several.
    #[error("{file} has {count} columns called '{}'", short(.name))]
    DuplicateColumn { file: String, name: String, count: usize },
    /// The target would be predicted from itself.
    #[error("column '{}' of {file} cannot be both input and target", short(.name))]
    TargetIsInput { file: String, name: String },
}

/// A specialized result.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// A row that cannot be used, and why.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BadRow {
    /// The file, as the user called it.
    pub(crate) file: String,
    /// Which data row, from 1.
    pub(crate) row: u64,
    /// The line on which the row begins, from 1, in formats that have lines.
    pub(crate) line: Option<u64>,
    /// The column at fault, if it is one column.
    pub(crate) column: Option<String>,
    /// What is wrong.
    pub(crate) what: What,
}

impl std::error::Error for BadRow {}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: row {}", self.file, self.row)?;
        if let Some(line) = self.line {
            write!(f, " (line {line})")?;
        }
        if let Some(column) = &self.column {
            write!(f, ", column '{}'", short(column))?;
        }
        write!(f, ": {}", self.what)
    }
}

/// What is wrong with a row. Texts are already shortened by [`short`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum What {
    #[error("the cell is missing: the row has {found} of {expected} cells")]
    TooFewCells { found: usize, expected: usize },
    #[error("the row has {found} cells, but there are {expected} columns")]
    TooManyCells { found: usize, expected: usize },
    #[error("the cell is empty")]
    EmptyCell,
    #[error("'{0}' is not a number")]
    NotANumber(String),
    #[error("'{0}' is not a finite number")]
    NotFinite(String),
    #[error("'{0}' is neither a number nor a time such as 2012-01-31T23:59:00Z")]
    NotATime(String),
    #[error("'{0}' is not a date or time such as 2012-01-31 or 2012-01-31T23:59:00Z")]
    NotADate(String),
    #[error("'{text}' is not one of the levels {levels}")]
    UnknownLevel { text: String, levels: String },
    #[error("a noise must be above zero, not {0}")]
    NotPositive(f64),
    #[error("the text is not UTF-8")]
    NotUtf8,
    #[error("not a JSON object: {0}")]
    NotJson(String),
    #[error("the value is null")]
    Null,
    #[error("the value is missing")]
    Missing,
    #[error("{found} cannot be used as {wanted}")]
    WrongType { found: String, wanted: &'static str },
    #[error("a quotation mark is never closed")]
    OpenQuote,
    #[error("the row is longer than {} MiB", .limit >> 20)]
    TooLong { limit: usize },
}

/// Why a reader of one format could not deliver a record. It knows neither the file's name nor the row's number.
#[derive(Debug)]
pub(super) enum Fault {
    /// The record is bad, in this column if it is a certain one.
    Record(Option<usize>, What),
    /// Nothing more can be read.
    Read(io::Error),
}

impl From<io::Error> for Fault {
    fn from(why: io::Error) -> Self {
        Self::Read(why)
    }
}

impl From<What> for Fault {
    fn from(what: What) -> Self {
        Self::Record(None, what)
    }
}

/// A text as it may stand in a message: at most 40 characters, on one line.
pub(super) fn short(text: &str) -> String {
    const SHOWN: usize = 40;
    let mut out = String::new();
    let mut shown = 0;
    for c in text.chars() {
        let escaped: String = if c.is_control() { c.escape_default().collect() } else { c.into() };
        shown += escaped.chars().count();
        out += &escaped;
        if shown > SHOWN {
            return out.chars().take(SHOWN - 1).chain(['…']).collect();
        }
    }
    out
}
