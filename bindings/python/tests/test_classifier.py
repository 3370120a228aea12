"""What the classifier says."""

import numpy as np
import pytest

import wiski
from wiski import OnlineGPClassifier


@pytest.fixture
def rings():
    """Three rings in the plane."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (600, 2))
    radius = np.hypot(*X.T)
    return X, np.select([radius < 0.4, radius < 0.8], ["inner", "middle"], "outer")


def test_three_rings(rings):
    X, y = rings
    model = OnlineGPClassifier().fit(X[:500], y[:500])
    assert list(model.classes_) == ["inner", "middle", "outer"]
    assert model.score(X[500:], y[500:]) > 0.85
    p = model.predict_proba(X)
    assert p.shape == (600, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X[3:4]), p[3:4], rtol=1e-9)
    assert model.metrics_["rows"] > 400


def test_labels_keep_their_type(rings):
    X, y = rings
    codes = np.select([y == "inner", y == "middle"], [7, 11], 2)
    model = OnlineGPClassifier().fit(X, codes)
    # In the order of numbers, not of their text.
    assert list(model.classes_) == [2, 7, 11] and model.predict(X[:5]).dtype == codes.dtype
    assert (model.predict(X) == codes).mean() > 0.85
    flags = OnlineGPClassifier().fit(X, codes == 2)
    assert flags.predict(X).dtype == bool


def test_labels_keep_their_type_in_files(rings, tmp_path):
    X, y = rings
    codes = np.select([y == "inner", y == "middle"], [7, 11], 2)
    for labels in (codes, codes == 2, codes.astype(float), codes.astype(str)):
        model = OnlineGPClassifier().fit(X, labels)
        model.save(tmp_path / "rings.wiski")
        copy = OnlineGPClassifier.load(tmp_path / "rings.wiski")
        assert copy.classes_.dtype.kind == labels.dtype.kind
        np.testing.assert_array_equal(copy.predict(X), model.predict(X))
        copy.partial_fit(X[:5], labels[:5])
        np.testing.assert_array_equal(copy.classes_, model.classes_)
    # 1 and 1.0 are one class, and stay what they were first.
    model = OnlineGPClassifier().partial_fit(X, codes, classes=np.unique(codes))
    model.partial_fit(X, codes.astype(float))
    assert list(model.classes_) == [2, 7, 11] and model.classes_.dtype.kind == "i"


def test_streams(rings):
    X, y = rings
    whole = OnlineGPClassifier().partial_fit(X, y, classes=np.unique(y))
    parts = OnlineGPClassifier()
    for i in range(0, 600, 60):
        parts.partial_fit(X[i : i + 60], y[i : i + 60], classes=np.unique(y) if i == 0 else None)
    np.testing.assert_array_equal(whole.predict_proba(X), parts.predict_proba(X))
    with pytest.raises(wiski.WiskiError, match='"huge" in row 0 is not one of the known classes'):
        parts.partial_fit(X[:1], ["huge"])


def test_a_class_that_comes_late(rings):
    X, y = rings
    inside = y != "outer"
    model = OnlineGPClassifier(unseen="add").partial_fit(X[inside], y[inside])
    assert list(model.classes_) == ["inner", "middle"]
    model.partial_fit(X[~inside], y[~inside])
    assert list(model.classes_) == ["inner", "middle", "outer"]
    assert (model.predict(X) == y).mean() > 0.8


def test_forget_merge_and_decay(rings):
    X, y = rings
    classes = np.unique(y)
    model = OnlineGPClassifier(schedule="off").partial_fit(X[:300], y[:300], classes=classes)
    before = model.predict_proba(X)
    model.partial_fit(X[300:], y[300:])
    assert np.abs(model.predict_proba(X) - before).max() > 1e-3
    model.forget(X[300:], y[300:])
    np.testing.assert_allclose(model.predict_proba(X), before, atol=1e-7)
    other = OnlineGPClassifier(schedule="off").partial_fit(X[:300], y[:300], classes=classes)
    model.merge(other)
    assert model.n_seen_ == 600
    model.decay(0.5)
    assert model.n_seen_ == 300


def test_files(rings, tmp_path):
    X, y = rings
    model = OnlineGPClassifier().fit(X, y)
    model.save(tmp_path / "rings.wiski")
    copy = wiski.load(tmp_path / "rings.wiski")
    assert isinstance(copy, OnlineGPClassifier)
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
    with pytest.raises(wiski.WiskiError, match="classifier"):
        wiski.OnlineGPRegressor.load(tmp_path / "rings.wiski")
