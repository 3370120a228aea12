//! Where results go: finished trials as JSON (so that a run can be resumed), curves as CSV, tables as Markdown,
//! figures as SVG and PNG.

use crate::Options;
use crate::watch;
use crate::work::{self, FEW_TRIALS, Unit, Work};
use anyhow::Context;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;
use wiski_figures::{Comparison, Figure, Line, Lines};

/// The folder of one experiment.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    experiment: String,
    work: Work,
}

#[derive(Serialize, Deserialize)]
struct Stored<T> {
    setup: String,
    /// Processor seconds that it took; files of earlier versions do not say.
    #[serde(default)]
    seconds: f64,
    result: T,
}

impl Folder {
    /// Opens (or makes) the folder of an experiment.
    pub fn open(options: &Options, experiment: &str) -> anyhow::Result<Self> {
        let path = options.out.join(experiment);
        std::fs::create_dir_all(path.join("trials")).with_context(|| path.display().to_string())?;
        Ok(Self { path, experiment: experiment.into(), work: options.work.clone() })
    }

    /// The result of a trial: read if it was finished with the same setup before; otherwise what the work at hand does with
    /// it. `None` if there is none yet.
    pub fn trial<T: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        setup: &str,
        compute: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<Option<T>> {
        let unit = Unit { experiment: self.experiment.clone(), key: key.into() };
        let path = self.path.join("trials").join(format!("{key}.json"));
        let stored = std::fs::read_to_string(&path).ok();
        if let Some(stored) = stored.and_then(|text| serde_json::from_str::<Stored<T>>(&text).ok())
            && stored.setup == setup
        {
            self.work.has(unit, stored.seconds);
            return Ok(Some(stored.result));
        }
        let Some((result, seconds)) = work::perform(&self.work, &unit, compute)? else { return Ok(None) };
        let stored = Stored { setup: setup.into(), seconds, result };
        // Written whole or not at all: a run may be stopped at any time.
        let partial = path.with_extension("partial");
        std::fs::write(&partial, serde_json::to_string(&stored)?)?;
        std::fs::rename(&partial, &path)?;
        self.work.ran(&unit, seconds);
        Ok(Some(stored.result))
    }

    /// The results of several trials that are there, in their order: of the first three, if a trial takes all of its budget.
    pub fn trials<T: Serialize + DeserializeOwned>(
        &self,
        seeds: impl IntoIterator<Item = u64>,
        setup: &str,
        key: impl Fn(u64) -> String,
        compute: impl Fn(u64) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<T>> {
        let mut all = Vec::new();
        for (number, seed) in seeds.into_iter().enumerate() {
            let unit = Unit { experiment: self.experiment.clone(), key: key(seed) };
            if number < FEW_TRIALS || !self.work.is_dear(&unit) {
                all.extend(self.trial(&unit.key, setup, || compute(seed))?);
            }
        }
        Ok(all)
    }

    /// Writes a text file.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        if !self.work.reports() {
            return Ok(());
        }
        let path = self.path.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// Writes a figure as SVG and PNG.
    pub fn draw(&self, name: &str, figure: &impl Figure) -> anyhow::Result<()> {
        if !self.work.reports() {
            return Ok(());
        }
        let drawing = figure.draw();
        self.write(&format!("{name}.svg"), &drawing.svg())?;
        let path = self.path.join(format!("{name}.png"));
        std::fs::write(&path, drawing.png(1.5)?).with_context(|| path.display().to_string())
    }

    /// Writes a table and prints it.
    pub fn table(&self, name: &str, table: &Markdown) -> anyhow::Result<()> {
        if !self.work.reports() {
            return Ok(());
        }
        println!("\n{}", table.text);
        self.write(&format!("{name}.md"), &table.text)
    }
}

/// A table in Markdown.
#[derive(Debug, Clone)]
pub struct Markdown {
    text: String,
}

impl Markdown {
    /// A table with these columns; all but the first are numbers.
    pub fn new(columns: &[&str]) -> Self {
        let rule: Vec<&str> = (0..columns.len()).map(|i| if i == 0 { "---" } else { "---:" }).collect();
        Self { text: format!("| {} |\n| {} |\n", columns.join(" | "), rule.join(" | ")) }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[String]) {
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }
}

