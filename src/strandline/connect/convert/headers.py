"""Kafka's SimpleHeaderConverter: headers as text, whose type is found by how they look."""

from __future__ import annotations

from typing import Any

from strandline.connect.convert.header_values import header_text, parse_text
from strandline.connect.convert.interface import Converter
from strandline.connect.schema import BYTES, Schema


class SimpleHeaderConverter(Converter):
    """Headers as text."""

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        return None if value is None else header_text(schema, value).encode("utf-8", "replace")

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            # Kafka would put replacement characters into it, and the bytes would be lost.
            return BYTES, data
        return parse_text(text)
