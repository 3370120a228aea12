//! Statistics by partition: any partition, in any order, through bytes, is one pass.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::model::{HalfLife, NoiseModel};
use wiski::persist::{self, Columns, Model, Stored};
use wiski::shard::{Shape, Shard};
use wiski::{Classes, Error, Features, Horizon, OffGrid, OnlineClassifier, OnlineRegressor, Settings};
use xxhash_rust::xxh3::xxh3_64;

type Rng = Xoshiro256PlusPlus;

fn columns(d: usize) -> Columns {
    Columns { inputs: (0..d).map(|k| format!("x{k}")).collect(), target: "y".into(), ..Columns::default() }
}

/// Rows with a few that lie off the range of the others, and one that no grid follows.
fn rows(n: usize, d: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let mut rng = Rng::seed_from_u64(seed);
    let mut x: Vec<f64> = (0..n * d).map(|_| rng.random_range(0.0..10.0)).collect();
    let y = x
        .chunks_exact(d)
        .map(|r| 20.0 + 3.0 * r[0].sin() + 0.3 * r[d - 1] * r[d / 2] + rng.random_range(-0.5..0.5))
        .collect();
    if n > 1000 {
        (x[17 * d], x[170 * d], x[290 * d + d - 1], x[400 * d]) = (11.5, -3.0, 13.0, 1e9);
    }
    (x, y)
}

fn shape(d: usize, settings: Settings) -> Shape {
    let (x, y) = rows(500, d, 3);
    Shape::learn(columns(d), &x, &y, None, settings).unwrap()
}

fn gathered(shape: &Shape, x: &[f64], y: &[f64]) -> Shard {
    let mut shard = Shard::new(shape);
    shard.observe_batch(x, y, None).unwrap();
    shard
}

fn regressor(stored: &Stored) -> &OnlineRegressor {
    let Model::Regressor(model) = &stored.model else { panic!("a model of numbers") };
    model
}

/// Kernels and noise in the units of the data, and means and variances at some rows.
fn said(stored: &Stored) -> Vec<f64> {
    let model = regressor(stored);
    let process = model.model().unwrap();
    let mut all: Vec<f64> = process.kernels().iter().flat_map(wiski::Kernel::parameters).collect();
    all.push(process.noise());
    let (x, _) = rows(50, model.input_dim(), 9);
    for x in x.chunks_exact(model.input_dim()) {
        let p = model.predict(x).unwrap();
        all.extend([p.mean, p.variance, p.noise]);
    }
    all
}

/// The largest difference, relative to the size of the numbers.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / a.abs().max(b.abs()).max(1e-300)).fold(0.0, f64::max)
}

/// The rows dealt to so many partitions at random, gathered, sent as bytes and added up as a random tree.
fn by_partition(shape: &Shape, x: &[f64], y: &[f64], partitions: usize, rng: &mut Rng) -> Shard {
    let d = shape.input_dim();
    let mut parts = vec![(Vec::new(), Vec::new()); partitions];
    for (x, &y) in x.chunks_exact(d).zip(y) {
        let (px, py) = &mut parts[rng.random_range(0..partitions)];
        px.extend_from_slice(x);
        py.push(y);
    }
    let mut sent: Vec<Vec<u8>> =
        parts.iter().map(|(x, y)| gathered(shape, x, y).to_bytes().unwrap()).collect();
    while sent.len() > 1 {
        let (a, b) = (
            sent.swap_remove(rng.random_range(0..sent.len())),
            sent.swap_remove(rng.random_range(0..sent.len())),
        );
        let mut sum = Shard::from_bytes(&a).unwrap();
        sum.merge(&Shard::from_bytes_of(&b, shape).unwrap()).unwrap();
        sent.push(sum.to_bytes().unwrap());
    }
    Shard::from_bytes(&sent[0]).unwrap()
}

#[test]
fn any_partition_in_any_order_is_one_pass() {
    let grid = Settings { features: Features::Identity, grid: vec![20], ..Settings::default() };
    let points = Settings { features: Features::Points { count: Some(24) }, ..Settings::default() };
    let projected = Settings { features: Features::Project { outputs: 2 }, ..Settings::default() };
    let cases = [(1, Settings::default()), (2, grid), (4, Settings::default()), (4, points), (5, projected)];
    for (d, settings) in cases {
        let name = format!("{d} inputs, {:?}", settings.features);
        let shape = shape(d, settings);
        let (x, y) = rows(3000, d, 4);
        let one = gathered(&shape, &x, &y);
        assert_eq!(one.count() as u64 + one.ignored(), 3000, "{name}");
        let expected = said(&one.fit().unwrap());
        let mut rng = Rng::seed_from_u64(5);
        for partitions in [1, 2, 7, 64] {
            let sum = by_partition(&shape, &x, &y, partitions, &mut rng);
            assert_eq!((sum.count(), sum.ignored()), (one.count(), one.ignored()), "{name}");
            assert!(sum.stats() == one.stats(), "{name}, {partitions} partitions");
            // Equal sums, so equal hyperparameters and predictions; once is enough for those that take long.
            if partitions == 7 || d < 3 {
                let off = apart(&said(&sum.fit().unwrap()), &expected);
                assert!(off == 0.0, "{name}, {partitions} partitions: {off:e}");
            }
        }
    }
}

