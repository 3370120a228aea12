//! A series that is learned row by row and forecast at any time.
//!
//! Rows stand in a window of bounded length. Before the first fit they are only kept; a fit finds seasons and
//! hyperparameters on them and runs the filter over them. From then on a row costs one filter step. When the window is
//! full its older half goes, and the filter's belief at the new beginning stands for all rows before: memory and time a
//! row stay what they are. Fits come whenever the number of rows has doubled; while the window holds all rows the
//! structure (seasons, lags) is chosen anew, later only hyperparameters follow.

use serde::{Deserialize, Serialize};

use super::ahead::{self, Future};
use super::calibration::Calibration;
use super::component::Component;
use super::filter::{Belief, Scratch};
use super::fit::{self, Effort};
use super::likelihood::Series;
use super::plan::{self, ForecastSettings, Lags, PlannedSeason, Seasons};
use super::seasons;
use super::system::{Inputs, System};
use crate::error::{Error, Result, finite, length};
use crate::saved::{Restore, restored_after_reading};
use crate::threads;

/// The rows before the first fit, unless [`Forecaster::fit`] is called earlier.
const FIRST_FIT: usize = 256;
/// The fewest rows that can be fitted: a scale is known from two on, and priors say the rest.
const FEWEST: usize = 2;
/// Forecasts in flight that will be compared with what comes.
const IN_FLIGHT: usize = 8;
/// The fewest steps between two of them: each holds a covariance.
const FEWEST_APART: usize = 4;
/// The longest horizon that intervals are checked for, in steps.
const LONGEST_CHECK: usize = 1024;
/// A fit may spend about this many multiply-adds on an evaluation: rows times coordinates squared.
const FIT_WORK: f64 = 4e7;

/// What was expected of a row before it was learned, in the unit of the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepAhead {
    /// The mean.
    pub mean: f64,
    /// The standard deviation, noise included.
    pub std: f64,
}

/// Learns a series and says what comes next.
///
/// ```
/// use wiski::time::{Forecaster, ForecastSettings, Seasons};
///
/// let settings = ForecastSettings { seasons: Seasons::Given(vec![24.0]), ..ForecastSettings::default() };
/// let mut model = Forecaster::new(settings)?;
/// let load = |t: f64| 20.0 + 0.01 * t + 5.0 * (t * std::f64::consts::TAU / 24.0).sin() + 0.3 * (t * t).sin();
/// for hour in 0..500 {
///     let t = f64::from(hour);
///     model.observe(t, &[], Some(load(t)))?;
/// }
/// let ahead = model.forecast(24, &[], 0.95)?;
/// assert!((ahead.mean[11] - load(511.0)).abs() < 1.0);
/// assert!(ahead.lower[11] < ahead.mean[11] && ahead.mean[11] < ahead.upper[11]);
/// # Ok::<(), wiski::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Forecaster {
    pub(super) settings: ForecastSettings,
    pub(super) window: Window,
    pub(super) running: Option<Running>,
    /// Rows seen, with or without a target.
    pub(super) rows: u64,
    /// Fit when so many rows have been seen.
    next_fit: u64,
    /// Whether rows have left the window.
    trimmed: bool,
}

/// The newest rows, as they came.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    #[serde(with = "crate::saved::floats")]
    pub(super) times: Vec<f64>,
    /// Targets; those that are missing are `has`'s falses.
    #[serde(with = "crate::saved::floats")]
    pub(super) targets: Vec<f64>,
    pub(super) has: Vec<bool>,
    #[serde(with = "crate::saved::floats")]
    pub(super) inputs: Vec<f64>,
    /// The number of each row's step, from the first row on.
    pub(super) steps: Vec<i64>,
}

