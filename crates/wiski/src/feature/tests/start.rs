//! Starts: planted directions are found, awkward rows are dealt with, impossible ones rejected.

use super::{normals, rng};
use crate::error::Error;
use crate::feature::start::{PENALTIES, axes, principal, random, supervised};
use crate::feature::{Moments, Projection};

/// The sine of the angle between `direction` and the span of the rows of `p`, in Euclidean terms.
fn distance(direction: &[f64], p: &Projection) -> f64 {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut remove = |v: &[f64], keep: bool| {
        let mut rest = v.to_vec();
        for b in &basis {
            let share = dot(&rest, b);
            rest.iter_mut().zip(b).for_each(|(r, b)| *r -= share * b);
        }
        let norm = dot(&rest, &rest).sqrt();
        if keep {
            basis.push(rest.iter().map(|r| r / norm).collect());
        }
        norm / dot(v, v).sqrt()
    };
    for j in 0..p.outputs() {
        remove(p.row(j), true);
    }
    remove(direction, false)
}

fn along(x: &[f64], direction: &[f64]) -> f64 {
    x.iter().zip(direction).map(|(x, p)| x * p).sum()
}

const P: [f64; 6] = [0.8, 0.0, -0.6, 0.0, 0.0, 0.0];
const Q: [f64; 6] = [0.0, 0.6, 0.0, 0.8, 0.0, 0.0];

fn planted(n: usize, response: impl Fn(f64, f64) -> f64) -> (Vec<f64>, Vec<f64>) {
    let mut rng = rng(7);
    let x = normals(&mut rng, n * 6);
    let noise = normals(&mut rng, n);
    let y =
        x.chunks_exact(6).zip(noise).map(|(x, e)| response(along(x, &P), along(x, &Q)) + 0.1 * e).collect();
    (x, y)
}

/// y = g(p·x) + (p·x)(q·x): row 1 is p, and q shows only through the product. The estimates converge like
/// √(D/n): with 6 columns and 4,000 rows a few hundredths, times the size of the part of y not yet explained.
#[test]
fn an_index_and_an_interaction() {
    let (x, y) = planted(4000, |p, q| (1.5 * p).tanh() + p + 0.8 * p * q);
    let start = supervised(&x, 6, &y, 2, &PENALTIES).unwrap();
    let one = Projection::new(1, 6, start.row(0).to_vec()).unwrap();
    assert!(distance(&P, &one) < 0.08, "{}", distance(&P, &one));
    assert!(distance(&P, &start) < 0.08, "{}", distance(&P, &start));
    assert!(distance(&Q, &start) < 0.08, "{}", distance(&Q, &start));
}

/// y = g(p·x) + (q·x)², and the curve along p is steeper than the one along q: row 2 must not repeat row 1.
#[test]
fn curvature_in_a_second_direction() {
    let (x, y) = planted(4000, |p, q| 2.0 * p + p * p + 0.5 * q * q);
    let start = supervised(&x, 6, &y, 2, &PENALTIES).unwrap();
    assert!(distance(&P, &start) < 0.1, "{}", distance(&P, &start));
    assert!(distance(&Q, &start) < 0.1, "{}", distance(&Q, &start));
    let three = supervised(&x, 6, &y, 3, &PENALTIES).unwrap();
    assert_eq!(&three.values()[..12], start.values());
}

/// Units of the inputs cannot matter: x → s·x by columns turns every row of P into P/s, up to one factor (the
/// common variance is measured in the new units).
#[test]
fn units_do_not_matter() {
    let (x, y) = planted(500, |p, q| p + 0.5 * p * q);
    let scale = [1e-5, 3.0, 1.0, 1e4, 0.2, 70.0];
    let scaled: Vec<f64> = x.iter().enumerate().map(|(at, x)| x * scale[at % 6]).collect();
    let start = supervised(&x, 6, &y, 3, &PENALTIES).unwrap();
    let again = supervised(&scaled, 6, &y, 3, &PENALTIES).unwrap();
    for j in 0..3 {
        let back: Vec<f64> = again.row(j).iter().zip(&scale).map(|(p, s)| p * s).collect();
        let one = Projection::new(1, 6, back).unwrap();
        assert!(distance(start.row(j), &one) < 1e-9, "row {j}: {}", distance(start.row(j), &one));
    }
}

