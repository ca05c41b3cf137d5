"""One key: in the log's tail, else in the row group of a snapshot that it must lie in."""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from strandline.views.columns import key_bytes, rows_sql
from strandline.views.definition import ViewDefinition
from strandline.views.querying import run
from strandline.views.schema import quoted
from strandline.views.snapshots import HeldSnapshot
from strandline.views.state import ViewState

_Record = tuple[int, int, bytes | None]
"""Time, offset, value."""


def found_rows(
    connection: duckdb.DuckDBPyConnection, definition: ViewDefinition, state: ViewState, values: Mapping[str, Any]
) -> pa.Table:
    """The row of a key, as a table of one row or none.

    Where two partitions have the key, because partitions were added or a producer chose otherwise, the newer counts.
    """
    record: tuple[bytes, bytes] | None = None
    for key in key_bytes(definition, values):
        newest = max(_records(connection, state, key), default=None, key=lambda each: each[:2])
        if newest is not None and newest[2] is not None:
            record = (key, newest[2])
            break
    if record is None and not definition.has_plain_key:
        # JSON has several ways to write one number; what is left is to compare what they mean.
        equal = " AND ".join(f"{quoted(each.name)} = ?::{each.duckdb_type}" for each in definition.key_columns)
        return run(connection, f"FROM {state.rows_sql(definition)} WHERE {equal}", tuple(values.values()))
    # Not as a table of Arrow: making one loads pandas, which takes longer than all else.
    source = f"(SELECT ?::BLOB AS _key, ?::BLOB AS _value{'' if record else ' WHERE false'})"
    return run(connection, rows_sql(definition, source), record or (b"", b""))


def _records(connection: duckdb.DuckDBPyConnection, state: ViewState, key: bytes) -> list[_Record]:
    """The newest record of the key in each partition that has one."""
    told = connection.execute(
        f"SELECT _partition, epoch_ms(_timestamp), _offset, _value FROM {state.fold.table} WHERE _key = ?", [key]
    ).fetchall()
    found: dict[int, _Record] = {partition: (time_ms, offset, value) for partition, time_ms, offset, value in told}
    if state.held is not None:
        for partition in sorted(state.held.snapshot.parts):
            if partition not in found and (record := _in_snapshot(state.held, partition, key)) is not None:
                found[partition] = record
    return [each for partition, each in found.items() if each[1] >= state.floors.get(partition, 0)]


def _in_snapshot(held: HeldSnapshot, partition: int, key: bytes) -> _Record | None:
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
    rest = file.read_row_group(group, columns=["_offset", "_timestamp", "_value"], use_threads=False)
    row: dict[str, Any] = rest.slice(at, 1).to_pylist()[0]
    return int(row["_timestamp"].timestamp() * 1000), row["_offset"], row["_value"]


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
