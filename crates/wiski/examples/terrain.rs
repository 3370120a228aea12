//! Terrain on large grids: 138,632 elevations streamed into grids of 100×100, 300×300 and any other size, with learned
//! hyperparameters, by the engines for large grids.
//!
//! `cargo run --release -p wiski --example terrain -- [--grids 50,100,200,300] [--kernels matern12,matern32]
//! [--engines krylov] [--evaluations 30] [--one-thread] [--data DIR]`
//!
//! A tenth of the rows is held out. Inputs are scaled to [−1, 1], targets standardised. For each grid: rows a second
//! into the statistics, one evidence with its gradient, the refit, the predictor with its variances, figures on the
//! held-out rows, and the most memory used so far. With `--cube 64` the same for a synthetic function of three inputs.

use std::io::Read;
use std::time::Instant;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::grid::Grid;
use wiski::large::{Accuracy, KrylovPosterior};
use wiski::learn::{HyperSpace, Hyperparameters, LbfgsB};
use wiski::model::Prequential;
use wiski::{Kernel, Predictor, Stats};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option =
        |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1)).cloned();
    let number = |name: &str, default: usize| {
        option(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}: a whole number")))
    };
    let list = |name: &str, default: &str| -> Vec<String> {
        option(name).unwrap_or_else(|| default.into()).split(',').map(String::from).collect()
    };
    let accuracy = Accuracy {
        two_threads: !arguments.iter().any(|a| a == "--one-thread"),
        probes: number("--probes", Accuracy::default().probes),
        leading: number("--leading", Accuracy::default().leading),
        spacing: number("--spacing", Accuracy::default().spacing),
        ..Accuracy::default()
    };
    let evaluations = number("--evaluations", 30);
    let (rows, grids) = match option("--cube") {
        Some(g) => (synthetic(number("--rows", 200_000)), vec![g]),
        None => {
            let folder = option("--data")
                .or_else(|| std::env::var("WISKI_DATA").ok())
                .unwrap_or_else(|| "data".into());
            (terrain(&folder), list("--grids", "50,100,200,300"))
        }
    };
    let held_out = rows.len() / 10;
    let (test, train) = rows.split_at(held_out);
    println!(
        "{} rows, {held_out} held out\nkernel    grid  points    rank  rows/s  evidence  iterations  refit  evaluations  predictor  variance error    RMSE     NLL  coverage  memory",
        rows.len()
    );
    for kernel in list("--kernels", "matern12,matern32") {
        for g in &grids {
            let g: usize = g.parse().expect("the number of grid points on an axis");
            run(&kernel, g, train, test, &accuracy, evaluations);
        }
    }
}

