//! The sparse engine against the dense process, against the dense engine, and against its own definition.

mod common;

use common::*;
use rand::RngExt;
use wiski::internals::evidence::Evidence;
use wiski::internals::grid::Lattice;
use wiski::internals::large::sparse::SparsePosterior;
use wiski::internals::posterior::Posterior;
use wiski::{Axis, Error, Family, Grid, Kernel, Stats};

const SIGMA2: f64 = 0.05;

/// Uneven axes, from one front to many, d = 1 … 4.
const SHAPES: [&[usize]; 9] =
    [&[6], &[31], &[190], &[5, 8], &[9, 31], &[22, 17], &[6, 7, 5], &[5, 12, 7], &[4, 5, 4, 4]];

/// Matérn ½ on all shapes, smoother kernels where the grid is not too fine for them, and mixtures over the axes.
fn cases() -> Vec<(&'static [usize], Kernel)> {
    let mut cases: Vec<_> = SHAPES.into_iter().map(|shape| (shape, kernel(shape.len()))).collect();
    let on = |family, axis| Kernel::on_axes(family, 2, &[axis]).unwrap();
    let mut mixed = on(Family::Matern12, 0) * on(Family::Matern52, 1);
    mixed.set_parameters(&[1.7, 0.3, 0.2]).unwrap();
    cases.extend([
        (&[6][..], Kernel::matern32(&[0.4]).unwrap().scaled(1.7)),
        (&[45], Kernel::matern32(&[0.3]).unwrap().scaled(1.7)),
        (&[150], Kernel::matern32(&[0.05]).unwrap().scaled(1.7)),
        (&[31], Kernel::matern52(&[0.2]).unwrap().scaled(1.7)),
        (&[120], Kernel::matern52(&[0.03]).unwrap().scaled(1.7)),
        (&[9, 14], Kernel::matern32(&[0.2, 0.15]).unwrap().scaled(1.7)),
        (&[8, 13], Kernel::matern52(&[0.2, 0.15]).unwrap().scaled(1.7)),
        (&[20, 11], mixed),
        (&[5, 6, 5], Kernel::matern32(&[0.4, 0.3, 0.4]).unwrap().scaled(1.7)),
    ]);
    cases
}

fn kernel(d: usize) -> Kernel {
    Kernel::matern12(&[0.4, 0.75, 0.3, 0.5][..d]).unwrap().scaled(1.7)
}

/// Data with known noise that leave half of every axis empty for every other case.
fn data(d: usize, uneven: bool) -> Data {
    let mut data = Data::random(70, d, true, 11 + d as u64);
    if uneven {
        data.h.iter_mut().for_each(|x| *x = 0.5 * *x * *x);
    }
    data
}

fn learned(lattice: &Lattice, data: &Data) -> Stats {
    let mut stats = Stats::new(lattice.clone());
    stats.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
    stats
}

fn unit(m: usize, i: usize) -> Vec<f64> {
    let mut unit = vec![0.0; m];
    unit[i] = 1.0;
    unit
}

#[test]
fn equals_the_dense_process() {
    for (case, (shape, kernel)) in cases().into_iter().enumerate() {
        let (d, what) = (shape.len(), format!("{kernel} on {shape:?}"));
        let lattice = Lattice::from(unit_grid(shape));
        let (m, data) = (lattice.len(), data(d, case % 2 == 0));
        let stats = learned(&lattice, &data);
        let sparse = SparsePosterior::new(&stats, &kernel, SIGMA2).unwrap();
        let dense = DenseGp::new(&lattice, std::slice::from_ref(&kernel), SIGMA2, &data);

        let units: Vec<Vec<f64>> = (0..m).map(|i| unit(m, i)).collect();
        let (mean, covariance) = dense.predict(&units);
        assert!(sparse.correction() < 1e-9, "{what}: {}", sparse.correction());
        for i in 0..m {
            close(sparse.mean()[i], mean[i], 1e-10, &format!("{what}: mean {i}"));
        }
        // H⁻¹ by columns.
        for i in (0..m).step_by(7) {
            let mut column = unit(m, i);
            sparse.solve(&mut column).unwrap();
            for j in 0..m {
                close(column[j], covariance[(i, j)], 1e-10, &format!("{what}: solve {i}, {j}"));
            }
        }
        close(sparse.log_evidence(&stats).unwrap(), dense.evidence(), 1e-11, &what);

        // Predictions read every kind of entry of the selected inverse.
        let predictor = sparse.predictor();
        let mut rng = rng(5);
        for _ in 0..40 {
            let h: Vec<f64> = (0..d).map(|_| rng.random()).collect();
            let (mean, covariance) = dense.predict(&[weights(&lattice, &h)]);
            let prediction = predictor.predict(&h).unwrap();
            close(prediction.mean, mean[0], 1e-10, &what);
            close(prediction.variance, covariance[(0, 0)], 1e-10, &what);
            assert_eq!(prediction.noise, SIGMA2);
        }
    }
}

