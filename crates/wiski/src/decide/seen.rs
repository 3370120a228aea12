//! What models see of a trial: one number for each objective and constraint, of which large ones are wanted.
//!
//! Objectives are measured against those of the initial design ([`Plausible`]). A constraint c ≤ 0 is seen as its slack
//! −c, cut to twenty times the median size that it had in the initial design: a constraint that a program says to be
//! violated by 10³⁰ must not hide from a model where it holds, and cutting around zero never changes whether it does.

use super::plausible::Plausible;
use super::{Goal, OptimizerSettings, Outcome, Trial};
use crate::learn::Rows;

/// A slack is cut to so many times its usual size.
const FARTHEST: f64 = 20.0;

/// One trial as the models see it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    /// Objectives, then constraints.
    pub(super) outputs: Vec<f64>,
    pub(super) is_feasible: bool,
}

/// What trials are measured against before models see them.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    signs: Vec<f64>,
    objectives: Vec<Plausible>,
    /// The largest slack of each constraint.
    slacks: Vec<f64>,
}

impl View {
    /// Measured against the first so many trials that gave values.
    pub(super) fn of(settings: &OptimizerSettings, trials: &[Trial], initial: usize) -> Self {
        let signs: Vec<f64> = settings.goals().map(Goal::sign).collect();
        let told: Vec<Vec<f64>> =
            trials.iter().map(Trial::values).filter(|values| !values.is_empty()).take(initial).collect();
        let plausible = |(k, sign): (usize, &f64)| Plausible::of(told.iter().map(|values| sign * values[k]));
        let objectives = signs.iter().enumerate().map(plausible).collect();
        let first = || trials.iter().filter(|trial| trial.outcome != Outcome::Failed).take(initial);
        let slack = |j: usize| FARTHEST * usual(first().map(|trial| trial.constraints[j].abs()).collect());
        let slacks = (0..settings.constraints.len()).map(slack).collect();
        Self { signs, objectives, slacks }
    }

    /// What the models should see of a trial; `None` if it failed or is not to be believed.
    pub(super) fn seen(&self, trial: &Trial) -> Option<Seen> {
        let values = trial.values();
        if values.is_empty() {
            return None;
        }
        let mut outputs = Vec::with_capacity(values.len() + self.slacks.len());
        for ((value, sign), plausible) in values.iter().zip(&self.signs).zip(&self.objectives) {
            outputs.push(plausible.seen(sign * value)?);
        }
        outputs.extend(trial.constraints.iter().zip(&self.slacks).map(|(c, most)| (-c).clamp(-most, *most)));
        Some(Seen { outputs, is_feasible: trial.is_feasible() })
    }
}

/// The median of sizes that are not zero; 1 if there are none.
fn usual(mut sizes: Vec<f64>) -> f64 {
    sizes.retain(|size| *size > 0.0);
    sizes.sort_by(f64::total_cmp);
    // The square of what is cut to must be a number still.
    sizes.get(sizes.len() / 2).map_or(1.0, |size| size.clamp(1e-100, 1e98))
}

/// The trials that gave a value, as the models see them: coordinates in [−1, 1], large values wanted.
#[derive(Debug, Clone, Default)]
pub(super) struct Results {
    /// For each objective, then for each constraint; the places are the same in all.
    outputs: Vec<Rows>,
    /// Whether every constraint holds.
    pub(super) feasible: Vec<bool>,
}

impl Results {
    /// None yet, of so many objectives and constraints.
    pub(super) fn new(outputs: usize) -> Self {
        Self { outputs: vec![Rows::default(); outputs], feasible: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.feasible.len()
    }

    /// Those of one objective or constraint.
    pub(super) fn of(&self, output: usize) -> &Rows {
        &self.outputs[output]
    }

    /// Those of the first objective.
    pub(super) fn first(&self) -> &Rows {
        self.of(0)
    }

    pub(super) fn push(&mut self, h: &[f64], seen: &Seen, variance: Option<f64>) {
        for (k, (rows, y)) in self.outputs.iter_mut().zip(&seen.outputs).enumerate() {
            // The variance that is told is that of the first objective.
            rows.push(h, *y, variance.filter(|_| k == 0).unwrap_or(1.0));
        }
        self.feasible.push(seen.is_feasible);
    }

    /// Takes back the last one, of `dim` coordinates.
    pub(super) fn pop(&mut self, dim: usize) {
        self.outputs.iter_mut().for_each(|rows| rows.pop(dim));
        self.feasible.pop();
    }

    /// The places at which every constraint holds, row after row.
    pub(super) fn feasible_places(&self) -> Vec<f64> {
        self.first().filter(|i| self.feasible[i]).x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slacks_are_cut_but_keep_their_sign() {
        let settings = OptimizerSettings {
            constraints: vec!["weight".into()],
            further: vec![Goal::Maximize],
            ..OptimizerSettings::default()
        };
        let trial = |c: f64| Trial::new([0.0], 1.0).with_further([2.0]).with_constraints([c]);
        let trials = [trial(1.0), Trial::failed([0.0]), trial(0.0), trial(-2.0), trial(1e200)];
        let view = View::of(&settings, &trials, 10);
        // Sizes 1, 2 and 10²⁰⁰: the median is 2, so that 40 is the largest slack. Small values of the first objective
        // are wanted, and large ones of the second.
        for (c, slack) in [(0.5, -0.5), (-3.0, 3.0), (1e200, -40.0), (f64::MIN, 40.0), (0.0, -0.0)] {
            let seen = view.seen(&trial(c)).unwrap();
            assert_eq!(seen.outputs, [-1.0, 2.0, slack], "{c}");
            assert_eq!(seen.is_feasible, c <= 0.0);
        }
        assert_eq!(view.seen(&Trial::failed([0.0])), None);
        assert_eq!(usual(vec![0.0; 3]), 1.0);
    }
}
