//! The bound against a dense one of a few lines, every derivative against differences, and what a search must hold.

use faer::Mat;
use faer::linalg::solvers::DenseSolveCore;
use faer::prelude::Solve;

use super::bound::Scales;
use super::data::Table;
use super::fit::{Fit, Numerics, Parameters};
use super::radial::Radial;
use super::*;
use crate::error::Error;
use crate::learn::Objective;

/// Numbers that look random and are the same everywhere.
fn noise(i: usize) -> f64 {
    let mut h = (i as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    h = (h ^ (h >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((h ^ (h >> 31)) >> 11) as f64 / (1_u64 << 53) as f64 * 2.0 - 1.0
}

struct Toy {
    x: Vec<f64>,
    dim: usize,
    targets: Vec<Vec<f64>>,
    relative: Vec<Vec<f64>>,
    fixed: Vec<PointsNoise>,
    grids: Vec<f64>,
    groups: Vec<usize>,
}

impl Toy {
    /// `noises` values of relative noise, shared by the outputs in a pattern that depends on row and output.
    fn new(n: usize, dim: usize, outputs: usize, groups: &[usize], noises: usize) -> Self {
        let p: usize = groups.iter().sum();
        let x: Vec<f64> = (0..n * dim).map(noise).collect();
        let y = |c: usize, i: usize| {
            let x = &x[i * dim..(i + 1) * dim];
            (3.0 * x[0] + c as f64).sin() * x[dim - 1].cos() + 0.1 * noise(7_000 + i * outputs + c)
        };
        let relative = |c: usize, i: usize| 0.5 + ((i + c) % noises) as f64 / noises as f64;
        Self {
            dim,
            targets: (0..outputs).map(|c| (0..n).map(|i| y(c, i)).collect()).collect(),
            relative: (0..outputs).map(|c| (0..n).map(|i| relative(c, i)).collect()).collect(),
            fixed: vec![PointsNoise::Learned; outputs],
            grids: (0..n * p).map(|i| 0.4 * noise(50_000 + i)).collect(),
            groups: groups.to_vec(),
            x,
        }
    }

    fn with<R>(&self, run: impl FnOnce(&PointsRows) -> R) -> R {
        let outputs: Vec<PointsOutput> = (0..self.targets.len())
            .map(|c| PointsOutput {
                targets: &self.targets[c],
                relative_noise: Some(&self.relative[c]),
                noise: self.fixed[c],
            })
            .collect();
        let grids = GridFeatures { values: &self.grids, groups: &self.groups };
        let grids = (!self.groups.is_empty()).then_some(grids);
        run(&PointsRows { x: &self.x, dim: self.dim, outputs: &outputs, grids })
    }

    fn fit(&self, family: Family, points: usize, precision: Precision, threads: usize) -> Fit {
        let (table, _) = self.with(Table::new).unwrap();
        let scales = (0..self.targets.len()).map(|c| Scales {
            points: 0.7 + 0.2 * c as f64,
            groups: (0..self.groups.len()).map(|j| 0.6 + 0.3 * j as f64 + 0.1 * c as f64).collect(),
            noise: if let PointsNoise::Fixed(noise) = self.fixed[c] { noise } else { 0.08 + 0.01 * c as f64 },
        });
        let start = Parameters {
            centers: Mat::from_fn(self.dim, points, |k, i| 1.5 * noise(900 + i * self.dim + k)),
            lengthscales: (0..self.dim).map(|k| 1.3 + 0.4 * k as f64).collect(),
            scales: scales.collect(),
        };
        let numerics = Numerics {
            family: Radial::new(family).unwrap(),
            jitter: 1e-8,
            precision,
            threads,
            priors: PointsPriors::default(),
            tied: false,
        };
        Fit::new(&table, numerics, start, true)
    }
}

const FAMILIES: [Family; 4] = [Family::Rbf, Family::Matern12, Family::Matern32, Family::Matern52];

fn kernel(family: Family, a: &[f64], b: &[f64], lengthscales: &[f64]) -> f64 {
    let r2: f64 = a.iter().zip(b).zip(lengthscales).map(|((a, b), l)| ((a - b) / l).powi(2)).sum();
    family.value(&[1.0], r2.sqrt())
}

/// log N(y; 0, Φ_g C Φ_gᵀ + s Q + σ²D) − s tr D⁻¹(K − Q)/2σ², Q = K_XZ (K_ZZ + εI)⁻¹ K_ZX, with n×n matrices.
fn dense_bound(toy: &Toy, family: Family, fit: &Fit) -> f64 {
    let (table, _) = toy.with(Table::new).unwrap();
    let p = fit.parameters();
    let (n, m) = (table.len(), p.centers.ncols());
    let z = |i: usize| p.centers.col_as_slice(i);
    let x = |i: usize| table.x.col_as_slice(i);
    let cross = Mat::from_fn(m, n, |a, i| kernel(family, z(a), x(i), &p.lengthscales));
    let own = Mat::from_fn(m, m, |a, b| {
        kernel(family, z(a), z(b), &p.lengthscales) + if a == b { 1e-8 } else { 0.0 }
    });
    let q = cross.transpose() * own.partial_piv_lu().solve(&cross);
    let mut total = 0.0;
    for (c, scales) in p.scales.iter().enumerate() {
        let mut group = Vec::new();
        toy.groups.iter().zip(&scales.groups).for_each(|(&g, &s)| group.extend(vec![s; g]));
        let grids = |i: usize, j: usize| {
            (0..group.len()).map(|a| group[a] * table.grids[(a, i)] * table.grids[(a, j)]).sum::<f64>()
        };
        let d = |i: usize| scales.noise * toy.relative[c][i];
        let k = Mat::from_fn(n, n, |i, j| {
            grids(i, j) + scales.points * q[(i, j)] + if i == j { d(i) } else { 0.0 }
        });
        let y = Mat::from_fn(n, 1, |i, _| toy.targets[c][i]);
        let lu = k.partial_piv_lu();
        let log_det: f64 = (0..n).map(|i| lu.U()[(i, i)].abs().ln()).sum();
        let square = (y.transpose() * lu.solve(&y))[(0, 0)];
        let trace: f64 = (0..n).map(|i| scales.points * (1.0 - q[(i, i)]) / d(i)).sum();
        total -= 0.5 * (square + log_det + n as f64 * std::f64::consts::TAU.ln() + trace);
    }
    total
}

/// One target, classes that share noise patterns, and noise that no two rows share; with and without grids.
fn toys() -> Vec<Toy> {
    vec![
        Toy::new(60, 3, 1, &[4, 2], 7),
        Toy::new(40, 2, 1, &[], 1),
        Toy::new(45, 2, 3, &[3], 2),
        Toy::new(30, 2, 2, &[2, 2], 29),
    ]
}

#[test]
fn the_bound_is_the_dense_one() {
    for (t, toy) in toys().iter().enumerate() {
        for family in FAMILIES {
            let mut fit = toy.fit(family, 9, Precision::Double, 1 + t % 2);
            let x = fit.unknowns();
            let mut gradient = vec![0.0; x.len()];
            fit.evaluate(&x, &mut gradient).unwrap();
            let wanted = dense_bound(toy, family, &fit);
            // Both invert κ_ZZ, whose condition reaches 10⁶ here.
            assert!(
                (fit.bound - wanted).abs() < 1e-8 * wanted.abs(),
                "{t} {family:?} {} {wanted}",
                fit.bound
            );
        }
    }
}

#[test]
fn every_derivative_is_a_difference() {
    for (t, toy) in toys().iter_mut().enumerate() {
        if t == 2 {
            toy.fixed[1] = PointsNoise::Fixed(0.3);
        }
        for family in FAMILIES {
            let mut fit = toy.fit(family, 7, Precision::Double, 2);
            let x = fit.unknowns();
            let (mut gradient, mut unused) = (vec![f64::NAN; x.len()], vec![0.0; x.len()]);
            fit.evaluate(&x, &mut gradient).unwrap();
            let largest = gradient.iter().fold(0.0_f64, |a, g| a.max(g.abs()));
            for i in 0..x.len() {
                // Five points err by h⁴ f⁽⁵⁾/30 and by eps |f|/h, here 10⁻¹⁶·100/10⁻³ and some rounding of S.
                let h = 1e-3;
                let mut at = |steps: f64| {
                    let mut x = x.clone();
                    x[i] += steps * h;
                    fit.evaluate(&x, &mut unused).unwrap()
                };
                let numeric = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * h);
                let off = (gradient[i] - numeric).abs();
                assert!(off < 1e-7 * (1.0 + largest), "{t} {family:?} {i}: {} {numeric}", gradient[i]);
            }
        }
    }
}

/// Tied length-scales have the derivative along their common factor, and keep their ratios in a search.
#[test]
fn tied_lengthscales_move_together() {
    let toy = Toy::new(60, 3, 1, &[4, 2], 7);
    let mut free = toy.fit(Family::Matern32, 7, Precision::Double, 1);
    let x = free.unknowns();
    let lengths = free.center_unknowns()..free.center_unknowns() + 3;
    let (mut gradient, mut tied) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    let value = free.evaluate(&x, &mut gradient).unwrap();
    let mut fit = toy.fit(Family::Matern32, 7, Precision::Double, 1).tied();
    assert_eq!(fit.evaluate(&x, &mut tied).unwrap(), value);
    let sum: f64 = gradient[lengths.clone()].iter().sum();
    assert!(tied[lengths.clone()].iter().all(|g| (g - sum / 3.0).abs() < 1e-12 * sum.abs()));
    assert!(gradient[lengths].iter().any(|g| (g - sum / 3.0).abs() > 0.1 * sum.abs()));
    for points in [15, 60] {
        let search =
            PointsSearch { points, tied: true, starts: vec![PointsStart::Even], ..PointsSearch::default() };
        let learned = toy.with(|rows| search.run(rows, &mut |_| true)).unwrap();
        let (_, units) = toy.with(Table::new).unwrap();
        let ratio = |k: usize| learned.lengthscales[k] / units.unit[k] / 3f64.sqrt();
        assert!((0..3).all(|k| (ratio(k) / ratio(0) - 1.0).abs() < 1e-9), "{:?}", learned.lengthscales);
        assert!((ratio(0) - 1.0).abs() > 0.01, "it has moved");
    }
}

/// Without a point, the scales are those that the dense evidence of the grids alone is largest at.
#[test]
fn scales_without_points_maximize_the_evidence_of_the_grids() {
    let toy = Toy::new(50, 2, 2, &[3, 2], 3);
    let search = PointsSearch {
        training: PointsTraining { steps: 200, ..PointsSearch::default().training },
        ..PointsSearch::default()
    };
    let learned = toy.with(|rows| search.without_points(rows)).unwrap();
    assert!(learned.is_empty() && learned.group_scales.len() == 2);
    let (table, _) = toy.with(Table::new).unwrap();
    let objective = |c: usize, groups: &[f64], noise: f64| {
        let n = table.len();
        let of = |a: usize| groups[usize::from(a >= 3)];
        let k = Mat::from_fn(n, n, |i, j| {
            let grids: f64 = (0..5).map(|a| of(a) * table.grids[(a, i)] * table.grids[(a, j)]).sum();
            grids + if i == j { noise * toy.relative[c][i] } else { 0.0 }
        });
        let y = Mat::from_fn(n, 1, |i, _| toy.targets[c][i]);
        let lu = k.partial_piv_lu();
        let log_det: f64 = (0..n).map(|i| lu.U()[(i, i)].abs().ln()).sum();
        let priors: f64 = groups.iter().map(|&g| search.priors.group_scale.log_density(g)).sum();
        -0.5 * ((y.transpose() * lu.solve(&y))[(0, 0)] + log_det) + priors
    };
    for c in 0..2 {
        let (groups, noise) = (&learned.group_scales[c], learned.noises[c]);
        let best = objective(c, groups, noise);
        for (j, step) in [(0, 0.05), (0, -0.05), (1, 0.05), (1, -0.05)] {
            let mut other = groups.clone();
            other[j] *= f64::exp(step);
            // At a maximum a step of 5 % loses some 10⁻³; the optimizer stops within 10⁻⁵ of it.
            assert!(objective(c, &other, noise) < best + 1e-5, "{c} {j} {step}");
        }
    }
}

#[test]
fn centers_at_all_rows_give_the_exact_evidence() {
    let toy = Toy::new(35, 2, 1, &[3], 5);
    let (table, _) = toy.with(Table::new).unwrap();
    for family in FAMILIES {
        let mut fit = toy.fit(family, 35, Precision::Double, 1);
        let mut x = fit.unknowns();
        for i in 0..35 {
            x[2 * i..2 * i + 2].copy_from_slice(table.x.col_as_slice(i));
        }
        let mut gradient = vec![0.0; x.len()];
        fit.evaluate(&x, &mut gradient).unwrap();
        let scales = &fit.parameters().scales[0];
        let lengthscales = &fit.parameters().lengthscales;
        let k = Mat::from_fn(35, 35, |i, j| {
            let grids: f64 = (0..3).map(|a| table.grids[(a, i)] * table.grids[(a, j)]).sum();
            let own = kernel(family, table.x.col_as_slice(i), table.x.col_as_slice(j), lengthscales);
            let noise = if i == j { scales.noise * toy.relative[0][i] } else { 0.0 };
            scales.groups[0] * grids + scales.points * own + noise
        });
        let y = Mat::from_fn(35, 1, |i, _| toy.targets[0][i]);
        let lu = k.partial_piv_lu();
        let log_det: f64 = (0..35).map(|i| lu.U()[(i, i)].abs().ln()).sum();
        let square = (y.transpose() * lu.solve(&y))[(0, 0)];
        let wanted = -0.5 * (square + log_det + 35.0 * std::f64::consts::TAU.ln());
        // The jitter of 10⁻⁸ takes that share of s/σ² ≈ 10 from each row.
        assert!(fit.bound <= wanted + 1e-9, "{family:?} {} {wanted}", fit.bound);
        assert!((fit.bound - wanted).abs() < 5e-6, "{family:?} {} {wanted}", fit.bound);
    }
}

/// Where every row is a center, n×n matrices give the bound that features give and its derivatives.
#[test]
fn rows_that_are_all_centers_have_the_evidence_of_features() {
    for (t, mut toy) in toys().into_iter().enumerate() {
        if t == 3 {
            toy.fixed[1] = PointsNoise::Fixed(0.3);
        }
        let (table, _) = toy.with(Table::new).unwrap();
        for family in FAMILIES {
            let fit = toy.fit(family, table.len(), Precision::Double, 1);
            let start = Parameters { centers: table.x.clone(), ..fit.parameters().clone() };
            let numerics = Numerics {
                family: Radial::new(family).unwrap(),
                jitter: 1e-10,
                precision: Precision::Double,
                threads: 1 + t % 2,
                priors: PointsPriors::default(),
                tied: false,
            };
            let mut by_features = Fit::new(&table, numerics, start.clone(), false);
            let mut whole = Fit::of_rows(&table, numerics, start);
            let x = whole.unknowns();
            let [mut wanted, mut gradient] = [vec![f64::NAN; x.len()], vec![f64::NAN; x.len()]];
            let value = by_features.evaluate(&x, &mut wanted).unwrap();
            let found = whole.evaluate(&x, &mut gradient).unwrap();
            // The jitter of 10⁻¹⁰ takes that share of s/σ² ≈ 10 from each of some 50 rows, and κ_ZZ has a condition of up to
            // 10¹⁰ for the smoothest kernel.
            assert!((found - value).abs() < 1e-5, "{t} {family:?} {found} {value}");
            let largest = wanted.iter().fold(0.0_f64, |a, g| a.max(g.abs()));
            for (g, w) in gradient.iter().zip(&wanted) {
                assert!((g - w).abs() < 1e-5 * largest, "{t} {family:?} {g} {w}");
            }
            for i in 0..x.len() {
                let h = 1e-3;
                let mut at = |steps: f64| {
                    let mut x = x.clone();
                    x[i] += steps * h;
                    whole.evaluate(&x, &mut wanted).unwrap()
                };
                let numeric = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * h);
                let off = (gradient[i] - numeric).abs();
                assert!(off < 1e-8 * (1.0 + largest), "{t} {family:?} {i}: {} {numeric}", gradient[i]);
            }
        }
    }
}

/// Single precision rounds features to 10⁻⁷; κ_ZZ's condition of up to 10⁵ amplifies its root of that.
#[test]
fn single_precision_and_threads_keep_the_result() {
    let toy = Toy::new(1500, 3, 2, &[5], 3);
    let run = |precision, threads| {
        let mut fit = toy.fit(Family::Matern32, 60, precision, threads);
        let x = fit.unknowns();
        let mut gradient = vec![0.0; x.len()];
        let value = fit.evaluate(&x, &mut gradient).unwrap();
        (value, gradient)
    };
    let (value, gradient) = run(Precision::Double, 1);
    let largest = gradient.iter().fold(0.0_f64, |a, g| a.max(g.abs()));
    // Parts and their order are the same for any number of threads.
    for threads in [2, 3, 8] {
        let other = crate::threads::with_share(8, || run(Precision::Double, threads));
        assert_eq!(other, (value, gradient.clone()), "{threads} threads");
    }
    let (other, other_gradient) = run(Precision::Single, 2);
    let tolerance = 3e-4;
    assert!((value - other).abs() < tolerance * value.abs(), "{value} {other}");
    for (g, o) in gradient.iter().zip(&other_gradient) {
        assert!((g - o).abs() < tolerance * largest, "{g} {o}");
    }
}

/// Predictions of learned points are those of the dense process with the kernel that centers leave.
#[test]
fn predictions_are_those_of_the_dense_process() {
    let (toy, other) = (Toy::new(50, 2, 2, &[2], 3), Toy::new(64, 2, 2, &[2], 3));
    let learned = LearnedPoints {
        family: Family::Matern52,
        centers: (0..24).map(|i| noise(80 + i)).collect(),
        lengthscales: vec![0.8, 1.1],
        scales: vec![0.9, 1.2],
        noises: vec![0.05, 0.1],
        group_scales: vec![vec![0.5], vec![2.0]],
        jitter: 1e-8,
        bound: 0.0,
        starts: Vec::new(),
        history: Vec::new(),
        flops: 0.0,
        finished: true,
    };
    let posterior = toy.with(|rows| learned.posterior(rows, 1)).unwrap();
    let predictions = other.with(|rows| posterior.predict(rows)).unwrap();
    let densities = other.with(|rows| posterior.log_densities(rows)).unwrap();
    let k = |a: &[f64], b: &[f64]| kernel(Family::Matern52, a, b, &learned.lengthscales);
    let z: Vec<&[f64]> = learned.centers.chunks(2).collect();
    let own = Mat::from_fn(12, 12, |a, b| k(z[a], z[b]) + if a == b { 1e-8 } else { 0.0 })
        .partial_piv_lu()
        .inverse();
    let cross = |t: &Toy| Mat::from_fn(12, t.x.len() / 2, |a, i| k(z[a], &t.x[2 * i..2 * i + 2]));
    let (train, test) = (cross(&toy), cross(&other));
    let (q_train, q_cross, q_test) = (
        train.transpose() * &own * &train,
        train.transpose() * &own * &test,
        test.transpose() * &own * &test,
    );
    let mut sums = vec![0.0; 64];
    for c in 0..2 {
        let grids = |a: &Toy, i: usize, b: &Toy, j: usize| {
            (0..2).map(|g| a.grids[2 * i + g] * b.grids[2 * j + g]).sum::<f64>() * learned.group_scales[c][0]
        };
        let d = |t: &Toy, i: usize| learned.noises[c] * t.relative[c][i];
        let k = Mat::from_fn(50, 50, |i, j| {
            grids(&toy, i, &toy, j)
                + learned.scales[c] * q_train[(i, j)]
                + if i == j { d(&toy, i) } else { 0.0 }
        });
        let lu = k.partial_piv_lu();
        let y = Mat::from_fn(50, 1, |i, _| toy.targets[c][i]);
        for j in 0..64 {
            let to =
                Mat::from_fn(50, 1, |i, _| grids(&toy, i, &other, j) + learned.scales[c] * q_cross[(i, j)]);
            let mean = (to.transpose() * lu.solve(&y))[(0, 0)];
            let prior = grids(&other, j, &other, j) + learned.scales[c] * q_test[(j, j)];
            let explained = prior - (to.transpose() * lu.solve(&to))[(0, 0)];
            let variance = explained + learned.scales[c] * (1.0 - q_test[(j, j)]);
            let found = predictions[c][j];
            assert!((found.mean - mean).abs() < 1e-8, "{} {mean}", found.mean);
            assert!((found.variance - variance).abs() < 1e-8, "{} {variance}", found.variance);
            let total = variance + d(&other, j);
            let off = other.targets[c][j] - mean;
            sums[j] -= 0.5 * (off * off / total + (std::f64::consts::TAU * total).ln());
        }
    }
    for (found, wanted) in densities.iter().zip(&sums) {
        assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
    }
}

/// sin(3 x₀) cos(2 x₁) of six inputs with noise of deviation 0.05; the other inputs say nothing.
fn interaction(n: usize, seed: usize) -> (Vec<f64>, Vec<f64>) {
    let x: Vec<f64> = (0..6 * n).map(|i| noise(seed * 1_000_003 + i)).collect();
    // The sum of three uniform numbers has variance 1 and is nearly normal.
    let normal = |i: usize| (0..3).map(|k| noise(seed * 1_000_003 + 6 * n + 3 * i + k)).sum::<f64>();
    let y = |x: &[f64], i: usize| (3.0 * x[0]).sin() * (2.0 * x[1]).cos() + 0.05 * normal(i);
    let y = x.chunks(6).enumerate().map(|(i, x)| y(x, i)).collect();
    (x, y)
}

#[test]
fn a_search_finds_the_inputs_that_matter() {
    let ((x, y), (x_test, y_test)) = (interaction(1200, 1), interaction(400, 2));
    let output = |targets| [PointsOutput { targets, relative_noise: None, noise: PointsNoise::Learned }];
    let (train, test) = (output(&y), output(&y_test));
    let rows = PointsRows { x: &x, dim: 6, outputs: &train, grids: None };
    let held = PointsRows { x: &x_test, dim: 6, outputs: &test, grids: None };
    let search = PointsSearch { points: 100, threads: 2, ..PointsSearch::default() };
    let learned = search.run(&rows, &mut |_| true).unwrap();
    assert!(learned.finished && learned.len() == 100 && learned.starts.len() == 2);
    let irrelevant = learned.lengthscales[2..].iter().copied().fold(f64::INFINITY, f64::min);
    assert!(
        irrelevant > 4.0 * learned.lengthscales[0].max(learned.lengthscales[1]),
        "{:?}",
        learned.lengthscales
    );
    let posterior = learned.posterior(&rows, 2).unwrap();
    assert!((posterior.bound() - learned.bound).abs() < 1e-6 * learned.bound.abs());
    let predictions = posterior.predict(&held).unwrap();
    let squares: f64 = predictions[0].iter().zip(&y_test).map(|(p, y)| (p.mean - y).powi(2)).sum();
    let inside = predictions[0].iter().zip(&y_test).filter(|(p, y)| (p.mean - **y).abs() < 1.96 * p.std());
    // Noise alone gives 0.05.
    assert!((squares / 400.0).sqrt() < 0.06, "{}", (squares / 400.0).sqrt());
    assert!((0.92..=0.98).contains(&(inside.count() as f64 / 400.0)));
    // The last stage only gains, and a second run is the same to the last bit.
    let training: Vec<f64> =
        learned.history.iter().filter(|r| r.stage == PointsStage::Training).map(|r| r.bound).collect();
    assert!(training.last() > training.first());
    assert_eq!(search.run(&rows, &mut |_| true).unwrap(), learned);
}

fn as_class((targets, relative): &(Vec<f64>, Vec<f64>)) -> PointsOutput<'_> {
    PointsOutput { targets, relative_noise: Some(relative), noise: PointsNoise::Fixed(1.0) }
}

