//! Every figure on ordinary, odd and absent data.

use super::*;
use proptest::prelude::*;
use std::f64::consts::TAU;

/// Evenly spaced numbers.
fn grid(from: f64, to: f64, count: usize) -> Vec<f64> {
    (0..count).map(|i| from + (to - from) * i as f64 / (count - 1).max(1) as f64).collect()
}

/// Numbers that look random and are the same every time, about normally distributed.
fn noise(count: usize) -> Vec<f64> {
    let uniform = |i: usize, salt: f64| ((i as f64 + salt) * 78.233).sin().abs().fract() * 43_758.545 % 1.0;
    (0..count).map(|i| (0..12).map(|k| uniform(i, f64::from(k) * 17.3 + 0.1)).sum::<f64>() - 6.0).collect()
}

fn shift(v: &[f64], by: f64) -> Vec<f64> {
    v.iter().map(|v| v + by).collect()
}

fn curve() -> Curve {
    let x = grid(0.0, 24.0, 120);
    let mean: Vec<f64> =
        x.iter().map(|x| 1.5 + (x * TAU / 24.0).sin() + 0.3 * (x * TAU / 8.0).cos()).collect();
    let width: Vec<f64> = x.iter().map(|x| 0.05 + 0.25 * ((x - 16.0) / 3.0).powi(2).min(1.5)).collect();
    let edge = |sign: f64, more: f64| mean.iter().zip(&width).map(|(m, w)| m + sign * (w + more)).collect();
    let data_x: Vec<f64> = (0..120).map(|i| 12.0 + 8.0 * (f64::from(i) * 0.618).fract()).collect();
    let data_y = data_x
        .iter()
        .zip(noise(120))
        .map(|(x, e)| 1.5 + (x * TAU / 24.0).sin() + 0.3 * (x * TAU / 8.0).cos() + 0.12 * e);
    Curve {
        title: "Power of the heat pump".into(),
        x_label: "hour of the day [h]".into(),
        y_label: "power [kW]".into(),
        lower: edge(-1.0, 0.0),
        upper: edge(1.0, 0.0),
        lower_observed: edge(-1.0, 0.25),
        upper_observed: edge(1.0, 0.25),
        data_y: data_y.collect(),
        data_x,
        mean,
        x,
    }
}

fn samples() -> Samples {
    let c = curve();
    let draws = (0..5).map(|k| {
        let phase = f64::from(k) * 1.3;
        c.x.iter()
            .zip(c.mean.iter().zip(&c.upper))
            .map(|(x, (m, u))| m + 0.6 * (u - m) * (x * 0.9 + phase).sin())
            .collect()
    });
    Samples {
        title: "Five functions that fit".into(),
        draws: draws.collect(),
        x_label: c.x_label,
        y_label: c.y_label,
        x: c.x,
        mean: c.mean,
        lower: c.lower,
        upper: c.upper,
        data_x: c.data_x,
        data_y: c.data_y,
    }
}

fn effects() -> Effects {
    let effect = |name: &str, share: f64, f: &dyn Fn(f64) -> f64| {
        let x = grid(-10.0, 30.0, 60);
        let mean: Vec<f64> = x.iter().map(|&x| f(x)).collect();
        Effect { name: name.into(), share, lower: shift(&mean, -0.2), upper: shift(&mean, 0.2), mean, x }
    };
    Effects {
        title: "Additive model of power".into(),
        y_label: "effect [kW]".into(),
        parts: vec![
            effect("outdoor temperature [°C]", 0.62, &|x| 1.5 - 0.07 * x),
            effect("hour [h]", 0.25, &|x| 0.7 * (x / 5.0).sin()),
            effect("wind [m/s]", 0.08, &|x| 0.01 * x),
            effect("humidity [%]", 0.013, &|_| 0.0),
        ],
    }
}

