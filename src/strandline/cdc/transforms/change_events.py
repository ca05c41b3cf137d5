"""What the transforms have in common: change events with and without a schema, and their parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from strandline.connect.failures import RecordFailed
from strandline.connect.records import ConnectRecord
from strandline.connect.schema import ConnectType, Schema

ENVELOPE_SUFFIX: Final = ".Envelope"
_TRANSACTION_FIELDS: Final = frozenset({"id", "total_order", "data_collection_order"})
_OWN_FIELDS: Final = frozenset({"op", "ts_ms", "ts_us", "ts_ns"})


def is_change_event(record: ConnectRecord) -> bool:
    """Return whether a record is the event of a row. Heartbeats, transactions and messages are none."""
    schema, value = record.value_schema, record.value
    if schema is not None:
        return schema.name is not None and schema.name.endswith(ENVELOPE_SUFFIX)
    return (
        isinstance(value, dict)
        and isinstance(value.get("op"), str)
        and isinstance(value.get("source"), dict)
        and ("after" in value or "before" in value)
    )


def parts_of(record: ConnectRecord) -> Mapping[str, Any]:
    """Return the value of a change event. Raise RecordFailed if it is no struct."""
    value = record.value
    if not isinstance(value, dict) or not isinstance(value.get("op"), str):
        raise RecordFailed(
            f"the record has the schema of a change event, but its value has no field op: {value!r:.100}", record
        )
    return value


def row_of(record: ConnectRecord, side: str) -> tuple[Schema | None, dict[str, Any] | None]:
    """Return `before` or `after` of a change event with its schema. Raise RecordFailed if it is no struct."""
    row = record.value.get(side)
    if row is not None and not isinstance(row, dict):
        raise RecordFailed(f"the field {side} of a change event is no struct: {row!r:.100}", record)
    if record.value_schema is None:
        return None, row
    field = record.value_schema.field(side)
    if field is None or field.schema.kind is not ConnectType.STRUCT:
        raise RecordFailed(f"the schema {record.value_schema.name} has no struct {side}", record)
    return field.schema, row


class FieldPlace(NamedTuple):
    """A field of an event that a setting names: `op`, `source.ts_ms`, `ts_ms:EVENT_TIME`."""

    struct: str | None
    field: str
    new_name: str

    def schema(self, envelope: Schema) -> Schema | None:
        """Return the schema of the field; None if the event has no such field."""
        found = _inner(envelope, self.struct, self.field)
        # Another transform may have put it into the event itself.
        return found if found is not None or self.struct is None else _inner(envelope, None, self.field)

    def value(self, event: Mapping[str, Any]) -> Any:
        """Return the value of the field; None if there is none."""
        inner = event if self.struct is None else event.get(self.struct)
        if isinstance(inner, dict) and self.field in inner:
            return inner[self.field]
        return event.get(self.field) if inner is not None else None

    def is_in(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event without a schema has the field."""
        inner = event if self.struct is None else event.get(self.struct)
        return (isinstance(inner, dict) and self.field in inner) or self.field in event


def _inner(envelope: Schema, struct: str | None, field: str) -> Schema | None:
    schema: Schema | None = envelope
    if struct is not None:
        parent = envelope.field(struct)
        schema = None if parent is None else parent.schema
    found = None if schema is None else schema.field(field)
    return None if found is None else found.schema


def field_places(names: list[str], prefix: str) -> Iterator[FieldPlace]:
    """Yield the fields that a list names."""
    for each in names:
        path, colon, alias = each.partition(":")
        first, dot, second = path.strip().partition(".")
        if not first:
            continue
        struct: str | None = first
        if not dot:
            second = first
            struct = "transaction" if first in _TRANSACTION_FIELDS else None if first in _OWN_FIELDS else "source"
        new_name = alias.strip() if colon else f"{first}_{second}" if dot else first
        yield FieldPlace(struct, second, f"{prefix}{new_name}")


def wrong_field_places(names: list[str]) -> str | None:
    """Return what is wrong with a list of fields."""
    wrong = next((each for each in names if each.count(":") > 1), None)
    return None if wrong is None else f"Unexpected field name: {wrong}"
