//! How unsure a sum of blocks is beyond the rows that it has learned from.
//!
//! Coordinates of a sum saturate, h = tanh(z/2): whatever lies outside looks like the edge, and the model is as sure
//! there as at the edge. So how far out a row lies is read off before they saturate, in half-widths of the range that the
//! rows had on which the features were found: for a direction the range of z, for a column as it is its own. A block, whose
//! prior variance is v, lies out by the largest δ of its coordinates. It says what it says at the edge, with
//!
//! ```text
//! v ((1 + 4δ²)² − 1)
//! ```
//!
//! more variance: next to nothing just outside, as much as the prior at δ ≈ .3, and as a function that goes on like a parabola
//! needs farther out. Columns with values that were pulled in have no range to be outside of: they are heavy-tailed.
//!
//! **Jointly.** Every column may be inside its range and their combination still be new. How far a row is from all others
//! is its distance m² = (x − μ)ᵀC⁻¹(x − μ), with mean μ and covariance C of the rows that features were found on. What the
//! model says was learned where rows are dense, and its own variance v grows too little from there on, since length-scales
//! are those of the middle. So
//!
//! ```text
//! v (m/r)⁸                      instead of v from the radius r on,
//! + t ((1 + 4δ²)² − 1),         δ = m/R − 1 from the radius R on, within which all rows lay:
//! ```
//!
//! what the blocks do not hold, the model believes to be nothing, since the rows showed nothing, and of places beyond all of
//! them they said nothing; t is the variance of the targets, or of all blocks if that is less. For r the rows themselves
//! are asked: it is the smallest of the radii within which 90, 95, 98 or all of 100 rows lay, under which rows in memory, each
//! predicted without itself, are no less likely.
//!
//! A row inside costs D² multiply-adds. Directions are looked at where a column or the row as a whole is out.

use super::OffGrid;
use super::encoder::{ColumnScaling, UNBOUNDED};
use crate::dense;
use crate::error::{Error, Result, finite, length, positive};
use crate::feature::{FeatureMap, Linear, Scaling, Source};
use crate::grid::{Grid, Lattice};
use crate::kernel::Kernel;
use crate::posterior::{Prediction, Predictor};
use crate::simd::dot;
use faer::Mat;
use serde::{Deserialize, Serialize};

/// The half-width of the range of a direction, in its deviations.
const HALF_WIDTH: f64 = 3.0;
/// A column that never changed is outside wherever it changes, and has no range to say how far: so far that a block is
/// about twice as unsure as before any row.
const CHANGED: f64 = 0.5;
/// Nothing is farther out than so many half-widths, or deviations.
const FARTHEST: f64 = 100.0;
/// The shares of rows within the radii that are tried, and the power of how much farther out a row is.
const COMMON: [f64; 3] = [0.90, 0.95, 0.98];
const POWER: i32 = 8;
/// Variances are multiplied by no more than this.
const MOST: f64 = 1e4;
/// What rows may lose in log density by a smaller radius, in nats a row.
const AFFORDABLE: f64 = 5e-4;
/// What is added to the variances of columns, as a share of them: columns that follow from others have a covariance that
/// cannot be inverted.
const RIDGE: f64 = 1e-3;

/// How far out a value is that was not among those that recur: growth(δ) = 1, the prior's variance of its effect. The level that
/// such values share adds what it does not know itself: nothing where many rows had rare values, as much again where none had.
const NEW_VALUE: f64 = 0.321_797_126_452_791_3;

/// What is added to the variance of a block of unit variance that lies out by δ.
fn growth(delta: f64) -> f64 {
    (1.0 + 4.0 * delta * delta).powi(2) - 1.0
}

/// Where the rows lay on which the features of a sum of blocks were found, in scaled columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// The range of each direction before it saturates.
    directions: Vec<(f64, f64)>,
    /// The numeric columns that varied, and their mean.
    columns: Vec<usize>,
    mean: Vec<f64>,
    /// C⁻¹, row after row.
    precision: Vec<f64>,
    /// r and R.
    radius: f64,
    farthest: f64,
    /// The radii that may become r.
    #[serde(skip)]
    radii: Vec<f64>,
}

/// How far out a row lies.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Excess {
    /// Each coordinate, in half-widths of its range.
    coordinates: Vec<f64>,
    /// δ = m/R − 1.
    jointly: f64,
    /// (m/r)⁸.
    times: f64,
}