fn map() -> Map {
    let (x, y) = (grid(0.0, 24.0, 48), grid(-12.0, 28.0, 40));
    let over =
        |f: &dyn Fn(f64, f64) -> f64| y.iter().flat_map(|&y| x.iter().map(move |&x| f(x, y))).collect();
    Map {
        title: "Power over hour and outdoor temperature".into(),
        x_label: "hour of the day [h]".into(),
        y_label: "outdoor temperature [°C]".into(),
        fields: vec![
            Field {
                title: String::new(),
                quantity: "mean power [kW]".into(),
                values: over(&|x, y| 2.0 - 0.05 * y + 0.5 * (x * TAU / 12.0).sin()),
            },
            Field {
                title: String::new(),
                quantity: "standard deviation [kW]".into(),
                values: over(&|x, y| 0.05 + 0.3 * ((x - 20.0) / 24.0).powi(2) + 0.0005 * (y - 5.0).powi(2)),
            },
        ],
        data_x: (0..300).map(|i| 24.0 * (f64::from(i) * 0.618).fract()).collect(),
        data_y: noise(300).iter().map(|e| 6.0 + 6.0 * e).collect(),
        x,
        y,
    }
}

fn slices() -> Map {
    let base = map();
    let fields = (0..6).map(|k| Field {
        title: format!("wind = {} m/s", 2 * k),
        quantity: "mean [kW]".into(),
        values: shift(&base.fields[0].values, 0.3 * f64::from(k)),
    });
    Map { fields: fields.collect(), title: "Slices".into(), data_x: Vec::new(), data_y: Vec::new(), ..base }
}

fn learning() -> LearningCurves {
    let rows: Vec<f64> = (0..80).map(|i| 10f64.powf(f64::from(i) / 16.0).round()).collect();
    let window_rows = grid(1250.0, 1e5, 80);
    let metric = |name: &str, target, f: &dyn Fn(f64) -> f64| Metric {
        name: name.into(),
        cumulative: rows.iter().map(|&r| f(r)).collect(),
        windowed: window_rows.iter().zip(noise(80)).map(|(&r, e)| f(3.0 * r) + 0.02 * e).collect(),
        rows: rows.clone(),
        window_rows: window_rows.clone(),
        target,
    };
    LearningCurves {
        title: "Predicted before learned".into(),
        log_rows: true,
        metrics: vec![
            metric("RMSE [kW]", None, &|r| 0.15 + 0.8 / (1.0 + r / 30.0)),
            metric("Negative log density", None, &|r| -0.43 + 2.0 / (1.0 + r / 50.0)),
            metric("Inside the 95 % interval", Some(0.95), &|r| 0.945 - 0.2 / (1.0 + r / 9.0)),
        ],
    }
}

fn hyperparameters() -> Hyperparameters {
    let track = |name: &str, from: f64, to: f64| {
        let rows = grid(200.0, 1e5, 60);
        let values = rows.iter().map(|r| to * (from / to).powf((-r / 15_000.0).exp())).collect();
        Track { name: name.into(), rows, values }
    };
    Hyperparameters {
        title: String::new(),
        tracks: vec![
            track("length scale, hour", 2.0, 5.5),
            track("length scale, temperature", 1.0, 240.0),
            track("output scale", 1.0, 0.9),
            track("noise variance", 1.0, 0.024),
            track("mean", 1.0, 1.9),
        ],
    }
}

fn calibration() -> Calibration {
    let nominal: Vec<f64> = grid(0.05, 0.95, 19).into_iter().chain([0.99]).collect();
    Calibration {
        title: String::new(),
        rows: 4000.0,
        observed: nominal.iter().map(|p| p - 0.12 * p * (1.0 - p)).collect(),
        nominal,
        pit: noise(20)
            .iter()
            .enumerate()
            .map(|(i, e)| 200.0 + 8.0 * e + 1.1 * (i as f64 - 9.5).powi(2))
            .collect(),
    }
}

fn reliability() -> Reliability {
    let confidence: Vec<f64> = grid(0.025, 0.975, 20);
    Reliability {
        title: String::new(),
        accuracy: confidence
            .iter()
            .zip(noise(20))
            .map(|(c, e)| (c - 0.04 + 0.02 * e).clamp(0.0, 1.0))
            .collect(),
        counts: confidence.iter().map(|c| if *c < 0.3 { 0.0 } else { (900.0 * c * c * c).round() }).collect(),
        confidence,
    }
}

