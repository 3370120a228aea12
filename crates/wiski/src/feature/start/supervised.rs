//! The supervised start: ridge direction and principal Hessian directions. The formulas stand in the parent
//! module.

use faer::Mat;

use crate::error::{Error, Result, length, positive};

use super::dense::{Eigen, gram, times};
use super::{enough_directions, signed};
use crate::feature::moments::{at_row, rows_of};
use crate::feature::{Moments, Projection, check_finite};

/// Standardized values are pulled in to ±4: a Gaussian column has 6 in 100,000 beyond.
const CLIP: f64 = 4.0;

/// A column whose variation rests on fewer rows than this says nothing that could hold for other rows.
const SPEAKING_ROWS: f64 = 5.0;

/// The number of folds that choose τ.
const FOLDS: usize = 5;

/// The direction of ridge regression, then the leading principal Hessian directions of its residuals.
///
/// `x` holds `inputs` values a row, one row for every `y`. `penalties` are tried in turn (one value fixes
/// the shrinkage); [`PENALTIES`](super::PENALTIES) is a good list. Fewer rows than columns, constant columns and collinear
/// columns are dealt with; a constant y, or rows that vary in fewer than `outputs` directions, are rejected.
pub fn supervised(
    x: &[f64],
    inputs: usize,
    y: &[f64],
    outputs: usize,
    penalties: &[f64],
) -> Result<Projection> {
    let n = rows_of("x", x, inputs)?.len();
    length("y", n, y.len())?;
    check_y(y)?;
    if penalties.is_empty() {
        return Err(Error::Config { field: "penalties".into(), reason: "at least one is needed".into() });
    }
    for (i, &penalty) in penalties.iter().enumerate() {
        positive(format!("penalties[{i}]"), penalty, 0)?;
    }
    let moments = Moments::from_rows(x, inputs)?;
    let columns = Standardized::new(x, &moments);
    enough_directions(outputs, columns.active.len())?;

    let gram = gram(&columns.z, |_| 1.0);
    let eigen = Eigen::new(&gram)?;
    let rank = eigen.rank();
    enough_directions(outputs, rank)?;
    // From here on in the eigenbasis of R: t = Uᵀz has covariance diag(l).
    let t = &columns.z * eigen.vectors.subcols(0, rank);
    let l = &eigen.values[..rank];

    let mean = y.iter().sum::<f64>() / n as f64;
    let centered: Vec<f64> = y.iter().map(|y| y - mean).collect();
    let (beta, residual) = ridge(&t, l, &centered, penalties);
    if beta.iter().all(|&b| b == 0.0) {
        return Err(Error::Config { field: "y".into(), reason: "it has no linear part at all".into() });
    }
    let mut directions = vec![beta];
    if outputs > 1 {
        let tau = hessian_shrinkage(&t, l, &residual, &directions[0], penalties)?;
        directions.extend(hessian_directions(&t, l, &residual, &directions[0], tau, outputs - 1)?);
    }
    let mut values = Vec::with_capacity(outputs * inputs);
    for direction in &directions {
        let mut row = vec![0.0; inputs];
        for (column, &(i, inverse_std)) in columns.active.iter().enumerate() {
            let weight: f64 = (0..rank).map(|a| eigen.vectors[(column, a)] * direction[a]).sum();
            row[i] = weight * inverse_std;
        }
        values.extend(signed(row));
    }
    Projection::new(outputs, inputs, values)?.rescale(&moments)
}

/// β(λ) in the eigenbasis and its residuals, λ taken from the list by exact leave-one-out error.
///
/// The hat matrix of the fit with an intercept has H_ii = 1/n + Σ_a t_ia²/(n(l_a + λ)), so every λ costs
/// O(nD) and no refit (see `left_out`).
fn ridge(t: &Mat<f64>, l: &[f64], y: &[f64], penalties: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (n, count) = (t.nrows(), t.nrows() as f64);
    let c: Vec<f64> = (0..l.len()).map(|a| (0..n).map(|i| t[(i, a)] * y[i]).sum::<f64>() / count).collect();
    let fit = |penalty: f64| {
        let beta: Vec<f64> = c.iter().zip(l).map(|(c, l)| c / (l + penalty)).collect();
        let residual: Vec<f64> =
            (0..n).map(|i| y[i] - beta.iter().enumerate().map(|(a, b)| t[(i, a)] * b).sum::<f64>()).collect();
        (beta, residual)
    };
    let error = |penalty: f64| left_out(t, l, &fit(penalty).1, penalty).iter().map(|e| e * e).sum();
    fit(smallest(penalties, error))
}

