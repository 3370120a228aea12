//! What a forecast says, as text, JSON and a report.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};
use wiski::time::{Backtest, ComponentShare, Forecast, HorizonScore, Scale};
use wiski_figures::{SeriesComponents, SeriesForecast, SeriesPart};

use super::clock::Clock;
use super::rows::One;
use crate::report::{self, Report};

/// The forecast of one series.
pub(super) struct Done<'a> {
    pub(super) series: &'a One,
    pub(super) ahead: Forecast,
    pub(super) paths: Vec<Vec<f64>>,
    pub(super) components: Vec<ComponentShare>,
    /// The components of the rows in memory, and their times.
    pub(super) past: (Vec<f64>, Vec<ComponentShare>),
    pub(super) backtest: Option<Backtest>,
    pub(super) seasons: Vec<f64>,
    pub(super) lags: Vec<usize>,
    pub(super) scale: Scale,
    pub(super) seconds: f64,
}

impl Done<'_> {
    /// A few lines for people.
    pub(super) fn summary(&self, step: f64) -> String {
        let mut out = String::new();
        let named =
            if self.series.name.is_empty() { String::new() } else { format!("{}: ", self.series.name) };
        let seasons: Vec<String> =
            self.seasons.iter().map(|s| format!("{}", (s * 1e4).round() / 1e4)).collect();
        let lags: Vec<String> = self.lags.iter().map(ToString::to_string).collect();
        let or_none = |list: Vec<String>| if list.is_empty() { "none".into() } else { list.join(", ") };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{named}{} rows, a step of {}, seasons {}, lags {}, {}{:.2} s",
            self.series.times.len(),
            (step * 1e6).round() / 1e6,
            or_none(seasons),
            or_none(lags),
            if self.scale == Scale::Log { "on the scale of logarithms, " } else { "" },
            self.seconds
        );
        if let Some(backtest) = &self.backtest {
            let _ = writeln!(
                out,
                "{} forecasts from the second half, beside {}:",
                backtest.origins,
                if backtest.naive_season > 0.0 {
                    format!("the value {} before", (backtest.naive_season * 1e4).round() / 1e4)
                } else {
                    "the last value".into()
                }
            );
            let _ = writeln!(
                out,
                "{:>11} {:>10} {:>10} {:>7} {:>10} {:>9} {:>10}",
                "steps", "RMSE", "naive", "MASE", "CRPS", "coverage", "width"
            );
            for score in backtest.by_horizon.iter().chain([&backtest.all]) {
                let _ = writeln!(
                    out,
                    "{:>11} {:>10.4} {:>10.4} {:>7.3} {:>10.4} {:>9.3} {:>10.4}",
                    steps(score),
                    score.rmse,
                    score.naive_rmse,
                    score.mase,
                    score.crps,
                    score.coverage,
                    score.width
                );
            }
        }
        out
    }

    /// The same for programs.
    pub(super) fn json(&self, clock: Clock) -> Value {
        let time = |t: &f64| clock.write(*t).map_or_else(|| json!(t), Value::String);
        let mut out = json!({
            "rows": self.series.times.len(),
            "seasons": self.seasons,
            "lags": self.lags,
            "scale": self.scale.name(),
            "seconds": self.seconds,
            "forecast": {
                "time": self.ahead.times.iter().map(time).collect::<Vec<_>>(),
                "mean": self.ahead.mean,
                "std": self.ahead.std,
                "lower": self.ahead.lower,
                "upper": self.ahead.upper,
            },
            "components": self.components.iter().map(|c| json!({"name": c.name, "mean": c.mean, "std": c.std}))
                .collect::<Vec<_>>(),
        });
        if !self.series.name.is_empty() {
            out["series"] = json!(self.series.name);
        }
        if !self.paths.is_empty() {
            out["paths"] = json!(self.paths);
        }
        if let Some(backtest) = &self.backtest {
            let score = |s: &HorizonScore| {
                json!({
                    "from": s.from, "to": s.to, "count": s.count, "rmse": s.rmse, "naive_rmse": s.naive_rmse,
                    "mase": s.mase, "crps": s.crps, "coverage": s.coverage, "width": s.width,
                })
            };
            out["backtest"] = json!({
                "origins": backtest.origins,
                "naive_season": backtest.naive_season,
                "by_horizon": backtest.by_horizon.iter().map(score).collect::<Vec<_>>(),
                "all": score(&backtest.all),
            });
        }
        out
    }

    /// The figures of the report.
    fn figures(&self, clock: Clock, names: &Names) -> Vec<Box<dyn wiski_figures::Figure>> {
        // Dates as days from the first row of the figure on: an axis of seconds says nothing.
        let shown = (4 * self.ahead.times.len()).clamp(100, 2000).min(self.series.times.len());
        let from = self.series.times.len() - shown;
        let zero = if clock == Clock::Dates { self.series.times[from] } else { 0.0 };
        let unit = if clock == Clock::Dates { 86_400.0 } else { 1.0 };
        let place = |t: &f64| (t - zero) / unit;
        let x_label = match clock.write(zero).filter(|_| clock == Clock::Dates) {
            Some(start) => format!("days since {start}"),
            None => names.time.clone(),
        };
        let title = self.series.name.clone();
        let known: Vec<usize> =
            (from..self.series.times.len()).filter(|i| !self.series.targets[*i].is_nan()).collect();
        let forecast = SeriesForecast {
            title: title.clone(),
            x_label: x_label.clone(),
            y_label: names.target.clone(),
            past: known.iter().map(|i| place(&self.series.times[*i])).collect(),
            targets: known.iter().map(|i| self.series.targets[*i]).collect(),
            ahead: self.ahead.times.iter().map(place).collect(),
            mean: self.ahead.mean.clone(),
            lower: self.ahead.lower.clone(),
            upper: self.ahead.upper.clone(),
            level: (names.level * 1e4).round() / 1e2,
        };
        let (times, past) = &self.past;
        let first = times.partition_point(|t| *t < self.series.times[from]);
        let part = |(before, after): (&ComponentShare, &ComponentShare)| {
            let both = |a: &[f64], b: &[f64]| a[first..].iter().chain(b).copied().collect::<Vec<f64>>();
            let (mean, std) = (both(&before.mean, &after.mean), both(&before.std, &after.std));
            let edge = |sign: f64| mean.iter().zip(&std).map(|(m, s)| m + sign * 1.96 * s).collect();
            SeriesPart {
                name: before.name.clone(),
                x: times[first..].iter().chain(&self.ahead.times).map(place).collect(),
                lower: edge(-1.0),
                upper: edge(1.0),
                mean,
                now: times.last().map_or(0.0, place),
            }
        };
        // A component of the past may have no share in rows ahead that only one of two models can forecast.
        let ahead = |before: &ComponentShare| self.components.iter().find(|c| c.name == before.name);
        let parts = past.iter().filter_map(|before| Some((before, ahead(before)?))).map(part).collect();
        vec![Box::new(forecast), Box::new(SeriesComponents { title, x_label, parts })]
    }
}

