"""river's own checks, and its pipelines."""

import datetime
import math
import pickle

import numpy as np
import pytest
from river import checks, conf, datasets, evaluate, metrics, preprocessing, stats, time_series

import wiski
from wiski.river import OnlineForecaster, OnlineGP


@pytest.mark.parametrize("check", list(checks.yield_checks(OnlineGP())), ids=lambda check: check.__name__)
def test_checks_of_river(check):
    check(OnlineGP("additive:1", rank_budget=64, grid=10))


def test_in_a_pipeline():
    stream = list(datasets.synth.Friedman(seed=3).take(900))
    metric = metrics.MAE()
    model = preprocessing.StandardScaler() | OnlineGP("project:2", warm_up=200)
    evaluate.progressive_val_score(stream, model, metric)
    baseline = metrics.MAE()
    mean = 0.0
    for i, (_, y) in enumerate(stream):
        baseline.update(y, mean)
        mean += (y - mean) / (i + 1)
    assert metric.get() < 0.75 * baseline.get()


def test_equal_to_the_estimator(waves):
    X, y = waves
    ours = OnlineGP()
    for row, target in zip(X, y):
        ours.learn_one({"b": row[1], "a": row[0]}, target)
    model = wiski.OnlineGPRegressor().partial_fit(X, y)
    mean, std = model.predict(X[5:6], return_std=True)
    x = {"a": X[5, 0], "b": X[5, 1]}
    assert ours.predict_one(x) == mean[0]
    distribution = ours.predict_one(x, with_dist=True)
    assert distribution.mu == pytest.approx(mean[0], rel=1e-12)
    assert distribution.sigma == pytest.approx(std[0], rel=1e-9)
    assert ours.metrics_ == model.metrics_
    assert pickle.loads(pickle.dumps(ours)).predict_one(x) == mean[0]


def test_intervals_hold_along_a_stream():
    """The convention of river.conf, on the stream of its own example, whose jackknife has 0.939 and 4.08."""
    model = OnlineGP(confidence_level=0.9)
    inside, widths = stats.Mean(), stats.Mean()
    for x, y in datasets.TrumpApproval():
        interval = model.predict_one(x, with_interval=True)
        assert isinstance(interval, conf.Interval) and interval.lower < interval.upper < math.inf
        inside.update(y in interval)
        widths.update(interval.width)
        model.learn_one(x, y)
    # A date among the inputs makes every row lie beyond those before, where the model is less sure than it need be.
    assert 0.895 < inside.get() < 0.945
    assert widths.get() < 4.08
    assert model.metrics_["level"] == 0.9
    assert model.metrics_["coverage"] == pytest.approx(inside.get(), abs=0.02)
    with pytest.raises(wiski.WiskiError, match="not both"):
        model.predict_one(x, with_dist=True, with_interval=True)


def test_features_that_are_missing():
    model = OnlineGP(warm_up=20)
    assert model.predict_one({"a": 1.0}) == 0.0
    for i in range(100):
        x = i / 100
        model.learn_one({"a": x, "b": 2.0}, 3 * x)
    # The mean of a so far is about a half.
    assert model.predict_one({"b": 2.0}) == pytest.approx(1.5, abs=0.1)
    assert model.predict_one({"a": math.nan, "b": 2.0}) == model.predict_one({"a": None, "b": 2.0})
    assert model.predict_one({"a": 0.2, "b": 2.0, "new": 9.0}) == pytest.approx(0.6, abs=0.05)
    with pytest.raises(wiski.WiskiError, match=r"x\['a'\] is 'red'"):
        model.learn_one({"a": "red", "b": 2.0}, 1.0)
    with pytest.raises(wiski.WiskiError, match="no features"):
        OnlineGP().learn_one({}, 1.0)


SERIES = list(checks.yield_checks(OnlineForecaster()))


@pytest.mark.parametrize("check", SERIES, ids=lambda check: check.__name__)
def test_checks_of_river_for_series(check):
    assert {"check_learn_one", "check_forecast"} <= {check.__name__ for check in SERIES}
    check(OnlineForecaster())


def test_a_series_in_rivers_evaluation():
    """AirlinePassengers, a year ahead from every month, beside river's own example of Holt and Winters."""
    theirs = time_series.HoltWinters(alpha=0.3, beta=0.1, gamma=0.6, seasonality=12, multiplicative=True)
    figures = []
    for model in (OnlineForecaster(seasons=[12]), theirs):
        found = evaluate.evaluate(datasets.AirlinePassengers(), model, metrics.MAE(), horizon=12)
        figures.append(np.mean([metric.get() for metric in found.metrics]))
    assert figures[0] < 1.1 * figures[1], figures


def test_a_series_equals_the_core():
    hours = np.arange(400)
    y = 20 + 5 * np.sin(hours * 2 * np.pi / 24) + 0.3 * np.sin(hours**2)
    model = OnlineForecaster(seasons=[24], confidence_level=0.9)
    assert model.forecast(2) == [0.0, 0.0]
    core = wiski._core.Forecaster([24.0], None, "linear", "auto", (False, 1.0), 0, 4096)
    for hour, target in enumerate(y):
        model.learn_one(None if hour == 50 else target)
        core.observe(float(hour), [], None if hour == 50 else target)
        if hour == 1:
            core.fit()
    mean, _, lower, upper = core.forecast(core.next_times(24), np.zeros((24, 0)), 0.9)
    assert model.forecast(24) == mean.tolist()
    first = model.forecast(24, with_interval=True)[0]
    assert isinstance(first, conf.Interval) and (first.lower, first.upper) == (lower[0], upper[0])
    assert pickle.loads(pickle.dumps(model)).forecast(3) == mean[:3].tolist()


def test_a_series_with_inputs_and_times():
    rng = np.random.default_rng(3)
    start = datetime.datetime(2024, 1, 1)
    model, bare = OnlineForecaster(seasons=None, lags=None, time="when"), OnlineForecaster(seasons=None, lags=None)
    rows = [{"when": start + datetime.timedelta(hours=hour), "x": x} for hour, x in enumerate(rng.uniform(-1, 1, 330))]
    for row in rows[:300]:
        target = 3 * row["x"] + 0.1 * rng.normal()
        model.learn_one(target, row)
        bare.learn_one(target, row)
    ahead = model.forecast(30, rows[300:])
    assert np.abs(np.array(ahead) - [3 * row["x"] for row in rows[300:]]).max() < 1
    # Hours and rows are the same clock here.
    np.testing.assert_allclose(bare.forecast(30, rows[300:]), ahead, rtol=1e-6)
    with pytest.raises(wiski.WiskiError, match="have to be known ahead"):
        model.forecast(3)
    with pytest.raises(wiski.WiskiError, match="2 rows for 3 steps"):
        model.forecast(3, rows[300:302])
    with pytest.raises(wiski.WiskiError, match=r"x\['x'\] is 'red'"):
        model.learn_one(1.0, {"when": rows[300]["when"], "x": "red"})
    with pytest.raises(wiski.WiskiError, match=r"x\['when'\] is None"):
        model.learn_one(1.0, {"x": 1.0})