/// Three classes in rings: two values of noise make three patterns, and the largest mean is the class.
#[test]
fn classes_share_centers() {
    use crate::likelihood::Dirichlet;
    let rings = |n: usize, seed: usize| {
        let x: Vec<f64> = (0..3 * n).map(|i| 2.0 * noise(seed * 77_777 + i)).collect();
        let class = |x: &[f64]| ((x[0] * x[0] + x[1] * x[1]).sqrt() * 1.5) as usize;
        let classes: Vec<usize> = x.chunks(3).map(|x| class(x).min(2)).collect();
        (x, classes)
    };
    let ((x, classes), (x_test, classes_test)) = (rings(900, 1), rings(300, 2));
    let likelihood = Dirichlet::new(3);
    let label = |class: usize, c: usize| likelihood.target(class == c);
    let of = |classes: &[usize], c: usize| -> (Vec<f64>, Vec<f64>) {
        classes.iter().map(|&k| (label(k, c).value, label(k, c).noise)).unzip()
    };
    let own: Vec<_> = (0..3).map(|c| of(&classes, c)).collect();
    let outputs: Vec<PointsOutput> = own.iter().map(as_class).collect();
    let rows = PointsRows { x: &x, dim: 3, outputs: &outputs, grids: None };
    let (table, _) = Table::new(&rows).unwrap();
    assert_eq!(super::patterns::Patterns::new(&table).rows.len(), 3);
    let learned = PointsSearch { points: 60, ..PointsSearch::default() }.run(&rows, &mut |_| true).unwrap();
    assert_eq!(learned.noises, [1.0; 3]);
    assert!(learned.lengthscales[2] > 2.0 * learned.lengthscales[0], "{:?}", learned.lengthscales);
    let own: Vec<_> = (0..3).map(|c| of(&classes_test, c)).collect();
    let outputs: Vec<PointsOutput> = own.iter().map(as_class).collect();
    let test = PointsRows { x: &x_test, dim: 3, outputs: &outputs, grids: None };
    let predictions = learned.posterior(&rows, 1).unwrap().predict(&test).unwrap();
    let right = (0..300).filter(|&i| {
        let best = (0..3).max_by(|&a, &b| predictions[a][i].mean.total_cmp(&predictions[b][i].mean));
        best == Some(classes_test[i])
    });
    let right = right.count();
    assert!(right > 270, "{right} of 300");
}

