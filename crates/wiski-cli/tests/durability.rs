//! Stopping and going on: interrupted streams equal uninterrupted ones, and no acknowledged row is lost.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{Folder, Random, assert_close, classes, column, table};

/// The header and the rows from..to of a CSV.
fn part(all: &str, from: usize, to: usize) -> String {
    let lines: Vec<&str> = all.lines().collect();
    format!("{}\n{}\n", lines[0], lines[1 + from..=to].join("\n"))
}

#[test]
fn a_resumed_stream_equals_an_uninterrupted_one() {
    for (options, all) in [
        ("--target y", table(700, 1)),
        ("--target y --features project:1 --grid 20", table(700, 2)),
        ("--target y --learn every-step --grid 8 --half-life 300", table(300, 3)),
        ("--target kind --classify --grid 10", classes(400, 4)),
    ] {
        let folder = Folder::new();
        let rows = all.lines().count() - 1;
        folder.write("all.csv", &all);
        folder.write("one.csv", part(&all, 0, rows / 3));
        folder.write("two.csv", part(&all, rows / 3, rows));
        folder.ok(&format!("stream all.csv {options} --model all.wiski"));
        folder.ok(&format!("stream one.csv {options} --model part.wiski"));
        folder.ok("stream two.csv --model part.wiski --resume");
        assert!(
            fs::read(folder.path("all.wiski")).unwrap() == fs::read(folder.path("part.wiski")).unwrap(),
            "{options}"
        );
        let (whole, parts) =
            (folder.ok("predict all.wiski all.csv"), folder.ok("predict part.wiski all.csv"));
        let name = if options.contains("classify") { "p_warm" } else { "mean" };
        assert_close(&column(&whole, name), &column(&parts, name), 1e-12);
        // A model can also be continued under another name.
        folder.ok(&format!("stream one.csv {options} --model first.wiski"));
        folder.ok("stream two.csv --resume first.wiski --model second.wiski");
        assert!(
            fs::read(folder.path("second.wiski")).unwrap() == fs::read(folder.path("all.wiski")).unwrap()
        );
    }
}

#[test]
fn fifty_kills_lose_no_acknowledged_row() {
    let folder = Folder::new();
    let all = table(6000, 5);
    folder.write("all.csv", &all);
    let options = "--target y --grid 8 --learn geometric:1.5";
    folder.ok(&format!("stream all.csv {options} --model whole.wiski"));
    let arguments =
        format!("stream all.csv {options} --emit --journal live --continue --sync off --compact-after 97");
    let mut random = Random::new(6);
    let mut acknowledged = 0;
    for kill in 0..50 {
        let mut child =
            folder.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let read = random.below(200);
        for i in 0..read {
            line.clear();
            if output.read_line(&mut line).unwrap() == 0 {
                break;
            }
            let row: u64 = line.split(',').next().unwrap().parse().unwrap();
            // Nothing acknowledged is asked for again; within a run no row is left out.
            assert!(
                if i == 0 { row > acknowledged } else { row == acknowledged + 1 },
                "kill {kill}: {row} after {acknowledged}"
            );
            acknowledged = row;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What was still in the pipe had been acknowledged too.
        for line in output.lines() {
            let line = line.unwrap();
            let row = line.split(',').next().and_then(|r| r.parse().ok());
            // The last line may be cut off.
            if line.matches(',').count() == 5 {
                acknowledged = acknowledged.max(row.unwrap_or(0));
            }
        }
    }
    assert!(acknowledged > 1000, "the kills came too early to mean anything: {acknowledged}");
    let done = folder.run(&arguments);
    assert_eq!(done.code, Some(0), "{}", done.err);
    // The recovered model is the one of a stream that was never interrupted, to the last bit.
    let (live, whole) = (fs::read(folder.path("live/model.wiski")), fs::read(folder.path("whole.wiski")));
    assert!(live.unwrap() == whole.unwrap());
    assert_eq!(folder.json("info live/model.wiski --json")["rows"], 6000);
}

#[test]
fn a_journal_says_what_it_recovered_and_rejects_what_does_not_fit() {
    let folder = Folder::new();
    let all = table(300, 7);
    folder.write("all.csv", &all);
    folder.write("one.csv", part(&all, 0, 100));
    folder.write("two.csv", part(&all, 100, 300));
    folder.write("other.csv", all.replace("a,b,y", "a,b,z"));
    // Killed right after its rows: the journal holds what no snapshot does.
    let arguments = "stream - --target y --journal live --emit --sync row";
    let mut child = folder.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, folder.read("one.csv").as_bytes()).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!((0..101).all(|_| lines.next().unwrap().is_ok()));
    child.kill().unwrap();
    child.wait().unwrap();
    // Half a row, as a crash might leave it.
    let log = folder.path("live/journal.log");
    let mut bytes = fs::read(&log).unwrap();
    bytes.extend_from_slice(&[33, 0, 0, 0, 1, 2, 3]);
    fs::write(&log, &bytes).unwrap();
    let done = folder.run("stream two.csv --target y --journal live");
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(
        done.err
            .contains("100 rows recovered, 100 of them from the journal; an incomplete last row was dropped"),
        "{}",
        done.err
    );
    folder.ok("stream all.csv --target y --journal whole");
    let (live, whole) =
        (fs::read(folder.path("live/model.wiski")), fs::read(folder.path("whole/model.wiski")));
    assert!(live.unwrap() == whole.unwrap());
    folder.rejected("stream other.csv --target z --journal live", "other columns");
    // Damage in the middle is an error, not a shorter stream.
    let mut child = folder
        .command("stream - --target y --journal live --emit --sync off")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, folder.read("one.csv").as_bytes()).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!((0..101).all(|_| lines.next().unwrap().is_ok()));
    child.kill().unwrap();
    child.wait().unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, &bytes).unwrap();
    folder.rejected("stream two.csv --target y --journal live", "journal.log: damaged at byte");
}

