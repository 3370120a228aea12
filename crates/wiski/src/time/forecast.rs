//! Forecasts of a [`Forecaster`]: means, intervals, paths, components.

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::ahead::{self, Future, Joint};
use super::blend::{Blend, Weight};
use super::component::{Component, Smoothness};
use super::filter::Belief;
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
        let now = running.clock.at(last);
        Ok((1..=steps).map(|k| running.clock.time(now + k as f64 * running.step)).collect())
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
        let both = self.both(running, times, x)?;
        let joint =
            both.joint(|running, future| ahead::joint(&running.system, &running.belief, future, false));
        let gaussian = normal::quantile(0.5 + 0.5 * level);
        let mut out = Forecast { times: times.to_vec(), ..Forecast::default() };
        let unit = running.unit();
        for k in 0..times.len() {
            let half = running.half_width(joint.variance[k], both.steps(k), level);
            let (mean, std) = unit.moments(joint.mean[k], half / gaussian);
            out.mean.push(mean);
            out.std.push(std);
            out.lower.push(unit.value(joint.mean[k] - half));
            out.upper.push(unit.value(joint.mean[k] + half));
        }
        Ok(out)
    }

    /// Paths drawn from the joint distribution of rows ahead: `count` lists of as many values as times. Of two models side by
    /// side rows hang together as in the one that counts more at the last of them.
    pub fn sample_paths(&self, times: &[f64], x: &[f64], count: usize, seed: u64) -> Result<Vec<Vec<f64>>> {
        let running = self.ready("a forecast")?;
        let n = times.len();
        if n > MOST_JOINT {
            let reason = format!("{n} steps, where paths have at most {MOST_JOINT}");
            return Err(Error::Config { field: "horizon".into(), reason });
        }
        let both = self.both(running, times, x)?;
        let joint =
            both.joint(|running, future| ahead::joint(&running.system, &running.belief, future, true));
        let root = dense::cholesky(Mat::from_fn(n, n, |i, j| joint.covariance[i * n + j]))?;
        let one = normal::cumulative(1.0) - normal::cumulative(-1.0);
        let scale: Vec<f64> = (0..n)
            .map(|k| {
                let half = running.half_width(joint.variance[k], both.steps(k), one);
                half / joint.covariance[k * n + k].sqrt()
            })
            .collect();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let path = |_| {
            let white: Vec<f64> = (0..n).map(|_| StandardNormal.sample(&mut random)).collect();
            let value = |k: usize| {
                let deviation: f64 = (0..=k).map(|j| root[(k, j)] * white[j]).sum();
                running.unit().value(joint.mean[k] + scale[k] * deviation)
            };
            (0..n).map(value).collect()
        };
        Ok((0..count).map(path).collect())
    }

    /// The shares of the components in rows ahead. They add up to the mean; on the scale of logarithms the trend is in the unit of
    /// the target, all others are factors of it, and their product is the median.
    pub fn components_ahead(&self, times: &[f64], x: &[f64]) -> Result<Vec<ComponentShare>> {
        let running = self.ready("a forecast")?;
        let both = self.both(running, times, x)?;
        let shares = |(running, future): &(&Running, Future)| {
            let means = ahead::means(&running.system, &running.belief, future);
            running.named(ahead::shares(&running.system, &running.belief, future, &means))
        };
        let own = shares(&both.own);
        let Some(other) = both.other.as_ref().map(shares) else { return Ok(running.outward(own)) };
        let weights: Vec<f64> = (0..times.len()).map(|k| both.weight(k).first).collect();
        Ok(running.outward(weighted(own, other, &weights)))
    }

    /// The times of the rows in memory, and the shares of the components there given all rows (smoothed).
    pub fn components(&self) -> Result<(Vec<f64>, Vec<ComponentShare>)> {
        let running = self.ready("components")?;
        let smoothed = |running: &Running| {
            let series = running.series_of(&self.window);
            let first = series.times.first().copied().unwrap_or(0.0);
            let start = running.start.clone().unwrap_or_else(|| Belief::prior(&running.system, first));
            let mut shares = likelihood::smooth(&running.system, &series, &start);
            shares.pop();
            running.named(shares)
        };
        let (times, own) = (self.window.times.clone(), smoothed(running));
        let Some(rival) = &running.rival else { return Ok((times, running.outward(own))) };
        let weights = vec![rival.blend.weight(1).first; times.len()];
        Ok((times, running.outward(weighted(own, smoothed(&rival.running), &weights))))
    }

    /// The models that can forecast these rows, with what they need for it. One with lags needs every step; another one
    /// beside it does not.
    fn both<'a>(&self, running: &'a Running, times: &[f64], x: &[f64]) -> Result<Both<'a>> {
        let own = self.future(running, times, x);
        let Some(rival) = running.rival.as_deref() else {
            return Ok(Both { own: (running, own?), other: None, blend: None });
        };
        let other = self.future(&rival.running, times, x);
        let (own, other) = match (own, other) {
            (Ok(own), Ok(other)) if rival.running.knows_past() == running.knows_past() => (own, other),
            (Ok(own), Err(_)) => return Ok(Both { own: (running, own), other: None, blend: None }),
            (Ok(own), _) if running.knows_past() => {
                return Ok(Both { own: (running, own), other: None, blend: None });
            }
            (_, Ok(other)) => return Ok(Both { own: (&rival.running, other), other: None, blend: None }),
            (Err(error), Err(_)) => return Err(error),
        };
        Ok(Both { own: (running, own), other: Some((&rival.running, other)), blend: Some(&rival.blend) })
    }

    /// The numbers of the steps ahead, from zero, on which these times lie, if lags need the steps between them, too.
    fn steps_to(&self, running: &Running, times: &[f64]) -> Option<Vec<usize>> {
        if !running.has_lags() || !self.settings.columns.is_empty() {
            return None;
        }
        let last = self.last_time()?;
        let mut steps = Vec::with_capacity(times.len());
        for time in times {
            let ahead = running.steps_between(last, *time);
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
            let steps = running.steps_between(before, time);
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

/// One or two models, each with the rows that it is to forecast.
struct Both<'a> {
    own: (&'a Running, Future),
    other: Option<(&'a Running, Future)>,
    blend: Option<&'a Blend>,
}

impl Both<'_> {
    /// How many steps ahead a row lies.
    fn steps(&self, k: usize) -> usize {
        let (running, future) = &self.own;
        (future.times[k] - running.belief.time()).round().max(1.0) as usize
    }

    fn weight(&self, k: usize) -> Weight {
        self.blend.map_or(Weight::alone(true), |blend| blend.weight(self.steps(k)))
    }

    /// Means and variances by weight, and the covariance of the model that counts more at the last row.
    fn joint(&self, of: impl Fn(&Running, &Future) -> Joint) -> Joint {
        let mut joint = of(self.own.0, &self.own.1);
        let Some((running, future)) = &self.other else { return joint };
        let mut other = of(running, future);
        let rows = joint.mean.len();
        for k in 0..rows {
            let weight = self.weight(k);
            joint.mean[k] = weight.mean(joint.mean[k], other.mean[k]);
            joint.variance[k] = weight.variance(joint.variance[k], other.variance[k]);
        }
        if rows > 0 && self.weight(rows - 1).first < 0.5 {
            joint.covariance = std::mem::take(&mut other.covariance);
        }
        joint
    }
}

/// The components of two models by weight: those of the same name together.
fn weighted(own: Vec<ComponentShare>, other: Vec<ComponentShare>, weights: &[f64]) -> Vec<ComponentShare> {
    let scaled = |mut share: ComponentShare, first: bool| {
        for values in [&mut share.mean, &mut share.std] {
            values.iter_mut().zip(weights).for_each(|(v, w)| *v *= if first { *w } else { 1.0 - w });
        }
        share
    };
    let mut out: Vec<ComponentShare> = own.into_iter().map(|share| scaled(share, true)).collect();
    for share in other.into_iter().map(|share| scaled(share, false)) {
        match out.iter_mut().find(|s| s.name == share.name) {
            // What both say of a component hangs together: deviations add up.
            Some(same) => {
                let add = |a: &mut Vec<f64>, b: &[f64]| a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
                add(&mut same.mean, &share.mean);
                add(&mut same.std, &share.std);
            }
            None => out.push(share),
        }
    }
    out
}

impl Running {
    /// Half the width of the interval of a row so many steps ahead, in the unit of the series.
    fn half_width(&self, variance: f64, steps: usize, level: f64) -> f64 {
        variance.sqrt() * self.calibration.quantile(steps, level)
    }

    fn named(&self, shares: Vec<Vec<likelihood::Share>>) -> Vec<ComponentShare> {
        let named = self.system.components().iter().zip(shares).map(|(component, list)| {
            let name = match component {
                Component::Level { .. } | Component::Trend { .. } | Component::DampedTrend { .. } => {
                    "trend".to_string()
                }
                Component::Matern { smoothness: Smoothness::Half, .. } => "short term".to_string(),
                Component::Matern { .. } => "smooth".to_string(),
                Component::Season { period, .. } => format!("season {:.6}", period * self.step_length())
                    .trim_end_matches('0')
                    .trim_end_matches('.')
                    .to_string(),
                Component::Effect { effect, .. } => {
                    let by = if effect.by.is_some() { " by season" } else { "" };
                    format!("x[{}]{by}", effect.column)
                }
                Component::Lags { .. } => "lags".to_string(),
            };
            ComponentShare {
                name,
                mean: list.iter().map(|s| s.mean).collect(),
                std: list.iter().map(|s| s.variance.max(0.0).sqrt()).collect(),
            }
        });
        named.collect()
    }

    /// Components in the unit of the target.
    fn outward(&self, shares: Vec<ComponentShare>) -> Vec<ComponentShare> {
        let outward = |share: ComponentShare| {
            let is_level = share.name == "trend";
            self.unit().outward(share, is_level)
        };
        shares.into_iter().map(outward).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{ForecastSettings, Lags, Seasons};
    use super::super::running::Rival;
    use super::*;

    fn value(i: usize) -> f64 {
        let t = i as f64;
        30.0 + 5.0 * (t * std::f64::consts::TAU / 24.0).sin() + 2.0 * (0.31 * t).sin() + (1.7 * t * t).sin()
    }

    fn fitted(lags: Vec<usize>) -> Forecaster {
        let settings = ForecastSettings {
            seasons: Seasons::Given(vec![24.0]),
            lags: Lags::Given(lags),
            ..ForecastSettings::default()
        };
        let mut model = Forecaster::new(settings).unwrap();
        let times: Vec<f64> = (0..400).map(f64::from).collect();
        let targets: Vec<f64> = (0..400).map(value).collect();
        model.extend(&times, &[], &targets).unwrap();
        model
    }

    /// Two models side by side, and each of them alone.
    fn pair() -> [Forecaster; 3] {
        let (own, other) = (fitted(Vec::new()), fitted(vec![1, 2, 24]));
        let mut both = own.clone();
        let running = both.running.as_mut().unwrap();
        let rival = Rival { running: other.running.clone().unwrap(), blend: Blend::default() };
        running.rival = Some(Box::new(rival));
        running.replay(&both.window, 4096, 48, 100);
        [both, own, other]
    }

    #[test]
    fn two_models_are_one_by_weight() {
        let [mut both, mut own, mut other] = pair();
        for i in 400..460 {
            let weight = both.weight(1);
            let said = both.observe(i as f64, &[], Some(value(i))).unwrap().unwrap().mean;
            let [a, b] = [&mut own, &mut other]
                .map(|m| m.observe(i as f64, &[], Some(value(i))).unwrap().unwrap().mean);
            assert!(weight > 0.0 && weight < 1.0);
            assert!((said - (weight * a + (1.0 - weight) * b)).abs() < 1e-9, "{i}: {said}, {a}, {b}");
        }
        let [ahead, a, b] = [&both, &own, &other].map(|m| m.forecast(60, &[], 0.9).unwrap());
        let parts = both.components_ahead(&ahead.times, &[]).unwrap();
        let alone = own.components_ahead(&ahead.times, &[]).unwrap();
        let has = |name: &str| parts.iter().any(|p| p.name == name);
        assert!(has("lags") && alone.iter().all(|p| has(&p.name)) && parts.len() > alone.len());
        for k in 0..60 {
            let w = both.weight(k + 1);
            assert!((ahead.mean[k] - (w * a.mean[k] + (1.0 - w) * b.mean[k])).abs() < 1e-9, "{k}");
            let sum: f64 = parts.iter().map(|p| p.mean[k]).sum();
            assert!((sum - ahead.mean[k]).abs() < 1e-9, "{k}: {sum}, {}", ahead.mean[k]);
        }
        let (times, past) = both.components().unwrap();
        assert!(past.iter().all(|p| p.mean.len() == times.len()) && past.len() == parts.len());
        let paths = both.sample_paths(&ahead.times, &[], 2000, 1).unwrap();
        let mean = paths.iter().map(|p| p[20]).sum::<f64>() / 2000.0;
        let deviation = (paths.iter().map(|p| (p[20] - mean).powi(2)).sum::<f64>() / 2000.0).sqrt();
        assert!((mean - ahead.mean[20]).abs() < 0.1 * deviation);
        let one = normal::cumulative(1.0) - normal::cumulative(-1.0);
        let wanted = 0.5 * both.forecast(60, &[], one).map(|f| f.upper[20] - f.lower[20]).unwrap();
        assert!((deviation / wanted - 1.0).abs() < 0.06, "{deviation}, {wanted}");
    }

    #[test]
    fn times_between_steps_are_for_the_model_without_lags() {
        let [both, own, _] = pair();
        let times = [400.4, 403.0, 411.7];
        let (ahead, alone) = (both.forecast_at(&times, &[], 0.9).unwrap(), own.forecast_at(&times, &[], 0.9));
        assert_eq!(ahead.mean, alone.unwrap().mean);
    }

    #[test]
    fn two_models_are_saved_to_the_last_bit() {
        let [mut both, ..] = pair();
        let bytes = rmp_serde::to_vec_named(&both).unwrap();
        let mut read: Forecaster = rmp_serde::from_slice(&bytes).unwrap();
        for i in 400..500 {
            let said =
                [&mut both, &mut read].map(|m| m.observe(i as f64, &[], Some(value(i))).unwrap().unwrap());
            assert_eq!(said[0], said[1], "{i}");
        }
        assert_eq!(both.forecast(50, &[], 0.9).unwrap(), read.forecast(50, &[], 0.9).unwrap());
        // Another clock would forecast other rows.
        both.running.as_mut().unwrap().rival.as_mut().unwrap().running.step = 2.0;
        let bytes = rmp_serde::to_vec_named(&both).unwrap();
        assert!(rmp_serde::from_slice::<Forecaster>(&bytes).is_err());
    }
}
