//! Forecasts of a [`Forecaster`]: means, intervals, paths, components.

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::ahead::{self, Future, Joint};
use super::component::{Component, Smoothness};
use super::forecaster::Forecaster;
use super::likelihood;
use super::running::Running;
use crate::dense;
use crate::error::{Error, Result, finite, length};
use crate::normal;
use faer::Mat;

/// The most steps ahead of a model with lags, whose covariance has the square of it.
const MOST_JOINT: usize = 4096;

/// Rows ahead, in the unit of the target.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Forecast {
    /// Their times.
    pub times: Vec<f64>,
    /// The mean of each.
    pub mean: Vec<f64>,
    /// The standard deviation of each, noise included, corrected by what earlier forecasts missed.
    pub std: Vec<f64>,
    /// The lower end of the interval.
    pub lower: Vec<f64>,
    /// The upper end.
    pub upper: Vec<f64>,
}

/// The share of one component in some rows.
#[derive(Debug, Clone, PartialEq)]
pub struct ComponentShare {
    /// What it is: `trend`, `season 24`, `x[0]`, …
    pub name: String,
    /// Its mean at each row.
    pub mean: Vec<f64>,
    /// Its standard deviation at each row.
    pub std: Vec<f64>,
}

impl Forecaster {
    fn ready(&self, operation: &'static str) -> Result<&Running> {
        self.running.as_ref().ok_or(Error::NotReady { operation })
    }

    /// The times of the next steps after the newest row.
    pub fn next_times(&self, steps: usize) -> Result<Vec<f64>> {
        let running = self.ready("a forecast")?;
        let last = self.last_time().unwrap_or(running.origin);
        Ok((1..=steps).map(|k| last + k as f64 * running.step).collect())
    }

    /// The next steps, with their inputs row by row and an interval at a level.
    pub fn forecast(&self, steps: usize, x: &[f64], level: f64) -> Result<Forecast> {
        self.forecast_at(&self.next_times(steps)?, x, level)
    }

    /// Rows at later times, in order. A model with lags needs every step: those in between are forecast, too, but with inputs
    /// all of them have to be given.
    pub fn forecast_at(&self, times: &[f64], x: &[f64], level: f64) -> Result<Forecast> {
        if !(level > 0.0 && level < 1.0) {
            let reason = format!("{level} is not between 0 and 1");
            return Err(Error::Config { field: "level".into(), reason });
        }
        let running = self.ready("a forecast")?;
        if let Some(steps) = self.steps_to(running, times) {
            let all = self.forecast(steps.last().map_or(0, |s| s + 1), &[], level)?;
            let at = |values: &[f64]| steps.iter().map(|s| values[*s]).collect::<Vec<f64>>();
            let (mean, std, lower, upper) = (at(&all.mean), at(&all.std), at(&all.lower), at(&all.upper));
            return Ok(Forecast { times: times.to_vec(), mean, std, lower, upper });
        }
        let future = self.future(running, times, x)?;
        let joint = ahead::joint(&running.system, &running.belief, &future, false);
        let gaussian = normal::quantile(0.5 + 0.5 * level);
        let mut out = Forecast { times: times.to_vec(), ..Forecast::default() };
        for k in 0..times.len() {
            let mean = running.shift + running.factor * joint.mean[k];
            let half = running.half_width(&joint, &future, k, level);
            out.mean.push(mean);
            out.std.push(half / gaussian);
            out.lower.push(mean - half);
            out.upper.push(mean + half);
        }
        Ok(out)
    }

    /// Paths drawn from the joint distribution of rows ahead: `count` lists of as many values as times.
    pub fn sample_paths(&self, times: &[f64], x: &[f64], count: usize, seed: u64) -> Result<Vec<Vec<f64>>> {
        let running = self.ready("a forecast")?;
        let n = times.len();
        if n > MOST_JOINT {
            let reason = format!("{n} steps, where paths have at most {MOST_JOINT}");
            return Err(Error::Config { field: "horizon".into(), reason });
        }
        let future = self.future(running, times, x)?;
        let joint = ahead::joint(&running.system, &running.belief, &future, true);
        let root = dense::cholesky(Mat::from_fn(n, n, |i, j| joint.covariance[i * n + j]))?;
        let one = normal::cumulative(1.0) - normal::cumulative(-1.0);
        let scale: Vec<f64> =
            (0..n).map(|k| running.half_width(&joint, &future, k, one) / joint.variance[k].sqrt()).collect();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let path = |_| {
            let white: Vec<f64> = (0..n).map(|_| StandardNormal.sample(&mut random)).collect();
            let value = |k: usize| {
                let deviation: f64 = (0..=k).map(|j| root[(k, j)] * white[j]).sum();
                running.shift + running.factor * joint.mean[k] + scale[k] * deviation
            };
            (0..n).map(value).collect()
        };
        Ok((0..count).map(path).collect())
    }

