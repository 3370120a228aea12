//! Inducing points on real tables: learned on at most 8,192 rows, conditioned on all, judged on a tenth held out.
//!
//! `cargo run --release -p wiski --example points_fit -- [--sets a,b] [--splits N] [--points M] [--rows N] [--axes]
//! [--threads T] [--double] [--family F] [--steps S] [--data DIR | --csv FILE] [--validate]`
//!
//! Tables are CSV (`--csv FILE`, or `NAME.csv.gz` in a folder) with a header and the target in the last column, which is
//! standardized over the whole table. `--axes` puts features of a function of each column beside the points (a Matérn 5/2
//! process on a regular grid, at a fixed length-scale). `--validate` judges on a tenth of the *training* rows instead, for
//! choosing defaults. Figures are means over splits; seconds (of the processor, where the
//! system tells) and GFLOP/s are those of the search alone.

use std::io::Read;

use faer::{Mat, Side};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::Family;
use wiski::internals::learn::points::{
    GridFeatures, LearnedPoints, PointsNoise, PointsOutput, PointsRows, PointsSearch, PointsStart, Precision,
};

const SETS: &str = "powerplant,protein,airfoil,wine_quality,concrete,pol,sml,skillcraft,elevators";

struct Options(Vec<String>);

impl Options {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().position(|a| a == name).and_then(|i| self.0.get(i + 1)).map(String::as_str)
    }

    fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.text(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name} needs a number")))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|a| a == name)
    }
}

#[derive(Clone, Default)]
struct Table {
    dim: usize,
    x: Vec<f64>,
    y: Vec<f64>,
    /// Features of single columns, and their number for each.
    grids: Vec<f64>,
    groups: Vec<usize>,
}

fn main() {
    let options = Options(std::env::args().skip(1).collect());
    let folder = options.text("--data").map(str::to_owned).or_else(|| std::env::var("WISKI_DATA").ok());
    let folder = folder.unwrap_or_else(|| "data".into());
    println!("set           rows   M    p  RMSE    NLL      coverage  seconds  GFLOP/s  start      steps");
    let sets = options.text("--csv").or(options.text("--sets")).unwrap_or(SETS);
    for name in sets.split(',') {
        let path = if options.has("--csv") { name.to_owned() } else { format!("{folder}/{name}.csv.gz") };
        match Table::read(&path) {
            Ok(table) => run(name, &table, &options),
            Err(error) => println!("{name:<12} skipped: {error}"),
        }
    }
}

