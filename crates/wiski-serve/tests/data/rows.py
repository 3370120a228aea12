"""Writes rows.arrows, as pyarrow writes a stream: two batches, a dictionary, nulls, a column that no model knows.

    python rows.py            # pyarrow 26.0.1
"""

from pathlib import Path

import pyarrow as pa

rows = 60
a = [(i * 0.61803398875) % 1 for i in range(rows)]
table = pa.table(
    {
        "a": pa.array(a, pa.float64()),
        "count": pa.array([i % 7 for i in range(rows)], pa.int16()),
        "on": pa.array([i % 2 == 0 for i in range(rows)], pa.bool_()),
        "station": pa.array([["north", "south"][i % 3 == 0] for i in range(rows)]).dictionary_encode(),
        "remark": pa.array([None if i % 5 else f"row {i}" for i in range(rows)], pa.string()),
        "when": pa.array(range(rows), pa.timestamp("s")),
        "y": pa.array([v + (i % 7) / 10 + (i % 2 == 0) for i, v in enumerate(a)], pa.float32()),
    }
)
with pa.ipc.new_stream(Path(__file__).with_name("rows.arrows"), table.schema) as stream:
    stream.write_table(table, max_chunksize=40)