/// The error at each row of the fit to all other rows, e_i/(1 − H_ii).
fn left_out(t: &Mat<f64>, l: &[f64], residual: &[f64], penalty: f64) -> Vec<f64> {
    let count = t.nrows() as f64;
    let error = |(i, e): (usize, &f64)| {
        let leverage: f64 = l.iter().enumerate().map(|(a, l)| t[(i, a)].powi(2) / (l + penalty)).sum();
        e / (1.0 - (1.0 + leverage) / count).max(f64::EPSILON)
    };
    residual.iter().enumerate().map(error).collect()
}

/// τ for the Hessian directions: the one whose first direction, found on four fifths of the rows, shows the
/// largest curvature on the fifth left out.
///
/// With v the direction found and u ∝ M v, both scaled to projections of variance 1, the curvature held out is
/// the mean of r (u·t)(v·t); it is unbiased for every τ, so the largest is the best.
fn hessian_shrinkage(
    t: &Mat<f64>,
    l: &[f64],
    residual: &[f64],
    beta: &[f64],
    penalties: &[f64],
) -> Result<f64> {
    let folds = FOLDS.min(t.nrows());
    let parts: Vec<Mat<f64>> =
        (0..folds).map(|fold| gram(t, |i| if i % folds == fold { residual[i] } else { 0.0 })).collect();
    let whole = gram(t, |i| residual[i]);
    let mut losses = Vec::with_capacity(penalties.len());
    for &tau in penalties {
        let mut curvature = 0.0;
        for part in &parts {
            let seen = &whole - part;
            let Some(v) = leading_directions(&seen, l, beta, tau, 1)?.pop() else { continue };
            let u: Vec<f64> = times(&seen, &v).iter().zip(l).map(|(u, l)| u / (l + tau)).collect();
            let spread = projected_variance(&u, l) * projected_variance(&v, l);
            if spread > 0.0 {
                let held_out: f64 = times(part, &v).iter().zip(&u).map(|(a, b)| a * b).sum();
                curvature += held_out / spread.sqrt();
            }
        }
        losses.push(-curvature);
    }
    let mut losses = losses.into_iter();
    Ok(smallest(penalties, |_| losses.next().unwrap_or(f64::INFINITY)))
}

fn hessian_directions(
    t: &Mat<f64>,
    l: &[f64],
    residual: &[f64],
    beta: &[f64],
    tau: f64,
    count: usize,
) -> Result<Vec<Vec<f64>>> {
    leading_directions(&gram(t, |i| residual[i]), l, beta, tau, count)
}

/// The directions v ⊥ β (in the whitened metric) that maximize ‖M v‖, from the weighted Gram matrix
/// E[r t tᵀ], as weights on t. Fewer than `count` if the space has fewer.
fn leading_directions(
    hessian: &Mat<f64>,
    l: &[f64],
    beta: &[f64],
    tau: f64,
    count: usize,
) -> Result<Vec<Vec<f64>>> {
    let size = l.len();
    let root: Vec<f64> = l.iter().map(|l| (l + tau).sqrt()).collect();
    let length = (0..size).map(|a| (root[a] * beta[a]).powi(2)).sum::<f64>().sqrt();
    let q: Vec<f64> = (0..size).map(|a| root[a] * beta[a] / length).collect();
    let whitened = Mat::from_fn(size, size, |a, b| hessian[(a, b)] / (root[a] * root[b]));
    let along = times(&whitened, &q);
    let deflated = Mat::from_fn(size, size, |a, b| whitened[(a, b)] - along[a] * q[b]);
    let eigen = Eigen::new(&(deflated.transpose() * &deflated))?;
    // The last eigenvector is q itself.
    Ok((0..count.min(size - 1))
        .map(|e| (0..size).map(|a| eigen.vectors[(a, e)] / root[a]).collect())
        .collect())
}

/// Standardized columns without the (nearly) constant ones, extremes pulled in, centered again.
struct Standardized {
    /// Column of x and 1/std, for every column of z.
    active: Vec<(usize, f64)>,
    z: Mat<f64>,
}

