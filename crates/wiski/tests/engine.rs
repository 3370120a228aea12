//! What holds for the posteriors of every engine: predicting changes nothing, a refit keeps what it has computed, and
//! the engine follows from what it would cost.

mod common;

use common::*;
use wiski::internals::evidence::Evidence;
use wiski::internals::grid::Lattice;
use wiski::internals::posterior::Workspace;
use wiski::{
    Engine, Features, Grid, HyperSpace, Kernel, LbfgsB, OffGrid, OnlineGp, OnlineRegressor, Settings, Wiski,
    persist,
};

const SIGMA2: f64 = 0.05;

fn model(engine: Engine, off_grid: OffGrid) -> Wiski {
    let kernel = Kernel::matern12(&[0.3, 0.4]).unwrap();
    let builder = Wiski::builder().grid(unit_grid(&[14, 13])).kernel(kernel).noise(SIGMA2);
    builder.engine(engine).off_grid(off_grid).build().unwrap()
}

/// Off the grid, behind the data, from several threads: the state stays as it is to the last bit.
#[test]
fn predicting_never_changes_a_model() {
    let data = Data::random(300, 2, true, 3);
    for engine in [Engine::Dense, Engine::Sparse, "krylov".parse().unwrap()] {
        for policy in [OffGrid::Extend, OffGrid::Prior, OffGrid::Error] {
            let mut model = model(engine.clone(), policy);
            model.observe_batch(&data.h[..400], &data.y[..200], None).unwrap();
            for (h, y, _) in data.triples().skip(200).take(20) {
                model.step(h, y).unwrap();
            }
            let (before, twin) = (persist::to_bytes(&model).unwrap(), model.clone());
            let first = model.predict(&data.h[..2]).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for h in data.rows() {
                            model.predict(h).unwrap();
                            model.predict_gradient(h).unwrap();
                        }
                        let (mut mean, mut variance) = (vec![0.0; 300], vec![0.0; 300]);
                        model.predict_batch(&data.h, &mut mean, &mut variance).unwrap();
                    });
                }
            });
            let far = model.predict(&[0.5, 9.0]);
            assert_eq!(far.is_err(), policy == OffGrid::Error, "{engine} {policy:?}");
            if let Ok(p) = far {
                assert_eq!((p.mean, p.variance, p.noise), (0.0, 1.0, SIGMA2), "{engine}");
                let gradient = model.predict_gradient(&[0.5, 9.0]).unwrap();
                assert_eq!(
                    (gradient.prediction, gradient.mean, gradient.variance),
                    (p, vec![0.0; 2], vec![0.0; 2])
                );
            }
            assert_eq!(model.predict(&data.h[..2]).unwrap(), first);
            assert!(persist::to_bytes(&model).unwrap() == before, "{engine} {policy:?}");
            // What is learned next does not depend on what was asked before.
            let mut twin = twin;
            for (h, y, _) in data.triples().skip(220) {
                assert_eq!(model.step(h, y).unwrap(), twin.step(h, y).unwrap(), "{engine} {policy:?}");
            }
        }
    }
}

/// Of a sum, grids that do not cover their part of a point contribute their prior, the others what they know.
#[test]
fn a_sum_of_grids_answers_with_what_covers_the_point() {
    let grids = [unit_grid(&[12]), unit_grid(&[8, 9]), unit_grid(&[10])];
    let kernels = [
        Kernel::rbf(&[0.4]).unwrap(),
        Kernel::matern52(&[0.5, 0.7]).unwrap().scaled(0.6),
        Kernel::rbf(&[0.3]).unwrap().scaled(0.5) + Kernel::matern32(&[0.9]).unwrap(),
    ];
    let lattice = Lattice::new(grids.to_vec()).unwrap();
    let data = Data::random(80, 4, true, 9);
    let builder = Wiski::builder().noise(SIGMA2).off_grid(OffGrid::Extend);
    let builder = grids.into_iter().zip(kernels.clone()).fold(builder, |b, (g, k)| b.grid(g).kernel(k));
    let mut model = builder.build().unwrap();
    model.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
    let dense = DenseGp::new(&lattice, &kernels, SIGMA2, &data);
    // Not on a grid point, where second derivatives jump.
    let inside = [0.31, 0.57, 0.23, 0.78];
    for outside in [vec![0], vec![1], vec![3], vec![0, 2], vec![0, 1, 3]] {
        let mut h = inside;
        outside.iter().for_each(|&k| h[k] = 40.0);
        // Weights of points far away vanish, and with them all covariances.
        let (mean, covariance) = dense.predict(&[weights(&lattice, &h)]);
        let block = |k: usize| [0, 1, 1, 2][k];
        let mut blocks: Vec<usize> = outside.iter().map(|&k| block(k)).collect();
        blocks.dedup();
        let prior: f64 = blocks.iter().map(|&b| kernels[b].variance()).sum();
        let p = model.predict(&h).unwrap();
        close(p.mean, mean[0], 1e-9, "mean");
        close(p.variance, covariance[(0, 0)] + prior, 1e-9, "variance");
        let gradient = model.predict_gradient(&h).unwrap();
        assert_eq!(gradient.prediction, p);
        for k in 0..4 {
            let at = |step: f64| {
                let mut moved = h;
                moved[k] += step;
                model.predict(&moved).unwrap()
            };
            let slope = |f: &dyn Fn(f64) -> f64| (8.0 * (f(1e-4) - f(-1e-4)) - (f(2e-4) - f(-2e-4))) / 12e-4;
            close(gradient.mean[k], slope(&|t| at(t).mean), 1e-8, "slope of the mean");
            close(gradient.variance[k], slope(&|t| at(t).variance), 1e-8, "slope of the variance");
        }
    }
}

