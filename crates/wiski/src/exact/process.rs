//! An exact Gaussian process that keeps its rows.
//!
//! ```text
//! L Lᵀ = K + σ²D     α = (K + σ²D)⁻¹y
//! log p(y) = −½ yᵀα − Σ log L_ii − n/2 log 2π     ∂ log p/∂K = ½ (ααᵀ − (K + σ²D)⁻¹)
//! ```
//!
//! A new row borders the factor, n² multiply-adds; new hyperparameters need all of it, n³/3. A file holds no factor but
//! the number of rows that were factored together: the others are bordered again when it is read, so that the process
//! goes on to the last bit.

use std::f64::consts::TAU;

use faer::MatRef;
use serde::{Deserialize, Serialize};

use super::covariance::{Covariance, Slots};
use super::posterior::KernelPosterior;
use crate::dense::{Growing, dot, inverse_of_cholesky, log_det, solve_cholesky, solve_vector};
use crate::error::{Error, Result, finite, length, positive};
use crate::evidence::Evidence;
use crate::kernel::Family;
use crate::learn::{HyperSpace, Hyperparameters, LbfgsB, Minimum, Rows};
use crate::posterior::Prediction;
use crate::saved::{Restore, restored_after_reading};

/// A Gaussian process with a product kernel on rows that it keeps. A new row and a prediction cost O(n²), new
/// hyperparameters and a gradient of the evidence O(n³).
///
/// ```
/// use wiski::Family;
/// use wiski::internals::exact::ExactProcess;
///
/// let mut process = ExactProcess::new(Family::Matern52, 1, 0.01)?;
/// for i in 0..20 {
///     let x = f64::from(i) / 10.0 - 1.0;
///     process.observe(&[x], (3.0 * x).sin(), 1.0)?;
/// }
/// let p = process.predict(&[0.42])?;
/// assert!((p.mean - (3.0 * 0.42f64).sin()).abs() < 0.05 && p.variance < 0.01);
/// # Ok::<(), wiski::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ExactProcess {
    kernel: Covariance,
    noise: f64,
    rows: Rows,
    /// So many rows were factored together; those after them have bordered the factor.
    together: usize,
    /// From the rows and all that stands above.
    #[serde(skip)]
    solved: Solved,
}

/// The least noise variance of a row as a share of the kernel's: some 500² ε, below which rounding would make K + σ²D
/// indefinite when a place is observed twice.
const SMALLEST: f64 = 1e-10;

/// L and α.
#[derive(Debug, Clone, Default)]
struct Solved {
    factor: Growing,
    alpha: Vec<f64>,
}

restored_after_reading!(ExactProcess);

impl Restore for ExactProcess {
    fn restore(&mut self) -> Result<()> {
        positive("noise", self.noise, 0)?;
        let (dim, count) = (self.dim(), self.rows.len());
        length("coordinates of the rows", count * dim, self.rows.x.len())?;
        self.rows.x.iter().chain(&self.rows.y).try_for_each(|&v| finite("row", v, 0))?;
        self.rows.noise.iter().try_for_each(|&v| positive("noise of a row", v, 0))?;
        if self.together > count {
            let reason = format!("{} of {count} rows were factored together", self.together);
            return Err(Error::Config { field: "rows".into(), reason });
        }
        let first = self.rows.filter(|i| i < self.together);
        let mut factor = factored(&self.kernel, self.noise, &first)?;
        for i in self.together..count {
            let (known, x) = self.rows.x[..(i + 1) * dim].split_at(i * dim);
            border(&mut factor, &self.kernel, known, x, self.noise * self.rows.noise[i])?;
        }
        let alpha = solve_cholesky(factor.factor(), &self.rows.y);
        self.solved = Solved { factor, alpha };
        Ok(())
    }
}

impl ExactProcess {
    /// A process without rows, with the default parameters of a family on every axis.
    pub fn new(family: Family, dim: usize, noise: f64) -> Result<Self> {
        positive("noise", noise, 0)?;
        let (kernel, rows, solved) = (Covariance::new(family, dim)?, Rows::default(), Solved::default());
        Ok(Self { kernel, noise, rows, together: 0, solved })
    }

    /// The number of coordinates of a row.
    pub fn dim(&self) -> usize {
        self.kernel.dim()
    }

    /// The kernel.
    pub fn kernel(&self) -> &Covariance {
        &self.kernel
    }

    /// The number of rows.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The rows.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The noise variance σ².
    pub fn noise(&self) -> f64 {
        self.noise
    }