impl Seen {
    /// What rows of scaled columns looked like to a map that no longer changes; nothing if it has no say.
    pub(super) fn of(rows: &[f64], map: &FeatureMap) -> Option<Self> {
        let dim = map.input_dim();
        let everything: Vec<usize> = (0..dim).collect();
        let (linear, numeric) = match map {
            FeatureMap::Linear(linear) => (Some(linear), &everything[..]),
            FeatureMap::Mixed(map) => (map.linear(), map.numeric()),
            _ => return None,
        };
        let n = rows.len() / dim;
        if n == 0 {
            return None;
        }
        let mut directions = vec![(f64::MAX, f64::MIN); linear.map_or(0, Linear::output_dim)];
        for row in rows.chunks_exact(dim) {
            let ahead = linear.map_or_else(Vec::new, |l| before_saturation(l, numeric, |k| row[k]));
            for ((lo, hi), z) in directions.iter_mut().zip(ahead) {
                (*lo, *hi) = (lo.min(z), hi.max(z));
            }
        }
        let moment = |a: usize, b: usize, mean: &[f64]| {
            rows.chunks_exact(dim).map(|x| (x[a] - mean[a]) * (x[b] - mean[b])).sum::<f64>() / n as f64
        };
        let sums = |k: usize| rows.iter().skip(k).step_by(dim).sum::<f64>() / n as f64;
        let means: Vec<f64> = (0..dim).map(sums).collect();
        let columns: Vec<usize> = numeric.iter().copied().filter(|&k| moment(k, k, &means) > 1e-12).collect();
        let ridge = |i: usize, j: usize| if i == j { 1.0 + RIDGE } else { 1.0 };
        let covariance = Mat::from_fn(columns.len(), columns.len(), |i, j| {
            ridge(i, j) * moment(columns[i], columns[j], &means)
        });
        let factor = dense::cholesky(covariance).ok()?;
        let inverse = dense::inverse_of_cholesky(factor.as_ref());
        let size = columns.len();
        let precision = (0..size * size).map(|i| inverse[(i / size, i % size)]).collect();
        let mean = columns.iter().map(|&k| means[k]).collect();
        let mut seen =
            Self { directions, columns, mean, precision, radius: 1.0, farthest: 1.0, radii: Vec::new() };
        // Without the row itself, mean and covariance would be a little farther from it.
        let apart = |x: &[f64]| {
            let m = seen.distance(|k| x[k]);
            m / (1.0 - m * m / n as f64).max(0.1)
        };
        let mut distances: Vec<f64> = rows.chunks_exact(dim).map(apart).collect();
        distances.sort_by(f64::total_cmp);
        let within = |share: f64| distances[((n - 1) as f64 * share).ceil() as usize].max(1e-6);
        (seen.radii, seen.farthest) = (COMMON.map(within).to_vec(), within(1.0));
        seen.radius = seen.farthest;
        Some(seen)
    }

    /// Lets rows count as new from the smallest radius on under which those in memory are no less likely: how far out each of
    /// them is, what was said about it without it, and its target.
    fn calibrate(&mut self, rows: &[(f64, Prediction, f64)]) {
        let density = |radius: f64| {
            let one = |(m, said, y): &(f64, Prediction, f64)| {
                let variance = said.variance * times(m / radius);
                Prediction { variance, ..*said }.log_density(*y)
            };
            rows.iter().map(one).sum::<f64>() / rows.len() as f64
        };
        let least = density(self.farthest) - AFFORDABLE;
        self.radius = self.radii.iter().copied().find(|&r| density(r) >= least).unwrap_or(self.farthest);
    }

    /// m(x) for a row whose scaled columns are given.
    fn distance(&self, column: impl Fn(usize) -> f64) -> f64 {
        let away = |i: usize| (column(self.columns[i]) - self.mean[i]).clamp(-FARTHEST, FARTHEST);
        let rows = self.precision.chunks_exact(self.columns.len().max(1)).enumerate();
        let squares =
            rows.map(|(i, row)| away(i) * row.iter().enumerate().map(|(j, q)| q * away(j)).sum::<f64>());
        squares.sum::<f64>().max(0.0).sqrt()
    }

