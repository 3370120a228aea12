//! Files whose checksums are right and whose content is not: an error, or a model that still works. Never a panic,
//! never a prediction that is no number.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::decide::{Dimension, Optimizer, OptimizerSettings, Space};
use wiski::persist::{self, Persistent};
use wiski::{Classes, Features, OnlineClassifier, OnlineRegressor, Settings};
use xxhash_rust::xxh3::xxh3_64;

const HEADER: usize = 56;

/// The file with its checksums made right.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let body = xxh3_64(&bytes[HEADER..]);
    bytes[40..48].copy_from_slice(&body.to_le_bytes());
    let head = xxh3_64(&bytes[..48]);
    bytes[48..HEADER].copy_from_slice(&head.to_le_bytes());
    bytes
}

/// Where numbers stand: MessagePack's doubles (a marker, then eight bytes with the highest first), and in byte strings of
/// doubles (lowest byte first) a few of them.
fn numbers(bytes: &[u8]) -> Vec<(usize, bool)> {
    let mut places = Vec::new();
    let mut at = HEADER;
    while at < bytes.len() {
        let size = |from: usize, width: usize| {
            bytes[from..from + width].iter().fold(0, |n, b| n << 8 | usize::from(*b))
        };
        match bytes[at] {
            0xcb => {
                places.push((at + 1, true));
                at += 9;
            }
            marker @ (0xc4..=0xc6) => {
                let width = 1 << (marker - 0xc4);
                let length = size(at + 1, width);
                let start = at + 1 + width;
                let count = length / 8;
                places.extend(
                    [0, count / 3, count.saturating_sub(1)]
                        .iter()
                        .filter(|_| count > 0)
                        .map(|i| (start + 8 * i, false)),
                );
                at = start + length;
            }
            // Strings, whose bytes mean nothing else.
            marker @ (0xa0..=0xbf) => at += 1 + usize::from(marker & 31),
            0xd9 => at += 2 + size(at + 1, 1),
            0xcc | 0xd0 => at += 2,
            0xcd | 0xd1 | 0xdc | 0xde => at += 3,
            0xce | 0xd2 | 0xdd | 0xdf | 0xca => at += 5,
            0xcf | 0xd3 => at += 9,
            _ => at += 1,
        }
    }
    places.dedup();
    places
}

/// Puts hostile numbers into every place in turn; `works` is what a model that was read must be able to do.
fn attack<T: Persistent>(value: &T, works: impl Fn(T) -> bool) {
    let whole = persist::to_bytes(value).unwrap();
    assert!(works(persist::from_bytes(&whole).unwrap()), "it works to begin with");
    let places = numbers(&whole);
    assert!(places.len() > 20, "{} numbers were found", places.len());
    let (mut rejected, mut read) = (0, 0);
    for &(at, big_endian) in &places {
        for hostile in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0] {
            let mut bytes = whole.clone();
            let own = if big_endian { hostile.to_be_bytes() } else { hostile.to_le_bytes() };
            bytes[at..at + 8].copy_from_slice(&own);
            match persist::from_bytes::<T>(&sealed(bytes)) {
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    rejected += 1;
                }
                Ok(model) => {
                    let before: String = whole[at.saturating_sub(40)..at]
                        .iter()
                        .map(|&b| if b.is_ascii_graphic() { char::from(b) } else { '.' })
                        .collect();
                    assert!(works(model), "{hostile} at byte {at}, after {before}");
                    read += 1;
                }
            }
        }
    }
    assert!(rejected > read / 2, "{rejected} rejected, {read} read");
}

fn rows(count: usize, dim: usize) -> Vec<(Vec<f64>, f64)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let row = |_| {
        let x: Vec<f64> = (0..dim).map(|_| rng.random_range(0.0..4.0)).collect();
        let y = x.iter().map(|v| v.sin()).sum::<f64>() + 0.1 * rng.random::<f64>();
        (x, y)
    };
    (0..count).map(row).collect()
}

fn regressor(settings: Settings, dim: usize, count: usize) {
    let mut model = OnlineRegressor::new(dim, settings).unwrap();
    rows(count, dim).iter().for_each(|(x, y)| {
        model.step_with(x, *y, None, None).unwrap();
    });
    attack(&model, |mut model| {
        // An error is an answer too.
        let sound = |p: wiski::Prediction| {
            p.mean.is_finite() && p.variance.is_finite() && p.variance >= 0.0 && p.noise >= 0.0
        };
        let x = vec![1.7; dim];
        let first = model.predict(&x).is_ok_and(sound) || model.predict(&x).is_err();
        let _ = model.step(&x, 0.4);
        let _ = model.refit();
        first && (model.predict(&x).is_ok_and(sound) || model.predict(&x).is_err())
    });
}

