//! The paper's experiments from the command line.

#![cfg(feature = "reproduce")]

mod common;

use common::Folder;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn experiments_are_listed_and_bad_names_and_folders_rejected() {
    let folder = Folder::new();
    let text = folder.ok("reproduce --list");
    for name in ["fx", "timing", "regression", "classification", "optimization", "active", "ablation"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{text}");
    }
    folder.rejected("reproduce fx --data nowhere", "no data folder at nowhere");
    folder.rejected("reproduce nothing --data .", "there is no experiment \"nothing\"");
}

/// The quickest experiment on the real series: tables, figures, and a second run that only reads.
#[test]
fn an_experiment_writes_its_results_and_can_be_resumed() {
    let Some(data) = std::env::var_os("WISKI_DATA") else {
        eprintln!("skipped: WISKI_DATA is not set");
        return;
    };
    let folder = Folder::new();
    let arguments = format!("reproduce fx --quick --trials 1 --data {}", data.display());
    let first = folder.ok(&arguments);
    assert!(first.contains("| time | WISKI |") && first.contains("| random | O-SGPR |"), "{first}");
    for file in ["fx.csv", "fx.md", "fx_time.svg", "fx_time.png", "fx_random.svg", "fx_random.png"] {
        assert!(folder.path("results/fx").join(file).is_file(), "{file}");
    }
    assert_eq!(folder.ok(&arguments), first);
}

/// A folder with a set that looks like powerplant, of so many rows.
fn with_data(rows: usize) -> Folder {
    let folder = Folder::new();
    let mut text = String::from("a,b,c,d,y\n");
    for i in 0..rows {
        let x = [0.618, 0.414, 0.732, 0.236].map(|step: f64| (step * (i + 1) as f64).fract());
        let y = (3.0 * x[0]).sin() + x[1] * x[2] + 0.1 * (17.0 * i as f64).sin();
        let cells = x.map(|v| format!("{v:.6}")).join(",");
        let _ = writeln!(text, "{cells},{y:.6}");
    }
    std::fs::create_dir(folder.path("data")).unwrap();
    let file = std::fs::File::create(folder.path("data/powerplant.csv.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap();
    folder
}

const TIMING: &str = "reproduce timing --full --data data --only WISKI,rank --trials 3 --slice 0";

fn results(folder: &Folder) -> Vec<PathBuf> {
    let Ok(found) = std::fs::read_dir(folder.path("results/timing/trials")) else { return Vec::new() };
    let mut files: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "json"));
    files.sort();
    files
}

/// The curves without the times, which differ from run to run.
fn curves(folder: &Folder) -> Vec<String> {
    let text = folder.read("results/timing/timing.csv");
    let drop_seconds = |line: &str| {
        let mut cells: Vec<&str> = line.split(',').collect();
        cells.remove(5);
        cells.join(",")
    };
    text.lines().map(drop_seconds).collect()
}

#[test]
fn the_plan_names_every_unit_that_is_run() {
    let folder = with_data(400);
    let plan = folder.ok(&format!("{TIMING} --plan"));
    assert!(plan.contains("6 units, 0 with a result"), "{plan}");
    assert!(plan.contains("powerplant-wiskigrid16-full") && plan.contains("0/3"), "{plan}");
    assert!(results(&folder).is_empty(), "a plan runs nothing");
    let said = folder.ok(&TIMING.replace("--slice 0", "--slice 0.05 --plan"));
    assert!(!said.contains('?'), "every method is measured: {said}");
    folder.ok(TIMING);
    assert_eq!(results(&folder).len(), 6);
    let again = folder.ok(&format!("{TIMING} --plan"));
    assert!(again.contains("6 units, 6 with a result"), "{again}");
    let report = folder.ok(&format!("{TIMING} --report"));
    assert!(report.contains("| WISKI | 342 |") && report.contains("6 of 6 units"), "{report}");
}

#[test]
fn a_killed_run_loses_no_finished_unit_and_ends_in_the_same_tables() {
    let (whole, killed) = (with_data(500), with_data(500));
    whole.ok(&format!("{TIMING} --threads 1"));
    let mut child = killed.command(&format!("{TIMING} --threads 2"));
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while results(&killed).len() < 2 && begin.elapsed() < Duration::from_mins(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept: Vec<(PathBuf, Vec<u8>)> =
        results(&killed).into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    assert!(kept.len() >= 2);
    for (path, text) in &kept {
        assert!(serde_json::from_slice::<serde_json::Value>(text).is_ok(), "{}", path.display());
    }
    killed.ok(&format!("{TIMING} --threads 2"));
    for (path, text) in &kept {
        assert_eq!(&std::fs::read(path).unwrap(), text, "{} was run again", path.display());
    }
    assert_eq!(curves(&killed), curves(&whole));
}

#[test]
fn budgets_end_curves_and_hours_end_runs() {
    let folder = with_data(1000);
    let left = folder.ok(&format!("{TIMING} --hours 0.0000001"));
    assert!(results(&folder).is_empty() && left.contains("6 left"), "{left}");
    // A hundredth of a second: the curve ends on the way, and says where.
    let report = folder.ok(&format!("{TIMING} --budget 0.0000028"));
    let row = report.lines().find(|line| line.starts_with("| WISKI |")).unwrap();
    assert!(row.contains(" of 855"), "{report}");
    folder.rejected("reproduce timing --quick --hours 1 --data data", "--full");
}

/// Every experiment of the paper lists its units, and none of them twice.
#[test]
fn all_experiments_have_a_plan() {
    let Some(data) = std::env::var_os("WISKI_DATA") else {
        eprintln!("skipped: WISKI_DATA is not set");
        return;
    };
    let folder = Folder::new();
    let plan = folder.ok(&format!("reproduce all --full --plan --slice 0 --data {}", data.display()));
    for name in ["fx", "timing", "regression", "classification", "optimization", "active", "ablation"] {
        assert!(plan.lines().any(|line| line.starts_with(name)), "{name}: {plan}");
    }
    for part in
        ["elevators-best-svgp", "skillcraft-sgpr", "powerplant-product", "svmguide1-Product", "levy-product"]
    {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    assert!(!plan.contains("intervals"), "not of the paper");
}
