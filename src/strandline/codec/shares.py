"""ShareFetch and ShareAcknowledge, versions 1 and 2, by hand: records are slices of files between byte strings.

Held equal to the compiled messages (`codec.messages.share_*`) by property tests. Version 2 brought the acquire mode and
renewed locks. Both APIs name topics by id and are flexible from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, Generic, NamedTuple, TypeVar

from strandline.codec.current_leader import NO_TAGS, NodeEndpoint
from strandline.codec.fetch import Records
from strandline.codec.wire import ELEMENTS_MAX, read_count, read_name, skip_tags, string, uvarint
from strandline.errors import MalformedMessage

RENEWS_FROM: Final = 2
LOCK_TIMEOUT_FROM: Final = 2
"""In the response of ShareAcknowledge; that of ShareFetch always has it."""
STRICT_MODE: Final = 1
"""Acquire mode that never exceeds the number of records asked for."""

_INT32: Final = Struct(">i")
_INT16: Final = Struct(">h")
_FETCH_HEAD: Final = Struct(">iiiiii")
_MODE: Final = Struct(">b?")
_BATCH: Final = Struct(">qq")
_RESPONSE_HEAD: Final = Struct(">ih")
_LEADER: Final = Struct(">iiB")
_ACQUIRED: Final = Struct(">qqhB")
_PARTITION: Final = Struct(">ih")
_NULL: Final = b"\x00"

R = TypeVar("R", bound=Records)
Batch = tuple[int, int, bytes]
"""First and last offset, and the types of the acknowledgement."""


class SharePartitionRequest(NamedTuple):
    """A partition in a request, with what is acknowledged in it."""

    topic_id: bytes
    partition: int
    batches: Sequence[Batch]


class ShareFetchRequest(NamedTuple):
    group_id: str | None
    member_id: str | None
    session_epoch: int
    wait_ms_max: int
    size_bytes_min: int
    size_bytes_max: int
    records_max: int
    batch_size: int
    acquire_mode: int
    is_renewal: bool
    partitions: list[SharePartitionRequest]
    forgotten: list[tuple[bytes, int]]


class ShareAcknowledgeRequest(NamedTuple):
    group_id: str | None
    member_id: str | None
    session_epoch: int
    is_renewal: bool
    partitions: list[SharePartitionRequest]


class SharePartitionResponse(NamedTuple, Generic[R]):
    """A partition in the response of a ShareFetch."""

    topic_id: bytes
    partition: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    leader: tuple[int, int] = (0, 0)
    """Id and epoch of the leader, where the client should ask another broker."""
    records: R | None = None
    acquired: Sequence[tuple[int, int, int]] = ()
    """First and last offset, and the delivery count."""


def parse_share_fetch(view: memoryview, at: int, version: int) -> ShareFetchRequest:
    try:
        group_id, at = read_name(view, at, True)
        member_id, at = read_name(view, at, True)
        epoch, wait_ms, size_min, size_max, records_max, batch_size = _FETCH_HEAD.unpack_from(view, at)
        at += _FETCH_HEAD.size
        mode, is_renewal = 0, False
        if version >= RENEWS_FROM:
            mode, is_renewal = _MODE.unpack_from(view, at)
            at += 2
        partitions, at = _read_partitions(view, at)
        forgotten, at = _read_forgotten(view, at)
        skip_tags(view, at)
    except (StructError, IndexError) as error:
        raise MalformedMessage("a ShareFetch request that ends too early") from error
    return ShareFetchRequest(
        group_id,
        member_id,
        epoch,
        wait_ms,
        size_min,
        size_max,
        records_max,
        batch_size,
        mode,
        is_renewal,
        partitions,
        forgotten,
    )


def parse_share_acknowledge(view: memoryview, at: int, version: int) -> ShareAcknowledgeRequest:
    try:
        group_id, at = read_name(view, at, True)
        member_id, at = read_name(view, at, True)
        (epoch,) = _INT32.unpack_from(view, at)
        at += 4
        is_renewal = False
        if version >= RENEWS_FROM:
            is_renewal = bool(view[at])
            at += 1
        partitions, at = _read_partitions(view, at)
        skip_tags(view, at)
    except (StructError, IndexError) as error:
        raise MalformedMessage("a ShareAcknowledge request that ends too early") from error
    return ShareAcknowledgeRequest(group_id, member_id, epoch, is_renewal, partitions)


def _read_partitions(view: memoryview, at: int) -> tuple[list[SharePartitionRequest], int]:
    partitions: list[SharePartitionRequest] = []
    ranges = 0
    topics, at = read_count(view, at, True, 18)
    for _ in range(topics):
        topic_id = bytes(view[at : at + 16])
        count, at = read_count(view, at + 16, True, 6)
        for _ in range(count):
            (index,) = _INT32.unpack_from(view, at)
            acknowledged, at = read_count(view, at + 4, True, 18)
            batches: list[Batch] = []
            for _ in range(acknowledged):
                first, last = _BATCH.unpack_from(view, at)
                types, at = read_count(view, at + 16, True, 1)
                batches.append((first, last, bytes(view[at : at + types])))
                at = skip_tags(view, at + types)
            at = skip_tags(view, at)
            ranges += acknowledged
            partitions.append(SharePartitionRequest(topic_id, index, batches))
        at = skip_tags(view, at)
        if len(partitions) > ELEMENTS_MAX or ranges > ELEMENTS_MAX:
            raise MalformedMessage(f"more than {ELEMENTS_MAX} partitions or ranges in one request")
    return partitions, at


def _read_forgotten(view: memoryview, at: int) -> tuple[list[tuple[bytes, int]], int]:
    forgotten: list[tuple[bytes, int]] = []
    topics, at = read_count(view, at, True, 18)
    for _ in range(topics):
        topic_id = bytes(view[at : at + 16])
        count, at = read_count(view, at + 16, True, 4)
        forgotten += [(topic_id, index) for (index,) in _INT32.iter_unpack(view[at : at + 4 * count])]
        at = skip_tags(view, at + 4 * count)
        if len(forgotten) > ELEMENTS_MAX:
            raise MalformedMessage(f"more than {ELEMENTS_MAX} forgotten partitions in one request")
    return forgotten, at


def encode_share_fetch(
    results: Sequence[SharePartitionResponse[R]],
    *,
    error_code: int = 0,
    error_message: str | None = None,
    lock_timeout_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
) -> tuple[list[bytes | memoryview | R], int]:
    """Return the body as a list of byte strings and records to be sent in between, and its size."""
    pieces: list[bytes | memoryview | R] = []
    size = 0
    text: list[bytes] = [
        _RESPONSE_HEAD.pack(throttle_ms, error_code),
        _nullable(error_message),
        _INT32.pack(lock_timeout_ms),
    ]
    topics = _by_topic(results)
    text.append(uvarint(len(topics) + 1))
    for topic_id, of_topic in topics.items():
        text += (topic_id, uvarint(len(of_topic) + 1))
        for result in of_topic:
            text += (
                _PARTITION.pack(result.partition, result.error_code),
                _nullable(result.error_message),
                _INT16.pack(result.acknowledge_error_code),
                _nullable(result.acknowledge_error_message),
                _LEADER.pack(*result.leader, 0),
            )
            records = result.records
            if records is None:
                text.append(b"\x01")
            else:
                text.append(uvarint(records.size_bytes + 1))
                block = b"".join(text)
                text = []
                pieces += (block, records)
                size += len(block) + records.size_bytes
            text.append(uvarint(len(result.acquired) + 1))
            text += [_ACQUIRED.pack(*each, 0) for each in result.acquired]
            text.append(NO_TAGS)
        text.append(NO_TAGS)
    text += (_endpoints(endpoints), NO_TAGS)
    block = b"".join(text)
    pieces.append(block)
    return pieces, size + len(block)


def encode_share_acknowledge(
    results: Sequence[SharePartitionResponse[R]],
    version: int,
    *,
    error_code: int = 0,
    error_message: str | None = None,
    lock_timeout_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
) -> bytes:
    """Return the body. The errors of the partitions are those of their acknowledgements."""
    text: list[bytes] = [_RESPONSE_HEAD.pack(throttle_ms, error_code), _nullable(error_message)]
    if version >= LOCK_TIMEOUT_FROM:
        text.append(_INT32.pack(lock_timeout_ms))
    topics = _by_topic(results)
    text.append(uvarint(len(topics) + 1))
    for topic_id, of_topic in topics.items():
        text += (topic_id, uvarint(len(of_topic) + 1))
        for result in of_topic:
            text += (
                _PARTITION.pack(result.partition, result.acknowledge_error_code),
                _nullable(result.acknowledge_error_message),
                _LEADER.pack(*result.leader, 0),
                NO_TAGS,
            )
        text.append(NO_TAGS)
    text += (_endpoints(endpoints), NO_TAGS)
    return b"".join(text)


def _by_topic(results: Sequence[SharePartitionResponse[R]]) -> dict[bytes, list[SharePartitionResponse[R]]]:
    grouped: dict[bytes, list[SharePartitionResponse[R]]] = {}
    for result in results:
        grouped.setdefault(result.topic_id, []).append(result)
    return grouped


def _nullable(text: str | None) -> bytes:
    return _NULL if text is None else string(text, True)


def _endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    parts = [uvarint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts += (_INT32.pack(node_id), string(host, True), _INT32.pack(port), _nullable(rack), NO_TAGS)
    return b"".join(parts)
