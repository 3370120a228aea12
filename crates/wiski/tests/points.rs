//! Inducing points beside grids, against the formulas with n×n matrices: bound, predictions, gradients, and everything
//! that statistics can do.

mod common;

use std::sync::Arc;

use common::{Data, DenseGp, close, prior_covariance, rng, unit_grid};
use faer::{Mat, Side};
use rand::RngExt;
use wiski::internals::evidence::Evidence;
use wiski::internals::grid::Lattice;
use wiski::internals::points::Points;
use wiski::internals::posterior::{Joint, Posterior, Surrogate, Workspace};
use wiski::internals::prior::Prior;
use wiski::{
    Engine, Error, Family, Grid, HyperSpace, Kernel, LbfgsB, OffGrid, OnlineGp, Prediction, Stats, Wiski,
};

const FAMILIES: [Family; 4] = [Family::Rbf, Family::Matern12, Family::Matern32, Family::Matern52];

/// So much of the prior is kept that a dropped eigenvalue is no more than rounding.
const TOLERANCE: f64 = 1e-14;

fn points(family: Family, m: usize, d: usize, seed: u64) -> Points {
    let mut rng = rng(seed);
    let centers: Vec<f64> = (0..m * d).map(|_| rng.random::<f64>()).collect();
    let lengthscales: Vec<f64> = (0..d).map(|k| 0.5 + 0.2 * k as f64).collect();
    Points::new(family, &centers, &lengthscales).unwrap()
}

/// A model: what stands before the points, and kernels for all.
struct Case {
    lattice: Lattice,
    kernels: Vec<Kernel>,
    scale: f64,
}

impl Case {
    fn new(grids: Vec<Grid>, mut kernels: Vec<Kernel>, points: Points, scale: f64) -> Self {
        kernels.push(Kernel::output_scale(scale).unwrap());
        Self { lattice: Lattice::with_points(grids, points), kernels, scale }
    }

    /// Two grids and one of each kind: a plain sum, which has a path of its own; one grid; two terms on a grid; points
    /// alone.
    fn all(family: Family) -> Vec<Self> {
        let (line, plane) = (unit_grid(&[9]), unit_grid(&[8, 7]));
        let rbf = |l: &[f64]| Kernel::rbf(l).unwrap();
        let sum = rbf(&[0.6, 0.9]).scaled(0.4) + Kernel::matern32(&[0.5, 0.8]).unwrap().scaled(0.3);
        let two = vec![rbf(&[0.4]).scaled(0.8), Kernel::matern52(&[0.5, 0.7]).unwrap().scaled(0.5)];
        vec![
            Self::new(vec![line.clone(), plane.clone()], two, points(family, 13, 2, 1), 0.9),
            Self::new(vec![plane.clone()], vec![rbf(&[0.5, 0.6])], points(family, 21, 3, 2), 1.3),
            Self::new(vec![plane, line], vec![sum, rbf(&[0.3])], points(family, 9, 2, 3), 0.7),
            Self::new(vec![], vec![], points(family, 17, 3, 4), 1.6),
        ]
    }

    fn points(&self) -> &Points {
        self.lattice.points().unwrap()
    }

