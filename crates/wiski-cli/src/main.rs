//! The `wiski` command: online Gaussian processes behind a pipe.

#[allow(dead_code, unused_imports)]
mod input;
#[allow(dead_code)]
mod output;

fn main() {}
