//! The grid, kernel and range of one or two columns, when nothing is said about them.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::{OnlineRegressor, Outcome, Settings};

struct Draw(Xoshiro256PlusPlus);

impl Draw {
    fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    fn uniform(&mut self, width: f64) -> f64 {
        width * self.0.random::<f64>()
    }

    fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }
}

fn learned(dim: usize, rows: &[(Vec<f64>, f64)]) -> OnlineRegressor {
    let mut model = OnlineRegressor::new(dim, Settings::default()).unwrap();
    for (x, y) in rows {
        model.observe(x, *y).unwrap();
    }
    model.finish_search().unwrap();
    model
}

/// The root mean square error of the latent mean on [0, 10]^d.
fn error(model: &OnlineRegressor, dim: usize, truth: impl Fn(&[f64]) -> f64) -> f64 {
    let mut draw = Draw::new(99);
    let one = |_| {
        let x: Vec<f64> = (0..dim).map(|_| draw.uniform(10.0)).collect();
        (model.predict(&x).unwrap().mean - truth(&x)).powi(2)
    };
    ((0..500).map(one).sum::<f64>() / 500.0).sqrt()
}

fn points(model: &OnlineRegressor) -> Vec<usize> {
    let grid = &model.model().unwrap().stats().lattice().grids()[0];
    grid.axes().iter().map(wiski::Axis::points).collect()
}

#[test]
fn a_smooth_function_of_two_inputs_is_not_missed() {
    // An exact process with fitted hyperparameters has .019 to .020 on such draws.
    let truth = |x: &[f64]| (1.3 * x[0]).cos() * x[1] / 3.0 + (0.8 * x[1]).sin();
    for seed in 0..3 {
        let mut draw = Draw::new(seed);
        let row = |_| {
            let x = vec![draw.uniform(10.0), draw.uniform(10.0)];
            let y = truth(&x) + 0.1 * draw.normal();
            (x, y)
        };
        let model = learned(2, &(0..1500).map(row).collect::<Vec<_>>());
        let error = error(&model, 2, truth);
        assert!(error < 0.024, "seed {seed}: {error}");
        // No length-scale is at its floor, and the axis along which more happens has more points.
        let grid = &model.model().unwrap().stats().lattice().grids()[0];
        for (k, axis) in grid.axes().iter().enumerate() {
            let named = model.model().unwrap().hyperparameters().named();
            let scale = named.iter().find(|(name, _)| *name == format!("lengthscale[{k}]")).unwrap().1;
            assert!(scale > 2.0 * axis.step(), "{scale} on a spacing of {}", axis.step());
        }
        assert!(points(&model)[0] > points(&model)[1]);
    }
}

#[test]
fn a_season_behind_a_trend_is_found() {
    // Two thousand rows of 40 periods on a trend that explains nine tenths of the variance.
    let truth = |x: &[f64]| 0.8 * x[0] + (std::f64::consts::TAU * 4.0 * x[0]).sin();
    let mut draw = Draw::new(5);
    let row = |_| {
        let x = vec![draw.uniform(10.0)];
        let y = truth(&x) + 0.1 * draw.normal();
        (x, y)
    };
    let model = learned(1, &(0..2000).map(row).collect::<Vec<_>>());
    assert!(error(&model, 1, truth) < 0.08, "{} on {:?}", error(&model, 1, truth), points(&model));
    assert!(points(&model)[0] > 150, "{:?}", points(&model));
}

#[test]
fn a_season_of_a_small_share_of_the_variance_is_found() {
    // A trend with a deviation of 20 and a season of .7 behind it: .12 % of the variance, in noise of .3.
    let truth = |x: &[f64]| {
        7.0 * x[0] + 0.3 * x[0] * x[0] + (std::f64::consts::TAU * 4.4 * x[0]).sin() + 2.0 * (0.9 * x[0]).sin()
    };
    let mut draw = Draw::new(8);
    let row = |_| {
        let x = vec![draw.uniform(10.0)];
        let y = truth(&x) + 0.3 * draw.normal();
        (x, y)
    };
    let model = learned(1, &(0..1500).map(row).collect::<Vec<_>>());
    let (kernel, error) = (model.model().unwrap().kernels()[0].to_string(), error(&model, 1, truth));
    assert!(kernel.contains("periodic"), "{kernel}");
    // Two numbers for each harmonic and a dozen for the trend, each known to .3/√1500.
    assert!(error < 0.05, "{error} by {kernel}");
}