/// What a fit has found, and the filter since.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) origin: f64,
    pub(super) step: f64,
    /// Standardized y = (y − shift)/factor.
    pub(super) shift: f64,
    pub(super) factor: f64,
    pub(super) seasons: Vec<PlannedSeason>,
    pub(super) system: System,
    pub(super) belief: Belief,
    /// The belief before the window, if rows have left it, and in the middle of it.
    pub(super) start: Option<Belief>,
    middle: Option<Belief>,
    /// The series at every step up to the last row, standardized, gaps filled with what was expected; for lags.
    #[serde(with = "crate::saved::floats")]
    pub(super) past: Vec<f64>,
    pub(super) past_to: i64,
    pub(super) calibration: Calibration,
    /// Beliefs that forecasts will be compared from: the step of each, and the past at it.
    flights: Vec<Flight>,
    next_flight: i64,
    #[serde(skip)]
    scratch: Option<Scratch>,
    #[serde(skip)]
    lagged: Vec<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Flight {
    step: i64,
    belief: Belief,
    #[serde(with = "crate::saved::floats")]
    past: Vec<f64>,
}

restored_after_reading!(Forecaster);

impl Restore for Forecaster {
    fn restore(&mut self) -> Result<()> {
        self.settings.check()?;
        let (n, width) = (self.window.times.len(), self.settings.columns.len());
        length("targets of the window", n, self.window.targets.len())?;
        length("targets of the window", n, self.window.has.len())?;
        length("steps of the window", n, self.window.steps.len())?;
        length("inputs of the window", n * width, self.window.inputs.len())?;
        let Some(running) = &self.running else { return Ok(()) };
        for component in running.system.components() {
            match component {
                Component::Effect { effect, .. } => effect.check(width)?,
                Component::Season { harmonics, .. } if harmonics.len() > 1 << 10 => {
                    let reason = format!("{} harmonics of a season", harmonics.len());
                    return Err(Error::Config { field: "seasons".into(), reason });
                }
                _ => {}
            }
        }
        let p = running.system.dim();
        System::new(running.system.components().to_vec(), running.system.noise())?;
        let beliefs = [Some(&running.belief), running.start.as_ref(), running.middle.as_ref()];
        let flying = running.flights.iter().map(|f| &f.belief);
        for belief in beliefs.into_iter().flatten().chain(flying) {
            length("states", p, belief.dim())?;
        }
        for (name, value) in [("step", running.step), ("factor", running.factor)] {
            crate::error::positive(name, value, 0)?;
        }
        finite("shift", running.shift, 0)?;
        finite("origin", running.origin, 0)
    }
}

impl Forecaster {
    /// A forecaster that has seen nothing.
    pub fn new(settings: ForecastSettings) -> Result<Self> {
        settings.check()?;
        settings.columns.iter().enumerate().try_for_each(|(i, c)| c.check(i))?;
        let next_fit = FIRST_FIT.min(settings.memory) as u64;
        let window = Window::default();
        Ok(Self { settings, window, running: None, rows: 0, next_fit, trimmed: false })
    }

    /// What it was told.
    pub fn settings(&self) -> &ForecastSettings {
        &self.settings
    }

    /// The number of rows seen.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether it can forecast.
    pub fn is_ready(&self) -> bool {
        self.running.is_some()
    }

    /// The components and their hyperparameters (in standardized units and steps), once fitted.
    pub fn system(&self) -> Option<&System> {
        self.running.as_ref().map(|r| &r.system)
    }

    /// The time between two rows, once fitted.
    pub fn step(&self) -> Option<f64> {
        self.running.as_ref().map(|r| r.step)
    }

    /// The time of the newest row.
    pub fn last_time(&self) -> Option<f64> {
        self.window.times.last().copied()
    }

    /// The periods of the seasons, in the unit of time, once fitted.
    pub fn seasons(&self) -> Vec<f64> {
        self.running.as_ref().map_or_else(Vec::new, |r| r.seasons.iter().map(|s| s.period * r.step).collect())
    }

    /// The lags in use, in steps.
    pub fn lags(&self) -> &[usize] {
        self.running.as_ref().map_or(&[], |r| r.system.lags())
    }

    /// Learns a row; `None` is a target that is missing. Returns what was expected of it, once fitted.
    ///
    /// Times must not go back. Every so often, whenever the number of rows has doubled, this call fits, too.
    pub fn observe(&mut self, time: f64, x: &[f64], y: Option<f64>) -> Result<Option<StepAhead>> {
        let expected = self.push(time, x, y)?;
        if self.rows >= self.next_fit && self.window.count() >= FEWEST {
            self.fit()?;
        }
        Ok(expected)
    }

