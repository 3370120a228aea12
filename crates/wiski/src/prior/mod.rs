//! The prior over grid values, u ~ N(0, K) with K ≈ B Bᵀ, for given grids and kernels.
//!
//! K is block-diagonal over the grids, and on each grid a sum over the kernel's terms. The root of a sum is
//! the concatenation of roots, so B is a row of *components*, one for each term of each block, with
//! p = Σ p_c columns:
//!
//! ```text
//! u = B z,   z ~ N(0, I_p),   B = [B_1 | B_2 | …],   B_c Kronecker (module `root`)
//! ```
//!
//! The coordinates z are where posteriors live. Everything is computed through the small axis factors. A block of
//! inducing points comes last; in the coordinates of its weights the prior is N(0, s I), so its root is √s I.

mod additive;
mod axis;
mod balanced;
mod congruence;
mod cutoff;
mod root;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use crate::error::{Error, Result, length};
use crate::grid::Lattice;
use crate::interp::{Placed, Weights};
use crate::kernel::Kernel;
use crate::pool::Pool;
use crate::structure::{BlockMatrix, GridMatrix, PointsBlock};
pub(crate) use balanced::Balanced;
pub(crate) use root::{AxisRoot, Root, contract};

/// One term of one block's kernel.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    /// The block whose grid it lives on.
    pub(crate) block: usize,
    /// The term of that block's kernel.
    pub(crate) term: usize,
    /// Where its coordinates begin among the p.
    pub(crate) first: usize,
    /// The term's output scale.
    pub(crate) scale: f64,
    pub(crate) root: Root,
}

impl Component {
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.root.rank()
    }
}

/// The prior of a block of inducing points, whose root is √s I.
#[derive(Debug, Clone)]
pub(crate) struct PointsPrior {
    /// Where its coordinates begin among the p: they are the last.
    pub(crate) first: usize,
    /// The number M of points.
    len: usize,
    /// The output scale s.
    pub(crate) scale: f64,
}

impl PointsPrior {
    /// Fills the rows of BᵀAB that belong to points, where the columns of the grids' rows are there already.
    fn complete(&self, a: &PointsBlock, gram: &mut [f64], p: usize) {
        for i in 0..self.len {
            for k in 0..self.first {
                gram[(self.first + i) * p + k] = gram[k * p + self.first + i];
            }
            for j in 0..=i {
                let value = self.scale * a.own[i * self.len + j];
                gram[(self.first + i) * p + self.first + j] = value;
                gram[(self.first + j) * p + self.first + i] = value;
            }
        }
    }

    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.len
    }
}

/// The prior of all grid values in p independent coordinates.
#[derive(Debug, Clone)]
pub struct Prior {
    lattice: Lattice,
    components: Vec<Component>,
    points: Option<PointsPrior>,
    rank: usize,
    tolerance: f64,
}

impl Prior {
    /// The prior of the given kernels, one for each block of the lattice: that of inducing points is a scale alone
    /// ([`Kernel::output_scale`]).
    ///
    /// Eigenvalues below `tolerance` times the largest of their term are dropped; what they carried is
    /// [`Prior::dropped_variance`]. Costs O(Σ g³) for the eigenproblems of the axes.
    pub fn new(lattice: &Lattice, kernels: &[Kernel], tolerance: f64) -> Result<Self> {
        length("kernels", lattice.blocks(), kernels.len())?;
        if !(0.0..1.0).contains(&tolerance) {
            let reason = format!("{tolerance} is not between 0 and 1");
            return Err(Error::Config { field: "rank tolerance".into(), reason });
        }
        let (mut components, mut rank) = (Vec::new(), 0);
        for (block, (grid, kernel)) in lattice.grids().iter().zip(kernels).enumerate() {
            length(format!("axes of kernel {block}"), grid.dim(), kernel.dim())?;
            kernel.validate()?;
            for term in 0..kernel.term_count() {
                let column = |(k, axis): (usize, &crate::grid::Axis)| {
                    let mut column = vec![0.0; axis.points()];
                    kernel.toeplitz_column(term, k, axis.step(), &mut column);
                    column
                };
                let columns: Vec<_> = grid.axes().iter().enumerate().map(column).collect();
                let scale = kernel.term_scale(term);
                let root = Root::new(scale, &columns, tolerance)?;
                components.push(Component { block, term, first: rank, scale, root });
                rank += components[components.len() - 1].root.rank();
            }
        }
        let mut points = None;
        if let (Some(block), Some(kernel)) = (lattice.points(), kernels.last()) {
            length("axes of the kernel of inducing points", 0, kernel.dim())?;
            kernel.validate()?;
            points = Some(PointsPrior { first: rank, len: block.len(), scale: kernel.variance() });
            rank += block.len();
        }
        Ok(Self { lattice: lattice.clone(), components, points, rank, tolerance })
    }

