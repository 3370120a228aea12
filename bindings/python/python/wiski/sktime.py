"""A forecaster for sktime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

try:
    import pandas as pd
    from sktime.forecasting.base import BaseForecaster
except ImportError as error:
    raise ImportError("wiski.sktime needs sktime, which is not installed: pip install 'wiski[sktime]'") from error

from wiski import _core
from wiski._errors import WiskiError

# A clock counts steps of equal length, which months, quarters and years are not.
_MONTHS = ("M", "Q", "Y", "BM", "BQ", "BY")


class WiskiForecaster(BaseForecaster):
    """Learns a series row by row, in constant time and memory, and forecasts it with intervals: :class:`wiski.Forecaster`
    in sktime's interface.

    A series is a sum of a trend, quasi-periodic seasons, short-term movements or lags, smooth functions of ``X``, and noise.
    ``update`` learns new rows in microseconds each; with ``update_params=False`` hyperparameters stay as they are. Rows
    are not kept, but for the newest ``memory``.

    Parameters
    ----------
    sp : "auto", None, int or list of int, default="auto"
        Seasonal periods, in steps. "auto" finds those that the rows show; None is none.
    lags : "auto", None or list of int, default="auto"
        Which earlier values are inputs, in steps. "auto" takes them where forecasts are better with them.
    trend : {"linear", "damped", "level"}, default="linear"
        How the level moves on.
    scale : {"auto", "linear", "log"}, default="auto"
        Whether components add up or multiply; "auto" decides by the rows.
    memory : int, default=4096
        Rows in memory, from which hyperparameters are learned.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from wiski.sktime import WiskiForecaster
    >>> months = pd.period_range("2014-01", periods=120, freq="M")
    >>> y = pd.Series(50 + 9 * np.sin(np.arange(120) * 2 * np.pi / 12) + 0.2 * np.cos(np.arange(120) ** 2), months)
    >>> model = WiskiForecaster(sp=12).fit(y[:108])
    >>> bool((model.predict(fh=range(1, 13)) - y[108:]).abs().max() < 2)
    True
    >>> model.predict_interval(fh=[1, 6], coverage=0.9).shape
    (2, 2)
    """

    _tags = {
        "authors": "wiski",
        "maintainers": "wiski",
        "y_inner_mtype": "pd.Series",
        "X_inner_mtype": "pd.DataFrame",
        "capability:multivariate": False,
        "capability:exogenous": True,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": True,
        "capability:non_contiguous_X": False,
        "capability:update": True,
        "capability:categorical_in_X": False,
        "requires-fh-in-fit": False,
        "X-y-must-have-same-index": True,
    }
    # The model holds what it needs of the rows.
    _config = {"remember_data": False}

    def __init__(
        self,
        sp: Any = "auto",
        lags: Any = "auto",
        trend: str = "linear",
        scale: str = "auto",
        memory: int = 4096,
    ) -> None:
        self.sp = sp
        self.lags = lags
        self.trend = trend
        self.scale = scale
        self.memory = memory
        super().__init__()

    def __post_init__(self) -> None:
        # Where they are to be remembered after all, they begin as nothing.
        self._y = self._X = None

    # -- learning --------------------------------------------------------------------------------------------

    def _fit(self, y: Any, X: Any, fh: Any) -> WiskiForecaster:
        self._clock = _clock_of(y.index)
        self._name = y.name
        self._columns = None if X is None else X.columns
        stamps = self._stamps(y.index)
        gaps = np.diff(stamps)
        gaps = gaps[gaps > 0]
        step = float(np.median(gaps)) if len(gaps) else 1.0
        periods = None if _is_auto("sp", self.sp) else [step * period for period in _list(self.sp)]
        lags = None if _is_auto("lags", self.lags) else [int(lag) for lag in _list(self.lags)]
        width = 0 if X is None else X.shape[1]
        clock = (self._clock == "seconds", step)
        self._model = _core.Forecaster(periods, lags, self.trend, self.scale, clock, width, self.memory)
        self._model.extend(stamps, self._inputs(X, len(stamps)), y.to_numpy(np.float64))
        self._last = stamps[-1]
        return self

    def _update(self, y: Any, X: Any = None, update_params: bool = True) -> WiskiForecaster:
        stamps = self._stamps(y.index)
        # A window may hold rows of the one before.
        new = stamps > self._last
        if not new.any():
            return self
        inputs = self._inputs(X, len(stamps))[new]
        learn = self._model.extend if update_params else self._model.advance
        learn(stamps[new], np.ascontiguousarray(inputs), y.to_numpy(np.float64)[new])
        self._last = stamps[-1]
        return self

    # -- forecasting -----------------------------------------------------------------------------------------

    def _ahead(self, fh: Any, X: Any, level: float) -> tuple[Any, list[np.ndarray]]:
        """The index of a horizon, with mean, standard deviation, lower and upper end at each of its places."""
        index = fh.to_absolute_index(self._cutoff)
        stamps = self._stamps(index)
        model = self._model
        inputs = np.zeros((len(stamps), 0))
        places = np.arange(len(stamps))
        if model.inputs:
            if X is None:
                raise WiskiError(f"X: the model has {model.inputs} inputs, which have to be known")
            own = self._stamps(X.index)
            if model.lags:
                # Each step needs those before it, and their inputs.
                stamps, wanted = own[own > self._last], stamps
                places = np.searchsorted(stamps, wanted)
                known = (places < len(stamps)) & (stamps[np.minimum(places, len(stamps) - 1)] == wanted)
            else:
                known = np.isin(stamps, own)
            if not known.all():
                raise WiskiError(f"X: has no row for {(~known).sum()} of the {len(known)} steps ahead")
            inputs = self._inputs(X, len(own))[np.searchsorted(own, stamps)]
        columns = model.forecast(stamps, np.ascontiguousarray(inputs), level)
        return index, [np.asarray(column)[places] for column in columns]

    def _predict(self, fh: Any, X: Any) -> Any:
        index, (mean, *_) = self._ahead(fh, X, 0.95)
        return pd.Series(mean, index=index, name=self._name)

    def _predict_quantiles(self, fh: Any, X: Any, alpha: Sequence[float]) -> Any:
        name = self._get_varnames()[0]
        # The index is there also if no quantile is asked for.
        index, (mean, *_) = self._ahead(fh, X, 0.95)
        out = []
        for a in alpha:
            # The ends of the interval between two quantiles.
            _, (_, _, lower, upper) = self._ahead(fh, X, max(abs(2 * a - 1), 1e-9))
            out.append(mean if a == 0.5 else lower if a < 0.5 else upper)
        columns = pd.MultiIndex.from_arrays([[name] * len(out), list(alpha)], names=[None, None])
        values = np.column_stack(out) if out else np.empty((len(index), 0))
        return pd.DataFrame(values, index=index, columns=columns)

    def _predict_var(self, fh: Any, X: Any = None, cov: bool = False) -> Any:
        if cov:
            raise NotImplementedError("the covariance of steps is not computed; wiski.Forecaster.sample_paths draws jointly")
        index, (_, std, *_) = self._ahead(fh, X, 0.6826894921370859)
        return pd.DataFrame(std**2, index=index, columns=self._get_varnames())

    def _get_fitted_params(self) -> dict[str, Any]:
        step = self._model.step or 1.0
        return {"sp": [period / step for period in self._model.seasons], "lags": self._model.lags}

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings that sktime's checks try."""
        return [{}, {"sp": [7], "lags": None, "trend": "damped"}, {"sp": None, "lags": [1, 2], "memory": 256}]

    # -- times -----------------------------------------------------------------------------------------------

    def _stamps(self, index: Any) -> np.ndarray:
        """An index as numbers on the clock of the series."""
        if isinstance(index, pd.DatetimeIndex) and self._clock == "months":
            return index.tz_localize(None).to_period("M").asi8.astype(np.float64)
        if isinstance(index, pd.DatetimeIndex) and self._clock == "seconds":
            return index.as_unit("ns").asi8 / 1e9
        if _clock_of(index) != self._clock:
            raise WiskiError(f"index: it counts {_clock_of(index)}, where that of the series counts {self._clock}")
        numbers = index.asi8 if isinstance(index, pd.PeriodIndex) else index.to_numpy()
        return numbers.astype(np.float64)

    def _inputs(self, X: Any, rows: int) -> np.ndarray:
        if X is None or self._columns is None:
            return np.zeros((rows, 0))
        return np.ascontiguousarray(X[self._columns].to_numpy(np.float64))


def _clock_of(index: Any) -> str:
    """What the numbers on the clock of an index count."""
    if isinstance(index, pd.PeriodIndex):
        return f"periods {index.freqstr}"
    if isinstance(index, pd.DatetimeIndex):
        frequency = index.freqstr or (pd.infer_freq(index) if len(index) > 2 else None) or ""
        return "months" if frequency.split("-")[0].rstrip("SE") in _MONTHS else "seconds"
    return "numbers"


def _is_auto(name: str, value: Any) -> bool:
    if isinstance(value, str) and value != "auto":
        raise WiskiError(f"{name}: {value!r} is not 'auto', None or a list of steps")
    return isinstance(value, str)


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return [value] if np.ndim(value) == 0 else list(value)
