//! What a report on a classification needs to know of its stream, in constant memory.

use super::course::{Course, Sums};
use super::history::History;
use super::{INTERVAL_WINDOW, MOST_WINDOWS, Report};
use crate::intervals::percent;
use wiski_figures::{CoverageWindows, Hyperparameters, LearningCurves, Reliability};

/// Bins of the stated probability.
const BINS: usize = 20;

/// Fed with each prediction and the class that followed; memory and time a row do not depend on their number.
#[derive(Debug, Clone)]
pub(crate) struct ClassRecorder {
    /// Correct rows, log-losses, and how many rows had one.
    course: Course,
    counts: [f64; BINS],
    confidence: [f64; BINS],
    correct: [f64; BINS],
    sets: CoverageWindows,
    level: f64,
    history: History,
}

impl ClassRecorder {
    pub(crate) fn new() -> Self {
        Self {
            course: Course::new(),
            counts: [0.0; BINS],
            confidence: [0.0; BINS],
            correct: [0.0; BINS],
            sets: CoverageWindows::new(INTERVAL_WINDOW, MOST_WINDOWS),
            level: 0.95,
            history: History::new(),
        }
    }

    /// Takes in a prediction: the probability that the class to come was given (`None` if it was not known yet,
    /// which has no log-loss), the probability of the predicted class, and whether that one came.
    pub(crate) fn push(&mut self, row: u64, probability: Option<f64>, confidence: f64, correct: bool) {
        let correct = f64::from(u8::from(correct));
        let loss = probability.map_or(0.0, |p| -p.max(f64::MIN_POSITIVE).ln());
        let scored = f64::from(u8::from(probability.is_some()));
        self.course.push(row, [correct, loss, scored]);
        if confidence.is_finite() {
            let bin = ((confidence.max(0.0) * BINS as f64) as usize).min(BINS - 1);
            self.counts[bin] += 1.0;
            self.confidence[bin] += confidence;
            self.correct[bin] += correct;
        }
    }

    /// Takes in whether the class was in the set that was given for it at a level, and how many classes that had.
    pub(crate) fn push_set(&mut self, row: u64, level: f64, inside: bool, size: f64) {
        self.level = level;
        self.sets.push(row, inside, size);
    }

    /// Takes in the hyperparameters after a row.
    pub(crate) fn push_hyperparameters(&mut self, row: u64, values: &[(&str, f64)]) {
        self.history.push(row, values);
    }

    /// The number of predictions.
    pub(crate) fn rows(&self) -> f64 {
        self.course.total().rows
    }

    pub(crate) fn accuracy(&self) -> f64 {
        accuracy(self.course.total())
    }

    /// The mean log-loss of the rows that have one.
    pub(crate) fn log_loss(&self) -> f64 {
        log_loss(self.course.total())
    }

    /// The mean distance, over rows, between how probable the likeliest class was said to be and how often it was right.
    fn calibration_error(&self) -> f64 {
        let off = self.confidence.iter().zip(&self.correct).map(|(said, right)| (said - right).abs());
        off.sum::<f64>() / self.counts.iter().sum::<f64>()
    }

    pub(crate) fn learning_curves(&self, log_rows: bool) -> LearningCurves {
        let metrics = vec![
            self.course.metric("Accuracy", log_rows, None, accuracy),
            self.course.metric("Log-loss", log_rows, None, log_loss),
        ];
        LearningCurves { title: String::new(), log_rows, metrics }
    }

    pub(crate) fn reliability(&self) -> Reliability {
        let mean = |sums: &[f64; BINS]| sums.iter().zip(&self.counts).map(|(s, n)| s / n.max(1.0)).collect();
        let (confidence, accuracy) = (mean(&self.confidence), mean(&self.correct));
        Reliability { title: String::new(), confidence, accuracy, counts: self.counts.to_vec() }
    }

    pub(crate) fn hyperparameters(&self) -> Hyperparameters {
        self.history.figure()
    }

    /// Adds the headline figures and the figures to a report.
    pub(crate) fn add_to(&self, report: &mut Report) {
        report.headline.extend([
            ("Rows predicted".into(), format!("{}", self.rows())),
            ("Accuracy".into(), format!("{:.2} %", 100.0 * self.accuracy())),
            ("Log-loss".into(), format!("{:.4} per row", self.log_loss())),
            ("Expected calibration error".into(), format!("{:.4}", self.calibration_error())),
        ]);
        report.figures.push(Box::new(self.learning_curves(true)));
        if let Some((inside, size)) = self.sets.all() {
            let level = self.level;
            report.headline.extend([
                (format!("Inside the {} set", percent(level)), format!("{:.1} %", 100.0 * inside)),
                ("Classes in a set, on average".into(), format!("{size:.2}")),
            ]);
            report.figures.push(Box::new(self.sets.figure(level, "Classes in a set, on average")));
        }
        report.figures.push(Box::new(self.reliability()));
        report.figures.push(Box::new(self.hyperparameters()));
    }
}

fn accuracy(sums: &Sums) -> f64 {
    sums.scores[0] / sums.rows
}

fn log_loss(sums: &Sums) -> f64 {
    sums.scores[1] / sums.scores[2]
}
