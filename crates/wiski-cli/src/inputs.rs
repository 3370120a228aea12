//! Which columns of a file become inputs, and as what: numbers as they are, places on circles, levels, parts of dates.

use anyhow::{Result, bail, ensure};
use wiski::Column;
use wiski::persist::{CalendarPart, InputSource, Reading};

/// One input of a model.
#[derive(Debug, Clone, PartialEq)]
struct Input {
    column: String,
    reading: Reading,
    kind: Column,
}

/// The inputs of a model.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputPlan {
    pub(crate) names: Vec<String>,
    inputs: Vec<Input>,
    /// Columns of the file that were not taken, since they hold no numbers.
    left_out: Vec<String>,
}

/// What the user said about columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    /// Columns and their periods; a column may have several.
    pub(crate) periods: Vec<(String, f64)>,
    /// Columns of levels.
    pub(crate) levels: Vec<(String, Levels)>,
    /// Columns of dates and times, and which parts of them are inputs.
    pub(crate) calendar: Vec<(String, Vec<CalendarPart>)>,
}

/// The levels of a column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Levels {
    /// Numbers 0, 1, … up to so many.
    Numbered(usize),
    /// These texts.
    Named(Vec<String>),
    /// The texts that are found in the file.
    Found,
}

impl Wishes {
    /// The columns of text that are inputs all the same.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let levels = self.levels.iter().filter(|(_, levels)| !matches!(levels, Levels::Numbered(_)));
        levels.map(|(name, _)| name.as_str()).chain(self.calendar.iter().map(|(name, _)| name.as_str()))
    }
}

impl InputPlan {
    /// The inputs that the given columns become. `find` looks up the levels of a column in the file.
    pub(crate) fn new(
        columns: &[String],
        left_out: Vec<String>,
        wishes: &Wishes,
        mut find: impl FnMut(&str) -> Result<Vec<String>>,
    ) -> Result<Self> {
        let known = |option: &str, name: &str| -> Result<()> {
            if columns.iter().any(|column| column == name) {
                return Ok(());
            }
            bail!("{option}: '{name}' is not one of the inputs {}", columns.join(", "))
        };
        wishes.periods.iter().try_for_each(|(name, _)| known("--periodic", name))?;
        wishes.levels.iter().try_for_each(|(name, _)| known("--categorical", name))?;
        wishes.calendar.iter().try_for_each(|(name, _)| known("--calendar", name))?;
        let mut plan = Self { left_out, ..Self::default() };
        for column in columns {
            let periods = wishes.periods.iter().filter(|(name, _)| name == column);
            let levels: Vec<_> = wishes.levels.iter().filter(|(name, _)| name == column).collect();
            let parts: Vec<_> = wishes.calendar.iter().filter(|(name, _)| name == column).collect();
            let said = usize::from(periods.clone().count() > 0) + levels.len() + parts.len();
            ensure!(
                said <= 1,
                "'{column}' can only be one of --periodic, --categorical and --calendar, and that once"
            );
            if let Some((_, levels)) = levels.first() {
                plan.add_levels(column, levels, &mut find)?;
            } else if let Some((_, parts)) = parts.first() {
                for &part in parts {
                    let kind = part.period().map_or(Column::Numeric, |period| Column::Periodic { period });
                    plan.push(format!("{column}.{}", part.name()), column, Reading::Calendar(part), kind)?;
                }
            } else if said == 0 {
                plan.push(column.clone(), column, Reading::Number, Column::Numeric)?;
            } else {
                for (i, &(_, period)) in periods.enumerate() {
                    // One column, several circles: hours of the day and of the week.
                    let name = if i == 0 { column.clone() } else { format!("{column}%{period}") };
                    plan.push(name, column, Reading::Number, Column::Periodic { period })?;
                }
            }
        }
        Ok(plan)
    }

    fn add_levels(
        &mut self,
        column: &str,
        levels: &Levels,
        find: &mut impl FnMut(&str) -> Result<Vec<String>>,
    ) -> Result<()> {
        let names = match levels {
            Levels::Numbered(levels) => {
                let kind = Column::Categorical { levels: *levels, ordered: false };
                return self.push(column.into(), column, Reading::Number, kind);
            }
            Levels::Named(names) => names.clone(),
            Levels::Found => find(column)?,
        };
        ensure!(names.len() >= 2, "--categorical: '{column}' has {} levels, and two are needed", names.len());
        let kind = Column::Categorical { levels: names.len(), ordered: false };
        self.push(column.into(), column, Reading::Levels(names), kind)
    }

    fn push(&mut self, name: String, column: &str, reading: Reading, kind: Column) -> Result<()> {
        ensure!(!self.names.contains(&name), "there would be two inputs called '{name}'");
        self.names.push(name);
        self.inputs.push(Input { column: column.into(), reading, kind });
        Ok(())
    }

    /// What the inputs mean to the model; empty if all are plain numbers.
    pub(crate) fn kinds(&self) -> Vec<Column> {
        let plain = self.inputs.iter().all(|input| input.kind == Column::Numeric);
        if plain { Vec::new() } else { self.inputs.iter().map(|input| input.kind).collect() }
    }

    /// Where the inputs come from; empty if each is the column of its name.
    pub(crate) fn sources(&self) -> Vec<InputSource> {
        let plain =
            |(name, input): (&String, &Input)| input.reading == Reading::Number && input.column == *name;
        if self.names.iter().zip(&self.inputs).all(plain) {
            return Vec::new();
        }
        let source =
            |input: &Input| InputSource { column: input.column.clone(), reading: input.reading.clone() };
        self.inputs.iter().map(source).collect()
    }

    /// What the user may want to know about columns that were not taken.
    pub(crate) fn note(&self) -> Option<String> {
        (!self.left_out.is_empty()).then(|| {
            format!(
                "columns without numbers are left out: {} (--categorical takes texts as levels, --calendar dates)",
                self.left_out.join(", ")
            )
        })
    }
}
