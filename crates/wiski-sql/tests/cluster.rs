//! A real scheduler and two executors, as processes on loopback: the sums of one pass, and what happens when an executor
//! is killed.
#![cfg(feature = "ballista")]

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use wiski::persist::{self, Columns, Model, Stored};
use wiski::shard::{Shape, Shard};
use wiski::{Features, Settings};
use wiski_sql::cluster;

const ROWS: usize = 20_000;

/// How often each row of the files is taken, where a query is to last.
const REPEATS: usize = 400;

/// By arithmetic alone, so that Rust and SQL agree on every bit.
const TABLE: &str = "SELECT a, b, 3.0 + a * a - 0.5 * a * b AS y, i FROM
    (SELECT i, ((i * 7919) % 10007) / 1000.0 AS a, ((i * 104729) % 9973) / 2000.0 AS b FROM
        (SELECT CAST(value AS DOUBLE) AS i FROM generate_series(0, 19999)))";

fn rows() -> (Vec<f64>, Vec<f64>) {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for i in 0..ROWS as u64 {
        let (a, b) = (((i * 7919) % 10007) as f64 / 1000.0, ((i * 104_729) % 9973) as f64 / 2000.0);
        x.extend([a, b]);
        y.push(3.0 + a * a - 0.5 * a * b);
    }
    (x, y)
}

fn shape() -> Shape {
    let (x, y) = rows();
    let columns = Columns { inputs: vec!["a".into(), "b".into()], target: "y".into(), ..Columns::default() };
    let settings = Settings { features: Features::Identity, grid: vec![12], ..Settings::default() };
    Shape::learn(columns, &x[..1000], &y[..500], None, settings).unwrap()
}

