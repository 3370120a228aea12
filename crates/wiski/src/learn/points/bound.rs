//! The collapsed bound from sums, its derivatives in scales and noise, and those in the sums.
//!
//! For each output, with a = [c_j of the grid groups; s of the points], A = diag(a), G and b of `tiles`, t = Σ ρ_i/d_i:
//!
//! ```text
//! S = I + A^½ G A^½/σ²      β = A^½ b/σ²      z = S⁻¹β      u = A^½ z      P = A^½ S⁻¹ A^½
//! F = −½ [ yᵀD⁻¹y/σ² − βᵀz + log det S + n log σ² + Σ log d + n log 2π ] − s t/(2σ²)
//! ∂F/∂G = −½ (u uᵀ + P)/σ²      ∂F/∂b = u/σ²      ∂F/∂t = −s/(2σ²)
//! ∂F/∂log a_j = ½ Σ_{i∈j} [ z_i² + (S⁻¹)_ii − 1 ]      (− s t/(2σ²) for the points)
//! ∂F/∂log σ² = ½ [ yᵀD⁻¹y/σ² − βᵀz − zᵀz − n + p − tr S⁻¹ ] + s t/(2σ²)
//! ```
//!
//! Through the features of the points W the bound depends on L, too, by Π = (∂F/∂W)ᵀW = 2 (∂F/∂G) G + (∂F/∂b) bᵀ. Since
//! A^½ G A^½/σ² = S − I and A is one number on the points, no product is needed for it: on them
//!
//! ```text
//! Π = z zᵀ + S⁻¹ − I + s G/σ²
//! ```
//!
//! This is Titsias' bound (2009) for the points and exact for the grids. t is a function of G: the points' features of a
//! row have the squared norm 1 − ρ. O(p³) for each output; nothing here depends on the number of rows.

use faer::Mat;

use super::algebra::{cholesky, dot, inverse_of_cholesky, log_det, solve_lower_vector, solve_upper_vector};
use super::data::Table;
use super::patterns::Patterns;
use super::tiles::Sums;
use crate::error::Result;
use crate::{interrupt, simd, threads};

/// Scales and noise of one output.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scales {
    /// s, the variance of the points' function.
    pub(super) points: f64,
    /// c_j, the factors of the grid groups' variances.
    pub(super) groups: Vec<f64>,
    /// σ².
    pub(super) noise: f64,
}

/// Sums of the data that no parameter touches.
#[derive(Debug, Clone)]
pub(super) struct Constants {
    rows: f64,
    /// yᵀD⁻¹y and Σ log d of each output.
    squares: Vec<f64>,
    log_noise: Vec<f64>,
    /// H_k.
    masses: Vec<f64>,
    /// The group of each grid feature.
    group: Vec<usize>,
}

impl Constants {
    pub(super) fn new(table: &Table, patterns: &Patterns) -> Self {
        let squares =
            |t: &super::data::Target| t.y.iter().zip(&t.precision).map(|(y, w)| w * y * y).sum::<f64>();
        let groups = table.groups.iter().enumerate();
        Self {
            rows: table.len() as f64,
            squares: table.targets.iter().map(squares).collect(),
            log_noise: table
                .targets
                .iter()
                .map(|t| -t.precision.iter().map(|w| w.ln()).sum::<f64>())
                .collect(),
            masses: (0..patterns.rows.len()).map(|k| patterns.mass(k)).collect(),
            group: groups.flat_map(|(j, &size)| std::iter::repeat_n(j, size)).collect(),
        }
    }
}

impl Constants {
    /// The number of features beside the points.
    pub(super) fn grid_features(&self) -> usize {
        self.group.len()
    }
}

/// The posterior of one output in the coordinates of A^½.
#[derive(Debug, Clone)]
pub(super) struct Solved {
    pub(super) bound: f64,
    /// √a of every feature.
    pub(super) root: Vec<f64>,
    /// The lower factor of S.
    pub(super) factor: Mat<f64>,
    pub(super) z: Vec<f64>,
    beta: Vec<f64>,
    /// s t/σ².
    trace: f64,
}

