//! Columns of every kind: texts, dates, truth values, circles, names with commas, known noise.

mod common;

use std::fmt::Write as _;
use std::fs;

use common::{Folder, Random, column};
use serde_json::{Value, json};

/// Sales of three shops by the hour: an effect of the shop, of the hour of the day and of the day of the week.
fn sales(rows: usize) -> String {
    let mut random = Random::new(7);
    let mut text = String::from("when,shop,\"price, net\",open,y\n");
    for i in 0..rows {
        let hour = (i * 7) % (24 * 21);
        let (day, of_day) = (1 + hour / 24, hour % 24);
        let shop = ["north", "south", "east"][random.below(3) as usize];
        let open = (8..20).contains(&of_day);
        let (price, of_week) = (random.uniform(), (day - 1) % 7);
        let y = 3.0 * f64::from(u8::from(shop == "south"))
            + (of_day as f64 / 24.0 * std::f64::consts::TAU).sin()
            + if of_week >= 5 { 2.0 } else { 0.0 }
            - price
            + 0.1 * (random.uniform() - 0.5);
        writeln!(text, "2024-01-{day:02} {of_day:02}:00,{shop},{price:.4},{open},{y:.5}").unwrap();
    }
    text
}

#[test]
fn texts_and_dates_are_inputs_and_the_model_remembers_them() {
    let folder = Folder::new();
    folder.write("sales.csv", sales(900));
    let done = folder.run("stream sales.csv --target y --model plain.wiski --json");
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.err.contains("left out: when, shop"), "{}", done.err);
    let plain: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    // True and false are numbers, as in Parquet and NDJSON.
    assert_eq!(folder.json("info plain.wiski --json")["inputs"], json!(["price, net", "open"]));

    let options = "--target y --categorical shop --calendar when=hour+weekday --holdout 0.2";
    let json = folder.json(&format!("stream sales.csv {options} --model m.wiski --json --report out"));
    let rmse = |json: &serde_json::Value| json["holdout"]["rmse"].as_f64().unwrap();
    assert!(rmse(&json) < 0.35, "{json}");
    assert!(plain["prequential"]["rmse"].as_f64().unwrap() > 1.0);
    let info = folder.json("info m.wiski --json");
    assert_eq!(info["inputs"], json!(["when.hour", "when.weekday", "shop", "price, net", "open"]));
    assert_eq!(info["sources"][2]["reading"], json!({ "Levels": ["east", "north", "south"] }));
    // Every command reads the file's own columns.
    folder.write(
        "new.csv",
        "shop,when,open,\"price, net\"\nsouth,2024-02-03T15:00Z,true,0.5\nnorth,2024-02-05 15:00,TRUE,0.5\n",
    );
    let means =
        column(&folder.ok("predict m.wiski new.csv").replace("price, net", "price").replace('"', ""), "mean");
    // South and a Saturday against north and a Monday.
    assert!((means[0] - means[1] - 5.0).abs() < 0.6, "{means:?}");
    folder.write("bad.csv", "shop,when,open,\"price, net\"\nwest,2024-02-03,true,0.5\n");
    folder.rejected(
        "predict m.wiski bad.csv",
        "column 'shop': 'west' is not one of the levels east, north, south",
    );
    folder.write("bad.csv", "shop,when,open,\"price, net\"\neast,17,true,0.5\n");
    folder.rejected("predict m.wiski bad.csv", "column 'when': '17' is not a date");
    // The same levels, declared; from a pipe they must be.
    let text = folder.read("sales.csv");
    let common = "--target y --features additive --calendar when=hour+weekday";
    let piped = &format!("{common} --model p.wiski --quiet");
    let done = folder.run_with_input(&format!("stream - {piped} --categorical shop"), text.as_bytes());
    done.is_rejection(piped, "cannot be looked up in a pipe");
    folder.ok(&format!("stream sales.csv {common} --categorical shop --model f.wiski"));
    let arguments = format!("stream - {piped} --categorical shop=east|north|south");
    let done = folder.run_with_input(&arguments, text.as_bytes());
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(fs::read(folder.path("p.wiski")).unwrap() == fs::read(folder.path("f.wiski")).unwrap());
    folder.ok("update m.wiski sales.csv");
    folder.rejected(
        "stream sales.csv --target y --calendar when=moon",
        "'moon' is not one of days, hour, weekday, yearday",
    );
    folder.rejected("stream sales.csv --target y --categorical nothing", "no column 'nothing'");
    folder.rejected("stream sales.csv --target y --categorical shop --calendar shop=hour", "only be one of");
}

