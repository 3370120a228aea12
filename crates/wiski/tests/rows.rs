//! What is done with the rows of a regressor besides learning them: hypothetical rows, joint predictions with
//! gradients, models from statistics, fading at once.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::{ColumnScaling, InputScaling, JointRows, NoiseModel};
use wiski::{Column, Features, Grid, OnlineRegressor, Schedule, Settings, Stats};

fn rows(n: usize, columns: usize) -> (Vec<f64>, Vec<f64>) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let x: Vec<f64> = (0..n * columns).map(|_| rng.random_range(0.0..10.0)).collect();
    let y = x.chunks_exact(columns).map(|r| 20.0 + 3.0 * r[0].sin() + 0.5 * r[columns - 1]).collect();
    (x, y)
}

fn fitted(columns: usize, settings: Settings) -> (OnlineRegressor, Vec<f64>, Vec<f64>) {
    let (x, y) = rows(300, columns);
    let mut model = OnlineRegressor::new(columns, settings).unwrap();
    model.observe_batch(&x, &y).unwrap();
    model.finish_warm_up().unwrap();
    (model, x, y)
}

#[test]
fn hypothetical_rows_are_those_that_are_learned() {
    let settings = Settings { schedule: Schedule::Off, ..Settings::default() };
    let (mut model, x, y) = fitted(2, settings);
    let before = model.predict(&x[..2]).unwrap();
    let new = model.conditioned(&x[..40], &y[20..40], None).unwrap();
    assert_eq!(model.predict(&x[..2]).unwrap(), before);
    assert_eq!((model.count(), new.count()), (300.0, 320.0));
    model.observe_batch(&x[..40], &y[20..40]).unwrap();
    for i in 0..50 {
        // The rows say the opposite of those before, so that what is predicted for the next one follows them.
        let row = &x[2 * i..2 * i + 2];
        let (a, b) = (model.predict_ahead(row).unwrap(), new.predict_ahead(row).unwrap());
        assert!((a.mean - b.mean).abs() < 1e-9 && (a.variance - b.variance).abs() < 1e-9, "{a:?} {b:?}");
    }
    assert!(model.conditioned(&x[..3], &y[..1], None).is_err());
    assert!(model.conditioned(&x[..2], &y[..1], Some(&[1.0])).is_err(), "the noise is learned");
}

#[test]
fn joint_predictions_of_rows_have_the_right_gradients() {
    let maps = [
        (2, Features::Identity, Vec::new()),
        (4, Features::Project { outputs: 2 }, Vec::new()),
        (
            3,
            Features::Additive { directions: Some(2) },
            vec![Column::Numeric, Column::Periodic { period: 24.0 }, Column::Numeric],
        ),
    ];
    for (columns, features, kinds) in maps {
        let name = format!("{features:?}");
        let settings = Settings { features, columns: kinds, rank_budget: 128, ..Settings::default() };
        let (model, x, _) = fitted(columns, settings);
        let surface = model.surface().unwrap().unwrap();
        let q = 3;
        let points = x[..q * columns].to_vec();
        let mut joint = JointRows::default();
        surface.predict(&points, &mut joint).unwrap();
        for i in 0..q {
            let p = model.predict_ahead(&points[i * columns..(i + 1) * columns]).unwrap();
            assert!((p.mean - joint.mean[i]).abs() < 1e-8 * p.mean.abs(), "{name}");
            assert!((p.variance - joint.covariance[i * (q + 1)]).abs() < 1e-8 * (1.0 + p.variance), "{name}");
            assert!((p.noise - surface.noise()).abs() < 1e-12 * p.noise, "{name}");
        }
        // An arbitrary linear function of mean and covariance.
        let by_mean = [0.3, -1.1, 0.7];
        let by_covariance: Vec<f64> = (0..q * q).map(|i| (i as f64 * 1.7).sin()).collect();
        let value = |points: &[f64]| {
            let mut joint = JointRows::default();
            surface.predict(points, &mut joint).unwrap();
            let mean: f64 = joint.mean.iter().zip(by_mean).map(|(m, g)| m * g).sum();
            mean + joint.covariance.iter().zip(&by_covariance).map(|(c, g)| c * g).sum::<f64>()
        };
        let mut gradient = vec![0.0; q * columns];
        surface.vjp(&points, &joint, &by_mean, &by_covariance, &mut gradient).unwrap();
        for k in 0..q * columns {
            let step = 1e-5;
            let at = |d: f64| {
                let mut moved = points.clone();
                moved[k] += d;
                value(&moved)
            };
            let slope = (at(step) - at(-step)) / (2.0 * step);
            // Central differences err by step²·f''' and by rounding/step, each about 1e-9 here.
            assert!(
                (slope - gradient[k]).abs() < 1e-6 * (1.0 + slope.abs()),
                "{name} {k}: {slope} {}",
                gradient[k]
            );
        }
    }
}

#[test]
fn a_model_from_statistics_is_the_model_of_the_rows() {
    let bounds = vec![(0.0, 10.0); 2];
    let (x, y) = rows(300, 2);
    for noise in [NoiseModel::Learned, NoiseModel::Known] {
        let settings = Settings {
            inputs: InputScaling::Bounds(bounds.clone()),
            warm_up: Some(300),
            schedule: Schedule::Off,
            noise,
            ..Settings::default()
        };
        let variance = 0.25;
        let mut stats = Stats::new(Grid::covering(&[(-1.0, 1.0); 2], &[16, 16]).unwrap());
        let mut model = OnlineRegressor::new(2, settings.clone()).unwrap();
        let scaling = ColumnScaling::from_bounds(&bounds);
        let mut h = Vec::new();
        for (x, &y) in x.chunks_exact(2).zip(&y) {
            scaling.apply(x, &mut h).unwrap();
            if noise == NoiseModel::Known {
                stats.observe(&h, y, variance).unwrap();
                model.observe_noisy(x, y, variance).unwrap();
            } else {
                stats.observe(&h, y, 1.0).unwrap();
                model.observe(x, y).unwrap();
            }
        }
        let from_stats = OnlineRegressor::from_stats(stats, settings).unwrap();
        assert_eq!(from_stats.count(), 300.0);
        for i in 0..50 {
            let row = &x[2 * i..2 * i + 2];
            let (a, b) = (model.predict(row).unwrap(), from_stats.predict(row).unwrap());
            // Both fits of the hyperparameters stop at a relative tolerance of about 1e-9 of the objective, which is
            // flat there.
            assert!((a.mean - b.mean).abs() < 1e-4 && (a.std() / b.std() - 1.0).abs() < 1e-2, "{a:?} {b:?}");
        }
    }
    let stats = Stats::new(Grid::covering(&[(-1.0, 1.0)], &[16]).unwrap());
    let error = OnlineRegressor::from_stats(stats, Settings::default()).unwrap_err();
    assert!(error.to_string().contains("bounds"), "{error}");
}

#[test]
fn decay_at_once_weighs_rows_down() {
    let (mut model, x, _) = fitted(2, Settings { schedule: Schedule::Off, ..Settings::default() });
    let before = model.predict(&x[..2]).unwrap();
    model.decay(0.25).unwrap();
    assert_eq!(model.count(), 75.0);
    assert!(model.predict(&x[..2]).unwrap().variance > 1.5 * before.variance);
    assert!(model.decay(0.0).is_err());
    assert!(OnlineRegressor::new(1, Settings::default()).unwrap().decay(0.5).is_err(), "still warming up");
}
