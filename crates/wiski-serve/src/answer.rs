//! From predictions to bodies: JSON, tensors of the Open Inference Protocol, NDJSON, CSV, Arrow IPC.

#[cfg(feature = "arrow")]
mod arrow;

use std::fmt::Write;

use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

use crate::decode::About;
use crate::error::Failure;
use crate::op::{ClassesSaid, Rejected, Reply, Said};

/// A body with its type.
pub(crate) fn response(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A JSON body.
pub(crate) fn json_body(value: &Value) -> Response {
    response(StatusCode::OK, "application/json", value.to_string())
}

/// Appends a number; what is none becomes null.
fn push(out: &mut String, value: f64) {
    if value.is_finite() {
        out.push_str(zmij::Buffer::new().format(value));
    } else {
        out.push_str("null");
    }
}

fn push_list(out: &mut String, values: &[f64]) {
    out.push('[');
    for (i, &value) in values.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        push(out, value);
    }
    out.push(']');
}

fn text(text: &str) -> String {
    Value::from(text).to_string()
}

/// One row's prediction as a JSON object.
fn push_row(out: &mut String, said: &Said, i: usize) {
    match said {
        Said::Numbers(numbers) => {
            for (k, (name, list)) in numbers.columns().enumerate() {
                out.push(if k == 0 { '{' } else { ',' });
                let _ = write!(out, "\"{name}\":");
                push(out, list[i]);
            }
            out.push('}');
        }
        Said::Classes(classes) => {
            let label =
                classes.best[i].map_or(Value::Null, |best| Value::from(classes.labels[best].as_str()));
            let _ = write!(out, "{{\"label\":{label},\"probabilities\":{{");
            for (k, (name, &p)) in classes.labels.iter().zip(probabilities(classes, i)).enumerate() {
                let _ = write!(out, "{}{}:", if k > 0 { "," } else { "" }, text(name));
                push(out, p);
            }
            let _ = write!(out, "}},\"set\":{}}}", set(classes, i));
        }
    }
}

fn probabilities(classes: &ClassesSaid, i: usize) -> &[f64] {
    let count = classes.labels.len();
    &classes.probabilities[i * count..(i + 1) * count]
}

fn set(classes: &ClassesSaid, i: usize) -> Value {
    classes.sets[i].iter().map(|&k| classes.labels[k].as_str()).collect()
}

/// The form of an answer that a client prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Lines,
    Csv,
    #[cfg(feature = "arrow")]
    Arrow,
}

fn form(headers: &HeaderMap) -> Form {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let first = accepted.split([',', ';']).next().unwrap_or_default().trim();
    match first {
        "text/csv" => Form::Csv,
        #[cfg(feature = "arrow")]
        crate::decode::ARROW => Form::Arrow,
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Form::Lines,
        _ => Form::Json,
    }
}

/// Predictions of a model that has seen so many rows.
pub(crate) fn predictions(
    headers: &HeaderMap,
    model: &str,
    seen: u64,
    about: &About,
    said: &Said,
) -> Result<Response, Failure> {
    if about.is_tensors {
        return tensors(model, seen, about, said);
    }
    let mut out = String::with_capacity(64 + 96 * said.len());
    Ok(match form(headers) {
        Form::Json => {
            let _ = write!(out, "{{\"model\":\"{model}\",\"rows\":{seen},\"predictions\":");
            push_rows(&mut out, said);
            out.push('}');
            response(StatusCode::OK, "application/json", out)
        }
        Form::Lines => {
            for i in 0..said.len() {
                push_row(&mut out, said, i);
                out.push('\n');
            }
            response(StatusCode::OK, "application/x-ndjson", out)
        }
        Form::Csv => {
            push_csv(&mut out, said);
            response(StatusCode::OK, "text/csv; charset=utf-8", out)
        }
        #[cfg(feature = "arrow")]
        Form::Arrow => response(StatusCode::OK, crate::decode::ARROW, arrow::stream(said)?),
    })
}

fn push_rows(out: &mut String, said: &Said) {
    out.push('[');
    for i in 0..said.len() {
        if i > 0 {
            out.push(',');
        }
        push_row(out, said, i);
    }
    out.push(']');
}

