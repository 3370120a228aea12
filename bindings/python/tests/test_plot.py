"""Pictures hold what the model says."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pytest  # noqa: E402

import wiski  # noqa: E402
from wiski import OnlineGPClassifier, OnlineGPRegressor, plot  # noqa: E402


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_band(waves):
    X, y = waves
    model = OnlineGPRegressor().fit(X[:, :1], y)
    ax = plot.band(model, 100, 300, X=X, y=y, points=50)
    x, mean = ax.lines[0].get_data()
    np.testing.assert_allclose(mean, model.predict(x[:, None]))
    lower = ax.collections[0].get_paths()[0].vertices[:, 1].min()
    expected, std = model.predict(x[:, None], return_std=True)
    assert lower == pytest.approx((expected - 1.96 * std).min(), rel=1e-4)
    assert len(ax.lines[1].get_xdata()) == 400


def test_map(waves):
    X, y = waves
    model = OnlineGPRegressor().fit(pd.DataFrame(X, columns=["speed", "angle"]), y)
    _, (left, right) = plt.subplots(1, 2)
    plot.surface(model, (100, 300), (-0.01, 0.01), points=20, ax=left)
    values = left.collections[0].get_array()
    assert values.size == 400 and values.max() > 55 and left.get_xlabel() == "speed"
    plot.surface(model, (100, 300), (-0.01, 0.01), points=20, show="std", ax=right)
    assert 0 < right.collections[0].get_array().max() < 3
    ax = plot.band(model, 100, 300, at=[0, 0.005], ax=plt.figure().gca())
    assert ax.get_xlabel() == "speed"
    kinds = OnlineGPClassifier().fit(X, np.where(y > 50, "high", "low"))
    ax = plot.surface(kinds, (100, 300), (-0.01, 0.01), points=10, ax=plt.figure().gca())
    assert 0 <= ax.collections[0].get_array().min() <= ax.collections[0].get_array().max() <= 1


def test_rejections(waves):
    X, y = waves
    model = OnlineGPRegressor().fit(X, y)
    with pytest.raises(wiski.WiskiError, match="2 columns"):
        plot.band(model, 0, 1)
    with pytest.raises(wiski.WiskiError, match="at has 3 values"):
        plot.band(model, 0, 1, at=[1, 2, 3])
    with pytest.raises(wiski.WiskiError, match="no column 2"):
        plot.band(model, 0, 1, at=[1, 2], column=2)
    with pytest.raises(wiski.WiskiError, match="show"):
        plot.surface(model, (0, 1), (0, 1), show="median")
