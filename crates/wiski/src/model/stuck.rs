//! Columns that have stopped changing: a sensor that has died goes on sending its last value.
//!
//! Of each column, and of the target, it is known how long its value has been the same, and how long that lasted at most
//! before. A value that has lasted for fifty rows and five times as long as any before is stuck. O(D) a row.

use serde::{Deserialize, Serialize};

use crate::error::{Result, length};

/// A value that lasted for fewer rows is not stuck.
const FEWEST: u64 = 50;
/// Nor is one that lasted for less than so many times as long as another before.
const TIMES: u64 = 5;
/// So many rows show how long values last.
const ROWS_BEFORE: u64 = 200;

/// How long the values of one column last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Run {
    value: f64,
    /// Rows that have had this value in turn.
    length: u64,
    /// The most of earlier values.
    longest: u64,
}

impl Run {
    fn observe(&mut self, value: f64) {
        if value == self.value {
            self.length += 1;
            return;
        }
        // The first value comes after none.
        self.longest = self.longest.max(self.length);
        (self.value, self.length) = (value, 1);
    }

    fn is_stuck(&self) -> bool {
        self.longest > 0 && self.length >= FEWEST.max(TIMES * self.longest)
    }
}

/// How long the values of all columns and of the target last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Runs {
    rows: u64,
    /// Of each column; of the target, the last.
    each: Vec<Run>,
}

impl Runs {
    /// Rejects runs of another number of columns.
    pub(crate) fn check(&self, dim: usize) -> Result<()> {
        if self.each.is_empty() { Ok(()) } else { length("runs of values", dim + 1, self.each.len()) }
    }

    /// Takes in a row.
    pub(crate) fn observe(&mut self, x: &[f64], y: f64) {
        self.each.resize(x.len() + 1, Run::default());
        self.rows += 1;
        self.each.iter_mut().zip(x.iter().chain([&y])).for_each(|(run, &value)| run.observe(value));
    }

    /// The columns that are stuck, and for how many rows; that of the target is the number of columns.
    pub(crate) fn stuck(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let is_stuck = |(_, run): &(usize, &Run)| run.is_stuck() && self.rows >= ROWS_BEFORE + run.length;
        self.each.iter().enumerate().filter(is_stuck).map(|(column, run)| (column, run.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_lasts_longer_than_any_before_is_stuck() {
        let mut runs = Runs::default();
        let wave = |i: u64| (i as f64 * 0.7).sin();
        for i in 0..400 {
            // A column that changes with every row, a switch, a constant, and a target.
            runs.observe(&[wave(i), f64::from(u8::from(i % 40 < 20)), 1.0], wave(3 * i));
        }
        assert_eq!(runs.stuck().count(), 0);
        for i in 400..470 {
            runs.observe(&[0.25, 0.0, 1.0], wave(3 * i));
        }
        // The switch, which rested for twenty rows before, has rested for ninety.
        assert_eq!(runs.stuck().collect::<Vec<_>>(), [(0, 70)]);
        for _ in 0..60 {
            runs.observe(&[0.25, 0.0, 1.0], 7.0);
        }
        assert_eq!(runs.stuck().map(|(column, _)| column).collect::<Vec<_>>(), [0, 1, 3]);
        runs.observe(&[0.5, 1.0, 1.0], 8.0);
        assert_eq!(runs.stuck().count(), 0);
    }

    #[test]
    fn a_short_rest_does_not_make_a_long_one_before_it_unheard_of() {
        let mut runs = Runs::default();
        let mut rest = |value: f64, rows: u64| {
            (0..rows).for_each(|i| runs.observe(&[value], i as f64));
            runs.stuck().count()
        };
        (0..200).for_each(|i| assert_eq!(rest(f64::from(i), 1), 0));
        // Forty rows at one value, then some at another for three: sixty are not five times forty, but two hundred are.
        assert_eq!([rest(-1.0, 40), rest(-2.0, 3), rest(-3.0, 60), rest(-4.0, 1)], [0; 4]);
        assert_eq!((rest(-5.0, 299), rest(-5.0, 1)), (0, 1), "five times sixty");
    }
}
