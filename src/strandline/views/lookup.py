"""One key: in the log's tail, else in the row group of a snapshot that it must lie in."""

from __future__ import annotations

import base64
import struct
import zlib
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from strandline.client.partitioner import murmur2
from strandline.views.columns import equal_sql, key_bytes, rows_sql
from strandline.views.definition import ViewDefinition
from strandline.views.querying import run
from strandline.views.snapshots import HeldSnapshot
from strandline.views.state import ViewState


def found_rows(
    connection: duckdb.DuckDBPyConnection, definition: ViewDefinition, state: ViewState, values: Mapping[str, Any]
) -> pa.Table:
    """The row of a key, as a table of one row or none."""
    record: tuple[bytes, bytes] | None = None
    for key in key_bytes(definition, values):
        value = _newest_value(connection, state, key)
        if value is not None:
            record = (key, value)
            break
    if record is None and (not definition.has_plain_key or None in values.values()):
        # JSON has several ways to write one number; what is left is to compare what they mean.
        equal, parameters = equal_sql(definition, values)
        return run(connection, f"FROM {state.rows_sql(definition)} WHERE {equal}", parameters)
    # Not as a table of Arrow: making one loads pandas, which takes longer than all else.
    source = f"(SELECT ?::BLOB AS _key, ?::BLOB AS _value{'' if record else ' WHERE false'})"
    return run(connection, rows_sql(definition, source), record or (b"", b""))


def _newest_value(connection: duckdb.DuckDBPyConnection, state: ViewState, key: bytes) -> bytes | None:
    """Of the key's record in the tail of the log, or else in the snapshot.

    A key that two partitions have, because partitions were added or producers disagree, is taken where it is newest in
    the tail, and in a snapshot from where a producer would put it now.
    """
    told = connection.execute(
        f"SELECT _partition, _offset, _value FROM {state.fold.table} WHERE _key = ? ORDER BY _timestamp, _offset", [key]
    ).fetchall()
    if told:
        partition, offset, value = told[-1]
        return value if offset >= state.floors.get(partition, 0) else None
    if state.held is not None:
        for partition in _likely_first(key, sorted(state.held.snapshot.parts)):
            found = _in_snapshot(state.held, partition, key)
            if found is not None and found[0] >= state.floors.get(partition, 0):
                return found[1]
    return None


def _likely_first(key: bytes, partitions: list[int]) -> list[int]:
    """First where Kafka's producers put the key, then where librdkafka does by default."""
    bounds = struct.pack("=ii", 0, len(key))
    # Not by `pa.array`, which loads pandas.
    keys = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bounds), pa.py_buffer(key)])
    likely = (int(murmur2(keys)[0]) & 0x7FFFFFFF, zlib.crc32(key))
    homes = [each % len(partitions) for each in likely]
    return list(dict.fromkeys([each for each in homes if each in partitions] + partitions))


def _in_snapshot(held: HeldSnapshot, partition: int, key: bytes) -> tuple[int, bytes] | None:
    """Offset and value."""
    part = held.snapshot.parts[partition]
    # base64 does not keep the order of bytes, so what is compared is what it stands for.
    group = bisect_right(part.first_keys, key, key=base64.b64decode) - 1
    if group < 0:
        return None
    file = held.file(partition)
    # It is a few pages: to hand them to threads takes longer than to read them.
    at = _position(file.read_row_group(group, columns=["_key"], use_threads=False).column(0), key)
    if at is None:
        return None
    row = file.read_row_group(group, columns=["_offset", "_value"], use_threads=False).slice(at, 1)
    return row.column("_offset")[0].as_py(), row.column("_value")[0].as_py()


def _position(keys: pa.ChunkedArray, key: bytes) -> int | None:
    """By halves: a row group is sorted."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() < key:
            low = middle + 1
        else:
            high = middle
    return low if low < len(keys) and keys[low].as_py() == key else None
