//! What the sparse engine costs on large grids: a rough surface, learned and predicted exactly.
//!
//! `cargo run --release -p wiski --example sparse_grid -- [SHAPE …]`, where a shape is like `300x300` or `100000`.
//!
//! Ten observations for each grid point; times are those of one thread. "first" builds tree and factor and finds the
//! mean, "again" does so in the memory of the first, as a search for hyperparameters would; "inverse" is the
//! selected inverse and "gradient" what the evidence and its gradient take beyond that.

use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::grid::Grid;
use wiski::large::sparse::SparsePosterior;
use wiski::{Kernel, Result, Stats};

const SHAPES: [&str; 8] =
    ["50x50", "100x100", "200x200", "300x300", "100000", "1000000", "20x20x20", "32x32x32"];
const NOISE: f64 = 0.05;

fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let shapes = if given.is_empty() { SHAPES.map(String::from).to_vec() } else { given };
    println!(
        "{:>10} {:>9} {:>9} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
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
    for shape in shapes {
        let points: Vec<usize> = shape.split('x').map(|g| g.parse().expect("a shape like 300x300")).collect();
        measure(&shape, &points)?;
    }
    Ok(())
}

fn measure(name: &str, points: &[usize]) -> Result<()> {
    let grid = Grid::covering(&vec![(0.0, 1.0); points.len()], points)?;
    let stats = observed(&grid)?;
    let kernel = Kernel::matern12(&vec![0.3; points.len()])?;
    let cost = SparsePosterior::cost(&grid);

    let (posterior, first) = timed(|| SparsePosterior::new(&stats, &kernel, NOISE));
    let (posterior, again) = timed(|| posterior?.renewed(&stats, &kernel, NOISE));
    let posterior = posterior?;
    let (_, inverse) = timed(|| posterior.covariance().bytes());
    let (evidence, gradient) = timed(|| posterior.evidence(&stats));
    assert!(evidence?.value.is_finite());
    let (solved, solve) = timed(|| posterior.solve(&mut vec![1.0; grid.len()]));
    solved?;
    let (drawn, sample) = timed(|| posterior.sample(&vec![1.0; grid.len()]));
    drawn?;

    println!(
        "{name:>10} {:>9} {:>9.0} {:>7.1} {} {} {} {} {} {} {:>10.1e}",
        cost.entries,
        2e-6 * cost.multiply_adds,
        8e-6 * cost.entries as f64,
        milliseconds(first),
        milliseconds(again),
        milliseconds(inverse),
        milliseconds(gradient),
        milliseconds(solve),
        milliseconds(sample),
        posterior.correction(),
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

fn milliseconds(seconds: f64) -> String {
    format!("{:>5.0} ms", 1e3 * seconds)
}
