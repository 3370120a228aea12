"""A regressor and a forecaster for river's streams of dictionaries."""

from __future__ import annotations

import datetime
import math
import numbers
from statistics import NormalDist
from typing import Any

import numpy as np
from river import base, conf, proba
from river.time_series.base import Forecaster

from wiski import _core
from wiski._errors import WiskiError
from wiski._regressor import OnlineGPRegressor


class OnlineGP(base.Regressor):
    """A Gaussian process that learns one row at a time, in constant time and memory.

    The features are those of the first row. One that a later row lacks (or gives as None or NaN) is taken at the mean
    of its values so far; one that comes up later is ignored. Until there are enough rows to start from (the warm-up)
    a prediction is the mean of the targets.

    Parameters
    ----------
    features
        How rows become coordinates on grids, as for :class:`wiski.OnlineGPRegressor`.
    grid
        Grid points per axis.
    kernel
        A kernel expression such as "matern52".
    schedule
        When hyperparameters are learned.
    warm_up
        The number of rows to start from.
    half_life
        Let a row count half after so many rows.
    off_grid
        What to do with rows off the grid: "extend", "error" or "prior".
    rank_budget
        The largest rank of a sum of grids.
    seed
        The seed of everything random.
    confidence_level
        The share of targets that intervals hold: along the stream it is kept, whatever the data do.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> from wiski.river import OnlineGP
    >>> stream = datasets.synth.Friedman(seed=0).take(600)
    >>> model = preprocessing.StandardScaler() | OnlineGP("project:2", warm_up=200)
    >>> metric = evaluate.progressive_val_score(stream, model, metrics.MAE())
    >>> metric.get() < 3.5
    True
    >>> x, y = next(iter(datasets.synth.Friedman(seed=1).take(1)))
    >>> distribution = model.predict_one(x, with_dist=True)
    >>> bool(distribution.sigma > 0)
    True
    """

    def __init__(
        self,
        features: str = "auto",
        grid: int | None = None,
        kernel: str | None = None,
        schedule: str = "geometric:1.1",
        warm_up: int | None = None,
        half_life: float | None = None,
        off_grid: str = "extend",
        rank_budget: int = 768,
        seed: int = 0,
        confidence_level: float = 0.95,
    ) -> None:
        self.features = features
        self.grid = grid
        self.kernel = kernel
        self.schedule = schedule
        self.warm_up = warm_up
        self.half_life = half_life
        self.off_grid = off_grid
        self.rank_budget = rank_budget
        self.confidence_level = confidence_level
        self.seed = seed
        self._model: Any = None
        self._names: list[Any] = []
        self._means: dict[Any, float] = {}
        self._rows = 0
        self._first_target = 0.0

    def _start(self, x: dict[Any, Any]) -> None:
        # Sorted, so that the order in a dictionary has no influence.
        self._names = sorted(x, key=str)
        if not self._names:
            raise WiskiError("x: the first row has no features")
        parameters = OnlineGPRegressor(
            self.features,
            grid=self.grid,
            kernel=self.kernel,
            schedule=self.schedule,
            warm_up=self.warm_up,
            half_life=self.half_life,
            off_grid=self.off_grid,
            rank_budget=self.rank_budget,
            level=self.confidence_level,
            random_state=self.seed,
        )._parameters([str(name) for name in self._names])
        names = [str(name) for name in self._names]
        self._model = _core.Regressor(len(names), parameters, names, "y")
        self._means = dict.fromkeys(self._names, 0.0)

    def _row(self, x: dict[Any, Any]) -> list[float]:
        row = []
        for name in self._names:
            value = x.get(name)
            if value is not None and not isinstance(value, numbers.Real):
                raise WiskiError(f"x[{name!r}] is {value!r}: every feature must be a number")
            row.append(self._means[name] if value is None or math.isnan(value) else float(value))
        return row

    def learn_one(self, x: dict[Any, Any], y: float) -> None:
        """Learn a row."""
        if self._model is None:
            self._start(x)
        row = self._row(x)
        self._model.learn_one(row, y)
        if not self._rows:
            self._first_target = float(y)
        self._rows += 1
        for name, value in zip(self._names, row):
            self._means[name] += (value - self._means[name]) / self._rows

    def predict_one(self, x: dict[Any, Any], with_dist: bool = False, with_interval: bool = False) -> Any:
        """What the model says about a row: a number, a Gaussian distribution of observations, or the interval
        (``river.conf.Interval``) that holds the target of the row that comes next with ``confidence_level``."""
        if with_dist and with_interval:
            raise WiskiError("predict_one: either with_dist or with_interval, not both")
        if self._rows < 2:
            # Nothing is known about the spread yet.
            mean, std = self._first_target, 1.0
        else:
            mean, std = self._model.predict_one(self._row(x), True)
        if with_interval:
            level = self.confidence_level
            plain = self._model is None
            half = std * (NormalDist().inv_cdf(0.5 + 0.5 * level) if plain else self._model.quantile(level, False))
            return conf.Interval(lower=mean - half, upper=mean + half)
        if not with_dist:
            return mean
        # river's Gaussian is made of what it has seen: two values with this mean and deviation.
        distribution = proba.Gaussian()
        distribution.update(mean - std / math.sqrt(2))
        distribution.update(mean + std / math.sqrt(2))
        return distribution

    @property
    def metrics_(self) -> dict[str, float]:
        """Running figures of the predictions made for each row before it was learned, after the warm-up."""
        if self._model is None:
            raise WiskiError("the model has seen no rows yet")
        return self._model.metrics()