fn residuals() -> Residuals {
    let z = noise(2000);
    let edges = grid(-5.0, 5.0, 41);
    let counts = edges.windows(2).map(|e| z.iter().filter(|z| (e[0]..e[1]).contains(z)).count() as f64);
    Residuals {
        title: String::new(),
        x_label: "row".into(),
        counts: counts.collect(),
        x: grid(0.0, 1e5, 2000),
        edges,
        z,
    }
}

fn trace() -> Trace {
    let run = |name: &str, speed: f64| {
        let values: Vec<f64> = (0..40)
            .zip(noise(40))
            .map(|(i, e)| 3.0 * (-f64::from(i) * speed).exp() + 0.4 * e.abs())
            .collect();
        let best = values.iter().scan(f64::INFINITY, |b, &v| {
            *b = b.min(v);
            Some(*b)
        });
        Run { name: name.into(), best: best.collect(), values }
    };
    Trace {
        title: "Bayesian optimization".into(),
        y_label: "cost [€]".into(),
        runs: vec![run("Thompson sampling", 0.1), run("expected improvement", 0.2)],
    }
}

/// One of each, with the name of its file.
fn all() -> Vec<(&'static str, Box<dyn Figure>)> {
    vec![
        ("curve", Box::new(curve())),
        ("samples", Box::new(samples())),
        ("effects", Box::new(effects())),
        ("map", Box::new(map())),
        ("slices", Box::new(slices())),
        ("learning", Box::new(learning())),
        ("hyperparameters", Box::new(hyperparameters())),
        ("calibration", Box::new(calibration())),
        ("reliability", Box::new(reliability())),
        ("residuals", Box::new(residuals())),
        ("trace", Box::new(trace())),
    ]
}

fn count(svg: &str, what: &str) -> usize {
    svg.matches(what).count()
}

fn assert_sound(svg: &str) {
    assert!(svg.starts_with("<svg ") && svg.contains("viewBox=\"0 0 ") && svg.trim_end().ends_with("</svg>"));
    for bad in ["NaN", "inf", "Inf"] {
        assert!(!svg.contains(bad), "{bad} in {svg}");
    }
}

#[test]
fn every_figure_renders() {
    for (name, figure) in all() {
        let drawing = figure.draw();
        let svg = drawing.svg();
        assert_sound(&svg);
        assert!(!svg.contains("no data"), "{name}");
        let (width, height) = decode(&drawing.png(1.0).unwrap());
        assert!(svg.contains(&format!("viewBox=\"0 0 {width} ")), "{name}: {width} × {height}");
    }
}

/// The size of a PNG, after decoding all of it.
fn decode(bytes: &[u8]) -> (u32, u32) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert!(pixels.iter().any(|&p| p != pixels[0]), "something was drawn");
    (info.width, info.height)
}

#[test]
fn a_png_scales() {
    let drawing = curve().draw();
    let (one, two) = (decode(&drawing.png(1.0).unwrap()), decode(&drawing.png(2.0).unwrap()));
    assert!(one.0.abs_diff(two.0 / 2) <= 1 && one.1.abs_diff(two.1 / 2) <= 1, "{one:?} {two:?}");
}

#[test]
fn a_curve_has_two_bands_a_line_and_its_points() {
    let svg = curve().draw().svg();
    assert_eq!(count(&svg, "<circle"), 120 + 1, "the points and the key in the legend");
    for label in ["Power of the heat pump", "hour of the day [h]", "power [kW]", "95 % of observations"] {
        assert_eq!(count(&svg, label), 1, "{label}");
    }
    let bare =
        Curve { lower_observed: Vec::new(), upper_observed: Vec::new(), data_x: Vec::new(), ..curve() };
    let less = bare.draw().svg();
    assert_eq!(count(&svg, "<path"), count(&less, "<path") + 1);
    assert!(!less.contains("observations") && !less.contains("<circle"));
}

