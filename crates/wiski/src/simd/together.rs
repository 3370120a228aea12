//! Products of one matrix with several vectors: a number that comes from memory serves all of them.
//!
//! Each result is to the last bit what it is for one vector alone, whatever the number of vectors: the same multiply-adds in
//! the same order, only that those of different vectors take turns. So rows that are learned in batches of any size lead
//! to the same model.
//!
//! Nothing here goes through a closure that does arithmetic: what the compiler does not inline into the dispatched function
//! is compiled for the oldest processor, and each multiply-add becomes a call.

use pulp::{Arch, Simd, WithSimd};

use super::LANES;

/// Vectors whose sums are held in registers together, at most, and rows of the matrix that they meet before the sums are
/// stored.
const VECTORS: usize = 8;
const ROWS: usize = 8;

/// Right-hand sides that a group of rows of a triangular matrix meets together.
const SIDES: usize = 2;

/// out_r = Σ_i c_ri row_i for several vectors c_r of coefficients, one after the other, over the rows of a padded row-major
/// matrix: as many times [`super::combine_rows`].
pub(crate) fn combine_rows_together(rows: &[f64], stride: usize, coefficients: &[f64], out: &mut [f64]) {
    Arch::new().dispatch(Combine { rows, stride, coefficients, out });
}

/// x_r ← L⁻¹ x_r for several vectors of n numbers, one after the other, and a lower triangular matrix of padded rows.
pub(crate) fn solve_lower_together(rows: &[f64], stride: usize, n: usize, x: &mut [f64]) {
    Arch::new().dispatch(Solve { rows, stride, n, x });
}

struct Combine<'a> {
    rows: &'a [f64],
    stride: usize,
    coefficients: &'a [f64],
    out: &'a mut [f64],
}

impl WithSimd for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, stride, coefficients, out } = self;
        out.fill(0.0);
        let (c, out) = combine_groups::<S, VECTORS>(simd, rows, stride, coefficients, out);
        let (c, out) = combine_groups::<S, 4>(simd, rows, stride, c, out);
        let (c, out) = combine_groups::<S, 2>(simd, rows, stride, c, out);
        combine_groups::<S, 1>(simd, rows, stride, c, out);
    }
}

/// Takes vectors R at a time as long as there are so many; those that are left.
#[inline(always)]
fn combine_groups<'a, S: Simd, const R: usize>(
    simd: S,
    rows: &[f64],
    stride: usize,
    coefficients: &'a [f64],
    out: &'a mut [f64],
) -> (&'a [f64], &'a mut [f64]) {
    let p = rows.len() / stride;
    let mut vectors = coefficients.chunks_exact(R * p);
    let mut sums = out.chunks_exact_mut(R * stride);
    for (c, out) in (&mut vectors).zip(&mut sums) {
        combine::<S, R>(simd, rows, stride, c, out);
    }
    (vectors.remainder(), sums.into_remainder())
}

/// Adds Σ_i c_ri row_i to R vectors.
#[inline(always)]
fn combine<S: Simd, const R: usize>(simd: S, rows: &[f64], stride: usize, c: &[f64], out: &mut [f64]) {
    let p = c.len() / R;
    let out = split::<R>(out, stride).map(|row| S::as_mut_simd_f64s(row).0);
    let mut first = 0;
    let mut groups = rows.chunks_exact(ROWS * stride);
    for group in &mut groups {
        let row: [&[S::f64s]; ROWS] =
            std::array::from_fn(|i| S::as_simd_f64s(&group[i * stride..(i + 1) * stride]).0);
        let own: [[f64; R]; ROWS] = std::array::from_fn(|i| std::array::from_fn(|r| c[r * p + first + i]));
        for v in 0..row[0].len() {
            let mut sums = [simd.splat_f64s(0.0); R];
            for r in 0..R {
                sums[r] = out[r][v];
            }
            for i in 0..ROWS {
                let f = row[i][v];
                for r in 0..R {
                    sums[r] = simd.mul_add_e_f64s(simd.splat_f64s(own[i][r]), f, sums[r]);
                }
            }
            for r in 0..R {
                out[r][v] = sums[r];
            }
        }
        first += ROWS;
    }
    for (i, row) in groups.remainder().chunks_exact(stride).enumerate() {
        for (v, &f) in S::as_simd_f64s(row).0.iter().enumerate() {
            for r in 0..R {
                out[r][v] = simd.mul_add_e_f64s(simd.splat_f64s(c[r * p + first + i]), f, out[r][v]);
            }
        }
    }
}