    /// Learns many rows, `x` row by row; fits when the memory is full, and at the end. A target that is NaN is missing.
    pub fn extend(&mut self, times: &[f64], x: &[f64], y: &[f64]) -> Result<()> {
        let before = self.rows;
        self.push_all(times, x, y, true)?;
        let fitted = self.running.is_some() && self.rows < self.next_fit;
        // A short addition to a long series changes little.
        let new = self.rows - before;
        if self.running.is_none() || (!fitted && new > 0) {
            self.fit()?;
        }
        Ok(())
    }

    /// Learns many rows as [`Self::extend`] does, but never fits: states and weights follow, hyperparameters stay.
    pub fn advance(&mut self, times: &[f64], x: &[f64], y: &[f64]) -> Result<()> {
        if self.running.is_none() {
            return Err(Error::NotReady { operation: "learning rows without a fit" });
        }
        self.push_all(times, x, y, false)
    }

    fn push_all(&mut self, times: &[f64], x: &[f64], y: &[f64], fits: bool) -> Result<()> {
        let width = self.settings.columns.len();
        length("targets", times.len(), y.len())?;
        length("inputs", times.len() * width, x.len())?;
        for (i, &time) in times.iter().enumerate() {
            let target = Some(y[i]).filter(|y| !y.is_nan());
            self.push(time, &x[i * width..(i + 1) * width], target).map_err(|e| e.in_row(i))?;
            let full = self.window.times.len() + 1 >= self.settings.memory;
            if fits && self.rows >= self.next_fit && full && self.window.count() >= FEWEST {
                self.fit()?;
            }
        }
        Ok(())
    }

    /// Adds a row to the window, and to the filter if there is one.
    fn push(&mut self, time: f64, x: &[f64], y: Option<f64>) -> Result<Option<StepAhead>> {
        length("x", self.settings.columns.len(), x.len())?;
        finite("time", time, 0)?;
        x.iter().enumerate().try_for_each(|(i, v)| finite(format!("x[{i}]"), *v, 0))?;
        if let Some(y) = y {
            finite("y", y, 0)?;
        }
        if let Some(last) = self.last_time().filter(|last| time < *last) {
            let reason = format!("{time} comes after {last}: rows must be in the order of time");
            return Err(Error::Config { field: "time".into(), reason });
        }
        let expected = self.running.as_mut().map(|running| {
            let step = running.step_of(&self.window, time);
            self.window.push(time, step, x, y);
            running.learn(&self.window, self.window.times.len() - 1)
        });
        if expected.is_none() {
            self.window.push(time, 0, x, y);
        }
        self.rows += 1;
        let half = self.settings.memory / 2;
        if let Some(running) = &mut self.running {
            if self.window.times.len() == half {
                running.middle = Some(running.belief.clone());
            }
            if self.window.times.len() > self.settings.memory {
                running.start = running.middle.take();
                running.middle = Some(running.belief.clone());
                self.window.trim(half, self.settings.columns.len());
                self.trimmed = true;
            }
        }
        Ok(expected)
    }

    /// Learns seasons, lags and hyperparameters from the rows in memory, and filters them anew.
    pub fn fit(&mut self) -> Result<()> {
        if self.window.count() < FEWEST {
            return Err(Error::NotReady { operation: "a fit to so few rows" });
        }
        // Of a short series half as many rows more say a lot.
        let short = self.rows < FIRST_FIT as u64;
        self.next_fit = if short { (self.rows + self.rows / 2).min(FIRST_FIT as u64) } else { 2 * self.rows };
        match &mut self.running {
            Some(running) if self.trimmed => running.refine(&self.window, &self.settings),
            _ => {
                let running = Running::found(&mut self.window, &self.settings, self.running.as_ref())?;
                self.running = Some(running);
                Ok(())
            }
        }
    }
}

impl Window {
    fn count(&self) -> usize {
        self.has.iter().filter(|has| **has).count()
    }

