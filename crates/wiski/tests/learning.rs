//! Learning from raw rows: scaling, schedules, noise, forgetting, feature maps, readers.

mod common;

use common::{close, rng};
use rand::RngExt;
use wiski::internals::learn::{Hyperprior, Start};
use wiski::model::{DriftDetector, HalfLife, InputScaling, NoiseModel, TargetScaling};
use wiski::{
    Classes, Engine, Error, Features, Kernel, OffGrid, OnlineClassifier, OnlineGp, OnlineRegressor, Outcome,
    Schedule, Settings, Wiski,
};

/// Rows in units of their own: x₁ in [1000, 1010], x₂ in [−0.02, 0.02], y around 500.
fn rows(n: usize, seed: u64) -> Vec<([f64; 2], f64)> {
    let mut rng = rng(seed);
    (0..n)
        .map(|_| {
            let u = [rng.random::<f64>(), rng.random::<f64>()];
            let y = 500.0 + 40.0 * (4.0 * u[0]).sin() * u[1] + 3.0 * (rng.random::<f64>() - 0.5);
            ([1000.0 + 10.0 * u[0], 0.04 * u[1] - 0.02], y)
        })
        .collect()
}

fn small() -> Settings {
    Settings { grid: vec![10, 12], ..Settings::default() }
}

fn trained(n: usize, settings: Settings) -> OnlineRegressor {
    let mut model = OnlineRegressor::new(2, settings).unwrap();
    for (x, y) in rows(n, 1) {
        model.step(&x, y).unwrap();
    }
    model
}

/// Whatever was rescaled and refitted on the way, the posterior is that of all rows under the final scales
/// and hyperparameters, computed at once.
#[test]
fn the_stream_ends_in_the_batch_posterior_of_its_hyperparameters() {
    let model = trained(900, small());
    assert!(model.refits() > 10);
    let scale = model.target_scale();
    assert!((scale.shift - 500.0).abs() < 40.0 && scale.scale > 5.0);
    let encoder = model.encoder().unwrap().clone();
    let inner = model.model().unwrap();
    let lattice = inner.stats().lattice().clone();
    let mut batch = Wiski::builder()
        .grid(lattice.grids()[0].clone())
        .kernel(inner.kernels()[0].clone())
        .noise(inner.noise())
        .build()
        .unwrap();
    let (mut h, mut y, mut row) = (Vec::new(), Vec::new(), Vec::new());
    for (x, target) in rows(900, 1) {
        encoder.scaling().apply(&x, &mut row).unwrap();
        h.extend_from_slice(&row);
        y.push((target - scale.shift) / scale.scale);
    }
    batch.observe_batch(&h, &y, None).unwrap();
    for (x, _) in rows(20, 2) {
        encoder.scaling().apply(&x, &mut row).unwrap();
        let (p, q) = (model.predict(&x).unwrap(), batch.predict(&row).unwrap());
        close(p.mean, scale.shift + scale.scale * q.mean, 1e-9, "mean");
        close(p.variance, scale.scale.powi(2) * q.variance, 1e-9, "variance");
        close(p.noise, scale.scale.powi(2) * q.noise, 1e-9, "noise");
    }
}

#[test]
fn units_do_not_matter() {
    let a = trained(600, small());
    let mut b = OnlineRegressor::new(2, small()).unwrap();
    for (x, y) in rows(600, 1) {
        b.step(&[x[0] * 1e6, x[1] - 7.0], 1e-3 * y + 12.0).unwrap();
    }
    for (x, _) in rows(20, 2) {
        let (p, q) = (a.predict(&x).unwrap(), b.predict(&[x[0] * 1e6, x[1] - 7.0]).unwrap());
        // Rescaled rows round differently (x₁ has four leading digits in common), and refits amplify that.
        close(q.mean, 1e-3 * p.mean + 12.0, 1e-6, "mean");
        close(q.std(), 1e-3 * p.std(), 1e-6, "std");
    }
}

