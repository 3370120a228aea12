use std::fmt::Write;

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::output::tests::written;

/// Finite numbers of every size, and any text.
fn tables() -> impl Strategy<Value = Vec<(f64, String, f64)>> {
    let number = || any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |x| x.is_finite());
    let text = prop_oneof![any::<String>(), "[a\",;\r\n \u{feff}\t'é]{0,12}"];
    vec((number(), text, number()), 0..20)
}

fn check(name: &str, bytes: Vec<u8>, table: &[(f64, String, f64)]) -> Result<(), TestCaseError> {
    let selection = Selection { cells: true, ..inputs(&["x", "y"]) };
    let rows = read(source(name, bytes).unwrap().select(&selection).unwrap());
    prop_assert_eq!(rows.len(), table.len());
    for (row, (x, text, y)) in rows.iter().zip(table) {
        let row = row.as_ref().unwrap();
        prop_assert_eq!(row.inputs[0].to_bits(), x.to_bits());
        prop_assert_eq!(row.inputs[1].to_bits(), y.to_bits());
        prop_assert_eq!(row.cells.get(1), text);
    }
    Ok(())
}

proptest! {
    #[test]
    fn csv_reads_what_csv_writes(table in tables()) {
        let csv = written(|out| {
            ["x", "text", "y"].iter().for_each(|name| out.text(name));
            out.end_row().unwrap();
            for (x, text, y) in &table {
                out.number(*x);
                out.text(text);
                out.number(*y);
                out.end_row().unwrap();
            }
        });
        check("a.csv", csv.into_bytes(), &table)?;
    }

    #[test]
    fn a_column_of_text_survives_on_its_own(texts in vec(any::<String>(), 0..20)) {
        let csv = written(|out| {
            for text in std::iter::once("t").chain(texts.iter().map(String::as_str)) {
                out.text(text);
                out.end_row().unwrap();
            }
        });
        let rows = source("a.csv", csv).unwrap();
        let rows = read(rows.select(&Selection { cells: true, ..Selection::default() }).unwrap());
        let found: Vec<_> = rows.iter().map(|row| row.as_ref().unwrap().cells.get(0)).collect();
        prop_assert_eq!(found, texts);
    }

    #[test]
    fn ndjson_reads_what_json_writes(table in tables()) {
        let mut text = String::new();
        for (x, t, y) in &table {
            let t = serde_json::to_string(t).unwrap();
            writeln!(text, "{{\"x\": {x}, \"text\": {t}, \"y\": {y:e}}}").unwrap();
        }
        if !table.is_empty() {
            check("a.ndjson", text.into_bytes(), &table)?;
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..200), rows in "[a-c0-9,\"\n{}:. ]{0,200}") {
        for bytes in [bytes, rows.into_bytes()] {
            for name in ["a.csv", "a.ndjson"] {
                if let Ok(mut source) = source(name, bytes.clone()) {
                    source.infer_inputs(&[], &[]).ok();
                    read(source.select(&Selection { cells: true, ..Selection::default() }).unwrap());
                }
            }
        }
    }
}
