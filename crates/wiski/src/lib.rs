//! wiski
mod error;
pub mod grid;
pub mod interp;
pub mod kernel;
pub mod prior;
mod simd;
pub mod structure;
pub use error::{Error, Result};
