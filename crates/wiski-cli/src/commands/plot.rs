//! `wiski plot`: pictures of what a model has learned.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use wiski::model::{FeatureMap, Reads, Z95};
use wiski::persist::{self, Answer, Model, Reading, Stored};
use wiski::{Column, OnlineRegressor};

use crate::files::Inputs;
use crate::input::{Row, Source};
use crate::model_options::number;
use crate::names;
use crate::output::say;
use crate::reading::{self, BadRows, ReadingOptions, Wanted};
use wiski_figures::{Curve, Effect, Effects, Field, Figure, Map};

/// Draw what a model has learned: a curve for one input, maps for two, slices for more.
#[derive(Args)]
pub(crate) struct Plot {
    /// A model file
    model: PathBuf,

    /// Where to write the picture: .svg or .png
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Show the rows of a file too
    #[arg(long, value_name = "FILE")]
    data: Option<String>,

    /// The one or two inputs to vary; the others stay where --at puts them
    #[arg(long, value_name = "COLUMNS")]
    axes: Vec<String>,

    /// Values of the other inputs, as a=1,b=2.5 [default: the middle of each]
    #[arg(long, value_name = "COLUMN=VALUE", allow_hyphen_values = true)]
    at: Vec<String>,

    #[command(flatten)]
    reading: ReadingOptions,
}

/// What of a model is to be seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// The inputs to vary, by number; empty for a choice by their number.
    axes: Vec<usize>,
    /// Fixed values of inputs.
    at: Vec<(usize, f64)>,
    /// Data points: inputs and targets.
    data: Vec<(Vec<f64>, Option<f64>)>,
}

impl Plot {
    pub(crate) fn run(&self) -> Result<()> {
        is_png(&self.output)?;
        let inputs = Inputs::default().and("the model", &self.model);
        let inputs = self.data.iter().fold(inputs, |inputs, path| inputs.and("the data", path));
        inputs.keep("--output", &self.output)?;
        let mut stored: Stored = reading::load(&self.model)?;
        ensure!(stored.model.is_ready(), "{}: still collecting the first rows", self.model.display());
        let view = self.view(&stored)?;
        let figures = figures(&mut stored, &view)?;
        let figure = figures.first().context("there is nothing to draw")?;
        write(figure.as_ref(), &self.output)
    }

    fn view(&self, stored: &Stored) -> Result<View> {
        let names = &stored.columns.inputs;
        let place = |name: &str| -> Result<usize> {
            let found = names.iter().position(|n| n == name);
            found.with_context(|| format!("the model has no input '{name}'; it has {}", names.join(", ")))
        };
        let axes = names::split_all(&self.axes);
        ensure!(axes.len() <= 2, "--axes: one or two inputs can be varied, not {}", axes.len());
        let axes = axes.iter().map(|a| place(a)).collect::<Result<_>>()?;
        let fixed = |entry: &String| -> Result<(usize, f64)> {
            let (name, value) =
                entry.rsplit_once('=').with_context(|| format!("--at: '{entry}' is not a=1"))?;
            let k = place(name)?;
            Ok(match stored.columns.reading(k) {
                Reading::Levels(levels) => {
                    let level = levels.iter().position(|level| level == value);
                    let known = || format!("--at: '{value}' is not one of the levels {}", levels.join(", "));
                    (k, level.with_context(known)? as f64)
                }
                Reading::Number | Reading::Calendar(_) => (k, number("--at", value)?),
            })
        };
        let at = names::split_all(&self.at).iter().map(fixed).collect::<Result<_>>()?;
        let mut data = Vec::new();
        if let Some(path) = &self.data {
            let source = Source::open(path, &self.reading.format)?;
            let kind = reading::kind(&stored.model);
            let mut rows = reading::select(source, &stored.columns, kind, Wanted::Required, &self.reading)?;
            let (mut row, mut bad) = (Row::default(), BadRows::new(self.reading.on_bad_row));
            while reading::next(&mut rows, &mut row, &mut bad)? {
                data.push((row.inputs.clone(), row.target));
            }
            bad.report();
            // More dots than this hide each other, and make files large.
            let keep = data.len().div_ceil(2000).max(1);
            data = data.into_iter().step_by(keep).collect();
        }
        Ok(View { axes, at, data })
    }
}

fn is_png(path: &Path) -> Result<bool> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => Ok(false),
        Some("png") => Ok(true),
        _ => bail!("{}: a picture is a .svg or a .png", path.display()),
    }
}

