"""The same model on every engine: powerplant by a learned projection to two axes, elevators as a sum of grids.

A shape is learned on 2,000 rows, then nine tenths of the rows, in 16 files of Parquet, are summed up by each engine on a
local cluster of two workers. Said are how far the model is from that of one pass (predictions and hyperparameters, the
largest relative difference), its error and log density on the other tenth, and the seconds that the fit took with the
cluster up. With ``--sql`` the files are also read by the program wiski-sql, with ``--ballista`` by the cluster of that
scheduler.

Run it with: python clusters.py [--data DIR] [--engines dask,spark,ray,datafusion] [--sql PROGRAM] [--ballista URL]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import pandas as pd

import wiski
from wiski import cluster

SETS = {"powerplant": "project:2", "elevators": "additive"}


@contextlib.contextmanager
def dask(pattern):
    import dask.dataframe as dd
    import distributed

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
        distributed.Client(local),
    ):
        yield dd.read_parquet(pattern)


@contextlib.contextmanager
def spark(pattern):
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        yield session.read.parquet(pattern)
    finally:
        session.stop()


@contextlib.contextmanager
def ray(pattern):
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        yield ray.data.read_parquet(os.path.dirname(pattern))
    finally:
        ray.shutdown()


@contextlib.contextmanager
def datafusion(pattern):
    from datafusion import SessionConfig, SessionContext

    context = SessionContext(SessionConfig().with_target_partitions(2))
    yield context.read_parquet(os.path.dirname(pattern))


def said(model, X):
    return np.concatenate([*model.predict(X, return_std=True), list(model.hyperparameters_.values())])


def report(name, engine, model, expected, test, seconds):
    X, y = test.drop(columns="y"), test["y"].to_numpy()
    own, other = said(model, X), said(expected, X)
    apart = np.max(np.abs(own - other) / np.maximum(np.abs(other), 1e-300))
    mean, std = model.predict(X, return_std=True)
    rmse = np.sqrt(np.mean((mean - y) ** 2))
    density = np.mean(-0.5 * np.log(2 * np.pi * std**2) - 0.5 * ((y - mean) / std) ** 2)
    print(f"| {name} | {engine} | {model.n_seen_:.0f} | {apart:.0e} | {rmse:.4f} | {density:.4f} | {seconds:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("WISKI_DATA", "data"))
    parser.add_argument("--engines", default="dask,spark,ray,datafusion")
    parser.add_argument("--sql", metavar="PROGRAM")
    parser.add_argument("--ballista", metavar="URL")
    options = parser.parse_args()
    print("| set | engine | rows | apart | RMSE | log density | seconds |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name, features in SETS.items():
        table = pd.read_csv(os.path.join(options.data, f"{name}.csv.gz")).sample(frac=1.0, random_state=1)
        test, train = table.iloc[: len(table) // 10], table.iloc[len(table) // 10 :]
        inputs = [column for column in table if column != "y"]
        shape = cluster.shape(train.iloc[:2000], "y", inputs, features=features)
        begun = time.perf_counter()
        expected = cluster.model(cluster.gather(shape, train))
        report(name, "one pass", expected, expected, test, time.perf_counter() - begun)
        with tempfile.TemporaryDirectory() as folder:
            for part in range(16):
                train.iloc[part::16].to_parquet(os.path.join(folder, f"part-{part}.parquet"), index=False)
            pattern = os.path.join(folder, "*.parquet")
            for engine in filter(None, options.engines.split(",")):
                with globals()[engine](pattern) as frame:
                    begun = time.perf_counter()
                    model = cluster.fit(frame, "y", shape=shape)
                    report(name, engine, model, expected, test, time.perf_counter() - begun)
            with open(os.path.join(folder, "shape"), "wb") as file:
                file.write(shape)
            clusters = {"wiski-sql": []} | ({"ballista": ["--cluster", options.ballista]} if options.ballista else {})
            for engine, more in clusters.items() if options.sql else []:
                places = ["--shape", os.path.join(folder, "shape"), "--output", os.path.join(folder, "model")]
                begun = time.perf_counter()
                command = [options.sql, "fit", pattern, "--target", "y", *places, *more]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                model = wiski.load(os.path.join(folder, "model"))
                report(name, engine, model, expected, test, time.perf_counter() - begun)


if __name__ == "__main__":
    main()
