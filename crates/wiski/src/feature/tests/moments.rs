//! Streaming moments against two passes over the rows, and their algebra.

use super::{assert_close, cases, normals, rng};
use crate::error::Error;
use crate::feature::Moments;
use proptest::prelude::*;

/// Mean and scatter by two passes. The first pass sums deviations from the first row, so that the offset does
/// not take digits; the second removes the rest of the mean's error (the corrected two-pass algorithm).
fn two_pass(x: &[f64], d: usize) -> (Vec<f64>, Vec<f64>) {
    let n = (x.len() / d) as f64;
    let mut shift = vec![0.0; d];
    for row in x.chunks_exact(d) {
        (0..d).for_each(|i| shift[i] += (row[i] - x[i]) / n);
    }
    let mut first = vec![0.0; d];
    let mut scatter = vec![0.0; d * d];
    for row in x.chunks_exact(d) {
        for i in 0..d {
            let left = (row[i] - x[i]) - shift[i];
            first[i] += left;
            for j in 0..d {
                scatter[i * d + j] += left * ((row[j] - x[j]) - shift[j]);
            }
        }
    }
    for i in 0..d {
        for j in 0..d {
            scatter[i * d + j] -= first[i] * first[j] / n;
        }
    }
    ((0..d).map(|i| x[i] + shift[i]).collect(), scatter)
}

fn assert_same(a: &Moments, b: &Moments, tolerance: f64) {
    assert_eq!((a.dim(), a.rows()), (b.dim(), b.rows()));
    assert!((a.weight() - b.weight()).abs() <= 1e-12 * b.weight());
    let d = b.dim();
    for i in 0..d {
        let std = b.variance(i).sqrt();
        assert!((a.mean()[i] - b.mean()[i]).abs() <= tolerance * (std + b.mean()[i].abs()));
        for j in 0..d {
            let size = (b.scatter()[i * (d + 1)] * b.scatter()[j * (d + 1)]).sqrt();
            let error = (a.scatter()[i * d + j] - b.scatter()[i * d + j]).abs();
            assert!(error <= tolerance * size, "scatter[{i}, {j}] is off by {error:.3e} of {size:.3e}");
        }
    }
}

/// Values 10⁹ ± 1 have a spacing of 1.2·10⁻⁷; both computations see the same rounded values, so they must agree
/// to summation error alone: n additions of relative error ε/2 each, in random directions, give
/// ε/2·√(n/3) ≈ 2·10⁻¹⁴ on a sum of squares. A mean without its second number would be off by 6·10⁻⁶ here and
/// the scatter by 10⁻⁸.
#[test]
fn a_large_offset_costs_no_digits() {
    let (n, d) = (100_000, 3);
    let mut x = normals(&mut rng(1), n * d);
    for row in x.chunks_exact_mut(d) {
        row[1] = 1e-3 * row[0] + 3.0 * row[1];
        row.iter_mut().zip([1e9, -1e9, 1e9 + 0.5]).for_each(|(value, offset)| *value += offset);
    }
    let moments = Moments::from_rows(&x, d).unwrap();
    let (mean, scatter) = two_pass(&x, d);
    // One rounding of a number near 10⁹.
    assert_close(moments.mean(), &mean, f64::EPSILON, 1e9);
    for i in 0..d {
        for j in 0..d {
            let size = (scatter[i * (d + 1)] * scatter[j * (d + 1)]).sqrt();
            let error = (moments.scatter()[i * d + j] - scatter[i * d + j]).abs();
            assert!(error <= 2e-13 * size, "scatter[{i}, {j}] is off by {error:.3e} of {size:.3e}");
            assert_eq!(moments.scatter()[i * d + j], moments.scatter()[j * d + i]);
        }
    }
}

