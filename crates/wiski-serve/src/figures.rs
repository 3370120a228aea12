//! The figures of a model that the reports of the command line have, as SVG: what it has learned, whether intervals keep
//! their promise, residuals, latency. They are drawn from the newest view, so nobody waits for them.

use wiski::Column;
use wiski::decide::Goal;
use wiski::model::{FeatureMap, Z95};
use wiski::persist::Model;
use wiski_figures::{
    Comparison, Curve, Effect, Effects, Field, Figure, Line, Lines, Map, Run, SeriesForecast, Trace,
};

use crate::batch::{Schema, TargetKind};
use crate::error::Failure;
use crate::history::{History, Past};
use crate::view::View;

/// Places along an input: of a curve, of an effect, of a map.
const CURVE: usize = 200;
const EFFECT: usize = 60;
const MAP: usize = 32;
/// Effects that are shown.
const EFFECTS: usize = 12;
/// Dots in a figure.
const DOTS: usize = 400;
/// Steps of a forecast that are shown.
const AHEAD: usize = 96;

/// A figure by name: its heading, and how to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The name in its path.
    pub name: &'static str,
    /// The heading.
    pub heading: &'static str,
    /// How to read it.
    pub reading: &'static str,
}

impl About {
    fn of(figure: &dyn Figure) -> Self {
        Self { name: figure.name(), heading: figure.heading(), reading: figure.reading() }
    }
}

const LATENCY: About = About {
    name: "latency",
    heading: "Latency",
    reading: "How long the last 1,000 predictions and changes took inside the server, in ascending order: the right end of \
              a line are the slowest. A change includes its way to the disk.",
};

/// The figures of a model.
pub fn list(schema: &Schema) -> Vec<About> {
    let mut all = match (schema.target, schema.columns.inputs.len()) {
        (TargetKind::Trial, _) => return vec![About::of(&Trace::default()), LATENCY],
        (TargetKind::Series, _) => vec![About::of(&SeriesForecast::default())],
        (_, 1) => vec![About::of(&Curve::default())],
        (_, 2) => vec![About::of(&Map::default())],
        _ => vec![About::of(&Effects::default())],
    };
    let history = History::default();
    all.push(About::of(&history.coverage(0.95, "")));
    if schema.target != TargetKind::Label {
        all.push(About::of(&history.residuals()));
    }
    all.push(LATENCY);
    all
}

/// A figure as SVG, on light or dark ground.
pub fn svg(name: &str, view: &View, history: &History, is_dark: bool) -> Result<String, Failure> {
    if list(&view.schema).iter().all(|about| about.name != name) {
        let all: Vec<&str> = list(&view.schema).iter().map(|about| about.name).collect();
        return Err(Failure::NotFound(format!("there is no such figure; there are {}", all.join(", "))));
    }
    let target = &view.schema.columns.target;
    let drawing = match name {
        "latency" => latency(history).draw(),
        "residuals" => history.residuals().draw(),
        "intervals" => {
            let size = if view.schema.target == TargetKind::Label {
                "Classes in a set".to_owned()
            } else {
                format!("Width of the intervals of {target}")
            };
            history.coverage(view.figures.level, &size).draw()
        }
        "trace" => trace(view).draw(),
        "forecast" => forecast(view, history)?.draw(),
        "fit" => curve(view, history)?.draw(),
        "surface" => map(view, history)?.draw(),
        _ => effects(view)?.draw(),
    };
    let svg = drawing.svg();
    Ok(if is_dark { darkened(&svg) } else { svg })
}

/// The colors of ground, text, axes and grid for dark pages; those of data stay.
fn darkened(svg: &str) -> String {
    let colors = [
        ("\"white\"", "\"#1d2127\""),
        ("\"#ffffff\"", "\"#1d2127\""),
        ("\"#222222\"", "\"#e6e9ee\""),
        ("\"black\"", "\"#e6e9ee\""),
        ("\"#777777\"", "\"#98a2b0\""),
        ("\"#8c8c8c\"", "\"#98a2b0\""),
        ("\"#ececec\"", "\"#323842\""),
        ("\"#0072b2\"", "\"#56b4e9\""),
    ];
    colors.iter().fold(svg.to_owned(), |svg, (light, dark)| svg.replace(light, dark))
}

