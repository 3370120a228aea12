//! A model of many inputs says that it does not know what lies beyond its rows.

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::{Classes, Features, OffGrid, OnlineClassifier, OnlineRegressor, Settings};

fn truth(x: &[f64]) -> f64 {
    (2.0 * x[0]).sin() + x[1] * x[2]
}

fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    StandardNormal.sample(rng)
}

fn trained(features: Features, rows: usize) -> OnlineRegressor {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut model = OnlineRegressor::new(5, Settings { features, ..Settings::default() }).unwrap();
    for _ in 0..rows {
        let x: Vec<f64> = (0..5).map(|_| normal(&mut rng)).collect();
        model.observe(&x, truth(&x) + 0.1 * normal(&mut rng)).unwrap();
    }
    model.finish_search().unwrap();
    model
}

/// The share of the true function inside the latent 95 % band at `factor` times the range, and the mean width there.
fn covered(model: &OnlineRegressor, factor: f64) -> (f64, f64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
    let (mut hits, mut width) = (0, 0.0);
    for _ in 0..1000 {
        let x: Vec<f64> = (0..5).map(|_| factor * normal(&mut rng)).collect();
        let p = model.predict(&x).unwrap();
        hits += usize::from((p.mean - truth(&x)).abs() <= 1.96 * p.variance.sqrt());
        width += 2.0 * 1.96 * p.variance.sqrt() / 1000.0;
    }
    (f64::from(u32::try_from(hits).unwrap()) / 1000.0, width)
}

#[test]
fn bands_widen_beyond_the_rows() {
    for features in [Features::Additive { directions: None }, Features::Points { count: Some(128) }] {
        let model = trained(features.clone(), 600);
        let (_, inside) = covered(&model, 0.5);
        // At twice the spread most columns are inside their range and only their combination is new.
        for (factor, least) in [(2.0, 0.65), (3.0, 0.75), (5.0, 0.93), (20.0, 0.97)] {
            let (share, width) = covered(&model, factor);
            assert!(share >= least, "{features:?}: {share} at {factor} times the range");
            assert!(width > 10.0 * inside, "{width} against {inside}");
        }
        // A snapshot and a batch say the same.
        let snapshot = model.snapshot().unwrap();
        let x = [4.0, -9.0, 0.3, 0.1, 2.0];
        let (p, q) = (model.predict(&x).unwrap(), snapshot.predict(&x).unwrap());
        assert!((p.variance / q.variance - 1.0).abs() < 1e-6, "{p:?} {q:?}");
        let (mut mean, mut std) = ([0.0], [0.0]);
        model.predict_batch(&x, &mut mean, &mut std).unwrap();
        assert_eq!(std[0], p.std());
    }
}

#[test]
fn nothing_is_added_inside() {
    let model = trained(Features::Additive { directions: None }, 400);
    let (encoder, inner) = (model.encoder().unwrap(), model.model().unwrap());
    let scale = model.target_scale().scale;
    for x in [[0.0; 5], [1.0, -1.0, 0.5, 1.5, -0.5]] {
        let mut h = Vec::new();
        encoder.scaling().apply(&x, &mut h).unwrap();
        let p = model.predict(&x).unwrap();
        let smallest = inner.noise() * scale * scale;
        assert!(p.variance < 10.0 * smallest, "{} beside a noise of {smallest}", p.variance);
        // One column outside makes the same row less sure, the farther the less.
        let out = |column: f64| model.predict(&[x[0], column, x[2], x[3], x[4]]).unwrap().variance;
        assert!(p.variance < out(6.0) && out(6.0) < out(12.0));
    }
}

#[test]
fn off_the_grid_a_snapshot_says_what_the_model_says() {
    let rows = |i: i32| ((f64::from(i) * 0.618).fract(), (f64::from(i) * 0.755).fract());
    for off_grid in [OffGrid::Extend, OffGrid::Prior, OffGrid::Error] {
        let settings = Settings { off_grid, ..Settings::default() };
        let mut model = OnlineRegressor::new(2, settings.clone()).unwrap();
        let mut classes = OnlineClassifier::new(2, Classes::declared(["low", "high"]), settings).unwrap();
        for i in 0..300 {
            let (a, b) = rows(i);
            let y = (6.0 * a).sin() * b;
            // Inside the range of the first rows, so that none is rejected.
            let x = if i < 100 { [a, b] } else { [0.1 + 0.8 * a, 0.1 + 0.8 * b] };
            model.step(&x, y).unwrap();
            classes.step(&x, if y > 0.0 { "high" } else { "low" }).unwrap();
        }
        let (snapshot, labels) = (model.snapshot().unwrap(), classes.snapshot().unwrap());
        for x in [[0.4, 0.6], [50.0, 0.5], [-3.0, 900.0]] {
            match (model.predict(&x), snapshot.predict(&x)) {
                (Ok(p), Ok(q)) => {
                    assert!((p.mean - q.mean).abs() < 1e-9, "{p:?} {q:?}");
                    assert!((p.variance / q.variance - 1.0).abs() < 1e-6, "{p:?} {q:?}");
                    assert_eq!(p.noise, q.noise);
                }
                (p, q) => assert!(p.is_err() && q.is_err() && off_grid == OffGrid::Error, "{p:?} {q:?}"),
            }
            match (classes.predict(&x), labels.predict(&x)) {
                (Ok(p), Ok(q)) => {
                    let pairs = p.probabilities.iter().zip(&q.probabilities);
                    pairs.for_each(|(p, q)| assert!((p - q).abs() < 1e-9, "{p} {q}"));
                }
                (p, q) => assert!(p.is_err() && q.is_err() && off_grid == OffGrid::Error, "{p:?} {q:?}"),
            }
        }
    }
}

/// A column that was the same in all rows says nothing about what it means when it changes, and is no reason to know nothing
/// at all.
#[test]
fn a_constant_column_that_changes_widens_the_band_within_reason() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut model = OnlineRegressor::new(4, Settings::default()).unwrap();
    for _ in 0..1000 {
        let x = [normal(&mut rng), normal(&mut rng), normal(&mut rng), 7.0];
        model.observe(&x, truth(&x) + 0.1 * normal(&mut rng)).unwrap();
    }
    model.finish_search().unwrap();
    let [inside, changed] = [7.0, 7.000_1].map(|c| model.predict(&[0.2, 0.3, -0.4, c]).unwrap().std());
    // The targets have a deviation of about 1.2.
    assert!(inside <= changed && changed < 10.0, "{inside} {changed}");
}
