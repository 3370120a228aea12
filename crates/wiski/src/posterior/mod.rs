//! The posterior for given statistics, prior and noise: a value, computed once and conditioned in constant
//! time.
//!
//! In the coordinates u = B z of the prior, with S = I + BᵀAB/σ²,
//!
//! ```text
//! z | data ~ N(z̄, S⁻¹),   z̄ = S⁻¹ Bᵀb/σ²,   S⁻¹ = F Fᵀ
//! ```
//!
//! so that at a point with features φ = Bᵀw the mean is φᵀz̄ and the latent variance ‖Fᵀφ‖². S has no
//! eigenvalue below 1: nothing is ever inverted that could be singular, and no jitter is added.
//!
//! Inducing points behind the grids carry their function g up to a residual, which every latent variance contains as
//! s ρ(x), and the covariance of two points as s (κ(x, x') − w_gᵀw_g'). Data are taken to say nothing about it, so
//! conditioning goes by ‖Fᵀφ‖² alone.
//!
//! [`Posterior`] answers in O(p²) and takes in observations at fixed hyperparameters in O(p²). Where F is too large
//! for the caches, rows wait beside it and are multiplied into it together (module `delayed`); every answer knows them.
//! [`Predictor`] is its immutable image on the grid: mean in 4^d, mean and variance in about 16^d/2
//! multiply-adds, whatever n, m and p are. Readers hold a predictor while a writer goes on conditioning.

mod ahead;
mod delayed;
mod factor;
mod predictor;
mod residuals;
mod surface;
mod surrogate;

use std::borrow::Cow;
use std::sync::Arc;

use rand::RngExt;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, finite, length, positive};
use crate::grid::Lattice;
use crate::interp::{Placed, Placement, Weights};
use crate::kernel::Kernel;
use crate::normal;
use crate::pool::Pool;
use crate::prior::Prior;
use crate::simd::dot;
use crate::stats::{Stats, Whitened};
use ahead::Ahead;
use delayed::{Pending, SavedPending};
pub(crate) use factor::Factor;
pub use predictor::{FunctionSample, Predictor};
use residuals::Residuals;
pub use surface::{Joint, Surface};
pub use surrogate::Surrogate;

/// What the model says about one point.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Prediction {
    /// The mean of f (and of y).
    pub mean: f64,
    /// The variance of the latent function value f.
    pub variance: f64,
    /// The variance of the noise: y has variance `variance + noise`.
    pub noise: f64,
}

impl Prediction {
    /// The standard deviation of an observation y.
    pub fn std(&self) -> f64 {
        (self.variance + self.noise).sqrt()
    }

    /// The same for an observation with `factor` times as much noise.
    pub(crate) fn with_noise_times(self, factor: f64) -> Self {
        Self { noise: self.noise * factor, ..self }
    }

    /// log N(y; mean, variance + noise).
    pub fn log_density(&self, y: f64) -> f64 {
        let total = self.variance + self.noise;
        -0.5 * ((y - self.mean).powi(2) / total + total.ln() + std::f64::consts::TAU.ln())
    }

    /// The probability Φ((y − mean)/std) of an observation up to `y`.
    pub fn cumulative(&self, y: f64) -> f64 {
        normal::cumulative((y - self.mean) / self.std())
    }

    /// The value mean + Φ⁻¹(p) std up to which an observation comes with probability 0 < p < 1.
    ///
    /// ```
    /// let p = wiski::Prediction { mean: 1.0, variance: 3.0, noise: 1.0 };
    /// assert!((p.quantile(0.975) - (1.0 + 2.0 * 1.959964)).abs() < 1e-6);
    /// ```
    pub fn quantile(&self, p: f64) -> f64 {
        self.mean + normal::quantile(p) * self.std()
    }

    /// By how much the noise of an observation is multiplied that is off by more than `reach` deviations, each taken as at
    /// least [`LEAST_DEVIATION`]: by the third power of how many times that is, so that the farther off it is, the less it
    /// counts. One within reach counts in full.
    pub(crate) fn discount(&self, y: f64, reach: f64) -> f64 {
        let off = (y - self.mean).abs() / (reach * self.std().max(LEAST_DEVIATION));
        if off > 1.0 { off.powi(3) } else { 1.0 }
    }
}

/// In units of the targets' deviation: a model that is surer than this may be wrong, but what it finds far off need not be.
const LEAST_DEVIATION: f64 = 0.5;

