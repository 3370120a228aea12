//! What a fit does: seasons, structure, lags and hyperparameters from the rows in memory.

use super::blend::Blend;
use super::calibration::Calibration;
use super::clock::Clock;
use super::effect::Effect;
use super::filter::Belief;
use super::fit::{self, Effort};
use super::moments::Moments;
use super::plan::{self, ForecastSettings, Lags, PlannedSeason, Seasons, Structure};
use super::running::{Rival, Running};
use super::scale::{self, Scale, Unit};
use super::seasons;
use super::system::System;
use super::window::Window;
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
/// The fewest rows of which it is asked what season they may have.
const FEWEST_FOR_SEASONS: usize = 12;
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
            Some(mut running) if trimmed && running.stands(&window) => {
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
        let known = (0..window.times.len())
            .filter_map(|i| Some((self.tau(window.times[i]), self.target(window, i)?)));
        let (times, targets): (Vec<f64>, Vec<f64>) = known.unzip();
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
        let clock = Clock::of(&window.times, settings.dates);
        let step = settings.step.map_or_else(|| clock.step(&window.times), |step| step / clock.unit());
        let regular = window.count_steps(clock, step);
        let window = &*window;
        let logs = scales(window, settings, earlier);
        let mut searches = logs.iter().map(|log| Search::new(window, settings, (clock, step), regular, *log));
        let first = searches.next().ok_or(Error::NotReady { operation: "a fit" })??;
        let Some(second) = searches.next().transpose()? else { return first.run(earlier, None) };
        // Without lags both scales are told by the same rows.
        let by_scale = threads::map(usize::MAX, vec![&first, &second], |search| search.alone(earlier));
        let mut by_scale = by_scale.into_iter().collect::<Result<Vec<_>>>()?.into_iter();
        let (Some(linear), Some(log)) = (by_scale.next(), by_scale.next()) else {
            return first.run(earlier, None);
        };
        if log.density < linear.density + scale::GAIN {
            return first.run(earlier, Some(linear.running));
        }
        // What is likelier one step ahead may be worse farther ahead.
        let both = vec![(&first, linear.running), (&second, log.running)];
        let both = threads::map(usize::MAX, both, |(search, alone)| search.run(earlier, Some(alone)));
        let mut both = both.into_iter().collect::<Result<Vec<_>>>()?;
        let losses: Vec<Option<f64>> = both.iter().map(|running| running.calibration.loss()).collect();
        let limit = scale::WORSE / (window.count() as f64).sqrt();
        let worse = losses[1].zip(losses[0]).is_some_and(|(log, linear)| log > linear + limit);
        Ok(both.swap_remove(usize::from(!worse)))
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

/// Whether logarithms are tried: no, yes, or both.
fn scales(window: &Window, settings: &ForecastSettings, earlier: Option<&Running>) -> Vec<bool> {
    let long = window.times.len() > 2 * FIRST_FIT;
    match (settings.scale, earlier) {
        (Scale::Linear, _) => vec![false],
        (Scale::Log, _) => vec![true],
        // Five hundred rows that are not logarithms will not become so.
        (Scale::Auto, Some(earlier)) if long && !earlier.log => vec![false],
        _ if scale::may_be_log(window.known()) => vec![false, true],
        _ => vec![false],
    }
}

/// A structure that was fitted, and the log density of the rows less what its hyperparameters cost, in the unit of the target.
struct Fitted {
    density: f64,
    running: Running,
}

/// The search for the structure of the rows in a window, on one scale.
struct Search<'a> {
    window: &'a Window,
    settings: &'a ForecastSettings,
    clock: Clock,
    step: f64,
    /// Whether nearly all rows lie on steps.
    regular: bool,
    unit: Unit,
    /// Times in steps from the first row on, and targets in their unit, of rows that have one.
    rows: (Vec<f64>, Vec<f64>),
    seasons: Vec<PlannedSeason>,
    effects: Vec<Effect>,
    lag_sets: Vec<Vec<usize>>,
    moments: Moments,
    span: f64,
    /// How many steps ahead forecasts are compared, and from which row on.
    horizon: usize,
    first: usize,
}

impl<'a> Search<'a> {
    fn new(
        window: &'a Window,
        settings: &'a ForecastSettings,
        (clock, step): (Clock, f64),
        regular: bool,
        log: bool,
    ) -> Result<Self> {
        let unit = Unit::of(window.known(), log);
        let origin = clock.at(window.times[0]);
        let known = (0..window.times.len()).filter_map(|i| {
            let v = window.target(i).and_then(|y| unit.inward(y))?;
            Some(((clock.at(window.times[i]) - origin) / step, v))
        });
        let (times, targets): (Vec<f64>, Vec<f64>) = known.unzip();
        let seasons = seasons_of(settings, step * clock.unit(), &times, &targets)?;
        let whole =
            Self::with_seasons(window, settings, (clock, step), regular, unit, (times, targets), seasons)?;
        whole.with_likely_seasons()
    }

