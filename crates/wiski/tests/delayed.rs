//! Rows that wait: a posterior that takes them in together equals the one that takes in each at once.

mod common;

use std::sync::Arc;

use common::*;
use proptest::prelude::*;
use rand::RngExt;
use wiski::internals::decide::IntegratedVariance;
use wiski::internals::grid::Lattice;
use wiski::internals::posterior::{Joint, Posterior, Surrogate, Workspace};
use wiski::internals::prior::Prior;
use wiski::{Kernel, OnlineGp, Stats, Wiski};

const SIGMA2: f64 = 0.05;

/// The posterior before any data, of which `delay` rows may wait.
fn posterior(prior: &Arc<Prior>, delay: usize) -> Posterior {
    let stats = Stats::new(prior.lattice().clone());
    let mut posterior = Posterior::new(prior.clone(), &stats, SIGMA2).unwrap();
    posterior.set_delay(delay, &mut Workspace::default());
    posterior
}

fn prior(shapes: &[&[usize]], kernel: impl Fn(&[f64]) -> Kernel) -> Arc<Prior> {
    let lattice = Lattice::new(shapes.iter().map(|shape| unit_grid(shape)).collect()).unwrap();
    let kernels: Vec<Kernel> = shapes.iter().map(|shape| kernel(&[0.4, 0.5, 0.6][..shape.len()])).collect();
    Arc::new(Prior::new(&lattice, &kernels, 1e-12).unwrap())
}

/// Lines, planes, spaces and sums of grids, with p ≈ m and with p < m; with an image on the grid and (on the line
/// of 260 points) without.
fn priors() -> Vec<Arc<Prior>> {
    let matern32 = |l: &[f64]| Kernel::matern32(l).unwrap();
    let matern52 = |l: &[f64]| Kernel::matern52(l).unwrap();
    vec![
        prior(&[&[100]], matern32),
        prior(&[&[260]], |l| Kernel::matern12(l).unwrap()),
        prior(&[&[15, 14]], matern32),
        prior(&[&[6, 7, 6]], matern52),
        prior(&[&[12, 12]], |l| Kernel::rbf(l).unwrap()),
        prior(&[&[10, 9], &[30]], |l| Kernel::rbf(l).unwrap() + Kernel::matern32(l).unwrap().scaled(0.3)),
    ]
}

#[track_caller]
fn same(a: &Posterior, b: &Posterior, h: &[f64], tolerance: f64, what: &str) {
    let (mut wa, mut wb) = (Workspace::default(), Workspace::default());
    let (p, q) = (a.predict_gradient(h, &mut wa).unwrap(), b.predict_gradient(h, &mut wb).unwrap());
    assert_eq!(p.prediction, a.predict(h, &mut wa).unwrap(), "{what}");
    close(p.prediction.mean, q.prediction.mean, tolerance, &format!("mean, {what}"));
    close(p.prediction.variance, q.prediction.variance, tolerance, &format!("variance, {what}"));
    close(a.predict_mean(h, &mut wa).unwrap(), q.prediction.mean, tolerance, &format!("mean only, {what}"));
    for (p, q) in p.mean.iter().chain(&p.variance).zip(q.mean.iter().chain(&q.variance)) {
        close(*p, *q, 10.0 * tolerance, &format!("gradient, {what}"));
    }
}

