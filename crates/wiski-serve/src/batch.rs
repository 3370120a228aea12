//! Rows as the server keeps them between a request and a model: in one piece, checked.

use serde::{Deserialize, Serialize};
use wiski::persist::{Columns, Reading, Row, Target};

use crate::error::Failure;

/// Rows of equal width, one after the other.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Batch {
    /// The number of inputs of a row.
    pub width: usize,
    /// The inputs.
    pub x: Vec<f64>,
    /// The targets.
    pub targets: Targets,
    /// The known noise variances; empty if there are none.
    pub variance: Vec<f64>,
    /// The times; empty if there are none.
    pub time: Vec<f64>,
    /// Of trials, the values of further objectives and of constraints, one row after the other; NaN for a trial that
    /// failed. Empty if a search has neither.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<f64>,
}

/// What rows say about their targets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum Targets {
    /// Nothing: they are predicted.
    #[default]
    None,
    /// Numbers; NaN for a trial that failed.
    Values(Vec<f64>),
    /// Classes.
    Labels(Vec<String>),
}

impl Batch {
    /// The number of rows.
    pub fn len(&self) -> usize {
        // Rows of a series without inputs are their times.
        self.x.len().checked_div(self.width).unwrap_or(self.time.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The inputs of a row.
    pub fn inputs(&self, i: usize) -> &[f64] {
        &self.x[i * self.width..(i + 1) * self.width]
    }

    /// The values of further objectives and of constraints of a row.
    pub fn beside(&self, i: usize) -> &[f64] {
        let width = self.beside.len() / self.len().max(1);
        &self.beside[i * width..(i + 1) * width]
    }

    /// A row as models take it.
    pub fn row(&self, i: usize) -> Row<'_> {
        let target = match &self.targets {
            Targets::None => Target::Missing,
            Targets::Values(values) => Target::Value(values[i]),
            Targets::Labels(labels) => Target::Label(&labels[i]),
        };
        let at = |list: &[f64]| list.get(i).copied();
        Row { x: self.inputs(i), target, variance: at(&self.variance), time: at(&self.time) }
    }

    /// About the memory it takes.
    pub fn bytes(&self) -> usize {
        let labels = match &self.targets {
            Targets::Labels(labels) => labels.iter().map(|l| l.len() + 24).sum(),
            Targets::Values(values) => 8 * values.len(),
            Targets::None => 0,
        };
        8 * (self.x.len() + self.variance.len() + self.time.len() + self.beside.len()) + labels
    }
}

/// What the target of a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// A number.
    Value,
    /// A class.
    Label,
    /// The result of a trial: a number, or nothing if it failed.
    Trial,
    /// The value of a series at a time: a number, or nothing where there is a gap.
    Series,
}

/// The columns of a model and how their cells are read.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// The columns.
    pub columns: Columns,
    /// What the target is.
    pub target: TargetKind,
    /// The names of what a trial gives beside its value: further objectives, then constraints.
    pub beside: Vec<String>,
}

/// What a cell is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The input with this number.
    Input(usize),
    /// The target.
    Target,
    /// The further objective or constraint with this number.
    Beside(usize),
    /// The noise variance.
    Noise,
    /// The time.
    Time,
}

/// The content of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// A number.
    Number(f64),
    /// A text, which may be that of a number.
    Text(&'a str),
    /// Nothing.
    Missing,
}

impl Schema {
    /// What a column of this name is for; nothing if the model does not know it.
    pub fn slot(&self, name: &str) -> Option<Slot> {
        let columns = &self.columns;
        if let Some(i) = columns.inputs.iter().position(|input| input == name) {
            return Some(Slot::Input(i));
        }
        if columns.target == name {
            return Some(Slot::Target);
        }
        if let Some(k) = self.beside.iter().position(|beside| beside == name) {
            return Some(Slot::Beside(k));
        }
        let named = |column: &Option<String>| column.as_deref() == Some(name);
        if named(&columns.noise) {
            Some(Slot::Noise)
        } else if named(&columns.time) {
            Some(Slot::Time)
        } else {
            let read_from = |i: &usize| matches!(columns.reading(*i), Reading::Levels(_));
            let found = columns.sources.iter().position(|source| source.column == name);
            found.filter(read_from).map(Slot::Input)
        }
    }

