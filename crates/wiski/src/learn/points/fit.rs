//! Minus the bound and the log priors as a function of all unknowns: what the optimizers see.
//!
//! The unknowns in their order: the centers in standardized units, one after the other (absent where centers stay put),
//! log ℓ of each column, and for each output log s, log c_j and, where it is learned, log σ². With κ̄ = ∂F/∂κ_ZX of
//! `tiles` and Π = (∂F/∂W)ᵀW of `bound`, which is symmetric and needs no rows,
//!
//! ```text
//! ∂F/∂κ_ZZ = −½ L⁻ᵀ Π L⁻¹
//! ```
//!
//! O(p³) beside the passes over the rows.

use faer::{Mat, MatRef};

use super::algebra::{cholesky, multiply, solve_upper};
use super::bound::{Constants, Scales, bound_and_adjoint};
use super::data::{PointsNoise, Table};
use super::patterns::Patterns;
use super::radial::{Radial, covariance};
use super::tiles::{Centers, Tiles};
use super::whole::WholeRows;
use super::{PointsPriors, Precision};
use crate::error::{Result, length};
use crate::interrupt;
use crate::learn::{Bounds, Hyperprior, Objective};

/// Bounds of log ℓ in standardized units, and of log σ² and log scales in units of the targets' mean square.
const LOG_LENGTHSCALE: (f64, f64) = (-4.6, 7.0);
const LOG_NOISE: (f64, f64) = (-11.5, 2.3);
const LOG_SCALE: (f64, f64) = (-11.5, 6.9);

/// Centers, length-scales and scales, in standardized units of the columns.
#[derive(Debug, Clone)]
pub(super) struct Parameters {
    /// One center a column.
    pub(super) centers: Mat<f64>,
    pub(super) lengthscales: Vec<f64>,
    pub(super) scales: Vec<Scales>,
}

impl Parameters {
    /// The centers in units of the length-scales, and the inverse length-scales.
    pub(super) fn scaled(&self) -> (Mat<f64>, Vec<f64>) {
        let inverse: Vec<f64> = self.lengthscales.iter().map(|l| l.recip()).collect();
        let z = Mat::from_fn(inverse.len(), self.centers.ncols(), |k, i| self.centers[(k, i)] * inverse[k]);
        (z, inverse)
    }
}

/// The rows in tiles, and the sums that no parameter touches.
struct TiledRows {
    tiles: AnyTiles,
    patterns: Patterns,
    constants: Constants,
}

enum AnyTiles {
    Single(Tiles<f32>),
    Double(Tiles<f64>),
}

/// The rows as the objective goes through them.
enum FitRows {
    Tiled(TiledRows),
    /// All of them are centers.
    Whole(WholeRows),
}

/// How the bound is computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numerics {
    pub(super) family: Radial,
    pub(super) jitter: f64,
    pub(super) precision: Precision,
    pub(super) threads: usize,
    pub(super) priors: PointsPriors,
    /// Whether all length-scales move by one factor.
    pub(super) tied: bool,
}

/// The rows, and the parameters to which a flat vector of unknowns is written.
pub(super) struct Fit {
    numerics: Numerics,
    rows: FitRows,
    noise: Vec<PointsNoise>,
    /// The unit of scales and noise of each output.
    units: Vec<f64>,
    /// The number of columns that are not constant: irrelevant ones make no distances.
    columns: usize,
    moving: bool,
    parameters: Parameters,
    /// The bound without priors at the last evaluation.
    pub(super) bound: f64,
    pub(super) flops: f64,
}

impl Fit {
    pub(super) fn new(table: &Table, numerics: Numerics, start: Parameters, moving: bool) -> Self {
        let rows = TiledRows::new(table, numerics, start.centers.ncols());
        Self::with_rows(table, numerics, start, moving, FitRows::Tiled(rows))
    }

    /// For centers that stay put and that every row is one of: the exact process, by n×n matrices where those are no larger
    /// than the p×p ones of its features.
    pub(super) fn of_rows(table: &Table, numerics: Numerics, start: Parameters) -> Self {
        if table.len() > start.centers.ncols() + table.grids.nrows() {
            // Few unknowns, and often little noise: worth all digits.
            return Self::new(table, Numerics { precision: Precision::Double, ..numerics }, start, false);
        }
        Self::with_rows(table, numerics, start, false, FitRows::Whole(WholeRows::new(table)))
    }

