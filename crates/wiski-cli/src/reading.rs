//! Rows from a file to a model: bad ones are rejected or skipped, and everything is named.

use std::path::Path;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use wiski::model::{ColumnScaling, InputScaling, Missing};
use wiski::persist::{self, Columns, Model, Stored, Target};
use wiski::{Features, Settings};

use crate::input::{self, BadRow, Row, Rows, Selection, Source, TargetKind};

/// A model from a file, ready to predict: one in the middle of its warm-up ends it here, in memory.
pub(crate) fn load(path: &Path) -> Result<Stored> {
    let mut stored: Stored = persist::load(path)?;
    if !stored.model.is_ready() && stored.model.count() >= 2.0 {
        stored.model.finish_warm_up().with_context(|| path.display().to_string())?;
    }
    Ok(stored)
}

/// How to read rows.
#[derive(Args, Debug, Clone)]
pub(crate) struct ReadingOptions {
    #[command(flatten)]
    pub(crate) format: input::Options,

    /// What to do with rows that cannot be used
    #[arg(long, value_enum, default_value_t = OnBadRow::Stop)]
    pub(crate) on_bad_row: OnBadRow,

    /// Begin with this row of the file, counted from 1
    #[arg(long, value_name = "ROW", default_value_t = 1)]
    pub(crate) from_row: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnBadRow {
    /// Stop with an error
    Stop,
    /// Leave them out, and say how many there were
    Skip,
}

/// A row that cannot be used has ended the reading.
#[derive(Debug, thiserror::Error)]
#[error("{message} (--on-bad-row skip leaves such rows out)")]
pub(crate) struct Stopped {
    /// Its number in the file.
    pub(crate) row: u64,
    message: String,
}

/// Counts bad rows, and remembers the first.
#[derive(Debug)]
pub(crate) struct BadRows {
    policy: OnBadRow,
    pub(crate) count: u64,
    first: Option<String>,
}

impl BadRows {
    pub(crate) fn new(policy: OnBadRow) -> Self {
        Self { policy, count: 0, first: None }
    }

    /// An error, or nothing if bad rows are skipped.
    pub(crate) fn reject(&mut self, row: u64, message: String) -> Result<()> {
        if self.policy == OnBadRow::Stop {
            return Err(Stopped { row, message }.into());
        }
        self.count += 1;
        self.first.get_or_insert(message);
        Ok(())
    }

