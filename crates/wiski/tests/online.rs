//! Online equals batch: orders, shards, un-learning, growth, long recursions.

mod common;

use common::*;
use proptest::prelude::*;
use rand::RngExt;
use rand::seq::SliceRandom;
use wiski::internals::grid::Lattice;
use wiski::internals::posterior::{Posterior, Workspace};
use wiski::internals::prior::Prior;
use wiski::{Axis, Engine, Error, Grid, Kernel, OffGrid, OnlineGp, Outcome, Stats, Wiski};

const SIGMA2: f64 = 0.05;

fn kernel() -> Kernel {
    Kernel::rbf(&[0.4, 0.5]).unwrap()
}

fn model(grid: Grid) -> Wiski {
    let kernel = if grid.dim() == 2 { kernel() } else { Kernel::matern52(&vec![0.4; grid.dim()]).unwrap() };
    Wiski::builder().grid(grid).kernel(kernel).noise(SIGMA2).build().unwrap()
}

/// Means, variances and evidence agree.
#[track_caller]
fn same(a: &mut Wiski, b: &mut Wiski, queries: &Data, tolerance: f64) {
    for h in queries.rows() {
        let (p, q) = (a.predict(h).unwrap(), b.predict(h).unwrap());
        close(p.mean, q.mean, tolerance, "mean");
        close(p.variance, q.variance, tolerance, "variance");
    }
    close(a.log_evidence().unwrap(), b.log_evidence().unwrap(), tolerance, "evidence");
    assert!((a.count() - b.count()).abs() < 1e-9);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_order_of_the_data_gives_the_same_posterior(seed in 0u64..10_000, n in 1usize..80) {
        let data = Data::random(n, 2, true, seed);
        let mut order: Vec<usize> = (0..n).collect();
        order.shuffle(&mut rng(seed));
        let (mut a, mut b) = (model(unit_grid(&[9, 10])), model(unit_grid(&[9, 10])));
        let triples: Vec<_> = data.triples().collect();
        for &(h, y, d) in &triples {
            a.observe_noisy(h, y, d).unwrap();
        }
        for &i in &order {
            let (h, y, d) = triples[i];
            b.observe_noisy(h, y, d).unwrap();
        }
        same(&mut a, &mut b, &Data::random(5, 2, false, 1), 1e-10);
    }

    #[test]
    fn shards_merged_in_any_order_equal_one_pass(seed in 0u64..10_000, cuts in prop::collection::vec(0usize..4, 60)) {
        let data = Data::random(60, 2, true, seed);
        let mut whole = model(unit_grid(&[9, 10]));
        let mut shards = vec![model(unit_grid(&[9, 10])); 4];
        for ((h, y, d), &shard) in data.triples().zip(&cuts) {
            whole.observe_noisy(h, y, d).unwrap();
            shards[shard].observe_noisy(h, y, d).unwrap();
        }
        shards.shuffle(&mut rng(seed));
        // ((a + b) + (c + d)): associativity comes with it.
        let (left, right) = shards.split_at_mut(2);
        let (first, second) = left.split_at_mut(1);
        first[0].merge(&second[0]).unwrap();
        let (third, fourth) = right.split_at_mut(1);
        third[0].merge(&fourth[0]).unwrap();
        first[0].merge(&third[0]).unwrap();
        same(&mut first[0], &mut whole, &Data::random(5, 2, false, 1), 1e-10);
    }

    #[test]
    fn observe_then_forget_equals_never_seen(seed in 0u64..10_000, extra in 1usize..30, d in 1usize..4) {
        let shape = [10, 8, 7];
        let data = Data::random(40 + extra, d, true, seed);
        let (mut a, mut b) = (model(unit_grid(&shape[..d])), model(unit_grid(&shape[..d])));
        for (i, (h, y, noise)) in data.triples().enumerate() {
            a.observe_noisy(h, y, noise).unwrap();
            if i < 40 {
                b.observe_noisy(h, y, noise).unwrap();
            }
        }
        for (h, y, noise) in data.triples().skip(40) {
            a.forget(h, y, noise).unwrap();
        }
        // Removing divides by 1 − v/r, which for these data stays above 1e-3.
        same(&mut a, &mut b, &Data::random(5, d, false, 1), 1e-9);
        a.refactorize().unwrap();
        same(&mut a, &mut b, &Data::random(5, d, false, 1), 1e-10);
    }

    #[test]
    fn a_grid_extended_later_equals_a_grid_built_large(seed in 0u64..10_000, d in 1usize..4) {
        // Start with the middle third of the unit cube.
        let points = [12, 8, 6][d - 1];
        let axis = Axis::covering(0.35, 0.65, points).unwrap();
        let mut growing = Wiski::builder()
            .grid(Grid::new(vec![axis; d]).unwrap())
            .kernel(Kernel::matern32(&vec![0.4; d]).unwrap())
            .noise(SIGMA2)
            .off_grid(OffGrid::Extend)
            .engine(Engine::Dense)
            .build()
            .unwrap();
        let data = Data::random(50, d, true, seed);
        for (h, y, noise) in data.triples() {
            prop_assert_eq!(growing.observe_noisy(h, y, noise).unwrap(), Outcome::Learned);
        }
        let large = growing.stats().lattice().grids()[0].clone();
        prop_assert!(large.len() > points.pow(d as u32));
        let axes = large.axes().iter().map(|a| Axis::new(a.min(), a.step(), a.points()).unwrap()).collect();
        let mut built = Wiski::builder()
            .grid(Grid::new(axes).unwrap())
            .kernel(Kernel::matern32(&vec![0.4; d]).unwrap())
            .noise(SIGMA2)
            .engine(Engine::Dense)
            .build()
            .unwrap();
        built.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
        let inside: Vec<f64> = data.h.clone();
        same(&mut growing, &mut built, &Data { h: inside, ..data }, 1e-10);
    }

    #[test]
    fn shards_on_shifted_grids_merge_to_their_union(seed in 0u64..10_000) {
        let left = Grid::new(vec![Axis::new(0.0, 0.1, 8).unwrap(), Axis::new(0.0, 0.1, 10).unwrap()]).unwrap();
        let right = Grid::new(vec![Axis::new(0.4, 0.1, 8).unwrap(), Axis::new(-0.2, 0.1, 9).unwrap()]).unwrap();
        let whole = Grid::new(vec![Axis::new(0.0, 0.1, 12).unwrap(), Axis::new(-0.2, 0.1, 12).unwrap()]).unwrap();
        let (mut a, mut b, mut c) = (model(left), model(right), model(whole));
        let mut rng = rng(seed);
        let mut queries = Data { dim: 2, h: vec![], y: vec![], noise: vec![] };
        for _ in 0..40 {
            let (x, y) = ([0.1 + 0.5 * rng.random::<f64>(), 0.1 + 0.7 * rng.random::<f64>()], rng.random::<f64>());
            a.observe(&x, y).unwrap();
            c.observe(&x, y).unwrap();
            let x = [0.5 + 0.5 * rng.random::<f64>(), -0.1 + 0.6 * rng.random::<f64>()];
            b.observe(&x, y).unwrap();
            c.observe(&x, y).unwrap();
            queries.h.extend(x);
        }
        a.merge(&b).unwrap();
        prop_assert_eq!(a.stats().lattice().len(), 144);
        same(&mut a, &mut c, &queries, 1e-10);
    }

    #[test]
    fn variances_are_never_negative(seed in 0u64..10_000, noise in -9.0f64..0.0) {
        // Tiny noise, many repeats of few points: variances fall to 1e-12 of the prior and less.
        let mut model = Wiski::builder()
            .grid(unit_grid(&[8, 8])).kernel(Kernel::rbf(&[2.0, 2.0]).unwrap()).noise(10f64.powf(noise))
            .build().unwrap();
        let data = Data::random(5, 2, false, seed);
        for round in 0..200 {
            let i = round % 5;
            model.observe(&data.h[2 * i..2 * i + 2], data.y[i]).unwrap();
        }
        let predictor = model.predictor().unwrap();
        for h in data.rows().chain(Data::random(20, 2, false, 2).rows()) {
            prop_assert!(model.predict(h).unwrap().variance >= 0.0);
            prop_assert!(predictor.predict(h).unwrap().variance >= 0.0);
        }
    }
}

