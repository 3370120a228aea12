//! Backtests: forecasts from earlier rows, scored by what came, beside the seasonal naive forecast.
//!
//! One pass over the rows: the model learns up to an origin, forecasts, and goes on, so that it never sees what it is
//! scored on. Scores by horizon: root mean square error; mean absolute scaled error, |e| in units of the mean error of
//! the naive forecast before the first origin (Hyndman and Koehler 2006); continuous ranked probability score of the
//! Gaussian with the forecast's mean and deviation; the share inside the interval, and its mean width.

use super::forecast::Forecast;
use super::forecaster::Forecaster;
use crate::error::{Error, Result, length};
use crate::normal;

/// The scores of forecasts at some horizons.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HorizonScore {
    /// The first horizon, in steps.
    pub from: usize,
    /// The last one.
    pub to: usize,
    /// How many forecasts were scored.
    pub count: usize,
    /// The root mean square error.
    pub rmse: f64,
    /// The mean absolute scaled error.
    pub mase: f64,
    /// The mean continuous ranked probability score, in the unit of the target.
    pub crps: f64,
    /// The share of targets inside the interval.
    pub coverage: f64,
    /// The mean width of the interval.
    pub width: f64,
    /// The root mean square error of the naive forecast: what was seen one season before (or last).
    pub naive_rmse: f64,
}

/// The scores of a backtest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Backtest {
    /// From how many rows forecasts started.
    pub origins: usize,
    /// The season of the naive forecast, in the unit of time; 0 for the last value.
    pub naive_season: f64,
    /// The scores by horizon.
    pub by_horizon: Vec<HorizonScore>,
    /// The scores of all horizons together.
    pub all: HorizonScore,
}

/// One forecast of one row.
struct Scored {
    steps: usize,
    error: f64,
    naive: f64,
    crps: f64,
    width: f64,
    inside: bool,
}

impl Forecaster {
    /// Learns the rows and on the way forecasts `steps` ahead from `origins` of them, spread over the second half.
    /// Targets that are NaN are missing.
    pub fn backtest(
        &mut self,
        times: &[f64],
        x: &[f64],
        y: &[f64],
        steps: usize,
        origins: usize,
        level: f64,
    ) -> Result<Backtest> {
        let width = self.settings().columns.len();
        length("targets", times.len(), y.len())?;
        length("inputs", times.len() * width, x.len())?;
        let n = times.len();
        let first = (n / 2).max(16);
        if origins == 0 || steps == 0 || n < first + steps + 1 {
            let reason =
                format!("{n} rows are too few for forecasts of {steps} steps from their second half");
            return Err(Error::Config { field: "backtest".into(), reason });
        }
        let last = n - steps;
        let origins = origins.min(last - first + 1);
        let mut learned = 0;
        let mut scored = Vec::new();
        let (mut season, mut scale) = (0.0, 0.0);
        for k in 0..origins {
            let origin = if origins == 1 { last } else { first + (last - first) * k / (origins - 1) };
            self.extend(&times[learned..origin], &x[learned * width..origin * width], &y[learned..origin])?;
            learned = origin;
            if k == 0 {
                (season, scale) = self.naive_scale(times, y, origin);
            }
            let step = self.step().unwrap_or(1.0);
            let limit = times[origin - 1] + (steps as f64 + 0.5) * step;
            let end = origin + times[origin..].partition_point(|t| *t <= limit);
            let rows = origin..end;
            let ahead = self.forecast_rows(&times[rows.clone()], &x[origin * width..end * width], level)?;
            for (i, row) in rows.enumerate().filter(|(_, row)| !y[*row].is_nan()) {
                let naive = naive(times, y, origin, times[row], season);
                scored.push(Scored {
                    steps: (((times[row] - times[origin - 1]) / step).round() as usize).max(1),
                    error: y[row] - ahead.mean[i],
                    naive: y[row] - naive,
                    crps: normal::crps(y[row] - ahead.mean[i], ahead.std[i]),
                    width: ahead.upper[i] - ahead.lower[i],
                    inside: ahead.lower[i] <= y[row] && y[row] <= ahead.upper[i],
                });
            }
        }
        self.extend(&times[learned..], &x[learned * width..], &y[learned..])?;
        let (mut by_horizon, mut from) = (Vec::new(), 1);
        while from <= steps {
            let to = (2 * from - 1).min(steps);
            by_horizon.push(score(&scored, from, to, scale));
            from = to + 1;
        }
        Ok(Backtest { origins, naive_season: season, by_horizon, all: score(&scored, 1, steps, scale) })
    }

