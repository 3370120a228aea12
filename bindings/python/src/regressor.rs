//! `Regressor`: an online regressor with the names of its columns.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::Snapshot;
use wiski::persist::{self, Columns, Stored};
use wiski::shard::Shape;
use wiski::{Error, Horizon, Interrupt, OnlineRegressor, Prediction};

use crate::errors::{Failure, check_memory, detached, guarded, in_units, interruptible, offset, reject};
use crate::estimator::{estimator_methods, warn_beyond};
use crate::rows::{Rows, check_column, column};
use crate::settings::{self, Parameters};
use crate::shared::Shared;
use crate::stats::Stats;
use crate::surface::Surface;

/// From so many rows on an image of the model is worth making.
pub(crate) const IMAGE_FROM: usize = 64;

/// An online Gaussian process regression; `wiski.OnlineGPRegressor` is made of it.
#[pyclass(frozen, module = "wiski._core")]
pub(crate) struct Regressor {
    state: Shared<State>,
    input_dim: usize,
}

impl Regressor {
    /// The model as files have it.
    pub(crate) fn stored(&self, py: Python<'_>) -> PyResult<Stored> {
        self.state.long(py, |state| Ok(state.stored()))
    }

    /// One with the same columns and another model.
    fn with_model(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&OnlineRegressor) -> wiski::Result<OnlineRegressor> + Send,
    ) -> PyResult<Self> {
        let state = self.state.long(py, |state| {
            Ok(State { rows: state.rows, ..State::new(state.columns.clone(), f(&state.model)?) })
        })?;
        Ok(Self::of(state))
    }
}

/// A mean and a covariance.
type Joint<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray2<f64>>);

/// Which rows are meant.
pub(crate) fn horizon(ahead: bool) -> Horizon {
    if ahead { Horizon::Ahead } else { Horizon::Next }
}

/// What a model says about a row; what it rejects, in the user's units.
fn said(model: &OnlineRegressor, x: &[f64]) -> wiski::Result<Prediction> {
    model.predict(x).map_err(|error| in_units(error, model.encoder()))
}

/// The standard deviation of an observation, or of the function.
fn deviation(p: &Prediction, noise: bool) -> f64 {
    if noise { p.std() } else { p.variance.sqrt() }
}

#[pymethods]
impl Regressor {
    #[new]
    fn new(input_dim: usize, parameters: Parameters, inputs: Vec<String>, target: String) -> PyResult<Self> {
        let model = guarded(|| Ok(OnlineRegressor::new(input_dim, parameters.settings(input_dim)?)?))?;
        let columns = Columns { inputs, target, ..Columns::default() };
        Ok(Self::of(State::new(columns, model)))
    }

    /// A model that has learned what statistics hold.
    #[staticmethod]
    fn from_stats(
        py: Python<'_>,
        stats: &Stats,
        parameters: Parameters,
        inputs: Vec<String>,
        target: String,
    ) -> PyResult<Self> {
        let (bounds, sums) = stats.parts()?;
        let model = interruptible(py, |_| {
            let mut settings = parameters.settings(bounds.len())?;
            settings.features = wiski::Features::Identity;
            settings.inputs = wiski::model::InputScaling::Bounds(bounds);
            Ok(OnlineRegressor::from_stats(sums, settings)?)
        })?;
        let columns = Columns { inputs, target, ..Columns::default() };
        Ok(Self::of(State { rows: model.count() as u64, ..State::new(columns, model) }))
    }