/// Removing an observation amplifies rounding by r/(r − v); with little noise that is everything, and the
/// posterior is computed anew.
#[test]
fn forgetting_is_exact_at_any_noise() {
    for exponent in [-2, -6, -8, -10, -12] {
        let noise = 10f64.powi(exponent);
        let build = || {
            let kernel = Kernel::rbf(&[0.3, 0.3]).unwrap();
            Wiski::builder().grid(unit_grid(&[12, 12])).kernel(kernel).noise(noise).build().unwrap()
        };
        let (mut a, mut b) = (build(), build());
        a.observe(&[0.2, 0.2], 1.0).unwrap();
        b.observe(&[0.2, 0.2], 1.0).unwrap();
        a.observe(&[0.71, 0.7], -1.0).unwrap();
        a.forget(&[0.71, 0.7], -1.0, 1.0).unwrap();
        let (p, q) = (a.predict(&[0.7, 0.7]).unwrap(), b.predict(&[0.7, 0.7]).unwrap());
        // What is left in the statistics after x − x is eps, seen with precision 1/σ².
        let tolerance = 1e-9f64.max(64.0 * f64::EPSILON / noise);
        close(p.mean, q.mean, tolerance, &format!("mean at noise {noise}"));
        close(p.variance, q.variance, tolerance, &format!("variance at noise {noise}"));
    }
}

