"""Several targets: as many models, in one estimator and one file."""

import pickle

import numpy as np
import pandas as pd
import pytest

import wiski
from wiski import OnlineGPRegressor

FIXED = {"kernel": "rbf", "grid": 12, "bounds": [(90, 310), (-0.011, 0.011)]}


@pytest.fixture
def targets(waves):
    X, y = waves
    return X, np.column_stack([y, np.cos(X[:, 0] / 50), 100.0 - y])


def test_each_target_is_as_if_alone(targets):
    X, Y = targets
    for parameters in ({}, FIXED, {"features": "additive:2", "grid": 10, "rank_budget": 64}):
        model = OnlineGPRegressor(**parameters).fit(X, Y)
        alone = [OnlineGPRegressor(**parameters).fit(X, y) for y in Y.T]
        mean, std = model.predict(X, return_std=True)
        assert mean.shape == std.shape == Y.shape
        for k, one in enumerate(alone):
            own_mean, own_std = one.predict(X, return_std=True)
            np.testing.assert_array_equal(mean[:, k], own_mean)
            np.testing.assert_array_equal(std[:, k], own_std)
            assert model.hyperparameters_[k] == one.hyperparameters_
            assert model.metrics_[k] == one.metrics_
        np.testing.assert_array_equal(model.predict(X), mean)
        assert model.log_marginal_likelihood() == pytest.approx(sum(one.log_marginal_likelihood() for one in alone))
        assert model.score(X, Y) == pytest.approx(np.mean([one.score(X, y) for one, y in zip(alone, Y.T)]))


def test_shapes_are_those_of_scikit_learn(targets):
    X, Y = targets
    model, alone = OnlineGPRegressor(**FIXED).fit(X, Y), OnlineGPRegressor(**FIXED).fit(X, Y[:, 1])
    mean, covariance = model.predict(X[:7], return_cov=True)
    assert mean.shape == (7, 3) and covariance.shape == (7, 7, 3)
    np.testing.assert_array_equal(covariance[:, :, 1], alone.predict(X[:7], return_cov=True)[1])
    for level, shape in ((0.9, (7, 3, 2)), ([0.5, 0.9], (7, 3, 2, 2))):
        _, intervals = model.predict_interval(X[:7], level=level)
        assert intervals.shape == shape
        np.testing.assert_array_equal(intervals[:, 1], alone.predict_interval(X[:7], level=level)[1])
    quantiles = model.predict_quantiles(X[:7], (0.1, 0.5, 0.9))
    assert quantiles.shape == (7, 3, 3)
    np.testing.assert_array_equal(quantiles[:, 1], alone.predict_quantiles(X[:7], (0.1, 0.5, 0.9)))
    drawn = model.sample_y(X[:7], 5)
    assert drawn.shape == (7, 3, 5)
    # 100 - y is the mirror of y: with the same draws its functions would be, too.
    assert np.abs((drawn[:, 0] - mean[:, :1]) + (drawn[:, 2] - mean[:, 2:])).max() > 1e-6
    one = OnlineGPRegressor(**FIXED).fit(X, Y[:, :1])
    assert one.predict(X).shape == (400, 1)
    np.testing.assert_array_equal(one.predict(X)[:, 0], OnlineGPRegressor(**FIXED).fit(X, Y[:, 0]).predict(X))


def test_streams_files_and_copies(targets, tmp_path):
    X, Y = targets
    frame = pd.DataFrame(Y, columns=["level", "phase", "rest"])
    model = OnlineGPRegressor()
    for first in range(0, 300, 50):
        model.partial_fit(X[first : first + 50], frame[first : first + 50])
    assert model.n_seen_ == 300 and model.is_warm_ and model.predict(X).shape == (400, 3)
    model.save(tmp_path / "several.wiski")
    copies = [wiski.load(tmp_path / "several.wiski"), pickle.loads(pickle.dumps(model))]
    model.partial_fit(X[300:], Y[300:])
    for copy in copies:
        copy.partial_fit(X[300:], Y[300:])
        np.testing.assert_array_equal(copy.predict(X), model.predict(X))
        assert [one.target for one in copy.model_.models] == ["level", "phase", "rest"]
    with pytest.raises(ValueError, match="targets"):
        wiski._core.Regressor.load(tmp_path / "several.wiski")


def test_rows_are_forgotten_merged_and_supposed_for_all_targets(targets):
    X, Y = targets
    model = OnlineGPRegressor(schedule="off", tracking=False, **FIXED).fit(X, Y)
    before = model.predict(X)
    after = model.condition(X[:5], Y[:5] + 3)
    np.testing.assert_array_equal(model.predict(X), before)
    assert (np.abs(after.predict(X) - before).max(axis=0) > 0.1).all()
    model.partial_fit(X[:5], Y[:5] + 3)
    model.forget(X[:5], Y[:5] + 3)
    np.testing.assert_allclose(model.predict(X), before, rtol=1e-6, atol=1e-8)
    shard = model.shard().partial_fit(X[:5], Y[:5] + 3)
    model.merge(shard)
    assert model.n_seen_ == 405 and (np.abs(model.predict(X) - before).max(axis=0) > 0.1).all()
    alone = OnlineGPRegressor(schedule="off", tracking=False, **FIXED).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="same targets"):
        model.merge(alone)


def test_known_noise_weights_and_numbers_of_targets(targets):
    X, Y = targets
    noise = np.full(400, 0.04)
    model = OnlineGPRegressor(known_noise=True, **FIXED).fit(X, Y, noise=noise)
    function = model.predict(X[:4], return_std=True)[1]
    observed = model.predict(X[:4], return_std=True, noise=noise[:4])[1]
    np.testing.assert_allclose(observed**2, function**2 + 0.04)
    covariance = model.predict(X[:4], return_cov=True)[1]
    added = model.predict(X[:4], return_cov=True, noise=noise[:4])[1] - covariance
    np.testing.assert_allclose(added, np.repeat(0.04 * np.eye(4)[:, :, None], 3, axis=2), atol=1e-12)
    weight = np.where(np.arange(400) < 50, 0.0, 1.0)
    weighted = OnlineGPRegressor(**FIXED).fit(X, Y, sample_weight=weight)
    np.testing.assert_array_equal(weighted.predict(X), OnlineGPRegressor(**FIXED).fit(X[50:], Y[50:]).predict(X))
    model = OnlineGPRegressor(**FIXED).fit(X, Y)
    for wrong in (Y[:, :2], Y[:, 0]):
        with pytest.raises(ValueError, match="3 for each row"):
            model.partial_fit(X, wrong)
    with pytest.raises(ValueError, match="1 for each row"):
        OnlineGPRegressor(**FIXED).fit(X, Y[:, 0]).partial_fit(X, Y)
    with pytest.raises(ValueError, match="minimum of 1"):
        OnlineGPRegressor().fit(X, Y[:, :0])
    with pytest.raises(ValueError, match="NaN"):
        OnlineGPRegressor().fit(X, np.where(Y > 0, np.nan, Y))
