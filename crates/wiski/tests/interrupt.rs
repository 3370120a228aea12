//! Long work ends soon after an interrupt, and nothing is lost by it.

use std::thread;
use std::time::{Duration, Instant};

use wiski::decide::{Optimizer, OptimizerSettings, Space};
use wiski::{Error, Features, Interrupt, OnlineRegressor, Settings};

fn row(i: u32) -> ([f64; 6], f64) {
    let x = [0.618, 0.755, 0.569, 0.33, 0.91, 0.147].map(|step: f64| (f64::from(i) * step).fract());
    (x, (6.0 * x[0] * x[1]).sin() + x[2] * x[3])
}

/// A model whose search at the end takes seconds.
fn young(rows: u32) -> OnlineRegressor {
    let settings = Settings { features: Features::Additive { directions: None }, ..Settings::default() };
    let mut model = OnlineRegressor::new(6, settings).unwrap();
    for i in 0..rows {
        let (x, y) = row(i);
        model.step(&x, y).unwrap();
    }
    model
}

#[test]
fn a_search_ends_soon_after_an_interrupt() {
    let model = young(1500);
    let mut late = 0;
    for after in [20, 60, 120, 250] {
        let (mut own, interrupt) = (model.clone(), Interrupt::new());
        let (ended, waited) = thread::scope(|scope| {
            let work = scope.spawn(|| (interrupt.watch(|| own.finish_search()), Instant::now()));
            thread::sleep(Duration::from_millis(after));
            interrupt.set();
            let at = Instant::now();
            let (ended, when) = work.join().unwrap();
            (ended, when.saturating_duration_since(at))
        });
        assert!(waited < Duration::from_millis(500), "{waited:?} after {after} ms");
        late += usize::from(ended == Err(Error::Interrupted));
        // As it was: every row is there, and the search is still to come.
        let x = row(7).0;
        assert_eq!(own.count(), model.count());
        if ended.is_err() {
            assert_eq!(own.predict(&x).unwrap(), model.predict(&x).unwrap());
            assert!(own.is_searching() && own.take_failure().is_none());
        }
    }
    assert!(late > 0, "every search had ended before it was interrupted");
}

#[test]
fn what_was_interrupted_comes_to_the_same_later() {
    let (mut stopped, mut whole) = (young(340), young(340));
    let interrupt = Interrupt::new();
    interrupt.set();
    assert_eq!(interrupt.watch(|| stopped.finish_search()), Err(Error::Interrupted));
    stopped.finish_search().unwrap();
    whole.finish_search().unwrap();
    for i in 2000..2020 {
        let x = row(i).0;
        assert_eq!(stopped.predict(&x).unwrap(), whole.predict(&x).unwrap());
    }
}

#[test]
fn rows_are_learned_whole_under_an_interrupt() {
    // The warm-up would end with one of these rows, and a search would come with another.
    let mut model = OnlineRegressor::new(6, Settings::default()).unwrap();
    let interrupt = Interrupt::new();
    interrupt.set();
    for i in 0..700 {
        let (x, y) = row(i);
        interrupt.watch(|| model.step(&x, y)).unwrap();
    }
    assert_eq!(model.count(), 700.0);
    assert!(!model.is_ready() && model.take_failure().is_none());
    model.finish_search().unwrap();
    assert!(model.is_ready() && model.count() == 700.0);
}

#[test]
fn a_proposal_is_interrupted() {
    let mut search = Optimizer::new(Space::unit(2).unwrap(), OptimizerSettings::default()).unwrap();
    for x in search.ask(20).unwrap() {
        search.tell(&x, x[0] * x[1]).unwrap();
    }
    let interrupt = Interrupt::new();
    interrupt.set();
    assert_eq!(interrupt.watch(|| search.ask(1)), Err(Error::Interrupted));
    assert!(search.pending().is_empty());
    assert_eq!(search.ask(1).unwrap().len(), 1);
}
