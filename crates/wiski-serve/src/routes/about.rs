//! The server itself: health, description, figures, page.

use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, HeaderValue};
use axum::response::Response;
use serde_json::json;

use super::Call;
use crate::answer::{json_body, response};
use crate::error::Failure;
use crate::{metrics, openapi, page};

pub(super) async fn server(_: Call) -> Result<Response, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let mut extensions =
        vec!["binary_tensor_data", "wiski_learn", "wiski_search", "wiski_merge", "wiski_events"];
    if cfg!(feature = "arrow") {
        extensions.push("arrow_ipc");
    }
    Ok(json_body(&json!({ "name": "wiski", "version": version, "extensions": extensions })))
}

pub(super) async fn live(_: Call) -> Result<Response, Failure> {
    Ok(json_body(&json!({ "live": true })))
}

pub(super) async fn ready(call: Call) -> Result<Response, Failure> {
    if call.engine.is_stopping() { Err(Failure::Stopping) } else { Ok(json_body(&json!({ "ready": true }))) }
}

pub(super) async fn openapi(_: Call) -> Result<Response, Failure> {
    Ok(json_body(&openapi::description()))
}

pub(super) async fn metrics(call: Call) -> Result<Response, Failure> {
    Ok(response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics::text(&call.engine)))
}

pub(super) async fn page(_: Call) -> Result<Response, Failure> {
    Ok(response(StatusCode::OK, "text/html; charset=utf-8", page::INDEX))
}

pub(super) async fn asset(call: Call) -> Result<Response, Failure> {
    let file = call.path.get("file").map_or("", String::as_str);
    let Some((kind, content)) = page::asset(file) else {
        return Err(Failure::NotFound("there is no such file".into()));
    };
    let mut response = response(StatusCode::OK, kind, content);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=3600"));
    Ok(response)
}
