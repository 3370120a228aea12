//! Predictions and held-out densities of learned points, given the rows they were learned on.
//!
//! With φ = [grid features; L⁻¹κ_Z(x)] and the S, z and A of `bound`,
//!
//! ```text
//! mean = φᵀA^½ z      latent variance = ‖R⁻¹A^½φ‖² + s ρ(x),   R Rᵀ = S,   ρ = 1 − ‖L⁻¹κ_Z(x)‖²
//! ```
//!
//! M²/2 + p²/2 multiply-adds for each row and output, all in double precision.

use faer::Mat;
use faer::prelude::ReborrowMut;

use super::LearnedPoints;
use super::algebra::{cholesky, dot, solve_lower};
use super::bound::{Constants, Scales, Solved, solve, total};
use super::data::{PointsNoise, PointsRows, Table, Units};
use super::fit::Parameters;
use super::patterns::Patterns;
use super::radial::{Radial, covariance, squared_distances, squared_norms};
use super::tiles::{Centers, Sums};
use crate::error::{Result, length};
use crate::posterior::Prediction;

const BLOCK: usize = 256;

/// Learned points conditioned on rows.
#[derive(Debug, Clone)]
pub struct PointsPosterior {
    family: Radial,
    units: Units,
    groups: Vec<usize>,
    z: Mat<f64>,
    inverse_lengthscales: Vec<f64>,
    l: Mat<f64>,
    scales: Vec<Scales>,
    solved: Vec<Solved>,
}

impl PointsPosterior {
    /// Conditions on rows in standardized units.
    pub(super) fn of_table(
        family: Radial,
        units: Units,
        jitter: f64,
        table: &Table,
        parameters: &Parameters,
        threads: usize,
    ) -> Result<Self> {
        let (z, inverse) = parameters.scaled();
        let (mut k, _) = covariance(family, z.as_ref());
        (0..k.nrows()).for_each(|i| k[(i, i)] += jitter);
        let l = cholesky(k)?;
        let patterns = Patterns::new(table);
        let constants = Constants::new(table, &patterns);
        let centers = Centers { z: z.as_ref(), inverse_lengthscales: &inverse, l: l.as_ref() };
        let sums = Sums::of(family, table, &patterns, &centers, threads);
        let all = total(&sums);
        let scales = parameters.scales.clone();
        let one = |(c, own)| solve(c, (&sums, &all), &patterns, &constants, own);
        let solved = scales.iter().enumerate().map(one).collect::<Result<_>>()?;
        let groups = table.groups.clone();
        Ok(Self { family, units, groups, z, inverse_lengthscales: inverse, l, scales, solved })
    }

    /// The bound on the log evidence of the rows, summed over outputs.
    pub fn bound(&self) -> f64 {
        self.solved.iter().map(|s| s.bound).sum()
    }

    /// The predictions of each output, row after row. The targets of `rows` are checked, but have no effect.
    pub fn predict(&self, rows: &PointsRows) -> Result<Vec<Vec<Prediction>>> {
        length("outputs", self.scales.len(), rows.outputs.len())?;
        let table = Table::with_units(rows, &self.units)?;
        length("groups of grid features", self.groups.len(), table.groups.len())?;
        self.groups.iter().zip(&table.groups).try_for_each(|(&a, &b)| length("grid features", a, b))?;
        Ok(self.predict_table(&table))
    }

    /// The largest share, over outputs, of each group of grid features in what the posterior mean says about the rows.
    pub fn group_shares(&self, rows: &PointsRows) -> Result<Vec<f64>> {
        let table = Table::with_units(rows, &self.units)?;
        let mut shares = vec![0.0_f64; self.groups.len()];
        for solved in &self.solved {
            let mut squares = vec![0.0; self.groups.len()];
            for i in 0..table.len() {
                let mut from = 0;
                for (square, &size) in squares.iter_mut().zip(&self.groups) {
                    let own = |a: usize| solved.root[a] * solved.z[a] * table.grids[(a, i)];
                    *square += (from..from + size).map(own).sum::<f64>().powi(2);
                    from += size;
                }
            }
            let total = squares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            shares.iter_mut().zip(&squares).for_each(|(share, square)| *share = share.max(square / total));
        }
        Ok(shares)
    }

