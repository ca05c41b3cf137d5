"""Columns to the bytes of records, a whole Arrow batch at a time: no Python object per record.

A record, all numbers zigzag varints:
    length | attributes int8 | timestampDelta | offsetDelta | keyLength key | valueLength value | headerCount header*
    header = keyLength key | valueLength value                                       a length of -1 stands for null

Arrow's own kernels do the work: varints are looked up in a column of ready ones, and all parts of a record are joined
to one. That needs no compiler and costs a tenth of what handing each record to a client library costs
(docs/decisions/0022-the-sink-has-its-own-producer.md). The timestamp delta is 0: a record's time is that of its batch,
which is open for a tenth of a second at most.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.codec.columns.encode import encode_varint
from strandline.spark.sink.failures import SinkRefused

READY_VARINTS_MAX = 20_000
"""Numbers that are looked up; a record that is longer is paid for by its bytes anyhow."""

_NULL_LENGTH = encode_varint(-1)
_ATTRIBUTES_AND_TIMESTAMP = pa.scalar(b"\x00\x00", pa.binary())
_NO_HEADERS = pa.scalar(b"\x00", pa.binary())
_NOTHING = pa.scalar(b"", pa.binary())
_NULL_AT = READY_VARINTS_MAX
"""Where the column of ready varints has the length of null."""


def lengths_of(column: pa.Array) -> Any:
    """How many bytes each row has, -1 for null."""
    return pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def encode_records(keys: pa.Array | None, values: pa.Array, headers: pa.Array | None, offset_deltas: Any) -> pa.Array:
    """The record of each row, as a column of bytes.

    `headers` are encoded already, count first; `offset_deltas` are the places of the rows in their batches.
    """
    value_lengths = lengths_of(values)
    key_lengths = np.full(len(values), -1, np.int64) if keys is None else lengths_of(keys)
    body_lengths = 2 + sum(
        varint_sizes(lengths) + np.maximum(lengths, 0)  # the varint of a null is one byte, as that of 0
        for lengths in (key_lengths, value_lengths)
    )
    body_lengths += varint_sizes(offset_deltas)
    body_lengths += 1 if headers is None else lengths_of(headers)
    return pc.binary_join_element_wise(
        _varints(body_lengths),
        _ATTRIBUTES_AND_TIMESTAMP,
        _varints(offset_deltas),
        *((_varints(key_lengths), keys) if keys is not None else (pa.scalar(_NULL_LENGTH, pa.binary()),)),
        _varints(value_lengths),
        values,
        _NO_HEADERS if headers is None else headers,
        _NOTHING,
        null_handling="replace",
        null_replacement="",
    )


def starts_and_bytes(column: pa.Array) -> tuple[Any, memoryview]:
    """Where each row of a column of binary begins, one more for the end, and the bytes."""
    _, starts, content = column.buffers()
    positions = np.frombuffer(starts, np.int32)[column.offset : column.offset + len(column) + 1]
    return positions, memoryview(content) if content is not None else memoryview(b"")


def encode_header_column(column: pa.Array) -> pa.Array:
    """Header counts and headers of each row, from lists of (key, value). Headers are rare, so this goes row by row."""
    return pa.array([_encode_headers(row or ()) for row in column.to_pylist()], pa.binary())


def varint_sizes(numbers: Any) -> Any:
    """Bytes that each number needs as a varint; -1 counts as one byte."""
    return 1 + (numbers >= 1 << 6) + (numbers >= 1 << 13) + (numbers >= 1 << 20) + (numbers >= 1 << 27)


def _encode_headers(row: Any) -> bytes:
    parts = [encode_varint(len(row))]
    for header in row:
        if header is None or header["key"] is None:
            raise SinkRefused(
                "A row has a header that is null, or without a key: a header's value may be null, its key may not."
            )
        key, value = header["key"].encode(), header["value"]
        parts += (encode_varint(len(key)), key)
        parts += (_NULL_LENGTH,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


@cache
def _ready_varints() -> pa.Array:
    return pa.array([*map(encode_varint, range(READY_VARINTS_MAX)), _NULL_LENGTH], pa.binary())


def _varints(numbers: Any) -> pa.Array:
    if len(numbers) and int(numbers.max()) >= READY_VARINTS_MAX:
        return pa.array([encode_varint(int(number)) for number in numbers], pa.binary())
    return _ready_varints().take(pa.array(np.where(numbers < 0, _NULL_AT, numbers)))
