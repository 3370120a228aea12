//! The forecaster: forecasts against the dense process, snapshots, bounded memory, gaps, lags, errors.

use std::f64::consts::TAU;

use faer::Mat;
use faer::linalg::solvers::Solve;
use wiski::persist::{self, Columns, Durable, DurableOptions, Persistent, Row, StoredSeries, Sync, Target};
use wiski::time::{Component, ForecastSettings, Forecaster, Lags, Seasons, Smoothness, TrendKind};
use wiski::{Column, Error};

/// Numbers between −½ and ½ that look random (a linear congruential generator).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }
}

fn daily(n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut noise = Noise(3);
    let times: Vec<f64> = (0..n).map(|i| i as f64).collect();
    let level = |t: f64| 50.0 + 0.02 * t + 8.0 * (TAU * t / 24.0).sin() + 3.0 * (TAU * t / 12.0).cos();
    let targets = times.iter().map(|&t| level(t) + noise.next()).collect();
    (times, targets)
}

fn settings(lags: Lags) -> ForecastSettings {
    ForecastSettings { seasons: Seasons::Given(vec![24.0]), lags, ..ForecastSettings::default() }
}

fn none() -> Lags {
    Lags::Given(Vec::new())
}

/// The weights of a season's harmonics, by numerical integration of the periodic kernel.
fn weights(c: &Component) -> Vec<f64> {
    let Component::Season { harmonics, lengthscale, .. } = c else { return Vec::new() };
    let steps = 4096;
    let weight = |j: &u32| {
        let each = |k: usize| {
            let theta = TAU * k as f64 / steps as f64;
            ((theta.cos() - 1.0) / lengthscale.powi(2)).exp() * (f64::from(*j) * theta).cos()
        };
        (0..steps).map(each).sum::<f64>()
    };
    let all: Vec<f64> = harmonics.iter().map(weight).collect();
    let total: f64 = all.iter().sum();
    all.iter().map(|w| w / total).collect()
}

/// The kernel of a component without inputs, in steps from the first row on.
fn kernel(c: &Component, weights: &[f64], a: f64, b: f64) -> f64 {
    let (m, d) = (a.min(b), (a - b).abs());
    match c {
        Component::Trend { level_rate, slope_rate, start } => {
            start[0] + start[1] * a * b + level_rate * m + slope_rate * (m.powi(3) / 3.0 + d * m * m / 2.0)
        }
        Component::Matern { smoothness: Smoothness::Half, variance, lengthscale } => {
            variance * (-d / lengthscale).exp()
        }
        Component::Matern { smoothness: Smoothness::ThreeHalves, variance, lengthscale } => {
            let r = 3f64.sqrt() * d / lengthscale;
            variance * (1.0 + r) * (-r).exp()
        }
        Component::Season { period, harmonics, variance, lifetime, .. } => {
            let waves = harmonics.iter().zip(weights);
            let sum: f64 = waves.map(|(&j, w)| w * (TAU * f64::from(j) * d / period).cos()).sum();
            variance * (-d / lifetime).exp() * sum
        }
        other => panic!("no such component here: {other:?}"),
    }
}