#[test]
fn both_schedules_learn_the_noise_and_are_calibrated() {
    let every = Settings { schedule: Schedule::EveryStep { rate: 0.005 }, ..small() };
    let mut figures = Vec::new();
    for settings in [small(), every] {
        let model = trained(1500, settings);
        let m = model.metrics();
        // Uniform noise of width 3: standard deviation 0.866.
        assert!((m.rmse() / 0.866 - 1.0).abs() < 0.12, "rmse {}", m.rmse());
        assert!((0.93..=1.0).contains(&m.coverage95()), "coverage {}", m.coverage95());
        figures.push((m.rmse(), m.nll()));
    }
    assert!((figures[0].0 / figures[1].0 - 1.0).abs() < 0.01, "{figures:?}");
}

#[test]
fn a_stream_that_leaves_its_first_range_extends_the_grid() {
    let mut model = OnlineRegressor::new(1, Settings { grid: vec![12], ..Settings::default() }).unwrap();
    for i in 0..2000 {
        let t = 0.01 * f64::from(i);
        assert_eq!(model.observe(&[t], (3.0 * t).sin()).unwrap(), Outcome::Learned);
    }
    let points = model.model().unwrap().stats().lattice().len();
    assert!(points > 200, "{points} points");
    for t in [0.3, 5.0, 12.0, 19.9] {
        let p = model.predict(&[t]).unwrap();
        assert!((p.mean - (3.0 * t).sin()).abs() < 0.01, "{t}: {p:?}");
    }
    let strict = Settings {
        grid: vec![12],
        off_grid: OffGrid::Error,
        inputs: InputScaling::Bounds(vec![(0.0, 1.0)]),
        ..Settings::default()
    };
    let mut model = OnlineRegressor::new(1, strict).unwrap();
    for i in 0..60 {
        model.observe(&[f64::from(i) / 60.0], 1.0 + f64::from(i)).unwrap();
    }
    assert!(matches!(model.observe(&[1.5], 1.0), Err(Error::OutsideGrid { axis: 0, .. })));
    assert_eq!(model.count(), 60.0);
}

#[test]
fn known_noise_weighs_rows_by_their_variance() {
    let settings = Settings { noise: NoiseModel::Known, grid: vec![16], ..Settings::default() };
    let mut model = OnlineRegressor::new(1, settings).unwrap();
    let mut rng = rng(3);
    let mut later = wiski::model::Prequential::default();
    for i in 0..2000 {
        let x = rng.random::<f64>();
        // Every other row is wildly wrong and says so.
        let (error, variance) = if i % 2 == 0 { (0.05, 0.0025) } else { (50.0, 2500.0) };
        let z: f64 = rng.sample(rand_distr::StandardNormal);
        let y = 20.0 + (6.0 * x).sin() + error * z;
        let prediction = model.step_with(&[x], y, Some(variance), None).unwrap();
        if i >= 200 {
            later.record(&prediction.unwrap(), y);
        }
    }
    for x in [0.2, 0.5, 0.8] {
        let p = model.predict(&[x]).unwrap();
        assert_eq!(p.noise, 0.0);
        assert!((p.mean - 20.0 - (6.0 * x).sin()).abs() < 0.03, "{x}: {p:?}");
        assert!(p.std() < 0.02);
    }
    // Three standard errors of a share of 0.95 in 1,800 rows.
    assert!((later.coverage95() - 0.95).abs() < 0.0154, "{}", later.coverage95());
    assert!(matches!(model.observe_noisy(&[0.5], 1.0, -1.0), Err(Error::NotPositive { .. })));
    let mut plain = OnlineRegressor::new(1, Settings::default()).unwrap();
    assert!(matches!(plain.observe_noisy(&[0.5], 1.0, 1.0), Err(Error::Unsupported { .. })));
}