    /// L.
    pub(super) fn factor(&self) -> MatRef<'_, f64> {
        self.solved.factor.factor()
    }

    /// The kernel, as one that grids have too, and the noise variance.
    pub fn hyperparameters(&self) -> Result<Hyperparameters> {
        Ok(Hyperparameters { kernels: vec![self.kernel.to_kernel()?], noise: self.noise })
    }

    /// Replaces kernel parameters and noise. If the covariance matrix is then not positive definite in working
    /// precision, that is rejected and nothing is changed.
    pub fn set_hyperparameters(&mut self, hyper: &Hyperparameters) -> Result<()> {
        length("kernels", 1, hyper.kernels.len())?;
        positive("noise", hyper.noise, 0)?;
        let mut kernel = self.kernel.clone();
        kernel.set_parameters(&hyper.kernels[0].parameters())?;
        self.solved = solved(&kernel, hyper.noise, &self.rows)?;
        (self.kernel, self.noise, self.together) = (kernel, hyper.noise, self.rows.len());
        Ok(())
    }

    /// Learns a row. `noise` is its noise variance relative to that of the process.
    pub fn observe(&mut self, x: &[f64], y: f64, noise: f64) -> Result<()> {
        length("x", self.dim(), x.len())?;
        x.iter().try_for_each(|&v| finite("x", v, 0))?;
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        border(&mut self.solved.factor, &self.kernel, &self.rows.x, x, self.noise * noise)?;
        self.rows.push(x, y, noise);
        self.solved.alpha = solve_cholesky(self.factor(), &self.rows.y);
        Ok(())
    }

    /// Learns many rows at once.
    pub fn observe_rows(&mut self, rows: &Rows) -> Result<()> {
        length("coordinates of the rows", rows.len() * self.dim(), rows.x.len())?;
        let mut new = self.clone();
        for (i, x) in rows.x.chunks_exact(self.dim()).enumerate() {
            new.rows.push(x, rows.y[i], rows.noise[i]);
        }
        new.together = new.rows.len();
        new.restore()?;
        *self = new;
        Ok(())
    }

    /// Replaces the targets y by (y − shift)/factor; kernel and noise keep their meaning in the new unit.
    pub fn rescale_targets(&mut self, shift: f64, factor: f64) -> Result<()> {
        positive("factor", factor, 0)?;
        let mut hyper = self.hyperparameters()?;
        hyper.rescale(factor);
        self.rows.y.iter_mut().for_each(|y| *y = (*y - shift) / factor);
        self.set_hyperparameters(&hyper)
    }

    /// What the process says about a point.
    pub fn predict(&self, x: &[f64]) -> Result<Prediction> {
        length("x", self.dim(), x.len())?;
        let (mut mean, mut variance) = (0.0, self.kernel.variance());
        if !self.rows.is_empty() {
            let k = self.kernel.matrix(&self.rows.x, x);
            mean = dot(k.col_as_slice(0), &self.solved.alpha);
            let white = solve_vector(self.factor(), k.col_as_slice(0));
            variance = (variance - dot(&white, &white)).max(0.0);
        }
        Ok(Prediction { mean, variance, noise: self.noise })
    }

    /// The posterior for joint predictions. O(n³).
    pub fn posterior(&self) -> KernelPosterior {
        let mut change = inverse_of_cholesky(self.factor());
        for j in 0..change.ncols() {
            change.col_as_slice_mut(j).iter_mut().for_each(|v| *v = -*v);
        }
        let (places, weights) = (self.rows.x.clone(), self.solved.alpha.clone());
        KernelPosterior { kernel: self.kernel.clone(), noise: self.noise, places, weights, change }
    }

    /// The log marginal likelihood with its gradient. O(n³).
    pub fn evidence(&self) -> Evidence {
        evidence(&self.kernel, self.noise, &self.rows, &self.solved)
    }

    /// Maximizes evidence and priors from the present hyperparameters on.
    pub fn refit(&mut self, space: &HyperSpace, optimizer: &LbfgsB) -> Result<Minimum> {
        let (rows, mut kernel) = (&self.rows, self.kernel.clone());
        let of = |hyper: &Hyperparameters, _: Option<&Solved>, _: Option<Solved>| {
            kernel.set_parameters(&hyper.kernels[0].parameters())?;
            let solved = solved(&kernel, hyper.noise, rows)?;
            Ok((evidence(&kernel, hyper.noise, rows, &solved), solved))
        };
        let start = self.hyperparameters()?;
        let refitted = space.refit_with(rows.len() as f64, &start, optimizer, of)?;
        self.kernel.set_parameters(&refitted.hyper.kernels[0].parameters())?;
        (self.noise, self.solved, self.together) =
            (refitted.hyper.noise, refitted.posterior, self.rows.len());
        Ok(refitted.minimum)
    }
}

