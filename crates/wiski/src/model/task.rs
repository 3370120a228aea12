//! What the targets of a stream's rows mean: numbers or classes.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::corrections::Corrections;
use super::learner::{Learner, RowTargets};
use super::memory::Memory;
use super::missing::Donors;
use super::settings::Settings;
use super::spread::Spread;
use crate::error::Result;
use crate::posterior::Prediction;

/// What the targets of rows mean.
pub(crate) trait Task: Clone + Serialize + DeserializeOwned + Send + 'static {
    /// An immutable model for other threads.
    type Snapshot;

    /// Whether targets are numbers, which seldom stay the same.
    const IS_NUMBER: bool;

    /// What a row says to each process.
    fn row(&mut self, y: f64, noise: f64) -> RowTargets<'_>;

    /// Rejects a relative noise that is nothing beside the targets.
    fn check_noise(&self, _noise: f64, _settings: &Settings) -> Result<()> {
        Ok(())
    }

    /// The variance of the targets, in the units of the processes.
    fn target_variance(&self) -> f64 {
        1.0
    }

    /// Takes note of a row that was learned: whether its target was out of reach, and by how much its noise was multiplied;
    /// nothing in the warm-up.
    fn observed(&mut self, x: &[f64], y: f64, out: Option<(bool, f64)>);

    /// Rows whose noise was multiplied, with what it was multiplied by, and that are to be learned anew as they are.
    fn reinstated(&mut self) -> Vec<(Vec<f64>, f64, f64)> {
        Vec::new()
    }

    /// By how much the noise of a row was multiplied when it was learned.
    fn discount(&self, _x: &[f64], _y: f64) -> f64 {
        1.0
    }

    /// The number of rows that count less than others since they were too far off.
    fn outliers(&self) -> u64 {
        0
    }

    /// Takes note of how many deviations rows in memory are off if they are left out, and whether those of the stream say
    /// nothing about rows elsewhere.
    fn observe_left_out(&mut self, _scores: Vec<f64>, _is_moving: bool) {}

    /// The log density of a target, at most so many deviations off, or the log probability of a class, given what the processes
    /// said.
    fn log_density(&self, said: &[Prediction], y: f64, farthest: f64) -> f64;

    /// Takes note of a row that was un-learned.
    fn forgotten(&mut self, x: &[f64], y: f64);

    /// Whether the rows in memory can end the warm-up; an error if no further row could mend what is wrong with them.
    fn is_ready(&self, memory: &Memory) -> Result<bool>;

    /// What the rows in memory lead to.
    fn start(&mut self, memory: &Memory, settings: &Settings, input_dim: usize) -> Result<Learner>;

    /// Brings the scale of the targets up to date, before a refit. Returns by how much their unit has grown.
    fn rescale(&mut self, learner: &mut Learner, settings: &Settings) -> Result<f64>;

    /// Takes over what was found out beside the stream.
    fn adopt(&mut self, found: &Self);

    /// The model as it is now.
    fn snapshot(
        &self,
        learner: &Learner,
        corrections: Option<Corrections>,
        spread: Option<Spread>,
        donors: Option<Donors>,
        settings: &Settings,
    ) -> Result<Self::Snapshot>;

    /// The same before any row.
    fn cleared(&self) -> Self;

    /// Takes in what another model has learned.
    fn merge(
        &mut self,
        learner: &mut Learner,
        theirs: &Self,
        other: &Learner,
        settings: &Settings,
    ) -> Result<()>;
}
