//! Each subcommand on small data.

mod common;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Folder, assert_close, classes, column, table};
use serde_json::Value;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("data.csv", table(600, 1));
    folder.write("new.csv", table(50, 2));
    folder
}

#[test]
fn stream_prints_a_table_and_as_json_one_object() {
    let folder = folder();
    let text = folder.ok("stream data.csv --target y");
    for word in ["rows", "600", "RMSE", "95 % interval", "hyperparameters", "lengthscale[0]"] {
        assert!(text.contains(word), "{text}");
    }
    let json = folder.json("stream data.csv --target y --holdout 0.1 --json");
    assert_eq!(json["rows"].as_u64().unwrap() + json["holdout"]["rows"].as_f64().unwrap() as u64, 600);
    let noise = 0.2 / 6f64.sqrt();
    for figures in ["prequential", "holdout"] {
        let (rmse, nll) = (json[figures]["rmse"].as_f64().unwrap(), json[figures]["nll"].as_f64().unwrap());
        assert!(rmse > 0.8 * noise && rmse < 1.7 * noise, "{figures}: {rmse}");
        assert!(nll < 0.0);
        let coverage = json[figures]["coverage95"].as_f64().unwrap();
        assert!((0.85..=1.0).contains(&coverage), "{coverage}");
    }
    assert_eq!(json["n"], json["rows"].as_f64().unwrap());
    assert_eq!(json["kernel"], "rbf");
    assert!(json["rank"].as_u64().unwrap() > 4);
    assert_eq!(json["grid"].as_array().unwrap().len(), 2);
    assert!(json["seconds"]["total"].as_f64().unwrap() > json["seconds"]["per_row"].as_f64().unwrap());
    assert!(json["hyperparameters"]["noise"].as_f64().unwrap() > 0.0);
}

#[test]
fn formats_pipes_and_orders_give_the_same_rows() {
    use std::io::Read as _;
    let folder = folder();
    let summary = |arguments: &str| {
        let mut json = folder.json(&format!("stream {arguments} --target y --json"));
        json["seconds"] = Value::Null;
        json
    };
    let plain = summary("data.csv");
    let text = folder.read("data.csv");
    let mut gz = Vec::new();
    flate2::read::GzEncoder::new(text.as_bytes(), flate2::Compression::fast()).read_to_end(&mut gz).unwrap();
    folder.write("data.csv.gz", &gz);
    assert_eq!(summary("data.csv.gz"), plain);
    let lines = text.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        format!("{{\"a\": {}, \"b\": {}, \"y\": {}}}\n", cells[0], cells[1], cells[2])
    });
    folder.write("data.ndjson", lines.collect::<String>());
    assert_eq!(summary("data.ndjson"), plain);
    let piped = folder.run_with_input("stream - --target y --json", text.as_bytes());
    let mut piped: Value = serde_json::from_str(&piped.out).unwrap();
    piped["seconds"] = Value::Null;
    assert_eq!(piped, plain);
    assert_eq!(summary("data.csv --inputs a,b"), plain);
    // Another order is another stream, and a seed repeats it.
    let shuffled = summary("data.csv --shuffle 3");
    assert_ne!(shuffled["prequential"], plain["prequential"]);
    assert_eq!(summary("data.csv --shuffle 3"), shuffled);
    assert_ne!(summary("data.csv --shuffle 4"), shuffled);
    assert_ne!(summary("data.csv --inputs a"), plain);
}

