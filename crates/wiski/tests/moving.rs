//! Streams whose rows come sorted, or move: features are learned anew from a sample of all rows.

mod common;

use common::assert_has_learned;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::Remark;
use wiski::{Classes, Error, OnlineClassifier, OnlineRegressor, Settings, persist};

type Row = ([f64; 3], f64);

fn rows(count: usize) -> Vec<Row> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    (0..count)
        .map(|_| {
            let x = [rng.random(), rng.random(), rng.random::<f64>()];
            let noise: f64 = rng.sample(StandardNormal);
            (x, (6.0 * x[0]).sin() + (4.0 * x[0] * x[1]).cos() * x[2] + 0.1 * noise)
        })
        .collect()
}

fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by(|a, b| a.0[0].total_cmp(&b.0[0]));
    rows
}

/// Memory of so many rows, and a sample of four times as many.
fn settings(features: &str, memory: usize) -> Settings {
    Settings { features: features.parse().unwrap(), memory, ..Settings::default() }
}

fn learned(settings: Settings, rows: &[Row]) -> OnlineRegressor {
    let mut model = OnlineRegressor::new(3, settings).unwrap();
    rows.iter().for_each(|(x, y)| model.observe(x, *y).map(|_| ()).unwrap());
    model
}

/// Of rows that were not learned, the root of the mean squared error, the share inside 95 % and the mean log density.
fn scores(model: &OnlineRegressor) -> (f64, f64, f64) {
    let test = rows(3000).split_off(2500);
    let (mut square, mut inside, mut density) = (0.0, 0.0, 0.0);
    for (x, y) in &test {
        let said = model.predict_ahead(x).unwrap();
        square += (said.mean - y).powi(2) / test.len() as f64;
        density += model.log_density(&said, *y) / test.len() as f64;
        let interval = model.predict_interval_ahead(x, 0.95).unwrap();
        inside += f64::from(u8::from(interval.lower <= *y && *y <= interval.upper)) / test.len() as f64;
    }
    (square.sqrt(), inside, density)
}

#[test]
fn a_sorted_stream_ends_where_a_shuffled_one_does() {
    for features in ["additive", "points:60"] {
        let all = rows(1600);
        let mut shuffled = learned(settings(features, 400), &all);
        assert!(!shuffled.is_unfinished(), "{features}: rows in random order do not move");
        shuffled.finish_search().unwrap();
        let all = sorted(all);
        let mut model = learned(settings(features, 400), &all[..1500]);
        assert!(model.is_unfinished(), "{features}");
        let before = scores(&model);
        all[1500..].iter().for_each(|(x, y)| model.observe(x, *y).map(|_| ()).unwrap());
        model.finish_search().unwrap();
        assert!(!model.is_unfinished(), "{features}");
        assert_eq!((model.take_failure(), model.remarks()), (None, Vec::new()), "{features}");
        // The sample holds all rows: none is lost.
        assert_has_learned(&model, &all);
        let (own, aim) = (scores(&model), scores(&shuffled));
        assert!(own.0 < 1.05 * aim.0, "{features}: {own:?} of {aim:?}, {before:?} before");
        assert!((0.92..=0.98).contains(&own.1), "{features}: {own:?}");
        assert!(own.2 > aim.2 - 0.05, "{features}: {own:?} of {aim:?}");
    }
}

#[test]
fn of_a_stream_that_is_longer_than_its_sample_a_sample_is_left() {
    let all = sorted(rows(4000));
    let mut model = learned(settings("additive", 200), &all);
    model.finish_search().unwrap();
    let others = model.remarks().iter().find_map(|remark| match remark {
        Remark::Sampled { others } => Some(*others),
        _ => None,
    });
    assert!(others.is_some_and(|others| others >= 800), "{others:?}");
    // Those that are left, and those since.
    assert!((800.0..4000.0).contains(&model.count()), "{}", model.count());
    let mut first = learned(settings("additive", 200), &all[..300]);
    first.freeze_features().unwrap();
    all[300..].iter().for_each(|(x, y)| first.observe(x, *y).map(|_| ()).unwrap());
    let (own, stuck) = (scores(&model), scores(&first));
    assert!(own.0 < 0.8 * stuck.0, "{own:?}, {stuck:?} with the features of the first rows");
    // A row may not have been among them.
    let (x, y) = all[0];
    assert!(matches!(model.forget(&x, y), Err(Error::Unsupported { .. })));
    assert!(first.forget(&x, y).is_ok());
}

