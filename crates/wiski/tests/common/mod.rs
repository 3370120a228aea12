//! The slow, obviously right Gaussian process that everything fast is compared with, and data for it.
#![allow(dead_code, unreachable_pub)]

use faer::prelude::*;
use faer::{Mat, Side};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wiski::internals::grid::Lattice;
use wiski::{Family, Grid, Kernel, OnlineGp, OnlineRegressor, Wiski};

pub type Rng = Xoshiro256PlusPlus;

pub fn rng(seed: u64) -> Rng {
    Rng::seed_from_u64(seed)
}

/// Keys' cubic convolution kernel, as in the literature.
fn keys(t: f64) -> f64 {
    let t = t.abs();
    if t <= 1.0 {
        (1.5 * t - 2.5) * t * t + 1.0
    } else if t < 2.0 {
        ((-0.5 * t + 2.5) * t - 4.0) * t + 2.0
    } else {
        0.0
    }
}

/// Every grid point of every block, as (block, coordinates).
pub fn grid_points(lattice: &Lattice) -> Vec<(usize, Vec<f64>)> {
    let mut all = Vec::new();
    for (j, grid) in lattice.grids().iter().enumerate() {
        let mut points = vec![vec![]];
        for axis in grid.axes() {
            points = points
                .into_iter()
                .flat_map(|p: Vec<f64>| {
                    (0..axis.points()).map(move |i| [p.as_slice(), &[axis.point(i)]].concat())
                })
                .collect();
        }
        all.extend(points.into_iter().map(|p| (j, p)));
    }
    all
}

/// The interpolation weights of one point over all grid points.
pub fn weights(lattice: &Lattice, h: &[f64]) -> Vec<f64> {
    let mut starts = vec![0];
    for grid in lattice.grids() {
        starts.push(starts[starts.len() - 1] + grid.dim());
    }
    grid_points(lattice)
        .iter()
        .map(|(j, u)| {
            let own = &h[starts[*j]..starts[*j + 1]];
            let axes = lattice.grids()[*j].axes();
            own.iter().zip(u).zip(axes).map(|((x, u), a)| keys((x - u) / a.step())).product()
        })
        .collect()
}

/// The prior covariance between all grid points.
pub fn prior_covariance(lattice: &Lattice, kernels: &[Kernel]) -> Mat<f64> {
    let u = grid_points(lattice);
    Mat::from_fn(u.len(), u.len(), |i, j| {
        let ((a, x), (b, y)) = (&u[i], &u[j]);
        let difference: Vec<f64> = x.iter().zip(y).map(|(x, y)| x - y).collect();
        if a == b { kernels[*a].covariance(&difference) } else { 0.0 }
    })
}

/// A Gaussian process with covariance W K Wᵀ and noise σ²D, by a Cholesky factorization of size n.
pub struct DenseGp {
    pub w: Mat<f64>,
    pub k: Mat<f64>,
    pub noise: Vec<f64>,
    pub y: Vec<f64>,
}

impl DenseGp {
    pub fn new(lattice: &Lattice, kernels: &[Kernel], sigma2: f64, data: &Data) -> Self {
        let w: Vec<Vec<f64>> = data.rows().map(|h| weights(lattice, h)).collect();
        Self {
            w: Mat::from_fn(w.len(), lattice.len(), |i, j| w[i][j]),
            k: prior_covariance(lattice, kernels),
            noise: data.noise.iter().map(|d| sigma2 * d).collect(),
            y: data.y.clone(),
        }
    }

    fn factor(&self) -> faer::linalg::solvers::Llt<f64> {
        let mut c = &self.w * &self.k * self.w.transpose();
        (0..self.y.len()).for_each(|i| c[(i, i)] += self.noise[i]);
        c.llt(Side::Lower).unwrap()
    }

    fn targets(&self) -> Mat<f64> {
        Mat::from_fn(self.y.len(), 1, |i, _| self.y[i])
    }

    /// Latent mean and covariance at points with the given weights.
    pub fn predict(&self, w: &[Vec<f64>]) -> (Vec<f64>, Mat<f64>) {
        let ws = Mat::from_fn(w.len(), self.k.nrows(), |i, j| w[i][j]);
        let factor = self.factor();
        let cross = &self.w * &self.k * ws.transpose();
        let mean = cross.transpose() * factor.solve(self.targets());
        let covariance = &ws * &self.k * ws.transpose() - cross.transpose() * factor.solve(&cross);
        ((0..w.len()).map(|i| mean[(i, 0)]).collect(), covariance)
    }

    pub fn evidence(&self) -> f64 {
        let factor = self.factor();
        let y = self.targets();
        let fit = (y.transpose() * factor.solve(&y))[(0, 0)];
        let n = self.y.len();
        let log_det: f64 = 2.0 * (0..n).map(|i| factor.L()[(i, i)].ln()).sum::<f64>();
        -0.5 * (fit + log_det + n as f64 * std::f64::consts::TAU.ln())
    }
}

