//! Ending long work from outside, as Ctrl-C does.
//!
//! A search for features or a refit may take seconds. Whoever starts one holds an [`Interrupt`] and runs the work under
//! it; another thread may set it off at any time. Long loops look at it every few milliseconds and end with
//! [`Error::Interrupted`]. What was learned before stays, as after any other error: a row is learned wholly or not at
//! all, and a search or refit that did not end is due again later.
//!
//! The present interrupt belongs to the thread that does the work and to those that it starts, so that no function in
//! between needs to know of it. Without one a look costs a nanosecond.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

thread_local! {
    static PRESENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// A switch by which another thread ends long work. Copies are the same switch.
///
/// ```
/// use wiski::{Error, Interrupt, OnlineRegressor, Settings};
///
/// let mut model = OnlineRegressor::new(1, Settings::default())?;
/// for i in 0..40 {
///     model.step(&[f64::from(i)], f64::from(i).sin())?;
/// }
/// let interrupt = Interrupt::new();
/// interrupt.set(); // by another thread, in earnest
/// assert_eq!(interrupt.watch(|| model.finish_warm_up()), Err(Error::Interrupted));
/// // Nothing is lost: the same again, without an interrupt.
/// model.finish_warm_up()?;
/// assert!(model.is_ready() && model.count() == 40.0);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// One that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the work that is watched.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs work that ends early once this is set. Within other watched work only this interrupt counts.
    pub fn watch<R>(&self, work: impl FnOnce() -> R) -> R {
        within(Some(self.clone()), work)
    }
}

/// Puts the interrupt of before back, also after a panic.
struct Before(Option<Interrupt>);

impl Drop for Before {
    fn drop(&mut self) {
        let before = self.0.take();
        PRESENT.with_borrow_mut(|present| *present = before);
    }
}

/// The interrupt of this thread, for threads that it starts.
pub(crate) fn present() -> Option<Interrupt> {
    PRESENT.with_borrow(Clone::clone)
}

/// Runs work under the interrupt of another thread.
pub(crate) fn within<R>(interrupt: Option<Interrupt>, work: impl FnOnce() -> R) -> R {
    let _before = Before(PRESENT.replace(interrupt));
    work()
}

/// Whether the work on this thread is to end, for loops that cannot fail.
pub(crate) fn is_set() -> bool {
    PRESENT.with_borrow(|present| present.as_ref().is_some_and(Interrupt::is_set))
}

/// An error if the work on this thread is to end.
pub(crate) fn check() -> Result<()> {
    if is_set() { Err(Error::Interrupted) } else { Ok(()) }
}
