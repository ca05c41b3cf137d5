"""Columns of SQL databases as fields of Connect's schemas, and their values."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from strandline.connect import schema
from strandline.connect.schema import ConnectType, Schema, decimal_schema, struct

NUMERIC_MAPPINGS: Final = ("none", "precision_only", "best_fit", "best_fit_eager_double")
_LONG_DIGITS: Final = 18
"""The digits that always fit into 64 bits."""
_INTEGER_DIGITS: Final = (
    (2, ConnectType.INT8),
    (4, ConnectType.INT16),
    (9, ConnectType.INT32),
    (_LONG_DIGITS, ConnectType.INT64),
)
_RANGES: Final = {ConnectType.INT8: 2**7, ConnectType.INT16: 2**15, ConnectType.INT32: 2**31, ConnectType.INT64: 2**63}

Convert = Callable[[Any], Any]


class ValueInvalid(Exception):
    """A value that its column's type has no room for, in one sentence."""


@dataclass(frozen=True)
class SqlColumn:
    """A column: its name, the schema of its values, and what makes them of the driver's."""

    name: str
    schema: Schema
    convert: Convert
    is_guessed: bool = False
    """Whether the database did not tell its type, and no value has shown it yet."""

    def value(self, given: Any) -> Any:
        """Return a value as its schema has it. Raise ValueInvalid."""
        if given is None:
            return None
        try:
            return self.convert(given)
        except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
            raise ValueInvalid(f"column {self.name} has a {type(given).__name__} that does not fit: {error}") from None


@dataclass(frozen=True)
class ColumnRules:
    """What decides about columns beside their type."""

    numeric_mapping: str
    timezone: ZoneInfo
    """That of timestamps without a zone."""
    is_sqlite: bool

    def column(self, name: str, kind: TypeEngine[Any], *, optional: bool) -> SqlColumn:
        """Return the column of a type of SQLAlchemy."""
        found, convert = self._of_type(kind)
        return SqlColumn(name, found.as_optional() if optional else found, convert)

    def _of_type(self, kind: TypeEngine[Any]) -> tuple[Schema, Convert]:
        match kind:
            case sa.Boolean():
                return schema.BOOLEAN, _boolean
            case sa.Integer():
                return self._of_integer(kind)
            case sa.Float():
                return schema.FLOAT64, float
            case sa.Numeric():
                return self._of_numeric(kind)
            case sa.DateTime():
                return schema.TIMESTAMP_SCHEMA, self.instant
            case sa.Date():
                return schema.DATE_SCHEMA, _date
            case sa.Time():
                return schema.TIME_SCHEMA, _time
            case sa.LargeBinary() | sa.BINARY() | sa.VARBINARY():
                return schema.BYTES, _bytes
            case sa.ARRAY() if kind.dimensions in (None, 1):
                element, convert = self._of_type(kind.item_type)
                return schema.array(element.as_optional()), _each(convert)
            case sa.JSON():
                # SQLite's values come as they are stored, which is JSON already.
                return schema.STRING, _as_text if self.is_sqlite else _json
            case sa.String():
                return schema.STRING, _text
            case _:
                return schema.STRING, _as_text

    def _of_integer(self, kind: sa.Integer) -> tuple[Schema, Convert]:
        if getattr(kind, "unsigned", False) and isinstance(kind, sa.BigInteger):
            return decimal_schema(0), lambda value: _scaled(value, 0)
        if self.is_sqlite or isinstance(kind, sa.BigInteger) or getattr(kind, "unsigned", False):
            return schema.INT64, _integer(ConnectType.INT64)
        size = ConnectType.INT16 if isinstance(kind, sa.SmallInteger) else ConnectType.INT32
        return Schema(size), _integer(size)

    def _of_numeric(self, kind: sa.Numeric[Any]) -> tuple[Schema, Convert]:
        mapping, precision, scale = self.numeric_mapping, kind.precision, kind.scale
        if precision is not None and scale is None:
            scale = 0
        if scale is None or precision is None:
            # Digits of any number: a Decimal has a fixed scale, so only a text keeps all of them.
            return (schema.FLOAT64, float) if mapping == "best_fit_eager_double" else (schema.STRING, _digits)
        if mapping != "none" and scale == 0 and precision <= _LONG_DIGITS:
            size = next(size for digits, size in _INTEGER_DIGITS if precision <= digits)
            return Schema(size), _integer(size)
        is_double = mapping == "best_fit" and scale > 0 and precision <= _LONG_DIGITS
        if is_double or (mapping == "best_fit_eager_double" and scale > 0):
            return schema.FLOAT64, float
        return decimal_schema(scale), lambda value: _scaled(value, scale)

    def instant(self, value: Any) -> datetime.datetime:
        """Return a timestamp with a zone."""
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value)
        if not isinstance(value, datetime.datetime):
            raise TypeError("it is no timestamp")
        return value.replace(tzinfo=self.timezone) if value.tzinfo is None else value

    def inferred(self, name: str, value: Any) -> SqlColumn:
        """Return the column of a query's result by a value of it; a text, if that is null."""
        if value is None:
            return SqlColumn(name, schema.OPTIONAL_STRING, _as_text, is_guessed=True)
        for types, kind in _BY_VALUE:
            if isinstance(value, types):
                return self.column(name, kind, optional=True)
        return self.column(name, sa.types.NullType(), optional=True)


