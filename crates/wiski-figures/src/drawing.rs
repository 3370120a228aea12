//! Panels laid out in a grid under a title, with one legend below, rendered to SVG or PNG.

use super::axis::Axis;
use super::panel::{Panel, text};
use super::style;
use kuva::RasterBackend;
use kuva::backend::svg::SvgBackend;
use kuva::plot::LegendPlot;
use kuva::plot::legend::{LegendEntry, LegendShape};
use kuva::render::figure::Figure as Grid;
use kuva::render::layout::Layout;
use kuva::render::render::Scene;

/// Height of the row that holds the legend.
const LEGEND: f64 = 34.0;

/// A finished picture.
pub struct Drawing(Scene);

impl Drawing {
    /// The picture as SVG.
    pub fn svg(&self) -> String {
        let svg = SvgBackend.render_scene(&self.0);
        // With a view box, a page can scale the picture.
        svg.replacen("<svg ", &format!("<svg viewBox=\"0 0 {} {}\" ", self.0.width, self.0.height), 1)
    }

    /// The picture as PNG, with `scale` pixels to a unit of the SVG.
    pub fn png(&self, scale: f32) -> anyhow::Result<Vec<u8>> {
        RasterBackend::new().with_scale(scale).render_scene(&self.0).map_err(anyhow::Error::msg)
    }
}

/// A grid of equal panels.
pub(super) struct Sheet<'a> {
    pub title: &'a str,
    pub columns: usize,
    pub size: (f64, f64),
    pub legend: Vec<LegendEntry>,
}

impl Sheet<'_> {
    pub(super) fn draw(self, panels: Vec<Panel>) -> Drawing {
        // Four panels make a square rather than a row of three and one left over.
        let columns = if panels.len() == 4 { 2 } else { self.columns.clamp(1, panels.len().max(1)) };
        let rows = panels.len().div_ceil(columns).max(1);
        let mut cells: Vec<Vec<usize>> = (0..panels.len()).map(|i| vec![i]).collect();
        let (mut plots, mut layouts): (Vec<_>, Vec<_>) = panels.into_iter().map(Panel::finish).unzip();
        let with_legend = usize::from(!self.legend.is_empty());
        if with_legend == 1 {
            cells.push((rows * columns..(rows + 1) * columns).collect());
            plots.push(vec![LegendPlot::from_entries(self.legend).without_box().into()]);
            let mut layout = Layout::new((0.0, 1.0), (0.0, 1.0)).with_theme(style::theme());
            layout = layout.with_body_size(style::LABEL);
            layouts.push(layout);
        }
        let mut grid = Grid::new(rows + with_legend, columns)
            .with_structure(cells)
            .with_plots(plots)
            .with_layouts(layouts)
            .with_cell_size(self.size.0, self.size.1)
            .with_spacing(12.0)
            .with_padding(10.0)
            .with_title_size(style::TITLE);
        if with_legend == 1 {
            grid = grid.with_row_height(rows, LEGEND);
        }
        if !self.title.is_empty() {
            grid = grid.with_title(text(self.title));
        }
        Drawing(grid.render())
    }
}

/// The panels, or an empty one with a title that says what is missing.
pub(super) fn or_empty(panels: Vec<Panel>, missing: &str) -> Vec<Panel> {
    if panels.is_empty() {
        vec![Panel::new(missing, Axis::exact("", []), Axis::exact("", []))]
    } else {
        panels
    }
}

/// A legend entry for a line.
pub(super) fn line_key(label: &str, color: &str) -> LegendEntry {
    key(label, color.into(), LegendShape::Line)
}

/// A legend entry for a dashed line.
pub(super) fn dash_key(label: &str, color: &str) -> LegendEntry {
    LegendEntry { dasharray: Some("5 4".into()), ..line_key(label, color) }
}

/// A legend entry for a band.
pub(super) fn band_key(label: &str, color: &str, opacity: f64) -> LegendEntry {
    key(label, style::on_white(color, opacity), LegendShape::Rect)
}

/// A legend entry for dots.
pub(super) fn dot_key(label: &str, color: &str) -> LegendEntry {
    key(label, color.into(), LegendShape::Circle)
}

fn key(label: &str, color: String, shape: LegendShape) -> LegendEntry {
    LegendEntry { label: text(label), color, shape, dasharray: None }
}
