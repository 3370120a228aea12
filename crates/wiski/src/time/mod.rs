//! Time: series with trend, seasons, inputs known ahead and lags, learned row by row and forecast with intervals.
//!
//! A series is a sum of [`Component`]s: trend, Matérn processes and quasi-periodic seasons as small state-space models, each
//! exact for its kernel; weights of inputs and of earlier values beside them. All coordinates z together are one
//! Gaussian, y = hᵀz + ε, that a Kalman filter carries on:
//!
//! | | cost for p coordinates, k of which move |
//! | --- | --- |
//! | a row, after any gap | O(p²) multiply-adds, of which the prediction step is O(k p) |
//! | a row without a target | nothing |
//! | the likelihood of n rows with its gradient | about 4 n times a row |
//! | the mean h steps ahead | O(p), with lags O(h p) |
//! | mean and variance h steps ahead | O(p²), with lags O(h² p) for all h together |
//!
//! In order: components become a [`System`]; `filter` carries a belief on; `likelihood` has the exact score and the
//! smoother (both in [`internals::time`](crate::internals::time)); the rest is behind [`Forecaster`], which finds seasons on rows in memory, learns
//! hyperparameters, chooses lags, and checks its own forecasts along the stream so that intervals keep their level.

mod ahead;
mod backtest;
mod bessel;
mod blend;
mod calibration;
mod clock;
mod component;
mod effect;
pub(crate) mod filter;
mod fit;
mod forecast;
mod forecaster;
pub(crate) mod likelihood;
mod moments;
mod pending;
mod plan;
mod running;
mod scale;
mod search;
mod seasons;
pub(crate) mod system;
mod window;

pub use backtest::{Backtest, HorizonScore};
pub use component::{Component, Smoothness};
pub use effect::{Cycle, Effect, Shape};
pub use forecast::{ComponentShare, Forecast};
pub use forecaster::Forecaster;
pub use plan::{ForecastSettings, Lags, Seasons, TrendKind};
pub use running::StepAhead;
pub use scale::Scale;
pub use system::System;
