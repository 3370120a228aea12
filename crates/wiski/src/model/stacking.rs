//! Weights of a mixture that follow its log density along a stream.
//!
//! Stacking (Yao et al., *Using stacking to average Bayesian predictive distributions*, 2018) maximizes the log density of
//! the *mixture*; the probabilities that one of several models is the true one, Bayesian averaging, collapse to the best of
//! them. Soft-Bayes (Orseau, Lattimore and Legg, *Soft-Bayes: Prod for mixtures of experts with log-loss*, 2017) does so
//! online, with each row by
//!
//! ```text
//! w_k ← w_k (1 − η + η p_k/Σ_j w_j p_j)
//! ```
//!
//! which leaves the sum of the weights at one. A little of all weight goes back with each row, half of it to the first, so
//! that no weight vanishes for ever. O(K), no allocation.

use crate::error::{Error, Result, length};

/// The share of all weight that goes back with each row.
const RETURN: f64 = 1e-5;

/// Weights of `count` alternatives, of which the first has nearly all.
pub(super) fn first_weights(count: usize, first: f64) -> Vec<f64> {
    let mut weights = vec![(1.0 - first) / (count - 1) as f64; count];
    weights[0] = first;
    weights
}

/// Moves weights by one step at the rate η, given the log densities of what came; returns the log density of the mixture
/// before. Densities that are all zero or not numbers say nothing.
pub(super) fn move_weights(weights: &mut [f64], log_densities: &[f64], rate: f64) -> f64 {
    let log_mixture = log_mixture(weights, log_densities);
    if !log_mixture.is_finite() {
        return log_mixture;
    }
    let others = (weights.len() - 1) as f64;
    let mut sum = 0.0;
    for (k, (w, l)) in weights.iter_mut().zip(log_densities).enumerate() {
        let base = if k == 0 { 0.5 } else { 0.5 / others };
        *w *= 1.0 - rate + rate * (l - log_mixture).exp();
        *w = (1.0 - RETURN) * *w + RETURN * base;
        sum += *w;
    }
    weights.iter_mut().for_each(|w| *w /= sum);
    log_mixture
}

/// The log density of a mixture.
pub(super) fn log_mixture(weights: &[f64], log_densities: &[f64]) -> f64 {
    let largest = log_densities.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + weights.iter().zip(log_densities).map(|(w, l)| w * (l - largest).exp()).sum::<f64>().ln()
}

/// Rejects weights that no stream can have left behind.
pub(super) fn check_weights(of: &str, weights: &[f64], count: usize) -> Result<()> {
    length(of, count, weights.len())?;
    let is_sound = weights.iter().all(|&w| w >= 0.0) && (weights.iter().sum::<f64>() - 1.0).abs() < 1e-6;
    if is_sound {
        Ok(())
    } else {
        Err(Error::Config { field: of.into(), reason: "they do not sum to one".into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_go_to_the_best_mixture_and_not_to_the_best_expert() {
        // Seven rows of ten are explained by the first alone, three by the second: the log density of the mixture is
        // largest at .7 and .3.
        let (mut weights, mut mean) = (vec![0.5, 0.5], 0.0);
        for i in 0..20_000 {
            let first = (1e4 * (12.9898 * f64::from(i + 1)).sin()).rem_euclid(1.0) < 0.7;
            let densities = if first { [0.0, -20.0] } else { [-20.0, 0.0] };
            let before = weights[usize::from(!first)];
            let said = move_weights(&mut weights, &densities, 0.05);
            assert!((said - before.ln()).abs() < 1e-6);
            mean += weights[0] / 20_000.0;
        }
        assert!((mean - 0.7).abs() < 0.02 && (weights[0] + weights[1] - 1.0).abs() < 1e-12, "{mean}");
    }

    #[test]
    fn densities_that_say_nothing_change_nothing() {
        let mut weights = first_weights(3, 0.5);
        move_weights(&mut weights, &[f64::NEG_INFINITY; 3], 0.05);
        move_weights(&mut weights, &[f64::NAN; 3], 0.05);
        assert_eq!(weights, [0.5, 0.25, 0.25]);
    }
}
