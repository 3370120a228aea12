//! `wiski bench`: how fast each operation is on this machine, against the machine's own limits.
//!
//! Limits are measured in the same run: multiply-adds a second of a loop that stays in the first cache, and
//! bytes a second read from memory far larger than any cache. Each operation then says how many multiply-adds
//! it needs and how far from the limit it runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::output::say;
use anyhow::Result;
use clap::Args;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use wiski::{Grid, Kernel, OnlineGp, Stats, Wiski};

/// Measure how fast this machine is: each operation for grids of 256 and 1,024 points.
#[derive(Args)]
pub(crate) struct Bench {
    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Seconds for each measurement
    #[arg(long, default_value_t = 0.3, value_name = "SECONDS")]
    seconds: f64,
}

/// One measured operation.
struct Measured {
    name: &'static str,
    /// Seconds for one.
    seconds: f64,
    /// Multiply-adds for one, as the algorithm needs them.
    flops: f64,
}

impl Bench {
    pub(crate) fn run(&self) -> Result<()> {
        let budget = Duration::from_secs_f64(self.seconds.clamp(0.01, 60.0));
        let limits = Limits::measure(budget);
        if !self.json {
            say(format_args!(
                "this machine, one thread: {:.1} billion multiply-adds/s in the first cache, {:.1} GB/s from memory\n",
                limits.multiply_adds / 1e9,
                limits.bytes / 1e9
            ))?;
        }
        let mut sizes = Vec::new();
        // A length-scale for which the rank is that of a smooth and of a rougher function.
        for (points, lengthscale) in [(16, 0.9), (16, 0.45), (32, 0.9), (32, 0.3)] {
            let mut model = model(points, lengthscale)?;
            let rank = model.rank();
            let measured = operations(&mut model, budget)?;
            if self.json {
                sizes.push(size_json(points, rank, &measured, &limits));
                continue;
            }
            say(format_args!("{points} × {points} grid, rank {rank}"))?;
            say(format_args!(
                "  {:<28} {:>12} {:>14} {:>10}",
                "operation", "time", "multiply-adds", "of limit"
            ))?;
            for m in &measured {
                let share = 100.0 * m.flops / m.seconds / limits.multiply_adds;
                say(format_args!(
                    "  {:<28} {:>12} {:>14.0} {share:>8.0} %",
                    m.name,
                    time(m.seconds),
                    m.flops
                ))?;
            }
            say(format_args!(""))?;
        }
        if self.json {
            let all = json!({
                "multiply_adds_per_second": limits.multiply_adds,
                "memory_bytes_per_second": limits.bytes,
                "sizes": sizes,
            });
            say(format_args!("{all}"))?;
        }
        Ok(())
    }
}

fn size_json(points: usize, rank: usize, measured: &[Measured], limits: &Limits) -> Value {
    let one = |m: &Measured| {
        let share = m.flops / m.seconds / limits.multiply_adds;
        (
            m.name.to_string(),
            json!({ "seconds": m.seconds, "multiply_adds": m.flops, "share_of_limit": share }),
        )
    };
    json!({
        "grid": [points, points],
        "rank": rank,
        "operations": measured.iter().map(one).collect::<serde_json::Map<_, _>>(),
    })
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.2} µs", s * 1e6),
        s => format!("{:.2} ms", s * 1e3),
    }
}

/// A model that has learned a few thousand points.
fn model(points: usize, lengthscale: f64) -> Result<Wiski> {
    let grid = Grid::covering(&[(-1.0, 1.0); 2], &[points; 2])?;
    let mut model =
        Wiski::builder().grid(grid).kernel(Kernel::rbf(&[lengthscale; 2])?).noise(0.05).build()?;
    let (x, y) = points_of(4096);
    model.observe_batch(&x, &y, None)?;
    Ok(model)
}

fn points_of(count: usize) -> (Vec<f64>, Vec<f64>) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let x: Vec<f64> = (0..2 * count).map(|_| rng.random_range(-1.0..1.0)).collect();
    let y = x.chunks_exact(2).map(|x| (3.0 * x[0]).sin() * x[1]).collect();
    (x, y)
}

