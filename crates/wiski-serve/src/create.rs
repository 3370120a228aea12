//! From the JSON that describes a model to the model.

use std::collections::BTreeMap;

use serde::Deserialize;
use wiski::decide::{Dimension, Goal, Optimizer, OptimizerSettings, Space};
use wiski::feature::Column;
use wiski::model::{HalfLife, InputScaling, NoiseModel};
use wiski::persist::{Columns, InputSource, Model, Reading, Stored};
use wiski::{Classes, Error, Kernel, OnlineClassifier, OnlineRegressor, Result, Settings};

use crate::served::Served;

/// What a client says about a new model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Its name, unless that stands in the path.
    #[serde(default)]
    pub name: Option<String>,
    /// What it is.
    pub kind: Kind,
    /// The input columns, in order; not for a search.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// The column that is predicted.
    #[serde(default)]
    pub target: Option<String>,
    /// The column with the known noise variance of each row, if there is one.
    #[serde(default)]
    pub noise: Option<String>,
    /// The column with the time of each row, if there is one.
    #[serde(default)]
    pub time: Option<String>,
    /// Inputs that repeat, with their periods.
    #[serde(default)]
    pub periodic: BTreeMap<String, f64>,
    /// Inputs that are one of several texts.
    #[serde(default)]
    pub levels: BTreeMap<String, Vec<String>>,
    /// The classes, if they are known; otherwise those of the warm-up rows.
    #[serde(default)]
    pub classes: Option<Vec<String>>,
    /// Whether labels that come up later become classes.
    #[serde(default)]
    pub add_classes: bool,
    /// How it learns.
    #[serde(default)]
    pub settings: Chosen,
    /// The box that is searched.
    #[serde(default)]
    pub space: Vec<Dimension>,
    /// Whether a search wants small or large values.
    #[serde(default)]
    pub goal: Option<Wanted>,
}

/// The kinds of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Predicts numbers.
    Regressor,
    /// Predicts classes.
    Classifier,
    /// Searches for the best point.
    Optimizer,
}

/// What a search looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// The smallest value.
    Minimize,
    /// The largest value.
    Maximize,
}

/// Settings that were chosen, as on the command line; all others are the defaults of the library.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    features: Option<String>,
    grid: Option<Vec<usize>>,
    kernel: Option<String>,
    learn: Option<String>,
    off_grid: Option<String>,
    bounds: Option<Vec<(f64, f64)>>,
    half_life: Option<f64>,
    tracking: Option<bool>,
    constant_noise: Option<bool>,
    warm_up: Option<usize>,
    memory: Option<usize>,
    max_grid: Option<usize>,
    intervals: Option<String>,
    level: Option<f64>,
    initial: Option<usize>,
    seed: Option<u64>,
}

/// More rows than this are not kept in memory for a warm-up or a search.
const MOST_ROWS: usize = 1 << 17;

fn reject<T>(field: &str, reason: impl Into<String>) -> Result<T> {
    Err(Error::Config { field: field.into(), reason: reason.into() })
}

impl Description {
    /// The model; at most so many columns are allowed.
    pub fn build(self, columns: usize) -> Result<Served> {
        let width = self.inputs.len().max(self.space.len());
        if width > columns {
            return reject("inputs", format!("{width} columns are more than the {columns} that are allowed"));
        }
        if self.kind == Kind::Optimizer { self.search() } else { self.rows() }
    }

    fn search(self) -> Result<Served> {
        let rows = [self.target.is_some(), self.time.is_some(), self.classes.is_some(), self.add_classes];
        if !self.inputs.is_empty()
            || !self.levels.is_empty()
            || !self.periodic.is_empty()
            || rows.contains(&true)
        {
            return reject("kind", "an optimizer has a space, and no columns");
        }
        let mut dimensions = self.space;
        for dimension in &mut dimensions {
            // Choices say what the ends are.
            if !dimension.choices.is_empty() {
                *dimension =
                    Dimension::choice(dimension.name.clone(), std::mem::take(&mut dimension.choices));
            }
        }
        let defaults = OptimizerSettings::default();
        let settings = OptimizerSettings {
            goal: if self.goal == Some(Wanted::Maximize) { Goal::Maximize } else { Goal::Minimize },
            initial: self.settings.initial,
            known_noise: self.noise.is_some(),
            seed: self.settings.seed.unwrap_or(defaults.seed),
            ..defaults
        };
        Ok(Served::Search(Box::new(Optimizer::new(Space::new(dimensions)?, settings)?)))
    }

