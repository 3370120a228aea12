//! `--level` and `--intervals`: what is promised along a stream, in every output.

mod common;

use std::fmt::Write as _;

use common::{Folder, column};

/// Noise whose size comes and goes, which a model with one variance does not know.
fn stream() -> String {
    let mut rng = common::Random::new(11);
    let mut text = String::from("x,y\n");
    for i in 0..4000 {
        let x = rng.uniform();
        let noise = (0..12).map(|_| rng.uniform()).sum::<f64>() - 6.0;
        let size = 0.2 * (1.2 * (f64::from(i) / 600.0).sin()).exp();
        writeln!(text, "{x},{}", (6.0 * x).sin() + size * noise).unwrap();
    }
    text
}

fn inside(csv: &str) -> Vec<f64> {
    let (y, lower, upper) = (column(csv, "target"), column(csv, "lower"), column(csv, "upper"));
    (0..y.len())
        .filter(|&i| lower[i].is_finite())
        .map(|i| f64::from(u8::from(lower[i] <= y[i] && y[i] <= upper[i])))
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn intervals_hold_their_level_in_every_output() {
    let folder = Folder::new();
    folder.write("data.csv", stream());
    let learn = "stream data.csv --target y --level 0.9 --json";
    let json = folder.json(&format!("{learn} --predictions p.csv --model m.wiski --report out"));
    let rows = inside(&folder.read("p.csv"));
    let figures = &json["prequential"];
    assert_eq!(figures["level"], 0.9);
    assert_eq!(figures["rows"].as_f64().unwrap(), rows.len() as f64);
    let coverage = figures["coverage"].as_f64().unwrap();
    assert!((coverage - mean(&rows)).abs() < 1e-9, "{coverage} is said, {} was written", mean(&rows));
    assert!((coverage - 0.9).abs() < 0.008, "{coverage}");
    let windows = figures["coverage_of_windows"].as_array().unwrap();
    let shares: Vec<f64> = rows.chunks_exact(1000).map(mean).collect();
    let lowest = shares.iter().copied().fold(1.0, f64::min);
    assert!((windows[0].as_f64().unwrap() - lowest).abs() < 1e-9 && lowest > 0.87, "{shares:?}");
    let written = folder.read("p.csv");
    let widths: Vec<f64> = column(&written, "upper")
        .iter()
        .zip(column(&written, "lower"))
        .map(|(u, l)| u - l)
        .filter(|w| w.is_finite())
        .collect();
    assert!((figures["mean_width"].as_f64().unwrap() / mean(&widths) - 1.0).abs() < 1e-9);

    // The lines of a live stream are the same intervals.
    let live = folder.ok("stream data.csv --target y --level 0.9 --emit -q");
    for name in ["lower", "upper"] {
        let (a, b) = (column(&live, name), column(&written, name));
        assert!(a.iter().zip(&b).all(|(a, b)| a == b || a.is_nan() && b.is_nan()), "{name}");
    }
    let ndjson = folder.ok("stream data.csv --target y --level 0.9 --emit ndjson -q --limit 300");
    let last: serde_json::Value = serde_json::from_str(ndjson.lines().last().unwrap()).unwrap();
    // Reading JSON rounds.
    let upper = column(&written, "upper")[299];
    assert!((last["upper"].as_f64().unwrap() - upper).abs() <= 1e-14 * upper.abs());

    let page = folder.read("out/index.html");
    for word in ["Intervals by window", "Inside the 90 % interval", "Mean width of the interval"] {
        assert!(page.contains(word), "{word}");
    }
    assert!(folder.names().contains(&"out".to_string()) && folder.path("out/intervals.svg").is_file());

    let text = folder.ok("stream data.csv --target y");
    assert!(text.contains("of targets in the 95 % interval of mean width"), "{text}");
    assert!(text.contains("1,000 rows each"), "{text}");

    // Gaussian intervals do not hold in windows.
    folder.ok("stream data.csv --target y --level 0.9 --intervals gaussian --predictions plain.csv");
    let plain: Vec<f64> = inside(&folder.read("plain.csv")).chunks_exact(1000).map(mean).collect();
    assert!(plain.iter().copied().fold(1.0, f64::min) < 0.85, "{plain:?}");

    let updated = folder.ok("update m.wiski data.csv --level 0.8");
    assert!(updated.contains("% of targets in the 80 % interval, mean width"), "{updated}");
    folder.rejected("stream data.csv --target y --level 1", "--level: 1 is not a share");
    folder.rejected("update m.wiski data.csv --level nan", "--level");
}

#[test]
fn a_resumed_stream_goes_on_with_its_intervals() {
    let folder = Folder::new();
    let text = stream();
    let lines: Vec<&str> = text.lines().collect();
    folder.write("data.csv", &text);
    folder.write("first.csv", lines[..2001].join("\n"));
    folder.write("second.csv", format!("{}\n{}", lines[0], lines[2001..].join("\n")));
    folder.ok("stream data.csv --target y --predictions whole.csv");
    folder.ok("stream first.csv --target y --model m.wiski");
    folder.ok("stream second.csv --model m.wiski --resume --predictions rest.csv");
    let (whole, rest) = (folder.read("whole.csv"), folder.read("rest.csv"));
    assert_eq!(column(&whole, "upper")[2000..], column(&rest, "upper")[..]);
}

#[test]
fn sets_of_classes_are_written() {
    let folder = Folder::new();
    folder.write("data.csv", common::classes(800, 5));
    let json = folder.json(
        "stream data.csv --target kind --classify --level 0.9 --json --model m.wiski --predictions p.csv",
    );
    let figures = &json["prequential"];
    assert!(figures["coverage"].as_f64().unwrap() >= 0.89, "{figures}");
    assert!(figures["mean_set_size"].as_f64().unwrap() >= 1.0);
    let written = folder.read("p.csv");
    let mut lines = written.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = |name: &str| names.iter().position(|n| *n == name).unwrap();
    let last: Vec<&str> = lines.last().unwrap().split(',').collect();
    assert!(last[at("set")].split('|').any(|class| class == last[at("predicted")]), "{last:?}");
    let out = folder.ok("predict m.wiski data.csv --level 0.99");
    assert!(out.lines().next().unwrap().ends_with(",set"), "{out}");
    assert!(out.lines().skip(1).all(|line| !line.ends_with(',')), "no set is empty");
}
