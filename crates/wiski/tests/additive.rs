//! Sums of several grids: everything that holds for one grid holds for many, and what only many have.

mod common;

use common::*;
use proptest::prelude::*;
use rand::RngExt;
use rand::seq::SliceRandom;
use wiski::internals::evidence::Evidence;
use wiski::internals::grid::Lattice;
use wiski::internals::posterior::Workspace;
use wiski::model::{Prequential, Reads};
use wiski::{
    Axis, Column, Error, Features, Grid, Kernel, OffGrid, OnlineGp, OnlineRegressor, Settings, Stats, Wiski,
};

const SIGMA2: f64 = 0.05;

/// Grids of one, two and again one axis, on the given box.
fn grids(lo: f64, hi: f64, points: [usize; 3]) -> Vec<Grid> {
    let axis = |g: usize| Axis::covering(lo, hi, g).unwrap();
    let [a, b, c] = points;
    vec![
        Grid::new(vec![axis(a)]).unwrap(),
        Grid::new(vec![axis(b); 2]).unwrap(),
        Grid::new(vec![axis(c)]).unwrap(),
    ]
}

fn kernels() -> Vec<Kernel> {
    vec![
        Kernel::rbf(&[0.4]).unwrap(),
        Kernel::matern52(&[0.5, 0.7]).unwrap().scaled(0.6),
        Kernel::rbf(&[0.3]).unwrap().scaled(0.5) + Kernel::matern32(&[0.9]).unwrap(),
    ]
}

fn model_on(grids: Vec<Grid>, off_grid: OffGrid) -> Wiski {
    let builder = Wiski::builder().noise(SIGMA2).off_grid(off_grid);
    grids.into_iter().zip(kernels()).fold(builder, |b, (g, k)| b.grid(g).kernel(k)).build().unwrap()
}

fn model() -> Wiski {
    model_on(grids(0.0, 1.0, [12, 8, 10]), OffGrid::Error)
}

#[track_caller]
fn same(a: &mut Wiski, b: &mut Wiski, tolerance: f64) {
    for h in Data::random(5, 4, false, 1).rows() {
        let (p, q) = (a.predict(h).unwrap(), b.predict(h).unwrap());
        close(p.mean, q.mean, tolerance, "mean");
        close(p.variance, q.variance, tolerance, "variance");
    }
    close(a.log_evidence().unwrap(), b.log_evidence().unwrap(), tolerance, "evidence");
    assert!((a.count() - b.count()).abs() < 1e-9);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn order_shards_and_batches_do_not_matter(seed in 0u64..10_000, n in 1usize..120) {
        let data = Data::random(n, 4, true, seed);
        let triples: Vec<_> = data.triples().collect();
        let mut order: Vec<usize> = (0..n).collect();
        order.shuffle(&mut rng(seed));
        let (mut one, mut batch, mut shards) = (model(), model(), [model(), model()]);
        batch.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
        for (k, &i) in order.iter().enumerate() {
            let (h, y, d) = triples[i];
            one.observe_noisy(h, y, d).unwrap();
            shards[k % 2].observe_noisy(h, y, d).unwrap();
        }
        let [mut left, right] = shards;
        left.merge(&right).unwrap();
        same(&mut one, &mut batch, 1e-10);
        same(&mut left, &mut batch, 1e-10);
    }

    #[test]
    fn forgetting_and_decay_are_exact(seed in 0u64..10_000, extra in 1usize..20) {
        let data = Data::random(40 + extra, 4, true, seed);
        let (mut a, mut b) = (model(), model());
        for (i, (h, y, d)) in data.triples().enumerate() {
            a.observe_noisy(h, y, d).unwrap();
            if i < 40 {
                b.observe_noisy(h, y, d).unwrap();
            }
        }
        for (h, y, d) in data.triples().skip(40) {
            a.forget(h, y, d).unwrap();
        }
        // Removing divides by 1 − v/r, which for these data stays above 1e-3.
        same(&mut a, &mut b, 1e-9);
        // Decaying by λ is the same as learning with noise d/λ, up to the sum of the weights.
        a.decay(0.5).unwrap();
        let mut weak = model();
        for (h, y, d) in data.triples().take(40) {
            weak.observe_noisy(h, y, 2.0 * d).unwrap();
        }
        for h in Data::random(5, 4, false, 2).rows() {
            let (p, q) = (a.predict(h).unwrap(), weak.predict(h).unwrap());
            close(p.mean, q.mean, 1e-9, "decayed mean");
            close(p.variance, q.variance, 1e-9, "decayed variance");
        }
    }

    #[test]
    fn grids_extended_later_equal_grids_built_large(seed in 0u64..10_000) {
        let mut growing = model_on(grids(0.35, 0.65, [8, 6, 7]), OffGrid::Extend);
        let data = Data::random(50, 4, true, seed);
        for (h, y, d) in data.triples() {
            growing.observe_noisy(h, y, d).unwrap();
        }
        let large = growing.stats().lattice().grids().to_vec();
        prop_assert!(large.iter().zip(grids(0.35, 0.65, [8, 6, 7])).all(|(l, g)| l.len() > g.len()));
        let mut whole = model_on(large, OffGrid::Error);
        whole.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
        for h in data.rows().take(5) {
            let (p, q) = (growing.predict(h).unwrap(), whole.predict(h).unwrap());
            close(p.mean, q.mean, 1e-9, "mean");
            close(p.variance, q.variance, 1e-9, "variance");
        }
    }
}

