//! From the JSON that describes a model to the model.

use std::collections::BTreeMap;

use serde::Deserialize;
use wiski::decide::{Condition, Dimension, Goal, Optimizer, OptimizerSettings, Scale, Space};
use wiski::model::{HalfLife, InputScaling, NoiseModel};
use wiski::persist::{Columns, InputSource, Model, Reading, Stored};
use wiski::time::{self, Lags, Seasons, TrendKind};
use wiski::{
    Classes, Column, Error, ForecastSettings, Forecaster, Kernel, OnlineClassifier, OnlineRegressor, Result,
    Settings,
};

use crate::batch::Schema;
use crate::series::Series;
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
    pub space: Vec<Axis>,
    /// Whether a search wants small or large values.
    #[serde(default)]
    pub goal: Option<Wanted>,
    /// The same for each of several objectives.
    #[serde(default)]
    pub goals: Option<Vec<Wanted>>,
    /// The names of values that come with every result of a search, and must not be positive.
    #[serde(default)]
    pub constraints: Vec<String>,
}

/// A dimension of the box that is searched: a range, or choices.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    name: String,
    lo: Option<f64>,
    hi: Option<f64>,
    #[serde(default)]
    scale: Scale,
    #[serde(default)]
    integer: bool,
    step: Option<f64>,
    #[serde(default)]
    choices: Vec<String>,
    only_if: Option<Condition>,
}

impl Axis {
    fn dimension(self) -> Result<Dimension> {
        let Self { name, lo, hi, scale, integer, step, choices, only_if } = self;
        // Choices say what the ends are.
        let dimension = match (lo, hi) {
            _ if !choices.is_empty() => Dimension::choice(name, choices),
            (Some(lo), Some(hi)) => Dimension { scale, integer, step, ..Dimension::linear(name, lo, hi) },
            _ => return reject(&name, "a dimension has 'lo' and 'hi', or 'choices'"),
        };
        Ok(Dimension { only_if, ..dimension })
    }
}

/// The kinds of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Predicts numbers.
    Regressor,
    /// Predicts classes.
    Classifier,
    /// Learns a series and says what comes next.
    Forecaster,
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

impl From<Wanted> for Goal {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::Minimize => Self::Minimize,
            Wanted::Maximize => Self::Maximize,
        }
    }
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
    // Of a forecaster.
    seasons: Option<Vec<f64>>,
    lags: Option<Vec<usize>>,
    trend: Option<Trend>,
    scale: Option<time::Scale>,
    step: Option<f64>,
    horizon: Option<f64>,
}

/// How the level of a series moves on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Trend {
    Linear,
    Damped,
    Level,
}

impl Chosen {
    /// A setting that only a forecaster has.
    fn of_series(&self) -> Option<&'static str> {
        let all = [
            ("seasons", self.seasons.is_some()),
            ("lags", self.lags.is_some()),
            ("trend", self.trend.is_some()),
            ("scale", self.scale.is_some()),
            ("step", self.step.is_some()),
            ("horizon", self.horizon.is_some()),
        ];
        all.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// A setting that a forecaster does not have.
    fn of_others(&self) -> Option<&'static str> {
        let all = [("initial", self.initial.is_some()), ("seed", self.seed.is_some())];
        let own = all.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name);
        self.of_grids().or(own)
    }

    /// A setting that an optimizer does not have.
    fn of_rows(&self) -> Option<&'static str> {
        self.of_grids().or(self.memory.map(|_| "memory"))
    }

    /// A setting that only models of rows have.
    fn of_grids(&self) -> Option<&'static str> {
        let all = [
            ("features", self.features.is_some()),
            ("grid", self.grid.is_some()),
            ("kernel", self.kernel.is_some()),
            ("learn", self.learn.is_some()),
            ("off_grid", self.off_grid.is_some()),
            ("bounds", self.bounds.is_some()),
            ("half_life", self.half_life.is_some()),
            ("tracking", self.tracking.is_some()),
            ("constant_noise", self.constant_noise.is_some()),
            ("warm_up", self.warm_up.is_some()),
            ("max_grid", self.max_grid.is_some()),
            ("intervals", self.intervals.is_some()),
            ("level", self.level.is_some()),
        ];
        all.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }
}

/// More rows than this are not kept in memory for a warm-up or a search.
const MOST_ROWS: usize = 1 << 17;

fn reject<T>(field: &str, reason: impl Into<String>) -> Result<T> {
    Err(Error::Config { field: field.into(), reason: reason.into() })
}

/// Rejects names that stand for two columns, and those that are too long.
fn check_all(names: &[&str]) -> Result<()> {
    if let Some(twice) = names.iter().enumerate().find_map(|(i, n)| names[..i].contains(n).then_some(n)) {
        return reject("columns", format!("'{twice}' is named twice"));
    }
    match names.iter().find(|name| name.is_empty() || name.len() > 256) {
        Some(long) => reject("columns", format!("a name of {} bytes; 1 to 256 are allowed", long.len())),
        None => Ok(()),
    }
}

impl Description {
    /// The model; at most so many columns are allowed.
    pub fn build(self, columns: usize) -> Result<Served> {
        let width = self.inputs.len().max(self.space.len());
        if width > columns {
            return reject("inputs", format!("{width} columns are more than the {columns} that are allowed"));
        }
        match (self.kind, self.settings.of_series()) {
            (Kind::Forecaster, _) => self.series(),
            (_, Some(name)) => reject(name, "only a forecaster has this setting"),
            (Kind::Optimizer, None) => self.search(),
            _ => self.rows(),
        }
    }

