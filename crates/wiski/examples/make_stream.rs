//! Writes the stream that the example `stream` learns from: a year of an imaginary house with a heat pump,
//! read every 130 minutes. **The data are synthetic**: this program is where every number comes from.
//!
//! ```text
//! cargo run --release -p wiski --example make_stream > crates/wiski/examples/data/heat_pump.csv
//! ```
//!
//! The seed is fixed, so that the file can be made again; `./check --all` compares the two.

use std::f64::consts::TAU;

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;

const ROWS: u32 = 4000;
const HOURS_BETWEEN_ROWS: f64 = 130.0 / 60.0;

/// The standard deviation of a reading around the true power, in kW.
const NOISE: f64 = 0.15;

fn main() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(2021);
    let mut normal = || rng.sample::<f64, _>(StandardNormal);
    // Weather that lasts some three days, in °C around what the season and the hour let expect.
    let persistence = (-HOURS_BETWEEN_ROWS / 72.0).exp();
    let mut weather = 4.0 * normal();

    println!("hour,temperature,power");
    for row in 0..ROWS {
        let time = f64::from(row) * HOURS_BETWEEN_ROWS;
        let hour = time % 24.0;
        weather = persistence * weather + 4.0 * (1.0 - persistence * persistence).sqrt() * normal();
        let temperature = climate(time / 24.0, hour) + weather;
        let power = (true_power(hour, temperature) + NOISE * normal()).max(0.0);
        println!("{hour:.2},{temperature:.1},{power:.2}");
    }
}

/// What season and hour let expect, in °C: coldest in mid-January and before sunrise.
fn climate(day: f64, hour: f64) -> f64 {
    let season = -((day - 15.0) / 365.0 * TAU).cos();
    let daily = -((hour - 4.0) / 24.0 * TAU).cos();
    10.0 + 10.0 * season + (3.0 + season) * daily
}

/// The electric power in kW: heating below 16 °C at an efficiency that falls with the temperature, less of it
/// at night and more in the morning; hot water in the evening; cooling on hot afternoons.
fn true_power(hour: f64, temperature: f64) -> f64 {
    let bump = |center: f64, width: f64| {
        let distance = (hour - center + 12.0).rem_euclid(24.0) - 12.0;
        (-0.5 * (distance / width).powi(2)).exp()
    };
    let efficiency = 3.0 + 0.06 * temperature;
    let heating = 0.35 * softplus(16.0 - temperature, 2.0) / efficiency;
    let schedule = 1.0 - 0.5 * bump(1.5, 2.5) + 0.5 * bump(7.0, 1.3);
    let hot_water = 0.9 * bump(19.5, 1.2);
    let cooling = 0.25 * softplus(temperature - 23.0, 1.0) * bump(15.0, 3.0);
    0.4 + heating * schedule + hot_water + cooling
}

/// max(x, 0), rounded off over a width.
fn softplus(x: f64, width: f64) -> f64 {
    width * (x / width).exp().ln_1p()
}
