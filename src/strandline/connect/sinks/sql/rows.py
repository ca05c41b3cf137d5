"""Records as rows of tables: their keys and fields, by pk.mode, and which record of a key counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.connect.failures import RecordFailed
from strandline.connect.records import SinkRecord
from strandline.connect.schema import Schema
from strandline.connect.sinks.sql.columns import json_text
from strandline.connect.sinks.sql.logical_types import RowValues
from strandline.connect.sinks.sql.settings import SqlSinkConfig
from strandline.connect.sinks.sql.tables import NameFormat, TableName

VALUE_COLUMN: Final = "value"
"""The column of a value that has no fields."""
KEY_COLUMN: Final = "id"
"""The column of a key that has no fields, unless pk.fields names another."""
KAFKA_COLUMNS: Final = ("__connect_topic", "__connect_partition", "__connect_offset")


@dataclass(slots=True)
class Row:
    """What a record is in its table. `fields` has the key's columns, too; that of a deletion has only these."""

    record: SinkRecord
    fields: Mapping[str, Any]
    is_delete: bool = False
    unchanged: frozenset[str] = frozenset()
    """Fields that the record has no value for, because it did not change: their columns are left as they are."""


@dataclass(slots=True)
class TableRows:
    """Rows of a batch for one table, all with the same columns as their key."""

    name: TableName
    keys: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)


