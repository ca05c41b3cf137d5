"""Values with schemas to JSON text, byte for byte as Kafka's JsonConverter writes it.

A schema becomes a function for each of its types. That is faster than a tree of values for `json.dumps`, which also
writes numbers in another way than Java. A struct with all it holds is one function of generated source, for values that
have exactly its fields with the usual types; whatever else there is goes to the functions of the single types.
"""

from __future__ import annotations

import json
import math
import re
from binascii import b2a_base64
from collections.abc import Callable
from datetime import date, time
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from json.encoder import encode_basestring
from typing import Any, Final

from strandline.connect.convert.interface import SchemaCache
from strandline.connect.convert.java_text import base64_text, double_text, moment_text, single_text
from strandline.connect.convert.logical import (
    LOGICAL,
    days_of,
    is_number,
    scale_of,
    time_ms_of,
    timestamp_ms_of,
    unscaled_of,
)
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectType, Schema

Writer = Callable[[Any], str]

WHOLE: Final = {ConnectType.INT8: 8, ConnectType.INT16: 16, ConnectType.INT32: 32, ConnectType.INT64: 64}
"""Bits of whole numbers."""
_FLOATS: Final = {ConnectType.FLOAT32: single_text, ConnectType.FLOAT64: double_text}
_CONTROL: Final = re.compile(r"(\\\\)|(\\u00[0-9a-f]{2})")
_BEYOND: Final = re.compile("[\U00010000-\U0010ffff]")
_SMALL: Final = Context(prec=40, Emin=-40, Emax=40, traps=[Inexact, InvalidOperation, Overflow])
"""For decimals that are no longer than most."""
_PLAIN_DUMPS: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def quoted(text: str) -> str:
    """Return a text as JSON."""
    return _as_java(encode_basestring(text))


def _as_java(text: str) -> str:
    """Return JSON with control characters and those beyond 16 bits escaped as Java does.

    Keys must have the same bytes from each writer, because compaction and partitions go by the bytes.
    """
    if "\\u00" in text:
        text = _CONTROL.sub(lambda match: match[1] or f"\\u{match[2][2:].upper()}", text)
    return text if text.isascii() else _BEYOND.sub(_surrogates, text)


def _surrogates(match: re.Match[str]) -> str:
    code = ord(match[0]) - 0x10000
    return f"\\u{0xD800 + (code >> 10):X}\\u{0xDC00 + (code & 0x3FF):X}"