    fn push(&mut self, time: f64, step: i64, x: &[f64], y: Option<f64>) {
        self.times.push(time);
        self.steps.push(step);
        self.inputs.extend_from_slice(x);
        self.targets.push(y.unwrap_or(0.0));
        self.has.push(y.is_some());
    }

    fn trim(&mut self, rows: usize, width: usize) {
        self.times.drain(..rows);
        self.steps.drain(..rows);
        self.inputs.drain(..rows * width);
        self.targets.drain(..rows);
        self.has.drain(..rows);
    }

    pub(super) fn x(&self, i: usize) -> &[f64] {
        let width = self.inputs.len() / self.times.len().max(1);
        &self.inputs[i * width..(i + 1) * width]
    }

    pub(super) fn target(&self, i: usize) -> Option<f64> {
        self.has[i].then(|| self.targets[i])
    }
}

impl Running {
    /// The number of the step of a new row.
    fn step_of(&self, window: &Window, time: f64) -> i64 {
        match (window.times.last(), window.steps.last()) {
            (Some(last), Some(step)) => step + ((time - last) / self.step).round().min(1e15) as i64,
            _ => 0,
        }
    }

    pub(super) fn tau(&self, time: f64) -> f64 {
        (time - self.origin) / self.step
    }

    /// The past that lags need, ending a step before `step`; `None` if it is not known so far back.
    fn lagged(&self, step: i64, out: &mut Vec<f64>) -> bool {
        out.clear();
        for &lag in self.system.lags() {
            let back = self.past_to - (step - lag as i64);
            let place = self.past.len() as i64 - 1 - back;
            if place < 0 || back < 0 {
                return false;
            }
            out.push(self.past[place as usize]);
        }
        true
    }

    /// Puts a value into the past at a step, which is at most one after the last.
    fn remember(&mut self, step: i64, value: f64) {
        let most = self.system.lags().iter().max().copied().unwrap_or(0) + 1;
        if most == 1 {
            return;
        }
        match self.past.last_mut() {
            // Two rows in one step: the later one counts.
            Some(last) if step <= self.past_to => *last = value,
            _ => self.past.push(value),
        }
        self.past_to = step;
        if self.past.len() > 2 * most {
            self.past.drain(..self.past.len() - most);
        }
    }

    /// The next steps after the last one, with the inputs of the newest row.
    fn regular(&self, count: usize, window: &Window) -> Future {
        let last = window.x(window.times.len() - 1);
        Future {
            times: (1..=count).map(|k| self.belief.time() + k as f64).collect(),
            inputs: last.iter().copied().cycle().take(last.len() * count).collect(),
            width: last.len(),
            past: self.past.clone(),
        }
    }

    /// Learns the row at a place of the window; what was expected of it.
    fn learn(&mut self, window: &Window, i: usize) -> StepAhead {
        let (time, step) = (self.tau(window.times[i]), window.steps[i]);
        let mut scratch = self.scratch.take().unwrap_or_else(|| Scratch::new(&self.system));
        let mut lagged = std::mem::take(&mut self.lagged);
        // Gaps before this row are filled first, so that its lags are there.
        if !self.system.lags().is_empty() && step - self.past_to > 1 && !self.past.is_empty() {
            let fill = self.past[self.past.len() - 1];
            self.fill(window, i, step - 1, fill);
        }
        let complete = self.lagged(step, &mut lagged);
        if !complete {
            lagged.resize(self.system.lags().len(), 0.0);
        }
        let row = Inputs { time, x: window.x(i), lagged: &lagged };
        let y = window.target(i).map(|y| (y - self.shift) / self.factor);
        let expected = self.belief.step(&self.system, &row, y.filter(|_| complete), &mut scratch);
        self.lagged = lagged;
        self.scratch = Some(scratch);
        self.remember(step, y.unwrap_or(expected.mean));
        self.compare(window, i);
        StepAhead {
            mean: self.shift + self.factor * expected.mean,
            std: self.factor * expected.variance.sqrt(),
        }
    }

