"""Files that are read ahead in a thread, because a fetch met data that is not in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from strandline.errors import DamagedRecords
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.aborted_transactions import aborted_segments
from strandline.log.segment.read_verification import PIECE_BYTES, check_ahead
from strandline.log.segment.segment import Segment
from strandline.runtime.runtime import Runtime

CHECKED_AHEAD_BYTES: Final = 1024 * 1024
"""What a thread checks for one reader of one partition at a time, at most."""


class ColdReads:
    """What one fetch waits for. The segments are retained until it is read."""

    def __init__(self) -> None:
        self._places: list[tuple[Segment, int]] = []
        self._indexes: list[Segment] = []

    def add(self, log: PartitionLog, offset: int, *, with_aborted: bool) -> None:
        """Read the log from an offset on, and the indexes that say which transactions were aborted."""
        segment = log.segment_of(offset)
        if segment is not None:
            segment.retain()
            self._places.append((segment, offset))
        for segment in aborted_segments(log, offset) if with_aborted else ():
            segment.retain()
            self._indexes.append(segment)

    def begin(self, runtime: Runtime, size_bytes: int, on_done: Callable[[BaseException | None], object]) -> None:
        """Read about `size_bytes` in a thread, then call back with the error, if there was one."""
        ahead = max(PIECE_BYTES, min(CHECKED_AHEAD_BYTES, size_bytes // max(1, len(self._places))))

        def warm() -> None:
            for segment, offset in self._places:
                # The segment remembers the damage, and the next look answers with it.
                with suppress(DamagedRecords):
                    check_ahead(segment, offset, ahead)
            for segment in self._indexes:
                segment.load_transaction_index(may_block=True)

        def done(_: None, error: BaseException | None) -> None:
            for segment in (*(segment for segment, _ in self._places), *self._indexes):
                segment.release()
            on_done(error)

        runtime.in_thread(warm, done)
