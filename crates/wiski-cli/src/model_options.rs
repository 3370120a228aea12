//! The options that describe a model, and the settings they mean.

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use wiski::engine::Engine;
use wiski::feature::Column;
use wiski::large::Accuracy;
use wiski::model::{HalfLife, InputScaling, NoiseModel};
use wiski::{Kernel, OffGrid, Schedule, Settings};

/// What kind of model, and how it learns.
#[derive(Args, Debug, Clone)]
pub(crate) struct ModelOptions {
    /// How rows become coordinates on grids: identity, additive (a sum of small grids; additive:12 for twelve
    /// directions), project:2 (a learned projection to two), mlp:64,64:2 (a perceptron), or auto: identity for
    /// one or two inputs, else additive [default: auto]
    #[arg(long, value_name = "MAP")]
    features: Option<String>,

    /// Grid points per axis: 16, or one number for each axis as in 16x24 [default: 32 for one axis, 16 for
    /// two, 10 for three, 7 for four]
    #[arg(long, value_name = "POINTS")]
    grid: Option<String>,

    /// The kernel: rbf, matern12, matern32, matern52, rq, periodic, cosine, sm:4; with sums, products and
    /// axes as in 'rbf + periodic@0' [default: rbf; a sum of grids has its own for each]
    #[arg(long, value_name = "EXPRESSION")]
    kernel: Option<String>,

    /// Inputs that repeat, with their period, as hour=24,weekday=7
    #[arg(long, value_name = "COLUMN=PERIOD", value_delimiter = ',')]
    periodic: Vec<String>,

    /// Inputs that are levels 0, 1, …, with their number, as station=12
    #[arg(long, value_name = "COLUMN=LEVELS", value_delimiter = ',')]
    categorical: Vec<String>,

    /// When hyperparameters are learned: geometric:1.1 (whenever there are a tenth more rows), every-step
    /// (one step for each row, as in the paper) or off [default: geometric:1.1]
    #[arg(long, value_name = "SCHEDULE")]
    learn: Option<String>,

    /// Let a row count half after so many rows; with --time-col after so much time, as 3600, 90m, 12h or 7d
    #[arg(long, value_name = "SPAN")]
    half_life: Option<String>,

    /// Keep so many rows in memory to start from: a number, or a share of all rows below 1 [default: by the
    /// number of inputs]
    #[arg(long, value_name = "ROWS", allow_negative_numbers = true)]
    pub(crate) pretrain: Option<f64>,

    /// The seed of everything random
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// What to do with rows that lie off the grid
    #[arg(long, value_enum, default_value_t = OffGridOption::Extend)]
    off_grid: OffGridOption,

    /// The interval of each input, as 0:1,-5:5 [default: what the first rows span]
    #[arg(long, value_name = "LO:HI,…", allow_hyphen_values = true)]
    bounds: Option<String>,

    /// Start values, as lengthscale=0.5,0.7 outputscale=0.8 noise=0.05, in scaled units (inputs −1 to 1,
    /// targets of variance 1). With --learn off they stay
    #[arg(long, value_name = "NAME=VALUES", num_args = 1..)]
    init: Vec<String>,

    /// How posteriors are computed: dense (a factorization, exact), sparse (exact, for matern12 on large grids),
    /// krylov (iterations, for large grids) or auto: by the size of the grid and the kernel
    #[arg(long, value_enum, default_value_t = EngineOption::Auto)]
    engine: EngineOption,

