//! Rows in, predictions out; and everything that changes what a model has learned.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use wiski::decide::{Dimension, Optimizer, Space};

use super::Call;
use crate::answer::{self, json_body};
use crate::batch::Schema;
use crate::decode::{self, About, Decoded};
use crate::error::Failure;
use crate::hosted::Hosted;
use crate::op::{Op, Reply};

/// Bodies from so many bytes on are read and predicted beside the threads that answer others.
const LARGE: usize = 32 << 10;
/// The longest body that may be a horizon.
const SHORT: usize = 256;
/// Steps ahead that can be asked for without rows.
const MOST_AHEAD: usize = 10_000;
/// Points asked for at a time.
const MOST_POINTS: usize = 64;

/// Runs work of a body of this size where it keeps nobody waiting.
async fn beside<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    if bytes < LARGE {
        return work();
    }
    tokio::task::spawn_blocking(work).await.map_err(|e| Failure::Fault(e.to_string()))?
}

fn check_level(level: Option<f64>) -> Result<Option<f64>, Failure> {
    match level {
        Some(level) if !(level > 0.0 && level < 1.0) => {
            Err(Failure::Unprocessable("a level is a share between 0 and 1".into()))
        }
        other => Ok(other),
    }
}

pub(super) async fn infer(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    if let Some(ahead) = horizon(&call, &hosted)? {
        // A long one takes as long as a large body.
        return beside(ahead.horizon * 256, move || {
            let view = hosted.view();
            let level = check_level(call.parameter("level")?.or(ahead.level))?;
            let start = Instant::now();
            let said = view.forecast(ahead.horizon, level)?;
            hosted.history().took(false, start.elapsed());
            hosted.counters.predicted.fetch_add(ahead.horizon as u64, Ordering::Relaxed);
            let about = About::default();
            answer::predictions(&call.headers, hosted.name.as_str(), view.figures.seen, &about, &said)
        })
        .await;
    }
    beside(call.body.len(), move || {
        let view = hosted.view();
        let rows = call.engine.config.limits.rows;
        let Decoded { batch, about } = decode::rows(&call.headers, &call.body, &view.schema, false, rows)?;
        let level = check_level(call.parameter("level")?.or(about.level))?;
        let start = Instant::now();
        let said = view.predict(&batch, level)?;
        hosted.history().took(false, start.elapsed());
        hosted.counters.predicted.fetch_add(batch.len() as u64, Ordering::Relaxed);
        answer::predictions(&call.headers, hosted.name.as_str(), view.figures.seen, &about, &said)
    })
    .await
}

/// How far a forecast is to go.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ahead {
    horizon: usize,
    #[serde(default)]
    level: Option<f64>,
}

/// The horizon that is asked of a forecaster, in steps, where no rows ahead are given.
fn horizon(call: &Call, hosted: &Hosted) -> Result<Option<Ahead>, Failure> {
    if hosted.view().series().is_none() {
        return Ok(None);
    }
    let said: Option<Ahead> = match decode::kind(&call.headers)? {
        decode::Kind::Json if call.body.len() <= SHORT => serde_json::from_slice(&call.body).ok(),
        _ => None,
    };
    let ahead = match (call.parameter("horizon")?, said) {
        (None, said) => said,
        (Some(_), None) if !call.body.trim_ascii().is_empty() => {
            return Err(Failure::Malformed("rows ahead or a horizon, not both".into()));
        }
        (Some(horizon), said) => Some(Ahead { horizon, level: said.and_then(|said| said.level) }),
    };
    let most = MOST_AHEAD.min(call.engine.config.limits.rows);
    match ahead {
        Some(ahead) if !(1..=most).contains(&ahead.horizon) => {
            Err(Failure::Unprocessable(format!("a horizon is 1 to {most} steps")))
        }
        other => Ok(other),
    }
}

pub(super) async fn version_infer(call: Call) -> Result<Response, Failure> {
    call.check_version()?;
    infer(call).await
}

