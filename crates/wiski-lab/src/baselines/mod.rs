//! The methods that the paper compares with, behind the interface of online Gaussian processes.
//!
//! | method | module | keeps | a new row costs |
//! | --- | --- | --- | --- |
//! | exact, by Cholesky | [`exact`] | all rows | O(n²), O(n³) with a step of the hyperparameters |
//! | exact, by conjugate gradients | [`pcg`] | all rows | O(n²) an iteration |
//! | batch SKI with LOVE variances | [`ski`] | all rows | O(n) an iteration |
//! | O-SVGP | [`svgp`] | m inducing points and q | O(m³) |
//! | O-SGPR | [`sgpr`] | m inducing points and q | O(m³) |
//! | local GPs | [`local`] | models of at most m rows | O(m³) |
//!
//! All take the same kernel ([`Covariance`]), hyperparameters ([`hyper`]), features ([`encoder`]) and training
//! ([`descent`]), so that they differ in inference alone.

pub mod descent;
pub mod encoder;
pub mod exact;
pub mod hyper;
pub mod local;
pub mod pcg;
pub mod sgpr;
pub mod ski;
mod sparse;
#[cfg(test)]
mod surrogate;
pub mod svgp;
#[cfg(test)]
mod testing;

use std::sync::OnceLock;

pub use descent::{Pace, Rates, Training};
pub use encoder::Encoder;
pub use exact::ExactGp;
pub use hyper::{Hyper, Priors};
pub use local::LocalGps;
pub use pcg::{Iterations, PcgGp};
pub use sgpr::StreamingSgpr;
pub use ski::{BatchSki, SkiIterations};
pub use svgp::{Likelihood, StreamingSvgp, SvgpOptions};
pub use wiski::internals::exact::{Covariance, KernelPosterior};

/// What a cell holds, computed when it is first asked for: how models whose posterior follows from their rows predict
/// without being changed.
pub(crate) fn kept<T>(cell: &OnceLock<T>, compute: impl FnOnce() -> wiski::Result<T>) -> wiski::Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = compute()?;
    Ok(cell.get_or_init(|| value))
}
