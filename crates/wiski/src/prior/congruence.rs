//! BᵀA B: the Gram matrix of the data in the p coordinates of the prior, without an m×m or m×p matrix.
//!
//! For a stencil matrix A the axes are contracted one at a time, from the last. After axes k+1 … d−1 there
//! is, for each pair of grid rows over axes 0 … k within reach of each other, a small dense block over the
//! kept sub-indices of level k+1. Contracting axis k combines the blocks of one line of grid points,
//!
//! ```text
//! H[(a,α), (b,β)] = Σ_i V[i,a] Σ_o V[i+o,b] T[i,o][α,β]
//! ```
//!
//! first over the offsets o (−3 … 3), then over the points i: small matrix products with nothing wasted on
//! dropped indices. For m = g^d the whole costs O(g p²) plus lower terms, against m² p densely. On the first
//! axis only offsets ≥ 0 are stored; BᵀAB = H + Hᵀ with the diagonal blocks halved.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::root::{Root, run_starts};
use crate::dense::transpose;
use crate::pool::Pool;
use crate::structure::StencilMatrix;

/// Rows of the result that share one matrix product.
const CHUNK: usize = 8;

/// B_lᵀ A B_r for a stencil matrix on the grid of both roots: p_l rows of p_r numbers.
pub(super) fn stencil(left: &Root, a: &StencilMatrix, right: &Root, pool: &mut Pool) -> Vec<f64> {
    let mut half = half_stencil(left, a, right, pool);
    if left.axes.len() == 1 {
        return half;
    }
    if std::ptr::eq(left, right) {
        add_transpose(&mut half, left.rank());
        return half;
    }
    let (p, q) = (left.rank(), right.rank());
    let mirrored = half_stencil(right, a, left, pool);
    for i in 0..p {
        for j in 0..q {
            half[i * q + j] += mirrored[j * p + i];
        }
    }
    pool.give(mirrored);
    half
}

/// x ← x + xᵀ, in tiles that fit the first cache.
fn add_transpose(x: &mut [f64], p: usize) {
    const TILE: usize = 16;
    for top in (0..p).step_by(TILE) {
        for left in (0..=top).step_by(TILE) {
            for i in top..(top + TILE).min(p) {
                for j in left..(left + TILE).min(i + 1) {
                    let sum = x[i * p + j] + x[j * p + i];
                    x[i * p + j] = sum;
                    x[j * p + i] = sum;
                }
            }
        }
    }
}

/// B_lᵀ X B_r for a dense matrix X between the grids of the two roots.
pub(super) fn dense(left: &Root, x: &[f64], right: &Root, pool: &mut Pool) -> Vec<f64> {
    let (p, q, columns) = (left.rank(), right.rank(), right.points());
    let mut from_left = pool.take(p * columns);
    left.project(x, columns, &mut from_left, pool);
    let mut turned = pool.take(p * columns);
    transpose(&from_left, columns, &mut turned);
    let mut both = pool.take(q * p);
    right.project(&turned, p, &mut both, pool);
    let mut out = pool.take(p * q);
    transpose(&both, p, &mut out);
    [from_left, turned, both].into_iter().for_each(|array| pool.give(array));
    out
}

fn half_stencil(left: &Root, a: &StencilMatrix, right: &Root, pool: &mut Pool) -> Vec<f64> {
    let d = left.axes.len();
    let mut blocks = contract_last(left, a, right, pool);
    for k in (0..d - 1).rev() {
        let next = contract(left, right, k, &blocks, pool);
        pool.give(std::mem::replace(&mut blocks, next));
    }
    blocks
}