#[test]
fn old_rows_fade_by_rows_and_by_time() {
    // What is predicted for the next row alone would follow in any case.
    let settings = |half_life| Settings { half_life, grid: vec![12], tracking: false, ..Settings::default() };
    let run = |settings: Settings, step: f64| {
        let mut model = OnlineRegressor::new(1, settings).unwrap();
        for i in 0..3000 {
            let x = (0.618 * f64::from(i)).fract();
            // The function changes sign half way.
            let y = if i < 1500 { (5.0 * x).sin() } else { -(5.0 * x).sin() };
            model
                .step_with(&[x], y + 0.1 * (1.7 * f64::from(i * i)).sin(), None, Some(step * f64::from(i)))
                .unwrap();
        }
        model
    };
    let mut by_rows = run(settings(Some(HalfLife::Rows(100.0))), 1.0);
    let mut by_time = run(settings(Some(HalfLife::Time(50.0))), 0.5);
    let mut never = run(settings(None), 1.0);
    // A geometric series of weights 2^{−k/100}: 1/(1 − 2^{−1/100}) = 144.8 rows, to a per cent.
    close(by_rows.count(), 144.8, 0.012, "effective rows");
    close(by_time.count(), 144.8, 0.012, "effective rows");
    let p = |model: &mut OnlineRegressor| model.predict(&[0.3]).unwrap().mean;
    assert!((p(&mut by_rows) + 1.5f64.sin()).abs() < 0.05);
    assert!((p(&mut by_time) + 1.5f64.sin()).abs() < 0.05);
    assert!(p(&mut never).abs() < 0.1, "without forgetting both halves count");

    assert!(matches!(by_time.observe(&[0.5], 1.0), Err(Error::Unsupported { .. })));
    let before = by_time.count();
    assert!(matches!(by_time.observe_at(&[0.5], 1.0, 3.0), Err(Error::Config { .. })));
    assert_eq!(by_time.count(), before);
}

fn many_columns(n: usize, seed: u64) -> Vec<(Vec<f64>, f64)> {
    let mut rng = rng(seed);
    (0..n)
        .map(|_| {
            let x: Vec<f64> = (0..8).map(|_| 2.0 * rng.random::<f64>() - 1.0).collect();
            let y = (2.0 * x[0] + x[1]).tanh() + 0.8 * x[2] * x[3] + 0.1 * (rng.random::<f64>() - 0.5);
            (x, y)
        })
        .collect()
}

fn projected(start: Start, seed: u64) -> OnlineRegressor {
    let settings =
        Settings { features: Features::Project { outputs: 2 }, start, seed, ..Settings::default() };
    let mut model = OnlineRegressor::new(8, settings).unwrap();
    for (x, y) in many_columns(1500, 5) {
        model.step(&x, y).unwrap();
    }
    model
}

#[test]
fn the_default_start_does_not_depend_on_the_seed_and_beats_chance() {
    let runs: Vec<f64> = (0..3).map(|seed| projected(Start::Best, seed).metrics().rmse()).collect();
    assert!(runs.iter().all(|r| (r / runs[0] - 1.0).abs() < 1e-12), "{runs:?}");
    let random: Vec<f64> = (0..3).map(|seed| projected(Start::Random, seed).metrics().rmse()).collect();
    assert!(random.iter().all(|&r| r > runs[0] - 0.01), "{runs:?} {random:?}");
    let choice = projected(Start::Best, 0);
    let choice = choice.choice().unwrap();
    assert!(choice.scores.len() >= 3, "every candidate was scored: {choice:?}");
}

#[test]
fn a_perceptron_learns_too() {
    let features = Features::Mlp { hidden: vec![16], outputs: 2 };
    let mut model =
        OnlineRegressor::new(8, Settings { features, feature_rate: 1e-3, ..Settings::default() }).unwrap();
    for (x, y) in many_columns(1500, 5) {
        model.step(&x, y).unwrap();
    }
    let m = model.metrics();
    // The targets have standard deviation 0.85.
    assert!(m.rmse() < 0.5, "rmse {}", m.rmse());
}

