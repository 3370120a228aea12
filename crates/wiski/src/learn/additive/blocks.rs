//! From a list of blocks to grids, kernels and a feature map, and back.

use std::sync::Arc;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{AdditiveSearch, quick};
use crate::error::Result;
use crate::feature::{Column, FeatureMap, Linear, Mixed, Moments, Projection, Source, start};
use crate::grid::{Axis, Grid, Lattice};
use crate::kernel::{Family, Kernel};
use crate::learn::{HyperSpace, Hyperparameters, Rows, WarmUp};
use crate::points::Points;

/// One block: the coordinates it reads, and the grid points on each axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Block {
    pub(super) axes: Vec<Reading>,
    pub(super) points: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reading {
    /// A direction through the numeric columns.
    Direction(Vec<f64>),
    /// A periodic or categorical column.
    Column(usize),
}

impl AdditiveSearch<'_> {
    pub(super) fn numeric(&self) -> Vec<usize> {
        (0..self.columns.len()).filter(|&c| self.columns[c] == Column::Numeric).collect()
    }

    /// The numeric columns of the rows.
    pub(super) fn numeric_rows(&self, rows: &Rows) -> Vec<f64> {
        let numeric = self.numeric();
        rows.x.chunks_exact(self.columns.len()).flat_map(|x| numeric.iter().map(|&c| x[c])).collect()
    }

    /// One block for the ridge direction, for every column, and for random directions up to the number wanted.
    pub(super) fn base(&self, rows: &Rows) -> Result<Vec<Block>> {
        let mut blocks = Vec::new();
        let d = self.numeric().len();
        if d > 0 {
            let x = self.numeric_rows(rows);
            let moments = Moments::from_rows(&x, d)?;
            let mut all = start::axes(d)?.rescale(&moments)?;
            if d > 1 && self.directions > d {
                // Targets without a linear part have no ridge direction.
                if let Ok(ridge) = start::supervised(&x, d, &rows.y, 1, &start::PENALTIES) {
                    all = all.stack(&ridge)?;
                }
                if let Some(missing) = self.directions.checked_sub(all.outputs()).filter(|&m| m > 0) {
                    let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
                    all = all.stack(&start::random(missing, d, &mut rng)?.rescale(&moments)?)?;
                }
            }
            let usable = |j: usize| j >= d || moments.variance(j) > 0.0;
            let rows = (0..all.outputs()).filter(|&j| usable(j)).map(|j| all.row(j).to_vec());
            blocks.extend(rows.map(|row| Block { axes: vec![Reading::Direction(row)], points: self.points }));
        }
        let special =
            (0..self.columns.len() - self.recurring).filter(|&c| self.columns[c] != Column::Numeric);
        blocks.extend(special.map(|c| Block { axes: vec![Reading::Column(c)], points: self.points }));
        Ok(blocks)
    }

    /// The blocks on the given rows with their hyperparameters fitted, from those of `before` on as far as they
    /// have the same blocks.
    pub(super) fn fitted(
        &self,
        blocks: &[Block],
        rows: &Rows,
        before: Option<&Hyperparameters>,
    ) -> Result<WarmUp> {
        let mut warm = self.assembled(blocks, rows, before, None)?;
        warm.fit_hyperparameters(&quick())?;
        Ok(warm)
    }

    /// The blocks on the given rows with the hyperparameters of `before`, as far as they have the same blocks, and
    /// inducing points beside them with a scale of their own.
    pub(super) fn assembled(
        &self,
        blocks: &[Block],
        rows: &Rows,
        before: Option<&Hyperparameters>,
        inducing: Option<(Arc<Points>, f64)>,
    ) -> Result<WarmUp> {
        let mut grids = Vec::with_capacity(blocks.len());
        let mut kernels = Vec::with_capacity(blocks.len());
        let (mut sources, mut directions) = (Vec::new(), Vec::new());
        for block in blocks {
            let d = block.axes.len();
            let mut kernel: Option<Kernel> = None;
            let mut axes = Vec::with_capacity(d);
            for (k, axis) in block.axes.iter().enumerate() {
                let column = match axis {
                    Reading::Direction(row) => {
                        directions.extend_from_slice(row);
                        sources.push(Source::Direction);
                        Column::Numeric
                    }
                    Reading::Column(c) => {
                        sources.push(Source::Column(*c));
                        self.columns[*c]
                    }
                };
                axes.push(axis_of(column, block.points)?);
                let own = kernel_of(column, d, k)?;
                kernel = Some(kernel.map_or(own.clone(), |k| k * own));
            }
            grids.push(Grid::new(axes)?);
            kernels.extend(kernel.map(|k| k.scaled((blocks.len() as f64).recip())));
        }
        let mut hyper = Hyperparameters { kernels, noise: self.noise };
        if let Some(before) = before {
            hyper.noise = before.noise;
            hyper.kernels[..before.kernels.len()].clone_from_slice(&before.kernels);
        }
        if let Some((_, scale)) = &inducing {
            hyper.kernels.push(Kernel::output_scale(*scale)?);
            sources.extend(self.point_sources());
        }
        let space = fixed_where_known((self.space)(&hyper)?, &hyper, self.columns, &sources)?;
        let numeric = self.numeric().len();
        let outputs = directions.len().checked_div(numeric).unwrap_or(0);
        let linear = match outputs {
            0 => None,
            k => Some(Linear::new(Projection::new(k, numeric, directions)?)),
        };
        let map = match linear {
            Some(linear) if numeric == self.columns.len() && inducing.is_none() => FeatureMap::from(linear),
            linear => FeatureMap::from(Mixed::new(self.columns.to_vec(), sources, linear)?),
        };
        let lattice = match inducing {
            Some((points, _)) => Lattice::with_points(grids, points),
            None => Lattice::new(grids)?,
        };
        WarmUp::new(rows.clone(), map, lattice, hyper, space, self.tolerance)
    }

    /// The blocks of a warm-up, as they are now.
    pub(super) fn blocks_of(&self, warm: &WarmUp) -> Vec<Block> {
        let numeric = self.numeric().len().max(1);
        let mut directions = warm.map().parameters().chunks_exact(numeric);
        let all_numeric = vec![Source::Direction; warm.map().output_dim()];
        let sources = match warm.map() {
            FeatureMap::Mixed(map) => map.sources(),
            _ => &all_numeric,
        };
        let mut sources = sources.iter();
        let mut blocks = Vec::new();
        for grid in warm.lattice().grids() {
            let axes = sources.by_ref().take(grid.dim()).map(|source| match source {
                Source::Column(c) => Reading::Column(*c),
                _ => Reading::Direction(directions.next().unwrap_or(&[]).to_vec()),
            });
            let axes: Vec<Reading> = axes.collect();
            let points = axes.iter().zip(grid.axes()).find_map(|(reading, axis)| match reading {
                Reading::Direction(_) => Some(axis.points()),
                Reading::Column(c) => match self.columns[*c] {
                    Column::Periodic { .. } => Some(axis.points() - WRAPPED),
                    _ => None, // as many as it has levels
                },
            });
            blocks.push(Block { points: points.unwrap_or(self.points), axes });
        }
        blocks
    }

    /// The same blocks and further ones, fitted together.
    pub(super) fn extended(&self, warm: &WarmUp, further: &[Block], rows: &Rows) -> Result<WarmUp> {
        if further.is_empty() {
            return Ok(warm.clone());
        }
        let mut blocks = self.blocks_of(warm);
        blocks.extend_from_slice(further);
        self.fitted(&blocks, rows, Some(warm.hyperparameters()))
    }
}