#[test]
fn pictures_of_levels_and_circles_show_their_own_range() {
    let folder = Folder::new();
    folder.write("sales.csv", sales(500));
    folder.ok(
        "stream sales.csv --target y --categorical shop --calendar when=hour --model m.wiski --report out",
    );
    assert!(folder.read("out/index.html").contains("when.hour"));
    folder.ok("plot m.wiski -o all.svg");
    folder.ok("plot m.wiski -o hour.svg --axes when.hour --at shop=south");
    // The axis runs from 0 to 24, not from −2.5 to 2.5.
    let svg = folder.read("hour.svg");
    assert!(svg.contains(">20<") && !svg.contains(">−2<"), "{svg:.2000}");
    folder.ok("plot m.wiski -o map.svg --axes when.hour,shop");
    folder.rejected(
        "plot m.wiski -o no.svg --axes when.hour --at shop=west",
        "'west' is not one of the levels",
    );
    // The same with numbers for levels and a declared period.
    let rows: Vec<String> = (0..400)
        .map(|i| format!("{},{},{}", i % 24, i % 7, f64::from(i % 7) + (f64::from(i % 24) / 4.0).sin()))
        .collect();
    folder.write("n.csv", format!("h,k,y\n{}", rows.join("\n")));
    folder.ok("stream n.csv --target y --categorical k=7 --periodic h=24 --model n.wiski --report out2");
    folder.ok("plot n.wiski -o n.svg");
    folder.ok("plot n.wiski -o n2.svg --axes k");
}

#[test]
fn a_column_may_have_several_periods() {
    let folder = Folder::new();
    let rows: Vec<String> = (0..1200)
        .map(|i| {
            let h = f64::from(i * 11 % 2000);
            let y =
                (h / 24.0 * std::f64::consts::TAU).sin() + 2.0 * (h / 168.0 * std::f64::consts::TAU).cos();
            format!("{h},{y}")
        })
        .collect();
    folder.write("h.csv", format!("hours,y\n{}", rows.join("\n")));
    let json = folder
        .json("stream h.csv --target y --periodic hours=24,hours=168 --model m.wiski --json --holdout 0.2");
    assert!(json["holdout"]["rmse"].as_f64().unwrap() < 0.05, "{json}");
    assert_eq!(folder.json("info m.wiski --json")["inputs"], json!(["hours", "hours%168"]));
    let one = folder.json("stream h.csv --target y --periodic hours=24 --json --holdout 0.2");
    assert!(one["holdout"]["rmse"].as_f64().unwrap() > 0.5);
    folder.rejected("stream h.csv --target y --periodic hours=24,hours=24,hours=24", "two inputs called");
}

#[test]
fn times_say_what_they_mean() {
    let folder = Folder::new();
    let rows: Vec<String> = (0..300).map(|i| format!("{i},{}", (f64::from(i) / 20.0).sin())).collect();
    folder.write("t.csv", format!("hours,y\n{}", rows.join("\n")));
    folder.rejected("stream t.csv --target y --time-col hours", "--inputs hours makes it an input too");
    folder.rejected(
        "stream t.csv --target y --time-col hours --inputs hours --half-life 48h",
        "holds plain numbers",
    );
    folder.ok("stream t.csv --target y --time-col hours --inputs hours --half-life 48 --model m.wiski");
    let weight = folder.json("info m.wiski --json")["n"].as_f64().unwrap();
    // Σ 2^(−k/48), in steps of one per cent.
    assert!((weight - 69.7).abs() < 3.0, "{weight}");
}

#[test]
fn names_with_commas_can_be_said() {
    let folder = Folder::new();
    let rows: Vec<String> = (0..200).map(|i| format!("{},{},{}", i % 24, i % 10, i % 7)).collect();
    folder.write("d.csv", format!("\"a,b\",\"c=d\",y\n{}", rows.join("\n")));
    let run = |list: &[&str]| {
        let mut command = folder.command("stream d.csv --target y --model m.wiski --quiet");
        let output = command.args(list).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder.json("info m.wiski --json")["inputs"].clone()
    };
    assert_eq!(run(&["--inputs", "\"a,b\""]), json!(["a,b"]));
    assert_eq!(run(&["--inputs", "\"a,b\",c=d", "--periodic", "\"a,b\"=24,c=d=10"]), json!(["a,b", "c=d"]));
}