impl Standardized {
    fn new(x: &[f64], moments: &Moments) -> Self {
        let d = moments.dim();
        let mut active = Vec::with_capacity(d);
        let mut columns = Vec::with_capacity(d);
        for (i, variance) in moments.variances().enumerate() {
            let (mean, std) = (moments.mean()[i], variance.sqrt());
            // What rounding of a constant can produce is not variation.
            if std <= 16.0 * f64::EPSILON * mean.abs() || !std.recip().is_finite() {
                continue;
            }
            let values = x.iter().skip(i).step_by(d);
            let mut z: Vec<f64> = values.map(|x| ((x - mean) / std).clamp(-CLIP, CLIP)).collect();
            let center = z.iter().sum::<f64>() / z.len() as f64;
            for z in &mut z {
                *z -= center;
            }
            if speaking_rows(&z) >= SPEAKING_ROWS.min(z.len() as f64 / 8.0) {
                active.push((i, std.recip()));
                columns.push(z);
            }
        }
        let z = Mat::from_fn(x.len() / d, columns.len(), |row, column| columns[column][row]);
        Self { active, z }
    }
}

/// On how many rows the variation of a column rests: (Σz²)²/Σz⁴, which is r for r equal spikes among many rows
/// and n/3 for a Gaussian column.
fn speaking_rows(z: &[f64]) -> f64 {
    let second: f64 = z.iter().map(|z| z * z).sum();
    let fourth: f64 = z.iter().map(|z| z.powi(4)).sum();
    second * second / fourth
}

fn projected_variance(direction: &[f64], l: &[f64]) -> f64 {
    direction.iter().zip(l).map(|(d, l)| d * d * l).sum()
}

/// The candidate with the smallest loss; the first of equals.
fn smallest(candidates: &[f64], mut loss: impl FnMut(f64) -> f64) -> f64 {
    let mut best = (f64::INFINITY, candidates[0]);
    for &candidate in candidates {
        let value = loss(candidate);
        if value < best.0 {
            best = (value, candidate);
        }
    }
    best.1
}

fn check_y(y: &[f64]) -> Result<()> {
    for (row, &value) in y.iter().enumerate() {
        check_finite("y", &[value]).map_err(|error| at_row(error, row))?;
    }
    if y.iter().all(|&value| value == y[0]) {
        let reason = if y.is_empty() { "there are no rows" } else { "it is constant" };
        return Err(Error::Config { field: "y".into(), reason: reason.into() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use faer::linalg::solvers::Solve;
    use rand::SeedableRng;
    use rand_distr::{Distribution, StandardNormal};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// The closed form against n fits, each without one row, of intercept and coefficients together.
    #[test]
    fn leave_one_out_is_exact() {
        let (n, d) = (15, 4);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut draw =
            |count: usize| -> Vec<f64> { StandardNormal.sample_iter(&mut rng).take(count).collect() };
        let x = draw(n * d);
        let columns = Standardized::new(&x, &Moments::from_rows(&x, d).unwrap());
        let mut y = draw(n);
        let mean = y.iter().sum::<f64>() / n as f64;
        for y in &mut y {
            *y -= mean;
        }
        let eigen = Eigen::new(&gram(&columns.z, |_| 1.0)).unwrap();
        let t = &columns.z * &eigen.vectors;
        for penalty in [1e-3, 0.2, 5.0] {
            let (_, residual) = ridge(&t, &eigen.values, &y, &[penalty]);
            let quick = left_out(&t, &eigen.values, &residual, penalty);
            for out in 0..n {
                // Rows (1, z) other than the one left out; the penalty spares the intercept.
                let entry = |i: usize, a: usize| if a == 0 { 1.0 } else { columns.z[(i, a - 1)] };
                let kept = || (0..n).filter(|&i| i != out);
                let normal = Mat::from_fn(d + 1, d + 1, |a, b| {
                    let ridge = if a == b && a > 0 { n as f64 * penalty } else { 0.0 };
                    kept().map(|i| entry(i, a) * entry(i, b)).sum::<f64>() + ridge
                });
                let right = Mat::from_fn(d + 1, 1, |a, _| kept().map(|i| entry(i, a) * y[i]).sum::<f64>());
                let beta = normal.partial_piv_lu().solve(&right);
                let error = y[out] - (0..=d).map(|a| entry(out, a) * beta[(a, 0)]).sum::<f64>();
                assert!((quick[out] - error).abs() < 1e-12 * (1.0 + error.abs()), "{} {error}", quick[out]);
            }
        }
    }
}
