//! Conditioning that waits: rows gather in a short list and reach the factor together.
//!
//! An update of F by one row is 3p² multiply-adds that read all of F twice and write it once. When F is larger than
//! the caches, memory sets the pace. But the update multiplies F from the right, F ← F (I − γ f fᵀ), so q updates
//! can be kept beside F₀, the factor as it was before them:
//!
//! ```text
//! F = F₀ T      T = Π_k (I − γ_k f_k f_kᵀ) = I − Σ_k u_k f_kᵀ,   u_k = γ_k T_{k−1} f_k
//! z̄ = z̄₀ + F₀ s      s = Σ_k (y_k − μ_k)/(r_k + v_k) T_{k−1} f_k
//! ```
//!
//! where T_k is the product of the first k factors. A point with g = F₀ᵀφ has f = Tᵀg = g − Σ_k (u_kᵀg) f_k and mean
//! φᵀz̄₀ + gᵀs: with the next u that is 4pq multiply-adds on numbers that stay in the caches. A removed row has
//! −r in place of r, as in the immediate update.
//!
//! g itself need not cost p² either. On the grid V₀ = B F₀ gives g = V₀ᵀw, a sum of 4^d rows ([`Surface`]).
//!
//! When the list is full, F₀ ← F₀ − (F₀ U) Fsᵀ by two matrix products, which read a number from memory once for many
//! multiply-adds. V₀ is computed anew from F₀, not updated: along the axes of the grid that costs no more than an
//! update would, and V₀ is then a function of F₀, so that a file need not hold it.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use serde::{Deserialize, Serialize};

use super::factor::{Factor, shrinkage};
use super::surface::Surface;
use crate::error::{Result, length};
use crate::pool::Pool;
use crate::prior::Prior;
use crate::simd::{add_rows, dot, dot_rows};

/// From this rank on rows wait. Measured on one core with a second cache of 1 MB (`cargo bench -p wiski --bench engine
/// -- delayed`): at p = 121 waiting gains nothing; at 324, 625, 1024 and 1521 rows are 1.5, 2.3, 2.2 and 2.6 times as
/// fast, and the largest 4.3 times where other programs use the same third cache and memory.
const SMALLEST_RANK: usize = 256;

/// How many rows wait where there is an image. At p = 1024 making one takes as long as 13 immediate updates, so it
/// should last; the lists, 4pq numbers a row, are still cheap.
const ROWS_WITH_IMAGE: usize = 128;

/// How many rows wait where each sweeps over F₀ anyhow: with more of them the products gain less than the lists cost.
const ROWS_WITHOUT_IMAGE: usize = 32;

/// The first so many rows go without an image, so that a posterior that takes in just a few does not pay for one.
const ROWS_BEFORE_IMAGE: usize = 8;

/// An image may have so many times the numbers of the factor, m p against p².
const LARGEST_IMAGE: usize = 4;

/// Rows that the factor does not contain yet.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    /// How many rows may wait; none where immediate updates are cheaper.
    limit: usize,
    /// Whether an image on the grid costs less than the sweeps over F₀ that it saves.
    worth_an_image: bool,
    stride: usize,
    rows: usize,
    /// f_k, a padded row each.
    directions: Vec<f64>,
    /// u_k, a padded row each.
    corrections: Vec<f64>,
    /// s, padded.
    shift: Vec<f64>,
    /// F₀ and z̄₀ on the grid: there, if it is worth it, exactly from [`ROWS_BEFORE_IMAGE`] rows on, so that a
    /// posterior from a file answers to the last bit as the one that was written.
    image: Option<Box<Surface>>,
}

/// Waiting rows as they stand in a file: p numbers for each vector.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedPending {
    #[serde(with = "crate::saved::floats")]
    directions: Vec<f64>,
    #[serde(with = "crate::saved::floats")]
    corrections: Vec<f64>,
    #[serde(with = "crate::saved::floats")]
    shift: Vec<f64>,
}

impl Pending {
    /// No rows yet, for a posterior with the given prior and factor.
    pub(super) fn new(prior: &Prior, factor: &Factor) -> Self {
        let (p, m) = (prior.rank(), prior.lattice().len());
        // Fewer multiply-adds than the sweeps over F₀ that it saves, and matrix products do them faster.
        // Inducing points meet every row of an image, which then saves nothing.
        let worth_an_image = prior.points().is_none()
            && prior.expansion_cost() <= ROWS_WITH_IMAGE * p
            && m <= LARGEST_IMAGE * p;
        let rows = if worth_an_image { ROWS_WITH_IMAGE } else { ROWS_WITHOUT_IMAGE };
        Self {
            limit: if p < SMALLEST_RANK { 0 } else { rows },
            worth_an_image,
            stride: factor.stride(),
            rows: 0,
            directions: Vec::new(),
            corrections: Vec::new(),
            shift: Vec::new(),
            image: None,
        }
    }

    /// Whether a row is to be learned at once: none may wait, and none does.
    pub(super) fn is_immediate(&self) -> bool {
        self.limit == 0 && self.is_empty()
    }

    /// Whether rows wait at all.
    pub(super) fn waits(&self) -> bool {
        self.limit > 0
    }

