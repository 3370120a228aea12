//! How fast the engine is, single-threaded, and how far from what this machine can do.
//!
//! `cargo bench -p wiski --bench engine` prints one table per grid. The data are the power plant set if
//! `WISKI_DATA` (or `./data`) has it, else a synthetic stream of the same shape. A projection to two or three
//! dimensions and the hyperparameters are learned first, so that the rank p is that of a real model.

mod limits;

use std::hint::black_box;
use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use limits::{Limits, time};
use wiski::internals::Pool;
use wiski::internals::conformal::{Conformal, Score};
use wiski::internals::evidence::Evidence;
use wiski::internals::feature::{Normalizer, Tape};
use wiski::internals::grid::Lattice;
use wiski::internals::points::Points;
use wiski::internals::posterior::{Posterior, Workspace};
use wiski::internals::structure::{Symmetric, Toeplitz, ToeplitzMethod};
use wiski::model::{IntervalKind, Intervals};
use wiski::{
    Family, Features, Grid, Horizon, HyperSpace, Kernel, LbfgsB, OnlineGp, OnlineRegressor, Prediction,
    Schedule, Settings, Stats, Wiski,
};

/// The default cut-off of the model.
const CUTOFF: f64 = 1e-12;

fn main() {
    let limits = Limits::measure();
    println!(
        "machine: {:.1} GFLOP/s multiply-add, {:.0} GB/s from the second cache (one thread)",
        limits.gflops, limits.gbytes
    );
    if std::env::args().any(|a| a == "delayed") {
        return delayed(&limits);
    }
    if std::env::args().any(|a| a == "intervals") {
        return intervals();
    }
    let (rows, source) = power_plant();
    println!("data: {source}, {} rows", rows.len());
    if std::env::args().any(|a| a == "additive") {
        return additive(20, 16, 0.33);
    }
    if std::env::args().any(|a| a == "few") {
        few(&[10; 3], 60);
        return few(&[7; 4], 150);
    }
    if std::env::args().any(|a| a == "points") {
        return points(20, 16, 0.33, 512);
    }
    toeplitz();
    for shape in [vec![16, 16], vec![30, 30], vec![40, 40], vec![10, 10, 10]] {
        run(&shape, &rows, &limits);
    }
    additive(20, 16, 0.33);
    points(20, 16, 0.33, 512);
    delayed(&limits);
    intervals();
}

/// What keeping intervals at their level adds to a row (`-- intervals`).
fn intervals() {
    let point = |i: usize| (0.618_034 * i as f64).fract();
    let target = |i: usize| (6.0 * point(i)).sin() + 0.3 * (0.414_213 * (i * i) as f64).fract();
    let scores: Vec<f64> = (0..4096).map(|i| 2.0 * (0.754_878 * f64::from(i)).fract()).collect();
    let levels = [0.5, 0.8, 0.9, 0.95, 0.99];
    let mut control = Conformal::new(&levels, Score::Deviations).expect("levels");
    println!("\nintervals at {} levels", levels.len());
    let report = |name: &str, seconds: f64| println!("  {name:<44} {:>7.1} ns", 1e9 * seconds);
    let mut i = 0;
    let seconds = time(|| {
        control.observe(black_box(scores[i % scores.len()]));
        i += 1;
    });
    report("take in a score", seconds);
    report(
        "quantile at one level",
        time(|| drop(black_box(control.quantile(black_box(0.95), Horizon::Next)))),
    );
    for (name, kind) in [
        ("predict and learn a row, Gaussian", IntervalKind::Gaussian),
        ("the same, conformal", IntervalKind::Conformal),
    ] {
        let intervals = Intervals { kind, ..Intervals::default() };
        let settings = Settings { intervals, schedule: Schedule::Off, ..Settings::default() };
        let mut model = OnlineRegressor::new(1, settings).expect("settings");
        (0..2000).for_each(|i| {
            model.step(&[point(i)], target(i)).expect("a row");
        });
        let mut i = 2000;
        let seconds = time(|| {
            black_box(model.step(&[point(i % 4096)], target(i % 4096)).expect("a row"));
            i += 1;
        });
        report(&format!("{name} (p = {})", model.model().map_or(0, Wiski::rank)), seconds);
    }
}

