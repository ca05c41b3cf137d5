"""Data files of Delta Lake: written by many processes, added to the table by one commit of another.

delta-rs writes files only together with their commit, so Parquet files, partition values and statistics are made here
after Delta's protocol. What its writer would have to check for each row (constraints, generated columns and the like)
is not checked here: tables that have such things are refused.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction

from strandline.connect.failures import ConnectFailed
from strandline.connect.sinks.lake.data_files import check_not_null
from strandline.connect.sinks.lake.lake_table import DataFile

FEATURES: Final = frozenset(
    (
        "appendOnly",
        "changeDataFeed",
        "deletionVectors",
        "domainMetadata",
        "invariants",
        "checkConstraints",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    )
)
"""Features of a table that ask nothing of a file of new rows, or that `_check_rules` looks at."""
_RULES: Final = frozenset(
    ("delta.invariants", "delta.generationExpression", "delta.identity.start", "delta.identity.step")
)
_ROW: Final = "__row"
_TEXT_MAX: Final = 32
"""Characters of a text in the statistics."""
_FLOAT_DIGITS: Final = 15
"""Digits that a number of JSON keeps."""
_WITH_BOUNDS: Final = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_decimal128,
)


def written(
    table: DeltaTable, handler: DeltaStorageHandler, name: str, rows: pa.Table, directory: str
) -> list[DataFile]:
    """Write rows to a file for each partition that they have."""
    _check_rules(table, name)
    schema = pa.schema(table.schema().to_arrow())
    check_not_null(name, schema, rows)
    store = pa_fs.PyFileSystem(handler)
    store.create_dir(directory)
    partitions = table.metadata().partition_columns
    made = []
    for values, part in _parts(rows, partitions):
        path = f"{directory}/{uuid.uuid4()}.parquet"
        pq.write_table(part, path, filesystem=store, compression="snappy", coerce_timestamps="us")
        size = store.get_file_info(path).size
        made.append(DataFile(path, len(part), size, str(table.metadata().id), (values, _statistics(part))))
    return made


def check_written_for(table: DeltaTable, name: str, files: Sequence[DataFile]) -> None:
    """Raise if files were written for another table of this name."""
    if any(each.table_id != str(table.metadata().id) for each in files):
        raise ConnectFailed(f"the table {name} was deleted and made again while its files were written: start again")


def commit(table: DeltaTable, files: Sequence[DataFile], properties: CommitProperties) -> None:
    """Add files to the table."""
    now_ms = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        AddAction(each.path, each.size_bytes, each.detail[0], now_ms, True, each.detail[1]) for each in files
    ]
    table.create_write_transaction(
        actions,
        "append",
        pa.schema(table.schema().to_arrow()),
        table.metadata().partition_columns,
        commit_properties=properties,
    )


def remove(handler: DeltaStorageHandler, paths: Collection[str]) -> None:
    """Remove files; another process may have done so before."""
    for each in paths:
        with suppress(FileNotFoundError):
            handler.delete_file(each)


def listed(handler: DeltaStorageHandler, directory: str) -> list[str]:
    """Return the files below a directory of the table."""
    selector = pa_fs.FileSelector(directory, recursive=True, allow_not_found=True)
    return [each.path for each in pa_fs.PyFileSystem(handler).get_file_info(selector) if each.is_file]


def named(table: DeltaTable, directory: str) -> set[str]:
    """Return the files below a directory that the table's version has."""
    paths = pa.table(table.get_add_actions()).column("path").to_pylist()
    return {each for each in paths if each.startswith(f"{directory}/")}


def _check_rules(table: DeltaTable, name: str) -> None:
    """Refuse a table whose rows have to be looked at by rules that are not known here."""
    metadata, protocol = table.metadata(), table.protocol()
    found = sorted(set(protocol.writer_features or ()) - FEATURES)
    found += sorted(each for each in metadata.configuration if each.startswith("delta.constraints."))
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        found.append("delta.columnMapping.mode")
    found += sorted({rule for each in table.schema().fields for rule in each.metadata if rule in _RULES})
    if found:
        raise ConnectFailed(f"files cannot be added to {name}, because the table has {', '.join(found)}")


def _parts(rows: pa.Table, partitions: Sequence[str]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yield the rows of each partition with its values; files do not have the columns of partitions."""
    if not partitions:
        yield {}, rows
        return
    numbered = rows.select(list(partitions)).append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
    groups = numbered.group_by(list(partitions), use_threads=False).aggregate([(_ROW, "list")])
    for group in groups.to_pylist():
        part = rows.take(pa.array(group.pop(f"{_ROW}_list"), pa.int64())).drop_columns(list(partitions))
        yield {name: _partition_value(group[name]) for name in partitions}, part


def _partition_value(value: Any) -> str | None:
    """Return a value as Delta's log writes it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return plain.isoformat(sep=" ", timespec="microseconds")
        case str() | int() | float() | Decimal() | date():
            return str(value)
        case _:
            raise ConnectFailed(f"{type(value).__name__} cannot be the type of a partition's column")


def _statistics(rows: pa.Table) -> str:
    """Return how many rows there are, and the bounds of each column, by which readers skip files.

    Bounds are there for all columns or for none: where one has none, deltalake's own `to_pyarrow_dataset` takes it for
    a column that holds no value, and a filter on it loses rows.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in rows.column_names:
        column = rows.column(name)
        bounds = _bounds(column)
        if bounds is None:
            return json.dumps({"numRecords": len(rows)})
        low[name], high[name], nulls[name] = *bounds, column.null_count
    return json.dumps({"numRecords": len(rows), "minValues": low, "maxValues": high, "nullCount": nulls})


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return the least and the greatest value as JSON has them; None if it has no such values."""
    kind = column.type
    if not any(each(kind) for each in _WITH_BOUNDS) or column.null_count == len(column):
        return None
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py():
        # NaN is above all others for some readers.
        return None
    found = pc.min_max(column).as_py()
    low, high = found["min"], found["max"]
    match low:
        case str():
            above = _not_below(high)
            return None if above is None else (low[:_TEXT_MAX], above)
        case datetime():
            return _moment(low), _moment(high)
        case date():
            return low.isoformat(), high.isoformat()
        case Decimal():
            return (float(low), float(high)) if kind.precision <= _FLOAT_DIGITS else None
    return low, high


def _not_below(text: str) -> str | None:
    """Return a short text that is not below this one; None if there is none."""
    if len(text) <= _TEXT_MAX:
        return text
    last = ord(text[_TEXT_MAX - 1]) + 1
    # The code points of surrogates are no text, and there is none above the last one.
    last = 0xE000 if 0xD800 <= last < 0xE000 else last
    return text[: _TEXT_MAX - 1] + chr(last) if last <= sys.maxunicode else None


def _moment(value: datetime) -> str:
    return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
