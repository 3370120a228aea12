//! Independent work side by side. Without the feature `threads` it is done in turn, with the same results.
//!
//! How many threads there are never changes a result: work is cut into parts whose number does not depend on it, and the
//! results of parts are put together in their order. Work that is done beside something more urgent has one thread
//! ([`with_share`]).

use std::cell::Cell;
use std::sync::OnceLock;

use crate::interrupt;

thread_local! {
    /// How many threads the work on this one may keep busy, itself included; `None` for all that the machine has.
    static SHARE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// How many threads the work on this one may keep busy, itself included.
pub(crate) fn available() -> usize {
    static MACHINE: OnceLock<usize> = OnceLock::new();
    if !cfg!(feature = "threads") {
        return 1;
    }
    let machine = || *MACHINE.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    SHARE.get().unwrap_or_else(machine)
}

/// Puts the share of before back, also after a panic.
struct Before(Option<usize>);

impl Drop for Before {
    fn drop(&mut self) {
        SHARE.set(self.0);
    }
}

/// Runs work that may keep so many threads busy.
pub(crate) fn with_share<R>(threads: usize, work: impl FnOnce() -> R) -> R {
    let _before = Before(SHARE.replace(Some(threads.max(1))));
    work()
}

/// Both results; `b` is computed on another thread meanwhile, if that is asked for and there are threads.
pub(crate) fn join<A, B: Send>(
    side_by_side: bool,
    a: impl FnOnce() -> A,
    b: impl FnOnce() -> B + Send,
) -> (A, B) {
    if !(cfg!(feature = "threads") && side_by_side) {
        let a = a();
        return (a, b());
    }
    let (present, share) = (interrupt::present(), available() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| with_share(share, || interrupt::within(present, b)));
        let a = with_share(share, a);
        // A panic there is a broken promise of this library, and goes on here.
        (a, other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The results of `work` for each part, in their order, by at most so many threads.
pub(crate) fn map<P: Send, R: Send>(most: usize, parts: Vec<P>, work: impl Fn(P) -> R + Sync) -> Vec<R> {
    let threads = most.min(available()).min(parts.len());
    if threads < 2 {
        return parts.into_iter().map(work).collect();
    }
    let (present, share) = (interrupt::present(), available() / threads);
    let (count, mut parts) = (parts.len(), parts.into_iter());
    let groups: Vec<Vec<P>> = (0..threads)
        .map(|i| parts.by_ref().take((i + 1) * count / threads - i * count / threads).collect())
        .collect();
    std::thread::scope(|scope| {
        let (work, present) = (&work, &present);
        let start = |group: Vec<P>| {
            let each = move || group.into_iter().map(work).collect::<Vec<R>>();
            scope.spawn(move || with_share(share, || interrupt::within(present.clone(), each)))
        };
        let handles: Vec<_> = groups.into_iter().map(start).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, Vec<R>>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().flat_map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::interrupt::Interrupt;

    #[test]
    fn results_come_in_the_order_of_the_work() {
        for side_by_side in [false, true] {
            assert_eq!(join(side_by_side, || 1, || "two"), (1, "two"));
        }
        for (n, most) in [(0, 1), (1, 3), (2, 2), (5, 2), (7, 3), (4, 9)] {
            let parts: Vec<usize> = (0..n).collect();
            let squares: Vec<usize> = parts.iter().map(|k| k * k).collect();
            assert_eq!(with_share(9, || map(most, parts, |k| k * k)), squares);
        }
    }

    #[test]
    fn it_reaches_the_threads_that_work_starts_and_nobody_else() {
        let switch = Interrupt::new();
        assert_eq!(switch.watch(interrupt::check), Ok(()));
        switch.set();
        let stopped = Err(Error::Interrupted);
        assert_eq!(switch.watch(interrupt::check), stopped);
        assert_eq!(
            switch.watch(|| join(true, interrupt::check, interrupt::check)),
            (stopped.clone(), stopped.clone())
        );
        let each = switch.watch(|| with_share(3, || map(3, vec![(), (), ()], |()| interrupt::check())));
        assert_eq!(each, vec![stopped; 3]);
        assert_eq!(interrupt::check(), Ok(()));
        assert_eq!(switch.watch(|| Interrupt::new().watch(interrupt::check)), Ok(()));
        let panicked = std::panic::catch_unwind(|| switch.watch(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(interrupt::check(), Ok(()));
    }
}
