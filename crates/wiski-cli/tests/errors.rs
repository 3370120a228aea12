//! Bad files and bad rows: one line that names file, row and column, exit code 2, nothing overwritten.

mod common;

use std::fs;

use common::{Folder, column, table};

#[test]
fn malformed_rows_are_named() {
    let folder = Folder::new();
    let good = table(60, 1);
    let with = |row: &str| format!("{good}{row}\n{}", &table(5, 2)[6..]);
    let cases: [(&str, String, &str); 12] = [
        ("missing", with("1,2"), "row 61 (line 62), column 'y': the cell is missing"),
        ("ragged", with("1,2,3,4"), "row 61 (line 62): the row has 4 cells, but there are 3 columns"),
        ("text", with("1,abc,3"), "row 61 (line 62), column 'b': 'abc' is not a number"),
        ("empty", with("1,,3"), "row 61 (line 62), column 'b': the cell is empty"),
        ("nan", with("1,NaN,3"), "column 'b': 'NaN' is not a finite number"),
        ("inf", with("1,2,-inf"), "column 'y': '-inf' is not a finite number"),
        ("quote", with("1,\"2,3"), "row 61"),
        ("long", with(&format!("1,{},3", "x".repeat(1_000_000))), "row 61 (line 62), column 'b': 'xxx"),
        ("nothing", String::new(), "is empty"),
        ("header", "a,b,y\n".into(), "has no rows"),
        ("numbers", "1,2,3\n4,5,6\n".into(), "--no-header"),
        ("twice", "a,a,y\n1,2,3\n".into(), "2 columns called 'a'"),
    ];
    for (name, content, message) in cases {
        let file = format!("{name}.csv");
        folder.write(&file, content);
        let arguments =
            format!("stream {file} --target y --inputs a,b --model m.wiski --predictions p.csv --quiet");
        let done = folder.run(&arguments);
        done.is_rejection(&arguments, message);
        assert!(done.err.contains(&file), "{}", done.err);
        // What was learned before the bad row is kept, and the message says how to go on.
        let learned = message.contains("row 61") || ["nan", "inf"].contains(&name);
        assert_eq!((folder.path("m.wiski").exists(), folder.path("p.csv").exists()), (learned, learned));
        if learned {
            assert!(done.err.contains("--model m.wiski --resume --from-row 61"), "{}", done.err);
            assert_eq!(folder.json("info m.wiski --json")["n"], 60.0);
            assert_eq!(folder.read("p.csv").lines().count(), 61);
            fs::remove_file(folder.path("m.wiski")).unwrap();
            fs::remove_file(folder.path("p.csv")).unwrap();
        }
    }
    let left = folder.names();
    assert!(!left.iter().any(|n| n.starts_with('.') || n.contains("tmp") || n.contains("part")), "{left:?}");
}

#[test]
fn bad_rows_can_be_skipped_and_are_counted() {
    let folder = Folder::new();
    let mut lines: Vec<String> = table(200, 1).lines().map(String::from).collect();
    folder.write("good.csv", lines.join("\n"));
    lines.insert(50, "1,2".into());
    lines.insert(100, "1,x,2".into());
    lines.insert(150, "1,,".into());
    folder.write("bad.csv", lines.join("\n"));
    let done = folder.run("stream bad.csv --target y --on-bad-row skip --json --model bad.wiski");
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.err.contains("3 bad rows skipped; the first: bad.csv: row 50 (line 51)"), "{}", done.err);
    let json: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((&json["rows"], &json["skipped"]), (&200.into(), &3.into()));
    // Skipping leaves no trace in the model.
    folder.ok("stream good.csv --target y --model good.wiski");
    assert!(fs::read(folder.path("bad.wiski")).unwrap() == fs::read(folder.path("good.wiski")).unwrap());
    // The same when rows are read before they are learned.
    let done = folder.run("stream bad.csv --target y --on-bad-row skip --shuffle 1 --json");
    assert!(done.err.contains("3 bad rows"), "{}", done.err);
    folder.rejected("stream bad.csv --target y --shuffle 1", "row 50");
}

