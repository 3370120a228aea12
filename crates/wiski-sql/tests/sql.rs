//! The functions in real queries over real files, against the library and against one pass.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::Float64Type;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::Arc;
use wiski::model::NoiseModel;
use wiski::persist::{self, Columns, Model, Stored};
use wiski::shard::{Shape, Shard};
use wiski::{Features, Horizon, Kernel, OnlineRegressor, Settings};
use wiski_sql::fit::{Fit, session};

const ROWS: usize = 20_000;

/// Twenty thousand rows by arithmetic alone, so that Rust and SQL agree on every bit.
const TABLE: &str = "CREATE TABLE t AS SELECT i, a, b, 3.0 + a * a - 0.5 * a * b + 0.1 * (i % 7) AS y FROM
    (SELECT i, ((i * 7919) % 10007) / 1000.0 AS a, ((i * 104729) % 9973) / 2000.0 AS b FROM
        (SELECT CAST(value AS DOUBLE) AS i FROM generate_series(0, 19999)))";

fn rows() -> (Vec<f64>, Vec<f64>) {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for i in 0..ROWS as u64 {
        let (a, b) = (((i * 7919) % 10007) as f64 / 1000.0, ((i * 104_729) % 9973) as f64 / 2000.0);
        x.extend([a, b]);
        y.push(3.0 + a * a - 0.5 * a * b + 0.1 * (i % 7) as f64);
    }
    (x, y)
}

fn settings() -> Settings {
    Settings { features: Features::Identity, grid: vec![12], ..Settings::default() }
}

fn columns() -> Columns {
    Columns { inputs: vec!["a".into(), "b".into()], target: "y".into(), ..Columns::default() }
}

fn shape() -> Shape {
    let (x, y) = rows();
    Shape::learn(columns(), &x[..1000], &y[..500], None, settings()).unwrap()
}

/// The library's own sums of some rows.
fn gathered(range: std::ops::Range<usize>) -> Shard {
    let (x, y) = rows();
    let mut shard = Shard::new(&shape());
    shard.observe_batch(&x[2 * range.start..2 * range.end], &y[range], None).unwrap();
    shard
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = String::new();
    bytes.iter().for_each(|b| write!(digits, "{b:02x}").unwrap());
    format!("X'{digits}'")
}

async fn context(partitions: usize) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(partitions).with_batch_size(512);
    let context = session(config.with_round_robin_repartition(true));
    ask(&context, TABLE).await;
    context
}

async fn try_ask(context: &SessionContext, query: &str) -> Result<Vec<RecordBatch>, String> {
    let answer = async { context.sql(query).await?.collect().await };
    answer.await.map_err(|error| error.to_string())
}

async fn ask(context: &SessionContext, query: &str) -> Vec<RecordBatch> {
    try_ask(context, query).await.unwrap_or_else(|error| panic!("{query}: {error}"))
}

/// All binary values of the first column.
fn binaries(answer: &[RecordBatch]) -> Vec<Option<Vec<u8>>> {
    let values = |batch: &RecordBatch| -> Vec<Option<Vec<u8>>> {
        batch.column(0).as_binary::<i64>().iter().map(|b| b.map(<[u8]>::to_vec)).collect()
    };
    answer.iter().flat_map(values).collect()
}

async fn binary(context: &SessionContext, query: &str) -> Vec<u8> {
    let mut all = binaries(&ask(context, query).await);
    assert_eq!(all.len(), 1, "{query}");
    all.remove(0).unwrap()
}

fn regressor(stored: &Stored) -> &OnlineRegressor {
    let Model::Regressor(model) = &stored.model else { panic!("a model of numbers") };
    model
}

/// Hyperparameters and predictions.
fn said(stored: &Stored) -> Vec<f64> {
    let model = regressor(stored);
    let process = model.model().unwrap();
    let mut all: Vec<f64> = process.kernels().iter().flat_map(Kernel::parameters).collect();
    all.push(process.noise());
    let (x, _) = rows();
    for x in x.chunks_exact(2).step_by(997) {
        let p = model.predict(x).unwrap();
        all.extend([p.mean, p.variance]);
    }
    all
}

