//! `wiski optimize` and `wiski explore`.

mod common;

use std::fs;

use common::{Folder, column, table};
use serde_json::Value;

const SPACE: &str =
    "[lr]\nmin = 1e-4\nmax = 1.0\nscale = \"log\"\n\n[depth]\nmin = 1\nmax = 8\ninteger = true\n";

/// A program whose result is smallest at lr = 0.01, depth = 3. It fails for depth 8.
#[cfg(unix)]
const PROGRAM: &str = r#"#!/bin/sh
[ "$2" = 8 ] && { echo "too deep" >&2; exit 3; }
awk -v lr="$1" -v d="$2" 'BEGIN { x = log(lr)/log(10) + 2; print "epoch 1 loss", 9.5; print "{\"loss\": " x*x + (d-3)*(d-3)/20 "}"; print "final:", x*x + (d-3)*(d-3)/20 }'
"#;

#[test]
fn a_test_function_is_optimized_and_the_same_seed_repeats_it() {
    let folder = Folder::new();
    let arguments = "optimize --function branin --steps 40 --json --quiet --report out";
    let json = folder.json(arguments);
    assert_eq!(json["trials"], 40);
    let latent = json["latent"]["recommended"].as_f64().unwrap();
    assert!(latent < 0.8, "{latent}");
    assert!(json["latent"]["best"].as_f64().unwrap() <= latent);
    let again = folder.json(arguments);
    assert_eq!(again["best"], json["best"]);
    let page = folder.read("out/index.html");
    assert!(page.contains("<svg") && page.contains("Best predicted"));
    let other = folder
        .json("optimize --function branin --steps 12 --batch 3 --acquisition ucb --seed 4 --json --quiet");
    assert_eq!(other["trials"], 36);
    assert_ne!(other["best"], json["best"]);
    // Each of the other criteria, three points at a time, and more dimensions than a grid has.
    for criterion in ["ei", "pi", "mes", "thompson"] {
        let arguments = format!("optimize --function branin --steps 5 --batch 3 --acquisition {criterion}");
        assert_eq!(folder.json(&format!("{arguments} --json --quiet"))["trials"], 15, "{criterion}");
    }
    let many = folder.json("optimize --function hartmann --dim 6 --steps 18 --json --quiet");
    assert_eq!(many["best"]["x"].as_object().unwrap().len(), 6);
    folder.rejected("optimize --function hartmann --dim 4", "three or six dimensions");
}

#[test]
fn a_run_goes_on_from_its_state() {
    let folder = Folder::new();
    let run = |steps: u32, state: &str| {
        folder.json(&format!(
            "optimize --function levy --dim 2 --noise 0.5 --steps {steps} --state {state} --json --quiet"
        ))
    };
    let whole = run(20, "whole.wiski");
    run(9, "parts.wiski");
    let parts = run(20, "parts.wiski");
    assert_eq!(parts["best"], whole["best"]);
    assert!(fs::read(folder.path("parts.wiski")).unwrap() == fs::read(folder.path("whole.wiski")).unwrap());
    folder.rejected("optimize --function levy --dim 3 --state whole.wiski", "another space");
}