    fn with_rows(table: &Table, numerics: Numerics, start: Parameters, moving: bool, rows: FitRows) -> Self {
        let spread = |k: &usize| (0..table.len()).any(|i| table.x[(*k, i)] != table.x[(*k, 0)]);
        Self {
            numerics,
            rows,
            noise: table.targets.iter().map(|t| t.noise).collect(),
            units: table.targets.iter().map(super::data::Target::mean_square).collect(),
            columns: (0..table.dim()).filter(spread).count().max(1),
            moving,
            parameters: start,
            bound: f64::NEG_INFINITY,
            flops: 0.0,
        }
    }

    /// The same with one factor for all length-scales.
    #[cfg(test)]
    pub(super) fn tied(mut self) -> Self {
        self.numerics.tied = true;
        self
    }

    pub(super) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The number of unknowns that are coordinates of centers.
    pub(super) fn center_unknowns(&self) -> usize {
        if self.moving { self.parameters.centers.nrows() * self.parameters.centers.ncols() } else { 0 }
    }

    /// The parameters as unknowns.
    pub(super) fn unknowns(&self) -> Vec<f64> {
        let p = &self.parameters;
        let mut x = Vec::with_capacity(self.dim());
        if self.moving {
            (0..p.centers.ncols()).for_each(|i| x.extend_from_slice(p.centers.col_as_slice(i)));
        }
        x.extend(p.lengthscales.iter().map(|l| l.ln()));
        for (scales, noise) in p.scales.iter().zip(&self.noise) {
            x.push(scales.points.ln());
            x.extend(scales.groups.iter().map(|c| c.ln()));
            if noise.is_learned() {
                x.push(scales.noise.ln());
            }
        }
        x
    }

    /// Takes over unknowns.
    pub(super) fn set_unknowns(&mut self, x: &[f64]) -> Result<()> {
        length("unknowns", self.dim(), x.len())?;
        let mut rest = x.iter().copied();
        let p = &mut self.parameters;
        let mut read = |target: &mut f64| *target = rest.next().unwrap_or(*target);
        if self.moving {
            (0..p.centers.ncols()).for_each(|i| p.centers.col_as_slice_mut(i).iter_mut().for_each(&mut read));
        }
        let mut read = |target: &mut f64| *target = rest.next().map_or(*target, f64::exp);
        p.lengthscales.iter_mut().for_each(&mut read);
        for (scales, noise) in p.scales.iter_mut().zip(&self.noise) {
            read(&mut scales.points);
            scales.groups.iter_mut().for_each(&mut read);
            if noise.is_learned() {
                read(&mut scales.noise);
            }
        }
        Ok(())
    }

    /// Where unknowns may go.
    pub(super) fn bounds(&self) -> Result<Bounds> {
        let centers = self.center_unknowns();
        let (mut lo, mut hi) = (vec![f64::NEG_INFINITY; centers], vec![f64::INFINITY; centers]);
        let mut push = |(from, to): (f64, f64), unit: f64| {
            lo.push(from + unit.ln());
            hi.push(to + unit.ln());
        };
        self.parameters.lengthscales.iter().for_each(|_| push(LOG_LENGTHSCALE, 1.0));
        for ((scales, noise), &unit) in self.parameters.scales.iter().zip(&self.noise).zip(&self.units) {
            push(LOG_SCALE, unit);
            scales.groups.iter().for_each(|_| push(LOG_SCALE, 1.0));
            match *noise {
                PointsNoise::Learned => push(LOG_NOISE, unit),
                PointsNoise::AtLeast(least) => push((0.0, LOG_NOISE.1 + (unit / least).ln().max(0.0)), least),
                PointsNoise::Fixed(_) => {}
            }
        }
        Bounds::new(lo, hi)
    }

