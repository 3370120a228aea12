//! Snapshots for other threads: a model publishes, readers take the newest without waiting.

use std::sync::{Arc, PoisonError, RwLock};

use super::Snapshot;

/// The slot through which a model gives snapshots to other threads. A clone of the model gets a slot of its
/// own, so that two models never write to the same readers.
#[derive(Debug)]
pub(super) struct Published<T>(Arc<RwLock<Option<Arc<T>>>>);

impl<T> Default for Published<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Published<T> {
    fn clone(&self) -> Self {
        Self(Arc::new(RwLock::new(self.reader().latest())))
    }
}

impl<T> Published<T> {
    pub(super) fn reader(&self) -> Reader<T> {
        Reader { published: Arc::clone(&self.0) }
    }

    /// Whether anybody could take what is published.
    pub(super) fn has_readers(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    pub(super) fn set(&self, snapshot: Option<Arc<T>>) {
        // A reader that panicked while holding the lock has changed nothing.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}

/// Gives the newest published snapshot to any thread, without waiting for learning.
#[derive(Debug)]
pub struct Reader<T = Snapshot> {
    published: Arc<RwLock<Option<Arc<T>>>>,
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Self { published: Arc::clone(&self.published) }
    }
}

impl<T> Reader<T> {
    /// The newest snapshot; `None` before the warm-up is over.
    pub fn latest(&self) -> Option<Arc<T>> {
        self.published.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
