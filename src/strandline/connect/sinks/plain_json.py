"""Connect's values as JSON text, for targets that take JSON.

JSON has fewer types than Connect: bytes become base64, a Decimal its digits as text, dates and times ISO 8601.
"""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import date, time
from decimal import Decimal
from typing import Any

from strandline.connect.failures import RecordFailed
from strandline.connect.records import SinkRecord


def json_bytes(value: Any, record: SinkRecord, *, sort_keys: bool = False) -> bytes:
    """Return a value as JSON in UTF-8, on one line. Raise RecordFailed if JSON cannot hold it."""
    try:
        return json.dumps(
            value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordFailed(f"the record of {record.place} cannot be written as JSON: {error}", record) from None


def value_bytes(value: Any, record: SinkRecord) -> bytes:
    """Return bytes as they are, text in UTF-8, and everything else as JSON with sorted keys."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise RecordFailed(f"the record of {record.place} has text that is not Unicode: {error}", record) from None
    plain = _plain(value) if isinstance(value, Decimal | date | time) else None
    return plain.encode() if isinstance(plain, str) else json_bytes(value, record, sort_keys=True)


def _plain(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date | time):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
