//! The exact Gaussian process, without a grid: for few rows, where it is both cheaper than a grid and free of its
//! interpolation error.
//!
//! ```text
//! Covariance (kernel matrices) ─ ExactProcess (rows, O(n³) a fit) ─┬─ KernelPosterior (joint predictions)
//!                                                                  └─ PathSample (whole functions)
//! ```
//!
//! A grid's posterior lives in p coordinates, this one in n. An optimizer ([`crate::decide`]) starts here and moves
//! to grids when the rows are no longer few.

pub mod covariance;
pub mod path;
pub mod posterior;
pub mod process;

pub use covariance::{Covariance, Slots};
pub use path::PathSample;
pub use posterior::KernelPosterior;
pub use process::ExactProcess;
