"""sktime's own checks, and what they do not look at. Skipped without sktime; requirements-sktime.txt has it."""

import sys
import warnings

import numpy as np
import pandas as pd
import pytest

import wiski

MONTHS = np.arange(144)
Y = 50 + 0.1 * MONTHS + 9 * np.sin(MONTHS * 2 * np.pi / 12) + 0.4 * np.cos(MONTHS**2)


def model(**settings):
    return pytest.importorskip("wiski.sktime", exc_type=ImportError).WiskiForecaster(**settings)


def test_checks_of_sktime():
    forecaster = model()
    from sktime.utils.estimator_checks import check_estimator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(type(forecaster), raise_exceptions=False, verbose=False)
    assert len(results) > 500
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


def test_without_sktime(monkeypatch):
    monkeypatch.delitem(sys.modules, "wiski.sktime", raising=False)
    monkeypatch.setitem(sys.modules, "sktime.forecasting.base", None)
    with pytest.raises(ImportError, match=r"pip install 'wiski\[sktime\]'"):
        import wiski.sktime  # noqa: F401
    sys.modules.pop("wiski.sktime", None)


@pytest.mark.parametrize("lags", [None, [1, 2, 12]])
def test_equal_to_the_forecaster(lags):
    index = pd.date_range("2012-01-01", periods=144, freq="h")
    forecaster = model(sp=12, lags=lags).fit(pd.Series(Y[:120], index[:120], name="sold"))
    twin = wiski.Forecaster(seasons=["12h"], lags=lags).fit(Y[:120], index[:120].to_numpy())
    wanted = twin.predict(24, level=0.9)
    mean = forecaster.predict(fh=[1, 2, 24])
    # Times in seconds and in steps differ by rounding.
    np.testing.assert_allclose(mean, wanted.mean[[0, 1, 23]], rtol=1e-9)
    assert mean.name == "sold" and mean.index[2] == index[143]
    ends = forecaster.predict_interval(fh=range(1, 25), coverage=0.9)["sold"][0.9]
    np.testing.assert_allclose(ends["lower"], wanted.lower, rtol=1e-9)
    np.testing.assert_allclose(ends["upper"], wanted.upper, rtol=1e-9)
    middle = forecaster.predict_quantiles(fh=[3], alpha=[0.5, 0.95]).iloc[0]
    np.testing.assert_allclose(middle, [wanted.mean[2], wanted.upper[2]], rtol=1e-9)
    # New rows, some of them known already; hyperparameters stay or follow.
    forecaster.update(pd.Series(Y[110:144], index[110:144], name="sold"), update_params=False)
    twin.update(Y[120:], index[120:].to_numpy())
    np.testing.assert_allclose(forecaster.predict(fh=[1]), twin.predict(1).mean, rtol=1e-9)
    assert forecaster.get_fitted_params()["sp"] == [12.0]


@pytest.mark.parametrize("make", [pd.period_range, pd.date_range])
def test_months_are_steps(make):
    index = make("2012-01-01", periods=144, freq="M" if make is pd.period_range else "MS")
    forecaster = model(sp=12).fit(pd.Series(Y[:132], index[:132]))
    ahead = forecaster.predict(fh=index[132:])
    assert (ahead.index == index[132:]).all()
    assert np.abs(ahead.to_numpy() - Y[132:]).max() < 2
    # The same as of plain numbers: a month is a step, however long.
    plain = model(sp=12).fit(pd.Series(Y[:132])).predict(fh=range(1, 13))
    np.testing.assert_allclose(ahead, plain, rtol=1e-7)


def test_inputs_and_what_is_missing():
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"price": rng.uniform(-1, 1, 330), "holiday": rng.integers(0, 2, 330)})
    y = 3 * X["price"] + 2 * X["holiday"] + 0.1 * rng.normal(size=330)
    y[7] = np.nan
    for lags in (None, [1, 2]):
        forecaster = model(sp=None, lags=lags).fit(y[:300], X=X[:300])
        ahead = forecaster.predict(fh=range(1, 31), X=X[["holiday", "price"]][300:])
        assert np.sqrt(np.mean((ahead - y[300:]) ** 2)) < 0.3
        np.testing.assert_allclose(forecaster.predict(fh=[2, 9], X=X[300:310]), ahead.iloc[[1, 8]], rtol=1e-9)
        with pytest.raises(wiski.WiskiError, match="have to be known"):
            forecaster.predict(fh=[1])
        with pytest.raises(wiski.WiskiError, match="no row for 1 of the 2 steps"):
            forecaster.predict(fh=[1, 9], X=X[300:305])
    with pytest.raises(wiski.WiskiError, match="'often' is not 'auto'"):
        model(sp="often").fit(y)