#[tokio::test]
async fn any_number_of_partitions_gives_the_sums_of_one_pass() {
    let shape = hex(shape().to_bytes());
    let expected = gathered(0..ROWS);
    let fitted = said(&expected.fit().unwrap());
    for partitions in [1, 2, 7, 64] {
        let context = context(partitions).await;
        // Several groups first, so that the aggregate has two stages, a shuffle and states.
        let groups = format!("SELECT i % 10 AS g, wiski_stats({shape}, y, a, b) AS s FROM t GROUP BY i % 10");
        let queries = [
            format!("SELECT wiski_stats({shape}, y, a, b) FROM t"),
            format!("SELECT wiski_merge(s) FROM ({groups})"),
        ];
        for query in &queries {
            let sums = Shard::from_bytes(&binary(&context, query).await).unwrap();
            assert_eq!(sums.stats(), expected.stats(), "{partitions} partitions");
        }
        let models = [
            format!("SELECT wiski_fit({shape}, y, a, b) FROM t"),
            format!("SELECT wiski_fit(s) FROM ({groups})"),
        ];
        for query in &models {
            let model: Stored = persist::from_bytes(&binary(&context, query).await).unwrap();
            assert_eq!(said(&model), fitted, "{partitions} partitions");
        }
    }
}

#[tokio::test]
async fn windows_slide_without_drift() {
    let (context, shape) = (context(2).await, hex(shape().to_bytes()));
    let window = "OVER (ORDER BY i ROWS BETWEEN 299 PRECEDING AND CURRENT ROW)";
    let sums = format!("SELECT wiski_stats({shape}, y, a, b) {window} AS s, i FROM t WHERE i < 3000");
    let answer = binaries(&ask(&context, &format!("SELECT s FROM ({sums}) ORDER BY i")).await);
    assert_eq!(answer.len(), 3000);
    for row in [1, 150, 299, 300, 1234, 2999] {
        let sliding = Shard::from_bytes(answer[row].as_ref().unwrap()).unwrap();
        let fresh = gathered((row + 1).saturating_sub(300)..row + 1);
        assert_eq!(sliding.stats(), fresh.stats(), "row {row}");
        assert_eq!(said(&sliding.fit().unwrap()), said(&fresh.fit().unwrap()), "row {row}");
    }
    // A shape in a file, and a window whose rows have gaps: it is empty at times.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shape.wiski");
    std::fs::write(&path, self::shape().to_bytes()).unwrap();
    let gaps = "CASE WHEN i % 1000 < 500 THEN y END";
    let sums = format!(
        "SELECT wiski_stats('{}', {gaps}, a, b) {window} AS s, i FROM t WHERE i < 3000",
        path.display()
    );
    let answer = binaries(&ask(&context, &format!("SELECT s FROM ({sums}) ORDER BY i")).await);
    assert_eq!(answer[900], None);
    let sliding = Shard::from_bytes(answer[2100].as_ref().unwrap()).unwrap();
    assert_eq!(sliding.stats(), gathered(2000..2101).stats());
    // A window that only grows is evaluated after every row, too: what it has must stay.
    let growing =
        format!("SELECT wiski_stats({shape}, y, a, b) OVER (ORDER BY i) AS s, i FROM t WHERE i < 500");
    let answer = binaries(&ask(&context, &format!("SELECT s FROM ({growing}) ORDER BY i")).await);
    assert_eq!(Shard::from_bytes(answer[499].as_ref().unwrap()).unwrap().stats(), gathered(0..500).stats());
}

#[tokio::test]
async fn buckets_slide_by_merging() {
    let (context, shape) = (context(2).await, hex(shape().to_bytes()));
    let buckets = format!(
        "SELECT floor(i / 1000) AS k, wiski_stats({shape}, y, a, b) AS s FROM t GROUP BY floor(i / 1000)"
    );
    let window = "OVER (ORDER BY k ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)";
    for function in ["wiski_merge", "wiski_fit"] {
        let query =
            format!("SELECT w FROM (SELECT k, {function}(s) {window} AS w FROM ({buckets})) ORDER BY k");
        let answer = binaries(&ask(&context, &query).await);
        assert_eq!(answer.len(), 20);
        let (last, fresh) = (answer[19].as_ref().unwrap(), gathered(15_000..20_000));
        if function == "wiski_merge" {
            assert_eq!(Shard::from_bytes(last).unwrap().stats(), fresh.stats());
        } else {
            assert_eq!(said(&persist::from_bytes(last).unwrap()), said(&fresh.fit().unwrap()));
        }
    }
}

