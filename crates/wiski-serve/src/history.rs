//! What is kept of the last rows for the figures of a model: bounded, since the model was loaded.

use std::collections::VecDeque;
use std::time::Duration;

use wiski::persist::{Answer, Target};
use wiski_figures::{Coverage, CoverageWindows, Residuals};

use crate::served::Step;

/// Rows that are kept.
const ROWS: usize = 1500;
/// Durations that are kept of each kind.
const DURATIONS: usize = 1000;
/// The rows of a window of the coverage; beyond the most windows, neighbors merge and their length doubles.
const WINDOW: usize = 100;
const WINDOWS: usize = 200;
/// Standardized residuals beyond this fall into the outer bins of their histogram.
const TAIL: f64 = 4.0;
const BINS: usize = 32;

/// A row and what was said about it before.
#[derive(Debug, Clone, Copy)]
pub struct Past {
    /// Its number in the stream.
    pub row: f64,
    /// Its time; NaN if it has none.
    pub time: f64,
    /// Its first two inputs; NaN if there are fewer.
    pub x: [f64; 2],
    /// Its target; NaN for a class.
    pub y: f64,
    /// How many standard deviations it was off; NaN for classes and in the warm-up.
    pub z: f64,
}

/// The last rows, coverage by windows, durations.
#[derive(Debug, Clone)]
pub struct History {
    rows: VecDeque<Past>,
    intervals: CoverageWindows,
    /// Seconds that predictions took, and changes with their way to the disk.
    durations: [VecDeque<f64>; 2],
}

impl Default for History {
    fn default() -> Self {
        let durations = [VecDeque::new(), VecDeque::new()];
        Self { rows: VecDeque::new(), intervals: CoverageWindows::new(WINDOW, WINDOWS), durations }
    }
}

impl History {
    /// Takes in a row.
    pub fn push(&mut self, step: &Step) {
        let y = match step.target {
            Target::Value(y) => y,
            _ => f64::NAN,
        };
        let z = match step.answer {
            Some(Answer::Value(p)) => (y - p.mean) / p.std(),
            _ => f64::NAN,
        };
        let x = [0, 1].map(|i| step.x.get(i).copied().unwrap_or(f64::NAN));
        let row = step.row as f64;
        if self.rows.len() == ROWS {
            self.rows.pop_front();
        }
        self.rows.push_back(Past { row, time: step.time.unwrap_or(f64::NAN), x, y, z });
        let Some(inside) = step.inside else { return };
        self.intervals.push(step.row, inside, step.size.unwrap_or(f64::NAN));
    }

    /// Takes in how long a prediction took, or a change.
    pub fn took(&mut self, is_change: bool, time: Duration) {
        let durations = &mut self.durations[usize::from(is_change)];
        if durations.len() == DURATIONS {
            durations.pop_front();
        }
        durations.push_back(time.as_secs_f64());
    }

    /// The last rows.
    pub fn rows(&self) -> impl Iterator<Item = &Past> {
        self.rows.iter()
    }

    /// The last durations in milliseconds, in ascending order.
    pub fn durations(&self, is_change: bool) -> Vec<f64> {
        let mut all: Vec<f64> = self.durations[usize::from(is_change)].iter().map(|s| 1e3 * s).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Coverage by windows.
    pub fn coverage(&self, level: f64, size_name: &str) -> Coverage {
        self.intervals.figure(level, size_name)
    }

    /// Standardized residuals of the last rows.
    pub fn residuals(&self) -> Residuals {
        let known: Vec<&Past> = self.rows.iter().filter(|past| past.z.is_finite()).collect();
        let width = 2.0 * TAIL / BINS as f64;
        let mut counts = vec![0.0; BINS];
        for past in &known {
            let bin = ((past.z + TAIL) / width).clamp(0.0, (BINS - 1) as f64) as usize;
            counts[bin] += 1.0;
        }
        Residuals {
            title: String::new(),
            x_label: "row".into(),
            x: known.iter().map(|past| past.row).collect(),
            z: known.iter().map(|past| past.z).collect(),
            edges: (0..=BINS).map(|i| -TAIL + width * i as f64).collect(),
            counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wiski::Prediction;

    #[test]
    fn memory_is_bounded_and_no_window_is_lost() {
        let mut history = History::default();
        let answer = Answer::Value(Prediction { mean: 0.0, variance: 0.0, noise: 4.0 });
        for i in 0..100_000_u64 {
            let y = (i % 5) as f64;
            history.push(&Step {
                row: i + 1,
                x: &[0.5],
                time: None,
                target: Target::Value(y),
                answer: Some(&answer),
                interval: None,
                inside: Some(i % 10 != 0),
                size: Some(2.0),
            });
            history.took(i % 2 == 0, Duration::from_micros(i));
        }
        assert_eq!((history.rows.len(), history.durations(true).len()), (ROWS, DURATIONS));
        let coverage = history.coverage(0.9, "");
        assert!(coverage.rows.len() < WINDOWS && coverage.rows.len() >= WINDOWS / 4);
        assert!(coverage.inside.iter().all(|share| (share - 0.9).abs() < 1e-12));
        assert!(coverage.size.iter().all(|size| *size == 2.0));
        assert_eq!(coverage.rows.last(), Some(&100_000.0));
        let residuals = history.residuals();
        assert_eq!(residuals.counts.iter().sum::<f64>(), ROWS as f64);
        // Deviations of 0, ½, 1, 1½ and 2.
        assert_eq!(residuals.counts.iter().filter(|count| **count > 0.0).count(), 5);
    }
}
