//! Learning: the optimizers that fit hyperparameters and maximize acquisition functions, and the small scalar
//! maps and priors that such problems need.
//!
//! | need | use |
//! | --- | --- |
//! | few unknowns, exact gradients, a box or none | [`LbfgsB`] |
//! | one cheap step per observation, or noisy gradients | [`Adam`] |
//! | a positive parameter for an optimizer without bounds | [`Transform`] |
//! | a penalty that keeps a parameter sensible | [`Hyperprior`] |
//! | inducing points over all columns, learned on rows in memory | [`PointsSearch`] |
//!
//! Everything here *minimizes*: hand over minus the evidence, minus the acquisition value.
//!
//! ```
//! use wiski::LbfgsB;
//! use wiski::internals::learn::{Bounds, FnObjective};
//!
//! // (x − 3)² on [0, 2]: the answer is the bound.
//! let mut f = FnObjective::new(1, |x, g| {
//!     g[0] = 2.0 * (x[0] - 3.0);
//!     Ok((x[0] - 3.0).powi(2))
//! });
//! let found = LbfgsB::default().minimize(&mut f, &[0.5], &Bounds::new(vec![0.0], vec![2.0])?)?;
//! assert_eq!(found.x, [2.0]);
//! # Ok::<(), wiski::Error>(())
//! ```

pub mod adam;
pub mod additive;
pub mod bounds;
pub mod hyper;
pub mod hyperprior;
pub mod lbfgsb;
pub mod objective;
pub mod points;
mod resolution;
mod screen;
mod season;
pub mod select;
pub mod transform;
pub mod warmup;

pub use adam::{Adam, Annealing};
pub use additive::AdditiveSearch;
pub(crate) use additive::{ClassTargets, FoundFeatures};
pub use bounds::Bounds;
pub(crate) use hyper::Refitted;
pub use hyper::{HyperSpace, Hyperparameters};
pub use hyperprior::Hyperprior;
pub use lbfgsb::{LbfgsB, Minimum, Stop, Workspace};
pub use objective::{FnObjective, Objective};
pub use points::{LearnedPoints, PointsSearch};
pub(crate) use resolution::{FittedGrid, GridSearch, wanted_spacing};
pub(crate) use screen::screen;
pub use select::{Choice, ProjectionSearch, Start};
pub use transform::Transform;
pub use warmup::{Rows, WarmUp, WarmUpTraining};
