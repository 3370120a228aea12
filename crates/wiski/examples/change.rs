//! Streams that change and noise that is not Gaussian: what following them brings, and what it costs where nothing changes.
//!
//! `cargo run --release -p wiski --example change -- [--sets a,b] [--rows N] [--data DIR]`
//!
//! Each stream is gone through once in its own order, every row predicted before it is learned: without tracking and with
//! constant noise, with tracking, and with every default. RMSE and NLL are in deviations of the target over the whole stream;
//! *Gaussian* is the NLL if residuals are taken for Gaussian, *NLL* what the model says itself. Some are synthetic, with four
//! inputs: `still` has noise of a fifth and nothing else; in `shift` the function changes its sign and level half-way; in
//! `slow` its level and one effect wander; `students` has noise of Student's t with two degrees of freedom; in `outliers` one
//! target in a hundred is 10⁶ off; `counts` are Poisson; in `fanned` the noise grows by e³ along an input.

use std::io::Read;
use std::time::Instant;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Poisson, StandardNormal, StudentT};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::NoiseModel;
use wiski::{Column, OnlineRegressor, Settings};

const SETS: &str = "still,shift,slow,students,outliers,counts,fanned,malaria_kenya,concrete,wine_quality,skillcraft,\
                    powerplant,elevators,vic_elec,nyc_taxi,nyc_taxi_lags";

/// Half-hours of a day, and of a week.
const DAY: usize = 48;
const WEEK: usize = 336;

#[derive(Default)]
struct Stream {
    rows: Vec<Vec<f64>>,
    y: Vec<f64>,
    columns: Vec<Column>,
    /// Rows that are wrong, and in no figure.
    wrong: Vec<bool>,
}

impl Stream {
    fn push(&mut self, x: Vec<f64>, y: f64) {
        self.rows.push(x);
        self.y.push(y);
        self.wrong.push(false);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option =
        |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1)).cloned();
    let folder =
        option("--data").or_else(|| std::env::var("WISKI_DATA").ok()).unwrap_or_else(|| "data".into());
    let most = option("--rows").map_or(usize::MAX, |rows| rows.parse().expect("a number of rows"));
    println!(
        "                       |       the model alone         |           tracking            |   every default"
    );
    println!(
        "stream           rows  |  RMSE  Gaussian    NLL  µs/row |  RMSE  Gaussian    NLL  µs/row |  RMSE  Gaussian    NLL  µs/row  change"
    );
    for name in option("--sets").unwrap_or_else(|| SETS.into()).split(',') {
        let mut stream = match open(&folder, name) {
            Ok(stream) => stream,
            Err(error) => {
                println!("{name:<15} skipped: {error} (set WISKI_DATA or --data)");
                continue;
            }
        };
        stream.rows.truncate(most);
        stream.y.truncate(most);
        let kinds =
            [(false, NoiseModel::Constant), (true, NoiseModel::Constant), (true, NoiseModel::Learned)];
        print!("{name:<15} {:>6}", stream.y.len());
        for (tracking, noise) in kinds {
            let [rmse, gaussian, nll, micros, change] = figures(&stream, tracking, noise);
            print!(" | {rmse:.4}  {gaussian:>8.3} {nll:>6.3} {micros:>7.0}");
            if noise == NoiseModel::Learned {
                println!("   {change:>4.2}");
            }
        }
    }
}

/// RMSE, NLL of Gaussians, NLL, microseconds a row, and the weight of corrections at the end.
fn figures(stream: &Stream, tracking: bool, noise: NoiseModel) -> [f64; 5] {
    let settings = Settings { tracking, noise, columns: stream.columns.clone(), ..Settings::default() };
    let mut model = OnlineRegressor::new(stream.rows[0].len(), settings).expect("settings");
    let right: Vec<f64> =
        stream.y.iter().zip(&stream.wrong).filter(|(_, wrong)| !**wrong).map(|(y, _)| *y).collect();
    let mean = right.iter().sum::<f64>() / right.len() as f64;
    let std = (right.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / right.len() as f64).sqrt();
    let (mut squares, mut gaussian, mut own, mut count) = (0.0, 0.0, 0.0, 0.0);
    let start = Instant::now();
    for ((x, &y), &wrong) in stream.rows.iter().zip(&stream.y).zip(&stream.wrong) {
        let before = model.metrics().nll() * model.metrics().rows();
        let Some(p) = model.step(x, y).expect("a row") else { continue };
        if !wrong {
            squares += (y - p.mean).powi(2);
            gaussian -= p.log_density(y);
            let before = if before.is_nan() { 0.0 } else { before };
            own += model.metrics().nll() * model.metrics().rows() - before;
            count += 1.0;
        }
    }
    let micros = start.elapsed().as_secs_f64() * 1e6 / stream.y.len() as f64;
    let scaled = |nll: f64| nll / count - std.ln();
    let change = model.change().map_or(0.0, |change| change.weight);
    [(squares / count).sqrt() / std, scaled(gaussian), scaled(own), micros, change]
}

