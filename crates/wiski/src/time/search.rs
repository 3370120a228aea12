//! What a fit does: seasons, structure, lags and hyperparameters from the rows in memory.

use super::blend::Blend;
use super::calibration::Calibration;
use super::filter::Belief;
use super::fit::{self, Effort};
use super::moments::Moments;
use super::plan::{self, ForecastSettings, Lags, PlannedSeason, Seasons, Structure};
use super::running::{Rival, Running};
use super::seasons;
use super::system::System;
use super::window::{Window, median_gap};
use crate::error::{Error, Result};
use crate::threads;

/// The rows before the first fit, unless it is asked for earlier.
pub(super) const FIRST_FIT: usize = 256;
/// The longest horizon that intervals are checked for, in steps.
const LONGEST_CHECK: usize = 1024;
/// A fit may spend about this many multiply-adds on an evaluation: rows times coordinates squared.
const FIT_WORK: f64 = 4e7;
/// From so many coordinates on one structure is fitted, from one start.
const MANY: usize = 40;
/// A structure that is so many nats behind after the first evaluations is not followed further.
const BEHIND: f64 = 6.0;
/// A second model is carried on if it lowers the log mean square error by this, over all horizons or one step ahead.
const WORTH: f64 = 0.02;

/// The row from which on forecasts are compared: a quarter is left to learn from, and lags must be known.
fn first_flight(window: &Window, longest_lag: usize) -> usize {
    let rows = window.times.len();
    (rows / 4).max(longest_lag).min(rows - 1)
}

impl Running {
    /// What a fit to rows leads to, whether or not others have left memory before them: the numbers of their steps, and the
    /// filter at their end.
    pub(super) fn refitted(
        mut window: Window,
        settings: &ForecastSettings,
        earlier: Option<Self>,
        trimmed: bool,
    ) -> Result<(Vec<i64>, Self)> {
        let running = match earlier {
            Some(mut running) if trimmed => {
                running.refine(&window, settings)?;
                running
            }
            earlier => Self::found(&mut window, settings, earlier.as_ref())?,
        };
        Ok((window.steps, running))
    }

    /// Hyperparameters refined on the window, from the belief before it.
    pub(super) fn refine(&mut self, window: &Window, settings: &ForecastSettings) -> Result<()> {
        let moments = self.moments(window)?;
        let systems = [Some(&*self), self.rival.as_ref().map(|rival| &rival.running)];
        let refined = |running: &Self| -> Result<System> {
            let from = running.rows_to_fit(window);
            let series = running.series(window, from);
            let start = running.start.as_ref().filter(|_| from == 0);
            let mut system = running.system.clone();
            fit::fit(&mut system, &series, start, &moments, Effort { starts: 1, first: 0, best: 12 })?;
            Ok(system)
        };
        let mut fitted =
            threads::map(usize::MAX, systems.into_iter().flatten().collect(), refined).into_iter();
        let (own, other) = (fitted.next().transpose()?, fitted.next().transpose()?);
        if let Some(system) = own {
            self.system = system;
        }
        if let (Some(system), Some(rival)) = (other, &mut self.rival) {
            rival.running.system = system;
        }
        let horizon = self.calibration.horizon();
        let longest_lag = self.systems().map(System::longest_lag).max().unwrap_or(0);
        self.replay(window, settings.memory, horizon, first_flight(window, longest_lag));
        Ok(())
    }

    /// What differences of the window's rows say.
    pub(super) fn moments(&self, window: &Window) -> Result<Moments> {
        let known = (0..window.times.len()).filter(|i| window.has[*i]);
        let standardized =
            |i: usize| (self.tau(window.times[i]), (window.targets[i] - self.shift) / self.factor);
        let (times, targets): (Vec<f64>, Vec<f64>) = known.map(standardized).unzip();
        Moments::of(&times, &targets, &self.seasons)
    }

    /// The first row that a fit reads: all of them, unless that would take long.
    pub(super) fn rows_to_fit(&self, window: &Window) -> usize {
        let p = self.system.dim() as f64;
        let affordable = (FIT_WORK / (p * p)) as usize;
        window.times.len().saturating_sub(affordable.max(512))
    }

