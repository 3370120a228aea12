"""Online Gaussian processes in constant time and memory.

A model learns from a stream, one row at a time, and predicts with uncertainty. Time and memory per row do not
depend on how many rows it has seen.

>>> import numpy as np, wiski
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(0, 10, size=(500, 1))
>>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=500)
>>> model = wiski.OnlineGPRegressor().fit(X, y)
>>> mean, std = model.predict([[2.0]], return_std=True)
>>> bool(abs(mean[0] - np.sin(2.0)) < 0.1), bool(0.05 < std[0] < 0.2)
(True, True)

``OnlineGPRegressor`` and ``OnlineGPClassifier`` are scikit-learn estimators; ``wiski.river`` has models for river,
``wiski.sktime`` a forecaster for sktime, ``wiski.botorch`` a model for BoTorch, ``wiski.optuna`` a sampler for Optuna, ``wiski.plot`` pictures and ``wiski.cluster`` fits
on Dask, Spark, Ray and DataFusion. Each of these
imports the library it is for, and nothing else here does. ``Forecaster`` says what comes next in a series; ``Client``
talks to ``wiski serve``.
"""

from wiski._classifier import OnlineGPClassifier
from wiski._client import Client, RemoteModel, ServerError
from wiski._core import __version__
from wiski._errors import (
    FileError,
    InternalError,
    NotFittedError,
    OffGridError,
    UnsupportedError,
    WiskiError,
)
from wiski._files import load
from wiski._forecaster import Forecast, Forecaster
from wiski._optimizer import Optimizer
from wiski._regressor import OnlineGPRegressor
from wiski._stats import Stats

__all__ = [
    "Client",
    "FileError",
    "Forecast",
    "Forecaster",
    "InternalError",
    "NotFittedError",
    "OffGridError",
    "OnlineGPClassifier",
    "OnlineGPRegressor",
    "Optimizer",
    "RemoteModel",
    "ServerError",
    "Stats",
    "UnsupportedError",
    "WiskiError",
    "__version__",
    "load",
]
