//! What a client sees: the protocol, rows in every form, regressors, classifiers and searches.

mod common;

use common::{Server, close, regressor, row, settings, table};
use serde_json::{Value, json};
use wiski::{Horizon, OnlineClassifier, OnlineRegressor};

#[tokio::test]
async fn predictions_equal_those_of_the_library() {
    let server = Server::new();
    server.make_with("m", 300).await;
    let mut model = OnlineRegressor::new(2, settings()).unwrap();
    for [a, b, y] in (0..300).map(row) {
        model.step(&[a, b], y).unwrap();
    }
    let snapshot = model.snapshot().unwrap();
    // Also off the grid.
    for x in [[0.3, 0.4], [0.99, 0.01], [7.0, -3.0]] {
        let answer = server.post("/v2/models/m/infer?level=0.8", json!({ "rows": [x] })).await.ok();
        let said = &answer["predictions"][0];
        let p = snapshot.predict(&x).unwrap();
        let interval = snapshot.interval(&p, 0.8, Horizon::Next).unwrap();
        for (name, value) in
            [("mean", p.mean), ("std", p.std()), ("lower", interval.lower), ("upper", interval.upper)]
        {
            assert_eq!(said[name].as_f64().unwrap(), value, "{name} at {x:?}");
        }
        assert_eq!(answer["rows"], 300);
    }
    // A step says what the library says before it learns the row.
    let [a, b, y] = row(300);
    let answer = server.post("/v2/models/m/step", json!({ "row": { "a": a, "b": b, "y": y } })).await.ok();
    let p = model.step(&[a, b], y).unwrap().unwrap();
    let interval = model.interval(&p, 0.95, Horizon::Last).unwrap();
    assert_eq!(answer["predictions"][0]["mean"].as_f64().unwrap(), p.mean);
    assert_eq!(answer["predictions"][0]["upper"].as_f64().unwrap(), interval.upper);
    // What was acknowledged is seen by the next prediction.
    let said = server.post("/v2/models/m/infer", json!([[0.3, 0.4]])).await.ok();
    assert_eq!(
        said["predictions"][0]["mean"].as_f64().unwrap(),
        model.snapshot().unwrap().predict(&[0.3, 0.4]).unwrap().mean
    );
}

#[tokio::test]
async fn the_open_inference_protocol() {
    let server = Server::new();
    assert_eq!(server.get("/v2").await.ok()["name"], "wiski");
    assert_eq!(server.get("/v2/health/live").await.ok()["live"], true);
    assert_eq!(server.get("/v2/health/ready").await.ok()["ready"], true);
    server.make("m").await;
    server.get("/v2/models/m/ready").await.is(409);
    let tensor = json!({ "inputs": [{ "name": "x", "shape": [2, 2], "datatype": "FP64", "data": [0.1, 0.2, 0.3, 0.4] }] });
    server.post("/v2/models/m/infer", tensor.clone()).await.is(409);
    // Learning by tensors: inputs in one, the target in another.
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for [a, b, target] in (0..60).map(row) {
        x.extend([a, b]);
        y.push(target);
    }
    let learn = json!({ "inputs": [
        { "name": "inputs", "shape": [60, 2], "datatype": "FP64", "data": x },
        { "name": "y", "shape": [60, 1], "datatype": "FP64", "data": y },
    ] });
    assert_eq!(server.post("/v2/models/m/learn", learn).await.ok()["learned"], 60);
    server.get("/v2/models/m/ready").await.ok();
    let metadata = server.get("/v2/models/m/versions/1").await.ok();
    assert_eq!(metadata["platform"], "wiski_regressor");
    assert_eq!(metadata["inputs"][1]["name"], "b");
    server.get("/v2/models/m/versions/2").await.is(404);
    let mut asked = tensor.clone();
    asked["id"] = json!("seven");
    let whole = server.post("/v2/models/m/versions/1/infer", asked).await.ok();
    assert_eq!(
        (&whole["model_name"], &whole["model_version"], &whole["id"]),
        (&json!("m"), &json!("1"), &json!("seven"))
    );
    assert_eq!(whole["outputs"][0]["shape"], json!([2]));
    let output = |answer: &Value, name: &str| {
        answer["outputs"].as_array().unwrap().iter().find(|o| o["name"] == name).unwrap()["data"].clone()
    };
    // Nested lists, one tensor a column, other datatypes: the same rows.
    let nested = json!({ "inputs": [{ "name": "x", "shape": [2, 2], "datatype": "FP64", "data": [[0.1, 0.2], [0.3, 0.4]] }] });
    let columns = json!({ "inputs": [
        { "name": "b", "shape": [2], "datatype": "FP64", "data": [0.2, 0.4] },
        { "name": "a", "shape": [2, 1], "datatype": "FP64", "data": [0.1, 0.3] },
    ], "outputs": [{ "name": "mean" }] });
    for body in [nested, columns] {
        let answer = server.post("/v2/models/m/infer", body).await.ok();
        assert_eq!(output(&answer, "mean"), output(&whole, "mean"));
    }
    // Binary data behind the JSON.
    let head = json!({ "inputs": [{ "name": "x", "shape": [2, 2], "datatype": "FP64", "parameters": { "binary_data_size": 32 } }] }).to_string();
    let mut body = head.clone().into_bytes();
    [0.1f64, 0.2, 0.3, 0.4].iter().for_each(|v| body.extend(v.to_le_bytes()));
    let length = head.len().to_string();
    let headers =
        [("inference-header-content-length", length.as_str()), ("content-type", "application/octet-stream")];
    let answer = server.send("POST", "/v2/models/m/infer", &headers, body).await.ok();
    assert_eq!(output(&answer, "mean"), output(&whole, "mean"));
    let index = server.send("POST", "/v2/repository/index", &[], "").await.ok();
    assert_eq!(index, json!([{ "name": "m", "version": "1", "state": "READY", "reason": "" }]));
}

