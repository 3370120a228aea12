//! The course of an optimization.

use super::Figure;
use super::axis::Axis;
use super::drawing::{Drawing, Sheet, dot_key, line_key};
use super::panel::Panel;
use super::style::{CYCLE, GREY};

/// The best value so far against evaluations, one line a run.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// The heading; may be empty.
    pub title: String,
    /// What runs along the vertical axis.
    pub y_label: String,
    /// The runs, one color each.
    pub runs: Vec<Run>,
}

/// One run: the value of each evaluation and the best up to it.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// The values.
    pub values: Vec<f64>,
    /// The best value so far.
    pub best: Vec<f64>,
}

impl Figure for Trace {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn heading(&self) -> &'static str {
        "Course of the optimization"
    }

    fn reading(&self) -> &'static str {
        "Dots are evaluations, the line is the best value so far. A long level stretch says that more evaluations \
         will hardly help."
    }

    fn draw(&self) -> Drawing {
        let longest = self.runs.iter().map(|r| r.best.len().max(r.values.len())).max().unwrap_or(0);
        let count: Vec<f64> = (1..=longest).map(|i| i as f64).collect();
        let values = self.runs.iter().flat_map(|r| r.best.iter().chain(&r.values)).copied();
        let mut panel = Panel::new(
            "",
            Axis::padded("evaluation", count.iter().copied()),
            Axis::robust(&self.y_label, values),
        );
        let mut legend = Vec::new();
        let colors = || CYCLE.iter().cycle();
        for (run, color) in self.runs.iter().zip(colors()) {
            panel.dots(&count, &run.values, if self.runs.len() > 1 { color } else { GREY }, 2.4, 0.5);
        }
        for (run, color) in self.runs.iter().zip(colors()) {
            panel.steps(&count, &run.best, color);
            panel.dots(&count, &run.best, color, 2.6, 1.0);
            legend.push(line_key(&run.name, color));
        }
        if self.runs.iter().any(|r| !r.values.is_empty()) {
            legend.push(dot_key("evaluations", GREY));
        }
        Sheet { title: &self.title, columns: 1, size: (760.0, 380.0), legend }.draw(vec![panel])
    }
}
