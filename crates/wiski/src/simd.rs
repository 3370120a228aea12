//! The few vector loops that are hot and that no matrix crate offers, compiled for several instruction sets
//! and chosen at run time.

use pulp::{Arch, Simd, WithSimd};

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
            let c = [c[0], c[1], c[2], c[3]].map(|c| simd.splat_f64s(c));
            let (r0, rest) = group.split_at(stride);
            let (r1, rest) = rest.split_at(stride);
            let (r2, r3) = rest.split_at(stride);
            let r = [r0, r1, r2, r3].map(|r| S::as_simd_f64s(r).0);
            for ((((o, &a), &b), &d), &e) in out.iter_mut().zip(r[0]).zip(r[1]).zip(r[2]).zip(r[3]) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        }
    }
}