/// Derivatives of the sum of the outputs' bounds.
#[derive(Debug, Clone)]
pub(super) struct Adjoint {
    /// 2 ∂F/∂G_k, the rows of the points, with the part of t: M×p each.
    pub(super) grams: Vec<Mat<f64>>,
    /// ∂F/∂b_c, the rows of the points.
    pub(super) linear: Mat<f64>,
    /// Π, symmetric.
    pub(super) pi: Mat<f64>,
    /// ∂F/∂log s, ∂F/∂log c_j and ∂F/∂log σ² of each output.
    pub(super) scales: Vec<Scales>,
}

/// Solves for one output.
pub(super) fn solve(
    c: usize,
    (sums, total): (&Sums, &Mat<f64>),
    patterns: &Patterns,
    constants: &Constants,
    scales: &Scales,
) -> Result<Solved> {
    let (p, grids) = (total.nrows(), constants.group.len());
    let noise = scales.noise;
    let root: Vec<f64> = (0..p)
        .map(|i| if i < grids { scales.groups[constants.group[i]] } else { scales.points }.sqrt())
        .collect();
    // G of this output: the common weight times all rows, and the few patterns that deviate.
    let mut s = total * faer::Scale(patterns.common[c]);
    let mut mass = 0.0;
    for (k, weights) in patterns.weights.iter().enumerate() {
        let deviation = weights[c] - patterns.common[c];
        if deviation != 0.0 {
            add_scaled(&mut s, deviation, &sums.grams[k]);
        }
        mass += weights[c] * constants.masses[k];
    }
    let covered: f64 = (grids..p).map(|i| s[(i, i)]).sum();
    // Rounding may take a hair more than everything.
    let trace = scales.points * (mass - covered).max(0.0) / noise;
    for j in 0..p {
        let factor = root[j] / noise;
        for (value, r) in s.col_as_slice_mut(j).iter_mut().zip(&root) {
            *value *= factor * r;
        }
        s[(j, j)] += 1.0;
    }
    let factor = cholesky(s)?;
    let b = sums.linear.col_as_slice(c);
    let beta: Vec<f64> = b.iter().zip(&root).map(|(b, r)| b * r / noise).collect();
    let mut z = beta.clone();
    solve_lower_vector(factor.as_ref(), &mut z);
    solve_upper_vector(factor.as_ref(), &mut z);
    let n = constants.rows;
    let fit = constants.squares[c] / noise - dot(&beta, &z) + log_det(factor.as_ref());
    let normal = n * noise.ln() + constants.log_noise[c] + n * std::f64::consts::TAU.ln();
    Ok(Solved { bound: -0.5 * (fit + normal + trace), root, factor, z, beta, trace })
}

/// Σ_k G_k.
pub(super) fn total(sums: &Sums) -> Mat<f64> {
    let p = sums.linear.nrows();
    sums.grams.iter().fold(Mat::zeros(p, p), |total, gram| total + gram)
}

/// What one output adds to the bound and its derivatives.
struct Part {
    bound: f64,
    /// 2 ∂F/∂G, the rows of the points, with the part of t.
    by_gram: Mat<f64>,
    /// ∂F/∂b, the rows of the points.
    by_linear: Vec<f64>,
    /// z zᵀ + S⁻¹ − I of the points.
    pi: Mat<f64>,
    by_scales: Scales,
}