/// Smooth functions get the smoother kernel, those with kinks do not, and points learned on part of the rows keep theirs.
#[test]
fn the_kernel_suits_the_function() {
    let x: Vec<f64> = (0..1200).map(|i| 2.0 * (f64::from(i) * 0.754_877_666).fract() - 1.0).collect();
    let noise = |i: usize| 0.02 * (12.9 * (i * i) as f64).sin();
    let chosen = |f: fn(&[f64]) -> f64| {
        let y: Vec<f64> = x.chunks(2).enumerate().map(|(i, x)| f(x) + noise(i)).collect();
        let outputs = [PointsOutput { targets: &y, relative_noise: None, noise: PointsNoise::Learned }];
        let rows = PointsRows { x: &x, dim: 2, outputs: &outputs, grids: None };
        let search = PointsSearch { points: 60, start_points: 60, ..PointsSearch::default() };
        let learned = search.run(&rows, &mut |_| true).unwrap();
        let on = search.continued(&rows, &learned, &mut |_| true).unwrap();
        assert_eq!(on.family, learned.family);
        learned.family
    };
    assert_eq!(chosen(|x| (2.0 * x[0] + x[1]).sin() * (1.5 * x[1]).cos()), Family::Rbf);
    assert_eq!(chosen(|x| (3.0 * x[0]).sin().abs() - (2.0 * x[1] - x[0]).abs()), Family::Matern32);
}