#[test]
fn predictions_know_the_noise_of_their_rows() {
    let folder = Folder::new();
    let mut random = Random::new(5);
    let mut make = |rows: usize| {
        let mut text = String::from("x,y,v\n");
        for _ in 0..rows {
            let (x, v) = (random.uniform(), if random.below(2) == 0 { 0.0025 } else { 0.25 });
            let normal = (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0;
            writeln!(text, "{x},{},{v}", (6.0 * x).sin() + f64::sqrt(v) * normal).unwrap();
        }
        text
    };
    folder.write("data.csv", make(800));
    folder.write("new.csv", make(600));
    folder.ok("stream data.csv --target y --noise-col v --model m.wiski");
    let covered = |out: &str| {
        let (y, lower, upper) = (column(out, "y"), column(out, "lower"), column(out, "upper"));
        (0..y.len()).filter(|&i| lower[i] <= y[i] && y[i] <= upper[i]).count() as f64 / y.len() as f64
    };
    let share = covered(&folder.ok("predict m.wiski new.csv"));
    assert!((0.92..0.98).contains(&share), "{share}");
    // The band of the function alone is another one, and so it is without the column, which is said.
    let latent = folder.ok("predict m.wiski new.csv --latent");
    assert!(covered(&latent) < 0.5);
    let new = folder.read("new.csv");
    let without: Vec<&str> = new.lines().map(|l| l.rsplit_once(',').unwrap().0).collect();
    folder.write("without.csv", without.join("\n"));
    let done = folder.run("predict m.wiski without.csv");
    assert!(done.err.contains("no column 'v'") && done.code == Some(0), "{}", done.err);
    assert_eq!(column(&done.out, "std"), column(&latent, "std"));
    // Noise that is nothing beside the targets.
    folder.write("tiny.csv", format!("{}0.5,0.1,1e-300\n", folder.read("data.csv")));
    folder.rejected(
        "stream tiny.csv --target y --noise-col v",
        "a variance of 1e-300 is too small beside the targets",
    );
}

#[test]
fn going_on_is_summed_up_as_one_stream() {
    let folder = Folder::new();
    folder.write("a.csv", common::table(300, 1));
    folder.write("b.csv", common::table(100, 2));
    folder.ok("stream a.csv --target y --model m.wiski");
    let text = folder.ok("stream b.csv --model m.wiski --resume");
    assert!(text.contains("100 now, 400 in all"), "{text}");
    let json = folder.json("stream b.csv --model m.wiski --resume --json");
    assert_eq!((&json["rows"], &json["rows_in_all"]), (&json!(100), &json!(500)));
    // The first part of a file, then the rest.
    folder.ok("stream a.csv --target y --model part.wiski --limit 120");
    folder.ok("stream a.csv --model part.wiski --resume --from-row 121");
    folder.ok("stream a.csv --target y --model whole.wiski");
    assert!(fs::read(folder.path("part.wiski")).unwrap() == fs::read(folder.path("whole.wiski")).unwrap());
}

#[test]
fn rows_off_the_grid_are_counted() {
    let folder = Folder::new();
    let far: String = (0..25).map(|_| "30,0,1\n").collect();
    folder.write("data.csv", format!("{}{far}", common::table(200, 1)));
    let options = "--target y --bounds 0:6,-2:2 --off-grid prior";
    let text = folder.ok(&format!("stream data.csv {options}"));
    assert!(text.contains("25 rows, of which nothing was learned"), "{text}");
    assert_eq!(folder.json(&format!("stream data.csv {options} --json"))["off_grid"], 25);
}

/// The first rows of a map span one line of it. A file is looked at before; a pipe cannot be, and the run goes on without
/// the rows that its grid does not reach.
#[test]
fn a_map_in_the_order_of_its_file_gets_the_grid_that_was_asked_for() {
    let folder = Folder::new();
    let point = |i: usize, j: usize| format!("{i},{j},{}\n", (0.2 * i as f64).sin() + (0.3 * j as f64).cos());
    let map: String = (0..40).flat_map(|i| (0..40).map(move |j| point(i, j))).collect();
    folder.write("map.csv", format!("x,y,z\n{map}"));
    let options = "--target z --grid 30x30 --max-grid 1200 --json";
    let found = folder.json(&format!("stream map.csv {options}"));
    assert_eq!((&found["rows"], &found["off_grid"]), (&1600.into(), &0.into()));
    assert!(found["prequential"]["rmse"].as_f64().unwrap() < 0.3, "{found}");
    let piped = folder.run_with_input(&format!("stream - {options}"), folder.read("map.csv").as_bytes());
    let piped: serde_json::Value = serde_json::from_str(&piped.out).unwrap();
    assert_eq!(piped["rows"], 1600);
    assert!(piped["off_grid"].as_u64().unwrap() > 0, "{piped}");
}

#[test]
fn a_glitch_that_is_not_learned_leaves_no_trace() {
    let folder = Folder::new();
    let clean = common::table(400, 1);
    let mut lines: Vec<&str> = clean.lines().collect();
    lines.insert(200, "3,0,-9999");
    folder.write("clean.csv", &clean);
    folder.write("glitch.csv", lines.join("\n"));
    folder.ok("stream clean.csv --target y --model clean.wiski");
    let text = folder.ok("stream glitch.csv --target y --alarm 6 --alarm-action skip --model skip.wiski");
    assert!(text.contains("1 rows raised one and were not learned"), "{text}");
    let predicted = |model: &str| folder.ok(&format!("predict {model} clean.csv"));
    assert_eq!(column(&predicted("skip.wiski"), "mean"), column(&predicted("clean.wiski"), "mean"));
    folder.ok("stream glitch.csv --target y --alarm 6 --model learn.wiski");
    let std = column(&predicted("learn.wiski"), "std")[0];
    // Nor does one that is learned, since it is an outlier, leave much.
    assert!((std / column(&predicted("clean.wiski"), "std")[0] - 1.0).abs() < 0.05, "{std}");
    let text = folder.ok("info learn.wiski");
    assert!(text.contains("the targets of 1 rows were"), "{text}");
    // With a journal, a row that was passed over stays passed over.
    folder.ok("stream glitch.csv --target y --alarm 6 --alarm-action skip --journal state --model j.wiski");
    assert_eq!(predicted("j.wiski"), predicted("skip.wiski"));
    let again =
        folder.run("stream glitch.csv --target y --alarm 6 --alarm-action skip --journal state --continue");
    assert!(again.err.contains("401 rows recovered"), "{}", again.err);
}

#[test]
fn a_model_can_be_refitted_without_rows() {
    let folder = Folder::new();
    folder.write("data.csv", common::table(300, 1));
    folder.ok("stream data.csv --target y --learn off --model m.wiski --init lengthscale=0.2 noise=1");
    let text = folder.ok("refit m.wiski -o fitted.wiski");
    let numbers: Vec<f64> = text.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[1] > numbers[0] + 10.0, "{text}");
    let std = |model: &str| column(&folder.ok(&format!("predict {model} data.csv")), "std")[0];
    assert!(std("fitted.wiski") < 0.3 * std("m.wiski"));
    folder.ok("refit fitted.wiski");
    folder.write("few.csv", common::table(10, 1));
    folder.ok("stream few.csv --target y --model few.wiski");
    folder.rejected("refit few.wiski", "still collecting");
}

