//! The page and its parts, in the binary: nothing is fetched from elsewhere.

/// The page.
pub(crate) const INDEX: &str = include_str!("page/index.html");

/// A part of the page, with its type.
pub(crate) fn asset(file: &str) -> Option<(&'static str, &'static str)> {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    const STYLE: &str = "text/css; charset=utf-8";
    match file {
        "app.js" => Some((SCRIPT, include_str!("page/app.js"))),
        "app.css" => Some((STYLE, include_str!("page/app.css"))),
        "uplot.js" => Some((SCRIPT, include_str!("page/uPlot.iife.min.js"))),
        "uplot.css" => Some((STYLE, include_str!("page/uPlot.min.css"))),
        "uplot-license.txt" => Some(("text/plain; charset=utf-8", include_str!("page/uPlot-LICENSE"))),
        _ => None,
    }
}