    /// What the cells of a row without names are for: inputs, then for rows to be learned the target, further objectives and
    /// constraints, noise and time (the time also for rows of a series to be predicted).
    pub fn positions(&self, learns: bool) -> Vec<Slot> {
        let inputs = (0..self.columns.inputs.len()).map(Slot::Input);
        let beside = (0..self.beside.len()).map(Slot::Beside);
        let noise = self.columns.noise.as_ref().map(|_| Slot::Noise);
        let time = self.columns.time.as_ref().map(|_| Slot::Time);
        let extras = std::iter::once(Slot::Target).chain(beside).chain(noise).chain(time);
        let counts = |slot: &Slot| learns || *slot == Slot::Time && self.target == TargetKind::Series;
        inputs.chain(extras.filter(counts)).collect()
    }

    /// Whether cells are the texts of levels or classes, and not numbers.
    pub fn wants_text(&self, slot: Slot) -> bool {
        match slot {
            Slot::Input(i) => matches!(self.columns.reading(i), Reading::Levels(_)),
            Slot::Target => self.target == TargetKind::Label,
            Slot::Beside(_) | Slot::Noise | Slot::Time => false,
        }
    }

    /// The name of a column.
    pub fn name(&self, slot: Slot) -> &str {
        match slot {
            Slot::Input(i) => &self.columns.inputs[i],
            Slot::Target => &self.columns.target,
            Slot::Beside(k) => &self.beside[k],
            Slot::Noise => self.columns.noise.as_deref().unwrap_or("noise"),
            Slot::Time => self.columns.time.as_deref().unwrap_or("time"),
        }
    }
}

/// Puts rows together, cell by cell.
#[derive(Debug)]
pub struct Builder<'a> {
    schema: &'a Schema,
    learns: bool,
    most: usize,
    batch: Batch,
    values: Vec<f64>,
    labels: Vec<String>,
    /// The row that is being read: its inputs, and what was given of it.
    x: Vec<f64>,
    given: Vec<bool>,
    target: Option<Goal>,
    beside: Vec<Option<f64>>,
    noise: Option<f64>,
    time: Option<f64>,
    /// What went wrong first.
    pub failure: Option<Failure>,
}

#[derive(Debug)]
enum Goal {
    Value(f64),
    Label(String),
}

impl<'a> Builder<'a> {
    /// For rows of a model; whether they are to be learned, and how many at most.
    pub fn new(schema: &'a Schema, learns: bool, most: usize) -> Self {
        let width = schema.columns.inputs.len();
        Self {
            schema,
            learns,
            most,
            batch: Batch { width, ..Batch::default() },
            values: Vec::new(),
            labels: Vec::new(),
            x: vec![0.0; width],
            given: vec![false; width],
            target: None,
            beside: vec![None; schema.beside.len()],
            noise: None,
            time: None,
            failure: None,
        }
    }

    /// The columns.
    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// Whether rows are to be learned.
    pub fn learns(&self) -> bool {
        self.learns
    }

    /// Remembers a failure, and gives it back.
    pub fn fail(&mut self, failure: Failure) -> Failure {
        self.failure.get_or_insert(failure).clone()
    }

    fn reject(&mut self, slot: Slot, what: &str) -> Failure {
        let (row, name) = (self.batch.len(), self.schema.name(slot));
        self.fail(Failure::Unprocessable(format!("row {row}, column '{name}': {what}")))
    }

    fn number(&mut self, slot: Slot, cell: Cell) -> Result<f64, Failure> {
        let value = match cell {
            Cell::Number(value) => value,
            Cell::Text(text) => match text.trim().parse() {
                Ok(value) => value,
                Err(_) => return Err(self.reject(slot, "is not a number")),
            },
            Cell::Missing => return Err(self.reject(slot, "is missing")),
        };
        if value.is_finite() { Ok(value) } else { Err(self.reject(slot, "is not a finite number")) }
    }

    fn input(&mut self, i: usize, cell: Cell) -> Result<f64, Failure> {
        let slot = Slot::Input(i);
        match (self.schema.columns.reading(i), cell) {
            (Reading::Levels(levels), Cell::Text(text)) => {
                if let Some(place) = levels.iter().position(|level| level == text.trim()) {
                    return Ok(place as f64);
                }
                let all = levels.iter().take(12).map(String::as_str).collect::<Vec<_>>().join("|");
                Err(self.reject(slot, &format!("is not one of {all}")))
            }
            (Reading::Levels(_), Cell::Number(_)) if self.schema.target != TargetKind::Trial => {
                Err(self.reject(slot, "is a number where the text of a level is needed"))
            }
            _ => self.number(slot, cell),
        }
    }

