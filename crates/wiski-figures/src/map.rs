//! Functions of two variables as colored maps, side by side.

use super::axis::Axis;
use super::drawing::{Drawing, Sheet, dot_key, or_empty};
use super::panel::Panel;
use super::{Figure, style};

/// Maps over the same two inputs: mean and standard deviation, or slices of a function of more inputs.
#[derive(Debug, Clone, Default)]
pub struct Map {
    /// The heading; may be empty.
    pub title: String,
    /// What runs along the horizontal axis.
    pub x_label: String,
    /// What runs along the vertical axis.
    pub y_label: String,
    /// Centers of the cells, evenly spaced.
    pub x: Vec<f64>,
    /// Places along the vertical axis.
    pub y: Vec<f64>,
    /// The maps, side by side.
    pub fields: Vec<Field>,
    /// Data points; may be empty.
    pub data_x: Vec<f64>,
    /// The vertical places of data points.
    pub data_y: Vec<f64>,
}

/// One map. Fields of the same quantity share a color scale.
#[derive(Debug, Clone, Default)]
pub struct Field {
    /// May be empty, as where the quantity says it all.
    pub title: String,
    /// What the colors show, with its unit.
    pub quantity: String,
    /// One value a cell; x varies fastest.
    pub values: Vec<f64>,
}

impl Figure for Map {
    fn name(&self) -> &'static str {
        "surface"
    }

    fn heading(&self) -> &'static str {
        "Fitted surface"
    }

    fn reading(&self) -> &'static str {
        "Bright means high; maps of the same quantity share one color scale. Trust the mean where the standard \
         deviation is small, which is where data (dots) were seen."
    }

    fn draw(&self) -> Drawing {
        let panels = self.fields.iter().map(|field| {
            let mut panel = Panel::new(
                &field.title,
                Axis::exact(&self.x_label, edges(&self.x)),
                Axis::exact(&self.y_label, edges(&self.y)),
            );
            let same = self.fields.iter().filter(|other| other.quantity == field.quantity);
            let colors = Axis::exact(&field.quantity, same.flat_map(|f| &f.values).copied());
            if field.values.len() == self.x.len() * self.y.len() {
                panel.cells(self.x.len(), &field.values, colors);
                panel.dots(&self.data_x, &self.data_y, "#ffffff", 2.4, 0.5);
                panel.dots(&self.data_x, &self.data_y, style::INK, 1.4, 0.8);
            }
            panel
        });
        let panels = or_empty(panels.collect(), "no maps");
        let size = if panels.len() < 3 { (480.0, 420.0) } else { (380.0, 340.0) };
        let legend = if self.data_x.is_empty() { Vec::new() } else { vec![dot_key("data", style::INK)] };
        Sheet { title: &self.title, columns: 3, size, legend }.draw(panels)
    }
}

/// The outer edges of cells with these centers.
fn edges(centers: &[f64]) -> [f64; 2] {
    let (Some(&first), Some(&last)) = (centers.first(), centers.last()) else { return [0.0, 1.0] };
    // Divided first, so that the width of the widest range does not overflow.
    let count = 2.0 * (centers.len().max(2) - 1) as f64;
    let half = last / count - first / count;
    [first - half, last + half]
}
