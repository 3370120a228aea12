use std::{
    io::{self, Read, Write},
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn many_rows() -> Vec<u8> {
    let mut text = b"x,y\n".to_vec();
    for i in 0..20_000 {
        writeln!(text, "{i},{}", f64::from(i).sin()).unwrap();
    }
    text
}

#[test]
fn compressed_data_are_recognized_by_their_first_bytes() {
    for name in ["data.csv.gz", "data.csv", "stdin"] {
        assert_eq!(numbers(name, gzip(b"x\n1\n2\n"), &["x"]), [Ok(vec![1.0]), Ok(vec![2.0])], "{name}");
    }
    assert_eq!(numbers("a.ndjson.gz", gzip(b"{\"x\":1}\n"), &["x"]), [Ok(vec![1.0])]);
    // What `cat a.gz b.gz` writes is sound, too.
    let two = [gzip(b"x\n1\n"), gzip(b"2\n")].concat();
    assert_eq!(numbers("data.csv.gz", two, &["x"]).len(), 2);
    assert_eq!(numbers("data.csv.gz", "x\n1\n", &["x"]), [Ok(vec![1.0])]);
}

#[test]
fn truncated_and_damaged_gzip() {
    let whole = gzip(&many_rows());
    for length in [whole.len() / 2, whole.len() - 9, whole.len() - 8, whole.len() - 1] {
        let found = numbers("data.csv.gz", &whole[..length], &["x"]);
        let (last, rows) = found.split_last().unwrap();
        assert!(
            rows.iter().enumerate().all(|(i, row)| *row == Ok(vec![i as f64])),
            "a half row was delivered"
        );
        let wanted =
            format!("data.csv.gz: reading broke off after row {}: the gzip data end too early", rows.len());
        assert_eq!(*last, Err(wanted));
    }
    assert_eq!(rejection(source("data.csv.gz", &whole[..15])), "data.csv.gz: the gzip data end too early");
    let mut damaged = whole.clone();
    let at = damaged.len() - 6;
    damaged[at] ^= 1;
    let found = numbers("data.csv.gz", damaged, &["x"]);
    let said = found.last().unwrap().clone().unwrap_err();
    assert!(
        said.starts_with("data.csv.gz: reading broke off after row 20000: the gzip data are damaged"),
        "{said}"
    );
}

#[test]
fn nothing_follows_a_broken_stream() {
    let whole = gzip(&many_rows());
    let mut rows = source("a.csv.gz", &whole[..whole.len() / 2]).unwrap().select(&inputs(&["x"])).unwrap();
    let mut row = Row::default();
    while rows.next(&mut row).is_ok_and(|more| more) {}
    assert!(!rows.next(&mut row).unwrap());
}

#[test]
fn rows_arrive_as_soon_as_their_line_is_complete() {
    for (name, head, lines) in [
        ("live.csv", "x,t\n", ["1,a\n", "2,\"b\"\r\n", "3,c\n"]),
        ("live.ndjson", "", ["{\"x\":1}\n", "{\"x\":2}\n", "{\"x\":3}\n"]),
    ] {
        for compressed in [false, true] {
            let (reader, writer) = io::pipe().unwrap();
            let mut writer: Box<dyn Write> = if compressed {
                Box::new(GzEncoder::new(writer, Compression::fast()))
            } else {
                Box::new(writer)
            };
            let (send, arrived) = mpsc::channel();
            let following = thread::spawn(move || {
                let options = Options::default().or_by_extension(name);
                let source = Source::from_stream(name, reader, None, &options).unwrap();
                let mut rows = source.select(&inputs(&["x"])).unwrap();
                let mut row = Row::default();
                while rows.next(&mut row).unwrap() {
                    send.send(row.inputs[0]).unwrap();
                }
            });
            writer.write_all(head.as_bytes()).unwrap();
            for (line, number) in lines.into_iter().zip([1.0, 2.0, 3.0]) {
                // Half a line is not a row.
                let (first, second) = line.split_at(2);
                writer.write_all(first.as_bytes()).unwrap();
                writer.flush().unwrap();
                assert!(arrived.recv_timeout(Duration::from_millis(20)).is_err());
                writer.write_all(second.as_bytes()).unwrap();
                writer.flush().unwrap();
                assert_eq!(arrived.recv_timeout(Duration::from_secs(20)), Ok(number), "{name}");
            }
            let tail = if head.is_empty() { "{\"x\":4}" } else { "4,d" };
            writer.write_all(tail.as_bytes()).unwrap();
            drop(writer);
            assert_eq!(
                arrived.recv_timeout(Duration::from_secs(20)),
                Ok(4.0),
                "the last line needs no line end"
            );
            following.join().unwrap();
        }
    }
}

#[test]
fn bytes_may_come_one_by_one() {
    struct Drip<R>(R);
    impl<R: Read> Read for Drip<R> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.0.read(&mut buf[..1])
        }
    }
    let text = "\u{feff}x,t\r\n1,\"a \"\"b\"\",\r\n\"\r\n\r\n2,é\r\n";
    for bytes in [text.as_bytes().to_vec(), gzip(text.as_bytes())] {
        let source =
            Source::from_stream("a.csv", Drip(io::Cursor::new(bytes)), None, &Options::default()).unwrap();
        let rows = read(source.select(&Selection { cells: true, ..inputs(&["x"]) }).unwrap());
        assert_eq!(rows[0].as_ref().unwrap().cells.get(1), "a \"b\",\r\n");
        assert_eq!(rows[1].as_ref().unwrap().cells.get(1), "é");
        assert_eq!(rows.len(), 2);
    }
}