#[test]
fn what_is_smooth_has_one_kernel() {
    for seed in [11, 12] {
        let mut draw = Draw::new(seed);
        let row = |_| {
            let x = vec![draw.uniform(10.0)];
            let y = (0.3 * x[0]).exp() + x[0].sin() + 0.1 * draw.normal();
            (x, y)
        };
        let model = learned(1, &(0..600).map(row).collect::<Vec<_>>());
        assert_eq!(model.model().unwrap().kernels()[0].to_string(), "rbf");
    }
}

#[test]
fn what_is_rough_gets_a_rough_kernel() {
    let mut draw = Draw::new(6);
    let mut walk = 0.0;
    let mut rows: Vec<(Vec<f64>, f64)> = (0..1500)
        .map(|i| {
            walk += 0.1 * draw.normal();
            (vec![f64::from(i) / 150.0], walk + 0.02 * draw.normal())
        })
        .collect();
    // Not in order, which would make it a clock.
    for i in (1..rows.len()).rev() {
        rows.swap(i, draw.uniform(i as f64) as usize);
    }
    let model = learned(1, &rows);
    let kernel = model.model().unwrap().kernels()[0].to_string();
    assert!(kernel == "matern12" || kernel == "matern32", "{kernel}");
}

#[test]
fn an_outlier_among_the_inputs_does_not_stretch_the_grid() {
    let truth = |x: &[f64]| x[0].sin() * x[1];
    let mut draw = Draw::new(7);
    let row = |_| {
        let x = vec![draw.uniform(10.0), draw.uniform(10.0)];
        let y = truth(&x) + 0.1 * draw.normal();
        (x, y)
    };
    let rows: Vec<_> = (0..800).map(row).collect();
    let plain = error(&learned(2, &rows), 2, truth);
    for far in [50.0, 1e3, -1e9] {
        for at in [20, 700] {
            let mut rows = rows.clone();
            rows.insert(at, (vec![far, 5.0], 0.3));
            let with = error(&learned(2, &rows), 2, truth);
            assert!(with < plain + 0.02, "{with} with one row at {far}, {plain} without");
        }
    }
    // Along the stream, a row out there is predicted by the prior and not learned.
    let mut model = learned(2, &rows);
    let before = points(&model);
    assert_eq!(model.observe(&[1e3, 5.0], 0.3).unwrap(), Outcome::OffGrid);
    assert_eq!((points(&model), model.ignored()), (before, 1));
}

#[test]
fn a_clock_does_not_let_the_grid_grow_for_ever() {
    let settings = Settings { memory: 1024, ..Settings::default() };
    let mut model = OnlineRegressor::new(1, settings).unwrap();
    let mut largest = 0;
    for i in 0..8000 {
        let t = f64::from(i);
        model.observe(&[t], (t / 20.0).sin() + 0.1 * (1.7 * t * t).sin()).unwrap();
        if let Some(inner) = model.model() {
            largest = largest.max(inner.stats().lattice().len());
        }
    }
    assert!(largest < 3000, "{largest} points");
    // What came last is known.
    let p = model.predict(&[7990.0]).unwrap();
    assert!((p.mean - (7990.0f64 / 20.0).sin()).abs() < 0.2, "{p:?}");
}

#[test]
fn rows_in_memory_can_be_forgotten() {
    let mut draw = Draw::new(8);
    let rows: Vec<_> = (0..120).map(|_| (vec![draw.uniform(10.0)], draw.normal())).collect();
    let mut model = learned(1, &rows);
    let extra = (vec![5.0], 40.0);
    let before = model.predict(&[5.0]).unwrap();
    model.observe(&extra.0, extra.1).unwrap();
    model.forget(&extra.0, extra.1).unwrap();
    let after = model.predict(&[5.0]).unwrap();
    assert!((before.mean - after.mean).abs() < 1e-6 && model.count() == 120.0, "{before:?} {after:?}");
    // A new search does not bring it back.
    model.observe(&[5.01], 0.0).unwrap();
    model.finish_search().unwrap();
    assert!(model.predict(&[5.0]).unwrap().mean < 5.0);
}
