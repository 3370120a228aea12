//! Files: what is read back is what was written, to the last bit and for ever; damage is seen; no row is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::{DriftDetector, HalfLife, InputScaling, NoiseModel};
use wiski::persist::{
    self, Answer, Columns, Durable, DurableOptions, Journal, Model, Persistent, Row, Stored, Sync, Target,
};
use wiski::{
    Classes, Engine, Error, Features, Grid, Kernel, OnlineClassifier, OnlineGp, OnlineRegressor, Schedule,
    Settings, Wiski,
};

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wiski-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Rows of three inputs and a target that depends on them.
fn rows(count: usize, seed: u64) -> Vec<([f64; 3], f64)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut row = || {
        let x: [f64; 3] = std::array::from_fn(|_| rng.random_range(-2.0..2.0));
        let y = (x[0] - 0.5 * x[1]).sin() + 0.3 * x[2] + rng.random_range(-0.1..0.1);
        (x, y)
    };
    (0..count).map(|_| row()).collect()
}

fn settings(schedule: Schedule, features: Features) -> Settings {
    let training = wiski::internals::learn::WarmUpTraining { epochs: 10, ..Settings::default().training };
    Settings { grid: vec![10], schedule, features, warm_up: Some(60), training, ..Settings::default() }
}

/// A model saved in the middle, read back and continued equals the one that was never interrupted.
fn resumed_equals_uninterrupted(settings: Settings, at: usize) {
    let name = format!("{settings:?} at {at}");
    let rows = rows(400, 1);
    let known = settings.noise == NoiseModel::Known;
    let mut whole = OnlineRegressor::new(3, settings.clone()).unwrap();
    let mut parts = OnlineRegressor::new(3, settings).unwrap();
    for (i, (x, y)) in rows.iter().enumerate() {
        if i == at {
            parts = persist::from_bytes(&persist::to_bytes(&parts).unwrap()).unwrap();
        }
        let (variance, time) = (known.then_some(0.01 + 0.001 * (i % 7) as f64), Some(i as f64));
        let a = whole.step_with(x, *y, variance, time).unwrap();
        let b = parts.step_with(x, *y, variance, time).unwrap();
        assert_eq!(a, b, "row {i} of {name}");
    }
    assert_eq!(whole.metrics(), parts.metrics());
    assert_eq!(
        (whole.refits(), whole.drifts(), whole.count()),
        (parts.refits(), parts.drifts(), parts.count())
    );
    // Also the files are equal: nothing of the state was lost on the way.
    assert!(persist::to_bytes(&whole).unwrap() == persist::to_bytes(&parts).unwrap(), "{name}");
}

#[test]
fn a_regressor_goes_on_to_the_last_bit() {
    let geometric = Schedule::Geometric { ratio: 1.1 };
    let every = Schedule::EveryStep { rate: 0.01 };
    let project = Features::Project { outputs: 2 };
    for at in [0, 1, 59, 60, 61, 250] {
        resumed_equals_uninterrupted(settings(geometric, project.clone()), at);
    }
    resumed_equals_uninterrupted(settings(every, project), 200);
    resumed_equals_uninterrupted(settings(geometric, Features::Mlp { hidden: vec![6, 5], outputs: 2 }), 200);
    let identity = || settings(Schedule::Geometric { ratio: 1.3 }, Features::Identity);
    resumed_equals_uninterrupted(Settings { grid: vec![5], ..identity() }, 200);
    resumed_equals_uninterrupted(
        Settings {
            half_life: Some(HalfLife::Time(50.0)),
            drift: Some(DriftDetector::default()),
            noise: NoiseModel::Known,
            grid: vec![5],
            ..identity()
        },
        200,
    );
    let kernel = Kernel::rbf(&[0.5, 0.4, 0.6]).unwrap() + Kernel::matern32(&[2.0, 1.0, 1.5]).unwrap();
    resumed_equals_uninterrupted(Settings { kernel: Some(kernel), grid: vec![5], ..identity() }, 333);
}