#[test]
fn equals_the_dense_engine() {
    for (case, (shape, kernel)) in cases().into_iter().enumerate() {
        let (d, what) = (shape.len(), format!("{kernel} on {shape:?}"));
        let lattice = Lattice::from(unit_grid(shape));
        let stats = learned(&lattice, &data(d, case % 2 == 1));
        let sparse = SparsePosterior::new(&stats, &kernel, SIGMA2).unwrap();
        let (want, posterior) = Evidence::new(&stats, std::slice::from_ref(&kernel), SIGMA2, 0.0).unwrap();
        let got = sparse.evidence(&stats).unwrap();
        close(got.value, want.value, 1e-11, &what);
        close(got.by_noise, want.by_noise, 1e-10, &what);
        for (name, (g, w)) in
            kernel.parameter_names().iter().zip(got.by_kernel[0].iter().zip(&want.by_kernel[0]))
        {
            close(*g, *w, 1e-9, &format!("{what}: {name}"));
        }
        agree_everywhere(&sparse, &posterior, &what);
    }
}

fn agree_everywhere(sparse: &SparsePosterior, posterior: &Posterior, what: &str) {
    let (a, b) = (sparse.predictor(), posterior.predictor());
    let d = sparse.lattice().dim();
    let mut rng = rng(8);
    for _ in 0..200 {
        let h: Vec<f64> = (0..d).map(|_| rng.random()).collect();
        let (a, b) = (a.predict_gradient(&h).unwrap(), b.predict_gradient(&h).unwrap());
        close(a.prediction.mean, b.prediction.mean, 1e-10, what);
        close(a.prediction.variance, b.prediction.variance, 1e-10, what);
        for k in 0..d {
            close(a.mean[k], b.mean[k], 1e-9, what);
            close(a.variance[k], b.variance[k], 1e-9, what);
        }
    }
}

#[test]
fn gradients_equal_difference_quotients() {
    let product = |d: usize| kernel(d) * Kernel::matern12(&[0.9, 0.6, 1.5][..d]).unwrap();
    let cases =
        [(&[140][..], kernel(1)), (&[21, 16], kernel(2)), (&[6, 14, 7], kernel(3)), (&[13, 15], product(2))];
    for (shape, kernel) in cases {
        let lattice = Lattice::from(unit_grid(shape));
        let stats = learned(&lattice, &data(shape.len(), true));
        let evidence = SparsePosterior::new(&stats, &kernel, SIGMA2).unwrap().evidence(&stats).unwrap();
        // O(h⁴) truncation, eps/h rounding.
        let difference = |f: &dyn Fn(f64) -> f64, x: f64| {
            let h = 2e-3 * x;
            (8.0 * (f(x + h) - f(x - h)) - (f(x + 2.0 * h) - f(x - 2.0 * h))) / (12.0 * h)
        };
        let value = |kernel: &Kernel, noise: f64| {
            SparsePosterior::new(&stats, kernel, noise).unwrap().log_evidence(&stats).unwrap()
        };
        let what = format!("{shape:?}");
        close(evidence.by_noise, difference(&|noise| value(&kernel, noise), SIGMA2), 1e-7, &what);
        let parameters = kernel.parameters();
        for (i, name) in kernel.parameter_names().iter().enumerate() {
            let moved = |x: f64| {
                let (mut kernel, mut p) = (kernel.clone(), parameters.clone());
                p[i] = x;
                kernel.set_parameters(&p).unwrap();
                value(&kernel, SIGMA2)
            };
            let numeric = difference(&moved, parameters[i]);
            close(evidence.by_kernel[0][i], numeric, 1e-7, &format!("{what}: {name}"));
        }
    }
}

/// L⁻ᵀ applied to all unit vectors is a root of the covariance.
#[test]
fn samples_have_the_posterior_covariance() {
    for shape in [&[60][..], &[11, 14], &[5, 11, 7]] {
        let d = shape.len();
        let lattice = Lattice::from(unit_grid(shape));
        let (m, stats) = (lattice.len(), learned(&lattice, &data(d, false)));
        let sparse = SparsePosterior::new(&stats, &kernel(d), SIGMA2).unwrap();
        let root: Vec<Vec<f64>> = (0..m)
            .map(|i| sparse.sample(&unit(m, i)).unwrap().grid_values().to_vec())
            .map(|values| values.iter().zip(sparse.mean()).map(|(v, a)| v - a).collect())
            .collect();
        for i in (0..m).step_by(5) {
            let mut column = unit(m, i);
            sparse.solve(&mut column).unwrap();
            for j in 0..m {
                let product: f64 = root.iter().map(|r| r[i] * r[j]).sum();
                close(product, column[j], 1e-11, &format!("{shape:?}: {i}, {j}"));
            }
        }
        let zero = sparse.sample(&vec![0.0; m]).unwrap();
        assert_eq!(zero.grid_values(), sparse.mean());
        let drawn = sparse.sample_with(&mut rng(1)).unwrap();
        assert!(drawn.grid_values().iter().all(|v| v.is_finite()));
    }
}