    /// The inputs of the points: the last coordinates.
    fn inputs<'a>(&self, h: &'a [f64]) -> &'a [f64] {
        &h[h.len() - self.points().dim()..]
    }

    /// κ, by the formula of its family at the radius.
    fn kappa(&self, x: &[f64], z: &[f64]) -> f64 {
        let lengthscales = self.points().lengthscales();
        let r2: f64 = (0..x.len()).map(|k| ((x[k] - z[k]) / lengthscales[k]).powi(2)).sum();
        self.points().family().value(&[1.0], r2.sqrt())
    }

    /// The weights of one row on everything: L⁻¹κ_Z(x) by a Cholesky factorization.
    fn weights(&self, h: &[f64]) -> Vec<f64> {
        let z: Vec<&[f64]> = self.points().centers().chunks_exact(self.points().dim()).collect();
        let l = Mat::from_fn(z.len(), z.len(), |i, j| self.kappa(z[i], z[j])).llt(Side::Lower).unwrap();
        let mut w = Mat::from_fn(z.len(), 1, |i, _| self.kappa(self.inputs(h), z[i]));
        for i in 0..z.len() {
            let sum: f64 = (0..i).map(|j| l.L()[(i, j)] * w[(j, 0)]).sum();
            w[(i, 0)] = (w[(i, 0)] - sum) / l.L()[(i, i)];
        }
        let mut all = common::weights(&self.lattice, h);
        all.extend((0..z.len()).map(|i| w[(i, 0)]));
        all
    }

    /// ρ(x), or κ(x, x') − wᵀw' of two.
    fn residual(&self, a: &[f64], b: &[f64]) -> f64 {
        let (m, wa, wb) = (self.points().len(), self.weights(a), self.weights(b));
        let carried: f64 = (wa.len() - m..wa.len()).map(|i| wa[i] * wb[i]).sum();
        self.kappa(self.inputs(a), self.inputs(b)) - carried
    }

    fn dense(&self, noise: f64, data: &Data) -> DenseGp {
        let w: Vec<Vec<f64>> = data.rows().map(|h| self.weights(h)).collect();
        let grids = prior_covariance(&self.lattice, &self.kernels);
        let m = grids.nrows();
        let entry = |i: usize, j: usize| match (i < m, j < m) {
            (true, true) => grids[(i, j)],
            _ => f64::from(u8::from(i == j)) * self.scale,
        };
        DenseGp {
            w: Mat::from_fn(w.len(), self.lattice.len(), |i, j| w[i][j]),
            k: Mat::from_fn(self.lattice.len(), self.lattice.len(), entry),
            noise: data.noise.iter().map(|d| noise * d).collect(),
            y: data.y.clone(),
        }
    }

    /// t.
    fn trace(&self, data: &Data) -> f64 {
        data.triples().map(|(h, _, d)| self.residual(h, h) / d).sum()
    }

    fn bound(&self, noise: f64, data: &Data) -> f64 {
        self.dense(noise, data).evidence() - self.scale * self.trace(data) / (2.0 * noise)
    }

    fn data(&self, n: usize, seed: u64) -> Data {
        Data::random(n, self.lattice.dim(), true, seed)
    }

    fn stats(&self, data: &Data) -> Stats {
        let mut stats = Stats::new(self.lattice.clone());
        data.triples().for_each(|(h, y, d)| stats.observe(h, y, d).unwrap());
        stats
    }

    fn posterior(&self, data: &Data, noise: f64) -> Posterior {
        let prior = Arc::new(Prior::new(&self.lattice, &self.kernels, TOLERANCE).unwrap());
        Posterior::new(prior, &self.stats(data), noise).unwrap()
    }

    fn model(&self, noise: f64) -> Wiski {
        let mut builder = Wiski::builder().noise(noise).rank_tolerance(TOLERANCE);
        for grid in self.lattice.grids() {
            builder = builder.grid(grid.clone());
        }
        for kernel in &self.kernels {
            builder = builder.kernel(kernel.clone());
        }
        builder.points(self.points().clone()).build().unwrap()
    }
}

/// f'(0) by five points, which err by h⁴ f⁽⁵⁾/30 + eps/h.
fn slope(mut f: impl FnMut(f64) -> f64, h: f64) -> f64 {
    (8.0 * (f(h) - f(-h)) - (f(2.0 * h) - f(-2.0 * h))) / (12.0 * h)
}

#[test]
fn the_bound_and_predictions_are_the_dense_ones() {
    for family in FAMILIES {
        for case in Case::all(family) {
            let (data, noise) = (case.data(60, 5), 0.07);
            let stats = case.stats(&data);
            close(stats.residual(), case.trace(&data), 1e-10, "t");
            let (evidence, posterior) = Evidence::new(&stats, &case.kernels, noise, TOLERANCE).unwrap();
            close(evidence.value, case.bound(noise, &data), 1e-10, "bound");
            let test = case.data(19, 6);
            let weights: Vec<Vec<f64>> = test.rows().map(|h| case.weights(h)).collect();
            let (mean, covariance) = case.dense(noise, &data).predict(&weights);
            let ws = &mut Workspace::default();
            let (predictor, surface) = (posterior.predictor(), posterior.surface());
            let (mut means, mut variances) = (vec![0.0; 19], vec![0.0; 19]);
            predictor.predict_batch(&test.h, &mut means, &mut variances).unwrap();
            let (joint_mean, joint_covariance) = posterior.joint(&test.h, ws).unwrap();
            let mut joint = Joint::default();
            surface.predict(&test.h, &mut joint).unwrap();
            for (i, h) in test.rows().enumerate() {
                let want = covariance[(i, i)] + case.scale * case.residual(h, h);
                let p = posterior.predict(h, ws).unwrap();
                close(p.mean, mean[i], 1e-10, "mean");
                close(p.variance, want, 1e-10, "variance");
                close(posterior.predict_mean(h, ws).unwrap(), mean[i], 1e-10, "mean alone");
                let p = predictor.predict(h).unwrap();
                // κ(Z, Z) has a condition number of up to 10⁵ here.
                for (found, what) in [(p.mean, "mean"), (means[i], "means"), (joint_mean[i], "joint mean")] {
                    close(found, mean[i], 1e-9, what);
                }
                close(predictor.predict_mean(h).unwrap(), mean[i], 1e-9, "the predictor's mean alone");
                close(surface.mean(h).unwrap(), mean[i], 1e-10, "the surface's mean alone");
                close(joint.mean[i], mean[i], 1e-10, "the surface's mean");
                close(p.variance, want, 1e-9, "the predictor's variance");
                close(variances[i], want, 1e-9, "the predictor's variances");
                for (j, other) in test.rows().enumerate() {
                    let want = covariance[(i, j)] + case.scale * case.residual(h, other);
                    close(joint_covariance[i * 19 + j], want, 1e-10, "joint covariance");
                    close(joint.covariance[i * 19 + j], want, 1e-10, "the surface's covariance");
                }
            }
        }
    }
}

