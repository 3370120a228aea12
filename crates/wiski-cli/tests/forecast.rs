//! `wiski forecast` through the binary.

mod common;

use std::f64::consts::TAU;
use std::fmt::Write as _;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use common::{Folder, Random};

/// Hourly sales with a day, from a date on.
fn hourly(rows: usize) -> String {
    let mut random = Random::new(5);
    let mut text = String::from("when,sold\n");
    for i in 0..rows {
        let (day, hour) = (1 + i / 24, i % 24);
        let y = 30.0 + 0.01 * i as f64 + 5.0 * (TAU * hour as f64 / 24.0).sin() + random.uniform();
        writeln!(text, "2024-{:02}-{:02} {hour:02}:00,{y:.4}", 1 + (day - 1) / 28, 1 + (day - 1) % 28)
            .unwrap();
    }
    text
}

#[test]
fn dates_seasons_paths_and_backtests() {
    let folder = Folder::new();
    // 28 days of January.
    folder.write("sales.csv", hourly(28 * 24));
    let out = folder
        .ok("forecast sales.csv --time when --target sold --horizon 1d --season 24h --paths 2 --components");
    let mut lines = out.lines();
    let head = lines.next().unwrap();
    assert!(head.starts_with("when,mean,std,lower,upper,trend,trend_std,"), "{head}");
    assert!(head.ends_with("path1,path2"), "{head}");
    let first: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(first[0], "2024-01-29T00:00:00");
    let number = |i: usize| first[i].parse::<f64>().unwrap();
    assert!((number(1) - 37.2).abs() < 1.0 && number(3) < number(1) && number(1) < number(4), "{first:?}");
    assert_eq!(out.lines().count(), 25);

    let json = folder.json("forecast sales.csv --time when --target sold --horizon 12h --backtest 5 --json");
    assert_eq!(json["rows"], 672);
    assert!((json["seasons"][0].as_f64().unwrap() - 86_400.0).abs() < 60.0, "{}", json["seasons"]);
    let all = &json["backtest"]["all"];
    assert!(all["rmse"].as_f64().unwrap() < 0.45 && all["coverage"].as_f64().unwrap() > 0.85, "{all}");
    assert_eq!(json["forecast"]["mean"].as_array().unwrap().len(), 12);
}

/// Sales by the month that grow by a factor: the next rows are the firsts of the next months, and components multiply.
#[test]
fn months_and_logarithms() {
    let folder = Folder::new();
    let mut random = Random::new(8);
    let mut text = String::from("month,sold\n");
    for i in 0..72 {
        let season = if i % 12 == 11 { 0.5 } else { 0.1 * f64::from(i % 3) };
        let y = (4.0 + 0.02 * f64::from(i) + season + 0.05 * (random.uniform() - 0.5)).exp();
        writeln!(text, "{}-{:02}-01,{y:.3}", 2017 + i / 12, 1 + i % 12).unwrap();
    }
    folder.write("sales.csv", text);
    let json = folder.json("forecast sales.csv --time month --target sold --horizon 1y --json");
    assert_eq!(json["scale"], "log");
    let times: Vec<&str> =
        json["forecast"]["time"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    assert_eq!(times.len(), 12);
    for (k, time) in times.iter().enumerate() {
        assert_eq!(*time, format!("2023-{:02}-01T00:00:00", k + 1));
    }
    let mean = |k: usize| json["forecast"]["mean"][k].as_f64().unwrap();
    let level = |i: f64| (4.0 + 0.02 * i).exp();
    assert!((mean(11) / level(83.0) / 0.5f64.exp() - 1.0).abs() < 0.1, "{}", mean(11));
    assert!((mean(9) / level(81.0) - 1.0).abs() < 0.1, "{}", mean(9));
    let parts = json["components"].as_array().unwrap();
    let product: f64 = parts.iter().map(|p| p["mean"][4].as_f64().unwrap()).product();
    assert!((product / mean(4) - 1.0).abs() < 0.01, "{product} {}", mean(4));
    let json = folder.json("forecast sales.csv --time month --target sold --horizon 3 --scale linear --json");
    assert_eq!(json["scale"], "linear");
    let zero: Vec<String> = (1..13).map(|i| format!("2017-{i:02}-01,{}", i % 7)).collect();
    folder.write("zero.csv", format!("month,sold\n{}\n", zero.join("\n")));
    let all = "forecast zero.csv --time month --target sold --horizon 3 --scale log";
    folder.rejected(all, "0 is not positive");
}

#[test]
fn a_model_goes_on_and_a_report_is_written() {
    let folder = Folder::new();
    let all = hourly(480);
    let lines: Vec<&str> = all.lines().collect();
    folder.write("first.csv", lines[..400].join("\n"));
    folder.write("all.csv", &all);
    folder.ok(
        "forecast first.csv --time when --target sold --horizon 1d --season 24h --model m.wiski -o a.csv",
    );
    folder.ok("forecast all.csv --time when --target sold --horizon 1d --model m.wiski --resume -o b.csv --report out");
    assert!(folder.read("b.csv").lines().nth(1).unwrap().starts_with("2024-01-21T00:00:00,"));
    let page = folder.read("out/index.html");
    assert!(page.contains("Forecast of sold") && page.contains("Components"));
    assert!(folder.path("out/forecast.svg").exists() && folder.path("out/components.svg").exists());
}

#[test]
fn inputs_ahead_and_several_series() {
    let folder = Folder::new();
    let mut random = Random::new(8);
    let (mut text, mut several) = (String::from("hours,heat,y\n"), String::from("shop,t,y\n"));
    for i in 0..424 {
        let heat = 20.0 * random.uniform();
        let y =
            3.0 + 0.1 * (heat - 10.0).powi(2) + (TAU * f64::from(i) / 24.0).sin() + 0.1 * random.uniform();
        let shown = if i < 400 { format!("{y:.4}") } else { String::new() };
        writeln!(text, "{i},{heat:.3},{shown}").unwrap();
    }
    for i in 0..60 {
        writeln!(several, "north,{i},{}\nsouth,{i},{}", 10 + i, 50 - i).unwrap();
    }
    folder.write("load.csv", text);
    folder.write("shops.csv", several);
    let out = folder
        .ok("forecast load.csv --time hours --target y --horizon 24h --season 24h --inputs heat --lags none");
    assert_eq!(out.lines().count(), 25);
    let shops = folder
        .ok("forecast shops.csv --time t --target y --horizon 3 --series shop --season none --lags none");
    let rows: Vec<Vec<&str>> = shops.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows[0][..3], ["shop", "t", "mean"]);
    let mean = |i: usize| rows[i][2].parse::<f64>().unwrap();
    assert!((mean(1) - 70.0).abs() < 0.5 && (mean(4) + 10.0).abs() < 0.5, "{shops}");
    assert_eq!((rows[1][0], rows[4][0]), ("north", "south"));
}