/// Writes the table in parts.
async fn write(context: &SessionContext, folder: &Path, format: &str) {
    for part in 0..4 {
        let file = folder.join(format!("part-{part}.{format}"));
        let rows = format!("SELECT a, b, y, 'text' AS note FROM t WHERE i % 4 = {part} ORDER BY i");
        ask(context, &format!("COPY ({rows}) TO '{}'", file.display())).await;
    }
}

#[tokio::test]
async fn files_of_every_format_give_the_same_model() {
    let expected = said(&gathered(0..ROWS).fit().unwrap());
    for format in ["parquet", "csv", "json"] {
        let folder = tempfile::tempdir().unwrap();
        let context = context(3).await;
        write(&context, folder.path(), format).await;
        for files in ["*", "part-*"] {
            let fit = Fit {
                files: folder.path().join(format!("{files}.{format}")).display().to_string(),
                target: "y".into(),
                inputs: Vec::new(),
                sample: 100,
                shape: Some(shape()),
                settings: settings(),
            };
            let model = fit.run(&context).await.unwrap();
            assert_eq!(said(&model), expected, "{format}");
            // The text is no input. The same files give the same sample, in any number of threads.
            let own = Fit { shape: None, inputs: vec!["a".into(), "b".into()], ..fit };
            let models = [own.run(&context).await.unwrap(), own.run(&self::context(1).await).await.unwrap()];
            assert_eq!(said(&models[0]), said(&models[1]), "{format}");
            assert_eq!(models[0].columns, columns());
            let unknown = Fit { target: "z".into(), ..own }.run(&context).await.unwrap_err().to_string();
            assert!(unknown.contains("there is no column z, but a, b, "), "{unknown}");
        }
    }
}

