//! The few vector loops that are hot and that no matrix crate offers, compiled for several instruction sets
//! and chosen at run time.
//!
//! A closure with arithmetic in it that the compiler does not inline (an argument of `for_each`, `map` or `sum`) is compiled for
//! the oldest processor, so that loops here are written out.

mod together;

use pulp::{Arch, Simd, WithSimd};

pub(crate) use together::{combine_rows_together, solve_lower_together};

/// Rows of factors are padded with zeros to a multiple of this many numbers (one AVX-512 register), so that
/// the loops have no remainders.
pub(crate) const LANES: usize = 8;

/// The smallest multiple of [`LANES`] that is at least `n`.
pub(crate) fn padded(n: usize) -> usize {
    n.div_ceil(LANES) * LANES
}

/// Σ a_i b_i.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    Arch::new().dispatch(Dot { a, b })
}

/// out = Σ_i c_i row_i over the rows of a padded row-major matrix: `out` = Fᵀc.
pub(crate) fn combine_rows(rows: &[f64], stride: usize, coefficients: &[f64], out: &mut [f64]) {
    Arch::new().dispatch(CombineRows { rows, stride, coefficients, out, fresh: true });
}

/// out += Σ_i c_i row_i over the rows of a padded row-major matrix.
pub(crate) fn add_rows(rows: &[f64], stride: usize, coefficients: &[f64], out: &mut [f64]) {
    Arch::new().dispatch(CombineRows { rows, stride, coefficients, out, fresh: false });
}

/// out_i = row_i · x over the rows of a padded row-major matrix: `out` = Fx.
pub(crate) fn dot_rows(rows: &[f64], stride: usize, x: &[f64], out: &mut [f64]) {
    Arch::new().dispatch(DotRows { rows, stride, x, out });
}

/// y += c x.
pub(crate) fn add_scaled(y: &mut [f64], c: f64, x: &[f64]) {
    Arch::new().dispatch(AddScaled { y, c, x });
}

/// x ← L⁻¹ x for a lower triangular matrix of padded rows.
pub(crate) fn solve_lower(rows: &[f64], stride: usize, x: &mut [f64]) {
    solve_lower_together(rows, stride, x.len(), x);
}

/// x ← L⁻ᵀ x for a lower triangular matrix of padded rows.
pub(crate) fn solve_lower_transposed(rows: &[f64], stride: usize, x: &mut [f64]) {
    Arch::new().dispatch(SolveLowerTransposed { rows, stride, x });
}

/// Added and taken away again, it rounds numbers below 8192 to multiples of δ = 2⁻³⁸, the distance between doubles around
/// it: see `stats/exact.rs`.
pub(crate) const ROUNDER: f64 = 24_576.0;

/// A product as it goes into a sum: as it is, or rounded to a multiple of δ.
#[inline(always)]
pub(crate) fn rounded<const ROUND: bool>(product: f64) -> f64 {
    if ROUND { (product + ROUNDER) - ROUNDER } else { product }
}

/// The lower triangle of A += c x xᵀ, for n rows of n numbers.
pub(crate) fn add_outer_lower(a: &mut [f64], c: f64, x: &[f64]) {
    Arch::new().dispatch(AddOuterLower { a, c, x });
}

/// xᵀ A x for a symmetric matrix of n rows of n numbers, of which the lower triangle is read.
pub(crate) fn quadratic_lower(a: &[f64], x: &[f64]) -> f64 {
    Arch::new().dispatch(QuadraticLower { a, x })
}

/// A_ij ← a_i a_j A_ij over the rows of a padded symmetric matrix.
pub(crate) fn scale_both(rows: &mut [f64], stride: usize, a: &[f64]) {
    Arch::new().dispatch(ScaleBoth { rows, stride, a });
}

/// A_ij ← A_ij − x_i x_j over the rows of a padded symmetric matrix.
pub(crate) fn deflate_both(rows: &mut [f64], stride: usize, x: &[f64]) {
    Arch::new().dispatch(DeflateBoth { rows, stride, x });
}

