//! A prior root in which data that are spread evenly over the grid are diagonal.
//!
//! Any root of K may be turned by an orthogonal matrix. On large grids the turn is chosen so that S is nearly
//! diagonal. Data whose density is a product over the axes have
//!
//! ```text
//! A ≈ Ā = t ⊗_k A_k/t,     A_k the Gram matrix of the data on axis k alone,     t = 1ᵀA 1
//! ```
//!
//! With T_k = L_k L_kᵀ and L_kᵀA_kL_k = U_k D_k U_kᵀ, the root B = √s ⊗_k L_k U_k has BᵀĀB = s t ⊗_k D_k/t, a diagonal
//! matrix. So diag(I + BᵀĀB/σ²) is a preconditioner for S that is exact for such data, whatever the kernel.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, Par};

use super::axis::{decompose, toeplitz_eigen};
use super::{AxisRoot, Component, Prior, Root};
use crate::error::{Error, Result, length};
use crate::grid::Lattice;
use crate::kernel::Kernel;
use crate::simd::padded;

/// A prior on one grid with a root that is balanced for given data.
#[derive(Debug, Clone)]
pub(crate) struct Balanced {
    pub(crate) prior: Prior,
    /// The diagonal of BᵀĀB.
    pub(crate) diagonal: Vec<f64>,
    /// For each component and axis, the shares D_kj/D_k1 of the axis' columns, falling.
    shares: Vec<Vec<Vec<f64>>>,
}

impl Balanced {
    /// The prior of a kernel on a lattice of one grid, for data with the given Gram matrices on each axis (seven
    /// numbers a point: offsets −3 … 3). Eigenvalues of an axis below `tolerance` times its largest are dropped.
    /// O(Σ g³).
    pub(crate) fn new(
        lattice: &Lattice,
        kernel: &Kernel,
        tolerance: f64,
        marginals: &[Vec<f64>],
    ) -> Result<Self> {
        let [grid] = lattice.grids() else {
            let reason = "an iterative engine works on one grid";
            return Err(Error::Unsupported { operation: "large grid", reason });
        };
        length("axes of the kernel", grid.dim(), kernel.dim())?;
        kernel.validate()?;
        let total: f64 = marginals[0].iter().sum();
        let (mut components, mut diagonal, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for term in 0..kernel.term_count() {
            let scale = kernel.term_scale(term);
            let (mut axes, mut on_axes, mut kept) = (Vec::new(), Vec::new(), scale);
            for (k, axis) in grid.axes().iter().enumerate() {
                let mut column = vec![0.0; axis.points()];
                kernel.toeplitz_column(term, k, axis.step(), &mut column);
                if !column.iter().chain([&scale]).all(|v| v.is_finite()) {
                    let reason =
                        "its values on the grid are not finite: a parameter is too large or too small";
                    return Err(Error::Config { field: "kernel".into(), reason: reason.into() });
                }
                let factor = if k == 0 { scale.sqrt() } else { 1.0 };
                let (root, weights, trace) = turned_axis(&column, factor, tolerance, &marginals[k])?;
                axes.push(root);
                on_axes.push(weights);
                kept *= trace;
            }
            let points = grid.len() as f64;
            let all: f64 = scale * points; // κ(0) = 1 on every axis
            let root = Root::of_box(axes, (all - kept).max(0.0));
            let separable = total.max(f64::MIN_POSITIVE).powi(1 - grid.dim() as i32);
            let first = diagonal.len();
            diagonal.extend(root.products(&on_axes).into_iter().map(|w| separable * w));
            components.push(Component { block: 0, term, first, scale, root });
            let share = |w: &Vec<f64>| w.iter().map(|x| x / w[0].max(f64::MIN_POSITIVE)).collect();
            shares.push(on_axes.iter().map(share).collect());
        }
        let prior =
            Prior { lattice: lattice.clone(), components, points: None, rank: diagonal.len(), tolerance };
        Ok(Self { prior, diagonal, shares })
    }

    /// The prior with the strongest columns only, a box of them in each component and at most `limit` in all, and
    /// their places among all columns.
    pub(crate) fn leading(&self, limit: usize) -> (Prior, Vec<usize>) {
        let (mut components, mut places) = (Vec::new(), Vec::new());
        let each = (limit / self.prior.components.len()).max(1);
        for (component, shares) in self.prior.components.iter().zip(&self.shares) {
            let mut ranks = vec![1; shares.len()];
            // Grow the box where the next column is strongest.
            while let Some(k) = (0..ranks.len())
                .filter(|&k| ranks[k] < shares[k].len())
                .filter(|&k| ranks.iter().product::<usize>() / ranks[k] * (ranks[k] + 1) <= each)
                .max_by(|&a, &b| shares[a][ranks[a]].total_cmp(&shares[b][ranks[b]]))
            {
                ranks[k] += 1;
            }
            let (root, own) = component.root.leading(&ranks);
            let first = places.len();
            places.extend(own.into_iter().map(|i| component.first + i));
            components.push(Component { first, root, ..component.clone() });
        }
        let lattice = self.prior.lattice.clone();
        let tolerance = self.prior.tolerance;
        (Prior { lattice, components, points: None, rank: places.len(), tolerance }, places)
    }
}

/// L_k U_k times `factor`, the diagonal D_k (times factor²) in falling order, and the trace of L_k L_kᵀ.
fn turned_axis(
    column: &[f64],
    factor: f64,
    tolerance: f64,
    marginal: &[f64],
) -> Result<(AxisRoot, Vec<f64>, f64)> {
    let g = column.len();
    let eigen = toeplitz_eigen(column)?;
    let cutoff = eigen.values[0] * tolerance.max(f64::EPSILON * g as f64);
    let rank = eigen.values.partition_point(|&v| v >= cutoff).max(1);
    let root = Mat::from_fn(g, rank, |i, j| eigen.values[j].sqrt() * eigen.vectors[j * g + i]);
    let mut product = Mat::<f64>::zeros(g, rank);
    for i in 0..g {
        for (c, &a) in marginal[i * 7..(i + 1) * 7].iter().enumerate().filter(|(_, a)| **a != 0.0) {
            let k = i + c - 3;
            (0..rank).for_each(|j| product[(i, j)] += a * root[(k, j)]);
        }
    }
    let mut gram = Mat::<f64>::zeros(rank, rank);
    matmul(gram.as_mut(), Accum::Replace, root.transpose(), product.as_ref(), 1.0, Par::Seq);
    let (values, vectors) = decompose(&gram)?;
    let stride = padded(rank);
    let mut rows = vec![0.0; g * stride];
    let turned = MatMut::from_row_major_slice_mut(&mut rows, g, stride).subcols_mut(0, rank);
    // Largest first.
    let falling = vectors.as_ref().reverse_cols();
    matmul(turned, Accum::Replace, root.as_ref(), falling, factor, Par::Seq);
    let weights = values.iter().rev().map(|v| factor * factor * v.max(0.0)).collect();
    let trace = eigen.values[..rank].iter().sum();
    Ok((AxisRoot { points: g, rank, rows, stride, eigen: None }, weights, trace))
}