#[test]
fn with_the_data_as_points_it_is_the_exact_process() {
    for (family, grids) in [(Family::Matern32, true), (Family::Matern12, false), (Family::Matern52, true)] {
        let (noise, scale, n) = (0.05, 0.8, 40);
        let (grids, mut kernels) = if grids {
            (vec![unit_grid(&[11]), unit_grid(&[9])], vec![Kernel::rbf(&[0.4]).unwrap(); 2])
        } else {
            (Vec::new(), Vec::new())
        };
        let skip = grids.len();
        let data = Data::random(n, skip + 2, true, 7);
        let x: Vec<f64> = data.rows().flat_map(|h| &h[skip..]).copied().collect();
        let points = Points::new(family, &x, &[0.6, 0.4]).unwrap();
        assert_eq!(points.len(), n, "no row depends on the others");
        kernels.push(Kernel::output_scale(scale).unwrap());
        let case = Case { lattice: Lattice::with_points(grids, points), kernels, scale };
        let stats = case.stats(&data);
        assert!(stats.residual() < 1e-10);
        let (evidence, posterior) = Evidence::new(&stats, &case.kernels, noise, TOLERANCE).unwrap();

        // The exact process with kernel Σ grids + s κ.
        let test = Data::random(15, skip + 2, false, 8);
        let all: Vec<&[f64]> = data.rows().chain(test.rows()).collect();
        let grid = prior_covariance(&case.lattice, &case.kernels);
        let w: Vec<Vec<f64>> = all.iter().map(|h| common::weights(&case.lattice, h)).collect();
        let w = Mat::from_fn(all.len(), grid.nrows(), |i, j| w[i][j]);
        let on_grids = &w * &grid * w.transpose();
        let k = Mat::from_fn(all.len(), all.len(), |i, j| {
            on_grids[(i, j)] + scale * case.kappa(case.inputs(all[i]), case.inputs(all[j]))
        });
        let exact = DenseGp {
            w: Mat::from_fn(n, all.len(), |i, j| f64::from(u8::from(i == j))),
            k,
            noise: data.noise.iter().map(|d| noise * d).collect(),
            y: data.y.clone(),
        };
        close(evidence.value, exact.evidence(), 1e-9, "evidence");
        let unit = |i: usize| (0..all.len()).map(|j| f64::from(u8::from(j == n + i))).collect::<Vec<f64>>();
        let (mean, covariance) = exact.predict(&(0..15).map(unit).collect::<Vec<_>>());
        let (found, joint) = posterior.joint(&test.h, &mut Workspace::default()).unwrap();
        for i in 0..15 {
            close(found[i], mean[i], 1e-9, "mean");
            (0..15).for_each(|j| close(joint[i * 15 + j], covariance[(i, j)], 1e-9, "covariance"));
        }
    }
}

#[test]
fn the_gradient_of_the_bound_matches_differences() {
    for case in Case::all(Family::Matern52) {
        let (data, noise) = (case.data(80, 9), 0.2);
        let stats = case.stats(&data);
        let value = |kernels: &[Kernel], noise: f64| {
            Evidence::new(&stats, kernels, noise, TOLERANCE).unwrap().0.value
        };
        let (evidence, _) = Evidence::new(&stats, &case.kernels, noise, TOLERANCE).unwrap();
        for (j, kernel) in case.kernels.iter().enumerate() {
            let p = kernel.parameters();
            for (i, name) in kernel.parameter_names().iter().enumerate() {
                let at = |step: f64| {
                    let (mut kernels, mut p) = (case.kernels.clone(), p.clone());
                    p[i] += step;
                    kernels[j].set_parameters(&p).unwrap();
                    value(&kernels, noise)
                };
                close(evidence.by_kernel[j][i], slope(at, 1e-3 * p[i]), 2e-7, name);
            }
        }
        let by_noise = slope(|step| value(&case.kernels, noise + step), 1e-4);
        close(evidence.by_noise, by_noise, 1e-8, "noise");
    }
}

