//! Learning: the optimisers that fit hyperparameters and maximise acquisition functions, and the small scalar
//! maps and priors that such problems need.

pub mod adam;
pub mod bounds;
pub mod objective;
pub mod prior;
pub mod transform;

pub use adam::{Adam, Annealing};
pub use bounds::Bounds;
pub use objective::{FnObjective, Objective};
pub use prior::Prior;
pub use transform::Transform;