/// Predicting and conditioning row by row, at once and with rows that wait for each other (`-- delayed`).
fn delayed(limits: &Limits) {
    const DELAYS: [usize; 5] = [0, 16, 32, 64, 128];
    println!("\npredict, then condition: at once, and how many times as fast if q rows wait for each other");
    println!(
        "  {:<25} {:>5} {:>5} {:>11} {:>8} {:>8}  q = {:?}",
        "kernel and grid",
        "m",
        "p",
        "at once",
        "GFLOP/s",
        "GB/s",
        &DELAYS[1..]
    );
    let matern = |d: usize| Kernel::matern32(&vec![0.5; d]).expect("a kernel");
    for (name, shape, kernel) in [
        ("Matérn 3/2", vec![11, 11], matern(2)),
        ("Matérn 3/2", vec![14, 14], matern(2)),
        ("Matérn 3/2", vec![18, 18], matern(2)),
        ("Matérn 3/2", vec![25, 25], matern(2)),
        ("Matérn 3/2", vec![32, 32], matern(2)),
        ("Matérn 3/2", vec![39, 39], matern(2)),
        ("Matérn 3/2", vec![10, 10, 10], matern(3)),
        ("Matérn 3/2", vec![600], matern(1)),
        ("RBF", vec![40, 40], Kernel::rbf(&[0.15, 0.15]).expect("a kernel")),
    ] {
        let d = shape.len();
        let grid = Grid::covering(&vec![(-1.0, 1.0); d], &shape).expect("a valid grid");
        let (m, n) = (grid.len(), 4096);
        let wave =
            |i: usize, k: usize| 2.0 * ((i + 1) as f64 * [0.618_034, 0.754_878, 0.569_84][k]).fract() - 1.0;
        let h: Vec<f64> = (0..n * d).map(|at| wave(at / d, at % d)).collect();
        let y: Vec<f64> = h.chunks_exact(d).map(|h| h.iter().map(|x| (5.0 * x).sin()).sum()).collect();
        let mut stats = Stats::new(grid);
        stats.observe_batch(&h, &y, None).expect("data on the grid");
        let (_, posterior) = Evidence::new(&stats, &[kernel], 0.1, CUTOFF).expect("a posterior");
        let mut models = DELAYS.map(|rows| {
            let (mut model, mut ws) = (posterior.clone(), Workspace::default());
            model.set_delay(rows, &mut ws);
            (model, ws)
        });
        // In turn, so that whatever else the machine does meets all of them; whole lists, with the work at their end.
        let rows = DELAYS[DELAYS.len() - 1];
        let mut rounds: [Vec<f64>; DELAYS.len()] = Default::default();
        for round in 0..10 {
            for ((model, ws), seconds) in models.iter_mut().zip(&mut rounds) {
                let start = Instant::now();
                for i in (round * rows..(round + 1) * rows).map(|i| i % n) {
                    black_box(model.condition(&h[i * d..(i + 1) * d], y[i], 1.0, ws).expect("on the grid"));
                }
                seconds.push(start.elapsed().as_secs_f64() / rows as f64);
            }
        }
        // The first round warms up.
        let best = rounds.map(|seconds| seconds.into_iter().skip(1).fold(f64::INFINITY, f64::min));
        let gains = best.map(|seconds| format!("{:.2}", best[0] / seconds));
        let p = posterior.rank();
        // 3p² multiply-adds; F is read twice and written once.
        let rate = |each: usize| (each * p * p) as f64 / best[0] * 1e-9;
        println!(
            "  {:<25} {m:>5} {p:>5} {:>8.1} µs {:>8.1} {:>8.1}  {}",
            format!("{name} {shape:?}"),
            1e6 * best[0],
            rate(6),
            rate(24),
            gains[1..].join("  ")
        );
    }
    println!(
        "  with q rows: 2·(2p² + 4^d p + 2pq + image/q) flops a row and 24p²/q bytes of F, at up to {:.0} GFLOP/s",
        limits.gflops
    );
}