    fn rows(self) -> Result<Served> {
        if !self.space.is_empty() || self.goal.is_some() || self.settings.initial.is_some() {
            return reject("space", "only an optimizer has one");
        }
        let Some(target) = self.target.clone() else { return reject("target", "a column is needed") };
        self.check_names(&target)?;
        let settings = self.row_settings()?;
        let width = self.inputs.len();
        let model = match self.kind {
            Kind::Classifier => {
                let mut classes = Classes { labels: self.classes.clone(), ..Classes::default() };
                if self.add_classes {
                    classes = classes.adding_unseen();
                }
                Model::Classifier(Box::new(OnlineClassifier::new(width, classes, settings)?))
            }
            _ if self.classes.is_some() || self.add_classes => {
                return reject("classes", "only a classifier has some");
            }
            _ => Model::Regressor(Box::new(OnlineRegressor::new(width, settings)?)),
        };
        let source = |name: &String| InputSource {
            column: name.clone(),
            reading: self.levels.get(name).map_or(Reading::Number, |levels| Reading::Levels(levels.clone())),
        };
        let sources =
            if self.levels.is_empty() { Vec::new() } else { self.inputs.iter().map(source).collect() };
        let (noise, time, inputs) = (self.noise, self.time, self.inputs);
        let columns = Columns { sources, target, noise, time, inputs, ..Columns::default() };
        Ok(Served::Rows(Box::new(Stored::new(columns, model)?)))
    }

    /// Rejects names that stand for two things, and what is said about no input.
    fn check_names(&self, target: &str) -> Result<()> {
        let others = [Some(target), self.noise.as_deref(), self.time.as_deref()];
        let all: Vec<&str> =
            self.inputs.iter().map(String::as_str).chain(others.into_iter().flatten()).collect();
        if let Some(twice) = all.iter().enumerate().find_map(|(i, n)| all[..i].contains(n).then_some(n)) {
            return reject("columns", format!("'{twice}' is named twice"));
        }
        if let Some(long) = all.iter().find(|name| name.is_empty() || name.len() > 256) {
            return reject("columns", format!("a name of {} bytes; 1 to 256 are allowed", long.len()));
        }
        let known = |name: &String| self.inputs.contains(name);
        match self.levels.keys().chain(self.periodic.keys()).find(|name| !known(name)) {
            Some(name) => reject(name, "is not one of the inputs"),
            None => Ok(()),
        }
    }

    fn row_settings(&self) -> Result<Settings> {
        let (chosen, width) = (&self.settings, self.inputs.len());
        let column = |name: &String| match (self.periodic.get(name), self.levels.get(name)) {
            (Some(&period), _) => Column::Periodic { period },
            (None, Some(levels)) => Column::Categorical { levels: levels.len(), ordered: false },
            (None, None) => Column::Numeric,
        };
        let is_plain = self.periodic.is_empty() && self.levels.is_empty();
        let mut settings = Settings {
            columns: if is_plain { Vec::new() } else { self.inputs.iter().map(column).collect() },
            noise: if self.noise.is_some() { NoiseModel::Known } else { NoiseModel::Learned },
            grid: chosen.grid.clone().unwrap_or_default(),
            ..Settings::default()
        };
        if let Some(text) = &chosen.features {
            settings.features = text.parse()?;
        }
        if let Some(text) = &chosen.learn {
            settings.schedule = text.parse()?;
        }
        if let Some(text) = &chosen.off_grid {
            settings.off_grid = text.parse()?;
        }
        if let Some(text) = &chosen.intervals {
            settings.intervals.kind = text.parse()?;
        }
        if let Some(bounds) = &chosen.bounds {
            settings.inputs = InputScaling::Bounds(bounds.clone());
        }
        if let Some(span) = chosen.half_life {
            let timed = self.time.is_some();
            settings.half_life = Some(if timed { HalfLife::Time(span) } else { HalfLife::Rows(span) });
        }
        if chosen.constant_noise == Some(true) {
            if settings.noise == NoiseModel::Known {
                let reason = "the noise of each row is given".into();
                return Err(wiski::Error::Config { field: "constant_noise".into(), reason });
            }
            settings.noise = NoiseModel::Constant;
        }
        settings.tracking = chosen.tracking.unwrap_or(settings.tracking);
        settings.intervals.level = chosen.level.unwrap_or(settings.intervals.level);
        settings.memory = chosen.memory.unwrap_or(settings.memory);
        settings.max_grid_points = chosen.max_grid.unwrap_or(settings.max_grid_points);
        settings.seed = chosen.seed.unwrap_or(settings.seed);
        settings.warm_up = chosen.warm_up;
        if settings.memory > MOST_ROWS || settings.warm_up.is_some_and(|rows| rows > MOST_ROWS) {
            return reject("warm_up, memory", format!("at most {MOST_ROWS} rows are kept in memory"));
        }
        if settings.warm_up.is_some_and(|rows| rows < 2) {
            return reject("warm_up", "at least two rows are needed");
        }
        if let Some(text) = &chosen.kernel {
            settings.kernel = Some(Kernel::parse(text, settings.axes(width))?);
        }
        Ok(settings)
    }
}
