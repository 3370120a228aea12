//! The recorders against direct computation, and the files of a report.

use super::recorder::STANDARD;
use super::*;
use wiski_figures::{LearningCurves, Metric};

/// A stream that looks random and is the same every time: mean, standard deviation, target.
fn stream(rows: u64) -> impl Iterator<Item = (u64, f64, f64, f64)> {
    (0..rows).map(|row| {
        let t = row as f64;
        let std = 0.5 + (0.37 * t).sin().powi(2);
        let z = 3.0 * (12.9898 * t).sin() * (78.233 * t).cos();
        (row, (0.01 * t).sin(), std, (0.01 * t).sin() + std * z)
    })
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-10 * (1.0 + b.abs()), "{a} is not {b}");
}

/// Checks each cumulative and windowed value of a metric against the rows themselves.
fn check(metric: &Metric, each: &[f64], score: impl Fn(f64) -> f64) {
    let mean = |part: &[f64]| score(part.iter().sum::<f64>() / part.len() as f64);
    assert!(metric.rows.len() <= course::MOST + 1 && metric.window_rows.len() <= course::MOST);
    assert_eq!(*metric.rows.last().unwrap() as usize, each.len() - 1, "the curve ends with the stream");
    for (row, value) in metric.rows.iter().zip(&metric.cumulative) {
        close(*value, mean(&each[..=*row as usize]));
    }
    let mut from = 0;
    for (row, value) in metric.window_rows.iter().zip(&metric.windowed) {
        close(*value, mean(&each[from..=*row as usize]));
        from = *row as usize + 1;
    }
    assert_eq!(metric.windowed.is_empty(), each.len() < 25);
}

#[test]
fn a_recorder_equals_direct_computation() {
    for rows in [10, 1000, 100_000] {
        let mut recorder = Recorder::new("kW");
        stream(rows).for_each(|(row, mean, std, y)| recorder.push(row, mean, std, y));
        let z: Vec<f64> = stream(rows).map(|(_, mean, std, y)| (y - mean) / std).collect();
        let squared: Vec<f64> = stream(rows).map(|(_, mean, _, y)| (y - mean).powi(2)).collect();
        let density = |(_, mean, std, y): (u64, f64, f64, f64)| {
            -(-0.5 * ((y - mean) / std).powi(2)).exp().ln() + (std * std::f64::consts::TAU.sqrt()).ln()
        };
        let nll: Vec<f64> = stream(rows).map(density).collect();
        let n = rows as f64;
        let share = |inside: &dyn Fn(f64) -> bool| z.iter().filter(|&&z| inside(z)).count() as f64 / n;

        close(recorder.rmse(), (squared.iter().sum::<f64>() / n).sqrt());
        close(recorder.nll(), nll.iter().sum::<f64>() / n);
        close(recorder.coverage95(), share(&|z| z.abs() <= 1.959_963_984_540_054));
        let covered: Vec<f64> =
            z.iter().map(|z| f64::from(u8::from(z.abs() <= 1.959_963_984_540_054))).collect();
        for log_rows in [false, true] {
            let LearningCurves { metrics, .. } = recorder.learning_curves(log_rows);
            check(&metrics[0], &squared, f64::sqrt);
            check(&metrics[1], &nll, |m| m);
            check(&metrics[2], &covered, |m| m);
        }

        let calibration = recorder.calibration();
        assert_eq!(calibration.nominal.len(), 20);
        for (level, observed) in calibration.nominal.iter().zip(&calibration.observed) {
            close(*observed, share(&|z| 2.0 * STANDARD.cumulative(z.abs()) - 1.0 <= *level));
        }
        for (i, count) in calibration.pit.iter().enumerate() {
            close(*count, n * share(&|z| ((20.0 * STANDARD.cumulative(z)) as usize).min(19) == i));
        }

        let residuals = recorder.residuals();
        assert!(
            residuals.x.len() <= thinned::MOST && residuals.x.len() >= (rows as usize).min(thinned::MOST / 3)
        );
        assert!(residuals.x.iter().zip(&residuals.z).all(|(x, v)| *v == z[*x as usize]));
        for (edges, count) in residuals.edges.windows(2).zip(&residuals.counts) {
            close(*count, n * share(&|z| edges[0] <= z && z < edges[1]));
        }
    }
}

#[test]
fn a_class_recorder_equals_direct_computation() {
    let row = |i: u64| {
        let confidence = 0.5 + 0.5 * (0.7 * i as f64).sin().abs();
        let correct = (1.3 * i as f64).cos().abs() < confidence;
        (
            if i.is_multiple_of(50) {
                None
            } else {
                Some(if correct { confidence } else { 1.0 - confidence })
            },
            confidence,
            correct,
        )
    };
    let n = 5000;
    let mut recorder = ClassRecorder::new();
    (0..n).for_each(|i| recorder.push(i, row(i).0, row(i).1, row(i).2));
    let correct = (0..n).filter(|&i| row(i).2).count() as f64;
    let losses: Vec<f64> = (0..n).filter_map(|i| row(i).0).map(|p| -p.ln()).collect();
    close(recorder.accuracy(), correct / n as f64);
    close(recorder.log_loss(), losses.iter().sum::<f64>() / losses.len() as f64);
    assert_eq!(recorder.learning_curves(true).metrics.len(), 2);
    let reliability = recorder.reliability();
    for i in 0..20 {
        let bin: Vec<u64> = (0..n).filter(|&k| ((row(k).1 * 20.0) as usize).min(19) == i).collect();
        assert_eq!(reliability.counts[i], bin.len() as f64);
        if !bin.is_empty() {
            close(reliability.confidence[i], bin.iter().map(|&k| row(k).1).sum::<f64>() / bin.len() as f64);
            close(
                reliability.accuracy[i],
                bin.iter().filter(|&&k| row(k).2).count() as f64 / bin.len() as f64,
            );
        }
    }
}

