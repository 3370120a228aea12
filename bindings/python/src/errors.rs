//! Errors of the library as exceptions of the family `wiski.WiskiError`, and the guard around every call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use wiski::model::{Encoder, FeatureMap};
use wiski::{Error, Interrupt};

/// What a call of the library can end in.
pub(crate) enum Failure {
    /// The library rejected.
    Library(Error),
    /// The library panicked, or had panicked before while it changed this model.
    Internal(String),
    /// There is no memory for an array of so many numbers.
    Memory { what: &'static str, shape: [usize; 2] },
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
            Failure::Memory { what, shape: [rows, columns] } => {
                let size = rows as f64 * columns as f64 * 8.0 / f64::from(1 << 30);
                PyMemoryError::new_err(format!(
                    "there is no memory for {what}: {rows} × {columns} numbers are {size:.1} GiB"
                ))
            }
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

/// How often signals are heard while something takes long.
const HEARD_EVERY: Duration = Duration::from_millis(20);

/// The stack of a thread of Python's own, on most systems.
const STACK: usize = 8 << 20;

/// Runs a call of the library that may take seconds on a thread of its own, while this one hears signals and other Python
/// threads go on. A handler that raises, as that of Ctrl-C does, ends the call; others may use the model, which they
/// wait for.
pub(crate) fn interruptible<R: Send>(
    py: Python<'_>,
    f: impl FnOnce(&Interrupt) -> Result<R, Failure> + Send,
) -> PyResult<R> {
    let interrupt = Interrupt::new();
    let (result, done) = (Mutex::new(None), Condvar::new());
    let mut raised = None;
    thread::scope(|scope| {
        let work = || {
            let ended = guarded(|| interrupt.watch(|| f(&interrupt)));
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
            done.notify_all();
        };
        thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work)?;
        let is_done = || {
            let open = result.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = done.wait_timeout_while(open, HEARD_EVERY, |result| result.is_none());
            waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
        };
        while !py.detach(is_done) {
            if raised.is_none()
                && let Err(error) = py.check_signals()
            {
                raised = Some(error);
                interrupt.set();
            }
        }
        PyResult::Ok(())
    })?;
    match (raised, result.into_inner().unwrap_or_else(PoisonError::into_inner)) {
        (Some(error), _) => Err(error),
        (None, Some(result)) => Ok(result?),
        (None, None) => Err(Failure::Internal("a thread ended without a result".into()).into()),
    }
}

/// Rejects an array that there is no memory for. What is computed on the way may take `copies` as much.
pub(crate) fn check_memory(what: &'static str, shape: [usize; 2], copies: usize) -> Result<(), Failure> {
    let failure = Failure::Memory { what, shape };
    let numbers = shape[0].checked_mul(shape[1]).and_then(|n| n.checked_mul(copies));
    let Some(numbers) = numbers else { return Err(failure) };
    Vec::<f64>::new().try_reserve_exact(numbers).map_err(|_| failure)
}

/// A number to be read: six digits are enough to find it, and hide what rounding does.
pub(crate) fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// An error about a grid in the user's units, where its axes are the columns.
pub(crate) fn in_units(error: Error, encoder: Option<&Encoder>) -> Error {
    let Some(encoder) = encoder.filter(|e| matches!(e.map(), FeatureMap::Identity(_))) else { return error };
    let raw = |axis: usize, value: f64| {
        let scaling = encoder.scaling();
        Some(six_digits(value / scaling.factor.get(axis)? + scaling.shift.get(axis)?))
    };
    let raw = |axis, value| raw(axis, value).unwrap_or(value);
    match error {
        Error::OutsideGrid { axis, value, lo, hi, row } => {
            Error::OutsideGrid { axis, value: raw(axis, value), lo: raw(axis, lo), hi: raw(axis, hi), row }
        }
        Error::GridTooLarge { axis, value, points, limit } => {
            Error::GridTooLarge { axis, value: raw(axis, value), points, limit }
        }
        other => other,
    }
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
