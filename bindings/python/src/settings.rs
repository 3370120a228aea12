//! The parameters of the Python estimators as settings of the library, and back.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use wiski::feature::Column;
use wiski::learn::WarmUpTraining;
use wiski::model::{DriftDetector, HalfLife, InputScaling, NoiseModel};
use wiski::{Error, Features, Kernel, OffGrid, Result, Schedule, Settings};

/// The parameters, as a Python dictionary gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Parameters {
    features: String,
    grid: Option<Vec<usize>>,
    kernel: Option<String>,
    /// Start values by name; a name without an index stands for all of its kind.
    initial: Vec<(String, Vec<f64>)>,
    schedule: String,
    half_life: Option<f64>,
    timed: bool,
    warm_up: Option<usize>,
    bounds: Option<Vec<(f64, f64)>>,
    off_grid: String,
    max_grid_points: usize,
    engine: String,
    periodic: Vec<(usize, f64)>,
    categorical: Vec<(usize, usize)>,
    known_noise: bool,
    memory: usize,
    rank_budget: usize,
    rank_tolerance: f64,
    seed: u64,
}

fn refuse<T>(field: &str, reason: impl Into<String>) -> Result<T> {
    Err(Error::Config { field: field.into(), reason: reason.into() })
}

/// Grid points per axis, unless told otherwise: what the command line takes.
const POINTS: [usize; 4] = [32, 16, 10, 7];

impl Parameters {
    /// The settings for rows of so many columns.
    pub(crate) fn settings(&self, input_dim: usize) -> Result<Settings> {
        self.settings_of_classes(input_dim, false)
    }

    /// The same for a classifier, which learns features of two classes only.
    pub(crate) fn settings_of_classes(&self, input_dim: usize, several: bool) -> Result<Settings> {
        let columns = self.columns(input_dim)?;
        let mut features: Features = self.features.parse()?;
        if features == Features::Auto {
            let plain = input_dim <= (if several { 4 } else { 2 }) && columns.is_empty();
            features = if plain { Features::Identity } else { Features::Additive { directions: None } };
        }
        let additive = matches!(features, Features::Additive { .. } | Features::Auto);
        let axes = match features {
            Features::Additive { .. } | Features::Auto => 1,
            Features::Identity => input_dim,
            Features::Project { outputs } | Features::Mlp { outputs, .. } => outputs,
        };
        let schedule: Schedule = self.schedule.parse()?;
        let (kernel, noise) = self.start_values(axes, additive)?;
        let defaults = Settings::default();
        let fixed = schedule == Schedule::Off && !self.initial.is_empty();
        Ok(Settings {
            grid: self.grid.clone().unwrap_or_else(|| vec![POINTS[axes.clamp(1, 4) - 1]]),
            features,
            kernel,
            columns,
            initial_noise: noise.unwrap_or(defaults.initial_noise),
            schedule,
            fit_warm_up: !fixed,
            training: WarmUpTraining {
                epochs: if fixed { 0 } else { defaults.training.epochs },
                ..defaults.training
            },
            feature_rate: if schedule == Schedule::Off { 0.0 } else { defaults.feature_rate },
            drift: Some(DriftDetector::default()),
            inputs: self.bounds.clone().map_or(InputScaling::WarmUp, InputScaling::Bounds),
            noise: if self.known_noise { NoiseModel::Known } else { NoiseModel::Learned },
            warm_up: self.warm_up,
            off_grid: match self.off_grid.as_str() {
                "error" => OffGrid::Error,
                "extend" => OffGrid::Extend,
                "prior" => OffGrid::Prior,
                other => return refuse("off_grid", format!("'{other}' is not error, extend or prior")),
            },
            max_grid_points: self.max_grid_points,
            engine: self.engine.parse()?,
            half_life: self.half_life.map(if self.timed { HalfLife::Time } else { HalfLife::Rows }),
            memory: self.memory,
            rank_budget: self.rank_budget,
            rank_tolerance: self.rank_tolerance,
            seed: self.seed,
            ..defaults
        })
    }

    fn columns(&self, input_dim: usize) -> Result<Vec<Column>> {
        let mut columns = vec![Column::Numeric; input_dim];
        let periodic = self.periodic.iter().map(|&(i, period)| (i, Column::Periodic { period }));
        let levels = |&(i, levels): &(usize, usize)| (i, Column::Categorical { levels, ordered: false });
        for (i, kind) in periodic.chain(self.categorical.iter().map(levels)) {
            match columns.get_mut(i) {
                Some(column) => *column = kind,
                None => return refuse("columns", format!("there is no column {i} of {input_dim}")),
            }
        }
        let plain = columns.iter().all(|c| *c == Column::Numeric);
        Ok(if plain { Vec::new() } else { columns })
    }