    fn with_seasons(
        window: &'a Window,
        settings: &'a ForecastSettings,
        (clock, step): (Clock, f64),
        regular: bool,
        unit: Unit,
        (times, targets): (Vec<f64>, Vec<f64>),
        seasons: Vec<PlannedSeason>,
    ) -> Result<Self> {
        let span = (times[times.len() - 1] - times[0]).max(10.0);
        let effects = plan::effects(&settings.columns, &window.inputs, &seasons)?;
        let lag_sets = lag_sets(settings, &seasons, &times, &targets, regular)?;
        let longest = seasons.iter().map(|s| s.period).filter(|p| 6.0 * p <= span).fold(8.0, f64::max);
        let horizon = settings.horizon.map_or(longest, |h| h / (step * clock.unit())).round();
        let longest_lag = lag_sets.iter().flatten().max().copied().unwrap_or(0);
        let first = first_flight(window, longest_lag);
        // A third of the rows from there on is left for forecasts to start from.
        let left = span - first as f64;
        let horizon = (horizon.max(1.0) as usize).min(LONGEST_CHECK).min((left / 1.5) as usize).max(1);
        let moments = Moments::of(&times, &targets, &seasons)?;
        let rows = (times, targets);
        Ok(Self {
            window,
            settings,
            clock,
            step,
            regular,
            unit,
            rows,
            seasons,
            effects,
            lag_sets,
            moments,
            span,
            horizon,
            first,
        })
    }

    /// The same with the seasons that make few rows likeliest: there a spectrum tells little, but each season that there may be can
    /// be tried. Seasons that many might have stood in for must be likelier by the logarithm of their number.
    fn with_likely_seasons(self) -> Result<Self> {
        let (times, targets) = &self.rows;
        if self.settings.seasons != Seasons::Auto
            || times.len() > FIRST_FIT
            || times.len() < FEWEST_FOR_SEASONS
        {
            return Ok(self);
        }
        let natural = plan::natural_periods(self.settings.dates.then_some(self.step * self.clock.unit()));
        let candidates = seasons::candidates(times, targets, &natural, &self.seasons)?;
        if candidates.is_empty() {
            return Ok(self);
        }
        let penalty = (candidates.len() as f64).ln();
        let of = |seasons: Vec<PlannedSeason>| {
            let rows = self.rows.clone();
            let place = (self.clock, self.step);
            Self::with_seasons(self.window, self.settings, place, self.regular, self.unit, rows, seasons)
        };
        let searches = candidates.into_iter().map(of).collect::<Result<Vec<_>>>()?;
        let density = |search: &Self| -> Result<f64> {
            let running = search.start(&Structure::whole(Vec::new()))?;
            Ok(search.follow((running, Effort { starts: 1, first: 0, best: 15 }))?.density)
        };
        let own = density(&self)?;
        let each = threads::map(usize::MAX, searches.iter().collect(), density);
        let each = each.into_iter().collect::<Result<Vec<f64>>>()?;
        let best = searches.into_iter().zip(each).max_by(|a, b| a.1.total_cmp(&b.1));
        Ok(match best {
            Some((search, density)) if density > own + penalty => search,
            _ => self,
        })
    }

    /// Everything: of all sets of lags the one with the best forecasts, and a rival that makes the most of it. What was fitted
    /// without lags may be known.
    fn run(&self, earlier: Option<&Running>, without_lags: Option<Running>) -> Result<Running> {
        let of_lags = |(lags, known): (Vec<usize>, Option<Running>)| -> Result<(f64, Running)> {
            let mut running = match known {
                Some(running) => running,
                None => self.fitted(lags, earlier)?.running,
            };
            self.replay(&mut running);
            // One whose forecasts could not be compared with anything has nothing to say for itself.
            Ok((running.calibration.loss().unwrap_or(f64::INFINITY), running))
        };
        // Small systems have several structures, which share the threads among them; large ones are fitted side by side.
        let side_by_side = if self.is_small(&[])? { 1 } else { usize::MAX };
        let mut without_lags = without_lags;
        let sets = self.lag_sets.iter();
        let sets = sets.map(|lags| (lags.clone(), without_lags.take_if(|_| lags.is_empty()))).collect();
        let mut tried: Vec<(f64, Running)> =
            threads::map(side_by_side, sets, of_lags).into_iter().collect::<Result<_>>()?;
        tried.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut tried = tried.into_iter();
        let Some((alone, best)) = tried.next() else { return Err(Error::NotReady { operation: "a fit" }) };
        Ok(best.with_rival(alone, tried.map(|(_, other)| other).collect(), |both| self.replay(both)))
    }

