//! A server in this process, without a network, and rows for it.
#![allow(dead_code)]

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;
use wiski_serve::{Config, Engine, app};

pub(crate) struct Server {
    pub(crate) engine: Arc<Engine>,
    pub(crate) app: Router,
    pub(crate) folder: Arc<TempDir>,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, self.text());
        self.json()
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        self.text()
    }
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(choose: impl FnOnce(&mut Config)) -> Self {
        Self::in_folder(Arc::new(tempfile::tempdir().unwrap()), choose)
    }

    pub(crate) fn in_folder(folder: Arc<TempDir>, choose: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(folder.path());
        choose(&mut config);
        let engine = Engine::open(config).unwrap();
        Self { app: app(Arc::clone(&engine)), engine, folder }
    }

    /// The same folder after a stop.
    pub(crate) async fn restarted(self) -> Self {
        let Self { engine, app, folder } = self;
        engine.close().await;
        drop((engine, app));
        Self::in_folder(folder, |_| {})
    }

    /// The same folder after the process has died: nothing was written down.
    pub(crate) fn crashed(&self) -> Self {
        // The folder is copied, since writers of the old process go on here.
        let copy = tempfile::tempdir().unwrap();
        copy_folder(self.folder.path(), copy.path());
        Self::in_folder(Arc::new(copy), |_| {})
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.app.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        // Events have no end.
        let is_endless = parts.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let body = if is_endless { Vec::new() } else { body.collect().await.unwrap().to_bytes().to_vec() };
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub(crate) async fn keyed(&self, path: &str, key: &str, body: Value) -> Answer {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        self.send("POST", path, &headers, body.to_string()).await
    }

    /// A regressor of two inputs on a small grid that stays as it is.
    pub(crate) async fn make(&self, name: &str) {
        self.post("/v2/models", regressor(name)).await.ok();
    }

    /// The same with so many rows learned.
    pub(crate) async fn make_with(&self, name: &str, rows: usize) {
        self.make(name).await;
        self.post(&format!("/v2/models/{name}/learn"), json!({ "rows": table(0, rows) })).await.ok();
    }
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub(crate) fn regressor(name: &str) -> Value {
    json!({
        "name": name, "kind": "regressor", "inputs": ["a", "b"], "target": "y",
        "settings": { "features": "identity", "grid": [8], "kernel": "rbf", "learn": "off", "warm_up": 20 },
    })
}

/// The settings of that model in the library.
pub(crate) fn settings() -> wiski::Settings {
    wiski::Settings {
        features: wiski::Features::Identity,
        grid: vec![8],
        kernel: Some(wiski::Kernel::parse("rbf", 2).unwrap()),
        schedule: wiski::Schedule::Off,
        warm_up: Some(20),
        ..wiski::Settings::default()
    }
}

/// The i-th row of a stream: two inputs and a target.
pub(crate) fn row(i: usize) -> [f64; 3] {
    let a = (i as f64 * 0.618_033_988_75).fract();
    let b = (i as f64 * 0.754_877_666_25).fract();
    let noise = ((i * i) as f64 * 0.414_213_562).fract() - 0.5;
    [a, b, (6.0 * a).sin() * b + 0.1 * noise]
}

/// Rows from..to as lists.
pub(crate) fn table(from: usize, to: usize) -> Value {
    (from..to).map(row).collect()
}

#[track_caller]
pub(crate) fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{a} {b}");
}
