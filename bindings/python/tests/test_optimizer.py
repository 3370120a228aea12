"""Asking and telling."""

import math
import pickle
import subprocess
import sys
import time

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
    with pytest.raises(wiski.WiskiError, match="one to 10000 points"):
        search.ask(0)
    # A row that is rejected takes the whole call with it.
    with pytest.raises(wiski.WiskiError):
        search.tell([[0.1, 0.1], [2.0, 0.2]], [1.0, 1.0])
    assert len(search.trials[1]) == 0


def test_whole_numbers_choices_and_conditions(tmp_path):
    space = {
        "layers": (1, 9, "int"),
        "solver": ["adam", "sgd"],
        "batch": {"choices": [16, 32, None, True]},
        "momentum": {"range": (0, 1), "only_if": {"solver": ["sgd"]}},
    }
    search = Optimizer(space, random_state=None)

    def loss(point):
        assert list(range(point["layers"])) and ("momentum" in point) == (point["solver"] == "sgd")
        extra = (point["momentum"] - 0.3) ** 2 if point["solver"] == "sgd" else 0.4
        return 0.1 * abs(point["layers"] - 4) + extra + (point["batch"] is not None)

    for _ in range(40):
        (point,) = search.ask()
        search.tell(point, loss(point))
    best = search.best
    assert best.y < 0.05 and best.x["batch"] is None and best.x["solver"] == "sgd" and best.x["layers"] == 4
    assert all(type(point["layers"]) is int for point in search.trials[0])
    search.save(tmp_path / "search.wiski")
    copy = wiski.load(tmp_path / "search.wiski")
    assert copy.best == best and copy.trials[0] == search.trials[0] and copy.ask(2) == search.ask(2)
    with pytest.raises(wiski.WiskiError, match="solver: 'lbfgs' is not one of the choices 'adam', 'sgd'"):
        search.tell({**best.x, "solver": "lbfgs"}, 1.0)
    with pytest.raises(wiski.WiskiError, match="batch: 1 is not one of"):
        search.tell({**best.x, "batch": 1}, 1.0)
    with pytest.raises(wiski.WiskiError, match="choices need names"):
        Optimizer([(0, 1), ["a", "b"]])
    with pytest.raises(wiski.WiskiError, match="'solver' is no choice before it"):
        Optimizer({"m": {"range": (0, 1), "only_if": {"solver": ["sgd"]}}, "solver": ["adam", "sgd"]})
    with pytest.raises(wiski.WiskiError, match="'range' or 'choices'"):
        Optimizer({"a": {"min": 0}})


def test_steps(tmp_path):
    search = Optimizer({"rate": (-1, 0.6, 0.5), "width": (16, 64, 16, "int")})
    for _ in range(12):
        (point,) = search.ask()
        assert point["rate"] in (-1, -0.5, 0, 0.5) and point["width"] in (16, 32, 48, 64), point
        search.tell(point, (point["rate"] - 0.1) ** 2 + abs(point["width"] - 44) / 100)
    assert search.best.x == {"rate": 0.0, "width": 48} and type(search.best.x["width"]) is int
    search.save(tmp_path / "search.wiski")
    assert wiski.load(tmp_path / "search.wiski").ask(2) == search.ask(2)
    assert set(Optimizer([(0, 1, 0.25)]).ask(8).ravel()) <= {0, 0.25, 0.5, 0.75, 1}
    for wrong, words in [
        ((0, 1, -0.5), "0 to 1 cannot be gone in steps of -0.5"),
        ((0.5, 9, 2, "int"), "other than whole numbers"),
        ((1, 9, 2, "log"), "numbers on a linear scale"),
        ((1, 9, "int", 2), "2 is not 'linear'"),
        ((1, 9, True), "True is not 'linear'"),
    ]:
        with pytest.raises(wiski.WiskiError, match=words):
            Optimizer({"a": wrong})


@pytest.mark.parametrize("space", [{"x0": (0, 1), "x1": (0, 1)}, [(0, 1), (0, 1)]])
def test_points_come_back_from_a_file_as_they_were(tmp_path, space):
    search = Optimizer(space)
    search.tell(search.ask(3), [1.0, 2.0, 0.5])
    search.save(tmp_path / "search.wiski")
    copy = Optimizer.load(tmp_path / "search.wiski")
    assert type(copy.best.x) is type(search.best.x)
    assert isinstance(copy.best.x, dict) == isinstance(space, dict)


