//! What an optimizer sees of a problem: its dimension, and value and gradient at a point.
//!
//! An evaluation may fail, or give a value or gradient that is not finite: a covariance that is singular to
//! working precision, an overflow of `exp`. Optimizers here read that as *the step was too long* and try a
//! shorter one. Only the starting point must evaluate.
//!
//! ```
//! use wiski::internals::learn::{FnObjective, Objective};
//!
//! let mut square = FnObjective::new(1, |x, g| {
//!     g[0] = 2.0 * x[0];
//!     Ok(x[0] * x[0])
//! });
//! let mut g = [0.0];
//! assert_eq!(square.evaluate(&[3.0], &mut g)?, 9.0);
//! assert_eq!(g, [6.0]);
//! # Ok::<(), wiski::Error>(())
//! ```

use crate::error::{self, Error, Result};

/// A differentiable function of `dim` unknowns that is to be minimized.
pub trait Objective {
    /// The number of unknowns.
    fn dim(&self) -> usize;

    /// The value at `x`; the gradient is written into `gradient`. Both slices have length [`dim`](Self::dim).
    ///
    /// What `gradient` holds on entry is unspecified: overwrite every entry.
    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> Result<f64>;
}

/// An [`Objective`] made from a closure.
#[derive(Debug, Clone)]
pub struct FnObjective<F> {
    dim: usize,
    function: F,
}

impl<F: FnMut(&[f64], &mut [f64]) -> Result<f64>> FnObjective<F> {
    /// Wraps `function(x, gradient) -> value` of `dim` unknowns.
    pub fn new(dim: usize, function: F) -> Self {
        Self { dim, function }
    }
}

impl<F: FnMut(&[f64], &mut [f64]) -> Result<f64>> Objective for FnObjective<F> {
    fn dim(&self) -> usize {
        self.dim
    }

    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        (self.function)(x, gradient)
    }
}

/// Evaluates where success is required: value and gradient are finite, or the error says which is not.
pub(super) fn evaluate_start(objective: &mut dyn Objective, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
    let value = objective.evaluate(x, gradient)?;
    error::finite("objective at the start", value, 0)?;
    match gradient.iter().position(|g| !g.is_finite()) {
        None => Ok(value),
        Some(i) => {
            Err(Error::NotFinite { field: format!("gradient[{i}] at the start"), value: gradient[i], row: 0 })
        }
    }
}

/// Evaluates a trial point: `None` if it failed or anything is not finite, whatever the reason.
pub(super) fn evaluate_trial(objective: &mut dyn Objective, x: &[f64], gradient: &mut [f64]) -> Option<f64> {
    let value = objective.evaluate(x, gradient).ok()?;
    (value.is_finite() && gradient.iter().all(|g| g.is_finite())).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_start_is_named_and_a_bad_trial_is_none() {
        let mut g = [0.0; 2];
        let mut value = FnObjective::new(2, |_, g| {
            g.fill(1.0);
            Ok(f64::NAN)
        });
        assert!(matches!(
            evaluate_start(&mut value, &[0.0; 2], &mut g),
            Err(Error::NotFinite { field, .. }) if field == "objective at the start"
        ));
        assert_eq!(evaluate_trial(&mut value, &[0.0; 2], &mut g), None);

        let mut slope = FnObjective::new(2, |_, g| {
            g.copy_from_slice(&[0.0, f64::INFINITY]);
            Ok(1.0)
        });
        assert!(matches!(
            evaluate_start(&mut slope, &[0.0; 2], &mut g),
            Err(Error::NotFinite { field, .. }) if field == "gradient[1] at the start"
        ));
        assert_eq!(evaluate_trial(&mut slope, &[0.0; 2], &mut g), None);

        let failure = Error::Unsupported { operation: "evaluation", reason: "a test" };
        let mut failing = FnObjective::new(2, |_, _| Err(failure.clone()));
        assert_eq!(evaluate_start(&mut failing, &[0.0; 2], &mut g), Err(failure.clone()));
        assert_eq!(evaluate_trial(&mut failing, &[0.0; 2], &mut g), None);
    }
}
