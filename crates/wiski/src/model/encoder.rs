//! From a user's row to coordinates on the grid: column scaling, then the feature map, which may go on
//! learning; and to how noisy such a row is.

use super::beyond::{self, Excess, Seen};
use super::recurring::Recurring;
use super::relative_noise::RelativeNoise;
use super::start;
use crate::error::{Error, Result, finite, length, positive};
use crate::feature::{Column, FeatureMap, Linear, Moments, Normalizer, Scaling, Source, Tape};
use crate::grid::{Axis, Lattice};
use crate::learn::Adam;
use crate::pool::Scratch;
use crate::posterior::Prediction;
use crate::saved::{Restore, restored_after_reading};
use serde::{Deserialize, Serialize};

/// x → (x − shift)·factor, column by column, values beyond ±limit being pulled in to there. Of very many columns only
/// some are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ColumnScaling {
    /// What is subtracted from each column.
    pub shift: Vec<f64>,
    /// What each column is multiplied with.
    pub factor: Vec<f64>,
    /// The largest size of a scaled value of each column; infinite to leave them alone.
    pub limit: Vec<f64>,
    /// The columns that are read, in order, where not all are.
    #[serde(default)]
    pub read: Option<Vec<usize>>,
    /// Values of each column outside of which no grid follows; empty for none.
    #[serde(default)]
    pub reach: Vec<(f64, f64)>,
    /// The range of each column in the rows that a sum of blocks was learned from, without bounds where it has none to
    /// be outside of; empty for none at all.
    #[serde(default)]
    pub seen: Vec<(f64, f64)>,
    /// Values that have effects of their own: the level of each comes after the columns that are read.
    #[serde(default)]
    pub recurring: Vec<Recurring>,
}

restored_after_reading!(ColumnScaling, Encoder);

impl Restore for ColumnScaling {
    fn restore(&mut self) -> Result<()> {
        length("factors of the columns", self.shift.len(), self.factor.len())?;
        length("limits of the columns", self.shift.len(), self.limit.len())?;
        for (k, &limit) in self.limit.iter().enumerate() {
            if limit.is_nan() || limit <= 0.0 {
                positive(format!("limit[{k}]"), limit, 0)?;
            }
            finite(format!("shift[{k}]"), self.shift[k], 0)?;
            finite(format!("factor[{k}]"), self.factor[k], 0)?;
        }
        if !self.reach.is_empty() {
            length("reaches of the columns", self.shift.len(), self.reach.len())?;
        }
        if !self.seen.is_empty() {
            length("ranges of the columns", self.shift.len(), self.seen.len())?;
        }
        for &(lo, hi) in self.reach.iter().chain(&self.seen) {
            finite("range of a column", lo, 0)?;
            finite("range of a column", hi, 0)?;
            if lo > hi {
                let reason = format!("[{lo}, {hi}] is no range");
                return Err(Error::Config { field: "columns".into(), reason });
            }
        }
        if let Some(&column) = self.read.iter().flatten().find(|&&c| c >= self.shift.len()) {
            let reason = format!("there is no column {column} among {}", self.shift.len());
            return Err(Error::Config { field: "columns".into(), reason });
        }
        self.recurring.iter().try_for_each(|recurring| recurring.check(self.shift.len()))
    }
}

impl Restore for Encoder {
    fn restore(&mut self) -> Result<()> {
        length("columns of the feature map", self.scaling.output_dim(), self.map.input_dim())?;
        length("moments", self.map.new_moments().dim(), self.moments.dim())?;
        self.relative_noise.iter().try_for_each(|noise| noise.check(self.map.output_dim()))?;
        self.seen.iter().try_for_each(|seen| seen.check(&self.map))?;
        let parameters = self.map.parameters().len();
        if let Some(adam) = &self.adam {
            length("coordinates of the optimizer", parameters, adam.dim())?;
        }
        self.gradient = vec![0.0; parameters];
        self.buffers.h = vec![0.0; self.map.output_dim()];
        Ok(())
    }
}

/// Where outliers are pulled in to, in robust standard deviations.
const OUTLIER: f64 = 8.0;

/// The range of a column that nothing is outside of.
pub(crate) const UNBOUNDED: (f64, f64) = (f64::MIN, f64::MAX);

