//! The newest rows of a series, as they came.

use serde::{Deserialize, Serialize};

use super::clock::Clock;

/// The newest rows, as they came.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    #[serde(with = "crate::saved::floats")]
    pub(super) times: Vec<f64>,
    /// Targets; those that are missing are `has`'s falses.
    #[serde(with = "crate::saved::floats")]
    pub(super) targets: Vec<f64>,
    pub(super) has: Vec<bool>,
    #[serde(with = "crate::saved::floats")]
    pub(super) inputs: Vec<f64>,
    /// The number of each row's step, from the first row on.
    pub(super) steps: Vec<i64>,
}

impl Window {
    pub(super) fn count(&self) -> usize {
        self.has.iter().filter(|has| **has).count()
    }

    /// The targets that there are.
    pub(super) fn known(&self) -> impl Iterator<Item = f64> + Clone {
        self.targets.iter().zip(&self.has).filter(|(_, has)| **has).map(|(y, _)| *y)
    }

    pub(super) fn push(&mut self, time: f64, step: i64, x: &[f64], y: Option<f64>) {
        self.times.push(time);
        self.steps.push(step);
        self.inputs.extend_from_slice(x);
        self.targets.push(y.unwrap_or(0.0));
        self.has.push(y.is_some());
    }

    /// A copy of the first rows.
    pub(super) fn first(&self, rows: usize, width: usize) -> Self {
        Self {
            times: self.times[..rows].to_vec(),
            targets: self.targets[..rows].to_vec(),
            has: self.has[..rows].to_vec(),
            inputs: self.inputs[..rows * width].to_vec(),
            steps: self.steps[..rows].to_vec(),
        }
    }

    pub(super) fn trim(&mut self, rows: usize, width: usize) {
        self.times.drain(..rows);
        self.steps.drain(..rows);
        self.inputs.drain(..rows * width);
        self.targets.drain(..rows);
        self.has.drain(..rows);
    }

    pub(super) fn x(&self, i: usize) -> &[f64] {
        let width = self.inputs.len() / self.times.len().max(1);
        &self.inputs[i * width..(i + 1) * width]
    }

    pub(super) fn target(&self, i: usize) -> Option<f64> {
        self.has[i].then(|| self.targets[i])
    }

    /// Numbers the steps of all rows; whether nearly all rows lie on steps.
    pub(super) fn count_steps(&mut self, clock: Clock, step: f64) -> bool {
        let mut off = 0;
        self.steps[0] = 0;
        for i in 1..self.times.len() {
            let gap = (clock.at(self.times[i]) - clock.at(self.times[i - 1])) / step;
            off += usize::from((gap - gap.round()).abs() > 0.1 || gap.round() < 1.0);
            self.steps[i] = self.steps[i - 1] + gap.round().min(1e12) as i64;
        }
        let span = (self.steps[self.steps.len() - 1] - self.steps[0]) as usize;
        20 * off <= self.times.len() && span <= 4 * self.times.len()
    }
}

/// The median of the gaps between times that differ.
pub(super) fn median_gap(times: &[f64]) -> f64 {
    let mut gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).filter(|g| *g > 0.0).collect();
    gaps.sort_by(f64::total_cmp);
    gaps.get(gaps.len() / 2).copied().unwrap_or(1.0)
}

/// Straight lines over gaps, the nearest value at the ends.
pub(super) fn fill_gaps(values: &mut [f64]) {
    let mut last: Option<usize> = None;
    for i in 0..values.len() {
        if values[i].is_nan() {
            continue;
        }
        let from = last.map_or(0, |l| l + 1);
        let left = last.map_or(values[i], |l| values[l]);
        let width = (i + 1 - from) as f64;
        for k in from..i {
            values[k] = left + (values[i] - left) * (k + 1 - from) as f64 / width;
        }
        last = Some(i);
    }
    let end = last.map_or(0.0, |l| values[l]);
    values.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = end);
}
