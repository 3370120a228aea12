//! A value that several Python threads use.

use std::sync::{Mutex, MutexGuard, TryLockError};

use pyo3::prelude::*;

use wiski::Interrupt;

use crate::errors::{Failure, detached, guarded, interruptible};

/// A model behind a lock. After a panic in the middle of a change it rejects to be used.
pub(crate) struct Shared<T>(Mutex<T>);

impl<T: Send> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>, Failure> {
        self.0.lock().map_err(|_| damaged())
    }

    /// Does something that may take long; other Python threads go on.
    pub(crate) fn long<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut T) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        detached(py, || f(&mut *self.lock()?))
    }

    /// Does something that may take seconds; other Python threads go on, and a signal can end it.
    pub(crate) fn interruptible<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut T, &Interrupt) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        interruptible(py, |interrupt| f(&mut *self.lock()?, interrupt))
    }

    /// Does something that takes microseconds. The interpreter is kept, since giving it up can cost a turn of
    /// every other thread; but for the lock, where another thread has it, one waits without.
    pub(crate) fn brief<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut T) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        match self.0.try_lock() {
            Ok(mut value) => Ok(guarded(|| f(&mut *value))?),
            Err(TryLockError::WouldBlock) => self.long(py, f),
            Err(TryLockError::Poisoned(_)) => Err(damaged().into()),
        }
    }
}

fn damaged() -> Failure {
    Failure::Internal("this model was damaged by an earlier internal error: load or fit it anew".into())
}
