//! A fitted series: the filter as rows come, the past that lags need, and forecasts that are compared with what came.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::ahead::{self, Future};
use super::blend::{Blend, Weight};
use super::calibration::{self, Calibration};
use super::clock::Clock;
use super::filter::{Belief, Expected, Scratch};
use super::likelihood::Series;
use super::plan::PlannedSeason;
use super::scale::Unit;
use super::system::{Inputs, System};
use super::window::{Window, fill_gaps};

/// Forecasts in flight that will be compared with what comes.
const IN_FLIGHT: usize = 8;
/// The fewest steps between two of them: each holds a covariance.
const FEWEST_APART: usize = 4;

/// What was expected of a row before it was learned, in the unit of the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepAhead {
    /// The mean.
    pub mean: f64,
    /// The standard deviation, noise included.
    pub std: f64,
}

/// What a fit has found, and the filter since.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) origin: f64,
    #[serde(default)]
    pub(super) clock: Clock,
    /// The length of a step, by the clock.
    pub(super) step: f64,
    /// The unit of the series: see [`Unit`].
    pub(super) shift: f64,
    pub(super) factor: f64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) log: bool,
    pub(super) seasons: Vec<PlannedSeason>,
    pub(super) system: System,
    pub(super) belief: Belief,
    /// The belief before the window, if rows have left it, and in the middle of it.
    pub(super) start: Option<Belief>,
    pub(super) middle: Option<Belief>,
    /// How many rows of the window the one in the middle has seen.
    #[serde(default)]
    pub(super) middle_at: usize,
    /// The series at every step up to the last row, standardized, gaps filled with what was expected; for lags.
    #[serde(with = "crate::saved::floats")]
    pub(super) past: Vec<f64>,
    pub(super) past_to: i64,
    pub(super) calibration: Calibration,
    /// Beliefs that forecasts will be compared from: the step of each, and the past at it.
    pub(super) flights: Vec<Flight>,
    pub(super) next_flight: i64,
    /// Another model of the same rows, with other lags, if forecasts are better with both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rival: Option<Box<Rival>>,
    #[serde(skip)]
    pub(super) scratch: Option<Scratch>,
    #[serde(skip)]
    pub(super) lagged: Vec<f64>,
}

/// A second model beside the first, and how much each of them counts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Rival {
    /// It has neither flights nor a rival of its own.
    pub(super) running: Running,
    pub(super) blend: Blend,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Flight {
    pub(super) step: i64,
    pub(super) belief: Belief,
    #[serde(with = "crate::saved::floats")]
    pub(super) past: Vec<f64>,
    /// The rival's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) other: Option<Box<Flight>>,
}

impl Running {
    /// The number of the step of a new row.
    pub(super) fn step_of(&self, window: &Window, time: f64) -> i64 {
        match (window.times.last(), window.steps.last()) {
            (Some(last), Some(step)) => step + self.steps_between(*last, time).round().min(1e15) as i64,
            _ => 0,
        }
    }

    /// How many steps lie between two times.
    pub(super) fn steps_between(&self, from: f64, to: f64) -> f64 {
        (self.clock.at(to) - self.clock.at(from)) / self.step
    }

    /// The mean length of a step, in the unit of time.
    pub(super) fn step_length(&self) -> f64 {
        self.step * self.clock.unit()
    }

    /// The unit of the series.
    pub(super) fn unit(&self) -> Unit {
        Unit { shift: self.shift, factor: self.factor, log: self.log }
    }

    /// The target of a row in that unit, if it has one.
    pub(super) fn target(&self, window: &Window, i: usize) -> Option<f64> {
        window.target(i).and_then(|y| self.unit().inward(y))
    }

    /// Whether all rows have a value on its scale.
    pub(super) fn stands(&self, window: &Window) -> bool {
        !self.log || window.known().all(|y| y > 0.0)
    }

    pub(super) fn tau(&self, time: f64) -> f64 {
        self.steps_between(self.origin, time)
    }

