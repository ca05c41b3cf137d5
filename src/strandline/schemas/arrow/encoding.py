"""Rows as Avro values: what Arrow has for a row in Python, by a schema.

A function is made for each type of the schema once, and called for each value. Defaults of a schema, which are JSON,
are written in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from struct import Struct
from typing import Any, Final

from strandline.schemas.avro.defaults import is_default_of
from strandline.schemas.avro.nodes import AvroNode
from strandline.schemas.payloads.wire_format import write_long

_FLOAT: Final = Struct("<f")
_DOUBLE: Final = Struct("<d")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_DAY: Final = date(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_RANGES: Final = {"int": 2**31, "long": 2**63}
_MILLIS: Final = ("timestamp-millis", "local-timestamp-millis")

Write = Callable[[bytearray, Any], None]


class DoesNotFit(Exception):
    """A row that is no value of the schema; one sentence without a full stop."""


def encoded(value: Any, node: AvroNode, *, is_default: bool = False) -> bytes:
    """Return a value in Avro's binary form. `is_default` says that it is JSON, as a schema has it for a default."""
    out = bytearray()
    writer_of(node, is_default=is_default)(out, value)
    return bytes(out)


def writer_of(node: AvroNode, *, is_default: bool = False) -> Write:
    """Return the function that writes values of a type."""
    return _Writers(is_default).of(node)


class _Writers:
    """The functions of one schema; a type that contains itself has one."""

    def __init__(self, is_default: bool) -> None:
        self._is_default = is_default
        self._known: dict[int, Write] = {}

    def of(self, node: AvroNode) -> Write:
        known = self._known.get(id(node))
        if known is None:
            # Found when it is called: by then it is there, also for a type inside itself.
            self._known[id(node)] = lambda out, value: self._known[id(node)](out, value)
            known = self._known[id(node)] = self._made(node)
        return known

    def _made(self, node: AvroNode) -> Write:
        match node.kind:
            case "null":
                return _write_null
            case "record" | "error":
                return self._record(node)
            case "union":
                return self._default_union(node) if self._is_default else self._union(node)
            case "array":
                assert node.items is not None
                return _array(self.of(node.items))
            case "map":
                assert node.items is not None
                return _map(self.of(node.items))
            case "boolean":
                return _write_boolean
            case "int" | "long":
                return _integer(node)
            case "float" | "double" as kind:
                return _real(_FLOAT if kind == "float" else _DOUBLE)
            case "string":
                return _write_text
            case "enum":
                return _enum(node)
        return _bytes(node, self._is_default)

    def _record(self, node: AvroNode) -> Write:
        fields = [(each.name, self.of(each.type), self._fallback(each)) for each in node.fields]

        def write(out: bytearray, value: Any) -> None:
            if not isinstance(value, Mapping):
                raise _wrong(value, node.name)
            for name, write_field, fallback in fields:
                if name not in value and fallback is not None:
                    out += fallback
                    continue
                try:
                    write_field(out, value.get(name))
                except DoesNotFit as error:
                    raise DoesNotFit(f"{name}: {error}") from None

        return write

    def _fallback(self, field: Any) -> bytes | None:
        return encoded(field.default, field.type, is_default=True) if field.has_default else None

    def _union(self, node: AvroNode) -> Write:
        """Null is its branch; one other type is what it is; of several the members of a struct are the branches."""
        null = next((number for number, each in enumerate(node.branches) if each.kind == "null"), None)
        others = [(number, self.of(each)) for number, each in enumerate(node.branches) if each.kind != "null"]

        def write(out: bytearray, value: Any) -> None:
            chosen = others[0] if len(others) == 1 else None
            if len(others) > 1 and isinstance(value, Mapping):
                said = [number for number in range(len(others)) if value.get(f"member{number}") is not None]
                value = value[f"member{said[0]}"] if len(said) == 1 else None
                chosen = others[said[0]] if len(said) == 1 else None
            if value is None and null is not None:
                write_long(null, out)
            elif chosen is None:
                raise _wrong(value, "struct of which one member is not null")
            else:
                write_long(chosen[0], out)
                chosen[1](out, value)

        return write

    def _default_union(self, node: AvroNode) -> Write:
        writers = [self.of(each) for each in node.branches]

        def write(out: bytearray, value: Any) -> None:
            number = next(at for at, each in enumerate(node.branches) if is_default_of(value, each))
            write_long(number, out)
            writers[number](out, value)

        return write


