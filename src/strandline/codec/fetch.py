"""Fetch, versions 4 to 18, by hand: the answer is a list of byte strings and slices of files, never the records.

Held equal to the compiled messages (`codec.messages.fetch_*`) by property tests. Version 7 brought sessions, 12 is
flexible, 13 names topics by id, 15 moved the replica id into a tagged field, 18 brought a follower's high watermark.
Requests are written here too, and answers read, for the one client that is a broker: a follower, from version 17 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from strandline.codec.current_leader import FETCH_DIVERGING_TAG, FETCH_HORIZON_TAG, NO_TAGS
from strandline.codec.primitives import read_uvarint
from strandline.codec.wire import (
    ELEMENTS_MAX,
    TAGGED_FIELDS_MAX,
    read_count,
    read_name,
    skip_tags,
    string,
    uvarint,
)
from strandline.errors import ErrorCode, MalformedMessage

FLEXIBLE_FROM: Final = 12
TOPIC_ID_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15
ENDPOINTS_FROM: Final = 16
HIGH_WATERMARK_FROM: Final = 18
ABSENT_CODES: Final = frozenset(
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
)

_INT32 = Struct(">i")
_INT64 = Struct(">q")
_HEAD_4 = Struct(">iiib")
_HEAD_7 = Struct(">iiibii")
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")
_RESULT_4 = Struct(">ihqq")
_RESULT_5 = Struct(">ihqqq")
_ABORTED_4 = Struct(">qq")
_ABORTED_12 = Struct(">qqB")
_RESPONSE_HEAD_7 = Struct(">ihi")
_REPLICA_STATE = Struct(">iq")
_REPLICA_TAG = Struct(">BBBiqB")
_HIGH_WATERMARK_TAG = Struct(">BBBq")
_EPOCH_END = Struct(">iq")
BEGINS_AGAIN: Final = -1
"""The offset that a follower asks for which gives up its log, and wants to copy the leader's from the start."""
KNOWS_ALL: Final = 2**63 - 1
"""The high watermark of a reader that does not send one: it need not be notified of a new one."""


class PartitionFetch(NamedTuple):
    topic: str | bytes
    """The topic's name, or from version 13 on its id (16 bytes)."""
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    size_bytes_max: int
    high_watermark: int = KNOWS_ALL
    """What a follower knows of it (18+)."""


class FetchRequest(NamedTuple):
    replica_id: int
    wait_ms_max: int
    size_bytes_min: int
    size_bytes_max: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[PartitionFetch]
    forgotten: list[tuple[str | bytes, int]]
    replica_epoch: int = -1
    """The broker epoch of a follower (15+)."""
    rack_id: str = ""
    """Where the consumer is (11+); empty if it does not say."""


class Records(Protocol):
    @property
    def size_bytes(self) -> int: ...


R = TypeVar("R", bound=Records)


class PartitionData(NamedTuple, Generic[R]):
    topic: str | bytes
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: R | None
    tags: bytes = NO_TAGS
    """Tagged fields, from version 12 on: see `codec.current_leader`."""
    aborted: Sequence[tuple[int, int]] = ()
    """Transactions that a read_committed reader leaves out: (producer id, first offset)."""
    preferred_replica: int = -1
    """The replica that the consumer should read from now on (11+); -1 if it may stay."""


def parse_fetch(view: memoryview, at: int, version: int) -> FetchRequest:
    try:
        return _parse(view, at, version)
    except (StructError, IndexError) as error:
        raise MalformedMessage("a Fetch request that ends too early") from error


