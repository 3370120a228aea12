//! What regressor and classifier have in common: what they know of their columns, how far they are, and their files.

use std::ffi::CString;
use std::sync::Arc;

use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;

use wiski::persist::{self, Columns, Stored};

use crate::errors::six_digits;
use crate::rows::{Beyond, Rows};
use crate::shared::Shared;

/// Fewer rows than this are learned where they come in, unless they may bring about a search.
pub(crate) const FEW_ROWS: usize = 64;

/// A model of the library that an estimator owns.
pub(crate) trait Model: Clone {
    /// What readers predict from.
    type Snapshot;

    /// The range of each column that the grid covers, unless the user has said what rows beyond it mean.
    fn covered(&self) -> Option<Vec<(f64, f64)>>;

    /// The model as it is now, for readers.
    fn newest(&self) -> Option<Arc<Self::Snapshot>>;

    /// The model as files have it.
    fn to_store(&self) -> persist::Model;
}

/// A model with its columns and what files keep beside it.
pub(crate) struct State<M: Model> {
    pub(crate) columns: Columns,
    pub(crate) rows: u64,
    pub(crate) journal_from: u64,
    pub(crate) model: M,
    /// The model as it is now, for readers; made when one is needed.
    pub(crate) image: Option<Arc<M::Snapshot>>,
}

impl<M: Model> State<M> {
    pub(crate) fn new(columns: Columns, model: M) -> Self {
        Self { columns, rows: 0, journal_from: 0, model, image: None }
    }

    /// The model, to be changed.
    pub(crate) fn change(&mut self) -> &mut M {
        self.image = None;
        &mut self.model
    }

    pub(crate) fn image(&mut self) -> Option<Arc<M::Snapshot>> {
        if self.image.is_none() {
            self.image = self.model.newest();
        }
        self.image.clone()
    }

    pub(crate) fn stored(&self) -> Stored {
        Stored {
            columns: self.columns.clone(),
            rows: self.rows,
            journal_from: self.journal_from,
            model: self.model.to_store(),
            unfinished: None,
        }
    }
}

/// Warns of rows of which only the prior is known, once for all of them. The caller is a method of the Python class.
pub(crate) fn warn_beyond<M: Model + Send>(
    py: Python<'_>,
    state: &Shared<State<M>>,
    rows: &Rows<'_>,
) -> PyResult<()>
where
    M::Snapshot: Send + Sync,
{
    let Some(covered) = state.brief(py, |state| Ok(state.model.covered()))? else { return Ok(()) };
    let Some(Beyond { count, row, column, value }) = rows.beyond(&covered) else { return Ok(()) };
    let name = state.brief(py, |state| Ok(state.columns.inputs.get(column).cloned()))?.unwrap_or_default();
    let (lo, hi) = covered[column];
    let [value, lo, hi] = [value, lo, hi].map(six_digits);
    let text = format!(
        "{count} of {} rows lie beyond the grid, where nothing but the prior is known: the first is row {row}, whose column '{name}' \
         is {value} while the grid covers {lo} to {hi}; off_grid='error' rejects such rows",
        rows.len(),
    );
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &CString::new(text)?, 2)
}

