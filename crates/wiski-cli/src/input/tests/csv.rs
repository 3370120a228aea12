use super::*;

fn bad(cells: &str) -> String {
    complaint("data.csv", format!("temp,y\n1,2\n{cells}\n3,4\n"), &inputs(&["temp", "y"]))
}

#[test]
fn plain_rows() {
    let selection = Selection {
        target: Some(target("class", TargetKind::Label, true)),
        noise: Some("var".into()),
        time: Some("when".into()),
        cells: true,
        ..inputs(&["b", "a"])
    };
    let text =
        "a,b,class,var,when,note\n1,-2.5e3,x y,0.5,1970-01-02,\"so, \"\"so\"\"\"\n 3 ,+.5, z ,1,17.5,\n";
    let rows = read(source("data.csv", text).unwrap().select(&selection).unwrap());
    let first = rows[0].as_ref().unwrap();
    assert_eq!((first.number, first.line), (1, Some(2)));
    assert_eq!(first.inputs, [-2500.0, 1.0]);
    assert_eq!((first.label.as_deref(), first.target), (Some("x y"), None));
    assert_eq!((first.noise, first.time), (Some(0.5), Some(86400.0)));
    assert_eq!(
        first.cells.iter().collect::<Vec<_>>(),
        ["1", "-2.5e3", "x y", "0.5", "1970-01-02", "so, \"so\""]
    );
    let second = rows[1].as_ref().unwrap();
    assert_eq!((second.number, second.line), (2, Some(3)));
    assert_eq!((&second.inputs[..], second.label.as_deref()), (&[0.5, 3.0][..], Some("z")));
    assert_eq!((second.time, second.cells.get(2), second.cells.len()), (Some(17.5), " z ", 6));
    assert_eq!(rows.len(), 2);
}

#[test]
fn accepted_numbers() {
    for (text, number) in
        [("+1.5", 1.5), ("  7\t", 7.0), ("1.", 1.0), (".5", 0.5), ("1E-3", 1e-3), ("-0", 0.0), ("\"2\"", 2.0)]
    {
        assert_eq!(numbers("data.csv", format!("x\n{text}\n"), &["x"]), [Ok(vec![number])], "{text}");
    }
}

#[test]
fn bad_numbers() {
    assert_eq!(bad("n/a,2"), "data.csv: row 2 (line 3), column 'temp': 'n/a' is not a number");
    assert_eq!(bad("1,"), "data.csv: row 2 (line 3), column 'y': the cell is empty");
    assert_eq!(bad("1,  "), "data.csv: row 2 (line 3), column 'y': the cell is empty");
    for text in ["nan", "NaN", "inf", "-Infinity", "1e999"] {
        let message = format!("data.csv: row 2 (line 3), column 'temp': '{text}' is not a finite number");
        assert_eq!(bad(&format!("{text},1")), message);
    }
    for text in ["0x1F", "1_000", "1,5", "1 000", "--1", "1e", "yes", "٣", "1.2.3"] {
        let message = format!("data.csv: row 2 (line 3), column 'temp': '{text}' is not a number");
        assert_eq!(bad(&format!("\"{text}\",1")), message);
    }
}

#[test]
fn ragged_rows() {
    let few = "data.csv: row 2 (line 3), column 'y': the cell is missing: the row has 1 of 2 cells";
    assert_eq!(bad("1"), few);
    assert_eq!(bad("1,2,3"), "data.csv: row 2 (line 3): the row has 3 cells, but there are 2 columns");
}

#[test]
fn foreign_bytes() {
    let mut text = b"temp,y,z\n1,2,3\n1,\xff\xfe,3\n3,4,5\n".to_vec();
    let said = complaint("data.csv", text.clone(), &inputs(&["temp"]));
    assert_eq!(said, "data.csv: row 2 (line 3), column 'y': the text is not UTF-8");
    text[0] = 0xff;
    let said = rejection(source("data.csv", text));
    assert_eq!(said, "data.csv: the columns cannot be told: the text is not UTF-8");
    assert_eq!(numbers("data.csv", "x,y\n1,\0\n", &["x"]), [Ok(vec![1.0])]);
}

