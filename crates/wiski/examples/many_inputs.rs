//! Many inputs: the paper's single projection, a sum of small grids, and an exact Gaussian process on a subset.
//!
//! `cargo run --release -p wiski --example many_inputs -- [--splits N] [--sets a,b] [--models a,b] [--order target] [--data DIR]`
//!
//! A tenth of the rows is held out; the rest is streamed once in random order; figures are on the held-out rows at
//! the end, for targets standardized over the whole set: mean ± standard deviation over splits. With `--split S`
//! all runs use that one split and only the model's own seed changes; with `--order target`, or the number of a column,
//! the stream is sorted by it. Densities and intervals are those that the model says for rows ahead; seconds are those of
//! one processor, searches included, where the system tells (Linux), and of the clock elsewhere.
//!
//! * `paper`: one projection to two features from a random start, refitted on the default schedule; the first
//!   twentieth of the rows is its warm-up;
//! * `auto`: every default; `points:M` the same with that many inducing points; `constant` with the same noise for all rows;
//! * `exact`: a Gaussian process without a grid, RBF with a length-scale for each column, on 3,000 rows; its
//!   hyperparameters maximize the evidence of 1,000 of them.
//!
//! `vic_elec` and `nyc_taxi` are half-hourly series seen through the calendar: hour and season are periodic
//! columns, weekday and holiday categorical; the other models get a sine and a cosine for each of the first three.

use std::f64::consts::TAU;
use std::io::Read;
use std::time::Instant;

use faer::linalg::solvers::DenseSolveCore;
use faer::prelude::*;
use faer::{Mat, Side};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::internals::learn::{Bounds, FnObjective};
use wiski::model::{InputScaling, NoiseModel, Prequential, ROWS_TOGETHER};
use wiski::{Column, Features, LbfgsB, OnlineRegressor, Prediction, Schedule, Settings};

const SETS: &str =
    "concrete,airfoil,wine_quality,skillcraft,sml,powerplant,pol,elevators,protein,vic_elec,nyc_taxi";

/// Rows end with the target, standardized.
struct Set {
    name: String,
    columns: Vec<Column>,
    rows: Vec<Vec<f64>>,
}

struct Run {
    figures: Prequential,
    seconds: f64,
    rank: usize,
}