fn one_pass(repeats: usize) -> Shard {
    let ((x, y), mut shard) = (rows(), Shard::new(&shape()));
    (0..repeats).for_each(|_| shard.observe_batch(&x, &y, None).unwrap());
    shard
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(program: &str, arguments: &[String]) -> Self {
        let mut command = Command::new(program);
        let child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Self(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Cluster {
    url: String,
    executors: Vec<Process>,
    _scheduler: Process,
}

impl Cluster {
    fn start(folder: &Path, executors: usize) -> Self {
        let scheduler_port = free_port();
        let words = |text: String| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        let scheduler = format!("--bind 127.0.0.1:{scheduler_port} --patience 4");
        let scheduler = Process::start(env!("CARGO_BIN_EXE_wiski-scheduler"), &words(scheduler));
        wait_for(scheduler_port);
        let executor = |k: usize| {
            let (port, grpc_port) = (free_port(), free_port());
            let work = folder.join(format!("executor-{k}"));
            std::fs::create_dir(&work).unwrap();
            let arguments = format!(
                "--scheduler 127.0.0.1:{scheduler_port} --port {port} --grpc-port {grpc_port} --tasks 1 \
                 --heartbeat 1 --folder {}",
                work.display()
            );
            let process = Process::start(env!("CARGO_BIN_EXE_wiski-executor"), &words(arguments));
            wait_for(port);
            process
        };
        let executors = (0..executors).map(executor).collect();
        Self { url: format!("df://127.0.0.1:{scheduler_port}"), executors, _scheduler: scheduler }
    }

    async fn session(&self, folder: &Path) -> SessionContext {
        let config = SessionConfig::new().with_target_partitions(8);
        let context = cluster::session(&self.url, config).await.unwrap();
        context
            .register_parquet(
                "t",
                folder.join("*.parquet").display().to_string(),
                ParquetReadOptions::default(),
            )
            .await
            .unwrap();
        context
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_for(port: u16) {
    let begun = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < Duration::from_mins(1), "nothing listens at port {port}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The table in sixteen files.
async fn write(folder: &Path) {
    let context = SessionContext::new();
    context.sql(&format!("CREATE TABLE t AS {TABLE}")).await.unwrap().collect().await.unwrap();
    for part in 0..16 {
        let file = folder.join(format!("part-{part}.parquet"));
        let query = format!("COPY (SELECT a, b, y FROM t WHERE i % 16 = {part}) TO '{}'", file.display());
        context.sql(&query).await.unwrap().collect().await.unwrap();
    }
}

async fn ask(context: &SessionContext, query: &str) -> Result<Vec<RecordBatch>, String> {
    let answer = async { context.sql(query).await?.collect().await };
    answer.await.map_err(|error| error.to_string())
}

fn value(answer: &[RecordBatch]) -> Vec<u8> {
    let batch = answer.iter().find(|batch| batch.num_rows() > 0).unwrap();
    batch.column(0).as_binary::<i64>().value(0).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = String::new();
    bytes.iter().for_each(|b| write!(digits, "{b:02x}").unwrap());
    format!("X'{digits}'")
}

fn said(stored: &Stored) -> Vec<f64> {
    let Model::Regressor(model) = &stored.model else { panic!("a model of numbers") };
    let process = model.model().unwrap();
    let mut all: Vec<f64> = process.kernels().iter().flat_map(wiski::Kernel::parameters).collect();
    all.push(process.noise());
    for x in rows().0.chunks_exact(2).step_by(997) {
        let p = model.predict(x).unwrap();
        all.extend([p.mean, p.variance]);
    }
    all
}

#[tokio::test]
async fn two_executors_give_the_model_of_one_pass() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).await;
    let cluster = Cluster::start(folder.path(), 2);
    let context = cluster.session(folder.path()).await;
    let (shape, expected) = (hex(shape().to_bytes()), one_pass(1));
    let sums = ask(&context, &format!("SELECT wiski_stats({shape}, y, a, b) FROM t")).await.unwrap();
    assert_eq!(Shard::from_bytes(&value(&sums)).unwrap().stats(), expected.stats());
    let model = ask(&context, &format!("SELECT wiski_fit({shape}, y, a, b) FROM t")).await.unwrap();
    let model: Stored = persist::from_bytes(&value(&model)).unwrap();
    assert_eq!(said(&model), said(&expected.fit().unwrap()));
    // Predictions where the rows lie.
    let bytes = hex(&persist::to_bytes(&model).unwrap());
    let query = format!("SELECT count(*), max(abs(wiski_predict({bytes}, a, b)['mean'] - y)) < 0.5 FROM t");
    let answer = ask(&context, &query).await.unwrap();
    let batch = answer.iter().find(|batch| batch.num_rows() > 0).unwrap();
    assert!(batch.column(1).as_boolean().value(0));
    // What is wrong is said by whoever finds it.
    let error =
        ask(&context, &format!("SELECT wiski_stats({shape}, y, a, b / 0.0) FROM t")).await.unwrap_err();
    assert!(error.contains("x[1]"), "{error}");
}

/// The command, which draws its sample through the cluster, too.
#[tokio::test]
async fn the_command_fits_on_the_cluster_what_it_fits_alone() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).await;
    let cluster = Cluster::start(folder.path(), 2);
    let files = folder.path().join("*.parquet").display().to_string();
    let fit = |name: &str, more: &[&str]| {
        let output = folder.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_wiski-sql"));
        command.args(["fit", &files, "--target", "y", "--grid", "12", "--sample", "500", "--threads", "4"]);
        let done = command.arg("--output").arg(&output).args(more).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        persist::load::<Stored>(&output).unwrap()
    };
    let (alone, together) = (fit("alone", &[]), fit("together", &["--cluster", &cluster.url]));
    assert_eq!(alone.rows, ROWS as u64);
    assert_eq!((together.rows, said(&together)), (alone.rows, said(&alone)));
    // Where nobody listens.
    let mut command = Command::new(env!("CARGO_BIN_EXE_wiski-sql"));
    let nobody = format!("127.0.0.1:{}", free_port());
    let done = command.args(["SELECT 1", "--cluster", &format!("df://{nobody}")]).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains(&nobody), "{done:?}");
}

#[tokio::test]
async fn an_executor_killed_in_the_middle_leaves_the_answer_right_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).await;
    let mut cluster = Cluster::start(folder.path(), 2);
    let context = cluster.session(folder.path()).await;
    let (shape, expected) = (hex(shape().to_bytes()), one_pass(REPEATS));
    let numbers = (0..REPEATS).map(|i| format!("({i})")).collect::<Vec<_>>().join(",");
    let query = format!("SELECT wiski_stats({shape}, y, a, b) FROM t CROSS JOIN (VALUES {numbers}) AS v(k)");
    let running = tokio::spawn(async move { ask(&context, &query).await });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!running.is_finished(), "the query was done before the executor was killed");
    cluster.executors[0].kill();
    match tokio::time::timeout(Duration::from_mins(2), running).await.expect("the query hangs").unwrap() {
        Ok(answer) => {
            println!("the answer came from the other executor");
            assert_eq!(Shard::from_bytes(&value(&answer)).unwrap().stats(), expected.stats());
        }
        Err(error) => {
            println!("{error}");
            assert!(!error.is_empty() && !error.contains("panicked"), "{error}");
        }
    }
}
