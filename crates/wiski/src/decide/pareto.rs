//! Several objectives: the front of what no other surpasses, and by how much a point is expected to push it out.
//!
//! Large values are wanted. A front P dominates the region below it, down to a reference point r, and a point with values y
//! adds the volume that it dominates and P does not. What P leaves above r is parted into disjoint cells with corners l < u
//! (some of u are infinite), of each of which y adds Π_i (min(y_i, u_i) − l_i)₊. For independent normal predictions the
//! expectation is then a closed form in any number m of objectives (Yang et al. 2019, "Multi-objective Bayesian global
//! optimization using expected hypervolume improvement gradient"):
//!
//! ```text
//! EHVI = Σ_cells Π_i [ψ_i(l_i) − ψ_i(u_i)],   ψ_i(t) = E (y_i − t)₊ = σ_i h((μ_i − t)/σ_i)
//! ```
//!
//! with h as in [`Acquisition`](super::Acquisition). It is computed by logarithms, so that it has a slope where little is
//! promised. A front of n points leaves n + 1 cells (strips) in two objectives and some n²/2 in three. ψ is computed once
//! for each of the n + 2 levels of an objective, so that a point costs O(m n) of those and O(m) for each cell.

use crate::normal::log_improvement;

/// How far below the worst values of the front the reference lies, at least and at most, in widths of the front.
const MARGIN: (f64, f64) = (0.1, 1.0);

/// The places of those values that no others surpass: that are as good in every objective and better in one.
pub(super) fn front(values: &[Vec<f64>]) -> Vec<usize> {
    let surpasses = |a: &[f64], b: &[f64]| {
        let mut both = a.iter().zip(b);
        both.clone().all(|(a, b)| a >= b) && both.any(|(a, b)| a > b)
    };
    (0..values.len()).filter(|&i| !values.iter().any(|other| surpasses(other, &values[i]))).collect()
}

/// What a front leaves above its reference point, in disjoint cells.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cells {
    /// The values at which cells end, for each objective: those of the reference, of the front, and infinity.
    levels: Vec<Vec<f64>>,
    /// The levels of the lower and the upper corner of each cell, objective after objective.
    corners: Vec<(usize, usize)>,
}

/// log ψ at a level, with its derivatives in mean and deviation.
#[derive(Debug, Clone, Copy)]
struct Excess {
    log: f64,
    by_mean: f64,
    by_deviation: f64,
}

