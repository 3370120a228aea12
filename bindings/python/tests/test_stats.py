"""Statistics are gathered anywhere and added up."""

import pickle
import runpy

import numpy as np
import pytest

import wiski
from wiski import OnlineGPRegressor, Stats

BOX = [(100, 300), (-0.01, 0.01)]
PLAIN = {"schedule": "off", "initial": {"lengthscale": [50.0, 0.005], "noise": 0.05}}


def test_any_partition_is_one_pass(waves):
    X, y = waves
    whole = Stats(BOX).update(X, y)
    parts = [pickle.loads(pickle.dumps(Stats(BOX).update(X[i::3], y[i::3]))) for i in (2, 0, 1)]
    total = sum(parts)
    assert total.count == whole.count == 400 and total.bounds == whole.bounds
    a = OnlineGPRegressor.from_stats(whole, **PLAIN).predict(X, return_std=True)
    b = OnlineGPRegressor.from_stats(total, **PLAIN).predict(X, return_std=True)
    # Sums in another order: rounding, amplified by the condition of the posterior.
    np.testing.assert_allclose(b, a, rtol=1e-8)


def test_equal_to_learning_rows(waves):
    X, y = waves
    parameters = {**PLAIN, "bounds": BOX, "warm_up": 400}
    rows = OnlineGPRegressor(**parameters).partial_fit(X, y)
    stats = OnlineGPRegressor.from_stats(Stats(BOX).update(X, y), **PLAIN)
    np.testing.assert_allclose(
        stats.predict(X, return_std=True), rows.predict(X, return_std=True), rtol=1e-8
    )
    assert stats.log_marginal_likelihood() == pytest.approx(rows.log_marginal_likelihood(), rel=1e-8)


def test_hyperparameters_are_fitted_and_learning_goes_on(waves):
    X, y = waves
    model = OnlineGPRegressor.from_stats(Stats(BOX).update(X[:300], y[:300]))
    assert model.score(X[300:], y[300:]) > 0.99
    model.partial_fit(X[300:], y[300:])
    assert model.n_seen_ == 400
    model.forget(X[:10], y[:10])
    assert model.n_seen_ == 390


def test_forget_decay_and_noise(waves):
    X, y = waves
    stats = Stats(BOX).update(X, y).forget(X[300:], y[300:])
    a = OnlineGPRegressor.from_stats(stats, **PLAIN).predict(X)
    b = OnlineGPRegressor.from_stats(Stats(BOX).update(X[:300], y[:300]), **PLAIN).predict(X)
    np.testing.assert_allclose(a, b, rtol=1e-7)
    assert stats.decay(0.5).count == 150
    noisy = Stats(BOX).update(X, y, noise=np.full(400, 0.09))
    model = OnlineGPRegressor.from_stats(noisy, known_noise=True)
    assert model.score(X, y) > 0.99
    # Rows outside make the grid grow.
    assert Stats([(0, 1)], 8).update([[3.0]], [1.0]).grid[0] > 8


def test_rejections(waves):
    X, y = waves
    with pytest.raises(wiski.WiskiError, match="bounds"):
        Stats(BOX).update(X, y) + Stats([(0, 1), (0, 1)])
    with pytest.raises(wiski.WiskiError, match="step"):
        Stats(BOX, 10) + Stats(BOX, 11)
    with pytest.raises(TypeError):
        Stats(BOX) + 3
    with pytest.raises(wiski.WiskiError, match="column 0"):
        Stats([(1, 0)])
    with pytest.raises(wiski.WiskiError, match="1 to 4 axes"):
        Stats([(0, 1)] * 5)
    with pytest.raises(wiski.WiskiError, match="noise has the shape"):
        Stats(BOX).update(X, y, noise=[1.0])
    with pytest.raises(wiski.WiskiError, match="a row of X has 1 values where 2"):
        Stats(BOX).update(X[:, :1], y)
    stats = Stats(BOX, max_grid_points=300).update(X, y)
    with pytest.raises(wiski.OffGridError):
        stats.update([[200.0, 0.0], [1e9, 0.0]], [0.0, 0.0])
    assert stats.count == 400


def test_example_with_dask(project):
    example = runpy.run_path(str(project / "bindings" / "python" / "examples" / "dask_shards.py"))
    one_pass, shards = example["main"](rows=20_000, workers=2)
    assert shards.n_seen_ == 20_000
    X = np.random.default_rng(1).uniform(size=(200, 2)) * [10, 2]
    np.testing.assert_allclose(
        shards.predict(X, return_std=True), one_pass.predict(X, return_std=True), rtol=1e-6
    )
