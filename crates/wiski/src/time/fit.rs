//! Learning the hyperparameters of a system: the likelihood of rows in memory, weak log-normal priors, L-BFGS-B from
//! several starts that differences of rows suggest.

use super::component::{Component, Smoothness};
use super::filter::Belief;
use super::likelihood::{self, Series};
use super::moments::{Moments, Start};
use super::system::System;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::learn::{Bounds, FnObjective, LbfgsB, Minimum};

/// What is believed of one hyperparameter before the rows are seen: its logarithm is normal, within bounds.
#[derive(Debug, Clone, Copy)]
struct Guess {
    center: f64,
    /// The standard deviation of the logarithm.
    spread: f64,
    lo: f64,
    hi: f64,
}

/// The priors of a component's hyperparameters, for standardized targets and times in steps. `span` is the length of the
/// rows in memory. Differences from row to row without seasons are the unit of what goes on from row to row, those of 32 rows that
/// of smooth waves.
fn priors(component: &Component, span: f64, moments: &Moments, lagged: bool, waves: bool) -> Vec<Guess> {
    let (short, long) = (moments.short(), moments.long());
    // Beside waves a level moves by what they leave; alone it may be all there is.
    let walk = if waves { 0.002 * short } else { 0.1 * short };
    let p = |center: f64, spread: f64, lo: f64, hi: f64| Guess { center, spread, lo, hi };
    match component {
        // What moves is carried on by the lags: a level or a season that did the same would leave them little to say, and
        // forecasts far ahead would follow the last few rows.
        Component::Level { .. } if lagged => vec![p(1e-6 / span, 1.0, 1e-8 / span, 1e-5 / span)],
        Component::Season { period, .. } if lagged => {
            let long = span.max(20.0 * period);
            vec![p(0.3, 1.0, 0.03, 20.0), p(1e4 * long, 1.0, 1e3 * long, 1e6 * long), p(0.1, 0.3, 0.04, 0.3)]
        }
        Component::Level { .. } => vec![p(walk, 3.0, 1e-12, 4.0)],
        // A slope that changes the level by about one over the span, and keeps to it for about as long.
        Component::Trend { .. } => {
            vec![p(walk, 3.0, 1e-12, 4.0), p(span.powi(-3), 3.0, 1e-6 * span.powi(-3), 1e-2)]
        }
        Component::DampedTrend { .. } => {
            vec![p(span.powi(-2), 3.0, 1e-6 * span.powi(-2), 1.0), p(0.2 * span, 1.5, 2.0, 10.0 * span)]
        }
        Component::Matern { smoothness: Smoothness::Half, .. } => {
            vec![p(short, 3.0, 1e-9, 20.0), p(8.0, 1.5, 0.3, span)]
        }
        // Waves between the short ones and the trend.
        Component::Matern { .. } => vec![p(long, 3.0, 1e-9, 20.0), p(50.0, 1.0, 2.0, span)],
        Component::Season { period, .. } => {
            vec![
                p(0.5, 2.0, 1e-6, 20.0),
                p(span.max(20.0 * period), 1.5, 2.0 * period, 1e3 * span.max(20.0 * period)),
                p(0.7, 1.0, 0.04, 5.0),
            ]
        }
        Component::Effect { .. } => vec![p(0.2, 2.0, 1e-6, 20.0)],
        Component::Lags { .. } => vec![p(0.1, 1.0, 1e-3, 2.0)],
    }
}

/// The priors of all hyperparameters of a system, in the order of [`System::parameters`].
fn all_priors(system: &System, span: f64, moments: &Moments) -> Vec<Guess> {
    let noise = Guess { center: 0.3 * moments.short(), spread: 2.0, lo: 1e-9, hi: 4.0 };
    let lagged = !system.lags().is_empty();
    let waves = system.components().iter().any(|c| matches!(c, Component::Matern { .. }));
    system.components().iter().flat_map(|c| priors(c, span, moments, lagged, waves)).chain([noise]).collect()
}

/// Sets every hyperparameter to the center of its prior.
pub(super) fn reset(system: &mut System, span: f64, moments: &Moments) {
    let centers: Vec<f64> =
        all_priors(system, span, moments).iter().map(|p| p.center.clamp(p.lo, p.hi)).collect();
    system.set_parameters(&centers);
}

/// How much work a fit may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// How many starts are followed: those whose likelihood is the largest.
    pub(super) starts: usize,
    /// Evaluations for each start, and for the best of them.
    pub(super) first: usize,
    pub(super) best: usize,
}

