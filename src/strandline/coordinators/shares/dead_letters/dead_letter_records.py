"""The record that is written to a dead-letter topic for a record of the source.

Headers are UTF-8 text. `__dlq.errors.*` are Kafka's; `strandline.dlq.*` are ours, and each is there where it is known:

    __dlq.errors.topic, .partition, .offset   where the record was
    __dlq.errors.group                        the share group that gave it up
    __dlq.errors.delivery.count, .message     how often it was delivered, and why it was not again
    strandline.dlq.timestamp                  the timestamp of the record
    strandline.dlq.member                     the member that held it last
    strandline.dlq.acquired, .ended           when that delivery began and ended, in milliseconds since 1970
    strandline.dlq.header.NAME                a header of the record, with its bytes; only if the record is copied
    strandline.dlq.copy                       why key and value are not copied: `off`, `gone` or `too large`
"""

from __future__ import annotations

from typing import Final, NamedTuple

from strandline.codec.columns import Record
from strandline.coordinators.shares.delivery.dead_ranges import DeadRange, DeathCause

DLQ_ERRORS: Final = "__dlq.errors."
OWN: Final = "strandline.dlq."
OWN_HEADER: Final = f"{OWN}header."
"""Before the name of a header of the record."""


class DeadSource(NamedTuple):
    """The share partition that dead letters come from."""

    group_id: str
    topic: str
    partition: int
    delivery_count_limit: int
    is_copied: bool
    """Whether the group wants key, value and headers in its dead letters."""


def dead_letter(source: DeadSource, letter: DeadRange, offset: int, record: Record | None, *, now_ms: int) -> Record:
    """Return the dead letter of one record; `record` is None if the log no longer has it."""
    cause = letter.cause
    if cause is None:
        # It is not stored. Kafka infers it in the same way.
        is_exhausted = letter.delivery_count >= source.delivery_count_limit
        cause = DeathCause.EXHAUSTED if is_exhausted else DeathCause.REJECTED
    headers: list[tuple[str, bytes | None]] = [
        (DLQ_ERRORS + "topic", source.topic.encode()),
        (DLQ_ERRORS + "partition", b"%d" % source.partition),
        (DLQ_ERRORS + "offset", b"%d" % offset),
        (DLQ_ERRORS + "group", source.group_id.encode()),
        (DLQ_ERRORS + "delivery.count", b"%d" % letter.delivery_count),
        (DLQ_ERRORS + "message", cause.encode()),
    ]
    if record is not None:
        headers.append((OWN + "timestamp", b"%d" % record.timestamp_ms))
    if letter.member_id:
        headers.append((OWN + "member", letter.member_id.encode()))
    if letter.acquired_ms >= 0:
        headers.append((OWN + "acquired", b"%d" % letter.acquired_ms))
    if letter.ended_ms >= 0:
        headers.append((OWN + "ended", b"%d" % letter.ended_ms))
    if record is not None and source.is_copied and not letter.is_bare:
        headers += [(OWN_HEADER + name, value) for name, value in record.headers]
        return Record(timestamp_ms=now_ms, key=record.key, value=record.value, headers=tuple(headers))
    why = b"off" if not source.is_copied else b"gone" if record is None else b"too large"
    headers.append((OWN + "copy", why))
    return Record(timestamp_ms=now_ms, headers=tuple(headers))


def size_of(letter: Record) -> int:
    """Return about how many bytes a record takes in a batch."""
    headers = sum(len(name) + len(value or b"") + 8 for name, value in letter.headers)
    return 24 + len(letter.key or b"") + len(letter.value or b"") + headers