    /// Rows at given times, whether or not some steps between them have no row. Those take the inputs of the row
    /// before.
    fn forecast_rows(&self, times: &[f64], x: &[f64], level: f64) -> Result<Forecast> {
        if self.lags().is_empty() {
            return self.forecast_at(times, x, level);
        }
        let width = self.settings().columns.len();
        let (step, now) = (self.step().unwrap_or(1.0), self.last_time().unwrap_or(0.0));
        let place = |t: &f64| (((t - now) / step).round() as usize).max(1) - 1;
        let steps = times.last().map_or(0, place) + 1;
        let (mut inputs, mut row) = (Vec::with_capacity(steps * width), 0);
        for k in 0..steps {
            while row + 1 < times.len() && place(&times[row + 1]) <= k {
                row += 1;
            }
            inputs.extend_from_slice(&x[row * width..(row + 1) * width]);
        }
        let all = self.forecast(steps, &inputs, level)?;
        let pick = |v: &[f64]| times.iter().map(|t| v[place(t)]).collect();
        Ok(Forecast {
            times: times.to_vec(),
            mean: pick(&all.mean),
            std: pick(&all.std),
            lower: pick(&all.lower),
            upper: pick(&all.upper),
        })
    }

    /// The season of the naive forecast, and its mean absolute error on the rows before `end`.
    fn naive_scale(&self, times: &[f64], y: &[f64], end: usize) -> (f64, f64) {
        let span = times[end - 1] - times[0];
        let season = self.seasons().into_iter().filter(|s| 2.0 * s <= span).fold(0.0, f64::max);
        let from = times[..end].partition_point(|t| *t < times[0] + season).max(1);
        let (mut sum, mut count) = (0.0, 0.0);
        for row in (from..end).filter(|row| !y[*row].is_nan()) {
            sum += (y[row] - naive(times, y, row, times[row], season)).abs();
            count += 1.0;
        }
        (season, if count > 0.0 { sum / count } else { 0.0 })
    }
}

/// What was seen a whole number of seasons before a time, of the rows before `origin`.
fn naive(times: &[f64], y: &[f64], origin: usize, time: f64, season: f64) -> f64 {
    let now = times[origin - 1];
    let wanted =
        if season > 0.0 { time - season * ((time - now) / season - 1e-9).ceil().max(1.0) } else { now };
    let after = times[..origin].partition_point(|t| *t < wanted);
    let nearest = match after {
        0 => 0,
        a if a == origin => origin - 1,
        a if wanted - times[a - 1] < times[a] - wanted => a - 1,
        a => a,
    };
    // The nearest row that has a target, going back.
    (0..=nearest).rev().find(|i| !y[*i].is_nan()).map_or(0.0, |i| y[i])
}

fn score(scored: &[Scored], from: usize, to: usize, scale: f64) -> HorizonScore {
    let own: Vec<&Scored> = scored.iter().filter(|s| (from..=to).contains(&s.steps)).collect();
    let n = own.len().max(1) as f64;
    let mean = |f: &dyn Fn(&Scored) -> f64| own.iter().map(|s| f(s)).sum::<f64>() / n;
    HorizonScore {
        from,
        to,
        count: own.len(),
        rmse: mean(&|s| s.error * s.error).sqrt(),
        mase: if scale > 0.0 { mean(&|s| s.error.abs()) / scale } else { f64::NAN },
        crps: mean(&|s| s.crps),
        coverage: mean(&|s| f64::from(u8::from(s.inside))),
        width: mean(&|s| s.width),
        naive_rmse: mean(&|s| s.naive * s.naive).sqrt(),
    }
}