/// Learns the hyperparameters from rows; the system keeps the best that was found. Returns the log posterior density.
pub(super) fn fit(
    system: &mut System,
    series: &Series,
    start: Option<&Belief>,
    moments: &Moments,
    effort: Effort,
) -> Result<f64> {
    let (Some(first), Some(last)) = (series.times.first(), series.times.last()) else {
        return Err(Error::NotReady { operation: "learning hyperparameters" });
    };
    let span = (last - first).max(10.0);
    let priors = all_priors(system, span, moments);
    let bounds =
        Bounds::new(priors.iter().map(|p| p.lo.ln()).collect(), priors.iter().map(|p| p.hi.ln()).collect())?;
    let rows = series.targets.iter().filter(|y| !y.is_nan()).count().max(1) as f64;
    let penalty = |log: &[f64]| {
        let z = |(v, p): (&f64, &Guess)| (v - p.center.ln()) / p.spread;
        log.iter().zip(&priors).map(|each| 0.5 * z(each).powi(2)).sum::<f64>()
    };
    let density = |log: &[f64]| {
        let mut trial = system.clone();
        trial.set_parameters(&log.iter().map(|v| v.exp()).collect::<Vec<f64>>());
        let prior = start.is_none().then(|| Belief::prior(&trial, *first));
        let value = start.or(prior.as_ref()).map(|before| likelihood::log_likelihood(&trial, series, before));
        value.map(|v| v - penalty(log)).filter(|v| v.is_finite()).unwrap_or(f64::NEG_INFINITY)
    };
    let mut trial = system.clone();
    let mut objective = FnObjective::new(priors.len(), |log: &[f64], g: &mut [f64]| {
        interrupt::check()?;
        let values: Vec<f64> = log.iter().map(|v| v.exp()).collect();
        trial.set_parameters(&values);
        let value = likelihood::gradient(&trial, series, start, g) - penalty(log);
        for k in 0..log.len() {
            let z = (log[k] - priors[k].center.ln()) / priors[k].spread;
            // Scaled by rows, so that one tolerance suits all series.
            g[k] = -(g[k] * values[k] - z / priors[k].spread) / rows;
        }
        Ok(-value / rows)
    });
    let search = |evaluations: usize| LbfgsB {
        max_evaluations: evaluations,
        gradient_tolerance: 1e-4,
        relative_tolerance: 1e-6,
        ..LbfgsB::default()
    };
    let mut starts: Vec<(f64, Vec<f64>)> = Vec::new();
    for parameters in std::iter::once(system.parameters()).chain(suggested(system, moments)) {
        let log = |(v, p): (&f64, &Guess)| v.clamp(p.lo, p.hi).ln();
        let start: Vec<f64> = parameters.iter().zip(&priors).map(log).collect();
        starts.push((density(&start), start));
    }
    // Those that cannot be are last, and the first of equals stays: the current values.
    starts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut best: Option<Minimum> = None;
    for (_, start) in starts.iter().take(effort.starts.max(1)) {
        let evaluations = if effort.starts > 1 { effort.first } else { effort.best };
        let found = search(evaluations).minimize(&mut objective, start, &bounds)?;
        if best.as_ref().is_none_or(|best| found.value < best.value) {
            best = Some(found);
        }
    }
    let mut best = best.ok_or(Error::NotReady { operation: "learning hyperparameters" })?;
    if effort.starts > 1 && effort.best > 0 {
        best = search(effort.best).minimize(&mut objective, &best.x, &bounds)?;
    }
    let values: Vec<f64> = best.x.iter().map(|v| v.exp()).collect();
    system.set_parameters(&values);
    Ok(-best.value * rows)
}

/// Hyperparameters that differences of rows suggest: what they vary by is noise, a level, or a wave. With lags the level stays
/// where it is, and there is only noise.
fn suggested(system: &System, moments: &Moments) -> impl Iterator<Item = Vec<f64>> {
    let lagged = !system.lags().is_empty();
    let starts: Vec<Start> = if lagged { Vec::new() } else { moments.starts().to_vec() };
    starts.into_iter().map(|start| {
        let each = system.components().iter().flat_map(|component| {
            let mut values = component.parameters();
            match component {
                Component::Level { .. } | Component::Trend { .. } => values[0] = start.rate,
                Component::Matern { smoothness: Smoothness::Half, .. } => values = start.rough.to_vec(),
                Component::Matern { .. } => values = start.smooth.to_vec(),
                _ => {}
            }
            values
        });
        each.chain([start.noise]).collect()
    })
}
