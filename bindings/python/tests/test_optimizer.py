"""Asking and telling."""

import math
import pickle

import numpy as np
import optuna
import pytest

import wiski
from wiski import Optimizer
from wiski.optuna import WiskiSampler


def branin(x, y):
    return (
        (y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6) ** 2
        + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x)
        + 10
    )


SPACE = [(-5, 10), (0, 15)]


@pytest.mark.parametrize("model", [{}, {"exact_until": 0}, {"exact_until": 20, "grid": 18}, {"local": True}])
@pytest.mark.parametrize("strategy", ["logei", "ucb:4", "greedy ei", "mes", "thompson"])
def test_branin(strategy, model):
    search = Optimizer(SPACE, strategy=strategy, random_state=1, **model)
    for _ in range(15):
        X = search.ask(2)
        assert X.shape == (2, 2)
        search.tell(X, [branin(*x) for x in X])
    # The minimum is 0.3979; 30 random points come to 2 or so.
    assert search.best.y < 1.2
    assert search.best.y == min(search.trials[1])
    recommended = search.recommend()
    assert abs(recommended.mean - branin(*recommended.x)) < 5 * recommended.std + 1


def test_names_scales_and_integers():
    search = Optimizer({"rate": (1e-5, 1, "log"), "layers": (1, 9, "int")}, maximize=True)
    for _ in range(12):
        for point in search.ask():
            assert set(point) == {"rate", "layers"} and point["layers"] == round(point["layers"])
            search.tell(point, -abs(math.log10(point["rate"]) + 3) - 0.3 * abs(point["layers"] - 4))
    assert search.best.y > -1
    assert search.names == ["rate", "layers"] and len(search.pending) == 0


def test_pending_failed_and_noise():
    search = Optimizer(SPACE, known_noise=True)
    X = search.ask(3)
    assert len(search.pending) == 3
    search.tell(X[:2], [1.0, math.nan], noise=[0.1, 0.1])
    assert len(search.pending) == 1
    assert search.best.y == 1.0
    np.testing.assert_array_equal(np.isnan(search.trials[1]), [False, True])
    search.forget_pending()
    assert len(search.pending) == 0
    with pytest.raises(wiski.WiskiError, match="noise of every value is known"):
        search.tell(X[:1], 1.0)


def test_saved_searches_go_on_to_the_last_bit(tmp_path):
    search = Optimizer(SPACE)
    for _ in range(10):
        X = search.ask()
        search.tell(X, [branin(*X[0])])
    search.save(tmp_path / "search.wiski")
    copies = [Optimizer.load(tmp_path / "search.wiski"), wiski.load(tmp_path / "search.wiski")]
    copies.append(pickle.loads(pickle.dumps(search)))
    expected = search.ask(2)
    for copy in copies:
        np.testing.assert_array_equal(copy.ask(2), expected)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (([(0, 1)] * 51,), "one to 50 dimensions"),
        (([(1, 0)],), "x0: 1 to 0 is not an interval"),
        (({"a": (-1, 1, "log")},), "a: a logarithmic scale needs positive"),
        (({"a": (0, 1, "lgo")},), "a: 'lgo'"),
    ],
)
def test_spaces_that_are_none(arguments, words):
    with pytest.raises(wiski.WiskiError, match=words):
        Optimizer(*arguments)


def test_rejections():
    with pytest.raises(wiski.WiskiError, match="strategy: 'luck'"):
        Optimizer(SPACE, strategy="luck")
    with pytest.raises(wiski.WiskiError, match="kernel"):
        Optimizer(SPACE, kernel="periodic")
    search = Optimizer({"a": (0, 1), "b": (0, 1)})
    assert search.best is None and search.recommend() is None
    with pytest.raises(wiski.WiskiError, match="b: a point does not say"):
        search.tell({"a": 0.5}, 1.0)
    with pytest.raises(wiski.WiskiError, match="a: 3 lies outside"):
        search.tell({"a": 3.0, "b": 0.5}, 1.0)
    with pytest.raises(wiski.WiskiError, match="y has 1 values where 2"):
        search.tell([[0.1, 0.1], [0.2, 0.2]], [1.0])
    with pytest.raises(wiski.WiskiError, match="at least one point"):
        search.ask(0)
    # A row that is rejected takes the whole call with it.
    with pytest.raises(wiski.WiskiError):
        search.tell([[0.1, 0.1], [2.0, 0.2]], [1.0, 1.0])
    assert len(search.trials[1]) == 0


def test_a_study_of_optuna():
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial):
        rate = trial.suggest_float("rate", 1e-4, 1, log=True)
        width = trial.suggest_int("width", 2, 20, step=3)
        kind = trial.suggest_categorical("kind", ["a", "b"])
        assert (width - 2) % 3 == 0
        if trial.number == 5:
            raise optuna.TrialPruned()
        return (math.log10(rate) + 2) ** 2 + ((width - 11) / 9) ** 2 + (kind == "a") * 0.01

    best = []
    for sampler in (WiskiSampler(seed=0), optuna.samplers.RandomSampler(seed=0)):
        study = optuna.create_study(sampler=sampler)
        study.optimize(objective, n_trials=40)
        assert len(study.trials) == 40
        best.append(study.best_value)
    assert best[0] < 0.02 and best[0] <= best[1]
