//! Rows that are still in memory: those of the warm-up, and the first ones of a stream whose features may be learned
//! anew from all of them.

use serde::{Deserialize, Serialize};

use crate::error::{Result, finite, length};
use crate::learn::Rows;
use crate::saved::{Restore, restored_after_reading};

/// Rows as they came, in the user's units, with their times where they have any. The target of a class is its number.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(crate) struct Memory {
    pub(crate) rows: Rows,
    #[serde(with = "crate::saved::floats")]
    pub(crate) times: Vec<f64>,
}

restored_after_reading!(Memory);

impl Restore for Memory {
    fn restore(&mut self) -> Result<()> {
        self.times.iter().try_for_each(|&time| finite("time", time, 0))?;
        if self.times.is_empty() { Ok(()) } else { length("times", self.rows.len(), self.times.len()) }
    }
}

impl Memory {
    pub(crate) fn new(rows: Rows, times: Vec<f64>) -> Self {
        Self { rows, times }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn push(&mut self, x: &[f64], y: f64, noise: f64, time: Option<f64>) {
        self.rows.push(x, y, noise);
        self.times.extend(time);
    }

    /// Takes back the last row, of `dim` columns.
    pub(crate) fn pop(&mut self, dim: usize) {
        self.rows.pop(dim);
        self.times.truncate(self.rows.len());
    }

    /// Lets go of the older half, of `dim` columns a row.
    pub(crate) fn drop_older_half(&mut self, dim: usize) {
        let gone = self.len() / 2;
        self.rows.x.drain(..gone * dim);
        self.rows.y.drain(..gone);
        self.rows.noise.drain(..gone);
        self.times.drain(..gone.min(self.times.len()));
    }

    pub(crate) fn last_time(&self) -> Option<f64> {
        self.times.last().copied()
    }
}