fn learned() -> (Wiski, Data) {
    let (mut model, data) = (model(), Data::random(90, 4, true, 5));
    model.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
    (model, data)
}

#[test]
fn samples_have_the_mean_and_variance_of_the_posterior() {
    let (model, _) = learned();
    let (posterior, p) = (model.posterior().unwrap(), model.rank());
    let h = [0.3, 0.8, 0.1, 0.6];
    let want = model.predictor().unwrap().predict(&h).unwrap();
    let mean = posterior.sample(&vec![0.0; p]).unwrap().value(&h).unwrap();
    close(mean, want.mean, 1e-10, "mean");
    // The value is linear in ξ: the squares of the slopes add up to the variance.
    let slope = |i: usize| {
        let mut xi = vec![0.0; p];
        xi[i] = 1.0;
        posterior.sample(&xi).unwrap().value(&h).unwrap() - mean
    };
    close((0..p).map(|i| slope(i).powi(2)).sum(), want.variance, 1e-9, "variance");
}

#[test]
fn gradients_of_predictions_match_differences_for_every_block() {
    let (model, _) = learned();
    let (predictor, mut ws) = (model.predictor().unwrap(), Workspace::default());
    let h = [0.31, 0.77, 0.12, 0.58];
    let fast = predictor.predict_gradient(&h).unwrap();
    let slow = model.posterior().unwrap().predict_gradient(&h, &mut ws).unwrap();
    close(fast.prediction.mean, slow.prediction.mean, 1e-10, "mean");
    close(fast.prediction.variance, slow.prediction.variance, 1e-9, "variance");
    for k in 0..4 {
        close(fast.mean[k], slow.mean[k], 1e-9, "slope of the mean");
        close(fast.variance[k], slow.variance[k], 1e-8, "slope of the variance");
        let at = |step: f64| {
            let mut h = h;
            h[k] += step;
            predictor.predict(&h).unwrap()
        };
        // h² f⁽³⁾/6 with third derivatives near 10³, and eps/h.
        let numeric = (at(1e-5).mean - at(-1e-5).mean) / 2e-5;
        close(fast.mean[k], numeric, 1e-6, "difference of the mean");
        let numeric = (at(1e-5).variance - at(-1e-5).variance) / 2e-5;
        close(fast.variance[k], numeric, 1e-6, "difference of the variance");
    }
}

