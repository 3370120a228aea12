//! The posterior for products of Matérn ½ on large grids, by a sparse Cholesky factorization: exact, like the
//! dense engine, and with no rank to choose.
//!
//! The values of a process with covariance s Π_k exp(−|τ_k|/ℓ_k) on a grid are a Markov field. Its precision
//! Q = K⁻¹ is a Kronecker product of tridiagonal matrices (`precision.rs`) and never needs an inverse:
//!
//! ```text
//! u | data ~ N(a, H⁻¹),   H = Q + A/σ²,   a = H⁻¹ b/σ²
//! ```
//!
//! Q reaches one cell and the data's A three, so H has the pattern of the stencil. The grid is cut by nested
//! dissection (`dissection.rs`) and H factorized front by front (`cholesky.rs`). Predictions and the gradient of
//! the evidence read H⁻¹ only within the stencil, and the selected inverse (`inverse.rs`) computes just that part.
//!
//! | | one axis | two axes | three axes |
//! | --- | --- | --- | --- |
//! | entries of the factor | O(m) | O(m log m) | O(m^{4/3}) |
//! | factorization, selected inverse | O(m) | O(m^{3/2}) | O(m²) |
//! | solve, sample | O(m) | O(m log m) | O(m^{4/3}) |
//!
//! The number of observations does not enter. [`SparsePosterior::cost`] tells entries and arithmetic of a grid
//! beforehand: in three dimensions they limit what is sensible.
//!
//! # Rounding
//!
//! H is formed, unlike the S = I + BᵀAB/σ² of the dense engine. For length-scales ℓ ≫ h the entries of Q grow like
//! Π_k ℓ_k/h_k and cancel on smooth functions, and what the data say about those has to be seen beside them: digits
//! are lost as that product grows. [`SparsePosterior::correction`] measures what it was for the mean, which one step of refinement with an
//! accurate residual then repairs. If it is more than 10⁻⁶, there is an error instead of a posterior.
//!
//! # Smoother kernels
//!
//! With Matérn 3/2 and 5/2 the values on a grid are not Markov, but values with one or two derivatives are. The
//! precision of q = 2 or 3 numbers on each of d axes is again a Kronecker product of (block) tridiagonal matrices,
//! over q^d m unknowns. The pattern is the same with each entry a q^d×q^d block, so a factorization needs q^{2d} times
//! the memory and q^{3d} times the arithmetic: 16 and 64 times for Matérn 3/2 in two dimensions, 81 and 729 times for
//! Matérn 5/2. In one dimension it would be cheap (4 and 8, 9 and 27 times a linear cost), but the innovation of the
//! value over one cell has variance O((h/ℓ)³) and O((h/ℓ)⁵), and the condition number of the precision grows like
//! (ℓ/h)⁴ and (ℓ/h)⁶: at h = ℓ/1000 that leaves Matérn 3/2 four digits and Matérn 5/2 none. A grid fine enough to
//! need a sparse engine is too fine for it, so there is none here; smooth kernels have few eigenvalues that matter,
//! which is what the other engines use.

mod cholesky;
mod dissection;
mod evidence;
mod inverse;
mod precision;

use std::sync::{Arc, OnceLock};

use rand::RngExt;

use crate::error::{Error, Result, length, positive};
use crate::grid::{Grid, Lattice};
use crate::kernel::Kernel;
use crate::posterior::{FunctionSample, Predictor};
use crate::simd::dot;
use crate::stats::{Gram, Stats};
use crate::structure::{BlockMatrix, GridMatrix, Neighbourhood, Symmetric};
use cholesky::Cholesky;
use dissection::Dissection;
use inverse::{Front, selected_inverse};
use precision::PriorPrecision;

/// A posterior that one step of refinement changes by more than this is refused.
const LARGEST_CORRECTION: f64 = 1e-6;

/// The posterior of all grid values under a product of Matérn ½ on one grid.
#[derive(Debug, Clone)]
pub struct SparsePosterior {
    lattice: Lattice,
    kernel: Kernel,
    noise: f64,
    prior: PriorPrecision,
    /// A/σ².
    data: BlockMatrix,
    factor: Cholesky,
    mean: Vec<f64>,
    correction: f64,
    /// log det H + log det K.
    log_det: f64,
    covariance: OnceLock<BlockMatrix>,
    /// n and c of the statistics, to tell them from others.
    count: f64,
    squares: f64,
}

/// What a sparse factorization of a grid takes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Cost {
    /// The entries of the factor, eight bytes each.
    pub entries: usize,
    /// The multiply-adds of the factorization; the selected inverse takes about twice as many.
    pub multiply_adds: f64,
}

impl SparsePosterior {
    /// The posterior given the statistics of one grid, for noise variance σ².
    ///
    /// Refused if the kernel is anything but one product with Matérn ½ on every axis, or if the statistics have
    /// several grids or are a low-rank root.
    pub fn new(stats: &Stats, kernel: &Kernel, noise: f64) -> Result<Self> {
        let grid = only_grid(stats.lattice())?;
        Self::on_tree(Arc::new(dissection(grid)), stats, kernel, noise, Vec::new())
    }