fn push_csv(out: &mut String, said: &Said) {
    let cell = |out: &mut String, value: f64| {
        if value.is_finite() {
            push(out, value);
        }
    };
    match said {
        Said::Numbers(numbers) => {
            for (k, (name, _)) in numbers.columns().enumerate() {
                out.push_str(if k > 0 { "," } else { "" });
                out.push_str(name);
            }
            out.push('\n');
            for i in 0..numbers.mean.len() {
                for (k, (_, list)) in numbers.columns().enumerate() {
                    if k > 0 {
                        out.push(',');
                    }
                    cell(out, list[i]);
                }
                out.push('\n');
            }
        }
        Said::Classes(classes) => {
            let quoted = |text: &str| {
                if !text.contains([',', '"', '\n', '\r']) {
                    return text.to_owned();
                }
                format!("\"{}\"", text.replace('"', "\"\""))
            };
            out.push_str("label");
            classes.labels.iter().for_each(|label| {
                let _ = write!(out, ",{}", quoted(&format!("p_{label}")));
            });
            out.push('\n');
            for i in 0..classes.best.len() {
                out.push_str(&classes.best[i].map_or(String::new(), |best| quoted(&classes.labels[best])));
                for &p in probabilities(classes, i) {
                    out.push(',');
                    cell(out, p);
                }
                out.push('\n');
            }
        }
    }
}

/// The tensors of an answer: name, datatype, shape beyond the rows, data.
fn tensor_parts(said: &Said) -> Vec<(&'static str, &'static str, Option<usize>, String)> {
    let numbers = |list: &[f64]| {
        let mut out = String::with_capacity(20 * list.len());
        push_list(&mut out, list);
        out
    };
    match said {
        Said::Numbers(said) => {
            said.columns().map(|(name, list)| (name, "FP64", None, numbers(list))).collect()
        }
        Said::Classes(classes) => {
            let label = |best: &Option<usize>| best.map_or("", |best| classes.labels[best].as_str());
            let labels: Value = classes.best.iter().map(label).collect();
            let sets: Value = (0..classes.sets.len()).map(|i| set(classes, i).to_string()).collect();
            vec![
                ("label", "BYTES", None, labels.to_string()),
                ("probability", "FP64", Some(classes.labels.len()), numbers(&classes.probabilities)),
                ("set", "BYTES", None, sets.to_string()),
            ]
        }
    }
}

fn tensors(model: &str, seen: u64, about: &About, said: &Said) -> Result<Response, Failure> {
    let parts = tensor_parts(said);
    if let Some(unknown) = about.outputs.iter().find(|name| parts.iter().all(|(own, ..)| own != name)) {
        let all: Vec<&str> = parts.iter().map(|(own, ..)| *own).collect();
        return Err(Failure::Malformed(format!(
            "there is no output {}; there are {}",
            text(unknown),
            all.join(", ")
        )));
    }
    let mut out = format!("{{\"model_name\":\"{model}\",\"model_version\":\"1\"");
    if let Some(id) = &about.id {
        let _ = write!(out, ",\"id\":{}", text(id));
    }
    let _ = write!(out, ",\"parameters\":{{\"rows\":{seen}}},\"outputs\":[");
    let wanted = |name: &str| about.outputs.is_empty() || about.outputs.iter().any(|own| own == name);
    let mut is_first = true;
    for (name, datatype, columns, data) in parts.iter().filter(|(name, ..)| wanted(name)) {
        let comma = if std::mem::take(&mut is_first) { "" } else { "," };
        let shape = columns.map_or(said.len().to_string(), |columns| format!("{},{columns}", said.len()));
        let _ = write!(
            out,
            "{comma}{{\"name\":\"{name}\",\"datatype\":\"{datatype}\",\"shape\":[{shape}],\"data\":{data}}}"
        );
    }
    out.push_str("]}");
    Ok(response(StatusCode::OK, "application/json", out))
}

/// What came of a change of rows.
pub(crate) fn changed(
    headers: &HeaderMap,
    model: &str,
    about: &About,
    reply: &Reply,
    replayed: bool,
) -> Result<Response, Failure> {
    let (taken, rejected, seen, said) = match reply {
        Reply::Rows { taken, rejected, seen, said } => (*taken, rejected, *seen, said),
        Reply::Done => return Ok(json_body(&json!({ "model": model, "done": true, "replayed": replayed }))),
        Reply::Refused(error) => return Err(Failure::Unprocessable(error.clone())),
        Reply::NotReady => return Err(Failure::NotReady),
        Reply::Points(_) => return Err(Failure::Fault("points where rows were expected".into())),
    };
    if taken == 0
        && let Some(first) = rejected.first()
    {
        return Err(Failure::Unprocessable(format!("row {}: {}", first.row, first.error)));
    }
    if let Some(said) = said
        && (about.is_tensors || form(headers) != Form::Json)
    {
        return predictions(headers, model, seen, about, said);
    }
    let mut out = format!(
        "{{\"model\":\"{model}\",\"learned\":{taken},\"rows\":{seen},\"replayed\":{replayed},\"rejected\":"
    );
    out.push_str(&list_rejected(rejected).to_string());
    if let Some(said) = said {
        out.push_str(",\"predictions\":");
        push_rows(&mut out, said);
    }
    out.push('}');
    Ok(response(StatusCode::OK, "application/json", out))
}

fn list_rejected(rejected: &[Rejected]) -> Value {
    rejected.iter().map(|r| json!({ "row": r.row, "error": r.error })).collect()
}