#[test]
fn a_refit_ends_with_the_posterior_of_its_hyperparameters() {
    let data = Data::random(200, 2, true, 4);
    for engine in [Engine::Dense, Engine::Sparse] {
        let mut model = model(engine, OffGrid::Error);
        model.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
        let space = HyperSpace::new(&model.hyperparameters());
        // Stopped at any time: after a full step, within a line search, at the start.
        for evaluations in [1, 2, 3, 5, 9, 40] {
            let before = model.evidence().unwrap().value;
            let optimizer = LbfgsB { max_evaluations: evaluations, ..LbfgsB::default() };
            let minimum = model.refit(&space, &optimizer).unwrap();
            let value = -minimum.value * model.count();
            close(model.evidence().unwrap().value, value, 1e-12, "evidence");
            assert!(value >= before - 1e-9 * before.abs());
            let mut fresh = model.clone();
            fresh.refactorize().unwrap();
            for h in data.rows().take(5) {
                assert_eq!(model.predict(h).unwrap(), fresh.predict(h).unwrap(), "{evaluations}");
            }
        }
    }
}

/// Another unit of the targets leaves F as it is; that is the posterior computed anew, and a file goes on from it to
/// the last bit.
#[test]
fn rescaled_targets_need_no_factorization() {
    let data = Data::random(160, 2, true, 6);
    let kernel = Kernel::rbf(&[0.4, 0.6]).unwrap() + Kernel::matern32(&[0.9, 0.7]).unwrap().scaled(0.3);
    // Some rows wait for the factor when the rank is large.
    for points in [[12, 11], [25, 20]] {
        let mut model =
            Wiski::builder().grid(unit_grid(&points)).kernel(kernel.clone()).noise(SIGMA2).build().unwrap();
        for (h, y, noise) in data.triples().take(100) {
            model.observe_noisy(h, y, noise).unwrap();
        }
        model.rescale_targets(0.7, 2.5).unwrap();
        let mut fresh = model.clone();
        fresh.refactorize().unwrap();
        let mut again: Wiski = persist::from_bytes(&persist::to_bytes(&model).unwrap()).unwrap();
        for (h, y, noise) in data.triples().skip(100) {
            let (p, q) = (model.predict(h).unwrap(), fresh.predict(h).unwrap());
            close(p.mean, q.mean, 1e-10, "mean");
            close(p.variance / q.variance, 1.0, 1e-9, "variance");
            assert_eq!(p, again.predict(h).unwrap());
            for model in [&mut model, &mut fresh, &mut again] {
                model.observe_noisy(h, (y - 0.7) / 2.5, noise).unwrap();
            }
        }
        // The evidence in the new unit: every row's density has grown by the factor.
        let mut plain =
            Wiski::builder().grid(unit_grid(&points)).kernel(kernel.clone()).noise(SIGMA2).build().unwrap();
        plain
            .observe_batch(&data.h, &data.y.iter().map(|y| y - 0.7).collect::<Vec<_>>(), Some(&data.noise))
            .unwrap();
        let want = plain.log_evidence().unwrap() + 160.0 * 2.5f64.ln();
        close(model.log_evidence().unwrap(), want, 1e-9, "evidence");
    }
}