/// A model that streams into a root of limited rank equals the same root filled at once.
#[test]
fn a_low_rank_model_streams_what_it_batches() {
    let data = Data::random(150, 2, false, 14);
    let build = || {
        Wiski::builder()
            .grid(unit_grid(&[10, 10]))
            .kernel(kernel())
            .noise(SIGMA2)
            .low_rank_root(20)
            .build()
            .unwrap()
    };
    let (mut a, mut b) = (build(), build());
    for (h, y, _) in data.triples() {
        a.observe(h, y).unwrap();
    }
    let mut stats = b.stats().clone();
    data.triples().for_each(|(h, y, _)| stats.observe(h, y, 1.0).unwrap());
    b.observe_batch(&data.h, &data.y, None).unwrap();
    assert_eq!(b.stats(), &stats, "a batch is its rows, one by one");
    let prior = std::sync::Arc::new(Prior::new(stats.lattice(), &[kernel()], 1e-12).unwrap());
    let single = Posterior::new(prior, &stats, SIGMA2).unwrap();
    for h in Data::random(10, 2, false, 15).rows() {
        let (p, q) = (a.predict(h).unwrap(), single.predict(h, &mut Workspace::default()).unwrap());
        close(p.mean, q.mean, 1e-9, "mean");
        close(p.variance, q.variance, 1e-9, "variance");
    }
    let before = a.predict(&[0.5, 0.5]).unwrap();
    let outcome = a.forget(&[0.123, 0.987], 3.0, 1e-6);
    if outcome.is_err() {
        assert_eq!(a.predict(&[0.5, 0.5]).unwrap(), before, "a rejected removal changes nothing");
    }
    // A root may have more columns once the grid has grown.
    let mut root = Stats::low_rank(unit_grid(&[8]), 1000).unwrap();
    root.observe(&[0.5], 1.0, 1.0).unwrap();
    root.extend_to(&[3.0], 1000).unwrap();
    let line = Data::random(300, 1, false, 3);
    line.rows().for_each(|h| root.observe(&[3.0 * h[0]], 1.0, 1.0).unwrap());
    let wiski::internals::stats::Gram::LowRank(r) = root.gram() else {
        panic!("a low-rank root was asked for")
    };
    assert!(r.lost() < 1e-12, "lost {}", r.lost());
}

