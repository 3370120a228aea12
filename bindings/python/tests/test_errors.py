"""One family of exceptions, whose messages name the value and its place."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import wiski
from wiski import OnlineGPRegressor, Optimizer, _core

FAMILY = ["OffGridError", "UnsupportedError", "FileError", "NotFittedError", "InternalError"]


def test_one_family():
    for name in FAMILY:
        assert issubclass(getattr(wiski, name), wiski.WiskiError)
    assert issubclass(wiski.WiskiError, ValueError)
    assert issubclass(wiski.FileError, OSError)
    assert issubclass(wiski.NotFittedError, NotFittedError)


def test_no_panic_crosses(capfd):
    with pytest.raises(wiski.InternalError, match="on purpose"):
        _core._panic()


@pytest.mark.parametrize("bad, words", [(np.nan, "NaN"), (np.inf, "inf")])
def test_numbers_that_are_none(waves, bad, words):
    X, y = waves
    model = OnlineGPRegressor().fit(X, y)
    before = model.predict(X)
    rows = X[:10].copy()
    rows[4, 1] = bad
    # Through the fast path and through scikit-learn's checks.
    with pytest.raises(wiski.WiskiError, match=rf"x\[1\] is {words} in row 4"):
        model.predict(rows)
    with pytest.raises(wiski.WiskiError, match=rf"x\[1\] is {words} in row 4"):
        model.partial_fit(rows, y[:10])
    with pytest.raises(ValueError, match=f"(?i){words}"):
        model.predict(rows.tolist())
    targets = y[:10].copy()
    targets[7] = bad
    with pytest.raises(wiski.WiskiError, match=f"y is {words} in row 7"):
        model.partial_fit(X[:10], targets)
    # Nothing of a rejected batch was learned.
    assert model.n_seen_ == 400
    np.testing.assert_array_equal(model.predict(X), before)


def test_shapes(waves):
    X, y = waves
    model = OnlineGPRegressor().fit(X, y)
    with pytest.raises(ValueError, match="3 features.*expecting 2"):
        model.predict(np.zeros((5, 3)))
    with pytest.raises(ValueError, match="0 sample"):
        model.predict(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="inconsistent"):
        model.partial_fit(X[:5].tolist(), y[:4])
    with pytest.raises(wiski.WiskiError, match="y has 4 values where 5 are needed"):
        model.partial_fit(X[:5], y[:4])
    with pytest.raises(wiski.WiskiError, match="noise has the shape"):
        model.partial_fit(X[:5], y[:5], noise=[1.0])
    with pytest.raises(wiski.WiskiError, match="n_samples=1"):
        OnlineGPRegressor().fit(X[:1], y[:1])


def test_not_fitted():
    model = OnlineGPRegressor()
    for call in (
        lambda: model.predict([[1.0]]),
        lambda: model.sample_y([[1.0]]),
        lambda: model.save("nowhere"),
        lambda: model.metrics_,
        lambda: model.forget([[1.0]], [1.0]),
        lambda: model.log_marginal_likelihood(),
    ):
        with pytest.raises(wiski.NotFittedError, match="OnlineGPRegressor instance is not fitted"):
            call()


@pytest.mark.parametrize(
    "parameters, words",
    [
        ({"features": "projekt"}, "features: 'projekt'"),
        ({"features": "project:9"}, "1 to 4 axes, not 9"),
        ({"kernel": "rfb"}, "'rfb'"),
        ({"grid": [8, 8, 8]}, "grid: 3 numbers of points were given for 2 axes"),
        ({"grid": 2000}, "more than the 1048576"),
        ({"schedule": "never"}, "schedule: 'never'"),
        ({"schedule": "geometric:0.5"}, "growth ratio: 0.5"),
        ({"half_life": -1.0}, "half-life: -1"),
        ({"bounds": [(0, 1)]}, "bounds has 1 values where 2"),
        ({"bounds": [(0, 1), (1, 1)]}, "column 1"),
        ({"off_grid": "hope"}, "off_grid: 'hope'"),
        ({"engine": "steam"}, "engine: 'steam'"),
        ({"initial": {"lenghtscale": 1.0}}, "lenghtscale"),
        ({"initial": {"lengthscale": [1.0, 2.0, 3.0]}}, "3 values were given for 2"),
        ({"initial": {"noise": -1.0}}, "noise is -1"),
    ],
)
def test_parameters_that_describe_no_model(waves, parameters, words):
    with pytest.raises(wiski.WiskiError, match="(?s).*" + words.replace("(", r"\(")):
        OnlineGPRegressor(**parameters).fit(*waves)


def test_off_the_grid(waves):
    X, y = waves
    box = [(100, 300), (-0.01, 0.01)]
    strict = OnlineGPRegressor(bounds=box, off_grid="error").fit(X, y)
    with pytest.raises(wiski.OffGridError, match=r"row 1 lies off the grid: axis 0 covers \[100, 300\] but the value is 900"):
        strict.predict(np.array([[200.0, 0.0], [900.0, 0.0]]))
    humble = OnlineGPRegressor(bounds=box, off_grid="prior").fit(X, y)
    mean, std = humble.predict([[900.0, 0.0]], return_std=True)
    assert abs(mean[0] - y.mean()) < 1 and std[0] > 5
    growing = OnlineGPRegressor(bounds=box).fit(X, y)
    assert growing.predict([[310.0, 0.0]], return_std=True)[1][0] > growing.predict(X[:1], return_std=True)[1][0]
    # Predicting never grows a grid: far off it the prior answers. Learning is what may not go so far.
    mean, std = growing.predict([[1e9, 0.0]], return_std=True)
    assert abs(mean[0] - y.mean()) < 1 and std[0] > 5
    with pytest.raises(wiski.OffGridError, match="on axis 0 to reach 1000000000; at most 16384"):
        growing.partial_fit([[1e9, 0.0]], [1.0])


def test_files_that_are_none(tmp_path, waves):
    with pytest.raises(wiski.FileError, match="missing.wiski"):
        wiski.load(tmp_path / "missing.wiski")
    text = tmp_path / "text.wiski"
    text.write_text("hello, this is not a model, but it is long enough to be a header of one")
    with pytest.raises(wiski.FileError, match="not a wiski file"):
        wiski.load(text)
    model = OnlineGPRegressor().fit(*waves)
    model.save(tmp_path / "whole.wiski")
    data = (tmp_path / "whole.wiski").read_bytes()
    (tmp_path / "cut.wiski").write_bytes(data[: len(data) // 2])
    with pytest.raises(wiski.FileError, match="cut off"):
        wiski.load(tmp_path / "cut.wiski")
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    (tmp_path / "damaged.wiski").write_bytes(damaged)
    with pytest.raises(wiski.FileError, match="checksum"):
        wiski.load(tmp_path / "damaged.wiski")
    with pytest.raises(wiski.FileError):
        model.save(tmp_path / "no" / "such" / "folder")


def test_no_setting_is_ignored(waves):
    X, y = waves
    ones, times = np.ones(400), np.arange(400.0)
    cases = [
        ({}, {"time": times}, "time: it is for rows that fade"),
        ({"half_life": 50}, {"time": times}, "time: it is for rows that fade"),
        ({"timed": True}, {"time": times}, "timed: without half_life"),
        ({"timed": True, "half_life": 50}, {}, "timed=True every row needs one"),
        ({"known_noise": True}, {}, "known_noise=True every row needs the variance"),
        ({}, {"noise": ones}, "this model learns its noise"),
    ]
    for parameters, given, words in cases:
        for learn in ("fit", "partial_fit"):
            with pytest.raises(wiski.WiskiError, match=words):
                getattr(OnlineGPRegressor(**parameters), learn)(X, y, **given)
        if "noise" not in words:
            with pytest.raises(wiski.WiskiError, match=words):
                wiski.OnlineGPClassifier(**parameters).fit(X, y > 50, **given)
    known = OnlineGPRegressor(known_noise=True).fit(X, y, noise=0.09 * ones)
    for call in (lambda: known.partial_fit(X, y), lambda: known.forget(X[:1], y[:1])):
        with pytest.raises(wiski.WiskiError, match="every row needs the variance"):
            call()
    with pytest.raises(wiski.WiskiError, match="noise= must say it"):
        known.predict(X, return_std=True, include_noise=True)
    latent = known.predict(X, return_std=True)[1]
    np.testing.assert_array_equal(known.predict(X, return_std=True, include_noise=False)[1], latent)
    both = known.predict(X, return_std=True, noise=0.09 * ones)[1]
    np.testing.assert_allclose(both, np.sqrt(latent**2 + 0.09))
    with pytest.raises(wiski.WiskiError, match="noise: with include_noise=False"):
        known.predict(X, return_std=True, noise=0.09 * ones, include_noise=False)
    # Metadata routing hands `noise` to every `predict`; that of means needs none, but it must fit.
    np.testing.assert_array_equal(known.predict(X, noise=0.09 * ones), known.predict(X))
    with pytest.raises(ValueError):
        known.predict(X, noise=ones[:3])


@pytest.mark.parametrize("estimator", [OnlineGPRegressor, wiski.OnlineGPClassifier])
def test_rows_beyond_the_grid_are_warned_of(waves, estimator):
    X, y = waves
    y = y if estimator is OnlineGPRegressor else y > 50
    ask = "predict" if estimator is OnlineGPRegressor else "predict_proba"
    far = np.array([X[0], [1e4, 0.0], X[1], [200.0, 3.0], [1e4, 3.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = estimator().fit(X, y)
        for rows in (X, X[:1]):
            getattr(model, ask)(rows)
        # Here predictions widen with the distance, and there the user has said what they mean.
        getattr(estimator(features="additive").fit(X, y), ask)(far)
        getattr(estimator(off_grid="prior", bounds=[(100, 300), (-0.01, 0.01)]).fit(X, y), ask)(far)
    for rows, words in [
        (far, r"3 of 5 rows .* the prior .* row 1, whose column 'x0' is 10000 while the grid covers"),
        (far[3:4], r"1 of 1 rows .* row 0, whose column 'x1' is 3 while the grid covers -0.01\d* to 0.01\d*;"),
    ]:
        with pytest.warns(UserWarning, match=words) as seen:
            getattr(model, ask)(rows)
        assert len(seen) == 1 and seen[0].filename == __file__
    # A column with a name is named so.
    frame = pd.DataFrame(X, columns=["speed", "slope"])
    with pytest.warns(UserWarning, match="whose column 'speed'"):
        getattr(estimator().fit(frame, y), ask)(pd.DataFrame(far, columns=frame.columns))


def test_the_order_of_fit_is_that_of_random_state(waves):
    X, y = waves
    one, same = (OnlineGPRegressor(random_state=1).fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(one, same)
    assert (OnlineGPRegressor(random_state=2).fit(X, y).predict(X) != one).any()
    assert np.isfinite(OnlineGPRegressor(random_state=None).fit(X, y).predict(X)).all()


def test_messages_speak_python(waves):
    """No name of the Rust side in what a user reads."""
    X, y = waves
    model = OnlineGPRegressor(features="additive").partial_fit(X, y)
    search = Optimizer([(0, 1)])
    for call in (
        lambda: model.forget(X[:1], y[:1]),
        lambda: model.shard(),
        lambda: OnlineGPRegressor().partial_fit(X[:3], y[:3]).log_marginal_likelihood(),
        lambda: OnlineGPRegressor().partial_fit(X[:3], y[:3]).refit(),
        lambda: search.tell([[0.5]], [1.0], noise=[0.1]),
        lambda: OnlineGPRegressor(kernel="rbf * rbf@7").fit(X, y),
        lambda: OnlineGPRegressor(engine="sparse", kernel="rbf").fit(X, y),
    ):
        with pytest.raises(wiski.WiskiError) as raised:
            call()
        assert "::" not in str(raised.value) and "NoiseModel" not in str(raised.value), raised.value
