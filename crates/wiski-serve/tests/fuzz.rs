//! Malformed requests to every route: no panic, no 5xx, and the models still answer. `WISKI_FUZZ=100000` for more.

mod common;

use common::{Server, row, table};
use rand::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use wiski_serve::ROUTES;

/// Bodies that mean something, to be damaged.
fn bodies() -> Vec<Vec<u8>> {
    let [a, b, y] = row(7);
    let snapshot = {
        let mut model = wiski::OnlineRegressor::new(2, common::settings()).unwrap();
        (0..40).map(row).for_each(|[a, b, y]| {
            model.observe(&[a, b], y).unwrap();
        });
        let columns = wiski::persist::Columns {
            inputs: vec!["a".into(), "b".into()],
            target: "y".into(),
            ..Default::default()
        };
        let stored =
            wiski::persist::Stored::new(columns, wiski::persist::Model::Regressor(Box::new(model))).unwrap();
        wiski::persist::to_bytes(&stored).unwrap()
    };
    let texts = [
        String::new(),
        "{}".into(),
        "null".into(),
        "[[[[[[]]]]]]".into(),
        table(0, 3).to_string(),
        json!({ "rows": [{ "a": a, "b": b, "y": y }], "level": 0.9 }).to_string(),
        json!({ "row": [a, b, y] }).to_string(),
        json!({ "inputs": [{ "name": "x", "shape": [1, 2], "datatype": "FP64", "data": [a, b] }, { "name": "y", "shape": [1], "datatype": "FP64", "data": [y] }] }).to_string(),
        json!({ "inputs": [{ "name": "kind", "shape": [1], "datatype": "BYTES", "data": ["low"] }] }).to_string(),
        json!({ "count": 2 }).to_string(),
        json!({ "rows": [{ "x": 0.5, "value": 1 }] }).to_string(),
        common::regressor("made").to_string(),
        json!({ "name": "c", "kind": "classifier", "inputs": ["a"], "target": "k", "classes": ["p", "q"], "settings": { "features": "additive:2", "level": 0.9 } }).to_string(),
        json!({ "name": "o", "kind": "optimizer", "space": [{ "name": "x", "lo": 0, "hi": 1, "scale": "log" }] }).to_string(),
        json!({ "name": "p", "kind": "optimizer", "space": [{ "name": "x", "lo": 0, "hi": 1 }], "goals": ["minimize", "maximize"], "constraints": ["c"] }).to_string(),
        json!([{ "x": 0.4, "value": 1, "value2": 2, "c": -1 }]).to_string(),
        json!({ "horizon": 3 }).to_string(),
        json!([{ "t": 50, "y": 0.4 }, { "t": 51, "y": null }]).to_string(),
        json!({ "name": "g", "kind": "forecaster", "target": "y", "time": "t", "inputs": ["a"], "settings": { "lags": [1, 2], "step": 1 } }).to_string(),
        "a,b,y\n0.1,0.2,0.3\n0.4,\"0.5\",0.6\n".into(),
        "{\"a\":0.1,\"b\":0.2,\"y\":0.3}\n[0.1,0.2,0.3]\n".into(),
    ];
    let arrow = include_bytes!("data/rows.arrows").to_vec();
    texts.into_iter().map(String::into_bytes).chain([snapshot, arrow]).collect()
}

fn damaged(bytes: &[u8], random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let pieces: &[&[u8]] = &[
        b"\"",
        b"[",
        b"]",
        b"{",
        b"}",
        b"-",
        b"1e400",
        b"NaN",
        b"null",
        b",",
        b"\n",
        b"\0",
        b"\xff",
        b"18446744073709551616",
        b"-1",
        b"\"name\":",
        b"\"shape\":[0,0]",
        b"1e-320",
        b"..",
        b"\\u0000",
        b"true",
        b"0",
    ];
    for _ in 0..random.random_range(0..4) {
        let at = random.random_range(0..=out.len());
        match random.random_range(0..5) {
            0 => out.truncate(at),
            1 => {
                if let Some(byte) = out.get_mut(at) {
                    *byte = random.random();
                }
            }
            2 => {
                let piece = pieces[random.random_range(0..pieces.len())];
                out.splice(at..at, piece.iter().copied());
            }
            3 => {
                let end = (at + random.random_range(0..9)).min(out.len());
                out.drain(at..end);
            }
            _ => {
                let end = (at + random.random_range(0..40)).min(out.len());
                let again = out[at..end].to_vec();
                out.splice(at..at, again);
            }
        }
    }
    out
}

