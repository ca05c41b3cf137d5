"""What a reader of committed records gets from a position of a partition, and what is not decided yet."""

from __future__ import annotations

from typing import Final, NamedTuple

from strandline.log.segment.counting import LogChanged, count_between, is_plain
from strandline.log.segment.time_lookup import Part
from strandline.partition.partition import Partition

ATTEMPTS_MAX: Final = 3
"""How often a log is counted that changes meanwhile."""


class Counted(NamedTuple):
    records: int
    """That a reader of committed records gets, up to the last stable offset."""
    undecided: int
    """Between that and the high watermark, or the position if it lies behind: some may be aborted yet."""


NOTHING: Final = Counted(0, 0)


def unread_if_plain(partition: Partition, offset: int) -> Counted | None:
    """The same where offsets are records, as on most topics: a difference. None where they may not be."""
    log = partition.log
    start, end = max(offset, log.log_start_offset), partition.high_watermark
    if start >= end:
        return NOTHING
    if partition.producers.first_unstable_offset < end or not is_plain(log, start, end):
        return None
    return Counted(end - start, 0)


def count_unread(partition: Partition, offset: int) -> Part[Counted]:
    """Count from `offset` on, or from the log start if that is later. LogChanged if the log does not stand still."""
    attempt = 1
    while True:
        log = partition.log
        if log.failure is not None:
            raise log.refusal()
        plain = unread_if_plain(partition, offset)
        if plain is not None:
            return plain
        start, stable, end = max(offset, log.log_start_offset), partition.last_stable_offset, partition.high_watermark
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