/// Writes a figure as what the file's name says.
pub(crate) fn write(figure: &dyn Figure, path: &Path) -> Result<()> {
    let drawing = figure.draw();
    let bytes = if is_png(path)? { drawing.png(2.0)? } else { drawing.svg().into_bytes() };
    persist::write_atomically(path, &bytes).with_context(|| path.display().to_string())?;
    say(format_args!("{}", path.display()))?;
    Ok(())
}

/// Where each input has been seen: what the grid covers, or two and a half deviations around the mean.
pub(crate) fn ranges(model: &Model) -> Vec<(f64, f64)> {
    let encoder = match model {
        Model::Regressor(model) => model.encoder(),
        Model::Classifier(model) => model.encoder(),
    };
    let Some(encoder) = encoder else { return vec![(-1.0, 1.0); model.input_dim()] };
    let scaling = encoder.scaling();
    let process = crate::summary::process(model).map(|(_, p)| p);
    let scaled = |k: usize| match (encoder.map(), process) {
        (FeatureMap::Identity(_), Some(process)) => {
            let axis = &process.stats().lattice().grids()[0].axes()[k];
            (axis.lo(), axis.hi())
        }
        _ => (-2.5, 2.5),
    };
    let user = |k: usize, v: f64| v / scaling.factor[k] + scaling.shift[k];
    let range = |k: usize| match kind(model, k) {
        Column::Numeric => (user(k, scaled(k).0), user(k, scaled(k).1)),
        Column::Periodic { period } => (0.0, period),
        Column::Categorical { levels, .. } => (0.0, (levels - 1) as f64),
    };
    (0..model.input_dim()).map(range).collect()
}

/// What an input means.
fn kind(model: &Model, k: usize) -> Column {
    let settings = match model {
        Model::Regressor(model) => model.settings(),
        Model::Classifier(model) => model.settings(),
    };
    settings.columns.get(k).copied().unwrap_or_default()
}

/// Places along an input: evenly spaced, or all levels.
fn along_input(model: &Model, k: usize, range: (f64, f64), count: usize) -> Vec<f64> {
    match kind(model, k) {
        Column::Categorical { levels, .. } => (0..levels).map(|level| level as f64).collect(),
        Column::Numeric | Column::Periodic { .. } => places(range, count),
    }
}

/// Where an input stays while others vary: in the middle, levels at one of theirs.
fn middle(model: &Model, k: usize, (lo, hi): (f64, f64)) -> f64 {
    match kind(model, k) {
        Column::Categorical { .. } => (0.5 * (lo + hi)).floor(),
        Column::Numeric | Column::Periodic { .. } => 0.5 * (lo + hi),
    }
}

/// Evenly spaced places, both ends included but kept off the rounding of the ends.
pub(crate) fn places((lo, hi): (f64, f64), count: usize) -> Vec<f64> {
    let margin = 1e-9 * (hi - lo);
    let (lo, hi) = (lo + margin, hi - margin);
    (0..count).map(|i| lo + (hi - lo) * i as f64 / (count - 1) as f64).collect()
}

/// The pictures of a model. A prediction off the grid may extend it, so give a copy of a model that matters.
pub(crate) fn figures(stored: &mut Stored, view: &View) -> Result<Vec<Box<dyn Figure>>> {
    if !stored.model.is_ready() {
        return Ok(Vec::new());
    }
    let ranges = ranges(&stored.model);
    let mut center: Vec<f64> =
        ranges.iter().enumerate().map(|(k, range)| middle(&stored.model, k, *range)).collect();
    view.at.iter().for_each(|&(k, value)| center[k] = value);
    let names = stored.columns.inputs.clone();
    let axes = match (&view.axes[..], names.len()) {
        ([], 1) => vec![0],
        ([], 2) => vec![0, 1],
        (axes, _) => axes.to_vec(),
    };
    match axes[..] {
        [k] => Ok(vec![Box::new(curve(stored, view, &center, k, ranges[k])?)]),
        [a, b] => Ok(vec![Box::new(map(stored, view, &center, [a, b], [ranges[a], ranges[b]])?)]),
        _ => Ok(match effects(stored, view, &center, &ranges)? {
            Some(effects) => vec![Box::new(effects)],
            None => vec![Box::new(slices(stored, &center, &ranges)?)],
        }),
    }
}

/// What is shown of a prediction: mean, deviation of the function, deviation of an observation.
fn shown(stored: &mut Stored, x: &[f64]) -> Result<[f64; 3]> {
    Ok(match stored.model.predict(x)? {
        Answer::Value(p) => [p.mean, p.variance.sqrt(), p.std()],
        Answer::Class(p) => {
            // Of classes: the probability of the last one, and how undecided the model is.
            let last = p.probabilities.last().copied().unwrap_or(0.0);
            [last, (last * (1.0 - last)).sqrt(), f64::NAN]
        }
    })
}