/// In the coordinates of grids and of points, at once and while rows wait.
#[test]
fn gradients_in_the_inputs_match_differences() {
    for family in FAMILIES {
        for case in Case::all(family) {
            let (data, noise, ws) = (case.data(50, 10), 0.1, &mut Workspace::default());
            let mut waiting = case.posterior(&data, noise);
            waiting.set_delay(20, ws);
            let (mut settled, more) = (case.posterior(&data, noise), case.data(7, 11));
            for (h, y, d) in more.triples() {
                let a = waiting.condition(h, y, d, ws).unwrap();
                let b = settled.condition(h, y, d, ws).unwrap();
                close(a.mean, b.mean, 1e-12, "mean");
                close(a.variance, b.variance, 1e-12, "variance");
            }
            let predictor = settled.predictor();
            let sample = settled.sample(&vec![0.3; settled.rank()]).unwrap();
            let h: Vec<f64> = (0..case.lattice.dim()).map(|k| 0.27 + 0.11 * k as f64).collect();
            let gradient = settled.predict_gradient(&h, ws).unwrap();
            let later = waiting.predict_gradient(&h, ws).unwrap();
            let image = predictor.predict_gradient(&h).unwrap();
            let (mut of_sample, p) = (vec![f64::NAN; h.len()], settled.predict(&h, ws).unwrap());
            let value = sample.value_and_gradient(&h, &mut of_sample).unwrap();
            close(value, sample.value(&h).unwrap(), 1e-13, "sample");
            for found in [gradient.prediction, later.prediction, image.prediction] {
                close(found.mean, p.mean, 1e-9, "mean");
                close(found.variance, p.variance, 1e-9, "variance");
            }
            for k in 0..h.len() {
                let moved = |step: f64| {
                    let mut h = h.clone();
                    h[k] += step;
                    h
                };
                let by_mean = slope(|s| settled.predict_mean(&moved(s), ws).unwrap(), 2e-5);
                let by_variance = slope(|s| settled.predict(&moved(s), ws).unwrap().variance, 2e-5);
                // Centers near the point make the fifth derivative large.
                for (found, what) in [(&gradient, "now"), (&later, "later"), (&image, "image")] {
                    close(found.mean[k], by_mean, 1e-7, what);
                    close(found.variance[k], by_variance, 1e-7, what);
                }
                let by_sample = slope(|s| sample.value(&moved(s)).unwrap(), 2e-5);
                close(of_sample[k], by_sample, 1e-7, "sample");
            }
        }
    }
}

#[test]
fn joint_predictions_are_pulled_back() {
    for case in Case::all(Family::Matern52) {
        let surface = case.posterior(&case.data(50, 12), 0.1).surface();
        let (q, h) = (3, case.data(3, 13).h);
        let by_mean = [0.3, -0.7, 0.5];
        let by_covariance: Vec<f64> = (0..q * q).map(|i| (1.7 * f64::from(i)).sin()).collect();
        let mut joint = Joint::default();
        let value = |h: &[f64]| {
            let mut joint = Joint::default();
            surface.predict(h, &mut joint).unwrap();
            let mean: f64 = joint.mean.iter().zip(by_mean).map(|(m, by)| m * by).sum();
            mean + joint.covariance.iter().zip(&by_covariance).map(|(c, by)| c * by).sum::<f64>()
        };
        surface.predict(&h, &mut joint).unwrap();
        let mut gradient = vec![0.0; h.len()];
        surface.vjp(&h, &joint, &by_mean, &by_covariance, &mut gradient).unwrap();
        for k in 0..h.len() {
            let moved = |step: f64| {
                let mut h = h.clone();
                h[k] += step;
                h
            };
            close(gradient[k], slope(|s| value(&moved(s)), 2e-5), 1e-7, "joint");
        }
    }
}

/// How the bound changes when a row in it moves.
#[test]
fn rows_can_be_moved_up_the_bound() {
    for case in Case::all(Family::Rbf) {
        let (data, noise, ws) = (case.data(30, 14), 0.1, &mut Workspace::default());
        let posterior = case.posterior(&data, noise);
        let (h, y, d) = data.triples().nth(4).unwrap();
        let bound = |row: &[f64]| {
            let mut data = data.clone();
            data.h[4 * data.dim..5 * data.dim].copy_from_slice(row);
            Evidence::new(&case.stats(&data), &case.kernels, noise, TOLERANCE).unwrap().0.value
        };
        let mut gradient = posterior.predict_gradient(h, ws).unwrap();
        gradient.prediction.noise *= d;
        let by_weights = posterior.weight_gradient(h, y, d, ws).unwrap();
        for (k, found) in gradient.of_evidence(y).into_iter().enumerate() {
            let moved = |step: f64| {
                let mut h = h.to_vec();
                h[k] += step;
                h
            };
            let want = slope(|s| bound(&moved(s)), 1e-4);
            close(found, want, 1e-6, "bound");
            let by_chain = slope(
                |s| case.weights(&moved(s)).iter().zip(&by_weights).map(|(w, by)| w * by).sum::<f64>(),
                1e-4,
            );
            close(by_chain, want, 1e-6, "weights");
        }
    }
}