#[test]
fn a_classifier_goes_on_to_the_last_bit() {
    for (schedule, at) in [
        (Schedule::Geometric { ratio: 1.2 }, 30),
        (Schedule::Geometric { ratio: 1.2 }, 150),
        (Schedule::EveryStep { rate: 0.01 }, 150),
    ] {
        let settings = Settings { grid: vec![6], ..settings(schedule, Features::Identity) };
        let new =
            || OnlineClassifier::new(2, Classes::discovered().adding_unseen(), settings.clone()).unwrap();
        let (mut whole, mut parts) = (new(), new());
        for (i, (x, y)) in rows(260, 2).iter().enumerate() {
            if i == at {
                parts = persist::from_bytes(&persist::to_bytes(&parts).unwrap()).unwrap();
            }
            // A third class comes along late.
            let label = if i > 180 && *y > 0.8 {
                "high"
            } else if *y > 0.0 {
                "up"
            } else {
                "down"
            };
            let (a, b) = (whole.step(&x[..2], label).unwrap(), parts.step(&x[..2], label).unwrap());
            assert_eq!(a, b, "row {i}");
        }
        assert_eq!(whole.classes().len(), 3);
        assert!(persist::to_bytes(&whole).unwrap() == persist::to_bytes(&parts).unwrap());
    }
}

fn process(low_rank: Option<usize>) -> Wiski {
    let mut builder = Wiski::builder()
        .grid(Grid::covering(&[(-2.0, 2.0), (-2.0, 2.0)], &[8, 9]).unwrap())
        .grid(Grid::covering(&[(-2.0, 2.0)], &[12]).unwrap())
        .kernel(Kernel::rbf(&[0.7, 0.9]).unwrap())
        .kernel(Kernel::matern52(&[0.5]).unwrap());
    if let Some(rank) = low_rank {
        builder = builder.low_rank_root(rank);
    }
    let mut model = builder.build().unwrap();
    for (x, y) in rows(100, 3) {
        model.step(&x, y).unwrap();
    }
    model
}

#[test]
fn processes_and_statistics_come_back_whole() {
    for low_rank in [None, Some(20)] {
        let mut model = process(low_rank);
        let mut copy: Wiski = persist::from_bytes(&persist::to_bytes(&model).unwrap()).unwrap();
        assert_eq!(copy.stats(), model.stats());
        for (x, y) in rows(50, 4) {
            assert_eq!(copy.step(&x, y).unwrap(), model.step(&x, y).unwrap());
        }
        let stats: wiski::Stats = persist::from_bytes(&persist::to_bytes(model.stats()).unwrap()).unwrap();
        assert_eq!(&stats, model.stats());
    }
}

/// A posterior of so many coordinates that conditioned rows wait: saved at any length of the list.
#[test]
fn a_model_with_waiting_rows_goes_on_to_the_last_bit() {
    let build = || {
        let grid = Grid::covering(&[(-2.0, 2.0), (-2.0, 2.0)], &[17, 17]).unwrap();
        Wiski::builder().grid(grid).kernel(Kernel::matern32(&[1.5, 2.0]).unwrap()).build().unwrap()
    };
    let waits = |bytes: &[u8]| bytes.windows(7).any(|w| w == b"pending");
    let mut whole = build();
    assert!(whole.rank() > 256 && whole.engine() == "dense");
    let mut others: Vec<Wiski> = Vec::new();
    let mut lists = 0;
    for (i, (x, y)) in rows(150, 5).iter().enumerate() {
        let bytes = persist::to_bytes(&whole).unwrap();
        lists += usize::from(waits(&bytes));
        if [0, 1, 7, 8, 9, 50, 127, 128, 129, 140].contains(&i) {
            others.push(persist::from_bytes(&bytes).unwrap());
        }
        let (expected, x) = (whole.predict(&x[..2]).unwrap(), &x[..2]);
        assert_eq!(whole.step(x, *y).unwrap(), expected, "a step must predict before it learns");
        for other in &mut others {
            assert_eq!(other.predict(x).unwrap(), expected, "row {i}");
            assert_eq!(other.predict_gradient(x).unwrap().prediction, expected, "row {i}");
            assert_eq!(other.step(x, *y).unwrap(), expected, "row {i}");
        }
    }
    assert!(lists > 100 && lists < 150, "rows waited in {lists} of 150 files");
    let bytes = persist::to_bytes(&whole).unwrap();
    assert!(others.iter().all(|other| persist::to_bytes(other).unwrap() == bytes));
    assert!(!waits(&persist::to_bytes(&process(None)).unwrap()), "a small posterior has no list");
}

