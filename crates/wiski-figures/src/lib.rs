//! Pictures of a model and of how it learned, as SVG or PNG.
//!
//! Each figure is a plain struct of numbers and names; [`Figure::draw`] turns it into a [`Drawing`]. What is not
//! finite is left out, and a figure without data says so.
//!
//! ```text
//! a figure's numbers  →  axis (range, ticks)  →  panel (lines, bands, dots)  →  drawing (SVG, PNG)
//! ```

mod axis;
mod calibration;
mod comparison;
mod coverage;
mod curve;
mod drawing;
mod forecast;
mod learning;
mod map;
mod panel;
mod residuals;
mod style;
#[cfg(test)]
mod tests;
mod trace;
mod windows;

pub use calibration::{Calibration, Reliability};
pub use comparison::{Comparison, Line, Lines, Snapshot, Snapshots};
pub use coverage::Coverage;
pub use curve::{Curve, Effect, Effects, Samples};
pub use drawing::Drawing;
pub use forecast::{SeriesComponents, SeriesForecast, SeriesPart};
pub use learning::{Hyperparameters, LearningCurves, Metric, Track};
pub use map::{Field, Map};
pub use residuals::Residuals;
pub use trace::{Run, Trace};
pub use windows::CoverageWindows;

/// A figure of a report.
pub trait Figure {
    /// The stem of its file name.
    fn name(&self) -> &'static str;

    /// Its heading.
    fn heading(&self) -> &'static str;

    /// How to read it, in two sentences.
    fn reading(&self) -> &'static str;

    /// The picture.
    fn draw(&self) -> Drawing;
}
