//! Rows of which inputs are missing.

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::{Missing, Outcome, Remark};
use wiski::{Classes, OnlineClassifier, OnlineRegressor, Settings, persist};

fn settings() -> Settings {
    Settings { missing: Missing::Marginalize, ..Settings::default() }
}

/// y = 3a + sin 6b with noise of a tenth; now and then a is missing.
fn rows(count: usize, missing: f64, seed: u64) -> Vec<([f64; 2], f64, f64)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let row = |i: usize| {
        let (a, b): (f64, f64) = (rng.random(), rng.random());
        let (noise, is_missing) =
            (rng.sample::<f64, _>(StandardNormal), rng.random::<f64>() < missing && i > 0);
        ([if is_missing { f64::NAN } else { a }, b], 3.0 * a + (6.0 * b).sin() + 0.1 * noise, a)
    };
    (0..count).map(row).collect()
}

#[test]
fn what_is_missing_is_averaged_over() {
    let mut model = OnlineRegressor::new(2, settings()).unwrap();
    for (x, y, _) in rows(1500, 0.3, 1) {
        model.step(&x, y).unwrap();
    }
    for b in [0.1, 0.5, 0.9] {
        // a is uniform: 3a has the mean 1.5 and the deviation .866, which 32 to 63 draws of it know to within a fifth.
        let p = model.predict(&[f64::NAN, b]).unwrap();
        let wanted = 1.5 + (6.0 * b).sin();
        assert!((p.mean - wanted).abs() < 0.4 && (0.65..1.1).contains(&p.variance.sqrt()), "{p:?} {wanted}");
        let whole = model.predict(&[0.5, b]).unwrap();
        assert!((whole.mean - wanted).abs() < 0.1 && whole.std() < 0.2, "{whole:?}");
        let image = model.snapshot().unwrap().predict(&[f64::NAN, b]).unwrap();
        assert!((image.mean - p.mean).abs() < 1e-6 && (image.variance - p.variance).abs() < 1e-6);
    }
    // Intervals of rows with and without it hold.
    let (mut inside, fresh) = (0.0, rows(600, 0.3, 2));
    for (x, y, _) in &fresh {
        inside +=
            f64::from(u8::from(model.predict_interval(x, 0.9).unwrap().contains(*y))) / fresh.len() as f64;
        model.step(x, *y).unwrap();
    }
    assert!((inside - 0.9_f64).abs() < 0.04, "{inside}");
}

#[test]
fn what_is_learned_is_learned_from_complete_rows() {
    let [mut with, mut without] = [(); 2].map(|()| OnlineRegressor::new(2, settings()).unwrap());
    for (x, y, _) in &rows(1200, 0.5, 3) {
        let outcome = with.observe(x, *y).unwrap();
        assert_eq!(outcome == Outcome::Incomplete, x[0].is_nan());
        if !x[0].is_nan() {
            without.observe(x, *y).unwrap();
        }
    }
    assert_eq!(with.count(), without.count());
    let x = [0.3, 0.6];
    assert_eq!(with.predict_ahead(&x).unwrap(), without.predict_ahead(&x).unwrap());
    assert!(
        with.remarks().iter().any(|r| matches!(r, Remark::Incomplete { rows } if (500..700).contains(rows)))
    );
}

#[test]
fn a_file_goes_on_to_the_last_bit_and_nothing_is_lost() {
    let all = rows(700, 0.2, 5);
    let mut model = OnlineRegressor::new(2, settings()).unwrap();
    assert!(model.observe(&[f64::NAN, 0.5], 1.0).is_err(), "no row was complete");
    all[..400].iter().for_each(|(x, y, _)| assert!(model.step(x, *y).is_ok()));
    let mut again: OnlineRegressor = persist::from_bytes(&persist::to_bytes(&model).unwrap()).unwrap();
    for (x, y, _) in &all[400..] {
        assert_eq!(model.step(x, *y).unwrap(), again.step(x, *y).unwrap());
    }
    let before = model.count();
    assert!(
        model.observe(&[f64::NAN, f64::INFINITY], 1.0).is_err() && model.observe(&[f64::NAN], 1.0).is_err()
    );
    assert!(model.forget(&[f64::NAN, 0.5], 1.0).is_err(), "which row it was is not known any more");
    assert_eq!(model.count(), before);
    let mut strict = OnlineRegressor::new(2, Settings::default()).unwrap();
    assert!(strict.observe(&[f64::NAN, 0.5], 1.0).is_err());
}

#[test]
fn classes_of_incomplete_rows_are_less_certain() {
    let mut model = OnlineClassifier::new(2, Classes::discovered(), settings()).unwrap();
    for (x, _, a) in rows(800, 0.2, 6) {
        model.step(&x, if a < 0.5 { "low" } else { "high" }).unwrap();
    }
    let [certain, unsure] = [[0.1, 0.5], [f64::NAN, 0.5]].map(|x| model.predict(&x).unwrap());
    let low = |p: &wiski::model::ClassPrediction| {
        p.probabilities[model.classes().iter().position(|c| c == "low").unwrap()]
    };
    assert!(low(&certain) > 0.9 && (0.25..0.75).contains(&low(&unsure)), "{certain:?} {unsure:?}");
    let image = model.snapshot().unwrap().predict(&[f64::NAN, 0.5]).unwrap();
    assert!((low(&image) - low(&unsure)).abs() < 1e-6);
}