/// The last axis: for each pair of grid rows (runs along the last axis) the block Vᵀ A_rows V.
fn contract_last(left: &Root, a: &StencilMatrix, right: &Root, pool: &mut Pool) -> Vec<f64> {
    let last = left.axes.len() - 1;
    let (l, r) = (&left.axes[last], &right.axes[last]);
    let (g, leads) = (l.points, a.leads());
    let block = l.rank * r.rank;
    let mut blocks = pool.zeros(left.points() / g * leads * block);
    let mut banded = pool.take(g * r.stride);
    let l_matrix = MatRef::from_row_major_slice_with_stride(&l.rows, g, l.rank, l.stride);
    a.for_each_row_pair(|row, _, lead, mirrored| {
        a.multiply_row_pair(row, lead, &r.rows, r.stride, &mut banded);
        let out = &mut blocks[(row * leads + lead) * block..][..block];
        let right = MatRef::from_row_major_slice_with_stride(&banded, g, r.rank, r.stride);
        let out = MatMut::from_row_major_slice_mut(out, l.rank, r.rank);
        let weight = if mirrored || last == 0 { 1.0 } else { 0.5 };
        matmul(out, Accum::Replace, l_matrix.transpose(), right, weight, Par::Seq);
    });
    pool.give(banded);
    blocks
}

