//! Where a search in many dimensions looks: a box around the best point so far, which shrinks while nothing better
//! is found and grows while it is (the trust region of Eriksson et al. 2019, "Scalable global optimization via local
//! Bayesian optimization").
//!
//! A sum of functions of one and two variables cannot follow a function in which many interact; but around any
//! point it follows it to second order, and more closely the smaller the box is.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, length};

/// After so many better results in a row the box is doubled.
const SUCCESSES: u32 = 3;
/// A result is better if it gains this share of the deviation of all.
const GAIN: f64 = 1e-3;
/// A box whose half width falls below this has been searched: the whole is looked at again.
const SMALLEST: f64 = 1.0 / 64.0;
/// The model covers this many times the width of the box, so that it learns from the results around it too.
const MARGIN: f64 = 2.0;

/// A box in [−1, 1]^d.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Frame {
    lo: Vec<f64>,
    hi: Vec<f64>,
}

impl Frame {
    pub(super) fn whole(dim: usize) -> Self {
        Self { lo: vec![-1.0; dim], hi: vec![1.0; dim] }
    }

    fn around(center: &[f64], half: f64) -> Self {
        let lo = center.iter().map(|c| (c - half).max(-1.0)).collect();
        Self { lo, hi: center.iter().map(|c| (c + half).min(1.0)).collect() }
    }

    pub(super) fn dim(&self) -> usize {
        self.lo.len()
    }

    /// Rejects what is no box in [−1, 1]^d.
    pub(super) fn check(&self, dim: usize) -> Result<()> {
        length("lower ends", dim, self.lo.len())?;
        length("upper ends", dim, self.hi.len())?;
        if self.sides().iter().all(|(lo, hi)| -1.0 <= *lo && lo < hi && *hi <= 1.0) {
            return Ok(());
        }
        Err(Error::Config { field: "box".into(), reason: "its ends are not in order".into() })
    }

    pub(super) fn sides(&self) -> Vec<(f64, f64)> {
        self.lo.iter().copied().zip(self.hi.iter().copied()).collect()
    }

    pub(super) fn contains(&self, x: &[f64]) -> bool {
        x.iter().zip(self.sides()).all(|(x, (lo, hi))| (lo..=hi).contains(x))
    }
}

/// The box that is searched, and how it has gone since it was set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Region {
    half: f64,
    #[serde(alias = "centre")]
    center: Vec<f64>,
    best: f64,
    successes: u32,
    failures: u32,
}

impl Region {
    /// The whole box, given the best value so far.
    pub(super) fn whole(dim: usize, best: f64) -> Self {
        Self { half: 1.0, center: vec![0.0; dim], best, successes: 0, failures: 0 }
    }

    /// A box of its own, for tests.
    #[cfg(test)]
    pub(super) fn at(center: Vec<f64>, half: f64) -> Self {
        Self { half, center, ..Self::whole(0, 0.0) }
    }

    /// Where points may be proposed.
    pub(super) fn searched(&self) -> Frame {
        Frame::around(&self.center, self.half)
    }

    /// What the model covers.
    pub(super) fn covered(&self) -> Frame {
        Frame::around(&self.center, (MARGIN * self.half).min(2.0))
    }

    /// Takes in a result, given the deviation of all; says whether the box is to change.
    pub(super) fn judge(&mut self, y: f64, deviation: f64) -> bool {
        if y > self.best + GAIN * deviation {
            (self.best, self.successes, self.failures) = (y, self.successes + 1, 0);
        } else {
            (self.successes, self.failures) = (0, self.failures + 1);
        }
        let patience = (self.center.len() as u32).max(4);
        (self.successes >= SUCCESSES && self.half < 1.0) || self.failures >= patience
    }

    /// The next box, around the best point: larger after successes, smaller after failures.
    pub(super) fn moved(&self, best_at: &[f64]) -> Self {
        let half = if self.failures == 0 { (2.0 * self.half).min(1.0) } else { 0.5 * self.half };
        if half < SMALLEST {
            return Self::whole(self.center.len(), self.best);
        }
        Self { half, center: best_at.to_vec(), best: self.best, successes: 0, failures: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_box_shrinks_without_success_and_grows_with_it() {
        let mut region = Region::whole(5, 0.0);
        assert_eq!(region.searched(), Frame::whole(5));
        assert!((0..4).all(|_| !region.judge(-1.0, 1.0)) && region.judge(-1.0, 1.0));
        let mut small = region.moved(&[0.9, 0.0, 0.0, 0.0, -0.2]);
        assert_eq!(small.searched().sides()[0], (0.4, 1.0));
        assert_eq!(small.covered().sides()[4], (-1.0, 0.8));
        assert!(!small.judge(1.0, 1.0) && !small.judge(2.0, 1.0) && small.judge(3.0, 1.0));
        assert_eq!(small.moved(&[0.0; 5]).half, 1.0);
        // Too small a gain is none, and a tiny box gives way to the whole.
        let mut tiny = Region { half: SMALLEST, ..Region::whole(5, 0.0) };
        assert!((0..4).all(|_| !tiny.judge(1e-4, 1.0)) && tiny.judge(1e-4, 1.0));
        assert_eq!(tiny.moved(&[0.3; 5]).searched(), Frame::whole(5));
    }

    #[test]
    fn a_box_knows_what_it_contains() {
        let frame = Frame::around(&[0.5, -0.9], 0.2);
        assert!(frame.contains(&[0.6, -0.8]) && !frame.contains(&[0.2, -0.8]));
        assert!(frame.check(2).is_ok() && frame.check(3).is_err());
        assert!(Frame { lo: vec![0.5], hi: vec![0.4] }.check(1).is_err());
    }
}
