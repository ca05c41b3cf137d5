"""Why a leader does not store a batch, in words."""

from __future__ import annotations

from strandline.codec.record_batch import BASE_TIMESTAMP, MAX_TIMESTAMP, HeaderFields
from strandline.errors import BatchTooLarge, InvalidTimestamp


def too_large(topic: str, size_bytes: int, limit: int) -> BatchTooLarge:
    return BatchTooLarge(f"a batch of {size_bytes} bytes; max.message.bytes of {topic} is {limit}")


def out_of_time(topic: str, header: HeaderFields, now_ms: int) -> InvalidTimestamp:
    first, last = header[BASE_TIMESTAMP], header[MAX_TIMESTAMP]
    return InvalidTimestamp(f"timestamps {first} to {last} are outside what {topic} accepts at {now_ms}")