#[test]
fn effects_equal_the_dense_process_centred_over_the_data() {
    let (model, data) = learned();
    let lattice = model.stats().lattice().clone();
    let dense = DenseGp::new(&lattice, &kernels(), SIGMA2, &data);
    let precision: f64 = data.noise.iter().map(|d| d.recip()).sum();
    let mut center = vec![0.0; lattice.len()];
    for (h, _, d) in data.triples() {
        for (c, w) in center.iter_mut().zip(weights(&lattice, h)) {
            *c += w / d / precision;
        }
    }
    let (h, mut first) = ([0.3, 0.8, 0.1, 0.6], 0);
    let w = weights(&lattice, &h);
    let mut offset = 0;
    for (block, grid) in lattice.grids().iter().enumerate() {
        let own = offset..offset + grid.len();
        let difference: Vec<f64> =
            (0..w.len()).map(|i| if own.contains(&i) { w[i] - center[i] } else { 0.0 }).collect();
        let (mean, variance) = dense.predict(&[difference]);
        let effect = model.effect(block, &h[first..first + grid.dim()]).unwrap()[0];
        close(effect.mean, mean[0], 1e-8, "mean of an effect");
        close(effect.variance, variance[(0, 0)], 1e-8, "variance of an effect");
        offset = own.end;
        first += grid.dim();
    }
    let shares = model.shares();
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12 && shares.iter().all(|&s| s > 0.0));
    assert!(matches!(model.effect(3, &[0.5]), Err(Error::Config { .. })));
    assert!(matches!(model.effect(0, &[1.5]), Err(Error::OutsideGrid { .. })));
}

/// A regular axis with an exactly periodic kernel is the circle: compared with a process on g points whose
/// weights wrap around.
#[test]
fn a_periodic_axis_is_a_circle() {
    let (g, n) = (9, 40);
    let step = 2.0 / g as f64;
    let grid = Grid::new(vec![Axis::new(-1.0 - step, step, g + 3).unwrap()]).unwrap();
    let kernel = Kernel::periodic(&[0.8], &[2.0]).unwrap();
    let mut random = rng(7);
    let x: Vec<f64> = (0..n).map(|_| random.random_range(-1.0..1.0)).collect();
    let y: Vec<f64> = x.iter().map(|x| (std::f64::consts::PI * x).sin()).collect();
    let mut stats = Stats::new(grid.clone());
    stats.observe_batch(&x, &y, None).unwrap();
    let (evidence, posterior) = Evidence::new(&stats, std::slice::from_ref(&kernel), SIGMA2, 1e-14).unwrap();
    assert!(posterior.rank() <= g, "the wrapped points add no rank: {}", posterior.rank());

    let line = Lattice::from(grid);
    let wrapped = |x: f64| {
        let mut circle = vec![0.0; g];
        for (i, w) in weights(&line, &[x]).into_iter().enumerate() {
            circle[(i + g - 1) % g] += w;
        }
        circle
    };
    let rows: Vec<Vec<f64>> = x.iter().map(|&x| wrapped(x)).collect();
    let dense = DenseGp {
        w: faer::Mat::from_fn(n, g, |i, j| rows[i][j]),
        k: faer::Mat::from_fn(g, g, |i, j| kernel.covariance(&[step * (i as f64 - j as f64)])),
        noise: vec![SIGMA2; n],
        y,
    };
    close(evidence.value, dense.evidence(), 1e-9, "evidence");
    let (mean, variance) = dense.predict(&[wrapped(-0.999), wrapped(0.97)]);
    for (i, x) in [-0.999, 0.97].into_iter().enumerate() {
        let p = posterior.predictor().predict(&[x]).unwrap();
        close(p.mean, mean[i], 1e-9, "mean");
        close(p.variance, variance[(i, i)], 1e-9, "variance");
    }
}

