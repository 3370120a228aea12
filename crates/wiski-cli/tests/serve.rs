//! The server as a process: killed at random moments, stopped with care, refused where it would be open.
#![cfg(feature = "serve")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
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
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_mins(1))).ok()?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
    (body.len() == length).then(|| (status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

fn ok(address: &str, method: &str, path: &str, body: &str) -> Value {
    let (status, answer) = send(address, method, path, "none", body).expect("an answer");
    assert!(status < 300, "{method} {path}: {status} {answer}");
    answer
}

fn row(i: u64) -> [f64; 3] {
    let (a, b) = ((i as f64 * 0.618_033_988_75).fract(), (i as f64 * 0.754_877_666_25).fract());
    [a, b, (6.0 * a).sin() * b + 0.1 * ((i * i % 1_000_003) as f64 * 0.414_213_562).fract()]
}

const MODEL: &str = r#"{"name": "m", "kind": "regressor", "inputs": ["a", "b"], "target": "y",
    "settings": {"features": "identity", "grid": [8], "kernel": "rbf", "learn": "off", "warm_up": 20}}"#;

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