class JsonWriting:
    """Functions that write values of schemas."""

    def __init__(self, *, numeric_decimals: bool, replace_nulls: bool) -> None:
        self._numeric_decimals = numeric_decimals
        self._replace_nulls = replace_nulls
        self.writer: SchemaCache[Writer] = SchemaCache(self._fast)

    def text(self, schema: Schema | None, value: Any) -> str:
        """Return a value as JSON. Raise RecordFailed if it does not fit its schema."""
        return plain_text(value) if schema is None else self.writer(schema)(value)

    def _fast(self, schema: Schema) -> Writer:
        made = self._made(schema)
        return made if schema.kind is not ConnectType.STRUCT else _StructSource(self._made).function(schema, made)

    def _made(self, schema: Schema) -> Writer:
        write = self._logical(schema) or self._typed(schema)
        default = schema.default if self._replace_nulls else None

        def write_or_null(value: Any) -> str:
            if value is not None:
                return write(value)
            if default is not None:
                return write(default)
            if schema.optional:
                return "null"
            raise RecordFailed("Conversion error: null value for field that is required and has no default value")

        return write_or_null

    def _logical(self, schema: Schema) -> Writer | None:
        match schema.name:
            case str(name) if name == DATE:
                return lambda value: str(days_of(value))
            case str(name) if name == TIME:
                return lambda value: str(time_ms_of(value))
            case str(name) if name == TIMESTAMP:
                return lambda value: str(timestamp_ms_of(value))
            case str(name) if name == DECIMAL:
                return self._decimal(schema)
        return None

    def _decimal(self, schema: Schema) -> Writer:
        if self._numeric_decimals:
            return _number_text
        scale = scale_of(schema)

        def decimal(value: Any) -> str:
            try:
                shifted = _SMALL.scaleb(value, scale)
                number = int(shifted)
                is_exact = number == shifted and value.__class__ is Decimal
            except (ArithmeticError, TypeError, ValueError):
                is_exact = False
            if not is_exact:
                return f'"{base64_text(unscaled_of(value, scale))}"'
            length = (number + (number < 0)).bit_length() // 8 + 1
            return f'"{b2a_base64(number.to_bytes(length, "big", signed=True), newline=False).decode()}"'

        return decimal

    def _typed(self, schema: Schema) -> Writer:
        match schema.kind:
            case ConnectType.BOOLEAN:
                return _boolean
            case ConnectType.STRING:
                return _string
            case ConnectType.BYTES:
                return _bytes
            case ConnectType.ARRAY:
                return self._array(schema)
            case ConnectType.MAP:
                return self._map(schema)
            case ConnectType.STRUCT:
                return self._struct(schema)
        return _whole(schema.kind) if schema.kind in WHOLE else _floating(schema.kind)

    def _array(self, schema: Schema) -> Writer:
        write = plain_text if schema.value_schema is None else self._made(schema.value_schema)

        def array(value: Any) -> str:
            if not isinstance(value, list | tuple):
                raise wrong_type("ARRAY", value)
            return f"[{','.join([write(each) for each in value])}]"

        return array

    def _map(self, schema: Schema) -> Writer:
        write_key = plain_text if schema.key_schema is None else self._made(schema.key_schema)
        write = plain_text if schema.value_schema is None else self._made(schema.value_schema)
        is_object = schema.key_schema is not None and schema.key_schema.kind is ConnectType.STRING

        def mapping(value: Any) -> str:
            if not isinstance(value, dict):
                raise wrong_type("MAP", value)
            if is_object:
                return f"{{{','.join([f'{write_key(key)}:{write(each)}' for key, each in value.items()])}}}"
            return f"[{','.join([f'[{write_key(key)},{write(each)}]' for key, each in value.items()])}]"

        return mapping

    def _struct(self, schema: Schema) -> Writer:
        fields = [(f"{quoted(each.name)}:", each.name, self._made(each.schema)) for each in schema.fields]
        names = frozenset(each.name for each in schema.fields)

        def struct(value: Any) -> str:
            if not isinstance(value, dict):
                raise wrong_type("STRUCT", value)
            if not value.keys() <= names:
                raise RecordFailed(f"the schema has no field {next(iter(value.keys() - names))!r}")
            get = value.get
            try:
                return f"{{{','.join([label + write(get(name)) for label, name, write in fields])}}}"
            except RecordFailed as error:
                raise RecordFailed(f"{error} (field {_failing(fields, value)!r})") from None

        return struct


class _StructSource:
    """Source of a function that writes a struct.

    Names of fields are never part of the source: it has only variables, so no name can be code.
    """

    def __init__(self, made: Callable[[Schema], Writer]) -> None:
        self._made = made
        self._names: dict[str, Any] = {
            "escaped": encode_basestring,
            "as_java": _as_java,
            "null": "null",
            "RecordFailed": RecordFailed,
        }
        self._lines: list[str] = []

    def function(self, schema: Schema, slow: Writer) -> Writer:
        """Return the function. `slow` takes what has other fields or types, and tells what is wrong."""
        self._names["slow"] = slow
        self._condition("if", "value", schema)
        text = self._struct("value", schema, "            ")
        body = "\n".join(self._lines)
        source = (
            f"def write(value):\n    try:\n{body}\n            return as_java({text})\n"
            f"    except (KeyError, RecordFailed):\n        pass\n    return slow(value)\n"
        )
        exec(compile(source, "<writer of a struct>", "exec"), self._names)
        write: Writer = self._names["write"]
        return write

    def _condition(self, word: str, variable: str, schema: Schema, indent: str = "        ") -> None:
        count = len(schema.fields)
        self._lines.append(f"{indent}{word} {variable}.__class__ is dict and len({variable}) == {count}:")

    def _struct(self, variable: str, schema: Schema, indent: str) -> str:
        """Add what the fields need before, and return the expression of the whole text."""
        parts = []
        for at, each in enumerate(schema.fields):
            label = f"{'{' if at == 0 else ','}{quoted(each.name)}:"
            parts.append(f"{{{self._name(label)}}}{{{self._field(variable, each.name, each.schema, indent)}}}")
        return f'f"{"".join(parts)}{{{self._name("}" if parts else "{}")}}}"'

    def _field(self, struct: str, name: str, schema: Schema, indent: str) -> str:
        """Return the expression of a field's text."""
        slow, value = self._name(self._made(schema)), f"{struct}[{self._name(name)}]"
        is_plain = schema.name not in LOGICAL
        other = f"null if a is None else {slow}(a)" if schema.optional and schema.default is None else f"{slow}(a)"
        if is_plain and schema.kind is ConnectType.STRING:
            return f"escaped(a) if (a := {value}).__class__ is str else {other}"
        if is_plain and schema.kind in WHOLE:
            limit = 1 << WHOLE[schema.kind] - 1
            return f"a if (a := {value}).__class__ is int and {-limit} <= a < {limit} else {other}"
        if schema.kind is not ConnectType.STRUCT:
            return f"{slow}({value})"
        inner, text = self._name(None), self._name(None)
        self._lines.append(f"{indent}{inner} = {value}")
        self._condition("if", inner, schema, indent)
        made = self._struct(inner, schema, f"{indent}    ")
        self._lines += [f"{indent}    {text} = {made}", f"{indent}else:", f"{indent}    {text} = {slow}({inner})"]
        return text

    def _name(self, value: Any) -> str:
        name = f"n{len(self._names)}"
        self._names[name] = value
        return name