def _write_null(out: bytearray, value: Any) -> None:
    if value is not None:
        raise _wrong(value, "null")


def _write_boolean(out: bytearray, value: Any) -> None:
    if not isinstance(value, bool):
        raise _wrong(value, "boolean")
    out.append(value)


def _integer(node: AvroNode) -> Write:
    limit, logical = _RANGES[node.kind], node.properties.get("logicalType")
    unit = 1000 if logical in _MILLIS else 1

    def write(out: bytearray, value: Any) -> None:
        if isinstance(value, datetime):
            epoch = _LOCAL_EPOCH if value.tzinfo is None else _EPOCH
            value = (value - epoch) // _MICROSECOND // unit
        elif isinstance(value, date):
            value = (value - _FIRST_DAY).days
        if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
            raise _wrong(value, node.kind)
        write_long(value, out)

    return write


def _real(form: Struct) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong(value, "number")
        try:
            out += form.pack(value)
        except OverflowError:
            raise _wrong(value, "float") from None

    return write


def _write_text(out: bytearray, value: Any) -> None:
    if not isinstance(value, str):
        raise _wrong(value, "string")
    data = value.encode("utf-8", "surrogatepass")
    write_long(len(data), out)
    out += data


def _enum(node: AvroNode) -> Write:
    numbers = {symbol: number for number, symbol in enumerate(node.symbols)}

    def write(out: bytearray, value: Any) -> None:
        number = numbers.get(value) if isinstance(value, str) else None
        if number is None:
            raise _wrong(value, f"symbol of {node.name}")
        write_long(number, out)

    return write


def _bytes(node: AvroNode, is_default: bool) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if is_default and isinstance(value, str):
            value = value.encode("latin-1", "replace")
        elif isinstance(value, Decimal) and node.decimal is not None:
            value = _decimal_bytes(value, node)
        if not isinstance(value, bytes | bytearray):
            raise _wrong(value, node.label)
        if node.kind == "bytes":
            write_long(len(value), out)
        elif len(value) != node.size:
            raise _wrong(value, f"fixed of {node.size} bytes")
        out += value

    return write


def _decimal_bytes(value: Decimal, node: AvroNode) -> bytes:
    assert node.decimal is not None
    precision, scale = node.decimal
    scaled = value.scaleb(scale) if value.is_finite() else value
    if not scaled.is_finite() or scaled != scaled.to_integral_value() or abs(scaled) >= 10**precision:
        raise _wrong(value, f"decimal({precision},{scale})")
    number = int(scaled)
    size = node.size if node.kind == "fixed" else (number + (number < 0)).bit_length() // 8 + 1
    try:
        return number.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise _wrong(value, f"decimal in {size} bytes") from None


def _array(write_item: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, list):
            raise _wrong(value, "array")
        if value:
            write_long(len(value), out)
            for each in value:
                write_item(out, each)
        out.append(0)

    return write


def _map(write_item: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        # Arrow has a map as a list of pairs.
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list):
            raise _wrong(value, "map")
        if pairs:
            write_long(len(pairs), out)
            for key, each in pairs:
                _write_text(out, key)
                write_item(out, each)
        out.append(0)

    return write


def _wrong(value: Any, wanted: str) -> DoesNotFit:
    shown = "null" if value is None else f"{type(value).__name__} {str(value)[:80]!r}"
    return DoesNotFit(f"{shown} is no {wanted}")