/// Where each input has been seen: what the grid covers, or two and a half deviations around the mean.
pub(crate) fn ranges(model: &Model) -> Vec<(f64, f64)> {
    let (encoder, process) = match model {
        Model::Regressor(model) => (model.encoder(), model.model()),
        Model::Classifier(model) => (model.encoder(), model.model(0)),
    };
    let Some(encoder) = encoder else { return Vec::new() };
    let scaling = encoder.scaling();
    let kinds = &model.settings().columns;
    let range = |k: usize| {
        let (lo, hi) = match (encoder.map(), process) {
            (FeatureMap::Identity(_), Some(process)) => {
                let axis = process.stats().lattice().grids().first().and_then(|grid| grid.axes().get(k));
                axis.map_or((-2.5, 2.5), |axis| (axis.lo(), axis.hi()))
            }
            _ => (-2.5, 2.5),
        };
        let user = |v: f64| v / scaling.factor[k] + scaling.shift[k];
        match kinds.get(k).copied().unwrap_or_default() {
            Column::Numeric => (user(lo), user(hi)),
            Column::Periodic { period } => (0.0, period),
            Column::Categorical { levels, .. } => (0.0, levels.saturating_sub(1) as f64),
        }
    };
    (0..model.input_dim()).map(range).collect()
}

/// Places along an input: evenly spaced, or all levels.
fn along(schema: &Schema, k: usize, (lo, hi): (f64, f64), count: usize) -> Vec<f64> {
    if schema.wants_text(crate::batch::Slot::Input(k)) {
        return (0..=hi as usize).map(|level| level as f64).collect();
    }
    // Kept off the rounding of the ends.
    let margin = 1e-9 * (hi - lo);
    let (lo, hi) = (lo + margin, hi - margin);
    (0..count).map(|i| lo + (hi - lo) * i as f64 / (count - 1) as f64).collect()
}

fn center(view: &View) -> Vec<f64> {
    let middle = |(k, (lo, hi)): (usize, &(f64, f64))| {
        let middle = 0.5 * (lo + hi);
        if view.schema.wants_text(crate::batch::Slot::Input(k)) { middle.floor() } else { middle }
    };
    view.ranges.iter().enumerate().map(middle).collect()
}

fn quantity(view: &View) -> String {
    match view.labels().last() {
        Some(last) => format!("probability of {last}"),
        None => view.schema.columns.target.clone(),
    }
}

/// Mean and deviations at places along one input.
fn values(view: &View, k: usize, xs: &[f64]) -> Result<Vec<[f64; 3]>, Failure> {
    let mut x = center(view);
    xs.iter()
        .map(|&v| {
            x[k] = v;
            view.shown(&x)
        })
        .collect()
}

/// The band of 95 %, below or above; none for classes.
fn band(values: &[[f64; 3]], sign: f64, which: usize) -> Vec<f64> {
    let all: Vec<f64> = values.iter().map(|v| v[0] + sign * Z95 * v[which]).collect();
    if all.iter().all(|v| v.is_finite()) { all } else { Vec::new() }
}

/// The last rows, thinned out, that were in the range.
fn dots(history: &History) -> Vec<Past> {
    let count = history.rows().count();
    history.rows().step_by(count.div_ceil(DOTS).max(1)).copied().collect()
}

fn ready(view: &View) -> Result<(), Failure> {
    if view.is_ready() && view.ranges.len() == view.schema.columns.inputs.len() {
        Ok(())
    } else {
        Err(Failure::NotReady)
    }
}

fn curve(view: &View, history: &History) -> Result<Curve, Failure> {
    ready(view)?;
    let x = along(&view.schema, 0, view.ranges[0], CURVE);
    let values = values(view, 0, &x)?;
    let seen: Vec<Past> = dots(history).into_iter().filter(|past| past.y.is_finite()).collect();
    Ok(Curve {
        title: String::new(),
        x_label: view.schema.columns.inputs[0].clone(),
        y_label: quantity(view),
        mean: values.iter().map(|v| v[0]).collect(),
        lower: band(&values, -1.0, 1),
        upper: band(&values, 1.0, 1),
        lower_observed: band(&values, -1.0, 2),
        upper_observed: band(&values, 1.0, 2),
        x,
        data_x: seen.iter().map(|past| past.x[0]).collect(),
        data_y: seen.iter().map(|past| past.y).collect(),
    })
}

fn map(view: &View, history: &History) -> Result<Map, Failure> {
    ready(view)?;
    let x = along(&view.schema, 0, view.ranges[0], MAP);
    let y = along(&view.schema, 1, view.ranges[1], MAP);
    let (mut mean, mut std) = (Vec::new(), Vec::new());
    for &v in &y {
        for &u in &x {
            let [m, s, _] = view.shown(&[u, v])?;
            mean.push(m);
            std.push(s);
        }
    }
    let quantity = quantity(view);
    let field =
        |of: &str, values| Field { title: String::new(), quantity: format!("{of} of {quantity}"), values };
    let within = |v: f64, (lo, hi): (f64, f64)| v >= lo && v <= hi;
    let seen: Vec<Past> = dots(history)
        .into_iter()
        .filter(|past| within(past.x[0], view.ranges[0]) && within(past.x[1], view.ranges[1]))
        .collect();
    Ok(Map {
        title: String::new(),
        x_label: view.schema.columns.inputs[0].clone(),
        y_label: view.schema.columns.inputs[1].clone(),
        fields: vec![field("mean", mean), field("standard deviation", std)],
        data_x: seen.iter().map(|past| past.x[0]).collect(),
        data_y: seen.iter().map(|past| past.x[1]).collect(),
        x,
        y,
    })
}

