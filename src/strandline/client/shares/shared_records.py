"""Records in the answer of a ShareFetch, and ranges of acknowledgements, as they are on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from strandline.codec.columns import Record, columns_of

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
"""Types of acknowledgements, as Kafka numbers them."""


class AcknowledgedOffsets(NamedTuple):
    """Offsets that follow each other, each with the type of its acknowledgement."""

    first: int
    last: int
    types: list[int]
    """One for all, or one for each."""


def acknowledged_ranges(types: Mapping[int, int]) -> Iterator[AcknowledgedOffsets]:
    """Yield the fewest ranges that have each offset with its type, in the order that brokers want."""
    offsets = sorted(types)
    begin = 0
    for at in range(1, len(offsets) + 1):
        if at < len(offsets) and offsets[at] == offsets[at - 1] + 1:
            continue
        part = [types[offset] for offset in offsets[begin:at]]
        yield AcknowledgedOffsets(offsets[begin], offsets[at - 1], part[:1] if len(set(part)) == 1 else part)
        begin = at


def acquired_records(
    records: bytes | memoryview | None, acquired: Iterable[tuple[int, int, int]]
) -> Iterator[tuple[int, Record | None, int]]:
    """Yield offset, record and delivery count of everything that was acquired: first, last and count of each range.

    The record is None where the log has none that a consumer sees: a marker, or one that was compacted away.
    Raises CorruptBatch if the records cannot be read. Records beside the acquired ranges are left out.
    """
    found = _by_offset(records)
    record = next(found, None)
    for first, last, count in acquired:
        for offset in range(first, last + 1):
            while record is not None and record.offset < offset:
                record = next(found, None)
            if record is not None and record.offset == offset:
                yield offset, record, count
            else:
                yield offset, None, count


def _by_offset(records: bytes | memoryview | None) -> Iterator[Record]:
    for columns in columns_of(records or b""):
        if not columns.is_control:
            yield from columns.records()