    /// The largest number of points to which the grid may grow by itself [default: 16384]
    #[arg(long, value_name = "POINTS")]
    max_grid: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OffGridOption {
    /// Stop with an error (or skip the row, with --on-bad-row skip)
    Error,
    /// Extend the grid until it covers the row
    Extend,
    /// Predict with the prior and learn nothing from the row
    Prior,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineOption {
    /// By the size of the grid and the kernel
    Auto,
    /// A factorization as large as the rank of the prior
    Dense,
    /// A sparse factorization, for products of matern12 on one grid
    Sparse,
    /// Conjugate gradients, for one grid
    Krylov,
}

impl ModelOptions {
    /// The settings for rows of `width` inputs, of which `total` are expected if that is known.
    pub(crate) fn settings(
        &self,
        inputs: &[String],
        total: Option<usize>,
        known_noise: bool,
        timed: bool,
    ) -> Result<Settings> {
        let width = inputs.len();
        let features = self.features.as_deref().unwrap_or("auto");
        let defaults = Settings::default();
        let mut settings = Settings {
            features: features.parse().map_err(|error| named("--features", error))?,
            grid: self.grid()?,
            columns: self.columns(inputs)?,
            initial: self.init.iter().map(|entry| start_value(entry)).collect::<Result<_>>()?,
            schedule: self.schedule()?,
            inputs: self.bounds(width)?,
            noise: if known_noise { NoiseModel::Known } else { NoiseModel::Learned },
            warm_up: self.warm_up(total)?,
            off_grid: match self.off_grid {
                OffGridOption::Error => OffGrid::Error,
                OffGridOption::Extend => OffGrid::Extend,
                OffGridOption::Prior => OffGrid::Prior,
            },
            max_grid_points: self.max_grid.unwrap_or(defaults.max_grid_points),
            engine: match self.engine {
                EngineOption::Auto => Engine::Auto,
                EngineOption::Dense => Engine::Dense,
                EngineOption::Sparse => Engine::Sparse,
                EngineOption::Krylov => Engine::Krylov(Accuracy::default()),
            },
            half_life: self.half_life(timed)?,
            seed: self.seed,
            ..defaults
        };
        let axes = settings.axes(width);
        if let Some(kernel) = &self.kernel {
            settings.kernel = Some(Kernel::parse(kernel, axes)?);
        }
        if let Some(limit) = self.max_grid
            && !settings.grid.is_empty()
        {
            let points: usize = (0..axes).map(|k| settings.grid[k.min(settings.grid.len() - 1)]).product();
            ensure!(points <= limit, "--max-grid: the grid has {points} points to begin with");
        }
        Ok(settings)
    }

    /// What the inputs mean; empty if all are plain numbers.
    fn columns(&self, inputs: &[String]) -> Result<Vec<Column>> {
        let mut columns = vec![Column::Numeric; inputs.len()];
        let entry = |option: &str, text: &String| -> Result<(usize, f64)> {
            let Some((name, value)) = text.split_once('=') else {
                bail!("{option}: '{text}' is not column=number");
            };
            let Some(place) = inputs.iter().position(|i| i == name) else {
                bail!("{option}: '{name}' is not one of the inputs {}", inputs.join(", "));
            };
            Ok((place, number(option, value)?))
        };
        for text in &self.periodic {
            let (place, period) = entry("--periodic", text)?;
            ensure!(period > 0.0, "--periodic: the period of {text} must be positive");
            columns[place] = Column::Periodic { period };
        }
        for text in &self.categorical {
            let (place, levels) = entry("--categorical", text)?;
            ensure!(
                levels >= 2.0 && levels.fract() == 0.0,
                "--categorical: {text} is not a number of levels"
            );
            columns[place] = Column::Categorical { levels: levels as usize, ordered: false };
        }
        let plain = columns.iter().all(|c| *c == Column::Numeric);
        Ok(if plain { Vec::new() } else { columns })
    }

    /// Whether any option describes the model.
    pub(crate) fn is_given(&self) -> bool {
        let texts = [&self.features, &self.grid, &self.kernel, &self.learn, &self.half_life, &self.bounds];
        texts.iter().any(|t| t.is_some())
            || [&self.init, &self.periodic, &self.categorical].iter().any(|l| !l.is_empty())
            || self.pretrain.is_some()
    }

    /// Grid points per axis; empty if the model is to choose.
    fn grid(&self) -> Result<Vec<usize>> {
        let points = |part: &str| -> Result<usize> {
            match part.parse() {
                Ok(points) if points >= 4 => Ok(points),
                _ => bail!("--grid: '{part}' is not a number of points (at least 4), as in 16 or 16x24"),
            }
        };
        self.grid.iter().flat_map(|text| text.split('x')).map(points).collect()
    }

    fn schedule(&self) -> Result<Schedule> {
        let text = self.learn.as_deref().unwrap_or("geometric");
        let schedule = text.parse().map_err(|error| named("--learn", error))?;
        match schedule {
            Schedule::Geometric { ratio } => {
                ensure!(ratio > 1.0, "--learn: the ratio {ratio} must be above 1");
            }
            Schedule::EveryStep { rate } => ensure!(rate > 0.0, "--learn: the rate {rate} must be above 0"),
            Schedule::Off => {}
        }
        Ok(schedule)
    }

    fn half_life(&self, timed: bool) -> Result<Option<HalfLife>> {
        let Some(text) = &self.half_life else { return Ok(None) };
        let unit = match text.chars().last() {
            Some('s') => Some(1.0),
            Some('m') => Some(60.0),
            Some('h') => Some(3600.0),
            Some('d') => Some(86_400.0),
            _ => None,
        };
        let span = number("--half-life", if unit.is_some() { &text[..text.len() - 1] } else { text })?;
        ensure!(span > 0.0, "--half-life: {text} is not above 0");
        match (unit, timed) {
            (Some(_), false) => bail!("--half-life: {text} is a time, so --time-col is needed"),
            (unit, true) => Ok(Some(HalfLife::Time(span * unit.unwrap_or(1.0)))),
            (None, false) => Ok(Some(HalfLife::Rows(span))),
        }
    }

    fn warm_up(&self, total: Option<usize>) -> Result<Option<usize>> {
        match (self.pretrain, total) {
            (None, _) => Ok(None),
            (Some(rows), _) if rows >= 1.0 => Ok(Some(rows as usize)),
            (Some(share), Some(total)) if share > 0.0 => Ok(Some(((share * total as f64) as usize).max(2))),
            (Some(share), _) => bail!("--pretrain: {share} is neither a number of rows nor a share of them"),
        }
    }

    fn bounds(&self, width: usize) -> Result<InputScaling> {
        let Some(text) = &self.bounds else { return Ok(InputScaling::WarmUp) };
        let interval = |part: &str| -> Result<(f64, f64)> {
            let Some((lo, hi)) = part.split_once(':') else {
                bail!("--bounds: '{part}' is not an interval such as -1:1");
            };
            let (lo, hi) = (number("--bounds", lo)?, number("--bounds", hi)?);
            ensure!(lo < hi, "--bounds: {part} is empty");
            Ok((lo, hi))
        };
        let bounds: Vec<_> = text.split(',').map(interval).collect::<Result<_>>()?;
        ensure!(bounds.len() == width, "--bounds: {} intervals were given for {width} inputs", bounds.len());
        Ok(InputScaling::Bounds(bounds))
    }
}

/// An error of the library about a setting, under the name of its option.
fn named(option: &str, error: wiski::Error) -> anyhow::Error {
    match error {
        wiski::Error::Config { reason, .. } => anyhow::anyhow!("{option}: {reason}"),
        other => other.into(),
    }
}

/// A finite number, or an error that names the option.
pub(crate) fn number(option: &str, text: &str) -> Result<f64> {
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => bail!("{option}: '{text}' is not a number"),
    }
}

fn numbers<T>(text: &str, number: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    text.split(',').map(number).collect()
}

/// The name and values of a start value such as `lengthscale=0.5,0.7`.
fn start_value(entry: &str) -> Result<(String, Vec<f64>)> {
    let Some((name, values)) = entry.split_once('=') else {
        bail!("--init: '{entry}' is not a setting such as lengthscale=0.5");
    };
    let values = numbers(values, |v| number("--init", v))?;
    ensure!(values.iter().all(|&v| v > 0.0), "--init: {entry} must be positive");
    Ok((name.to_owned(), values))
}
