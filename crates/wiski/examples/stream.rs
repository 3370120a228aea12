//! Learns the electric power of a heat pump from the hour of the day and the outdoor temperature, one reading
//! at a time, and never looks at a reading twice.
//!
//! ```text
//! cargo run --release -p wiski --example stream
//! ```
//!
//! Each reading is first predicted and only then learned, so that every number in the final table is about
//! readings the model had not seen. Progress goes to stderr, the result to stdout. The readings are synthetic:
//! `make_stream.rs` next to this file wrote them.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use wiski::internals::Pool;
use wiski::internals::evidence::Evidence;
use wiski::internals::learn::{Bounds, FnObjective};
use wiski::{Family, Grid, Kernel, LbfgsB, OnlineGp, Prediction, Predictor, Result, Wiski};

/// Columns `hour` (0 to 24), `temperature` (°C) and `power` (kW), in the order in which they were read.
const READINGS: &str = include_str!("data/heat_pump.csv");

/// A Gaussian process without data answers 0, so it learns the deviation from a typical power. In kW.
const TYPICAL_POWER: f64 = 1.25;

/// Prior eigenvalues below this share of the largest are left out.
const RANK_TOLERANCE: f64 = 1e-9;

/// One hyperparameter: what it means, where it starts, and the range in which it is learned.
struct Parameter {
    name: &'static str,
    start: f64,
    range: (f64, f64),
}

/// Those of the kernel, in the order of `Kernel::parameters`, then the noise variance. The ranges keep the
/// first few readings from settling the matter: in particular, no length-scale gets below the grid's spacing.
/// The period is known, so its range is a single number.
const PARAMETERS: [Parameter; 5] = [
    Parameter { name: "variance of the surface, kW²", start: 1.0, range: (0.05, 20.0) },
    Parameter { name: "length-scale of the hours, period/2π", start: 1.0, range: (0.2, 5.0) },
    Parameter { name: "period, hours", start: 24.0, range: (24.0, 24.0) },
    Parameter { name: "length-scale of the temperature, °C", start: 10.0, range: (3.0, 60.0) },
    Parameter { name: "variance of the noise, kW²", start: 0.1, range: (0.001, 1.0) },
];
const NOISE: usize = PARAMETERS.len() - 1;

fn main() -> Result<()> {
    // A surface over two inputs: it repeats from day to day, and is smooth along the temperature.
    let grid = Grid::covering(&[(0.0, 24.0), (-20.0, 40.0)], &[35, 24])?;
    let mut kernel = Kernel::on_axes(Family::Periodic, 2, &[0])? * Kernel::on_axes(Family::Rbf, 2, &[1])?;
    let start = PARAMETERS.map(|p| p.start);
    kernel.set_parameters(&start[..NOISE])?;
    let builder = Wiski::builder().grid(grid).kernel(kernel).noise(start[NOISE]);
    let mut model = builder.rank_tolerance(RANK_TOLERANCE).build()?;

    let mut score = Score::default();
    let mut progress = Progress::new();
    let mut pool = Pool::default();
    let (mut refits, mut refitting) = (0, 0.0);
    let mut next_refit = 100.0;
    for line in READINGS.lines().skip(1) {
        let [hour, temperature, power] = parse(line);

        // One call predicts the reading, then learns it.
        let prediction = model.step(&[hour, temperature], power - TYPICAL_POWER)?;
        score.add(&prediction, power);

        // Hyperparameters change less and less, so they are fitted anew whenever there are 1.3 times as many
        // readings: nine times for every tenfold.
        if model.count() >= next_refit {
            let start = Instant::now();
            refit(&mut model, &mut pool)?;
            next_refit = 1.3 * model.count();
            refits += 1;
            refitting += start.elapsed().as_secs_f64();
        }
        progress.show(&score);
    }
    progress.finish();

    let seconds = progress.seconds();
    print_table(&model, &score);
    println!(
        "\n  {:.0} rows/s: {seconds:.2} s, of which {refits} refits took {refitting:.2} s",
        score.count / seconds
    );
    print_map(&model.predictor().expect("a predictor"));
    Ok(())
}

fn parse(line: &str) -> [f64; 3] {
    let mut cells = line.split(',').map(|cell| cell.parse().expect("a number"));
    std::array::from_fn(|_| cells.next().expect("three columns"))
}

/// Maximizes the evidence in the logarithms of all hyperparameters.
///
/// The readings themselves are long gone: the evidence comes from the model's statistics, at the same cost
/// after a thousand readings as after a billion.
fn refit(model: &mut Wiski, pool: &mut Pool) -> Result<()> {
    let (stats, kernel) = (model.stats(), &model.kernels()[0]);
    let unpack = |logs: &[f64]| -> Result<(Kernel, f64)> {
        let values: Vec<f64> = logs.iter().map(|log| log.exp()).collect();
        let mut kernel = kernel.clone();
        kernel.set_parameters(&values[..NOISE])?;
        Ok((kernel, values[NOISE]))
    };
    // The optimizer minimizes: minus the evidence of one reading on average. The chain rule turns the
    // derivative in a value v into v times that, the derivative in its logarithm.
    let mut objective = FnObjective::new(PARAMETERS.len(), |logs, gradient| {
        let (kernel, noise) = unpack(logs)?;
        let (evidence, posterior) =
            Evidence::with_pool(stats, std::slice::from_ref(&kernel), noise, RANK_TOLERANCE, pool)?;
        posterior.recycle(pool);
        for (i, value) in kernel.parameters().into_iter().enumerate() {
            gradient[i] = -evidence.by_kernel[0][i] * value / stats.count();
        }
        gradient[NOISE] = -evidence.by_noise * noise / stats.count();
        Ok(-evidence.value / stats.count())
    });

    let (lowest, highest) = PARAMETERS.iter().map(|p| (p.range.0.ln(), p.range.1.ln())).unzip();
    let present: Vec<f64> = kernel.parameters().into_iter().chain([model.noise()]).map(f64::ln).collect();
    let optimizer = LbfgsB { max_iterations: 30, gradient_tolerance: 1e-4, ..LbfgsB::default() };
    let found = optimizer.minimize(&mut objective, &present, &Bounds::new(lowest, highest)?)?;
    let (kernel, noise) = unpack(&found.x)?;
    model.set_hyperparameters(&[kernel], noise)
}

