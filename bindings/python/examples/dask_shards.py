"""Fit a Gaussian process to data that lie on many machines: every worker gathers statistics of its part, and only these
travel. The result is that of one pass over all rows.

Run it with: python dask_shards.py
"""

import dask
import numpy as np
from dask.distributed import Client, LocalCluster

from wiski import OnlineGPRegressor, Stats

BOUNDS = [(0, 10), (0, 2)]


def part(seed, rows):
    """One part of the data; a file of a data lake in real life."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows, 2)) * [10, 2]
    return X, np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=rows)


@dask.delayed
def gather(seed, rows):
    return Stats(BOUNDS).update(*part(seed, rows))


@dask.delayed
def add(statistics):
    return sum(statistics)


def main(rows=1_000_000, parts=8, workers=2):
    each = rows // parts
    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        total = add([gather(seed, each) for seed in range(parts)]).compute()
    shards = OnlineGPRegressor.from_stats(total)

    data = [part(seed, each) for seed in range(parts)]
    one_pass = Stats(BOUNDS).update(np.vstack([X for X, _ in data]), np.concatenate([y for _, y in data]))
    return OnlineGPRegressor.from_stats(one_pass), shards


if __name__ == "__main__":
    one_pass, shards = main()
    X = np.random.default_rng(1).uniform(size=(1000, 2)) * [10, 2]
    difference = np.abs(one_pass.predict(X) - shards.predict(X)).max()
    print(f"{shards.n_seen_:.0f} rows; largest difference to one pass {difference:.1e}")
