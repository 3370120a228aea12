//! Time: series with trend and seasons, filtered in constant time and memory.
mod ahead;
mod bessel;
mod calibration;
pub mod component;
pub mod effect;
pub mod filter;
mod fit;
mod forecast;
mod forecaster;
pub mod likelihood;
mod plan;
mod seasons;
pub mod system;

pub use component::{Component, Smoothness};
pub use effect::{Cycle, Effect, Shape};
pub use filter::{Belief, Expected};
pub use forecast::{ComponentShare, Forecast};
pub use forecaster::{Forecaster, StepAhead};
pub use likelihood::{Series, Share};
pub use plan::{ForecastSettings, Lags, Seasons, TrendKind};
pub use system::{Inputs, System};