    /// The kernel and the noise to start from.
    fn start_values(&self, axes: usize, additive: bool) -> Result<(Option<Kernel>, Option<f64>)> {
        let mut noise = None;
        let others: Vec<_> = self.initial.iter().filter(|(name, _)| name != "noise").collect();
        if let Some((_, values)) = self.initial.iter().find(|(name, _)| name == "noise") {
            match values[..] {
                [value] => noise = Some(value),
                _ => return refuse("initial", format!("there is one noise, not {}", values.len())),
            }
        }
        if additive {
            if self.kernel.is_some() || !others.is_empty() {
                return refuse("kernel", "a sum of grids has its own kernel for each; give the noise only");
            }
            return Ok((None, noise));
        }
        if !(1..=4).contains(&axes) {
            return refuse(
                "features",
                format!("a grid has 1 to 4 axes, not {axes}: try 'auto' or 'project:2'"),
            );
        }
        let mut kernel = Kernel::parse(self.kernel.as_deref().unwrap_or("rbf"), axes)?;
        for (name, values) in others {
            set(&mut kernel, name, values)?;
        }
        Ok((Some(kernel), noise))
    }
}

/// Gives start values to all parameters of a name; `lengthscale` stands for `lengthscale[0]`, `1.lengthscale[0]`, ….
fn set(kernel: &mut Kernel, name: &str, values: &[f64]) -> Result<()> {
    let names = kernel.parameter_names();
    let stem = |full: &str| {
        let stem = full.split('[').next().unwrap_or(full);
        stem == name || stem.split_once('.').is_some_and(|(_, own)| own == name)
    };
    let own: Vec<usize> = (0..names.len()).filter(|&i| names[i] == name || stem(&names[i])).collect();
    if own.is_empty() {
        let known = names.join(", ");
        return refuse("initial", format!("there is no hyperparameter '{name}'; there are noise, {known}"));
    }
    if values.len() != 1 && values.len() != own.len() {
        let (given, wanted) = (values.len(), own.len());
        return refuse("initial", format!("{given} values were given for {wanted} hyperparameters '{name}'"));
    }
    let mut parameters = kernel.parameters();
    for (place, &i) in own.iter().enumerate() {
        parameters[i] = values[place.min(values.len() - 1)];
    }
    kernel.set_parameters(&parameters)
}

/// The parameters of an estimator with these settings.
pub(crate) fn to_dict<'py>(py: Python<'py>, settings: &Settings) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("features", settings.features.to_string())?;
    dict.set_item("grid", &settings.grid)?;
    let kernel = settings.kernel.as_ref();
    dict.set_item("kernel", kernel.map(ToString::to_string))?;
    let initial = PyDict::new(py);
    for (name, value) in kernel.iter().flat_map(|k| k.parameter_names().into_iter().zip(k.parameters())) {
        initial.set_item(name, value)?;
    }
    initial.set_item("noise", settings.initial_noise)?;
    // Of start values that were learned from there on nothing is left to say.
    dict.set_item("initial", if settings.fit_warm_up { None } else { Some(initial) })?;
    dict.set_item("schedule", settings.schedule.to_string())?;
    let (life, timed) = match settings.half_life {
        None => (None, false),
        Some(HalfLife::Rows(life)) => (Some(life), false),
        Some(HalfLife::Time(life)) => (Some(life), true),
    };
    dict.set_item("half_life", life)?;
    dict.set_item("timed", timed)?;
    dict.set_item("warm_up", settings.warm_up)?;
    let bounds =
        if let InputScaling::Bounds(bounds) = &settings.inputs { Some(bounds.clone()) } else { None };
    dict.set_item("bounds", bounds)?;
    let off_grid = match settings.off_grid {
        OffGrid::Error => "error",
        OffGrid::Extend => "extend",
        OffGrid::Prior => "prior",
    };
    dict.set_item("off_grid", off_grid)?;
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
    dict.set_item("memory", settings.memory)?;
    dict.set_item("rank_budget", settings.rank_budget)?;
    dict.set_item("rank_tolerance", settings.rank_tolerance)?;
    dict.set_item("random_state", settings.seed)?;
    Ok(dict)
}