/// A prediction with its derivatives in the coordinates of the point.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PredictionGradient {
    /// The prediction itself.
    pub prediction: Prediction,
    /// ∂ mean / ∂ h_k.
    pub mean: Vec<f64>,
    /// ∂ latent variance / ∂ h_k.
    pub variance: Vec<f64>,
}

impl PredictionGradient {
    /// The gradient in h of the one-step predictive log density log N(y; μ, v + noise): how the coordinates
    /// of a new point should move (the paper's partial marginal likelihood).
    pub fn of_log_density(&self, y: f64) -> Vec<f64> {
        self.slopes_of_log_density(y).collect()
    }

    pub(crate) fn slopes_of_log_density(&self, y: f64) -> impl Iterator<Item = f64> + '_ {
        let total = self.prediction.variance + self.prediction.noise;
        let r = (y - self.prediction.mean) / total;
        let by_variance = 0.5 * (r * r - total.recip());
        self.mean.iter().zip(&self.variance).map(move |(m, v)| r * m + by_variance * v)
    }

    /// The gradient in h of the evidence, for a point that is itself part of the data.
    pub fn of_evidence(&self, y: f64) -> Vec<f64> {
        self.slopes_of_evidence(y).collect()
    }

    pub(crate) fn slopes_of_evidence(&self, y: f64) -> impl Iterator<Item = f64> + '_ {
        let (residual, noise) = (y - self.prediction.mean, self.prediction.noise);
        self.mean.iter().zip(&self.variance).map(move |(m, v)| (residual * m - 0.5 * v) / noise)
    }
}

/// Buffers for predictions and updates; they keep their allocation between calls.
#[derive(Debug, Clone, Default)]
pub struct Workspace {
    placement: Placement,
    phi: Vec<f64>,
    white: Vec<f64>,
    gain: Vec<f64>,
    scratch: Vec<f64>,
    products: Vec<f64>,
    /// For gradients in the inputs of inducing points.
    slopes: Vec<f64>,
    distances: Vec<f64>,
    /// For rows that are known to come.
    ahead: Ahead,
    pool: Pool,
}

impl Workspace {
    /// The weights of the last point.
    pub(crate) fn placement(&mut self) -> &mut Placement {
        &mut self.placement
    }

    fn fit(&mut self, posterior: &Posterior) {
        self.phi.resize(posterior.factor.size(), 0.0);
        self.gain.resize(posterior.factor.stride(), 0.0);
        self.products.resize(posterior.pending.scratch_len(), 0.0);
        self.white.resize(posterior.factor.stride(), 0.0);
        self.scratch.resize(posterior.prior.scratch_len(), 0.0);
        let points = posterior.lattice().len() - posterior.lattice().grid_len();
        self.slopes.resize(2 * points, 0.0);
        self.distances.resize(points, 0.0);
    }
}

/// How far recursive conditioning has drifted from the statistics, as relative errors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// ‖δz̄‖/‖z̄‖ of the mean, estimated by one step of iterative refinement.
    pub mean: f64,
    /// The relative error of the variance at the last conditioned point, estimated likewise.
    pub variance: f64,
}

impl Drift {
    /// Whether both errors are at most `tolerance` (not so for NaN).
    pub fn is_within(&self, tolerance: f64) -> bool {
        self.mean <= tolerance && self.variance <= tolerance
    }
}

/// The posterior of all grid values in the p coordinates of the prior.
#[derive(Debug, Clone)]
pub struct Posterior {
    prior: Arc<Prior>,
    noise: f64,
    factor: Factor,
    mean: Vec<f64>,
    log_det: f64,
    /// Rows that factor and mean do not contain yet.
    pending: Pending,
}

/// A posterior as it stands in a file, without the prior, which follows from grids and kernels.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedPosterior {
    noise: f64,
    #[serde(with = "crate::saved::floats")]
    factor: Vec<f64>,
    #[serde(with = "crate::saved::floats")]
    mean: Vec<f64>,
    log_det: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<SavedPending>,
}

impl Posterior {
    /// What a file holds of this posterior: F and z̄ to the last bit, with the rows that wait, so that learning
    /// goes on as if it had never been interrupted.
    pub(crate) fn saved(&self) -> SavedPosterior {
        let Self { noise, ref factor, ref mean, log_det, ref pending, .. } = *self;
        let pending = pending.saved(factor.size());
        SavedPosterior { noise, factor: factor.compact(), mean: mean.clone(), log_det, pending }
    }

