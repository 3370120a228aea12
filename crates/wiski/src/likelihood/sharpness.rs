//! How sure class probabilities should be: one exponent β, learned from how surprising the classes were that came.
//!
//! A classifier that says p̃ may be too sure or not sure enough as a whole; p_c ∝ p̃_c^β mends that (temperature scaling
//! with β = 1/T, Guo et al., *On Calibration of Modern Neural Networks*, 2017). With b = log β the log-loss −log p_y has
//!
//! ```text
//! ∂/∂b = −log p_y − H(p),   H(p) = −Σ p_c log p_c        ∂²/∂b² ≈ Var_p(log p)
//! ```
//!
//! so at the best b classes are as surprising as the probabilities say. b has a normal prior around 0. Along a stream it
//! takes Newton's step with each row, on curvature that fades within a thousand rows; where a model is made from rows in
//! memory, it is fitted to what the others of them say about each row.

use serde::{Deserialize, Serialize};

use crate::error::{Result, finite};
use crate::saved::{Restore, restored_after_reading};

/// The prior precision of b: a deviation of .5.
const PRIOR: f64 = 4.0;
/// Curvature fades by this much with each row.
const FADING: f64 = 1e-3;
/// No row moves b by more.
const LONGEST_STEP: f64 = 0.1;
/// Bounds of b.
const RANGE: f64 = 1.5;
const NEWTON_STEPS: usize = 20;

/// The exponent β of class probabilities, with the curvature of the log-loss around it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(crate) struct Sharpness {
    b: f64,
    curvature: f64,
}

restored_after_reading!(Sharpness);

impl Restore for Sharpness {
    fn restore(&mut self) -> Result<()> {
        finite("sharpness", self.b, 0)?;
        finite("curvature of the sharpness", self.curvature, 0)?;
        (self.b, self.curvature) = (self.b.clamp(-RANGE, RANGE), self.curvature.max(0.0));
        Ok(())
    }
}

impl Sharpness {
    /// β that suits predictions of rows, each with its class.
    pub(crate) fn fitted(rows: &[(Vec<f64>, usize)]) -> Self {
        let (mut fitted, mut p) = (Self::default(), Vec::new());
        for _ in 0..NEWTON_STEPS {
            let (mut slope, mut curvature) = (PRIOR * fitted.b, 0.0);
            for (said, class) in rows {
                p.clone_from(said);
                fitted.apply(&mut p);
                let (g, h) = derivatives(&p, *class);
                slope += g;
                curvature += h;
            }
            let step = slope / (curvature + PRIOR);
            fitted = Self { b: (fitted.b - step.clamp(-0.5, 0.5)).clamp(-RANGE, RANGE), curvature };
            if step.abs() < 1e-6 {
                break;
            }
        }
        // As much as rows along a stream would have left of it.
        fitted.curvature = fitted.curvature.min(fitted.curvature / (FADING * rows.len().max(1) as f64));
        fitted
    }

    /// −log p_y of each row, with the exponent that suits all of them.
    pub(crate) fn losses(rows: &[(Vec<f64>, usize)]) -> Vec<f64> {
        let (fitted, mut p) = (Self::fitted(rows), Vec::new());
        let loss = |(said, class): &(Vec<f64>, usize)| {
            p.clone_from(said);
            fitted.apply(&mut p);
            -p[*class].max(f64::MIN_POSITIVE).ln()
        };
        rows.iter().map(loss).collect()
    }

    /// β.
    pub(crate) fn exponent(&self) -> f64 {
        self.b.exp()
    }

    /// p ← p^β, normalized.
    pub(crate) fn apply(&self, p: &mut [f64]) {
        if self.b == 0.0 {
            return;
        }
        let (beta, most) = (self.exponent(), p.iter().copied().fold(f64::MIN_POSITIVE, f64::max));
        p.iter_mut().for_each(|p| *p = (*p / most).powf(beta));
        let total = p.iter().sum::<f64>().recip();
        p.iter_mut().for_each(|p| *p *= total);
    }

