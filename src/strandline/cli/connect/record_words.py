"""Records as the commands of connectors show them: in a line for people, in JSON for programs."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from strandline.connect.tasks.conversion import OutMessage

SHOWN_CHARACTERS: Final = 400


def shown(text: str) -> str:
    """Return a text that fits on a screen: a long one is cut, and says how long it is."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}... ({len(text):,} characters)"


def source_words(message: OutMessage) -> str:
    """Return a record that would be produced in one line."""
    place = message.topic if message.partition is None else f"{message.topic}-{message.partition}"
    headers = "".join(f"  header {name} {_data_words(data)}" for name, data in message.headers)
    value = "null (a tombstone)" if message.value is None else _data_words(message.value)
    return f"{place}  key {_data_words(message.key)}  value {value}{headers}"


def _data_words(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return shown(data.decode().replace("\n", "\\n").replace("\r", "\\r"))
    except UnicodeDecodeError:
        return f"{shown(data.hex())} (bytes)"


def bytes_json(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes as a text, or in base64 if they are none."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def value_json(value: Any) -> Any:
    """Return a value of a connector as JSON. Times are in ISO 8601, decimals are texts, bytes are base64."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): value_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [value_json(each) for each in value]
    return str(value)