/// Drift beyond the tolerance causes a new factorization, and the pool that feeds it does not grow.
#[test]
fn drift_causes_refactorizations() {
    let build = |tolerance: f64| {
        let builder = Wiski::builder().grid(unit_grid(&[8, 8])).kernel(kernel()).noise(1e-4);
        builder.drift_tolerance(tolerance).build().unwrap()
    };
    let (mut never, mut always) = (build(1e-2), build(1e-18));
    for (h, y, _) in Data::random(5000, 2, false, 20).triples() {
        never.observe(h, y).unwrap();
        always.observe(h, y).unwrap();
    }
    assert_eq!(never.refactorizations(), 0);
    assert_eq!(always.refactorizations(), 4, "once every 1,024 updates");
}

/// The paper's root at full rank is the stencil, update by update, in bulk, merged, decayed and extended.
#[test]
fn a_root_of_full_rank_equals_the_stencil() {
    let grid = unit_grid(&[7, 8]);
    let data = Data::random(600, 2, true, 3);
    let (mut exact, mut root) = (Stats::new(grid.clone()), Stats::low_rank(grid.clone(), 56).unwrap());
    let mut shard = Stats::low_rank(grid, 56).unwrap();
    for (i, (h, y, d)) in data.triples().enumerate() {
        exact.observe(h, y, d).unwrap();
        if i < 200 {
            &mut root
        } else if i < 300 {
            &mut shard
        } else {
            continue;
        }
        .observe(h, y, d)
        .unwrap();
    }
    root.merge(&shard).unwrap();
    root.observe_batch(&data.h[600..], &data.y[300..], Some(&data.noise[300..])).unwrap();
    let (h, y, d) = data.triples().nth(17).unwrap();
    for stats in [&mut exact, &mut root] {
        stats.forget(h, y, d).unwrap();
        stats.decay(0.9).unwrap();
        stats.extend_to(&[1.3, 0.5], 1000).unwrap();
    }
    let prior = std::sync::Arc::new(Prior::new(exact.lattice(), &[kernel()], 1e-14).unwrap());
    let a = Posterior::new(prior.clone(), &exact, SIGMA2).unwrap();
    let b = Posterior::new(prior, &root, SIGMA2).unwrap();
    let mut ws = Workspace::default();
    for h in Data::random(30, 2, false, 4).rows() {
        let (p, q) = (a.predict(h, &mut ws).unwrap(), b.predict(h, &mut ws).unwrap());
        close(q.mean, p.mean, 1e-11, "mean");
        close(q.variance, p.variance, 1e-11, "variance");
    }
}

/// Below full rank the root loses data, says how much, and the posterior is wrong: the paper's own ablation.
#[test]
fn a_root_of_small_rank_reports_what_it_lost() {
    let data = Data::random(400, 2, false, 3);
    let (mut exact, mut root) =
        (Stats::new(unit_grid(&[10, 10])), Stats::low_rank(unit_grid(&[10, 10]), 30).unwrap());
    exact.observe_batch(&data.h, &data.y, None).unwrap();
    root.observe_batch(&data.h, &data.y, None).unwrap();
    let wiski::internals::stats::Gram::LowRank(r) = root.gram() else {
        panic!("a low-rank root was asked for")
    };
    assert_eq!(r.rank(), 30);
    assert!(r.lost() > 0.05, "lost {}", r.lost());
    let evidence =
        |s: &Stats| wiski::internals::evidence::Evidence::new(s, &[kernel()], SIGMA2, 1e-12).unwrap().0.value;
    assert!(evidence(&root) > evidence(&exact) + 1e3, "a fit that forgets what b remembers looks too good");
}