fn columns() -> Columns {
    let inputs = ["a", "b", "c"].map(String::from).to_vec();
    Columns { inputs, target: "y".into(), ..Columns::default() }
}

fn stored(grid: usize) -> Stored {
    let settings = settings(Schedule::Geometric { ratio: 1.2 }, Features::Project { outputs: 2 });
    let settings = Settings { grid: vec![grid], warm_up: Some(20), ..settings };
    let model = OnlineRegressor::new(3, settings).unwrap();
    Stored::new(columns(), Model::Regressor(Box::new(model))).unwrap()
}

fn step(stored: &mut Stored, x: &[f64], y: f64) -> Option<Answer> {
    stored.step(&Row { x, target: Target::Value(y), variance: None, time: None }).unwrap()
}

#[test]
fn every_kind_of_damage_has_its_message_and_the_old_file_stays() {
    let scratch = Scratch::new("damage");
    let path = scratch.path("model.wiski");
    let message = |bytes: &[u8]| -> String {
        fs::write(&path, bytes).unwrap();
        let error = persist::load::<Stored>(&path).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert!(!error.contains('\n'));
        error
    };
    let whole = persist::to_bytes(&stored(6)).unwrap();
    assert!(message(b"").ends_with("empty"));
    assert!(message(b"x,y\n1,2\n").ends_with("not a wiski file"));
    for length in [7, 20, 55] {
        let error = message(&whole[..length]);
        assert!(error.contains("cut off") || error.contains("not a wiski file"), "{error}");
    }
    assert!(message(&whole[..whole.len() - 1]).contains("cut off"));
    assert!(message(&[&whole[..], b"!"].concat()).contains("1 bytes too many"));
    let mut newer = whole.clone();
    newer[8] = 9;
    assert!(message(&newer).contains("format version 9"), "{}", message(&newer));
    // Any flipped bit is seen.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    for _ in 0..300 {
        let mut bytes = whole.clone();
        let at = rng.random_range(0..bytes.len());
        bytes[at] ^= 1 << rng.random_range(0..8);
        assert!(persist::from_bytes::<Stored>(&bytes).is_err(), "byte {at}");
    }
    // A file of another kind, a folder, a place that does not exist.
    fs::write(&path, persist::to_bytes(&process(None)).unwrap()).unwrap();
    let error = persist::load::<Stored>(&path).unwrap_err().to_string();
    assert!(error.contains("of the kind process, not model"), "{error}");
    assert!(persist::load::<Stored>(&scratch.path("nothing")).is_err());
    assert!(persist::save(&scratch.path("no/such/folder/x.wiski"), &stored(6)).is_err());
    assert!(persist::save(&scratch.0, &stored(6)).is_err());
    // Nothing is left lying about, and saving over a file replaces it.
    persist::save(&path, &stored(6)).unwrap();
    persist::load::<Stored>(&path).unwrap();
    let names: Vec<_> = fs::read_dir(&scratch.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["model.wiski"]);
}

/// Another machine may find other eigenvectors, so that the saved coordinates mean something else: then the
/// posterior comes from the statistics.
#[test]
fn a_posterior_in_other_coordinates_is_computed_anew() {
    let model = process(None);
    let mut bytes = persist::to_bytes(&model).unwrap();
    // Flip the sign of the mean's coordinates, as another eigensolver might.
    let at = bytes.windows(5).position(|w| w == b"\xa4mean").unwrap() + 5 + 3;
    let rank = model.rank();
    (0..rank).for_each(|i| bytes[at + 8 * i + 7] ^= 0x80);
    let bytes = checksummed(&bytes[56..], "process");
    let copy: Wiski = persist::from_bytes(&bytes).unwrap();
    for (x, _) in rows(20, 13) {
        let (a, b) = (copy.predict(&x).unwrap(), model.predict(&x).unwrap());
        assert!((a.mean - b.mean).abs() < 1e-9 && (a.variance - b.variance).abs() < 1e-9, "{a:?} {b:?}");
    }
}