class RowMaker:
    """Makes rows of records as the settings say."""

    def __init__(self, config: SqlSinkConfig, suffix: str = "") -> None:
        self._format = NameFormat(config.table_name_format, suffix)
        self._mode = config.pk_mode
        self._pk_fields = tuple(config.pk_fields)
        self._is_inserting = config.insert_mode == "insert"
        self._deletes = config.deletes
        self._whitelist = frozenset(config.fields_whitelist)
        self._has_own_key = self._mode == "record_value" and bool(self._pk_fields) and not self._whitelist
        self._names: dict[str, TableName] = {}
        # A table of every record has no older value that could stay.
        self._values = RowValues("" if self._is_inserting else config.unavailable_value_placeholder)

    def name(self, topic: str) -> TableName:
        """Return the table of a topic."""
        found = self._names.get(topic)
        if found is None:
            found = self._names[topic] = self._format.name(topic)
        return found

    def tables(self, records: Sequence[SinkRecord]) -> list[TableRows]:
        """Return the rows by table. Of a key only the last record is left, unless each is inserted.

        Raise RecordFailed for a record that has no row.
        """
        plain = self._plain(records)
        if plain is not None:
            return [plain]
        found: dict[tuple[TableName, tuple[str, ...]], dict[Any, Row]] = {}
        # By topic first, because texts are compared faster; several topics may have one table.
        by_topic: dict[tuple[str, tuple[str, ...]], dict[Any, Row]] = {}
        for record in records:
            keys, row = self.row(record)
            rows = by_topic.get((record.topic, keys))
            if rows is None:
                rows = by_topic[record.topic, keys] = found.setdefault((self.name(record.topic), keys), {})
            if self._is_inserting:
                rows[len(rows)] = row
            else:
                identity = self._identity(row, keys)
                # Behind those that came since: so the rows stay in the order of their last records.
                older = rows.pop(identity, None)
                rows[identity] = row if older is None or not row.unchanged else _completed(row, older)
        return [TableRows(name, keys, list(rows.values())) for (name, keys), rows in found.items()]

    def _plain(self, records: Sequence[SinkRecord]) -> TableRows | None:
        """Return the rows of a batch whose records are rows as they stand, as most are; None if it is not like that.

        Then one question to a column replaces one to each record.
        """
        if not self._has_own_key or self._is_inserting or len(self._pk_fields) > 1:
            return None
        values = [each.value for each in records]
        if set(map(type, values)) != {dict} or len({(each.topic, id(each.value_schema)) for each in records}) > 1:
            return None
        identities = [each.get(self._pk_fields[0]) for each in values]
        if not set(map(type, identities)) <= {int, str} or len(set(identities)) < len(identities):
            return None
        if not self._values.stay(records[0].value_schema, values):
            return None
        return TableRows(self.name(records[0].topic), self._pk_fields, list(map(Row, records, values)))

    def row(self, record: SinkRecord) -> tuple[tuple[str, ...], Row]:
        """Return the columns of a record's key, and its row."""
        value = record.value
        if value is None:
            if not self._deletes:
                raise RecordFailed(f"{record.place} has no value, and delete.enabled is false", record)
            key = self._key(record, {})
            return tuple(key), Row(record, key, is_delete=True)
        fields: Mapping[str, Any]
        unchanged: frozenset[str] = frozenset()
        if isinstance(value, dict):
            fields, unchanged = self._values.fields(record, record.value_schema, value)
        else:
            fields = {VALUE_COLUMN: self._values.converted(record, record.value_schema, value)}
        if self._has_own_key:
            # The columns of the key are among the fields already: a copy for each record would be a third of the work.
            for name in self._pk_fields:
                if fields.get(name) is None:
                    raise _without_key_column(record, name, "value")
            return self._pk_fields, Row(record, fields, unchanged=unchanged)
        key = self._key(record, fields)
        if self._whitelist:
            fields = {name: each for name, each in fields.items() if name in self._whitelist}
            unchanged &= self._whitelist
        return tuple(key), Row(record, {**fields, **key} if key else fields, unchanged=unchanged)

    def _key(self, record: SinkRecord, fields: Mapping[str, Any]) -> dict[str, Any]:
        match self._mode:
            case "none":
                return {}
            case "kafka":
                place = (record.original_topic or record.topic, record.original_partition, record.offset)
                return dict(zip(self._pk_fields or KAFKA_COLUMNS, place, strict=True))
            case "record_value":
                return self._chosen(record, fields, "value")
        key = record.key
        if key is None:
            raise RecordFailed(f"{record.place} has no key, which pk.mode=record_key needs", record)
        if isinstance(key, dict):
            return self._chosen(record, self._values.fields(record, record.key_schema, key)[0], "key")
        if len(self._pk_fields) > 1:
            raise RecordFailed(
                f"{record.place} has a key without fields, but pk.fields names {len(self._pk_fields)} columns", record
            )
        only = self._values.converted(record, record.key_schema, key)
        return {self._pk_fields[0] if self._pk_fields else KEY_COLUMN: only}

    def _chosen(self, record: SinkRecord, fields: Mapping[str, Any], what: str) -> dict[str, Any]:
        """Return the fields of the key; none may be null, because nulls are never equal."""
        chosen = {name: fields.get(name) for name in self._pk_fields or fields}
        if not chosen:
            raise RecordFailed(f"{record.place} has a {what} without fields, so there is no primary key", record)
        for name, value in chosen.items():
            if value is None:
                raise _without_key_column(record, name, what)
        return chosen

    def _identity(self, row: Row, keys: tuple[str, ...]) -> Any:
        """Return what is equal for records of one row. 1, 1.0 and True are equal in Python, but need not be here."""
        if len(keys) == 1:
            only = row.fields[keys[0]]
            if type(only) in (str, int):
                return only
        return tuple(
            (type(each).__name__, json_text(each) if isinstance(each, dict | list) else each)
            for each in map(row.fields.__getitem__, keys)
        )


def _without_key_column(record: SinkRecord, name: str, what: str) -> RecordFailed:
    return RecordFailed(f"{record.place} has no {name} in its {what}, a column of the primary key", record)


def _completed(row: Row, older: Row) -> Row:
    """Return a row with those values of an older one of the same key that did not change since."""
    if older.is_delete:
        raise RecordFailed(without_value(row), row.record)
    known = {name: older.fields[name] for name in row.unchanged if name in older.fields}
    return Row(row.record, {**known, **row.fields}, unchanged=row.unchanged - known.keys())


def without_value(row: Row) -> str:
    """Say that a value is needed that the source did not send."""
    return (
        f"{row.record.place} has no value of {', '.join(sorted(row.unchanged))}, which did not change, for a row that "
        f"is new here: run ALTER TABLE ... REPLICA IDENTITY FULL in the source's database, and update the row"
    )


def schema_of(record: SinkRecord, keys: tuple[str, ...], name: str) -> Schema | None:
    """Return the schema of the field that a column comes from; None without one."""
    for schema, is_key in ((record.key_schema, True), (record.value_schema, False)):
        if schema is None or (is_key and name not in keys):
            continue
        if schema.fields:
            found = schema.field(name)
            if found is not None:
                return found.schema
        elif is_key or name == VALUE_COLUMN:
            return schema
    return None