    /// The prior of kernels that differ from those of this one in their scales only.
    pub(crate) fn rescaled(&self, kernels: &[Kernel]) -> Self {
        let mut prior = self.clone();
        for c in &mut prior.components {
            let scale = kernels[c.block].term_scale(c.term);
            c.root = c.root.rescaled(c.scale, scale);
            c.scale = scale;
        }
        if let (Some(points), Some(kernel)) = (&mut prior.points, kernels.last()) {
            points.scale = kernel.variance();
        }
        prior
    }

    /// The number p of coordinates.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The grids.
    pub fn lattice(&self) -> &Lattice {
        &self.lattice
    }

    /// The prior variance that dropped eigenvalues carried, averaged over the grid points.
    pub fn dropped_variance(&self) -> f64 {
        self.components.iter().map(|c| c.root.dropped() / c.root.points() as f64).sum()
    }

    pub(crate) fn components(&self) -> &[Component] {
        &self.components
    }

    /// The block of inducing points.
    pub(crate) fn points(&self) -> Option<&PointsPrior> {
        self.points.as_ref()
    }

    /// The variance s of g, of which a point has s ρ(x) that its inducing points do not carry; 0 without any.
    #[inline]
    pub(crate) fn residual_scale(&self) -> f64 {
        self.points.as_ref().map_or(0.0, |p| p.scale)
    }

    /// The length of scratch space that [`Prior::features`] needs.
    pub(crate) fn scratch_len(&self) -> usize {
        self.components.iter().map(|c| c.root.scratch_len()).max().unwrap_or(0)
    }