/// Predictions along each input, the others in the middle; those that change most come first.
fn effects(view: &View) -> Result<Effects, Failure> {
    ready(view)?;
    let mut parts = Vec::new();
    // With very many inputs, only so many are looked at.
    for (k, &range) in view.ranges.iter().enumerate().take(8 * EFFECTS) {
        let x = along(&view.schema, k, range, EFFECT);
        let values = values(view, k, &x)?;
        let mean: Vec<f64> = values.iter().map(|v| v[0]).collect();
        let (lo, hi) = mean.iter().fold((f64::INFINITY, -f64::INFINITY), |(a, b), v| (a.min(*v), b.max(*v)));
        let (lower, upper) = (band(&values, -1.0, 1), band(&values, 1.0, 1));
        let name = view.schema.columns.inputs[k].clone();
        parts.push((hi - lo, Effect { name, share: f64::NAN, x, mean, lower, upper }));
    }
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    Ok(Effects {
        title: "the other inputs in the middle of their range".into(),
        y_label: quantity(view),
        parts: parts.into_iter().take(EFFECTS).map(|(_, effect)| effect).collect(),
    })
}

/// The end of a series and what comes next; with inputs, as if they stayed as they are, which is not said: only the past.
fn forecast(view: &View, history: &History) -> Result<SeriesForecast, Failure> {
    let forecaster = view.series().ok_or(Failure::NotReady)?;
    let mut figure = SeriesForecast {
        x_label: view.schema.columns.time.clone().unwrap_or_default(),
        y_label: view.schema.columns.target.clone(),
        past: history.rows().map(|past| past.time).collect(),
        targets: history.rows().map(|past| past.y).collect(),
        level: 100.0 * view.figures.level,
        ..SeriesForecast::default()
    };
    if forecaster.is_ready() && view.schema.columns.inputs.is_empty() {
        let season = forecaster.seasons().iter().copied().fold(0.0, f64::max);
        let steps = (2.0 * season / forecaster.step().unwrap_or(1.0)) as usize;
        let said = forecaster.forecast(steps.clamp(12, AHEAD), &[], view.figures.level)?;
        figure.ahead = said.times;
        (figure.mean, figure.lower, figure.upper) = (said.mean, said.lower, said.upper);
        // Not so much of the past that what comes next is a speck.
        let keep = figure.past.len().saturating_sub(4 * figure.ahead.len());
        figure.past.drain(..keep);
        figure.targets.drain(..keep);
    }
    Ok(figure)
}

fn trace(view: &View) -> Trace {
    let Some(optimizer) = view.search() else { return Trace::default() };
    let several = !optimizer.settings().further.is_empty();
    let run = |(k, goal): (usize, Goal)| {
        let is_better = |a: f64, b: f64| match goal {
            Goal::Maximize => a > b,
            Goal::Minimize => a < b,
        };
        let (mut values, mut best) = (Vec::new(), Vec::new());
        for trial in optimizer.trials() {
            let value = trial.values().get(k).copied().unwrap_or(f64::NAN);
            let last = best.last().copied().unwrap_or(f64::NAN);
            // Only where every constraint holds can a value be the best.
            let is_best = trial.is_feasible() && (last.is_nan() || is_better(value, last));
            best.push(if is_best { value } else { last });
            values.push(value);
        }
        let name = if several { format!("objective {}", k + 1) } else { "the search".into() };
        Run { name, values, best }
    };
    let runs = optimizer.settings().goals().enumerate().map(run).collect();
    Trace { title: String::new(), y_label: "value".into(), runs }
}

fn latency(history: &History) -> Comparison {
    let line = |name: &str, is_change: bool| {
        let y = history.durations(is_change);
        let x = (0..y.len()).map(|i| 100.0 * (i as f64 + 0.5) / y.len() as f64).collect();
        Line { name: name.into(), x, y, ..Line::default() }
    };
    let lines = [line("predictions", false), line("changes", true)];
    let panel = Lines {
        title: String::new(),
        x_label: "share of requests that took no longer, %".into(),
        y_label: "milliseconds".into(),
        log_y: true,
        lines: lines.into_iter().filter(|line| !line.y.is_empty()).collect(),
        ..Lines::default()
    };
    Comparison { title: String::new(), panels: vec![panel] }
}