/// What inducing points do is told and shown: which columns they read, and what these add.
#[test]
fn points_tell_which_columns_they_read() {
    let folder = Folder::new();
    let (mut text, mut random) = (String::from("a,b,c,d,y\n"), Random::new(11));
    for _ in 0..800 {
        let x: [f64; 4] = std::array::from_fn(|_| 2.0 * random.uniform() - 1.0);
        let y = 2.0 * (3.0 * x[0] * x[1]).sin() * x[2] + 0.5 * x[3] + 0.1 * random.uniform();
        writeln!(text, "{:.4},{:.4},{:.4},{:.4},{y:.4}", x[0], x[1], x[2], x[3]).unwrap();
    }
    folder.write("data.csv", &text);
    folder.ok("stream data.csv --target y --features points:150 --model m.wiski");
    let json: Value = serde_json::from_str(&folder.ok("info m.wiski --json")).unwrap();
    let relevances: Vec<f64> = serde_json::from_value(json["relevances"].clone()).unwrap();
    assert!((relevances.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{relevances:?}");
    assert!(relevances[..3].iter().all(|&r| r > relevances[3]), "{relevances:?}");
    let said = folder.ok("info m.wiski");
    assert!(said.contains("150 inducing points, which read"), "{said}");
    folder.ok("plot m.wiski -o parts.svg");
    folder.ok("plot m.wiski -o means.svg --data data.csv");
    for file in ["parts.svg", "means.svg"] {
        assert!(folder.read(file).contains("in the points"), "{file}");
    }
    assert_ne!(folder.read("parts.svg"), folder.read("means.svg"), "one row and the mean over many");
}
