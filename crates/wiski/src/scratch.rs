//! Memory that a method on `&self` borrows for a moment.

use std::sync::Mutex;

/// A value used again from call to call; a second thread that comes at the same time gets a fresh one, so that nobody
/// waits. It holds nothing worth copying or comparing.
#[derive(Debug, Default)]
pub(crate) struct Scratch<T>(Mutex<T>);

impl<T: Default> Scratch<T> {
    /// Lends the value.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        match self.0.try_lock() {
            Ok(mut value) => f(&mut value),
            // In use, or left behind by a panic.
            Err(_) => f(&mut T::default()),
        }
    }
}

impl<T: Default> Clone for Scratch<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> PartialEq for Scratch<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
