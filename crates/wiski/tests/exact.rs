//! The engine equals a dense Gaussian process.

mod common;

use std::sync::Arc;

use common::*;
use wiski::internals::evidence::Evidence;
use wiski::internals::grid::Lattice;
use wiski::internals::posterior::{Posterior, Workspace};
use wiski::internals::prior::Prior;
use wiski::{Kernel, Stats};

/// Keep every eigenvalue above rounding noise.
const ALL: f64 = 1e-16;
const SIGMA2: f64 = 0.05;

fn learned(lattice: &Lattice, data: &Data) -> Stats {
    let mut stats = Stats::new(lattice.clone());
    for (h, y, d) in data.triples() {
        stats.observe(h, y, d).unwrap();
    }
    stats
}

/// Mean, variance, covariance and evidence against the dense twin, to 1e-9. The dense factorization has
/// condition number n s/σ² < 1e4, so rounding alone is near 1e-12.
fn compare(lattice: &Lattice, kernels: &[Kernel], data: &Data, what: &str) {
    let stats = learned(lattice, data);
    let (evidence, posterior) = Evidence::new(&stats, kernels, SIGMA2, ALL).unwrap();
    let dense = DenseGp::new(lattice, kernels, SIGMA2, data);
    close(evidence.value, dense.evidence(), 1e-9, what);

    let queries = Data::random(7, data.dim, false, 99);
    let w: Vec<Vec<f64>> = queries.rows().map(|h| weights(lattice, h)).collect();
    let (mean, covariance) = dense.predict(&w);
    let mut ws = Workspace::default();
    let (joint_mean, joint) = posterior.joint(&queries.h, &mut ws).unwrap();
    let predictor = posterior.predictor();
    for (i, h) in queries.rows().enumerate() {
        let direct = posterior.predict(h, &mut ws).unwrap();
        let fast = predictor.predict(h).unwrap();
        for p in [direct, fast] {
            close(p.mean, mean[i], 1e-9, what);
            close(p.variance, covariance[(i, i)], 1e-9, what);
            assert_eq!(p.noise, SIGMA2);
        }
        close(predictor.predict_mean(h).unwrap(), mean[i], 1e-9, what);
        close(joint_mean[i], mean[i], 1e-9, what);
        for j in 0..w.len() {
            close(joint[i * w.len() + j], covariance[(i, j)], 1e-9, what);
        }
    }
}

#[test]
fn every_kernel_and_dimension_equals_the_dense_process() {
    let shapes: [&[usize]; 4] = [&[16], &[9, 8], &[7, 8, 8], &[5, 4, 6, 5]];
    for (d, shape) in (1..).zip(shapes) {
        let lattice = Lattice::from(unit_grid(shape));
        for (i, kernel) in kernels(d).into_iter().enumerate() {
            let data = Data::random(60, d, i % 2 == 0, i as u64);
            compare(&lattice, std::slice::from_ref(&kernel), &data, &format!("{kernel}, d = {d}"));
            let data = Data::random(60, d, i % 2 == 1, 50 + i as u64);
            compare(&lattice, std::slice::from_ref(&kernel), &data, &format!("{kernel}, d = {d}"));
        }
    }
}

#[test]
fn several_grids_side_by_side_equal_the_dense_process() {
    let lattice = Lattice::new(vec![unit_grid(&[8, 9]), unit_grid(&[12]), unit_grid(&[5, 4, 5])]).unwrap();
    let lengths = [0.4, 0.5, 0.6];
    let kernels = [
        Kernel::rbf(&lengths[..2]).unwrap(),
        Kernel::matern32(&lengths[..1]).unwrap() + Kernel::periodic(&[1.0], &[0.5]).unwrap().scaled(0.4),
        Kernel::matern52(&lengths).unwrap().scaled(0.6),
    ];
    compare(&lattice, &kernels, &Data::random(70, 6, true, 3), "three blocks");
}

#[test]
fn dropping_eigenvalues_errs_by_no_more_than_is_reported() {
    let lattice = Lattice::from(unit_grid(&[14, 14]));
    let kernel = [Kernel::rbf(&[0.5, 0.6]).unwrap()];
    let data = Data::random(200, 2, false, 4);
    let stats = learned(&lattice, &data);
    let mut ws = Workspace::default();
    let full = Evidence::new(&stats, &kernel, SIGMA2, ALL).unwrap().1;
    let mut last_rank = usize::MAX;
    for tolerance in [1e-12, 1e-9, 1e-6, 1e-4] {
        let prior = Arc::new(Prior::new(&lattice, &kernel, tolerance).unwrap());
        let posterior = Posterior::new(prior.clone(), &stats, SIGMA2).unwrap();
        assert!(posterior.rank() < last_rank);
        last_rank = posterior.rank();
        // The prior variance of f(x) loses at most ‖w‖² times the largest dropped eigenvalue, and ‖w‖ ≤ 1.3;
        // the trace of what was dropped is m times what is reported.
        let dropped = 196.0 * prior.dropped_variance();
        for h in Data::random(50, 2, false, 5).rows() {
            let (a, b) = (full.predict(h, &mut ws).unwrap(), posterior.predict(h, &mut ws).unwrap());
            assert!((a.variance - b.variance).abs() <= 2.0 * dropped + 1e-12, "{tolerance}: {a:?} {b:?}");
        }
    }
}