/// What lies far out is no outlier if so large a share of the rows does, and if it takes so many values: a column of counts or
/// of sizes, not one with a number that says that nothing was measured.
const MANY: f64 = 0.05;
const MANY_VALUES: usize = 16;
/// Of such a column, all but this share of the rows on each side count as they are.
const INNER: f64 = 0.001;

/// Whether values, given in order, are too many of a column's for outliers.
fn is_many(values: impl Iterator<Item = f64>, rows: usize) -> bool {
    let values: Vec<f64> = values.collect();
    values.len() as f64 >= MANY * rows as f64 && values.chunk_by(|a, b| a == b).count() >= MANY_VALUES
}

impl ColumnScaling {
    /// The range of each column of rows given one after the other, without what lies far outside, widened by a twentieth:
    /// bounds for rows like these.
    pub fn ranges(x: &[f64], dim: usize) -> Vec<(f64, f64)> {
        if x.is_empty() { Vec::new() } else { start::ranges(x, dim).0 }
    }

    /// Leaves rows as they are.
    pub fn identity(dim: usize) -> Self {
        Self {
            shift: vec![0.0; dim],
            factor: vec![1.0; dim],
            limit: vec![f64::INFINITY; dim],
            read: None,
            reach: Vec::new(),
            seen: Vec::new(),
            recurring: Vec::new(),
        }
    }

    /// Maps each interval to [−1, 1]. An empty interval keeps its unit.
    pub fn from_bounds(bounds: &[(f64, f64)]) -> Self {
        let half = |(lo, hi): &(f64, f64)| 0.5 * (hi - lo);
        let factor = bounds.iter().map(|b| if half(b) > 0.0 { half(b).recip() } else { 1.0 }).collect();
        let shift = bounds.iter().map(|(lo, hi)| lo + 0.5 * (hi - lo)).collect();
        Self { shift, factor, ..Self::identity(bounds.len()) }
    }

    /// Centers each column and divides it by its standard deviation. Constant columns keep their unit.
    pub fn from_moments(moments: &Moments) -> Self {
        let factor = |v: f64| if v > 0.0 { v.sqrt().recip() } else { 1.0 };
        let factor = moments.variances().map(factor).collect();
        Self { shift: moments.mean().to_vec(), factor, ..Self::identity(moments.dim()) }
    }

    /// Centers each column at its median, divides it by half the distance between its 16 % and 84 % quantiles
    /// (one standard deviation of a Gaussian) and pulls in what lies beyond eight of those: a single value of a
    /// million must not press all others together. Columns that mostly repeat one value go by their deviation, and so do those
    /// of which more than one row in twenty lies farther out, at many places.
    pub fn robust(x: &[f64], dim: usize) -> Result<Self> {
        let mut scaling = Self { limit: vec![OUTLIER; dim], ..Self::identity(dim) };
        let mut column: Vec<f64> = Vec::with_capacity(x.len() / dim);
        for k in 0..dim {
            column.clear();
            column.extend(x.iter().skip(k).step_by(dim));
            let moments = Moments::from_rows(&column, 1)?;
            let deviation = moments.variance(0).sqrt();
            column.sort_by(f64::total_cmp);
            let quantile = |share: f64| column[((column.len() - 1) as f64 * share).round() as usize];
            let half = 0.5 * (quantile(0.84) - quantile(0.16));
            (scaling.shift[k], scaling.factor[k]) = if half > 0.0 {
                (quantile(0.5), half.recip())
            } else {
                (moments.mean()[0], if deviation > 0.0 { deviation.recip() } else { 1.0 })
            };
            let (lo, hi) = (quantile(0.0), quantile(1.0));
            let size = |v: f64| ((v - scaling.shift[k]) * scaling.factor[k]).abs();
            let is_heavy = size(lo).max(size(hi)) > OUTLIER;
            if is_many(column.iter().copied().filter(|&v| size(v) > OUTLIER), column.len()) {
                let (lo, hi) = (quantile(INNER), quantile(1.0 - INNER));
                column.iter_mut().for_each(|v| *v = v.clamp(lo, hi));
                let inner = Moments::from_rows(&column, 1)?;
                scaling.factor[k] = inner.variance(0).sqrt().recip();
                let size = |v: f64| ((v - scaling.shift[k]) * scaling.factor[k]).abs();
                scaling.limit[k] = size(lo).max(size(hi)).max(OUTLIER);
            }
            scaling.seen.push(if is_heavy { UNBOUNDED } else { (lo, hi) });
        }
        Ok(scaling)
    }