_BY_VALUE: Final[tuple[tuple[type, TypeEngine[Any]], ...]] = (
    (bool, sa.Boolean()),
    (int, sa.BigInteger()),
    (float, sa.Double()),
    (decimal.Decimal, sa.Numeric()),
    (datetime.datetime, sa.DateTime()),
    (datetime.date, sa.Date()),
    (datetime.time, sa.Time()),
    (bytes, sa.LargeBinary()),
    (str, sa.String()),
)


def struct_of(name: str, columns: Sequence[SqlColumn]) -> Schema:
    """Return the schema of rows."""
    return struct({each.name: each.schema for each in columns}, name=name)


def _integer(size: ConnectType) -> Convert:
    def convert(value: Any) -> int:
        number = int(value)
        if number != value or not -_RANGES[size] <= number < _RANGES[size]:
            raise ValueError(f"{value} is no number of type {size}")
        return number

    return convert


def _scaled(value: Any, scale: int) -> decimal.Decimal:
    number = decimal.Decimal(str(value)) if isinstance(value, float) else decimal.Decimal(value)
    if not number.is_finite():
        raise ValueError(f"{number} is no Decimal; numeric.mapping=best_fit_eager_double would take it")
    with decimal.localcontext(prec=max(decimal.getcontext().prec, len(number.as_tuple().digits) + abs(scale) + 2)):
        return number.quantize(decimal.Decimal(1).scaleb(-scale))


def _digits(value: Any) -> str:
    return str(value) if isinstance(value, float | int) else format(decimal.Decimal(value), "f")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise TypeError("it is no text")
    return str(value)


def _as_text(value: Any) -> str:
    """Return a value whose type Connect does not have."""
    if isinstance(value, dict | list):
        return _json(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return str(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _boolean(value: Any) -> bool:
    if value not in (0, 1):
        raise ValueError(f"{value!r} is no boolean")
    return bool(value)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(memoryview(value))


def _date(value: Any) -> datetime.date:
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, datetime.date):
        return value
    return datetime.date.fromisoformat(value)


def _time(value: Any) -> datetime.time:
    if isinstance(value, datetime.timedelta):
        if not datetime.timedelta() <= value < datetime.timedelta(days=1):
            raise ValueError("it is no time of a day")
        value = (datetime.datetime.min + value).time()
    elif isinstance(value, str):
        value = datetime.time.fromisoformat(value)
    return value  # type: ignore[no-any-return]


def _each(convert: Convert) -> Convert:
    return lambda values: [None if each is None else convert(each) for each in values]
