"""What stands in a field for a large value that did not change, and that PostgreSQL therefore did not send (TOAST)."""

from __future__ import annotations

import hashlib
import math
import uuid
from typing import Any, Final

from strandline.cdc.postgres.types.numbers import VARIABLE_SCALE
from strandline.cdc.postgres.types.texts import UUID
from strandline.connect.convert.logical import decimal_of, scale_of
from strandline.connect.schema import DECIMAL, ConnectType, Schema

_FLOATS: Final = frozenset((ConnectType.FLOAT32, ConnectType.FLOAT64))
_INTEGERS: Final = frozenset((ConnectType.INT16, ConnectType.INT32, ConnectType.INT64))
_SIGN_BIT: Final = 128


def placeholder_of(schema: Schema, raw: bytes) -> Any:
    """Return a placeholder that fits a schema; None for types that are never so large."""
    match schema.kind:
        case ConnectType.STRING:
            return raw.decode(errors="replace")
        case ConnectType.BYTES:
            return decimal_of(raw, scale_of(schema)) if schema.name == DECIMAL else raw
        case ConnectType.STRUCT if schema.name == VARIABLE_SCALE.name:
            return {"scale": 0, "value": raw}
        case ConnectType.MAP:
            shown = raw.decode(errors="replace")
            return {shown: shown}
        case ConnectType.ARRAY if schema.value_schema is not None:
            return _array(schema.value_schema, raw)
        case kind if kind in _FLOATS:
            return math.nan
    return None


def _array(element: Schema, raw: bytes) -> list[Any]:
    if element.name == UUID:
        # Java's UUID.nameUUIDFromBytes, which knows no namespace.
        return [str(uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3))]
    # Each byte is a number of its own, as Debezium has it for integers.
    signed = [each - 2 * (each & _SIGN_BIT) for each in raw]
    if element.kind in _INTEGERS:
        return signed
    if element.kind in _FLOATS:
        return list(map(float, signed))
    one = placeholder_of(element, raw)
    return [] if one is None else [one]
