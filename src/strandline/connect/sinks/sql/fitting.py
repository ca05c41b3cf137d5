"""Rows fitted into a table: each value encoded for its column, and what the table lacks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.connect.failures import RecordFailed
from strandline.connect.records import SinkRecord
from strandline.connect.sinks.sql.columns import (
    ENCODERS,
    ColumnType,
    Misfit,
    element_of,
    encode_all,
    type_of_schema,
    type_of_value,
    wider,
)
from strandline.connect.sinks.sql.logical_types import default_of
from strandline.connect.sinks.sql.rows import Row, TableRows, schema_of
from strandline.connect.sinks.sql.tables import NewColumn, TableColumn, TableShape, WiderColumn


@dataclass(slots=True)
class Fitting:
    """Encoded values by column, in the order of the rows; useful if nothing is `added` and nothing `widened`."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    columns: dict[str, TableColumn] = field(default_factory=dict)
    fields: dict[str, list[str]] = field(default_factory=dict)
    """Names of the fields that a column comes from."""
    added: list[NewColumn] = field(default_factory=list)
    widened: list[WiderColumn] = field(default_factory=list)
    causes: list[SinkRecord] = field(default_factory=list)
    """A record for each column that is added or widened, for messages."""

    @property
    def is_complete(self) -> bool:
        return not self.added and not self.widened


def fit(table: TableRows, shape: TableShape, *, has_numeric: bool, only_named: bool) -> Fitting:
    """Encode rows for a table. `shape` has no columns if there is no table yet.

    With `only_named`, columns without a field in these rows are left alone; otherwise they become null, unless they
    have a default. Raise RecordFailed for a value that no change of the table makes room for.
    """
    fitting = Fitting()
    for name, names in _names(table, shape).items():
        values = _column(table.rows, names)
        column = shape.find(name)
        if column is None:
            _add(fitting, table, name, values, has_numeric)
            continue
        fitting.columns[column.name] = column
        fitting.fields[column.name] = names
        try:
            fitting.values[column.name] = encode_all(values, column.type)
        except Misfit:
            _widen(fitting, table, column, values, has_numeric)
    if not fitting.is_complete:
        return fitting
    for column in shape.columns:
        if column.name not in fitting.columns and not only_named and not column.has_default and not column.is_required:
            fitting.columns[column.name] = column
            fitting.values[column.name] = [None] * len(table.rows)
    _check_required(fitting, table, shape)
    return fitting


def _names(table: TableRows, shape: TableShape) -> dict[str, list[str]]:
    """Return the names of fields by the name of their column. Two fields of a record must not be one column."""
    seen: dict[str, SinkRecord] = {}
    for row in table.rows:
        if not seen.keys() >= row.fields.keys():
            for name in row.fields:
                seen.setdefault(name, row.record)
    found: dict[str, list[str]] = {}
    columns: dict[str, str] = {}
    for name, record in seen.items():
        if not isinstance(name, str) or not name or "\0" in name:
            raise RecordFailed(f"{record.place} has a field whose name no column can have: {name!r}", record)
        first = columns.setdefault(shape.fold(name), name)
        found.setdefault(first, []).append(name)
    for names in found.values():
        if len(names) > 1:
            for row in table.rows:
                if sum(each in row.fields for each in names) > 1:
                    raise RecordFailed(
                        f"{row.record.place} has the fields {' and '.join(names)}, which are one column here",
                        row.record,
                    )
    return found


def _column(rows: Sequence[Row], names: Sequence[str]) -> list[Any]:
    if len(names) == 1:
        (name,) = names
        return [row.fields.get(name) for row in rows]
    return [next((row.fields[name] for name in names if name in row.fields), None) for row in rows]