/// A circle is laid out as a line on which three of its points come twice, so that the four points around any
/// value lie side by side. The kernel is exactly periodic: both copies of a point have the same value.
const WRAPPED: usize = 3;

/// The grid axis of a column: [−1, 1] for directions, a circle for periods, one point for each level (with one
/// more at either end, which no row ever meets).
pub(super) fn axis_of(column: Column, points: usize) -> Result<Axis> {
    match column {
        Column::Numeric => Axis::covering(-1.0, 1.0, points),
        Column::Periodic { .. } => {
            let step = 2.0 / points as f64;
            Axis::new(-1.0 - step, step, points + WRAPPED)
        }
        Column::Categorical { levels, .. } => Axis::new(-1.0, 1.0, levels + 2),
    }
}

/// The correlation of unordered levels falls to e⁻⁵⁰ from one to the next.
const UNORDERED: f64 = 0.02;

/// The kernel of a column on axis `k` of a block of `d` axes, with output scale 1.
pub(super) fn kernel_of(column: Column, d: usize, k: usize) -> Result<Kernel> {
    let (family, values) = match column {
        Column::Numeric => (Family::Rbf, vec![1.0, 0.7]),
        Column::Periodic { .. } => (Family::Periodic, vec![1.0, 1.0, 2.0]),
        Column::Categorical { ordered, .. } => {
            (Family::Matern12, vec![1.0, if ordered { 1.0 } else { UNORDERED }])
        }
    };
    let mut kernel = Kernel::on_axes(family, d, &[k])?;
    kernel.set_parameters(&values)?;
    Ok(kernel)
}

/// Fixes the periods of periodic columns and the length-scales of unordered levels.
fn fixed_where_known(
    mut space: HyperSpace,
    hyper: &Hyperparameters,
    columns: &[Column],
    sources: &[Source],
) -> Result<HyperSpace> {
    let (mut first, mut sources) = (0, sources.iter());
    for kernel in &hyper.kernels {
        let (names, values) = (kernel.parameter_names(), kernel.parameters());
        for k in 0..kernel.dim() {
            let what = match sources.next() {
                Some(Source::Column(c)) => match columns[*c] {
                    Column::Periodic { .. } => "period",
                    Column::Categorical { ordered: false, .. } => "lengthscale",
                    _ => continue,
                },
                _ => continue,
            };
            let label = format!("{what}[{k}]");
            if let Some(i) = names.iter().position(|n| n.ends_with(&label)) {
                space = space.with_fixed(first + i, values[i])?;
            }
        }
        first += values.len();
    }
    Ok(space)
}
