//! The figures of the report, as SVG from a route: well formed, for every kind of model, on light and dark ground.

mod common;

use common::{Server, row, table};
use serde_json::{Value, json};

/// Panics unless every element is closed and every attribute quoted. Enough of XML for what is written here.
fn check_svg(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    let mut elements = 0;
    while let Some(start) = rest.find('<') {
        let content = &rest[..start];
        assert!(!content.contains('>'), "a bare '>' in {content:?}");
        let end = rest[start..].find('>').expect("an element ends") + start;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('?') || tag.starts_with('!') {
            continue;
        }
        elements += 1;
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.trim()), "closed too early");
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap());
        }
        if elements == 1 {
            assert!(tag.starts_with("svg ") && tag.contains("viewBox"), "<{tag}>");
        }
    }
    assert!(open.is_empty(), "{open:?} left open");
    assert!(!text.contains("NaN") && !text.contains("inf"), "a number that is none");
    assert!(elements > 10, "an empty picture");
}

async fn all_figures(server: &Server, model: &str) -> Vec<String> {
    let list = server.get(&format!("/v2/models/{model}/figures")).await.ok();
    let mut names = Vec::new();
    for figure in list["figures"].as_array().unwrap() {
        assert!(figure["reading"].as_str().unwrap().len() > 40 && figure["heading"].is_string());
        let path = figure["path"].as_str().unwrap();
        let light = server.get(path).await;
        assert_eq!(light.headers["content-type"], "image/svg+xml");
        let light = light.is(200);
        check_svg(&light);
        let dark = server.get(&format!("{path}?theme=dark")).await.is(200);
        check_svg(&dark);
        assert!(light.contains("#222222") && !dark.contains("#222222"), "{path}");
        assert!(!dark.contains("\"white\"") && !dark.contains("\"#ffffff\""), "{path}");
        names.push(figure["name"].as_str().unwrap().to_owned());
    }
    names
}

fn settings() -> Value {
    json!({ "features": "identity", "grid": [8], "kernel": "rbf", "learn": "off", "warm_up": 20 })
}

#[tokio::test]
async fn every_kind_of_model_has_its_figures() {
    let server = Server::new();
    // Two inputs: a map.
    server.make("m").await;
    let names = server.get("/v2/models/m/figures").await.ok();
    assert_eq!(names["figures"].as_array().unwrap().len(), 4);
    // In the warm-up there is nothing to show of the model; the others say that they have no data.
    server.get("/v2/models/m/figures/surface.svg").await.is(409);
    check_svg(&server.get("/v2/models/m/figures/intervals.svg").await.is(200));
    server.post("/v2/models/m/learn", json!({ "rows": table(0, 700) })).await.ok();
    server.post("/v2/models/m/infer", json!([[0.5, 0.5]])).await.ok();
    assert_eq!(all_figures(&server, "m").await, ["surface", "intervals", "residuals", "latency"]);
    // One input: a curve; names that would break the XML.
    let one = json!({ "name": "one", "kind": "regressor", "inputs": ["a<b & \"c\""], "target": "y>0", "settings": settings() });
    server.post("/v2/models", one).await.ok();
    let rows: Value = (0..200).map(row).map(|[a, _, y]| json!([a, y])).collect();
    server.post("/v2/models/one/learn", rows).await.ok();
    assert_eq!(all_figures(&server, "one").await, ["fit", "intervals", "residuals", "latency"]);
    // Three, one of them with levels: effects.
    let three = json!({ "name": "three", "kind": "regressor", "inputs": ["a", "b", "kind"], "target": "y",
        "levels": { "kind": ["low", "high"] },
        "settings": { "features": "additive", "learn": "off", "warm_up": 100 } });
    server.post("/v2/models", three).await.ok();
    let rows: Value = (0..150)
        .map(|i| {
            let [a, b, y] = row(i);
            json!([a, b, if i % 2 == 0 { "low" } else { "high" }, y])
        })
        .collect();
    server.post("/v2/models/three/learn", rows).await.ok();
    assert_eq!(all_figures(&server, "three").await, ["effects", "intervals", "residuals", "latency"]);
    // Classes.
    let classes = json!({ "name": "c", "kind": "classifier", "inputs": ["a", "b"], "target": "kind",
        "classes": ["low", "high"], "settings": settings() });
    server.post("/v2/models", classes).await.ok();
    let label = |y: f64| if y > 0.2 { "high" } else { "low" };
    let rows: Value = (0..300).map(row).map(|[a, b, y]| json!([a, b, label(y)])).collect();
    server.post("/v2/models/c/learn", rows).await.ok();
    assert_eq!(all_figures(&server, "c").await, ["surface", "intervals", "latency"]);
    // A series and a search.
    let series = json!({ "name": "f", "kind": "forecaster", "time": "t", "target": "y", "settings": { "seasons": [24] } });
    server.post("/v2/models", series).await.ok();
    let rows: Value = (0..300).map(|i| json!([(f64::from(i) / 4.0).sin(), i])).collect();
    server.post("/v2/models/f/learn", rows).await.ok();
    assert_eq!(all_figures(&server, "f").await, ["forecast", "intervals", "residuals", "latency"]);
    let search = json!({ "name": "s", "kind": "optimizer", "space": [{ "name": "x", "lo": 0, "hi": 1 }] });
    server.post("/v2/models", search).await.ok();
    server
        .post(
            "/v2/models/s/tell",
            json!([{ "x": 0.5, "value": 1 }, { "x": 0.2, "value": 0.4 }, { "x": 0.1 }]),
        )
        .await
        .ok();
    assert_eq!(all_figures(&server, "s").await, ["trace", "latency"]);
    // What is not there.
    let text = server.get("/v2/models/m/figures/effects").await.is(404);
    assert!(text.contains("surface"), "{text}");
    server.get("/v2/models/m/figures/latency?theme=pink").await.is(400);
}
