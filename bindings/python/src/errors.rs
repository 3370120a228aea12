//! Errors of the library as exceptions of the family `wiski.WiskiError`, and the guard around every call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyType;
use wiski::Error;

/// What a call of the library can end in.
pub(crate) enum Failure {
    /// The library rejected.
    Library(Error),
    /// The library panicked, or had panicked before while it changed this model.
    Internal(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match failure {
            Failure::Library(error) => raise(py, class_of(&error), error.to_string()),
            Failure::Internal(message) => raise(py, "InternalError", message),
        })
    }
}

/// A rejection by the binding itself.
pub(crate) fn reject(field: &str, reason: impl Into<String>) -> Failure {
    Failure::Library(Error::Config { field: field.into(), reason: reason.into() })
}

/// The exception of `wiski._errors` for an error.
fn class_of(error: &Error) -> &'static str {
    match error {
        Error::OutsideGrid { .. } | Error::GridTooLarge { .. } => "OffGridError",
        Error::Unsupported { .. } | Error::NotReady { .. } | Error::NotLearned { .. } => "UnsupportedError",
        Error::File { .. } | Error::Io { .. } => "FileError",
        _ => "WiskiError",
    }
}

fn raise(py: Python<'_>, class: &str, message: String) -> PyErr {
    let class = py.import("wiski._errors").and_then(|module| module.getattr(class));
    match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
        Ok(class) => PyErr::from_type(class, message),
        Err(_) => PyValueError::new_err(message),
    }
}

/// Runs a call of the library; a panic becomes a failure.
pub(crate) fn guarded<R>(f: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Failure::Internal(format!("a defect in wiski, please report it: {text}")))
    })
}

/// Runs a call of the library while other Python threads go on.
pub(crate) fn detached<R: Send>(
    py: Python<'_>,
    f: impl FnOnce() -> Result<R, Failure> + Send,
) -> PyResult<R> {
    Ok(py.detach(|| guarded(f))?)
}

/// The error of a row in a block, with the row of the whole.
pub(crate) fn offset(error: Error, first: usize) -> Error {
    match error {
        Error::NotFinite { field, value, row } => Error::NotFinite { field, value, row: row + first },
        Error::NotPositive { field, value, row } => Error::NotPositive { field, value, row: row + first },
        Error::OutsideGrid { axis, value, lo, hi, row } => {
            Error::OutsideGrid { axis, value, lo, hi, row: row + first }
        }
        Error::UnknownLabel { label, known, row } => Error::UnknownLabel { label, known, row: row + first },
        other => other,
    }
}
