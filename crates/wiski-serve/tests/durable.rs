//! What was acknowledged stays, once, whatever happens; readers wait for nobody; memory is bounded.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Server, regressor, row, table};
use serde_json::json;
use wiski::model::Upkeep;

const LEARN: &str = "/v2/models/m/learn";

#[tokio::test]
async fn acknowledged_rows_survive_stops_and_crashes() {
    let server = Server::new();
    server.make_with("m", 100).await;
    let ask = json!([[0.3, 0.6], [0.9, 0.1]]);
    let said = server.post("/v2/models/m/infer", ask.clone()).await.ok();
    let crashed = server.crashed();
    assert_eq!(crashed.post("/v2/models/m/infer", ask.clone()).await.ok(), said);
    crashed.post(LEARN, table(100, 150)).await.ok();
    let said = crashed.post("/v2/models/m/infer", ask.clone()).await.ok();
    let stopped = crashed.restarted().await;
    assert_eq!(stopped.post("/v2/models/m/infer", ask.clone()).await.ok(), said);
    // Stopping has left a snapshot and an empty journal.
    let again = stopped.crashed();
    assert_eq!(again.post("/v2/models/m/infer", ask).await.ok(), said);
    assert_eq!(again.get("/v2/models/m/stats").await.ok()["rows"], 150);
}

#[tokio::test]
async fn a_retry_is_not_learned_twice_even_after_a_crash() {
    let mut server = Server::new();
    server.make_with("m", 60).await;
    let first = server.keyed("/v2/models/m/step", "k1", table(60, 70)).await.ok();
    assert_eq!(first["replayed"], false);
    for how in ["at once", "after a crash", "after a stop", "after another crash"] {
        match how {
            "after a crash" | "after another crash" => server = server.crashed(),
            "after a stop" => server = server.restarted().await,
            _ => {}
        }
        let mut again = server.keyed("/v2/models/m/step", "k1", table(60, 70)).await.ok();
        assert_eq!(again["replayed"], true, "{how}");
        // The answer is that of the first time, predictions included.
        again["replayed"] = json!(false);
        assert_eq!(again, first, "{how}");
        assert_eq!(server.get("/v2/models/m/stats").await.ok()["rows"], 70, "{how}");
        // The same key for something else is a mistake.
        server.keyed("/v2/models/m/step", "k1", table(60, 71)).await.is(422);
        server.keyed(LEARN, "k1", table(60, 70)).await.is(422);
    }
    // Proposals, too, are repeated.
    let search = json!({ "name": "s", "kind": "optimizer", "space": [{ "name": "x", "lo": 0, "hi": 1 }] });
    server.post("/v2/models", search).await.ok();
    let points = server.keyed("/v2/models/s/ask", "a", json!({ "count": 3 })).await.ok()["points"].clone();
    let server = server.crashed();
    let again = server.keyed("/v2/models/s/ask", "a", json!({ "count": 3 })).await.ok();
    assert_eq!((&again["points"], &again["replayed"]), (&points, &json!(true)));
    assert_ne!(server.keyed("/v2/models/s/ask", "b", json!({ "count": 3 })).await.ok()["points"], points);
}

#[tokio::test]
async fn snapshots_are_taken_along_the_way() {
    let server = Server::with(|config| config.limits.compact_after = 50);
    server.make("m").await;
    for i in 0..40 {
        server.keyed(LEARN, &format!("k{i}"), table(10 * i, 10 * i + 10)).await.ok();
    }
    // What comes after the last answer is done before this.
    server.get("/v2/models/m/snapshot").await.is(200);
    let files = || -> Vec<String> {
        let entries = std::fs::read_dir(server.folder.path().join("m")).unwrap().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    };
    assert_eq!(files(), ["journal-9.log", "model-9.wiski"]);
    let server = server.crashed();
    assert_eq!(server.get("/v2/models/m/stats").await.ok()["rows"], 400);
    // Keys outlive snapshots.
    for i in 0..40 {
        let answer = server.keyed(LEARN, &format!("k{i}"), table(10 * i, 10 * i + 10)).await.ok();
        assert_eq!(answer["replayed"], true, "{i}");
    }
}

