//! `wiski info`: what a model is, down to the numbers from which a prediction can be recomputed.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use wiski::model::{Encoder, FeatureMap, Reads, Scaling};
use wiski::persist::{self, Model, Stored, StoredSeries};

use crate::commands::forecast::ahead;
use crate::output::say;
use crate::summary;

/// Show what a model is. With --json, everything that is needed to recompute a prediction.
///
/// A prediction is made like this: each input is scaled, u = (x − shift)/scale; the feature map gives
/// coordinates h (identity: h = u; linear: h = tanh((P u − mean)/(2 std))); a Gaussian process with the kernel
/// on the grid points, interpolated by cubic convolution, gives mean and variance; the target is scaled back,
/// y = shift + scale·mean.
#[derive(Args)]
pub(crate) struct Info {
    /// A model file
    model: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Info {
    pub(crate) fn run(&self) -> Result<()> {
        if ahead::is_series(&self.model)? {
            return self.series(&persist::load(&self.model)?);
        }
        let stored: Stored = persist::load(&self.model)?;
        let header = persist::header(&self.model)?;
        if self.json {
            say(format_args!("{}", describe(&stored, header.version)?))?;
        } else {
            say(summary::table(&lines(&stored)).trim_end())?;
        }
        Ok(())
    }
}

impl Info {
    fn series(&self, stored: &StoredSeries) -> Result<()> {
        let (model, columns) = (&stored.model, &stored.columns);
        let system = model.system();
        // In standardized units and steps.
        let components =
            system.map_or_else(Vec::new, |s| s.components().iter().map(|c| format!("{c:?}")).collect());
        if self.json {
            return say(json!({
                "kind": "forecaster", "time": columns.time, "target": columns.target, "inputs": columns.inputs,
                "rows": model.rows(), "last_time": model.last_time(), "step": model.step(), "seasons": model.seasons(),
                "lags": model.lags(), "components": components, "noise": system.map(wiski::time::System::noise),
            }));
        }
        let mut lines = vec![
            ("target".to_string(), columns.target.clone()),
            ("time".into(), columns.time.clone().unwrap_or_default()),
            ("inputs".into(), columns.inputs.join(", ")),
            ("rows".into(), format!("{} seen", model.rows())),
        ];
        match model.step() {
            Some(step) => {
                lines.push(("step".into(), crate::reading::brief(step)));
                lines.push(("seasons".into(), format!("{:?}", model.seasons())));
                lines.push(("lags".into(), format!("{:?}", model.lags())));
            }
            None => lines.push(("state".into(), "still collecting the first rows".into())),
        }
        lines.extend(components.into_iter().map(|c| ("component".into(), c)));
        say(summary::table(&lines).trim_end())
    }
}

fn lines(stored: &Stored) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push((name.to_string(), value));
    line("target", stored.columns.target.clone());
    line("inputs", stored.columns.inputs.join(", "));
    if let Model::Classifier(model) = &stored.model {
        line("classes", model.classes().join(", "));
    }
    line("rows", format!("{} seen, weight {} in the model", stored.rows, stored.model.count()));
    let Some((class, process)) = summary::process(&stored.model) else {
        line("state", "still collecting the first rows".into());
        return lines;
    };
    line("grid", summary::grids_and_rank(process));
    line("kernel", summary::kernels(process));
    let named = summary::hyperparameters(&stored.model);
    let many = named.len();
    if many > 24 {
        line("hyperparameters", format!("{many} (see --json)"));
    }
    for (name, value) in named.into_iter().filter(|(name, _)| many <= 24 || name == "noise") {
        let of = class.map(|c| format!(" (class {c})")).unwrap_or_default();
        line(&name, format!("{}{of}", crate::reading::brief(value)));
    }
    if let Model::Regressor(model) = &stored.model
        && model.blocks().len() > 1
    {
        let mut blocks = model.blocks();
        blocks.sort_by(|a, b| b.share.total_cmp(&a.share));
        let relevances = model.relevances();
        for block in blocks.iter().filter(|b| b.share >= 0.005 || b.is_points) {
            let by = match &relevances {
                // The points read all columns.
                Some(relevances) if block.is_points => {
                    let most = leading(relevances, &stored.columns.inputs);
                    format!("{} inducing points, which read {most}", block.points)
                }
                _ => {
                    let reads = block.reads.iter().map(|r| reads(r, &stored.columns.inputs));
                    reads.collect::<Vec<_>>().join(" and ")
                }
            };
            line(&format!("{:.1} %", 100.0 * block.share), format!("of the variance by {by}"));
        }
    }
    if let Some(encoder) = encoder(&stored.model) {
        let map = match encoder.map() {
            FeatureMap::Identity(_) => "the inputs themselves".to_string(),
            map => format!("{} learned features of {} inputs", map.output_dim(), map.input_dim()),
        };
        let state = if encoder.is_fixed() { "" } else { ", still learning" };
        line("features", format!("{map}{state}"));
    }
    for remark in crate::summary::remarks(stored) {
        line("note", remark);
    }
    lines
}

/// The columns that matter most to inducing points, in words.
fn leading(relevances: &[f64], names: &[String]) -> String {
    let mut order: Vec<usize> = (0..relevances.len()).collect();
    order.sort_by(|a, b| relevances[*b].total_cmp(&relevances[*a]));
    let share = |&k: &usize| format!("{} ({:.0} %)", names[k], 100.0 * relevances[k]);
    let top: Vec<String> = order.iter().take(5).filter(|&&k| relevances[k] >= 0.005).map(share).collect();
    format!("{}{}", top.join(", "), if order.len() > top.len() { ", …" } else { "" })
}

