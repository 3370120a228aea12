use std::{fmt::Write, time::Instant};

use super::*;

/// `cargo test --release -p wiski-cli speed -- --ignored --nocapture` prints rows per second.
#[test]
#[ignore = "a measurement, not a test"]
fn speed_of_reading() {
    const ROWS: usize = 2_000_000;
    let number = |i: usize, k: usize| (i as f64 * 0.618 + k as f64).sin() * 1000.0;
    let mut short = "a,b,y\n".to_owned();
    let mut full = short.clone();
    let mut quoted = short.clone();
    let mut json = String::new();
    for i in 0..ROWS {
        let (a, b, y) = (number(i, 0), number(i, 1), number(i, 2));
        writeln!(short, "{a:.2},{b:.3},{y:.1}").unwrap();
        writeln!(full, "{a},{b},{y}").unwrap();
        writeln!(quoted, "\"{a:.2}\",\"{b:.3}\",\"{y:.1}\"").unwrap();
        writeln!(json, "{{\"a\":{a:.2},\"b\":{b:.3},\"y\":{y:.1}}}").unwrap();
    }
    for (what, name, text) in [
        ("CSV, 2 decimals", "a.csv", short),
        ("CSV, 17 digits", "a.csv", full),
        ("CSV, quoted", "a.csv", quoted),
        ("NDJSON", "a.ndjson", json),
    ] {
        let megabytes = text.len() as f64 / 1e6;
        for cells in [false, true] {
            let selection = Selection {
                target: Some(target("y", TargetKind::Number, true)),
                cells,
                ..inputs(&["a", "b"])
            };
            let mut rows = source(name, text.clone()).unwrap().select(&selection).unwrap();
            let mut row = Row::default();
            let mut sum = 0.0;
            let start = Instant::now();
            while rows.next(&mut row).unwrap() {
                sum += row.inputs[0];
            }
            let seconds = start.elapsed().as_secs_f64();
            assert!(sum.is_finite() && row.number == ROWS as u64);
            let passed = if cells { ", all cells kept" } else { "" };
            let (millions, speed) = (ROWS as f64 / seconds / 1e6, megabytes / seconds);
            println!("{what:16} {millions:5.2} million rows/s {speed:6.0} MB/s{passed}");
        }
    }
}
