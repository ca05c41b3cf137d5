"""Rows of the target as digests, to be compared with those that records should be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from strandline.connect.failures import ConnectFailed
from strandline.connect.records import SinkRecord
from strandline.connect.sinks.sql.columns import ENCODERS, ColumnType, Misfit, canonical, decoded, type_of_value
from strandline.connect.sinks.sql.database import Database
from strandline.connect.sinks.sql.offsets import WrittenTables
from strandline.connect.sinks.sql.rows import RowMaker
from strandline.connect.sinks.sql.settings import SqlSinkConfig
from strandline.connect.sinks.sql.tables import TableColumn, TableName, TableShape
from strandline.connect.sinks.verifiable import ANY_DIGEST, ExpectedRow, TargetKey

DIGEST_BYTES: Final = 16


class RowComparison:
    """Reads the target. Columns that have a default are not compared, because records need not have them."""

    def __init__(self, config: SqlSinkConfig, database: Database, rows: RowMaker, written: WrittenTables) -> None:
        self._pk_fields = tuple(config.pk_fields)
        self._whitelist = frozenset(config.fields_whitelist)
        self._database = database
        self._rows = rows
        self._written = written
        self._shapes: dict[TableName, TableShape | None] = {}
        self._names: dict[str, TableName] = {}

    def forget_shapes(self) -> None:
        """Read tables again, because they may have changed."""
        self._shapes.clear()

    def expected(self, record: SinkRecord) -> ExpectedRow:
        """Return the row that a record should be."""
        name = self._rows.name(record.topic)
        keys, row = self._rows.row(record)
        if not keys:
            raise ConnectFailed("rows without a primary key cannot be compared: pk.mode is none")
        shape = self._shape(name)
        texts = {each: _text(value, shape, each) for each, value in row.fields.items() if value is not None}
        key = TargetKey(str(name), tuple(texts[each] for each in sorted(keys)))
        self._names[key.place] = name
        if row.is_delete:
            return ExpectedRow(key, None)
        if row.unchanged:
            return ExpectedRow(key, ANY_DIGEST)
        compared = {}
        for each, text in texts.items():
            column = None if shape is None else shape.find(each)
            if column is None or not column.has_default or each in keys:
                compared[each if column is None else column.name] = text
        return ExpectedRow(key, _digest(compared))

    def digests(self, keys: Collection[TargetKey]) -> Mapping[TargetKey, bytes]:
        """Return the digests of rows with these keys."""
        found: dict[TargetKey, bytes] = {}
        by_place: dict[str, list[TargetKey]] = {}
        for key in keys:
            by_place.setdefault(key.place, []).append(key)
        for place, wanted in by_place.items():
            name = self._names.get(place)
            shape = None if name is None else self._shape(name)
            if name is not None and shape is not None:
                columns = self._key_columns(name, shape)
                values = [
                    [decoded(key.key[index], column.type) for key in wanted] for index, column in enumerate(columns)
                ]
                found |= self._read(name, shape, columns, values)
        return found

    def scan(self) -> Iterator[tuple[TargetKey, bytes]]:
        """Yield every row of every table that the connector has written."""
        for name in self._written.all():
            self._names[str(name)] = name
            shape = self._shape(name)
            if shape is not None:
                yield from self._read(name, shape, [], [])

    def _read(
        self, name: TableName, shape: TableShape, keys: list[TableColumn], values: list[list[Any]]
    ) -> Iterator[tuple[TargetKey, bytes]]:
        key_columns = self._key_columns(name, shape)
        key_names = [each.name for each in key_columns]
        columns = [
            each
            for each in shape.columns
            if each.name in key_names
            or (not each.has_default and (not self._whitelist or each.name in self._whitelist))
        ]
        for row in self._database.rows(name, columns, keys, values):
            texts = {
                column.name: canonical(value, column.type)
                for column, value in zip(columns, row, strict=True)
                if value is not None
            }
            key = TargetKey(str(name), tuple(texts.get(each, "") for each in key_names))
            yield key, _digest(texts)

    def _key_columns(self, name: TableName, shape: TableShape) -> list[TableColumn]:
        names = shape.keys or self._pk_fields
        found = [shape.find(each) for each in sorted(names)]
        if not found or None in found:
            raise ConnectFailed(f"rows of {name} cannot be compared: it has no primary key")
        return [each for each in found if each is not None]

    def _shape(self, name: TableName) -> TableShape | None:
        if name not in self._shapes:
            self._shapes[name] = self._database.shape(name)
        return self._shapes[name]


def _text(value: Any, shape: TableShape | None, name: str) -> str:
    """Return the canonical text of a value for its column; for one that does not fit, that of its own type."""
    column = None if shape is None else shape.find(name)
    try:
        if column is not None:
            return canonical(ENCODERS[column.type](value), column.type)
    except Misfit:
        pass
    try:
        kind = type_of_value(value)
        return canonical(ENCODERS[kind](value), kind)
    except Misfit:
        return canonical(repr(value), ColumnType.TEXT)


def _digest(texts: Mapping[str, str]) -> bytes:
    shown = json.dumps(sorted(texts.items()), ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(shown.encode(), digest_size=DIGEST_BYTES).digest()