#[test]
fn options_reach_the_model() {
    let folder = folder();
    let info = |options: &str| {
        folder.ok(&format!("stream data.csv --target y --model m.wiski {options}"));
        folder.json("info m.wiski --json")
    };
    let axis = |info: &Value, k: usize| info["grid"][k]["points"].as_u64().unwrap();
    let one = info("--grid 12x20 --kernel matern32 --learn off --bounds 0:6,-2:2");
    assert_eq!((axis(&one, 0), axis(&one, 1)), (12, 20));
    assert_eq!(one["kernel"], "matern32");
    assert_eq!(one["input_scaling"]["shift"], serde_json::json!([3.0, 0.0]));
    assert_eq!(one["input_scaling"]["scale"], serde_json::json!([3.0, 2.0]));
    let two = info("--learn off --init lengthscale=0.5,0.7 outputscale=0.8 noise=0.05");
    // In the units of the data, whatever the scales inside.
    let is = |info: &Value, name: &str, value: f64| {
        let own = info["in_user_units"][name].as_f64().unwrap();
        assert!((own - value).abs() < 1e-12 * value, "{name}: {own}");
    };
    is(&two, "lengthscale[0]", 0.5);
    is(&two, "lengthscale[1]", 0.7);
    is(&two, "outputscale", 0.8);
    is(&two, "noise", 0.05);
    let (scale, target) = (&two["input_scaling"]["scale"], &two["target_scaling"]["scale"]);
    let inside = two["hyperparameters"]["lengthscale[1]"].as_f64().unwrap();
    assert!((inside * scale[1].as_f64().unwrap() - 0.7).abs() < 1e-12);
    assert!((two["noise"].as_f64().unwrap() * target.as_f64().unwrap().powi(2) - 0.05).abs() < 1e-12);
    let same = info("--learn off --kernel rbf+rbf --init lengthscale=0.5 noise=0.05");
    is(&same, "1.lengthscale[1]", 0.5);
    // What is fixed stays while everything else is learned, through every change of the targets' scale.
    let held = info("--kernel rbf+periodic@0 --fix 1.period[0]=3 noise=0.02 --pretrain 30");
    is(&held, "1.period[0]", 3.0);
    is(&held, "noise", 0.02);
    assert!((held["in_user_units"]["0.lengthscale[0]"].as_f64().unwrap() - 0.5).abs() > 1e-3);
    let still = info("--learn off --features project:2 --init noise=0.1 --pretrain 100");
    is(&still, "noise", 0.1);
    assert_eq!(still["features"]["kind"], "linear");
    let three = info("--features project:1 --grid 20 --kernel rbf+periodic --pretrain 0.3");
    assert_eq!(three["kernel"], "rbf + periodic");
    assert_eq!(three["features"]["kind"], "linear");
    assert_eq!(three["features"]["weights"].as_array().unwrap().len(), 1);
    let four = info("--features mlp:5,4:2 --learn every-step --pretrain 100 --half-life 200");
    assert_eq!(four["features"]["hidden"], serde_json::json!([5, 4]));
    let weight = four["n"].as_f64().unwrap();
    // Σ 2^(−k/200) over 600 rows, in steps of one per cent.
    assert!((weight - 252.0).abs() < 10.0, "{weight}");
}

#[test]
fn known_noise_and_times_are_read() {
    let folder = Folder::new();
    let mut text = String::from("time,a,y,v\n");
    for i in 0..200 {
        let a = f64::from(i % 37) / 37.0;
        let time = format!("2024-01-{:02} {:02}:00:00", 1 + i / 24, i % 24);
        writeln!(text, "{time},{a},{},{}", (6.0 * a).sin(), 0.01 + 0.001 * f64::from(i % 5)).unwrap();
    }
    folder.write("data.csv", text);
    folder.ok("stream data.csv --target y --time-col time --noise-col v --half-life 2d --model m.wiski");
    let info = folder.json("info m.wiski --json");
    assert_eq!(info["inputs"], serde_json::json!(["a"]));
    assert_eq!(info["time_column"], "time");
    let weight = info["n"].as_f64().unwrap();
    // 200 hours with a half-life of 48: Σ 2^(−k/48).
    assert!((weight - 65.5).abs() < 3.0, "{weight}");
    folder.rejected("stream data.csv --target y --half-life 2d", "--time-col is needed");
}