    /// Rejects what no rows can have left behind.
    pub(super) fn check(&self, map: &FeatureMap) -> Result<()> {
        let linear = match map {
            FeatureMap::Linear(linear) => Some(linear),
            FeatureMap::Mixed(map) => map.linear(),
            _ => None,
        };
        length("ranges of directions", linear.map_or(0, Linear::output_dim), self.directions.len())?;
        length("means of columns", self.columns.len(), self.mean.len())?;
        length(
            "precisions of columns",
            self.columns.len().saturating_mul(self.columns.len()),
            self.precision.len(),
        )?;
        let ends = self.directions.iter().flat_map(|&(lo, hi)| [lo, hi]);
        ends.chain(self.mean.iter().copied())
            .chain(self.precision.iter().copied())
            .try_for_each(|value| finite("range of rows", value, 0))?;
        if self.columns.iter().any(|&k| k >= map.input_dim()) {
            let reason = "a range is that of no column".into();
            return Err(Error::Config { field: "columns".into(), reason });
        }
        positive("radius of rows", self.radius, 0)?;
        positive("radius of rows", self.farthest, 0)
    }
}

/// What variances are multiplied by at so many radii from the middle.
fn times(radii: f64) -> f64 {
    radii.max(1.0).powi(POWER).min(MOST)
}

/// z of each direction, for a row whose scaled columns are given.
fn before_saturation(linear: &Linear, read: &[usize], column: impl Fn(usize) -> f64) -> Vec<f64> {
    let Scaling::Frozen(frozen) = linear.scaling() else { return vec![0.0; linear.output_dim()] };
    let values: Vec<f64> = read.iter().map(|&k| column(k)).collect();
    let rows = linear.parameters().chunks_exact(read.len()).zip(frozen.mean()).zip(frozen.std());
    rows.map(|((p, mean), s)| (dot(p, &values) - mean) / s).collect()
}

/// The scaled columns of a row, by their places. Values beyond the limit were pulled in among the rows, too, if there is no
/// range.
fn scaled<'a>(scaling: &'a ColumnScaling, x: &'a [f64]) -> impl Fn(usize) -> f64 + Copy + 'a {
    move |place: usize| {
        let k = scaling.source(place);
        let v = (x[k] - scaling.shift[k]) * scaling.factor[k];
        let is_heavy = scaling.seen.get(k).is_none_or(|&range| range == UNBOUNDED);
        if is_heavy { v.clamp(-scaling.limit[k], scaling.limit[k]) } else { v }
    }
}

/// Settles from where on rows count as new, given rows in memory: each with what was said about it without it, and its
/// target.
pub(super) fn calibrate<'a>(
    seen: &mut Seen,
    scaling: &ColumnScaling,
    rows: impl Iterator<Item = (&'a [f64], Prediction, f64)>,
) {
    let rows: Vec<(f64, Prediction, f64)> =
        rows.map(|(x, said, y)| (seen.distance(scaled(scaling, x)), said, y)).collect();
    if !rows.is_empty() {
        seen.calibrate(&rows);
    }
}