#[test]
fn overlong_lines_are_skipped_in_bounded_memory() {
    let long = |n: usize| io::repeat(b'7').take(n as u64);
    let start = "x,y\n1,2\n".as_bytes();
    let stream =
        start.chain(long(5 * lines::LIMIT)).chain("\n3,4\n\"".as_bytes()).chain(long(2 * lines::LIMIT));
    let source = Source::from_stream("a.csv", stream.chain("\n5,6\n".as_bytes()), None, &Options::default());
    let rows = read(source.unwrap().select(&inputs(&["x"])).unwrap());
    let said: Vec<_> =
        rows.iter().map(|row| row.as_ref().map_or_else(Clone::clone, |row| format!("{row:?}"))).collect();
    assert_eq!(rows.len(), 5, "{said:?}");
    assert_eq!(said[1], "a.csv: row 2 (line 3): the row is longer than 16 MiB");
    assert_eq!(said[3], "a.csv: row 4 (line 5): the row is longer than 16 MiB");
    let last = rows[4].as_ref().unwrap();
    assert_eq!((last.number, last.line, last.inputs[0]), (5, Some(6), 5.0));

    let endless = Source::from_stream("zeros", io::repeat(b'7'), None, &Options::default());
    assert_eq!(rejection(endless), "zeros: the columns cannot be told: the row is longer than 16 MiB");
    let (stream, _) = bytes::open(io::repeat(b'7'), None).unwrap();
    let mut lines = lines::Lines::new(stream).unwrap();
    assert!(lines.advance(Some(b',')).is_err());
    assert!(lines.capacity() <= 2 * lines::LIMIT);
}

#[test]
fn the_format_of_a_pipe_is_told_by_its_first_byte() {
    assert_eq!(numbers("stdin", " \n {\"x\":1}\n", &["x"]), [Ok(vec![1.0])]);
    assert_eq!(numbers("stdin", "x\n1\n", &["x"]), [Ok(vec![1.0])]);
    let options = Options { format: Some(Format::Parquet), ..Options::default() };
    let pipe = Source::from_stream("stdin", "PAR1".as_bytes(), None, &options);
    assert!(rejection(pipe).starts_with("stdin: EOF: Parquet file too small"));
    let options = Options { format: Some(Format::Csv), ..Options::default() };
    let odd = Source::from_stream("stdin", "{a,b\n1,2\n".as_bytes(), None, &options).unwrap();
    assert_eq!(odd.columns(), ["{a", "b"]);
}

#[test]
fn files_know_how_far_they_have_been_read() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [("a.csv", many_rows()), ("a.csv.gz", gzip(&many_rows()))] {
        let path = dir.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let source = Source::open(path.to_str().unwrap(), &Options::default()).unwrap();
        let mut rows = source.select(&inputs(&["x"])).unwrap();
        let mut row = Row::default();
        rows.next(&mut row).unwrap();
        let (done, total) = rows.progress().unwrap();
        assert!(done > 0 && done < total && total == bytes.len() as u64, "{done} of {total}");
        while rows.next(&mut row).unwrap() {}
        assert_eq!((rows.progress(), row.number), (Some((total, total)), 20_000));
    }
    let said = rejection(Source::open(dir.path().join("none.csv").to_str().unwrap(), &Options::default()));
    assert!(said.contains("none.csv: No such file"), "{said}");
    assert!(rejection(Source::open(dir.path().to_str().unwrap(), &Options::default())).contains("directory"));
}

#[test]
#[cfg(unix)]
fn named_pipes_are_read_like_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let writing = {
        let path = path.clone();
        thread::spawn(move || std::fs::write(path, "x\n1\n").unwrap())
    };
    let source = Source::open(path.to_str().unwrap(), &Options::default()).unwrap();
    let rows = source.select(&inputs(&["x"])).unwrap();
    assert_eq!(rows.progress(), None);
    assert_eq!(read(rows).len(), 1);
    writing.join().unwrap();
}