#[test]
fn predictions_are_added_to_the_rows_as_they_are() {
    let folder = folder();
    folder.ok("stream data.csv --target y --model m.wiski");
    folder.write("odd.csv", "name,b,a\n\"x, \"\"y\"\"\",0.5,1.5\nplain,-1,3\n");
    let out = folder.ok("predict m.wiski odd.csv");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "name,b,a,mean,std,lower,upper");
    assert!(lines[1].starts_with("\"x, \"\"y\"\"\",0.5,1.5,"), "{}", lines[1]);
    let (mean, std) = (column(&out, "mean")[1], column(&out, "std")[1]);
    assert!((mean - 3f64.sin() * 1f64.cos()).abs() < 0.1);
    let plain = folder.ok("predict m.wiski odd.csv --intervals gaussian");
    assert!((column(&plain, "upper")[1] - mean - 1.959_963_984_540_054 * std).abs() < 1e-12);
    assert!((mean - column(&plain, "lower")[1] - 1.959_963_984_540_054 * std).abs() < 1e-12);
    // What the stream has taught about intervals is a factor for all rows.
    let half = column(&out, "upper")[1] - mean;
    assert!((0.7..1.4).contains(&(half / (1.959_963_984_540_054 * std))), "{half}");
    assert!((mean - column(&out, "lower")[1] - half).abs() < 1e-12);
    let wide = folder.ok("predict m.wiski odd.csv --level 0.99");
    assert!(column(&wide, "upper")[1] - mean > 1.1 * half && column(&wide, "std")[1] == std);
    folder.rejected("predict m.wiski odd.csv --level 95", "--level: 95 is not a share");
    let latent = folder.ok("predict m.wiski odd.csv --latent -o latent.csv");
    assert_eq!(latent, "");
    assert!(column(&folder.read("latent.csv"), "std")[1] < 0.7 * std);
    // A pipe works too, and the target need not be there.
    let piped = folder.run_with_input("predict m.wiski -", b"a,b\n3,-1\n");
    assert_eq!(column(&piped.out, "mean")[0], mean);
}

#[test]
fn an_outsider_can_recompute_a_prediction_from_info() {
    let folder = folder();
    folder.ok("stream data.csv --target y --model m.wiski --grid 12 --learn off --bounds 0:6,-2:2 \
               --init lengthscale=1.2,1.2 outputscale=0.4 noise=0.015");
    let info = folder.json("info m.wiski --json");
    let number = |v: &Value| v.as_f64().unwrap();
    let list = |v: &Value| v.as_array().unwrap().iter().map(number).collect::<Vec<_>>();
    let (shift, scale) = (list(&info["input_scaling"]["shift"]), list(&info["input_scaling"]["scale"]));
    let (y_shift, y_scale) =
        (number(&info["target_scaling"]["shift"]), number(&info["target_scaling"]["scale"]));
    let axes: Vec<(f64, f64, usize)> = (0..2)
        .map(|k| &info["grid"][k])
        .map(|a| (number(&a["min"]), number(&a["step"]), a["points"].as_u64().unwrap() as usize))
        .collect();
    // Keys' cubic convolution weights, written down anew.
    let weights = |x: [f64; 2]| -> Vec<f64> {
        let on = |k: usize| -> Vec<f64> {
            let (min, step, points) = axes[k];
            let place = ((x[k] - shift[k]) / scale[k] - min) / step;
            let keys = |s: f64| match s.abs() {
                s if s <= 1.0 => (1.5 * s - 2.5) * s * s + 1.0,
                s if s < 2.0 => ((-0.5 * s + 2.5) * s - 4.0) * s + 2.0,
                _ => 0.0,
            };
            (0..points).map(|i| keys(place - i as f64)).collect()
        };
        let (u, v) = (on(0), on(1));
        u.iter().flat_map(|a| v.iter().map(move |b| a * b)).collect()
    };
    let hyper = |name: &str| number(&info["hyperparameters"][name]);
    let (l, s) = ([hyper("lengthscale[0]"), hyper("lengthscale[1]")], hyper("outputscale"));
    let noise = number(&info["noise"]);
    let m = axes[0].2 * axes[1].2;
    let point = |i: usize| [i / axes[1].2, i % axes[1].2];
    let kernel = |i: usize, j: usize| {
        let (p, q) = (point(i), point(j));
        let r2: f64 = (0..2).map(|k| ((p[k] as f64 - q[k] as f64) * axes[k].1 / l[k]).powi(2)).sum();
        s * (-0.5 * r2).exp()
    };
    let data = folder.read("data.csv");
    let rows: Vec<[f64; 3]> = data
        .lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<f64> = line.split(',').map(|c| c.parse().unwrap()).collect();
            [cells[0], cells[1], cells[2]]
        })
        .collect();
    // f = K Wᵀ (W K Wᵀ + σ² I)⁻¹ y, solved by conjugate gradients to rounding.
    let n = rows.len();
    let w: Vec<Vec<f64>> = rows.iter().map(|r| weights([r[0], r[1]])).collect();
    let k: Vec<f64> = (0..m * m).map(|i| kernel(i / m, i % m)).collect();
    let apply_k = |v: &[f64]| -> Vec<f64> {
        (0..m).map(|i| k[i * m..(i + 1) * m].iter().zip(v).map(|(a, b)| a * b).sum()).collect()
    };
    let transpose = |v: &[f64]| -> Vec<f64> {
        let mut out = vec![0.0; m];
        w.iter().zip(v).for_each(|(w, v)| out.iter_mut().zip(w).for_each(|(o, w)| *o += w * v));
        out
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let apply = |v: &[f64]| -> Vec<f64> {
        let f = apply_k(&transpose(v));
        w.iter().zip(v).map(|(w, v)| dot(w, &f) + noise * v).collect()
    };
    let y: Vec<f64> = rows.iter().map(|r| (r[2] - y_shift) / y_scale).collect();
    let (mut x, mut r) = (vec![0.0; n], y.clone());
    let (mut p, mut rr) = (r.clone(), dot(&r, &r));
    for _ in 0..2000 {
        if rr < 1e-26 {
            break;
        }
        let q = apply(&p);
        let step = rr / dot(&p, &q);
        x.iter_mut().zip(&p).for_each(|(x, p)| *x += step * p);
        r.iter_mut().zip(&q).for_each(|(r, q)| *r -= step * q);
        let next = dot(&r, &r);
        p.iter_mut().zip(&r).for_each(|(p, r)| *p = r + next / rr * *p);
        rr = next;
    }
    let f = apply_k(&transpose(&x));
    let new = folder.read("new.csv");
    let wanted: Vec<f64> = new
        .lines()
        .skip(1)
        .map(|line| {
            let c: Vec<f64> = line.split(',').map(|c| c.parse().unwrap()).collect();
            y_shift + y_scale * dot(&weights([c[0], c[1]]), &f)
        })
        .collect();
    let got = column(&folder.ok("predict m.wiski new.csv"), "mean");
    // Dropped eigenvalues (1e-12 of the largest) times n/σ² bound the difference.
    assert_close(&got, &wanted, 1e-7);
}