#[tokio::test]
async fn a_crash_between_snapshot_and_journal_leaves_the_generation_before() {
    let server = Server::new();
    server.make_with("m", 90).await;
    let said = server.post("/v2/models/m/infer", json!([[0.3, 0.6]])).await.ok();
    let folder = server.folder.path().join("m");
    // A snapshot of the next generation without its journal, and what interrupted writing leaves.
    std::fs::write(folder.join("model-2.wiski"), b"whatever").unwrap();
    std::fs::write(folder.join("new.log"), b"half").unwrap();
    std::fs::create_dir(server.folder.path().join(".new-other")).unwrap();
    std::fs::create_dir(server.folder.path().join(".deleted-old")).unwrap();
    let server = server.crashed();
    assert_eq!(server.post("/v2/models/m/infer", json!([[0.3, 0.6]])).await.ok(), said);
    assert_eq!(server.engine.list().len(), 1);
    // A record that was cut off was never acknowledged.
    let log = server.folder.path().join("m/journal-1.log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.extend_from_slice(&[7; 11]);
    std::fs::write(&log, bytes).unwrap();
    let server = server.crashed();
    assert_eq!(server.post("/v2/models/m/infer", json!([[0.3, 0.6]])).await.ok(), said);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_share_disk_syncs_and_each_is_learned_once() {
    let server = Arc::new(Server::new());
    server.make_with("m", 30).await;
    let before = server.get("/v2/models/m/stats").await.ok()["since_loaded"]["syncs"].as_u64().unwrap();
    let tasks: Vec<_> = (0..200)
        .map(|i| {
            let server = Arc::clone(&server);
            // Each twice, as an impatient client would.
            tokio::spawn(async move {
                server.keyed(LEARN, &format!("k{}", i / 2), table(30 + i / 2, 31 + i / 2)).await.ok()
            })
        })
        .collect();
    let mut replayed = 0;
    for task in tasks {
        replayed += u64::from(task.await.unwrap()["replayed"] == true);
    }
    let stats = server.get("/v2/models/m/stats").await.ok();
    assert_eq!((replayed, &stats["rows"]), (100, &json!(130)));
    let syncs = stats["since_loaded"]["syncs"].as_u64().unwrap() - before;
    assert!(syncs < 60, "{syncs} syncs for 100 changes");
}

/// A model whose search takes seconds.
fn searching(name: &str) -> serde_json::Value {
    json!({
        "name": name, "kind": "regressor", "inputs": ["a", "b"], "target": "y", "settings": { "warm_up": 60 },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_do_not_wait_for_learning_and_a_full_queue_says_so() {
    let server = Arc::new(Server::with(|config| {
        config.limits.queue = 2;
        config.upkeep = Upkeep::Wait;
    }));
    server.post("/v2/models", searching("m")).await.ok();
    server.post(LEARN, table(0, 100)).await.ok();
    let learning = {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let start = Instant::now();
            // Searches for a grid at 200, 400, … rows.
            server.post(LEARN, table(100, 8000)).await.ok();
            start.elapsed()
        })
    };
    tokio::time::sleep(Duration::from_millis(30)).await;
    let (mut slowest, mut answered, mut refused) = (Duration::ZERO, 0, 0);
    let mut waiting = Vec::new();
    while !learning.is_finished() {
        let start = Instant::now();
        server.post("/v2/models/m/infer", json!([[0.2, 0.3]])).await.ok();
        slowest = slowest.max(start.elapsed());
        answered += 1;
        if waiting.len() < 5 {
            let server = Arc::clone(&server);
            waiting.push(tokio::spawn(async move { server.post(LEARN, table(0, 1)).await.status.as_u16() }));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = learning.await.unwrap();
    for task in waiting {
        match task.await.unwrap() {
            200 => {}
            429 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert!(took > Duration::from_millis(300), "the search took only {took:?}: it shows nothing");
    assert!(refused > 0);
    assert!(answered > 20, "{answered}");
    // Both cores are at work on the search; a reader that waited for it would take as long as it.
    assert!(slowest < took / 3, "a prediction took {slowest:?} while learning took {took:?}");
}

/// The i-th row of a stream with four inputs.
fn wide_row(i: usize) -> serde_json::Value {
    let [a, b, y] = row(i);
    let c = (i as f64 * 0.569_840_290_998).fract();
    let d = (i as f64 * 0.438_579_021_1).fract();
    json!([a, b, c, d, y + c * c - d])
}

/// Learns rows one request after the other; how long the slowest took, and how many were answered while a search ran.
async fn learn_one_by_one(server: &Server, from: usize, to: usize) -> (Duration, usize) {
    let (mut slowest, mut beside) = (Duration::ZERO, 0);
    for i in from..to {
        let start = Instant::now();
        server.post(LEARN, json!([wide_row(i)])).await.ok();
        slowest = slowest.max(start.elapsed());
        let hosted = server.engine.model("m").await.unwrap();
        beside += usize::from(hosted.is_searching());
    }
    (slowest, beside)
}

/// Waits until nothing runs beside the stream; no row is sent meanwhile.
async fn settle(server: &Server) {
    let start = Instant::now();
    while server.engine.model("m").await.unwrap().is_searching() {
        assert!(start.elapsed() < Duration::from_mins(2), "what a search found is not picked up");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_learn_request_waits_for_a_search() {
    const ROWS: usize = 900;
    let mut slowest = Vec::new();
    for upkeep in [Upkeep::Wait, Upkeep::OnRequest] {
        let server = Server::with(|config| config.upkeep = upkeep);
        let model = json!({ "name": "m", "kind": "regressor", "inputs": ["a", "b", "c", "d"], "target": "y",
            "settings": { "warm_up": 100 } });
        server.post("/v2/models", model).await.ok();
        // The end of the warm-up is waited for: then there are predictions.
        server.post(LEARN, (0..200).map(wide_row).collect()).await.ok();
        server.post("/v2/models/m/infer", json!([[0.2, 0.3, 0.4, 0.5]])).await.ok();
        let (took, beside) = learn_one_by_one(&server, 200, ROWS).await;
        assert_eq!(beside > 0, upkeep == Upkeep::OnRequest);
        slowest.push(took);
        // The last search is picked up although no further row comes.
        settle(&server).await;
        let stats = server.get("/v2/models/m/stats").await.ok();
        assert_eq!((&stats["rows"], &stats["count"]), (&json!(ROWS), &json!(ROWS as f64)));
        assert!(stats["refits"].as_u64().unwrap() > 0, "{stats}");
        assert!(stats["error"].as_f64().unwrap() < 0.1, "{stats}");
    }
    println!("slowest request: {:?} in the way, {:?} beside", slowest[0], slowest[1]);
    assert!(
        slowest[0] > Duration::from_millis(100),
        "the search took only {:?}: it shows nothing",
        slowest[0]
    );
    // Both cores are at work on the search, and the disk is what it is.
    assert!(slowest[1] < slowest[0] / 2, "{slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_search_beside_the_stream_found_is_there_again_after_a_crash() {
    let mut server = Server::new();
    server.post("/v2/models", searching("m")).await.ok();
    let mut from = 0;
    let ask = json!([[0.3, 0.6], [0.9, 0.1], [0.05, 0.5]]);
    for (i, to) in [130, 330, 700, 1300].into_iter().enumerate() {
        while from < to {
            server.keyed("/v2/models/m/step", &format!("k{from}"), table(from, from + 10)).await.ok();
            from += 10;
        }
        let kept = server.keyed("/v2/models/m/step", "k120", table(120, 130)).await.ok();
        if i % 2 == 0 {
            settle(&server).await;
        }
        // Otherwise a search may be on its way; what had been taken in by now is taken in again at the same row.
        let crashed = server.crashed();
        assert_eq!(crashed.get("/v2/models/m/stats").await.ok()["rows"], to);
        assert_eq!(crashed.keyed("/v2/models/m/step", "k120", table(120, 130)).await.ok(), kept);
        if i % 2 == 0 {
            let said = server.post("/v2/models/m/infer", ask.clone()).await.ok();
            assert_eq!(crashed.post("/v2/models/m/infer", ask.clone()).await.ok(), said);
        }
        server = crashed;
    }
    settle(&server).await;
    let stats = server.get("/v2/models/m/stats").await.ok();
    assert_eq!((&stats["rows"], &stats["count"]), (&json!(1300), &json!(1300.0)));
}

#[tokio::test]
async fn the_models_used_least_recently_are_put_down() {
    let server = Server::with(|config| config.limits.memory = 1 << 20);
    for i in 0..12 {
        server.make_with(&format!("m{i}"), 60).await;
    }
    let loaded = || server.engine.list().iter().filter(|(_, hosted)| hosted.is_some()).count();
    assert!(loaded() > 4);
    server.engine.tidy().await;
    let kept: Vec<String> =
        server.engine.list().iter().filter(|(_, h)| h.is_some()).map(|(n, _)| n.to_string()).collect();
    assert!((1..8).contains(&kept.len()) && kept.contains(&"m11".to_string()), "{kept:?}");
    // All are still there, and nothing is lost.
    for i in 0..12 {
        assert_eq!(server.get(&format!("/v2/models/m{i}/stats")).await.ok()["rows"], 60);
        server.post(&format!("/v2/models/m{i}/learn"), table(60, 62)).await.ok();
        if i % 3 == 0 {
            server.engine.tidy().await;
        }
    }
}

#[tokio::test]
async fn damage_is_a_fault_of_that_model_alone() {
    let server = Server::new();
    server.make_with("m", 50).await;
    server.make_with("n", 50).await;
    let server = server.restarted().await;
    let folder = server.folder.path().join("m");
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        let mut bytes = std::fs::read(entry.path()).unwrap();
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 1;
        }
        std::fs::write(entry.path(), bytes).unwrap();
    }
    let text = server.get("/v2/models/m/stats").await.is(500);
    assert!(!text.contains(&*folder.to_string_lossy()), "{text}");
    server.get("/v2/models/n/stats").await.ok();
    server.get("/v2/models").await.ok();
    server.send("DELETE", "/v2/models/m", &[], "").await.ok();
}

#[test]
fn a_second_server_is_kept_out() {
    let server = Server::new();
    let config = wiski_serve::Config::new(server.folder.path());
    assert!(wiski_serve::Engine::open(config).is_err());
}

#[tokio::test]
async fn three_replicas_end_equal_to_the_single_stream() {
    let base = Server::new();
    base.make_with("m", 80).await;
    base.post("/v2/models/m/freeze", json!({})).await.ok();
    let shard = base.get("/v2/models/m/snapshot?shard=true").await.body;
    let octets = [("content-type", "application/octet-stream")];
    // Each replica takes every third row.
    let replicas = [base, Server::new(), Server::new()];
    for replica in &replicas[1..] {
        replica.send("PUT", "/v2/models/m", &octets, shard.clone()).await.is(201);
    }
    for i in 80..500 {
        let [a, b, y] = row(i);
        replicas[i % 3].post(LEARN, json!([[a, b, y]])).await.ok();
    }
    let mut parts = Vec::new();
    for replica in &replicas {
        parts.push(replica.get("/v2/models/m/snapshot").await.body);
    }
    for (i, replica) in replicas.iter().enumerate() {
        for (j, part) in parts.iter().enumerate().filter(|(j, _)| *j != i) {
            let key = format!("from-{j}");
            let headers = [octets[0], ("idempotency-key", key.as_str())];
            let first = replica.send("POST", "/v2/models/m/merge", &headers, part.clone()).await.ok();
            // A lost answer, and the same again.
            let again = replica.send("POST", "/v2/models/m/merge", &headers, part.clone()).await.ok();
            assert_eq!((&first["replayed"], &again["replayed"]), (&json!(false), &json!(true)));
        }
    }
    let single = Server::new();
    single.make_with("m", 80).await;
    single.post("/v2/models/m/freeze", json!({})).await.ok();
    single.post(LEARN, table(80, 500)).await.ok();
    let ask: serde_json::Value = (0..40)
        .map(|i| {
            let [a, b, _] = row(1000 + i);
            json!([a, b])
        })
        .collect();
    let wanted = single.post("/v2/models/m/infer", ask.clone()).await.ok();
    for replica in replicas {
        // Merging is as durable as learning.
        let replica = replica.crashed();
        let said = replica.post("/v2/models/m/infer", ask.clone()).await.ok();
        for (said, wanted) in
            said["predictions"].as_array().unwrap().iter().zip(wanted["predictions"].as_array().unwrap())
        {
            for name in ["mean", "std"] {
                common::close(said[name].as_f64().unwrap(), wanted[name].as_f64().unwrap(), 1e-9);
            }
        }
        assert_eq!(replica.get("/v2/models/m/stats").await.ok()["rows"], 500);
    }
    let mut other = regressor("other");
    other["settings"]["grid"] = json!([9]);
    single.post("/v2/models", other).await.ok();
    single.send("POST", "/v2/models/other/merge", &octets, parts[0].clone()).await.is(409);
}
