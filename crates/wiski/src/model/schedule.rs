//! When something is done along a stream: refits of hyperparameters, and the fading of old rows.

use serde::{Deserialize, Serialize};

use super::settings::{HalfLife, Schedule};
use crate::error::{Error, Result, finite};
use crate::learn::LbfgsB;

/// Old observations are decayed when their weight would fall by this factor: what is neglected meanwhile is
/// at most one per cent of their weight.
const DECAY_STEP: f64 = 0.99;

impl Schedule {
    /// Whether a refit is due so many rows after the last one, of `count` in all.
    pub(crate) fn is_due(self, rows_since_refit: f64, count: f64) -> bool {
        match self {
            Self::Geometric { ratio } => {
                rows_since_refit >= (ratio - 1.0) * (count - rows_since_refit).max(10.0)
            }
            Self::EveryStep { .. } | Self::Off => false,
        }
    }
}

impl Schedule {
    /// The schedule of a model whose engine makes refits worth it only with so many times as many rows.
    pub(crate) fn with_ratio_above(self, least: f64) -> Self {
        match self {
            Self::Geometric { ratio } => Self::Geometric { ratio: ratio.max(least) },
            other => other,
        }
    }
}

/// The optimizer at the end of the warm-up, and of a refit that is asked for.
pub(crate) fn thorough() -> LbfgsB {
    LbfgsB { max_evaluations: 60, ..LbfgsB::default() }
}

/// The optimizer along the stream: a few steps from where the last refit ended.
pub(crate) fn brief() -> LbfgsB {
    LbfgsB {
        max_evaluations: 10,
        relative_tolerance: 1e-6,
        first_step: 0.3,
        first_curvature: 0.5,
        ..LbfgsB::default()
    }
}

/// As [`brief`], for large grids, where the evidence of thousands of rows is known up to some units, the standard error of
/// its random vectors, and an evaluation takes tenths of a second: few steps, and the last one is that which gains less
/// than 10⁻⁴ of the log density of a row. The next refit goes on from there.
pub(crate) fn coarse() -> LbfgsB {
    LbfgsB { max_evaluations: 5, relative_tolerance: 1e-4, ..brief() }
}

/// As [`brief`], for sums of grids: dozens of hyperparameters, each step of which takes milliseconds. A step is the last
/// one if it gains less than 10⁻⁵ of the log density of a row and less than a tenth of that of all rows. The second
/// bound is for long streams, the first for short ones, where a tenth alone ended fits too early.
pub(crate) fn frugal(count: f64) -> LbfgsB {
    LbfgsB { relative_tolerance: 1e-5_f64.min(0.1 / count.max(1.0)), ..brief() }
}

/// Exponential forgetting, in steps of one per cent.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Fading {
    /// The decay that old observations still have to undergo, as a power of two.
    pending_halvings: f64,
    last_time: Option<f64>,
}

impl Fading {
    /// Fading from a given time on.
    pub(crate) fn since(last_time: Option<f64>) -> Self {
        Self { last_time, ..Self::default() }
    }

    /// Rejects what no rows can have left behind.
    pub(crate) fn check(&self) -> Result<()> {
        finite("pending decay", self.pending_halvings, 0)?;
        self.last_time.map_or(Ok(()), |time| finite("time", time, 0))
    }

    /// What follows when one more row passes, and the factor by which everything learned is to be decayed then, if any.
    /// Rejects a row without a time where one is needed, or with an earlier one than the row before.
    pub(crate) fn after(
        mut self,
        half_life: Option<HalfLife>,
        time: Option<f64>,
    ) -> Result<(Self, Option<f64>)> {
        self.pending_halvings += match (half_life, time) {
            (None, _) => return Ok((self, None)),
            (Some(HalfLife::Rows(life)), _) => life.recip(),
            (Some(HalfLife::Time(_)), None) => {
                let reason = "the half-life is given in time, so every row needs one";
                return Err(Error::Unsupported { operation: "forgetting", reason });
            }
            (Some(HalfLife::Time(life)), Some(now)) => {
                let passed = now - self.last_time.unwrap_or(now);
                if passed < 0.0 {
                    let reason = format!("times must not decrease, but {now} follows {}", now - passed);
                    return Err(Error::Config { field: "time".into(), reason });
                }
                self.last_time = Some(now);
                passed / life
            }
        };
        let factor = (-self.pending_halvings).exp2();
        if factor >= DECAY_STEP {
            return Ok((self, None));
        }
        self.pending_halvings = 0.0;
        Ok((self, Some(factor.max(1e-300))))
    }
}
