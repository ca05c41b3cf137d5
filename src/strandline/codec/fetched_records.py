"""The answer to a Fetch for one partition, versions 4 to 18, read by hand: the records stay a view of the answer.

The compiled `FetchResponse` copies them, which at a kilobyte a record costs a reader as much as their CRC. Held equal
to it by a test. Only what a reader of one partition needs is kept; an answer for several is refused.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from strandline.codec.fetch import FLEXIBLE_FROM, TOPIC_ID_FROM
from strandline.codec.primitives import read_uvarint
from strandline.codec.wire import read_count, read_name, skip_tags
from strandline.errors import MalformedMessage

_INT32 = Struct(">i")
_HEAD_7 = Struct(">ihi")
_PARTITION_4 = Struct(">ihqq")
_ABORTED = Struct(">qq")


class FetchedRecords(NamedTuple):
    throttle_time_ms: int
    error_code: int
    """Of the whole answer, or else of the partition."""
    is_told: bool
    """Whether the partition is in the answer at all."""
    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]]
    """Producer ids and first offsets of aborted transactions, in the order in which they came."""
    records: memoryview


def read_fetched_records(view: memoryview, at: int, version: int) -> FetchedRecords:
    try:
        return _read(view, at, version)
    except (StructError, IndexError) as error:
        raise MalformedMessage("a Fetch answer that ends too early") from error


def _read(view: memoryview, at: int, version: int) -> FetchedRecords:
    flexible = version >= FLEXIBLE_FROM
    error_code = 0
    if version >= 7:
        throttle_ms, error_code, _ = _HEAD_7.unpack_from(view, at)
        at += 10
    else:
        (throttle_ms,) = _INT32.unpack_from(view, at)
        at += 4
    topics, at = read_count(view, at, flexible, 3)
    if topics:
        at = at + 16 if version >= TOPIC_ID_FROM else read_name(view, at, flexible)[1]
        partitions, at = read_count(view, at, flexible, 24)
        if topics > 1 or partitions > 1:
            raise MalformedMessage(f"an answer for {topics} topics to a Fetch of one partition")
        if partitions:
            return _read_partition(view, at, version, throttle_ms, error_code)
    return FetchedRecords(throttle_ms, error_code, False, -1, -1, [], view[:0])


def _read_partition(view: memoryview, at: int, version: int, throttle_ms: int, error_code: int) -> FetchedRecords:
    flexible = version >= FLEXIBLE_FROM
    _, partition_error, high_watermark, last_stable_offset = _PARTITION_4.unpack_from(view, at)
    # Version 5 brought the log start offset, 11 the replica to read from: neither is looked at.
    at += 30 if version >= 5 else 22
    aborted, at = _read_aborted(view, at, flexible)
    at += 4 if version >= 11 else 0
    if flexible:
        size, at = read_uvarint(view, at)
        size -= 1
    else:
        (size,) = _INT32.unpack_from(view, at)
        at += 4
    size = max(0, size)
    if size > len(view) - at:
        raise MalformedMessage(f"records of {size} bytes with {len(view) - at} left")
    return FetchedRecords(
        throttle_ms,
        error_code or partition_error,
        True,
        high_watermark,
        last_stable_offset,
        aborted,
        view[at : at + size],
    )


def _read_aborted(view: memoryview, at: int, flexible: bool) -> tuple[list[tuple[int, int]], int]:
    if flexible:
        count, at = read_uvarint(view, at)
        count -= 1
    else:
        (count,) = _INT32.unpack_from(view, at)
        at += 4
    # As many as small transactions fit into what is fetched, so only the bytes that are left bound them.
    if count * _ABORTED.size > len(view) - at:
        raise MalformedMessage(f"{count} aborted transactions in {len(view) - at} bytes")
    found = []
    for _ in range(count):
        found.append(_ABORTED.unpack_from(view, at))
        at += _ABORTED.size
        if flexible:
            at = skip_tags(view, at)
    return found, at
