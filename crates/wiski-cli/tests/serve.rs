//! The server as a process: killed at random moments, stopped with care, refused where it would be open.
#![cfg(feature = "serve")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Folder, Random};
use serde_json::{Value, json};

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Folder, options: &str) -> Self {
        let arguments = format!("serve --models models --listen 127.0.0.1:0 --log error {options}");
        let mut child =
            folder.command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.trim().rsplit("://").next().unwrap_or_default().to_owned();
        assert!(line.contains("serving"), "{line}");
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
        Self { child, address }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Sends a request; nothing if no whole answer came.
fn send(address: &str, method: &str, path: &str, key: &str, body: &str) -> Option<(u16, Value)> {
    let (status, body) = exchange(address, method, path, key, "application/json", body.as_bytes())?;
    Some((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

/// The same with bytes of any kind.
fn exchange(
    address: &str,
    method: &str,
    path: &str,
    key: &str,
    kind: &str,
    body: &[u8],
) -> Option<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_mins(1))).ok()?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nidempotency-key: {key}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]);
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
    (body.len() == length).then(|| (status, body.to_vec()))
}

/// Sends a snapshot, or fetches one.
fn octets(address: &str, method: &str, path: &str, key: &str, body: &[u8]) -> Vec<u8> {
    let (status, answer) =
        exchange(address, method, path, key, "application/octet-stream", body).expect("an answer");
    assert!(status < 300, "{method} {path}: {status} {}", String::from_utf8_lossy(&answer));
    answer
}

fn ok(address: &str, method: &str, path: &str, body: &str) -> Value {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    let key = format!("own-{}", KEYS.fetch_add(1, Ordering::Relaxed));
    let (status, answer) = send(address, method, path, &key, body).expect("an answer");
    assert!(status < 300, "{method} {path}: {status} {answer}");
    answer
}

fn row(i: u64) -> [f64; 3] {
    let (a, b) = ((i as f64 * 0.618_033_988_75).fract(), (i as f64 * 0.754_877_666_25).fract());
    [a, b, (6.0 * a).sin() * b + 0.1 * ((i * i % 1_000_003) as f64 * 0.414_213_562).fract()]
}

/// What follows the last rows would depend on their order, which three clients do not keep.
const MODEL: &str = r#"{"name": "m", "kind": "regressor", "inputs": ["a", "b"], "target": "y",
    "settings": {"features": "identity", "grid": [8], "kernel": "rbf", "learn": "off", "warm_up": 20,
        "tracking": false, "constant_noise": true}}"#;

fn rows(from: u64, to: u64) -> String {
    (from..to).map(row).collect::<Value>().to_string()
}

/// Three clients send rows, each the next of its own thousands; the server is killed again and again. A client whose
/// answer is lost sends the same again with the same key.
fn survives(kills: usize, seed: u64) {
    let folder = Folder::new();
    let mut server = Server::start(&folder, "--compact-after 400");
    ok(&server.address, "POST", "/v2/models", MODEL);
    // Scale and hyperparameters come from these; afterwards the order does not matter.
    ok(&server.address, "POST", "/v2/models/m/learn", &rows(0, 30));
    let mut random = Random::new(seed);
    // For each client: the next row to send, how many rows it sends at a time, and what was acknowledged.
    let clients: Vec<Mutex<(u64, u64, u64)>> = (0..3).map(|_| Mutex::new((0, 1, 0))).collect();
    for kill in 0..kills {
        let address = server.address.clone();
        let life = Duration::from_micros(2_000 + random.below(60_000));
        let (clients, start) = (&clients, Instant::now());
        std::thread::scope(|scope| {
            for (c, client) in clients.iter().enumerate() {
                let address = &address;
                scope.spawn(move || {
                    let mut client = client.lock().unwrap();
                    while start.elapsed() < life + Duration::from_secs(20) {
                        let (next, count, _) = *client;
                        let base = 1000 + 1_000_000 * c as u64 + next;
                        let key = format!("c{c}-{next}");
                        let answer =
                            send(address, "POST", "/v2/models/m/learn", &key, &rows(base, base + count));
                        let Some((status, answer)) = answer else { return };
                        assert_eq!((status, &answer["learned"]), (200, &json!(count)), "{answer}");
                        *client = (next + count, 1 + (next + count) % 7, next + count);
                    }
                });
            }
            std::thread::sleep(life);
            server.kill();
        });
        server = Server::start(&folder, "--compact-after 400");
        let seen = ok(&server.address, "GET", "/v2/models/m/stats", "")["rows"].as_u64().unwrap();
        let acknowledged: u64 = clients.iter().map(|c| c.lock().unwrap().2).sum();
        let on_the_way: u64 = clients.iter().map(|c| c.lock().unwrap().1).sum();
        assert!(
            seen >= 30 + acknowledged,
            "kill {kill}: {seen} rows, but {acknowledged} were acknowledged after the first 30"
        );
        assert!(
            seen <= 30 + acknowledged + on_the_way,
            "kill {kill}: {seen} rows, and only {acknowledged} acknowledged"
        );
    }
    // What was on the way is sent again; then every row is there once.
    let mut all: Vec<u64> = (0..30).collect();
    for (c, client) in clients.iter().enumerate() {
        let (next, count, _) = *client.lock().unwrap();
        let base = 1000 + 1_000_000 * c as u64;
        let key = format!("c{c}-{next}");
        let answer = send(
            &server.address,
            "POST",
            "/v2/models/m/learn",
            &key,
            &rows(base + next, base + next + count),
        )
        .unwrap();
        assert_eq!(answer.0, 200);
        all.extend(base..base + next + count);
    }
    let stats = ok(&server.address, "GET", "/v2/models/m/stats", "");
    assert_eq!(
        (stats["rows"].as_u64().unwrap(), stats["count"].as_f64().unwrap()),
        (all.len() as u64, all.len() as f64)
    );
    assert!(all.len() > 30 + kills, "only {} rows in {kills} lives", all.len());
    let settings = wiski::Settings {
        features: wiski::Features::Identity,
        grid: vec![8],
        kernel: Some(wiski::Kernel::parse("rbf", 2).unwrap()),
        schedule: wiski::Schedule::Off,
        warm_up: Some(20),
        tracking: false,
        noise: wiski::model::NoiseModel::Constant,
        ..wiski::Settings::default()
    };
    let mut model = wiski::OnlineRegressor::new(2, settings).unwrap();
    for [a, b, y] in all.into_iter().map(row) {
        model.observe(&[a, b], y).unwrap();
    }
    for x in [[0.2, 0.3], [0.8, 0.9], [0.5, 0.05]] {
        let said = ok(&server.address, "POST", "/v2/models/m/infer", &json!([x]).to_string());
        let wanted = model.predict(&x).unwrap();
        let mean = said["predictions"][0]["mean"].as_f64().unwrap();
        assert!((mean - wanted.mean).abs() < 1e-9, "{mean} {}", wanted.mean);
    }
    server.kill();
}