    /// Fills the past up to a step with what is expected there.
    fn fill(&mut self, window: &Window, row: usize, to: i64, fallback: f64) {
        let gap = to - self.past_to;
        let most = self.system.lags().iter().max().copied().unwrap_or(0) as i64 + 1;
        if gap <= 0 {
            return;
        }
        if gap > 2 * most {
            self.past.clear();
            self.past_to = to;
            return;
        }
        let width = window.x(row).len();
        let inputs = window.x(row).iter().copied().cycle().take(width * gap as usize).collect();
        let first = self.belief.time();
        let times = (1..=gap).map(|k| first + k as f64).collect();
        let future = Future { times, inputs, width, past: self.past.clone() };
        let filled = ahead::means(&self.system, &self.belief, &future).mean;
        self.past.extend(filled.iter().map(|v| if v.is_finite() { *v } else { fallback }));
        self.past_to = to;
        let most = most as usize;
        if self.past.len() > 3 * most {
            self.past.drain(..self.past.len() - 2 * most);
        }
    }

    /// Compares forecasts in flight that have landed with the rows that came, and starts a new one now and then.
    fn compare(&mut self, window: &Window, i: usize) {
        let horizon = self.calibration.horizon();
        if horizon == 0 {
            return;
        }
        let step = window.steps[i];
        let apart = horizon.div_ceil(IN_FLIGHT).max(FEWEST_APART);
        while self.flights.first().is_some_and(|f| f.step + horizon as i64 <= step) {
            let flight = self.flights.remove(0);
            self.land(window, i, &flight, apart);
        }
        if step >= self.next_flight && self.flights.len() < IN_FLIGHT + 1 {
            self.next_flight = step + apart as i64;
            let flight = Flight { step, belief: self.belief.clone(), past: self.past.clone() };
            self.flights.push(flight);
        }
    }

    fn land(&mut self, window: &Window, last: usize, flight: &Flight, apart: usize) {
        let horizon = self.calibration.horizon();
        let from = window.steps[..=last].partition_point(|s| *s <= flight.step);
        let rows = from..window.steps[..=last].partition_point(|s| *s <= flight.step + horizon as i64);
        if rows.is_empty() || (from == 0 && window.steps[0] > flight.step + 1) {
            return;
        }
        let width = window.x(last).len();
        let lagged = !self.system.lags().is_empty();
        if lagged && rows.len() != horizon {
            // Lags need every step.
            return;
        }
        let future = Future {
            times: rows.clone().map(|k| self.tau(window.times[k])).collect(),
            inputs: window.inputs[rows.start * width..rows.end * width].to_vec(),
            width,
            past: flight.past.clone(),
        };
        let means = ahead::means(&self.system, &flight.belief, &future).mean;
        let thresholds = self.calibration.thresholds();
        for (k, mean) in rows.zip(means) {
            let ahead = (window.steps[k] - flight.step).max(1) as usize;
            if let Some(y) = window.target(k) {
                let error = (y - self.shift) / self.factor - mean;
                self.calibration.learn(ahead, error, apart, &thresholds);
            }
        }
    }

    /// The rows of the window as a system with these lags sees them.
    pub(super) fn series_of(&self, window: &Window) -> Series {
        self.series(window, 0)
    }

    fn series(&self, window: &Window, from: usize) -> Series {
        let lags = self.system.lags();
        let width = window.x(0).len();
        let mut out = Series { width, lags: lags.len(), ..Series::default() };
        // Values by step, gaps filled by straight lines: only for learning hyperparameters.
        let first = window.steps[0];
        let span = (window.steps[window.steps.len() - 1] - first) as usize + 1;
        let mut values = Vec::new();
        if !lags.is_empty() {
            values = vec![f64::NAN; span];
            for (i, step) in window.steps.iter().enumerate() {
                if let Some(y) = window.target(i) {
                    values[(step - first) as usize] = (y - self.shift) / self.factor;
                }
            }
            fill_gaps(&mut values);
        }
        for i in from..window.times.len() {
            out.times.push(self.tau(window.times[i]));
            out.inputs.extend_from_slice(window.x(i));
            let place = (window.steps[i] - first) as usize;
            let complete = lags.iter().all(|lag| place >= *lag);
            let y = window.target(i).filter(|_| complete);
            out.targets.push(y.map_or(f64::NAN, |y| (y - self.shift) / self.factor));
            out.lagged.extend(lags.iter().map(|lag| if place >= *lag { values[place - lag] } else { 0.0 }));
        }
        out
    }

