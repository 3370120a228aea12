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

from wiski import OnlineGPClassifier, OnlineGPRegressor

# Small sums of grids, since a check fits some hundred models.
SMALL = {"features": "additive:2", "rank_budget": 64, "grid": 10}

# The only check that may not pass: it is skipped unless SciPy is told to accept other arrays than NumPy's.
SKIPPED = {"check_array_api_input"}


def report(estimator):
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    assert len(results) > 45
    return {r["check_name"]: repr(r["exception"]) for r in results if r["status"] != "passed"}


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