#[test]
fn forgetting_and_merging_need_features_that_stay() {
    let mut model = projected(Start::Supervised, 0);
    let (x, y) = many_columns(1, 6).remove(0);
    for operation in [model.forget(&x, y), model.clone().merge(&model)] {
        assert!(matches!(operation, Err(Error::Unsupported { .. })));
    }
    model.freeze_features().unwrap();
    let before = model.predict(&x).unwrap();
    let n = model.count();
    model.observe(&x, y + 5.0).unwrap();
    let with = model.predict(&x).unwrap();
    assert!((with.mean - before.mean).abs() > 1e-3);
    model.forget(&x, y + 5.0).unwrap();
    let after = model.predict(&x).unwrap();
    close(after.mean, before.mean, 1e-9, "mean");
    close(after.variance, before.variance, 1e-9, "variance");
    assert_eq!(model.count(), n);

    // Shards of one stream, from a common frozen start, merged: as if one had seen all.
    let off = |mut m: OnlineRegressor, rows: &[(Vec<f64>, f64)]| {
        rows.iter().for_each(|(x, y)| {
            m.observe(x, *y).unwrap();
        });
        m
    };
    let settings = Settings {
        features: Features::Project { outputs: 2 },
        schedule: Schedule::Off,
        ..Settings::default()
    };
    let mut base = OnlineRegressor::new(8, settings).unwrap();
    for (x, y) in many_columns(250, 5) {
        base.observe(&x, y).unwrap();
    }
    base.freeze_features().unwrap();
    let rows = many_columns(400, 7);
    let whole = off(base.clone(), &rows);
    let mut left = off(base.clone(), &rows[..150]);
    let right = off(base.shard().unwrap(), &rows[150..]);
    assert_eq!(right.count(), 250.0);
    left.merge(&right).unwrap();
    for (x, _) in rows.iter().take(10) {
        let (p, q) = (left.predict(x).unwrap(), whole.predict(x).unwrap());
        close(p.mean, q.mean, 1e-8, "merged mean");
        close(p.variance, q.variance, 1e-8, "merged variance");
    }
}

#[test]
fn readers_go_on_while_the_writer_learns() {
    let mut model = OnlineRegressor::new(2, small()).unwrap();
    let reader = model.reader();
    assert!(reader.latest().is_none());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let (mut seen, mut reads) = (0, 0u64);
            let mut last = std::ptr::null();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let Some(snapshot) = reader.latest() else { continue };
                let p = snapshot.predict(&[1005.0, 0.0]).unwrap();
                assert!(p.mean.is_finite() && p.variance >= 0.0);
                reads += 1;
                if std::sync::Arc::as_ptr(&snapshot) != last {
                    last = std::sync::Arc::as_ptr(&snapshot);
                    seen += 1;
                }
            }
            (seen, reads)
        });
        for (x, y) in rows(1500, 1) {
            model.step(&x, y).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let (seen, reads) = watching.join().unwrap();
        assert!(seen > 1 && reads > 10, "{seen} snapshots, {reads} reads");
    });
    model.publish();
    let (p, q) =
        (reader.latest().unwrap().predict(&[1004.0, 0.01]).unwrap(), model.predict(&[1004.0, 0.01]).unwrap());
    close(p.mean, q.mean, 1e-10, "mean");
    close(p.variance, q.variance, 1e-10, "variance");
}

#[test]
fn rejected_rows_change_nothing() {
    let mut model = trained(300, small());
    let before = (model.count(), model.predict(&[1003.0, 0.0]).unwrap(), model.target_scale());
    for (x, y) in [([f64::NAN, 0.0], 1.0), ([1003.0, f64::INFINITY], 1.0), ([1003.0, 0.0], f64::NAN)] {
        assert!(matches!(model.step(&x, y), Err(Error::NotFinite { .. })));
    }
    assert!(matches!(model.observe(&[1.0], 1.0), Err(Error::WrongLength { expected: 2, found: 1, .. })));
    // A row that no grid follows is left to the prior; where the range was declared, it is an error.
    assert_eq!(model.observe(&[1e300, 0.0], 1.0).unwrap(), Outcome::OffGrid);
    let bounds = InputScaling::Bounds(vec![(1000.0, 1010.0), (-0.02, 0.02)]);
    let mut declared = trained(300, Settings { inputs: bounds, ..small() });
    assert!(matches!(declared.observe(&[1e300, 0.0], 1.0), Err(Error::GridTooLarge { .. })));
    assert_eq!((model.count(), model.predict(&[1003.0, 0.0]).unwrap(), model.target_scale()), before);
    let error = model.observe_batch(&[1003.0, 0.0, 1004.0, f64::NAN], &[1.0, 2.0]).unwrap_err();
    assert!(matches!(error, Error::NotFinite { row: 1, .. }), "{error}");
}

