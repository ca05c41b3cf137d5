"""One finding in a log file, and its two faces: a line of text and a JSON object (pure)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from strandline.cli.records.record import json_bytes
from strandline.codec.message import Message
from strandline.quorum.raft.state_files import uuid_text

TEXT_VALUE_CHARACTERS_MAX = 200


@dataclass(frozen=True)
class Item:
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    depth: int = 1
    is_damage: bool = False


def as_json_object(item: Item) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": item.kind}
    for name, value in item.fields.items():
        fields |= json_bytes(name, value) if isinstance(value, bytes) else {name: plain(value)}
    return fields


def as_text(item: Item) -> str:
    words = [
        f"{name.removesuffix('_ms').removesuffix('_bytes').replace('_', ' ')} {_text(name, v)}"
        for name, v in item.fields.items()
    ]
    return f"{'  ' * item.depth}{item.kind}  {'  '.join(words)}".rstrip()


def plain(value: Any) -> Any:
    """Return a message, and whatever lies in it, as JSON's own types. Ids read as Kafka writes them."""
    match value:
        case Message():
            return {spec.name: plain(getattr(value, spec.name)) for spec in value.FIELDS}
        case UUID():
            return uuid_text(value)
        case bytes():
            return _bytes_text(value)
        case list() | tuple():
            return [plain(element) for element in value]
        case dict():
            return {name: plain(element) for name, element in value.items()}
        case _:
            return value


def time_text(timestamp_ms: int) -> str:
    """ISO time in UTC; the bare number when it is no time, as -1 is not."""
    if not 0 <= timestamp_ms <= 253_402_300_799_999:
        return str(timestamp_ms)
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC).replace(microsecond=timestamp_ms % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(name: str, value: Any) -> str:
    if name.endswith("_ms") and isinstance(value, int):
        return time_text(value)
    if value is None:
        return "null"
    if isinstance(value, bytes):
        text = json.dumps(_bytes_text(value), ensure_ascii=False)
    elif isinstance(value, dict | list | tuple | Message):
        text = json.dumps(plain(value), ensure_ascii=False)
    else:
        return str(value)
    return text if len(text) <= TEXT_VALUE_CHARACTERS_MAX else f"{text[:TEXT_VALUE_CHARACTERS_MAX]}... ({len(text):,})"


def _bytes_text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(content).decode()