    /// The posterior for other statistics on the same grid, another kernel or another noise, in the memory of this
    /// one: what a search for hyperparameters should use, since fetching fresh memory costs about as much as
    /// filling it.
    pub fn renewed(self, stats: &Stats, kernel: &Kernel, noise: f64) -> Result<Self> {
        if stats.lattice() != &self.lattice {
            return Self::new(stats, kernel, noise);
        }
        Self::on_tree(self.factor.tree.clone(), stats, kernel, noise, self.factor.into_memory())
    }

    fn on_tree(
        tree: Arc<Dissection>,
        stats: &Stats,
        kernel: &Kernel,
        noise: f64,
        memory: Vec<f64>,
    ) -> Result<Self> {
        positive("noise", noise, 0)?;
        let grid = only_grid(stats.lattice())?;
        let Gram::Exact(gram) = stats.gram() else {
            let reason = "a low-rank root is not sparse: keep the statistics exactly";
            return Err(Error::Unsupported { operation: "sparse factorization", reason });
        };
        let prior = PriorPrecision::new(grid, kernel)?;
        let mut data = gram.clone();
        data.scale(noise.recip());
        let block = &data.diagonal()[0];
        let near = Neighbourhood::new(&grid.shape(), 3);
        let row = |i: usize, f: &mut dyn FnMut(usize, f64)| {
            near.for_each(i, |j, place, _| f(j, block.data()[block.place(i, j, place)]));
            prior.for_each_in_row(i, f);
        };
        let factor = Cholesky::new(tree, row, memory)?;
        let log_det = factor.log_det() + prior.log_det_covariance();
        let mut posterior = Self {
            lattice: stats.lattice().clone(),
            kernel: kernel.clone(),
            noise,
            prior,
            data,
            factor,
            mean: stats.b().iter().map(|b| b / noise).collect(),
            correction: 0.0,
            log_det,
            covariance: OnceLock::new(),
            count: stats.count(),
            squares: stats.c(),
        };
        let mut mean = std::mem::take(&mut posterior.mean);
        posterior.correction = if mean.iter().all(|&b| b == 0.0) {
            // Without targets the constant serves: rounding hurts smooth functions most.
            posterior.solve_refined(&mut vec![1.0; mean.len()])
        } else {
            posterior.solve_refined(&mut mean)
        };
        posterior.mean = mean;
        if posterior.correction > LARGEST_CORRECTION {
            let residual = posterior.correction;
            return Err(Error::NoConvergence { method: "sparse factorization", iterations: 1, residual });
        }
        Ok(posterior)
    }

    /// Entries and arithmetic of the factorization for a grid, known before any of it is done.
    pub fn cost(grid: &Grid) -> Cost {
        let tree = dissection(grid);
        Cost { entries: tree.entries(), multiply_adds: tree.multiply_adds() }
    }

