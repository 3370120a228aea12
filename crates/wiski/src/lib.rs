//! Online Gaussian processes in constant time and memory.
//!
//! wiski learns from a stream, one observation at a time, with calibrated uncertainty, and its cost per
//! observation does not depend on how many it has seen. It implements *Kernel Interpolation for Scalable
//! Online Gaussian Processes* (Stanton, Maddox, Delbridge, Wilson; AISTATS 2021) and goes past it: the
//! sufficient statistics are kept exactly, so models can be merged, points un-learned and grids extended
//! without loss.
//!
//! ```
//! use wiski::{Grid, Kernel, OnlineGp, Wiski};
//!
//! let grid = Grid::covering(&[(-1.0, 1.0), (-1.0, 1.0)], &[16, 16])?;
//! let mut model = Wiski::builder().grid(grid).kernel(Kernel::rbf(&[0.5, 0.7])?).noise(0.05).build()?;
//! model.observe(&[0.1, -0.3], 1.5)?;
//! let p = model.predict(&[0.1, -0.2])?;
//! assert!(p.mean > 1.0 && p.std() < 0.5);
//! # Ok::<(), wiski::Error>(())
//! ```
//!
//! # Where to begin
//!
//! * Raw rows, in any units: [`OnlineRegressor`] and [`OnlineClassifier`], with [`Settings`]; what settings are made of, what
//!   models answer and how they are scored is in [`model`].
//! * Series: [`Forecaster`], more in [`time`].
//! * Where to look next, Bayesian optimization and active learning: [`decide`].
//! * Models in files and journals: [`persist`]. Rows on many machines: [`shard`].
//! * The process on a grid at hyperparameters of your choice: [`Wiski`], with [`Grid`] and [`Kernel`].
//!
//! # The pipeline
//!
//! Data flows through the modules in the order in which they stand here; a module uses only those above it. Those under
//! [`internals`] are there for experiments with the engine, and may change with any version.
//!
//! 1. [`internals::feature`]: maps from input columns to grid coordinates, x → h, and streaming input moments.
//! 2. [`internals::kernel`]: stationary kernels, their sums and products, their gradients.
//! 3. [`internals::points`], [`internals::grid`], [`internals::interp`]: inducing points, regular grids and cubic
//!    interpolation weights, x → w.
//! 4. [`internals::likelihood`]: class labels as targets with known noise, latent values as class probabilities.
//! 5. [`internals::structure`]: Toeplitz, Kronecker, stencil and block matrices.
//! 6. [`internals::prior`]: the root B of the prior covariance on the grid, with adaptive rank p.
//! 7. [`internals::stats`]: sufficient statistics, the only thing that data touches.
//! 8. [`internals::posterior`]: mean and covariance from statistics; constant-time conditioning; predictions.
//! 9. [`internals::evidence`]: the log marginal likelihood and its gradient in every hyperparameter.
//! 10. [`internals::large`]: engines for grids from two thousand to a million points.
//! 11. [`internals::engine`]: one interface for the posteriors of all engines, and which one is used.
//! 12. [`internals::learn`]: optimizers, transforms and priors for hyperparameters; projections and sums of grids chosen
//!     on rows in memory; inducing points learned on them.
//! 13. [`internals::exact`]: the exact process without a grid, for few rows.
//! 14. [`internals::conformal`]: intervals that hold along a stream, whatever the data do.
//! 15. [`time`]: series with trend, seasons, inputs and lags, and their forecasts.
//! 16. [`model`]: the interface of online Gaussian processes, [`Wiski`], and regression and classification of raw
//!     rows.
//! 17. [`decide`], [`persist`], [`shard`]: where to look next; models in files; models of rows that lie on many machines.
//!
//! # Features
//!
//! Both are on by default. Without them the library needs neither a file system nor threads.
//!
//! * `files`: snapshots in files, journals and locks ([`persist`]). Models become bytes and come back without it.
//! * `threads`: two threads for large grids and searches; without it the same work is done in turn.
//!
//! # Symbols
//!
//! n observations, m grid points, p rank of the prior root, d axes of a grid, g points on an axis;
//! W interpolation weights, K = B Bᵀ prior covariance on the grid, σ² noise variance, d_i relative noise of
//! observation i.

mod error;
mod interrupt;
mod normal;
mod pool;
mod saved;
mod simd;
mod threads;

mod dense;

mod feature;

mod kernel;

mod points;

mod grid;
mod interp;

mod likelihood;

mod structure;

mod prior;

mod stats;

mod posterior;

mod evidence;

mod large;

mod engine;

mod learn;

mod exact;

mod conformal;

pub mod time;

pub mod model;

pub mod decide;

pub mod persist;

pub mod shard;

pub mod internals;

pub use conformal::{Horizon, Interval};
pub use engine::{Accuracy, Engine};
pub use error::{Error, IoError, Result};
pub use feature::Column;
pub use grid::{Axis, Grid};
pub use interrupt::Interrupt;
pub use kernel::{Family, Kernel};
pub use learn::{HyperSpace, Hyperparameters, LbfgsB, Minimum};
pub use model::{
    ClassPrediction, ClassSnapshot, Classes, Features, OffGrid, OnlineClassifier, OnlineGp, OnlineRegressor,
    Outcome, Reader, Remark, Schedule, Settings, Snapshot, Unseen, Wiski, WiskiBuilder,
};
pub use posterior::{Prediction, Predictor};
pub use stats::Stats;
pub use time::{Forecast, ForecastSettings, Forecaster};

/// The code in the README is tested with the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
