//! wiski
mod error;
pub mod grid;
pub mod interp;
pub mod kernel;
mod simd;
pub mod structure;
pub use error::{Error, Result};