/// 100,000 conditionings without a single new factorization stay within 1e-8 of a fresh one.
#[test]
fn long_recursions_do_not_drift() {
    for (kernel, shape) in
        [(Kernel::rbf(&[0.5, 0.5]).unwrap(), [12, 12]), (Kernel::matern32(&[0.5, 0.5]).unwrap(), [10, 10])]
    {
        let mut rng = rng(5);
        let mut stats = Stats::new(unit_grid(&shape));
        let lattice = Lattice::from(unit_grid(&shape));
        let prior = std::sync::Arc::new(Prior::new(&lattice, &[kernel], 1e-12).unwrap());
        let mut posterior = Posterior::new(prior.clone(), &stats, SIGMA2).unwrap();
        let mut ws = Workspace::default();
        for i in 0..100_000 {
            let h = [rng.random::<f64>(), rng.random::<f64>()];
            let y = (5.0 * h[0]).sin() * h[1]
                + 0.2 * (rng.random::<f64>() - 0.5)
                + if i % 1000 == 0 { 3.0 } else { 0.0 };
            let d = 0.5 + rng.random::<f64>();
            posterior.condition(&h, y, d, &mut ws).unwrap();
            stats.observe(&h, y, d).unwrap();
        }
        let drift = posterior.drift(&stats, &mut ws);
        let fresh = Posterior::new(prior, &stats, SIGMA2).unwrap();
        let (mut worst_mean, mut worst_variance): (f64, f64) = (0.0, 0.0);
        for h in Data::random(200, 2, false, 6).rows() {
            let (p, q) = (posterior.predict(h, &mut ws).unwrap(), fresh.predict(h, &mut ws).unwrap());
            worst_mean = worst_mean.max((p.mean - q.mean).abs() / (1e-3 + q.mean.abs()));
            worst_variance = worst_variance.max((p.variance / q.variance - 1.0).abs());
        }
        assert!(worst_mean < 1e-8 && worst_variance < 1e-8, "{worst_mean:e} {worst_variance:e}");
        // The drift estimate sees an error of that size, and not a much larger one.
        assert!(drift.mean < 1e-8 && drift.variance < 1e-8, "{drift:?}");
    }
}

/// A posterior that has really drifted is noticed.
#[test]
fn the_drift_estimate_sees_a_wrong_posterior() {
    let mut stats = Stats::new(unit_grid(&[9, 9]));
    let data = Data::random(300, 2, false, 7);
    stats.observe_batch(&data.h, &data.y, None).unwrap();
    let prior = std::sync::Arc::new(Prior::new(stats.lattice(), &[kernel()], 1e-12).unwrap());
    let posterior = Posterior::new(prior, &stats, SIGMA2).unwrap();
    let mut ws = Workspace::default();
    posterior.predict(&[0.5, 0.5], &mut ws).unwrap();
    let before = posterior.drift(&stats, &mut ws);
    assert!(before.mean < 1e-12 && before.variance < 1e-12, "{before:?}");
    stats.observe(&[0.5, 0.5], 10.0, 1.0).unwrap();
    posterior.predict(&[0.5, 0.5], &mut ws).unwrap();
    let after = posterior.drift(&stats, &mut ws);
    assert!(after.mean > 1e-3 && after.variance > 1e-3, "{after:?}");
}

#[test]
fn fantasies_leave_the_model_alone_and_equal_learning() {
    let (mut a, data) = (model(unit_grid(&[9, 10])), Data::random(50, 2, false, 8));
    a.observe_batch(&data.h, &data.y, None).unwrap();
    let before = a.predict(&[0.2, 0.9]).unwrap();
    let fantasy = a.fantasize(&[0.25, 0.85, 0.7, 0.1], &[3.0, -1.0]).unwrap();
    assert_eq!(a.predict(&[0.2, 0.9]).unwrap(), before);
    a.observe(&[0.25, 0.85], 3.0).unwrap();
    a.observe(&[0.7, 0.1], -1.0).unwrap();
    let (p, q) =
        (fantasy.predict(&[0.2, 0.9], &mut Workspace::default()).unwrap(), a.predict(&[0.2, 0.9]).unwrap());
    close(p.mean, q.mean, 1e-13, "mean");
    close(p.variance, q.variance, 1e-13, "variance");
}

