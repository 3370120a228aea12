//! Searches and refits beside the stream: no row is lost, and what takes over has learned all of them.
#![cfg(feature = "threads")]

mod common;

use common::assert_has_learned;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::{Upkeep, UpkeepStage};
use wiski::{Classes, OnlineClassifier, OnlineRegressor, Settings, persist};

fn rows(count: usize) -> Vec<([f64; 3], f64)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    (0..count)
        .map(|_| {
            let x = [rng.random(), rng.random(), rng.random::<f64>()];
            let noise: f64 = rng.sample(StandardNormal);
            (x, (6.0 * x[0]).sin() + x[1] * x[2] + 0.1 * noise)
        })
        .collect()
}

fn settings(features: &str) -> Settings {
    let features = features.parse().unwrap();
    Settings { features, memory: 700, upkeep: Upkeep::Background, ..Settings::default() }
}

#[test]
fn what_takes_over_has_learned_every_row() {
    for features in ["additive", "points:40"] {
        let all = rows(1500);
        let mut model = OnlineRegressor::new(3, settings(features)).unwrap();
        let mut predicted = 0;
        for (i, (x, y)) in all.iter().enumerate() {
            predicted += usize::from(model.step(x, *y).unwrap().is_some());
            // As if rows came slowly: what was begun ends before the next few.
            if i % 100 == 99 {
                model.finish_upkeep();
                assert!(i < 400 || model.is_ready());
            }
        }
        assert!(predicted > 1000, "{predicted}");
        model.finish_upkeep();
        assert!(!model.is_searching(), "the rows in memory have been let go of");
        assert_eq!(model.take_failure(), None);
        assert_has_learned(&model, &all);
        assert!(model.metrics().rmse() < 0.2, "{}", model.metrics().rmse());
    }
}

#[test]
fn rows_that_come_at_once_are_all_learned_in_the_end() {
    let all = rows(1500);
    let mut model = OnlineRegressor::new(3, settings("additive")).unwrap();
    all.iter().for_each(|(x, y)| assert!(model.step(x, *y).is_ok()));
    // A copy and a file are of the model as it is, and go on by themselves.
    let mut copy = model.clone();
    let bytes = persist::to_bytes(&model).unwrap();
    let mut read: OnlineRegressor = persist::from_bytes(&bytes).unwrap();
    assert_eq!(read.settings().upkeep, Upkeep::Wait);
    for model in [&mut model, &mut copy, &mut read] {
        model.finish_search().unwrap();
        assert_has_learned(model, &all);
    }
}

#[test]
fn what_is_prepared_is_dropped_where_it_would_be_wrong() {
    let all = rows(1200);
    let mut model = OnlineRegressor::new(3, settings("additive")).unwrap();
    all.iter().take(650).for_each(|(x, y)| assert!(model.step(x, *y).is_ok()));
    model.finish_upkeep();
    model.freeze_features().unwrap();
    // Whether or not a refit is on its way, a row that is un-learned is gone.
    for (x, y) in &all[650..] {
        model.step(x, *y).unwrap();
        if y.to_bits() % 7 == 0 {
            model.forget(x, *y).unwrap();
        }
    }
    model.finish_upkeep();
    let left = all.iter().enumerate().filter(|(i, (_, y))| *i < 650 || y.to_bits() % 7 != 0);
    let left: Vec<([f64; 3], f64)> = left.map(|(_, row)| *row).collect();
    assert_has_learned(&model, &left);
    // Nor does a class that comes late get lost.
    let settings = Settings { memory: 300, ..settings("additive") };
    let mut model = OnlineClassifier::new(3, Classes::discovered().adding_unseen(), settings).unwrap();
    for (i, (x, _)) in all.iter().enumerate() {
        let label = if i == 500 {
            "late"
        } else if x[0] > 0.5 {
            "a"
        } else {
            "b"
        };
        model.step(x, label).unwrap();
    }
    model.finish_search().unwrap();
    assert_eq!((model.classes().len(), model.count()), (3, 1200.0));
}

#[test]
fn what_is_taken_in_on_request_does_not_depend_on_the_clock() {
    let all = rows(900);
    let run = |is_slow: bool| {
        let settings = Settings { upkeep: Upkeep::OnRequest, ..settings("additive") };
        let mut model = OnlineRegressor::new(3, settings).unwrap();
        let (mut stages, mut ready_at) = (Vec::new(), 0);
        for (i, (x, y)) in all.iter().enumerate() {
            model.step(x, *y).unwrap();
            if is_slow && model.upkeep_stage() == UpkeepStage::Running {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            // Rows do not look, however long what runs beside them has been done.
            if i % 90 == 89 {
                model.attend_upkeep(1);
                stages.push(model.upkeep_stage());
            }
            if model.is_ready() && ready_at == 0 {
                ready_at = i;
            }
        }
        assert!(stages.contains(&UpkeepStage::CatchingUp), "{stages:?}");
        model.finish_upkeep();
        assert_eq!((model.upkeep_stage(), model.count()), (UpkeepStage::Idle, 900.0));
        (ready_at, persist::to_bytes(&model).unwrap())
    };
    let (slow, fast) = (run(true), run(false));
    assert_eq!(slow.0, fast.0);
    assert!(slow.1 == fast.1, "the same rows and requests end in another model");
}

/// A table is searched once, from all its rows, and leads to as good a model as a stream does.
#[test]
fn expected_rows_are_searched_once() {
    let (all, test) = (rows(1200), rows(1500).split_off(1200));
    let fitted = |expects: bool| {
        let settings = Settings { features: "additive".parse().unwrap(), ..Settings::default() };
        let mut model = OnlineRegressor::new(3, settings).unwrap();
        if expects {
            model.expect(all.len());
        }
        all.iter().for_each(|(x, y)| model.observe(x, *y).map(|_| ()).unwrap());
        let before = model.refits();
        model.finish_search().unwrap();
        let error = |(x, y): &([f64; 3], f64)| (model.predict_ahead(x).unwrap().mean - y).powi(2);
        let mse = test.iter().map(error).sum::<f64>() / test.len() as f64;
        (before, model.refits(), mse.sqrt())
    };
    let (streamed, table) = (fitted(false), fitted(true));
    assert!(streamed.0 > 1, "{streamed:?}");
    assert_eq!((table.0, table.1), (0, 1), "{table:?}");
    assert!(table.2 < 1.05 * streamed.2, "{table:?} {streamed:?}");
}