proptest! {
    #![proptest_config(cases(32))]

    /// Any split into two shards merges to the moments of one pass; an empty shard changes nothing.
    #[test]
    fn merging_equals_one_pass(seed in any::<u64>(), d in 1_usize..6, n in 1_usize..60, cut in 0_usize..60) {
        let mut rng = rng(seed);
        let x: Vec<f64> = normals(&mut rng, n * d).iter().map(|value| 50.0 + value).collect();
        let (left, right) = x.split_at(cut.min(n) * d);
        let mut merged = Moments::from_rows(left, d).unwrap();
        merged.merge(&Moments::from_rows(right, d).unwrap()).unwrap();
        let whole = Moments::from_rows(&x, d).unwrap();
        assert_same(&merged, &whole, 1e-13);
        let before = merged.clone();
        merged.merge(&Moments::new(d)).unwrap();
        prop_assert_eq!(merged, before);
    }

    /// Forgetting in any order leaves the moments of the rows that stay. Removing about half of the scatter
    /// costs a few units of rounding: 10⁻¹².
    #[test]
    fn forgetting_inverts_observing(seed in any::<u64>(), d in 1_usize..6, stay in 2_usize..30, go in 1_usize..30) {
        let mut rng = rng(seed);
        let x = normals(&mut rng, (stay + go) * d);
        let mut moments = Moments::from_rows(&x, d).unwrap();
        for row in x[stay * d..].chunks_exact(d) {
            moments.forget(row).unwrap();
        }
        assert_same(&moments, &Moments::from_rows(&x[..stay * d], d).unwrap(), 1e-12);
    }

    /// Decay and weights mean the same: fading by λ is observing with weights λ^age, and a faded row can be
    /// forgotten with the weight it has now.
    #[test]
    fn decay_equals_weights(seed in any::<u64>(), lambda in 0.5_f64..1.0, d in 1_usize..4) {
        let mut rng = rng(seed);
        let x = normals(&mut rng, 12 * d);
        let (mut faded, mut weighted, mut short) = (Moments::new(d), Moments::new(d), Moments::new(d));
        for (row, values) in x.chunks_exact(d).enumerate() {
            let weight = lambda.powi(11 - i32::try_from(row).unwrap());
            faded.decay(lambda).unwrap();
            faded.observe(values).unwrap();
            weighted.observe_weighted(values, weight).unwrap();
            if row != 4 {
                short.observe_weighted(values, weight).unwrap();
            }
        }
        assert_same(&faded, &weighted, 1e-13);
        faded.forget_weighted(&x[4 * d..5 * d], lambda.powi(7)).unwrap();
        assert_same(&faded, &short, 1e-11);
    }
}

#[test]
fn forgetting_everything_leaves_nothing() {
    let x = normals(&mut rng(3), 40);
    let mut moments = Moments::from_rows(&x, 4).unwrap();
    for row in x.chunks_exact(4) {
        moments.forget(row).unwrap();
    }
    assert_eq!(moments, Moments::new(4));
}

#[test]
fn impossible_requests_change_nothing() {
    let mut moments = Moments::from_rows(&[1.0, 2.0, 3.0, 5.0, 4.0, 4.0], 2).unwrap();
    let before = moments.clone();
    assert!(matches!(moments.forget(&[9.0, 3.0]), Err(Error::Unsupported { operation: "forget", .. })));
    assert!(matches!(moments.forget_weighted(&[2.0, 3.0], 3.0), Err(Error::Unsupported { .. })));
    assert!(matches!(moments.observe(&[1.0]), Err(Error::WrongLength { expected: 2, found: 1, .. })));
    assert!(
        matches!(moments.observe(&[1.0, f64::NAN]), Err(Error::NotFinite { field, .. }) if field == "x[1]")
    );
    assert!(matches!(moments.observe(&[1e200, 0.0]), Err(Error::NotFinite { .. })));
    assert!(matches!(moments.observe_weighted(&[1.0, 1.0], 0.0), Err(Error::NotPositive { .. })));
    assert!(matches!(moments.decay(1.5), Err(Error::Config { .. })));
    assert!(matches!(moments.decay(0.0), Err(Error::NotPositive { .. })));
    assert!(matches!(moments.merge(&Moments::new(3)), Err(Error::WrongLength { .. })));
    assert_eq!(moments, before);
    assert!(matches!(Moments::new(1).forget(&[0.0]), Err(Error::Unsupported { .. })));
    assert!(matches!(Moments::from_rows(&[1.0, 2.0, 3.0], 2), Err(Error::WrongLength { .. })));
    let nan = Moments::from_rows(&[1.0, 2.0, 3.0, f64::INFINITY], 2);
    assert!(matches!(nan, Err(Error::NotFinite { row: 1, .. })));
}