#[test]
fn batches_equal_single_steps_and_steps_predict_before_they_learn() {
    let mut data = Data::random(300, 2, true, 9);
    data.noise.iter_mut().step_by(2).for_each(|d| *d = 1.0);
    let queries = Data::random(60, 2, false, 10);
    let (mut single, mut batch, mut pieces) =
        (model(unit_grid(&[9, 10])), model(unit_grid(&[9, 10])), model(unit_grid(&[9, 10])));
    for (h, y, d) in data.triples() {
        let before = single.predict(h).unwrap();
        if d == 1.0 {
            assert_eq!(single.step(h, y).unwrap(), before, "a step must predict before it learns");
        } else {
            single.observe_noisy(h, y, d).unwrap();
        }
    }
    assert_eq!(batch.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap(), 300);
    for piece in 0..100 {
        let rows = 3 * piece..3 * piece + 3;
        let h = &data.h[2 * rows.start..2 * rows.end];
        pieces.observe_batch(h, &data.y[rows.clone()], Some(&data.noise[rows])).unwrap();
    }
    same(&mut single, &mut batch, &queries, 1e-10);
    same(&mut pieces, &mut batch, &queries, 1e-10);
    let (mut mean, mut variance) = (vec![0.0; 60], vec![0.0; 60]);
    batch.predict_batch(&queries.h, &mut mean, &mut variance).unwrap();
    for (i, h) in queries.rows().enumerate() {
        let p = batch.predict(h).unwrap();
        close(mean[i], p.mean, 1e-11, "batch mean");
        close(variance[i], p.variance, 1e-11, "batch variance");
    }
}

#[test]
fn standardizing_targets_equals_learning_standardized_targets() {
    let lattice = Lattice::new(vec![unit_grid(&[9, 8]), unit_grid(&[10])]).unwrap();
    let data = Data::random(80, 3, true, 11);
    let (mut a, mut b) = (Stats::new(lattice.clone()), Stats::new(lattice));
    a.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
    a.standardize_targets(1.7, 0.4).unwrap();
    let y: Vec<f64> = data.y.iter().map(|y| (y - 1.7) / 0.4).collect();
    b.observe_batch(&data.h, &y, Some(&data.noise)).unwrap();
    close(a.c(), b.c(), 1e-12, "c");
    a.b().iter().zip(b.b()).for_each(|(a, b)| close(*a, *b, 1e-12, "b"));
}

#[test]
fn decay_equals_weighted_observations() {
    let data = Data::random(60, 2, false, 12);
    let (mut a, mut b) = (model(unit_grid(&[9, 10])), model(unit_grid(&[9, 10])));
    a.observe_batch(&data.h[..60], &data.y[..30], None).unwrap();
    a.decay(0.5).unwrap();
    a.observe_batch(&data.h[60..], &data.y[30..], None).unwrap();
    // Counting half is having twice the noise variance, for the posterior.
    let noise: Vec<f64> = (0..60).map(|i| if i < 30 { 2.0 } else { 1.0 }).collect();
    b.observe_batch(&data.h, &data.y, Some(&noise)).unwrap();
    for h in data.rows().take(10) {
        let (p, q) = (a.predict(h).unwrap(), b.predict(h).unwrap());
        close(p.mean, q.mean, 1e-11, "mean");
        close(p.variance, q.variance, 1e-11, "variance");
    }
    assert_eq!(a.count(), 45.0);
    // The evidence weighs every term of old rows with the factor, log noise included.
    let (mut stats, mut scaled) = (Stats::new(unit_grid(&[9, 10])), Stats::new(unit_grid(&[9, 10])));
    stats.observe(&[0.5, 0.5], 1.0, 3.0).unwrap();
    stats.decay(0.5).unwrap();
    scaled.observe(&[0.5, 0.5], 1.0, 6.0).unwrap();
    close(stats.log_noise(), 0.5 * 3f64.ln(), 1e-15, "log noise");
    close(stats.c(), scaled.c(), 1e-15, "c");
    for bad in [0.0, -1.0, 1.5, f64::NAN] {
        assert!(matches!(a.decay(bad), Err(Error::Config { .. })));
    }
}
