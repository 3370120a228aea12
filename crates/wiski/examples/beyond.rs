//! How honest a model of many inputs is beyond its rows, with every default.
//!
//! ```text
//! cargo run --release -p wiski --example beyond -- [SEEDS] [ROWS]
//! ```
//!
//! For each function and seed: rows with normal inputs (or uniform ones), noise of a tenth; then the share of the true
//! function inside the latent 95 % band at rows drawn from the same inputs, times 1, 2, 3, 5 and 20, and the mean width
//! of the band in deviations of the targets.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::{OnlineRegressor, Settings};

/// Name, inputs, whether they are normal, function.
type Function = (&'static str, usize, bool, fn(&[f64]) -> f64);

const FUNCTIONS: [Function; 8] = [
    ("sin(2a) + bc", 5, true, |x| (2.0 * x[0]).sin() + x[1] * x[2]),
    ("sin(2a) + bc, uniform", 5, false, |x| (2.0 * x[0]).sin() + x[1] * x[2]),
    ("2a - b + c/2", 4, true, |x| 2.0 * x[0] - x[1] + 0.5 * x[2]),
    ("a² + |b| + c", 8, true, |x| x[0] * x[0] + x[1].abs() + x[2]),
    ("sin(a + b) c", 3, true, |x| (x[0] + x[1]).sin() * x[2]),
    ("10 sin(ab) + 5c² + 3d + e", 10, false, |x| {
        10.0 * (x[0] * x[1]).sin() + 5.0 * x[2] * x[2] + 3.0 * x[3] + x[4]
    }),
    ("exp(-|x|²/4)", 4, true, |x| (-x.iter().map(|x| x * x).sum::<f64>() / 4.0).exp()),
    ("sin(a) cos(b) + c d e/3", 6, true, |x| x[0].sin() * x[1].cos() + x[2] * x[3] * x[4] / 3.0),
];

const FACTORS: [f64; 5] = [1.0, 2.0, 3.0, 5.0, 20.0];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seeds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let rows: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    println!("{:<28} seed  {}", "function", FACTORS.map(|f| format!("{f:>11}x")).join(" "));
    for (name, d, is_normal, f) in FUNCTIONS {
        for seed in 0..seeds {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let normal = |rng: &mut Xoshiro256PlusPlus| -> f64 { StandardNormal.sample(rng) };
            let input = |rng: &mut Xoshiro256PlusPlus| {
                if is_normal { normal(rng) } else { 4.0 * rng.random::<f64>() - 2.0 }
            };
            let mut model = OnlineRegressor::new(d, Settings::default())?;
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..rows {
                let x: Vec<f64> = (0..d).map(|_| input(&mut rng)).collect();
                let y = f(&x) + 0.1 * normal(&mut rng);
                (sum, squares) = (sum + y, squares + y * y);
                model.observe(&x, y)?;
            }
            model.finish_search()?;
            let deviation = (squares / rows as f64 - (sum / rows as f64).powi(2)).sqrt();
            let share = |factor: f64| -> wiski::Result<String> {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(1000 + seed);
                let (mut hits, mut width) = (0u32, 0.0);
                for _ in 0..1000 {
                    let x: Vec<f64> = (0..d).map(|_| factor * input(&mut rng)).collect();
                    let p = model.predict_ahead(&x)?;
                    let half = 1.96 * p.variance.sqrt();
                    hits += u32::from((p.mean - f(&x)).abs() <= half);
                    width += 2.0 * half / deviation / 1000.0;
                }
                Ok(format!("{:.3}/{width:<6.3}", f64::from(hits) / 1000.0))
            };
            let shares = FACTORS.into_iter().map(share).collect::<wiski::Result<Vec<String>>>()?;
            println!("{name:<28} {seed:>4}  {}", shares.join(" "));
        }
    }
    Ok(())
}
