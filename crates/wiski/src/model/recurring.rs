//! Values that recur: a column of numbers may be an identifier in disguise.
//!
//! A day's barometer reading stands in every row of that day, a patient's age in each of their visits. Rows that share
//! such a value share more than a smooth function of it can say, so each value may have an effect of its own, as a level
//! of a category has. Whether it pays is decided by rows held out
//! ([`AdditiveSearch`](crate::learn::AdditiveSearch)).

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, finite};

/// As many values may have effects of their own; each adds one to the rank.
pub(crate) const MOST_VALUES: usize = 640;
/// Fewer values than this are told apart by any smooth function.
const FEWEST_VALUES: usize = 4;
/// Rows for each value, on average, below which their effects would be noise.
const FEWEST_ROWS: usize = 3;
/// The share of rows whose values must recur: others have none to learn from.
const LEAST_SHARE: f64 = 0.9;

/// The values of a column that recur, each a level of its own; all others share one more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recurring {
    /// The column.
    pub column: usize,
    /// Its values that recur, ascending.
    #[serde(with = "crate::saved::floats")]
    pub values: Vec<f64>,
}

impl Recurring {
    /// The values of a column of rows given one after the other, if nearly all rows have one that recurs.
    pub(crate) fn of(x: &[f64], dim: usize, column: usize) -> Option<Self> {
        let mut all: Vec<f64> = x.iter().skip(column).step_by(dim).map(|v| v + 0.0).collect();
        all.sort_by(f64::total_cmp);
        let (mut values, mut covered) = (Vec::new(), 0);
        for equal in all.chunk_by(|a, b| a == b).filter(|equal| equal.len() > 1) {
            values.push(equal[0]);
            covered += equal.len();
        }
        let is_enough = covered as f64 >= LEAST_SHARE * all.len() as f64
            && all.len() >= FEWEST_ROWS * values.len()
            && (FEWEST_VALUES..=MOST_VALUES).contains(&values.len());
        is_enough.then_some(Self { column, values })
    }

    /// The number of levels, with that of all other values.
    pub(crate) fn levels(&self) -> usize {
        self.values.len() + 1
    }

    /// The level of a row.
    pub(crate) fn level(&self, x: &[f64]) -> usize {
        let value = x[self.column] + 0.0;
        self.values.binary_search_by(|v| v.total_cmp(&value)).unwrap_or(self.values.len())
    }

    /// Whether a row has a value that nothing was learned about.
    pub(crate) fn is_new(&self, x: &[f64]) -> bool {
        self.level(x) == self.values.len()
    }

    /// Rejects what no column can have left behind.
    pub(crate) fn check(&self, columns: usize) -> Result<()> {
        self.values.iter().try_for_each(|&value| finite("recurring value", value, 0))?;
        if self.column >= columns || !self.values.is_sorted_by(|a, b| a < b) {
            let reason = format!("the recurring values of column {} are not those of one", self.column);
            return Err(Error::Config { field: "columns".into(), reason });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_recur_or_do_not() {
        let x: Vec<f64> = (0..120u32).flat_map(|i| [f64::from(i % 6) - 2.0, f64::from(i)]).collect();
        let found = Recurring::of(&x, 2, 0).unwrap();
        assert_eq!(found.values, [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]);
        assert_eq!((found.levels(), found.level(&[-0.0, 1.0]), found.level(&[0.5, 1.0])), (7, 2, 6));
        assert!(found.is_new(&[0.5, 1.0]) && !found.is_new(&[3.0, 1.0]));
        assert!(Recurring::of(&x, 2, 1).is_none());
        // Values that stand alone are few enough to share a level, or too many.
        let some = |alone: u32| -> Vec<f64> {
            (0..100).map(|i| if i < alone { 50.5 + f64::from(i) } else { f64::from(i % 5) }).collect()
        };
        assert_eq!(Recurring::of(&some(8), 1, 0).unwrap().values.len(), 5);
        assert!(Recurring::of(&some(12), 1, 0).is_none());
        assert!(found.check(1).is_ok() && found.check(0).is_err());
        assert!(Recurring { column: 0, values: vec![1.0, 1.0] }.check(1).is_err());
    }
}
