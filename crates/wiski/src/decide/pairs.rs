//! Which pairs of many dimensions interact: what a sum of functions of one dimension leaves is given to a
//! Gaussian process on each pair alone, and the pair that gains most evidence is taken; its mean is subtracted
//! and the next is sought.

use crate::error::Result;
use crate::grid::Grid;
use crate::kernel::Kernel;
use crate::model::{OnlineGp, Wiski};

/// Two dimensions, the smaller first.
pub(super) type Pair = (usize, usize);

/// The most pairs that are chosen.
const MOST: usize = 15;
/// After the first round only so many of the best are looked at again.
const FINALISTS: usize = 40;
/// A pair has two length-scales and a scale more, which this much log evidence must pay.
const SMALLEST_GAIN: f64 = 3.0;
/// Grid points on each axis: residuals of few results show nothing finer.
const POINTS: usize = 8;

/// Length-scales, and shares of the variance, that are tried.
const LENGTHS: [f64; 2] = [0.5, 1.2];
const SHARES: [f64; 2] = [0.1, 0.5];

/// The pairs that explain the residuals of points in [−1, 1]^d, best first.
pub(super) fn choose(dim: usize, x: &[f64], residuals: &[f64]) -> Result<Vec<Pair>> {
    let mut left = residuals.to_vec();
    let mut candidates: Vec<Pair> = (0..dim).flat_map(|i| (i + 1..dim).map(move |j| (i, j))).collect();
    let mut chosen = Vec::new();
    while chosen.len() < MOST && !candidates.is_empty() {
        let mut fits = Vec::with_capacity(candidates.len());
        for &pair in &candidates {
            fits.push((Fit::best(pair, dim, x, &left)?, pair));
        }
        fits.sort_by(|a, b| b.0.gain.total_cmp(&a.0.gain));
        let (best, pair) = &fits[0];
        if best.gain < SMALLEST_GAIN {
            break;
        }
        left.iter_mut().zip(&best.mean).for_each(|(r, m)| *r -= m);
        chosen.push(*pair);
        candidates = fits.iter().skip(1).take(FINALISTS).map(|f| f.1).collect();
    }
    Ok(chosen)
}

/// What a process on one pair makes of residuals.
struct Fit {
    /// log p(r | pair) − log p(r | noise).
    gain: f64,
    /// Its mean at the points.
    mean: Vec<f64>,
}

impl Fit {
    fn best((i, j): Pair, dim: usize, x: &[f64], residuals: &[f64]) -> Result<Self> {
        let n = residuals.len() as f64;
        let mut best = Self { gain: f64::NEG_INFINITY, mean: vec![0.0; residuals.len()] };
        let variance = residuals.iter().map(|r| r * r).sum::<f64>() / n;
        if variance < f64::MIN_POSITIVE {
            return Ok(best); // nothing is left to explain
        }
        let noise_alone = -0.5 * n * (variance.ln() + 1.0 + std::f64::consts::TAU.ln());
        let h: Vec<f64> = x.chunks_exact(dim).flat_map(|x| [x[i], x[j]]).collect();
        for length in LENGTHS {
            for share in SHARES {
                let mut process = Wiski::builder()
                    .grid(Grid::covering(&[(-1.0, 1.0); 2], &[POINTS; 2])?)
                    .kernel(Kernel::matern52(&[length; 2])?.scaled(share * variance))
                    .noise((1.0 - share) * variance)
                    .rank_tolerance(1e-4)
                    .build()?;
                process.observe_batch(&h, residuals, None)?;
                let gain = process.log_evidence()? - noise_alone;
                if gain > best.gain {
                    let predictor = process.predictor()?;
                    let mean = h.chunks_exact(2).map(|h| predictor.predict_mean(h)).collect::<Result<_>>()?;
                    best = Self { gain, mean };
                }
            }
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn the_pairs_that_interact_are_found() {
        let (dim, n) = (8, 120);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let x: Vec<f64> = (0..n * dim).map(|_| rng.random_range(-1.0..1.0)).collect();
        let noise: Vec<f64> = (0..n).map(|_| rng.random_range(-0.2..0.2)).collect();
        let product = |i: usize, a: usize, b: usize| x[i * dim + a] * x[i * dim + b];
        let residuals: Vec<f64> =
            (0..n).map(|i| 2.0 * product(i, 1, 6) - product(i, 3, 4) + noise[i]).collect();
        let chosen = choose(dim, &x, &residuals).unwrap();
        assert_eq!(chosen[..2], [(1, 6), (3, 4)], "{chosen:?}");
        // Noise alone has no pairs, and neither has nothing.
        assert!(choose(dim, &x, &noise).unwrap().len() <= 1);
        assert!(choose(dim, &x, &vec![0.0; n]).unwrap().is_empty());
    }
}
