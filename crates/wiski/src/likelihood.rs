//! Classification as regression with known noise (Milios et al., *Dirichlet-based Gaussian Processes for
//! Large-scale Calibrated Classification*, 2018).
//!
//! A label y of C classes is read as a draw from a Dirichlet distribution with concentrations
//! α_c = 1[y = c] + α_ε. Its components are independent Gamma variables up to a common factor; each is
//! replaced by the log-normal with the same mean and variance, so the log of component c is an observation of
//! a latent function f_c with
//!
//! ```text
//! noise variance  σ̃²_c = ln(1 + 1/α_c)        target  ỹ_c = ln α_c − σ̃²_c/2
//! ```
//!
//! There are only two such pairs, one for the class that was seen ("hit") and one for every other ("miss").
//! The C latent functions are independent Gaussian processes, and the class probabilities at a point are
//!
//! ```text
//! π_c = E[ exp f_c / Σ_j exp f_j ],   f_j ~ N(μ_j, v_j)
//! ```
//!
//! The softmax does not change when a constant is added to every f_j. So the processes are put on
//! ỹ − [`Dirichlet::mean`], the same constant for all classes: a prior of mean zero then says that no class is
//! likelier than another.

mod sharpness;

use std::f64::consts::{FRAC_1_SQRT_2, TAU};

pub(crate) use sharpness::Sharpness;

/// α_ε, the concentration of a class that was not seen, as in the paper.
pub const ALPHA_EPSILON: f64 = 0.01;

/// What one label says about one class: a regression target and the variance of its noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// The target of the class's latent function.
    pub value: f64,
    /// The noise variance σ̃² of that target.
    pub noise: f64,
}

impl Target {
    fn of_concentration(alpha: f64) -> Self {
        let noise = alpha.recip().ln_1p();
        Self { value: alpha.ln() - 0.5 * noise, noise }
    }
}

/// The map from a label among C classes to C targets with noise.
///
/// ```
/// let likelihood = wiski::internals::likelihood::Dirichlet::new(2);
/// let (hit, miss) = (likelihood.target(true), likelihood.target(false));
/// assert!(hit.value > 0.0 && (hit.value + miss.value).abs() < 1e-14);
/// assert!(hit.noise < miss.noise);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dirichlet {
    classes: usize,
    hit: Target,
    miss: Target,
    mean: f64,
}

impl Dirichlet {
    /// The likelihood for C classes with α_ε = 0.01.
    pub fn new(classes: usize) -> Self {
        let hit = Target::of_concentration(1.0 + ALPHA_EPSILON);
        let miss = Target::of_concentration(ALPHA_EPSILON);
        // With uniform classes, one label in C is a hit.
        let mean = miss.value + (hit.value - miss.value) / classes.max(1) as f64;
        Self { classes, hit, miss, mean }
    }

    /// The number C of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The constant prior mean of every class: the mean target if all classes are equally frequent,
    /// (ỹ_hit + (C − 1) ỹ_miss)/C.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Target (less the prior mean) and noise of a class that was seen, or of one that was not.
    pub fn target(&self, hit: bool) -> Target {
        let raw = if hit { self.hit } else { self.miss };
        Target { value: raw.value - self.mean, ..raw }
    }

    /// The variance of the targets if all classes are equally frequent: the size of the latent functions.
    pub fn target_variance(&self) -> f64 {
        let share = (self.classes.max(1) as f64).recip();
        (self.hit.value - self.miss.value).powi(2) * share * (1.0 - share)
    }
}

/// The points on the line for two classes.
const POINTS_FOR_TWO: usize = 256;
/// The points for more classes; a power of two keeps Sobol points balanced in every coordinate.
const POINTS_FOR_MANY: usize = 2048;

/// Averages the softmax over C independent Gaussian latent values, over the same points every time.
///
/// * C = 2: only the difference f_1 − f_0 ~ N(μ_1 − μ_0, v_0 + v_1) matters, so the points are the midpoints
///   of 256 intervals of equal probability on the line. The error is below 1e-4.
/// * C > 2: 2,048 scrambled Sobol points in C dimensions. The error is 1e-4 to 1e-3 as C goes from 3 to 20
///   (up to 2e-3 for latent variances of 10 and more), where plain Monte Carlo with as many draws has up to 1e-2. (Mirror images, or coordinates rotated through
///   the classes, at the same cost were measured to be less accurate than as many different points.)
///
/// Uniform points become normal through the inverse distribution function, one coordinate at a time: it is
/// monotone, so the even spread of the points survives, which Box–Muller's folding of two coordinates into an
/// angle would weaken. The table is computed once for each C. A call costs 2,048 C exponentials (256 for C = 2)
/// and does not allocate.
#[derive(Debug, Clone, PartialEq)]
pub struct Softmax {
    classes: usize,
    /// Standard normal points, one after the other: C coordinates each. For C = 2, the lower half of the
    /// points on the line; the upper half mirrors it.
    points: Vec<f64>,
}

