//! Forecasts of real series: the measurements of `docs/forecasting.md`.
//!
//! ```sh
//! cargo run --release -p wiski --example forecast [co2|nyc_taxi|vic_elec|speed] [declared] [lags|nolags]
//! cargo run --release -p wiski --example forecast endless [rows]
//! ```
//!
//! `co2`: 43 years of weekly CO₂, fitted on the first 80 % and asked for the rest, with the season declared and found.
//! With `declared` the seasons are told, with `nolags` or `lags` whether earlier values are inputs.
//! `nyc_taxi`, `vic_elec`: half-hourly rows, learned one after the other; one step ahead along the stream, and a day
//! and a week ahead from 40 origins (for vic_elec with the temperature and holidays of the days ahead), beside what was
//! seen a week before. `speed`: the time of an update with trend, day, week and year. `endless`: time and memory along so
//! many rows (10⁷). Data are read from `$WISKI_DATA`.

use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use wiski::Result;
use wiski::time::{ForecastSettings, Forecaster, Lags, Seasons};

/// The columns of a compressed CSV file.
fn columns(name: &str) -> Option<Vec<Vec<f64>>> {
    let folder = std::env::var("WISKI_DATA").map_or_else(|_| PathBuf::from("data"), PathBuf::from);
    let file = std::fs::File::open(folder.join(format!("{name}.csv.gz"))).ok()?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).ok()?;
    let width = text.lines().next()?.split(',').count();
    let mut out = vec![Vec::new(); width];
    for line in text.lines().skip(1) {
        line.split(',')
            .zip(&mut out)
            .for_each(|(cell, column)| column.push(cell.parse().unwrap_or(f64::NAN)));
    }
    Some(out)
}

fn rmse(errors: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = errors.fold((0.0, 0.0), |(s, n), e| (s + e * e, n + 1.0));
    (sum / n).sqrt()
}

fn describe(model: &Forecaster) {
    let seasons: Vec<String> = model.seasons().iter().map(|s| format!("{s:.4}")).collect();
    println!(
        "  seasons {}, lags {:?}, {} coordinates",
        seasons.join(" "),
        model.lags(),
        model.system().map_or(0, wiski::time::System::dim)
    );
    let weights: Vec<String> =
        [1, 2, 4, 8, 24, 48, 336].iter().map(|h| format!("{:.2}", model.weight(*h))).collect();
    println!("  weights of the first model at 1, 2, 4, 8, 24, 48, 336 steps: {}", weights.join(" "));
    if let Some(system) = model.system() {
        for component in system.components() {
            let names = component.parameter_names().iter().zip(component.parameters());
            let text: Vec<String> = names.map(|(n, v)| format!("{n} {v:.3e}")).collect();
            println!("    {:>2} coordinates: {}", component.dim(), text.join(", "));
        }
        println!("    noise {:.3e}", system.noise());
    }
}

fn co2() -> Result<()> {
    let Some(c) = columns("co2_weekly") else {
        skipped("co2_weekly");
        return Ok(());
    };
    let (t, y) = (&c[0], &c[1]);
    let cut = t.len() * 4 / 5;
    for (name, seasons) in [("season 1y", Seasons::Given(vec![1.0])), ("season found", Seasons::Auto)] {
        let begin = Instant::now();
        let horizon = Some(t[t.len() - 1] - t[cut]);
        let mut model =
            Forecaster::new(ForecastSettings { seasons, horizon, ..ForecastSettings::default() })?;
        model.extend(&t[..cut], &[], &y[..cut])?;
        let rest = if model.lags().is_empty() {
            model.forecast_at(&t[cut..], &[], 0.95)?
        } else {
            // Every step, and of them those nearest to the rows.
            let step = model.step().unwrap_or(1.0);
            let steps = ((t[t.len() - 1] - t[cut - 1]) / step).round() as usize;
            let all = model.forecast(steps, &[], 0.95)?;
            let at = |t: &f64| (((t - model.last_time().unwrap_or(0.0)) / step).round() as usize).max(1) - 1;
            let pick = |v: &[f64]| t[cut..].iter().map(|t| v[at(t).min(steps - 1)]).collect();
            wiski::time::Forecast {
                times: t[cut..].to_vec(),
                mean: pick(&all.mean),
                std: pick(&all.std),
                lower: pick(&all.lower),
                upper: pick(&all.upper),
            }
        };
        let n = rest.mean.len() as f64;
        let inside =
            (0..rest.mean.len()).filter(|&i| rest.lower[i] <= y[cut + i] && y[cut + i] <= rest.upper[i]);
        println!(
            "co2 {name}: RMSE {:.3}, coverage {:.3}, mean width {:.2}, {:.2} s",
            rmse((0..rest.mean.len()).map(|i| y[cut + i] - rest.mean[i])),
            inside.count() as f64 / n,
            rest.lower.iter().zip(&rest.upper).map(|(l, u)| u - l).sum::<f64>() / n,
            begin.elapsed().as_secs_f64()
        );
        describe(&model);
    }
    Ok(())
}

