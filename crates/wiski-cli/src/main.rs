//! The `wiski` command: online Gaussian processes behind a pipe.
#![allow(dead_code, unused_imports)] // the subcommands that draw come next

mod figures;
mod report;

fn main() {}
