"""Sufficient statistics: everything that rows say, as sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array, check_X_y

from wiski import _core
from wiski._errors import WiskiError

_POINTS = (32, 16, 10, 7)


class Stats:
    """What rows in a box say about a function on a grid: a few sums, whose size does not depend on how many rows
    there were.

    They can be gathered anywhere, in any order, pickled, and added up: the result is that of one pass over all rows.
    :meth:`OnlineGPRegressor.from_stats` makes a model of them.

    Parameters
    ----------
    bounds : sequence of (low, high)
        The interval of each column, one to four. Shards need the same bounds and grid.
    grid : int or sequence of int, default=None
        Grid points per axis. None is 32 for one axis, 16 for two, 10 for three, 7 for four.
    max_grid_points : int, default=16384
        Rows outside of the box make the grid grow, up to so many points.

    Examples
    --------
    >>> import numpy as np
    >>> from wiski import OnlineGPRegressor, Stats
    >>> X = np.linspace(0, 10, 400)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> shards = [Stats(bounds=[(0, 10)]).update(X[i::4], y[i::4]) for i in range(4)]
    >>> total = sum(shards)
    >>> total.count
    400.0
    >>> model = OnlineGPRegressor.from_stats(total)
    >>> bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.01)
    True
    """

    def __init__(self, bounds: Any, grid: Any = None, *, max_grid_points: int = 16384) -> None:
        bounds = [(float(lo), float(hi)) for lo, hi in bounds]
        if grid is None:
            grid = _POINTS[min(max(len(bounds), 1), 4) - 1]
        self._sums = _core.Stats(bounds, [int(g) for g in np.atleast_1d(grid)], int(max_grid_points))

    def update(self, X: Any, y: Any, noise: Any = None) -> Stats:
        """Add rows, all of them or none. ``noise`` is the noise variance of each, relative to the model's (or
        absolute, for a model with ``known_noise``)."""
        self._sums.learn(*_checked(X, y, noise))
        return self

    def forget(self, X: Any, y: Any, noise: Any = None) -> Stats:
        """Take away rows that were added before, exactly."""
        self._sums.learn(*_checked(X, y, noise), True)
        return self

    def decay(self, factor: float) -> Stats:
        """Let all rows so far count ``factor`` times as much (0 < factor <= 1)."""
        self._sums.decay(factor)
        return self

    def __add__(self, other: Any) -> Stats:
        """The statistics of the rows of both."""
        if not isinstance(other, Stats):
            return NotImplemented
        total = Stats.__new__(Stats)
        total._sums = self._sums.merged(other._sums)
        return total

    def __radd__(self, other: Any) -> Stats:
        # What sum() starts from.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    @property
    def count(self) -> float:
        """The number of rows, or the sum of their weights after ``decay``."""
        return self._sums.count

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The interval of each column."""
        return self._sums.bounds

    @property
    def grid(self) -> list[int]:
        """The number of grid points on each axis, as far as the grid has grown."""
        return self._sums.grid

    def __repr__(self) -> str:
        return f"Stats(bounds={self.bounds}, grid={self.grid}, count={self.count:g})"


def _checked(X: Any, y: Any, noise: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    X, y = check_X_y(X, y, dtype=np.float64, y_numeric=True)
    if noise is not None:
        noise = check_array(noise, ensure_2d=False, dtype=np.float64)
        if noise.shape != y.shape:
            raise WiskiError(f"noise has the shape {noise.shape} where {y.shape} is needed")
    return X, np.asarray(y, dtype=np.float64), noise