fn steps(score: &HorizonScore) -> String {
    if score.from == score.to { score.from.to_string() } else { format!("{}–{}", score.from, score.to) }
}

/// The names that a report uses.
pub(super) struct Names {
    pub(super) time: String,
    pub(super) target: String,
    pub(super) level: f64,
}

/// Writes the report of all series; the path of its page.
pub(super) fn write_report(
    folder: &Path,
    all: &[Done],
    clock: Clock,
    names: &Names,
    input: &str,
) -> Result<PathBuf> {
    let mut report = Report {
        title: format!("Forecast of {}", names.target),
        summary: format!("{} steps ahead of {input}.", all.first().map_or(0, |d| d.ahead.times.len())),
        ..Report::default()
    };
    for done in all {
        let name = |text: &str| {
            if done.series.name.is_empty() {
                text.to_string()
            } else {
                format!("{}: {text}", done.series.name)
            }
        };
        if let Some(backtest) = &done.backtest {
            for score in backtest.by_horizon.iter().chain([&backtest.all]) {
                report.headline.push((
                    name(&format!("steps {}", steps(score))),
                    format!(
                        "RMSE {:.4} (naive {:.4}), MASE {:.3}, CRPS {:.4}, coverage {:.3}, width {:.4}",
                        score.rmse, score.naive_rmse, score.mase, score.crps, score.coverage, score.width
                    ),
                ));
            }
        }
        report.settings.push((name("seasons"), format!("{:?}", done.seasons)));
        report.settings.push((name("lags"), format!("{:?}", done.lags)));
        report.settings.push((name("scale"), done.scale.name().into()));
        report.figures.extend(done.figures(clock, names));
    }
    report::write(folder, &report)
}