/// Statistics of the same rows agree to rounding.
#[track_caller]
fn same(a: &Stats, b: &Stats, case: &Case, tolerance: f64) {
    close(a.residual(), b.residual(), tolerance, "t");
    close(a.c(), b.c(), tolerance, "c");
    close(a.log_noise(), b.log_noise(), tolerance, "log noise");
    close(a.count(), b.count(), tolerance, "n");
    a.b().iter().zip(b.b()).for_each(|(a, b)| close(*a, *b, tolerance, "b"));
    let evidence = |s: &Stats| Evidence::new(s, &case.kernels, 0.1, TOLERANCE).unwrap();
    let ((a, p), (b, q)) = (evidence(a), evidence(b));
    close(a.value, b.value, tolerance, "bound");
    let h: Vec<f64> = (0..case.lattice.dim()).map(|k| 0.31 + 0.07 * k as f64).collect();
    let ws = &mut Workspace::default();
    let (p, q) = (p.predict(&h, ws).unwrap(), q.predict(&h, ws).unwrap());
    close(p.mean, q.mean, tolerance, "mean");
    close(p.variance, q.variance, tolerance, "variance");
}

#[test]
fn statistics_are_sums() {
    for case in Case::all(Family::Matern32) {
        let data = case.data(90, 15);
        let stats = case.stats(&data);
        let d = data.dim;
        // Another order, and sixteen rows at a time.
        let mut reversed = data.clone();
        reversed.h = data.h.chunks_exact(d).rev().flatten().copied().collect();
        reversed.y.reverse();
        reversed.noise.reverse();
        same(&case.stats(&reversed), &stats, &case, 1e-10);
        let mut batch = Stats::new(case.lattice.clone());
        batch.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
        same(&batch, &stats, &case, 1e-10);
        // Shards.
        let mut shards: Vec<Stats> = (0..3).map(|_| Stats::new(case.lattice.clone())).collect();
        data.triples().enumerate().for_each(|(i, (h, y, d))| shards[i % 3].observe(h, y, d).unwrap());
        let mut merged = Stats::new(case.lattice.clone());
        shards.iter().for_each(|shard| merged.merge(shard).unwrap());
        same(&merged, &stats, &case, 1e-10);
        // Un-learning.
        let mut more = stats.clone();
        case.data(40, 16).triples().for_each(|(h, y, d)| more.observe(h, y, d).unwrap());
        case.data(40, 16).triples().for_each(|(h, y, d)| more.forget(h, y, d).unwrap());
        same(&more, &stats, &case, 1e-9);
        // Decay: rows that count 0.7 times are rows with 1/0.7 times the noise, but for n and Σ log d.
        let mut decayed = stats.clone();
        decayed.decay(0.7).unwrap();
        let mut noisy = Stats::new(case.lattice.clone());
        data.triples().for_each(|(h, y, d)| noisy.observe(h, y, d / 0.7).unwrap());
        close(decayed.residual(), noisy.residual(), 1e-12, "t");
        close(decayed.c(), noisy.c(), 1e-12, "c");
        let at = |s: &Stats| Evidence::new(s, &case.kernels, 0.1, TOLERANCE).unwrap().1;
        let (a, b, ws) = (at(&decayed), at(&noisy), &mut Workspace::default());
        for h in data.rows().take(5) {
            let (a, b) = (a.predict(h, ws).unwrap(), b.predict(h, ws).unwrap());
            close(a.mean, b.mean, 1e-10, "mean");
            close(a.variance, b.variance, 1e-10, "variance");
        }
        // Other units of the targets.
        let (shift, scale) = (1.3, 2.5);
        let mut rescaled = stats.clone();
        rescaled.standardize_targets(shift, scale).unwrap();
        let mut other = data.clone();
        other.y.iter_mut().for_each(|y| *y = (*y - shift) / scale);
        same(&rescaled, &case.stats(&other), &case, 1e-10);
        // And a second time: the sums that the first needed have followed.
        rescaled.standardize_targets(-shift / scale, scale.recip()).unwrap();
        same(&rescaled, &stats, &case, 1e-10);
        // Larger grids.
        if case.lattice.grids().is_empty() {
            assert!(!stats.clone().extend_to(&vec![40.0; d], 1000).unwrap());
            continue;
        }
        let mut grown = stats.clone();
        assert!(grown.extend_to(&vec![1.4; d], 10_000).unwrap());
        let again = Case { lattice: grown.lattice().clone(), kernels: case.kernels.clone(), ..case };
        assert_eq!(grown.lattice().points(), stats.lattice().points());
        same(&grown, &again.stats(&data), &again, 1e-10);
        let mut sum = stats.clone();
        sum.merge(&grown).unwrap();
        close(sum.residual(), 2.0 * stats.residual(), 1e-12, "t of both");
    }
}