fn quantity(stored: &Stored) -> String {
    match &stored.model {
        Model::Regressor(_) => stored.columns.target.clone(),
        Model::Classifier(model) => {
            format!("probability of {}", model.classes().last().map_or("", String::as_str))
        }
    }
}

/// Values along one input, the others staying at `center`.
fn along(stored: &mut Stored, center: &[f64], k: usize, xs: &[f64]) -> Result<Vec<[f64; 3]>> {
    let mut x = center.to_vec();
    xs.iter()
        .map(|&v| {
            x[k] = v;
            shown(stored, &x)
        })
        .collect()
}

fn curve(stored: &mut Stored, view: &View, center: &[f64], k: usize, range: (f64, f64)) -> Result<Curve> {
    let x = along_input(&stored.model, k, range, 300);
    let values = along(stored, center, k, &x)?;
    let band = |sign: f64, which: usize| -> Vec<f64> {
        values.iter().map(|v| v[0] + sign * Z95 * v[which]).collect()
    };
    let regression = matches!(stored.model, Model::Regressor(_));
    let (data_x, data_y) = view.data.iter().filter_map(|(x, y)| y.map(|y| (x[k], y))).unzip();
    Ok(Curve {
        title: quantity(stored),
        x_label: stored.columns.inputs[k].clone(),
        y_label: quantity(stored),
        mean: values.iter().map(|v| v[0]).collect(),
        lower: if regression { band(-1.0, 1) } else { Vec::new() },
        upper: if regression { band(1.0, 1) } else { Vec::new() },
        lower_observed: if regression { band(-1.0, 2) } else { Vec::new() },
        upper_observed: if regression { band(1.0, 2) } else { Vec::new() },
        x,
        data_x,
        data_y,
    })
}

fn map(
    stored: &mut Stored,
    view: &View,
    center: &[f64],
    [a, b]: [usize; 2],
    [range_a, range_b]: [(f64, f64); 2],
) -> Result<Map> {
    ensure!(a != b, "--axes: two different inputs are needed");
    let x = along_input(&stored.model, a, range_a, 80);
    let y = along_input(&stored.model, b, range_b, 80);
    let mut point = center.to_vec();
    let (mut mean, mut std) = (Vec::new(), Vec::new());
    for &v in &y {
        point[b] = v;
        for &u in &x {
            point[a] = u;
            let [m, s, _] = shown(stored, &point)?;
            mean.push(m);
            std.push(s);
        }
    }
    let quantity = quantity(stored);
    let field =
        |of: &str, values| Field { title: String::new(), quantity: format!("{of} of {quantity}"), values };
    Ok(Map {
        title: quantity.clone(),
        x_label: stored.columns.inputs[a].clone(),
        y_label: stored.columns.inputs[b].clone(),
        fields: vec![field("mean", mean), field("standard deviation", std)],
        data_x: view.data.iter().map(|(p, _)| p[a]).collect(),
        data_y: view.data.iter().map(|(p, _)| p[b]).collect(),
        x,
        y,
    })
}

/// What the blocks of an additive model add to a prediction, the most important first: curves of those that read
/// one column or one direction, and of inducing points along the columns that matter most to them. `None` for other models.
fn effects(
    stored: &mut Stored,
    view: &View,
    center: &[f64],
    ranges: &[(f64, f64)],
) -> Result<Option<Effects>> {
    const SHOWN: usize = 12;
    let names = &stored.columns.inputs;
    let along: Vec<Vec<f64>> =
        ranges.iter().enumerate().map(|(k, range)| along_input(&stored.model, k, *range, 120)).collect();
    let Model::Regressor(model) = &mut stored.model else { return Ok(None) };
    let numeric: Vec<bool> = (0..ranges.len())
        .map(|k| model.settings().columns.get(k).is_none_or(|kind| *kind == Column::Numeric))
        .collect();
    let blocks = model.blocks();
    if blocks.len() < 2 {
        return Ok(None);
    }
    let mut order: Vec<usize> = (0..blocks.len()).filter(|&j| blocks[j].reads.len() == 1).collect();
    order.sort_by(|a, b| blocks[*b].share.total_cmp(&blocks[*a].share));
    let mut parts = Vec::new();
    for &j in order.iter().take(SHOWN) {
        let (name, rows, x): (String, Vec<f64>, Vec<f64>) = match &blocks[j].reads[0] {
            Reads::Column(k) => {
                let x = along[*k].clone();
                let row = |v: &f64| {
                    let mut row = center.to_vec();
                    row[*k] = *v;
                    row
                };
                (names[*k].clone(), x.iter().flat_map(row).collect(), x)
            }
            Reads::Direction(weights) => {
                // From one side of the data to the other along the direction.
                let top = weights.iter().fold(0.0f64, |m, w| m.max(w.abs())).max(f64::MIN_POSITIVE);
                let x = places((-1.0, 1.0), 120);
                let row = |t: &f64| -> Vec<f64> {
                    // Directions lead through numbers only.
                    let share = |k: usize| if numeric[k] { t * weights[k] / top } else { 0.0 };
                    let at = |k: usize| center[k] + share(k) * 0.5 * (ranges[k].1 - ranges[k].0);
                    (0..center.len()).map(at).collect()
                };
                let mut leading: Vec<usize> = (0..weights.len()).collect();
                leading.sort_by(|a, b| weights[*b].abs().total_cmp(&weights[*a].abs()));
                let named: Vec<&str> = leading.iter().take(2).map(|&k| names[k].as_str()).collect();
                (format!("along {}, …", named.join(", ")), x.iter().flat_map(row).collect(), x)
            }
            Reads::Values(_) | Reads::Hidden => continue,
        };
        let values = model.effect(j, &rows)?;
        let band = |sign: f64| values.iter().map(|p| p.mean + sign * Z95 * p.variance.sqrt()).collect();
        parts.push(Effect {
            name,
            share: blocks[j].share,
            mean: values.iter().map(|p| p.mean).collect(),
            lower: band(-1.0),
            upper: band(1.0),
            x,
        });
    }
    parts.extend(dependences(model, names, view, center, &along)?);
    let title = format!("what each part adds to {}", stored.columns.target);
    Ok(Some(Effects { title, y_label: format!("effect on {}", stored.columns.target), parts }))
}