impl Run {
    /// How many of the targets were in their 95 % intervals.
    fn coverage(&self) -> f64 {
        let said = self.figures.intervals();
        if said.rows() > 0.0 { said.share() } else { self.figures.coverage95() }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option =
        |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1)).cloned();
    let split: Option<u64> = option("--split").map(|v| v.parse().expect("the number of a split"));
    let splits: u64 = option("--splits").map_or(5, |v| v.parse().expect("a number of splits"));
    let order = option("--order").unwrap_or_default();
    let models = option("--models").unwrap_or_else(|| "paper,auto,exact".into());
    let folder =
        option("--data").or_else(|| std::env::var("WISKI_DATA").ok()).unwrap_or_else(|| "data".into());
    println!("set          model       RMSE            NLL              coverage  seconds     p");
    for name in option("--sets").unwrap_or_else(|| SETS.into()).split(',') {
        let set = match Set::load(&folder, name) {
            Ok(set) => set,
            Err(error) => {
                println!("{name:<11} skipped: {error} (set WISKI_DATA or --data)");
                continue;
            }
        };
        for model in models.split(',') {
            let runs: Vec<Run> =
                (0..splits).map(|seed| run(&set, model, &order, split.unwrap_or(seed), seed)).collect();
            let n = runs.len() as f64;
            let mean = |f: &dyn Fn(&Run) -> f64| runs.iter().map(f).sum::<f64>() / n;
            let std = |f: &dyn Fn(&Run) -> f64| {
                let m = mean(f);
                (runs.iter().map(|r| (f(r) - m).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt()
            };
            let (rmse, nll) = (|r: &Run| r.figures.rmse(), |r: &Run| r.figures.nll());
            println!(
                "{:<12} {model:<11} {:.4} ± {:.4}  {:>7.4} ± {:.4}  {:.3}     {:>7.2}  {:>4.0}",
                set.name,
                mean(&rmse),
                std(&rmse),
                mean(&nll),
                std(&nll),
                mean(&|r| r.coverage()),
                mean(&|r| r.seconds),
                mean(&|r| r.rank as f64),
            );
        }
    }
}

fn run(set: &Set, model: &str, sorted_by: &str, split: u64, seed: u64) -> Run {
    let mut order: Vec<usize> = (0..set.rows.len()).collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(split));
    let (test, train) = order.split_at_mut(set.rows.len() / 10);
    if !sorted_by.is_empty() {
        let last = set.columns.len();
        let k = if sorted_by == "target" { last } else { sorted_by.parse().expect("target or a column") };
        train.sort_by(|&i, &j| set.rows[i][k].total_cmp(&set.rows[j][k]));
    }
    let (test, train) = (&*test, &*train);
    let clock = seconds_used();
    let mut figures = Prequential::default();
    let (mut rank, mut seconds) = (0, 0.0);
    let d = set.columns.len();
    if model == "exact" {
        let wide: Vec<Vec<f64>> = set.rows.iter().map(|r| set.widened(r)).collect();
        let gp = Exact::fit(&wide, &train[..train.len().min(3000)]);
        seconds = seconds_used() - clock;
        for &i in test {
            let y = wide[i][wide[i].len() - 1];
            figures.record(&gp.predict(&wide[i]), y);
        }
        return Run { figures, seconds, rank };
    }
    let (auto, twentieth) = (model != "paper", train.len() / 20);
    let settings = if auto {
        let features = match model.strip_prefix("points:") {
            Some(count) => Features::Points { count: Some(count.parse().expect("a number of points")) },
            None => Features::Auto,
        };
        let noise = if model == "constant" { NoiseModel::Constant } else { NoiseModel::Learned };
        Settings { features, columns: set.columns.clone(), noise, seed, ..Settings::default() }
    } else {
        let schedule = Schedule::Geometric { ratio: 1.1 };
        Settings { schedule, seed, inputs: InputScaling::WarmUp, ..Settings::paper(0.01, twentieth) }
    };
    let row = |i: usize| if auto { set.rows[i].clone() } else { set.widened(&set.rows[i]) };
    let width = if auto { d } else { set.widened(&set.rows[0]).len() - 1 };
    let mut model = OnlineRegressor::new(width, settings).expect("valid settings");
    let rows: Vec<Vec<f64>> = train.iter().map(|&i| row(i)).collect();
    let clock = seconds_used();
    for rows in rows.chunks(ROWS_TOGETHER) {
        // As the command does with a file.
        model.prepare_rows(&rows.iter().flat_map(|row| row[..width].to_vec()).collect::<Vec<f64>>());
        for row in rows {
            model.step(&row[..width], row[width]).expect("a usable row");
        }
    }
    model.finish_search().expect("a search");
    seconds += seconds_used() - clock;
    for &i in test {
        let row = row(i);
        let (x, y) = (&row[..width], row[width]);
        let said = model.predict_ahead(x).expect("a usable row");
        figures.record_with(&said, y, model.log_density(&said, y));
        figures.record_interval(&model.predict_interval_ahead(x, 0.95).expect("an interval"), y);
    }
    rank += model.model().map_or(0, wiski::Wiski::rank);
    Run { figures, seconds, rank }
}

/// Seconds of processor time of all threads, or of the clock where the system does not tell.
fn seconds_used() -> f64 {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    // After the name in brackets, the 12th and 13th numbers, in hundredths of seconds.
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = text.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> = rest.split_whitespace().skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
    if ticks.len() == 2 { ticks.iter().sum::<f64>() / 100.0 } else { START.elapsed().as_secs_f64() }
}