/// Few rows on many axes, where an evaluation reads a thin root instead of 7^d numbers a grid point.
fn few(shape: &[usize], n: usize) {
    let d = shape.len();
    let grid = Grid::covering(&vec![(0.0, 1.0); d], shape).expect("a grid");
    let kernels = [Kernel::rbf(&vec![1.0; d]).expect("a kernel")];
    let mut stats = Stats::new(grid);
    for i in 0..n {
        let h: Vec<f64> = (0..d).map(|k| (0.618_034_f64.powi(k as i32 + 1) * i as f64).fract()).collect();
        stats.observe(&h, h.iter().map(|x| (5.0 * x).sin()).sum(), 1.0).expect("a point on the grid");
    }
    let (mut pool, mut p) = (Pool::default(), 0);
    let seconds = time(|| {
        let (evidence, posterior) =
            Evidence::with_pool(&stats, &kernels, 0.1, 1e-6, &mut pool).expect("a posterior");
        black_box(evidence);
        p = posterior.rank();
        posterior.recycle(&mut pool);
    });
    println!(
        "few rows, m = {}, d = {d}, p = {p}, n = {n}: evidence + all gradients {:.2} ms",
        stats.lattice().len(),
        1e3 * seconds
    );
}

/// A sum of one-dimensional grids, as a model of some twenty inputs has it.
fn additive(blocks: usize, points: usize, length: f64) {
    const DROPPED: f64 = 1e-6; // the cut-off of a sum of grids
    let grid = Grid::covering(&[(-1.0, 1.0)], &[points]).expect("a valid grid");
    let lattice = Lattice::new(vec![grid; blocks]).expect("at least one grid");
    let wave = |i: usize, k: usize| 2.0 * (0.618_034 * (i * (k + 1)) as f64 + 0.1 * k as f64).fract() - 1.0;
    let n = 10_000;
    let h: Vec<f64> = (0..n * blocks).map(|at| wave(at / blocks + 1, at % blocks)).collect();
    let y: Vec<f64> = h.chunks_exact(blocks).map(|h| h.iter().map(|x| (3.0 * x).sin()).sum()).collect();
    let kernels = vec![Kernel::rbf(&[length]).expect("a kernel"); blocks];
    let mut stats = Stats::new(lattice);
    stats.observe_batch(&h, &y, None).expect("data on the grids");
    let (_, posterior) = Evidence::new(&stats, &kernels, 0.1, DROPPED).expect("a posterior");
    let m = stats.lattice().len();
    println!("\nsum of {blocks} grids, m = {m}, d = 1 each, p = {}, n = {n}", posterior.rank());
    let report = |name: &str, seconds: f64| println!("  {name:<44} {:>7.2} µs", 1e6 * seconds);
    let point = |i: usize| &h[i % n * blocks..][..blocks];
    let (mut pool, mut ws, mut i) = (Pool::default(), Workspace::default(), 0);
    let seconds = time(|| {
        let (evidence, posterior) =
            Evidence::with_pool(&stats, &kernels, 0.1, DROPPED, &mut pool).expect("a posterior");
        black_box(evidence);
        posterior.recycle(&mut pool);
    });
    report("evidence + all gradients", seconds);
    let mut online = posterior.clone();
    let seconds = time(|| {
        stats.observe(point(i), y[i % n], 1.0).expect("on the grids");
        black_box(online.condition(point(i), y[i % n], 1.0, &mut ws).expect("on the grids"));
        i += 1;
    });
    report("predict, then condition (and statistics)", seconds);
    report("build a predictor", time(|| drop(black_box(posterior.predictor()))));
    let predictor = posterior.predictor();
    let seconds = time(|| {
        black_box(predictor.predict(black_box(point(i))).expect("on the grids"));
        i += 1;
    });
    report("predict mean + variance, one point", seconds);
    let mut fresh = stats.clone();
    let seconds = time(|| {
        fresh.observe(black_box(point(i)), y[i % n], 1.0).expect("on the grids");
        i += 1;
    });
    report("observe into statistics only", seconds);
}