    /// Filters the window from its beginning; forecasts are compared from a quarter of it on.
    fn replay(&mut self, window: &Window, half: usize, horizon: usize) {
        self.scratch = None;
        let begin = |running: &mut Self| {
            let first = running.tau(window.times[0]);
            running.belief = running.start.clone().unwrap_or_else(|| Belief::prior(&running.system, first));
            running.past.clear();
            running.past_to = window.steps[0] - 1;
            running.flights.clear();
            running.middle = None;
        };
        begin(self);
        self.calibration = Calibration::default();
        (0..window.times.len()).for_each(|i| {
            self.learn(window, i);
        });
        // The deviations that forecasts have, from where the window ends.
        let future = self.regular(horizon, window);
        let joint = ahead::joint(&self.system, &self.belief, &future, false);
        let span = (window.steps[window.steps.len() - 1] - window.steps[0]) as f64;
        let deviations = joint.variance.iter().map(|v| v.max(1e-300).sqrt()).collect();
        self.calibration = Calibration::new(deviations, span);
        begin(self);
        self.next_flight = window.steps[window.steps.len() / 4];
        for i in 0..window.times.len() {
            self.learn(window, i);
            if i + 1 == half {
                self.middle = Some(self.belief.clone());
            }
        }
    }

    /// Hyperparameters refined on the window, from the belief before it.
    fn refine(&mut self, window: &Window, settings: &ForecastSettings) -> Result<()> {
        let from = self.rows_to_fit(window);
        let series = self.series(window, from);
        let start = if from == 0 { self.start.clone() } else { None };
        let before = self.system.clone();
        let effort = Effort { starts: 0, first: 0, best: 12 };
        if let Err(error) = fit::fit(&mut self.system, &series, start.as_ref(), effort) {
            self.system = before;
            return Err(error);
        }
        let horizon = self.calibration.horizon();
        self.replay(window, settings.memory / 2, horizon);
        Ok(())
    }

    /// The first row that a fit reads: all of them, unless that would take long.
    fn rows_to_fit(&self, window: &Window) -> usize {
        let p = self.system.dim() as f64;
        let affordable = (FIT_WORK / (p * p)) as usize;
        window.times.len().saturating_sub(affordable.max(512))
    }

