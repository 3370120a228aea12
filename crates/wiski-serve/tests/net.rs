//! Connections: encrypted, slow, many, and ended with care.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{regressor, table};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use wiski_serve::{Config, Encryption, Engine, serve};

fn request(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

async fn exchange(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // An encrypted connection may end without saying so.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn encrypted_with_the_files_that_are_given() {
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    assert!(Encryption::tls(&key, &cert).is_err());
    let encryption = Encryption::tls(&cert, &key).unwrap();
    let engine = Engine::open(Config::new(folder.path().join("models"))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(engine, listener, encryption, async move {
        let _ = stopped.await;
    }));
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let connector = TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()));
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    let answer = exchange(stream, &request("GET", "/v2", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // Whoever does not encrypt gets nothing.
    let answer = exchange(TcpStream::connect(address).await.unwrap(), &request("GET", "/v2", "")).await;
    assert!(!answer.contains("HTTP"), "{answer}");
    stop.send(()).unwrap();
    server.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_finishes_what_was_begun() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(Config::new(folder.path())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(engine, listener, Encryption::default(), async move {
        let _ = stopped.await;
    }));
    let connect = || async { TcpStream::connect(address).await.unwrap() };
    let body = regressor("m").to_string();
    assert!(
        exchange(connect().await, &request("POST", "/v2/models", &body)).await.starts_with("HTTP/1.1 201")
    );
    // Somebody watches, somebody has connected and says nothing, somebody learns.
    let mut watcher = connect().await;
    watcher.write_all(b"GET /v2/models/m/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut silent = connect().await;
    let rows = table(0, 3000).to_string();
    let stream = connect().await;
    let learning =
        tokio::spawn(async move { exchange(stream, &request("POST", "/v2/models/m/learn", &rows)).await });
    tokio::time::sleep(Duration::from_millis(150)).await;
    stop.send(()).unwrap();
    let answer = learning.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"learned\":3000"), "{answer}");
    tokio::time::timeout(Duration::from_secs(8), server).await.expect("it stops in time").unwrap();
    let mut rest = Vec::new();
    watcher.read_to_end(&mut rest).await.unwrap();
    let text = String::from_utf8_lossy(&rest).into_owned();
    assert!(text.contains("event: hello") && text.contains("event: row"), "{text}");
    assert_eq!(silent.read_to_end(&mut rest).await.unwrap(), 0);
    let again = Engine::open(Config::new(folder.path())).unwrap();
    assert_eq!(again.model("m").await.unwrap().view().figures.seen, 3000);
    again.close().await;
}

#[tokio::test]
async fn events_tell_what_happens() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(Config::new(folder.path())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(engine, listener, Encryption::default(), async move {
        let _ = stopped.await;
    }));
    let post = |path: &'static str, body: String| async move {
        exchange(TcpStream::connect(address).await.unwrap(), &request("POST", path, &body)).await
    };
    post("/v2/models", regressor("m").to_string()).await;
    let mut watcher = TcpStream::connect(address).await.unwrap();
    watcher.write_all(b"GET /v2/models/m/events?rate=30 HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains("event: hello") {
        let read = watcher.read(&mut buffer).await.unwrap();
        seen += &String::from_utf8_lossy(&buffer[..read]);
    }
    post("/v2/models/m/learn", table(0, 25).to_string()).await;
    post("/v2/models/m/learn", "[[0.5,0.5,99]]".into()).await;
    while !seen.contains("alarm") {
        let read = watcher.read(&mut buffer).await.unwrap();
        seen += &String::from_utf8_lossy(&buffer[..read]);
    }
    assert!(seen.contains("event: refit"), "the end of the warm-up: {seen}");
    let rows: Vec<Value> = seen
        .lines()
        .filter_map(|l| l.strip_prefix("data: "))
        .filter_map(|d| serde_json::from_str(d).ok())
        .collect();
    let last = rows.iter().rfind(|row| row["row"] == 26).unwrap();
    assert_eq!(
        (&last["y"], &last["inside"], &last["alarm"]),
        (&Value::from(99.0), &Value::from(false), &Value::from(true))
    );
    assert!(last["lower"].as_f64().unwrap() < last["mean"].as_f64().unwrap());
    stop.send(()).unwrap();
    server.await.unwrap();
}