/// With no more rows than centers the rows are the centers, also where some are equal.
#[test]
fn few_rows_are_the_centers() {
    let (mut x, mut y) = interaction(60, 3);
    x.extend_from_within(..30);
    y.extend_from_within(..5);
    let outputs = [PointsOutput { targets: &y, relative_noise: None, noise: PointsNoise::Learned }];
    let rows = PointsRows { x: &x, dim: 6, outputs: &outputs, grids: None };
    let search = PointsSearch { points: 60, ..PointsSearch::default() };
    let learned = search.run(&rows, &mut |_| true).unwrap();
    assert_eq!(learned.len(), 60);
    for (center, row) in learned.centers.chunks(6).zip(x.chunks(6)) {
        center.iter().zip(row).for_each(|(c, x)| assert!((c - x).abs() < 1e-12));
    }
    let there = learned.posterior(&rows, 1).unwrap().predict(&rows).unwrap();
    assert!(there[0].iter().all(|p| p.variance >= 0.0 && p.noise > 0.0));
}

/// A floor of the noise holds where the rows have less, and does nothing where they have more.
#[test]
fn noise_has_a_floor() {
    let (x, y) = interaction(150, 3);
    let noise_of = |noise| {
        let outputs = [PointsOutput { targets: &y, relative_noise: None, noise }];
        let rows = PointsRows { x: &x, dim: 6, outputs: &outputs, grids: None };
        let search = PointsSearch { points: 20, ..PointsSearch::default() };
        search.run(&rows, &mut |_| true).unwrap().noises[0]
    };
    let free = noise_of(PointsNoise::Learned);
    let bound = noise_of(PointsNoise::AtLeast(4.0 * free));
    assert!((bound / free - 4.0).abs() < 1e-9, "{bound} {free}");
    let loose = noise_of(PointsNoise::AtLeast(0.25 * free));
    assert!((loose / free - 1.0).abs() < 0.2, "{loose} {free}");
}