    /// Whether all columns of a row are within reach of the grids.
    pub fn reaches(&self, x: &[f64]) -> bool {
        self.reach.iter().zip(x).all(|(&(lo, hi), x)| (lo..=hi).contains(x))
    }

    /// The number of columns of a row.
    pub fn input_dim(&self) -> usize {
        self.shift.len()
    }

    /// The number of values of a scaled row: the columns that are read, and levels of values that recur.
    pub fn output_dim(&self) -> usize {
        self.plain_dim() + self.recurring.len()
    }

    /// The number of columns that are read as numbers.
    fn plain_dim(&self) -> usize {
        self.read.as_ref().map_or(self.shift.len(), Vec::len)
    }

    /// The column that each value of a scaled row comes from.
    pub(super) fn source(&self, place: usize) -> usize {
        match (self.recurring_at(place), &self.read) {
            (Some(recurring), _) => recurring.column,
            (None, Some(read)) => read[place],
            (None, None) => place,
        }
    }

    /// The values whose level stands at a place of a scaled row, if one does.
    pub(super) fn recurring_at(&self, place: usize) -> Option<&Recurring> {
        self.recurring.get(place.checked_sub(self.plain_dim())?)
    }

    /// Writes the scaled row.
    pub fn apply(&self, x: &[f64], out: &mut Vec<f64>) -> Result<()> {
        length("x", self.shift.len(), x.len())?;
        out.clear();
        for place in 0..self.plain_dim() {
            let k = self.source(place);
            if !x[k].is_finite() {
                finite(format!("x[{k}]"), x[k], 0)?;
            }
            out.push(((x[k] - self.shift[k]) * self.factor[k]).clamp(-self.limit[k], self.limit[k]));
        }
        out.extend(self.recurring.iter().map(|recurring| recurring.level(x) as f64));
        Ok(())
    }
}

/// Where a coordinate on a grid comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Reads {
    /// One input column.
    Column(usize),
    /// The values of an input column, each for itself.
    Values(usize),
    /// A direction through the input columns: what each counts for, in units of its scale.
    Direction(Vec<f64>),
    /// Something that is not linear in the columns.
    Hidden,
}

impl Reads {
    /// A direction through the given columns of D; one that follows a single column is that column.
    fn direction(weights: &[f64], columns: &[usize], dim: usize) -> Self {
        let mut all = vec![0.0; dim];
        columns.iter().zip(weights).for_each(|(&c, &w)| all[c] = w);
        let mut active = (0..dim).filter(|&c| all[c] != 0.0);
        match (active.next(), active.next()) {
            (Some(column), None) => Self::Column(column),
            _ => Self::Direction(all),
        }
    }
}

/// Column scaling and a feature map that no longer changes: for snapshots.
#[derive(Debug, Clone)]
pub(crate) struct FixedEncoder {
    scaling: ColumnScaling,
    map: FeatureMap,
    relative_noise: Option<RelativeNoise>,
    seen: Option<Seen>,
}

impl FixedEncoder {
    /// How noisy rows at given coordinates are beside others.
    pub(crate) fn relative_noise(&self, h: &[f64]) -> f64 {
        self.relative_noise.as_ref().map_or(1.0, |noise| noise.at(h))
    }

    /// How far out a row lies; `None` if nothing about it is new.
    pub(crate) fn excess(&self, x: &[f64]) -> Option<Excess> {
        beyond::excess(&self.scaling, &self.map, self.seen.as_ref(), x)
    }

    /// The coordinates of a row.
    pub(crate) fn encode(&self, x: &[f64]) -> Result<Vec<f64>> {
        let (mut row, mut normalizer, mut tape) = (Vec::new(), Normalizer::default(), Tape::new());
        self.scaling.apply(x, &mut row)?;
        let mut h = vec![0.0; self.map.output_dim()];
        // Constants need no moments.
        let view = self.map.prepare(&self.map.new_moments(), &mut normalizer)?;
        view.forward(&row, &mut h, &mut tape)?;
        Ok(h)
    }

