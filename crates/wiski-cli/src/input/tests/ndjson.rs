use super::*;

fn bad(line: &str) -> String {
    complaint("data.ndjson", format!("{{\"x\":1,\"s\":\"a\"}}\n{line}\n{{\"x\":3}}\n"), &inputs(&["x"]))
}

#[test]
fn records() {
    let text = concat!(
        "{\"x\": 1.5, \"class\": \"caf\\u00e9 \\\"q\\\"\", \"t\": \"1970-01-02\", \"o\": {\"a\": [1, 2]}}\n\n",
        "{\"t\": 3, \"more\": 7, \"class\": 2, \"x\": -1e2}\r\n",
        "{\"x\": true, \"class\": false, \"t\": \"4\", \"o\": null}",
    );
    let selection = Selection {
        target: Some(target("class", TargetKind::Label, true)),
        time: Some("t".into()),
        cells: true,
        ..inputs(&["x"])
    };
    let source = source("data.ndjson", text).unwrap();
    assert_eq!(source.columns(), ["x", "class", "t", "o"]);
    let rows: Vec<_> = read(source.select(&selection).unwrap()).into_iter().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!((&rows[0].inputs[..], rows[0].label.as_deref()), (&[1.5][..], Some("café \"q\"")));
    assert_eq!((rows[0].time, rows[0].line), (Some(86400.0), Some(1)));
    assert_eq!(
        rows[0].cells.iter().collect::<Vec<_>>(),
        ["1.5", "café \"q\"", "1970-01-02", "{\"a\": [1, 2]}"]
    );
    assert_eq!((&rows[1].inputs[..], rows[1].label.as_deref()), (&[-100.0][..], Some("2")));
    assert_eq!((rows[1].time, rows[1].line), (Some(3.0), Some(3)));
    assert_eq!(rows[1].cells.iter().collect::<Vec<_>>(), ["-1e2", "2", "3", ""]);
    assert_eq!((&rows[2].inputs[..], rows[2].label.as_deref()), (&[1.0][..], Some("false")));
    assert_eq!(rows[2].time, Some(4.0));
}

#[test]
fn bad_records() {
    let row = "data.ndjson: row 2 (line 2)";
    assert_eq!(bad("{\"x\":null}"), format!("{row}, column 'x': the value is null"));
    assert_eq!(bad("{\"y\":1}"), format!("{row}, column 'x': the value is missing"));
    assert_eq!(bad("{\"x\":\"1\"}"), format!("{row}, column 'x': the text '1' cannot be used as a number"));
    assert_eq!(bad("{\"x\":[1]}"), format!("{row}, column 'x': an array cannot be used as a number"));
    assert_eq!(bad("{\"x\":{}}"), format!("{row}, column 'x': an object cannot be used as a number"));
    assert_eq!(bad("{\"x\":1e999}"), format!("{row}, column 'x': '1e999' is not a finite number"));
    let not = format!("{row}: not a JSON object: ");
    assert_eq!(bad("{\"x\":1,"), not.clone() + "it ends too early");
    assert_eq!(bad("{\"x\":NaN}"), not.clone() + "expected value at 'NaN}'");
    assert_eq!(bad("{\"x\":Infinity}"), not.clone() + "expected value at 'Infinity}'");
    assert_eq!(bad("{\"x\":1} {\"x\":2}"), not.clone() + "trailing characters at '{\"x\":2}'");
    assert!(bad("[1,2]").starts_with(&(not.clone() + "invalid type: sequence, expected an object")));
    assert!(bad("17").starts_with(&(not.clone() + "invalid type: integer `17`, expected an object")));
    assert!(bad(&format!("{{\"x\":{}}}", "z".repeat(1_000_000))).len() < 120);
    let said = bad("{\"s\":\"\\ud800\",\"x\":1}");
    assert!(said.starts_with(&format!("{row}, column 's': not a JSON object: ")), "{said}");
}

#[test]
fn deep_nesting_is_no_danger() {
    let deep = format!("{{\"x\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(bad(&deep).starts_with("data.ndjson: row 2 (line 2)"));
}

#[test]
fn foreign_bytes() {
    let said = complaint("a.ndjson", b"{\"x\":1}\n{\"x\":\"\xff\"}\n{\"x\":1}\n".to_vec(), &inputs(&["x"]));
    assert_eq!(said, "a.ndjson: row 2 (line 2): the text is not UTF-8");
}

#[test]
fn labels_and_times_of_the_wrong_type() {
    let text = |value| format!("{{\"v\":1}}\n{{\"v\":{value}}}\n{{\"v\":2}}\n");
    let label = Selection { target: Some(target("v", TargetKind::Label, true)), ..Selection::default() };
    let time = Selection { time: Some("v".into()), ..Selection::default() };
    let said = |value, selection| complaint("a.jsonl", text(value), selection);
    assert!(said("[]", &label).ends_with("column 'v': an array cannot be used as a label"));
    assert!(said("null", &label).ends_with("column 'v': the value is null"));
    assert!(said("\"\"", &label).ends_with("column 'v': the cell is empty"));
    assert!(said("true", &time).ends_with("column 'v': true or false cannot be used as a time"));
    assert!(said("{}", &time).ends_with("column 'v': an object cannot be used as a number"));
}

#[test]
fn absent_targets() {
    let selection = Selection { target: Some(target("y", TargetKind::Number, false)), ..inputs(&["x"]) };
    let text = "{\"x\":1,\"y\":2}\n{\"x\":1,\"y\":null}\n{\"x\":1}\n";
    let rows = read(source("a.json", text).unwrap().select(&selection).unwrap());
    let targets: Vec<_> = rows.into_iter().map(|row| row.unwrap().target).collect();
    assert_eq!(targets, [Some(2.0), None, None]);
}

#[test]
fn first_records() {
    assert_eq!(rejection(source("a.ndjson", " \n")), "a.ndjson is empty: a JSON object a line is needed");
    let said = rejection(source("a.ndjson", "{\"x\":}\n"));
    assert_eq!(said, "a.ndjson: the columns cannot be told: not a JSON object: expected value at '}'");
    let said = rejection(source("a.json", "[{\"x\":1}]\n"));
    assert_eq!(said, "a.json: a JSON array; one object a line is needed, as jq -c '.[]' writes");
}
