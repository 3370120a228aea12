//! Data flows through the modules in reading order: a module uses only those that stand above it in lib.rs.

use std::fs;
use std::path::{Path, PathBuf};

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn modules_use_only_what_stands_above_them() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = fs::read_to_string(source.join("lib.rs")).unwrap();
    let order: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod ")))
        .filter_map(|rest| rest.strip_suffix(';'))
        .collect();
    assert!(order.len() >= 10, "lib.rs lists its modules, one to a line: {order:?}");
    let mut uses = 0;
    for file in rust_files(&source) {
        let relative = file.strip_prefix(&source).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.strip_suffix(".rs").unwrap_or(first);
        let Some(own) = order.iter().position(|&m| m == module) else {
            assert_eq!(module, "lib", "{} is not declared in lib.rs", relative.display());
            continue;
        };
        for line in fs::read_to_string(&file).unwrap().lines().filter(|l| !l.trim_start().starts_with("//")) {
            for part in line.split("crate::").skip(1) {
                let used: String = part.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                let Some(place) = order.iter().position(|&m| m == used) else { continue };
                uses += 1;
                assert!(
                    place <= own,
                    "{} uses {used}, which stands below it: {}",
                    relative.display(),
                    line.trim()
                );
            }
        }
    }
    assert!(uses > 50, "the test reads `crate::` paths, but found only {uses}");
}
