"""Texts of headers: what type a text looks like, and values as texts. The rules are those of Connect's `Values`.

`42` is an int8, `3.5` a float, `2024-01-31` a date, `[1, 2]` an array and `{"a": 1}` a map. What is none of these, or
is malformed, is a string.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, time
from decimal import ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any, Final

from strandline.connect.convert.java_dates import JavaDateFormat
from strandline.connect.convert.java_text import base64_text, double_text, moment_text, single_text, to_single
from strandline.connect.convert.json_writing import WHOLE
from strandline.connect.convert.logical import DAY_MS, date_of, moment_of, time_of
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import (
    BOOLEAN,
    DATE_SCHEMA,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectType,
    Schema,
    decimal_schema,
)

Parsed = tuple[Schema, Any]

DIGITS_MAX: Final = 1000
"""Digits of a number; what is longer is a string."""
DEPTH_MAX: Final = 100
"""Arrays and maps inside each other. A header comes from any producer."""

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_DELIMITERS: Final = ':,{}[]"'
_RANKS: Final = (
    ConnectType.INT8,
    ConnectType.INT16,
    ConnectType.INT32,
    ConnectType.INT64,
    ConnectType.FLOAT32,
    ConnectType.FLOAT64,
)
"""Numbers, each of which takes those before it."""
_TIMES: Final = {
    len("HH:mm:ss.SSSZ"): (TIME_SCHEMA, JavaDateFormat("HH:mm:ss.SSS'Z'")),
    len("yyyy-MM-ddTHH:mm:ss.SSSZ"): (TIMESTAMP_SCHEMA, JavaDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")),
    len("yyyy-MM-dd"): (DATE_SCHEMA, JavaDateFormat("yyyy-MM-dd")),
}


def parse_text(text: str) -> tuple[Schema | None, Any]:
    """Return the schema and the value that a text looks like."""
    if not text:
        return STRING, text
    found = _Parser(text).value(embedded=False)
    return (None, None) if found is None else found


def header_text(schema: Schema | None, value: Any, *, embedded: bool = False) -> str:
    """Return a value as the text that a header has; inside an array or map, texts are quoted."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return (
                single_text(value) if schema is not None and schema.kind is ConnectType.FLOAT32 else double_text(value)
            )
        case int() | Decimal():
            return str(value)
        case str():
            return _quoted(value) if embedded else value
        case bytes():
            return f'"{base64_text(value)}"' if embedded else base64_text(value)
        case date() | time():
            return moment_text(value)
        case list() | tuple():
            inner = None if schema is None else schema.value_schema
            return f"[{','.join(header_text(inner, each, embedded=True) for each in value)}]"
        case dict():
            pairs = ((_quoted(k) if isinstance(k, str) else header_text(None, k, embedded=True), k) for k in value)
            return (
                f"{{{','.join(f'{k}:{header_text(_inside(schema, n), value[n], embedded=True)}' for k, n in pairs)}}}"
            )
    raise RecordFailed(f"Failed to serialize unexpected value type {type(value).__name__}: {value}")


def _inside(schema: Schema | None, name: Any) -> Schema | None:
    if schema is None or schema.kind is not ConnectType.STRUCT:
        return None if schema is None else schema.value_schema
    field = schema.field(name)
    return None if field is None else field.schema


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _Malformed(Exception):
    """An array or map that is none; the text is then a string."""


