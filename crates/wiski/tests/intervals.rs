//! Intervals of a regressor and sets of a classifier along a stream: what is promised is kept, by every way a model can
//! take.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::internals::conformal::{Conformal, Score};
use wiski::model::{IntervalKind, Intervals, NoiseModel};
use wiski::persist::{self, Columns, Durable, DurableOptions, Model, Row, Stored, Target};
use wiski::{Classes, Error, Features, Horizon, Interval, OnlineClassifier, OnlineRegressor, Settings};

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    rng.sample(rand_distr::StandardNormal)
}

fn settings() -> Settings {
    Settings { grid: vec![24], features: Features::Identity, ..Settings::default() }
}

/// A stream whose noise comes and goes while the model believes in one variance.
fn row(i: usize, random: &mut Xoshiro256PlusPlus) -> (f64, f64) {
    let x = (0.618_034 * i as f64).fract();
    let size = 0.1 * (1.2 * (i as f64 / 1500.0).sin()).exp();
    (x, (6.0 * x).sin() + size * normal(random))
}

#[test]
fn the_promise_holds_in_all_and_in_windows_where_gaussian_intervals_do_not() {
    let mut model = OnlineRegressor::new(1, settings()).unwrap();
    let plain = Intervals { kind: IntervalKind::Gaussian, ..Intervals::default() };
    let mut other = OnlineRegressor::new(1, Settings { intervals: plain, ..settings() }).unwrap();
    let (mut random, mut inside, mut widths, mut rows) = (rng(1), [0.0; 3], 0.0, 0.0);
    for i in 0..20_000 {
        let (x, y) = row(i, &mut random);
        let levels = [0.5, 0.95, 0.97];
        let said: Option<Vec<Interval>> = model
            .is_ready()
            .then(|| levels.iter().map(|&level| model.predict_interval(&[x], level).unwrap()).collect());
        let p = model.step(&[x], y).unwrap();
        assert_eq!(other.step(&[x], y).unwrap(), p, "intervals change no prediction");
        let (Some(said), Some(p)) = (said, p) else { continue };
        rows += 1.0;
        widths += said[1].width();
        for (k, interval) in said.iter().enumerate() {
            inside[k] += f64::from(u8::from(interval.contains(y)));
            let last = model.interval(&p, levels[k], Horizon::Last).unwrap();
            assert!((last.lower - interval.lower).abs() + (last.upper - interval.upper).abs() < 1e-9);
        }
    }
    let kept = model.metrics().intervals();
    assert_eq!(
        (kept.rows(), kept.share()),
        (rows, inside[1] / rows),
        "the figures are those of these intervals"
    );
    assert!((kept.mean_size() - widths / rows).abs() < 1e-9);
    assert!((inside[0] / rows - 0.5).abs() < 0.005, "{inside:?} of {rows}");
    assert!((kept.share() - 0.95).abs() < 0.003, "{}", kept.share());
    // Between two levels that are kept, nothing is promised; but it is not far off.
    assert!((inside[2] / rows - 0.97).abs() < 0.006, "{inside:?} of {rows}");
    let (low, high) = kept.windows().unwrap();
    assert!(low > 0.93 && high < 0.97, "windows from {low} to {high}");
    let (low, high) = other.metrics().intervals().windows().unwrap();
    assert!(low < 0.9 && high > 0.98, "it would have been easy otherwise: {low} to {high}");
    assert!(
        other.metrics().intervals().share() == other.metrics().coverage95() && other.conformal().is_none()
    );
}

#[test]
fn a_stationary_stream_has_gaussian_intervals() {
    let mut model = OnlineRegressor::new(1, settings()).unwrap();
    let (mut random, mut gaussian) = (rng(2), 0.0);
    for i in 0..20_000 {
        let x = (0.618_034 * f64::from(i)).fract();
        if let Some(p) = model.step(&[x], (6.0 * x).sin() + 0.3 * normal(&mut random)).unwrap() {
            gaussian += Interval::gaussian(&p, 0.95).unwrap().width();
        }
    }
    let kept = model.metrics().intervals();
    let ratio = kept.mean_size() / (gaussian / kept.rows());
    assert!((ratio - 1.0).abs() < 0.015, "{ratio} times as wide as Gaussian intervals");
    assert!((kept.share() - 0.95).abs() < 0.003 && (model.metrics().coverage95() - 0.95).abs() < 0.006);
    // Rows that do not follow have the quantile of the long run.
    let (p, ahead) = (model.predict(&[0.3]).unwrap(), model.predict_interval_ahead(&[0.3], 0.95).unwrap());
    assert!((ahead.width() / Interval::gaussian(&p, 0.95).unwrap().width() - 1.0).abs() < 0.1);
}

