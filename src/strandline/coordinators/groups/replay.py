"""From the batches of a `__consumer_offsets` partition to what a shard is loaded with, in the order of the log.

Offsets that were committed within a transaction are pending until the marker that ends it; who wrote them, this
coordinator or one before it, makes no difference. The key of a marker is | version int16 | type int16 |.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from strandline.codec.columns import Columns
from strandline.coordinators.groups.events import TransactionEnded
from strandline.coordinators.groups.shard_terms import CoordinatorRecord

MARKER_KEY = Struct(">hh")
ABORT_MARKER = 0
COMMIT_MARKER = 1


class PendingRecord(NamedTuple):
    """A record within a transaction of the producer."""

    key: bytes
    value: bytes | None
    producer_id: int


Replayed = CoordinatorRecord | PendingRecord | TransactionEnded


def replay(columns: Columns) -> Iterator[Replayed]:
    """Yield the records of a batch of the log."""
    if columns.is_control:
        key = columns.key(0) if columns.count else None
        if key is not None and len(key) >= MARKER_KEY.size:
            marker = MARKER_KEY.unpack_from(key)[1]
            # Control records of other kinds say nothing about transactions.
            if marker in (ABORT_MARKER, COMMIT_MARKER):
                yield TransactionEnded(columns.producer_id, marker == COMMIT_MARKER)
    elif columns.is_transactional:
        producer_id = columns.producer_id
        for record in columns.records():
            if record.key is not None:
                yield PendingRecord(record.key, record.value, producer_id)
    else:
        for record in columns.records():
            if record.key is not None:
                yield CoordinatorRecord(record.key, record.value)
