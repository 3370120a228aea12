//! Puts a server on this machine under load and says how it did.
//!
//! ```text
//! load ADDRESS predict RATE SECONDS      predictions of one row at a rate, while another connection learns
//! load ADDRESS learn CONNECTIONS SECONDS requests of ten rows, each acknowledged when it is on the disk
//! load ADDRESS models COUNT              so many models, each learning and predicting
//! load ADDRESS mixed RATE SECONDS        predictions, learning and steps at once; memory every ten seconds
//! ```
//!
//! Latencies are counted from when a request was due, so a server that falls behind shows. Only loopback addresses are
//! accepted, and nothing takes longer than fifteen minutes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const LONGEST: u64 = 900;
const PREDICTORS: usize = 16;

/// A connection that is kept.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    host: String,
}

impl Client {
    async fn new(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new(), host: address.to_string() })
    }

    async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, Vec<u8>), Failure> {
        let (host, length) = (&self.host, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        loop {
            if let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.buffer[..end])?;
                let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
                let length =
                    head.lines().find_map(|l| l.strip_prefix("content-length: ")).ok_or("no length")?;
                let whole = end + 4 + length.parse::<usize>()?;
                while self.buffer.len() < whole {
                    self.fill().await?;
                }
                return Ok((status, self.buffer[end + 4..whole].to_vec()));
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Failure> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err("the connection was closed".into());
        }
        Ok(())
    }

    async fn ok(&mut self, method: &str, path: &str, body: &str) -> Result<Vec<u8>, Failure> {
        let (status, body) = self.send(method, path, body).await?;
        if status >= 300 {
            return Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(body)
    }
}

fn row(i: u64) -> [f64; 3] {
    let (a, b) = ((i as f64 * 0.618_033_988_75).fract(), (i as f64 * 0.754_877_666_25).fract());
    [a, b, (6.0 * a).sin() * b + 0.2 * ((i % 1_000_003) as f64 * 0.414_213_562).fract()]
}

fn rows(from: u64, count: u64) -> String {
    let list: Vec<String> = (from..from + count).map(row).map(|[a, b, y]| format!("[{a},{b},{y}]")).collect();
    format!("[{}]", list.join(","))
}