def test_infinite_results():
    search = Optimizer({"x": (0, 1)}, random_state=3)
    for _ in range(25):
        (point,) = search.ask()
        search.tell(point, math.inf if point["x"] > 0.6 else (point["x"] - 0.4) ** 2)
    assert search.best.y < 1e-3


def study_with(sampler, **arguments):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(sampler=sampler, **arguments)


def test_optuna_categories_and_conditions():
    def objective(trial):
        kind = trial.suggest_categorical("kind", ["a", "b", None])
        if kind is None:
            return 1.0 + trial.suggest_int("depth", 1, 30) / 30
        x = trial.suggest_float("x", -2, 2)
        if kind == "a":
            return x**2 + (trial.suggest_float("rate", 1e-3, 1e3, log=True) - 1) ** 2 * 1e-6 + 0.3
        return (x - 0.7) ** 2

    best, random = [], []
    for seed in range(3):
        for values, sampler in ((best, WiskiSampler(seed=seed)), (random, optuna.samplers.RandomSampler(seed=seed))):
            study = study_with(sampler)
            study.optimize(objective, n_trials=35)
            values.append(study.best_value)
    assert max(best) < 0.01 and np.mean(best) < np.mean(random)


def test_optuna_steps_leave_nothing_pending():
    def objective(trial):
        a, b = trial.suggest_int("a", 0, 100, step=7), trial.suggest_float("b", 0, 2, step=0.25)
        assert a % 7 == 0 and a <= 98 and (b / 0.25).is_integer()
        return ((a - 42) / 30) ** 2 + (b - 1.25) ** 2

    sampler = WiskiSampler(seed=0)
    study = study_with(sampler)
    study.optimize(objective, n_trials=40)
    (search,) = sampler._searches.values()
    # The last point that was asked for.
    assert len(search._optimizer.pending) == 1
    assert study.best_value == 0.0


def test_optuna_pruned_trials_say_where_not_to_look():
    def objective(trial):
        x, y = trial.suggest_float("x", -3, 3), trial.suggest_float("y", -3, 3)
        end = (x - 1) ** 2 + (y + 0.5) ** 2
        for step in range(10):
            trial.report(end + 5 * math.exp(-step / 2), step)
            if trial.should_prune():
                raise optuna.TrialPruned()
        return end

    found = []
    for seed in range(3):
        study = study_with(WiskiSampler(seed=seed), pruner=optuna.pruners.MedianPruner())
        study.optimize(objective, n_trials=40)
        assert any(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
        found.append(study.best_value)
    # Random search comes to 0.3.
    assert np.mean(found) < 0.05, found


def test_optuna_infinity_failures_and_a_second_study():
    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        if trial.number == 7:
            raise RuntimeError("on purpose")
        return math.inf if x > 0.7 else (x - 0.4) ** 2

    sampler = WiskiSampler(seed=0)
    first = study_with(sampler)
    first.optimize(objective, n_trials=20, catch=(RuntimeError,))
    assert first.best_value < 1e-3
    second = study_with(sampler, direction="maximize")
    second.optimize(lambda trial: -((trial.suggest_float("x", 0, 1) - 0.9) ** 2), n_trials=20)
    assert second.best_value > -1e-3
    # The first goes on where it was.
    first.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.4) ** 2, n_trials=3)
    assert len(sampler._searches) == 2 and first.best_value < 1e-4


def test_optuna_processes_with_one_seed_try_different_points(tmp_path):
    """Two samplers of one seed take turns on one study, as two processes do."""
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    studies = [
        study_with(WiskiSampler(seed=0), storage=storage, study_name="one", load_if_exists=True) for _ in range(2)
    ]
    for _ in range(8):
        trials = [study.ask() for study in studies]
        points = [(trial.suggest_float("x", -3, 3), trial.suggest_int("k", 0, 1000)) for trial in trials]
        for study, trial, (x, k) in zip(studies, trials, points):
            study.tell(trial, x**2 + (k - 500) ** 2 * 1e-5)
    tried = [tuple(trial.params.values()) for trial in studies[0].trials]
    assert len(set(tried)) == len(tried) == 16