def _parse(view: memoryview, at: int, version: int) -> FetchRequest:
    flexible = version >= FLEXIBLE_FROM
    replica_id = replica_epoch = -1
    if version < REPLICA_STATE_FROM:
        (replica_id,) = _INT32.unpack_from(view, at)
        at += 4
    session_id, session_epoch = 0, -1
    if version >= 7:
        wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_7.unpack_from(view, at)
        at += 21
    else:
        wait_ms, min_bytes, max_bytes, isolation = _HEAD_4.unpack_from(view, at)
        at += 13
    partitions: list[PartitionFetch] = []
    topics, at = read_count(view, at, flexible, 3)
    for _ in range(topics):
        topic, at = _read_topic(view, at, version)
        count, at = read_count(view, at, flexible, 16)
        for _ in range(count):
            fetch, at = _read_partition(view, at, version, topic)
            partitions.append(fetch)
        if flexible:
            at = skip_tags(view, at)
        if len(partitions) > ELEMENTS_MAX:
            raise MalformedMessage(f"more than {ELEMENTS_MAX} partitions in one request")
    forgotten: list[tuple[str | bytes, int]] = []
    if version >= 7:
        topics, at = read_count(view, at, flexible, 3)
        for _ in range(topics):
            topic, at = _read_topic(view, at, version)
            count, at = read_count(view, at, flexible, 4)
            forgotten += [(topic, index) for (index,) in _INT32.iter_unpack(view[at : at + 4 * count])]
            at += 4 * count
            if flexible:
                at = skip_tags(view, at)
            if len(forgotten) > ELEMENTS_MAX:
                raise MalformedMessage(f"more than {ELEMENTS_MAX} forgotten partitions in one request")
    rack_id = ""
    if version >= 11:
        rack, at = read_name(view, at, flexible)
        if rack is None:
            raise MalformedMessage("a rack id that is null")
        rack_id = rack
    if flexible:
        if version >= REPLICA_STATE_FROM:
            replica_id, replica_epoch = _read_request_tags(view, at)
        else:
            skip_tags(view, at)
    return FetchRequest(
        replica_id,
        wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        replica_epoch,
        rack_id,
    )


def _read_topic(view: memoryview, at: int, version: int) -> tuple[str | bytes, int]:
    if version >= TOPIC_ID_FROM:
        if len(view) - at < 16:
            raise MalformedMessage("a topic id that ends too early")
        return bytes(view[at : at + 16]), at + 16
    topic, at = read_name(view, at, version >= FLEXIBLE_FROM)
    if topic is None:
        raise MalformedMessage("a topic without a name")
    return topic, at


def _read_partition(view: memoryview, at: int, version: int, topic: str | bytes) -> tuple[PartitionFetch, int]:
    epoch = last_epoch = start = -1
    if version >= FLEXIBLE_FROM:
        index, epoch, offset, last_epoch, start, max_bytes = _PARTITION_12.unpack_from(view, at)
        at += 32
        if view[at]:
            # A follower's directory id and high watermark (17, 18); consumers send none.
            high_watermark, at = _read_partition_tags(view, at, version)
            return PartitionFetch(topic, index, epoch, offset, last_epoch, start, max_bytes, high_watermark), at
        at += 1
    elif version >= 9:
        index, epoch, offset, start, max_bytes = _PARTITION_9.unpack_from(view, at)
        at += 28
    elif version >= 5:
        index, offset, start, max_bytes = _PARTITION_5.unpack_from(view, at)
        at += 24
    else:
        index, offset, max_bytes = _PARTITION_4.unpack_from(view, at)
        at += 16
    return PartitionFetch(topic, index, epoch, offset, last_epoch, start, max_bytes), at


def _read_partition_tags(view: memoryview, at: int, version: int) -> tuple[int, int]:
    """Return the high watermark that a follower knows, tag 1 from version 18 on."""
    high_watermark = KNOWS_ALL
    count, at = read_uvarint(view, at)
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessage(f"{count} tagged fields; {TAGGED_FIELDS_MAX} are allowed")
    for _ in range(count):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        if size > len(view) - at:
            raise MalformedMessage("a tagged field goes beyond the message")
        if tag == 1 and version >= HIGH_WATERMARK_FROM:
            (high_watermark,) = _INT64.unpack_from(view, at)
        at += size
    return high_watermark, at


def _read_request_tags(view: memoryview, at: int) -> tuple[int, int]:
    """Return the replica id and broker epoch of a follower, tag 1; consumers send no tags."""
    replica_id = replica_epoch = -1
    count, at = read_uvarint(view, at)
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessage(f"{count} tagged fields; {TAGGED_FIELDS_MAX} are allowed")
    for _ in range(count):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        if size > len(view) - at:
            raise MalformedMessage("a tagged field goes beyond the message")
        if tag == 1:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(view, at)
        at += size
    return replica_id, replica_epoch