class OnlineForecaster(Forecaster):
    """Learns a series row by row, in constant time and memory, and forecasts it: :class:`wiski.Forecaster` in the interface
    of river's ``time_series``.

    Rows are steps, unless ``time`` names the feature that says when they were. The numbers among the other features of the
    first row are inputs; they have to be known ahead, as ``xs``. A target that is None or NaN is missing. Hyperparameters
    are learned from the second row on, whenever there are half as many rows more, and from 256 on twice as many: that
    row takes longer.

    Parameters
    ----------
    seasons
        Periods, in steps: "auto" finds those that the rows show, None is none. With ``time`` they are in its unit, seconds
        if it is a date.
    lags
        Which earlier values are inputs, in steps: "auto" takes them where forecasts are better with them, None is none.
    trend
        How the level moves on: "linear", "damped" or "level".
    scale
        Whether components add up ("linear") or multiply ("log"); "auto" decides by the rows.
    time
        A feature that holds the time, a date or a number. Without it dates are left out.
    memory
        Rows in memory, from which hyperparameters are learned.
    confidence_level
        The share of targets that intervals hold.

    Examples
    --------
    >>> from river import datasets, metrics, time_series
    >>> from wiski.river import OnlineForecaster
    >>> model = OnlineForecaster(seasons=[12])
    >>> for x, y in datasets.AirlinePassengers():
    ...     model.learn_one(y)
    >>> year = model.forecast(12)
    >>> year.index(max(year))  # July, of months from January on
    6
    >>> ahead = model.forecast(12, with_interval=True)
    >>> all(interval.lower < interval.upper for interval in ahead)
    True
    """

    def __init__(
        self,
        seasons: str | list[float] | None = "auto",
        lags: str | list[int] | None = "auto",
        trend: str = "linear",
        scale: str = "auto",
        time: str | None = None,
        memory: int = 4096,
        confidence_level: float = 0.95,
    ) -> None:
        self.seasons = seasons
        self.lags = lags
        self.trend = trend
        self.scale = scale
        self.time = time
        self.memory = memory
        self.confidence_level = confidence_level
        self._model: Any = None
        self._names: list[Any] = []
        self._targets = 0
        self._last_target = 0.0

    def _start(self, x: dict[Any, Any]) -> None:
        for name, value in (("seasons", self.seasons), ("lags", self.lags)):
            if isinstance(value, str) and value != "auto":
                raise WiskiError(f"{name}: {value!r} is not 'auto', None or a list")
        named = (name for name in x if name != self.time and not isinstance(x[name], datetime.date))
        # Sorted, so that the order in a dictionary has no influence.
        self._names = sorted(named, key=str)
        seasons = None if isinstance(self.seasons, str) else [float(period) for period in self.seasons or []]
        lags = None if isinstance(self.lags, str) else list(self.lags or [])
        # Rows are steps, but for a clock of their own.
        step = 1.0 if self.time is None else None
        self._model = _core.Forecaster(seasons, lags, self.trend, self.scale, (False, step), len(self._names), self.memory)

    def _row(self, x: dict[Any, Any]) -> list[float]:
        for name in self._names:
            if not isinstance(x.get(name), numbers.Real):
                raise WiskiError(f"x[{name!r}] is {x.get(name)!r}: an input known ahead must be a number")
        return [float(x[name]) for name in self._names]

    def _stamp(self, x: dict[Any, Any]) -> float:
        value = x.get(self.time)
        if isinstance(value, datetime.date):
            if not isinstance(value, datetime.datetime):
                value = datetime.datetime.combine(value, datetime.time())
            # A date without an offset is one everywhere, whatever the machine's own is.
            return (value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)).timestamp()
        if isinstance(value, numbers.Real):
            return float(value)
        raise WiskiError(f"x[{self.time!r}] is {value!r}: a time must be a date or a number")

    def learn_one(self, y: float | None, x: dict[Any, Any] | None = None) -> None:
        """Learn a row: its target, and the inputs that are known ahead."""
        x = x or {}
        if self._model is None:
            self._start(x)
        time = float(self._model.rows) if self.time is None else self._stamp(x)
        target = None if y is None or math.isnan(y) else float(y)
        self._model.observe(time, self._row(x), target)
        if target is not None:
            self._targets += 1
            self._last_target = target
        # Two targets have a scale; later fits are the model's own affair.
        if self._targets >= 2 and not self._model.is_ready:
            self._model.fit()

    def forecast(self, horizon: int, xs: list[dict[Any, Any]] | None = None, with_interval: bool = False) -> list[Any]:
        """What the model says about the next steps: a list of numbers, or of intervals (``river.conf.Interval``) that hold
        the targets with ``confidence_level``."""
        if xs is not None and len(xs) != horizon:
            raise WiskiError(f"xs: {len(xs)} rows for {horizon} steps")
        if self._model is None or not self._model.is_ready:
            if with_interval:
                raise WiskiError("forecast: an interval needs two targets")
            # Nothing but the last value is known yet.
            return [self._last_target] * horizon
        if xs is None and self._names:
            raise WiskiError(f"xs: the model has the inputs {self._names}, which have to be known ahead")
        if xs is None or self.time is None:
            stamps = self._model.next_times(horizon)
        else:
            stamps = np.array([self._stamp(x) for x in xs])
        inputs = np.array([self._row(x) for x in xs or [{}] * horizon]).reshape(horizon, len(self._names))
        mean, _, lower, upper = self._model.forecast(stamps, inputs, self.confidence_level)
        if with_interval:
            return [conf.Interval(lower=lo, upper=hi) for lo, hi in zip(lower.tolist(), upper.tolist())]
        return mean.tolist()