/// Many rows with little noise see directions that a fixed share of the largest eigenvalue would drop.
#[test]
fn variances_are_exact_at_small_noise() {
    let (grid, kernel, noise) = (unit_grid(&[18, 18]), Kernel::rbf(&[0.5, 0.6]).unwrap(), 1e-9);
    let data = Data::random(4000, 2, false, 8);
    let build = |tolerance: Option<f64>| {
        let builder = Wiski::builder().grid(grid.clone()).kernel(kernel.clone()).noise(noise);
        tolerance.map_or(builder.clone(), |t| builder.rank_tolerance(t)).build().unwrap()
    };
    let mut model = build(None);
    model.observe_batch(&data.h, &data.y, None).unwrap();
    let kernels = [kernel.clone()];
    let posterior = |tolerance: f64| Evidence::new(model.stats(), &kernels, noise, tolerance).unwrap().1;
    let (all, plain, mut ws) = (posterior(0.0), posterior(1e-12), Workspace::default());
    let (mut worst, mut plainly) = (0.0_f64, 0.0_f64);
    for h in Data::random(200, 2, false, 1).rows() {
        let want = all.predict(h, &mut ws).unwrap().variance;
        worst = worst.max((model.predict(h).unwrap().variance / want - 1.0).abs());
        plainly = plainly.max((plain.predict(h, &mut ws).unwrap().variance / want - 1.0).abs());
    }
    assert!(plainly > 1e-3, "a cut-off of 1e-12 is off by {plainly:e}");
    assert!(worst < 1e-6, "off by {worst:e}");

    // The rank follows the rows, also where nothing else asks for a new factorization; and a file knows it.
    let mut stream = build(None);
    let first = stream.rank();
    for (h, y, _) in data.triples() {
        stream.observe(h, y).unwrap();
    }
    assert!(stream.rank() > first, "{} {first}", stream.rank());
    let mut again: Wiski = persist::from_bytes(&persist::to_bytes(&stream).unwrap()).unwrap();
    assert_eq!(again.rank(), stream.rank());
    for (h, y, _) in data.triples().take(20) {
        assert_eq!(again.step(h, y).unwrap(), stream.step(h, y).unwrap());
    }
    // What was asked for is kept.
    assert_eq!(build(Some(1e-6)).rank(), {
        let mut model = build(Some(1e-6));
        model.observe_batch(&data.h, &data.y, None).unwrap();
        model.rank()
    });
}

/// Four axes are no cliff: a grid a little larger than 7⁴ is factorized in a rank that few rows deserve, and says what
/// all directions of the prior would say.
#[test]
fn four_axes_are_factorized_in_a_rank_that_the_rows_deserve() {
    let data = Data::random(150, 4, false, 2);
    let [mut model, mut all] = [1e-12, 1.1e-12].map(|tolerance| {
        let grid = Grid::covering(&[(0.0, 1.0); 4], &[8, 7, 7, 7]).unwrap();
        let kernel = Kernel::rbf(&[0.6, 0.5, 0.7, 0.6]).unwrap();
        let builder = Wiski::builder().grid(grid).kernel(kernel).noise(0.1).rank_tolerance(tolerance);
        let mut model = builder.build().unwrap();
        model.observe_batch(&data.h, &data.y, None).unwrap();
        model
    });
    assert_eq!(model.engine(), "dense");
    assert!(model.rank() < 1100 && all.rank() > model.rank() + 500, "{} {}", model.rank(), all.rank());
    // n v₂ ≤ 10⁻² σ²: the evidence loses at most half of that, variances 10⁻² σ²/n and a ten thousandth.
    assert!((model.log_evidence().unwrap() - all.log_evidence().unwrap()).abs() < 5e-3);
    for h in Data::random(50, 4, false, 7).rows() {
        let (p, q) = (model.predict(h).unwrap(), all.predict(h).unwrap());
        assert!((p.mean - q.mean).abs() < 1e-2 * q.variance.sqrt(), "{p:?} {q:?}");
        assert!((p.variance - q.variance).abs() < 1e-5 + 1e-4 * q.variance, "{p:?} {q:?}");
    }
}

/// Rows of four columns as they come, on the columns themselves: the stream of a small table.
#[test]
fn a_stream_of_four_columns_is_learned_on_all_of_them() {
    let (features, grid) = (Features::Identity, vec![7]);
    let settings = Settings { features, grid, warm_up: Some(60), ..Settings::default() };
    let mut model = OnlineRegressor::new(4, settings).unwrap();
    let data = Data::random(72, 4, false, 11);
    for (h, y, _) in data.triples() {
        model.step(h, y).unwrap();
    }
    assert_eq!(model.model().unwrap().engine(), "dense");
    assert!(model.metrics().rmse() < 0.5, "{}", model.metrics().rmse());
}