    /// The past that lags need, ending a step before `step`; `None` if it is not known so far back.
    pub(super) fn lagged(&self, step: i64, out: &mut Vec<f64>) -> bool {
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
    pub(super) fn remember(&mut self, step: i64, value: f64) {
        let most = self.system.longest_lag() + 1;
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
    pub(super) fn regular(&self, count: usize, window: &Window) -> Future {
        let last = window.x(window.times.len() - 1);
        Future {
            times: (1..=count).map(|k| self.belief.time() + k as f64).collect(),
            inputs: last.iter().copied().cycle().take(last.len() * count).collect(),
            width: last.len(),
            past: self.past.clone(),
        }
    }

    /// Learns the row at a place of the window; what was expected of it.
    pub(super) fn learn(&mut self, window: &Window, i: usize) -> StepAhead {
        let (mut expected, complete) = self.filter(window, i);
        let target = self.target(window, i);
        if let Some(Rival { running, blend }) = self.rival.as_deref_mut() {
            let (other, other_complete) = running.filter(window, i);
            let weight = match (complete, other_complete) {
                (true, true) => blend.weight(1),
                (first, second) => Weight::alone(first || !second),
            };
            if let Some(y) = target.filter(|_| complete && other_complete) {
                blend.learn(1, y - expected.mean, y - other.mean, 1.0);
            }
            expected.mean = weight.mean(expected.mean, other.mean);
            expected.variance = weight.variance(expected.variance, other.variance);
        }
        self.compare(window, i);
        let (mean, std) = self.unit().moments(expected.mean, expected.variance.sqrt());
        StepAhead { mean, std }
    }

    /// Moves the filter on to a row and conditions it on its target: what was expected of it, and whether all lags were known.
    fn filter(&mut self, window: &Window, i: usize) -> (Expected, bool) {
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
        let y = self.target(window, i);
        let expected = self.belief.step(&self.system, &row, y.filter(|_| complete), &mut scratch);
        self.lagged = lagged;
        self.scratch = Some(scratch);
        self.remember(step, y.unwrap_or(expected.mean));
        (expected, complete)
    }

    /// Whether the past is known as far back as lags need it.
    pub(super) fn knows_past(&self) -> bool {
        self.past.len() >= self.system.longest_lag()
    }

    /// Fills the past up to a step with what is expected there.
    pub(super) fn fill(&mut self, window: &Window, row: usize, to: i64, fallback: f64) {
        let gap = to - self.past_to;
        let most = self.system.longest_lag() as i64 + 1;
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
    pub(super) fn compare(&mut self, window: &Window, i: usize) {
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
            let mut flight = self.flight(step);
            flight.other = self.rival.as_ref().map(|rival| Box::new(rival.running.flight(step)));
            self.flights.push(flight);
        }
    }

    fn flight(&self, step: i64) -> Flight {
        Flight { step, belief: self.belief.clone(), past: self.past.clone(), other: None }
    }

    fn land(&mut self, window: &Window, last: usize, flight: &Flight, apart: usize) {
        let horizon = self.calibration.horizon();
        let from = window.steps[..=last].partition_point(|s| *s <= flight.step);
        let rows = from..window.steps[..=last].partition_point(|s| *s <= flight.step + horizon as i64);
        if rows.is_empty() || (from == 0 && window.steps[0] > flight.step + 1) {
            return;
        }
        let means = |system: &System, flight: &Flight| {
            let (future, places) = self.landed(window, rows.clone(), flight, !system.lags().is_empty());
            let means = ahead::means(system, &flight.belief, &future).mean;
            places.into_iter().map(|k| means[k]).collect::<Vec<f64>>()
        };
        let means_own = means(&self.system, flight);
        let of_other = |rival: &Rival| flight.other.as_deref().map(|f| means(&rival.running.system, f));
        let means_other = self.rival.as_deref().and_then(of_other);
        // After a long gap lags are not known, and a forecast is that of the other model.
        let knows = |system: &System, flight: &Flight| flight.past.len() >= system.longest_lag();
        let other_knows =
            |rival: &Rival| flight.other.as_deref().is_some_and(|f| knows(&rival.running.system, f));
        let known = (knows(&self.system, flight), self.rival.as_deref().is_some_and(other_knows));
        // Widths are judged with the weights of before.
        let before = self.rival.as_ref().map(|rival| rival.blend.clone());
        let thresholds = self.calibration.thresholds();
        for (n, k) in rows.enumerate() {
            let ahead = (window.steps[k] - flight.step).max(1) as usize;
            let Some(y) = self.target(window, k) else { continue };
            let Some(mut deviation) = self.calibration.deviation(ahead) else { continue };
            let mut error = y - means_own[n];
            if let (Some(rival), Some(means), Some(before)) = (&mut self.rival, &means_other, &before) {
                let other = y - means[n];
                // One step ahead every row counts, not only those of flights.
                if ahead > 1 && known == (true, true) {
                    let stretches = (apart as f64 / ahead as f64).min(1.0) / calibration::width(ahead);
                    rival.blend.learn(ahead, error, other, stretches);
                }
                let weight = if known.0 == known.1 { before.weight(ahead) } else { Weight::alone(known.0) };
                let other_deviation = rival.running.calibration.deviation(ahead).unwrap_or(deviation);
                error = weight.mean(error, other);
                deviation = weight.variance(deviation.powi(2), other_deviation.powi(2)).sqrt();
            }
            let unit = self.unit();
            self.calibration.miss(ahead, unit.value(y) - unit.value(y - error));
            self.calibration.learn(ahead, error, deviation, apart, &thresholds);
        }
    }

    /// What a forecast in flight is asked for, and where in it these rows are. With lags that is every step from its origin on: those
    /// without a row have the inputs of the next one.
    fn landed(
        &self,
        window: &Window,
        rows: Range<usize>,
        flight: &Flight,
        every: bool,
    ) -> (Future, Vec<usize>) {
        let (width, past) = (window.x(rows.start).len(), flight.past.clone());
        if !every {
            let inputs = window.inputs[rows.start * width..rows.end * width].to_vec();
            let times = rows.clone().map(|k| self.tau(window.times[k])).collect();
            return (Future { times, inputs, width, past }, (0..rows.len()).collect());
        }
        let mut future = Future { width, past, ..Future::default() };
        let mut places = Vec::with_capacity(rows.len());
        for k in rows {
            let place = (window.steps[k] - flight.step) as usize - 1;
            while future.times.len() <= place {
                future.times.push(flight.belief.time() + (future.times.len() + 1) as f64);
                future.inputs.extend_from_slice(window.x(k));
            }
            places.push(place);
        }
        (future, places)
    }

    /// Whether it or its rival has lags.
    pub(super) fn has_lags(&self) -> bool {
        !self.system.lags().is_empty() || self.rival.as_ref().is_some_and(|r| r.running.has_lags())
    }

    /// The rows of the window as a system with these lags sees them.
    pub(super) fn series_of(&self, window: &Window) -> Series {
        self.series(window, 0)
    }

    pub(super) fn series(&self, window: &Window, from: usize) -> Series {
        let lags = self.system.lags();
        let width = window.x(0).len();
        let mut out = Series { width, lags: lags.len(), ..Series::default() };
        // Values by step, gaps filled by straight lines: only for learning hyperparameters.
        let first = window.steps[0];
        let span = (window.steps[window.steps.len() - 1] - first) as usize + 1;
        let mut values = Vec::new();
        // The line over a gap ends at the next row: where lags reach into it, that row would find itself among them.
        let mut ended = Vec::new();
        if let Some(&shortest) = lags.iter().min() {
            values = vec![f64::NAN; span];
            for (i, step) in window.steps.iter().enumerate() {
                if let Some(y) = self.target(window, i) {
                    values[(step - first) as usize] = y;
                }
            }
            ended = (0..span)
                .map(|k| k >= shortest && values[k - shortest..k].iter().all(|v| v.is_nan()))
                .collect();
            fill_gaps(&mut values);
        }
        for i in from..window.times.len() {
            out.times.push(self.tau(window.times[i]));
            out.inputs.extend_from_slice(window.x(i));
            let place = (window.steps[i] - first) as usize;
            let complete = lags.iter().all(|lag| place >= *lag && !ended[place]);
            out.targets.push(self.target(window, i).filter(|_| complete).unwrap_or(f64::NAN));
            out.lagged.extend(lags.iter().map(|lag| if place >= *lag { values[place - lag] } else { 0.0 }));
        }
        out
    }

    /// Filters the window from its beginning; forecasts are compared from its row `first` on.
    pub(super) fn replay(&mut self, window: &Window, memory: usize, horizon: usize, first: usize) {
        let rows = window.times.len();
        self.begin(window);
        (0..rows).for_each(|i| {
            self.learn(window, i);
        });
        self.expect_deviations(window, horizon);
        let calibration = std::mem::take(&mut self.calibration);
        self.begin(window);
        self.calibration = calibration;
        self.next_flight = window.steps[first];
        for i in 0..rows {
            if let Some(rival) = self.rival.as_mut().filter(|_| i == first) {
                rival.blend = Blend::default();
            }
            self.learn(window, i);
            self.note_middle(i + 1, memory);
        }
    }

    /// Goes back to before the first row of the window.
    fn begin(&mut self, window: &Window) {
        self.scratch = None;
        let first = self.tau(window.times[0]);
        self.belief = self.start.clone().unwrap_or_else(|| Belief::prior(&self.system, first));
        self.past.clear();
        self.past_to = window.steps[0] - 1;
        self.flights.clear();
        self.calibration = Calibration::default();
        (self.middle, self.middle_at) = (None, 0);
        if let Some(rival) = &mut self.rival {
            let calibration = std::mem::take(&mut rival.running.calibration);
            rival.running.begin(window);
            rival.running.calibration = calibration;
        }
    }

    /// The deviations that forecasts have, from where the window ends.
    fn expect_deviations(&mut self, window: &Window, horizon: usize) {
        let future = self.regular(horizon, window);
        let joint = ahead::joint(&self.system, &self.belief, &future, false);
        let span = (window.steps[window.steps.len() - 1] - window.steps[0]) as f64;
        let deviations = joint.variance.iter().map(|v| v.max(1e-300).sqrt()).collect();
        self.calibration = Calibration::new(deviations, span);
        if let Some(rival) = &mut self.rival {
            rival.running.expect_deviations(window, horizon);
        }
    }

    /// Keeps the belief after half of the memory, when the window has so many rows.
    pub(super) fn note_middle(&mut self, rows: usize, memory: usize) {
        if rows == memory / 2 {
            (self.middle, self.middle_at) = (Some(self.belief.clone()), rows);
        }
        if let Some(rival) = &mut self.rival {
            rival.running.note_middle(rows, memory);
        }
    }

    /// Lets go of the rows before the middle: the belief there stands for them. Returns how many they are.
    pub(super) fn leave_half(&mut self, rows: usize, memory: usize) -> usize {
        // Files of before do not say.
        let leaving = if self.middle_at == 0 { memory / 2 } else { self.middle_at };
        self.start = self.middle.take();
        (self.middle, self.middle_at) = (Some(self.belief.clone()), rows - leaving);
        if let Some(rival) = &mut self.rival {
            rival.running.leave_half(rows, memory);
        }
        leaving
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{ForecastSettings, Forecaster, Lags, Seasons};
    use rand::RngExt;
    use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

    /// An AR(1) of which every `lost`-th row is not there, and a model of it with lags.
    fn lagged(lost: usize) -> Forecaster {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
        let settings = ForecastSettings {
            seasons: Seasons::Given(Vec::new()),
            lags: Lags::Given(vec![1, 2, 5]),
            ..ForecastSettings::default()
        };
        let mut model = Forecaster::new(settings).unwrap();
        let mut y = 0.0;
        let (mut times, mut targets) = (Vec::new(), Vec::new());
        for i in 0..300 {
            y = 0.9 * y + random.random::<f64>() - 0.5;
            if i % lost != lost - 1 {
                times.push(i as f64);
                targets.push(y);
            }
        }
        model.extend(&times, &[], &targets).unwrap();
        model
    }

    /// Forecasts with lags are compared with the rows that there are, whether or not others are lost: else a model with lags could
    /// not be told from a better one.
    #[test]
    fn forecasts_with_lags_are_compared_across_lost_rows() {
        let (whole, gappy) = (lagged(1000), lagged(7));
        let loss = |model: &Forecaster| model.running.as_ref().and_then(|r| r.calibration.loss());
        let (whole, gappy) = (loss(&whole).unwrap(), loss(&gappy).unwrap());
        assert!((whole - gappy).abs() < 0.5, "{whole} {gappy}");
    }

    #[test]
    fn a_flight_lands_on_the_steps_of_its_rows() {
        let model = lagged(7);
        let (running, window) = (model.running.as_ref().unwrap(), &model.window);
        let flight = running.flight(window.steps[100]);
        let flight = Flight { step: window.steps[100], ..flight };
        let (future, places) = running.landed(window, 101..121, &flight, true);
        for (n, k) in (101..121).enumerate() {
            let ahead = future.times[places[n]] - flight.belief.time();
            assert_eq!(ahead as i64, window.steps[k] - flight.step);
        }
        assert!(future.times.windows(2).all(|w| (w[1] - w[0] - 1.0).abs() < 1e-9));
        assert_eq!(future.times.len() as i64, window.steps[120] - flight.step);
    }

    /// A line over a gap ends at the row after it, which would then be told its own target.
    #[test]
    fn no_row_is_among_its_own_lags() {
        let model = lagged(7);
        let (running, window) = (model.running.as_ref().unwrap(), &model.window);
        let series = running.series_of(window);
        for i in 6..window.times.len() {
            let after_a_gap = window.steps[i] - window.steps[i - 1] > 1;
            assert_eq!(series.targets[i].is_nan(), after_a_gap, "{i}");
        }
    }
}