impl Cells {
    /// Those that the front of the given values leaves. The reference is the worst of all values, so that what lies beyond
    /// the ends of the front counts, but not farther off than the front is wide (or half of all values are, if that is
    /// more), or its ends would count for far more than what is between them.
    pub(super) fn of(values: &[Vec<f64>]) -> Self {
        let best: Vec<&Vec<f64>> = front(values).into_iter().map(|i| &values[i]).collect();
        let objectives = values.first().map_or(0, Vec::len);
        let reference = |k: usize| {
            let ends = |of: &mut dyn Iterator<Item = f64>| {
                of.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)))
            };
            let (worst, top) = ends(&mut values.iter().map(|v| v[k]));
            let (own, _) = ends(&mut best.iter().map(|v| v[k]));
            let width = (top - own).max(0.5 * (top - worst));
            own - (own - worst).clamp(MARGIN.0 * width, MARGIN.1 * width)
        };
        let reference: Vec<f64> = (0..objectives).map(reference).collect();
        Self::above(&reference, &best)
    }

    /// Those above a reference that no point of a front dominates.
    fn above(reference: &[f64], front: &[&Vec<f64>]) -> Self {
        let levels_of = |k: usize| {
            let mut levels: Vec<f64> = front.iter().map(|v| v[k]).filter(|v| *v > reference[k]).collect();
            levels.push(reference[k]);
            levels.push(f64::INFINITY);
            levels.sort_by(f64::total_cmp);
            levels.dedup();
            levels
        };
        let levels: Vec<Vec<f64>> = (0..reference.len()).map(levels_of).collect();
        // A level is the last one that a value reaches; a point on the reference dominates nothing above it.
        let place = |(levels, v): (&Vec<f64>, &f64)| levels.partition_point(|level| level <= v).max(1) - 1;
        let points: Vec<Vec<usize>> =
            front.iter().map(|v| levels.iter().zip(v.iter()).map(place).collect()).collect();
        let points: Vec<&[usize]> = points.iter().map(Vec::as_slice).collect();
        let tops: Vec<usize> = levels.iter().map(|l| l.len() - 1).collect();
        let (mut corners, mut above) = (Vec::new(), Vec::new());
        part(&points, &tops, &mut above, &mut corners);
        Self { levels, corners }
    }

    /// The logarithm of the expected improvement of the hypervolume, given mean and variance of each objective, with its
    /// derivatives in both.
    pub(super) fn log_improvement(&self, predictions: &[(f64, f64)], slopes: &mut [[f64; 2]]) -> f64 {
        let m = self.levels.len();
        let tables: Vec<Vec<Excess>> = self.levels.iter().zip(predictions).map(excesses).collect();
        let mut logs = Vec::with_capacity(self.corners.len() / m.max(1));
        let mut each = Vec::with_capacity(self.corners.len());
        for cell in self.corners.chunks_exact(m) {
            let mut log = 0.0;
            for (table, &(lower, upper)) in tables.iter().zip(cell) {
                let (own, slope) = between(table[lower], table[upper]);
                log += own;
                each.push(slope);
            }
            logs.push(log);
        }
        let top = logs.iter().fold(f64::NEG_INFINITY, |top, log| top.max(*log));
        slopes.fill([0.0; 2]);
        if top == f64::NEG_INFINITY {
            return top;
        }
        let total: f64 = logs.iter().map(|log| (log - top).exp()).sum();
        for (log, each) in logs.iter().zip(each.chunks_exact(m)) {
            let share = (log - top).exp() / total;
            if share > 0.0 {
                for ((slope, own), &(_, variance)) in slopes.iter_mut().zip(each).zip(predictions) {
                    slope[0] += share * own[0];
                    slope[1] += share * own[1] * 0.5 / deviation(variance);
                }
            }
        }
        top + total.ln()
    }
}

/// Parts what no point dominates into slabs of the last objective, each of which those dominate that reach its upper end.
/// `points` and `tops` are places of levels; `above` are the slabs of the objectives that were parted before.
fn part(points: &[&[usize]], tops: &[usize], above: &mut Vec<(usize, usize)>, out: &mut Vec<(usize, usize)>) {
    let Some((&top, tops)) = tops.split_last() else { return };
    let last = tops.len();
    if last == 0 {
        let reached = points.iter().map(|p| p[0]).max().unwrap_or(0);
        out.push((reached, top));
        out.extend(above.iter().rev());
        return;
    }
    let mut ends: Vec<usize> = points.iter().map(|p| p[last]).filter(|end| *end > 0).collect();
    ends.push(top);
    ends.sort_unstable();
    ends.dedup();
    let mut from = 0;
    for to in ends {
        let reaching: Vec<&[usize]> = points.iter().filter(|p| p[last] >= to).copied().collect();
        above.push((from, to));
        part(&reaching, tops, above, out);
        above.pop();
        from = to;
    }
}

/// Where nothing is uncertain, the limit: a tiny deviation keeps every formula finite.
fn deviation(variance: f64) -> f64 {
    variance.max(1e-300).sqrt()
}

