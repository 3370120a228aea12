"""Online regression, as a scikit-learn estimator."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state

from wiski import _core
from wiski._errors import WiskiError, warn_of_failure
from wiski._estimator import PARAMETERS, OnlineGP, is_ahead, levels_of, names_of, optional, times_of, weights_of
from wiski._several import Several
from wiski._stats import Stats


class OnlineGPRegressor(RegressorMixin, OnlineGP):
    __doc__ = f"""A Gaussian process that learns one row at a time, in constant time and memory.

    Rows come in any units; scales, kernel and noise are learned on the way. Targets may be several: ``y`` then has a column
    for each, and so have predictions. Each is learned by itself, with features, kernel and noise of its own.

    Parameters
    ----------
    {PARAMETERS}
    constant_noise : bool, default=False
        Whether the noise is taken as the same everywhere. By default it varies with the inputs where that predicts better.
    known_noise : bool, default=False
        Whether every row comes with its own noise variance (``noise=`` of ``fit`` and ``partial_fit``).

    Attributes
    ----------
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of str
        Their names, where the rows came with names.
    n_seen_ : float
        The number of rows learned, or the sum of their weights.
    metrics_ : dict
        How good the predictions were that were made for each row before it was learned; a list of one for each target, if
        there are several.
    hyperparameters_ : dict
        Kernel and noise, in scaled units; a list, if there are several targets.

    Examples
    --------
    >>> import numpy as np
    >>> from wiski import OnlineGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(1000, 2))
    >>> y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=1000)
    >>> model = OnlineGPRegressor()
    >>> for i in range(0, 1000, 10):
    ...     model = model.partial_fit(X[i : i + 10], y[i : i + 10])
    >>> model.score(X, y) > 0.99
    True
    >>> mean, std = model.predict([[3.0, 5.0]], return_std=True)
    >>> bool(abs(mean[0] - 5 * np.sin(3.0)) < 3 * std[0])
    True
    """

    model_: Any

    def __init__(
        self,
        features: str = "auto",
        *,
        grid: Any = None,
        kernel: str | None = None,
        initial: Any = None,
        schedule: str = "geometric:1.1",
        warm_up: int | None = None,
        half_life: float | None = None,
        timed: bool = False,
        tracking: bool = True,
        bounds: Any = None,
        periodic: Any = None,
        categorical: Any = None,
        known_noise: bool = False,
        constant_noise: bool = False,
        off_grid: str = "extend",
        max_grid_points: int = 16384,
        engine: str = "auto",
        intervals: str = "conformal",
        level: float = 0.95,
        memory: int = 8192,
        rank_budget: int = 768,
        rank_tolerance: float = 1e-12,
        missing: str = "error",
        background: bool = False,
        verbose: int = 0,
        random_state: Any = 0,
    ) -> None:
        self.features = features
        self.grid = grid
        self.kernel = kernel
        self.initial = initial
        self.schedule = schedule
        self.warm_up = warm_up
        self.half_life = half_life
        self.timed = timed
        self.tracking = tracking
        self.bounds = bounds
        self.periodic = periodic
        self.categorical = categorical
        self.known_noise = known_noise
        self.constant_noise = constant_noise
        self.off_grid = off_grid
        self.max_grid_points = max_grid_points
        self.engine = engine
        self.intervals = intervals
        self.level = level
        self.memory = memory
        self.rank_budget = rank_budget
        self.rank_tolerance = rank_tolerance
        self.missing = missing
        self.background = background
        self.verbose = verbose
        self.random_state = random_state

    # -- learning --------------------------------------------------------------------------------------------

    def _targets(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = self._checked(X, y, reset=reset, y_numeric=True, multi_output=True)
        y = np.asarray(y, dtype=np.float64)
        return X, y if reset else self._as_fitted(y)

    def _as_fitted(self, y: np.ndarray) -> np.ndarray:
        """Targets as the model has learned them before: one for each row, or so many."""
        several = len(self.model_) if isinstance(self.model_, Several) else None
        width = 1 if y.ndim == 1 else y.shape[1]
        if width != (several or 1):
            raise WiskiError(f"y has the shape {y.shape}, but this model has {several or 1} for each row")
        return y.ravel() if several is None else y.reshape(len(y), width)

    def _new(self, targets: str | list[str], bounds: Any = None, seed: int | None = None) -> Any:
        """A model of a target, or of each of several."""
        if not isinstance(targets, str):
            seed = self._draw_seed() if seed is None else seed
            return Several([self._new(target, bounds, seed) for target in targets])
        columns = self._columns()
        model = _core.Regressor(len(columns), self._parameters(columns, bounds, seed), columns, targets)
        if any(levels is not None for levels in self._texts()):
            model.levels = self._texts()
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "error"
        tags.target_tags.multi_output = True
        return tags

    def _noise_of(self, noise: Any, rows: int) -> np.ndarray | None:
        """The noise variance of each row, which is there where it is known and nowhere else."""
        noise = optional(noise, rows, "noise")
        if noise is None and self.known_noise:
            raise WiskiError("noise: with known_noise=True every row needs the variance of its noise")
        if noise is not None and not self.known_noise:
            raise WiskiError("noise: this model learns its noise; known_noise=True takes that of each row")
        return noise

    def fit(
        self, X: Any, y: Any, noise: Any = None, time: Any = None, sample_weight: Any = None
    ) -> OnlineGPRegressor:
        """Forget everything and learn these rows.

        Since all rows are here, the grid covers what they span and their order does not matter: they are
        learned in a random one. (Rows that fade, with ``half_life``, are learned in the order given.)

        Parameters
        ----------
        X : array-like or frame of shape (n_rows, n_features)
        y : array-like of shape (n_rows,), or (n_rows, n_targets)
            Several targets are learned one after the other, with a model for each.
        noise : array-like of shape (n_rows,), default=None
            The noise variance of each row's targets, with ``known_noise``.
        time : array-like of shape (n_rows,), default=None
            The time of each row, with ``timed``.
        sample_weight : array-like of shape (n_rows,), default=None
            How often each row counts: noise of 1/weight of the variance. Rows of weight 0 are left out.
        """
        given = y
        X, y = self._targets(X, y, reset=True)
        targets = names_of(given, y)
        weight = weights_of(sample_weight, X)
        if weight is not None and (weight == 0).any():
            there = weight > 0
            X, y, weight = X[there], y[there], weight[there]
            noise = None if noise is None else np.asarray(noise)[there]
            time = None if time is None else np.asarray(time)[there]
        if len(X) < 2:
            raise WiskiError(f"n_samples={len(X)} is too few: a model needs at least two rows")
        noise, time = self._noise_of(noise, len(X)), times_of(time, len(X), self.timed)
        seed = self._draw_seed()
        order, bounds = self._batch(X, 2, seed)
        model = self._new(targets, bounds, seed)
        if order is not None:
            X, y = X[order], y[order]
            noise = None if noise is None else noise[order]
            weight = None if weight is None else weight[order]
        model.expect(len(X))
        self._learn(model, X, y, noise, time, weight, all_rows=True)
        warn_of_failure(model)
        self.model_ = model
        return self

    def partial_fit(
        self, X: Any, y: Any, noise: Any = None, time: Any = None, sample_weight: Any = None
    ) -> OnlineGPRegressor:
        """Learn these rows too, in their order. The first rows start the model (the warm-up).

        Parameters are those of ``fit``. Where this is interrupted, some of several targets may have learned rows that others
        have not.
        """
        if (
            type(self.__dict__.get("model_")) is _core.Regressor
            and self._is_plain(X)
            and type(y) is np.ndarray
            and y.dtype == np.float64
            and y.ndim == 1
            and noise is None
            and time is None
            and sample_weight is None
            and not self.verbose
            and not self.known_noise
            and not self.timed
        ):
            self.model_.learn(X, y)
            return self
        first, given = "model_" not in self.__dict__, y
        X, y = self._targets(X, y, reset=first)
        targets = names_of(given, y)
        weight = weights_of(sample_weight, X)
        noise, time = self._noise_of(noise, len(X)), times_of(time, len(X), self.timed)
        if weight is not None and (weight == 0).any():
            there = weight > 0
            X, y, weight = X[there], y[there], weight[there]
            noise, time = (None if column is None else column[there] for column in (noise, time))
        model = self._new(targets) if first else self.model_
        self._learn(model, X, y, noise, time, weight)
        warn_of_failure(model)
        self.model_ = model
        return self

    def forget(self, X: Any, y: Any, noise: Any = None, sample_weight: Any = None) -> OnlineGPRegressor:
        """Un-learn rows that were learned before with the same values: exactly, all of them or none."""
        self._fitted()
        X, y = self._targets(X, y, reset=False)
        weight, noise = weights_of(sample_weight, X), self._noise_of(noise, len(X))
        if weight is not None:
            there = weight > 0
            noise = (np.ones(len(X)) if noise is None else noise)[there] / weight[there]
            X, y = X[there], y[there]
        self.model_.forget(X, y, noise)
        return self

    def refit(self) -> OnlineGPRegressor:
        """Fit the hyperparameters to everything learned so far: worth while after merging."""
        self._fitted().refit()
        return self

    def shard(self) -> OnlineGPRegressor:
        """A model with the same scales, features and hyperparameters that has learned nothing: fit parts of the
        data with shards, anywhere, and merge them."""
        return self._with(self._fitted().shard())

    def condition(self, X: Any, y: Any, noise: Any = None) -> OnlineGPRegressor:
        """The model as it would be after hypothetical rows, with hyperparameters as they are. This one does not
        change.

        >>> import numpy as np
        >>> from wiski import OnlineGPRegressor
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = OnlineGPRegressor().fit(X, np.sin(6 * X[:, 0]))
        >>> after = model.condition([[0.5]] * 10, [2.0] * 10)
        >>> bool(after.predict([[0.5]])[0] > model.predict([[0.5]])[0])
        True
        """
        self._fitted()
        X, y = self._targets(X, y, reset=False)
        return self._with(self.model_.conditioned(X, y, self._noise_of(noise, len(X))))

    # -- predicting ------------------------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool | None = None,
        noise: Any = None,
    ) -> Any:
        """What the model says about rows.

        Parameters
        ----------
        X : array-like or frame of shape (n_rows, n_features)
        return_std : bool, default=False
            Also the standard deviation at each row.
        return_cov : bool, default=False
            Also the covariance of all rows.
        include_noise : bool, default=None
            Whether deviation and covariance are those of observations or of the function. None is those of observations
            where their noise is known: always, unless with ``known_noise`` and without ``noise``.
        noise : array-like of shape (n_rows,), default=None
            The noise variance of an observation at each row, with ``known_noise``. Means do not depend on it.

        Returns
        -------
        mean : ndarray of shape (n_rows,)
        std : ndarray of shape (n_rows,), or cov : ndarray of shape (n_rows, n_rows)
            With several targets each array has a last axis for them.
        """
        X = self._rows(X)
        noise = optional(noise, len(X), "noise")
        if noise is not None:
            if not self.known_noise:
                raise WiskiError("noise: this model learns its noise; known_noise=True takes that of each row")
            if not (np.isfinite(noise) & (noise > 0)).all():
                raise WiskiError("noise: every variance must be positive and finite")
            if include_noise is False:
                raise WiskiError("noise: with include_noise=False deviations are the function's, to which no noise is added")
        elif include_noise and self.known_noise:
            raise WiskiError("include_noise: the noise of each row is known here, so noise= must say it")
        include_noise = include_noise is not False
        added = noise if include_noise else None
        if not return_cov:
            predicted = self.model_.predict(X, return_std, include_noise)
            if not return_std or added is None:
                return predicted
            return predicted[0], np.sqrt(predicted[1] ** 2 + added.reshape(-1, *[1] * (predicted[1].ndim - 1)))
        if return_std:
            raise WiskiError("predict: either return_std or return_cov, not both")
        mean, covariance = self.model_.joint(X, include_noise)
        if added is None:
            return mean, covariance
        return mean, covariance + np.diag(added).reshape(covariance.shape[:2] + (1,) * (covariance.ndim - 2))

    def predict_interval(
        self, X: Any, level: Any = 0.95, horizon: str | None = None, noise: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The mean at each row, and the interval that holds an observation there with probability ``level``.

        With ``intervals="conformal"`` the width of intervals is moved along the stream so that the share of targets
        inside stays at the level, whatever the data do; at the levels 0.5, 0.8, 0.9, 0.95, 0.99 and ``level`` of the
        constructor that is kept row by row, and others lie in between. With ``"gaussian"`` intervals are those of the
        predicted distribution.

        Parameters
        ----------
        X : array-like or frame of shape (n_rows, n_features)
        level : float or sequence of float, default=0.95
            MAPIE's confidence level.
        horizon : {"next", "ahead"}, default=None
            Whether the errors of the last few rows say something about these: "next" for the row that comes next in
            the stream, for which the promise is made, "ahead" for rows further ahead or elsewhere. None is "next" for
            a single row and "ahead" for several.
        noise : array-like of shape (n_rows,), default=None
            The noise variance of an observation at each row, with ``known_noise``.

        Returns
        -------
        mean : ndarray of shape (n_rows,)
        intervals : ndarray of shape (n_rows, 2)
            Lower and upper ends; of shape (n_rows, 2, n_levels) for several levels. With several targets their axis is the
            second.

        Examples
        --------
        >>> import numpy as np
        >>> from wiski import OnlineGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 10, size=(2000, 1))
        >>> y = np.sin(X[:, 0]) + 0.3 * rng.standard_t(3, size=2000)
        >>> model = OnlineGPRegressor().partial_fit(X[:1000], y[:1000])
        >>> mean, intervals = model.predict_interval(X[1000:], level=0.9)
        >>> inside = (intervals[:, 0] <= y[1000:]) & (y[1000:] <= intervals[:, 1])
        >>> bool(0.87 < inside.mean() < 0.93)
        True
        """
        mean, std = self.predict(X, return_std=True, noise=noise)
        levels, single = levels_of(level)
        ahead = is_ahead(horizon, len(mean))
        half = [self.model_.quantile(one, ahead) * std for one in levels]
        each = [np.stack([mean - h, mean + h], axis=-1) for h in half]
        return mean, each[0] if single else np.stack(each, axis=-1)

    def predict_quantiles(
        self, X: Any, quantiles: Any = (0.1, 0.5, 0.9), horizon: str | None = None, noise: Any = None
    ) -> np.ndarray:
        """Quantiles of an observation at each row: an array of shape (n_rows, n_quantiles), or of shape (n_rows, n_targets,
        n_quantiles). They are the ends of :meth:`predict_interval`, so that with ``intervals="conformal"`` intervals between
        two of them hold their share.

        >>> import numpy as np
        >>> from wiski import OnlineGPRegressor
        >>> X = np.linspace(0, 1, 100)[:, None]
        >>> model = OnlineGPRegressor().fit(X, np.sin(6 * X[:, 0]))
        >>> bool((np.diff(model.predict_quantiles(X)) > 0).all())
        True
        """
        shares, _ = levels_of(quantiles)
        mean, std = self.predict(X, return_std=True, noise=noise)
        ahead = is_ahead(horizon, len(mean))

        def end(share: float) -> np.ndarray:
            level = abs(2 * share - 1)
            half = self.model_.quantile(level, ahead) * std if level > 0 else 0.0
            return mean + half if share > 0.5 else mean - half

        return np.stack([end(share) for share in shares], axis=-1)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Values at rows of functions drawn from the posterior: an array of shape (n_rows, n_samples), or of shape
        (n_rows, n_targets, n_samples). Each column is one function; noise is not added."""
        X = self._rows(X)
        if n_samples < 1:
            raise WiskiError(f"n_samples={n_samples}: at least one function must be drawn")
        seed = check_random_state(random_state).randint(2**31)
        return self.model_.sample(X, n_samples, int(seed))

    def log_marginal_likelihood(self) -> float:
        """The log marginal likelihood of everything learned, at the present hyperparameters: of several targets, the sum."""
        return self._fitted().log_evidence()

    @property
    def hyperparameters_(self) -> Any:
        """Names and values of all hyperparameters, in scaled units (inputs -1 to 1, targets of variance 1): a dict, or a list
        of one for each of several targets."""
        found = self._fitted().hyperparameters()
        return found if isinstance(self.model_, Several) else dict(found)

    # -- from elsewhere --------------------------------------------------------------------------------------

    @classmethod
    def from_stats(cls, stats: Stats, **parameters: Any) -> OnlineGPRegressor:
        """A model that has learned what statistics hold, with hyperparameters fitted to them.

        See :class:`wiski.Stats`.
        """
        if not isinstance(stats, Stats):
            raise WiskiError(f"from_stats: a wiski.Stats is needed, not a {type(stats).__name__}")
        estimator = cls(**{"features": "identity", "bounds": stats.bounds, **parameters})
        estimator.n_features_in_ = len(stats.bounds)
        columns = estimator._columns()
        estimator.model_ = _core.Regressor.from_stats(stats._sums, estimator._parameters(columns), columns, "y")
        return estimator

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OnlineGPRegressor:
        """A model from a file that this class or the command line wrote."""
        several = _core.load_several(os.fspath(path))
        return cls._around(_core.Regressor.load(os.fspath(path)) if several is None else Several(several))
