//! Inducing points beside the grids of a sum: what three or more columns do together.
//!
//! The points are learned beside the grids of a fitted sum, whose features stand meanwhile ([`internals::learn::points`](crate::internals::learn::points));
//! then all scales and the noise are fitted together on the statistics, as those of any sum.

use std::sync::Arc;

use super::AdditiveSearch;
use crate::error::Result;
use crate::feature::{Column, FeatureMap, Mixed, Source, Tape};
use crate::learn::points::{
    GridFeatures, LearnedPoints, PointsNoise, PointsOutput, PointsRows, PointsSearch,
};
use crate::learn::{Hyperparameters, Rows, WarmUp};
use crate::points::Points;

/// A categorical column of more levels than this does not reach the points: its grid has a value for each level.
const MOST_LEVELS: usize = 16;

/// Steps on the rows that are not held out, and then on all rows, if the points stay.
const STEPS: usize = 60;
const STEPS_ON: usize = 30;

impl AdditiveSearch<'_> {
    /// What the points read.
    pub(super) fn point_sources(&self) -> Vec<Source> {
        let sources = |(c, column): (usize, &Column)| match *column {
            Column::Numeric => vec![Source::Scaled(c)],
            Column::Periodic { .. } => vec![Source::Cosine(c), Source::Sine(c)],
            Column::Categorical { levels, .. } if levels <= MOST_LEVELS => {
                (0..levels).map(|level| Source::Level(c, level)).collect()
            }
            Column::Categorical { .. } => Vec::new(),
        };
        let columns = self.columns.len() - self.recurring;
        self.columns[..columns].iter().enumerate().flat_map(sources).collect()
    }

    /// The inputs of the points, row after row.
    fn point_inputs(&self, rows: &Rows) -> Result<Vec<f64>> {
        let map = FeatureMap::from(Mixed::new(self.columns.to_vec(), self.point_sources(), None)?);
        let (mut work, moments, mut tape) = (Default::default(), map.new_moments(), Tape::new());
        let view = map.prepare(&moments, &mut work)?;
        let mut inputs = vec![0.0; rows.len() * map.output_dim()];
        let all = rows.x.chunks_exact(map.input_dim()).zip(inputs.chunks_exact_mut(map.output_dim()));
        for (x, h) in all {
            view.forward(x, h, &mut tape)?;
        }
        Ok(inputs)
    }

    /// Hands over rows as a search for points reads them: with the features of the grids beside, if there are any, and the
    /// targets of every output.
    pub(super) fn with_point_rows<T>(
        &self,
        grids: Option<&mut WarmUp>,
        rows: &Rows,
        outputs: &[PointsOutput],
        then: impl FnOnce(&PointsRows) -> Result<T>,
    ) -> Result<T> {
        let features = grids.map(WarmUp::whitened_features).transpose()?;
        let inputs = self.point_inputs(rows)?;
        let grids = features.as_ref().map(|(values, groups)| GridFeatures { values, groups });
        then(&PointsRows { x: &inputs, dim: self.point_sources().len(), outputs, grids })
    }

    /// Learns points beside the grids of a model fitted to the rows, going on from points of part of them if there are any.
    pub(super) fn learn_points(
        &self,
        warm: &mut WarmUp,
        rows: &Rows,
        from: Option<&LearnedPoints>,
    ) -> Result<LearnedPoints> {
        let noise = if warm.space().learns_noise() {
            PointsNoise::Learned
        } else {
            PointsNoise::Fixed(warm.hyperparameters().noise)
        };
        let outputs = [PointsOutput { targets: &rows.y, relative_noise: Some(&rows.noise), noise }];
        let (steps, default) = (if from.is_some() { STEPS_ON } else { STEPS }, PointsSearch::default());
        let mut search = PointsSearch { points: self.inducing, seed: self.seed, ..default };
        search.training.steps = steps;
        self.with_point_rows(Some(warm), rows, &outputs, |all| match from {
            Some(from) if from.len() == self.inducing => search.slower().continued(all, from, &mut |_| true),
            Some(from) => search.continued(all, from, &mut |_| true),
            None => search.run(all, &mut |_| true),
        })
    }

    /// The grids of a model, if there is one, with learned points beside them, on the given rows; hyperparameters start
    /// where the search for the points ended.
    pub(super) fn with_points(
        &self,
        grids: Option<&WarmUp>,
        learned: &LearnedPoints,
        rows: &Rows,
    ) -> Result<WarmUp> {
        let points = Points::new(learned.family, &learned.centers, &learned.lengthscales)?;
        let hyper = learned_hyperparameters(grids, learned, 0);
        let blocks = grids.map_or_else(Vec::new, |grids| self.blocks_of(grids));
        self.assembled(&blocks, rows, Some(&hyper), Some((Arc::new(points), learned.scales[0])))
    }
}

/// The hyperparameters of the grids as they were learned beside the points for one output.
pub(super) fn learned_hyperparameters(
    grids: Option<&WarmUp>,
    learned: &LearnedPoints,
    output: usize,
) -> Hyperparameters {
    let mut hyper = grids.map_or_else(
        || Hyperparameters { kernels: Vec::new(), noise: 1.0 },
        |grids| grids.hyperparameters().clone(),
    );
    let groups = learned.group_scales.get(output).map_or(&[][..], Vec::as_slice);
    if groups.len() == hyper.kernels.len() {
        for (kernel, &factor) in hyper.kernels.iter_mut().zip(groups) {
            *kernel = kernel.clone().scaled(factor);
        }
    }
    hyper.noise = learned.noises[output];
    hyper
}
