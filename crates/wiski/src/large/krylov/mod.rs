//! The posterior by conjugate gradients, for product kernels on one large grid.
//!
//! Systems with S = I + BᵀAB/σ² are solved iteratively. B is the balanced root of the prior (`prior/balanced.rs`), in
//! whose coordinates evenly spread data are diagonal; the preconditioner is that diagonal, with the exact block of S
//! for the strongest few hundred coordinates (module `precondition`). A product with S costs 2 m Σ g multiply-adds
//! for B and Bᵀ, by matrix products, and 7^d m for A.
//!
//! | quantity | how | error |
//! | --- | --- | --- |
//! | mean a = B S⁻¹Bᵀb/σ² | one solve | [`Accuracy::tolerance`] |
//! | log det S | Lanczos quadrature of L⁻¹S L⁻ᵀ for the preconditioner L Lᵀ, fixed probes | [`Convergence::log_det_error`] |
//! | tr(E K_θ), E = A/σ² − A M A/σ⁴ | fixed probes ε on the grid: E ε by one solve each, then εᵀK_θ(E ε) | of the same kind |
//! | variances | the preconditioner's own, exactly; the rest by solves for spikes spread over the grid (module `variance`) | [`VarianceError`], measured at random points |
//! | functions | L⁻ᵀ(L⁻¹S L⁻ᵀ)^{-½} ξ by Lanczos | [`Accuracy::tolerance`] |
//!
//! A solve that does not reach its tolerance is an error, never an answer.

mod gradient;
mod precondition;
mod sampling;
mod solve;
mod variance;

use std::sync::{Arc, OnceLock};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, length, positive};
use crate::evidence::Evidence;
use crate::interp::Weights;
use crate::kernel::Kernel;
use crate::pool::Pool;
use crate::posterior::{FunctionSample, Prediction, Predictor};
use crate::prior::Balanced;
use crate::simd::{LANES, dot};
use crate::stats::Stats;
use crate::structure::BlockMatrix;
use precondition::Preconditioner;
use solve::System;
pub use variance::VarianceError;

/// How exactly the iterative engine works, and how hard it tries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Accuracy {
    /// The relative residual at which the solve for the mean ends.
    pub tolerance: f64,
    /// The relative residual for solves with random vectors, whose own error is far larger.
    pub probe_tolerance: f64,
    /// The relative residual for what the variances of a predictor differ from those of evenly spread data.
    pub variance_tolerance: f64,
    /// The number of random vectors for the log determinant, and again for the traces of the gradient.
    pub probes: usize,
    /// Solves that need more iterations fail.
    pub max_iterations: usize,
    /// The size of the exact block in the preconditioner.
    pub leading: usize,
    /// Prior eigenvalues of an axis below this share of its largest are dropped.
    pub rank_tolerance: f64,
    /// The distance in cells between points whose variances are solved for together: spacing^d solves.
    pub spacing: usize,
    /// Whether independent solves run on two threads.
    pub two_threads: bool,
    /// The seed of the random vectors: the same from call to call, so that an optimizer sees a smooth function.
    pub seed: u64,
}

impl Default for Accuracy {
    fn default() -> Self {
        Self {
            tolerance: 1e-8,
            probe_tolerance: 1e-4,
            variance_tolerance: 1e-3,
            probes: LANES,
            max_iterations: 1000,
            leading: 512,
            rank_tolerance: 1e-12,
            spacing: 8,
            two_threads: true,
            seed: 0,
        }
    }
}

impl Accuracy {
    fn validate(&self) -> Result<()> {
        positive("tolerance", self.tolerance, 0)?;
        positive("probe tolerance", self.probe_tolerance, 0)?;
        positive("variance tolerance", self.variance_tolerance, 0)?;
        let whole = [("probes", self.probes, 1), ("max iterations", self.max_iterations, 1)];
        for (field, value, least) in whole.into_iter().chain([("spacing", self.spacing, 7)]) {
            if value < least {
                let reason = format!("{value} is less than {least}");
                return Err(Error::Config { field: field.into(), reason });
            }
        }
        Ok(())
    }

    fn rng(&self, stream: u64) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(stream))
    }
}

/// How a computation went.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Convergence {
    /// The most iterations that a solve took.
    pub iterations: usize,
    /// The largest relative residual that was left.
    pub residual: f64,
    /// The standard error of log det S over the probes (0 where it was not asked for).
    pub log_det_error: f64,
}

impl Convergence {
    fn and(self, other: Self) -> Self {
        Self {
            iterations: self.iterations.max(other.iterations),
            residual: self.residual.max(other.residual),
            log_det_error: self.log_det_error.max(other.log_det_error),
        }
    }
}

