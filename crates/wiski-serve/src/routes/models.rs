//! Models: made, listed, looked at, taken away and merged.

use axum::http::header::CONTENT_DISPOSITION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};
use wiski::decide::Trial;
use xxhash_rust::xxh3::xxh3_64;

use super::{Call, rows};
use crate::answer::{json_body, response};
use crate::batch::TargetKind;
use crate::create::Description;
use crate::decode::{self, Kind};
use crate::error::Failure;
use crate::hosted::Hosted;
use crate::op::Reply;
use crate::served::Served;
use crate::view::View;

pub(super) async fn list(call: Call) -> Result<Response, Failure> {
    let one = |(name, hosted): (crate::name::ModelName, Option<std::sync::Arc<Hosted>>)| match hosted {
        Some(hosted) => {
            let view = hosted.view();
            let figures = view.figures;
            json!({
                "name": name.as_str(), "loaded": true, "kind": view.kind, "ready": view.is_ready(),
                "rows": figures.seen, "coverage": figures.coverage, "level": figures.level,
            })
        }
        None => json!({ "name": name.as_str(), "loaded": false }),
    };
    let models: Vec<Value> = call.engine.list().into_iter().map(one).collect();
    Ok(json_body(&json!({ "models": models })))
}

pub(super) async fn index(call: Call) -> Result<Response, Failure> {
    let one = |(name, hosted): (crate::name::ModelName, Option<std::sync::Arc<Hosted>>)| {
        let ready = hosted.is_some_and(|hosted| hosted.view().is_ready());
        json!({ "name": name.as_str(), "version": "1", "state": if ready { "READY" } else { "UNAVAILABLE" }, "reason": "" })
    };
    Ok(json_body(&call.engine.list().into_iter().map(one).collect()))
}

fn description(body: &[u8]) -> Result<Description, Failure> {
    serde_json::from_slice(body).map_err(|e| Failure::Malformed(e.to_string()))
}

/// Building a model may take a while, since its settings are tried.
async fn build(call: &Call, description: Description) -> Result<Served, Failure> {
    let columns = call.engine.config.limits.columns;
    let built = tokio::task::spawn_blocking(move || description.build(columns)).await;
    Ok(built.map_err(|e| Failure::Fault(e.to_string()))??)
}

fn created(hosted: &Hosted) -> Response {
    let body = metadata_of(hosted, &hosted.view()).to_string();
    response(StatusCode::CREATED, "application/json", body)
}

pub(super) async fn create(call: Call) -> Result<Response, Failure> {
    if decode::kind(&call.headers)? != Kind::Json {
        return Err(Failure::MediaType("a model is described in application/json".into()));
    }
    let mut description = description(&call.body)?;
    let missing = || Failure::Unprocessable("name: a model needs one".into());
    let name = description.name.take().ok_or_else(missing)?;
    let served = build(&call, description).await?;
    Ok(created(&*call.engine.create(&name, served).await?))
}

pub(super) async fn put(call: Call) -> Result<Response, Failure> {
    let served = match decode::kind(&call.headers)? {
        Kind::Json => {
            let description = description(&call.body)?;
            if description.name.as_deref().is_some_and(|name| name != call.name()) {
                return Err(Failure::Unprocessable("name: it differs from that in the path".into()));
            }
            build(&call, description).await?
        }
        Kind::Snapshot => parse_snapshot(call.body.clone(), call.engine.config.limits.columns).await?,
        _ => return Err(Failure::MediaType("a model is application/json or a snapshot".into())),
    };
    Ok(created(&*call.engine.create(call.name(), served).await?))
}

async fn parse_snapshot(body: bytes::Bytes, columns: usize) -> Result<Served, Failure> {
    let parse = move || match Served::from_bytes(&body) {
        Ok(served) if served.schema().columns.inputs.len() <= columns => Ok(served),
        Ok(_) => Err(Failure::Unprocessable(format!("more than {columns} columns are not allowed"))),
        Err(error) => Err(Failure::Unprocessable(error.to_string())),
    };
    tokio::task::spawn_blocking(parse).await.map_err(|e| Failure::Fault(e.to_string()))?
}