#[test]
fn a_model_from_a_file_goes_on_to_the_last_bit() {
    let all = sorted(rows(1700));
    let mut model = learned(settings("additive", 200), &all[..1100]);
    let mut read: OnlineRegressor = persist::from_bytes(&persist::to_bytes(&model).unwrap()).unwrap();
    let refits = model.refits();
    for model in [&mut model, &mut read] {
        all[1100..].iter().for_each(|(x, y)| model.observe(x, *y).map(|_| ()).unwrap());
    }
    assert!(persist::to_bytes(&model).unwrap() == persist::to_bytes(&read).unwrap());
    assert!(model.refits() > refits, "rows of which none has been left out have been seen");
}

#[test]
fn features_that_others_count_on_stay() {
    let all = sorted(rows(1200));
    let mut model = learned(settings("additive", 300), &all[..400]);
    assert!(!model.is_searching());
    assert!(matches!(model.shard(), Err(Error::Unsupported { .. })), "they may still be learned anew");
    model.freeze_features().unwrap();
    let mut shard = model.shard().unwrap();
    all[400..700].iter().for_each(|(x, y)| shard.observe(x, *y).map(|_| ()).unwrap());
    all[700..].iter().for_each(|(x, y)| model.observe(x, *y).map(|_| ()).unwrap());
    assert!(!model.is_unfinished());
    model.merge(&shard).unwrap();
    assert_has_learned(&model, &all);
    // So do those of a model from which a row was taken.
    let mut model = learned(settings("additive", 300), &all[..400]);
    model.forget(&all[0].0, all[0].1).unwrap();
    all[400..].iter().for_each(|(x, y)| model.observe(x, *y).map(|_| ()).unwrap());
    assert!(!model.is_unfinished());
    assert_has_learned(&model, &all[1..]);
}

#[test]
fn classes_that_come_one_after_the_other_share_features_of_all() {
    let kind = |x: &[f64; 3]| {
        if x[0] < 0.3 {
            "a"
        } else if x[0] + 0.5 * (6.0 * x[1]).sin() < 0.7 {
            "b"
        } else {
            "c"
        }
    };
    let mut all = rows(1500);
    let test = all.split_off(1200);
    all.sort_by_key(|(x, _)| kind(x));
    let classes = Classes::discovered().adding_unseen();
    let mut model = OnlineClassifier::new(3, classes, settings("points:40", 600)).unwrap();
    all.iter().for_each(|(x, _)| model.observe(x, kind(x)).map(|_| ()).unwrap());
    model.finish_search().unwrap();
    assert_eq!((model.classes().len(), model.count(), model.take_failure()), (3, 1200.0, None));
    let right = test.iter().filter(|(x, _)| model.predict(x).unwrap().label == kind(x)).count();
    assert!(right >= 280, "{right} of 300");
}

#[cfg(feature = "threads")]
#[test]
fn beside_the_stream_no_row_is_lost() {
    use wiski::model::{Upkeep, UpkeepStage};
    let all = sorted(rows(1600));
    let settings = Settings { upkeep: Upkeep::Background, ..settings("additive", 400) };
    let mut model = OnlineRegressor::new(3, settings).unwrap();
    let mut copies = Vec::new();
    for (i, (x, y)) in all.iter().enumerate() {
        model.observe(x, *y).unwrap();
        // As if rows came slowly; but what is begun when they have doubled is not waited for, and a file is of the model
        // as it is then.
        if i % 50 == 49 && i < 890 {
            model.finish_upkeep();
        } else if i == 900 {
            assert_ne!(model.upkeep_stage(), UpkeepStage::Idle);
            let bytes = persist::to_bytes(&model).unwrap();
            copies.push(persist::from_bytes::<OnlineRegressor>(&bytes).unwrap());
        }
    }
    for (x, y) in &all[901..] {
        copies.iter_mut().for_each(|copy| copy.observe(x, *y).map(|_| ()).unwrap());
    }
    for model in copies.iter_mut().chain([&mut model]) {
        model.finish_search().unwrap();
        assert_eq!((model.take_failure(), model.is_unfinished()), (None, false));
        assert_has_learned(model, &all);
    }
}
