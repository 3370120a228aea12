//! The posterior covariance of neighboring grid points, which is all that single predictions read.
//!
//! ```text
//! M = B S⁻¹Bᵀ = B P⁻¹Bᵀ + (M − B P⁻¹Bᵀ)
//! ```
//!
//! The first part, what the covariance would be if the data were what the preconditioner takes them for, is known
//! exactly: P is diagonal but for a small block, and for a diagonal matrix the entries at a fixed offset are a product
//! over the axes again. The second part is small and short-ranged. It is read off solves for spikes: one vector of
//! random signs on every `spacing`-th grid point gives, around each of them, the columns of all of them at once; what
//! spikes far away add comes with random signs. spacing^d solves cover the grid.
//!
//! A Lanczos root of low rank (LOVE) would need a rank near m for the rough kernels that large grids are for.

use faer::{Mat, MatRef};
use rand::RngExt;

use super::solve::System;
use super::{KrylovPosterior, sign};
use crate::error::Result;
use crate::pool::Pool;
use crate::prior::contract;
use crate::simd::LANES;
use crate::structure::{BlockMatrix, StencilMatrix};
use crate::threads;

/// How many points the variances are checked at.
const CHECKED: usize = 2 * LANES;

/// How far the variances of a predictor are from those of exact solves, measured at random points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VarianceError {
    /// The root mean square of the relative errors.
    pub typical: f64,
    /// The largest relative error.
    pub worst: f64,
    /// The number of points.
    pub points: usize,
}

/// The entries of M within a stencil.
pub(super) fn covariance(posterior: &KrylovPosterior, system: &System) -> Result<BlockMatrix> {
    let lattice = system.stats.lattice();
    let mut stencil = StencilMatrix::zeros(&lattice.grids()[0]);
    add_of_diagonal(system, &mut stencil);
    add_of_block(system, &mut stencil);
    add_remainder(posterior, system, &mut stencil)?;
    Ok(BlockMatrix::of_stencil(lattice, stencil))
}

/// Adds Σ_j B_ij B_kj/P_jj over the coordinates outside the block, for all stored offsets k − i.
fn add_of_diagonal(system: &System, stencil: &mut StencilMatrix) {
    let inverse = system.preconditioner.inverse_diagonal();
    let pool = &mut Pool::default();
    let mut layer = vec![0.0; system.stats.lattice().len()];
    for component in system.prior.components() {
        // For each axis and offset o the matrix with entries B_k[i, j]·B_k[i + o, j].
        let on_axis = |root: MatRef<'_, f64>| (-3..=3).map(|o| shifted_products(root, o)).collect();
        let axes: Vec<Vec<Mat<f64>>> = component.root.axes.iter().map(|a| on_axis(a.matrix())).collect();
        for (place, offset) in stencil.offsets().iter().enumerate() {
            let matrices = offset.iter().enumerate();
            let matrices = matrices.map(|(k, &o)| (k, axes[k][(o + 3) as usize].as_ref()));
            contract(matrices, &inverse[component.range()], 1, &mut layer, pool);
            stencil.add_layer(place, &layer);
        }
    }
}

/// The matrix with entries X[i, j]·X[i + o, j], zero where i + o is no row.
fn shifted_products(x: MatRef<'_, f64>, o: isize) -> Mat<f64> {
    Mat::from_fn(x.nrows(), x.ncols(), |i, j| match i.checked_add_signed(o) {
        Some(k) if k < x.nrows() => x[(i, j)] * x[(k, j)],
        _ => 0.0,
    })
}

/// Adds the part of the block, B₁P₁⁻¹B₁ᵀ = (B₁L₁⁻ᵀ)(B₁L₁⁻ᵀ)ᵀ, a few columns at a time.
fn add_of_block(system: &System, stencil: &mut StencilMatrix) {
    const COLUMNS: usize = 8 * LANES;
    let (pool, leading) = (&mut Pool::default(), system.preconditioner.leading());
    let r = leading.rank();
    for first in (0..r).step_by(COLUMNS) {
        let mut columns = vec![0.0; r * COLUMNS];
        (first..r.min(first + COLUMNS)).for_each(|j| columns[j * COLUMNS + j - first] = 1.0);
        system.preconditioner.solve_block_transposed(&mut columns, COLUMNS);
        // Here a grid point's numbers lie side by side.
        let rows = leading.expand(&columns, COLUMNS, pool);
        stencil.add_inner_products(&rows, COLUMNS);
        pool.give(rows);
    }
}

