//! wiski
mod error;
pub mod evidence;
pub mod grid;
pub mod interp;
pub mod kernel;
pub mod posterior;
pub mod prior;
mod simd;
pub mod stats;
pub mod structure;
pub use error::{Error, Result};
