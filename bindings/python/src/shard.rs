//! `Shard`: sums of the rows of one partition, in the shape of a model; they travel as bytes.

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wiski::shard::{Shape, Shard as Sums};

use crate::errors::{detached, offset};
use crate::regressor::Regressor;
use crate::rows::{Rows, check_column, column};
use crate::shared::Shared;

/// Sums of rows.
#[pyclass(frozen, module = "wiski._core")]
pub(crate) struct Shard(Shared<Sums>);

#[pymethods]
impl Shard {
    /// No rows yet, in the shape that the bytes hold.
    #[new]
    fn new(py: Python<'_>, shape: &[u8]) -> PyResult<Self> {
        detached(py, || Ok(Self(Shared::new(Sums::new(&Shape::from_bytes(shape)?)))))
    }

    /// Adds rows, or takes them away: all or none.
    #[pyo3(signature = (x, y, noise=None, forget=false))]
    fn learn(
        &self,
        py: Python<'_>,
        x: PyReadonlyArray2<'_, f64>,
        y: PyReadonlyArray1<'_, f64>,
        noise: Option<PyReadonlyArray1<'_, f64>>,
        forget: bool,
    ) -> PyResult<()> {
        let width = self.0.brief(py, |shard| Ok(shard.shape().input_dim()))?;
        let rows = Rows::of(&x).of_width(width)?;
        let (y, noise) = (column(&y), noise.as_ref().map(column));
        rows.check_finite()?;
        check_column("y", &y, rows.len())?;
        noise.as_ref().map_or(Ok(()), |n| check_column("noise", n, rows.len()))?;
        self.0.long(py, |shard| {
            let mut new = shard.clone();
            for (range, x) in rows.blocks() {
                let noise = noise.as_ref().map(|n| &n[range.clone()]);
                let done = if forget {
                    new.forget_batch(&x, &y[range.clone()], noise)
                } else {
                    new.observe_batch(&x, &y[range.clone()], noise)
                };
                done.map_err(|error| offset(error, range.start))?;
            }
            *shard = new;
            Ok(())
        })
    }

    /// Adds sums that came as bytes, or takes them away.
    #[pyo3(signature = (bytes, forget=false))]
    fn merge(&self, py: Python<'_>, bytes: &[u8], forget: bool) -> PyResult<()> {
        self.0.long(py, |shard| {
            let other = Sums::from_bytes_of(bytes, shard.shape())?;
            Ok(if forget { shard.unmerge(&other) } else { shard.merge(&other) }?)
        })
    }

    /// The model of all rows, with hyperparameters learned from the sums.
    fn fit(&self, py: Python<'_>) -> PyResult<Regressor> {
        self.0.interruptible(py, |shard, _| Regressor::of_stored(shard.fit()?))
    }

    /// The number of rows learned.
    #[getter]
    fn count(&self, py: Python<'_>) -> PyResult<f64> {
        self.0.brief(py, |shard| Ok(shard.count()))
    }

    /// The number of rows that lay further out than the grids may grow.
    #[getter]
    fn ignored(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.brief(py, |shard| Ok(shard.ignored()))
    }

    /// The names of the inputs, and of the target.
    #[getter]
    fn columns(&self, py: Python<'_>) -> PyResult<(Vec<String>, String)> {
        self.0.brief(py, |shard| {
            let columns = shard.shape().columns();
            Ok((columns.inputs.clone(), columns.target.clone()))
        })
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        detached(py, || Ok(Self(Shared::new(Sums::from_bytes(bytes)?))))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.0.long(py, |shard| Ok(shard.to_bytes()?))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((slf.get_type().getattr("from_bytes")?, (slf.get().to_bytes(slf.py())?,)))
    }
}
