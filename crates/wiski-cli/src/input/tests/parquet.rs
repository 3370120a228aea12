use std::{fs::File, path::Path, sync::Arc};

use ::parquet::{
    basic::Compression,
    column::writer::ColumnWriter,
    data_type::{ByteArray, FixedLenByteArray, Int96},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};

use super::*;

const ROWS: usize = 2500;

/// A file of two groups with a column of every kind. Row 7 of `maybe` is null and row 8 of `double` is NaN.
fn write(path: &Path, compression: Compression) {
    let schema = "message rows {
        required double double;
        required float float;
        required int32 int;
        required int64 big (INTEGER(64, false));
        required boolean flag;
        optional double maybe;
        required binary name (UTF8);
        required int64 micros (TIMESTAMP(MICROS, true));
        required int64 nanos (TIMESTAMP(NANOS, false));
        required int32 date (DATE);
        required int96 old;
        required int32 price (DECIMAL(9, 2));
        required fixed_len_byte_array(5) wide (DECIMAL(11, 3));
        required fixed_len_byte_array(2) half (FLOAT16);
        repeated int32 list;
    }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut file = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    for rows in [0..ROWS / 2, ROWS / 2..ROWS] {
        let mut group = file.next_row_group().unwrap();
        for column in 0..15 {
            let mut writer = group.next_column().unwrap().unwrap();
            let rows = rows.clone();
            let count = rows.len();
            let ints = |scale: i64| rows.clone().map(|i| i as i64 * scale).collect::<Vec<_>>();
            let small = || rows.clone().map(|i| i as i32 - 3).collect::<Vec<_>>();
            match writer.untyped() {
                ColumnWriter::BoolColumnWriter(w) => {
                    w.write_batch(&rows.map(|i| i % 2 == 1).collect::<Vec<_>>(), None, None)
                }
                ColumnWriter::Int32ColumnWriter(w) if column == 14 => {
                    w.write_batch(&[], Some(&vec![0; count]), Some(&vec![0; count]))
                }
                ColumnWriter::Int32ColumnWriter(w) => w.write_batch(&small(), None, None),
                ColumnWriter::Int64ColumnWriter(w) => {
                    let values = match column {
                        3 => vec![-1; count],
                        7 => ints(1_500_000),
                        _ => ints(1_500_000_000),
                    };
                    w.write_batch(&values, None, None)
                }
                ColumnWriter::Int96ColumnWriter(w) => {
                    let mut value = Int96::new();
                    value.set_data(0, 0, 2_440_589);
                    w.write_batch(&vec![value; count], None, None)
                }
                ColumnWriter::FloatColumnWriter(w) => {
                    w.write_batch(&rows.map(|i| i as f32 * 0.5).collect::<Vec<_>>(), None, None)
                }
                ColumnWriter::DoubleColumnWriter(w) if column == 0 => {
                    let double = |i| if i == 7 { f64::NAN } else { (i as f64).sin() };
                    w.write_batch(&rows.map(double).collect::<Vec<_>>(), None, None)
                }
                ColumnWriter::DoubleColumnWriter(w) => {
                    let levels: Vec<_> = rows.clone().map(|i| i16::from(i != 6)).collect();
                    let values: Vec<_> = rows.filter(|&i| i != 6).map(|i| i as f64).collect();
                    w.write_batch(&values, Some(&levels), None)
                }
                ColumnWriter::ByteArrayColumnWriter(w) => {
                    let name = |i| ByteArray::from(format!("é{i}").as_str());
                    w.write_batch(&rows.map(name).collect::<Vec<_>>(), None, None)
                }
                ColumnWriter::FixedLenByteArrayColumnWriter(w) => {
                    let bytes =
                        if column == 12 { vec![0xff, 0xff, 0xff, 0xff, 0x85] } else { vec![0x00, 0xc1] };
                    w.write_batch(&vec![FixedLenByteArray::from(bytes); count], None, None)
                }
            }
            .unwrap();
            writer.close().unwrap();
        }
        group.close().unwrap();
    }
    file.close().unwrap();
}

/// Writes a file and opens it.
fn open(compression: Compression, extension: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(format!("rows{extension}"));
    write(&path, compression);
    (dir, path.to_str().unwrap().to_owned())
}

#[test]
fn every_type_is_read() {
    for (compression, extension) in [
        (Compression::UNCOMPRESSED, ""),
        (Compression::SNAPPY, ".parquet"),
        (Compression::LZ4_RAW, ".parquet"),
        (Compression::BROTLI(Default::default()), ".parquet"),
        #[cfg(feature = "zstd")]
        (Compression::ZSTD(Default::default()), ".parquet"),
    ] {
        let (_dir, path) = open(compression, extension);
        let names = ["double", "float", "int", "big", "flag", "price", "wide", "half"];
        let selection = Selection {
            target: Some(target("name", TargetKind::Label, true)),
            time: Some("nanos".into()),
            ..inputs(&names)
        };
        let rows = Source::open(&path, &Options::default()).unwrap().select(&selection).unwrap();
        let rows = read(rows);
        assert_eq!(rows.len(), ROWS);
        for (i, row) in rows.iter().enumerate().filter(|(i, _)| *i != 7) {
            let row = row.as_ref().unwrap();
            let (x, flag) = (i as f64, (i % 2) as f64);
            let wanted = [x.sin(), x * 0.5, x - 3.0, u64::MAX as f64, flag, (x - 3.0) / 100.0, -0.123, -2.5];
            assert_eq!((row.number, row.line), (i as u64 + 1, None));
            assert_eq!(row.inputs, wanted);
            assert_eq!((row.label.as_deref(), row.time), (Some(&*format!("é{i}")), Some(x * 1.5)));
        }
    }
}

