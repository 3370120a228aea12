//! Engines for large grids against the factorizing one, on grids that both can do.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::internals::evidence::Evidence;
use wiski::internals::large::{Accuracy, KrylovPosterior};
use wiski::internals::posterior::{Posterior, Workspace};
use wiski::internals::prior::Prior;
use wiski::persist::{load, save};
use wiski::{
    Engine, Error, Features, Grid, HyperSpace, Kernel, LbfgsB, OnlineGp, OnlineRegressor, Settings, Stats,
    Wiski,
};

/// A few hundred points on a grid over the unit box, denser on one side, none around the middle.
fn uneven(shape: &[usize], n: usize) -> Stats {
    let mut stats = Stats::new(Grid::covering(&vec![(0.0, 1.0); shape.len()], shape).unwrap());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    while stats.count() < n as f64 {
        let x: Vec<f64> = shape.iter().map(|_| rng.random::<f64>().powf(1.5)).collect();
        if x.iter().all(|v| (v - 0.5).abs() < 0.15) {
            continue;
        }
        let y = x.iter().map(|v| (7.0 * v).sin()).sum::<f64>() + 0.3 * (rng.random::<f64>() - 0.5);
        stats.observe(&x, y, 0.5 + rng.random::<f64>()).unwrap();
    }
    stats
}

fn cases() -> Vec<(Stats, Kernel)> {
    vec![
        (uneven(&[60], 400), Kernel::matern32(&[0.1]).unwrap().scaled(1.3)),
        (uneven(&[24, 20], 500), Kernel::matern12(&[0.3, 0.2]).unwrap().scaled(0.8)),
        (uneven(&[24, 20], 500), Kernel::matern52(&[0.15, 0.25]).unwrap()),
        (uneven(&[20, 24], 500), Kernel::rbf(&[0.2, 0.15]).unwrap().scaled(2.0)),
        (uneven(&[9, 8, 8], 700), Kernel::matern32(&[0.3, 0.4, 0.5]).unwrap()),
        (
            uneven(&[22, 22], 500),
            Kernel::matern32(&[0.1, 0.2]).unwrap() + Kernel::rbf(&[0.5, 0.6]).unwrap().scaled(0.4),
        ),
    ]
}

const NOISE: f64 = 0.02;

fn exact(stats: &Stats, kernel: &Kernel) -> (Evidence, Posterior) {
    Evidence::new(stats, std::slice::from_ref(kernel), NOISE, 1e-14).unwrap()
}

fn places(d: usize) -> Vec<f64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
    (0..10 * d).map(|_| rng.random::<f64>()).collect()
}

/// A small exact block, so that the iteration has something to do on grids this small.
fn iterating() -> Accuracy {
    Accuracy { leading: 24, ..Accuracy::default() }
}

#[test]
fn conjugate_gradients_give_the_posterior_of_the_factorization() {
    for (stats, kernel) in cases() {
        let (_, dense) = exact(&stats, &kernel);
        let posterior = KrylovPosterior::new(&stats, &kernel, NOISE, &iterating()).unwrap();
        let convergence = posterior.convergence();
        let (d, mut ws) = (stats.lattice().dim(), Workspace::default());
        // On one axis the balanced root is exact for any data.
        let least = if d == 1 { 1 } else { 6 };
        assert!(convergence.residual <= 1e-8 && convergence.iterations >= least, "{convergence:?}");
        let points = places(d);
        let (mean, covariance) = posterior.joint(&stats, &points).unwrap();
        let (want, wanted) = dense.joint(&points, &mut ws).unwrap();
        for (a, b) in mean.iter().zip(&want) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
        for (a, b) in covariance.iter().zip(&wanted) {
            assert!((a - b).abs() < 1e-6 * kernel.variance(), "{a} {b}");
        }
        let one = posterior.predict(&stats, &points[..d]).unwrap();
        let other = dense.predict(&points[..d], &mut ws).unwrap();
        assert!((one.mean - other.mean).abs() < 1e-6 && (one.variance - other.variance).abs() < 1e-6);
        assert_eq!(one.noise, NOISE);
    }
}

