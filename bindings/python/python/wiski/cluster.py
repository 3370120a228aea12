"""Fit a model to rows that lie on a cluster, and predict there: only sums travel.

:func:`fit` takes a frame of Dask, Spark, Ray Data or DataFusion. It learns scales and features on a sample that the engine
draws, has every partition summed up where it lies, adds the sums up, and learns the hyperparameters from them, without a
second pass. Whatever the partitions are, the sums are the same to the last bit. :func:`predict` has a model answer
partition by partition.

None of these libraries is imported before a frame of theirs is given.

>>> import pandas as pd
>>> from wiski import cluster
>>> table = pd.DataFrame({"x": range(1000)})
>>> table["y"] = table["x"] % 10
>>> shape = cluster.shape(table.sample(200, random_state=1), "y")
>>> parts = [cluster.gather(shape, part) for part in (table[:300], table[300:])]
>>> cluster.model(cluster.add(parts)).n_seen_
1000.0
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from wiski import _core
from wiski._errors import WiskiError
from wiski._regressor import OnlineGPRegressor

__all__ = ["add", "fit", "gather", "model", "predict", "shape"]

#: Sums that are added up by one task.
_FAN_IN = 16


# -- the recipe ------------------------------------------------------------------------------------------------


def shape(sample: Any, target: str, inputs: list[str] | None = None, **parameters: Any) -> bytes:
    """The shape of a model, learned on a sample: a table with named columns (pandas, Arrow).

    ``parameters`` are those of :class:`wiski.OnlineGPRegressor`."""
    columns = list(sample.columns) if inputs is None and hasattr(sample, "iloc") else inputs
    if columns is None:
        columns = list(sample.column_names)
    columns = [name for name in columns if name != target]
    X, y = _rows(sample, columns, target)
    if len(y) < 2:
        raise WiskiError(f"the sample has {len(y)} rows without a gap; at least two are needed")
    estimator = OnlineGPRegressor(**parameters)
    named = _named(X, columns)
    return estimator.fit(named, _named_series(y, target)).model_.shape()


def gather(shape: bytes, table: Any) -> bytes:
    """The sums of the rows of a table, or of several tables in turn, as bytes. Rows with a gap are left out."""
    shard = _core.Shard(shape)
    inputs, target = shard.columns
    tables = table if isinstance(table, Iterator) else [table]
    for part in tables:
        X, y = _rows(part, inputs, target)
        if len(y):
            shard.learn(X, y)
    return shard.to_bytes()


def add(parts: Iterable[bytes]) -> bytes:
    """The sum of sums, in any order."""
    parts = iter(parts)
    first = next(parts, None)
    if first is None:
        raise WiskiError("there are no sums to be added up: the frame has no partitions")
    total = _core.Shard.from_bytes(bytes(first))
    for part in parts:
        total.merge(bytes(part))
    return total.to_bytes()


def model(sums: bytes) -> OnlineGPRegressor:
    """The model of sums, with hyperparameters learned from them."""
    return OnlineGPRegressor._around(_core.Shard.from_bytes(bytes(sums)).fit())


# -- engines ---------------------------------------------------------------------------------------------------


def fit(
    frame: Any, target: str, *, inputs: list[str] | None = None, sample: int = 8192, seed: int = 0, **parameters: Any
) -> OnlineGPRegressor:
    """Fit a model to a frame of Dask, Spark, Ray Data or DataFusion.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame, pyspark.sql.DataFrame, ray.data.Dataset or datafusion.DataFrame
        Its partitions stay where they are.
    target : str
        The column that is predicted.
    inputs : list of str, default=None
        The input columns; None for all numeric columns but the target.
    sample : int, default=8192
        Scales and features are learned on about so many rows, drawn from all partitions.
    seed : int, default=0
        The seed of the sample.
    **parameters
        Of :class:`wiski.OnlineGPRegressor`. ``shape=`` takes a shape from elsewhere instead of a sample.
    """
    engine = _engine(frame)
    known = parameters.pop("shape", None)
    if known is None:
        inputs = [name for name in (inputs or engine.numeric(frame)) if name != target]
        frame = engine.select(frame, [*inputs, target])
        known = shape(engine.sample(frame, sample, seed), target, inputs, **parameters)
    else:
        inputs, target = _core.Shard(known).columns
        frame = engine.select(frame, [*inputs, target])
    return model(engine.sums(frame, known))


def predict(model: OnlineGPRegressor, frame: Any, *, level: float = 0.95) -> Any:
    """The frame with the columns ``mean``, ``std``, ``lower`` and ``upper`` of an observation at each row, partition by
    partition where it lies; of DataFusion, a reader of record batches. Rows with a gap have gaps there."""
    return _engine(frame).map(frame, partial(_answer, model, float(level)))


class _Dask:
    @staticmethod
    def numeric(frame: Any) -> list[str]:
        return list(frame._meta.select_dtypes(include=["number", "bool"]).columns)

    @staticmethod
    def select(frame: Any, columns: list[str]) -> Any:
        return frame[columns]

    @staticmethod
    def sample(frame: Any, rows: int, seed: int) -> Any:
        total = len(frame)
        share = min(1.0, 1.1 * rows / max(total, 1))
        return (frame if share == 1.0 else frame.sample(frac=share, random_state=seed)).compute().iloc[:rows]

    @staticmethod
    def sums(frame: Any, shape: bytes) -> bytes:
        import dask

        shape = dask.delayed(shape)
        level = [dask.delayed(gather)(shape, part) for part in frame.to_delayed()]
        while len(level) > 1:
            level = [dask.delayed(add)(level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        return level[0].compute()

    @staticmethod
    def map(frame: Any, answer: Any) -> Any:
        import dask

        meta = frame._meta.assign(**{name: np.empty(0) for name in _ANSWER})
        # The model is in the graph once, not in every task.
        return frame.map_partitions(_call, dask.delayed(answer), meta=meta)


def _call(table: Any, answer: Any) -> Any:
    return answer(table)


class _Spark:
    @staticmethod
    def numeric(frame: Any) -> list[str]:
        from pyspark.sql.types import BooleanType, NumericType

        return [f.name for f in frame.schema.fields if isinstance(f.dataType, (NumericType, BooleanType))]

    @staticmethod
    def select(frame: Any, columns: list[str]) -> Any:
        return frame.select([_Spark._column(name).cast("double").alias(name) for name in columns])

    @staticmethod
    def _column(name: str) -> Any:
        from pyspark.sql.functions import col

        return col("`" + name.replace("`", "``") + "`")

    @staticmethod
    def sample(frame: Any, rows: int, seed: int) -> Any:
        share = min(1.0, 1.1 * rows / max(frame.count(), 1))
        return (frame if share == 1.0 else frame.sample(share, seed)).limit(rows).toPandas()

    @staticmethod
    def sums(frame: Any, shape: bytes) -> bytes:
        level = frame.mapInArrow(partial(_spark_gather, shape), "sums binary")
        # A tree: the driver gets a few sums, however many partitions there are.
        count = _spark_partitions(frame)
        while count > _FAN_IN:
            count = -(-count // _FAN_IN)
            level = level.repartition(count).mapInArrow(_spark_add, "sums binary")
        return add(row[0] for row in level.collect())

    @staticmethod
    def map(frame: Any, answer: Any) -> Any:
        from pyspark.sql.types import DoubleType, StructField, StructType

        fields = [*frame.schema.fields, *(StructField(name, DoubleType()) for name in _ANSWER)]
        return frame.mapInArrow(partial(_arrow_answers, answer), StructType(fields))


def _spark_partitions(frame: Any) -> int:
    try:
        return frame.rdd.getNumPartitions()
    except Exception:  # Spark Connect has no RDDs
        from pyspark.sql.functions import spark_partition_id

        return frame.select(spark_partition_id()).distinct().count()


def _spark_gather(shape: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    yield _spark_row(gather(shape, batches))


def _spark_add(batches: Iterator[Any]) -> Iterator[Any]:
    parts = [part.as_py() for batch in batches for part in batch.column(0)]
    if parts:
        yield _spark_row(add(parts))


def _spark_row(sums: bytes) -> Any:
    import pyarrow

    return pyarrow.RecordBatch.from_pydict({"sums": pyarrow.array([sums], pyarrow.binary())})


class _Ray:
    @staticmethod
    def numeric(frame: Any) -> list[str]:
        import pyarrow.types as kinds

        schema = frame.schema()
        is_number = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal)
        return [n for n, t in zip(schema.names, schema.types) if any(test(t) for test in is_number)]

    @staticmethod
    def select(frame: Any, columns: list[str]) -> Any:
        return frame.select_columns(columns)

    @staticmethod
    def sample(frame: Any, rows: int, seed: int) -> Any:
        share = min(1.0, 1.1 * rows / max(frame.count(), 1))
        return (frame if share == 1.0 else frame.random_sample(share, seed=seed)).limit(rows).to_pandas()

    @staticmethod
    def sums(frame: Any, shape: bytes) -> bytes:
        from ray.data.aggregate import AggregateFn

        total = AggregateFn(
            init=lambda _: b"",
            accumulate_block=lambda sums, block: _plus(sums, gather(shape, block)),
            merge=_plus,
            name="sums",
        )
        return frame.aggregate(total)["sums"]

    @staticmethod
    def map(frame: Any, answer: Any) -> Any:
        return frame.map_batches(answer, batch_format="pandas")


def _plus(a: bytes, b: bytes) -> bytes:
    return b if not a else a if not b else add([a, b])


class _DataFusion:
    @staticmethod
    def numeric(frame: Any) -> list[str]:
        return _Ray.numeric(_Schema(frame.schema()))

    @staticmethod
    def select(frame: Any, columns: list[str]) -> Any:
        from datafusion import col

        return frame.select(*[col('"' + name.replace('"', '""') + '"') for name in columns])

    @staticmethod
    def sample(frame: Any, rows: int, seed: int) -> Any:
        # Every row draws a number, and those with the smallest stay: nothing but the sample is kept.
        rng, kept = np.random.default_rng(seed), None
        for batch in frame.execute_stream():
            part = batch.to_pyarrow().to_pandas()
            part = part.assign(__drawn=rng.random(len(part)))
            kept = (part if kept is None else _concat([kept, part])).nsmallest(rows, "__drawn")
        return frame.to_pandas() if kept is None else kept.drop(columns="__drawn")

    @staticmethod
    def sums(frame: Any, shape: bytes) -> bytes:
        from concurrent.futures import ThreadPoolExecutor

        def one(stream: Any) -> bytes:
            return gather(shape, (batch.to_pyarrow() for batch in stream))

        # The interpreter is released while rows are summed up.
        with ThreadPoolExecutor() as pool:
            return add(pool.map(one, frame.execute_stream_partitioned()))

    @staticmethod
    def map(frame: Any, answer: Any) -> Any:
        import pyarrow

        fields = [*frame.schema(), *(pyarrow.field(name, pyarrow.float64()) for name in _ANSWER)]
        batches = (batch.to_pyarrow() for batch in frame.execute_stream())
        return pyarrow.RecordBatchReader.from_batches(pyarrow.schema(fields), _arrow_answers(answer, batches))


class _Schema:
    """A schema as Ray Data gives it."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self.names, self.types = schema.names, schema.types

    def schema(self) -> _Schema:
        return self


