//! What a report on a regression needs to know of its stream, in constant memory.

use super::course::Course;
use super::history::History;
use super::thinned::Thinned;
use super::{INTERVAL_WINDOW, MOST_WINDOWS, Report};
use crate::intervals::percent;
use std::f64::consts::TAU;
use wiski::Prediction;
use wiski_figures::{Calibration, CoverageWindows, Hyperparameters, LearningCurves, Residuals};

/// Bins of the probability integral transform, and of the nominal levels 0.05, 0.1, …, 0.95, 0.99.
const BINS: usize = 20;

/// Where 0.95 stands among the levels.
const LEVEL_95: usize = 18;

/// The histogram of residuals: 40 bins of a quarter from −5 to 5.
const REACH: f64 = 5.0;
const BARS: usize = 40;

/// Errors in deviations are standard normal if predictions are right.
pub(super) const STANDARD: Prediction = Prediction { mean: 0.0, variance: 1.0, noise: 0.0 };

/// Fed with each prediction and the target that followed; memory and time a row do not depend on their number.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    unit: String,
    skipped: u64,
    /// Squared errors, negative log densities, and how many targets lay inside the 95 % interval.
    course: Course,
    /// Standardized errors up to which a target lies inside each level's interval, and counts between them.
    reach: [f64; BINS],
    inside: [f64; BINS + 1],
    /// Inner edges of the bins of the integral transform as standardized errors, and counts.
    edges: [f64; BINS - 1],
    pit: [f64; BINS],
    bars: [f64; BARS],
    sample: Thinned,
    /// The intervals that were given, which need not be Gaussian.
    intervals: CoverageWindows,
    level: f64,
    history: History,
}

impl Recorder {
    /// A recorder for a target in this unit (may be empty).
    pub(crate) fn new(unit: &str) -> Self {
        Self {
            unit: unit.into(),
            skipped: 0,
            course: Course::new(),
            reach: std::array::from_fn(|i| STANDARD.quantile(f64::midpoint(1.0, level(i)))),
            inside: [0.0; BINS + 1],
            edges: std::array::from_fn(|i| STANDARD.quantile((i + 1) as f64 / BINS as f64)),
            pit: [0.0; BINS],
            bars: [0.0; BARS],
            sample: Thinned::new(),
            intervals: CoverageWindows::new(INTERVAL_WINDOW, MOST_WINDOWS),
            level: 0.95,
            history: History::new(),
        }
    }

    /// Takes in a prediction of `y` (`std` with the noise). A row without a density, because something is not
    /// finite or `std` is not positive, is left out and counted as skipped.
    pub(crate) fn push(&mut self, row: u64, mean: f64, std: f64, y: f64) {
        let error = y - mean;
        let z = error / std;
        if !(error.is_finite() && z.is_finite() && std > 0.0) {
            self.skipped += 1;
            return;
        }
        let covered = z.abs() <= self.reach[LEVEL_95];
        let nll = 0.5 * (TAU.ln() + z * z) + std.ln();
        self.course.push(row, [error * error, nll, f64::from(u8::from(covered))]);
        self.inside[self.reach.partition_point(|&r| r < z.abs())] += 1.0;
        self.pit[self.edges.partition_point(|&e| e <= z)] += 1.0;
        // Outliers go to the outermost bars, where they show as heavy ends.
        let bar = (z + REACH) * (BARS as f64 / (2.0 * REACH));
        self.bars[(bar.max(0.0) as usize).min(BARS - 1)] += 1.0;
        self.sample.push(row as f64, z);
    }

    /// Takes in whether `y` lay in the interval that was given for it at a level, and how wide that was.
    pub(crate) fn push_interval(&mut self, row: u64, level: f64, inside: bool, width: f64) {
        self.level = level;
        self.intervals.push(row, inside, width);
    }

    /// Takes in the hyperparameters after a row.
    pub(crate) fn push_hyperparameters(&mut self, row: u64, values: &[(&str, f64)]) {
        self.history.push(row, values);
    }