#[test]
fn update_learns_and_forget_unlearns_exactly() {
    let folder = folder();
    folder.ok("stream data.csv --target y --model m.wiski --learn off --bounds 0:6,-2:2");
    let before = folder.ok("predict m.wiski new.csv");
    let text = folder.ok("update m.wiski new.csv -o more.wiski");
    assert!(text.contains("50 rows learned, 650 in all"), "{text}");
    assert_ne!(folder.ok("predict more.wiski new.csv"), before);
    let text = folder.ok("forget more.wiski new.csv");
    assert!(text.contains("50 rows forgotten, 600 left"), "{text}");
    let after = folder.ok("predict more.wiski new.csv");
    for name in ["mean", "std"] {
        assert_close(&column(&after, name), &column(&before, name), 1e-9);
    }
    // A row that was never learned is rejected, and the file stays as it was.
    let bytes = std::fs::read(folder.path("m.wiski")).unwrap();
    folder
        .write("far.csv", "a,b,y\n0.1,-1.9,7\n0.1,-1.9,7\n0.1,-1.9,7\n0.1,-1.9,7\n0.1,-1.9,7\n0.1,-1.9,7\n");
    let done = folder.run("forget m.wiski far.csv");
    assert!(done.code == Some(0) || std::fs::read(folder.path("m.wiski")).unwrap() == bytes);
    // Features that still learn cannot forget.
    folder.ok("stream data.csv --target y --model p.wiski --features project:1 --grid 16");
    folder.rejected("forget p.wiski new.csv", "freeze");
}

