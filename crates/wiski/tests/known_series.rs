//! Series whose best forecast is known: what the forecaster loses by having to find the model out.
//!
//! Each series is drawn from a model that the forecaster is not told, and forecast one and ten steps ahead along the stream.
//! Beside it stands the filter of the true model with its true parameters, written out here. Ratios of RMSE are taken over
//! all seeds together. `WISKI_SEEDS=20 cargo nextest run --workspace -E 'binary(known_series)' --no-capture` prints the table
//! for more seeds, and `WISKI_SERIES=walk` that of one kind.

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::f64::consts::TAU;
use wiski::time::{ForecastSettings, Forecaster};

/// The steps ahead of the second score.
const FAR: usize = 10;

/// A local linear trend with an AR(1), a season and noise that the best forecast knows: everything below is one of them.
#[derive(Clone, Copy, Default)]
struct Truth {
    /// Variances a step of level and slope.
    level: f64,
    slope: f64,
    noise: f64,
    /// The factor of an AR(1) and the variance of its innovations.
    factor: f64,
    wave: f64,
    /// The slope at the start.
    rise: f64,
    /// The amplitude of a season of 24 steps with two harmonics.
    season: f64,
}

const SERIES: [(&str, Truth); 10] = {
    let none = Truth { level: 0.0, slope: 0.0, noise: 0.0, factor: 0.0, wave: 0.0, rise: 0.0, season: 0.0 };
    [
        ("white noise", Truth { noise: 1.0, ..none }),
        ("walk", Truth { level: 1.0, ..none }),
        ("walk with noise", Truth { level: 1.0, noise: 4.0, ..none }),
        ("slow walk with noise", Truth { level: 0.01, noise: 1.0, ..none }),
        ("AR(1)", Truth { factor: 0.8, wave: 1.0, ..none }),
        ("AR(1) with noise", Truth { factor: 0.95, wave: 1.0, noise: 2.0, ..none }),
        ("trend with noise", Truth { rise: 0.02, noise: 1.0, ..none }),
        ("local linear trend", Truth { level: 0.1, slope: 1e-4, noise: 1.0, ..none }),
        ("season with noise", Truth { season: 3.0, noise: 1.0, ..none }),
        ("season on a walk", Truth { season: 3.0, level: 0.3, noise: 0.5, ..none }),
    ]
};

impl Truth {
    fn season(&self, i: usize) -> f64 {
        let angle = TAU * i as f64 / 24.0;
        self.season * (angle.sin() + 0.5 * (2.0 * angle + 1.0).cos())
    }

    fn draw(&self, n: usize, seed: u64) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut normal =
            |variance: f64| variance.sqrt() * Distribution::<f64>::sample(&StandardNormal, &mut random);
        let (mut level, mut slope) = (10.0, self.rise);
        let mut wave = if self.wave > 0.0 { normal(self.wave / (1.0 - self.factor.powi(2))) } else { 0.0 };
        (0..n)
            .map(|i| {
                level += slope + normal(self.level);
                slope += normal(self.slope);
                wave = self.factor * wave + normal(self.wave);
                level + wave + self.season(i) + normal(self.noise)
            })
            .collect()
    }

    /// What the filter of the true model says before each row: means one and [`FAR`] steps ahead, and the variance one step
    /// ahead.
    fn best(&self, y: &[f64]) -> Vec<(f64, f64, f64)> {
        // Level, slope, wave; the level's start is next to unknown, unless it is known to stay where it starts.
        let fixed = self.level == 0.0 && self.slope == 0.0;
        let mut m = [10.0, self.rise, 0.0];
        let mut p = [[0.0; 3]; 3];
        p[0][0] = if fixed { 0.0 } else { 1e4 };
        p[2][2] = if self.wave > 0.0 { self.wave / (1.0 - self.factor.powi(2)) } else { 0.0 };
        let f = [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, self.factor]];
        let h = [1.0, 0.0, 1.0];
        let q = [self.level, self.slope, self.wave];
        let mut out = Vec::new();
        for (i, y) in y.iter().enumerate() {
            let ahead = |k: usize| {
                m[0] + k as f64 * m[1] + self.factor.powi(k as i32) * m[2] + self.season(i + k - 1)
            };
            let (one, far) = (ahead(1), ahead(FAR));
            let moved: [f64; 3] = std::array::from_fn(|r| (0..3).map(|c| f[r][c] * m[c]).sum());
            let mut spread = [[0.0; 3]; 3];
            for r in 0..3 {
                for c in 0..3 {
                    spread[r][c] = if r == c { q[r] } else { 0.0 };
                    for a in 0..3 {
                        for b in 0..3 {
                            spread[r][c] += f[r][a] * p[a][b] * f[c][b];
                        }
                    }
                }
            }
            let image: [f64; 3] = std::array::from_fn(|r| (0..3).map(|c| spread[r][c] * h[c]).sum());
            let variance = image[0] + image[2] + self.noise;
            out.push((one, far, variance));
            let error = y - self.season(i) - moved[0] - moved[2];
            m = std::array::from_fn(|r| moved[r] + image[r] / variance * error);
            for r in 0..3 {
                for c in 0..3 {
                    p[r][c] = spread[r][c] - image[r] * image[c] / variance;
                }
            }
        }
        out
    }
}

