"""What the regressor and the classifier have in common: parameters, rows, files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from wiski._errors import NotFittedError, WiskiError
from wiski._progress import Progress

_F64 = np.dtype(np.float64)

# So many rows are learned between two counts of them.
_SAID_AFTER = 256

PARAMETERS = """features : str, default="auto"
        How rows become coordinates: ``"identity"`` (one to four columns; four need ``bounds`` or a ``grid`` in
        ``partial_fit``), ``"points"`` (a sum of small grids with inducing points over all columns where they
        help; ``"points:256"`` for so many), ``"additive"`` (the grids alone; ``"additive:12"`` for twelve directions), ``"project:2"`` (a learned projection to two), ``"mlp:64,64:2"`` (a perceptron).
        ``"auto"`` is identity for one or two columns of numbers, else points.
    grid : int or sequence of int, default=None
        Grid points per axis. None finds them on the rows for one or two axes, and is 10 for three, 7 for four.
    kernel : str, default=None
        An expression such as ``"rbf"``, ``"matern52"`` or ``"rbf + periodic@0"``. None is, for one or two axes, the best
        of rbf, matern52, matern32, matern12 and, where there is a sign for it, a sum of two by
        evidence; a sum of grids has its own for each.
    initial : mapping, default=None
        Start values by name, as ``{"lengthscale": [0.5, 0.7], "noise": 0.05}``, in the units of the data. With
        ``schedule="off"`` they stay.
    schedule : str, default="geometric:1.1"
        When hyperparameters are learned: whenever there are a tenth more rows, ``"every-step"`` or ``"off"``.
    warm_up : int, default=None
        The number of rows to start from. None is a choice by the number of columns (50 on one grid).
    half_life : float, default=None
        Let a row count half after so many rows, or, with ``timed``, after so much time.
    timed : bool, default=False
        Whether the half-life is in the unit of the times given with the rows.
    tracking : bool, default=True
        Whether predictions between calls of ``partial_fit`` follow change: where the last rows say more than the model of
        all rows, what is predicted for the next one is corrected. After ``fit``, whose rows have no order, nothing is.
    bounds : sequence of (low, high), default=None
        The interval of each column. None is what the first rows span (all rows, for ``fit``).
    periodic : mapping, default=None
        Columns that repeat, by name or number, with their period, as ``{"hour": 24}``.
    categorical : mapping, default=None
        Columns that are levels 0, 1, ..., by name or number, with how many there are.
    off_grid : {"extend", "error", "prior"}, default="extend"
        What to do with rows off the grid: let it grow, reject them, or answer with the prior and learn nothing.
        A prediction lets no grid grow: with "extend" the prior answers there, and a warning says so.
    max_grid_points : int, default=16384
        The largest number of points to which a grid may grow by itself; one that is asked for may have a million.
    engine : {"auto", "dense", "sparse", "krylov"}, default="auto"
        How posteriors are computed: by the size of the grid and the kernel, or as told.
    intervals : {"conformal", "gaussian"}, default="conformal"
        Where intervals and sets come from: kept along the stream so that they hold their share of targets, whatever
        the data do, or what the model says.
    level : float, default=0.95
        The share of targets that the running figures (``metrics_``) are about.
    memory : int, default=8192
        The number of first rows from which a sum of grids learns its features.
    rank_budget : int, default=768
        The largest rank of a sum of grids.
    rank_tolerance : float, default=1e-12
        Prior eigenvalues below this share of the largest are dropped.
    missing : {"error", "mean", "marginalize"}, default="error"
        What to do with numbers that are NaN: reject them; take the mean of their column so far; or predict such rows by
        averaging over values that complete rows had, so that the deviation grows by what is not known, and learn only
        rows that are complete. (Columns of text and
        categories of pandas and polars need no parameter: each text is a level, and so is what is missing or unknown.)
    background : bool, default=False
        Whether searches for features and refits run on another thread while ``partial_fit`` goes on: no row waits for
        them, and when they take effect depends on the machine.
    verbose : int, default=0
        Whether ``fit`` and ``partial_fit`` say on standard error, every second, how far they are, and what they are doing
        meanwhile.
    random_state : int, RandomState or None, default=0
        The seed of everything random."""


class OnlineGP(BaseEstimator):
    """The base of both estimators. ``model_`` is the model in Rust once there is one."""

    model_: Any
    # The texts of columns, and sums and counts of numbers that are there, for those that are missing.
    _levels: dict[str, list[str]]
    _sums: tuple[Any, Any] | None

    # -- parameters ------------------------------------------------------------------------------------------

    def _categorical(self) -> dict[Any, int]:
        """The columns that are levels: those that were named, and those of text."""
        texts = {name: len(levels) for name, levels in getattr(self, "_levels", {}).items()}
        return {**texts, **(self.categorical or {})}

    def _draw_seed(self) -> int:
        """The seed of a new model, and of the order in which ``fit`` takes its rows."""
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _parameters(self, columns: list[str], bounds: Any = None, seed: int | None = None) -> dict[str, Any]:
        """The parameters in the form in which the Rust side takes them."""
        grid = self.grid
        if grid is not None:
            grid = [int(g) for g in np.atleast_1d(grid)]
        if bounds is None and self.bounds is not None:
            bounds = [(float(lo), float(hi)) for lo, hi in self.bounds]
        if self.timed and self.half_life is None:
            raise WiskiError("timed: without half_life rows do not fade, and their times mean nothing")
        return {
            "features": self.features,
            "grid": grid,
            "kernel": self.kernel,
            "initial": [(k, np.atleast_1d(v).astype(float).tolist()) for k, v in (self.initial or {}).items()],
            "schedule": self.schedule,
            "half_life": self.half_life,
            "timed": self.timed,
            "tracking": self.tracking,
            "warm_up": self.warm_up,
            "bounds": bounds,
            "off_grid": self.off_grid,
            "max_grid_points": self.max_grid_points,
            "engine": self.engine,
            "periodic": [(_place(k, columns, "periodic"), v) for k, v in (self.periodic or {}).items()],
            "categorical": [(_place(k, columns, "categorical"), v) for k, v in self._categorical().items()],
            "known_noise": getattr(self, "known_noise", False),
            "constant_noise": getattr(self, "constant_noise", False),
            "marginalize": self.missing == "marginalize",
            "background": self.background,
            "intervals": self.intervals,
            "level": float(self.level),
            "empty_sets": getattr(self, "empty_sets", False),
            "memory": self.memory,
            "rank_budget": self.rank_budget,
            "rank_tolerance": self.rank_tolerance,
            "seed": self._draw_seed() if seed is None else seed,
        }

    # -- rows ------------------------------------------------------------------------------------------------

    def _is_plain(self, X: Any) -> bool:
        """Whether an array can go to the model as it is: the fast path, which checks nothing twice."""
        return (
            type(X) is np.ndarray
            and X.dtype == _F64
            and X.ndim == 2
            and X.shape[0] > 0
            and X.shape[1] == self.n_features_in_
            and "feature_names_in_" not in self.__dict__
            and self.missing != "mean"
        )

    def _rows(self, X: Any) -> np.ndarray:
        """The rows of a model that is fitted, as an array."""
        if "model_" not in self.__dict__:
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet: call 'fit' or 'partial_fit' first."
            )
        if self._is_plain(X):
            return X
        return self._checked(X, reset=False)

    def _checked(self, X: Any, y: Any = "no_validation", reset: bool = False, **how: Any) -> Any:
        """Rows (and targets) as scikit-learn checks them, with texts as levels and missing numbers as means."""
        if self.missing not in ("error", "mean", "marginalize"):
            raise WiskiError(f"missing: {self.missing!r} is not 'error', 'mean' or 'marginalize'")
        if reset:
            self._levels, self._sums = levels_in(X), None
        for name, levels in getattr(self, "_levels", {}).items():
            X = with_codes(X, name, levels)
        if self.missing != "error":
            how["ensure_all_finite"] = "allow-nan"
        if isinstance(y, str) and y == "no_validation":
            return self._filled(validate_data(self, X, dtype=np.float64, reset=reset, **how))
        X, y = validate_data(self, X, y, dtype=np.float64, reset=reset, **how)
        learned = self._learned_means(X)
        return self._filled(X, learned), y

    def _learned_means(self, X: np.ndarray) -> Any:
        """The sums of the columns so far, these rows included, for what is missing."""
        if self.missing != "mean":
            return None
        sums, counts = (0.0, 0.0) if self._sums is None else self._sums
        there = ~np.isnan(X)
        self._sums = (sums + np.where(there, X, 0.0).sum(axis=0), counts + there.sum(axis=0))
        return self._sums

    def _filled(self, X: np.ndarray, sums: Any = None) -> np.ndarray:
        if self.missing != "mean" or not np.isnan(X).any():
            return X
        sums = getattr(self, "_sums", None) if sums is None else sums
        if sums is None:
            raise WiskiError("missing: a model from a file does not know the means of its columns")
        return np.where(np.isnan(X), sums[0] / np.maximum(sums[1], 1.0), X)

    def _texts(self) -> list[list[str] | None]:
        """The levels of each column, where it is text."""
        levels = getattr(self, "_levels", {})
        return [levels.get(name) for name in self._columns()]

    def _learn(self, model: Any, X: np.ndarray, *columns: Any, texts: Any = None, all_rows: bool = False) -> None:
        """Hands rows to a model, all there will be or some; says how far it is, if that is wanted."""
        with Progress(len(X), bool(self.verbose)) as progress:
            # Rows that are counted come in blocks.
            block = _SAID_AFTER if self.verbose else max(len(X), 1)
            for first in range(0, len(X), block):
                rows = slice(first, first + block)
                model.learn(X[rows], *_arguments(columns, rows, texts))
                progress.done = min(first + block, len(X))
            if all_rows:
                progress.doing = "looking for features"
                model.finish_search()

    def _columns(self) -> list[str]:
        """The names of the columns, invented where there are none."""
        names = getattr(self, "feature_names_in_", None)
        return [f"x{i}" for i in range(self.n_features_in_)] if names is None else [str(n) for n in names]

    def _batch(self, X: np.ndarray, axes: int, seed: int) -> tuple[np.ndarray | None, Any]:
        """For ``fit``, which has all rows at once: an order in which the first of them stand for all, and the
        interval of each column if the columns are the axes of a grid (for ``"auto"``, up to so many). Neither for
        rows that fade, whose order means something."""
        if self.half_life is not None:
            return None, None
        order = np.random.default_rng(seed).permutation(len(X))
        if self.missing == "marginalize":
            # Rows that are complete lend their values to the others, so they come first.
            order = order[np.argsort(np.isnan(X[order]).any(axis=1), kind="stable")]
        on_grid = self.features == "identity" or (self.features == "auto" and X.shape[1] <= axes)
        if self.bounds is not None or not on_grid or self.periodic or self._categorical():
            return order, None
        # As the library does for the warm-up: the range, and a twentieth on either side.
        low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
        margin = np.where(high > low, 0.05 * (high - low), 1.0)
        return order, [(float(a), float(b)) for a, b in zip(low - margin, high + margin)]

    # -- the model -------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in self.__dict__

    def _fitted(self) -> Any:
        if "model_" not in self.__dict__:
            self._rows(None)
        return self.model_

    def _with(self, model: Any) -> Any:
        """An estimator like this one around another model."""
        other = clone(self)
        for name in ("n_features_in_", "feature_names_in_", "_levels", "_sums"):
            if name in self.__dict__:
                setattr(other, name, getattr(self, name))
        other.model_ = model
        return other

    @property
    def n_seen_(self) -> float:
        """The sum of the weights of the rows learned: their number, unless old ones fade."""
        return self._fitted().count

    @property
    def is_warm_(self) -> bool:
        """Whether the warm-up is over. Until then predictions are the mean and the spread of the targets."""
        return self._fitted().is_ready

    @property
    def remarks_(self) -> list[str]:
        """What there is to know about the data and the fit: a clock among the columns, a grid too coarse, rows left
        out."""
        self._fitted()
        return self.model_.remarks()

    @property
    def metrics_(self) -> Any:
        """Running figures of the predictions made for each row before it was learned, after the warm-up: a dict, or a list of
        one for each of several targets."""
        return self._fitted().metrics()

    def finish_search(self) -> Any:
        """Look at the rows that are still in memory once more, as :meth:`fit` and the end of ``wiski stream`` do: grid and
        kernel of one or two columns, blocks and inducing points of more. Further rows can be learned as before."""
        self._fitted().finish_search()
        return self

    def finish_warm_up(self) -> Any:
        """End the warm-up with the rows seen so far (at least two)."""
        self._fitted().finish_warm_up()
        return self

    def freeze_features(self) -> Any:
        """Stop learning the feature map, so that rows can be forgotten and models merged exactly."""
        self._fitted().freeze_features()
        return self

    def decay(self, factor: float) -> Any:
        """Let everything learned so far count ``factor`` times as much (0 < factor <= 1)."""
        self._fitted().decay(factor)
        return self

    def merge(self, other: Any) -> Any:
        """Learn everything another model has learned, exactly. Both must scale and map rows alike: start from
        copies of one model, or from its shards."""
        if type(other) is not type(self):
            raise WiskiError(f"merge: a {type(self).__name__} is needed, not a {type(other).__name__}")
        self._fitted().merge(other._fitted())
        return self

    # -- files -----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, whole or not at all: the file that the command line reads and writes. (Models of
        several targets are read by Python alone.)"""
        self._fitted().save(os.fspath(path))

    @classmethod
    def _around(cls, model: Any) -> Any:
        """An estimator around a model that was read from a file."""
        parameters = model.parameters()
        accepted = set(cls._get_param_names())
        estimator = cls(**{k: v for k, v in parameters.items() if k in accepted})
        estimator.n_features_in_ = model.input_dim
        texts = {name: levels for name, levels in zip(model.inputs, model.levels) if levels is not None}
        estimator._levels = texts
        # They are known from the texts.
        known = {k: v for k, v in (estimator.categorical or {}).items() if model.inputs[k] not in texts}
        estimator.categorical = known or None
        if model.inputs != [f"x{i}" for i in range(model.input_dim)]:
            estimator.feature_names_in_ = np.asarray(model.inputs, dtype=object)
        estimator.model_ = model
        return estimator


