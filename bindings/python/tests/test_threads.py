"""Several threads use a model at once."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from wiski import OnlineGPRegressor


def test_the_interpreter_is_free_while_a_model_learns():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(20000, 2))
    y = np.sin(9 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=20000)
    model = OnlineGPRegressor(grid=24, kernel="matern52")
    learner = threading.Thread(target=model.partial_fit, args=(X, y))
    start = last = time.perf_counter()
    longest = 0.0
    learner.start()
    while learner.is_alive():
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    learner.join()
    took = time.perf_counter() - start
    assert model.n_seen_ == 20000
    # Had the lock of the interpreter been held, this thread would have stood still for all of that time.
    assert longest < 0.5 * took, f"stood still for {longest:.3f} s of {took:.3f} s"


def test_reading_while_learning_changes_nothing(waves):
    X, y = waves
    X, y = np.tile(X, (5, 1)), np.tile(y, 5)
    alone = OnlineGPRegressor().partial_fit(X[:100], y[:100])
    shared = OnlineGPRegressor().partial_fit(X[:100], y[:100])
    alone.partial_fit(X[100:], y[100:])
    stop = threading.Event()

    def read(rows):
        answers = 0
        while not stop.is_set():
            mean, std = shared.predict(rows, return_std=True)
            assert np.all(np.isfinite(mean)) and np.all(std > 0)
            answers += 1
        return answers

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read, rows) for rows in (X[:1], X[:1], X[:100], X[:300])]
        for i in range(100, len(X), 20):
            shared.partial_fit(X[i : i + 20], y[i : i + 20])
        stop.set()
        assert all(reader.result() > 0 for reader in readers)
    np.testing.assert_array_equal(shared.predict(X[:300]), alone.predict(X[:300]))


def test_models_that_merge_each_other_do_not_wait_for_ever(waves):
    X, y = waves
    first = OnlineGPRegressor(schedule="off").partial_fit(X, y)
    second = first.shard().partial_fit(X, y)

    def merge(a, b):
        for _ in range(5):
            a.merge(b)

    threads = [threading.Thread(target=merge, args=pair, daemon=True) for pair in ((first, second), (second, first))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