    /// Takes in a cell of the present row.
    pub fn set(&mut self, slot: Slot, cell: Cell) -> Result<(), Failure> {
        match slot {
            Slot::Input(i) => {
                self.x[i] = self.input(i, cell)?;
                self.given[i] = true;
            }
            // What is not learned is not looked at.
            Slot::Target | Slot::Beside(_) if !self.learns => {}
            Slot::Time if !self.learns && self.schema.target != TargetKind::Series => {}
            Slot::Target => {
                self.target = match (self.schema.target, cell) {
                    (_, Cell::Missing) => None,
                    (TargetKind::Label, Cell::Text(text)) => Some(Goal::Label(text.into())),
                    (TargetKind::Label, Cell::Number(value)) => Some(Goal::Label(format!("{value}"))),
                    _ => Some(Goal::Value(self.number(slot, cell)?)),
                }
            }
            Slot::Beside(_) | Slot::Noise if cell == Cell::Missing => {}
            Slot::Beside(k) => self.beside[k] = Some(self.number(slot, cell)?),
            Slot::Noise => {
                let variance = self.number(slot, cell)?;
                if variance <= 0.0 {
                    return Err(self.reject(slot, "is not positive"));
                }
                self.noise = Some(variance);
            }
            Slot::Time => self.time = Some(self.number(slot, cell)?),
        }
        Ok(())
    }

    /// Ends the present row.
    pub fn end_row(&mut self) -> Result<(), Failure> {
        if let Some(i) = self.given.iter().position(|given| !given) {
            return Err(self.reject(Slot::Input(i), "is missing"));
        }
        if self.batch.len() >= self.most {
            let most = self.most;
            return Err(self.fail(Failure::TooLarge(format!("more than {most} rows in one request"))));
        }
        if self.learns {
            // What a trial gave beside a value that is missing is not looked at: it failed.
            let failed = self.target.is_none();
            for k in 0..self.beside.len() {
                match self.beside[k].take() {
                    _ if failed => self.batch.beside.push(f64::NAN),
                    Some(value) => self.batch.beside.push(value),
                    None => return Err(self.reject(Slot::Beside(k), "is missing")),
                }
            }
            match (self.target.take(), self.schema.target) {
                (Some(Goal::Value(y)), _) => self.values.push(y),
                (Some(Goal::Label(label)), _) => self.labels.push(label),
                (None, TargetKind::Trial | TargetKind::Series) => self.values.push(f64::NAN),
                (None, _) => return Err(self.reject(Slot::Target, "is missing")),
            }
        }
        let known = self.schema.columns.noise.is_some();
        match self.noise.take() {
            Some(variance) => self.batch.variance.push(variance),
            None if known && self.learns => return Err(self.reject(Slot::Noise, "is missing")),
            None => {}
        }
        match self.time.take() {
            Some(time) => self.batch.time.push(time),
            None if self.learns && self.schema.columns.time.is_some() => {
                return Err(self.reject(Slot::Time, "is missing"));
            }
            None => {}
        }
        self.batch.x.extend_from_slice(&self.x);
        self.given.fill(false);
        Ok(())
    }

    /// All rows.
    pub fn finish(mut self) -> Result<Batch, Failure> {
        let rows = self.batch.len();
        if rows == 0 {
            return Err(Failure::Malformed("there are no rows".into()));
        }
        if !self.batch.variance.is_empty() && self.batch.variance.len() != rows {
            return Err(Failure::Unprocessable("some rows have a noise variance and some have none".into()));
        }
        if !self.batch.time.is_empty() && self.batch.time.len() != rows {
            return Err(Failure::Unprocessable("some rows have a time and some have none".into()));
        }
        self.batch.targets = match self.schema.target {
            _ if !self.learns => Targets::None,
            TargetKind::Label => Targets::Labels(self.labels),
            TargetKind::Value | TargetKind::Trial | TargetKind::Series => Targets::Values(self.values),
        };
        Ok(self.batch)
    }
}
