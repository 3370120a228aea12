//! `Forecaster`: a series and what comes next.

use std::path::PathBuf;

use numpy::{PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wiski::time::{ComponentShare, ForecastSettings, Forecaster as Series, Lags, Scale, Seasons, TrendKind};
use wiski::{Column, persist};

use crate::errors::{Failure, check_memory, detached, guarded, reject};
use crate::regressor::matrix;
use crate::rows::{Rows, column};
use crate::shared::Shared;

/// A series; `wiski.Forecaster` is made of it. Times are numbers here.
#[pyclass(frozen, module = "wiski._core")]
pub(crate) struct Forecaster(Shared<Series>);

type Columns<'py> = Vec<Bound<'py, PyArray1<f64>>>;
/// Name, means and deviations of a component.
type Part<'py> = (String, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>);

fn trend(name: &str) -> Result<TrendKind, Failure> {
    match name {
        "linear" => Ok(TrendKind::Linear),
        "damped" => Ok(TrendKind::Damped),
        "level" => Ok(TrendKind::Level),
        _ => Err(reject("trend", format!("'{name}' is not linear, damped or level"))),
    }
}

/// All rows of an array, one after the other.
fn all(x: &PyReadonlyArray2<'_, f64>) -> Result<Vec<f64>, Failure> {
    let rows = Rows::of(x);
    rows.check_finite()?;
    Ok(rows.block(0..rows.len()).into_owned())
}

fn parts(py: Python<'_>, shares: Vec<ComponentShare>) -> Vec<Part<'_>> {
    let part = |s: ComponentShare| (s.name, PyArray1::from_vec(py, s.mean), PyArray1::from_vec(py, s.std));
    shares.into_iter().map(part).collect()
}

#[pymethods]
impl Forecaster {
    #[new]
    fn new(
        seasons: Option<Vec<f64>>,
        lags: Option<Vec<usize>>,
        trend_name: &str,
        scale: &str,
        clock: (bool, Option<f64>),
        inputs: usize,
        memory: usize,
    ) -> PyResult<Self> {
        let (dates, step) = clock;
        let model = guarded(|| {
            Ok(Series::new(ForecastSettings {
                seasons: seasons.map_or(Seasons::Auto, Seasons::Given),
                lags: lags.map_or(Lags::Auto, Lags::Given),
                trend: trend(trend_name)?,
                scale: Scale::named(scale)
                    .ok_or_else(|| reject("scale", format!("'{scale}' is not auto, linear or log")))?,
                dates,
                columns: vec![Column::Numeric; inputs],
                step,
                memory,
                ..ForecastSettings::default()
            })?)
        })?;
        Ok(Self(Shared::new(model)))
    }

    /// Learns rows in the order of their times; a target that is NaN is missing.
    fn extend(
        &self,
        py: Python<'_>,
        times: PyReadonlyArray1<'_, f64>,
        x: PyReadonlyArray2<'_, f64>,
        y: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<()> {
        let (times, x, y) = (column(&times).into_owned(), all(&x)?, column(&y).into_owned());
        self.0.interruptible(py, |model, _| Ok(model.extend(&times, &x, &y)?))
    }

    /// Learns rows without a fit: hyperparameters stay.
    fn advance(
        &self,
        py: Python<'_>,
        times: PyReadonlyArray1<'_, f64>,
        x: PyReadonlyArray2<'_, f64>,
        y: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<()> {
        let (times, x, y) = (column(&times).into_owned(), all(&x)?, column(&y).into_owned());
        self.0.interruptible(py, |model, _| Ok(model.advance(&times, &x, &y)?))
    }

    /// Learns a row; what was expected of it, mean and deviation, once there is a model.
    fn observe(
        &self,
        py: Python<'_>,
        time: f64,
        x: Vec<f64>,
        y: Option<f64>,
    ) -> PyResult<Option<(f64, f64)>> {
        self.0.long(py, |model| Ok(model.observe(time, &x, y)?.map(|said| (said.mean, said.std))))
    }

    /// Learns seasons, lags and hyperparameters from the rows in memory now.
    fn fit(&self, py: Python<'_>) -> PyResult<()> {
        self.0.interruptible(py, |model, _| Ok(model.fit()?))
    }

    /// The times of the next steps.
    fn next_times<'py>(&self, py: Python<'py>, steps: usize) -> PyResult<Bound<'py, PyArray1<f64>>> {
        check_memory("the times of steps", [steps, 1], 1)?;
        let times = self.0.long(py, |model| Ok(model.next_times(steps)?))?;
        Ok(PyArray1::from_vec(py, times))
    }

    /// Mean, deviation and both ends of an interval at later times.
    fn forecast<'py>(
        &self,
        py: Python<'py>,
        times: PyReadonlyArray1<'_, f64>,
        x: PyReadonlyArray2<'_, f64>,
        level: f64,
    ) -> PyResult<Columns<'py>> {
        let (times, x) = (column(&times).into_owned(), all(&x)?);
        check_memory("a forecast", [times.len(), 4], 1)?;
        let ahead = self.0.long(py, |model| Ok(model.forecast_at(&times, &x, level)?))?;
        let columns = [ahead.mean, ahead.std, ahead.lower, ahead.upper];
        Ok(columns.into_iter().map(|values| PyArray1::from_vec(py, values)).collect())
    }

    /// Paths drawn jointly: one row each.
    fn sample_paths<'py>(
        &self,
        py: Python<'py>,
        times: PyReadonlyArray1<'_, f64>,
        x: PyReadonlyArray2<'_, f64>,
        count: usize,
        seed: u64,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (times, x) = (column(&times).into_owned(), all(&x)?);
        check_memory("paths", [times.len(), count], 2)?;
        check_memory("the covariance of all steps", [times.len(), times.len()], 2)?;
        let paths = self.0.long(py, |model| Ok(model.sample_paths(&times, &x, count, seed)?))?;
        matrix(py, paths.concat(), count)
    }

    /// What each component adds at later times.
    fn components_ahead<'py>(
        &self,
        py: Python<'py>,
        times: PyReadonlyArray1<'_, f64>,
        x: PyReadonlyArray2<'_, f64>,
    ) -> PyResult<Vec<Part<'py>>> {
        let (times, x) = (column(&times).into_owned(), all(&x)?);
        let shares = self.0.long(py, |model| Ok(model.components_ahead(&times, &x)?))?;
        Ok(parts(py, shares))
    }

    /// The times of the rows in memory, and what each component adds there given all rows.
    fn components<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyArray1<f64>>, Vec<Part<'py>>)> {
        let (times, shares) = self.0.long(py, |model| Ok(model.components()?))?;
        Ok((PyArray1::from_vec(py, times), parts(py, shares)))
    }

    /// The number of rows seen.
    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.brief(py, |model| Ok(model.rows()))
    }

    /// Whether there is a model yet.
    #[getter]
    fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        self.0.brief(py, |model| Ok(model.is_ready()))
    }

    /// The number of inputs known ahead.
    #[getter]
    fn inputs(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.brief(py, |model| Ok(model.settings().columns.len()))
    }

    /// The periods of the seasons.
    #[getter]
    fn seasons(&self, py: Python<'_>) -> PyResult<Vec<f64>> {
        self.0.brief(py, |model| Ok(model.seasons()))
    }

    /// The lags, in steps.
    #[getter]
    fn lags(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.0.brief(py, |model| Ok(model.lags().to_vec()))
    }

    /// The scale on which components add up, once there is a model.
    #[getter]
    fn scale(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        self.0.brief(py, |model| Ok(model.scale().map(Scale::name)))
    }

    /// The time between two rows.
    #[getter]
    fn step(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.0.brief(py, |model| Ok(model.step()))
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.0.long(py, |model| Ok(persist::save(&path, model)?))
    }

    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(Self(Shared::new(detached(py, || Ok(persist::load(&path)?))?)))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        Ok(Self(Shared::new(detached(py, || Ok(persist::from_bytes(bytes)?))?)))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let read = slf.get_type().getattr("from_bytes")?;
        let bytes = slf.get().0.long(slf.py(), |model| Ok(persist::to_bytes(model)?))?;
        Ok((read, (PyBytes::new(slf.py(), &bytes),)))
    }
}
