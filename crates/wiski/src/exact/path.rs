//! Whole functions drawn from an exact posterior, by pathwise conditioning (Wilson et al. 2020, "Efficiently sampling
//! functions from Gaussian process posteriors"):
//!
//! ```text
//! f(x) = g(x) + k(x, X)(K + σ²D)⁻¹(y − g(X) − ε),   g ~ prior,  ε ~ N(0, σ²D)
//! ```
//!
//! has the posterior's distribution. The prior's function is a sum of M cosines with frequencies from the kernel's
//! spectral density (Rahimi and Recht 2007): normal for an RBF and Student's t with 2ν degrees of freedom for a
//! Matérn kernel, on each axis of a product independently. Its error, of order M^−½, matters only where there are
//! no rows: what rows say is taken in exactly.

use faer::Mat;
use rand::{Rng, RngExt};
use rand_distr::StandardNormal;
use std::f64::consts::TAU;

use super::covariance::{Covariance, Slots};
use super::process::ExactProcess;
use crate::dense::{dot, solve_cholesky};
use crate::error::{Error, Result, length};
use crate::kernel::Family;

/// M.
const COSINES: usize = 1024;

/// A function drawn from the posterior of an [`ExactProcess`]. A value costs O((n + M) d).
#[derive(Debug, Clone)]
pub struct PathSample {
    kernel: Covariance,
    /// Frequencies, one cosine after the other.
    frequencies: Vec<f64>,
    phases: Vec<f64>,
    amplitudes: Vec<f64>,
    places: Vec<f64>,
    weights: Vec<f64>,
}

impl PathSample {
    /// The function's value.
    pub fn value(&self, x: &[f64]) -> Result<f64> {
        length("x", self.kernel.dim(), x.len())?;
        Ok(self.prior(x, None) + self.update(x, None))
    }

    /// The function's value, and its gradient.
    pub fn value_and_gradient(&self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        length("x", self.kernel.dim(), x.len())?;
        length("gradient", x.len(), gradient.len())?;
        gradient.fill(0.0);
        Ok(self.prior(x, Some(gradient)) + self.update(x, Some(gradient)))
    }

    fn prior(&self, x: &[f64], mut gradient: Option<&mut [f64]>) -> f64 {
        let mut value = 0.0;
        let waves = self.frequencies.chunks_exact(x.len()).zip(&self.phases).zip(&self.amplitudes);
        for ((frequency, phase), amplitude) in waves {
            let (sin, cos) = (dot(frequency, x) + phase).sin_cos();
            value += amplitude * cos;
            if let Some(gradient) = gradient.as_deref_mut() {
                gradient.iter_mut().zip(frequency).for_each(|(g, f)| *g -= amplitude * sin * f);
            }
        }
        value
    }

    fn update(&self, x: &[f64], gradient: Option<&mut [f64]>) -> f64 {
        let k = self.kernel.matrix(&self.places, x);
        if gradient.is_some() {
            let mut unused = vec![0.0; self.kernel.parameters().len()];
            let by_k = Mat::from_fn(self.weights.len(), 1, |i, _| self.weights[i]);
            let mut slots = Slots { parameters: &mut unused, a: None, b: gradient };
            self.kernel.vjp((&self.places, x), k.as_ref(), by_k.as_ref(), &mut slots);
        }
        dot(k.col_as_slice(0), &self.weights)
    }
}

/// A frequency of the spectral density of a family with length-scale 1.
fn frequency(family: Family, rng: &mut (impl Rng + ?Sized)) -> Result<f64> {
    let normal: f64 = rng.sample(StandardNormal);
    // 2ν degrees of freedom: the sum of as many squares.
    let freedom = match family {
        Family::Rbf => return Ok(normal),
        Family::Matern12 => 1,
        Family::Matern32 => 3,
        Family::Matern52 => 5,
        _ => {
            let reason = "functions are drawn for RBF and Matérn kernels only";
            return Err(Error::Unsupported { operation: "sample", reason });
        }
    };
    let spread: f64 = (0..freedom).map(|_| rng.sample::<f64, _>(StandardNormal).powi(2)).sum();
    Ok(normal / (spread / f64::from(freedom)).sqrt())
}

