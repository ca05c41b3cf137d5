"""Which snapshot a record continues, and which snapshots a topic holds."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.sqlite.records import SNAPSHOT, ShippedHeader
from strandline.sqlite.topic import ShippedRecord, ShippedTopic


def is_unfinished(header: ShippedHeader) -> bool:
    """Return whether the record is a part of a snapshot before its last one."""
    return header.kind == SNAPSHOT and not header.is_last


def start_of(record: ShippedRecord) -> int:
    """Return the offset of the first part of a snapshot, from any of its parts."""
    return record.offset if record.header.start is None else record.header.start


def snapshot_of(record: ShippedRecord) -> int | None:
    """Return the offset of the newest whole snapshot up to a record."""
    if record.header.kind == SNAPSHOT and record.header.is_last:
        return start_of(record)
    return record.header.snapshot


def last_state(topic: ShippedTopic, end: int, begin: int) -> ShippedRecord | None:
    """Return the last record before an offset that is no part of an unfinished snapshot; None if there is none."""
    found = topic.last_before(end, begin)
    while found is not None and is_unfinished(found.header):
        found = topic.last_before(start_of(found), begin)
    return found


def snapshots(topic: ShippedTopic, newest: int | None, begin: int) -> Iterator[ShippedRecord]:
    """Yield the first parts of whole snapshots that the topic holds, newest first."""
    at = newest
    while at is not None and at >= begin:
        record = topic.at(at)
        yield record
        at = record.header.snapshot