    /// The grid, as the only one of a lattice.
    pub fn lattice(&self) -> &Lattice {
        &self.lattice
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The noise variance σ².
    pub fn noise(&self) -> f64 {
        self.noise
    }

    /// The posterior mean a = H⁻¹b/σ² of the grid values.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// How much one step of iterative refinement changed the mean, relative to its size: about what rounding had
    /// made of it, and what is left in covariances.
    pub fn correction(&self) -> f64 {
        self.correction
    }

    /// log det H + log det K = log det (I + K A/σ²), the same number that a dense posterior gives.
    pub fn log_det(&self) -> f64 {
        self.log_det
    }

    /// The number of stored entries of the factor.
    pub fn factor_entries(&self) -> usize {
        self.factor.entries()
    }

    /// x ← H⁻¹ x for values on the grid points, with one step of iterative refinement: four multiply-adds for each
    /// entry of the factor.
    pub fn solve(&self, x: &mut [f64]) -> Result<()> {
        length("x", self.mean.len(), x.len())?;
        self.solve_refined(x);
        Ok(())
    }

    /// H x, computed from the factors of Q and from A, not from the sum: what the solution is measured against.
    pub fn multiply(&self, x: &[f64]) -> Result<Vec<f64>> {
        length("x", self.mean.len(), x.len())?;
        Ok(self.product(x))
    }

    fn product(&self, x: &[f64]) -> Vec<f64> {
        let (mut by_prior, mut by_data) = (x.to_vec(), vec![0.0; x.len()]);
        self.prior.apply(&mut by_prior);
        self.data.apply(x, &mut by_data, &mut []);
        by_prior.iter_mut().zip(&by_data).for_each(|(p, d)| *p += d);
        by_prior
    }

    /// x ← H⁻¹ x; returns the relative size of the correction that refinement made.
    fn solve_refined(&self, x: &mut [f64]) -> f64 {
        let target = x.to_vec();
        self.solve_once(x);
        let mut residual = self.product(x);
        residual.iter_mut().zip(&target).for_each(|(r, t)| *r = t - *r);
        self.solve_once(&mut residual);
        let size = dot(x, x).sqrt().max(f64::MIN_POSITIVE);
        x.iter_mut().zip(&residual).for_each(|(x, r)| *x += r);
        dot(&residual, &residual).sqrt() / size
    }

    fn solve_once(&self, x: &mut [f64]) {
        let mut ordered = self.to_elimination_order(x);
        self.factor.solve_lower(&mut ordered);
        self.factor.solve_upper(&mut ordered);
        self.to_grid_order(&ordered, x);
    }

    fn to_elimination_order(&self, x: &[f64]) -> Vec<f64> {
        self.factor.tree.order.iter().map(|&point| x[point as usize]).collect()
    }

    fn to_grid_order(&self, ordered: &[f64], x: &mut [f64]) {
        x.iter_mut().zip(&self.factor.tree.number).for_each(|(x, &i)| *x = ordered[i as usize]);
    }

    /// The posterior covariance H⁻¹ of the grid values where grid points lie within three cells of each other on
    /// every axis (the whole of it for grids of less than 7^d points): what predictions and the gradient of the
    /// evidence read. A selected inverse when it is first asked for, about twice the arithmetic of the factorization; then it is kept.
    pub fn covariance(&self) -> &BlockMatrix {
        self.covariance.get_or_init(|| self.selected_covariance())
    }

    fn selected_covariance(&self) -> BlockMatrix {
        let tree = &self.factor.tree;
        let mut covariance = BlockMatrix::zeros(&self.lattice);
        let near = Neighbourhood::new(&self.lattice.grids()[0].shape(), 3);
        let mut places = vec![0u32; self.mean.len()];
        let block = &mut covariance.diagonal_mut()[0];
        selected_inverse(&self.factor, |front: &Front| {
            let own = front.node.own.clone();
            if let GridMatrix::Dense(whole) = block {
                // The only front: all points are eliminated together.
                let m = whole.size();
                for (c, &i) in tree.order.iter().enumerate() {
                    for (r, &j) in tree.order.iter().enumerate() {
                        whole.data_mut()[i as usize * m + j as usize] = front.entry(r, c);
                    }
                }
                return;
            }
            let points = own.clone().chain(front.node.boundary.iter().map(|&i| i as usize));
            for (place, i) in (0..).zip(points) {
                places[i] = place;
            }
            let data = block.data_mut();
            for (c, i) in own.clone().enumerate() {
                near.for_each(tree.order[i] as usize, |j, place, twin| {
                    let other = tree.number[j] as usize;
                    if other >= i {
                        let value = front.entry(places[other] as usize, c);
                        data[place] = value;
                        data[twin] = value;
                    }
                });
            }
        });
        covariance
    }

    /// The immutable image for fast predictions, as of any other posterior.
    pub fn predictor(&self) -> Predictor {
        let (lattice, covariance) = (self.lattice.clone(), self.covariance().clone());
        Predictor::from_parts(lattice, self.mean.clone(), covariance, self.noise)
    }

    /// A whole function drawn exactly from the posterior, for m standard normal numbers ξ: u = a + L⁻ᵀξ, where
    /// H = L Lᵀ in elimination order.
    pub fn sample(&self, xi: &[f64]) -> Result<FunctionSample> {
        length("xi", self.mean.len(), xi.len())?;
        let mut values = vec![0.0; xi.len()];
        let mut ordered = xi.to_vec();
        self.factor.solve_upper(&mut ordered);
        self.to_grid_order(&ordered, &mut values);
        values.iter_mut().zip(&self.mean).for_each(|(v, a)| *v += a);
        Ok(FunctionSample::new(self.lattice.clone(), values))
    }

    /// A whole function drawn exactly from the posterior.
    pub fn sample_with(&self, rng: &mut impl rand::Rng) -> Result<FunctionSample> {
        let xi: Vec<f64> = (0..self.mean.len()).map(|_| rng.sample(rand_distr::StandardNormal)).collect();
        self.sample(&xi)
    }
}

fn only_grid(lattice: &Lattice) -> Result<&Grid> {
    let [grid] = lattice.grids() else {
        let reason = "blocks between several grids are dense: it needs a model of one grid";
        return Err(Error::Unsupported { operation: "sparse factorization", reason });
    };
    Ok(grid)
}

fn dissection(grid: &Grid) -> Dissection {
    // Where matrices are stored whole, the inverse is wanted whole: one front.
    let leaf = if GridMatrix::is_whole(grid) { grid.len() } else { leaf_size(grid.dim()) };
    Dissection::new(&grid.shape(), leaf)
}

/// The largest box that is eliminated whole: where factorization and selected inverse were measured to be fastest,
/// with little to choose between half and twice as many points.
fn leaf_size(d: usize) -> usize {
    match d {
        1 => 16,
        2 => 80,
        _ => 200,
    }
}