    /// Predicts and learns rows, a block at a time; between blocks other threads predict, and signals are heard.
    #[pyo3(signature = (x, y, noise=None, time=None, weight=None))]
    fn learn(
        &self,
        py: Python<'_>,
        x: PyReadonlyArray2<'_, f64>,
        y: PyReadonlyArray1<'_, f64>,
        noise: Option<PyReadonlyArray1<'_, f64>>,
        time: Option<PyReadonlyArray1<'_, f64>>,
        weight: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<()> {
        let rows = Rows::of(&x).of_width(self.input_dim)?;
        let (y, noise, time) = (column(&y), noise.as_ref().map(column), time.as_ref().map(column));
        let weight = weight.as_ref().map(column);
        self.state.brief(py, |state| rows.check_learned(state.model.settings()))?;
        weight.as_ref().map_or(Ok(()), |w| check_column("sample_weight", w, rows.len()))?;
        check_column("y", &y, rows.len())?;
        noise.as_ref().map_or(Ok(()), |n| check_column("noise", n, rows.len()))?;
        time.as_ref().map_or(Ok(()), |t| check_column("time", t, rows.len()))?;
        self.learn_rows(py, &rows, |model, x, row| {
            let (noise, time) = (noise.as_ref().map(|n| n[row]), time.as_ref().map(|t| t[row]));
            let weight = weight.as_ref().map_or(1.0, |w| w[row]);
            model.step_weighted(x, y[row], weight, noise, time).map(|_| ())
        })
    }

    /// Predicts and learns one row.
    #[pyo3(signature = (x, y, noise=None, time=None))]
    fn learn_one(
        &self,
        py: Python<'_>,
        x: Vec<f64>,
        y: f64,
        noise: Option<f64>,
        time: Option<f64>,
    ) -> PyResult<()> {
        let learn = |state: &mut State| {
            let stepped = state.change().step_with(&x, y, noise, time);
            stepped.map_err(|error| in_units(error, state.model.encoder()))?;
            state.rows += 1;
            Ok(())
        };
        if self.is_quick(py, 1)? {
            return self.state.long(py, learn);
        }
        self.state.interruptible(py, |state, _| learn(state))
    }

    /// Means, or means and standard deviations.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArray2<'py, f64>,
        with_std: bool,
        noise: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rows = Rows::of(&x).of_width(self.input_dim)?;
        let n = rows.len();
        warn_beyond(py, &self.state, &rows)?;
        if n == 1 {
            let row = rows.block(0..1);
            let p = self.state.brief(py, |state| Ok(said(&state.model, &row)?))?;
            let mean = PyArray1::from_slice(py, &[p.mean]);
            if !with_std {
                return Ok(mean.into_any());
            }
            return (mean, PyArray1::from_slice(py, &[deviation(&p, noise)]))
                .into_pyobject(py)
                .map(Bound::into_any);
        }
        let (mut mean, mut std) = (vec![0.0; n], vec![0.0; n]);
        detached(py, || {
            let image = if n >= IMAGE_FROM { self.state.lock()?.image() } else { None };
            for (range, block) in rows.blocks() {
                for (x, row) in block.chunks_exact(self.input_dim).zip(range) {
                    // Off the grid of the image the model itself may know what to do.
                    let p = match image.as_ref().map(|image| image.predict(x)) {
                        Some(Ok(p)) => Ok(p),
                        _ => said(&self.state.lock()?.model, x),
                    };
                    let p = p.map_err(|error| offset(error, row))?;
                    (mean[row], std[row]) = (p.mean, deviation(&p, noise));
                }
            }
            Ok(())
        })?;
        let mean = PyArray1::from_vec(py, mean);
        if !with_std {
            return Ok(mean.into_any());
        }
        (mean, PyArray1::from_vec(py, std)).into_pyobject(py).map(Bound::into_any)
    }

    /// The mean and the standard deviation at one row.
    fn predict_one(&self, py: Python<'_>, x: Vec<f64>, noise: bool) -> PyResult<(f64, f64)> {
        let p = self.state.brief(py, |state| Ok(said(&state.model, &x)?))?;
        Ok((p.mean, deviation(&p, noise)))
    }

    /// Half the width of intervals at a level, in standard deviations: for the row that comes next, or for rows ahead.
    fn quantile(&self, py: Python<'_>, level: f64, ahead: bool) -> PyResult<f64> {
        let one = Prediction { mean: 0.0, variance: 1.0, noise: 0.0 };
        self.state.brief(py, |state| Ok(state.model.interval(&one, level, horizon(ahead))?.upper))
    }

