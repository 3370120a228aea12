//! `Stats`: sufficient statistics of rows in a box, to be gathered anywhere and added up.

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wiski::model::ColumnScaling;
use wiski::{Grid, Stats as Sums, persist};

use crate::errors::{Failure, detached, guarded, offset, reject};
use crate::rows::{Rows, check_column, column};
use crate::shared::Shared;

/// The sums, and where their grid lies.
#[derive(Clone)]
struct State {
    bounds: Vec<(f64, f64)>,
    scaling: ColumnScaling,
    /// On a grid that covers [−1, 1] on each axis, as an `OnlineRegressor` with these bounds has it.
    sums: Sums,
    limit: usize,
}

/// Sufficient statistics of rows in a box.
#[pyclass(frozen, module = "wiski._core")]
pub(crate) struct Stats(Shared<State>);

impl Stats {
    /// The bounds and the sums.
    pub(crate) fn parts(&self) -> Result<(Vec<(f64, f64)>, Sums), Failure> {
        let state = self.0.lock()?;
        Ok((state.bounds.clone(), state.sums.clone()))
    }

    fn of(bounds: Vec<(f64, f64)>, sums: Sums, limit: usize) -> Self {
        let scaling = ColumnScaling::from_bounds(&bounds);
        Self(Shared::new(State { bounds, scaling, sums, limit }))
    }

    fn copy(&self, py: Python<'_>) -> PyResult<State> {
        self.0.long(py, |state| Ok(state.clone()))
    }
}

impl State {
    /// Adds the rows, or takes them away.
    fn learn(
        &mut self,
        rows: &Rows<'_>,
        y: &[f64],
        noise: Option<&[f64]>,
        forget: bool,
    ) -> Result<(), Failure> {
        let d = self.bounds.len();
        let mut h = Vec::new();
        for (range, block) in rows.blocks() {
            for (x, row) in block.chunks_exact(d).zip(range) {
                self.scaling.apply(x, &mut h).map_err(|error| offset(error, row))?;
                let noise = noise.map_or(1.0, |n| n[row]);
                let done = if forget {
                    self.sums.forget(&h, y[row], noise)
                } else {
                    self.sums.extend_to(&h, self.limit).and_then(|_| self.sums.observe(&h, y[row], noise))
                };
                done.map_err(|error| offset(error, row))?;
            }
        }
        Ok(())
    }
}

#[pymethods]
impl Stats {
    #[new]
    fn new(bounds: Vec<(f64, f64)>, grid: Vec<usize>, max_grid_points: usize) -> PyResult<Self> {
        let d = bounds.len();
        if !(1..=4).contains(&d) {
            return Err(reject("bounds", format!("a grid has 1 to 4 axes, not {d}")).into());
        }
        for (i, (lo, hi)) in bounds.iter().enumerate() {
            if !(lo < hi && (hi - lo).is_finite()) {
                return Err(reject("bounds", format!("column {i}: [{lo}, {hi}] is not an interval")).into());
            }
        }
        if grid.len() != 1 && grid.len() != d {
            let reason = format!("{} numbers of points were given for {d} axes", grid.len());
            return Err(reject("grid", reason).into());
        }
        let points: Vec<usize> = (0..d).map(|k| grid[k.min(grid.len() - 1)]).collect();
        let sums = guarded(|| Ok(Sums::new(Grid::covering(&vec![(-1.0, 1.0); d], &points)?)))?;
        Ok(Self::of(bounds, sums, max_grid_points))
    }

    /// Adds rows, all or none.
    #[pyo3(signature = (x, y, noise=None, forget=false))]
    fn learn(
        &self,
        py: Python<'_>,
        x: PyReadonlyArray2<'_, f64>,
        y: PyReadonlyArray1<'_, f64>,
        noise: Option<PyReadonlyArray1<'_, f64>>,
        forget: bool,
    ) -> PyResult<()> {
        let width = self.0.brief(py, |state| Ok(state.bounds.len()))?;
        let rows = Rows::of(&x).of_width(width)?;
        let (y, noise) = (column(&y), noise.as_ref().map(column));
        rows.check_finite()?;
        check_column("y", &y, rows.len())?;
        noise.as_ref().map_or(Ok(()), |n| check_column("noise", n, rows.len()))?;
        self.0.long(py, |state| {
            let mut new = state.clone();
            new.learn(&rows, &y, noise.as_deref(), forget)?;
            *state = new;
            Ok(())
        })
    }

    /// The sum of two statistics.
    fn merged(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        let (mut ours, theirs) = (self.copy(py)?, other.copy(py)?);
        if ours.bounds != theirs.bounds {
            let reason = format!("{:?} in one and {:?} in the other", ours.bounds, theirs.bounds);
            return Err(reject("bounds", reason).into());
        }
        detached(py, move || {
            ours.sums.merge_within(&theirs.sums, ours.limit)?;
            Ok(Self(Shared::new(ours)))
        })
    }

    /// Makes all rows so far count less.
    fn decay(&self, py: Python<'_>, factor: f64) -> PyResult<()> {
        self.0.long(py, |state| Ok(state.sums.decay(factor)?))
    }

    /// The sum of the weights of all rows.
    #[getter]
    fn count(&self, py: Python<'_>) -> PyResult<f64> {
        self.0.brief(py, |state| Ok(state.sums.count()))
    }

    /// The box.
    #[getter]
    fn bounds(&self, py: Python<'_>) -> PyResult<Vec<(f64, f64)>> {
        self.0.brief(py, |state| Ok(state.bounds.clone()))
    }

    /// The number of grid points on each axis.
    #[getter]
    fn grid(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.0.brief(py, |state| {
            Ok(state.sums.lattice().grids()[0].axes().iter().map(wiski::Axis::points).collect())
        })
    }

    #[staticmethod]
    fn from_bytes(
        py: Python<'_>,
        bounds: Vec<(f64, f64)>,
        max_grid_points: usize,
        bytes: &[u8],
    ) -> PyResult<Self> {
        let sums: Sums = detached(py, || Ok(persist::from_bytes(bytes)?))?;
        if sums.lattice().dim() != bounds.len() {
            return Err(reject("bounds", "as many as the grid has axes are needed").into());
        }
        Ok(Self::of(bounds, sums, max_grid_points))
    }

    #[expect(clippy::type_complexity, reason = "what pickle wants: a function and its arguments")]
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, (Vec<(f64, f64)>, usize, Bound<'py, PyBytes>))> {
        let py = slf.py();
        let read = slf.get_type().getattr("from_bytes")?;
        let state = slf.get().copy(py)?;
        let bytes = detached(py, || Ok(persist::to_bytes(&state.sums)?))?;
        Ok((read, (state.bounds, state.limit, PyBytes::new(py, &bytes))))
    }
}