fn factored(kernel: &Covariance, noise: f64, rows: &Rows) -> Result<Growing> {
    let mut k = kernel.gram(&rows.x);
    for (i, d) in rows.noise.iter().enumerate() {
        k[(i, i)] += (noise * d).max(kernel.variance() * SMALLEST);
    }
    Growing::new(k)
}

/// One more row with the given noise variance, after the known ones.
fn border(factor: &mut Growing, kernel: &Covariance, known: &[f64], x: &[f64], noise: f64) -> Result<()> {
    let k = kernel.matrix(known, x);
    factor.push(k.col_as_slice(0), kernel.variance() + noise.max(kernel.variance() * SMALLEST))
}

fn solved(kernel: &Covariance, noise: f64, rows: &Rows) -> Result<Solved> {
    let factor = factored(kernel, noise, rows)?;
    let alpha = solve_cholesky(factor.factor(), &rows.y);
    Ok(Solved { factor, alpha })
}

fn evidence(kernel: &Covariance, noise: f64, rows: &Rows, solved: &Solved) -> Evidence {
    let (factor, alpha) = (solved.factor.factor(), &solved.alpha);
    let n = rows.len() as f64;
    let value = -0.5 * (dot(&rows.y, alpha) + log_det(factor) + n * TAU.ln());
    let mut by_k = inverse_of_cholesky(factor);
    for j in 0..by_k.ncols() {
        let own = alpha[j];
        for (entry, a) in by_k.col_as_slice_mut(j).iter_mut().zip(alpha) {
            *entry = 0.5 * (a * own - *entry);
        }
    }
    let (mut by_noise, mut by_kernel) = (0.0, vec![0.0; kernel.parameters().len()]);
    for (i, d) in rows.noise.iter().enumerate() {
        if noise * d >= kernel.variance() * SMALLEST {
            by_noise += d * by_k[(i, i)];
        } else {
            by_kernel[0] += SMALLEST * by_k[(i, i)];
        }
    }
    let mut slots = Slots { parameters: &mut by_kernel, a: None, b: None };
    let k = kernel.gram(&rows.x);
    kernel.vjp((&rows.x, &rows.x), k.as_ref(), by_k.as_ref(), &mut slots);
    Evidence { value, by_kernel: vec![by_kernel], by_noise }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::Hyperprior;
    use crate::posterior::Surrogate;
    use faer::Mat;
    use faer::linalg::solvers::Solve;

    fn rows(n: usize, dim: usize) -> Rows {
        let mut rows = Rows::default();
        for i in 0..n {
            let x: Vec<f64> = (0..dim).map(|k| 0.95 * (12.9898 * (i * dim + k + 1) as f64).sin()).collect();
            let y = (2.0 * x[0]).sin() + 0.5 * x[dim - 1] + 0.2 * (7.7 * (i * i) as f64).sin();
            rows.push(&x, y, 0.5 + 0.02 * i as f64);
        }
        rows
    }

    fn process(family: Family, n: usize, dim: usize) -> ExactProcess {
        let mut process = ExactProcess::new(family, dim, 0.1).unwrap();
        process.observe_rows(&rows(n, dim)).unwrap();
        process
    }

    /// The textbook formulas with an LU decomposition and the library's kernel.
    #[test]
    fn predictions_and_evidence_are_those_of_the_dense_formulas() {
        for (family, dim) in [(Family::Rbf, 1), (Family::Matern12, 2), (Family::Matern52, 6)] {
            let (n, all) = (40, rows(40, dim));
            let mut one = ExactProcess::new(family, dim, 0.1).unwrap();
            for (i, x) in all.x.chunks_exact(dim).enumerate() {
                one.observe(x, all.y[i], all.noise[i]).unwrap();
            }
            let kernel = one.hyperparameters().unwrap().kernels.remove(0);
            let covariance = |a: &[f64], b: &[f64]| {
                kernel.covariance(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>())
            };
            let row = |i: usize| &all.x[i * dim..(i + 1) * dim];
            let noise = |i: usize, j: usize| if i == j { 0.1 * all.noise[i] } else { 0.0 };
            let k = Mat::from_fn(n, n, |i, j| covariance(row(i), row(j)) + noise(i, j));
            let (lu, y) = (k.partial_piv_lu(), Mat::from_fn(n, 1, |i, _| all.y[i]));
            let alpha = lu.solve(&y);
            let log_det: f64 = (0..n).map(|i| lu.U()[(i, i)].abs().ln()).sum();
            let value = -0.5 * ((y.transpose() * &alpha)[(0, 0)] + log_det + n as f64 * TAU.ln());
            assert!((one.evidence().value - value).abs() < 1e-10 * value.abs());
            let point = vec![0.3; dim];
            let kx = Mat::from_fn(n, 1, |i, _| covariance(row(i), &point));
            let p = one.predict(&point).unwrap();
            assert!((p.mean - (kx.transpose() * &alpha)[(0, 0)]).abs() < 1e-11);
            let variance = kernel.variance() - (kx.transpose() * lu.solve(&kx))[(0, 0)];
            assert!((p.variance - variance).abs() < 1e-11, "{family:?}");
            // The joint prediction of one point is the same.
            let mut joint = crate::posterior::Joint::default();
            one.posterior().predict(&point, &mut joint).unwrap();
            assert!((joint.mean[0] - p.mean).abs() < 1e-11 && (joint.variance(0) - variance).abs() < 1e-11);
        }
    }

    #[test]
    fn the_gradient_is_that_of_the_evidence() {
        let process = process(Family::Matern52, 25, 3);
        let (hyper, evidence) = (process.hyperparameters().unwrap(), process.evidence());
        let slopes: Vec<f64> = evidence.by_kernel[0].iter().copied().chain([evidence.by_noise]).collect();
        let named = hyper.named();
        for (i, slope) in slopes.iter().enumerate() {
            let h = 1e-3 * named[i].1;
            let at = |shift: f64| {
                let (mut moved, mut new) = (hyper.clone(), process.clone());
                if i + 1 == slopes.len() {
                    moved.noise += shift;
                } else {
                    let mut values = hyper.kernels[0].parameters();
                    values[i] += shift;
                    moved.kernels[0].set_parameters(&values).unwrap();
                }
                new.set_hyperparameters(&moved).unwrap();
                new.evidence().value
            };
            let numeric = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
            assert!((slope - numeric).abs() < 1e-8 * (1.0 + numeric.abs()), "{}", named[i].0);
        }
    }

    #[test]
    fn a_refit_ends_where_the_gradient_vanishes() {
        let mut process = process(Family::Matern32, 40, 2);
        let hyper = process.hyperparameters().unwrap();
        let prior = Hyperprior::Gamma { shape: 3.0, rate: 3.0 };
        let space = HyperSpace::new(&hyper).with_prior("lengthscale", prior).unwrap();
        let before = process.evidence().value;
        let minimum = process.refit(&space, &LbfgsB::default()).unwrap();
        assert!(minimum.gradient.iter().all(|g| g.abs() < 1e-4), "{minimum:?}");
        assert!(process.evidence().value > before);
        assert!(process.hyperparameters().unwrap() != hyper);
    }

    #[test]
    fn a_process_read_from_a_file_is_the_same_to_the_last_bit() {
        let mut process = process(Family::Matern52, 20, 2);
        for i in 0..40 {
            let x = [(0.7 * f64::from(i)).sin(), (1.9 * f64::from(i)).cos()];
            process.observe(&x, x[0] - x[1], 1.0).unwrap();
        }
        let bytes = rmp_serde::to_vec_named(&process).unwrap();
        let again: ExactProcess = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!(again.solved.alpha, process.solved.alpha);
        assert_eq!(again.factor(), process.factor());
        process.together = 61;
        let broken = rmp_serde::to_vec_named(&process).unwrap();
        assert!(rmp_serde::from_slice::<ExactProcess>(&broken).is_err());
    }

    #[test]
    fn another_unit_changes_nothing_but_the_unit() {
        let mut process = process(Family::Matern52, 30, 2);
        let before = process.predict(&[0.2, -0.3]).unwrap();
        process.rescale_targets(0.7, 2.5).unwrap();
        let mean = process.predict(&[0.2, -0.3]).unwrap();
        // The prior mean of zero has moved, so that the shift alone is compared through a second one.
        process.rescale_targets(-0.7 / 2.5, 0.4).unwrap();
        let after = process.predict(&[0.2, -0.3]).unwrap();
        assert!((after.mean - before.mean).abs() < 1e-12 && (after.variance - before.variance).abs() < 1e-12);
        assert!((mean.variance * 6.25 - before.variance).abs() < 1e-12);
    }

    #[test]
    fn a_place_may_be_observed_again_without_noise() {
        let mut process = ExactProcess::new(Family::Rbf, 1, 1e-9).unwrap();
        for i in 0..60 {
            process.observe(&[0.1 * f64::from(i % 20) - 1.0], f64::from(i % 20), 1e-300).unwrap();
        }
        let mut again = process.clone();
        again.set_hyperparameters(&process.hyperparameters().unwrap()).unwrap();
        // κ(K + σ²D) is some 10¹²: a few digits are left.
        let (a, b) = (process.predict(&[0.33]).unwrap(), again.predict(&[0.33]).unwrap());
        assert!((a.mean - b.mean).abs() < 1e-2 && (a.mean - 13.3).abs() < 1.0, "{a:?} {b:?}");
        // Where the floor holds, the noise does nothing and the scale a little more.
        let (evidence, hyper) = (process.evidence(), process.hyperparameters().unwrap());
        assert_eq!(evidence.by_noise, 0.0);
        let at = |factor: f64| {
            let (mut hyper, mut new) = (hyper.clone(), process.clone());
            hyper.kernels[0] = hyper.kernels[0].clone().scaled(factor);
            new.set_hyperparameters(&hyper).unwrap();
            new.evidence().value
        };
        let slope = (at(1.001) - at(0.999)) / (0.002 * hyper.kernels[0].variance());
        let own = evidence.by_kernel[0][0];
        assert!((own - slope).abs() < 1e-3 * slope.abs(), "{own} {slope}");
    }

    #[test]
    fn bad_rows_are_rejected_and_nothing_changes() {
        let mut process = process(Family::Matern52, 10, 2);
        let before = process.predict(&[0.1, 0.1]).unwrap();
        assert!(process.observe(&[0.0], 1.0, 1.0).is_err());
        assert!(process.observe(&[0.0, f64::NAN], 1.0, 1.0).is_err());
        assert!(process.observe(&[0.0, 0.0], f64::INFINITY, 1.0).is_err());
        assert!(process.observe(&[0.0, 0.0], 1.0, 0.0).is_err());
        let mut hyper = process.hyperparameters().unwrap();
        hyper.noise = -1.0;
        assert!(process.set_hyperparameters(&hyper).is_err());
        assert!(ExactProcess::new(Family::Periodic, 2, 0.1).is_err());
        assert_eq!(process.predict(&[0.1, 0.1]).unwrap(), before);
        assert_eq!(process.count(), 10);
    }

    /// A variance that has vanished in rounding still has a derivative.
    #[test]
    fn criteria_are_finite_at_places_that_are_known() {
        let mut process = ExactProcess::new(Family::Rbf, 1, 1e-12).unwrap();
        for i in 0..12 {
            process.observe(&[0.2 * f64::from(i) - 1.0], 0.1 * f64::from(i * i), 1.0).unwrap();
        }
        let posterior = process.posterior();
        let mut joint = crate::posterior::Joint::default();
        for i in 0..12 {
            let x = [0.2 * f64::from(i) - 1.0];
            posterior.predict(&x, &mut joint).unwrap();
            assert!(joint.variance(0) > 0.0 && joint.variance(0) < 1e-9, "{}", joint.variance(0));
            let mut gradient = [0.0];
            posterior.vjp(&x, &joint, &[1.0], &[0.5 / joint.variance(0).sqrt()], &mut gradient).unwrap();
            assert!(gradient[0].is_finite());
        }
    }

    /// A covariance is what an observation of one point changes at the other.
    #[test]
    fn a_mean_taken_for_granted_is_an_observation_of_it() {
        let mut process = process(Family::Matern52, 30, 2);
        let (a, b) = ([0.1, -0.3], [0.4, 0.1]);
        let mut posterior = process.posterior();
        posterior.assume_mean(&a).unwrap();
        process.observe(&a, process.predict(&a).unwrap().mean, 1.0).unwrap();
        let mut joint = crate::posterior::Joint::default();
        posterior.predict(&[b, a].concat(), &mut joint).unwrap();
        for (i, x) in [b, a].iter().enumerate() {
            let p = process.predict(x).unwrap();
            assert!((joint.mean[i] - p.mean).abs() < 1e-10 && (joint.variance(i) - p.variance).abs() < 1e-10);
        }
    }
}
