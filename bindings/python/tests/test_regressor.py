"""What the regressor says and what becomes of rows."""

import time

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import wiski
from wiski import OnlineGPRegressor


def test_equal_to_an_exact_process(waves):
    """With hyperparameters given, predictions are those of scikit-learn's exact process on the same scaled data."""
    X, y = waves
    bounds = [(100, 300), (-0.01, 0.01)]
    # The model scales targets by what it knew at the end of its warm-up, 50 rows in the order of fit.
    first = np.random.default_rng(0).permutation(len(X))[:50]
    shift, scale = y[first].mean(), y[first].std()
    # Start values are in the units of the data: half of the first interval, and the second.
    initial = {"lengthscale": [50.0, 0.01], "outputscale": 2.0 * scale**2, "noise": 0.05 * scale**2}
    model = OnlineGPRegressor(grid=64, bounds=bounds, schedule="off", initial=initial).fit(X, y)
    h = np.column_stack([(x - (lo + hi) / 2) / ((hi - lo) / 2) for x, (lo, hi) in zip(X.T, bounds)])
    kernel = ConstantKernel(2.0, "fixed") * RBF([0.5, 1.0], "fixed")
    exact = GaussianProcessRegressor(kernel, alpha=0.05).fit(h, (y - shift) / scale)
    mean, cov = exact.predict(h[:40], return_cov=True)
    ours, our_cov = model.predict(X[:40], return_cov=True, include_noise=False)
    # Cubic interpolation between 64 points of an axis errs by about (spacing/lengthscale)^3/10 = 2e-5 of the scale.
    np.testing.assert_allclose(ours, shift + scale * mean, atol=1e-4 * scale)
    np.testing.assert_allclose(our_cov, scale**2 * cov, atol=1e-4 * scale**2)
    # sklearn's alpha is our noise, in the evidence too; ours is in the user's units.
    evidence = exact.log_marginal_likelihood_value_ - len(y) * np.log(scale)
    assert model.log_marginal_likelihood() == pytest.approx(evidence, abs=0.05)


def test_deviations_fit_the_covariance(waves):
    X, y = waves
    model = OnlineGPRegressor().fit(X, y)
    for include_noise in (True, False):
        mean, std = model.predict(X[:100], return_std=True, include_noise=include_noise)
        joint, cov = model.predict(X[:100], return_cov=True, include_noise=include_noise)
        np.testing.assert_allclose(joint, mean, rtol=1e-9)
        # Variances come by different routes from the same posterior.
        np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
        assert np.linalg.eigvalsh(cov).min() > -1e-9 * cov.max()
    observed = model.predict(X[:1], return_std=True)[1]
    latent = model.predict(X[:1], return_std=True, include_noise=False)[1]
    noise = np.sqrt(observed**2 - latent**2)
    assert 0.25 < noise[0] < 0.35  # the data's is 0.3
    with pytest.raises(wiski.WiskiError, match="not both"):
        model.predict(X, return_std=True, return_cov=True)


def test_many_rows_and_one_row_agree(waves):
    X, y = waves
    model = OnlineGPRegressor().fit(X, y)
    mean, std = model.predict(X, return_std=True)
    for i in (0, 17, 399):
        one, dev = model.predict(X[i : i + 1], return_std=True)
        np.testing.assert_allclose([one[0], dev[0]], [mean[i], std[i]], rtol=1e-9)


def test_functions_drawn_have_the_posterior(waves):
    X, y = waves
    model = OnlineGPRegressor().fit(X, y)
    mean, cov = model.predict(X[:3], return_cov=True, include_noise=False)
    samples = model.sample_y(X[:3], n_samples=4000, random_state=1)
    assert samples.shape == (3, 4000)
    std = np.sqrt(np.diag(cov))
    # Four standard errors of a mean and of a covariance.
    np.testing.assert_array_less(np.abs(samples.mean(axis=1) - mean), 4 * std / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(samples), cov, atol=4 * std.max() ** 2 * np.sqrt(2 / 4000))
    np.testing.assert_array_equal(samples, model.sample_y(X[:3], n_samples=4000, random_state=1))
    assert not np.array_equal(samples, model.sample_y(X[:3], n_samples=4000, random_state=2))


def test_stream_in_parts_is_the_stream(waves):
    X, y = waves
    whole = OnlineGPRegressor().partial_fit(X, y)
    parts = OnlineGPRegressor()
    for i in range(0, 400, 7):
        parts.partial_fit(X[i : i + 7], y[i : i + 7])
    np.testing.assert_array_equal(whole.predict(X), parts.predict(X))
    assert whole.metrics_ == parts.metrics_ and whole.metrics_["rows"] == 350
    assert 0.25 < whole.metrics_["rmse"] < 0.5 and whole.metrics_["coverage95"] > 0.88


