"""A user's program, as type checkers see it: `./check --python` reads it with pyright, and tests run it.

Lines that are wrong say so to pyright; one that it no longer finds wrong is an error, too.
"""

import sys
from typing import TYPE_CHECKING

import numpy as np

import wiski

if sys.version_info >= (3, 11):
    from typing import assert_type
else:

    def assert_type(value, kind):
        return value


def regression() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, size=(60, 1))
    y = np.sin(X[:, 0])
    model = wiski.OnlineGPRegressor(kernel="matern52").fit(X, y)
    assert_type(model, wiski.OnlineGPRegressor)
    assert_type(model.partial_fit(X[:1], y[:1]), wiski.OnlineGPRegressor)
    assert_type(model.log_marginal_likelihood(), float)
    # A dict for one target, a list of them for several: which of both only a program knows.
    hyperparameters: dict[str, float] = model.hyperparameters_
    assert hyperparameters["noise"] > 0
    assert_type(model.n_seen_, float)
    mean, interval = model.predict_interval(X[:3], level=0.9)
    assert_type(mean, np.ndarray)
    assert (interval[:, 0] < interval[:, 1]).all()


def optimization() -> None:
    search = wiski.Optimizer({"x": (-2.0, 2.0), "kind": ["a", "b"]}, random_state=1)
    assert_type(search.names, list[str])
    for _ in range(8):
        (point,) = search.ask()
        search.tell([point], [point["x"] ** 2 + (point["kind"] == "b")])
    best = search.best
    if best is not None:
        assert_type(best.y, float)


def series() -> None:
    forecast = wiski.Forecaster().fit(np.sin(np.arange(100) / 5)).predict(3)
    assert_type(forecast, wiski.Forecast)
    assert_type(forecast.mean, np.ndarray)


def classes() -> None:
    X = np.linspace(-1, 1, 40)[:, None]
    model = wiski.OnlineGPClassifier().fit(X, X[:, 0] > 0)
    assert_type(model, wiski.OnlineGPClassifier)
    assert_type(model.predict_proba(X), np.ndarray)


if TYPE_CHECKING:
    wiski.OnlineGPRegressor(kernels="rbf")  # pyright: ignore[reportCallIssue]
    wiski.OnlineGPRegressor().sample_y([[0.0]], n_samples="two")  # pyright: ignore[reportArgumentType]
    wiski.OnlineGPRegressor().fitt([[0.0]], [0.0])  # pyright: ignore[reportAttributeAccessIssue]
    wiski.Optimizer({"x": (0, 1)}).ask(q="two")  # pyright: ignore[reportArgumentType]
    wiski.Optimizer({"x": (0, 1)}).best.y  # pyright: ignore[reportOptionalMemberAccess]
    wiski.Forecaster().predict(3, level="wide")  # pyright: ignore[reportArgumentType]
    wiski.load(3)  # pyright: ignore[reportArgumentType]

if __name__ == "__main__":
    regression()
    optimization()
    series()
    classes()
