//! Noise that is not the same everywhere: what the model says then.

use rand::{RngExt, SeedableRng};
use rand_distr::{Poisson, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::NoiseModel;
use wiski::{OnlineRegressor, Settings, persist};

/// Rows of two inputs in [0, 10] whose noise has a deviation from .05 to 1 along the first.
fn fanned(count: usize, seed: u64) -> Vec<([f64; 2], f64)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut row = || {
        let x = [10.0 * rng.random::<f64>(), 10.0 * rng.random::<f64>()];
        (x, truth(&x) + deviation(&x) * rng.sample::<f64, _>(StandardNormal))
    };
    (0..count).map(|_| row()).collect()
}

fn truth(x: &[f64]) -> f64 {
    x[0].sin() + 0.3 * x[1]
}

fn deviation(x: &[f64]) -> f64 {
    0.05 * (0.3 * x[0]).exp()
}

fn model(noise: NoiseModel) -> OnlineRegressor {
    OnlineRegressor::new(2, Settings { noise, ..Settings::default() }).unwrap()
}

#[test]
fn noise_that_varies_is_said_where_it_is() {
    let rows = fanned(3000, 1);
    let [mut own, mut constant] = [NoiseModel::Learned, NoiseModel::Constant].map(model);
    for (x, y) in &rows {
        own.step(x, *y).unwrap();
        constant.step(x, *y).unwrap();
    }
    let (nll, before) = (own.metrics().nll(), constant.metrics().nll());
    assert!(nll < before - 0.1, "{nll} {before}");
    for x0 in [1.0, 3.0, 5.0, 7.0, 9.0] {
        let x = [x0, 5.0];
        let ratio = own.predict(&x).unwrap().std() / deviation(&x);
        assert!((0.7..1.4).contains(&ratio), "{ratio} at {x0}");
    }
    // A snapshot says the same; so does a file, which goes on to the last bit.
    let snapshot = own.snapshot().unwrap();
    let mut read: OnlineRegressor = persist::from_bytes(&persist::to_bytes(&own).unwrap()).unwrap();
    for (x, y) in fanned(200, 2) {
        let said = own.predict(&x).unwrap();
        assert_eq!(said, read.predict(&x).unwrap());
        assert_eq!(said.noise, own.predict_ahead(&x).unwrap().noise);
        assert_eq!(own.step(&x, y).unwrap(), read.step(&x, y).unwrap());
    }
    let x = [8.0, 2.0];
    assert!((snapshot.predict(&x).unwrap().noise.sqrt() / deviation(&x) - 1.0).abs() < 0.4);
}

#[test]
fn a_table_that_is_learned_at_once_has_its_noise_too() {
    let rows = fanned(1000, 3);
    let mut own = model(NoiseModel::Learned);
    rows.iter().for_each(|(x, y)| assert!(own.observe(x, *y).is_ok()));
    own.finish_search().unwrap();
    let [quiet, loud] =
        [[1.0, 5.0], [9.0, 5.0]].map(|x| own.predict_ahead(&x).unwrap().std() / deviation(&x));
    assert!((0.6..1.6).contains(&quiet) && (0.6..1.6).contains(&loud), "{quiet} {loud}");
}

#[test]
fn counts_vary_by_their_mean() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
    let [mut own, mut constant] = [NoiseModel::Learned, NoiseModel::Constant].map(model);
    for _ in 0..3000 {
        let x = [10.0 * rng.random::<f64>(), 10.0 * rng.random::<f64>()];
        let mean = (0.35 * x[0] + (0.6 * x[1]).sin()).exp();
        let y: f64 = rng.sample(Poisson::new(mean).unwrap());
        own.step(&x, y).unwrap();
        constant.step(&x, y).unwrap();
    }
    let (nll, before) = (own.metrics().nll(), constant.metrics().nll());
    assert!(nll < before - 0.1, "{nll} {before}");
}
