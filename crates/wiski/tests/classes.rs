//! The classifier: every class is the dense Gaussian process it should be; orders, shards, un-learning, labels
//! that come late, and rows that are rejected.

mod common;

use common::*;
use rand::RngExt;
use rand::seq::SliceRandom;
use wiski::internals::likelihood::Dirichlet;
use wiski::model::{HalfLife, InputScaling, NoiseModel, PrequentialClasses};
use wiski::{Classes, Error, Features, Kernel, OffGrid, OnlineClassifier, Outcome, Schedule, Settings};

type Row = ([f64; 2], &'static str);

/// Rows in the square with three classes in wavy bands.
fn rows(n: usize, seed: u64) -> Vec<Row> {
    let mut rng = rng(seed);
    let mut row = || {
        let x = [2.0 * rng.random::<f64>() - 1.0, 2.0 * rng.random::<f64>() - 1.0];
        let level = x[0] + 0.4 * (4.0 * x[1]).sin() + 0.2 * (rng.random::<f64>() - 0.5);
        let label = if level < -0.4 {
            "a"
        } else if level < 0.4 {
            "b"
        } else {
            "c"
        };
        (x, label)
    };
    (0..n).map(|_| row()).collect()
}

/// Fixed hyperparameters on a fixed grid: everything that follows is exact.
fn fixed() -> Settings {
    Settings {
        grid: vec![9, 10],
        kernel: Some(Kernel::rbf(&[0.5, 0.6]).unwrap().scaled(6.0)),
        schedule: Schedule::Off,
        fit_warm_up: false,
        inputs: InputScaling::None,
        warm_up: Some(5),
        off_grid: OffGrid::Error,
        rank_tolerance: 1e-15,
        ..Settings::default()
    }
}

fn learned(classes: Classes, settings: Settings, rows: &[Row]) -> OnlineClassifier {
    let mut model = OnlineClassifier::new(2, classes, settings).unwrap();
    for (x, label) in rows {
        model.observe(x, label).unwrap();
    }
    model
}

fn abc() -> Classes {
    Classes::declared(["a", "b", "c"])
}

/// Latent means and variances of every class agree, matched by label.
#[track_caller]
fn same(a: &mut OnlineClassifier, b: &mut OnlineClassifier, tolerance: f64) {
    assert_eq!(a.classes().len(), b.classes().len());
    let places: Vec<usize> =
        a.classes().iter().map(|l| b.classes().iter().position(|k| k == l).unwrap()).collect();
    // Another order of the classes meets other quasi-random points.
    let same_order = places.iter().enumerate().all(|(c, &k)| c == k);
    let probability = if same_order { tolerance } else { 2e-3 };
    for (x, _) in rows(20, 99) {
        let (p, q) = (a.predict(&x).unwrap(), b.predict(&x).unwrap());
        for (c, &k) in places.iter().enumerate() {
            close(p.means[c], q.means[k], tolerance, "mean");
            close(p.variances[c], q.variances[k], tolerance, "variance");
            close(p.probabilities[c], q.probabilities[k], probability, "probability");
        }
    }
    assert!((a.count() - b.count()).abs() < 1e-9);
}

#[track_caller]
fn each_class_is_dense(model: &mut OnlineClassifier, rows: &[Row], tolerance: f64) {
    let likelihood = Dirichlet::new(model.classes().len());
    let queries = common::Data { dim: 2, h: self::rows(15, 7).concat_inputs(), y: vec![], noise: vec![] };
    for c in 0..model.classes().len() {
        let (alpha_hit, alpha_miss): (f64, f64) = (1.01, 0.01);
        let label = model.classes()[c].clone();
        let noise: Vec<f64> = rows
            .iter()
            .map(|r| (1.0 + 1.0 / if r.1 == label { alpha_hit } else { alpha_miss }).ln())
            .collect();
        let target = |(r, d): (&Row, &f64)| {
            (if r.1 == label { alpha_hit } else { alpha_miss }).ln() - 0.5 * d - likelihood.mean()
        };
        let y = rows.iter().zip(&noise).map(target).collect();
        let data = Data { dim: 2, h: rows.to_vec().concat_inputs(), y, noise };
        let process = model.model(c).unwrap();
        let (lattice, kernels) = (process.stats().lattice().clone(), process.kernels().to_vec());
        let dense = DenseGp::new(&lattice, &kernels, process.noise(), &data);
        let weights: Vec<Vec<f64>> = queries.rows().map(|h| weights(&lattice, h)).collect();
        let (mean, covariance) = dense.predict(&weights);
        for (i, x) in queries.rows().enumerate() {
            let p = model.predict(x).unwrap();
            close(p.means[c], mean[i], tolerance, "mean");
            close(p.variances[c], covariance[(i, i)], tolerance, "variance");
        }
    }
}

trait ConcatInputs {
    fn concat_inputs(&self) -> Vec<f64>;
}

impl ConcatInputs for Vec<Row> {
    fn concat_inputs(&self) -> Vec<f64> {
        self.iter().flat_map(|r| r.0).collect()
    }
}

#[test]
fn each_class_is_a_dense_process_on_the_transformed_targets() {
    let rows = rows(80, 1);
    each_class_is_dense(&mut learned(abc(), fixed(), &rows), &rows, 1e-9);
    // With one step per observation, at the hyperparameters it has come to, the factor of the noise among them.
    let every = Settings { schedule: Schedule::EveryStep { rate: 0.01 }, ..fixed() };
    let mut model = learned(abc(), every, &rows);
    assert_ne!(model.model(0).unwrap().kernels(), model.model(1).unwrap().kernels());
    assert!((0..3).any(|c| model.model(c).unwrap().noise() > 1.0));
    each_class_is_dense(&mut model, &rows, 1e-9);
}

#[test]
fn probabilities_sum_to_one_and_say_nothing_far_from_data() {
    for (classes, tolerance) in [(abc(), 2e-3), (Classes::declared(["a", "b"]), 1e-6)] {
        let near = |r: &Row| r.0[0] < -0.3 && r.0[1] < -0.3 && r.1 != "c";
        let rows: Vec<Row> = rows(400, 2).into_iter().filter(near).collect();
        let short = Some(Kernel::rbf(&[0.2, 0.2]).unwrap().scaled(6.0));
        let settings = Settings { kernel: short, grid: vec![20], off_grid: OffGrid::Prior, ..fixed() };
        let mut model = learned(classes, settings, &rows);
        let uniform = 1.0 / model.classes().len() as f64;
        for x in [[0.9, 0.9], [7.0, -9.0]] {
            let p = model.predict(&x).unwrap();
            assert!(p.probabilities.iter().all(|p| (p - uniform).abs() < tolerance), "{p:?}");
        }
        for (x, label) in &rows {
            let p = model.predict(x).unwrap();
            assert!((p.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-14);
            assert!(p.probabilities.iter().all(|&q| q > 0.0 && q <= p.probabilities[p.best]));
            assert_eq!(p.label, model.classes()[p.best]);
            assert!(*label != "a" || p.probabilities[0] > 0.25);
        }
        assert_eq!(model.observe(&[7.0, 0.0], "a").unwrap(), Outcome::OffGrid);
    }
}

#[test]
fn the_order_of_rows_does_not_matter() {
    let rows = rows(70, 3);
    let mut first = learned(abc(), fixed(), &rows);
    for seed in 0..4 {
        let mut shuffled = rows.clone();
        shuffled.shuffle(&mut rng(seed));
        let long = Settings { warm_up: Some(40), ..fixed() };
        same(&mut learned(Classes::discovered(), long, &shuffled), &mut first, 1e-9);
    }
}

#[test]
fn forgotten_rows_leave_no_trace() {
    let rows = rows(90, 4);
    let adding = abc().adding_unseen();
    let mut model = learned(adding.clone(), fixed(), &rows);
    rows[60..].iter().for_each(|(x, label)| model.forget(x, label).unwrap());
    let mut fewer = learned(adding, fixed(), &rows[..60]);
    same(&mut model, &mut fewer, 1e-9);
    // The statistics of a class to come have forgotten them too.
    model.observe(&[0.1, 0.2], "d").unwrap();
    fewer.observe(&[0.1, 0.2], "d").unwrap();
    same(&mut model, &mut fewer, 1e-9);

    let before = model.predict(&[0.1, 0.2]).unwrap();
    model.forget(&[0.1, 0.2], "d").unwrap();
    let without = model.predict(&[0.1, 0.2]).unwrap();
    assert_ne!(before, without);
    let rejected = model.forget(&[0.1, 0.2], "d").unwrap_err();
    assert!(matches!(rejected, Error::Unsupported { operation: "forget", .. }), "{rejected}");
    assert!(matches!(model.forget(&[0.1, 0.2], "e"), Err(Error::UnknownLabel { .. })));
    assert_eq!(model.predict(&[0.1, 0.2]).unwrap(), without);
}

#[test]
fn a_row_that_was_never_learned_is_rejected_by_all_classes_or_none() {
    let left: Vec<Row> = rows(60, 5).into_iter().filter(|r| r.0[0] < 0.0).collect();
    let settings = Settings { kernel: Some(Kernel::rbf(&[0.3, 0.3]).unwrap().scaled(2.0)), ..fixed() };
    let mut model = learned(abc(), settings, &left);
    let x = [0.9, 0.9];
    let before = model.predict(&x).unwrap();
    // The miss noise is large enough to allow it for the other classes, the hit noise is not.
    assert!(matches!(model.forget(&x, "b"), Err(Error::NotLearned { .. })));
    assert_eq!(model.predict(&x).unwrap(), before);
}

#[test]
fn merged_shards_equal_one_pass() {
    let rows = rows(90, 6);
    let mut whole = learned(abc(), fixed(), &rows);
    let mut merged = learned(abc(), fixed(), &rows[..20]);
    merged.merge(&learned(Classes::declared(["c", "a", "b"]), fixed(), &rows[20..45])).unwrap();
    merged.merge(&learned(abc(), fixed(), &rows[45..])).unwrap();
    same(&mut merged, &mut whole, 1e-9);

    // Shards that know different classes.
    let only =
        |labels: &[&str]| -> Vec<Row> { rows.iter().filter(|r| labels.contains(&r.1)).copied().collect() };
    let open = || Classes::discovered().adding_unseen();
    let mut merged = learned(open(), fixed(), &only(&["b"]));
    assert_eq!(merged.classes(), ["b"]);
    merged.merge(&learned(open(), fixed(), &only(&["a", "c"]))).unwrap();
    same(&mut merged, &mut learned(open(), fixed(), &rows), 1e-9);
    merged.observe(&[0.0, 0.0], "d").unwrap();
    let mut longer = rows.clone();
    longer.push(([0.0, 0.0], "d"));
    same(&mut merged, &mut learned(open(), fixed(), &longer), 1e-9);

    // Closed models do not take in a class they do not know, in either direction.
    let mut two = learned(Classes::declared(["a", "b"]), fixed(), &only(&["a", "b"]));
    let before = two.predict(&[0.3, 0.3]).unwrap();
    assert!(matches!(two.merge(&whole), Err(Error::UnknownLabel { .. })));
    assert!(matches!(whole.merge(&two), Err(Error::Unsupported { .. })));
    assert_eq!(two.predict(&[0.3, 0.3]).unwrap(), before);
    let other = Settings { inputs: InputScaling::Bounds(vec![(-1.0, 1.0), (-1.0, 2.0)]), ..fixed() };
    assert!(matches!(whole.merge(&learned(abc(), other, &rows)), Err(Error::Unsupported { .. })));
}

#[test]
fn a_class_that_comes_late_is_one_that_was_known_all_along() {
    let mut rows = rows(90, 8);
    rows.sort_by_key(|r| r.1 == "c");
    let mut early = learned(abc().adding_unseen(), fixed(), &rows);
    for classes in [Classes::declared(["a", "b"]), Classes::declared(["a"]), Classes::discovered()] {
        let mut late = learned(classes.adding_unseen(), fixed(), &rows);
        same(&mut late, &mut early, 1e-9);
    }
    // Against a model that was told all classes and keeps nothing for others.
    let mut late = learned(Classes::declared(["a", "b"]).adding_unseen(), fixed(), &rows);
    same(&mut late, &mut learned(abc(), fixed(), &rows), 1e-9);
    each_class_is_dense(&mut late, &rows, 1e-9);
}

#[test]
fn an_unknown_label_is_rejected_by_name() {
    let rows = rows(40, 9);
    let mut model = learned(Classes::discovered(), fixed(), &rows);
    let before = model.predict(&[0.2, 0.2]).unwrap();
    let error = model.observe_batch(&[0.0, 0.0, 0.1, 0.1], &["a", "plum"]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("plum") && text.contains("row 1") && text.contains(r#"["a", "b", "c"]"#), "{text}");
    model.forget(&[0.0, 0.0], "a").unwrap();
    let after = model.predict(&[0.2, 0.2]).unwrap();
    close(after.means[0], before.means[0], 1e-9, "the rejected row has changed nothing");
    assert_eq!(model.classes(), ["a", "b", "c"]);

    // During the warm-up too, where the classes are declared.
    let mut closed = OnlineClassifier::new(2, abc(), fixed()).unwrap();
    assert!(matches!(closed.observe(&[0.0, 0.0], "plum"), Err(Error::UnknownLabel { .. })));
    assert_eq!(closed.count(), 0.0);
    assert!(OnlineClassifier::new(2, Classes::declared(["a"]), fixed()).is_err());
    assert!(OnlineClassifier::new(2, Classes::declared(["a", "b", "a"]), fixed()).is_err());
}

#[test]
fn a_warm_up_of_one_class_waits_for_a_second() {
    let mut model = OnlineClassifier::new(2, Classes::discovered(), fixed()).unwrap();
    for i in 0..4 {
        model.observe(&[0.1 * f64::from(i), 0.0], "b").unwrap();
    }
    // The row that would have ended it is kept; asked to end it, the model says what is missing.
    model.observe(&[0.5, 0.0], "b").unwrap();
    let error = model.finish_warm_up().unwrap_err();
    assert!(matches!(error, Error::Config { .. }) && error.to_string().contains("\"b\""), "{error}");
    assert_eq!((model.count(), model.is_ready()), (5.0, false));
    assert_eq!(model.predict(&[0.0, 0.0]).unwrap().probabilities, [1.0]);
    model.observe(&[0.5, 0.0], "a").unwrap();
    assert!(model.is_ready());
    assert_eq!(model.classes(), ["a", "b"]);
    assert_eq!(model.predict(&[0.0, 0.0]).unwrap().label, "b");
}

/// Names, and whole numbers, may be many: 70 of them in 100 rows are classes. Measurements, and names of single rows, are not.
#[test]
fn many_names_are_classes_and_measurements_are_not() {
    let warm_up = |label: &dyn Fn(usize) -> String| {
        let settings = Settings { warm_up: Some(100), memory: 100, ..fixed() };
        let mut model = OnlineClassifier::new(2, Classes::discovered(), settings).unwrap();
        let mut rng = rng(5);
        (0..100).try_for_each(|i| {
            let x = [2.0 * rng.random::<f64>() - 1.0, 2.0 * rng.random::<f64>() - 1.0];
            model.observe(&x, &label(i)).map(|_| ())
        })?;
        model.predict(&[0.1, 0.2]).map(|p| p.probabilities.len())
    };
    assert_eq!(warm_up(&|i| format!("city {}", i % 70)).unwrap(), 70);
    assert_eq!(warm_up(&|i| (i % 70).to_string()).unwrap(), 70);
    let message = |label: &dyn Fn(usize) -> String| warm_up(label).unwrap_err().to_string();
    assert!(message(&|i| format!("{}.5", i % 70)).contains("predicted by regression"));
    assert!(message(&|i| format!("row {i}")).contains("nearly every row has its own"));
}

#[test]
fn bad_rows_change_nothing() {
    for running in [false, true] {
        let settings = Settings { warm_up: Some(if running { 10 } else { 1000 }), ..fixed() };
        let mut model = learned(abc().adding_unseen(), settings, &rows(30, 10));
        assert_eq!(model.is_ready(), running);
        let before = model.predict(&[0.2, 0.2]).unwrap();
        for label in ["a", "new"] {
            assert!(matches!(model.observe(&[f64::NAN, 0.0], label), Err(Error::NotFinite { .. })));
            assert!(matches!(model.step(&[0.0, f64::INFINITY], label), Err(Error::NotFinite { .. })));
            assert!(matches!(model.observe(&[0.0], label), Err(Error::WrongLength { .. })));
            assert!(matches!(model.observe(&[0.0; 3], label), Err(Error::WrongLength { .. })));
            assert!(matches!(model.observe(&[0.0, 2.5], label), Err(Error::OutsideGrid { .. })));
            assert!(matches!(model.observe_at(&[0.0; 2], label, f64::NAN), Err(Error::NotFinite { .. })));
        }
        assert!(matches!(model.forget(&[f64::NAN, 0.0], "a"), Err(Error::NotFinite { .. })));
        assert!(matches!(model.predict(&[f64::NAN, 0.0]), Err(Error::NotFinite { .. })));
        assert!(model.predict_batch(&[0.0; 5], &mut [0.0; 6]).is_err());
        assert!(model.predict_batch(&[0.0; 4], &mut [0.0; 5]).is_err());
        assert_eq!(model.predict(&[0.2, 0.2]).unwrap(), before);
        assert_eq!((model.count(), model.classes().len()), (30.0, 3));
        assert!(model.metrics().rows() == 0.0);
    }
    let plane = Settings { features: Features::Identity, ..Settings::default() };
    let error = OnlineClassifier::new(5, abc(), plane).unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "five columns are no axes of one grid: {error}");
}

#[test]
fn schedules_learn_the_hyperparameters_of_each_class() {
    let data = rows(600, 11);
    let base = Settings { inputs: InputScaling::None, grid: vec![12], ..Settings::default() };
    let off = Settings { schedule: Schedule::Off, ..base.clone() };
    let every = Settings { schedule: Schedule::EveryStep { rate: 0.01 }, ..base.clone() };
    let mut evidence = Vec::new();
    for settings in [off, base, every] {
        let mut model = OnlineClassifier::new(2, abc(), settings).unwrap();
        for (x, label) in &data {
            model.step(x, label).unwrap();
        }
        assert_eq!(model.metrics().rows(), 550.0);
        // A tenth of the rows lies within the noise of a border; the best possible is about 0.93.
        assert!(model.metrics().accuracy() > 0.87, "{}", model.metrics().accuracy());
        assert!(model.metrics().log_loss() < 0.35, "{}", model.metrics().log_loss());
        let sum: f64 = (0..3).map(|c| model.model(c).unwrap().evidence().unwrap().value).sum();
        evidence.push(sum);
        assert_eq!(model.refits() > 10, model.settings().schedule == Settings::default().schedule);
        // The noise that the likelihood says is the least.
        assert!((0..3).all(|c| model.model(c).unwrap().noise() >= 1.0));
    }
    assert!(evidence[1] > evidence[0] + 1.0 && evidence[2] > evidence[0], "{evidence:?}");
}

/// Labels that have nothing to do with the inputs. The targets of the commonest class then scatter by three times the noise
/// that the likelihood says (its formulas for shares of .6, .3 and .1), which the factor of the noise takes up.
#[test]
fn labels_by_chance_are_noise() {
    let mut rng = rng(17);
    let mut draw = |n: usize| -> Vec<(Vec<f64>, &'static str)> {
        let mut row = || {
            let x = (0..8).map(|_| rng.sample::<f64, _>(rand_distr::StandardNormal)).collect();
            let u = rng.random::<f64>();
            (
                x,
                if u < 0.6 {
                    "often"
                } else if u < 0.9 {
                    "at times"
                } else {
                    "seldom"
                },
            )
        };
        (0..n).map(|_| row()).collect()
    };
    let (train, test) = (draw(400), draw(2000));
    let loss = |noise: NoiseModel| {
        let features = Features::Additive { directions: None };
        let settings = Settings { noise, features, ..Settings::default() };
        let mut model = OnlineClassifier::new(8, Classes::discovered(), settings).unwrap();
        train.iter().for_each(|(x, label)| model.step(x, label).map(|_| ()).unwrap());
        model.finish_search().unwrap();
        let factors: Vec<f64> = (0..3).map(|c| model.model(c).unwrap().noise()).collect();
        (score(&model, &test).log_loss(), factors)
    };
    let share = |label: &str| {
        [("often", 0.6f64), ("at times", 0.3), ("seldom", 0.1)].into_iter().find(|s| s.0 == label)
    };
    let best = test.iter().map(|row| -share(row.1).unwrap().1.ln()).sum::<f64>() / test.len() as f64;
    let (learned, factors) = loss(NoiseModel::Learned);
    assert!(learned < best + 0.04, "{learned} {best}");
    assert!(factors[..2].iter().all(|f| (2.0..6.0).contains(f)), "{factors:?}");
    // As the paper has it.
    let (known, factors) = loss(NoiseModel::Known);
    assert!(known > learned + 0.02, "{known} {learned}");
    assert_eq!(factors, [1.0; 3]);
}

/// A class that one row in a thousand has, in a corner where it is the likelier one.
#[test]
fn a_class_of_one_in_a_thousand_is_learned() {
    let mut rng = rng(31);
    let mut draw = |n: usize| -> Vec<(Vec<f64>, &'static str)> {
        let mut row = || {
            let x = vec![rng.random::<f64>(), rng.random::<f64>()];
            let is_rare = x[0] + x[1] > 1.95 && rng.random::<f64>() < 0.8;
            (x, if is_rare { "rare" } else { "common" })
        };
        (0..n).map(|_| row()).collect()
    };
    let (train, test) = (draw(8000), draw(20_000));
    let mut model = OnlineClassifier::new(2, Classes::discovered(), Settings::default()).unwrap();
    train.iter().for_each(|(x, label)| model.step(x, label).map(|_| ()).unwrap());
    model.finish_search().unwrap();
    assert_eq!(model.take_failure(), None);
    let share = test.iter().filter(|row| row.1 == "rare").count() as f64 / test.len() as f64;
    let rare = model.classes().iter().position(|class| class == "rare").unwrap();
    let said = |x: &[f64]| model.predict(x).unwrap().probabilities[rare];
    let mean = test.iter().map(|(x, _)| said(x)).sum::<f64>() / test.len() as f64;
    let entropy = -share * share.ln() - (1.0 - share) * (1.0 - share).ln();
    let loss = score(&model, &test).log_loss();
    assert!(loss < 0.5 * entropy, "{loss} {entropy}");
    assert!((0.5..2.0).contains(&(mean / share)), "{mean} {share}");
    assert!(said(&[0.99, 0.99]) > 100.0 * share && said(&[0.5, 0.5]) < 2.0 * share);
}

#[test]
fn snapshots_answer_like_the_model_and_belong_to_it() {
    let data = rows(200, 12);
    let model = learned(abc(), fixed(), &data);
    let reader = model.reader();
    let mut copy = model.clone();
    model.publish();
    let snapshot = reader.latest().unwrap();
    let x = rows(100, 13).concat_inputs();
    let mut probabilities = vec![0.0; 300];
    model.predict_batch(&x, &mut probabilities).unwrap();
    for (x, batch) in x.chunks_exact(2).zip(probabilities.chunks_exact(3)) {
        let (p, q) = (model.predict(x).unwrap(), snapshot.predict(x).unwrap());
        for c in 0..3 {
            close(p.means[c], q.means[c], 1e-9, "mean");
            close(p.variances[c], q.variances[c], 1e-9, "variance");
            close(p.probabilities[c], batch[c], 1e-9, "probability");
        }
    }
    copy.observe(&[0.0, 0.0], "a").unwrap();
    copy.publish();
    assert!(std::sync::Arc::ptr_eq(&snapshot, &reader.latest().unwrap()), "a copy has readers of its own");
}

#[test]
fn old_labels_fade() {
    let settings = Settings { half_life: Some(HalfLife::Rows(30.0)), ..fixed() };
    let mut model =
        OnlineClassifier::new(2, Classes::declared(["a", "b"]).adding_unseen(), settings).unwrap();
    for (i, (x, _)) in rows(500, 14).iter().enumerate() {
        let left = x[0] < 0.0;
        model.observe(x, if left == (i < 250) { "a" } else { "b" }).unwrap();
    }
    assert!(model.count() < 50.0);
    assert_eq!(model.predict(&[-0.5, 0.0]).unwrap().label, "b");
    assert_eq!(model.predict(&[0.5, 0.0]).unwrap().label, "a");
}

#[test]
fn the_grid_grows_with_the_stream() {
    let grow = Settings { off_grid: OffGrid::Extend, ..fixed() };
    let mut data = rows(60, 15);
    data.push(([2.3, -1.9], "a"));
    data.push(([2.2, -1.7], "d"));
    let classes = || abc().adding_unseen();
    let mut grown = learned(classes(), grow.clone(), &data);
    each_class_is_dense(&mut grown, &data, 1e-9);
    data.rotate_left(61);
    same(&mut grown, &mut learned(classes(), grow, &data), 1e-9);
}

#[test]
fn a_learned_projection_finds_the_direction_that_separates_two_classes() {
    let mut random = rng(16);
    let mut row = || -> ([f64; 6], &'static str) {
        let x = [0.0; 6].map(|_| 2.0 * random.random::<f64>() - 1.0);
        let level = x[0] - x[1] + 2.0 * x[2] * x[2] + 0.1 * (random.random::<f64>() - 0.5);
        (x, if level < 0.6 { "no" } else { "yes" })
    };
    let settings = Settings { features: Features::Project { outputs: 2 }, ..Settings::default() };
    let mut model = OnlineClassifier::new(6, Classes::discovered(), settings.clone()).unwrap();
    for (x, label) in (0..900).map(|_| row()) {
        model.step(&x, label).unwrap();
    }
    assert_eq!(model.metrics().rows(), 700.0);
    // The true border is right in 99 of 100 rows, the best single direction in 80.
    assert!(model.metrics().accuracy() > 0.92, "{}", model.metrics().accuracy());
    assert!(model.choice().is_some());

    // The map still moves: what was learned cannot be taken back until it is frozen.
    let (x, label) = row();
    assert!(matches!(model.forget(&x, label), Err(Error::Unsupported { .. })));
    assert!(matches!(model.clone().merge(&model), Err(Error::Unsupported { .. })));
    model.freeze_features().unwrap();
    let before = model.predict(&x).unwrap();
    model.observe(&x, label).unwrap();
    model.forget(&x, label).unwrap();
    let after = model.predict(&x).unwrap();
    for c in 0..2 {
        close(after.means[c], before.means[c], 1e-9, "mean");
        close(after.variances[c], before.variances[c], 1e-9, "variance");
    }

    let rejected = OnlineClassifier::new(6, abc(), settings).unwrap_err();
    assert!(matches!(rejected, Error::Unsupported { .. }), "{rejected}");
}

/// Three classes on four inputs by default: what the command line once rejected.
#[test]
fn many_inputs_and_more_than_two_classes_need_no_setting() {
    let mut rng = rng(21);
    let mut model = OnlineClassifier::new(4, Classes::discovered(), Settings::default()).unwrap();
    for i in 0..700 {
        let class = i % 3;
        let x: Vec<f64> = (0..4)
            .map(|k| f64::from(class == k) * 2.0 + rng.sample::<f64, _>(rand_distr::StandardNormal))
            .collect();
        model.step(&x, ["setosa", "versicolor", "virginica"][class as usize]).unwrap();
    }
    assert!(model.is_ready() && model.take_failure().is_none());
    // Three unit Gaussians whose means are 2√2 apart: the best possible is about 0.87.
    assert!(model.metrics().accuracy() > 0.83, "{}", model.metrics().accuracy());
}

/// Three classes by the product of three inputs: no sum of functions of one column tells them apart.
fn products(n: usize, seed: u64) -> Vec<(Vec<f64>, &'static str)> {
    let mut rng = rng(seed);
    let mut row = || {
        let x: Vec<f64> = (0..3).map(|_| 2.0 * rng.random::<f64>() - 1.0).collect();
        let product = x[0] * x[1] * x[2] + 0.03 * (rng.random::<f64>() - 0.5);
        (
            x,
            if product > 0.05 {
                "positive"
            } else if product < -0.05 {
                "negative"
            } else {
                "none"
            },
        )
    };
    (0..n).map(|_| row()).collect()
}

fn score(model: &OnlineClassifier, rows: &[(Vec<f64>, &'static str)]) -> PrequentialClasses {
    let mut figures = PrequentialClasses::default();
    for (x, label) in rows {
        let said = model.predict(x).unwrap();
        let class = model.classes().iter().position(|c| c == label);
        figures.record(&said.probabilities, said.best, class);
    }
    figures
}

#[test]
fn points_tell_classes_apart_that_no_sum_of_columns_can() {
    let (train, test) = (products(600, 1), products(600, 2));
    let fitted = |features: Features| {
        let settings = Settings { features, ..Settings::default() };
        let mut model = OnlineClassifier::new(3, Classes::discovered(), settings).unwrap();
        train.iter().for_each(|(x, label)| model.step(x, label).map(|_| ()).unwrap());
        model.finish_search().unwrap();
        assert!(model.take_failure().is_none());
        model
    };
    let sum = score(&fitted(Features::Additive { directions: None }), &test);
    let model = fitted(Features::Auto);
    let found = score(&model, &test);
    let figures = |f: &PrequentialClasses| [f.accuracy(), f.log_loss(), f.calibration_error()];
    println!("{:.3?} {:.3?}", figures(&sum), figures(&found));
    assert!(sum.accuracy() < 0.75, "{}", sum.accuracy());
    assert!(found.accuracy() > 0.86, "{}", found.accuracy());
    assert!(found.log_loss() < 0.36 && found.calibration_error() < 0.06, "{found:?}");
    // Every row that was learned can be un-learned, in any order, and shards add up.
    let mut one = model.clone();
    one.freeze_features().unwrap();
    let mut parts = [one.shard().unwrap(), one.shard().unwrap()];
    let more = products(40, 3);
    let mut whole = one.clone();
    for (i, (x, label)) in more.iter().enumerate() {
        whole.observe(x, label).unwrap();
        parts[i % 2].observe(x, label).unwrap();
    }
    let mut merged = one.clone();
    parts.iter().for_each(|part| merged.merge(part).unwrap());
    let mut back = whole.clone();
    more.iter().for_each(|(x, label)| back.forget(x, label).unwrap());
    for (x, _) in &test[..20] {
        let latents = |m: &OnlineClassifier| m.predict(x).unwrap().means;
        for (a, b) in [(latents(&whole), latents(&merged)), (latents(&one), latents(&back))] {
            a.iter().zip(&b).for_each(|(a, b)| assert!((a - b).abs() < 1e-7 * (1.0 + a.abs()), "{a} {b}"));
        }
    }
}

/// Bins of confidence by hand.
#[test]
fn the_calibration_error_is_the_mean_distance_in_bins() {
    let mut figures = PrequentialClasses::default();
    for (p, right) in [(0.95, true), (0.91, true), (0.98, false), (0.62, false)] {
        figures.record(&[p, 1.0 - p], 0, Some(usize::from(!right)));
    }
    let wanted = ((0.95 + 0.91 + 0.98 - 2.0_f64).abs() + 0.62) / 4.0;
    assert!((figures.calibration_error() - wanted).abs() < 1e-12);
    assert_eq!(
        figures.reliability().iter().map(|bin| bin.rows).collect::<Vec<_>>()[6..],
        [1.0, 0.0, 0.0, 3.0]
    );
}
