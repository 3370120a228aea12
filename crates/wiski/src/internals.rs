//! What the engine is made of: for experiments with it and for baselines, not for users of models.
//!
//! Names in here may change with any version, and some have types of the linear algebra (`faer`) in their signatures;
//! nothing else of this library has.

/// Dense matrices: factorizations and triangular solves.
pub mod dense {
    pub use crate::dense::*;
}

/// The exact process without a grid.
pub mod exact {
    pub use crate::exact::*;
}

/// Cubic interpolation weights.
pub mod interp {
    pub use crate::interp::*;
}

/// Engines for grids from two thousand to a million points.
pub mod large {
    pub use crate::large::*;
}

/// The root of the prior covariance on a grid.
pub mod prior {
    pub use crate::prior::*;
}

/// Toeplitz, Kronecker, stencil and block matrices.
pub mod structure {
    pub use crate::structure::*;
}