#[test]
fn a_search_ends_when_told_and_keeps_what_it_has() {
    let (x, y) = interaction(300, 4);
    let outputs = [PointsOutput { targets: &y, relative_noise: None, noise: PointsNoise::Learned }];
    let rows = PointsRows { x: &x, dim: 6, outputs: &outputs, grids: None };
    for (points, last) in [(80, 3), (80, 215), (300, 215)] {
        let mut calls = 0;
        let mut fractions = Vec::new();
        let search = PointsSearch { points, start_points: 20, least_gain: 0.0, ..PointsSearch::default() };
        let learned = search
            .run(&rows, &mut |progress| {
                calls += 1;
                fractions.push(progress.fraction);
                calls < last
            })
            .unwrap();
        assert!(!learned.finished && calls == last, "{calls}");
        assert!(fractions.is_sorted() && fractions.iter().all(|f| (0.0..=1.0).contains(f)));
        assert!(learned.posterior(&rows, 1).unwrap().bound().is_finite());
    }
}

#[test]
fn bad_rows_and_settings_are_rejected_by_name() {
    let toy = || Toy::new(20, 2, 1, &[2], 2);
    let run =
        |toy: &Toy, search: &PointsSearch| toy.with(|rows| search.run(rows, &mut |_| true)).unwrap_err();
    let plain = PointsSearch::default();
    let mut bad = toy();
    bad.x[5] = f64::NAN;
    assert!(matches!(run(&bad, &plain), Error::NotFinite { field, row: 2, .. } if field == "x[1]"));
    let mut bad = toy();
    bad.targets[0][3] = f64::INFINITY;
    assert!(matches!(run(&bad, &plain), Error::NotFinite { field, row: 3, .. } if field == "y"));
    let mut bad = toy();
    bad.relative[0][4] = 0.0;
    assert!(matches!(run(&bad, &plain), Error::NotPositive { row: 4, .. }));
    let mut bad = toy();
    bad.grids.pop();
    assert!(matches!(run(&bad, &plain), Error::WrongLength { .. }));
    let mut bad = toy();
    bad.targets[0].pop();
    assert!(matches!(run(&bad, &plain), Error::WrongLength { .. }));
    for search in [
        PointsSearch { points: 0, ..plain.clone() },
        PointsSearch { family: Family::Cosine, ..plain.clone() },
        PointsSearch { starts: Vec::new(), ..plain.clone() },
    ] {
        assert!(matches!(run(&toy(), &search), Error::Config { .. }));
    }
}

/// Constant columns, a single row, targets that are all zero: dull, but no failure.
#[test]
fn dull_rows_are_learned() {
    for (x, y) in [
        (vec![1.0, 2.0], vec![0.5]),
        ([1.0, 2.0].repeat(30), (0..30).map(noise).collect()),
        ((0..60).map(noise).collect(), vec![0.0; 30]),
    ] {
        let outputs = [PointsOutput { targets: &y, relative_noise: None, noise: PointsNoise::Learned }];
        let rows = PointsRows { x: &x, dim: 2, outputs: &outputs, grids: None };
        for points in [4, 64] {
            let search = PointsSearch { points, ..PointsSearch::default() };
            let learned = search.run(&rows, &mut |_| true).unwrap();
            let predictions = learned.posterior(&rows, 1).unwrap().predict(&rows).unwrap();
            assert!(predictions[0].iter().all(|p| p.mean.is_finite() && p.std().is_finite()));
        }
    }
}