#[test]
fn merged_parts_equal_the_whole() {
    let folder = Folder::new();
    let all = table(900, 5);
    let lines: Vec<&str> = all.lines().collect();
    let part = |from: usize, to: usize| format!("{}\n{}\n", lines[0], lines[1 + from..=to].join("\n"));
    folder.write("all.csv", &all);
    folder.write("new.csv", table(40, 6));
    for (name, from, to) in [("p1.csv", 0, 300), ("p2.csv", 300, 700), ("p3.csv", 700, 900)] {
        folder.write(name, part(from, to));
    }
    let options = "--target y --learn off --bounds 0:6,-2:2 --init lengthscale=0.5 outputscale=1 noise=0.1";
    for name in ["all", "p1", "p2", "p3"] {
        folder.ok(&format!("stream {name}.csv {options} --model {name}.wiski"));
    }
    let text = folder.ok("merge p1.wiski p2.wiski p3.wiski -o sum.wiski");
    assert!(text.contains("3 models merged, 900 rows"), "{text}");
    // Conformal quantiles are means of the parts', and so not those of the whole to the last digit.
    let predict = |model: &str| folder.ok(&format!("predict {model} new.csv --intervals gaussian"));
    let (sum, whole) = (predict("sum.wiski"), predict("all.wiski"));
    for name in ["mean", "std", "lower"] {
        assert_close(&column(&sum, name), &column(&whole, name), 1e-9);
    }
    // Learned features: shards of one model.
    folder.ok("stream p1.csv --target y --features project:1 --grid 16 --model base.wiski");
    folder.ok("shard base.wiski -o s2.wiski");
    folder.ok("shard base.wiski -o s3.wiski");
    folder.ok("update s2.wiski p2.csv");
    folder.ok("update s3.wiski p3.csv");
    let text = folder.ok("merge base.wiski s2.wiski s3.wiski -o sum.wiski --freeze --refit");
    assert!(text.contains("900 rows"), "{text}");
    // Features that may still be learned anew are frozen in the model's file, too: later rows do not change them.
    let text = folder.ok("stream p1.csv --target y --features additive --model base.wiski");
    assert!(!text.contains("frozen"), "{text}");
    assert!(folder.ok("shard base.wiski -o s2.wiski").contains("base.wiski is frozen"));
    assert!(!folder.ok("shard base.wiski -o s3.wiski").contains("frozen"));
    folder.ok("update s2.wiski p2.csv");
    folder.ok("update s3.wiski p3.csv");
    let text = folder.ok("merge base.wiski s2.wiski s3.wiski -o sum.wiski");
    assert!(text.contains("3 models merged, 900 rows"), "{text}");
    // Models that do not fit are rejected, and nothing is written.
    folder.ok("stream all.csv --target y --model other.wiski");
    folder.rejected("merge all.wiski other.wiski -o no.wiski", "scale or project their inputs differently");
    folder.ok("stream all.csv --target b --model b.wiski");
    folder.rejected("merge all.wiski b.wiski -o no.wiski", "other columns");
    assert!(!folder.path("no.wiski").exists());
}

#[test]
fn classes_are_streamed_and_predicted() {
    let folder = Folder::new();
    folder.write("data.csv", classes(500, 1));
    folder.write("new.csv", classes(60, 2));
    let json = folder.json(
        "stream data.csv --target kind --classify --model m.wiski --json --holdout 0.2 --predictions p.csv",
    );
    assert!(json["prequential"]["accuracy"].as_f64().unwrap() > 0.9);
    assert!(json["holdout"]["log_loss"].as_f64().unwrap() < 0.3);
    let info = folder.json("info m.wiski --json");
    assert_eq!(info["classes"], serde_json::json!(["cold", "warm"]));
    assert_eq!(info["processes"][1]["class"], "warm");
    let out = folder.ok("predict m.wiski new.csv");
    let (cold, warm) = (column(&out, "p_cold"), column(&out, "p_warm"));
    for (i, line) in out.lines().skip(1).enumerate() {
        assert!((cold[i] + warm[i] - 1.0).abs() < 1e-12);
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells[3], if warm[i] > cold[i] { "warm" } else { "cold" });
    }
    let right = out.lines().skip(1).filter(|l| l.split(',').nth(2) == l.split(',').nth(3)).count();
    assert!(right > 53, "{right} of 60");
    assert!(folder.read("p.csv").starts_with("row,label,predicted,probability,probability_of_label,set\n"));
    folder.ok("update m.wiski new.csv");
    folder.ok("forget m.wiski new.csv");
    folder.rejected("sample m.wiski", "not of classes");
    folder.ok("plot m.wiski -o map.svg");
}