/// Grids far beyond the dense engine: the selected inverse against solves.
#[test]
fn large_grids_agree_with_solves() {
    let cases = [
        (&[120, 90][..], kernel(2), 3000),
        (&[20_000], kernel(1), 4000),
        (&[14, 22, 18], kernel(3), 2000),
        (&[20_000], Kernel::matern32(&[0.0005]).unwrap(), 4000),
        (&[45, 60], Kernel::matern32(&[0.1, 0.1]).unwrap(), 2000),
    ];
    for (shape, kernel, n) in cases {
        let d = shape.len();
        let lattice = Lattice::from(unit_grid(shape));
        let m = lattice.len();
        let mut data = Data::random(n, d, true, 3);
        data.h.iter_mut().step_by(2).for_each(|x| *x *= 0.6); // a region without data
        let stats = learned(&lattice, &data);
        let sparse = SparsePosterior::new(&stats, &kernel, SIGMA2).unwrap();
        assert!(sparse.correction() < 1e-9, "{shape:?}: {}", sparse.correction());

        let mut rng = rng(2);
        let predictor = sparse.predictor();
        for _ in 0..5 {
            let h: Vec<f64> = (0..d).map(|_| rng.random()).collect();
            let w = weights(&lattice, &h);
            let mut z = w.clone();
            sparse.solve(&mut z).unwrap();
            let variance: f64 = w.iter().zip(&z).map(|(w, z)| w * z).sum();
            let mean: f64 = w.iter().zip(sparse.mean()).map(|(w, a)| w * a).sum();
            let prediction = predictor.predict(&h).unwrap();
            close(prediction.variance / variance, 1.0, 1e-9, &format!("{shape:?}: variance"));
            close(prediction.mean, mean, 1e-12, &format!("{shape:?}: mean"));
        }
        // Scaling kernel and noise together is known in closed form: the whole gradient at this size.
        let evidence = sparse.evidence(&stats).unwrap();
        let got = 2.0 * (kernel.variance() * evidence.by_kernel[0][0] + SIGMA2 * evidence.by_noise);
        let fit: f64 = sparse.mean().iter().zip(stats.b()).map(|(a, b)| a * b).sum();
        let want = (stats.c() - fit) / SIGMA2 - stats.count();
        assert!((got - want).abs() < 1e-9 * m as f64, "{shape:?}: {got} {want}");
        let cost = SparsePosterior::cost(&lattice.grids()[0], sparse.kernel()).unwrap();
        assert_eq!(cost.entries, sparse.factor_entries());
    }
}

#[test]
fn memory_used_again_changes_nothing() {
    let lattice = Lattice::from(unit_grid(&[25, 18]));
    let (first, second) = (learned(&lattice, &data(2, true)), learned(&lattice, &data(2, false)));
    let other = Kernel::matern12(&[0.1, 2.0]).unwrap();
    let fresh = SparsePosterior::new(&second, &other, 0.3).unwrap();
    let renewed = SparsePosterior::new(&first, &kernel(2), SIGMA2).unwrap();
    renewed.covariance();
    let renewed = renewed.renewed(&second, &other, 0.3).unwrap();
    assert_eq!(renewed.mean(), fresh.mean());
    assert_eq!(renewed.evidence(&second).unwrap(), fresh.evidence(&second).unwrap());
    // Twelve values, and then six with their derivatives: as many unknowns, but another tree.
    let line = |points: usize| learned(&Lattice::from(unit_grid(&[points])), &data(1, true));
    let (twelve, six, smooth) = (line(12), line(6), Kernel::matern32(&[0.4]).unwrap());
    let moved = SparsePosterior::new(&twelve, &kernel(1), SIGMA2).unwrap();
    let moved = moved.renewed(&six, &smooth, SIGMA2).unwrap();
    assert_eq!(moved.mean(), SparsePosterior::new(&six, &smooth, SIGMA2).unwrap().mean());
    // Another grid needs another tree.
    let small = learned(&Lattice::from(unit_grid(&[12, 30])), &data(2, true));
    let moved = renewed.renewed(&small, &other, 0.3).unwrap();
    assert_eq!(moved.mean(), SparsePosterior::new(&small, &other, 0.3).unwrap().mean());
}