/// How far out a row lies; `None` if nothing about it is new.
pub(crate) fn excess(
    scaling: &ColumnScaling,
    map: &FeatureMap,
    seen: Option<&Seen>,
    x: &[f64],
) -> Option<Excess> {
    let scaled = scaled(scaling, x);
    let m = seen.map_or(0.0, |seen| seen.distance(scaled));
    let is_inside = scaling.seen.iter().zip(x).all(|(&(lo, hi), x)| (lo..=hi).contains(x))
        && !scaling.recurring.iter().any(|recurring| recurring.is_new(x));
    if is_inside && seen.is_none_or(|seen| m <= seen.radius.min(seen.farthest)) {
        return None;
    }
    let outside = |k: usize| {
        let Some(&(lo, hi)) = scaling.seen.get(k) else { return (0.0, 0.0) };
        let distance = (x[k] - hi).max(0.0) + (x[k] - lo).min(0.0);
        let half = 0.5 * (hi - lo);
        let e = match half > 0.0 {
            _ if distance == 0.0 => 0.0,
            true => (distance / half).clamp(-FARTHEST, FARTHEST),
            false => CHANGED.copysign(distance),
        };
        (e, half * scaling.factor[k])
    };
    let columns: Vec<(f64, f64)> = (0..scaling.output_dim()).map(|i| outside(scaling.source(i))).collect();
    let directions = |linear: &Linear, read: &[usize]| -> Vec<f64> {
        let Scaling::Frozen(frozen) = linear.scaling() else { return vec![0.0; linear.output_dim()] };
        // By how much its columns are out, and by how much it is itself; files of earlier versions do not have that.
        let rows = linear.parameters().chunks_exact(read.len()).zip(frozen.std());
        let one = |(p, s): (&[f64], &f64)| {
            let sum: f64 = p.iter().zip(read).map(|(p, &k)| p * columns[k].0 * columns[k].1).sum();
            sum.abs() / (HALF_WIDTH * s)
        };
        let mut out: Vec<f64> = rows.map(one).collect();
        if let Some(seen) = seen {
            let own = before_saturation(linear, read, scaled).into_iter().zip(&seen.directions);
            for (out, (z, &(lo, hi))) in out.iter_mut().zip(own) {
                let half = (0.5 * (hi - lo)).max(f64::MIN_POSITIVE);
                *out = out.max((z - hi).max(lo - z) / half).min(FARTHEST);
            }
        }
        out
    };
    let everything: Vec<usize> = (0..columns.len()).collect();
    let coordinates = match map {
        FeatureMap::Identity(_) => columns.iter().map(|c| c.0.abs()).collect(),
        FeatureMap::Select(map) => map.reads().iter().map(|&k| columns[k].0.abs()).collect(),
        FeatureMap::Linear(map) => directions(map, &everything),
        FeatureMap::Mlp(map) => vec![0.0; map.output_dim()],
        FeatureMap::Mixed(map) => {
            let mut learned = map.linear().map_or(Vec::new(), |l| directions(l, map.numeric())).into_iter();
            let one = |source: &Source| match *source {
                Source::Direction => learned.next().unwrap_or(0.0),
                Source::Scaled(k) => columns[k].0.abs(),
                Source::Column(k) if scaling.recurring_at(k).is_some_and(|values| values.is_new(x)) => {
                    NEW_VALUE
                }
                Source::Column(_) | Source::Cosine(_) | Source::Sine(_) | Source::Level(..) => 0.0,
            };
            map.sources().iter().map(one).collect()
        }
    };
    let [jointly, times] = match seen {
        Some(seen) => [(m / seen.farthest - 1.0).clamp(0.0, FARTHEST), times(m / seen.radius)],
        None => [0.0, 1.0],
    };
    Some(Excess { coordinates, jointly, times })
}

/// Adds to what is said about a row so far out what it is unsure of.
pub(crate) fn widen(said: &mut Prediction, excess: &Excess, lattice: &Lattice, variances: &[f64]) {
    let sizes = lattice.grids().iter().map(Grid::dim).chain(lattice.points().map(|points| points.dim()));
    let mut first = 0;
    let block = |(size, v): (usize, &f64)| {
        let own = &excess.coordinates[first..first + size];
        first += size;
        v * growth(own.iter().copied().fold(0.0, f64::max))
    };
    let blocks: f64 = sizes.zip(variances).map(block).sum();
    let all: f64 = variances.iter().sum();
    said.variance = said.variance * excess.times + blocks + all.min(1.0) * growth(excess.jointly);
}

/// The prior variance of each block.
pub(crate) fn variances(kernels: &[Kernel]) -> Vec<f64> {
    kernels.iter().map(Kernel::variance).collect()
}