/// A_ij ← A_ij − x_i y_j − y_i x_j over the rows of a padded symmetric matrix.
pub(crate) fn deflate_two(rows: &mut [f64], stride: usize, x: &[f64], y: &[f64]) {
    Arch::new().dispatch(DeflateTwo { rows, stride, x, y });
}

/// Σ_j a_j b_j c_j.
pub(crate) fn dot_three(a: &[f64], b: &[f64], c: &[f64]) -> f64 {
    Arch::new().dispatch(DotThree { a, b, c })
}

/// out = F x and F ← F − γ (F x) xᵀ in one sweep over the rows of F.
pub(crate) fn dot_rows_and_deflate(rows: &mut [f64], stride: usize, x: &[f64], gamma: f64, out: &mut [f64]) {
    Arch::new().dispatch(DotRowsAndDeflate { rows, stride, x, gamma, out });
}

struct Dot<'a> {
    a: &'a [f64],
    b: &'a [f64],
}

impl WithSimd for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        dot_simd(simd, self.a, self.b)
    }
}

#[inline(always)]
fn dot_simd<S: Simd>(simd: S, a: &[f64], b: &[f64]) -> f64 {
    let n = a.len().min(b.len());
    let (a, a_tail) = S::as_simd_f64s(&a[..n]);
    let (b, b_tail) = S::as_simd_f64s(&b[..n]);
    // Four sums in flight hide the latency of the multiply-add.
    let mut sums = [simd.splat_f64s(0.0); 4];
    let (a4, a1) = pulp::as_arrays::<4, _>(a);
    let (b4, b1) = pulp::as_arrays::<4, _>(b);
    for (x, y) in a4.iter().zip(b4) {
        for k in 0..4 {
            sums[k] = simd.mul_add_e_f64s(x[k], y[k], sums[k]);
        }
    }
    for (&x, &y) in a1.iter().zip(b1) {
        sums[0] = simd.mul_add_e_f64s(x, y, sums[0]);
    }
    let pairs = [simd.add_f64s(sums[0], sums[1]), simd.add_f64s(sums[2], sums[3])];
    let tail: f64 = a_tail.iter().zip(b_tail).map(|(x, y)| x * y).sum();
    simd.reduce_sum_f64s(simd.add_f64s(pairs[0], pairs[1])) + tail
}

struct AddScaled<'a> {
    y: &'a mut [f64],
    c: f64,
    x: &'a [f64],
}

impl WithSimd for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        add_scaled_simd(simd, self.y, self.c, self.x);
    }
}

#[inline(always)]
fn add_scaled_simd<S: Simd>(simd: S, y: &mut [f64], c: f64, x: &[f64]) {
    let n = x.len().min(y.len());
    let (x, x_tail) = S::as_simd_f64s(&x[..n]);
    let (y, y_tail) = S::as_mut_simd_f64s(&mut y[..n]);
    let factor = simd.splat_f64s(c);
    for (y, &x) in y.iter_mut().zip(x) {
        *y = simd.mul_add_e_f64s(factor, x, *y);
    }
    for (y, x) in y_tail.iter_mut().zip(x_tail) {
        *y += c * x;
    }
}

struct SolveLowerTransposed<'a> {
    rows: &'a [f64],
    stride: usize,
    x: &'a mut [f64],
}

impl WithSimd for SolveLowerTransposed<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, stride, x } = self;
        let n = x.len();
        for first in (0..n).step_by(LANES).rev() {
            let (open, rest) = x.split_at_mut(first);
            let own = &mut rest[..LANES.min(n - first)];
            let row = |i: usize| &rows[(first + i) * stride..(first + i + 1) * stride];
            for i in (0..own.len()).rev() {
                let row = &row(i)[first..];
                own[i] /= row[i];
                let found = own[i];
                for (x, l) in own[..i].iter_mut().zip(row) {
                    *x -= found * l;
                }
            }
            let mut pairs = own.chunks_exact(2);
            for (i, pair) in (&mut pairs).enumerate() {
                // Two rows for one load and store of what is still to be solved for.
                let a = S::as_simd_f64s(&row(2 * i)[..first]).0;
                let b = S::as_simd_f64s(&row(2 * i + 1)[..first]).0;
                let c = [simd.splat_f64s(-pair[0]), simd.splat_f64s(-pair[1])];
                for ((x, &a), &b) in S::as_mut_simd_f64s(open).0.iter_mut().zip(a).zip(b) {
                    *x = simd.mul_add_e_f64s(c[1], b, simd.mul_add_e_f64s(c[0], a, *x));
                }
            }
            if let [last] = pairs.remainder() {
                add_scaled_simd(simd, open, -last, &row(own.len() - 1)[..first]);
            }
        }
    }
}