#[test]
fn a_file_goes_on_with_the_same_intervals_and_readers_see_them() {
    let (mut model, mut random) = (OnlineRegressor::new(1, settings()).unwrap(), rng(3));
    for i in 0..2000 {
        let (x, y) = row(i, &mut random);
        model.step(&[x], y).unwrap();
    }
    let columns = Columns { inputs: vec!["x".into()], target: "y".into(), ..Columns::default() };
    let stored = Stored::new(columns, Model::Regressor(Box::new(model.clone()))).unwrap();
    let read: Stored = persist::from_bytes(&persist::to_bytes(&stored).unwrap()).unwrap();
    let Model::Regressor(mut read) = read.model else { panic!("a regressor was saved") };
    for i in 2000..2300 {
        let (x, y) = row(i, &mut random);
        for level in [0.9, 0.93] {
            let (a, b) = (model.predict_interval(&[x], level), read.predict_interval(&[x], level));
            assert_eq!(a.unwrap(), b.unwrap(), "row {i}");
        }
        assert_eq!(model.step(&[x], y).unwrap(), read.step(&[x], y).unwrap());
    }
    assert_eq!(model.metrics(), read.metrics());

    model.publish();
    let snapshot = model.reader().latest().unwrap();
    let (next, ahead) = (snapshot.predict(&[0.4]).unwrap(), snapshot.predict_ahead(&[0.4]).unwrap());
    for (p, horizon, want) in [
        (next, Horizon::Next, model.predict_interval(&[0.4], 0.8).unwrap()),
        (ahead, Horizon::Ahead, model.predict_interval_ahead(&[0.4], 0.8).unwrap()),
    ] {
        let seen = snapshot.interval(&p, 0.8, horizon).unwrap();
        assert!((seen.lower - want.lower).abs() < 1e-9 && (seen.upper - want.upper).abs() < 1e-9);
    }
}

#[test]
fn a_journal_replays_the_controller() {
    let folder = tempfile_folder("replay");
    let new = || {
        let columns = Columns { inputs: vec!["x".into()], target: "y".into(), ..Columns::default() };
        Stored::new(columns, Model::Regressor(Box::new(OnlineRegressor::new(1, settings())?)))
    };
    let (mut random, mut straight) = (rng(4), new().unwrap());
    let options = || DurableOptions { compact_after: 700, ..DurableOptions::default() };
    let interval = |stored: &Stored| {
        let Model::Regressor(model) = &stored.model else { panic!("a regressor was made") };
        (model.predict_interval(&[0.2], 0.95).unwrap(), *model.metrics())
    };
    let mut durable = Durable::open(&folder, options(), new).unwrap().0;
    for i in 0..1500 {
        let (x, y) = row(i, &mut random);
        let row = Row { x: &[x], target: Target::Value(y), variance: None, time: None };
        durable.step(&row).unwrap();
        straight.step(&row).unwrap();
        if i == 1000 {
            drop(durable);
            durable = Durable::open(&folder, options(), new).unwrap().0;
        }
    }
    assert_eq!(interval(durable.stored()), interval(&straight));
    drop(durable);
    std::fs::remove_dir_all(&folder).unwrap();
}

fn tempfile_folder(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("wiski-intervals-{name}-{}", std::process::id()))
}

#[test]
fn merging_takes_means_and_forgetting_leaves_the_controller_alone() {
    let (mut model, mut random) = (OnlineRegressor::new(1, settings()).unwrap(), rng(5));
    let mut rows = Vec::new();
    for i in 0..1000 {
        let (x, y) = row(i, &mut random);
        rows.push((x, y));
        model.step(&[x], y).unwrap();
    }
    let mut shard = model.shard().unwrap();
    assert_eq!(shard.conformal().unwrap().rows(), 0.0, "a shard has seen nothing");
    for i in 0..500 {
        let (x, y) = row(i, &mut random);
        shard.step(&[x], y + 0.5 * normal(&mut random)).unwrap();
    }
    let log_quantile =
        |model: &OnlineRegressor| model.conformal().unwrap().quantile(0.9, Horizon::Ahead).unwrap().ln();
    let (a, b) = (model.conformal().unwrap().rows(), shard.conformal().unwrap().rows());
    let want = (a * log_quantile(&model) + b * log_quantile(&shard)) / (a + b);
    model.merge(&shard).unwrap();
    assert!((log_quantile(&model) - want).abs() < 1e-12 && model.conformal().unwrap().rows() == a + b);

    let before = model.conformal().unwrap().clone();
    model.forget(&[rows[7].0], rows[7].1).unwrap();
    model.decay(0.5).unwrap();
    assert_eq!(model.conformal(), Some(&before));
    model.observe(&[rows[7].0], rows[7].1).unwrap();
    assert_eq!(
        model.conformal().unwrap().rows(),
        before.rows() + 1.0,
        "what is learned was predicted before"
    );
}

