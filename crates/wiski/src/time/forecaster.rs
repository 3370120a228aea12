//! A series that is learned row by row and forecast at any time.
//!
//! Rows stand in a window of bounded length. Before the first fit they are only kept; a fit finds seasons and
//! hyperparameters on them and runs the filter over them. From then on a row costs one filter step. When the window is
//! full its older half goes, and the filter's belief at the new beginning stands for all rows before: memory and time a
//! row stay what they are. While the window holds all rows a fit comes whenever there are half as many more, and the
//! structure (seasons, lags, waves) is chosen anew; later, whenever they have doubled, only hyperparameters follow. Fits of
//! more than a few hundred rows run beside the stream (`pending.rs`).

use serde::{Deserialize, Serialize};

use super::component::Component;
use super::filter::Belief;
use super::pending::{Pending, Work};
use super::plan::ForecastSettings;
use super::running::{Running, StepAhead};
use super::scale::Scale;
use super::search::FIRST_FIT;
use super::system::System;
use super::window::Window;
use crate::error::{Error, Result, finite, length};
use crate::saved::{Restore, restored_after_reading};

/// The fewest rows that can be fitted: a scale is known from two on, and priors say the rest.
const FEWEST: usize = 2;
/// The rows of the first fit.
const SHORT: u64 = FIRST_FIT as u64;

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
    /// A fit that is under way beside the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<Pending>,
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
        if let Some(pending) = &self.pending {
            let since = self.rows.checked_sub(pending.begun).filter(|since| *since < n as u64);
            if since.is_none() || pending.due <= self.rows || self.running.is_none() {
                let reason =
                    format!("began at row {} of {}, {n} of them in memory", pending.begun, self.rows);
                return Err(Error::Config { field: "pending fit".into(), reason });
            }
        }
        let Some(running) = &self.running else { return Ok(()) };
        running.check(width)?;
        if let Some(rival) = &running.rival {
            rival.running.check(width)?;
            let nested = rival.running.rival.is_some();
            let clock = |r: &Running| (r.step, r.origin, r.clock);
            if nested || clock(&rival.running) != clock(running) {
                let reason = "of two models of a series the second has a clock or a rival of its own".into();
                return Err(Error::Config { field: "rival".into(), reason });
            }
        }
        Ok(())
    }
}

impl Running {
    /// Whether what was read makes sense, for rows with so many inputs.
    fn check(&self, width: usize) -> Result<()> {
        for component in self.system.components() {
            match component {
                Component::Effect { effect, .. } => effect.check(width)?,
                Component::Season { harmonics, .. } if harmonics.len() > 1 << 10 => {
                    let reason = format!("{} harmonics of a season", harmonics.len());
                    return Err(Error::Config { field: "seasons".into(), reason });
                }
                _ => {}
            }
        }
        System::new(self.system.components().to_vec(), self.system.noise())?;
        let dim = |system: &System, belief: &Belief| length("states", system.dim(), belief.dim());
        let beliefs = [Some(&self.belief), self.start.as_ref(), self.middle.as_ref()];
        let flying = self.flights.iter().map(|f| &f.belief);
        beliefs.into_iter().flatten().chain(flying).try_for_each(|belief| dim(&self.system, belief))?;
        if let Some(rival) = &self.rival {
            let flying = self.flights.iter().filter_map(|f| f.other.as_ref());
            flying.into_iter().try_for_each(|f| dim(&rival.running.system, &f.belief))?;
        }
        for (name, value) in [("step", self.step), ("factor", self.factor)] {
            crate::error::positive(name, value, 0)?;
        }
        finite("shift", self.shift, 0)?;
        finite("origin", self.origin, 0)
    }
}