#[test]
fn a_fit_from_sums_is_the_refit_of_the_model_that_learned_the_rows() {
    for (d, grid) in [(1, vec![24]), (2, vec![16])] {
        let settings = Settings { features: Features::Identity, grid, ..Settings::default() };
        let (sample, targets) = rows(500, d, 3);
        let mut model = OnlineRegressor::new(d, settings).unwrap();
        model.observe_batch(&sample, &targets).unwrap();
        model.finish_search().unwrap();
        model.freeze_features().unwrap();
        let stored = Stored::new(columns(d), Model::Regressor(Box::new(model))).unwrap();
        let shape = Shape::of(&stored).unwrap();
        let (x, y) = rows(900, d, 8);
        // Row by row: conditioning instead of sums. The grids of both cover all rows.
        let mut slow = regressor(&stored).shard().unwrap().conditioned(&x, &y, None).unwrap();
        slow.refit().unwrap();
        let slow = Stored::new(columns(d), Model::Regressor(Box::new(slow))).unwrap();
        let off = apart(&said(&gathered(&shape, &x, &y).fit().unwrap()), &said(&slow));
        // Both end where a search for hyperparameters stops, which carries 10⁻¹² in the sums to some digits more.
        assert!(off < 1e-6, "{d} inputs: {off:e}");
    }
}

#[test]
fn a_fitted_model_is_a_model_like_any_other() {
    let shape = shape(2, Settings::default());
    let (x, y) = rows(3000, 2, 4);
    let fitted = gathered(&shape, &x, &y).fit().unwrap();
    assert_eq!(fitted.rows, 3000);
    assert_eq!(fitted.columns, columns(2));
    let mut copy: Stored = persist::from_bytes(&persist::to_bytes(&fitted).unwrap()).unwrap();
    assert_eq!(apart(&said(&copy), &said(&fitted)), 0.0);
    let Model::Regressor(model) = &mut copy.model else { panic!() };
    let interval = model.predict_interval_ahead(&[5.0, 5.0], 0.95).unwrap();
    assert!(interval.contains(model.predict(&[5.0, 5.0]).unwrap().mean));
    let said = model.step(&[5.0, 5.0], 25.0).unwrap().unwrap();
    assert!(model.interval(&said, 0.9, Horizon::Last).is_ok() && model.count() + 1.0 > 3000.0);
}

#[test]
fn sliding_windows_do_not_drift() {
    let shape = shape(2, Settings { grid: vec![12], ..Settings::default() });
    let (n, window, step) = (30_000, 2000, 500);
    let (mut x, y) = rows(n, 2, 6);
    x.iter_mut().for_each(|x| *x = x.clamp(0.0, 10.0));
    // The last window has an outlier in it, too, and one row that no grid follows.
    (x[2 * (n - 10)], x[2 * (n - 20)]) = (12.0, 1e9);
    let part = |from: usize, to: usize| (&x[2 * from..2 * to], &y[from..to]);
    let (mut rows, mut shards) = (Shard::new(&shape), Shard::new(&shape));
    for from in (0..n).step_by(step) {
        let (nx, ny) = part(from, from + step);
        rows.observe_batch(nx, ny, None).unwrap();
        shards.merge(&gathered(&shape, nx, ny)).unwrap();
        if from >= window {
            let (ox, oy) = part(from - window, from - window + step);
            rows.forget_batch(ox, oy, None).unwrap();
            shards.unmerge(&gathered(&shape, ox, oy)).unwrap();
        }
    }
    let (fx, fy) = part(n - window, n);
    let fresh = gathered(&shape, fx, fy);
    for sliding in [&rows, &shards] {
        assert_eq!((sliding.count(), sliding.ignored()), (fresh.count(), fresh.ignored()));
        // To the last bit: grids of both have grown to the outlier in the last window.
        assert!(sliding.stats() == fresh.stats());
        assert_eq!(apart(&said(&sliding.fit().unwrap()), &said(&fresh.fit().unwrap())), 0.0);
    }
    // Without rows nothing is left, to the last bit.
    rows.forget_batch(fx, fy, None).unwrap();
    assert!(rows.stats().b().iter().all(|b| b.to_bits() == 0) && rows.count() == 0.0);
    assert!(matches!(rows.forget_batch(fx, fy, None), Err(Error::Unsupported { .. })));
    assert!(matches!(rows.fit(), Err(Error::Unsupported { .. })));
    let before = shards.to_bytes().unwrap();
    assert!(shards.unmerge(&gathered(&shape, &x, &y)).is_err(), "more rows than there are");
    assert_eq!(shards.to_bytes().unwrap(), before);
}

