//! Every gradient against differences of the function itself.

mod common;

use common::*;
use wiski::internals::evidence::Evidence;
use wiski::internals::grid::Lattice;
use wiski::internals::posterior::Workspace;
use wiski::{Kernel, Stats};

const SIGMA2: f64 = 0.05;
/// The default cut-off: the gradient neglects what couples to dropped eigenvectors, and the test must see it.
const CUTOFF: f64 = 1e-12;

fn learned(lattice: &Lattice, data: &Data) -> Stats {
    let mut stats = Stats::new(lattice.clone());
    stats.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
    stats
}

/// A four-point central difference: O(h⁴) truncation, eps/h rounding.
fn difference(mut f: impl FnMut(f64) -> f64, x: f64, h: f64) -> f64 {
    (8.0 * (f(x + h) - f(x - h)) - (f(x + 2.0 * h) - f(x - 2.0 * h))) / (12.0 * h)
}

fn compare(lattice: &Lattice, kernels: &[Kernel], data: &Data, what: &str) {
    let stats = learned(lattice, data);
    let (evidence, _) = Evidence::new(&stats, kernels, SIGMA2, CUTOFF).unwrap();
    // The differences are of the evidence without cut-off: its jumps, where an eigenvalue falls below the
    // cut-off, are not part of the gradient.
    let at = |kernels: &[Kernel], noise: f64| Evidence::new(&stats, kernels, noise, 1e-16).unwrap().0.value;
    let numeric = difference(|noise| at(kernels, noise), SIGMA2, 1e-3 * SIGMA2);
    close(evidence.by_noise, numeric, 1e-6, &format!("{what}: noise"));
    for j in 0..kernels.len() {
        let parameters = kernels[j].parameters();
        for (i, name) in kernels[j].parameter_names().iter().enumerate() {
            let moved = |value: f64| {
                let mut kernels = kernels.to_vec();
                let mut p = parameters.clone();
                p[i] = value;
                kernels[j].set_parameters(&p).unwrap();
                at(&kernels, SIGMA2)
            };
            let numeric = difference(moved, parameters[i], 2e-4 * parameters[i]);
            close(evidence.by_kernel[j][i], numeric, 1e-6, &format!("{what}: {name}"));
        }
    }
}

#[test]
fn evidence_in_every_hyperparameter_of_every_kernel() {
    let shapes: [&[usize]; 4] = [&[18], &[10, 9], &[6, 7, 9], &[4, 4, 5, 4]];
    for (d, shape) in (1..).zip(shapes) {
        let lattice = Lattice::from(unit_grid(shape));
        for (i, kernel) in kernels(d).into_iter().enumerate() {
            let data = Data::random(80, d, i % 2 == 0, i as u64);
            compare(&lattice, std::slice::from_ref(&kernel), &data, &format!("{kernel}, d = {d}"));
        }
    }
}

#[test]
fn evidence_with_several_grids() {
    let lattice = Lattice::new(vec![unit_grid(&[8, 9]), unit_grid(&[12])]).unwrap();
    let kernels = [
        Kernel::rbf(&[0.4, 0.5]).unwrap(),
        Kernel::matern32(&[0.3]).unwrap() + Kernel::periodic(&[1.0], &[0.5]).unwrap().scaled(0.4),
    ];
    compare(&lattice, &kernels, &Data::random(90, 3, true, 3), "two blocks");
}

/// The gradient in each interpolation weight of a data point, against the dense process whose W is changed.
#[test]
fn evidence_in_the_interpolation_weights() {
    let lattice = Lattice::new(vec![unit_grid(&[7, 6]), unit_grid(&[8])]).unwrap();
    let kernels = [Kernel::rbf(&[0.4, 0.5]).unwrap(), Kernel::matern52(&[0.3]).unwrap()];
    let data = Data::random(40, 3, true, 5);
    let (_, posterior) = Evidence::new(&learned(&lattice, &data), &kernels, SIGMA2, CUTOFF).unwrap();
    let mut dense = DenseGp::new(&lattice, &kernels, SIGMA2, &data);
    let mut ws = Workspace::default();
    for (row, (h, y, d)) in data.triples().enumerate().take(3) {
        let gradient = posterior.weight_gradient(h, y, d, &mut ws).unwrap();
        for i in 0..lattice.len() {
            let w = dense.w[(row, i)];
            let moved = |value: f64| {
                dense.w[(row, i)] = value;
                dense.evidence()
            };
            let numeric = difference(moved, w, 1e-4);
            dense.w[(row, i)] = w;
            close(gradient[i], numeric, 1e-6, &format!("row {row}, weight {i}"));
        }
    }
}

