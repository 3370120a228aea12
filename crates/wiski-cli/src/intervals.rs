//! The options about intervals of numbers and sets of classes, and what they come to for a prediction.

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use wiski::model::{IntervalKind, Intervals};
use wiski::persist::{Answer, Model};
use wiski::{Horizon, Interval};

/// How sure an interval is to hold its target.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct IntervalOptions {
    /// The share of targets that intervals, or sets of classes, are to hold [default: 0.95]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    level: Option<f64>,

    /// Where the ends of intervals come from: gaussian (what the model says), or conformal (kept along the stream so that
    /// they hold their share of targets, whatever the data do) [default: conformal]
    #[arg(long, value_name = "KIND", value_enum)]
    intervals: Option<Kind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// From the predicted distribution
    Gaussian,
    /// Kept at their level along the stream
    Conformal,
}

impl IntervalOptions {
    /// Rejects what is no level.
    pub(crate) fn check(&self) -> Result<()> {
        let level = self.level.unwrap_or(0.95);
        ensure!(level > 0.0 && level < 1.0, "--level: {level} is not a share between 0 and 1");
        Ok(())
    }

    /// The level that was asked for.
    pub(crate) fn given_level(&self) -> Option<f64> {
        self.level
    }

    /// Whether a kind of intervals was asked for.
    pub(crate) fn kind_is_given(&self) -> bool {
        self.intervals.is_some()
    }

    /// The settings of a new model.
    pub(crate) fn settings(&self) -> Intervals {
        let mut settings = Intervals::default();
        if let Some(level) = self.level {
            settings.level = level;
        }
        if self.intervals == Some(Kind::Gaussian) {
            settings.kind = IntervalKind::Gaussian;
        }
        settings
    }

    /// Whether a model was asked for that has another kind of intervals.
    pub(crate) fn differs_from(&self, model: &Model) -> bool {
        self.intervals == Some(Kind::Conformal) && model.settings().intervals.kind == IntervalKind::Gaussian
    }

    /// The level that was asked for, else that of the model.
    pub(crate) fn level(&self, model: &Model) -> f64 {
        self.level.unwrap_or(model.settings().intervals.level)
    }

    /// The interval around a prediction of a number; `None` for classes.
    pub(crate) fn interval(&self, model: &Model, said: &Answer, row: Horizon) -> Result<Option<Interval>> {
        let level = self.level(model);
        match said {
            Answer::Value(p) if self.intervals == Some(Kind::Gaussian) => {
                Ok(Some(Interval::gaussian(p, level)?))
            }
            said => Ok(model.interval(said, level, row)?),
        }
    }

    /// The set of classes around a prediction; `None` for numbers.
    pub(crate) fn set<'a>(
        &self,
        model: &'a Model,
        said: &Answer,
        row: Horizon,
    ) -> Result<Option<Vec<&'a str>>> {
        Ok(model.set(said, self.level(model), row)?)
    }
}

/// A share in per cent.
pub(crate) fn percent(share: f64) -> String {
    let rounded = (1e6 * share).round() / 1e4;
    format!("{rounded} %")
}