/// Against the exact process with the true kernel (no interpolation) the error falls at the order of the
/// interpolation, O(h³), as the grid is refined.
#[test]
fn refining_the_grid_converges_to_the_exact_process_at_third_order() {
    let kernel = Kernel::rbf(&[0.3]).unwrap();
    let data = Data::random(40, 1, false, 8);
    let queries = Data::random(60, 1, false, 9);
    let exact = {
        let all: Vec<f64> = data.h.iter().chain(&queries.h).copied().collect();
        // The dense twin with W = identity rows: every point is its own "grid point".
        let unit = |i: usize| (0..all.len()).map(|j| f64::from(u8::from(i == j))).collect::<Vec<_>>();
        let gp = DenseGp {
            w: faer::Mat::from_fn(40, all.len(), |i, j| unit(i)[j]),
            k: faer::Mat::from_fn(all.len(), all.len(), |i, j| kernel.covariance(&[all[i] - all[j]])),
            noise: vec![SIGMA2; 40],
            y: data.y.clone(),
        };
        let w: Vec<_> = (40..100).map(unit).collect();
        gp.predict(&w)
    };
    let mut errors = Vec::new();
    for points in [23, 43, 83] {
        let lattice = Lattice::from(unit_grid(&[points]));
        let posterior =
            Evidence::new(&learned(&lattice, &data), std::slice::from_ref(&kernel), SIGMA2, ALL).unwrap().1;
        let mut ws = Workspace::default();
        let mut worst: (f64, f64) = (0.0, 0.0);
        for (i, h) in queries.rows().enumerate() {
            let p = posterior.predict(h, &mut ws).unwrap();
            worst.0 = worst.0.max((p.mean - exact.0[i]).abs());
            worst.1 = worst.1.max((p.variance - exact.1[(i, i)]).abs());
        }
        errors.push(worst);
    }
    for pair in errors.windows(2) {
        // Twice as fine: eight times smaller at third order.
        assert!(pair[0].0 / pair[1].0 > 6.0, "{errors:?}");
        assert!(pair[0].1 / pair[1].1 > 6.0, "{errors:?}");
    }
    assert!(errors[2].0 < 1e-4 && errors[2].1 < 1e-5, "{errors:?}");
}

/// Samples u = a + V ξ with ξ running over unit vectors rebuild the posterior covariance exactly.
#[test]
fn function_samples_have_the_posterior_covariance() {
    let lattice = Lattice::from(unit_grid(&[9, 9]));
    let data = Data::random(50, 2, true, 12);
    let stats = learned(&lattice, &data);
    let (_, mut posterior) =
        Evidence::new(&stats, &[Kernel::rbf(&[0.4, 0.5]).unwrap()], SIGMA2, ALL).unwrap();
    let mut ws = Workspace::default();
    // Also after conditioning, when the factor is no longer triangular.
    for round in 0..2 {
        let (x, y) = ([0.3, 0.4], [0.8, 0.1]);
        let p = posterior.rank();
        let mean = posterior.sample(&vec![0.0; p]).unwrap();
        let (joint_mean, joint) = posterior.joint(&[x, y].concat(), &mut ws).unwrap();
        close(mean.value(&x).unwrap(), joint_mean[0], 1e-12, "mean");
        let mut sum = 0.0;
        for i in 0..p {
            let mut xi = vec![0.0; p];
            xi[i] = 1.0;
            let f = posterior.sample(&xi).unwrap();
            sum += (f.value(&x).unwrap() - joint_mean[0]) * (f.value(&y).unwrap() - joint_mean[1]);
        }
        close(sum, joint[1], 1e-12, &format!("covariance, round {round}"));
        posterior.condition(&[0.5, 0.5], 1.0, 0.7, &mut ws).unwrap();
    }
    let draws: Vec<f64> = (0..4000)
        .map(|i| posterior.sample_with(&mut rng(i)).unwrap().value(&[0.05, 0.95]).unwrap())
        .collect();
    let want = posterior.predict(&[0.05, 0.95], &mut ws).unwrap();
    let mean = draws.iter().sum::<f64>() / 4000.0;
    let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / 3999.0;
    // Five standard errors.
    assert!((mean - want.mean).abs() < 5.0 * (want.variance / 4000.0).sqrt());
    assert!((variance / want.variance - 1.0).abs() < 5.0 * (2.0 / 3999.0f64).sqrt());
}
