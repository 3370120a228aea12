//! A report on a run: one page that needs nothing else, and each figure beside it.
//!
//! ```text
//! rows of a stream  →  recorder (constant memory)  →  figures  →  report  →  index.html, *.svg
//! ```

mod classes;
mod course;
mod history;
mod page;
mod recorder;
#[cfg(test)]
mod tests;
mod thinned;

pub(crate) use classes::ClassRecorder;
pub(crate) use recorder::Recorder;

use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use wiski_figures::Figure;

/// The rows of a window in which intervals are judged, and the most windows before neighbors merge.
const INTERVAL_WINDOW: usize = 1000;
const MOST_WINDOWS: usize = 400;

/// What a report says.
#[derive(Default)]
pub(crate) struct Report {
    pub title: String,
    /// One or two sentences under the title.
    pub summary: String,
    /// The headline figures: names and values.
    pub headline: Vec<(String, String)>,
    /// The figures, in the order of the page.
    pub figures: Vec<Box<dyn Figure>>,
    /// What happened beside the rows: when, and what.
    pub events: Vec<(String, String)>,
    /// The settings of the run: names and values.
    pub settings: Vec<(String, String)>,
}

/// A figure ready for the page.
struct Plate {
    file: String,
    heading: &'static str,
    reading: &'static str,
    svg: String,
}

/// Writes the report into the folder, which is made if need be, and returns the path of the page.
pub(crate) fn write(dir: &Path, report: &Report) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    let plates = plates(&report.figures);
    for plate in &plates {
        replace(&dir.join(&plate.file), &plate.svg)?;
    }
    let index = dir.join("index.html");
    replace(&index, &page::html(report, &plates))?;
    Ok(index)
}

fn plates(figures: &[Box<dyn Figure>]) -> Vec<Plate> {
    let mut seen = HashMap::new();
    let mut plate = |figure: &dyn Figure| {
        let count = seen.entry(figure.name()).and_modify(|n| *n += 1).or_insert(1);
        let file = match *count {
            1 => format!("{}.svg", figure.name()),
            n => format!("{}-{n}.svg", figure.name()),
        };
        Plate { file, heading: figure.heading(), reading: figure.reading(), svg: figure.draw().svg() }
    };
    figures.iter().map(|figure| plate(figure.as_ref())).collect()
}

/// Replaces a file by way of another, so that a reader sees the old or the new one and never half of it.
fn replace(path: &Path, content: &str) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Best effort: what matters is the error that led here.
        let _ = fs::remove_file(&temporary);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}
