//! A series of named columns: what the command line keeps in a file, and the rows it learns.

use serde::{Deserialize, Serialize};

use super::{Answer, Columns, Row, Target};
use crate::error::{Error, Result, length};
use crate::posterior::Prediction;
use crate::saved::{Restore, restored_after_reading};
use crate::time::Forecaster;

/// From so many rows on there is a model. It need not wait for as many as a first fit would like, since fits of short series
/// follow each other closely.
const FIRST_FIT: u64 = 8;

/// A forecaster, the names of its columns, and how much of its stream it has seen.
///
/// Its file is that of a [`Forecaster`] with more fields; either can be read as the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct StoredSeries {
    /// The forecaster.
    #[serde(flatten)]
    pub model: Forecaster,
    /// The names of the columns; `time`, `y` and `x1`, `x2`, … if the file is that of a plain forecaster.
    #[serde(default)]
    pub columns: Columns,
    /// Whether times are dates, as seconds since 1970, if that is known.
    #[serde(default)]
    pub dated: Option<bool>,
    /// The number of rows of the stream that were seen, rejected ones included.
    #[serde(default)]
    pub seen: u64,
    /// How many of them had been seen when the journal was begun, for a model that has one.
    #[serde(default)]
    pub journal_from: u64,
    /// A fit that failed; the row that it came with is learned.
    #[serde(skip)]
    failure: Option<Error>,
}

restored_after_reading!(StoredSeries);

impl Restore for StoredSeries {
    fn restore(&mut self) -> Result<()> {
        let width = self.model.settings().columns.len();
        if self.columns == Columns::default() {
            self.columns = Columns::of_series(width);
        }
        length("input columns", width, self.columns.inputs.len())?;
        self.seen = self.seen.max(self.model.rows());
        if self.journal_from > self.seen {
            let reason = format!("begins after row {}, but {} were seen", self.journal_from, self.seen);
            return Err(Error::Config { field: "journal".into(), reason });
        }
        Ok(())
    }
}

impl StoredSeries {
    /// A forecaster with the names of its columns.
    pub fn new(columns: Columns, dated: bool, model: Forecaster) -> Result<Self> {
        length("input columns", model.settings().columns.len(), columns.inputs.len())?;
        let seen = model.rows();
        Ok(Self { model, columns, dated: Some(dated), seen, journal_from: seen, failure: None })
    }

    /// What went wrong beside the rows since the last call, if anything did: every row that was accepted is learned.
    pub fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Counts the row, says what was expected of it, and learns it.
    pub fn step(&mut self, row: &Row) -> Result<Option<Answer>> {
        self.seen += 1;
        let y = match row.target {
            Target::Value(y) => Some(y),
            Target::Missing => None,
            Target::Label(_) => {
                let reason = "the model predicts numbers, but the target is a label".into();
                return Err(Error::Config { field: "target".into(), reason });
            }
        };
        let before = self.model.rows();
        let expected = match self.model.observe(row.time.unwrap_or(f64::NAN), row.x, y) {
            Ok(expected) => expected,
            // The row is learned; the fit that came with it failed.
            Err(error) if self.model.rows() > before => {
                self.failure = Some(error);
                None
            }
            Err(error) => return Err(error),
        };
        if !self.model.is_ready() && self.model.rows() >= FIRST_FIT {
            // Too few of the rows may have a target: then a later one tries again.
            match self.model.fit() {
                Err(Error::NotReady { .. }) | Ok(()) => {}
                Err(error) => self.failure = Some(error),
            }
        }
        let said = expected.map(|e| Prediction { mean: e.mean, variance: e.std * e.std, noise: 0.0 });
        Ok(said.map(Answer::Value))
    }
}
