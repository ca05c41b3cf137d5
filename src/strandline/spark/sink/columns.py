"""Arrow batches to the columns that become records: one topic at a time, and not too many rows at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.record_bytes import encode_header_column

SLICE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Rows that are encoded together: what Arrow joins must stay far below the 2 GiB that a column can hold."""


@dataclass(frozen=True)
class TopicRows:
    """Rows for one topic, column by column; what a data frame does not have is None."""

    topic: str
    values: pa.Array
    keys: pa.Array | None
    headers: pa.Array | None
    """Encoded, count first."""
    partitions: pa.Array | None


def rows_of(batch: pa.RecordBatch, topic: str | None) -> Iterator[TopicRows]:
    """The rows of an Arrow batch in slices that are not too large, each for one topic."""
    slices = -(-batch.nbytes // SLICE_BYTES_MAX) or 1
    step = -(-batch.num_rows // slices)
    for first in range(0, batch.num_rows, step or 1):
        yield from _rows_by_topic(batch.slice(first, step), topic)


def _rows_by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[TopicRows]:
    if topic is not None:
        yield _rows(batch, topic)
        return
    topics = batch.column("topic")
    if topics.null_count:
        raise SinkRefused("The column topic is null in a row: fill it, or set the option topic for all rows.")
    names = pc.unique(topics).to_pylist()
    for name in names:
        yield _rows(batch if len(names) == 1 else batch.filter(pc.equal(topics, name)), name)


def _rows(batch: pa.RecordBatch, topic: str) -> TopicRows:
    names = batch.schema.names
    headers = batch.column("headers") if "headers" in names else None
    return TopicRows(
        topic,
        _binary(batch.column("value")),
        _binary(batch.column("key")) if "key" in names else None,
        encode_header_column(headers) if headers is not None and headers.null_count < len(headers) else None,
        batch.column("partition") if "partition" in names else None,
    )


def _binary(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())
