//! Series as most people have them: few rows, by the month or the quarter, and growing by a factor.

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::time::{ForecastSettings, Forecaster, Scale, Seasons};

const DAY: f64 = 86_400.0;

struct Noise(Xoshiro256PlusPlus);

impl Noise {
    fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    fn next(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }
}

/// What a month adds: nothing that a few waves could say.
const MONTHS: [f64; 12] = [-0.9, -1.1, 0.2, 0.1, 0.0, 0.9, 1.6, 1.5, 0.3, -0.4, -1.3, -0.9];

/// Sales that grow by a factor: seasons and errors are in proportion to them.
fn sales(months: usize, seed: u64) -> Vec<f64> {
    let (mut noise, mut level) = (Noise::new(seed), 5.0);
    let value = |i: usize| {
        level += 0.012 + 0.01 * noise.next();
        (level + 0.12 * MONTHS[i % 12] + 0.03 * noise.next()).exp()
    };
    (0..months).map(value).collect()
}

/// The first of months since January 2015, in seconds since 1970.
fn firsts(count: usize) -> Vec<f64> {
    let mut day = 16_436;
    let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let step = |i: usize| {
        let leap = i % 12 == 1 && (2015 + i / 12).is_multiple_of(4);
        let first = day;
        day += lengths[i % 12] + i64::from(leap);
        first as f64 * DAY
    };
    (0..count).map(step).collect()
}

fn fitted(times: &[f64], targets: &[f64], settings: ForecastSettings) -> Forecaster {
    let mut model = Forecaster::new(settings).unwrap();
    model.extend(times, &[], targets).unwrap();
    model
}

fn steps(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}

fn rmse(a: &[f64], b: &[f64]) -> f64 {
    (a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / a.len() as f64).sqrt()
}

/// Three years by the month hold a year three times: too few for a line in a spectrum, enough to be likelier with it.
#[test]
fn a_year_is_found_in_three() {
    let (mut found, mut own, mut naive) = (0, 0.0, 0.0);
    for seed in 0..6 {
        let (mut noise, mut level) = (Noise::new(seed), 20.0);
        let value = |i: usize| {
            level += 0.2 * noise.next();
            level + MONTHS[i % 12] + 0.3 * noise.next()
        };
        let all: Vec<f64> = (0..48).map(value).collect();
        let model = fitted(&steps(36), &all[..36], ForecastSettings::default());
        found += usize::from(model.seasons().iter().any(|s| (s - 12.0).abs() < 0.4));
        own += rmse(&model.forecast(12, &[], 0.95).unwrap().mean, &all[36..]).powi(2);
        naive += rmse(&all[24..36], &all[36..]).powi(2);
    }
    assert!(found >= 5, "{found} of 6");
    assert!(own < naive, "{own} {naive}");
}

#[test]
fn few_rows_without_a_season_have_none() {
    let mut wrong = 0;
    for seed in 0..12 {
        let mut noise = Noise::new(100 + seed);
        let mut wave = 0.0;
        let value = |_| {
            wave = 0.6 * wave + noise.next();
            wave
        };
        let targets: Vec<f64> = (0..48).map(value).collect();
        wrong += usize::from(!fitted(&steps(48), &targets, ForecastSettings::default()).seasons().is_empty());
    }
    assert!(wrong <= 2, "{wrong} of 12");
}

/// Rows whose logarithms are a trend, a season and noise.
#[test]
fn what_grows_by_a_factor_is_a_sum_of_logarithms() {
    let (mut by_scale, mut inside, mut count) = ([0.0; 2], 0, 0);
    for seed in 0..4 {
        let all = sales(108, seed);
        for (k, scale) in [Scale::Auto, Scale::Linear].into_iter().enumerate() {
            let model =
                fitted(&steps(84), &all[..84], ForecastSettings { scale, ..ForecastSettings::default() });
            assert_eq!(model.scale(), Some(if k == 0 { Scale::Log } else { Scale::Linear }));
            let ahead = model.forecast(24, &[], 0.95).unwrap();
            by_scale[k] += rmse(&ahead.mean, &all[84..]);
            assert!(k == 1 || ahead.lower.iter().all(|y| *y > 0.0));
            if k == 0 {
                inside += (0..24)
                    .filter(|i| ahead.lower[*i] < all[84 + i] && all[84 + i] < ahead.upper[*i])
                    .count();
                count += 24;
            }
        }
    }
    assert!(by_scale[0] < by_scale[1], "{by_scale:?}");
    let share = f64::from(u32::try_from(inside).unwrap()) / f64::from(count);
    assert!(share > 0.88, "{share}");
}

/// A sum of which all values are positive, from 5 to 60: errors are the same wherever it stands.
#[test]
fn what_adds_up_stays_a_sum() {
    for seed in 0..4 {
        let mut noise = Noise::new(40 + seed);
        let value = |i: usize| 12.0 + 0.5 * i as f64 + 4.0 * MONTHS[i % 12] + noise.next();
        let targets: Vec<f64> = (0..84).map(value).collect();
        assert!(targets.iter().all(|y| *y > 0.0));
        let model = fitted(&steps(84), &targets, ForecastSettings::default());
        assert_eq!(model.scale(), Some(Scale::Linear), "{seed}");
    }
}

