//! wiski
#![allow(dead_code)]
mod error;
pub mod feature;
pub use error::{Error, Result};
