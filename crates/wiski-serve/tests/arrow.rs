//! Rows and predictions in Arrow IPC: as this library's crate writes them, as pyarrow does, and damaged.
#![cfg(feature = "arrow")]

mod common;

use std::sync::Arc;

use arrow_array::types::{Float64Type, Int8Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float32Array, Float64Array, Int64Array, NullArray,
    RecordBatch, StringArray, StringViewArray, UInt8Array, cast::AsArray,
};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use common::{Answer, Server, row, table};
use rand::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};

const ARROW: &str = "application/vnd.apache.arrow.stream";

fn stream(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    // In two batches.
    let half = batch.num_rows() / 2;
    writer.write(&batch.slice(0, half)).unwrap();
    writer.write(&batch.slice(half, batch.num_rows() - half)).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}

fn floats(values: impl IntoIterator<Item = f64>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<Float64Array>())
}

async fn post(server: &Server, path: &str, bytes: &[u8]) -> Answer {
    server.send("POST", path, &[("content-type", ARROW)], bytes.to_vec()).await
}

#[tokio::test]
async fn the_same_rows_lead_to_the_same_model_and_the_same_answers() {
    let server = Server::new();
    server.make_with("m", 60).await;
    server.make("n").await;
    let rows: Vec<[f64; 3]> = (0..60).map(row).collect();
    let column = |k: usize| floats(rows.iter().map(move |r| r[k]));
    // In another order, with a column that is not known.
    let unknown: ArrayRef = Arc::new(NullArray::new(60));
    let bytes = stream(vec![("y", column(2)), ("other", unknown), ("b", column(1)), ("a", column(0))]);
    assert_eq!(post(&server, "/v2/models/n/learn", &bytes).await.ok()["learned"], 60);
    let ask = json!([[0.2, 0.9], [0.7, 0.1], [0.5, 0.5]]);
    let wanted = server.post("/v2/models/m/infer", ask.clone()).await.ok();
    let said = server.post("/v2/models/n/infer", ask).await.ok();
    assert_eq!(wanted["predictions"], said["predictions"]);
    // Answers in Arrow have the same numbers.
    let bytes = stream(vec![("a", floats([0.2, 0.7, 0.5])), ("b", floats([0.9, 0.1, 0.5]))]);
    let headers = [("content-type", ARROW), ("accept", ARROW)];
    let answer = server.send("POST", "/v2/models/n/infer?level=0.95", &headers, bytes.clone()).await;
    assert_eq!(answer.headers["content-type"], ARROW);
    let batch = StreamReader::try_new(&answer.body[..], None).unwrap().next().unwrap().unwrap();
    let wanted = server.post("/v2/models/n/infer?level=0.95", json!([[0.2, 0.9], [0.7, 0.1], [0.5, 0.5]]));
    let wanted = wanted.await.ok();
    for name in ["mean", "std", "lower", "upper"] {
        let column = batch.column_by_name(name).unwrap().as_primitive::<Float64Type>();
        for i in 0..3 {
            assert_eq!(json!(column.value(i)), wanted["predictions"][i][name], "{name} {i}");
        }
    }
    // Steps of the warm-up have no prediction: null.
    server.make("fresh").await;
    let bytes = stream(vec![("a", floats([0.2, 0.7])), ("b", floats([0.9, 0.1])), ("y", floats([1.0, 2.0]))]);
    let answer = server.send("POST", "/v2/models/fresh/step", &headers, bytes).await;
    let batch = StreamReader::try_new(&answer.body[..], None).unwrap().next().unwrap().unwrap();
    assert_eq!((batch.num_rows(), batch.column(0).null_count()), (2, 2));
}

fn mixed() -> Value {
    json!({ "name": "mixed", "kind": "regressor", "inputs": ["a", "count", "on", "station"], "target": "y",
        "levels": { "station": ["north", "south"] },
        "settings": { "features": "additive", "learn": "off", "warm_up": 40 } })
}