/// An estimator whose `state` is a model of the library with its columns; the name of the estimator is that of the model
/// in files. `mistaken` says what it is when it is not.
macro_rules! estimator_methods {
    ($estimator:ident, $model:ty, $snapshot:ty, $mistaken:literal) => {
        type State = $crate::estimator::State<$model>;

        impl $crate::estimator::Model for $model {
            type Snapshot = $snapshot;

            fn covered(&self) -> Option<Vec<(f64, f64)>> {
                (self.settings().off_grid == wiski::OffGrid::Extend)
                    .then(|| <$model>::covered(self))
                    .flatten()
            }

            fn newest(&self) -> Option<Arc<$snapshot>> {
                self.snapshot()
            }

            fn to_store(&self) -> persist::Model {
                persist::Model::$estimator(Box::new(self.clone()))
            }
        }

        impl $estimator {
            fn of(state: State) -> Self {
                Self { input_dim: state.model.input_dim(), state: Shared::new(state) }
            }

            pub(crate) fn of_stored(stored: Stored) -> Result<Self, Failure> {
                let Stored { columns, rows, journal_from, model, .. } = stored;
                match model {
                    persist::Model::$estimator(model) => {
                        Ok(Self::of(State { rows, journal_from, ..State::new(columns, *model) }))
                    }
                    _ => Err(reject("model", $mistaken)),
                }
            }

            /// Whether so few rows come that a thread would cost more than they do, and no search with them.
            fn is_quick(&self, py: Python<'_>, rows: usize) -> PyResult<bool> {
                let is_few = rows < $crate::estimator::FEW_ROWS;
                self.state.brief(py, |state| Ok(is_few && !state.model.may_search(rows)))
            }
        }

        impl $estimator {
            /// Learns rows, a block at a time: each by `step`, which is given its number.
            fn learn_rows(
                &self,
                py: Python<'_>,
                rows: &Rows<'_>,
                step: impl Fn(&mut $model, &[f64], usize) -> wiski::Result<()> + Send + Sync,
            ) -> PyResult<()> {
                for (range, block) in rows.blocks() {
                    let learn = |state: &mut State, interrupt: Option<&Interrupt>| {
                        for ((i, x), row) in block.chunks_exact(self.input_dim).enumerate().zip(range) {
                            if i.is_multiple_of(wiski::model::ROWS_TOGETHER) {
                                let coming = &block[i * self.input_dim..];
                                let most = coming.len().min(wiski::model::ROWS_TOGETHER * self.input_dim);
                                state.change().prepare_rows(&coming[..most]);
                            }
                            let stepped = step(state.change(), x, row);
                            stepped.map_err(|error| offset(in_units(error, state.model.encoder()), row))?;
                            state.rows += 1;
                            if interrupt.is_some_and(Interrupt::is_set) {
                                break;
                            }
                        }
                        Ok(())
                    };
                    if self.is_quick(py, rows.len())? {
                        self.state.long(py, |state| learn(state, None))?;
                        py.check_signals()?;
                    } else {
                        self.state.interruptible(py, |state, interrupt| learn(state, Some(interrupt)))?;
                    }
                }
                Ok(())
            }
        }

        #[pymethods]
        impl $estimator {
            /// The settings as parameters of an estimator.
            fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                let settings = self.state.brief(py, |state| Ok(state.model.settings().clone()))?;
                settings::to_dict(py, &settings)
            }

            /// The texts that stand for the levels of each column, where it is text: they are kept in files, as those of
            /// the command line are.
            #[getter]
            fn levels(&self, py: Python<'_>) -> PyResult<Vec<Option<Vec<String>>>> {
                self.state.brief(py, |state| Ok(settings::levels_of(&state.columns)))
            }

            #[setter]
            fn set_levels(&self, py: Python<'_>, levels: Vec<Option<Vec<String>>>) -> PyResult<()> {
                self.state.brief(py, |state| settings::set_levels(&mut state.columns, levels))
            }

            /// The names of the input columns.
            #[getter]
            fn inputs(&self, py: Python<'_>) -> PyResult<Vec<String>> {
                self.state.brief(py, |state| Ok(state.columns.inputs.clone()))
            }

            /// The sum of the weights of all rows learned.
            #[getter]
            fn count(&self, py: Python<'_>) -> PyResult<f64> {
                self.state.brief(py, |state| Ok(state.model.count()))
            }

            /// Whether the warm-up is over.
            #[getter]
            fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
                self.state.brief(py, |state| Ok(state.model.is_ready()))
            }

            /// Tells that so many rows are there already, so that features are learned once they all are.
            fn expect(&self, py: Python<'_>, rows: usize) -> PyResult<()> {
                self.state.brief(py, |state| {
                    state.change().expect(rows);
                    Ok(())
                })
            }

            /// Learns everything another model has learned.
            fn merge(&self, py: Python<'_>, other: &Self) -> PyResult<()> {
                // A copy first: two models that merge each other at once must not wait for each other.
                let (theirs, rows) = other.state.long(py, |state| Ok((state.model.clone(), state.rows)))?;
                self.state.long(py, |state| {
                    state.change().merge(&theirs)?;
                    state.rows += rows;
                    Ok(())
                })
            }

            /// Makes all rows so far count less.
            fn decay(&self, py: Python<'_>, factor: f64) -> PyResult<()> {
                self.state.long(py, |state| Ok(state.change().decay(factor)?))
            }

            /// Ends the warm-up with the rows seen so far.
            fn finish_warm_up(&self, py: Python<'_>) -> PyResult<()> {
                self.state.interruptible(py, |state, _| Ok(state.change().finish_warm_up()?))
            }

            /// Ends a fit: features are learned anew from the rows in memory, if there are more than at the last search.
            fn finish_search(&self, py: Python<'_>) -> PyResult<()> {
                self.state.interruptible(py, |state, _| {
                    let model = state.change();
                    model.finish_search()?;
                    // The order of a table has no meaning.
                    model.drop_corrections();
                    Ok(())
                })
            }

            /// What went wrong beside the rows since the last call, if anything did.
            fn take_failure(&self, py: Python<'_>) -> PyResult<Option<String>> {
                self.state
                    .brief(py, |state| Ok(state.model.take_failure().map(|failure| failure.to_string())))
            }

            /// What a user should know about the data and the fit.
            fn remarks(&self, py: Python<'_>) -> PyResult<Vec<String>> {
                self.state.brief(py, |state| {
                    Ok(state
                        .model
                        .remarks()
                        .iter()
                        .map(|remark| remark.text(&state.columns.inputs))
                        .collect())
                })
            }

            /// Stops learning the feature map.
            fn freeze_features(&self, py: Python<'_>) -> PyResult<()> {
                self.state.long(py, |state| Ok(state.change().freeze_features()?))
            }

            /// The number of input columns.
            #[getter]
            fn input_dim(&self) -> usize {
                self.input_dim
            }

            fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
                let stored = self.state.long(py, |state| Ok(state.stored()))?;
                detached(py, || Ok(persist::save(&path, &stored)?))
            }

            #[staticmethod]
            fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
                detached(py, || Self::of_stored(persist::load(&path)?))
            }

            #[staticmethod]
            fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
                detached(py, || Self::of_stored(persist::from_bytes(bytes)?))
            }

            fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
                let bytes = self.state.long(py, |state| Ok(persist::to_bytes(&state.stored())?))?;
                Ok(PyBytes::new(py, &bytes))
            }

            fn __reduce__<'py>(
                slf: &Bound<'py, Self>,
            ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
                let read = slf.get_type().getattr("from_bytes")?;
                Ok((read, (slf.get().to_bytes(slf.py())?,)))
            }
        }
    };
}

pub(crate) use estimator_methods;