#[test]
fn known_noise_counts() {
    let mut model = OnlineRegressor::new(1, Settings { noise: NoiseModel::Known, ..settings() }).unwrap();
    let (mut random, mut inside, mut rows) = (rng(6), 0.0, 0.0);
    for i in 0..4000 {
        let (x, v) = ((0.618_034 * f64::from(i)).fract(), if i % 2 == 0 { 0.01 } else { 1.0 });
        // Half the noise that is said.
        let y = (6.0 * x).sin() + (0.5_f64 * v).sqrt() * normal(&mut random);
        let said = model.predict_noisy(&[x], v).ok().filter(|_| model.is_ready());
        if let Some(p) = said {
            let interval = model.interval(&p, 0.9, Horizon::Next).unwrap();
            (inside, rows) = (inside + f64::from(u8::from(interval.contains(y))), rows + 1.0);
        }
        model.step_with(&[x], y, Some(v), None).unwrap();
    }
    assert!((inside / rows - 0.9).abs() < 0.006, "{inside} of {rows}");
    let q = model.conformal().unwrap().quantile(0.9, Horizon::Ahead).unwrap();
    assert!((q / (0.5_f64.sqrt() * 1.645) - 1.0).abs() < 0.08, "{q}");
}

#[test]
fn files_without_a_controller_start_with_a_plain_one() {
    let old = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/format-1.wiski");
    let stored: Stored = persist::load(&old).unwrap();
    if let Model::Regressor(model) = &stored.model {
        let plain = Intervals::default();
        assert_eq!(model.settings().intervals, plain);
        let levels: Vec<f64> = model.conformal().unwrap().levels().collect();
        assert_eq!(levels, plain.levels);
        let fresh = Conformal::new(&plain.levels, Score::Deviations).unwrap();
        assert_eq!(model.conformal(), Some(&fresh));
    } else {
        panic!("the old file holds a regressor");
    }
}

#[test]
fn the_promise_holds_while_rows_are_collected_and_begins_anew_after() {
    let mut model = OnlineRegressor::new(1, Settings { warm_up: Some(1000), ..settings() }).unwrap();
    let (mut random, mut level, mut inside, mut rows) = (rng(9), 0.0, 0.0, 0.0);
    for i in 0..1000 {
        // A level that wanders off: the mean of the targets so far is a poor guess.
        level += 0.3 * normal(&mut random);
        let x = (0.618_034 * f64::from(i)).fract();
        if let Ok(interval) = model.predict_interval(&[x], 0.9) {
            (inside, rows) = (inside + f64::from(u8::from(interval.contains(level))), rows + 1.0);
        }
        assert!(model.step(&[x], level).unwrap().is_none());
    }
    assert!((inside / rows - 0.9).abs() < 0.02, "{inside} of {rows}");
    assert!(model.is_ready() && model.metrics().rows() == 0.0);
    let plain = Conformal::new(&Intervals::default().levels, Score::Deviations).unwrap();
    assert_eq!(model.conformal(), Some(&plain));
}

#[test]
fn bad_levels_are_rejected_by_name() {
    let model = OnlineRegressor::new(1, settings()).unwrap();
    let p = wiski::Prediction { mean: 0.0, variance: 1.0, noise: 0.0 };
    for level in [0.0, 1.0, 95.0, -0.5, f64::NAN] {
        let wrong = Intervals { level, ..Intervals::default() };
        for error in [
            model.interval(&p, level, Horizon::Next).map(|_| ()),
            OnlineRegressor::new(1, Settings { intervals: wrong, ..settings() }).map(|_| ()),
        ] {
            assert!(matches!(&error, Err(Error::Config { field, .. }) if field == "level"), "{error:?}");
        }
    }
}

