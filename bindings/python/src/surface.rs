//! `Surface`: joint predictions of batches of points, and gradients back to the points.

use numpy::ndarray::Array3;
use numpy::{PyArray1, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray2, PyReadonlyArray3};
use pyo3::prelude::*;
use wiski::model::{JointRows, RowSurface};

use crate::errors::{Failure, check_memory, detached, offset, reject};

/// An immutable posterior for joint predictions with gradients.
#[pyclass(frozen, module = "wiski._core")]
pub(crate) struct Surface {
    surface: RowSurface,
    input_dim: usize,
}

impl Surface {
    pub(crate) fn of(surface: RowSurface, input_dim: usize) -> Self {
        Self { surface, input_dim }
    }
}

/// A batch of b sets of q points, b×q×d, one after the other.
fn batch(x: &PyReadonlyArray3<'_, f64>, width: usize) -> Result<Array3<f64>, Failure> {
    let x = x.as_array();
    if x.shape()[2] != width {
        return Err(reject("X", format!("a point has {width} coordinates, not {}", x.shape()[2])));
    }
    Ok(x.as_standard_layout().into_owned())
}

type Joint<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray3<f64>>);

#[pymethods]
impl Surface {
    /// The variance of the noise of an observation.
    #[getter]
    fn noise(&self) -> f64 {
        self.surface.noise()
    }

    /// The latent means, b×q, and covariances, b×q×q, of b sets of q points, b×q×d.
    fn predict<'py>(&self, py: Python<'py>, x: PyReadonlyArray3<'py, f64>) -> PyResult<Joint<'py>> {
        let x = batch(&x, self.input_dim)?;
        let (b, q) = (x.shape()[0], x.shape()[1]);
        check_memory("joint covariances", [b.saturating_mul(q), q], 2)?;
        let (mean, covariance) = detached(py, || {
            let (mut mean, mut covariance) = (Vec::with_capacity(b * q), Vec::with_capacity(b * q * q));
            let mut joint = JointRows::default();
            for set in sets(&x) {
                self.surface.predict(set, &mut joint)?;
                mean.extend_from_slice(&joint.mean);
                covariance.extend_from_slice(&joint.covariance);
            }
            Ok((mean, covariance))
        })?;
        let mean = PyArray1::from_vec(py, mean).reshape([b, q])?;
        Ok((mean, PyArray1::from_vec(py, covariance).reshape([b, q, q])?))
    }

    /// The derivative in the points of a function whose derivatives in means and covariances are given.
    fn vjp<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArray3<'py, f64>,
        by_mean: PyReadonlyArray2<'py, f64>,
        by_covariance: PyReadonlyArray3<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray3<f64>>> {
        let x = batch(&x, self.input_dim)?;
        let (b, q, d) = (x.shape()[0], x.shape()[1], self.input_dim);
        let by_mean = by_mean.as_array().as_standard_layout().into_owned();
        let by_covariance = by_covariance.as_array().as_standard_layout().into_owned();
        if by_mean.shape() != [b, q] || by_covariance.shape() != [b, q, q] {
            return Err(
                reject("derivatives", format!("{b} sets of {q} means and {q}×{q} covariances")).into()
            );
        }
        let gradient = detached(py, || {
            let mut gradient = vec![0.0; b * q * d];
            let mut joint = JointRows::default();
            let (by_mean, by_covariance) = (by_mean.as_slice(), by_covariance.as_slice());
            let (Some(by_mean), Some(by_covariance)) = (by_mean, by_covariance) else { return Ok(gradient) };
            for (i, set) in sets(&x).enumerate() {
                self.surface.predict(set, &mut joint)?;
                let by_mean = &by_mean[i * q..(i + 1) * q];
                let by_covariance = &by_covariance[i * q * q..(i + 1) * q * q];
                let own = &mut gradient[i * q * d..(i + 1) * q * d];
                let done = self.surface.vjp(set, &joint, by_mean, by_covariance, own);
                done.map_err(|error| offset(error, i * q))?;
            }
            Ok(gradient)
        })?;
        PyArray1::from_vec(py, gradient).reshape([b, q, d])
    }
}

/// The sets of points, one by one.
fn sets(x: &Array3<f64>) -> impl Iterator<Item = &[f64]> {
    let size = x.shape()[1] * x.shape()[2];
    x.as_slice().unwrap_or_default().chunks_exact(size.max(1))
}
