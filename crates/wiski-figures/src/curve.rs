//! Functions of one variable: a fit, draws from the posterior, the parts of an additive model.

use super::Figure;
use super::axis::Axis;
use super::drawing::{Drawing, Sheet, band_key, dot_key, line_key, or_empty};
use super::panel::Panel;
use super::style::{BLUE, CYCLE, INK, NARROW_BAND, WIDE_BAND};

/// Radius of a data point.
const DOT: f64 = 2.2;

/// A fit in one dimension, with bands for the function and for observations of it.
#[derive(Debug, Clone, Default)]
pub struct Curve {
    /// The heading; may be empty.
    pub title: String,
    /// What runs along the horizontal axis.
    pub x_label: String,
    /// What runs along the vertical axis.
    pub y_label: String,
    /// Places along the horizontal axis.
    pub x: Vec<f64>,
    /// The mean at each place.
    pub mean: Vec<f64>,
    /// The band of the function.
    pub lower: Vec<f64>,
    /// The upper end of the band.
    pub upper: Vec<f64>,
    /// The band of observations; may be empty.
    pub lower_observed: Vec<f64>,
    /// The upper end of the band of observations.
    pub upper_observed: Vec<f64>,
    /// Data points; may be empty.
    pub data_x: Vec<f64>,
    /// The vertical places of data points.
    pub data_y: Vec<f64>,
}

impl Figure for Curve {
    fn name(&self) -> &'static str {
        "fit"
    }

    fn heading(&self) -> &'static str {
        "Fitted function"
    }

    fn reading(&self) -> &'static str {
        "The line is the mean; the darker band holds the function and the lighter band single observations, each \
         with 95 % probability. Where the darker band widens the model has seen little data."
    }

    fn draw(&self) -> Drawing {
        let y =
            [&self.mean, &self.lower, &self.upper, &self.lower_observed, &self.upper_observed, &self.data_y];
        let mut panel = Panel::new(
            "",
            Axis::exact(&self.x_label, self.x.iter().chain(&self.data_x).copied()),
            Axis::padded(&self.y_label, y.into_iter().flatten().copied()),
        );
        let mut legend = vec![line_key("mean", BLUE)];
        panel.band(&self.x, &self.lower_observed, &self.upper_observed, BLUE, WIDE_BAND);
        panel.band(&self.x, &self.lower, &self.upper, BLUE, NARROW_BAND);
        if !self.lower.is_empty() {
            legend.push(band_key("95 % of the function", BLUE, NARROW_BAND + WIDE_BAND));
        }
        if !self.lower_observed.is_empty() {
            legend.push(band_key("95 % of observations", BLUE, WIDE_BAND));
        }
        panel.dots(&self.data_x, &self.data_y, INK, DOT, 0.55);
        if !self.data_x.is_empty() {
            legend.push(dot_key("data", INK));
        }
        panel.line(&self.x, &self.mean, BLUE, 2.0);
        Sheet { title: &self.title, columns: 1, size: (860.0, 420.0), legend }.draw(vec![panel])
    }
}

/// Draws from the posterior in one dimension, over its mean.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// The heading; may be empty.
    pub title: String,
    /// What runs along the horizontal axis.
    pub x_label: String,
    /// What runs along the vertical axis.
    pub y_label: String,
    /// Places along the horizontal axis.
    pub x: Vec<f64>,
    /// The mean at each place.
    pub mean: Vec<f64>,
    /// The lower end of the band.
    pub lower: Vec<f64>,
    /// The upper end of the band.
    pub upper: Vec<f64>,
    /// The values of each function.
    pub draws: Vec<Vec<f64>>,
    /// The horizontal places of data points.
    pub data_x: Vec<f64>,
    /// The vertical places of data points.
    pub data_y: Vec<f64>,
}

impl Figure for Samples {
    fn name(&self) -> &'static str {
        "samples"
    }

    fn heading(&self) -> &'static str {
        "Draws from the posterior"
    }

    fn reading(&self) -> &'static str {
        "Each thin line is one function that the model holds possible after the data. Where the lines part, the \
         model does not know; their shape shows how smooth it takes the function to be."
    }

    fn draw(&self) -> Drawing {
        let y = [&self.mean, &self.lower, &self.upper, &self.data_y].into_iter().chain(&self.draws);
        let mut panel = Panel::new(
            "",
            Axis::exact(&self.x_label, self.x.iter().chain(&self.data_x).copied()),
            Axis::padded(&self.y_label, y.flatten().copied()),
        );
        panel.band(&self.x, &self.lower, &self.upper, BLUE, WIDE_BAND);
        for (i, draw) in self.draws.iter().enumerate() {
            panel.line(&self.x, draw, CYCLE[1 + i % (CYCLE.len() - 1)], 1.0);
        }
        panel.line(&self.x, &self.mean, BLUE, 2.4);
        panel.dots(&self.data_x, &self.data_y, INK, DOT, 0.7);
        let mut legend = vec![line_key("mean", BLUE)];
        if !self.lower.is_empty() {
            legend.push(band_key("95 % of the function", BLUE, WIDE_BAND));
        }
        legend.push(line_key("draws", CYCLE[1]));
        if !self.data_x.is_empty() {
            legend.push(dot_key("data", INK));
        }
        Sheet { title: &self.title, columns: 1, size: (860.0, 420.0), legend }.draw(vec![panel])
    }
}

/// The parts of an additive model.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    /// The heading; may be empty.
    pub title: String,
    /// What runs along the vertical axis.
    pub y_label: String,
    /// The parts.
    pub parts: Vec<Effect>,
}

/// One part of an additive model.
#[derive(Debug, Clone, Default)]
pub struct Effect {
    /// Its name.
    pub name: String,
    /// The share of the variance that it explains, from 0 to 1.
    pub share: f64,
    /// Places along the horizontal axis.
    pub x: Vec<f64>,
    /// The mean at each place.
    pub mean: Vec<f64>,
    /// The lower end of the band.
    pub lower: Vec<f64>,
    /// The upper end of the band.
    pub upper: Vec<f64>,
}

impl Figure for Effects {
    fn name(&self) -> &'static str {
        "effects"
    }

    fn heading(&self) -> &'static str {
        "Effect of each input"
    }

    fn reading(&self) -> &'static str {
        "Each panel shows what one input adds to the prediction, with a 95 % band; all panels share the vertical \
         scale, so steep panels matter more. The percentage is the share of the variance that the input explains."
    }

    fn draw(&self) -> Drawing {
        let y = self.parts.iter().flat_map(|e| [&e.mean, &e.lower, &e.upper]).flatten();
        let y = Axis::padded(&self.y_label, y.copied());
        let panels = self.parts.iter().map(|e| {
            let title = if e.share.is_finite() {
                format!("{} ({:.1} %)", e.name, 100.0 * e.share)
            } else {
                e.name.clone()
            };
            let mut panel =
                Panel::new(&title, Axis::exact(&e.name, e.x.iter().copied()).ticks(4.0), y.clone());
            panel.band(&e.x, &e.lower, &e.upper, BLUE, NARROW_BAND);
            panel.rule(0.0);
            panel.line(&e.x, &e.mean, BLUE, 2.0);
            panel
        });
        let panels = or_empty(panels.collect(), "no effects");
        Sheet { title: &self.title, columns: 3, size: (320.0, 250.0), legend: Vec::new() }.draw(panels)
    }
}