/// Adds an estimate of M − B P⁻¹Bᵀ.
fn add_remainder(posterior: &KrylovPosterior, system: &System, stencil: &mut StencilMatrix) -> Result<()> {
    let accuracy = &posterior.accuracy;
    let grid = &system.stats.lattice().grids()[0];
    let spacings: Vec<usize> = grid.shape().iter().map(|&g| accuracy.spacing.min(g)).collect();
    let mut rng = accuracy.rng(3);
    let signs: Vec<f64> = (0..grid.len()).map(|_| sign(&mut rng)).collect();
    // The color of each grid point: its place within a box of `spacing` cells.
    let color = |point: usize| {
        let digits = grid.strides().iter().zip(grid.shape()).zip(&spacings);
        digits.fold(0, |color, ((&stride, g), &s)| color * s + point / stride % g % s)
    };
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); spacings.iter().product()];
    (0..grid.len()).for_each(|point| members[color(point)].push(point));

    let columns_of = |colors: &[Vec<usize>]| -> Result<Vec<f64>> {
        let pool = &mut Pool::default();
        let mut spikes = pool.zeros(grid.len() * LANES);
        for (c, members) in colors.iter().enumerate() {
            members.iter().for_each(|&i| spikes[c * grid.len() + i] = signs[i]);
        }
        let phi = system.project(&spikes, LANES, pool);
        let (tolerance, limit) = (accuracy.variance_tolerance, accuracy.max_iterations);
        let mut x = system.solve(&phi, None, LANES, tolerance, limit, pool)?.x;
        let mut known = phi;
        system.preconditioner.solve(&mut known, LANES);
        x.iter_mut().zip(&known).for_each(|(x, k)| *x -= k);
        Ok(system.expand(&x, LANES, pool))
    };
    let mut add = |colors: &[Vec<usize>], columns: &[f64]| {
        for (c, members) in colors.iter().enumerate() {
            members.iter().for_each(|&i| {
                stencil.add_column(i, |k| 0.5 * signs[i] * columns[c * grid.len() + k]);
            });
        }
    };
    let blocks: Vec<&[Vec<usize>]> = members.chunks(LANES).collect();
    for pair in blocks.chunks(2) {
        let [first, second] = [pair[0], pair.get(1).copied().unwrap_or_default()];
        let rest = || if second.is_empty() { Ok(Vec::new()) } else { columns_of(second) };
        let (one, two) = threads::join(accuracy.two_threads, || columns_of(first), rest);
        add(first, &one?);
        add(second, &two?);
    }
    Ok(())
}

/// Compares the variances of random points with those of exact solves, which takes about as long as the variances.
pub(super) fn check(
    posterior: &KrylovPosterior,
    system: &System,
    matrix: &BlockMatrix,
) -> Result<VarianceError> {
    let lattice = system.stats.lattice();
    let mut rng = posterior.accuracy.rng(4);
    let axes = lattice.grids()[0].axes();
    let points: Vec<f64> = (0..CHECKED)
        .flat_map(|_| {
            axes.iter().map(|a| a.lo() + (a.hi() - a.lo()) * rng.random::<f64>()).collect::<Vec<_>>()
        })
        .collect();
    let (_, exact) = posterior.joint(system.stats, &points)?;
    let (mut sum, mut worst, mut weights) = (0.0, 0.0_f64, Vec::new());
    for (j, point) in points.chunks_exact(axes.len()).enumerate() {
        lattice.locate(point, j, &mut weights)?;
        let truth = exact[j * CHECKED + j].max(f64::MIN_POSITIVE);
        let error = (matrix.quadratic(lattice, &weights).max(0.0) / truth - 1.0).abs();
        sum += error * error;
        worst = worst.max(error);
    }
    Ok(VarianceError { typical: (sum / CHECKED as f64).sqrt(), worst, points: CHECKED })
}
