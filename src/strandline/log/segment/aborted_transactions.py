"""Which aborted transactions a reader has to know of: the `.txnindex` files of a log, asked for a range of offsets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from strandline.codec.record_batch import CONTROL, TRANSACTIONAL, BatchHeader
from strandline.errors import DiskFailed

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog
    from strandline.log.segment.log_slice import LogSlice
    from strandline.log.segment.segment import Segment
    from strandline.log.segment.transaction_index import TransactionIndex


def aborted_transactions(
    log: PartitionLog, start_offset: int, end_offset: int, *, may_block: bool
) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions that have records between two offsets.

    Raises ColdRead if an index must be read first, and `may_block` is not set.
    """
    found: list[tuple[int, int]] = []
    try:
        for segment in aborted_segments(log, start_offset):
            if segment.load_transaction_index(may_block=may_block).collect(start_offset, end_offset, found):
                break
    except OSError as error:
        raise DiskFailed(f"{log.directory}: cannot read: {error.strerror}") from error
    return found


def aborted_in(log: PartitionLog, records: LogSlice, start_offset: int, *, may_block: bool) -> list[tuple[int, int]]:
    """Return the same for records that a reader is sent who began at `start_offset`."""
    if not log.has_aborted:
        return []
    segment = records.segment
    end_offset = _offset_behind(segment, records.position + records.size_bytes, may_block=may_block)
    if end_offset is None:
        at = bisect_right(log.base_offsets, segment.base_offset)
        end_offset = log.base_offsets[at] if at < len(log.base_offsets) else log.log_end_offset
    return aborted_transactions(log, start_offset, end_offset, may_block=may_block)


class AbortedRanges:
    """The aborted transactions that reach into a range of offsets: which batches are theirs.

    If they are more than `transactions_max`, the range ends early, where those that were gathered are all.
    """

    __slots__ = ("_by_producer", "_left", "_start_offset", "end_offset")

    def __init__(self, start_offset: int, end_offset: int, *, transactions_max: int) -> None:
        self._start_offset = start_offset
        self.end_offset = end_offset
        self._left = transactions_max
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        """First offsets and offsets of the markers, both growing."""

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def collect(self, index: TransactionIndex) -> bool:
        """Add those of an index; whether no later one can reach into the range."""
        for at in range(bisect_left(index.last_offsets, self._start_offset), len(index)):
            if index.first_offsets[at] < self.end_offset:
                firsts, lasts = self._by_producer.setdefault(index.producer_ids[at], ([], []))
                firsts.append(index.first_offsets[at])
                lasts.append(index.last_offsets[at])
                self._left -= 1
            stable_offset = index.stable_offsets[at]
            if stable_offset >= self.end_offset:
                return True
            if self._left <= 0 and stable_offset > self._start_offset:
                # Whatever is aborted later lies behind this.
                self.end_offset = stable_offset
                return True
        return False

    def has(self, header: BatchHeader) -> bool:
        """Return whether the records of a batch were aborted."""
        if not header.attributes & TRANSACTIONAL or header.attributes & CONTROL:
            return False
        found = self._by_producer.get(header.producer_id)
        if found is None:
            return False
        at = bisect_left(found[1], header.base_offset)
        return at < len(found[1]) and found[0][at] <= header.base_offset


def aborted_segments(log: PartitionLog, start_offset: int) -> list[Segment]:
    """Those that may tell of transactions with records from `start_offset` on: a marker comes behind its records."""
    if not log.has_aborted:
        return []
    at = max(0, bisect_right(log.base_offsets, start_offset) - 1)
    return [segment for segment in log.segments[at:] if segment.has_transaction_index]


def _offset_behind(segment: Segment, position: int, *, may_block: bool) -> int | None:
    """Return an offset shortly behind all records that begin before `position`; None if only the end is known."""
    tail = segment.tail_positions
    if tail and position >= tail[0]:
        at = bisect_left(tail, position)
        return segment.tail_offsets[at] if at < len(tail) else None
    segment.load_indexes(may_block=may_block)
    return segment.index.offset_behind(position, segment.base_offset)