#[test]
fn drift_is_signalled_when_the_function_changes() {
    let mut model =
        OnlineRegressor::new(2, Settings { drift: Some(DriftDetector::default()), ..small() }).unwrap();
    for (x, y) in rows(1500, 1) {
        model.step(&x, y).unwrap();
    }
    assert_eq!(model.drifts(), 0);
    for (x, y) in rows(200, 4) {
        model.step(&x, y + 5.0).unwrap();
    }
    assert!(model.drifts() > 0);
}

#[test]
fn priors_hold_hyperparameters_where_data_say_little() {
    let tight = Hyperprior::LogNormal { mu: 0.1f64.ln(), sigma: 0.01 };
    let settings = Settings { priors: vec![("lengthscale".into(), tight)], warm_up: Some(20), ..small() };
    let model = trained(20, settings);
    for (name, value) in model.model().unwrap().hyperparameters().named() {
        if name.contains("lengthscale") {
            assert!((value / 0.1 - 1.0).abs() < 0.05, "{name} {value}");
        }
    }
    let unknown = Settings { priors: vec![("period".into(), tight)], ..small() };
    assert!(matches!(OnlineRegressor::new(2, unknown), Err(Error::Config { .. })));
}

#[test]
fn settings_are_checked() {
    let rejected = |dim: usize, settings: Settings| OnlineRegressor::new(dim, settings).unwrap_err();
    let base = Settings::default;
    assert!(matches!(rejected(0, base()), Error::Config { .. }));
    let error = rejected(9, Settings { features: Features::Identity, ..base() });
    assert!(error.to_string().contains("project"), "{error}");
    // Four axes that may grow would take minutes: the error says what to do instead.
    let four = || Settings { features: Features::Identity, ..base() };
    let error = rejected(4, four());
    assert!(error.to_string().contains("(auto)") && error.to_string().contains("bounds"), "{error}");
    let bounds = InputScaling::Bounds(vec![(0.0, 1.0); 4]);
    for known in [Settings { inputs: bounds, ..four() }, Settings { grid: vec![7], ..four() }] {
        assert!(OnlineRegressor::new(4, known.clone()).is_ok());
        assert!(OnlineClassifier::new(4, Classes::discovered(), known).is_ok());
    }
    assert!(OnlineClassifier::new(4, Classes::discovered(), four()).is_err());
    assert!(matches!(rejected(2, Settings { grid: vec![8, 8, 8], ..base() }), Error::Config { .. }));
    assert!(matches!(
        rejected(2, Settings { schedule: Schedule::Geometric { ratio: 1.0 }, ..base() }),
        Error::Config { .. }
    ));
    assert!(matches!(
        rejected(2, Settings { half_life: Some(HalfLife::Rows(0.0)), ..base() }),
        Error::Config { .. }
    ));
    let bounds = InputScaling::Bounds(vec![(0.0, 1.0), (2.0, 2.0)]);
    assert!(matches!(rejected(2, Settings { inputs: bounds, ..base() }), Error::Config { .. }));
    let kernel = Some(Kernel::rbf(&[1.0]).unwrap());
    assert!(matches!(rejected(2, Settings { kernel, ..base() }), Error::WrongLength { .. }));
    let mut early = OnlineRegressor::new(2, Settings { targets: TargetScaling::None, ..base() }).unwrap();
    assert!(matches!(early.predict(&[0.0, 0.0]), Err(Error::Unsupported { .. })));
    assert!(matches!(early.finish_warm_up(), Err(Error::Unsupported { .. })));
    // Constant targets are a stream too.
    for i in 0..100 {
        early.step(&[f64::from(i), 0.5], 3.0).unwrap();
    }
    assert!((early.predict(&[50.0, 0.5]).unwrap().mean - 3.0).abs() < 0.1);
}

