//! One pair of axes and what is drawn in it.

use super::axis::Axis;
use super::style;
use kuva::TickFormat;
use kuva::plot::scatter::ScatterPlot;
use kuva::plot::{BandPlot, ColorMap, Heatmap, Histogram, LinePlot};
use kuva::render::annotations::{ReferenceLine, TextAnnotation};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use std::sync::Arc;

const MOST_DOTS: usize = 2000;

/// The longest name shown in full, and the longest over a panel, in characters.
const LONGEST: usize = 80;
const LONGEST_TITLE: usize = 40;

pub(super) struct Panel {
    title: String,
    x: Axis,
    y: Axis,
    plots: Vec<Plot>,
    rules: Vec<ReferenceLine>,
    colors: Option<Axis>,
}

impl Panel {
    pub(super) fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, plots: Vec::new(), rules: Vec::new(), colors: None }
    }

    /// A line through the points; a single point becomes a dot.
    pub(super) fn line(&mut self, x: &[f64], y: &[f64], color: &str, width: f64) {
        let points = self.placed(x, y);
        match points.len() {
            0 => {}
            1 => self.push_dots(points, color, 3.0, 1.0),
            _ => self.plots.push(line(points, color, width).into()),
        }
    }

    /// A dashed line through the points.
    pub(super) fn dashes(&mut self, x: &[f64], y: &[f64], color: &str) {
        let points = self.placed(x, y);
        if points.len() > 1 {
            self.plots.push(line(points, color, 1.2).with_dashed().into());
        }
    }

    /// A line that keeps its value until the next point.
    pub(super) fn steps(&mut self, x: &[f64], y: &[f64], color: &str) {
        let points = self.placed(x, y);
        if points.len() > 1 {
            self.plots.push(line(points, color, 1.8).with_step().into());
        }
    }

    /// The area between two curves.
    pub(super) fn band(&mut self, x: &[f64], lower: &[f64], upper: &[f64], color: &str, opacity: f64) {
        let rows: Vec<[f64; 3]> = x
            .iter()
            .zip(lower)
            .zip(upper)
            .map(|((&x, &l), &u)| [self.x.place(x), self.y.place(l), self.y.place(u)])
            .filter(|row| row.iter().all(|v| v.is_finite()))
            .collect();
        if rows.len() > 1 {
            let column = |i: usize| rows.iter().map(move |r| r[i]).collect::<Vec<f64>>();
            let band = BandPlot::new(column(0), column(1), column(2));
            self.plots.push(band.with_color(color).with_opacity(opacity).into());
        }
    }

    /// Dots at the points, or at every so many of them where they are more than an eye can tell apart.
    pub(super) fn dots(&mut self, x: &[f64], y: &[f64], color: &str, radius: f64, opacity: f64) {
        let mut points = self.placed(x, y);
        let stride = points.len().div_ceil(MOST_DOTS).max(1);
        points = points.into_iter().step_by(stride).collect();
        self.push_dots(points, color, radius, opacity);
    }

    /// Bars between consecutive edges.
    pub(super) fn bars(&mut self, edges: &[f64], heights: &[f64], color: &str) {
        if heights.is_empty() || edges.len() != heights.len() + 1 {
            return;
        }
        let edges = edges.iter().map(|&e| self.x.place(e)).collect();
        let heights = heights.iter().map(|&h| self.y.place(if h.is_finite() { h } else { 0.0 })).collect();
        self.plots.push(Histogram::from_bins(edges, heights).with_color(color).into());
    }

    /// Colored cells over the whole panel, row by row from the bottom, with a color bar.
    pub(super) fn cells(&mut self, columns: usize, values: &[f64], colors: Axis) {
        let (lo, hi) = colors.range();
        let place = |v: f64| if v.is_finite() { colors.place(v).clamp(lo, hi) } else { lo };
        let mut data: Vec<Vec<f64>> =
            values.chunks_exact(columns.max(1)).map(|row| row.iter().map(|&v| place(v)).collect()).collect();
        if data.is_empty() {
            return;
        }
        let (bottom, top) = self.y.range();
        let height = (top - bottom) / data.len() as f64;
        // The library takes the color scale from the values. Two rows below the panel, where they are clipped,
        // hold its ends, so that panels can share a scale. (Above it, a hairline of them would show.)
        data.splice(0..0, [vec![lo; columns], vec![hi; columns]]);
        let (left, right) = self.x.range();
        let map = Heatmap::new()
            .with_data(data)
            .with_color_map(ColorMap::Viridis)
            .with_cell_size(1.0)
            .with_x_range(left, right)
            .with_y_range(bottom - 2.0 * height, top);
        self.plots.push(map.into());
        self.colors = Some(colors);
    }

    /// A horizontal dashed line across the panel.
    pub(super) fn rule(&mut self, y: f64) {
        let y = self.y.place(y);
        if y.is_finite() {
            let rule = ReferenceLine::horizontal(y).with_color(style::GREY).with_stroke_width(1.2);
            self.rules.push(rule.with_dasharray("5 4"));
        }
    }

    /// Whether nothing was there to be drawn.
    pub(super) fn is_empty(&self) -> bool {
        self.plots.is_empty()
    }

    /// The library's plots and layout.
    pub(super) fn finish(mut self) -> (Vec<Plot>, Layout) {
        let (x, y) = (self.x.range(), self.y.range());
        let mut layout = Layout::new(x, y)
            .with_theme(style::theme())
            .with_x_axis_min(x.0)
            .with_x_axis_max(x.1)
            .with_y_axis_min(y.0)
            .with_y_axis_max(y.1)
            .with_x_tick_step(self.x.step())
            .with_y_tick_step(self.y.step())
            .with_x_label(text(&self.x.label()))
            .with_y_label(text(&self.y.label()))
            .with_title_size(style::PANEL_TITLE)
            .with_label_size(style::LABEL)
            .with_tick_size(style::TICK)
            .with_tick_length(3.0);
        // The color bar has no label of its own: the quantity stands under the title, or is the title.
        let quantity = self.colors.as_ref().map(|c| text(&c.label()));
        match (self.title.is_empty(), quantity) {
            (true, None) => {}
            (true, Some(quantity)) => layout = layout.with_title(quantity),
            (false, None) => layout = layout.with_title(shortened(&self.title, LONGEST_TITLE)),
            (false, Some(quantity)) => {
                layout = layout.with_title(shortened(&self.title, LONGEST_TITLE));
                layout = layout.with_subtitle(quantity).with_subtitle_size(style::TICK);
            }
        }
        if self.is_empty() {
            let note = TextAnnotation::new("no data", f64::midpoint(x.0, x.1), f64::midpoint(y.0, y.1));
            layout = layout.with_annotation(note.with_color(style::GREY));
            // The library leaves out a panel without a plot, and its axes with it.
            self.plots.push(ScatterPlot::new().into());
        }
        for rule in self.rules {
            layout = layout.with_reference_line(rule);
        }
        if let Some(colors) = self.colors {
            layout.show_colorbar = true;
            let ticks = TickFormat::Custom(Arc::new(move |v| colors.short(v)));
            layout = layout.with_colorbar_tick_format(ticks);
        }
        let layout = layout.with_x_tick_format(format(self.x)).with_y_tick_format(format(self.y));
        (self.plots, layout)
    }

    fn placed(&self, x: &[f64], y: &[f64]) -> Vec<(f64, f64)> {
        let pairs = x.iter().zip(y).map(|(&x, &y)| (self.x.place(x), self.y.place(y)));
        pairs.filter(|(x, y)| x.is_finite() && y.is_finite()).collect()
    }

    fn push_dots(&mut self, points: Vec<(f64, f64)>, color: &str, radius: f64, opacity: f64) {
        if !points.is_empty() {
            let dots = ScatterPlot::new().with_data(points).with_color(color).with_size(radius);
            self.plots.push(dots.with_marker_opacity(opacity).into());
        }
    }
}

fn line(points: Vec<(f64, f64)>, color: &str, width: f64) -> LinePlot {
    LinePlot::new().with_data(points).with_color(color).with_stroke_width(width)
}

fn format(axis: Axis) -> TickFormat {
    TickFormat::Custom(Arc::new(move |v| axis.tick(v)))
}

/// A name as the library takes it: on one line, of bearable length, without what XML cannot hold, and without the
/// mathematics that the library would see between two dollar signs.
pub(super) fn text(name: &str) -> String {
    shortened(name, LONGEST)
}

fn shortened(name: &str, longest: usize) -> String {
    let clean = |c: char| if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { ' ' } else { c };
    let mut out: String = name.chars().map(clean).take(longest).collect();
    if name.chars().count() > longest {
        out.pop();
        out.push('…');
    }
    out.replace('$', "\\$")
}
