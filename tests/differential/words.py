"""Messages from plain values and back, so that a request is a line in a table and an answer can be kept as JSON.

An answer loses what a broker may choose (ids, ports, directories, times) and keeps everything else: codes by name, null
and empty told apart, every field that is not at its default.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from tests.hostile.batches import FIELDS

from strandline.codec.columns import Record, decode_batch
from strandline.codec.message import Message
from strandline.codec.messages.index import INDEX
from strandline.codec.record_batch import HEADER_SIZE
from strandline.errors import ErrorCode, PeerError

RECENT_MS = 1_750_000_000_000
"""A time after this one was read from a clock while the test ran; those that tests make up lie before."""

RECORDS_SHOWN = 5

ADVERTISED_MAX = {22: 5}
"""Where Kafka's schema goes on beyond what Kafka advertises."""


GIVEN_IDS = (22, 26, 65, 66)
"""The APIs whose answers tell producer ids that the broker gave out: each broker has its own."""


class Id(NamedTuple):
    """The id of a topic, known only when the broker has made it."""

    topic: str


def message_class(kind: str, api_key: int) -> type[Message]:
    module, name = INDEX[kind][api_key]
    found: type[Message] = getattr(import_module(f"strandline.codec.messages.{module}"), name)
    return found


def request_class(api_key: int) -> type[Message]:
    return message_class("request", api_key)


def versions_of(api_key: int) -> range:
    cls = request_class(api_key)
    return range(cls.VERSION_MIN, ADVERTISED_MAX.get(api_key, cls.VERSION_MAX) + 1)


def message_of(cls: type[Message], values: Mapping[str, Any], ids: Mapping[str, uuid.UUID] | None = None) -> Message:
    """The message with these fields; a function stands for a value that is made when the request is sent."""
    message = cls()
    for name, given in values.items():
        field = next((each for each in cls.FIELDS if each.name == name), None)
        assert field is not None, f"{cls.__name__} has no field {name}"
        value = given() if callable(given) else given
        if isinstance(value, Id):
            value = uuid.UUID(int=1) if ids is None else ids[value.topic]
        elif field.struct is not None and isinstance(value, Mapping):
            value = message_of(field.struct, value, ids)
        elif field.struct is not None and value is not None:
            value = [message_of(field.struct, each, ids) for each in value]
        setattr(message, name, value)
    return message


class Words:
    """Puts answers into plain values. It remembers who was given which id, within one case."""

    def __init__(self, ids: Mapping[str, uuid.UUID]) -> None:
        self.topics = {topic_id: topic for topic, topic_id in ids.items()}
        self.members: dict[str, str] = {}
        self.sessions: dict[int, str] = {}

    def plain(self, message: Message, *, ordered: bool = False) -> dict[str, Any]:
        said = {}
        for field in message.FIELDS:
            value = getattr(message, field.name)
            if field.name in ("member_id", "leader") and isinstance(value, str):
                self._remember(value)
            default = [] if isinstance(field.default, tuple) else field.default
            if value != default:
                said[field.name] = self._value(type(message).API_KEY, field.name, value, ordered)
        return said

    def _value(self, api_key: int, name: str, value: Any, ordered: bool) -> Any:
        match value:
            case Message():
                return self.plain(value, ordered=ordered)
            case [Message(), *_]:
                items = [self.plain(each, ordered=ordered) for each in value]
                return items if ordered else sorted(items, key=str)
            case list():
                return [self._value(api_key, name, each, ordered) for each in value]
            case uuid.UUID():
                return f"id of {self.topics[value]}" if value in self.topics else "an id"
            case bytes() if name == "records":
                return batches(value)
            case bytes():
                return value.decode("latin-1")
            case str():
                return self._text(name, value)
            case bool():
                return value
            case int():
                return self._number(api_key, name, value)
        return value

    def _remember(self, member_id: str) -> None:
        if member_id.count("-") >= 5:
            self.members.setdefault(member_id, f"member {len(self.members) + 1}")

    def _text(self, name: str, value: str) -> str:
        match name:
            case "error_message" | "acknowledge_error_message" | "batch_index_error_message" | "documentation" if value:
                return "a text"
            case "cluster_id" | "log_dir":
                return f"a {name}"
            case "host" if value in ("127.0.0.1", "localhost"):
                return "a host"
        return self.members.get(value, value)

    def _number(self, api_key: int, name: str, value: int) -> Any:
        if name in ("error_code", "acknowledge_error_code"):
            return ErrorCode(value).name
        if name == "port" and value > 0:
            return "a port"
        if name == "session_id" and value > 0:
            return self.sessions.setdefault(value, f"session {len(self.sessions) + 1}")
        if name in ("total_bytes", "usable_bytes") and value >= 0:
            return "some bytes"
        if name == "producer_id" and api_key in GIVEN_IDS and value >= 0:
            return "a producer id"
        if name == "subscription_id":
            return "a subscription"
        return recent(value) if "time" in name else value


def recent(at_ms: int) -> int | str:
    return "recent" if RECENT_MS < at_ms < 2 * RECENT_MS else at_ms


def batches(content: bytes) -> list[dict[str, Any]]:
    """What the batches say; whatever follows the last whole one is counted."""
    found: list[dict[str, Any]] = []
    at = 0
    while at + HEADER_SIZE <= len(content):
        end = at + 12 + int.from_bytes(content[at + 8 : at + 12], "big")
        if end > len(content):
            break
        found.append(_batch(content[at:end]))
        at = end
    if at < len(content):
        found.append({"bytes behind": len(content) - at})
    return found


def _batch(content: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, (at, layout) in FIELDS.items():
        (value,) = struct.unpack_from(layout, content, at)
        if name not in ("length", "crc", "magic") and value != _USUAL.get(name, 0):
            facts[name] = recent(value) if "timestamp" in name else value
    try:
        columns = decode_batch(content)
        facts["records"] = [_record(record) for record in columns.records()][:RECORDS_SHOWN]
    except PeerError:
        facts["records"] = "unreadable"
    return facts


_USUAL = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "record_count": 1}


def _record(record: Record) -> str:
    key, value = ("null" if each is None else bytes(each[:20]).decode("latin-1") for each in (record.key, record.value))
    return f"{record.offset} {recent(record.timestamp_ms)} {key}={value}"