def test_fit_does_not_depend_on_the_order():
    """A series in the order of its only column: the first rows alone would say little."""
    X = np.arange(2000.0)[:, None]
    y = np.sin(X[:, 0] / 200)
    model = OnlineGPRegressor().fit(X, y)
    assert np.abs(model.predict(X) - y).max() < 0.05
    assert OnlineGPRegressor().fit(X, y).fit(X[:100], y[:100]).n_seen_ == 100


def test_warm_up(waves):
    X, y = waves
    model = OnlineGPRegressor(warm_up=30).partial_fit(X[:20], y[:20])
    assert not model.is_warm_ and model.n_seen_ == 20
    mean, std = model.predict(X[:2], return_std=True)
    np.testing.assert_allclose(mean, y[:20].mean())
    np.testing.assert_allclose(std, y[:20].std())
    with pytest.raises(wiski.UnsupportedError, match="warm-up"):
        model.log_marginal_likelihood()
    assert model.finish_warm_up().is_warm_
    assert not np.allclose(model.predict(X[:1]), mean[:1])


def test_forget_is_exact(waves):
    X, y = waves
    settings = {"schedule": "off", "bounds": [(100, 300), (-0.01, 0.01)], "warm_up": 100}
    model = OnlineGPRegressor(**settings).partial_fit(X[:300], y[:300])
    before = model.predict(X, return_std=True)
    model.partial_fit(X[300:], y[300:])
    assert np.abs(model.predict(X) - before[0]).max() > 1e-3
    model.forget(X[300:], y[300:])
    # A hundred rank-one updates and as many downdates.
    np.testing.assert_allclose(model.predict(X, return_std=True), before, rtol=1e-7)
    assert model.n_seen_ == 300
    with pytest.raises(wiski.WiskiError):
        model.forget(X[:1], [1e9])
    np.testing.assert_allclose(model.predict(X, return_std=True), before, rtol=1e-7)


def test_shards_merge_exactly(waves):
    X, y = waves
    start = OnlineGPRegressor(schedule="off").partial_fit(X[:100], y[:100])
    whole = OnlineGPRegressor(schedule="off").partial_fit(X, y)
    shards = [start.shard().partial_fit(X[i:400:3], y[i:400:3]) for i in (100, 101, 102)]
    for shard in shards:
        start.merge(shard)
    assert start.n_seen_ == 400
    np.testing.assert_allclose(start.predict(X, return_std=True), whole.predict(X, return_std=True), rtol=1e-7)
    other = OnlineGPRegressor(bounds=[(0, 1), (0, 1)], schedule="off").partial_fit(np.random.rand(60, 2), y[:60])
    with pytest.raises(wiski.UnsupportedError, match="differently"):
        start.merge(other)


def test_decay_weighs_down(waves):
    X, y = waves
    model = OnlineGPRegressor(schedule="off").partial_fit(X, y)
    _, before = model.predict(X[:5], return_std=True, include_noise=False)
    model.decay(0.25)
    _, after = model.predict(X[:5], return_std=True, include_noise=False)
    assert model.n_seen_ == 100
    assert np.all(after > 1.2 * before)
    with pytest.raises(wiski.WiskiError, match="decay factor"):
        model.decay(2.0)


def test_old_rows_fade():
    X = np.tile(np.linspace(0, 1, 50), 20)[:, None]
    y = np.sin(6 * X[:, 0]) + np.where(np.arange(1000) < 500, 0.0, 1.0)
    now = np.sin(3.0) + 1
    model = OnlineGPRegressor(half_life=50).partial_fit(X, y)
    assert abs(model.predict([[0.5]])[0] - now) < 0.05
    # What is predicted for the next row follows in any case; the model of all rows does not.
    never = OnlineGPRegressor(tracking=False).partial_fit(X, y)
    assert abs(never.predict([[0.5]])[0] - (now - 0.5)) < 0.05
    timed = OnlineGPRegressor(half_life=50, timed=True).partial_fit(X, y, time=np.arange(1000.0))
    assert abs(timed.predict([[0.5]])[0] - now) < 0.05
    with pytest.raises(wiski.WiskiError, match="every row needs one"):
        OnlineGPRegressor(half_life=50, timed=True).partial_fit(X, y)


