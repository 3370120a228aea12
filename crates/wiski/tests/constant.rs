//! Constant means constant: memory does not grow from ten thousand to ten million rows, and neither does the
//! time per row (printed, not asserted: clocks are noisy).

use std::time::Instant;

use wiski::{OnlineRegressor, Settings};

/// Resident memory in bytes, where the system tells.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kb| kb * 1024)
}

#[test]
fn memory_is_flat_over_ten_million_rows() {
    let mut model = OnlineRegressor::new(1, Settings { grid: vec![12], ..Settings::default() }).unwrap();
    let mut early = None;
    let (mut clock, mut per_row) = (Instant::now(), Vec::new());
    let mut x = 0.5f64;
    for i in 1..=10_000_000u64 {
        x = (x + 0.618_033_988_749_895).fract();
        let noise = ((i as f64) * 12.9898).sin() * 0.1;
        model.step(&[x], (5.0 * x).sin() + noise).unwrap();
        if i.is_power_of_two() && i >= 8192 {
            per_row.push((i, clock.elapsed().as_secs_f64() / (i / 2) as f64 * 1e9));
            clock = Instant::now();
        }
        if i == 10_000 {
            early = resident();
        }
    }
    for (rows, nanoseconds) in &per_row {
        println!("up to row {rows:>8}: {nanoseconds:.0} ns a row");
    }
    assert_eq!(model.count(), 1e7);
    assert!((model.metrics().rmse() - 0.1 / 2f64.sqrt()).abs() < 1e-3, "{}", model.metrics().rmse());
    match (early, resident()) {
        (Some(early), Some(late)) => {
            println!("resident memory: {early} bytes after 10⁴ rows, {late} after 10⁷");
            // Keeping one byte a row would take ten million; the allocator may keep some pages more.
            assert!(late < early + (1 << 20), "{early} → {late}");
        }
        _ => println!("skipped: this system does not tell how much memory a process uses"),
    }
}