    /// The log density of each row's targets (with their noise), summed over outputs.
    pub fn log_densities(&self, rows: &PointsRows) -> Result<Vec<f64>> {
        let table = Table::with_units(rows, &self.units)?;
        let predictions = self.predict(rows)?;
        Ok(Self::densities(&table, &predictions))
    }

    /// The log densities of rows in standardized units.
    pub(super) fn densities_of(&self, table: &Table) -> Vec<f64> {
        Self::densities(table, &self.predict_table(table))
    }

    fn densities(table: &Table, predictions: &[Vec<Prediction>]) -> Vec<f64> {
        let density = |i: usize| {
            let outputs = table.targets.iter().zip(predictions);
            outputs.map(|(target, own)| own[i].log_density(target.y[i])).sum()
        };
        (0..table.len()).map(density).collect()
    }

    fn predict_table(&self, table: &Table) -> Vec<Vec<Prediction>> {
        let (grids, m) = (table.grids.nrows(), self.z.ncols());
        let norms = squared_norms(self.z.as_ref());
        let mut out: Vec<Vec<Prediction>> = vec![Vec::with_capacity(table.len()); self.scales.len()];
        for from in (0..table.len()).step_by(BLOCK) {
            let t = BLOCK.min(table.len() - from);
            let x =
                Mat::from_fn(table.dim(), t, |k, j| table.x[(k, from + j)] * self.inverse_lengthscales[k]);
            let (mut r2, mut slope) = (Mat::zeros(m, t), Mat::<f64>::zeros(m, t));
            let x_norms = squared_norms(x.as_ref());
            squared_distances((self.z.as_ref(), &norms), (x.as_ref(), &x_norms), r2.as_mut());
            let mut features = Mat::<f64>::zeros(grids + m, t);
            features.as_mut().subrows_mut(0, grids).copy_from(table.grids.as_ref().subcols(from, t));
            let mut own = features.as_mut().subrows_mut(grids, m);
            self.family.values(r2.as_ref(), &vec![1.0; t], own.rb_mut(), slope.as_mut());
            solve_lower(self.l.as_ref(), own);
            let outputs = self.scales.iter().zip(&self.solved).zip(&table.targets);
            for (((scales, solved), target), out) in outputs.zip(&mut out) {
                let noise = if let PointsNoise::Fixed(noise) = target.noise { noise } else { scales.noise };
                let mut white = Mat::from_fn(grids + m, t, |a, j| solved.root[a] * features[(a, j)]);
                let means: Vec<f64> = (0..t).map(|j| dot(white.col_as_slice(j), &solved.z)).collect();
                solve_lower(solved.factor.as_ref(), white.as_mut());
                for (j, &mean) in means.iter().enumerate() {
                    let own = &features.col_as_slice(j)[grids..];
                    let residual = (1.0 - dot(own, own)).max(0.0);
                    let white = white.col_as_slice(j);
                    let variance = dot(white, white) + scales.points * residual;
                    let noise = noise / target.precision[from + j];
                    out.push(Prediction { mean, variance, noise });
                }
            }
        }
        out
    }
}

impl LearnedPoints {
    /// The posterior given rows: those the points were learned on, or others.
    ///
    /// One pass over the rows, n (M²/2 + p²/2) multiply-adds.
    pub fn posterior(&self, rows: &PointsRows, threads: usize) -> Result<PointsPosterior> {
        let dim = self.lengthscales.len();
        let units = Units { center: vec![0.0; dim], unit: vec![1.0; dim] };
        let table = Table::with_units(rows, &units)?;
        length("outputs", self.scales.len(), rows.outputs.len())?;
        self.group_scales
            .iter()
            .try_for_each(|g| length("groups of grid features", g.len(), table.groups.len()))?;
        let scales = (0..self.scales.len()).map(|c| Scales {
            points: self.scales[c],
            groups: self.group_scales[c].clone(),
            noise: self.noises[c],
        });
        let parameters = Parameters {
            centers: Mat::from_fn(dim, self.centers.len() / dim.max(1), |k, i| self.centers[i * dim + k]),
            lengthscales: self.lengthscales.clone(),
            scales: scales.collect(),
        };
        PointsPosterior::of_table(Radial::new(self.family)?, units, self.jitter, &table, &parameters, threads)
    }
}