#[test]
fn long_texts_are_shortened_and_stay_on_one_line() {
    let said = bad(&format!("{},2", "a".repeat(1_000_000)));
    let shown = format!("'{}…'", "a".repeat(39));
    assert_eq!(said, format!("data.csv: row 2 (line 3), column 'temp': {shown} is not a number"));
    assert!(bad("\"a\nb\tc\u{7}\",2").contains(r"'a\nb\tc\u{7}' is not a number"));
    let exact = "é".repeat(40);
    assert!(bad(&format!("{exact},2")).contains(&format!("'{exact}'")));
}

#[test]
fn line_numbers_count_lines_and_rows_count_records() {
    let text = "x,t\n\n1,\"two\nlines\"\n\n2,b\r\n   \n3,c";
    let rows = read(source("data.csv", text).unwrap().select(&inputs(&["x"])).unwrap());
    let places: Vec<_> = rows.iter().flatten().map(|row| (row.number, row.line, row.inputs[0])).collect();
    assert_eq!(places, [(1, Some(3), 1.0), (2, Some(6), 2.0), (3, Some(8), 3.0)]);
}

#[test]
fn marks_line_ends_and_quotes() {
    for text in [
        "\u{feff}x,y\r\n1,2\r\n3,4\r\n\r\n\n",
        "x,y\n1,2\n3,4",
        "\n\n\"x\",\"y\"\n\"1\",2\n3,\"4\"\n",
        " x , y \n 1, 2\n3 ,4 \n",
    ] {
        assert_eq!(
            numbers("data.csv", text, &["x", "y"]),
            [Ok(vec![1.0, 2.0]), Ok(vec![3.0, 4.0])],
            "{text:?}"
        );
    }
    let cells = |text: &str| {
        let selection = Selection { cells: true, ..Selection::default() };
        let rows = read(source("data.csv", text).unwrap().select(&selection).unwrap());
        rows.into_iter()
            .map(|row| row.unwrap().cells.iter().map(String::from).collect())
            .collect::<Vec<Vec<_>>>()
    };
    assert_eq!(cells("a,b\n\"1,5\",\"say \"\"hi\"\"\"\n"), [["1,5", "say \"hi\""]]);
    assert_eq!(cells("a,b\n\"x\r\ny\",\"\"\r\n"), [["x\r\ny", ""]]);
    assert_eq!(cells("a,b\n5\" pipe,\"in\" short\n"), [["5\" pipe", "in short"]]);
    assert_eq!(cells("a,b\n\"\"\"\",\"\n\"\"\"\n"), [["\"", "\n\""]]);
    assert_eq!(cells("a\n\"\"\n"), [[""]]);
}

#[test]
fn an_open_quote_costs_one_row() {
    let text = "x,t\n1,a\n2,\"b\n3,c\n4,d\n";
    let found = numbers("data.csv", text, &["x"]);
    assert_eq!(found[1], Err("data.csv: row 2 (line 3): a quotation mark is never closed".into()));
    assert_eq!((&found[0], &found[2..]), (&Ok(vec![1.0]), &[Ok(vec![3.0]), Ok(vec![4.0])][..]));
    let found = read(source("data.csv", text).unwrap().select(&inputs(&["x"])).unwrap());
    assert_eq!(found[3].as_ref().unwrap().line, Some(5));
}

#[test]
fn headers() {
    let empty = "data.csv is empty: a header line with column names is needed";
    for text in ["", "\n \r\n", "\u{feff}"] {
        assert_eq!(rejection(source("data.csv", text)), empty);
    }
    assert_eq!(numbers("data.csv", "x,y\n", &["x"]), []);
    assert_eq!(numbers("data.csv", "x,y", &["x"]), []);
    let said = rejection(source("data.csv", "1.5, 2\n3,4\n"));
    let wanted =
        "the first line holds only numbers, not column names; if there is no header, say --no-header";
    assert_eq!(said, format!("data.csv: {wanted}"));

    let options = Options { no_header: true, ..Options::default() };
    let bare = Source::from_stream("data.csv", "1.5,2\n3,4\n".as_bytes(), None, &options).unwrap();
    assert_eq!(bare.columns(), ["c1", "c2"]);
    let rows = read(bare.select(&inputs(&["c2"])).unwrap());
    let places: Vec<_> = rows.iter().flatten().map(|row| (row.number, row.line, row.inputs[0])).collect();
    assert_eq!(places, [(1, Some(1), 2.0), (2, Some(2), 4.0)]);
    let nothing = Source::from_stream("data.csv", "".as_bytes(), None, &options);
    assert_eq!(rejection(nothing), "data.csv is empty: at least one row is needed");
}

