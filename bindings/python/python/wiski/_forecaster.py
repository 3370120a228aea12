"""Series and what comes next."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import numpy as np

from wiski import _core
from wiski._errors import NotFittedError, WiskiError

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0, "y": 365.25 * 86400.0}


class Forecast(NamedTuple):
    """Rows ahead: an array for each column. ``frame()`` is a pandas frame, indexed by time."""

    times: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def frame(self) -> Any:
        """A pandas frame, indexed by time."""
        import pandas as pd

        return pd.DataFrame({name: getattr(self, name) for name in self._fields[1:]}, index=self.times)


class Forecaster:
    """Learns a series row by row, in constant time and memory, and forecasts it with intervals.

    A series is a sum of a trend, quasi-periodic seasons, short-term movements or lags, smooth functions of inputs that are
    known ahead, and noise. Times may be numbers or dates, with any gaps; a target that is NaN is missing.

    Parameters
    ----------
    seasons : "auto", None or list, default="auto"
        Periods: lengths such as ``"24h"``, ``"7d"``, ``"1y"`` where times are dates, numbers in the unit of time otherwise.
        "auto" finds those that the rows show; None is none.
    lags : "auto", None or list of int, default="auto"
        Which earlier values are inputs, in steps. "auto" takes them where forecasts are better with them.
    trend : {"linear", "damped", "level"}, default="linear"
        How the level moves on.
    scale : {"auto", "linear", "log"}, default="auto"
        Whether components add up ("linear") or multiply ("log", for values that are positive). "auto" takes logarithms where the
        rows are clearly likelier so.
    step : length, default=None
        The time between two rows; None is the median gap.
    memory : int, default=4096
        Rows in memory, from which hyperparameters are learned.

    Examples
    --------
    >>> import numpy as np, wiski
    >>> hours = np.arange(480)
    >>> load = 20 + 5 * np.sin(hours * 2 * np.pi / 24) + 0.3 * np.sin(hours**2)
    >>> model = wiski.Forecaster(seasons=[24]).fit(load, hours)
    >>> ahead = model.predict(24)
    >>> bool(np.abs(ahead.mean - 20 - 5 * np.sin(ahead.times * 2 * np.pi / 24)).max() < 1)
    True
    """

    def __init__(
        self,
        seasons: Any = "auto",
        lags: Any = "auto",
        trend: str = "linear",
        scale: str = "auto",
        step: Any = None,
        memory: int = 4096,
    ) -> None:
        self.seasons = seasons
        self.lags = lags
        self.trend = trend
        self.scale = scale
        self.step = step
        self.memory = memory
        self._model: Any = None
        self._dated = False

    # -- learning --------------------------------------------------------------------------------------------

    def fit(self, y: Any, times: Any = None, X: Any = None) -> Forecaster:
        """Forget everything and learn these rows, in the order of their times.

        ``y`` is an array, or a pandas series whose index has the times. Without times rows are steps 0, 1, 2, …; ``X`` has
        the inputs that are known ahead, a row each.
        """
        self._model, self._dated = None, False
        return self.update(y, times, X)

    def update(self, y: Any, times: Any = None, X: Any = None) -> Forecaster:
        """Learn rows that come after those learned before."""
        targets = np.atleast_1d(np.asarray(y, dtype=np.float64))
        stamps, dated = self._stamps(_times_of(y, times), len(targets))
        inputs = self._inputs(X, len(targets))
        model = self._model
        if model is None:
            model = self._new(inputs.shape[1], dated)
        elif dated != self._dated:
            raise WiskiError("times: dates and numbers cannot be mixed in one series")
        model.extend(stamps, inputs, targets)
        self._model, self._dated = model, dated
        return self

    def _new(self, inputs: int, dated: bool) -> Any:
        seasons = self.seasons
        if isinstance(seasons, str) and seasons != "auto":
            seasons = [seasons]
        periods = None if isinstance(seasons, str) else [_length(s, dated, "seasons") for s in seasons or []]
        lags = None if isinstance(self.lags, str) else [int(lag) for lag in self.lags or []]
        if isinstance(self.lags, str) and self.lags != "auto":
            raise WiskiError(f"lags: {self.lags!r} is not 'auto', None or a list of steps")
        step = None if self.step is None else _length(self.step, dated, "step")
        return _core.Forecaster(periods, lags, self.trend, self.scale, (dated, step), inputs, self.memory)

    # -- forecasting -----------------------------------------------------------------------------------------

    def predict(self, horizon: Any = None, X: Any = None, level: float = 0.95) -> Forecast:
        """What comes next: ``horizon`` steps, or rows at these times (an array). ``X`` has their inputs; without a horizon
        there is a step for each of its rows. Mean, standard deviation and an interval at a level."""
        stamps, inputs = self._ahead(horizon, X)
        return Forecast(self._shown(stamps), *self._fitted().forecast(stamps, inputs, level))

    def sample_paths(self, horizon: Any, count: int, X: Any = None, random_state: int = 0) -> np.ndarray:
        """Paths drawn jointly: an array of shape (count, steps)."""
        stamps, inputs = self._ahead(horizon, X)
        return self._fitted().sample_paths(stamps, inputs, count, random_state)

    def components(self, horizon: Any = None, X: Any = None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """What trend, seasons and inputs add, mean and standard deviation each: to the next steps, or without a horizon to
        the rows in memory, whose times are under ``"times"``. On the scale of logarithms all but the trend are factors."""
        if horizon is None and X is None:
            stamps, parts = self._fitted().components()
        else:
            stamps, inputs = self._ahead(horizon, X)
            parts = self._fitted().components_ahead(stamps, inputs)
        shown: dict[str, Any] = {"times": self._shown(stamps)}
        return {**shown, **{name: (mean, std) for name, mean, std in parts}}

    @property
    def n_seen_(self) -> int:
        """The number of rows learned."""
        return self._fitted().rows

    @property
    def seasons_(self) -> list[float]:
        """The periods of the seasons; in seconds where times are dates."""
        return self._fitted().seasons

    @property
    def lags_(self) -> list[int]:
        """The lags, in steps."""
        return self._fitted().lags

    @property
    def scale_(self) -> str:
        """The scale on which components add up: "linear" or "log"."""
        return self._fitted().scale

    # -- files -----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, whole or not at all."""
        self._fitted().save(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], dates: bool = False) -> Forecaster:
        """A model from a file; ``dates`` says that its times are dates."""
        forecaster = cls()
        forecaster._model, forecaster._dated = _core.Forecaster.load(os.fspath(path)), dates
        return forecaster

    # -- times -----------------------------------------------------------------------------------------------

    def _fitted(self) -> Any:
        if self._model is None:
            raise NotFittedError("This Forecaster has learned nothing yet; call fit or update first")
        return self._model

    def _ahead(self, horizon: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
        model = self._fitted()
        if horizon is None:
            if X is None:
                raise WiskiError("horizon: give the number of steps, times, or the inputs of the rows ahead")
            horizon = len(X)
        if np.ndim(horizon) == 0 and not isinstance(horizon, str):
            stamps = model.next_times(int(horizon))
        else:
            stamps, dated = self._stamps(np.asarray(horizon), len(horizon))
            if dated != self._dated:
                raise WiskiError("horizon: dates and numbers cannot be mixed in one series")
        return stamps, self._inputs(X, len(stamps))

    def _inputs(self, X: Any, rows: int) -> np.ndarray:
        width = 0 if self._model is None else self._model.inputs
        if X is None:
            if width:
                raise WiskiError(f"X: the model has {width} inputs, which have to be known")
            return np.zeros((rows, 0))
        X = np.asarray(X, dtype=np.float64)
        X = X[:, None] if X.ndim == 1 else X
        if len(X) != rows or (self._model is not None and X.shape[1] != width):
            raise WiskiError(f"X: has the shape {X.shape}; wanted are {rows} rows")
        return np.ascontiguousarray(X)

    def _stamps(self, times: Any, rows: int) -> tuple[np.ndarray, bool]:
        """Times as numbers, and whether they are dates: seconds since 1970."""
        if times is None:
            first = 0 if self._model is None else self._model.rows
            return np.arange(first, first + rows, dtype=np.float64), False
        times = np.asarray(times)
        if len(times) != rows:
            raise WiskiError(f"times: there are {len(times)} for {rows} rows")
        if times.dtype.kind == "M":
            return times.astype("datetime64[ns]").astype(np.int64) / 1e9, True
        if times.dtype.kind in "OUS":
            return np.asarray(times, dtype="datetime64[ns]").astype(np.int64) / 1e9, True
        return np.ascontiguousarray(times, dtype=np.float64), False

    def _shown(self, stamps: np.ndarray) -> np.ndarray:
        if not self._dated:
            return stamps
        return np.round(stamps * 1e3).astype(np.int64).astype("datetime64[ms]")


def _times_of(y: Any, times: Any) -> Any:
    """The times that were given, or those of the index of a series."""
    if times is not None or not hasattr(y, "index") or callable(y.index):
        return times
    index = y.index.to_timestamp() if hasattr(y.index, "to_timestamp") else y.index
    return index.to_numpy()


def _length(length: Any, dated: bool, name: str) -> float:
    """A length of time in the unit of the times."""
    if isinstance(length, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*(s|min|h|d|w|y)\s*", length)
        if match is None or not dated:
            wanted = "a length such as '24h', '7d' or '1y'" if dated else "a number, as the times are"
            raise WiskiError(f"{name}: {length!r} is not {wanted}")
        return float(match[1]) * _UNITS[match[2]]
    if hasattr(length, "total_seconds"):
        return float(length.total_seconds())
    if isinstance(length, np.timedelta64):
        return float(length / np.timedelta64(1, "s"))
    return float(length)