#[test]
fn two_thousand_rows_one_by_one_end_where_a_new_factorization_does() {
    let mut cases = Case::all(Family::Matern32);
    // Large enough that rows wait for each other.
    let kernels = vec![Kernel::rbf(&[0.3]).unwrap(); 2];
    cases.push(Case::new(vec![unit_grid(&[20]); 2], kernels, points(Family::Matern32, 260, 3, 17), 0.8));
    for case in cases {
        let (data, noise, ws) = (case.data(2000, 18), 0.1, &mut Workspace::default());
        let stats = case.stats(&data);
        let fresh = case.posterior(&data, noise);
        let (mut recursive, mut one_by_one) = (case.posterior(&case.data(0, 18), noise), Vec::new());
        for (h, y, d) in data.triples() {
            let before = recursive.predict(h, ws).unwrap();
            let at_learning = recursive.condition(h, y, d, ws).unwrap();
            assert!((before.mean - at_learning.mean).abs() < 1e-12 && before.variance > 0.0);
            one_by_one.push(at_learning);
        }
        assert!(recursive.drift(&stats, ws).is_within(1e-9));
        for h in case.data(20, 19).rows() {
            let (a, b) = (recursive.predict(h, ws).unwrap(), fresh.predict(h, ws).unwrap());
            close(a.mean, b.mean, 1e-9, "mean");
            close(a.variance, b.variance, 1e-9, "variance");
        }
        // Sixteen at a time, in batches of any size.
        let (mut together, d) = (case.posterior(&case.data(0, 18), noise), data.dim);
        let (mut predictions, mut first) = (vec![Prediction::default(); data.y.len()], 0);
        for size in [1, 5, 16, 40, 33, 7, 1898] {
            let rows = first..first + size;
            let (h, y, noise) =
                (&data.h[first * d..(first + size) * d], &data.y[rows.clone()], &data.noise[rows.clone()]);
            together.condition_batch(h, y, Some(noise), &mut predictions[rows], ws).unwrap();
            first += size;
        }
        assert!(together.drift(&stats, ws).is_within(1e-9));
        assert_eq!(predictions, one_by_one, "to the last bit");
        let mut bad = data.h[..3 * d].to_vec();
        bad[2 * d] = f64::NAN;
        let before = together.predict(&data.h[..d], ws).unwrap();
        assert!(together.condition_batch(&bad, &[0.0; 3], None, &mut predictions[..3], ws).is_err());
        assert_eq!(together.predict(&data.h[..d], ws).unwrap(), before);
        // And back.
        for (h, y, d) in data.triples().skip(1900) {
            recursive.uncondition(h, y, d, ws).unwrap();
        }
        let mut fewer = Stats::new(case.lattice.clone());
        data.triples().take(1900).for_each(|(h, y, d)| fewer.observe(h, y, d).unwrap());
        assert!(recursive.drift(&fewer, ws).is_within(1e-9));
    }
}

