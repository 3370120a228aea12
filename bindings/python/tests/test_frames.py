"""Frames of all kinds go in, and nothing is copied that need not be."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from wiski import OnlineGPRegressor, Stats


@pytest.fixture
def frame(waves):
    X, y = waves
    return pd.DataFrame(X, columns=["speed", "angle"]), pd.Series(y, name="power")


@pytest.mark.parametrize("make", [lambda f: f, pl.from_pandas, lambda f: pa.Table.from_pandas(f, preserve_index=False)])
def test_all_frames_are_the_same(frame, make):
    X, y = frame
    plain = OnlineGPRegressor().fit(X.to_numpy(), y.to_numpy())
    model = OnlineGPRegressor().fit(make(X), make(y.to_frame())["power"])
    assert list(model.feature_names_in_) == ["speed", "angle"]
    np.testing.assert_array_equal(model.predict(make(X)), plain.predict(X.to_numpy()))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(make(X[["angle", "speed"]]))


def test_any_layout_of_memory(waves):
    X, y = waves
    model = OnlineGPRegressor().partial_fit(X, y)
    wide = np.zeros((400, 6))
    wide[:, 1::3] = X
    backwards = X[::-1].copy()[::-1]
    for layout in (np.asfortranarray(X), wide[:, 1::3], backwards):
        other = OnlineGPRegressor().partial_fit(layout, y)
        np.testing.assert_array_equal(other.predict(layout), model.predict(X))
    np.testing.assert_allclose(OnlineGPRegressor().fit(X.astype(np.float32), y).predict(X), model.predict(X), atol=0.2)


def test_rows_are_not_copied(waves):
    """A frame's columns lie one after the other; neither they nor plain rows are gathered as a whole."""
    X, y = waves
    model = OnlineGPRegressor().partial_fit(X, y)
    for rows in (X, np.asfortranarray(X), X[:, ::-1][:, ::-1]):
        assert model._rows(rows) is rows


def test_lists_and_integers():
    model = OnlineGPRegressor().fit([[1], [2], [3], [4]], [1, 4, 9, 16])
    assert model.predict([[2]]).shape == (1,)
    assert Stats([(0, 5)]).update([[1], [2]], [1, 4]).count == 2


def test_names_without_names_warn(frame):
    X, y = frame
    model = OnlineGPRegressor().fit(X, y)
    with pytest.warns(UserWarning, match="feature names"):
        model.predict(X.to_numpy())