/// The steps of a week of half-hourly rows.
const WEEK: usize = 336;

/// Rolling forecasts of a half-hourly series.
fn rolling(name: &str, first: usize, seasons: Seasons, lags: Lags) -> Result<()> {
    let Some(c) = columns(name) else {
        skipped(name);
        return Ok(());
    };
    let (t, y) = (&c[0], &c[c.len() - 1]);
    let width = c.len() - 2;
    let x: Vec<f64> =
        (0..t.len()).flat_map(|i| (1..=width).map(move |k| (i, k))).map(|(i, k)| c[k][i]).collect();
    let origins: Vec<usize> = (0..40).map(|k| first + (t.len() - WEEK - 1 - first) * k / 39).collect();
    let settings = ForecastSettings {
        seasons,
        lags,
        columns: vec![wiski::Column::Numeric; width],
        horizon: Some(168.0),
        ..ForecastSettings::default()
    };
    let begin = Instant::now();
    let mut model = Forecaster::new(settings)?;
    let (mut one, mut covered) = (Vec::new(), 0);
    let (mut errors, mut naive, mut inside) = (Vec::new(), Vec::new(), vec![0usize; WEEK]);
    let mut width_sum = 0.0;
    let mut checked = 0;
    for i in 0..t.len() {
        // Coverage is read off four times as many origins: a share of 40 would be known to a few per cent only.
        let between =
            i > first && i + WEEK < t.len() && (i - first).is_multiple_of((t.len() - WEEK - first) / 160);
        if origins.contains(&i) || between {
            let rows = i..i + WEEK;
            let ahead = model.forecast(WEEK, &x[rows.start * width..rows.end * width], 0.95)?;
            checked += 1;
            for (k, row) in rows.enumerate() {
                if origins.contains(&i) {
                    errors.push((k, y[row] - ahead.mean[k]));
                    naive.push((k, y[row] - y[row - WEEK]));
                }
                inside[k] += usize::from(ahead.lower[k] <= y[row] && y[row] <= ahead.upper[k]);
                width_sum += ahead.upper[k] - ahead.lower[k];
            }
        }
        if let Some(p) = model.observe(t[i], &x[i * width..(i + 1) * width], Some(y[i]))? {
            one.push(y[i] - p.mean);
            covered += usize::from((y[i] - p.mean).abs() < 1.96 * p.std);
        }
    }
    let up_to = |list: &[(usize, f64)], steps: usize| rmse(list.iter().filter(|e| e.0 < steps).map(|e| e.1));
    let share = |from: usize, to: usize| {
        inside[from..to].iter().sum::<usize>() as f64 / ((to - from) * checked) as f64
    };
    println!(
        "{name}: one step {:.1} (coverage {:.3}, {} rows; after 1000 {:.1}); day {:.0} (a week before {:.0}), week {:.0} ({:.0})",
        rmse(one.iter().copied()),
        covered as f64 / one.len() as f64,
        one.len(),
        rmse(one[(one.len() + 1000 - t.len()).min(one.len() - 1)..].iter().copied()),
        up_to(&errors, 48),
        up_to(&naive, 48),
        up_to(&errors, WEEK),
        up_to(&naive, WEEK),
    );
    let stretch = |from: usize, to: usize| {
        let skipped = t.len() - one.len();
        rmse(one[from.saturating_sub(skipped)..(to - skipped).min(one.len())].iter().copied())
    };
    println!(
        "  one step at rows up to 400 {:.0}, 600 {:.0}, 900 {:.0}, 1400 {:.0}, 2000 {:.0}, 4000 {:.0}, then {:.0}",
        stretch(0, 400),
        stretch(400, 600),
        stretch(600, 900),
        stretch(900, 1400),
        stretch(1400, 2000),
        stretch(2000, 4000),
        stretch(4000, t.len()),
    );
    println!(
        "  coverage at steps 1–8 {:.3}, 9–24 {:.3}, 25–48 {:.3}, day 2 {:.3}, 3 {:.3}, 4–5 {:.3}, 6–7 {:.3}; mean width {:.0}; {:.1} s",
        share(0, 8),
        share(8, 24),
        share(24, 48),
        share(48, 96),
        share(96, 144),
        share(144, 240),
        share(240, 336),
        width_sum / (checked * WEEK) as f64,
        begin.elapsed().as_secs_f64()
    );
    describe(&model);
    Ok(())
}

