"""Series from Python: numbers and dates, pandas, inputs, files, errors."""

import pickle

import numpy as np
import pandas as pd
import pytest

import wiski

HOURS = np.arange(480)
LOAD = 20 + 5 * np.sin(HOURS * 2 * np.pi / 24) + 0.3 * np.sin(HOURS**2)


def truth(times):
    return 20 + 5 * np.sin(np.asarray(times, dtype=float) * 2 * np.pi / 24)


def test_numbers():
    model = wiski.Forecaster(seasons=[24]).fit(LOAD, HOURS)
    ahead = model.predict(48, level=0.9)
    assert ahead.times[0] == 480 and len(ahead.mean) == 48
    assert np.abs(ahead.mean - truth(ahead.times)).max() < 1
    assert ((ahead.lower < ahead.mean) & (ahead.mean < ahead.upper)).all()
    # A wider interval holds the narrower one. Paths are the model's own: what forecasts missed before corrects intervals only.
    wide = model.predict(48, level=0.99)
    assert (wide.upper > ahead.upper).all() and (wide.lower < ahead.lower).all()
    paths = model.sample_paths(48, 400, random_state=1)
    assert paths.shape == (400, 48)
    ratio = paths.std(axis=0) / ahead.std
    assert 0.6 < ratio.min() and ratio.max() < 1.6
    parts = model.components(24)
    assert "trend" in parts and sum(mean[0] for _, (mean, _) in list(parts.items())[1:]) == pytest.approx(
        ahead.mean[0], abs=1e-6
    )


def test_dates_and_pandas():
    index = pd.date_range("2024-01-01", periods=480, freq="h")
    model = wiski.Forecaster(seasons=["24h"], lags=None).fit(pd.Series(LOAD, index=index))
    assert model.seasons_ == [86400.0] and model.n_seen_ == 480
    frame = model.predict(24).frame()
    assert list(frame.columns) == ["mean", "std", "lower", "upper"]
    assert frame.index[0] == pd.Timestamp("2024-01-21 00:00")
    assert np.abs(frame["mean"] - truth(np.arange(480, 504))).max() < 1
    # Later times, and rows that come in parts, with one missing.
    at = model.predict(index[-1] + pd.to_timedelta([1, 3], "h"))
    np.testing.assert_allclose(at.mean, frame["mean"].iloc[[0, 2]], rtol=1e-9)
    rest = pd.Series([np.nan, 21.0], index=pd.date_range("2024-01-21", periods=2, freq="h"))
    assert model.update(rest).predict(1).times[0] == np.datetime64("2024-01-21T02:00")


def test_months_and_logarithms():
    rng = np.random.default_rng(2)
    months = np.arange(96)
    sold = np.exp(5 + 0.01 * months + 0.3 * (months % 12 == 11) + 0.03 * rng.normal(size=96))
    for freq in ("MS", "ME"):
        index = pd.date_range("2015-01-01", periods=108, freq=freq)
        model = wiski.Forecaster().fit(pd.Series(sold, index=index[:96]))
        assert model.scale_ == "log"
        assert model.seasons_ == [pytest.approx(365.25 * 86400)]
        ahead = model.predict(12)
        assert (ahead.times == index[96:].to_numpy()).all()
        parts = list(model.components(12).items())[1:]
        product = np.prod([mean for _, (mean, _) in parts], axis=0)
        np.testing.assert_allclose(product, np.sqrt(ahead.lower * ahead.upper), rtol=1e-9)
    assert wiski.Forecaster(scale="linear").fit(sold).scale_ == "linear"
    with pytest.raises(wiski.WiskiError, match="scale"):
        wiski.Forecaster(scale="cubic").fit(sold)


def test_inputs_known_ahead():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=330)
    y = 3 * x + 0.1 * rng.normal(size=330)
    model = wiski.Forecaster(seasons=None, lags=None).fit(y[:300], X=x[:300])
    ahead = model.predict(X=x[300:])
    assert np.sqrt(np.mean((ahead.mean - y[300:]) ** 2)) < 0.3
    with pytest.raises(wiski.WiskiError, match="has 1 inputs"):
        model.predict(3)
    with pytest.raises(wiski.WiskiError, match="3 rows"):
        model.predict(3, X=[[1.0, 2.0]] * 3)


def test_files_and_copies(tmp_path):
    model = wiski.Forecaster(seasons=[24]).fit(LOAD, HOURS)
    model.save(tmp_path / "load.wiski")
    wanted = model.predict(24)
    for copy in (
        wiski.load(tmp_path / "load.wiski"),
        wiski.Forecaster.load(tmp_path / "load.wiski"),
        pickle.loads(pickle.dumps(model)),
    ):
        np.testing.assert_array_equal(copy.predict(24).mean, wanted.mean)
        np.testing.assert_array_equal(copy.predict(24).upper, wanted.upper)


def test_bad_input():
    model = wiski.Forecaster(seasons=[24])
    with pytest.raises(wiski.NotFittedError):
        model.predict(3)
    with pytest.raises(wiski.WiskiError, match="2 for 3 rows"):
        model.fit([1.0, 2.0, 3.0], [0, 1])
    with pytest.raises(wiski.WiskiError, match="'1 month' is not a"):
        wiski.Forecaster(seasons="1 month").fit(LOAD, HOURS)
    with pytest.raises(wiski.WiskiError, match="trend"):
        wiski.Forecaster(trend="up").fit(LOAD, HOURS)
    model.fit(LOAD, HOURS)
    with pytest.raises(wiski.WiskiError):
        model.update([1.0], [3.0])
    with pytest.raises(wiski.WiskiError, match="mixed"):
        model.update([1.0], np.array(["2024-01-01"], dtype="datetime64[s]"))
    # Nothing of that was learned.
    assert model.n_seen_ == 480