#[cfg(unix)]
#[test]
fn a_program_is_optimized_in_parallel_and_failures_are_survived() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    folder.write("space.toml", SPACE);
    folder.write("train", PROGRAM);
    fs::set_permissions(folder.path("train"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |extra: &[&str]| {
        let mut command = folder.command("optimize --space space.toml --steps 30 --json --quiet");
        command.args(["--command", "./train {lr} {depth}"]).args(extra);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        (json, String::from_utf8(output.stderr).unwrap())
    };
    let (json, _) = run(&[]);
    assert_eq!(json["trials"], 30);
    let best = &json["best"]["x"];
    assert!((best["lr"].as_f64().unwrap().log10() + 2.0).abs() < 0.3, "{json}");
    assert_eq!(best["depth"], 3);
    let (json, err) = run(&["--jobs", "3", "--key", "loss", "--initial", "12"]);
    assert!((json["best"]["x"]["lr"].as_f64().unwrap().log10() + 2.0).abs() < 0.5, "{json}");
    let failed = json["failed"].as_u64().unwrap();
    assert_eq!(err.matches("failed: exit status: 3: too deep").count() as u64, failed);
}

#[test]
fn ask_and_tell() {
    let folder = Folder::new();
    folder.write("space.toml", SPACE);
    folder.ok("optimize new s.wiski --space space.toml --seed 2");
    folder.rejected("optimize new s.wiski --space space.toml", "there already");
    for _ in 0..16 {
        let out = folder.ok("optimize ask s.wiski -q 2");
        for line in out.lines() {
            let x: Value = serde_json::from_str(line).unwrap();
            let (lr, depth) = (x["lr"].as_f64().unwrap(), x["depth"].as_i64().unwrap());
            let loss = (lr.log10() + 2.0).powi(2) + (depth - 3).pow(2) as f64 / 20.0;
            if depth == 8 {
                folder.ok(&format!("optimize tell s.wiski --at lr={lr},depth={depth} --failed"));
            } else {
                folder.ok(&format!("optimize tell s.wiski --at lr={lr},depth={depth} --value {loss}"));
            }
        }
    }
    let best = folder.json("optimize best s.wiski --json");
    assert_eq!(best["trials"], 32);
    assert!(best["best"]["value"].as_f64().unwrap() < 0.1, "{best}");
    let text = folder.ok("optimize best s.wiski");
    assert!(text.contains("best predicted"), "{text}");
    let before = fs::read(folder.path("s.wiski")).unwrap();
    folder.rejected("optimize tell s.wiski --at lr=0.1 --value 1", "'depth' is missing");
    folder.rejected("optimize tell s.wiski --at lr=5,depth=2 --value 1", "5 lies outside");
    folder.rejected("optimize tell s.wiski --at lr=0.1,depth=2 --value nan", "tell it as failed");
    folder.rejected("optimize tell s.wiski --at speed=5 --value 1", "no 'speed'");
    assert!(fs::read(folder.path("s.wiski")).unwrap() == before);
    folder.rejected("info s.wiski", "of the kind optimizer, not model");
}

#[test]
fn numbers_go_in_steps() {
    let folder = Folder::new();
    folder.write(
        "space.toml",
        "[rate]\nmin = -1.0\nmax = 0.6\nstep = 0.5\n\n[width]\nmin = 16\nmax = 64\nstep = 16\ninteger = true\n",
    );
    let mut command = folder.command("optimize --space space.toml --steps 14 --json --quiet --state s.wiski");
    let distance = "awk 'BEGIN { print ({rate}-0.4)^2 + (({width}-40)/16)^2 + {width}/1000 }'";
    let output = command.args(["--command", distance]).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["best"]["x"], serde_json::json!({ "rate": 0.5, "width": 32 }), "{json}");
    // The file knows them, too.
    for line in folder.ok("optimize ask s.wiski -q 4").lines() {
        let point: Value = serde_json::from_str(line).unwrap();
        assert!([-1.0, -0.5, 0.0, 0.5].contains(&point["rate"].as_f64().unwrap()), "{point}");
        assert!([16, 32, 48, 64].contains(&point["width"].as_u64().unwrap()), "{point}");
    }
}

#[test]
fn bad_spaces_and_options_are_rejected() {
    let folder = Folder::new();
    for (content, message) in [
        ("[a]\nmin = 1\n", "missing field `max`"),
        ("[a]\nmin = 1\nmax = 0\n", "not an interval"),
        ("[a]\nmin = 0\nmax = 1\nscale = \"log\"\n", "positive values"),
        ("[a]\nmin = 0\nmax = 1\nsteps = 3\n", "steps"),
        ("[a]\nmin = 0\nmax = 1\nstep = -0.5\n", "0 to 1 cannot be gone in steps of -0.5"),
        ("[a]\nmin = 0.5\nmax = 9\nstep = 2\ninteger = true\n", "other than whole numbers"),
        ("[a]\nmin = 1\nmax = 9\nstep = 2\nscale = \"log\"\n", "numbers on a linear scale"),
        ("[a\nmin = 0\n", "space.toml: line 1"),
        ("", "one to 50 dimensions"),
    ] {
        folder.write("space.toml", content);
        folder.rejected("optimize new s.wiski --space space.toml", message);
    }
    folder.write("space.toml", SPACE);
    folder.rejected("optimize --space space.toml --command true", "{lr} does not occur");
    folder.rejected("optimize --function levi", "'levi' is not one of");
    folder.rejected("optimize --function branin --dim 3", "two dimensions");
    folder.rejected("optimize", "say what to optimize");
    assert_eq!(folder.names(), ["space.toml"]);
}

