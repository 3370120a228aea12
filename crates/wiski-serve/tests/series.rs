//! Forecasters behind the server: the library's own answers, also after stops and crashes.

mod common;

use common::Server;
use serde_json::{Value, json};
use wiski::Column;
use wiski::time::{ForecastSettings, Forecaster, Lags, Seasons};

/// The i-th row of a series by the hour, with a temperature; some hours are not there, some have no value.
fn row(i: usize) -> Option<(f64, f64, Option<f64>)> {
    let t = i as f64;
    let temperature = 10.0 + 5.0 * (0.9 * t).sin();
    let noise = ((i * i) as f64 * 0.414_213_562).fract() - 0.5;
    let load = 20.0 + 3.0 * (t * std::f64::consts::TAU / 24.0).sin() - 0.3 * temperature + 0.5 * noise;
    (i % 41 != 40).then_some((t, temperature, (i % 17 != 16).then_some(load)))
}

fn objects(from: usize, to: usize) -> Value {
    let object = |(t, x, y): (f64, f64, Option<f64>)| json!({ "hour": t, "temperature": x, "load": y });
    (from..to).filter_map(row).map(object).collect()
}

fn description(name: &str) -> Value {
    json!({ "name": name, "kind": "forecaster", "time": "hour", "target": "load", "inputs": ["temperature"],
        "settings": { "seasons": [24], "lags": [], "memory": 512 } })
}

fn own() -> Forecaster {
    let settings = ForecastSettings {
        seasons: Seasons::Given(vec![24.0]),
        lags: Lags::Given(Vec::new()),
        columns: vec![Column::Numeric],
        memory: 512,
        ..ForecastSettings::default()
    };
    Forecaster::new(settings).unwrap()
}

#[tokio::test]
async fn forecasts_equal_those_of_the_library_and_survive_crashes() {
    let mut server = Server::new();
    server.post("/v2/models", description("load")).await.ok();
    let mut own = own();
    let ask = json!([{ "hour": 700, "temperature": 9 }, { "hour": 701.5, "temperature": 12 }]);
    server.post("/v2/models/load/infer", ask.clone()).await.is(409);
    for from in (0..700).step_by(50) {
        let answer =
            server.keyed("/v2/models/load/step", &format!("k{from}"), objects(from, from + 50)).await.ok();
        let said = answer["predictions"].as_array().unwrap();
        for ((t, x, y), said) in (from..from + 50).filter_map(row).zip(said) {
            let expected = own.observe(t, &[x], y).unwrap();
            assert_eq!(said["mean"], json!(expected.map(|e| e.mean)));
            assert_eq!(said["std"], json!(expected.map(|e| e.std)));
        }
        assert_eq!(answer["rows"], own.rows());
        match from {
            100 | 350 => server = server.crashed(),
            250 | 500 => server = server.restarted().await,
            _ => {}
        }
        // A retry is not learned twice, whatever happened.
        let again =
            server.keyed("/v2/models/load/step", &format!("k{from}"), objects(from, from + 50)).await.ok();
        assert_eq!((&again["rows"], &again["replayed"]), (&json!(own.rows()), &json!(true)));
    }
    let wanted = own.forecast_at(&[700.0, 701.5], &[9.0, 12.0], 0.8).unwrap();
    let answer = server.post("/v2/models/load/infer?level=0.8", ask).await.ok();
    for (k, said) in answer["predictions"].as_array().unwrap().iter().enumerate() {
        for (name, list) in [
            ("time", &wanted.times),
            ("mean", &wanted.mean),
            ("std", &wanted.std),
            ("lower", &wanted.lower),
            ("upper", &wanted.upper),
        ] {
            assert_eq!(said[name], json!(list[k]), "{name}");
        }
    }
    // Rows ahead without times are the next steps; lists are inputs and time; CSV answers.
    let next = own.forecast(2, &[9.0, 12.0], 0.95).unwrap();
    let answer = server.post("/v2/models/load/infer", json!([{ "temperature": 9 }, { "temperature": 12 }]));
    assert_eq!(answer.await.ok()["predictions"][1]["mean"], json!(next.mean[1]));
    let answer = server.post("/v2/models/load/infer", json!([[9, next.times[0]], [12, next.times[1]]]));
    assert_eq!(answer.await.ok()["predictions"][1]["mean"], json!(next.mean[1]));
    let headers = [("content-type", "text/csv"), ("accept", "text/csv")];
    let text = server.send("POST", "/v2/models/load/infer", &headers, "temperature\n9\n").await.is(200);
    assert!(text.starts_with("time,mean,std,lower,upper\n"), "{text}");
    let stats = server.get("/v2/models/load/stats").await.ok();
    assert_eq!((&stats["kind"], &stats["seasons"]), (&json!("forecaster"), &json!([24.0])));
    assert!(stats["coverage"].as_f64().unwrap() > 0.8 && stats["error"].as_f64().unwrap() < 1.0, "{stats}");
}