#[test]
fn waiting_equals_learning_at_once_and_factorizing_anew() {
    for prior in priors() {
        let d = prior.lattice().dim();
        let data = Data::random(3000, d, true, 31);
        let mut stats = Stats::new(prior.lattice().clone());
        let (mut at_once, mut ws) = (posterior(&prior, 0), Workspace::default());
        let mut waiting = [1, 7, 48].map(|delay| (posterior(&prior, delay), Workspace::default()));
        for (i, (h, y, noise)) in data.triples().enumerate() {
            stats.observe(h, y, noise).unwrap();
            let before = at_once.condition(h, y, noise, &mut ws).unwrap();
            for (posterior, ws) in &mut waiting {
                let expected = posterior.predict(h, ws).unwrap();
                let prediction = posterior.condition(h, y, noise, ws).unwrap();
                assert_eq!((expected.mean, expected.variance), (prediction.mean, prediction.variance));
                close(prediction.mean, before.mean, 1e-9, "mean");
                close(prediction.variance, before.variance, 1e-9, "variance");
            }
            // 37 and 48 have no common divisor: the list has every length.
            if i % 37 == 0 {
                let query = &data.h[(i * 7 % 3000) * d..][..d];
                waiting.iter().for_each(|(p, _)| same(p, &at_once, query, 1e-9, &format!("after row {i}")));
            }
        }
        let fresh = Posterior::new(prior, &stats, SIGMA2).unwrap();
        for (posterior, ws) in &mut waiting {
            for h in Data::random(20, d, false, 32).rows() {
                same(posterior, &fresh, h, 1e-9, "against a new factorization");
            }
            let drift = posterior.drift(&stats, ws);
            assert!(drift.is_within(1e-9), "{drift:?}");
        }
    }
}

/// Whatever is asked of a posterior knows the rows that wait.
#[test]
fn every_answer_knows_the_waiting_rows() {
    for prior in priors() {
        let d = prior.lattice().dim();
        let data = Data::random(220, d, true, 33);
        let mut stats = Stats::new(prior.lattice().clone());
        let (mut at_once, mut waiting) = (posterior(&prior, 0), posterior(&prior, 48));
        let mut ws = Workspace::default();
        // 2 rows wait after 194 (no image yet), 28 after 220.
        for (i, (h, y, noise)) in data.triples().enumerate() {
            stats.observe(h, y, noise).unwrap();
            at_once.condition(h, y, noise, &mut ws).unwrap();
            waiting.condition(h, y, noise, &mut ws).unwrap();
            if i == 193 || i == 219 {
                compare(&waiting, &at_once, &stats);
            }
        }
    }
}

#[track_caller]
fn compare(waiting: &Posterior, at_once: &Posterior, stats: &Stats) {
    let d = waiting.lattice().dim();
    let ws = &mut Workspace::default();
    let queries = Data::random(3, d, false, 34);
    let all = |a: &[f64], b: &[f64], what: &str| {
        assert_eq!(a.len(), b.len());
        a.iter().zip(b).for_each(|(a, b)| close(*a, *b, 1e-9, what));
    };
    let (a, b) = (waiting.joint(&queries.h, ws).unwrap(), at_once.joint(&queries.h, ws).unwrap());
    all(&a.0, &b.0, "joint mean");
    all(&a.1, &b.1, "joint covariance");
    let (mut c, mut e) = (Joint::default(), Joint::default());
    waiting.surface().predict(&queries.h, &mut c).unwrap();
    at_once.surface().predict(&queries.h, &mut e).unwrap();
    all(&c.mean, &e.mean, "mean of the surface");
    all(&c.covariance, &e.covariance, "covariance of the surface");
    let xi: Vec<f64> = (0..waiting.rank()).map(|i| (i as f64).sin()).collect();
    let (a, b) = (waiting.sample(&xi).unwrap(), at_once.sample(&xi).unwrap());
    all(a.grid_values(), b.grid_values(), "sample");
    all(&waiting.shares(stats), &at_once.shares(stats), "shares");
    let (predictor, other) = (waiting.predictor(), at_once.predictor());
    let fantasies = [waiting, at_once].map(|p| p.fantasize(&queries.h, &queries.y, ws).unwrap());
    for (h, y, noise) in queries.triples() {
        let (p, q) = (predictor.predict(h).unwrap(), other.predict(h).unwrap());
        all(&[p.mean, p.variance], &[q.mean, q.variance], "predictor");
        let gradients = [waiting, at_once].map(|p| p.weight_gradient(h, y, noise, ws).unwrap());
        all(&gradients[0], &gradients[1], "gradient in the weights");
        same(&fantasies[0], &fantasies[1], h, 1e-9, "fantasy");
    }
    let block = &queries.h[..waiting.lattice().grids()[0].dim()];
    let effects = [waiting, at_once].map(|p| p.effect(stats, 0, block).unwrap()[0]);
    close(effects[0].mean, effects[1].mean, 1e-9, "mean of an effect");
    close(effects[0].variance, effects[1].variance, 1e-9, "variance of an effect");
    let reduction =
        [waiting, at_once].map(|p| IntegratedVariance::new(p, &queries.h).unwrap().reduction(&queries.h));
    close(*reduction[0].as_ref().unwrap(), *reduction[1].as_ref().unwrap(), 1e-9, "reduction of variance");
    let drift = waiting.drift(stats, ws);
    assert!(drift.is_within(1e-9), "{drift:?}");
}