/// The time of an update with trend, day, week and year.
fn speed() -> Result<()> {
    let seasons = Seasons::Given(vec![48.0, 336.0, 17_532.0]);
    let mut model = Forecaster::new(ForecastSettings { seasons, ..ForecastSettings::default() })?;
    let value = |i: usize| {
        let t = i as f64 * std::f64::consts::TAU;
        let week = if i / 48 % 7 < 5 { 1.0 } else { 0.4 };
        week * ((t / 48.0).sin() + 0.5 * (t / 24.0).cos() + 0.2 * (t / 12.0).sin())
            + (t / 17_532.0).cos()
            + 0.1 * (t * 0.618).sin()
    };
    let rows = 4000;
    let times: Vec<f64> = (0..rows).map(|i| i as f64).collect();
    let targets: Vec<f64> = (0..rows).map(value).collect();
    let begin = Instant::now();
    model.extend(&times, &[], &targets)?;
    println!("speed: first fit {:.2} s", begin.elapsed().as_secs_f64());
    describe(&model);
    let more = 3000;
    let begin = Instant::now();
    for i in rows..rows + more {
        model.observe(i as f64, &[], Some(value(i)))?;
    }
    println!("  {:.1} µs an update", begin.elapsed().as_secs_f64() / more as f64 * 1e6);
    Ok(())
}

/// The memory of this process, in MB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}

/// Time and memory along a stream with trend, day, week and year: rush hours on working days, a year, noise.
fn endless(rows: u64) -> Result<()> {
    let seasons = Seasons::Given(vec![48.0, 336.0, 17_532.0]);
    let mut model = Forecaster::new(ForecastSettings { seasons, ..ForecastSettings::default() })?;
    let mut noise = 1u64;
    let mut value = |i: u64| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (hour, day) = ((i % 48) as f64 / 2.0, i / 48 % 7);
        let rush = (-((hour - 8.0) / 0.8).powi(2)).exp() + (-((hour - 18.0) / 1.5).powi(2)).exp();
        let work = if day < 5 { 12.0 } else { 0.0 };
        let year = 10.0 * (i as f64 * std::f64::consts::TAU / 17_532.0).sin();
        let random = (noise >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        year + work * rush + 6.0 * ((hour - 9.0) * std::f64::consts::PI / 12.0).sin() + 3.0 * random
    };
    println!("{:>10} {:>9} {:>9} {:>7}", "rows", "µs a row", "slowest", "MB");
    let (mut done, mut goal) = (0, 1000);
    while done < rows {
        let begin = Instant::now();
        let mut slowest = 0f64;
        let from = done;
        while done < goal.min(rows) {
            let row = Instant::now();
            model.observe(done as f64, &[], Some(value(done)))?;
            slowest = slowest.max(row.elapsed().as_secs_f64());
            done += 1;
        }
        let each = 1e6 * begin.elapsed().as_secs_f64() / (done - from) as f64;
        println!("{done:>10} {each:>9.1} {slowest:>8.3}s {:>7.1}", resident());
        goal = if done < 1_000_000 { 10 * done } else { done + 1_000_000 };
    }
    describe(&model);
    Ok(())
}

fn skipped(name: &str) {
    println!("{name}: skipped, its file is not in the data folder");
}

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.first().is_some_and(|w| w == "endless") {
        return endless(wanted.get(1).and_then(|rows| rows.parse().ok()).unwrap_or(10_000_000));
    }
    let is = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    let off = |lags: &str| {
        if wanted.iter().any(|w| w == lags) {
            Lags::Given(Vec::new())
        } else if wanted.iter().any(|w| w == "lags") {
            Lags::Given(vec![1, 2, 3, 4, 47, 48, 49, 50, 335, 336, 337, 338])
        } else {
            Lags::Auto
        }
    };
    let seasons = if wanted.iter().any(|w| w == "declared") {
        Seasons::Given(vec![24.0, 168.0])
    } else {
        Seasons::Auto
    };
    if is("co2") {
        co2()?;
    }
    if is("nyc_taxi") {
        rolling("nyc_taxi", 5000, seasons.clone(), off("nolags"))?;
    }
    if is("vic_elec") {
        rolling("vic_elec", 20_000, seasons, off("nolags"))?;
    }
    if is("speed") {
        speed()?;
    }
    Ok(())
}
