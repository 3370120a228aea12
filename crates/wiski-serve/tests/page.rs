//! The page in a real browser: Chromium, driven headless by ChromeDriver (Debian's packages chromium and
//! chromium-driver). `cargo nextest run -p wiski-serve --test page --run-ignored only`; with `WISKI_SCREENSHOTS=DIR` it
//! leaves pictures.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{regressor, table};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use wiski_serve::{Config, Encryption, Engine, serve};

/// Sends a request and waits for the answer.
fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    // ChromeDriver keeps connections open.
    let (mut answer, mut buffer) = (Vec::new(), [0; 8192]);
    let (head, body) = loop {
        let read = stream.read(&mut buffer).unwrap();
        answer.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_ascii_lowercase()
                .split("content-length:")
                .nth(1)
                .and_then(|l| l.lines().next()?.trim().parse().ok());
            if read == 0 || length == Some(body.len()) {
                break (head.to_owned(), body.to_owned());
            }
        }
        assert!(read > 0, "{method} {path}: {text}");
    };
    assert!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {head} {body}");
    serde_json::from_str(&body).unwrap_or(Value::Null)
}

struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn start() -> Self {
        let port = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let driver =
            Command::new("chromedriver").arg(format!("--port={port}")).stdout(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "chromedriver does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        let profile = tempfile::tempdir().unwrap();
        let data = format!("--user-data-dir={}", profile.path().display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--window-size=1200,1500",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &data,
        ];
        let options = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = send(address, "POST", "/session", &options.to_string())["value"]["sessionId"]
            .as_str()
            .unwrap()
            .to_owned();
        Self { driver, address, session, _profile: profile }
    }

    fn ask(&self, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{path}", self.session);
        send(self.address, "POST", &path, &body.to_string())["value"].take()
    }

    /// What a script returns.
    fn run(&self, script: &str) -> Value {
        self.ask("execute/sync", &json!({ "script": script, "args": [] }))
    }

    #[track_caller]
    fn wait(&self, what: &str) {
        let start = Instant::now();
        while self.run(&format!("return Boolean({what})")) != json!(true) {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "never: {what}; console: {:?}",
                self.console()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What stands in the console since the last call.
    fn console(&self) -> Vec<String> {
        let entries = self.ask("se/log", &json!({ "type": "browser" }));
        entries.as_array().unwrap().iter().map(|e| e["message"].as_str().unwrap().to_owned()).collect()
    }

    fn command(&self, command: &str, parameters: &Value) {
        self.ask("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }));
    }

    fn picture(&self, name: &str) {
        let Ok(folder) = std::env::var("WISKI_SCREENSHOTS") else { return };
        let path = format!("/session/{}/screenshot", self.session);
        let data = send(self.address, "GET", &path, "")["value"].take();
        std::fs::write(format!("{folder}/{name}.base64"), data.as_str().unwrap()).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

struct Running {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

async fn start(folder: &std::path::Path, address: SocketAddr) -> Running {
    let engine = Engine::open(Config::new(folder)).unwrap();
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let (stop, stopped) = oneshot::channel();
    let until = async move {
        let _ = stopped.await;
    };
    Running { stop, task: tokio::spawn(serve(engine, listener, Encryption::default(), until)) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs chromium and chromedriver"]
async fn the_page_is_live_and_recovers() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let port = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let running = start(folder.path(), address).await;
    let browser = tokio::task::spawn_blocking(move || {
        send(address, "POST", "/v2/models", &regressor("pump").to_string());
        send(address, "POST", "/v2/models/pump/learn", &table(0, 100).to_string());
        let browser = Browser::start();
        browser.ask("url", &json!({ "url": format!("http://{address}/") }));
        browser.wait("document.getElementById('connection').textContent === 'live'");
        browser.wait("document.querySelector('#models button').textContent.includes('100 rows')");
        // Rows that are posted while the page is open appear.
        for i in 0..8 {
            send(address, "POST", "/v2/models/pump/learn", &table(100 + 50 * i, 150 + 50 * i).to_string());
            std::thread::sleep(Duration::from_millis(600));
        }
        browser.wait("rows.length >= 300 && rows.at(-1).row === 500 && charts.stream && charts.coverage && charts.latency && charts.effect");
        browser.wait("document.getElementById('figures').textContent.includes('500')");
        browser.wait("document.getElementById('map-scale').textContent.includes('mean from')");
        // A prediction by the form.
        browser.run("const f = document.getElementById('form'); f.elements.a.value = '0.3'; f.elements.b.value = '0.4'; f.requestSubmit();");
        browser.wait("document.getElementById('answer').textContent.includes('±')");
        browser.run("const f = document.getElementById('form'); f.elements.a.value = 'x'; f.requestSubmit();");
        browser.wait("document.getElementById('answer').textContent.includes('not a number')");
        browser.picture("light");
        // The report's figures, all drawn.
        let drawn = "[...document.querySelectorAll('#report figure:not([hidden]) img')].filter((i) => i.naturalWidth > 300).length === 4";
        browser.wait(drawn);
        browser.run("document.getElementById('report-section').scrollIntoView()");
        std::thread::sleep(Duration::from_millis(300));
        browser.picture("report-light");
        browser.command("Emulation.setEmulatedMedia", &json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] }));
        std::thread::sleep(Duration::from_millis(800));
        browser.wait(drawn);
        browser.picture("dark");
        let phone = json!({ "width": 390, "height": 1600, "deviceScaleFactor": 1, "mobile": true });
        browser.command("Emulation.setDeviceMetricsOverride", &phone);
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), json!(true), "no scrolling sideways");
        browser.run("document.getElementById('report-section').scrollIntoView()");
        std::thread::sleep(Duration::from_millis(300));
        browser.picture("phone");
        // The form's mistake was answered with 422, which the console reports; nothing else is there.
        let console: Vec<String> = browser.console().into_iter().filter(|m| !m.contains("status of 422")).collect();
        assert!(console.is_empty(), "{console:?}");
        browser
    })
    .await
    .unwrap();
    // The stream breaks, and comes back with the server.
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let running = start(folder.path(), address).await;
    tokio::task::spawn_blocking(move || {
        browser.wait("document.getElementById('connection').textContent === 'live'");
        send(address, "POST", "/v2/models/pump/learn", &table(500, 520).to_string());
        browser.wait("rows.at(-1).row === 520");
        let console: Vec<String> =
            browser.console().into_iter().filter(|m| !m.contains("net::ERR_")).collect();
        assert!(console.is_empty(), "{console:?}");
    })
    .await
    .unwrap();
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
}