    /// Minus bound and priors at the present parameters, and the derivative in every unknown.
    fn value_and_gradient(&mut self, gradient: &mut [f64]) -> Result<f64> {
        interrupt::check()?;
        let (by_centers, rest) = gradient.split_at_mut(self.center_unknowns());
        let (by_lengths, slots) = rest.split_at_mut(self.parameters.lengthscales.len());
        let by_scales = match &mut self.rows {
            FitRows::Tiled(rows) => {
                let by_centers = self.moving.then_some(by_centers);
                let (bound, by_scales) =
                    rows.bound(&self.parameters, &self.numerics, by_centers, by_lengths)?;
                self.bound = bound;
                self.flops += 2.0 * rows.multiply_adds(self.parameters.centers.ncols());
                by_scales
            }
            FitRows::Whole(rows) => {
                let Parameters { lengthscales, scales, .. } = &self.parameters;
                let evidence =
                    rows.evidence(self.numerics.family, lengthscales, scales, self.numerics.threads)?;
                self.bound = evidence.value;
                self.flops += 2.0 * rows.multiply_adds();
                by_lengths.iter_mut().zip(evidence.by_lengthscales).for_each(|(slot, g)| *slot = -g);
                evidence.by_scales
            }
        };
        let mut next = slots.iter_mut();
        for (own, noise) in by_scales.iter().zip(&self.noise) {
            let learned = noise.is_learned().then_some(&own.noise);
            let all = std::iter::once(&own.points).chain(&own.groups).chain(learned);
            all.zip(&mut next).for_each(|(g, slot)| *slot = -g);
        }
        let priors = self.add_priors(by_lengths, slots);
        if self.numerics.tied {
            // The gradient along the one direction that is left: optimizers that start with equal steps keep them equal.
            let mean = by_lengths.iter().sum::<f64>() / by_lengths.len() as f64;
            by_lengths.fill(mean);
        }
        Ok(-self.bound - priors)
    }

    /// The log priors; their derivatives are taken from the gradient of what is minimized.
    fn add_priors(&self, by_lengths: &mut [f64], by_scales: &mut [f64]) -> f64 {
        let priors = &self.numerics.priors;
        let center = (priors.lengthscale_median * (self.columns as f64).sqrt()).ln();
        let mut total = 0.0;
        for (g, l) in by_lengths.iter_mut().zip(&self.parameters.lengthscales) {
            let off = (l.ln() - center) / priors.lengthscale_sigma;
            total -= 0.5 * off * off;
            *g += off / priors.lengthscale_sigma;
        }
        let mut slots = by_scales.iter_mut();
        for ((scales, noise), &unit) in self.parameters.scales.iter().zip(&self.noise).zip(&self.units) {
            let own = std::iter::once((&priors.scale, scales.points / unit));
            let groups = scales.groups.iter().map(|&c| (&priors.group_scale, c));
            for ((prior, value), slot) in own.chain(groups).zip(&mut slots) {
                total += prior.log_density(value);
                *slot -= value * prior.derivative(value);
            }
            if noise.is_learned() {
                slots.next();
            }
        }
        total
    }
}

impl TiledRows {
    fn new(table: &Table, numerics: Numerics, centers: usize) -> Self {
        let patterns = Patterns::new(table);
        let constants = Constants::new(table, &patterns);
        let Numerics { family, threads, .. } = numerics;
        let tiles = match numerics.precision {
            Precision::Single => AnyTiles::Single(Tiles::new(family, table, &patterns, centers, threads)),
            Precision::Double => AnyTiles::Double(Tiles::new(family, table, &patterns, centers, threads)),
        };
        Self { tiles, patterns, constants }
    }

