//! Colors and sizes that all figures share.

use kuva::Theme;

/// The colors of Okabe and Ito, which stay distinct for color-blind readers.
pub(super) const BLUE: &str = "#0072b2";
pub(super) const ORANGE: &str = "#d55e00";
pub(super) const GREEN: &str = "#009e73";
pub(super) const GREY: &str = "#8c8c8c";
pub(super) const INK: &str = "#222222";

/// Colors for several lines in one panel.
pub(super) const CYCLE: [&str; 6] = [BLUE, ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9"];

/// Opacity of the wider band (of observations) and of the narrower one (of the function).
pub(super) const WIDE_BAND: f64 = 0.14;
pub(super) const NARROW_BAND: f64 = 0.28;

pub(super) const TITLE: u32 = 15;
pub(super) const PANEL_TITLE: u32 = 13;
pub(super) const LABEL: u32 = 12;
pub(super) const TICK: u32 = 11;

pub(super) fn theme() -> Theme {
    Theme {
        axis_color: "#777777".into(),
        tick_color: "#777777".into(),
        grid_color: "#ececec".into(),
        text_color: INK.into(),
        legend_border: "none".into(),
        colorbar_border: "#999999".into(),
        ..Theme::light()
    }
}

/// A color of the form `#rrggbb` as it looks on white at the given opacity, for the legend of a band.
pub(super) fn on_white(color: &str, opacity: f64) -> String {
    let channel = |i: usize| {
        let c = u8::from_str_radix(&color[i..i + 2], 16).unwrap_or(0);
        (255.0 - opacity * (255.0 - f64::from(c))).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(1), channel(3), channel(5))
}