/// A bar on standard error while a trial runs; those of trials side by side stand below each other.
pub fn progress(label: &str, rows: usize) -> ProgressBar {
    static BARS: OnceLock<MultiProgress> = OnceLock::new();
    if watch::is_slice() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} rows, {eta} left");
    let bar = BARS.get_or_init(MultiProgress::new).add(ProgressBar::new(rows as u64));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(label.to_owned());
    bar
}

/// Seconds that this thread has spent on a processor, where the system tells (Linux), so that other programs on the
/// machine do not count; seconds since the first call elsewhere.
pub fn processor_seconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let on_processor = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    on_processor.map_or_else(|| START.get_or_init(Instant::now).elapsed().as_secs_f64(), |ns| 1e-9 * ns)
}

/// Mean and (unbiased) standard deviation; the deviation of a single number is 0.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    (mean, (square / (n - 1.0).max(1.0)).sqrt())
}

/// The middle value.
///
/// # Panics
/// Without values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    0.5 * (values[(n - 1) / 2] + values[n / 2])
}

/// "mean ± deviation"; the value itself where there is one only.
pub fn plus_minus(values: &[f64], digits: usize) -> String {
    let (mean, deviation) = mean_and_deviation(values);
    if values.len() == 1 {
        format!("{mean:.digits$}")
    } else if mean.abs() < 1e4 {
        format!("{mean:.digits$} ± {deviation:.digits$}")
    } else {
        format!("{mean:.1e} ± {deviation:.1e}")
    }
}

/// Curves of several trials over the same abscissae.
#[derive(Debug, Clone, Default)]
pub struct Bundle {
    /// One curve per trial: (x, y) pairs.
    pub trials: Vec<Vec<(f64, f64)>>,
}

impl Bundle {
    /// Mean and deviation at every x that all trials have reached.
    pub fn summary(&self) -> Vec<(f64, f64, f64)> {
        let Some(first) = self.trials.first() else { return Vec::new() };
        let at = |x: f64| -> Option<Vec<f64>> {
            self.trials.iter().map(|t| t.iter().find(|p| p.0 == x).map(|p| p.1)).collect()
        };
        first
            .iter()
            .filter_map(|&(x, _)| at(x).map(|values| (x, mean_and_deviation(&values))))
            .map(|(x, (mean, deviation))| (x, mean, deviation))
            .collect()
    }

    /// A line of the mean with a band of two deviations.
    pub fn line(&self, name: &str) -> Line {
        let summary = self.summary();
        Line {
            name: name.into(),
            x: summary.iter().map(|s| s.0).collect(),
            y: summary.iter().map(|s| s.1).collect(),
            lower: summary.iter().map(|s| s.1 - 2.0 * s.2).collect(),
            upper: summary.iter().map(|s| s.1 + 2.0 * s.2).collect(),
        }
    }
}

/// Panels of lines under one title.
pub fn comparison(title: &str, panels: Vec<Lines>) -> Comparison {
    Comparison { title: title.into(), panels }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_trial_is_not_run_again_unless_its_setup_changes() {
        let out = tempfile::tempdir().unwrap();
        let options = Options { out: out.path().into(), ..Options::default() };
        let folder = Folder::open(&options, "test").unwrap();
        let mut runs = 0;
        let mut trial = |setup: &str| {
            folder
                .trial("a", setup, || {
                    runs += 1;
                    Ok(vec![f64::from(runs)])
                })
                .unwrap()
                .unwrap()
        };
        assert_eq!([trial("x"), trial("x"), trial("y"), trial("y")], [[1.0], [1.0], [2.0], [2.0]]);
    }

    #[test]
    fn a_single_value_has_no_deviation() {
        assert_eq!(plus_minus(&[0.5], 2), "0.50");
        assert_eq!(plus_minus(&[1.0, 3.0], 1), "2.0 ± 1.4");
    }

    #[test]
    fn summaries_are_taken_where_all_trials_have_come() {
        let bundle = Bundle { trials: vec![vec![(0.0, 1.0), (5.0, 2.0)], vec![(0.0, 3.0)]] };
        assert_eq!(bundle.summary(), [(0.0, 2.0, 2f64.sqrt())]);
    }
}