#[test]
fn a_report_and_pictures_are_written() {
    let folder = folder();
    let out = folder.ok("stream data.csv --target y --report out/deep --model m.wiski");
    assert!(out.contains("out/deep/index.html"), "{out}");
    let page = folder.read("out/deep/index.html");
    for word in ["<svg", "Calibration", "Residuals", "lengthscale[0]", "Fitted surface"] {
        assert!(page.to_lowercase().contains(&word.to_lowercase()), "{word}");
    }
    assert!(!page.contains("NaN") && !page.contains("<script src"));
    assert_eq!(folder.ok("plot m.wiski -o m.svg --data new.csv").trim(), "m.svg");
    assert!(folder.read("m.svg").starts_with("<svg") || folder.read("m.svg").contains("<svg"));
    folder.ok("plot m.wiski -o m.png");
    assert!(std::fs::read(folder.path("m.png")).unwrap().starts_with(b"\x89PNG"));
    folder.ok("plot m.wiski -o slice.svg --axes a --at b=1");
    folder.rejected("plot m.wiski -o m.gif", ".svg or a .png");
    folder.rejected("plot m.wiski -o m.svg --axes c", "no input 'c'");
    // More inputs: the parts of a sum, or slices.
    folder.write("wide.csv", "p,q,r,y\n".to_string() + &wide(400));
    folder.ok("stream wide.csv --target y --model w.wiski --report out");
    folder.ok("plot w.wiski -o w.svg");
    assert!(folder.read("w.svg").contains("what each part adds to y"));
    assert!(folder.json("info w.wiski --json")["blocks"].as_array().unwrap().len() > 2);
    folder.ok("stream wide.csv --target y --model v.wiski --features project:2");
    folder.ok("plot v.wiski -o v.svg");
    folder.ok("plot w.wiski -o w2.svg --axes p,r --at q=0.3");
}

fn wide(rows: usize) -> String {
    let mut random = common::Random::new(9);
    let mut row = || {
        let x: [f64; 3] = std::array::from_fn(|_| random.uniform());
        format!("{},{},{},{}\n", x[0], x[1], x[2], (3.0 * x[0]).sin() + x[1] * x[1])
    };
    (0..rows).map(|_| row()).collect()
}

#[test]
fn functions_are_drawn_from_the_posterior() {
    let folder = folder();
    folder.ok("stream data.csv --target y --inputs a --model m.wiski");
    let out = folder.ok("sample m.wiski -n 3 --seed 1");
    assert_eq!(out.lines().next(), Some("a,f1,f2,f3"));
    assert_eq!(out.lines().count(), 201);
    assert_eq!(folder.ok("sample m.wiski -n 3 --seed 1"), out);
    assert_ne!(folder.ok("sample m.wiski -n 3 --seed 2"), out);
    folder.ok("sample m.wiski -o s.png");
    // Their mean and spread are those of the posterior.
    folder.write("at.csv", "a\n2\n4.5\n");
    let many = folder.ok("sample m.wiski -n 400 --at at.csv");
    let p = folder.ok("predict m.wiski at.csv --latent");
    for (i, line) in many.lines().skip(1).enumerate() {
        let values: Vec<f64> = line.split(',').skip(1).map(|v| v.parse().unwrap()).collect();
        let mean = values.iter().sum::<f64>() / 400.0;
        let std = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 399.0).sqrt();
        let (want, spread) = (column(&p, "mean")[i], column(&p, "std")[i]);
        assert!((mean - want).abs() < 4.0 * spread / 20.0, "{mean} {want} ± {spread}");
        assert!((std / spread - 1.0).abs() < 0.15, "{std} {spread}");
    }
}