/// Means of forecasts, irregular in time, equal those of a dense process with the learned hyperparameters; so do the
/// spread and the correlation of paths.
#[test]
fn forecasts_equal_the_dense_process() {
    let mut noise = Noise(11);
    let mut t = 0.0;
    let rows: Vec<(f64, f64)> = (0..260)
        .map(|_| {
            t += 0.3 + 1.4 * (noise.next() + 0.5);
            (t, 5.0 + 0.01 * t + (TAU * t / 12.0).sin() + 0.2 * noise.next())
        })
        .collect();
    let (times, targets): (Vec<f64>, Vec<f64>) = rows.into_iter().unzip();
    let given = ForecastSettings {
        seasons: Seasons::Given(vec![12.0]),
        lags: none(),
        step: Some(1.0),
        ..ForecastSettings::default()
    };
    let mut model = Forecaster::new(given).unwrap();
    model.extend(&times, &[], &targets).unwrap();
    let later: Vec<f64> = (0..40).map(|k| t + 0.7 * f64::from(k) + 0.1).collect();
    let ahead = model.forecast_at(&later, &[], 0.95).unwrap();

    let system = model.system().unwrap();
    let n = times.len();
    let mean = targets.iter().sum::<f64>() / n as f64;
    let deviation = (targets.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
    let all: Vec<f64> = times.iter().chain(&later).map(|t| t - times[0]).collect();
    let parts: Vec<(&Component, Vec<f64>)> = system.components().iter().map(|c| (c, weights(c))).collect();
    let k = Mat::from_fn(all.len(), all.len(), |i, j| {
        if i < j { 0.0 } else { parts.iter().map(|(c, w)| kernel(c, w, all[i], all[j])).sum::<f64>() }
    });
    let at = |i: usize, j: usize| if i < j { k[(j, i)] } else { k[(i, j)] };
    let gram = Mat::from_fn(n, n, |i, j| at(i, j) + if i == j { system.noise() } else { 0.0 });
    let y = Mat::from_fn(n, 1, |i, _| (targets[i] - mean) / deviation);
    let solved = gram.llt(faer::Side::Lower).unwrap().solve(&y);
    for (i, own) in ahead.mean.iter().enumerate() {
        let dense: f64 = (0..n).map(|j| at(n + i, j) * solved[(j, 0)]).sum();
        assert!((own - (mean + deviation * dense)).abs() < 1e-7 * deviation, "{i}: {own} {dense}");
    }
    let paths = model.sample_paths(&later, &[], 4000, 1).unwrap();
    for i in [0, 20, 39] {
        let spread = paths.iter().map(|p| (p[i] - ahead.mean[i]).powi(2)).sum::<f64>() / 4000.0;
        // Paths are scaled by what intervals are at one deviation; at 95 % the factor may differ a little.
        assert!((spread.sqrt() / ahead.std[i]).ln().abs() < 0.6, "{i}: {} {}", spread.sqrt(), ahead.std[i]);
    }
}

#[test]
fn trend_and_season_go_on_and_intervals_hold() {
    for lags in [none(), Lags::Given(vec![1, 2, 24]), Lags::Auto] {
        let (times, targets) = daily(1048);
        let mut model = Forecaster::new(settings(lags.clone())).unwrap();
        model.extend(&times[..1000], &[], &targets[..1000]).unwrap();
        let ahead = model.forecast(48, &[], 0.95).unwrap();
        let errors = (0..48).map(|k| (targets[1000 + k] - ahead.mean[k]).powi(2));
        let rmse = (errors.sum::<f64>() / 48.0).sqrt();
        assert!(rmse < 0.5, "{lags:?}: {rmse}");
        let inside =
            (0..48).filter(|&k| ahead.lower[k] <= targets[1000 + k] && targets[1000 + k] <= ahead.upper[k]);
        assert!(inside.count() >= 42, "{lags:?}");
        let widest = ahead.lower.iter().zip(&ahead.upper).map(|(l, u)| u - l).fold(0.0, f64::max);
        assert!(widest < 4.0, "{lags:?}: {widest}");
        let shares = model.components_ahead(&ahead.times, &[]).unwrap();
        for k in 0..48 {
            let sum: f64 = shares.iter().map(|s| s.mean[k]).sum();
            assert!(
                (sum - ahead.mean[k]).abs() < 1e-9 * sum.abs(),
                "components add up: {sum} {}",
                ahead.mean[k]
            );
        }
    }
}

#[test]
fn a_saved_forecaster_goes_on_to_the_last_bit() {
    for lags in [none(), Lags::Given(vec![1, 2, 24])] {
        let (times, targets) = daily(700);
        let mut model = Forecaster::new(settings(lags)).unwrap();
        model.extend(&times[..600], &[], &targets[..600]).unwrap();
        let bytes = persist::to_bytes(&model).unwrap();
        let mut copy: Forecaster = persist::from_bytes(&bytes).unwrap();
        for i in 600..700 {
            let own = model.observe(times[i], &[], Some(targets[i])).unwrap();
            assert_eq!(own, copy.observe(times[i], &[], Some(targets[i])).unwrap());
        }
        assert_eq!(model.forecast(30, &[], 0.9).unwrap(), copy.forecast(30, &[], 0.9).unwrap());
        assert_eq!(persist::to_bytes(&model).unwrap(), persist::to_bytes(&copy).unwrap());
    }
}

/// A fit beside the stream takes over at a row that is known before: as if it had been done when it began, also in a model
/// that was saved or copied meanwhile, and when rows leave memory.
#[test]
fn fits_beside_the_stream_depend_on_rows_alone() {
    let given = ForecastSettings { memory: 512, ..settings(Lags::Given(vec![1, 2, 24])) };
    let (times, targets) = daily(900);
    let mut model = Forecaster::new(given).unwrap();
    let mut row = 0;
    for (begins, due) in [(384, 408), (512, 544), (768, 816)] {
        for i in row..begins {
            model.observe(times[i], &[], Some(targets[i])).unwrap();
        }
        row = due;
        let mut waited = model.clone();
        waited.fit().unwrap();
        let mut copied = model.clone();
        let mut saved: Forecaster = persist::from_bytes(&persist::to_bytes(&model).unwrap()).unwrap();
        let before = model.system().unwrap().clone();
        assert_ne!(&before, waited.system().unwrap());
        for i in begins..due {
            assert_eq!(&before, model.system().unwrap(), "{i} of {begins} did not wait");
            for each in [&mut model, &mut copied, &mut saved] {
                each.observe(times[i], &[], Some(targets[i])).unwrap();
            }
            waited.advance(&times[i..=i], &[], &targets[i..=i]).unwrap();
        }
        assert_eq!(model.system(), waited.system());
        assert_eq!(model.forecast(24, &[], 0.9).unwrap(), waited.forecast(24, &[], 0.9).unwrap());
        for other in [&copied, &saved] {
            assert_eq!(persist::to_bytes(&model).unwrap(), persist::to_bytes(other).unwrap(), "{begins}");
        }
    }
}

#[test]
fn memory_stays_what_it_is() {
    let mut noise = Noise(5);
    let given = ForecastSettings { memory: 256, ..settings(Lags::Given(vec![1, 24])) };
    let mut model = Forecaster::new(given).unwrap();
    let mut sizes = Vec::new();
    for i in 0..6000 {
        let t = f64::from(i);
        model.observe(t, &[], Some((TAU * t / 24.0).sin() + 0.1 * noise.next())).unwrap();
        if i % 1000 == 999 {
            sizes.push(persist::to_bytes(&model).unwrap().len());
        }
    }
    let (first, last) = (sizes[0] as f64, sizes[sizes.len() - 1] as f64);
    assert!(last < 1.3 * first, "{sizes:?}");
    let ahead = model.forecast(24, &[], 0.95).unwrap();
    for k in 0..24 {
        assert!((ahead.mean[k] - (TAU * (6000 + k) as f64 / 24.0).sin()).abs() < 0.15);
    }
}

/// A missing target, a missing row: the same forecast, and none of it is the last value held.
#[test]
fn gaps_are_natural() {
    for lags in [none(), Lags::Given(vec![1, 2, 24])] {
        let (times, targets) = daily(900);
        let gap = |i: usize| (500..530).contains(&i) || (880..890).contains(&i) || i % 17 == 3;
        let mut holed = Forecaster::new(settings(lags.clone())).unwrap();
        let mut short = Forecaster::new(settings(lags.clone())).unwrap();
        let with: Vec<f64> = (0..900).map(|i| if gap(i) { f64::NAN } else { targets[i] }).collect();
        holed.extend(&times, &[], &with).unwrap();
        let kept: Vec<usize> = (0..900).filter(|i| !gap(*i)).collect();
        let pick = |v: &[f64]| kept.iter().map(|i| v[*i]).collect::<Vec<_>>();
        short.extend(&pick(&times), &[], &pick(&targets)).unwrap();
        let (a, b) = (holed.forecast(24, &[], 0.95).unwrap(), short.forecast(24, &[], 0.95).unwrap());
        for k in 0..24 {
            let t = (900 + k) as f64;
            let truth = 50.0 + 0.02 * t + 8.0 * (TAU * t / 24.0).sin() + 3.0 * (TAU * t / 12.0).cos();
            assert!((a.mean[k] - truth).abs() < 1.0, "{lags:?} {k}: {} {truth}", a.mean[k]);
            assert!((b.mean[k] - truth).abs() < 1.0, "{lags:?} {k}: {} {truth}", b.mean[k]);
            if lags == none() {
                // Hyperparameters come from the same rows.
                assert!((a.mean[k] - b.mean[k]).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn inputs_known_ahead_are_used() {
    let mut noise = Noise(9);
    let (mut x, mut y) = (Vec::new(), Vec::new());
    let n = 900;
    let truth = |t: f64, heat: f64, holiday: f64| {
        10.0 + (TAU * t / 24.0).sin() + 0.05 * (heat - 15.0).powi(2) - 3.0 * holiday
    };
    for i in 0..n + 24 {
        let (heat, holiday) = (15.0 + 16.0 * noise.next(), f64::from(u8::from(i / 24 % 9 == 4)));
        x.extend([heat, holiday]);
        y.push(truth(i as f64, heat, holiday) + 0.1 * noise.next());
    }
    let times: Vec<f64> = (0..n).map(|i| i as f64).collect();
    let given = ForecastSettings {
        columns: vec![Column::Numeric, Column::Categorical { levels: 2, ordered: false }],
        ..settings(none())
    };
    let mut model = Forecaster::new(given).unwrap();
    model.extend(&times, &x[..2 * n], &y[..n]).unwrap();
    let ahead = model.forecast(24, &x[2 * n..], 0.95).unwrap();
    for k in 0..24 {
        assert!((ahead.mean[k] - y[n + k]).abs() < 0.35, "{k}: {} {}", ahead.mean[k], y[n + k]);
    }
}

#[test]
fn seasons_and_lags_are_found() {
    let (times, targets) = daily(800);
    let mut model = Forecaster::new(ForecastSettings::default()).unwrap();
    model.extend(&times, &[], &targets).unwrap();
    let seasons = model.seasons();
    assert!(seasons.len() == 1 && (seasons[0] - 24.0).abs() < 0.05, "{seasons:?}");
    // A random walk has none.
    let mut noise = Noise(21);
    let mut level = 0.0;
    let walk: Vec<f64> = (0..600)
        .map(|_| {
            level += noise.next();
            level
        })
        .collect();
    let times: Vec<f64> = (0..600).map(f64::from).collect();
    let mut model = Forecaster::new(ForecastSettings::default()).unwrap();
    model.extend(&times, &[], &walk).unwrap();
    assert_eq!(model.seasons(), [0.0; 0]);
    let ahead = model.forecast(20, &[], 0.95).unwrap();
    assert!((ahead.mean[0] - walk[599]).abs() < 1.0);
    assert!(ahead.upper[19] - ahead.lower[19] > 2.0 * (ahead.upper[0] - ahead.lower[0]), "a walk spreads");
}

#[test]
fn backtests_score_what_was_not_seen() {
    let (times, targets) = daily(900);
    let mut model = Forecaster::new(settings(Lags::Auto)).unwrap();
    let scores = model.backtest(&times, &[], &targets, 24, 10, 0.95).unwrap();
    assert_eq!((scores.origins, scores.naive_season), (10, 24.0));
    assert_eq!(scores.all.count, 240);
    assert!(scores.all.rmse < 0.45 && scores.all.rmse < 0.8 * scores.all.naive_rmse, "{scores:?}");
    assert!(scores.all.coverage > 0.88 && scores.all.mase < 0.8, "{scores:?}");
    // The score of a Gaussian of the right size is about 0.56 of its deviation.
    assert!((scores.all.crps / scores.all.rmse - 0.56).abs() < 0.1, "{scores:?}");
    assert_eq!(model.rows(), 900);
}

#[test]
fn every_trend_can_be_had() {
    let (times, targets) = daily(300);
    for trend in [TrendKind::Linear, TrendKind::Damped, TrendKind::Level] {
        let mut model = Forecaster::new(ForecastSettings { trend, ..settings(none()) }).unwrap();
        model.extend(&times, &[], &targets).unwrap();
        let ahead = model.forecast(24, &[], 0.95).unwrap();
        let (past, shares) = model.components().unwrap();
        assert_eq!((past.len(), shares[0].mean.len()), (300, 300));
        for k in 0..24 {
            let t = (300 + k) as f64;
            let truth = 50.0 + 0.02 * t + 8.0 * (TAU * t / 24.0).sin() + 3.0 * (TAU * t / 12.0).cos();
            assert!((ahead.mean[k] - truth).abs() < 1.2, "{trend:?} {k}: {} {truth}", ahead.mean[k]);
        }
    }
}

#[test]
fn bad_input_is_rejected_and_changes_nothing() {
    let mut model = Forecaster::new(settings(Lags::Given(vec![1]))).unwrap();
    assert!(matches!(model.forecast(3, &[], 0.95), Err(Error::NotReady { .. })));
    assert!(matches!(model.fit(), Err(Error::NotReady { .. })));
    let (times, targets) = daily(200);
    model.extend(&times, &[], &targets).unwrap();
    let before = model.forecast(5, &[], 0.95).unwrap();
    assert!(matches!(model.observe(f64::NAN, &[], Some(1.0)), Err(Error::NotFinite { .. })));
    assert!(matches!(model.observe(300.0, &[], Some(f64::INFINITY)), Err(Error::NotFinite { .. })));
    assert!(matches!(model.observe(300.0, &[1.0], Some(1.0)), Err(Error::WrongLength { .. })));
    assert!(
        matches!(model.observe(3.0, &[], Some(1.0)), Err(Error::Config { field, .. }) if field == "time")
    );
    assert!(model.forecast(5, &[], 1.5).is_err());
    assert!(model.forecast_at(&[200.0, 205.5], &[], 0.95).is_err(), "lags know steps only");
    assert_eq!(model.forecast(5, &[], 0.95).unwrap(), before);
    for settings in [
        ForecastSettings { seasons: Seasons::Given(vec![-1.0]), ..Default::default() },
        ForecastSettings { lags: Lags::Given(vec![0]), ..Default::default() },
        ForecastSettings { memory: 3, ..Default::default() },
        ForecastSettings { step: Some(0.0), ..Default::default() },
    ] {
        assert!(Forecaster::new(settings).is_err());
    }
    // A constant series, and one of very few rows, are series, too.
    let mut flat = Forecaster::new(ForecastSettings::default()).unwrap();
    flat.extend(&times[..40], &[], &[3.0; 40]).unwrap();
    assert!((flat.forecast(4, &[], 0.95).unwrap().mean[3] - 3.0).abs() < 0.1);
    let mut few = Forecaster::new(ForecastSettings::default()).unwrap();
    few.extend(&times[..9], &[], &targets[..9]).unwrap();
    assert!(few.forecast(4, &[], 0.95).unwrap().std.iter().all(|s| s.is_finite() && *s > 0.0));
}

/// Two rows have a scale; every longer series has a model, too, and one that is fitted early ends as one that waits.
#[test]
fn the_shortest_series() {
    let (times, targets) = daily(300);
    for n in 1..12 {
        let mut model = Forecaster::new(ForecastSettings::default()).unwrap();
        let fitted = model.extend(&times[..n], &[], &targets[..n]);
        if n == 1 {
            assert!(matches!(fitted, Err(Error::NotReady { .. })));
            continue;
        }
        fitted.unwrap();
        let ahead = model.forecast(5, &[], 0.95).unwrap();
        for k in 0..5 {
            assert!(ahead.lower[k] < ahead.mean[k] && ahead.mean[k] < ahead.upper[k], "{n} rows: {ahead:?}");
            assert!(ahead.upper[k].is_finite() && (ahead.mean[k] - 50.0).abs() < 60.0, "{n} rows: {ahead:?}");
        }
    }
    let (mut early, mut late) =
        (Forecaster::new(settings(none())).unwrap(), Forecaster::new(settings(none())).unwrap());
    for i in 0..300 {
        early.observe(times[i], &[], Some(targets[i])).unwrap();
        late.observe(times[i], &[], Some(targets[i])).unwrap();
        if i == 1 {
            early.fit().unwrap();
        }
    }
    assert_eq!(early.forecast(24, &[], 0.9).unwrap(), late.forecast(24, &[], 0.9).unwrap());
}

#[test]
fn rows_are_learned_without_a_fit() {
    let (times, targets) = daily(700);
    let mut fixed = Forecaster::new(settings(Lags::Given(vec![1, 24]))).unwrap();
    assert!(matches!(fixed.advance(&times, &[], &targets), Err(Error::NotReady { .. })));
    assert_eq!(fixed.rows(), 0);
    fixed.extend(&times[..300], &[], &targets[..300]).unwrap();
    let (mut fitted, mut single) = (fixed.clone(), fixed.clone());
    let before = fixed.system().unwrap().parameters();
    fixed.advance(&times[300..], &[], &targets[300..]).unwrap();
    fitted.extend(&times[300..], &[], &targets[300..]).unwrap();
    assert_eq!(fixed.system().unwrap().parameters(), before);
    assert_ne!(fitted.system().unwrap().parameters(), before);
    assert_eq!(fixed.rows(), 700);
    // Until the fit that is due with half as many rows more, one row after the other is the same.
    let mut short = single.clone();
    short.advance(&times[300..449], &[], &targets[300..449]).unwrap();
    for i in 300..449 {
        single.observe(times[i], &[], Some(targets[i])).unwrap();
    }
    assert_eq!(short.forecast(9, &[], 0.9).unwrap(), single.forecast(9, &[], 0.9).unwrap());
}

/// With lags, steps that are left out are forecast in between; what is no step, or goes back, is still rejected.
#[test]
fn steps_may_be_left_out_with_lags() {
    let (times, targets) = daily(300);
    let mut model = Forecaster::new(settings(Lags::Given(vec![1, 2, 24]))).unwrap();
    model.extend(&times, &[], &targets).unwrap();
    let every = model.forecast(30, &[], 0.9).unwrap();
    let some = model.forecast_at(&[301.0, 304.0, 329.0], &[], 0.9).unwrap();
    for (k, step) in [1, 4, 29].into_iter().enumerate() {
        assert_eq!((some.mean[k], some.std[k]), (every.mean[step], every.std[step]));
        assert_eq!((some.lower[k], some.upper[k]), (every.lower[step], every.upper[step]));
    }
    assert_eq!(some.times, [301.0, 304.0, 329.0]);
    for wrong in [vec![301.5, 303.0], vec![303.0, 302.0], vec![302.0, 302.0], vec![299.0], vec![1e9]] {
        assert!(model.forecast_at(&wrong, &[], 0.9).is_err(), "{wrong:?}");
    }
}

/// The rows of a stream as a journal has them; some lack a target, one goes back in time.
fn journal_rows() -> Vec<(f64, Option<f64>)> {
    let (times, targets) = daily(330);
    let mut rows: Vec<(f64, Option<f64>)> =
        times.iter().zip(&targets).map(|(t, y)| (*t, (*t as usize % 17 != 3).then_some(*y))).collect();
    rows[200].0 = 100.0;
    rows
}

fn series() -> StoredSeries {
    let columns = Columns { target: "y".into(), time: Some("t".into()), ..Columns::default() };
    StoredSeries::new(columns, false, Forecaster::new(settings(none())).unwrap()).unwrap()
}

#[test]
fn a_series_with_a_journal_recovers_to_the_last_bit() {
    let folder = std::env::temp_dir().join(format!("wiski-series-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let rows = journal_rows();
    let step = |(time, y): (f64, Option<f64>)| Row {
        x: &[],
        target: y.map_or(Target::Missing, Target::Value),
        variance: None,
        time: Some(time),
    };
    let mut whole = series();
    let expected: Vec<_> = rows.iter().map(|row| whole.step(&step(*row))).collect();
    assert!(expected[200].is_err() && expected[7].is_ok() && whole.model.rows() == 329 && whole.seen == 330);
    assert!(expected[20].as_ref().unwrap().is_some(), "there is a model by then");
    let options = DurableOptions { sync: Sync::Never, compact_after: 70, keep_rejected: true };
    let mut done = 0;
    // Dropped without a word after 1, 2, 4, … rows.
    for part in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        let (mut durable, recovered) = Durable::open(&folder, options, || Ok(series())).unwrap();
        assert_eq!(recovered.from_snapshot + recovered.replayed, done as u64);
        assert_eq!((durable.rows(), durable.stored().seen), (done as u64, done as u64));
        for row in &rows[done..rows.len().min(done + part)] {
            let said = durable.step(&step(*row));
            assert_eq!(said.as_ref().ok(), expected[done].as_ref().ok(), "row {done}");
            done += 1;
        }
    }
    let (durable, recovered) = Durable::open(&folder, options, || Ok(series())).unwrap();
    assert_eq!(done, rows.len());
    assert_eq!(recovered.rejected, 0, "the row that went back is in a snapshot by now");
    assert!(persist::to_bytes(durable.stored()).unwrap() == persist::to_bytes(&whole).unwrap());
    drop(durable);
    // A journal of a series is none of a table, and the other way around.
    let table = Durable::<persist::Stored>::open(&folder, options, || Err(Error::NotReady { operation: "" }));
    assert!(table.unwrap_err().to_string().contains("forecaster"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A plain forecaster's file is one of a series without names, and the other way around.
#[test]
fn files_of_series_and_forecasters_are_one_kind() {
    assert_eq!((StoredSeries::KIND, Forecaster::KIND), ("forecaster", "forecaster"));
    let (times, targets) = daily(60);
    let mut stored = series();
    stored.model.extend(&times, &[], &targets).unwrap();
    let plain: Forecaster = persist::from_bytes(&persist::to_bytes(&stored).unwrap()).unwrap();
    let ahead = stored.model.forecast(5, &[], 0.9).unwrap();
    assert_eq!(plain.forecast(5, &[], 0.9).unwrap(), ahead);
    let named: StoredSeries = persist::from_bytes(&persist::to_bytes(&plain).unwrap()).unwrap();
    assert_eq!(named.model.forecast(5, &[], 0.9).unwrap(), ahead);
    assert_eq!((named.columns.target.as_str(), named.columns.time.as_deref()), ("y", Some("time")));
    assert_eq!((named.seen, named.dated), (60, None));
    stored.journal_from = 1000;
    let damaged = persist::from_bytes::<StoredSeries>(&persist::to_bytes(&stored).unwrap());
    assert!(damaged.unwrap_err().to_string().contains("journal"));
}
