"""Changes of rows as records with Debezium's envelope.

Everything that depends on a table's shape is made once for each `CapturedTable`: the schemas, which stay the same
objects, and the functions that convert rows.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from strandline.cdc.envelope import (
    NEW_KEY,
    OLD_KEY,
    FixedSchemas,
    envelope_schema,
    key_schema,
    partial_row_schema,
    row_schema,
    transaction_block,
)
from strandline.cdc.model import (
    UNCHANGED,
    UNKNOWN,
    Absent,
    CapturedColumn,
    CapturedTable,
    Row,
    RowChange,
    TransactionPlace,
)
from strandline.cdc.names import TopicNames, field_name
from strandline.cdc.selection import KeyOnlyColumn, MaskedColumn
from strandline.cdc.settings import CdcConfig
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig
from strandline.connect.records import Header, SourceRecord
from strandline.connect.schema import Schema

TABLES_KEPT_MAX: Final = 10_000
"""Shapes of tables that are remembered."""
_CONTENT: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "bytes": lambda content: content,
    "base64": lambda content: base64.b64encode(content).decode(),
    "base64-url-safe": lambda content: base64.urlsafe_b64encode(content).decode(),
    "hex": bytes.hex,
}
_Field = tuple[int, str, Callable[[Any], Any], Any, Any]
"""Place of the column, name of the field, conversion, placeholder and what NULL becomes."""


class EventMaker:
    """Makes the records of a connector."""

    def __init__(
        self,
        config: CdcConfig,
        names: TopicNames,
        source_schema: Schema,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._config = config
        self._names = names
        self._source_schema = source_schema
        self._clock_ns = clock_ns
        self._skipped = config.skipped
        self._has_tombstones = config.tombstones_on_delete
        self._skips_unchanged = config.skip_messages_without_change
        self._fixed = FixedSchemas(source_schema, config.schema_name_adjustment_mode, config.binary_handling_mode)
        self._tables: dict[int, tuple[CapturedTable, _TableEvents]] = {}

    def change(self, change: RowChange) -> list[SourceRecord]:
        """Return the records of a change: none if its operation is skipped, three if the key changed."""
        op = change.op
        if op in self._skipped:
            return []
        found = self._tables.get(id(change.table))
        table = self._events_of(change.table) if found is None else found[1]
        after, before = change.after, change.before
        if op in ("c", "r"):
            assert after is not None
            return [self._record(table, change, op, table.key(after, None), None, table.after(after, before))]
        if op == "t":
            return [self._record(table, change, op, None, None, None)]
        if op == "d":
            return self._deleted(table, change, table.deleted_key(before), ())
        assert after is not None
        if self._skips_unchanged and before is not None and table.is_same(before, after):
            return []
        return self._updated(table, change, before, after)

    def schemas(self, table: CapturedTable) -> tuple[Schema | None, Schema]:
        """Return the schemas of a table's keys and values, so that they can be registered before the first event."""
        found = self._events_of(table)
        return found.key_schema, found.envelope

    def message(
        self, prefix: str, content: bytes, source: Mapping[str, Any], place: TransactionPlace | None
    ) -> SourceRecord:
        """Return the record of a logical decoding message."""
        value = {
            "op": "m",
            "ts_ms": self._clock_ns() // 1_000_000,
            "source": _with_times(source),
            "transaction": _block(place),
            "message": {"prefix": prefix, "content": _CONTENT[self._config.binary_handling_mode](content)},
        }
        return SourceRecord(
            self._names.message,
            value,
            {"prefix": prefix},
            key_schema=self._fixed.message_key,
            value_schema=self._fixed.message,
        )

    def heartbeat(self) -> SourceRecord:
        """Return the record that says that the connector is alive."""
        return SourceRecord(
            self._names.heartbeat,
            {"ts_ms": self._clock_ns() // 1_000_000},
            {"serverName": self._config.topic_prefix},
            0,
            key_schema=self._fixed.heartbeat_key,
            value_schema=self._fixed.heartbeat,
        )

    def transaction_begin(self, id: str, ts_ms: int) -> SourceRecord:
        """Return the record that begins a transaction."""
        return self._transaction({"status": "BEGIN", "id": id, "ts_ms": ts_ms})

    def transaction_end(self, id: str, ts_ms: int, counts: Mapping[str, int]) -> SourceRecord:
        """Return the record that ends a transaction. `counts` has the events of each table."""
        collections = [{"data_collection": name, "event_count": count} for name, count in counts.items()]
        total = sum(counts.values())
        return self._transaction(
            {"status": "END", "id": id, "event_count": total, "data_collections": collections, "ts_ms": ts_ms}
        )

    def _transaction(self, value: dict[str, Any]) -> SourceRecord:
        return SourceRecord(
            self._names.transaction,
            {"event_count": None, "data_collections": None, **value},
            {"id": value["id"]},
            key_schema=self._fixed.transaction_key,
            value_schema=self._fixed.transaction,
        )

    def _updated(self, table: _TableEvents, change: RowChange, before: Row | None, after: Row) -> list[SourceRecord]:
        key = table.key(after, before)
        old_key = key if before is None else table.key(before, after)
        if old_key == key:
            old = None if before is None or not table.has_key(before) else table.before(before)
            return [self._record(table, change, "u", key, old, table.after(after, before))]
        schema = table.key_schema
        deleted = self._deleted(table, change, old_key, (Header(NEW_KEY, key, schema),))
        place = change.transaction
        if place is not None:
            # The key that is gone and the one that is new are two events.
            next_place = TransactionPlace(place.id, place.total_order + 1, place.data_collection_order + 1)
            change = replace(change, transaction=next_place)
        created = self._record(table, change, "c", key, None, table.after(after, before))
        created.headers = (Header(OLD_KEY, old_key, schema),)
        return [*deleted, created]

    def _deleted(
        self, table: _TableEvents, change: RowChange, key: dict[str, Any] | None, headers: Sequence[Header]
    ) -> list[SourceRecord]:
        before = change.before
        old = None if before is None or not table.has_key(before) else table.before(before)
        event = self._record(table, change, "d", key, old, None)
        event.headers = headers
        # A tombstone without a key deletes nothing.
        if not self._has_tombstones or key is None:
            return [event]
        tombstone = SourceRecord(table.topic, None, key, headers=headers, key_schema=table.key_schema)
        return [event, tombstone]

    def _record(
        self,
        table: _TableEvents,
        change: RowChange,
        op: str,
        key: dict[str, Any] | None,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
    ) -> SourceRecord:
        now = self._clock_ns()
        source = change.source
        value = {
            "before": before,
            "after": after,
            "source": source if "ts_ns" in source else _with_times(source),
            "transaction": None if change.transaction is None else _block(change.transaction),
            "op": op,
            "ts_ms": now // 1_000_000,
            "ts_us": now // 1_000,
            "ts_ns": now,
        }
        # By position, which is faster than by name.
        return SourceRecord(
            table.topic, value, key, None, None, (), None if key is None else table.key_schema, table.envelope
        )

    def _events_of(self, table: CapturedTable) -> _TableEvents:
        found = self._tables.get(id(table))
        if found is not None:
            return found[1]
        made = _TableEvents(table, self._names.table(table), self._config, self._source_schema)
        if len(self._tables) >= TABLES_KEPT_MAX:
            self._tables.clear()
        # The table is kept too: otherwise another one could get its id.
        self._tables[id(table)] = table, made
        return made


class _TableEvents:
    """What one shape of a table needs for its events."""

    def __init__(self, table: CapturedTable, topic: str, config: CdcConfig, source: Schema) -> None:
        self.topic: Final = topic
        self._table = table
        adjustment = config.schema_name_adjustment_mode
        adjusted = _adjusted(table, config.field_name_adjustment_mode)
        by_name = {each.name: (at, each) for at, each in enumerate(table.columns) if each is not None}
        absent = next((each for each in table.key if each not in by_name), None)
        if absent is not None:
            raise InvalidConnectorConfig(
                f"the column {absent} of the key of {table.full_name} is left out: take it out of column.exclude.list, "
                "or name another key in message.key.columns"
            )
        keys = [(at, _plain(column)) for at, column in (by_name[each] for each in table.key)]
        rows = [(at, each) for at, each in by_name.values() if not isinstance(each, KeyOnlyColumn)]
        self._key_fields = [_field(at, each, adjusted[each.name]) for at, each in keys]
        self._row_fields = [_field(at, each, adjusted[each.name]) for at, each in rows]
        self.key: Final = _conversion(self._key_fields) if keys else _without_key
        """Makes the key of a row. What the row does not have is that of the other row of the same change."""
        self.after: Final = _conversion(self._row_fields)
        """Makes the fields of a row. What it does not have is that of the row before, if there is one."""
        key_types = {adjusted[each.name]: each.schema for _, each in keys}
        self.key_schema: Final = key_schema(topic, key_types, adjustment) if keys else None
        row = row_schema(topic, {adjusted[each.name]: each.schema for _, each in rows}, adjustment)
        partial = row if table.is_before_whole else partial_row_schema(row, key_types)
        self.envelope: Final = envelope_schema(topic, partial, row, source, adjustment)

    def deleted_key(self, before: Row | None) -> dict[str, Any] | None:
        """Return the key of a deleted row. Raise ConnectFailed if the database did not send it."""
        if self.key_schema is None:
            return None
        if before is None or not self.has_key(before):
            columns = ", ".join(self._table.key)
            raise ConnectFailed(
                f"the event of a deleted row of {self._table.full_name} lacks a column of its key ({columns}): set "
                "REPLICA IDENTITY FULL for the table, and skipped.operations=t,d until the connector is past this row"
            )
        return self.key(before, None)

    def has_key(self, row: Row) -> bool:
        """Return whether all columns of the key are known."""
        return all(row[each[0]] is not UNKNOWN for each in self._key_fields)

    def before(self, row: Row) -> dict[str, Any]:
        return self.after(row, None)

    def is_same(self, before: Row, after: Row) -> bool:
        """Return whether no captured column changed, as far as both rows are known."""
        if not self._table.is_before_whole:
            return False
        return all(after[at] is UNCHANGED or after[at] == before[at] for at, *_ in self._row_fields)


def _conversion(fields: Sequence[_Field]) -> Callable[[Row, Row | None], dict[str, Any]]:
    """Return a function that makes the fields of a row.

    Its source is generated, with a line for each column. It names no column, so no name can be code.
    """
    names: dict[str, Any] = {"Absent": Absent, "missing": _missing}
    lines = []
    for number, field in enumerate(fields):
        names |= {
            f"field{number}": field,
            f"name{number}": field[1],
            f"to{number}": field[2],
            f"null{number}": field[4],
        }
        lines.append(
            f"name{number}: null{number} if (value := row[{field[0]}]) is None "
            f"else to{number}(value) if value.__class__ is not Absent else missing(field{number}, value, other),"
        )
    body = "\n        ".join(lines)
    source = f"def convert(row, other):\n    return {{\n        {body}\n    }}\n"
    exec(compile(source, "<fields of a row>", "exec"), names)
    convert: Callable[[Row, Row | None], dict[str, Any]] = names["convert"]
    return convert


def _without_key(row: Row, other: Row | None) -> dict[str, Any] | None:
    return None


def _missing(field: _Field, value: Any, other: Row | None) -> Any:
    """Return the field of a value that the row does not have."""
    at, _, convert, placeholder, null = field
    if other is not None and other[at].__class__ is not Absent:
        return null if other[at] is None else convert(other[at])
    return placeholder if value is UNCHANGED else None


def _field(at: int, column: CapturedColumn, name: str) -> _Field:
    null = column.null if isinstance(column, MaskedColumn) else None
    return at, name, column.convert, column.placeholder, null


def _plain(column: CapturedColumn) -> CapturedColumn:
    return column.plain if isinstance(column, MaskedColumn) and column.plain is not None else column


def _adjusted(table: CapturedTable, mode: str) -> dict[str, str]:
    """Return the field of each column. Raise InvalidConnectorConfig if two columns would be one field."""
    found: dict[str, str] = {}
    owners: dict[str, str] = {}
    for each in table.columns:
        if each is None:
            continue
        made = found[each.name] = field_name(each.name, mode)
        other = owners.setdefault(made, each.name)
        if other != each.name:
            raise InvalidConnectorConfig(
                f"the columns {other} and {each.name} of {table.full_name} would both be the field {made}: leave one "
                "out with column.exclude.list, or use field.name.adjustment.mode=avro_unicode"
            )
    return found


def _block(place: TransactionPlace | None) -> dict[str, Any] | None:
    return None if place is None else transaction_block(place.id, place.total_order, place.data_collection_order)


def _with_times(source: Mapping[str, Any]) -> Mapping[str, Any]:
    if "ts_ns" in source:
        return source
    ts_us = source.get("ts_us", source["ts_ms"] * 1000)
    return {**source, "ts_us": ts_us, "ts_ns": ts_us * 1000}