def test_fantasies_leave_the_model_alone(waves):
    X, y = waves
    model = OnlineGPRegressor().fit(X, y)
    before = model.predict(X, return_std=True)
    after = model.condition(X[:20], y[:20] + 5)
    np.testing.assert_array_equal(model.predict(X, return_std=True), before)
    assert after.n_seen_ == 420 and model.n_seen_ == 400
    assert after.hyperparameters_ == model.hyperparameters_
    # The same by the formula for conditioning a Gaussian.
    Z = np.vstack([X[:20], X[200:210]])
    mean, cov = model.predict(Z, return_cov=True, include_noise=False)
    noise = model.predict(X[:1], return_std=True)[1][0] ** 2 - cov[0, 0]
    gain = np.linalg.solve(cov[:20, :20] + noise * np.eye(20), cov[:20, 20:]).T
    np.testing.assert_allclose(after.predict(Z[20:]), mean[20:] + gain @ (y[:20] + 5 - mean[:20]), rtol=1e-7)


def test_known_noise():
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 1, (300, 1))
    variance = np.where(X[:, 0] < 0.5, 0.0001, 1.0)
    y = np.sin(6 * X[:, 0]) + np.sqrt(variance) * rng.normal(size=300)
    model = OnlineGPRegressor(known_noise=True).fit(X, y, noise=variance)
    _, std = model.predict([[0.25], [0.75]], return_std=True)
    assert std[0] < 0.1 * std[1]
    # An observation there has the noise that it is known to have, if that is said; the function has none.
    rows, noise = [[0.25], [0.75]], np.array([0.0001, 1.0])
    _, observed = model.predict(rows, return_std=True, noise=noise)
    np.testing.assert_allclose(observed**2, std**2 + noise, rtol=1e-12)
    _, covariance = model.predict(rows, return_cov=True, noise=noise)
    np.testing.assert_allclose(np.diag(covariance), observed**2, rtol=1e-9)
    _, latent = model.predict(rows, return_std=True, include_noise=False)
    np.testing.assert_array_equal(latent, std)
    with pytest.raises(wiski.WiskiError, match="must be positive"):
        model.predict(rows, return_std=True, noise=[0.0, 1.0])
    model.forget(X[:1], y[:1], noise=variance[:1])
    assert model.n_seen_ == 299
    with pytest.raises(wiski.WiskiError, match="this model learns its noise"):
        OnlineGPRegressor().fit(X, y, noise=variance)
    with pytest.raises(wiski.WiskiError, match="this model learns its noise"):
        OnlineGPRegressor().fit(X, y).predict(X[:1], return_std=True, noise=[1.0])


def test_many_columns_and_special_ones():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 24, 700), rng.integers(0, 3, 700), rng.normal(size=(700, 2))])
    y = np.sin(2 * np.pi * X[:, 0] / 24) + 0.5 * (X[:, 1] == 1) + 0.2 * X[:, 2] + 0.05 * rng.normal(size=700)
    model = OnlineGPRegressor("additive:2", periodic={0: 24}, categorical={1: 3}, rank_budget=128).fit(X, y)
    assert model.score(X, y) > 0.97
    night = model.predict([[0.01, 0, 0, 0], [23.99, 0, 0, 0]])
    assert abs(night[0] - night[1]) < 0.02
    with pytest.raises(wiski.WiskiError, match="not one of the levels"):
        model.predict([[0.0, 7.0, 0.0, 0.0]])
    with pytest.raises(wiski.WiskiError, match="'hour' is not one of the columns"):
        OnlineGPRegressor(periodic={"hour": 24}).fit(X, y)
    with pytest.raises(wiski.UnsupportedError, match="freeze"):
        model.forget(X[:1], y[:1])
    model.freeze_features().forget(X[:1], y[:1])
    assert model.n_seen_ == 699


def test_one_row_takes_the_short_way(waves):
    """A plain row goes to the model as it is. The checks that other rows go through take fifty microseconds."""
    X, y = waves
    model = OnlineGPRegressor().fit(X, y)
    row = X[:1]

    def fastest(call):
        times = []
        for _ in range(200):
            start = time.perf_counter()
            for _ in range(20):
                call()
            times.append((time.perf_counter() - start) / 20)
        return min(times)

    rust = min(model.model_._seconds_per_prediction(row[0].tolist(), 1000) for _ in range(50))
    # 3 µs above Rust where nothing else runs (see benchmarks/one_row.py); here others may.
    assert fastest(lambda: model.predict(row, return_std=True)) < rust + 12e-6