#[tokio::test]
async fn the_same_rows_in_every_form_lead_to_the_same_model() {
    let server = Server::new();
    let rows: Vec<[f64; 3]> = (0..50).map(row).collect();
    let csv: String =
        rows.iter().fold("y,b,other,a\n".into(), |all, [a, b, y]| format!("{all}{y},{b},\"x, y\",{a}\r\n"));
    let objects: Value =
        rows.iter().map(|[a, b, y]| json!({ "b": b, "y": y, "a": a, "other": null })).collect();
    let lines = objects.as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let forms = [
        ("application/json", table(0, 50).to_string()),
        ("application/json", json!({ "rows": objects }).to_string()),
        ("application/x-ndjson", lines),
        ("text/csv", csv),
    ];
    let mut snapshots = Vec::new();
    for (i, (kind, body)) in forms.into_iter().enumerate() {
        let name = format!("m{i}");
        server.make(&name).await;
        let path = format!("/v2/models/{name}/learn");
        assert_eq!(server.send("POST", &path, &[("content-type", kind)], body).await.ok()["learned"], 50);
        snapshots.push(server.get(&format!("/v2/models/{name}/snapshot")).await.body);
    }
    assert!(snapshots.windows(2).all(|pair| pair[0] == pair[1]));
    let ask = |accept: &'static str| {
        let server = &server;
        async move {
            let headers = [("content-type", "text/csv"), ("accept", accept)];
            server.send("POST", "/v2/models/m0/infer", &headers, "a,b\n0.1,0.2\n0.3,0.4\n").await.is(200)
        }
    };
    let csv = ask("text/csv").await;
    assert!(csv.starts_with("mean,std,lower,upper\n") && csv.lines().count() == 3, "{csv}");
    let lines = ask("application/x-ndjson").await;
    assert_eq!(lines.lines().count(), 2);
    let whole: Value = serde_json::from_str(&ask("application/json").await).unwrap();
    assert_eq!(
        whole["predictions"][1],
        serde_json::from_str::<Value>(lines.lines().nth(1).unwrap()).unwrap()
    );
}