fn operations(model: &mut Wiski, budget: Duration) -> Result<Vec<Measured>> {
    let (x, y) = points_of(4096);
    let row = |i: usize| (&x[2 * (i % 4096)..2 * (i % 4096) + 2], y[i % 4096]);
    let p = model.rank() as f64;
    let m = model.stats().lattice().len() as f64;
    let mut all = Vec::new();
    let mut add = |name, seconds, flops| all.push(Measured { name, seconds, flops });

    let mut stats = Stats::new(model.stats().lattice().clone());
    let seconds = each(budget, |i| stats.observe(row(i).0, row(i).1, 1.0))?;
    // Half of the (4²)² products by symmetry, and b.
    add("observe (statistics)", seconds, 136.0 + 16.0);

    let predictor = model.predictor()?;
    let seconds = each(budget, |i| predictor.predict_mean(row(i).0).map(keep))?;
    add("predict mean (published)", seconds, 20.0);
    let seconds = each(budget, |i| predictor.predict(row(i).0).map(keep))?;
    add("predict (published)", seconds, 160.0);
    let seconds = each(budget, |i| model.predict(row(i).0).map(keep))?;
    add("predict (live)", seconds, p * p + p);
    let seconds = each(budget, |i| model.step(row(i).0, row(i).1).map(keep))?;
    add("predict and learn", seconds, 3.0 * p * p);
    let seconds = each(budget, |_| model.refactorize())?;
    // Two-sided contraction of A with B, Cholesky, inverse of the factor.
    let contraction = 25.0 * m * p + m * p * p.sqrt();
    add("refactorize", seconds, p.powi(3) / 3.0 + contraction);
    let seconds = each(budget, |_| model.evidence().map(keep))?;
    add("evidence with gradients", seconds, p.powi(3) + 2.0 * contraction);
    Ok(all)
}

/// The compiler must not find out that nobody looks at the result.
fn keep<T>(value: T) {
    black_box(value);
}

/// Seconds for one call: repeated for the budget, in blocks so that the clock costs nothing.
fn each(budget: Duration, mut f: impl FnMut(usize) -> wiski::Result<()>) -> Result<f64> {
    let (start, mut calls, mut block) = (Instant::now(), 0usize, 1usize);
    let mut best = f64::INFINITY;
    while start.elapsed() < budget {
        let begin = Instant::now();
        for i in calls..calls + block {
            f(i)?;
        }
        calls += block;
        let took = begin.elapsed();
        if took < Duration::from_millis(2) {
            block *= 2;
        } else {
            // The quickest block is the one that was disturbed least.
            best = best.min(took.as_secs_f64() / block as f64);
        }
    }
    Ok(if best.is_finite() { best } else { start.elapsed().as_secs_f64() / calls.max(1) as f64 })
}

/// What the machine can do at most, on one thread.
struct Limits {
    multiply_adds: f64,
    bytes: f64,
}

impl Limits {
    fn measure(budget: Duration) -> Self {
        // The peak of the very routines that the library is made of: a matrix product of a size that suits.
        let n = 192;
        let a = faer::Mat::<f64>::from_fn(n, n, |i, j| (i * 31 + j * 17) as f64 % 7.0 - 3.0);
        let mut c = faer::Mat::<f64>::zeros(n, n);
        let product = |_| {
            faer::linalg::matmul::matmul(&mut c, faer::Accum::Replace, &a, &a, 1.0, faer::Par::Seq);
            keep(c[(0, 0)]);
            Ok(())
        };
        let seconds = each(budget, product).unwrap_or(f64::INFINITY);
        let large = vec![1.0f64; 1 << 24];
        let sum = |_| {
            let mut sums = [0.0; 16];
            for chunk in large.chunks_exact(16) {
                sums.iter_mut().zip(chunk).for_each(|(s, v)| *s += v);
            }
            keep(sums);
            Ok(())
        };
        let read = each(budget, sum).unwrap_or(f64::INFINITY);
        Self { multiply_adds: (n as f64).powi(3) / seconds, bytes: (large.len() * 8) as f64 / read }
    }
}