/// With pure noise for most columns and few rows, leave-one-out must choose heavy shrinkage and still do better
/// than almost no penalty.
#[test]
fn shrinkage_helps_where_rows_are_few() {
    let (n, d) = (40, 30);
    let mut wins = 0;
    for seed in 0..20 {
        let mut rng = rng(100 + seed);
        // Correlated columns: one common factor drives them and y.
        let factors = normals(&mut rng, n);
        let noise = normals(&mut rng, n * d);
        let x: Vec<f64> = noise.iter().enumerate().map(|(at, e)| factors[at / d] + e).collect();
        let errors = normals(&mut rng, n);
        let y: Vec<f64> = factors.iter().zip(errors).map(|(f, e)| f + e).collect();
        let truth = vec![1.0; d];
        let chosen = distance(&truth, &supervised(&x, d, &y, 1, &PENALTIES).unwrap());
        let thin = distance(&truth, &supervised(&x, d, &y, 1, &[1e-4]).unwrap());
        wins += u32::from(chosen < thin);
    }
    assert!(wins >= 18, "{wins} of 20");
}

/// A constant column, one constant but for a spike, a copy of another column, and a column of large offset.
#[test]
fn awkward_columns() {
    let (clean, mut y) = planted(600, |p, q| p + 0.6 * p * q);
    y[17] += 20.0; // and the row with the spike is an outlier, so that the spike would explain it
    let mut x = Vec::new();
    for (row, values) in clean.chunks_exact(6).enumerate() {
        x.extend_from_slice(values);
        x.extend([3.5, f64::from(u8::from(row == 17)), values[1], 1e6 + values[4]]);
    }
    let start = supervised(&x, 10, &y, 2, &PENALTIES).unwrap();
    for j in 0..2 {
        assert_eq!(start.row(j)[6..8], [0.0, 0.0]);
    }
    // Column 8 is column 1 again: they share its weight equally.
    for j in 0..2 {
        let row = start.row(j);
        let size = row.iter().fold(0.0_f64, |a, p| a.max(p.abs()));
        assert!((row[1] - row[8]).abs() < 1e-8 * size);
    }
    let folded: Vec<f64> = (0..2)
        .flat_map(|j| {
            let row = start.row(j);
            [row[0], row[1] + row[8], row[2], row[3], row[4] + row[9], row[5]]
        })
        .collect();
    let folded = Projection::new(2, 6, folded).unwrap();
    assert!(distance(&P, &folded) < 0.35, "{}", distance(&P, &folded));
    assert!(distance(&Q, &folded) < 0.35, "{}", distance(&Q, &folded));
}

/// Six rows of 2,000 far out in one column, where y is no different. Standardized they stand at √(n/6), and
/// six noisy residuals there give M an entry of size r/√6 = 0.5, above the 0.3 of the product (p·x)(q·x) — unless
/// they are pulled in, which leaves them 0.02. The noise of the other rows, √(D/n) r/0.6, allows an angle of 0.1
/// on average.
#[test]
fn heavy_tails() {
    for seed in 0..5 {
        let (mut x, mut y) = planted(2000, |p, q| p + 0.6 * p * q);
        for (y, e) in y.iter_mut().zip(normals(&mut rng(40 + seed), 2000)) {
            *y += e;
        }
        // On both sides: what the residuals of one side have in common, ridge regression would take up.
        for (row, far) in [(5, 1e3), (300, -1e3), (700, 1e3), (1100, -1e3), (1500, 1e3), (1900, -1e3)] {
            x[row * 6 + 5] = far;
        }
        let start = supervised(&x, 6, &y, 2, &PENALTIES).unwrap();
        // The bulk of column 5 has unit variance like the others, so Euclidean angles are those of the bulk.
        assert!(distance(&P, &start) < 0.25, "{}", distance(&P, &start));
        assert!(distance(&Q, &start) < 0.25, "{}", distance(&Q, &start));
    }
}