#[tokio::test]
async fn numbers_booleans_texts_and_dictionaries() {
    let server = Server::new();
    server.post("/v2/models", mixed()).await.ok();
    let stations = ["north", "south", "south", "north"];
    let dictionary: DictionaryArray<Int8Type> = stations.into_iter().collect();
    let kinds: Vec<(ArrayRef, ArrayRef, ArrayRef)> = vec![
        (
            Arc::new(Float32Array::from(vec![0.25, 0.5, 0.75, 1.0])),
            Arc::new(Int64Array::from(vec![1, 2, 3, 4])),
            Arc::new(StringArray::from(stations.to_vec())),
        ),
        (
            floats([0.25, 0.5, 0.75, 1.0]),
            Arc::new(UInt8Array::from(vec![1, 2, 3, 4])),
            Arc::new(StringViewArray::from(stations.to_vec())),
        ),
        (
            floats([0.25, 0.5, 0.75, 1.0]),
            Arc::new(StringArray::from(vec!["1", "2", "3", "4"])),
            Arc::new(dictionary),
        ),
    ];
    let on: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true, true]));
    for (i, (a, count, station)) in kinds.into_iter().enumerate() {
        let y = floats([1.0, 2.0, 3.0, 4.0]);
        let columns = vec![("a", a), ("count", count), ("on", on.clone()), ("station", station), ("y", y)];
        let answer = post(&server, "/v2/models/mixed/learn", &stream(columns)).await.ok();
        assert_eq!((&answer["learned"], &answer["rows"]), (&json!(4), &json!(4 * (i + 1))), "{answer}");
    }
    // Classes from texts; probabilities by class.
    let classes = json!({ "name": "c", "kind": "classifier", "inputs": ["a"], "target": "kind", "classes": ["low", "high"],
        "settings": { "features": "identity", "grid": [8], "kernel": "rbf", "learn": "off", "warm_up": 20 } });
    server.post("/v2/models", classes).await.ok();
    let a: Vec<f64> = (0..40).map(|i| row(i)[0]).collect();
    let kinds: DictionaryArray<Int8Type> = a.iter().map(|a| if *a < 0.5 { "low" } else { "high" }).collect();
    let bytes = stream(vec![("a", floats(a)), ("kind", Arc::new(kinds))]);
    assert_eq!(post(&server, "/v2/models/c/learn", &bytes).await.ok()["learned"], 40);
    let headers = [("content-type", ARROW), ("accept", ARROW)];
    let bytes = stream(vec![("a", floats([0.1, 0.9]))]);
    let answer = server.send("POST", "/v2/models/c/infer", &headers, bytes).await;
    let batch = StreamReader::try_new(&answer.body[..], None).unwrap().next().unwrap().unwrap();
    let labels = batch.column_by_name("label").unwrap().as_string::<i32>();
    assert_eq!((labels.value(0), labels.value(1)), ("low", "high"));
    let share = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Float64Type>().value(0);
    common::close(share("p_low") + share("p_high"), 1.0, 1e-12);
}

#[tokio::test]
async fn what_pyarrow_writes_is_read() {
    let bytes = include_bytes!("data/rows.arrows");
    let server = Server::new();
    server.post("/v2/models", mixed()).await.ok();
    assert_eq!(post(&server, "/v2/models/mixed/learn", bytes).await.ok()["learned"], 60);
    // The same by JSON.
    let rows: Vec<Value> = (0..60)
        .map(|i| {
            let (a, count, on) = ((f64::from(i) * 0.618_033_988_75).fract(), i % 7, i % 2 == 0);
            let y = (a + f64::from(count) / 10.0 + f64::from(u8::from(on))) as f32;
            json!({ "a": a, "count": count, "on": u8::from(on), "station": if i % 3 == 0 { "south" } else { "north" }, "y": f64::from(y) })
        })
        .collect();
    let mut twin = mixed();
    twin["name"] = json!("twin");
    server.post("/v2/models", twin).await.ok();
    server.post("/v2/models/twin/learn", json!(rows)).await.ok();
    let ask = json!([[0.3, 2, 1, "north"], [0.8, 5, 0, "south"]]);
    let (own, twin) = (
        server.post("/v2/models/mixed/infer", ask.clone()).await.ok(),
        server.post("/v2/models/twin/infer", ask).await.ok(),
    );
    assert_eq!(own["predictions"], twin["predictions"]);
}

