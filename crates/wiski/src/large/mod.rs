//! Engines for large grids, where a p×p factorization no longer fits: from two thousand to a million points.
//!
//! The posterior of the grid values u is N(a, M) with
//!
//! ```text
//! M = (K⁻¹ + A/σ²)⁻¹ = B S⁻¹ Bᵀ,   S = I + BᵀAB/σ²,   a = M b/σ²
//! ```
//!
//! as on small grids; only the way to it differs, and memory is O(m).
//!
//! * [`krylov`]: conjugate gradients for any product kernel. Products with B go axis by axis, products with A by its
//!   stencil; log det S by stochastic Lanczos quadrature.

pub mod krylov;

pub use krylov::{Accuracy, Convergence, KrylovPosterior};
