"""From the batches of a `__consumer_offsets` partition to the records that count, in the order of the log.

Offsets that were committed within a transaction count from the marker that commits it, and never if it was aborted.
The key of a marker is | version int16 | type int16 |, type 1 for commit and 0 for abort.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from strandline.codec.columns import Columns
from strandline.coordinators.events import Record

MARKER_KEY = Struct(">hh")
COMMIT_MARKER = 1


class Replay:
    def __init__(self) -> None:
        self._open: dict[int, list[Record]] = {}
        """Records of transactions without a marker so far, by producer id."""

    def records_of(self, columns: Columns) -> Iterator[Record]:
        """The records that count once this batch is there."""
        if columns.is_control:
            pending = self._open.pop(columns.producer_id, [])
            key = columns.key(0) if columns.count else None
            if key is not None and len(key) >= MARKER_KEY.size and MARKER_KEY.unpack_from(key)[1] == COMMIT_MARKER:
                yield from pending
            return
        records = (Record(record.key, record.value) for record in columns.records() if record.key is not None)
        if columns.is_transactional:
            self._open.setdefault(columns.producer_id, []).extend(records)
        else:
            yield from records
