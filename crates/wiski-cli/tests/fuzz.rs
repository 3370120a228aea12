//! Damaged input for every reader: snapshots, journals, tables in three formats, kernel expressions, settings and space files.
//!
//! Good input is damaged at random and read; what comes of it is an error in words or something that works, never a panic, a
//! number that is not finite, or a pause. By default each reader gets the same inputs on every machine;
//! `WISKI_FUZZ_SECONDS=3600 cargo nextest run -p wiski-cli --test fuzz` goes on for an hour (each test takes its share), with
//! other damage by `WISKI_FUZZ_SEED`. What breaks a reader is written to the
//! folder that the message names, and belongs into `tests/corpus`, which is read first.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Folder, table};
use rand::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::persist::{self, Columns, Journal, Model, Row, Stored, Sync, Target};
use wiski::{Classes, Features, Kernel, OnlineClassifier, OnlineRegressor, Schedule, Settings};

/// Numbers and marks at which readers stumble.
const PIECES: &[&[u8]] = &[
    b"\"",
    b"[",
    b"]",
    b"{",
    b"}",
    b"(",
    b")",
    b",",
    b"\n",
    b"\r\n",
    b";",
    b"=",
    b"@",
    b"*",
    b"+",
    b"-",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"1e400",
    b"-1",
    b"1e-320",
    b"NaN",
    b"inf",
    b"null",
    b"18446744073709551616",
    b"\\u0000",
    b"true",
    b"0",
    b"9999999999",
];

/// Damaged inputs when no time is given, for a reader that is called and for one that runs as a command.
const CALLS: u64 = 15_000;
const RUNS: u64 = 1500;

/// One piece of damage after the other.
fn damaged(bytes: &[u8], random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..random.random_range(1..5) {
        let at = random.random_range(0..=out.len());
        let end = (at + random.random_range(0..40)).min(out.len());
        match random.random_range(0..7) {
            0 => out.truncate(at),
            1 if at < out.len() => out[at] = random.random(),
            2 if at < out.len() => out[at] ^= 1 << random.random_range(0..8),
            3 => drop(out.splice(at..at, PIECES[random.random_range(0..PIECES.len())].iter().copied())),
            4 => drop(out.drain(at..end)),
            5 => {
                let again = out[at..end].to_vec();
                out.splice(at..at, again);
            }
            // A number of eight bytes: huge, negative, not finite, or nothing.
            _ if at + 8 <= out.len() => {
                let values = [f64::NAN, f64::INFINITY, -1.0, 1e300, 0.0, f64::from_bits(u64::MAX)];
                out[at..at + 8].copy_from_slice(&values[random.random_range(0..values.len())].to_le_bytes());
            }
            _ => {}
        }
    }
    out
}

/// Reads the files of `tests/corpus` that belong to a reader, and then damaged good input until the time is over, or so many.
fn fuzz(reader: &str, inputs: u64, good: &[Vec<u8>], mut read: impl FnMut(&[u8])) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time = number("WISKI_FUZZ_SECONDS").map(|all| Duration::from_secs(all) / 7);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(number("WISKI_FUZZ_SEED").unwrap_or(0));
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let files = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path());
    let own = files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(reader));
    let first: Vec<Vec<u8>> = own.map(|path| std::fs::read(path).unwrap()).collect();
    let (start, mut count) = (Instant::now(), 0_u64);
    let mut queue = good.iter().chain(&first).cloned().collect::<Vec<_>>().into_iter();
    while let Some(bytes) = queue.next().or_else(|| {
        let is_over = time.map_or(count >= inputs, |time| start.elapsed() > time);
        (!is_over).then(|| damaged(&good[random.random_range(0..good.len())], &mut random))
    }) {
        let begun = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| read(&bytes)));
        if done.is_err() || begun.elapsed() > Duration::from_secs(20) {
            let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{reader}-{count}"));
            std::fs::write(&place, &bytes).unwrap();
            panic!(
                "{reader}: input {} after {:.1} s: {}",
                count,
                begun.elapsed().as_secs_f64(),
                place.display()
            );
        }
        count += 1;
    }
    println!("{reader}: {count} inputs in {:.0} s", start.elapsed().as_secs_f64());
    assert!(count > good.len() as u64 + 10, "{count}");
}

