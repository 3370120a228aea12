//! Streams that change, and single rows that are wrong: what the model does then.

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::{NoiseModel, Remark};
use wiski::persist;
use wiski::{Classes, OnlineClassifier, OnlineRegressor, Settings};

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// Rows of three columns in [0, 1] with standard normal noise beside.
fn rows(count: usize, seed: u64) -> Vec<([f64; 3], f64)> {
    let mut rng = rng(seed);
    (0..count).map(|_| ([rng.random(), rng.random(), rng.random()], rng.sample(StandardNormal))).collect()
}

fn additive(tracking: bool) -> Settings {
    let (features, noise) = ("additive".parse().unwrap(), NoiseModel::Constant);
    Settings { features, memory: 600, tracking, noise, ..Settings::default() }
}

fn before(x: &[f64; 3]) -> f64 {
    (6.0 * x[0]).sin() + 2.0 * x[1]
}

fn after(x: &[f64; 3]) -> f64 {
    1.5 - (6.0 * x[0]).sin() + x[2]
}

/// Steps through rows; returns the root of the mean squared error of the function.
fn run(model: &mut OnlineRegressor, rows: &[([f64; 3], f64)], f: impl Fn(&[f64; 3]) -> f64) -> f64 {
    let mut squares = 0.0;
    for (x, noise) in rows {
        let said = model.step(x, f(x) + 0.1 * noise).unwrap();
        squares += said.map_or(0.0, |p| (p.mean - f(x)).powi(2));
    }
    (squares / rows.len() as f64).sqrt()
}

#[test]
fn a_stream_that_stays_as_it_is_is_predicted_by_the_model_alone() {
    let all = rows(2000, 1);
    let mut tracked = OnlineRegressor::new(3, additive(true)).unwrap();
    let mut plain = OnlineRegressor::new(3, additive(false)).unwrap();
    for (x, noise) in &all {
        let y = before(x) + 0.1 * noise;
        assert_eq!(tracked.step(x, y).unwrap(), plain.step(x, y).unwrap());
    }
    assert!(tracked.change().unwrap().weight < 0.05 && plain.change().is_none());
    assert!(tracked.remarks().is_empty());
}

#[test]
fn after_a_change_the_next_row_is_predicted_by_the_last_ones() {
    let all = rows(3000, 2);
    let mut tracked = OnlineRegressor::new(3, additive(true)).unwrap();
    let mut plain = OnlineRegressor::new(3, additive(false)).unwrap();
    for model in [&mut tracked, &mut plain] {
        run(model, &all[..2000], before);
        run(model, &all[2000..2200], after);
    }
    let (with, without) = (run(&mut tracked, &all[2200..], after), run(&mut plain, &all[2200..], after));
    assert!(with < 0.22 && without > 1.0, "{with} {without}");
    let change = tracked.change().unwrap();
    assert!(change.weight > 0.9 && (20.0..=1000.0).contains(&change.span), "{change:?}");
    assert!(tracked.remarks().iter().any(|remark| matches!(remark, Remark::Changed(_))));
    // The model itself, for rows elsewhere, is the one that never tracked anything.
    let x = [0.3, 0.6, 0.9];
    assert_eq!(tracked.predict_ahead(&x).unwrap(), plain.predict(&x).unwrap());
    assert_ne!(tracked.predict(&x).unwrap(), plain.predict(&x).unwrap());
    tracked.drop_corrections();
    assert_eq!(tracked.predict(&x).unwrap(), plain.predict(&x).unwrap());
}

#[test]
fn what_is_said_before_a_row_is_what_a_step_says_and_a_file_goes_on_to_the_last_bit() {
    let all = rows(1400, 3);
    let mut model = OnlineRegressor::new(3, additive(true)).unwrap();
    run(&mut model, &all[..1000], before);
    run(&mut model, &all[1000..1200], after);
    assert!(model.change().unwrap().weight > 0.05);
    let bytes = persist::to_bytes(&model).unwrap();
    let mut again: OnlineRegressor = persist::from_bytes(&bytes).unwrap();
    for (x, noise) in &all[1200..] {
        let (now, y) = (model.predict(x).unwrap(), after(x) + 0.1 * noise);
        let image = model.snapshot().unwrap().predict(x).unwrap();
        let said = model.step(x, y).unwrap().unwrap();
        // Rounding of the posterior's image, and of a variance that is a difference.
        assert!((image.mean - now.mean).abs() < 1e-9 && (image.variance / now.variance - 1.0).abs() < 1e-6);
        assert!((said.mean - now.mean).abs() < 1e-9 && (said.variance / now.variance - 1.0).abs() < 1e-6);
        assert_eq!(again.step(x, y).unwrap().unwrap(), said);
    }
}