#[test]
fn odd_but_legal_files_are_read() {
    let folder = Folder::new();
    let good = table(80, 1);
    folder.write("plain.csv", &good);
    folder.write("bom.csv", format!("\u{feff}{good}"));
    folder.write("crlf.csv", good.replace('\n', "\r\n"));
    let quoted =
        good.lines().map(|l| l.split(',').map(|c| format!("\"{c}\"")).collect::<Vec<_>>().join(",") + "\n");
    folder.write("quoted.csv", quoted.collect::<String>());
    folder.write("blank.csv", format!("{good}\n\n"));
    folder.write("unended.csv", good.trim_end());
    folder.write("tabs.tsv", good.replace(',', "\t"));
    folder.ok("stream plain.csv --target y --model plain.wiski");
    for name in ["bom.csv", "crlf.csv", "quoted.csv", "blank.csv", "unended.csv", "tabs.tsv"] {
        folder.ok(&format!("stream {name} --target y --model m.wiski"));
        assert!(
            fs::read(folder.path("m.wiski")).unwrap() == fs::read(folder.path("plain.wiski")).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn columns_and_options_that_make_no_sense_are_rejected() {
    let folder = Folder::new();
    folder.write("data.csv", table(100, 1));
    for (arguments, message) in [
        ("stream data.csv --target z", "no column 'z' in data.csv"),
        ("stream data.csv --target y --inputs a,bb", "did you mean 'b'"),
        ("stream data.csv --target y --inputs a,y", "both input and target"),
        ("stream nothing.csv --target y", "nothing.csv: No such file"),
        ("stream data.csv --target y --grid 3", "--grid"),
        ("stream data.csv --target y --grid 16x16x16", "--grid"),
        ("stream data.csv --target y --kernel gauss", "'gauss' is not one of"),
        ("stream data.csv --target y --features cube", "--features"),
        ("stream data.csv --target y --features project:9", "1 to 4 axes"),
        ("stream data.csv --target y --learn geometric:0.5", "--learn"),
        ("stream data.csv --target y --learn sometimes", "--learn"),
        ("stream data.csv --target y --bounds 0:1", "1 intervals were given for 2 inputs"),
        ("stream data.csv --target y --bounds 1:0,0:1", "--bounds"),
        ("stream data.csv --target y --init speed=3", "no hyperparameter 'speed'"),
        ("stream data.csv --target y --init noise=-1", "must be positive"),
        ("stream data.csv --target y --holdout 1.5", "--holdout"),
        ("stream data.csv --target y --half-life soon", "--half-life"),
        ("stream data.csv --target y --resume --model no.wiski", "no.wiski does not exist"),
        ("stream data.csv --target y --pretrain -1", "--pretrain"),
        ("stream data.csv --target y --off-grid error --bounds 0:1,-2:2 --pretrain 5", "column 'a'"),
        ("stream data.csv --target y --max-grid 20", "grid"),
    ] {
        folder.rejected(arguments, message);
    }
    assert_eq!(folder.names(), ["data.csv"]);
}

#[test]
fn targets_and_times_that_make_no_sense_name_their_column() {
    let folder = Folder::new();
    folder.write("data.csv", table(400, 1));
    folder.rejected(
        "stream data.csv --target y --classify",
        "different labels; a number is predicted by regression",
    );
    let rows: String = table(60, 1)
        .lines()
        .enumerate()
        .map(|(i, line)| match i {
            0 => format!("{line},when\n"),
            50 => format!("{line},3\n"),
            _ => format!("{line},{i}\n"),
        })
        .collect();
    folder.write("times.csv", rows);
    folder.rejected(
        "stream times.csv --target y --time-col when --half-life 30",
        "row 50 (line 51), column 'when': times must not decrease, but 3 follows 49",
    );
}

#[test]
fn damaged_models_are_rejected_by_every_command() {
    let folder = Folder::new();
    folder.write("data.csv", table(100, 1));
    folder.ok("stream data.csv --target y --model m.wiski");
    let whole = fs::read(folder.path("m.wiski")).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let mut newer = whole.clone();
    newer[8] = 99;
    for (bytes, message) in [
        (&b""[..], "m.wiski: empty"),
        (&b"a,b,y\n1,2,3\n"[..], "m.wiski: not a wiski file"),
        (&whole[..30], "m.wiski: cut off"),
        (&whole[..whole.len() - 5], "m.wiski: cut off"),
        (&flipped, "m.wiski: damaged"),
        (&newer, "m.wiski: format version 99"),
    ] {
        folder.write("m.wiski", bytes);
        for command in [
            "predict m.wiski data.csv",
            "update m.wiski data.csv",
            "forget m.wiski data.csv",
            "shard m.wiski -o s.wiski",
            "merge m.wiski m.wiski -o s.wiski",
            "info m.wiski",
            "plot m.wiski -o m.svg",
            "sample m.wiski",
            "stream data.csv --target y --model m.wiski --resume",
        ] {
            folder.rejected(command, message);
            assert!(fs::read(folder.path("m.wiski")).unwrap() == bytes, "{command}");
        }
    }
    assert_eq!(folder.names(), ["data.csv", "m.wiski"]);
}

#[test]
fn a_rejected_row_changes_no_file() {
    let folder = Folder::new();
    folder.write("data.csv", table(100, 1));
    folder.ok("stream data.csv --target y --model m.wiski");
    let before = fs::read(folder.path("m.wiski")).unwrap();
    folder.write("bad.csv", table(30, 2) + "oops,1,2\n");
    folder
        .rejected("update m.wiski bad.csv", "bad.csv: row 31 (line 32), column 'a': 'oops' is not a number");
    assert!(fs::read(folder.path("m.wiski")).unwrap() == before);
    folder.write("p.csv", "precious");
    folder.rejected("predict m.wiski bad.csv -o p.csv", "row 31");
    assert_eq!(folder.read("p.csv"), "precious");
    // The model is not replaced by its own predictions, by whatever name.
    for command in ["predict m.wiski data.csv -o ./m.wiski", "explore m.wiski data.csv -o m.wiski"] {
        folder.rejected(command, "m.wiski is the model");
        assert!(fs::read(folder.path("m.wiski")).unwrap() == before);
    }
    // What was learned before the bad row is kept when bad rows are skipped.
    folder.ok("update m.wiski bad.csv --on-bad-row skip");
    assert_eq!(folder.json("info m.wiski --json")["n"], 130.0);
    // A folder that does not exist, a place that cannot be written.
    folder.rejected("stream data.csv --target y --model no/where/m.wiski", "no/where/m.wiski");
    let means = column(&folder.ok("predict m.wiski data.csv"), "mean");
    assert_eq!(means.len(), 100);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let folder = Folder::new();
    folder.write("data.csv", table(100, 1));
    folder.ok("stream data.csv --target y --model m.wiski");
    folder.rejected("predict m.wiski data.csv -o /dev/full", "/dev/full");
}

#[test]
fn places_and_sizes_are_checked_before_the_work() {
    let folder = Folder::new();
    folder.write("data.csv", table(100, 1));
    folder.write("file", "x");
    folder.write("semicolons.csv", table(100, 1).replace(',', ";"));
    for (arguments, message) in [
        ("stream data.csv --target y --model data.csv", "data.csv is the input"),
        ("stream data.csv --target y --report file/x", "file/x"),
        ("stream data.csv --target y --grid 2000x2000", "4000000 points are more than"),
        ("stream data.csv --target y --emit --predictions -", "standard output is for --emit"),
        ("stream semicolons.csv --target y", "is the delimiter ';'?"),
        ("stream data.csv --target y --periodic hour=24", "'hour' is not one of the inputs a, b"),
        ("stream data.csv --target y --features additive --kernel rbf", "--kernel"),
    ] {
        folder.rejected(arguments, message);
    }
    assert_eq!(folder.names(), ["data.csv", "file", "semicolons.csv"]);
    assert_eq!(folder.read("data.csv"), table(100, 1));
}

#[cfg(target_os = "linux")]
#[test]
fn a_closed_or_full_standard_output_is_no_panic() {
    let folder = Folder::new();
    folder.write("data.csv", table(100, 1));
    folder.ok("stream data.csv --target y --model m.wiski");
    for command in
        ["info m.wiski", "info m.wiski --json", "bench --seconds 0.01", "stream data.csv --target y -q"]
    {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = folder.command(command).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("standard output") && text.lines().count() == 1, "{command}: {text}");
    }
}

#[test]
fn held_out_outliers_do_not_cost_the_model() {
    let folder = Folder::new();
    let mut lines: Vec<String> = table(300, 1).lines().map(String::from).collect();
    // One of many will be held out.
    (1..300).step_by(7).for_each(|i| lines[i] = "1e9,0,1".into());
    folder.write("data.csv", lines.join("\n"));
    let done = folder
        .run("stream data.csv --target y --holdout 0.3 --on-bad-row skip --model m.wiski --bounds 0:6,-2:2");
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.err.contains("bad rows skipped"), "{}", done.err);
    // A grid for the declared bounds, not for what lies beyond.
    assert!(folder.json("info m.wiski --json")["grid"][0]["points"].as_u64().unwrap() < 100);
}
