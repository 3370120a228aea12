//! Engines for large grids, where a p×p factorization no longer fits: from two thousand to a million points.
//!
//! The posterior of the grid values u is N(a, M) with
//!
//! ```text
//! M = (K⁻¹ + A/σ²)⁻¹ = B S⁻¹ Bᵀ,   S = I + BᵀAB/σ²,   a = M b/σ²
//! ```
//!
//! as on small grids; only the way to it differs.
//!
//! * [`krylov`]: conjugate gradients, for any product kernel. Products with B go axis by axis, products with A by its
//!   stencil; log det S by stochastic Lanczos quadrature. Memory O(m).
//! * [`sparse`]: exact, for products of Matérn ½, whose precision K⁻¹ is sparse.
//!
//! `Engine` (module `engine`) says which one a model uses; unless told otherwise, it is chosen by size and kernel.

pub mod krylov;
pub mod sparse;

pub use krylov::{Accuracy, Convergence, KrylovPosterior};
pub use sparse::SparsePosterior;