    /// The number of predictions.
    pub(crate) fn rows(&self) -> f64 {
        self.course.total().rows
    }

    /// Bytes on the heap that grow with rows, if any do.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.course.bytes() + self.sample.bytes() + self.intervals.bytes()
    }

    /// The number of rows without a density.
    #[cfg(test)]
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    pub(crate) fn rmse(&self) -> f64 {
        (self.course.total().scores[0] / self.rows()).sqrt()
    }

    /// The mean negative log density.
    pub(crate) fn nll(&self) -> f64 {
        self.course.total().scores[1] / self.rows()
    }

    /// The share of targets inside the 95 % interval.
    pub(crate) fn coverage95(&self) -> f64 {
        self.course.total().scores[2] / self.rows()
    }

    pub(crate) fn learning_curves(&self, log_rows: bool) -> LearningCurves {
        let rmse = if self.unit.is_empty() { "RMSE".into() } else { format!("RMSE [{}]", self.unit) };
        let metrics = vec![
            self.course.metric(&rmse, log_rows, None, |s| (s.scores[0] / s.rows).max(0.0).sqrt()),
            self.course.metric("Negative log density", log_rows, None, |s| s.scores[1] / s.rows),
            self.course
                .metric("Inside the Gaussian 95 % interval", log_rows, Some(0.95), |s| s.scores[2] / s.rows),
        ];
        LearningCurves { title: String::new(), log_rows, metrics }
    }

    pub(crate) fn calibration(&self) -> Calibration {
        let rows = self.rows();
        let mut inside = 0.0;
        let observed = self.inside[..BINS].iter().map(|count| {
            inside += count;
            inside / rows
        });
        let observed = if rows > 0.0 { observed.collect() } else { Vec::new() };
        let nominal = (0..observed.len()).map(level).collect();
        Calibration { title: String::new(), rows, nominal, observed, pit: self.pit.to_vec() }
    }

    pub(crate) fn residuals(&self) -> Residuals {
        let (x, z) = self.sample.columns();
        let edges = (0..=BARS).map(|i| REACH * (2.0 * i as f64 / BARS as f64 - 1.0)).collect();
        Residuals { title: String::new(), x_label: "row".into(), x, z, edges, counts: self.bars.to_vec() }
    }

    pub(crate) fn hyperparameters(&self) -> Hyperparameters {
        self.history.figure()
    }

    /// Adds the headline figures and the figures to a report.
    pub(crate) fn add_to(&self, report: &mut Report) {
        let rmse = format!("{:.4} {}", self.rmse(), self.unit);
        report.headline.extend([
            ("Rows predicted".into(), format!("{}", self.rows())),
            ("Root mean squared error".into(), rmse.trim_end().into()),
            ("Negative log density".into(), format!("{:.4} per row", self.nll())),
        ]);
        match self.intervals.all() {
            Some((inside, width)) => report.headline.extend([
                (format!("Inside the {} interval", percent(self.level)), format!("{:.1} %", 100.0 * inside)),
                ("Mean width of the interval".into(), format!("{width:.4} {}", self.unit).trim_end().into()),
            ]),
            None => report
                .headline
                .push(("Inside the 95 % interval".into(), format!("{:.1} %", 100.0 * self.coverage95()))),
        }
        if self.skipped > 0 {
            report.headline.push(("Rows without a density".into(), self.skipped.to_string()));
        }
        report.figures.push(Box::new(self.learning_curves(true)));
        if self.intervals.all().is_some() {
            let unit = if self.unit.is_empty() { String::new() } else { format!(" [{}]", self.unit) };
            report.figures.push(Box::new(self.intervals.figure(self.level, &format!("Mean width{unit}"))));
        }
        report.figures.push(Box::new(self.calibration()));
        report.figures.push(Box::new(self.residuals()));
        report.figures.push(Box::new(self.hyperparameters()));
    }
}

fn level(i: usize) -> f64 {
    if i + 1 == BINS { 0.99 } else { (i + 1) as f64 / BINS as f64 }
}
