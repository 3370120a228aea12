//! Adam (Kingma and Ba 2015): steepest descent with a running mean m and a running mean square v of the
//! gradient,
//!
//! ```text
//!     m ← β₁m + (1 − β₁)g      v ← β₂v + (1 − β₂)g²
//!     x ← x − η_t  (m/(1 − β₁ᵗ)) / (√(v/(1 − β₂ᵗ)) + ε)
//! ```
//!
//! The divisors undo the start from m = v = 0. Steps have about the length η on every coordinate whatever the
//! size of the gradient. Several rates may be used side by side, one for a range of coordinates each, and all
//! of them annealed along half a cosine.
//!
//! A step costs O(n) and allocates nothing. The state is a value: clone it to branch off or to save it.
//!
//! ```
//! use wiski::internals::learn::Adam;
//!
//! // Length-scales at rate 0.1, the weights of a projection ten times slower.
//! let mut adam = Adam::with_groups(&[(0..2, 0.1), (2..3, 0.01)])?;
//! let mut x = [1.0, 1.0, 1.0];
//! adam.step(&mut x, &[5.0, -0.2, 3.0])?;
//! // The first step has the length of the rate and the direction of the sign.
//! for (x, expected) in x.iter().zip([0.9, 1.1, 0.99]) {
//!     assert!((x - expected).abs() < 1e-8);
//! }
//! # Ok::<(), wiski::Error>(())
//! ```

use crate::error::{self, Error, Result};
use crate::saved::{Restore, restored_after_reading};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;
use std::ops::Range;

/// How the rates fall: from η at the first step to `end` after `steps` steps along half a cosine,
/// η_t = end + (η − end)(1 + cos(π t/steps))/2 for t = 0, 1, …, and `end` from then on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Annealing {
    /// The last rate, the same for all groups.
    pub end: f64,
    /// The number of steps until it is reached.
    pub steps: usize,
}

/// The state of Adam.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Adam {
    /// The end of each group of coordinates, and its rate.
    groups: Vec<(usize, f64)>,
    annealing: Option<Annealing>,
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    #[serde(with = "crate::saved::floats")]
    m: Vec<f64>,
    #[serde(with = "crate::saved::floats")]
    v: Vec<f64>,
    /// β₁ᵗ and β₂ᵗ.
    power1: f64,
    power2: f64,
    steps: usize,
}

restored_after_reading!(Adam);

impl Restore for Adam {
    fn restore(&mut self) -> Result<()> {
        error::length("squares of the optimizer", self.m.len(), self.v.len())?;
        let ends: Vec<usize> = self.groups.iter().map(|g| g.0).collect();
        if !ends.is_sorted() || ends.last().copied().unwrap_or(0) != self.m.len() {
            let reason = "the groups do not cover the coordinates".into();
            return Err(Error::Config { field: "groups".into(), reason });
        }
        let numbers = [self.beta1, self.beta2, self.epsilon, self.power1, self.power2];
        for value in numbers.into_iter().chain(self.groups.iter().map(|g| g.1)) {
            error::finite("state of the optimizer", value, 0)?;
        }
        Ok(())
    }
}

impl Adam {
    /// Adam for `dim` unknowns with one rate, β₁ = 0.9, β₂ = 0.999 and ε = 10⁻⁸.
    pub fn new(dim: usize, rate: f64) -> Result<Self> {
        Self::with_groups(&[(0..dim, rate)])
    }

    /// Adam with one rate for each range of coordinates. The ranges follow each other without gaps from 0; a
    /// rate of 0 holds its coordinates fixed.
    pub fn with_groups(groups: &[(Range<usize>, f64)]) -> Result<Self> {
        let mut dim = 0;
        for (i, (range, rate)) in groups.iter().enumerate() {
            let reject = |reason: String| Err(Error::Config { field: format!("groups[{i}]"), reason });
            if range.start != dim || range.end < dim {
                return reject(format!("{range:?} does not follow the {dim} coordinates before it"));
            }
            if !(*rate >= 0.0 && *rate < f64::INFINITY) {
                return reject(format!("the rate {rate} must be finite and not negative"));
            }
            dim = range.end;
        }
        Ok(Self {
            groups: groups.iter().map(|(range, rate)| (range.end, *rate)).collect(),
            annealing: None,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            m: vec![0.0; dim],
            v: vec![0.0; dim],
            power1: 1.0,
            power2: 1.0,
            steps: 0,
        })
    }