/// Moving a data point, and moving a new point: chained with the derivative of the weights.
#[test]
fn evidence_and_predictive_density_in_the_coordinates() {
    let lattice = Lattice::new(vec![unit_grid(&[9, 8]), unit_grid(&[10])]).unwrap();
    let kernels = [Kernel::rbf(&[0.4, 0.5]).unwrap(), Kernel::matern32(&[0.3]).unwrap()];
    let data = Data::random(60, 3, false, 6);
    let (_, posterior) = Evidence::new(&learned(&lattice, &data), &kernels, SIGMA2, CUTOFF).unwrap();
    let mut ws = Workspace::default();
    for row in 0..4 {
        let h: Vec<f64> = data.rows().nth(row).unwrap().to_vec();
        let at_point = posterior.predict_gradient(&h, &mut ws).unwrap();
        let fast = posterior.predictor().predict_gradient(&h).unwrap();
        for k in 0..3 {
            close(fast.mean[k], at_point.mean[k], 1e-11, "mean from the grid");
            close(fast.variance[k], at_point.variance[k], 1e-11, "variance from the grid");
        }
        let (of_evidence, of_density) = (at_point.of_evidence(data.y[row]), at_point.of_log_density(0.3));
        for k in 0..3 {
            let mut moved = data.clone();
            let evidence = |x: f64| {
                moved.h[row * 3 + k] = x;
                Evidence::new(&learned(&lattice, &moved), &kernels, SIGMA2, 1e-16).unwrap().0.value
            };
            // Small enough to stay inside the cell: across a grid point third derivatives jump.
            close(of_evidence[k], difference(evidence, h[k], 1e-5), 1e-6, &format!("row {row}, axis {k}"));
            let mut point = h.clone();
            let density = |x: f64| {
                point[k] = x;
                posterior.predict(&point, &mut ws).unwrap().log_density(0.3)
            };
            close(of_density[k], difference(density, h[k], 1e-5), 1e-7, &format!("density, axis {k}"));
        }
    }
}

/// Kernels of low rank turn their eigenvectors out of the kept space: periods near a multiple of the spacing,
/// periods shorter than the data, long length-scales. The differences are of the dense process.
#[test]
fn evidence_of_kernels_of_low_rank() {
    let log_gradients = |shape: &[usize], kernel: &Kernel, noise: f64| {
        let lattice = Lattice::from(unit_grid(shape));
        let data = Data::random(80, shape.len(), false, 5);
        let (evidence, _) =
            Evidence::new(&learned(&lattice, &data), std::slice::from_ref(kernel), noise, CUTOFF).unwrap();
        for (i, name) in kernel.parameter_names().iter().enumerate() {
            let p = kernel.parameters();
            let dense = |log_factor: f64| {
                let mut moved = kernel.clone();
                let mut q = p.clone();
                q[i] *= log_factor.exp();
                moved.set_parameters(&q).unwrap();
                DenseGp::new(&lattice, &[moved], noise, &data).evidence()
            };
            // Rank changes with the period, so the evidence bends sharply: small steps, and the dense
            // process resolves 1e-11 of |evidence| ≈ 1e3.
            let numeric = difference(dense, 0.0, 2e-5);
            close(
                evidence.by_kernel[0][i] * p[i],
                numeric,
                1e-4,
                &format!("{kernel} {p:?} {shape:?}: {name}"),
            );
        }
    };
    for period in [0.2256, 0.31, 0.4, 0.52, 0.87] {
        for length in [0.7, 3.0] {
            log_gradients(&[26], &Kernel::periodic(&[length], &[period]).unwrap(), 1e-2);
        }
        log_gradients(&[19], &Kernel::cosine(&[period]).unwrap(), 1e-2);
        log_gradients(&[9, 10], &Kernel::periodic(&[1.5, 2.0], &[period, 0.6]).unwrap(), 1e-2);
    }
    log_gradients(&[26], &Kernel::rational_quadratic(&[8.7], &[0.8]).unwrap(), 1e-2);
    log_gradients(&[4, 4, 4, 4], &Kernel::periodic(&[2.0; 4], &[0.9; 4]).unwrap(), 1e-2);
}

/// The paper's root has a gradient too.
#[test]
fn evidence_of_a_low_rank_root() {
    let lattice = Lattice::from(unit_grid(&[8, 9]));
    let data = Data::random(120, 2, true, 9);
    let mut stats = Stats::low_rank(lattice, 40).unwrap();
    stats.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
    let kernel = Kernel::rbf(&[0.4, 0.5]).unwrap();
    let evidence = Evidence::new(&stats, std::slice::from_ref(&kernel), SIGMA2, CUTOFF).unwrap().0;
    for i in 0..3 {
        let p = kernel.parameters();
        let at = |value: f64| {
            let mut moved = kernel.clone();
            let mut q = p.clone();
            q[i] = value;
            moved.set_parameters(&q).unwrap();
            Evidence::new(&stats, &[moved], SIGMA2, 1e-16).unwrap().0.value
        };
        close(evidence.by_kernel[0][i], difference(at, p[i], 2e-4 * p[i]), 1e-6, &format!("parameter {i}"));
    }
}

/// How much the cut-off itself costs: the gradient at the default cut-off equals the one without to 1e-6.
#[test]
fn the_default_cut_off_does_not_move_the_gradient() {
    let lattice = Lattice::from(unit_grid(&[16, 16]));
    let data = Data::random(3000, 2, false, 7);
    let stats = learned(&lattice, &data);
    for kernel in [Kernel::rbf(&[0.3, 0.4]).unwrap(), Kernel::rbf(&[1.0, 0.9]).unwrap()] {
        let full = Evidence::new(&stats, std::slice::from_ref(&kernel), SIGMA2, 1e-16).unwrap();
        let cut = Evidence::new(&stats, &[kernel], SIGMA2, CUTOFF).unwrap();
        assert!(cut.1.rank() < full.1.rank());
        close(cut.0.value, full.0.value, 1e-9, "value");
        close(cut.0.by_noise, full.0.by_noise, 1e-9, "noise");
        for (a, b) in cut.0.by_kernel[0].iter().zip(&full.0.by_kernel[0]) {
            close(*a, *b, 1e-6, "kernel");
        }
    }
}
