//! Forecasts of series that were made up, beside the seasonal naive forecast and Holt and Winters' exponential smoothing: the
//! last table of `docs/forecasting.md`.
//!
//! ```sh
//! cargo run --release -p wiski --example made_series [seeds]
//! ```
//!
//! Every method gets the same rows and 20 origins in the second half; RMSE over all steps ahead, all seeds together, and
//! the share inside 95 % intervals. The forecaster is told nothing but the times; the others are told the season, and the
//! smoothing factors are chosen on all rows before the first origin by the errors one step ahead.

use std::f64::consts::TAU;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::Result;
use wiski::time::{ForecastSettings, Forecaster};

/// The number of forecasts of each series.
const ORIGINS: usize = 20;

/// A series: one value a step, of which those that are NaN have no row.
struct Made {
    values: Vec<f64>,
    season: usize,
    horizon: usize,
}

struct Random(Xoshiro256PlusPlus);

impl Random {
    fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }

    fn uniform(&mut self) -> f64 {
        self.0.random()
    }
}

/// Hourly demand: rush hours on weekdays, quiet weekends, a holiday now and then that looks like a Sunday, and weather that
/// lasts some hours.
fn demand(random: &mut Random) -> Made {
    let mut weather = 0.0;
    let mut holiday = false;
    let value = |i: usize| {
        if i.is_multiple_of(24) {
            holiday = random.uniform() < 0.03;
        }
        weather = 0.95 * weather + 0.8 * random.normal();
        let (hour, day) = ((i % 24) as f64, i / 24 % 7);
        let rush = (-((hour - 8.0) / 1.5).powi(2)).exp() + (-((hour - 18.0) / 2.0).powi(2)).exp();
        let work = if day < 5 && !holiday { 1.0 } else { 0.35 };
        100.0
            + 20.0 * ((hour - 9.0) * TAU / 24.0).sin()
            + 40.0 * work * rush
            + weather
            + 2.0 * random.normal()
    };
    Made { values: (0..24 * 140).map(value).collect(), season: 168, horizon: 48 }
}

/// Monthly sales that grow by the year, more in December, with errors in proportion.
fn sales(random: &mut Random) -> Made {
    let mut level = 100f64.ln();
    let value = |i: usize| {
        level += 0.005 + 0.01 * random.normal();
        let month = (i % 12) as f64 * TAU / 12.0;
        let december = if i % 12 == 11 { 0.25 } else { 0.0 };
        (level + 0.1 * month.sin() + december + 0.03 * random.normal()).exp()
    };
    Made { values: (0..180).map(value).collect(), season: 12, horizon: 12 }
}

/// A sensor every ten minutes: a wave of a day on a level that wanders, one row in twenty lost, and off for hours now and
/// then.
fn sensor(random: &mut Random) -> Made {
    let (mut level, mut off) = (20.0, 0u32);
    let value = |i: usize| {
        level += 0.05 * random.normal();
        off = if off > 0 {
            off - 1
        } else if random.uniform() < 0.001 {
            30 + (150.0 * random.uniform()) as u32
        } else {
            0
        };
        let lost = off > 0 || random.uniform() < 0.05;
        let y = level + 3.0 * (i as f64 * TAU / 144.0).sin() + 0.3 * random.normal();
        if lost { f64::NAN } else { y }
    };
    Made { values: (0..144 * 25).map(value).collect(), season: 144, horizon: 144 }
}

/// Counts a day with a week in them.
fn counts(random: &mut Random) -> Made {
    let value = |i: usize| {
        let rate =
            [6.0, 5.0, 5.0, 6.0, 9.0, 14.0, 11.0][i % 7] * (1.0 + 0.3 * (i as f64 * TAU / 365.25).sin());
        // Poisson, by the time of arrivals.
        let (mut count, mut time) = (-1.0, 0.0);
        while time < rate {
            time -= (1.0 - random.uniform()).ln();
            count += 1.0;
        }
        count
    };
    Made { values: (0..900).map(value).collect(), season: 7, horizon: 28 }
}

/// Days without a season: a level that jumps once in a hundred days, and noise.
fn jumps(random: &mut Random) -> Made {
    let mut level = 50.0;
    let value = |_| {
        if random.uniform() < 0.01 {
            level += 8.0 * random.normal();
        }
        level + random.normal()
    };
    Made { values: (0..600).map(value).collect(), season: 1, horizon: 10 }
}

/// Holt and Winters: level, damped slope and season by exponential smoothing. A step without a value goes on by what is expected.
#[derive(Clone)]
struct Smoothing {
    factors: [f64; 3],
    level: f64,
    slope: f64,
    season: Vec<f64>,
    now: usize,
}

const DAMPING: f64 = 0.98;

