"""Counting the records that a read_committed consumer gets from a position on, and those that are undecided."""

from __future__ import annotations

from typing import Final, NamedTuple

from strandline.errors import ErrorCode, RequestError
from strandline.log.segment.counting import LogChanged, count_between, is_plain
from strandline.log.segment.time_lookup import Part
from strandline.partition.partition import Partition

ATTEMPTS_MAX: Final = 3
"""How often counting is repeated if the log changes meanwhile."""


class Counted(NamedTuple):
    records: int
    """Records that a read_committed consumer gets, up to the last stable offset."""
    undecided: int
    """Records between that, or the position if it is higher, and the high watermark: some may still be aborted."""


NOTHING: Final = Counted(0, 0)


def _first_counted(partition: Partition, offset: int) -> int:
    """Return where counting begins. Raise RequestError if that is in the object store, where no counts are kept."""
    start, local = max(offset, partition.log_start_offset), partition.log.log_start_offset
    if start < local:
        # Not the count of what is here: a lag that is too low looks like no lag.
        raise RequestError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition!r}: records {start} to {local - 1} are in the object store alone, and are not counted",
        )
    return start


def unread_if_plain(partition: Partition, offset: int) -> Counted | None:
    """Return the count as a difference where every offset is a record, as on most topics. Else return None."""
    log = partition.log
    start, end = _first_counted(partition, offset), partition.high_watermark
    if start >= end:
        return NOTHING
    if partition.producers.first_unstable_offset < end or not is_plain(log, start, end):
        return None
    return Counted(end - start, 0)


def count_unread(partition: Partition, offset: int) -> Part[Counted]:
    """Count from `offset` on, or from the log start if that is later.

    Raises LogChanged if the log keeps changing, and RequestError if some of the records are in the object store alone.
    """
    attempt = 1
    while True:
        log = partition.log
        if log.failure is not None:
            raise log.refusal()
        plain = unread_if_plain(partition, offset)
        if plain is not None:
            return plain
        start, stable, end = _first_counted(partition, offset), partition.last_stable_offset, partition.high_watermark
        try:
            records = yield from count_between(log, start, stable, excludes_aborted=True)
            undecided = yield from count_between(log, max(start, stable), end, excludes_aborted=False)
        except LogChanged:
            if attempt == ATTEMPTS_MAX:
                raise
            attempt += 1
            yield None
        else:
            return Counted(records, undecided)
