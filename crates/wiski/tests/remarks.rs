//! What a model says about itself: clocks among the columns, grids too coarse.

mod common;

use common::rng;
use rand::RngExt;
use wiski::model::Remark;
use wiski::{Features, Kernel, OnlineRegressor, Settings};

/// Two inputs that matter and a clock, which does not but for a slow trend; the rows in a given order.
fn rows(n: usize, order: impl Fn(usize) -> usize) -> Vec<([f64; 3], f64)> {
    let mut rng = rng(3);
    let mut all: Vec<([f64; 3], f64)> = (0..n)
        .map(|i| {
            let (a, b) = (rng.random::<f64>(), rng.random::<f64>());
            let y = (6.0 * a).sin() + 2.0 * b * b + 0.1 * (rng.random::<f64>() - 0.5);
            ([a, i as f64, b], y)
        })
        .collect();
    let places: Vec<usize> = (0..n).map(order).collect();
    let taken: Vec<_> = places.iter().map(|&i| all[i]).collect();
    all.copy_from_slice(&taken);
    all
}

fn stream(rows: &[([f64; 3], f64)]) -> OnlineRegressor {
    let mut model = OnlineRegressor::new(3, Settings::default()).unwrap();
    for (x, y) in rows {
        model.step(x, *y).unwrap();
    }
    assert!(model.take_failure().is_none());
    model
}

/// With the clock as a coordinate, all rows to come would look like the last one.
#[test]
fn a_clock_among_many_columns_is_left_out_and_named() {
    let model = stream(&rows(1500, |i| i));
    assert_eq!(model.remarks(), [Remark::Clock { column: 1, is_followed: false }]);
    let text = model.remarks()[0].text(&["a".into(), "hours".into(), "b".into()]);
    assert!(text.starts_with("hours rises like a clock"), "{text}");
    assert!(model.metrics().rmse() < 0.06, "{}", model.metrics().rmse());
    let coverage = model.metrics().coverage95();
    // Uniform noise hardly leaves an interval of 1.96 deviations.
    assert!(coverage > 0.93, "{coverage}");
    // Far ahead nothing is different.
    let far = model.predict(&[0.4, 1e6, 0.5]).unwrap();
    let near = model.predict(&[0.4, 1400.0, 0.5]).unwrap();
    assert_eq!(far, near);
}

#[test]
fn columns_that_only_look_like_clocks_are_read() {
    // The same rows in another order: 7 and 600 have no common divisor.
    assert!(stream(&rows(600, |i| i * 7 % 600)).remarks().is_empty());
    // Values that were sorted rise in steps of all sizes.
    let mut sorted = rows(600, |i| i);
    sorted.sort_by(|x, y| x.0[0].total_cmp(&y.0[0]));
    sorted.iter_mut().enumerate().for_each(|(i, row)| row.0[1] = (i as f64 * 0.618).fract());
    assert!(stream(&sorted).remarks().is_empty());
    // Rounded ones in steps of one size, with any number of rows between.
    let mut rng = rng(5);
    let mut rounded = rows(1500, |i| i);
    let mut bell = || (0..6).map(|_| rng.random::<f64>()).sum::<f64>();
    rounded.iter_mut().for_each(|row| row.0[1] = (100.0 * bell()).round());
    rounded.sort_by(|x, y| x.0[1].total_cmp(&y.0[1]));
    assert_eq!(stream(&rounded).remarks(), []);
    // And so do whole numbers of which there are dozens each.
    rounded.iter_mut().for_each(|row| row.0[1] = (0.1 * row.0[1]).round());
    assert_eq!(stream(&rounded).remarks(), []);
}

#[test]
fn a_grid_too_coarse_for_its_function_says_so() {
    let settings =
        Settings { grid: vec![12], kernel: Some(Kernel::rbf(&[0.02]).unwrap()), ..Settings::default() };
    let mut model = OnlineRegressor::new(1, settings).unwrap();
    for i in 0..300 {
        let x = (f64::from(i) * 0.618_034).fract();
        model.observe(&[x], (80.0 * x).sin()).unwrap();
    }
    let remarks = model.remarks();
    let [Remark::Coarse { column: 0, points: 12, wanted, .. }] = remarks[..] else { panic!("{remarks:?}") };
    // More points than rows have no rows that tell their values.
    assert!((100..=300).contains(&wanted), "{wanted}");
}

/// 5,000 columns: what says nothing by itself is not read, and that is said.
#[test]
fn a_very_wide_table_is_screened_and_says_so() {
    let mut rng = rng(21);
    let rows: Vec<Vec<f64>> = (0..300).map(|_| (0..5000).map(|_| rng.random::<f64>()).collect()).collect();
    let truth = |x: &[f64]| 2.0 * x[7] + (5.0 * x[4000]).sin();
    let settings = Settings { features: Features::Additive { directions: None }, ..Settings::default() };
    let mut model = OnlineRegressor::new(5000, settings).unwrap();
    for x in &rows[..250] {
        model.step(x, truth(x)).unwrap();
    }
    model.finish_search().unwrap();
    assert_eq!(model.remarks(), [Remark::Unread { columns: 4936, of: 5000 }]);
    let text = model.remarks()[0].text(&[]);
    assert!(text.starts_with("4936 of 5000 columns are not read"), "{text}");
    let error = |x: &Vec<f64>| (model.predict(x).unwrap().mean - truth(x)).powi(2);
    let mean_square = rows[250..].iter().map(error).sum::<f64>() / 50.0;
    assert!(mean_square < 0.15, "{mean_square}");
}