#[test]
fn bytes_are_exact_and_zeros_are_not_sent() {
    for (d, settings) in [
        (2, Settings::default()),
        (4, Settings { features: Features::Points { count: Some(24) }, ..Settings::default() }),
    ] {
        let shape = shape(d, settings);
        let (x, y) = rows(2000, d, 4);
        let full = gathered(&shape, &x, &y);
        let bytes = full.to_bytes().unwrap();
        let copy = Shard::from_bytes(&bytes).unwrap();
        assert!(copy.stats() == full.stats());
        assert_eq!(copy.shape().id(), shape.id());
        assert_eq!(copy.to_bytes().unwrap(), bytes);
        assert_eq!(Shard::from_bytes_of(&bytes, &shape).unwrap().to_bytes().unwrap(), bytes);
        let shape_bytes = shape.to_bytes().len();
        let empty = Shard::new(&shape).to_bytes().unwrap().len() - shape_bytes;
        let one = gathered(&shape, &x[..d], &y[..1]).to_bytes().unwrap().len() - shape_bytes;
        let full = bytes.len() - shape_bytes;
        assert!(empty < full / 50 && one < full, "{empty} {one} {full}");
    }
}

#[test]
fn shapes_come_back_as_they_went() {
    let shape = shape(3, Settings::default());
    let copy = Shape::from_bytes(shape.to_bytes()).unwrap();
    assert_eq!((copy.id(), copy.to_bytes()), (shape.id(), shape.to_bytes()));
    let (x, y) = rows(300, 3, 4);
    let mut sum = gathered(&shape, &x, &y);
    sum.merge(&gathered(&copy, &x, &y)).unwrap();
    // A model's bytes are as good as its shape's.
    let model = sum.fit().unwrap();
    let of_model = Shape::from_bytes(&persist::to_bytes(&model).unwrap()).unwrap();
    assert_eq!(of_model.id(), Shape::of(&model).unwrap().id());
    assert!(matches!(sum.merge(&Shard::new(&of_model)), Err(Error::Unsupported { .. })), "other scales");
}

#[test]
fn damaged_bytes_are_rejected() {
    let shape = shape(1, Settings::default());
    let (x, y) = rows(300, 1, 4);
    let bytes = gathered(&shape, &x, &y).to_bytes().unwrap();
    let rejected = |bytes: &[u8]| matches!(Shard::from_bytes(bytes), Err(Error::File { .. }));
    for length in 0..bytes.len() {
        assert!(rejected(&bytes[..length]), "cut off at {length}");
    }
    assert!(rejected(&[bytes.as_slice(), &[0]].concat()));
    let mut rng = Rng::seed_from_u64(1);
    for _ in 0..2000 {
        let mut flipped = bytes.clone();
        let at = rng.random_range(0..bytes.len());
        // Four bytes of the header mean nothing yet.
        if !(12..16).contains(&at) {
            flipped[at] ^= 1 << rng.random_range(0..8);
            assert!(rejected(&flipped), "a bit of byte {at}");
        }
    }
    // Right checksums around anything: an error or sums that are finite, never a panic.
    for _ in 0..2000 {
        let mut hostile = bytes.clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(32..hostile.len());
            hostile[at] = rng.random_range(0..=255);
        }
        let checksum = xxh3_64(&hostile[32..]).to_le_bytes();
        hostile[24..32].copy_from_slice(&checksum);
        if let Ok(shard) = Shard::from_bytes(&hostile) {
            assert!(shard.stats().b().iter().all(|b| b.is_finite()));
        }
    }
}