#[test]
fn random_vectors_estimate_evidence_and_gradient_within_their_error() {
    for (stats, kernel) in cases() {
        let (want, _) = exact(&stats, &kernel);
        let accuracy = Accuracy { probes: 256, ..iterating() };
        let posterior = KrylovPosterior::new(&stats, &kernel, NOISE, &accuracy).unwrap();
        let (got, convergence) = posterior.evidence(&stats, &kernel).unwrap();
        let error = (got.value - want.value).abs();
        assert!(convergence.log_det_error > 0.0);
        // Half of log det S is what is uncertain; beside it stands the tolerance of the quadrature.
        assert!(error <= 2.0 * convergence.log_det_error + 1e-4 * want.value.abs(), "{got:?} {want:?}");
        // 256 vectors of random signs on about 500 points: the traces, sums over p ≈ 500 coordinates, err by a few.
        let norm = |e: &Evidence| e.by_kernel[0].iter().map(|g| g * g).sum::<f64>().sqrt();
        let difference: f64 =
            got.by_kernel[0].iter().zip(&want.by_kernel[0]).map(|(a, b)| (a - b).powi(2)).sum();
        assert!(difference.sqrt() < 0.1 * norm(&want), "{got:?} {want:?}");
        assert!((got.by_noise / want.by_noise - 1.0).abs() < 0.02, "{got:?} {want:?}");
    }
}

