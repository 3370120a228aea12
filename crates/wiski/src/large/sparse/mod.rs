//! The posterior for products of Matérn kernels on large grids, by a sparse Cholesky factorization: exact, like the
//! dense engine, and with no rank to choose. Made for Matérn ½.
//!
//! The values of a process with covariance s Π_k exp(−|τ_k|/ℓ_k) on a grid are a Markov field. Its precision
//! Q = K⁻¹ is a Kronecker product of tridiagonal matrices (`chain.rs`, `precision.rs`) and never needs an inverse:
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
//! # Smoother kernels
//!
//! With Matérn 3/2 and 5/2 the values on a grid are not Markov, but the values with one or two derivatives are: q = 2
//! or 3 numbers for each point of an axis. The unknowns are then q^d m; the rest stays as it is, with data that only
//! see values. Every entry becomes a block: q^{2d} times the memory and q^{3d} times the arithmetic of Matérn ½. On one
//! axis that is 4 and 8 times of little for Matérn 3/2, 9 and 27 times for Matérn 5/2; on two axes 16 and 64,
//! or 81 and 729 times. Axes may differ in smoothness.
//!
//! # Rounding
//!
//! H is formed, unlike the S = I + BᵀAB/σ² of the dense engine. For length-scales ℓ ≫ h the entries of Q are large and
//! cancel on smooth functions: with its diagonal scaled to one, the condition number of Q on an axis grows like
//! (ℓ/h)^{2q}, and that of a product like the product over the axes. What the data say has to be seen beside that.
//! [`SparsePosterior::correction`] measures what rounding did to the mean, which one step of refinement with an
//! accurate residual then repairs. If it is more than 10⁻⁶, there is an error instead of a posterior. So Matérn ½ may
//! be used on any sensible grid, the smoother kernels where a length-scale is some ten cells: long series rather
//! than fine ones. On finer grids smooth kernels have few eigenvalues that matter, and the dense engine is for them.

mod chain;
mod cholesky;
mod dissection;
mod evidence;
mod inverse;
mod precision;

use std::sync::{Arc, OnceLock};

use rand::RngExt;

use crate::error::{Error, Result, length, positive};
use crate::grid::{Grid, Lattice};
use crate::interp::Weights;
use crate::kernel::Kernel;
use crate::posterior::{FunctionSample, Predictor};
use crate::simd::dot;
use crate::stats::{Gram, Stats};
use crate::structure::{BlockMatrix, GridMatrix, Neighborhood, Symmetric};
use cholesky::Cholesky;
use dissection::Dissection;
use inverse::{Front, selected_inverse};
use precision::{Contraction, PriorPrecision};

/// A posterior that one step of refinement changes by more than this is rejected.
const LARGEST_CORRECTION: f64 = 1e-6;

/// The posterior of all grid values under a product of Matérn kernels on one grid.
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
    /// The mean of all unknowns: values, and derivatives where there are any.
    states: Vec<f64>,
    correction: f64,
    /// log det H + log det K.
    log_det: f64,
    selected: OnceLock<Selected>,
    /// Made when it is first asked for.
    pub(crate) image: OnceLock<Arc<Predictor>>,
    /// n and c of the statistics, to tell them from others.
    count: f64,
    squares: f64,
}

/// What is read from H⁻¹.
#[derive(Debug, Clone)]
struct Selected {
    /// The covariance of the values within the stencil.
    covariance: BlockMatrix,
    /// ⟨E u uᵀ, Q⟩ over all unknowns u, and its derivatives: what the gradient needs.
    moment: Contraction,
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
    /// Rejected if the kernel is anything but one product with a Matérn kernel on every axis, if the statistics have
    /// several grids or are a low-rank root, and if rounding would spoil the result.
    pub fn new(stats: &Stats, kernel: &Kernel, noise: f64) -> Result<Self> {
        Self::with_memory(None, Vec::new(), stats, kernel, noise)
    }

    /// The posterior for other statistics, another kernel or another noise, in the memory and, on the same grid, with
    /// the tree of this one: for searches over hyperparameters.
    pub fn renewed(self, stats: &Stats, kernel: &Kernel, noise: f64) -> Result<Self> {
        let tree = self.factor.tree.clone();
        Self::with_memory(Some(tree), self.factor.into_memory(), stats, kernel, noise)
    }

