//! Regressors of several targets in one file.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use wiski::persist::{self, Persistent, Stored};

use crate::errors::{detached, reject};
use crate::regressor::Regressor;

/// One regressor for each target, in their order.
#[derive(Serialize, Deserialize)]
struct Targets(Vec<Stored>);

impl Persistent for Targets {
    const KIND: &'static str = "targets";
}

/// Writes regressors of several targets to a file.
#[pyfunction]
pub(crate) fn save_several(py: Python<'_>, models: Vec<Bound<'_, Regressor>>, path: PathBuf) -> PyResult<()> {
    let stored = models.iter().map(|model| model.get().stored(py)).collect::<PyResult<Vec<Stored>>>()?;
    detached(py, || Ok(persist::save(&path, &Targets(stored))?))
}

/// The regressors of a file; `None` if it holds anything else.
#[pyfunction]
pub(crate) fn load_several(py: Python<'_>, path: PathBuf) -> PyResult<Option<Vec<Regressor>>> {
    detached(py, || {
        if persist::header(&path)?.kind != Targets::KIND {
            return Ok(None);
        }
        let Targets(stored) = persist::load(&path)?;
        let width = stored.first().map(|first| first.columns.inputs.len());
        if width.is_none() || stored.iter().any(|one| Some(one.columns.inputs.len()) != width) {
            return Err(reject("targets", "a file of several targets has one with other columns, or none"));
        }
        stored.into_iter().map(Regressor::of_stored).collect::<Result<_, _>>().map(Some)
    })
}
