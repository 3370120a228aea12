"""Pictures of models, with matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from wiski._errors import WiskiError

# Half the width of a 95 % interval, in standard deviations.
_Z95 = 1.959963984540054


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.gca()


def _rows(model: Any, X: Any) -> Any:
    """Rows with the names that the model knows, so that it does not miss them."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=names)


def _names(model: Any) -> list[str]:
    names = getattr(model, "feature_names_in_", None)
    return [f"x{i}" for i in range(model.n_features_in_)] if names is None else [str(n) for n in names]


def band(
    model: Any,
    low: float,
    high: float,
    *,
    column: int = 0,
    at: Any = None,
    X: Any = None,
    y: Any = None,
    points: int = 200,
    include_noise: bool = True,
    ax: Any = None,
) -> Any:
    """Draw the mean along one column with its 95 % band.

    Parameters
    ----------
    model : OnlineGPRegressor
    low, high : float
        Where the picture begins and ends.
    column : int, default=0
        The column along which to go.
    at : array-like, default=None
        A row that holds the other columns fixed; needed if there are any.
    X, y : array-like, default=None
        Data to draw as dots.
    points : int, default=200
        The number of predictions.
    include_noise : bool, default=True
        Whether the band is that of observations or of the function.
    ax : matplotlib Axes, default=None
        Where to draw; None is the current axes.

    Returns
    -------
    ax : matplotlib Axes
    """
    width = model.n_features_in_
    if at is None:
        if width != 1:
            raise WiskiError(f"at: the model has {width} columns, so a row must say where the others are")
        at = [0.0]
    rows = np.tile(np.asarray(at, dtype=np.float64), (points, 1))
    if rows.shape[1] != width:
        raise WiskiError(f"at has {rows.shape[1]} values where {width} are needed")
    if not 0 <= column < width:
        raise WiskiError(f"column: there is no column {column} of {width}")
    rows[:, column] = np.linspace(low, high, points)
    mean, std = model.predict(_rows(model, rows), return_std=True, include_noise=include_noise)
    ax = _axes(ax)
    ax.fill_between(rows[:, column], mean - _Z95 * std, mean + _Z95 * std, alpha=0.25, linewidth=0, label="95 %")
    ax.plot(rows[:, column], mean, label="mean")
    if X is not None and y is not None:
        ax.plot(np.asarray(X)[:, column], y, ".", color="0.3", markersize=3, label="data")
    ax.set_xlabel(_names(model)[column])
    ax.set_ylabel("y")
    ax.legend(frameon=False)
    return ax


def surface(
    model: Any,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    *,
    columns: tuple[int, int] = (0, 1),
    at: Any = None,
    show: str = "mean",
    points: int = 60,
    ax: Any = None,
) -> Any:
    """Draw a map of the mean or of the uncertainty over two columns.

    Parameters
    ----------
    model : OnlineGPRegressor or OnlineGPClassifier
        Of a classifier, the probability of its last class is drawn.
    x_range, y_range : (low, high)
        The part of each column to draw.
    columns : (int, int), default=(0, 1)
        Which columns.
    at : array-like, default=None
        A row that holds the other columns fixed; needed if there are any.
    show : {"mean", "std"}, default="mean"
        What to draw; the deviation is that of the function.
    points : int, default=60
        Predictions along each axis.
    ax : matplotlib Axes, default=None
        Where to draw; None is the current axes.

    Returns
    -------
    ax : matplotlib Axes
    """
    width = model.n_features_in_
    if at is None:
        if width != 2:
            raise WiskiError(f"at: the model has {width} columns, so a row must say where the others are")
        at = [0.0, 0.0]
    if show not in ("mean", "std"):
        raise WiskiError(f"show: {show!r} is not 'mean' or 'std'")
    first, second = np.meshgrid(np.linspace(*x_range, points), np.linspace(*y_range, points))
    rows = np.tile(np.asarray(at, dtype=np.float64), (points * points, 1))
    if rows.shape[1] != width:
        raise WiskiError(f"at has {rows.shape[1]} values where {width} are needed")
    rows[:, columns[0]], rows[:, columns[1]] = first.ravel(), second.ravel()
    if hasattr(model, "predict_proba"):
        values, label = model.predict_proba(_rows(model, rows))[:, -1], f"P({model.classes_[-1]})"
    else:
        mean, std = model.predict(_rows(model, rows), return_std=True, include_noise=False)
        values, label = (mean, "mean") if show == "mean" else (std, "standard deviation")
    ax = _axes(ax)
    image = ax.pcolormesh(first, second, values.reshape(points, points), shading="nearest")
    ax.figure.colorbar(image, ax=ax, label=label)
    names = _names(model)
    ax.set_xlabel(names[columns[0]])
    ax.set_ylabel(names[columns[1]])
    return ax
