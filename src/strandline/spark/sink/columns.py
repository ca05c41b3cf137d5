"""The columns of a data frame that the sink writes: those of Spark's own Kafka sink.

| column | type | |
|---|---|---|
| `value` | string or binary | needed; null is a tombstone |
| `key` | string or binary | |
| `headers` | array of struct(key string, value binary) | |
| `topic` | string | needed without the option `topic`, which overrules it |
| `partition` | int | null lets the key decide |

Others are left out, as Spark does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.record_bytes import encode_header_column

SLICE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Rows that are encoded together: what Arrow joins must stay far below the 2 GiB that a column can hold."""

_TEXT: Final = ("string", "binary")
_TYPES: Final = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass(frozen=True)
class Rows:
    """Rows for one topic, column by column; what a data frame does not have is None."""

    topic: str
    values: pa.Array
    keys: pa.Array | None
    headers: pa.Array | None
    """Encoded, count first."""
    partitions: pa.Array | None


def check_columns(schema: Any, topic: str | None) -> None:
    """Refuse a data frame (its StructType) that cannot be written, before anything runs."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in types:
        raise SinkRefused(
            f"The data frame has no column value (it has {', '.join(types) or 'none'}): "
            "select one, as string or binary, for instance with to_json(struct('*')) AS value."
        )
    if topic is None and "topic" not in types:
        raise SinkRefused("No topic to write to: set the option topic, or select a column topic.")
    for name, allowed in _TYPES.items():
        if name in types and types[name] not in allowed:
            raise SinkRefused(
                f"The column {name} is {types[name]} and must be {' or '.join(allowed)}: cast it, or leave it out."
            )


def rows_of(batch: pa.RecordBatch, topic: str | None) -> Iterator[Rows]:
    """The rows of an Arrow batch in slices that are not too large, each for one topic."""
    slices = -(-batch.nbytes // SLICE_BYTES_MAX) or 1
    step = -(-batch.num_rows // slices)
    for first in range(0, batch.num_rows, step or 1):
        yield from _rows_by_topic(batch.slice(first, step), topic)


def _rows_by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[Rows]:
    if topic is not None:
        yield _rows(batch, topic)
        return
    topics = batch.column("topic")
    if topics.null_count:
        raise SinkRefused("The column topic is null in a row: fill it, or set the option topic for all rows.")
    names = pc.unique(topics).to_pylist()
    for name in names:
        yield _rows(batch if len(names) == 1 else batch.filter(pc.equal(topics, name)), name)


def _rows(batch: pa.RecordBatch, topic: str) -> Rows:
    names = batch.schema.names
    headers = batch.column("headers") if "headers" in names else None
    return Rows(
        topic,
        _binary(batch.column("value")),
        _binary(batch.column("key")) if "key" in names else None,
        encode_header_column(headers) if headers is not None and headers.null_count < len(headers) else None,
        batch.column("partition") if "partition" in names else None,
    )


def _binary(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())
