"""Bayesian optimization by asking and telling."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from wiski import _core
from wiski._errors import WiskiError


class Best(NamedTuple):
    """A point and its value."""

    x: Any
    y: float


class Recommendation(NamedTuple):
    """A point, its predicted value, and how sure that is."""

    x: Any
    mean: float
    std: float


class Optimizer:
    """Proposes points and learns from results; a proposal takes as long after ten thousand trials as after a thousand.

    Parameters
    ----------
    space : mapping or sequence
        One to fifty dimensions, each ``(low, high)``, ``(low, high, "log")``, ``(low, high, "int")`` or
        ``(low, high, "log", "int")``. With a mapping from names, points are dictionaries; with a sequence, arrays.
    maximize : bool, default=False
        Whether large values are wanted.
    strategy : str, default="logei"
        ``"logei"``, ``"ei"``, ``"ucb"``, ``"ucb:4"``, ``"pi"``, ``"mes"`` (information about the maximum) or
        ``"thompson"``. Several points are found together, or one after the other with ``"greedy "`` in front.
    initial : int, default=None
        The number of points of the quasi-random design at the start. None is twice the dimensions plus three.
    exact_until : int, default=None
        Up to so many results the model is an exact Gaussian process; beyond, it lives on grids, in constant time.
        None is 500, and 0 grids from the start.
    grid : int, default=None
        Grid points per axis. None is a choice by the number of dimensions.
    local : bool, default=None
        Whether a search on grids closes in on the best point, with a grid that becomes finer as it does. True: from
        the start. None: once it is on grids, in more than four dimensions and where the grid is too coarse.
    kernel : str, default="matern52"
        ``"matern52"``, ``"matern32"``, ``"matern12"``, ``"rbf"`` or ``"rq"``.
    known_noise : bool, default=False
        Whether every value comes with its noise variance.
    random_state : int, default=0
        The same seed and the same calls give the same points.

    Examples
    --------
    >>> from wiski import Optimizer
    >>> search = Optimizer({"x": (-2, 2), "rate": (1e-4, 1, "log")})
    >>> import math
    >>> for _ in range(25):
    ...     for point in search.ask():
    ...         loss = (point["x"] - 0.5) ** 2 + (math.log10(point["rate"]) + 2) ** 2
    ...         search.tell(point, loss)
    >>> search.best.y < 0.1
    True
    """

    def __init__(
        self,
        space: Any,
        *,
        maximize: bool = False,
        strategy: str = "logei",
        initial: int | None = None,
        exact_until: int | None = None,
        grid: int | None = None,
        local: bool | None = None,
        kernel: str = "matern52",
        known_noise: bool = False,
        random_state: int = 0,
    ) -> None:
        self._named = isinstance(space, Mapping)
        entries = space.items() if self._named else ((f"x{i}", entry) for i, entry in enumerate(space))
        given = [_dimension(str(name), entry) for name, entry in entries]
        self._search = _core.Optimizer(
            given, maximize, strategy, initial, exact_until, grid, local, kernel, known_noise, int(random_state)
        )

    @property
    def names(self) -> list[str]:
        """The names of the dimensions."""
        return [name for name, *_ in self._search.space]

    def _points(self, X: np.ndarray) -> Any:
        if not self._named:
            return X
        names = self.names
        return [dict(zip(names, row)) for row in X.tolist()]

    def _point(self, x: np.ndarray) -> Any:
        return self._points(x[None])[0]

    def ask(self, q: int = 1) -> Any:
        """Propose ``q`` points: an array of shape (q, dimensions), or a list of dictionaries. They are pending until
        they are told, and are not proposed again."""
        return self._points(self._search.ask(q))

    def tell(self, X: Any, y: Any, noise: Any = None) -> None:
        """Learn what was found at one point or several, which need not have been asked for. A value of NaN or None
        says that the trial failed. ``noise`` is the variance of each value, with ``known_noise``."""
        if isinstance(X, Mapping):
            X = [X]
        if len(X) and isinstance(X[0], Mapping):
            names = self.names
            missing = [name for name in names for point in X if name not in point]
            if missing:
                raise WiskiError(f"{missing[0]}: a point does not say what it is")
            X = [[point[name] for name in names] for point in X]
        X = np.atleast_2d(np.asarray(X, dtype=np.float64))
        values = np.atleast_1d(np.asarray(y, dtype=np.float64))
        if values.ndim != 1:
            raise WiskiError(f"y has the shape {values.shape}: a value for each point is needed")
        told = [None if np.isnan(value) else float(value) for value in values]
        if noise is not None:
            noise = np.atleast_1d(np.asarray(noise, dtype=np.float64)).tolist()
        self._search.tell(X.tolist(), told, noise)

    @property
    def best(self) -> Best | None:
        """The best point measured so far and its value. With noise that may have been luck: see ``recommend``."""
        best = self._search.best()
        return None if best is None else Best(self._point(best[0]), best[1])

    def recommend(self) -> Recommendation | None:
        """The tried point with the best predicted value: what to use in the end when measurements are noisy. None
        before the initial design is complete."""
        best = self._search.recommend()
        return None if best is None else Recommendation(self._point(best[0]), *best[1:])

    @property
    def trials(self) -> tuple[Any, np.ndarray]:
        """All points told, in their order, and their values (NaN for those that failed)."""
        X, y = self._search.trials()
        return self._points(X), y

    @property
    def pending(self) -> Any:
        """Points that were asked for and not yet told."""
        return self._points(self._search.pending())

    def forget_pending(self) -> None:
        """Give up on all pending points, for example after a restart."""
        self._search.forget_pending()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, whole or not at all: the file that ``wiski optimize`` reads and writes."""
        self._search.save(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Optimizer:
        """An optimizer from a file; it goes on to the last bit as the one that was saved."""
        search = cls.__new__(cls)
        search._search = _core.Optimizer.load(os.fspath(path))
        search._named = search.names != [f"x{i}" for i in range(len(search.names))]
        return search


def _dimension(name: str, entry: Any) -> tuple[str, float, float, bool, bool]:
    low, high, *how = entry
    unknown = set(how) - {"log", "int", "linear"}
    if unknown:
        raise WiskiError(f"{name}: {unknown.pop()!r} is not 'linear', 'log' or 'int'")
    return name, float(low), float(high), "log" in how, "int" in how
