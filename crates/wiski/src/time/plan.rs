//! From settings and rows in memory to the systems that may explain them.

use serde::{Deserialize, Serialize};

use super::component::{Component, Smoothness};
use super::effect::{Cycle, Effect, Shape};
use super::moments::Moments;
use super::scale::Scale;
use super::system::System;
use crate::error::{Error, Result, positive};
use crate::feature::Column;

/// Which seasons a series has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum Seasons {
    /// Those that the rows in memory show.
    #[default]
    Auto,
    /// These periods, in the unit of time; none if empty.
    Given(Vec<f64>),
}

/// Which earlier values are inputs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum Lags {
    /// The last few, and those around a season ago, if forecasts of the rows in memory are better with them.
    #[default]
    Auto,
    /// Those so many steps ago; none if empty.
    Given(Vec<usize>),
}

/// How a level moves on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrendKind {
    /// With a slope that changes slowly.
    #[default]
    Linear,
    /// With a slope that returns to zero.
    Damped,
    /// Without a slope.
    Level,
}

/// What a forecaster is told. The default suits most series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForecastSettings {
    /// The seasons.
    pub seasons: Seasons,
    /// Earlier values as inputs.
    pub lags: Lags,
    /// The trend.
    pub trend: TrendKind,
    /// Whether components add up or multiply.
    #[serde(default)]
    pub scale: Scale,
    /// What the inputs known ahead are; one for each.
    pub columns: Vec<Column>,
    /// Whether times are dates, as seconds since 1970: rows by the month are then one step apart, whatever its days.
    #[serde(default)]
    pub dates: bool,
    /// The time between two rows; without it the median gap.
    pub step: Option<f64>,
    /// How far ahead intervals are checked along the stream, in the unit of time; without it one of the longest season
    /// that the rows in memory hold several times.
    pub horizon: Option<f64>,
    /// Rows in memory, from which hyperparameters are learned (4096).
    pub memory: usize,
}

impl Default for ForecastSettings {
    fn default() -> Self {
        Self {
            seasons: Seasons::Auto,
            lags: Lags::Auto,
            trend: TrendKind::Linear,
            scale: Scale::Auto,
            columns: Vec::new(),
            dates: false,
            step: None,
            horizon: None,
            memory: 4096,
        }
    }
}

impl ForecastSettings {
    pub(super) fn check(&self) -> Result<()> {
        if let Seasons::Given(periods) = &self.seasons {
            periods.iter().try_for_each(|p| positive("season", *p, 0))?;
        }
        if let Lags::Given(lags) = &self.lags {
            let longest = self.memory / 2;
            if let Some(lag) = lags.iter().find(|lag| **lag == 0 || **lag > longest) {
                let reason =
                    format!("{lag} steps ago, where 1 to {longest} are possible (half of the memory)");
                return Err(Error::Config { field: "lags".into(), reason });
            }
        }
        if let Some(step) = self.step {
            positive("step", step, 0)?;
        }
        if let Some(horizon) = self.horizon {
            positive("horizon", horizon, 0)?;
        }
        if self.memory < 64 {
            let reason = format!("{} rows, where at least 64 are needed", self.memory);
            return Err(Error::Config { field: "memory".into(), reason });
        }
        Ok(())
    }
}

/// A season of a plan, in steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PlannedSeason {
    pub(super) period: f64,
    pub(super) harmonics: Vec<u32>,
}

/// The most weights that effects changing with a cycle may have.
const MOST_CROSSED: usize = 80;

/// Which parts a system has beside seasons and effects.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Structure {
    pub(super) lags: Vec<usize>,
    /// Whether the level has a slope, where a linear trend may be.
    slope: bool,
    /// Whether there are waves, rough and smooth.
    rough: bool,
    smooth: bool,
}

impl Structure {
    /// Everything that may be there; with lags, waves are theirs.
    pub(super) fn whole(lags: Vec<usize>) -> Self {
        let waves = lags.is_empty();
        Self { lags, slope: true, rough: waves, smooth: waves }
    }

    /// This one and those with less in them: each hyperparameter of a part that is not there is one that few rows get wrong.
    pub(super) fn simpler(&self, trend: TrendKind) -> Vec<Self> {
        let of = |slope, rough, smooth| Self { slope, rough, smooth, ..self.clone() };
        let mut all = vec![self.clone(), of(true, true, false), of(true, false, false)];
        if trend == TrendKind::Linear {
            all.extend([of(false, true, false), of(false, false, false)]);
        }
        all
    }
}

