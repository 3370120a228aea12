"""Frames of all kinds go in, and nothing is copied that need not be."""

import io
import subprocess

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


@pytest.mark.parametrize("make", [lambda f: f, lambda f: f.astype({"self": "category"}), pl.from_pandas])
def test_columns_of_text(make, tmp_path, command):
    rng = np.random.default_rng(0)
    # A column may have the name of a parameter of pandas.
    kinds = rng.choice(["red", "green", "blue"], 400)
    X = pd.DataFrame({"x": rng.uniform(0, 1, 400), "self": kinds})
    y = np.sin(6 * X["x"].to_numpy()) + 2.0 * (kinds == "red") + 0.05 * rng.normal(size=400)
    model = OnlineGPRegressor().fit(make(X), y)
    assert model.score(make(X), y) > 0.98
    # What is missing or unknown is a level of its own, of which nothing is known.
    other = make(pd.DataFrame({"x": [0.5, 0.5, 0.5], "self": ["red", "violet", None]}))
    mean, std = model.predict(other, return_std=True)
    assert abs(mean[0] - np.sin(3.0) - 2.0) < 0.2 and std[1] > 3 * std[0] and mean[1] == mean[2]
    with pytest.raises(ValueError, match="this column is text"):
        model.predict(np.zeros((2, 2)))
    # The texts are kept in files, by which the command line reads them, too.
    model.save(tmp_path / "model.wiski")
    np.testing.assert_array_equal(OnlineGPRegressor.load(tmp_path / "model.wiski").predict(make(X)), model.predict(make(X)))
    X.to_csv(tmp_path / "rows.csv", index=False)
    done = subprocess.run(
        [command, "predict", tmp_path / "model.wiski", tmp_path / "rows.csv"], capture_output=True, text=True, check=True
    )
    said = pd.read_csv(io.StringIO(done.stdout))
    np.testing.assert_allclose(said[[c for c in said.columns if "mean" in c][0]], model.predict(make(X)), rtol=1e-9)
    # Rows that come later may bring no new level, but are learned.
    model.partial_fit(make(X[:50]), y[:50])
    assert model.n_seen_ == 450