def _arguments(columns: tuple[Any, ...], rows: slice, texts: Any) -> list[Any]:
    """What a model takes beside the rows: targets or codes first, then the texts of codes, then what is optional."""
    cut = [None if column is None else column[rows] for column in columns]
    return cut if texts is None else [cut[0], texts, *cut[1:]]


def weights_of(sample_weight: Any, X: np.ndarray) -> np.ndarray | None:
    """A weight for each row, none of them negative; None if all count the same."""
    if sample_weight is None:
        return None
    return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)


def _is_text(column: Any) -> bool:
    if hasattr(column, "cat") and str(getattr(column, "dtype", "")).lower().startswith(("category", "categorical", "enum")):
        return True
    kind = getattr(np.asarray(column).dtype, "kind", "")
    if kind in "US":
        return True
    return kind in "OT" and any(isinstance(value, str) for value in column)


def levels_in(X: Any) -> dict[str, list[str]]:
    """The texts of each column of a frame that is text or a category, in their order; the last, empty, stands for what is
    missing or unknown."""
    names = getattr(X, "columns", None)
    if names is None or not (hasattr(X, "assign") or hasattr(X, "with_columns")):
        return {}
    found = {}
    for name in names:
        if _is_text(X[name]):
            texts = {_text(value) for value in _values(X[name])} - {""}
            if hasattr(X[name], "cat") and hasattr(X[name].cat, "categories"):
                texts |= {_text(value) for value in X[name].cat.categories}
            found[str(name)] = [*sorted(texts), ""]
    return found


