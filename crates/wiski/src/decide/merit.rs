//! What a point promises a search: the improvement that it may bring, if every constraint holds there.
//!
//! For independent models of objectives and constraints (Gardner et al. 2014, "Bayesian optimization with inequality
//! constraints"), by logarithms,
//!
//! ```text
//! log α(x) = log E improvement + Σ_j log P(g_j(x) ≥ 0),   P(g ≥ 0) = Φ((μ − t)/σ)
//! ```
//!
//! where t is the standardized value of no slack. Before any result is feasible there is nothing to improve on, and the
//! probabilities alone are maximized.

use super::maximize::Criterion;
use super::pareto::Cells;
use super::{Acquisition, BaseSamples, Incumbent, Surrogate};
use crate::error::Result;
use crate::posterior::Joint;

/// What is to be improved on.
#[derive(Debug, Clone)]
pub(super) enum Gain {
    /// Nothing yet.
    Nothing,
    /// The best value of one objective.
    Over(Acquisition, Incumbent),
    /// The front of several.
    Front(Cells),
}

/// The criterion of one point.
pub(super) struct Merit<'a> {
    gain: &'a Gain,
    objectives: Vec<&'a dyn Surrogate>,
    /// Each with the least value at which it holds.
    constraints: Vec<(&'a dyn Surrogate, f64)>,
    samples: BaseSamples,
    joints: Vec<Joint>,
}

impl<'a> Merit<'a> {
    pub(super) fn new(
        gain: &'a Gain,
        objectives: Vec<&'a dyn Surrogate>,
        constraints: Vec<(&'a dyn Surrogate, f64)>,
    ) -> Self {
        let joints = vec![Joint::default(); objectives.len().max(1)];
        Self { gain, objectives, constraints, samples: BaseSamples::new(1, 1, 0), joints }
    }
}

/// The logarithm of the probability that a value is at least so large, with its derivatives in mean and variance.
pub(super) fn log_probability(joint: &Joint, least: f64) -> (f64, [f64; 2]) {
    Acquisition::ProbabilityOfImprovement.of_one(joint.mean[0], joint.variance(0), least)
}

impl Criterion for Merit<'_> {
    fn evaluate(&mut self, x: &[f64], mut gradient: Option<&mut [f64]>) -> Result<f64> {
        if let Some(gradient) = gradient.as_deref_mut() {
            gradient.fill(0.0);
        }
        let mut value = match self.gain {
            Gain::Nothing => 0.0,
            Gain::Over(acquisition, incumbent) => {
                let (point, joint) = ((x, incumbent, &self.samples), &mut self.joints[0]);
                match gradient.as_deref_mut() {
                    None => acquisition.value(self.objectives[0], point, joint)?,
                    Some(gradient) => {
                        acquisition.value_and_gradient(self.objectives[0], point, joint, gradient)?
                    }
                }
            }
            Gain::Front(cells) => {
                let mut predictions = Vec::with_capacity(self.objectives.len());
                for (objective, joint) in self.objectives.iter().zip(&mut self.joints) {
                    objective.predict(x, joint)?;
                    predictions.push((joint.mean[0], joint.variance(0)));
                }
                let mut slopes = vec![[0.0; 2]; predictions.len()];
                let value = cells.log_improvement(&predictions, &mut slopes);
                if let Some(gradient) = gradient.as_deref_mut() {
                    for ((objective, joint), [by_mean, by_variance]) in
                        self.objectives.iter().zip(&self.joints).zip(slopes)
                    {
                        objective.vjp(x, joint, &[by_mean], &[by_variance], gradient)?;
                    }
                }
                value
            }
        };
        for &(constraint, least) in &self.constraints {
            let joint = &mut self.joints[0];
            constraint.predict(x, joint)?;
            let (log, [by_mean, by_variance]) = log_probability(joint, least);
            value += log;
            if let Some(gradient) = gradient.as_deref_mut() {
                constraint.vjp(x, joint, &[by_mean], &[by_variance], gradient)?;
            }
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;
    use crate::kernel::Kernel;
    use crate::model::{OnlineGp, Wiski};
    use crate::posterior::Surface;

    /// A process that has learned a function at a few places.
    fn surface(f: impl Fn(f64, f64) -> f64) -> Surface {
        let mut model = Wiski::builder()
            .noise(0.02)
            .grid(Grid::covering(&[(-1.0, 1.0); 2], &[9; 2]).unwrap())
            .kernel(Kernel::matern52(&[0.8; 2]).unwrap())
            .build()
            .unwrap();
        for i in 0..14 {
            let (a, b) = ((f64::from(i) * 0.77).sin(), (f64::from(i) * 1.31).cos());
            model.observe(&[a, b], f(a, b)).unwrap();
        }
        model.posterior().unwrap().surface()
    }

    #[test]
    fn it_is_the_product_of_what_is_expected_and_how_likely_it_is() {
        let models = [surface(|a, b| a + b), surface(|a, b| a - b * b), surface(|a, _| (3.0 * a).sin())];
        let values = [vec![0.4, -0.2], vec![-0.1, 0.3]];
        let gains = [
            Gain::Nothing,
            Gain::Over(Acquisition::LogExpectedImprovement, Incumbent::with_best(0.5)),
            Gain::Front(Cells::of(&values)),
        ];
        let x = [0.21, -0.37];
        let predict = |surface: &Surface| {
            let mut joint = Joint::default();
            surface.predict(&x, &mut joint).unwrap();
            joint
        };
        for gain in &gains {
            let objectives: Vec<&dyn Surrogate> = vec![&models[0], &models[1]];
            let constraints: Vec<(&dyn Surrogate, f64)> = vec![(&models[1], 0.2), (&models[2], -0.4)];
            let mut merit = Merit::new(gain, objectives, constraints);
            let mut gradient = [7.0; 2];
            let value = merit.evaluate(&x, Some(&mut gradient)).unwrap();
            assert_eq!(value, merit.evaluate(&x, None).unwrap());
            let likely: f64 = [(&models[1], 0.2), (&models[2], -0.4)]
                .map(|(model, least)| {
                    let joint = predict(model);
                    crate::normal::cumulative((joint.mean[0] - least) / joint.variance(0).sqrt())
                })
                .iter()
                .product();
            let (one, two) = (predict(&models[0]), predict(&models[1]));
            let expected = match gain {
                Gain::Nothing => 1.0,
                Gain::Over(..) => {
                    let (z, s) = ((one.mean[0] - 0.5) / one.variance(0).sqrt(), one.variance(0).sqrt());
                    s * (crate::normal::density(z) + z * crate::normal::cumulative(z))
                }
                Gain::Front(cells) => {
                    let both = [(one.mean[0], one.variance(0)), (two.mean[0], two.variance(0))];
                    cells.log_improvement(&both, &mut [[0.0; 2]; 2]).exp()
                }
            };
            assert!((value.exp() / (likely * expected) - 1.0).abs() < 1e-10, "{gain:?}: {value}");
            for k in 0..2 {
                let mut moved = |by: f64| {
                    let mut x = x;
                    x[k] += by;
                    merit.evaluate(&x, None).unwrap()
                };
                let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!(
                    (slope - gradient[k]).abs() < 1e-7 * (1.0 + slope.abs()),
                    "{gain:?}: {slope} {gradient:?}"
                );
            }
        }
    }
}