/// Models of every kind in the form of files.
fn snapshots() -> Vec<Vec<u8>> {
    let columns =
        || Columns { inputs: vec!["a".into(), "b".into()], target: "y".into(), ..Columns::default() };
    let row = |i: u32| [f64::from(i * 7 % 50) / 5.0, f64::from(i * 3 % 40) / 10.0 - 2.0];
    let y = |x: &[f64; 2]| x[0].sin() + x[1];
    let small = Settings { warm_up: Some(30), memory: 60, ..Settings::default() };
    let settings = [
        Settings { grid: vec![6], ..small.clone() },
        Settings { features: Features::Points { count: Some(8) }, ..small.clone() },
        Settings { features: "additive:2".parse().unwrap(), ..small.clone() },
        Settings { features: "project:1".parse().unwrap(), grid: vec![8], ..small.clone() },
    ];
    let mut all = Vec::new();
    for settings in settings {
        let mut model = OnlineRegressor::new(2, settings).unwrap();
        for i in 0..80 {
            if i == 20 {
                // In the warm-up, too.
                let stored = Stored::new(columns(), Model::Regressor(Box::new(model.clone()))).unwrap();
                all.push(persist::to_bytes(&stored).unwrap());
            }
            model.step(&row(i), y(&row(i))).unwrap();
        }
        all.push(
            persist::to_bytes(&Stored::new(columns(), Model::Regressor(Box::new(model))).unwrap()).unwrap(),
        );
    }
    let mut model =
        OnlineClassifier::new(2, Classes::discovered(), Settings { grid: vec![6], ..small }).unwrap();
    (0..80).for_each(|i| drop(model.step(&row(i), if y(&row(i)) > 0.0 { "up" } else { "down" })));
    all.push(
        persist::to_bytes(&Stored::new(columns(), Model::Classifier(Box::new(model))).unwrap()).unwrap(),
    );
    all
}

/// Makes the checksums right, so that what is behind them is reached.
fn signed(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    if out.len() < 56 {
        return out;
    }
    let length = (out.len() - 56) as u64;
    out[32..40].copy_from_slice(&length.to_le_bytes());
    let body = xxhash_rust::xxh3::xxh3_64(&out[56..]);
    out[40..48].copy_from_slice(&body.to_le_bytes());
    let header = xxhash_rust::xxh3::xxh3_64(&out[..48]);
    out[48..56].copy_from_slice(&header.to_le_bytes());
    out
}

#[test]
fn snapshots_are_read_or_rejected() {
    let (mut read, mut rejected) = (0, 0);
    fuzz("snapshot", CALLS, &snapshots(), |bytes| {
        let Ok(mut stored) = persist::from_bytes::<Stored>(&signed(bytes)) else {
            rejected += 1;
            return;
        };
        read += 1;
        // What is read works, or says why not.
        let x = vec![0.5; stored.model.input_dim()];
        if let Ok(persist::Answer::Value(p)) = stored.model.predict(&x) {
            assert!(!p.mean.is_nan() && !p.variance.is_nan(), "{p:?}");
        }
        let _ = stored.model.step(&Row { x: &x, target: Target::Value(1.0), variance: None, time: None });
        let _ = persist::to_bytes(&stored);
    });
    assert!(read > 20 && rejected > 20, "{read} {rejected}");
}

#[test]
fn journals_are_read_up_to_the_damage() {
    let folder = Folder::new();
    let path = folder.path("journal");
    let mut journal = Journal::create(&path, 2, 5, Sync::Never).unwrap();
    for i in 0..20 {
        let (x, y) = ([f64::from(i), 1.0], f64::from(i));
        let target = if i % 5 == 4 { Target::Label("kind") } else { Target::Value(y) };
        journal
            .append(&Row { x: &x, target, variance: Some(1.0).filter(|_| i % 3 == 0), time: None })
            .unwrap();
    }
    journal.sync().unwrap();
    drop(journal);
    let good = std::fs::read(&path).unwrap();
    fuzz("journal", CALLS, &[good], |bytes| {
        std::fs::write(&path, bytes).unwrap();
        let mut rows = 0;
        if let Ok((journal, replay)) = Journal::open(&path, 2, Sync::Never, |_| {
            rows += 1;
            Ok(())
        }) {
            assert_eq!((replay.rows, journal.rows()), (rows, rows));
        }
    });
}

