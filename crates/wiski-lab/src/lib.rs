//! x
pub mod baselines;