struct AddOuterLower<'a> {
    a: &'a mut [f64],
    c: f64,
    x: &'a [f64],
}

impl WithSimd for AddOuterLower<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (i, row) in self.a.chunks_exact_mut(self.x.len()).enumerate() {
            add_scaled_simd(simd, &mut row[..=i], self.c * self.x[i], self.x);
        }
    }
}

struct QuadraticLower<'a> {
    a: &'a [f64],
    x: &'a [f64],
}

impl WithSimd for QuadraticLower<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let Self { a, x } = self;
        let mut sum = 0.0;
        for (i, row) in a.chunks_exact(x.len()).enumerate() {
            sum += x[i] * (2.0 * dot_simd(simd, &row[..i], x) + row[i] * x[i]);
        }
        sum
    }
}

struct CombineRows<'a> {
    rows: &'a [f64],
    stride: usize,
    coefficients: &'a [f64],
    out: &'a mut [f64],
    /// Whether `out` starts at zero.
    fresh: bool,
}

impl WithSimd for CombineRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, stride, coefficients, out, fresh } = self;
        let (out, _) = S::as_mut_simd_f64s(out);
        if fresh {
            out.fill(simd.splat_f64s(0.0));
        }
        // Four rows at a time: one load and store of the result for four multiply-adds.
        let mut groups = rows.chunks_exact(4 * stride);
        let mut quads = coefficients.chunks_exact(4);
        for (group, c) in (&mut groups).zip(&mut quads) {
            let c =
                [simd.splat_f64s(c[0]), simd.splat_f64s(c[1]), simd.splat_f64s(c[2]), simd.splat_f64s(c[3])];
            let (r0, rest) = group.split_at(stride);
            let (r1, rest) = rest.split_at(stride);
            let (r2, r3) = rest.split_at(stride);
            let (r0, r1) = (S::as_simd_f64s(r0).0, S::as_simd_f64s(r1).0);
            let (r2, r3) = (S::as_simd_f64s(r2).0, S::as_simd_f64s(r3).0);
            for ((((o, &a), &b), &d), &e) in out.iter_mut().zip(r0).zip(r1).zip(r2).zip(r3) {
                let first = simd.mul_add_e_f64s(c[0], a, *o);
                let second = simd.mul_add_e_f64s(c[1], b, first);
                let third = simd.mul_add_e_f64s(c[2], d, second);
                *o = simd.mul_add_e_f64s(c[3], e, third);
            }
        }
        for (row, &c) in groups.remainder().chunks_exact(stride).zip(quads.remainder()) {
            let c = simd.splat_f64s(c);
            for (o, &a) in out.iter_mut().zip(S::as_simd_f64s(row).0) {
                *o = simd.mul_add_e_f64s(c, a, *o);
            }
        }
    }
}

struct DotRows<'a> {
    rows: &'a [f64],
    stride: usize,
    x: &'a [f64],
    out: &'a mut [f64],
}

impl WithSimd for DotRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (row, o) in self.rows.chunks_exact(self.stride).zip(self.out) {
            *o = dot_simd(simd, row, self.x);
        }
    }
}

struct DotRowsAndDeflate<'a> {
    rows: &'a mut [f64],
    stride: usize,
    x: &'a [f64],
    gamma: f64,
    out: &'a mut [f64],
}

