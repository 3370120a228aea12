//! What regressor and classifier have in common: what they know of their columns, how far they are, and their files.

/// The methods of an estimator whose `state` has a model and its columns, and that can be made of what a file holds.
macro_rules! estimator_methods {
    ($estimator:ident) => {
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