def _values(column: Any) -> list[Any]:
    return column.to_list() if hasattr(column, "to_list") else list(column)


def _text(value: Any) -> str:
    """The text of a level; the empty one for None, NaN and pandas' NA."""
    if value is None or value != value or str(value) in ("<NA>", "NaT"):
        return ""
    return str(value)


def with_codes(X: Any, name: str, levels: list[str]) -> Any:
    """A frame whose column of texts is their places among the levels."""
    if name not in getattr(X, "columns", ()):
        raise WiskiError(f"{name}: this column is text, so rows must come in a frame that has it")
    places = {level: place for place, level in enumerate(levels)}
    missing = len(levels) - 1
    codes = np.asarray([places.get(_text(value), missing) for value in _values(X[name])], dtype=np.float64)
    if hasattr(X, "with_columns"):
        return X.with_columns(type(X[name])(name, codes))
    changed = X.copy(deep=False)
    changed[name] = codes
    return changed


def levels_of(level: Any) -> tuple[list[float], bool]:
    """The levels asked for, and whether it was a single number."""
    array = np.asarray(level, dtype=np.float64)
    if array.ndim > 1 or array.size == 0 or not ((array > 0) & (array < 1)).all():
        raise WiskiError(f"level: {level!r} is not a share between 0 and 1, nor several of them")
    return np.atleast_1d(array).tolist(), array.ndim == 0


