//! `wiski sql` and `wiski fit` hand over to another program; what that does is tested beside it (`crates/wiski-sql`).
#![cfg(unix)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use common::Folder;

/// The command where nothing is beside it, with this folder of programs.
fn run(folder: &Folder, arguments: &[&str]) -> Output {
    let mut command = Command::new(folder.path("alone/wiski"));
    command.args(arguments).env("PATH", folder.path("bin")).output().unwrap()
}

#[test]
fn arguments_and_exit_code_are_those_of_the_program() {
    let folder = Folder::new();
    for name in ["alone", "bin"] {
        fs::create_dir(folder.path(name)).unwrap();
    }
    fs::copy(env!("CARGO_BIN_EXE_wiski"), folder.path("alone/wiski")).unwrap();
    for arguments in [&["sql", "SELECT 1"][..], &["fit", "x.parquet", "--target", "y"]] {
        let done = run(&folder, arguments);
        assert_eq!(done.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&done.stderr).contains("wiski-sql is not installed"));
    }
    let script = |name: &str, text: &str| {
        folder.write(name, format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("bin/wiski-sql", r#"for argument; do echo "path: $argument"; done; exit 7"#);
    let said = |arguments: &[&str]| {
        let done = run(&folder, arguments);
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let (code, out) = said(&["sql", "SELECT 'a b'", "--format", "csv", "--help"]);
    assert_eq!(
        (code, out.as_str()),
        (Some(7), "path: SELECT 'a b'\npath: --format\npath: csv\npath: --help\n")
    );
    let (_, out) = said(&["fit", "data/*.parquet", "--target", "y"]);
    assert_eq!(out, "path: fit\npath: data/*.parquet\npath: --target\npath: y\n");
    // One that was installed with the command comes first.
    script("alone/wiski-sql", "echo beside");
    assert_eq!(said(&["sql", "x"]), (Some(0), "beside\n".into()));
}