/// ψ at the levels of an objective.
fn excesses((levels, &(mean, variance)): (&Vec<f64>, &(f64, f64))) -> Vec<Excess> {
    let sigma = deviation(variance);
    let excess = |level: &f64| {
        if *level == f64::INFINITY {
            return Excess { log: f64::NEG_INFINITY, by_mean: 0.0, by_deviation: 0.0 };
        }
        let z = (mean - level) / sigma;
        let (log_h, slope) = log_improvement(z);
        Excess { log: sigma.ln() + log_h, by_mean: slope / sigma, by_deviation: (1.0 - slope * z) / sigma }
    };
    levels.iter().map(excess).collect()
}

/// log [ψ(l) − ψ(u)], with its derivatives in mean and deviation. With w = ψ(u)/ψ(l) it is log ψ(l) + log(1 − w), whose
/// slope is (s(l) − w s(u))/(1 − w) for slopes s of log ψ.
fn between(lower: Excess, upper: Excess) -> (f64, [f64; 2]) {
    let difference = upper.log - lower.log;
    let (w, rest) = (difference.exp(), -difference.exp_m1());
    // So thin that rounding sees nothing of it.
    if rest.is_nan() || rest <= 0.0 {
        return (f64::NEG_INFINITY, [0.0; 2]);
    }
    let slope = |l: f64, u: f64| (l - w * u) / rest;
    (
        lower.log + rest.ln(),
        [slope(lower.by_mean, upper.by_mean), slope(lower.by_deviation, upper.by_deviation)],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_distr::StandardNormal;
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// The volume that a set of values dominates above a reference: every cell of the grid of all values is there or not.
    fn hypervolume(reference: &[f64], values: &[Vec<f64>]) -> f64 {
        let m = reference.len();
        let levels: Vec<Vec<f64>> = (0..m)
            .map(|k| {
                let mut own: Vec<f64> = values.iter().map(|v| v[k].max(reference[k])).collect();
                own.push(reference[k]);
                own.sort_by(f64::total_cmp);
                own
            })
            .collect();
        let mut total = 0.0;
        let counts: Vec<usize> = levels.iter().map(|l| l.len() - 1).collect();
        for at in 0..counts.iter().product() {
            let (mut rest, mut volume, mut upper) = (at, 1.0, Vec::new());
            for k in 0..m {
                let i = rest % counts[k];
                rest /= counts[k];
                volume *= levels[k][i + 1] - levels[k][i];
                upper.push(levels[k][i + 1]);
            }
            if values.iter().any(|v| v.iter().zip(&upper).all(|(v, u)| v >= u)) {
                total += volume;
            }
        }
        total
    }

    fn random(m: usize, n: usize, seed: u64) -> Vec<Vec<f64>> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..n).map(|_| (0..m).map(|_| rng.random_range(-1.0..1.0)).collect()).collect()
    }

    #[test]
    fn nothing_surpasses_the_front() {
        let values = vec![vec![1.0, 0.0], vec![0.0, 1.0], vec![0.5, 0.5], vec![0.5, 0.4], vec![1.0, 0.0]];
        assert_eq!(front(&values), [0, 1, 2, 4]);
        assert_eq!(front(&[]), Vec::<usize>::new());
    }

    /// Without uncertainty the expectation is the volume that a point adds, by the slow volume above.
    #[test]
    fn cells_hold_what_a_point_adds() {
        for m in [1, 2, 3] {
            for seed in 0..20 {
                let values = random(m, 6, seed);
                let reference = vec![-0.9; m];
                let best: Vec<&Vec<f64>> = values.iter().collect();
                let cells = Cells::above(&reference, &best);
                let before = hypervolume(&reference, &values);
                for y in random(m, 10, 100 + seed) {
                    let added = hypervolume(&reference, &[values.clone(), vec![y.clone()]].concat()) - before;
                    let predictions: Vec<(f64, f64)> = y.iter().map(|v| (*v, 1e-14)).collect();
                    let log = cells.log_improvement(&predictions, &mut vec![[0.0; 2]; m]);
                    // A deviation of 10⁻⁷ moves ends of cells by that much.
                    assert!((log.exp() - added).abs() < 1e-6, "{m} {seed}: {} {added}", log.exp());
                }
            }
        }
        // Strips in two objectives, slabs of strips in three.
        let steps: Vec<Vec<f64>> = (0..5).map(|i| vec![f64::from(i), 5.0 - f64::from(i)]).collect();
        assert_eq!(Cells::of(&steps).corners.len(), 2 * 6);
        // One point leads by 3 and by 1/2, and is compared with half as much below.
        let alone = Cells::of(&[vec![1.0, 1.0], vec![-2.0, 0.5]]);
        assert_eq!((alone.levels[0][0], alone.levels[1][0]), (-0.5, 0.75));
        // The worst of all, a tenth below the front's own worst, and a whole width below it.
        let three = [vec![0.0, 1.0], vec![1.0, 0.0], vec![-0.3, -5.0]];
        let (near, far) = (Cells::of(&three[..2]), Cells::of(&three));
        assert_eq!((near.levels[0][0], near.levels[1][0]), (-0.1, -0.1));
        assert_eq!((far.levels[0][0], far.levels[1][0]), (-0.3, -3.0));
    }

    #[test]
    fn the_expectation_is_that_of_samples() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        for m in [2, 3] {
            let (values, reference) = (random(m, 5, 7), vec![-1.0; m]);
            let best: Vec<&Vec<f64>> = values.iter().collect();
            let cells = Cells::above(&reference, &best);
            let predictions: Vec<(f64, f64)> =
                [(0.3, 0.25), (0.1, 0.5), (-0.2, 0.3)].into_iter().take(m).collect();
            let log = cells.log_improvement(&predictions, &mut vec![[0.0; 2]; m]);
            let (before, n) = (hypervolume(&reference, &values), 40_000);
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..n {
                let draw = |(mean, variance): &(f64, f64)| {
                    let e: f64 = rng.sample(StandardNormal);
                    mean + variance.sqrt() * e
                };
                let y: Vec<f64> = predictions.iter().map(draw).collect();
                let added = hypervolume(&reference, &[values.clone(), vec![y]].concat()) - before;
                (sum, squares) = (sum + added, squares + added * added);
            }
            let n = f64::from(n);
            let mean = sum / n;
            let error = ((squares / n - mean * mean) / n).sqrt();
            assert!((log.exp() - mean).abs() < 4.0 * error, "{m}: {} {mean} ± {error}", log.exp());
        }
    }

    #[test]
    fn slopes_are_those_of_the_value() {
        for m in [1, 2, 3] {
            let values = random(m, 6, 11);
            let cells = Cells::of(&values);
            // Near the front, and so far below it that the expectation itself is no number any more.
            for (shift, variance) in [(0.0, 0.2), (0.5, 0.01), (-30.0, 0.5)] {
                let at: Vec<(f64, f64)> =
                    (0..m).map(|k| (shift + 0.1 * k as f64, variance * (1.0 + k as f64))).collect();
                let (mut slopes, mut unused) = (vec![[0.0; 2]; m], vec![[0.0; 2]; m]);
                let value = cells.log_improvement(&at, &mut slopes);
                assert!(value.is_finite());
                for k in 0..m {
                    for part in 0..2 {
                        let step = 1e-6 * if part == 0 { 1.0 } else { variance };
                        let mut moved = |by: f64| {
                            let mut at = at.clone();
                            if part == 0 {
                                at[k].0 += by;
                            } else {
                                at[k].1 += by;
                            }
                            cells.log_improvement(&at, &mut unused)
                        };
                        let slope = (moved(step) - moved(-step)) / (2.0 * step);
                        let scale = 1.0 + slope.abs() + value.abs() * 1e-3;
                        assert!(
                            (slope - slopes[k][part]).abs() < 1e-5 * scale,
                            "{m} {shift}: {slope} {:?}",
                            slopes[k]
                        );
                    }
                }
            }
        }
    }
}
