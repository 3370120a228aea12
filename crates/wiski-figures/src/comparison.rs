//! Several methods side by side: lines with bands, and fits at several moments.

use super::Figure;
use super::axis::Axis;
use super::drawing::{Drawing, Sheet, band_key, dash_key, dot_key, line_key, or_empty};
use super::panel::Panel;
use super::style::{BLUE, CYCLE, GREY, INK, ORANGE, WIDE_BAND};

/// Panels of lines, one line for each method, in the same colors everywhere.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// The heading; may be empty.
    pub title: String,
    /// The panels.
    pub panels: Vec<Lines>,
}

/// One panel.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// The heading of the panel.
    pub title: String,
    /// What runs along the horizontal axis.
    pub x_label: String,
    /// What runs along the vertical axis.
    pub y_label: String,
    /// A logarithmic horizontal axis.
    pub log_x: bool,
    /// A logarithmic vertical axis.
    pub log_y: bool,
    /// The lines.
    pub lines: Vec<Line>,
    /// Dashed level lines with their names.
    pub levels: Vec<(String, f64)>,
}

/// One line with a band.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// Places along the horizontal axis.
    pub x: Vec<f64>,
    /// The values.
    pub y: Vec<f64>,
    /// The lower end of the band; may be empty.
    pub lower: Vec<f64>,
    /// The upper end of the band.
    pub upper: Vec<f64>,
}

impl Figure for Comparison {
    fn name(&self) -> &'static str {
        "comparison"
    }

    fn heading(&self) -> &'static str {
        "Comparison of methods"
    }

    fn reading(&self) -> &'static str {
        "Each color is one method: the line is the mean over trials and the band two standard deviations. A line \
         that ends early belongs to a method that was stopped there."
    }

    fn draw(&self) -> Drawing {
        let mut names: Vec<&str> = Vec::new();
        for line in self.panels.iter().flat_map(|p| &p.lines) {
            if !names.contains(&line.name.as_str()) {
                names.push(&line.name);
            }
        }
        let color = |name: &str| CYCLE[names.iter().position(|n| *n == name).unwrap_or(0) % CYCLE.len()];
        let panels = self.panels.iter().map(|p| {
            let x = p.lines.iter().flat_map(|l| &l.x).copied();
            let y = p.lines.iter().flat_map(|l| &l.y).copied().chain(p.levels.iter().map(|l| l.1));
            let x = if p.log_x { Axis::log(&p.x_label, x) } else { Axis::exact(&p.x_label, x) }.ticks(4.0);
            let y = if p.log_y { Axis::log(&p.y_label, y) } else { Axis::robust(&p.y_label, y) };
            let mut panel = Panel::new(&p.title, x, y);
            for line in &p.lines {
                panel.band(&line.x, &line.lower, &line.upper, color(&line.name), WIDE_BAND);
            }
            for (_, level) in &p.levels {
                panel.rule(*level);
            }
            for line in &p.lines {
                panel.line(&line.x, &line.y, color(&line.name), 2.0);
            }
            panel
        });
        let panels = or_empty(panels.collect(), "no lines");
        let mut legend: Vec<_> = names.iter().map(|name| line_key(name, color(name))).collect();
        let mut levels: Vec<&str> =
            self.panels.iter().flat_map(|p| &p.levels).map(|l| l.0.as_str()).collect();
        levels.dedup();
        legend.extend(levels.first().map(|name| dash_key(name, GREY)));
        let size = if panels.len() > 2 { (340.0, 270.0) } else { (440.0, 300.0) };
        Sheet { title: &self.title, columns: 3, size, legend }.draw(panels)
    }
}

/// Fits of one series at several moments, row by row of panels.
#[derive(Debug, Clone, Default)]
pub struct Snapshots {
    /// The heading; may be empty.
    pub title: String,
    /// What runs along the horizontal axis.
    pub x_label: String,
    /// What runs along the vertical axis.
    pub y_label: String,
    /// The number of panels in a row.
    pub columns: usize,
    /// The panels.
    pub panels: Vec<Snapshot>,
}

/// One fit.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The heading of the panel.
    pub title: String,
    /// Places along the horizontal axis.
    pub x: Vec<f64>,
    /// The mean at each place.
    pub mean: Vec<f64>,
    /// The lower end of the band of observations.
    pub lower: Vec<f64>,
    /// The upper end of it.
    pub upper: Vec<f64>,
    /// Places and values of the data learned so far.
    pub seen: (Vec<f64>, Vec<f64>),
    /// Places and values of the data still to come.
    pub unseen: (Vec<f64>, Vec<f64>),
}

impl Figure for Snapshots {
    fn name(&self) -> &'static str {
        "snapshots"
    }

    fn heading(&self) -> &'static str {
        "The fit along the stream"
    }

    fn reading(&self) -> &'static str {
        "The band holds single observations with 95 % probability; dark dots were learned, orange ones are still \
         to come. Orange dots should lie within the band."
    }

    fn draw(&self) -> Drawing {
        let data = |p: &Snapshot| p.seen.1.iter().chain(&p.unseen.1).copied().collect::<Vec<f64>>();
        let all: Vec<f64> = self.panels.iter().flat_map(data).collect();
        let (lo, hi) =
            all.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        // Room for bands of twice the range of the data; what goes beyond is cut off.
        let pad = 0.5 * (hi - lo);
        let y = Axis::exact(&self.y_label, [lo - pad, hi + pad]).ticks(4.0);
        let panels = self.panels.iter().map(|p| {
            let mut panel =
                Panel::new(&p.title, Axis::exact(&self.x_label, p.x.iter().copied()).ticks(4.0), y.clone());
            let clip = |v: &[f64]| v.iter().map(|v| v.clamp(lo - pad, hi + pad)).collect::<Vec<f64>>();
            panel.band(&p.x, &clip(&p.lower), &clip(&p.upper), BLUE, WIDE_BAND);
            panel.line(&p.x, &clip(&p.mean), BLUE, 1.8);
            panel.dots(&p.unseen.0, &p.unseen.1, ORANGE, 1.8, 0.7);
            panel.dots(&p.seen.0, &p.seen.1, INK, 2.0, 0.8);
            panel
        });
        let panels = or_empty(panels.collect(), "no fits");
        let legend = vec![
            line_key("mean", BLUE),
            band_key("95 % of observations", BLUE, WIDE_BAND),
            dot_key("learned", INK),
            dot_key("to come", ORANGE),
        ];
        Sheet { title: &self.title, columns: self.columns.max(1), size: (300.0, 200.0), legend }.draw(panels)
    }
}
