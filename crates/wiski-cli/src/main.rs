//! The `wiski` command: online Gaussian processes behind a pipe.

fn main() {}
