//! wiski
#![allow(dead_code)]
mod error;
pub mod learn;
pub use error::{Error, Result};