#[test]
fn errors_say_what_to_do() {
    let folder = Folder::new();
    folder.write("t.csv", "t,x,y\n1,0,1\n2,0,2\n3,0,1\n4,0,2\n5,0,1\n6,0,2\n7,0,1\n8,0,2\n9,0,1\n");
    folder.write("back.csv", "t,y\n2,1\n1,2\n");
    folder.write("few.csv", "t,y\n1,1\n2,2\n");
    let ask = |rest: &str| format!("forecast t.csv --time t --target y {rest}");
    folder.rejected(&ask("--horizon 7d"), "--time-unit");
    folder.rejected(&ask("--horizon soon"), "no length of time");
    folder.rejected(&ask("--horizon 3 --season 2"), "two steps");
    folder.rejected(&ask("--horizon 3 --lags one"), "--lags");
    folder.rejected(&ask("--horizon 3 --level 2"), "--level");
    folder.rejected(&ask("--horizon 3 --inputs x"), "not known");
    folder.rejected("forecast t.csv --time t --target z --horizon 3", "'z'");
    folder.rejected("forecast back.csv --time t --target y --horizon 3", "order of time");
    folder.rejected("forecast few.csv --time t --target y --horizon 3", "at least 8");
    folder.ok(&ask("--horizon 3 --season none"));
}

#[test]
fn live_forecasts_after_each_row() {
    let folder = Folder::new();
    let all = hourly(60);
    folder.write("all.csv", &all);
    let ask = "forecast - --time when --target sold --horizon 3h --season none --lags none --emit ndjson";
    // A pipe that stays open: the forecast of a row is there before the next one is sent.
    let mut child = folder
        .command(ask)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut to, mut from) =
        (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    let mut last = serde_json::Value::Null;
    for (i, line) in all.lines().enumerate() {
        writeln!(to, "{line}").unwrap();
        // The head, then eight rows that a first fit wants.
        if i >= 8 {
            last = serde_json::from_str(&from.next().unwrap().unwrap()).unwrap();
            assert_eq!(last["row"], i);
            assert_eq!(last["forecast"]["mean"].as_array().unwrap().len(), 3);
        }
    }
    drop(to);
    assert!(child.wait().unwrap().success());
    assert_eq!(last["time"], "2024-01-03T11:00:00");
    assert_eq!(last["forecast"]["time"][2], "2024-01-03T14:00:00");

    // As CSV, after every twentieth row; the last is the same.
    let out = folder.ok(
        "forecast all.csv --time when --target sold --horizon 3 --step 1h --season none --lags none --emit --every 20",
    );
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "row,when,mean,std,lower,upper");
    assert_eq!(lines.len(), 1 + 3 * 3);
    let cells: Vec<&str> = lines[9].split(',').collect();
    assert_eq!(cells[..2], ["60", "2024-01-03T14:00:00"]);
    assert_eq!(cells[2].parse::<f64>().unwrap(), last["forecast"]["mean"][2].as_f64().unwrap());
}