async fn make(client: &mut Client, name: &str, rows_first: u64) -> Result<(), Failure> {
    let _ = client.send("DELETE", &format!("/v2/models/{name}"), "").await?;
    let model = format!(r#"{{"name": "{name}", "kind": "regressor", "inputs": ["a", "b"], "target": "y"}}"#);
    client.ok("POST", "/v2/models", &model).await?;
    client.ok("POST", &format!("/v2/models/{name}/learn"), &rows(0, rows_first)).await?;
    Ok(())
}

/// Latencies in microseconds.
#[derive(Default)]
struct Latencies(Vec<u32>);

impl Latencies {
    fn say(&mut self, what: &str, seconds: f64) {
        self.0.sort_unstable();
        let at = |share: f64| {
            let last = self.0.len().saturating_sub(1);
            self.0.get((share * last as f64) as usize).copied().unwrap_or_default()
        };
        let (count, rate) = (self.0.len(), self.0.len() as f64 / seconds);
        println!(
            "{what}: {count} in {seconds:.1} s, {rate:.0}/s; µs p50 {} p90 {} p99 {} p99.9 {} max {}",
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
}

/// Sends predictions at a rate, spread over connections. Each has a thread of its own, which sleeps until a request is due:
/// timers of a runtime tick once a millisecond, and would send several at a time.
async fn predict(address: SocketAddr, rate: f64, until: Instant) -> Result<Latencies, Failure> {
    let start = Instant::now();
    let every = PREDICTORS as f64 / rate;
    let connection = move |k: usize| -> Result<Vec<u32>, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut client, mut taken) = (runtime.block_on(Client::new(address))?, Vec::new());
        for i in 0u64.. {
            let due = start + Duration::from_secs_f64(every * (i as f64 + k as f64 / PREDICTORS as f64));
            if due >= until {
                break;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let [a, b, _] = row(7 * i + k as u64);
            runtime.block_on(client.ok("POST", "/v2/models/load/infer", &format!("[[{a},{b}]]")))?;
            taken.push(due.elapsed().as_micros() as u32);
        }
        Ok(taken)
    };
    let tasks: Vec<_> = (0..PREDICTORS).map(|k| tokio::task::spawn_blocking(move || connection(k))).collect();
    let mut all = Latencies::default();
    for task in tasks {
        all.0.extend(task.await??);
    }
    Ok(all)
}

/// Learns ten rows at a time, as fast as they are acknowledged; `pause` lies between two requests.
async fn learn(
    address: SocketAddr,
    path: &str,
    from: u64,
    pause: Duration,
    until: Instant,
    rows_learned: Arc<AtomicU64>,
) -> Result<Latencies, Failure> {
    let mut client = Client::new(address).await?;
    let mut taken = Latencies::default();
    let mut next = from;
    while Instant::now() < until {
        let body = rows(next, 10);
        let start = Instant::now();
        let (status, answer) = client.send("POST", path, &body).await?;
        match status {
            200 => {
                taken.0.push(start.elapsed().as_micros() as u32);
                rows_learned.fetch_add(10, Ordering::Relaxed);
                next += 10;
            }
            429 => tokio::time::sleep(Duration::from_millis(5)).await,
            _ => return Err(format!("{status} {}", String::from_utf8_lossy(&answer)).into()),
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    Ok(taken)
}

async fn memory(address: SocketAddr) -> Result<f64, Failure> {
    let mut client = Client::new(address).await?;
    let text = String::from_utf8(client.ok("GET", "/metrics", "").await?)?;
    let line = text.lines().find_map(|l| l.strip_prefix("process_resident_memory_bytes "));
    Ok(line.ok_or("no figure of memory")?.parse::<f64>()? / f64::from(1 << 20))
}

#[tokio::main]
#[allow(clippy::too_many_lines)] // one arm for each kind of load
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |i: usize| arguments.get(i).map_or("", String::as_str);
    let address: SocketAddr = text(0).parse()?;
    if !address.ip().is_loopback() {
        return Err("only this machine is put under load".into());
    }
    let number = |i: usize| -> Result<u64, Failure> { Ok(text(i).parse()?) };
    let mut client = Client::new(address).await?;
    match text(1) {
        "predict" => {
            let (rate, seconds) = (number(2)? as f64, number(3)?.min(LONGEST));
            make(&mut client, "load", 4000).await?;
            let until = Instant::now() + Duration::from_secs(seconds);
            let count = Arc::new(AtomicU64::new(0));
            let learning = tokio::spawn(learn(
                address,
                "/v2/models/load/learn",
                4000,
                Duration::from_millis(5),
                until,
                Arc::clone(&count),
            ));
            let mut latencies = predict(address, rate, until).await?;
            let mut learned = learning.await??;
            latencies.say("predict", seconds as f64);
            learned.say("learn ten rows beside it", seconds as f64);
        }
        "learn" => {
            let (connections, seconds) = (number(2)?.min(256), number(3)?.min(LONGEST));
            make(&mut client, "load", 4000).await?;
            let (start, count) = (Instant::now(), Arc::new(AtomicU64::new(0)));
            let until = start + Duration::from_secs(seconds);
            let tasks: Vec<_> = (0..connections)
                .map(|c| {
                    tokio::spawn(learn(
                        address,
                        "/v2/models/load/learn",
                        10_000 * (c + 1),
                        Duration::ZERO,
                        until,
                        Arc::clone(&count),
                    ))
                })
                .collect();
            let mut all = Latencies::default();
            for task in tasks {
                all.0.extend(task.await??.0);
            }
            let took = start.elapsed().as_secs_f64();
            println!("{:.0} rows a second", count.load(Ordering::Relaxed) as f64 / took);
            all.say("learn ten rows", took);
        }
        "models" => {
            let count = number(2)?.min(1000);
            let start = Instant::now();
            for i in 0..count {
                make(&mut client, &format!("load{i}"), 200).await?;
            }
            println!(
                "{count} models with 200 rows each in {:.1} s, {:.0} MiB",
                start.elapsed().as_secs_f64(),
                memory(address).await?
            );
            let (start, mut latencies) = (Instant::now(), Latencies::default());
            for k in 0..20 * count {
                let sent = Instant::now();
                client.ok("POST", &format!("/v2/models/load{}/infer", k * 7 % count), "[[0.3,0.4]]").await?;
                latencies.0.push(sent.elapsed().as_micros() as u32);
            }
            latencies.say("predict by any of them", start.elapsed().as_secs_f64());
            println!("{:.0} MiB", memory(address).await?);
        }
        "mixed" => {
            let (rate, seconds) = (number(2)? as f64, number(3)?.min(LONGEST));
            make(&mut client, "load", 4000).await?;
            make(&mut client, "other", 400).await?;
            let until = Instant::now() + Duration::from_secs(seconds);
            let (count, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
            let pause = Duration::from_millis(5);
            let tasks = [
                tokio::spawn(learn(address, "/v2/models/load/learn", 4000, pause, until, Arc::clone(&count))),
                tokio::spawn(learn(address, "/v2/models/other/step", 400, pause, until, Arc::clone(&count))),
            ];
            let watching = {
                let done = Arc::clone(&done);
                tokio::spawn(async move {
                    let start = Instant::now();
                    while !done.load(Ordering::Relaxed) {
                        println!(
                            "{:4.0} s {:7.1} MiB",
                            start.elapsed().as_secs_f64(),
                            memory(address).await?
                        );
                        tokio::time::sleep(Duration::from_secs(10)).await;
                    }
                    Ok::<_, Failure>(())
                })
            };
            let mut latencies = predict(address, rate, until).await?;
            latencies.say("predict", seconds as f64);
            for task in tasks {
                task.await??.say("ten rows", seconds as f64);
            }
            println!("{} rows learned", count.load(Ordering::Relaxed));
            done.store(true, Ordering::Relaxed);
            watching.await??;
        }
        _ => return Err("load ADDRESS predict|learn|models|mixed …".into()),
    }
    Ok(())
}