    /// Says on standard error what was skipped.
    pub(crate) fn report(&self) {
        if let Some(first) = &self.first {
            let (rows, is) = if self.count == 1 { ("row", "") } else { ("rows", "; the first") };
            eprintln!("wiski: {} bad {rows} skipped{is}: {first}", self.count);
        }
    }
}

/// Reads the next good row.
pub(crate) fn next(rows: &mut Rows, row: &mut Row, bad: &mut BadRows) -> Result<bool> {
    loop {
        match rows.next(row) {
            Ok(more) => return Ok(more),
            Err(input::Error::BadRow(error)) => bad.reject(error.row, error.to_string())?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether rows of a model may lack inputs.
pub(crate) fn may_lack(model: &Model) -> bool {
    model.settings().missing == Missing::Marginalize
}

/// What the target of a model is.
pub(crate) fn kind(model: &Model) -> TargetKind {
    match model {
        Model::Regressor(_) => TargetKind::Number,
        Model::Classifier(_) => TargetKind::Label,
    }
}

/// The rows of a file with the columns of a model.
pub(crate) fn select(
    source: Source,
    columns: &Columns,
    kind: TargetKind,
    wanted: Wanted,
    options: &ReadingOptions,
) -> Result<Rows> {
    let target = match wanted {
        Wanted::Inputs => None,
        Wanted::Optional | Wanted::Required => {
            Some(input::Target { column: columns.target.clone(), kind, required: wanted == Wanted::Required })
        }
    };
    let learns = wanted != Wanted::Inputs;
    // Noise that is known widens a prediction, where the file has it.
    let has_noise = |name: &String| learns || source.columns().contains(name);
    let selection = Selection {
        inputs: columns.source_columns().into_iter().map(String::from).collect(),
        readings: columns.sources.iter().map(|source| source.reading.clone()).collect(),
        target,
        noise: columns.noise.clone().filter(has_noise),
        time: columns.time.clone().filter(|_| learns),
        cells: wanted == Wanted::Inputs,
    };
    let mut rows = source.select(&selection)?;
    rows.skip_to(options.from_row)?;
    Ok(rows)
}

/// What is needed of each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The inputs, and the cells as they are.
    Inputs,
    /// Also the target, if it is there.
    Optional,
    /// Also the target.
    Required,
}

/// A row as the model takes it.
pub(crate) fn as_model_row(row: &Row) -> persist::Row<'_> {
    let target = match (row.target, &row.label) {
        (Some(y), _) => Target::Value(y),
        (None, Some(label)) => Target::Label(label),
        (None, None) => Target::Missing,
    };
    persist::Row { x: &row.inputs, target, variance: row.noise, time: row.time }
}

/// The message for a row that the model rejected.
pub(crate) fn rejection(
    error: &wiski::Error,
    file: &str,
    row: &Row,
    columns: &Columns,
    model: &Model,
) -> String {
    let (column, what) = match error {
        wiski::Error::OutsideGrid { axis, lo, hi, .. } => match in_user_units(*axis, [*lo, *hi], model) {
            Some([lo, hi]) => (
                columns.inputs.get(*axis),
                format!(
                    "{} lies off the grid, which covers {} to {}",
                    row.inputs[*axis],
                    brief(lo),
                    brief(hi)
                ),
            ),
            None => (None, format!("the row lies off the grid on axis {axis}")),
        },
        wiski::Error::GridTooLarge { axis, points, limit, .. } => (
            Some(*axis).filter(|_| is_identity(model)).and_then(|axis| columns.inputs.get(axis)),
            format!(
                "the grid would need {points} points on this axis, but only {limit} are allowed in all (--max-grid)"
            ),
        ),
        wiski::Error::UnknownLabel { label, known, .. } => {
            (Some(&columns.target), format!("'{label}' is not one of the classes {}", known.join(", ")))
        }
        wiski::Error::Config { field, reason } if field == "time" => (columns.time.as_ref(), reason.clone()),
        other => (None, other.to_string()),
    };
    let line = row.line.map(|line| format!(" (line {line})")).unwrap_or_default();
    let column = column.map(|column| format!(", column '{column}'")).unwrap_or_default();
    format!("{file}: row {}{line}{column}: {what}", row.number)
}

/// A number with six digits, as a person would write it.
pub(crate) fn brief(value: f64) -> String {
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    if rounded.abs() < 1e-12 { "0".into() } else { format!("{rounded}") }
}

fn settings(model: &Model) -> &Settings {
    match model {
        Model::Regressor(model) => model.settings(),
        Model::Classifier(model) => model.settings(),
    }
}

/// Whether the axes of the grid are the input columns.
fn is_identity(model: &Model) -> bool {
    settings(model).features == Features::Identity
}

fn scaling(model: &Model) -> Option<ColumnScaling> {
    let encoder = match model {
        Model::Regressor(model) => model.encoder(),
        Model::Classifier(model) => model.encoder(),
    };
    match (encoder, &settings(model).inputs) {
        (Some(encoder), _) => Some(encoder.scaling().clone()),
        (None, InputScaling::Bounds(bounds)) => Some(ColumnScaling::from_bounds(bounds)),
        (None, _) => None,
    }
}

fn in_user_units(axis: usize, values: [f64; 2], model: &Model) -> Option<[f64; 2]> {
    if !is_identity(model) {
        return None;
    }
    let scaling = scaling(model)?;
    Some(values.map(|v| v / scaling.factor[axis] + scaling.shift[axis]))
}

/// Turns the error of a bad row into one that ends the command.
pub(crate) fn fatal(bad: BadRow) -> input::Error {
    input::Error::BadRow(Box::new(bad))
}
