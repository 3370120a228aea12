//! The options that describe a model, and the settings they mean.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use wiski::model::{HalfLife, InputScaling, Missing, NoiseModel, StartValue};
use wiski::persist::CalendarPart;
use wiski::{Accuracy, Engine, Kernel, OffGrid, Schedule, Settings};

use crate::input::{self, Source};
use crate::inputs::{InputPlan, Levels, Wishes};
use crate::names;

/// A column with more texts than this is no column of levels.
const MOST_LEVELS: usize = 1000;

/// What kind of model, and how it learns.
#[derive(Args, Debug, Clone)]
pub(crate) struct ModelOptions {
    /// How rows become coordinates: identity, points (a sum of small grids with inducing points over all inputs
    /// where they help; points:256 for so many), additive (the grids alone; additive:12 for twelve directions), project:2 (a learned projection
    /// to two), mlp:64,64:2 (a perceptron), or auto: identity for one or two inputs, else points
    /// [default: auto]
    #[arg(long, value_name = "MAP")]
    features: Option<String>,

    /// Grid points per axis: 16, or one number for each axis as in 16x24 [default: found on the rows for one or two
    /// axes, 10 for three, 7 for four]
    #[arg(long, value_name = "POINTS")]
    grid: Option<String>,

    /// The kernel: rbf, matern12, matern32, matern52, rq, periodic, cosine, sm:4; with sums, products and
    /// axes as in 'rbf + periodic@0' [default: for one or two inputs the best of rbf, matern52, matern32, matern12 and, where
    /// there is a sign for it, a sum of two; a sum of grids has its own for each]
    #[arg(long, value_name = "EXPRESSION")]
    kernel: Option<String>,

    /// Inputs that repeat, with their period, as hour=24,weekday=7; a column may have several, as h=24,h=168
    #[arg(long, value_name = "COLUMN=PERIOD")]
    periodic: Vec<String>,

    /// Inputs that are levels: station for texts, which are looked up in the file first; station=north|south to
    /// declare them; station=12 for the numbers 0 to 11
    #[arg(long, value_name = "COLUMN[=LEVELS]")]
    categorical: Vec<String>,

    /// Columns of dates or times whose parts are inputs, as when=hour+weekday: hour (of the day), weekday, yearday (of
    /// the year), all three of which repeat, and days (since 1970). In UTC
    #[arg(long, value_name = "COLUMN=PARTS")]
    calendar: Vec<String>,

    /// When hyperparameters are learned: geometric:1.1 (whenever there are a tenth more rows), every-step
    /// (one step for each row, as in the paper) or off [default: geometric:1.1]
    #[arg(long, value_name = "SCHEDULE")]
    learn: Option<String>,

    /// Let a row count half after so many rows; with --time-col after so much time: 90m, 12h or 7d for
    /// dates and times, a number in the unit of the column for plain numbers. With auto, as by default, nothing fades, and
    /// predictions follow the last rows over whichever span predicts best
    #[arg(long, value_name = "SPAN")]
    half_life: Option<String>,

    /// Predict each row by the model of all rows alone. By default, where the last rows say more than that, the
    /// prediction of the next one follows them
    #[arg(long)]
    no_tracking: bool,

    /// Take the noise as the same everywhere. By default it varies with the inputs where that predicts better
    #[arg(long)]
    constant_noise: bool,

    /// What to do with rows of which an input is missing: an empty cell, NaN, NA or null
    #[arg(long, value_enum, default_value_t = MissingOption::Error)]
    missing: MissingOption,

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

    /// Start values of hyperparameters, as lengthscale=0.5,0.7 outputscale=0.8 noise=0.05, in the units of the data
    /// (lengths in those of their column, variances in those of the target squared). With --learn off they stay
    #[arg(long, value_name = "NAME=VALUES", num_args = 1..)]
    init: Vec<String>,

    /// Hyperparameters that stay at a value, as period=1 or noise=0.04, in the units of the data
    #[arg(long, value_name = "NAME=VALUES", num_args = 1..)]
    fix: Vec<String>,

    /// How posteriors are computed: dense (a factorization, exact), sparse (exact, for matern12 on large grids),
    /// krylov (iterations, for large grids) or auto: by the size of the grid and the kernel
    #[arg(long, value_enum, default_value_t = EngineOption::Auto)]
    engine: EngineOption,

    /// The largest number of points to which the grid may grow by itself [default: 16384]
    #[arg(long, value_name = "POINTS")]
    max_grid: Option<usize>,
}