/// Two groups of 0/1 levels and a numeric column of no use: levels are random effects, whose posterior mean is
/// known in closed form when everything else is.
#[test]
fn levels_and_hours_are_learned_as_what_they_are() {
    let columns = vec![
        Column::Numeric,
        Column::Categorical { levels: 5, ordered: false },
        Column::Periodic { period: 24.0 },
    ];
    let settings = Settings { features: Features::Auto, columns, warm_up: Some(300), ..Settings::default() };
    let mut model = OnlineRegressor::new(3, settings).unwrap();
    let levels = [3.0, -1.0, 0.5, 2.0, -2.0];
    let truth = |x: &[f64]| 0.5 * x[0] + levels[x[1] as usize] + (x[2] / 12.0 * std::f64::consts::PI).sin();
    let (mut random, mut figures) = (rng(3), Prequential::default());
    for i in 0..3000 {
        let hour = random.random_range(-48.0..48.0);
        let x = [random.random_range(-1.0..1.0), f64::from(random.random_range(0..5u8)), hour];
        let noise: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let p = model.step(&x, truth(&x) + 0.1 * noise).unwrap();
        if let Some(p) = p
            && i >= 2500
        {
            figures.record(&p, truth(&x) + 0.1 * noise);
        }
    }
    assert!(figures.rmse() < 0.105, "{}", figures.rmse());
    assert!((0.92..0.98).contains(&figures.coverage95()), "{}", figures.coverage95());
    // Midnight from both sides.
    let [late, early] = [23.9999, 24.0001].map(|hour| model.predict(&[0.0, 1.0, hour]).unwrap().mean);
    assert!((late - early).abs() < 1e-3, "{late} {early}");
    // Each block reads its own column, and its effect is what it should be.
    let blocks = model.blocks();
    let of = |column: usize| blocks.iter().position(|b| b.reads == [Reads::Column(column)]).unwrap();
    assert!(blocks[of(1)].share > blocks[of(2)].share && blocks[of(2)].share > blocks[of(0)].share);
    let effect = model.effect(of(1), &[0.0, 0.0, 0.0, 0.0, 4.0, 0.0]).unwrap();
    assert!((effect[0].mean - effect[1].mean - 5.0).abs() < 0.05 && effect[0].variance < 1e-3);
    // A level that does not exist is rejected by name.
    assert!(matches!(model.predict(&[0.0, 5.0, 0.0]), Err(Error::Config { field, .. }) if field == "x[1]"));
    assert!(matches!(model.predict(&[0.0, 0.5, 0.0]), Err(Error::Config { .. })));
}

/// y = f₀(x₀) + f₁(x₁) + x₂ x₃ + noise, with two columns of no use.
fn friendly(n: usize, seed: u64) -> Vec<([f64; 6], f64)> {
    let mut random = rng(seed);
    let row = |_| {
        let x: [f64; 6] = std::array::from_fn(|_| random.random_range(-1.0..1.0));
        let noise: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        (x, (3.0 * x[0]).sin() + x[1] * x[1] + 2.0 * x[2] * x[3] + 0.2 * noise)
    };
    (0..n).map(row).collect()
}

fn auto(memory: usize) -> Settings {
    Settings {
        features: Features::Additive { directions: None },
        grid: vec![16],
        memory,
        warm_up: Some(300),
        ..Settings::default()
    }
}