struct Solve<'a> {
    rows: &'a [f64],
    stride: usize,
    n: usize,
    x: &'a mut [f64],
}

impl WithSimd for Solve<'_> {
    type Output = ();

    /// Eight rows at a time, for all vectors before the next eight: they come from memory once.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, stride, n, x } = self;
        for first in (0..n).step_by(LANES) {
            let mut groups = x.chunks_exact_mut(SIDES * n);
            for group in &mut groups {
                solve_rows::<S, SIDES>(simd, rows, stride, first, n, group);
            }
            for x in groups.into_remainder().chunks_exact_mut(n) {
                solve_rows::<S, 1>(simd, rows, stride, first, n, x);
            }
        }
    }
}

/// Solves for the numbers from `first` on, at most eight of each of R vectors, given those before them.
#[inline(always)]
fn solve_rows<S: Simd, const R: usize>(
    simd: S,
    rows: &[f64],
    stride: usize,
    first: usize,
    n: usize,
    x: &mut [f64],
) {
    let count = LANES.min(n - first);
    let row = |i: usize| &rows[(first + i) * stride..(first + i + 1) * stride];
    let mut parts = split::<R>(x, n).map(|x| x.split_at_mut(first));
    let found: [&[S::f64s]; R] = std::array::from_fn(|r| S::as_simd_f64s(&*parts[r].0).0);
    let length = found[0].len();
    let mut sums = [[simd.splat_f64s(0.0); R]; LANES];
    if count == LANES {
        let heads: [&[S::f64s]; LANES] =
            std::array::from_fn(|i| &S::as_simd_f64s(&row(i)[..first]).0[..length]);
        for j in 0..length {
            for i in 0..LANES {
                for r in 0..R {
                    sums[i][r] = simd.mul_add_e_f64s(heads[i][j], found[r][j], sums[i][r]);
                }
            }
        }
    } else {
        for i in 0..count {
            let head = &S::as_simd_f64s(&row(i)[..first]).0[..length];
            for j in 0..length {
                for r in 0..R {
                    sums[i][r] = simd.mul_add_e_f64s(head[j], found[r][j], sums[i][r]);
                }
            }
        }
    }
    for (r, (_, own)) in parts.iter_mut().enumerate() {
        for i in 0..count {
            let row = &row(i)[first..];
            let sum: f64 = row[..i].iter().zip(&**own).map(|(l, x)| l * x).sum();
            own[i] = (own[i] - simd.reduce_sum_f64s(sums[i][r]) - sum) / row[i];
        }
    }
}

/// R vectors of the given length.
#[inline(always)]
fn split<const R: usize>(all: &mut [f64], length: usize) -> [&mut [f64]; R] {
    let mut rest = all;
    std::array::from_fn(|_| {
        let (own, others) = std::mem::take(&mut rest).split_at_mut(length);
        rest = others;
        own
    })
}

#[cfg(test)]
mod tests {
    use super::super::{combine_rows, padded, solve_lower};
    use super::*;

    fn vector(n: usize, seed: f64) -> Vec<f64> {
        (0..n).map(|i| ((i as f64 + seed) * 1.7).sin()).collect()
    }

    #[test]
    fn several_vectors_have_the_bits_of_one() {
        for (n, q) in [(1, 1), (7, 3), (8, 8), (9, 17), (37, 16), (64, 2), (101, 11), (130, 9)] {
            let stride = padded(n);
            let mut matrix = vec![0.0; n * stride];
            for (i, row) in matrix.chunks_exact_mut(stride).enumerate() {
                row[..n].copy_from_slice(&vector(n, i as f64 + 0.25));
                row[i] += 2.0;
            }
            let vectors: Vec<f64> = (0..q).flat_map(|r| vector(n, 0.1 + r as f64)).collect();
            let mut combined = vec![f64::NAN; q * stride];
            combine_rows_together(&matrix, stride, &vectors, &mut combined);
            let mut alone = vec![f64::NAN; stride];
            for (c, together) in vectors.chunks_exact(n).zip(combined.chunks_exact(stride)) {
                combine_rows(&matrix, stride, c, &mut alone);
                assert_eq!(alone, together, "{n} {q}");
            }
            let mut solved = vectors.clone();
            solve_lower_together(&matrix, stride, n, &mut solved);
            for (x, together) in vectors.chunks_exact(n).zip(solved.chunks_exact(n)) {
                let mut alone = x.to_vec();
                solve_lower(&matrix, stride, &mut alone);
                assert_eq!(alone, together, "{n} {q}");
            }
        }
    }
}