impl Softmax {
    /// The points for C classes.
    pub fn new(classes: usize) -> Self {
        Self::with_points(classes, if classes == 2 { POINTS_FOR_TWO } else { POINTS_FOR_MANY })
    }

    /// As [`Softmax::new`], with a given number of points.
    fn with_points(classes: usize, count: usize) -> Self {
        let points = match classes {
            0 | 1 => Vec::new(),
            2 => (0..count / 2).map(|i| normal_quantile((i as f64 + 0.5) / count as f64)).collect(),
            c => (0..count).flat_map(|i| (0..c).map(move |k| sobol_normal(i, k))).collect(),
        };
        Self { classes, points }
    }

    /// The number C of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Writes the C class probabilities for latent means μ and variances v; they sum to one. `work` is a
    /// buffer of any content and length that keeps its allocation between calls.
    ///
    /// # Panics
    /// If a slice does not have C entries.
    pub fn probabilities(&self, mean: &[f64], variance: &[f64], work: &mut Vec<f64>, out: &mut [f64]) {
        let c = self.classes;
        assert!(mean.len() == c && variance.len() == c && out.len() == c, "one entry for each class");
        match c {
            0 | 1 => out.fill(1.0),
            2 => {
                let (shift, spread) = (mean[1] - mean[0], (variance[0] + variance[1]).sqrt());
                let logistic = |x: f64| (1.0 + (-x).exp()).recip();
                let pair = |z: f64| logistic(shift + spread * z) + logistic(shift - spread * z);
                out[1] = self.points.iter().map(|&z| pair(z)).sum::<f64>() / (2 * self.points.len()) as f64;
                out[0] = 1.0 - out[1];
            }
            _ => self.average(mean, variance, work, out),
        }
    }

    fn average(&self, mean: &[f64], variance: &[f64], work: &mut Vec<f64>, out: &mut [f64]) {
        let c = self.classes;
        work.clear();
        work.extend(variance.iter().map(|v| v.sqrt()));
        work.resize(2 * c, 0.0);
        let (std, values) = work.split_at_mut(c);
        out.fill(0.0);
        for point in self.points.chunks_exact(c) {
            let mut largest = f64::NEG_INFINITY;
            for k in 0..c {
                values[k] = mean[k] + std[k] * point[k];
                largest = largest.max(values[k]);
            }
            values.iter_mut().for_each(|v| *v = (*v - largest).exp());
            let scale = values.iter().sum::<f64>().recip();
            out.iter_mut().zip(values.iter()).for_each(|(o, v)| *o += scale * v);
        }
        let total = out.iter().sum::<f64>().recip();
        out.iter_mut().for_each(|o| *o *= total);
    }
}

/// Coordinate k of scrambled Sobol point i, as a standard normal number.
fn sobol_normal(i: usize, k: usize) -> f64 {
    const DIMENSIONS: usize = sobol_burley::NUM_DIMENSIONS as usize;
    // Beyond the tabulated dimensions the sequence starts again with another scrambling.
    let (dimension, seed) = ((k % DIMENSIONS) as u32, (k / DIMENSIONS) as u32);
    let uniform = f64::from(sobol_burley::sample(i as u32, dimension, seed));
    // Samples are multiples of 2⁻²⁴ from 0 on: half a step keeps them inside (0, 1).
    normal_quantile(uniform + 0.5f64.powi(25))
}

