//! Standardized residuals: errors over predicted standard deviations.

use super::Figure;
use super::axis::Axis;
use super::drawing::{Drawing, Sheet, dash_key, dot_key, line_key};
use super::panel::Panel;
use super::style::{BLUE, GREY, ORANGE};
use std::f64::consts::TAU;

/// Standardized residuals along the stream, and their histogram.
#[derive(Debug, Clone, Default)]
pub struct Residuals {
    /// The heading; may be empty.
    pub title: String,
    /// What is counted along the stream: rows, or a time.
    pub x_label: String,
    /// Places along the horizontal axis.
    pub x: Vec<f64>,
    /// The standardized residuals.
    pub z: Vec<f64>,
    /// Edges of the bins of the histogram, one more than counts.
    pub edges: Vec<f64>,
    /// The number of rows of each bin.
    pub counts: Vec<f64>,
}

impl Figure for Residuals {
    fn name(&self) -> &'static str {
        "residuals"
    }

    fn heading(&self) -> &'static str {
        "Standardized residuals"
    }

    fn reading(&self) -> &'static str {
        "Left: error over predicted standard deviation; 95 % should lie between the dashed lines, without a trend \
         or a change of width. Right: their histogram, which should follow the standard normal; heavy tails mean \
         outliers."
    }

    fn draw(&self) -> Drawing {
        let z = self.z.iter().copied().chain([-3.0, 3.0]);
        let x = Axis::padded(&self.x_label, self.x.iter().copied());
        let mut left = Panel::new("Along the stream", x, Axis::robust("error / standard deviation", z));
        left.dots(&self.x, &self.z, BLUE, 1.6, 0.45);
        if !left.is_empty() {
            left.rule(1.96);
            left.rule(-1.96);
        }

        let total: f64 = self.counts.iter().sum();
        let density: Vec<f64> = self
            .counts
            .iter()
            .zip(self.edges.windows(2))
            .map(|(c, e)| c / total.max(1.0) / (e[1] - e[0]))
            .collect();
        let (from, to) = match (self.edges.first(), self.edges.last()) {
            (Some(&a), Some(&b)) if a < b => (a, b),
            _ => (-4.0, 4.0),
        };
        let y = Axis::from_zero("density", density.iter().copied().chain([0.42]));
        let mut right = Panel::new("Histogram", Axis::exact("error / standard deviation", [from, to]), y);
        if total > 0.0 {
            right.bars(&self.edges, &density, "#9ecae1");
            let grid: Vec<f64> = (0..=120).map(|i| from + (to - from) * f64::from(i) / 120.0).collect();
            let normal: Vec<f64> = grid.iter().map(|z| (-0.5 * z * z).exp() / TAU.sqrt()).collect();
            right.line(&grid, &normal, ORANGE, 1.8);
        }
        let legend =
            vec![dot_key("residuals", BLUE), dash_key("± 1.96", GREY), line_key("standard normal", ORANGE)];
        Sheet { title: &self.title, columns: 2, size: (460.0, 340.0), legend }.draw(vec![left, right])
    }
}