#[tokio::test]
async fn horizons_gaps_and_what_makes_no_sense() {
    let server = Server::new();
    let plain = json!({ "name": "s", "kind": "forecaster", "time": "t", "target": "y" });
    server.post("/v2/models", plain).await.ok();
    let values = |i: usize| (i as f64 * 0.3).sin() + i as f64 / 50.0;
    let rows: Value = (0..100)
        .map(|i| json!({ "t": i, "y": if i == 50 { Value::Null } else { json!(values(i)) } }))
        .collect();
    assert_eq!(server.post("/v2/models/s/learn", rows).await.ok()["learned"], 100);
    server.post("/v2/models/s/infer", json!({ "horizon": 3 })).await.is(409);
    // A short series is fitted when that is asked for.
    server.post("/v2/models/s/refit", json!({})).await.ok();
    let mut own = Forecaster::new(ForecastSettings::default()).unwrap();
    for i in 0..100 {
        own.observe(i as f64, &[], (i != 50).then(|| values(i))).unwrap();
    }
    own.fit().unwrap();
    let wanted = own.forecast(12, &[], 0.95).unwrap();
    let by_body = server.post("/v2/models/s/infer", json!({ "horizon": 12 })).await.ok();
    let by_query = server.send("POST", "/v2/models/s/infer?horizon=12", &[], "").await.ok();
    assert_eq!(by_body, by_query);
    let predictions = by_body["predictions"].as_array().unwrap();
    assert_eq!(predictions.len(), 12);
    for (k, said) in predictions.iter().enumerate() {
        assert_eq!((&said["time"], &said["mean"]), (&json!(wanted.times[k]), &json!(wanted.mean[k])));
    }
    for (path, body, status) in [
        ("infer", json!({ "horizon": 0 }), 422),
        ("infer", json!({ "horizon": 1_000_000 }), 422),
        ("infer?horizon=3", json!([{ "t": 101 }]), 400),
        ("infer", json!([{ "t": 5 }]), 422),
        ("infer", json!({ "horizon": 3, "level": 2 }), 422),
        // Before the last row.
        ("learn", json!([{ "t": 5, "y": 1 }]), 422),
        ("learn", json!([{ "y": 1 }]), 422),
        ("forget", json!([{ "t": 99, "y": 1 }]), 422),
        ("freeze", json!({}), 422),
        ("ask", json!({}), 422),
    ] {
        server.post(&format!("/v2/models/s/{path}"), body).await.is(status);
    }
    // Rows that are rejected leave the others.
    let answer = server
        .post("/v2/models/s/learn", json!([{ "t": 100, "y": 2 }, { "t": 7, "y": 2 }, { "t": 101, "y": 2 }]));
    let answer = answer.await.ok();
    assert_eq!((&answer["learned"], &answer["rejected"][0]["row"]), (&json!(2), &json!(1)));
    server.get("/v2/models/s/snapshot?shard=true").await.is(422);
    // With inputs a horizon is not enough.
    server.post("/v2/models", description("load")).await.ok();
    server.post("/v2/models/load/learn", objects(0, 300)).await.ok();
    let text = server.post("/v2/models/load/infer", json!({ "horizon": 3 })).await.is(422);
    assert!(text.contains("inputs"), "{text}");
    let metadata = server.get("/v2/models/load").await.ok();
    assert_eq!(metadata["inputs"][1]["name"], "hour");
}

#[tokio::test]
async fn files_go_to_the_command_line_and_back() {
    let server = Server::new();
    server.post("/v2/models", description("load")).await.ok();
    server.post("/v2/models/load/learn", objects(0, 400)).await.ok();
    let bytes = server.get("/v2/models/load/snapshot").await.body;
    // The library reads it as a forecaster.
    let read: Forecaster = wiski::persist::from_bytes(&bytes).unwrap();
    assert_eq!(read.rows(), (0..400).filter_map(row).count() as u64);
    let octets = [("content-type", "application/octet-stream")];
    server.send("PUT", "/v2/models/copy", &octets, bytes).await.is(201);
    let ask = json!([{ "hour": 405, "temperature": 9 }]);
    let said = server.post("/v2/models/load/infer", ask.clone()).await.ok();
    let copied = server.post("/v2/models/copy/infer", ask).await.ok();
    assert_eq!(said["predictions"], copied["predictions"]);
    let wanted = read.forecast_at(&[405.0], &[9.0], 0.95).unwrap();
    assert_eq!(said["predictions"][0]["upper"], json!(wanted.upper[0]));
    // One that the library wrote has names of its own.
    let bytes = wiski::persist::to_bytes(&read).unwrap();
    server.send("PUT", "/v2/models/plain", &octets, bytes).await.is(201);
    let answer = server.post("/v2/models/plain/infer", json!([{ "time": 405, "x1": 9 }])).await.ok();
    assert_eq!(answer["predictions"], said["predictions"]);
}
