//! What a model gets from functions of one and two inputs when nothing is said about it, beside an exact process.
//!
//! ```text
//! cargo run --release -p wiski --example defaults -- [DRAWS]
//! ```
//!
//! For each draw of each function: the error of the latent mean and that of an exact RBF process with fitted
//! hyperparameters on the same rows, the share of the true function within the latent 95 % band of either, the kernel, the
//! grid, the smallest length-scale in spacings of the grid, and the seconds taken. A smooth function has some hundred degrees of
//! freedom at most, so that the share varies from draw to draw even for the exact process.

use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::internals::exact::ExactProcess;
use wiski::internals::learn::Rows;
use wiski::{Axis, Family, HyperSpace, LbfgsB, OnlineRegressor, Settings};

type Function = (&'static str, usize, fn(&[f64]) -> f64, f64, usize);

/// Name, inputs, function on [0, 10]^d, noise, rows.
const FUNCTIONS: [Function; 4] = [
    ("cos(1.3a) b/3 + sin(.8b)", 2, |x| (1.3 * x[0]).cos() * x[1] / 3.0 + (0.8 * x[1]).sin(), 0.1, 1500),
    ("sin(a) b", 2, |x| x[0].sin() * x[1], 0.1, 1000),
    ("sin(a) + sin(9a)/3", 1, |x| x[0].sin() + (9.0 * x[0]).sin() / 3.0, 0.1, 1000),
    ("|sin(2a)|", 1, |x| (2.0 * x[0]).sin().abs(), 0.05, 1000),
];

struct Draw {
    x: Vec<f64>,
    y: Vec<f64>,
    test: Vec<f64>,
}

fn draw(function: &Function, seed: u64) -> Draw {
    let &(_, d, f, noise, n) = function;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut points = |n: usize| -> Vec<f64> { (0..n * d).map(|_| 10.0 * rng.random::<f64>()).collect() };
    let (x, test) = (points(n), points(1000));
    let mut normal = || -> f64 { StandardNormal.sample(&mut rng) };
    let y = x.chunks_exact(d).map(|x| f(x) + noise * normal()).collect();
    Draw { x, y, test }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let draws: u64 = std::env::args().nth(1).map_or(Ok(10), |text| text.parse())?;
    for function in &FUNCTIONS {
        let &(name, d, f, _, n) = function;
        println!("{name}, {n} rows\n seed   rmse  exact  ratio  cover  exact  kernel and grid");
        let (mut worst, mut covers, mut seconds) = (0.0f64, [Vec::new(), Vec::new()], 0.0);
        for seed in 0..draws {
            let Draw { x, y, test } = draw(function, seed);
            let begin = Instant::now();
            let mut model = OnlineRegressor::new(d, Settings::default())?;
            for (x, &y) in x.chunks_exact(d).zip(&y) {
                model.step(x, y)?;
            }
            model.finish_search()?;
            seconds += begin.elapsed().as_secs_f64();
            let (mut error, mut covered) = (0.0, 0);
            for x in test.chunks_exact(d) {
                let (p, truth) = (model.predict(x)?, f(x));
                error += (p.mean - truth).powi(2);
                covered += usize::from((p.mean - truth).abs() <= 1.96 * p.variance.sqrt());
            }
            let (error, cover) = ((error / 1000.0).sqrt(), covered as f64 / 1000.0);
            let (exact, exact_cover) = exact_process(function, &x, &y, &test)?;
            worst = worst.max(error / exact);
            covers[0].push(cover);
            covers[1].push(exact_cover);
            let process = model.model().ok_or("the warm-up is not over")?;
            let grid = &process.stats().lattice().grids()[0];
            let kernel = &process.kernels()[0];
            let points: Vec<String> = grid.axes().iter().map(|a| a.points().to_string()).collect();
            let steps = grid.axes().iter().map(Axis::step);
            let scales = kernel.parameter_names().into_iter().zip(kernel.parameters());
            let scales = scales.filter(|(name, _)| name.contains("lengthscale")).map(|(_, value)| value);
            let cells: Vec<String> = scales.zip(steps).map(|(l, h)| format!("{:.1}", l / h)).collect();
            println!(
                "{seed:5} {error:6.4} {exact:6.4} {:6.2} {cover:6.3} {exact_cover:6.3}  {kernel}, {} points of rank {}, {} cells",
                error / exact,
                points.join("x"),
                process.rank(),
                cells.join(" and "),
            );
        }
        let range = |covers: &mut Vec<f64>| {
            covers.sort_by(f64::total_cmp);
            let mean = covers.iter().sum::<f64>() / covers.len() as f64;
            format!("{:.3} to {:.3}, mean {mean:.3}", covers[0], covers[covers.len() - 1])
        };
        let [own, exact] = covers.each_mut().map(range);
        println!(
            "worst ratio {worst:.2}; coverage {own} (exact {exact}); {:.2} s a stream\n",
            seconds / draws as f64
        );
    }
    Ok(())
}

/// The error of an exact process on the same rows, and the share of the function in its band.
fn exact_process(
    function: &Function,
    x: &[f64],
    y: &[f64],
    test: &[f64],
) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let &(_, d, f, noise, n) = function;
    let mean = y.iter().sum::<f64>() / n as f64;
    let std = (y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
    let scaled = |x: &[f64]| -> Vec<f64> { x.iter().map(|x| x / 5.0 - 1.0).collect() };
    let mut process = ExactProcess::new(Family::Rbf, d, (noise / std).powi(2))?;
    let mut hyper = process.hyperparameters()?;
    let starts = vec![if d == 1 { 0.1 } else { 0.4 }; hyper.kernels[0].parameter_count()];
    let names = hyper.kernels[0].parameter_names();
    let values: Vec<f64> =
        names.iter().zip(starts).map(|(n, l)| if n.contains("lengthscale") { l } else { 1.0 }).collect();
    hyper.kernels[0].set_parameters(&values)?;
    process.set_hyperparameters(&hyper)?;
    let y = y.iter().map(|y| (y - mean) / std).collect();
    process.observe_rows(&Rows { x: scaled(x), y, noise: vec![1.0; n] })?;
    process.refit(&HyperSpace::new(&hyper), &LbfgsB { max_evaluations: 15, ..LbfgsB::default() })?;
    let (mut error, mut covered) = (0.0, 0);
    for x in test.chunks_exact(d) {
        let said = process.predict(&scaled(x))?;
        let off = mean + std * said.mean - f(x);
        error += off * off;
        covered += u32::from(off.abs() <= 1.96 * std * said.variance.sqrt());
    }
    Ok(((error / 1000.0).sqrt(), f64::from(covered) / 1000.0))
}
