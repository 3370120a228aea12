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
    /// What was found.
    pub outcome: Outcome,
    /// The noise variance of the value, where it is known.
    #[serde(default)]
    pub variance: Option<f64>,
}
