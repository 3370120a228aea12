//! The iteration itself: model, line search, stopping tests.

use super::cauchy::Cauchy;
use super::memory::Memory;
use super::saddle::dot;
use super::search::{Sample, Search, Verdict};
use super::subspace::Subspace;
use super::{LbfgsB, Minimum, Stop};
use crate::error::{self, Error, Result};
use crate::interrupt;
use crate::learn::objective::{evaluate_start, evaluate_trial};
use crate::learn::{Bounds, Objective};

/// The most evaluations of one line search.
const MAX_TRIALS: usize = 20;
/// The longest step, in multiples of the model's, where no bound limits it.
const FAR: f64 = 1e10;
/// The shortest first trial after the memory was lost, relative to the very first.
const SHORT: f64 = 1e-3;

/// The buffers of [`LbfgsB::minimize_with`]. They fit any problem and are enlarged when a larger one comes.
#[derive(Debug, Clone, Default)]
pub struct Workspace {
    memory: Memory,
    cauchy: Cauchy,
    subspace: Subspace,
    x: Vec<f64>,
    gradient: Vec<f64>,
    direction: Vec<f64>,
    trial: Vec<f64>,
    trial_gradient: Vec<f64>,
    best_gradient: Vec<f64>,
}

impl Workspace {
    fn reserve(&mut self, dim: usize, memory: usize) {
        self.memory.reserve(dim, memory);
        self.cauchy.reserve(dim, memory);
        self.subspace.reserve(dim, memory);
        for v in [
            &mut self.x,
            &mut self.gradient,
            &mut self.direction,
            &mut self.trial,
            &mut self.trial_gradient,
            &mut self.best_gradient,
        ] {
            v.clear();
            v.resize(dim, 0.0);
        }
    }

    /// Puts `trial` on the line from x to the model's minimizer.
    fn place(&mut self, step: f64, bounds: &Bounds) {
        if step == 1.0 {
            // Exactly, so that bounds found active are met exactly.
            self.trial.copy_from_slice(&self.subspace.target);
            return;
        }
        for i in 0..self.x.len() {
            self.trial[i] = bounds.clamp(i, self.x[i] + step * self.direction[i]);
        }
    }
}

struct Run<'a> {
    settings: &'a LbfgsB,
    objective: &'a mut dyn Objective,
    bounds: &'a Bounds,
    unbounded: bool,
    buffers: &'a mut Workspace,
    value: f64,
    start_value: f64,
    evaluations: usize,
    /// The length of the next step if it must be taken without curvature.
    stride: f64,
    /// What it may not fall below: a step that ran into a bound may have been no longer than a rounding.
    least_stride: f64,
}

pub(super) fn minimize(
    settings: &LbfgsB,
    objective: &mut dyn Objective,
    start: &[f64],
    bounds: &Bounds,
    buffers: &mut Workspace,
) -> Result<Minimum> {
    let dim = objective.dim();
    error::length("start", dim, start.len())?;
    error::length("bounds", dim, bounds.dim())?;
    // An infinite coordinate is no place to start from even where the box would cut it off.
    if let Some(i) = start.iter().position(|v| !v.is_finite()) {
        return Err(Error::NotFinite { field: format!("start[{i}]"), value: start[i], row: 0 });
    }
    buffers.reserve(dim, settings.memory);
    buffers.x.copy_from_slice(start);
    bounds.project(&mut buffers.x);
    interrupt::check()?;
    let value = evaluate_start(objective, &buffers.x, &mut buffers.gradient)?;
    let widest = bounds.widest();
    let stride = if widest > 0.0 { settings.first_step.min(0.5 * widest) } else { settings.first_step };
    let mut run = Run {
        settings,
        objective,
        bounds,
        unbounded: bounds.is_unbounded(),
        buffers,
        value,
        start_value: value,
        evaluations: 1,
        stride,
        least_stride: SHORT * stride,
    };
    let (iterations, stop) = run.iterate();
    interrupt::check()?;
    Ok(Minimum {
        x: run.buffers.x.clone(),
        value: run.value,
        gradient: run.buffers.gradient.clone(),
        iterations,
        evaluations: run.evaluations,
        stop,
    })
}

