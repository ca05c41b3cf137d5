"""Messages of the Python clients, read alike: confluent-kafka, kafka-python, aiokafka, and our tasks and records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

ID_HEADER: Final = "id"
"""The header with the id of an event, as the outbox and Debezium's EventRouter write it."""
ID_LENGTH_MAX: Final = 255


class MessagePlace(NamedTuple):
    """Where a message is in the log."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.offset}"


def place_of(message: Any) -> MessagePlace:
    """Return the place of a message. Raise TypeError for an object that has none."""
    if callable(getattr(message, "error", None)) and message.error() is not None:
        raise TypeError(f"this is an error of the consumer and no message: {message.error()}")
    if isinstance(message, str | bytes | bytearray | memoryview):
        # Text has a method `partition`.
        raise TypeError(f"{type(message).__name__} is no message: it needs topic, partition and offset")
    # A transform of a sink may have renamed the topic of a record; `original_*` tell where it was read.
    topic = getattr(message, "original_topic", "") or _read(message, "topic")
    partition = getattr(message, "original_partition", -1)
    if partition < 0:
        partition = _read(message, "partition")
    offset = _read(message, "offset")
    if not isinstance(topic, str) or not isinstance(partition, int) or not isinstance(offset, int):
        raise TypeError(f"{type(message).__name__} is no message: it needs topic, partition and offset")
    return MessagePlace(topic, partition, offset)


def headers_of(message: Any) -> Iterable[tuple[str, Any]]:
    """Return the headers of a message as pairs; a record of a sink has triples."""
    found = _read(message, "headers", ())
    pairs = found.items() if isinstance(found, dict) else found or ()
    return [(each[0], each[1]) for each in pairs]


def id_of(message: Any) -> str:
    """Return the id of a message: that of its last header `id`, else `topic-partition-offset`.

    An id that is long, or that a text column cannot hold, is replaced by its digest.
    """
    found: Any = None
    for name, value in headers_of(message):
        if name == ID_HEADER:
            found = value
    if found is None or found in (b"", ""):
        return str(place_of(message))
    data = bytes(found) if isinstance(found, bytes | bytearray | memoryview) else str(found).encode()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or "\0" in text or len(text) > ID_LENGTH_MAX:
        return f"sha256:{hashlib.sha256(data).hexdigest()}"
    return text


def _read(message: Any, name: str, default: Any = None) -> Any:
    """Return an attribute, or what the method of that name returns (confluent-kafka)."""
    found = getattr(message, name, default)
    return found() if callable(found) else found