    /// Structure and hyperparameters from the window.
    fn found(window: &mut Window, settings: &ForecastSettings, earlier: Option<&Self>) -> Result<Self> {
        let step = settings.step.unwrap_or_else(|| median_gap(&window.times));
        let regular = window.count_steps(step);
        let known: Vec<usize> = (0..window.times.len()).filter(|i| window.has[*i]).collect();
        let n = known.len() as f64;
        let shift = known.iter().map(|i| window.targets[*i]).sum::<f64>() / n;
        let variance = known.iter().map(|i| (window.targets[*i] - shift).powi(2)).sum::<f64>() / n;
        let factor = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        let origin = window.times[0];
        let times: Vec<f64> = known.iter().map(|i| (window.times[*i] - origin) / step).collect();
        let targets: Vec<f64> = known.iter().map(|i| (window.targets[*i] - shift) / factor).collect();
        let seasons = match &settings.seasons {
            _ if known.len() < 16 => Vec::new(),
            Seasons::Auto => seasons::found(&times, &targets)?,
            Seasons::Given(periods) => {
                let periods: Vec<f64> = periods.iter().map(|p| p / step).collect();
                seasons::declared(&times, &targets, &periods)?
            }
        };
        let span = (times[times.len() - 1] - times[0]).max(10.0);
        let effects = plan::effects(&settings.columns, &window.inputs, &seasons)?;
        let lag_sets: Vec<Vec<usize>> = match &settings.lags {
            Lags::Given(lags) => {
                let mut lags = lags.clone();
                lags.sort_unstable();
                lags.dedup();
                vec![lags]
            }
            Lags::Auto if regular && known.len() >= 128 => {
                vec![Vec::new(), plan::lags(&seasons, known.len())]
            }
            Lags::Auto => vec![Vec::new()],
        };
        let longest = seasons.iter().map(|s| s.period).filter(|p| 6.0 * p <= span).fold(8.0, f64::max);
        let horizon = settings.horizon.map_or(longest, |h| h / step).round();
        // At least a fourth of the window is left for forecasts to start from.
        let horizon = (horizon.max(1.0) as usize).min(LONGEST_CHECK).min((0.5 * span) as usize).max(1);
        let window = &*window;
        let candidate = |lags: Vec<usize>| -> Result<(f64, Self)> {
            let mut system = plan::system(settings, &seasons, &effects, &lags, span)?;
            // What few rows said is no start for more of them: of a short series every fit searches as the first one does.
            let known = window.times.len() > FIRST_FIT && earlier.is_some_and(|e| system.follow(&e.system));
            let mut running = Self {
                origin,
                step,
                shift,
                factor,
                seasons: seasons.clone(),
                belief: Belief::prior(&system, 0.0),
                system,
                start: None,
                middle: None,
                past: Vec::new(),
                past_to: 0,
                calibration: Calibration::default(),
                flights: Vec::new(),
                next_flight: 0,
                scratch: None,
                lagged: Vec::new(),
            };
            let from = running.rows_to_fit(window);
            let series = running.series(window, from);
            let effort = match running.system.dim() {
                _ if known => Effort { starts: 0, first: 0, best: 15 },
                0..40 if running.system.lags().is_empty() => Effort { starts: 2, first: 18, best: 60 },
                _ => Effort { starts: 0, first: 0, best: 20 },
            };
            fit::fit(&mut running.system, &series, None, effort)?;
            running.replay(window, settings.memory / 2, horizon);
            Ok((running.calibration.loss().unwrap_or(0.0), running))
        };
        let mut best: Option<(f64, Self)> = None;
        for tried in threads::map(usize::MAX, lag_sets, candidate) {
            let (loss, running) = tried?;
            if best.as_ref().is_none_or(|(least, _)| loss < *least) {
                best = Some((loss, running));
            }
        }
        best.map(|(_, running)| running).ok_or(Error::NotReady { operation: "a fit" })
    }
}

impl Window {
    /// Numbers the steps of all rows; whether nearly all rows lie on steps.
    fn count_steps(&mut self, step: f64) -> bool {
        let mut off = 0;
        self.steps[0] = 0;
        for i in 1..self.times.len() {
            let gap = (self.times[i] - self.times[i - 1]) / step;
            off += usize::from((gap - gap.round()).abs() > 0.1 || gap.round() < 1.0);
            self.steps[i] = self.steps[i - 1] + gap.round().min(1e12) as i64;
        }
        let span = (self.steps[self.steps.len() - 1] - self.steps[0]) as usize;
        20 * off <= self.times.len() && span <= 4 * self.times.len()
    }
}

/// The median of the gaps between times that differ.
fn median_gap(times: &[f64]) -> f64 {
    let mut gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).filter(|g| *g > 0.0).collect();
    gaps.sort_by(f64::total_cmp);
    gaps.get(gaps.len() / 2).copied().unwrap_or(1.0)
}

/// Straight lines over gaps, the nearest value at the ends.
fn fill_gaps(values: &mut [f64]) {
    let mut last: Option<usize> = None;
    for i in 0..values.len() {
        if values[i].is_nan() {
            continue;
        }
        let from = last.map_or(0, |l| l + 1);
        let left = last.map_or(values[i], |l| values[l]);
        let width = (i + 1 - from) as f64;
        for k in from..i {
            values[k] = left + (values[i] - left) * (k + 1 - from) as f64 / width;
        }
        last = Some(i);
    }
    let end = last.map_or(0.0, |l| values[l]);
    values.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = end);
}