    /// φ = Bᵀw: the coordinates of a point. f(x) = φᵀz.
    #[inline]
    pub(crate) fn features<'a>(&self, at: impl Into<Placed<'a>>, phi: &mut [f64], scratch: &mut [f64]) {
        let at = at.into();
        for c in &self.components {
            c.root.features(&at.weights[c.block], &mut phi[c.range()], scratch);
        }
        self.features_of_points(at.dense, phi);
    }

    /// The part √s w_g of φ that belongs to inducing points.
    pub(crate) fn features_of_points(&self, dense: &[f64], phi: &mut [f64]) {
        if let Some(points) = &self.points {
            scale_into(points.scale.sqrt(), dense, &mut phi[points.range()]);
        }
    }

    /// ∂φ for weights that change on one block only.
    pub(crate) fn features_on_block(&self, block: usize, w: &Weights, phi: &mut [f64], scratch: &mut [f64]) {
        phi[..self.rank].fill(0.0);
        for c in self.components.iter().filter(|c| c.block == block) {
            c.root.features(w, &mut phi[c.range()], scratch);
        }
    }

    /// The multiply-adds of [`Prior::expand`] for each column.
    pub(crate) fn expansion_cost(&self) -> usize {
        let grids: usize = self.components.iter().map(|c| c.root.expansion_cost()).sum();
        grids + self.points.as_ref().map_or(0, |p| p.len)
    }

    /// B Z: grid values from coordinates, for rows of `columns` numbers.
    pub(crate) fn expand(&self, z: &[f64], columns: usize, pool: &mut Pool) -> Vec<f64> {
        let mut u = pool.take(self.lattice.len() * columns);
        self.expand_into(z, columns, &mut u, pool);
        u
    }

    /// As [`Prior::expand`], into an array of that size.
    pub(crate) fn expand_into(&self, z: &[f64], columns: usize, u: &mut [f64], pool: &mut Pool) {
        let mut written = vec![false; self.lattice.grids().len()];
        for c in &self.components {
            let (at, len) = (self.lattice.offsets()[c.block] * columns, c.root.points() * columns);
            let z = &z[c.first * columns..c.range().end * columns];
            if std::mem::replace(&mut written[c.block], true) {
                // A further term of the same block adds to the first.
                let mut part = pool.take(len);
                c.root.expand(z, columns, &mut part, pool);
                u[at..at + len].iter_mut().zip(&part).for_each(|(u, &v)| *u += v);
                pool.give(part);
            } else {
                c.root.expand(z, columns, &mut u[at..at + len], pool);
            }
        }
        if let Some(points) = &self.points {
            let z = &z[points.first * columns..points.range().end * columns];
            scale_into(points.scale.sqrt(), z, &mut u[self.lattice.grid_len() * columns..]);
        }
    }

    /// Bᵀ X: from grid values to coordinates, for rows of `columns` numbers.
    pub(crate) fn project(&self, x: &[f64], columns: usize, pool: &mut Pool) -> Vec<f64> {
        let mut out = pool.take(self.rank * columns);
        for c in &self.components {
            let at = self.lattice.offsets()[c.block] * columns;
            let own = &mut out[c.first * columns..c.range().end * columns];
            c.root.project(&x[at..at + c.root.points() * columns], columns, own, pool);
        }
        if let Some(points) = &self.points {
            let x = &x[self.lattice.grid_len() * columns..self.lattice.len() * columns];
            scale_into(points.scale.sqrt(), x, &mut out[points.first * columns..]);
        }
        out
    }

    /// Bᵀ A B, p×p, for a matrix over the lattice; where it is rotated as a whole also Uᵀ A B, m rows of `padded(p)`
    /// numbers.
    pub(crate) fn congruence(&self, a: &BlockMatrix, pool: &mut Pool) -> (Vec<f64>, Option<Vec<f64>>) {
        if self.is_rotated() {
            let (gram, product) = self.rotated(a, pool);
            return (gram, Some(product));
        }
        let between = |left: &Component, right: &Component, pool: &mut Pool| {
            let (i, j, left, right) = (left.block, right.block, &left.root, &right.root);
            match a.cross().iter().find(|cross| (cross.first, cross.second) == (i, j)) {
                Some(cross) => congruence::dense(left, &cross.data, right, pool),
                None => match &a.diagonal()[i] {
                    GridMatrix::Stencil(a) => congruence::stencil(left, a, right, pool),
                    GridMatrix::Dense(a) => congruence::dense(left, a.data(), right, pool),
                },
            }
        };
        if let ([only], None) = (self.components.as_slice(), &self.points) {
            return (between(only, only, pool), None);
        }
        let mut gram = pool.take(self.rank * self.rank);
        for (i, left) in self.components.iter().enumerate() {
            for right in &self.components[i..] {
                let part = between(left, right, pool);
                for (i, row) in left.range().zip(part.chunks_exact(right.root.rank())) {
                    for (j, &value) in right.range().zip(row) {
                        gram[i * self.rank + j] = value;
                        gram[j * self.rank + i] = value;
                    }
                }
                pool.give(part);
            }
        }
        if let (Some(points), Some(own)) = (&self.points, a.points()) {
            let m = points.len;
            for c in &self.components {
                let at = self.lattice.offsets()[c.block];
                let mut part = pool.take(c.root.rank() * m);
                c.root.project(&own.cross[at * m..(at + c.root.points()) * m], m, &mut part, pool);
                for (i, row) in c.range().zip(part.chunks_exact(m)) {
                    scale_into(points.scale.sqrt(), row, &mut gram[i * self.rank + points.first..][..m]);
                }
                pool.give(part);
            }
            points.complete(own, &mut gram, self.rank);
        }
        (gram, None)
    }

    /// (BᵀL)(BᵀL)ᵀ, p×p, for a matrix A = L Lᵀ given by m rows of `columns` numbers; and BᵀL, p rows of them.
    pub(crate) fn congruence_of_root(
        &self,
        l: &[f64],
        columns: usize,
        pool: &mut Pool,
    ) -> (Vec<f64>, Vec<f64>) {
        let p = self.rank;
        let mut gram = pool.zeros(p * p);
        if columns == 0 {
            return (gram, pool.take(0));
        }
        let rows = self.project(l, columns, pool);
        let half = MatRef::from_row_major_slice(&rows, p, columns);
        let out = MatMut::from_row_major_slice_mut(&mut gram, p, p);
        matmul(out, Accum::Replace, half, half.transpose(), 1.0, Par::Seq);
        (gram, rows)
    }
}

/// out = c x.
#[inline]
fn scale_into(c: f64, x: &[f64], out: &mut [f64]) {
    out.iter_mut().zip(x).for_each(|(o, &x)| *o = c * x);
}
