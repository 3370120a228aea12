//! What a stream came to: as a table for people, as JSON for programs.

use serde_json::{Map, Value, json};
use wiski::model::{Coverage, Prequential, PrequentialClasses, in_user_units};
use wiski::persist::{Model, Stored};

use crate::intervals::percent;
use crate::latency::{self, Latencies};

/// The figures of predictions on rows the model had not seen.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "there are one or two of them")]
pub(crate) enum Figures {
    /// Of numbers, with the level of their intervals.
    Numbers(Prequential, f64),
    /// Of classes, with the level of their sets.
    Classes(PrequentialClasses, f64),
}

impl Figures {
    /// The figures of the predictions made along the stream.
    pub(crate) fn of_stream(model: &Model) -> Self {
        let level = model.settings().intervals.level;
        match model {
            Model::Regressor(model) => Self::Numbers(*model.metrics(), level),
            Model::Classifier(model) => Self::Classes(*model.metrics(), level),
        }
    }

    fn rows(self) -> f64 {
        match self {
            Self::Numbers(m, _) => m.rows(),
            Self::Classes(m, _) => m.rows(),
        }
    }

    /// Names and values; empty without rows.
    fn values(self) -> Vec<(&'static str, f64)> {
        match self {
            _ if self.rows() == 0.0 => Vec::new(),
            Self::Numbers(m, _) => {
                vec![("rmse", m.rmse()), ("nll", m.nll()), ("coverage95", m.coverage95())]
            }
            Self::Classes(m, _) => vec![
                ("accuracy", m.accuracy()),
                ("log_loss", m.log_loss()),
                ("calibration_error", m.calibration_error()),
            ],
        }
    }

    /// How intervals or sets have held, their level, and what their size is called; `None` without rows.
    fn coverage(&self) -> Option<(&Coverage, f64, &'static str)> {
        let (coverage, level, name) = match self {
            Self::Numbers(m, level) => (m.intervals(), *level, "mean_width"),
            Self::Classes(m, level) => (m.sets(), *level, "mean_set_size"),
        };
        (coverage.rows() > 0.0).then_some((coverage, level, name))
    }

    fn json(self) -> Value {
        if self.rows() == 0.0 {
            return Value::Null;
        }
        let mut map: Map<_, _> = self.values().into_iter().map(|(k, v)| (k.into(), json!(v))).collect();
        map.insert("rows".into(), json!(self.rows()));
        if let Some((coverage, level, size)) = self.coverage() {
            map.insert("level".into(), json!(level));
            map.insert("coverage".into(), json!(coverage.share()));
            map.insert(size.into(), json!(coverage.mean_size()));
            map.insert("coverage_of_windows".into(), json!(coverage.windows().map(|(lo, hi)| [lo, hi])));
        }
        Value::Object(map)
    }

    fn text(self) -> String {
        let show = |(name, value): (&str, f64)| match name {
            "accuracy" => format!("accuracy {:.2} %", 100.0 * value),
            "log_loss" => format!("log-loss {value:.4}"),
            "calibration_error" => format!("calibration error {value:.4}"),
            name => format!("{} {value:.4}", name.to_uppercase()),
        };
        let values = self.values().into_iter().filter(|(name, _)| *name != "coverage95");
        let mut all: Vec<String> = values.map(show).collect();
        if let Some((coverage, level, _)) = self.coverage() {
            let (share, size) = (100.0 * coverage.share(), coverage.mean_size());
            all.push(match self {
                Self::Numbers(..) => {
                    let width = brief(size);
                    format!(
                        "{share:.1} % of targets in the {} interval of mean width {width}",
                        percent(level)
                    )
                }
                Self::Classes(..) => {
                    format!("{share:.1} % of classes in the {} set of {size:.2} on average", percent(level))
                }
            });
        }
        if all.is_empty() { "nothing was predicted".into() } else { all.join(", ") }
    }
}

