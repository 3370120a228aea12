//! Rows that are known to come: a file, a table, a request with many rows.
//!
//! Models of many inputs have matrices of some megabytes, which each row reads from memory. Rows that are known before they
//! are learned are prepared together, so that what is read serves all of them; each is still predicted before it is
//! learned, and all numbers are the same to the last bit.

use super::learner::Learner;
use super::online::Online;
use super::task::Task;
use super::{OnlineClassifier, OnlineRegressor};

/// How many rows are best prepared together.
pub const ROWS_TOGETHER: usize = crate::interp::POINTS_TOGETHER;

impl<T: Task> Online<T> {
    pub(crate) fn prepare_rows(&mut self, x: &[f64]) {
        if let Some(learner) = self.learner.as_deref_mut().filter(|learner| learner.gains_by_expecting()) {
            learner.expect(x);
        }
    }

    pub(crate) fn gains_by_preparing(&self) -> bool {
        self.learner.as_deref().is_some_and(Learner::gains_by_expecting)
    }
}

macro_rules! prepares_rows {
    ($model:ty) => {
        impl $model {
            /// Takes note of rows, given one after the other, that will be learned next in this order; [`ROWS_TOGETHER`] of
            /// them, or fewer. What each needs is then computed for all of them together, where that is faster
            /// ([`Self::gains_by_preparing`]). It is a hint: nothing is learned, any other row may come, and the numbers
            /// are the same to the last bit.
            pub fn prepare_rows(&mut self, x: &[f64]) {
                self.online.prepare_rows(x);
            }

            /// Whether rows are learned faster if they are prepared: where the rank is large.
            pub fn gains_by_preparing(&self) -> bool {
                self.online.gains_by_preparing()
            }
        }
    };
}

prepares_rows!(OnlineRegressor);
prepares_rows!(OnlineClassifier);
