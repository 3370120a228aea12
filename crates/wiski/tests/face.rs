//! The face of the library stays small: what is at the root, and which modules are public.

use std::fs;
use std::path::Path;

fn source(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file)).unwrap()
}

/// The names behind every `pub use` of a file, macros aside.
fn exported(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    for statement in source.split("\npub use ").skip(1) {
        let paths = statement.split(';').next().unwrap();
        let list = paths.split_once('{').map_or_else(
            || paths.rsplit("::").next().unwrap().to_owned(),
            |(_, list)| list.trim_end_matches('}').to_owned(),
        );
        names.extend(list.split(',').map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()));
    }
    names
}

/// More than this many names are a sign that one belongs into the module of its topic, or under `internals`.
const MOST: usize = 45;

#[test]
fn the_root_has_about_forty_names_and_few_modules() {
    let lib = source("lib.rs");
    let names = exported(&lib);
    assert!(
        names.contains(&"OnlineRegressor".to_owned()) && names.contains(&"Error".to_owned()),
        "{names:?}"
    );
    assert!(!names.contains(&"*".to_owned()), "the root exports by name");
    assert!(names.len() <= MOST, "{} names at the root: {names:?}", names.len());

    let modules: Vec<&str> =
        lib.lines().filter_map(|l| l.strip_prefix("pub mod ")).map(|l| l.trim_end_matches(';')).collect();
    assert_eq!(modules, ["time", "model", "decide", "persist", "shard", "internals"]);
}

#[test]
fn modules_of_a_topic_export_by_name() {
    for module in ["time", "model", "decide", "persist", "shard"] {
        let text = source(&format!("{module}/mod.rs"));
        let names = exported(&text);
        assert!(!names.is_empty() && !names.contains(&"*".to_owned()), "{module}: {names:?}");
        assert!(names.len() <= MOST, "{} names in {module}: {names:?}", names.len());
        assert!(!text.lines().any(|l| l.starts_with("pub mod ")), "{module} has a public module of its own");
    }
}
