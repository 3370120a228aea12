//! Whether stated probabilities come true.

use super::Figure;
use super::axis::Axis;
use super::drawing::{Drawing, Sheet, band_key, dash_key, line_key};
use super::panel::Panel;
use super::style::{BLUE, GREY, WIDE_BAND};

/// The color of bars: light enough for a line upon it.
const BAR: &str = "#9ecae1";

/// Calibration of a regression.
#[derive(Debug, Clone, Default)]
pub struct Calibration {
    /// The heading; may be empty.
    pub title: String,
    /// The number of predictions.
    pub rows: f64,
    /// Nominal probabilities of central intervals, rising, and the shares of targets found inside.
    pub nominal: Vec<f64>,
    /// The shares found inside.
    pub observed: Vec<f64>,
    /// Counts of the probability integral transform in equal bins from 0 to 1.
    pub pit: Vec<f64>,
}

impl Figure for Calibration {
    fn name(&self) -> &'static str {
        "calibration"
    }

    fn heading(&self) -> &'static str {
        "Calibration"
    }

    fn reading(&self) -> &'static str {
        "Left: the share of targets inside each interval, which should follow the diagonal; below it the error bars \
         are too narrow, above it too wide. Right: where targets fell in their predictive distribution; a level \
         histogram is ideal, a U means error bars too narrow, a hump too wide, a slope a biased mean."
    }

    fn draw(&self) -> Drawing {
        let mut left = unit_panel("Coverage of central intervals", "nominal", "observed");
        let grid: Vec<f64> = (0..=100).map(|i| f64::from(i) / 100.0).collect();
        if !self.nominal.is_empty() {
            diagonal(&mut left, &grid, self.rows);
            left.line(&self.nominal, &self.observed, BLUE, 1.8);
            left.dots(&self.nominal, &self.observed, BLUE, 2.8, 1.0);
        }

        // Scaled to a density, whose ideal is 1 whatever the number of bins.
        let total: f64 = self.pit.iter().sum();
        let bins = self.pit.len() as f64;
        let density: Vec<f64> = self.pit.iter().map(|c| c / total.max(1.0) * bins).collect();
        let y = Axis::from_zero("density", density.iter().copied().chain([1.5]));
        let x = Axis::exact("probability integral transform", [0.0, 1.0]);
        let mut right = Panel::new("Place in the predictive distribution", x, y);
        if total > 0.0 {
            let edges: Vec<f64> = (0..=self.pit.len()).map(|i| i as f64 / bins).collect();
            right.bars(&edges, &density, BAR);
            let error = 1.96 * ((bins - 1.0).max(0.0) / total).sqrt();
            right.band(&[0.0, 1.0], &[(1.0 - error).max(0.0); 2], &[1.0 + error; 2], GREY, 2.0 * WIDE_BAND);
            right.rule(1.0);
        }
        let legend = vec![
            line_key("observed", BLUE),
            dash_key("ideal", GREY),
            band_key("95 % sampling error of independent rows", GREY, 2.0 * WIDE_BAND),
        ];
        Sheet { title: &self.title, columns: 2, size: (460.0, 400.0), legend }.draw(vec![left, right])
    }
}

/// Reliability of class probabilities: bins of the probability of the predicted class.
#[derive(Debug, Clone, Default)]
pub struct Reliability {
    /// The heading; may be empty.
    pub title: String,
    /// Mean stated probability, share of correct rows and number of rows of each bin.
    pub confidence: Vec<f64>,
    /// The share of correct rows of each bin.
    pub accuracy: Vec<f64>,
    /// The number of rows of each bin.
    pub counts: Vec<f64>,
}

impl Figure for Reliability {
    fn name(&self) -> &'static str {
        "calibration"
    }

    fn heading(&self) -> &'static str {
        "Reliability"
    }

    fn reading(&self) -> &'static str {
        "Left: how often the predicted class was right against how sure the model said it was; below the diagonal \
         it is overconfident. Right: how often it was that sure."
    }

    fn draw(&self) -> Drawing {
        let filled: Vec<usize> = (0..self.counts.len()).filter(|&i| self.counts[i] > 0.0).collect();
        let pick = |v: &[f64]| filled.iter().filter_map(|&i| v.get(i).copied()).collect::<Vec<f64>>();
        let (confidence, accuracy, counts) =
            (pick(&self.confidence), pick(&self.accuracy), pick(&self.counts));
        let mut left = unit_panel("Reliability", "stated probability", "share correct");
        if !filled.is_empty() {
            left.line(&[0.0, 1.0], &[0.0, 1.0], GREY, 1.2);
            let error = accuracy.iter().zip(&counts).map(|(p, n)| 1.96 * (p * (1.0 - p) / n).max(0.0).sqrt());
            let error: Vec<f64> = error.collect();
            let lower: Vec<f64> = accuracy.iter().zip(&error).map(|(a, e)| (a - e).max(0.0)).collect();
            let upper: Vec<f64> = accuracy.iter().zip(&error).map(|(a, e)| (a + e).min(1.0)).collect();
            left.band(&confidence, &lower, &upper, BLUE, WIDE_BAND);
            left.line(&confidence, &accuracy, BLUE, 1.8);
            left.dots(&confidence, &accuracy, BLUE, 2.8, 1.0);
        }
        let total: f64 = counts.iter().sum();
        let share: Vec<f64> = self.counts.iter().map(|c| c / total.max(1.0)).collect();
        let x = Axis::exact("stated probability", [0.0, 1.0]);
        let mut right = Panel::new("Confidence", x, Axis::from_zero("share of rows", share.iter().copied()));
        if total > 0.0 {
            let edges: Vec<f64> = (0..=share.len()).map(|i| i as f64 / share.len() as f64).collect();
            right.bars(&edges, &share, BAR);
        }
        let legend = vec![
            line_key("observed", BLUE),
            line_key("ideal", GREY),
            band_key("95 % sampling error of independent rows", BLUE, WIDE_BAND),
        ];
        Sheet { title: &self.title, columns: 2, size: (460.0, 400.0), legend }.draw(vec![left, right])
    }
}

fn unit_panel(title: &str, x: &str, y: &str) -> Panel {
    Panel::new(title, Axis::exact(x, [0.0, 1.0]), Axis::exact(y, [0.0, 1.0]))
}

/// The ideal, with the sampling error of a share among `rows` independent ones.
fn diagonal(panel: &mut Panel, grid: &[f64], rows: f64) {
    let error = |p: f64| 1.96 * (p * (1.0 - p) / rows.max(1.0)).sqrt();
    let lower: Vec<f64> = grid.iter().map(|&p| (p - error(p)).max(0.0)).collect();
    let upper: Vec<f64> = grid.iter().map(|&p| (p + error(p)).min(1.0)).collect();
    panel.band(grid, &lower, &upper, GREY, 2.0 * WIDE_BAND);
    panel.dashes(&[0.0, 1.0], &[0.0, 1.0], GREY);
}
