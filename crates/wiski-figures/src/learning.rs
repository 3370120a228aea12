//! What changes along the stream: scores and hyperparameters.

use super::Figure;
use super::axis::Axis;
use super::drawing::{Drawing, Sheet, dash_key, line_key, or_empty};
use super::panel::Panel;
use super::style::{BLUE, GREY, ORANGE};

/// Beyond this many panels a page is no longer read.
const MOST_PANELS: usize = 30;

/// Scores along the stream, of all rows so far and of the latest rows.
#[derive(Debug, Clone, Default)]
pub struct LearningCurves {
    /// The heading; may be empty.
    pub title: String,
    /// Rows on a logarithmic axis.
    pub log_rows: bool,
    /// The scores, one panel each.
    pub metrics: Vec<Metric>,
}

/// One score along the stream.
#[derive(Debug, Clone, Default)]
pub struct Metric {
    /// Its name, with the unit.
    pub name: String,
    /// The rows at which it was taken.
    pub rows: Vec<f64>,
    /// Over all rows up to and including `rows`.
    pub cumulative: Vec<f64>,
    /// The last row of each window.
    pub window_rows: Vec<f64>,
    /// Over a window that ends with `window_rows`.
    pub windowed: Vec<f64>,
    /// What it should come to, if that is known.
    pub target: Option<f64>,
}

impl Figure for LearningCurves {
    fn name(&self) -> &'static str {
        "learning"
    }

    fn heading(&self) -> &'static str {
        "Learning curves"
    }

    fn reading(&self) -> &'static str {
        "Every row is predicted before it is learned, so these are honest errors; the windowed line shows the \
         latest rows only. It should fall and then stay level: a late rise means that the process has changed."
    }

    fn draw(&self) -> Drawing {
        let rows = || self.metrics.iter().flat_map(|m| m.rows.iter().chain(&m.window_rows)).copied();
        let x =
            if self.log_rows { Axis::log("row", rows()) } else { Axis::exact("row", rows().chain([0.0])) };
        let x = x.ticks(4.0);
        let panels = self.metrics.iter().map(|m| {
            let y = m.cumulative.iter().chain(&m.windowed).copied().chain(m.target);
            let mut panel = Panel::new(&m.name, x.clone(), Axis::robust("", y));
            if let Some(target) = m.target {
                panel.rule(target);
            }
            panel.line(&m.window_rows, &m.windowed, ORANGE, 1.2);
            panel.line(&m.rows, &m.cumulative, BLUE, 2.0);
            panel
        });
        let panels = or_empty(panels.collect(), "no rows");
        let mut legend = vec![line_key("all rows so far", BLUE), line_key("window", ORANGE)];
        if self.metrics.iter().any(|m| m.target.is_some()) {
            legend.push(dash_key("target", GREY));
        }
        let size = if panels.len() > 2 { (330.0, 270.0) } else { (440.0, 290.0) };
        Sheet { title: &self.title, columns: 3, size, legend }.draw(panels)
    }
}

/// Hyperparameters along the stream.
#[derive(Debug, Clone, Default)]
pub struct Hyperparameters {
    /// The heading; may be empty.
    pub title: String,
    /// The hyperparameters, one panel each.
    pub tracks: Vec<Track>,
}

/// One hyperparameter along the stream.
#[derive(Debug, Clone, Default)]
pub struct Track {
    /// Its name.
    pub name: String,
    /// The rows at which it was taken.
    pub rows: Vec<f64>,
    /// The values.
    pub values: Vec<f64>,
}

impl Figure for Hyperparameters {
    fn name(&self) -> &'static str {
        "hyperparameters"
    }

    fn heading(&self) -> &'static str {
        "Hyperparameters over time"
    }

    fn reading(&self) -> &'static str {
        "Each panel is one hyperparameter, on a logarithmic scale where it moves by more than a decade. They should \
         settle; one that keeps drifting has too little data behind it, or the process changes."
    }

    fn draw(&self) -> Drawing {
        let rows = self.tracks.iter().flat_map(|t| &t.rows).copied();
        let x = Axis::exact("row", rows.chain([0.0])).ticks(4.0);
        let panels = self.tracks.iter().take(MOST_PANELS).map(|t| {
            // A parameter that takes both signs, such as a mean, has no logarithm.
            let positive = t.values.iter().all(|&v| v > 0.0);
            let scale = if positive { Axis::log } else { Axis::padded };
            let mut panel = Panel::new(&t.name, x.clone(), scale("", t.values.iter().copied()).ticks(4.0));
            panel.line(&t.rows, &t.values, BLUE, 1.8);
            panel
        });
        let panels = or_empty(panels.collect(), "no hyperparameters");
        let more = self.tracks.len().saturating_sub(MOST_PANELS);
        let title = if more > 0 { format!("{} (and {more} more)", self.title) } else { self.title.clone() };
        Sheet { title: &title, columns: 3, size: (320.0, 220.0), legend: Vec::new() }.draw(panels)
    }
}
