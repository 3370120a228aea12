//! A series with what comes next, and what it is made of.

use super::Figure;
use super::axis::Axis;
use super::drawing::{Drawing, Sheet, band_key, dot_key, line_key, or_empty};
use super::panel::Panel;
use super::style::{BLUE, INK, NARROW_BAND, WIDE_BAND};

/// The end of a series and its forecast.
#[derive(Debug, Clone, Default)]
pub struct SeriesForecast {
    /// The heading; may be empty.
    pub title: String,
    /// What runs along the horizontal axis.
    pub x_label: String,
    /// What runs along the vertical axis.
    pub y_label: String,
    /// The times of the last rows.
    pub past: Vec<f64>,
    /// Their targets.
    pub targets: Vec<f64>,
    /// The times ahead.
    pub ahead: Vec<f64>,
    /// The mean at each.
    pub mean: Vec<f64>,
    /// The lower end of the interval.
    pub lower: Vec<f64>,
    /// The upper end.
    pub upper: Vec<f64>,
    /// The level of the interval, in per cent.
    pub level: f64,
}

impl Figure for SeriesForecast {
    fn name(&self) -> &'static str {
        "forecast"
    }

    fn heading(&self) -> &'static str {
        "Forecast"
    }

    fn reading(&self) -> &'static str {
        "Dots are rows, the line is the mean of what comes next, and the band holds each of the next values with the \
         stated probability. It widens with the horizon as far as earlier forecasts went astray."
    }

    fn draw(&self) -> Drawing {
        let y = [&self.targets, &self.mean, &self.lower, &self.upper];
        let mut panel = Panel::new(
            "",
            Axis::exact(&self.x_label, self.past.iter().chain(&self.ahead).copied()),
            Axis::padded(&self.y_label, y.into_iter().flatten().copied()),
        );
        panel.band(&self.ahead, &self.lower, &self.upper, BLUE, WIDE_BAND);
        panel.line(&self.past, &self.targets, INK, 0.7);
        panel.dots(&self.past, &self.targets, INK, 1.8, 0.6);
        panel.line(&self.ahead, &self.mean, BLUE, 2.0);
        let legend = vec![
            dot_key("rows", INK),
            line_key("mean", BLUE),
            band_key(&format!("{} %", self.level), BLUE, WIDE_BAND),
        ];
        Sheet { title: &self.title, columns: 1, size: (980.0, 420.0), legend }.draw(vec![panel])
    }
}

/// What a series is made of: its past and the forecast.
#[derive(Debug, Clone, Default)]
pub struct SeriesComponents {
    /// The heading; may be empty.
    pub title: String,
    /// What runs along the horizontal axis.
    pub x_label: String,
    /// The components.
    pub parts: Vec<SeriesPart>,
}

/// One component of a series.
#[derive(Debug, Clone, Default)]
pub struct SeriesPart {
    /// Its name.
    pub name: String,
    /// Times, of the past and ahead.
    pub x: Vec<f64>,
    /// Its mean at each.
    pub mean: Vec<f64>,
    /// The lower end of its band.
    pub lower: Vec<f64>,
    /// The upper end.
    pub upper: Vec<f64>,
    /// Where the forecast begins.
    pub now: f64,
}

impl Figure for SeriesComponents {
    fn name(&self) -> &'static str {
        "components"
    }

    fn heading(&self) -> &'static str {
        "Components"
    }

    fn reading(&self) -> &'static str {
        "What the series is a sum of, each part with its own 95 % band, in the past given all rows and in the forecast. \
         Parts may share what only their sum is sure of; then their bands are wider than that of the sum."
    }

    fn draw(&self) -> Drawing {
        let panels = self.parts.iter().map(|part| {
            let y = [&part.mean, &part.lower, &part.upper];
            let mut panel = Panel::new(
                &part.name,
                Axis::exact(&self.x_label, part.x.iter().copied()),
                Axis::padded("", y.into_iter().flatten().copied()).ticks(4.0),
            );
            panel.band(&part.x, &part.lower, &part.upper, BLUE, NARROW_BAND);
            let now = part.x.partition_point(|x| *x <= part.now);
            panel.line(&part.x[..now], &part.mean[..now], INK, 1.2);
            panel.line(&part.x[now..], &part.mean[now..], BLUE, 1.8);
            panel
        });
        let panels = or_empty(panels.collect(), "no components");
        Sheet { title: &self.title, columns: 1, size: (980.0, 200.0), legend: Vec::new() }.draw(panels)
    }
}