class _Parser:
    """Reads tokens of a text: a delimiter, or what is between two delimiters."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def value(self, *, embedded: bool) -> Parsed | None:
        """Return the next value; None for null, and at the end."""
        if self._at >= len(self._text):
            return None
        if embedded and self._takes('"'):
            return self._quoted()
        for literal, meant in (("null", None), ("true", (BOOLEAN, True)), ("false", (BOOLEAN, False))):
            begin = self._at
            if self._takes(literal) and (embedded or self._at >= len(self._text)):
                return meant
            self._at = begin
        begin = self._at
        self._depth += 1
        try:
            if self._depth <= DEPTH_MAX:
                if self._takes("["):
                    return self._array()
                if self._takes("{"):
                    return self._map()
        except _Malformed:
            self._at = begin
        finally:
            self._depth -= 1
        token = self._next()
        if not token.strip():
            return STRING, token
        return self._single(token.strip(), embedded=embedded)

    def _single(self, token: str, *, embedded: bool) -> Parsed:
        if token[0].isdigit():
            found = self._moment(token)
            if found is not None:
                return found
        if token[0].isdigit() or token[0] in "+-":
            number = _number(token)
            if number is not None:
                return number
        if embedded:
            raise _Malformed
        return STRING, self._text

    def _moment(self, token: str) -> Parsed | None:
        """Return a date or time. Its colons are delimiters, so it may be five tokens."""
        begin = self._at
        tokens: list[str] = []
        while len(tokens) < 4 and self._at < len(self._text):
            tokens.append(self._next())
        if len(tokens) == 4:
            found = _moment(token + "".join(tokens))
            if found is not None:
                return found
        self._at = begin
        return _moment(token)

    def _quoted(self) -> Parsed:
        content = ""
        while self._at < len(self._text):
            if self._takes('"'):
                break
            content += self._next()
        return _moment(content) or (STRING, content)

    def _array(self) -> Parsed:
        found: list[Any] = []
        merger = _Merger()
        while self._at < len(self._text):
            if self._takes("]"):
                schema = merger.common
                if schema is not None:
                    found = [_aligned(schema, each) for each in found]
                return Schema(ConnectType.ARRAY, value_schema=schema), found
            if self._takes(","):
                raise _Malformed
            element = self.value(embedded=True)
            merger.merge(element)
            found.append(None if element is None else element[1])
            begin = self._at
            if self._takes("]"):
                self._at = begin
            elif not self._takes(","):
                raise _Malformed
        raise _Malformed

    def _map(self) -> Parsed:
        found: list[tuple[Any, Any]] = []
        keys, values = _Merger(), _Merger()
        while self._at < len(self._text):
            if self._takes("}"):
                return _map_of(found, keys.common, values.common)
            if self._takes(","):
                raise _Malformed
            key = self.value(embedded=True)
            if key is None or key[1] is None or not self._takes(":"):
                raise _Malformed
            value = self.value(embedded=True)
            found.append((key[1], None if value is None else value[1]))
            self._takes(",")
            keys.merge(key)
            values.merge(value)
        raise _Malformed

    def _takes(self, expected: str) -> bool:
        """Skip blank tokens, and the next one if it is the expected one."""
        begin = self._at
        while self._at < len(self._text):
            token = self._next()
            if token.strip() or self._at >= len(self._text):
                if token.strip() == expected:
                    return True
                break
        self._at = begin
        return False

    def _next(self) -> str:
        begin = self._at
        is_escaped = False
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == "\\":
                is_escaped = not is_escaped
            elif character in _DELIMITERS and not is_escaped:
                self._at += begin == self._at
                break
            else:
                is_escaped = False
            self._at += 1
        return self._text[begin : self._at]


class _Merger:
    """The schema that all elements fit."""

    def __init__(self) -> None:
        self.common: Schema | None = None
        self._is_compatible = True

    def merge(self, element: Parsed | None) -> None:
        if element is None or not self._is_compatible:
            return
        if self.common is None:
            self.common = element[0]
        else:
            self.common = _merged(self.common, element[0])
            self._is_compatible = self.common is not None


def _merged(previous: Schema, following: Schema) -> Schema | None:
    if previous.kind is following.kind:
        return following
    if previous.kind in _RANKS and following.kind in _RANKS:
        return max(previous, following, key=lambda each: _RANKS.index(each.kind))
    return None


def _map_of(pairs: Sequence[tuple[Any, Any]], keys: Schema | None, values: Schema | None) -> Parsed:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        try:
            # A list or dict cannot be a key, so such a text stays a string.
            found[key if keys is None else _aligned(keys, key)] = (
                value if keys is None or values is None else _aligned(values, value)
            )
        except TypeError:
            raise _Malformed from None
    schema = Schema(ConnectType.MAP, key_schema=keys, value_schema=values if keys is not None else None)
    return schema, found


def _aligned(schema: Schema, value: Any) -> Any:
    """Return an element as a value of the schema that all elements have."""
    if value is None:
        # Kafka cannot represent this, and takes the whole text as a string.
        raise _Malformed
    if schema.kind is ConnectType.FLOAT32:
        return to_single(float(value))
    if schema.kind is ConnectType.FLOAT64:
        return float(value)
    if schema.kind is ConnectType.STRING:
        return header_text(None, value)
    return value


def _moment(token: str) -> Parsed | None:
    token = token.replace("\\:", ":")
    if len(token) not in _TIMES:
        return None
    schema, pattern = _TIMES[len(token)]
    found = pattern.parse(token)
    if found is None:
        return None
    if schema is DATE_SCHEMA:
        return schema, date_of(found // DAY_MS)
    return schema, time_of(found % DAY_MS) if schema is TIME_SCHEMA else moment_of(found)


def _number(token: str) -> Parsed | None:
    if len(token) > DIGITS_MAX or _NUMBER.fullmatch(token) is None:
        return None
    try:
        number = Decimal(token)
        exponent = number.as_tuple().exponent
    except InvalidOperation:
        return None
    assert isinstance(exponent, int)
    if abs(exponent) > DIGITS_MAX:
        return None
    if number == number.to_integral_value(ROUND_FLOOR):
        whole = int(number)
        for kind in (ConnectType.INT8, ConnectType.INT16, ConnectType.INT32, ConnectType.INT64):
            if -(1 << WHOLE[kind] - 1) <= whole < 1 << WHOLE[kind] - 1:
                return Schema(kind), whole
    if exponent != 0:
        single, double = to_single(float(number)), float(number)
        if math.isfinite(single):
            return Schema(ConnectType.FLOAT32), single
        if math.isfinite(double):
            return Schema(ConnectType.FLOAT64), double
    return decimal_schema(-exponent), number