/// A process whose rank is large enough that rows wait without being told to.
fn process() -> Wiski {
    let kernel = Kernel::matern32(&[0.4, 0.5]).unwrap();
    let model = Wiski::builder().grid(unit_grid(&[17, 17])).kernel(kernel).noise(SIGMA2).build().unwrap();
    assert!(model.rank() > 256 && model.engine() == "dense");
    model
}

#[test]
fn forgetting_while_rows_wait_equals_never_having_seen_them() {
    let data = Data::random(150, 2, true, 35);
    let (mut a, mut b) = (process(), process());
    for (i, (h, y, noise)) in data.triples().enumerate() {
        a.observe_noisy(h, y, noise).unwrap();
        // The first of every three rows is forgotten after the last.
        if i % 3 > 0 {
            b.observe_noisy(h, y, noise).unwrap();
        }
        if i % 3 == 2 {
            let (h, y, noise) = data.triples().nth(i - 2).unwrap();
            a.forget(h, y, noise).unwrap();
        }
    }
    for h in Data::random(20, 2, false, 36).rows() {
        let (p, q) = (a.predict(h).unwrap(), b.predict(h).unwrap());
        close(p.mean, q.mean, 1e-9, "mean");
        close(p.variance, q.variance, 1e-9, "variance");
    }
}

/// The check of the recursion after every 1,024 updates sees the rows that wait.
#[test]
fn long_streams_stay_exact_without_new_factorizations() {
    let (mut model, mut rng) = (process(), rng(37));
    let mut rows = Data { dim: 2, h: vec![], y: vec![], noise: vec![] };
    for _ in 0..4200 {
        let h = [rng.random::<f64>(), rng.random::<f64>()];
        let y = (5.0 * h[0]).sin() * h[1] + 0.2 * (rng.random::<f64>() - 0.5);
        model.observe(&h, y).unwrap();
        rows.h.extend(h);
    }
    assert_eq!(model.refactorizations(), 0);
    let mut fresh = model.clone();
    fresh.refactorize().unwrap();
    for h in rows.rows().take(50) {
        let (p, q) = (model.predict(h).unwrap(), fresh.predict(h).unwrap());
        close(p.mean, q.mean, 1e-9, "mean");
        assert!((p.variance / q.variance - 1.0).abs() < 1e-9, "{p:?} {q:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn variances_are_never_negative(seed in 0u64..10_000, noise in -9.0f64..0.0, delay in 1usize..50) {
        // Tiny noise, many repeats of few points: variances fall to 1e-12 of the prior and less, also in one block.
        let prior = prior(&[&[8, 8]], |_| Kernel::rbf(&[2.0, 2.0]).unwrap());
        let stats = Stats::new(prior.lattice().clone());
        let mut posterior = Posterior::new(prior, &stats, 10f64.powf(noise)).unwrap();
        let mut ws = Workspace::default();
        posterior.set_delay(delay, &mut ws);
        let data = Data::random(5, 2, false, seed);
        for round in 0..200 {
            let i = round % 5;
            let prediction = posterior.condition(&data.h[2 * i..2 * i + 2], data.y[i], 1.0, &mut ws).unwrap();
            prop_assert!(prediction.variance >= 0.0 && prediction.mean.is_finite());
        }
        for h in data.rows().chain(Data::random(20, 2, false, 2).rows()) {
            prop_assert!(posterior.predict(h, &mut ws).unwrap().variance >= 0.0);
        }
    }
}