impl Forecaster {
    /// A forecaster that has seen nothing.
    pub fn new(settings: ForecastSettings) -> Result<Self> {
        settings.check()?;
        settings.columns.iter().enumerate().try_for_each(|(i, c)| c.check(i))?;
        let next_fit = FIRST_FIT.min(settings.memory) as u64;
        let window = Window::default();
        Ok(Self { settings, window, running: None, rows: 0, next_fit, trimmed: false, pending: None })
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

    /// The components and their hyperparameters (in standardized units and steps), once fitted; of two models side by side
    /// those of the one that is better over all horizons.
    pub fn system(&self) -> Option<&System> {
        self.running.as_ref().map(|r| &r.system)
    }

    /// The time between two rows, once fitted; the mean of it where rows come by the month.
    pub fn step(&self) -> Option<f64> {
        self.running.as_ref().map(Running::step_length)
    }

    /// The time of the newest row.
    pub fn last_time(&self) -> Option<f64> {
        self.window.times.last().copied()
    }

    /// The periods of the seasons, in the unit of time, once fitted.
    pub fn seasons(&self) -> Vec<f64> {
        self.running
            .as_ref()
            .map_or_else(Vec::new, |r| r.seasons.iter().map(|s| s.period * r.step_length()).collect())
    }

    /// The lags in use, in steps.
    pub fn lags(&self) -> &[usize] {
        let Some(running) = &self.running else { return &[] };
        match &running.rival {
            Some(rival) if running.system.lags().is_empty() => rival.running.system.lags(),
            _ => running.system.lags(),
        }
    }

    /// The scale on which components add up, once fitted.
    pub fn scale(&self) -> Option<Scale> {
        self.running.as_ref().map(|r| if r.log { Scale::Log } else { Scale::Linear })
    }

    /// What the better one of two models counts at a horizon, in steps: 1 if there is only one.
    pub fn weight(&self, steps: usize) -> f64 {
        let rival = self.running.as_ref().and_then(|r| r.rival.as_ref());
        rival.map_or(1.0, |rival| rival.blend.weight(steps).first)
    }

    /// Learns a row; `None` is a target that is missing. Returns what was expected of it, once fitted.
    ///
    /// Times must not go back. Every so often, whenever there are half as many rows more (later twice as many), a fit is
    /// due. The first ones, of up to 256 rows, are done by this call. Later ones run on another thread and take over after
    /// a sixteenth as many rows more (at least 16): always at the same row, so that the same rows lead to the same model on
    /// any machine. Only if the fit is not done by then, that row waits for it.
    pub fn observe(&mut self, time: f64, x: &[f64], y: Option<f64>) -> Result<Option<StepAhead>> {
        let expected = self.push(time, x, y)?;
        let due = self.rows >= self.next_fit || self.must_change_scale();
        if due && self.window.count() >= FEWEST {
            if self.rows <= SHORT || self.running.is_none() || self.must_change_scale() {
                self.fit()?;
            } else if self.pending.is_none() {
                self.begin_fit();
            }
        }
        Ok(expected)
    }

    /// Learns many rows, `x` row by row; fits when the memory is full, and at the end. A target that is NaN is missing.
    pub fn extend(&mut self, times: &[f64], x: &[f64], y: &[f64]) -> Result<()> {
        let before = self.rows;
        self.push_all(times, x, y, true)?;
        let stands = self.running.as_ref().is_some_and(|running| running.stands(&self.window));
        let fitted = stands && self.rows < self.next_fit;
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
            if y <= 0.0 && self.settings.scale == Scale::Log {
                let reason = format!("{y} is not positive, and the series is modeled by its logarithms");
                return Err(Error::Config { field: "y".into(), reason });
            }
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
        if let Some(running) = &mut self.running {
            running.note_middle(self.window.times.len(), self.settings.memory);
            // A fit that is under way needs the rows that it began with.
            if self.window.times.len() > self.settings.memory && self.pending.is_none() {
                let leaving = running.leave_half(self.window.times.len(), self.settings.memory);
                self.window.trim(leaving, self.settings.columns.len());
                self.trimmed = true;
            }
        }
        if self.pending.as_ref().is_some_and(|pending| self.rows >= pending.due) {
            self.take_over()?;
        }
        Ok(expected)
    }

    /// Learns seasons, lags and hyperparameters from the rows in memory, and filters them anew.
    pub fn fit(&mut self) -> Result<()> {
        if self.window.count() < FEWEST {
            return Err(Error::NotReady { operation: "a fit to so few rows" });
        }
        self.pending = None;
        self.schedule();
        match &mut self.running {
            Some(running) if self.trimmed && running.stands(&self.window) => {
                running.refine(&self.window, &self.settings)
            }
            _ => {
                let running = Running::found(&mut self.window, &self.settings, self.running.as_ref())?;
                self.running = Some(running);
                Ok(())
            }
        }
    }

    /// Whether the newest value is not positive, and logarithms were chosen before.
    fn must_change_scale(&self) -> bool {
        let newest = self.window.times.len().checked_sub(1).and_then(|i| self.window.target(i));
        self.running.as_ref().is_some_and(|running| running.log) && newest.is_some_and(|y| y <= 0.0)
    }

    /// Says when the next fit is due.
    fn schedule(&mut self) {
        let growth = match self.rows {
            // Of a short series every row says a lot, and a fit takes milliseconds.
            0..64 => 10,
            64..SHORT => 4,
            _ if !self.trimmed => 2,
            _ => 1,
        };
        self.next_fit = self.rows + self.rows.div_ceil(growth);
        // The last structure is chosen with as many rows as there can be, and whatever was fitted early does not matter later.
        for milestone in [SHORT, self.settings.memory as u64] {
            if self.rows < milestone {
                self.next_fit = self.next_fit.min(milestone);
            }
        }
    }

    /// Begins a fit beside the stream.
    fn begin_fit(&mut self) {
        let most = (self.settings.memory / 8).max(1) as u64;
        let due = self.rows + (self.rows / 16).max(16).min(most);
        let (window, settings) = (self.window.clone(), self.settings.clone());
        let (earlier, trimmed) = (self.running.clone(), self.trimmed);
        let work = Work::begin(move || Running::refitted(window, &settings, earlier, trimmed));
        self.pending = Some(Pending { begun: self.rows, due, work });
        self.schedule();
    }

    /// Goes on with what a fit beside the stream has led to.
    fn take_over(&mut self) -> Result<()> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let since = usize::try_from(self.rows - pending.begun).unwrap_or(usize::MAX);
        let known = self.window.times.len().saturating_sub(since);
        let (steps, mut running) = if let Some(work) = pending.work {
            work.wait()?
        } else {
            // Read from a file, or a copy: the rows that it began with are still here.
            let window = self.window.first(known, self.settings.columns.len());
            Running::refitted(window, &self.settings, self.running.clone(), self.trimmed)?
        };
        self.window.steps[..known].copy_from_slice(&steps);
        for i in known..self.window.times.len() {
            let gap = running.steps_between(self.window.times[i - 1], self.window.times[i]);
            self.window.steps[i] = self.window.steps[i - 1] + gap.round().min(1e15) as i64;
            running.learn(&self.window, i);
            running.note_middle(i + 1, self.settings.memory);
        }
        self.running = Some(running);
        Ok(())
    }
}