    /// The bound and its derivatives in the logarithms of scales and noise; writes those of minus the bound in log ℓ and, where
    /// they move, in the centers.
    fn bound(
        &mut self,
        parameters: &Parameters,
        numerics: &Numerics,
        mut by_centers: Option<&mut [f64]>,
        by_lengths: &mut [f64],
    ) -> Result<(f64, Vec<Scales>)> {
        let (z, inverse) = parameters.scaled();
        let (mut k, slope) = covariance(numerics.family, z.as_ref());
        (0..k.nrows()).for_each(|i| k[(i, i)] += numerics.jitter);
        let l = cholesky(k)?;
        let centers = Centers { z: z.as_ref(), inverse_lengthscales: &inverse, l: l.as_ref() };
        let sums = match &mut self.tiles {
            AnyTiles::Single(tiles) => tiles.forward(&centers),
            AnyTiles::Double(tiles) => tiles.forward(&centers),
        };
        interrupt::check()?;
        let (bound, adjoint) =
            bound_and_adjoint(&sums, &self.patterns, &self.constants, &parameters.scales, numerics.threads)?;
        let by_covariance = by_covariance(adjoint.pi, l.as_ref());
        let pull = match &mut self.tiles {
            AnyTiles::Single(tiles) => tiles.backward(adjoint.grams, adjoint.linear, l.as_ref()),
            AnyTiles::Double(tiles) => tiles.backward(adjoint.grams, adjoint.linear, l.as_ref()),
        };
        interrupt::check()?;

        let (d, m) = (z.nrows(), z.ncols());
        // ∂F/∂r² between centers, and its sums.
        let e = Mat::from_fn(m, m, |i, j| -by_covariance[(i, j)] * slope[(i, j)]);
        let mut moments = Mat::zeros(m, d);
        multiply(moments.as_mut(), false, e.as_ref(), z.transpose(), 1.0);
        let sums: Vec<f64> = (0..m).map(|j| e.col_as_slice(j).iter().sum()).collect();
        by_lengths.fill(0.0);
        for i in 0..m {
            for k in 0..d {
                let z = z[(k, i)];
                let rows = pull.by_center[i] * z - pull.moments[(i, k)];
                let own = sums[i] * z - moments[(i, k)];
                if let Some(by_centers) = &mut by_centers {
                    // The covariance of centers has each of them on both sides.
                    by_centers[i * d + k] = -(2.0 * rows + 4.0 * own) * inverse[k];
                }
                by_lengths[k] += 2.0 * z * (rows - pull.moments[(i, k)]) + 4.0 * z * own;
            }
        }
        by_lengths.iter_mut().zip(&pull.squares).for_each(|(g, s)| *g += 2.0 * s);
        Ok((bound, adjoint.scales))
    }

    /// Multiply-adds of an evaluation with so many centers.
    fn multiply_adds(&self, centers: usize) -> f64 {
        let rows = match &self.tiles {
            AnyTiles::Single(tiles) => tiles.flops(true),
            AnyTiles::Double(tiles) => tiles.flops(true),
        };
        let m = centers as f64;
        let p = m + self.constants.grid_features() as f64;
        let (outputs, patterns) = (self.patterns.common.len() as f64, self.patterns.rows.len() as f64);
        // Factor and inverse of S for each output; L⁻ᵀB for each pattern; the factor and derivative of κ(Z, Z).
        0.5 * rows + outputs * p.powi(3) + patterns * (0.5 * p * m * m) + 7.0 / 6.0 * m.powi(3)
    }
}

impl Objective for Fit {
    fn dim(&self) -> usize {
        let p = &self.parameters;
        let learned = self.noise.iter().filter(|n| n.is_learned()).count();
        let scales: usize = p.scales.iter().map(|s| 1 + s.groups.len()).sum();
        self.center_unknowns() + p.lengthscales.len() + scales + learned
    }

    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> Result<f64> {
        self.set_unknowns(x)?;
        length("gradient", self.dim(), gradient.len())?;
        self.value_and_gradient(gradient)
    }
}

/// ∂F/∂κ_ZZ = −½ L⁻ᵀ Π L⁻¹.
fn by_covariance(mut pi: Mat<f64>, l: MatRef<'_, f64>) -> Mat<f64> {
    solve_upper(l, pi.as_mut());
    let mut pi = pi.transpose().to_owned();
    solve_upper(l, pi.as_mut());
    pi * faer::Scale(-0.5)
}

/// The noise to start from, and the scales of points and groups, for targets of the given mean square.
pub(super) fn start_scales(table: &Table, signal: f64) -> Vec<Scales> {
    let start = |t: &super::data::Target| {
        let unit = t.mean_square();
        let noise = match t.noise {
            PointsNoise::Learned => unit * (1.0 - signal),
            PointsNoise::AtLeast(noise) => 2.0 * noise,
            PointsNoise::Fixed(noise) => noise,
        };
        Scales { points: unit * signal, groups: vec![1.0; table.groups.len()], noise }
    };
    table.targets.iter().map(start).collect()
}

/// Priors that reject nothing a search can reach.
pub(super) fn check_priors(priors: &PointsPriors) -> Result<()> {
    crate::error::positive("lengthscale_median", priors.lengthscale_median, 0)?;
    crate::error::positive("lengthscale_sigma", priors.lengthscale_sigma, 0)?;
    let both: [&Hyperprior; 2] = [&priors.scale, &priors.group_scale];
    both.into_iter().try_for_each(Hyperprior::validate)
}
