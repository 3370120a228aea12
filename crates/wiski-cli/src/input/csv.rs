//! CSV: a header that names the columns, then a record a line; fields that contain delimiters, line ends or quotation
//! marks stand in quotation marks.
//!
//! Records are cut by searches for single bytes, 16 or 32 at a time. An automaton that looks at every byte (csv-core) was
//! measured against it: a sixth faster for cells of five characters, a third slower for cells of seventeen digits; and
//! bounded records, records handed out while the stream is silent and going on behind an open quotation mark would have
//! to be built around it all the same.

use std::str::from_utf8;

use super::{
    Records,
    bytes::Progress,
    cells::Cells,
    error::{Fault, What},
    lines::Lines,
    value::{Value, truth},
};

/// A reader of CSV.
pub(super) struct Csv {
    lines: Lines,
    progress: Progress,
    delimiter: u8,
    columns: Vec<String>,
    cells: Cells,
}

/// What the first line says about the columns.
pub(super) enum Head {
    Names(Csv),
    /// There is no line.
    Empty,
    /// There are only numbers, although names were expected.
    Numbers,
}

impl Csv {
    /// Reads the names of the columns; without a header they are called `c1`, `c2` and so on.
    pub(super) fn open(lines: Lines, progress: Progress, delimiter: u8, header: bool) -> Result<Head, Fault> {
        let mut csv = Self { lines, progress, delimiter, columns: Vec::new(), cells: Cells::default() };
        if !csv.cut()? {
            return Ok(Head::Empty);
        }
        if !header {
            csv.columns = (1..=csv.cells.len()).map(|i| format!("c{i}")).collect();
            csv.lines.again();
        } else if csv.cells.iter().all(|cell| cell.trim().parse::<f64>().is_ok_and(f64::is_finite)) {
            return Ok(Head::Numbers);
        } else {
            csv.columns = csv.cells.iter().map(|name| name.trim().to_owned()).collect();
        }
        Ok(Head::Names(csv))
    }

    /// Cuts the next record into cells.
    fn cut(&mut self) -> Result<bool, Fault> {
        if !self.lines.advance(Some(self.delimiter))? {
            return Ok(false);
        }
        let record = self.lines.record();
        let Ok(text) = from_utf8(record) else {
            // A delimiter is ASCII, which no part of a longer UTF-8 character can be.
            let column =
                record.split(|&byte| byte == self.delimiter).position(|cell| from_utf8(cell).is_err());
            return Err(Fault::Record(column.filter(|&column| column < self.columns.len()), What::NotUtf8));
        };
        if text.contains('"') {
            split_quoted(text, self.delimiter, &mut self.cells);
        } else {
            self.cells.split(text, self.delimiter);
        }
        Ok(true)
    }
}

impl Records for Csv {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn numeric(&mut self) -> Result<Vec<bool>, Fault> {
        if !self.advance()? {
            return Ok(vec![true; self.columns.len()]);
        }
        self.lines.again();
        // NaN shows a column of numbers too, though that row is a bad one.
        let is_number = |cell: &str| cell.parse::<f64>().is_ok() || truth(cell).is_some();
        Ok(self.cells.iter().map(|cell| is_number(cell.trim())).collect())
    }

    fn advance(&mut self) -> Result<bool, Fault> {
        if !self.cut()? {
            return Ok(false);
        }
        let (found, expected) = (self.cells.len(), self.columns.len());
        if found < expected {
            return Err(Fault::Record(Some(found), What::TooFewCells { found, expected }));
        }
        if found > expected {
            return Err(What::TooManyCells { found, expected }.into());
        }
        Ok(true)
    }

    fn value(&self, column: usize) -> Value<'_> {
        Value::Cell(self.cells.get(column))
    }

    fn line(&self) -> Option<u64> {
        Some(self.lines.line())
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.progress.get()
    }
}

/// Cuts a record some of whose fields stand in quotation marks. Text between a closing mark and the next delimiter
/// belongs to the field.
fn split_quoted(record: &str, delimiter: u8, cells: &mut Cells) {
    let delimiter = char::from(delimiter);
    cells.clear();
    let mut rest = Some(record);
    while let Some(mut text) = rest {
        cells.push(|cell| {
            if let Some(quoted) = text.strip_prefix('"') {
                text = quoted;
                while let Some((part, after)) = text.split_once('"') {
                    *cell += part;
                    text = after;
                    let Some(after) = text.strip_prefix('"') else { break };
                    cell.push('"');
                    text = after;
                }
            }
            let end = text.find(delimiter).unwrap_or(text.len());
            *cell += &text[..end];
            rest = text.get(end + 1..);
        });
    }
}
