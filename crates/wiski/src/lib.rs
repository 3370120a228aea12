//! wiski
#![allow(dead_code)]
mod error;
pub use error::{Error, Result};