    /// The posterior that a file describes.
    pub(crate) fn from_saved(saved: SavedPosterior, prior: Arc<Prior>) -> Result<Self> {
        let SavedPosterior { noise, factor, mean, log_det, pending } = saved;
        positive("noise", noise, 0)?;
        finite("log_det", log_det, 0)?;
        length("mean of the posterior", prior.rank(), mean.len())?;
        let factor = Factor::from_compact(prior.rank(), &factor)?;
        let mut posterior = Self::from_parts(prior, noise, factor, mean, log_det);
        if let Some(pending) = pending {
            posterior.pending.restore(&pending, posterior.factor.size())?;
            posterior.fit_image(&mut Pool::default());
        }
        Ok(posterior)
    }

    fn from_parts(prior: Arc<Prior>, noise: f64, factor: Factor, mean: Vec<f64>, log_det: f64) -> Self {
        let pending = Pending::new(&prior, &factor);
        Self { prior, noise, factor, mean, log_det, pending }
    }

    /// The posterior given the statistics, for noise variance σ². O(p³) plus the contraction of A.
    pub fn new(prior: Arc<Prior>, stats: &Stats, noise: f64) -> Result<Self> {
        Self::with_pool(prior, stats, noise, &mut Pool::default())
    }

    /// As [`Posterior::new`], with memory from a pool.
    pub fn with_pool(prior: Arc<Prior>, stats: &Stats, noise: f64, pool: &mut Pool) -> Result<Self> {
        if prior.lattice() != stats.lattice() {
            return Err(Error::Unsupported {
                operation: "posterior",
                reason: "the prior and the statistics live on different grids",
            });
        }
        let whitened = stats.whiten(&prior, pool);
        let posterior = Self::from_whitened(prior, &whitened, noise, pool);
        whitened.recycle(pool);
        posterior
    }

    pub(crate) fn from_whitened(
        prior: Arc<Prior>,
        whitened: &Whitened,
        noise: f64,
        pool: &mut Pool,
    ) -> Result<Self> {
        let (posterior, cholesky) = Self::with_cholesky(prior, whitened, noise, pool)?;
        pool.give(cholesky);
        Ok(posterior)
    }

    /// The posterior, and the lower triangular R with S = R Rᵀ and F = R⁻ᵀ, column after column.
    pub(crate) fn with_cholesky(
        prior: Arc<Prior>,
        whitened: &Whitened,
        noise: f64,
        pool: &mut Pool,
    ) -> Result<(Self, Vec<f64>)> {
        positive("noise", noise, 0)?;
        let p = prior.rank();
        let (factor, log_det, cholesky) = Factor::new(&whitened.gram, noise, p, pool)?;
        let (mut white, mut mean) = (vec![0.0; factor.stride()], pool.take(p));
        let beta: Vec<f64> = whitened.rhs.iter().map(|b| b / noise).collect();
        factor.whiten(&beta, &mut white);
        factor.color(&white, &mut mean);
        Ok((Self::from_parts(prior, noise, factor, mean, log_det), cholesky))
    }

    /// Changes to the statistics of targets in another unit, and to kernels and noise whose scales have followed: BᵀAB/σ²
    /// and with it F stay as they are, and z̄ = F Fᵀ Bᵀb/σ² is computed anew. O(p²).
    pub(crate) fn rescale(&mut self, kernels: &[Kernel], stats: &Stats, noise: f64) -> Result<()> {
        positive("noise", noise, 0)?;
        let pool = &mut Pool::default();
        self.flush(pool);
        self.prior = Arc::new(self.prior.rescaled(kernels));
        self.noise = noise;
        let mut beta = self.prior.project(stats.b(), 1, pool);
        beta.iter_mut().for_each(|b| *b /= noise);
        let mut white = vec![0.0; self.factor.stride()];
        self.factor.whiten(&beta, &mut white);
        self.factor.color(&white, &mut self.mean);
        Ok(())
    }

    /// Gives the memory of a posterior that is no longer needed back to a pool.
    pub fn recycle(mut self, pool: &mut Pool) {
        self.pending.clear(pool);
        self.factor.recycle(pool);
        pool.give(self.mean);
    }

    /// The rank p.
    pub fn rank(&self) -> usize {
        self.prior.rank()
    }

    /// The noise variance σ².
    pub fn noise(&self) -> f64 {
        self.noise
    }

    /// The prior.
    pub fn prior(&self) -> &Arc<Prior> {
        &self.prior
    }

    /// The grids.
    pub fn lattice(&self) -> &Lattice {
        self.prior.lattice()
    }