#[test]
fn rows_are_chosen_where_the_model_knows_least() {
    let folder = Folder::new();
    // Learned on the left half of a, asked about all of it.
    let all = table(400, 1);
    let lines: Vec<&str> = all.lines().collect();
    let is_left = |line: &&&str| line.split(',').next().unwrap().parse::<f64>().is_ok_and(|a| a < 3.0);
    let left: Vec<&str> = lines[..1].iter().chain(lines[1..].iter().filter(is_left)).copied().collect();
    let left = left.join("\n");
    folder.write("left.csv", left);
    folder.write("pool.csv", table(200, 2));
    folder.ok("stream left.csv --target y --bounds 0:6,-2:2 --model m.wiski");
    let out = folder.ok("explore m.wiski pool.csv -n 5");
    assert_eq!(out.lines().next(), Some("a,b,y"));
    let a = column(&out, "a");
    assert_eq!(a.len(), 5);
    assert!(a.iter().all(|a| *a > 3.0), "{a:?}");
    // Where only the left half counts, the right one is not worth a measurement.
    folder.ok("explore m.wiski pool.csv -n 5 --reference left.csv -o chosen.csv");
    let near = column(&folder.read("chosen.csv"), "a");
    assert!(near.iter().all(|a| *a < 4.0), "{near:?}");
    folder.rejected("explore m.wiski pool.csv -n 300", "only 200 rows");
}