#[test]
fn every_row_is_answered_as_it_arrives() {
    let folder = Folder::new();
    let mut command =
        folder.command("stream - --target y --emit --pretrain 20 --search wait --quiet --model m.wiski");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let data = table(60, 3);
    let mut lines = data.lines();
    writeln!(input, "{}", lines.next().unwrap()).unwrap();
    let mut answer = String::new();
    for (i, line) in lines.enumerate() {
        let line = match i {
            50 => "3,0,9.5".to_string(), // an outlier
            51 => "3,0,".to_string(),    // only to be predicted
            _ => line.to_string(),
        };
        writeln!(input, "{line}").unwrap();
        if i == 0 {
            output.read_line(&mut answer).unwrap();
            assert_eq!(answer, "row,mean,std,residual,alarm,drift,lower,upper,event\n");
        }
        answer.clear();
        // Would wait for ever if the answer came late.
        output.read_line(&mut answer).unwrap();
        let cells: Vec<&str> = answer.trim_end().splitn(9, ',').collect();
        assert_eq!((cells.len(), cells[0]), (9, (i + 1).to_string().as_str()), "{answer}");
        assert_eq!(cells[1].is_empty(), i < 20, "{answer}");
        // What comes after an outlier that was learned may well look odd to the model.
        if i <= 50 {
            assert_eq!(cells[4], if i == 50 { "1" } else { "0" }, "{answer}");
            assert_eq!(cells[8].contains("outliers"), i == 50, "{answer}");
        }
        if i == 51 {
            assert!(!cells[1].is_empty() && cells[3].is_empty() && !cells[7].is_empty(), "{answer}");
        }
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    assert_eq!(folder.json("info m.wiski --json")["n"], 59.0);
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_a_silent_stream_in_order() {
    let folder = Folder::new();
    let mut command =
        folder.command("stream - --target y --emit=ndjson --pretrain 20 --search wait --model m.wiski");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    input.write_all(table(40, 4).as_bytes()).unwrap();
    let mut line = String::new();
    for _ in 0..40 {
        line.clear();
        output.read_line(&mut line).unwrap();
    }
    let last: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(last["row"], 40);
    assert!(last["std"].as_f64().unwrap() > 0.0);
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let start = Instant::now();
    let status = child.wait().unwrap();
    assert!(status.success() && start.elapsed() < Duration::from_secs(10));
    assert_eq!(folder.json("info m.wiski --json")["n"], 40.0);
    drop(input);
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let folder = folder();
    folder.ok("stream data.csv --target y --model m.wiski");
    folder.write("long.csv", table(20_000, 8));
    let mut child = folder
        .command("predict m.wiski long.csv")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn bench_reports_every_operation() {
    let folder = Folder::new();
    let json = folder.json("bench --json --seconds 0.01");
    assert!(json["multiply_adds_per_second"].as_f64().unwrap() > 1e8);
    let sizes = json["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 4);
    for size in sizes {
        for (name, m) in size["operations"].as_object().unwrap() {
            assert!(m["seconds"].as_f64().unwrap() > 0.0, "{name}");
        }
        assert!(size["operations"].as_object().unwrap().len() >= 7);
    }
}

#[test]
fn help_is_there_for_everything() {
    let folder = Folder::new();
    let text = folder.ok("--help");
    for command in [
        "stream", "predict", "update", "refit", "forget", "shard", "merge", "info", "plot", "sample", "bench",
    ] {
        assert!(text.contains(command));
        assert!(folder.ok(&format!("{command} --help")).contains("Usage"), "{command}");
    }
    assert!(folder.ok("--version").starts_with("wiski "));
    assert_eq!(folder.run("stream").code, Some(2));
    assert_eq!(folder.run("fly").code, Some(2));
}

#[test]
fn completions_and_manual_pages() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = folder.ok(&format!("completions {shell}"));
        assert!(script.contains("wiski") && script.contains("optimize"), "{shell}");
    }
    folder.ok("man pages/of/it");
    let page = folder.read("pages/of/it/wiski-stream.1");
    assert!(page.contains(".TH") && page.contains("target"), "{page}");
    for name in ["wiski.1", "wiski-optimize-ask.1", "wiski-forecast.1"] {
        assert!(folder.path("pages/of/it").join(name).is_file(), "{name}");
    }
}

#[test]
fn rows_that_take_longer_than_they_may_are_counted() {
    let folder = folder();
    let run = |more: &str| folder.json(&format!("stream data.csv --target y --json -q {more}"));
    let (bounded, free) = (run("--max-latency 1us"), run(""));
    // The row that begins a search takes more than a microsecond; in ten seconds everything is done.
    assert!(bounded["seconds"]["rows_above_max_latency"].as_u64().unwrap() > 0, "{bounded}");
    assert_eq!(run("--max-latency 10s")["seconds"]["rows_above_max_latency"], 0);
    assert!(free["seconds"]["rows_above_max_latency"].is_null());
    assert!(folder.ok("stream data.csv --target y --max-latency 10s").contains("0 rows"));
    let done = folder.run("stream data.csv --target y --max-latency 5");
    assert!(done.code == Some(2) && done.err.contains("a time such as 5ms"), "{}", done.err);
    // What is on by default can be asked for by its name.
    assert_eq!(run("--half-life auto")["prequential"], free["prequential"]);
    folder.rejected("stream data.csv --target y --half-life auto --no-tracking", "--no-tracking turns off");
}