impl ExactProcess {
    /// Draws a whole function from the posterior. O(n² + n M).
    pub fn sample(&self, rng: &mut (impl Rng + ?Sized)) -> Result<PathSample> {
        let kernel = self.kernel().clone();
        let mut frequencies = Vec::with_capacity(COSINES * self.dim());
        for _ in 0..COSINES {
            for axis in 0..self.dim() {
                frequencies.push(frequency(kernel.family(), rng)? / kernel.on_axis(axis)[0]);
            }
        }
        let phases = (0..COSINES).map(|_| rng.random_range(0.0..TAU)).collect();
        let height = (2.0 * kernel.variance() / COSINES as f64).sqrt();
        let amplitudes = (0..COSINES).map(|_| height * rng.sample::<f64, _>(StandardNormal)).collect();
        let places = self.rows().x.clone();
        let mut path = PathSample { kernel, frequencies, phases, amplitudes, places, weights: Vec::new() };
        let noise = self.rows().noise.iter().map(|d| (self.noise() * d).sqrt());
        let residuals: Vec<f64> = self
            .rows()
            .x
            .chunks_exact(self.dim())
            .zip(&self.rows().y)
            .zip(noise)
            .map(|((x, y), deviation)| {
                y - path.prior(x, None) - deviation * rng.sample::<f64, _>(StandardNormal)
            })
            .collect();
        path.weights = solve_cholesky(self.factor(), &residuals);
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posterior::Surrogate;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn process(family: Family) -> ExactProcess {
        let mut process = ExactProcess::new(family, 2, 0.05).unwrap();
        for i in 0..12 {
            let x = [(1.3 * f64::from(i)).sin(), (2.1 * f64::from(i)).cos() - 0.2];
            process.observe(&x, (2.0 * x[0]).sin() + x[1], 1.0).unwrap();
        }
        process
    }

    /// Mean and covariance over many functions, near the rows and far from them: within four deviations of what so
    /// many draws can tell.
    #[test]
    fn functions_have_the_moments_of_the_posterior() {
        for family in [Family::Rbf, Family::Matern12, Family::Matern32, Family::Matern52] {
            let (process, mut rng) = (process(family), Xoshiro256PlusPlus::seed_from_u64(7));
            let points = [[0.3, 0.1], [0.9, -1.0], [4.0, 4.0]];
            let mut joint = crate::posterior::Joint::default();
            process.posterior().predict(&points.concat(), &mut joint).unwrap();
            let draws = 3000;
            let (mut sums, mut products) = ([0.0; 3], [[0.0; 3]; 3]);
            for _ in 0..draws {
                let path = process.sample(&mut rng).unwrap();
                let f = points.map(|x| path.value(&x).unwrap());
                for i in 0..3 {
                    sums[i] += f[i];
                    (0..3).for_each(|j| products[i][j] += (f[i] - joint.mean[i]) * (f[j] - joint.mean[j]));
                }
            }
            let n = f64::from(draws);
            for i in 0..3 {
                let v = joint.variance(i);
                assert!((sums[i] / n - joint.mean[i]).abs() < 4.0 * (v / n).sqrt(), "{family:?} mean {i}");
                for j in 0..3 {
                    let want = joint.covariance[3 * i + j];
                    let deviation = ((want * want + v * joint.variance(j)) / n).sqrt();
                    assert!((products[i][j] / n - want).abs() < 4.0 * deviation, "{family:?} {i} {j}");
                }
            }
        }
    }

    #[test]
    fn gradients_match_central_differences() {
        let path = process(Family::Matern52).sample(&mut Xoshiro256PlusPlus::seed_from_u64(3)).unwrap();
        let (x, mut gradient) = ([0.31, -0.44], [0.0; 2]);
        let value = path.value_and_gradient(&x, &mut gradient).unwrap();
        assert_eq!(value, path.value(&x).unwrap());
        for k in 0..2 {
            let at = |step: f64| {
                let mut x = x;
                x[k] += step;
                path.value(&x).unwrap()
            };
            let slope = (8.0 * (at(1e-3) - at(-1e-3)) - (at(2e-3) - at(-2e-3))) / 12e-3;
            assert!((slope - gradient[k]).abs() < 1e-7 * (1.0 + slope.abs()), "{slope} {}", gradient[k]);
        }
        assert!(path.value(&[0.1]).is_err());
    }
}
