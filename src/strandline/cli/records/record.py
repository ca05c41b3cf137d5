"""A record as the commands handle it, and its two faces: a JSON object and a kcat format string (pure, binary-safe).

In JSON, bytes that are no UTF-8 appear under another name: `value_base64` in place of `value`. So every record can be
written out and read back byte for byte: `consume a --json | produce b --from-json` copies a topic.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class ReadRecord:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    more: Mapping[str, Any] | None = None
    """What decoding adds to the JSON form: values in the place of text, and the ids of their schemas."""


@dataclass
class NewRecord:
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


def to_json(record: ReadRecord) -> dict[str, Any]:
    found = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [{"key": key, **json_bytes("value", value)} for key, value in record.headers],
    }
    return found if record.more is None else {**found, **record.more}


def json_bytes(name: str, content: bytes | None) -> dict[str, str | None]:
    """Return `{"value": "text"}`, or `{"value_base64": "..."}` when the bytes are no UTF-8."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def header_of(headers: Headers, name: str) -> bytes | None:
    """Return the first header of a name."""
    return next((value for key, value in headers if key == name), None) if headers else None


_FIELDS = {"topic", "offset", "timestamp", "partition", "key", "key_base64", "value", "value_base64", "headers"}
_OF_SCHEMAS = {"key_schema_id", "value_schema_id", "key_schema_error", "value_schema_error"}


def from_json(line: bytes, encode: Callable[[Any], bytes] | None = None) -> NewRecord:
    """Return one line of JSON as a record to write; ValueError says what is wrong.

    `topic`, `offset` and the ids of schemas are understood and ignored, so that what `consume --json` prints can be fed
    back. `encode` makes bytes of a value by its schema; without it a value is text.
    """
    try:
        fields = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError('not a JSON object such as {"key": "k", "value": "v"}')
    unknown = fields.keys() - _FIELDS - _OF_SCHEMAS
    if unknown:
        raise ValueError(
            f"unknown field {sorted(unknown)[0]!r}; known are {', '.join(sorted(_FIELDS))}. If the whole line is the "
            "value, leave out --from-json"
        )
    return NewRecord(
        key=_bytes_of(fields, "key"),
        value=_bytes_of(fields, "value") if encode is None else _encoded(fields, encode),
        headers=_headers_of(fields.get("headers") or []),
        partition=_integer_of(fields, "partition"),
        timestamp_ms=_integer_of(fields, "timestamp"),
    )


def _bytes_of(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise ValueError(f"{name}_base64 is not base64") from None
    content = fields.get(name)
    if content is None:
        return None
    if isinstance(content, str):
        return content.encode()
    # A value written as an object is meant as a JSON document, so it is stored as one.
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _encoded(fields: dict[str, Any], encode: Callable[[Any], bytes]) -> bytes | None:
    if fields.get("value_base64") is not None:
        raise ValueError("value_base64 is bytes: a value that is encoded by a schema is written as JSON in value")
    value = fields.get("value")
    return None if value is None else encode(value)


def _headers_of(headers: Any) -> Headers:
    if isinstance(headers, dict):
        return [(key, _bytes_of({"value": value}, "value")) for key, value in headers.items()]
    if not isinstance(headers, list):
        raise ValueError("headers is neither a list nor an object")
    parsed: Headers = []
    for header in headers:
        if not isinstance(header, dict) or not isinstance(header.get("key"), str):
            raise ValueError('a header is not an object such as {"key": "k", "value": "v"}')
        parsed.append((header["key"], _bytes_of(header, "value")))
    return parsed


def _integer_of(fields: dict[str, Any], name: str) -> int | None:
    number = fields.get(name)
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
        raise ValueError(f"{name} {number!r} is not a whole number from 0")
    return number


_PIECES: dict[str, Callable[[ReadRecord], bytes]] = {
    "s": lambda record: record.value or b"",
    "S": lambda record: str(-1 if record.value is None else len(record.value)).encode(),
    "R": lambda record: struct.pack(">i", -1 if record.value is None else len(record.value)),
    "k": lambda record: record.key or b"",
    "K": lambda record: str(-1 if record.key is None else len(record.key)).encode(),
    "T": lambda record: str(record.timestamp_ms).encode(),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: str(record.partition).encode(),
    "o": lambda record: str(record.offset).encode(),
    "h": lambda record: b",".join(key.encode() + b"=" + (value or b"NULL") for key, value in record.headers),
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(?P<piece>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+|.)", re.DOTALL)


def compile_format(pattern: str) -> Callable[[ReadRecord], bytes]:
    """Return a kcat format string as a function; ValueError names the part that is unknown.

    %s value, %S its size, %R its size as 4 bytes, %k key, %K its size, %T timestamp in ms, %t topic, %p partition,
    %o offset, %h headers, %% a percent sign; \\n \\r \\t \\0 \\\\ \\xNN.
    """
    parts: list[bytes | Callable[[ReadRecord], bytes]] = []
    for token in _TOKEN.finditer(pattern):
        if token["piece"] == "%":
            parts.append(b"%")
        elif token["piece"]:
            if token["piece"] not in _PIECES:
                raise ValueError(
                    f"%{token['piece']} is unknown; known are {' '.join('%' + piece for piece in _PIECES)}"
                )
            parts.append(_PIECES[token["piece"]])
        elif token["hex"]:
            parts.append(bytes.fromhex(token["hex"]))
        elif token["escape"]:
            parts.append(_ESCAPES.get(token["escape"], b"\\" + token["escape"].encode()))
        else:
            parts.append(token["text"].encode())
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)