/// A model of each kind, all of which predict.
async fn server_of_all_kinds() -> Server {
    let server = Server::with(|config| config.limits.models = 8);
    server.make_with("m", 40).await;
    let classes = json!({ "name": "c", "kind": "classifier", "inputs": ["a", "b"], "target": "kind", "classes": ["low", "high"],
        "settings": { "features": "identity", "grid": [6], "kernel": "rbf", "learn": "off", "warm_up": 20 } });
    server.post("/v2/models", classes).await.ok();
    let search = json!({ "name": "s", "kind": "optimizer", "space": [{ "name": "x", "lo": 0, "hi": 1 }] });
    server.post("/v2/models", search).await.ok();
    let front = json!({ "name": "p", "kind": "optimizer", "space": [{ "name": "x", "lo": 0, "hi": 1 }],
        "goals": ["minimize", "maximize"], "constraints": ["c"] });
    server.post("/v2/models", front).await.ok();
    let series = json!({ "name": "f", "kind": "forecaster", "target": "y", "time": "t", "settings": { "seasons": [] } });
    server.post("/v2/models", series).await.ok();
    server.post("/v2/models/f/learn", (0..40).map(|i| json!([row(i)[0], i])).collect()).await.ok();
    server.post("/v2/models/f/refit", json!({})).await.ok();
    server
}

#[tokio::test]
async fn no_request_breaks_the_server() {
    let requests: usize = std::env::var("WISKI_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(4000);
    let server = server_of_all_kinds().await;
    let (mut random, bodies) = (Xoshiro256PlusPlus::seed_from_u64(5), bodies());
    let kinds = [
        "application/json",
        "text/csv",
        "application/x-ndjson",
        "application/octet-stream",
        "application/vnd.apache.arrow.stream",
        "text/html",
        "",
        "\u{7f}",
    ];
    let names =
        ["m", "c", "s", "p", "f", "none", "..", "%2e%2e%2f", ".new-x", "m%00", "M", "a b", &"x".repeat(300)];
    let mut before = None;
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    for i in 0..requests {
        let route = &ROUTES[i % ROUTES.len()];
        // Events do not end; that they begin is tested elsewhere.
        if route.id == "events" {
            continue;
        }
        if i == requests / 4 {
            before = wiski_serve::metrics::resident_bytes();
        }
        // Models that stay make for a better test.
        let is_kept = random.random_bool(0.7) && route.method != "DELETE";
        let name =
            names[if is_kept { random.random_range(0..4) } else { random.random_range(4..names.len()) }];
        let version = ["1", "1", "1", "2", "x"][random.random_range(0..5)];
        let file = ["app.js", "..", "%2e%2e%2f%2e%2e%2fetc%2fpasswd"][random.random_range(0..3)];
        let mut path =
            route.path.replace("{model}", name).replace("{version}", version).replace("{file}", file);
        let figure =
            ["effects", "surface.svg", "intervals", "residuals", "latency", "fit", "trace", "forecast", ".."];
        path = path.replace("{figure}", figure[random.random_range(0..figure.len())]);
        if random.random_bool(0.2) {
            path += [
                "?level=0.5",
                "?horizon=4",
                "?horizon=0",
                "?level=-1",
                "?shard=true",
                "?rate=",
                "?theme=dark",
                "?a=1&a=2",
                "?&&=&",
                "?level=%00",
            ][random.random_range(0..10)];
        }
        let body = damaged(&bodies[random.random_range(0..bodies.len())], &mut random);
        let length = random.random_range(0..80u32).to_string();
        let key = format!("k{}", random.random_range(0..50));
        let mut headers = Vec::new();
        if random.random_bool(0.9) {
            headers.push((
                "content-type",
                kinds[if random.random_bool(0.7) {
                    random.random_range(0..5)
                } else {
                    random.random_range(0..6)
                }],
            ));
        }
        if random.random_bool(0.1) {
            headers.push(("inference-header-content-length", length.as_str()));
        }
        if random.random_bool(0.2) {
            headers.push(("idempotency-key", key.as_str()));
        }
        if random.random_bool(0.1) {
            headers.push(("accept", kinds[random.random_range(0..5)]));
        }
        let Ok(uri) = path.replace(' ', "%20").parse::<axum::http::Uri>() else { continue };
        let answer = server.send(route.method, &uri.to_string(), &headers, body.clone()).await;
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(
            answer.status.as_u16() < 500,
            "{} {path} {headers:?} {text}: {} {}",
            route.method,
            answer.status,
            answer.text()
        );
        if answer.status.is_client_error() {
            assert!(answer.json()["error"].is_string(), "{} {path}: {}", route.method, answer.text());
        }
        *statuses.entry(answer.status.as_u16()).or_default() += 1;
    }
    println!("{statuses:?}");
    assert!(
        statuses[&200] > requests / 100 && statuses[&400] > requests / 100 && statuses[&422] > requests / 100,
        "{statuses:?}"
    );
    if let (Some(before), Some(after)) = (before, wiski_serve::metrics::resident_bytes()) {
        println!("{before} bytes after a quarter, {after} in the end");
        assert!(after < before + (64 << 20), "{before} bytes after a quarter, {after} in the end");
    }
    // Everybody is still there.
    let answer: Value = server.get("/v2/models").await.ok();
    for model in answer["models"].as_array().unwrap() {
        server.get(&format!("/v2/models/{}/stats", model["name"].as_str().unwrap())).await.ok();
    }
}
