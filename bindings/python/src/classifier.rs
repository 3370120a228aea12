//! `Classifier`: an online classifier with the names of its columns.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::{PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use wiski::model::{ClassPrediction, ClassSnapshot};
use wiski::persist::{self, Columns, LabelKind, Stored};
use wiski::{Classes, Error, Interrupt, OnlineClassifier, Unseen};

use crate::errors::{Failure, detached, guarded, in_units, offset, reject};
use crate::estimator::{estimator_methods, warn_beyond};
use crate::regressor::{IMAGE_FROM, horizon, matrix};
use crate::rows::{Rows, check_column, column};
use crate::settings::{self, Parameters};
use crate::shared::Shared;

/// An online Gaussian process classifier; `wiski.OnlineGPClassifier` is made of it. Labels are text here.
#[pyclass(frozen, module = "wiski._core")]
pub(crate) struct Classifier {
    state: Shared<State>,
    input_dim: usize,
}

const KINDS: [(&str, LabelKind); 4] = [
    ("text", LabelKind::Text),
    ("integer", LabelKind::Integer),
    ("number", LabelKind::Number),
    ("boolean", LabelKind::Boolean),
];

/// Rejects codes that stand for no label.
fn check_codes(codes: &[i64], labels: &[String], rows: usize) -> Result<(), Failure> {
    if codes.len() != rows {
        return Err(Error::WrongLength { field: "y".into(), expected: rows, found: codes.len() }.into());
    }
    match codes.iter().find(|&&c| usize::try_from(c).map_or(true, |c| c >= labels.len())) {
        None => Ok(()),
        Some(code) => Err(reject("y", format!("{code} is the code of no label"))),
    }
}

#[pymethods]
impl Classifier {
    #[new]
    fn new(
        input_dim: usize,
        parameters: Parameters,
        inputs: Vec<String>,
        target: String,
        labels: Option<Vec<String>>,
        add_unseen: bool,
    ) -> PyResult<Self> {
        let unseen = if add_unseen { Unseen::Add } else { Unseen::Error };
        let model = guarded(|| {
            let settings = parameters.settings(input_dim)?;
            Ok(OnlineClassifier::new(input_dim, Classes { labels, unseen }, settings)?)
        })?;
        let columns = Columns { inputs, target, ..Columns::default() };
        Ok(Self::of(State::new(columns, model)))
    }

    /// Predicts and learns rows, a block at a time; between blocks other threads predict, and signals are heard.
    /// Each row has the code of one of the labels.
    #[pyo3(signature = (x, codes, labels, time=None, weight=None))]
    fn learn(
        &self,
        py: Python<'_>,
        x: PyReadonlyArray2<'_, f64>,
        codes: PyReadonlyArray1<'_, i64>,
        labels: Vec<String>,
        time: Option<PyReadonlyArray1<'_, f64>>,
        weight: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<()> {
        let rows = Rows::of(&x).of_width(self.input_dim)?;
        let (codes, time) = (codes.as_array().to_vec(), time.as_ref().map(column));
        let weight = weight.as_ref().map(column);
        self.state.brief(py, |state| rows.check_learned(state.model.settings()))?;
        weight.as_ref().map_or(Ok(()), |w| check_column("sample_weight", w, rows.len()))?;
        check_codes(&codes, &labels, rows.len())?;
        time.as_ref().map_or(Ok(()), |t| check_column("time", t, rows.len()))?;
        self.learn_rows(py, &rows, |model, x, row| {
            let (label, time) = (&labels[codes[row] as usize], time.as_ref().map(|t| t[row]));
            model.step_weighted(x, label, weight.as_ref().map_or(1.0, |w| w[row]), time).map(|_| ())
        })
    }

    /// Predicts and learns one row.
    #[pyo3(signature = (x, label, time=None))]
    fn learn_one(&self, py: Python<'_>, x: Vec<f64>, label: &str, time: Option<f64>) -> PyResult<()> {
        let learn = |state: &mut State| {
            state.change().step_with(&x, label, time)?;
            state.rows += 1;
            Ok(())
        };
        if self.is_quick(py, 1)? {
            return self.state.long(py, learn);
        }
        self.state.interruptible(py, |state, _| learn(state))
    }

    /// The class probabilities of rows: one column for each class.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let rows = Rows::of(&x).of_width(self.input_dim)?;
        let n = rows.len();
        warn_beyond(py, &self.state, &rows)?;
        if n == 1 {
            let row = rows.block(0..1);
            let p = self.state.brief(py, |state| Ok(state.model.predict(&row)?))?;
            return matrix(py, p.probabilities, 1);
        }
        let all = detached(py, || {
            let image = if n >= IMAGE_FROM { self.state.lock()?.image() } else { None };
            let mut all = Vec::new();
            for (range, block) in rows.blocks() {
                for (x, row) in block.chunks_exact(self.input_dim).zip(range) {
                    let p: wiski::Result<ClassPrediction> = match image.as_ref().map(|image| image.predict(x))
                    {
                        Some(Ok(p)) => Ok(p),
                        _ => self.state.lock()?.model.predict(x),
                    };
                    all.extend(p.map_err(|error| offset(error, row))?.probabilities);
                }
            }
            Ok(all)
        })?;
        matrix(py, all, n)
    }