    /// Structure and hyperparameters from the window.
    pub(super) fn found(
        window: &mut Window,
        settings: &ForecastSettings,
        earlier: Option<&Self>,
    ) -> Result<Self> {
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
        let seasons = seasons_of(settings, step, &times, &targets)?;
        let span = (times[times.len() - 1] - times[0]).max(10.0);
        let effects = plan::effects(&settings.columns, &window.inputs, &seasons)?;
        let lag_sets = lag_sets(settings, &seasons, &times, &targets, regular)?;
        let longest = seasons.iter().map(|s| s.period).filter(|p| 6.0 * p <= span).fold(8.0, f64::max);
        let horizon = settings.horizon.map_or(longest, |h| h / step).round();
        let window = &*window;
        let longest_lag = lag_sets.iter().flatten().max().copied().unwrap_or(0);
        let first = first_flight(window, longest_lag);
        // A third of the rows from there on is left for forecasts to start from.
        let left = span - first as f64;
        let horizon = (horizon.max(1.0) as usize).min(LONGEST_CHECK).min((left / 1.5) as usize).max(1);
        let moments = Moments::of(&times, &targets, &seasons)?;
        let start = |structure: &Structure| -> Result<Self> {
            let system = plan::system(settings, &seasons, &effects, structure, span, &moments)?;
            Ok(Self {
                origin,
                step,
                shift,
                factor,
                seasons: seasons.clone(),
                belief: Belief::prior(&system, 0.0),
                system,
                start: None,
                middle: None,
                middle_at: 0,
                past: Vec::new(),
                past_to: 0,
                calibration: Calibration::default(),
                flights: Vec::new(),
                next_flight: 0,
                rival: None,
                scratch: None,
                lagged: Vec::new(),
            })
        };
        // Akaike's criterion for few rows: the log density of a structure, less what learning k hyperparameters adds to it.
        let follow = |(mut running, effort): (Self, Effort)| -> Result<(f64, Self)> {
            let series = running.series(window, running.rows_to_fit(window));
            let density = fit::fit(&mut running.system, &series, None, &moments, effort)?;
            let k = running.system.parameters().len() as f64;
            Ok((density - k * n / (n - k - 1.0).max(0.1), running))
        };
        let first_effort = |running: &mut Self| {
            // What few rows said is no start for more of them: of a short series every fit searches as the first one does.
            let follows = window.times.len() > FIRST_FIT;
            let known = follows && earlier.is_some_and(|e| e.systems().any(|s| running.system.follow(s)));
            match running.system.dim() {
                _ if known => Effort { starts: 1, first: 0, best: 30 },
                0..MANY if running.system.lags().is_empty() => Effort { starts: 3, first: 14, best: 0 },
                _ => Effort { starts: 1, first: 0, best: 40 },
            }
        };
        let best_of = |structures: Vec<Structure>| -> Result<Self> {
            let begin = |structure: Structure| -> Result<(Self, Effort)> {
                let mut running = start(&structure)?;
                let effort = first_effort(&mut running);
                Ok((running, effort))
            };
            let begun = structures.into_iter().map(begin).collect::<Result<Vec<_>>>()?;
            let unfinished = begun.iter().any(|(_, effort)| effort.best == 0);
            let tried = threads::map(usize::MAX, begun, follow);
            let mut tried = tried.into_iter().collect::<Result<Vec<(f64, Self)>>>()?;
            let most = |tried: &[(f64, Self)]| tried.iter().map(|t| t.0).fold(f64::NEG_INFINITY, f64::max);
            if unfinished {
                // Those that may still be the best are followed to the end.
                let least = most(&tried) - BEHIND;
                let kept = tried.into_iter().filter(|t| t.0 >= least);
                let effort = Effort { starts: 1, first: 0, best: 50 };
                let kept = kept.map(|(_, running)| (running, effort)).collect();
                tried = threads::map(usize::MAX, kept, follow).into_iter().collect::<Result<_>>()?;
            }
            let value = most(&tried);
            let best = tried.into_iter().find(|t| t.0 >= value).ok_or(Error::NotReady { operation: "a fit" });
            let mut running = best?.1;
            running.replay(window, settings.memory, horizon, first);
            Ok(running)
        };
        let of_lags = |lags: Vec<usize>| -> Result<(f64, Self)> {
            let whole = Structure::whole(lags);
            let small = whole.lags.is_empty() && start(&whole)?.system.dim() < MANY;
            let running = best_of(if small { whole.simpler(settings.trend) } else { vec![whole] })?;
            // One whose forecasts could not be compared with anything has nothing to say for itself.
            Ok((running.calibration.loss().unwrap_or(f64::INFINITY), running))
        };
        // Small systems have several structures, which share the threads among them; large ones are fitted side by side.
        let small = start(&Structure::whole(Vec::new()))?.system.dim() < MANY;
        let side_by_side = if small { 1 } else { usize::MAX };
        let mut tried: Vec<(f64, Self)> =
            threads::map(side_by_side, lag_sets, of_lags).into_iter().collect::<Result<_>>()?;
        tried.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut tried = tried.into_iter();
        let Some((alone, best)) = tried.next() else { return Err(Error::NotReady { operation: "a fit" }) };
        Ok(best.with_rival(alone, tried.map(|(_, other)| other).collect(), |both| {
            both.replay(window, settings.memory, horizon, first);
        }))
    }

