//! What the engine is made of: for experiments with it and for baselines, not for users of models.
//!
//! Names in here may change with any version, and some have types of the linear algebra (`faer`) in their signatures;
//! nothing else of this library has. The modules are those of the pipeline, see the crate's front page.

pub use crate::pool::Pool;

/// Quantiles that keep their level along a stream, and the controllers they are compared with.
pub mod conformal {
    pub use crate::conformal::*;
}

/// What the optimizer is made of: acquisition functions, their maximization, surrogate models, integrated variance.
pub mod decide {
    pub use crate::decide::acquisition::Question;
    pub use crate::decide::active::IntegratedVariance;
    pub use crate::decide::batch::BaseSamples;
    pub use crate::decide::maximize::Maximum;
    pub use crate::decide::propose::{Incumbent, Proposer};
    pub use crate::decide::surrogate::SurrogateModel;
    pub use crate::posterior::Surrogate;
}

/// Dense matrices: factorizations and triangular solves.
pub mod dense {
    pub use crate::dense::*;
}

/// One interface for the posteriors of all engines, and which one is used.
pub mod engine {
    pub use crate::engine::*;
}

/// The log marginal likelihood and its gradient in every hyperparameter.
pub mod evidence {
    pub use crate::evidence::*;
}

/// The exact process without a grid.
pub mod exact {
    pub use crate::exact::*;
}

/// Maps from input columns to grid coordinates, and streaming moments.
pub mod feature {
    pub use crate::feature::*;
}

/// Axes, grids, and lattices: grids and inducing points side by side.
pub mod grid {
    pub use crate::grid::*;
}

/// Cubic interpolation weights.
pub mod interp {
    pub use crate::interp::*;
}

/// Kernels, and how many axes they may have.
pub mod kernel {
    pub use crate::kernel::*;
}

/// Engines for grids from two thousand to a million points.
pub mod large {
    pub use crate::large::*;
}

/// Optimizers, transforms and priors of parameters; features and inducing points learned on rows in memory.
pub mod learn {
    pub use crate::learn::*;
}

/// Class labels as targets with known noise, latent values as class probabilities.
pub mod likelihood {
    pub use crate::likelihood::*;
}

/// Inducing points over all inputs.
pub mod points {
    pub use crate::points::*;
}

/// Mean and covariance from statistics; conditioning; surfaces.
pub mod posterior {
    pub use crate::posterior::*;
}

/// The root of the prior covariance on a grid.
pub mod prior {
    pub use crate::prior::*;
}

/// Sufficient statistics and their forms.
pub mod stats {
    pub use crate::stats::*;
}

/// Toeplitz, Kronecker, stencil and block matrices.
pub mod structure {
    pub use crate::structure::*;
}

/// Filter, smoother and likelihood of series.
pub mod time {
    pub use crate::time::filter::{Belief, Expected};
    pub use crate::time::likelihood::{Series, Share};
    pub use crate::time::system::Inputs;

    /// The exact score of a series with its gradient, and the smoother.
    pub mod likelihood {
        pub use crate::time::likelihood::*;
    }
}