/// All data-driven rows have one variance, that of a random row on average.
#[test]
fn rows_of_one_size() {
    let (x, y) = planted(300, |p, q| p + q * q);
    let moments = Moments::from_rows(&x, 6).unwrap();
    let target = moments.variances().sum::<f64>() / 18.0;
    let both = supervised(&x, 6, &y, 3, &PENALTIES).unwrap().stack(&principal(&moments, 6).unwrap()).unwrap();
    let all = both.stack(&axes(6).unwrap().rescale(&moments).unwrap()).unwrap();
    let mut rng = rng(1);
    let spread = |row: &[f64]| {
        let values: Vec<f64> = x.chunks_exact(6).map(|x| along(x, row)).collect();
        let mean = values.iter().sum::<f64>() / 300.0;
        values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 300.0
    };
    for j in 0..all.outputs() {
        assert!((spread(all.row(j)) / target - 1.0).abs() < 1e-12);
    }
    let many = random(2000, 6, &mut rng).unwrap();
    assert!(many.values().iter().all(|p| p.abs() <= 6.0_f64.sqrt().recip()));
    let average = (0..2000).map(|j| spread(many.row(j))).sum::<f64>() / 2000.0;
    // The variance of a squared uniform is 4/45: the average of 2,000 rows is within 3 % at four sigma.
    assert!((average / target - 1.0).abs() < 0.03, "{}", average / target);
}

#[test]
fn principal_components_of_a_known_covariance() {
    let mut rng = rng(12);
    let (u, v) = ([0.6, 0.8, 0.0], [0.8, -0.6, 0.0]);
    let mut x = Vec::new();
    for e in normals(&mut rng, 3000).chunks_exact(3) {
        x.extend((0..3).map(|i| 5.0 + 3.0 * e[0] * u[i] + e[1] * v[i]));
    }
    let moments = Moments::from_rows(&x, 3).unwrap();
    let p = principal(&moments, 2).unwrap();
    // Angles of eigenvectors: √(λ₁λ₂/n)/(λ₁ − λ₂) = 3/8/√1000 = 0.012 per sigma.
    let first = Projection::new(1, 3, p.row(0).to_vec()).unwrap();
    assert!(distance(&u, &first) < 0.04);
    assert!(distance(&v, &p) < 1e-6); // the plane is exact
    assert!(p.row(0)[1] > 0.0);
    // The third direction does not exist.
    assert!(matches!(principal(&moments, 3), Err(Error::Config { .. })));
}

#[test]
fn fewer_rows_than_columns() {
    let mut rng = rng(13);
    let x = normals(&mut rng, 5 * 12);
    let y = normals(&mut rng, 5);
    let p = supervised(&x, 12, &y, 4, &PENALTIES).unwrap(); // 5 rows span 4 directions
    assert!(p.values().iter().all(|p| p.is_finite()));
    assert!(matches!(supervised(&x, 12, &y, 5, &PENALTIES), Err(Error::Config { .. })));
    assert!(supervised(&x[..24], 12, &y[..2], 1, &PENALTIES).is_ok());
}

#[test]
fn rejections() {
    let (x, y) = planted(20, |p, _| p);
    let config = |result| matches!(result, Err(Error::Config { .. }));
    assert!(config(supervised(&[], 6, &[], 1, &PENALTIES)));
    assert!(config(supervised(&x, 0, &y, 1, &PENALTIES)));
    assert!(config(supervised(&x, 6, &y, 0, &PENALTIES)));
    assert!(config(supervised(&x, 6, &y, 7, &PENALTIES)));
    assert!(config(supervised(&x, 6, &y, 1, &[])));
    assert!(config(supervised(&x, 6, &[1.0; 20], 1, &PENALTIES)));
    assert!(config(supervised(&[2.0; 120], 6, &y, 1, &PENALTIES)));
    assert!(config(supervised(&x[..6], 6, &y[..1], 1, &PENALTIES)));
    assert!(matches!(supervised(&x, 6, &y[..19], 1, &PENALTIES), Err(Error::WrongLength { .. })));
    assert!(matches!(supervised(&x[..119], 6, &y, 1, &PENALTIES), Err(Error::WrongLength { .. })));
    assert!(matches!(supervised(&x, 6, &y, 1, &[1.0, -1.0]), Err(Error::NotPositive { .. })));
    let mut broken = (x.clone(), y.clone());
    broken.0[45] = f64::NAN;
    broken.1[3] = f64::INFINITY;
    let nan = supervised(&broken.0, 6, &y, 1, &PENALTIES);
    assert!(matches!(nan, Err(Error::NotFinite { row: 7, field, .. }) if field == "x[3]"));
    let nan = supervised(&x, 6, &broken.1, 1, &PENALTIES);
    assert!(matches!(nan, Err(Error::NotFinite { row: 3, .. })));
    assert!(config(principal(&Moments::new(3), 1)));
    assert!(config(random(0, 3, &mut rng(0))));
    assert!(config(axes(0)));
}