#[test]
fn kills_lose_nothing_acknowledged_and_no_row_is_learned_twice() {
    survives(8, 1);
}

/// `cargo nextest run -p wiski-cli --test serve --run-ignored only`
#[test]
#[ignore = "takes a minute"]
fn two_hundred_kills() {
    survives(200, 2);
}

/// A model that searches for features beside its stream: rows are sent without a pause, and the server is killed in between.
#[test]
fn kills_lose_nothing_while_a_search_runs() {
    const MODEL: &str = r#"{"name": "m", "kind": "regressor", "inputs": ["a", "b"], "target": "y",
        "settings": {"warm_up": 40}}"#;
    let (folder, mut random) = (Folder::new(), Random::new(5));
    let mut server = Server::start(&folder, "");
    ok(&server.address, "POST", "/v2/models", MODEL);
    let mut sent = 0;
    for _ in 0..8 {
        let until = Instant::now() + Duration::from_millis(50 + random.below(250));
        while Instant::now() < until {
            let (key, body) = (format!("k{sent}"), rows(sent, sent + 7));
            let (status, answer) = send(&server.address, "POST", "/v2/models/m/step", &key, &body).unwrap();
            assert_eq!((status, &answer["rows"]), (200, &json!(sent + 7)), "{answer}");
            sent += 7;
        }
        // One more, whose answer nobody waits for: it may be learned or not, and is sent again.
        let (address, key, body) = (server.address.clone(), format!("k{sent}"), rows(sent, sent + 7));
        let lost = std::thread::spawn(move || {
            send(&address, "POST", "/v2/models/m/step", &key, &body);
        });
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        server.kill();
        lost.join().unwrap();
        server = Server::start(&folder, "");
        let (key, body) = (format!("k{sent}"), rows(sent, sent + 7));
        let (status, answer) = send(&server.address, "POST", "/v2/models/m/step", &key, &body).unwrap();
        assert_eq!((status, &answer["rows"]), (200, &json!(sent + 7)), "{answer}");
        sent += 7;
        let stats = ok(&server.address, "GET", "/v2/models/m/stats", "");
        assert_eq!((&stats["rows"], &stats["count"]), (&json!(sent), &json!(sent as f64)), "{stats}");
    }
    assert!(sent > 400, "{sent} rows: no search was begun");
    // What a search found is picked up, although no row comes any more.
    let start = Instant::now();
    while ok(&server.address, "GET", "/v2/models/m/stats", "")["upkeep"] == true {
        assert!(start.elapsed() < Duration::from_mins(1));
        std::thread::sleep(Duration::from_millis(20));
    }
    let stats = ok(&server.address, "GET", "/v2/models/m/stats", "");
    assert_eq!((&stats["rows"], &stats["count"]), (&json!(sent), &json!(sent as f64)), "{stats}");
    server.kill();
}