#[test]
fn slices_share_a_color_scale() {
    let shades = |map: &Map| {
        let svg = map.draw().svg();
        svg.match_indices("fill=\"#fde725\"").count()
    };
    let one = |title: &str, quantity: &str, values| Field {
        title: title.into(),
        quantity: quantity.into(),
        values,
    };
    let fields = vec![one("a", "q", vec![0.0, 1.0]), one("b", "q", vec![0.0, 10.0])];
    let shared = Map { x: vec![0.0, 1.0], y: vec![0.0], fields, ..Map::default() };
    let mut apart = shared.clone();
    apart.fields[0].quantity = "p".into();
    // Apart, the 1 in the first field is its brightest value as well.
    assert_eq!(shades(&apart), shades(&shared) + 1);
}

#[test]
fn names_are_escaped() {
    let name = "<b>&\"$x$ $";
    let curve = Curve { title: name.into(), x_label: name.into(), y_label: name.into(), ..curve() };
    let svg = curve.draw().svg();
    assert!(!svg.contains("<b>"));
    assert_eq!(count(&svg, "&lt;b&gt;&amp;"), 3);
    assert_eq!(count(&svg, "$x$ $"), 3, "dollars are not mathematics");
}

#[test]
fn odd_names_are_made_fit_to_show() {
    let name = format!("a\u{0}b\nc{}", "d".repeat(500));
    let track = Track { name, rows: vec![1.0, 2.0], values: vec![1.0, 2.0] };
    let svg = Hyperparameters { title: String::new(), tracks: vec![track] }.draw().svg();
    assert!(svg.contains("a b cddd") && svg.contains("d…"), "{svg}");
    assert!(!svg.contains('\u{0}') && !svg.contains(&"d".repeat(60)));
}

#[test]
fn empty_figures_say_so() {
    let empty: [Box<dyn Figure>; 12] = [
        Box::new(Curve::default()),
        Box::new(Samples::default()),
        Box::new(Effects::default()),
        Box::new(SeriesForecast::default()),
        Box::new(SeriesComponents::default()),
        Box::new(Map { fields: vec![Field::default()], ..Map::default() }),
        Box::new(LearningCurves::default()),
        Box::new(Hyperparameters::default()),
        Box::new(Calibration::default()),
        Box::new(Reliability::default()),
        Box::new(Residuals::default()),
        Box::new(Trace::default()),
    ];
    for figure in empty {
        let drawing = figure.draw();
        assert_sound(&drawing.svg());
        assert!(drawing.svg().contains("no data"), "{}", figure.name());
        drawing.png(1.0).unwrap();
    }
}

