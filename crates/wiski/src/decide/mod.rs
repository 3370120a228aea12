//! Deciding where to look next: Bayesian optimization and active learning.
//!
//! ```text
//! posterior ─ Surface ─┬─ Acquisition (UCB, EI, log-EI, PI, MES; one point or q jointly) ─┐
//!        (a Surrogate) ├─ IntegratedVariance (active learning) ───────────────────────────┼─ Maximizer ─ Optimizer
//!                      └─ function samples (Thompson) ────────────────────────────────────┘   (L-BFGS-B)  (ask/tell)
//! ```
//!
//! A search with constraints or several objectives has a surrogate for each, and maximizes what they say together.
//!
//! All of it costs the same after ten thousand trials as after ten: the posterior has a fixed size, and a new
//! result is conditioned on in constant time.
//!
//! Values are maximized here; [`Optimizer`] turns minimization into that. What it is made of, for searches of one's own, is in
//! [`internals::decide`](crate::internals::decide).

pub(crate) mod acquisition;
pub(crate) mod active;
pub(crate) mod batch;
mod choose;
mod functions;
pub(crate) mod maximize;
mod merit;
mod mixed;
mod optimizer;
mod pairs;
mod pareto;
mod plausible;
pub(crate) mod propose;
mod region;
mod seen;
mod settings;
mod space;
pub(crate) mod surrogate;
mod trial;

pub(crate) use crate::posterior::Surrogate;
pub use acquisition::Acquisition;
pub use active::choose_rows;
pub(crate) use batch::BaseSamples;
pub use functions::TestFunction;
pub use maximize::Maximizer;
pub use optimizer::Optimizer;
pub(crate) use propose::{Incumbent, Proposer};
pub use settings::{Goal, OptimizerSettings, Strategy};
pub use space::{Condition, Dimension, MOST_DIMENSIONS, Scale, Space};
pub(crate) use surrogate::SurrogateModel;
pub use trial::{Outcome, Trial};
