//! How long a unit of work takes: what it may take, and what a first slice of it says about the rest.
//!
//! The watch belongs to the thread that does the work, so that a loop deep inside a baseline can look at it. A loop says
//! how far it is ([`epoch`], [`row`]); it goes on, or ends because the budget of the unit is spent: the curve then ends
//! there. While only a slice is measured, everything ends once the slice is over, and [`Slice::estimate`] says how long all
//! of it would have taken.

use crate::results::processor_seconds;
use std::cell::RefCell;
use wiski::{Error, Result};

/// What a thread is doing, and since when.
#[derive(Debug, Clone)]
struct Watch {
    begin: f64,
    /// When the budget began.
    since: f64,
    /// Processor seconds after which no further row begins.
    budget: f64,
    /// Whether this is a slice, which may end anywhere.
    is_slice: bool,
    slice: Slice,
}

/// How far a slice of a unit came.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Slice {
    /// Steps of the warm-up: how many there were, and how many there are.
    pub epochs: (usize, usize),
    /// Rows (or steps of a search): how many there were, and how many there are.
    pub rows: (usize, usize),
    /// Processor seconds until the first row, and until the end of the slice.
    pub first_row: f64,
    /// See `first_row`.
    pub seconds: f64,
    /// The time of a row is proportional to (rows known before + rows)^exponent.
    pub growth: (f64, f64),
    /// Whether the work ended before the slice did.
    pub is_whole: bool,
}

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Does work that may take so many processor seconds; also says how long it took.
pub fn within<T>(budget: f64, work: impl FnOnce() -> T) -> (T, f64) {
    let (result, slice) = watched(Watch::new(budget, false), work);
    (result, slice.seconds)
}

/// Does a slice of work of so many processor seconds.
pub fn measured<T>(seconds: f64, work: impl FnOnce() -> anyhow::Result<T>) -> Slice {
    let (result, slice) = watched(Watch::new(seconds, true), work);
    Slice { is_whole: result.is_ok(), ..slice }
}

fn watched<T>(watch: Watch, work: impl FnOnce() -> T) -> (T, Slice) {
    let before = WATCH.replace(Some(watch));
    let result = work();
    let watch = WATCH.replace(before);
    let slice = watch.map(|w| Slice { seconds: processor_seconds() - w.begin, ..w.slice });
    (result, slice.unwrap_or_default())
}

impl Watch {
    fn new(budget: f64, is_slice: bool) -> Self {
        let begin = processor_seconds();
        Self { begin, since: begin, budget, is_slice, slice: Slice::default() }
    }

    fn is_over(&self) -> bool {
        processor_seconds() - self.since > self.budget
    }
}

/// Says that so many rows will follow a warm-up, and that the time of a row grows with some power of the rows known,
/// `before` of which are there already.
pub fn expect(rows: usize, before: usize, exponent: f64) {
    WATCH.with_borrow_mut(|watch| {
        if let Some(watch) = watch {
            (watch.slice.rows, watch.slice.growth) = ((0, rows), (before as f64, exponent));
        }
    });
}

/// Says that one more step of a warm-up is done. Ends a slice that is over.
pub fn epoch(done: usize, total: usize) -> Result<()> {
    WATCH.with_borrow_mut(|watch| match watch {
        Some(watch) => {
            watch.slice.epochs = (done, total);
            if watch.is_slice && watch.is_over() { Err(Error::Interrupted) } else { Ok(()) }
        }
        None => Ok(()),
    })
}

/// Says that so many rows (or steps of a search) are done; whether there is time for another. A slice ends here.
pub fn row(done: usize, total: usize) -> Result<bool> {
    WATCH.with_borrow_mut(|watch| {
        let Some(watch) = watch else { return Ok(true) };
        if done == 0 {
            watch.slice.first_row = processor_seconds() - watch.begin;
        }
        watch.slice.rows = (done, total);
        match (watch.is_over(), watch.is_slice) {
            (false, _) => Ok(true),
            (true, false) => Ok(false),
            // At least one row tells what a row takes.
            (true, true) if done == 0 => Ok(true),
            (true, true) => Err(Error::Interrupted),
        }
    })
}

/// Begins the budget anew.
pub fn restart() {
    WATCH.with_borrow_mut(|watch| {
        if let Some(watch) = watch {
            watch.since = processor_seconds();
        }
    });
}

/// Whether only a slice is being measured: figures and scores are of no use then.
pub fn is_slice() -> bool {
    WATCH.with_borrow(|watch| watch.as_ref().is_some_and(|w| w.is_slice))
}

impl Slice {
    /// The processor seconds that all of the work would have taken.
    pub fn estimate(&self) -> f64 {
        if self.is_whole {
            return self.seconds;
        }
        let share = |(done, total): (usize, usize)| total as f64 / (done.max(1)) as f64;
        if self.rows.0 == 0 {
            // The warm-up did not end: what rows take is not known, but one is hardly more than a step.
            let warm_up = self.seconds * share(self.epochs);
            return warm_up + self.over_rows(self.seconds / self.epochs.0.max(1) as f64);
        }
        self.first_row + self.over_rows((self.seconds - self.first_row) / self.rows.0 as f64)
    }

    /// The seconds of all rows, if the first take so long.
    fn over_rows(&self, first: f64) -> f64 {
        let ((before, exponent), rows) = (self.growth, self.rows.1 as f64);
        if exponent == 0.0 {
            return first * rows;
        }
        let before = before.max(1.0);
        first * before / (exponent + 1.0) * (((before + rows) / before).powf(exponent + 1.0) - 1.0)
    }
}

/// a and k of the power law y = a xᵏ that fits best in logarithms; `None` for fewer than three points above zero.
pub fn power_law(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let logs: Vec<(f64, f64)> =
        points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0).map(|(x, y)| (x.ln(), y.ln())).collect();
    if logs.len() < 3 {
        return None;
    }
    let n = logs.len() as f64;
    let (mx, my) = (logs.iter().map(|p| p.0).sum::<f64>() / n, logs.iter().map(|p| p.1).sum::<f64>() / n);
    let sxx: f64 = logs.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let sxy: f64 = logs.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    let k = sxy / sxx;
    (sxx > 0.0).then(|| ((my - k * mx).exp(), k))
}

/// ∫ a xᵏ from one place to another: what rows cost that were not run.
pub fn integral((a, k): (f64, f64), from: f64, to: f64) -> f64 {
    if (k + 1.0).abs() < 1e-9 {
        return a * (to / from).ln();
    }
    a * (to.powf(k + 1.0) - from.powf(k + 1.0)) / (k + 1.0)
}
