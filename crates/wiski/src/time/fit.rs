//! Learning the hyperparameters of a system: the likelihood of rows in memory, weak log-normal priors, L-BFGS-B from
//! several starts.

use super::component::{Component, Smoothness};
use super::filter::Belief;
use super::likelihood::{self, Series};
use super::system::System;
use crate::error::{Error, Result};
use crate::learn::{Bounds, FnObjective, LbfgsB};

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
/// rows in memory.
fn priors(component: &Component, span: f64, lagged: bool) -> Vec<Guess> {
    let p = |center: f64, spread: f64, lo: f64, hi: f64| Guess { center, spread, lo, hi };
    match component {
        // What moves is carried on by the lags: a level or a season that did the same would leave them little to say, and
        // forecasts far ahead would follow the last few rows.
        Component::Level { .. } if lagged => vec![p(1e-6 / span, 1.0, 1e-8 / span, 1e-5 / span)],
        Component::Season { period, .. } if lagged => {
            let long = span.max(20.0 * period);
            vec![p(0.3, 1.0, 0.03, 20.0), p(1e4 * long, 1.0, 1e3 * long, 1e6 * long), p(0.1, 0.3, 0.04, 0.3)]
        }
        Component::Level { .. } => vec![p(1e-4, 3.0, 1e-12, 1.0)],
        // A slope that changes the level by about one over the span, and keeps to it for about as long.
        Component::Trend { .. } => {
            vec![p(1e-6, 2.0, 1e-12, 1.0), p(span.powi(-3), 3.0, 1e-6 * span.powi(-3), 1e-2)]
        }
        Component::DampedTrend { .. } => {
            vec![p(span.powi(-2), 3.0, 1e-6 * span.powi(-2), 1.0), p(0.2 * span, 1.5, 2.0, 10.0 * span)]
        }
        Component::Matern { smoothness: Smoothness::Half, .. } => {
            vec![p(0.1, 2.0, 1e-6, 20.0), p(8.0, 1.5, 0.3, span)]
        }
        // Waves between the short ones and the trend.
        Component::Matern { .. } => vec![p(0.03, 2.0, 1e-6, 20.0), p(50.0, 1.0, 2.0, span)],
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
fn all_priors(system: &System, span: f64) -> Vec<Guess> {
    let noise = Guess { center: 0.03, spread: 2.0, lo: 1e-7, hi: 4.0 };
    let lagged = !system.lags().is_empty();
    system.components().iter().flat_map(|c| priors(c, span, lagged)).chain([noise]).collect()
}

/// Sets every hyperparameter to the center of its prior.
pub(super) fn reset(system: &mut System, span: f64) {
    let centers: Vec<f64> = all_priors(system, span).iter().map(|p| p.center.clamp(p.lo, p.hi)).collect();
    system.set_parameters(&centers);
}

/// How much work a fit may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// The starts beside the current values.
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
    effort: Effort,
) -> Result<f64> {
    let (Some(first), Some(last)) = (series.times.first(), series.times.last()) else {
        return Err(Error::NotReady { operation: "learning hyperparameters" });
    };
    let span = (last - first).max(10.0);
    let priors = all_priors(system, span);
    let bounds =
        Bounds::new(priors.iter().map(|p| p.lo.ln()).collect(), priors.iter().map(|p| p.hi.ln()).collect())?;
    let rows = series.targets.iter().filter(|y| !y.is_nan()).count().max(1) as f64;
    let mut trial = system.clone();
    let mut objective = FnObjective::new(priors.len(), |log: &[f64], g: &mut [f64]| {
        let values: Vec<f64> = log.iter().map(|v| v.exp()).collect();
        trial.set_parameters(&values);
        let mut value = likelihood::gradient(&trial, series, start, g);
        for k in 0..log.len() {
            let z = (log[k] - priors[k].center.ln()) / priors[k].spread;
            value -= 0.5 * z * z;
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
    let own: Vec<f64> = system.parameters().iter().map(|v| v.ln()).collect();
    let mut best = search(if effort.starts == 0 { effort.best } else { effort.first }).minimize(
        &mut objective,
        &own,
        &bounds,
    )?;
    for k in 0..effort.starts {
        let start = other_start(system, &own, k);
        let found = search(effort.first).minimize(&mut objective, &start, &bounds)?;
        if found.value < best.value {
            best = found;
        }
    }
    if effort.starts > 0 {
        best = search(effort.best).minimize(&mut objective, &best.x, &bounds)?;
    }
    let values: Vec<f64> = best.x.iter().map(|v| v.exp()).collect();
    system.set_parameters(&values);
    Ok(-best.value * rows)
}

/// Another start: what the first takes for noise is taken for a process, or the other way around.
fn other_start(system: &System, own: &[f64], k: usize) -> Vec<f64> {
    let mut start = own.to_vec();
    let mut at = 0;
    for component in system.components() {
        match (component, k % 2) {
            // Long waves and little noise.
            (Component::Matern { .. }, 0) => start[at + 1] += 2.5,
            (Component::Trend { .. }, 0) => start[at] -= 4.0,
            (Component::Season { .. }, 0) => start[at + 1] += 2.0,
            // Short ones, and a level that moves.
            (Component::Matern { .. }, _) => start[at + 1] -= 1.0,
            (Component::Trend { .. } | Component::Level { .. }, _) => start[at] += 3.0,
            (Component::Season { .. }, _) => start[at + 1] -= 2.0,
            _ => {}
        }
        at += component.parameter_names().len();
    }
    start[at] += if k.is_multiple_of(2) { -2.5 } else { 1.0 };
    start
}