    fn with_memory(
        tree: Option<Arc<Dissection>>,
        memory: Vec<f64>,
        stats: &Stats,
        kernel: &Kernel,
        noise: f64,
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
        let near = Neighborhood::new(&grid.shape(), 3);
        let row = |unknown: usize, f: &mut dyn FnMut(usize, f64)| {
            if let Some(i) = prior.point(unknown) {
                let values = prior.values();
                near.for_each(i, |j, place, _| {
                    f(values[j] as usize, block.data()[block.place(i, j, place)]);
                });
            }
            prior.for_each_in_row(unknown, f);
        };
        // Shape and reach together tell the grid and the states of its points.
        let fits = |tree: &Arc<Dissection>| tree.shape == prior.shape() && tree.reach == prior.reach();
        let tree = tree.filter(fits).unwrap_or_else(|| Arc::new(dissection(grid, &prior)));
        let factor = Cholesky::new(tree, row, memory)?;
        let log_det = factor.log_det() + prior.log_det_covariance();
        let mut posterior = Self {
            lattice: stats.lattice().clone(),
            kernel: kernel.clone(),
            noise,
            prior,
            data,
            factor,
            mean: Vec::new(),
            states: Vec::new(),
            correction: 0.0,
            log_det,
            selected: OnceLock::new(),
            image: OnceLock::new(),
            count: stats.count(),
            squares: stats.c(),
        };
        let mut states = posterior.embedded(stats.b());
        states.iter_mut().for_each(|b| *b /= noise);
        posterior.correction = if states.iter().all(|&b| b == 0.0) {
            // Without targets the constant serves: rounding hurts smooth functions most.
            posterior.solve_refined(&mut posterior.embedded(&vec![1.0; grid.len()]))
        } else {
            posterior.solve_refined(&mut states)
        };
        posterior.mean = posterior.values_of(&states);
        posterior.states = states;
        if posterior.correction <= LARGEST_CORRECTION {
            return Ok(posterior);
        }
        // Too much, or not a number.
        let residual = posterior.correction;
        Err(Error::NoConvergence { method: "sparse factorization", iterations: 1, residual })
    }