/// Rows of a body, to be learned or un-learned.
async fn rows(call: Call, schema: Arc<Schema>) -> Result<(Call, Decoded), Failure> {
    beside(call.body.len(), move || {
        let most = call.engine.config.limits.rows;
        let decoded = decode::rows(&call.headers, &call.body, &schema, true, most)?;
        Ok((call, decoded))
    })
    .await
}

async fn change(call: &Call, hosted: &Hosted, op: Op, about: &About) -> Result<Response, Failure> {
    let (reply, replayed) = hosted.change(op, call.key()?).await?;
    answer::changed(&call.headers, hosted.name.as_str(), about, &reply, replayed)
}

/// Rejects what is not for models of this kind; a series learns rows, too, but they stay.
fn check_kind(hosted: &Hosted, is_search: bool, is_final: bool) -> Result<Arc<Schema>, Failure> {
    let view = hosted.view();
    let what = match (view.search().is_some(), is_search) {
        (true, false) => "this model is for a search: ask and tell",
        (false, true) => "this model is for rows, not for a search",
        _ if view.series().is_some() && !is_final => "a forecaster cannot un-learn rows, and has no features",
        _ => return Ok(Arc::clone(&view.schema)),
    };
    Err(Failure::Unprocessable(what.into()))
}

pub(super) async fn learn(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    let schema = check_kind(&hosted, false, true)?;
    let (call, Decoded { batch, about }) = rows(call, schema).await?;
    change(&call, &hosted, Op::Learn(batch, None), &about).await
}

pub(super) async fn step(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    let schema = check_kind(&hosted, false, true)?;
    let (call, Decoded { batch, about }) = rows(call, schema).await?;
    let level = check_level(call.parameter("level")?.or(about.level))?;
    let level = level.unwrap_or(hosted.view().figures.level);
    change(&call, &hosted, Op::Learn(batch, Some(level)), &about).await
}

pub(super) async fn forget(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    let schema = check_kind(&hosted, false, false)?;
    let (call, Decoded { batch, about }) = rows(call, schema).await?;
    change(&call, &hosted, Op::Forget(batch), &about).await
}

pub(super) async fn tell(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    let schema = check_kind(&hosted, true, true)?;
    let (call, Decoded { batch, about }) = rows(call, schema).await?;
    change(&call, &hosted, Op::Tell(batch), &about).await
}

pub(super) async fn refit(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    change(&call, &hosted, Op::Refit, &About::default()).await
}

pub(super) async fn freeze(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    check_kind(&hosted, false, false)?;
    change(&call, &hosted, Op::Freeze, &About::default()).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    count: usize,
}

pub(super) async fn ask(call: Call) -> Result<Response, Failure> {
    let hosted = call.engine.model(call.name()).await?;
    check_kind(&hosted, true, true)?;
    let count = if call.body.trim_ascii().is_empty() {
        1
    } else {
        let asked: Asked =
            serde_json::from_slice(&call.body).map_err(|e| Failure::Malformed(e.to_string()))?;
        asked.count
    };
    if !(1..=MOST_POINTS).contains(&count) {
        return Err(Failure::Unprocessable(format!("1 to {MOST_POINTS} points can be asked for at a time")));
    }
    match hosted.change(Op::Ask(count), call.key()?).await? {
        (Reply::Points(points), replayed) => {
            let view = hosted.view();
            let space = view.search().map(Optimizer::space);
            let named: Vec<Value> =
                points.iter().filter_map(|x| space.map(|space| named(space, x))).collect();
            Ok(json_body(
                &json!({ "model": hosted.name.as_str(), "replayed": replayed, "points": named, "raw": points }),
            ))
        }
        (reply, replayed) => {
            answer::changed(&call.headers, hosted.name.as_str(), &About::default(), &reply, replayed)
        }
    }
}

/// A point by the names of its dimensions, choices as their texts.
pub(super) fn named(space: &Space, x: &[f64]) -> Value {
    let value = |(d, &v): (&Dimension, &f64)| {
        let value = match d.choices.get(v as usize) {
            Some(choice) => Value::from(choice.as_str()),
            None if d.integer => Value::from(v as i64),
            None => Value::from(v),
        };
        (d.name.clone(), value)
    };
    Value::Object(space.dimensions().iter().zip(x).map(value).collect())
}
