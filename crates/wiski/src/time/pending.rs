//! A fit beside the stream.
//!
//! It begins with the rows in memory at one row and takes over at another, which is known from the beginning: what a model
//! says depends on its rows alone, not on how fast the machine is. A model that is saved or copied in between has the rows
//! that the fit began with and does it when it is due.

use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::running::Running;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::threads;

/// What a fit leads to: the numbers of the window's steps, and the filter at its end.
type Refitted = (Vec<i64>, Running);

/// A fit that is under way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Pending {
    /// The rows seen when it began, and when it takes over.
    pub(super) begun: u64,
    pub(super) due: u64,
    #[serde(skip)]
    pub(super) work: Option<Work>,
}

impl Clone for Pending {
    /// A copy does the same work when it is due.
    fn clone(&self) -> Self {
        Self { begun: self.begun, due: self.due, work: None }
    }
}

/// A thread that fits.
#[derive(Debug)]
pub(super) struct Work {
    handle: Option<JoinHandle<Result<Refitted>>>,
    interrupt: Interrupt,
}

impl Work {
    /// Begins to fit, if there are threads.
    pub(super) fn begin(fit: impl FnOnce() -> Result<Refitted> + Send + 'static) -> Option<Self> {
        if !cfg!(feature = "threads") {
            return None;
        }
        let interrupt = Interrupt::new();
        let watched = interrupt.clone();
        // Whoever waits for an answer is more urgent.
        let work = move || threads::with_share(1, || watched.watch(fit));
        let handle = std::thread::Builder::new().name("fit".into()).spawn(work).ok()?;
        Some(Self { handle: Some(handle), interrupt })
    }

    /// The result, once it is there.
    pub(super) fn wait(mut self) -> Result<Refitted> {
        let handle = self.handle.take().ok_or(Error::NotReady { operation: "a fit" })?;
        // A panic there is a broken promise of this library, and goes on here.
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// What nobody waits for ends early.
impl Drop for Work {
    fn drop(&mut self) {
        self.interrupt.set();
    }
}