/// The posterior on one large grid. Methods that solve take the statistics, which are not copied.
#[derive(Debug, Clone)]
pub struct KrylovPosterior {
    balanced: Balanced,
    preconditioner: Preconditioner,
    accuracy: Accuracy,
    noise: f64,
    /// z̄.
    coordinates: Vec<f64>,
    /// a = B z̄.
    mean: Vec<f64>,
    /// α = (b − A a)/σ², from which another prior's z̄ starts: z̄ = Bᵀα at the solution.
    alpha: Vec<f64>,
    convergence: Convergence,
    kernel: Kernel,
    /// Made when it is first asked for: variances cost as much as several evaluations of the evidence.
    image: OnceLock<Result<Image>>,
    is_current: bool,
}

/// What single predictions read.
#[derive(Debug, Clone)]
struct Image {
    predictor: Arc<Predictor>,
    /// The number of rows that its mean knows and its variances do not.
    unknown: usize,
}

/// Along a stream variances are kept until they do not know this share of all rows. They fall in proportion to the rows at
/// most, so they are too large by a half at most. Refits, which make new ones, come no later.
const UNKNOWN: f64 = 1.0 / 3.0;

/// ±1 with equal chances.
fn sign(rng: &mut Xoshiro256PlusPlus) -> f64 {
    if rng.random::<bool>() { 1.0 } else { -1.0 }
}

impl KrylovPosterior {
    /// The posterior for the given statistics, kernel and noise variance: O(Σ g³) for the axes and about 20
    /// iterations of O(m (2 Σ g + 7^d)).
    pub fn new(stats: &Stats, kernel: &Kernel, noise: f64, accuracy: &Accuracy) -> Result<Self> {
        Self::starting_from(stats, kernel, noise, accuracy, None)
    }

    /// As [`KrylovPosterior::new`], beginning with the solution for other hyperparameters or earlier data on the
    /// same grid.
    pub fn warm(&self, stats: &Stats, kernel: &Kernel, noise: f64) -> Result<Self> {
        Self::starting_from(stats, kernel, noise, &self.accuracy, Some(&self.alpha))
    }

    /// As [`KrylovPosterior::new`], from the α of another posterior on the same grid.
    pub(crate) fn starting_from(
        stats: &Stats,
        kernel: &Kernel,
        noise: f64,
        accuracy: &Accuracy,
        alpha: Option<&[f64]>,
    ) -> Result<Self> {
        positive("noise", noise, 0)?;
        accuracy.validate()?;
        let alpha = alpha.filter(|alpha| alpha.len() == stats.b().len());
        let marginals = stats.stencil()?.marginals();
        let balanced = Balanced::new(stats.lattice(), kernel, accuracy.rank_tolerance, &marginals)?;
        let preconditioner = Preconditioner::new(&balanced, stats, noise, accuracy.leading)?;
        let mut pool = Pool::default();
        let mut beta = balanced.prior.project(stats.b(), 1, &mut pool);
        beta.iter_mut().for_each(|b| *b /= noise);
        let start = alpha.map(|alpha| balanced.prior.project(alpha, 1, &mut pool));
        let system = System::new(&balanced.prior, stats, noise, &preconditioner);
        let limit = accuracy.max_iterations;
        let solution = system.solve(&beta, start, 1, accuracy.tolerance, limit, &mut pool)?;
        let mean = balanced.prior.expand(&solution.x, 1, &mut pool);
        let mut alpha = system.multiply_data(&mean, 1, &mut pool);
        alpha.iter_mut().zip(stats.b()).for_each(|(a, b)| *a = (b - *a) / noise);
        let convergence = solution.convergence;
        Ok(Self {
            balanced,
            preconditioner,
            accuracy: accuracy.clone(),
            noise,
            coordinates: solution.x,
            mean,
            alpha,
            convergence,
            kernel: kernel.clone(),
            image: OnceLock::new(),
            is_current: true,
        })
    }

    /// The image for predictions, made once.
    pub(crate) fn image(&self, stats: &Stats) -> Result<Arc<Predictor>> {
        let image = self.image.get_or_init(|| {
            let covariance = variance::covariance(self, &self.system(stats)?)?;
            Ok(Image { predictor: Arc::new(self.predictor_of(stats, covariance)), unknown: 0 })
        });
        image.as_ref().map(|image| image.predictor.clone()).map_err(Error::clone)
    }

    /// Takes the variances of the image of the same process `rows` rows earlier, unless they are too old.
    pub(crate) fn keep_image(&mut self, before: &Self, stats: &Stats, rows: usize) {
        let Some(Ok(Image { predictor, unknown })) = before.image.get() else { return };
        let unknown = unknown + rows;
        let is_same = before.kernel == self.kernel
            && before.noise == self.noise
            && predictor.lattice() == stats.lattice();
        if is_same && unknown as f64 <= UNKNOWN * stats.count() {
            let predictor = Arc::new(predictor.with_mean(self.mean.clone()));
            self.image = OnceLock::from(Ok(Image { predictor, unknown }));
            self.is_current = false;
        }
    }