    /// How long the library takes for a prediction, in seconds: what a call from Python adds is measured against it.
    #[pyo3(name = "_seconds_per_prediction")]
    fn seconds_per_prediction(&self, py: Python<'_>, x: Vec<f64>, repeats: u32) -> PyResult<f64> {
        self.state.long(py, |state| {
            let start = std::time::Instant::now();
            for _ in 0..repeats {
                std::hint::black_box(state.model.predict(std::hint::black_box(&x))?);
            }
            Ok(start.elapsed().as_secs_f64() / f64::from(repeats))
        })
    }

    /// The joint mean and covariance.
    fn joint<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArray2<'py, f64>,
        noise: bool,
    ) -> PyResult<Joint<'py>> {
        let rows = Rows::of(&x).of_width(self.input_dim)?;
        let n = rows.len();
        // The covariance, and once more that of the standardized targets.
        check_memory("a covariance of all rows", [n, n], 2)?;
        let (mean, covariance) = self.state.long(py, |state| {
            let x = rows.block(0..n);
            let row_noise = |(row, x)| state.model.predict(x).map_err(|e| offset(e, row)).map(|p| p.noise);
            let noises = x.chunks_exact(self.input_dim).enumerate().map(row_noise);
            let noises = noises.collect::<Result<Vec<f64>, _>>()?;
            let h = state.model.coordinates(&x)?;
            let Some(process) = state.model.model() else { return Err(warming_up("a joint prediction")) };
            let (mut mean, mut covariance) = process.joint(&h)?;
            let scale = state.model.target_scale();
            mean.iter_mut().for_each(|m| *m = scale.shift + scale.scale * *m);
            covariance.iter_mut().for_each(|c| *c *= scale.scale * scale.scale);
            if noise {
                noises.iter().enumerate().for_each(|(i, own)| covariance[i * (n + 1)] += own);
            }
            Ok((mean, covariance))
        })?;
        Ok((PyArray1::from_vec(py, mean), matrix(py, covariance, n)?))
    }

    /// Values at rows of functions drawn from the posterior: one column for each function.
    fn sample<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArray2<'py, f64>,
        count: usize,
        seed: u64,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let rows = Rows::of(&x).of_width(self.input_dim)?;
        let n = rows.len();
        check_memory("values of drawn functions", [n, count], 1)?;
        let values = self.state.interruptible(py, |state, interrupt| {
            let x = rows.block(0..n);
            for (row, x) in x.chunks_exact(self.input_dim).enumerate() {
                state.model.predict(x).map_err(|error| offset(error, row))?;
            }
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut values = vec![0.0; n * count];
            for j in 0..count {
                if interrupt.is_set() {
                    return Err(Error::Interrupted.into());
                }
                let function = state.model.sample(&mut rng)?;
                for (row, x) in x.chunks_exact(self.input_dim).enumerate() {
                    values[row * count + j] = function.value(x).map_err(|error| offset(error, row))?;
                }
            }
            Ok(values)
        })?;
        matrix(py, values, n)
    }

    /// Un-learns rows.
    #[pyo3(signature = (x, y, noise=None))]
    fn forget(
        &self,
        py: Python<'_>,
        x: PyReadonlyArray2<'_, f64>,
        y: PyReadonlyArray1<'_, f64>,
        noise: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<()> {
        let rows = Rows::of(&x).of_width(self.input_dim)?;
        let (y, noise) = (column(&y), noise.as_ref().map(column));
        rows.check_finite()?;
        check_column("y", &y, rows.len())?;
        noise.as_ref().map_or(Ok(()), |n| check_column("noise", n, rows.len()))?;
        self.state.long(py, |state| {
            // All or nothing: what cannot be un-learned leaves the model as it was.
            let mut model = state.model.clone();
            for (row, x) in rows.block(0..rows.len()).chunks_exact(self.input_dim).enumerate() {
                let variance = noise.as_ref().map_or(1.0, |n| n[row]);
                model.forget_noisy(x, y[row], variance).map_err(|error| offset(error, row))?;
            }
            *state.change() = model;
            Ok(())
        })
    }

    /// Fits the hyperparameters to everything learned so far.
    fn refit(&self, py: Python<'_>) -> PyResult<()> {
        self.state.interruptible(py, |state, _| Ok(state.change().refit()?))
    }

    /// The shape of the model, with features that no longer change, as bytes: what a `Shard` starts from.
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.state.long(py, |state| {
            let mut stored = state.stored();
            stored.model.freeze_features()?;
            Ok(Shape::of(&stored)?.to_bytes().to_vec())
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// A model with the same scales, features and hyperparameters that has learned nothing.
    fn shard(&self, py: Python<'_>) -> PyResult<Self> {
        self.with_model(py, OnlineRegressor::shard)
    }

    /// The model as it would be after hypothetical rows.
    #[pyo3(signature = (x, y, noise=None))]
    fn conditioned(
        &self,
        py: Python<'_>,
        x: PyReadonlyArray2<'_, f64>,
        y: PyReadonlyArray1<'_, f64>,
        noise: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<Self> {
        let rows = Rows::of(&x).of_width(self.input_dim)?;
        let (y, noise) = (column(&y), noise.as_ref().map(column));
        check_column("y", &y, rows.len())?;
        self.with_model(py, |model| model.conditioned(&rows.block(0..rows.len()), &y, noise.as_deref()))
    }

    /// The model as it is now, for joint predictions with gradients.
    fn surface(&self, py: Python<'_>) -> PyResult<Surface> {
        let surface = self
            .state
            .long(py, |state| state.model.surface()?.ok_or_else(|| warming_up("a joint prediction")))?;
        Ok(Surface::of(surface, self.input_dim))
    }

    /// The log marginal likelihood of everything learned, in the user's units.
    fn log_evidence(&self, py: Python<'_>) -> PyResult<f64> {
        self.state.long(py, |state| {
            let Some(process) = state.model.model() else { return Err(warming_up("the evidence")) };
            let scale = state.model.target_scale().scale;
            Ok(process.evidence()?.value - state.model.count() * scale.ln())
        })
    }

    /// Names and values of the hyperparameters, in the model's units.
    fn hyperparameters(&self, py: Python<'_>) -> PyResult<Vec<(String, f64)>> {
        self.state
            .brief(py, |state| Ok(state.model.model().map_or_else(Vec::new, |m| m.hyperparameters().named())))
    }

    /// Running figures of the predictions made before each row was learned.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let now = |state: &mut State| Ok((*state.model.metrics(), state.model.settings().intervals.level));
        let (own, level) = self.state.brief(py, now)?;
        let figures = [
            ("rows", own.rows()),
            ("rmse", own.rmse()),
            ("nll", own.nll()),
            ("coverage95", own.coverage95()),
        ];
        settings::metrics(py, &figures, own.intervals(), level, "mean_width")
    }

    /// How often the hyperparameters were refitted.
    #[getter]
    fn refits(&self, py: Python<'_>) -> PyResult<usize> {
        self.state.brief(py, |state| Ok(state.model.refits()))
    }

    /// The name of the target.
    #[getter]
    fn target(&self, py: Python<'_>) -> PyResult<String> {
        self.state.brief(py, |state| Ok(state.columns.target.clone()))
    }
}

estimator_methods!(Regressor, OnlineRegressor, Snapshot, "this is a classifier; load it as one");

pub(crate) fn warming_up(operation: &'static str) -> Failure {
    Error::Unsupported { operation, reason: "the warm-up is not over" }.into()
}

/// Numbers row after row as a matrix of n rows.
pub(crate) fn matrix(py: Python<'_>, values: Vec<f64>, n: usize) -> PyResult<Bound<'_, PyArray2<f64>>> {
    let width = values.len().checked_div(n).unwrap_or(0);
    PyArray1::from_vec(py, values).reshape([n, width])
}
