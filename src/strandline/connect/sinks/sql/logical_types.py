"""Debezium's types by the names of their schemas, and its placeholder for large values that did not change.

Fields of change events hold dates as days, timestamps as microseconds, JSON as text. A replica has to have dates,
timestamps and JSON again. Other schemas keep the values that they have.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from strandline.connect.convert.interface import SchemaCache
from strandline.connect.convert.logical import decimal_of
from strandline.connect.failures import RecordFailed
from strandline.connect.records import SinkRecord
from strandline.connect.schema import DECIMAL, SCALE, ConnectType, Schema
from strandline.connect.sinks.sql.columns import JsonText

PLACEHOLDER: Final = "__debezium_unavailable_value"
VARIABLE_SCALE: Final = "io.debezium.data.VariableScaleDecimal"
_NOTHING: Final[frozenset[str]] = frozenset()
_HEX: Final = "hex:"
_SIGN_BIT: Final = 128
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_JSON: Final = "io.debezium.data.Json"
_UUID: Final = "io.debezium.data.Uuid"

Convert = Callable[[Any], Any]


def _clock(microseconds: int) -> time:
    if not 0 <= microseconds < 86_400_000_000:
        raise ValueError("no time of a day")
    return (_EPOCH + timedelta(microseconds=microseconds)).time()


def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _variable(value: Mapping[str, Any]) -> Decimal:
    return decimal_of(value["value"], value["scale"])


_CONVERT: Final[dict[str, Convert]] = {
    "io.debezium.time.Date": lambda value: date.fromordinal(_EPOCH_DAY + value),
    "io.debezium.time.Time": lambda value: _clock(value * 1000),
    "io.debezium.time.MicroTime": _clock,
    "io.debezium.time.NanoTime": lambda value: _clock(value // 1000),
    "io.debezium.time.Timestamp": lambda value: _moment(value * 1000),
    "io.debezium.time.MicroTimestamp": _moment,
    "io.debezium.time.NanoTimestamp": lambda value: _moment(value // 1000),
    "io.debezium.time.ZonedTimestamp": datetime.fromisoformat,
    "io.debezium.time.IsoDate": lambda value: date.fromisoformat(value.removesuffix("Z")),
    "io.debezium.time.IsoTime": lambda value: time.fromisoformat(value.removesuffix("Z")),
    "io.debezium.time.IsoTimestamp": datetime.fromisoformat,
    _JSON: JsonText,
    VARIABLE_SCALE: _variable,
}


def conversion_of(schema: Schema) -> Convert | None:
    """Return what makes the value of a column of a field; None if it stays as it is."""
    found = _CONVERT.get(schema.name or "")
    if found is None and schema.kind is ConnectType.ARRAY and schema.value_schema is not None:
        inner = conversion_of(schema.value_schema)
        if inner is not None:
            return lambda values: [None if each is None else inner(each) for each in values]
    return found


def default_of(schema: Schema) -> Any:
    """Return the default of a field as a value of its column; None without one."""
    convert = conversion_of(schema)
    if schema.default is None or convert is None:
        return schema.default
    try:
        return convert(schema.default)
    except (ValueError, OverflowError, TypeError, KeyError):
        return None


class RowValues:
    """Converts the fields of records, and finds those that have the placeholder."""

    def __init__(self, placeholder: str) -> None:
        self._raw = bytes.fromhex(placeholder[len(_HEX) :]) if placeholder.startswith(_HEX) else placeholder.encode()
        self._text = self._raw.decode(errors="replace")
        self._plans: SchemaCache[_Plan] = SchemaCache(self._plan)

    def converted(self, record: SinkRecord, schema: Schema | None, value: Any) -> Any:
        """Return a value that has no fields."""
        convert = None if schema is None or value is None else conversion_of(schema)
        return value if convert is None else _applied(record, convert, "value", value)

    def stay(self, schema: Schema | None, values: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether all fields of structs of one schema are the values of their columns, as they are."""
        if schema is None or not schema.fields:
            return not self._raw or not any(self._text in each.values() for each in values)
        plan = self._plans(schema)
        try:
            return not plan.converts and all(
                {each.get(name) for each in values}.isdisjoint(marks) for name, marks in plan.marks
            )
        except TypeError:
            # A map or an array, which is compared one by one.
            return False

    def fields(
        self, record: SinkRecord, schema: Schema | None, fields: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], frozenset[str]]:
        """Return the fields of a struct without those that have the placeholder, and the names of the latter."""
        if schema is None or not schema.fields:
            if self._raw and self._text in fields.values():
                unchanged = frozenset(name for name, value in fields.items() if value == self._text)
                return {name: value for name, value in fields.items() if name not in unchanged}, unchanged
            return fields, _NOTHING
        plan = self._plans(schema)
        unchanged = _NOTHING
        if plan.marks:
            found = [name for name, marks in plan.marks if fields.get(name) in marks]
            if found:
                unchanged = frozenset(found)
                fields = {name: value for name, value in fields.items() if name not in unchanged}
        if not plan.converts:
            return fields, unchanged
        changed = dict(fields)
        for name, convert in plan.converts:
            value = changed.get(name)
            if value is not None:
                changed[name] = _applied(record, convert, name, value)
        return changed, unchanged

    def _plan(self, schema: Schema) -> _Plan:
        plan = _Plan()
        for field in schema.fields:
            convert = conversion_of(field.schema)
            if convert is not None:
                plan.converts.append((field.name, convert))
            marks = self._marks(field.schema) if self._raw else []
            if marks:
                plan.marks.append((field.name, marks))
        return plan

    def _marks(self, schema: Schema) -> list[Any]:
        """Return what stands for a value that was not sent, in a field of this schema."""
        raw, text = self._raw, self._text
        match schema.kind:
            case ConnectType.STRING:
                shown = json.dumps({text: text}, ensure_ascii=False, separators=(",", ":"))
                encoded = (base64.b64encode(raw), base64.urlsafe_b64encode(raw), raw.hex().encode())
                return [text, *([shown] if schema.name == _JSON else []), *(each.decode() for each in encoded)]
            case ConnectType.BYTES if schema.name == DECIMAL:
                scale = int(schema.parameters.get(SCALE, "0"))
                return [decimal_of(raw, scale)]
            case ConnectType.BYTES:
                return [raw]
            case ConnectType.STRUCT:
                return [{"scale": 0, "value": raw}, {"wkb": raw, "srid": None}]
            case ConnectType.MAP:
                return [{text: text}]
            case ConnectType.ARRAY if schema.value_schema is not None:
                digest = hashlib.md5(raw, usedforsecurity=False).digest()
                numbers = [each - 2 * (each & _SIGN_BIT) for each in raw]
                inner = self._marks(schema.value_schema)
                return [numbers, [str(uuid.UUID(bytes=digest, version=3))], *([each] for each in inner)]
        return []


class _Plan:
    """What is done with the fields of one schema."""

    def __init__(self) -> None:
        self.converts: list[tuple[str, Convert]] = []
        self.marks: list[tuple[str, list[Any]]] = []


def _applied(record: SinkRecord, convert: Convert, name: str, value: Any) -> Any:
    try:
        return convert(value)
    except (ValueError, OverflowError, TypeError, KeyError):
        raise RecordFailed(f"{record.place} has a {name} that no column can hold: {value!r:.100}", record) from None