fn run(name: &str, table: &Table, options: &Options) {
    let splits: u64 = options.number("--splits", 1);
    let first: u64 = options.number("--split", 0);
    let mut table = table.clone();
    if options.has("--axes") {
        table.add_axes(options.number("--axis-lengthscale", 1.0));
    }
    let mut sums = [0.0; 5];
    let mut last = None;
    for split in first..first + splits {
        let mut order: Vec<usize> = (0..table.y.len()).collect();
        order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(split));
        let (mut test, mut train) = order.split_at(order.len() / 10);
        if options.has("--validate") {
            (test, train) = train.split_at(train.len() / 10);
        }
        let memory = table.select(&train[..train.len().min(options.number("--rows", 8192))]);
        let search = search(options, split);
        let clock = cpu_seconds();
        let mut learned = if options.has("--resume") {
            let part: Vec<usize> = (0..memory.y.len()).filter(|i| i % 4 != 0).collect();
            memory.select(&part).with(|rows| search.run(rows, &mut |_| true))
        } else {
            memory.with(|rows| search.run(rows, &mut |_| true))
        }
        .expect("a search");
        if options.has("--resume") {
            let mut on = search.clone();
            on.training.steps = options.number("--resume", 40);
            on.training.rate = options.number("--resume-rate", 0.05);
            learned = memory.with(|rows| on.continued(rows, &learned, &mut |_| true)).expect("a search");
        }
        let seconds = cpu_seconds() - clock;
        let posterior =
            table.select(train).with(|rows| learned.posterior(rows, search.threads)).expect("a fit");
        let test = table.select(test);
        let predictions = test.with(|rows| posterior.predict(rows)).expect("predictions");
        let density: f64 = test.with(|rows| posterior.log_densities(rows)).expect("densities").iter().sum();
        let n = test.y.len() as f64;
        let pairs = || predictions[0].iter().zip(&test.y);
        let squares: f64 = pairs().map(|(p, y)| (p.mean - y).powi(2)).sum();
        let inside = pairs().filter(|(p, y)| (p.mean - **y).abs() <= 1.96 * p.std()).count() as f64;
        let run = [(squares / n).sqrt(), -density / n, inside / n, seconds, learned.flops / seconds / 1e9];
        sums.iter_mut().zip(run).for_each(|(s, v)| *s += v);
        if options.has("--verbose") {
            verbose(&learned);
        }
        last = Some(learned);
    }
    let [rmse, nll, coverage, seconds, speed] = sums.map(|s| s / splits as f64);
    let Some(learned) = last else { return };
    let p: usize = learned.len() + table.groups.iter().sum::<usize>();
    let best = learned.starts.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|s| s.0);
    let best = best.map_or_else(String::new, |s| format!("{s:?}"));
    println!(
        "{name:<12} {:>5} {:>4} {p:>4}  {rmse:.4}  {nll:>7.4}  {coverage:.3}     {seconds:>7.2}  {speed:>6.1}   {best:<10} {}",
        table.y.len(),
        learned.len(),
        learned.history.len(),
    );
}

/// Seconds of the processor that this program has used: ticks of 10 ms in fields 14 and 15 of Linux's `stat`, or else the
/// time of day.
fn cpu_seconds() -> f64 {
    let ticks = std::fs::read_to_string("/proc/self/stat").ok().and_then(|text| {
        let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
        Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
    });
    let now = || {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64())
    };
    ticks.map_or_else(now, |t| t / 100.0)
}

fn search(options: &Options, seed: u64) -> PointsSearch {
    let mut search = PointsSearch { seed, ..PointsSearch::default() };
    search.points = options.number("--points", search.points);
    search.threads = options.number("--threads", search.threads);
    search.training.steps = options.number("--steps", search.training.steps);
    search.training.rate = options.number("--rate", search.training.rate);
    search.training.end_rate = options.number("--end-rate", search.training.end_rate);
    search.start_training.steps = options.number("--start-steps", search.start_training.steps);
    search.start_training.rate = options.number("--start-rate", search.start_training.rate);
    search.least_gain = options.number("--least-gain", search.least_gain);
    search.priors.lengthscale_median = options.number("--median", search.priors.lengthscale_median);
    search.priors.lengthscale_sigma = options.number("--sigma", search.priors.lengthscale_sigma);
    search.jitter = options.number("--jitter", search.jitter);
    if options.has("--double") {
        search.precision = Precision::Double;
    }
    if let Some(starts) = options.text("--starts") {
        let start = |name: &str| match name {
            "even" => PointsStart::Even,
            "relevance" => PointsStart::Relevance,
            "long" => PointsStart::Long,
            other => panic!("no start {other}"),
        };
        search.starts = starts.split(',').map(start).collect();
    }
    if options.has("--family") {
        search.smoother = None;
    }
    search.family = match options.text("--family") {
        None | Some("matern32") => Family::Matern32,
        Some("matern12") => Family::Matern12,
        Some("matern52") => Family::Matern52,
        Some("rbf") => Family::Rbf,
        Some(other) => panic!("no family {other}"),
    };
    search
}

fn verbose(learned: &LearnedPoints) {
    let bounds: Vec<f64> =
        learned.history.iter().step_by(10).map(|r| (r.bound * 1e4).round() / 1e4).collect();
    println!("  {:?}, starts {:?}\n  bounds {bounds:?}", learned.family, learned.starts);
    println!(
        "  lengthscales {:.3?}\n  s {:.3?} noise {:.5?}",
        learned.lengthscales, learned.scales, learned.noises
    );
    println!("  groups {:.3?}", learned.group_scales);
}