impl Set {
    fn load(folder: &str, name: &str) -> std::io::Result<Self> {
        let file = std::fs::File::open(format!("{folder}/{name}.csv.gz"))?;
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text)?;
        let parse = |line: &str| -> Vec<f64> {
            line.split(',').map(|c| c.trim().parse().expect("a number")).collect()
        };
        let raw = text.lines().skip(1).map(parse);
        let (hour, season) = (Column::Periodic { period: 24.0 }, Column::Periodic { period: 365.25 });
        let levels = |levels: usize| Column::Categorical { levels, ordered: false };
        // Both series start at midnight: 2012-01-01, a Sunday, and 2014-07-01, a Tuesday, day 181 of its year.
        let calendar = |hours: f64, weekday: f64, day: f64| {
            let days = (hours / 24.0).floor();
            [hours.rem_euclid(24.0), (days + weekday).rem_euclid(7.0), (days + day).rem_euclid(365.25)]
        };
        let (columns, mut rows): (Vec<Column>, Vec<Vec<f64>>) = match name {
            "vic_elec" => {
                let columns = vec![hour, levels(7), season, Column::Numeric, levels(2)];
                (columns, raw.map(|r| [&calendar(r[0], 0.0, 0.0)[..], &r[1..]].concat()).collect())
            }
            "nyc_taxi" => {
                let columns = vec![hour, levels(7), season];
                (columns, raw.map(|r| [&calendar(r[0], 2.0, 181.0)[..], &r[1..]].concat()).collect())
            }
            _ => {
                let rows: Vec<Vec<f64>> = raw.collect();
                (vec![Column::Numeric; rows[0].len() - 1], rows)
            }
        };
        let (n, d) = (rows.len() as f64, columns.len());
        let mean = rows.iter().map(|r| r[d]).sum::<f64>() / n;
        let std = (rows.iter().map(|r| (r[d] - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        rows.iter_mut().for_each(|r| r[d] = (r[d] - mean) / std);
        Ok(Self { name: name.into(), columns, rows })
    }

    /// A row with a sine and a cosine for every place on a circle, for models that know numbers only.
    fn widened(&self, row: &[f64]) -> Vec<f64> {
        let mut wide = Vec::with_capacity(2 * row.len());
        for (&value, column) in row.iter().zip(&self.columns) {
            let period = match column {
                Column::Periodic { period } => *period,
                Column::Categorical { levels: 7, .. } => 7.0,
                _ => {
                    wide.push(value);
                    continue;
                }
            };
            wide.extend([(TAU * value / period).sin(), (TAU * value / period).cos()]);
        }
        wide.push(row[row.len() - 1]);
        wide
    }
}

/// A Gaussian process without a grid: k(x, x') = s exp(−½ Σ (x_k − x'_k)²/ℓ_k²), columns standardized.
struct Exact {
    x: Vec<Vec<f64>>,
    scaling: Vec<(f64, f64)>,
    factor: faer::linalg::solvers::Llt<f64>,
    alpha: Mat<f64>,
    scale: f64,
    noise: f64,
}

impl Exact {
    fn fit(rows: &[Vec<f64>], subset: &[usize]) -> Self {
        let d = rows[0].len() - 1;
        let n = subset.len() as f64;
        let moments = |k: usize| {
            let mean = subset.iter().map(|&i| rows[i][k]).sum::<f64>() / n;
            let variance = subset.iter().map(|&i| (rows[i][k] - mean).powi(2)).sum::<f64>() / n;
            (mean, if variance > 0.0 { variance.sqrt().recip() } else { 1.0 })
        };
        let scaling: Vec<(f64, f64)> = (0..d).map(moments).collect();
        let scaled =
            |i: usize| -> Vec<f64> { (0..d).map(|k| (rows[i][k] - scaling[k].0) * scaling[k].1).collect() };
        let x: Vec<Vec<f64>> = subset.iter().map(|&i| scaled(i)).collect();
        let y: Vec<f64> = subset.iter().map(|&i| rows[i][d]).collect();

        // The unknowns are the logarithms of ℓ_1 … ℓ_d, s and σ².
        let few = x.len().min(1000);
        let mut objective = FnObjective::new(d + 2, |raw: &[f64], gradient: &mut [f64]| {
            Ok(minus_evidence(&x[..few], &y[..few], raw, gradient))
        });
        let mut start = vec![(d as f64).sqrt().ln(); d];
        start.extend([0.0, 0.2f64.ln()]);
        let bounds = Bounds::cube(d + 2, -9.0, 9.0).expect("a box");
        let optimizer = LbfgsB { max_evaluations: 60, ..LbfgsB::default() };
        let raw = optimizer.minimize(&mut objective, &start, &bounds).expect("a minimum").x;

        let (scale, noise) = (raw[d].exp(), raw[d + 1].exp());
        let inverse: Vec<f64> = raw[..d].iter().map(|l| (-l).exp()).collect();
        let x: Vec<Vec<f64>> =
            x.iter().map(|x| x.iter().zip(&inverse).map(|(x, l)| x * l).collect()).collect();
        let factor = covariance(&x, scale, noise).llt(Side::Lower).expect("a positive definite matrix");
        let alpha = factor.solve(Mat::from_fn(y.len(), 1, |i, _| y[i]));
        let scaling = scaling.iter().zip(&inverse).map(|(&(m, s), l)| (m, s * l)).collect();
        Self { x, scaling, factor, alpha, scale, noise }
    }

    fn predict(&self, row: &[f64]) -> Prediction {
        let x: Vec<f64> = self.scaling.iter().zip(row).map(|((m, s), v)| (v - m) * s).collect();
        let k = Mat::from_fn(self.x.len(), 1, |i, _| self.scale * (-0.5 * distance(&self.x[i], &x)).exp());
        let mean = (k.transpose() * &self.alpha)[(0, 0)];
        let variance = self.scale - (k.transpose() * self.factor.solve(&k))[(0, 0)];
        Prediction { mean, variance: variance.max(0.0), noise: self.noise }
    }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

fn covariance(x: &[Vec<f64>], scale: f64, noise: f64) -> Mat<f64> {
    let mut k = Mat::from_fn(x.len(), x.len(), |i, j| scale * (-0.5 * distance(&x[i], &x[j])).exp());
    (0..x.len()).for_each(|i| k[(i, i)] += noise);
    k
}

/// −log p(y)/n and its gradient: ∂ = ½ tr((ααᵀ − C⁻¹) ∂C).
fn minus_evidence(x: &[Vec<f64>], y: &[f64], raw: &[f64], gradient: &mut [f64]) -> f64 {
    let (n, d) = (x.len(), x[0].len());
    let (scale, noise) = (raw[d].exp(), raw[d + 1].exp());
    let inverse: Vec<f64> = raw[..d].iter().map(|l| (-l).exp()).collect();
    let x: Vec<Vec<f64>> = x.iter().map(|x| x.iter().zip(&inverse).map(|(x, l)| x * l).collect()).collect();
    let c = covariance(&x, scale, noise);
    let Ok(factor) = c.llt(Side::Lower) else {
        gradient.fill(0.0);
        return f64::INFINITY;
    };
    let targets = Mat::from_fn(n, 1, |i, _| y[i]);
    let alpha = factor.solve(&targets);
    let precision = factor.inverse();
    gradient.fill(0.0);
    for i in 0..n {
        for j in 0..=i {
            let times = if i == j { 1.0 } else { 2.0 };
            let slope = times * (alpha[(i, 0)] * alpha[(j, 0)] - precision[(i, j)]);
            let k = c[(i, j)] - if i == j { noise } else { 0.0 };
            let pull = slope * k;
            for (g, (a, b)) in gradient.iter_mut().zip(x[i].iter().zip(&x[j])) {
                *g += pull * (a - b) * (a - b);
            }
            gradient[d] += pull;
            gradient[d + 1] += if i == j { slope * noise } else { 0.0 };
        }
    }
    gradient.iter_mut().for_each(|g| *g *= -0.5 / n as f64);
    let log_det: f64 = 2.0 * (0..n).map(|i| factor.L()[(i, i)].ln()).sum::<f64>();
    let fit = (targets.transpose() * &alpha)[(0, 0)];
    0.5 * (fit + log_det + n as f64 * TAU.ln()) / n as f64
}