impl WithSimd for DotRowsAndDeflate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (x, _) = S::as_simd_f64s(self.x);
        for (row, o) in self.rows.chunks_exact_mut(self.stride).zip(self.out) {
            *o = dot_simd(simd, row, self.x);
            let c = simd.splat_f64s(-self.gamma * *o);
            for (r, &x) in S::as_mut_simd_f64s(row).0.iter_mut().zip(x) {
                *r = simd.mul_add_e_f64s(c, x, *r);
            }
        }
    }
}

struct ScaleBoth<'a> {
    rows: &'a mut [f64],
    stride: usize,
    a: &'a [f64],
}

impl WithSimd for ScaleBoth<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (row, &a) in self.rows.chunks_exact_mut(self.stride).zip(self.a) {
            for (v, b) in row.iter_mut().zip(self.a) {
                *v *= a * b;
            }
        }
    }
}

struct DeflateBoth<'a> {
    rows: &'a mut [f64],
    stride: usize,
    x: &'a [f64],
}

impl WithSimd for DeflateBoth<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (row, &x) in self.rows.chunks_exact_mut(self.stride).zip(self.x) {
            for (v, y) in row.iter_mut().zip(self.x) {
                *v -= x * y;
            }
        }
    }
}

struct DeflateTwo<'a> {
    rows: &'a mut [f64],
    stride: usize,
    x: &'a [f64],
    y: &'a [f64],
}

impl WithSimd for DeflateTwo<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (x, y) = (self.x, self.y);
        for ((row, &xi), &yi) in self.rows.chunks_exact_mut(self.stride).zip(x).zip(y) {
            for ((v, x), y) in row.iter_mut().zip(x).zip(y) {
                *v -= xi * y + yi * x;
            }
        }
    }
}

struct DotThree<'a> {
    a: &'a [f64],
    b: &'a [f64],
    c: &'a [f64],
}

