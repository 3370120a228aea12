"""Intervals and sets: shapes, levels, and that they hold."""

import numpy as np
import pytest

import wiski
from wiski import OnlineGPClassifier, OnlineGPRegressor


@pytest.fixture(scope="module")
def stream():
    """Noise whose size comes and goes."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 1, 6000)
    size = 0.1 * np.exp(1.2 * np.sin(np.arange(6000) / 900))
    return x[:, None], np.sin(6 * x) + size * rng.normal(size=6000)


def test_the_promise_is_kept_row_by_row(stream):
    X, y = stream
    model, inside = OnlineGPRegressor(level=0.9).partial_fit(X[:100], y[:100]), []
    for i in range(100, len(X)):
        _, interval = model.predict_interval(X[i : i + 1], level=0.9)
        inside.append(interval[0, 0] <= y[i] <= interval[0, 1])
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    assert np.mean(inside) == pytest.approx(0.9, abs=0.006)
    windows = np.reshape(inside[:5000], (5, 1000)).mean(axis=1)
    assert np.abs(windows - 0.9).max() < 0.03, windows
    figures = model.metrics_
    assert figures["level"] == 0.9 and figures["coverage"] == pytest.approx(0.9, abs=0.006)
    assert 0 < figures["mean_width"] < 2 and 0.87 < figures["lowest_window"] <= figures["highest_window"] < 0.93


def test_shapes_levels_and_horizons(stream):
    X, y = stream
    model = OnlineGPRegressor().partial_fit(X[:1000], y[:1000])
    mean, one = model.predict_interval(X[:7])
    assert mean.shape == (7,) and one.shape == (7, 2)
    np.testing.assert_allclose(one.mean(axis=1), mean, rtol=1e-12)
    _, several = model.predict_interval(X[:7], level=[0.5, 0.95, 0.99])
    assert several.shape == (7, 2, 3)
    np.testing.assert_array_equal(several[:, :, 1], one)
    widths = several[:, 1] - several[:, 0]
    assert (np.diff(widths, axis=1) > 0).all()
    # Several rows are ahead, a single one comes next, unless said otherwise.
    np.testing.assert_array_equal(model.predict_interval(X[:7], horizon="ahead")[1], one)
    following = model.predict_interval(X[:7], horizon="next")[1]
    np.testing.assert_allclose(model.predict_interval(X[:1])[1][0], following[0], rtol=1e-9)
    for bad in (0, 1, 95, -0.1, [], [0.5, 2]):
        with pytest.raises(wiski.WiskiError, match="level"):
            model.predict_interval(X[:2], level=bad)
    with pytest.raises(wiski.WiskiError, match="horizon"):
        model.predict_interval(X[:2], horizon="later")
    with pytest.raises(wiski.WiskiError, match="intervals"):
        OnlineGPRegressor(intervals="normal").fit(X[:50], y[:50])
    with pytest.raises(wiski.WiskiError, match="level"):
        OnlineGPRegressor(level=95).fit(X[:50], y[:50])


def test_gaussian_intervals_are_those_of_the_deviation(stream):
    X, y = stream
    model = OnlineGPRegressor(intervals="gaussian").partial_fit(X[:500], y[:500])
    mean, std = model.predict(X[:5], return_std=True)
    _, interval = model.predict_interval(X[:5])
    np.testing.assert_allclose(interval[:, 1], mean + 1.959963984540054 * std, rtol=1e-12)
    assert model.metrics_["coverage"] == model.metrics_["coverage95"]


def test_files_keep_what_was_learned_about_intervals(stream, tmp_path):
    X, y = stream
    model = OnlineGPRegressor(level=0.8).partial_fit(X[:900], y[:900])
    model.save(tmp_path / "m.wiski")
    read = wiski.load(tmp_path / "m.wiski")
    assert read.level == 0.8 and read.intervals == "conformal"
    for level in (0.8, 0.9, 0.93):
        for horizon in ("next", "ahead"):
            a, b = (m.predict_interval(X[:3], level, horizon)[1] for m in (model, read))
            np.testing.assert_array_equal(a, b)


def test_known_noise_widens_intervals():
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 1, (300, 1))
    noise = np.full(300, 0.04)
    model = OnlineGPRegressor(known_noise=True).fit(X, np.sin(6 * X[:, 0]) + 0.2 * rng.normal(size=300), noise=noise)
    narrow, wide = (np.diff(model.predict_interval(X[:1], noise=n)[1])[0, 0] for n in (None, [1.0]))
    assert wide > 5 * narrow


def test_sets_of_classes():
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 3, (4000, 1))
    wrong = rng.uniform(size=4000) < 0.15
    y = np.where(wrong, rng.integers(0, 3, 4000), X[:, 0].astype(int))
    # Nine rows of ten are of the likeliest class, which is in every set: a level has to be higher to bind.
    model = OnlineGPClassifier(level=0.93).partial_fit(X[:2000], y[:2000], classes=[0, 1, 2])
    labels, sets = model.predict_set(X[2000:], level=0.93)
    assert labels.shape == (2000,) and sets.shape == (2000, 3) and sets.dtype == bool
    np.testing.assert_array_equal(labels, model.predict(X[2000:]))
    assert sets[np.arange(2000), labels].all(), "the likeliest class is always inside"
    assert sets[np.arange(2000), y[2000:]].mean() == pytest.approx(0.93, abs=0.03)
    assert model.metrics_["coverage"] == pytest.approx(0.93, abs=0.012)
    assert 1 <= model.metrics_["mean_set_size"] < 2
    _, several = model.predict_set(X[:9], level=[0.5, 0.99])
    assert several.shape == (9, 3, 2) and (several[..., 0] <= several[..., 1]).all()

    plain = OnlineGPClassifier(intervals="gaussian").partial_fit(X[:500], y[:500], classes=[0, 1, 2])
    p = plain.predict_proba(X[:200])
    _, sets = plain.predict_set(X[:200], level=0.9)
    inside = np.where(sets, p, 0)
    assert (inside.sum(axis=1) >= 0.9 - 1e-12).all()
    # Without its least likely class no set has enough.
    least = np.where(sets, p, 2).min(axis=1)
    assert (inside.sum(axis=1) - least < 0.9).all()