#[tokio::test]
async fn what_makes_no_sense_is_named() {
    let server = Server::new();
    server.make_with("m", 60).await;
    let missing: ArrayRef = Arc::new([Some(0.5), None].into_iter().collect::<Float64Array>());
    let bytes = stream(vec![("a", floats([0.1, 0.2])), ("b", missing)]);
    let text = post(&server, "/v2/models/m/infer", &bytes).await.is(422);
    assert!(text.contains("row 1, column 'b': is missing"), "{text}");
    let text = post(&server, "/v2/models/m/infer", &stream(vec![("a", floats([0.1, 0.2]))])).await.is(422);
    assert!(text.contains("column 'b'"), "{text}");
    let times: ArrayRef = Arc::new(arrow_array::TimestampSecondArray::from(vec![1, 2]));
    let bytes = stream(vec![("a", floats([0.1, 0.2])), ("b", times)]);
    let text = post(&server, "/v2/models/m/infer", &bytes).await.is(422);
    assert!(text.contains("column 'b'") && text.contains("Timestamp"), "{text}");
    let twice = stream(vec![("a", floats([0.1, 0.2])), ("b", floats([0.1, 0.2])), ("a", floats([0.1, 0.2]))]);
    post(&server, "/v2/models/m/infer", &twice).await.is(400);
    for bytes in [&b""[..], b"{}", b"ARROW1\0\0", &[0xff; 64]] {
        post(&server, "/v2/models/m/infer", bytes).await.is(400);
    }
    let many = stream(vec![("a", floats([0.1; 300])), ("b", floats([0.1; 300]))]);
    let narrow = Server::with(|config| config.limits.rows = 200);
    narrow.make_with("m", 60).await;
    post(&narrow, "/v2/models/m/infer", &many).await.is(413);
}

#[tokio::test]
async fn damaged_streams_are_errors_in_words() {
    let trials: usize = std::env::var("WISKI_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    let server = Server::new();
    server.make_with("m", 40).await;
    server.post("/v2/models", mixed()).await.ok();
    let column = |k: usize| floats((0..30).map(|i| row(i)[k]));
    let plain = stream(vec![("a", column(0)), ("b", column(1)), ("y", column(2))]);
    let bodies: [(&str, &[u8]); 2] = [("m", &plain), ("mixed", include_bytes!("data/rows.arrows"))];
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let (mut read, mut rejected) = (0, 0);
    for i in 0..trials {
        let (name, bytes) = bodies[i % 2];
        let mut bytes = bytes.to_vec();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..4) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = random.random(),
                2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)],
                _ => {
                    let end = (at + 8).min(bytes.len());
                    bytes[at..end].fill([0, 0x7f, 0xff][random.random_range(0..3)]);
                }
            }
        }
        let answer = post(&server, &format!("/v2/models/{name}/infer"), &bytes).await;
        assert!(answer.status.as_u16() < 500, "{} {}", answer.status, answer.text());
        if answer.status.is_client_error() {
            assert!(answer.json()["error"].is_string(), "{}", answer.text());
            rejected += 1;
        } else {
            read += 1;
        }
    }
    assert!(read > trials / 50 && rejected > trials / 4, "{read} {rejected}");
    assert_eq!(server.get("/v2/models/m/stats").await.ok()["rows"], table(0, 40).as_array().unwrap().len());
}