/// What the inducing points of a model add along the columns that matter most to them: their partial dependence, the mean over
/// rows of a file if there are any, else with the other inputs in the middle.
fn dependences(
    model: &OnlineRegressor,
    names: &[String],
    view: &View,
    center: &[f64],
    along: &[Vec<f64>],
) -> Result<Vec<Effect>> {
    const SHOWN: usize = 4;
    const ROWS: usize = 60;
    let (blocks, Some(relevances)) = (model.blocks(), model.relevances()) else { return Ok(Vec::new()) };
    let Some(j) = blocks.iter().position(|block| block.is_points) else { return Ok(Vec::new()) };
    let every = view.data.len().div_ceil(ROWS).max(1);
    let mut rows: Vec<Vec<f64>> = view.data.iter().step_by(every).map(|(x, _)| x.clone()).collect();
    if rows.is_empty() {
        rows.push(center.to_vec());
    }
    let mut order: Vec<usize> = (0..relevances.len()).filter(|&k| relevances[k] > 0.0).collect();
    order.sort_by(|a, b| relevances[*b].total_cmp(&relevances[*a]));
    let mut parts = Vec::new();
    for &k in order.iter().take(SHOWN) {
        let (x, count) = (&along[k], along[k].len());
        let (mut mean, mut deviation) = (vec![0.0; count], vec![0.0; count]);
        for row in &rows {
            let varied = x.iter().flat_map(|&v| {
                let mut row = row.clone();
                row[k] = v;
                row
            });
            let effect = model.effect(j, &varied.collect::<Vec<f64>>())?;
            for (i, p) in effect.iter().enumerate() {
                mean[i] += p.mean / rows.len() as f64;
                // Errors at neighboring rows go together: no smaller by taking the mean.
                deviation[i] += p.variance.sqrt() / rows.len() as f64;
            }
        }
        let band = |sign: f64| mean.iter().zip(&deviation).map(|(m, s)| m + sign * Z95 * s).collect();
        parts.push(Effect {
            name: format!("{} in the points", names[k]),
            share: blocks[j].share * relevances[k],
            lower: band(-1.0),
            upper: band(1.0),
            mean,
            x: x.clone(),
        });
    }
    Ok(parts)
}

/// One curve for each input, the others staying in the middle.
fn slices(stored: &mut Stored, center: &[f64], ranges: &[(f64, f64)]) -> Result<Effects> {
    let mut effects = Vec::new();
    for (k, &range) in ranges.iter().enumerate() {
        let x = along_input(&stored.model, k, range, 120);
        let values = along(stored, center, k, &x)?;
        let band = |sign: f64| values.iter().map(|v| v[0] + sign * Z95 * v[1]).collect();
        effects.push(Effect {
            name: stored.columns.inputs[k].clone(),
            share: f64::NAN,
            mean: values.iter().map(|v| v[0]).collect(),
            lower: band(-1.0),
            upper: band(1.0),
            x,
        });
    }
    Ok(Effects {
        title: "the other inputs in the middle of their range".into(),
        y_label: quantity(stored),
        parts: effects,
    })
}