/// Axis k: turns blocks over level k+1 into blocks over level k.
fn contract(left: &Root, right: &Root, k: usize, blocks: &[f64], pool: &mut Pool) -> Vec<f64> {
    let (l, r) = (&left.axes[k], &right.axes[k]);
    let g = l.points;
    let outer_rows: usize = left.axes[..k].iter().map(|a| a.points).product();
    let (outer_leads, offsets, reach) = if k == 0 { (1, 4, 0) } else { (4 * 7usize.pow(k as u32 - 1), 7, 3) };
    let (nl, nr) = (left.levels[k + 1].len(), right.levels[k + 1].len());
    let (pl, pr) = (left.levels[k].len(), right.levels[k].len());
    let block = nl * nr;
    let r_matrix = MatRef::from_row_major_slice_with_stride(&r.rows, g, r.rank, r.stride);
    let l_matrix = MatRef::from_row_major_slice_with_stride(&l.rows, g, l.rank, l.stride);

    let line = nl * pr;
    let mut lines = pool.take(g * line);
    let mut boxed = pool.take(r.rank * block);
    let mut rows = pool.take(CHUNK * line);
    let mut raw = pool.take(if k == 0 { 0 } else { pl * pr });
    let mut out = pool.take(outer_rows * outer_leads * pl * pr);
    let right_runs: Vec<_> = run_starts(&right.levels[k].counts).collect();
    let left_runs: Vec<_> = run_starts(&left.levels[k].counts).collect();
    for (index, target) in out.chunks_exact_mut(pl * pr).enumerate() {
        let (outer_row, outer_lead) = (index / outer_leads, index % outer_leads);
        for (i, line) in lines.chunks_exact_mut(line).enumerate() {
            // Over the offsets: the valid ones are consecutive blocks and consecutive rows of V.
            let (lo, hi) = (i.saturating_sub(reach), (i + 4).min(g));
            let first = ((outer_row * g + i) * outer_leads + outer_lead) * offsets + lo + reach - i;
            let t =
                MatRef::from_row_major_slice(&blocks[first * block..][..(hi - lo) * block], hi - lo, block);
            let v = r_matrix.subrows(lo, hi - lo).transpose();
            matmul(
                MatMut::from_row_major_slice_mut(&mut boxed, r.rank, block),
                Accum::Replace,
                v,
                t,
                1.0,
                Par::Seq,
            );
            for (&(start, count), boxed) in right_runs.iter().zip(boxed.chunks_exact(block)) {
                for (packed, source) in line.chunks_exact_mut(pr).zip(boxed.chunks_exact(nr)) {
                    packed[start..start + count].copy_from_slice(&source[..count]);
                }
            }
        }
        // Over the points: a few rows a at a time, as many sub-indices α as the first of them needs.
        let unsorted = if k == 0 { &mut *target } else { &mut raw };
        for (chunk, runs) in left_runs.chunks(CHUNK).enumerate() {
            let length = runs[0].1 * pr;
            let v = l_matrix.subcols(chunk * CHUNK, runs.len()).transpose();
            let u = MatRef::from_row_major_slice_with_stride(&lines, g, length, line);
            let product =
                MatMut::from_row_major_slice_mut(&mut rows[..runs.len() * length], runs.len(), length);
            matmul(product, Accum::Replace, v, u, 1.0, Par::Seq);
            for (row, &(start, count)) in rows.chunks_exact(length).zip(runs) {
                unsorted[start * pr..(start + count) * pr].copy_from_slice(&row[..count * pr]);
            }
        }
        if k > 0 {
            for (row, &i) in target.chunks_exact_mut(pr).zip(&left.levels[k].order) {
                for (entry, &j) in row.iter_mut().zip(&right.levels[k].order) {
                    *entry = raw[i * pr + j];
                }
            }
        }
    }
    [lines, boxed, rows, raw].into_iter().for_each(|array| pool.give(array));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;
    use crate::interp::Weights;
    use crate::structure::Symmetric;

    fn root(shape: &[usize], scale: f64, tolerance: f64) -> Root {
        let entry =
            |k: usize, i: usize| (-0.5 * (0.3 * i as f64 / (0.4 + 0.15 * k as f64) * scale).powi(2)).exp();
        let columns: Vec<Vec<f64>> =
            shape.iter().enumerate().map(|(k, &g)| (0..g).map(|i| entry(k, i)).collect()).collect();
        Root::new(scale, &columns, tolerance).unwrap()
    }

    #[test]
    fn stencil_congruence_equals_the_dense_product() {
        let shape = [7, 6, 5, 5];
        for d in 1..=4 {
            let grid = Grid::covering(&[(0.0, 1.0); 4][..d], &shape[..d]).unwrap();
            let mut a = StencilMatrix::zeros(&grid);
            for i in 0..50 {
                let h: Vec<f64> = (0..d).map(|k| (0.37 * (i * i + k * i + k + 1) as f64).fract()).collect();
                a.add_outer(&grid, &Weights::locate(&grid, &h).unwrap(), 1.0 + 0.1 * i as f64);
            }
            let whole = a.to_dense();
            for tolerance in [1e-12, 1e-3] {
                let (left, right) = (root(&shape[..d], 1.3, tolerance), root(&shape[..d], 0.7, tolerance));
                for (l, r) in [(&left, &left), (&left, &right), (&right, &left)] {
                    let (fast, slow) =
                        (stencil(l, &a, r, &mut Pool::default()), dense(l, &whole, r, &mut Pool::default()));
                    let scale = slow.iter().fold(0.0, |s: f64, v| s.max(v.abs()));
                    for (f, s) in fast.iter().zip(&slow) {
                        // Sums over at most m = 1050 grid points on either side.
                        assert!((f - s).abs() < 1e-13 * scale, "d = {d}: {f} {s}");
                    }
                }
            }
        }
    }

    #[test]
    fn dense_congruence_equals_expanded_columns() {
        let (left, right) = (root(&[5, 6], 1.0, 1e-4), root(&[7], 0.8, 1e-6));
        let (m, n) = (left.points(), right.points());
        let x: Vec<f64> = (0..m * n).map(|i| (i as f64 * 0.9).sin()).collect();
        let got = dense(&left, &x, &right, &mut Pool::default());
        let expand = |root: &Root, z: &[f64]| {
            let mut u = vec![f64::NAN; root.points()];
            root.expand(z, 1, &mut u, &mut Pool::default());
            u
        };
        for i in 0..left.rank() {
            for j in 0..right.rank() {
                let unit =
                    |p: usize, k: usize| (0..p).map(|i| f64::from(u8::from(i == k))).collect::<Vec<_>>();
                let u = expand(&left, &unit(left.rank(), i));
                let v = expand(&right, &unit(right.rank(), j));
                let want: f64 = (0..m * n).map(|e| u[e / n] * x[e] * v[e % n]).sum();
                assert!((got[i * right.rank() + j] - want).abs() < 1e-12);
            }
        }
    }
}