pub(super) async fn delete(call: Call) -> Result<Response, Failure> {
    call.engine.delete(call.name()).await?;
    Ok(json_body(&json!({ "deleted": call.name() })))
}

pub(super) async fn metadata(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    Ok(json_body(&metadata_of(&hosted, &hosted.view())))
}

pub(super) async fn version_metadata(call: Call) -> Result<Response, Failure> {
    call.check_version()?;
    metadata(call).await
}

/// What the protocol says about a model, and its columns.
fn metadata_of(hosted: &Hosted, view: &View) -> Value {
    let columns = &view.schema.columns;
    let datatype = |i: usize| match columns.reading(i) {
        wiski::persist::Reading::Levels(_) => "BYTES",
        _ => "FP64",
    };
    let tensor = |name: &str, datatype: &str, shape: Value| json!({ "name": name, "datatype": datatype, "shape": shape });
    let mut inputs: Vec<Value> =
        columns.inputs.iter().enumerate().map(|(i, n)| tensor(n, datatype(i), json!([-1]))).collect();
    let outputs: Vec<Value> = if view.schema.target == TargetKind::Label {
        let classes = if view.labels().is_empty() { -1 } else { view.labels().len() as i64 };
        vec![
            tensor("label", "BYTES", json!([-1])),
            tensor("probability", "FP64", json!([-1, classes])),
            tensor("set", "BYTES", json!([-1])),
        ]
    } else if view.schema.target == TargetKind::Series {
        inputs.push(tensor(columns.time.as_deref().unwrap_or("time"), "FP64", json!([-1])));
        ["time", "mean", "std", "lower", "upper"].map(|name| tensor(name, "FP64", json!([-1]))).to_vec()
    } else {
        ["mean", "std", "lower", "upper"].map(|name| tensor(name, "FP64", json!([-1]))).to_vec()
    };
    let levels: Vec<Value> = (0..columns.inputs.len())
        .map(|i| match columns.reading(i) {
            wiski::persist::Reading::Levels(levels) => json!(levels),
            _ => Value::Null,
        })
        .collect();
    json!({
        "name": hosted.name.as_str(),
        "versions": ["1"],
        "platform": format!("wiski_{}", view.kind),
        "inputs": inputs,
        "outputs": outputs,
        "parameters": {
            "kind": view.kind,
            "target": columns.target,
            "noise": columns.noise,
            "time": columns.time,
            "beside": view.schema.beside,
            "levels": levels,
            "classes": view.labels(),
            "level": view.figures.level,
            "ready": view.is_ready(),
            "rows": view.figures.seen,
        },
    })
}

pub(super) async fn model_ready(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    if !hosted.view().is_ready() {
        return Err(Failure::NotReady);
    }
    Ok(json_body(&json!({ "name": hosted.name.as_str(), "ready": true })))
}

pub(super) async fn version_ready(call: Call) -> Result<Response, Failure> {
    call.check_version()?;
    model_ready(call).await
}

