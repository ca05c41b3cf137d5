"""Produce requests that something is wrong with, by name, and the code that each is refused with.

The same table is sent to Apache Kafka (`tests/differential`), so that a difference is either none or a listed one.
"""

from __future__ import annotations

import gzip
import struct
import uuid
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import NamedTuple

from tests.hostile.batches import batch, now_ms, produce, with_fields, with_records
from tests.unit.codec.columns_cases import BAD_PAYLOADS, RECORD

from strandline.codec.columns import Record, encode_batch
from strandline.codec.columns.encode import encode_varint
from strandline.codec.compression import compress
from strandline.codec.message import Message
from strandline.errors import ErrorCode

TOPIC = "target"
APPEND_TIME_TOPIC = "append-time"
SMALL_TOPIC = "small"
STRICT_TIME_TOPIC = "strict-time"
COMPACTED_TOPIC = "compacted"
TOPICS: dict[str, dict[str, str]] = {
    TOPIC: {},
    APPEND_TIME_TOPIC: {"message.timestamp.type": "LogAppendTime"},
    SMALL_TOPIC: {"max.message.bytes": "2000"},
    STRICT_TIME_TOPIC: {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"},
    COMPACTED_TOPIC: {"cleanup.policy": "compact"},
}

OK = ErrorCode.NONE
HOUR_MS = 3_600_000


class Case(NamedTuple):
    make: Callable[[], Message]
    code: ErrorCode
    """What we answer."""
    version: int = 9


_STRANGERS = count(6000)
"""A producer that was refused for its sequence is accepted when it comes again, so each case has its own."""


def _records(spoil: Callable[[], bytes | None], code: ErrorCode, *, topic: str = TOPIC) -> Case:
    return Case(lambda: produce(topic, spoil()), code)


def _flipped() -> bytes:
    good = bytearray(batch([b"x" * 50]))
    good[-1] ^= 1
    return bytes(good)


def _records_of(fields: bytes) -> bytes:
    """A records section that is no sequence of records."""
    return with_records(batch(), fields)


def _numbered(*deltas: int, codec: int = 0) -> bytes:
    """A batch whose records carry these offset deltas, under a header that fits their number."""
    section = compress(codec, b"".join(RECORD[:3] + encode_varint(delta) + RECORD[4:] for delta in deltas))
    good = batch([b"v"] * len(deltas), timestamp_ms=now_ms())
    return with_fields(with_records(good, section), attributes=codec)


def _keyed(*keys: bytes | None, codec: int = 0) -> bytes:
    return encode_batch([Record(timestamp_ms=now_ms(), key=key, value=b"v") for key in keys], compression=codec)


CASES: dict[str, Case] = {
    # The batch as a whole.
    "sound": _records(batch, OK),
    "wrong CRC": _records(lambda: with_fields(batch(), crc=1), ErrorCode.CORRUPT_MESSAGE),
    "one bit flipped": _records(_flipped, ErrorCode.CORRUPT_MESSAGE),
    "magic 0": _records(lambda: with_fields(batch(), magic=0), ErrorCode.INVALID_RECORD),
    "magic 1": _records(lambda: with_fields(batch(), magic=1), ErrorCode.INVALID_RECORD),
    "magic 3": _records(lambda: with_fields(batch(), magic=3), ErrorCode.CORRUPT_MESSAGE),
    "magic -1": _records(lambda: with_fields(batch(), magic=-1), ErrorCode.CORRUPT_MESSAGE),
    "null records": _records(lambda: None, ErrorCode.INVALID_RECORD),
    "empty records": _records(lambda: b"", ErrorCode.INVALID_RECORD),
    "eleven bytes": _records(lambda: bytes(11), ErrorCode.INVALID_RECORD),
    "a header cut short": _records(lambda: batch()[:60], ErrorCode.INVALID_RECORD),
    "truncated": _records(lambda: batch([b"x" * 50])[:-1], ErrorCode.INVALID_RECORD),
    "overlong": _records(lambda: batch() + b"\x00", ErrorCode.INVALID_RECORD),
    "two batches": _records(lambda: batch() + batch(), ErrorCode.INVALID_RECORD),
    "length says less": _records(lambda: with_fields(batch(), length=55), ErrorCode.INVALID_RECORD),
    "length says more": _records(lambda: with_fields(batch(), length=5000), ErrorCode.INVALID_RECORD),
    "length shorter than a header": _records(lambda: with_fields(batch(), length=10), ErrorCode.CORRUPT_MESSAGE),
    "length negative": _records(lambda: with_fields(batch(), length=-1), ErrorCode.CORRUPT_MESSAGE),
    "length 2^31-1": _records(lambda: with_fields(batch(), length=2**31 - 1), ErrorCode.INVALID_RECORD),
    # The header's fields.
    "base offset is not 0": _records(lambda: batch([b"1", b"2"], base_offset=7), OK),
    "base offset negative": _records(lambda: batch(base_offset=-5), OK),
    "leader epoch": _records(lambda: batch(leader_epoch=99), OK),
    "count above last offset delta": _records(lambda: with_fields(batch(), record_count=2), ErrorCode.INVALID_RECORD),
    "count below last offset delta": _records(
        lambda: with_fields(batch(), last_offset_delta=5), ErrorCode.INVALID_RECORD
    ),
    "last offset delta negative": _records(
        lambda: with_fields(batch(), last_offset_delta=-1), ErrorCode.INVALID_RECORD
    ),
    "count 0": _records(lambda: with_fields(batch(), record_count=0), ErrorCode.INVALID_RECORD),
    "count negative": _records(lambda: with_fields(batch(), record_count=-1), ErrorCode.INVALID_RECORD),
    "no record at all": _records(lambda: encode_batch([]), ErrorCode.INVALID_RECORD),
    "count and delta 2^31-1": _records(
        lambda: with_fields(batch(), record_count=2**31 - 1, last_offset_delta=2**31 - 2), ErrorCode.INVALID_RECORD
    ),
    "unknown codec 5": _records(lambda: with_fields(batch(), attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "unknown codec 7": _records(lambda: with_fields(batch(), attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "control bit": _records(lambda: with_fields(batch(), attributes=0x20), ErrorCode.INVALID_RECORD),
    "delete horizon bit": _records(lambda: with_fields(batch(), attributes=0x40), OK),
    "unknown attribute bits": _records(lambda: with_fields(batch(), attributes=0x7F80), OK),
    "append time bit": _records(lambda: with_fields(batch(), attributes=0x08), OK),
    "transactional bit without producer": _records(
        lambda: with_fields(batch(), attributes=0x10), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ),
    "producer id without sequence": _records(
        lambda: batch(producer_id=5000, producer_epoch=0), ErrorCode.INVALID_RECORD
    ),
    "producer id without epoch": _records(lambda: batch(producer_id=5001, producer_epoch=-1, base_sequence=0), OK),
    "sequence without producer id": _records(lambda: batch(base_sequence=4), OK),
    "producer id below -1": _records(lambda: batch(producer_id=-7, producer_epoch=0, base_sequence=0), OK),
    "first sequence of an unknown producer is not 0": _records(
        lambda: batch(producer_id=next(_STRANGERS), producer_epoch=3, base_sequence=77), ErrorCode.NOT_ENOUGH_REPLICAS
    ),
    # The records section.
    "records are garbage": _records(lambda: _records_of(b"\xff" * 40), ErrorCode.INVALID_RECORD),
    "records section empty": _records(lambda: _records_of(b""), ErrorCode.INVALID_RECORD),
    "gzip of garbage": _records(lambda: with_fields(_records_of(b"\xff" * 40), attributes=1), ErrorCode.INVALID_RECORD),
    "gzip of a wrong record": _records(
        lambda: with_fields(_records_of(gzip.compress(b"\xff" * 40)), attributes=1), ErrorCode.INVALID_RECORD
    ),
    "snappy of garbage": _records(
        lambda: with_fields(_records_of(b"\xff" * 40), attributes=2), ErrorCode.INVALID_RECORD
    ),
    "lz4 of garbage": _records(lambda: with_fields(_records_of(b"\xff" * 40), attributes=3), ErrorCode.INVALID_RECORD),
    "zstd of garbage": _records(lambda: with_fields(_records_of(b"\xff" * 40), attributes=4), ErrorCode.INVALID_RECORD),
    **{
        f"record: {name}": _records(partial(_records_of, records), ErrorCode.INVALID_RECORD)
        for name, records in BAD_PAYLOADS.items()
    },
    "one record fewer than counted": _records(
        lambda: with_fields(batch([b"x" * 50]), record_count=2, last_offset_delta=1), ErrorCode.INVALID_RECORD
    ),
    "one record more than counted": _records(
        lambda: with_fields(batch([b"a", b"b"]), record_count=1, last_offset_delta=0), ErrorCode.INVALID_RECORD
    ),
    "offset deltas with a gap": _records(lambda: _numbered(0, 2), ErrorCode.INVALID_RECORD),
    "offset deltas that begin at 1": _records(lambda: _numbered(1, 2), ErrorCode.INVALID_RECORD),
    "offset deltas that go back": _records(lambda: _numbered(1, 0), ErrorCode.INVALID_RECORD),
    "lz4 of offset deltas with a gap": _records(lambda: _numbered(0, 2, codec=3), ErrorCode.INVALID_RECORD),
    "lz4 of one record fewer than counted": _records(
        lambda: with_fields(batch([b"x"], compression=3), record_count=2, last_offset_delta=1), ErrorCode.INVALID_RECORD
    ),
    "lz4 of one record more than counted": _records(
        lambda: with_fields(batch([b"a", b"b"], compression=3), record_count=1, last_offset_delta=0),
        ErrorCode.INVALID_RECORD,
    ),
    "an idempotent producer's garbage": _records(
        lambda: with_records(batch(producer_id=5003, producer_epoch=0, base_sequence=0), b"\xff" * 40),
        ErrorCode.INVALID_RECORD,
    ),
    "two null keys among four on a compacted topic": _records(
        lambda: _keyed(b"a", None, b"b", None), ErrorCode.INVALID_RECORD, topic=COMPACTED_TOPIC
    ),
    "lz4 of a null key on a compacted topic": _records(
        lambda: _keyed(b"a", None, codec=3), ErrorCode.INVALID_RECORD, topic=COMPACTED_TOPIC
    ),
    "null key on a compacted topic": _records(
        lambda: encode_batch([Record(timestamp_ms=now_ms(), value=b"v")]),
        ErrorCode.INVALID_RECORD,
        topic=COMPACTED_TOPIC,
    ),
    # Times.
    "an hour and more ahead": _records(lambda: batch(timestamp_ms=now_ms() + 2 * HOUR_MS), ErrorCode.INVALID_TIMESTAMP),
    "2^63-1 ms": _records(lambda: batch(timestamp_ms=2**63 - 1), ErrorCode.INVALID_TIMESTAMP),
    "no timestamp": _records(lambda: batch(timestamp_ms=-1), OK),
    "timestamp -2": _records(lambda: batch(timestamp_ms=-2), OK),
    "the beginning of time": _records(lambda: batch(timestamp_ms=0), OK),
    "max timestamp below base": _records(lambda: with_fields(batch(), max_timestamp=now_ms() - 10 * HOUR_MS), OK),
    "too old for a strict topic": _records(
        lambda: batch(timestamp_ms=now_ms() - HOUR_MS), ErrorCode.INVALID_TIMESTAMP, topic=STRICT_TIME_TOPIC
    ),
    "too new for a strict topic": _records(
        lambda: batch(timestamp_ms=now_ms() + HOUR_MS // 2), ErrorCode.INVALID_TIMESTAMP, topic=STRICT_TIME_TOPIC
    ),
    "any time on an append-time topic": _records(
        lambda: batch(timestamp_ms=now_ms() + 100 * HOUR_MS), OK, topic=APPEND_TIME_TOPIC
    ),
    # Sizes.
    "larger than max.message.bytes": _records(
        lambda: batch([b"x" * 3000]), ErrorCode.MESSAGE_TOO_LARGE, topic=SMALL_TOPIC
    ),
    "exactly max.message.bytes": _records(lambda: _of_size(2000), OK, topic=SMALL_TOPIC),
    "one byte above max.message.bytes": _records(
        lambda: _of_size(2001), ErrorCode.MESSAGE_TOO_LARGE, topic=SMALL_TOPIC
    ),
    "larger than the default": _records(lambda: batch([b"x" * 1_100_000]), ErrorCode.MESSAGE_TOO_LARGE),
    # The request around it.
    "acks 7": Case(lambda: produce(TOPIC, batch(), acks=7), ErrorCode.INVALID_REQUIRED_ACKS),
    "acks -2": Case(lambda: produce(TOPIC, batch(), acks=-2), ErrorCode.INVALID_REQUIRED_ACKS),
    "unknown topic": Case(lambda: produce("nowhere", batch()), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "unknown partition": Case(lambda: produce(TOPIC, batch(), partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "negative partition": Case(lambda: produce(TOPIC, batch(), partition=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "unknown topic id": Case(
        lambda: produce("", batch(), topic_id=uuid.UUID(int=12345)), ErrorCode.UNKNOWN_TOPIC_ID, version=13
    ),
    "zero topic id": Case(lambda: produce("", batch()), ErrorCode.UNKNOWN_TOPIC_ID, version=13),
    "a name with a slash": Case(lambda: produce("../evil", batch()), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "the empty name": Case(lambda: produce("", batch()), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "an internal topic": Case(lambda: produce("__consumer_offsets", batch()), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "the metadata topic": Case(lambda: produce("__cluster_metadata", batch()), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a negative timeout": Case(lambda: produce(TOPIC, batch(), timeout_ms=-1, acks=1), OK),
    "a transactional id with a plain batch": Case(lambda: produce(TOPIC, batch(), transactional_id="t"), OK),
}


def _of_size(size_bytes: int) -> bytes:
    small = batch([b""])
    value = size_bytes - len(small)
    while len(made := batch([b"x" * value])) > size_bytes:
        value -= 1
    assert len(made) == size_bytes
    return made


def twice_the_partition() -> bytes:
    """A Produce of version 3 that names one partition of one topic twice."""
    one = struct.pack(">ii", 0, len(good := batch())) + good
    return struct.pack(">hhi", -1, -1, 10_000) + struct.pack(">ih", 1, 6) + b"target" + struct.pack(">i", 2) + one + one
