//! `Optimizer`: ask and tell.

use std::path::PathBuf;

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wiski::decide::{
    Acquisition, Dimension, Goal, Optimizer as Search, OptimizerSettings, Outcome, Scale, Space, Strategy,
    Trial,
};
use wiski::{Error, Kernel, persist};

use crate::errors::{Failure, detached, guarded, reject};
use crate::regressor::matrix;
use crate::shared::Shared;

/// A search for the best point of a box; `wiski.Optimizer` is made of it.
#[pyclass(frozen, module = "wiski._core")]
pub(crate) struct Optimizer(Shared<Search>);

/// A dimension as Python gives it: name, lowest, highest, whether logarithmic, whether whole numbers, what to choose from,
/// on which choices it depends, and its steps.
type Given = (String, f64, f64, bool, bool, Vec<String>, Option<(String, Vec<usize>)>, Option<f64>);

fn strategy(text: &str) -> Result<Strategy, Failure> {
    let (name, greedy) = text.strip_prefix("greedy ").map_or((text, false), |rest| (rest, true));
    let (name, value) = name.split_once(':').map_or((name, None), |(n, v)| (n, Some(v)));
    let acquisition = match (name, value) {
        ("thompson", None) if !greedy => return Ok(Strategy::Thompson),
        ("logei", None) => Acquisition::LogExpectedImprovement,
        ("ei", None) => Acquisition::ExpectedImprovement,
        ("mes", None) => Acquisition::MaxValueEntropy,
        ("pi", None) => Acquisition::ProbabilityOfImprovement,
        ("ucb", None) => Acquisition::UCB,
        ("ucb", Some(beta)) => match beta.parse::<f64>() {
            Ok(beta) if beta >= 0.0 && beta.is_finite() => Acquisition::UpperConfidence { beta },
            _ => {
                return Err(reject(
                    "strategy",
                    format!("'{beta}' in '{text}' is not a weight of uncertainty"),
                ));
            }
        },
        _ => {
            let known = "logei, ei, pi, mes, ucb, ucb:4 or thompson, or greedy before one of the first six";
            return Err(reject("strategy", format!("'{text}' is not {known}")));
        }
    };
    Ok(if greedy { Strategy::Greedy(acquisition) } else { Strategy::Joint(acquisition) })
}

/// The family of a kernel by its name.
fn family(name: &str) -> Result<wiski::Family, Failure> {
    use wiski::Family::{Matern12, Matern32, Matern52, RationalQuadratic, Rbf};
    let known = [Rbf, Matern12, Matern32, Matern52, RationalQuadratic];
    let found = known.into_iter().find(|f| f.name() == name);
    found.ok_or_else(|| match Kernel::parse(name, 1) {
        Ok(_) => reject("kernel", format!("'{name}' is not rbf, matern12, matern32, matern52 or rq")),
        Err(error) => error.into(),
    })
}

/// A point, its predicted value and that value's standard deviation.
type Recommended<'py> = (Bound<'py, PyArray1<f64>>, f64, f64);

/// Points, and the values of their objectives and of their constraints.
type Trials<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>);

fn points(py: Python<'_>, points: Vec<Vec<f64>>) -> PyResult<Bound<'_, PyArray2<f64>>> {
    let n = points.len();
    matrix(py, points.concat(), n)
}

/// Trials as arrays, NaN for what those that failed do not have.
fn arrays<'py>(py: Python<'py>, trials: Vec<Trial>, settings: &OptimizerSettings) -> PyResult<Trials<'py>> {
    let (n, widths) = (trials.len(), (settings.goals().count(), settings.constraints.len()));
    let (mut values, mut constraints) = (Vec::new(), Vec::new());
    for trial in &trials {
        values.extend(trial.values());
        let failed = trial.outcome == Outcome::Failed;
        values.extend(std::iter::repeat_n(f64::NAN, if failed { widths.0 } else { 0 }));
        constraints.extend(&trial.constraints);
        constraints.extend(std::iter::repeat_n(f64::NAN, if failed { widths.1 } else { 0 }));
    }
    let places = points(py, trials.into_iter().map(|t| t.x).collect())?;
    let shaped = |all: Vec<f64>, width: usize| PyArray1::from_vec(py, all).reshape([n, width]);
    Ok((places, shaped(values, widths.0)?, shaped(constraints, widths.1)?))
}

