//! Whether intervals keep their promise along the stream, and how wide they are.

use super::Figure;
use super::axis::Axis;
use super::drawing::{Drawing, Sheet, dash_key, line_key, or_empty};
use super::panel::Panel;
use super::style::{BLUE, GREY, ORANGE};

/// The share of targets inside their intervals (or of classes inside their sets), and the size of these, by windows.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    /// The heading; may be empty.
    pub title: String,
    /// The share that was promised.
    pub level: f64,
    /// The rows in a window.
    pub window: f64,
    /// The last row of each window.
    pub rows: Vec<f64>,
    /// The share inside.
    pub inside: Vec<f64>,
    /// The mean width of the intervals, or size of the sets.
    pub size: Vec<f64>,
    /// What the size is, with the unit.
    pub size_name: String,
}

impl Figure for Coverage {
    fn name(&self) -> &'static str {
        "intervals"
    }

    fn heading(&self) -> &'static str {
        "Intervals by window"
    }

    fn reading(&self) -> &'static str {
        "The share of targets inside the intervals that were given for them, window by window, should stay near the \
         level that was promised. Intervals widen where the model errs more than it says, and narrow again after."
    }

    fn draw(&self) -> Drawing {
        let x = Axis::exact("row", self.rows.iter().copied().chain([0.0])).ticks(4.0);
        let mut panels = Vec::new();
        if !self.rows.is_empty() {
            let shares = self.inside.iter().copied().chain([self.level]);
            let name = format!("Inside the {} % interval, {} rows each", percent(self.level), self.window);
            let mut panel = Panel::new(&name, x.clone(), Axis::padded("", shares));
            panel.rule(self.level);
            panel.line(&self.rows, &self.inside, BLUE, 1.8);
            panels.push(panel);
            let mut panel = Panel::new(&self.size_name, x, Axis::padded("", self.size.iter().copied()));
            panel.line(&self.rows, &self.size, ORANGE, 1.8);
            panels.push(panel);
        }
        let panels = or_empty(panels, "no rows");
        let legend =
            vec![line_key("share inside", BLUE), dash_key("promised", GREY), line_key("size", ORANGE)];
        Sheet { title: &self.title, columns: 2, size: (440.0, 290.0), legend }.draw(panels)
    }
}

/// A share in per cent, without digits that rounding has made.
fn percent(level: f64) -> f64 {
    (1e6 * level).round() / 1e4
}
