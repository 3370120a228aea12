//! `wiski forecast` through the binary.

mod common;

use std::f64::consts::TAU;
use std::fmt::Write as _;

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
    assert!(head.starts_with("when,mean,std,lower,upper,trend,"), "{head}");
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
