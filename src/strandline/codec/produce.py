"""Produce, versions 3 to 13, by hand: batches stay views of the receive buffer.

Held equal to the compiled messages (`codec.messages.produce_*`) by property tests.

    request    transactional id, acks int16, timeout int32, [topic name | id, [partition int32, records]]
    response   [topic name | id, [partition, error, base offset, append time, log start (5+), record errors and
               message (8+), who leads instead (10+)]], throttle time, where those are (10+);
               version 9+ is flexible, 13 names topics by id
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from strandline.codec.current_leader import NO_TAGS, PRODUCE_LEADER_TAG, leader_section
from strandline.codec.primitives import read_uvarint
from strandline.codec.wire import ELEMENTS_MAX, read_count, read_name, skip_tags, string, uvarint
from strandline.errors import MalformedMessage

FLEXIBLE_FROM: Final = 9
TOPIC_ID_FROM: Final = 13
LEADER_FROM: Final = 10
TEMPLATES_MAX: Final = 4096
HEADS_MAX: Final = 1024
RECORD_ERRORS_MAX: Final = 1000
"""Records that one response names, as many as `codec.columns` names of one batch. A request of a few bytes for each of
thousands of partitions must not be answered with megabytes."""
_ACKS_TIMEOUT = Struct(">hi")
_PARTITION_SIZE = Struct(">ii")
_INT32 = Struct(">i")
_RESULT = Struct(">ihqqq")
_RESULT_BEFORE_5 = Struct(">ihqq")
_NO_ERRORS: Final = b"\x01\x00\x00"
"""No record errors, no message, no tagged fields."""
_NO_ERRORS_BEFORE_9: Final = b"\x00\x00\x00\x00\xff\xff"


PartitionRecords = tuple[str | bytes, int, memoryview | None]
"""Topic (its name, or from version 13 on its id of 16 bytes), partition, records. A plain tuple: one is made for each
request of one record, and a named one costs five times as much."""

RecordErrors = tuple[tuple[int, str], ...]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[PartitionRecords]


class PartitionResult(NamedTuple):
    topic: str | bytes
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    message: str | None = None
    leader: tuple[int, int] | None = None
    """Who leads instead, and in which epoch (10+)."""
    record_errors: RecordErrors = ()
    """Records that were refused, and their batch with them: place in the batch, why (8+)."""


Heads = dict[bytes, tuple[int, int, str | bytes]]
_heads_with_name: Heads = {}
_heads_with_id: Heads = {}
"""Acks, timeout and topic by all that stands before the partition, of requests that `_parse_known` reads. A producer
sends the same few in all its requests."""


def parse_produce(view: memoryview, at: int, version: int) -> ProduceRequest:
    flexible = version >= FLEXIBLE_FROM
    if flexible and (known := _parse_known(view, at, version)) is not None:
        return known
    began_at, partition_at = at, -1
    partitions: list[PartitionRecords] = []
    topic: str | bytes | None
    try:
        if flexible and view[at] == 0:
            transactional_id, at = None, at + 1
        else:
            transactional_id, at = read_name(view, at, flexible)
        acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, at)
        topics, at = read_count(view, at + 6, flexible, 3)
        for _ in range(topics):
            if version >= TOPIC_ID_FROM:
                topic = bytes(view[at : at + 16])
                at += 16
            else:
                topic, at = read_name(view, at, flexible)
                if topic is None:
                    raise MalformedMessage("a topic without a name")
            count, at = read_count(view, at, flexible, 5)
            for _ in range(count):
                partition_at = at
                if flexible:
                    (partition,) = _INT32.unpack_from(view, at)
                    size, at = read_uvarint(view, at + 4)
                    size -= 1
                else:
                    partition, size = _PARTITION_SIZE.unpack_from(view, at)
                    at += 8
                if size < 0:
                    if size < -1:
                        raise MalformedMessage(f"records of {size} bytes")
                    records = None
                else:
                    if size > len(view) - at:
                        raise MalformedMessage(f"records of {size} bytes with {len(view) - at} left")
                    records = view[at : at + size]
                    at += size
                if flexible:
                    at = at + 1 if view[at] == 0 else skip_tags(view, at)
                partitions.append((topic, partition, records))
            if flexible:
                at = at + 1 if view[at] == 0 else skip_tags(view, at)
            if len(partitions) > ELEMENTS_MAX:
                raise MalformedMessage(f"more than {ELEMENTS_MAX} partitions in one request")
        if flexible and view[at]:
            skip_tags(view, at)
        if (
            flexible
            and transactional_id is None
            and len(partitions) == 1
            and partition_at == _head_end(view, began_at, version)
        ):
            heads = _heads_with_id if version >= TOPIC_ID_FROM else _heads_with_name
            if len(heads) >= HEADS_MAX:
                # A peer makes up names, or there are that many producers. The heads in use are noted again.
                heads.clear()
            heads[bytes(view[began_at:partition_at])] = acks, timeout_ms, partitions[0][0]
    except (StructError, IndexError) as error:
        raise MalformedMessage("a Produce request that ends too early") from error
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _head_end(view: memoryview, at: int, version: int) -> int:
    """Where the partition begins: no transactional id, acks, timeout, one topic with a name below 127 bytes or an id,
    one partition."""
    return at + 25 if version >= TOPIC_ID_FROM else at + 9 + view[at + 8]


def _parse_known(view: memoryview, at: int, version: int) -> ProduceRequest | None:
    """What most requests are: one partition without a transaction and tagged fields, and a head that was seen before.
    None for all others, also for those that are malformed."""
    try:
        end = _head_end(view, at, version)
        heads = _heads_with_id if version >= TOPIC_ID_FROM else _heads_with_name
        known = heads.get(view[at:end].tobytes())
        if known is None:
            return None
        (partition,) = _INT32.unpack_from(view, end)
        size, at = read_uvarint(view, end + 4)
        end = at + size - 1
        if not size or view[end] or view[end + 1] or view[end + 2]:
            return None
    except (StructError, IndexError):
        return None
    acks, timeout_ms, topic = known
    return ProduceRequest(None, acks, timeout_ms, [(topic, partition, view[at:end])])


def encode_produce_response(results: list[PartitionResult], version: int, *, endpoints: bytes = NO_TAGS) -> bytes:
    """Return the body. Results of one topic stand together, as they did in the request.

    `endpoints` is the section of tagged fields that names leaders; it is left out below version 10.
    """
    if len(results) == 1 and endpoints is NO_TAGS:
        # Only what is known to be there is kept: a peer may make up names without end.
        around = _around_one_result.__wrapped__ if results[0].error_code else _around_one_result
        prefix, suffix = around(results[0].topic, version)
        return prefix + _encode_result(results[0], version) + suffix
    flexible = version >= FLEXIBLE_FROM
    topics: dict[str | bytes, list[PartitionResult]] = {}
    named = 0
    for result in results:
        if result.record_errors:
            named += len(result.record_errors)
            if named > RECORD_ERRORS_MAX:
                result = result._replace(record_errors=())
        topics.setdefault(result.topic, []).append(result)
    parts = [_count(len(topics), flexible)]
    for topic, of_topic in topics.items():
        parts.append(_topic_head(topic, len(of_topic), flexible))
        parts.extend([_encode_result(result, version) for result in of_topic])
        if flexible:
            parts.append(b"\x00")
    parts.append(b"\x00\x00\x00\x00" + endpoints if version >= LEADER_FROM else _tail(flexible))
    return b"".join(parts)


def with_throttle_time(body: bytes, version: int, throttle_ms: int, endpoints: bytes) -> bytes:
    """Return the body of `encode_produce_response` with a throttle time, which stands before the last tagged fields."""
    tags_size = len(endpoints) if version >= LEADER_FROM else version >= FLEXIBLE_FROM
    at = len(body) - tags_size - _INT32.size
    return body[:at] + _INT32.pack(throttle_ms) + body[at + _INT32.size :]


@lru_cache(maxsize=TEMPLATES_MAX)
def _around_one_result(topic: str | bytes, version: int) -> tuple[bytes, bytes]:
    """Return what stands before and behind the one result of an answer about one partition, which most answers are."""
    flexible = version >= FLEXIBLE_FROM
    return _count(1, flexible) + _topic_head(topic, 1, flexible), (b"\x00" if flexible else b"") + _tail(flexible)


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)


def _topic_head(topic: str | bytes, partition_count: int, flexible: bool) -> bytes:
    return (topic if isinstance(topic, bytes) else string(topic, flexible)) + _count(partition_count, flexible)


def _tail(flexible: bool) -> bytes:
    """Throttle time, and no tagged fields."""
    return b"\x00\x00\x00\x00\x00" if flexible else b"\x00\x00\x00\x00"


def _encode_result(result: PartitionResult, version: int) -> bytes:
    _, partition, error_code, base_offset, append_time_ms, log_start_offset, message, leader, record_errors = result
    if version < 5:
        return _RESULT_BEFORE_5.pack(partition, error_code, base_offset, append_time_ms)
    fixed = _RESULT.pack(partition, error_code, base_offset, append_time_ms, log_start_offset)
    if version < 8:
        return fixed
    flexible = version >= FLEXIBLE_FROM
    if message is None and leader is None and not record_errors:
        return fixed + (_NO_ERRORS if flexible else _NO_ERRORS_BEFORE_9)
    tags = NO_TAGS if flexible else b""
    errors = b"".join([_INT32.pack(index) + string(why, flexible) + tags for index, why in record_errors])
    if leader is not None and version >= LEADER_FROM:
        tags = leader_section(PRODUCE_LEADER_TAG, *leader)
    said = (b"\x00" if flexible else b"\xff\xff") if message is None else string(message, flexible)
    return fixed + _count(len(record_errors), flexible) + errors + said + tags