/// Seasons that series often have, in steps; of dates those of the calendar, for steps of so many seconds.
pub(super) fn natural_periods(step: Option<f64>) -> Vec<f64> {
    const DAY: f64 = 86_400.0;
    match step {
        Some(seconds) => [DAY, 7.0 * DAY, 365.25 * DAY].iter().map(|p| p / seconds).collect(),
        // Quarters, days of a week with and without its end, months, hours, half-hours, weeks.
        None => vec![4.0, 5.0, 7.0, 12.0, 24.0, 48.0, 52.18],
    }
}

/// The components of a system: trend, short-term waves (or lags instead), seasons, effects.
pub(super) fn system(
    settings: &ForecastSettings,
    seasons: &[PlannedSeason],
    effects: &[Effect],
    structure: &Structure,
    span: f64,
    moments: &Moments,
) -> Result<System> {
    let Structure { lags, slope, rough, smooth } = structure;
    let mut components = vec![match settings.trend {
        // With lags the past itself carries the level on, and a slope beside it would be told twice.
        _ if !lags.is_empty() => Component::Level { rate: 1e-6, start: 2.0 },
        TrendKind::Linear if *slope => {
            Component::Trend { level_rate: 1e-4, slope_rate: 1e-9, start: [4.0, 16.0 * span.powi(-2)] }
        }
        TrendKind::Damped => Component::DampedTrend { variance: 1e-6, lifetime: 0.2 * span, start: 4.0 },
        TrendKind::Linear | TrendKind::Level => Component::Level { rate: 1e-4, start: 4.0 },
    }];
    if *rough {
        let smoothness = Smoothness::Half;
        components.push(Component::Matern { smoothness, variance: 0.1, lengthscale: 8.0 });
    }
    if *smooth {
        let smoothness = Smoothness::ThreeHalves;
        components.push(Component::Matern { smoothness, variance: 0.05, lengthscale: 50.0 });
    }
    for season in seasons {
        components.push(Component::Season {
            period: season.period,
            harmonics: season.harmonics.clone(),
            variance: 0.5,
            lifetime: 10.0 * season.period,
            lengthscale: 0.7,
        });
    }
    components.extend(effects.iter().map(|e| Component::Effect { effect: e.clone(), variance: 0.2 }));
    if !lags.is_empty() {
        components.push(Component::Lags { lags: lags.clone(), variance: 0.1 });
    }
    let mut system = System::new(components, 0.03)?;
    super::fit::reset(&mut system, span, moments);
    Ok(system)
}

/// The effects of the inputs: each alone, and changing with the shortest season.
pub(super) fn effects(columns: &[Column], inputs: &[f64], seasons: &[PlannedSeason]) -> Result<Vec<Effect>> {
    let width = columns.len();
    let mut out = Vec::new();
    let shortest = seasons.iter().map(|s| s.period).filter(|p| *p >= 6.0).min_by(f64::total_cmp);
    let mut room = MOST_CROSSED;
    for (column, kind) in columns.iter().enumerate() {
        let values = inputs.iter().skip(column).step_by(width);
        let shape = match *kind {
            Column::Periodic { period } => Shape::Cyclic { period, harmonics: 4 },
            Column::Categorical { levels, .. } => Shape::Levels(levels),
            Column::Numeric => {
                let mut sorted: Vec<f64> = values.copied().collect();
                sorted.sort_by(f64::total_cmp);
                let count = sorted.len();
                sorted.dedup();
                let (Some(&lo), Some(&hi)) = (sorted.first(), sorted.last()) else { continue };
                if sorted.len() < 2 {
                    // Nothing can be said about an input that never changed, but it may yet.
                    Shape::Linear { center: lo, scale: 1.0 }
                } else if sorted.len() < 8 || count < 32 {
                    Shape::Linear { center: lo, scale: hi - lo }
                } else {
                    let margin = 0.1 * (hi - lo);
                    Shape::smooth(lo - margin, hi + margin)?
                }
            }
        };
        out.push(Effect { column, shape: shape.clone(), by: None });
        let harmonics = shortest.map_or(0, |p| 3.min((p / 4.0) as usize));
        let weights = shape.dim() * 2 * harmonics;
        if let Some(period) = shortest.filter(|_| harmonics > 0 && weights <= room) {
            room -= weights;
            out.push(Effect { column, shape, by: Some(Cycle { period, harmonics }) });
        }
    }
    Ok(out)
}

/// The lags to try: the last few, and those around one season ago, or around another number of steps.
pub(super) fn lags(seasons: &[PlannedSeason], rows: usize, other: Option<usize>) -> Vec<usize> {
    let mut lags = vec![1, 2, 3, 4];
    let around = seasons.iter().map(|s| s.period.round() as usize).filter(|around| 3 * around <= rows);
    for around in around.chain(other).filter(|around| *around >= 3) {
        lags.extend([around - 1, around, around + 1, around + 2]);
    }
    lags.sort_unstable();
    lags.dedup();
    lags
}