fn checksummed(body: &[u8], kind: &str) -> Vec<u8> {
    let mut bytes = b"\x89WISKI\r\n\x02\0\0\0\0\0\0\0".to_vec();
    bytes.extend(kind.bytes());
    bytes.resize(32, 0);
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(xxhash_rust::xxh3::xxh3_64(body).to_le_bytes());
    bytes.extend(xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// A body changed on purpose, with a checksum that fits, must be rejected or give a model that works: never a
/// panic.
#[test]
fn hostile_files_never_panic() {
    fn attack<T: Persistent>(value: &T, mut use_it: impl FnMut(&mut T)) {
        let body = persist::to_bytes(value).unwrap()[56..].to_vec();
        assert!(checksummed(&body, T::KIND) == persist::to_bytes(value).unwrap());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(6);
        let mut read = 0;
        for round in 0..1500 {
            let mut bytes = body.clone();
            // Names, lengths and small numbers are where the structure is: mostly change what stands there.
            let at = if round % 2 == 0 {
                rng.random_range(0..bytes.len().min(1500))
            } else {
                rng.random_range(0..bytes.len())
            };
            match round % 3 {
                0 => bytes[at] = rng.random(),
                1 => bytes[at] = bytes[at].wrapping_add(1),
                _ => bytes.truncate(at),
            }
            if let Ok(mut value) = persist::from_bytes::<T>(&checksummed(&bytes, T::KIND)) {
                read += 1;
                use_it(&mut value);
            }
        }
        assert!(read > 50, "the attack should also reach past the parser, but only {read} were read");
    }
    let mut model = stored(6);
    for (x, y) in rows(60, 7) {
        step(&mut model, &x, y);
    }
    attack(&model, |m| {
        for (x, y) in rows(3, 8) {
            let _ = m.step(&Row { x: &x, target: Target::Value(y), variance: None, time: None });
        }
    });
    attack(&process(Some(20)), |m| {
        let _ = m.step(&[0.1, 0.2, 0.3], 0.0);
    });
    attack(&process(None), |m| {
        let _ = m.step(&[0.1, 0.2, 0.3], 0.0);
    });
}

/// The first file ever written in this format must stay readable and say the same.
#[test]
fn files_of_earlier_versions_stay_readable() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/format-1.wiski");
    if std::env::var_os("WISKI_WRITE_FORMAT").is_some() {
        let mut model = stored(6);
        rows(60, 7).iter().for_each(|(x, y)| {
            step(&mut model, x, *y);
        });
        persist::save(&path, &model).unwrap();
    }
    let model: Stored = persist::load(&path).unwrap();
    assert_eq!((model.columns.clone(), model.rows), (columns(), 60));
    let Answer::Value(p) = model.model.predict(&[0.5, -0.5, 1.0]).unwrap() else { panic!("not a number") };
    let expected = include_str!("data/format-1.txt");
    let expected: Vec<f64> = expected.split_whitespace().map(|v| v.parse().unwrap()).collect();
    // Written on one machine, read on another: the prior is computed anew, by other instructions perhaps.
    for (got, want) in [p.mean, p.std()].into_iter().zip(expected) {
        assert!((got - want).abs() < 1e-9, "{} {}", p.mean, p.std());
    }
}

fn entry(x: &[f64; 3], y: f64) -> Row<'_> {
    Row { x, target: Target::Value(y), variance: None, time: None }
}