    /// F, of a settled posterior.
    pub(crate) fn factor(&self) -> &Factor {
        debug_assert!(self.pending.is_empty(), "rows wait that the factor does not contain");
        &self.factor
    }

    /// z̄, of a settled posterior.
    pub(crate) fn coordinates(&self) -> &[f64] {
        debug_assert!(self.pending.is_empty(), "rows wait that the mean does not contain");
        &self.mean
    }

    /// This posterior with all rows in factor and mean: itself, or a copy if rows wait.
    pub(crate) fn settled(&self) -> Cow<'_, Self> {
        if self.pending.is_empty() {
            return Cow::Borrowed(self);
        }
        let (prior, mut factor, mut mean) = (self.prior.clone(), self.factor.clone(), self.mean.clone());
        self.pending.apply_to(&mut factor, &mut mean, &mut Pool::default());
        Cow::Owned(Self::from_parts(prior, self.noise, factor, mean, self.log_det))
    }

    /// Sets how many conditioned rows may wait until they are multiplied into the factor together; with 0 each is
    /// at once. A posterior chooses by its size what is faster, and answers are the same up to rounding, so this
    /// is for measuring.
    pub fn set_delay(&mut self, rows: usize, ws: &mut Workspace) {
        self.flush(&mut ws.pool);
        self.pending.set_limit(rows);
    }

    /// Brings factor and mean up to date with the rows that wait.
    fn flush(&mut self, pool: &mut Pool) {
        if !self.pending.is_empty() {
            self.pending.apply_to(&mut self.factor, &mut self.mean, pool);
            self.pending.clear(pool);
        }
    }

    /// Makes the image on the grid that further rows are to be read from.
    fn fit_image(&mut self, pool: &mut Pool) {
        if self.pending.lacks_image() {
            self.pending.set_image(Surface::new(&self.prior, &self.factor, &self.mean, self.noise, pool));
        }
    }

    /// log det S at the last factorization.
    pub(crate) fn log_det(&self) -> f64 {
        self.log_det
    }

    /// Places the point and leaves φ in the workspace.
    #[inline]
    fn place(&self, h: &[f64], row: usize, ws: &mut Workspace) -> Result<()> {
        ws.fit(self);
        ws.ahead.leave();
        self.lattice().weigh(h, row, &mut ws.placement)?;
        self.prior.features(&ws.placement, &mut ws.phi, &mut ws.scratch);
        Ok(())
    }

    /// The latent variance that inducing points do not carry, s ρ, at the point in the workspace.
    #[inline]
    fn residual(&self, ws: &Workspace) -> f64 {
        self.prior.residual_scale() * ws.placement.residual(0)
    }

    /// Mean and latent variance for the point in the workspace; leaves Fᵀφ there.
    #[inline]
    fn predict_placed(&self, noise: f64, ws: &mut Workspace) -> Prediction {
        let known = self.predict_known(noise, ws);
        Prediction { variance: known.variance + self.residual(ws), ..known }
    }

    /// φᵀz̄ and ‖Fᵀφ‖², without the residual of inducing points, for the φ in the workspace; leaves Fᵀφ there.
    #[inline]
    fn predict_known(&self, noise: f64, ws: &mut Workspace) -> Prediction {
        let mean = if self.pending.is_empty() {
            self.whiten(ws);
            dot(&ws.phi, &self.mean)
        } else {
            let mean = self.mean_with_pending(ws);
            self.pending.whiten(&mut ws.white, &mut ws.products);
            mean
        };
        Prediction { mean, variance: dot(&ws.white, &ws.white), noise: self.noise * noise }
    }

    /// Leaves g = F₀ᵀφ of the point in the workspace there.
    #[inline]
    fn whiten(&self, ws: &mut Workspace) {
        if !ws.ahead.write_white(&mut ws.white) {
            self.factor.whiten(&ws.phi, &mut ws.white);
        }
    }

    /// φᵀz̄ for the point in the workspace while rows wait; leaves g = F₀ᵀφ there.
    fn mean_with_pending(&self, ws: &mut Workspace) -> f64 {
        let before = if let Some(image) = self.pending.image() {
            ws.white.fill(0.0);
            let blocks = Placed::from(&ws.placement).weights.iter().enumerate();
            blocks.map(|(block, w)| image.gather_on_block(block, w, &mut ws.white)).sum()
        } else {
            self.whiten(ws);
            dot(&ws.phi, &self.mean)
        };
        before + dot(&ws.white, self.pending.shift())
    }

    /// Mean and variance at one point: at most p² multiply-adds, and 2p more for each row that waits. No allocation
    /// once the workspace is warm.
    pub fn predict(&self, h: &[f64], ws: &mut Workspace) -> Result<Prediction> {
        self.place(h, 0, ws)?;
        Ok(self.predict_placed(1.0, ws))
    }

    /// The mean alone: about 2p multiply-adds, or as many as a prediction while rows wait.
    pub fn predict_mean(&self, h: &[f64], ws: &mut Workspace) -> Result<f64> {
        self.place(h, 0, ws)?;
        Ok(if self.pending.is_empty() { dot(&ws.phi, &self.mean) } else { self.mean_with_pending(ws) })
    }

    /// Mean and variance with their gradients in the point's coordinates.
    pub fn predict_gradient(&self, h: &[f64], ws: &mut Workspace) -> Result<PredictionGradient> {
        let mut gradient = PredictionGradient::default();
        self.predict_gradient_into(h, ws, &mut gradient)?;
        Ok(gradient)
    }

    /// As [`Posterior::predict_gradient`], into a value whose memory is used again.
    pub fn predict_gradient_into(
        &self,
        h: &[f64],
        ws: &mut Workspace,
        out: &mut PredictionGradient,
    ) -> Result<()> {
        self.place(h, 0, ws)?;
        self.gradient_placed(h, ws, out);
        Ok(())
    }

    /// As [`Posterior::predict_gradient_into`], of the sum of those blocks that cover their part of the point.
    pub(crate) fn predict_inside(
        &self,
        h: &[f64],
        ws: &mut Workspace,
        out: &mut PredictionGradient,
    ) -> Result<()> {
        ws.fit(self);
        self.lattice().locate_inside(h, &mut ws.placement)?;
        self.prior.features(&ws.placement, &mut ws.phi, &mut ws.scratch);
        self.gradient_placed(h, ws, out);
        Ok(())
    }

    fn gradient_placed(&self, h: &[f64], ws: &mut Workspace, out: &mut PredictionGradient) {
        out.prediction = self.predict_placed(1.0, ws);
        if self.pending.is_empty() {
            self.factor.color(&ws.white, &mut ws.gain);
        } else {
            ws.gain.copy_from_slice(&ws.white);
            self.pending.color(&mut ws.gain, &mut ws.products);
        }
        out.mean.clear();
        out.variance.clear();
        let mut rest = h;
        for (block, grid) in self.lattice().grids().iter().enumerate() {
            let (own, others) = rest.split_at(grid.dim());
            rest = others;
            let placed = Weights::locate_with_slopes(grid, own);
            for k in 0..grid.dim() {
                // A block that does not cover the point says nothing.
                let (mean, covariance) = placed
                    .as_ref()
                    .map_or((0.0, 0.0), |(w, slopes)| self.slopes(block, &w.derivative(slopes, k), ws));
                out.mean.push(mean);
                out.variance.push(2.0 * covariance);
            }
        }
        self.push_slopes_of_points(rest, ws, out);
    }

    /// ∂φᵀz̄ and ∂φᵀPφ for weights that change on one block only. The workspace has Pφ as its gain; while rows
    /// wait T Fᵀφ, since then ∂φᵀPφ = (F₀ᵀ∂φ)ᵀ (T Fᵀφ).
    fn slopes(&self, block: usize, dw: &Weights, ws: &mut Workspace) -> (f64, f64) {
        if let Some(image) = self.pending.image() {
            ws.white.fill(0.0);
            let mean = image.gather_on_block(block, dw, &mut ws.white);
            return (mean + dot(&ws.white, self.pending.shift()), dot(&ws.white, &ws.gain));
        }
        self.prior.features_on_block(block, dw, &mut ws.phi, &mut ws.scratch);
        let mean = dot(&ws.phi, &self.mean);
        if self.pending.is_empty() {
            return (mean, dot(&ws.phi, &ws.gain));
        }
        self.factor.whiten(&ws.phi, &mut ws.white);
        (mean + dot(&ws.white, self.pending.shift()), dot(&ws.white, &ws.gain))
    }

    /// The joint latent mean (q) and covariance (q×q, row after row) of q points given row after row.
    pub fn joint(&self, h: &[f64], ws: &mut Workspace) -> Result<(Vec<f64>, Vec<f64>)> {
        let d = self.lattice().dim();
        let q = h.len() / d;
        length("x", q * d, h.len())?;
        let (mut mean, mut white) = (Vec::with_capacity(q), Vec::with_capacity(q * self.factor.stride()));
        let mut residuals = Residuals::new(&self.prior, h, q);
        for (row, point) in h.chunks_exact(d).enumerate() {
            self.place(point, row, ws)?;
            mean.push(self.predict_placed(1.0, ws).mean);
            white.extend_from_slice(&ws.white);
            residuals.push(&ws.placement);
        }
        let vector = |i: usize| &white[i * self.factor.stride()..(i + 1) * self.factor.stride()];
        let entry = |i: usize, j: usize| dot(vector(i), vector(j)) + residuals.covariance(i, j);
        Ok((mean, (0..q * q).map(|e| entry(e / q, e % q)).collect()))
    }

    /// Conditions on one observation at fixed hyperparameters and returns what was predicted for it before:
    /// 3p² multiply-adds, no allocation once the workspace is warm. From p = 256 on rows may wait for each other:
    /// then most cost O(p), and the last of a list the matrix products for all of them.
    ///
    /// `noise` is the observation's noise variance relative to σ² (1 for plain data).
    pub fn condition(&mut self, h: &[f64], y: f64, noise: f64, ws: &mut Workspace) -> Result<Prediction> {
        self.condition_within(h, y, noise, f64::INFINITY, ws).map(|(prediction, _)| prediction)
    }

    /// As [`Posterior::condition`], with more noise for an observation that is farther off than `reach` deviations
    /// ([`Prediction::discount`]). Returns the prediction, and by how much the noise was multiplied.
    pub(crate) fn condition_within(
        &mut self,
        h: &[f64],
        y: f64,
        noise: f64,
        reach: f64,
        ws: &mut Workspace,
    ) -> Result<(Prediction, f64)> {
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        self.place(h, 0, ws)?;
        self.look_ahead(h, ws);
        let known = self.predict_known(noise, ws);
        let prediction = Prediction { variance: known.variance + self.residual(ws), ..known };
        let factor = prediction.discount(y, reach);
        let noise = factor * known.noise;
        self.update(noise, (y - known.mean) / (known.variance + noise), ws);
        Ok((prediction, factor))
    }

    /// Takes in the point in the workspace (removes it if `noise` is negative), given its step of the mean.
    #[inline]
    fn update(&mut self, noise: f64, step: f64, ws: &mut Workspace) {
        if self.pending.is_immediate() {
            self.factor.update(&ws.white, noise, &mut ws.gain);
            self.mean.iter_mut().zip(&ws.gain).for_each(|(z, &g)| *z += step * g);
            return;
        }
        self.pending.push(&ws.white, noise, step, &mut ws.products);
        if self.pending.is_full() {
            self.flush(&mut ws.pool);
            ws.ahead.invalidate();
        } else {
            self.fit_image(&mut ws.pool);
        }
    }

    /// Un-learns one observation that was conditioned on before, with the same values. Rejected if the
    /// posterior cannot contain it.
    pub fn uncondition(&mut self, h: &[f64], y: f64, noise: f64, ws: &mut Workspace) -> Result<()> {
        finite("y", y, 0)?;
        positive("noise", noise, 0)?;
        self.place(h, 0, ws)?;
        let prediction = self.predict_known(noise, ws);
        if prediction.variance >= prediction.noise {
            return Err(Error::NotLearned { variance: prediction.variance, noise: prediction.noise });
        }
        let step = (y - prediction.mean) / (prediction.variance - prediction.noise);
        self.update(-prediction.noise, step, ws);
        Ok(())
    }

    /// The latent variance that data can take away, which a row must have less of than noise to have been learned. It is
    /// that of a prediction but for the residual of inducing points.
    pub(crate) fn known_variance(&self, h: &[f64], ws: &mut Workspace) -> Result<f64> {
        self.place(h, 0, ws)?;
        Ok(self.predict_known(1.0, ws).variance)
    }

    /// A copy conditioned on hypothetical observations: the prior is shared, p² numbers are copied.
    pub fn fantasize(&self, h: &[f64], y: &[f64], ws: &mut Workspace) -> Result<Self> {
        let d = self.lattice().dim();
        length("x", y.len() * d, h.len())?;
        let mut copy = self.clone();
        for (point, &y) in h.chunks_exact(d).zip(y) {
            copy.condition(point, y, 1.0, ws)?;
        }
        Ok(copy)
    }

    /// How far the recursively conditioned posterior is from the statistics it should agree with, without a
    /// new factorization: one step of iterative refinement for z̄, and one for P φ at the last point that
    /// went through the workspace. O(p² + 7^d m).
    pub fn drift(&self, stats: &Stats, ws: &mut Workspace) -> Drift {
        self.settled().settled_drift(stats, ws)
    }

    fn settled_drift(&self, stats: &Stats, ws: &mut Workspace) -> Drift {
        ws.fit(self);
        let norm = |x: &[f64]| dot(x, x).sqrt();
        let pool = &mut Pool::default();
        let target: Vec<f64> =
            self.prior.project(stats.b(), 1, pool).iter().map(|b| b / self.noise).collect();
        let correction = self.refinement(stats, &target, &self.mean, ws);
        let mean = norm(&correction) / norm(&self.mean).max(f64::MIN_POSITIVE);

        self.factor.whiten(&ws.phi, &mut ws.white);
        let variance = dot(&ws.white, &ws.white).max(f64::MIN_POSITIVE);
        let mut solution = vec![0.0; self.rank()];
        self.factor.color(&ws.white, &mut solution);
        let phi = ws.phi.clone();
        let correction = self.refinement(stats, &phi, &solution, ws);
        Drift { mean, variance: dot(&phi, &correction).abs() / variance }
    }

    /// F Fᵀ (target − S x): what is missing from x as a solution of S x = target.
    fn refinement(&self, stats: &Stats, target: &[f64], x: &[f64], ws: &mut Workspace) -> Vec<f64> {
        let pool = &mut Pool::default();
        let u = self.prior.expand(x, 1, pool);
        let mut au = vec![0.0; u.len()];
        stats.apply(&u, &mut au);
        let data = self.prior.project(&au, 1, pool);
        let residual: Vec<f64> =
            target.iter().zip(x).zip(&data).map(|((t, x), a)| t - x - a / self.noise).collect();
        let mut correction = vec![0.0; x.len()];
        self.factor.whiten(&residual, &mut ws.white);
        self.factor.color(&ws.white, &mut correction);
        correction
    }

    /// The gradient of the evidence in every interpolation weight of a data point at `h`, a vector over all
    /// grid points: [ a (y − aᵀw) − M'w ]/(σ² d); for inducing points also s w/(σ² d), by which the residual shrinks.
    pub fn weight_gradient(&self, h: &[f64], y: f64, noise: f64, ws: &mut Workspace) -> Result<Vec<f64>> {
        let settled = self.settled();
        settled.place(h, 0, ws)?;
        let prediction = settled.predict_placed(noise, ws);
        settled.factor.color(&ws.white, &mut ws.gain);
        let residual = y - prediction.mean;
        let combined: Vec<f64> = settled.mean.iter().zip(&ws.gain).map(|(z, g)| residual * z - g).collect();
        let mut gradient = self.prior.expand(&combined, 1, &mut Pool::default());
        let dense = Placed { weights: &[], ..Placed::from(&ws.placement) };
        self.lattice().scatter(dense, self.prior.residual_scale(), &mut gradient);
        gradient.iter_mut().for_each(|v| *v /= prediction.noise);
        Ok(gradient)
    }

    /// The posterior on the grid with its root, for joint predictions of several points with gradients:
    /// m p numbers, O(p² Σ g) multiply-adds.
    pub fn surface(&self) -> Surface {
        let settled = self.settled();
        Surface::new(&self.prior, &settled.factor, &settled.mean, self.noise, &mut Pool::default())
    }

    /// What block `j` alone says at points given row after row in its own coordinates, centered over the data:
    /// mean (w_j − m_j)ᵀa_j and variance ‖V_jᵀ(w_j − m_j)‖², with m_j the mean weights of the data. Without the
    /// center a constant could move between blocks at will. p p_j multiply-adds a point. Inducing points are the last
    /// block, and their variance contains the residual.
    pub fn effect(&self, stats: &Stats, block: usize, h: &[f64]) -> Result<Vec<Prediction>> {
        let (grid, points) = (self.lattice().grids().get(block), self.lattice().points());
        let alone = match (grid, points) {
            (Some(grid), _) => Lattice::from(grid.clone()),
            (None, Some(points)) if block + 1 == self.lattice().blocks() => {
                Lattice::with_points(Vec::new(), points.clone())
            }
            _ => {
                let reason = format!("there are {} blocks", self.lattice().blocks());
                return Err(Error::Config { field: format!("block {block}"), reason });
            }
        };
        length("x", h.len() / alone.dim() * alone.dim(), h.len())?;
        let mut center = stats.mean_weights();
        let own = self.lattice().block(block);
        center[..own.start].fill(0.0);
        center[own.end..].fill(0.0);
        let center = self.prior.project(&center, 1, &mut Pool::default());
        let (mut phi, mut scratch) = (vec![0.0; self.rank()], vec![0.0; self.prior.scratch_len()]);
        let (settled, mut white) = (self.settled(), vec![0.0; self.factor.stride()]);
        let (mut effects, mut placement) = (Vec::with_capacity(h.len() / alone.dim()), Placement::default());
        for (row, point) in h.chunks_exact(alone.dim()).enumerate() {
            alone.weigh(point, row, &mut placement)?;
            let at = Placed::from(&placement);
            if let [w] = at.weights {
                self.prior.features_on_block(block, w, &mut phi, &mut scratch);
            } else {
                phi.fill(0.0);
                self.prior.features_of_points(at.dense, &mut phi);
            }
            phi.iter_mut().zip(&center).for_each(|(p, c)| *p -= c);
            settled.factor.whiten(&phi, &mut white);
            let residual = self.prior.residual_scale() * placement.residual(0);
            let (mean, variance) = (dot(&phi, &settled.mean), dot(&white, &white) + residual);
            effects.push(Prediction { mean, variance, noise: 0.0 });
        }
        Ok(effects)
    }

    /// The share of each block in the variance over the data that the posterior mean explains, all blocks
    /// taken for themselves. They add up to one.
    pub fn shares(&self, stats: &Stats) -> Vec<f64> {
        stats.shares(&self.prior.expand(&self.settled().mean, 1, &mut Pool::default()))
    }

    /// The immutable image on the grid, for fast predictions. O(p² Σ g + 7^d m p).
    pub fn predictor(&self) -> Predictor {
        Predictor::new(self)
    }

    /// A whole function drawn exactly from the posterior, for standard normal numbers ξ (p of them):
    /// u = B (z̄ + F ξ). Of inducing points it is the part that they carry: the residual, of variance s ρ(x) at a point,
    /// is left out.
    pub fn sample(&self, xi: &[f64]) -> Result<FunctionSample> {
        length("xi", self.rank(), xi.len())?;
        let mut padded = xi.to_vec();
        padded.resize(self.factor.stride(), 0.0);
        // F ξ + z̄ = F₀ (T ξ + s) + z̄₀ with the rows that wait.
        self.pending.color(&mut padded, &mut vec![0.0; self.pending.scratch_len()]);
        padded.iter_mut().zip(self.pending.shift()).for_each(|(x, s)| *x += s);
        let mut z = vec![0.0; self.rank()];
        self.factor.color(&padded, &mut z);
        z.iter_mut().zip(&self.mean).for_each(|(z, &m)| *z += m);
        Ok(FunctionSample::new(self.lattice().clone(), self.prior.expand(&z, 1, &mut Pool::default())))
    }

    /// A whole function drawn exactly from the posterior.
    pub fn sample_with(&self, rng: &mut (impl rand::Rng + ?Sized)) -> Result<FunctionSample> {
        let xi: Vec<f64> = (0..self.rank()).map(|_| rng.sample(rand_distr::StandardNormal)).collect();
        self.sample(&xi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farther_off_the_less_it_pulls() {
        let said = Prediction { mean: 1.0, variance: 3.0, noise: 1.0 };
        assert_eq!(said.discount(1.0 + 16.0, 8.0), 1.0, "eight deviations of two are within reach");
        // What an observation adds to the mean goes by residual/noise, to the noise by residual²/noise: both fall.
        let pulls = [1.1, 2.0, 10.0, 1e3, 1e6].map(|times: f64| {
            let off = 16.0 * times;
            let factor = said.discount(1.0 - off, 8.0);
            (off / factor, off * off / factor)
        });
        assert!(pulls.is_sorted_by(|a, b| a.0 > 1.5 * b.0 && a.1 > 1.5 * b.1), "{pulls:?}");
        assert!(pulls[4].1 < 1e-3, "{pulls:?}");
        // A deviation counts as at least half of that of all targets.
        let sure = Prediction { variance: 1e-6, noise: 0.0, ..said };
        assert_eq!((sure.discount(5.0, 8.0), sure.discount(9.0, 8.0)), (1.0, 8.0));
    }
}