/// Few or many numbers, of any size, often equal.
fn numbers() -> impl Strategy<Value = Vec<f64>> {
    let extreme =
        prop::sample::select(vec![0.0, 1.0, -1.0, 1e300, -1e300, 1e-300, f64::MAX, f64::MIN, 5e-324]);
    let any = prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO;
    prop_oneof![
        prop::collection::vec(prop_oneof![any, -10.0..10.0, extreme.clone()], 0..12),
        (extreme, 0usize..5).prop_map(|(v, n)| vec![v; n]),
        prop::collection::vec(-5.0..5.0, 0..12),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_finite_numbers_break_a_figure(v in prop::collection::vec(numbers(), 6), log_rows: bool, share in -1e300..1e300) {
        let [a, b, c, d, e, f] = <[Vec<f64>; 6]>::try_from(v).unwrap();
        let name = String::from("n");
        let curve = Curve {
            x: a.clone(), mean: b.clone(), lower: c.clone(), upper: d.clone(), lower_observed: c.clone(),
            upper_observed: d.clone(), data_x: e.clone(), data_y: f.clone(), ..Curve::default()
        };
        let samples = Samples {
            x: a.clone(), mean: b.clone(), lower: c.clone(), upper: d.clone(), draws: vec![e.clone(), f.clone()],
            ..Samples::default()
        };
        let effect = Effect { name: name.clone(), share, x: a.clone(), mean: b.clone(), lower: c.clone(), upper: d.clone() };
        let effects = Effects { parts: vec![effect], ..Effects::default() };
        let values: Vec<f64> = c.iter().chain(&d).copied().cycle().take(a.len() * b.len()).collect();
        let field = Field { title: name.clone(), quantity: name.clone(), values };
        let map = Map { x: a.clone(), y: b.clone(), fields: vec![field], data_x: e.clone(), data_y: f.clone(), ..Map::default() };
        let metric = Metric {
            name: name.clone(), rows: a.clone(), cumulative: b.clone(), window_rows: c.clone(), windowed: d.clone(),
            target: e.first().copied(),
        };
        let learning = LearningCurves { log_rows, metrics: vec![metric], ..LearningCurves::default() };
        let track = Track { name: name.clone(), rows: a.clone(), values: b.clone() };
        let hyperparameters = Hyperparameters { tracks: vec![track], ..Hyperparameters::default() };
        let calibration = Calibration { rows: share, nominal: a.clone(), observed: b.clone(), pit: c.clone(), ..Calibration::default() };
        let reliability = Reliability { confidence: a.clone(), accuracy: b.clone(), counts: c.clone(), ..Reliability::default() };
        let residuals = Residuals { x: a.clone(), z: b.clone(), edges: c.clone(), counts: d.clone(), ..Residuals::default() };
        let trace = Trace { runs: vec![Run { name, values: a, best: b }], ..Trace::default() };
        let figures: [&dyn Figure; 10] = [
            &curve, &samples, &effects, &map, &learning, &hyperparameters, &calibration, &reliability, &residuals, &trace,
        ];
        for figure in figures {
            assert_sound(&figure.draw().svg());
        }
        figures[share.to_bits() as usize % figures.len()].draw().png(1.0).unwrap();
    }
}

/// Writes every figure to the folder that the variable `GALLERY` names.
#[test]
#[ignore = "writes files to look at"]
fn gallery() {
    let dir = std::path::PathBuf::from(std::env::var("GALLERY").expect("GALLERY names a folder"));
    std::fs::create_dir_all(&dir).unwrap();
    for (name, figure) in all() {
        let drawing = figure.draw();
        std::fs::write(dir.join(format!("{name}.svg")), drawing.svg()).unwrap();
        std::fs::write(dir.join(format!("{name}.png")), drawing.png(2.0).unwrap()).unwrap();
    }
}

/// Lines with bands on logarithmic axes, a level, and fits at two moments; also without any data.
#[test]
fn comparisons_and_snapshots_are_drawn() {
    let x = grid(50.0, 5000.0, 12);
    let line = |name: &str, factor: f64| {
        let y: Vec<f64> = x.iter().map(|x| factor / x.sqrt()).collect();
        Line { name: name.into(), x: x.clone(), lower: shift(&y, -0.01), upper: shift(&y, 0.01), y }
    };
    let panel = |log_y: bool| Lines {
        title: "error".into(),
        x_label: "rows".into(),
        y_label: "RMSE".into(),
        log_x: true,
        log_y,
        lines: vec![line("one", 3.0), line("other", 5.0)],
        levels: vec![("in hindsight".into(), 0.1)],
    };
    let figure = Comparison { title: "Two methods".into(), panels: vec![panel(true), panel(false)] };
    let svg = figure.draw().svg();
    for text in ["Two methods", "one", "other", "in hindsight"] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(!figure.draw().png(1.0).unwrap().is_empty());
    let places = grid(-1.0, 1.0, 50);
    let mean: Vec<f64> = places.iter().map(|x| (3.0 * x).sin()).collect();
    let fit = |n: usize| Snapshot {
        title: format!("{n} observations"),
        x: places.clone(),
        lower: shift(&mean, -0.5),
        upper: shift(&mean, 50.0),
        mean: mean.clone(),
        seen: (places[..n].to_vec(), mean[..n].to_vec()),
        unseen: (places[n..].to_vec(), mean[n..].to_vec()),
    };
    let figure = Snapshots { columns: 2, panels: vec![fit(10), fit(20)], ..Snapshots::default() };
    assert!(figure.draw().svg().contains("20 observations"));
    assert!(Comparison::default().draw().svg().contains("no lines"));
    assert!(Snapshots::default().draw().svg().contains("no fits"));
}