#[test]
fn a_journal_cut_anywhere_keeps_all_rows_before_the_cut() {
    let scratch = Scratch::new("cut");
    let path = scratch.path("journal.log");
    let mut journal = Journal::create(&path, 3, 7, Sync::Never).unwrap();
    let rows = rows(5, 9);
    let mut ends = vec![journal.bytes()];
    for (i, (x, y)) in rows.iter().enumerate() {
        let row = match i {
            1 => Row { target: Target::Label("grün"), variance: Some(0.1), ..entry(x, *y) },
            2 => Row { target: Target::Missing, time: Some(1e9), ..entry(x, *y) },
            _ => entry(x, *y),
        };
        assert_eq!(journal.append(&row).unwrap(), 8 + i as u64);
        ends.push(journal.bytes());
    }
    drop(journal);
    let whole = fs::read(&path).unwrap();
    assert_eq!(*ends.last().unwrap(), whole.len() as u64);
    for cut in ends[0] as usize..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let mut seen = Vec::new();
        let (mut journal, replay) = Journal::open(&path, 3, Sync::Never, |e| {
            seen.push(e.clone());
            Ok(())
        })
        .unwrap();
        let complete = ends.iter().filter(|&&end| end <= cut as u64).count() - 1;
        assert_eq!(seen.len(), complete, "cut at {cut}");
        assert_eq!(replay.dropped_bytes, cut as u64 - ends[complete]);
        for (i, e) in seen.iter().enumerate() {
            assert_eq!((e.number, e.row().x), (8 + i as u64, &rows[i].0[..]));
        }
        if complete > 2 {
            assert_eq!(seen[1].row().target, Target::Label("grün"));
            assert_eq!((seen[1].row().variance, seen[2].row().time), (Some(0.1), Some(1e9)));
            assert_eq!(seen[2].row().target, Target::Missing);
        }
        // The journal goes on after the last whole row.
        journal.append(&entry(&[1.0, 2.0, 3.0], 4.0)).unwrap();
        drop(journal);
        let mut again = Vec::new();
        Journal::open(&path, 3, Sync::Never, |e| {
            again.push(e.number);
            Ok(())
        })
        .unwrap();
        assert_eq!(again.len(), complete + 1);
    }
    // Zeros at the end are room that was never written.
    fs::write(&path, [&whole[..], &[0; 100]].concat()).unwrap();
    assert_eq!(Journal::open(&path, 3, Sync::Never, |_| Ok(())).unwrap().1.rows, 5);
    // Damage before the last row is an error, in the header too.
    for at in [3, 9, 13, 17, 30, ends[0] as usize + 20, ends[3] as usize + 5] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(&path, &bytes).unwrap();
        let error = Journal::open(&path, 3, Sync::Never, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("damaged") || error.contains("journal"), "byte {at}: {error}");
    }
    fs::write(&path, &whole).unwrap();
    let error = Journal::open(&path, 2, Sync::Never, |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("rows of 3 inputs, but the model has 2"), "{error}");
}

#[test]
fn a_durable_model_dropped_at_any_row_recovers_to_the_last_bit() {
    let scratch = Scratch::new("durable");
    let rows = rows(150, 10);
    let mut whole = stored(6);
    let expected: Vec<_> = rows.iter().map(|(x, y)| step(&mut whole, x, *y)).collect();
    let options =
        DurableOptions { sync: Sync::Every(Duration::from_hours(1)), compact_after: 40, keep_rejected: true };
    let mut done = 0;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
    while done < rows.len() {
        let (mut durable, recovered) = Durable::open(&scratch.0, options, || Ok(stored(6))).unwrap();
        assert_eq!(durable.stored().rows, done as u64);
        assert_eq!(recovered.from_snapshot + recovered.replayed, done as u64);
        assert_eq!((recovered.rejected, recovered.dropped_bytes), (0, 0));
        // A second process is kept out.
        let error = Durable::open(&scratch.0, options, || Ok(stored(6))).unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
        for _ in 0..rng.random_range(1..30).min(rows.len() - done) {
            let (x, y) = &rows[done];
            assert_eq!(durable.step(&entry(x, *y)).unwrap(), expected[done], "row {done}");
            done += 1;
        }
    }
    let (durable, _) = Durable::open(&scratch.0, options, || Ok(stored(6))).unwrap();
    assert!(persist::to_bytes(durable.stored()).unwrap() == persist::to_bytes(&whole).unwrap());
}