    /// Takes note of the class that followed a prediction with this exponent.
    pub(crate) fn observe(&mut self, p: &[f64], class: usize) {
        let (slope, curvature) = derivatives(p, class);
        self.curvature = (1.0 - FADING) * self.curvature + curvature;
        let step = (slope / (self.curvature + PRIOR)).clamp(-LONGEST_STEP, LONGEST_STEP);
        self.b = (self.b - step).clamp(-RANGE, RANGE);
    }

    /// What two models have learned together, by what each of them has seen.
    pub(crate) fn merge(&mut self, other: &Self) {
        let (own, theirs) = (self.curvature + PRIOR, other.curvature + PRIOR);
        self.b = (own * self.b + theirs * other.b) / (own + theirs);
        self.curvature = self.curvature.max(other.curvature);
    }
}

/// ∂/∂b and ∂²/∂b² of −log p_y.
fn derivatives(p: &[f64], class: usize) -> (f64, f64) {
    let log = |p: f64| p.max(f64::MIN_POSITIVE).ln();
    let mean: f64 = p.iter().map(|&p| p * log(p)).sum();
    let square: f64 = p.iter().map(|&p| p * log(p).powi(2)).sum();
    (mean - log(p[class]), (square - mean * mean).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of three classes, drawn with p^0.5 of what is said: twice as sure as it should be.
    fn overconfident(rows: usize) -> Vec<(Vec<f64>, usize)> {
        let uniform = |i: usize, a: f64| (a * (i * i + 7 * i + 3) as f64).fract();
        let row = |i: usize| {
            let latent = [0.618, 0.414, 0.732].map(|a| 8.0 * uniform(i, a) - 4.0);
            let softmax = |beta: f64| {
                let e = latent.map(|f| (beta * f).exp());
                e.map(|v| v / e.iter().sum::<f64>())
            };
            let (said, truth) = (softmax(1.0), softmax(0.5));
            let u = uniform(i, 0.236_067_977);
            let class = if u < truth[0] { 0 } else { usize::from(u >= truth[0] + truth[1]) + 1 };
            (said.to_vec(), class)
        };
        (0..rows).map(row).collect()
    }

    #[test]
    fn derivatives_match_differences() {
        let (said, class) = &overconfident(5)[3];
        let loss = |b: f64| {
            let mut p = said.clone();
            Sharpness { b, curvature: 0.0 }.apply(&mut p);
            (-p[*class].ln(), derivatives(&p, *class))
        };
        let (b, step) = (0.3, 1e-5);
        let (slope, _) = loss(b).1;
        let numeric = (loss(b + step).0 - loss(b - step).0) / (2.0 * step);
        assert!((slope - numeric).abs() < 1e-9 * (1.0 + slope.abs()), "{slope} {numeric}");
        // At the optimum of the expected loss the neglected part of the second derivative has mean zero.
        let mut p = said.clone();
        Sharpness { b, curvature: 0.0 }.apply(&mut p);
        let expected: f64 = (0..3).map(|c| p[c] * derivatives(&p, c).0).sum();
        assert!(expected.abs() < 1e-14);
    }

    #[test]
    fn the_exponent_of_overconfident_rows_is_found_at_once_and_along_a_stream() {
        let rows = overconfident(4000);
        let fitted = Sharpness::fitted(&rows);
        assert!((fitted.exponent() - 0.5).abs() < 0.05, "{}", fitted.exponent());
        let mut along = Sharpness::default();
        for (said, class) in &rows {
            let mut p = said.clone();
            along.apply(&mut p);
            along.observe(&p, *class);
        }
        assert!((along.exponent() - 0.5).abs() < 0.08, "{}", along.exponent());
        // Few rows say little.
        assert!(Sharpness::fitted(&rows[..3]).exponent() > 0.6);
    }

    #[test]
    fn certain_and_impossible_classes_do_no_harm() {
        let mut sharpness = Sharpness::default();
        for _ in 0..100 {
            sharpness.observe(&[1.0, 0.0], 1);
        }
        assert!(sharpness.b.is_finite() && sharpness.b < -0.5);
        let mut p = [1.0, 0.0, 0.0];
        sharpness.apply(&mut p);
        assert_eq!(p, [1.0, 0.0, 0.0]);
    }
}