/// How good the predictions were, each made before its reading was seen.
#[derive(Default)]
struct Score {
    count: f64,
    squared_error: f64,
    log_density: f64,
    covered: f64,
    /// Mean and squared error of the simplest rival, which always predicts the mean so far.
    mean: f64,
    squared_error_of_mean: f64,
}

impl Score {
    fn add(&mut self, prediction: &Prediction, power: f64) {
        let error = power - TYPICAL_POWER - prediction.mean;
        self.squared_error += error * error;
        self.log_density += prediction.log_density(power - TYPICAL_POWER);
        self.covered += f64::from(error.abs() <= 1.96 * prediction.std());
        self.squared_error_of_mean += (power - self.mean).powi(2);
        self.count += 1.0;
        self.mean += (power - self.mean) / self.count;
    }

    fn rmse(&self) -> f64 {
        (self.squared_error / self.count).sqrt()
    }

    fn coverage_percent(&self) -> f64 {
        100.0 * self.covered / self.count
    }
}

/// One line on stderr that is rewritten; where stderr is no terminal, a line for every 1000 readings.
struct Progress {
    start: Instant,
    last: Instant,
    rewrite: bool,
}

impl Progress {
    fn new() -> Self {
        let start = Instant::now();
        Self { start, last: start, rewrite: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, score: &Score) {
        let due = if self.rewrite {
            self.last.elapsed() > Duration::from_millis(50)
        } else {
            score.count % 1000.0 == 0.0
        };
        if !due {
            return;
        }
        self.last = Instant::now();
        let line = format!(
            "{:>5} readings   {:>6.0} rows/s   RMSE {:.3} kW   coverage {:.1} %",
            score.count,
            score.count / self.seconds(),
            score.rmse(),
            score.coverage_percent(),
        );
        if self.rewrite {
            eprint!("\r{line}");
        } else {
            eprintln!("{line}");
        }
    }

    /// Clears the line.
    fn finish(&self) {
        if self.rewrite {
            eprint!("\r{:70}\r", "");
        }
    }

    fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}

fn print_table(model: &Wiski, score: &Score) {
    let row = |name: &str, value: String| println!("  {name:<44} {value}");
    println!("Heat pump, each reading predicted before it was learned");
    row("readings", format!("{:.0}", score.count));
    row("RMSE", format!("{:.3} kW", score.rmse()));
    row("  of the mean so far", format!("{:.3} kW", (score.squared_error_of_mean / score.count).sqrt()));
    row("negative log density", format!("{:.3} per reading", -score.log_density / score.count));
    row("inside the 95 % band", format!("{:.1} %", score.coverage_percent()));
    println!("\nLearned");
    let learned = model.kernels()[0].parameters().into_iter().chain([model.noise()]);
    for (parameter, value) in PARAMETERS.iter().zip(learned) {
        row(parameter.name, format!("{value:.3}"));
    }
    row("noise of a reading", format!("{:.3} kW (the readings were made with 0.15)", model.noise().sqrt()));
    row("grid points m, rank p", format!("{}, {}", model.stats().lattice().len(), model.rank()));
}

/// The learned surface as shades, and blank where the model says that it does not know.
fn print_map(predictor: &Predictor) {
    const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
    const KW_PER_SHADE: f64 = 0.75;
    const UNKNOWN: f64 = 0.25;
    println!("\nPower over hour of the day and outdoor temperature\n");
    for temperature in (-6..=15).rev().map(|i| 2 * i) {
        let shade = |half_hour: i32| {
            let at = [f64::from(half_hour) / 2.0 + 0.25, f64::from(temperature)];
            let prediction = predictor.predict(&at).expect("on the grid");
            if prediction.variance.sqrt() > UNKNOWN {
                return ' ';
            }
            let power = (prediction.mean + TYPICAL_POWER).max(0.0);
            SHADES[((power / KW_PER_SHADE) as usize).min(SHADES.len() - 1)]
        };
        let line: String = (0..48).map(shade).collect();
        let label = if temperature % 4 == 0 { format!("{temperature} °C") } else { String::new() };
        println!("  {label:>7} ┤{line}");
    }
    println!("  {:>7} └{}┴", "", "┴───────".repeat(6));
    println!("  {:>7}  0       4       8       12      16      20      24 h", "");
    print!("\n  kW from: ");
    for (i, shade) in SHADES.iter().enumerate() {
        print!("{shade} {:.2}   ", i as f64 * KW_PER_SHADE);
    }
    println!("blank: uncertain by more than {UNKNOWN} kW");
}
