//! The paper's streaming regression protocol on the UCI sets, for both schedules and both starts.
//!
//! `cargo run --release -p wiski --example protocol -- [--splits N] [--sets a,b] [--variants a,b] [--data DIR]`
//!
//! With `--split S` all runs use that one split and only the model's own seed changes.
//!
//! Inputs are scaled to [−1, 1] and targets standardized over the whole set; a tenth of the rows is held out,
//! the first twentieth of the rest is the warm-up, the remainder is streamed once. Figures are on the held-out
//! rows at the end of the stream, in standardized units: mean ± standard deviation over splits.

use std::io::Read;
use std::time::Instant;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::internals::learn::{Start, WarmUpTraining};
use wiski::model::{InputScaling, Prequential, TargetScaling};
use wiski::{Features, OnlineRegressor, Schedule, Settings};

struct Set {
    name: &'static str,
    /// The reference's learning rate η.
    rate: f64,
}

const SETS: [Set; 4] = [
    Set { name: "skillcraft", rate: 5e-2 },
    Set { name: "powerplant", rate: 5e-2 },
    Set { name: "elevators", rate: 1e-2 },
    Set { name: "protein", rate: 1e-2 },
];

const VARIANTS: [&str; 4] = ["every-random", "geometric-random", "every-best", "geometric-best"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option =
        |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1)).cloned();
    let split: Option<u64> = option("--split").map(|v| v.parse().expect("the number of a split"));
    let splits: u64 = option("--splits").map_or(5, |v| v.parse().expect("a number of splits"));
    let chosen = option("--sets").unwrap_or_else(|| "skillcraft,powerplant,elevators,protein".into());
    let variants = option("--variants").unwrap_or_else(|| VARIANTS.join(","));
    let folder =
        option("--data").or_else(|| std::env::var("WISKI_DATA").ok()).unwrap_or_else(|| "data".into());
    println!(
        "set         variant            RMSE            NLL             coverage  warm-up s  stream s  µs/row  p"
    );
    for set in SETS.iter().filter(|s| chosen.split(',').any(|c| c == s.name)) {
        let rows = match load(&format!("{folder}/{}.csv.gz", set.name)) {
            Ok(rows) => rows,
            Err(error) => {
                println!("{:<11} skipped: {error} (set WISKI_DATA or --data)", set.name);
                continue;
            }
        };
        for variant in variants.split(',') {
            let runs: Vec<Run> =
                (0..splits).map(|seed| run(&rows, set, variant, split.unwrap_or(seed), seed)).collect();
            print_row(set.name, variant, &runs);
        }
    }
}

struct Run {
    rmse: f64,
    nll: f64,
    coverage: f64,
    warm_up: f64,
    stream: f64,
    rows: usize,
    rank: usize,
}

fn print_row(set: &str, variant: &str, runs: &[Run]) {
    let n = runs.len() as f64;
    let mean = |f: &dyn Fn(&Run) -> f64| runs.iter().map(f).sum::<f64>() / n;
    let std = |f: &dyn Fn(&Run) -> f64| {
        let m = mean(f);
        (runs.iter().map(|r| (f(r) - m).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt()
    };
    println!(
        "{set:<11} {variant:<17} {:.4} ± {:.4}  {:>7.4} ± {:.4}  {:.3}     {:>7.2}   {:>7.2}  {:>6.1}  {:.0}",
        mean(&|r| r.rmse),
        std(&|r| r.rmse),
        mean(&|r| r.nll),
        std(&|r| r.nll),
        mean(&|r| r.coverage),
        mean(&|r| r.warm_up),
        mean(&|r| r.stream),
        mean(&|r| 1e6 * r.stream / r.rows as f64),
        mean(&|r| r.rank as f64),
    );
}

fn settings(set: &Set, variant: &str, warm_up: usize, seed: u64) -> Settings {
    let base = Settings { seed, ..Settings::paper(set.rate, warm_up) };
    let geometric = Schedule::Geometric { ratio: 1.1 };
    let ours = Settings {
        features: Features::Project { outputs: 2 },
        start: Start::Best,
        inputs: InputScaling::None,
        targets: TargetScaling::None,
        warm_up: Some(warm_up),
        seed,
        training: WarmUpTraining { epochs: 100, rate: 0.05, feature_rate: 0.01, end_rate: 1e-4 },
        ..Settings::default()
    };
    match variant {
        "every-random" => base,
        "geometric-random" => Settings { schedule: geometric, ..base },
        "every-best" => Settings { schedule: base.schedule, softplus: true, ..ours },
        _ => ours,
    }
}

fn run(rows: &[Vec<f64>], set: &Set, variant: &str, split: u64, seed: u64) -> Run {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(split));
    let (test, train) = order.split_at(rows.len() / 10);
    let warm_up = train.len() / 20;
    let d = rows[0].len() - 1;
    let mut model = OnlineRegressor::new(d, settings(set, variant, warm_up, seed)).expect("valid settings");
    let clock = Instant::now();
    for &i in &train[..warm_up] {
        model.observe(&rows[i][..d], rows[i][d]).expect("a usable row");
    }
    let after_warm_up = clock.elapsed().as_secs_f64();
    for &i in &train[warm_up..] {
        model.step(&rows[i][..d], rows[i][d]).expect("a usable row");
    }
    let total = clock.elapsed().as_secs_f64();
    let mut figures = Prequential::default();
    for &i in test {
        figures.record(&model.predict(&rows[i][..d]).expect("a usable row"), rows[i][d]);
    }
    Run {
        rmse: figures.rmse(),
        nll: figures.nll(),
        coverage: figures.coverage95(),
        warm_up: after_warm_up,
        stream: total - after_warm_up,
        rows: train.len() - warm_up,
        rank: model.model().map_or(0, wiski::Wiski::rank),
    }
}

/// Inputs scaled to [−1, 1], targets standardized (unbiased deviation), both over all rows.
fn load(path: &str) -> std::io::Result<Vec<Vec<f64>>> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path)?).read_to_string(&mut text)?;
    let parse =
        |line: &str| -> Vec<f64> { line.split(',').map(|c| c.trim().parse().expect("a number")).collect() };
    let mut rows: Vec<Vec<f64>> = text.lines().skip(1).map(parse).collect();
    let (n, d) = (rows.len() as f64, rows[0].len() - 1);
    for k in 0..d {
        let (lo, hi) =
            rows.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), r| (lo.min(r[k]), hi.max(r[k])));
        rows.iter_mut().for_each(|r| r[k] = 2.0 * (r[k] - lo) / (hi - lo) - 1.0);
    }
    let mean = rows.iter().map(|r| r[d]).sum::<f64>() / n;
    let std = (rows.iter().map(|r| (r[d] - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    rows.iter_mut().for_each(|r| r[d] = (r[d] - mean) / std);
    Ok(rows)
}