def encode_fetch_response(
    results: list[PartitionData[R]],
    version: int,
    *,
    session_id: int,
    error_code: int = 0,
    isolation_level: int = 0,
    endpoints: bytes = NO_TAGS,
    throttle_ms: int = 0,
) -> tuple[list[bytes | memoryview | R], int]:
    """Return the body as a list of byte strings and records to be sent in between, and its size.

    `endpoints` is the section of tagged fields that names leaders; it is left out below version 16.
    """
    flexible = version >= FLEXIBLE_FROM
    head = _RESPONSE_HEAD_7.pack(throttle_ms, error_code, session_id) if version >= 7 else _INT32.pack(throttle_ms)
    # Aborted transactions: null if the request did not ask, empty for a partition that is unknown or refused. Version
    # 11 added the preferred read replica, mostly "none".
    replica = b"\xff\xff\xff\xff" if version >= 11 else b""
    absent = (b"\x01" if flexible else b"\x00\x00\x00\x00") + replica
    between = absent if isolation_level else (b"\x00" if flexible else b"\xff\xff\xff\xff") + replica
    topics = _by_topic(results)
    pieces: list[bytes | memoryview | R] = []
    text: list[bytes] = [head, uvarint(len(topics) + 1) if flexible else _INT32.pack(len(topics))]
    size = 0
    for of_topic in topics:
        topic = of_topic[0].topic
        text.append(topic if isinstance(topic, bytes) else string(topic, flexible))
        text.append(uvarint(len(of_topic) + 1) if flexible else _INT32.pack(len(of_topic)))
        for _, partition, error, high_watermark, stable, start, records, tags, aborted, preferred in of_topic:
            if version >= 5:
                text.append(_RESULT_5.pack(partition, error, high_watermark, stable, start))
            else:
                text.append(_RESULT_4.pack(partition, error, high_watermark, stable))
            length = 0 if records is None else records.size_bytes
            if preferred >= 0 and version >= 11:
                among = absent if error and error in ABSENT_CODES else between
                text.append(_aborted(aborted, flexible) if aborted else among[:-4])
                text.append(_INT32.pack(preferred))
            elif aborted:
                text += (_aborted(aborted, flexible), replica)
            else:
                text.append(absent if error and error in ABSENT_CODES else between)
            text.append(uvarint(length + 1) if flexible else _INT32.pack(length))
            if records is not None:
                block = b"".join(text)
                text = []
                pieces.append(block)
                pieces.append(records)
                size += len(block) + length
            if flexible:
                text.append(tags)
        if flexible:
            text.append(b"\x00")
    if flexible:
        text.append(endpoints if version >= ENDPOINTS_FROM else NO_TAGS)
    block = b"".join(text)
    pieces.append(block)
    return pieces, size + len(block)


def _aborted(aborted: Sequence[tuple[int, int]], flexible: bool) -> bytes:
    if flexible:
        return uvarint(len(aborted) + 1) + b"".join(_ABORTED_12.pack(*each, 0) for each in aborted)
    return _INT32.pack(len(aborted)) + b"".join(_ABORTED_4.pack(*each) for each in aborted)


def _by_topic(results: list[PartitionData[R]]) -> list[list[PartitionData[R]]]:
    if len(results) == 1:
        return [results]
    grouped: dict[str | bytes, list[PartitionData[R]]] = {}
    for result in results:
        grouped.setdefault(result.topic, []).append(result)
    return list(grouped.values())


# What a follower sends and is answered.


class FetchedPartition(NamedTuple):
    topic: bytes
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    """(epoch, its end at the leader) if the follower's log is not a part of the leader's."""
    records: memoryview
    tombstone_horizon: int = -1
    """Where the leader's is, if it is above the offset that was asked for; -1 if not."""


class FetchAnswer(NamedTuple):
    error_code: int
    session_id: int
    partitions: list[FetchedPartition]


