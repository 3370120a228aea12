"""scikit-learn's own checks, and its tools around our estimators."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import wiski
from wiski import OnlineGPClassifier, OnlineGPRegressor

# Small sums of grids, since a check fits some hundred models.
SMALL = {"features": "additive:2", "rank_budget": 64, "grid": 10}

# The only check that may not pass: it is skipped unless SciPy is told to accept other arrays than NumPy's.
SKIPPED = {"check_array_api_input"}


# A row of weight two is learned as two rows are (test_weights_count_rows), but the order of a fit, and which rows are held
# out to choose features, is another one for twice as many rows.
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": "features are chosen on rows that are held out"}


def report(estimator):
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=EXPECTED)
    assert len(results) > 45
    return {r["check_name"]: repr(r["exception"]) for r in results if r["status"] not in ("passed", "xfail")}


@pytest.mark.parametrize("estimator", [OnlineGPRegressor(**SMALL), OnlineGPClassifier(**SMALL)])
def test_checks_of_scikit_learn(estimator):
    failed = report(estimator)
    assert set(failed) <= SKIPPED, failed


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [OnlineGPRegressor(), OnlineGPClassifier()])
def test_checks_of_scikit_learn_with_defaults(estimator):
    failed = report(estimator)
    assert set(failed) <= SKIPPED, failed


def test_in_a_pipeline_and_a_search(waves):
    X, y = waves
    model = make_pipeline(StandardScaler(), OnlineGPRegressor())
    assert cross_val_score(model, X, y, cv=3).min() > 0.98
    search = GridSearchCV(OnlineGPRegressor(), {"kernel": ["rbf", "matern12"]}, cv=3).fit(X, y)
    assert search.best_params_ == {"kernel": "rbf"}


def test_clone_and_pickle(waves):
    X, y = waves
    model = OnlineGPRegressor(kernel="matern52", grid=[20, 8]).fit(X, y)
    fresh = clone(model)
    assert fresh.get_params() == model.get_params() and not hasattr(fresh, "model_")
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    # The copy goes on alone, to the last bit as the original would.
    copy.partial_fit(X[:100], y[:100])
    assert copy.n_seen_ == 500 and model.n_seen_ == 400
    model.partial_fit(X[:100], y[:100])
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))


def test_more_classes_of_many_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 6))
    y = np.argmax(X[:, :3], axis=1)
    model = OnlineGPClassifier().fit(X[:160], y[:160])
    assert model.score(X[160:], y[160:]) > 0.85
    assert model.classes_.tolist() == [0, 1, 2] and model.predict(X).dtype == y.dtype
    with pytest.raises(ValueError, match="two classes"):
        OnlineGPClassifier("project:2").fit(X, y)
    one_by_one = OneVsRestClassifier(OnlineGPClassifier("project:2")).fit(X, y)
    assert one_by_one.score(X, y) > 0.85


def test_weights_count_rows(waves):
    X, y = waves
    fixed = {"kernel": "rbf", "grid": 12, "bounds": [(90, 310), (-0.011, 0.011)], "schedule": "off"}
    # A row twice is two rows to what follows change, and a row of weight two is one.
    fixed["tracking"] = False
    # After the same start: the scale of the targets is that of the first rows.
    twice, both = (OnlineGPRegressor(**fixed).fit(X, y) for _ in range(2))
    twice.partial_fit(X[:80], y[:80] + 3, sample_weight=np.full(80, 2.0))
    both.partial_fit(np.vstack([X[:80]] * 2), np.tile(y[:80] + 3, 2))
    np.testing.assert_allclose(twice.predict(X), both.predict(X), rtol=1e-9)
    std = [model.predict(X, return_std=True, include_noise=False)[1] for model in (twice, both)]
    np.testing.assert_allclose(*std, rtol=1e-6)
    # What counts for nothing is not there, and what counts for little hardly is.
    weight = np.ones(400)
    weight[:50] = 0
    wrong = np.where(np.arange(400) < 50, y + 30, y)
    without = OnlineGPRegressor(**fixed).fit(X[50:], y[50:]).predict(X)
    # The order is random, by the number of rows.
    np.testing.assert_allclose(OnlineGPRegressor(**fixed).fit(X, wrong, sample_weight=weight).predict(X), without)
    weight[:50] = 1e-6
    little = OnlineGPRegressor().fit(X, wrong, sample_weight=weight)
    assert np.abs(little.predict(X) - y).max() < 2 < np.abs(OnlineGPRegressor().fit(X, wrong).predict(X) - y).max()
    # Un-learned with the weight that it was learned with.
    model = OnlineGPRegressor(**fixed).fit(X, y, sample_weight=np.full(400, 3.0))
    before = model.predict(X)
    model.partial_fit(X[:5], y[:5] + 3, sample_weight=np.full(5, 7.0))
    assert np.abs(model.predict(X) - before).max() > 0.1
    model.forget(X[:5], y[:5] + 3, sample_weight=np.full(5, 7.0))
    np.testing.assert_allclose(model.predict(X), before, rtol=1e-6)
    with pytest.raises(ValueError, match="[Nn]egative"):
        OnlineGPRegressor().fit(X, y, sample_weight=np.full(400, -1.0))


def test_weights_of_classes():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 1))
    # One in ten is of the rare class, which overlaps with the other.
    y = np.where(rng.uniform(size=600) < 0.1, "rare", "usual")
    X[y == "rare"] += 1.0
    fixed = {"kernel": "rbf", "grid": 16, "schedule": "off", "bounds": [(-5, 5)]}
    plain = OnlineGPClassifier(**fixed).fit(X, y)
    balanced = OnlineGPClassifier(class_weight="balanced", **fixed).fit(X, y)
    weights = {label: 600 / (2 * (y == label).sum()) for label in ("rare", "usual")}
    by_hand = OnlineGPClassifier(class_weight=weights, **fixed)
    np.testing.assert_allclose(by_hand.fit(X, y).predict_proba(X), balanced.predict_proba(X))
    recall = [(model.predict(X)[y == "rare"] == "rare").mean() for model in (plain, balanced)]
    assert recall[1] > recall[0] + 0.1, recall
    twice, both = (OnlineGPClassifier(**fixed).fit(X, y) for _ in range(2))
    twice.partial_fit(X[:80], y[:80], sample_weight=np.full(80, 2.0))
    both.partial_fit(np.vstack([X[:80]] * 2), np.tile(y[:80], 2))
    np.testing.assert_allclose(twice.predict_proba(X), both.predict_proba(X), rtol=1e-7)
    assert np.abs(twice.predict_proba(X) - plain.predict_proba(X)).max() > 1e-3
    with pytest.raises(ValueError, match="'balanced' is for fit"):
        OnlineGPClassifier(class_weight="balanced").partial_fit(X, y)


def test_decisions_and_logarithms():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    for y in (X[:, 0] > 0, np.digitize(X[:, 0], [-0.5, 0.5])):
        model = OnlineGPClassifier().fit(X, y)
        p, decision = model.predict_proba(X), model.decision_function(X)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p)
        said = model.classes_[(decision > 0).astype(int) if p.shape[1] == 2 else decision.argmax(axis=1)]
        assert (said == model.predict(X)).all() and np.isfinite(decision).all()
        assert decision.shape == ((300,) if p.shape[1] == 2 else (300, 3))


def test_quantiles(waves):
    X, y = waves
    model = OnlineGPRegressor().fit(X, y)
    low, middle, high = model.predict_quantiles(X, (0.05, 0.5, 0.95)).T
    np.testing.assert_array_equal(middle, model.predict(X))
    ends = model.predict_interval(X, level=0.9)[1]
    np.testing.assert_allclose(np.column_stack([low, high]), ends)
    with pytest.raises(ValueError, match="share between 0 and 1"):
        model.predict_quantiles(X, (0.5, 1.0))


def test_missing_numbers_are_means(waves):
    X, y = waves
    holes = X.copy()
    holes[::7, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        OnlineGPRegressor().fit(holes, y)
    model = OnlineGPRegressor(missing="mean").fit(holes, y)
    filled = np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)
    np.testing.assert_array_equal(model.predict(holes), OnlineGPRegressor().fit(filled, y).predict(filled))
    streamed = OnlineGPRegressor(missing="mean")
    for first in range(0, 400, 50):
        streamed.partial_fit(holes[first : first + 50], y[first : first + 50])
    assert np.isfinite(streamed.predict(holes)).all()
    with pytest.raises(ValueError, match="infinity"):
        model.predict([[np.inf, np.nan]])
    with pytest.raises(ValueError, match="missing: 'hope'"):
        OnlineGPRegressor(missing="hope").fit(X, y)


def test_missing_numbers_are_averaged_over(waves, tmp_path):
    X, y = waves
    holes = X.copy()
    holes[::7, 1] = np.nan
    model = OnlineGPRegressor(missing="marginalize").fit(holes, y)
    there = ~np.isnan(holes).any(axis=1)
    mean, std = model.predict(holes, return_std=True)
    # Where nothing is missing the model is sure; elsewhere it knows that it does not know.
    assert np.median(std[~there]) > 2 * np.median(std[there])
    z = (y - mean) / std
    assert np.sqrt(np.mean(z[~there] ** 2)) < 1.5
    model.save(tmp_path / "m.wiski")
    again = wiski.load(tmp_path / "m.wiski")
    np.testing.assert_array_equal(again.predict(holes), mean)
    with pytest.raises(ValueError, match="infinity"):
        model.predict([[np.inf, np.nan]])
    labels = np.where(y > np.median(y), "high", "low")
    classes = OnlineGPClassifier(missing="marginalize").fit(holes, labels)
    assert classes.score(holes[there], labels[there]) > 0.85
    with pytest.raises(ValueError, match="no complete row"):
        OnlineGPRegressor(missing="marginalize").partial_fit([[np.nan, 1.0]], [1.0])


def test_searches_beside_the_stream(waves):
    X, y = waves
    model = OnlineGPRegressor(background=True)
    for first in range(0, 400, 10):
        model.partial_fit(X[first : first + 10], y[first : first + 10])
    assert model.n_seen_ == 400
    model.finish_search()
    assert model.is_warm_ and np.corrcoef(model.predict(X), y)[0, 1] > 0.9


def test_progress(waves, capfd):
    X, y = waves
    quiet = OnlineGPRegressor().fit(X, y)
    assert capfd.readouterr().err == ""
    loud = OnlineGPRegressor(verbose=1).fit(X, y)
    np.testing.assert_array_equal(loud.predict(X), quiet.predict(X))
    rng = np.random.default_rng(0)
    many = rng.normal(size=(4000, 6))
    OnlineGPRegressor(verbose=1).fit(many, many[:, 0] * many[:, 1])
    said = capfd.readouterr().err
    # Most of the time is one search after the last row.
    assert "of 4000 rows after" in said and "4000 of 4000 rows" in said and "looking for features" in said
