//! Sums along a stream of any length, in bounded memory.
//!
//! Two records are kept. At row counts that grow by a tenth, the sums so far: for a logarithmic axis. And sums over
//! consecutive segments of equal length, which doubles (neighbors merge) whenever there are too many: for a linear
//! axis.

use wiski_figures::Metric;

/// The most checkpoints, and the most segments.
pub(super) const MOST: usize = 400;

/// Windows hold at least this many rows, or their scores are mostly noise.
const WINDOW: f64 = 25.0;

/// The most windows drawn on a linear axis.
const WINDOWS: usize = 100;

/// A number of rows, up to and including `last`, and the sums of three scores over them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub last: f64,
    pub rows: f64,
    pub scores: [f64; 3],
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.last = other.last;
        self.rows += other.rows;
        for (a, b) in self.scores.iter_mut().zip(other.scores) {
            *a += b;
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        let scores = std::array::from_fn(|i| self.scores[i] - earlier.scores[i]);
        Self { last: self.last, rows: self.rows - earlier.rows, scores }
    }
}

/// The sums along a stream.
#[derive(Debug, Clone)]
pub(super) struct Course {
    total: Sums,
    checkpoints: Vec<Sums>,
    /// The number of rows at the next checkpoint.
    due: f64,
    segments: Vec<Sums>,
    /// The segment being filled, and the rows it will hold.
    open: Sums,
    length: f64,
}

impl Course {
    pub(super) fn new() -> Self {
        Self {
            total: Sums::default(),
            checkpoints: Vec::with_capacity(MOST),
            due: 1.0,
            segments: Vec::with_capacity(MOST),
            open: Sums::default(),
            length: 1.0,
        }
    }

    pub(super) fn push(&mut self, row: u64, scores: [f64; 3]) {
        let one = Sums { last: row as f64, rows: 1.0, scores };
        self.total.add(&one);
        self.open.add(&one);
        // About 24 a decade, so that they suffice for 10¹⁶ rows.
        if self.total.rows >= self.due && self.checkpoints.len() < MOST {
            self.checkpoints.push(self.total);
            self.due = (self.due + 1.0).max((1.1 * self.due).ceil());
        }
        if self.open.rows >= self.length {
            self.segments.push(std::mem::take(&mut self.open));
            if self.segments.len() == MOST {
                self.merge();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        (self.checkpoints.capacity() + self.segments.capacity()) * size_of::<Sums>()
    }

    fn merge(&mut self) {
        for i in 0..MOST / 2 {
            let mut pair = self.segments[2 * i];
            pair.add(&self.segments[2 * i + 1]);
            self.segments[i] = pair;
        }
        self.segments.truncate(MOST / 2);
        self.length *= 2.0;
    }

    pub(super) fn total(&self) -> &Sums {
        &self.total
    }

    /// A score along the stream: what `score` makes of the sums so far and of those of each window.
    pub(super) fn metric(
        &self,
        name: &str,
        log_rows: bool,
        target: Option<f64>,
        score: impl Fn(&Sums) -> f64,
    ) -> Metric {
        let (so_far, windows) = if log_rows { self.by_checkpoints() } else { self.by_segments() };
        let column =
            |sums: &[Sums]| (sums.iter().map(|s| s.last).collect(), sums.iter().map(&score).collect());
        let (rows, cumulative) = column(&so_far);
        let (window_rows, windowed) = column(&windows);
        Metric { name: name.into(), rows, cumulative, window_rows, windowed, target }
    }

    fn by_checkpoints(&self) -> (Vec<Sums>, Vec<Sums>) {
        let mut so_far = self.checkpoints.clone();
        if so_far.last().is_some_and(|s| s.rows < self.total.rows) {
            so_far.push(self.total);
        }
        let mut windows = Vec::new();
        let mut start = Sums::default();
        for sums in &so_far {
            if sums.rows - start.rows >= WINDOW {
                windows.push(sums.since(&start));
                start = *sums;
            }
        }
        (so_far, windows)
    }

    fn by_segments(&self) -> (Vec<Sums>, Vec<Sums>) {
        let open = (self.open.rows > 0.0).then_some(self.open);
        let segments: Vec<Sums> = self.segments.iter().copied().chain(open).collect();
        let sum = |part: &[Sums]| {
            part.iter().fold(Sums::default(), |mut sum, s| {
                sum.add(s);
                sum
            })
        };
        let mut running = Sums::default();
        let so_far = segments.iter().map(|s| {
            running.add(s);
            running
        });
        let so_far = so_far.collect();
        let each = segments.len().div_ceil(WINDOWS).max((WINDOW / self.length).ceil() as usize).max(1);
        let windows = segments.chunks(each).map(sum).filter(|w| w.rows >= WINDOW);
        (so_far, windows.collect())
    }
}