    /// The shares of the components in rows ahead; they add up to the mean, together with the level of the target.
    pub fn components_ahead(&self, times: &[f64], x: &[f64]) -> Result<Vec<ComponentShare>> {
        let running = self.ready("a forecast")?;
        let future = self.future(running, times, x)?;
        let joint = ahead::means(&running.system, &running.belief, &future);
        Ok(running.named(ahead::shares(&running.system, &running.belief, &future, &joint)))
    }

    /// The times of the rows in memory, and the shares of the components there given all rows (smoothed).
    pub fn components(&self) -> Result<(Vec<f64>, Vec<ComponentShare>)> {
        let running = self.ready("components")?;
        let series = running.series_of(&self.window);
        let first = series.times.first().copied().unwrap_or(0.0);
        let start =
            running.start.clone().unwrap_or_else(|| super::filter::Belief::prior(&running.system, first));
        let mut shares = likelihood::smooth(&running.system, &series, &start);
        shares.pop();
        Ok((self.window.times.clone(), running.named(shares)))
    }

    /// The numbers of the steps ahead, from zero, on which these times lie, if lags need the steps between them, too.
    fn steps_to(&self, running: &Running, times: &[f64]) -> Option<Vec<usize>> {
        if running.system.lags().is_empty() || !self.settings.columns.is_empty() {
            return None;
        }
        let last = self.last_time()?;
        let mut steps = Vec::with_capacity(times.len());
        for time in times {
            let ahead = (time - last) / running.step;
            let number = ahead.round();
            let in_order = steps.last().is_none_or(|before| number > *before as f64 + 1.0);
            if !(number >= 1.0 && number <= MOST_JOINT as f64 && (ahead - number).abs() <= 0.25 && in_order) {
                return None;
            }
            steps.push(number as usize - 1);
        }
        // Without gaps there is nothing to add.
        steps.last().filter(|last| **last + 1 > times.len())?;
        Some(steps)
    }

    fn future(&self, running: &Running, times: &[f64], x: &[f64]) -> Result<Future> {
        let width = self.settings.columns.len();
        length("inputs of the rows ahead", times.len() * width, x.len())?;
        x.iter().enumerate().try_for_each(|(i, v)| finite(format!("x[{}]", i % width), *v, i / width))?;
        let mut before = self.last_time().unwrap_or(running.origin);
        let lagged = !running.system.lags().is_empty();
        for (row, &time) in times.iter().enumerate() {
            finite("time", time, row)?;
            let steps = (time - before) / running.step;
            if steps < 0.0 {
                let reason = format!("{time} in row {row} is before {before}: rows ahead must be in order");
                return Err(Error::Config { field: "time".into(), reason });
            }
            if lagged && (steps - 1.0).abs() > 0.25 {
                let reason = format!(
                    "{time} in row {row} is {steps:.3} steps after the row before: a model with lags needs every step"
                );
                return Err(Error::Config { field: "time".into(), reason });
            }
            before = time;
        }
        if lagged && times.len() > MOST_JOINT {
            let reason =
                format!("{} steps, where a model with lags looks at most {MOST_JOINT} ahead", times.len());
            return Err(Error::Config { field: "horizon".into(), reason });
        }
        let times = times.iter().map(|t| running.tau(*t)).collect();
        Ok(Future { times, inputs: x.to_vec(), width, past: running.past.clone() })
    }
}

impl Running {
    /// Half the width of the interval of a row ahead.
    fn half_width(&self, joint: &Joint, future: &Future, k: usize, level: f64) -> f64 {
        let steps = (future.times[k] - self.belief.time()).round().max(1.0) as usize;
        self.factor * joint.variance[k].sqrt() * self.calibration.quantile(steps, level)
    }

    fn named(&self, shares: Vec<Vec<likelihood::Share>>) -> Vec<ComponentShare> {
        let named = self.system.components().iter().zip(shares).map(|(component, list)| {
            let name = match component {
                Component::Level { .. } | Component::Trend { .. } | Component::DampedTrend { .. } => {
                    "trend".to_string()
                }
                Component::Matern { smoothness: Smoothness::Half, .. } => "short term".to_string(),
                Component::Matern { .. } => "smooth".to_string(),
                Component::Season { period, .. } => format!("season {:.6}", period * self.step)
                    .trim_end_matches('0')
                    .trim_end_matches('.')
                    .to_string(),
                Component::Effect { effect, .. } => {
                    let by = if effect.by.is_some() { " by season" } else { "" };
                    format!("x[{}]{by}", effect.column)
                }
                Component::Lags { .. } => "lags".to_string(),
            };
            let shift = if name == "trend" { self.shift } else { 0.0 };
            ComponentShare {
                name,
                mean: list.iter().map(|s| shift + self.factor * s.mean).collect(),
                std: list.iter().map(|s| self.factor * s.variance.max(0.0).sqrt()).collect(),
            }
        });
        named.collect()
    }
}
