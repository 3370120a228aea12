//! Tests of reading, format by format.

mod columns;
mod csv;
mod ndjson;
mod parquet;
mod round_trip;
mod speed;
mod streams;
mod table;

use std::io::Cursor;

use super::*;

/// A source with these bytes, named as a file would be.
fn source(name: &str, bytes: impl Into<Vec<u8>>) -> Result<Source> {
    Source::from_stream(name, Cursor::new(bytes.into()), None, &Options::default().or_by_extension(name))
}

/// The one-line message of the error that there must be.
fn rejection<T>(result: Result<T>) -> String {
    let message = result.err().expect("an error").to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

fn inputs(names: &[&str]) -> Selection {
    Selection { inputs: names.iter().map(|&name| name.into()).collect(), ..Selection::default() }
}

fn target(column: &str, kind: TargetKind, required: bool) -> Target {
    Target { column: column.into(), kind, required }
}

/// All rows, or for bad ones and for a final error the message.
fn read(mut rows: Rows) -> Vec<Result<Row, String>> {
    let mut all = Vec::new();
    let mut row = Row::default();
    loop {
        match rows.next(&mut row) {
            Ok(true) => all.push(Ok(row.clone())),
            Ok(false) => return all,
            Err(error) => {
                let bad = matches!(error, Error::BadRow(_));
                all.push(Err(rejection::<()>(Err(error))));
                if !bad {
                    return all;
                }
            }
        }
    }
}

/// The inputs of all rows, or messages.
fn numbers(name: &str, bytes: impl Into<Vec<u8>>, names: &[&str]) -> Vec<Result<Vec<f64>, String>> {
    let rows = source(name, bytes).unwrap().select(&inputs(names)).unwrap();
    read(rows).into_iter().map(|row| row.map(|row| row.inputs)).collect()
}

/// The message about the second of three rows, of which the others are sound: reading goes on after a bad row.
fn complaint(name: &str, bytes: impl Into<Vec<u8>>, selection: &Selection) -> String {
    let rows = read(source(name, bytes).unwrap().select(selection).unwrap());
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert_eq!(rows[0].as_ref().unwrap().number, 1);
    assert_eq!(rows[2].as_ref().unwrap().number, 3);
    rows[1].clone().unwrap_err()
}