#[test]
fn a_recorder_does_not_grow() {
    let mut recorder = Recorder::new("");
    let size = |r: &Recorder| r.bytes();
    let before = size(&recorder);
    for (row, mean, std, y) in stream(1_000_000) {
        recorder.push(row, mean, std, y);
    }
    assert_eq!(size(&recorder), before, "all memory is taken at the start");
}

#[test]
fn rows_without_a_density_are_skipped() {
    let mut recorder = Recorder::new("");
    for (mean, std, y) in [
        (f64::NAN, 1.0, 0.0),
        (0.0, 0.0, 0.0),
        (0.0, -1.0, 0.0),
        (0.0, f64::INFINITY, f64::INFINITY),
        (0.0, 1e-300, 1e300),
    ] {
        recorder.push(0, mean, std, y);
    }
    assert_eq!((recorder.rows(), recorder.skipped()), (0.0, 5));
    let mut report = Report::default();
    recorder.add_to(&mut report);
    assert!(plates(&report.figures).iter().all(|p| !p.svg.contains("NaN")));
}

fn report() -> Report {
    let mut recorder = Recorder::new("kW");
    for (row, mean, std, y) in stream(20_000) {
        recorder.push(row, mean, std, y);
        if row % 100 == 0 {
            let t = row as f64;
            recorder.push_hyperparameters(
                row,
                &[("noise variance", 1.0 / (1.0 + t)), ("length scale, <b>&\"", 2.0 + t.ln_1p())],
            );
        }
    }
    let mut report = Report {
        title: "Heat pump <b>&\"".into(),
        summary: "20,000 readings, each predicted before it was learned.".into(),
        settings: vec![("kernel".into(), "Matérn 5/2".into()), ("<script>".into(), "a & b".into())],
        ..Report::default()
    };
    recorder.add_to(&mut report);
    report.headline.push(("Time per row".into(), "3.2 µs".into()));
    report.figures.push(Box::new(curve()));
    report.figures.push(Box::new(curve()));
    report
}

#[test]
fn a_report_is_one_page_that_needs_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("deep/er");
    let index = write(&dir, &report()).unwrap();
    let page = fs::read_to_string(&index).unwrap();
    assert_eq!(index, dir.join("index.html"));
    assert_eq!(page.matches("<svg ").count(), 6);
    assert_eq!(page.matches("viewBox").count(), 6);
    for bad in ["<b>", "<script", "src=", "@import", "url(http", "NaN"] {
        assert!(!page.contains(bad), "{bad}");
    }
    for outside in page.match_indices("http").map(|(i, _)| &page[i..(i + 30).min(page.len())]) {
        assert!(outside.starts_with("http://www.w3.org/") || outside.starts_with("http-equiv"), "{outside}");
    }
    assert!(page.contains("<h1>Heat pump &lt;b&gt;&amp;&quot;</h1>") && page.contains("a &amp; b"));
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|s| s.split('"').next()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "figures on one page do not share names");

    let mut files: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    let expected = ["calibration", "fit-2", "fit", "hyperparameters", "index", "learning", "residuals"]
        .map(|n| format!("{n}.{}", if n == "index" { "html" } else { "svg" }));
    assert_eq!(files, expected);
    write(&dir, &report()).unwrap();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 7, "written again in place, without leftovers");
}

#[test]
fn errors_name_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("taken");
    fs::write(&file, "").unwrap();
    let error = format!("{:#}", write(&file, &Report::default()).unwrap_err());
    assert!(error.contains("taken"), "{error}");
    fs::create_dir_all(folder.path().join("d/index.html")).unwrap();
    let error = format!("{:#}", write(&folder.path().join("d"), &Report::default()).unwrap_err());
    assert!(error.contains("index.html"), "{error}");
    assert_eq!(fs::read_dir(folder.path().join("d")).unwrap().count(), 1, "the temporary file is gone");
}

/// Writes a report to the folder that the variable `GALLERY` names, and tells the cost of a row.
#[test]
#[ignore = "writes files to look at"]
fn gallery() {
    let dir = PathBuf::from(std::env::var("GALLERY").expect("GALLERY names a folder"));
    write(&dir.join("report"), &report()).unwrap();
    let rows: Vec<_> = stream(1_000_000).collect();
    let mut recorder = Recorder::new("");
    let start = std::time::Instant::now();
    rows.iter().for_each(|&(row, mean, std, y)| recorder.push(row, mean, std, y));
    println!("{:.1} ns a row", start.elapsed().as_secs_f64() * 1e9 / rows.len() as f64);
}

fn curve() -> wiski_figures::Curve {
    let x: Vec<f64> = (0..20).map(f64::from).collect();
    let mean: Vec<f64> = x.iter().map(|x| (x / 3.0).sin()).collect();
    let lower = mean.iter().map(|m| m - 0.1).collect();
    let upper = mean.iter().map(|m| m + 0.1).collect();
    wiski_figures::Curve { title: "a curve".into(), x, mean, lower, upper, ..Default::default() }
}