/// The bound of all outputs, and its derivatives; outputs by at most so many threads.
pub(super) fn bound_and_adjoint(
    sums: &Sums,
    patterns: &Patterns,
    constants: &Constants,
    scales: &[Scales],
    threads: usize,
) -> Result<(f64, Adjoint)> {
    let all = total(sums);
    let (p, grids) = (all.nrows(), constants.group.len());
    let m = p - grids;
    let part = |c: usize| -> Result<Part> {
        interrupt::check()?;
        let own = &scales[c];
        let solved = solve(c, (sums, &all), patterns, constants, own)?;
        let inverse = inverse_of_cholesky(solved.factor.as_ref());
        let squares = constants.squares[c] / own.noise;
        let by_scales = solved.by_scales(squares, constants, own.groups.len(), &inverse);
        let (noise, r) = (own.noise, &solved.root);
        let u: Vec<f64> = solved.z.iter().zip(r).map(|(z, r)| z * r).collect();
        let mut by_gram = Mat::zeros(m, p);
        for j in 0..p {
            let rows = inverse.col_as_slice(j)[grids..].iter().zip(&r[grids..]).zip(&u[grids..]);
            for (out, ((inverse, root), own)) in by_gram.col_as_slice_mut(j).iter_mut().zip(rows) {
                *out = -(own * u[j] + root * r[j] * inverse) / noise;
            }
            if j >= grids {
                by_gram[(j - grids, j)] += own.points / noise;
            }
        }
        let by_linear = u[grids..].iter().map(|u| u / noise).collect();
        let z = &solved.z[grids..];
        let mut pi = Mat::zeros(m, m);
        for j in 0..m {
            let rows = inverse.col_as_slice(grids + j)[grids..].iter().zip(z);
            pi.col_as_slice_mut(j).iter_mut().zip(rows).for_each(|(pi, (i, own))| *pi = own * z[j] + i);
            pi[(j, j)] -= 1.0;
        }
        Ok(Part { bound: solved.bound, by_gram, by_linear, pi, by_scales })
    };
    let parts = threads::map(threads, (0..scales.len()).collect(), part);

    let (mut bound, mut by_scales) = (0.0, Vec::with_capacity(scales.len()));
    let (mut common, mut by_linear) = (Mat::zeros(m, p), Mat::zeros(m, scales.len()));
    let mut deviating: Vec<Option<Mat<f64>>> = vec![None; patterns.weights.len()];
    let mut pi = Mat::zeros(m, m);
    for (weights, gram) in patterns.weights.iter().zip(&sums.grams) {
        let c: f64 = weights.iter().zip(scales).map(|(w, own)| w * own.points / own.noise).sum();
        for j in 0..m {
            simd::add_scaled(pi.col_as_slice_mut(j), c, &gram.col_as_slice(grids + j)[grids..]);
        }
    }
    for (c, part) in parts.into_iter().enumerate() {
        let Part { bound: own, by_gram, by_linear: linear, pi: own_pi, by_scales: scales } = part?;
        bound += own;
        add_scaled(&mut pi, 1.0, &own_pi);
        by_scales.push(scales);
        by_linear.col_as_slice_mut(c).copy_from_slice(&linear);
        add_scaled(&mut common, patterns.common[c], &by_gram);
        for (k, weights) in patterns.weights.iter().enumerate() {
            let deviation = weights[c] - patterns.common[c];
            if deviation != 0.0 {
                let own = deviating[k].get_or_insert_with(|| Mat::zeros(m, p));
                add_scaled(own, deviation, &by_gram);
            }
        }
    }
    let whole = |own: Option<Mat<f64>>| own.map_or_else(|| common.clone(), |own| own + &common);
    let grams = deviating.into_iter().map(whole).collect();
    Ok((bound, Adjoint { grams, linear: by_linear, pi, scales: by_scales }))
}

/// A += c B.
fn add_scaled(a: &mut Mat<f64>, c: f64, b: &Mat<f64>) {
    if c != 0.0 {
        (0..b.ncols()).for_each(|j| simd::add_scaled(a.col_as_slice_mut(j), c, b.col_as_slice(j)));
    }
}

impl Solved {
    /// Derivatives in the logarithms of the scales, given yᵀD⁻¹y/σ².
    fn by_scales(&self, squares: f64, constants: &Constants, groups: usize, inverse: &Mat<f64>) -> Scales {
        let (p, grids) = (self.z.len(), constants.group.len());
        let mut groups = vec![0.0; groups];
        let (mut points, mut leverage) = (-0.5 * self.trace, 0.0);
        for i in 0..p {
            let gain = 0.5 * (self.z[i].powi(2) + inverse[(i, i)] - 1.0);
            leverage += gain;
            if i < grids { groups[constants.group[i]] += gain } else { points += gain }
        }
        let noise = 0.5 * (squares - dot(&self.beta, &self.z) - constants.rows + self.trace) - leverage;
        Scales { points, groups, noise }
    }
}