#[test]
fn one_thread_and_two_give_the_same() {
    let (stats, kernel) = cases().swap_remove(2);
    let run = |two_threads: bool| {
        let accuracy = Accuracy { two_threads, ..iterating() };
        let posterior = KrylovPosterior::new(&stats, &kernel, NOISE, &accuracy).unwrap();
        let evidence = posterior.evidence(&stats, &kernel).unwrap();
        let (predictor, error) = posterior.predictor(&stats).unwrap();
        (evidence, error, predictor.predict(&[0.4, 0.6]).unwrap())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_predictor_has_the_mean_and_nearly_the_variance_and_says_how_nearly() {
    for (case, (stats, kernel)) in cases().into_iter().enumerate() {
        let (_, dense) = exact(&stats, &kernel);
        let accuracy = Accuracy { spacing: 12, ..iterating() };
        let posterior = KrylovPosterior::new(&stats, &kernel, NOISE, &accuracy).unwrap();
        let (predictor, said) = posterior.predictor(&stats).unwrap();
        let (d, mut ws) = (stats.lattice().dim(), Workspace::default());
        let (mut sum, points) = (0.0, places(d));
        for point in points.chunks_exact(d) {
            let (got, want) = (predictor.predict(point).unwrap(), dense.predict(point, &mut ws).unwrap());
            assert!((got.mean - want.mean).abs() < 1e-6);
            sum += (got.variance / want.variance - 1.0).powi(2);
        }
        let typical = (sum / 10.0).sqrt();
        // Both are root mean squares over a dozen random points.
        assert!(typical < 5.0 * said.typical + 1e-3, "case {case}: {typical} {said:?}");
        assert!(said.typical < 0.1 && said.worst >= said.typical, "case {case}: {said:?}");
    }
}

#[test]
fn functions_drawn_have_the_mean_and_covariance_of_the_posterior() {
    let (stats, kernel) = cases().swap_remove(1);
    let (_, dense) = exact(&stats, &kernel);
    let posterior = KrylovPosterior::new(&stats, &kernel, NOISE, &iterating()).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let points = [[0.45, 0.5], [0.1, 0.9], [0.55, 0.45]];
    let (mean, covariance) = dense.joint(points.as_flattened(), &mut Workspace::default()).unwrap();
    let (n, mut first, mut second) = (200, [0.0; 3], [0.0; 9]);
    for _ in 0..n {
        let f = posterior.sample(&stats, &mut rng).unwrap();
        let values = points.map(|x| f.value(&x).unwrap());
        for i in 0..3 {
            first[i] += values[i] / f64::from(n);
            (0..3).for_each(|j| {
                second[3 * i + j] += (values[i] - mean[i]) * (values[j] - mean[j]) / f64::from(n);
            });
        }
    }
    for i in 0..3 {
        // Four standard errors.
        let error = 4.0 * (covariance[4 * i] / f64::from(n)).sqrt();
        assert!((first[i] - mean[i]).abs() < error, "{first:?} {mean:?}");
        for j in 0..3 {
            let (vi, vj, c) = (covariance[4 * i], covariance[4 * j], covariance[3 * i + j]);
            let error = 4.0 * ((vi * vj + c * c) / f64::from(n)).sqrt();
            assert!((second[3 * i + j] - c).abs() < error, "{second:?} {covariance:?}");
        }
    }
}

#[test]
fn a_warm_start_needs_fewer_iterations_for_the_same_answer() {
    let (stats, kernel) = cases().swap_remove(2);
    let posterior = KrylovPosterior::new(&stats, &kernel, NOISE, &iterating()).unwrap();
    let near = Kernel::matern52(&[0.1503, 0.2495]).unwrap();
    let (warm, cold) = (
        posterior.warm(&stats, &near, NOISE * 1.01).unwrap(),
        KrylovPosterior::new(&stats, &near, NOISE * 1.01, &iterating()).unwrap(),
    );
    assert!(warm.convergence().iterations < cold.convergence().iterations);
    let worst = warm.mean().iter().zip(cold.mean()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < 1e-6, "{worst}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let (stats, kernel) = cases().swap_remove(1);
    let hasty = Accuracy { max_iterations: 2, ..iterating() };
    let rejected = KrylovPosterior::new(&stats, &kernel, NOISE, &hasty);
    assert!(matches!(rejected, Err(Error::NoConvergence { iterations: 2, .. })));
    for accuracy in [
        Accuracy { tolerance: 0.0, ..Accuracy::default() },
        Accuracy { spacing: 3, ..Accuracy::default() },
        Accuracy { probes: 0, ..Accuracy::default() },
    ] {
        assert!(KrylovPosterior::new(&stats, &kernel, NOISE, &accuracy).is_err(), "{accuracy:?}");
    }
    assert!(KrylovPosterior::new(&stats, &kernel, -1.0, &iterating()).is_err());
    let line = Kernel::rbf(&[0.1]).unwrap();
    assert!(KrylovPosterior::new(&stats, &line, NOISE, &iterating()).is_err());
    let tiny = uneven(&[5, 5], 30);
    assert!(matches!(
        KrylovPosterior::new(&tiny, &kernel, NOISE, &iterating()),
        Err(Error::Unsupported { .. })
    ));
    let posterior = KrylovPosterior::new(&stats, &kernel, NOISE, &iterating()).unwrap();
    assert!(posterior.predict(&uneven(&[20, 20], 30), &[0.5, 0.5]).is_err());
    assert!(posterior.predict(&stats, &[0.5]).is_err());
    assert!(matches!(posterior.predict(&stats, &[0.5, 9.0]), Err(Error::OutsideGrid { .. })));
}

#[test]
fn no_data_leave_the_prior() {
    let kernel = Kernel::matern32(&[0.2, 0.3]).unwrap().scaled(1.5);
    let stats = Stats::new(Grid::covering(&[(0.0, 1.0); 2], &[20, 20]).unwrap());
    let posterior = KrylovPosterior::new(&stats, &kernel, NOISE, &iterating()).unwrap();
    let (evidence, _) = posterior.evidence(&stats, &kernel).unwrap();
    assert_eq!(evidence.value, 0.0);
    let at = [0.5 * (0.0 + 1.0), 0.5];
    let p = posterior.predict(&stats, &at).unwrap();
    let prior =
        Posterior::new(Arc::new(Prior::new(stats.lattice(), &[kernel], 1e-14).unwrap()), &stats, NOISE);
    let want = prior.unwrap().predict(&at, &mut Workspace::default()).unwrap();
    assert!(p.mean == 0.0 && (p.variance - want.variance).abs() < 1e-9, "{p:?} {want:?}");
}

/// A model of one kernel on a grid over the unit square, by any engine.
fn model(engine: Engine, kernel: &Kernel) -> Wiski {
    Wiski::builder()
        .grid(Grid::covering(&[(0.0, 1.0); 2], &[24, 20]).unwrap())
        .kernel(kernel.clone())
        .noise(NOISE)
        .engine(engine)
        .build()
        .unwrap()
}

fn rows(n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let x: Vec<f64> = (0..2 * n).map(|_| rng.random::<f64>()).collect();
    let y =
        x.chunks_exact(2).map(|x| (6.0 * x[0]).sin() + x[1] + 0.2 * (rng.random::<f64>() - 0.5)).collect();
    (x, y)
}

#[test]
fn a_model_gives_the_same_by_every_engine() {
    let kernel = Kernel::matern12(&[0.3, 0.2]).unwrap();
    let (x, y) = rows(600);
    let engines = [Engine::Dense, Engine::Sparse, Engine::Krylov(iterating())];
    let mut models = engines.map(|engine| model(engine, &kernel));
    assert_eq!(models.each_ref().map(Wiski::engine), ["dense", "sparse", "krylov"]);
    for model in &mut models {
        model.observe_batch(&x[..800], &y[..400], None).unwrap();
        for (x, &y) in x[800..].chunks_exact(2).zip(&y[400..]) {
            model.step(x, y).unwrap();
        }
        model.forget(&x[..2], y[0], 1.0).unwrap();
        model.decay(0.9).unwrap();
        model.settle().unwrap();
    }
    let [dense, others @ ..] = &mut models;
    let (want, evidence) = (dense.predict(&[0.4, 0.7]).unwrap(), dense.log_evidence().unwrap());
    let (mean, covariance) = dense.joint(&[0.4, 0.7, 0.2, 0.2]).unwrap();
    let gradient = dense.predict_gradient(&[0.4, 0.7]).unwrap();
    for model in others {
        let name = model.engine();
        let got = model.predict(&[0.4, 0.7]).unwrap();
        assert!((got.mean - want.mean).abs() < 1e-6, "{name}: {got:?} {want:?}");
        // Variances of the iterative engine's image are measured to a fraction of a per cent.
        assert!((got.variance / want.variance - 1.0).abs() < 0.02, "{name}: {got:?} {want:?}");
        assert!((model.log_evidence().unwrap() - evidence).abs() < 3.0, "{name}: {evidence}");
        let (m, c) = model.joint(&[0.4, 0.7, 0.2, 0.2]).unwrap();
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close(&m, &mean) && close(&c, &covariance), "{name}: {m:?} {c:?}");
        let slopes = model.predict_gradient(&[0.4, 0.7]).unwrap();
        assert!(close(&slopes.mean, &gradient.mean), "{name}: {slopes:?} {gradient:?}");
        assert!(model.sample(&mut Xoshiro256PlusPlus::seed_from_u64(1)).is_ok());
        assert!(matches!(model.posterior(), Err(Error::Unsupported { .. })));
    }
}

#[test]
fn a_large_model_lags_by_a_tenth_at_most_and_catches_up() {
    let kernel = Kernel::matern12(&[0.3, 0.2]).unwrap();
    let mut large = model(Engine::Sparse, &kernel);
    let (x, y) = rows(430);
    large.observe_batch(&x[..600], &y[..300], None).unwrap();
    let image = |model: &Wiski| model.predictor().unwrap().predict(&[0.5, 0.5]).unwrap();
    let before = image(&large);
    for (x, &y) in x[600..650].chunks_exact(2).zip(&y[300..]) {
        large.step(x, y).unwrap();
    }
    assert_eq!(image(&large), before, "twenty-five rows of three hundred may wait");
    assert_ne!(large.clone().predict(&[0.5, 0.5]).unwrap(), before, "but not when a prediction is asked for");
    for (x, &y) in x[650..].chunks_exact(2).zip(&y[325..]) {
        large.step(x, y).unwrap();
    }
    assert_ne!(image(&large), before, "forty may not");
    let mut fresh = model(Engine::Sparse, &kernel);
    fresh.observe_batch(&x, &y, None).unwrap();
    let (a, b) = (large.predict(&[0.5, 0.5]).unwrap(), fresh.predict(&[0.5, 0.5]).unwrap());
    assert!((a.mean - b.mean).abs() < 1e-10 && (a.variance - b.variance).abs() < 1e-10);
}

/// Along a stream the iterative engine keeps its variances for a while; what is asked for is computed.
#[test]
fn variances_are_kept_along_a_stream_and_in_no_prediction() {
    let kernel = Kernel::matern32(&[0.3, 0.2]).unwrap();
    let mut large = model(Engine::Krylov(iterating()), &kernel);
    let (x, y) = rows(500);
    large.observe_batch(&x[..600], &y[..300], None).unwrap();
    let image = |model: &Wiski| model.predictor().unwrap().predict(&[0.5, 0.5]).unwrap();
    let before = image(&large);
    let learn = |large: &mut Wiski, from: usize, to: usize| {
        for (x, &y) in x[2 * from..2 * to].chunks_exact(2).zip(&y[from..to]) {
            large.step(x, y).unwrap();
        }
    };
    learn(&mut large, 300, 340);
    let along = image(&large);
    assert!(along.mean != before.mean && along.variance == before.variance, "{before:?} {along:?}");
    let mut fresh = model(Engine::Krylov(iterating()), &kernel);
    fresh.observe_batch(&x[..680], &y[..340], None).unwrap();
    let settled = {
        let mut settled = large.clone();
        settled.settle().unwrap();
        image(&settled)
    };
    let want = fresh.predict(&[0.5, 0.5]).unwrap();
    for got in [large.predict(&[0.5, 0.5]).unwrap(), settled] {
        // Solves from different starts end within their tolerances.
        assert!((got.mean - want.mean).abs() < 1e-6, "{got:?} {want:?}");
        assert!((got.variance / want.variance - 1.0).abs() < 1e-3, "{got:?} {want:?}");
    }
    learn(&mut large, 340, 500);
    assert!(image(&large).variance < before.variance, "a third of the rows unknown is too many");
}

#[test]
fn refits_by_every_engine_end_at_the_same_hyperparameters() {
    let kernel = Kernel::matern12(&[0.5, 0.5]).unwrap();
    let (x, y) = rows(600);
    let accuracy = Accuracy { probes: 64, ..iterating() };
    let fitted = [Engine::Dense, Engine::Sparse, Engine::Krylov(accuracy)].map(|engine| {
        let mut model = model(engine, &kernel);
        model.observe_batch(&x, &y, None).unwrap();
        let space = HyperSpace::new(&model.hyperparameters());
        let before = model.evidence().unwrap().value;
        model.refit(&space, &LbfgsB { max_evaluations: 40, ..LbfgsB::default() }).unwrap();
        assert!(model.evidence().unwrap().value > before + 1.0, "{}", model.engine());
        (model.noise(), model.kernels()[0].parameters())
    });
    let [(noise, parameters), others @ ..] = &fitted;
    for ((other, their), tolerance) in others.iter().zip([1e-3, 0.1]) {
        assert!((other / noise - 1.0).abs() < tolerance, "{fitted:?}");
        // Scale and length-scales of Matérn ½ can hardly be told apart: their ratio can.
        let slope = |p: &[f64]| p[0] / (p[1] * p[2]).sqrt();
        assert!((slope(their) / slope(parameters) - 1.0).abs() < 2.0 * tolerance, "{fitted:?}");
    }
}

#[test]
fn the_engine_follows_from_size_and_kernel() {
    let engine = |shape: &[usize], kernel: Kernel| {
        let grid = Grid::covering(&vec![(0.0, 1.0); shape.len()], shape).unwrap();
        Wiski::builder().grid(grid).kernel(kernel).build().unwrap().engine()
    };
    assert_eq!(engine(&[30, 30], Kernel::matern12(&[0.1, 0.1]).unwrap()), "dense");
    assert_eq!(engine(&[50, 50], Kernel::rbf(&[0.3, 0.3]).unwrap()), "dense");
    assert_eq!(engine(&[50, 50], Kernel::matern12(&[0.1, 0.1]).unwrap()), "sparse");
    assert_eq!(engine(&[50, 50], Kernel::matern32(&[0.1, 0.1]).unwrap()), "krylov");
    assert_eq!(engine(&[20_000], Kernel::matern32(&[0.001]).unwrap()), "sparse");
    for name in ["auto", "dense", "krylov", "sparse"] {
        assert_eq!(name.parse::<Engine>().unwrap().to_string(), name);
    }
    assert!(matches!("steam".parse::<Engine>(), Err(Error::Config { .. })));
    let sum = Kernel::matern12(&[0.1, 0.1]).unwrap() + Kernel::rbf(&[0.5, 0.5]).unwrap();
    assert_eq!(engine(&[50, 50], sum), "krylov");
}

#[test]
fn a_regressor_on_a_large_grid_learns_and_survives_a_file() {
    let settings = Settings {
        features: Features::Identity,
        grid: vec![60],
        kernel: Some(Kernel::matern12(&[0.5, 0.5]).unwrap()),
        warm_up: Some(100),
        ..Settings::default()
    };
    let mut model = OnlineRegressor::new(2, settings).unwrap();
    let (x, y) = rows(1500);
    let mut errors = Vec::new();
    for (x, &y) in x.chunks_exact(2).zip(&y) {
        if let Some(p) = model.step(x, y).unwrap() {
            errors.push((p.mean - y).abs());
        }
    }
    assert_eq!(model.model().unwrap().engine(), "sparse");
    // Uniform noise of ±0.1 has a mean absolute value of 0.05.
    let late = errors[1000..].iter().sum::<f64>() / (errors.len() - 1000) as f64;
    assert!(late < 0.09, "{late}");
    let path = std::env::temp_dir().join(format!("wiski-large-{}.wiski", std::process::id()));
    model.refit().unwrap();
    save(&path, &model).unwrap();
    let again = load::<OnlineRegressor>(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let (a, b) = (model.predict(&[0.3, 0.6]).unwrap(), again.predict(&[0.3, 0.6]).unwrap());
    assert!((a.mean - b.mean).abs() < 1e-9 && (a.variance - b.variance).abs() < 1e-9, "{a:?} {b:?}");
}