pub(super) async fn stats(call: Call) -> Result<Response, Failure> {
    use std::sync::atomic::Ordering::Relaxed;
    let hosted = call.engine.model(call.name()).await?;
    let (view, counters) = (hosted.view(), &hosted.counters);
    let figures = view.figures;
    let recent = counters.recent_inside.load(Relaxed) as f64 / counters.recent.load(Relaxed) as f64;
    let mut stats = json!({
        "name": hosted.name.as_str(), "kind": view.kind, "ready": view.is_ready(), "searching": figures.searching,
        "rows": figures.seen, "count": figures.count, "refits": figures.refits, "drifts": figures.drifts,
        "ignored": figures.ignored, "level": figures.level, "coverage": figures.coverage,
        "recent_coverage": recent, "error": figures.error, "surprise": figures.surprise,
        "upkeep": hosted.is_searching(), "queue": hosted.waiting(), "memory_bytes": hosted.bytes(),
        "since_loaded": {
            "learned": counters.learned.load(Relaxed), "rejected": counters.rejected.load(Relaxed),
            "predicted": counters.predicted.load(Relaxed), "syncs": counters.syncs.load(Relaxed),
        },
    });
    if let Some(forecaster) = view.series() {
        stats["step"] = json!(forecaster.step());
        stats["last_time"] = json!(forecaster.last_time());
        stats["seasons"] = json!(forecaster.seasons());
        stats["lags"] = json!(forecaster.lags());
    }
    if let Some(optimizer) = view.search() {
        let settings = optimizer.settings();
        let trial = |trial: &Trial| {
            let values = trial.values();
            let mut found =
                json!({ "point": rows::named(optimizer.space(), &trial.x), "value": values.first() });
            if values.len() > 1 {
                found["values"] = json!(values);
            }
            if !trial.constraints.is_empty() {
                let named =
                    settings.constraints.iter().cloned().zip(trial.constraints.iter().map(|c| json!(c)));
                found["constraints"] = Value::Object(named.collect());
            }
            found
        };
        stats["pending"] = optimizer.pending().len().into();
        if settings.further.is_empty() {
            stats["best"] = optimizer.best().map_or(Value::Null, trial);
        } else {
            stats["front"] = optimizer.front().into_iter().map(trial).collect();
        }
        if !settings.constraints.is_empty() {
            stats["feasible"] = optimizer.trials().iter().filter(|trial| trial.is_feasible()).count().into();
        }
    }
    Ok(json_body(&stats))
}

pub(super) async fn snapshot(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    let bytes = hosted.snapshot(call.parameter("shard")?.unwrap_or(false)).await?;
    let mut response = response(StatusCode::OK, "application/octet-stream", bytes);
    let name = format!("attachment; filename=\"{}.wiski\"", hosted.name);
    if let Ok(value) = HeaderValue::from_str(&name) {
        response.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

pub(super) async fn merge(call: Call) -> Result<Response, Failure> {
    if decode::kind(&call.headers)? != Kind::Snapshot {
        return Err(Failure::MediaType("a snapshot is application/octet-stream".into()));
    }
    let hosted = call.engine.model(call.name()).await?;
    let key = call.key()?;
    let digest = xxh3_64(&call.body);
    let other = parse_snapshot(call.body, call.engine.config.limits.columns).await?;
    let (reply, replayed) = hosted.merge(Box::new(other), digest, key).await?;
    match reply {
        Reply::Refused(error) => Err(Failure::Unprocessable(error)),
        Reply::NotReady => Err(Failure::NotReady),
        _ => {
            let rows = hosted.view().figures.seen;
            Ok(json_body(&json!({ "model": hosted.name.as_str(), "rows": rows, "replayed": replayed })))
        }
    }
}

pub(super) async fn figures(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    let one = |about: crate::figures::About| {
        let path = format!("/v2/models/{}/figures/{}.svg", hosted.name, about.name);
        json!({ "name": about.name, "heading": about.heading, "reading": about.reading, "path": path })
    };
    let all: Vec<Value> = crate::figures::list(&hosted.view().schema).into_iter().map(one).collect();
    Ok(json_body(&json!({ "figures": all })))
}

pub(super) async fn figure(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    let is_dark = match call.parameter::<String>("theme")?.as_deref() {
        None | Some("light") => false,
        Some("dark") => true,
        Some(_) => return Err(Failure::Malformed("a theme is light or dark".into())),
    };
    let file = call.path.get("figure").map_or("", String::as_str);
    let name = file.strip_suffix(".svg").unwrap_or(file).to_owned();
    let draw = move || {
        let history = hosted.history().clone();
        crate::figures::svg(&name, &hosted.view(), &history, is_dark)
    };
    let svg = tokio::task::spawn_blocking(draw).await.map_err(|e| Failure::Fault(e.to_string()))??;
    Ok(response(StatusCode::OK, "image/svg+xml", svg))
}