/// On the scale of logarithms the trend has the unit of the series and all else is a factor of it; the product is the median, and
/// half of the paths lie below.
#[test]
fn components_multiply() {
    let model = fitted(&steps(96), &sales(96, 7), ForecastSettings::default());
    let ahead = model.forecast(12, &[], 0.95).unwrap();
    let parts = model.components_ahead(&ahead.times, &[]).unwrap();
    let paths = model.sample_paths(&ahead.times, &[], 4000, 1).unwrap();
    for k in 0..12 {
        let product: f64 = parts.iter().map(|p| p.mean[k]).product();
        let middle = (ahead.lower[k] * ahead.upper[k]).sqrt();
        assert!((product / middle - 1.0).abs() < 1e-10, "{k}: {product} {middle}");
        assert!(ahead.mean[k] > product && ahead.mean[k] < 1.2 * product);
        let below = paths.iter().filter(|p| p[k] < product).count();
        // Four deviations of a half of 4,000.
        assert!(below.abs_diff(2000) < 127, "{k}: {below}");
    }
    let season = parts.iter().find(|p| p.name.starts_with("season")).unwrap();
    assert!(season.mean.iter().all(|f| *f > 0.6 && *f < 1.6), "{:?}", season.mean);
    let (times, past) = model.components().unwrap();
    assert!(past.iter().all(|p| p.mean.len() == times.len() && p.mean.iter().all(|m| *m > 0.0)));
}

/// A value that has no logarithm ends that scale, also after rows have left memory; where logarithms were asked for it is rejected.
#[test]
fn what_is_not_positive_has_no_logarithm() {
    let all = sales(400, 3);
    for (memory, rows) in [(4096, 120), (64, 300)] {
        let mut model = Forecaster::new(ForecastSettings { memory, ..ForecastSettings::default() }).unwrap();
        model.extend(&steps(rows), &[], &all[..rows]).unwrap();
        assert_eq!(model.scale(), Some(Scale::Log), "{memory}");
        model.observe(rows as f64, &[], Some(0.0)).unwrap();
        assert_eq!(model.scale(), Some(Scale::Linear), "{memory}");
        assert!(model.forecast(12, &[], 0.95).unwrap().mean.iter().all(|y| y.is_finite()));
    }
    let settings = ForecastSettings { scale: Scale::Log, ..ForecastSettings::default() };
    let mut model = fitted(&steps(60), &all[..60], settings);
    let before = model.forecast(3, &[], 0.9).unwrap();
    assert!(model.observe(60.0, &[], Some(-1.0)).unwrap_err().to_string().contains("not positive"));
    assert_eq!(model.rows(), 60);
    assert_eq!(model.forecast(3, &[], 0.9).unwrap(), before);
}

/// Months are steps of one length: forecasts are for the firsts of the next ones, and the same as if months had been counted.
#[test]
fn months_are_steps() {
    let (times, all) = (firsts(84), sales(84, 11));
    for every in [1, 3] {
        let pick = |v: &[f64]| v.iter().step_by(every).copied().collect::<Vec<f64>>();
        let (times, all) = (pick(&times), pick(&all));
        let known = all.len() - 8;
        let dated = ForecastSettings { dates: true, ..ForecastSettings::default() };
        let model = fitted(&times[..known], &all[..known], dated);
        let ahead = model.forecast(8, &[], 0.95).unwrap();
        assert_eq!(ahead.times, times[known..]);
        let told = |period: f64| Seasons::Given(vec![period]);
        let year =
            ForecastSettings { dates: true, seasons: told(365.25 * DAY), ..ForecastSettings::default() };
        let dated = fitted(&times[..known], &all[..known], year).forecast(8, &[], 0.95).unwrap();
        let counted = ForecastSettings { seasons: told(12.0 / every as f64), ..ForecastSettings::default() };
        let counted = fitted(&steps(known), &all[..known], counted).forecast(8, &[], 0.95).unwrap();
        assert_eq!(dated.mean, counted.mean, "{every}");
        assert_eq!(dated.upper, counted.upper, "{every}");
        // The year was found without being told.
        let year = model.seasons().iter().any(|s| (s / DAY - 365.25).abs() < 5.0);
        assert!(year, "{every}: {:?}", model.seasons());
    }
    // One row after the other, saved in between, and a month that has no row.
    let mut settings = ForecastSettings { dates: true, ..ForecastSettings::default() };
    settings.memory = 64;
    let mut model = fitted(&times[..60], &all[..60], settings);
    let bytes = rmp_serde::to_vec_named(&model).unwrap();
    let mut read: Forecaster = rmp_serde::from_slice(&bytes).unwrap();
    for i in (60..84).filter(|i| *i != 70) {
        let expected = model.observe(times[i], &[], Some(all[i])).unwrap();
        assert_eq!(read.observe(times[i], &[], Some(all[i])).unwrap(), expected);
        let off = expected.unwrap().mean / all[i];
        assert!((off - 1.0).abs() < 0.35, "{i}: {off}");
    }
}
