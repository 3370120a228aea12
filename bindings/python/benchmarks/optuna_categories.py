"""Searches with Optuna among categories: problems of which every seed has its own, or that are known from elsewhere.

    python benchmarks/optuna_categories.py [--seeds 11] [--samplers wiski,TPE] [--only tables,noisy]

Scores are values less the optimum (mean, median, worst of all seeds), small being good. What the models take for granted about
categories is judged here, so that the problems of `optuna_samplers.py` can say whether it was right.
"""

import math
from itertools import product

import numpy as np
import optuna
from optuna_samplers import compare, options


def rosenbrock(x, y):
    return ((1 - x) ** 2 + 100 * (y - x**2) ** 2) / 300


def camel(x, y):
    return ((4 - 2.1 * x**2 + x**4 / 3) * x**2 + x * y + (4 * y**2 - 4) * y**2) / 10


def beale(x, y):
    return ((1.5 - x + x * y) ** 2 + (2.25 - x + x * y**2) ** 2 + (2.625 - x + x * y**3) ** 2) / 50


def two_sums(first, second, x, y):
    parts = rosenbrock, camel, beale
    return parts[first](x, y) + parts[min(second, 2)](x, y)


def three_sums(first, second, third, x, y):
    more = 5 * camel(x, y), 2 * rosenbrock(x, y), second * beale(x, y), 0.3 * second * beale(x, y)
    return two_sums(first, second, x, y) + more[third]


def sums(function, sizes):
    """Categories say which functions of two numbers are added, after Func2C and Func3C of Ru et al. (2020)."""
    grid = np.meshgrid(*[np.linspace(-2, 2, 401)] * 2)
    best = min(float(np.min(function(*chosen, *grid))) for chosen in product(*map(range, sizes)))

    def problem(trial):
        chosen = [trial.suggest_categorical(f"h{k + 1}", list("abcde"[:size])) for k, size in enumerate(sizes)]
        x, y = trial.suggest_float("x", -2, 2), trial.suggest_float("y", -2, 2)
        return function(*map("abcde".index, chosen), x, y) - best

    return problem


def func2c(seed):
    return sums(two_sums, (3, 5))


def func3c(seed):
    return sums(three_sums, (3, 5, 4))


def tables(seed):
    """Sixteen combinations, each with an offset; one number depends on both categories, two on one."""
    rng = np.random.default_rng(1000 + seed)
    offset = rng.gamma(1.5, 1.0, size=(4, 4))
    offset -= offset.min()
    cx, cy, cz = rng.uniform(-1.5, 1.5, 4), rng.uniform(-1.5, 1.5, 4), rng.uniform(-1.5, 1.5, (4, 4))

    def problem(trial):
        a, b = (trial.suggest_categorical(name, [0, 1, 2, 3]) for name in "ab")
        x, y, z = (trial.suggest_float(name, -2, 2) for name in "xyz")
        return (x - cx[a]) ** 2 + (y - cy[b]) ** 2 + 0.5 * (z - cz[a, b]) ** 2 + offset[a, b]

    return problem


def switches(seed):
    """Ackley's function of four switches and three numbers."""
    rng = np.random.default_rng(seed)
    wanted, place = rng.integers(0, 2, 4), rng.uniform(-0.6, 0.6, 3)

    def problem(trial):
        switched = np.array([trial.suggest_categorical(f"c{i}", [0, 1]) for i in range(4)])
        x = np.array([trial.suggest_float(f"x{i}", -1, 1) for i in range(3)])
        z = np.concatenate([np.abs(switched - wanted), x - place])
        waves = math.exp(np.mean(np.cos(2 * math.pi * z)))
        return 20 - 20 * math.exp(-0.2 * math.sqrt(np.mean(z * z))) + math.e - waves

    return problem


def noisy(seed):
    """Three categories and noise; the score is what the trial with the best result is without it."""
    rng = np.random.default_rng(3000 + seed)
    center, offset = rng.uniform(-1, 1, 3), np.array([0, 0.3, 0.6])[rng.permutation(3)]

    def problem(trial):
        a = trial.suggest_categorical("a", [0, 1, 2])
        x, y = (trial.suggest_float(name, -2, 2) for name in "xy")
        true = (x - center[a]) ** 2 + 0.5 * (y - 0.5 * center[a]) ** 2 + offset[a]
        trial.set_user_attr("true", true)
        return true + 0.2 * rng.normal()

    return problem


PROBLEMS = {func2c: 60, func3c: 60, tables: 60, switches: 60, noisy: 50}


def run(problem, trials, chosen, seed):
    study = optuna.create_study(sampler=chosen)
    study.optimize(problem(seed), n_trials=trials)
    return study.best_trial.user_attrs.get("true", study.best_value)


if __name__ == "__main__":
    compare(options(__doc__, "wiski,TPE"), PROBLEMS, run)