    /// Entries and arithmetic of the factorization for a grid and a kernel, known before any of it is done.
    pub fn cost(grid: &Grid, kernel: &Kernel) -> Result<Cost> {
        let tree = dissection(grid, &PriorPrecision::new(grid, kernel)?);
        Ok(Cost { entries: tree.entries(), multiply_adds: tree.multiply_adds() })
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

    /// The number of unknowns: m, or more where derivatives are among them.
    pub fn unknowns(&self) -> usize {
        self.prior.len()
    }

    /// x ← Σ x for the posterior covariance Σ of the grid values, which is H⁻¹ where values are all there is; with one
    /// step of iterative refinement: four multiply-adds for each entry of the factor.
    pub fn solve(&self, x: &mut [f64]) -> Result<()> {
        length("x", self.mean.len(), x.len())?;
        let mut states = self.embedded(x);
        self.solve_refined(&mut states);
        x.copy_from_slice(&self.values_of(&states));
        Ok(())
    }

    /// The joint latent mean (q) and covariance (q×q, row after row) of q points given row after row: q solves.
    pub fn joint(&self, h: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
        let lattice = &self.lattice;
        let q = h.len() / lattice.dim();
        length("x", q * lattice.dim(), h.len())?;
        let mut points: Vec<Vec<Weights>> = vec![Vec::new(); q];
        for (row, (h, weights)) in h.chunks_exact(lattice.dim()).zip(&mut points).enumerate() {
            lattice.locate(h, row, weights)?;
        }
        let mean = points.iter().map(|w| lattice.gather(w, &self.mean)).collect();
        let mut covariance = Vec::with_capacity(q * q);
        for weights in &points {
            let mut column = vec![0.0; lattice.len()];
            lattice.scatter(weights, 1.0, &mut column);
            self.solve(&mut column)?;
            covariance.extend(points.iter().map(|w| lattice.gather(w, &column)));
        }
        Ok((mean, covariance))
    }

    /// Unknowns with the given values, and zero derivatives.
    fn embedded(&self, values: &[f64]) -> Vec<f64> {
        let mut states = vec![0.0; self.prior.len()];
        self.prior.values().iter().zip(values).for_each(|(&i, &value)| states[i as usize] = value);
        states
    }

    fn values_of(&self, states: &[f64]) -> Vec<f64> {
        self.prior.values().iter().map(|&i| states[i as usize]).collect()
    }

    /// H x, from the factors of Q and from A, not from the sum: more accurate than the entries of H would be.
    fn product(&self, x: &[f64]) -> Vec<f64> {
        let (values, mut image) = (self.values_of(x), vec![0.0; self.lattice.len()]);
        self.data.apply(&values, &mut image, &mut []);
        let mut product = x.to_vec();
        self.prior.apply(&mut product);
        self.prior.values().iter().zip(&image).for_each(|(&i, y)| product[i as usize] += y);
        product
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
    /// every axis (the whole of it for grids of at most 7^d points): what predictions and the gradient of the
    /// evidence read. A selected inverse, about twice the arithmetic of the factorization, when it is first asked
    /// for; then it is kept.
    pub fn covariance(&self) -> &BlockMatrix {
        &self.selected().covariance
    }

    fn selected(&self) -> &Selected {
        self.selected.get_or_init(|| self.select())
    }

    fn select(&self) -> Selected {
        let (tree, prior, a) = (&self.factor.tree, &self.prior, &self.states);
        let mut covariance = BlockMatrix::zeros(&self.lattice);
        let mut moment = Contraction::default();
        let near = Neighborhood::new(&self.lattice.grids()[0].shape(), 3);
        let mut places = vec![0u32; prior.len()];
        let block = &mut covariance.diagonal_mut()[0];
        selected_inverse(&self.factor, |front: &Front| {
            let own = front.node.own.clone();
            let points = own.clone().chain(front.node.boundary.iter().map(|&i| i as usize));
            for (place, i) in (0..).zip(points) {
                places[i] = place;
            }
            for (c, i) in own.enumerate() {
                let unknown = tree.order[i] as usize;
                // Each pair is met once, when the first of the two was eliminated.
                let entry = |other: usize| {
                    let number = tree.number[other] as usize;
                    (number >= i).then(|| front.entry(places[number] as usize, c))
                };
                let second_moment = |other: usize| {
                    let times = if other == unknown { 1.0 } else { 2.0 };
                    entry(other).map_or(0.0, |z| times * (z + a[unknown] * a[other]))
                };
                prior.contract_row(unknown, second_moment, &mut moment);
                let Some(i) = prior.point(unknown) else { continue };
                let values = prior.values();
                match block {
                    GridMatrix::Stencil(stencil) => near.for_each(i, |j, place, twin| {
                        if let Some(z) = entry(values[j] as usize) {
                            stencil.data_mut()[place] = z;
                            stencil.data_mut()[twin] = z;
                        }
                    }),
                    GridMatrix::Dense(whole) => {
                        let m = values.len();
                        for (j, &other) in values.iter().enumerate() {
                            if let Some(z) = entry(other as usize) {
                                whole.data_mut()[i * m + j] = z;
                                whole.data_mut()[j * m + i] = z;
                            }
                        }
                    }
                }
            }
        });
        Selected { covariance, moment }
    }

    /// The immutable image for fast predictions, as of any other posterior.
    pub fn predictor(&self) -> Predictor {
        let (lattice, covariance) = (self.lattice.clone(), self.covariance().clone());
        Predictor::from_parts(lattice, self.mean.clone(), covariance, self.noise)
    }

    /// A whole function drawn exactly from the posterior, for standard normal numbers ξ, as many as there are
    /// [unknowns](SparsePosterior::unknowns): u = a + L⁻ᵀξ, where H = L Lᵀ in elimination order.
    pub fn sample(&self, xi: &[f64]) -> Result<FunctionSample> {
        length("xi", self.unknowns(), xi.len())?;
        let mut ordered = xi.to_vec();
        self.factor.solve_upper(&mut ordered);
        let mut states = vec![0.0; xi.len()];
        self.to_grid_order(&ordered, &mut states);
        let mut values = self.values_of(&states);
        values.iter_mut().zip(&self.mean).for_each(|(v, a)| *v += a);
        Ok(FunctionSample::new(self.lattice.clone(), values))
    }

    /// A whole function drawn exactly from the posterior.
    pub fn sample_with(&self, rng: &mut (impl rand::Rng + ?Sized)) -> Result<FunctionSample> {
        let xi: Vec<f64> = (0..self.unknowns()).map(|_| rng.sample(rand_distr::StandardNormal)).collect();
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

fn dissection(grid: &Grid, prior: &PriorPrecision) -> Dissection {
    // Where matrices are stored whole, the inverse is wanted whole: one front.
    let points = if GridMatrix::is_whole(grid) { grid.len() } else { leaf_size(grid.dim()) };
    Dissection::new(&prior.shape(), &prior.reach(), points * (prior.len() / grid.len()))
}

/// The points of the largest box that is eliminated whole: where factorization and selected inverse were measured to be fastest,
/// with little to choose between half and twice as many points.
fn leaf_size(d: usize) -> usize {
    match d {
        1 => 16,
        2 => 80,
        _ => 200,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ‖H x − t‖ on grids far beyond a dense factorization, with half of them empty.
    #[test]
    fn solutions_leave_residuals_of_rounding() {
        let rough = Kernel::matern12(&[0.3, 0.2]).unwrap();
        let smooth = Kernel::matern32(&[0.1, 0.15]).unwrap();
        let line = Kernel::matern52(&[0.002]).unwrap();
        for (shape, kernel) in [(&[120, 90][..], rough), (&[50, 41], smooth), (&[5000], line)] {
            let grid = Grid::covering(&vec![(0.0, 1.0); shape.len()], shape).unwrap();
            let mut stats = Stats::new(grid);
            for i in 0..3000 {
                let x = [0.6 * (0.618 * f64::from(i)).fract(), (0.7549 * f64::from(i)).fract()];
                stats.observe(&x[..shape.len()], x[0].sin(), 1.0).unwrap();
            }
            let sparse = SparsePosterior::new(&stats, &kernel, 0.05).unwrap();
            let target: Vec<f64> = (0..sparse.unknowns()).map(|i| (1.7 * i as f64).sin()).collect();
            let mut x = target.clone();
            sparse.solve_refined(&mut x);
            let norm = |v: &[f64]| dot(v, v).sqrt();
            let missed: Vec<f64> = sparse.product(&x).iter().zip(&target).map(|(h, t)| h - t).collect();
            assert!(norm(&missed) < 1e-9 * norm(&target), "{kernel}: {:e}", norm(&missed) / norm(&target));
        }
    }
}