#[cfg(unix)]
#[test]
fn absurd_results_neither_end_nor_poison_a_search() {
    let folder = Folder::new();
    folder.write("space.toml", "[x]\nmin = 0\nmax = 1\n");
    // Smallest at 0.3. What is printed beyond 0.6 is absurd in turn; absurdly good results are rare.
    for (absurd, beyond) in [
        ("1e200", 0.6),
        ("1e30", 0.6),
        ("inf", 0.6),
        ("nan", 0.6),
        ("-inf", 0.9),
        ("1e308", 0.9),
        ("-1e30", 0.9),
        ("-1e200", 0.9),
    ] {
        let program = format!(
            "awk -v x={{x}} 'BEGIN {{ if (x > {beyond}) print \"{absurd}\"; else print (x-0.3)^2 }}'"
        );
        let mut command = folder.command("optimize --space space.toml --steps 25 --json --quiet");
        let output = command.args(["--command", &program]).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{absurd}: {err}");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["trials"], 25);
        // Infinity is a value if it is bad; what is no number, or too good, is none.
        match absurd {
            "inf" => assert_eq!(json["failed"], 0, "{err}"),
            "nan" | "-inf" => assert_ne!(json["failed"], 0, "{err}"),
            _ => {}
        }
        let best = &json["best"];
        assert!((best["x"]["x"].as_f64().unwrap() - 0.3).abs() < 0.05, "{absurd}: {json}");
        assert!(json["recommended"]["mean"].as_f64().unwrap().abs() < 0.05, "{absurd}: {json}");
        assert!(json["recommended"]["std"].as_f64().unwrap() < 0.5, "{absurd}: {json}");
    }
    let mut command = folder.command("optimize --space space.toml --steps 4 --quiet");
    let output = command.args(["--command", "false {x}"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("all 4 trials failed"));
}

#[cfg(unix)]
#[test]
fn choices_are_searched_as_things_without_an_order() {
    let folder = Folder::new();
    folder.write(
        "space.toml",
        "[lr]\nmin = 1e-4\nmax = 1.0\nscale = \"log\"\n\n[solver]\nchoices = [\"adam\", \"sgd\", \"lbfgs\", \"none\"]\n\n[size]\nchoices = [16, 64]\n",
    );
    // sgd with 64 is best, at lr = 0.01.
    folder.write(
        "train",
        "awk -v lr=$1 -v s=$2 -v n=$3 'BEGIN { x = log(lr)/log(10)+2; b = 1; if (s == \"sgd\") b = 0; if (s == \"none\") b = 3; print x*x/4 + b + (n == 64 ? 0 : 0.5) }'",
    );
    let mut command =
        folder.command("optimize --space space.toml --steps 40 --json --quiet --state s.wiski --report out");
    let output = command.args(["--command", "sh ./train {lr} {solver} {size}"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let best = &json["best"]["x"];
    assert_eq!((&best["solver"], &best["size"]), (&"sgd".into(), &"64".into()), "{json}");
    assert!((best["lr"].as_f64().unwrap().log10() + 2.0).abs() < 0.5, "{json}");
    // By hand: choices are told by their names.
    let point: Value = serde_json::from_str(folder.ok("optimize ask s.wiski").trim()).unwrap();
    assert!(["adam", "sgd", "lbfgs", "none"].contains(&point["solver"].as_str().unwrap()));
    folder.ok("optimize tell s.wiski --at lr=0.01,solver=lbfgs,size=16 --value 1.5");
    folder.rejected(
        "optimize tell s.wiski --at lr=0.01,solver=rms,size=16 --value 1",
        "'rms' is not one of the choices",
    );
    for (entry, message) in [
        ("choices = [\"a\"]", "at least two"),
        ("choices = [\"a\", \"a\"]", "twice"),
        ("choices = 3", "sequence"),
    ] {
        folder.write("bad.toml", format!("[s]\n{entry}\n"));
        folder.rejected("optimize new b.wiski --space bad.toml", message);
    }
}

#[test]
fn a_number_that_only_some_choices_have() {
    let folder = Folder::new();
    let solver = "[solver]\nchoices = [\"adam\", \"sgd\"]\n";
    let momentum = |only_if: &str| format!("[momentum]\nmin = 0\nmax = 1\nonly_if = {only_if}\n");
    folder.write("space.toml", format!("{solver}{}", momentum("{ solver = [\"sgd\"] }")));
    folder.ok("optimize new s.wiski --space space.toml --initial 4");
    // As bad as can be, and what is not there makes no difference.
    for (at, value) in [("adam,momentum=0.1", "inf"), ("sgd,momentum=0.2", "1"), ("sgd,momentum=0.7", "0.1")]
    {
        folder.ok(&format!("optimize tell s.wiski --at solver={at} --value {value}"));
    }
    folder.ok("optimize tell s.wiski --at solver=sgd,momentum=0.9 --value 0.3");
    let best = folder.json("optimize best s.wiski --json");
    assert!(best.to_string().contains("0.7"), "{best}");
    folder.ok("optimize ask s.wiski -q 2");
    for (only_if, words) in [
        ("{ solver = [\"lbfgs\"] }", "'lbfgs' is not one of the choices"),
        ("{ none = [\"sgd\"] }", "names one choice above"),
        ("3", "names one choice above"),
    ] {
        folder.write("wrong.toml", format!("{solver}{}", momentum(only_if)));
        let done = folder.run("optimize new t.wiski --space wrong.toml");
        assert!(done.code == Some(2) && done.err.contains(words), "{}", done.err);
    }
}

/// x + y is to be small where x y is at least a quarter: both are a half.
#[cfg(unix)]
const TRADE: &str = "awk -v x=$1 -v y=$2 'BEGIN { print \"{\\\"sum\\\": 9}\"; \
    printf \"{\\\"sum\\\": %.9f, \\\"short\\\": %.9f, \\\"gap\\\": %.9f}\\n\", x + y, 0.25 - x * y, (x-y)*(x-y) }'\n";

#[cfg(unix)]
#[test]
fn constraints_of_a_program() {
    let folder = Folder::new();
    folder.write("space.toml", "[x]\nmin = 0\nmax = 1\n\n[y]\nmin = 0\nmax = 1\n");
    folder.write("train", TRADE);
    let run = |extra: &str| {
        let mut command = folder.command(&format!("optimize --space space.toml --quiet --json {extra}"));
        command.args(["--command", "sh ./train {x} {y}"]).output().unwrap()
    };
    let output = run("--key sum --constraint short --steps 25 --state s.wiski --report out");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let best = json["best"]["value"].as_f64().unwrap();
    // No feasible sum is below 1.
    assert!((1.0..1.05).contains(&best), "{json}");
    let feasible = json["feasible"].as_u64().unwrap();
    assert!((1..25).contains(&feasible), "{json}");
    assert!(folder.read("out/index.html").contains("<svg"));
    // By hand: a better value at which the constraint does not hold changes nothing, one at which it holds does.
    folder.ok("optimize tell s.wiski --at x=0.1,y=0.1 --value 0.2 --constraint short=0.24");
    assert_eq!(folder.json("optimize best s.wiski --json")["best"], json["best"]);
    folder.ok("optimize tell s.wiski --at x=0.2,y=0.2 --value 0.4 --constraint short=-0.01");
    assert_eq!(folder.json("optimize best s.wiski --json")["best"]["value"], 0.4);
    assert!(folder.ok("optimize best s.wiski").contains("feasible"));
    let tell = "optimize tell s.wiski --at x=0.2,y=0.2 --value 0.4";
    folder.rejected(tell, "a value of 'short' is missing");
    folder.rejected(&format!("{tell} --constraint long=1"), "the search has no 'long'");
    folder.rejected(&format!("{tell} --constraint short=much"), "'much' is not a number");
    folder.rejected(&format!("{tell},0.5 --constraint short=1"), "further objectives has 1 values where 0");
    // What a program does not say, and what another search was for.
    let error = |extra: &str| String::from_utf8(run(extra).stderr).unwrap();
    assert!(error("--key sum --constraint long --steps 2").contains("its result has no number 'long'"));
    assert!(error("--constraint short --steps 2").contains("--key: say where"));
    assert!(error("--key sum --steps 30 --state s.wiski").contains("other objectives or constraints"));
    assert!(error("--key sum --constraint short --acquisition ucb").contains("expected improvement"));
    folder.rejected("optimize --function branin --constraint c", "one objective and no constraints");
}

#[cfg(unix)]
#[test]
fn the_front_of_a_program() {
    let folder = Folder::new();
    folder.write("space.toml", "[x]\nmin = 0\nmax = 1\n\n[y]\nmin = 0\nmax = 1\n");
    folder.write("train", TRADE);
    let run = |extra: &str| {
        let mut command = folder.command(&format!("optimize --space space.toml --quiet {extra}"));
        command.args(["--command", "sh ./train {x} {y}"]).output().unwrap()
    };
    // A small sum and a large gap: from nothing of both to a sum of 1 with a gap of 1.
    let output = run(
        "--key sum,gap --goals min,max --constraint short --steps 30 --jobs 2 --json --report out --state s.wiski",
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let front = json["front"].as_array().unwrap();
    assert!(front.len() >= 5 && json["best"].is_null(), "{json}");
    let values: Vec<[f64; 2]> =
        front.iter().map(|point| [0, 1].map(|k| point["values"][k].as_f64().unwrap())).collect();
    // With x y = 1/4 the gap is s² − 1 for a sum of s: the front, up to x = 1 and y = 1/4.
    assert!(values.iter().all(|[sum, gap]| *gap <= sum * sum - 1.0 + 1e-6), "{values:?}");
    assert!(values.iter().any(|v| v[0] < 1.1) && values.iter().any(|v| v[1] > 0.45), "{values:?}");
    assert!(folder.ok("optimize best s.wiski").contains("on the front"));
    let error = |extra: &str| String::from_utf8(run(extra).stderr).unwrap();
    assert!(error("--key sum --goals min,max").contains("1 are given, and there are 2 objectives"));
    assert!(error("--key a,b,c,d --goals min,min,min,min").contains("4 are too many"));
    folder.ok("optimize new t.wiski --space space.toml --goals min,max");
    folder.ok("optimize tell t.wiski --at x=0.5,y=0.5 --value=-1,2");
    folder.rejected(
        "optimize tell t.wiski --at x=0.5,y=0.5 --value 1",
        "further objectives has 0 values where 1",
    );
}
