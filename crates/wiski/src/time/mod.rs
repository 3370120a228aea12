//! Time: series with trend and seasons, filtered in constant time and memory.
mod bessel;
pub mod component;
pub mod effect;
pub mod filter;
pub mod likelihood;
pub mod system;

pub use component::{Component, Smoothness};
pub use effect::{Cycle, Effect, Shape};
pub use filter::{Belief, Expected};
pub use likelihood::{Series, Share};
pub use system::{Inputs, System};
