//! What was tried, and what came of it.

use serde::{Deserialize, Serialize};

/// What became of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was measured.
    Value(f64),
    /// It gave no value; the model does not learn from it.
    Failed,
}

/// A point that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Where, in the user's values.
    pub x: Vec<f64>,
    /// What was found: the value of the first objective, if there are several.
    pub outcome: Outcome,
    /// The noise variance of the value, where it is known.
    #[serde(default)]
    pub variance: Option<f64>,
    /// The values of the further objectives, one for each of
    /// [`OptimizerSettings::further`](super::OptimizerSettings::further); none for a failed trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<f64>,
    /// The values of the constraints, one for each of
    /// [`OptimizerSettings::constraints`](super::OptimizerSettings::constraints); none for a failed trial. A constraint
    /// holds where its value is zero or less.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<f64>,
}

impl Trial {
    /// A point with the value that was found there.
    pub fn new(x: impl Into<Vec<f64>>, value: f64) -> Self {
        Self {
            x: x.into(),
            outcome: Outcome::Value(value),
            variance: None,
            further: Vec::new(),
            constraints: Vec::new(),
        }
    }

    /// A point that gave no value.
    pub fn failed(x: impl Into<Vec<f64>>) -> Self {
        Self { outcome: Outcome::Failed, ..Self::new(x, 0.0) }
    }

    /// The same with the known noise variance of its value.
    #[must_use]
    pub fn with_noise(self, variance: f64) -> Self {
        Self { variance: Some(variance), ..self }
    }

    /// The same with the values of the further objectives.
    #[must_use]
    pub fn with_further(self, values: impl Into<Vec<f64>>) -> Self {
        Self { further: values.into(), ..self }
    }

    /// The same with the values of the constraints.
    #[must_use]
    pub fn with_constraints(self, values: impl Into<Vec<f64>>) -> Self {
        Self { constraints: values.into(), ..self }
    }

    /// The values of all objectives; none if the trial failed.
    pub fn values(&self) -> Vec<f64> {
        match self.outcome {
            Outcome::Value(first) => std::iter::once(first).chain(self.further.iter().copied()).collect(),
            Outcome::Failed => Vec::new(),
        }
    }

    /// Whether it gave a value and every constraint holds.
    pub fn is_feasible(&self) -> bool {
        self.outcome != Outcome::Failed && self.constraints.iter().all(|c| *c <= 0.0)
    }
}