    /// The same with other decay rates β₁, β₂ in [0, 1) and another ε > 0.
    pub fn with_moments(mut self, beta1: f64, beta2: f64, epsilon: f64) -> Result<Self> {
        for (field, beta) in [("beta1", beta1), ("beta2", beta2)] {
            if !(0.0..1.0).contains(&beta) {
                return Err(Error::Config {
                    field: field.to_owned(),
                    reason: format!("{beta} does not lie in [0, 1)"),
                });
            }
        }
        error::positive("epsilon", epsilon, 0)?;
        (self.beta1, self.beta2, self.epsilon) = (beta1, beta2, epsilon);
        Ok(self)
    }

    /// The same with falling rates.
    pub fn with_annealing(mut self, annealing: Annealing) -> Result<Self> {
        if annealing.steps == 0 || !(annealing.end >= 0.0 && annealing.end < f64::INFINITY) {
            return Err(Error::Config {
                field: "annealing".to_owned(),
                reason: "needs at least one step and a last rate that is finite and not negative".to_owned(),
            });
        }
        self.annealing = Some(annealing);
        Ok(self)
    }

    /// The number of unknowns.
    pub fn dim(&self) -> usize {
        self.m.len()
    }

    /// The number of steps taken.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The rate that the next step will use for coordinate `i`; `None` if there is no such coordinate.
    pub fn rate(&self, i: usize) -> Option<f64> {
        self.groups.iter().find(|(end, _)| i < *end).map(|&(_, rate)| self.annealed(rate))
    }

    /// Moves `x` one step against `gradient`.
    ///
    /// Wrong lengths and gradients that are not finite are rejected, and leave `x` and the state as they were.
    pub fn step(&mut self, x: &mut [f64], gradient: &[f64]) -> Result<()> {
        error::length("x", self.dim(), x.len())?;
        error::length("gradient", self.dim(), gradient.len())?;
        if let Some(i) = gradient.iter().position(|g| !g.is_finite()) {
            return Err(Error::NotFinite { field: format!("gradient[{i}]"), value: gradient[i], row: 0 });
        }
        self.power1 *= self.beta1;
        self.power2 *= self.beta2;
        let mut start = 0;
        for group in 0..self.groups.len() {
            let (end, rate) = self.groups[group];
            let rate = self.annealed(rate) / (1.0 - self.power1);
            let root = (1.0 - self.power2).sqrt();
            for i in start..end {
                let g = gradient[i];
                self.m[i] += (1.0 - self.beta1) * (g - self.m[i]);
                self.v[i] = self.beta2 * self.v[i] + (1.0 - self.beta2) * g * g;
                x[i] -= rate * self.m[i] / (self.v[i].sqrt() / root + self.epsilon);
            }
            start = end;
        }
        self.steps += 1;
        Ok(())
    }

