//! Independent work side by side. Without the feature `threads` it is done in turn, with the same results.

use crate::interrupt;

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
    let present = interrupt::present();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| interrupt::within(present, b));
        let a = a();
        // A panic there is a broken promise of this library, and goes on here.
        (a, other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The results of `work` for each part, in their order; each part has a thread, where there are any.
pub(crate) fn map<P: Send, R: Send>(parts: Vec<P>, work: impl Fn(P) -> R + Sync) -> Vec<R> {
    if !cfg!(feature = "threads") || parts.len() < 2 {
        return parts.into_iter().map(work).collect();
    }
    let present = interrupt::present();
    std::thread::scope(|scope| {
        let (work, present) = (&work, &present);
        let start = |part| scope.spawn(move || interrupt::within(present.clone(), || work(part)));
        let handles: Vec<_> = parts.into_iter().map(start).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, R>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().map(join).collect()
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
        for n in 0..5 {
            let parts: Vec<usize> = (0..n).collect();
            assert_eq!(map(parts.clone(), |k| k * k), parts.iter().map(|k| k * k).collect::<Vec<_>>());
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
        let each = switch.watch(|| map(vec![(), (), ()], |()| interrupt::check()));
        assert_eq!(each, vec![stopped; 3]);
        assert_eq!(interrupt::check(), Ok(()));
        assert_eq!(switch.watch(|| Interrupt::new().watch(interrupt::check)), Ok(()));
        let panicked = std::panic::catch_unwind(|| switch.watch(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(interrupt::check(), Ok(()));
    }
}
