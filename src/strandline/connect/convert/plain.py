"""Converters of single values: text, bytes, a boolean, a number."""

from __future__ import annotations

import codecs
import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.convert.interface import Converter
from strandline.connect.convert.java_text import text_of_value
from strandline.connect.convert.logical import is_number
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import OPTIONAL_BYTES, OPTIONAL_STRING, ConnectType, Schema

_BOOLEANS: Final = {b"\0": False, b"\1": True}


def _wrong_encoding(name: str) -> str | None:
    try:
        codecs.lookup(name)
    except LookupError:
        return "Unknown encoding"
    return None


class StringConverter(Converter):
    """Text. A value that is none is written as Java's `toString` shows it."""

    class Config(BaseConfig):
        converter_encoding: str = option(
            "The name of the character set of texts.",
            default="UTF-8",
            importance="HIGH",
            display="Encoding",
            check=_wrong_encoding,
        )

    has_bulk = True
    bulk_schema = OPTIONAL_STRING

    def __init__(self, config: Any, *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._encoding = codecs.lookup(config.converter_encoding).name

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return text_of_value(schema, value).encode(self._encoding)
        except UnicodeEncodeError as error:
            raise RecordFailed(f"Failed to serialize to a string: {error}") from None

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        # As Java does: bytes that are no text become the replacement character.
        return OPTIONAL_STRING, None if data is None else data.decode(self._encoding, "replace")

    def to_values(self, topic: str, payloads: Sequence[bytes | None]) -> list[Any]:
        encoding = self._encoding
        return [None if each is None else each.decode(encoding, "replace") for each in payloads]


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    has_bulk = True
    bulk_schema = OPTIONAL_BYTES

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.kind is not ConnectType.BYTES:
            raise RecordFailed(f"Invalid schema type for ByteArrayConverter: {schema.kind.name}")
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise RecordFailed(f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}")
        return value if value is None or isinstance(value, bytes) else bytes(value)

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        return OPTIONAL_BYTES, data

    def to_values(self, topic: str, payloads: Sequence[bytes | None]) -> list[Any]:
        return list(payloads)


class BooleanConverter(Converter):
    """A byte: 0 is false, 1 is true."""

    has_bulk = True
    bulk_schema = Schema(ConnectType.BOOLEAN, optional=True)

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.kind is not ConnectType.BOOLEAN:
            raise RecordFailed(f"Invalid schema type for BooleanConverter: {schema.kind.name}")
        if value is not None and not isinstance(value, bool):
            raise RecordFailed(f"BooleanConverter is not compatible with objects of type {type(value).__name__}")
        return None if value is None else bytes((value,))

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return self.bulk_schema, None
        if data not in _BOOLEANS:
            raise RecordFailed("Failed to deserialize boolean: it is not one byte that is 0 or 1")
        return self.bulk_schema, _BOOLEANS[data]


class _NumberConverter(Converter):
    """Base of converters of numbers with a fixed size, big-endian."""

    has_bulk = True
    layout: ClassVar[struct.Struct]
    label: ClassVar[str]
    is_whole: ClassVar[bool] = True

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        if not (is_number(value) if self.is_whole else isinstance(value, float)):
            raise RecordFailed(f"Failed to serialize to {self.label} (was {type(value).__name__})")
        try:
            return self.layout.pack(value)
        except (struct.error, OverflowError):
            raise RecordFailed(f"Failed to serialize to {self.label}: {value} is out of range") from None

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return self.bulk_schema, None
        if len(data) != self.layout.size:
            raise RecordFailed(
                f"Failed to deserialize {self.label}: it has {len(data)} bytes instead of {self.layout.size}"
            )
        return self.bulk_schema, self.layout.unpack(data)[0]


class ShortConverter(_NumberConverter):
    """Whole numbers of 16 bits."""

    layout, label = struct.Struct(">h"), "short"
    bulk_schema = Schema(ConnectType.INT16, optional=True)


class IntegerConverter(_NumberConverter):
    """Whole numbers of 32 bits."""

    layout, label = struct.Struct(">i"), "integer"
    bulk_schema = Schema(ConnectType.INT32, optional=True)


class LongConverter(_NumberConverter):
    """Whole numbers of 64 bits."""

    layout, label = struct.Struct(">q"), "long"
    bulk_schema = Schema(ConnectType.INT64, optional=True)


class FloatConverter(_NumberConverter):
    """Floating-point numbers of 32 bits."""

    layout, label, is_whole = struct.Struct(">f"), "float", False
    bulk_schema = Schema(ConnectType.FLOAT32, optional=True)


class DoubleConverter(_NumberConverter):
    """Floating-point numbers of 64 bits."""

    layout, label, is_whole = struct.Struct(">d"), "double", False
    bulk_schema = Schema(ConnectType.FLOAT64, optional=True)