def _add(fitting: Fitting, table: TableRows, name: str, values: list[Any], has_numeric: bool) -> None:
    """Find the type of a column that the table lacks. Without a schema and with nulls only it is not yet known."""
    found: ColumnType | None = None
    scale: int | None = None
    cause: SinkRecord | None = None
    element: ColumnType | None = None
    default: Any = None
    for row, value in zip(table.rows, values, strict=True):
        schema = schema_of(row.record, table.keys, name) if name in row.fields else None
        if schema is None and value is None:
            continue
        try:
            needed, its_scale = (type_of_value(value), None) if schema is None else type_of_schema(schema)
        except Misfit:
            raise _unstorable(row.record, name, value) from None
        if needed == ColumnType.NUMERIC and its_scale is None and not has_numeric:
            needed = ColumnType.TEXT
        joined = needed if found is None else wider(found, needed) or wider(needed, found)
        if joined is None:
            raise _unstorable(row.record, name, value)
        found, cause = joined, cause or row.record
        scale = its_scale if scale is None or its_scale is None else max(scale, its_scale)
        if schema is not None:
            default = default_of(schema)
            if needed == ColumnType.ARRAY:
                element = element_of(schema) if element is None else wider(element, element_of(schema))
    if found is not None and cause is not None:
        fitting.added.append(NewColumn(name, found, scale, name in table.keys, element, default))
        fitting.causes.append(cause)


def _widen(fitting: Fitting, table: TableRows, column: TableColumn, values: list[Any], has_numeric: bool) -> None:
    """Find a type for a column and those values that do not fit into it."""
    kind = column.type
    cause: SinkRecord | None = None
    for row, value in zip(table.rows, values, strict=True):
        if value is None or _fits(value, kind):
            continue
        try:
            joined = wider(kind, type_of_value(value))
        except Misfit:
            joined = None
        if joined == ColumnType.DOUBLE and not _fits(value, joined):
            joined = ColumnType.NUMERIC
        if joined == ColumnType.NUMERIC and not has_numeric:
            joined = ColumnType.TEXT
        if joined is None or not _fits(value, joined):
            raise _unstorable(row.record, column.name, value, column.sql_type)
        kind, cause = joined, cause or row.record
    assert cause is not None
    fitting.widened.append(WiderColumn(column, kind))
    fitting.causes.append(cause)


def _fits(value: Any, kind: ColumnType) -> bool:
    try:
        ENCODERS[kind](value)
    except Misfit:
        return False
    return True


def _check_required(fitting: Fitting, table: TableRows, shape: TableShape) -> None:
    """Find a record without a value for a column that is NOT NULL, because the database would not name the record."""
    for column in shape.columns:
        if not column.is_required:
            continue
        values = fitting.values.get(column.name)
        if values is not None and None not in values:
            continue
        for index, row in enumerate(table.rows):
            if row.is_delete or column.name in row.unchanged:
                continue
            if values is None or values[index] is None:
                raise RecordFailed(
                    f"{row.record.place} has no {column.name}, and the column of {table.name} is NOT NULL without a "
                    "default",
                    row.record,
                )


def by_columns(
    rows: Sequence[Row], shape: TableShape, fitting: Fitting, chosen: Sequence[int]
) -> list[tuple[tuple[str, ...], bool, Sequence[int]]]:
    """Group rows by the columns that they set: one that has a default is set only where a record has the field.

    One that did not change is not set; a group says whether its rows have such a column.
    """
    optional = [each for each in shape.columns if each.has_default and each.name in fitting.columns]
    if not optional and not any(rows[index].unchanged for index in chosen):
        return [(tuple(fitting.columns), False, chosen)] if chosen else []
    found: dict[tuple[tuple[str, ...], bool], list[int]] = {}
    for index in chosen:
        left_out = {each.name for each in optional if _is_left_out(each, fitting, rows[index], index)}
        left_out |= rows[index].unchanged
        columns = tuple(name for name in fitting.columns if name not in left_out)
        found.setdefault((columns, bool(rows[index].unchanged)), []).append(index)
    return [(columns, is_partial, indexes) for (columns, is_partial), indexes in found.items()]


def _is_left_out(column: TableColumn, fitting: Fitting, row: Row, index: int) -> bool:
    if fitting.values[column.name][index] is not None:
        return False
    return not column.is_nullable or not any(name in row.fields for name in fitting.fields[column.name])


def _unstorable(record: SinkRecord, name: str, value: Any, sql_type: str | None = None) -> RecordFailed:
    shown = f"{value!r:.80}"
    where = "no column can hold" if sql_type is None else f"does not fit the column's type {sql_type}"
    return RecordFailed(f"{record.place} has {shown} in {name}, which {where}", record)