/// Sums of squares and counts, of the forecaster and of the true model.
#[derive(Clone, Copy, Default)]
struct Scores {
    squares: [f64; 2],
    far: [f64; 2],
    density: [f64; 2],
    inside: f64,
    far_inside: f64,
    count: f64,
    far_count: f64,
}

impl Scores {
    fn ratio(&self) -> f64 {
        (self.squares[0] / self.squares[1]).sqrt()
    }

    fn far_ratio(&self) -> f64 {
        (self.far[0] / self.far[1]).sqrt()
    }
}

fn log_density(error: f64, variance: f64) -> f64 {
    -0.5 * (error * error / variance + (TAU * variance).ln())
}

/// Learns `first` rows at once and goes on row by row.
fn score(truth: &Truth, first: usize, rows: usize, seed: u64, into: &mut Scores) {
    let y = truth.draw(rows + FAR, seed);
    let best = truth.best(&y);
    let times: Vec<f64> = (0..rows).map(|i| i as f64).collect();
    let mut model = Forecaster::new(ForecastSettings::default()).unwrap();
    model.extend(&times[..first], &[], &y[..first]).unwrap();
    for i in first..rows {
        // Far ahead every fifth row: neighbors say nearly the same.
        if i % 5 == 0 {
            let ahead = model.forecast(FAR, &[], 0.95).unwrap();
            let target = y[i + FAR - 1];
            into.far[0] += (target - ahead.mean[FAR - 1]).powi(2);
            into.far[1] += (target - best[i].1).powi(2);
            into.far_inside +=
                f64::from(u8::from(ahead.lower[FAR - 1] <= target && target <= ahead.upper[FAR - 1]));
            into.far_count += 1.0;
        }
        let said = model.observe(times[i], &[], Some(y[i])).unwrap().unwrap();
        let error = y[i] - said.mean;
        into.squares[0] += error * error;
        into.squares[1] += (y[i] - best[i].0).powi(2);
        into.density[0] += log_density(error, said.std * said.std);
        into.density[1] += log_density(y[i] - best[i].0, best[i].2);
        into.inside += f64::from(u8::from(error.abs() < 1.96 * said.std));
        into.count += 1.0;
    }
}

fn seeds(default: u64) -> u64 {
    std::env::var("WISKI_SEEDS").ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Prints the scores of all kinds of series, and returns them; those with a season if it is seen often enough.
fn table(first: usize, rows: usize, seeds: u64) -> Vec<(&'static str, Scores)> {
    println!(
        "rows {first} to {rows}, {seeds} seeds: RMSE beside the true model's, nats lost a row, coverage of 95 %"
    );
    let wanted = std::env::var("WISKI_SERIES").unwrap_or_default();
    let mut out = Vec::new();
    for (name, truth) in SERIES.iter().filter(|s| s.0.contains(&wanted)) {
        if truth.season > 0.0 && first < 128 {
            continue;
        }
        let mut scores = Scores::default();
        (0..seeds).for_each(|seed| score(truth, first, rows, 5000 + seed, &mut scores));
        println!(
            "  {name:<22} one step {:.3}, nats {:.3}, inside {:.3}; ten steps {:.3}, inside {:.3}",
            scores.ratio(),
            (scores.density[1] - scores.density[0]) / scores.count,
            scores.inside / scores.count,
            scores.far_ratio(),
            scores.far_inside / scores.far_count
        );
        out.push((*name, scores));
    }
    out
}

#[test]
fn long_series() {
    for (name, scores) in table(256, 1000, seeds(3)) {
        assert!(scores.ratio() < 1.05, "{name}: {:.3}", scores.ratio());
    }
}

#[test]
fn short_series() {
    for (name, scores) in table(40, 160, seeds(8)) {
        assert!(scores.ratio() < 1.06, "{name}: {:.3}", scores.ratio());
    }
}

#[test]
fn very_short_series() {
    for (name, scores) in table(10, 40, seeds(24)) {
        assert!(scores.ratio() < 1.12, "{name}: {:.3}", scores.ratio());
    }
}
