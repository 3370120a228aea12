//! Engines for large grids against the factorizing one, on grids that both can do.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::grid::Grid;
use wiski::large::{Accuracy, KrylovPosterior};
use wiski::posterior::Workspace;
use wiski::prior::Prior;
use wiski::{Evidence, Kernel, Posterior, Stats};

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

#[test]
fn conjugate_gradients_give_the_posterior_of_the_factorization() {
    for (stats, kernel) in cases() {
        let (_, dense) = exact(&stats, &kernel);
        let posterior = KrylovPosterior::new(&stats, &kernel, NOISE, &Accuracy::default()).unwrap();
        assert!(posterior.convergence().residual <= 1e-8);
        let (d, mut ws) = (stats.lattice().dim(), Workspace::default());
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
        println!("{:?} {} iterations", stats.lattice().len(), posterior.convergence().iterations);
    }
}

#[test]
fn quadrature_gives_evidence_and_gradient() {
    // Many probes, so that what is left is the error of the formulas.
    let accuracy = Accuracy { probes: 512, probe_tolerance: 1e-8, ..Accuracy::default() };
    for (stats, kernel) in cases() {
        let (want, _) = exact(&stats, &kernel);
        for accuracy in [&Accuracy::default(), &accuracy] {
            let posterior = KrylovPosterior::new(&stats, &kernel, NOISE, accuracy).unwrap();
            let (got, convergence) = posterior.evidence(&stats, &kernel).unwrap();
            let error = (got.value - want.value).abs();
            println!(
                "value {} {} ± {}, gradient {:?} {:?}, noise {} {}",
                got.value, want.value, convergence.log_det_error, got.by_kernel, want.by_kernel,
                got.by_noise, want.by_noise
            );
            assert!(error < 1e-3 * want.value.abs(), "{} {}", got.value, want.value);
            assert!(error <= 4.0 * convergence.log_det_error + 1e-6 * want.value.abs());
        }
    }
}