#[test]
fn regressors() {
    let small = Settings { grid: vec![8], ..Settings::default() };
    regressor(small.clone(), 2, 70);
    // In the middle of the warm-up.
    regressor(small.clone(), 2, 30);
    regressor(
        Settings { features: Features::Project { outputs: 1 }, warm_up: Some(40), ..small.clone() },
        3,
        60,
    );
    regressor(
        Settings {
            features: Features::Additive { directions: Some(3) },
            warm_up: Some(40),
            memory: 50,
            ..small
        },
        3,
        60,
    );
}

#[test]
fn classifiers() {
    let settings = Settings { grid: vec![8], ..Settings::default() };
    let mut model = OnlineClassifier::new(2, Classes::discovered(), settings).unwrap();
    rows(80, 2).iter().for_each(|(x, y)| {
        model.step(x, if *y > 1.0 { "high" } else { "low" }).unwrap();
    });
    attack(&model, |mut model| {
        let sound =
            |p: wiski::model::ClassPrediction| p.probabilities.iter().all(|p| (0.0..=1.0).contains(p));
        let first = model.predict(&[1.0, 2.0]).map_or(true, sound);
        let _ = model.step(&[1.0, 2.0], "low");
        first && model.predict(&[1.0, 2.0]).map_or(true, sound)
    });
}

#[test]
fn optimizers() {
    for exact_until in [500, 0] {
        let space =
            Space::new(vec![Dimension::linear("a", 0.0, 1.0), Dimension::log("b", 1e-3, 1.0)]).unwrap();
        let settings = OptimizerSettings { exact_until, grid: Some(8), ..OptimizerSettings::default() };
        let mut optimizer = Optimizer::new(space, settings).unwrap();
        for _ in 0..10 {
            for x in optimizer.ask(1).unwrap() {
                optimizer.tell(&x, (x[0] - 0.4).powi(2) + x[1].ln().powi(2) / 9.0).unwrap();
            }
        }
        attack(&optimizer, |mut optimizer| {
            let sound = |points: Vec<Vec<f64>>| points.iter().flatten().all(|v| v.is_finite());
            let first = optimizer.ask(1).map_or(true, sound);
            let _ = optimizer.tell(&[0.5, 0.1], 0.3);
            first && optimizer.ask(1).map_or(true, sound)
        });
    }
}

/// A file from before choices came closer to each other does not say how far they are apart: there the models are made
/// anew, from the same results. Without choices they are those of the file, to the last bit.
#[test]
fn searches_of_older_files_have_their_choices_where_they_are_now() {
    let choice = Dimension::choice("kind", vec!["a".into(), "b".into(), "c".into()]);
    let number = Dimension::linear("x", 0.0, 1.0);
    for (space, is_made_anew) in [(vec![choice, number.clone()], true), (vec![number], false)] {
        let last = space.len() - 1;
        let mut search = Optimizer::new(Space::new(space).unwrap(), OptimizerSettings::default()).unwrap();
        for _ in 0..14 {
            let x = search.ask(1).unwrap().remove(0);
            search.tell(&x, (x[last] - 0.4).powi(2) + x[0]).unwrap();
        }
        let bytes = persist::to_bytes(&search).unwrap();
        let name = b"apart";
        let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
        let mut old = bytes.clone();
        old[at..at + name.len()].copy_from_slice(b"_part");
        let [mut new, mut old] = [bytes, sealed(old)].map(|b| persist::from_bytes::<Optimizer>(&b).unwrap());
        let evidence = |search: &Optimizer| search.surrogate().unwrap().log_evidence().unwrap();
        assert_eq!(evidence(&new), evidence(&search));
        assert_eq!(evidence(&old) == evidence(&search), !is_made_anew);
        assert_eq!(old.surrogate().unwrap().count(), 14);
        // Both know the same function.
        let mut at = vec![1.0; last + 1];
        at[last] = 0.4;
        let [a, b] = [&new, &old].map(|search| search.predict(&at).unwrap().unwrap());
        assert!((a.mean - b.mean).abs() < 3.0 * (a.std() + b.std()), "{a:?} {b:?}");
        assert_eq!(new.ask(1).unwrap() == old.ask(1).unwrap(), !is_made_anew);
    }
}