#[tokio::test]
async fn predictions_are_those_of_the_library() {
    let (context, model) = (context(2).await, gathered(0..2000).fit().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.wiski");
    persist::save(&path, &model).unwrap();
    let literal = hex(&persist::to_bytes(&model).unwrap());
    let snapshot = regressor(&model).snapshot().unwrap();
    let (x, _) = rows();
    for given in [format!("'{}'", path.display()), literal] {
        let query = format!(
            "SELECT p['mean'], p['std'], p['lower'], p['upper'] FROM
             (SELECT i, wiski_predict({given}, a, b) AS p FROM t WHERE i < 1000) ORDER BY i"
        );
        let answer = ask(&context, &query).await;
        let column = |k: usize| -> Vec<f64> {
            answer.iter().flat_map(|b| b.column(k).as_primitive::<Float64Type>().values().to_vec()).collect()
        };
        let answers: Vec<Vec<f64>> = (0..4).map(column).collect();
        assert_eq!(answers[0].len(), 1000);
        for (row, x) in x.chunks_exact(2).take(1000).enumerate() {
            let p = snapshot.predict(x).unwrap();
            let interval = snapshot.interval(&p, 0.95, Horizon::Ahead).unwrap();
            let expected = [p.mean, p.std(), interval.lower, interval.upper];
            assert_eq!([0, 1, 2, 3].map(|k| answers[k][row]), expected, "row {row}");
        }
        let gap =
            ask(&context, &format!("SELECT wiski_predict({given}, a, NULL) AS p FROM t WHERE i < 3")).await;
        assert!(gap.iter().all(|b| b.column(0).null_count() == b.num_rows()));
        let query = format!(
            "SELECT wiski_predict({given}, a, CASE WHEN i > 0 THEN b END)['mean'] FROM t WHERE i < 3"
        );
        let gap = ask(&context, &query).await;
        assert_eq!(gap.iter().map(|b| b.column(0).null_count()).sum::<usize>(), 1);
        let error = try_ask(&context, &format!("SELECT wiski_predict({given}, a) FROM t")).await.unwrap_err();
        assert!(error.contains("has the inputs a, b, but 1 were given"), "{error}");
    }
    // A model for each group, and predictions by the model of their group.
    let shape = hex(shape().to_bytes());
    let models = format!("SELECT i % 2 AS g, wiski_fit({shape}, y, a, b) AS m FROM t GROUP BY i % 2");
    let joined = format!("SELECT wiski_predict(m, a, b)['mean'] - y FROM t JOIN ({models}) ON g = i % 2");
    let answer = ask(&context, &joined).await;
    assert_eq!(answer.iter().map(RecordBatch::num_rows).sum::<usize>(), ROWS);
    let worst = answer.iter().flat_map(|b| b.column(0).as_primitive::<Float64Type>().values().to_vec());
    assert!(worst.fold(0.0, |worst: f64, e| worst.max(e.abs())) < 1.0);
}

#[tokio::test]
async fn all_of_it_in_sql() {
    let context = context(2).await;
    let shape = "(SELECT wiski_shape(y, a, b) FROM (SELECT * FROM t WHERE i < 1000))";
    let query = format!("SELECT wiski_fit({shape}, y, a, b) FROM t");
    let model: Stored = persist::from_bytes(&binary(&context, &query).await).unwrap();
    assert_eq!((model.rows, &model.columns), (ROWS as u64, &columns()));
    assert!((regressor(&model).predict(&[4.0, 2.0]).unwrap().mean - 15.3).abs() < 0.1);
}

#[tokio::test]
async fn a_sample_gives_the_same_shape_in_any_order() {
    let (one, many) = (context(1).await, context(7).await);
    let sample =
        |order| format!("SELECT wiski_shape(y, a, b) FROM (SELECT * FROM t ORDER BY {order} LIMIT 20000)");
    let first = binary(&one, &sample("i")).await;
    assert_eq!(binary(&many, &sample("b, i")).await, first);
    assert_eq!(binary(&many, "SELECT wiski_shape(y, a, b) FROM t").await, first);
    // Columns of other types keep their names.
    let cast =
        "SELECT wiski_shape(y, a, b) FROM (SELECT y, CAST(a AS INT) AS a, CAST(b AS FLOAT) AS b FROM t)";
    assert_eq!(*Shape::from_bytes(&binary(&many, cast).await).unwrap().columns(), columns());
}

#[tokio::test]
async fn noise_that_is_known_is_one_more_column() {
    let (x, y) = rows();
    let noise: Vec<f64> = (0..ROWS).map(|i| 0.01 + 0.001 * (i % 5) as f64).collect();
    let settings = Settings { noise: NoiseModel::Known, ..settings() };
    let shape = Shape::learn(columns(), &x[..1000], &y[..500], Some(&noise[..500]), settings).unwrap();
    let mut expected = Shard::new(&shape);
    expected.observe_batch(&x, &y, Some(&noise)).unwrap();
    let (context, shape) = (context(7).await, hex(shape.to_bytes()));
    let query = format!("SELECT wiski_stats({shape}, y, a, b, 0.01 + 0.001 * (i % 5)) FROM t");
    let sums = Shard::from_bytes(&binary(&context, &query).await).unwrap();
    assert_eq!(sums.stats(), expected.stats());
    let error = try_ask(&context, &query.replace(", 0.01 + 0.001 * (i % 5)", "")).await.unwrap_err();
    assert!(error.contains("the inputs a, b and the noise variance, but 2 were given"), "{error}");
}

#[tokio::test]
async fn gaps_are_left_out_and_bad_input_is_named() {
    let (context, shape) = (context(2).await, hex(shape().to_bytes()));
    let gap = "CASE WHEN i >= 700 THEN NULL ELSE";
    let query =
        format!("SELECT wiski_stats({shape}, {gap} y END, a, CASE WHEN i < 100 THEN NULL ELSE b END) FROM t");
    let sums = Shard::from_bytes(&binary(&context, &query).await).unwrap();
    assert_eq!(sums.stats(), gathered(100..700).stats());
    let none = format!("SELECT wiski_stats({shape}, y, a, b) FROM t WHERE i < 0");
    assert_eq!(binaries(&ask(&context, &none).await), [None]);
    let cases = [
        ("SELECT wiski_stats({s}, y, a, b / 0.0) FROM t".to_string(), "x[1]"),
        ("SELECT wiski_stats({s}, y, a) FROM t".into(), "has the inputs a, b, but 1 were given"),
        (
            "SELECT wiski_stats({s}, y) FROM t".into(),
            "wiski_stats(shape, y, x1, …) does not take 2 arguments",
        ),
        ("SELECT wiski_stats(NULL, y, a, b) FROM t".into(), "the shape is NULL"),
        ("SELECT wiski_stats(CASE WHEN i < 900 THEN {s} END, y, a, b) FROM t".into(), "the shape is NULL"),
        ("SELECT wiski_stats('no such file', y, a, b) FROM t".into(), "no such file"),
        ("SELECT wiski_stats(X'00', y, a, b) FROM t".into(), "not a wiski file"),
        ("SELECT wiski_stats({s}, y, 'text', b) FROM t".into(), "numbers are needed"),
        ("SELECT wiski_merge(X'0011') FROM t".into(), "not statistics of wiski"),
        (
            "SELECT wiski_fit(s) FROM (SELECT wiski_stats({s}, y, a, b) AS s FROM t WHERE i < 1)".into(),
            "two rows",
        ),
        ("SELECT wiski_predict({s}, a, b) FROM t".into(), "kind shape, not model"),
    ];
    for (query, expected) in cases {
        let error = try_ask(&context, &query.replace("{s}", &shape)).await.unwrap_err();
        assert!(error.contains(expected), "{query}: {error}");
    }
    // Shapes that differ within a group.
    let other = hex(Shape::of(&gathered(0..2000).fit().unwrap()).unwrap().to_bytes());
    let mixed =
        format!("SELECT wiski_stats(CASE WHEN i < 1000 THEN {shape} ELSE {other} END, y, a, b) FROM t");
    let error = try_ask(&context, &mixed).await.unwrap_err();
    assert!(error.contains("shape"), "{error}");
}

#[tokio::test]
async fn memory_is_accounted_for() {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(20 << 20)));
    let config = SessionConfig::new().with_target_partitions(1);
    let context = SessionContext::new_with_config_rt(config, Arc::new(runtime.build().unwrap()));
    wiski_sql::register(&context);
    ask(&context, TABLE).await;
    let shape = hex(shape().to_bytes());
    let query = |groups| format!("SELECT wiski_stats({shape}, y, a, b) FROM t GROUP BY i % {groups}");
    assert_eq!(binaries(&ask(&context, &query(10)).await).len(), 10);
    // Twenty thousand sums of 12² points are more than 20 megabytes, spilled or not.
    let error = try_ask(&context, &query(20_000)).await.unwrap_err();
    assert!(error.contains("Resources exhausted") || error.contains("memory"), "{error}");
}