/// Rows on a line, around the given level.
fn around(level: f64, from: usize, count: usize) -> Vec<(f64, f64)> {
    let place = |i: usize| (i as f64 * 0.618_034).fract();
    (from..from + count)
        .map(|i| (place(i), level + (6.0 * place(i)).sin() + 0.1 * (i as f64).sin()))
        .collect()
}

fn bounded() -> Settings {
    Settings {
        inputs: wiski::model::InputScaling::Bounds(vec![(0.0, 1.0)]),
        grid: vec![16],
        ..Settings::default()
    }
}

#[test]
fn merged_models_know_the_scale_of_all_targets() {
    let learned = |rows: &[(f64, f64)]| {
        let mut model = OnlineRegressor::new(1, bounded()).unwrap();
        rows.iter().for_each(|(x, y)| {
            model.observe(&[*x], *y).unwrap();
        });
        model
    };
    let (low, high) = (around(20.0, 0, 300), around(1020.0, 300, 300));
    let (one, two) = (learned(&low), learned(&high));
    let whole = learned(&[low.clone(), high.clone()].concat());
    for (a, b) in [(&one, &two), (&two, &one)] {
        let mut sum = a.clone();
        sum.merge(b).unwrap();
        sum.refit().unwrap();
        let mut all = whole.clone();
        all.refit().unwrap();
        let (got, want) = (sum.target_scale(), all.target_scale());
        assert!((got.scale / want.scale - 1.0).abs() < 1e-9 && (got.shift / want.shift - 1.0).abs() < 1e-9);
        // What is predicted for the next row follows the last ones, and the sum has none.
        let (p, q) = (sum.predict_ahead(&[0.4]).unwrap(), all.predict_ahead(&[0.4]).unwrap());
        assert!((p.mean - q.mean).abs() < 0.01 * q.std(), "{p:?} {q:?}");
        assert!((p.std() / q.std() - 1.0).abs() < 0.01, "{p:?} {q:?}");
        // A shard brings its own rows and nothing twice.
        let mut shard = a.shard().unwrap();
        high.iter().for_each(|(x, y)| assert!(shard.observe(&[*x], *y).is_ok()));
        let mut both = a.clone();
        both.merge(&shard).unwrap();
        both.refit().unwrap();
        assert_eq!(both.count(), 600.0);
    }
    // Forgetting takes the target out of the scale too.
    let mut half = whole.clone();
    high.iter().for_each(|(x, y)| half.forget(&[*x], *y).unwrap());
    half.refit().unwrap();
    assert!((half.target_scale().shift - one.target_scale().shift).abs() < 0.1, "{:?}", half.target_scale());
    assert!(half.clone().forget(&[0.5], 1e6).unwrap_err().to_string().contains("not among them"));
}

#[test]
fn time_passes_in_the_warm_up_too() {
    let settings = Settings { half_life: Some(HalfLife::Time(100.0)), warm_up: Some(50), ..bounded() };
    let mut model = OnlineRegressor::new(1, settings).unwrap();
    let rows = around(0.0, 0, 60);
    // Fifty rows at once, then a thousand half-lives later ten more.
    for (i, (x, y)) in rows.iter().enumerate() {
        let time = if i < 50 { 0.0 } else { 1e5 };
        model.observe_at(&[*x], *y, time).unwrap();
    }
    assert!((model.count() - 10.0).abs() < 1e-9, "{}", model.count());
    let settings = Settings { half_life: Some(HalfLife::Time(100.0)), ..bounded() };
    let mut model = OnlineRegressor::new(1, settings).unwrap();
    model.observe_at(&[0.1], 1.0, 5.0).unwrap();
    assert!(model.observe_at(&[0.2], 1.0, 4.0).unwrap_err().to_string().contains("must not decrease"));
    assert!(model.observe(&[0.2], 1.0).is_err());
    assert_eq!(model.count(), 1.0);
}