/// Inducing points over all inputs behind a one-dimensional grid for each (`-- points`).
fn points(inputs: usize, grid_points: usize, length: f64, centers: usize) {
    const DROPPED: f64 = 1e-6; // the cut-off of a sum of grids
    const TOGETHER: usize = 16;
    let grid = Grid::covering(&[(-1.0, 1.0)], &[grid_points]).expect("a valid grid");
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let (n, d) = (4096, 2 * inputs);
    // The grids read each input, then the points read all of them.
    let mut row = || (0..inputs).map(|_| uniform()).collect::<Vec<f64>>();
    let rows: Vec<Vec<f64>> = (0..n).map(|_| row()).collect();
    let h: Vec<f64> = rows.iter().flat_map(|x| x.iter().chain(x)).copied().collect();
    let y: Vec<f64> = rows.iter().map(|x| x.iter().map(|x| (3.0 * x).sin()).sum()).collect();
    let z: Vec<f64> = rows[..centers].concat();
    let points = Points::new(Family::Matern32, &z, &vec![3.0; inputs]).expect("centers");
    let lattice = Lattice::with_points(vec![grid; inputs], points);
    let mut kernels = vec![Kernel::rbf(&[length]).expect("a kernel"); inputs];
    kernels.push(Kernel::output_scale(1.0).expect("a scale"));
    let mut stats = Stats::new(lattice);
    stats.observe_batch(&h, &y, None).expect("data on the grids");
    let (_, posterior) = Evidence::new(&stats, &kernels, 0.1, DROPPED).expect("a posterior");
    let m = stats.lattice().len();
    println!(
        "\n{centers} points of {inputs} inputs behind {inputs} grids, m = {m}, p = {}",
        posterior.rank()
    );
    let report = |name: &str, seconds: f64| println!("  {name:<44} {:>8.2} µs", 1e6 * seconds);
    let at = |i: usize, rows: usize| &h[i % (n / TOGETHER) * TOGETHER * d..][..rows * d];
    let (mut pool, mut ws, mut i) = (Pool::default(), Workspace::default(), 0);
    let seconds = time(|| {
        let (evidence, posterior) =
            Evidence::with_pool(&stats, &kernels, 0.1, DROPPED, &mut pool).expect("a posterior");
        black_box(evidence);
        posterior.recycle(&mut pool);
    });
    report("evidence + all gradients", seconds);
    let mut sums = stats.clone();
    let seconds = time(|| {
        sums.observe(at(i, 1), y[0], 1.0).expect("on the grids");
        i += 1;
    });
    report("observe into statistics, one row", seconds);
    let seconds = time(|| {
        sums.observe_batch(at(i, TOGETHER), &y[..TOGETHER], None).expect("on the grids");
        i += 1;
    });
    report("  sixteen at a time, each", seconds / TOGETHER as f64);
    let mut online = posterior.clone();
    // Whole lists, with the work at their end.
    let seconds = time(|| {
        for _ in 0..32 {
            black_box(online.condition(at(i, 1), y[i % n], 1.0, &mut ws).expect("on the grids"));
            i += 1;
        }
    });
    report("predict, then condition, one row", seconds / 32.0);
    let (mut online, mut predictions) = (posterior.clone(), [Prediction::default(); TOGETHER]);
    let seconds = time(|| {
        for _ in 0..2 {
            let (h, y) = (at(i, TOGETHER), &y[..TOGETHER]);
            online.condition_batch(h, y, None, &mut predictions, &mut ws).expect("on the grids");
            i += 1;
        }
    });
    report("  sixteen at a time, each", seconds / (2 * TOGETHER) as f64);
    report("build a predictor", time(|| drop(black_box(posterior.predictor()))));
    let predictor = posterior.predictor();
    let seconds = time(|| {
        black_box(predictor.predict_mean(black_box(at(i, 1))).expect("on the grids"));
        i += 1;
    });
    report("predict mean, one point", seconds);
    let seconds = time(|| {
        black_box(predictor.predict(black_box(at(i, 1))).expect("on the grids"));
        i += 1;
    });
    report("predict mean + variance, one point", seconds);
    let (mut mean, mut variance) = ([0.0; TOGETHER], [0.0; TOGETHER]);
    let seconds = time(|| {
        predictor.predict_batch(at(i, TOGETHER), &mut mean, &mut variance).expect("on the grids");
        i += 1;
    });
    report("  sixteen at a time, each", seconds / TOGETHER as f64);
}

