"""Regressors of real tables beside each other: RMSE in standard deviations of the target, coverage, processor seconds.

wiski with every default; histogram gradient boosting, a random forest and ridge regression of scikit-learn with theirs; and
an exact Gaussian process (Matérn 3/2 with a length-scale for each column, standardized inputs) on at most 1,500 rows. Mean over
splits with a tenth held out. Coverage is that of 95 % intervals, where a method has them.

Run it with: python tables.py [--data DIR] [--sets concrete,airfoil] [--models wiski,boosting] [--splits 3]
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


def read(folder, name):
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