    /// Whether the variances know all rows that the mean knows.
    pub(crate) fn is_current(&self) -> bool {
        self.is_current
    }

    /// The posterior mean a of the grid values.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// α = (b − A a)/σ² = K⁻¹a.
    pub(crate) fn alpha(&self) -> &[f64] {
        &self.alpha
    }

    /// The noise variance σ².
    pub fn noise(&self) -> f64 {
        self.noise
    }

    /// The number p of coordinates.
    pub fn rank(&self) -> usize {
        self.balanced.prior.rank()
    }

    /// How the solve for the mean went.
    pub fn convergence(&self) -> Convergence {
        self.convergence
    }

    fn system<'a>(&'a self, stats: &'a Stats) -> Result<System<'a>> {
        if stats.lattice() != self.balanced.prior.lattice() {
            let reason = "the posterior and the statistics live on different grids";
            return Err(Error::Unsupported { operation: "posterior", reason });
        }
        Ok(System::new(&self.balanced.prior, stats, self.noise, &self.preconditioner))
    }

    /// The evidence with its gradient in every hyperparameter; `kernel` is the one the posterior was made with.
    pub fn evidence(&self, stats: &Stats, kernel: &Kernel) -> Result<(Evidence, Convergence)> {
        gradient::evidence(self, &self.system(stats)?, kernel)
    }

    /// Mean and variance at one point, the variance by a solve of its own.
    pub fn predict(&self, stats: &Stats, h: &[f64]) -> Result<Prediction> {
        let (mean, covariance) = self.joint(stats, h)?;
        Ok(Prediction { mean: mean[0], variance: covariance[0].max(0.0), noise: self.noise })
    }

    /// The joint latent mean (q) and covariance (q×q, row after row) of q points given row after row: q solves.
    pub fn joint(&self, stats: &Stats, h: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
        let (system, prior) = (self.system(stats)?, &self.balanced.prior);
        let d = prior.lattice().dim();
        let q = h.len() / d;
        length("x", q * d, h.len())?;
        let columns = if q == 1 { 1 } else { crate::simd::padded(q) };
        let mut located: Vec<Vec<Weights>> = vec![Vec::new(); q];
        let m = prior.lattice().len();
        let mut w = vec![0.0; m * columns];
        for (j, (point, own)) in h.chunks_exact(d).zip(&mut located).enumerate() {
            prior.lattice().locate(point, j, own)?;
            prior.lattice().scatter(&*own, 1.0, &mut w[j * m..(j + 1) * m]);
        }
        let pool = &mut Pool::default();
        let phi = system.project(&w, columns, pool);
        let accuracy = &self.accuracy;
        let x = system.solve(&phi, None, columns, accuracy.tolerance, accuracy.max_iterations, pool)?.x;
        let mean = located.iter().map(|w| prior.lattice().gather(w, &self.mean)).collect();
        let p = self.rank();
        let column = |block: &[f64], j: usize| block[j * p..(j + 1) * p].to_vec();
        let images: Vec<Vec<f64>> = (0..q).map(|j| column(&x, j)).collect();
        let entry = |e: usize| dot(&phi[e / q * p..][..p], &images[e % q]);
        let covariance = (0..q * q).map(entry).collect();
        Ok((mean, covariance))
    }

    /// The immutable image on the grid, for fast predictions, and how far its variances are off.
    pub fn predictor(&self, stats: &Stats) -> Result<(Predictor, VarianceError)> {
        let system = self.system(stats)?;
        let covariance = variance::covariance(self, &system)?;
        let error = variance::check(self, &system, &covariance)?;
        Ok((self.predictor_of(stats, covariance), error))
    }

    fn predictor_of(&self, stats: &Stats, covariance: BlockMatrix) -> Predictor {
        Predictor::from_parts(stats.lattice().clone(), self.mean.clone(), covariance, self.noise)
    }

    /// A function drawn from the posterior.
    pub fn sample(&self, stats: &Stats, rng: &mut (impl rand::Rng + ?Sized)) -> Result<FunctionSample> {
        let xi: Vec<f64> = (0..self.rank()).map(|_| rng.sample(rand_distr::StandardNormal)).collect();
        let mut z = sampling::colored(&self.system(stats)?, &xi, &self.accuracy)?;
        z.iter_mut().zip(&self.coordinates).for_each(|(z, m)| *z += m);
        let values = self.balanced.prior.expand(&z, 1, &mut Pool::default());
        Ok(FunctionSample::new(stats.lattice().clone(), values))
    }

    /// c/σ² − z̄ᵀβ, the part of the evidence that depends on the targets.
    fn misfit(&self, stats: &Stats) -> f64 {
        // z̄ᵀβ = aᵀb/σ².
        (stats.c() - dot(&self.mean, stats.b())) / self.noise
    }
}