_ENGINES = {"dask": _Dask, "pyspark": _Spark, "ray": _Ray, "datafusion": _DataFusion}


def _engine(frame: Any) -> Any:
    # Frames of newer Dask are defined in dask.dataframe.dask_expr, those of Spark in several modules of pyspark.
    library = type(frame).__module__.split(".")[0]
    engine = _ENGINES.get("dask" if library == "dask_expr" else library)
    if engine is None:
        kinds = "Dask, Spark, Ray Data or DataFusion"
        raise WiskiError(f"a frame of {kinds} is needed, not a {type(frame).__module__}.{type(frame).__qualname__}")
    return engine


# -- tables ----------------------------------------------------------------------------------------------------

_ANSWER = ("mean", "std", "lower", "upper")


def _rows(table: Any, inputs: list[str], target: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of the rows without a gap."""
    columns = [_column(table, name) for name in (*inputs, target)]
    whole = np.logical_and.reduce([~gaps for _, gaps in columns])
    X = np.column_stack([values[whole] for values, _ in columns[:-1]])
    return np.ascontiguousarray(X), np.ascontiguousarray(columns[-1][0][whole])


def _column(table: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A column as numbers, and where it has gaps. In pandas, NaN is how a gap is written."""
    if hasattr(table, "iloc"):
        values = table[name].to_numpy(dtype=np.float64, na_value=np.nan)
        return values, np.isnan(values)
    column = table.column(name)
    gaps = np.asarray(column.is_null(), dtype=bool)
    values = column.cast("double")
    values = values.fill_null(0.0) if gaps.any() else values
    return np.asarray(values, dtype=np.float64), gaps


def _answer(model: OnlineGPRegressor, level: float, table: Any) -> Any:
    """A pandas table with predictions."""
    columns = model._columns()
    X = np.column_stack([_column(table, name)[0] for name in columns]) if len(table) else np.empty((0, len(columns)))
    whole = np.isfinite(X).all(axis=1)
    answers = {name: np.full(len(table), np.nan) for name in _ANSWER}
    if whole.any():
        rows = _named(X[whole], columns) if hasattr(model, "feature_names_in_") else X[whole]
        answers["mean"][whole], answers["std"][whole] = model.predict(rows, return_std=True)
        answers["lower"][whole], answers["upper"][whole] = model.predict_interval(rows, level, horizon="ahead")[1].T
    return table.assign(**answers)


def _arrow_answers(answer: Any, batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow

    for batch in batches:
        answers = answer(batch.to_pandas())
        arrays = [pyarrow.array(answers[name].to_numpy(), mask=np.isnan(answers[name].to_numpy())) for name in _ANSWER]
        fields = [pyarrow.field(name, pyarrow.float64()) for name in _ANSWER]
        schema = pyarrow.schema([*batch.schema, *fields])
        yield pyarrow.RecordBatch.from_arrays([*batch.columns, *arrays], schema=schema)


def _named(X: np.ndarray, columns: list[str]) -> Any:
    import pandas

    return pandas.DataFrame(X, columns=columns)


def _named_series(y: np.ndarray, name: str) -> Any:
    import pandas

    return pandas.Series(y, name=name)


def _concat(tables: list[Any]) -> Any:
    import pandas

    return pandas.concat(tables, ignore_index=True)