#[test]
fn all_columns_pass_through_as_text() {
    let (_dir, path) = open(Compression::GZIP(Default::default()), ".parquet");
    let selection = Selection { cells: true, time: Some("micros".into()), ..Selection::default() };
    let rows = read(Source::open(&path, &Options::default()).unwrap().select(&selection).unwrap());
    let row = rows[1].as_ref().unwrap();
    assert_eq!(row.time, Some(1.5));
    let wanted = [
        "0.8414709848078965",
        "0.5",
        "-2",
        "18446744073709551615",
        "true",
        "1",
        "é1",
        "1970-01-01T00:00:01.5",
        "1970-01-01T00:00:01.5",
        "1969-12-30T00:00:00",
        "1970-01-02T00:00:00",
        "-0.02",
        "-0.123",
        "-2.5",
        "",
    ];
    assert_eq!(row.cells.iter().collect::<Vec<_>>(), wanted);
}

#[test]
fn a_pipe_is_kept_and_read() {
    let (_dir, path) = open(Compression::SNAPPY, ".parquet");
    let of_file =
        read(Source::open(&path, &Options::default()).unwrap().select(&inputs(&["float", "int"])).unwrap());
    for format in [None, Some(Format::Parquet)] {
        let options = Options { format, ..Options::default() };
        let source = Source::from_stream("stdin", File::open(&path).unwrap(), None, &options).unwrap();
        let of_pipe = read(source.select(&inputs(&["float", "int"])).unwrap());
        assert_eq!(of_pipe, of_file);
    }
    let broken = Source::from_stream("stdin", &b"PAR1 and no more"[..], None, &Options::default());
    assert!(rejection(broken).starts_with("stdin: "));
    // A column may well begin so.
    let text = Source::from_stream("stdin", &b"PAR2,y\n1,2\n"[..], None, &Options::default()).unwrap();
    assert_eq!(text.columns(), ["PAR2", "y"]);
}

#[test]
fn bad_rows() {
    let (_dir, path) = open(Compression::SNAPPY, ".parquet");
    let said = |selection: &Selection, row: usize| {
        let rows = read(Source::open(&path, &Options::default()).unwrap().select(selection).unwrap());
        assert_eq!(rows.len(), ROWS);
        rows[row - 1].clone().unwrap_err().replace(&path, "a.parquet")
    };
    assert_eq!(said(&inputs(&["maybe"]), 7), "a.parquet: row 7, column 'maybe': the value is null");
    assert_eq!(
        said(&inputs(&["double"]), 8),
        "a.parquet: row 8, column 'double': 'NaN' is not a finite number"
    );
    let said = |column| said(&inputs(&[column]), 1);
    assert_eq!(said("name"), "a.parquet: row 1, column 'name': the text 'é0' cannot be used as a number");
    assert_eq!(said("date"), "a.parquet: row 1, column 'date': a point in time cannot be used as a number");
    assert_eq!(said("list"), "a.parquet: row 1, column 'list': a nested column cannot be used as a number");
}

#[test]
fn the_schema_tells_the_inputs() {
    let (_dir, path) = open(Compression::SNAPPY, ".parquet");
    let mut source = Source::open(&path, &Options::default()).unwrap();
    assert_eq!(source.columns().len(), 15);
    let inferred = source.infer_inputs(&["double"], &[]).unwrap();
    assert_eq!(inferred.inputs, ["float", "int", "big", "flag", "maybe", "price", "wide", "half"]);
    assert_eq!(inferred.left_out, ["name", "micros", "nanos", "date", "old", "list"]);
    let mut rows = source.select(&inputs(&["float"])).unwrap();
    let mut row = Row::default();
    assert_eq!(rows.progress(), Some((0, ROWS as u64)));
    while rows.next(&mut row).unwrap() {}
    assert_eq!(rows.progress(), Some((ROWS as u64, ROWS as u64)));
}

#[test]
fn damaged_files_are_rejected_or_break_off() {
    let (_dir, path) = open(Compression::SNAPPY, ".parquet");
    let whole = std::fs::read(&path).unwrap();
    for length in [0, 3, 4, 100, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(rejection(Source::open(&path, &Options::default())).starts_with(&path));
    }
    let mut damaged = whole.clone();
    damaged[4..2000].fill(0xa5);
    std::fs::write(&path, &damaged).unwrap();
    let rows = read(Source::open(&path, &Options::default()).unwrap().select(&inputs(&["double"])).unwrap());
    let said = rows.last().unwrap().clone().unwrap_err();
    assert!(said.contains("reading broke off after row 0"), "{said}");
}