def _failing(fields: list[tuple[str, str, Writer]], value: dict[str, Any]) -> str:
    """Return the first field that cannot be written."""
    for _, name, write in fields:
        try:
            write(value.get(name))
        except RecordFailed:
            return name
    return ""


def wrong_type(kind: str, value: Any) -> RecordFailed:
    """Return the failure of a value that has another type than its schema."""
    return RecordFailed(f"Invalid type for {kind}: {type(value).__name__}")


def plain_text(value: Any) -> str:
    """Return a value without a schema as JSON."""
    try:
        return _as_java(_PLAIN_DUMPS(value))
    except (TypeError, ValueError):
        return _any_text(value)


def _any_text(value: Any) -> str:
    """Return a value that holds what JSON has no form for: it is a text, or a number for a decimal."""
    match value:
        case list() | tuple():
            return f"[{','.join([_any_text(each) for each in value])}]"
        case dict():
            return f"{{{','.join([f'{quoted(str(key))}:{_any_text(each)}' for key, each in value.items()])}}}"
        case Decimal():
            return _number_text(value)
        case bytes():
            return _bytes(value)
        case float() if not math.isfinite(value):
            return f'"{double_text(value)}"'
        case date() | time():
            return f'"{moment_text(value)}"'
        case None | str() | bool() | int() | float():
            return _as_java(_PLAIN_DUMPS(value))
    raise RecordFailed(f"a value of type {type(value).__name__} has no corresponding schema type")


def _number_text(value: Any) -> str:
    if isinstance(value, Decimal) and value.is_finite():
        return str(value)
    if is_number(value):
        return str(value)
    raise RecordFailed(f"Invalid type for Decimal, expected Decimal but was {type(value).__name__} {value}")


def _boolean(value: Any) -> str:
    if not isinstance(value, bool):
        raise wrong_type("BOOLEAN", value)
    return "true" if value else "false"


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong_type("STRING", value)
    return quoted(value)


def _bytes(value: Any) -> str:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise wrong_type("BYTES", value)
    return f'"{base64_text(bytes(value))}"'


def _whole(kind: ConnectType) -> Writer:
    limit = 1 << WHOLE[kind] - 1

    def whole(value: Any) -> str:
        if not is_number(value):
            raise wrong_type(kind.name, value)
        if not -limit <= value < limit:
            raise RecordFailed(f"{value} does not fit into {kind.name}")
        return str(value)

    return whole


def _floating(kind: ConnectType) -> Writer:
    show = _FLOATS[kind]

    def floating(value: Any) -> str:
        if not isinstance(value, float) and not is_number(value):
            raise wrong_type(kind.name, value)
        return show(value) if math.isfinite(value) else f'"{show(value)}"'

    return floating