#[tokio::test]
async fn the_command_fits_and_answers() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(1).await;
    write(&context, folder.path(), "parquet").await;
    let run = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_wiski-sql")).args(arguments).current_dir(&folder).output();
        let output = output.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let (ok, said) =
        run(&["fit", "*.parquet", "--target", "y", "--grid", "12", "--sample", "500", "-o", "m.wiski"]);
    assert!(ok && said.contains("20000 rows"), "{said}");
    let model: Stored = persist::load(&folder.path().join("m.wiski")).unwrap();
    assert_eq!((model.rows, &model.columns), (ROWS as u64, &columns()));
    let query = "SELECT count(*) AS n, max(abs(wiski_predict('m.wiski', a, b)['mean'] - y)) < 1 AS good FROM '*.parquet'";
    let (ok, said) = run(&[query, "--format", "csv"]);
    assert!(ok && said.contains("n,good\n20000,true"), "{said}");
    let query =
        "SELECT a, wiski_predict('m.wiski', a, NULLIF(b, 0)) AS p FROM '*.parquet' ORDER BY a, b LIMIT 2";
    let (ok, said) = run(&[query, "--format", "csv"]);
    assert!(ok && said.starts_with("a,p.mean,p.std,p.lower,p.upper\n0.0,,,,\n0.0,"), "{said}");
    let (ok, said) = run(&["SELECT wiski_stats('m.wiski', y, a, b) FROM '*.parquet'", "-o", "s.bin"]);
    assert!(ok, "{said}");
    let shard = Shard::from_bytes(&std::fs::read(folder.path().join("s.bin")).unwrap()).unwrap();
    assert_eq!(shard.count(), ROWS as f64);
    let (ok, said) = run(&["SELECT wiski_fit('s.bin')", "-o", "again.wiski", "--threads", "1"]);
    assert!(ok, "{said}");
    for wrong in [
        &["fit", "*.parquet", "--target", "z"][..],
        &["SELECT nothing"],
        &["fit", "none/*.csv", "--target", "y"],
    ] {
        let (ok, said) = run(wrong);
        assert!(!ok && said.starts_with("wiski-sql: ") && !said.contains("backtrace"), "{said}");
    }
}