#[tokio::test]
async fn rows_that_make_no_sense_are_named_and_nothing_is_learned() {
    let server = Server::new();
    server.make_with("m", 30).await;
    for (body, status, what) in [
        (json!({ "rows": [{ "a": 1, "y": 2 }] }), 422, "row 0, column 'b': is missing"),
        (json!({ "rows": [[0.1, 0.2, 0.3], [0.1, 0.2, "x"]] }), 422, "row 1, column 'y': is not a number"),
        (json!({ "rows": [[0.1, 0.2]] }), 400, "fewer than 3 cells"),
        (json!({ "rows": [[0.1, 0.2, 0.3, 0.4]] }), 400, "more than 3 cells"),
        (json!({ "rows": [] }), 400, "no rows"),
        (json!({ "rows": [[0.1, "inf", 1]] }), 422, "not a finite number"),
        (json!({ "cells": 1 }), 400, "neither 'rows'"),
        (json!(3), 400, "expected a list of rows"),
        (
            json!({ "inputs": [{ "name": "x", "shape": [1, 2], "datatype": "FP64", "data": [1.0] }] }),
            400,
            "its shape has 2",
        ),
        (
            json!({ "inputs": [{ "name": "x", "shape": [1, 3], "datatype": "FP64", "data": [1.0, 2.0, 3.0] }] }),
            422,
            "not 2",
        ),
        (
            json!({ "inputs": [{ "name": "x", "shape": [u64::MAX, 9], "datatype": "FP64", "data": [] }] }),
            400,
            "too large",
        ),
        (json!({ "inputs": [] }), 400, "no tensors"),
    ] {
        let text = server.post("/v2/models/m/learn", body.clone()).await.is(status);
        assert!(text.contains(what), "{body}: {text}");
    }
    for (kind, body, status) in [
        ("text/csv", "a,b,y\n1,2\n", 400),
        ("text/csv", "a,b,y,a\n1,2,3,4\n", 400),
        ("text/csv", "a,b,y\n\"1,2,3\n", 400),
        ("application/x-ndjson", "{\"a\":1,\"b\":2,\"y\":3}\nnonsense\n", 400),
        ("application/json", "{\"rows\": [[1,2,3]", 400),
        ("application/json", "[[1e999,2,3]]", 400),
        ("application/xml", "<rows/>", 415),
        ("application/octet-stream", "rows", 415),
    ] {
        server.send("POST", "/v2/models/m/learn", &[("content-type", kind)], body).await.is(status);
    }
    assert_eq!(server.get("/v2/models/m/stats").await.ok()["rows"], 30);
    server.post("/v2/models/none/learn", json!([[1, 2, 3]])).await.is(404);
    server.post("/v2/models/m/infer?level=2", json!([[0.1, 0.2]])).await.is(422);
    server.post("/v2/models/m/infer?level=x", json!([[0.1, 0.2]])).await.is(400);
}

#[tokio::test]
async fn rows_that_the_model_rejects_are_told_apart_from_the_others() {
    let server = Server::new();
    let mut model = regressor("m");
    model["settings"]["off_grid"] = json!("error");
    model["settings"]["bounds"] = json!([[0, 1], [0, 1]]);
    server.post("/v2/models", model).await.ok();
    let mut rows = table(0, 40);
    rows[30] = json!([90.0, 0.5, 1.0]);
    let answer = server.post("/v2/models/m/learn", json!({ "rows": rows })).await.ok();
    assert_eq!((&answer["learned"], &answer["rejected"][0]["row"]), (&json!(39), &json!(30)));
    let text = server.post("/v2/models/m/learn", json!([[90.0, 0.5, 1.0]])).await.is(422);
    assert!(text.contains("off the grid"), "{text}");
}

