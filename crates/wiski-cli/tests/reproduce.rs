//! The paper's experiments from the command line.

#![cfg(feature = "reproduce")]

mod common;

use common::Folder;

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
