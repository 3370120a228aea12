//! The parameters of the Python estimators as settings of the library, and back.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use wiski::model::{Coverage, HalfLife, InputScaling, Intervals, Missing, NoiseModel, StartValue, Upkeep};
use wiski::persist::{Columns, InputSource, Reading};
use wiski::{Column, Error, Kernel, Result, Settings};

use crate::errors::Failure;

/// The parameters, as a Python dictionary gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
#[allow(clippy::struct_excessive_bools)] // Each is a parameter of its own in Python.
pub(crate) struct Parameters {
    features: String,
    grid: Option<Vec<usize>>,
    kernel: Option<String>,
    /// Start values by name; a name without an index stands for all of its kind.
    initial: Vec<(String, Vec<f64>)>,
    schedule: String,
    half_life: Option<f64>,
    timed: bool,
    tracking: bool,
    warm_up: Option<usize>,
    bounds: Option<Vec<(f64, f64)>>,
    off_grid: String,
    max_grid_points: usize,
    engine: String,
    periodic: Vec<(usize, f64)>,
    categorical: Vec<(usize, usize)>,
    known_noise: bool,
    constant_noise: bool,
    marginalize: bool,
    background: bool,
    intervals: String,
    level: f64,
    empty_sets: bool,
    memory: usize,
    rank_budget: usize,
    rank_tolerance: f64,
    seed: u64,
}

fn reject<T>(field: &str, reason: impl Into<String>) -> Result<T> {
    Err(Error::Config { field: field.into(), reason: reason.into() })
}

impl Parameters {
    fn noise(&self) -> Result<NoiseModel> {
        match (self.known_noise, self.constant_noise) {
            (true, true) => reject("constant_noise", "with known_noise the noise of each row is given"),
            (true, false) => Ok(NoiseModel::Known),
            (false, true) => Ok(NoiseModel::Constant),
            (false, false) => Ok(NoiseModel::Learned),
        }
    }

    /// What the user said, for rows of so many columns; the library decides the rest.
    pub(crate) fn settings(&self, input_dim: usize) -> Result<Settings> {
        let mut settings = Settings {
            features: self.features.parse()?,
            grid: self.grid.clone().unwrap_or_default(),
            columns: self.columns(input_dim)?,
            start_values: self.initial.iter().map(start_value).collect(),
            schedule: self.schedule.parse()?,
            inputs: self.bounds.clone().map_or(InputScaling::WarmUp, InputScaling::Bounds),
            noise: self.noise()?,
            missing: if self.marginalize { Missing::Marginalize } else { Missing::Reject },
            upkeep: if self.background { Upkeep::Background } else { Upkeep::Wait },
            intervals: Intervals {
                kind: self.intervals.parse()?,
                level: self.level,
                empty_sets: self.empty_sets,
                ..Intervals::default()
            },
            warm_up: self.warm_up,
            off_grid: self.off_grid.parse()?,
            max_grid_points: self.max_grid_points,
            engine: self.engine.parse()?,
            half_life: self.half_life.map(if self.timed { HalfLife::Time } else { HalfLife::Rows }),
            tracking: self.tracking,
            memory: self.memory,
            rank_budget: self.rank_budget,
            rank_tolerance: self.rank_tolerance,
            seed: self.seed,
            ..Settings::default()
        };
        if let Some(kernel) = &self.kernel {
            settings.kernel = Some(Kernel::parse(kernel, settings.axes(input_dim))?);
        }
        Ok(settings)
    }

    fn columns(&self, input_dim: usize) -> Result<Vec<Column>> {
        let mut columns = vec![Column::Numeric; input_dim];
        let periodic = self.periodic.iter().map(|&(i, period)| (i, Column::Periodic { period }));
        let levels = |&(i, levels): &(usize, usize)| (i, Column::Categorical { levels, ordered: false });
        for (i, kind) in periodic.chain(self.categorical.iter().map(levels)) {
            match columns.get_mut(i) {
                Some(column) => *column = kind,
                None => return reject("columns", format!("there is no column {i} of {input_dim}")),
            }
        }
        let plain = columns.iter().all(|c| *c == Column::Numeric);
        Ok(if plain { Vec::new() } else { columns })
    }
}

/// A start value, in the units of the data.
fn start_value((name, values): &(String, Vec<f64>)) -> StartValue {
    StartValue { name: name.clone(), values: values.clone(), fixed: false }
}