impl WithSimd for DotThree<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let mut sums = [0.0; LANES];
        let (a, ra) = self.a.as_chunks::<LANES>();
        let (b, rb) = self.b.as_chunks::<LANES>();
        let (c, rc) = self.c.as_chunks::<LANES>();
        for ((a, b), c) in a.iter().zip(b).zip(c) {
            for i in 0..LANES {
                sums[i] += a[i] * b[i] * c[i];
            }
        }
        let rest: f64 = ra.iter().zip(rb).zip(rc).map(|((a, b), c)| a * b * c).sum();
        sums.iter().sum::<f64>() + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triangular_solves_leave_no_residual() {
        for n in [1, 2, 7, 8, 9, 16, 37, 64, 101] {
            let stride = padded(n);
            let mut l = vec![0.0; n * stride];
            for i in 0..n {
                (0..i).for_each(|j| l[i * stride + j] = ((i * i + 3 * j) as f64).sin() / n as f64);
                l[i * stride + i] = 1.0 + 0.1 * (i as f64).cos();
            }
            let (right, mut lower) = (vector(n, 0.9), vector(n, 0.9));
            let mut upper = right.clone();
            solve_lower(&l, stride, &mut lower);
            solve_lower_transposed(&l, stride, &mut upper);
            for i in 0..n {
                let forward: f64 = (0..=i).map(|j| l[i * stride + j] * lower[j]).sum();
                let backward: f64 = (i..n).map(|j| l[j * stride + i] * upper[j]).sum();
                assert!((forward - right[i]).abs() < 1e-14, "{n}: {forward} {}", right[i]);
                assert!((backward - right[i]).abs() < 1e-14, "{n}: {backward} {}", right[i]);
            }
        }
    }

    #[test]
    fn symmetric_sweeps_equal_their_plain_forms() {
        for n in [1, 7, 16, 21] {
            let stride = padded(n);
            let padded_vector = |seed| {
                let mut v = vector(n, seed);
                v.resize(stride, 0.0);
                v
            };
            let (a, x, y) = (padded_vector(0.3), padded_vector(0.7), padded_vector(1.1));
            let start: Vec<f64> = (0..n * stride)
                .map(|k| if k % stride < n { ((k / stride + k % stride) as f64).sin() } else { 0.0 })
                .collect();
            let check = |name: &str, got: &[f64], plain: &dyn Fn(f64, usize, usize) -> f64| {
                for i in 0..n {
                    for j in 0..n {
                        let want = plain(start[i * stride + j], i, j);
                        assert!((got[i * stride + j] - want).abs() < 1e-14, "{name} {n} {i} {j}");
                        assert_eq!(got[i * stride + j], got[j * stride + i], "{name} is symmetric");
                    }
                }
            };
            let mut m = start.clone();
            scale_both(&mut m, stride, &a);
            check("scale_both", &m, &|v, i, j| a[i] * a[j] * v);
            let mut m = start.clone();
            deflate_both(&mut m, stride, &x);
            check("deflate_both", &m, &|v, i, j| v - x[i] * x[j]);
            let mut m = start.clone();
            deflate_two(&mut m, stride, &x, &y);
            check("deflate_two", &m, &|v, i, j| v - x[i] * y[j] - y[i] * x[j]);
            let plain: f64 = (0..n).map(|i| a[i] * x[i] * y[i]).sum();
            assert!((dot_three(&a[..n], &x[..n], &y[..n]) - plain).abs() < 1e-14);
        }
    }

    fn vector(n: usize, seed: f64) -> Vec<f64> {
        (0..n).map(|i| ((i as f64 + seed) * 1.7).sin()).collect()
    }

    #[test]
    fn loops_equal_their_plain_forms() {
        for p in [1, 3, 8, 9, 37, 64, 101] {
            let stride = padded(p);
            let mut f = vec![0.0; p * stride];
            for (i, row) in f.chunks_exact_mut(stride).enumerate() {
                row[..p].copy_from_slice(&vector(p, i as f64));
            }
            let phi = vector(p, 0.3);
            // Sums of p terms agree to p·eps times the sum of their sizes.
            let close = |got: f64, terms: &mut dyn Iterator<Item = f64>| {
                let (sum, size) = terms.fold((0.0, 0.0), |(s, a), t| (s + t, a + t.abs()));
                assert!((got - sum).abs() <= p as f64 * f64::EPSILON * size, "{got} {sum} at p = {p}");
            };

            let mut combined = vec![f64::NAN; stride];
            combine_rows(&f, stride, &phi, &mut combined);
            for j in 0..stride {
                close(combined[j], &mut (0..p).map(|i| phi[i] * f[i * stride + j]));
            }
            let mut dots = vec![f64::NAN; p];
            dot_rows(&f, stride, &combined, &mut dots);
            for i in 0..p {
                close(dots[i], &mut (0..p).map(|j| f[i * stride + j] * combined[j]));
            }
            let (mut deflated, mut again) = (f.clone(), vec![f64::NAN; p]);
            dot_rows_and_deflate(&mut deflated, stride, &combined, 0.7, &mut again);
            assert_eq!(again, dots);
            for (at, &value) in deflated.iter().enumerate() {
                let (i, j) = (at / stride, at % stride);
                close(value, &mut [f[at], -0.7 * dots[i] * combined[j]].into_iter());
            }
            close(dot(&phi, &phi), &mut phi.iter().map(|v| v * v));

            let mut sum = combined.clone();
            add_scaled(&mut sum[..p], 0.7, &phi);
            (0..p).for_each(|i| close(sum[i], &mut [combined[i], 0.7 * phi[i]].into_iter()));
            let mut outer = vec![0.0; p * p];
            add_outer_lower(&mut outer, -0.4, &phi);
            for (i, j) in (0..p * p).map(|at| (at / p, at % p)) {
                let want = if j <= i { -0.4 * phi[i] * phi[j] } else { 0.0 };
                close(outer[i * p + j], &mut [want].into_iter());
            }
            let entry = |i: usize, j: usize| outer[i.max(j) * p + i.min(j)];
            let terms = (0..p * p).map(|at| combined[at / p] * entry(at / p, at % p) * combined[at % p]);
            close(quadratic_lower(&outer, &combined[..p]), &mut terms.into_iter());
        }
    }
}
