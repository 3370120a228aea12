//! Rows that are known to come are computed together, and nothing else changes: not a bit.

use wiski::model::ROWS_TOGETHER;
use wiski::persist;
use wiski::{Features, OnlineClassifier, OnlineRegressor, Settings};

const ROWS: usize = 520;

/// Rows of four inputs, and a function of three of them together.
fn rows() -> Vec<([f64; 4], f64)> {
    let row = |i: usize| {
        let at = |k: usize| (0.618 * (i * (2 * k + 3)) as f64 + 0.37 * (k as f64)).fract();
        let x = [at(0), at(1), at(2), at(3)];
        let noise = 0.05 * ((i * i) as f64 * 0.7).sin();
        (x, (7.0 * x[0] * x[1]).sin() * x[2] + noise)
    };
    (0..ROWS).map(row).collect()
}

/// Inducing points from the first 350 rows, so many that rows wait for the factor; refits on the way to the last.
fn settings() -> Settings {
    Settings { features: Features::Points { count: Some(257) }, memory: 350, ..Settings::default() }
}

/// Blocks as a file would give them: of any size, with rows that do not come, and others between.
fn blocks() -> Vec<Vec<usize>> {
    let (mut blocks, mut first) = (Vec::new(), 0);
    for size in [ROWS_TOGETHER, 5, 1, 2 * ROWS_TOGETHER, 11].into_iter().cycle() {
        if first >= ROWS {
            return blocks;
        }
        blocks.push((first..ROWS.min(first + size)).collect());
        first += size;
    }
    blocks
}

fn hint(block: &[usize], number: usize, rows: &[([f64; 4], f64)]) -> Vec<f64> {
    let mut expected: Vec<usize> = block.to_vec();
    match number % 4 {
        // One that never comes, and an order that is not kept.
        1 => expected.insert(0, 3),
        2 => expected.reverse(),
        3 => expected.truncate(block.len() / 2),
        _ => {}
    }
    expected.iter().flat_map(|&i| rows[i].0).collect()
}

#[test]
fn a_regressor_that_knows_rows_ahead_is_the_same_to_the_last_bit() {
    let rows = rows();
    let mut plain = OnlineRegressor::new(4, settings()).unwrap();
    let mut prepared = plain.clone();
    let mut gains = 0;
    for (number, block) in blocks().into_iter().enumerate() {
        prepared.prepare_rows(&hint(&block, number, &rows));
        gains += usize::from(prepared.gains_by_preparing());
        for i in block {
            let (x, y) = &rows[i];
            assert_eq!(prepared.step(x, *y).unwrap(), plain.step(x, *y).unwrap(), "row {i}");
        }
        if number == 40 {
            // What is computed ahead does not outlive a row that was un-learned or a unit that changed.
            let (x, y) = &rows[7];
            prepared.prepare_rows(&hint(&[400, 401, 402], 0, &rows));
            assert_eq!(prepared.forget(x, *y).is_ok(), plain.forget(x, *y).is_ok());
            assert_eq!(prepared.refit().is_ok(), plain.refit().is_ok());
        }
    }
    assert!(gains > 10, "rows waited for the factor in {gains} blocks");
    assert!(plain.model().is_some_and(|model| model.rank() > 256));
    assert_eq!(persist::to_bytes(&prepared).unwrap(), persist::to_bytes(&plain).unwrap());
}

#[test]
fn classes_share_what_is_known_ahead() {
    let rows = rows();
    let label = |y: f64| {
        if y > 0.35 {
            "high"
        } else if y > 0.0 {
            "low"
        } else {
            "none"
        }
    };
    let mut plain = OnlineClassifier::new(4, wiski::Classes::discovered(), settings()).unwrap();
    let mut prepared = plain.clone();
    let mut gains = 0;
    for (number, block) in blocks().into_iter().enumerate() {
        prepared.prepare_rows(&hint(&block, number, &rows));
        gains += usize::from(prepared.gains_by_preparing());
        for i in block {
            let (x, y) = &rows[i];
            let (a, b) = (prepared.step(x, label(*y)).unwrap(), plain.step(x, label(*y)).unwrap());
            assert_eq!(a.map(|p| p.probabilities), b.map(|p| p.probabilities), "row {i}");
        }
    }
    assert!(gains > 10, "rows waited for the factor in {gains} blocks");
}
