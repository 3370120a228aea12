//! Rows of which inputs are missing (NaN): what is not there is averaged over.
//!
//! ```text
//! p(y | x_there) ≈ (1/J) Σ_j p(y | x_there, x_missing as in row j)
//! ```
//!
//! over J rows that were complete, 32 to 63 of them, evenly spaced over the stream. Levels and hours are then levels and hours
//! that occur, and columns that are missing together have values that occur together. What is there is taken to say nothing
//! about what is missing.
//!
//! Such a row is predicted, and not learned: which row it was is not known, and any guess (a mean, a row that would fit, with
//! more noise or without) biases the function or the noise where many rows lack something.
//! J predictions for such a row; O(D) for others.

use serde::{Deserialize, Serialize};

use super::Outcome;
use super::online::{Online, check_row};
use super::settings::Missing;
use super::task::Task;
use crate::error::{Error, Result, finite, length};
use crate::posterior::Prediction;

/// At least so many rows are kept; when there are twice as many, every other goes.
const DONORS: usize = 32;

/// Complete rows that lend their values to others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Donors {
    /// One after the other.
    #[serde(with = "crate::saved::floats")]
    rows: Vec<f64>,
    /// One row in so many is kept.
    stride: u64,
    /// Rows since the last one that was kept.
    since: u64,
    /// Incomplete rows so far.
    pub(super) lent: u64,
}

impl Donors {
    /// Rejects rows of another width.
    pub(crate) fn check(&self, dim: usize) -> Result<()> {
        length("rows that lend values", self.rows.len() / dim * dim, self.rows.len())
    }

    /// Takes in a complete row.
    pub(crate) fn observe(&mut self, x: &[f64]) {
        self.since += 1;
        if self.since < self.stride {
            return;
        }
        self.since = 0;
        self.rows.extend_from_slice(x);
        let dim = x.len();
        if self.rows.len() == 2 * DONORS * dim {
            (0..DONORS).for_each(|i| self.rows.copy_within(2 * i * dim..(2 * i + 1) * dim, i * dim));
            self.rows.truncate(DONORS * dim);
            self.stride = 2 * self.stride.max(1);
        }
    }

    /// The row with what is missing as in each of the complete rows.
    pub(crate) fn completed(&self, x: &[f64]) -> Result<Vec<Vec<f64>>> {
        if self.rows.is_empty() {
            let reason = "no complete row was learned yet from which values could be taken";
            return Err(Error::Unsupported { operation: "a row with missing inputs", reason });
        }
        let value = |(own, lent): (&f64, &f64)| if own.is_nan() { *lent } else { *own };
        Ok(self.rows.chunks_exact(x.len()).map(|donor| x.iter().zip(donor).map(value).collect()).collect())
    }
}

/// Whether an input is missing.
pub(crate) fn is_incomplete(x: &[f64]) -> bool {
    x.iter().any(|v| v.is_nan())
}

/// What several predictions with equal weight say together: their mean and variance.
pub(crate) fn averaged(all: &[Prediction]) -> Prediction {
    let mean_of = |value: fn(&Prediction) -> f64| all.iter().map(value).sum::<f64>() / all.len() as f64;
    let mean = mean_of(|p| p.mean);
    let apart = all.iter().map(|p| (p.mean - mean).powi(2)).sum::<f64>() / all.len() as f64;
    Prediction { mean, variance: mean_of(|p| p.variance) + apart, noise: mean_of(|p| p.noise) }
}

/// The same for each process, given what all of them say about each row.
pub(crate) fn averaged_each(all: &[Vec<Prediction>]) -> Vec<Prediction> {
    let processes = all.first().map_or(0, Vec::len);
    let of = |process: usize| all.iter().map(|said| said[process]).collect::<Vec<_>>();
    (0..processes).map(|process| averaged(&of(process))).collect()
}

impl<T: Task> Online<T> {
    /// Predicts a row of which inputs are missing. Nothing is learned of it, but that there was one.
    pub(super) fn leave_out_incomplete(&mut self, x: &[f64], y: f64) -> Result<Outcome> {
        length("x", self.input_dim, x.len())?;
        finite("y", y, 0)?;
        let rows = self.donors.completed(x)?;
        check_row(&rows[0], self.input_dim)?;
        self.said.clear();
        if self.learner.is_some() {
            self.said = averaged_each(&rows.iter().map(|x| self.predict_all(x)).collect::<Result<Vec<_>>>()?);
        }
        self.donors.lent += 1;
        Ok(Outcome::Incomplete)
    }

    /// The rows that a row may be: itself, unless inputs are missing and may be.
    pub(crate) fn completed(&self, x: &[f64]) -> Result<Vec<Vec<f64>>> {
        if self.settings.missing == Missing::Marginalize && is_incomplete(x) {
            length("x", self.input_dim, x.len())?;
            return self.donors.completed(x);
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn donors_are_spread_over_the_stream() {
        let mut donors = Donors::default();
        assert!(donors.completed(&[f64::NAN]).is_err());
        for i in 0..1000 {
            donors.observe(&[f64::from(i), -f64::from(i)]);
        }
        let firsts: Vec<f64> = donors.rows.chunks_exact(2).map(|row| row[0]).collect();
        assert!((DONORS..2 * DONORS).contains(&firsts.len()), "{firsts:?}");
        let gaps: Vec<f64> = firsts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (16.0..=32.0).contains(gap)), "{firsts:?}");
        assert!(firsts[0] == 0.0 && firsts.last() > Some(&900.0), "{firsts:?}");
        let rows = donors.completed(&[f64::NAN, 7.0]).unwrap();
        assert!(rows.iter().zip(&firsts).all(|(row, first)| row[..] == [*first, 7.0]));
    }

    #[test]
    fn the_moments_are_those_of_the_mixture() {
        let all = [1.0, 2.0, 6.0].map(|mean| Prediction { mean, variance: mean, noise: 2.0 * mean });
        let p = averaged(&all);
        assert_eq!((p.mean, p.noise), (3.0, 6.0));
        assert!((p.variance - 3.0 - 14.0 / 3.0).abs() < 1e-12);
    }
}