#[test]
fn bad_rows_are_rejected_by_name_and_nothing_is_learned() {
    let shape = shape(2, Settings::default());
    let (x, y) = rows(300, 2, 4);
    let mut shard = gathered(&shape, &x, &y);
    let before = shard.to_bytes().unwrap();
    let mut bad = x.clone();
    bad[41] = f64::INFINITY;
    let error = shard.observe_batch(&bad, &y, None);
    assert!(matches!(&error, Err(Error::NotFinite { field, row: 20, .. }) if field == "x[1]"), "{error:?}");
    let mut bad = y.clone();
    bad[7] = f64::NAN;
    let error = shard.observe_batch(&x, &bad, None);
    assert!(matches!(&error, Err(Error::NotFinite { field, row: 7, .. }) if field == "y"), "{error:?}");
    bad[7] = 1e200;
    assert!(matches!(shard.observe_batch(&x, &bad, None), Err(Error::NotFinite { row: 7, .. })));
    assert!(matches!(shard.observe_batch(&x[1..], &y, None), Err(Error::WrongLength { .. })));
    assert!(shard.observe_batch(&x, &y, Some(&y)).is_err(), "its noise is learned");
    assert_eq!(shard.to_bytes().unwrap(), before);
    shard.observe_batch(&[], &[], None).unwrap();
    assert_eq!(shard.to_bytes().unwrap(), before);
}

#[test]
fn policies_off_the_grid_hold() {
    let learned = |off_grid| shape(1, Settings { off_grid, ..Settings::default() });
    let mut prior = Shard::new(&learned(OffGrid::Prior));
    prior.observe_batch(&[5.0, 11.0, -4.0], &[20.0; 3], None).unwrap();
    assert_eq!((prior.count(), prior.ignored()), (1.0, 2));
    prior.forget_batch(&[-4.0, 5.0], &[20.0; 2], None).unwrap();
    assert_eq!((prior.count(), prior.ignored()), (0.0, 1));
    assert!(prior.forget_batch(&[-4.0, 12.0], &[20.0; 2], None).is_err());
    let mut strict = Shard::new(&learned(OffGrid::Error));
    assert!(matches!(
        strict.observe_batch(&[5.0, 11.0], &[20.0; 2], None),
        Err(Error::OutsideGrid { row: 1, .. })
    ));
    assert_eq!(strict.count(), 0.0);
}

#[test]
fn known_noise_goes_with_the_rows() {
    let (x, y) = rows(400, 1, 4);
    let noise: Vec<f64> = (0..400).map(|i| 0.1 + 0.01 * f64::from(i % 7)).collect();
    let settings = Settings { noise: NoiseModel::Known, ..Settings::default() };
    let shape = Shape::learn(columns(1), &x[..200], &y[..200], Some(&noise[..200]), settings).unwrap();
    assert!(shape.knows_noise());
    let mut one = Shard::new(&shape);
    one.observe_batch(&x, &y, Some(&noise)).unwrap();
    let mut two = Shard::new(&shape);
    two.observe_batch(&x[150..], &y[150..], Some(&noise[150..])).unwrap();
    let mut first = Shard::new(&shape);
    first.observe_batch(&x[..150], &y[..150], Some(&noise[..150])).unwrap();
    two.merge(&first).unwrap();
    assert_eq!(apart(&said(&one.fit().unwrap()), &said(&two.fit().unwrap())), 0.0);
    assert!(one.observe_batch(&x, &y, None).is_err());
    assert!(one.observe_batch(&x[..1], &y[..1], Some(&[0.0])).is_err());
    assert!(one.observe_batch(&x[..1], &y[..1], Some(&[1e-30])).is_err());
}

#[test]
fn what_has_no_shape_says_so() {
    let (x, y) = rows(300, 1, 4);
    let stored = |model: OnlineRegressor| Stored::new(columns(1), Model::Regressor(Box::new(model))).unwrap();
    let young = OnlineRegressor::new(1, Settings::default()).unwrap();
    assert!(matches!(Shape::of(&stored(young)), Err(Error::NotReady { .. })));
    let fading = Settings { half_life: Some(HalfLife::Rows(100.0)), ..Settings::default() };
    let mut model = OnlineRegressor::new(1, fading).unwrap();
    model.observe_batch(&x, &y).unwrap();
    model.finish_search().unwrap();
    model.freeze_features().unwrap();
    assert!(matches!(Shape::of(&stored(model)), Err(Error::Unsupported { .. })));
    let classes = OnlineClassifier::new(1, Classes::discovered(), Settings::default()).unwrap();
    let stored = Stored::new(columns(1), Model::Classifier(Box::new(classes))).unwrap();
    assert!(matches!(Shape::of(&stored), Err(Error::Unsupported { .. })));
    assert!(Shape::from_bytes(b"no shape").is_err());
}
