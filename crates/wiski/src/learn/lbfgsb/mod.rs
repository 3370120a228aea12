//! L-BFGS-B: minimization in a box by a limited-memory quasi-Newton method (Byrd, Lu, Nocedal and Zhu 1995).
//!
//! Each iteration builds the quadratic model m(z) = gᵀ(z − x) + ½(z − x)ᵀB(z − x) from the last few steps,
//! follows the steepest-descent path bent at the box to its first minimizer (which tells the active bounds),
//! minimizes the model over the free coordinates, and searches along the line from x to that point. Without
//! bounds this is plain L-BFGS.
//!
//! Cost of an iteration besides the evaluations, for n unknowns and k stored pairs: O(nk + k³), and
//! O(nk² + k³) while bounds are active; no allocation. With n = 10 and k = 10 that is 5 µs.
//!
//! The result is never worse than the start, and from one iterate to the next the value goes up by no more than
//! rounding (64 ε max(|value|, 1)); no point outside the box is ever evaluated; an evaluation that fails or is not finite only
//! shortens the step.
//!
//! ```
//! use wiski::LbfgsB;
//! use wiski::internals::learn::{Bounds, FnObjective};
//!
//! let mut rosenbrock = FnObjective::new(2, |x, g| {
//!     let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
//!     g[0] = -2.0 * a - 400.0 * x[0] * b;
//!     g[1] = 200.0 * b;
//!     Ok(a * a + 100.0 * b * b)
//! });
//! let found = LbfgsB::default().minimize(&mut rosenbrock, &[-1.2, 1.0], &Bounds::unbounded(2))?;
//! assert!(found.stop.converged());
//! assert!((found.x[0] - 1.0).abs() < 1e-4 && (found.x[1] - 1.0).abs() < 1e-4);
//! # Ok::<(), wiski::Error>(())
//! ```

mod cauchy;
mod memory;
#[cfg(test)]
mod problems;
mod run;
mod saddle;
mod search;
mod subspace;
#[cfg(test)]
mod tests;

pub use run::Workspace;

use super::{Bounds, Objective};
use crate::error::{Error, Result};

/// The method's settings. `LbfgsB::default()` suits smooth functions of order 1.
#[derive(Debug, Clone, PartialEq)]
pub struct LbfgsB {
    /// The number of steps remembered (10).
    pub memory: usize,
    /// The most iterations, each at least one evaluation (1000).
    pub max_iterations: usize,
    /// The most evaluations, the one at the start included (2000).
    pub max_evaluations: usize,
    /// Stop when the projected gradient ([`Bounds::projected_gradient`]) is at most this (10⁻⁵).
    pub gradient_tolerance: f64,
    /// Stop when an iteration lowers the value by at most this times `max(|old value|, |new value|, 1)`
    /// (10⁻⁹). With 0 there is no such test: the gradient decides, beyond where values can be told apart.
    pub relative_tolerance: f64,
    /// The length of the first step, in the unit of x (1). In a box it is cut to half of the widest side.
    pub first_step: f64,
    /// A guess of the curvature at the start, if there is one (0: none). The first step is then −g/curvature
    /// where that is shorter than `first_step`: with a start near the minimum, no evaluation is wasted far
    /// from it.
    pub first_curvature: f64,
}

impl Default for LbfgsB {
    fn default() -> Self {
        Self {
            memory: 10,
            max_iterations: 1000,
            max_evaluations: 2000,
            gradient_tolerance: 1e-5,
            relative_tolerance: 1e-9,
            first_step: 1.0,
            first_curvature: 0.0,
        }
    }
}

/// Why a minimization ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stop {
    /// The projected gradient is within `gradient_tolerance`.
    Gradient,
    /// The last iteration lowered the value by no more than `relative_tolerance` asks for.
    Decrease,
    /// `max_iterations` are done.
    Iterations,
    /// `max_evaluations` are done.
    Evaluations,
    /// Not even along the steepest descent was a lower value found: the value is at its rounding error, or the
    /// gradient is wrong.
    NoDescent,
}

impl Stop {
    /// Whether a tolerance was met, rather than a budget or the arithmetic exhausted.
    pub fn converged(self) -> bool {
        matches!(self, Self::Gradient | Self::Decrease)
    }
}

/// The point a minimization ended at, never worse than its start.
#[derive(Debug, Clone, PartialEq)]
pub struct Minimum {
    /// The point.
    pub x: Vec<f64>,
    /// The value there.
    pub value: f64,
    /// The gradient there.
    pub gradient: Vec<f64>,
    /// The number of iterations.
    pub iterations: usize,
    /// The number of evaluations.
    pub evaluations: usize,
    /// Why it ended.
    pub stop: Stop,
}

impl LbfgsB {
    /// Minimizes from `start`, which is first projected on the box.
    ///
    /// An error means that nothing could be started: a setting or `start` is unusable, or the objective fails
    /// there. Running out of a budget is no error; see [`Minimum::stop`].
    pub fn minimize(&self, objective: &mut dyn Objective, start: &[f64], bounds: &Bounds) -> Result<Minimum> {
        self.minimize_with(objective, start, bounds, &mut Workspace::default())
    }

    /// [`minimize`](Self::minimize) with buffers kept from one problem to the next: for many small problems.
    pub fn minimize_with(
        &self,
        objective: &mut dyn Objective,
        start: &[f64],
        bounds: &Bounds,
        workspace: &mut Workspace,
    ) -> Result<Minimum> {
        self.validate()?;
        run::minimize(self, objective, start, bounds, workspace)
    }

    /// Rejects settings that make no sense.
    pub fn validate(&self) -> Result<()> {
        let reject = |field: &str, reason: &str| {
            Err(Error::Config { field: field.to_owned(), reason: reason.to_owned() })
        };
        if self.memory == 0 {
            return reject("memory", "at least one step must be remembered");
        }
        if self.max_evaluations == 0 {
            return reject("max_evaluations", "the start must be evaluated");
        }
        if !(self.first_step > 0.0 && self.first_step < f64::INFINITY) {
            return reject("first_step", "must be positive and finite");
        }
        for (field, value) in [
            ("gradient_tolerance", self.gradient_tolerance),
            ("relative_tolerance", self.relative_tolerance),
            ("first_curvature", self.first_curvature),
        ] {
            if !(0.0..f64::INFINITY).contains(&value) {
                return reject(field, "must be finite and not negative");
            }
        }
        Ok(())
    }
}