def encode_follower_fetch(
    version: int,
    *,
    replica_id: int,
    replica_epoch: int,
    wait_ms_max: int,
    size_bytes_max: int,
    session_id: int,
    session_epoch: int,
    partitions: list[PartitionFetch],
    forgotten: list[tuple[bytes, int]],
) -> bytes:
    """The body of a follower's Fetch, version 17 or 18: at least one byte is wanted, whatever the isolation level."""
    parts = [_HEAD_7.pack(wait_ms_max, 1, size_bytes_max, 0, session_id, session_epoch)]
    by_topic: dict[str | bytes, list[PartitionFetch]] = {}
    for fetch in partitions:
        by_topic.setdefault(fetch[0], []).append(fetch)
    parts.append(uvarint(len(by_topic) + 1))
    for topic, of_topic in by_topic.items():
        assert isinstance(topic, bytes), "a follower names topics by their ids"
        parts += (topic, uvarint(len(of_topic) + 1))
        for _, index, epoch, offset, last_epoch, start, max_bytes, high_watermark in of_topic:
            parts.append(_PARTITION_12.pack(index, epoch, offset, last_epoch, start, max_bytes))
            if version >= HIGH_WATERMARK_FROM and high_watermark != KNOWS_ALL:
                parts.append(_HIGH_WATERMARK_TAG.pack(1, 1, 8, high_watermark))
            else:
                parts.append(NO_TAGS)
        parts.append(NO_TAGS)
    left: dict[bytes, list[int]] = {}
    for topic_id, index in forgotten:
        left.setdefault(topic_id, []).append(index)
    parts.append(uvarint(len(left) + 1))
    for topic_id, indexes in left.items():
        parts += (topic_id, uvarint(len(indexes) + 1), *map(_INT32.pack, indexes), NO_TAGS)
    # No rack; the one tagged field is the replica's id and epoch.
    parts += (b"\x01", _REPLICA_TAG.pack(1, 1, 13, replica_id, replica_epoch, 0))
    return b"".join(parts)


def parse_fetch_answer(view: memoryview, at: int, version: int) -> FetchAnswer:
    """Return the answer to a follower's Fetch, version 17 or 18; records are views."""
    try:
        return _parse_answer(view, at)
    except (StructError, IndexError) as error:
        raise MalformedMessage("a Fetch answer that ends too early") from error


def _parse_answer(view: memoryview, at: int) -> FetchAnswer:
    _, error_code, session_id = _RESPONSE_HEAD_7.unpack_from(view, at)
    at += 10
    partitions: list[FetchedPartition] = []
    topics, at = read_count(view, at, True, 18)
    for _ in range(topics):
        topic = bytes(view[at : at + 16])
        count, at = read_count(view, at + 16, True, 37)
        for _ in range(count):
            index, error, high_watermark, _, start = _RESULT_5.unpack_from(view, at)
            at += 30
            aborted, at = read_uvarint(view, at)
            for _ in range(aborted - 1):
                at = skip_tags(view, at + 16)
            size, at = read_uvarint(view, at + 4)
            size = max(0, size - 1)
            if size > len(view) - at:
                raise MalformedMessage(f"records of {size} bytes with {len(view) - at} left")
            records = view[at : at + size]
            at += size
            diverging, horizon = None, -1
            if view[at]:
                diverging, horizon, at = _read_answer_tags(view, at)
            else:
                at += 1
            partitions.append(FetchedPartition(topic, index, error, high_watermark, start, diverging, records, horizon))
        at = skip_tags(view, at)
    skip_tags(view, at)
    return FetchAnswer(error_code, session_id, partitions)


def _read_answer_tags(view: memoryview, at: int) -> tuple[tuple[int, int] | None, int, int]:
    """Return where the follower's log diverges, and the leader's tombstone horizon."""
    diverging, horizon = None, -1
    count, at = read_uvarint(view, at)
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessage(f"{count} tagged fields; {TAGGED_FIELDS_MAX} are allowed")
    for _ in range(count):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        if size > len(view) - at:
            raise MalformedMessage("a tagged field goes beyond the message")
        if tag == FETCH_DIVERGING_TAG:
            epoch, end_offset = _EPOCH_END.unpack_from(view, at)
            diverging = (epoch, end_offset)
        elif tag == FETCH_HORIZON_TAG:
            (horizon,) = _INT64.unpack_from(view, at)
        at += size
    return diverging, horizon, at
