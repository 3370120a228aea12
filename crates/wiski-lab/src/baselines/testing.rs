//! What the tests of the baselines share.

use super::hyper::Hyper;
use wiski::internals::exact::Covariance;

/// Compares a gradient with central differences: error h² + ε|f|/h with h = 10⁻⁵ of the size of the unknown.
pub(super) fn assert_gradient(x: &[f64], gradient: &[f64], f: impl Fn(&[f64]) -> f64, tolerance: f64) {
    assert_eq!(x.len(), gradient.len());
    for i in 0..x.len() {
        let h = 1e-5 * (1.0 + x[i].abs());
        let at = |shift: f64| {
            let mut x = x.to_vec();
            x[i] += shift;
            f(&x)
        };
        let numeric = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
        let error = (gradient[i] - numeric).abs();
        assert!(error <= tolerance * (1.0 + numeric.abs()), "unknown {i}: {} but {numeric}", gradient[i]);
    }
}

/// Rows of `d` columns in [−1, 1] and a smooth noisy target.
pub(super) fn rows(n: usize, d: usize) -> (Vec<f64>, Vec<f64>) {
    let x: Vec<f64> = (0..n * d).map(|i| (12.9898 * (i + 1) as f64).sin() * 0.95).collect();
    let y = x
        .chunks_exact(d)
        .enumerate()
        .map(|(i, r)| (2.0 * r[0]).sin() + 0.5 * r[d - 1] + 0.2 * (7.7 * (i * i) as f64).sin())
        .collect();
    (x, y)
}

/// An RBF kernel on two axes with a noise of 0.1.
pub(super) fn hyper() -> Hyper {
    Hyper { kernel: Covariance::rbf(0.9, &[0.6, 0.8]).unwrap(), noise: 0.1, learn_noise: true }
}