#[test]
fn classes_that_change_sides_are_followed() {
    let all = rows(2500, 4);
    let label = |i: usize, x: &[f64; 3]| match (x[0] + 0.5 * x[1] > 0.7, i < 1500) {
        (true, true) | (false, false) => "a",
        _ => "b",
    };
    let right = |tracking: bool| {
        let mut model = OnlineClassifier::new(3, Classes::discovered(), additive(tracking)).unwrap();
        let mut right = 0;
        for (i, (x, _)) in all.iter().enumerate() {
            let said = model.step(x, label(i, x)).unwrap();
            right += usize::from(i >= 1700 && said.is_some_and(|p| p.label == label(i, x)));
        }
        right as f64 / 800.0
    };
    let (with, without) = (right(true), right(false));
    assert!(with > 0.85 && without < 0.5, "{with} {without}");
}

fn wave(x: f64) -> f64 {
    20.0 + (6.0 * x).sin()
}

/// A model of 20 + sin 6x with noise of deviation .2, and one row of −9999 at a given place.
fn glitched(count: usize, glitch: Option<usize>) -> (OnlineRegressor, Option<[f64; 1]>) {
    let (mut rng, mut place) = (rng(5), None);
    let mut model = OnlineRegressor::new(1, Settings::default()).unwrap();
    for i in 0..count {
        let (x, noise): (f64, f64) = (rng.random(), rng.sample(StandardNormal));
        let is_wrong = glitch == Some(i);
        place = if is_wrong { Some([x]) } else { place };
        model.step(&[x], if is_wrong { -9999.0 } else { wave(x) + 0.2 * noise }).unwrap();
    }
    (model, place)
}

#[test]
fn one_wrong_number_does_not_blind_the_model() {
    let (clean, _) = glitched(6000, None);
    for glitch in [10, 60, 700, 5000] {
        let (model, place) = glitched(6000, Some(glitch));
        assert!(place.is_some());
        for x in [0.1, 0.4, 0.8] {
            let (p, q) = (model.predict(&[x]).unwrap(), clean.predict(&[x]).unwrap());
            assert!((p.std() / q.std() - 1.0).abs() < 0.05, "row {glitch}: {} {}", p.std(), q.std());
            assert!((p.mean - wave(x)).abs() < 0.06, "row {glitch}: {} at {x}", p.mean);
        }
        assert_eq!(model.remarks(), [Remark::Outliers { rows: 1 }]);
    }
}

#[test]
fn an_outlier_can_be_un_learned() {
    let (mut model, place) = glitched(9000, Some(8900));
    let (clean, _) = glitched(9000, None);
    model.freeze_features().unwrap();
    model.forget(&place.unwrap(), -9999.0).unwrap();
    assert!(model.remarks().is_empty());
    assert_eq!(model.count(), clean.count() - 1.0);
    for x in [0.1, 0.4, 0.8] {
        let (p, q) = (model.predict(&[x]).unwrap(), clean.predict(&[x]).unwrap());
        // The model without the glitch has learned one row more.
        assert!((p.mean - q.mean).abs() < 0.01 && (p.std() / q.std() - 1.0).abs() < 1e-3);
    }
}

#[test]
fn a_change_of_level_is_no_outlier() {
    let mut rng = rng(6);
    let mut model = OnlineRegressor::new(1, Settings { tracking: false, ..Settings::default() }).unwrap();
    for i in 0..4000 {
        let (x, noise): (f64, f64) = (rng.random(), rng.sample(StandardNormal));
        let level = if i < 1000 { 0.0 } else { 10.0 };
        model.step(&[x], level + wave(x) + 0.2 * noise).unwrap();
    }
    // Three rows of four lie ten higher.
    let p = model.predict(&[0.4]).unwrap();
    assert!((p.mean - wave(0.4) - 7.5).abs() < 0.5, "{}", p.mean - wave(0.4));
}