#[pymethods]
impl Optimizer {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "called by the Python class only, with all of them")]
    fn new(
        space: Vec<Given>,
        maximize: Vec<bool>,
        constraints: Vec<String>,
        strategy: &str,
        initial: Option<usize>,
        exact_until: Option<usize>,
        grid: Option<usize>,
        local: Option<bool>,
        kernel: &str,
        known_noise: bool,
        seed: u64,
    ) -> PyResult<Self> {
        let dimension = |(name, lo, hi, log, integer, choices, only_if, step): Given| {
            let scale = if log { Scale::Log } else { Scale::Linear };
            let plain = if choices.is_empty() {
                Dimension { scale, integer, step, ..Dimension::linear(name, lo, hi) }
            } else {
                Dimension::choice(name, choices)
            };
            match only_if {
                Some((choice, among)) => plain.only_if(choice, among),
                None => plain,
            }
        };
        let goal = |maximize: &bool| if *maximize { Goal::Maximize } else { Goal::Minimize };
        let Some((first, further)) = maximize.split_first() else {
            return Err(reject("maximize", "at least one objective is needed").into());
        };
        let settings = OptimizerSettings {
            goal: goal(first),
            further: further.iter().map(goal).collect(),
            constraints,
            strategy: self::strategy(strategy)?,
            initial,
            exact_until: exact_until.unwrap_or_else(|| OptimizerSettings::default().exact_until),
            grid,
            local,
            family: family(kernel)?,
            known_noise,
            seed,
            ..OptimizerSettings::default()
        };
        let dimensions = space.into_iter().map(dimension).collect();
        let search = guarded(|| Ok(Search::new(Space::new(dimensions)?, settings)?))?;
        Ok(Self(Shared::new(search)))
    }

    /// Proposes points; `trial` is the number of the trial they are for, where several programs search together.
    #[pyo3(signature = (q, trial=None))]
    fn ask<'py>(&self, py: Python<'py>, q: usize, trial: Option<u64>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let asked = self.0.interruptible(py, |search, _| {
            trial.into_iter().for_each(|trial| search.skip_to(trial));
            Ok(search.ask(q)?)
        })?;
        points(py, asked)
    }

    /// Learns what was found, a value for each objective; no values mean that the trial failed. All rows are checked
    /// before any is learned.
    #[pyo3(signature = (x, y, noise=None, constraints=None))]
    fn tell(
        &self,
        py: Python<'_>,
        x: Vec<Vec<f64>>,
        y: Vec<Option<Vec<f64>>>,
        noise: Option<Vec<f64>>,
        constraints: Option<Vec<Vec<f64>>>,
    ) -> PyResult<()> {
        let rows = x.len();
        let fits = |field: &str, found: usize| {
            let wrong = Error::WrongLength { field: field.into(), expected: rows, found };
            if found == rows { Ok(()) } else { Err(Failure::from(wrong)) }
        };
        fits("y", y.len())?;
        noise.as_ref().map_or(Ok(()), |n| fits("noise", n.len()))?;
        constraints.as_ref().map_or(Ok(()), |c| fits("constraints", c.len()))?;
        let trial = |(row, (x, y)): (usize, (Vec<f64>, Option<Vec<f64>>))| {
            let Some((first, further)) = y.as_ref().and_then(|y| y.split_first()) else {
                return Trial::failed(x);
            };
            let constraints = constraints.as_ref().map(|c| c[row].clone()).unwrap_or_default();
            let trial = Trial::new(x, *first).with_further(further).with_constraints(constraints);
            Trial { variance: noise.as_ref().map(|n| n[row]), ..trial }
        };
        let told: Vec<Trial> = x.into_iter().zip(y).enumerate().map(trial).collect();
        self.0.interruptible(py, |search, interrupt| {
            let mut new = search.clone();
            new.tell_all(&told)?;
            // What was interrupted was not told.
            if interrupt.is_set() {
                return Err(Error::Interrupted.into());
            }
            *search = new;
            Ok(())
        })
    }

    /// The best trial, if there is one.
    fn best<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyArray1<f64>>, f64)>> {
        let best = self.0.long(py, |search| Ok(search.best().cloned()))?;
        Ok(best.and_then(|trial| match trial.outcome {
            Outcome::Value(value) => Some((PyArray1::from_vec(py, trial.x), value)),
            Outcome::Failed => None,
        }))
    }

    /// The tried point with the best predicted value, that value, and its standard deviation.
    fn recommend<'py>(&self, py: Python<'py>) -> PyResult<Option<Recommended<'py>>> {
        let best = self.0.long(py, |search| Ok(search.recommend()?))?;
        Ok(best.map(|(x, value, std)| (PyArray1::from_vec(py, x), value, std)))
    }

    /// All trials in the order told: points, values and constraints, NaN for those that failed.
    fn trials<'py>(&self, py: Python<'py>) -> PyResult<Trials<'py>> {
        let all = |search: &mut Search| Ok((search.trials().to_vec(), search.settings().clone()));
        let (trials, settings) = self.0.long(py, all)?;
        arrays(py, trials, &settings)
    }

    /// The trials that no other surpasses, of those at which all constraints hold.
    fn front<'py>(&self, py: Python<'py>) -> PyResult<Trials<'py>> {
        let (trials, settings) = self.0.long(py, |search| {
            let front = search.front().into_iter().cloned().collect();
            Ok((front, search.settings().clone()))
        })?;
        arrays(py, trials, &settings)
    }

    /// The probability that all constraints hold at a point; nothing before the initial design is complete.
    fn feasibility(&self, py: Python<'_>, x: Vec<f64>) -> PyResult<Option<f64>> {
        self.0.long(py, |search| Ok(search.feasibility(&x)?))
    }

    /// Points that were asked for and not yet told.
    fn pending<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        points(py, self.0.long(py, |search| Ok(search.pending().to_vec()))?)
    }

    /// Gives up on all pending points.
    fn forget_pending(&self, py: Python<'_>) -> PyResult<()> {
        self.0.long(py, |search| {
            search.forget_pending();
            Ok(())
        })
    }

    /// Says which points are pending.
    fn set_pending(&self, py: Python<'_>, x: Vec<Vec<f64>>) -> PyResult<()> {
        self.0.long(py, |search| Ok(search.set_pending(x)?))
    }

    /// Words that are kept with the state.
    #[getter]
    fn note(&self, py: Python<'_>) -> PyResult<String> {
        self.0.brief(py, |search| Ok(search.note().to_owned()))
    }

    #[setter]
    fn set_note(&self, py: Python<'_>, note: String) -> PyResult<()> {
        self.0.brief(py, |search| {
            search.set_note(note);
            Ok(())
        })
    }

    /// Fits the hyperparameters to everything told so far.
    fn refit(&self, py: Python<'_>) -> PyResult<()> {
        self.0.interruptible(py, |search, _| Ok(search.refit()?))
    }

    /// The box, as it was given.
    #[getter]
    fn space(&self, py: Python<'_>) -> PyResult<Vec<Given>> {
        self.0.brief(py, |search| {
            let given = |d: &Dimension| {
                let only_if = d.only_if.clone().map(|c| (c.choice, c.among));
                let is_log = d.scale == Scale::Log;
                (d.name.clone(), d.lo, d.hi, is_log, d.integer, d.choices.clone(), only_if, d.step)
            };
            Ok(search.space().dimensions().iter().map(given).collect())
        })
    }

    /// Whether large values are wanted, of each objective.
    #[getter]
    fn maximize(&self, py: Python<'_>) -> PyResult<Vec<bool>> {
        self.0.brief(py, |search| Ok(search.settings().goals().map(|goal| goal == Goal::Maximize).collect()))
    }

    /// The names of the constraints.
    #[getter]
    fn constraints(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.0.brief(py, |search| Ok(search.settings().constraints.clone()))
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.0.long(py, |search| Ok(persist::save(&path, search)?))
    }

    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(Self(Shared::new(detached(py, || Ok(persist::load(&path)?))?)))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        Ok(Self(Shared::new(detached(py, || Ok(persist::from_bytes(bytes)?))?)))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let read = slf.get_type().getattr("from_bytes")?;
        let bytes = slf.get().0.long(slf.py(), |search| Ok(persist::to_bytes(search)?))?;
        Ok((read, (PyBytes::new(slf.py(), &bytes),)))
    }
}