impl Run<'_> {
    fn iterate(&mut self) -> (usize, Stop) {
        let mut iterations = 0;
        let mut curvature = self.settings.first_curvature;
        loop {
            let b = &*self.buffers;
            if self.bounds.projected_gradient(&b.x, &b.gradient) <= self.settings.gradient_tolerance {
                return (iterations, Stop::Gradient);
            }
            if iterations == self.settings.max_iterations {
                return (iterations, Stop::Iterations);
            }
            if self.evaluations >= self.settings.max_evaluations || interrupt::is_set() {
                return (iterations, Stop::Evaluations);
            }
            let blank = self.buffers.memory.len() == 0;
            if blank {
                self.scale_model(curvature);
                curvature = 0.0;
            }
            let moved = self.aim().and_then(|slope| self.search(slope));
            let Some(value) = moved else {
                if self.evaluations >= self.settings.max_evaluations {
                    return (iterations, Stop::Evaluations);
                }
                if blank {
                    return (iterations, Stop::NoDescent);
                }
                // The model misleads: forget it and go down the gradient.
                self.buffers.memory.clear();
                continue;
            };
            iterations += 1;
            let size = self.value.abs().max(value.abs()).max(1.0);
            let decrease = self.value - value;
            self.advance(value);
            let tolerance = self.settings.relative_tolerance;
            if tolerance > 0.0 && decrease <= tolerance * size {
                let b = &*self.buffers;
                let gradient = self.bounds.projected_gradient(&b.x, &b.gradient);
                let small = gradient <= self.settings.gradient_tolerance;
                return (iterations, if small { Stop::Gradient } else { Stop::Decrease });
            }
        }
    }

    /// Chooses θ for a memory without pairs so that the model's step has the length `stride`, or less if the
    /// curvature is known to be larger.
    fn scale_model(&mut self, curvature: f64) {
        let b = &mut *self.buffers;
        let mut square = 0.0;
        for i in 0..b.x.len() {
            // Only coordinates that can move count.
            if self.bounds.reduced(i, b.x[i], b.gradient[i]) != 0.0 {
                square += b.gradient[i] * b.gradient[i];
            }
        }
        let theta = (square.sqrt() / self.stride).max(curvature);
        b.memory.set_theta(if theta > 0.0 && theta < f64::INFINITY { theta } else { 1.0 });
    }

    /// Minimizes the model and returns the slope towards its minimizer; `None` if that does not lead down.
    fn aim(&mut self) -> Option<f64> {
        let b = &mut *self.buffers;
        if self.unbounded && b.memory.len() > 0 {
            b.cauchy.stay(&b.x);
        } else {
            b.cauchy.find(&b.x, &b.gradient, self.bounds, &b.memory);
        }
        if !b.subspace.refine(&b.x, &b.gradient, self.bounds, &b.memory, &mut b.cauchy) {
            return None;
        }
        for i in 0..b.x.len() {
            b.direction[i] = b.subspace.target[i] - b.x[i];
        }
        let slope = dot(&b.gradient, &b.direction);
        (slope < 0.0 && slope > f64::NEG_INFINITY).then_some(slope)
    }

    /// Searches along the direction. On success `trial` and `trial_gradient` hold a point with the returned
    /// value, above the present one by no more than its rounding error.
    fn search(&mut self, slope: f64) -> Option<f64> {
        let mut search = Search::new(self.value, slope, self.longest(), self.start_value);
        let mut step = 1.0;
        let mut best_value = self.value;
        for _ in 0..MAX_TRIALS {
            if self.evaluations >= self.settings.max_evaluations || interrupt::is_set() {
                break;
            }
            let b = &mut *self.buffers;
            b.place(step, self.bounds);
            self.evaluations += 1;
            let verdict = match evaluate_trial(self.objective, &b.trial, &mut b.trial_gradient) {
                None => search.failed(step),
                Some(value) => {
                    let slope = dot(&b.trial_gradient, &b.direction);
                    let verdict = search.observe(Sample { step, value, slope });
                    if verdict == Verdict::Accept {
                        return Some(value);
                    }
                    if search.best() == step {
                        best_value = value;
                        b.best_gradient.copy_from_slice(&b.trial_gradient);
                    }
                    verdict
                }
            };
            match verdict {
                Verdict::Try(next) => step = next,
                Verdict::Accept | Verdict::Settle => break,
            }
        }
        let best = search.best();
        // Short of both conditions, only a decrease that shows counts: the slopes alone may go on for ever.
        if best == 0.0 || best_value >= self.value {
            return None;
        }
        let b = &mut *self.buffers;
        b.place(best, self.bounds);
        b.trial_gradient.copy_from_slice(&b.best_gradient);
        Some(best_value)
    }

    /// The multiple of the direction at which the box ends; at least 1, since the model's minimizer is inside.
    fn longest(&self) -> f64 {
        if self.unbounded {
            return FAR;
        }
        let b = &*self.buffers;
        let mut longest = FAR;
        for (i, &d) in b.direction.iter().enumerate() {
            if d > 0.0 {
                longest = longest.min((self.bounds.hi()[i] - b.x[i]) / d);
            } else if d < 0.0 {
                longest = longest.min((self.bounds.lo()[i] - b.x[i]) / d);
            }
        }
        longest.max(1.0)
    }

    /// Makes the trial the present point and learns from the step.
    fn advance(&mut self, value: f64) {
        let b = &mut *self.buffers;
        std::mem::swap(&mut b.x, &mut b.trial);
        std::mem::swap(&mut b.gradient, &mut b.trial_gradient);
        // The old point and gradient become the step and the change, in the buffers of the next trial.
        for i in 0..b.x.len() {
            b.trial[i] = b.x[i] - b.trial[i];
            b.trial_gradient[i] = b.gradient[i] - b.trial_gradient[i];
        }
        self.stride = dot(&b.trial, &b.trial).sqrt().max(self.least_stride);
        b.memory.push(&b.trial, &b.trial_gradient);
        self.value = value;
    }
}