/// Runs the command on a damaged file.
fn tables(name: &str, good: &[Vec<u8>]) {
    let folder = Folder::new();
    let arguments = format!("stream {name} --target y --grid 5 --pretrain 10 --limit 40 --model m.wiski -q");
    fuzz(name, RUNS, good, |bytes| {
        folder.write(name, bytes);
        let done = folder.run(&arguments);
        assert!(
            matches!(done.code, Some(0..=2)) && !done.err.contains("panicked"),
            "{:?} {}",
            done.code,
            done.err
        );
        assert!(done.code == Some(0) || !done.err.trim().is_empty(), "an error without a word");
    });
}

#[test]
fn csv_is_read_or_rejected() {
    let quoted = "\"a\",\"b, c\",y\n\"1\",\"2\",3\n1,2,4\n".repeat(8);
    tables("data.csv", &[table(30, 1).into_bytes(), quoted.into_bytes()]);
}

#[test]
fn ndjson_is_read_or_rejected() {
    let line =
        |i: i32| format!("{{\"a\":{i},\"b\":{},\"note\":\"x\\n\",\"y\":{}}}\n", i % 7, f64::from(i).sin());
    tables("data.ndjson", &[(0..30).map(line).collect::<String>().into_bytes()]);
}

#[test]
fn parquet_is_read_or_rejected() {
    use parquet::data_type::DoubleType;
    use parquet::file::writer::SerializedFileWriter;
    let schema = "message rows { required double a; optional double b; required double y; }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    let values: Vec<f64> = (0..40).map(f64::from).collect();
    while let Some(mut column) = group.next_column().unwrap() {
        let levels =
            (column.typed::<DoubleType>().get_descriptor().max_def_level() > 0).then(|| vec![1_i16; 40]);
        column.typed::<DoubleType>().write_batch(&values, levels.as_deref(), None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
    tables("data.parquet", &[bytes]);
}

#[test]
fn expressions_are_read_or_rejected() {
    let good = [
        "rbf",
        "matern52@0 * rbf@1",
        "(rbf + periodic@0) * matern12",
        "rbf + 2 * linear",
        "additive:3",
        "geometric:1.1",
        "points:64",
        "mlp:16-16:2",
    ];
    let good = good.map(|text| text.as_bytes().to_vec());
    fuzz("expression", CALLS, &good, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        for dim in 1..4 {
            if let Ok(kernel) = Kernel::parse(text, dim) {
                assert!(kernel.variance().is_finite());
            }
        }
        let _ = (text.parse::<Features>(), text.parse::<Schedule>());
    });
}

#[test]
fn space_files_are_read_or_rejected() {
    let good = "[lr]\nmin = 1e-5\nmax = 0.1\nscale = \"log\"\n[depth]\nmin = 1\nmax = 8\ninteger = true\nstep = 2\n[kind]\nchoices = [\"a\", \"b\", 3]\n[extra]\nmin = 0\nmax = 1\nonly_if = { kind = \"a\" }\n";
    let folder = Folder::new();
    fuzz("space", RUNS, &[good.as_bytes().to_vec()], |bytes| {
        folder.write("space.toml", bytes);
        let done = folder.run("optimize new s.wiski --space space.toml");
        assert!(
            matches!(done.code, Some(0..=2)) && !done.err.contains("panicked"),
            "{:?} {}",
            done.code,
            done.err
        );
        if done.code == Some(0) {
            let asked = folder.run("optimize ask s.wiski -q 2");
            assert!(asked.code == Some(0), "{}", asked.err);
            std::fs::remove_file(folder.path("s.wiski")).unwrap();
        }
    });
}