#[test]
fn an_additive_model_finds_interactions_and_leaves_out_what_is_of_no_use() {
    let mut model = OnlineRegressor::new(6, auto(2000)).unwrap();
    let mut figures = Prequential::default();
    for (i, (x, y)) in friendly(4000, 1).iter().enumerate() {
        let p = model.step(x, *y).unwrap();
        assert_eq!(model.is_searching(), (299..1999).contains(&i), "row {i}");
        if let Some(p) = p
            && i >= 3000
        {
            figures.record(&p, *y);
        }
    }
    // The noise has deviation 0.2; without the interaction 0.7 would be left.
    assert!(figures.rmse() < 0.215, "{}", figures.rmse());
    assert!((0.93..0.97).contains(&figures.coverage95()), "{}", figures.coverage95());
    assert!((model.blocks().iter().map(|b| b.share).sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(model.blocks().len() < 22, "{}", model.blocks().len());
    // A snapshot says the same.
    let snapshot = model.snapshot().unwrap();
    for (x, _) in friendly(20, 2) {
        let (p, q) = (model.predict(&x).unwrap(), snapshot.predict(&x).unwrap());
        close(p.mean, q.mean, 1e-8, "snapshot mean");
        close(p.variance, q.variance, 1e-6, "snapshot variance");
    }
}

/// Of a function with next to no noise, what explains a hundred-thousandth is ten times what is left.
#[test]
fn small_blocks_stay_where_the_noise_is_smaller() {
    let row = |i: u32| {
        let at = |k: f64| 2.0 * (k * f64::from(i)).fract() - 1.0;
        let x = [at(0.618_034), at(0.414_214), at(0.732_051)];
        (x, 4.0 * x[0] + 2.0 * (2.0 * x[2]).sin() + 0.03 * (3.0 * x[1]).sin())
    };
    let mut model = OnlineRegressor::new(3, auto(600)).unwrap();
    (0..900).for_each(|i| {
        let (x, y) = row(i);
        model.observe(&x, y).unwrap();
    });
    assert!(!model.is_searching(), "all searches are over");
    let squares = (2000..2200).map(row).map(|(x, y)| (model.predict_ahead(&x).unwrap().mean - y).powi(2));
    let rmse = (squares.sum::<f64>() / 200.0).sqrt();
    // Without the second column .03 sin(3b) is left, whose deviation is .022.
    assert!(rmse < 0.005, "{rmse}");
}

#[test]
fn young_models_reject_what_needs_features_that_stand() {
    let mut model = OnlineRegressor::new(6, auto(2000)).unwrap();
    let rows = friendly(700, 3);
    for (x, y) in &rows[..400] {
        model.observe(x, *y).unwrap();
    }
    assert!(model.is_searching());
    assert!(matches!(model.forget(&rows[0].0, rows[0].1), Err(Error::Unsupported { .. })));
    assert!(matches!(model.shard(), Err(Error::Unsupported { .. })));
    model.freeze_features().unwrap();
    assert!(!model.is_searching());
    let (mut left, mut right) = (model.shard().unwrap(), model.shard().unwrap());
    let mut whole = model.shard().unwrap();
    // Refits would take place at different rows.
    for (i, (x, y)) in rows[400..].iter().enumerate() {
        [&mut left, &mut right][i % 2].observe(x, *y).unwrap();
        whole.observe(x, *y).unwrap();
    }
    left.merge(&right).unwrap();
    assert_eq!(left.count(), whole.count());
    let kernels = whole.model().unwrap().kernels().len();
    assert_eq!(left.model().unwrap().kernels().len(), kernels);
}

#[test]
fn relearning_starts_from_all_rows_exactly() {
    // The statistics after relearning hold every row, whatever was learned before.
    let mut model =
        OnlineRegressor::new(6, Settings { schedule: wiski::Schedule::Off, ..auto(1200) }).unwrap();
    for (x, y) in &friendly(1200, 4) {
        model.observe(x, *y).unwrap();
    }
    assert!(!model.is_searching());
    assert_eq!(model.count(), 1200.0);
    let schedule = wiski::Schedule::Off;
    let mut direct =
        OnlineRegressor::new(6, Settings { schedule, warm_up: Some(1200), ..auto(1200) }).unwrap();
    for (x, y) in &friendly(1200, 4) {
        direct.observe(x, *y).unwrap();
    }
    for (x, _) in &friendly(10, 5) {
        let (p, q) = (model.predict(x).unwrap(), direct.predict(x).unwrap());
        assert_eq!((p.mean, p.variance), (q.mean, q.variance), "the same rows lead to the same model");
    }
}

#[test]
fn the_policy_follows_the_number_of_columns() {
    let resolved = |d: usize, warm_up: Option<usize>| {
        let settings = Settings { features: Features::Auto, warm_up, ..Settings::default() };
        OnlineRegressor::new(d, settings).unwrap().settings().features.clone()
    };
    let additive = Features::Points { count: None };
    assert_eq!(resolved(1, None), Features::Identity);
    assert_eq!(resolved(2, None), Features::Identity);
    assert_eq!(resolved(3, None), additive);
    assert_eq!(resolved(3, Some(2000)), Features::Identity);
    assert_eq!(resolved(12, Some(2000)), additive);
    let settings = |columns: Vec<Column>, features| Settings { columns, features, ..Settings::default() };
    let hour = Column::Periodic { period: 24.0 };
    assert!(OnlineRegressor::new(1, settings(vec![hour], Features::Identity)).is_err());
    assert!(OnlineRegressor::new(2, settings(vec![hour], Features::Auto)).is_err());
    assert!(
        OnlineRegressor::new(1, settings(vec![Column::Periodic { period: 0.0 }], Features::Auto)).is_err()
    );
    let level = Column::Categorical { levels: 1, ordered: false };
    assert!(OnlineRegressor::new(1, settings(vec![level], Features::Auto)).is_err());
    assert!(OnlineRegressor::new(1, settings(vec![hour], Features::Auto)).is_ok());
    let kernel = Some(Kernel::rbf(&[1.0]).unwrap());
    assert!(
        OnlineRegressor::new(5, Settings { kernel, features: Features::Auto, ..Settings::default() })
            .is_err()
    );
}

/// What three columns do together.
#[test]
fn points_stand_beside_the_grids_where_they_help() {
    let rows = |n: usize, seed: u64| -> Vec<([f64; 4], f64)> {
        let mut rng = rng(seed);
        let row = |_| {
            let x: [f64; 4] = std::array::from_fn(|_| rng.random_range(-1.0..1.0));
            let noise: f64 = rng.sample(rand_distr::StandardNormal);
            (x, 2.0 * (3.0 * x[0] * x[1]).sin() * x[2] + 0.5 * x[3] + 0.05 * noise)
        };
        (0..n).map(row).collect()
    };
    let fitted = |features: Features| {
        let settings = Settings { features, warm_up: Some(600), ..Settings::default() };
        let mut model = OnlineRegressor::new(4, settings).unwrap();
        for (x, y) in rows(800, 1) {
            model.observe(&x, y).unwrap();
        }
        assert_eq!(model.take_failure(), None);
        // Few rows are searched for points where the stream ends.
        assert_eq!(model.blocks().last().map(|block| block.reads.len() < 4), Some(true));
        model.finish_search().unwrap();
        model
    };
    let rmse = |model: &OnlineRegressor| {
        let test = rows(300, 2);
        let squares = test.iter().map(|(x, y)| (model.predict(x).unwrap().mean - y).powi(2));
        (squares.sum::<f64>() / test.len() as f64).sqrt()
    };
    let grids = fitted(Features::Additive { directions: None });
    let mut points = fitted(Features::Points { count: Some(150) });
    let block = points.blocks().pop().unwrap();
    assert_eq!(block.reads.len(), 4, "the last block reads every column");
    assert!(block.is_points && points.blocks().iter().filter(|block| block.is_points).count() == 1);
    // The fourth column has a grid of its own and nothing to do with the others.
    let relevances = points.relevances().unwrap();
    assert!((relevances.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{relevances:?}");
    assert!(relevances[..3].iter().all(|&r| r > 2.0 * relevances[3]), "{relevances:?}");
    assert_eq!(grids.relevances(), None);
    let (a, b) = (rmse(&grids), rmse(&points));
    // The noise has deviation 0.05. Learned directions follow this function, too: points must not be worse.
    assert!(b < 0.1 && b < 1.05 * a, "grids {a}, with points {b}");
    // Nothing has come since the last search.
    points.finish_search().unwrap();
    assert_eq!(rmse(&points), b);
    // Frozen, rows are un-learned and shards merged as those of grids are.
    points.freeze_features().unwrap();
    let x = [0.3, -0.2, 0.7, 0.1];
    let before = points.predict(&x).unwrap();
    points.observe(&x, 3.0).unwrap();
    assert!((points.predict(&x).unwrap().mean - before.mean).abs() > 1e-3);
    points.forget(&x, 3.0).unwrap();
    let after = points.predict(&x).unwrap();
    close(after.mean, before.mean, 1e-8, "mean");
    close(after.variance, before.variance, 1e-8, "variance");
    let saved = wiski::persist::to_bytes(&points).unwrap();
    let again: OnlineRegressor = wiski::persist::from_bytes(&saved).unwrap();
    assert_eq!(again.predict(&x).unwrap(), after);
}

#[test]
fn two_classes_of_many_columns() {
    let settings = Settings { features: Features::Auto, warm_up: Some(400), ..Settings::default() };
    let classes = wiski::Classes::declared(["in", "out"]);
    let mut model = wiski::OnlineClassifier::new(5, classes, settings).unwrap();
    let mut random = rng(9);
    let (mut hits, mut seen) = (0, 0);
    for i in 0..1500 {
        let x: [f64; 5] = std::array::from_fn(|_| random.random_range(-1.0..1.0));
        let label = if x[0] * x[0] + x[1] * x[1] < 0.6 { "in" } else { "out" };
        if i >= 1000 {
            seen += 1;
            hits += i32::from(model.predict(&x).unwrap().label == label);
        }
        model.observe(&x, label).unwrap();
    }
    assert!(f64::from(hits) > 0.95 * f64::from(seen), "{hits} of {seen}");
}

/// Rows of four columns with a function of all of them.
fn four(n: usize, seed: u64) -> Vec<([f64; 4], f64)> {
    let mut random = rng(seed);
    let mut row = || -> [f64; 4] { std::array::from_fn(|_| random.random_range(-1.0..1.0)) };
    (0..n).map(|_| row()).map(|x| (x, (2.0 * x[0]).sin() + x[1] * x[2] + 0.5 * (x[0] * x[3]).cos())).collect()
}

/// A model that is frozen and learns all rows is the sum of itself and its shards, at the same hyperparameters.
#[test]
fn shards_of_a_frozen_model_merge_to_the_model_that_learned_all_rows() {
    for features in [Features::Additive { directions: None }, Features::Points { count: Some(64) }] {
        let settings =
            Settings { features, warm_up: Some(300), schedule: wiski::Schedule::Off, ..Settings::default() };
        let mut base = OnlineRegressor::new(4, settings).unwrap();
        let rows = four(900, 21);
        for (x, y) in &rows[..450] {
            base.observe(x, *y).unwrap();
        }
        base.freeze_features().unwrap();
        let mut shards = [base.shard().unwrap(), base.shard().unwrap()];
        let mut whole = base.clone();
        for (i, (x, y)) in rows[450..].iter().enumerate() {
            // Some rows lie where no row of the base was, so that grids grow.
            let x = x.map(|v| if i % 40 == 0 { 1.5 * v } else { v });
            whole.observe(&x, *y).unwrap();
            shards[i % 2].observe(&x, *y).unwrap();
        }
        // Through files, as from other machines; in either order.
        let shards = shards.map(|shard| wiski::persist::to_bytes(&shard).unwrap());
        for order in [[0, 1], [1, 0]] {
            let mut merged = base.clone();
            for k in order {
                merged.merge(&wiski::persist::from_bytes(&shards[k]).unwrap()).unwrap();
            }
            assert_eq!(merged.count(), whole.count());
            for (x, _) in four(50, 22) {
                let (p, q) = (merged.predict(&x).unwrap(), whole.predict(&x).unwrap());
                close(p.mean, q.mean, 1e-9, "mean");
                close(p.variance, q.variance, 1e-9, "variance");
            }
        }
    }
}

#[test]
fn shards_of_a_frozen_classifier_merge_to_the_one_that_learned_all_rows() {
    let settings = Settings { warm_up: Some(300), schedule: wiski::Schedule::Off, ..Settings::default() };
    let classes = wiski::Classes::declared(["low", "middle", "high"]);
    let mut base = wiski::OnlineClassifier::new(4, classes, settings).unwrap();
    let label = |y: f64| ["low", "middle", "high"][usize::from(y > 0.2) + usize::from(y > 0.8)];
    let rows = four(900, 23);
    for (x, y) in &rows[..450] {
        base.observe(x, label(*y)).unwrap();
    }
    base.freeze_features().unwrap();
    let (mut shards, mut whole) = ([base.shard().unwrap(), base.shard().unwrap()], base.clone());
    for (i, (x, y)) in rows[450..].iter().enumerate() {
        whole.observe(x, label(*y)).unwrap();
        shards[i % 2].observe(x, label(*y)).unwrap();
    }
    let mut merged = base.clone();
    shards.iter().for_each(|shard| merged.merge(shard).unwrap());
    assert_eq!(merged.count(), whole.count());
    // What the last rows say about the next one is no part of what is merged.
    merged.drop_corrections();
    whole.drop_corrections();
    for (x, _) in four(50, 24) {
        let (p, q) = (merged.predict(&x).unwrap(), whole.predict(&x).unwrap());
        for c in 0..3 {
            close(p.means[c], q.means[c], 1e-9, "mean");
            close(p.variances[c], q.variances[c], 1e-9, "variance");
            close(p.probabilities[c], q.probabilities[c], 1e-9, "probability");
        }
    }
}
