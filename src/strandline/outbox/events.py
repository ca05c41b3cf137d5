"""An event on its way into the outbox: checked and encoded when it is added, so that the relay can send every row."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from strandline.errors import PeerError

MESSAGE_BYTES_MAX: Final = 1_000_000
"""Key, value and headers together; a little below Kafka's default of `max.message.bytes`."""
KEY_LENGTH_MAX: Final = 255
"""Debezium's columns `aggregateid` and `type` have as many characters."""
TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}", re.ASCII)
HEADER_ID: Final = "id"
HEADER_TYPE: Final = "eventType"
_RESERVED: Final = (HEADER_ID, HEADER_TYPE)


class EventInvalid(PeerError, ValueError):
    """An event that could not be sent: its topic, key, headers or size are wrong. Nothing was added."""


class OutboxEvent(NamedTuple):
    """One row. The names are those of Debezium's outbox table; `aggregatetype` is the topic, `aggregateid` the key."""

    id: uuid.UUID
    aggregatetype: str
    aggregateid: str | None
    type: str
    payload: bytes | None
    headers: str | None
    """A JSON object of texts."""


def event_of(
    topic: str,
    key: str | bytes | int | uuid.UUID | None,
    event: Any,
    headers: Mapping[str, str] | None = None,
    event_type: str | None = None,
    id: uuid.UUID | str | None = None,
) -> OutboxEvent:
    """Return the row of an event. Raise EventInvalid with a sentence that names what is wrong."""
    if not isinstance(topic, str) or not TOPIC_NAME.fullmatch(topic):
        raise EventInvalid(
            f"{topic!r} is no name of a topic: use up to 249 letters, digits, dots, underscores and hyphens"
        )
    try:
        event_id = id if isinstance(id, uuid.UUID) else uuid.UUID(id) if id else uuid.uuid4()
    except (ValueError, AttributeError, TypeError):
        raise EventInvalid(f"the id of an event for {topic} is no UUID: {id!r}") from None
    if event_type is None:
        event_type = "" if isinstance(event, dict | list | str | bytes | None) else type(event).__name__
    row = OutboxEvent(
        event_id,
        topic,
        _key_text(topic, key),
        _short_text(event_type, f"the type of an event for {topic}"),
        _payload(topic, event),
        _headers_text(topic, headers),
    )
    size = len(row.payload or b"") + len((row.aggregateid or "").encode()) + len((row.headers or "").encode())
    if size > MESSAGE_BYTES_MAX:
        raise EventInvalid(f"an event for {topic} has {size:,} bytes, and {MESSAGE_BYTES_MAX:,} are allowed")
    return row


def _key_text(topic: str, key: Any) -> str | None:
    if key is None:
        return None
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            raise EventInvalid(f"the key of an event for {topic} is not UTF-8: encode it as text") from None
    if not isinstance(key, str | int | uuid.UUID) or isinstance(key, bool):
        raise EventInvalid(f"the key of an event for {topic} is {type(key).__name__}, and must be text or a number")
    return _short_text(str(key), f"the key of an event for {topic}")


def _short_text(value: Any, what: str) -> str:
    text = _text(value, what)
    if len(text) > KEY_LENGTH_MAX:
        raise EventInvalid(f"{what} has {len(text)} characters; {KEY_LENGTH_MAX} are allowed")
    return text


def _text(value: Any, what: str) -> str:
    """Return a text that a database can hold: no NUL, no half of a surrogate pair."""
    if not isinstance(value, str):
        raise EventInvalid(f"{what} is {type(value).__name__}, and must be text")
    if "\0" in value or not _is_unicode(value):
        raise EventInvalid(f"{what} has a character that a database cannot hold: {value[:40]!r}")
    return value


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _payload(topic: str, event: Any) -> bytes | None:
    if event is None or isinstance(event, bytes):
        return event
    try:
        if isinstance(event, bytearray | memoryview):
            return bytes(event)
        if isinstance(event, str):
            return event.encode()
        if hasattr(event, "model_dump_json"):
            return str(event.model_dump_json()).encode()
        if dataclasses.is_dataclass(event) and not isinstance(event, type):
            event = dataclasses.asdict(event)
        return json.dumps(event, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise EventInvalid(f"an event for {topic} cannot be written as JSON: {error}") from error


def _plain(value: Any) -> Any:
    """Return what JSON holds for values that it does not know."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID | decimal.Decimal):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return list(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _headers_text(topic: str, headers: Mapping[str, str] | None) -> str | None:
    if not headers:
        return None
    if not isinstance(headers, Mapping):
        raise EventInvalid(f"the headers of an event for {topic} are {type(headers).__name__}, and must be a dict")
    for name, value in headers.items():
        _text(name, f"the name of a header of an event for {topic}")
        _text(value, f"the header {name} of an event for {topic}")
        if name in _RESERVED:
            raise EventInvalid(f"the header {name} of an event for {topic} is written by the relay: use another name")
    return json.dumps(dict(headers), ensure_ascii=False)