/// Three classes in a row, with labels that are wrong more often as time goes by.
fn labeled(i: usize, random: &mut Xoshiro256PlusPlus) -> (f64, &'static str) {
    let x = 3.0 * (0.618_034 * i as f64).fract();
    let wrong = random.random::<f64>() < 0.2 + 0.2 * (i as f64 / 6000.0);
    let class = if wrong { random.random_range(0..3) } else { x as usize };
    (x, ["a", "b", "c"][class])
}

#[test]
fn sets_of_classes_hold_their_share_and_are_never_empty() {
    for (empty, level) in [(false, 0.9), (true, 0.9), (false, 0.6)] {
        let intervals = Intervals { level, empty_sets: empty, ..Intervals::default() };
        let settings = Settings { intervals, ..settings() };
        let mut model = OnlineClassifier::new(1, Classes::discovered(), settings).unwrap();
        let (mut random, mut inside, mut rows, mut none) = (rng(7), 0.0, 0.0, 0);
        for i in 0..6000 {
            let (x, label) = labeled(i, &mut random);
            if model.is_ready() {
                let set = model.predict_set(&[x], level).unwrap();
                rows += 1.0;
                inside += f64::from(u8::from(set.iter().any(|l| l == label)));
                none += usize::from(set.is_empty());
                assert!(set.len() <= 3 && (empty || set[0] == model.predict(&[x]).unwrap().label));
            }
            model.step(&[x], label).unwrap();
        }
        let kept = model.metrics().sets();
        assert_eq!((kept.rows(), kept.share()), (rows, inside / rows));
        if level == 0.9 {
            assert!((inside / rows - 0.9).abs() < 0.01, "{} at {level}, empty: {empty}", inside / rows);
        } else {
            // The likeliest class alone is right more often than that, and never left out.
            assert!(inside / rows > 0.7 && kept.mean_size() < 1.3, "{} {}", inside / rows, kept.mean_size());
        }
        assert_eq!(none, if empty { none } else { 0 });
    }
}

#[test]
fn plain_sets_have_the_fewest_classes_of_enough_probability() {
    let intervals = Intervals { kind: IntervalKind::Gaussian, ..Intervals::default() };
    let settings = Settings { intervals, ..settings() };
    let mut model = OnlineClassifier::new(1, Classes::discovered(), settings).unwrap();
    let mut random = rng(8);
    for i in 0..1000 {
        let (x, label) = labeled(i, &mut random);
        model.step(&[x], label).unwrap();
    }
    for i in 0..50 {
        let p = model.predict(&[0.06 * f64::from(i)]).unwrap();
        for level in [0.3, 0.9, 0.999] {
            let set = model.set(&p, level, Horizon::Next).unwrap();
            let sum = |set: &[usize]| set.iter().map(|&c| p.probabilities[c]).sum::<f64>();
            assert!(set[0] == p.best && (sum(&set) >= level || set.len() == 3));
            assert!(sum(&set[..set.len() - 1]) < level);
        }
    }
    // Other threads see the same sets.
    model.publish();
    let snapshot = model.reader().latest().unwrap();
    let p = snapshot.predict(&[1.5]).unwrap();
    assert_eq!(snapshot.set(&p, 0.9, Horizon::Next).unwrap(), model.set(&p, 0.9, Horizon::Next).unwrap());
}

/// Along a table that is sorted by a column each row is at the edge of what is known, and nothing like rows in between.
#[test]
fn intervals_of_a_sorted_table_hold_for_rows_in_any_order() {
    let mut random = rng(41);
    let mut draw = |n: usize| -> Vec<([f64; 4], f64)> {
        let mut row = || {
            let x: [f64; 4] = std::array::from_fn(|_| random.random());
            (x, 3.0 * (5.0 * x[0]).sin() + 2.0 * x[1] * x[2] + 0.3 * normal(&mut random))
        };
        (0..n).map(|_| row()).collect()
    };
    let (mut train, test) = (draw(900), draw(1000));
    train.sort_by(|a, b| a.0[0].total_cmp(&b.0[0]));
    let settings = Settings { features: Features::Additive { directions: None }, ..Settings::default() };
    let mut model = OnlineRegressor::new(4, settings).unwrap();
    for (x, y) in &train {
        model.step(x, *y).unwrap();
    }
    model.finish_search().unwrap();
    model.drop_corrections();
    let is_inside = |(x, y): &&([f64; 4], f64)| model.predict_interval_ahead(x, 0.95).unwrap().contains(*y);
    let inside = test.iter().filter(is_inside).count() as f64 / 1000.0;
    assert!((0.93..0.985).contains(&inside), "{inside}");
}
