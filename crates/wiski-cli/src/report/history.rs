//! Hyperparameters along a stream, in bounded memory.

use wiski_figures::{Hyperparameters, Track};

/// The most checkpoints kept.
pub(super) const MOST: usize = 400;

/// Named values at some rows: every `stride`-th that was pushed, and the latest.
#[derive(Debug, Clone)]
pub(super) struct History {
    names: Vec<String>,
    pushed: usize,
    stride: usize,
    /// Row and values, in the order of the names; a name that came up later has fewer values before.
    checkpoints: Vec<(f64, Vec<f64>)>,
    latest: Option<(f64, Vec<f64>)>,
}

impl History {
    pub(super) fn new() -> Self {
        Self { names: Vec::new(), pushed: 0, stride: 1, checkpoints: Vec::new(), latest: None }
    }

    pub(super) fn push(&mut self, row: u64, values: &[(&str, f64)]) {
        for (name, _) in values {
            if !self.names.iter().any(|n| n == name) {
                self.names.push((*name).into());
            }
        }
        let value = |name: &String| values.iter().find(|(n, _)| n == name).map_or(f64::NAN, |v| v.1);
        let now = (row as f64, self.names.iter().map(value).collect::<Vec<f64>>());
        self.latest = Some(now.clone());
        if self.pushed.is_multiple_of(self.stride) {
            if self.checkpoints.len() == MOST {
                let mut keep = [false, true].into_iter().cycle();
                self.checkpoints.retain(|_| !keep.next().unwrap_or(false));
                self.stride *= 2;
            }
            // The checkpoint that fills the record stays on the doubled stride, as their number is even.
            self.checkpoints.push(now);
        }
        self.pushed += 1;
    }

    pub(super) fn figure(&self) -> Hyperparameters {
        let latest = self.latest.iter().filter(|l| self.checkpoints.last().is_none_or(|c| c.0 < l.0));
        let all: Vec<_> = self.checkpoints.iter().chain(latest).collect();
        let track = |(i, name): (usize, &String)| {
            let (rows, values) = all
                .iter()
                .filter_map(|(row, v)| v.get(i).filter(|v| v.is_finite()).map(|&v| (*row, v)))
                .unzip();
            Track { name: name.clone(), rows, values }
        };
        Hyperparameters { title: String::new(), tracks: self.names.iter().enumerate().map(track).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_bounded_and_ends_with_the_latest() {
        let mut history = History::new();
        for row in 0..10_000 {
            let mut values = vec![("noise", 1.0 / (1.0 + row as f64))];
            if row >= 5000 {
                values.push(("late", 2.0));
            }
            history.push(row, &values);
            assert!(history.checkpoints.len() <= MOST);
        }
        let tracks = history.figure().tracks;
        let noise = &tracks[0];
        assert!(noise.rows.len() > MOST / 2 && noise.rows.len() <= MOST + 1);
        assert_eq!((noise.rows[0], *noise.rows.last().unwrap()), (0.0, 9999.0));
        assert!(noise.rows.iter().zip(&noise.values).all(|(r, v)| *v == 1.0 / (1.0 + r)));
        let gaps: Vec<f64> = noise.rows.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(gaps[..gaps.len() - 1].iter().all(|&g| g == gaps[0]), "evenly spaced: {gaps:?}");
        assert!(tracks[1].rows[0] >= 5000.0 && tracks[1].values.iter().all(|&v| v == 2.0));
    }
}