/// What a user should know about the data and the fit.
pub(crate) fn remarks(stored: &Stored) -> Vec<String> {
    stored.model.remarks().iter().map(|remark| remark.text(&stored.columns.inputs)).collect()
}

/// What a run of `wiski stream` came to.
pub(crate) struct Summary<'a> {
    pub(crate) stored: &'a Stored,
    pub(crate) rows: u64,
    pub(crate) skipped: u64,
    /// Rows that raised an alarm and were therefore not learned.
    pub(crate) passed_over: u64,
    pub(crate) holdout: Option<Figures>,
    pub(crate) seconds: f64,
    /// How long rows took to be predicted and learned.
    pub(crate) latencies: Latencies,
    pub(crate) model_file: Option<String>,
    pub(crate) report: Option<String>,
}

impl Summary<'_> {
    pub(crate) fn json(&self) -> Value {
        let process = process(&self.stored.model);
        let hyper: Map<_, _> =
            hyperparameters(&self.stored.model).into_iter().map(|(k, v)| (k, json!(v))).collect();
        json!({
            "rows": self.rows,
            "rows_in_all": self.stored.rows,
            "skipped": self.skipped,
            "off_grid": self.stored.model.ignored(),
            "remarks": remarks(self.stored),
            "not_learned_after_alarm": self.passed_over,
            "prequential": Figures::of_stream(&self.stored.model).json(),
            "holdout": self.holdout.map_or(Value::Null, Figures::json),
            "seconds": {
                "total": self.seconds, "per_row": self.seconds / (self.rows as f64).max(1.0),
                "p50": self.latencies.quantile(0.5), "p99": self.latencies.quantile(0.99),
                "p99.9": self.latencies.quantile(0.999), "max": self.latencies.longest(),
                "rows_above_max_latency": self.latencies.above_bound().map(|(_, rows)| rows),
            },
            "rank": process.map(|(_, p)| p.rank()),
            "engine": process.map(|(_, p)| p.engine()),
            "grid": process.map(|(_, p)| grid_shape(p)),
            "kernel": process.map(|(_, p)| kernels(p)),
            "hyperparameters": hyper,
            "n": self.stored.model.count(),
            "model": self.model_file,
            "report": self.report,
        })
    }

    /// Lines of names and values.
    pub(crate) fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        let mut line = |name: &str, value: String| lines.push((name.to_string(), value));
        // Figures are of all rows, so they are said beside all rows.
        let all = if self.stored.rows > self.rows {
            format!(" now, {} in all", self.stored.rows)
        } else {
            String::new()
        };
        line("rows", format!("{}{all}{}", self.rows, skipped(self.skipped)));
        if self.passed_over > 0 {
            line("alarms", format!("{} rows raised one and were not learned", self.passed_over));
        }
        for remark in remarks(self.stored) {
            line("note", remark);
        }
        line("along the stream", Figures::of_stream(&self.stored.model).text());
        if let Some((low, high)) =
            Figures::of_stream(&self.stored.model).coverage().and_then(|c| c.0.windows())
        {
            let shares = format!("{:.1} to {:.1} %", 100.0 * low, 100.0 * high);
            line("1,000 rows each", format!("{shares} inside"));
        }
        if let Some(holdout) = self.holdout {
            line("held out", format!("{} ({} rows)", holdout.text(), holdout.rows()));
        }
        let per_row = 1e6 * self.seconds / (self.rows as f64).max(1.0);
        line("time", format!("{:.2} s, {per_row:.1} µs a row", self.seconds));
        let quantile = |share: f64| self.latencies.quantile(share).map(latency::text);
        if let (Some(half), Some(most), Some(nearly)) = (quantile(0.5), quantile(0.99), quantile(0.999)) {
            let longest = latency::text(self.latencies.longest());
            line(
                "a row took",
                format!("{half} (half of them), {most} (99 %), {nearly} (99.9 %), {longest} at most"),
            );
        }
        if let Some((bound, rows)) = self.latencies.above_bound() {
            line("slower than", format!("{}: {rows} rows", latency::text(bound)));
        }
        if let Some((class, process)) = process(&self.stored.model) {
            line("grid", grids_and_rank(process));
            line("kernel", kernels(process));
            let mut named = hyperparameters(&self.stored.model);
            if named.len() > 24 {
                named.retain(|(name, _)| name == "noise");
            }
            let values: Vec<String> = named.iter().map(|(k, v)| format!("{k} {}", brief(*v))).collect();
            let of = class.map(|c| format!(" (of class {c})")).unwrap_or_default();
            line("hyperparameters", format!("{}{of}", values.join(", ")));
        } else {
            line("state", "still collecting the first rows".into());
        }
        if let Some(file) = &self.model_file {
            line("model", file.clone());
        }
        if let Some(report) = &self.report {
            line("report", report.clone());
        }
        lines
    }
}