#[derive(Clone, Debug)]
pub struct Data {
    pub dim: usize,
    pub h: Vec<f64>,
    pub y: Vec<f64>,
    pub noise: Vec<f64>,
}

impl Data {
    /// n points in [0, 1]^dim with a wavy target; relative noise 1 or between ½ and 2.
    pub fn random(n: usize, dim: usize, heteroscedastic: bool, seed: u64) -> Self {
        let mut rng = rng(seed);
        let h: Vec<f64> = (0..n * dim).map(|_| rng.random::<f64>()).collect();
        let wave = |x: &[f64]| x.iter().enumerate().map(|(k, x)| ((3.0 + k as f64) * x).sin()).sum::<f64>();
        let y = h.chunks_exact(dim).map(|x| wave(x) + 0.2 * (rng.random::<f64>() - 0.5)).collect();
        let noise =
            (0..n).map(|_| if heteroscedastic { 0.5 + 1.5 * rng.random::<f64>() } else { 1.0 }).collect();
        Self { dim, h, y, noise }
    }

    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.h.chunks_exact(self.dim)
    }

    /// (point, target, noise) triples.
    pub fn triples(&self) -> impl Iterator<Item = (&[f64], f64, f64)> {
        self.rows().zip(&self.y).zip(&self.noise).map(|((h, &y), &d)| (h, y, d))
    }
}

pub fn unit_grid(points: &[usize]) -> Grid {
    Grid::covering(&vec![(0.0, 1.0); points.len()], points).unwrap()
}

/// Every kernel family, and sums and products of them, on d axes with different parameters per axis.
pub fn kernels(d: usize) -> Vec<Kernel> {
    let lengths = &[0.4, 0.55, 0.7, 0.5][..d];
    let others = &[0.9, 1.3, 0.8, 1.1][..d];
    let mixture: Vec<_> = (0..d).map(|k| vec![(0.6, 0.5 + 0.1 * k as f64, 0.4), (0.4, 1.3, 0.3)]).collect();
    let mut all = vec![
        Kernel::rbf(lengths).unwrap().scaled(1.3),
        Kernel::matern12(lengths).unwrap().scaled(0.8),
        Kernel::matern32(lengths).unwrap(),
        Kernel::matern52(lengths).unwrap().scaled(2.0),
        Kernel::rational_quadratic(lengths, others).unwrap(),
        Kernel::periodic(others, others).unwrap().scaled(0.7),
        Kernel::cosine(others).unwrap(),
        Kernel::spectral_mixture(&mixture).unwrap().scaled(1.1),
        Kernel::rbf(lengths).unwrap() + Kernel::periodic(others, lengths).unwrap().scaled(0.3),
        Kernel::periodic(others, others).unwrap() * Kernel::matern52(others).unwrap().scaled(1.5),
    ];
    if d > 1 {
        all.push(
            Kernel::on_axes(Family::Rbf, d, &[0]).unwrap()
                + Kernel::on_axes(Family::Matern32, d, &[1]).unwrap(),
        );
    }
    all
}

/// |a − b| ≤ tolerance · max(1, |b|).
#[track_caller]
pub fn close(a: f64, b: f64, tolerance: f64, what: &str) {
    assert!(
        (a - b).abs() <= tolerance * b.abs().max(1.0),
        "{what}: {a} against {b}, off by {:e}",
        (a - b).abs()
    );
}

/// The posterior of all rows under the scales, features and hyperparameters of a model, computed at once, is the model's.
pub fn assert_has_learned<const D: usize>(model: &OnlineRegressor, rows: &[([f64; D], f64)]) {
    let (inner, encoder, scale) = (model.model().unwrap(), model.encoder().unwrap(), model.target_scale());
    let lattice = inner.stats().lattice();
    let builder = lattice.grids().iter().fold(Wiski::builder(), |b, grid| b.grid(grid.clone()));
    let builder = lattice.points().into_iter().fold(builder, |b, points| b.points(points.clone()));
    let builder = inner.kernels().iter().fold(builder, |b, kernel| b.kernel(kernel.clone()));
    let mut batch = builder.noise(inner.noise()).rank_tolerance(1e-6).build().unwrap();
    assert_eq!(model.count(), rows.len() as f64);
    for (x, y) in rows {
        let h = model.coordinates(x).unwrap();
        batch.observe(&h, (y - scale.shift) / scale.scale).unwrap();
    }
    assert_eq!(encoder.input_dim(), D);
    for (x, _) in rows.iter().step_by(37) {
        let h = model.coordinates(x).unwrap();
        let (p, q) = (inner.predict(&h).unwrap(), batch.predict(&h).unwrap());
        // Which eigenvalues of its prior a model drops, all of them below 10⁻⁶ of the largest, depends on the number of
        // rows when it was factorized.
        assert!((p.mean - q.mean).abs() < 1e-4, "{} {}", p.mean, q.mean);
        assert!((p.variance - q.variance).abs() < 1e-5 + 0.01 * q.variance, "{} {}", p.variance, q.variance);
    }
}