impl Table {
    fn read(path: &str) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
        let mut text = String::new();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            flate2::read::GzDecoder::new(bytes.as_slice())
                .read_to_string(&mut text)
                .map_err(|e| e.to_string())?;
        } else {
            text = String::from_utf8(bytes).map_err(|e| e.to_string())?;
        }
        let mut table = Self::default();
        for line in text.lines().skip(1).filter(|l| !l.is_empty()) {
            let mut row = line
                .split(',')
                .map(|cell| cell.trim().parse().map_err(|_| format!("not a number: {cell}")))
                .collect::<Result<Vec<f64>, _>>()?;
            table.y.push(row.pop().ok_or("an empty row")?);
            table.dim = row.len();
            table.x.append(&mut row);
        }
        let n = table.y.len() as f64;
        let mean = table.y.iter().sum::<f64>() / n;
        let deviation = (table.y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        table.y.iter_mut().for_each(|y| *y = (*y - mean) / deviation);
        Ok(table)
    }

    fn select(&self, rows: &[usize]) -> Self {
        let pick = |values: &[f64], width: usize| {
            rows.iter().flat_map(|&i| &values[i * width..(i + 1) * width]).copied().collect()
        };
        let p: usize = self.groups.iter().sum();
        Self {
            dim: self.dim,
            x: pick(&self.x, self.dim),
            y: pick(&self.y, 1),
            grids: pick(&self.grids, p),
            groups: self.groups.clone(),
        }
    }

    fn with<R>(&self, run: impl FnOnce(&PointsRows) -> R) -> R {
        let outputs = [PointsOutput { targets: &self.y, relative_noise: None, noise: PointsNoise::Learned }];
        let grids = GridFeatures { values: &self.grids, groups: &self.groups };
        let grids = (!self.groups.is_empty()).then_some(grids);
        run(&PointsRows { x: &self.x, dim: self.dim, outputs: &outputs, grids })
    }

    /// For each column a process of variance 1/D on a regular grid: Φ = k(x, U) V Λ^(−½) for the leading eigenvectors.
    fn add_axes(&mut self, lengthscale: f64) {
        let (n, d) = (self.y.len(), self.dim);
        let mut columns: Vec<Vec<f64>> = Vec::new();
        for k in 0..d {
            let x: Vec<f64> = self.x.iter().skip(k).step_by(d).copied().collect();
            let mean = x.iter().sum::<f64>() / n as f64;
            let deviation = (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
            let (lo, hi) = x.iter().fold((f64::MAX, f64::MIN), |(lo, hi), &v| (lo.min(v), hi.max(v)));
            if hi <= lo {
                continue;
            }
            let l = (lengthscale * deviation).max((hi - lo) / 16.0);
            let grid: Vec<f64> = (0..32).map(|i| lo + (hi - lo) * f64::from(i) / 31.0).collect();
            let kernel = |a: f64, b: f64| Family::Matern52.value(&[l], a - b);
            let own = Mat::from_fn(32, 32, |i, j| kernel(grid[i], grid[j]));
            let eigen = own.self_adjoint_eigen(Side::Lower).expect("eigenvalues");
            let most = eigen.S()[31];
            let kept: Vec<usize> = (0..32).filter(|&a| eigen.S()[a] > 1e-4 * most).collect();
            self.groups.push(kept.len());
            for &a in &kept {
                let scale = (eigen.S()[a] * d as f64).sqrt().recip();
                let feature =
                    |v: f64| (0..32).map(|i| eigen.U()[(i, a)] * kernel(v, grid[i])).sum::<f64>() * scale;
                columns.push(x.iter().map(|&v| feature(v)).collect());
            }
        }
        self.grids = (0..n).flat_map(|i| columns.iter().map(move |c| c[i])).collect();
    }
}
