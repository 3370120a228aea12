//! The paper's streaming classification protocol on banana and svmguide1, next to the same model fitted in batch.
//!
//! `cargo run --release -p wiski --example classify -- [--seeds N] [--sets a,b] [--grids 4,5] [--data DIR]`
//!
//! Inputs are scaled to [−1, 1] over training and test rows. The training rows are shuffled; the first
//! twentieth is the warm-up, the rest is streamed one by one. "Batch" is the same model with all training rows
//! in the warm-up and the hyperparameters of every class fitted to convergence. Figures are on the test rows:
//! mean ± standard deviation over shuffles. `--grids` gives the points per axis for svmguide1's four axes.

use std::io::Read;
use std::time::Instant;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::{InputScaling, NoiseModel, PrequentialClasses};
use wiski::{Classes, Features, OnlineClassifier, Schedule, Settings, Wiski};

/// Rows of inputs, and their labels.
#[derive(Default)]
struct Table {
    x: Vec<Vec<f64>>,
    labels: Vec<String>,
}

struct Variant {
    name: String,
    settings: Settings,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option =
        |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1)).cloned();
    let seeds: u64 = option("--seeds").map_or(5, |v| v.parse().expect("a number of seeds"));
    let chosen = option("--sets").unwrap_or_else(|| "banana,svmguide1".into());
    let grids = option("--grids").unwrap_or_else(|| "4,5".into());
    let folder =
        option("--data").or_else(|| std::env::var("WISKI_DATA").ok()).unwrap_or_else(|| "data".into());
    println!(
        "set        grid       schedule   accuracy %      log-loss         prequential %   batch %  log-loss  µs/row      p"
    );
    for set in chosen.split(',') {
        let path = |part: &str| format!("{folder}/{set}_{part}.csv.gz");
        let (mut train, mut test) = match (load(&path("train")), load(&path("test"))) {
            (Ok(train), Ok(test)) => (train, test),
            (Err(error), _) | (_, Err(error)) => {
                println!("{set:<10} skipped: {error}; set WISKI_DATA or --data to the folder with the data");
                continue;
            }
        };
        scale(&mut train, &mut test);
        for variant in variants(train.x[0].len(), &grids) {
            compare(set, &variant, &train, &test, seeds);
        }
    }
}

fn variants(inputs: usize, grids: &str) -> Vec<Variant> {
    let base = Settings { inputs: InputScaling::None, noise: NoiseModel::Known, ..Settings::default() };
    let every = Schedule::EveryStep { rate: 5e-3 };
    if inputs <= 2 {
        let paper = Settings { schedule: every, softplus: true, ..base.clone() };
        return vec![
            Variant { name: "16^2       geometric".into(), settings: base },
            Variant { name: "16^2       every row".into(), settings: paper },
        ];
    }
    let on_grid = |points: &str| Variant {
        name: format!("{points}^{inputs}        geometric"),
        settings: Settings {
            grid: vec![points.parse().expect("a number of grid points")],
            // Far below what a grid this coarse resolves, and it keeps the rank small.
            rank_tolerance: 1e-8,
            ..base.clone()
        },
    };
    let projected = Variant {
        name: "4→2, 16^2  geometric".into(),
        settings: Settings { features: Features::Project { outputs: 2 }, ..base.clone() },
    };
    grids.split(',').map(on_grid).chain([projected]).collect()
}

/// Test figures, prequential accuracy, microseconds a row and rank of one stream.
struct Run {
    test: PrequentialClasses,
    prequential: f64,
    micros: f64,
    rank: usize,
}

fn run(variant: &Variant, train: &Table, test: &Table, warm_up: usize, seed: u64) -> Run {
    let mut order: Vec<usize> = (0..train.x.len()).collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let settings = Settings { warm_up: Some(warm_up), ..variant.settings.clone() };
    let mut classes = train.labels.clone();
    classes.sort();
    classes.dedup();
    let mut model = OnlineClassifier::new(train.x[0].len(), Classes::declared(classes), settings)
        .expect("valid settings");
    for &i in &order[..warm_up] {
        model.observe(&train.x[i], &train.labels[i]).expect("a usable row");
    }
    let clock = Instant::now();
    for &i in &order[warm_up..] {
        model.step(&train.x[i], &train.labels[i]).expect("a usable row");
    }
    let micros = 1e6 * clock.elapsed().as_secs_f64() / (order.len() - warm_up).max(1) as f64;
    let mut figures = PrequentialClasses::default();
    for (x, label) in test.x.iter().zip(&test.labels) {
        let p = model.predict(x).expect("a usable row");
        figures.record(&p.probabilities, p.best, model.classes().iter().position(|c| c == label));
    }
    let rank = (0..model.classes().len()).filter_map(|c| model.model(c)).map(Wiski::rank).max();
    Run { test: figures, prequential: model.metrics().accuracy(), micros, rank: rank.unwrap_or(0) }
}

fn compare(set: &str, variant: &Variant, train: &Table, test: &Table, seeds: u64) {
    let clock = Instant::now();
    let batch = run(variant, train, test, train.x.len(), 0);
    let batch_seconds = clock.elapsed().as_secs_f64();
    let runs: Vec<Run> = (0..seeds).map(|seed| run(variant, train, test, train.x.len() / 20, seed)).collect();
    let n = runs.len() as f64;
    let mean = |f: &dyn Fn(&Run) -> f64| runs.iter().map(f).sum::<f64>() / n;
    let std = |f: &dyn Fn(&Run) -> f64| {
        let m = mean(f);
        (runs.iter().map(|r| (f(r) - m).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt()
    };
    let accuracy = |r: &Run| 100.0 * r.test.accuracy();
    let log_loss = |r: &Run| r.test.log_loss();
    let prequential = |r: &Run| 100.0 * r.prequential;
    println!(
        "{set:<10} {}  {:.2} ± {:.2}    {:.4} ± {:.4}  {:.2} ± {:.2}    {:.2}    {:.4}   {:>7.1}  {:>5.0}   (batch fit {batch_seconds:.1} s)",
        variant.name,
        mean(&accuracy),
        std(&accuracy),
        mean(&log_loss),
        std(&log_loss),
        mean(&prequential),
        std(&prequential),
        accuracy(&batch),
        log_loss(&batch),
        mean(&|r| r.micros),
        mean(&|r| r.rank as f64),
    );
}

/// Every column from its range over both tables to [−1, 1].
fn scale(train: &mut Table, test: &mut Table) {
    for k in 0..train.x[0].len() {
        let (lo, hi) = train
            .x
            .iter()
            .chain(&test.x)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), r| (lo.min(r[k]), hi.max(r[k])));
        for row in train.x.iter_mut().chain(&mut test.x) {
            row[k] = 2.0 * (row[k] - lo) / (hi - lo) - 1.0;
        }
    }
}

/// A gzipped table with a header; the last column is the label.
fn load(path: &str) -> Result<Table, String> {
    let missing = |error: std::io::Error| format!("{path}: {error}");
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(missing)?;
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).map_err(missing)?;
    let mut table = Table::default();
    for line in text.lines().skip(1) {
        let mut cells: Vec<&str> = line.split(',').map(str::trim).collect();
        table.labels.push(cells.pop().unwrap_or_default().into());
        table.x.push(cells.iter().map(|c| c.parse().expect("a number")).collect());
    }
    Ok(table)
}