/// What a coordinate reads, in words.
fn reads(reads: &Reads, names: &[String]) -> String {
    match reads {
        Reads::Column(k) => names[*k].clone(),
        Reads::Values(k) => format!("single values of {}", names[*k]),
        Reads::Hidden => "a hidden feature".into(),
        Reads::Direction(weights) => {
            let mut order: Vec<usize> = (0..weights.len()).collect();
            order.sort_by(|a, b| weights[*b].abs().total_cmp(&weights[*a].abs()));
            let top: Vec<&str> = order.iter().take(3).map(|&k| names[k].as_str()).collect();
            format!("a direction along {}, …", top.join(", "))
        }
    }
}

fn encoder(model: &Model) -> Option<&Encoder> {
    match model {
        Model::Regressor(model) => model.encoder(),
        Model::Classifier(model) => model.encoder(),
    }
}

fn describe(stored: &Stored, version: u32) -> Result<Value> {
    let columns = &stored.columns;
    let mut all = json!({
        "format": version,
        "kind": match stored.model { Model::Regressor(_) => "regression", Model::Classifier(_) => "classification" },
        "inputs": columns.inputs,
        "sources": columns.sources,
        "target": columns.target,
        "noise_column": columns.noise,
        "time_column": columns.time,
        "rows": stored.rows,
        "n": stored.model.count(),
        "running": stored.model.is_ready(),
        "remarks": crate::summary::remarks(stored),
    });
    let Some(encoder) = encoder(&stored.model) else { return Ok(all) };
    let scaling = encoder.scaling();
    let scales: Vec<f64> = scaling.factor.iter().map(|f| f.recip()).collect();
    all["input_scaling"] = json!({ "shift": scaling.shift, "scale": scales });
    all["features"] = features(encoder)?;
    match &stored.model {
        Model::Regressor(model) => {
            let scale = model.target_scale();
            all["target_scaling"] = json!({ "shift": scale.shift, "scale": scale.scale });
            if let Some(process) = model.model() {
                merge(&mut all, process_json(process));
            }
            let hyper = summary::hyperparameters(&stored.model);
            all["in_user_units"] =
                hyper.into_iter().collect::<std::collections::BTreeMap<_, _>>().into_iter().collect();
            all["shares"] = model.blocks().iter().map(|b| json!(b.share)).collect();
            all["relevances"] = json!(model.relevances());
        }
        Model::Classifier(model) => {
            all["classes"] = json!(model.classes());
            let of = |(c, label): (usize, &String)| {
                model.model(c).map(|process| {
                    let mut one = process_json(process);
                    one["class"] = json!(label);
                    one
                })
            };
            all["processes"] = model.classes().iter().enumerate().filter_map(of).collect();
        }
    }
    Ok(all)
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

fn process_json(process: &wiski::Wiski) -> Value {
    let hyper = process.hyperparameters();
    let axes = process.stats().lattice().grids().iter().map(|grid| {
        let axis = |a: &wiski::Axis| json!({ "min": a.min(), "step": a.step(), "points": a.points() });
        grid.axes().iter().map(axis).collect::<Vec<_>>()
    });
    let blocks: Vec<Vec<Value>> = axes.collect();
    let named: serde_json::Map<_, _> = hyper.named().into_iter().map(|(k, v)| (k, json!(v))).collect();
    json!({
        "grid": blocks.concat(),
        "blocks": blocks.iter().map(Vec::len).collect::<Vec<_>>(),
        "kernel": process.kernels().iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "),
        "hyperparameters": named,
        "noise": process.noise(),
        "rank": process.rank(),
        "engine": process.engine(),
    })
}

fn features(encoder: &Encoder) -> Result<Value> {
    // As they are now: batch statistics as constants.
    let mut map = encoder.map().clone();
    map.freeze(encoder.moments())?;
    let constants = |scaling: &Scaling| match scaling {
        Scaling::Frozen(frozen) => json!({ "mean": frozen.mean(), "std": frozen.std() }),
        _ => Value::Null,
    };
    Ok(match &map {
        FeatureMap::Identity(_) => json!({ "kind": "identity" }),
        FeatureMap::Select(select) => json!({ "kind": "select", "columns": select.reads() }),
        FeatureMap::Linear(linear) => {
            let weights: Vec<&[f64]> = linear.parameters().chunks_exact(linear.input_dim()).collect();
            json!({ "kind": "linear", "weights": weights, "batch_norm": constants(linear.scaling()) })
        }
        FeatureMap::Mixed(mixed) => {
            let linear = mixed.linear().map(|linear| {
                let weights: Vec<&[f64]> = linear.parameters().chunks_exact(linear.input_dim()).collect();
                json!({ "weights": weights, "batch_norm": constants(linear.scaling()) })
            });
            json!({ "kind": "mixed", "columns": mixed.columns(), "sources": mixed.sources(), "linear": linear })
        }
        FeatureMap::Mlp(mlp) => json!({
            "kind": "mlp",
            "hidden": mlp.hidden(),
            "activation": format!("{:?}", mlp.activation()).to_lowercase(),
            "parameters": mlp.parameters(),
            "batch_norm": constants(mlp.scaling()),
        }),
    })
}