#[test]
fn a_crash_between_snapshot_and_new_journal_learns_nothing_twice() {
    let scratch = Scratch::new("between");
    let options = DurableOptions { sync: Sync::EveryRow, compact_after: 1000, keep_rejected: true };
    let rows = rows(80, 12);
    let (mut durable, _) = Durable::open(&scratch.0, options, || Ok(stored(6))).unwrap();
    rows[..50].iter().for_each(|(x, y)| {
        durable.step(&entry(x, *y)).unwrap();
    });
    let old_journal = fs::read(scratch.path("journal.log")).unwrap();
    durable.compact().unwrap();
    drop(durable);
    fs::write(scratch.path("journal.log"), old_journal).unwrap();
    let (mut durable, recovered) = Durable::open(&scratch.0, options, || Ok(stored(6))).unwrap();
    assert_eq!((recovered.from_snapshot, recovered.replayed), (50, 0));
    let mut whole = stored(6);
    rows.iter().for_each(|(x, y)| {
        step(&mut whole, x, *y);
    });
    rows[50..].iter().for_each(|(x, y)| {
        durable.step(&entry(x, *y)).unwrap();
    });
    assert!(persist::to_bytes(durable.stored()).unwrap() == persist::to_bytes(&whole).unwrap());
    drop(durable);
    // Without its snapshot a journal means nothing, and says so.
    fs::remove_file(scratch.path("model.wiski")).unwrap();
    let error = Durable::open(&scratch.0, options, || Ok(stored(6))).unwrap_err();
    assert!(matches!(error, Error::File { .. }) && error.to_string().contains("without the snapshot"));
}

/// What fails after a row is not the row's fault: it stays in the journal.
#[test]
fn a_failure_beside_the_rows_takes_none_out_of_the_journal() {
    let scratch = Scratch::new("failure");
    let options = DurableOptions { sync: Sync::EveryRow, compact_after: 1000, keep_rejected: false };
    let doomed = || {
        let settings = Settings {
            engine: Engine::Sparse,
            kernel: Some(Kernel::rbf(&[0.5]).unwrap()),
            inputs: InputScaling::Bounds(vec![(-2.0, 2.0)]),
            warm_up: Some(20),
            ..Settings::default()
        };
        let model = OnlineRegressor::new(1, settings).unwrap();
        let columns = Columns { inputs: vec!["a".into()], target: "y".into(), ..Columns::default() };
        Stored::new(columns, Model::Regressor(Box::new(model)))
    };
    let (mut durable, _) = Durable::open(&scratch.0, options, doomed).unwrap();
    let mut failures = 0;
    for (i, (x, y)) in rows(50, 13).iter().enumerate() {
        durable.step(&Row { x: &x[..1], target: Target::Value(*y), variance: None, time: None }).unwrap();
        failures += usize::from(matches!(durable.take_failure(), Some(Error::WarmUp { .. })));
        assert_eq!(durable.stored().model.count(), (i + 1) as f64);
    }
    assert!(failures > 1, "nothing failed");
    drop(durable);
    let (durable, recovered) = Durable::open(&scratch.0, options, doomed).unwrap();
    assert_eq!((recovered.replayed, recovered.rejected, durable.stored().model.count()), (50, 0, 50.0));
}

#[test]
fn no_flipped_bit_makes_later_rows_disappear() {
    let scratch = Scratch::new("flip");
    let path = scratch.path("journal.log");
    let mut journal = Journal::create(&path, 3, 0, Sync::Never).unwrap();
    let mut ends = vec![journal.bytes() as usize];
    for (x, y) in rows(6, 20) {
        journal.append(&entry(&x, y)).unwrap();
        ends.push(journal.bytes() as usize);
    }
    drop(journal);
    let whole = fs::read(&path).unwrap();
    // Every bit of every record but the last.
    for at in ends[0]..ends[5] {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            let opened = Journal::open(&path, 3, Sync::Never, |_| Ok(()));
            assert!(opened.is_err(), "byte {at}, bit {bit}: {:?}", opened.unwrap().1);
            assert!(fs::read(&path).unwrap() == bytes, "a rejected journal is left alone");
        }
    }
}