    /// With the other that makes the most of it, if that is worth a second filter. What this one loses `alone` is known;
    /// `replay` goes through the window with both.
    fn with_rival(self, alone: f64, others: Vec<Self>, replay: impl Fn(&mut Self) + Sync) -> Self {
        let with = |other: Self| {
            let rival = Rival { running: other, blend: Blend::default() };
            let mut both = Self { rival: Some(Box::new(rival)), ..self.clone() };
            replay(&mut both);
            let gain = both.calibration.loss().map_or(0.0, |loss| alone - loss);
            let one_step = both.rival.as_ref().map_or(0.0, |rival| -rival.blend.gain_one_step());
            (gain.max(one_step), both)
        };
        let most = threads::map(usize::MAX, others, with).into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        most.filter(|(gain, _)| *gain > WORTH).map_or(self, |(_, both)| both)
    }

    /// Its system and that of its rival.
    fn systems(&self) -> impl Iterator<Item = &System> {
        std::iter::once(&self.system).chain(self.rival.iter().map(|rival| &rival.running.system))
    }
}

/// The seasons of known rows: found in them, or declared.
fn seasons_of(
    settings: &ForecastSettings,
    step: f64,
    times: &[f64],
    targets: &[f64],
) -> Result<Vec<PlannedSeason>> {
    match &settings.seasons {
        _ if times.len() < 16 => Ok(Vec::new()),
        Seasons::Auto => seasons::found(times, targets),
        Seasons::Given(periods) => {
            let periods: Vec<f64> = periods.iter().map(|p| p / step).collect();
            seasons::declared(times, targets, &periods)
        }
    }
}

/// The sets of lags that are tried.
fn lag_sets(
    settings: &ForecastSettings,
    seasons: &[PlannedSeason],
    times: &[f64],
    targets: &[f64],
    regular: bool,
) -> Result<Vec<Vec<usize>>> {
    match &settings.lags {
        Lags::Given(lags) => {
            let mut lags = lags.clone();
            lags.sort_unstable();
            lags.dedup();
            Ok(vec![lags])
        }
        Lags::Auto if regular && times.len() >= 128 => {
            let mut sets = vec![Vec::new(), plan::lags(seasons, times.len(), None)];
            if let Some(lag) = seasons::resembling(times, targets, seasons)? {
                sets.push(plan::lags(seasons, times.len(), Some(lag)));
            }
            Ok(sets)
        }
        Lags::Auto => Ok(vec![Vec::new()]),
    }
}
