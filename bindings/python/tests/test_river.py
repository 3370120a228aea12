"""river's own checks, and its pipelines."""

import math
import pickle

import pytest
from river import checks, conf, datasets, evaluate, metrics, preprocessing, stats

import wiski
from wiski.river import OnlineGP


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