    fn annealed(&self, rate: f64) -> f64 {
        self.annealing.map_or(rate, |a| {
            let t = self.steps.min(a.steps) as f64 / a.steps as f64;
            a.end + (rate - a.end) * 0.5 * (1.0 + (PI * t).cos())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two steps by hand. Gradients 2 then −1, rate 0.1:
    /// m = 0.2, v = 0.004; m̂ = 2, v̂ = 4: step 0.1·2/(2 + ε).
    /// m = 0.18 − 0.1 = 0.08, v = 0.003996 + 0.001 = 0.004996; m̂ = 0.08/0.19, v̂ = 0.004996/0.001999.
    #[test]
    fn two_steps_by_hand() {
        let mut adam = Adam::new(1, 0.1).unwrap();
        let mut x = [1.0];
        adam.step(&mut x, &[2.0]).unwrap();
        let first = 1.0 - 0.1 * 2.0 / (2.0 + 1e-8);
        assert!((x[0] - first).abs() < 1e-15, "{}", x[0]);
        adam.step(&mut x, &[-1.0]).unwrap();
        let second = first - 0.1 * (0.08 / 0.19) / ((0.004_996_f64 / 0.001_999).sqrt() + 1e-8);
        assert!((x[0] - second).abs() < 1e-15, "{} {second}", x[0]);
        assert_eq!(adam.steps(), 2);
    }

    /// Each coordinate moves as if it were alone, at the rate of its group.
    #[test]
    fn groups_are_independent() {
        let mut both = Adam::with_groups(&[(0..1, 0.05), (1..1, 9.0), (1..3, 0.005)]).unwrap();
        let mut alone = [0.05, 0.005, 0.005].map(|rate| Adam::new(1, rate).unwrap());
        let mut x = [1.0, -2.0, 3.0];
        let mut y = x;
        for _ in 0..50 {
            let g = x.map(|v| v * v * v);
            both.step(&mut x, &g).unwrap();
            for i in 0..3 {
                alone[i].step(&mut y[i..=i], &g[i..=i]).unwrap();
            }
        }
        assert_eq!(x, y);
        assert_eq!([both.rate(0), both.rate(2), both.rate(3)], [Some(0.05), Some(0.005), None]);
    }

    /// The closed form at its ends and middle, and no rise after the last step.
    #[test]
    fn rates_follow_half_a_cosine() {
        let mut adam = Adam::new(1, 0.1).unwrap().with_annealing(Annealing { end: 0.02, steps: 4 }).unwrap();
        let quarter = 0.02 + 0.08 * 0.5 * (1.0 + 0.5_f64.sqrt());
        let expected = [0.1, quarter, 0.06, 0.12 - quarter, 0.02, 0.02, 0.02];
        let mut x = [0.0];
        for rate in expected {
            assert!((adam.rate(0).unwrap() - rate).abs() < 1e-16, "{:?} {rate}", adam.rate(0));
            let before = x[0];
            // A constant gradient makes m̂ = g and v̂ = g², so that steps have the length of the rate.
            adam.step(&mut x, &[3.0]).unwrap();
            assert!((before - x[0] - rate).abs() < 1e-9, "{} {rate}", before - x[0]);
        }
    }

    /// A quadratic with condition 10⁴: annealing removes the oscillation about the minimum that a constant rate
    /// keeps (its steps have the length of the rate), so that the end is within 10⁻³ of it.
    #[test]
    fn an_annealed_run_ends_at_the_minimum_of_a_quadratic() {
        let (h, c) = ([1e-2, 1.0, 1e2], [0.3, -1.0, 2.0]);
        let mut adam =
            Adam::new(3, 0.1).unwrap().with_annealing(Annealing { end: 1e-5, steps: 1000 }).unwrap();
        let mut x = [0.0; 3];
        for _ in 0..1000 {
            let g: Vec<f64> = (0..3).map(|i| h[i] * (x[i] - c[i])).collect();
            adam.step(&mut x, &g).unwrap();
        }
        for i in 0..3 {
            assert!((x[i] - c[i]).abs() < 1e-3, "{x:?}");
        }
    }

    #[test]
    fn a_rejected_step_changes_nothing_and_clones_go_on_alike() {
        let mut adam = Adam::new(2, 0.1).unwrap();
        let mut x = [1.0, 2.0];
        adam.step(&mut x, &[1.0, -1.0]).unwrap();
        let (before, y) = (adam.clone(), x);
        assert!(adam.step(&mut x, &[1.0, f64::NAN]).is_err());
        assert!(adam.step(&mut x, &[1.0]).is_err());
        assert!(adam.step(&mut x[..1], &[1.0, 2.0]).is_err());
        assert_eq!((&adam, x), (&before, y));
        let (mut twin, mut z) = (before, y);
        adam.step(&mut x, &[0.5, 0.5]).unwrap();
        twin.step(&mut z, &[0.5, 0.5]).unwrap();
        assert_eq!((adam, x), (twin, z));
    }

    #[test]
    fn nonsense_is_rejected() {
        assert!(Adam::new(1, -0.1).is_err());
        assert!(Adam::new(1, f64::NAN).is_err());
        assert!(Adam::with_groups(&[(0..2, 0.1), (3..4, 0.1)]).is_err());
        assert!(Adam::with_groups(&[(0..2, 0.1), (1..4, 0.1)]).is_err());
        assert!(Adam::new(1, 0.1).unwrap().with_moments(1.0, 0.9, 1e-8).is_err());
        assert!(Adam::new(1, 0.1).unwrap().with_moments(0.9, 0.9, 0.0).is_err());
        assert!(Adam::new(1, 0.1).unwrap().with_annealing(Annealing { end: 0.0, steps: 0 }).is_err());
    }
}
