//! A forecaster as it is served: the names of its columns, and how well it has foretold each row.
//!
//! Its snapshot is a file of `wiski forecast --model` with more in it, which that command leaves out; from a file of the
//! command it has the columns `time`, `y` and `x1`, `x2`, ….

use serde::{Deserialize, Serialize};
use wiski::persist::{Columns, InputSource, Persistent, Reading, Target};
use wiski::{Error, Forecaster, Interval, Prediction, Result};

use crate::batch::{Batch, Targets};
use crate::op::{Numbers, Rejected, Reply, Said};
use crate::served::Step;

/// The level of the intervals whose coverage is counted.
pub const LEVEL: f64 = 0.95;

/// A forecaster with its columns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Series {
    /// The forecaster.
    #[serde(flatten)]
    pub model: Forecaster,
    /// The columns.
    #[serde(default)]
    pub columns: Columns,
    /// How well rows were foretold.
    #[serde(default)]
    pub score: Score,
    /// What went wrong beside the rows.
    #[serde(skip)]
    pub failure: Option<Error>,
}

/// Sums over the rows that were foretold, one step ahead.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Score {
    /// How many.
    pub rows: u64,
    /// Their squared errors.
    pub squares: f64,
    /// Their negative log densities.
    pub surprise: f64,
    /// Those in their intervals.
    pub inside: u64,
}

impl Persistent for Series {
    const KIND: &'static str = "forecaster";
}

impl Series {
    /// A forecaster of these columns.
    pub fn new(columns: Columns, model: Forecaster) -> Result<Self> {
        Self { model, columns, score: Score::default(), failure: None }.checked()
    }

    /// With names, if the file had none.
    pub fn checked(mut self) -> Result<Self> {
        let width = self.model.settings().columns.len();
        if self.columns == Columns::default() {
            self.columns = Columns::of_series(width);
        }
        let Columns { inputs, sources, time, .. } = &self.columns;
        let levels = |source: &InputSource| match &source.reading {
            Reading::Levels(levels) => levels.len() >= 2,
            _ => true,
        };
        if inputs.len() == width
            && (sources.is_empty() || sources.len() == width)
            && sources.iter().all(levels)
            && time.is_some()
        {
            return Ok(self);
        }
        let reason = format!("they do not fit the {width} inputs of the forecaster");
        Err(Error::Config { field: "columns".into(), reason })
    }

    /// Learns rows, each foretold before; at a level, the reply has what was said.
    pub fn learn(&mut self, batch: &Batch, level: Option<f64>, watch: &mut dyn FnMut(&Step)) -> Reply {
        let (mut rejected, mut said) = (Vec::new(), Numbers::default());
        for i in 0..batch.len() {
            let (x, time) = (batch.inputs(i), batch.time.get(i).copied().unwrap_or(f64::NAN));
            let y = match &batch.targets {
                Targets::Values(values) => values.get(i).copied().filter(|y| !y.is_nan()),
                _ => None,
            };
            let before = self.model.rows();
            let expected = match self.model.observe(time, x, y) {
                Ok(expected) => expected,
                // The row is learned; the fit that came with it failed.
                Err(error) if self.model.rows() > before => {
                    self.failure = Some(error);
                    None
                }
                Err(error) => {
                    rejected.push(Rejected { row: i, error: error.to_string() });
                    said.push(f64::NAN, f64::NAN, f64::NAN, f64::NAN);
                    continue;
                }
            };
            let foretold = expected.map(|e| Prediction { mean: e.mean, variance: e.std * e.std, noise: 0.0 });
            let within = |level: f64| foretold.and_then(|p| Interval::gaussian(&p, level).ok());
            if let Some(level) = level {
                let (mean, std) = expected.map_or((f64::NAN, f64::NAN), |e| (e.mean, e.std));
                let (lower, upper) = within(level).map_or((f64::NAN, f64::NAN), |i| (i.lower, i.upper));
                said.push(mean, std, lower, upper);
            }
            let interval = within(LEVEL);
            let inside = interval.zip(y).map(|(interval, y)| interval.contains(y));
            if let (Some(p), Some(y), Some(inside)) = (&foretold, y, inside) {
                self.score.rows += 1;
                self.score.squares += (y - p.mean).powi(2);
                self.score.surprise -= p.log_density(y);
                self.score.inside += u64::from(inside);
            }
            let target = y.map_or(Target::Missing, Target::Value);
            let answer = foretold.map(wiski::persist::Answer::Value);
            let (row, time, answer) = (self.model.rows(), Some(time), answer.as_ref());
            let size = inside.and(interval).map(|i| i.upper - i.lower);
            watch(&Step { row, x, time, target, answer, interval, inside, size });
        }
        let taken = batch.len() - rejected.len();
        let said = level.map(|_| Said::Numbers(said));
        Reply::Rows { taken, rejected, seen: self.model.rows(), said }
    }
}