/// What to do with rows of which an input is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MissingOption {
    /// They are bad rows (see --on-bad-row)
    Error,
    /// Predict them, averaging over what is missing by values that complete rows had, and do not learn them. The first row
    /// must be complete
    Marginalize,
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
    /// The inputs of a file: those asked for, or all columns of numbers besides `others` and those that an option
    /// makes inputs. `file` is where levels can be looked up.
    pub(crate) fn inputs(
        &self,
        asked: Option<Vec<String>>,
        others: &[&str],
        source: &mut Source,
        file: Option<(&Path, &input::Options)>,
    ) -> Result<InputPlan> {
        let wishes = self.wishes()?;
        let texts: Vec<&str> = wishes.texts().collect();
        texts.iter().try_for_each(|name| source.find(name).map(|_| ()))?;
        let (columns, left_out) = if let Some(asked) = asked {
            (asked, Vec::new())
        } else {
            let inferred = source.infer_inputs(others, &texts)?;
            (inferred.inputs, inferred.left_out)
        };
        InputPlan::new(&columns, left_out, &wishes, |column| {
            let declare = format!("--categorical '{column}=this|that' declares them");
            let Some((path, options)) = file else {
                bail!("--categorical: the levels of '{column}' cannot be looked up in a pipe; {declare}");
            };
            let source = Source::open(&path.display().to_string(), options)?;
            match source.levels(column, MOST_LEVELS)? {
                Some(levels) => Ok(levels),
                None => bail!("--categorical: '{column}' has more than {MOST_LEVELS} levels"),
            }
        })
    }

    fn wishes(&self) -> Result<Wishes> {
        let mut wishes = Wishes::default();
        for text in names::split_all(&self.periodic) {
            let Some((name, period)) = text.rsplit_once('=') else {
                bail!("--periodic: '{text}' is not column=number");
            };
            let period = number("--periodic", period)?;
            ensure!(period > 0.0, "--periodic: the period of {text} must be positive");
            wishes.periods.push((name.into(), period));
        }
        for text in names::split_all(&self.categorical) {
            let (name, levels) = match text.rsplit_once('=') {
                None => (text.as_str(), Levels::Found),
                Some((name, levels)) if levels.contains('|') => {
                    (name, Levels::Named(levels.split('|').map(|level| level.trim().to_string()).collect()))
                }
                Some((name, levels)) => match levels.parse::<usize>() {
                    Ok(levels) if levels >= 2 => (name, Levels::Numbered(levels)),
                    _ => bail!(
                        "--categorical: {text} is not a number of levels, nor levels as in {name}=this|that"
                    ),
                },
            };
            wishes.levels.push((name.into(), levels));
        }
        for text in names::split_all(&self.calendar) {
            let Some((name, parts)) = text.rsplit_once('=') else {
                bail!("--calendar: '{text}' is not column=parts, as in when=hour+weekday");
            };
            let part = |text: &str| -> Result<CalendarPart> {
                let known = CalendarPart::ALL.into_iter().find(|part| part.name() == text);
                let all = CalendarPart::ALL.map(CalendarPart::name).join(", ");
                known.with_context(|| format!("--calendar: '{text}' is not one of {all}"))
            };
            wishes.calendar.push((name.into(), parts.split('+').map(part).collect::<Result<_>>()?));
        }
        Ok(wishes)
    }

    /// The settings for rows of the given inputs, of which `total` are expected if that is known.
    pub(crate) fn settings(
        &self,
        inputs: &InputPlan,
        total: Option<usize>,
        known_noise: bool,
        timed: bool,
    ) -> Result<Settings> {
        let width = inputs.names.len();
        let features = self.features.as_deref().unwrap_or("auto");
        let defaults = Settings::default();
        let mut settings = Settings {
            features: features.parse().map_err(|error| named("--features", error))?,
            grid: self.grid()?,
            columns: inputs.kinds(),
            schedule: self.schedule()?,
            inputs: self.bounds(width)?,
            noise: match (known_noise, self.constant_noise) {
                (true, true) => bail!("--constant-noise: the noise of each row is given by --noise-col"),
                (true, false) => NoiseModel::Known,
                (false, true) => NoiseModel::Constant,
                (false, false) => NoiseModel::Learned,
            },
            missing: if self.may_lack() { Missing::Marginalize } else { Missing::Reject },
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
            tracking: !self.no_tracking,
            seed: self.seed,
            ..defaults
        };
        let axes = settings.axes(width);
        ensure!((1..=4).contains(&axes), "--features: a grid has 1 to 4 axes, not {axes}");
        if settings.is_sum(width) {
            ensure!(self.kernel.is_none(), "--kernel: a sum of grids has its own kernel for each");
            let only_noise = self.init.iter().chain(&self.fix).all(|entry| entry.starts_with("noise="));
            ensure!(only_noise, "--init: of a sum of grids only the noise can be given");
        }
        let kernel = Kernel::parse(self.kernel.as_deref().unwrap_or("rbf"), axes)?;
        settings.start_values = self.start_values(&kernel, known_noise)?;
        settings.kernel = self.kernel.as_ref().map(|_| kernel);
        let grid = settings.first_grid(width);
        ensure!(
            grid.len() <= 1 || grid.len() == axes,
            "--grid: {} has {} axes, but there are {axes}",
            self.grid.as_deref().unwrap_or_default(),
            grid.len()
        );
        if let Some(limit) = self.max_grid {
            let points: usize = (0..axes).map(|k| grid[k.min(grid.len() - 1)]).product();
            ensure!(points <= limit, "--max-grid: the grid has {points} points to begin with");
        }
        Ok(settings)
    }

    /// What was said about hyperparameters.
    fn start_values(&self, kernel: &Kernel, known_noise: bool) -> Result<Vec<StartValue>> {
        let init = self.init.iter().map(|entry| ("--init", entry, false));
        let fix = self.fix.iter().map(|entry| ("--fix", entry, true));
        init.chain(fix)
            .map(|(option, entry, fixed)| start_value(option, entry, fixed, kernel, known_noise))
            .collect()
    }

    /// Whether a grid was asked for, and not where it is to lie.
    pub(crate) fn lacks_bounds(&self) -> bool {
        let on_columns = matches!(self.features.as_deref(), None | Some("auto" | "identity"));
        self.grid.is_some() && self.bounds.is_none() && on_columns
    }

    /// Whether inputs may be missing.
    pub(crate) fn may_lack(&self) -> bool {
        self.missing == MissingOption::Marginalize
    }

    /// Whether any option describes the model.
    pub(crate) fn is_given(&self) -> bool {
        let texts = [&self.features, &self.grid, &self.kernel, &self.learn, &self.half_life, &self.bounds];
        texts.iter().any(|t| t.is_some())
            || [&self.init, &self.fix, &self.periodic, &self.categorical, &self.calendar]
                .iter()
                .any(|l| !l.is_empty())
            || self.pretrain.is_some()
            || self.no_tracking
            || self.constant_noise
            || self.may_lack()
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

    /// Rejects a half-life in hours, say, of times whose unit is not known. Only then the file is asked: from a pipe, that
    /// waits for its first row.
    pub(crate) fn check_time_unit(
        &self,
        column: &str,
        is_numeric: impl FnOnce() -> Result<bool>,
    ) -> Result<()> {
        let Some(text) = self.half_life.as_ref().filter(|text| time_unit(text).is_some()) else {
            return Ok(());
        };
        ensure!(
            !is_numeric()?,
            "--half-life: {text} has a unit, but column '{column}' holds plain numbers; say the half-life in the unit of \
             the column, as {}",
            &text[..text.len() - 1]
        );
        Ok(())
    }

    fn half_life(&self, timed: bool) -> Result<Option<HalfLife>> {
        let is_auto = self.half_life.as_deref() == Some("auto");
        ensure!(!(is_auto && self.no_tracking), "--half-life auto: that is what --no-tracking turns off");
        let Some(text) = self.half_life.as_ref().filter(|_| !is_auto) else { return Ok(None) };
        let unit = time_unit(text);
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

/// The seconds of the unit at the end of a span, as in 12h.
fn time_unit(text: &str) -> Option<f64> {
    match text.chars().last() {
        Some('s') => Some(1.0),
        Some('m') => Some(60.0),
        Some('h') => Some(3600.0),
        Some('d') => Some(86_400.0),
        _ => None,
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

/// What an entry such as `lengthscale=0.5,0.7` says.
fn start_value(
    option: &str,
    entry: &str,
    fixed: bool,
    kernel: &Kernel,
    known_noise: bool,
) -> Result<StartValue> {
    let Some((name, values)) = entry.split_once('=') else {
        bail!("{option}: '{entry}' is not a setting such as lengthscale=0.5");
    };
    let values = numbers(values, |v| number(option, v))?;
    ensure!(values.iter().all(|&v| v > 0.0), "{option}: {entry} must be positive");
    ensure!(!(known_noise && name == "noise"), "{option}: the noise of each row is in --noise-col");
    let names: Vec<String> = kernel.parameter_names().into_iter().chain(["noise".to_string()]).collect();
    let start = StartValue { name: name.into(), values, fixed };
    let stem = |full: &str| full.split('[').next().is_some_and(|stem| stem.rsplit('.').next() == Some(name));
    let own = names.iter().filter(|full| *full == name || stem(full)).count();
    ensure!(own > 0, "{option}: there is no hyperparameter '{name}'; there are {}", names.join(", "));
    ensure!(
        start.values.len() == 1 || start.values.len() == own,
        "{option}: {} values were given for {own} hyperparameters '{name}'",
        start.values.len()
    );
    Ok(start)
}
