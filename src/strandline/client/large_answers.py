"""Walks answers to Metadata and ListOffsets by topics: of 100,000 partitions they are 40 MB of objects at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final, TypeVar

from strandline.codec.message import Message
from strandline.codec.message_codec import decode
from strandline.codec.messages.list_offsets_response import ListOffsetsResponse, ListOffsetsTopicResponse
from strandline.codec.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from strandline.codec.primitives import read_uvarint
from strandline.codec.wire import read_name
from strandline.errors import MalformedMessage

_INT32: Final = Struct(">i")
_THROTTLE_FROM: Final = 3
_OFFSETS_THROTTLE_FROM: Final = 2
_CLUSTER_ID_FROM: Final = 2
_CONTROLLER_FROM: Final = 1
_BROKER_BYTES_MIN: Final = 8
_TOPIC_BYTES_MIN: Final = 4

TopicT = TypeVar("TopicT", bound=Message)


@dataclass(frozen=True)
class WalkedMetadata:
    """What stands before the topics of an answer, and the topics, which can be walked once."""

    brokers: list[MetadataResponseBroker]
    cluster_id: str
    controller_id: int
    topics: Iterator[MetadataResponseTopic]


def walk_metadata(view: memoryview, at: int, version: int) -> WalkedMetadata:
    """Return the answer whose body begins at `at`. Raise MalformedMessage if it is none; so do its topics."""
    # One copy, because reading from `bytes` is cheaper than from a view, and the next answer overwrites the view.
    answer = bytes(view)
    is_flexible = version >= MetadataResponse.FLEXIBLE_FROM
    try:
        if version >= _THROTTLE_FROM:
            at += _INT32.size
        count, at = _read_count(answer, at, is_flexible, _BROKER_BYTES_MIN)
        brokers = []
        for _ in range(count):
            broker, at = decode(MetadataResponseBroker, version, answer, at)
            brokers.append(broker)
        cluster_id: str | None = None
        if version >= _CLUSTER_ID_FROM:
            cluster_id, at = read_name(answer, at, is_flexible)
        controller_id = -1
        if version >= _CONTROLLER_FROM:
            (controller_id,) = _INT32.unpack_from(answer, at)
            at += _INT32.size
        count, at = _read_count(answer, at, is_flexible, _TOPIC_BYTES_MIN)
    except (StructError, IndexError):
        raise MalformedMessage(f"MetadataResponse version {version}: the message ends too early") from None
    return WalkedMetadata(
        brokers, cluster_id or "", controller_id, _topics(MetadataResponseTopic, answer, at, version, count)
    )


def walk_offsets(view: memoryview, at: int, version: int) -> Iterator[ListOffsetsTopicResponse]:
    """Yield the topics of the answer whose body begins at `at`. Raise MalformedMessage if it is none."""
    answer = bytes(view)
    try:
        at += _INT32.size if version >= _OFFSETS_THROTTLE_FROM else 0
        count, at = _read_count(answer, at, version >= ListOffsetsResponse.FLEXIBLE_FROM, _TOPIC_BYTES_MIN)
    except (StructError, IndexError):
        raise MalformedMessage(f"ListOffsetsResponse version {version}: the message ends too early") from None
    return _topics(ListOffsetsTopicResponse, answer, at, version, count)


def _read_count(answer: bytes, at: int, is_flexible: bool, bytes_min: int) -> tuple[int, int]:
    """Return the length of an array whose elements take at least `bytes_min` bytes."""
    if is_flexible:
        count, at = read_uvarint(answer, at)
        count -= 1
    else:
        (count,) = _INT32.unpack_from(answer, at)
        at += _INT32.size
    if not 0 <= count * bytes_min <= len(answer) - at:
        raise MalformedMessage(f"an array of {count} elements in {len(answer) - at} bytes")
    return count, at


def _topics(kind: type[TopicT], answer: bytes, at: int, version: int, count: int) -> Iterator[TopicT]:
    for _ in range(count):
        topic, at = decode(kind, version, answer, at)
        yield topic