fn run(name: &str, g: usize, train: &[Vec<f64>], test: &[Vec<f64>], accuracy: &Accuracy, evaluations: usize) {
    let d = train[0].len() - 1;
    let mut stats = Stats::new(Grid::covering(&vec![(-1.0, 1.0); d], &vec![g; d]).expect("a grid"));
    let start = Instant::now();
    for row in train {
        stats.observe(&row[..d], row[d], 1.0).expect("a row on the grid");
    }
    let streamed = train.len() as f64 / start.elapsed().as_secs_f64();

    let lengths = vec![0.2; d];
    let kernel = match name {
        "matern12" => Kernel::matern12(&lengths),
        "matern32" => Kernel::matern32(&lengths),
        "matern52" => Kernel::matern52(&lengths),
        _ => Kernel::rbf(&lengths),
    };
    let mut hyper = Hyperparameters { kernels: vec![kernel.expect("positive length-scales")], noise: 0.05 };
    let space = HyperSpace::new(&hyper);
    let mut last: Option<KrylovPosterior> = None;
    let (mut count, mut iterations, mut seconds) = (0, 0, 0.0);
    let start = Instant::now();
    let optimiser = LbfgsB { max_evaluations: evaluations, relative_tolerance: 1e-5, ..LbfgsB::default() };
    let refitted = space.refit_with(&stats, &hyper, &optimiser, |hyper| {
        let start = Instant::now();
        let posterior = match &last {
            Some(last) => last.warm(&stats, &hyper.kernels[0], hyper.noise)?,
            None => KrylovPosterior::new(&stats, &hyper.kernels[0], hyper.noise, accuracy)?,
        };
        let (evidence, convergence) = posterior.evidence(&stats, &hyper.kernels[0])?;
        if std::env::var("VERBOSE").is_ok() {
            println!(
                "  {:?} noise {:.5}: {:.1} ± {:.1}, {} iterations, {:.2} s",
                hyper.kernels[0].parameters(),
                hyper.noise,
                evidence.value,
                convergence.log_det_error,
                convergence.iterations,
                start.elapsed().as_secs_f64()
            );
        }
        iterations = iterations.max(convergence.iterations);
        seconds += start.elapsed().as_secs_f64();
        count += 1;
        last = Some(posterior);
        Ok(evidence)
    });
    hyper = refitted.expect("a refit").0;
    let refit = start.elapsed().as_secs_f64();

    let posterior =
        last.expect("an evaluation").warm(&stats, &hyper.kernels[0], hyper.noise).expect("a mean");
    let start = Instant::now();
    let (predictor, error) = posterior.predictor(&stats).expect("variances");
    let built = start.elapsed().as_secs_f64();
    let figures = score(&predictor, test);
    println!(
        "{name:<8} {g:>5}  {:>6}  {:>6}  {:>6.0}  {:>6.2} s  {iterations:>10}  {refit:>3.0} s  {count:>11}  {built:>7.2} s  {:>5.1} %, {:>5.1} %  {:.4}  {:>6.3}  {:.3}  {:>6.0} MB",
        stats.lattice().len(),
        posterior.rank(),
        streamed,
        seconds / f64::from(count),
        100.0 * error.typical,
        100.0 * error.worst,
        figures.rmse(),
        figures.nll(),
        figures.coverage95(),
        peak_megabytes()
    );
}

fn score(predictor: &Predictor, test: &[Vec<f64>]) -> Prequential {
    let mut figures = Prequential::default();
    for row in test {
        let (x, y) = row.split_at(row.len() - 1);
        figures.record(&predictor.predict(x).expect("a point on the grid"), y[0]);
    }
    figures
}

/// The elevations in random order, inputs in [−1, 1], targets standardised.
fn terrain(folder: &str) -> Vec<Vec<f64>> {
    let path = format!("{folder}/dem_jacksboro.csv.gz");
    let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{path}: {e} (set WISKI_DATA)"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a gzip file");
    let parse = |line: &str| line.split(',').map(|v| v.parse().expect("a number")).collect();
    let mut rows: Vec<Vec<f64>> = text.lines().skip(1).map(parse).collect();
    for k in 0..2 {
        let (lo, hi) =
            rows.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), r| (r[k].min(lo), r[k].max(hi)));
        rows.iter_mut().for_each(|r| r[k] = 2.0 * (r[k] - lo) / (hi - lo) - 1.0);
    }
    let n = rows.len() as f64;
    let mean = rows.iter().map(|r| r[2]).sum::<f64>() / n;
    let std = (rows.iter().map(|r| (r[2] - mean).powi(2)).sum::<f64>() / n).sqrt();
    rows.iter_mut().for_each(|r| r[2] = (r[2] - mean) / std);
    rows.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(0));
    rows
}

/// A bumpy function of three inputs with noise of standard deviation 0.1.
fn synthetic(n: usize) -> Vec<Vec<f64>> {
    use rand::RngExt;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let row = |_| {
        let x: [f64; 3] = std::array::from_fn(|_| rng.random_range(-1.0..1.0));
        let wave = (9.0 * x[0]).sin() * (7.0 * x[1]).cos() + (11.0 * x[2] * x[0]).sin();
        let noise: f64 = rng.sample(rand_distr::StandardNormal);
        vec![x[0], x[1], x[2], wave + 0.1 * noise]
    };
    (0..n).map(row).collect()
}

/// The most memory the process has used, where the system tells.
fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}
