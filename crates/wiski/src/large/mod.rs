//! Engines for grids on which a dense factorization in p coordinates stops scaling.
//!
//! * [`sparse`]: exact, for products of Matérn ½, whose precision is sparse.

pub mod sparse;