fn open(folder: &str, name: &str) -> Result<Stream, String> {
    match name {
        "still" | "shift" | "slow" | "students" | "outliers" | "counts" | "fanned" => Ok(synthetic(name)),
        "vic_elec" => {
            let (x, y) = table(folder, name)?;
            let row = |i: usize| vec![x[i][0] % 24.0, (x[i][0] / 24.0) % 7.0, x[i][1], x[i][2], y[i - DAY]];
            Ok(in_order(&y, DAY, 5, row))
        }
        "nyc_taxi" => {
            let (x, y) = table(folder, name)?;
            Ok(in_order(&y, WEEK, 2, |i| vec![x[i][0] % 24.0, (x[i][0] / 24.0) % 7.0]))
        }
        "nyc_taxi_lags" => {
            let (x, y) = table(folder, "nyc_taxi")?;
            let row = |i: usize| {
                let clock = [x[i][0] % 24.0, (x[i][0] / 24.0) % 7.0];
                [&clock[..], &[y[i - 1], y[i - DAY], y[i - WEEK]]].concat()
            };
            Ok(in_order(&y, WEEK, 5, row))
        }
        shuffled => {
            let (x, y) = table(folder, shuffled)?;
            let mut order: Vec<usize> = (0..y.len()).collect();
            order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(0));
            let mut stream = Stream::default();
            order.into_iter().for_each(|i| stream.push(x[i].clone(), y[i]));
            Ok(stream)
        }
    }
}

/// A series with the hour of the day, the day of the week and so many columns in all.
fn in_order(y: &[f64], first: usize, columns: usize, row: impl Fn(usize) -> Vec<f64>) -> Stream {
    let mut stream = Stream { columns: vec![Column::Numeric; columns], ..Stream::default() };
    stream.columns[0] = Column::Periodic { period: 24.0 };
    stream.columns[1] = Column::Periodic { period: 7.0 };
    (first..y.len()).for_each(|i| stream.push(row(i), y[i]));
    stream
}

fn synthetic(name: &str) -> Stream {
    const ROWS: usize = 12_000;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let students = StudentT::new(2.0).expect("two degrees of freedom");
    let mut stream = Stream::default();
    for i in 0..ROWS {
        let x: Vec<f64> = (0..4).map(|_| 2.0 * rng.random::<f64>() - 1.0).collect();
        let f = (3.0 * x[0]).sin() + x[1] * x[2] + 0.5 * x[3];
        let time = 3.0 * i as f64 / ROWS as f64;
        let f = match name {
            "shift" if i >= ROWS / 2 => 1.0 - f,
            "slow" => f + time * x[0] + (4.0 * time).sin(),
            _ => f,
        };
        let normal: f64 = rng.sample(StandardNormal);
        let noise = if name == "students" { rng.sample(students) } else { normal };
        let wrong = name == "outliers" && i % 100 == 99;
        let y = match name {
            _ if wrong => 1e6 * normal,
            "counts" => rng.sample(Poisson::new((1.0 + f).exp()).expect("a positive mean")),
            "fanned" => f + 0.05 * (1.5 * (x[0] + 1.0)).exp() * normal,
            _ => f + 0.2 * noise,
        };
        stream.push(x, y);
        stream.wrong[i] = wrong;
    }
    stream
}

/// Rows and targets, the last column.
type Table = (Vec<Vec<f64>>, Vec<f64>);

fn table(folder: &str, name: &str) -> Result<Table, String> {
    let file = format!("{folder}/{name}.csv.gz");
    let opened = std::fs::File::open(&file).map_err(|error| format!("{file}: {error}"))?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(opened).read_to_string(&mut text).map_err(|e| format!("{file}: {e}"))?;
    let numbers =
        |line: &str| -> Vec<f64> { line.split(',').filter_map(|cell| cell.trim().parse().ok()).collect() };
    let mut rows: Vec<Vec<f64>> = text.lines().skip(1).map(numbers).collect();
    let y = rows.iter_mut().filter_map(Vec::pop).collect();
    Ok((rows, y))
}
