//! Reading rows of numbers from CSV, NDJSON and Parquet.
//!
//! ```text
//! bytes ─ lines ─┬─ csv ────┐
//!                └─ ndjson ─┼─ Records: values ─ Rows ─ Row, Table
//! file ──────────── parquet ┘
//! ```
//!
//! [`Source::open`] finds out the format and the columns, [`Source::select`] picks columns by name, and [`Rows::next`]
//! delivers row after row: each as soon as its line is complete, without taking memory on the CSV path. A bad row is
//! an error like any other, but the next call goes on behind it.

mod bytes;
mod cells;
mod csv;
mod error;
mod lines;
mod ndjson;
mod options;
mod parquet;
mod rows;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod value;

pub(crate) use cells::Cells;
pub(crate) use error::{BadRow, Error, Result};
pub(crate) use options::{Format, Options};
pub(crate) use rows::{Row, Rows, Selection, Target, TargetKind};
pub(crate) use source::Source;
pub(crate) use table::Table;
pub(crate) use time::write as write_time;

use error::Fault;
use value::Value;

/// The records of a source, in one of the formats.
trait Records: Send {
    /// The names of the columns.
    fn columns(&self) -> &[String];

    /// Says, before the first record, that this column will be asked for.
    fn keep(&mut self, _column: usize) {}

    /// Which columns hold numbers, judged by the schema or by the first record, which still comes next.
    fn numeric(&mut self) -> Result<Vec<bool>, Fault>;

    /// Moves on to the next record, also past a bad one; `false` if there is none.
    fn advance(&mut self) -> Result<bool, Fault>;

    /// A value of the current record.
    fn value(&self, column: usize) -> Value<'_>;

    /// The line on which the current record begins.
    fn line(&self) -> Option<u64>;

    /// How much has been read, and of how much.
    fn progress(&self) -> Option<(u64, u64)>;
}
