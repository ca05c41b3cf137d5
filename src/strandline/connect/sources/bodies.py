"""Bodies of HTTP requests and answers: unpacked within a bound, and read as records."""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from strandline.connect import schema
from strandline.connect.schema import Schema

_GZIP: Final = 31
"""zlib's number for a gzip header around a stream."""
_NDJSON: Final = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")


class BodyInvalid(Exception):
    """A body that cannot be read, in one sentence."""


class BodyTooLarge(BodyInvalid):
    """A body that is larger than its bound once it is unpacked."""


def unpacked(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """Return a body without its Content-Encoding. Raise BodyTooLarge before more than the bound is unpacked."""
    if encoding.strip().lower() in ("", "identity"):
        return body
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise BodyInvalid(f"the content encoding {encoding} is not supported, only gzip is")
    made = bytearray()
    left = body
    while left:
        stream = zlib.decompressobj(_GZIP)
        try:
            made += stream.decompress(left, bytes_max + 1 - len(made))
        except zlib.error as error:
            raise BodyInvalid(f"the body is no valid gzip: {error}") from None
        if len(made) > bytes_max:
            raise BodyTooLarge(f"the unpacked body has more than {bytes_max} bytes")
        if not stream.eof:
            raise BodyInvalid("the gzip body ends too early")
        left = stream.unused_data
    return bytes(made)


def json_of(text: bytes | str) -> Any:
    """Return the value of a JSON text. Raise BodyInvalid if it is none, or has NaN or too many levels."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BodyInvalid(f"the body is no JSON: {error}") from None


def values_of(body: bytes, form: str, content_type: str = "") -> tuple[list[Any], Schema | None]:
    """Return the values in a body, and their schema. `form` is auto, json, ndjson, lines, text or bytes."""
    if form == "auto":
        form = _form_of(content_type)
    match form:
        case "json":
            value = json_of(body)
            return (value if isinstance(value, list) else [value]), None
        case "ndjson":
            return [json_of(line) for line in body.splitlines() if line.strip()], None
        case "lines":
            return [line for line in text_of_body(body).splitlines() if line], schema.STRING
        case "text":
            return [text_of_body(body)], schema.STRING
        case _:
            return [body], schema.BYTES


def text_of_body(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BodyInvalid(f"the body is no UTF-8: {error.reason} at byte {error.start}") from None


def at_path(value: Any, path: str) -> Any:
    """Return what is at a dot path, as `user.id` or `items.0.id`; None if there is nothing."""
    for step in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def _form_of(content_type: str) -> str:
    kind = content_type.partition(";")[0].strip().lower()
    if kind in _NDJSON:
        return "ndjson"
    if kind == "application/json" or kind.endswith("+json"):
        return "json"
    return "text" if kind.startswith("text/") or kind == "application/x-www-form-urlencoded" else "bytes"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")