    fn series(self) -> Result<Served> {
        let others =
            [("noise", self.noise.is_some()), ("classes", self.classes.is_some() || self.add_classes)];
        let other = others.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name);
        if let Some(name) = self.of_search().or(other).or(self.settings.of_others()) {
            return reject(name, "a forecaster has none");
        }
        let Some(target) = self.target.clone() else { return reject("target", "a column is needed") };
        if self.time.is_none() {
            return reject("time", "a column is needed: the times of the series, as numbers");
        }
        self.check_names(&target)?;
        let (chosen, defaults) = (&self.settings, ForecastSettings::default());
        let settings = ForecastSettings {
            seasons: chosen.seasons.clone().map_or(Seasons::Auto, Seasons::Given),
            lags: chosen.lags.clone().map_or(Lags::Auto, Lags::Given),
            trend: match chosen.trend {
                None | Some(Trend::Linear) => TrendKind::Linear,
                Some(Trend::Damped) => TrendKind::Damped,
                Some(Trend::Level) => TrendKind::Level,
            },
            scale: chosen.scale.unwrap_or_default(),
            dates: false,
            columns: self.inputs.iter().map(|name| self.column(name)).collect(),
            step: chosen.step,
            horizon: chosen.horizon,
            memory: chosen.memory.unwrap_or(defaults.memory),
        };
        if settings.memory > MOST_ROWS {
            return reject("memory", format!("at most {MOST_ROWS} rows are kept in memory"));
        }
        let (model, columns) = (Forecaster::new(settings)?, self.columns(target));
        Ok(Served::Series(Box::new(Series::new(columns, model)?)))
    }

    /// What only a search has.
    fn of_search(&self) -> Option<&'static str> {
        let all = [
            ("space", !self.space.is_empty()),
            ("goal", self.goal.is_some()),
            ("goals", self.goals.is_some()),
            ("constraints", !self.constraints.is_empty()),
            ("initial", self.settings.initial.is_some()),
        ];
        all.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// What an input is.
    fn column(&self, name: &String) -> Column {
        match (self.periodic.get(name), self.levels.get(name)) {
            (Some(&period), _) => Column::Periodic { period },
            (None, Some(levels)) => Column::Categorical { levels: levels.len(), ordered: false },
            (None, None) => Column::Numeric,
        }
    }

    /// The names of the columns, and how they are read.
    fn columns(self, target: String) -> Columns {
        let source = |name: &String| InputSource {
            column: name.clone(),
            reading: self.levels.get(name).map_or(Reading::Number, |levels| Reading::Levels(levels.clone())),
        };
        let sources =
            if self.levels.is_empty() { Vec::new() } else { self.inputs.iter().map(source).collect() };
        let (noise, time, inputs) = (self.noise, self.time, self.inputs);
        Columns { sources, target, noise, time, inputs, ..Columns::default() }
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
        if let Some(name) = self.settings.of_rows() {
            return reject(name, "an optimizer has none");
        }
        let goals: Vec<Goal> = match (self.goal, self.goals) {
            (Some(_), Some(_)) => return reject("goals", "there is a goal already"),
            (_, Some(goals)) if goals.is_empty() => return reject("goals", "there is none"),
            (_, Some(goals)) => goals.into_iter().map(Goal::from).collect(),
            (goal, None) => vec![goal.map_or(Goal::Minimize, Goal::from)],
        };
        let dimensions: Vec<Dimension> =
            self.space.into_iter().map(Axis::dimension).collect::<Result<_>>()?;
        let defaults = OptimizerSettings::default();
        let settings = OptimizerSettings {
            goal: goals[0],
            further: goals[1..].to_vec(),
            constraints: self.constraints,
            initial: self.settings.initial,
            known_noise: self.noise.is_some(),
            seed: self.settings.seed.unwrap_or(defaults.seed),
            ..defaults
        };
        let served = Served::Search(Box::new(Optimizer::new(Space::new(dimensions)?, settings)?));
        let Schema { columns, beside, .. } = served.schema();
        let taken = columns.inputs.iter().chain([&columns.target]).chain(&columns.noise).chain(&beside);
        check_all(&taken.map(String::as_str).collect::<Vec<_>>())?;
        Ok(served)
    }

    fn rows(self) -> Result<Served> {
        if let Some(name) = self.of_search() {
            return reject(name, "only an optimizer has it");
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
        Ok(Served::Rows(Box::new(Stored::new(self.columns(target), model)?)))
    }

    /// Rejects names that stand for two things, and what is said about no input.
    fn check_names(&self, target: &str) -> Result<()> {
        let others = [Some(target), self.noise.as_deref(), self.time.as_deref()];
        let all: Vec<&str> =
            self.inputs.iter().map(String::as_str).chain(others.into_iter().flatten()).collect();
        check_all(&all)?;
        let known = |name: &String| self.inputs.contains(name);
        match self.levels.keys().chain(self.periodic.keys()).find(|name| !known(name)) {
            Some(name) => reject(name, "is not one of the inputs"),
            None => Ok(()),
        }
    }

    fn row_settings(&self) -> Result<Settings> {
        let (chosen, width) = (&self.settings, self.inputs.len());
        let is_plain = self.periodic.is_empty() && self.levels.is_empty();
        let mut settings = Settings {
            columns: if is_plain {
                Vec::new()
            } else {
                self.inputs.iter().map(|name| self.column(name)).collect()
            },
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