#[test]
fn no_data_gives_the_prior() {
    let lattice = Lattice::from(unit_grid(&[15, 20]));
    let stats = Stats::new(lattice.clone());
    let kernel = kernel(2);
    let sparse = SparsePosterior::new(&stats, &kernel, SIGMA2).unwrap();
    assert!(sparse.mean().iter().all(|&a| a == 0.0));
    let evidence = sparse.evidence(&stats).unwrap();
    close(evidence.value, 0.0, 1e-10, "evidence");
    evidence.by_kernel[0].iter().for_each(|g| close(*g, 0.0, 1e-9, "gradient"));
    let corner = lattice.grids()[0].axes().iter().map(Axis::lo).collect::<Vec<_>>();
    close(sparse.predictor().predict(&corner).unwrap().variance, kernel.variance(), 1e-11, "variance");
}

#[test]
fn rejects_what_is_not_sparse() {
    let plane = unit_grid(&[10, 12]);
    let stats = learned(&Lattice::from(plane.clone()), &data(2, false));
    let rejected = |stats: &Stats, kernel: &Kernel, noise: f64| {
        SparsePosterior::new(stats, kernel, noise).map(drop).unwrap_err()
    };
    let config = |error: &Error| matches!(error, Error::Config { field, .. } if field == "kernel");
    for kernel in [
        Kernel::rbf(&[1.0, 1.0]).unwrap(),
        Kernel::matern12(&[1.0, 1.0]).unwrap() + Kernel::matern12(&[0.1, 0.1]).unwrap(),
        Kernel::on_axes(Family::Matern12, 2, &[1]).unwrap(),
        Kernel::matern12(&[1e200, 1.0]).unwrap(),
    ] {
        let error = rejected(&stats, &kernel, SIGMA2);
        assert!(config(&error), "{kernel}: {error}");
    }
    assert!(matches!(rejected(&stats, &kernel(1), SIGMA2), Error::WrongLength { .. }));
    assert!(matches!(rejected(&stats, &kernel(2).scaled(f64::NAN), SIGMA2), Error::NotPositive { .. }));
    for noise in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(rejected(&stats, &kernel(2), noise), Error::NotPositive { .. }));
    }
    let root = Stats::low_rank(plane.clone(), 20).unwrap();
    assert!(matches!(rejected(&root, &kernel(2), SIGMA2), Error::Unsupported { .. }));
    let two = Lattice::new(vec![plane.clone(), Grid::covering(&[(0.0, 1.0)], &[9]).unwrap()]).unwrap();
    assert!(matches!(rejected(&Stats::new(two), &kernel(2), SIGMA2), Error::Unsupported { .. }));

    let sparse = SparsePosterior::new(&stats, &kernel(2), SIGMA2).unwrap();
    assert!(matches!(sparse.evidence(&Stats::new(plane)), Err(Error::Unsupported { .. })));
    assert!(matches!(sparse.solve(&mut [0.0; 3]), Err(Error::WrongLength { .. })));
    assert!(matches!(sparse.sample(&[0.0; 3]), Err(Error::WrongLength { .. })));
}

/// Ever longer length-scales bring the precision to where rounding decides. As long as there is a posterior it is
/// right; then there is an error.
#[test]
fn a_precision_singular_to_rounding_is_an_error() {
    let stats = learned(&Lattice::from(unit_grid(&[10, 12])), &data(2, false));
    let answers = [1.0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e10, 1e12].map(|length| {
        let kernel = Kernel::matern12(&[length, length]).unwrap();
        let sparse = match SparsePosterior::new(&stats, &kernel, SIGMA2) {
            Ok(sparse) => sparse,
            Err(Error::Unsupported { .. } | Error::NoConvergence { .. }) => return false,
            Err(other) => panic!("{length}: {other}"),
        };
        let (_, dense) = Evidence::new(&stats, std::slice::from_ref(&kernel), SIGMA2, 1e-16).unwrap();
        let (sparse, dense) = (sparse.predictor(), dense.predictor());
        for h in [[0.3, 0.6], [0.9, 0.1], [0.5, 0.5]] {
            let (got, want) = (sparse.predict(&h).unwrap(), dense.predict(&h).unwrap());
            close(got.mean, want.mean, 1e-9, &format!("mean at {length}"));
            close(got.variance / want.variance, 1.0, 1e-5, &format!("variance at {length}"));
        }
        true
    });
    assert!(answers[..3].iter().all(|&a| a) && answers[6..].iter().all(|&a| !a), "{answers:?}");
}