    /// The number of input columns.
    pub(crate) fn input_dim(&self) -> usize {
        self.scaling.input_dim()
    }

    /// The number of coordinates.
    pub(crate) fn output_dim(&self) -> usize {
        self.map.output_dim()
    }

    /// Rows given one after the other, one by one.
    pub(crate) fn rows<'a>(&self, x: &'a [f64]) -> Result<std::slice::ChunksExact<'a, f64>> {
        length("x", x.len() / self.input_dim() * self.input_dim(), x.len())?;
        Ok(x.chunks_exact(self.input_dim()))
    }

    /// The coordinates of rows given one after the other.
    pub(crate) fn encode_all(&self, x: &[f64]) -> Result<Vec<f64>> {
        let mut all = Vec::with_capacity(x.len() / self.input_dim() * self.output_dim());
        for (row, x) in self.rows(x)?.enumerate() {
            all.extend(self.encode(x).map_err(|error| error.in_row(row))?);
        }
        Ok(all)
    }

    /// Given ∂L/∂h at rows given one after the other, adds ∂L/∂x to `by_x`.
    pub(crate) fn vjp_all(&self, x: &[f64], by_h: &[f64], by_x: &mut [f64]) -> Result<()> {
        let by_rows = by_x.chunks_exact_mut(self.input_dim()).zip(by_h.chunks_exact(self.output_dim()));
        self.rows(x)?.zip(by_rows).try_for_each(|(x, (by_x, by_h))| self.vjp(x, by_h, by_x))
    }

    /// Given ∂L/∂h at a row, adds ∂L/∂x to `by_x`.
    pub(crate) fn vjp(&self, x: &[f64], by_h: &[f64], by_x: &mut [f64]) -> Result<()> {
        let (mut row, mut normalizer, mut tape) = (Vec::new(), Normalizer::default(), Tape::new());
        self.scaling.apply(x, &mut row)?;
        let (mut h, mut by_row) = (vec![0.0; self.output_dim()], vec![0.0; self.map.input_dim()]);
        let mut by_map = vec![0.0; self.map.parameters().len()];
        let view = self.map.prepare(&self.map.new_moments(), &mut normalizer)?;
        view.forward(&row, &mut h, &mut tape)?;
        view.backward(&mut tape, by_h, &mut by_map, Some(&mut by_row))?;
        for (place, by_row) in by_row.iter().enumerate() {
            let k = self.scaling.source(place);
            let (shift, factor, limit) =
                (self.scaling.shift[k], self.scaling.factor[k], self.scaling.limit[k]);
            // What is pulled in to the limit from beyond no longer moves.
            if ((x[k] - shift) * factor).abs() <= limit * (1.0 + 1e-9) {
                by_x[k] += by_row * factor;
            }
        }
        Ok(())
    }
}

/// What encoding one row leaves behind: the scaled row, its coordinates, and the tape for the way back.
#[derive(Debug, Clone, Default)]
struct Buffers {
    normalizer: Normalizer,
    tape: Tape,
    row: Vec<f64>,
    h: Vec<f64>,
}

/// Column scaling and feature map, with the running moments the map needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Encoder {
    scaling: ColumnScaling,
    map: FeatureMap,
    moments: Moments,
    /// Present while the map is learned.
    adam: Option<Adam>,
    /// How noisy rows are beside others, if that differs.
    #[serde(default)]
    relative_noise: Option<RelativeNoise>,
    /// Where the rows lay that features were found on, for a sum of blocks.
    #[serde(default)]
    seen: Option<Seen>,
    /// Of the row that is being learned.
    #[serde(skip)]
    buffers: Buffers,
    /// For rows that are only predicted.
    #[serde(skip)]
    scratch: Scratch<Buffers>,
    #[serde(skip)]
    gradient: Vec<f64>,
}

impl Encoder {
    pub(crate) fn new(scaling: ColumnScaling, map: FeatureMap, moments: Moments) -> Self {
        let gradient = vec![0.0; map.parameters().len()];
        let buffers = Buffers { h: vec![0.0; map.output_dim()], ..Buffers::default() };
        let (adam, relative_noise, seen, scratch) = (None, None, None, Scratch::default());
        Self { scaling, map, moments, adam, relative_noise, seen, buffers, scratch, gradient }
    }

