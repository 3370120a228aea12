use crate::input::error::What;
use std::fmt::Write;

use super::*;

fn rows(text: &str, selection: &Selection) -> Rows {
    source("data.csv", text).unwrap().select(selection).unwrap()
}

const TEXT: &str = "a,b,y,c,v,t\n1,10,100,p,0.1,5\n2,20,200,q,0.2,6\nx,1,1,1,1,1\n3,30,300,r,0.3,7\n";

fn selection(column: &str, kind: TargetKind) -> Selection {
    let target = Some(target(column, kind, true));
    Selection { target, noise: Some("v".into()), time: Some("t".into()), ..inputs(&["a", "b"]) }
}

#[test]
fn a_table_holds_all_good_rows() {
    let mut bad = Vec::new();
    let mut keep = |row| {
        bad.push(row);
        Ok(())
    };
    let table = Table::read(&mut rows(TEXT, &selection("y", TargetKind::Number)), &mut keep).unwrap();
    assert_eq!((table.width, table.len()), (2, 3));
    assert_eq!(table.inputs, [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
    assert_eq!(table.target, [100.0, 200.0, 300.0]);
    assert_eq!((&table.noise[..], &table.time[..]), (&[0.1, 0.2, 0.3][..], &[5.0, 6.0, 7.0][..]));
    assert_eq!((&table.numbers[..], table.labels.len()), (&[1, 2, 4][..], 0));
    assert_eq!(bad.len(), 1);
    assert_eq!((bad[0].row, bad[0].line, bad[0].column.as_deref()), (3, Some(4), Some("a")));
    assert_eq!(bad[0].what, What::NotANumber("x".into()));

    let mut stop = |bad| Err(Error::BadRow(Box::new(bad)));
    let stopped = Table::read(&mut rows(TEXT, &selection("y", TargetKind::Number)), &mut stop);
    assert!(rejection(stopped).starts_with("data.csv: row 3 (line 4), column 'a'"));
}

#[test]
fn a_table_gives_back_what_the_stream_gave() {
    for (column, kind) in [("y", TargetKind::Number), ("c", TargetKind::Label)] {
        let table = Table::read(&mut rows(TEXT, &selection(column, kind)), &mut |_| Ok(())).unwrap();
        let mut row = Row { label: Some("old".into()), target: Some(9.0), ..Row::default() };
        for (i, wanted) in read(rows(TEXT, &selection(column, kind))).into_iter().flatten().enumerate() {
            table.get(i, &mut row);
            assert_eq!(row, Row { line: None, ..wanted });
        }
    }
    let optional = Selection { target: Some(target("y", TargetKind::Number, false)), ..inputs(&["x"]) };
    let table = Table::read(&mut rows("x,y\n1,\n2,3\n", &optional), &mut |_| Ok(())).unwrap();
    let mut row = Row::default();
    table.get(0, &mut row);
    assert_eq!(row.target, None);
    table.get(1, &mut row);
    assert_eq!(row.target, Some(3.0));
}

#[test]
fn shuffling_keeps_rows_whole() {
    let mut text = "a,b,y,v,t\n".to_owned();
    for i in 0..1000 {
        writeln!(text, "{i},{},{},{},{}", i + 1, i + 2, i + 3, i + 4).unwrap();
    }
    let table = Table::read(&mut rows(&text, &selection("y", TargetKind::Number)), &mut |_| Ok(())).unwrap();
    let shuffled = |seed| {
        let mut table = table.clone();
        table.shuffle(seed);
        table
    };
    let one = shuffled(1);
    assert_eq!(one, shuffled(1));
    assert_ne!(one.numbers, shuffled(2).numbers);
    let mut row = Row::default();
    for i in 0..one.len() {
        one.get(i, &mut row);
        let a = row.number as f64 - 1.0;
        assert_eq!((&row.inputs[..], row.target), (&[a, a + 1.0][..], Some(a + 2.0)));
        assert_eq!((row.noise, row.time), (Some(a + 3.0), Some(a + 4.0)));
    }
    let mut sorted = one.numbers.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, table.numbers);
}

#[test]
fn every_order_is_as_likely() {
    let table = Table { numbers: vec![0, 1, 2], ..Table::default() };
    let mut counts = std::collections::HashMap::new();
    for seed in 0..6000 {
        let mut table = table.clone();
        table.shuffle(seed);
        *counts.entry(table.numbers).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 6);
    assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
}