impl Smoothing {
    fn new(first: &[f64], season: usize, factors: [f64; 3]) -> Self {
        let known: Vec<f64> = first.iter().copied().filter(|y| !y.is_nan()).collect();
        let level = known.iter().sum::<f64>() / known.len() as f64;
        let of = |k: usize| {
            let same: Vec<f64> =
                first.iter().skip(k).step_by(season).filter(|y| !y.is_nan()).copied().collect();
            if season == 1 || same.is_empty() {
                0.0
            } else {
                same.iter().sum::<f64>() / same.len() as f64 - level
            }
        };
        Self { factors, level, slope: 0.0, season: (0..season).map(of).collect(), now: 0 }
    }

    fn ahead(&self, steps: usize) -> f64 {
        let slopes: f64 = (1..=steps).map(|k| DAMPING.powi(k as i32)).sum();
        self.level + self.slope * slopes + self.season[(self.now + steps - 1) % self.season.len()]
    }

    fn learn(&mut self, y: f64) {
        let expected = self.ahead(1);
        let error = if y.is_nan() { 0.0 } else { y - expected };
        let [a, b, c] = self.factors;
        let place = self.now % self.season.len();
        self.level += DAMPING * self.slope + a * error;
        self.slope = DAMPING * self.slope + a * b * error;
        if self.season.len() > 1 {
            self.season[place] += c * (1.0 - a) * error;
        }
        self.now += 1;
    }

    /// The factors with the least errors one step ahead.
    fn fitted(values: &[f64], season: usize) -> Self {
        let first = &values[..(2 * season).max(10).min(values.len())];
        let mut best: Option<(f64, Self)> = None;
        for a in [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9] {
            for b in [0.0, 0.02, 0.1, 0.3] {
                for c in [0.0, 0.05, 0.1, 0.2, 0.4] {
                    let mut model = Self::new(first, season, [a, b, c]);
                    let mut sum = 0.0;
                    for y in values {
                        let error = y - model.ahead(1);
                        sum += if error.is_nan() { 0.0 } else { error * error };
                        model.learn(*y);
                    }
                    if best.as_ref().is_none_or(|(least, _)| sum < *least) {
                        best = Some((sum, model));
                    }
                }
            }
        }
        best.map_or_else(|| Self::new(first, season, [0.1, 0.0, 0.1]), |(_, model)| model)
    }
}

/// The newest value a whole number of seasons before a step, that there is.
fn naive(values: &[f64], origin: usize, row: usize, season: usize) -> f64 {
    let mut place = row as i64;
    while place >= 0 && (place >= origin as i64 || values[place as usize].is_nan()) {
        place -= season as i64;
    }
    if place >= 0 { values[place as usize] } else { f64::NAN }
}

fn score(name: &str, make: fn(&mut Random) -> Made, seeds: u64) -> Result<()> {
    let (mut squares, mut inside, mut count) = ([0.0; 3], 0.0, 0.0);
    let mut said = String::new();
    for seed in 0..seeds {
        let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(900 + seed));
        let Made { values, season, horizon } = make(&mut random);
        let n = values.len();
        let (first, last) = (n / 2, n - horizon);
        let mut model = Forecaster::new(ForecastSettings::default())?;
        let mut smoothing = Smoothing::fitted(&values[..first], season);
        let mut learned = 0;
        for k in 0..ORIGINS {
            let origin = first + (last - first) * k / (ORIGINS - 1);
            for i in learned..origin {
                if !values[i].is_nan() {
                    model.observe(i as f64, &[], Some(values[i]))?;
                }
                if i >= first {
                    smoothing.learn(values[i]);
                }
            }
            learned = origin;
            if !model.is_ready() {
                model.fit()?;
            }
            let rows: Vec<usize> = (origin..origin + horizon).filter(|i| !values[*i].is_nan()).collect();
            let times: Vec<f64> = rows.iter().map(|i| *i as f64).collect();
            let ahead = model.forecast_at(&times, &[], 0.95)?;
            for (j, &row) in rows.iter().enumerate() {
                let y = values[row];
                squares[0] += (y - ahead.mean[j]).powi(2);
                squares[1] += (y - naive(&values, origin, row, season)).powi(2);
                squares[2] += (y - smoothing.ahead(row + 1 - origin)).powi(2);
                inside += f64::from(u8::from(ahead.lower[j] <= y && y <= ahead.upper[j]));
                count += 1.0;
            }
        }
        if seed == 0 {
            said = format!("seasons {:?}, lags {:?}", model.seasons(), model.lags());
        }
    }
    let rmse = squares.map(|s: f64| (s / count).sqrt());
    println!(
        "{name}: {:.3}, naive {:.3}, smoothing {:.3}; inside 95 % {:.3}; {said}",
        rmse[0],
        rmse[1],
        rmse[2],
        inside / count
    );
    Ok(())
}

fn main() -> Result<()> {
    let seeds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    score("hourly demand", demand, seeds)?;
    score("monthly sales", sales, seeds)?;
    score("sensor with gaps", sensor, seeds)?;
    score("daily counts", counts, seeds)?;
    score("jumps", jumps, seeds)
}