/// Φ⁻¹(u) for 0 < u < 1: Halley's iteration on Φ from the logistic approximation; on the lower half only, where
/// Φ has full relative precision.
fn normal_quantile(u: f64) -> f64 {
    if u > 0.5 {
        return -normal_quantile(1.0 - u);
    }
    let mut x = (u / (1.0 - u)).ln() / 1.702;
    for _ in 0..50 {
        let density = (-0.5 * x * x).exp() / TAU.sqrt();
        let ratio = (0.5 * libm::erfc(-x * FRAC_1_SQRT_2) - u) / density;
        let step = ratio / (1.0 + 0.5 * x * ratio);
        x -= step;
        if step.abs() <= 1e-15 * x.abs() {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn the_two_targets_are_the_paper_s() {
        let likelihood = Dirichlet::new(3);
        let (hit, miss) = (likelihood.target(true), likelihood.target(false));
        // ln(1 + 1/1.01) and ln 101, by hand.
        assert!((hit.noise - 0.688_184_391_217_8).abs() < 1e-12, "{}", hit.noise);
        assert!((miss.noise - 101f64.ln()).abs() < 1e-14);
        assert!((hit.value + likelihood.mean() - (1.01f64.ln() - 0.5 * hit.noise)).abs() < 1e-14);
        assert!((miss.value + likelihood.mean() - (0.01f64.ln() - 0.5 * 101f64.ln())).abs() < 1e-14);
        // Centered for uniform classes, with the variance stated.
        assert!((hit.value + 2.0 * miss.value).abs() < 1e-14);
        let variance = (hit.value.powi(2) + 2.0 * miss.value.powi(2)) / 3.0;
        assert!((variance - likelihood.target_variance()).abs() < 1e-12);
    }

    #[test]
    fn quantiles_invert_the_distribution_function() {
        // Φ(1.959963984540054) = 0.975 and Φ(−3) to 16 digits, from tables.
        assert!((normal_quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-14);
        assert!((normal_quantile(0.001_349_898_031_630_094_6) + 3.0).abs() < 1e-13);
        for i in 1..2000 {
            let u = f64::from(i) / 2000.0;
            let x = normal_quantile(u);
            assert!((0.5 * libm::erfc(-x * FRAC_1_SQRT_2) - u).abs() < 4e-16, "{u}");
        }
        let smallest = 0.5f64.powi(25);
        let x = normal_quantile(smallest);
        assert!((0.5 * libm::erfc(-x * FRAC_1_SQRT_2) / smallest - 1.0).abs() < 1e-13);
        assert_eq!(normal_quantile(1.0 - smallest), -x);
    }

    /// ∫ logistic(m + s z) φ(z) dz by the trapezoidal rule, which converges faster than any power here.
    fn quadrature(m: f64, s: f64) -> f64 {
        let steps = 40_000;
        let h = 20.0 / f64::from(steps);
        let at = |i: i32| {
            let z = -10.0 + h * f64::from(i);
            (-0.5 * z * z).exp() / TAU.sqrt() / (1.0 + (-(m + s * z)).exp())
        };
        h * (0..=steps).map(at).sum::<f64>()
    }

    #[test]
    fn two_classes_agree_with_quadrature() {
        let (softmax, mut out) = (Softmax::new(2), [0.0; 2]);
        let mut worst: f64 = 0.0;
        for m in [-9.0, -3.0, -0.5, 0.0, 0.2, 1.0, 4.0] {
            for v in [1e-8, 0.1, 1.0, 4.0, 30.0, 200.0] {
                softmax.probabilities(&[0.3, 0.3 + m], &[0.25 * v, 0.75 * v], &mut Vec::new(), &mut out);
                worst = worst.max((out[1] - quadrature(m, v.sqrt())).abs());
                assert_eq!(out[0] + out[1], 1.0);
            }
        }
        assert!(worst < 1e-4, "{worst:e}");
    }

    /// Latent distributions like those of trained classifiers, from certain to vague.
    fn latents(c: usize, case: u64) -> (Vec<f64>, Vec<f64>) {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(100 * case + c as u64);
        let mean = (0..c).map(|_| 6.0 * rng.random::<f64>() - 3.0).collect();
        (mean, (0..c).map(|_| 0.05 + 6.0 * rng.random::<f64>()).collect())
    }

    #[test]
    fn many_classes_converge_to_a_long_monte_carlo_run() {
        const DRAWS: usize = 2_000_000;
        for c in [3, 5, 10] {
            let (mean, variance) = latents(c, 1);
            let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(7);
            let (mut sums, mut f) = (vec![0.0; c], vec![0.0; c]);
            for _ in 0..DRAWS {
                for k in 0..c {
                    let z: f64 = rng.sample(rand_distr::StandardNormal);
                    f[k] = (mean[k] + variance[k].sqrt() * z).exp();
                }
                let total: f64 = f.iter().sum();
                sums.iter_mut().zip(&f).for_each(|(s, f)| *s += f / total);
            }
            let error = |count: usize| {
                let mut out = vec![0.0; c];
                let softmax = Softmax::with_points(c, count);
                softmax.probabilities(&mean, &variance, &mut Vec::new(), &mut out);
                assert!((out.iter().sum::<f64>() - 1.0).abs() < 1e-14);
                out.iter().zip(&sums).map(|(o, s)| (o - s / DRAWS as f64).abs()).fold(0.0, f64::max)
            };
            let errors = [32, 256, POINTS_FOR_MANY, 1 << 15].map(error);
            // The Monte Carlo run itself is right to about 0.5/√DRAWS = 3.5e-4.
            assert!(errors[0] > 4e-3, "few points are not enough, C = {c}: {errors:?}");
            assert!(errors[1] < 1e-2 && errors[2] < 1.5e-3 && errors[3] < 5e-4, "C = {c}: {errors:?}");
        }
    }

    #[test]
    fn equal_latents_give_equal_classes() {
        for (c, tolerance) in [(2, 1e-15), (3, 1e-3), (7, 2e-3), (300, 1e-3)] {
            let mut out = vec![0.0; c];
            let mut dirty = vec![f64::NAN; 3];
            Softmax::new(c).probabilities(&vec![-1.5; c], &vec![10.0; c], &mut dirty, &mut out);
            let worst = out.iter().map(|p| (p - (c as f64).recip()).abs()).fold(0.0, f64::max);
            assert!(worst < tolerance, "C = {c}: {worst:e}");
        }
    }
}