/// A model with points: learning, un-learning, decay, merging, files.
#[test]
fn models_have_points_like_any_other_block() {
    for case in Case::all(Family::Matern52) {
        let (data, noise) = (case.data(300, 20), 0.05);
        let mut model = case.model(noise);
        assert_eq!(model.engine(), "dense");
        for (h, y, d) in data.triples() {
            model.observe_noisy(h, y, d).unwrap();
        }
        let bound = case.bound(noise, &data);
        close(model.log_evidence().unwrap(), bound, 1e-10, "bound");
        close(model.evidence().unwrap().value, bound, 1e-10, "bound with gradient");
        let mut batch = case.model(noise);
        batch.observe_batch(&data.h, &data.y, Some(&data.noise)).unwrap();
        let test = case.data(10, 21);
        let check = |a: &mut Wiski, b: &mut Wiski, tolerance: f64| {
            for h in test.rows() {
                let (p, q) = (a.predict(h).unwrap(), b.predict(h).unwrap());
                close(p.mean, q.mean, tolerance, "mean");
                close(p.variance, q.variance, tolerance, "variance");
            }
        };
        check(&mut model, &mut batch, 1e-10);
        let (mut rows, mut singly) = (case.model(noise), case.model(noise));
        let mut predictions = vec![Prediction::default(); 300];
        rows.step_batch(&data.h, &data.y, None, &mut predictions).unwrap();
        for ((h, y, _), p) in data.triples().zip(&predictions) {
            let want = singly.step(h, y).unwrap();
            close(p.mean, want.mean, 1e-9, "a row of many");
            close(p.variance, want.variance, 1e-9, "variance of a row of many");
        }
        check(&mut rows, &mut singly, 1e-9);
        // A file goes on to the last bit.
        let bytes = rmp_serde::to_vec_named(&model).unwrap();
        let mut read: Wiski = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!(read.stats(), model.stats());
        for (h, y, d) in test.triples() {
            read.observe_noisy(h, y, d).unwrap();
            model.observe_noisy(h, y, d).unwrap();
            assert_eq!(read.predict(h).unwrap(), model.predict(h).unwrap());
        }
        for (h, y, d) in test.triples() {
            model.forget(h, y, d).unwrap();
        }
        check(&mut model, &mut batch, 1e-9);
        batch.merge(&read).unwrap();
        assert_eq!(batch.count(), 610.0);
        batch.decay(0.5).unwrap();
        close(
            batch.stats().residual(),
            0.5 * (model.stats().residual() + read.stats().residual()),
            1e-10,
            "t",
        );
        // The unit of the targets.
        let before = model.predict(&test.h[..data.dim]).unwrap();
        model.rescale_targets(0.0, 3.0).unwrap();
        let after = model.predict(&test.h[..data.dim]).unwrap();
        close(3.0 * after.mean, before.mean, 1e-10, "mean in another unit");
        close(9.0 * after.variance, before.variance, 1e-10, "variance in another unit");
        // Scale and noise are learned.
        let space = HyperSpace::new(&model.hyperparameters());
        let before = model.log_evidence().unwrap();
        model.refit(&space, &LbfgsB { max_evaluations: 15, ..LbfgsB::default() }).unwrap();
        assert!(model.log_evidence().unwrap() > before + 1.0);
        let names: Vec<String> = model.hyperparameters().named().into_iter().map(|(name, _)| name).collect();
        let name = if case.lattice.grids().is_empty() { "outputscale" } else { "points.outputscale" };
        assert!(names.iter().any(|n| n == name), "{names:?}");
    }
}

/// Effects of the blocks against dense formulas with centered weights; their means add up to the whole.
#[test]
fn effects_and_shares_have_the_points_last() {
    for case in Case::all(Family::Matern52) {
        let (data, noise, ws) = (case.data(120, 22), 0.1, &mut Workspace::default());
        let (stats, posterior) = (case.stats(&data), case.posterior(&data, noise));
        let dense = case.dense(noise, &data);
        let blocks = case.lattice.blocks();
        let total: f64 = data.noise.iter().map(|d| 1.0 / d).sum();
        let mut center = vec![0.0; case.lattice.len()];
        for (h, _, d) in data.triples() {
            center.iter_mut().zip(case.weights(h)).for_each(|(c, w)| *c += w / d / total);
        }
        let test = case.data(2, 23);
        let mut sums = [0.0; 2];
        for block in 0..blocks {
            let at: usize = case.lattice.grids()[..block].iter().map(Grid::dim).sum();
            let first: usize = case.lattice.grids()[..block].iter().map(Grid::len).sum();
            let (dim, len) = match case.lattice.grids().get(block) {
                Some(grid) => (grid.dim(), grid.len()),
                None => (case.points().dim(), case.points().len()),
            };
            for (i, h) in test.rows().enumerate() {
                let effect = posterior.effect(&stats, block, &h[at..at + dim]).unwrap()[0];
                let own = |(k, (w, c)): (usize, (f64, &f64))| {
                    if (first..first + len).contains(&k) { w - c } else { 0.0 }
                };
                let weights = case.weights(h).into_iter().zip(&center).enumerate().map(own).collect();
                let (mean, variance) = dense.predict(&[weights]);
                let residual = if block + 1 == blocks { case.scale * case.residual(h, h) } else { 0.0 };
                close(effect.mean, mean[0], 1e-9, "effect");
                close(effect.variance, variance[(0, 0)] + residual, 1e-9, "variance of an effect");
                sums[i] += effect.mean;
            }
        }
        let means: Vec<f64> = test.rows().map(|h| posterior.predict_mean(h, ws).unwrap()).collect();
        close(sums[0] - sums[1], means[0] - means[1], 1e-10, "effects add up");
        let shares = posterior.shares(&stats);
        assert_eq!(shares.len(), blocks);
        close(shares.iter().sum(), 1.0, 1e-12, "shares add up");
        assert!(shares.iter().all(|&s| s > 0.0));
        assert!(posterior.effect(&stats, blocks, &test.h).is_err());
    }
}

