"""Kafka's JsonConverter: JSON, by default with the schema in each record.

With schemas a record is `{"schema":{...},"payload":...}`. Many records begin with the same bytes up to the payload, so
these are compared with those of earlier records, and only the payload is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from json import JSONDecoder
from typing import Any, Final

from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.convert.interface import Converter, SchemaCache
from strandline.connect.convert.json_reading import JsonReading, parsed
from strandline.connect.convert.json_schemas import schema_from_json, schema_text
from strandline.connect.convert.json_writing import JsonWriting, plain_text
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import Schema

PREFIXES_MAX: Final = 16
"""Beginnings of records that are compared."""
_BEGIN: Final = re.compile(rb'\s*\{\s*"schema"\s*:\s*')
_MIDDLE: Final = re.compile(r'\s*,\s*"payload"\s*:')
_RAW_DECODE: Final = JSONDecoder().raw_decode
_NULL_BEGIN: Final = '{"schema":null,"payload":'
_NO_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)


def _wrong_schema(text: str | None) -> str | None:
    try:
        schema_from_json(parsed((text or "null").encode()), lambda schema, value: None)
    except RecordFailed as error:
        return str(error)
    return None


def is_decimal_format(value: str) -> str | None:
    """Return what is wrong with a value of `decimal.format`."""
    if value.upper() in ("BASE64", "NUMERIC"):
        return None
    return "String must be one of (case insensitive): BASE64, NUMERIC"


class JsonConverter(Converter):
    """JSON with or without schemas."""

    class Config(BaseConfig):
        schemas_enable: bool = option(
            "Include schemas within each of the serialized values and keys.",
            default=True,
            importance="HIGH",
            group="Schemas",
            display="Enable Schemas",
        )
        schemas_cache_size: int = option(
            "The maximum number of schemas that can be cached in this converter instance.",
            default=1000,
            importance="HIGH",
            group="Schemas",
            display="Schema Cache Size",
        )
        schema_content: str | None = option(
            "The schema of all messages, as JSON. Without it each message has its own. Only for sinks.",
            default=None,
            importance="HIGH",
            group="Schemas",
            display="Schema Content",
            check=_wrong_schema,
        )
        decimal_format: str = option(
            "How decimals are written: BASE64 or NUMERIC.",
            default="BASE64",
            importance="LOW",
            group="Serialization",
            display="Decimal Format",
            check=is_decimal_format,
        )
        replace_null_with_default: bool = option(
            "Whether to replace fields that have a default value and that are null to the default value.",
            default=True,
            importance="LOW",
            group="Serialization",
            display="Replace null with default",
        )

    def __init__(self, config: Any, *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._has_envelope: bool = config.schemas_enable
        self.has_bulk = not self._has_envelope
        replace_nulls = config.replace_null_with_default
        self._writing = JsonWriting(
            numeric_decimals=config.decimal_format.upper() == "NUMERIC", replace_nulls=replace_nulls
        )
        self._reading = JsonReading(replace_nulls=replace_nulls)
        self._begin = SchemaCache(self._begin_of, config.schemas_cache_size)
        self._prefixes: dict[bytes, Schema] = {}
        self._content = self._content_schema(config.schema_content) if self._has_envelope else None

    def _content_schema(self, text: str | None) -> Schema | None:
        return None if not text else schema_from_json(parsed(text.encode()), self._default_of)

    def _begin_of(self, schema: Schema) -> str:
        return f'{{"schema":{schema_text(schema, self._writing.text)},"payload":'

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is None and value is None:
            return None
        try:
            text = self._writing.text(schema, value)
            if self._has_envelope:
                text = f"{_NULL_BEGIN if schema is None else self._begin(schema)}{text}}}"
            return text.encode()
        except (ValueError, RecursionError) as error:
            raise _not_written(error) from None

    def from_values(self, topic: str, values: Sequence[Any]) -> list[bytes | None]:
        if self._has_envelope:
            return super().from_values(topic, values)
        try:
            return [None if each is None else plain_text(each).encode() for each in values]
        except (ValueError, RecursionError) as error:
            raise _not_written(error) from None

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        if self._content is not None:
            return self._content, self._value_of(self._content, data)
        if not self._has_envelope:
            return None, parsed(data) if data.strip() else None
        for prefix, schema in self._prefixes.items():
            if data.startswith(prefix) and data.endswith(b"}"):
                return schema, self._value_of(schema, data[len(prefix) : -1])
        return self._with_envelope(data)

    def to_values(self, topic: str, payloads: Sequence[bytes | None]) -> list[Any]:
        return [None if not each else parsed(each) for each in payloads]

    def _with_envelope(self, data: bytes) -> tuple[Schema | None, Any]:
        envelope = parsed(data)
        if not isinstance(envelope, dict) or envelope.keys() != {"schema", "payload"}:
            raise RecordFailed(_NO_ENVELOPE)
        schema = schema_from_json(envelope["schema"], self._default_of)
        if schema is None:
            return None, envelope["payload"]
        if self._reading.has_decimals(schema):
            envelope = parsed(data, exactly=True)
        value = self._reading.reader(schema)(envelope["payload"])
        self._remember(data, schema)
        return schema, value

    def _remember(self, data: bytes, schema: Schema) -> None:
        begin = _BEGIN.match(data)
        if begin is None or not data.endswith(b"}"):
            return
        text = data[begin.end() :].decode()
        middle = _MIDDLE.match(text, _RAW_DECODE(text)[1])
        if middle is None:
            return
        if len(self._prefixes) >= PREFIXES_MAX:
            del self._prefixes[next(iter(self._prefixes))]
        self._prefixes[data[: begin.end()] + text[: middle.end()].encode()] = schema

    def _value_of(self, schema: Schema, data: bytes) -> Any:
        return self._reading.reader(schema)(parsed(data, exactly=self._reading.has_decimals(schema)))

    def _default_of(self, schema: Schema, value: Any) -> Any:
        return self._reading.reader(schema)(value)


def _not_written(error: Exception) -> RecordFailed:
    reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
    return RecordFailed(f"Converting Kafka Connect data to byte[] failed due to serialization error: {reason}")