#[tokio::test]
async fn classes() {
    let server = Server::new();
    let model = json!({
        "kind": "classifier", "inputs": ["a", "b"], "target": "kind", "classes": ["low", "high"],
        "settings": { "features": "identity", "grid": [8], "kernel": "rbf", "learn": "off", "warm_up": 20 },
    });
    server.send("PUT", "/v2/models/c", &[], model.to_string()).await.is(201);
    let label = |y: f64| if y > 0.2 { "high" } else { "low" };
    let rows: Value =
        (0..200).map(row).map(|[a, b, y]| json!({ "a": a, "b": b, "kind": label(y) })).collect();
    server.post("/v2/models/c/learn", json!({ "rows": rows })).await.ok();
    let mut own = OnlineClassifier::new(2, wiski::Classes::declared(["low", "high"]), settings()).unwrap();
    for [a, b, y] in (0..200).map(row) {
        own.step(&[a, b], label(y)).unwrap();
    }
    let p = own.snapshot().unwrap().predict(&[0.25, 0.9]).unwrap();
    let said = server.post("/v2/models/c/infer", json!({ "row": { "a": 0.25, "b": 0.9 } })).await.ok();
    assert_eq!(said["predictions"][0]["label"], p.label.as_str());
    close(said["predictions"][0]["probabilities"]["high"].as_f64().unwrap(), p.probabilities[1], 1e-12);
    let tensor =
        json!({ "inputs": [{ "name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0.25, 0.9] }] });
    let answer = server.post("/v2/models/c/infer", tensor).await.ok();
    assert_eq!(
        answer["outputs"][0],
        json!({ "name": "label", "datatype": "BYTES", "shape": [1], "data": [p.label] })
    );
    assert_eq!(answer["outputs"][1]["shape"], json!([1, 2]));
    let text = server.post("/v2/models/c/learn", json!([[0.1, 0.2, "middle"]])).await.is(422);
    assert!(text.contains("middle"), "{text}");
    let stepped = server.post("/v2/models/c/step", json!([[0.25, 0.9, "high"]])).await.ok();
    assert_eq!(stepped["predictions"][0]["label"], "high");
}

#[tokio::test]
async fn levels_and_periods() {
    let server = Server::new();
    let model = json!({
        "name": "l", "kind": "regressor", "inputs": ["hour", "station"], "target": "y",
        "periodic": { "hour": 24 }, "levels": { "station": ["north", "south"] },
        "settings": { "warm_up": 60, "memory": 100 },
    });
    server.post("/v2/models", model).await.ok();
    let rows: Value = (0..120)
        .map(|i| json!({ "hour": i % 24, "station": if i % 2 == 0 { "north" } else { "south" }, "y": f64::from(i % 24).sin() }))
        .collect();
    server.post("/v2/models/l/learn", json!({ "rows": rows })).await.ok();
    server.post("/v2/models/l/infer", json!({ "row": { "hour": 3, "station": "south" } })).await.ok();
    let text =
        server.post("/v2/models/l/infer", json!({ "row": { "hour": 3, "station": "west" } })).await.is(422);
    assert!(text.contains("north|south"), "{text}");
    // A number could be meant as a place or as a text.
    server.post("/v2/models/l/infer", json!({ "row": { "hour": 3, "station": 1 } })).await.is(422);
}

#[tokio::test]
async fn a_search_finds_what_it_looks_for() {
    let server = Server::new();
    let model = json!({
        "name": "s", "kind": "optimizer", "goal": "minimize",
        "space": [{ "name": "x", "lo": -2, "hi": 2 }, { "name": "rate", "lo": 1e-4, "hi": 1, "scale": "log" },
                  { "name": "how", "lo": 0, "hi": 0, "choices": ["good", "bad"] }],
    });
    server.post("/v2/models", model).await.ok();
    for _ in 0..12 {
        let points = server.post("/v2/models/s/ask", json!({ "count": 2 })).await.ok();
        let results: Value = points["points"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| {
                let (x, rate) = (p["x"].as_f64().unwrap(), p["rate"].as_f64().unwrap());
                let worse = if p["how"] == "bad" { 1.0 } else { 0.0 };
                let mut told = p.clone();
                told["value"] = json!((x - 0.5).powi(2) + 0.1 * (rate.log10() + 2.0).powi(2) + worse);
                told
            })
            .collect();
        server.post("/v2/models/s/tell", json!({ "rows": results })).await.ok();
    }
    // A trial without a value has failed.
    assert_eq!(
        server.post("/v2/models/s/tell", json!([{ "x": 1, "rate": 0.1, "how": "bad" }])).await.ok()["learned"],
        1
    );
    let stats = server.get("/v2/models/s/stats").await.ok();
    assert_eq!((&stats["rows"], &stats["best"]["point"]["how"]), (&json!(25), &json!("good")));
    assert!(stats["best"]["value"].as_f64().unwrap() < 0.1, "{stats}");
    server.post("/v2/models/s/infer", json!([{ "x": 0.5, "rate": 0.01, "how": "good" }])).await.ok();
    server.post("/v2/models/s/learn", json!([[1, 2, 3]])).await.is(422);
    server.post("/v2/models/s/ask", json!({ "count": 0 })).await.is(422);
    server.post("/v2/models/s/ask", json!({ "counts": 1 })).await.is(400);
}

/// A value falls towards a corner that a constraint forbids.
fn shape(point: &Value) -> Value {
    let (w, h) = (point["w"].as_f64().unwrap(), point["h"].as_f64().unwrap());
    let mut told = point.clone();
    told["value"] = json!(2.0 * (w + h));
    told["area"] = json!(0.64 - w * h);
    told["length"] = json!(w - 1.5);
    told
}

#[tokio::test]
async fn a_search_keeps_its_constraints() {
    let mut server = Server::new();
    let model = json!({
        "name": "s", "kind": "optimizer", "constraints": ["area", "length"],
        "space": [{ "name": "w", "lo": 0.1, "hi": 2 }, { "name": "h", "lo": 0.1, "hi": 2 }],
    });
    server.post("/v2/models", model).await.ok();
    assert_eq!(server.get("/v2/models/s").await.ok()["parameters"]["beside"], json!(["area", "length"]));
    for round in 0..15 {
        if round == 5 {
            // What was told is in the journal, constraints included.
            server = server.crashed();
        }
        let points = server.post("/v2/models/s/ask", json!({ "count": 2 })).await.ok();
        let told: Value = points["points"].as_array().unwrap().iter().map(shape).collect();
        server.post("/v2/models/s/tell", json!({ "rows": told })).await.ok();
    }
    let stats = server.get("/v2/models/s/stats").await.ok();
    let best = &stats["best"];
    assert_eq!(best["value"], shape(&best["point"])["value"], "{stats}");
    assert!(best["value"].as_f64().unwrap() < 3.25, "{stats}");
    assert_eq!(best["constraints"]["area"], shape(&best["point"])["area"]);
    assert!(best["constraints"]["area"].as_f64().unwrap() <= 0.0, "{stats}");
    let feasible = stats["feasible"].as_u64().unwrap();
    assert!(0 < feasible && feasible < 30, "{stats}");
    // Rows without names have what was named after their value, in CSV by name; a trial that failed has neither.
    assert_eq!(server.post("/v2/models/s/tell", json!([[1, 1, 4, -0.36, -0.5]])).await.ok()["learned"], 1);
    assert_eq!(
        server.post("/v2/models/s/tell", json!([{ "w": 1, "h": 1, "area": 3 }])).await.ok()["learned"],
        1
    );
    let csv = [("content-type", "text/csv")];
    let body = "area,h,w,length,value\n-0.36,1,1,-0.5,4\n";
    assert_eq!(server.send("POST", "/v2/models/s/tell", &csv, body).await.ok()["rows"], 33);
    assert_eq!(server.get("/v2/models/s/stats").await.ok()["feasible"], feasible + 2);
    let text =
        server.post("/v2/models/s/tell", json!([{ "w": 1, "h": 1, "value": 4, "area": 3 }])).await.is(422);
    assert!(text.contains("row 0, column 'length': is missing"), "{text}");
    server.post("/v2/models/s/tell", json!([[1, 1, 4]])).await.is(400);
    let twice = server.send("POST", "/v2/models/s/tell", &csv, "w,w\n1,1\n").await.is(400);
    assert!(twice.contains("'w' is named twice"), "{twice}");
}

#[tokio::test]
async fn a_search_of_two_objectives_has_a_front() {
    let server = Server::new();
    let model = json!({
        "name": "s", "kind": "optimizer", "goals": ["minimize", "maximize"], "constraints": ["x too small"],
        "space": [{ "name": "x", "lo": 0, "hi": 1 }, { "name": "n", "lo": 1, "hi": 9, "integer": true, "step": 3 },
                  { "name": "how", "choices": ["good", "bad"] }],
    });
    server.post("/v2/models", model).await.ok();
    for _ in 0..12 {
        let points = server.post("/v2/models/s/ask", json!({ "count": 2 })).await.ok();
        let told: Value = points["points"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| {
                let x = p["x"].as_f64().unwrap();
                // Whole numbers come as such.
                let n = p["n"].as_u64().unwrap() as f64;
                assert!([1.0, 4.0, 7.0].contains(&n), "{n}");
                let worse = if p["how"] == "bad" { 1.0 } else { 0.0 };
                let mut told = p.clone();
                told["value"] = json!(x * x + worse + 0.1 * (n - 4.0).abs());
                told["value2"] = json!(1.0 - (x - 1.0).powi(2) - worse);
                told["x too small"] = json!(0.2 - x);
                told
            })
            .collect();
        server.post("/v2/models/s/tell", json!({ "rows": told })).await.ok();
    }
    let stats = server.get("/v2/models/s/stats").await.ok();
    assert!(stats.get("best").is_none(), "{stats}");
    let front = stats["front"].as_array().unwrap();
    assert!(front.len() >= 3, "{stats}");
    let values: Vec<(f64, f64)> =
        front.iter().map(|t| (t["values"][0].as_f64().unwrap(), t["values"][1].as_f64().unwrap())).collect();
    for (i, a) in values.iter().enumerate() {
        assert!(front[i]["constraints"]["x too small"].as_f64().unwrap() <= 0.0);
        assert!(values.iter().all(|b| !(b.0 < a.0 && b.1 > a.1)), "{stats}");
    }
    server.get("/v2/models/s/figures/trace.svg").await.is(200);
    server.post("/v2/models/s/infer", json!([{ "x": 0.5, "n": 4, "how": "good" }])).await.ok();
}

#[tokio::test]
async fn what_a_search_cannot_be_is_said_when_it_is_made() {
    let server = Server::new();
    let range = json!([{ "name": "x", "lo": 0, "hi": 1 }]);
    for (change, word) in [
        (json!({ "goals": [] }), "goals"),
        (json!({ "goal": "minimize", "goals": ["minimize", "maximize"] }), "goals"),
        (json!({ "goals": ["minimize", "minimize", "minimize", "minimize"] }), "objectives"),
        (json!({ "goals": ["minimize", "minimize"], "noise": "variance" }), "known_noise"),
        (json!({ "constraints": ["a", "a"] }), "'a'"),
        (json!({ "constraints": ["x"] }), "'x' is named twice"),
        (json!({ "constraints": ["value"] }), "'value' is named twice"),
        (json!({ "constraints": [""] }), "0 bytes"),
        (json!({ "space": [{ "name": "value", "lo": 0, "hi": 1 }] }), "'value' is named twice"),
        (json!({ "space": [{ "name": "x", "lo": 0 }] }), "'hi'"),
        (json!({ "settings": { "features": "identity" } }), "features"),
        (json!({ "settings": { "memory": 100 } }), "memory"),
    ] {
        let mut model = json!({ "name": "s", "kind": "optimizer", "space": range });
        model.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let text = server.post("/v2/models", model).await.is(422);
        assert!(text.contains(word), "{change}: {text}");
    }
    let rows =
        json!({ "name": "m", "kind": "regressor", "inputs": ["a"], "target": "y", "constraints": ["c"] });
    assert!(server.post("/v2/models", rows).await.is(422).contains("constraints"));
}

#[tokio::test]
async fn models_are_made_listed_and_deleted() {
    let server = Server::new();
    server.make("m").await;
    server.post("/v2/models", regressor("m")).await.is(409);
    for (change, status) in [
        (json!({ "name": "../up" }), 422),
        (json!({ "name": "" }), 422),
        (json!({ "name": null }), 422),
        (json!({ "kind": "oracle" }), 400),
        (json!({ "kind": "forecaster", "target": "y" }), 422),
        (json!({ "kind": "forecaster", "target": "y", "time": "t", "settings": { "grid": [4] } }), 422),
        (json!({ "kind": "regressor", "inputs": ["a"], "target": "y", "settings": { "seasons": [4] } }), 422),
        (json!({ "target": "a" }), 422),
        (json!({ "inputs": [] }), 422),
        (json!({ "surprise": 1 }), 400),
        (json!({ "settings": { "features": "magic" } }), 422),
        (json!({ "settings": { "grid": [100_000, 100_000] } }), 422),
        (json!({ "settings": { "warm_up": 100_000_000 } }), 422),
        (json!({ "classes": ["a", "b"] }), 422),
        (json!({ "space": [{ "name": "x", "lo": 0, "hi": 1 }] }), 422),
    ] {
        let mut model = regressor("other");
        change.as_object().unwrap().iter().for_each(|(k, v)| model[k] = v.clone());
        let answer = server.post("/v2/models", model).await;
        assert_eq!(answer.status.as_u16(), status, "{change}: {}", answer.text());
    }
    let listed = server.get("/v2/models").await.ok();
    assert_eq!(listed["models"].as_array().unwrap().len(), 1);
    server.send("DELETE", "/v2/models/m", &[], "").await.ok();
    server.send("DELETE", "/v2/models/m", &[], "").await.is(404);
    server.get("/v2/models/m").await.is(404);
    assert_eq!(
        std::fs::read_dir(server.folder.path()).unwrap().flatten().filter(|e| e.path().is_dir()).count(),
        0
    );
    server.make("m").await;
    let limited = Server::with(|config| config.limits.models = 1);
    limited.make("one").await;
    limited.post("/v2/models", regressor("two")).await.is(409);
}

#[tokio::test]
async fn rows_are_un_learned() {
    let server = Server::new();
    server.make_with("m", 100).await;
    server.post("/v2/models/m/freeze", json!({})).await.ok();
    let mean = |answer: Value| answer["predictions"][0]["mean"].as_f64().unwrap();
    let before = mean(server.post("/v2/models/m/infer", json!([[0.5, 0.5]])).await.ok());
    let extra = json!([[0.5, 0.5, 3.0]]);
    server.post("/v2/models/m/learn", extra.clone()).await.ok();
    let with = mean(server.post("/v2/models/m/infer", json!([[0.5, 0.5]])).await.ok());
    assert_eq!(server.post("/v2/models/m/forget", extra).await.ok()["learned"], 1);
    let after = mean(server.post("/v2/models/m/infer", json!([[0.5, 0.5]])).await.ok());
    assert!((with - before).abs() > 0.01, "{with} {before}");
    close(after, before, 1e-9);
    server.post("/v2/models/m/refit", json!({})).await.ok();
}

#[tokio::test]
async fn the_command_line_and_the_server_share_files() {
    let server = Server::new();
    server.make_with("m", 60).await;
    let bytes = server.get("/v2/models/m/snapshot").await.body;
    let stored: wiski::persist::Stored = wiski::persist::from_bytes(&bytes).unwrap();
    assert_eq!((stored.rows, stored.columns.target.as_str()), (60, "y"));
    server
        .send("PUT", "/v2/models/n", &[("content-type", "application/octet-stream")], bytes.clone())
        .await
        .is(201);
    let ask = json!([[0.2, 0.7]]);
    let (a, b) = (
        server.post("/v2/models/m/infer", ask.clone()).await.ok(),
        server.post("/v2/models/n/infer", ask.clone()).await.ok(),
    );
    assert_eq!(a["predictions"], b["predictions"]);
    server
        .send("PUT", "/v2/models/o", &[("content-type", "application/octet-stream")], &b"nonsense"[..])
        .await
        .is(422);
    // A file that lies in the folder is a model.
    std::fs::write(server.folder.path().join("filed.wiski"), bytes).unwrap();
    let server = server.restarted().await;
    assert_eq!(server.post("/v2/models/filed/infer", ask).await.ok()["predictions"], a["predictions"]);
    server.post("/v2/models/filed/learn", table(60, 70)).await.ok();
    let server = server.restarted().await;
    assert_eq!(server.get("/v2/models/filed/stats").await.ok()["rows"], 70);
}

#[tokio::test]
async fn figures_for_prometheus() {
    let server = Server::new();
    server.make_with("m", 200).await;
    server.post("/v2/models/m/infer", table(0, 5)).await.is(400);
    let text = server.get("/metrics").await.is(200);
    for line in text.lines() {
        let sound = line.starts_with("# HELP wiski_")
            || line.starts_with("# TYPE wiski_")
            || line.starts_with("wiski_")
            || line.contains("process_resident_memory_bytes");
        assert!(sound, "{line}");
        if !line.starts_with('#') {
            let value = line.rsplit(' ').next().unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(text.contains("wiski_rows_learned_total{model=\"m\"} 200"), "{text}");
    assert!(text.contains(
        "wiski_http_requests_total{route=\"/v2/models/{model}/infer\",method=\"POST\",code=\"400\"} 1"
    ));
    let kinds: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")).collect();
    for kind in kinds {
        let (name, kind) = kind.split_once(' ').unwrap();
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
    }
}

#[tokio::test]
async fn the_dashboard_shows_figures_that_there_are() {
    let server = Server::new();
    server.make_with("m", 60).await;
    let text = server.get("/metrics").await.is(200);
    let dashboard: Value = serde_json::from_str(include_str!("../../../docs/grafana.json")).unwrap();
    let mut seen = 0;
    for target in
        dashboard["panels"].as_array().unwrap().iter().flat_map(|p| p["targets"].as_array().unwrap())
    {
        let expression = target["expr"].as_str().unwrap();
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for name in words.filter(|w| w.starts_with("wiski_") || w.starts_with("process_")) {
            assert!(text.contains(&format!("\n{name}")), "{name}");
            seen += 1;
        }
    }
    assert!(seen > 10);
}
