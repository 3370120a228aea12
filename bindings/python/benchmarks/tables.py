"""Regressors of real tables beside each other: RMSE in standard deviations of the target, coverage, processor seconds.

wiski with every default; histogram gradient boosting, a random forest and ridge regression of scikit-learn with theirs; and
an exact Gaussian process (Matérn 3/2 with a length-scale for each column, standardized inputs) on at most 1,500 rows. Mean over
splits with a tenth held out. Coverage is that of 95 % intervals, where a method has them. Sets are files of a folder, or made
up: friedman1, friedman2, friedman3, products (32 columns, of which four matter), skewed (log-normal columns), levels (a category
as a number) and jumps, with the number of rows after a colon.

Run it with: python tables.py [--data DIR] [--sets concrete,jumps:1000] [--models wiski,boosting] [--splits 3]
"""

from __future__ import annotations

import os

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import csv
import gzip
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")

SETS = "concrete,airfoil,wine_quality,skillcraft,sml,powerplant"
MODELS = "wiski,boosting,forest,ridge,exact"


def made(name, rows):
    from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

    draw = np.random.default_rng(0)
    friedman = {"friedman1": (make_friedman1, 1.0), "friedman2": (make_friedman2, 50.0), "friedman3": (make_friedman3, 0.1)}
    if name in friedman:
        function, noise = friedman[name]
        return function(rows, noise=noise, random_state=0)
    if name == "products":
        X = draw.normal(size=(rows, 32))
        return X, np.sin(2 * X[:, 3]) * X[:, 7] + 0.5 * X[:, 12] * X[:, 20] + 0.2 * draw.normal(size=rows)
    if name == "skewed":
        z = 1.5 * draw.normal(size=(rows, 5))
        return np.exp(z), z[:, 0] * z[:, 1] + z[:, 2] + 0.3 * draw.normal(size=rows)
    if name == "levels":
        level, effect, x = draw.integers(0, 12, rows), draw.normal(size=12), draw.normal(size=(rows, 3))
        y = effect[level] + x[:, 0] * (level % 2) + np.sin(x[:, 1]) + 0.3 * draw.normal(size=rows)
        return np.column_stack([level, x]), y
    if name == "jumps":
        X = draw.uniform(size=(rows, 6))
        y = 2.0 * (X[:, 0] > 0.5) + 3.0 * ((X[:, 1] > 0.3) & (X[:, 2] > 0.6)) + X[:, 3]
        return X, y + 0.2 * draw.normal(size=rows)
    raise SystemExit(f"there is no made-up set {name}")


def read(folder, name):
    if ":" in name:
        name, rows = name.split(":")
        return made(name, int(rows))
    with gzip.open(os.path.join(folder, f"{name}.csv.gz"), "rt") as file:
        rows = np.array(list(csv.reader(file))[1:], dtype=float)
    return rows[:, :-1], rows[:, -1]


def make(name, columns):
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from wiski import OnlineGPRegressor

    if name == "exact":
        kernel = ConstantKernel() * Matern(np.ones(columns), (1e-2, 1e3), nu=1.5) + WhiteKernel(0.1, (1e-6, 10))
        return make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True))
    return {
        "wiski": OnlineGPRegressor,
        "boosting": lambda: HistGradientBoostingRegressor(random_state=0),
        "forest": lambda: RandomForestRegressor(random_state=0),
        "ridge": lambda: make_pipeline(StandardScaler(), RidgeCV()),
    }[name]()


def run(name, X, y, seed):
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = order[: len(y) // 10], order[len(y) // 10 :]
    if name == "exact":
        train = train[:1500]
    start = time.process_time()
    model = make(name, X.shape[1]).fit(X[train], y[train])
    if name == "wiski":
        mean, interval = model.predict_interval(X[test])
        low, high = interval.T
    elif name == "exact":
        mean, std = model.predict(X[test], return_std=True)
        low, high = mean - 1.96 * std, mean + 1.96 * std
    else:
        mean = model.predict(X[test])
        low = high = np.full(len(test), np.nan)
    seconds = time.process_time() - start
    inside = np.mean((low <= y[test]) & (y[test] <= high)) if np.isfinite(low).all() else np.nan
    return np.sqrt(np.mean((mean - y[test]) ** 2)) / y.std(), inside, seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("WISKI_DATA", "data"))
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    print("| set (rows × inputs) | model | RMSE | coverage of 95 % | seconds |\n| --- | --- | ---: | ---: | ---: |")
    for name in options.sets.split(","):
        X, y = read(options.data, name)
        for model in options.models.split(","):
            rmse, inside, seconds = np.mean([run(model, X, y, seed) for seed in range(options.splits)], axis=0)
            covered = "" if np.isnan(inside) else f"{inside:.3f}"
            print(f"| {name} ({X.shape[0]:,} × {X.shape[1]}) | {model} | {rmse:.3f} | {covered} | {seconds:.1f} |", flush=True)