#[test]
fn variances_are_never_negative() {
    // Smooth and long: κ(Z, Z) is as badly conditioned as centers may be, and the noise is tiny.
    let line: Vec<f64> = (0..300).map(|i| f64::from(i) / 300.0).collect();
    let points = Points::new(Family::Rbf, &line, &[0.3]).unwrap();
    let scale = 2.0;
    let lattice = Lattice::with_points(Vec::new(), points);
    let kernels = vec![Kernel::output_scale(scale).unwrap()];
    let mut stats = Stats::new(lattice);
    for i in 0..3000 {
        let x = f64::from(i % 1000) / 1000.0;
        stats.observe(&[x], (7.0 * x).sin(), 1.0).unwrap();
    }
    let (_, posterior) = Evidence::new(&stats, &kernels, 1e-6, TOLERANCE).unwrap();
    let (predictor, surface, ws) = (posterior.predictor(), posterior.surface(), &mut Workspace::default());
    let mut joint = Joint::default();
    for i in 0..2000 {
        let x = [f64::from(i) / 1000.0 - 0.5];
        let (a, b) = (posterior.predict(&x, ws).unwrap(), predictor.predict(&x).unwrap());
        surface.predict(&x, &mut joint).unwrap();
        assert!(a.variance >= 0.0 && b.variance >= 0.0 && joint.variance(0) >= 0.0);
        assert!(a.variance <= scale * (1.0 + 1e-12));
        close(b.variance, a.variance, 1e-9, "predictor");
        close(b.mean, a.mean, 1e-9, "predictor");
        let (a, b) = (posterior.predict_gradient(&x, ws).unwrap(), predictor.predict_gradient(&x).unwrap());
        close(b.prediction.variance, a.prediction.variance, 1e-9, "the gradient's variance");
        close(b.mean[0], a.mean[0], 1e-7, "gradient of the mean");
        close(b.variance[0], a.variance[0], 1e-7, "gradient of the variance");
    }
}

#[test]
fn what_cannot_be_is_rejected() {
    let case = &Case::all(Family::Matern32)[0];
    let d = case.lattice.dim();
    let mut stats = Stats::new(case.lattice.clone());
    let mut row = vec![0.5; d];
    row[d - 1] = f64::NAN;
    let bad = stats.observe(&row, 1.0, 1.0);
    assert!(
        matches!(bad, Err(Error::NotFinite { ref field, .. }) if *field == format!("x[{}]", d - 1)),
        "{bad:?}"
    );
    assert!(matches!(stats.extend_to(&row, 1000), Err(Error::NotFinite { .. })));
    assert!(matches!(stats.observe(&row[1..], 1.0, 1.0), Err(Error::WrongLength { .. })));
    // Points reach everywhere, grids do not.
    row[d - 1] = 1e6;
    stats.observe(&row, 1.0, 1.0).unwrap();
    close(stats.residual(), 1.0, 1e-12, "nothing is known so far away");
    row[0] = 9.0;
    assert!(matches!(stats.observe(&row, 1.0, 1.0), Err(Error::OutsideGrid { axis: 0, .. })));
    // Other points, no points.
    let other =
        Case::new(case.lattice.grids().to_vec(), Vec::new(), points(Family::Matern32, 13, 2, 99), 1.0);
    assert!(matches!(stats.merge(&Stats::new(other.lattice)), Err(Error::Unsupported { .. })));
    let grids = Lattice::new(case.lattice.grids().to_vec()).unwrap();
    assert!(stats.merge(&Stats::new(grids)).is_err());
    assert!(matches!(Stats::low_rank(case.lattice.clone(), 5), Err(Error::Unsupported { .. })));
    // Kernels: one too few, one that is more than a scale.
    assert!(Prior::new(&case.lattice, &case.kernels[..2], TOLERANCE).is_err());
    let mut wrong = case.kernels.clone();
    wrong[2] = Kernel::rbf(&[0.5]).unwrap();
    assert!(Prior::new(&case.lattice, &wrong, TOLERANCE).is_err());
    // Engines for large grids know no points, and are not chosen.
    let grid = Grid::covering(&[(0.0, 1.0)], &[3000]).unwrap();
    let builder = |engine: Engine| {
        Wiski::builder()
            .grid(grid.clone())
            .points(case.points().clone())
            .kernel(Kernel::rbf(&[0.5]).unwrap())
            .kernel(Kernel::output_scale(1.0).unwrap())
            .engine(engine)
            .off_grid(OffGrid::Prior)
            .build()
    };
    for engine in ["sparse", "krylov"] {
        let rejected = builder(engine.parse().unwrap());
        assert!(matches!(rejected, Err(Error::Unsupported { .. })), "{engine}");
    }
    let model = builder(Engine::Auto).unwrap();
    assert_eq!(model.engine(), "dense");
    let p = model.predict(&[5.0, 0.0, 0.0]).unwrap();
    close(p.variance, 2.0, 1e-12, "the prior of grid and points");
}