#[test]
fn a_snapshot_older_than_its_journal_is_rejected() {
    let scratch = Scratch::new("older");
    let options = DurableOptions { compact_after: 1000, ..DurableOptions::default() };
    let (mut durable, _) = Durable::open(&scratch.0, options, || Ok(stored(6))).unwrap();
    let rows = rows(60, 21);
    rows[..30].iter().for_each(|(x, y)| drop(durable.step(&entry(x, *y)).unwrap()));
    durable.compact().unwrap();
    let old = fs::read(scratch.path("model.wiski")).unwrap();
    rows[30..].iter().for_each(|(x, y)| drop(durable.step(&entry(x, *y)).unwrap()));
    durable.compact().unwrap();
    drop(durable);
    fs::write(scratch.path("model.wiski"), old).unwrap();
    let error = Durable::open(&scratch.0, options, || Ok(stored(6))).unwrap_err().to_string();
    assert!(error.contains("rows 31 to 60 are missing"), "{error}");
}

#[test]
fn rejected_rows_are_taken_back_or_kept_as_wanted() {
    for keep_rejected in [false, true] {
        let scratch = Scratch::new(if keep_rejected { "kept" } else { "taken-back" });
        let options = DurableOptions { keep_rejected, ..DurableOptions::default() };
        let (mut durable, _) = Durable::open(&scratch.0, options, || Ok(stored(6))).unwrap();
        let rows = rows(30, 22);
        rows.iter().for_each(|(x, y)| drop(durable.step(&entry(x, *y)).unwrap()));
        let bad = Row { target: Target::Label("no number"), ..entry(&[0.0; 3], 0.0) };
        assert!(durable.step(&bad).is_err());
        assert_eq!(durable.rows(), 30 + u64::from(keep_rejected));
        durable.step(&entry(&rows[0].0, rows[0].1)).unwrap();
        let expected = persist::to_bytes(durable.stored()).unwrap();
        drop(durable);
        fs::write(scratch.path(".model.wiski.1.2.tmp"), "half a snapshot").unwrap();
        let (durable, recovered) = Durable::open(&scratch.0, options, || Ok(stored(6))).unwrap();
        assert_eq!(
            (recovered.replayed, recovered.rejected),
            (31 + u64::from(keep_rejected), u64::from(keep_rejected))
        );
        assert!(persist::to_bytes(durable.stored()).unwrap() == expected);
        assert!(!scratch.path(".model.wiski.1.2.tmp").exists());
    }
}

#[cfg(unix)]
#[test]
fn links_permissions_and_devices_are_respected() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let scratch = Scratch::new("links");
    let (real, link) = (scratch.path("real.wiski"), scratch.path("link.wiski"));
    persist::save(&real, &stored(6)).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&real, &link).unwrap();
    persist::save(&link, &stored(6)).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o600);
    let error = persist::save(Path::new("/dev/null"), &stored(6)).unwrap_err().to_string();
    assert!(error.contains("/dev/null: is not a regular file"), "{error}");
}

/// Whoever handles an error can ask the operating system's own what kind it is.
#[test]
fn errors_of_the_operating_system_keep_their_source() {
    use std::error::Error as _;
    let error = persist::load::<OnlineRegressor>(Path::new("no/such/file.wiski")).unwrap_err();
    assert!(error.to_string().starts_with("no/such/file.wiski: "), "{error}");
    let Error::Io { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    let (mut cause, mut kind) = (error.source(), None);
    while let Some(error) = cause {
        kind = kind.or(error.downcast_ref().map(std::io::Error::kind));
        cause = error.source();
    }
    assert_eq!(kind, Some(std::io::ErrorKind::NotFound));
    assert_eq!(error, error.clone());
}