    /// The class probabilities of one row.
    fn predict_one(&self, py: Python<'_>, x: Vec<f64>) -> PyResult<Vec<f64>> {
        self.state.brief(py, |state| Ok(state.model.predict(&x)?.probabilities))
    }

    /// The largest -log p of a class in a set at a level, for the row that comes next or for rows ahead; None if sets are
    /// those that probabilities say.
    fn quantile(&self, py: Python<'_>, level: f64, ahead: bool) -> PyResult<Option<f64>> {
        self.state.brief(py, |state| {
            let conformal = state.model.conformal();
            Ok(conformal.map(|conformal| conformal.quantile(level, horizon(ahead))).transpose()?)
        })
    }

    /// Un-learns rows.
    #[pyo3(signature = (x, codes, labels, weight=None))]
    fn forget(
        &self,
        py: Python<'_>,
        x: PyReadonlyArray2<'_, f64>,
        codes: PyReadonlyArray1<'_, i64>,
        labels: Vec<String>,
        weight: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<()> {
        let rows = Rows::of(&x).of_width(self.input_dim)?;
        let codes = codes.as_array().to_vec();
        let weight = weight.as_ref().map(column);
        rows.check_finite()?;
        weight.as_ref().map_or(Ok(()), |w| check_column("sample_weight", w, rows.len()))?;
        check_codes(&codes, &labels, rows.len())?;
        self.state.long(py, |state| {
            // All or nothing: what cannot be un-learned leaves the model as it was.
            let mut model = state.model.clone();
            for (row, x) in rows.block(0..rows.len()).chunks_exact(self.input_dim).enumerate() {
                let (label, weight) = (&labels[codes[row] as usize], weight.as_ref().map_or(1.0, |w| w[row]));
                model.forget_weighted(x, label, weight).map_err(|error| offset(error, row))?;
            }
            *state.change() = model;
            Ok(())
        })
    }

    /// Running figures of the predictions made before each row was learned.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let now = |state: &mut State| Ok((*state.model.metrics(), state.model.settings().intervals.level));
        let (own, level) = self.state.brief(py, now)?;
        let figures = [
            ("rows", own.rows()),
            ("accuracy", own.accuracy()),
            ("log_loss", own.log_loss()),
            ("calibration_error", own.calibration_error()),
        ];
        settings::metrics(py, &figures, own.sets(), level, "mean_set_size")
    }

    /// The labels known so far, in the order of the probabilities.
    #[getter]
    fn classes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.state.brief(py, |state| Ok(state.model.classes().to_vec()))
    }

    /// What the labels are: "text", "integer", "number" or "boolean".
    #[getter]
    fn label_kind(&self, py: Python<'_>) -> PyResult<&'static str> {
        let kind = self.state.brief(py, |state| Ok(state.columns.labels))?;
        let (name, _) = KINDS.iter().find(|(_, k)| *k == kind).unwrap_or(&KINDS[0]);
        Ok(name)
    }

    #[setter]
    fn set_label_kind(&self, py: Python<'_>, kind: &str) -> PyResult<()> {
        let known = KINDS.iter().find(|(name, _)| *name == kind).map(|(_, kind)| *kind);
        self.state.brief(py, |state| {
            state.columns.labels = known.ok_or_else(|| reject("labels", format!("{kind:?} is no kind")))?;
            Ok(())
        })
    }
}

estimator_methods!(Classifier, OnlineClassifier, ClassSnapshot, "this is a regressor; load it as one");