#[test]
fn a_stream_with_a_horizon_is_a_series() {
    let folder = Folder::new();
    folder.write("all.csv", hourly(40));
    let along = folder.ok("stream all.csv --time-col when --target sold --horizon 3h --emit ndjson");
    assert_eq!(along, folder.ok("forecast all.csv --time when --target sold --horizon 3h --emit ndjson"));
    let last: serde_json::Value = serde_json::from_str(along.lines().last().unwrap()).unwrap();
    assert_eq!((&last["row"], last["forecast"]["mean"].as_array().unwrap().len()), (&40.into(), 3));
    for (more, named) in [("", "--emit"), (" --emit --classify", "--classify")] {
        let done = folder.run(&format!("stream all.csv --time-col when --target sold --horizon 3h{more}"));
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(done.err.contains(named), "{}", done.err);
    }
}

#[test]
fn a_killed_forecast_goes_on() {
    let folder = Folder::new();
    let all = hourly(120);
    folder.write("all.csv", &all);
    let ask = "--time when --target sold --horizon 6h --season 24h --lags none";
    let whole = folder.ok(&format!("forecast all.csv {ask} --journal whole --model whole.wiski"));
    let lines: Vec<&str> = all.lines().collect();
    // Killed with rows in flight, again and again.
    let mut acknowledged = 0;
    while acknowledged < 100 {
        let mut child = folder
            .command(&format!("forecast - {ask} --emit ndjson --journal state --continue --compact-after 25"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut to = child.stdin.take().unwrap();
        let mut from = BufReader::new(child.stdout.take().unwrap()).lines();
        writeln!(to, "{}", lines[..lines.len().min(acknowledged + 40)].join("\n")).unwrap();
        for _ in 0..20 {
            let said: serde_json::Value = serde_json::from_str(&from.next().unwrap().unwrap()).unwrap();
            let row = said["row"].as_u64().unwrap() as usize;
            assert!(row > acknowledged, "{row} after {acknowledged}");
            acknowledged = row;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let rest = folder.ok(&format!("forecast all.csv {ask} --journal state --continue"));
    assert_eq!(rest, whole);

    // The model of a journal forecasts later times, also with steps left out; it is one order of rows.
    folder.write("later.csv", "note,when\na,2024-01-06 00:00\nb,2024-01-06 05:00\n");
    let later = folder.ok("predict state/model.wiski later.csv");
    let cells: Vec<Vec<&str>> = later.lines().map(|l| l.split(',').collect()).collect();
    let wanted: Vec<Vec<&str>> = whole.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(cells[0], ["note", "when", "mean", "std", "lower", "upper"]);
    assert_eq!((&cells[1][2..], &cells[2][2..]), (&wanted[1][1..], &wanted[6][1..]));
    assert_eq!(folder.ok("predict whole.wiski later.csv"), later);
    folder.write("numbers.csv", "when\n7\n");
    folder.write("early.csv", "when\n2024-01-02 00:00\n");
    folder.rejected("predict whole.wiski numbers.csv", "dates");
    folder.rejected("predict whole.wiski early.csv", "not later");
    folder.rejected("predict whole.wiski later.csv --latent", "no meaning for a series");
    folder.rejected("merge whole.wiski whole.wiski -o sum.wiski", "one order of rows");
    assert!(folder.ok("info whole.wiski").contains("86400"));
    assert_eq!(folder.json("info whole.wiski --json")["rows"], 120);

    // What a journal was begun with stays.
    folder
        .rejected("forecast all.csv --time when --target when --horizon 6h --journal state", "other columns");
}

#[test]
fn what_has_no_meaning_along_a_stream() {
    let folder = Folder::new();
    folder.write("t.csv", "t,x,y\n1,0,1\n2,0,2\n3,0,1\n4,0,2\n5,0,1\n6,0,2\n7,0,1\n8,0,2\n4,0,1\n10,0,3\n");
    let ask = |rest: &str| format!("forecast t.csv --time t --target y {rest}");
    folder.rejected(&ask("--horizon 3 --emit"), "give --step");
    folder.rejected(&ask("--horizon 3 --step 1 --emit --backtest 3"), "--backtest needs all rows");
    folder.rejected(&ask("--horizon 3 --step 1 --emit --inputs x"), "not known along a stream");
    folder.rejected(&ask("--horizon 3 --step 1 --journal j --model m.wiski --resume"), "--resume");
    folder.rejected(&ask("--horizon 3 --step 1 --emit"), "row 9");
    let out = folder.ok(&ask("--horizon 2 --step 1 --season none --emit --on-bad-row skip --journal j"));
    // After rows 8 and 10: the ninth goes back.
    let rows: Vec<&str> = out.lines().skip(1).map(|l| l.split(',').next().unwrap()).collect();
    assert_eq!(rows, ["8", "8", "10", "10"]);
    assert_eq!(
        folder
            .ok(&ask("--horizon 2 --step 1 --season none --on-bad-row skip --journal j --continue"))
            .lines()
            .count(),
        3
    );
}