/// The texts that stand for the levels of each column, where it is text.
pub(crate) fn levels_of(columns: &Columns) -> Vec<Option<Vec<String>>> {
    let levels = |input: usize| match columns.reading(input) {
        Reading::Levels(levels) => Some(levels.clone()),
        _ => None,
    };
    (0..columns.inputs.len()).map(levels).collect()
}

/// Says which texts stand for the levels of each column.
pub(crate) fn set_levels(
    columns: &mut Columns,
    levels: Vec<Option<Vec<String>>>,
) -> std::result::Result<(), Failure> {
    let (expected, found) = (columns.inputs.len(), levels.len());
    if expected != found {
        return Err(Error::WrongLength { field: "levels".into(), expected, found }.into());
    }
    let source = |(name, levels): (&String, Option<Vec<String>>)| InputSource {
        column: name.clone(),
        reading: levels.map_or(Reading::Number, Reading::Levels),
    };
    columns.sources = columns.inputs.iter().zip(levels).map(source).collect();
    Ok(())
}

/// Figures by their names, and how intervals or sets have held; `size` is the name of their mean size.
pub(crate) fn metrics<'py>(
    py: Python<'py>,
    figures: &[(&str, f64)],
    coverage: &Coverage,
    level: f64,
    size: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    figures.iter().try_for_each(|(name, value)| dict.set_item(name, value))?;
    dict.set_item("level", level)?;
    dict.set_item("coverage", coverage.share())?;
    dict.set_item(size, coverage.mean_size())?;
    if let Some((lowest, highest)) = coverage.windows() {
        dict.set_item("lowest_window", lowest)?;
        dict.set_item("highest_window", highest)?;
    }
    Ok(dict)
}

/// The parameters of an estimator with these settings.
pub(crate) fn to_dict<'py>(py: Python<'py>, settings: &Settings) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("features", settings.features.to_string())?;
    dict.set_item("grid", &settings.grid)?;
    let kernel = settings.kernel.as_ref();
    dict.set_item("kernel", kernel.map(ToString::to_string))?;
    let initial = PyDict::new(py);
    for start in &settings.start_values {
        initial.set_item(&start.name, &start.values)?;
    }
    dict.set_item("initial", if initial.is_empty() { None } else { Some(initial) })?;
    dict.set_item("schedule", settings.schedule.to_string())?;
    let (life, timed) = match settings.half_life {
        None => (None, false),
        Some(HalfLife::Rows(life)) => (Some(life), false),
        Some(HalfLife::Time(life)) => (Some(life), true),
    };
    dict.set_item("half_life", life)?;
    dict.set_item("timed", timed)?;
    dict.set_item("tracking", settings.tracking)?;
    dict.set_item("warm_up", settings.warm_up)?;
    let bounds =
        if let InputScaling::Bounds(bounds) = &settings.inputs { Some(bounds.clone()) } else { None };
    dict.set_item("bounds", bounds)?;
    dict.set_item("off_grid", settings.off_grid.to_string())?;
    dict.set_item("max_grid_points", settings.max_grid_points)?;
    dict.set_item("engine", settings.engine.to_string())?;
    let (periodic, categorical) = (PyDict::new(py), PyDict::new(py));
    for (i, column) in settings.columns.iter().enumerate() {
        match *column {
            Column::Numeric => {}
            Column::Periodic { period } => periodic.set_item(i, period)?,
            Column::Categorical { levels, .. } => categorical.set_item(i, levels)?,
        }
    }
    dict.set_item("periodic", if periodic.is_empty() { None } else { Some(periodic) })?;
    dict.set_item("categorical", if categorical.is_empty() { None } else { Some(categorical) })?;
    dict.set_item("known_noise", settings.noise == NoiseModel::Known)?;
    let missing = if settings.missing == Missing::Marginalize { "marginalize" } else { "error" };
    dict.set_item("missing", missing)?;
    dict.set_item("constant_noise", settings.noise == NoiseModel::Constant)?;
    dict.set_item("intervals", settings.intervals.kind.to_string())?;
    dict.set_item("level", settings.intervals.level)?;
    dict.set_item("empty_sets", settings.intervals.empty_sets)?;
    dict.set_item("memory", settings.memory)?;
    dict.set_item("rank_budget", settings.rank_budget)?;
    dict.set_item("rank_tolerance", settings.rank_tolerance)?;
    dict.set_item("random_state", settings.seed)?;
    Ok(dict)
}