def is_ahead(horizon: str | None, rows: int) -> bool:
    """Whether rows are taken to be far ahead: where nothing is said, several are, and a single one comes next."""
    if horizon not in (None, "next", "ahead"):
        raise WiskiError(f"horizon: {horizon!r} is not 'next' or 'ahead'")
    return rows != 1 if horizon is None else horizon == "ahead"


def _place(column: Any, columns: list[str], parameter: str) -> int:
    if isinstance(column, (int, np.integer)) and 0 <= column < len(columns):
        return int(column)
    if column in columns:
        return columns.index(column)
    raise WiskiError(f"{parameter}: {column!r} is not one of the columns {', '.join(columns)}")


def times_of(values: Any, rows: int, timed: bool) -> np.ndarray | None:
    """The time of each row, which only rows that fade with time have."""
    if (values is not None) != timed:
        if timed:
            raise WiskiError("time: with timed=True every row needs one")
        raise WiskiError("time: it is for rows that fade, with half_life and timed=True")
    return optional(values, rows, "time")


def name_of(y: Any) -> str:
    """The name of a series of targets, by which the command line finds them in a file."""
    name = getattr(y, "name", None)
    return "y" if name is None else str(name)


def names_of(given: Any, y: np.ndarray) -> str | list[str]:
    """The name of the target, or of each of several: those of the series or frame that they came in, where there are any."""
    if y.ndim == 1:
        return name_of(given)
    names = getattr(given, "columns", None)
    return [f"y{k}" for k in range(y.shape[1])] if names is None else [str(name) for name in names]


def optional(values: Any, rows: int, name: str) -> np.ndarray | None:
    """A number for each row, or none at all."""
    if values is None:
        return None
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (rows,):
        raise WiskiError(f"{name} has the shape {values.shape} where ({rows},) is needed")
    return values