    /// The best structure without lags, with the density of the targets themselves.
    fn alone(&self, earlier: Option<&Running>) -> Result<Fitted> {
        let mut fitted = self.fitted(Vec::new(), earlier)?;
        fitted.density += self.unit.log_jacobian(self.window.known());
        self.replay(&mut fitted.running);
        Ok(fitted)
    }

    /// Goes through the rows, and compares forecasts with them.
    fn replay(&self, running: &mut Running) {
        running.replay(self.window, self.settings.memory, self.horizon, self.first);
    }

    fn is_small(&self, lags: &[usize]) -> Result<bool> {
        Ok(lags.is_empty() && self.start(&Structure::whole(Vec::new()))?.system.dim() < MANY)
    }

    /// A structure before anything is learned.
    fn start(&self, structure: &Structure) -> Result<Running> {
        let system =
            plan::system(self.settings, &self.seasons, &self.effects, structure, self.span, &self.moments)?;
        Ok(Running {
            origin: self.window.times[0],
            clock: self.clock,
            step: self.step,
            shift: self.unit.shift,
            factor: self.unit.factor,
            log: self.unit.log,
            seasons: self.seasons.clone(),
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
    }

    /// Hyperparameters of a structure, with Akaike's criterion for few rows: the log density of all rows, less what learning k
    /// hyperparameters adds to it.
    fn follow(&self, (mut running, effort): (Running, Effort)) -> Result<Fitted> {
        let series = running.series(self.window, running.rows_to_fit(self.window));
        let density = fit::fit(&mut running.system, &series, None, &self.moments, effort)?;
        let k = running.system.parameters().len() as f64;
        let n = self.window.count() as f64;
        let fitted = series.targets.iter().filter(|y| !y.is_nan()).count().max(1) as f64;
        let density = density * if series.lags == 0 { n / fitted } else { 1.0 };
        Ok(Fitted { density: density - k * n / (n - k - 1.0).max(0.1), running })
    }

    fn effort(&self, running: &mut Running, earlier: Option<&Running>) -> Effort {
        // What few rows said is no start for more of them: of a short series every fit searches as the first one does.
        let follows = self.window.times.len() > FIRST_FIT;
        let same = |e: &Running| e.log == running.log;
        let earlier = earlier.filter(|e| follows && same(e));
        let known = earlier.is_some_and(|e| e.systems().any(|s| running.system.follow(s)));
        match running.system.dim() {
            _ if known => Effort { starts: 1, first: 0, best: 30 },
            0..MANY if running.system.lags().is_empty() => Effort { starts: 3, first: 14, best: 0 },
            _ => Effort { starts: 1, first: 0, best: 40 },
        }
    }

    /// The likeliest structure with these lags.
    fn fitted(&self, lags: Vec<usize>, earlier: Option<&Running>) -> Result<Fitted> {
        let small = self.is_small(&lags)?;
        let whole = Structure::whole(lags);
        let structures = if small { whole.simpler(self.settings.trend) } else { vec![whole] };
        let begin = |structure: Structure| -> Result<(Running, Effort)> {
            let mut running = self.start(&structure)?;
            let effort = self.effort(&mut running, earlier);
            Ok((running, effort))
        };
        let begun = structures.into_iter().map(begin).collect::<Result<Vec<_>>>()?;
        let unfinished = begun.iter().any(|(_, effort)| effort.best == 0);
        let follow = |begun| self.follow(begun);
        let mut tried =
            threads::map(usize::MAX, begun, follow).into_iter().collect::<Result<Vec<Fitted>>>()?;
        let most = |tried: &[Fitted]| tried.iter().map(|t| t.density).fold(f64::NEG_INFINITY, f64::max);
        if unfinished {
            // Those that may still be the best are followed to the end.
            let least = most(&tried) - BEHIND;
            let kept = tried.into_iter().filter(|t| t.density >= least);
            let effort = Effort { starts: 1, first: 0, best: 50 };
            let kept = kept.map(|t| (t.running, effort)).collect();
            tried = threads::map(usize::MAX, kept, follow).into_iter().collect::<Result<_>>()?;
        }
        let value = most(&tried);
        tried.into_iter().find(|t| t.density >= value).ok_or(Error::NotReady { operation: "a fit" })
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