/// A Toeplitz product directly and by FFT: where the constructor changes over.
fn toeplitz() {
    println!("Toeplitz product: g, direct, FFT");
    for g in [16usize, 24, 32, 64, 256] {
        let column: Vec<f64> = (0..g).map(|i| (-0.01 * i as f64).exp()).collect();
        let mut y = vec![0.0; g];
        let times = [ToeplitzMethod::Direct, ToeplitzMethod::Fft].map(|method| {
            let matrix = Toeplitz::with_method(&column, method);
            let mut scratch = vec![0.0; matrix.scratch_len()];
            1e9 * time(|| matrix.apply(black_box(&column), &mut y, &mut scratch))
        });
        println!("  {g:>4} {:>8.0} ns {:>8.0} ns", times[0], times[1]);
    }
}

struct Row {
    x: [f64; 4],
    y: f64,
}

fn power_plant() -> (Vec<Row>, &'static str) {
    let folder = std::env::var("WISKI_DATA").unwrap_or_else(|_| "data".into());
    let Ok(file) = std::fs::File::open(format!("{folder}/powerplant.csv.gz")) else {
        let wave = |i: u32, k: u32| {
            f64::from(i.wrapping_mul(2_654_435_761).rotate_left(8 * k) >> 8) / f64::from(1 << 24)
        };
        let rows = (0..9568).map(|i| {
            let x = [0, 1, 2, 3].map(|k| wave(i, k));
            Row { x, y: (3.0 * x[0]).sin() - x[1] + x[2] * x[3] + 0.2 * wave(i, 5) }
        });
        return (rows.collect(), "synthetic (set WISKI_DATA for the power plant)");
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a readable file");
    let parse = |line: &str| -> Vec<f64> { line.split(',').map(|c| c.parse().expect("a number")).collect() };
    let rows: Vec<Vec<f64>> = text.lines().skip(1).map(parse).collect();
    let scaled = |k: usize| {
        let mean = rows.iter().map(|r| r[k]).sum::<f64>() / rows.len() as f64;
        let variance = rows.iter().map(|r| (r[k] - mean).powi(2)).sum::<f64>() / rows.len() as f64;
        (mean, variance.sqrt())
    };
    let scales: Vec<(f64, f64)> = (0..5).map(scaled).collect();
    let cell = |r: &[f64], k: usize| (r[k] - scales[k].0) / scales[k].1;
    let rows = rows.iter().map(|r| Row { x: [0, 1, 2, 3].map(|k| cell(r, k)), y: cell(r, 4) });
    (rows.collect(), "power plant, projected")
}

/// The rows on a grid, as a model sees them that has learned a projection and hyperparameters from them: the
/// coordinates, the kernel and the noise.
fn learn(rows: &[Row], shape: &[usize]) -> (Vec<f64>, Kernel, f64) {
    let d = shape.len();
    let features = Features::Project { outputs: d };
    let settings = Settings { features, grid: shape.to_vec(), warm_up: Some(430), ..Settings::default() };
    let mut model = OnlineRegressor::new(4, settings).expect("valid settings");
    for row in rows {
        model.observe(&row.x, row.y).expect("a usable row");
    }
    model.freeze_features().expect("the warm-up is over");
    let (encoder, inner) = (model.encoder().expect("running"), model.model().expect("running"));
    let (mut normalizer, mut tape, mut scaled) = (Normalizer::default(), Tape::default(), Vec::new());
    let prepared = encoder.map().prepare(encoder.moments(), &mut normalizer).expect("moments of many rows");
    let mut h = vec![0.0; rows.len() * d];
    for (row, h) in rows.iter().zip(h.chunks_exact_mut(d)) {
        encoder.scaling().apply(&row.x, &mut scaled).expect("finite rows");
        prepared.forward(&scaled, h, &mut tape).expect("finite rows");
    }
    (h, inner.kernels()[0].clone(), inner.noise())
}

fn run(shape: &[usize], rows: &[Row], limits: &Limits) {
    let d = shape.len();
    let grid = Grid::covering(&vec![(-1.0, 1.0); d], shape).expect("a valid grid");
    let m = grid.len();
    let (h, kernel, noise) = learn(rows, shape);
    let y: Vec<f64> = rows.iter().map(|r| r.y).collect();
    let mut stats = Stats::new(grid);
    stats.observe_batch(&h, &y, None).expect("data on the grid");
    let kernels = [kernel];
    let (_, posterior) = Evidence::new(&stats, &kernels, noise, CUTOFF).expect("a posterior");
    let p = posterior.rank();
    let point = |i: usize| &h[i % rows.len() * d..][..d];
    println!("\nm = {m} ({shape:?}), d = {d}, p = {p}, n = {}", rows.len());
    println!("  kernel {} {:.3?}, noise {noise:.4}", kernels[0], kernels[0].parameters());
    println!("  {:<44} {:>10}  {:>22}", "operation", "time", "of the machine's limit");

    let report = |name: &str, seconds: f64, flops: f64, bytes: f64| {
        // The slower of the two limits binds.
        let bound = (flops / limits.gflops).max(bytes / limits.gbytes) * 1e-9;
        let time = if seconds < 1e-6 {
            format!("{:.1} ns", 1e9 * seconds)
        } else {
            format!("{:.1} µs", 1e6 * seconds)
        };
        println!("  {name:<44} {time:>10}  {:>21.0}%", 100.0 * bound / seconds);
    };
    let pf = p as f64;
    let stencil = 16f64.powi(d as i32); // multiply-adds, twice the half that is stored, at 2 flops each

    let (mut pool, mut i) = (Pool::default(), 0);
    let seconds = time(|| {
        let (evidence, posterior) =
            Evidence::with_pool(&stats, &kernels, noise, CUTOFF, &mut pool).expect("a posterior");
        black_box(evidence);
        posterior.recycle(&mut pool);
    });
    let axis_sum: f64 = shape.iter().map(|&g| g as f64).sum();
    // Contraction and factorization, then A V and its contractions.
    let gradient = 2.0 * m as f64 * pf * (7f64.powi(d as i32) + 2.0 * axis_sum);
    report("evidence + all gradients", seconds, pf.powi(3) + 2.0 * pf * pf * axis_sum + gradient, 0.0);

    let mut model = fitted(&stats, &h, &y, &kernels[0], noise);
    let evaluation = pf.powi(3) + 2.0 * pf * pf * axis_sum + gradient;
    report("refit: another unit, three evaluations", refit(&mut model), 3.0 * evaluation, 0.0);
    let seconds = time(|| {
        black_box(model.predict(point(i)).expect("on the grid"));
        i += 1;
    });
    report("predict by the model", seconds, 2.0 * pf * pf, 8.0 * pf * pf);

    let prior = posterior.prior().clone();
    let seconds = time(|| {
        let posterior =
            Posterior::with_pool(Arc::clone(&prior), &stats, noise, &mut pool).expect("a posterior");
        posterior.recycle(&mut pool);
    });
    report(
        "posterior from statistics, fixed prior",
        seconds,
        2.0 / 3.0 * pf.powi(3) + 2.0 * pf * pf * axis_sum,
        0.0,
    );

    let (mut online, mut ws) = (posterior.clone(), Workspace::default());
    let seconds = time(|| {
        black_box(online.condition(point(i), y[i % y.len()], 1.0, &mut ws).expect("on the grid"));
        i += 1;
    });
    report("predict mean + variance, then condition", seconds, 6.0 * pf * pf, 24.0 * pf * pf);

    let seconds = time(|| {
        black_box(online.predict(point(i), &mut ws).expect("on the grid"));
        i += 1;
    });
    report("predict mean + variance, while conditioning", seconds, 2.0 * pf * pf, 8.0 * pf * pf);

    let seconds = time(|| {
        black_box(posterior.predictor());
    });
    let kept = if m > 7usize.pow(d as u32) { 7f64.powi(d as i32) * 4.0 / 7.0 } else { m as f64 };
    report("build a predictor", seconds, 2.0 * m as f64 * pf * kept, 0.0);

    let predictor = posterior.predictor();
    let seconds = time(|| {
        black_box(predictor.predict(black_box(point(i))).expect("on the grid"));
        i += 1;
    });
    report("predict mean + variance, one point", seconds, stencil, 4.0 * stencil);
    let seconds = time(|| {
        black_box(predictor.predict_mean(black_box(point(i))).expect("on the grid"));
        i += 1;
    });
    report("predict mean only", seconds, 2.0 * 4f64.powi(d as i32), 8.0 * 4f64.powi(d as i32));

    let mut fresh = stats.clone();
    let seconds = time(|| {
        fresh.observe(black_box(point(i)), y[i % y.len()], 1.0).expect("on the grid");
        i += 1;
    });
    report("observe into statistics only", seconds, stencil, 8.0 * stencil);
    println!("  {:<44} {:>7.1} M rows/s", "", 1e-6 / seconds);

    if d == 2 && m == 256 {
        constant_in_n(&h, &y, &kernels, noise, &stats);
    }
}

/// A model of the same data.
fn fitted(stats: &Stats, h: &[f64], y: &[f64], kernel: &Kernel, noise: f64) -> Wiski {
    let builder = Wiski::builder().grid(stats.lattice().grids()[0].clone()).kernel(kernel.clone());
    let mut model = builder.noise(noise).build().expect("valid settings");
    model.observe_batch(h, y, None).expect("data on the grid");
    model
}

/// What a stream does whenever it has grown by a tenth, cut to the same number of evaluations every time.
fn refit(model: &mut Wiski) -> f64 {
    let space = HyperSpace::new(&model.hyperparameters());
    let three =
        LbfgsB { max_evaluations: 3, relative_tolerance: 0.0, gradient_tolerance: 0.0, ..LbfgsB::default() };
    let mut unit = 1.25;
    time(|| {
        model.rescale_targets(0.0, unit).expect("a positive unit");
        model.refit(&space, &three).expect("a posterior");
        unit = unit.recip();
    })
}

/// The same operations after 10³ and after 10⁷ observations, alternating.
fn constant_in_n(h: &[f64], y: &[f64], kernels: &[Kernel], noise: f64, like: &Stats) {
    let at = |n: usize| {
        let mut stats = Stats::new(like.lattice().clone());
        for i in 0..n {
            let row = i % y.len();
            stats.observe(&h[2 * row..2 * row + 2], y[row], 1.0).expect("on the grid");
        }
        stats
    };
    let (mut few, mut many) = (at(1_000), at(10_000_000));
    println!("  n = 10⁷ against n = 10³");
    let compare = |name: &str, mut op: Box<dyn FnMut(&mut Stats)>, few: &mut Stats, many: &mut Stats| {
        let mut ratios: Vec<f64> = (0..9).map(|_| time(|| op(many)) / time(|| op(few))).collect();
        ratios.sort_by(f64::total_cmp);
        println!("    {name:<42} {:>10.3}", ratios[4]);
    };
    let (owned, mut pool) = (kernels.to_vec(), Pool::default());
    compare(
        "evidence + all gradients",
        Box::new(move |s| {
            let (evidence, posterior) =
                Evidence::with_pool(s, &owned, noise, CUTOFF, &mut pool).expect("a posterior");
            black_box(evidence);
            posterior.recycle(&mut pool);
        }),
        &mut few,
        &mut many,
    );
    let (mut i, points, targets) = (0, h.to_vec(), y.to_vec());
    compare(
        "observe",
        Box::new(move |s| {
            let row = i % targets.len();
            s.observe(&points[2 * row..2 * row + 2], targets[row], 1.0).expect("on the grid");
            i += 1;
        }),
        &mut few,
        &mut many,
    );
    let posterior = |s: &Stats| Evidence::new(s, kernels, noise, CUTOFF).expect("a posterior").1;
    let (few, many) = (posterior(&few), posterior(&many));
    let mut ws = Workspace::default();
    let ratio = |name: &str, op: &mut dyn FnMut(&Posterior, usize)| {
        let mut ratios: Vec<f64> = (0..5)
            .map(|_| {
                let mut i = 0;
                let mut run = |p: &Posterior| {
                    time(|| {
                        op(p, i);
                        i += 1;
                    })
                };
                run(&many) / run(&few)
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        println!("    {name:<42} {:>10.3}", ratios[2]);
    };
    let point = |i: usize| &h[2 * (i % y.len())..][..2];
    ratio("predict mean + variance", &mut |p, i| {
        black_box(p.predict(point(i), &mut ws).expect("on the grid"));
    });
    let (mut a, mut b) = (few.clone(), many.clone());
    let mut ratios: Vec<f64> = (0..5)
        .map(|_| {
            let run = |p: &mut Posterior| {
                let (mut i, mut ws) = (0, Workspace::default());
                time(|| {
                    black_box(p.condition(point(i), y[i % y.len()], 1.0, &mut ws).expect("on the grid"));
                    i += 1;
                })
            };
            run(&mut b) / run(&mut a)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("    {:<42} {:>10.3}", "predict, then condition", ratios[2]);
}
