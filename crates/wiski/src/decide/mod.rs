//! Deciding where to look next: Bayesian optimisation and active learning.
//!
//! ```text
//! posterior ─ Surface ─┬─ Acquisition (UCB, EI, log-EI, PI; one point or q jointly) ─┐
//!                      ├─ IntegratedVariance (active learning) ──────────────────────┼─ Maximiser ─ Optimizer
//!                      └─ function samples (Thompson) ───────────────────────────────┘   (L-BFGS-B)  (ask/tell)
//! ```
//!
//! All of it costs the same after ten thousand trials as after ten: the posterior has a fixed size, and a new
//! result is conditioned on in constant time.
//!
//! Values are maximised here; [`Optimizer`] turns minimisation into that.

mod acquisition;
mod active;
mod batch;
mod functions;
mod maximise;
mod normal;
mod optimizer;
mod space;

pub use acquisition::Acquisition;
pub use active::{IntegratedVariance, choose_rows};
pub use batch::BaseSamples;
pub use functions::TestFunction;
pub use maximise::{Maximiser, Maximum};
pub use optimizer::{Goal, Optimizer, OptimizerSettings, Outcome, Strategy, Trial};
pub use space::{Dimension, Scale, Space};
