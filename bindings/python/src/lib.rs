//! `wiski._core`: the library behind the Python package.
//!
//! Thin classes over the library's own; what scikit-learn, river and BoTorch expect of their models is written in
//! Python, on top of these. Rules that hold for all of them:
//!
//! 1. **One lock for each model** ([`shared::Shared`]). Learning takes it for a few hundred rows at a time, with the
//!    interpreter released; predictions of many rows take an immutable image and let go.
//! 2. **No panic crosses.** Every call runs under a guard that turns one into `wiski.InternalError`.
//! 3. **Rows are not copied.** Arrays of any layout are read in place, a block of rows at a time ([`rows::Rows`]).

// Arguments that Python converts are owned by the function that takes them.
#![expect(clippy::needless_pass_by_value)]

mod classifier;
mod errors;
mod estimator;
mod forecaster;
mod optimizer;
mod regressor;
mod rows;
mod settings;
mod several;
mod shard;
mod shared;
mod stats;
mod surface;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::classifier::Classifier;
    #[pymodule_export]
    use super::forecaster::Forecaster;
    #[pymodule_export]
    use super::optimizer::Optimizer;
    #[pymodule_export]
    use super::regressor::Regressor;
    #[pymodule_export]
    use super::several::{load_several, save_several};
    #[pymodule_export]
    use super::shard::Shard;
    #[pymodule_export]
    use super::stats::Stats;
    #[pymodule_export]
    use super::surface::Surface;
    #[pymodule_export]
    use super::{kind_of_file, panic};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// What a file holds: `regressor`, `classifier`, `targets`, `optimizer`, `forecaster` or another kind.
#[pyfunction]
fn kind_of_file(py: Python<'_>, path: std::path::PathBuf) -> PyResult<String> {
    use wiski::persist::{self, Model, Stored};
    errors::detached(py, || {
        let kind = persist::header(&path)?.kind;
        if kind != "model" {
            return Ok(kind);
        }
        let stored: Stored = persist::load(&path)?;
        Ok(match stored.model {
            Model::Regressor(_) => "regressor".into(),
            Model::Classifier(_) => "classifier".into(),
        })
    })
}

/// Panics, for the test that none crosses.
#[pyfunction(name = "_panic")]
fn panic(py: Python<'_>) -> PyResult<()> {
    errors::detached(py, || panic!("on purpose"))
}
