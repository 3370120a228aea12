//! What the sparse engine costs on large grids: a rough surface, learned and predicted exactly.
//!
//! `cargo run --release -p wiski --example sparse_grid -- [GRID …]`, where a grid is like `300x300`, `100000`, or with a
//! smoother kernel `100x100:matern32`.
//!
//! Ten observations for each grid point; times are the best of three, of one thread. "first" builds tree and factor and
//! finds the mean, "again" does so in the memory of the first, as a search for hyperparameters would; "inverse" is the
//! selected inverse and "gradient" what the evidence and its gradient take beyond that.

use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::internals::large::sparse::SparsePosterior;
use wiski::{Grid, Kernel, Result, Stats};

const GRIDS: [&str; 10] = [
    "50x50",
    "100x100",
    "200x200",
    "300x300",
    "100000",
    "1000000",
    "20x20x20",
    "100000:matern32",
    "100000:matern52",
    "50x50:matern32",
];
const REPEATS: usize = 3;
const NOISE: f64 = 0.05;

fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let grids = if given.is_empty() { GRIDS.map(String::from).to_vec() } else { given };
    println!(
        "{:>16} {:>9} {:>9} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "grid",
        "entries",
        "Mflop",
        "MB",
        "first",
        "again",
        "inverse",
        "gradient",
        "solve",
        "sample",
        "correction"
    );
    for name in grids {
        let (shape, family) = name.split_once(':').unwrap_or((&name, "matern12"));
        let points: Vec<usize> = shape.split('x').map(|g| g.parse().expect("a grid like 300x300")).collect();
        let kernel = match family {
            "matern12" => Kernel::matern12(&vec![0.3; points.len()])?,
            // The precision of smooth processes on much finer grids is singular to rounding.
            smooth => {
                let lengths: Vec<f64> = points.iter().map(|&g| 10.0 / g as f64).collect();
                if smooth == "matern32" { Kernel::matern32(&lengths)? } else { Kernel::matern52(&lengths)? }
            }
        };
        measure(&name, &points, &kernel)?;
    }
    Ok(())
}

fn measure(name: &str, points: &[usize], kernel: &Kernel) -> Result<()> {
    let grid = Grid::covering(&vec![(0.0, 1.0); points.len()], points)?;
    let stats = observed(&grid)?;
    let cost = SparsePosterior::cost(&grid, kernel)?;
    let (mut best, mut correction) = ([f64::INFINITY; 6], 0.0);
    for _ in 0..REPEATS {
        let (posterior, first) = timed(|| SparsePosterior::new(&stats, kernel, NOISE));
        let (posterior, again) = timed(|| posterior?.renewed(&stats, kernel, NOISE));
        let posterior = posterior?;
        let (_, inverse) = timed(|| posterior.covariance().bytes());
        let (evidence, gradient) = timed(|| posterior.evidence(&stats));
        assert!(evidence?.value.is_finite());
        let (solved, solve) = timed(|| posterior.solve(&mut vec![1.0; grid.len()]));
        solved?;
        let (drawn, sample) = timed(|| posterior.sample(&vec![1.0; posterior.unknowns()]));
        drawn?;
        let times = [first, again, inverse, gradient, solve, sample];
        best.iter_mut().zip(times).for_each(|(best, time)| *best = best.min(time));
        correction = posterior.correction();
    }
    let times: Vec<String> = best.iter().map(|seconds| format!("{:>5.0} ms", 1e3 * seconds)).collect();
    println!(
        "{name:>16} {:>9} {:>9.0} {:>7.1} {} {correction:>10.1e}",
        cost.entries,
        2e-6 * cost.multiply_adds,
        8e-6 * cost.entries as f64,
        times.join(" "),
    );
    Ok(())
}

fn observed(grid: &Grid) -> Result<Stats> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut stats = Stats::new(grid.clone());
    for _ in 0..10 * grid.len() {
        let x: Vec<f64> = (0..grid.dim()).map(|_| rng.random()).collect();
        let ridges: f64 = x.iter().map(|x| (9.0 * x).sin().abs()).sum();
        stats.observe(&x, ridges + 0.4 * (rng.random::<f64>() - 0.5), 1.0)?;
    }
    Ok(stats)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed().as_secs_f64())
}
