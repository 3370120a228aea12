//! Classes of real tables with every default: accuracy, log-loss, expected calibration error and seconds.
//!
//! `cargo run --release -p wiski --example classes -- [--splits N] [--sets a,b] [--features additive] [--data DIR]`
//!
//! Three tenths of the rows are held out (sets that come with a test file keep it); the rest is streamed once in random
//! order; figures are on the held-out rows at the end, mean over splits; a row after all searches is timed alone and with
//! sixteen known ahead. `five` and `two` are synthetic: the class is the
//! largest of C random smooth functions of 12 inputs, or the sign of one of 20 of which six matter.

use std::io::Read;
use std::time::Instant;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::{PrequentialClasses, ROWS_TOGETHER};
use wiski::{Classes, Features, OnlineClassifier, Settings};

const SETS: &str = "iris,wine_classes,breast_cancer,banana,svmguide1,digits,five,two";

type Row = (Vec<f64>, String);

/// Rows to learn from in random order, and rows to predict.
struct Split {
    train: Vec<Row>,
    test: Vec<Row>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option =
        |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1)).cloned();
    let splits: u64 = option("--splits").map_or(5, |v| v.parse().expect("a number of splits"));
    let folder =
        option("--data").or_else(|| std::env::var("WISKI_DATA").ok()).unwrap_or_else(|| "data".into());
    let features = match option("--features").as_deref() {
        None => Features::Auto,
        Some("additive") => Features::Additive { directions: None },
        Some("identity") => Features::Identity,
        Some(points) => {
            let count = points.strip_prefix("points:").expect("additive, identity or points:M");
            Features::Points { count: Some(count.parse().expect("a number of points")) }
        }
    };
    println!("set            rows  accuracy  log-loss    ECE   seconds   µs/row  by 16s   rank  blocks");
    for name in option("--sets").unwrap_or_else(|| SETS.into()).split(',') {
        let mut sums = [0.0; 9];
        for seed in 0..splits {
            let split = match split(&folder, name, seed) {
                Ok(split) => split,
                Err(error) => {
                    println!("{name:<13} skipped: {error} (set WISKI_DATA or --data)");
                    break;
                }
            };
            sums.iter_mut().zip(figures(&split, features.clone(), seed)).for_each(|(sum, one)| *sum += one);
        }
        let [rows, accuracy, loss, ece, seconds, row, together, rank, blocks] =
            sums.map(|sum| sum / splits as f64);
        println!(
            "{name:<13} {rows:>5.0}     {accuracy:.3}     {loss:.3}  {ece:.3}  {seconds:>8.2} {row:>8.0} {together:>8.0}   {rank:>4.0}  {blocks:>6.1}"
        );
    }
}

fn figures(split: &Split, features: Features, seed: u64) -> [f64; 9] {
    let settings = Settings { features, seed, ..Settings::default() };
    let mut model =
        OnlineClassifier::new(split.train[0].0.len(), Classes::discovered(), settings).expect("settings");
    let start = Instant::now();
    for (x, label) in &split.train {
        model.step(x, label).expect("a row");
    }
    model.finish_search().expect("a search");
    if let Some(failure) = model.take_failure() {
        println!("{failure}");
    }
    let seconds = start.elapsed().as_secs_f64();
    let mut figures = PrequentialClasses::default();
    for (x, label) in &split.test {
        let said = model.predict(x).expect("a prediction");
        let class = model.classes().iter().position(|c| c == label).expect("a class that was learned");
        figures.record(&said.probabilities, said.best, Some(class));
    }
    let process = model.model(0).expect("a model");
    let (rank, blocks) = (process.rank(), process.stats().lattice().blocks());
    // Rows after the warm-up and all searches: hypothetical ones, taken back.
    let mut settled = model.clone();
    settled.freeze_features().expect("features");
    let again = &split.train[..split.train.len().min(64)];
    let mut a_row = |together: usize| {
        let start = Instant::now();
        for rows in again.chunks(together) {
            if together > 1 {
                settled.prepare_rows(&rows.iter().flat_map(|(x, _)| x.clone()).collect::<Vec<f64>>());
            }
            rows.iter().for_each(|(x, label)| drop(settled.step(x, label).expect("a row")));
        }
        1e6 * start.elapsed().as_secs_f64() / again.len() as f64
    };
    let (row, together) = (a_row(1), a_row(ROWS_TOGETHER));
    let n = (split.train.len() + split.test.len()) as f64;
    [
        n,
        figures.accuracy(),
        figures.log_loss(),
        figures.calibration_error(),
        seconds,
        row,
        together,
        rank as f64,
        blocks as f64,
    ]
}

fn split(folder: &str, name: &str, seed: u64) -> Result<Split, std::io::Error> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut train, test) = match name {
        "five" => (smooth_classes(5, 12, 12, 6000, seed), None),
        "two" => (smooth_classes(2, 20, 6, 6000, seed), None),
        "banana" | "svmguide1" => {
            let part = |which: &str| load(folder, &format!("{name}_{which}"));
            (part("train")?, Some(part("test")?))
        }
        _ => (load(folder, name)?, None),
    };
    train.shuffle(&mut rng);
    let test = match test {
        Some(test) => test,
        None => train.split_off(train.len() * 7 / 10),
    };
    Ok(Split { train, test })
}

/// A table whose last column is the class.
fn load(folder: &str, name: &str) -> Result<Vec<Row>, std::io::Error> {
    let mut text = String::new();
    let file = std::fs::File::open(format!("{folder}/{name}.csv.gz"))?;
    flate2::read::GzDecoder::new(file).read_to_string(&mut text)?;
    let row = |line: &str| {
        let (x, label) = line.rsplit_once(',').expect("columns");
        (x.split(',').map(|v| v.parse().expect("a number")).collect(), label.to_owned())
    };
    Ok(text.lines().skip(1).map(row).collect())
}

/// The class is the largest of C random functions: sums of cosines of random directions through some of the inputs.
fn smooth_classes(classes: usize, inputs: usize, relevant: usize, rows: usize, seed: u64) -> Vec<Row> {
    const COSINES: usize = 40;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1000 + seed);
    let normal = |rng: &mut Xoshiro256PlusPlus| rng.sample::<f64, _>(rand_distr::StandardNormal);
    let waves: Vec<(Vec<f64>, f64)> = (0..classes * COSINES)
        .map(|_| {
            let direction = (0..relevant).map(|_| normal(&mut rng) / (relevant as f64).sqrt()).collect();
            (direction, std::f64::consts::TAU * rng.random::<f64>())
        })
        .collect();
    let row = |_| {
        let x: Vec<f64> = (0..inputs).map(|_| normal(&mut rng)).collect();
        let value = |class: usize| -> f64 {
            let own = &waves[class * COSINES..(class + 1) * COSINES];
            own.iter()
                .map(|(w, phase)| (w.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>() + phase).cos())
                .sum()
        };
        let values: Vec<f64> = (0..classes).map(value).collect();
        let best = (0..classes).max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap_or(0);
        (x, format!("c{best}"))
    };
    (0..rows).map(row).collect()
}