#[test]
fn a_model_saved_in_its_warm_up_goes_on_too() {
    let folder = Folder::new();
    let all = table(300, 8);
    folder.write("all.csv", &all);
    folder.write("one.csv", part(&all, 0, 20));
    folder.write("two.csv", part(&all, 20, 300));
    folder.ok("stream all.csv --target y --model all.wiski");
    folder.ok("stream one.csv --target y --model part.wiski");
    // Twenty rows are too few for a warm-up, and still predict.
    assert_eq!(column(&folder.ok("predict part.wiski one.csv"), "mean").len(), 20);
    folder.ok("stream two.csv --model part.wiski --resume");
    assert!(fs::read(folder.path("all.wiski")).unwrap() == fs::read(folder.path("part.wiski")).unwrap());
}

#[test]
fn continuing_skips_what_was_learned_and_nothing_else() {
    let folder = Folder::new();
    let all = table(400, 9);
    folder.write("all.csv", &all);
    folder.write("head.csv", part(&all, 0, 250));
    // Held-out rows are not in the journal, and are held out again.
    let options = "--target y --holdout 0.2 --journal live --continue --json";
    let whole = folder.json("stream all.csv --target y --holdout 0.2 --journal whole --json");
    folder.ok(&format!("stream head.csv {options}"));
    let parts = folder.json(&format!("stream all.csv {options}"));
    assert_eq!(parts["holdout"], whole["holdout"]);
    assert_eq!(parts["n"], whole["n"]);
    let again = folder.json(&format!("stream all.csv {options}"));
    assert_eq!((&again["rows"], &again["n"]), (&0.into(), &whole["n"]));
    // A journal begun by a model from elsewhere skips none of the rows it has not seen.
    folder.ok("stream head.csv --target y --model head.wiski");
    folder.write("tail.csv", part(&all, 250, 400));
    folder.ok("stream tail.csv --resume head.wiski --journal other --continue");
    assert_eq!(folder.json("info other/model.wiski --json")["n"], 400.0);
    // A corrected row is learned.
    let bad = all
        .lines()
        .enumerate()
        .map(|(i, l)| if i == 200 { "999,0,1" } else { l })
        .collect::<Vec<_>>()
        .join("\n");
    folder.write("bad.csv", bad);
    let options = "--target y --bounds 0:6,-2:2 --off-grid error --journal fixed --continue";
    folder.rejected(
        &format!("stream bad.csv {options}"),
        "row 200 (line 201), column 'a': 999 lies off the grid, which covers 0 to 6",
    );
    folder.ok(&format!("stream all.csv {options}"));
    assert_eq!(folder.json("info fixed/model.wiski --json")["n"], 400.0);
    folder.rejected("stream all.csv --target y --classify --journal fixed", "predicts numbers, not classes");
}

#[cfg(unix)]
#[test]
fn a_request_to_end_keeps_the_model() {
    let folder = Folder::new();
    let mut command = folder.command("stream - --target y --emit --pretrain 20 --model m.wiski --quiet");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, table(40, 4).as_bytes()).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!((0..41).all(|_| lines.next().unwrap().is_ok()));
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    assert_eq!(folder.json("info m.wiski --json")["n"], 40.0);
}

#[test]
fn a_listener_that_leaves_does_not_take_the_model_along() {
    let folder = Folder::new();
    folder.write("all.csv", table(3000, 10));
    let mut child = folder
        .command("stream all.csv --target y --emit --model m.wiski")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    (0..100).for_each(|_| assert!(output.read_line(&mut line).unwrap() > 0));
    drop(output);
    assert!(child.wait().unwrap().success());
    assert!(folder.json("info m.wiski --json")["n"].as_f64().unwrap() >= 99.0);
}