    pub(super) fn set_limit(&mut self, rows: usize) {
        self.limit = rows;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// How many rows of at most `rows` may come before the list is full, at least one.
    pub(super) fn room(&self, rows: usize) -> usize {
        self.limit.saturating_sub(self.rows).clamp(1, rows)
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows >= self.limit
    }

    /// The length of the scratch space that the methods below need.
    pub(super) fn scratch_len(&self) -> usize {
        self.limit.max(self.rows)
    }

    /// s.
    pub(super) fn shift(&self) -> &[f64] {
        &self.shift
    }

    /// Whether rows are, or will be, read from an image.
    pub(super) fn has_image(&self) -> bool {
        self.worth_an_image
    }

    pub(super) fn image(&self) -> Option<&Surface> {
        self.image.as_deref()
    }

    /// Whether there should be an image and is none.
    pub(super) fn lacks_image(&self) -> bool {
        self.worth_an_image && self.rows >= ROWS_BEFORE_IMAGE && self.image.is_none()
    }

    pub(super) fn set_image(&mut self, image: Surface) {
        self.image = Some(Box::new(image));
    }

    /// g ← Tᵀg.
    #[inline]
    pub(super) fn whiten(&self, g: &mut [f64], scratch: &mut [f64]) {
        subtract_products(self.corrections(), self.directions(), self.stride, g, &mut scratch[..self.rows]);
    }

    /// f ← T f.
    #[inline]
    pub(super) fn color(&self, f: &mut [f64], scratch: &mut [f64]) {
        subtract_products(self.directions(), self.corrections(), self.stride, f, &mut scratch[..self.rows]);
    }

    /// Adds the row with the given f, noise variance (negative: it is removed) and step of the mean.
    pub(super) fn push(&mut self, f: &[f64], noise: f64, step: f64, scratch: &mut [f64]) {
        // No allocation once the list has had its full length.
        let length = self.stride * self.limit.max(self.rows + 1);
        self.directions.resize(length, 0.0);
        self.corrections.resize(length, 0.0);
        self.shift.resize(self.stride, 0.0);
        let own = self.rows * self.stride..(self.rows + 1) * self.stride;
        self.directions[own.clone()].copy_from_slice(f);
        let (earlier, later) = self.corrections.split_at_mut(own.start);
        let correction = &mut later[..self.stride];
        correction.copy_from_slice(f);
        let directions = &self.directions[..own.start];
        subtract_products(directions, earlier, self.stride, correction, &mut scratch[..self.rows]);
        self.shift.iter_mut().zip(&*correction).for_each(|(s, t)| *s += step * t);
        let gamma = shrinkage(dot(f, f), noise);
        correction.iter_mut().for_each(|u| *u *= gamma);
        self.rows += 1;
    }

    /// Brings F₀ and z̄₀ up to date.
    pub(super) fn apply_to(&self, factor: &mut Factor, mean: &mut [f64], pool: &mut Pool) {
        let (p, stride, q) = (factor.size(), self.stride, self.rows);
        let mut change = pool.take(p);
        factor.color(&self.shift, &mut change);
        mean.iter_mut().zip(&change).for_each(|(z, c)| *z += c);
        pool.give(change);

        let mut product = pool.take(p * q);
        let rows = |list| MatRef::from_row_major_slice(list, q, stride);
        let mut fu = MatMut::from_row_major_slice_mut(&mut product, p, q);
        let mut f = MatMut::from_row_major_slice_mut(factor.rows_mut(), p, stride);
        let u = rows(self.corrections()).transpose();
        matmul(fu.as_mut(), Accum::Replace, f.as_ref(), u, 1.0, Par::Seq);
        matmul(f.as_mut(), Accum::Add, fu.as_ref(), rows(self.directions()), -1.0, Par::Seq);
        pool.give(product);
    }

    /// Forgets the rows; the memory stays.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        self.rows = 0;
        self.shift.fill(0.0);
        if let Some(image) = self.image.take() {
            image.recycle(pool);
        }
    }

    /// What a file holds; nothing if no row waits.
    pub(super) fn saved(&self, p: usize) -> Option<SavedPending> {
        let compact = |rows: &[f64]| rows.chunks_exact(self.stride).flat_map(|r| &r[..p]).copied().collect();
        (!self.is_empty()).then(|| SavedPending {
            directions: compact(self.directions()),
            corrections: compact(self.corrections()),
            shift: compact(&self.shift),
        })
    }

    /// Takes the rows from a file; there are none yet.
    pub(super) fn restore(&mut self, saved: &SavedPending, p: usize) -> Result<()> {
        let rows = saved.directions.len() / p.max(1);
        length("waiting rows", rows * p, saved.directions.len())?;
        length("corrections of waiting rows", rows * p, saved.corrections.len())?;
        length("shift by waiting rows", p, saved.shift.len())?;
        let padded = |compact: &[f64]| {
            let mut rows = vec![0.0; compact.len() / p.max(1) * self.stride];
            for (row, from) in rows.chunks_exact_mut(self.stride.max(1)).zip(compact.chunks_exact(p.max(1))) {
                row[..p].copy_from_slice(from);
            }
            rows
        };
        self.directions = padded(&saved.directions);
        self.corrections = padded(&saved.corrections);
        self.shift = padded(&saved.shift);
        self.rows = rows;
        Ok(())
    }

    fn directions(&self) -> &[f64] {
        &self.directions[..self.rows * self.stride]
    }

    fn corrections(&self) -> &[f64] {
        &self.corrections[..self.rows * self.stride]
    }
}

/// x ← x − Σ_k (a_kᵀx) b_k over the rows of two lists.
#[inline]
fn subtract_products(a: &[f64], b: &[f64], stride: usize, x: &mut [f64], scratch: &mut [f64]) {
    dot_rows(a, stride, x, scratch);
    scratch.iter_mut().for_each(|c| *c = -*c);
    add_rows(b, stride, scratch, x);
}
