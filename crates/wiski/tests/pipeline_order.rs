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

/// The source without comments and without what stands in quotes, on one line.
fn code(source: &str) -> String {
    source.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join(" ")
}

/// The first parts of the paths in a list of imports, `{a::b, c::{d, e}, self}` being a and c: it begins behind the
/// brace.
fn heads(list: &str) -> Vec<String> {
    let (mut depth, mut heads, mut head, mut at_head) = (0, Vec::new(), String::new(), true);
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                heads.push(std::mem::take(&mut head));
                at_head = true;
            }
            c if depth == 0 && at_head && (c.is_alphanumeric() || c == '_') => head.push(c),
            c if c.is_whitespace() && head.is_empty() => {}
            _ => at_head = false,
        }
    }
    heads.push(head);
    heads.retain(|h| !h.is_empty());
    heads
}

/// Modules at the root of the crate that are named in a file which is `depth` modules below it: as `crate::a`, as
/// `crate::{a, b}`, and as `super::…::a` or `super::…::{a}` where that leads to the root. Tests at the end of a file are a
/// module deeper.
fn used(source: &str, depth: usize) -> Vec<String> {
    let all = code(source);
    let (own, tests) = all.split_at(all.find("#[cfg(test)] mod tests {").unwrap_or(all.len()));
    let mut found = Vec::new();
    for (code, depth) in [(own, depth), (tests, depth + 1)] {
        found.extend(named(code, depth));
    }
    found
}

fn named(code: &str, depth: usize) -> Vec<String> {
    let mut found = Vec::new();
    let up = "super::".repeat(depth);
    for prefix in ["crate::", up.as_str()] {
        for (place, _) in code.match_indices(prefix) {
            let before = &code[..place];
            if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') || before.ends_with("super::") {
                continue;
            }
            let rest = &code[place + prefix.len()..];
            match rest.strip_prefix('{') {
                Some(list) => found.extend(heads(list)),
                None => {
                    found.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
                }
            }
        }
    }
    found
}

#[test]
fn every_form_of_an_import_is_seen() {
    for (source, depth, modules) in [
        ("use crate::stats::Stats;", 1, vec!["stats"]),
        ("use crate::{grid::Grid, stats::{self, Stats}, model};", 1, vec!["grid", "stats", "model"]),
        (
            "use crate::{\n    error::{Error, Result},\n    decide::{a::{b, c}, d},\n};",
            2,
            vec!["error", "decide"],
        ),
        ("use crate::{model as m, time::*};", 1, vec!["model", "time"]),
        ("fn f() -> crate::model::Wiski { crate::decide::x() }", 1, vec!["model", "decide"]),
        ("use super::model::Wiski;", 1, vec!["model"]),
        ("use super::super::{decide::Space, model};", 2, vec!["decide", "model"]),
        ("use super::model::Wiski; // crate::decide", 2, vec![]),
        ("pub(in crate::learn) fn f() {}", 1, vec!["learn"]),
        ("#[cfg(test)]\nmod tests {\n    use super::model;\n    use super::super::grid;\n}", 1, vec!["grid"]),
    ] {
        assert_eq!(used(source, depth), modules, "{source}");
    }
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
        let parts: Vec<&str> = relative.iter().map(|c| c.to_str().unwrap()).collect();
        let module = parts[0].strip_suffix(".rs").unwrap_or(parts[0]);
        let Some(own) = order.iter().position(|&m| m == module) else {
            assert_eq!(module, "lib", "{} is not declared in lib.rs", relative.display());
            continue;
        };
        let depth = parts.len() - usize::from(parts.last() == Some(&"mod.rs"));
        for used in used(&fs::read_to_string(&file).unwrap(), depth) {
            let Some(place) = order.iter().position(|&m| m == used) else {
                // Names of the root are re-exports: who uses one uses a module that the test does not see.
                let is_name = used.starts_with(|c: char| c.is_uppercase());
                assert!(!is_name, "{} uses crate::{used} instead of its module", relative.display());
                continue;
            };
            uses += 1;
            assert!(place <= own, "{} uses {used}, which stands below it", relative.display());
        }
    }
    assert!(uses > 300, "the test reads paths, but found only {uses}");
}