    /// Remembers where the rows of scaled columns lay that the features were found on.
    pub(crate) fn remember(&mut self, rows: &[f64]) {
        self.seen = Seen::of(rows, &self.map);
    }

    /// Settles from where on rows count as new, given rows in memory: each with what was said about it without it, and its
    /// target.
    pub(super) fn calibrate<'a>(&mut self, rows: impl Iterator<Item = (&'a [f64], Prediction, f64)>) {
        if let Some(seen) = &mut self.seen {
            beyond::calibrate(seen, &self.scaling, rows);
        }
    }

    /// Rows are no longer equally noisy, or are again.
    pub(crate) fn set_relative_noise(&mut self, noise: Option<RelativeNoise>) {
        self.relative_noise = noise;
    }

    /// Whether some rows are noisier than others.
    pub(crate) fn has_relative_noise(&self) -> bool {
        self.relative_noise.is_some()
    }

    /// How noisy rows at given coordinates are beside others.
    pub(crate) fn relative_noise(&self, h: &[f64]) -> f64 {
        self.relative_noise.as_ref().map_or(1.0, |noise| noise.at(h))
    }

    /// How noisy rows given one after the other are beside others.
    pub(crate) fn relative_noises(&self, x: &[f64]) -> Result<Vec<f64>> {
        x.chunks_exact(self.input_dim())
            .map(|x| self.with_coordinates(x, |h| self.relative_noise(h)))
            .collect()
    }

    /// Lets the map learn online at the given rate.
    pub(crate) fn learn_at(&mut self, rate: f64) -> Result<()> {
        let n = self.map.parameters().len();
        self.adam = if rate > 0.0 && n > 0 { Some(Adam::new(n, rate)?) } else { None };
        Ok(())
    }

    /// The column scaling.
    pub fn scaling(&self) -> &ColumnScaling {
        &self.scaling
    }

    /// The feature map.
    pub fn map(&self) -> &FeatureMap {
        &self.map
    }

    /// The moments of the scaled rows (or of a perceptron's last hidden layer).
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// The number of input columns.
    pub fn input_dim(&self) -> usize {
        self.scaling.input_dim()
    }

    /// The range of each input column that a lattice covers, to rounding, if it is one grid whose axes are the columns.
    pub(crate) fn covered(&self, lattice: &Lattice) -> Option<Vec<(f64, f64)>> {
        let ([grid], None) = (lattice.grids(), lattice.points()) else { return None };
        let ColumnScaling { shift, factor, limit, read, recurring, .. } = &self.scaling;
        if !matches!(self.map, FeatureMap::Identity(_)) || read.is_some() || !recurring.is_empty() {
            return None;
        }
        let range = |(k, axis): (usize, &Axis)| {
            let slack = 1e-9 * (axis.hi() - axis.lo());
            // What is pulled in to where the grid is lies nowhere beyond it.
            let is_end = |end: f64| end.abs() < limit[k];
            let raw = |end: f64| end / factor[k] + shift[k];
            let (lo, hi) = (axis.lo() - slack, axis.hi() + slack);
            (
                if is_end(lo) { raw(lo) } else { f64::NEG_INFINITY },
                if is_end(hi) { raw(hi) } else { f64::INFINITY },
            )
        };
        Some(grid.axes().iter().enumerate().map(range).collect())
    }

    /// The columns that the model does not read, since they say nothing about the target by themselves; empty unless
    /// there are very many.
    pub fn ignored_columns(&self) -> Vec<usize> {
        let Some(read) = &self.scaling.read else { return Vec::new() };
        (0..self.input_dim()).filter(|c| !read.contains(c)).collect()
    }

    /// Where each coordinate comes from.
    pub(crate) fn reads(&self) -> Vec<Reads> {
        let in_row = |reads| match reads {
            Reads::Column(place) if self.scaling.recurring_at(place).is_some() => {
                Reads::Values(self.scaling.source(place))
            }
            Reads::Column(place) => Reads::Column(self.scaling.source(place)),
            Reads::Direction(weights) => {
                let mut all = vec![0.0; self.input_dim()];
                // Directions lead through numbers, which come first.
                let numbers = weights.into_iter().take(self.scaling.plain_dim()).enumerate();
                numbers.for_each(|(place, w)| all[self.scaling.source(place)] = w);
                Reads::Direction(all)
            }
            Reads::Values(_) | Reads::Hidden => Reads::Hidden,
        };
        self.reads_of_map().into_iter().map(in_row).collect()
    }

    /// Where each coordinate comes from among the columns that are read.
    fn reads_of_map(&self) -> Vec<Reads> {
        let dim = self.map.input_dim();
        let everything: Vec<usize> = (0..dim).collect();
        let rows = |linear: &Linear, columns: &[usize]| -> Vec<Reads> {
            let weights = linear.parameters().chunks_exact(columns.len());
            weights.map(|w| Reads::direction(w, columns, dim)).collect()
        };
        match &self.map {
            FeatureMap::Identity(_) => (0..dim).map(Reads::Column).collect(),
            FeatureMap::Select(map) => map.reads().iter().map(|&c| Reads::Column(c)).collect(),
            FeatureMap::Linear(map) => rows(map, &everything),
            FeatureMap::Mlp(map) => vec![Reads::Hidden; map.output_dim()],
            FeatureMap::Mixed(map) => {
                let kinds = map.columns();
                let numeric: Vec<usize> = (0..dim).filter(|&c| kinds[c] == Column::Numeric).collect();
                let mut directions = map.linear().map_or(Vec::new(), |l| rows(l, &numeric)).into_iter();
                let one = |source: &Source| match source.column() {
                    None => directions.next().unwrap_or(Reads::Hidden),
                    Some(c) => Reads::Column(c),
                };
                map.sources().iter().map(one).collect()
            }
        }
    }

    /// Whether the map is being learned.
    pub fn is_learning(&self) -> bool {
        self.adam.is_some()
    }

    /// Whether a row's features can still change: then what was learned cannot be un-learned exactly.
    pub fn is_fixed(&self) -> bool {
        let scaling = match &self.map {
            FeatureMap::Identity(_) | FeatureMap::Select(_) => return true,
            FeatureMap::Linear(map) => Some(map.scaling()),
            FeatureMap::Mlp(map) => Some(map.scaling()),
            FeatureMap::Mixed(map) => map.linear().map(Linear::scaling),
        };
        !self.is_learning() && !matches!(scaling, Some(Scaling::Batch))
    }

    /// Ends learning and makes the batch statistics constants.
    pub(crate) fn freeze(&mut self) -> Result<()> {
        self.adam = None;
        self.map.freeze(&self.moments)
    }

    /// How far out a row lies; `None` if nothing about it is new.
    pub(crate) fn excess(&self, x: &[f64]) -> Option<Excess> {
        beyond::excess(&self.scaling, &self.map, self.seen.as_ref(), x)
    }

    /// The coordinates of a row that is to be learned.
    pub(crate) fn encode(&mut self, x: &[f64]) -> Result<&[f64]> {
        self.scaling.apply(x, &mut self.buffers.row)?;
        self.forward()?;
        Ok(&self.buffers.h)
    }

    fn forward(&mut self) -> Result<()> {
        let Buffers { normalizer, tape, row, h } = &mut self.buffers;
        self.map.prepare(&self.moments, normalizer)?.forward(row, h, tape)
    }

    /// Lends the coordinates of a row; the encoder does not change.
    pub(crate) fn with_coordinates<T>(&self, x: &[f64], f: impl FnOnce(&[f64]) -> T) -> Result<T> {
        self.scratch.with(|Buffers { normalizer, tape, row, h }| {
            self.scaling.apply(x, row)?;
            h.resize(self.map.output_dim(), 0.0);
            self.map.prepare(&self.moments, normalizer)?.forward(row, h, tape)?;
            Ok(f(h))
        })
    }

    /// The coordinates of rows given one after the other.
    pub(crate) fn encode_all(&self, x: &[f64]) -> Result<Vec<f64>> {
        let dim = self.input_dim();
        length("x", x.len() / dim * dim, x.len())?;
        let mut all = Vec::with_capacity(x.len() / dim * self.map.output_dim());
        for (row, x) in x.chunks_exact(dim).enumerate() {
            self.with_coordinates(x, |h| all.extend_from_slice(h)).map_err(|error| error.in_row(row))?;
        }
        Ok(all)
    }

    /// The coordinates of the row last encoded.
    pub(crate) fn coordinates(&self) -> &[f64] {
        &self.buffers.h
    }

    /// Takes the row last encoded into the moments and, given ∂L/∂h, moves the map one step down the
    /// gradient; then encodes the row anew.
    pub(crate) fn learn(&mut self, by_coordinates: Option<&[f64]>) -> Result<()> {
        if let (Some(dh), Some(adam)) = (by_coordinates, &mut self.adam) {
            self.gradient.fill(0.0);
            let Buffers { normalizer, tape, .. } = &mut self.buffers;
            let view = self.map.prepare(&self.moments, normalizer)?;
            view.backward(tape, dh, &mut self.gradient, None)?;
            adam.step(self.map.parameters_mut(), &self.gradient)?;
        }
        if !self.is_fixed() {
            self.map.observe(&self.buffers.row, &mut self.moments, &mut self.buffers.tape)?;
            self.forward()?;
        }
        Ok(())
    }

    /// The encoder as it is now, for ever.
    pub(crate) fn fixed(&self) -> Result<FixedEncoder> {
        let mut map = self.map.clone();
        map.freeze(&self.moments)?;
        let (scaling, seen) = (self.scaling.clone(), self.seen.clone());
        Ok(FixedEncoder { scaling, map, relative_noise: self.relative_noise.clone(), seen })
    }

    /// Two encoders that give every row the same coordinates and the same noise.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let are_fixed = self.is_fixed() && other.is_fixed();
        let is_same = self.scaling == other.scaling && self.map == other.map;
        are_fixed && is_same && self.relative_noise == other.relative_noise
    }

    /// Rejects what needs features that no longer change.
    pub(crate) fn require_fixed(&self, operation: &'static str) -> Result<()> {
        if self.is_fixed() {
            return Ok(());
        }
        let reason = "the feature map still changes; freeze it first, then it is exact";
        Err(Error::Unsupported { operation, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_press_the_others_together() {
        let mut x: Vec<f64> = (0..1000).flat_map(|i| [f64::from(i), 7.0]).collect();
        x.extend([1e9, 8.0]);
        let scaling = ColumnScaling::robust(&x, 2).unwrap();
        let mut row = Vec::new();
        // Between the quantiles lie 680 of the numbers 0 to 999.
        scaling.apply(&[160.0, 7.0], &mut row).unwrap();
        assert!((row[0] + 1.0).abs() < 0.01, "{row:?}");
        scaling.apply(&[1e9, 8.0], &mut row).unwrap();
        assert_eq!(row[0], OUTLIER);
        // The second column repeats one value: it goes by its deviation, and its only other value is pulled in.
        assert_eq!(row[1], OUTLIER);
        assert!(ColumnScaling::identity(2).apply(&[1e9, f64::NAN], &mut row).is_err());
    }

    #[test]
    fn what_many_rows_have_is_no_outlier() {
        // One row in ten lies far out: at as many places, and at one, which says that nothing was measured.
        let spread = (0..1000).map(|i| if i % 10 == 0 { f64::from(i) } else { 0.01 * f64::from(i % 7) });
        let named = (0..1000).map(|i| if i % 10 == 0 { -9999.0 } else { 0.01 * f64::from(i % 7) });
        let x: Vec<f64> = spread.zip(named).flat_map(|(a, b)| [a, b]).collect();
        let scaling = ColumnScaling::robust(&x, 2).unwrap();
        let mut row = Vec::new();
        scaling.apply(&[500.0, -9999.0], &mut row).unwrap();
        let deviation = scaling.factor[0].recip();
        assert!((120.0..250.0).contains(&deviation), "{deviation}");
        assert!((row[0] - (500.0 - scaling.shift[0]) / deviation).abs() < 1e-12, "{row:?}");
        assert_eq!(row[1], -OUTLIER);
        // Beyond what nearly all rows have there is an end to it.
        scaling.apply(&[1e9, 0.0], &mut row).unwrap();
        assert_eq!(row[0], scaling.limit[0]);
        assert!(row[0] >= OUTLIER);
    }
}
