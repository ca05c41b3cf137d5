"""Keys, values and headers of records as visitors may see them: decoded, masked, and cut to what a page can show.

The order matters. Masks are applied to what was decoded, before filters look at it: a filter on a masked field would
else tell its content, one question at a time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import re2

from strandline.cli.common.failures import CommandFailed
from strandline.cli.records.filters import Filter, compile_filters
from strandline.cli.records.record import Headers, ReadRecord, header_of, to_json
from strandline.cli.schema.payloads import PayloadDecoder
from strandline.cli.schema.sources import sources_at
from strandline.console.failures import PageFailed
from strandline.console.masking import MASK, TopicMasks
from strandline.console.reading.record_spans import FoundRecord
from strandline.schemas.payloads.wire_format import HEADERS

AUTO: Final = ""
FORMATS: Final = (AUTO, "json", "text", "hex", "messagepack", "schema")
PARSED_BYTES_MAX: Final = 1024 * 1024
"""A larger value is shown as text, because parsing it would hold up other visitors."""
PREVIEW_CHARACTERS: Final = 400
FULL_CHARACTERS: Final = 64 * 1024
HEADERS_SHOWN_MAX: Final = 100
CONDITIONS_MAX: Final = 10
REGISTRY_S: Final = 3.0
REGISTRY_RETRY_S: Final = 10.0
_HEX_BYTES: Final = 16 * 1024
_MISSING: Final = object()


@dataclass
class SeenPart:
    """A key, a value or a header as a visitor may see it. `note` says why it is not shown as it was asked for."""

    kind: str
    """null, empty, json, text, binary, messagepack, schema or masked."""
    text: str = ""
    note: str = ""
    size_bytes: int = 0
    schema: str = ""
    document: Any = field(default=_MISSING, repr=False)
    """What was decoded and masked."""
    content: bytes | None = field(default=None, repr=False)
    """The bytes that filters and downloads get."""

    def shown(self, characters: int, *, pretty: bool = False) -> dict[str, Any]:
        """Return it for a model."""
        text = self.text
        if pretty and self.document is not _MISSING:
            text = _json_text(self.document, indent=2)
        is_cut = len(text) > characters
        return {
            "kind": self.kind,
            "text": text[:characters] if is_cut else text,
            "is_cut": is_cut,
            "note": self.note,
            "size_bytes": self.size_bytes,
            "schema": self.schema or None,
        }


@dataclass
class SeenRecord:
    """A record with the bytes that a visitor may see in the place of its own."""

    found: FoundRecord
    record: ReadRecord
    key: SeenPart
    value: SeenPart
    headers: list[tuple[str, SeenPart]]
    is_masked: bool


class RecordView:
    """Shows the records of one topic: how they are decoded and masked, and which of them are wanted."""

    def __init__(
        self,
        masks: TopicMasks,
        *,
        value_format: str = AUTO,
        key_format: str = AUTO,
        decoder: PayloadDecoder | None = None,
        wanted: Filter | None = None,
    ) -> None:
        self._masks = masks
        self._formats = {"key": key_format, "value": value_format}
        self._decoder = decoder
        self._wanted = wanted
        self._registry_failure = ""
        self._ask_again_s = 0.0
        self._is_plain = masks.is_empty and decoder is None and "messagepack" not in (value_format, key_format)
        self.is_filtered = wanted is not None

    def wants(self, found: FoundRecord) -> bool:
        if self._wanted is None:
            return True
        if self._is_plain:
            # Nothing is hidden or decoded, so what a filter gets need not be made for each record.
            return self._wanted(found.record)
        return self._wanted(self.seen(found).record)

    def seen(self, found: FoundRecord) -> SeenRecord:
        record = found.record
        key = self._part("key", record.key, record.headers)
        value = self._part("value", record.value, record.headers)
        headers = [(name, self._header(name, content)) for name, content in record.headers]
        readable = ReadRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp_ms,
            key.content,
            value.content,
            [(name, each.content) for name, each in headers],
        )
        is_masked = any(each.kind == "masked" for _, each in headers) or any(
            self._masks.concerns(part) for part in ("key", "value")
        )
        return SeenRecord(found, readable, key, value, headers, is_masked)

    def _part(self, part: str, content: bytes | None, headers: Headers) -> SeenPart:
        if content is None:
            return SeenPart("null", "null")
        if not content:
            return SeenPart("empty", "", content=b"")
        made = self._decoded(part, content, headers)
        made.size_bytes = len(content)
        if self._masks.concerns(part):
            if made.document is _MISSING:
                return SeenPart("masked", MASK, size_bytes=len(content), content=MASK.encode())
            made.document = self._masks.json(part, made.document)
            made.kind = "masked" if made.document == MASK else made.kind
        if made.document is not _MISSING:
            made.text = _json_text(made.document)
            made.content = made.text.encode()
        else:
            made.content = content
        return made

    def _decoded(self, part: str, content: bytes, headers: Headers) -> SeenPart:
        wanted = self._formats[part]
        if wanted == "hex":
            made = SeenPart("binary", hex_lines(content))
            if self._masks.concerns(part):
                made.document = self._document(content)
            return made
        if wanted == "text":
            made = SeenPart("text", clean(content.decode("utf-8", "replace")))
            if self._masks.concerns(part):
                made.document = self._document(content)
            return made
        if wanted == "messagepack":
            return _of_messagepack(content)
        note = ""
        if wanted in (AUTO, "schema"):
            by_schema, note = self._by_schema(part, content, headers)
            if by_schema is not None:
                return by_schema
            if wanted == "schema" and not note:
                note = "it names no schema" if self._decoder is not None else "this cluster has no registry"
        document = self._document(content)
        if document is not _MISSING:
            return SeenPart("json", note=note, document=document)
        if wanted == "json":
            note = "it is no JSON"
        if len(content) > PARSED_BYTES_MAX and content[:1] in b"{[" and not note:
            note = f"it is larger than {PARSED_BYTES_MAX // 1024 // 1024} MiB, so it was not parsed"
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return SeenPart("binary", hex_lines(content), note)
        return SeenPart("binary", hex_lines(content), note) if "\0" in text else SeenPart("text", text, note)

    @staticmethod
    def _document(content: bytes) -> Any:
        if len(content) > PARSED_BYTES_MAX:
            return _MISSING
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            return _MISSING

    def _by_schema(self, part: str, content: bytes, headers: Headers) -> tuple[SeenPart | None, str]:
        if self._decoder is None:
            return None, ""
        if self._registry_failure and time.monotonic() < self._ask_again_s:
            return None, self._registry_failure
        try:
            found = self._decoder.decode(content, header_of(headers, HEADERS[part]))
        except CommandFailed as failure:
            # Asked once for all records of a page: a registry that is down takes seconds each time.
            self._ask_again_s = time.monotonic() + REGISTRY_RETRY_S
            self._registry_failure = f"the registry did not answer: {failure.message}"
            return None, self._registry_failure
        if found is None:
            return None, ""
        if found.reason:
            return None, f"not decoded by schema {found.schema}: {found.reason}"
        return SeenPart("schema", schema=str(found.schema), document=found.value), ""

    def _header(self, name: str, content: bytes | None) -> SeenPart:
        if self._masks.header(name, content) == MASK:
            return SeenPart("masked", MASK, size_bytes=len(content or b""), content=MASK.encode())
        if content is None:
            return SeenPart("null", "null")
        try:
            made = SeenPart("text", content.decode())
        except UnicodeDecodeError:
            made = SeenPart("binary", content[:_HEX_BYTES].hex(" "))
        made.size_bytes, made.content = len(content), content
        return made


def record_filter(conditions: Sequence[str], grep: str, now_ms: int) -> Filter | None:
    """Return the conditions of `consume --where` as one function; None if there are none. Raise PageFailed."""
    if len(conditions) > CONDITIONS_MAX:
        raise PageFailed(400, f"{len(conditions)} conditions are too many; at most {CONDITIONS_MAX} are allowed")
    try:
        return compile_filters(list(conditions), grep or None, now_ms=now_ms, compile_regex=_linear_regex)
    except ValueError as error:
        raise PageFailed(400, str(error)) from None


def payload_decoder(registry: str) -> PayloadDecoder | None:
    """Return what decodes by the schemas of a registry; None without one."""
    return PayloadDecoder(sources_at(registry, REGISTRY_S)) if registry else None


def record_object(seen: SeenRecord, *, full: bool = False) -> dict[str, Any]:
    """Return a record for a model: a row of a list, or all of it up to a limit."""
    most = FULL_CHARACTERS if full else PREVIEW_CHARACTERS
    found, record = seen.found, seen.record
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "state": found.state,
        "key": seen.key.shown(most, pretty=full),
        "value": seen.value.shown(most, pretty=full),
        "headers": [{"name": clean(name), **part.shown(most)} for name, part in seen.headers[:HEADERS_SHOWN_MAX]],
        "headers_count": len(seen.headers),
        "size_bytes": found.size_bytes,
        "is_masked": seen.is_masked,
    }


def record_line(seen: SeenRecord) -> str:
    """Return a record as a line that `produce --from-json` reads."""
    return json.dumps(to_json(seen.record), ensure_ascii=True, separators=(",", ":"))


def hex_lines(content: bytes) -> str:
    """Return bytes as a hex dump: position, sixteen bytes, and what of them is ASCII."""
    lines = []
    for at in range(0, min(len(content), _HEX_BYTES), 16):
        row = content[at : at + 16]
        shown = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {shown}")
    if len(content) > _HEX_BYTES:
        lines.append(f"… {len(content) - _HEX_BYTES:,} more bytes")
    return "\n".join(lines)


def clean(text: str) -> str:
    """Return text that UTF-8 can say: JSON may hold halves of a pair."""
    return text.encode("utf-8", "backslashreplace").decode()


def _json_text(document: Any, indent: int | None = None) -> str:
    separators = (",", ": ") if indent else (",", ":")
    try:
        return clean(json.dumps(document, ensure_ascii=False, indent=indent, separators=separators, default=str))
    except (RecursionError, ValueError) as error:
        return f"(it cannot be shown: {error})"


def _of_messagepack(content: bytes) -> SeenPart:
    try:
        import msgpack
    except ModuleNotFoundError:
        return SeenPart("binary", hex_lines(content), "MessagePack needs: pip install msgpack")
    if len(content) > PARSED_BYTES_MAX:
        return SeenPart("binary", hex_lines(content), "it is too large to be decoded")
    try:
        document = msgpack.unpackb(content, strict_map_key=False, unicode_errors="replace")
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        return SeenPart("binary", hex_lines(content), f"it is no MessagePack: {error}")
    return SeenPart("messagepack", document=_sayable(document))


def _sayable(value: Any) -> Any:
    """Return what MessagePack has as JSON can say it."""
    if isinstance(value, dict):
        return {str(key): _sayable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_sayable(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _linear_regex(pattern: bytes) -> Any:
    """Compile by re2, which takes time in proportion to the text: an expression of a visitor must not hang a thread."""
    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Any = re2.compile(pattern, options)
    except re2.error as error:
        raise re.error(error.args[0] if error.args and isinstance(error.args[0], str) else str(error)) from None
    return compiled
