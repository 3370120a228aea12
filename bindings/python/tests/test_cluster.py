"""Models fitted on clusters, each a real one on this machine: the sums of one pass, and the same model.

Run with ./check --cluster, which installs the engines."""

import os
import sys

import numpy as np
import pytest

import wiski
from wiski import cluster

pd = pytest.importorskip("pandas")

INPUTS = ["temperature", "vacuum", "a b"]


@pytest.fixture(scope="module")
def table():
    """4,000 rows of three inputs, one with a space in its name, some gaps, a text and a row far out."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 10, size=(4000, 3))
    y = 400 + 10 * np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=4000)
    X[17, 0], X[31, 1] = 1e9, np.nan
    return pd.DataFrame({**dict(zip(INPUTS, X.T)), "power": y, "note": "text"})


@pytest.fixture(scope="module")
def shape(table):
    return cluster.shape(table[INPUTS + ["power"]].iloc[1000:2000], "power", INPUTS)


@pytest.fixture(scope="module")
def one_pass(table, shape):
    return cluster.gather(shape, table)


def said(model):
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.uniform(0, 10, size=(40, 3)), columns=INPUTS)
    return np.concatenate([*model.predict(X, return_std=True), [v for v in model.hyperparameters_.values()]])


def check(engine, frame, table, shape, one_pass, gathered=None):
    """The same model from the same shape; a good one from a sample of the engine's own; predictions where rows lie."""
    expected = cluster.model(one_pass)
    assert expected.n_seen_ in (3998, 3999)
    model = cluster.fit(frame, "power", shape=shape)
    np.testing.assert_allclose(said(model), said(expected), rtol=1e-10)
    own = cluster.fit(frame, "power", sample=1000, features="additive")
    assert own.n_seen_ >= 3990 and list(own.feature_names_in_) == INPUTS
    answers = engine(cluster.predict(model, frame))
    assert len(answers) == len(table) and set(answers) == {*table, "mean", "std", "lower", "upper"}
    answers = answers.sort_values("power").reset_index(drop=True)
    rows = table.sort_values("power").reset_index(drop=True)
    whole = rows[INPUTS].notna().all(axis=1)
    mean, std = model.predict(rows.loc[whole, INPUTS], return_std=True)
    np.testing.assert_allclose(answers.loc[whole, "mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(answers.loc[whole, "std"], std, rtol=1e-12)
    assert answers.loc[~whole, ["mean", "std", "lower", "upper"]].isna().all(axis=None)
    inside = answers["power"].between(answers["lower"], answers["upper"])[whole]
    assert 0.9 < inside.mean() <= 1


def test_any_partition_gives_the_same_bytes(table, shape, one_pass):
    rng = np.random.default_rng(8)
    for parts in (1, 2, 7, 64):
        part = rng.integers(parts, size=len(table))
        sums = [cluster.gather(shape, table[part == k]) for k in rng.permutation(parts)]
        assert cluster.add(sums) == cluster.add([one_pass])
    pa = pytest.importorskip("pyarrow")
    # In Arrow a gap is a null, and NaN is a number that is none.
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    assert cluster.add([cluster.gather(shape, iter(arrow.to_batches(500)))]) == cluster.add([one_pass])


def test_dask(table, shape, one_pass):
    dd = pytest.importorskip("dask.dataframe")
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
        distributed.Client(local),
    ):
        check(lambda frame: frame.compute(), dd.from_pandas(table, npartitions=37), table, shape, one_pass)


def test_spark(table, shape, one_pass):
    sql = pytest.importorskip("pyspark.sql")
    os.environ.setdefault("SPARK_HOME", os.path.dirname(sql.__path__[0]))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Two workers that are processes of their own.
    builder = sql.SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.executorEnv.PYTHONPATH", os.path.dirname(os.path.dirname(wiski.__file__)))
    session = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    try:
        frame = session.createDataFrame(table.astype({"note": object})).repartition(37)
        rows = table.copy()
        check(lambda frame: frame.toPandas(), frame.replace(float("nan"), None), rows, shape, one_pass)
    finally:
        session.stop()


def test_ray(table, shape, one_pass):
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        frame = ray.data.from_pandas([table.iloc[i::7] for i in range(7)])
        check(lambda frame: frame.to_pandas(), frame, table, shape, one_pass)
    finally:
        ray.shutdown()


def test_datafusion(table, shape, one_pass):
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(3))
    batches = pytest.importorskip("pyarrow").Table.from_pandas(table, preserve_index=False).to_batches(600)
    frame = context.create_dataframe([[batch] for batch in batches])
    assert len(frame.execute_stream_partitioned()) > 2
    check(lambda reader: reader.read_pandas(), frame, table, shape, one_pass)


def test_what_is_wrong_is_said(table, shape):
    with pytest.raises(wiski.WiskiError, match="a frame of Dask, Spark, Ray Data or DataFusion"):
        cluster.fit(table, "power")
    with pytest.raises(wiski.WiskiError, match="at least two are needed"):
        cluster.shape(table[INPUTS + ["power"]].iloc[:1], "power", INPUTS)
    with pytest.raises(wiski.WiskiError, match="no partitions"):
        cluster.add([])
    with pytest.raises(wiski.FileError, match="not statistics"):
        cluster.model(b"something else")
    sums = cluster.gather(shape, table)
    with pytest.raises(wiski.FileError, match="checksum"):
        cluster.model(sums[:-1] + bytes([sums[-1] ^ 1]))
    infinite = table.assign(power=np.inf)
    with pytest.raises(wiski.WiskiError, match="y is inf"):
        cluster.gather(shape, infinite)
