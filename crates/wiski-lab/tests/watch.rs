//! Budgets, slices and what they say about the rest.

use wiski_lab::results::processor_seconds;
use wiski_lab::watch::{Slice, epoch, expect, integral, measured, power_law, row, within};

/// Work for some milliseconds.
fn toil(seconds: f64) {
    let begin = processor_seconds();
    while processor_seconds() - begin < seconds {
        std::hint::black_box((0..1000).map(f64::from).sum::<f64>());
    }
}

fn stream(rows: usize, each: f64) -> anyhow::Result<usize> {
    expect(rows, 0, 0.0);
    (0..4).try_for_each(|i| epoch(i, 4))?;
    for i in 0..rows {
        if !row(i, rows)? {
            return Ok(i);
        }
        toil(each);
    }
    Ok(rows)
}

#[test]
fn a_budget_ends_a_stream_and_a_slice_estimates_it() {
    let (whole, _) = within(f64::INFINITY, || stream(3, 0.02));
    assert_eq!(whole.unwrap(), 3);
    // The clock of a thread may tick in steps of up to ten milliseconds.
    let (part, seconds) = within(0.1, || stream(1000, 0.02));
    let part = part.unwrap();
    assert!((3..8).contains(&part) && (0.1..0.3).contains(&seconds), "{part} rows in {seconds} s");
    let slice = measured(0.1, || stream(1000, 0.02));
    assert!(!slice.is_whole && slice.rows.1 == 1000 && slice.epochs == (3, 4), "{slice:?}");
    // A thousand rows of twenty milliseconds, or a tick more.
    assert!((18.0..35.0).contains(&slice.estimate()), "{slice:?}");
    let whole = measured(10.0, || stream(5, 1e-3));
    assert!(whole.is_whole && whole.estimate() < 1.0);
    // Without a watch nothing ends.
    assert_eq!(stream(3, 0.0).unwrap(), 3);
}

#[test]
fn growing_rows_are_summed_up() {
    let slice =
        Slice { rows: (10, 900), first_row: 1.0, seconds: 1.1, growth: (100.0, 2.0), ..Slice::default() };
    // Σ 0.01 ((100 + i)/100)², i < 900, as an integral.
    let sum: f64 = (0..900).map(|i| 0.01 * ((100.0 + f64::from(i)) / 100.0).powi(2)).sum();
    assert!((slice.estimate() / (1.0 + sum) - 1.0).abs() < 0.01, "{} {sum}", slice.estimate());
    // A warm-up of which a quarter was seen.
    let early = Slice { epochs: (50, 200), rows: (0, 100), seconds: 2.0, ..Slice::default() };
    assert_eq!(early.estimate(), 8.0 + 100.0 * 0.04);
}

#[test]
fn power_laws_are_found_and_integrated() {
    let points: Vec<(f64, f64)> = [100.0, 200.0, 400.0, 800.0].map(|n: f64| (n, 2e-6 * n.powf(2.5))).to_vec();
    let (a, k) = power_law(&points).unwrap();
    assert!((k - 2.5).abs() < 1e-12 && (a / 2e-6 - 1.0).abs() < 1e-9);
    let sum: f64 = (800..8000).map(|n| 2e-6 * (f64::from(n) + 0.5).powf(2.5)).sum();
    assert!((integral((a, k), 800.0, 8000.0) / sum - 1.0).abs() < 1e-6);
    assert!((integral((3.0, -1.0), 1.0, std::f64::consts::E) - 3.0).abs() < 1e-12);
    assert!(power_law(&points[..2]).is_none());
}