/// Three processes take a third of a stream each. What a replica has learned since the last exchange is in its model `new`;
/// after an exchange all of it is in the model `m` of each, once.
#[test]
fn three_processes_end_equal_to_the_single_stream() {
    let folders = [Folder::new(), Folder::new(), Folder::new()];
    let mut servers: Vec<Server> = folders.iter().map(|folder| Server::start(folder, "")).collect();
    // The first rows say what the scales are; from there on features stay.
    let first = servers[0].address.clone();
    ok(&first, "POST", "/v2/models", MODEL);
    ok(&first, "POST", "/v2/models/m/learn", &rows(0, 80));
    ok(&first, "POST", "/v2/models/m/freeze", "{}");
    let whole = octets(&first, "GET", "/v2/models/m/snapshot", "-", b"");
    let shard = octets(&first, "GET", "/v2/models/m/snapshot?shard=true", "-", b"");
    for server in &servers[1..] {
        octets(&server.address, "PUT", "/v2/models/m", "-", &whole);
    }
    for (round, (from, to)) in [(80, 320), (320, 401), (401, 900)].into_iter().enumerate() {
        for server in &servers {
            octets(&server.address, "PUT", "/v2/models/new", "-", &shard);
        }
        for i in from..to {
            let server = &servers[i as usize % 3];
            ok(&server.address, "POST", "/v2/models/new/learn", &rows(i, i + 1));
        }
        let parts: Vec<Vec<u8>> = servers
            .iter()
            .map(|server| octets(&server.address, "GET", "/v2/models/new/snapshot", "-", b""))
            .collect();
        for (i, server) in servers.iter_mut().enumerate() {
            for (j, part) in parts.iter().enumerate() {
                let key = format!("round-{round}-from-{j}");
                octets(&server.address, "POST", "/v2/models/m/merge", &key, part);
                if (i + j + round) % 3 == 0 {
                    // The process dies after the merge, and the answer with it: the same again counts nothing twice.
                    server.child.kill().unwrap();
                    server.child.wait().unwrap();
                    *server = Server::start(&folders[i], "");
                    octets(&server.address, "POST", "/v2/models/m/merge", &key, part);
                }
            }
            ok(&server.address, "DELETE", "/v2/models/new", "");
        }
    }
    let single = Folder::new();
    let alone = Server::start(&single, "");
    ok(&alone.address, "POST", "/v2/models", MODEL);
    ok(&alone.address, "POST", "/v2/models/m/learn", &rows(0, 80));
    ok(&alone.address, "POST", "/v2/models/m/freeze", "{}");
    ok(&alone.address, "POST", "/v2/models/m/learn", &rows(80, 900));
    let ask: Value = (2000..2040).map(row).map(|[a, b, _]| json!([a, b])).collect();
    let infer = |server: &Server| ok(&server.address, "POST", "/v2/models/m/infer", &ask.to_string());
    let wanted = infer(&alone);
    for server in &servers {
        let said = infer(server);
        assert_eq!((&said["rows"], &wanted["rows"]), (&json!(900), &json!(900)));
        for k in 0..40 {
            for name in ["mean", "std"] {
                let value = |answer: &Value| answer["predictions"][k][name].as_f64().unwrap();
                assert!((value(&said) - value(&wanted)).abs() < 1e-9, "{name} {k}: {said} {wanted}");
            }
        }
    }
    servers.into_iter().chain([alone]).for_each(Server::kill);
}

#[cfg(unix)]
#[test]
fn a_server_that_is_asked_to_stop_writes_everything_down() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, "");
    ok(&server.address, "POST", "/v2/models", MODEL);
    ok(&server.address, "POST", "/v2/models/m/learn", &rows(0, 50));
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let status = server.child.wait().unwrap();
    assert!(status.success(), "{status}");
    // A snapshot that the other commands read.
    let info = folder.ok("info models/m/model-2.wiski");
    assert!(info.contains("50"), "{info}");
    assert!(!folder.path("models/.server.lock").exists());
}

#[test]
fn what_would_be_open_is_refused() {
    let folder = Folder::new();
    folder.write("short.txt", "learn short");
    folder.write("empty.txt", "# none\n");
    for (arguments, what) in [
        ("serve --models m --listen 0.0.0.0:0", "--tokens is needed"),
        ("serve --models m --tokens short.txt", "line 1"),
        ("serve --models m --tokens empty.txt", "has none"),
        ("serve --models m --tokens nowhere.txt", "nowhere.txt"),
        ("serve --models m --tls-cert short.txt --tls-key short.txt", "short.txt"),
        ("serve --models m --listen nonsense", "--listen"),
    ] {
        let output = folder.command(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(what), "{arguments}: {text}");
    }
}