#[test]
fn warm_up_rows_beyond_declared_bounds_follow_the_policy() {
    for policy in [OffGrid::Extend, OffGrid::Prior, OffGrid::Error] {
        let settings = Settings { off_grid: policy, warm_up: Some(20), ..bounded() };
        let mut model = OnlineRegressor::new(1, settings).unwrap();
        for (i, (x, y)) in around(0.0, 0, 60).into_iter().enumerate() {
            // One row a little beyond the bounds, in the middle of the warm-up.
            let x = if i == 7 { 1.3 } else { x };
            let rejected = model.observe(&[x], y).is_err();
            assert_eq!(rejected, i == 7 && policy == OffGrid::Error, "{policy:?}, row {i}");
        }
        assert_eq!(model.count(), if policy == OffGrid::Extend { 60.0 } else { 59.0 }, "{policy:?}");
        assert!(model.predict(&[0.5]).unwrap().mean.is_finite());
    }
    // What could never be covered is rejected by itself, and the warm-up goes on.
    let mut model = OnlineRegressor::new(1, Settings { warm_up: Some(20), ..bounded() }).unwrap();
    for (i, (x, y)) in around(0.0, 0, 60).into_iter().enumerate() {
        let x = if i == 7 { 1e9 } else { x };
        assert_eq!(model.observe(&[x], y).is_err(), i == 7);
    }
    assert!(model.is_ready() && model.count() == 59.0);
}

#[test]
fn a_rejected_row_lets_nothing_fade() {
    let settings = Settings {
        half_life: Some(HalfLife::Rows(100.0)),
        off_grid: OffGrid::Error,
        inputs: InputScaling::Bounds(vec![(0.0, 1.0)]),
        ..Settings::default()
    };
    let mut model = OnlineRegressor::new(1, settings).unwrap();
    for i in 0..400 {
        let x = (0.618 * f64::from(i)).fract();
        model.observe(&[x], (5.0 * x).sin()).unwrap();
    }
    let (weight, before) = (model.count(), model.predict(&[0.4]).unwrap());
    for i in 0..1500 {
        let bad =
            [[1.5 + f64::from(i), 1.0], [0.5, f64::NAN], [f64::INFINITY, 1.0], [0.5, 1e200]][i as usize % 4];
        assert!(model.step(&bad[..1], bad[1]).is_err());
    }
    assert_eq!((model.count(), model.predict(&[0.4]).unwrap()), (weight, before));
}

/// An engine that cannot have the kernel: the warm-up cannot end, and every row is kept all the same.
#[test]
fn a_warm_up_that_fails_keeps_its_rows() {
    let settings = Settings {
        engine: Engine::Sparse,
        kernel: Some(Kernel::rbf(&[0.5]).unwrap()),
        inputs: InputScaling::Bounds(vec![(0.0, 1.0)]),
        warm_up: Some(20),
        ..Settings::default()
    };
    let mut model = OnlineRegressor::new(1, settings).unwrap();
    let mut failures = 0;
    for i in 0..50 {
        let x = (0.618 * f64::from(i)).fract();
        model.observe(&[x], (5.0 * x).sin()).unwrap();
        assert_eq!(model.count(), f64::from(i + 1), "a row that was accepted is learned");
        failures += usize::from(matches!(model.take_failure(), Some(Error::WarmUp { .. })));
    }
    // Tried at the twentieth row, and again with every tenth more.
    assert!(failures > 1 && failures < 25 && !model.is_ready(), "{failures}");
    assert!(model.finish_warm_up().is_err());
}
