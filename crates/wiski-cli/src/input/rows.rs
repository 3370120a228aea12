//! Rows: what a model learns from, taken out of records.

use wiski::persist::Reading;

use super::{
    Records,
    cells::Cells,
    error::{BadRow, Error, Fault, Result, What},
    time,
    value::Value,
};

/// The columns that a caller wants.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Selection {
    /// The inputs, in the order in which the model takes them.
    pub(crate) inputs: Vec<String>,
    /// How each of them is read; empty if all are numbers.
    pub(crate) readings: Vec<Reading>,
    /// What is to be predicted.
    pub(crate) target: Option<Target>,
    /// The variance of the target's noise, row by row.
    pub(crate) noise: Option<String>,
    /// A time, as a number or as a date with or without the time of day.
    pub(crate) time: Option<String>,
    /// Whether to keep each record's cells as text.
    pub(crate) cells: bool,
}

/// The column that is to be predicted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    pub(crate) column: String,
    pub(crate) kind: TargetKind,
    /// Whether a row without a target is a bad one. Otherwise it is a row to predict only.
    pub(crate) required: bool,
}

/// What the target is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TargetKind {
    /// A number, delivered as [`Row::target`].
    Number,
    /// The name of a class, delivered as [`Row::label`].
    Label,
}

/// One row. Keep one and pass it to [`Rows::next`] again and again: its memory is used again.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Row {
    /// Which data row this is, from 1; bad rows count too.
    pub(crate) number: u64,
    /// The line on which it begins, from 1, in formats that have lines.
    pub(crate) line: Option<u64>,
    pub(crate) inputs: Vec<f64>,
    pub(crate) target: Option<f64>,
    pub(crate) label: Option<String>,
    pub(crate) noise: Option<f64>,
    pub(crate) time: Option<f64>,
    /// The whole record, if [`Selection::cells`] asks for it.
    pub(crate) cells: Cells,
}

/// The rows of a source.
pub(crate) struct Rows {
    pub(super) name: String,
    pub(super) records: Box<dyn Records>,
    pub(super) inputs: Vec<(usize, Reading)>,
    pub(super) target: Option<(usize, Target)>,
    pub(super) noise: Option<usize>,
    pub(super) time: Option<usize>,
    pub(super) cells: bool,
    /// Whether inputs may be missing; they are NaN then.
    pub(super) may_lack: bool,
    pub(super) number: u64,
}

impl Rows {
    /// The file's name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The same, where inputs may be missing or not.
    pub(crate) fn with_missing(self, may_lack: bool) -> Self {
        Self { may_lack, ..self }
    }

    /// Reads the next row; `false` if there is none. After [`Error::BadRow`] the row after it can be read; what `row`
    /// then holds means nothing.
    pub(crate) fn next(&mut self, row: &mut Row) -> Result<bool> {
        let advanced = self.records.advance();
        self.number += u64::from(!matches!(advanced, Ok(false) | Err(Fault::Read(_))));
        match advanced.and_then(|more| if more { self.take(row).map(|()| true) } else { Ok(false) }) {
            Ok(more) => Ok(more),
            Err(Fault::Record(column, what)) => Err(self.bad(column, what)),
            Err(Fault::Read(why)) => Err(Error::Read { file: self.name.clone(), row: self.number, why }),
        }
    }

    /// Leaves the rows before this one behind, whatever they hold.
    pub(crate) fn skip_to(&mut self, row: u64) -> Result<()> {
        while self.number + 1 < row {
            match self.records.advance() {
                Ok(false) => break,
                Ok(true) | Err(Fault::Record(..)) => self.number += 1,
                Err(Fault::Read(why)) => {
                    return Err(Error::Read { file: self.name.clone(), row: self.number, why });
                }
            }
        }
        Ok(())
    }

    /// Reads the next good row, after `on_bad` has seen the bad ones before it. An error of `on_bad` ends the reading.
    pub(crate) fn next_good(
        &mut self,
        row: &mut Row,
        on_bad: &mut dyn FnMut(BadRow) -> Result<()>,
    ) -> Result<bool> {
        loop {
            match self.next(row) {
                Err(Error::BadRow(bad)) => on_bad(*bad)?,
                result => return result,
            }
        }
    }

    /// How much has been read and how much there is: bytes of the file, for Parquet rows. `None` for a pipe.
    pub(crate) fn progress(&self) -> Option<(u64, u64)> {
        self.records.progress()
    }

    /// Fills `row` from the record at hand.
    fn take(&self, row: &mut Row) -> Result<(), Fault> {
        let records = &*self.records;
        let in_column = |column| move |what| Fault::Record(Some(column), what);
        let number = |column| records.value(column).number().map_err(in_column(column));
        row.number = self.number;
        row.line = records.line();
        // The row may come from other rows, of which nothing must stay but the memory.
        (row.target, row.noise, row.time) = (None, None, None);
        row.inputs.clear();
        row.cells.clear();
        for (column, reading) in &self.inputs {
            let value = records.value(*column);
            if self.may_lack && value.is_unknown() && !is_level(value, reading) {
                row.inputs.push(f64::NAN);
                continue;
            }
            row.inputs.push(match reading {
                Reading::Number => number(*column)?,
                Reading::Levels(levels) => value.level(levels).map_err(in_column(*column))?,
                Reading::Calendar(part) => time::part(*part, value.date().map_err(in_column(*column))?),
            });
        }
        match &self.target {
            Some((column, target)) if target.required || !records.value(*column).is_absent() => {
                match target.kind {
                    TargetKind::Number => (row.target, row.label) = (Some(number(*column)?), None),
                    TargetKind::Label => {
                        let label = row.label.get_or_insert_default();
                        records.value(*column).label(label).map_err(in_column(*column))?;
                    }
                }
            }
            _ => row.label = None,
        }
        // A row that is only to be predicted needs no noise.
        let learned = self.target.is_none() || row.target.is_some() || row.label.is_some();
        if let Some(column) = self.noise.filter(|&c| learned || !records.value(c).is_absent()) {
            let noise = number(column)?;
            if noise <= 0.0 {
                return Err(in_column(column)(What::NotPositive(noise)));
            }
            row.noise = Some(noise);
        }
        if let Some(column) = self.time {
            row.time = Some(records.value(column).time().map_err(in_column(column))?);
        }
        if self.cells {
            for column in 0..records.columns().len() {
                row.cells.push(|text| records.value(column).write(text));
            }
        }
        Ok(())
    }

    fn bad(&self, column: Option<usize>, what: What) -> Error {
        Error::BadRow(Box::new(BadRow {
            file: self.name.clone(),
            row: self.number,
            line: self.records.line(),
            column: column.map(|column| self.records.columns()[column].clone()),
            what,
        }))
    }
}

/// Whether a text is one of a column's levels, as "none" may be.
fn is_level(value: Value<'_>, reading: &Reading) -> bool {
    matches!(reading, Reading::Levels(levels) if value.level(levels).is_ok())
}
