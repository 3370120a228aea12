use super::*;

#[test]
fn unknown_columns() {
    let said = |name: &str, text: &str| rejection(source("data.csv", text).unwrap().select(&inputs(&[name])));
    assert_eq!(
        said("tmep", "temp,hour,power\n"),
        "there is no column 'tmep' in data.csv; did you mean 'temp'? columns: temp, hour, power"
    );
    assert_eq!(said("TEMP", "temp,hour\n").matches("did you mean 'temp'?").count(), 1);
    assert_eq!(said("price", "temp,hour\n"), "there is no column 'price' in data.csv; columns: temp, hour");
    assert_eq!(
        said("temp", "temp;hour\n"),
        "there is no column 'temp' in data.csv; is the delimiter ';'? columns: temp;hour"
    );
    assert!(said("temp", "temp\thour\n").contains(r"is the delimiter '\t'?"));
    let many: Vec<_> = (0..30).map(|i| format!("column{i}")).collect();
    assert!(said("price", &many.join(",")).ends_with("column18, column19 and 10 more"));

    let absent = Some("nosuch".to_owned());
    for selection in [
        Selection { noise: absent.clone(), ..Selection::default() },
        Selection { time: absent.clone(), ..Selection::default() },
        Selection { target: Some(target("nosuch", TargetKind::Number, false)), ..Selection::default() },
    ] {
        assert!(
            rejection(source("a.csv", "x\n").unwrap().select(&selection))
                .contains("no column 'nosuch' in a.csv")
        );
    }
}

#[test]
fn duplicates_matter_only_if_selected() {
    let text = "x,y,x\n1,2,3\n";
    let said = rejection(source("data.csv", text).unwrap().select(&inputs(&["x"])));
    assert_eq!(said, "data.csv has 2 columns called 'x'");
    assert_eq!(numbers("data.csv", text, &["y"]), [Ok(vec![2.0])]);
}

#[test]
fn the_target_is_no_input() {
    let selection = Selection { target: Some(target("y", TargetKind::Number, true)), ..inputs(&["x", "y"]) };
    let said = rejection(source("data.csv", "x,y\n").unwrap().select(&selection));
    assert_eq!(said, "column 'y' of data.csv cannot be both input and target");
}

#[test]
fn inputs_are_inferred_from_the_first_row() {
    let text = ",x,when,name,blank,z,y\n0,1.5,2012-01-01,a,,nan,7\nrow,2,2012-01-02,5,6,8,9\n";
    let mut csv = source("data.csv", text).unwrap();
    let inferred = csv.infer_inputs(&["y"], &[]).unwrap();
    assert_eq!(inferred.inputs, ["x", "z"]);
    assert_eq!(inferred.left_out, ["", "when", "name", "blank"]);
    // The row that was looked at is still delivered.
    let rows = read(csv.select(&inputs(&["x"])).unwrap());
    let seen: Vec<_> = rows.iter().flatten().map(|row| (row.number, row.line, row.inputs[0])).collect();
    assert_eq!(seen, [(1, Some(2), 1.5), (2, Some(3), 2.0)]);

    let mut json = source("a.ndjson", "{\"x\":1,\"b\":true,\"s\":\"1\",\"n\":null,\"l\":[]}\n").unwrap();
    let inferred = json.infer_inputs(&[], &[]).unwrap();
    assert_eq!(
        (inferred.inputs, inferred.left_out),
        (vec!["x".into(), "b".into()], ["s", "n", "l"].map(String::from).into())
    );
    assert_eq!(read(json.select(&inputs(&["x"])).unwrap()).len(), 1);

    let nothing = source("data.csv", "x,y\n").unwrap().infer_inputs(&["y"], &[]).unwrap();
    assert_eq!((nothing.inputs.len(), nothing.left_out.len()), (1, 0));
    let said = rejection(source("data.csv", "x,y\n1\n").unwrap().infer_inputs(&[], &[]));
    assert_eq!(said, "data.csv: row 1 (line 2), column 'y': the cell is missing: the row has 1 of 2 cells");
}
