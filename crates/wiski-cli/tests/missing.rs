//! Rows of which inputs are missing.

mod common;

use std::fmt::Write;

use common::{Folder, column};

/// y = 3a + kind, where every fifth row lacks one of both.
fn rows(count: usize) -> (String, String) {
    let (mut csv, mut json) = (String::from("a,kind,y\n"), String::new());
    for i in 0..count {
        let a = (0.618 * i as f64).fract();
        let kind = i * 7 % 3;
        let y = 3.0 * a + kind as f64;
        let name = ["low", "none", "high"][kind];
        let (cells, members) = match i % 10 {
            5 => (format!(",{name}"), format!("\"a\":null,\"kind\":\"{name}\"")),
            9 => (format!("{a},"), format!("\"a\":{a}")),
            _ => (format!("{a},{name}"), format!("\"a\":{a},\"kind\":\"{name}\"")),
        };
        writeln!(csv, "{cells},{y}").unwrap();
        writeln!(json, "{{{members},\"y\":{y}}}").unwrap();
    }
    (csv, json)
}

#[test]
fn missing_cells_are_errors_or_averaged_over() {
    let folder = Folder::new();
    let (csv, json) = rows(400);
    folder.write("data.csv", csv);
    folder.write("data.ndjson", json);
    let options = "--target y --categorical kind --features additive -q";
    folder.rejected(&format!("stream data.csv {options}"), "row 6 (line 7), column 'a': the cell is empty");
    let said = folder.ok(&format!("stream data.csv {options} --missing marginalize --model m.wiski"));
    assert!(said.contains("80 rows lacked an input"), "{said}");
    assert_eq!(folder.json("info m.wiski --json")["n"], 320.0);
    // The same rows in another format lead to the same model; "none" is a level here, and not a missing one.
    folder.ok(&format!("stream data.ndjson {options} --missing marginalize --model j.wiski"));
    folder.write("new.csv", "a,kind\n0.5,low\n,low\n0.5,\n0.5,none\n");
    let (p, same) = (folder.ok("predict m.wiski new.csv"), folder.ok("predict j.wiski new.csv"));
    assert_eq!(p, same);
    let (mean, std) = (column(&p, "mean"), column(&p, "std"));
    assert!((mean[0] - 1.5).abs() < 0.1 && (mean[3] - 2.5).abs() < 0.1, "{p}");
    // 3a has a deviation of .87, the kinds one of .82.
    assert!((0.6..1.2).contains(&std[1]) && (0.6..1.2).contains(&std[2]) && std[0] < 0.2, "{p}");
}

/// A sensor that dies and comes back is named when it does, in lines and in the report.
#[test]
fn a_column_that_dies_is_an_event() {
    let folder = Folder::new();
    let mut rows = String::from("a,b,y\n");
    for i in 0..900_u32 {
        let (a, b) = (f64::from(i * 7 % 100) / 10.0, f64::from(i * 13 % 90) / 10.0);
        let b = if (500..700).contains(&i) { 4.5 } else { b };
        writeln!(rows, "{a},{b},{}", a.sin() + 0.2 * b + 0.01 * f64::from(i * 31 % 17)).unwrap();
    }
    folder.write("data.csv", rows);
    let lines = folder.ok("stream data.csv --target y --emit ndjson -q --report out");
    let events: Vec<(u64, String)> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line.get("events").is_some())
        .map(|line| (line["row"].as_u64().unwrap(), line["events"].to_string()))
        .collect();
    let row_of = |text: &str| events.iter().find(|(_, said)| said.contains(text)).map(|(row, _)| *row);
    // Fifty rows after the first that is stuck; the first that is not.
    assert_eq!(row_of("b has been the same"), Some(550), "{events:?}");
    assert_eq!(row_of("b changes again"), Some(701), "{events:?}");
    assert_eq!(events.iter().filter(|(_, said)| said.contains("b has been the same")).count(), 1);
    let page = folder.read("out/index.html");
    assert!(page.contains("Events") && page.contains("b changes again"), "{page}");
}