/// What an image says about a point. Off a single grid that is the prior, as the model itself says, unless such points are
/// an error.
pub(crate) fn predict(
    predictor: &Predictor,
    variances: &[f64],
    off_grid: OffGrid,
    h: &[f64],
) -> Result<Prediction> {
    match (predictor.predict(h), variances) {
        (Err(Error::OutsideGrid { .. }), &[variance]) if off_grid != OffGrid::Error => {
            Ok(Prediction { mean: 0.0, variance, noise: predictor.noise() })
        }
        (said, _) => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::Projection;
    use rand::SeedableRng;
    use rand_distr::{Distribution, StandardNormal};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Normal rows of three columns, the third of which is nearly the sum of the others, and a map with one direction.
    fn rows() -> (Vec<f64>, FeatureMap) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
        let mut normal = || -> f64 { StandardNormal.sample(&mut rng) };
        let row = |_| {
            let (a, b) = (normal(), normal());
            [a, b, a + b + 0.1 * normal()]
        };
        let x: Vec<f64> = (0..500).flat_map(row).collect();
        let mut map = FeatureMap::from(Linear::new(Projection::new(1, 3, vec![1.0, -1.0, 0.0]).unwrap()));
        map.freeze(&map.moments_of(&x).unwrap()).unwrap();
        (x, map)
    }

    #[test]
    fn a_new_combination_is_far_out() {
        let (x, map) = rows();
        let mut seen = Seen::of(&x, &map).unwrap();
        // By the definition, with the inverse of a 3×3 matrix by its cofactors.
        let mean = |k: usize| x.iter().skip(k).step_by(3).sum::<f64>() / 500.0;
        let c = |i: usize, j: usize| {
            let sum: f64 = x.chunks_exact(3).map(|x| (x[i] - mean(i)) * (x[j] - mean(j))).sum();
            sum / 500.0 * if i == j { 1.0 + RIDGE } else { 1.0 }
        };
        let minor = |i: usize, j: usize| {
            let [(a, b), (d, e)] = [i, j].map(|k| ((k + 1) % 3, (k + 2) % 3));
            c(a, d) * c(b, e) - c(a, e) * c(b, d)
        };
        let determinant: f64 = (0..3).map(|j| c(0, j) * minor(0, j)).sum();
        let point = [1.0, 1.0, 0.0];
        let away = |i: usize| point[i] - mean(i);
        let square: f64 = (0..9).map(|k| away(k / 3) * minor(k / 3, k % 3) * away(k % 3)).sum();
        let want = (square / determinant).sqrt();
        assert!((seen.distance(|k| point[k]) / want - 1.0).abs() < 1e-9);
        // Each column is within its range, all three together are not.
        assert!(want > 1.5 * seen.farthest, "{want} {}", seen.farthest);
        let scaling = ColumnScaling::robust(&x, 3).unwrap();
        let identity = ColumnScaling { seen: scaling.seen.clone(), ..ColumnScaling::identity(3) };
        let out = excess(&identity, &map, Some(&seen), &point).unwrap();
        assert!(out.jointly > 0.5 && out.times > 10.0, "{out:?}");
        assert_eq!(out.coordinates, [0.0]);
        assert_eq!(excess(&identity, &map, Some(&seen), &[0.1, 0.2, 0.3]), None);
        // The direction a − b is out where neither column is, once the row as a whole counts as new.
        let (lo, hi) = (-3.0, 3.0);
        (seen.radius, seen.directions) = (1.0, vec![(lo, hi)]);
        let out = excess(&identity, &map, Some(&seen), &[2.7, -2.7, 0.0]).unwrap();
        let z = (5.4 - (mean(0) - mean(1)))
            / (c(0, 0) / (1.0 + RIDGE) + c(1, 1) / (1.0 + RIDGE) - 2.0 * c(0, 1)).sqrt();
        assert!((out.coordinates[0] - (z - hi) / (0.5 * (hi - lo))).abs() < 1e-4, "{out:?} {z} {hi}");
        seen.check(&map).unwrap();
        seen.radius = f64::NAN;
        assert!(seen.check(&map).is_err());
    }

    #[test]
    fn rows_say_from_where_on_they_are_new() {
        let (x, map) = rows();
        let mut seen = Seen::of(&x, &map).unwrap();
        let far = seen.radii[0];
        let said = |_| Prediction { mean: 0.0, variance: 0.01, noise: 0.01 };
        let distances: Vec<f64> = x.chunks_exact(3).map(|x| seen.distance(|k| x[k])).collect();
        // What is said about rows far out is as good as of all others, or much too sure.
        let rows = |error: f64| -> Vec<(f64, Prediction, f64)> {
            let one = |(i, &m): (usize, &f64)| {
                let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
                (m, said(i), sign * if m > far { error } else { 0.14 })
            };
            distances.iter().enumerate().map(one).collect()
        };
        seen.calibrate(&rows(0.14));
        assert_eq!(seen.radius, seen.farthest);
        seen.calibrate(&rows(2.0));
        assert_eq!(seen.radius, far);
    }
}