def test_optuna_old_trials_are_learned_at_once():
    """A thousand trials of before, in as many dimensions as one grid has: the first proposal takes about a second."""
    names = "abcd"
    study = study_with(WiskiSampler(seed=0))
    space = {name: optuna.distributions.FloatDistribution(-1, 1) for name in names}
    rng = np.random.default_rng(0)
    for _ in range(1000):
        params = dict(zip(names, rng.uniform(-1, 1, 4).tolist()))
        value = sum(v * v for v in params.values())
        study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=value))
    # Of the processor, so that a busy machine does not count.
    start = time.process_time()
    study.optimize(lambda trial: sum(trial.suggest_float(name, -1, 1) ** 2 for name in names), n_trials=1)
    assert time.process_time() - start < 4
    assert study.trials[-1].value < 0.1


def test_grids_take_over_without_a_pause():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (501, 4))
    y = ((X - 0.3) ** 2).sum(1) + 0.3 * rng.normal(size=501)
    search = wiski.Optimizer([(-1.0, 1.0)] * 4, random_state=0)
    search.tell(X[:500], y[:500])
    start = time.process_time()
    search.tell(X[500:], y[500:])
    assert time.process_time() - start < 4


WORKER = """
import sys, optuna
from wiski.optuna import WiskiSampler
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.load_study(study_name="shared", storage=sys.argv[1], sampler=WiskiSampler())
study.optimize(lambda trial: (trial.suggest_float("x", -3, 3) - 1) ** 2 + trial.suggest_int("k", 0, 1000) * 1e-3, n_trials=12)
"""


def test_optuna_processes_share_a_storage(tmp_path):
    """Three processes with samplers as they come: no two trials are the same."""
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    study = study_with(None, storage=storage, study_name="shared")
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, storage]) for _ in range(3)]
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0, 0]
    tried = [tuple(trial.params.values()) for trial in study.trials]
    assert len(set(tried)) == len(tried) == 36
    assert study.best_value < 0.1


def test_optuna_arguments():
    with pytest.raises(TypeError, match="strtegy"):
        WiskiSampler(strtegy="ei")
    with pytest.raises(wiski.WiskiError, match="strategy: 'luck'"):
        WiskiSampler(strategy="luck")
    with pytest.raises(TypeError, match="maximize"):
        WiskiSampler(maximize=True)
    copy = pickle.loads(pickle.dumps(WiskiSampler(seed=4, initial=5)))
    study = study_with(copy)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=8)
    # Without a seed no two studies are alike.
    firsts = set()
    for _ in range(3):
        study = study_with(WiskiSampler(seed=None))
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
        firsts.add(study.best_value)
    assert len(firsts) == 3


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


def disk(x, y):
    """Smallest at the left end of a disk of a tenth of the square."""
    return x, (x - 0.7) ** 2 + (y - 0.6) ** 2 - 0.03


def test_constraints(tmp_path):
    search = Optimizer({"x": (0, 1), "y": (0, 1)}, constraints=["inside"], random_state=1)
    assert search.feasibility({"x": 0.1, "y": 0.1}) is None
    for _ in range(15):
        points = search.ask(2)
        found = [disk(point["x"], point["y"]) for point in points]
        search.tell(points, [value for value, _ in found], constraints=[[limit] for _, limit in found])
    best = search.best
    assert disk(**best.x)[1] <= 0 and best.y < 0.7 - math.sqrt(0.03) + 0.02
    assert search.constraints.shape == (30, 1) and (search.constraints > 0).any()
    assert search.feasibility({"x": 0.7, "y": 0.6}) > 0.9 > 0.1 > search.feasibility({"x": 0.05, "y": 0.1})
    assert disk(**search.recommend().x)[1] <= 0
    search.save(tmp_path / "search.wiski")
    copy = Optimizer.load(tmp_path / "search.wiski")
    assert copy.best == best and copy.ask(2) == search.ask(2)
    # One point alone, and a failed one.
    search.tell({"x": 0.6, "y": 0.6}, 0.6, constraints=[-0.02])
    search.tell({"x": 0.1, "y": 0.6}, None, constraints=[math.nan])
    assert np.isnan(search.constraints[-1, 0]) and np.isnan(search.trials[1][-1])
    with pytest.raises(wiski.WiskiError, match="constraints has 0 values where 1"):
        search.tell({"x": 0.6, "y": 0.6}, 0.6)
    with pytest.raises(wiski.WiskiError, match=r"constraints has the shape \(2,\): 1 values for each of 1 points"):
        search.tell({"x": 0.6, "y": 0.6}, 0.6, constraints=[1, 2])
    with pytest.raises(wiski.WiskiError, match="NaN"):
        search.tell({"x": 0.6, "y": 0.6}, 0.6, constraints=[math.nan])
    with pytest.raises(wiski.WiskiError, match="expected improvement"):
        Optimizer(SPACE, constraints=1, strategy="thompson")


