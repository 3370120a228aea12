//! Noise that is not the same everywhere: what the model says then.

use rand::{RngExt, SeedableRng};
use rand_distr::{Poisson, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::NoiseModel;
use wiski::{OnlineGp, OnlineRegressor, Schedule, Settings, persist};

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

/// A model of rows whose noise differs by a factor of e⁶, at the end of its search, and rows that it does not know.
fn weighted() -> (OnlineRegressor, Vec<([f64; 2], f64)>) {
    // Hyperparameters are those of the search.
    let settings = Settings { schedule: Schedule::Geometric { ratio: 1e6 }, ..Settings::default() };
    let mut own = OnlineRegressor::new(2, settings).unwrap();
    let mut rows = fanned(1500, 5);
    let more = rows.split_off(1200);
    rows.iter().for_each(|(x, y)| assert!(own.observe(x, *y).is_ok()));
    own.finish_search().unwrap();
    own.freeze_features().unwrap();
    own.drop_corrections();
    (own, more)
}

#[test]
fn quiet_rows_count_more() {
    let rows = fanned(2000, 6);
    let kinds = [NoiseModel::Learned, NoiseModel::Constant, NoiseModel::Known];
    let [own, constant, known] = kinds.map(|noise| {
        let mut model = model(noise);
        for (x, y) in &rows {
            let variance = (noise == NoiseModel::Known).then(|| deviation(x).powi(2));
            model.step_with(x, *y, variance, None).unwrap();
        }
        model.finish_search().unwrap();
        // The latent function, where the noise is small.
        let places = (0..400).map(|i| [f64::from(i % 20) * 0.2, f64::from(i / 20) * 0.5]);
        let squares = places.map(|x| (model.predict_ahead(&x).unwrap().mean - truth(&x)).powi(2));
        (squares.sum::<f64>() / 400.0).sqrt()
    });
    // At least half of what could be won by knowing the noise.
    assert!(own < 0.5 * (known + constant) && known < 0.9 * constant, "{own} {constant} {known}");
}

#[test]
fn rows_are_unlearned_with_the_noise_that_they_were_learned_with() {
    let (mut own, more) = weighted();
    let before: Vec<_> = more.iter().map(|(x, _)| plain(&own, x)).collect();
    more.iter().for_each(|(x, y)| assert!(own.observe(x, *y).is_ok()));
    more.iter().rev().for_each(|(x, y)| own.forget(x, *y).unwrap());
    for ((x, _), before) in more.iter().zip(before) {
        let after = plain(&own, x);
        assert!(
            (after.0 - before.0).abs() < 1e-8 && (after.1 / before.1 - 1.0).abs() < 1e-7,
            "{after:?} {before:?}"
        );
    }
}

/// What the process says, without what is learned beside it.
fn plain(model: &OnlineRegressor, x: &[f64]) -> (f64, f64) {
    let p = model.model().unwrap().predict(&model.coordinates(x).unwrap()).unwrap();
    (p.mean, p.variance)
}

#[test]
fn parts_of_a_stream_add_up() {
    let (own, more) = weighted();
    let mut parts = [own.shard().unwrap(), own.shard().unwrap()];
    let mut whole = own.shard().unwrap();
    for (i, (x, y)) in more.iter().enumerate() {
        parts[i % 2].observe(x, *y).unwrap();
        whole.observe(x, *y).unwrap();
    }
    let [mut first, second] = parts;
    first.merge(&second).unwrap();
    for (x, _) in &more {
        let (a, b) = (plain(&first, x), plain(&whole, x));
        assert!((a.0 - b.0).abs() < 1e-9 && (a.1 / b.1 - 1.0).abs() < 1e-9, "{a:?} {b:?}");
    }
    // Sums that are gathered elsewhere weigh rows in the same way.
    let columns =
        persist::Columns { inputs: vec!["a".into(), "b".into()], target: "y".into(), ..Default::default() };
    let stored = persist::Stored::new(columns, persist::Model::Regressor(Box::new(own.clone()))).unwrap();
    let mut shard = wiski::shard::Shard::new(&wiski::shard::Shape::of(&stored).unwrap());
    let (x, y): (Vec<f64>, Vec<f64>) =
        (more.iter().flat_map(|(x, _)| *x).collect(), more.iter().map(|(_, y)| *y).collect());
    shard.observe_batch(&x, &y, None).unwrap();
    let (sums, stream) = (shard.stats(), whole.model().unwrap().stats());
    assert!((sums.count() - stream.count()).abs() < 1e-9);
    let (a, b) = (sums.b(), stream.b());
    let size = b.iter().fold(0.0_f64, |s, v| s.max(v.abs()));
    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-10 * size) && size > 0.0);
}