#[test]
fn delimiters() {
    assert_eq!(numbers("data.tsv", "x\ty\n1\t2\n", &["y"]), [Ok(vec![2.0])]);
    let options = Options { delimiter: Some(b';'), ..Options::default() };
    let rows = Source::from_stream("data.csv", "x;y\n\"1;5\";2\n".as_bytes(), None, &options).unwrap();
    let rows = read(rows.select(&Selection { cells: true, ..inputs(&["y"]) }).unwrap());
    assert_eq!(rows[0].as_ref().unwrap().cells.get(0), "1;5");
}

#[test]
fn targets_that_may_be_absent() {
    let text = "x,y\n1,2\n3,\n";
    let select = |kind, required| {
        let selection = Selection { target: Some(target("y", kind, required)), ..inputs(&["x"]) };
        read(source("data.csv", text).unwrap().select(&selection).unwrap())
    };
    for kind in [TargetKind::Number, TargetKind::Label] {
        let said = select(kind, true)[1].clone().unwrap_err();
        assert_eq!(said, "data.csv: row 2 (line 3), column 'y': the cell is empty");
    }
    let found = select(TargetKind::Number, false);
    assert_eq!(found[0].as_ref().unwrap().target, Some(2.0));
    assert_eq!(found[1].as_ref().unwrap().target, None);
    let found = select(TargetKind::Label, false);
    assert_eq!(found[0].as_ref().unwrap().label.as_deref(), Some("2"));
    assert_eq!(found[1].as_ref().unwrap().label, None);
}

#[test]
fn nothing_stays_in_a_row_that_is_used_again() {
    let all = Selection {
        target: Some(target("c", TargetKind::Label, true)),
        noise: Some("x".into()),
        time: Some("x".into()),
        cells: true,
        ..inputs(&["x"])
    };
    let mut row = Row::default();
    source("a.csv", "x,c\n1,k\n").unwrap().select(&all).unwrap().next(&mut row).unwrap();
    assert_eq!(
        (row.label.as_deref(), row.noise, row.time, row.cells.len()),
        (Some("k"), Some(1.0), Some(1.0), 2)
    );
    for selection in
        [Selection { target: Some(target("z", TargetKind::Number, true)), ..inputs(&["y"]) }, inputs(&["y"])]
    {
        row.target = Some(9.0);
        source("b.csv", "y,z\n2,3\n").unwrap().select(&selection).unwrap().next(&mut row).unwrap();
        let target = selection.target.map(|_| 3.0);
        assert_eq!(row, Row { number: 1, line: Some(2), inputs: vec![2.0], target, ..Row::default() });
    }
}

#[test]
fn times_and_noises() {
    let text = |cell| format!("t\n1\n{cell}\n2012-01-01 00:30:00\n");
    let time = Selection { time: Some("t".into()), ..Selection::default() };
    assert_eq!(
        complaint("data.csv", text("noon"), &time),
        "data.csv: row 2 (line 3), column 't': 'noon' is neither a number nor a time such as 2012-01-31T23:59:00Z"
    );
    assert!(complaint("data.csv", text("\"\""), &time).ends_with("the cell is empty"));
    assert!(complaint("data.csv", text("inf"), &time).ends_with("'inf' is not a finite number"));
    let noise = Selection { noise: Some("t".into()), ..Selection::default() };
    let said = complaint("data.csv", "t\n1\n-0.5\n2\n", &noise);
    assert_eq!(said, "data.csv: row 2 (line 3), column 't': a noise must be above zero, not -0.5");
    assert!(complaint("data.csv", "t\n1\n0\n2\n", &noise).ends_with("a noise must be above zero, not 0"));
}