def test_several_objectives():
    search = Optimizer([(0, 1), (0, 1)], maximize=[False, True], random_state=0)
    for _ in range(12):
        X = search.ask(2)
        search.tell(X, [[(x[0] - 0.2) ** 2 + x[1] ** 2, -((x[0] - 0.9) ** 2) - x[1] ** 2] for x in X])
    X, values = search.front
    assert X.shape == values.shape and len(X) >= 6
    # Small and large values: sorted by one, they are sorted by the other.
    order = np.argsort(values[:, 0])
    assert (np.diff(values[order, 1]) > 0).all() and X[:, 1].max() < 0.3
    assert values[:, 0].min() < 0.02 and values[:, 1].max() > -0.02
    assert search.trials[1].shape == (24, 2) and search.recommend() is None
    search.tell(X[0], [1.0, 2.0])
    search.tell(X[:2], [[1.0, 2.0], None])
    assert np.isnan(search.trials[1][-1]).all()
    with pytest.raises(wiski.WiskiError, match="front"):
        search.best
    with pytest.raises(wiski.WiskiError, match="y has the shape"):
        search.tell(X[:2], [1.0, 2.0])
    with pytest.raises(wiski.WiskiError, match="objectives: 4 are too many"):
        Optimizer(SPACE, maximize=[False] * 4)


@pytest.mark.parametrize("how", ["set_constraint", "constraints_func"])
def test_optuna_constraints(how):
    def objective(trial):
        value, limit = disk(trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1))
        if how == "set_constraint":
            trial.set_constraint("inside", limit)
        trial.set_user_attr("limit", limit)
        return value

    function = (lambda trial: (trial.user_attrs["limit"],)) if how == "constraints_func" else None
    study = study_with(WiskiSampler(seed=0, constraints_func=function))
    # One of before that has no constraint, and counts as failed.
    study.add_trial(
        optuna.trial.create_trial(
            params={"x": 0.0, "y": 0.6},
            distributions={name: optuna.distributions.FloatDistribution(0, 1) for name in "xy"},
            value=0.0,
        )
    )
    study.optimize(objective, n_trials=30)
    feasible = [trial.value for trial in study.trials[1:] if trial.user_attrs["limit"] <= 0]
    assert min(feasible) < 0.7 - math.sqrt(0.03) + 0.02


def test_optuna_several_objectives():
    def objective(trial):
        x, k = trial.suggest_float("x", 0, 1), trial.suggest_int("k", 0, 4)
        return (x - 0.2) ** 2 + 0.1 * k, -((x - 0.9) ** 2) - 0.1 * k

    study = study_with(WiskiSampler(seed=0), directions=["minimize", "maximize"])
    study.optimize(objective, n_trials=30)
    assert len(study.best_trials) >= 10
    assert all(trial.params["k"] == 0 for trial in study.best_trials)
    assert min(t.values[0] for t in study.best_trials) < 0.01 and max(t.values[1] for t in study.best_trials) > -0.01
    four = study_with(WiskiSampler(seed=0), directions=["minimize"] * 4)
    with pytest.raises(wiski.WiskiError, match="objectives: 4 are too many"):
        four.optimize(lambda trial: [trial.suggest_float("x", 0, 1)] * 4, n_trials=2)