/// A number with four digits.
fn brief(value: f64) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    if (1e-4..1e7).contains(&rounded.abs()) { format!("{rounded}") } else { format!("{rounded:e}") }
}

fn skipped(count: u64) -> String {
    if count == 0 { String::new() } else { format!(", {count} skipped") }
}

/// The hyperparameters of a model in the units of the data (of a classifier: those of its first class).
pub(crate) fn hyperparameters(model: &Model) -> Vec<(String, f64)> {
    let (encoder, scale) = match model {
        Model::Regressor(model) => (model.encoder(), model.target_scale().scale),
        Model::Classifier(model) => (model.encoder(), 1.0),
    };
    match (process(model), encoder) {
        (Some((_, process)), Some(encoder)) => in_user_units(process, encoder, scale),
        _ => Vec::new(),
    }
}

/// The Gaussian process of a model (of a classifier: that of its first class, with its label).
pub(crate) fn process(model: &Model) -> Option<(Option<&str>, &wiski::Wiski)> {
    match model {
        Model::Regressor(model) => model.model().map(|p| (None, p)),
        Model::Classifier(model) => model.model(0).map(|p| (model.classes().first().map(String::as_str), p)),
    }
}

pub(crate) fn grid_shape(process: &wiski::Wiski) -> Vec<usize> {
    let grids = process.stats().lattice().grids();
    grids.iter().flat_map(|g| g.axes().iter().map(wiski::Axis::points)).collect()
}

/// The grids with the rank of the prior and, for large ones, how posteriors are computed.
pub(crate) fn grids_and_rank(process: &wiski::Wiski) -> String {
    let engine = match process.engine() {
        "dense" => String::new(),
        large => format!(", {large} engine"),
    };
    format!("{}, rank {}{engine}", grids(process), process.rank())
}

/// The grids in words.
pub(crate) fn grids(process: &wiski::Wiski) -> String {
    let blocks = process.stats().lattice().grids();
    if let [grid] = blocks {
        let shape: Vec<String> = grid.axes().iter().map(|a| a.points().to_string()).collect();
        return format!("{} points", shape.join(" × "));
    }
    let points: usize = blocks.iter().map(wiski::Grid::len).sum();
    format!("{} grids with {points} points in all", blocks.len())
}

pub(crate) fn kernels(process: &wiski::Wiski) -> String {
    let all: Vec<String> = process.kernels().iter().map(ToString::to_string).collect();
    if all.len() < 4 {
        return all.join(" | ");
    }
    // A sum of grids: how many of each.
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for kernel in &all {
        match counted.iter_mut().find(|(name, _)| name == kernel) {
            Some((_, count)) => *count += 1,
            None => counted.push((kernel, 1)),
        }
    }
    counted.iter().map(|(name, count)| format!("{count} × {name}")).collect::<Vec<_>>().join(", ")
}

/// Two aligned columns.
pub(crate) fn table(lines: &[(String, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let line = |(name, value): &(String, String)| format!("{name:<width$}  {value}");
    lines.iter().map(line).collect::<Vec<_>>().join("\n") + "\n"
}
